"""Measure the memory and time of a training step of a causal language model, by precision and method of tuning.

    python benchmarks/memory.py FOLDER [--rows 1] [--tokens 256] [--threads 1]

FOLDER is a model folder, or an id on the Hub; ``gpt2`` makes a model of the size of GPT-2 with random weights. Each
combination runs in its own process. The memory is the increase of peak memory from before the model is loaded to the
end of the second step of AdamW: of the device on a GPU, of the process on a CPU.
"""

import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import typer
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from hfattn.loading import BaseModel, load_model
from hfattn.training import TuningConfig, tuned

LORA = TuningConfig(method="lora")
FORMS: dict[str, tuple[TuningConfig, dict[str, Any], bool]] = {
    "full, float32": (TuningConfig(), {}, False),
    "full, bfloat16": (TuningConfig(), {"dtype": "bfloat16"}, False),
    "full, bfloat16, gradient checkpointing": (TuningConfig(), {"dtype": "bfloat16"}, True),
    "lora, float32": (LORA, {}, False),
    "lora, bfloat16": (LORA, {"dtype": "bfloat16"}, False),
    "lora, bfloat16, gradient checkpointing": (LORA, {"dtype": "bfloat16"}, True),
    "lora, 8bit": (LORA, {"quantization": "8bit", "dtype": "bfloat16"}, False),
    "lora, 4bit": (LORA, {"quantization": "4bit", "dtype": "bfloat16"}, False),
    "lora, 4bit, gradient checkpointing": (LORA, {"quantization": "4bit", "dtype": "bfloat16"}, True),
}


def peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(form: str, name: str, rows: int, tokens: int, threads: int, results: Any) -> None:
    torch.set_num_threads(threads)
    tuning, precision, checkpointing = FORMS[form]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    import peft  # noqa: F401  not part of the model's memory

    torch.ones(1, device=device)
    before = peak(device)
    try:
        loaded = load_model(AutoModelForCausalLM, BaseModel(name=name, **precision))
        model: Any = tuned(loaded, tuning, "CAUSAL_LM")
        model = model if "quantization" in precision else model.to(device)
        if checkpointing:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad])
        ids = torch.randint(0, 1000, (rows, tokens), device=device)
        model.train()
        for _ in range(2):
            start = time.perf_counter()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            seconds = time.perf_counter() - start
    except Exception as error:  # of bitsandbytes: a kernel that the machine lacks, or a width that it cannot pack
        results.put(f"| {form} | {type(error).__name__} | |")
        return
    results.put(f"| {form} | {(peak(device) - before) / 1e6:,.0f} | {seconds:.2f} |")


def make_gpt2(folder: str) -> None:
    GPT2LMHeadModel(GPT2Config()).save_pretrained(folder)


def main(model: str, rows: int = 1, tokens: int = 256, threads: int = 1) -> None:
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        if model == "gpt2":
            model = str(Path(scratch) / model)
            # In a process of its own: the peak of this one is that of each process that it starts, at first.
            maker = context.Process(target=make_gpt2, args=(model,))
            maker.start()
            maker.join()
        print(f"| {rows} x {tokens} tokens | memory (MB) | seconds |\n|---|---|---|")
        for form in FORMS:
            results = context.Queue()
            process = context.Process(target=measure, args=(form, model, rows, tokens, threads, results))
            process.start()
            print(results.get(), flush=True)
            process.join()


if __name__ == "__main__":
    typer.run(main)

"""Compare training of the char-RNN with a plain PyTorch loop, and generation with and without its cache.

    python benchmarks/char_lm.py [--threads 2] [--steps 300] [--rounds 5]

Training: embedding 16, GRU 128, windows of 100 characters, batch 32, Nadam, gradient clipping; with the trainer of the
recipe and with a minimal loop over nn.Embedding, nn.GRU and nn.Linear on the same batches. The two alternate; the
medians of the rounds are compared. Generation: microseconds per character of ``generate()`` with and without the
cache.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator

import torch
from torch import nn
from transformers import PrinterCallback, TrainingArguments
from transformers.utils import logging

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Windows, encode_text, open_text
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import ReliableTrainer, optimizer_class_and_arguments

WINDOW, BATCH, EMBEDDING, HIDDEN = 100, 32, 16, 128


class BareModel(nn.Module):
    def __init__(self, symbols: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(symbols, EMBEDDING)
        self.gru = nn.GRU(EMBEDDING, HIDDEN, batch_first=True)
        self.output = nn.Linear(HIDDEN, symbols)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.output(self.gru(self.embedding(ids))[0])


def bare_loop(windows: Windows, symbols: int, steps: int) -> float:
    """Return seconds per step of the plain loop, including batching."""
    model = BareModel(symbols)
    optimizer = torch.optim.NAdam(model.parameters(), lr=1e-3)

    def batches() -> Iterator[dict[str, torch.Tensor]]:
        order = iter(windows.sampler(0))
        while True:
            yield windows.__getitems__([next(order) for _ in range(BATCH)])

    source = batches()
    start = time.perf_counter()
    for _ in range(steps):
        batch = next(source)
        logits = model(batch["input_ids"])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch["shift_labels"].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # the trainer also reads the loss
    return (time.perf_counter() - start) / steps


def recipe_loop(windows: Windows, symbols: int, steps: int) -> float:
    """Return seconds per step of the trainer on the same batches."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=1e-3, logging_steps=250,
            lr_scheduler_type="constant", save_strategy="no", report_to="none", disable_tqdm=True,
            use_cpu=not torch.accelerator.is_available(), remove_unused_columns=False, logging_nan_inf_filter=False,
            data_seed=0,
        )  # fmt: skip
        config = CharRNNConfig(vocab_size=symbols, embedding_size=EMBEDDING, hidden_size=HIDDEN)
        trainer = ReliableTrainer(
            CharRNNForCausalLM(config), arguments, data_collator=windows.collate, train_dataset=windows,
            optimizer_cls_and_kwargs=optimizer_class_and_arguments("nadam", arguments),
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        return trainer.train().metrics["train_runtime"] / steps


def microseconds_per_character(symbols: int, prompt: int, new: int, use_cache: bool) -> float:
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=symbols, embedding_size=EMBEDDING, hidden_size=HIDDEN)).eval()
    ids = torch.randint(1, symbols, (1, prompt))
    options = {"do_sample": True, "top_k": 0, "use_cache": use_cache, "pad_token_id": 0}
    model.generate(ids, max_new_tokens=8, **options)
    start = time.perf_counter()
    model.generate(ids, max_new_tokens=new, **options)
    return (time.perf_counter() - start) / new * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    text = open_text("embedded")
    tokenizer = build_character_tokenizer(text.counts)
    symbols = len(tokenizer)
    windows = Windows(encode_text(text, tokenizer).ids, WINDOW)

    times: dict[str, list[float]] = {"bare": [], "recipe": []}
    for _ in range(options.rounds):
        times["bare"].append(bare_loop(windows, symbols, options.steps))
        times["recipe"].append(recipe_loop(windows, symbols, options.steps))
    medians = {name: statistics.median(values) for name, values in times.items()}
    print(
        f"threads {options.threads}, {options.rounds} rounds of {options.steps} steps of {BATCH} x {WINDOW} characters"
    )
    for name, values in times.items():
        rate = BATCH * WINDOW / medians[name]
        spread = f"{min(values) * 1e3:.2f} to {max(values) * 1e3:.2f}"
        print(f"{name + ' loop':12}{medians[name] * 1e3:8.2f} ms a step ({spread}){rate:10,.0f} characters/s")
    print(f"overhead    {100 * (medians['recipe'] / medians['bare'] - 1):8.1f} %")

    torch.set_num_threads(1)
    print("generation, one thread, batch 1, microseconds per character after a prompt of")
    for prompt in (10, 1000):
        cached, uncached = (microseconds_per_character(symbols, prompt, 200, use_cache) for use_cache in (True, False))
        print(f"{prompt:6d} characters: {cached:8.0f} with the state carried, {uncached:8.0f} without")


if __name__ == "__main__":
    main()

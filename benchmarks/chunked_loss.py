"""Compare training steps of language models with the loss in chunks, and with the logits of all positions.

    python -m benchmarks chunked_loss [--threads 1] [--device cpu] [--rounds 5] [--write]

The Llama has the size of ``recipes/causal_lm/shakespeare_stories15m.yaml``: 15 million parameters, 32,000 tokens, and 8
windows of 256 tokens in a step. The recurrent models are those of ``wikitext2_ulmfit.yaml`` and ``wikitext2_bilm.yaml``
with 8,000 tokens. Weights and texts are random. A step is ``ReliableTrainer.compute_loss``, its gradient and AdamW.
Before anything is timed, the losses of both are compared, with the same dropout. The second table has mixed precision,
and is left out on hardware that has no bfloat16 arithmetic. ``--write`` writes docs/records/chunked_loss.json and the
tables of docs/speed.md.
"""

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM, LlamaConfig, PreTrainedModel, TrainingArguments
from transformers.utils import logging

import hfattn  # noqa: F401  (registers its models)
from benchmarks.harness import ROOT, Benchmark, Group, Record, markdown, run, three_digits, titled_tables
from hfattn.metrics import token_loss
from hfattn.training import ReliableTrainer
from hfattn.training.arguments import computes_bfloat16

LOGITS, CHUNKS = "logits of all positions", "loss in chunks"
RECURRENT = {"wikitext2_ulmfit": (32, 70), "wikitext2_bilm": (16, 128)}  # rows and tokens of a batch
LLAMA, LLAMA_BATCH = "Llama, 15 million parameters", (8, 256)
SIZES: dict[str, Any] = {  # of stories15M
    "vocab_size": 32_000,
    "hidden_size": 288,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "tie_word_embeddings": True,
}


def models() -> Iterator[tuple[str, PreTrainedModel, tuple[int, int]]]:
    """Yield models by the name of the column, with the size of their batch."""
    yield LLAMA, AutoModelForCausalLM.from_config(LlamaConfig(**SIZES)), LLAMA_BATCH
    for name, batch in RECURRENT.items():
        section = yaml.safe_load((ROOT / "recipes" / "causal_lm" / f"{name}.yaml").read_text(encoding="utf-8"))["model"]
        config = AutoConfig.for_model(section.pop("model_type"), vocab_size=8000, **section)
        yield name, AutoModelForCausalLM.from_config(config), batch


def groups(device: torch.device, bf16: bool = False) -> Iterator[Group]:
    for column, model, (rows, tokens) in models():
        arguments = TrainingArguments(
            tempfile.gettempdir(), report_to="none", bf16=bf16, use_cpu=device.type == "cpu", disable_tqdm=True
        )
        trainer = ReliableTrainer(model.to(device).train(), arguments, compute_loss_func=token_loss)
        ids = torch.randint(model.config.vocab_size, (rows, tokens + 1), device=device)
        yield group(column, trainer, {"input_ids": ids[:, :-1], "labels": ids}, tolerance=5e-3 if bf16 else 1e-5)


def group(column: str, trainer: ReliableTrainer, batch: dict[str, torch.Tensor], tolerance: float) -> Group:
    model = trainer.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def loss(in_chunks: bool) -> torch.Tensor:
        trainer.chunked_loss = in_chunks
        with trainer.accelerator.autocast():
            found: torch.Tensor = trainer.compute_loss(model, dict(batch))
        return found

    def step(in_chunks: bool) -> None:
        loss(in_chunks).backward()
        optimizer.step()
        optimizer.zero_grad()

    def check() -> None:
        assert trainer.why_not_chunked() is None, trainer.why_not_chunked()
        losses = []
        for in_chunks in (False, True):
            torch.manual_seed(0)
            losses.append(loss(in_chunks).item())
        assert abs(losses[1] / losses[0] - 1) < tolerance, f"{column}: {losses}"

    functions: dict[str, Callable[[], None]] = {LOGITS: partial(step, False), CHUNKS: partial(step, True)}
    return Group(column, functions, check)


def bfloat16(device: torch.device) -> Iterator[Group]:
    if computes_bfloat16():
        yield from groups(device, bf16=True)


TITLES = {
    "float32": ("Language models in float32", "training step"),
    "bfloat16": ("Language models in mixed precision", "training step"),
}


def report(record: Record) -> str:
    parts = [titled_tables(record, TITLES)]
    for table, (title, first) in TITLES.items():
        if table in record.columns:
            columns, rows = record.columns[table], record.rows(table)
            cells = [[row, *(three_digits(each.sizes[row] / 1e6) for each in columns.values())] for row in rows]
            parts.append(f"**{title}, MB beside the model and its inputs**\n\n{markdown([first, *columns], cells)}")
    return "\n".join(parts)


BENCHMARK = Benchmark("chunked_loss", ROOT / "docs" / "speed.md", {"float32": groups, "bfloat16": bfloat16}, report)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)

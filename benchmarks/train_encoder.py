"""Compare a training step of an encoder that is fine-tuned with that of BERT with the same weights.

    python -m benchmarks train_encoder [--threads 1] [--device cpu] [--rounds 5] [--write]

The encoder has the sizes of MiniLM (width 384, 6 layers, 12 heads, 30,522 tokens) and BERT's dropouts of 0.1, also that
of the weights of attention, under a linear layer that reads the mean of its states. A step reads 16 texts, the shortest
of which is half as long as the longest, and consists of the loss of two classes, its gradient, and AdamW. ``hfattn
convert transformers`` makes the encoder of hfattn from BERT; before the steps are timed, the losses of all rows are
compared, and the norms of the gradients in float32, both without dropout. *fused* always computes attention with
PyTorch's fused kernel, which hfattn does not where it is slower. The rows in mixed precision (autocast) are left out on
hardware without bfloat16 arithmetic. ``--write`` writes docs/records/train_encoder.json and the table of docs/speed.md.
"""

from collections.abc import Iterator
from copy import deepcopy
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedModel
from transformers.utils import logging

from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from benchmarks.train_transformer import BFLOAT, FLOAT, ONEDNN, check_gradients, check_nats, trained
from hfattn import VaswaniModel
from hfattn.exchange import convert
from hfattn.models import modeling_vaswani
from hfattn.training.arguments import computes_bfloat16

SIZES = {
    "vocab_size": 30_522,
    "hidden_size": 384,
    "intermediate_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
}
TEXTS, LENGTHS = 16, (64, 256)
SDPA, EAGER, OURS, FUSED = "BERT, sdpa", "BERT, eager", "hfattn, sdpa", "hfattn, sdpa, fused"


class Classifier(nn.Module):
    """A linear layer of two classes on the mean of the last states of an encoder, without those of padding."""

    def __init__(self, encoder: PreTrainedModel, output: nn.Linear) -> None:
        super().__init__()
        self.encoder, self.output = encoder, output

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        states = self.encoder(input_ids, attention_mask).last_hidden_state
        mean = (states * attention_mask[..., None]).sum(1) / attention_mask.sum(1, keepdim=True)
        return nn.functional.cross_entropy(self.output(mean).float(), labels)


class FusedClassifier(Classifier):
    """The same, with PyTorch's fused kernel where hfattn takes it to be slower than matrices of weights."""

    def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> torch.Tensor:
        with patch.object(modeling_vaswani, "is_faster_unfused", lambda *inputs: False):
            return super().forward(*args, **kwargs)


def converted(bert: BertModel) -> VaswaniModel:
    """Return the encoder of hfattn with the weights of BERT."""
    with TemporaryDirectory() as folder:
        theirs, ours = Path(folder) / "bert", Path(folder) / "ours"
        bert.save_pretrained(theirs)
        convert("transformers", theirs, ours)
        return VaswaniModel.from_pretrained(ours)


def models(device: torch.device) -> dict[str, nn.Module]:
    """Return classifiers of the same weights by the names of the rows."""
    bert, output = BertModel(BertConfig(**SIZES), add_pooling_layer=False), nn.Linear(SIZES["hidden_size"], 2)
    ours = converted(bert)
    # hfattn has no table of segments: its one row is added to those of the tokens.
    bert.embeddings.token_type_embeddings.requires_grad_(False)
    eager = deepcopy(bert)
    eager.set_attn_implementation("eager")
    encoders: dict[str, PreTrainedModel] = {SDPA: bert, EAGER: eager, OURS: ours}
    found: dict[str, nn.Module] = {
        row: Classifier(encoder, deepcopy(output)).to(device) for row, encoder in encoders.items()
    }
    return found | {FUSED: FusedClassifier(deepcopy(ours), deepcopy(output)).to(device)}


def groups(device: torch.device) -> Iterator[Group]:
    precisions = [FLOAT, *([BFLOAT] if computes_bfloat16() else []), *([ONEDNN] if device.type == "cpu" else [])]
    for length in LENGTHS:
        found = models(device)
        sizes = torch.linspace(length / 2, length, TEXTS, device=device).long()
        batch = {
            "input_ids": torch.randint(5, SIZES["vocab_size"], (TEXTS, length), device=device),
            "attention_mask": (torch.arange(length, device=device) < sizes[:, None]).long(),
            "labels": torch.randint(2, (TEXTS,), device=device),
        }
        rows = {f"{row}, {each}": (found[row], [batch], each) for each in precisions for row in found}
        functions = {row: trained(model, *read, precision=of) for row, (model, read, of) in rows.items()}
        yield Group(f"{TEXTS} texts of up to {length} tokens", functions, partial(check, found, batch, rows))


def check(found: dict[str, nn.Module], batch: dict[str, torch.Tensor], rows: dict[str, tuple[Any, ...]]) -> None:
    check_gradients(found, batch)
    check_nats(rows, 5e-3)  # numbers in bfloat16 are rounded by up to 4e-3


TITLES = {"train_encoder": ("Encoder under a classifier", "training step")}

BENCHMARK = Benchmark(
    "train_encoder",
    ROOT / "docs" / "speed.md",
    {"train_encoder": groups},
    partial(titled_tables, titles=TITLES),
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)

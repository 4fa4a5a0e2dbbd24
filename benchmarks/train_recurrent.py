"""Compare training steps of recurrent translators with those of a loop in PyTorch, and of the char-RNN with nn.GRU.

    python -m benchmarks train_recurrent [--threads 1] [--device cpu] [--rounds 5] [--write]

The translators have the presets of their papers, with a width of 256 and 8,000 tokens, and read 64 pairs of 32 + 32
tokens. The loop in PyTorch has the same weights and the same encoder. It computes embeddings, keys, output layer and
loss for all steps at once, and attention and cells step by step, as their formulas are written. A step consists of the
loss, its gradient and AdamW. "Loss in chunks" is that of the recipes on a CPU (docs/speed.md). The second table has the
same in mixed precision, and is left out on hardware that has no bfloat16 arithmetic.

The character models have embeddings of width 16, one GRU and 65 characters, and read 32 windows of 100 characters. The
plain loop has embedding, GRU, output layer, loss, clipping and Nadam, on one batch. The trainer is that of the recipe
char_lm, with its start and its batches. Before anything is timed, the losses and the norms of the gradients are
compared. Where the field ``matmul: auto`` of the recipes selects oneDNN, two more tables have its steps beside that of
PyTorch's default. ``--write`` writes docs/records/train_recurrent.json and the tables of docs/speed.md.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear
from transformers import PrinterCallback, TrainingArguments
from transformers.utils import logging

from benchmarks.harness import ROOT, Benchmark, Group, run, titled_tables
from benchmarks.train_transformer import (
    BFLOAT,
    FLOAT,
    ONEDNN,
    ChunkedTranslator,
    check_gradients,
    check_nats,
    full_batch,
    trained,
)
from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Windows
from hfattn.training import ReliableTrainer, optimizer_class_and_arguments
from hfattn.training.arguments import computes_bfloat16
from hfattn.training.matrix_products import onednn_products, uses_onednn

WIDTH, V = 256, 8000
PRESETS = {"Bahdanau 2015": "bahdanau2015", "Luong 2015": "luong2015_general", "Sutskever 2014": "sutskever2014"}
LOOP, OURS, CHUNKED = "loop in PyTorch", "hfattn", "hfattn, loss in chunks"
SYMBOLS, EMBEDDING, WINDOW, ROWS = 65, 16, 100, 32
STEPS = {128: 100, 256: 50, 512: 20}  # of training in each round, by hidden size
BARE, MODEL, TRAINER = "nn.GRU, plain loop", "hfattn, plain loop", "hfattn, ReliableTrainer"


class LoopTranslator(nn.Module):
    """The formulas of the decoder, step by step, with the encoder and the weights of a translator."""

    def __init__(self, model: BahdanauForConditionalGeneration) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        model: Any = self.model
        config, decoder, cells = model.config, model.model.decoder, [layer.rnn for layer in model.model.decoder.layers]
        encoded = model.get_encoder()(input_ids, return_dict=True)
        annotations, final = encoded.last_hidden_state, encoded.final_state  # (B, S, C), (B, layers, parts, C)
        embedded = decoder.embed_tokens(model.prepare_decoder_input_ids_from_labels(labels))  # (B, T, D)
        of_embedding, of_rest = cells[0].weight_ih_l0.tensor_split([embedded.shape[-1]], dim=1)
        gates = linear(embedded, of_embedding, cells[0].bias_ih_l0)  # (B, T, G H)
        if decoder.initial_state is not None:
            last = final[:, -1, 0, -decoder.initial_state.in_features :]
            final = torch.tanh(decoder.initial_state(last)).unflatten(-1, decoder.state_shape)
        states = [final[:, layer].unbind(1) for layer in range(len(cells))]
        score = decoder.attention.score if decoder.attends else None
        if score is not None:
            keys = linear(annotations, score.W_k if config.attention_score == "additive" else score.W)  # (B, S, H)

        def context_of(query: torch.Tensor) -> torch.Tensor:
            assert score is not None
            if config.attention_score == "additive":
                energies = torch.tanh(linear(query, score.W_q)[:, None] + keys) @ score.v  # (B, S)
            else:
                energies = (keys @ query[:, :, None])[..., 0]
            return (energies.softmax(-1)[:, None] @ annotations)[:, 0]  # (B, C)

        written, contexts = [], []
        fed = gates.new_zeros(len(gates), config.output_width)
        for gate in gates.unbind(1):
            if decoder.attends_before:
                contexts.append(context_of(states[-1][0]))
                gate = gate + linear(contexts[-1], of_rest)
            elif config.input_feeding:
                gate = gate + linear(fed, of_rest)
            for layer, cell in enumerate(cells):
                states[layer] = cell.step(cell.project(states[layer - 1][0]) if layer else gate, states[layer])
            written.append(states[-1][0])
            if config.input_feeding:
                written[-1] = fed = torch.tanh(
                    decoder.attentional(torch.cat([context_of(written[-1]), written[-1]], -1))
                )
        read = torch.stack(written, dim=1)  # (B, T, H)
        if config.output_layer == "maxout":
            pieces = decoder.maxout(torch.cat([read, embedded, torch.stack(contexts, dim=1)], dim=-1))
            read = pieces.unflatten(-1, (-1, 2)).amax(-1)
        return cross_entropy(model.lm_head(read).flatten(0, 1), labels.flatten())


def translators(device: torch.device, precision: str = FLOAT) -> Iterator[Group]:
    for column, preset in PRESETS.items():
        widths = ("embedding_size", "encoder_hidden_size", "hidden_size", "output_size")
        sizes = {
            **dict.fromkeys(widths, WIDTH),
            **dict.fromkeys(("vocab_size", "source_vocab_size"), V),
            "dropout": 0.0,
        }
        model = BahdanauForConditionalGeneration(BahdanauConfig.preset(preset, **sizes)).to(device)
        rows = {LOOP: LoopTranslator(model), OURS: model, CHUNKED: ChunkedTranslator(model)}
        batch = full_batch(device)
        functions = {row: trained(each, batch, precision=precision) for row, each in rows.items()}
        check = partial(check_gradients, rows, batch)
        if precision == BFLOAT:  # numbers are rounded by up to 4e-3
            check = partial(check_nats, {row: (each, [batch], precision) for row, each in rows.items()}, 5e-3)
        yield Group(column, functions, check)


def bfloat16(device: torch.device) -> Iterator[Group]:
    if computes_bfloat16():
        yield from translators(device, BFLOAT)


def by_onednn(groups: Iterator[Group]) -> Iterator[Group]:
    """Return groups with their first row as it is, and all rows with products by oneDNN, if ``matmul: auto`` is on."""

    def within(function: Callable[[], Any]) -> Any:
        with onednn_products():
            return function()

    for group in groups if uses_onednn("auto") else ():
        first = next(iter(group.functions))
        functions = {f"{row}, {ONEDNN}": partial(within, each) for row, each in group.functions.items()}
        yield replace(group, functions={first: group.functions[first], **functions}, check=partial(within, group.check))


class BareModel(nn.Module):
    """A character model as others write it, with the weights of a ``CharRNNForCausalLM``."""

    def __init__(self, ours: CharRNNForCausalLM) -> None:
        super().__init__()
        config = ours.config
        self.embedding = nn.Embedding(config.vocab_size, config.embedding_size)
        self.gru = nn.GRU(config.embedding_size, config.hidden_size, batch_first=True)
        self.output = nn.Linear(config.hidden_size, config.vocab_size)
        for own, other in zip(self.parameters(), ours.parameters(), strict=True):
            own.data.copy_(other)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        logits = self.output(self.gru(self.embedding(input_ids))[0])
        return cross_entropy(logits.flatten(0, 1), labels.flatten())


class OurModel(nn.Module):
    """A character model of hfattn that reads the same batches."""

    def __init__(self, model: CharRNNForCausalLM) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.model(input_ids, labels=labels, shift_labels=labels, use_cache=False).loss
        return loss


OPTIONS: dict[str, Any] = {"learning_rate": 1e-3, "max_grad_norm": 1.0, "lr_scheduler_type": "constant"}


def plain_loop(model: nn.Module, batch: dict[str, torch.Tensor], number: int) -> Callable[[], None]:
    """Return a function that does a number of steps."""
    optimizer = torch.optim.NAdam(model.parameters(), lr=OPTIONS["learning_rate"])

    def steps() -> None:
        model.train()
        for _ in range(number):
            optimizer.zero_grad()
            model(**batch).backward()
            nn.utils.clip_grad_norm_(model.parameters(), OPTIONS["max_grad_norm"])
            optimizer.step()

    return steps


def trainer_loop(model: CharRNNForCausalLM, windows: Windows, number: int) -> Callable[[], None]:
    """Return a function that trains with the trainer of the recipes."""

    def steps() -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = TrainingArguments(
                folder,
                max_steps=number,
                per_device_train_batch_size=ROWS,
                report_to="none",
                save_strategy="no",
                disable_tqdm=True,
                remove_unused_columns=False,
                use_cpu=model.device.type == "cpu",
                **OPTIONS,
            )
            chosen = optimizer_class_and_arguments("nadam", arguments)
            trainer = ReliableTrainer(model, arguments, windows.collate, windows, optimizer_cls_and_kwargs=chosen)
            trainer.remove_callback(PrinterCallback)
            trainer.train()

    return steps


def character_models(device: torch.device) -> Iterator[Group]:
    for hidden, number in STEPS.items():
        config = CharRNNConfig(vocab_size=SYMBOLS, embedding_size=EMBEDDING, hidden_size=hidden)
        ours = CharRNNForCausalLM(config).to(device)
        windows = Windows(np.random.default_rng(0).integers(SYMBOLS, size=ROWS * number + WINDOW), WINDOW)
        read = windows.__getitems__(range(ROWS))
        batch = {"input_ids": read["input_ids"].to(device), "labels": read["shift_labels"].to(device)}
        rows = {BARE: BareModel(ours).to(device), MODEL: OurModel(ours)}
        functions: dict[str, Callable[[], None]] = {
            row: plain_loop(model, batch, number) for row, model in rows.items()
        }
        functions[TRAINER] = trainer_loop(ours, windows, number)
        yield Group(f"hidden size {hidden}, {number} steps", functions, partial(check_gradients, rows, batch))


TITLES = {
    "translators": ("Recurrent translators", "training step"),
    "bfloat16": ("Recurrent translators in mixed precision", "training step"),
    "onednn": ("Recurrent translators, products by oneDNN", "training step"),
    "character_models": ("Character models", "training"),
    "character_models_onednn": ("Character models, products by oneDNN", "training"),
}


BENCHMARK = Benchmark(
    "train_recurrent",
    ROOT / "docs" / "speed.md",
    {
        "translators": translators,
        "bfloat16": bfloat16,
        "onednn": lambda device: by_onednn(translators(device)),
        "character_models": character_models,
        "character_models_onednn": lambda device: by_onednn(character_models(device)),
    },
    partial(titled_tables, titles=TITLES),
)

if __name__ == "__main__":
    logging.set_verbosity_error()
    run(BENCHMARK, __doc__)

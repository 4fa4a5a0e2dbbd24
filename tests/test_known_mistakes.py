"""Known mistakes in a tiny variant give a score outside of its band, which the variant without the mistake is in.

A mistake that a model learns to live with, so that its score stays inside, is refused before training.
``test_tiny_recipes.py`` trains the variants without the mistake.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import ROOT
from tiny_recipes import run_tiny_variant
from typer.testing import CliRunner

from hfattn.data import LabeledDataConfig, LabeledTexts, batches
from hfattn.errors import UserError
from hfattn.models import modeling_bahdanau, modeling_rnn_encoder, modeling_vaswani, modeling_vaswani_translation
from hfattn.models.recurrent_decoder import BahdanauDecoder
from hfattn.training.expected import SUFFIX
from hfattn_cli import app

Plant = Callable[[pytest.MonkeyPatch], None]
ATTENDS = "--model.attention_score general --model.output_layer attentional"
UNTRAINED = "--training.max_steps 1 --training.eval_steps 1 --training.save_steps 1 --training.learning_rate 1e-6"


def nothing(patch: pytest.MonkeyPatch) -> None:
    """The mistake is in the settings."""


def padding_is_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(modeling_rnn_encoder, "real_steps", lambda mask, inputs, name: None)


def leave_off(patch: pytest.MonkeyPatch, mask: str, *classes: Any) -> None:
    for each in classes:
        whole = each.forward
        patch.setattr(
            each, "forward", lambda self, *args, whole=whole, **kwargs: whole(self, *args, **(kwargs | {mask: None}))
        )


def encoder_reads_padding(patch: pytest.MonkeyPatch) -> None:
    leave_off(patch, "attention_mask", modeling_vaswani.VaswaniEncoder, modeling_bahdanau.BahdanauEncoder)


def decoder_attends_to_padding(patch: pytest.MonkeyPatch) -> None:
    leave_off(patch, "encoder_attention_mask", modeling_vaswani.VaswaniDecoder, BahdanauDecoder)


def decoder_attends_to_later_targets(patch: pytest.MonkeyPatch) -> None:
    whole = modeling_vaswani.boolean_mask
    patch.setattr(modeling_vaswani, "boolean_mask", lambda *args, causal=False, **kwargs: whole(*args, **kwargs))


def decoder_reads_its_targets(patch: pytest.MonkeyPatch) -> None:
    for module in (modeling_bahdanau, modeling_vaswani_translation):
        patch.setattr(module, "shift_right", lambda labels, config: labels.masked_fill(labels == -100, 0))


def labels_are_not_shifted(patch: pytest.MonkeyPatch) -> None:
    whole = batches._batch

    def batch(ids: np.ndarray, starts: np.ndarray, window: int) -> dict[str, torch.Tensor]:
        inputs = whole(ids, starts, window)["input_ids"]
        return {"input_ids": inputs, "labels": inputs.clone(), "shift_labels": inputs.clone()}

    patch.setattr(batches, "_batch", batch)


def trains_on_the_test_part(patch: pytest.MonkeyPatch) -> None:
    whole = LabeledDataConfig.read_parts

    def read_parts(config: Any, seed: int, given: Any = None) -> dict[str, LabeledTexts]:
        parts = whole(config, seed, given)
        return parts | {"train": replace(parts["train"], items=[*parts["train"].items, *parts["test"].items])}

    patch.setattr(LabeledDataConfig, "read_parts", read_parts)


MISTAKES: dict[str, tuple[str, Plant, str]] = {
    "a model without attention attends": ("translation/spa_eng_words_plain", nothing, ATTENDS),
    "a recurrent classifier reads padding": ("classification/imdb_gru", padding_is_read, ""),
    "a decoder attends to later targets": ("translation/spa_eng_transformer", decoder_attends_to_later_targets, ""),
    "a recurrent decoder reads its targets": ("translation/spa_eng_luong", decoder_reads_its_targets, ""),
    "a Transformer reads its targets": ("translation/spa_eng_transformer", decoder_reads_its_targets, ""),
    "labels are not shifted": ("char_lm/gru128", labels_are_not_shifted, ""),
    "the test part is trained on": ("baselines/imdb_tfidf_svm", trains_on_the_test_part, ""),
    "an untrained language model": ("char_lm/quickstart", nothing, UNTRAINED),
    "an untrained classifier": ("classification/sst2_minilm", nothing, UNTRAINED),
    "an untrained tagger": ("token_classification/names_distilbert", nothing, UNTRAINED),
    "an untrained translator": ("translation/phrases", nothing, UNTRAINED),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_falls_out_of_the_band(
    mistake: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, plant, words = MISTAKES[mistake]
    plant(monkeypatch)
    path = ROOT / "recipes" / f"{config}{SUFFIX}"
    run_tiny_variant(path, tmp_path / "run", tmp_path_factory.getbasetemp(), monkeypatch, *words.split())
    checked = CliRunner().invoke(app, ["recipes", "check", str(tmp_path / "run"), "--tiny"])
    assert checked.exit_code == 1, checked.output
    assert "tiny variant" in checked.output
    assert ": outside" in checked.output


@pytest.mark.parametrize("plant", [encoder_reads_padding, decoder_attends_to_padding])
@pytest.mark.parametrize("config", ["spa_eng_transformer", "spa_eng_bahdanau", "spa_eng_luong"])
def test_a_translator_that_reads_padding_is_refused(
    config: str, plant: Plant, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trained, their scores are inside of the bands, because most batches are padded alike."""
    plant(monkeypatch)
    path = ROOT / "recipes" / "translation" / f"{config}{SUFFIX}"
    with pytest.raises(UserError, match=r"change by 0\.\d+ of the largest logit if its source is padded; mask"):
        run_tiny_variant(path, tmp_path / "run", tmp_path_factory.getbasetemp(), monkeypatch)
    assert not (tmp_path / "run").exists()

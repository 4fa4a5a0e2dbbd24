"""What every training recipe leaves in its run folder: model, loss curve, results, card and manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..hub import has_public_data, texts_to_publish
from ..pictures import Picture
from ..training import (
    RecipeCommand,
    ReliableSeq2SeqTrainer,
    ReliableTrainer,
    TrainingConfig,
    publish_run,
    run_facts,
)


@dataclass(frozen=True)
class TrainedRun:
    """A run whose training and evaluation are finished.

    Attributes:
        command: the command line.
        config: the recipe's configuration.
        trainer: the trainer, for the history and the duration of the training.
        model: the trained model, whole and in evaluation mode.
        tokenizer: its tokenizer, as it is saved.
        pictures: what the report adds, to be drawn when model and results are saved.
    """

    command: RecipeCommand
    config: TrainingConfig
    trainer: ReliableTrainer | ReliableSeq2SeqTrainer
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    pictures: list[Picture] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.command.run

    @property
    def title(self) -> str:
        """The title of pictures: recipe and configuration."""
        return f"{self.command.recipe}: {self.command.config.stem}"

    @property
    def selection(self) -> dict[str, Any]:
        """How checkpoint and settings were chosen, for ``results.json``."""
        return {"checkpoint": self.trainer.checkpoint_choice, "settings": self.command.chosen_settings}

    def training_facts(self, unit: str, epoch: float) -> dict[str, Any]:
        """Return the facts about the training, and the share of padding in its batches, for ``results.json``.

        Args:
            unit: what the training data consist of, in the plural, such as "windows".
            epoch: how many of these one epoch reads.
        """
        facts = self.trainer.training_facts(unit, self.trainer.state.epoch * epoch)
        return {**facts, "padding_share": round(self.trainer.padding_share, 4)}

    @property
    def texts(self) -> str:
        """Which texts the folder quotes: "samples" of the data, "own_words" of the configuration, or "none"."""
        return texts_to_publish(self.config)

    def save(self) -> None:
        """Save the model and its tokenizer to the run folder."""
        self.trainer.save_whole(self.model, self.folder)
        self.tokenizer.save_pretrained(self.folder)


def leave_behind(
    run: TrainedRun,
    sections: Mapping[str, Any],
    summary: str,
    fingerprint_texts: Sequence[str | Sequence[str]],
    *,
    loss: str,
    loss_unit: str | None = None,
    levels: Mapping[str, float] | None = None,
    texts: str | None = None,
) -> None:
    """Write the results, then draw the pictures, write card and manifest, print the summary, and push on request.

    Args:
        run: the run; its model is saved already. The loss curve is added to its pictures.
        sections: what ``results.json`` holds beside the facts of the run: ``data``, ``model``, ``metrics``,
            ``training`` and what the card of the recipe shows.
        summary: the lines to print at the end.
        fingerprint_texts: texts or pairs of texts by whose outputs a copy of the model is recognized.
        loss: name of the validation loss in the evaluations, such as ``nats_per_word``.
        loss_unit: label of the vertical axis; None: ``loss`` with spaces.
        levels: losses to compare with, by name, drawn as horizontal lines.
        texts: which texts the folder quotes; None: ``run.texts``.
    """
    command, trainer = run.command, run.trainer
    unit = loss_unit or loss.replace("_", " ")
    curves = {
        "log_history": trainer.state.log_history,
        "levels": dict(levels or {}),
        "title": run.title,
        "unit": unit,
        "validation": f"eval_{loss}",
    }
    pictures = [Picture("loss_curve.png", "curves", curves), *run.pictures]
    facts = run_facts(command.recipe, command.config, asdict(run.config), trainer.args.seed, command.argv)
    facts["selection"] = run.selection
    facts["publish"] = publish_facts(run.config, texts or run.texts)
    publish_run(command, {**facts, **sections}, summary, run.model, run.tokenizer, fingerprint_texts, pictures)


def publish_facts(config: Any, texts: str) -> dict[str, Any]:
    """Return which texts a folder quotes, and whether the data are public, for ``results.json``."""
    return {"texts": texts, "public_data": has_public_data(config)}


def shown_part(parts: Mapping[str, Any]) -> str:
    """Return the part whose examples are shown: the test, or else the validation."""
    return "test" if "test" in parts else "validation"


def quotable(run: TrainedRun, data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts about the data without words of theirs, unless samples of them are published."""
    if run.texts == "samples" or not data.get("vectors"):
        return dict(data)
    return {**data, "vectors": {**data["vectors"], "most_frequent_missing": []}}

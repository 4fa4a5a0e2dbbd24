"""Fine-tune a pretrained model to find entities in sentences, and leave behind a folder that can be published.

accelerate launch recipes/token_classification/train.py --config recipes/token_classification/names_distilbert.yaml
accelerate launch recipes/token_classification/train.py \\
    --config recipes/token_classification/conll2003_distilbert.yaml \\
    --data.source train.conll --data.validation dev.conll --data.test test.conll
accelerate launch recipes/token_classification/train.py --config recipes/token_classification/names_distilbert.yaml \\
    --resume
"""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    pipeline,
)

from hfattn.data import (
    NAMES,
    NAMES_PARTS,
    EncodedSentences,
    TaggedSentences,
    check_model,
    check_split,
    name_sentences,
    read_tagged,
    source_of_part,
    split_tagged,
)
from hfattn.errors import UserError, one_sentence
from hfattn.metrics import (
    EntityScore,
    EntityScores,
    column_slices,
    find_entities,
    length_slices,
    scores_by_slice,
    tag_loss,
    token_statistics,
)
from hfattn.metrics.slices import SENTENCE_EDGES
from hfattn.plots import plot_curves, plot_table
from hfattn.pretrained import load_model, load_tokenizer
from hfattn.training import (
    FineTuningConfig,
    FineTuningTrainer,
    RecipeCommand,
    load_config,
    parse_command,
    publish_run,
    run_facts,
    scores_of_part,
    tuned,
    tuning_facts,
    writing,
)

RECIPE = "token_classification"
LONGEST_SHOWN = 300  # characters of a sentence in a table


# Configuration


@strict
@dataclass
class DataConfig:
    # "names" (made-up sentences), a file as in the shared tasks of CoNLL, a .jsonl file, or the id of a Hub data set.
    source: str = NAMES
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct sentences, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    tokens_column: str = "tokens"  # of a .jsonl file or a Hub data set
    tags_column: str | None = None  # null: ner_tags, or tags
    labels: list[str] | None = None  # names of the tags, from tag 0 on; null: as the data have them
    admit_broken_tags: bool = False  # an I- that goes on with nothing begins an entity, as conlleval reads it
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
    sentences: int = 8000  # of names, to train on
    evaluation_sentences: int = 1000  # of names, in each of the other parts
    max_length: int = 128  # tokens that the model reads at once, special ones included
    # Tokens that two windows of a longer sentence share; null: it is cut, and what is behind counts as predicted O.
    stride: int | None = None
    label_all_pieces: bool = False  # also the pieces of a word behind its first one

    def validate_sizes(self) -> None:
        for name, least in (("sentences", 1), ("evaluation_sentences", 1), ("max_length", 1), ("stride", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}; write a whole number of at least {least}.")

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write 'names', the path of a file, or the id of a Hub data set.")
        check_split(self.split, unit="sentences")
        if self.source == NAMES and (self.validation is not None or self.test is not None):
            raise ValueError("names has its own validation and test; leave validation and test out.")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")


@strict
@dataclass
class EvaluationConfig:
    columns: list[str] = field(default_factory=list)  # of the data: a slice for each value


@strict
@dataclass
class SampleConfig:
    number: int = 10  # of the sentences shown in which entities are wrong

    def validate_sizes(self) -> None:
        if self.number < 1:
            raise ValueError(f"number is {self.number}; write a whole number of at least 1.")


@strict
@dataclass
class Config(FineTuningConfig):
    data: DataConfig = field(default_factory=DataConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without model and data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make an optimiser or training arguments.
    """
    return config.arguments(run)


def read_parts(data: DataConfig, seed: int) -> dict[str, TaggedSentences]:
    """The sentences of each part: train, validation, and the others that there are."""
    if data.source == NAMES:
        numbers = {part: data.sentences if part == "train" else data.evaluation_sentences for part in NAMES_PARTS}
        return {part: name_sentences(part, number, seed) for part, number in numbers.items()}
    options: dict[str, Any] = {
        "tokens_column": data.tokens_column,
        "tags_column": data.tags_column,
        "admit_broken_tags": data.admit_broken_tags,
        "config": data.config,
        "revision": data.revision,
    }
    whole = read_tagged(data.source, labels=data.labels, split=data.hub_split, **options)
    parts = {"train": whole}
    if data.validation is None:
        parts = dict(zip(("train", "validation", "test"), split_tagged(whole, data.split, seed), strict=False))
    for part, place in (("validation", data.validation), ("test", data.test)):
        if place is not None:
            source, split = source_of_part(data.source, place, data.hub_split)
            parts[part] = read_tagged(source, labels=whole.labels, split=split, **options)
    return parts


class Evaluated(NamedTuple):
    """What was measured of a part, and of each of its sentences the predicted tags and the nats of the right ones."""

    metrics: dict[str, Any]
    predicted: list[list[str]]
    nats: list[float]


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: tagged words -> ids of the pretrained tokenizer, with the tag of a word at its first piece

    data = config.data
    tokenizer = load_tokenizer(config.model)
    parts = read_parts(data, arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    encoded = {
        part: EncodedSentences(
            sentences, tokenizer, data.max_length, stride=data.stride, label_all_pieces=data.label_all_pieces
        )
        for part, sentences in parts.items()
    }

    # Model

    labels = parts["train"].labels
    loaded = load_model(
        AutoModelForTokenClassification,
        config.model,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, task_type="TOKEN_CLS")

    # Training

    scores = EntityScores(labels)
    scores.expect(encoded["validation"].references, encoded["validation"].windows)
    trainer = FineTuningTrainer(
        model,
        arguments,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_loss_func=partial(tag_loss, label_smoothing=arguments.label_smoothing_factor),
        compute_metrics=scores,
        preprocess_logits_for_metrics=token_statistics,
        source=config.model,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: sentences.fingerprint for part, sentences in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation sentences

    evaluated = {}
    for part, dataset in encoded.items():
        if part != "train":
            scores.expect(dataset.references, dataset.windows)
            output = trainer.predict(dataset, metric_key_prefix=part)
            evaluated[part] = Evaluated(scores_of_part(output.metrics, part), scores.predicted, scores.nats)
    facts = tuning_facts(model, loaded, config.tuning, config.model)
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, encoded, evaluated, facts)
    trainer.finish()


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: FineTuningTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, EncodedSentences],
    evaluated: Mapping[str, Evaluated],
    tuning: Mapping[str, Any],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and table, its card."""
    parts = {part: dataset.sentences for part, dataset in encoded.items()}
    run, state, data = command.run, trainer.state, config.data
    model.eval()
    model.save_pretrained(run)
    tokenizer.model_max_length = data.max_length  # to which it truncates, where that is asked for
    tokenizer.save_pretrained(run)
    shown = "test" if "test" in parts else "validation"
    metrics = {part: part_scores(config, parts[part], each) for part, each in evaluated.items()}
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per word", "eval_nats_per_word")
    samples = mistakes(parts[shown], evaluated[shown], config.sample.number)
    if samples:
        plot_table(run / "mistakes.png", list(samples[0]), [list(row.values()) for row in samples], title)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "labels": parts["train"].labels,
            "max_length": data.max_length,
            "stride": data.stride,
            "label_all_pieces": data.label_all_pieces,
            "parts": {
                part: {
                    "sentences": len(dataset.sentences),
                    "windows": len(dataset),
                    "undecided_words": dataset.undecided,
                    "sha256": dataset.sentences.fingerprint,
                }
                for part, dataset in encoded.items()
            },
        },
        "model": {"model_type": model.config.model_type, **tuning},
        "metrics": metrics,
        "training": {
            **trainer.training_facts("windows", state.epoch * len(encoded["train"])),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "example": example(model, tokenizer, parts[shown]),
    }
    publish_run(command, results, summary(run, results), model, tokenizer, [results["example"]["text"]])


def check_columns(columns: Sequence[str], sentences: TaggedSentences) -> None:
    """Make sure that the data have the columns that are to be evaluated value by value."""
    known = sentences.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and beside words and tags {sentences.name} has "
                f"{', '.join(known) or 'no column'}; write one of these, or leave it out."
            )


def part_scores(config: Config, sentences: TaggedSentences, evaluated: Evaluated) -> dict[str, Any]:
    """The scores of a part: on the whole, type by type, and slice by slice."""
    references = [item.tags for item in sentences]
    whole = EntityScore().compute(predictions=evaluated.predicted, references=references)
    slices = length_slices([" ".join(item.words) for item in sentences], SENTENCE_EDGES)
    for column in config.evaluation.columns:
        slices |= column_slices(column, [item.fields[column] for item in sentences])
    by_slice = scores_by_slice(EntityScore(), evaluated.predicted, references, slices)
    for scores in by_slice.values():
        scores.pop("entities_by_type", None)
    return {**evaluated.metrics, "entities_by_type": whole["entities_by_type"], "by_slice": by_slice}


def mistakes(sentences: TaggedSentences, evaluated: Evaluated, number: int) -> list[dict[str, str]]:
    """The sentences with wrong entities whose right tags the model thought least of."""
    samples: list[dict[str, str]] = []
    for i in np.argsort(-np.array(evaluated.nats), kind="stable").tolist():
        item = sentences.items[i]
        right, found = (set(find_entities(tags)) for tags in (item.tags, evaluated.predicted[i]))
        if right == found or len(samples) == number:
            continue
        missed, wrong = (
            "; ".join(
                f"{' '.join(item.words[e.start : e.end])} [{e.type}]" for e in sorted(each, key=lambda e: e.start)
            )
            for each in (right - found, found - right)
        )
        text = textwrap.shorten(" ".join(item.words), LONGEST_SHOWN, placeholder=" …")
        samples.append(
            {"place": sentences.place(i), "sentence": text, "missed": missed or "–", "found instead": wrong or "–"}
        )
    return samples


def example(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sentences: TaggedSentences) -> dict[str, Any]:
    """A sentence, and the entities that its users find in it, as the card shows."""
    text = " ".join(next((item for item in sentences if set(item.tags) > {"O"}), sentences.items[0]).words)
    find = pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="first")
    found = [{"type": each["entity_group"], "text": text[each["start"] : each["end"]]} for each in find(text)]
    return {"text": text, "entities": found}


def summary(run: Path, results: Mapping[str, Any]) -> str:
    """The end of a run in words: its scores, by type and by slice, and how to go on."""
    lines = ["", f"{'':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}{'accuracy':>10}"]
    for part, score in results["metrics"].items():
        lines.append(f"{part.replace('_', ' '):24}{_row(score)}{score['accuracy']:10.4f}")
    shown = results["metrics"].get("test", results["metrics"]["validation"])
    lines += ["", f"{'type':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}"]
    lines += [f"{kind:24}{_row(score)}" for kind, score in shown["entities_by_type"].items()]
    lines += ["", f"{'slice':24}{'entities':>10}{'precision':>11}{'recall':>9}{'F1':>9}"]
    lines += [f"{name:24}{_row(score)}" for name, score in shown["by_slice"].items() if score.get("entities")]
    return "\n".join([*lines, "", f"Model, results, curve and table: {run}"])


def _row(score: Mapping[str, Any]) -> str:
    return f"{score['entities']:10d}{score['precision']:11.4f}{score['recall']:9.4f}{score['f1']:9.4f}"


if __name__ == "__main__":
    with one_sentence():
        main()

"""Fine-tune a pretrained model to answer questions by a part of a text, and leave behind a folder to publish.

accelerate launch recipes/question_answering/train.py --config recipes/question_answering/facts_distilbert.yaml
accelerate launch recipes/question_answering/train.py --config recipes/question_answering/squad_distilbert.yaml \\
    --data.source train-v1.1.json --data.validation dev-v1.1.json
accelerate launch recipes/question_answering/train.py --config recipes/question_answering/facts_distilbert.yaml --resume
"""

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForQuestionAnswering,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)

from hfattn.data import (
    FACTS,
    FACTS_PARTS,
    EncodedQuestions,
    FoundAnswer,
    Questions,
    check_model,
    check_split,
    fact_questions,
    read_questions,
    source_of_part,
    split_questions,
)
from hfattn.errors import UserError, one_sentence
from hfattn.metrics import (
    AnswerScore,
    AnswerScores,
    answer_f1,
    best_threshold,
    column_slices,
    length_slices,
    scores_by_slice,
    span_logits,
)
from hfattn.plots import plot_curves, plot_table
from hfattn.pretrained import load_model, load_tokenizer
from hfattn.training import (
    ExtractiveTrainer,
    FineTuningConfig,
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

RECIPE = "question_answering"
LONGEST_SHOWN = 200  # characters of a question or an answer in a table
QUESTION_WORDS = ("how many", "how", "what", "when", "where", "which", "who", "whom", "whose", "why")


# Configuration


@strict
@dataclass
class DataConfig:
    # "facts" (made-up paragraphs), a .json file of SQuAD, a .jsonl file, or the id of a data set on the Hub.
    source: str = FACTS
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct contexts, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    unanswerable: bool = False  # whether there are questions without an answer, as in SQuAD 2.0
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
    questions: int = 8000  # of facts, to train on
    evaluation_questions: int = 1000  # of facts, in each of the other parts
    max_length: int = 384  # tokens of a question and a window of its context, special ones included
    doc_stride: int = 128  # tokens of the context that two windows share

    def validate_sizes(self) -> None:
        sizes = (("questions", 1), ("evaluation_questions", 1), ("max_length", 1), ("doc_stride", 0))
        for name, least in sizes:
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least {least}.")

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write 'facts', the path of a file, or the id of a Hub data set.")
        check_split(self.split, unit="contexts")
        if self.source == FACTS and (self.validation is not None or self.test is not None):
            raise ValueError("facts has its own validation and test; leave validation and test out.")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")


@strict
@dataclass
class EvaluationConfig:
    n_best: int = 20  # answers that share the probability
    max_answer_length: int = 30  # tokens
    # Where questions may have no answer: none is given if its score exceeds that of the best answer by more than this.
    null_threshold: float | int = 0.0
    columns: list[str] = field(default_factory=list)  # of the data: a slice for each value

    def validate_sizes(self) -> None:
        for name in ("n_best", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")


@strict
@dataclass
class SampleConfig:
    number: int = 10  # of the most confident mistakes shown

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
    arguments = config.arguments(run)
    if arguments.label_smoothing_factor:
        raise UserError("training.label_smoothing_factor is for classes, and an answer's places are none; write 0.")
    return arguments


def read_parts(data: DataConfig, seed: int) -> dict[str, Questions]:
    """The questions of each part: train, validation, and the others that there are."""
    if data.source == FACTS:
        numbers = {part: data.questions if part == "train" else data.evaluation_questions for part in FACTS_PARTS}
        return {part: fact_questions(part, number, seed, data.unanswerable) for part, number in numbers.items()}
    options: dict[str, Any] = {
        "unanswerable": data.unanswerable,
        "config": data.config,
        "revision": data.revision,
    }
    whole = read_questions(data.source, split=data.hub_split, **options)
    parts = {"train": whole}
    if data.validation is None:
        parts = dict(zip(("train", "validation", "test"), split_questions(whole, data.split, seed), strict=False))
    for part, place in (("validation", data.validation), ("test", data.test)):
        if place is not None:
            source, split = source_of_part(data.source, place, data.hub_split)
            parts[part] = read_questions(source, split=split, **options)
    return parts


class Evaluated(NamedTuple):
    """What was measured of a part, and the answer to each of its questions."""

    metrics: dict[str, Any]
    answers: list[FoundAnswer]


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: questions and contexts -> ids of the pretrained tokenizer, a row for each window of a context

    data = config.data
    tokenizer = load_tokenizer(config.model)
    parts = read_parts(data, arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    encoded = {
        part: EncodedQuestions(
            questions,
            tokenizer,
            data.max_length,
            doc_stride=data.doc_stride,
            n_best=config.evaluation.n_best,
            max_answer_length=config.evaluation.max_answer_length,
            null_threshold=config.evaluation.null_threshold if data.unanswerable else None,
        )
        for part, questions in parts.items()
    }

    # Model

    loaded = load_model(AutoModelForQuestionAnswering, config.model, num_labels=2)
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, task_type="QUESTION_ANS")

    # Training

    scores = AnswerScores()
    scores.expect(encoded["validation"])
    trainer = ExtractiveTrainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=scores,
        preprocess_logits_for_metrics=span_logits,
        source=config.model,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: questions.fingerprint for part, questions in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation questions

    evaluated = {}
    for part, dataset in encoded.items():
        if part != "train":
            scores.expect(dataset)
            output = trainer.predict(dataset, metric_key_prefix=part)
            evaluated[part] = Evaluated(scores_of_part(output.metrics, part), list(scores.answers))
    facts = tuning_facts(model, loaded, config.tuning, config.model)
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, encoded, evaluated, facts)
    trainer.finish()


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ExtractiveTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, EncodedQuestions],
    evaluated: Mapping[str, Evaluated],
    tuning: Mapping[str, Any],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and table, its card."""
    run, state, data = command.run, trainer.state, config.data
    model.eval()
    model.save_pretrained(run)
    tokenizer.model_max_length = data.max_length  # to which it truncates, where that is asked for
    tokenizer.save_pretrained(run)
    shown = "test" if "test" in encoded else "validation"
    metrics = {part: part_scores(config, encoded[part], each) for part, each in evaluated.items()}
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per window", "eval_nats_per_window")
    samples = mistakes(encoded[shown], evaluated[shown].answers, config.sample.number)
    if samples:
        plot_table(run / "mistakes.png", list(samples[0]), [list(row.values()) for row in samples], title)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": encoded["train"].questions.name,
            "unanswerable": data.unanswerable,
            "max_length": data.max_length,
            "doc_stride": data.doc_stride,
            "max_answer_length": config.evaluation.max_answer_length,
            "null_threshold": config.evaluation.null_threshold if data.unanswerable else None,
            "parts": {
                part: {
                    "questions": len(dataset.questions),
                    "windows": len(dataset),
                    "lost_answers": dataset.lost,
                    "sha256": dataset.questions.fingerprint,
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
        "example": example(encoded[shown], evaluated[shown].answers),
    }
    probes = [(results["example"]["question"], results["example"]["context"])]
    publish_run(command, results, summary(run, results), model, tokenizer, probes)


def check_columns(columns: Sequence[str], questions: Questions) -> None:
    """Make sure that the data have the columns that are to be evaluated value by value."""
    known = questions.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and beside question, context and answers {questions.name} has "
                f"{', '.join(known) or 'no column'}; write one of these, or leave it out."
            )


def part_scores(config: Config, dataset: EncodedQuestions, evaluated: Evaluated) -> dict[str, Any]:
    """The scores of a part: on the whole, and slice by slice; and with the best threshold, where there is one."""
    items = dataset.questions.items
    slices = column_slices("asks", [question_word(item.question) for item in items])
    slices |= {f"context of {name}": mask for name, mask in length_slices([item.context for item in items]).items()}
    if config.data.unanswerable:
        slices |= column_slices("answer", ["there is one" if item.answers else "there is none" for item in items])
    for column in config.evaluation.columns:
        slices |= column_slices(column, [item.fields[column] for item in items])
    texts = [answer.text for answer in evaluated.answers]
    scores = {**evaluated.metrics, "by_slice": scores_by_slice(AnswerScore(), texts, dataset.references, slices)}
    if config.data.unanswerable:
        spans, margins = zip(*((answer.span, answer.null_margin) for answer in evaluated.answers), strict=True)
        scores["best_threshold"], scores["best_threshold_f1"] = best_threshold(spans, margins, dataset.references)
    return scores


def question_word(question: str) -> str:
    """What a question asks with, such as "when": the first such word in it."""
    pattern = "|".join(sorted(QUESTION_WORDS, key=len, reverse=True))
    found = re.search(rf"\b({pattern})\b", question.lower())
    return found[1] if found else "otherwise"


def mistakes(dataset: EncodedQuestions, answers: Sequence[FoundAnswer], number: int) -> list[dict[str, str]]:
    """The wrong answers, those without any right word first, and of these the most confident ones."""
    graded = [
        (answer_f1(answer.text, right), -answer.probability, i)
        for i, (answer, right) in enumerate(zip(answers, dataset.references, strict=True))
    ]
    samples = []
    for _, _, i in sorted(each for each in graded if each[0] < 1)[:number]:
        right = " / ".join(dict.fromkeys(dataset.references[i])) or "(none)"
        shown = {"question": dataset.questions.items[i].question, "right": right, "answer": answers[i].text or "(none)"}
        samples.append(
            {
                "place": dataset.questions.place(i),
                **{name: textwrap.shorten(text, LONGEST_SHOWN, placeholder=" …") for name, text in shown.items()},
                "probability": f"{answers[i].probability:.2f}",
            }
        )
    return samples


def example(dataset: EncodedQuestions, answers: Sequence[FoundAnswer]) -> dict[str, str]:
    """The question with the shortest context, and the model's answer to it."""
    items = dataset.questions.items
    shortest = min(range(len(items)), key=lambda i: len(dataset.rows[dataset.rows_of[i][0]]["input_ids"]))
    item = items[shortest]
    return {"question": item.question.strip(), "context": item.context, "answer": answers[shortest].text}


def summary(run: Path, results: Mapping[str, Any]) -> str:
    """The end of a run in words: its scores, where they are lowest, and how to go on."""
    lines = ["", f"{'':28}{'questions':>10}{'exact match':>13}{'F1':>9}"]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part.replace('_', ' '):28}{score['questions']:10d}{score['exact_match']:13.4f}{score['f1']:9.4f}"
        )
        if "best_threshold" in score:
            lines.append(
                f"{'':4}F1 {score['best_threshold_f1']:.4f} with the best null threshold, {score['best_threshold']:.3f}"
            )
    shown = results["metrics"].get("test", results["metrics"]["validation"])
    lines += ["", f"{'slice':28}{'questions':>10}{'exact match':>13}{'F1':>9}"]
    lines += [
        f"{name:28}{score['examples']:10d}{score['exact_match']:13.4f}{score['f1']:9.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    return "\n".join([*lines, "", f"Model, results, curve and table: {run}"])


if __name__ == "__main__":
    with one_sentence():
        main()

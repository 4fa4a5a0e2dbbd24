"""The report of the recipe text_to_text."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..data import Pair, TaskConfig, joined_parts
from ..generation import translate_texts
from ..hub.fingerprints import synthetic_text
from ..metrics import main_score
from ..models.pipeline_attn_translation import TranslationMixin
from ..models.strict_config import own_fields
from .base import TrainedRun, leave_behind, shown_part

# The scores of a task that the summary and the card show, by its metric; the first one is the main score.
SHOWN = {
    "accuracy": ("accuracy", "f1", "invalid"),
    "spearman": ("spearman", "pearson", "invalid"),
    "bleu": ("bleu", "chrf", "exact_match"),
    "rouge": ("rouge2", "rouge1", "rougeL"),
    "exact_match": ("exact_match",),
    "nats_per_token": ("nats_per_token", "token_accuracy"),
}


@dataclass
class EvaluatedTasks:
    """The evaluation of one part.

    Attributes:
        scores: the scores of each task.
        outputs: source, target and output of each example of a task that was generated.
    """

    scores: dict[str, dict[str, Any]]
    outputs: dict[str, list[tuple[str, str, str]]]

    def add(self, task: str, scores: dict[str, Any], examples: Sequence[Pair], outputs: Sequence[str]) -> None:
        """Add the scores of a task and its outputs, or none if nothing was generated."""
        self.scores[task] = scores
        written = zip(examples, outputs, strict=True) if outputs else ()
        self.outputs[task] = [(pair.source, pair.target, text) for pair, text in written]


def part_scores(evaluated: EvaluatedTasks, sections: Mapping[str, TaskConfig]) -> dict[str, Any]:
    """Return the scores of a part: those of its ``tasks``, and ``score``, the mean of their main scores."""
    mains = [main_score(sections[name].metric, scores) for name, scores in evaluated.scores.items()]
    return {
        "score": sum(mains) / len(mains),
        "examples": sum(scores["examples"] for scores in evaluated.scores.values()),
        "tasks": evaluated.scores,
    }


def report(
    run: TrainedRun,
    tasks: Mapping[str, Mapping[str, Any]],
    evaluated: Mapping[str, EvaluatedTasks],
    numbers: Mapping[str, int],
    answers: Mapping[str, Sequence[str]],
    tuning: Mapping[str, Any] | None = None,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        tasks: the examples of each task by part.
        evaluated: what was measured on the other parts.
        numbers: how many examples of each task an epoch has.
        answers: the outputs that are answers of each task whose metric is accuracy.
        tuning: what was trained of which pretrained model, as ``tuning_facts`` returns it; None from scratch.
    """
    config, shown, model = asdict(run.config), shown_part(evaluated), run.model
    own_code, of_config = isinstance(model, TranslationMixin), run.config.data.sections  # type: ignore[attr-defined]
    parts = joined_parts(tasks)
    run.save()
    drawn_from = evaluated[shown].outputs
    drawn = {name: rows[: config["sample"]["outputs"]] for name, rows in drawn_from.items()}
    own = config["sample"]["pairs"]
    if run.texts != "samples":
        own = (own if run.texts == "own_words" else []) or [[synthetic_text(run.tokenizer), "–"]]
        drawn = {}
    elif not own and not any(drawn.values()):  # span corruption alone
        own = [[synthetic_text(run.tokenizer), "–"]]
    written = translate_texts(model, run.tokenizer, [source for source, _ in own]) if own else []
    rows = [("", source, target, text) for (source, target), text in zip(own, written, strict=True)]
    rows += [(name, *row) for name, of_task in drawn.items() for row in of_task]
    samples = [dict(zip(("task", "source", "target", "output"), row, strict=True)) for row in rows]
    total = sum(numbers.values())
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "vocabulary": len(run.tokenizer) - len(run.tokenizer.all_special_ids),
            "tokenizer": config["tokenizer"]["kind"] if tuning is None else tuning["base_model"],
            **{name: config["data"][name] for name in ("max_source_length", "max_target_length", "too_long")},
            "parts": {part: {"examples": len(pairs), "sha256": pairs.fingerprint} for part, pairs in parts.items()},
            "tasks": {
                name: {
                    "dataset": tasks[name]["train"].name,
                    "format": task.format,
                    "source": task.source,
                    "target": task.target,
                    "metric": task.metric,
                    "labels": list(answers[name]),
                    "rate": numbers[name] / total,
                    "shown": list(SHOWN[task.metric]),
                    "examples": {part: len(examples) for part, examples in tasks[name].items()},
                }
                for name, task in of_config.items()
            },
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config["model"].get("preset"),
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config)) if own_code},
            **({} if tuning is None else tuning),
            "needs": [] if run.tokenizer.is_fast else ["sentencepiece"],
        },
        "metrics": {part: part_scores(each, of_config) for part, each in evaluated.items()},
        "training": run.training_facts("examples", total),
        "samples": samples,
        "example": samples[0]["source"] if own_code and any(drawn_from.values()) else None,
    }
    sources = [sample["source"] for sample in samples]
    leave_behind(run, sections, summary(run.folder, sections), sources[:2], loss="nats_per_token")


def summary(folder: Path, results: Mapping[str, Any]) -> str:
    """Return the printed summary: the scores of each task and part, outputs, and the next commands."""
    lines = [""]
    for part, scores in results["metrics"].items():
        lines.append(f"{part}: mean score {scores['score']:.4f}")
        for name, each in scores["tasks"].items():
            listed = ", ".join(f"{score} {each[score]:.4f}" for score in results["data"]["tasks"][name]["shown"])
            lines.append(f"  {name:24}{each['examples']:8,d} examples: {listed}")
    lines += ["", *(f"{sample['source']} → {sample['output']}" for sample in results["samples"])]
    example = results["samples"][0]["source"]
    lines += ["", f"Model, results and pictures: {folder}", f'Answer a text: hfattn translate {folder} "{example}"']
    return "\n".join(lines)

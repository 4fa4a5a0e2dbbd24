"""The report of the recipe distillation: teacher and student side by side."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from transformers.trainer_utils import PredictionOutput

from ..baselines.comparison import linear_baseline
from ..data import EncodedTexts, LabeledTexts, unlabeled
from ..evaluation import classify
from ..hub.card import stated
from ..metrics import Accuracy, class_results
from ..training import (
    DistillationConfig,
    OwnClassifierEvaluationConfig,
    OwnClassifierSampleConfig,
    Teacher,
    TeacherOutputs,
)
from .base import TrainedRun, leave_behind, quotable, shown_part
from .classification import (
    calibrated,
    confident_mistakes,
    confusion_picture,
    example_texts,
    fairness_scores,
    part_facts,
    probabilities,
    read_attention,
    scores_of_parts,
    shown_examples,
    store_threshold,
    summary,
    threshold_choice,
)

TIMED_TEXTS = 64  # texts on which the speeds of teacher and student are measured


def report(
    run: TrainedRun,
    parts: Mapping[str, LabeledTexts],
    extra: Mapping[str, LabeledTexts],
    outputs: Mapping[str, PredictionOutput],
    encode: Callable[[LabeledTexts], EncodedTexts],
    teacher: Teacher,
    taught: Mapping[str, TeacherOutputs],
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    distillation: DistillationConfig,
    evaluation: OwnClassifierEvaluationConfig,
    sample: OwnClassifierSampleConfig,
) -> None:
    """Save the student and write all other output files of the run.

    Args:
        run: the finished run.
        parts: the labeled texts of each part.
        extra: the training texts that only the teacher labeled, by kind.
        outputs: predictions of the student for the parts that were not trained on.
        encode: function that makes inputs of the student from texts.
        teacher: the teacher.
        taught: its outputs for these parts.
        data: facts about the reading of the texts, for ``results.json``.
        model: facts about the student, for ``results.json``.
        distillation: the weights of the loss.
        evaluation: the slices, the counterfactual tests, the share of the texts to answer, and whether to calibrate.
        sample: which texts are shown.
    """
    shown, rows = shown_part(parts), run.trainer.args.per_device_eval_batch_size
    outputs, calibration = calibrated(run, {part: encode(parts[part]) for part in outputs}, outputs, evaluation)
    metrics = scores_of_parts(parts, outputs, evaluation, calibration)
    store_threshold(run.model, metrics)
    run.save()
    for part, output in outputs.items():
        metrics[part] |= compared_with_teacher(output, taught[part])
    metrics[shown] |= fairness_scores(
        parts[shown],
        evaluation,
        lambda texts: probabilities(run, encode(unlabeled(texts))),
        metrics[shown],
        stated({"configuration": asdict(run.config)})["language"],
        quoted=run.texts == "samples",
    )
    baseline = linear_baseline(parts, run.trainer.args.seed)
    number = sample.mistakes if run.texts == "samples" else 0
    samples = confident_mistakes(parts[shown], class_results(outputs[shown]), number)
    run.pictures.append(confusion_picture(metrics[shown], parts["train"].labels, run.title))
    timed = parts[shown].sample(TIMED_TEXTS, run.trainer.args.seed)
    student_inputs, teacher_inputs = encode(timed), teacher.encode(timed)
    dataset = encode(parts[shown])
    short = example_texts(run, dataset)
    sections: dict[str, Any] = {
        "data": {
            "name": parts["train"].name,
            "labels": parts["train"].labels,
            **quotable(run, data),
            "parts": part_facts(parts),
            "extra": {kind: {"name": texts.name, **part_facts({kind: texts})[kind]} for kind, texts in extra.items()},
            "timed_texts": len(timed),
        },
        "model": {
            "model_type": run.model.config.model_type,
            "texts_per_second": texts_per_second(lambda: probabilities(run, student_inputs), len(timed)),
            **model,
        },
        "teacher": {
            "name": teacher.name,
            "revision": teacher.config.revision,
            "parameters": teacher.model.num_parameters(),
            "texts_per_second": texts_per_second(
                lambda: teacher.read(teacher_inputs, rows, bf16=run.trainer.args.bf16), len(timed)
            ),
            "sha256": teacher.fingerprint,
        },
        "distillation": asdict(distillation) | {"imitates": distillation.imitates},
        "metrics": metrics,
        "baseline": baseline,
        "selection": {**run.selection, **threshold_choice(metrics)},
        "training": run.training_facts("texts", len(run.trainer.train_dataset)),
        "samples": samples,
        "own_code": True,
        "example": classify(run.model, run.tokenizer, short[0], parts["train"].labels),
        **shown_examples(run, sample, parts["train"].labels),
    }
    if run.texts == "samples":
        sections["short_texts"] = read_attention(run, dataset, sample.alignments)
    words = summary(run.folder, metrics, baseline) + "\n" + comparison(sections)
    leave_behind(run, sections, words, short[:2], loss="nats_per_example", loss_unit="nats per text")


def compared_with_teacher(output: PredictionOutput, taught: TeacherOutputs) -> dict[str, float]:
    """Return the teacher's accuracy on a part, and the share of texts that both assign to the same class."""
    predicted, right, *_ = class_results(output)
    by_teacher = taught.logits.argmax(-1)
    return {
        "teacher_accuracy": Accuracy().compute(predictions=by_teacher, references=right)["accuracy"],
        "agreement": Accuracy().compute(predictions=predicted, references=by_teacher)["accuracy"],
    }


def texts_per_second(read: Callable[[], object], number: int) -> float:
    """Return the speed of ``read`` on so many texts, measured in its second call."""
    read()
    started = time.perf_counter()
    read()
    return round(number / (time.perf_counter() - started), 1)


def comparison(results: Mapping[str, Any]) -> str:
    """Return a table of teacher and student: parameters, speed, accuracy and agreement."""
    parts: Sequence[str] = list(results["metrics"])
    lines = ["", f"{'':10}{'parameters':>14}{'texts/s':>10}" + "".join(f"{part:>12}" for part in parts)]
    for who, model, score in (("teacher", "teacher", "teacher_accuracy"), ("student", "model", "accuracy")):
        facts = results[model]
        scores = "".join(f"{results['metrics'][part][score]:12.4f}" for part in parts)
        lines.append(f"{who:10}{facts['parameters']:14,d}{facts['texts_per_second']:10.1f}{scores}")
    lines.append(f"{'agreement':34}" + "".join(f"{results['metrics'][part]['agreement']:12.4f}" for part in parts))
    return "\n".join(lines)

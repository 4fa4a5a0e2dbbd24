"""The report of the recipe classification, and what the reports of all classifiers share."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel
from transformers.trainer_utils import PredictionOutput

from ..baselines.comparison import linear_baseline
from ..data import EncodedTexts, Labeled, LabeledTexts, WindowedTexts, guess_accuracy, unlabeled
from ..evaluation import classify, predict_logits, set_decision
from ..explaining import alignment
from ..explaining.reading import instead_of_tokens
from ..hub.card import stated
from ..hub.fingerprints import synthetic_text
from ..metrics import (
    ClassifierEvaluationConfig,
    ClassResults,
    abstaining_scores,
    calibration_scores,
    class_predictions,
    class_probabilities,
    class_results,
    classification_report,
    confidence_threshold,
    counterfactual,
    fitted_temperature,
    read_swaps,
    read_templates,
    template_test,
)
from ..models.alignment import layers_without_weights
from ..models.modeling_rnn_encoder import find_sentences
from ..pictures import Picture
from ..training import (
    OwnClassifierEvaluationConfig,
    OwnClassifierSampleConfig,
    divide_logits,
    is_hierarchical,
    mixture_lines,
    scores_of_part,
)
from .base import TrainedRun, leave_behind, quotable, shown_part

LONGEST_SHOWN = 400  # characters of a text in a table
SHORTEST_SHOWN = 10  # tokens of a text that is shown alone
Encode = Callable[[LabeledTexts], EncodedTexts | WindowedTexts]


def report(
    run: TrainedRun,
    encoded: Mapping[str, EncodedTexts | WindowedTexts],
    outputs: Mapping[str, PredictionOutput],
    encode: Encode,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    evaluation: OwnClassifierEvaluationConfig,
    sample: OwnClassifierSampleConfig,
) -> None:
    """Save the model and write all other output files of the run.

    Args:
        run: the finished run.
        encoded: the texts of each part, training included.
        outputs: predictions for the other parts.
        encode: function that makes model inputs from texts, for the counterfactual tests.
        data: facts about the reading of the texts, for ``results.json``.
        model: facts about the model and what was trained, for ``results.json``.
        evaluation: the slices, the counterfactual tests, the share of the texts to answer, and whether to calibrate.
        sample: which texts are shown.
    """
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    shown = shown_part(parts)
    dataset = encoded[shown]
    outputs, calibration = calibrated(run, {part: encoded[part] for part in outputs}, outputs, evaluation)
    metrics = scores_of_parts(parts, outputs, evaluation, calibration)
    store_threshold(run.model, metrics)
    run.save()
    metrics[shown] |= fairness_scores(
        parts[shown],
        evaluation,
        lambda texts: probabilities(run, encode(unlabeled(texts))),
        metrics[shown],
        stated({"configuration": asdict(run.config)})["language"],
        quoted=run.texts == "samples",
    )
    baseline = linear_baseline(parts, run.trainer.args.seed)
    labels = parts["train"].labels
    number = sample.mistakes if run.texts == "samples" else 0
    samples = confident_mistakes(parts[shown], class_results(outputs[shown]), number)
    run.pictures.append(confusion_picture(metrics[shown], labels, run.title))
    short = example_texts(run, dataset)
    sections = {
        "data": {
            "name": parts["train"].name,
            "labels": labels,
            "pairs": parts["train"].has_pairs,
            **quotable(run, data),
            "guesses": guesses(parts, evaluation.columns),
            "parts": part_facts(parts),
        },
        "model": {"model_type": run.model.config.model_type, **model},
        "metrics": metrics,
        "baseline": baseline,
        "selection": {**run.selection, **threshold_choice(metrics)},
        "training": run.training_facts("texts", len(parts["train"])),
        "samples": samples,
        "own_code": any(run.folder.glob("modeling_*.py")),  # a model of this package, whose code is beside its weights
        "example": classify(run.model, run.tokenizer, short[0], labels),
        **shown_examples(run, sample, labels),
    }
    if isinstance(dataset, EncodedTexts) and run.texts == "samples":
        sections["short_texts"] = read_attention(run, dataset, sample.alignments)
    leave_behind(
        run,
        sections,
        summary(run.folder, metrics, baseline, sections["data"]["guesses"], model),
        short[:2],
        loss="nats_per_example",
        loss_unit="nats per text",
    )


# Shared with the reports of distillation and baselines


def example_texts(run: TrainedRun, dataset: EncodedTexts | WindowedTexts) -> list[tuple[str, ...]]:
    """Return short texts or pairs of a part for the card and the fingerprints, or one that is not from the data."""
    if run.texts == "samples":
        return [dataset.texts.texts(dataset.texts.items[i]) for i in short_texts(dataset)]
    return [(synthetic_text(run.tokenizer),) * (2 if dataset.texts.has_pairs else 1)]


def shown_examples(run: TrainedRun, sample: OwnClassifierSampleConfig, labels: Sequence[str]) -> dict[str, Any]:
    """Return the examples of the configuration with their classes, for ``results.json``; nothing if there are none."""
    if run.texts == "none":
        return {}
    texts = [[example] if isinstance(example, str) else example for example in sample.examples]
    examples = [classify(run.model, run.tokenizer, each, labels) for each in texts]
    return {"example": examples[0], "examples": examples} if examples else {}


def scores_of_parts(
    parts: Mapping[str, LabeledTexts],
    outputs: Mapping[str, PredictionOutput],
    evaluation: ClassifierEvaluationConfig,
    calibration: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, dict[str, Any]]:
    """Return the scores of each part, with confusion matrix and slices if it was not trained on.

    A part in which texts of the training part are repeated word for word has the scores ``without_repeated`` too. With
    ``evaluation.coverage`` and a test part, the scores ``abstaining`` have a threshold that the validation part chose.
    ``calibration`` is the scores of ``calibrated`` by part.
    """
    scores = {part: scores_of_part(output.metrics or {}, part) for part, output in outputs.items()}
    results = {part: class_results(output) for part, output in outputs.items()}
    trained = {parts["train"].texts(item) for item in parts["train"]}
    for part in scores.keys() - {"train"}:
        scores[part] |= classification_report(parts[part], results[part], evaluation)
        new = np.array([parts[part].texts(item) not in trained for item in parts[part]], dtype=bool)
        if new.any() and not new.all():
            right = (results[part].predicted == results[part].right)[new]
            scores[part]["without_repeated"] = {"examples": len(right), "accuracy": float(right.mean())}
    if evaluation.coverage is not None and "test" in scores:
        threshold = confidence_threshold(results["validation"].confidence, evaluation.coverage)
        for part in ("validation", "test"):
            scores[part]["abstaining"] = abstaining_scores(results[part], threshold)
    for part, compared in (calibration or {}).items():
        scores[part]["calibration"] = compared
    return scores


def calibrated(
    run: TrainedRun,
    encoded: Mapping[str, EncodedTexts | WindowedTexts],
    outputs: Mapping[str, PredictionOutput],
    evaluation: OwnClassifierEvaluationConfig,
) -> tuple[Mapping[str, PredictionOutput], dict[str, dict[str, Any]]]:
    """Divide the logits of the model by the temperature that fits the validation part, if ``evaluation`` says so.

    The temperature becomes part of the weights and is stored in the configuration, and a picture is added to the run.

    Args:
        run: the finished run, whose model is not saved yet.
        encoded: the texts of the parts of ``outputs``.
        outputs: predictions of the model as it was trained.
        evaluation: whether to calibrate.

    Returns:
        Predictions of the calibrated model; and for each part the ``temperature``, and ``calibration_scores`` as
        ``before`` and ``after``. Without calibration, ``outputs`` and nothing.
    """
    if not evaluation.calibration:
        return outputs, {}
    logits = {part: predicted_logits(run, dataset) for part, dataset in encoded.items()}
    right = {part: class_results(output).right for part, output in outputs.items()}
    temperature = fitted_temperature(logits["validation"], right["validation"])
    divide_logits(run.model, temperature)
    set_decision(run.model, temperature=temperature)
    made: dict[str, PredictionOutput] = {}
    scores: dict[str, dict[str, Any]] = {}
    for part, output in outputs.items():
        new = class_predictions((logits[part] / temperature).numpy(), right[part].tolist())
        made[part] = new._replace(metrics={**scores_of_part(output.metrics or {}, part), **(new.metrics or {})})
        scores[part] = {
            "temperature": temperature,
            "before": calibration_scores(logits[part], right[part]),
            "after": calibration_scores(logits[part] / temperature, right[part]),
        }
    run.pictures.append(reliability_picture(scores[shown_part(scores)], run.title))
    return made, scores


def reliability_picture(scores: Mapping[str, Any], title: str) -> Picture:
    """Return the reliability diagrams of a part, before and after calibration."""
    arguments = {"before": scores["before"]["bins"], "after": scores["after"]["bins"], "title": title}
    return Picture("reliability.png", "reliability", arguments)


def store_threshold(model: PreTrainedModel, metrics: Mapping[str, Mapping[str, Any]]) -> None:
    """Store the threshold that the validation part chose in the configuration of the model."""
    if "abstaining" in metrics.get("validation", {}):
        set_decision(model, threshold=metrics["validation"]["abstaining"]["threshold"])


def threshold_choice(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part that chose the threshold and the temperature, if any, for ``selection`` in ``results.json``."""
    chosen = {"threshold": ("abstaining", "coverage"), "temperature": ("calibration", "nats_per_example")}
    return {
        name: {"part": "validation", "metric": metric}
        for name, (kind, metric) in chosen.items()
        if any(kind in scores for scores in metrics.values())
    }


def fairness_scores(
    texts: LabeledTexts,
    evaluation: ClassifierEvaluationConfig,
    predict: Callable[[Sequence[Any]], np.ndarray],
    scores: Mapping[str, Any],
    languages: Sequence[str],
    *,
    quoted: bool = True,
) -> dict[str, Any]:
    """Return how predictions change with words that should not matter.

    Args:
        texts: the texts of a part.
        evaluation: which tests to run, and the words to swap.
        predict: function that returns the probabilities (n, C) of the classes of n texts, or pairs of texts.
        scores: the scores of the part, with its threshold if the classifier abstains.
        languages: ISO 639 codes of the languages of the texts, for the filled sentences.
        quoted: whether the texts that change most are returned.

    Returns:
        ``counterfactual`` for words that are swapped in evenly spaced texts, and ``templates`` for filled sentences.
    """
    threshold, results = scores.get("abstaining", {}).get("threshold"), {}
    if evaluation.counterfactual_texts:
        items = texts.items[:: -(-len(texts) // evaluation.counterfactual_texts)]
        inputs = [item.text if item.pair is None else (item.text, item.pair) for item in items]
        results["counterfactual"] = counterfactual(
            predict, inputs, read_swaps(evaluation.swaps), examples=3 if quoted else 0, threshold=threshold
        )
    if evaluation.templates:
        templates = read_templates(languages=languages)
        results["templates"] = template_test(predict, templates, pairs=texts.has_pairs, threshold=threshold)
    return results


def probabilities(run: TrainedRun, dataset: EncodedTexts | WindowedTexts) -> np.ndarray:
    """Return the probabilities (n, C) of the classes of n texts, in the precision of the evaluation."""
    return class_probabilities(predicted_logits(run, dataset)).numpy()


def predicted_logits(run: TrainedRun, dataset: EncodedTexts | WindowedTexts) -> torch.Tensor:
    """Return the logits (n, C) of n texts, in the precision of the evaluation."""
    trainer = run.trainer
    with trainer.accelerator.autocast():
        return predict_logits(run.model, dataset, trainer.data_collator, trainer.args.per_device_eval_batch_size)


def confusion_picture(scores: Mapping[str, Any], labels: Sequence[str], title: str) -> Picture:
    """Return the picture of the confusion matrix of a part."""
    arguments = {"matrix": scores["confusion"], "labels": list(labels), "title": title}
    return Picture("confusion.png", "confusion", arguments)


def confident_mistakes(texts: LabeledTexts, results: ClassResults, number: int) -> list[dict[str, Any]]:
    """Return the wrongly classified texts whose right class had the lowest probability, the lowest first.

    Args:
        texts: n texts.
        results: the predictions for these texts.
        number: maximum number of texts to return.
    """
    predicted, right, nats, _ = results
    wrong = np.flatnonzero(predicted != right)
    return [
        {
            "place": texts.place(i),
            "text": shortened(texts, texts.items[i]),
            "right": texts.labels[right[i]],
            "predicted": texts.labels[predicted[i]],
            "probability of the right class": f"{np.exp(-nats[i]):.2g}",
        }
        for i in wrong[np.argsort(-nats[wrong], kind="stable")][:number].tolist()
    ]


def shortened(texts: LabeledTexts, item: Labeled) -> str:
    """Return a text, or a pair joined by a bar, for a cell of a table."""
    return " | ".join(textwrap.shorten(text, LONGEST_SHOWN, placeholder=" …") for text in texts.texts(item))


def part_facts(parts: Mapping[str, LabeledTexts]) -> dict[str, dict[str, Any]]:
    """Return the number of texts and the fingerprint of each part."""
    return {part: {"texts": len(texts), "sha256": texts.fingerprint} for part, texts in parts.items()}


def guesses(parts: Mapping[str, LabeledTexts], columns: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return by part the accuracy of guessing the most frequent class, of all texts and of each value of a column."""
    names = {"most frequent class": None, **{f"most frequent class by {column}": column for column in columns}}
    return {
        part: {name: guess_accuracy(parts["train"], texts, column) for name, column in names.items()}
        for part, texts in parts.items()
        if part != "train"
    }


def short_texts(dataset: EncodedTexts | WindowedTexts) -> list[int]:
    """Return the indices of the texts with at least ``SHORTEST_SHOWN`` tokens (or of all), the shortest first."""
    order = np.argsort(dataset.lengths[:, 0], kind="stable")
    long_enough = order[dataset.lengths[order, 0] >= SHORTEST_SHOWN]
    indices: list[int] = (long_enough if len(long_enough) else order).tolist()
    return indices


@torch.inference_mode()
def read_attention(run: TrainedRun, dataset: EncodedTexts, number: int) -> list[dict[str, str | None]]:
    """Read a few short texts, and add pictures of the attention to each to those of the run.

    Returns:
        For each text the right and the predicted class or number, and the name of its picture (None without attention).
    """
    model, texts = run.model, dataset.texts
    model.set_attn_implementation("eager")  # the fused implementations do not return weights
    shown: list[dict[str, str | None]] = []
    for i in short_texts(dataset)[:number]:
        item = texts.items[i]
        input_ids = torch.tensor([dataset[i]["input_ids"]], device=model.device)
        outputs = model(input_ids, output_attentions=True)
        if item.hot is not None:
            right = ", ".join(texts.names(item)) or "none"
            predicted = ", ".join(classify(model, run.tokenizer, texts.texts(item))["labels"]) or "none"
            title = f"{right}, predicted {predicted}"
        elif item.number is None:
            right, predicted = texts.labels[item.label], texts.labels[int(class_probabilities(outputs.logits).argmax())]
            title = f"{right}, classified as {predicted}"
        else:
            right, predicted = f"{item.number:g}", f"{float(outputs.logits):.2f}"
            title = f"{texts.labels[0]} {right}, predicted {predicted}"
        text = " | ".join(texts.texts(item))
        facts: dict[str, str | None] = {"text": text, "right": right, "predicted": predicted, "alignment": None}
        is_of_tokens = instead_of_tokens(model.config) is None
        if outputs.attentions and is_of_tokens and not layers_without_weights(outputs.attentions):
            if is_hierarchical(model.config):
                outputs.attentions = (word_weights_in_text(model, input_ids, *outputs.attentions),)
            record = alignment(outputs, tokenizer=run.tokenizer, input_ids=input_ids)
            name = facts["alignment"] = f"alignment-{len(shown) + 1}"
            run.pictures.append(Picture(f"{name}.png", "attention", {"record": record, "title": title}))
        shown.append(facts)
    return shown


def word_weights_in_text(
    model: PreTrainedModel, input_ids: torch.Tensor, words: torch.Tensor, sentences: torch.Tensor
) -> torch.Tensor:
    """Return the weight of each word in hierarchical pooling: its weight in the sentence times the sentence's weight.

    Args:
        model: a classifier with hierarchical pooling.
        input_ids: (B, S), without padding.
        words: (B, 1, 1, S) and ``sentences``: (B, 1, 1, N), the weights that the model returned.
    """
    ends = torch.isin(input_ids, torch.tensor(model.config.sentence_end_token_ids, device=input_ids.device))
    found = find_sentences(torch.ones_like(ends), end=ends)
    weight_of_sentence = sentences[found.text, 0, 0, found.order]  # (K,)
    per_word = weight_of_sentence[:, None].expand(found.word_mask.shape)
    return words * found.join(per_word, input_ids.shape[1])[:, None, None]


def summary(
    folder: Path,
    metrics: Mapping[str, Mapping[str, Any]],
    baseline: Mapping[str, Any] | None = None,
    guessed: Mapping[str, Mapping[str, float]] | None = None,
    model: Mapping[str, Any] | None = None,
) -> str:
    """Return the scores of each part and slice, and the results of the counterfactual test, as text.

    Args:
        folder: the run folder.
        metrics: scores by part.
        baseline: of ``linear_baseline``, if there is one.
        guessed: of ``guesses``, if there are any.
        model: facts about the model.
    """
    lines = ["", f"{'':16}{'texts':>8}{'accuracy':>10}{'F1':>10}{'nats/text':>11}"]
    for part, score in metrics.items():
        lines.append(
            f"{part:16}{score['examples']:8d}{score['accuracy']:10.4f}{score['f1']:10.4f}{score['nats_per_example']:11.4f}"
        )
    shown = metrics[shown_part(metrics)]
    if baseline is not None:
        linear = baseline[shown_part(metrics)]
        better = ", which is not worse" if linear["accuracy"] >= shown["accuracy"] else ""
        lines.append(f"{'linear SVM':24}{linear['accuracy']:10.4f}{linear['f1']:10.4f}  on TF-IDF{better}")
    for name, accuracy in (guessed or {}).get(shown_part(metrics), {}).items():
        lines.append(f"{name:24}{accuracy:10.4f}  without reading")
    lines += ["", f"{'slice':24}{'texts':>8}{'accuracy':>10}"]
    lines += [
        f"{name:24}{score['examples']:8d}{score['accuracy']:10.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    if "without_repeated" in shown:
        new = shown["without_repeated"]
        lines.append(f"{'not in training':24}{new['examples']:8d}{new['accuracy']:10.4f}")
    if "abstaining" in shown:
        kept = shown["abstaining"]
        name, accuracy = f"confidence ≥ {kept['threshold']:.4f}", kept["accuracy"]
        lines.append(f"{name:24}{kept['answered']:8d}{'–' if accuracy is None else f'{accuracy:.4f}':>10}")
    if "calibration" in shown:
        fit = shown["calibration"]
        name = f"temperature {fit['temperature']:.3f}"
        lines += ["", f"{name:24}{'ECE':>8}{'Brier':>10}{'nats/text':>11}"]
        for name in ("before", "after"):
            error, brier, nats = (fit[name][key] for key in ("calibration_error", "brier", "nats_per_example"))
            lines.append(f"{name:24}{error:8.4f}{brier:10.4f}{nats:11.4f}")
    for kind, moved in shown.get("counterfactual", {}).items():
        if moved["texts"]:
            lines.append(f"{kind} swapped in {moved['texts']} texts: {_changed(moved)}")
    for kind, moved in shown.get("templates", {}).items():
        lines.append(f"{kind} in {moved['pairs']} pairs of template sentences: {_changed(moved)}")
    return "\n".join([*lines, "", *mixture_lines(model or {}), f"Model, results, curve and pictures: {folder}"])


def _changed(moved: Mapping[str, Any]) -> str:
    return f"{moved['flipped']:.2%} of the predictions flip, their probabilities change by {moved['mean_shift']:.4f}"

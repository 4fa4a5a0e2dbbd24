"""Compute the scores of a run from the outputs that the sandbox has sent; see ``measuring.py``."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction

from ..data.image_texts import text_groups, text_numbers
from ..data.images import LabeledImages
from ..data.pairs import Pair
from ..data.questions import FoundAnswer
from ..metrics import (
    AnswerMetric,
    ClassifierEvaluationConfig,
    EntityScores,
    RegressionScores,
    class_predictions,
    class_predictions_of_images,
    class_results,
    classification_report,
    main_score,
    multi_label_report,
    neighbor_accuracy,
    regression_report,
    retrieval_scores,
    sentence_scores,
    task_scores,
    text_scores,
    translation_report,
)
from ..metrics.language_model import perplexity
from ..reports.image_captioning import caption_scores
from ..reports.image_classification import part_scores as scores_of_image_part
from ..reports.multiple_choice import part_scores as scores_of_questions
from ..reports.question_answering import EvaluatedQuestions
from ..reports.question_answering import part_scores as scores_of_found
from ..reports.self_supervised import pixel_vectors
from ..reports.token_classification import EvaluatedSentences
from ..reports.token_classification import part_scores as scores_of_sentences
from ..reports.translation import exact_match_by_kind
from .clean_run import Result
from .measuring import Measurement


def scores_of_translations(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a part by the translations that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a text for each source.
    """
    pairs = measurement.items[part]
    scores: dict[str, Any] = {}
    for search in measurement.order["searches"][part]:
        texts = _written(result, part, search, len(pairs))
        report = translation_report([pair.source for pair in pairs], texts, [pair.target for pair in pairs])
        report["translated"] = report.pop("pairs")
        if search == "greedy":
            scores |= {**report, "exact_match_by_kind": exact_match_by_kind(pairs, texts)}
        else:
            del report["translated"]
            scores[search] = report
    return scores


def _written(result: Result, place: str, search: str, number: int) -> list[str]:
    """Return the texts that the sandbox has sent for the sources of a place, one for each of them."""
    sent = result.facts.get("translations")
    found = sent.get(place) if isinstance(sent, dict) else None
    return _texts(found.get(search) if isinstance(found, dict) else None, number, "translation", "source", place)


def _texts(texts: Any, number: int, output: str, read: str, place: str) -> list[str]:
    """Return texts that the sandbox has sent, one for each of what it has read."""
    assert isinstance(texts, list), f"the process sent no {output}s of {place}"
    complete = len(texts) == number and all(isinstance(text, str) for text in texts)
    assert complete, f"the process did not send a {output} of each {read} of {place}"
    return [text.encode("utf-8", "replace").decode() for text in texts]  # without half surrogate pairs


def scores_of_tasks(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of the tasks of a part by the outputs that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a text for each source.
    """
    of_tasks: dict[str, list[Pair]] = {}
    for pair in measurement.items[part]:
        of_tasks.setdefault(pair.kind, []).append(pair)
    sections, tasks = measurement.results["data"]["tasks"], {}
    for name, pairs in of_tasks.items():
        texts = _written(result, f"{part}/{name}", "written", len(pairs))
        metric, labels = sections[name]["metric"], sections[name]["labels"]
        tasks[name] = {**task_scores(metric, texts, [pair.target for pair in pairs], labels), "examples": len(pairs)}
    scores: dict[str, Any] = {"tasks": tasks}
    if tasks.keys() == measurement.results["metrics"][part]["tasks"].keys():
        mains = [main_score(sections[name]["metric"], of_task) for name, of_task in tasks.items()]
        scores |= {"score": sum(mains) / len(mains), "examples": sum(map(len, of_tasks.values()))}
    return scores


def scores_of_captions(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a part by the captions that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a caption of each image.
    """
    images, sent = measurement.parts[part], result.facts.get("captions")
    found = sent.get(part) if isinstance(sent, dict) else None
    return caption_scores(images, _texts(found, len(images), "caption", "image", part))


def scores_of_logits(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a part by the logits that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not finite logits of each text.
    """
    texts, logits = measurement.parts[part], result.tensors.get(part)
    assert logits is not None, f"the process sent no logits of {part}"
    complete = logits.ndim == 2 and len(logits) == len(texts) and bool(logits.isfinite().all())
    assert complete, f"the process did not send logits of each text of {part}"
    evaluation, regression = (
        measurement.results["configuration"]["evaluation"],
        measurement.results["data"].get("regression", False),
    )
    columns, words = evaluation.get("columns", []), evaluation.get("words", [])
    wanted = (1,) if regression else {2: (1, 2)}.get(len(texts.labels), (len(texts.labels),))
    assert logits.shape[1] in wanted, f"the process sent {logits.shape[1]} logits of a text"
    outputs = logits.float().numpy()
    if regression:
        targets = np.array([item.target for item in texts])
        found = EvalPrediction(predictions=outputs[:, 0], label_ids=targets)
        return {
            **RegressionScores()(found, compute_result=True),
            **regression_report(texts, outputs[:, 0], columns, words),
        }
    if measurement.results["data"].get("multi_label", False):
        thresholds = np.array([measurement.results["thresholds"][label] for label in texts.labels])
        return multi_label_report(texts, outputs, thresholds, columns, words)
    output = class_predictions(outputs, [item.label for item in texts])
    slices = ClassifierEvaluationConfig(columns=columns, words=words)
    return {**(output.metrics or {}), **classification_report(texts, class_results(output), slices)}


def scores_of_images(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of classified images by the logits that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not finite logits of each image.
    """
    images, logits = measurement.parts[part], result.tensors.get(part)
    assert logits is not None, f"the process sent no logits of {part}"
    complete = logits.shape == (len(images), len(images.labels)) and bool(logits.isfinite().all())
    assert complete, f"the process did not send logits of each image of {part}"
    output = class_predictions_of_images(logits.float().numpy(), [item.label for item in images])
    return scores_of_image_part(images, output, part, measurement.results["configuration"]["evaluation"]["columns"])


def scores_of_choices(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of multiple-choice questions by the logit of each choice, as in ``results.json``.

    Raises:
        AssertionError: these are not a finite logit of each choice.
    """
    questions, sent = measurement.parts[part], result.tensors.get(part)
    counts = [len(item.choices) for item in questions]
    assert sent is not None, f"the process sent no logits of {part}"
    complete = sent.shape == (sum(counts), 1) and bool(sent.isfinite().all())
    assert complete, f"the process did not send a logit of each choice of {part}"
    logits = np.full((len(counts), max(counts)), -np.inf, np.float32)
    for row, of_choices in zip(logits, sent[:, 0].float().split(counts), strict=True):
        row[: len(of_choices)] = of_choices.numpy()
    return scores_of_questions(questions, class_predictions(logits, [item.label for item in questions]), part)


def scores_of_embeddings(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of retrieval by the embeddings that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a finite embedding of length 1 of each image and of each text.
    """
    examples, texts = measurement.parts[part], measurement.order["texts"][part]
    embeds = []
    for name, number in (("images", len(examples)), ("texts", len(texts))):
        sent = result.tensors.get(f"{part}.{name}")
        assert sent is not None, f"the process sent no embeddings of the {name} of {part}"
        complete = sent.ndim == 2 and len(sent) == number and bool(sent.isfinite().all())
        assert complete, f"the process did not send an embedding of each of the {name} of {part}"
        assert bool(((sent.norm(dim=1) - 1).abs() < 1e-3).all()), (
            f"embeddings of the {name} of {part} are not of length 1"
        )
        embeds.append(sent.float().numpy())
    image_embeds, text_embeds = embeds
    groups = text_groups(examples.items)
    return retrieval_scores(image_embeds, text_embeds, groups[text_numbers(examples)[1]], groups)


def scores_of_vectors(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a sentence encoder by the vectors that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a finite vector of each text.
    """
    sent, texts = result.tensors.get(part), measurement.order["texts"][part]
    assert sent is not None, f"the process sent no vectors of {part}"
    complete = sent.ndim == 2 and len(sent) == len(texts) and bool(sent.isfinite().all())
    assert complete, f"the process did not send a vector of each text of {part}"
    labels = measurement.results["configuration"]["data"]["positive_labels"]
    return sentence_scores(measurement.parts[part], sent.float().numpy(), tuple(labels))


def scores_of_likelihoods(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a language model by its likelihood of a text, as in ``results.json``.

    Raises:
        AssertionError: these are no numbers, or those of a text of another length.
    """
    sent, unit, texts = result.facts.get("likelihoods"), measurement.order["unit"], measurement.order["texts"][part]
    found = sent.get(part) if isinstance(sent, dict) else None
    assert isinstance(found, dict), f"the process sent no likelihoods of {part}"
    scores, size = found["scores"], found["size"]
    nats, accuracy, number = scores[f"nats_per_{unit}"], scores["accuracy"], scores[f"{unit}s"]
    numbers = all(type(each) in (int, float) and math.isfinite(each) for each in (nats, accuracy, number))
    assert numbers, f"the process sent no likelihoods of {part}"
    measured = {
        "accuracy": accuracy,
        "perplexity": perplexity(nats),
        f"bits_per_{unit}": nats / math.log(2),
        f"nats_per_{unit}": nats,
        f"{unit}s": number,
    }
    if unit == "character":
        # The first character is not predicted; streams of equal length leave a few others out.
        left = len(texts[0]) - 1 - number
        whole_text = 0 <= left < (measurement.order["streams"] or 1)
        assert whole_text, f"the process scored {number:,} of {len(texts[0]):,} characters of {part}"
        return measured
    if measurement.order["kind"] == "completions":  # the tokenizer says which characters are learned
        most = measurement.parts[part].counts.total()
        assert 0 < size["characters"] <= most, f"the process scored another text than {part}"
        return measured | text_scores(nats * number, size["characters"], size["bytes"], size["words"])
    # Without a start token, the first token is not predicted, and its characters are not counted.
    whole = {"characters": sum(map(len, texts)), "bytes": sum(len(text.encode()) for text in texts)}
    missing = [whole[name] - size[name] for name in whole]
    assert all(0 <= each <= 100 for each in missing), f"the process scored another text than {part}"
    words = sum(len(text.split()) for text in texts)
    return measured | text_scores(nats * number, size["characters"], size["bytes"], words)


def scores_of_tags(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of tagged sentences by the logits of each word, as in ``results.json``.

    Raises:
        AssertionError: these are not logits of each word.
    """
    sentences, sent = measurement.parts[part], result.tensors.get(part)
    lengths, labels = [len(item.words) for item in sentences], sentences.labels
    assert sent is not None, f"the process sent no logits of {part}"
    complete = sent.shape == (sum(lengths), len(labels)) and not bool(sent.isinf().any())
    assert complete, f"the process did not send logits of each word of {part}"
    right = torch.tensor([labels.index(tag) for item in sentences for tag in item.tags])
    nats = torch.nn.functional.cross_entropy(sent.float(), right, reduction="none")
    read = ~sent.isnan().any(dim=-1)
    scores, windows, start = EntityScores(labels), [], 0
    for i, length in enumerate(lengths):
        windows.append((i, {word: word for word in range(length) if read[start + word]}))
        start += length
    scores.expect([item.tags for item in sentences], windows)
    rows = [torch.nn.utils.rnn.pad_sequence(each.split(lengths), batch_first=True) for each in (sent.argmax(-1), nats)]
    metrics = scores(EvalPrediction(predictions=tuple(rows), label_ids=right), compute_result=True)
    columns = measurement.results["configuration"]["evaluation"]["columns"]
    return scores_of_sentences(sentences, EvaluatedSentences(metrics, scores.predicted, scores.nats), columns)


def scores_of_answers(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of answers that the process has found, as in ``results.json``.

    Raises:
        AssertionError: these are not an answer to each question.
    """
    questions, sent = measurement.parts[part], result.facts.get("answers")
    found = sent.get(part) if isinstance(sent, dict) else None
    complete = isinstance(found, list) and len(found) == len(questions)
    assert complete, f"the process did not send an answer to each question of {part}"
    answers = []
    for text, span, margin in found or []:
        kinds = isinstance(text, str) and isinstance(span, str) and type(margin) in (int, float)
        assert kinds, f"the process sent something that is no answer to a question of {part}"
        answers.append(FoundAnswer(text, span, 0, margin, 0.0))
    means = AnswerMetric().compute(predictions=[each.text for each in answers], references=questions.references)
    evaluated = EvaluatedQuestions({**means, "questions": len(answers)}, answers)
    configuration, threshold = measurement.results["configuration"], measurement.order["options"]["null_threshold"]
    return scores_of_found(questions, threshold, evaluated, configuration["evaluation"]["columns"])


def scores_of_features(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the accuracy of nearest neighbors by the features that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not finite features of each image.
    """
    images: LabeledImages = measurement.parts[part]
    bank = replace(images, items=list(measurement.items["train"]))
    for name, number in ((part, len(images)), ("train", len(bank))):
        sent = result.tensors.get(name)
        assert sent is not None, f"the process sent no features of {name}"
        complete = sent.ndim == 2 and len(sent) == number and bool(sent.isfinite().all())
        assert complete, f"the process did not send features of each image of {name}"
    features = result.tensors
    size = measurement.results["data"]["size"]
    labels, of_bank = (torch.tensor([item.label for item in each]) for each in (images, bank))
    return {
        "examples": len(images),
        "accuracy": neighbor_accuracy(features[part], labels, features["train"], of_bank),
        "pixels_accuracy": neighbor_accuracy(*pixel_vectors(images, size), *pixel_vectors(bank, size)),
    }


SCORES = {
    **dict.fromkeys(("classification", "distillation"), scores_of_logits),
    **dict.fromkeys(("char_lm", "causal_lm"), scores_of_likelihoods),
    "image_text": scores_of_embeddings,
    "sentence_encoder": scores_of_vectors,
    "image_classification": scores_of_images,
    "multiple_choice": scores_of_choices,
    "translation": scores_of_translations,
    "text_to_text": scores_of_tasks,
    "image_captioning": scores_of_captions,
    "token_classification": scores_of_tags,
    "question_answering": scores_of_answers,
    "self_supervised": scores_of_features,
}

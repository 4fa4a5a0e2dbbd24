"""Evaluate trained models on texts: likelihood, classification and translation."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase

from .baselines import BaselineClassifier
from .baselines.classifier import SETTINGS
from .data import (
    EncodedQuestions,
    LabeledTexts,
    PairNumbers,
    Pairs,
    TextPairDataConfig,
    TextPairs,
    WindowCollator,
    WindowedTexts,
    mean_of_windows,
    open_text,
    order_by_length,
    read_labeled,
    read_pairs,
    unlabeled,
)
from .data.text_pairs import read_text_pairs
from .errors import UserError
from .files import read_json_object
from .generation import translate_texts
from .likelihood import score_opened
from .loading import load_any_model, max_positions, reads_images
from .metrics import (
    ClassifierEvaluationConfig,
    RegressionScores,
    abstaining_scores,
    class_predictions,
    class_probabilities,
    class_results,
    classification_report,
    label_probabilities,
    multi_label_report,
    read_templates,
    regression_report,
    sentence_scores,
    template_test,
    translation_report,
)
from .models.pipeline_attn_translation import TEXT_TO_TEXT
from .sentence_encoders import SentenceEncoder, has_modules, sentence_encoder_of
from .tokenizers import uncovered_characters

# Languages of the built-in templates, by their names in the place of data.
TEMPLATES = {"templates": ("en",), "templates_es": ("es",)}
# Keys of the configuration's task_specific_params.
TASK = "text-classification"
ANSWERS = "question-answering"
# What a run chose on its validation texts, beside the reading of texts: see ``set_decision``.
DECISIONS = ("threshold", "temperature", "thresholds")
READING = ("max_length", "too_long", "overlap", "both_orders")  # what ``set_reading`` stores
SEPARATOR = "label_separator"  # what is between two labels in the data of the training


def predict_classes(model: PreTrainedModel, dataset: Any, collate: Callable[..., Any], rows: int = 128) -> np.ndarray:
    """Return the probabilities (n, C) of the classes of n texts; for the arguments see ``predict_logits``."""
    return class_probabilities(predict_logits(model, dataset, collate, rows)).numpy()


@torch.inference_mode()
def predict_logits(model: PreTrainedModel, dataset: Any, collate: Callable[..., Any], rows: int = 128) -> torch.Tensor:
    """Return the logits (n, C) of n texts; those of a regression (n, 1) are its predictions.

    Args:
        model: a classifier or a regression.
        dataset: ``EncodedTexts`` or ``WindowedTexts``.
        collate: collator for its examples. The logits of a text in several windows are averaged.
        rows: texts per batch.
    """
    model.eval()
    order = order_by_length(dataset.lengths)
    found = []
    for start in range(0, len(order), rows):
        batch = collate([dataset[int(i)] for i in order[start : start + rows]])
        inputs = {name: tensor.to(model.device) for name, tensor in batch.items() if name not in ("labels", "windows")}
        logits = model(**inputs).logits.float()
        if "windows" in batch:
            logits = mean_of_windows(logits, batch["windows"].to(logits.device))
        found.append(logits.cpu())
    return torch.cat(found)[np.argsort(order)]


def evaluate_folder(
    name: str,
    data: str,
    split: str = "test",
    config: str | None = None,
    columns: Sequence[str] | None = None,
    num_beams: int | None = None,
    limit: int | None = None,
    threshold: float | None = None,
    together_with: Sequence[str] = (),
) -> dict[str, Any]:
    """Evaluate a model from a folder or the Hub on any data of its task.

    Args:
        name: folder or Hub id of a translation model, a classifier, a language model or a sentence encoder; or folder
            of a baseline.
        data: pairs, labeled texts or a text: a file, or a dataset on the Hub with its ``split`` and ``config``. For a
            classifier also "templates" or "templates_es", English or Spanish sentences for ``template_test``, or a YAML
            file of such sentences; if ``columns`` names three columns, their pairs are used.
        columns: names of the columns of the data: source and target, or text, optional second text, and label; by
            default text and label, with pair between them for a run that was trained on pairs. For a sentence encoder,
            two texts, which belong together, and optionally a number that says how similar they are.
        num_beams: number of beams of a translation model; by default, that of its generation configuration.
        limit: number of randomly drawn pairs or labeled texts; by default, all.
        threshold: a classifier abstains below this probability of its most probable class; see ``abstaining_scores``.
        together_with: folders or Hub ids of other classifiers with the same classes, whose probabilities are averaged
            with those of the first (an ensemble), such as those of a model that reads backward.

    Returns:
        The scores of the recipe of such models, by name.

    Raises:
        UserError: the model or the data cannot be read, or do not match, or an option is not for the task of the model.
    """
    if isinstance(columns, str):
        raise UserError("columns is one text; give a list of names.")
    places: dict[str, Any] = {"config": config, "split": split}
    templates = data in TEMPLATES or data.endswith(".yaml")
    if together_with:
        if templates:
            raise UserError("Several classifiers are averaged on labeled texts; evaluate each alone on templates.")
        _refuse(name, num_beams=num_beams)
        read = partial(_labeled_texts, data, columns, limit=limit, places=places)
        return evaluate_together([name, *together_with], read, threshold)
    if templates:
        _refuse("templates", limit=limit)
    if (Path(name) / SETTINGS).is_file():
        _refuse(name, num_beams=num_beams)
        baseline = BaselineClassifier.from_pretrained(name)
        if columns is not None and len(columns) > 2:
            raise UserError(f"{name} is a baseline, which reads one text; name its column and that of the label.")
        if templates:
            return _template_scores(baseline.predict, data, columns, threshold)
        texts = _labeled_texts(data, columns, baseline.labels, limit, places)
        return _classifier_scores(baseline.logits([item.text for item in texts]), texts, threshold)
    model, tokenizer, target_tokenizer = load_any_model(name)
    if reads_images(model):
        raise UserError(f"{name} reads images, which has no measure here; its recipe measures it.")
    if model.config.is_encoder_decoder:
        _refuse(name, threshold=threshold)
        if TEXT_TO_TEXT in (model.config.to_dict().get("task_specific_params") or {}):
            raise UserError(
                f"{name} has several tasks, and puts words of its own around the text of each, which hfattn evaluate "
                "does not; its recipe measures every task."
            )
        source, target = _named(columns, ("source", "target"))
        pairs = read_pairs(data, source_column=source, target_column=target, **places)
        pairs = pairs if limit is None else pairs.sample(limit, seed=0)
        return evaluate_translator(model, tokenizer, target_tokenizer, pairs, num_beams)
    _refuse(name, num_beams=num_beams)
    if "SequenceClassification" in type(model).__name__:
        if columns is None and _reads_pairs(name):
            columns = ("text", "pair", "label")
        if is_multiple_choice(model):
            raise UserError(f"{name} chooses among several texts, which has no measure here; its recipe measures it.")
        if is_regression(model):
            if templates or threshold is not None:
                raise UserError(f"{name} predicts a number and no class; give data with numbers, and no threshold.")
            texts = _labeled_texts(data, columns, None, limit, places, regression=True)
            return evaluate_regression(model, tokenizer, texts)
        if has_several_labels(model):
            if templates or threshold is not None:
                raise UserError(f"{name} predicts several labels; give data with labels, and no threshold.")
            between = stored_settings(model).get(SEPARATOR, ",")
            texts = _labeled_texts(data, columns, class_names(model), limit, places, separator=between)
            return multi_label_report(
                texts, text_logits(model, tokenizer, texts, 128).numpy(), stored_thresholds(model)
            )
        if templates:
            return _template_scores(
                lambda texts: predicted_probabilities(model, tokenizer, unlabeled(texts)), data, columns, threshold
            )
        labels = None if model.config.num_labels == 1 else class_names(model)
        texts = _labeled_texts(data, columns, labels, limit, places)
        return evaluate_classifier(model, tokenizer, texts, threshold=threshold)
    if model.can_generate():
        _refuse(name, limit=limit, threshold=threshold)
        if columns and len(columns) > 1:
            raise UserError(f"columns names {len(columns)} columns, and {name} reads one text; name the one with it.")
        opened = open_text(data, config=config, split=split, **({"text_column": columns[0]} if columns else {}))
        return score_opened(model, tokenizer, opened)
    if not templates and has_modules(name):
        _refuse(name, threshold=threshold)
        similar = _text_pairs(data, columns, places)
        similar = similar if limit is None else similar.sample(limit, seed=0)
        return evaluate_sentence_encoder(sentence_encoder_of(name, model, tokenizer), similar)
    raise UserError(f"{name} is a {type(model).__name__}, which has no measure here; its recipe measures it.")


def _text_pairs(data: str, columns: Sequence[str] | None, places: Mapping[str, Any]) -> TextPairs:
    if columns is not None and len(columns) not in (2, 3):
        raise UserError(
            f"columns names {len(columns)} columns; write those of two texts, or text,pair,score as the data call them."
        )
    text, pair, *score = columns or ("text", "pair")
    fields = TextPairDataConfig(
        dataset=data,
        config=places["config"],
        text_column=text,
        pair_column=pair,
        score_column=score[0] if score else None,
    )
    return read_text_pairs(data, fields, places["split"])


def evaluate_sentence_encoder(encoder: SentenceEncoder, pairs: TextPairs) -> dict[str, Any]:
    """Return the correlation of cosines and scores; or, of pairs without scores, how well the second texts are found.

    For the scores see ``hfattn.metrics.sentence_scores``.
    """
    return sentence_scores(pairs, encoder.embed(PairNumbers(pairs).texts).numpy())


def _refuse(name: str, **options: float | None) -> None:
    """Refuse options of ``evaluate_folder`` that are given and not for a model.

    Raises:
        UserError: there is one.
    """
    if given := next((option for option, value in options.items() if value is not None), None):
        raise UserError(f"{given} is not for the task of {name}; leave it out.")


def evaluate_together(
    names: Sequence[str], read: Callable[..., LabeledTexts], threshold: float | None = None
) -> dict[str, Any]:
    """Return the scores of the mean of the probabilities of several classifiers.

    Args:
        names: folders or Hub ids of classifiers of texts with one label.
        read: function from the names of the classes to the labeled texts.
        threshold: as in ``evaluate_folder``.

    Raises:
        UserError: a model gives no probabilities of classes, or the models have other classes.
    """
    classifiers = [load_any_model(name)[:2] for name in names]
    models = [model for model, _ in classifiers]
    check_averaged(names, models)
    texts = read(labels=None if models[0].config.num_labels == 1 else class_names(models[0]))
    mean = mean_probabilities(classifiers, texts)
    return _classifier_scores(np.log(np.maximum(mean, np.finfo(mean.dtype).tiny)), texts, threshold)


Classifier = tuple[PreTrainedModel, PreTrainedTokenizerBase]


def check_averaged(names: Sequence[str], models: Sequence[PreTrainedModel]) -> None:
    """Check that models are classifiers of texts with one label and the same classes, in any order.

    Raises:
        UserError: one gives no probabilities of classes, or has other classes.
    """
    for name, model in zip(names, models, strict=True):
        others = (is_regression, has_several_labels, is_multiple_choice)
        kind = type(model).__name__
        if "SequenceClassification" not in kind or any(is_other(model) for is_other in others):
            raise UserError(f"{name} is a {kind} without probabilities of one class; give classifiers of texts.")
        if sorted(class_names(model)) != sorted(class_names(models[0])):
            raise UserError(f"{names[0]} and {name} have different classes; give classifiers of the same classes.")


def mean_probabilities(classifiers: Sequence[Classifier], texts: LabeledTexts, rows: int = 128) -> np.ndarray:
    """Return the mean of the probabilities (n, C) of classifiers, in the order of the classes of the first."""
    classes = class_names(classifiers[0][0])
    found = []
    for model, tokenizer in classifiers:
        order = [class_names(model).index(each) for each in classes]
        found.append(predicted_probabilities(model, tokenizer, texts, rows)[:, order])
    mean: np.ndarray = np.mean(found, axis=0)
    return mean


def _labeled_texts(
    data: str,
    columns: Sequence[str] | None,
    labels: list[str] | None,
    limit: int | None,
    places: Mapping[str, Any],
    regression: bool = False,
    separator: str | None = None,
) -> LabeledTexts:
    if columns is not None and len(columns) not in (2, 3):
        raise UserError(
            f"columns names {len(columns)} columns; write text,label or text,pair,label, as the data call them."
        )
    text, *pairs, label = columns or ("text", "label")
    pair = pairs[0] if pairs else None
    read = {"labels": labels, "regression": regression, "separator": separator, **places}
    texts = read_labeled(data, text_column=text, pair_column=pair, label_column=label, **read)
    return texts if limit is None else texts.sample(limit, seed=0)


def _reads_pairs(name: str) -> bool:
    """Return whether a folder is the run of a classifier that was trained on pairs of texts."""
    path = Path(name) / "results.json"
    return path.is_file() and read_json_object(path).get("data", {}).get("pairs") is True


def _template_scores(
    predict: Callable[[list[Any]], np.ndarray], data: str, columns: Sequence[str] | None, threshold: float | None
) -> dict[str, Any]:
    templates = read_templates(languages=TEMPLATES[data]) if data in TEMPLATES else read_templates(data)
    return template_test(predict, templates, pairs=columns is not None and len(columns) == 3, threshold=threshold)


def _named(columns: Sequence[str] | None, default: tuple[str, str]) -> tuple[str, str]:
    if columns is None:
        return default
    if len(columns) != 2:
        raise UserError(f"columns names {len(columns)} columns; write {','.join(default)}, as the data call them.")
    return columns[0], columns[1]


def evaluate_translator(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    target_tokenizer: PreTrainedTokenizerBase | None,
    pairs: Pairs,
    num_beams: int | None = None,
    rows: int = 64,
) -> dict[str, Any]:
    """Translate n pairs in batches of ``rows``, and return the scores of ``translation_report``.

    Raises:
        UserError: a source has a character that the tokenizer does not know.
    """
    sources = [pair.source for pair in pairs]
    if missing := uncovered_characters(tokenizer, chain.from_iterable(sources)):
        raise UserError(
            f"The source texts contain {', '.join(map(repr, missing[:10]))}, which the vocabulary of the model lacks; "
            "remove these pairs."
        )
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: dict[int, str] = {}
    for start in range(0, len(order), rows):
        batch = order[start : start + rows]
        texts = translate_texts(model, tokenizer, [sources[i] for i in batch], target_tokenizer, num_beams)
        found |= zip(batch, texts, strict=True)
    return translation_report(sources, [found[i] for i in range(len(sources))], [pair.target for pair in pairs])


def set_reading(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
    too_long: str,
    **options: int | bool,
) -> None:
    """Store the treatment of long texts in a classifier's configuration and tokenizer, so that scores are reproducible.

    Args:
        model: a classifier.
        tokenizer: its tokenizer; afterwards it truncates to ``max_length`` if truncation is requested.
        max_length, too_long: as in ``WindowedTexts``.
        options: ``overlap``, the tokens that two windows share, for ``too_long`` "windows", and ``both_orders``.
    """
    tokenizer.model_max_length = max_length
    if too_long == "cut_start":
        tokenizer.truncation_side = "left"
        tokenizer.init_kwargs["truncation_side"] = "left"  # save_pretrained writes only arguments of the constructor
    reading = {"max_length": max_length, "too_long": too_long, **options}
    model.config.task_specific_params = {TASK: reading}


def set_decision(model: PreTrainedModel, **settings: float | str | Mapping[str, float]) -> None:
    """Store what was chosen on the validation texts in a classifier's configuration, after ``set_reading``.

    Args:
        model: a classifier.
        settings: ``threshold``, the probability below which it abstains; ``temperature``, by which its logits were
            divided: its weights hold this already; ``thresholds``, the probability from which a label is predicted, by
            the name of the label; or ``label_separator``, what is between two labels of a text in data to evaluate on.
    """
    parameters = model.config.task_specific_params
    model.config.task_specific_params = {**parameters, TASK: {**parameters[TASK], **settings}}


def set_answering(model: PreTrainedModel, encoded: EncodedQuestions) -> None:
    """Store in a model's configuration how answers are found, so that they are found in the same way elsewhere."""
    model.config.task_specific_params = {
        ANSWERS: {
            "max_length": encoded.max_length,
            "overlap": encoded.overlap,
            "n_best": encoded.n_best,
            "max_answer_length": encoded.max_answer_length,
            "null_threshold": encoded.null_threshold,
        }
    }


def stored_settings(model: PreTrainedModel, task: str = TASK) -> dict[str, Any]:
    """Return what ``set_reading``, ``set_decision`` or ``set_answering`` stored; empty for models of others."""
    return dict((model.config.to_dict().get("task_specific_params") or {}).get(task, {}))


def class_names(model: PreTrainedModel) -> list[str]:
    """Return the names of a classifier's classes; two for one sigmoid, which its configuration does not name."""
    count = model.config.num_labels
    return ["0", "1"] if count == 1 else [model.config.id2label[i] for i in range(count)]


def evaluate_classifier(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: LabeledTexts,
    rows: int = 128,
    bf16: bool = False,
    threshold: float | None = None,
) -> dict[str, Any]:
    """Return accuracy, F1, likelihood, confusion matrix and slices of a classifier on n texts.

    Args:
        model: a classifier. Long texts are read with the settings stored by ``set_reading``, otherwise cut to the
            maximum length of the tokenizer or the model.
        tokenizer: its tokenizer.
        texts: n labeled texts.
        rows: texts per batch.
        bf16: compute in mixed precision.
        threshold: the classifier abstains below this probability of its most probable class; None: never.
    """
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        probabilities = predicted_probabilities(model, tokenizer, texts, rows)
    logits = np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).tiny))
    return _classifier_scores(logits, texts, threshold)


def is_regression(model: PreTrainedModel) -> bool:
    """Return whether a sequence classifier predicts a number instead of a class."""
    return model.config.problem_type == "regression"


def is_multiple_choice(model: PreTrainedModel) -> bool:
    """Return whether a sequence classifier scores each of several texts, of which one is to be chosen."""
    return dict(model.config.id2label) == {0: "score"} and not is_regression(model)


def has_several_labels(model: PreTrainedModel) -> bool:
    """Return whether a sequence classifier predicts any number of labels, each with a sigmoid."""
    return model.config.problem_type == "multi_label_classification" and model.config.num_labels > 1


def stored_thresholds(model: PreTrainedModel) -> np.ndarray:
    """Return the thresholds (C,) of the labels that are stored with a classifier; 0.5 for those without."""
    stored = stored_settings(model).get("thresholds", {})
    return np.array([stored.get(name, 0.5) for name in class_names(model)])


def evaluate_regression(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: LabeledTexts, rows: int = 128, bf16: bool = False
) -> dict[str, Any]:
    """Return correlations, mean squared error and slices of a regression on n texts with numbers.

    For the arguments see ``evaluate_classifier``.
    """
    with torch.autocast(model.device.type, torch.bfloat16, enabled=bf16):
        predicted = text_logits(model, tokenizer, texts, rows)[:, 0].numpy()
    right = np.array([item.target for item in texts])
    scores = RegressionScores()(EvalPrediction(predictions=predicted, label_ids=right), compute_result=True)
    return {**scores, **regression_report(texts, predicted)}


def predicted_probabilities(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: LabeledTexts, rows: int = 128
) -> np.ndarray:
    """Return the probabilities (n, C) that a classifier gives to n texts, read as ``text_logits`` does."""
    return class_probabilities(text_logits(model, tokenizer, texts, rows)).numpy()


def text_logits(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: LabeledTexts, rows: int
) -> torch.Tensor:
    """Return the logits (n, C) of n texts, read with the settings stored by ``set_reading``, otherwise cut to the
    maximum length of the tokenizer or the model."""
    stored = stored_settings(model)
    reading = {name: stored[name] for name in READING if name in stored}
    if "max_length" not in reading:  # stored by nobody, or by others
        positions = max_positions(model.config)
        reading = {"max_length": min(tokenizer.model_max_length, positions or tokenizer.model_max_length)}
    return predict_logits(model, WindowedTexts(texts, tokenizer, **reading), WindowCollator(tokenizer), rows)


def _classifier_scores(logits: np.ndarray, texts: LabeledTexts, threshold: float | None) -> dict[str, Any]:
    output = class_predictions(logits, [item.label for item in texts])
    results = class_results(output)
    return {
        **(output.metrics or {}),
        **classification_report(texts, results, ClassifierEvaluationConfig()),
        **({} if threshold is None else {"abstaining": abstaining_scores(results, threshold)}),
    }


@torch.inference_mode()
def classify(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str],
    labels: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Classify a text, or a pair of texts, cut to the tokenizer's maximum length, or predict its number.

    Args:
        model: a classifier or a regression in evaluation mode.
        tokenizer: its tokenizer.
        texts: one text, or the two texts of a pair.
        labels: names of the classes; by default, those in the model's configuration.

    Returns:
        ``texts``, and the predicted ``label`` with its ``probability``, the predicted ``number``, or the predicted
        ``labels`` with the ``probabilities`` of all.
    """
    inputs = tokenizer(*texts, truncation=True, return_tensors="pt").to(model.device)
    logits = model(**inputs).logits.float()
    if is_regression(model):
        return {"texts": list(texts), "number": round(float(logits), 4)}
    if has_several_labels(model):
        several = label_probabilities(logits.cpu().numpy())[0]
        names = class_names(model)
        return {
            "texts": list(texts),
            "labels": [names[i] for i in np.flatnonzero(several >= stored_thresholds(model))],
            "probabilities": {name: round(float(each), 4) for name, each in zip(names, several, strict=True)},
        }
    probabilities = class_probabilities(logits)[0]
    best = int(probabilities.argmax())
    label = model.config.id2label[best] if labels is None else labels[best]
    return {"texts": list(texts), "label": label, "probability": round(float(probabilities[best]), 4)}


def report_lines(scores: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Format scores, one per line; scores of slices follow the name of the slice."""
    lines = []
    width = max([22, *map(len, scores)]) + 2 - len(prefix)
    for name, value in scores.items():
        if isinstance(value, Mapping):
            lines += [f"{prefix}{name}", *report_lines(value, prefix + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            rows = ("  ".join(f"{key} {_shown(each)}" for key, each in row.items()) for row in value)
            lines += [f"{prefix}{name}", *(f"{prefix}  {row}" for row in rows)]
        else:
            lines.append(f"{prefix}{name:{width}}{_shown(value)}")
    return lines


def _shown(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


__all__ = [
    "classify",
    "evaluate_classifier",
    "evaluate_folder",
    "evaluate_regression",
    "evaluate_sentence_encoder",
    "evaluate_translator",
    "has_several_labels",
    "is_regression",
    "predict_classes",
    "predict_logits",
    "report_lines",
    "set_answering",
    "set_decision",
    "set_reading",
]

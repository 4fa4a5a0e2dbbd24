"""Measure the scores of a model again: the data are read here, and the sandbox computes outputs without the answers.

The sandbox gets the texts of each part that was evaluated, and sends translations, or the logits of classes. Labels and
reference translations stay in this process, which computes the scores and compares them with ``results.json``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ..clean_process import MEASURED
from ..data.parts import PARTS
from ..data.rows import is_local
from ..errors import UserError
from ..extras import require
from ..resources import load_recipe, resource
from .clean_run import CleanRun, Result
from .code_findings import printable
from .judging import Check

AS_RECORDED = "as recorded, not measured again"
_RECIPES = ("classification", "translation")
_MOST = 1_000_000  # generated examples
_PACKAGES = ("torch", "transformers", "tokenizers")  # whose versions can change an output
# Half of the last digit that cards show.
_DIGITS = {"bleu": 0.005, "bleu_lowercase": 0.005, "chrf": 0.005}
_SHOWN = 0.00005 + 1e-9
# With other versions or on another kind of device, outputs differ by rounding, and a few predictions are others.
# For shares, add 1 / n for each of n examples; the difference of a likelihood or an error is relative.
_RELATIVE = ("nats_per_example", "mean_squared_error")
_TOLERANCES = {
    **dict.fromkeys(("accuracy", "exact_match", "f1", "pearson", "spearman"), 0.005),
    **dict.fromkeys(("bleu", "bleu_lowercase", "chrf"), 0.5),
    **dict.fromkeys(_RELATIVE, 0.02),
}


@dataclass(frozen=True)
class Measurement:
    """What is to be measured again.

    Attributes:
        results: content of ``results.json``.
        parts: the examples of each part that was evaluated, by name.
        items: those of them whose outputs are computed.
        order: what the process in the sandbox computes; see ``hfattn.evaluation.outputs_of_texts``.
    """

    results: Mapping[str, Any]
    parts: Mapping[str, Any]
    items: Mapping[str, Sequence[Any]]
    order: Mapping[str, Any]


def plan_measurement(results: Mapping[str, Any], places: Sequence[str]) -> Measurement | str:
    """Read the data on which the scores of a run were measured.

    Generated data are drawn again. Files and datasets on the Hub are read only if ``places`` names them, because
    ``results.json`` may be that of an attacker.

    Args:
        results: content of ``results.json``.
        places: a dataset, as in ``data.dataset``; and ``validation=FILE`` and ``test=FILE`` for parts with a file of
            their own.

    Returns:
        The measurement, or why the scores stay as they are recorded.

    Raises:
        UserError: the data cannot be read, a package for that is missing, or the configuration in ``results.json`` is
            none of the recipe.
        AssertionError: the data are not those of the run.
    """
    require("recipes", "datasets", "sacrebleu", "sklearn")
    name, metrics = results.get("recipe"), results.get("metrics")
    if name not in _RECIPES or not metrics:
        return f"{AS_RECORDED}: only the scores of {' and '.join(_RECIPES)} can be"
    recipe = load_recipe(resource("recipes", str(name), "train.py"))
    data = _data(recipe, results["configuration"]["data"], places)
    if isinstance(data, str):
        return data
    seed, recorded = results["seed"], results["data"]["parts"]
    read = data.read_parts(seed)
    for part in metrics.keys() - {"train"}:
        there = recorded[part]["sha256"]
        found = read[part].fingerprint if part in read else "none"
        assert found == there, (
            f"the part {printable(part, 40)} has the SHA-256 {found[:12]}, and {there[:12]} is recorded; give the data "
            "of the training with --data"
        )
    parts = {part: read[part] for part in metrics if part != "train"}
    if name == "classification":
        items = {part: texts.items for part, texts in parts.items()}
        inputs = {part: [list(texts.texts(item)) for item in texts] for part, texts in parts.items()}
        return Measurement(results, parts, items, {"texts": inputs, "searches": None, "rows": 128})
    configuration = results["configuration"]
    evaluation = configuration["evaluation"]
    items = {
        part: [pairs.items[i] for i in recipe.choose(len(pairs), evaluation["examples"], seed)]
        for part, pairs in parts.items()
    }
    greedy = {"greedy": {"num_beams": 1}}
    beam = {"beam": {option: evaluation[option] for option in ("num_beams", "length_penalty")}}
    order = {
        "texts": {part: [pair.source for pair in pairs] for part, pairs in items.items()},
        "searches": {part: greedy | (beam if "beam" in metrics[part] else {}) for part in parts},
        "rows": configuration["training"].get("per_device_eval_batch_size", 8),  # as in training: the same rounding
    }
    return Measurement(results, parts, items, order)


def _data(recipe: Any, recorded: Mapping[str, Any], places: Sequence[str]) -> Any:
    """Return the section ``data`` of a recipe with the places given, or why the data cannot be read."""
    from ..training.config import build_section  # the recipes import this package

    data = build_section(recipe.DataConfig, dict(recorded), "data.")
    if data.dataset in data.generated:
        if places:
            raise UserError(f"The data of this run are generated ({data.dataset}); leave --data out.")
        if max(data.examples, data.evaluation_examples) > _MOST:
            raise UserError(f"results.json says that more than {_MOST:,} examples were generated; copy the file again.")
        return data
    given: dict[str, str] = {}
    for place in places:
        part, equals, file = place.partition("=")
        given |= {part: file} if equals and part in PARTS[1:] else {"dataset": place}
    if "dataset" not in given:
        return f"{AS_RECORDED}: the data are {printable(repr(data.dataset), 80)}; give them with --data"
    for part in PARTS[1:]:
        named = recorded.get(part)
        own_file = named is not None and is_local(given["dataset"]) and recorded.get("part_column") is None
        if own_file and part not in given:
            return f"{AS_RECORDED}: the part {part} is {printable(repr(named), 80)}; give it with --data {part}=FILE"
    return build_section(recipe.DataConfig, {**recorded, **given}, "data.")


def judge_measurement(done: CleanRun, measurement: Measurement) -> Check:
    """Compare the scores of what the sandbox has sent with those of ``results.json``."""
    try:
        result = done.results.get(MEASURED)
        assert result is not None, done.failure or "the process sent no result"
        assert "error" not in result.facts, str(result.facts["error"])
        detail = _compare(measurement, result)
    except AssertionError as error:
        return Check(MEASURED, False, printable(str(error), 400), done.where())
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # results.json lacks something
        reason = f"{type(error).__name__}: {error}; copy results.json again"
        return Check(MEASURED, False, printable(reason, 400), done.where())
    return Check(MEASURED, True, detail, done.where())


def _compare(measurement: Measurement, result: Result) -> str:
    results = measurement.results
    scores_of = scores_of_translations if results["recipe"] == "translation" else scores_of_logits
    same = _same_kind(results)
    number = 0
    for part in measurement.parts:
        recorded = results["metrics"][part]
        then = dict(_flat(recorded))
        for path, now in _flat(scores_of(measurement, part, result)):
            allowed = _allowed(path, now, recorded, same)
            if allowed is None:
                continue
            number += 1
            place = ".".join(("metrics", part, *path))
            assert path in then, f"{place} is {now:.6g}, and not recorded; copy results.json again"
            assert abs(now - then[path]) <= allowed, (
                f"{place} is {now:.6g}, and {then[path]:.6g} is recorded (tolerance {allowed:.2g}); these are not the "
                "scores of this model, so copy results.json and the weights from the run again"
            )
    how = "to the shown digits" if same else "within the tolerance for other versions or devices"
    return f"{number:,} scores of {', '.join(measurement.parts)} agree {how}"


def _same_kind(results: Mapping[str, Any]) -> bool:
    """Return whether versions and kind of device are those of the run; the sandbox computes on the CPU, in float32."""
    versions, training = results["versions"], results["configuration"].get("training", {})
    reduced = training.get("bf16") or training.get("fp16")
    return not reduced and "gpu" not in results["hardware"] and all(versions.get(n) == version(n) for n in _PACKAGES)


def _allowed(path: Sequence[str], now: float, recorded: Mapping[str, Any], same: bool) -> float | None:
    """Return the largest difference of a score; None if it is not compared."""
    name = next(step for step in reversed(path) if not step.isdecimal()).removesuffix("_interval")
    if same:
        return _DIGITS.get(name, _SHOWN)
    if name not in _TOLERANCES or path[:-1] not in ((), ("beam",)):
        return None
    if name in _RELATIVE:
        return _TOLERANCES[name] * max(abs(now), 0.01)
    highest = 100 if name in _DIGITS else 1
    return _TOLERANCES[name] + highest / recorded.get("translated", recorded.get("examples", math.inf))


def _flat(scores: Mapping[str, Any], *path: str) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield each number with its path; the items of a list are numbered."""
    for name, value in scores.items():
        if isinstance(value, list):
            value = {str(i): each for i, each in enumerate(value)}
        if isinstance(value, Mapping):
            yield from _flat(value, *path, name)
        elif type(value) in (int, float):
            yield (*path, name), value


def scores_of_translations(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a part by the translations that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not a text for each source.
    """
    from ..metrics import translation_report  # not installed with the extra that verify needs
    from ..reports.translation import exact_match_by_kind

    pairs, sent = measurement.items[part], result.facts.get("translations")
    found = sent.get(part) if isinstance(sent, dict) else None
    scores: dict[str, Any] = {}
    for search in measurement.order["searches"][part]:
        texts = found.get(search) if isinstance(found, dict) else None
        assert isinstance(texts, list), f"the process sent no translations of {part}"
        complete = len(texts) == len(pairs) and all(isinstance(text, str) for text in texts)
        assert complete, f"the process did not send a translation of each source of {part}"
        texts = [text.encode("utf-8", "replace").decode() for text in texts]  # half of a surrogate pair is no character
        report = translation_report([pair.source for pair in pairs], texts, [pair.target for pair in pairs])
        report["translated"] = report.pop("pairs")
        if search == "greedy":
            scores |= {**report, "exact_match_by_kind": exact_match_by_kind(pairs, texts)}
        else:
            del report["translated"]
            scores[search] = report
    return scores


def scores_of_logits(measurement: Measurement, part: str, result: Result) -> dict[str, Any]:
    """Return the scores of a part by the logits that the sandbox has sent, as in ``results.json``.

    Raises:
        AssertionError: these are not finite logits of each text.
    """
    from ..metrics import (
        ClassifierEvaluationConfig,
        RegressionScores,
        class_predictions,
        class_results,
        classification_report,
        regression_report,
    )

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
    output = class_predictions(outputs, [item.label for item in texts])
    slices = ClassifierEvaluationConfig(columns=columns, words=words)
    return {**(output.metrics or {}), **classification_report(texts, class_results(output), slices)}

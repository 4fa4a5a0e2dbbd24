"""Measure the scores of a model again: the data are read here, and the sandbox computes outputs without the answers.

The sandbox gets the texts or images of each part that was evaluated, and sends translations, answers, logits or
features. Labels, reference translations and right answers stay in this process, which computes the scores and compares
them with ``results.json``. A language model is scored in the sandbox, because the text is the right answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from ..clean_process import MEASURED
from ..data.demonstrations import Demonstrations
from ..data.image_texts import text_numbers
from ..data.images import as_base64
from ..data.parts import PARTS, PartsConfig, as_recorded
from ..data.rows import is_local
from ..data.splitting import choose_indices
from ..data.tasks import LIKELIHOOD, TaskConfig
from ..data.text import EMBEDDED, open_text, split_positions
from ..data.text_pairs import PairNumbers
from ..errors import UserError
from ..extras import require
from ..resources import load_recipe, resource
from .clean_run import CleanRun, Result
from .code_findings import printable
from .judging import Check
from .private_texts import strings, texts_of

AS_RECORDED = "as recorded, not measured again"
_MOST = 1_000_000  # generated examples
_PACKAGES = ("torch", "transformers", "tokenizers")  # whose versions can change an output


@dataclass(frozen=True)
class Measurement:
    """What is to be measured again.

    Attributes:
        results: content of ``results.json``.
        parts: the examples of each part that was evaluated, by name.
        items: those of them whose outputs are computed.
        order: what the process in the sandbox computes; see ``hfattn.measured_outputs.outputs_of_texts``.
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
            their own; of a mixture of tasks, ``TASK=DATASET`` and ``TASK.test=FILE``.

    Returns:
        The measurement, or why the scores stay as they are recorded.

    Raises:
        UserError: the data cannot be read, a package for that is missing, or the configuration in ``results.json`` is
            none of the recipe.
        AssertionError: the data are not those of the run.
    """
    require("recipes", "datasets", "sacrebleu", "sklearn")
    name, metrics = results.get("recipe"), results.get("metrics")
    if name not in _ORDERS or not metrics:
        return f"{AS_RECORDED}: only the scores of {', '.join(_ORDERS)} can be"
    recipe = load_recipe(resource("recipes", str(name), "train.py"))
    data = recorded_data(recipe, results["configuration"]["data"], places)
    if isinstance(data, str):
        return f"{AS_RECORDED}: {data}"
    parts = read_recorded(data, results)
    items = {part: getattr(examples, "items", examples) for part, examples in parts.items()}
    if name == "translation":
        number = results["configuration"]["evaluation"]["examples"]
        chosen = {part: choose_indices(len(items[part]), number, results["seed"]) for part in parts}
        items = {part: [items[part][i] for i in places] for part, places in chosen.items()}
    if name == "text_to_text":
        items = {part: _written_items(results, data, examples) for part, examples in items.items()}
        if not any(items.values()):
            return f"{AS_RECORDED}: its tasks are scored by likelihood, which needs the right answers"
    if name == "self_supervised":
        items["train"] = _bank(results, data)
    # As in training: the same rounding.
    rows = results["configuration"]["training"].get("per_device_eval_batch_size", 8)
    return Measurement(results, parts, items, {"rows": rows, **_ORDERS[name](results, data, parts, items)})


def plan_texts(results: Mapping[str, Any], places: Sequence[str]) -> tuple[Iterable[str], list[str]] | str:
    """Read the texts that a run folder must not quote, and those of its configuration, which it may.

    Args:
        results, places: as in ``plan_measurement``.

    Returns:
        The texts of all parts and those of the section ``sample``, or why the data cannot be read.

    Raises:
        UserError: the data cannot be read.
        AssertionError: the data are not those of the run.
    """
    recipe = load_recipe(resource("recipes", str(results["recipe"]), "train.py"))
    data = recorded_data(recipe, results["configuration"]["data"], places)
    if isinstance(data, str):
        return data
    if not hasattr(data, "read_parts"):
        return "the data are one text, which is not compared"
    parts = data.read_parts(results["seed"])
    for part, recorded in results["data"]["parts"].items():
        if part in parts and part != "train":
            require_hash(f"the part {printable(part, 40)}", parts[part].fingerprint, recorded)
    allowed = strings(results["configuration"].get("sample", {}))
    return texts_of(parts), list(allowed) if results["publish"]["texts"] == "own_words" else []


def _logits(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    texts = {part: [list(examples.texts(item)) for item in examples] for part, examples in parts.items()}
    return {"kind": "logits", "texts": texts, "rows": 128}


def _files(parts: Mapping[str, Any]) -> dict[str, list[str]]:
    return {part: [as_base64(item.image) for item in images] for part, images in parts.items()}


def _images(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    return {"kind": "image_logits", "images": _files(parts), "background": data.background}


def _choices(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    pairs = {part: [[item.context, choice] for item in items[part] for choice in item.choices] for part in parts}
    return {"kind": "logits", "texts": pairs}


def _images_and_texts(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    texts = {part: text_numbers(examples)[0] for part, examples in parts.items()}
    return {"kind": "embeddings", "images": _files(items), "texts": texts, "background": data.background}


def _sentences(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    return {"kind": "sentence_vectors", "texts": {part: PairNumbers(pairs).texts for part, pairs in parts.items()}}


def _translations(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    evaluation, greedy = results["configuration"]["evaluation"], {"greedy": {"num_beams": 1}}
    beam = {"beam": {option: evaluation[option] for option in ("num_beams", "length_penalty")}}
    return {
        "kind": "translations",
        "texts": {part: [pair.source for pair in items[part]] for part in parts},
        "searches": {part: greedy | (beam if "beam" in results["metrics"][part] else {}) for part in parts},
    }


def _written_items(results: Any, data: Any, pairs: Sequence[Any]) -> list[Any]:
    """Return the pairs whose outputs are scored, those that the run has drawn of each task."""
    number, chosen = results["configuration"]["evaluation"]["examples"], []
    for task, section in data.sections.items():
        if section.metric != LIKELIHOOD:
            of_task = [pair for pair in pairs if pair.kind == task]
            chosen += [of_task[i] for i in choose_indices(len(of_task), number, results["seed"])]
    return chosen


def _tasks(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    from ..training.tasks_config import TasksEvaluationConfig  # the recipes import this package

    evaluation = TasksEvaluationConfig(**results["configuration"]["evaluation"])
    metrics = {name: section.metric for name, section in data.sections.items()}
    search_of = {task: search for tasks, search in evaluation.searches(metrics) for task in tasks}
    texts: dict[str, list[str]] = {}
    searches: dict[str, dict[str, Any]] = {}
    for part, pairs in items.items():
        for pair in pairs:
            place = f"{part}/{pair.kind}"
            texts.setdefault(place, []).append(pair.source)
            searches[place] = {"written": search_of[pair.kind]}
    return {"kind": "translations", "texts": texts, "searches": searches}


def _characters(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    texts = {part: [text] for part, text in parts.items()}
    streams = _streams(results, data)
    return {"kind": "likelihoods", "texts": texts, "unit": "character", "streams": streams, **_windows(data, None)}


def _streams(results: Any, data: Any) -> int | None:
    """Return the number of parts of the text that a model with a state has read side by side."""
    rows = results["configuration"]["training"].get("per_device_eval_batch_size", 8)
    return rows * results["hardware"].get("processes", 1) if data.stateful else None


def _tokens(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    if isinstance(next(iter(parts.values())), Demonstrations):
        pairs = {part: [[item.prompt, item.completion, item.tools] for item in items[part]] for part in parts}
        return {"kind": "completions", "texts": pairs, "unit": "token", "max_length": data.max_length}
    texts = {part: [item.text for item in items[part]] for part in parts}
    windows = _windows(data, results["configuration"]["evaluation"]["stride"])
    streams = _streams(results, data)
    return {"kind": "likelihoods", "texts": texts, "unit": "token", "streams": streams, **windows}


def _windows(data: Any, stride: int | None) -> dict[str, Any]:
    return {"window": data.max_length, "stride": stride or data.max_length}


def _tags(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    options = {"max_length": data.max_length, "too_long": data.too_long, "overlap": data.overlap}
    return {"kind": "tags", "texts": {part: [list(item.words) for item in items[part]] for part in parts},
            "options": options}  # fmt: skip


def _answers(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    evaluation = results["configuration"]["evaluation"]
    options = {name: evaluation[name] for name in ("n_best", "max_answer_length")}
    options |= {"max_length": data.max_length, "overlap": data.overlap}
    options["null_threshold"] = evaluation["null_threshold"] if data.unanswerable else None
    texts = {part: [[item.question, item.context] for item in items[part]] for part in parts}
    return {"kind": "answers", "texts": texts, "options": options}


def _features(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    feature = results["model"]["feature"]
    return {"kind": "features", "images": _files(items), "feature": feature, "background": data.background}


def _bank(results: Mapping[str, Any], data: Any) -> Any:
    """Return the training images with which others are compared by their features."""
    train = data.read_parts(results["seed"])["train"]
    require_hash("the part train", train.fingerprint, results["data"]["parts"]["train"])
    return train.sample(results["configuration"]["evaluation"]["bank_size"], results["seed"])


def _captions(results: Any, data: Any, parts: Any, items: Any) -> dict[str, Any]:
    search = next(iter(results["metrics"].values()))["search"]  # chosen on validation, for all parts
    beams = results["configuration"]["evaluation"]["num_beams"] if search == "beam" else 1
    return {"kind": "captions", "images": _files(items), "background": data.background, "num_beams": beams}


_ORDERS = {
    **dict.fromkeys(("classification", "distillation"), _logits),
    "image_text": _images_and_texts,
    "sentence_encoder": _sentences,
    "image_classification": _images,
    "multiple_choice": _choices,
    "translation": _translations,
    "text_to_text": _tasks,
    "image_captioning": _captions,
    "char_lm": _characters,
    "causal_lm": _tokens,
    "token_classification": _tags,
    "question_answering": _answers,
    "self_supervised": _features,
}


def recorded_data(recipe: Any, recorded: Mapping[str, Any], places: Sequence[str]) -> Any:
    """Return the section ``data`` of a recipe with the places given, or why the data cannot be read.

    Args:
        recipe: the module of the recipe.
        recorded: the section ``data`` in the configuration of a run.
        places: as in ``plan_measurement``.

    Raises:
        UserError: the recorded section is none of the recipe, asks for too many generated examples, or its data are
            part of the package and a place is given.
    """
    if hasattr(recipe.DataConfig, "read_tasks"):
        return _recorded_tasks(recipe.DataConfig, recorded, places)
    return _recorded_section(recipe.DataConfig, recorded, places)


def _recorded_tasks(config: Any, recorded: Mapping[str, Any], places: Sequence[str]) -> Any:
    """Return the section ``data`` of a mixture with the places given, or why the data cannot be read."""
    from ..training.config import build_section  # the recipes import this package

    names = recorded.get("only") or list(recorded["tasks"])
    of_tasks: dict[str, list[str]] = {name: [] for name in names}
    for place in places:
        left, _, file = place.partition("=")
        name, _, part = left.partition(".")
        if not file or name not in of_tasks or part not in ("", *PARTS[1:]):
            raise UserError(
                f"--data {place} names no task of the run ({', '.join(map(printable, names))}); write TASK=DATASET or "
                "TASK.test=FILE."
            )
        of_tasks[name].append(f"{part}={file}" if part else file)
    tasks: dict[str, Any] = {}
    for name, given in of_tasks.items():
        section = _recorded_section(TaskConfig, recorded["tasks"][name], given, printable(name))
        if isinstance(section, str):
            return section
        tasks[name] = asdict(section)
    return build_section(config, {**recorded, "tasks": tasks}, "data.")


def _recorded_section(config: Any, recorded: Mapping[str, Any], places: Sequence[str], task: str = "") -> Any:
    """Return a section that names a dataset with the places given, or why it cannot be read.

    Args:
        config: class of the section.
        recorded, places: as in ``recorded_data``.
        task: name of the task of a mixture.
    """
    from ..training.config import build_section  # the recipes import this package

    section = f"data.tasks.{task}." if task else "data."
    if issubclass(config, PartsConfig) and not task:  # of a task, fields that have their default are not recorded
        recorded = as_recorded(recorded)
    data = build_section(config, dict(recorded), section)
    if data.dataset in (EMBEDDED, *getattr(data, "generated", ())):
        if places:
            what, option = (f"task {task}", f"--data {task}=") if task else ("this run", "--data")
            raise UserError(f"The data of {what} are part of hfattn ({data.dataset}); leave {option} out.")
        if max(getattr(data, "examples", 0), getattr(data, "evaluation_examples", 0)) > _MOST:
            raise UserError(f"results.json says that more than {_MOST:,} examples were generated; copy the file again.")
        return data
    given: dict[str, str] = {}
    for place in places:
        part, equals, file = place.partition("=")
        given |= {part: file} if equals and part in PARTS[1:] else {"dataset": place}
    if "dataset" not in given:
        what, option = (f"the data of task {task}", f"--data {task}=DATASET") if task else ("the data", "--data")
        return f"{what} are {printable(repr(data.dataset), 80)}; give them with {option}"
    for part in PARTS[1:]:
        named = recorded.get(part)
        own_file = named is not None and is_local(given["dataset"]) and recorded.get("part_column") is None
        if own_file and part not in given:
            place = f"{task}.{part}" if task else part
            return f"the part {place} is {printable(repr(named), 80)}; give it with --data {place}=FILE"
    return build_section(config, {**recorded, **given}, section)


def read_recorded(data: Any, results: Mapping[str, Any]) -> dict[str, Any]:
    """Read the parts of the data of a run that it was evaluated on, and check that they are those of the run.

    Args:
        data: the section ``data`` that ``recorded_data`` has returned.
        results: content of ``results.json``.

    Returns:
        The examples of each part; of a recipe that reads one text, the characters of each.

    Raises:
        UserError: the data cannot be read.
        AssertionError: the data are not those of the run.
    """
    if not hasattr(data, "read_parts"):
        text = open_text(
            data.dataset, text_column=data.text_column, config=data.config, split=data.hub_split, revision=data.revision
        )
        require_hash("the text", text.fingerprint, results["data"])
        places = dict(zip(PARTS, split_positions(len(text), data.split), strict=False))
        return {part: "".join(text.part(places[part]).pieces()) for part in results["metrics"]}
    read, recorded = data.read_parts(results["seed"]), results["data"]["parts"]
    for part in results["metrics"].keys() - {"train"}:
        require_hash(
            f"the part {printable(part, 40)}", read[part].fingerprint if part in read else "none", recorded[part]
        )
    return {part: read[part] for part in results["metrics"] if part != "train"}


def require_hash(what: str, found: str, recorded: Mapping[str, Any]) -> None:
    """Raise an AssertionError if data do not have the recorded SHA-256."""
    there = recorded["sha256"]
    assert found == there, (
        f"{what} has the SHA-256 {found[:12]}, and {there[:12]} is recorded; give the data of the training with --data "
        f"({EMBEDDED} is the documentation of the installed Python: use the recorded one)"
    )


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
    from ..training.tolerances import numbers, tolerance_of_rounding
    from .measured_scores import SCORES  # not installed with the extra that verify needs

    results = measurement.results
    scores_of = SCORES[results["recipe"]]
    same = _same_kind(results)
    number = 0
    for part in measurement.parts:
        then, scores = dict(numbers(results["metrics"][part])), scores_of(measurement, part, result)
        for path, now in numbers(scores):
            beside: Any = scores
            for name in path[:-1]:
                beside = beside.get(name, {}) if isinstance(beside, Mapping) else {}
            allowed = tolerance_of_rounding(path, now, beside, same)
            if allowed is None:
                continue
            number += 1
            place = ".".join(("metrics", part, *path))
            assert path in then, f"{place} is {now:.6g}, and not recorded; copy results.json again"
            assert abs(now - then[path]) <= allowed.width, (
                f"{place} is {now:.6g}, and {then[path]:.6g} is recorded (tolerance {allowed.width:.2g}); these are "
                "not the scores of this model, so copy results.json and the weights from the run again"
            )
    how = "to the shown digits" if same else "within the tolerance for other versions or devices"
    return f"{number:,} scores of {', '.join(measurement.parts)} agree {how}"


def _same_kind(results: Mapping[str, Any]) -> bool:
    """Return whether versions and kind of device are those of the run; the sandbox computes on the CPU, in float32."""
    versions, fields = results["versions"], results["configuration"].get("training", {})
    # Runs of earlier versions do not say what bf16: auto was.
    unsaid = "bfloat16" if fields.get("bf16") or fields.get("fp16") else "float32"
    precision = results["training"].get("precision", unsaid)
    recorded = precision == "float32" and "gpu" not in results["hardware"]
    return recorded and all(versions.get(name) == version(name) for name in _PACKAGES)

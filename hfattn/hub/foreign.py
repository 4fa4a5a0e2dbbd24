"""Describe a folder that hfattn did not make: of transformers' Trainer, of peft, or written by a person.

What the folder says about its model becomes ``results.json``, from which a card is rendered as that of a run is. A card
that somebody wrote is kept. The outputs of the model are computed in a sandbox and stored as fingerprints.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from huggingface_hub import metadata_save
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..clean_process import (
    ADAPTER,
    FINGERPRINTS,
    ROUND_TRIP,
    adapted_class,
    auto_classes,
    own_labels,
    reads_text,
)
from ..errors import UserError
from ..files import read_json_object, write_at_once, write_json
from ..hub_access import is_id
from .card import FOLDER, printed_by_a_sandbox, read_results, render_card
from .clean_run import CleanRun, base_folder, run_folder
from .data_files import check_data_files
from .judging import computed
from .manifest import CARD, TRAINER_STATE, check_regular, is_listed, repository_files, write_manifest
from .stated import card_data, check_languages, check_license, with_statements

_CONFIG = "config.json"
_BY = "hfattn card"  # who has computed the fingerprints; those of a training are kept
# The task of each Auto class, of which an architecture may have several: for texts, and for pictures.
_TASKS = {
    "AutoModelForCausalLM": ("text-generation", None),
    "AutoModelForMaskedLM": ("fill-mask", None),
    "AutoModelForSequenceClassification": ("text-classification", None),
    "AutoModelForTokenClassification": ("token-classification", None),
    "AutoModelForQuestionAnswering": ("question-answering", None),
    "AutoModelForSeq2SeqLM": ("text2text-generation", None),
    "AutoModelForImageClassification": (None, "image-classification"),
    "AutoModel": ("feature-extraction", "image-feature-extraction"),
}
_TEXTS = ("The cat sat on the mat.", "It rained all morning, so we took the bus into town.")
_UNKNOWN = "\u2603 \U0001d465 \u0b95\u0bbf \ue000"  # symbols that few vocabularies have
_LONG = 300  # repetitions of a text, longer than what is read
# What a card should state beside the license and the language.
_METADATA = ("license", "language", "pipeline_tag", "library_name", "base_model")


def is_foreign(folder: Path) -> bool:
    """Return whether a model folder has no results of a recipe of hfattn, and did not have any.

    Raises:
        UserError: ``results.json`` cannot be read.
    """
    path = folder / "results.json"
    if not path.is_file():
        return folder.is_dir() and not ((folder / "baseline.json").is_file() or is_listed(folder, path.name))
    return read_json_object(path).get("recipe") == FOLDER


def task_of(folder: Path, original: Path | None = None) -> str:
    """Return the task of a model, as the Hub names it, from its configuration; no code is run.

    Args:
        folder: the folder of a model or of an adapter.
        original: the folder that ``folder`` is a copy of, which errors name.

    Raises:
        UserError: the configuration cannot be read; the folder has neither a tokenizer nor an image processor; or its
            model is of another kind.
    """
    original = original or folder
    if (folder / ADAPTER).is_file():
        adapter = read_json_object(folder / ADAPTER)
        config = _config(base_folder(adapter, original), original)
        names = [adapted_class(adapter)]
    else:
        config = _config(folder, original)
        try:
            names = auto_classes(config)
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"The task of {original} is unknown: {error}; correct its config.json.") from error
    if reads_text(folder) or (folder / ADAPTER).is_file():
        place = 0
    elif (folder / "preprocessor_config.json").is_file():
        place = 1
    else:
        raise UserError(f"{original} has neither a tokenizer nor an image processor; save it beside the weights.")
    tasks = [_TASKS[name][place] for name in names if name in _TASKS]
    found = next((task for task in tasks if task is not None), None)
    if found is None:
        known = ", ".join(sorted(task for pair in _TASKS.values() for task in pair if task))
        raise UserError(f"{original} has a model for {names[0]}; the tasks of hfattn are {known}.")
    if modules(folder) and found == "feature-extraction":
        return "sentence-similarity"
    return found


def modules(folder: Path) -> bool:
    """Return whether a folder is that of a model of sentence-transformers."""
    return (folder / "modules.json").is_file()


def _config(folder: Path, original: Path) -> SimpleNamespace:
    config = read_json_object(folder / _CONFIG)
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not all(isinstance(each, str) for each in architectures):
        architectures = None
    auto_map = config.get("auto_map")
    named = isinstance(auto_map, dict) and all(isinstance(each, str) for each in auto_map.values())
    return SimpleNamespace(
        architectures=architectures,
        auto_map=auto_map if named else None,
        model_type=str(config.get("model_type")),
        written_by=config.get("transformers_version"),
        name=config.get("_name_or_path"),
    )


def describe(
    folder: Path,
    license: str | None = None,
    languages: Sequence[str] = (),
    *,
    rewrite: bool = False,
    trust: bool = False,
) -> str:
    """Write fingerprints, a card and a manifest into the folder of a model that hfattn did not make.

    Nothing is written unless all of it can be computed.

    Args:
        folder: the folder of a model or of an adapter.
        license, languages: what the card states; see ``state``.
        rewrite: whether to replace a ``README.md`` that hfattn did not write.
        trust: whether code of the folder may run where the kernel has no sandbox.

    Returns:
        What was written and kept, as text.

    Raises:
        UserError: the folder has no model that can be loaded, or one of its files cannot be read.
    """
    check_regular(folder)
    names = repository_files(folder)
    if not (folder / _CONFIG).is_file() and not (folder / ADAPTER).is_file():
        raise UserError(f"{folder} has no config.json; save the model with save_pretrained.")
    if not any(name.endswith(".safetensors") for name in names):
        raise UserError(f"{folder} has no weights in safetensors; save the model with save_pretrained.")
    try:
        check_data_files(folder, names)
    except AssertionError as error:
        raise UserError(f"{folder} has no model that can be verified: {error}.") from None
    license = None if license is None else check_license(license)
    languages = check_languages(languages)
    there = read_results(folder) if (folder / "results.json").is_file() else {}
    keeps = (folder / CARD).is_file() and not there and not rewrite
    task = task_of(folder)
    facts = _facts(folder, task)
    fingerprints = folder / FINGERPRINTS
    done, batches = _run(folder, names, task, trust)
    try:
        facts["model"]["parameters"], tensors = computed(done)
    except AssertionError as error:
        raise UserError(f"{folder} has no model that can be verified: {str(error).rstrip('.')}.") from None
    results = {**facts, "configuration": there.get("configuration", {})}
    results = with_statements(results, license, languages)
    if keeps:
        data = card_data(folder / CARD)
        said = {"license": license, "language": languages}
        data |= {name: value for name, value in said.items() if value}
        missing = [name for name in _METADATA if not data.get(name) and _known(name, results, task) is not None]
        suggested = [f"{name}{_known(name, results, task)}" for name in missing]
    else:
        card = render_card(folder, results, printed_by_a_sandbox(folder, trust, []))
    if not _is_of_training(fingerprints):
        metadata = {"texts": json.dumps(batches.pop("")), "more": json.dumps(batches)}
        save_file(tensors, fingerprints, {"format": "pt", "by": _BY, **metadata})
    if keeps:
        if license or languages:
            metadata_save(folder / CARD, data)
    else:
        write_json(folder / "results.json", results)
        write_at_once(folder / CARD, str(card))
    write_manifest(folder)
    lines = [f"Task: {task}"]
    if keeps:
        lines.append(f"Kept: {folder / CARD}; --rewrite replaces it.")
        if suggested:
            lines.append(f"Its metadata do not state: {', '.join(suggested)}")
    written = [FINGERPRINTS, *([] if keeps else ["results.json", CARD])]
    lines.append(f"Written: {', '.join(written)} and manifest.json in {folder} [{done.where()}]")
    return "\n".join(lines)


def _known(name: str, results: Mapping[str, Any], task: str) -> str | None:
    """Return the value that a field of a card's metadata should have, in parentheses; None if it needs none."""
    model = results["model"]
    values = {"license": "", "language": "", "pipeline_tag": task, "library_name": model["library"]}
    if name == "base_model" and model["base_model"] is None:
        return None
    if name == "language" and task.startswith("image"):
        return None
    value = values.get(name, model["base_model"])
    return f" ({value})" if value else ""


def _facts(folder: Path, task: str) -> dict[str, Any]:
    """Return what the configurations and the Trainer's state say, in the fields of ``results.json``."""
    adapter = read_json_object(folder / ADAPTER) if (folder / ADAPTER).is_file() else None
    config = _config(folder if adapter is None else base_folder(adapter, folder), folder)
    base = config.name if adapter is None else adapter["base_model_name_or_path"]
    versions = {}
    if adapter is None:
        versions["transformers"] = config.written_by
    else:
        versions["peft"] = adapter.get("peft_version")
    name = folder.resolve().name
    return {
        "recipe": FOLDER,
        "config": name,
        "task": task,
        "data": {"name": name},
        "model": {
            "model_type": config.model_type,
            "class": (config.architectures or ["not stated"])[0],
            "base_model": base if isinstance(base, str) and "/" in base and is_id(base) else None,
            "adapter": None if adapter is None else {key: adapter.get(key) for key in ("peft_type", "r", "lora_alpha")},
            "own_labels": None if adapter is None else _own_labels(folder, base_folder(adapter, folder)),
            "library": "peft"
            if adapter is not None
            else "sentence-transformers"
            if modules(folder)
            else "transformers",
            "needs": (["peft"] if adapter is not None else []) + (["pillow"] if task.startswith("image") else []),
        },
        "metrics": {},
        "example": _TEXTS[0],
        "trainer": trainer_facts(folder),
        "versions": {name: version for name, version in versions.items() if isinstance(version, str)},
    }


def _own_labels(folder: Path, base: Path) -> int | None:
    try:
        return own_labels(folder, base)
    except (AttributeError, LookupError, OSError, RecursionError, TypeError, ValueError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"The weights of the adapter {folder} cannot be read ({reason}); save it with peft.") from None


def trainer_facts(folder: Path) -> dict[str, Any] | None:
    """Return what the state of transformers' Trainer says: steps, epochs, the best score, and the scores by step.

    The state is read in the folder, or in its last checkpoint. ``training_args.bin`` is a pickle and is not read.

    Returns:
        None if there is no state.

    Raises:
        UserError: the state cannot be read, or is not one of the Trainer.
    """
    saved = [path for path in folder.glob(f"checkpoint-*/{TRAINER_STATE}") if path.parent.name[11:].isdecimal()]
    saved.sort(key=lambda path: int(path.parent.name[11:]))
    path = next((path for path in (folder / TRAINER_STATE, *saved[-1:]) if path.is_file()), None)
    if path is None:
        return None
    state = read_json_object(path)
    history = state.get("log_history")
    if not _is_number(state.get("global_step")) or not isinstance(history, list):
        raise UserError(f"{path} is not a state of transformers' Trainer; copy the file again, or remove it.")
    rows: dict[int, dict[str, float]] = {}
    rates = []
    for entry in history:
        if isinstance(entry, dict) and _is_number(entry.get("step")):
            kept = {name: value for name, value in entry.items() if _is_shown(name) and _is_number(value)}
            rows.setdefault(int(entry["step"]), {}).update(kept)
            rates += [entry["learning_rate"]] if _is_number(entry.get("learning_rate")) else []
    scored = {step: row for step, row in rows.items() if any(name.startswith("eval_") for name in row)}
    numbers = ("global_step", "epoch", "max_steps", "num_train_epochs", "train_batch_size", "best_metric")
    return {
        **{name: state[name] for name in numbers if _is_number(state.get(name))},
        "best_step": state["best_global_step"] if _is_number(state.get("best_global_step")) else None,
        "learning_rate": max(rates, default=None),
        "scores": [{"step": step, **row} for step, row in sorted((scored or rows).items()) if row],
    }


def _is_shown(name: str) -> bool:
    speed = name.endswith(("_runtime", "_per_second", "_time"))
    return name == "loss" or (name.startswith("eval_") and not speed)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _run(folder: Path, names: Sequence[str], task: str, trust: bool) -> tuple[CleanRun, dict[str, list[list[str]]]]:
    """Load the model in a sandbox, and compute what is recorded of it."""
    if task.startswith("image"):
        attempts = [{"": [["picture 1"], ["picture 2"]]}]
    else:
        texts = [[text] for text in _TEXTS] if _pads(folder) else [[_TEXTS[0]]]
        more = {"longest": [[" ".join([_TEXTS[0]] * _LONG)]], "empty": [[""]], "unknown": [[_UNKNOWN]]}
        # A tokenizer without a token for unknown symbols may refuse the later texts.
        attempts = [{"": texts, **more}, {"": texts}]
    for batches in attempts:
        order = {"hides_hfattn": True, "loads": True, "batches": batches, "pipeline": None, "card_code": None}
        done = run_folder(folder, names, order, known=True, trust=trust)
        encoded = done.results.get(ROUND_TRIP)
        if encoded is None or "error" not in encoded.facts:
            break
    return done, batches


def _pads(folder: Path) -> bool:
    path = folder / "tokenizer_config.json"
    return path.is_file() and read_json_object(path).get("pad_token") is not None


def _is_of_training(path: Path) -> bool:
    """Return whether the fingerprints of a folder were stored where the model was trained."""
    try:
        with safe_open(path, "pt") as file:
            return (file.metadata() or {}).get("by") != _BY
    except (OSError, SafetensorError):  # missing, or broken
        return False

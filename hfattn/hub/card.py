"""Render model cards from the results of a run, with example code that has been executed."""

import contextlib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResult, EvalResultEntry, ModelCard, ModelCardData, eval_result_entries_to_yaml
from huggingface_hub.errors import StrictDataclassError
from jinja2 import UndefinedError

from ..clean_process import run_code
from ..errors import UserError
from ..files import read_json_object, write_at_once
from ..hub_access import is_id
from ..loading import quiet
from ..models.strict_config import OLDEST_TRANSFORMERS
from ..publish_sections import CardConfig
from ..resources import resource
from ..yaml_values import read_yaml
from .architecture import architecture
from .card_facts import dataset_fields, hyperparameters, train_command, where_it_fails
from .clean_run import CleanRun, run_folder
from .code_findings import printable
from .judging import printed_by
from .manifest import repository_files
from .templates import template

FOLDER = "folder"  # the recipe in the results of a folder that was not made by hfattn
UNFINISHED = "unfinished"  # the files that the end of a run could not write, each with the reason
# Types of fields in results.json.
_KINDS = {
    **dict.fromkeys(("recipe", "config", "command", "task"), str),
    **dict.fromkeys(
        (
            "configuration",
            "data",
            "model",
            "metrics",
            "publish",
            "training",
            "hardware",
            "versions",
            "soup",
            UNFINISHED,
        ),
        dict,
    ),
    **dict.fromkeys(("dataset", "selection"), dict | None),
    "seed": int,
}
REQUIREMENTS = "requirements.txt"
EVAL_RESULTS = Path(".eval_results") / "hfattn.yaml"
_MODEL_ID = re.compile(r"^model_id = .*$", re.MULTILINE)
_LOADS = re.compile(r"""(from_pretrained\((?:base, )?model_id|\bmodel=model_id)(?:, revision="[^"\n]*")?""")
# The beginnings of the code and of its output in a card; each ends with the first fence like its own.
_CODE = re.compile(r"^(```)python\n", re.MULTILINE)
_PRINTED = re.compile(r"^It prints:\n\n(````+)text\n", re.MULTILINE)


# Power under load, in watts: the manufacturer's value for a GPU board; for a CPU core, its share of a server's power.
WATTS = {"H200": 700, "H100": 700, "A100": 400, "L40S": 350, "V100": 300, "RTX 4090": 450, "RTX 3090": 350, "T4": 70}
WATTS_OF_A_CORE = 10


def write_card(folder: Path, results: Mapping[str, Any], *, own_run: bool = False, trust: bool = False) -> str | None:
    """Write the card of a model folder, with the packages it needs and its scores for the Hub beside it.

    The files are ``README.md``, ``requirements.txt`` and ``.eval_results/hfattn.yaml``.

    The template is the one of the recipe, in ``model_cards/``. Every number is a field of ``results`` or is read from
    the folder. A missing field is an error if the template requires it; otherwise the card says that it was
    not recorded. The card's code is executed, and its output is included.

    Args:
        folder: the model folder.
        results: content of ``results.json``.
        own_run: whether this process has made the model. The card's code is then executed here, because its code is
            that of the model here, and another process would load the libraries again; otherwise in a sandbox.
        trust: whether code that is not that of hfattn may run where the kernel has no sandbox.

    Returns:
        The sandbox, and whose code ran in it; None if there was none.

    Raises:
        UserError: the results lack a field that the template needs, the code cannot be run, or the kernel has no
            sandbox for code that is neither known nor trusted.
    """
    folder = Path(folder)
    runs: list[CleanRun] = []
    card = render_card(folder, results, _printed_in(folder) if own_run else printed_by_a_sandbox(folder, trust, runs))
    write_at_once(folder / "README.md", str(card))
    write_at_once(folder / REQUIREMENTS, "".join(f"{line}\n" for line in requirements(results)))
    path = folder / EVAL_RESULTS
    if entries := evaluation_entries(_data(card), results):
        path.parent.mkdir(exist_ok=True)
        write_at_once(path, yaml.safe_dump(eval_result_entries_to_yaml(entries), sort_keys=False))
    else:
        path.unlink(missing_ok=True)
    return runs[0].where() if runs else None


def render_card(folder: Path, results: Mapping[str, Any], output_of: Any) -> ModelCard:
    """Return the card of a model folder.

    Args:
        folder: the model folder.
        results: content of ``results.json``.
        output_of: function that runs Python code and returns what it prints.

    Raises:
        UserError: the results lack a field that the template needs.
    """
    try:
        kinds = ("regression", "multi_label")
        kind = next((each for each in kinds if results.get("data", {}).get(each, False)), results["recipe"])
        # Code of others runs in the sandbox only, so the modules of a model of theirs are not known here.
        has_architecture = (folder / "config.json").is_file() and not (
            results["recipe"] == FOLDER and code_files(folder)
        )
        name = "soup" if "soup" in results else kind
        text = template(f"{name}.md", output_of=output_of).render(
            results,
            card=stated(results),
            architecture=architecture(folder) if has_architecture else None,
            code_files=code_files(folder),
            citations=citations(folder, results),
            energy=energy(results),
            train_command=train_command(results) if "command" in results else None,
            hyperparameters=hyperparameters(results.get("configuration", {})),
            fails=where_it_fails(results),
            requirements=requirements(results),
            alone=bool(results.get("model", {}).get("adapter")),  # updates and a head without their base model
            dataset_of=partial(dataset_fields, results, stated(results)["datasets"]),
        )
        text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is not a character
        card = ModelCard(text.replace("\r\n", "\n").replace("\r", "\n"))  # normalize line endings
        data = _data(card)
        for each in data.eval_results or []:
            each.metric_value = round(each.metric_value, 6)
    except UndefinedError as error:
        raise UserError(
            f"results.json in {folder} lacks a field that the card needs ({error}), as those of older versions do; run "
            "the training command again with another --output_dir."
        ) from error
    except UserError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, StrictDataclassError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"results.json in {folder} has a field that the card cannot show ({type(error).__name__}: {reason}); copy "
            "the file again."
        ) from error
    data.metrics = list(dict.fromkeys(each.metric_type for each in data.eval_results or []))
    return card


def _data(card: ModelCard) -> ModelCardData:
    assert isinstance(card.data, ModelCardData)
    return card.data


def evaluation_entries(data: ModelCardData, results: Mapping[str, Any]) -> list[EvalResultEntry]:
    """Return the scores of a card for the Hub's leaderboards; empty if its dataset is no benchmark.

    A benchmark has an ``eval.yaml`` that names tasks, each a split of a configuration. A task has one value, which is
    the first score of that split in the card.
    """
    source = results.get("dataset")
    if source is None:
        return []
    scores: dict[tuple[str, str | None], EvalResult] = {}
    for each in data.eval_results or []:
        scores.setdefault((each.dataset_config or "default", each.dataset_split), each)
    found = []
    for task in source["tasks"]:
        if score := scores.get((task["config"] or "default", task["split"])):
            measured = f"measured by the recipe {results['recipe']} of hfattn, configuration {results['config']}"
            found.append(
                EvalResultEntry(
                    dataset_id=source["id"],
                    task_id=task["id"],
                    value=score.metric_value,
                    dataset_revision=source["commit"],
                    notes=f"{score.metric_name}, {measured}",
                )
            )
    return found


def requirements(results: Mapping[str, Any]) -> list[str]:
    """Return the packages, with their oldest versions, that the code of a card needs."""
    if "versions" in results and results.get("recipe") == "baselines":
        return [f"hfattn[baselines]>={results['versions']['hfattn']}"]
    if results.get("recipe") == FOLDER:
        return ["torch", "transformers", *results["model"]["needs"]]
    model = results.get("model", {})
    needed = [*(["peft"] if model.get("adapter") else []), *model.get("needs", [])]
    return ["torch", f"transformers>={OLDEST_TRANSFORMERS}", *needed]


def with_model_id(text: str, model_id: str, revision: str | None = None) -> str:
    """Return a card whose code loads a model by this path or id on the Hub, at this revision."""
    there = "" if revision is None else f', revision="{revision}"'
    lines = _LOADS.sub(lambda found: f"{found[1]}{there}", text)
    return _MODEL_ID.sub(f'model_id = "{model_id}"', lines)


def card_code(text: str) -> tuple[str | None, str | None]:
    """Return the first Python code of a card, for its folder, and the output that the card shows for it."""
    text = with_model_id(text, ".")
    return _fenced(_CODE, "^{}", text), _fenced(_PRINTED, "^{}$", text)


def card_place(text: str) -> tuple[str, str] | None:
    """Return the id and the revision from which the code of a card loads its model; None if it loads a folder."""
    code = _fenced(_CODE, "^{}", text) or ""
    found = re.search(r'^model_id = "([\w.-]+/[\w.-]+)"$', code, re.MULTILINE)
    if found is None or not is_id(found[1]):
        return None
    revision = re.search(r'(?:from_pretrained\(model_id|\bmodel=model_id), revision="(\w[\w.-]*)"', code)
    return found[1], revision[1] if revision else "main"


def _fenced(beginning: re.Pattern[str], end: str, text: str) -> str | None:
    """Return the first block with this beginning, without searching for an end from each of many beginnings."""
    begun = beginning.search(text)
    ended = begun and re.compile(end.format(begun[1]), re.MULTILINE).search(text, begun.end())
    return text[begun.end() : ended.start()] if begun and ended else None


def code_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each code file in a model folder."""
    found = {}
    for path in sorted(folder.glob("*.py")):
        with path.open("rb") as file:
            found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def stated(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section ``card`` of a configuration, without fields that describe another dataset."""
    configuration = results.get("configuration", {})
    card = CardConfig(**configuration.get("card", {}))
    if card.describes != _described(configuration.get("data", {})):
        card = CardConfig(license=card.license, intended_use=card.intended_use)
    return asdict(card)


def _described(data: Mapping[str, Any]) -> str | None:
    """Return the dataset of a configuration; of a mixture of tasks, those of the tasks, with commas."""
    if "tasks" not in data:
        dataset: str | None = data.get("dataset")
        return dataset
    return ", ".join(dict.fromkeys(data["tasks"][name]["dataset"] for name in data["only"] or data["tasks"]))


def citations(folder: Path, results: Mapping[str, Any]) -> str:
    """Return BibTeX entries of the papers of a model; empty if none is known."""
    known = yaml.safe_load(resource("model_cards", "citations.yaml").read_text(encoding="utf-8"))
    config = folder / "config.json"
    family = read_json_object(config).get("model_type") if config.is_file() else None
    names = (results["model"].get("preset"), results["model"].get("base_model"), family)
    keys: list[str] = next((known["models"][name] for name in names if name in known["models"]), [])
    if results.get("recipe") == "sentence_encoder":
        papers = {"distillation": ["reimers2020"], "cosent": ["li2024"]}
        keys = [*keys, "reimers2019", *papers.get(results["model"]["loss"], [])]
    if "soup" in results:
        keys = [*keys, "wortsman2022"]
    return "\n".join(known["entries"][key].strip() for key in dict.fromkeys(keys))


def energy(results: Mapping[str, Any]) -> str | None:
    """Return an estimate of the energy of training, with its method; None if the power of the hardware is unknown."""
    if "training" not in results:
        return None
    hardware, seconds = results["hardware"], results["training"]["wall_time_seconds"]
    if "gpu" in hardware:
        watts = next((power for name, power in WATTS.items() if name in hardware["gpu"]), None)
        if watts is None:
            return None
        number, what = hardware["processes"], f"{watts} W of the board, busy or not"
    else:
        watts, number = WATTS_OF_A_CORE, hardware["threads"] * hardware["processes"]
        what = f"{watts} W for a busy core"
    return f"{seconds * watts * number / 3600:.3g} Wh: {seconds:.0f} s x {number} x {what}; nothing was measured"


def _printed_in(folder: Path) -> Any:
    def output_of(code: str) -> str:
        try:
            with contextlib.chdir(folder), quiet():
                printed = run_code(code)
        except Exception as error:  # it loads the model and uses it, so it may raise anything
            raise _cannot_run(folder, f"{type(error).__name__}: {error}") from error
        return printed if printed.endswith("\n") else printed + "\n"

    return output_of


def printed_by_a_sandbox(folder: Path, trust: bool, runs: list[CleanRun]) -> Any:
    def output_of(code: str) -> str:
        names = repository_files(folder)
        order = {
            "hides_hfattn": "baseline.json" not in names,
            "loads": False,
            "batches": {},
            "pipeline": None,
            "card_code": code,
        }
        runs.append(run_folder(folder, names, order, known=True, trust=trust))
        try:
            printed = printed_by(runs[-1])
        except AssertionError as error:
            raise _cannot_run(folder, str(error)) from error
        return printed if printed.endswith("\n") else printed + "\n"

    return output_of


def _cannot_run(folder: Path, reason: str) -> UserError:
    reason = printable(" ".join(reason.split()).rstrip("."), 400)
    return UserError(
        f"The code of the card of {folder} cannot be run ({reason}); check that the files of the model are complete."
    )


def read_results(folder: Path) -> dict[str, Any]:
    """Read ``results.json`` of a run folder.

    Raises:
        UserError: it is missing, is not JSON, or has a value of a wrong type; or an earlier version of hfattn wrote it,
            with other field names.
    """
    path = folder / "results.json"
    results = read_json_object(path)
    for name, kind in _KINDS.items():
        if name in results and not isinstance(results[name], kind):
            raise UserError(f"{path} has {results[name]!r} as {name!r}, which no recipe writes; copy the file again.")
    if (source := results.get("dataset")) is not None and not _is_source(source):
        raise UserError(f"{path} does not say which dataset of the Hub was read; copy the file again.")
    if not all(isinstance(left, dict) for left in results.get(UNFINISHED, {}).values()):
        raise UserError(f"{path} does not say which files are missing; copy the file again.")
    for name, choice in (results.get("selection") or {}).items():
        if choice is not None and not (isinstance(choice, dict) and isinstance(choice.get("part"), str)):
            raise UserError(f"{path} does not say on which part its {name} was chosen; copy the file again.")
    if "source" in results.get("configuration", {}).get("data", {}):
        raise UserError(
            f"{folder} was written by an earlier version of hfattn, whose configurations have data.source; the model "
            "still loads, but train it again to write, verify or push its card."
        )
    return results


def _is_source(source: Mapping[str, Any]) -> bool:
    tasks = source.get("tasks")
    return (
        all(isinstance(source.get(name), str) for name in ("id", "commit"))
        and isinstance(tasks, list)
        and all(isinstance(task, dict) and {"id", "config", "split"} <= task.keys() for task in tasks)
        and all(isinstance(value, str | None) for task in tasks for value in task.values())
    )


def check_card(folder: Path, results: Mapping[str, Any]) -> str:
    """Check that the card of a folder agrees with its results.

    Returns:
        Description of what was compared.

    Raises:
        AssertionError: a line rendered from the results is not in the card, the metadata or ``requirements.txt``
            differ, or the results list files that the end of the run could not write.
    """
    missing = ", ".join(results.get(UNFINISHED, {}))
    assert not missing, f"the folder is not finished: {missing} could not be written; run hfattn card"
    text = (folder / "README.md").read_text(encoding="utf-8")
    _, printed = card_code(text)
    right, there = render_card(folder, results, lambda code: printed or ""), ModelCard(with_model_id(text, "."))
    assert there.data.to_dict() == right.data.to_dict(), "the metadata are not those of results.json"
    same_code = card_code(text)[0] == card_code(right.content)[0]
    assert same_code, "its first Python code is not what results.json says"
    lines = set(there.content.splitlines())
    wanted = [line for line in right.content.splitlines() if line.strip()]
    for line in wanted:
        assert line in lines, f"the line {line.strip()[:120]!r} is missing or was changed"
    needed = folder / REQUIREMENTS
    if needed.is_file() and results.get("recipe") != FOLDER:
        same = needed.read_text(encoding="utf-8").splitlines() == requirements(results)
        assert same, f"{REQUIREMENTS} is not what results.json says"
    path = folder / EVAL_RESULTS
    entries = eval_result_entries_to_yaml(evaluation_entries(_data(right), results))
    found = read_yaml(path) if path.is_file() else []
    assert found == entries, f"{EVAL_RESULTS} is not what results.json says"
    return f"{len(wanted)} lines and {len(_data(right).eval_results or [])} scores are those of results.json"

"""Model soups: average the weights of runs fine-tuned from the same model (Wortsman et al. 2022, arXiv 2203.05482)."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub.dataclasses import strict
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME

from .data import LabeledDataConfig
from .data.parts import as_recorded
from .errors import UserError
from .evaluation import DECISIONS, TASK, classify, evaluate_classifier
from .files import write_json, writing
from .hub import finish_folder
from .loading import ModelLocation, load_model, load_tokenizer
from .training import TrainingConfig, load_config, run_facts
from .training.averaging import mean_weights
from .training.expected import FinishedRun, read_run

TOKENIZER = "tokenizer.json"
# Files that differ between runs.
_OWN = {SAFE_WEIGHTS_NAME, "results.json", "README.md"}
_KEPT = {".json", ".py", ".txt", ".model", ".jinja"}


def check_ingredients(runs: Sequence[Path]) -> None:
    """Check that weights can be averaged: the runs have the same architecture and tokenizer.

    Raises:
        UserError: there are fewer than two runs, one has no safetensors file, or two runs differ.
    """
    if len(runs) < 2:
        raise UserError("A soup needs at least two runs; give the folders of more.")
    for run in runs:
        if not (run / SAFE_WEIGHTS_NAME).is_file():
            raise UserError(f"{run} has no {SAFE_WEIGHTS_NAME}; give the folders of finished runs.")
    first, shapes = runs[0], _shapes(runs[0])
    for run in runs[1:]:
        others = _shapes(run)
        for name in sorted(shapes.keys() | others.keys()):
            if shapes.get(name) != others.get(name):
                raise UserError(
                    f"{first} and {run} are not the same model: {name} is {shapes.get(name, 'absent')} in one and "
                    f"{others.get(name, 'absent')} in the other; give runs of one configuration."
                )
        for file in (CONFIG_NAME, TOKENIZER):
            if _content(first / file) != _content(run / file):
                raise UserError(f"{first} and {run} differ in {file}; give runs of one configuration.")


def _shapes(run: Path) -> dict[str, list[int]]:
    with safe_open(run / SAFE_WEIGHTS_NAME, "pt") as weights:
        names = weights.keys()
        return {name: weights.get_slice(name).get_shape() for name in names}


def _content(path: Path) -> Any:
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
    if path.name == CONFIG_NAME and content is not None:  # they are chosen for one run, not for a mean of runs
        for name in DECISIONS:
            (content.get("task_specific_params") or {}).get(TASK, {}).pop(name, None)
    return content


def write_soup(runs: Sequence[Path], folder: Path) -> None:
    """Write a model folder with the mean of the weights of runs; all other files are copied from the first run.

    Raises:
        UserError: the disk is full.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(mean_weights(runs), folder / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        for file in runs[0].iterdir():
            if file.is_file() and file.suffix in _KEPT and file.name not in _OWN:
                shutil.copy2(file, folder / file.name)
        write_json(folder / CONFIG_NAME, _content(runs[0] / CONFIG_NAME))


def greedy_soup(
    runs: Sequence[Path], score: Callable[[Sequence[Path]], float], *, greater_is_better: bool
) -> tuple[list[Path], list[float]]:
    """Add runs to the soup from the best to the worst; keep a run if the score does not get worse (paper, recipe 1).

    Args:
        runs: candidates.
        score: function that evaluates the mean of runs on texts that are not in their training data.
        greater_is_better: whether higher scores are better.

    Returns:
        The chosen runs, and the score of each candidate alone, in the order of ``runs``.
    """
    alone = [score([run]) for run in runs]
    sign = 1 if greater_is_better else -1
    order = sorted(range(len(runs)), key=lambda i: -sign * alone[i])
    chosen, best = [runs[order[0]]], alone[order[0]]
    for i in order[1:]:
        mixed = score([*chosen, runs[i]])
        if sign * mixed >= sign * best:
            chosen, best = [*chosen, runs[i]], mixed
    return chosen, alone


@strict
@dataclass
class _RunConfig(TrainingConfig):
    """The sections of a run's configuration that are used for evaluation."""

    data: LabeledDataConfig = field(default_factory=lambda: LabeledDataConfig(dataset="stanfordnlp/sst2"))


def cook(folders: Sequence[Path], output: Path, greedy: bool, overrides: Sequence[str]) -> str:
    """Write a soup of classifiers with its scores and a card.

    Args:
        folders: run folders.
        output: folder to create; removed if an error occurs.
        greedy: select runs by the validation score, instead of averaging all.
        overrides: ``section.field=value`` for the runs' configuration, such as the present location of their data.

    Returns:
        A table of the scores of the soup and its ingredients.

    Raises:
        UserError: the runs cannot be averaged, or their data are not found.
    """
    runs = [read_run(folder) for folder in folders]
    first = runs[0]
    base = first.results["model"].get("base_model")
    if first.results["recipe"] != "classification" or base is None:
        raise UserError(
            f"{first.folder} is not a fine-tuned classifier; give runs of recipes/classification with a model.name."
        )
    if first.results["data"].get("regression"):
        raise UserError(f"{first.folder} predicts a number, and a soup is of classifiers; give runs of classifiers.")
    if first.results["data"].get("multi_label"):
        raise UserError(f"{first.folder} predicts several labels, and a soup one class; give runs of classifiers.")
    for run in runs[1:]:
        if (run.results["recipe"], run.results["model"].get("base_model")) != (first.results["recipe"], base):
            raise UserError(f"{run.folder} was not fine-tuned from {base} like {first.folder}; give runs of one model.")
        if run.results["data"]["parts"] != first.results["data"]["parts"]:
            raise UserError(
                f"{first.folder} and {run.folder} were trained or measured on different texts; give runs with one "
                "dataset and, if a recipe split it, the same seed."
            )
    check_ingredients(folders)
    config = _configuration(first, overrides)
    arguments = config.arguments(Path("soup"))
    metric = (arguments.metric_for_best_model or "nats_per_example").removeprefix("eval_")
    try:
        parts = config.data.read_parts(first.results["seed"])
    except UserError as error:
        raise UserError(
            f"{str(error).rstrip('.')}; write --set data.dataset=PATH with the path of the data."
        ) from error

    def evaluate(folder: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        location = ModelLocation(name=str(folder))
        model = load_model(AutoModelForSequenceClassification, location).model.eval().to(arguments.device)
        tokenizer, rows = load_tokenizer(location), arguments.per_device_eval_batch_size
        return {part: evaluate_classifier(model, tokenizer, parts[part], rows, bf16=arguments.bf16) for part in names}

    chosen = list(folders)
    with TemporaryDirectory() as scratch:

        def score(members: Sequence[Path]) -> float:
            folder = members[0]
            if len(members) > 1:
                folder = Path(scratch) / "mixed"
                write_soup(members, folder)
            return float(evaluate(folder, ["validation"])["validation"][metric])

        if greedy:
            chosen, alone = greedy_soup(folders, score, greater_is_better=bool(arguments.greater_is_better))
        else:
            alone = [score([folder]) for folder in folders]
    try:
        write_soup(chosen, output)
        location = ModelLocation(name=str(output))
        model = load_model(AutoModelForSequenceClassification, location).model.eval()
        tokenizer = load_tokenizer(location)
        config_file = Path(f"{first.results['config']}.yaml")
        results = {
            **run_facts(first.results["recipe"], config_file, first.results["configuration"], first.results["seed"]),
            "data": first.results["data"],
            "model": first.results["model"],
            "metrics": evaluate(output, list(first.results["metrics"])),
            "example": classify(model, tokenizer, first.results["example"]["texts"]),
            "own_code": first.results["own_code"],
            "soup": {
                "method": "greedy" if greedy else "uniform",
                "metric": metric,
                "ingredients": [
                    {
                        "name": folder.resolve().name,
                        "seed": run.results["seed"],
                        "validation": value,
                        "test": run.results["metrics"].get("test", {}).get(metric),
                        "taken": folder in chosen,
                    }
                    for folder, run, value in zip(folders, runs, alone, strict=True)
                ],
            },
        }
        finish_folder(output, results, model, tokenizer, [results["example"]["texts"]])
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    return summary(output, results)


def _configuration(run: FinishedRun, overrides: Sequence[str]) -> _RunConfig:
    """Return the sections of a run's configuration that are used for evaluation, with overrides."""
    whole: Mapping[str, Any] = run.results["configuration"]
    values = {each.name: whole[each.name] for each in fields(_RunConfig)}
    data = as_recorded(values["data"])
    values["data"] = {each.name: data[each.name] for each in fields(LabeledDataConfig) if each.name in data}
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{run.results['config']}.yaml"
        path.write_text(yaml.safe_dump(values), encoding="utf-8")
        return load_config(_RunConfig, path, [f"--{override}" for override in overrides])


def summary(folder: Path, results: dict[str, Any]) -> str:
    """Return a table of the scores of the soup and its ingredients."""
    soup, metrics = results["soup"], results["metrics"]
    name, parts = soup["metric"], list(metrics)
    lines = ["", f"{name:32}" + "".join(f"{part:>12}" for part in parts)]
    for run in soup["ingredients"]:
        values = "".join("" if run[part] is None else f"{run[part]:12.4f}" for part in parts)
        lines.append(f"{run['name'][:30]:32}{values}{'' if run['taken'] else '  left out'}")
    lines.append(f"{soup['method'] + ' soup':32}" + "".join(f"{metrics[part][name]:12.4f}" for part in parts))
    return "\n".join([*lines, "", f"Model, results and card: {folder}"])

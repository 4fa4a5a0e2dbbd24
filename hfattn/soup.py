"""Model soups: the mean of the weights of runs that were fine-tuned from the same model (Wortsman et al. 2022)."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import yaml
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForSequenceClassification
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_NAME

from .errors import UserError
from .hub import finish_folder
from .loading import ModelLocation, load_model, load_tokenizer
from .resources import resource
from .training import load_config, run_facts, writing
from .training.averaging import mean_weights
from .training.expected import FinishedRun, read_run

TOKENIZER = "tokenizer.json"
# What a run leaves behind of itself alone: everything else is the same in all of them.
_OWN = {SAFE_WEIGHTS_NAME, "results.json", "README.md"}
_KEPT = {".json", ".py", ".txt", ".model", ".jinja"}


def check_ingredients(runs: Sequence[Path]) -> None:
    """Make sure that weights can be averaged: one architecture, one tokenizer.

    Raises:
        UserError: there are fewer than two runs, one has no weights in safetensors, or two differ.
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
                raise UserError(f"{first} and {run} have another {file}; give runs of one configuration.")


def _shapes(run: Path) -> dict[str, list[int]]:
    with safe_open(run / SAFE_WEIGHTS_NAME, "pt") as weights:
        names = weights.keys()
        return {name: weights.get_slice(name).get_shape() for name in names}


def _content(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def write_soup(runs: Sequence[Path], folder: Path) -> None:
    """Write a model folder whose weights are the mean of those of runs; the rest is that of the first.

    Raises:
        UserError: the disk is full; nothing is left behind then.
    """
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        save_file(mean_weights(runs), folder / SAFE_WEIGHTS_NAME, metadata={"format": "pt"})
        for file in runs[0].iterdir():
            if file.is_file() and file.suffix in _KEPT and file.name not in _OWN:
                shutil.copy2(file, folder / file.name)


def greedy_soup(
    runs: Sequence[Path], score: Callable[[Sequence[Path]], float], *, greater_is_better: bool
) -> tuple[list[Path], list[float]]:
    """Choose runs one by one, the best first; one stays where the soup is then no worse (recipe 1 of the paper).

    Args:
        runs: candidates.
        score: of the mean of runs, on texts that none of them was trained on.
        greater_is_better: of the score.

    Returns:
        The runs that were chosen, and the score of each candidate alone, in the order of ``runs``.
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


def cook(
    folders: Sequence[Path],
    output: Path,
    greedy: bool,
    fields: Sequence[str],
    load_recipe: Callable[[Path], ModuleType],
) -> str:
    """Write a soup of runs with its scores and a card, and say what it scores.

    Args:
        folders: of the runs.
        output: folder to make; nothing is left there where this fails.
        greedy: choose among the runs by the validation score; else take all.
        fields: ``section.field=value`` of the runs' configuration to change, such as where their data are now.
        load_recipe: what makes a module of a recipe's ``train.py``.

    Raises:
        UserError: the runs cannot be averaged, their recipe cannot measure a soup, or their data are not where they
            were.
    """
    runs = [read_run(folder) for folder in folders]
    first = runs[0]
    for run in runs[1:]:
        if run.results["recipe"] != first.results["recipe"]:
            raise UserError(f"{first.folder} and {run.folder} are runs of two recipes; give runs of one.")
        if run.results["data"]["parts"] != first.results["data"]["parts"]:
            raise UserError(
                f"{first.folder} and {run.folder} were trained or measured on other texts; give runs with one data set "
                "and, where they were split here, the same seed."
            )
    check_ingredients(folders)
    recipe = load_recipe(resource("recipes") / first.results["recipe"] / "train.py")
    if "evaluate" not in vars(recipe):
        raise UserError(
            f"The recipe {first.results['recipe']} cannot measure a soup; give runs of sequence_classification."
        )
    config = _configuration(first, recipe, fields)
    arguments = config.arguments(Path("soup"))
    name = (arguments.metric_for_best_model or "nats_per_example").removeprefix("eval_")
    parts = list(first.results["metrics"])
    try:
        config.data.read_parts(first.results["seed"])
    except UserError as error:
        raise UserError(f"{str(error).rstrip('.')}; with --set data.source=PATH say where the data are now.") from error
    chosen = list(folders)
    with TemporaryDirectory() as scratch:

        def score(members: Sequence[Path]) -> float:
            mixed = Path(scratch) / "mixed"
            if len(members) > 1:
                write_soup(members, mixed)
            return recipe.evaluate(config, mixed if len(members) > 1 else members[0], ["validation"])["validation"][
                name
            ]

        if greedy:
            chosen, alone = greedy_soup(folders, score, greater_is_better=bool(arguments.greater_is_better))
        else:
            alone = [score([folder]) for folder in folders]
    try:
        write_soup(chosen, output)
        metrics = recipe.evaluate(config, output, parts)
        config_file = Path(f"{first.results['config']}.yaml")
        facts = run_facts(first.results["recipe"], config_file, first.results["configuration"], first.results["seed"])
        results = {
            **facts,
            "data": first.results["data"],
            "model": first.results["model"],
            "metrics": metrics,
            "example": recipe.say(output, first.results["example"]["texts"]),
            "own_code": first.results["own_code"],
            "soup": {
                "method": "greedy" if greedy else "uniform",
                "metric": name,
                "ingredients": [
                    {
                        "name": folder.resolve().name,
                        "seed": run.results["seed"],
                        "validation": value,
                        "test": run.results["metrics"].get("test", {}).get(name),
                        "taken": folder in chosen,
                    }
                    for folder, run, value in zip(folders, runs, alone, strict=True)
                ],
            },
        }
        source = ModelLocation(name=str(output))
        model = load_model(AutoModelForSequenceClassification, source).model
        finish_folder(output, results, model, load_tokenizer(source), [results["example"]["texts"]])
    except BaseException:
        shutil.rmtree(output, ignore_errors=True)
        raise
    return summary(output, results)


def _configuration(run: FinishedRun, recipe: ModuleType, fields: Sequence[str]) -> Any:
    with TemporaryDirectory() as scratch:
        path = Path(scratch) / f"{run.results['config']}.yaml"
        path.write_text(yaml.safe_dump(run.results["configuration"]), encoding="utf-8")
        return load_config(recipe.Config, path, [f"--{field}" for field in fields])


def summary(folder: Path, results: dict[str, Any]) -> str:
    """What the soup scores beside its ingredients."""
    soup, metrics = results["soup"], results["metrics"]
    name, parts = soup["metric"], list(metrics)
    lines = ["", f"{name:32}" + "".join(f"{part:>12}" for part in parts)]
    for run in soup["ingredients"]:
        values = "".join("" if run[part] is None else f"{run[part]:12.4f}" for part in parts)
        lines.append(f"{run['name'][:30]:32}{values}{'' if run['taken'] else '  left out'}")
    lines.append(f"{soup['method'] + ' soup':32}" + "".join(f"{metrics[part][name]:12.4f}" for part in parts))
    return "\n".join([*lines, "", f"Model, results and card: {folder}"])


__all__ = ["check_ingredients", "cook", "greedy_soup", "write_soup"]

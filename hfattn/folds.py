"""Cross-validation: a training for each fold of a dataset, and the mean and deviation of its scores."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import UserError
from .files import read_json_object, write_json
from .training.bands import deviation
from .training.command import RecipeCommand, leaves

RECORD = "folds.json"


def train_folds(command: RecipeCommand, folds: int, train: Callable[[list[str]], None]) -> dict[str, Any]:
    """Train a configuration once for each fold, and write ``folds.json``.

    The run of fold i is in the folder ``fold-i``. Folds that are finished are not trained again if the command resumes.

    Args:
        command: the command line, without ``data.fold``.
        folds: number of folds.
        train: called with the arguments of the training of each fold; raises an error if it fails.

    Returns:
        What ``folds.json`` has: ``config``, ``overrides`` and ``folds`` as given, and ``metrics``: for each part and
        each score, ``values`` by fold, ``mean``, and ``deviation``, the sample standard deviation over the folds.

    Raises:
        UserError: an option does not fit, the folder is not empty or has folds of another command, or the
            configuration has changed between two folds.
    """
    folder = command.run
    if command.push_to is not None:
        raise UserError("Folds measure a configuration, so none is published; train without data.folds to push a run.")
    if command.search is not None:
        raise UserError("The search has seen texts that the folds test on; remove --search, or data.folds.")
    record: dict[str, Any] = {"config": command.config.name, "overrides": command.overrides, "folds": folds}
    _claim(folder, record, command.resume)
    results = []
    for fold in range(1, folds + 1):
        run = fold_folder(command, fold)
        if not _is_finished(run):
            train(fold_arguments(command, fold))
        results.append(read_json_object(run / "results.json"))
    first, *others = (dict(leaves(each["configuration"])) for each in results)
    for fold, other in enumerate(others, 2):
        for name in first | other:
            if name != "data.fold" and first.get(name) != other.get(name):
                raise UserError(
                    f"{fold_folder(command, fold)} was trained with another {name} than fold 1; remove the folds of "
                    "the older configuration, and resume."
                )
    record["metrics"] = {
        part: _over_folds([each["metrics"][part] for each in results]) for part in results[0]["metrics"]
    }
    write_json(folder / RECORD, record)
    return record


def fold_folder(command: RecipeCommand, fold: int) -> Path:
    """Return the folder of the run of a fold."""
    return command.run / f"fold-{fold}"


def fold_arguments(command: RecipeCommand, fold: int) -> list[str]:
    """Return the arguments of the training of a fold, which follow the configuration."""
    resume = ["--resume"] if command.resume else []
    return [*command.overrides, "--data.fold", str(fold), "--output_dir", str(fold_folder(command, fold)), *resume]


def folds_table(record: Mapping[str, Any]) -> str:
    """Return the scores on the whole test parts as lines of text: mean, deviation, and the value of each fold."""
    rows = [("test", "mean", "deviation", *(f"fold {i}" for i in range(1, record["folds"] + 1)))]
    for name, score in record["metrics"]["test"].items():
        if "." in name or name == "loss":  # of slices, and what the recipe names by its unit
            continue
        values = (score["mean"], score["deviation"], *score["values"])
        rows.append((name.replace("_", " "), *(f"{value:.4g}" for value in values)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def _claim(folder: Path, record: Mapping[str, Any], resume: bool) -> None:
    """Write the command into the folder, or check that a folder to resume has this command."""
    if (folder / RECORD).is_file() and resume:
        before = read_json_object(folder / RECORD)
        for name, value in record.items():
            if before.get(name) != value:
                raise UserError(
                    f"{folder} has folds with {name} {before.get(name)!r}, not {value!r}; resume them with the same, "
                    "or choose another folder with --output_dir."
                )
    elif folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UserError(
            f"{folder} is not empty; choose another folder with --output_dir, or continue folds in it with --resume."
        )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RECORD, record)


def _is_finished(run: Path) -> bool:
    if not (run / "results.json").is_file():
        return False
    if "unfinished" in read_json_object(run / "results.json"):
        raise UserError(f"The training in {run} has ended, but not its files; run hfattn card {run}, then resume.")
    return True


def _over_folds(parts: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the scores of one part that all folds have."""
    scores = {}
    for name in dict(leaves(parts[0])):
        if name == "runtime" or name.endswith("_per_second"):
            continue
        values: list[Any] = [dict(leaves(part)).get(name) for part in parts]
        if all(isinstance(each, int | float) and not isinstance(each, bool) for each in values):
            scores[name] = {"mean": sum(values) / len(values), "deviation": deviation(values), "values": values}
    return scores

"""Search for the settings of a recipe: train trials, and compare them on the validation part."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict

from .errors import UserError
from .extras import optional
from .fields import at_least
from .files import write_json
from .training.expected import read_run
from .training.selection import best_settings
from .yaml_values import override_words

RECORD = "search.json"
VALIDATION = "metrics.validation."
_JOURNAL = "trials.log"
_RANGE = {"low", "high", "log", "step"}


@strict
@dataclass
class SearchConfig:
    """The file that describes a search."""

    # Values of each field of the recipe's YAML: a list of choices, or {low: 1e-5, high: 1e-3} with log: true for a
    # logarithmic scale or with step.
    fields: dict[str, Any] = field(default_factory=dict)
    metric: str = f"{VALIDATION}accuracy"  # path in results.json of the score to compare
    higher_is_better: bool = True
    trials: int = at_least(1, 20)
    seed: int = 1  # of the search; training.seed is that of each trial

    def validate_metric(self) -> None:
        if not self.metric.startswith(VALIDATION):
            raise ValueError(f"metric is {self.metric}; settings are chosen on validation, so write {VALIDATION}NAME.")

    def validate_fields(self) -> None:
        if not self.fields:
            raise ValueError("fields is empty; write a field such as training.learning_rate: {low: 1e-5, high: 1e-3}.")
        for name, values in self.fields.items():
            choices = isinstance(values, list) and len(values) > 1
            numbers = isinstance(values, dict) and {"low", "high"} <= values.keys() <= _RANGE
            if not choices and not (numbers and values["low"] < values["high"]):
                raise ValueError(f"fields.{name} is {values}; write two or more choices, or low and high.")


def tune(
    config: str, search: SearchConfig, overrides: list[str], folder: Path, train: Callable[[list[str], Path], None]
) -> dict[str, Any]:
    """Train trials of a recipe until there are as many as ``search`` wants, and write ``search.json``.

    Each trial is a run without the test part in its own folder, of which the results and the logs are kept. The values
    come from Optuna's tree-structured Parzen estimator (Bergstra et al. 2011), whose seed is that of the search plus
    the number of the trial. A search that was interrupted continues; its unfinished trial is trained first.

    Args:
        config: name of the configuration, for the record.
        search: the fields and the number of trials.
        overrides: overrides that all trials share.
        folder: folder of the search. If it holds a search, that one continues.
        train: function that trains with the given overrides and writes what training prints to the given file.

    Returns:
        The contents of ``search.json``: the search, and ``trials`` with the settings and score of each.

    Raises:
        UserError: a range is not possible, the folder holds another search or other files, or no trial finishes.
    """
    optuna = optional("tune", "optuna")
    description = {"config": config, "overrides": overrides, **asdict(search), "part": "validation"}
    distributions = {name: _distribution(name, values) for name, values in search.fields.items()}
    journal = folder / _JOURNAL
    if folder.exists() and not journal.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty and holds no search; choose another folder with --output_dir.")
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        storage=optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal))),
        study_name="search",
        direction="maximize" if search.higher_is_better else "minimize",
        load_if_exists=True,
    )
    _check_same(study.user_attrs.get("search"), description, folder)
    study.set_user_attr("search", description)
    states = optuna.trial.TrialState

    def finish(number: int, values: Mapping[str, Any]) -> None:
        run = folder / f"trial-{number + 1}"
        chosen = override_words(values)
        print(f"Trial {number + 1} of {search.trials}: {' '.join(chosen)}", end="", flush=True)
        try:
            if not (run / "results.json").exists():
                words = [*overrides, *chosen, "--data.without_test", "true", "--output_dir", str(run), "--resume"]
                train(words, run.with_suffix(".log"))
            score = read_run(run).score(search.metric)
        except UserError as error:
            study.tell(number, state=states.FAIL)
            print(flush=True)
            if not study.get_trials(deepcopy=False, states=(states.COMPLETE,)):
                raise UserError(f"Trial {number + 1} failed, and none has finished: {error}") from None
            print(f"Trial {number + 1} failed: {error}", flush=True)
        else:
            study.tell(number, score)
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
            print(f": {score:.6g}", flush=True)

    for trial in study.get_trials(states=(states.RUNNING,)):
        if trial.params.keys() == search.fields.keys():
            finish(trial.number, trial.params)
        else:  # interrupted while its settings were drawn
            study.tell(trial.number, state=states.FAIL)
    while len(study.get_trials(deepcopy=False)) < search.trials:
        number = len(study.get_trials(deepcopy=False))
        study.sampler = optuna.samplers.TPESampler(seed=search.seed + number)
        trial = study.ask(distributions)
        finish(trial.number, trial.params)

    finished = study.get_trials(deepcopy=False, states=(states.COMPLETE,))
    record = {
        **description,
        "sampler": f"tree-structured Parzen estimator, Optuna {optuna.__version__}",
        "best": study.best_trial.number + 1,
        "failed": len(study.get_trials(deepcopy=False)) - len(finished),
        "trials": [
            {
                "number": trial.number + 1,
                "settings": trial.params,
                "score": trial.value,
                "seconds": round(trial.duration.total_seconds()) if trial.duration else None,
            }
            for trial in finished
        ],
    }
    write_json(folder / RECORD, record)
    return record


def first_overrides(search: SearchConfig) -> list[str]:
    """Return overrides with the first or lowest value of each field, to check that the recipe has these fields."""
    return override_words(
        {name: values[0] if isinstance(values, list) else values["low"] for name, values in search.fields.items()}
    )


def table(record: Mapping[str, Any]) -> str:
    """Return the trials of ``search.json`` as lines of text, the best first."""
    best_first = sorted(record["trials"], key=lambda trial: trial["score"], reverse=record["higher_is_better"])
    rows = [("trial", record["metric"].removeprefix("metrics."), *record["fields"])]
    for trial in best_first:
        values = (trial["settings"][name] for name in record["fields"])
        rows.append((str(trial["number"]), f"{trial['score']:.6g}", *(_short(value) for value in values)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def best_overrides(record: Mapping[str, Any]) -> list[str]:
    """Return the overrides of the best trial, which ``hfattn train`` takes."""
    return [*record["overrides"], *override_words(best_settings(record))]


def _distribution(name: str, values: Any) -> Any:
    distributions = optional("tune", "optuna.distributions")
    if isinstance(values, list):
        return distributions.CategoricalDistribution(values)
    whole = isinstance(values["low"], int) and isinstance(values["high"], int)
    try:
        if whole:
            return distributions.IntDistribution(**{"step": 1, **values})
        return distributions.FloatDistribution(**values)
    except (ValueError, TypeError) as error:
        raise UserError(f"fields.{name} is {values}: {error}") from None


def _check_same(before: Mapping[str, Any] | None, now: Mapping[str, Any], folder: Path) -> None:
    for name, value in now.items():
        if before is not None and name != "trials" and before.get(name) != value:
            raise UserError(
                f"{folder} holds a search with {name} {before.get(name)!r}, not {value!r}; continue it with that, or "
                "choose another folder with --output_dir."
            )


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)

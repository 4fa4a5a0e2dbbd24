"""What a run was chosen by: the parts of the data on which its checkpoint and its settings were compared.

``results.json`` records it as ``selection``: ``checkpoint`` and ``settings`` each have the ``part`` and the ``metric``
of the comparison, or are null if nothing was compared (the last step; the settings of the YAML file). A classifier that
abstains has a ``threshold`` too. A score is only
reported for a part on which nothing was chosen.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..yaml_values import override_words

Selection = Mapping[str, Mapping[str, Any] | None]


def read_search(path: Path, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return how settings were chosen, from the ``search.json`` of ``hfattn tune``: part, metric, seed and trials.

    Args:
        path: the file.
        overrides: overrides of the run, by the name of the field.

    Raises:
        UserError: the file is missing or not a search, or the run does not have the settings of its best trial.
    """
    try:
        search = json.loads(path.read_text(encoding="utf-8"))
        best = best_settings(search)
        chosen = {name: search[name] for name in ("part", "metric", "seed", "sampler", "fields", "trials")}
    except (OSError, ValueError, KeyError, TypeError, StopIteration):
        raise UserError(f"{path} is not the search.json of a search; give the file that hfattn tune wrote.") from None
    for name, value in best.items():
        option, word = override_words({name: value})
        if overrides.get(name) != word:
            raise UserError(
                f"The best trial of {path} has {name} {word}, and this run does not; write {option} {word}, or leave "
                "out --search."
            )
    return chosen


def best_settings(search: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the best trial of a ``search.json``."""
    return next(trial["settings"] for trial in search["trials"] if trial["number"] == search["best"])


def chosen_on(selection: Selection | None) -> str:
    """Return where checkpoint and settings were chosen, for a table: ``checkpoint: validation``."""
    if selection is None:
        return "not recorded"
    parts = []
    for name, choice in selection.items():
        if choice is not None:
            trials = f" ({_number(choice['trials'])} compared)" if "trials" in choice else ""
            parts.append(f"{name}: {choice['part']}{trials}")
    return "; ".join(parts) or "–"


def reported_on_its_own_choice(metric: str, selection: Selection | None) -> str | None:
    """Return what was chosen on the part that a metric such as ``metrics.test.accuracy`` is measured on, or None."""
    part = metric.split(".")[1]
    for name, choice in (selection or {}).items():
        if choice is not None and choice["part"] == part:
            return f"its {name} {'were' if name.endswith('s') else 'was'} chosen on {part}, the part that is reported"
    return None


def _number(trials: int | Sequence[Any]) -> int:
    return trials if isinstance(trials, int) else len(trials)

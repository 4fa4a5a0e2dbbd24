"""What a card says that has to be worked out from ``results.json``: the command, hyperparameters, weak slices."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..resources import resource
from .templates import interval_of, literal, plain

# The sections of a configuration that change the weights, besides the model and the data, which have their own part.
_SECTIONS = (
    "optimizer",
    "schedule",
    "max_tokens",
    "averaging",
    "early_stopping_patience",
    "tuning",
    "distillation",
    "augmentation",
    "dino",
    "sentence",
)
# Fields of TrainingArguments that change no weight.
_NOT_SHOWN = (
    "disable_tqdm",
    "logging_",
    "dataloader_",
    "per_device_eval_",
    "project",
    "report_to",
    "run_name",
    "save_",
)
_FEWEST = 10  # examples of a slice about which something is said
_MOST = 3  # slices that are named


def train_command(results: Mapping[str, Any]) -> str:
    """Return the command that repeats a run: ``hfattn train RECIPE/CONFIG`` with the options that differ from it.

    A launch of several processes, and a command that is not that of a recipe, is returned as it was recorded.
    """
    command: str = results["command"]
    words = shlex.split(command)
    if words[:2] != ["accelerate", "launch"] or len(words) < 3:
        return command
    script, *options = words[2:]
    if Path(script).name == "hfattn":
        return shlex.join(["hfattn", *options])
    if Path(script).name != "train.py" or "--config" not in options[:-1]:
        return command
    place = options.index("--config")
    path = Path(options[place + 1])
    bundled = path.parent in (Path(), Path("recipes", results["recipe"]))
    if bundled and resource("recipes", results["recipe"], path.name).is_file():
        name = f"{results['recipe']}/{path.stem}"
    else:
        name = path.as_posix()
    return shlex.join(["hfattn", "train", name, *_without_push(options[:place] + options[place + 2 :])])


def _without_push(options: Iterable[str]) -> Iterator[str]:
    words = iter(options)
    for word in words:
        if word == "--push_to":
            next(words, None)
        elif word != "--push_private" and not word.startswith("--push_to="):
            yield word


def hyperparameters(configuration: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of the training by the names of their fields; those that are not set are left out."""
    shown = {name: configuration[name] for name in _SECTIONS if name in configuration}
    if shown.get("tuning", {}).get("method") in ("full", "head_only"):
        shown["tuning"] = {name: shown["tuning"][name] for name in ("method", "layer_decay") if name in shown["tuning"]}
    training = configuration.get("training", {})
    shown["training"] = {name: value for name, value in training.items() if not name.startswith(_NOT_SHOWN)}
    return {
        name: value if isinstance(value, str) else literal(value)
        for name, value in _flat(shown)
        if value not in (None, [], {}, False)
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


# The share of right answers of each recipe, what is counted, and how a wrong answer is described.
_SHARES = {
    **dict.fromkeys(("baselines", "classification", "distillation"), ("accuracy", "texts", "classified wrongly")),
    "image_classification": ("accuracy", "images", "classified wrongly"),
    "multiple_choice": ("accuracy", "questions", "answered wrongly"),
    "question_answering": ("exact_match", "questions", "answered in other words than the right ones"),
}


def where_it_fails(results: Mapping[str, Any]) -> list[str] | None:
    """Return sentences, as Markdown, on the slices that are clearly worse than the whole part.

    A share of right answers is clearly worse if the upper limit of its 95% interval (Wilson) is below that of the
    whole. An F1 or BLEU is if it is below 90% of that of the whole, and a squared error if it is above 120%.

    Returns:
        At most three sentences, the worst slice first; None if the results have no slices.
    """
    recipe, metrics = results.get("recipe", ""), results.get("metrics", {})
    shown = metrics.get("test", metrics.get("validation", {}))
    if recipe == "translation":
        if any(scores["exact_match_by_kind"] and "pairs_by_kind" not in scores for scores in metrics.values()):
            return None  # of an earlier version, which did not count the pairs of each kind
        return _weak_kinds(metrics) + _weak_length(shown.get("beam", shown))
    if "by_slice" not in shown:
        return None
    slices = {name: each for name, each in shown["by_slice"].items() if each["examples"] >= _FEWEST}
    if results["data"].get("regression"):
        return _weak_scores(slices, shown, "mean_squared_error", "mean squared error", "examples", "texts", 1.2)
    if recipe == "token_classification":
        return _weak_scores(slices, shown, "f1", "entity F1", "entities", "entities", 0.9)
    score, unit, wrong = _SHARES[recipe]
    shares = {name: (each[score], each["examples"]) for name, each in slices.items()}
    return _weak_shares(shares, shown[score], unit, wrong)


def _weak_shares(shares: Mapping[str, tuple[float, int]], whole: float, unit: str, wrong: str) -> list[str]:
    weak = {
        name: (share, number)
        for name, (share, number) in shares.items()
        if number >= _FEWEST and interval_of(share, number)[1] < whole
    }
    of_all = f"and {100 - 100 * whole:.0f}% of all"
    return [
        f"{plain(name)}: {100 - 100 * share:.0f}% of {number:,} {unit} are {wrong}, {of_all}."
        for name, (share, number) in sorted(weak.items(), key=lambda item: item[1])[:_MOST]
    ]


def _weak_scores(
    slices: Mapping[str, Any], shown: Mapping[str, Any], score: str, called: str, count: str, unit: str, factor: float
) -> list[str]:
    sign, whole = 1 if factor < 1 else -1, shown[score]
    weak = [
        (name, each)
        for name, each in slices.items()
        if each[count] >= _FEWEST and sign * each[score] < sign * factor * whole
    ]
    return [
        f"{plain(name)}: the {called} is {each[score]:.3g} on {each[count]:,} {unit}, and {whole:.3g} on all."
        for name, each in sorted(weak, key=lambda item: sign * item[1][score])[:_MOST]
    ]


def _weak_kinds(metrics: Mapping[str, Any]) -> list[str]:
    """Return sentences on the kinds of pairs, such as written forms of a date, of all parts."""
    shares = {}
    for part, scores in metrics.items():
        for name, number in scores.get("pairs_by_kind", {}).items():
            shares[f"{name} ({part.replace('_', ' ')})"] = (scores["exact_match_by_kind"][name], number)
    right = sum(share * number for share, number in shares.values())
    whole = right / max(1, sum(number for _, number in shares.values()))
    return _weak_shares(shares, whole, "texts", "not translated as in the reference")


def _weak_length(scores: Mapping[str, Any]) -> list[str]:
    rows = [row for row in scores["by_source_length"] if row["pairs"] >= _FEWEST and row["bleu"] < 0.9 * scores["bleu"]]
    return [
        f"Sources of {row['from']} {'or more' if row['to'] is None else 'to ' + str(row['to'])} words: BLEU is "
        f"{row['bleu']:.1f} on {row['pairs']:,} pairs, and {scores['bleu']:.1f} on all."
        for row in sorted(rows, key=lambda row: row["bleu"])[:1]
    ]


def dataset_fields(results: Mapping[str, Any], datasets: list[str], part: str) -> dict[str, str]:
    """Return the fields of the dataset of a part in a card's metadata: name, type, configuration, split, revision."""
    data = results.get("configuration", {}).get("data", {})
    fields = {"name": results["data"]["name"], "type": datasets[0] if datasets else results["data"]["name"]}
    if source := results.get("dataset"):
        fields |= {"type": source["id"], "revision": source["commit"]}
    if data.get("config"):
        fields["config"] = data["config"]
    named = data.get(part) if results.get("dataset") else None
    return {**fields, "split": named if isinstance(named, str) else part}

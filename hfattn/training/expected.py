"""Expected and recorded scores of each configuration, and the RESULTS.md page.

``<config>.expected.json`` is in the same folder as ``<config>.yaml``. It names the score by its path in
``results.json`` and has two variants of the run: ``tiny``, the configuration with overrides that make it run for a
minute on a CPU, and ``full``. The score of a run must be in the ``band`` of its variant; an ``aim`` is only reported as
reached or missed. Finished full runs are recorded in the file, and ``recipes/RESULTS.md`` is written from all these
files. Bands are computed from the scores of several seeds (``bands``), never typed.
"""

import dataclasses
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..files import read_json_object, write_json
from ..hub.card import read_results
from ..hub.consistency import check_consistency
from ..models.strict_config import unknown_name_message
from ..plots import length_label
from ..yaml_values import read_yaml
from .bands import (
    CPU_SHARE,
    FEWEST,
    WIDTH,
    band,
    deviation,
    limits,
    relative_deviation,
    sampling_error,
    transferred_deviation,
)
from .command import read_command
from .config import checked, load_config, split_overrides
from .selection import chosen_on, reported_on_its_own_choice

SUFFIX = ".expected.json"
PAGE = "RESULTS.md"
_CLOCKS = ("runtime", "per_second", "preparation_time")  # durations of an evaluation, which are not scores
GROUPS = ("by_slice", "by_word", "counterfactual")
_SEED = "training.seed"  # recorded in a separate field, not as an override
PLACES = {  # fields that say where data and models are
    *("data.dataset", "data.validation", "data.test", "data.config", "data.things", "data.vectors", "data.words"),
    *("data.text_column", "data.pair_column", "data.label_column", "data.part_column"),
    *("data.source_column", "data.target_column", "encoder.name", "model.name", "teacher.name", "tokenizer.name"),
    *("text.name", "vision.name", "contextual.name"),
}


# The file


@strict
@dataclass
class Variant:
    """A variant of a run."""

    band: list[float | int] | None = None  # lowest and highest score that it may have; None while unknown
    band_reason: str | None = None  # why an edge of the band is the best or the worst possible score

    def validate_band(self) -> None:
        if self.band is not None and not (len(self.band) == 2 and self.band[0] <= self.band[1]):
            raise ValueError(f"band is {self.band}; write [low, high], or null.")


@strict
@dataclass
class Recorded:
    """The facts of a finished run, copied from its results.json."""

    score: float | int
    seed: int
    overrides: list[str]  # command-line overrides, without the seed
    parameters: int
    hardware: dict[str, Any]
    training: dict[str, Any]  # steps, epochs, wall_time_seconds, ...
    data: dict[str, Any]
    metrics: dict[str, Any]  # scores by split and name
    versions: dict[str, str]
    signature: str | None = None  # signature of the metric: how the score was computed
    selection: dict[str, Any] | None = None  # parts on which the checkpoint and the settings were chosen

    def validate_training(self) -> None:
        for name in ("steps", "wall_time_seconds"):
            if not _is_number(self.training.get(name)):
                raise ValueError(f"training.{name} is {self.training.get(name)!r}; it must be a number.")

    def validate_hardware(self) -> None:
        if not isinstance(self.hardware.get("gpu", self.hardware.get("cpu")), str):
            raise ValueError("hardware has no name; write that of the gpu, or of the cpu and its threads.")


@strict
@dataclass
class TinyVariant(Variant):
    overrides: list[str] = field(default_factory=list)  # command-line arguments
    metric: str | None = None  # None: the metric of the full run
    scores: list[float | int] = field(default_factory=list)  # of seeds 1, 2, …, which give the band


@strict
@dataclass
class FullRun(Variant):
    aim: float | int | None = None  # target score; reached if the score is at least as good
    band_from: str | None = None  # seeds and deviation that give the band
    deviation_of: str | None = None  # configuration whose seeds give the deviation while this one has too few
    recorded: list[Recorded] = field(default_factory=list)


@strict
@dataclass
class Reference:
    """A published score for the same task."""

    value: float | int
    source: str  # paper and table
    note: str = ""  # model and protocol


@strict
@dataclass
class Expected:
    metric: str  # path of the score in results.json, with dots
    higher_is_better: bool
    tiny: TinyVariant
    full: FullRun
    reference: Reference | None = None

    def validate_metric(self) -> None:
        for metric in (self.metric, self.tiny.metric or self.metric):
            if not re.fullmatch(r"metrics\.[^.]+\..+", metric):
                raise ValueError(f"metric is {metric!r}; write the path of a score, such as metrics.test.accuracy.")

    def validate_bands(self) -> None:
        variants: tuple[Variant, ...] = (self.tiny, self.full)
        for variant, metric in zip(variants, (self.tiny.metric or self.metric, self.metric), strict=True):
            least, most = limits(metric)
            band = variant.band
            if band is not None and variant.band_reason is None and (band[0] <= least or band[1] >= most):
                raise ValueError(
                    f"band is {band}, and {metric} cannot be below {least:g} or above {most:g}; narrow the band, or "
                    "write a band_reason."
                )


def read_expected(path: Path) -> Expected:
    """Read and check an expected.json.

    Raises:
        UserError: it is missing or not JSON, or a field is unknown, missing, mistyped or out of range.
    """
    if not path.is_file():
        raise UserError(f"{path} was not found; a configuration's expected results stand beside its YAML file.")
    where = path.name
    sections = read_json_object(path)
    for name, schema in (("tiny", TinyVariant), ("full", FullRun), ("reference", Reference)):
        section = sections.get(name)
        if section is None and name == "reference":
            continue
        if schema is FullRun and isinstance(section, dict) and isinstance(section.get("recorded"), list):
            recorded = [_section(Recorded, run, f"{where}: full.recorded") for run in section["recorded"]]
            section = {**section, "recorded": recorded}
        sections[name] = _section(schema, {} if section is None else section, f"{where}: {name}")
    return _section(Expected, sections, where)


def write_expected(path: Path, expected: Expected) -> None:
    """Write an expected.json."""
    write_json(path, dataclasses.asdict(expected))


def _section(schema: type[Any], values: Any, where: str) -> Any:
    if not isinstance(values, dict):
        raise UserError(f"{where} is {values!r}; write an object of fields.")
    known = {each.name: each for each in dataclasses.fields(schema)}
    for name in values:
        if name not in known:
            raise UserError(f"{where}: {unknown_name_message(name, known, 'this file')}")
    for name, each in known.items():
        required = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise UserError(f"{where} lacks the field {name!r}; write it.")
    return checked(schema, values, prefix=f"{where}.")


# A finished run


@dataclass(frozen=True)
class FinishedRun:
    """A run that has written its results.json."""

    folder: Path
    results: dict[str, Any]
    overrides: dict[str, str]  # values from the command line, by the name of the field

    @property
    def name(self) -> str:
        return f"{self.results['recipe']}/{self.results['config']}"

    def score(self, metric: str) -> float:
        """Return the number at a path such as ``metrics.test.bleu``.

        Raises:
            UserError: the path does not exist; the message lists those that do.
        """
        value = self._at(metric)
        if not _is_number(value):
            places = ", ".join(f"metrics.{place}" for place in _places(self.results["metrics"]))
            raise UserError(f"{self.folder / 'results.json'} has no score {metric!r}; it has {places}.")
        return value

    def signature(self, metric: str) -> str | None:
        """Return the signature of the metric (how the score was computed), if results.json has it next to the score."""
        place, _, name = metric.rpartition(".")
        signatures: dict[str, str] = self._at(place).get("signatures", {})
        return signatures.get(name)

    def rows_by_length(self, part: str) -> list[dict[str, Any]]:
        """Return BLEU by source length, as rows of ``from``, ``to`` (words; None in the last row), ``pairs``, ``bleu``.

        Args:
            part: split of the data, such as ``test``, or one decoding method on it, such as ``test.beam``.

        Raises:
            UserError: the run has no such measurement.
        """
        rows: list[dict[str, Any]] | None = self._at(f"metrics.{part}.by_source_length")
        if not rows:
            parts = [name for name in self.results["metrics"] if self._at(f"metrics.{name}.by_source_length")]
            found = f"it has that for {', '.join(parts)}" if parts else "compare runs of the recipe translation"
            raise UserError(f"{self.folder / 'results.json'} has no BLEU by source length for {part!r}; {found}.")
        return rows

    def _at(self, place: str) -> Any:
        return _value_at(self.results, place)


def read_run(folder: Path) -> FinishedRun:
    """Read the results of a finished run.

    Raises:
        UserError: the folder or its results.json is missing, or was not written by a recipe.
    """
    if not folder.is_dir():
        raise UserError(f"The run folder {folder} was not found; give a folder that a recipe has written.")
    path = folder / "results.json"
    if not path.is_file():
        raise UserError(f"{folder} has no results.json: its run has not finished; continue it with --resume.")
    results = read_results(folder)
    needed = ("recipe", "config", "command", "seed", "metrics", "model", "training", "data", "hardware", "versions")
    for name in needed:
        if name not in results:
            raise UserError(f"{path} has no {name!r}, so no recipe wrote it; give the folder of a recipe's run.")
    try:
        words = shlex.split(results["command"])
    except ValueError:  # a quote without its end
        words = []
    scripts = [i for i, word in enumerate(words) if word.endswith(".py")]
    if not scripts or "--config" not in results["command"]:
        raise UserError(f"{path} has the command {results['command']!r}, which is not a recipe's; run a recipe.")
    command = read_command(results["recipe"], "", words[scripts[0] :])
    return FinishedRun(folder, results, dict(split_overrides(command.overrides)))


def _check_scores(run: FinishedRun) -> None:
    try:
        check_consistency(run.results)
    except AssertionError as error:
        raise UserError(f"{run.folder / 'results.json'} contradicts itself: {error}.") from None


def _value_at(values: Any, place: str) -> Any:
    """Return the value at a path with dots, or None if the path does not exist."""
    for name in place.split("."):
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_clock(name: str) -> bool:
    """Return whether a value of an evaluation is a duration."""
    return name.endswith(_CLOCKS)


def _numbers(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested scores, without durations and without scores by slice, except BLEU by source length."""
    kept: dict[str, Any] = {}
    for name, value in values.items():
        if is_clock(name) or "_by_" in name or name in GROUPS:
            continue
        if name == "by_source_length":
            kept[name] = {length_label(row): {"pairs": row["pairs"], "bleu": row["bleu"]} for row in value}
        elif _is_number(value):
            kept[name] = value
        elif isinstance(value, dict) and (nested := _numbers(value)):
            kept[name] = nested
    return kept


def _places(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of each number; names that contain a dot are skipped."""
    for name, value in values.items():
        if "." in name or is_clock(name):
            continue
        if isinstance(value, dict):
            yield from _places(value, f"{prefix}{name}.")
        elif _is_number(value):
            yield f"{prefix}{name}"


# Comparison with the band


@dataclass(frozen=True)
class Verdict:
    """Comparison of a run's score with the expected one."""

    run: str
    variant: str  # tiny, full
    metric: str
    score: float
    band: list[float | int]
    higher_is_better: bool
    aim: float | int | None = None
    own_choice: str | None = None  # what was chosen on the part that is reported

    @property
    def inside(self) -> bool:
        """Whether the score is in the band, and nothing was chosen on its part of the data."""
        return self.band[0] <= self.score <= self.band[1] and self.own_choice is None

    def __str__(self) -> str:
        low, high = self.band
        where = "inside"
        if not low <= self.score <= high:
            better = self.score > high if self.higher_is_better else self.score < low
            where = "outside, and better" if better else "outside"
        kind = "tiny variant" if self.variant == "tiny" else "full run"
        said = f"{self.run}, {kind}: {self.metric} is {self.score:.6g}, expected {low:g} to {high:g}: {where}"
        if self.aim is not None:
            said += f"; aim {self.aim:g}: {aim_word(self.score, self.aim, self.higher_is_better)}"
        if self.own_choice is not None:
            said += f"; refused: {self.own_choice}"
        return said


def aim_word(score: float, aim: float, higher_is_better: bool) -> str:
    """Return "reached" or "missed"."""
    return "reached" if (score >= aim if higher_is_better else score <= aim) else "missed"


def is_tiny(run: FinishedRun, expected: Expected) -> bool:
    """Return whether a run was started with all the overrides of the tiny variant."""
    tiny = dict(split_overrides(expected.tiny.overrides))
    return bool(tiny) and tiny.items() <= run.overrides.items()


def judge(run: FinishedRun, expected: Expected, tiny: bool | None = None) -> Verdict:
    """Compare a run with its band.

    Args:
        run: the finished run.
        expected: the expected scores of its configuration.
        tiny: whether to compare with the tiny variant; by default, the run's command determines the variant.

    Raises:
        UserError: the run lacks the score, its scores contradict each other, or its variant has no band yet.
    """
    _check_scores(run)
    tiny = is_tiny(run, expected) if tiny is None else tiny
    name = "tiny" if tiny else "full"
    metric = (expected.tiny.metric if tiny else None) or expected.metric
    score = run.score(metric)
    band = (expected.tiny if tiny else expected.full).band
    if band is None:
        raise UserError(
            f"{run.name} scored {score:.6g} ({metric}), and no {name} band is known yet; record {FEWEST} seeds with "
            "hfattn recipes record."
        )
    if tiny:
        return Verdict(run.name, name, metric, score, band, expected.higher_is_better)
    own_choice = reported_on_its_own_choice(metric, run.results.get("selection"))
    return Verdict(run.name, name, metric, score, band, expected.higher_is_better, expected.full.aim, own_choice)


# Recording


def differing_overrides(run: FinishedRun, schema: type[Any], config: Path) -> list[str]:
    """Return the overrides that differ from the YAML file, without the seed, as arguments in alphabetical order.

    Args:
        run: the finished run.
        schema: the recipe's ``Config``.
        config: the YAML file.

    Raises:
        UserError: the recipe has no such field.
    """
    given = [f"--{name}={value}" for name, value in run.overrides.items()]
    plain, trained = (dataclasses.asdict(load_config(schema, config, words)) for words in ([], given))
    words: list[str] = []
    for name, value in sorted(run.overrides.items()):
        if name != _SEED and _value_at(plain, name) != _value_at(trained, name):
            words += [f"--{name}", value]
    return words


def record_run(run: FinishedRun, expected: Expected, overrides: list[str]) -> Expected:
    """Add the facts of a full run. They replace those of an earlier run with the same seed and overrides.

    Raises:
        UserError: the run is of the tiny variant, lacks the score, or was chosen on the part that is reported; or its
            scores contradict each other.
    """
    _check_scores(run)
    if is_tiny(run, expected):
        raise UserError(f"{run.folder} is a run of the tiny variant of {run.name}; only full runs are recorded.")
    if own_choice := reported_on_its_own_choice(expected.metric, run.results.get("selection")):
        raise UserError(f"{run.folder} cannot be recorded: {own_choice}; report another part.")
    results = run.results
    new = checked(
        Recorded,
        {
            "score": run.score(expected.metric),
            "signature": run.signature(expected.metric),
            "seed": results["seed"],
            "overrides": overrides,
            "parameters": results["model"]["parameters"],
            "hardware": results["hardware"],
            "training": results["training"],
            "data": results["data"],
            "metrics": _numbers(results["metrics"]),
            "versions": results["versions"],
            "selection": results.get("selection"),
        },
        prefix=f"{run.folder / 'results.json'}.",
    )
    kept = [old for old in expected.full.recorded if (old.seed, old.overrides) != (new.seed, new.overrides)]
    recorded = sorted([*kept, new], key=lambda each: (each.overrides, each.seed))
    return dataclasses.replace(expected, full=dataclasses.replace(expected.full, recorded=recorded))


def own_runs(expected: Expected, config: Path) -> list[Recorded]:
    """Return the recorded runs with the settings of the YAML file, one for each seed.

    Overrides that only name other places of the data, or another model to begin from, are allowed: a run with files
    has them. Of several such groups, it is the one whose models have the names of the YAML file, then the one with the
    most seeds.
    """
    groups: dict[tuple[str, ...], list[Recorded]] = {}
    for run in expected.full.recorded:
        if all(map(_is_place, split_overrides(run.overrides))):
            groups.setdefault(tuple(run.overrides), []).append(run)
    if not groups:
        return []
    plain = read_yaml(config)

    def others(words: tuple[str, ...]) -> int:
        models = [(name, value) for name, value in split_overrides(list(words)) if name.endswith(".name")]
        return sum(Path(value).name != Path(str(_value_at(plain, name))).name for name, value in models)

    return groups[min(groups, key=lambda words: (others(words), -len(groups[words])))]


def _is_place(override: tuple[str, str]) -> bool:
    """Return whether an override only says where data or a model are. A run without a test part has another score."""
    return override[0] in PLACES and override != ("data.test", "null")


def runs_like(run: FinishedRun, expected: Expected, schema: type[Any], config: Path) -> list[Recorded]:
    """Return the recorded runs with the settings of a run, one for each seed; places may differ, as in ``own_runs``.

    Args:
        run: the finished run.
        expected: the expected scores of its configuration.
        schema: the recipe's ``Config``.
        config: the YAML file.

    Raises:
        UserError: the recipe has no field that the command of the run overrides.
    """

    def settings(words: list[str]) -> dict[str, str]:
        return {name: value for name, value in split_overrides(words) if not _is_place((name, value))}

    own = settings(differing_overrides(run, schema, config))
    if not own:
        return own_runs(expected, config)
    groups: dict[tuple[str, ...], list[Recorded]] = {}
    for each in expected.full.recorded:
        if settings(each.overrides) == own:
            groups.setdefault(tuple(each.overrides), []).append(each)
    return max(groups.values(), key=len, default=[])


def with_band(expected: Expected, config: Path) -> Expected:
    """Return the expected results with the band of the full run: mean ± 3 deviations of its recorded scores.

    The deviation is that over seeds, if there are at least three. Otherwise it is that of the configuration
    ``deviation_of``, as a share of the mean. It is at least the sampling error of a share. Without a deviation, there
    is no band.

    Args:
        expected: the expected scores.
        config: the YAML file; other configurations are in the folders beside its own.

    Raises:
        UserError: the configuration ``deviation_of`` does not exist or has too few seeds.
    """
    runs, metric, source = own_runs(expected, config), expected.metric, expected.full.deviation_of
    if not runs:
        return _banded(expected)
    scores = [run.score for run in runs]
    mean = sum(scores) / len(scores)
    said = f"{len(runs)} seed{'s' * (len(runs) > 1)}"
    spread = 0.0
    if len(runs) >= FEWEST:
        spread = deviation(scores)
    elif source is not None:
        share, seeds = _deviation_of(source, config.parent.parent)
        spread = transferred_deviation(share, mean, metric)
        said += f"; relative deviation of {seeds}"
    at, _, _ = metric.removeprefix("metrics.").rpartition(".")
    error = sampling_error(mean, metric, _value_at(runs[0].metrics, at) or {})
    if error > spread:
        said += "; sampling error of the examples"
    elif spread == 0:
        return _banded(expected)
    edges, reason = band(scores, metric, WIDTH * max(spread, error))
    return _banded(expected, edges, reason, said)


def with_tiny_band(expected: Expected, scores: Sequence[float]) -> Expected:
    """Return the expected results with the band of the tiny variant: mean ± 3 deviations over the seeds 1, 2, ….

    Half of the width is at least 2% of the mean, because the score differs between CPUs.
    """
    half = max(WIDTH * deviation(scores), CPU_SHARE * sum(scores) / len(scores))
    edges, reason = band(scores, expected.tiny.metric or expected.metric, half)
    tiny = dataclasses.replace(expected.tiny, scores=list(scores), band=edges, band_reason=reason)
    return dataclasses.replace(expected, tiny=tiny)


def _banded(
    expected: Expected, edges: list[float] | None = None, reason: str | None = None, source: str | None = None
) -> Expected:
    full = dataclasses.replace(expected.full, band=edges, band_reason=reason, band_from=source)
    return dataclasses.replace(expected, full=full)


def _deviation_of(name: str, recipes: Path) -> tuple[float, str]:
    """Return the relative deviation over the recorded seeds of a configuration, or over those of its tiny variant.

    The seeds are those with the settings of the YAML file, or if these are too few, those of the most runs alike.
    """
    other = read_expected(recipes / f"{name}{SUFFIX}")
    own = [run.score for run in own_runs(other, recipes / f"{name}.yaml")]
    groups: dict[tuple[str, ...], list[float]] = {}
    for run in other.full.recorded:
        groups.setdefault(tuple(run.overrides), []).append(run.score)
    scores = own if len(own) >= FEWEST else max(groups.values(), key=len, default=[])
    if len(scores) >= FEWEST:
        return relative_deviation(scores, other.metric), f"{name}, {len(scores)} seeds"
    if len(other.tiny.scores) >= FEWEST:
        metric = other.tiny.metric or other.metric
        return relative_deviation(other.tiny.scores, metric), f"the tiny {name}, {len(other.tiny.scores)} seeds"
    raise UserError(f"full.deviation_of names {name}, which has no {FEWEST} seeds; name another configuration.")


# The page of all results

_HEAD = """# Results

Generated by `hfattn recipes record RUN...` from the `*.expected.json` beside each configuration. These files also have
the other scores of each run, its data and the versions of the libraries. Each row is one run. A run must land in its
band, which `hfattn recipes check` verifies; an aim is a score that we want. A reference is a published score, often of
a larger model or in another protocol. The time is that of the training, evaluations and checkpoints included.
"Chosen on" names the parts of the data on which the checkpoint and the settings were compared.
"""
_COLUMNS = (
    "configuration", "score", "chosen on", "band", "aim", "reference", "parameters", "steps", "time", "hardware",
    "seed",
)  # fmt: skip


def expected_files(recipes: Path) -> list[Path]:
    """Return the expected.json files of all recipes."""
    return sorted(recipes.glob(f"*/*{SUFFIX}"))


def results_page(recipes: Path) -> str:
    """Return RESULTS.md: a row for each recorded run of each recipe, then the configurations without one.

    Raises:
        UserError: an expected.json is wrong.
    """
    lines, missing = [_HEAD], []
    tables: dict[str, list[tuple[str, ...]]] = {}
    signatures: dict[str, dict[str, None]] = {}
    for path in expected_files(recipes):
        recipe, config = path.parent.name, path.name.removesuffix(SUFFIX)
        expected = read_expected(path)
        if not expected.full.recorded:
            missing.append(f"- {recipe}/{config}")
        for run in expected.full.recorded:
            tables.setdefault(recipe, []).append(_row(config, expected, run))
            if run.signature:
                name = metric_name(metric_of(run, expected))
                signatures.setdefault(recipe, {})[f"- {name}: `{run.signature}`"] = None
    for recipe, rows in tables.items():
        lines += [f"## {recipe}", ""]
        lines += [f"| {' | '.join(row)} |" for row in (_COLUMNS, ("---",) * len(_COLUMNS), *rows)]
        if recipe in signatures:
            lines += ["", "Signatures:", "", *signatures[recipe]]
        lines.append("")
    if missing:
        lines += ["## Not recorded", "", "Configurations without a recorded full run:", "", *missing, ""]
    return "\n".join(lines)


def _row(config: str, expected: Expected, run: Recorded) -> tuple[str, ...]:
    band = aim = reference = "–"
    if expected.full.band is not None:
        low, high = expected.full.band
        band = f"{low:g} to {high:g}" + ("" if low <= run.score <= high else " (outside)")
    if expected.full.aim is not None:
        aim = f"{expected.full.aim:g} ({aim_word(run.score, expected.full.aim, expected.higher_is_better)})"
    if expected.reference is not None:
        note = f"; {expected.reference.note}" if expected.reference.note else ""
        reference = f"{expected.reference.value:g} ({expected.reference.source}{note})"
    metric = metric_of(run, expected)
    own_choice = reported_on_its_own_choice(metric, run.selection)
    name = f"`{config}`" + (f" `{shlex.join(run.overrides)}`" if run.overrides else "")
    cells = (
        name,
        f"{run.score:.4g} {metric_name(metric)}",
        chosen_on(run.selection) + (" (the part that is reported)" if own_choice else ""),
        band,
        aim,
        reference,
        f"{run.parameters:,}",
        f"{run.training['steps']:,}",
        duration(run.training["wall_time_seconds"]),
        _hardware(run.hardware),
        str(run.seed),
    )
    return tuple(cell.replace("|", "\\|") for cell in cells)


def metric_of(run: Recorded, expected: Expected) -> str:
    """Return the metric of a run: that of its configuration, on the validation part if the run had no test part."""
    return expected.metric if "test" in run.metrics else expected.metric.replace("metrics.test.", "metrics.validation.")


def metric_name(metric: str) -> str:
    """Return ``exact match (test)`` for ``metrics.test.exact_match``."""
    _, part, *name = metric.split(".")
    return f"{' '.join(name).replace('_', ' ')} ({part.replace('_', ' ')})"


def duration(seconds: float) -> str:
    """Return a training time as in the table of results: ``58 s``, ``20 min``, ``1 h 45 min``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def _hardware(hardware: Mapping[str, Any]) -> str:
    name = str(hardware.get("gpu") or hardware["cpu"])
    parts = [name] if "gpu" in hardware else [name, f"{hardware['threads']} threads"]
    if hardware.get("processes", 1) > 1:
        parts.append(f"{hardware['processes']} processes")
    return ", ".join(parts).replace(" 1 threads", " 1 thread")


# Comparison of several runs


def by_length(runs: Sequence[FinishedRun], part: str) -> dict[str, list[dict[str, Any]]]:
    """Return BLEU by source length for each run name. All runs must be evaluated on the same pairs.

    Args:
        runs: one or more finished runs.
        part: part of the data, such as test.

    Raises:
        UserError: a run has no such measurement, or its pairs have different lengths.
    """
    names = [str(run.results["config"]) for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    tables = {name: run.rows_by_length(part) for name, run in zip(names, runs, strict=True)}
    first, *others = tables
    for other in others:
        groups = [[(row["from"], row["to"], row["pairs"]) for row in tables[name]] for name in (first, other)]
        if groups[0] != groups[1]:
            raise UserError(
                f"{first} and {other} were measured on different pairs; compare runs with the same data and split."
            )
    return tables


def length_table(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the tables of ``by_length`` as text: a line for each range of lengths, a column for each run."""
    widths = [max(8, len(name) + 2) for name in tables]
    heads = "".join(f"{name:>{width}}" for name, width in zip(tables, widths, strict=True))
    lines = [f"{'words':10}{'pairs':>8}{heads}"]
    for rows in zip(*tables.values(), strict=True):
        scores = "".join(f"{row['bleu']:{width}.2f}" for row, width in zip(rows, widths, strict=True))
        lines.append(f"{length_label(rows[0]):10}{rows[0]['pairs']:8d}{scores}")
    return "\n".join(lines)

"""Train a recorded run again, and compare its weights and scores with the record."""

import copy
import dataclasses
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import file_digest, sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import CommitOperationAdd, HfApi, get_token

from .clean_process import FINGERPRINTS
from .errors import INTERRUPTED, UserError
from .files import read_json, read_json_object, write_json
from .hub.code_findings import printable
from .hub.consistency import check_consistency
from .hub.manifest import MANIFEST, STATEMENTS
from .hub.measuring import read_recorded, recorded_data
from .hub.push import check_repository_name
from .hub.signing import Key, sign
from .hub.statements import EXACT, NOT, WITHIN, requests_of, same_statement, title_of
from .hub_access import hub_errors, no_token
from .resources import load_recipe, recipe_folders, resource
from .training.command import leaves
from .training.config import build_section, load_config
from .training.expected import PLACES, FinishedRun, read_run
from .training.results import PACKAGES, hardware, hfattn_commit, versions
from .training.tolerances import SeedTolerances, is_of_a_whole_part, numbers, tolerance_of_rounding

EXIT_CODES = {EXACT: 0, WITHIN: 3, NOT: 1}
RESULTS = "results.json"
_SETTABLE = PLACES | {"data.unlabeled"}
# Fields of JSON files that depend on the installation, and on whether the Hub was reachable.
_OF_AN_INSTALLATION = ("transformers_version", "peft_version", "local_files_only", "is_local")
# Fields of TrainingArguments that reach beyond the folder of the run, and do not change its weights.
_REACHING = re.compile(r"hub_\w+|push_to_hub|trackio_\w+|project|report_to|resume_from_checkpoint|run_name")


@dataclass(frozen=True)
class Plan:
    """A training that repeats a recorded run.

    Attributes:
        run: the recorded run.
        schema: the ``Config`` of its recipe.
        configuration: the recorded configuration, with the places given.
        options: the options of the recorded command that agree with it.
        differences: what is not as recorded: versions, hardware, the commit of hfattn; the recorded value and that
            of this computer.
        notes: what contradicts itself in the record.
    """

    run: FinishedRun
    schema: type[Any]
    configuration: dict[str, Any]
    options: list[str]
    differences: dict[str, tuple[str, str]]
    notes: list[str]

    def __str__(self) -> str:
        lines = [f"{self.run.folder}: {self.run.name}, seed {self.run.results['seed']}"]
        lines += [f"{name}: {here} here, {there} recorded" for name, (there, here) in self.differences.items()]
        # Only these: a record may name any package.
        known = [(name, *self.differences[name]) for name in PACKAGES[1:] if name in self.differences]
        packages = [f"{name}=={there}" for name, there, _ in known if re.fullmatch(r"\d[\w.+]*", there)]
        if packages:
            lines.append(f"For the recorded versions: pip install {' '.join(packages)}")
        return "\n".join(printable(line) for line in [*lines, *(f"Note: {note}" for note in self.notes)])


@dataclass(frozen=True)
class Score:
    """A score of the record and of the reproduction.

    Attributes:
        place: its path in ``results.json``.
        recorded, found: its values; None if the record, or the reproduction, lacks it.
        tolerance: the largest difference that is allowed.
        source: where the tolerance comes from.
    """

    place: str
    recorded: float | None
    found: float | None
    tolerance: float | None = None
    source: str | None = None

    @property
    def agrees(self) -> bool:
        if self.recorded is None or self.found is None or self.tolerance is None:
            return False
        return self.recorded == self.found or abs(self.recorded - self.found) <= self.tolerance


@dataclass(frozen=True)
class Reproduction:
    """The comparison of a run with its record.

    Attributes:
        plan: how it was trained.
        seconds: how long that took.
        weights: SHA-256 of each file of weights of the reproduction.
        files: for each file of the model, whether it is the recorded one.
        same_digits: how many scores are the recorded ones to the last digit, and of how many.
        scores: the scores of whole parts, unless all digits are the same.
        problems: what else is not as recorded.
    """

    plan: Plan
    seconds: float
    weights: dict[str, str]
    files: dict[str, bool]
    same_digits: tuple[int, int]
    scores: list[Score]
    problems: list[str]

    @property
    def verdict(self) -> str:
        same, number = self.same_digits
        if all(self.files.values()) and same == number and not self.problems:
            return EXACT
        return WITHIN if all(score.agrees for score in self.scores) and not self.problems else NOT

    def __str__(self) -> str:
        recorded = self.plan.run.results["training"].get("wall_time_seconds")
        lines = [f"Trained and evaluated in {self.seconds:.0f} s; {recorded} s of training are recorded."]
        lines += [f"{'same' if same else 'differs':9}{name}" for name, same in sorted(self.files.items())]
        same, number = self.same_digits
        lines.append(f"{same:,} of {number:,} scores are the same to the last digit.")
        for score in self.scores:
            if score.recorded == score.found:
                continue
            word = "agrees" if score.agrees else "DIFFERS"
            then, now = ("none" if each is None else f"{each:.6g}" for each in (score.recorded, score.found))
            allowed = "" if score.tolerance is None else f", tolerance {score.tolerance:.2g} ({score.source})"
            lines.append(f"{word:9}{score.place}: {now}, {then} recorded{allowed}")
        lines += [f"{'DIFFERS':9}{problem}" for problem in self.problems]
        return "\n".join(printable(line) for line in [*lines, f"{self.plan.run.folder}: {self.verdict}."])

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.plan.run.name,
            "seed": self.plan.run.results["seed"],
            "verdict": self.verdict,
            "weights": self.weights,
            "same_files": self.files,
            "same_scores": self.same_digits[0],
            "compared_scores": self.same_digits[1],
            "scores": [{**asdict(score), "agrees": score.agrees} for score in self.scores],
            "problems": self.problems,
            "notes": self.plan.notes,
            "differences": {
                name: {"recorded": there, "here": here} for name, (there, here) in self.plan.differences.items()
            },
            "environment": {**versions(), "commit": hfattn_commit(), **hardware()},
            "seconds": round(self.seconds, 1),
        }


def plan_reproduction(folder: Path, places: Sequence[str] = (), settings: Mapping[str, str] | None = None) -> Plan:
    """Read the record of a run, and check all that can be checked before its training.

    Nothing of the folder is run: the recipe is that of the installed hfattn, and the configuration is checked by it.
    Settings that upload or report are left out.

    Args:
        folder: the run folder.
        places: where the data are; see ``hfattn.hub.measuring.plan_measurement``.
        settings: other fields of the configuration that name a place, such as ``model.name``.

    Raises:
        UserError: the folder has no record of a recipe, the installed hfattn has no such recipe or refuses the
            configuration, the data are missing or not those of the run, or a field names no place.
    """
    if not (folder / RESULTS).is_file():
        raise UserError(f"{folder} has no {RESULTS}, so nothing says how it was trained; give the folder of a run.")
    run = read_run(folder)
    results = run.results
    if "unfinished" in results:
        raise UserError(f"The files of {folder} are not complete; run hfattn card {folder}.")
    if results["recipe"] not in [each.name for each in recipe_folders()]:
        known = ", ".join(each.name for each in recipe_folders())
        raise UserError(
            f"{folder} was made by the recipe {results['recipe']!r}, which this hfattn does not have; it has {known}."
        )
    recipe = load_recipe(resource("recipes", results["recipe"], "train.py"))
    configuration = _configuration(recipe, run, places, settings or {})
    try:
        read_recorded(build_section(recipe.DataConfig, dict(configuration["data"]), "data."), results)
    except AssertionError as error:
        raise UserError(f"The data are not those of {folder}: {error}.") from None
    except (AttributeError, LookupError, TypeError) as error:
        raise _not_a_record(folder, error) from error
    recipe.validate(build_section(recipe.Config, configuration, ""))
    options, notes = _options(recipe, run, configuration)
    try:
        check_consistency(results)
    except AssertionError as error:
        notes.append(str(error))
    return Plan(run, recipe.Config, configuration, options, _differences(results), notes)


def _not_a_record(folder: Path, error: Exception) -> UserError:
    reason = printable(f"{type(error).__name__}: {error}", 200)
    return UserError(f"{folder / RESULTS} does not say how the run was trained ({reason}); copy the file again.")


def _configuration(recipe: Any, run: FinishedRun, places: Sequence[str], settings: Mapping[str, str]) -> dict[str, Any]:
    """Return the recorded configuration with the places given, without settings that reach beyond the run folder."""
    results = run.results
    try:
        configuration = copy.deepcopy(results["configuration"])
        data = recorded_data(recipe, configuration["data"], places)
        if isinstance(data, str):
            raise UserError(f"The data of {run.folder} are not named: {data}.")
        configuration["data"] = asdict(data)
        training = configuration["training"]
        for name in [name for name in training if _REACHING.fullmatch(name)]:
            del training[name]
        if isinstance(recipe.Config().training, dict):
            training["report_to"] = []
        precision = results["training"].get("precision")
        if precision is not None and training.get("bf16") == "auto":
            training["bf16"] = precision == "bfloat16"
        if configuration.get("matmul") == "auto":
            configuration["matmul"] = results["training"]["matmul"]
    except (AttributeError, LookupError, TypeError) as error:
        raise _not_a_record(run.folder, error) from error
    for field, value in settings.items():
        section, _, name = field.partition(".")
        if field not in _SETTABLE or not isinstance(configuration.get(section), dict):
            raise UserError(
                f"--set {field} would change the run; only fields that name a place can be set, such as model.name."
            )
        configuration[section][name] = value
    if any(section.get("trust_remote_code") for section in configuration.values() if isinstance(section, dict)):
        raise UserError(
            f"{run.folder} was trained with trust_remote_code, which runs code of another repository; read it, and "
            "train the run yourself."
        )
    return configuration


def _options(recipe: Any, run: FinishedRun, configuration: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the options of the recorded command that agree with a configuration, and where that differs from both.

    The options change nothing; with them the reproduction records the command of the run.
    """
    words = [f"--{name}={value}" for name, value in run.overrides.items()]
    with _yaml_file(configuration, run.results["config"]) as path:
        config = load_config(recipe.Config, path)
        options = [word for word in words if load_config(recipe.Config, path, [word]) == config]
    own = resource("recipes", f"{run.name}.yaml")
    if not own.is_file():
        return options, []
    recorded = build_section(recipe.Config, run.results["configuration"], "")
    here, there = (dict(leaves(asdict(each))) for each in (load_config(recipe.Config, own, words), recorded))
    differing = [name for name in sorted(here.keys() & there.keys()) if here[name] != there[name]]
    return options, [
        f"{name} is {there[name]!r} in the recorded configuration, which is used, and {here[name]!r} by the recorded "
        f"command with the installed {run.name}"
        for name in differing
        if name not in _SETTABLE and not name.startswith(("card.", "sample."))
    ]


@contextmanager
def _yaml_file(configuration: Mapping[str, Any], name: str) -> Iterator[Path]:
    with TemporaryDirectory(prefix="hfattn-") as scratch:
        stem = name if re.fullmatch(r"[\w-]+", name) else "config"  # a stranger may have recorded any text
        path = Path(scratch) / f"{stem}.yaml"
        path.write_text(yaml.safe_dump(dict(configuration), sort_keys=False, allow_unicode=True), encoding="utf-8")
        yield path


def _differences(results: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return what is not as recorded, as (recorded, here)."""
    machine, commit = hardware(), {"commit of hfattn": results.get("commit")}
    recorded = {**results["versions"], **commit, **{name: results["hardware"].get(name) for name in ("cpu", "gpu")}}
    here = {**_versions(results["versions"]), "commit of hfattn": hfattn_commit(), **machine}
    if "gpu" in results["hardware"]:
        del recorded["cpu"]
    return {
        name: (str(there or "none"), str(here.get(name) or "none"))
        for name, there in recorded.items()
        if there != here.get(name)
    }


def _versions(names: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = platform.python_version() if name == "python" else version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


Train = Callable[[list[str], Mapping[str, str]], int]


def train_again(plan: Plan, folder: Path, train: Train) -> float:
    """Train and evaluate in a new folder, and return the seconds that it took.

    The kind of device and the number of threads and processes are those of the record.

    Args:
        plan: the plan.
        folder: an empty folder.
        train: function that runs a command (``python`` or ``accelerate`` and its arguments) with additional
            environment variables, and returns its exit code.

    Raises:
        UserError: the training ended with an error.
        KeyboardInterrupt: Ctrl-C ended it.
    """
    machine = plan.run.results["hardware"]
    processes = machine.get("processes") or 1
    variables = {} if "gpu" in machine else {"ACCELERATE_USE_CPU": "true"}
    if isinstance(machine.get("threads"), int):
        variables["OMP_NUM_THREADS"] = str(machine["threads"])
    launcher = ["python"]
    if processes > 1:
        launcher = ["accelerate", "launch", "--multi_gpu", "--num_processes", str(processes)]
    script = resource("recipes", plan.run.results["recipe"], "train.py")
    start = time.monotonic()
    with _yaml_file(plan.configuration, plan.run.results["config"]) as path:
        words = [str(script), "--config", str(path), "--output_dir", str(folder), *plan.options]
        code = train([*launcher, *words], variables)
    if code == INTERRUPTED:
        raise KeyboardInterrupt("Interrupted. Nothing was kept.")
    if code != 0:
        raise UserError(f"The training ended with exit code {code}; its messages are above.")
    return time.monotonic() - start


def compare(plan: Plan, folder: Path, seconds: float = 0.0) -> Reproduction:
    """Compare a run with the record that it repeats.

    Args:
        plan: the plan.
        folder: the run folder of the reproduction.
        seconds: how long it took.
    """
    run = plan.run
    new = read_json_object(folder / RESULTS)
    weights = {path.name: _hash(path) for path in sorted(folder.glob("*.safetensors")) if path.name != FINGERPRINTS}
    files = {name: _hash_of(run.folder / name) == found for name, found in weights.items()}
    files |= {
        path.name: _settings(run.folder / path.name) == _settings(path)
        for path in sorted(folder.glob("*.json"))
        if path.name not in (RESULTS, MANIFEST)
    }
    then, now = (dict(numbers(results["metrics"])) for results in (run.results, new))
    same = sum(then.get(path) == value for path, value in now.items())
    number = len(then.keys() | now.keys())
    scores = []
    if same < number:
        same_weights = all(files[name] for name in weights)
        same_kind = not {"torch", "transformers", "tokenizers", "cpu", "gpu"} & plan.differences.keys()
        of_seeds = SeedTolerances(run, plan.schema)
        for path in then.keys() | now.keys():
            score = Score(".".join(("metrics", *path)), then.get(path), now.get(path))
            if path not in now:
                allowed = None
            elif same_weights:
                allowed = tolerance_of_rounding(path, now[path], _beside(new["metrics"], path), same_kind)
            elif not is_of_a_whole_part(path):
                continue
            else:
                allowed = of_seeds.of(path, now[path], _beside(new["metrics"], path))
            if allowed is not None:
                score = dataclasses.replace(score, tolerance=allowed.width, source=allowed.source)
            if is_of_a_whole_part(path) or (same_weights and same_kind and not score.agrees):
                scores.append(score)
    problems = [
        f"the {what} is {found}, and {printable(str(there), 80)} is recorded"
        for what, there, found in _other_facts(run.results, new)
        if there != found
    ]
    return Reproduction(
        plan, seconds, weights, files, (same, number), sorted(scores, key=lambda each: each.place), problems
    )


def _other_facts(recorded: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in ("steps", "parameters"):
        section = "training" if name == "steps" else "model"
        yield f"number of {name}", recorded[section].get(name), new[section].get(name)
    parts = new["data"].get("parts", {"whole": new["data"]})
    for part, facts in parts.items():
        there = recorded["data"].get("parts", {"whole": recorded["data"]}).get(part)
        yield (
            f"SHA-256 of the data ({part})",
            there.get("sha256") if isinstance(there, dict) else there,
            facts["sha256"],
        )


def _beside(metrics: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    beside: Any = metrics
    for name in path[:-1]:
        beside = beside[int(name)] if isinstance(beside, list) else beside[name]
    return beside if isinstance(beside, Mapping) else {}


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _hash_of(path: Path) -> str | None:
    return _hash(path) if path.is_file() else None


def _settings(path: Path) -> Any:
    """Return the content of a JSON file without what depends on the installation; None if it is missing or damaged."""
    try:
        content = read_json(path)
    except UserError:
        return None
    if isinstance(content, dict):
        return {name: value for name, value in content.items() if name not in _OF_AN_INSTALLATION}
    return content


# The statement


def check_statement(name: str) -> str:
    """Return the account that can open a pull request, before a long training.

    Raises:
        UserError: the name is not that of a repository, there is no token, or the Hub cannot be reached.
    """
    check_repository_name(name)
    if get_token() is None:
        raise no_token()
    with hub_errors(name, writing=True):
        return str(HfApi().whoami()["name"])


def propose_statement(name: str, commit: str, account: str, reproduction: Reproduction, key: Key | None = None) -> str:
    """Open a pull request with the result as a JSON file in ``.reproductions/``, and return its address.

    If an open one of this account says the same of the same commit, no second one is opened: the answer to the first
    may have been lost.

    Args:
        name: the repository.
        commit: its commit that was reproduced.
        account: whose token it is.
        reproduction: the result.
        key: what signs the file, if anything: the file of a private key, or "keyless"; the signature is the file
            ``*.json.sig`` beside it.

    Raises:
        UserError: the key cannot be read, Sigstore does not sign, or the Hub refuses the pull request or cannot be
            reached.
    """
    now = datetime.now(UTC)
    results = (reproduction.plan.run.folder / RESULTS).read_bytes()
    statement = {
        "repository": name,
        "commit": commit,
        "results_sha256": sha256(results).hexdigest(),
        "by": account,
        "date": now.isoformat(timespec="seconds"),
        **reproduction.to_dict(),
    }
    api, title = HfApi(), title_of(reproduction.verdict)
    with TemporaryDirectory(prefix="hfattn-") as scratch, hub_errors(name, writing=True):
        for request in requests_of(api, name, "model", account, title, "open"):
            if _proposes(api, name, request.git_reference, statement):
                return str(request.url)
        path = Path(scratch) / f"{now:%Y-%m-%d}-{account}.json"
        write_json(path, statement)
        if key is not None:
            sign(path, key, path.with_name(f"{path.name}.sig"))
        done = api.create_commit(
            name,
            [CommitOperationAdd(f"{STATEMENTS}/{each.name}", each) for each in sorted(path.parent.iterdir())],
            commit_message=title,
            commit_description=f"```text\n{str(reproduction).replace(str(reproduction.plan.run.folder), name)}\n```",
            create_pr=True,
        )
    return str(done.pr_url)


def _proposes(api: HfApi, name: str, revision: str | None, statement: Mapping[str, Any]) -> bool:
    """Return whether a pull request proposes a statement, made at any time."""
    for entry in api.list_repo_tree(name, STATEMENTS, revision=revision):
        if entry.path.endswith(f"-{statement['by']}.json"):
            there = read_json_object(Path(api.hf_hub_download(name, entry.path, revision=revision)))
            if same_statement(there, statement):
                return True
    return False

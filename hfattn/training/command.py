"""The command line of a recipe, and the folder of its run."""

import argparse
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import yaml
from filelock import FileLock, Timeout
from transformers.utils.logging import disable_progress_bar, enable_progress_bar, is_progress_bar_enabled

from ..data.report import FILE, DataReport
from ..errors import UserError
from ..files import read_json_object, write_at_once
from ..yaml_values import read_yaml
from .config import split_overrides
from .selection import read_search

if TYPE_CHECKING:
    from transformers import TrainingArguments

STARTED = Path("checkpoints") / "recipe.yaml"  # the configuration that a run was started with
LOGS = "TENSORBOARD_LOGGING_DIR"  # environment variable
LOCK = Path("checkpoints") / ".lock"  # held by the process that trains; the system releases it when that ends
# What may change when a run is resumed: how long it trains, and what does not change its weights.
_MAY_CHANGE = ("card", "sample", "publish")
_MAY_CHANGE_IN_TRAINING = (
    "num_train_epochs",
    "max_steps",
    "dataloader_num_workers",
    "dataloader_prefetch_factor",
    "disable_tqdm",
    "logging_first_step",
    "logging_steps",
    "logging_strategy",
    "project",
    "report_to",
    "run_name",
)
_ABSENT = object()


@dataclass(frozen=True)
class RecipeCommand:
    """The command line of a recipe.

    Attributes:
        recipe: name of the recipe.
        config: the YAML file.
        run: the run folder.
        resume: whether to continue the run in that folder.
        overrides: command-line arguments that change fields of the YAML file.
        argv: the whole command line, from the script on, as results.json records it.
        push_to: repository on the Hub to push the finished run to, if any.
        push_private: whether to create that repository as private.
        search: search.json of the search that chose the settings, if any.
        datasets: a ``Dataset`` or ``DatasetDict`` to train on instead of ``data.dataset``, if any.
    """

    recipe: str
    config: Path
    run: Path
    resume: bool
    overrides: list[str]
    argv: list[str]
    push_to: str | None = None
    push_private: bool = False
    search: Path | None = None
    datasets: Any = None

    @property
    def _writes(self) -> bool:
        """Whether this process writes the files of the run.

        Only this process checks the folder, because the others could find files that it has just written.
        """
        return int(os.environ.get("RANK", "0")) == 0

    @cached_property
    def chosen_settings(self) -> dict[str, Any] | None:
        """How the settings were chosen, or None if no search is given; read once, when the run starts.

        Raises:
            UserError: as ``read_search``.
        """
        return None if self.search is None else read_search(self.search, dict(split_overrides(self.overrides)))

    @cached_property
    def _lock(self) -> FileLock:
        # In one process, all objects for a path are one, so a process may train again what it stopped training.
        return FileLock(self.run.absolute() / LOCK, timeout=0, is_singleton=True)

    def _claim_lock(self) -> None:
        try:
            self._lock.acquire()
        except Timeout:
            raise UserError(
                f"Another process is training in {self.run}; wait until it ends, or choose another folder with "
                "--output_dir."
            ) from None

    @property
    def _ended_early(self) -> bool:
        """Whether the folder has nothing but what a run writes before it trains, so that nothing can be lost."""
        written = {path.relative_to(self.run) for path in (*self.run.iterdir(), *self.run.glob("checkpoints/*"))}
        return STARTED in written and written <= {STARTED.parent, STARTED, LOCK, Path("logs"), Path(FILE)}

    def check_run(self) -> None:
        """Make sure that the run may write to its folder.

        Raises:
            UserError: the folder holds a finished run, or files other than a run to resume or one that ended before it
                trained, or another process trains there, or the settings are not those of the given search.
        """
        _ = self.chosen_settings
        if not self._writes or not self.run.exists():
            return
        if not self.run.is_dir():
            raise UserError(f"{self.run} is a file; choose a folder with --output_dir.")
        if (self.run / LOCK).exists():
            self._claim_lock()
        if (self.run / "results.json").exists():
            if "unfinished" in read_json_object(self.run / "results.json"):
                raise UserError(f"The training in {self.run} has ended, but not its files; run hfattn card {self.run}.")
            raise UserError(f"{self.run} already holds a finished run; choose another folder with --output_dir.")
        if any(self.run.iterdir()):
            if not self.resume and not self._ended_early:
                raise UserError(
                    f"{self.run} is not empty; continue its run with --resume, or choose another with --output_dir."
                )
            if not (self.run / STARTED).exists():
                raise UserError(f"{self.run} has no run to resume; choose another folder with --output_dir.")

    def start(self, arguments: "TrainingArguments") -> None:
        """Check that the run may write to its folder, set the folder of its logs, and seed all random generators.

        Raises:
            UserError: under the same conditions as ``check_run``.
        """
        from transformers import set_seed

        self.check_run()
        os.environ.setdefault(LOGS, str(self.run / "logs"))
        disable_progress_bar()  # bars for the shards of each checkpoint would interrupt the lines of ProgressLines
        set_seed(arguments.seed)

    def claim_run(self, config: Any, **facts: Any) -> None:
        """Lock the run folder and record the configuration, or check that a resumed run has the recorded one.

        Args:
            config: the recipe's configuration.
            facts: other facts that must not change when the run is resumed: the data, the number of processes.

        Raises:
            UserError: another process trains in the folder, or a field that changes the weights differs; the message
                has both values.
        """
        if not self._writes:
            return
        (self.run / LOCK).parent.mkdir(parents=True, exist_ok=True)
        self._claim_lock()
        now = {**dataclasses.asdict(config), "run": facts}
        path = self.run / STARTED
        again = path.exists() and not self.resume
        if (self.run / "results.json").exists() or (again and not self._ended_early):
            raise UserError(
                f"Another process has trained in {self.run} in the meantime; choose another folder with --output_dir."
            )
        if again:
            shutil.rmtree(self.run / "logs", ignore_errors=True)
            (self.run / FILE).unlink(missing_ok=True)
        elif path.exists():
            started = read_yaml(path)
            if not isinstance(started, dict):
                raise UserError(f"{path} is damaged; choose another folder with --output_dir.")
            before, after = (dict(leaves(each)) for each in (started, now))
            for name in after | before:
                old, new = (fields.get(name, _ABSENT) for fields in (before, after))
                if old != new and not _may_change(name):
                    raise UserError(
                        f"The run in {self.run} was started with {_difference(name, old, new)}; resume it with the "
                        "same, or choose another folder with --output_dir."
                    )
        write_at_once(path, yaml.safe_dump(now, sort_keys=False, allow_unicode=True))

    def report_data(self, config: Any, parts: Mapping[str, Any], *tokenizers: Any) -> None:
        """Print the warnings of ``config.data.report``, and write the report to the run folder; not for generated data.

        Args:
            config: the recipe's configuration.
            parts: the examples of each part.
            tokenizers: the tokenizer of the model, if it has one, and that of a translator's targets.
        """
        if self._writes and config.data.is_own:
            options = {"target_tokenizer": tokenizers[1]} if len(tokenizers) > 1 else {}
            languages = config.card.language
            self.write_report(config.data.report(parts, self.datasets, *tokenizers[:1], languages=languages, **options))

    def write_report(self, report: DataReport) -> None:
        """Print the warnings of a report, and write it to the run folder."""
        if self._writes:
            print(*report.lines, sep="\n", end="\n" * bool(report.lines), file=sys.stderr, flush=True)
            write_at_once(self.run / FILE, report.to_markdown())

    def unlock(self) -> None:
        """Let other processes train in the run folder, or read what this one has written."""
        self._lock.release(force=True)


@contextmanager
def restoring(command: RecipeCommand) -> Iterator[None]:
    """Undo at the end what a recipe changes in its process, for a process that goes on: a notebook or a search."""
    logs, bars = os.environ.get(LOGS), is_progress_bar_enabled()
    try:
        yield
    finally:
        command.unlock()
        if logs is None:
            os.environ.pop(LOGS, None)
        if bars:
            enable_progress_bar()


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested sections by their names with dots."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _may_change(name: str) -> bool:
    section, _, field = name.partition(".")
    return section in _MAY_CHANGE or (section == "training" and field in _MAY_CHANGE_IN_TRAINING)


def _difference(name: str, old: Any, new: Any) -> str:
    section, _, fact = name.partition(".")
    if section == "run" and fact != "processes":  # a fingerprint
        return f"other data: its {fact.replace('.', ' ')} differs"
    field = fact if section == "run" else name
    values = ("none" if value is _ABSENT else json.dumps(value, ensure_ascii=False) for value in (old, new))
    return "{} {}, and this command has {}".format(field, *values)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message}; --help shows the options.")


def parse_command(recipe: str, description: str, argv: list[str] | None = None) -> RecipeCommand:
    """Parse the command line of a recipe, and check that the run may be pushed if it asks for that.

    Args:
        recipe, description: see ``read_command``.
        argv: the script and its arguments; default: those of this process.

    Raises:
        UserError: as ``read_command``, or the Hub would refuse the push.
    """
    from ..hub import check_may_push

    command = read_command(recipe, description, sys.argv if argv is None else argv)
    if command.push_to is not None:
        check_may_push(command.push_to, private=command.push_private)
    return command


def read_command(recipe: str, description: str, argv: list[str]) -> RecipeCommand:
    """Read the command line of a recipe. The run folder defaults to ``runs/<recipe>-<config>``.

    Args:
        recipe: name of the recipe.
        description: what ``--help`` prints.
        argv: the script and its arguments.

    Raises:
        UserError: an argument is missing or invalid.
    """
    parser = _Parser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog="Override any field of the YAML file: --training.learning_rate 1e-3 --model.hidden_size 256",
    )
    parser.add_argument("--config", type=Path, required=True, help="YAML file of the configuration")
    parser.add_argument("--output_dir", type=Path, help=f"run folder (default: runs/{recipe}-<config>)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in this folder, or start it if there is none yet"
    )
    parser.add_argument(
        "--push_to", metavar="USER/NAME", help="verify the finished run and push it to this repository on the Hub"
    )
    parser.add_argument("--push_private", action="store_true", help="create the repository as private")
    parser.add_argument(
        "--search", metavar="FILE", type=Path, help="search.json of hfattn tune, whose best settings this run has"
    )
    known, overrides = parser.parse_known_args(argv[1:])
    run = known.output_dir or Path("runs") / f"{recipe}-{known.config.stem}"
    return RecipeCommand(
        recipe, known.config, run, known.resume, overrides, argv, known.push_to, known.push_private, known.search
    )

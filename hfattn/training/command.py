"""The command line of a recipe, and the folder of its run."""

import argparse
import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from transformers import TrainingArguments, set_seed

from ..errors import UserError
from ..files import write_at_once
from ..hub import check_may_push

STARTED = Path("checkpoints") / "recipe.yaml"  # what a run was started with
LENGTH = ("num_train_epochs", "max_steps")  # of training: what a run may be resumed with another value of


@dataclass(frozen=True)
class RecipeCommand:
    """What every recipe reads from its command line.

    Attributes:
        recipe: name of the recipe.
        config: the YAML file.
        run: the folder of the run.
        resume: whether to go on with what is there.
        overrides: words that change fields of the YAML file.
        push_to: the repository on the Hub that the finished run is pushed to, if any.
        push_private: whether a new one is private.
    """

    recipe: str
    config: Path
    run: Path
    resume: bool
    overrides: list[str]
    push_to: str | None = None
    push_private: bool = False

    @property
    def _writes(self) -> bool:
        """Whether this process is the one that writes; the others would see what it has already written."""
        return int(os.environ.get("RANK", "0")) == 0

    def check_run(self) -> None:
        """Make sure that the run may write to its folder, before anything is read or written.

        Raises:
            UserError: the folder holds a finished run, or anything at all but a run to resume.
        """
        if not self._writes or not self.run.exists():
            return
        if not self.run.is_dir():
            raise UserError(f"{self.run} is a file; choose a folder with --output_dir.")
        if (self.run / "results.json").exists():
            raise UserError(f"{self.run} already holds a finished run; choose another folder with --output_dir.")
        if any(self.run.iterdir()):
            if not self.resume:
                raise UserError(
                    f"{self.run} is not empty; continue its run with --resume, or choose another with --output_dir."
                )
            if not (self.run / STARTED).exists():
                raise UserError(f"{self.run} holds no run to resume; choose another folder with --output_dir.")

    def start(self, arguments: TrainingArguments) -> None:
        """Make sure that the run may write to its folder, say where its logs go, and seed all random numbers.

        Raises:
            UserError: as ``check_run``.
        """
        self.check_run()
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(self.run / "logs"))
        set_seed(arguments.seed)

    def claim_run(self, config: Any, **facts: Any) -> None:
        """Write what the run is started with to its folder, or make sure that it is resumed with the same.

        Args:
            config: the recipe's configuration.
            facts: what else must not change between start and end: the text, the number of processes.

        Raises:
            UserError: the run was started with something else.
        """
        if not self._writes:
            return
        now = {**dataclasses.asdict(config), "run": facts}
        path = self.run / STARTED
        if path.exists():
            before = yaml.safe_load(path.read_text(encoding="utf-8"))
            for section in now:
                if _without_length(before.get(section)) != _without_length(now[section]):
                    raise UserError(
                        f"The run in {self.run} was started with another {section!r} ({path}); resume it with that: "
                        "only training.num_train_epochs and training.max_steps may change."
                    )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_at_once(path, yaml.safe_dump(now, sort_keys=False, allow_unicode=True))


def _without_length(section: Any) -> Any:
    if not isinstance(section, dict):
        return section
    return {name: value for name, value in section.items() if name not in LENGTH}


def parse_command(recipe: str, description: str, words: list[str] | None = None) -> RecipeCommand:
    """Read the command line of a recipe; its folder defaults to ``runs/<recipe>-<config>``."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog="Any field of the YAML file can be overridden: --training.learning_rate 1e-3 --model.hidden_size 256",
    )
    parser.add_argument("--config", type=Path, required=True, help="the YAML file to run")
    parser.add_argument("--output_dir", type=Path, help=f"folder of the run (default runs/{recipe}-<config>)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in this folder; it begins where there is none yet"
    )
    parser.add_argument("--push_to", metavar="USER/NAME", help="verify the finished run and push it to the Hub")
    parser.add_argument("--push_private", action="store_true", help="as a private repository, where it is a new one")
    known, overrides = parser.parse_known_args(words)
    run = known.output_dir or Path("runs") / f"{recipe}-{known.config.stem}"
    if known.push_to is not None:
        check_may_push(known.push_to)
    return RecipeCommand(recipe, known.config, run, known.resume, overrides, known.push_to, known.push_private)

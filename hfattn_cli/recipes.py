"""The commands ``train``, ``recipes`` and ``soup``."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from .common import NewFolder, check_output, one_sentence

if TYPE_CHECKING:
    from hfattn.resources import Configuration
    from hfattn.training import RecipeCommand

Config = Annotated[
    str,
    typer.Argument(
        metavar="CONFIG",
        help="Configuration as listed (translation/dates), or YAML file that is beside a train.py or has a line such "
        "as 'recipe: translation'.",
    ),
]

recipes_app = typer.Typer(help="List, copy and validate recipes; check and record their runs.", no_args_is_help=True)


def train(
    config: Config,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--FIELD VALUE]...", help="Fields to override, --output_dir, --resume, --push_to."),
    ] = None,
    accelerate: Annotated[
        Path | None, typer.Option(help="Configuration file for accelerate launch; default: one process, without it.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command without running it.")] = False,
) -> None:
    """Print the training command of a recipe and run it.

    Options of this command must precede CONFIG.

    Example: hfattn train --dry-run translation/dates --training.max_steps 100
    """
    from hfattn.errors import UserError
    from hfattn.extras import require
    from hfattn.resources import find_configuration

    with one_sentence():
        require("recipes")
        found = find_configuration(config)
        if accelerate is not None and not accelerate.is_file():
            raise UserError(f"The file {accelerate} was not found; recipes/accelerate/ has examples.")
        folds = _read_folds(found, overrides or [])
        if folds is not None:
            _train_folds(found, *folds, accelerate, dry_run)
            return
        command = training_command(found, overrides or [], accelerate)
        print(shlex.join(command), flush=True)
    if not dry_run:
        raise typer.Exit(run_training(command))


def _read_folds(found: "Configuration", overrides: list[str]) -> "tuple[RecipeCommand, int] | None":
    """Return the command and the number of folds of a configuration with ``data.folds`` and no ``data.fold``."""
    if "folds:" not in found.path.read_text(encoding="utf-8") and "--data.folds" not in " ".join(overrides):
        return None  # without the imports of a recipe
    from hfattn.resources import load_schema
    from hfattn.training import load_config
    from hfattn.training.command import read_command

    recipe = load_schema(found.script)
    command = read_command(recipe.RECIPE, "", [str(found.script), "--config", str(found.path), *overrides])
    config = load_config(recipe.Config, found.path, command.overrides)
    if config.data.folds is None or config.data.fold is not None:
        return None
    recipe.validate(config)
    return command, config.data.folds


def _train_folds(
    found: "Configuration", command: "RecipeCommand", folds: int, accelerate: Path | None, dry_run: bool
) -> None:
    from hfattn.errors import INTERRUPTED, UserError
    from hfattn.folds import RECORD, fold_arguments, folds_table, train_folds

    def train(words: list[str]) -> None:
        line = training_command(found, words, accelerate)
        print(shlex.join(line), flush=True)
        code = 0 if dry_run else run_training(line)
        if code == INTERRUPTED:
            raise KeyboardInterrupt("Interrupted. To continue, give the same command with --resume.")
        if code != 0:
            raise UserError(f"The training of a fold ended with exit code {code}; mend its cause, and use --resume.")

    if dry_run:
        for fold in range(1, folds + 1):
            train(fold_arguments(command, fold))
        return
    print(f"\n{folds_table(train_folds(command, folds, train))}")
    print(f"\nScores of all parts: {command.run / RECORD}")


def training_command(config: "Configuration", overrides: list[str], accelerate: Path | None = None) -> list[str]:
    """Return the command that trains a configuration: in one process, or as a configuration of Accelerate says."""
    words = [_from_here(config.script), "--config", _from_here(config.path), *overrides]
    return (
        ["python", *words] if accelerate is None else ["accelerate", "launch", "--config_file", str(accelerate), *words]
    )


def run_training(command: list[str], log: TextIO | None = None, variables: Mapping[str, str] | None = None) -> int:
    """Run a training command with this interpreter, whatever is on the PATH.

    Ctrl-C is left to the training, which saves a checkpoint. SIGTERM ends both processes.

    Args:
        command: as ``training_command`` returns it.
        log: file for the output; default: the terminal.
        variables: environment variables to add.

    Returns:
        The exit code.
    """
    # -P: the modules beside the launcher are not those that Accelerate imports.
    launcher = ["-P", str(Path(__file__).with_name("launcher.py"))]
    words = command[1:] if command[0] == "python" else [*launcher, *command[2:]]
    environment = {**os.environ, **(variables or {})}
    with subprocess.Popen(
        [sys.executable, *words], stdout=log, stderr=log and subprocess.STDOUT, env=environment
    ) as process:
        before = {
            signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
            signal.SIGTERM: signal.signal(signal.SIGTERM, lambda number, frame: process.terminate()),
        }
        try:
            return process.wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _from_here(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@recipes_app.command("list")
def list_recipes() -> None:
    """List the recipes and their configurations.

    Example: hfattn recipes list
    """
    from hfattn.resources import recipe_folders

    for folder in recipe_folders():
        print(folder.name)
        for path in sorted(folder.glob("*.yaml")):
            print(f"  {path.stem:32}{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")


@recipes_app.command("copy")
def copy_recipe(
    recipe: Annotated[str, typer.Argument(help="Name of the recipe, as listed.")],
    target: Annotated[Path, typer.Argument(help="Folder to create.")],
) -> None:
    """Copy a recipe into a new folder so that you can change it.

    Example: hfattn recipes copy translation mine
    """
    from hfattn.errors import UserError
    from hfattn.resources import recipe_folders

    with one_sentence():
        source = next((folder for folder in recipe_folders() if folder.name == recipe), None)
        if source is None:
            raise UserError(f"The recipe {recipe!r} was not found; hfattn recipes list shows those that exist.")
        if os.path.lexists(target):
            raise UserError(f"{target} exists already; choose a new folder.")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        print(f"Copied to {target}. Run it with: hfattn train {target}/CONFIG.yaml")


@recipes_app.command("validate", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def validate_recipe(
    context: typer.Context,
    config: Config,
) -> None:
    """Check a configuration without training. Overrides may follow.

    Example: hfattn recipes validate recipes/translation/dates.yaml
    """
    from hfattn.extras import require
    from hfattn.resources import find_configuration, load_schema

    with one_sentence():
        require("recipes")
        from hfattn.training import load_config

        path, script = find_configuration(config)
        recipe = load_schema(script)
        recipe.validate(load_config(recipe.Config, path, context.args))
        print(f"{config} is valid.")


@recipes_app.command("check")
def check_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    tiny: Annotated[
        bool | None,
        typer.Option("--tiny/--full", help="Which band to use; default: from the command of the run."),
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(
            help="The CONFIG.expected.json; default: the file of the recipe and configuration that the run names."
        ),
    ] = None,
) -> None:
    """Check that the score of a run is in the expected range.

    The exit code is 1 if it is not.

    Example: hfattn recipes check runs/dates --tiny
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.training.expected import judge, read_expected, read_run

        finished = read_run(run)
        verdict = judge(finished, read_expected(expected or _expected_file(finished)), tiny)
        print(verdict)
    if not verdict.inside:
        raise typer.Exit(1)


@recipes_app.command("record")
def record_runs(
    runs: Annotated[
        list[Path] | None, typer.Argument(metavar="[RUN]...", help="Folders of finished full runs.")
    ] = None,
    expected: Annotated[
        Path | None,
        typer.Option(help="An expected.json of your own for all these runs; RESULTS.md is not written then."),
    ] = None,
) -> None:
    """Record runs as results of their configurations.

    The runs are added to expected.json. The bands and recipes/RESULTS.md are computed again.

    Example: hfattn recipes record
    """
    from hfattn.extras import require
    from hfattn.resources import load_recipe, resource

    with one_sentence():
        require("recipes")
        from hfattn.files import write_at_once
        from hfattn.training import expected as expectations

        changed: dict[Path, expectations.Expected] = {}  # written after all runs have been checked
        for run in runs or []:
            finished = expectations.read_run(run)
            path = expected or _expected_file(finished)
            recipe = load_recipe(path.parent / "train.py")
            config = path.with_name(path.name.removesuffix(expectations.SUFFIX) + ".yaml")
            overrides = expectations.differing_overrides(finished, recipe.Config, config)
            before = changed.get(path) or expectations.read_expected(path)
            changed[path] = expectations.record_run(finished, before, overrides)
        for path, now in changed.items():
            expectations.write_expected(path, now)
            print(f"Recorded: {path}")
        for path in [expected] if expected else expectations.expected_files(resource("recipes")):
            before = expectations.read_expected(path)
            config = path.with_name(path.name.removesuffix(expectations.SUFFIX) + ".yaml")
            now = expectations.with_band(before, config)
            if now != before:
                expectations.write_expected(path, now)
                print(f"Band of {path}: {before.full.band} before, {now.full.band} now")
        if expected is None:
            page = resource("recipes") / expectations.PAGE
            write_at_once(page, expectations.results_page(page.parent))
            print(f"Written: {page}")


@recipes_app.command("compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished translation runs.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Chart to draw (.png, .svg, .pdf); default: print the table only."),
    ] = None,
    part: Annotated[str, typer.Option(help="Part of the data; test.beam is the test with beam search.")] = "test",
) -> None:
    """Compare BLEU by source length between runs.

    Example: hfattn recipes compare runs/dates runs/vaswani
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        if output is not None:
            check_output(output, (".png", ".svg", ".pdf"))
        from hfattn.training.expected import by_length, length_table, read_run

        tables = by_length([read_run(run) for run in runs], part)
        print(length_table(tables))
        if output is not None:
            from hfattn.plots import plot_bleu_by_length

            plot_bleu_by_length(output, tables, f"BLEU by source length: {part.replace('_', ' ')}")
            print(f"Chart: {output}")


def soup(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of fine-tuned runs of one recipe.")],
    output: NewFolder,
    greedy: Annotated[
        bool,
        typer.Option(
            "--greedy",
            help="Add runs from the best down, and keep each only if the validation score does not get worse.",
        ),
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Override in the configuration of the runs, such as data.dataset=my.jsonl.",
        ),
    ] = None,
) -> None:
    """Average the weights of runs, and evaluate the mean.

    Example: hfattn soup runs/one runs/two --output runs/soup
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.soup import cook

        if os.path.lexists(output):
            raise UserError(f"{output} exists already; choose a new folder.")
        print(cook(runs, output, greedy, override or []))


def _expected_file(run: Any) -> Path:
    """Return the expected.json of the configuration that a run names."""
    from hfattn.errors import UserError
    from hfattn.resources import resource

    path = resource("recipes") / f"{run.name}.expected.json"
    if not path.is_file():
        raise UserError(
            f"{path}, which {run.folder / 'results.json'} names, was not found; give a file with --expected."
        )
    return path

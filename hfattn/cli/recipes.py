"""The commands of recipes and their runs: ``train``, ``recipes``, ``soup``."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError, one_sentence
from ..resources import load_recipe, recipe_folders, resource
from .common import check_output, require

ONE_PROCESS = ["--num_processes", "1", "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]

recipes_app = typer.Typer(help="List and copy the training recipes, check and record their runs.", no_args_is_help=True)


def train(
    config: Annotated[
        str, typer.Argument(metavar="CONFIG", help="A recipe's YAML file, or its name as listed: translation/dates.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--FIELD VALUE]...", help="Fields to change, --output_dir, --resume, --push_to."),
    ] = None,
    accelerate: Annotated[
        Path | None, typer.Option(help="A configuration of accelerate launch; default: one process.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the command.")] = False,
) -> None:
    """Print the command that trains a recipe, and run it. Options of this command come before CONFIG.

    Example: hfattn train --dry-run translation/dates --training.max_steps 100
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate", "matplotlib")
        path = Path(config) if Path(config).suffix == ".yaml" else resource("recipes") / f"{config}.yaml"
        if not path.is_file():
            raise UserError(f"There is no configuration {config}; hfattn recipes list shows those that exist.")
        script = path.parent / "train.py"
        if not script.is_file():
            raise UserError(f"There is no {script}, which would read {path.name}; keep a configuration beside it.")
        if accelerate is not None and not accelerate.is_file():
            raise UserError(f"There is no file {accelerate}; recipes/accelerate/ holds some to begin from.")
        launch = ONE_PROCESS if accelerate is None else ["--config_file", str(accelerate)]
        # Beside this interpreter there is its own accelerate, whatever the PATH says.
        words = [*launch, _from_here(script), "--config", _from_here(path), *(overrides or [])]
        print(shlex.join(["accelerate", "launch", *words]), flush=True)
    if not dry_run:
        done = subprocess.run([sys.executable, "-m", "accelerate.commands.launch", *words], check=False)
        raise typer.Exit(done.returncode)


def _from_here(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


@recipes_app.command("list")
def list_recipes() -> None:
    """List the recipes and their configurations, with the first line of each.

    Example: hfattn recipes list
    """
    for folder in recipe_folders():
        print(folder.name)
        for path in sorted(folder.glob("*.yaml")):
            print(f"  {path.stem:32}{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")


@recipes_app.command("copy")
def copy_recipe(
    recipe: Annotated[str, typer.Argument(help="Name of the recipe, as listed.")],
    target: Annotated[Path, typer.Argument(help="Folder to make.")],
) -> None:
    """Copy a recipe into a new folder, to own it and to change it.

    Example: hfattn recipes copy translation mine
    """
    with one_sentence():
        source = next((folder for folder in recipe_folders() if folder.name == recipe), None)
        if source is None:
            raise UserError(f"There is no recipe {recipe!r}; hfattn recipes list shows those that exist.")
        if os.path.lexists(target):
            raise UserError(f"{target} exists already; choose a new folder.")
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        print(f"Copied to {target}. Run it with: accelerate launch {target / 'train.py'} --config {target}/CONFIG.yaml")


@recipes_app.command("validate", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def validate_recipe(
    context: typer.Context, config: Annotated[Path, typer.Argument(help="A recipe's YAML file; overrides may follow.")]
) -> None:
    """Check a configuration without training.

    Example: hfattn recipes validate recipes/translation/dates.yaml
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate", "matplotlib")
        from ..training import load_config

        if not config.is_file():
            raise UserError(f"There is no configuration file {config}; hfattn recipes list shows those that exist.")
        recipe = load_recipe(config.parent / "train.py")
        recipe.validate(load_config(recipe.Config, config, context.args))
        print(f"{config} is valid.")


@recipes_app.command("check")
def check_run(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")],
    tiny: Annotated[
        bool | None, typer.Option("--tiny/--full", help="By which band; default: what the run's command says.")
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(help="The CONFIG.expected.json; default: the recipe's own, by the run's names.")
    ] = None,
) -> None:
    """Say whether a run scored what its configuration is expected to; exit code 1 if it did not.

    Example: hfattn recipes check runs/dates --tiny
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate")
        from ..training.expected import judge, read_expected, read_run

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
        Path | None, typer.Option(help="One of your own, of them all, which no page is written from.")
    ] = None,
) -> None:
    """Copy what runs measured into the expected.json beside their YAML; write recipes/RESULTS.md from all of these.

    Example: hfattn recipes record
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate", "matplotlib")
        from ..files import write_at_once
        from ..training import expected as expectations

        changed: dict[Path, expectations.Expected] = {}  # written when all runs are found good
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
        if expected is None:
            page = resource("recipes") / expectations.PAGE
            write_at_once(page, expectations.results_page(page.parent))
            print(f"Written from all of them: {page}")


@recipes_app.command("compare")
def compare_runs(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of finished translation runs.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Chart (.png, .svg, .pdf); default: the table alone.")
    ] = None,
    part: Annotated[str, typer.Option(help="Part of the data: test, or test.beam for its beam search.")] = "test",
) -> None:
    """Show BLEU by the length of the source, several runs side by side.

    Example: hfattn recipes compare runs/dates runs/vaswani
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate")
        if output is not None:
            check_output(output, (".png", ".svg", ".pdf"))
        from ..training.expected import by_length, length_table, read_run

        tables = by_length([read_run(run) for run in runs], part)
        print(length_table(tables))
        if output is not None:
            from ..plots import plot_bleu_by_length

            plot_bleu_by_length(output, tables, f"BLEU by source length: {part.replace('_', ' ')}")
            print(f"Chart: {output}")


def soup(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of fine-tuned runs of one recipe.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take only runs that make the validation score no worse, the best first.")
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Of the runs' configuration, such as data.dataset=my.jsonl."),
    ] = None,
) -> None:
    """Average the weights of fine-tuned runs, and measure the result beside them.

    Example: hfattn soup runs/one runs/two --output runs/soup
    """
    with one_sentence():
        require("accelerate", "datasets", "evaluate")
        from ..soup import cook

        if os.path.lexists(output):
            raise UserError(f"{output} exists already; choose a new folder.")
        print(cook(runs, output, greedy, override or []))


def _expected_file(run: Any) -> Path:
    """Where the recipes keep what a run's configuration is expected to score."""
    path = resource("recipes") / f"{run.name}.expected.json"
    if not path.is_file():
        raise UserError(f"There is no {path}, by the names in {run.folder / 'results.json'}; give one with --expected.")
    return path

"""The command ``tune``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from .common import one_sentence
from .recipes import Config, run_training, training_command


def tune(
    config: Config,
    search: Annotated[
        Path, typer.Argument(metavar="SEARCH", help="YAML file of the search: fields, metric, trials, seed.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[--FIELD VALUE]...", help="Fields to override in all trials.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output_dir", help="Folder of the search; default: runs/tune-RECIPE-CONFIG.")
    ] = None,
) -> None:
    """Train a recipe with several settings, and compare them on validation; the test part is not used.

    Options of this command must precede CONFIG. An interrupted search continues when the command is given again.

    Example: hfattn tune classification/opinions search.yaml --training.num_train_epochs 1
    """
    from hfattn.errors import INTERRUPTED, UserError
    from hfattn.extras import require
    from hfattn.resources import find_configuration, load_recipe

    with one_sentence():
        require("tune")
        from hfattn.training import load_config
        from hfattn.tuning import RECORD, SearchConfig, best_overrides, first_overrides, table, tune

        found = find_configuration(config)
        path, name = found.path, f"{found.script.parent.name}/{found.path.stem}"
        settings, recipe = load_config(SearchConfig, search), load_recipe(found.script)
        recipe.validate(load_config(recipe.Config, path, [*(overrides or []), *first_overrides(settings)]))
        folder = output_dir or Path("runs") / f"tune-{found.script.parent.name}-{path.stem}"

        def train(words: list[str], log: Path) -> None:
            with log.open("a", encoding="utf-8") as file:
                code = run_training(training_command(found, words), file)
            if code == INTERRUPTED:
                raise KeyboardInterrupt("Interrupted. To continue, give the same command again.")
            if code != 0:
                raise UserError(f"its training ended with exit code {code}; {log} has its messages.")

        record = tune(name, settings, overrides or [], folder, train)
        print(f"\n{table(record)}")
        print(f"\nSettings and scores of all trials: {folder / RECORD}")
        words = [config, *best_overrides(record), "--search", str(folder / RECORD)]
        print(f"Train with the best settings: hfattn train {shlex.join(words)}")

"""The command ``prompt``."""

from pathlib import Path
from typing import Annotated

import typer

from .common import one_sentence


def prompt(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="YAML file: model, data, template, answers, shots.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[--FIELD VALUE]...", help="Fields to override.")
    ] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output_dir", help="Folder to create; default: runs/prompt-CONFIG.")
    ] = None,
) -> None:
    """Classify texts with a causal language model and prompts, without training (zero-shot or few-shot).

    Options of this command must precede CONFIG.

    Example: hfattn prompt sst2_prompt.yaml --shots 4 --seed 2
    """
    from hfattn.extras import require

    with one_sentence():
        require("recipes")
        from hfattn.files import made_parents, new_folder, write_json
        from hfattn.prompting import PromptConfig, prompt_model, table
        from hfattn.training import load_config

        folder = output_dir or Path("runs") / f"prompt-{config.stem}"
        settings = load_config(PromptConfig, config, overrides)
        with made_parents(folder), new_folder(folder) as scratch:
            results = prompt_model(settings, config)
            write_json(scratch / "results.json", results)
        print(f"{table(results)}\n\nPrompts, settings and scores: {folder / 'results.json'}")

"""The commands ``hfattn convert`` and ``hfattn export``."""

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import NewFolder, name_value_pairs, one_sentence


def convert(
    kind: Annotated[
        str,
        typer.Argument(
            help="char-rnn, nanogpt, torch-transformer, torch-lm, torch-classifier, joeynmt, opennmt or transformers.",
            metavar="KIND",
        ),
    ],
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Weights: safetensors, or .pt with --allow-pt. For transformers: a folder."
        ),
    ],
    output: NewFolder,
    config: Annotated[
        Path | None, typer.Option(help="Configuration of the other project, in YAML or JSON.", show_default=False)
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Field of the new model, such as hidden_size=8."),
    ] = None,
    renames: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="THEIRS=OURS", help="Prefix of names in FILE, and its replacement."),
    ] = None,
    vocabulary: Annotated[
        Path | None,
        typer.Option(help="Tokens in the order of their ids: JSON, or one per line.", show_default=False),
    ] = None,
    target_vocabulary: Annotated[
        Path | None,
        typer.Option(help="Tokens of the target, if it has its own vocabulary.", show_default=False),
    ] = None,
    allow_pt: Annotated[bool, typer.Option("--allow-pt", help="Read a pickle, but load no code.")] = False,
) -> None:
    """Convert a checkpoint of another project to a model folder.

    Example: hfattn convert nanogpt ckpt.pt --allow-pt --vocabulary characters.json --output runs/gpt
    """
    with one_sentence():
        from hfattn.exchange import convert as run
        from hfattn.exchange.record import task_of

        converted = run(
            kind,
            file,
            output,
            config=config,
            settings={name: _value(name, text) for name, text in name_value_pairs("--set", fields).items()},
            renames=name_value_pairs("--rename", renames),
            vocabulary=vocabulary,
            target_vocabulary=target_vocabulary,
            allow_pt=allow_pt,
        )
        print(f"{type(converted.model).__name__}: {output}")
        if converted.assumed:
            assumed = ", ".join(f"{name}={value}" for name, value in converted.assumed.items())
            print(f"Not stored in the checkpoint, assumed (override with --set): {assumed}")
        if converted.tokenizer is None:
            print("Without --vocabulary the folder has no tokenizer.")
        if task_of(converted.model) is None:
            print("The model has no output layer, so the folder has no card; fine-tune it (--model.name of a recipe).")


def export(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="torch, onnx, ctranslate2 or transformers.")],
    model: Annotated[Path, typer.Argument(metavar="DIR", help="Model folder.")],
    output: NewFolder,
    quantization: Annotated[
        str | None, typer.Option(help="For ctranslate2: float32 (the default) or int8.", show_default=False)
    ] = None,
) -> None:
    """Export a model for other software.

    Example: hfattn export onnx runs/reader --output runs/reader-onnx
    """
    with one_sentence():
        from hfattn.exchange import export as run

        run(kind, model, output, quantization=quantization)
        print(f"{kind}: {output}")


def _value(name: str, text: str) -> Any:
    import yaml

    from hfattn.errors import UserError
    from hfattn.yaml_values import load_yaml

    try:
        return load_yaml(text)
    except yaml.YAMLError as error:
        raise UserError(f"The value {text!r} of --set {name} is not valid YAML; put it in quotes.") from error

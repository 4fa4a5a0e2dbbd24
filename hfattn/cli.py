"""The command ``hfattn``."""

import importlib
import importlib.util
import io
import os
import platform
import re
import shutil
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
from packaging.requirements import Requirement

from . import cli_exchange
from .cli_data import data_app
from .cli_inspect import inspect_code
from .cli_publish import card, push, verify
from .errors import UserError, one_sentence
from .resources import resource

app = typer.Typer(
    help="Recurrent and attention models for the Hugging Face ecosystem: train them, let them write, share them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
recipes_app = typer.Typer(help="List and copy the training recipes, check and record their runs.", no_args_is_help=True)
app.add_typer(recipes_app, name="recipes")
app.command()(cli_exchange.convert)
app.command()(cli_exchange.export)
app.add_typer(data_app, name="data")
app.command("inspect")(inspect_code)
app.command()(card)
app.command()(verify)
app.command()(push)


@app.command()
def generate(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")],
    prompt: Annotated[str, typer.Option(help="Text to continue.")],
    temperature: Annotated[
        float, typer.Option(min=0.0, help="Below 1: more probable text; above: more surprising; 0: the most probable.")
    ] = 0.8,
    top_k: Annotated[int, typer.Option(min=0, help="Draw from the k most probable tokens only; 0 is all.")] = 0,
    top_p: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Draw from the smallest set of this probability.")
    ] = 1.0,
    num_beams: Annotated[int, typer.Option(min=1, help="Beam search of this width (with temperature 0).")] = 1,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Length of the continuation, or fewer where the model has no positions for it.")
    ] = 300,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of the draw: the same seed, the same text.")] = 0,
    stream: Annotated[bool, typer.Option(help="Write each token as soon as it is generated.")] = False,
) -> None:
    """Continue a prompt with a trained language model."""
    with one_sentence():
        if not prompt:
            raise UserError("The prompt is empty; give at least one character to begin with.")
        if stream and num_beams > 1:
            raise UserError("Beam search knows its text only at the end; leave out --stream or --num-beams.")
        import torch
        from transformers import set_seed

        from .generation import TokenStreamer, load_language_model, read_prompt, sampling_options
        from .tokenizers import uncovered_characters

        language_model, tokenizer = load_language_model(model)
        if missing := uncovered_characters(tokenizer, prompt):
            raise UserError(f"The prompt holds {missing[0]!r}, which is not in the model's vocabulary; leave it out.")
        set_seed(seed)
        inputs, max_new_tokens = read_prompt(language_model, tokenizer, prompt, max_new_tokens)
        with torch.inference_mode():
            ids = language_model.generate(
                **inputs,
                num_beams=num_beams,
                max_new_tokens=max_new_tokens,
                streamer=TokenStreamer(tokenizer, sys.stdout) if stream else None,
                **sampling_options(temperature, top_k, top_p),
            )
        if not stream:
            print(tokenizer.decode(ids[0], skip_special_tokens=True))


@app.command()
def score(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")],
    text: Annotated[str, typer.Argument(help="A UTF-8 text, a Hub data set id, or 'embedded'.")],
    skip: Annotated[float, typer.Option(min=0.0, max=0.999, help="Share of the text to leave out before.")] = 0.0,
    window: Annotated[
        int | None,
        typer.Option(
            min=1, help="Read windows of this many tokens, each from nothing; default: all that the model can read."
        ),
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Tokens from window to window; default: a window, so that none overlap.")
    ] = None,
) -> None:
    """Score a text under a trained language model."""
    with one_sentence():
        _require("datasets", "evaluate")
        from .data import encode_text, open_text
        from .evaluation import score_ids, score_text
        from .generation import load_language_model
        from .tokenizers import is_character_tokenizer

        language_model, tokenizer = load_language_model(model)
        opened = open_text(text)
        if is_character_tokenizer(tokenizer):
            ids = encode_text(opened, tokenizer).ids
            scores = score_ids(language_model, ids[int(skip * len(ids)) :], window, stride)
        else:
            whole = "".join(opened.pieces())
            scores = score_text(language_model, tokenizer, whole[int(skip * len(whole)) :], window, stride)
        for name, value in scores.items():
            print(f"{name:20}{value:.4f}" if isinstance(value, float) else f"{name:20}{value}")


@app.command()
def translate(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")],
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What to translate.")],
    num_beams: Annotated[
        int | None, typer.Option(min=1, help="Beam search of this width; default: the model's.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest translation; default: the model's.")
    ] = None,
) -> None:
    """Translate texts with a trained encoder-decoder, one line for each."""
    with one_sentence():
        from .generation import load_translation_model

        _require_text(*texts)
        translator = load_translation_model(model)
        _require_vocabulary(translator[1], *texts)
        for translation in _translations(*translator, texts, num_beams, max_new_tokens):
            print(translation["translation_text"])


@app.command()
def attend(
    model: Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")],
    text: Annotated[str, typer.Argument(help="What to translate, or to read.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Page (.html) or picture (.png, .svg, .pdf); default: a list.")
    ] = None,
    num_beams: Annotated[
        int | None, typer.Option(min=1, help="Beam search of this width; default: the model's.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Longest translation; default: the model's.")
    ] = None,
) -> None:
    """Show where a model looks: which source tokens it translates from, or which tokens each token attends to."""
    with one_sentence():
        _require_text(text)
        if output is not None:
            _check_output(output)
        from .explain import alignment
        from .generation import load_reading_model

        reading_model, tokenizer, target_tokenizer = load_reading_model(model)
        _require_vocabulary(tokenizer, text)
        title = text
        if reading_model.config.is_encoder_decoder:
            (translation,) = _translations(
                reading_model, tokenizer, target_tokenizer, [text], num_beams, max_new_tokens
            )
            record = translation["alignment"]
            title = f"{text} → {translation['translation_text']}"
            if record is None:
                raise UserError(f"{model} translates without attention, so there is nowhere to see it look.")
        else:
            import torch

            if num_beams is not None or max_new_tokens is not None:
                raise UserError(
                    f"{model} reads a text and translates none; leave out --num-beams and --max-new-tokens."
                )
            inputs = tokenizer(text, return_tensors="pt")
            inputs = {name: inputs[name] for name in ("input_ids", "attention_mask")}
            reading_model.set_attn_implementation("eager")
            with torch.inference_mode():
                outputs = reading_model(**inputs, output_attentions=True)
            if not outputs.get("attentions"):
                raise UserError(f"{model} reads without attention, so there is nowhere to see it look.")
            record = alignment(outputs, tokenizer=tokenizer, **inputs)
        print(title)
        if output is None:
            from .explain import render_text

            print(render_text(record))
        else:
            output.write_bytes(_drawn(record, title, output.suffix.lower()))
            print(f"Where it looks: {output}")


@recipes_app.command("list")
def list_recipes() -> None:
    """List the recipes and their configurations, with the first line of each."""
    for folder in _recipe_folders():
        print(folder.name)
        for path in sorted(folder.glob("*.yaml")):
            print(f"  {path.stem:32}{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}")


@recipes_app.command("copy")
def copy_recipe(
    recipe: Annotated[str, typer.Argument(help="Name of the recipe, as listed.")],
    target: Annotated[Path, typer.Argument(help="Folder to make.")],
) -> None:
    """Copy a recipe into a new folder, to own it and to change it."""
    with one_sentence():
        source = next((folder for folder in _recipe_folders() if folder.name == recipe), None)
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
    """Check a configuration without training."""
    with one_sentence():
        _require("accelerate", "datasets", "evaluate", "matplotlib")
        from .training import load_config

        if not config.is_file():
            raise UserError(f"There is no configuration file {config}; hfattn recipes list shows those that exist.")
        recipe = _load_recipe(config.parent / "train.py")
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
    """Say whether a run scored what its configuration is expected to; exit code 1 if it did not."""
    with one_sentence():
        _require("accelerate", "datasets", "evaluate")
        from .training.expected import judge, read_expected, read_run

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
    """Copy what runs measured into the expected.json beside their YAML; write recipes/RESULTS.md from all of these."""
    with one_sentence():
        _require("accelerate", "datasets", "evaluate", "matplotlib")
        from .training import expected as expectations
        from .training.results import write_at_once

        changed: dict[Path, expectations.Expected] = {}  # written when all runs are found good
        for run in runs or []:
            finished = expectations.read_run(run)
            path = expected or _expected_file(finished)
            recipe = _load_recipe(path.parent / "train.py")
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
    """Show BLEU by the length of the source, several runs side by side."""
    with one_sentence():
        _require("accelerate", "datasets", "evaluate")
        if output is not None:
            _check_output(output, (".png", ".svg", ".pdf"))
        from .training.expected import by_length, length_table, read_run

        tables = by_length([read_run(run) for run in runs], part)
        print(length_table(tables))
        if output is not None:
            from .training.results import plot_bleu_by_length

            plot_bleu_by_length(output, tables, f"BLEU by source length: {part.replace('_', ' ')}")
            print(f"Chart: {output}")


@app.command()
def soup(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of fine-tuned runs of one recipe.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to make.")],
    greedy: Annotated[
        bool, typer.Option("--greedy", help="Take only runs that make the validation score no worse, the best first.")
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Of the runs' configuration, such as data.source=my.jsonl."),
    ] = None,
) -> None:
    """Average the weights of fine-tuned runs, and measure the result beside them."""
    with one_sentence():
        _require("accelerate", "datasets", "evaluate")
        from .soup import cook

        if os.path.lexists(output):
            raise UserError(f"{output} exists already; choose a new folder.")
        print(cook(runs, output, greedy, override or [], _load_recipe))


@app.command()
def doctor() -> None:
    """Show versions, the accelerator and what is missing."""
    print(f"{'python':20}{platform.python_version()}")
    print(f"{'hfattn':20}{version('hfattn')}")
    print(f"{'accelerator':20}{_accelerator()}")
    wanting: dict[str, list[str]] = {}
    for line in requires("hfattn") or []:
        requirement = Requirement(line)
        extra = re.search(r"extra == ['\"](\w+)", line)
        package = f"hfattn[{extra[1]}]" if extra else "hfattn"
        if package == "hfattn[dev]":
            continue
        try:
            found = version(requirement.name)
            good = requirement.specifier.contains(found, prereleases=True)
        except PackageNotFoundError:
            found, good = "missing", False
        if not good:
            wanting.setdefault(package, []).append(f"{requirement.name}{requirement.specifier}")
        print(f"{requirement.name:20}{found:20}{package}")
    for package, names in wanting.items():
        print(f"To get {', '.join(names)}: pip install --upgrade '{package}'")
    if not wanting:
        print("Nothing is missing.")


def _require_text(*texts: str) -> None:
    if not all(text.strip() for text in texts):
        raise UserError("A text is empty; give at least one character.")


def _require_vocabulary(tokenizer: Any, *texts: str) -> None:
    from .tokenizers import uncovered_characters

    for text in texts:
        if missing := uncovered_characters(tokenizer, text):
            raise UserError(f"The text holds {missing[0]!r}, which is not in the model's vocabulary; leave it out.")


def _translations(
    model: Any,
    tokenizer: Any,
    target_tokenizer: Any,
    texts: list[str],
    num_beams: int | None,
    max_new_tokens: int | None,
) -> list[dict[str, Any]]:
    from .pipelines import AttnTranslationPipeline

    options = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
    pipeline = AttnTranslationPipeline(
        model=model, tokenizer=tokenizer, target_tokenizer=target_tokenizer, device=model.device
    )
    try:
        return pipeline(texts, **{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise UserError(str(error)) from error


def _check_output(path: Path, kinds: tuple[str, ...] = (".html", ".png", ".svg", ".pdf")) -> None:
    """Say before any work what would keep a picture from being written."""
    if path.suffix.lower() not in kinds:
        known = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise UserError(f"{path} is no picture that can be drawn; end its name with {known}.")
    if not path.parent.is_dir():
        raise UserError(f"There is no folder {path.parent} to write {path.name} into; make it first.")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if path.suffix.lower() != ".html":
        _require("matplotlib")


def _drawn(record: Any, title: str, kind: str) -> bytes:
    """The file, whole, before any of it is written."""
    from .explain import plot_alignment, render_html

    if kind == ".html":
        return render_html(record, title).encode()
    file = io.BytesIO()
    plot_alignment(record, title=title).savefig(file, format=kind[1:], dpi=150)
    return file.getvalue()


def _accelerator() -> str:
    if importlib.util.find_spec("torch") is None:
        return "unknown without torch"
    import torch

    if torch.cuda.is_available():
        return f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    if torch.backends.mps.is_available():
        return "Apple GPU (mps)"
    return f"none, {torch.get_num_threads()} CPU threads"


def _require(*modules: str) -> None:
    """Raise a UserError that names the first missing module of the extra ``recipes``."""
    for name in modules:
        if importlib.util.find_spec(name) is None:
            raise UserError(f"This command needs {name}, which is not installed; run: pip install 'hfattn[recipes]'")


def _expected_file(run: Any) -> Path:
    """Where the recipes keep what a run's configuration is expected to score."""
    path = resource("recipes") / f"{run.name}.expected.json"
    if not path.is_file():
        raise UserError(f"There is no {path}, by the names in {run.folder / 'results.json'}; give one with --expected.")
    return path


def _recipe_folders() -> list[Path]:
    return sorted(path.parent for path in resource("recipes").glob("*/train.py"))


def _load_recipe(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserError(f"{path} is missing; a configuration stands beside the train.py that reads it.")
    spec = importlib.util.spec_from_file_location(f"recipe_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module

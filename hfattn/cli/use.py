"""The commands that use a trained model: ``generate``, ``score``, ``evaluate``, ``translate``, ``attend``."""

import io
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError, one_sentence
from .common import Model, check_output, require, require_text, require_vocabulary

NumBeams = Annotated[int | None, typer.Option(min=1, help="Beam search of this width; default: the model's.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Longest translation; default: the model's.")]


def generate(
    model: Model,
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
    """Continue a prompt with a trained language model.

    Example: hfattn generate runs/text --prompt "The " --max-new-tokens 20
    """
    with one_sentence():
        if not prompt:
            raise UserError("The prompt is empty; give at least one character to begin with.")
        if stream and num_beams > 1:
            raise UserError("Beam search knows its text only at the end; leave out --stream or --num-beams.")
        import torch
        from transformers import set_seed

        from ..generation import TokenStreamer, load_language_model, read_prompt, sampling_options
        from ..tokenizers import uncovered_characters

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


def score(
    model: Model,
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
    """Score a text under a trained language model.

    Example: hfattn score runs/text my.txt
    """
    with one_sentence():
        require("datasets", "evaluate")
        from ..data import open_text
        from ..evaluation import score_opened
        from ..generation import load_language_model

        scores = score_opened(*load_language_model(model), open_text(text), skip, window, stride)
        for name, value in scores.items():
            print(f"{name:20}{value:.4f}" if isinstance(value, float) else f"{name:20}{value}")


def evaluate(
    model: Model,
    data: Annotated[
        str, typer.Argument(help="Pairs, labelled texts or a text, as a recipe's data.source; or a Hub data set's id.")
    ],
    split: Annotated[str, typer.Option(help="Of a Hub data set.")] = "test",
    config: Annotated[str | None, typer.Option(help="Of a Hub data set that has several.")] = None,
    columns: Annotated[
        str | None, typer.Option(help="Of the data, with a comma: source,target or text,label or text,pair,label.")
    ] = None,
    num_beams: Annotated[int | None, typer.Option(min=1, help="Of a translator; default: the model's.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only so many, drawn by their places.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all scores as JSON, for a program to read.")] = False,
) -> None:
    """Measure a trained model on data of yours: a translator, a classifier or a language model.

    Example: hfattn evaluate runs/dates pairs.tsv
    """
    with one_sentence():
        require("datasets", "evaluate", "sacrebleu", "sklearn")
        from ..evaluation import evaluate_folder, report_lines

        names = None if columns is None else columns.split(",")
        scores = evaluate_folder(model, data, split, config, names, num_beams, limit)
        print(json.dumps(scores, indent=2, ensure_ascii=False) if as_json else "\n".join(report_lines(scores)))


def translate(
    model: Model,
    texts: Annotated[list[str], typer.Argument(metavar="TEXT...", help="What to translate.")],
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Translate texts with a trained encoder-decoder, one line for each.

    Example: hfattn translate runs/dates "22 nov 1794"
    """
    with one_sentence():
        from ..generation import load_translation_model

        require_text(*texts)
        translator = load_translation_model(model)
        require_vocabulary(translator[1], *texts)
        for translation in _translations(*translator, texts, num_beams, max_new_tokens):
            print(translation["translation_text"])


def attend(
    model: Model,
    text: Annotated[str, typer.Argument(help="What to translate, or to read.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Page (.html) or picture (.png, .svg, .pdf); default: a list.")
    ] = None,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Show where a model looks: which source tokens it translates from, or which tokens each token attends to.

    Example: hfattn attend runs/dates "22 nov 1794" --output map.html
    """
    with one_sentence():
        require_text(text)
        if output is not None:
            check_output(output)
        from ..explain import alignment
        from ..generation import load_reading_model

        reading_model, tokenizer, target_tokenizer = load_reading_model(model)
        require_vocabulary(tokenizer, text)
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
            from ..explain import render_text

            print(render_text(record))
        else:
            output.write_bytes(_drawn(record, title, output.suffix.lower()))
            print(f"Where it looks: {output}")


def _translations(
    model: Any,
    tokenizer: Any,
    target_tokenizer: Any,
    texts: list[str],
    num_beams: int | None,
    max_new_tokens: int | None,
) -> list[dict[str, Any]]:
    from ..pipelines import AttnTranslationPipeline

    options = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
    pipeline = AttnTranslationPipeline(
        model=model, tokenizer=tokenizer, target_tokenizer=target_tokenizer, device=model.device
    )
    try:
        return pipeline(texts, **{name: value for name, value in options.items() if value is not None})
    except ValueError as error:
        raise UserError(str(error)) from error


def _drawn(record: Any, title: str, kind: str) -> bytes:
    """The file, whole, before any of it is written."""
    from ..explain import plot_alignment, render_html

    if kind == ".html":
        return render_html(record, title).encode()
    file = io.BytesIO()
    plot_alignment(record, title=title).savefig(file, format=kind[1:], dpi=150)
    return file.getvalue()

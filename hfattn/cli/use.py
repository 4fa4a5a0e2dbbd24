"""The commands that use a trained model: ``generate``, ``score``, ``evaluate``, ``translate``, ``attend``."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
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

        from ..generation import TokenStreamer, read_prompt, sampling_options
        from ..loading import load_language_model
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
        from ..loading import load_language_model

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
        from ..loading import load_translation_model

        require_text(*texts)
        translator = load_translation_model(model)
        require_vocabulary(translator[1], *texts)
        for translation in _translations(*translator, texts, num_beams, max_new_tokens):
            print(translation["translation_text"])


class Show(StrEnum):
    """What ``attend`` shows: a value of ``--show``."""

    ALIGNMENT = "alignment"
    HEADS = "heads"
    FLOW = "flow"
    ROLLOUT = "rollout"
    GRADIENT = "gradient"
    INTEGRATED = "integrated-gradients"
    UNIT = "unit"


# The files that each can be written as, the first of them where a message names one; and the options that go with it.
_PICTURES = (".png", ".svg", ".pdf")
_FILES = {
    Show.ALIGNMENT: (".html", *_PICTURES, ".gif"),
    Show.HEADS: _PICTURES,
    Show.FLOW: _PICTURES,
    Show.ROLLOUT: (".html", *_PICTURES),
    Show.GRADIENT: (".html", *_PICTURES),
    Show.INTEGRATED: (".html", *_PICTURES),
    Show.UNIT: (".html", *_PICTURES),
}
_OPTIONS = {
    Show.ALIGNMENT: {"layer", "head", "numbers", "num_beams", "max_new_tokens"},
    Show.HEADS: {"layer", "numbers", "num_beams", "max_new_tokens"},
    Show.FLOW: {"layer", "head", "numbers", "num_beams", "max_new_tokens"},
    Show.ROLLOUT: {"numbers"},
    Show.GRADIENT: {"target", "numbers"},
    Show.INTEGRATED: {"target", "numbers"},
    Show.UNIT: {"unit"},
}


def attend(
    model: Model,
    text: Annotated[str, typer.Argument(help="What to translate, or to read.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Page (.html), picture (.png, .svg, .pdf), film (.gif); default: a list."),
    ] = None,
    show: Annotated[
        Show,
        typer.Option(
            help="alignment: the weights; heads, flow: pictures of them; rollout: through all layers; gradient, "
            "integrated-gradients: what counts for the answer; unit: one of a recurrent language model."
        ),
    ] = Show.ALIGNMENT,
    layer: Annotated[int | None, typer.Option(min=0, help="Of the weights; default: all, or their mean.")] = None,
    head: Annotated[int | None, typer.Option(min=0, help="Of the weights; default: all, or their mean.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The answer that gradients explain: a class, a next token, or a place in the translation."),
    ] = None,
    unit: Annotated[int | None, typer.Option(min=0, help="Its number; default: the one that moves most.")] = None,
    numbers: Annotated[
        bool,
        typer.Option("--numbers", help="Print numbers: of the weights of each head, or how gradients agree with them."),
    ] = False,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Show where a model looks, and what its answer depends on, which need not be the same.

    Example: hfattn attend runs/dates "22 nov 1794" --output map.html
    """
    with one_sentence(), _said():
        require_text(text)
        given = {
            "layer": layer, "head": head, "target": target, "unit": unit, "numbers": numbers or None,
            "num_beams": num_beams, "max_new_tokens": max_new_tokens,
        }  # fmt: skip
        for name, value in given.items():
            if value is not None and name not in _OPTIONS[show]:
                raise UserError(f"--{name.replace('_', '-')} says nothing to --show {show}; leave it out.")
        if output is not None:
            check_output(output, _FILES[show])
        elif show in (Show.HEADS, Show.FLOW):
            raise UserError(f"--show {show} is a picture; write where it goes, as --output {show}.png")
        if show is Show.UNIT:
            _show_unit(model, text, unit, output)
        elif show in (Show.GRADIENT, Show.INTEGRATED):
            _show_saliency(model, text, show, target, numbers, output)
        else:
            _show_attention(model, text, show, layer, head, numbers, num_beams, max_new_tokens, output)


@contextmanager
def _said() -> Iterator[None]:
    """What the functions of the package say of bad input, said by a command."""
    try:
        yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(str(error)) from error


def _show_attention(
    name: str,
    text: str,
    show: Show,
    layer: int | None,
    head: int | None,
    numbers: bool,
    num_beams: int | None,
    max_new_tokens: int | None,
    output: Path | None,
) -> None:
    from ..explain import render_text, rollout, summary
    from ..loading import load_reading_model

    reader = load_reading_model(name)
    require_vocabulary(reader[1], text)
    writes = reader[0].config.is_encoder_decoder and show is not Show.ROLLOUT
    if not writes and (num_beams is not None or max_new_tokens is not None):
        raise UserError(f"{name} reads a text and translates none; leave out --num-beams and --max-new-tokens.")
    if writes:
        title, record = _written_record(name, reader, text, num_beams, max_new_tokens)
    else:
        title, record = text, _read_record(name, *reader[:2], text)
    record = rollout(record) if show is Show.ROLLOUT else _narrowed(record, layer, head)
    print(title)
    if numbers:
        print(_table(summary(record)))
    if output is not None:
        output.write_bytes(_drawn(record, title, show, output.suffix.lower()))
        print(f"Where it looks: {output}")
    elif not numbers:
        print(render_text(record))


def _written_record(
    name: str, translator: tuple[Any, Any, Any], text: str, num_beams: int | None, max_new_tokens: int | None
) -> tuple[str, Any]:
    """The cross-attention of a translation, with a title."""
    (translation,) = _translations(*translator, [text], num_beams, max_new_tokens)
    if translation["alignment"] is None:
        raise UserError(f"{name} translates without attention, so there is nowhere to see it look.")
    return f"{text} → {translation['translation_text']}", translation["alignment"]


def _read_record(name: str, model: Any, tokenizer: Any, text: str) -> Any:
    """The self-attention, or attention pooling, with which a model or its encoder reads a text."""
    import torch

    from ..explain import alignment

    inputs = tokenizer(text, return_tensors="pt")
    inputs = {name: inputs[name].to(model.device) for name in ("input_ids", "attention_mask")}
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        outputs = (model.get_encoder() if model.config.is_encoder_decoder else model)(**inputs, output_attentions=True)
    if not outputs.get("attentions"):
        raise UserError(f"{name} reads without attention, so there is nowhere to see it look.")
    return alignment(outputs, kind="self", tokenizer=tokenizer, **inputs)


def _narrowed(record: Any, layer: int | None, head: int | None) -> Any:
    from ..explain import AttentionRecord

    record.matrix(layer, head)  # says which there are
    layers, heads = (slice(None) if index is None else slice(index, index + 1) for index in (layer, head))
    return AttentionRecord(record.tokens, record.target_tokens, record.weights[layers, heads], record.kind)


def _table(summary: dict[str, Any]) -> str:
    """A line for each head."""
    names = list(summary["heads"][0])
    lines = ["  ".join(name.replace("_", " ") for name in names)]
    for head in summary["heads"]:
        cells = [
            "–" if value is None else str(value) if isinstance(value, int) else f"{value:.3f}"
            for value in head.values()
        ]
        lines.append("  ".join(f"{cell:>{len(name)}}" for cell, name in zip(cells, names, strict=True)))
    return "\n".join(lines)


def _show_saliency(name: str, text: str, show: Show, target: str | None, numbers: bool, output: Path | None) -> None:
    from ..explain import agreement, saliency, score_attention
    from ..loading import load_any_model

    model, tokenizer, target_tokenizer = load_any_model(name)
    model = model.float()  # gradients overflow in float16
    require_vocabulary(tokenizer, text)
    number = int(target) if target is not None and target.isdecimal() else target
    method = "gradient_x_input" if show is Show.GRADIENT else "integrated_gradients"
    scored = saliency(model, tokenizer, text, method=method, target=number, target_tokenizer=target_tokenizer).by_word()
    lines = []
    if numbers:
        writes = model.config.is_encoder_decoder and model.can_generate()
        if writes:
            _, record = _written_record(name, (model, tokenizer, target_tokenizer), text, None, None)
        else:
            record = _read_record(name, model, tokenizer, text)
        row = number if writes and isinstance(number, int) else None
        attention = score_attention(record, text, tokenizer, row).by_word()
        shared = agreement(attention.scores, scored.scores)
        lines.append(
            f"agreement with the attention: Kendall {shared.kendall:+.3f}, Spearman {shared.spearman:+.3f}, "
            f"{shared.top_k:.0%} of the top {shared.k} shared"
        )
    _show_scores(scored, lines, output)


def _show_unit(name: str, text: str, unit: int | None, output: Path | None) -> None:
    from ..explain import hidden_units, score_unit, strongest_unit
    from ..loading import load_language_model

    model, tokenizer = load_language_model(name)
    require_vocabulary(tokenizer, text)
    units = hidden_units(model, tokenizer, text)
    _show_scores(score_unit(units, strongest_unit(units) if unit is None else unit), [], output, limit=1.0)


def _show_scores(scored: Any, lines: list[str], output: Path | None, limit: float | None = None) -> None:
    from ..explain import plot_scores, render_scores_html, render_scores_text

    title = f"{scored.method} → {scored.target}" if scored.target else scored.method
    listed = [] if output is not None else [render_scores_text(scored)]
    drawn = None
    if output is not None:
        if output.suffix.lower() == ".html":
            drawn = render_scores_html(scored, title, limit).encode()
        else:
            drawn = _saved(plot_scores(scored, title=title, limit=limit), output.suffix.lower())
        output.write_bytes(drawn)
        listed.append(f"What counts: {output}")
    print("\n".join([title, *lines, *listed]))


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


def _drawn(record: Any, title: str, show: Show, kind: str) -> bytes:
    """The file, whole, before any of it is written."""
    from .. import explain

    if kind == ".html":
        return explain.render_html(record, title).encode()
    if kind == ".gif":
        with TemporaryDirectory() as folder:
            path = Path(folder) / "film.gif"
            explain.save_animation(record, path, title=title)
            return path.read_bytes()
    draw: Any = {Show.HEADS: explain.plot_heads, Show.FLOW: explain.plot_flow}.get(show, explain.plot_alignment)
    return _saved(draw(record, title=title), kind)


def _saved(figure: Any, kind: str) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format=kind[1:], dpi=150)
    return file.getvalue()

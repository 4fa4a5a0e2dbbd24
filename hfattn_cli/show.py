"""The commands ``hfattn attend`` and ``hfattn show``: what a model attends to, and what its answer depends on."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import (
    MaxNewTokens,
    Model,
    NumBeams,
    check_output,
    one_sentence,
    require_text,
    require_vocabulary,
)

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedModel

    from hfattn.explaining import AttentionRecord, ScoredImage, ScoredText

show_app = typer.Typer(help="Draw attention, saliency or hidden units.", no_args_is_help=True)

_PICTURES = (".png", ".svg", ".pdf")
_NUMBERS = (".jsonl", ".csv")
_PLACE = ("layer", "head")
Text = Annotated[str, typer.Argument(metavar="TEXT", help="Text to translate or to read.")]
Picture = Annotated[Path, typer.Option("--output", "-o", help="Picture to write: .png, .svg or .pdf.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Page (.html) or picture (.png, .svg, .pdf) to write; default: print a list."),
]
# Layers and heads are counted from 1, as in the pictures and pages; from 0 in Python.
Layer = Annotated[int | None, typer.Option(min=1, help="Layer to show, from 1; default: all, or their mean.")]
Head = Annotated[int | None, typer.Option(min=1, help="Head to show, from 1; default: all, or their mean.")]
Numbers = Annotated[
    bool, typer.Option("--numbers", help="Print entropy, coverage and other measures of each head, not a list.")
]
Words = Annotated[bool, typer.Option("--words", help="Merge the tokens of each word, and their weights.")]
HideSpecial = Annotated[bool, typer.Option("--hide-special", help="Leave out special tokens such as [EOS].")]
Target = Annotated[
    str | None,
    typer.Option(
        help="Answer to explain: a class, a next token, or a position in the translation; default: the model's answer."
    ),
]
Contrast = Annotated[
    str | None,
    typer.Option(help="Explain why the answer is not this class or token; for a translator, together with --target."),
]
Rows = Annotated[
    bool, typer.Option("--rows", help="Score the source for each token of the translation, one row for each.")
]
ScoresOutput = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Page (.html), picture (.png, .svg, .pdf) or, with --rows, table (.csv) to write; default: print a list.",
    ),
]
Agreement = Annotated[
    bool, typer.Option("--agreement", help="Also print how well the ranking of the words agrees with attention.")
]


def attend(
    model: Model,
    text: Annotated[
        str | None, typer.Argument(metavar="TEXT", help="Text to translate or to read, or the file of an image.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option(help="UTF-8 file with a text on each line, instead of TEXT; empty lines are skipped.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Page (.html), picture (.png, .svg, .pdf), animation (.gif), weights (.jsonl) or measures of each "
            "head (.csv) to write; default: print a list.",
        ),
    ] = None,
    layer: Layer = None,
    head: Head = None,
    numbers: Numbers = False,
    words: Words = False,
    hide_special: HideSpecial = False,
    hypotheses: Annotated[
        int, typer.Option(min=1, help="Show this many translations of the text, the best first; a page compares them.")
    ] = 1,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Show which tokens of a text, or which patches of an image, a model attends to.

    A translator attends to its source, other models to their own text. For one text and a classifier, a list or a page
    starts with the words that its answer depends on, by gradient × input. With --file, a page has all texts in a list.

    For a model of images, TEXT is the file of an image. Attention, rollout and, of a classifier, gradient × input are
    then shown side by side.

    Example: hfattn attend runs/dates "22 nov 1794" --output map.html
    """
    from hfattn.errors import UserError

    with _one_sentence():
        if (text is None) == (file is None):
            raise UserError("Write either a text, or --file with a file of texts.")
        kinds = (".html", *_NUMBERS) if file is not None or hypotheses > 1 else (".html", *_PICTURES, ".gif", *_NUMBERS)
        if file is not None and hypotheses > 1:
            raise UserError("--hypotheses compares the translations of one text; remove --file or --hypotheses.")
        lines = [(1, text or "")] if file is None else _lines_of(file)
        _check(lines[0][1], output, kinds)
        reader = _Reader(model, num_beams, max_new_tokens, hypotheses)
        if reader.reads_images:
            if file is not None or words or hide_special or hypotheses > 1 or max_new_tokens is not None:
                raise UserError(
                    f"{model} reads images; remove --file, --words, --hide-special, --hypotheses and --max-new-tokens."
                )
            captions = reader.loaded[0].config.is_encoder_decoder
            _attend_image(model, Path(lines[0][1]), output, layer, head, numbers, captions, num_beams)
            return
        seen = []
        for number, line in lines:
            try:
                seen += [each.selected(layer, head, words, hide_special) for each in reader.read(line)]
            except ValueError as error:
                raise UserError(f"Line {number} of {file.name}: {error}" if file is not None else str(error)) from error
        if reader.classifies and file is None and not numbers and (output is None or output.suffix.lower() == ".html"):
            _present(seen[0].record, seen[0].title, output, scored=_score(model, lines[0][1]))
            return
        _present_all(seen, output, numbers, (layer or 1, head or 1), file.name if file else None)


@show_app.command()
def heads(
    model: Model,
    text: Text,
    output: Picture,
    layer: Layer = None,
    words: Words = False,
    hide_special: HideSpecial = False,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Draw a small attention map of each head.

    Example: hfattn show heads runs/reviews "a good film" --output heads.png
    """
    with _one_sentence():
        from hfattn.explaining import plot_heads

        _check(text, output, _PICTURES)
        (seen,) = _Reader(model, num_beams, max_new_tokens).read(text)
        number = _index("layer", layer, seen.record.weights.shape[0])
        shown = seen.selected(None, None, words, hide_special)
        _present(shown.record, shown.title, output, draw=partial(plot_heads, layer=number))


@show_app.command()
def flow(
    model: Model,
    text: Text,
    output: Picture,
    layer: Layer = None,
    head: Head = None,
    words: Words = False,
    hide_special: HideSpecial = False,
    num_beams: NumBeams = None,
    max_new_tokens: MaxNewTokens = None,
) -> None:
    """Draw the attention weights as lines.

    Example: hfattn show flow runs/dates "22 nov 1794" --output flow.png
    """
    with _one_sentence():
        from hfattn.explaining import plot_flow

        _check(text, output, _PICTURES)
        (seen,) = _Reader(model, num_beams, max_new_tokens).read(text)
        shown = seen.selected(layer, head, words, hide_special)
        _present(shown.record, shown.title, output, draw=plot_flow)


@show_app.command("rollout")
def show_rollout(model: Model, text: Text, output: Output = None, numbers: Numbers = False) -> None:
    """Follow attention through all layers.

    Attention rollout (Abnar & Zuidema 2020) multiplies the self-attention of all layers.

    Example: hfattn show rollout runs/reviews "a good film"
    """
    with _one_sentence():
        from hfattn.explaining import rollout, self_attention
        from hfattn.loading import load_reading_model

        _check(text, output)
        reader, tokenizer, _ = load_reading_model(model)
        _check_reads_texts(model, reader)
        require_vocabulary(tokenizer, text)
        _present(rollout(self_attention(model, reader, tokenizer, text)), text, output, numbers)


def _saliency_command(name: str, method: str, help_text: str) -> None:
    """Add ``hfattn show NAME`` for a method of ``hfattn.explaining.saliency``."""

    @show_app.command(name, help=help_text)
    def command(
        model: Model,
        text: Text,
        output: ScoresOutput = None,
        target: Target = None,
        contrast: Contrast = None,
        rows: Rows = False,
        agreement: Agreement = False,
    ) -> None:
        _show_saliency(model, text, output, method, target, contrast, rows, agreement)


_saliency_command(
    "gradient",
    "gradient_x_input",
    """Score words by gradient × input.

    Example: hfattn show gradient runs/reviews "a good film" --agreement
    """,
)
_saliency_command(
    "integrated-gradients",
    "integrated_gradients",
    """Score words by integrated gradients.

    The scores (Sundararajan et al. 2017) add up to the difference between the answers with and without the text.

    Example: hfattn show integrated-gradients runs/reviews "a good film" --output why.html
    """,
)
_saliency_command(
    "occlusion",
    "occlusion",
    """Score words by what changes without them.

    Each word is replaced by the mask token, or else by the unknown or the padding token (Li et al. 2016).

    Example: hfattn show occlusion runs/dates "22 nov 1794" --rows
    """,
)


@show_app.command()
def unit(
    model: Model,
    text: Text,
    output: Output = None,
    number: Annotated[
        int | None, typer.Option("--unit", min=0, help="Number of the unit; default: the one that varies most.")
    ] = None,
) -> None:
    """Color a text by the value of one hidden unit.

    The model must be a char_rnn.

    Example: hfattn show unit runs/text "The class of the function"
    """
    with _one_sentence():
        from hfattn.explaining import hidden_units, score_unit, strongest_unit
        from hfattn.loading import load_language_model

        _check(text, output)
        reader, tokenizer = load_language_model(model)
        require_vocabulary(tokenizer, text)
        units = hidden_units(reader, tokenizer, text)
        _present_scores(score_unit(units, strongest_unit(units) if number is None else number), output, limit=1.0)


@contextmanager
def _one_sentence() -> Iterator[None]:
    """Extend ``one_sentence`` to ``ValueError``, whose messages in ``hfattn.explaining`` are written for the user."""
    from hfattn.errors import UserError

    with one_sentence():
        try:
            yield
        except UserError:
            raise
        except ValueError as error:
            raise UserError(str(error)) from error


def _check(text: str, output: Path | None, kinds: tuple[str, ...] = (".html", *_PICTURES)) -> None:
    require_text(text)
    if output is not None:
        check_output(output, kinds)


def _lines_of(file: Path) -> list[tuple[int, str]]:
    """Return the texts of a file with the numbers of their lines."""
    from hfattn.data.rows import read_lines
    from hfattn.errors import UserError

    if not file.is_file():
        raise UserError(f"{file} is not a file; with --file, write the path of a file with a text on each line.")
    lines = [(number, line) for number, line in read_lines(file) if line.strip()]
    if not lines:
        raise UserError(f"{file} has no text; write one on each line.")
    return lines


@dataclass(frozen=True)
class _Seen:
    """The attention of a text.

    Attributes:
        text: the text.
        record: its attention.
        translation: its translation, if it was translated.
        score: the log-probability of the translation, in nats.
        part: name of the part of the record that the options selected.
    """

    text: str
    record: "AttentionRecord"
    translation: str | None = None
    score: float | None = None
    part: str = ""

    @property
    def title(self) -> str:
        title = self.text if self.translation is None else f"{self.text} → {self.translation}"
        return f"{title}{self.part}"

    def selected(self, layer: int | None, head: int | None, words: bool, hide_special: bool) -> "_Seen":
        """Return the layer, head and words that the options select."""
        from hfattn.explaining import hide_special as without_special
        from hfattn.explaining import merge_words

        record, selected, named = self.record, [], []
        for size, (name, number) in zip(record.weights.shape, {"layer": layer, "head": head}.items(), strict=False):
            index = _index(name, number, size)
            selected.append(slice(None) if index is None else slice(index, index + 1))
            named += [] if number is None else [f"{name} {number}"]
        record = replace(record, weights=record.weights[*selected])
        record = merge_words(record) if words else record
        record = without_special(record) if hide_special else record
        return replace(self, record=record, part=f" ({', '.join(named)})" if named else "")


class _Reader:
    """A model that reads texts: a translator with cross-attention, or any other model with self-attention."""

    def __init__(
        self, name: str, num_beams: int | None = None, max_new_tokens: int | None = None, hypotheses: int = 1
    ) -> None:
        from hfattn.errors import UserError
        from hfattn.loading import load_reading_model

        self.name, self.loaded = name, load_reading_model(name)
        self.options = (num_beams, max_new_tokens, hypotheses)
        if not self.loaded[0].config.is_encoder_decoder and self.options != (None, None, 1):
            raise UserError(f"{name} does not translate; remove --num-beams, --max-new-tokens and --hypotheses.")

    @property
    def reads_images(self) -> bool:
        from hfattn.loading import reads_images

        return reads_images(self.loaded[0])

    @property
    def classifies(self) -> bool:
        """Whether the saved model, which is loaded without its head, is a classifier of texts."""
        return "ForSequenceClassification" in "".join(self.loaded[0].config.architectures or [])

    def read(self, text: str) -> list[_Seen]:
        """Return the attention of a text for each of its translations, the best first."""
        from hfattn.explaining import cross_attention, self_attention

        model, tokenizer, _ = self.loaded
        _check_reads_texts(self.name, model)
        require_vocabulary(tokenizer, text)
        if model.config.is_encoder_decoder:
            found = cross_attention(self.name, self.loaded, text, *self.options)
            return [_Seen(text, each.record, each.text, each.score) for each in found]
        return [_Seen(text, self_attention(self.name, model, tokenizer, text))]


def _check_reads_texts(name: str, model: "PreTrainedModel") -> None:
    from hfattn.errors import UserError
    from hfattn.loading import reads_images

    if reads_images(model):
        raise UserError(f"{name} reads images; hfattn attend shows its attention, rollout and gradients.")


def _attend_image(
    name: str,
    file: Path,
    output: Path | None,
    layer: int | None,
    head: int | None,
    numbers: bool,
    captions: bool,
    num_beams: int | None,
) -> None:
    """Print or write what a model saw in an image."""
    from hfattn.data import open_image
    from hfattn.errors import UserError
    from hfattn.explaining import AttentionRecord, read_captions, read_image, save_image_html
    from hfattn.explaining.overlay import answering_row, image_panels, plot_panels
    from hfattn.loading import load_any_model, load_captioner

    if not file.is_file():
        raise UserError(f"{name} reads images, and {file} is not a file; write the path of an image.")
    if output is not None and output.suffix.lower() == ".gif":
        raise UserError(f"{name} reads images, which have no animation; write an .html or a .png.")
    image = open_image(file, place=file.name)
    if captions:
        captioner, tokenizer, processor = load_captioner(name)
        reading = read_captions(captioner.float(), tokenizer, processor, image, num_beams)
    else:
        model, processor, _ = load_any_model(name)
        reading = read_image(name, model.float(), processor, image)
    record = reading.views["attention"]
    assert isinstance(record, AttentionRecord)
    selected = _Seen(file.name, record).selected(layer, head, False, False)
    row = selected.record if captions else answering_row(selected.record)
    title = file.name if reading.probability is None else f"{file.name} → {reading.answer} ({reading.probability:.1%})"
    if numbers or (output is not None and output.suffix.lower() in _NUMBERS):
        seen = replace(selected, record=row)
        _present_all([seen], output, numbers, (layer or 1, head or 1), None)
        return
    views = {**reading.views, "attention": selected.record}
    lines = [f"{title}{selected.part}"]
    if output is None:
        lines += [
            f"{view if name is None else f'{name} ← {view}'}: {_strongest(values)}"
            for view, shown in views.items()
            for name, values in _maps(shown)
        ]
    else:
        with _new_file(output) as path:
            if path.suffix == ".html":
                save_image_html(reading.image, views, path, lines[0])
            else:
                drawn = {"attention": selected.record} if captions else views
                panels = [
                    panel._replace(heading=panel.heading if view == "attention" else view)
                    for view, shown in drawn.items()
                    for panel in image_panels(shown)
                ]
                plot_panels(reading.image, panels, lines[0]).savefig(path, dpi=150)
        lines.append(f"Written: {output}")
    print("\n".join(lines))


def _maps(
    shown: "AttentionRecord | ScoredImage | Sequence[ScoredImage]",
) -> Iterator[tuple[str | None, "ScoredImage | Tensor"]]:
    """Yield the words of a caption with their maps, or the map of an image; attention is the mean of the heads."""
    from hfattn.explaining import AttentionRecord, ScoredImage
    from hfattn.explaining.overlay import answering_row

    if isinstance(shown, ScoredImage):
        yield None, shown
    elif not isinstance(shown, AttentionRecord):
        for each in shown:
            yield each.target, each
    elif shown.kind == "cross":
        yield from zip(shown.target_tokens, shown.maps(), strict=True)
    else:
        yield None, answering_row(shown).maps(-1)[0]


def _strongest(shown: "ScoredImage | Tensor", most: int = 3) -> str:
    """Return the patches with the largest weights or scores."""
    from hfattn.explaining import ScoredImage

    values = shown.scores if isinstance(shown, ScoredImage) else shown
    columns = values.shape[1]
    order = values.abs().flatten().argsort(descending=True)[:most].tolist()
    number = "{:+.3g}" if isinstance(shown, ScoredImage) else "{:.1%}"
    return ", ".join(
        f"row {place // columns + 1} column {place % columns + 1} {number.format(float(values.flatten()[place]))}"
        for place in order
    )


def _index(name: str, number: int | None, size: int) -> int | None:
    """Return the index of a layer or head that is counted from 1."""
    from hfattn.errors import UserError

    if number is not None and number > size:
        known = f"1 to {size}" if size > 1 else "1"
        raise UserError(f"There is no {name} {number}; with --{name}, write {known}.")
    return None if number is None else number - 1


def _present(
    record: "AttentionRecord",
    title: str,
    output: Path | None,
    numbers: bool = False,
    first: tuple[int, int] = (1, 1),
    draw: Callable[..., Any] | None = None,
    scored: "ScoredText | None" = None,
) -> None:
    """Print a record as a list or in numbers, or write it to a file.

    Args:
        first: numbers of the first layer and head of the record, counted from 1.
        draw: function of ``hfattn.explaining`` that draws a picture; default ``plot_alignment``.
        scored: what the answer depends on, which comes first in a list or on a page.
    """
    from hfattn.explaining import plot_alignment, render_html, render_scores_text, render_text, save_animation

    lines = [title]
    if scored is not None:
        before = [scored.heading] if output is not None else [scored.heading, render_scores_text(scored), ""]
        lines = [*before, f"attention: {title}"]
    if numbers:
        lines.append(_table(_heads(record, first)))
    if output is not None:
        with _new_file(output) as path:
            if path.suffix == ".html":
                path.write_text(render_html(record, title, scored=scored), encoding="utf-8")
            elif path.suffix == ".gif":
                save_animation(record, path, title=title)
            else:
                (draw or plot_alignment)(record, title=title).savefig(path, dpi=150)
        lines.append(f"Written: {output}")
    elif not numbers:
        lines.append(render_text(record))
    print("\n".join(lines))


def _present_all(
    seen: list[_Seen], output: Path | None, numbers: bool, first: tuple[int, int], heading: str | None
) -> None:
    """Print or write the attention of one text, of several translations of a text, or of the texts of a file.

    Args:
        heading: name of the file; None for one text.
    """
    from hfattn.explaining import render_comparison, render_list

    kind = None if output is None else output.suffix.lower()
    if output is None or (len(seen) == 1 and heading is None and kind not in _NUMBERS):
        for place, each in enumerate(seen):
            if place:
                print()
            _present(each.record, each.title, output, numbers, first)
        return
    with _new_file(output) as path:
        if kind == ".jsonl":
            text = "".join(f"{json.dumps(_numbers(each), ensure_ascii=False)}\n" for each in seen)
        elif kind == ".csv":
            text = _measures(seen, first)
        elif heading is not None:
            text = render_list([(each.title, each.record) for each in seen], heading)
        else:
            names = [f"{place}. {each.translation} ({each.score:.2f} nats)" for place, each in enumerate(seen, 1)]
            text = render_comparison(dict(zip(names, (each.record for each in seen), strict=True)), seen[0].text)
        path.write_text(text, encoding="utf-8", newline="")
    print(f"Written: {output}")


def _numbers(seen: _Seen) -> dict[str, Any]:
    """Return a text, its translation and its record, for a line of JSON."""
    known = {"text": seen.text, "translation": seen.translation, "score": seen.score}
    return {name: value for name, value in known.items() if value is not None} | seen.record.to_dict()


def _measures(seen: list[_Seen], first: tuple[int, int]) -> str:
    """Return a table of comma-separated values with a row of measures for each text, layer and head."""
    rows = [
        {"text": each.text, "translation": each.translation} | head
        for each in seen
        for head in _heads(each.record, first)
    ]
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _table(heads: list[dict[str, Any]]) -> str:
    """Return a line of measures for each head."""
    names = list(heads[0])
    lines = ["  ".join(name.replace("_", " ") for name in names)]
    for head in heads:
        cells = [
            "–" if value is None else str(value) if name in _PLACE else f"{value:.3f}" for name, value in head.items()
        ]
        lines.append("  ".join(f"{cell:>{len(name)}}" for cell, name in zip(cells, names, strict=True)))
    return "\n".join(lines)


def _heads(record: "AttentionRecord", first: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the measures of each head; its layer and head are counted from the numbers of the first."""
    from hfattn.explaining import summary

    start = dict(zip(_PLACE, first, strict=True))
    return [head | {name: head[name] + start[name] for name in _PLACE} for head in summary(record)["heads"]]


@contextmanager
def _new_file(output: Path) -> Iterator[Path]:
    """Provide a temporary file with a lowercase suffix, which is moved to ``output`` if no error occurs.

    Raises:
        UserError: the disk is full; ``output`` is as before.
    """
    from hfattn.errors import UserError
    from hfattn.files import is_full

    try:
        with TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as folder:
            path = Path(folder) / f"new{output.suffix.lower()}"
            yield path
            path.replace(output)
    except OSError as error:
        if not is_full(error):
            raise
        raise UserError(f"The disk is full: {output} was not written; free some space and try again.") from error


def _show_saliency(
    name: str,
    text: str,
    output: Path | None,
    method: str,
    target: str | None,
    contrast: str | None,
    rows: bool,
    agreement: bool,
) -> None:
    from hfattn.errors import UserError

    with _one_sentence():
        from hfattn.explaining import saliency, saliency_rows
        from hfattn.loading import load_any_model

        if rows and (target, contrast, agreement) != (None, None, False):
            raise UserError("--rows scores each token of the translation; remove --target, --contrast and --agreement.")
        _check(text, output, (".html", *_PICTURES, ".csv") if rows else (".html", *_PICTURES))
        model, tokenizer, target_tokenizer = load_any_model(name)
        _check_reads_texts(name, model)
        model = model.float()  # gradients overflow in float16
        require_vocabulary(tokenizer, text)
        if rows:
            found = saliency_rows(
                model, tokenizer, text, method=method, target_tokenizer=target_tokenizer, by_word=True
            )
            _present_rows(found, text, output)
            return
        answer, other = (int(word) if word is not None and word.isdecimal() else word for word in (target, contrast))
        scored = saliency(
            model,
            tokenizer,
            text,
            method=method,
            target=answer,
            contrast=contrast if model.can_generate() else other,
            target_tokenizer=target_tokenizer,
            by_word=True,
        )
        note = _agreement(name, (model, tokenizer, target_tokenizer), text, scored, answer) if agreement else None
        _present_scores(scored, output, note)


def _score(name: str, text: str) -> "ScoredText":
    """Return what the answer of a classifier depends on, by word."""
    from hfattn.explaining import saliency
    from hfattn.loading import load_any_model

    model, tokenizer, _ = load_any_model(name)
    return saliency(model.float(), tokenizer, text, method="gradient_x_input", by_word=True)


def _present_rows(rows: list["ScoredText"], text: str, output: Path | None) -> None:
    """Print the scores of each token of a translation as a list, or write them to a file."""
    from hfattn.explaining import plot_rows, render_rows_html, render_rows_text, write_rows_csv

    title = f"{rows[0].method}: {text}"
    lines = [title]
    gaps = [abs(row.gap) for row in rows if row.gap is not None]
    if output is None:
        lines.append(render_rows_text(rows))
        if gaps and rows[0].method == "integrated gradients":
            lines.append(f"largest difference between the sum of a row and the change of its answer: {max(gaps):.2g}")
    else:
        with _new_file(output) as path:
            if path.suffix == ".html":
                path.write_text(render_rows_html(rows, title), encoding="utf-8")
            elif path.suffix == ".csv":
                path.write_text(write_rows_csv(rows), encoding="utf-8", newline="")
            else:
                plot_rows(rows, title=title).savefig(path, dpi=150)
        lines.append(f"Written: {output}")
    print("\n".join(lines))


def _agreement(
    name: str, reader: tuple[Any, Any, Any], text: str, scored: "ScoredText", target: int | str | None
) -> str:
    """Return one line on the agreement of attention weights and scores in ranking the words of a text."""
    from hfattn.explaining import agreement, cross_attention, score_attention, self_attention

    model, tokenizer, _ = reader
    row = None
    if model.config.is_encoder_decoder and model.can_generate():
        record = cross_attention(name, reader, text)[0].record
        row = target if isinstance(target, int) else None
    else:
        record = self_attention(name, model, tokenizer, text)
    attention = score_attention(record, text, tokenizer, row).by_word()
    shared = agreement(attention.scores, scored.scores)
    return (
        f"agreement with attention: Kendall {shared.kendall:+.3f}, Spearman {shared.spearman:+.3f}, "
        f"{shared.top_k:.0%} of the top {shared.k} shared"
    )


def _present_scores(
    scored: "ScoredText", output: Path | None, note: str | None = None, limit: float | None = None
) -> None:
    """Print the scores of a text as a list, or write the colored text to a file."""
    from hfattn.explaining import plot_scores, render_scores_html, render_scores_text

    title = scored.heading
    lines = [title] if note is None else [title, note]
    if output is None:
        lines.append(render_scores_text(scored))
    else:
        with _new_file(output) as path:
            if path.suffix == ".html":
                path.write_text(render_scores_html(scored, title, limit), encoding="utf-8")
            else:
                plot_scores(scored, title=title, limit=limit).savefig(path, dpi=150)
        lines.append(f"Written: {output}")
    print("\n".join(lines))

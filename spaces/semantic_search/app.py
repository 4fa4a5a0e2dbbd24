"""Find sentences by their meaning with a sentence encoder, among examples or those of the visitor.

hfattn space run semantic_search --model encoder=runs/spa_eng_distil
"""

import html
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import gradio as gr
import torch

from hfattn.data.rows import read_lines
from hfattn.errors import UserError, one_sentence
from hfattn.sentence_encoders import SentenceEncoder, load_sentence_encoder
from hfattn.spaces import Texts, is_toy, knows, launch, load_folder, number, own_language_first
from hfattn.text_search import distinct_lines, nearest_sentences, read_sentences

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
LONGEST = 300  # characters of a sentence
MOST = 500  # sentences to look in
LARGEST = 1_000_000  # bytes of a file with sentences
FOUND = 8  # sentences that are nearest to a text
# In words that the toy knows; none is among the sentences of the page.
EXAMPLES = {
    "en": ("They bought an expensive car.", "My mother was tired.", "The dogs run in the street."),
    "es": ("Los perros corren en la calle.", "Mi hermano tiene un libro rojo.", "¿Está cerrado el hotel?"),
}
CSS = """
.nearest { list-style: none; margin: 0 !important; padding: 0 !important; }
.nearest .row { display: grid; grid-template-columns: 1fr auto; gap: .2rem .8rem; align-items: baseline;
  padding: .45rem 0; margin: 0; }
.nearest .row + .row { border-top: 1px solid var(--border-color-primary); }
.nearest .row:first-child .text { font-weight: 700; }
.nearest .text { overflow-wrap: anywhere; font-size: 1.05rem; }
.nearest .cosine { font-variant-numeric: tabular-nums; text-align: right; }
.nearest .bar { grid-column: 1 / -1; height: .4rem; border-radius: .25rem;
  background: var(--background-fill-secondary); }
.nearest .bar i { display: block; height: 100%; border-radius: .25rem; background: #2563eb; }
.nearest + .quiet { margin-top: .8rem; }
"""


class Collection(NamedTuple):
    """Sentences to look in.

    Args:
        lines: the different sentences of the box.
        known: those of them of which the model knows enough tokens.
        vectors: vectors (N, D) of ``known``.
        cut: number of ``known`` of which the model does not read all tokens.
    """

    lines: list[str]
    known: list[str]
    vectors: torch.Tensor
    cut: int


class Finder(NamedTuple):
    """A sentence encoder that looks for sentences.

    Args:
        encoder: in float32.
        toy: whether it was trained on generated sentences when the Space was built.
    """

    encoder: SentenceEncoder
    toy: bool

    @classmethod
    def load(cls, name: str, toy: bool = False) -> "Finder":
        """Load a sentence encoder from a folder or the Hub.

        Raises:
            UserError: if it is not a sentence encoder.
        """
        encoder = load_sentence_encoder(name)
        encoder.model.float()
        return cls(encoder, toy)

    def knows(self, text: str) -> bool:
        return knows(self.encoder.tokenizer, text)

    def excess(self, text: str) -> int | None:
        """Return the number of tokens of a text if it has more than the model reads."""
        tokens = len(self.encoder.tokenizer(text)["input_ids"])
        return tokens if tokens > (self.encoder.max_length or tokens) else None

    def collected(self, lines: list[str]) -> Collection:
        """Return sentences with their vectors."""
        known = [line for line in lines if self.knows(line)]
        vectors = self.encoder.embed(known) if known else torch.empty(0, 0)
        return Collection(lines, known, vectors, sum(self.excess(line) is not None for line in known))

    def nearest(self, text: str, known: Sequence[str], vectors: torch.Tensor) -> list[tuple[str, float]]:
        """Return the sentences that are nearest to a text with their cosines, the best first."""
        return nearest_sentences(self.encoder, text, known, vectors, FOUND)


def received(path: str, request: gr.Request) -> list[str]:
    """Read the lines of an uploaded file, and delete the file."""
    file = Path(path)
    try:
        if file.stat().st_size > LARGEST:
            TEXTS.refuse(request, "large_file", most=LARGEST // 1_000_000)
        return [line for _, line in read_lines(file)]
    except UserError:
        TEXTS.refuse(request, "not_text")
    finally:
        file.unlink(missing_ok=True)


def checked(lines: Sequence[str], request: gr.Request) -> list[str]:
    """Return the different sentences of lines, or show why they are refused."""
    for place, line in enumerate(lines, start=1):
        if len(line.strip()) > LONGEST:
            TEXTS.refuse(request, "long_line", line=place, length=len(line.strip()), most=LONGEST)
    sentences = distinct_lines(lines)
    if not sentences:
        TEXTS.refuse(request, "no_sentences")
    if len(sentences) > MOST:
        TEXTS.refuse(request, "too_many", number=len(sentences), most=MOST)
    return sentences


def row(text: str, cosine: float, tag: str) -> str:
    """Return a text, a cosine and its bar; a bar has no length below 0."""
    return (
        f'<{tag} class="row"><span class="text" dir="auto">{html.escape(text)}</span>'
        f'<span class="cosine">{number(cosine)}</span>'
        f'<span class="bar"><i style="width:{100 * min(1, max(0, cosine)):.1f}%"></i></span></{tag}>'
    )


def quiet(text: str) -> str:
    return f'<p class="quiet">{html.escape(text)}</p>'


def build(finder: Finder) -> gr.Blocks:
    """Build the page."""
    first = finder.collected(read_sentences(SPACE / "sentences.txt"))

    def query(text: str, request: gr.Request) -> str:
        """Return a text to look for or to compare, or show why it is refused."""
        text = (text or "").strip()
        if not text:
            TEXTS.refuse(request, "no_text")
        if len(text) > LONGEST:
            TEXTS.refuse(request, "long_text", length=len(text), most=LONGEST)
        if not finder.knows(text):
            TEXTS.refuse(request, "unknown_text")
        if tokens := finder.excess(text):
            TEXTS.refuse(request, "many_tokens", tokens=tokens, most=finder.encoder.max_length)
        return text

    def find(
        text: str, sentences: str, kept: Collection | None, request: gr.Request
    ) -> Iterator[tuple[Collection | None, str]]:
        """Yield the sentences to look in with their vectors, which are computed if they are new, and those found."""
        text, lines = query(text, request), checked((sentences or "").split("\n"), request)
        found = next((each for each in (kept, first) if each is not None and each.lines == lines), None)
        if found is None:
            yield kept, quiet(TEXTS.say(request, "waiting"))
            found = finder.collected(lines)
        if not found.known:
            TEXTS.refuse(request, "unknown_sentences")
        rows = "".join(row(*each, tag="li") for each in finder.nearest(text, found.known, found.vectors))
        told = TEXTS.say(request, "looked_in", number=len(found.known))
        if left := len(lines) - len(found.known):
            told += " " + TEXTS.say(request, "left_out", number=left)
        if found.cut:
            told += " " + TEXTS.say(request, "cut", number=found.cut, most=finder.encoder.max_length)
        yield found, f'<ol class="nearest">{rows}</ol>{quiet(told)}'

    def drop(path: str | None, request: gr.Request) -> tuple[str, None]:
        """Return the sentences of a file, and nothing for the file, which is deleted."""
        if path is None:
            TEXTS.refuse(request, "no_file")
        return "\n".join(checked(received(path, request), request)), None

    def compare(one: str, other: str, request: gr.Request) -> str:
        one, other = query(one, request), query(other, request)
        (_, cosine), *_ = finder.nearest(one, [other], finder.encoder.embed([other]))
        return f'<div class="nearest">{row(TEXTS.say(request, "cosine"), cosine, tag="p")}</div>'

    def welcome(request: gr.Request) -> tuple[gr.Dataset, str]:
        listed = own_language_first(EXAMPLES, request)
        return gr.Dataset(samples=[[each] for each in listed]), listed[0]

    def choose(place: int, request: gr.Request) -> str:
        return own_language_first(EXAMPLES, request)[place]

    with gr.Blocks(title="Semantic search", analytics_enabled=False, delete_cache=(60, 60)) as page:
        gr.Markdown(TEXTS.toy("title", "toy") if finder.toy else TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        model = finder.encoder.model
        gr.Markdown(
            f"`{model.config.model_type}` · {model.num_parameters():,} {TEXTS('parameters')}", elem_classes="quiet"
        )
        with gr.Tab(TEXTS("tab_find"), id="find"):
            kept = gr.State(None, time_to_live=3600)
            text = gr.Textbox(label=TEXTS("look_for"), max_length=LONGEST)
            finding = gr.Button(TEXTS("find"), variant="primary")
            examples = gr.Dataset(
                components=[text],
                samples=[[each] for each in own_language_first(EXAMPLES, None)],
                type="index",
                label=TEXTS("examples"),
            )
            with gr.Row(equal_height=False):
                with gr.Column(scale=3, min_width=300):
                    nearest = gr.HTML(elem_id="nearest", min_height=120)
                with gr.Column(scale=2, min_width=300):
                    sentences = gr.Textbox(
                        "\n".join(first.lines), label=TEXTS("sentences"), info=TEXTS("sentences_info"), lines=10,
                        max_lines=16, elem_id="sentences",
                    )  # fmt: skip
                    file = gr.File(label=TEXTS("own_file"), type="filepath", height=190)
                    gr.Markdown(TEXTS("privacy"), elem_classes="quiet")
        with gr.Tab(TEXTS("tab_compare"), id="compare"):
            one = gr.Textbox(EXAMPLES["en"][1], label=TEXTS("one"), max_length=LONGEST)
            other = gr.Textbox("Mi madre está cansada.", label=TEXTS("other"), max_length=LONGEST)
            comparing = gr.Button(TEXTS("compare"), variant="primary")
            compared = gr.HTML(elem_id="compared", min_height=60)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        searched = {"fn": find, "inputs": [text, sentences, kept], "outputs": [kept, nearest]}
        # Progress is hidden, otherwise Gradio shows "Error" on top of the output.
        hidden = {"api_visibility": "private", "show_progress": "hidden"}
        gr.on([finding.click, text.submit], **searched, api_name="find", show_progress="hidden")
        page.load(welcome, None, [examples, text], **hidden).then(**searched, **hidden)
        examples.click(choose, examples, text, **hidden).then(**searched, **hidden)
        dropped = file.upload(drop, file, [sentences, file], api_name="read_file", show_progress="hidden")
        dropped.success(**searched, **hidden)
        gr.on(
            [page.load, comparing.click, one.submit, other.submit], compare, [one, other], compared, api_name="compare",
            show_progress="hidden",
        )  # fmt: skip
    return page


def main() -> None:
    with one_sentence():
        finder = Finder.load(load_folder("encoder", SPACE), is_toy("encoder", SPACE))
    launch(build(finder), TEXTS, CSS, max_file_size="20mb")


if __name__ == "__main__":
    main()

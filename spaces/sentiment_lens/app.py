"""Compare two classifiers on one opinion: answers, attention, gradients and word swaps.

hfattn space run sentiment_lens --model recurrent=runs/sst2_bilstm --model pretrained=runs/sst2_minilm
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import gradio as gr
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hfattn.errors import UserError, one_sentence
from hfattn.explaining import ScoredText, agreement, alignment, saliency, score_attention, scores_snippet
from hfattn.loading import load_any_model, max_positions
from hfattn.metrics import class_probabilities, read_swaps, swap_words
from hfattn.models.alignment import layers_without_weights
from hfattn.spaces import MOST_UNKNOWN, Texts, is_toy, launch, load_folder, own_language_first

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
LONGEST = 300  # characters
MOST_TOKENS = 128
STEPS = 64  # steps of the integral
METHODS = ("attention", "gradient_x_input", "integrated_gradients")
NAMES = ("recurrent", "pretrained")
EXAMPLES = {
    "en": (
        "Although the plot is dull, I loved the film.",
        "The film is not boring at all.",
        "The actors were very convincing.",
        "Emily says that the French film was never moving.",
        "His performance was superb, but I did not like the ending.",
    ),
    "es": (
        "Aunque la historia es aburrida, la película me gustó.",
        "María dice que el guion no es nada malo.",
    ),
}
# Common words of only one of the languages ("he" exists in both).
_SPANISH = re.compile(r"[ñ¿¡]|\b(el|la|los|las|una?|es|era|que|de|muy|pero|dice|película|me)\b", re.IGNORECASE)
_ENGLISH = re.compile(r"\b(the|an?|is|was|and|but|not|says|that|of|film|movie|i|it|his|her)\b", re.IGNORECASE)
CSS = """
.reader { border: 1px solid var(--border-color-primary); border-radius: .6rem; padding: .9rem 1rem !important; }
.reader h3 { margin: 0; }
.answer { display: grid; grid-template-columns: auto 1fr auto; gap: .25rem .6rem; align-items: center; }
.answer .bar { height: .8rem; border-radius: .25rem; background: var(--background-fill-secondary); }
.answer .bar i { display: block; height: 100%; border-radius: .25rem; background: #2563eb; min-width: 1px; }
.answer b, .answer span { overflow-wrap: anywhere; }
.answer .best { font-weight: 700; }
.answer .share { font-variant-numeric: tabular-nums; text-align: right; }
.words { font-size: 1.1rem; margin-top: .9rem; }
.notes { margin: .6rem 0 0; padding-left: 1.1rem; font-size: .92rem; color: var(--body-text-color-subdued); }
.notes li { margin: .15rem 0; }
.more { margin-top: .5rem; font-size: .85rem; color: var(--body-text-color-subdued); }
.more summary { cursor: pointer; }
.more p { margin: .3rem 0 0; }
.unsure { padding: .6rem .8rem; border-left: .25rem solid #d97706; border-radius: .4rem; margin: 0;
  background: var(--background-fill-secondary); }
.swapped { overflow-x: auto; }
.swapped table { border-collapse: collapse; width: 100%; font-size: .95rem; }
.swapped table, .swapped thead, .swapped tr { border: 0 !important; background: none !important; }
.swapped th, .swapped td { text-align: left; padding: .4rem .6rem; border: 0 !important; vertical-align: top;
  border-bottom: 1px solid var(--border-color-primary) !important; background: none !important; }
.swapped td.move { white-space: nowrap; font-variant-numeric: tabular-nums; }
.swapped td.flip { font-weight: 700; }
.swapped mark { background: rgb(234 179 8/.35); color: inherit; border-radius: .2em; padding: 0 .1em; }
@media (max-width: 40rem) {
  .swapped thead { display: none; }
  .swapped tr, .swapped td { display: block; }
  .swapped td { border-bottom: 0 !important; padding: .15rem 0; }
  .swapped td[data-name]::before { content: attr(data-name) ": "; color: var(--body-text-color-subdued); }
  .swapped tr { border-bottom: 1px solid var(--border-color-primary) !important; padding: .5rem 0; }
}
"""


class Reader(NamedTuple):
    """A classifier of texts.

    Args:
        model: in evaluation mode, float32, with attention weights that can be returned.
        tokenizer: its tokenizer.
        toy: whether it is a toy, trained on generated opinions when the Space was built.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    toy: bool

    @classmethod
    def load(cls, name: str, toy: bool = False) -> "Reader":
        """Load a classifier from a folder or the Hub.

        Raises:
            UserError: if it is not a text classifier.
        """
        model, tokenizer, _ = load_any_model(name)
        if not type(model).__name__.endswith("ForSequenceClassification") or model.config.problem_type == "regression":
            raise UserError(f"{name} holds a {type(model).__name__}, which classifies no texts; choose another model.")
        model.set_attn_implementation("eager")
        return cls(model.float().eval(), tokenizer, toy)

    @property
    def labels(self) -> list[str]:
        """Return the class names; a model with one sigmoid has its class and the negation."""
        names = [str(self.model.config.id2label[i]) for i in sorted(self.model.config.id2label)]
        return [f"not {names[0]}", names[0]] if len(names) == 1 else names

    def inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        encoded = self.tokenizer(list(texts), padding=True, return_tensors="pt")
        return {name: encoded[name] for name in ("input_ids", "attention_mask")}

    @torch.inference_mode()
    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Return the class probabilities (n, C)."""
        return class_probabilities(self.model(**self.inputs(texts)).logits.float()).numpy()

    @torch.inference_mode()
    def attention(self, text: str) -> ScoredText | None:
        """Return the attention weight of each word, or None if the model has no attention over words.

        These are the weights of attention pooling, or the mean over the heads of the last layer: the row of the first
        token if that token is classified, else the mean of all rows.
        """
        inputs = self.inputs([text])
        outputs = self.model(**inputs, output_attentions=True)
        if not outputs.get("attentions") or getattr(self.model.config, "pooling", None) == "hierarchical":
            return None
        if layers_without_weights(outputs.attentions):
            return None
        ids, mask = inputs["input_ids"], inputs["attention_mask"]
        record = alignment(outputs, input_ids=ids, attention_mask=mask, tokenizer=self.tokenizer)
        mean = getattr(self.model.config, "classifier_pooling", "first") == "mean"
        return score_attention(record, text, self.tokenizer, None if mean else 0, layer=-1).by_word()

    def words(self, text: str) -> tuple[list[str], list[str]]:
        """Return the words without punctuation marks, and those of them with a token that stands for unknown text."""
        if self.tokenizer.unk_token_id is None or not self.tokenizer.is_fast:
            return text.split(), []
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        places: dict[int, list[int]] = {}
        unknown = set()
        for word, token, place in zip(encoded.word_ids(), encoded["input_ids"], encoded["offset_mapping"], strict=True):
            if word is not None:
                places.setdefault(word, []).extend(place)
                if token == self.tokenizer.unk_token_id:
                    unknown.add(word)
        words = {word: text[min(place) : max(place)] for word, place in places.items()}
        words = {number: word for number, word in words.items() if not all(map(_is_punctuation, word))}
        return list(words.values()), [word for number, word in words.items() if number in unknown]

    def unsure(self, text: str) -> bool:
        """Return whether too many words are unknown for an answer."""
        words, unknown = self.words(text)
        return len(unknown) > MOST_UNKNOWN * len(words) or not words


def _is_punctuation(character: str) -> bool:
    return unicodedata.category(character)[0] in "PZ"


def is_spanish(text: str) -> bool:
    """Return whether Spanish is the more likely of the two languages."""
    return len(_SPANISH.findall(text)) > len(_ENGLISH.findall(text))


def swaps_of(text: str) -> dict[str, Sequence[tuple[str, str]]]:
    """Return the words to swap by kind, in the more likely language of the text."""
    return read_swaps(SPACE / "swaps_es.yaml") if is_spanish(text) else read_swaps()


def named(label: str, request: gr.Request) -> str:
    """Translate a class name if the page has a translation."""
    key = f"label_{label.lower()}"
    return TEXTS.say(request, key) if key in TEXTS.texts else label


def moved(share: float, before: float) -> str:
    """Format the change of a probability in percentage points."""
    points = 100 * (share - before)
    return f"{points:+.1f}" if abs(points) >= 0.05 else "±0"


def answer(labels: Sequence[str], probabilities: np.ndarray) -> str:
    """Return bars of the probabilities, the largest in bold."""
    rows = []
    for label, share in zip(labels, probabilities.tolist(), strict=True):
        kind = ' class="best"' if share == probabilities.max() else ""
        rows.append(
            f'<span{kind}>{html.escape(label)}</span><div class="bar"><i style="width:{100 * share:.1f}%"></i></div>'
            f'<span class="share">{share:.1%}</span>'
        )
    return f'<div class="answer">{"".join(rows)}</div>'


def marked(text: str, swapped: str) -> str:
    """Return the text after a swap as HTML with the changed words marked."""
    words = iter(re.findall(r"\w+", text))
    pieces = []
    for piece in re.split(r"(\w+)", swapped):
        changed = bool(re.fullmatch(r"\w+", piece)) and piece != next(words, piece)
        pieces.append(f"<mark>{html.escape(piece)}</mark>" if changed else html.escape(piece))
    return "".join(pieces)


def build(readers: Mapping[str, Reader]) -> gr.Blocks:
    """Build the page.

    Args:
        readers: a classifier for each of ``NAMES``.
    """

    def check(text: str, request: gr.Request) -> str:
        text = (text or "").strip()
        if not text:
            TEXTS.refuse(request, "empty")
        if len(text) > LONGEST:
            TEXTS.refuse(request, "long", length=len(text), limit=LONGEST)
        for reader in readers.values():
            tokens = len(reader.tokenizer(text).input_ids)
            most = min(MOST_TOKENS, max_positions(reader.model.config) or MOST_TOKENS)
            if tokens > most:
                TEXTS.refuse(request, "many_tokens", tokens=tokens, limit=most)
        return text

    def explained(reader: Reader, text: str, method: str, request: gr.Request) -> str:
        """Return the colored words of one model with notes."""
        _, unknown = reader.words(text)
        missing = TEXTS.say(request, "unknown", words=", ".join(dict.fromkeys(unknown))) if unknown else ""
        if reader.unsure(text):
            return f'<p class="quiet">{html.escape(missing)}</p>'
        looked = reader.attention(text)
        chosen = looked
        if method != "attention":
            chosen = saliency(reader.model, reader.tokenizer, text, method=method, steps=STEPS, by_word=True)
        notes, more = [], ""
        if chosen is None:
            words = f"<p>{html.escape(TEXTS.say(request, 'no_attention'))}</p>"
        else:
            words = scores_snippet(replace(chosen, unit=""), numbers=True)
            if method != "attention":
                notes.append(TEXTS.say(request, "counts", target=named(chosen.target, request)))
            if chosen.rest:
                notes.append(
                    TEXTS.say(request, "rest_attention" if method == "attention" else "rest", rest=chosen.rest)
                )
            if chosen.gap is not None and chosen.output is not None and chosen.baseline is not None:
                change = chosen.output - chosen.baseline
                notes.append(TEXTS.say(request, "complete", sum=change + chosen.gap, change=change))
        if looked is not None and len(looked.tokens) > 1:
            other = chosen
            if method == "attention":
                other = saliency(reader.model, reader.tokenizer, text, by_word=True)
            assert other is not None
            shared = agreement(looked.scores, other.scores)
            if not np.isnan(shared.kendall):
                name = TEXTS.say(request, "gradient_x_input" if method == "attention" else method)
                agrees = TEXTS.say(
                    request, "agreement", method=name, kendall=shared.kendall, k=shared.k, share=shared.top_k
                )
                question = TEXTS.say(request, "agreement_title")
                more = f'<details class="more"><summary>{question}</summary><p>{html.escape(agrees)}</p></details>'
        notes += [missing] if missing else []
        listed = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
        return f'<div class="words">{words}</div><ul class="notes">{listed}</ul>{more}'

    def verdict(reader: Reader, text: str, request: gr.Request) -> str:
        """Return the probabilities, or a sentence if the model does not know enough of the words."""
        words, unknown = reader.words(text)
        if reader.unsure(text):
            told = TEXTS.say(request, "unsure", known=len(words) - len(unknown), total=len(words))
            return f'<p class="unsure">{html.escape(told)}</p>'
        return answer([named(label, request) for label in reader.labels], reader.probabilities([text])[0])

    def read(text: str, method: str, request: gr.Request) -> Iterator[list[str]]:
        text = check(text, request)
        yield [f'<p class="quiet">{html.escape(TEXTS.say(request, "waiting"))}</p>', ""] * len(readers)
        shown = []
        for reader in readers.values():
            shown.append(verdict(reader, text, request))
            shown.append(explained(reader, text, method, request))
        yield shown

    def read_again(text: str, method: str, request: gr.Request) -> Iterator[list[str]]:
        if (text or "").strip():
            yield from read(text, method, request)

    def welcome(request: gr.Request) -> tuple[gr.Dataset, str]:
        listed = own_language_first(EXAMPLES, request)
        return gr.Dataset(samples=[[each] for each in listed]), listed[0]

    def choose(place: int, request: gr.Request) -> str:
        return own_language_first(EXAMPLES, request)[place]

    def swap(text: str, one: str, other: str, request: gr.Request) -> str:
        text = check(text, request)
        kinds = dict(swaps_of(text))
        one, other = (one or "").strip(), (other or "").strip()
        if one or other:
            kinds = {"own": [(one, other)], **kinds}
        found = []
        for kind, pairs in kinds.items():
            try:
                swapped = swap_words(text, pairs)
            except UserError:
                TEXTS.refuse(request, "bad_pair")
            if swapped != text:
                found.append((kind, swapped))
            elif kind == "own":
                TEXTS.refuse(request, "absent_pair", one=one, other=other)
        if not found:
            return f'<p class="quiet">{html.escape(TEXTS.say(request, "nothing_to_swap"))}</p>'
        for _, swapped in found:
            check(swapped, request)
        head = "".join(f"<th>{html.escape(TEXTS.say(request, name))}</th>" for name in ("kind", "swapped", *NAMES))
        kind_names = [TEXTS.say(request, f"kind_{kind}") for kind, _ in found]
        rows: list[list[str]] = [
            [f"<td>{html.escape(name)}</td>", f"<td>{marked(text, swapped)}</td>"]
            for name, (_, swapped) in zip(kind_names, found, strict=True)
        ]
        for name, reader in readers.items():
            before, *after = reader.probabilities([text, *(swapped for _, swapped in found)])
            best = int(before.argmax())
            unsure = [reader.unsure(text) or reader.unsure(swapped) for _, swapped in found]
            title = html.escape(TEXTS.say(request, name), quote=True)
            for row, shares, hidden in zip(rows, after, unsure, strict=True):
                if hidden:
                    row.append(f'<td class="move" data-name="{title}">–</td>')
                    continue
                flip = " flip" if int(shares.argmax()) != best else ""
                label = html.escape(named(reader.labels[best], request))
                row.append(
                    f'<td class="move{flip}" data-name="{title}">{label}<br>{before[best]:.1%} → {shares[best]:.1%} '
                    f"({moved(shares[best], before[best])})</td>"
                )
        body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
        return f'<div class="swapped"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

    with gr.Blocks(title="Sentiment lens", analytics_enabled=False) as page:
        gr.Markdown(TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        text = gr.Textbox(label=TEXTS("text"), info=TEXTS("text_info"), lines=2, max_lines=5, max_length=LONGEST)
        examples = gr.Dataset(
            components=[text],
            samples=[[each] for each in own_language_first(EXAMPLES, None)],
            type="index",
            label=TEXTS("examples"),
        )
        method = gr.Radio(
            [(TEXTS(name), name) for name in METHODS], value="integrated_gradients", label=TEXTS("method"),
            info=TEXTS("method_info"),
        )  # fmt: skip
        start = gr.Button(TEXTS("read"), variant="primary")
        outputs = []
        with gr.Row():
            for name, reader in readers.items():
                with gr.Column(min_width=320, elem_classes="reader"):
                    heading = f"heading_{name}"
                    gr.Markdown(TEXTS.toy(heading, "toy") if reader.toy else TEXTS(heading))
                    gr.Markdown(
                        f"`{reader.model.config.model_type}` · {reader.model.num_parameters():,} {TEXTS('parameters')}",
                        elem_classes="quiet",
                    )
                    outputs.append(gr.HTML(elem_id=f"answer_{name}", min_height=60))
                    outputs.append(gr.HTML(elem_id=f"words_{name}", min_height=120))
        gr.Markdown(TEXTS("swap_title"))
        gr.Markdown(TEXTS("swap_intro"))
        with gr.Row():
            one, other = (
                gr.Textbox(label=TEXTS(name), placeholder=TEXTS(f"example_{name}"), max_length=40, min_width=140)
                for name in ("one", "other")
            )
        swapping = gr.Button(TEXTS("swap"))
        table = gr.HTML(elem_id="swapped")
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        gr.on([start.click, text.submit], read, [text, method], outputs, api_name="read", show_progress="minimal")
        again = {"inputs": [text, method], "outputs": outputs, "api_visibility": "private", "show_progress": "minimal"}
        method.input(read_again, **again)
        first = page.load(welcome, None, [examples, text], api_visibility="private", show_progress="hidden")
        first.then(read, **again)
        chosen = examples.click(choose, examples, text, api_visibility="private", show_progress="hidden")
        chosen.then(read, **again)
        gr.on([swapping.click, one.submit, other.submit], swap, [text, one, other], table, api_name="swap")
    return page


def main() -> None:
    with one_sentence():
        readers = {name: Reader.load(load_folder(name, SPACE), is_toy(name, SPACE)) for name in NAMES}
    launch(build(readers), TEXTS, CSS)


if __name__ == "__main__":
    main()

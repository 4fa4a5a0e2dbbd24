"""Translate with three models side by side and show the alignment of each translation.

hfattn space run attention_explorer --model bahdanau_phrases=runs/spa_eng_bahdanau
"""

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import gradio as gr
import torch

from hfattn.errors import one_sentence
from hfattn.explain import AttentionRecord, coverage, coverage_deviation, effective_tokens, entropy, render_html
from hfattn.generation import sampling_options
from hfattn.loading import Translator, load_translation_model, max_positions
from hfattn.models.pipeline_attn_translation import AttnTranslationPipeline
from hfattn.spaces import Texts, launch, load_folder, number
from hfattn.spaces.settings import read_space
from hfattn.tokenizers import is_character_tokenizer, uncovered_characters

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
FAMILIES = ("bahdanau", "luong", "vaswani")
MAX_TEXT = 200  # characters
MOST_BEAMS, DRAWS = 8, 5
FORGOTTEN = 0.3  # source tokens with a smaller total weight are listed
EXAMPLES = {
    "phrases": (
        "the girl's black dog is tired.",
        "is the small red house expensive?",
        "my sister does not see the white cows.",
        "what will your friends buy?",
        "there are two old clocks in our kitchen.",
    ),
    "dates": (
        "Monday, April 22, 2019",
        "the 3rd of May, 1986",
        "lunes, 22 de abril de 2019",
        "22-Nov-1794",
        "4 de julio de 1776",
    ),
}
CSS = """
.html-container:has(.result) { padding: 0 !important; }
.result .best { font-size: 1.15rem; line-height: 1.45; margin: .1rem 0 .6rem; overflow-wrap: anywhere; }
.result .note { font-size: .9rem; margin: 0 0 .5rem; padding: .45rem .7rem; border-radius: .5rem;
  overflow-wrap: anywhere; border-left: .25rem solid #d97706; background: var(--background-fill-secondary); }
.result table { width: 100%; border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums;
  margin: 0 0 .7rem; }
.result table, .result tr { border: 0 !important; background: none !important; }
.result th, .result td { padding: .15rem .35rem; text-align: right; vertical-align: top; border: 0; }
.result th { font-weight: 400; color: var(--body-text-color-subdued); white-space: nowrap; }
.result td:nth-child(n+3) { white-space: nowrap; }
.result td:nth-child(2), .result th:nth-child(2) { text-align: left; overflow-wrap: anywhere; width: 100%; }
.result tr.first td { font-weight: 600; }
.result caption { text-align: left; font-size: .85rem; color: var(--body-text-color-subdued); padding: 0 .35rem .2rem; }
.result iframe { width: 100%; height: 34rem; border: 1px solid var(--border-color-primary); border-radius: .6rem;
  background: var(--background-fill-primary); }
.dark .result iframe { color-scheme: dark; }
.result dl { display: grid; grid-template-columns: minmax(9rem, 1fr) minmax(0, auto); gap: .1rem .8rem;
  font-size: .88rem; margin: .6rem .35rem; }
.result dt { color: var(--body-text-color-subdued); }
.result dd { margin: 0; overflow-wrap: anywhere; text-align: right; font-variant-numeric: tabular-nums; }
"""


class Found(NamedTuple):
    """A hypothesis.

    Args:
        text: the translation.
        score: log p(y | x) in nats, summed over its tokens.
        times: number of times it was sampled.
        record: its alignment, or None if the model has no attention.
    """

    text: str
    score: float
    times: int
    record: AttentionRecord | None


class Explorer:
    """A translator with alignments, safe for concurrent requests."""

    draws = Lock()  # sampling uses the global random state

    def __init__(self, translator: Translator) -> None:
        model, self.tokenizer, target_tokenizer = translator
        # Set once: the pipeline would change it during a call, while other requests use the model.
        model.set_attn_implementation("eager")
        self.model = model
        self.pipeline = AttnTranslationPipeline(model, tokenizer=self.tokenizer, target_tokenizer=target_tokenizer)

    @property
    def facts(self) -> str:
        """Return the kind of model."""
        config = self.model.config
        score = getattr(config, "attention_score", None) or getattr(config, "cross_attention_score", "")
        return f"`{config.model_type}` · `{score}` · {self.model.num_parameters():,}"

    def most_tokens(self) -> int:
        limits = (self.tokenizer.model_max_length, max_positions(self.model.config))
        return min(limit for limit in (*limits, 1_000_000) if limit is not None)

    def search(self, text: str, way: str, beams: int, temperature: float, seed: int) -> list[Found]:
        """Return the hypotheses, best first; ``way`` is "greedy", "beam" or "sample"."""
        if way == "sample":
            with self.draws, torch.random.fork_rng([]):
                torch.manual_seed(seed)
                options = sampling_options(temperature)
                drawn = self._translate(text, num_beams=1, num_return_sequences=DRAWS, **options)
            drawn.sort(key=lambda each: -each["score"])
        else:
            width = beams if way == "beam" else 1
            drawn = self._translate(text, do_sample=False, num_beams=width, num_return_sequences=width)
        times = Counter(each["translation_text"] for each in drawn)
        first = {each["translation_text"]: each for each in reversed(drawn)}
        return [
            Found(text, first[text]["score"], times[text], first[text]["alignment"]) for text in dict.fromkeys(times)
        ]

    @torch.inference_mode()
    def _translate(self, text: str, **options: Any) -> list[dict[str, Any]]:
        found = self.pipeline(text, **options)
        return found if isinstance(found, list) else [found]

    def unknown(self, text: str) -> list[str]:
        """Return the words or characters that are not in the vocabulary."""
        if missing := uncovered_characters(self.tokenizer, text):
            return missing
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        places = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        found = (text[start:end].strip() for token, (start, end) in places if token == self.tokenizer.unk_token_id)
        return list(dict.fromkeys(found))

    def pieces(self, text: str) -> list[str]:
        """Return the words that are split into subwords, with the splits."""
        if is_character_tokenizer(self.tokenizer):
            return []
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        words: dict[int, list[str]] = {}
        for word, (start, end) in zip(encoded.word_ids(), encoded["offset_mapping"], strict=True):
            if word is not None:
                words.setdefault(word, []).append(text[start:end].strip())
        return list(dict.fromkeys("·".join(parts) for parts in words.values() if len(parts) > 1))


def frame(record: AttentionRecord, title: str) -> str:
    """Return the alignment page in a frame of the right height."""
    grow = (
        "const f = this, d = f.contentDocument; new ResizeObserver(() => "
        "{ f.style.height = Math.min(d.body.scrollHeight + 4, 2000) + 'px'; }).observe(d.body)"
    )
    page = html.escape(render_html(record, title))
    return f'<iframe srcdoc="{page}" title="{html.escape(title)}" onload="{html.escape(grow)}"></iframe>'


def hypotheses(found: list[Found], way: str, request: gr.Request) -> str:
    """Return a table of hypotheses and scores."""
    head = ["", TEXTS.say(request, "hypothesis"), "log p", TEXTS.say(request, "per_token")]
    rows = []
    for place, each in enumerate(found, start=1):
        length = len(each.record.target_tokens) if each.record else None
        mean = number(each.score / length) if length else "–"
        times = f" ×{each.times}" if each.times > 1 else ""
        cells = (str(place), html.escape(each.text or "∅") + times, number(each.score), mean)
        css = ' class="first"' if place == 1 else ""
        rows.append(f"<tr{css}>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    headings = "".join(f'<th scope="col">{name}</th>' for name in head)
    caption = TEXTS.say(request, f"caption_{way}")
    return f"<table><caption>{caption}</caption><tr>{headings}</tr>{''.join(rows)}</table>"


def measures(record: AttentionRecord, request: gr.Request) -> str:
    """Return entropy and coverage of the attention, averaged over layers and heads."""
    weights = record.matrix()
    read = coverage(weights).tolist()
    forgotten = [token for token, once in zip(record.tokens, read, strict=True) if once < FORGOTTEN]
    shown = {
        "entropy": number(entropy(weights).nanmean().item()),
        "effective": number(effective_tokens(weights).nanmean().item()),
        "coverage": number(coverage_deviation(weights).item()),
        "forgotten": html.escape(" ".join(forgotten)) or "–",
    }
    names = (TEXTS.say(request, f"number_{name}") for name in shown)
    terms = (f"<dt>{name}</dt><dd>{value}</dd>" for name, value in zip(names, shown.values(), strict=True))
    return f"<dl>{''.join(terms)}</dl>"


def note(request: gr.Request, key: str, **values: Any) -> str:
    return f'<p class="note">{html.escape(TEXTS.say(request, key, **values))}</p>'


def result(
    explorer: Explorer, text: str, way: str, beams: int, temperature: float, seed: int, request: gr.Request
) -> str:
    """Return the output of one model as HTML."""
    notes, unknown = "", explorer.unknown(text)
    if unknown:
        notes += note(request, "unknown", what=", ".join(unknown))
        if explorer.tokenizer.unk_token is None:
            return notes
    elif pieces := explorer.pieces(text):
        notes += note(request, "pieces", what=", ".join(pieces))
    length, most = len(explorer.tokenizer(text)["input_ids"]), explorer.most_tokens()
    if length > most:
        return notes + note(request, "many_tokens", length=length, most=most)
    found = explorer.search(text, way, beams, temperature, seed)
    best = found[0]
    shown = f'{notes}<p class="best">{html.escape(best.text or "∅")}</p>{hypotheses(found, way, request)}'
    if best.record is None:
        return shown + note(request, "no_attention")
    if not best.record.target_tokens:
        return shown
    return shown + frame(best.record, TEXTS.say(request, "map")) + measures(best.record, request)


def build(explorers: Mapping[str, Explorer]) -> gr.Blocks:
    """Build the page.

    Args:
        explorers: translators by family and task, such as "bahdanau_dates".
    """
    tasks = [task for task in EXAMPLES if any(f"{family}_{task}" in explorers for family in FAMILIES)]

    def check(text: str, seed: float | None, request: gr.Request) -> int:
        if not text.strip():
            TEXTS.refuse(request, "empty")
        if len(text) > MAX_TEXT:
            TEXTS.refuse(request, "long", length=len(text), limit=MAX_TEXT)
        if seed is None or not math.isfinite(seed):
            TEXTS.refuse(request, "no_seed")
        return int(seed)

    def translate(
        text: str, task: str, way: str, beams: float, temperature: float, seed: float | None, request: gr.Request
    ) -> Iterator[tuple[str, ...]]:
        """Yield the output of each family as soon as it is ready."""
        drawn = check(text, seed, request)
        shown = dict.fromkeys(FAMILIES, "")
        for family in FAMILIES:
            if explorer := explorers.get(f"{family}_{task}"):
                found = result(explorer, " ".join(text.split()), way, int(beams), temperature, drawn, request)
                shown[family] = f'<div class="result">{found}</div>'
                yield tuple(shown.values())

    def choose_task(task: str) -> tuple[Any, ...]:
        there = [f"{family}_{task}" in explorers for family in FAMILIES]
        facts = (explorers[f"{f}_{task}"].facts if has else "" for f, has in zip(FAMILIES, there, strict=True))
        return (
            EXAMPLES[task][0], *(gr.update(visible=task == each) for each in tasks),
            *(gr.update(visible=has) for has in there), *facts,
        )  # fmt: skip

    def choose_way(way: str) -> tuple[Any, ...]:
        return gr.update(visible=way == "beam"), *[gr.update(visible=way == "sample")] * 2

    with gr.Blocks(title="Attention explorer", analytics_enabled=False) as page:
        gr.Markdown(TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        with gr.Row():
            with gr.Column(scale=3, min_width=300):
                task = gr.Radio([(TEXTS(f"task_{each}"), each) for each in tasks], value=tasks[0], label=TEXTS("task"))
                text = gr.Textbox(EXAMPLES[tasks[0]][0], label=TEXTS("text"), max_length=MAX_TEXT, lines=1, max_lines=3)
                button = gr.Button(TEXTS("translate"), variant="primary")
                samples = []
                for each in tasks:
                    with gr.Column(visible=each == tasks[0]) as column:
                        gr.Examples(list(EXAMPLES[each]), text, label=TEXTS("examples"), api_visibility="private")
                    samples.append(column)
            with gr.Column(scale=2, min_width=300):
                way = gr.Radio(
                    [(TEXTS(f"way_{each}"), each) for each in ("greedy", "beam", "sample")], value="beam",
                    label=TEXTS("way"),
                )  # fmt: skip
                beams = gr.Slider(2, MOST_BEAMS, 4, step=1, label=TEXTS("beams"), info=TEXTS("beams_info"))
                temperature = gr.Slider(
                    0.1, 2, 1, step=0.1, label=TEXTS("temperature"), info=TEXTS("temperature_info"), visible=False
                )
                seed = gr.Number(0, precision=0, minimum=0, label=TEXTS("seed"), visible=False)
        columns, results, facts = [], [], []
        with gr.Row(equal_height=False):
            for family in FAMILIES:
                there = explorers.get(f"{family}_{tasks[0]}")
                with gr.Column(min_width=300, visible=there is not None) as column:
                    gr.Markdown(TEXTS(f"family_{family}"))
                    facts.append(gr.Markdown(there.facts if there else "", elem_classes="quiet"))
                    results.append(gr.HTML(elem_id=family, min_height=60))
                columns.append(column)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        inputs = [text, task, way, beams, temperature, seed]
        gr.on(
            [page.load, button.click, text.submit, way.change, beams.change, temperature.change, seed.change],
            translate, inputs, results, api_name="translate", trigger_mode="always_last",
            show_progress="hidden",  # otherwise Gradio shows "Error" on top of the output
        )  # fmt: skip
        task.change(
            choose_task, task, [text, *samples, *columns, *facts], api_name="task", show_progress="hidden"
        ).then(translate, inputs, results, api_visibility="private", show_progress="hidden")
        way.change(choose_way, way, [beams, temperature, seed], api_name="way", show_progress="hidden")
    return page


def main() -> None:
    with one_sentence():
        explorers = {name: Explorer(load_translation_model(load_folder(name, SPACE))) for name in read_space(SPACE)}
    launch(build(explorers), TEXTS, CSS)


if __name__ == "__main__":
    main()

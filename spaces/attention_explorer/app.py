"""Translate with three models side by side and show the alignment of each translation.

hfattn space run attention_explorer --model bahdanau_phrases=runs/spa_eng_bahdanau
"""

import html
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import gradio as gr
import torch

from hfattn.engine import EngineTranslator
from hfattn.errors import UserError, one_sentence
from hfattn.explaining import AttentionRecord, coverage, coverage_deviation, effective_tokens, entropy, render_html
from hfattn.generation import sampling_options
from hfattn.loading import Translator, load_translation_model, max_positions
from hfattn.models.pipeline_attn_translation import AttnTranslationPipeline
from hfattn.spaces import MOST_UNKNOWN, Texts, is_toy, launch, load_folder, number
from hfattn.spaces.settings import read_space
from hfattn.tokenizers import is_character_tokenizer, uncovered_characters

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
FAMILIES = ("bahdanau", "luong", "vaswani")  # the columns; the heading of each is that of its model
MAX_TEXT = 200  # characters
MOST_BEAMS, DRAWS = 8, 5
FORGOTTEN = 0.3  # source tokens with a smaller total weight are listed
EXAMPLES = {
    "phrases": (
        "my brother has two white cats.",
        "my sister does not see the white cows.",
        "is the small red house expensive?",
        "there are two old clocks in our kitchen.",
        "the white cows are tired.",
    ),
    "dates": (
        "Monday, April 22, 2019",
        "lunes, 22 de abril de 2019",
        "the 3rd of May, 1986",
        "4 de julio de 1776",
        "February 29, 1900",
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
.result .facts { margin: 0 0 .4rem; color: var(--body-text-color-subdued); font-size: .92rem; }
#tabs { display: none; }
#tabs div { display: flex; gap: .4rem; }
#tabs button { flex: 1; min-height: 44px; padding: 0; overflow-wrap: normal; font: 600 1rem system-ui, sans-serif;
  border: 1px solid var(--border-color-primary); border-radius: .5rem;
  background: var(--background-fill-primary); color: var(--body-text-color); }
#tabs button[aria-pressed=true] { background: var(--button-primary-background-fill); color: white; }
@media (max-width: 60rem) {  /* one model at a time */
  #tabs { display: block; }
  HIDDEN { display: none; }
}
.result dd { margin: 0; overflow-wrap: anywhere; text-align: right; font-variant-numeric: tabular-nums; }
""".replace(
    "HIDDEN",
    ", ".join(
        f"#tabs:has([data-column={name}][aria-pressed=true]) ~ #columns > :not(#column_{name})" for name in FAMILIES
    ),
)


TABS = """
element.addEventListener('click', (event) => {
  const chosen = event.target.closest('button');
  if (!chosen) return;
  for (const button of element.querySelectorAll('button')) button.setAttribute('aria-pressed', button === chosen);
});
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

    def __init__(self, translator: Translator, toy: bool = False) -> None:
        """
        Args:
            translator: the model and its tokenizers.
            toy: whether it was trained when the Space was built.
        """
        self.toy = toy
        model, self.tokenizer, target_tokenizer = translator
        # Set once: the pipeline would change it during a call, while other requests use the model.
        model.set_attn_implementation("eager")
        model.generation_config.early_stopping = True  # a beam search ends when as many hypotheses as beams have ended
        self.model = model
        self.engine = None
        with suppress(UserError):  # CTranslate2 supports some Transformers and no recurrent networks
            self.engine = EngineTranslator(self.family, *translator)
        self.pipeline = AttnTranslationPipeline(model, tokenizer=self.tokenizer, target_tokenizer=target_tokenizer)

    @property
    def family(self) -> str:
        """Return the kind of model, which names the texts that describe it."""
        config = self.model.config
        if config.model_type == "vaswani":
            return "vaswani"
        if getattr(config, "attention_score", None) is None:
            return "none" if config.model_type == "bahdanau" else "other"
        return {"before": "bahdanau", "after": "luong"}[config.attention_position]

    def facts(self, request: gr.Request) -> str:
        """Return the type of the model, its score and its size as HTML."""
        config = self.model.config
        score = getattr(config, "attention_score", None) or getattr(config, "cross_attention_score", None)
        names = " · ".join(f"<code>{html.escape(name)}</code>" for name in (config.model_type, score) if name)
        size = TEXTS.say(request, "parameters", number=f"{self.model.num_parameters():,}")
        return f'<p class="facts">{names} · {size}</p>'

    def most_tokens(self) -> int:
        limits = (self.tokenizer.model_max_length, max_positions(self.model.config))
        return min(limit for limit in (*limits, 1_000_000) if limit is not None)

    def search(self, text: str, way: str, beams: int, temperature: float, seed: int) -> list[Found]:
        """Return the hypotheses, best first; ``way`` is "greedy", "beam" or "sample"."""
        if way == "sample":
            with self.draws, torch.random.fork_rng([]):
                torch.manual_seed(seed)
                options = sampling_options(temperature)
                drawn = self._translate(text, 1, num_return_sequences=DRAWS, **options)
            drawn.sort(key=lambda each: -each.score)
        else:
            drawn = self._best(text, beams if way == "beam" else 1)
        times = Counter(each.text for each in drawn)
        first = {each.text: each for each in reversed(drawn)}
        return [first[text]._replace(times=times[text]) for text in times]

    def _best(self, text: str, beams: int) -> list[Found]:
        """Return the hypotheses of a search, by the engine if it supports the model and has positions for the texts."""
        if self.engine is not None:
            with suppress(UserError):
                read = self.engine.read(text, beams, hypotheses=beams)
                return [Found(each.text, each.score, 1, each.record) for each in read]
        return self._translate(text, beams, do_sample=False, num_return_sequences=beams)

    @torch.inference_mode()
    def _translate(self, text: str, beams: int, **options: Any) -> list[Found]:
        found = self.pipeline(text, num_beams=beams, early_stopping=beams > 1, **options)
        found = found if isinstance(found, list) else [found]
        return [Found(each["translation_text"], each["score"], 1, each["alignment"]) for each in found]

    def unknown(self, text: str) -> list[str]:
        """Return the words or characters that are not in the vocabulary."""
        if missing := uncovered_characters(self.tokenizer, text):
            return missing
        if not self.tokenizer.is_fast:
            return []
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        places = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        found = (text[start:end].strip() for token, (start, end) in places if token == self.tokenizer.unk_token_id)
        return list(dict.fromkeys(found))

    def words(self, text: str) -> list[list[str]]:
        """Return the subwords of each word, without punctuation; none if the tokens are characters."""
        if is_character_tokenizer(self.tokenizer) or not self.tokenizer.is_fast:
            return []
        encoded = self.tokenizer(text, return_offsets_mapping=True)
        words: dict[int, list[str]] = {}
        for word, (start, end) in zip(encoded.word_ids(), encoded["offset_mapping"], strict=True):
            if word is not None:
                words.setdefault(word, []).append(text[start:end].strip())
        return [parts for parts in words.values() if any(map(str.isalnum, "".join(parts)))]


def frame(record: AttentionRecord, title: str) -> str:
    """Return the alignment page in a frame; ``explorer.js`` gives it the right height."""
    page = html.escape(render_html(record, title))
    return f'<iframe srcdoc="{page}" title="{html.escape(title)}" onload="alignmentLoaded(this)"></iframe>'


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
    notes, unknown, words = explorer.facts(request), explorer.unknown(text), explorer.words(text)
    split = list(dict.fromkeys("·".join(parts) for parts in words if len(parts) > 1))
    # A toy has seen whole words alone; other models learned from subwords too.
    strange = [parts for parts in words if set(parts) & set(unknown) or (explorer.toy and len(parts) > 1)]
    if len(strange) > MOST_UNKNOWN * len(words):
        named = ", ".join(dict.fromkeys(map("".join, strange)))
        return notes + note(request, "guess", known=len(words) - len(strange), all=len(words), what=named)
    if unknown:
        notes += note(request, "unknown", what=", ".join(unknown))
        if explorer.tokenizer.unk_token is None:
            return notes
    elif split:
        notes += note(request, "pieces", what=", ".join(split))
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

    def check(text: str | None, task: str, seed: float | None, request: gr.Request) -> tuple[str, int]:
        if text is None or not text.strip():
            TEXTS.refuse(request, "empty")
        if len(text) > MAX_TEXT:
            TEXTS.refuse(request, "long", length=len(text), limit=MAX_TEXT)
        if task == "dates" and not any(map(str.isdigit, text)):
            TEXTS.refuse(request, "no_date")
        if seed is None or not math.isfinite(seed):
            TEXTS.refuse(request, "no_seed")
        return " ".join(text.split()), int(seed)

    def translate(
        text: str | None, task: str, way: str, beams: float, temperature: float, seed: float | None, request: gr.Request
    ) -> Iterator[tuple[str, ...]]:
        """Yield the output of each family as soon as it is ready."""
        given, drawn = check(text, task, seed, request)
        shown = dict.fromkeys(FAMILIES, "")
        for family in FAMILIES:
            if explorer := explorers.get(f"{family}_{task}"):
                found = result(explorer, given, way, int(beams), temperature, drawn, request)
                shown[family] = f'<div class="result">{found}</div>'
                yield tuple(shown.values())

    def heading(explorer: Explorer, task: str) -> Any:
        key = f"family_{explorer.family}"
        return TEXTS.toy(key, f"toy_{task}") if explorer.toy else TEXTS(key)

    headings = {name: heading(explorer, name.partition("_")[2]) for name, explorer in explorers.items()}

    def choose_task(task: str) -> tuple[Any, ...]:
        names = [f"{family}_{task}" for family in FAMILIES]
        return (
            EXAMPLES[task][0], *(gr.update(visible=task == each) for each in tasks),
            *(gr.update(visible=name in explorers) for name in names), *(headings.get(name, "") for name in names),
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
                samples, clicked = [], []
                for each in tasks:
                    with gr.Column(visible=each == tasks[0]) as column:
                        examples = gr.Examples(
                            list(EXAMPLES[each]), text, label=TEXTS("examples"), api_visibility="private"
                        )
                        gr.Markdown(TEXTS(f"guide_{each}"))
                    samples.append(column)
                    clicked.append(examples.load_input_event)
            with gr.Column(scale=2, min_width=300):
                way = gr.Radio(
                    [(TEXTS(f"way_{each}"), each) for each in ("greedy", "beam", "sample")], value="beam",
                    label=TEXTS("way"),
                )  # fmt: skip
                beams = gr.Slider(2, MOST_BEAMS, 4, step=1, label=TEXTS("beams"), info=TEXTS("beams_info"))
                temperature = gr.Slider(
                    0.1, 2, 1, step=0.1, label=TEXTS("temperature"), info=TEXTS("temperature_info"), visible=False
                )
                seed = gr.Number(0, precision=0, minimum=0, maximum=2**32 - 1, label=TEXTS("seed"), visible=False)
        columns, results, titles = [], [], []
        names = {"bahdanau": "Bahdanau", "luong": "Luong", "vaswani": "Vaswani", "none": "Sutskever", "other": "RNN"}
        shown = {family: explorers.get(f"{family}_{tasks[0]}") for family in FAMILIES}
        buttons = [
            f'<button type="button" data-column="{family}" aria-pressed="false">{names[explorer.family]}</button>'
            for family, explorer in shown.items()
            if explorer
        ]
        buttons[0] = buttons[0].replace("false", "true")
        gr.HTML(f"<div>{''.join(buttons)}</div>", elem_id="tabs", js_on_load=TABS)
        with gr.Row(equal_height=False, elem_id="columns"):
            for family, there in shown.items():
                with gr.Column(min_width=300, visible=there is not None, elem_id=f"column_{family}") as column:
                    titles.append(gr.Markdown(headings.get(f"{family}_{tasks[0]}", "")))
                    results.append(gr.HTML(elem_id=family, min_height=60))
                columns.append(column)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        inputs = [text, task, way, beams, temperature, seed]
        gr.on(
            [page.load, button.click, text.submit, way.change, beams.change, temperature.change, seed.change],
            translate, inputs, results, api_name="translate", trigger_mode="always_last",
            show_progress="hidden",  # otherwise Gradio shows "Error" on top of the output
        )  # fmt: skip
        chosen = task.change(
            choose_task, task, [text, *samples, *columns, *titles], api_name="task", show_progress="hidden"
        )
        for event in (chosen, *clicked):
            event.then(translate, inputs, results, api_visibility="private", show_progress="hidden")
        way.change(choose_way, way, [beams, temperature, seed], api_name="way", show_progress="hidden")
    return page


def main() -> None:
    with one_sentence():
        explorers = {
            name: Explorer(load_translation_model(load_folder(name, SPACE)), is_toy(name, SPACE))
            for name in read_space(SPACE)
        }
    script = (SPACE / "explorer.js").read_text(encoding="utf-8")
    launch(build(explorers), TEXTS, CSS, head=f"<script>{script}</script>")


if __name__ == "__main__":
    main()

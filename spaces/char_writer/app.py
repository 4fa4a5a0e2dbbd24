"""Generate text character by character and show next-character probabilities, surprise and hidden units.

hfattn space run char_writer --model writer=runs/char_lm-quickstart
"""

import math
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from hfattn.errors import one_sentence
from hfattn.explaining import hidden_units, unit_states
from hfattn.files import read_json
from hfattn.loading import load_language_model
from hfattn.spaces import Texts, is_toy, launch, load_folder
from hfattn.tokenizers import uncovered_characters

SPACE = Path(__file__).parent
TEXTS = Texts(SPACE / "texts.yaml")
MAX_PROMPT = 1000
MAX_LENGTH = 1000
PAUSE = 0.01  # seconds between two characters, so that the text can be followed
UPDATES = 10  # of the page, at most, per second
SEEDS = 1_000_000
SHOWN = 10  # most probable next characters shown
LEVELS = 8  # shades of a color
MOST_SURPRISE = 8.0  # bits of the darkest shade
EXAMPLES: list[tuple[str, float]] = [("The ", 0.2), ("The ", 0.8), ("The ", 1.5), ("The class ", 0.5), ("def ", 0.5)]
CSS = """
#paper .text { font: 14px/1.65 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; height: 24rem; overflow-y: auto; padding: .8rem 1rem; border-radius: .6rem;
  display: flex; flex-direction: column-reverse; /* keeps its end in sight as it grows */
  border: 1px solid var(--border-color-primary); background: var(--background-fill-primary); }
#start, #stop { transition: none; }
#paper i.prompt { font-weight: 600; opacity: .72; }
#paper .written { margin-bottom: auto !important; }
#paper i { font-style: normal; border-radius: 2px; }
#paper .legend { font-size: .85rem; margin: .35rem 0 0; color: var(--body-text-color-subdued); min-height: 1.3em; }
#next table { border-collapse: collapse; width: 100%; font-size: .9rem; }
#next table, #next tr, #next td { border: 0 !important; background: none !important; }
#next td { padding: .12rem .35rem; }
#next td:first-child { font: 600 1rem ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; width: 2.2rem;
  text-align: center; }
#next td:last-child { width: 4rem; text-align: right; font-variant-numeric: tabular-nums; }
#next div.bar { position: relative; height: 1.05rem; border-radius: .25rem;
  background: var(--background-fill-secondary); }
#next div.bar i { position: absolute; left: 0; border-radius: .25rem; min-width: 1px; }
#next i.given { top: 0; height: 62%; background: #2563eb; }
#next i.left { bottom: 0; height: 30%; background: #93b4f5; }
""" + "".join(
    f"#paper i.p{n} {{ background: rgb(37 99 235 / {0.68 * n / LEVELS:.2f}) }}"
    f"#paper i.n{n} {{ background: rgb(234 120 12 / {0.72 * n / LEVELS:.2f}) }}"
    f"#paper i.s{n} {{ background: rgb(190 24 93 / {0.6 * n / LEVELS:.2f}) }}"
    for n in range(LEVELS + 1)
)
PROMPT, PLAIN = "..", "--"  # shades of a character, like those of ``shade``
BLANKS = {" ": "␣", "\n": "↵", "\t": "⇥", "\r": "↵"}
# Gradio sends only the new end of a growing text; this script appends only that end to the document.
PAPER = """
const paper = element.querySelector('.written'), legend = element.querySelector('.legend');
let text = '', shades = '', writing = false;
watch('value', () => {
  const now = props.value;
  legend.textContent = now.legend;
  if (!now.text.startsWith(text) || !now.shades.startsWith(shades)) { paper.replaceChildren(); shades = ''; }
  const characters = [...now.text], from = shades.length / 2;
  let run = from ? paper.lastChild : null;
  for (let i = from; i < characters.length; i++) {
    const shade = now.shades.slice(2 * i, 2 * i + 2);
    if (run?.dataset.shade !== shade) {
      run = paper.appendChild(document.createElement('i'));
      run.dataset.shade = shade;
      run.className = {'..': 'prompt', '--': ''}[shade] ?? shade;
      run.append('');
    }
    run.firstChild.appendData(characters[i]);
  }
  if (now.writing && !writing) trigger('play');
  [text, shades, writing] = [now.text, now.shades, now.writing];
});
"""
# Rows of a character, its probability and that after temperature, top-k and top-p.
NEXT = """
const table = element.querySelector('tbody');
watch('value', () => {
  const rows = props.value ? props.value.split('\\n') : [];
  while (table.rows.length > rows.length) table.deleteRow(-1);
  rows.forEach((row, i) => {
    const line = table.rows[i] ?? table.insertRow();
    if (!line.cells.length)
      line.innerHTML = '<td></td><td><div class="bar"><i class="given"></i><i class="left"></i></div></td><td></td>';
    const [name, given, left] = row.split('\\t');
    line.cells[0].textContent = name;
    line.querySelector('.given').style.width = given + '%';
    line.querySelector('.left').style.width = left + '%';
    line.querySelector('.left').hidden = left === '0.0';
    line.cells[2].textContent = given + '%';
  });
});
"""
# Scripts that let a button be pressed, or not.
ON, OFF = (f"() => ({{__type__: 'update', interactive: {state}}})" for state in ("true", "false"))
# Stop a text that is being written, and press Write as soon as it can be pressed.
AGAIN = """() => {
  const [start, stop] = ['start', 'stop'].map((name) => document.getElementById(name));
  const write = () => {
    if (!start.disabled) return start.click();
    stop.click();  // a click on a disabled button does nothing
    setTimeout(write, 50);
  };
  write();
}"""


class Step(NamedTuple):
    """A generated character.

    Args:
        character: the character.
        given: (V,), the probabilities of the network.
        drawn_from: (V,), the probabilities after temperature, top-k and top-p.
        token: id of the character.
        states: (U,), the hidden units after the previous character.
    """

    character: str
    given: torch.Tensor
    drawn_from: torch.Tensor
    token: int
    states: np.ndarray


# A decorator enters inference mode for each step separately: Gradio may run each step in another thread.
@torch.inference_mode()
def continuation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    temperature: float,
    top_k: int,
    top_p: float,
    length: int,
    seed: int,
) -> Iterator[Step]:
    """Yield the characters that follow a prompt, equal to those of ``model.generate`` after ``set_seed(seed)``.

    All state is in the cache and in a local random generator, so requests can run concurrently.
    """
    warpers = LogitsProcessorList()
    if temperature > 0:  # 0 means greedy, which top-k and top-p do not change
        warpers.append(TemperatureLogitsWarper(float(temperature)))
        if top_k > 0:
            warpers.append(TopKLogitsWarper(top_k))
        if top_p < 1:
            warpers.append(TopPLogitsWarper(float(top_p)))
    draw = torch.Generator().manual_seed(seed)
    eos = model.generation_config.eos_token_id
    ends = {eos} if isinstance(eos, int) else set(eos or ())

    ids, cache = tokenizer(prompt, return_tensors="pt")["input_ids"], None  # (1, T)
    for _ in range(length):
        outputs = model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = outputs.past_key_values
        logits = outputs.logits[:, -1].float()  # (1, V)
        weights = warpers(ids, logits).softmax(-1)
        # (1, 1): only the newest character is passed on; the previous ones are in the cache.
        ids = torch.multinomial(weights, 1, generator=draw) if temperature > 0 else logits.argmax(-1, True)
        token = int(ids.item())
        if token in ends:
            return
        if temperature == 0:
            weights = torch.nn.functional.one_hot(ids[:, 0], logits.shape[-1]).float()
        character = str(tokenizer.decode(ids[0], skip_special_tokens=True))
        yield Step(character, logits.softmax(-1)[0], weights[0], token, unit_states(cache)[0])


@torch.inference_mode()
def surprises(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> np.ndarray:
    """Return the surprise (T,) of each character in bits; 0 for the first, which has no prediction."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    nats = torch.nn.functional.cross_entropy(model(ids).logits[0, :-1].float(), ids[0, 1:], reduction="none")
    return np.concatenate([[0.0], nats.numpy() / math.log(2)])


def shade(color: str, value: float) -> str:
    """Return two characters, a CSS class, for a state in (−1, 1) or a surprise in bits."""
    if color == "none":
        return PLAIN
    if color == "surprise":
        return f"s{min(LEVELS, round(LEVELS * value / MOST_SURPRISE))}"
    return f"{'p' if value >= 0 else 'n'}{min(LEVELS, round(LEVELS * abs(value)))}"


def sheet(text: str, shades: str, legend: str, writing: bool = False) -> dict[str, Any]:
    """Return the value of the page.

    It is a text, two characters for the color of each of its characters, a legend, and whether more text will follow.
    """
    return {"text": text, "shades": shades, "legend": legend, "writing": writing}


def distribution(step: Step, tokenizer: PreTrainedTokenizerBase) -> str:
    """Return a line for each of the most probable next characters: its name and both probabilities, in percent."""
    rows = []
    given, tokens = step.given.topk(min(SHOWN, len(step.given)))
    for probability, token in zip(given.tolist(), tokens.tolist(), strict=True):
        character = str(tokenizer.decode([token], skip_special_tokens=True)) or "∅"
        left = step.drawn_from[token].item()
        rows.append(f"{BLANKS.get(character, character)}\t{100 * probability:.1f}\t{100 * left:.1f}")
    return "\n".join(rows)


def _quoted(text: str) -> list[float]:
    """Return whether each character is inside brackets, or inside quotation marks that close on the same line."""
    inside = [0.0] * len(text)
    opened: list[int] = []
    pairs = {")": "(", "]": "[", "}": "{", "”": "“", "»": "«"}
    for place, character in enumerate(text):
        before = pairs.get(character, character if character in "\"'`" else "")
        if before and any(text[i] == before for i in opened):
            while text[opened[-1]] != before:
                opened.pop()
            start = opened.pop()
            inside[start + 1 : place] = [1.0] * (place - start - 1)
        elif character in "([{“«\"'`":
            opened.append(place)
        elif character == "\n":
            opened.clear()
    return inside


def _since(text: str, ends: Callable[[str], bool]) -> list[float]:
    counts, count = [], 0
    for character in text:
        count = 0 if ends(character) else count + 1
        counts.append(float(count))
    return counts


# Properties that a unit may follow, as one number for each character.
FOLLOWED: dict[str, Callable[[str], list[float]]] = {
    "letters": lambda text: [float(c.isalpha()) for c in text],
    "upper": lambda text: [float(c.isupper()) for c in text],
    "digits": lambda text: [float(c.isdigit()) for c in text],
    "quoted": _quoted,
    "line": lambda text: _since(text, lambda c: c == "\n"),
    "word": lambda text: _since(text, lambda c: not c.isalnum()),
}


def correlations(states: np.ndarray, followed: np.ndarray) -> np.ndarray:
    """Return Pearson's correlation (U,) of each unit (T, U) with a property (T,); 0 if either is constant."""
    units, numbers = states - states.mean(0), followed - followed.mean()
    norms = np.linalg.norm(units, axis=0) * np.linalg.norm(numbers)
    return np.divide(numbers @ units, norms, out=np.zeros(states.shape[1]), where=norms > 1e-9)


def trained_on(name: str) -> str:
    """Return the dataset of a run folder, the Hub id of another model, or "" for a folder that does not say."""
    results = Path(name) / "results.json"
    if results.is_file():
        return Path(read_json(results)["data"]["name"]).name
    return "" if Path(name).is_dir() else name


def build(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, toy: bool = False, source: str = "") -> gr.Blocks:
    """Build the page.

    Args:
        model: a recurrent language model of characters.
        tokenizer: its tokenizer.
        toy: whether it is the toy that was trained when the Space was built.
        source: what another model was trained on, if known.
    """
    config = model.config
    units = config.num_hidden_layers * config.hidden_size

    def check(prompt: str, request: gr.Request, *numbers: float | None) -> None:
        if any(number is None or not math.isfinite(number) for number in numbers):
            TEXTS.refuse(request, "no_number")
        if not prompt:
            TEXTS.refuse(request, "empty_prompt")
        if len(prompt) > MAX_PROMPT + MAX_LENGTH:
            TEXTS.refuse(request, "long_prompt", length=len(prompt), limit=MAX_PROMPT)
        if missing := uncovered_characters(tokenizer, prompt):
            TEXTS.refuse(request, "unknown_character", character=missing[0])

    def legend(color: str, unit: int, request: gr.Request) -> str:
        return "" if color == "none" else TEXTS.say(request, f"legend_{color}", unit=unit)

    def begin(
        prompt: str, temperature: float, top_k: float, top_p: float, length: float, unit: float, seed: float | None,
        keep: bool, request: gr.Request,
    ) -> tuple[Any, ...]:  # fmt: skip
        """Draw a seed, unless it is kept; Write cannot be pressed until the text is complete or stopped."""
        chosen = seed if keep else secrets.randbelow(SEEDS)
        check(prompt, request, temperature, top_k, top_p, length, unit, chosen)
        return chosen, gr.update(interactive=False)

    def write(
        prompt: str, temperature: float, top_k: float, top_p: float, length: float, seed: float | None,
        color: str, unit: float, request: gr.Request,
    ) -> Iterator[tuple[str, dict[str, Any], str]]:  # fmt: skip
        check(prompt, request, temperature, top_k, top_p, length, seed, unit)
        if len(prompt) > MAX_PROMPT:
            TEXTS.refuse(request, "long_prompt", length=len(prompt), limit=MAX_PROMPT)
        assert seed is not None
        text, shades, bars = prompt, PROMPT * len(prompt), ""
        shown = legend(color, int(unit), request)
        yield text, sheet(text, shades, shown, writing=True), bars
        due = time.monotonic()
        for step in continuation(model, tokenizer, prompt, temperature, int(top_k), top_p, int(length), int(seed)):
            time.sleep(PAUSE)
            text += step.character
            bits = -math.log2(max(step.given[step.token].item(), 1e-30))
            shades += shade(color, {"unit": float(step.states[int(unit)]), "surprise": bits, "none": 0.0}[color])
            bars = distribution(step, tokenizer)
            if time.monotonic() >= due:
                yield text, sheet(text, shades, shown, writing=True), bars
                due = time.monotonic() + 1 / UPDATES
        yield text, sheet(text, shades, shown, writing=True), bars

    def recolor(text: str, color: str, unit: float, request: gr.Request) -> dict[str, Any]:
        if not text:
            return sheet("", "", legend(color, int(unit), request))
        check(text, request, unit)
        if color == "unit":
            # A character is predicted from the state after the previous character.
            states = hidden_units(model, tokenizer, text).values[:, int(unit)]
            values = np.concatenate([[0.0], states[:-1]])
        else:
            values = surprises(model, tokenizer, text) if color == "surprise" else np.zeros(len(text))
        shades = "".join(shade(color, value) for value in values.tolist())
        return sheet(text, shades, legend(color, int(unit), request))

    def settle(text: str, color: str, unit: float, request: gr.Request) -> tuple[str, dict[str, Any]]:
        """Show the same text in both places; after a stop, one of them may have had an update more."""
        return text, recolor(text, color, unit, request)

    def find(text: str, followed: str, request: gr.Request) -> tuple[Any, Any, dict[str, Any]]:
        if not text:
            TEXTS.refuse(request, "no_text")
        check(text, request)
        found = correlations(hidden_units(model, tokenizer, text).values, np.array(FOLLOWED[followed](text)))
        unit = int(np.abs(found).argmax())
        if found[unit] == 0:
            TEXTS.refuse(request, "constant")
        gr.Info(TEXTS.say(request, "found", unit=unit, value=found[unit]), duration=5)
        return gr.update(value=unit), gr.update(value="unit"), recolor(text, "unit", unit, request)

    with gr.Blocks(title="Character writer", analytics_enabled=False) as page:
        gr.Markdown(TEXTS.toy("title", "toy") if toy else TEXTS("title"))
        gr.Markdown(TEXTS("intro"))
        facts = f"`{config.cell}` · {config.num_hidden_layers} × {config.hidden_size} · {model.num_parameters():,} "
        facts += str(TEXTS("parameters"))
        if source and not toy:
            facts += f" · {TEXTS('trained_on')} `{source}`"
        gr.Markdown(facts, elem_classes="quiet")
        with gr.Row():
            with gr.Column(scale=2, min_width=320):
                prompt = gr.Textbox("The ", label=TEXTS("prompt"), lines=2, max_lines=6, max_length=MAX_PROMPT)
                with gr.Row():
                    start = gr.Button(TEXTS("write"), variant="primary", min_width=120, elem_id="start")
                    stop = gr.Button(TEXTS("stop"), variant="stop", min_width=120, interactive=False, elem_id="stop")
                gr.Markdown(TEXTS("paper"))
                paper = gr.HTML(
                    sheet("", "", ""), elem_id="paper", js_on_load=PAPER,
                    html_template='<p class="legend"></p><div class="text" tabindex="0" role="log">'
                    '<div class="written"></div></div>',
                )  # fmt: skip
                gr.Markdown(TEXTS("next"))
                following = gr.HTML(
                    "", elem_id="next", min_height=120, js_on_load=NEXT, html_template="<table><tbody></tbody></table>"
                )
                gr.Markdown(TEXTS("next_info"), elem_classes="quiet")
                with gr.Accordion(TEXTS("plain"), open=False):
                    text = gr.Textbox(
                        lines=8, max_lines=12, buttons=["copy"], interactive=False, show_label=False,
                        label=TEXTS("plain"), elem_classes="monospace",
                    )  # fmt: skip
            with gr.Column(scale=1, min_width=280):
                temperature = gr.Slider(
                    0, 2, 0.8, step=0.05, label=TEXTS("temperature"), info=TEXTS("temperature_info")
                )
                color = gr.Radio(
                    [(TEXTS(f"color_{name}"), name) for name in ("unit", "surprise", "none")],
                    value="surprise", label=TEXTS("color"),
                )  # fmt: skip
                unit = gr.Slider(0, units - 1, 0, step=1, label=TEXTS("unit"), info=TEXTS("unit_info"))
                followed = gr.Dropdown(
                    [(TEXTS(f"find_{name}"), name) for name in FOLLOWED], value=None, label=TEXTS("find"),
                    info=TEXTS("find_info"),
                )  # fmt: skip
                length = gr.Slider(10, MAX_LENGTH, 400, step=10, label=TEXTS("length"), info=TEXTS("length_info"))
                top_k = gr.Slider(
                    0, min(50, config.vocab_size), 0, step=1, label=TEXTS("top_k"), info=TEXTS("top_k_info")
                )
                top_p = gr.Slider(0.05, 1, 1, step=0.05, label=TEXTS("top_p"), info=TEXTS("top_p_info"))
                seed = gr.Number(
                    0, precision=0, minimum=0, maximum=2**32 - 1, label=TEXTS("seed"), info=TEXTS("seed_info"),
                    elem_id="seed",
                )  # fmt: skip
                keep = gr.Checkbox(label=TEXTS("keep"))
        examples = [example for example in EXAMPLES if not uncovered_characters(tokenizer, example[0])]
        if examples:
            names = [f"{words.strip()} · {number}" for words, number in examples]
            given = [list(example) for example in examples]
            chosen = gr.Examples(given, [prompt, temperature], label=TEXTS("examples"), example_labels=names)
            chosen.load_input_event.then(None, js=AGAIN)
            page.load(None, js=AGAIN)
        gr.Markdown(TEXTS("limits"), elem_classes="quiet")

        prompt.submit(None, js=AGAIN)
        beginning = start.click(
            begin,
            [prompt, temperature, top_k, top_p, length, unit, seed, keep],
            [seed, start],
            api_visibility="private",
            show_progress="hidden",
        )
        writing = beginning.success(
            write,
            [prompt, temperature, top_k, top_p, length, seed, color, unit],
            [text, paper, following],
            api_name="write",
            trigger_mode="multiple",  # also while the page still waits for the end of a text that was stopped
            show_progress="hidden",  # otherwise Gradio shows "Error" on top of the text
        )
        # A request can be canceled after the server has answered it once; before, Gradio does not know its number.
        paper.play(None, None, stop, js=ON)
        colored = {"inputs": [text, color, unit], "show_progress": "hidden"}
        # Colors change only after the text is complete. Write waits for them: they would arrive on top of a new text.
        for ended in (
            writing.success(None, None, stop, js=OFF),
            stop.click(None, None, stop, js=OFF, cancels=[writing]),
        ):
            settled = ended.then(settle, **colored, outputs=[text, paper], api_visibility="private")
            settled.then(None, None, start, js=ON)
        gr.on([color.input, unit.release], recolor, **colored, outputs=paper, api_name="recolor")
        followed.select(find, [text, followed], [unit, color, paper], api_name="find", show_progress="hidden")
    return page


def main() -> None:
    with one_sentence():
        name = load_folder("writer", SPACE)
        model, tokenizer = load_language_model(name)
        page = build(model.eval(), tokenizer, is_toy("writer", SPACE), trained_on(name))
    launch(page, TEXTS, CSS)


if __name__ == "__main__":
    main()

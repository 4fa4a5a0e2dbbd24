"""A character model writes as you watch.

Self-contained, as a Space is: the model's code comes with its weights, from the repository that HFATTN_MODEL names.

    HFATTN_MODEL=runs/char_lm-quickstart python spaces/char_writer/app.py
"""

import os
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

import gradio as gr
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

MAX_PROMPT = 1000
MAX_LENGTH = 1000
PAUSE = 0.01  # seconds between two characters: a small model writes faster than anyone can watch
EXAMPLES = [["The ", 0.2], ["The ", 0.8], ["The ", 1.5], ["The class ", 0.5]]
CSS = """
#text textarea {
  font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: 14px; line-height: 1.5;
}
"""


def load(name: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model with the code of its repository, and its tokenizer, which needs none."""
    model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
    tokenizer = AutoTokenizer.from_pretrained(name, config=model.config, trust_remote_code=False)
    return model.eval(), tokenizer


def complaint(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str | None:
    """What is wrong with a prompt, in one sentence; None if nothing is."""
    if not prompt:
        return "The prompt is empty; type at least one character to begin with."
    if len(prompt) > MAX_PROMPT:
        return f"The prompt is {len(prompt)} characters long; at most {MAX_PROMPT} are allowed."
    if tokenizer.unk_token is not None:
        return None
    vocabulary, normalizer = tokenizer.get_vocab(), tokenizer.backend_tokenizer.normalizer
    for character in prompt:
        if any(c not in vocabulary for c in (normalizer.normalize_str(character) if normalizer else character)):
            return f"The model has never seen the character {character!r}; leave it out of the prompt."
    return None


# As a decorator, inference mode is entered for each step by itself: Gradio may run each in another thread.
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
) -> Iterator[str]:
    """Yield the characters that follow a prompt, the same that ``model.generate`` draws after ``set_seed(seed)``.

    All state is in the cache and in the random generator made here, so that any number of texts can be written at once.
    """
    warpers = LogitsProcessorList()
    if temperature > 0:  # 0 takes the most probable character, which no other setting changes
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
        scores = warpers(ids, outputs.logits[:, -1].float())  # (1, V)
        # (1, 1): only the newest character is read next, those before it are in the cache.
        ids = torch.multinomial(scores.softmax(-1), 1, generator=draw) if temperature > 0 else scores.argmax(-1, True)
        if ids.item() in ends:
            return
        yield str(tokenizer.decode(ids[0], skip_special_tokens=True))


def refusal(sentence: str) -> gr.Error:
    return gr.Error(sentence, print_exception=False)


def build(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> gr.Blocks:
    """The page."""

    def write(
        prompt: str, temperature: float, top_k: float, top_p: float, length: float, seed: float | None
    ) -> Iterator[str]:
        if seed is None:
            raise refusal("The seed is missing; type a whole number.")
        if sentence := complaint(tokenizer, prompt):
            raise refusal(sentence)
        text = prompt
        yield text
        for character in continuation(model, tokenizer, prompt, temperature, int(top_k), top_p, int(length), int(seed)):
            time.sleep(PAUSE)
            text += character
            yield text

    with gr.Blocks(title="Character writer", analytics_enabled=False) as page:
        gr.Markdown(
            "# ✍️ Character writer\n"
            f"A recurrent network with {model.num_parameters():,} weights continues your text, one character at a time."
        )
        with gr.Row():
            with gr.Column(scale=2, min_width=320):
                prompt = gr.Textbox("The ", label="Prompt", lines=2, max_lines=6, max_length=MAX_PROMPT)
                with gr.Row():
                    start = gr.Button("Write", variant="primary", min_width=120)
                    stop = gr.Button("Stop", variant="stop", min_width=120)
                text = gr.Textbox(label="Text", lines=14, max_lines=14, buttons=["copy"], elem_id="text")
            with gr.Column(scale=1, min_width=280):
                temperature = gr.Slider(
                    0, 2, 0.8, step=0.05, label="Temperature",
                    info="Low repeats itself, high surprises; 0 always takes the most probable character.",
                )  # fmt: skip
                length = gr.Slider(10, MAX_LENGTH, 400, step=10, label="Length", info="Characters to write.")
                top_k = gr.Slider(
                    0, len(tokenizer), 0, step=1, label="Top-k",
                    info="Draw from the k most probable characters only; 0 is all.",
                )  # fmt: skip
                top_p = gr.Slider(
                    0.05, 1, 1, step=0.05, label="Top-p",
                    info="Draw from the fewest characters that together reach this probability.",
                )  # fmt: skip
                seed = gr.Number(
                    0, precision=0, minimum=0, maximum=2**32 - 1, label="Seed", info="The same seed, the same text."
                )
        examples = [example for example in EXAMPLES if complaint(tokenizer, str(example[0])) is None]
        if examples:
            gr.Examples(examples, [prompt, temperature])
        writing = gr.on(
            [start.click, prompt.submit],
            write,
            [prompt, temperature, top_k, top_p, length, seed],
            text,
            api_name="write",
            concurrency_limit=8,
            show_progress="hidden",  # it would lay an "Error" over the text that is there
        )
        stop.click(None, cancels=[writing])
    return page.queue(max_size=32)


def main() -> None:
    name = os.environ.get("HFATTN_MODEL")
    if not name:
        fail("HFATTN_MODEL is not set; set it to a model's id on the Hub or to its local folder.")
    torch.set_num_threads(1)  # one step is too small to share, and several users write at once
    try:
        model, tokenizer = load(name)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        fail(f"HFATTN_MODEL={name} does not load as a language model ({reason}).")
    # The system's own fonts: the default theme would fetch its fonts from elsewhere.
    theme = gr.themes.Soft(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    build(model, tokenizer).launch(theme=theme, css=CSS, run_history=False)


def fail(sentence: str) -> NoReturn:
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()

"""Callbacks that print samples during training."""

from collections.abc import Sequence
from typing import Any

from tqdm.auto import tqdm
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ..data import Pair
from ..generation import sample_text, translate_texts


class SampleCallback(TrainerCallback):
    """Print after each evaluation a text that the model generates at temperature 0.8."""

    TEMPERATURE = 0.8

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: str, max_new_tokens: int, seed: int) -> None:
        self.tokenizer, self.prompt, self.max_new_tokens, self.seed = tokenizer, prompt, max_new_tokens, seed

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> None:
        if model is None:
            return
        # Every process generates: with sharded weights none of them could do it alone.
        text = sample_text(model, self.tokenizer, self.prompt, self.TEMPERATURE, self.max_new_tokens, self.seed)
        if state.is_world_process_zero:
            tqdm.write(f"step {state.global_step}, temperature {self.TEMPERATURE}: {text!r}")


class TranslationCallback(TrainerCallback):
    """Print after each evaluation how the model translates a few sources, and which of them are right."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Sequence[Pair],
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.tokenizer, self.pairs, self.target_tokenizer = tokenizer, pairs, target_tokenizer

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: PreTrainedModel | None = None,
        **kwargs: Any,
    ) -> None:
        if model is None:
            return
        sources = [pair.source for pair in self.pairs]
        # Every process generates: with sharded weights none of them could do it alone.
        translations = translate_texts(model, self.tokenizer, sources, self.target_tokenizer)
        if state.is_world_process_zero:
            tqdm.write(
                "\n".join(
                    f"step {state.global_step}: {pair.source} → {text} {'✓' if text == pair.target else '✗'}"
                    for pair, text in zip(self.pairs, translations, strict=True)
                )
            )

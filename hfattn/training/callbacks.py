"""Callbacks that print what the model generates during training."""

from collections.abc import Sequence
from typing import Any

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
from .progress import say


class _GenerationCallback(TrainerCallback):
    """Print the return value of ``generated`` after each evaluation."""

    def generated(self, model: PreTrainedModel, step: int) -> str:
        raise NotImplementedError

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        # All processes generate: with sharded weights, a single process could not.
        generated = self.generated(kwargs["model"], state.global_step)
        if state.is_world_process_zero:
            say(generated)


class SampleCallback(_GenerationCallback):
    """Print, after each evaluation, a text that the model generates at temperature 0.8."""

    TEMPERATURE = 0.8

    def __init__(self, tokenizer: PreTrainedTokenizerBase, prompt: str, max_new_tokens: int, seed: int) -> None:
        self.tokenizer, self.prompt, self.max_new_tokens, self.seed = tokenizer, prompt, max_new_tokens, seed

    def generated(self, model: PreTrainedModel, step: int) -> str:
        text = sample_text(model, self.tokenizer, self.prompt, self.TEMPERATURE, self.max_new_tokens, self.seed)
        return f"step {step}, temperature {self.TEMPERATURE}: {text!r}"


class TranslationCallback(_GenerationCallback):
    """Print, after each evaluation, translations of a few sources, and which of them are correct."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        pairs: Sequence[Pair],
        target_tokenizer: PreTrainedTokenizerBase | None = None,
    ) -> None:
        self.tokenizer, self.pairs, self.target_tokenizer = tokenizer, pairs, target_tokenizer

    def generated(self, model: PreTrainedModel, step: int) -> str:
        sources = [pair.source for pair in self.pairs]
        translations = translate_texts(model, self.tokenizer, sources, self.target_tokenizer)
        return "\n".join(
            f"step {step}: {pair.source} → {text} {'✓' if text == pair.target else '✗'}"
            for pair, text in zip(self.pairs, translations, strict=True)
        )

"""Callbacks of the recipes."""

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

from ..generation import sample_text


class SampleCallback(TrainerCallback):
    """Shows after each evaluation what the model writes by now, at temperature 0.8."""

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
        if state.is_world_process_zero and model is not None:
            text = sample_text(model, self.tokenizer, self.prompt, self.TEMPERATURE, self.max_new_tokens, self.seed)
            tqdm.write(f"step {state.global_step}, temperature {self.TEMPERATURE}: {text!r}")


__all__ = ["SampleCallback"]

"""The inputs of a causal model that classifies: a text or a pair between special tokens (Radford et al. 2018, 3.3)."""

from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from ..errors import UserError

INPUT_FORMATS = ("tokenizer", "gpt")
START, DELIMITER, EXTRACT = TASK_TOKENS = ("[START]", "[DELIMITER]", "[EXTRACT]")


def with_input_format(tokenizer: PreTrainedTokenizerBase, input_format: str) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a model, changed in place to join the texts of an input in a format.

    Args:
        tokenizer: the tokenizer.
        input_format: "tokenizer" leaves it as it is. "gpt" adds three tokens: a text becomes ⟨start⟩ text ⟨extract⟩,
            and a pair ⟨start⟩ text ⟨delimiter⟩ second text ⟨extract⟩.

    Raises:
        UserError: the tokenizer is not one of the library tokenizers.
    """
    if input_format == "tokenizer":
        return tokenizer
    if not tokenizer.is_fast:
        raise UserError(f"data.input_format gpt needs a tokenizer.json, and {type(tokenizer).__name__} has none.")
    tokenizer.add_special_tokens({"additional_special_tokens": list(TASK_TOKENS)}, replace_extra_special_tokens=False)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{START} $A {EXTRACT}",
        pair=f"{START} $A {DELIMITER} $B {EXTRACT}",
        special_tokens=[(token, tokenizer.convert_tokens_to_ids(token)) for token in TASK_TOKENS],
    )
    return tokenizer


__all__ = ["INPUT_FORMATS", "TASK_TOKENS", "with_input_format"]

"""The special symbols that every tokenizer built here has, under the same ids."""

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[BOS]", "[EOS]"


def special_symbols(unknown: bool, ends: bool) -> list[str]:
    """The symbols that head a vocabulary: padding, then those that it has of unknown, beginning and end."""
    return [PAD, *([UNKNOWN] if unknown else []), *([BEGIN, END] if ends else [])]


def with_special_symbols(
    backend: Tokenizer, unknown: bool, ends: bool, padding_side: str = "right"
) -> PreTrainedTokenizerFast:
    """The tokenizer that transformers works with, around one whose vocabulary begins with ``special_symbols``.

    Args:
        backend: the tokenizer; it is given a post-processor if ``ends``.
        unknown: whether it has ``[UNK]``.
        ends: whether it has ``[BOS]`` and ``[EOS]``, and closes each text with ``[EOS]``.
        padding_side: "left" or "right".
    """
    if ends:
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {END}", special_tokens=[(END, backend.token_to_id(END))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN if unknown else None,
        bos_token=BEGIN if ends else None,
        eos_token=END if ends else None,
        padding_side=padding_side,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # the text "[PAD]" is five characters, never the padding symbol
        model_input_names=["input_ids", "attention_mask"],
    )

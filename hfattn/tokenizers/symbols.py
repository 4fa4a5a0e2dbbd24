"""Special tokens, which have the same ids in every tokenizer of hfattn."""

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[BOS]", "[EOS]"
CLASS, SEPARATOR, MASK = "[CLS]", "[SEP]", "[MASK]"


def special_symbols(unknown: bool, ends: bool, masks: bool = False) -> list[str]:
    """Return the first entries of a vocabulary: padding, then unknown, beginning and end, and BERT's as requested."""
    bert = [CLASS, SEPARATOR, MASK] if masks else []
    return [PAD, *([UNKNOWN] if unknown else []), *([BEGIN, END] if ends else []), *bert]


def with_special_symbols(
    backend: Tokenizer, unknown: bool, ends: bool, padding_side: str = "right", masks: bool = False
) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer whose vocabulary starts with ``special_symbols`` for transformers.

    Args:
        backend: the tokenizer; a post-processor is added if ``ends`` or ``masks`` is set.
        unknown: whether the tokenizer has ``[UNK]``.
        ends: whether the tokenizer has ``[BOS]`` and ``[EOS]``, and ends each text with ``[EOS]``.
        padding_side: "left" or "right".
        masks: whether the tokenizer has ``[CLS]``, ``[SEP]`` and ``[MASK]``, and puts each text between the first two.
    """
    if ends:
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {END}", special_tokens=[(END, backend.token_to_id(END))]
        )
    if masks:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{CLASS} $A {SEPARATOR}",
            pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
            special_tokens=[(symbol, backend.token_to_id(symbol)) for symbol in (CLASS, SEPARATOR)],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=UNKNOWN if unknown else None,
        bos_token=BEGIN if ends else None,
        eos_token=END if ends else None,
        cls_token=CLASS if masks else None,
        sep_token=SEPARATOR if masks else None,
        mask_token=MASK if masks else None,
        padding_side=padding_side,
        clean_up_tokenization_spaces=False,
        # The text "[PAD]" is read as five characters; only with masks is a special token in a text read as one.
        split_special_tokens=not masks,
        model_input_names=["input_ids", "attention_mask"],
    )

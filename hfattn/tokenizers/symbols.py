"""Special tokens, which have the same ids in every tokenizer of hfattn."""

from tokenizers import Tokenizer, processors
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, BEGIN, END = "[PAD]", "[UNK]", "[BOS]", "[EOS]"
CLASS, SEPARATOR, MASK = "[CLS]", "[SEP]", "[MASK]"


def special_symbols(unknown: bool, ends: bool, masks: bool = False, pairs: bool = False) -> list[str]:
    """Return the first entries of a vocabulary: padding, then unknown, beginning and end, and BERT's as requested.

    Of BERT's, ``masks`` needs all, and ``pairs`` the separator of two texts.
    """
    bert = [CLASS, SEPARATOR, MASK] if masks else [SEPARATOR] if pairs else []
    return [PAD, *([UNKNOWN] if unknown else []), *([BEGIN, END] if ends else []), *bert]


def with_special_symbols(backend: Tokenizer, symbols: list[str], padding_side: str) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer for transformers; each text ends with ``[EOS]``, or is between ``[CLS]`` and ``[SEP]``.

    With a separator and no mask, ``[SEP]`` is only between the two texts of a pair.

    Args:
        backend: the tokenizer; a post-processor is added if it has these tokens.
        symbols: the ``special_symbols`` with which its vocabulary starts.
        padding_side: "left" or "right".
    """

    def if_known(symbol: str) -> str | None:
        return symbol if symbol in symbols else None

    if END in symbols:
        backend.post_processor = processors.TemplateProcessing(
            single=f"$A {END}", special_tokens=[(END, backend.token_to_id(END))]
        )
    if MASK in symbols:
        backend.post_processor = processors.TemplateProcessing(
            single=f"{CLASS} $A {SEPARATOR}",
            pair=f"{CLASS} $A {SEPARATOR} $B:1 {SEPARATOR}:1",
            special_tokens=[(symbol, backend.token_to_id(symbol)) for symbol in (CLASS, SEPARATOR)],
        )
    elif SEPARATOR in symbols:
        backend.post_processor = processors.TemplateProcessing(
            single="$A", pair=f"$A {SEPARATOR} $B", special_tokens=[(SEPARATOR, backend.token_to_id(SEPARATOR))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        unk_token=if_known(UNKNOWN),
        bos_token=if_known(BEGIN),
        eos_token=if_known(END),
        cls_token=if_known(CLASS),
        sep_token=if_known(SEPARATOR),
        mask_token=if_known(MASK),
        padding_side=padding_side,
        clean_up_tokenization_spaces=False,
        # The text "[PAD]" is read as five characters; only with masks is a special token in a text read as one.
        split_special_tokens=MASK not in symbols,
        model_input_names=["input_ids", "attention_mask"],
    )

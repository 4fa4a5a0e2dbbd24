"""Character tokenizers: one token for each Unicode code point."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from ..errors import UserError
from .symbols import UNKNOWN, special_symbols, with_special_symbols


def build_character_tokenizer(
    text: Iterable[str] | Mapping[str, int],
    *,
    lowercase: bool = False,
    min_count: int = 1,
    unknown: bool = False,
    ends: bool = False,
    pairs: bool = False,
) -> PreTrainedTokenizerFast:
    """Build a character tokenizer whose vocabulary is the characters of a text, in the order of their code points.

    A text of these characters, including newlines and tabs, decodes to exactly the same text (in lowercase with
    ``lowercase``). Id 0 is ``[PAD]``; id 1 is ``[UNK]`` with ``unknown``. The text "[PAD]" is read as five characters.
    Batches are padded on the left, as generation from a recurrent model requires.

    An encoder-decoder, which must generate the end of its text, needs ``ends``: ``[BOS]`` and ``[EOS]`` are added, each
    encoded text ends with ``[EOS]``, and batches are padded on the right, as targets are.

    Args:
        text: the text, in pieces of any length, or the number of occurrences of each character.
        lowercase: lowercase each character first, independently of its neighbors.
        min_count: leave out characters that occur less often; values above 1 require ``unknown``.
        unknown: map all other characters to ``[UNK]``; without it, encoding such a character is an error.
        ends: end each text with ``[EOS]``.
        pairs: put ``[SEP]`` between the two texts of a pair.

    Returns:
        A tokenizer that ``save_pretrained`` writes as ``tokenizer.json`` and ``AutoTokenizer`` loads.

    Raises:
        UserError: the text is empty, or ``min_count`` leaves out characters and ``unknown`` is False.
    """
    check_options(min_count, unknown)
    normalizer = normalizers.Lowercase() if lowercase else None
    occurrences = Counter(text if isinstance(text, Mapping) else chain.from_iterable(text))
    counts: Counter[str] = Counter()
    for character, count in occurrences.items():
        for normal in normalizer.normalize_str(character) if normalizer else character:
            counts[normal] += count
    if not counts:
        raise UserError("The text is empty, so it has no characters to build a tokenizer from; give it some text.")
    characters = sorted(character for character, count in counts.items() if count >= min_count)
    if not characters:
        raise UserError(f"No character occurs {min_count} times, so the vocabulary is empty; lower min_count.")
    symbols = special_symbols(unknown, ends, pairs=pairs)
    vocabulary = {symbol: i for i, symbol in enumerate([*symbols, *characters])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN if unknown else ""))
    if normalizer:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return with_special_symbols(backend, symbols, padding_side="right" if ends else "left")


def check_options(min_count: int, unknown: bool) -> None:
    """Check the options of a tokenizer that do not depend on the text.

    Raises:
        UserError: ``min_count`` is below 1, or leaves out characters and ``unknown`` is False.
    """
    if min_count < 1:
        raise UserError(f"min_count is {min_count}; write a whole number of at least 1.")
    if min_count > 1 and not unknown:
        raise UserError(
            f"min_count {min_count} leaves characters out of the vocabulary; add unknown: true to admit them."
        )


def is_character_tokenizer(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether every token except the special ones is a single character."""
    special = set(tokenizer.all_special_tokens)
    return isinstance(tokenizer.backend_tokenizer.model, models.WordLevel) and all(
        len(token) == 1 for token in tokenizer.get_vocab() if token not in special
    )


def uncovered_characters(tokenizer: PreTrainedTokenizerBase, characters: Iterable[str]) -> list[str]:
    """Return the characters that a tokenizer can neither encode nor map to an unknown token, sorted.

    Args:
        tokenizer: a character tokenizer; for other tokenizers the result is empty.
        characters: a text, or any collection of characters.
    """
    if tokenizer.unk_token is not None or not isinstance(tokenizer.backend_tokenizer.model, models.WordLevel):
        return []
    normalizer = tokenizer.backend_tokenizer.normalizer
    vocabulary = tokenizer.get_vocab()
    return sorted(
        character
        for character in set(characters)
        if any(c not in vocabulary for c in (normalizer.normalize_str(character) if normalizer else character))
    )

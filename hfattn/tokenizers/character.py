"""One token for each character (Unicode code point)."""

from collections import Counter
from collections.abc import Iterable, Mapping

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
) -> PreTrainedTokenizerFast:
    """Build a character tokenizer whose vocabulary is the characters of a text, in the order of their code points.

    Any text over these characters, newlines and tabs included, is decoded to exactly what was encoded (lower-cased, if
    asked for). Id 0 is ``[PAD]``; id 1 is ``[UNK]`` if ``unknown``. A text that spells out "[PAD]" is five characters
    like any others. Batches are padded on the left, as generation from a recurrent model needs it.

    An encoder-decoder, which has to say where its text ends, needs ``ends``: then ``[BOS]`` and ``[EOS]`` follow, each
    encoded text ends with ``[EOS]``, and batches are padded on the right, as targets are.

    Args:
        text: the text, in pieces of any length, or the number of times that each character occurs in it.
        lowercase: lower-case each character first (by itself: no character changes with its neighbours).
        min_count: leave out characters that occur less often; more than 1 needs ``unknown``.
        unknown: map every other character to ``[UNK]``. Without it, such a character is an error when it is encoded.
        ends: close each text with ``[EOS]``.

    Returns:
        A tokenizer that ``save_pretrained`` writes as ``tokenizer.json`` and that ``AutoTokenizer`` loads.

    Raises:
        UserError: the text is empty, or ``min_count`` leaves characters out and ``unknown`` does not admit them.
    """
    check_options(min_count, unknown)
    normalizer = normalizers.Lowercase() if lowercase else None
    occurrences: Counter[str] = Counter()
    if isinstance(text, Mapping):
        occurrences.update(text)
    else:
        for piece in text:
            occurrences.update(piece)
    counts: Counter[str] = Counter()
    for character, count in occurrences.items():
        for normal in normalizer.normalize_str(character) if normalizer else character:
            counts[normal] += count
    if not counts:
        raise UserError("The text is empty, so it has no characters to build a tokenizer from; give it some text.")
    characters = sorted(character for character, count in counts.items() if count >= min_count)
    if not characters:
        raise UserError(f"No character occurs {min_count} times, so the vocabulary is empty; lower min_count.")
    symbols = [*special_symbols(unknown, ends), *characters]
    backend = Tokenizer(
        models.WordLevel({symbol: i for i, symbol in enumerate(symbols)}, unk_token=UNKNOWN if unknown else "")
    )
    if normalizer:
        backend.normalizer = normalizer
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    backend.decoder = decoders.Fuse()
    return with_special_symbols(backend, unknown, ends, padding_side="right" if ends else "left")


def check_options(min_count: int, unknown: bool) -> None:
    """Check what can be checked of a tokenizer's options without the text.

    Raises:
        UserError: ``min_count`` is below 1, or leaves characters out and ``unknown`` does not admit them.
    """
    if min_count < 1:
        raise UserError(f"min_count is {min_count}; write a whole number of at least 1.")
    if min_count > 1 and not unknown:
        raise UserError(
            f"min_count {min_count} leaves characters out of the vocabulary; add unknown: true to admit them."
        )


def is_character_tokenizer(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether each token, special ones aside, is one character."""
    special = set(tokenizer.all_special_tokens)
    return isinstance(tokenizer.backend_tokenizer.model, models.WordLevel) and all(
        len(token) == 1 for token in tokenizer.get_vocab() if token not in special
    )


def uncovered_characters(tokenizer: PreTrainedTokenizerBase, characters: Iterable[str]) -> list[str]:
    """The given characters that the tokenizer can neither encode nor map to an unknown token, sorted.

    Args:
        tokenizer: a character tokenizer; any other has its own way with what it has not seen, and covers everything.
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

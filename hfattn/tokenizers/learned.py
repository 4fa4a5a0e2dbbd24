"""Tokenizers by their name in a recipe: characters, words, or subwords learned from the training texts."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from huggingface_hub.dataclasses import strict
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from ..errors import UserError
from ..models.strict_config import unknown_message
from .character import build_character_tokenizer, check_options
from .sampling import SubwordSampler, check_sampling
from .symbols import UNKNOWN, special_symbols, with_special_symbols
from .unigram import learn_pieces

SUBWORDS = ("bpe", "unigram", "wordpiece")
KINDS = ("char", "word", *SUBWORDS)

_LETTER = r"[\p{L}\p{M}\p{N}]"
# A word or a run of punctuation takes the space before it along, and what follows an apostrophe is a piece of its own
# (don|'t, l|'homme). Every character is in one piece, so that the pieces together are the text.
_PIECES = rf" ?{_LETTER}+|(?<={_LETTER})['’]{_LETTER}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"
# Where spaces are not kept, a word with an apostrophe or a hyphen inside is one, and so is each other punctuation mark.
_WORDS = rf"{_LETTER}+(?:['’-]{_LETTER}+)*|[^\s\p{{L}}\p{{M}}\p{{N}}]"


@strict
@dataclass
class TokenizerConfig:
    """The section ``tokenizer`` of a recipe.

    Attributes:
        kind: "char", "word", "bpe" (Sennrich et al. 2016), "unigram" (Kudo 2018) or "wordpiece" (Schuster & Nakajima
            2012); see ``build_tokenizer``.
        vocab_size: symbols of the vocabulary, the special ones included. Subwords need one; words without one are all
            kept; characters are chosen by ``min_count``.
        lowercase: lower-case the text first.
        min_count: leave out characters or words that occur less often.
        unknown: of characters: map those that the training texts do not have to ``[UNK]``, where it would be an error.
            All other kinds have ``[UNK]``.
        strip_punctuation: of words: drop apostrophes within a word, and read other punctuation and symbols as spaces.
        sampling: subword regularisation, at training time (``SubwordSampler``): of unigram, the smoothing alpha of Kudo
            (2018); of bpe, the probability of dropping a merge (Provilkov et al. 2020). 0 is off.
    """

    kind: str = "char"
    vocab_size: int | None = None
    lowercase: bool = False
    min_count: int = 1
    unknown: bool = False
    strip_punctuation: bool = False
    sampling: float | int = 0.0

    def validate_kind(self) -> None:
        kind = self.kind
        if kind not in KINDS:
            raise ValueError(unknown_message(kind, KINDS, "a kind of tokenizer"))
        if kind in SUBWORDS and self.vocab_size is None:
            raise ValueError(f"kind {kind} needs a vocab_size; write how many subwords to learn, such as 8000.")
        if kind == "char" and self.vocab_size is not None:
            raise ValueError("vocab_size is not for kind char; leave it out, min_count is what leaves characters out.")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise ValueError(f"vocab_size is {self.vocab_size}; write a whole number of at least 1.")
        if kind in SUBWORDS and self.min_count != 1:
            raise ValueError(f"min_count is for kinds char and word; leave it out, vocab_size is what cuts {kind}.")
        if kind != "char" and self.unknown:
            raise ValueError(f"unknown is for kind char; leave it out, kind {kind} always has [UNK].")
        if kind != "word" and self.strip_punctuation:
            raise ValueError(f"strip_punctuation is for kind word; leave it out of kind {kind}.")
        check_options(self.min_count, self.unknown or kind == "word")

    def validate_sampling(self) -> None:
        if self.sampling != 0:
            check_sampling(self.kind, self.sampling)


def build_tokenizer(
    config: TokenizerConfig,
    texts: Iterable[str] | Mapping[str, int],
    *,
    ends: bool,
    padding_side: str = "right",
    masks: bool = False,
) -> PreTrainedTokenizerFast:
    """Learn a tokenizer from the training texts.

    The same texts give the same tokenizer, in any order, process and number of threads. Id 0 is ``[PAD]``, id 1 is
    ``[UNK]`` (of characters: only if ``unknown``), then come ``[BOS]`` and ``[EOS]`` if ``ends``, ``[CLS]``, ``[SEP]``
    and ``[MASK]`` if ``masks``, then the vocabulary. A text that spells out "[PAD]" has none of them, unless ``masks``:
    then it is read as by BERT's tokenizer. By kind:

    - char: ``build_character_tokenizer``.
    - word: words, and punctuation marks one by one, the most frequent first, equal ones in the order of their code
      points. Decoding joins them with spaces.
    - bpe: byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909, section 3.2), over characters.
    - unigram: the most probable segmentation under a unigram language model (Kudo 2018, arXiv 1804.10959, section 3.2).
    - wordpiece: the longest subwords from the left (Schuster & Nakajima 2012). The library learns them by the frequency
      of pairs, as bpe does, not by likelihood as the paper. Decoding puts punctuation next to its words as it usually
      stands, which may not be as it stood. A word with an unknown character, or of more than 100, is one ``[UNK]``.

    Subwords of bpe and unigram hold the space before a word, and none crosses from a word to its punctuation or to the
    next word. They decode to exactly the text that was encoded (lower-cased, if asked for), spaces included, as long as
    its characters occur in ``texts``; each other one is ``[UNK]``, and unigram has one for several in a row.

    Args:
        config: what to build. The vocabulary has ``vocab_size`` symbols, or fewer if the texts have no more.
        texts: the texts; for characters also how often each of them occurs.
        ends: close each text with ``[EOS]``, as an encoder-decoder needs it.
        padding_side: of a batch: "right" for encoder-decoders and classifiers, "left" for recurrent generation.
        masks: for a masked language model: put each text between ``[CLS]`` and ``[SEP]``, and read ``[MASK]`` as the
            token to fill in. For kinds word and wordpiece: the others keep the spaces, and would add one after a mask.

    Returns:
        A tokenizer that ``save_pretrained`` writes as ``tokenizer.json`` and that ``AutoTokenizer`` loads.

    Raises:
        UserError: there is no text, ``vocab_size`` is too small for the characters that occur, or ``masks`` are wanted
            of another kind.
        TypeError: the texts are one string, or counts of characters where texts are needed.
    """
    if masks and config.kind not in ("word", "wordpiece"):
        raise UserError(f"tokenizer.kind {config.kind} has no [MASK]; write wordpiece or word.")
    if config.kind == "char":
        tokenizer = build_character_tokenizer(
            texts, lowercase=config.lowercase, min_count=config.min_count, unknown=config.unknown, ends=ends
        )
        tokenizer.padding_side = padding_side
        return tokenizer
    if isinstance(texts, str | Mapping):
        raise TypeError(f"A tokenizer of kind {config.kind} learns from a list of texts, not {type(texts).__name__}.")
    texts, symbols = list(texts), special_symbols(unknown=True, ends=ends, masks=masks)
    if not any(map(str.strip, texts)):
        raise UserError("The texts are empty, so there is nothing to build a tokenizer from; give it some text.")
    learn = {"word": _words, "bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece}[config.kind]
    backend = learn(config, texts, symbols)
    return with_special_symbols(backend, unknown=True, ends=ends, padding_side=padding_side, masks=masks)


def build_sampler(config: TokenizerConfig, tokenizer: PreTrainedTokenizerFast) -> SubwordSampler | None:
    """What draws the segmentations of training texts, where ``config`` asks for it; None where they are not drawn."""
    return SubwordSampler(tokenizer, config.sampling) if config.sampling else None


def _words(config: TokenizerConfig, texts: list[str], symbols: list[str]) -> Tokenizer:
    backend = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    stripped = [
        normalizers.Replace(Regex(rf"(?<={_LETTER})['’](?={_LETTER})"), ""),
        normalizers.Replace(Regex(r"[\p{P}\p{S}]"), " "),
    ]
    backend.normalizer = normalizers.Sequence([*_lowercase(config), *(stripped if config.strip_punctuation else [])])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)
    trainer = trainers.WordLevelTrainer(
        vocab_size=_size(config, len(symbols) + 1, "a word"),
        min_frequency=config.min_count,
        special_tokens=symbols,
        show_progress=False,
    )
    backend.train_from_iterator(texts, trainer)
    if backend.get_vocab_size() == len(symbols):
        raise UserError(f"No word occurs {config.min_count} times, so the vocabulary is empty; lower min_count.")
    return backend


def _bpe(config: TokenizerConfig, texts: list[str], symbols: list[str]) -> Tokenizer:
    backend = _reversible(config, models.BPE(unk_token=UNKNOWN))
    size = _size(config, len(symbols) + len(_alphabet(backend, texts)))
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=symbols, show_progress=False)
    )
    return backend


def _unigram(config: TokenizerConfig, texts: list[str], symbols: list[str]) -> Tokenizer:
    backend = _reversible(config, models.Unigram())
    size = _size(config, len(symbols) + len(_alphabet(backend, texts)))
    normalize, split = backend.normalizer.normalize_str, backend.pre_tokenizer.pre_tokenize_str
    pieces = learn_pieces(Counter(word for text in texts for word, _ in split(normalize(text))), size - len(symbols))
    backend.model = models.Unigram(
        [*((symbol, 0.0) for symbol in symbols), *pieces.items()], unk_id=symbols.index(UNKNOWN)
    )
    return backend


def _wordpiece(config: TokenizerConfig, texts: list[str], symbols: list[str]) -> Tokenizer:
    def backend_with(vocabulary: dict[str, int]) -> Tokenizer:
        backend = Tokenizer(models.WordPiece(vocabulary, unk_token=UNKNOWN))
        backend.normalizer = normalizers.Sequence(_lowercase(config))
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)
        return backend

    def learn(size: int, first: list[str]) -> dict[str, int]:
        backend = backend_with({})
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, show_progress=False)
        backend.train_from_iterator(texts, trainer)
        return backend.get_vocab()

    # The trainer numbers the characters that continue a word in the order of a hash map, and merges equally frequent
    # pairs in the order of those numbers. So a run without merges finds the characters, and they are given sorted.
    characters = sorted(learn(0, symbols).keys() - set(symbols))
    size = _size(config, len(symbols) + len(characters))
    backend = backend_with(learn(size, [*symbols, *characters]))
    backend.decoder = decoders.Sequence(
        [
            decoders.WordPiece(cleanup=False),
            decoders.Fuse(),
            decoders.Replace(Regex(r" (?=[.,;:!?…%)\]}»”])|(?<=[¿¡(\[{«“]) "), ""),
        ]
    )
    return backend


def _reversible(config: TokenizerConfig, model: models.Model) -> Tokenizer:
    """A tokenizer whose tokens together are the text: a space goes before it, and the first one is taken away again."""
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([*_lowercase(config), normalizers.Prepend(" ")])
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return backend


def _lowercase(config: TokenizerConfig) -> list[normalizers.Normalizer]:
    return [normalizers.Lowercase()] if config.lowercase else []


def _alphabet(backend: Tokenizer, texts: list[str]) -> set[str]:
    """The characters that the texts have after normalisation, by which no character changes with its neighbours."""
    return set().union(*(backend.normalizer.normalize_str(character) for character in set().union(*texts)))


def _size(config: TokenizerConfig, least: int, what: str = "the characters of the texts") -> int:
    if config.vocab_size is None:
        return sys.maxsize
    if config.vocab_size < least:
        raise UserError(
            f"vocab_size {config.vocab_size} has no room for the special symbols and {what}; write at least {least}."
        )
    return config.vocab_size

"""Build the tokenizer that a recipe names: of characters, of words, or of subwords learned from the training texts."""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

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
WORDS = ("word", "whitespace")
KINDS = ("byte", "char", *WORDS, *SUBWORDS)

_LETTER = r"[\p{L}\p{M}\p{N}]"
# A word or a run of punctuation includes the space before it, and an apostrophe starts a new piece (don|'t, l|'homme).
# Every character is in one piece, so joining the pieces gives the text.
_PIECES = rf" ?{_LETTER}+|(?<={_LETTER})['’]{_LETTER}+| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+|\s+(?!\S)|\s+"
# Without spaces: a word with inner apostrophes or hyphens is one piece, and so is each other punctuation mark.
_WORDS = rf"{_LETTER}+(?:['’-]{_LETTER}+)*|[^\s\p{{L}}\p{{M}}\p{{N}}]"


@strict
@dataclass
class TokenizerConfig:
    """The section ``tokenizer`` of a recipe.

    Attributes:
        kind: "byte", "char", "word", "whitespace", "bpe" (Sennrich et al. 2016), "unigram" (Kudo 2018) or "wordpiece"
            (Schuster & Nakajima 2012); see ``build_tokenizer``.
        vocab_size: size of the vocabulary, special tokens included. Required for subwords; optional for words, all of
            which are kept by default; not allowed for characters, which are selected by ``min_count``, and bytes.
        lowercase: lowercase the text first.
        min_count: leave out characters or words that occur less often.
        unknown: char only: map characters that do not occur in the training texts to ``[UNK]`` instead of raising an
            error. All other kinds but byte have ``[UNK]``.
        strip_punctuation: word only: drop apostrophes within words, and read other punctuation and symbols as spaces.
        split_digits: bpe and unigram only: each digit is a token, so that numbers which do not occur in the training
            texts can be read and written.
        sampling: subword regularization in training (``SubwordSampler``): for unigram, the smoothing alpha of Kudo
            (2018); for bpe, the probability of dropping a merge (Provilkov et al. 2020); 0 turns it off.
    """

    kind: str = "char"
    vocab_size: int | None = None
    lowercase: bool = False
    min_count: int = 1
    unknown: bool = False
    strip_punctuation: bool = False
    split_digits: bool = False
    sampling: float | int = 0.0

    def validate_kind(self) -> None:
        kind = self.kind
        if kind not in KINDS:
            raise ValueError(unknown_message(kind, KINDS, "a kind of tokenizer"))
        if kind in SUBWORDS and self.vocab_size is None:
            raise ValueError(f"kind {kind} needs a vocab_size; write how many subwords to learn, such as 8000.")
        if kind == "char" and self.vocab_size is not None:
            raise ValueError(
                "vocab_size does not apply to kind char; remove it, and use min_count to leave out characters."
            )
        if kind == "byte" and (self.vocab_size, self.min_count) != (None, 1):
            raise ValueError("vocab_size and min_count do not apply to kind byte, which has all bytes; remove them.")
        if self.vocab_size is not None and self.vocab_size < 1:
            raise ValueError(f"vocab_size is {self.vocab_size}; write a whole number of at least 1.")
        if kind in SUBWORDS and self.min_count != 1:
            raise ValueError(
                f"min_count applies to kinds char and word; remove it, and use vocab_size for kind {kind}."
            )
        if kind != "char" and self.unknown:
            reason = "knows all bytes" if kind == "byte" else "always has [UNK]"
            raise ValueError(f"unknown applies to kind char; remove it, because kind {kind} {reason}.")
        if kind != "word" and self.strip_punctuation:
            raise ValueError(f"strip_punctuation applies to kind word; remove it for kind {kind}.")
        if kind not in ("bpe", "unigram") and self.split_digits:
            raise ValueError(f"split_digits applies to kinds bpe and unigram; remove it for kind {kind}.")
        check_options(self.min_count, self.unknown or kind in WORDS)

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
    pairs: bool = False,
) -> PreTrainedTokenizerFast:
    """Learn a tokenizer from the training texts.

    The same texts give the same tokenizer, independently of their order, the process and the number of threads. Id 0 is
    ``[PAD]``, id 1 is ``[UNK]`` (for char only with ``unknown``, for byte never); then follow ``[BOS]`` and ``[EOS]``
    with ``ends``, ``[CLS]``, ``[SEP]`` and ``[MASK]`` with ``masks``, ``[SEP]`` with ``pairs``, and the vocabulary. The
    text "[PAD]" is read as characters; with ``masks`` it is read as the special token, as in BERT's tokenizer. By kind:

    - byte: the 256 bytes of UTF-8, which no text is needed for. Every text decodes to exactly the same text.
    - char: see ``build_character_tokenizer``.
    - word: words and single punctuation marks, most frequent first, ties in the order of code points. Decoding joins
      them with spaces.
    - whitespace: the same, but everything between white space is one word, for texts whose symbols are written apart.
    - bpe: byte-pair encoding (Sennrich et al. 2016, arXiv 1508.07909, section 3.2), over characters.
    - unigram: the most probable segmentation under a unigram language model (Kudo 2018, arXiv 1804.10959, section 3.2).
    - wordpiece: the longest subwords from the left (Schuster & Nakajima 2012). The tokenizers library learns them by
      the frequency of pairs, as bpe does, not by likelihood as in the paper. Decoding attaches punctuation to words in
      the usual way, which may differ from the original text. A word with an unknown character, or with more than 100
      characters, becomes one ``[UNK]``.

    Subwords of bpe and unigram include the space before a word, and none spans a word and its punctuation or two words;
    with ``split_digits``, a digit is a token, without the space before it.
    If all characters of a text occur in ``texts``, it decodes to exactly the same text, spaces included (in lowercase
    with ``lowercase``). Each other character becomes ``[UNK]``; with unigram, several consecutive ones become one
    ``[UNK]``.

    Args:
        config: the section ``tokenizer``. The vocabulary has ``vocab_size`` entries, or fewer if the texts contain
            fewer.
        texts: the texts, which are read several times; for characters also the number of occurrences of each. An
            iterator, which can be read once, is kept in memory.
        ends: end each text with ``[EOS]``, for encoder-decoders.
        padding_side: "right" for encoder-decoders and classifiers, "left" for recurrent generation.
        masks: put each text between ``[CLS]`` and ``[SEP]``, and read ``[MASK]`` as the token to fill in, for masked
            language models. Supported only for kinds word and wordpiece: the others preserve spaces, and would add one
            after a mask.
        pairs: put ``[SEP]`` between the two texts of a pair, for classifiers of pairs.

    Returns:
        A tokenizer that ``save_pretrained`` writes as ``tokenizer.json`` and ``AutoTokenizer`` loads.

    Raises:
        UserError: there is no text, ``vocab_size`` is too small for the characters that occur, or ``masks`` is True
            for another kind.
        TypeError: the texts are a single string, or character counts for a kind that needs texts.
    """
    if masks and config.kind not in ("word", "wordpiece"):
        raise UserError(f"tokenizer.kind {config.kind} has no [MASK]; write wordpiece or word.")
    if config.kind == "char":
        tokenizer = build_character_tokenizer(
            texts,
            lowercase=config.lowercase,
            min_count=config.min_count,
            unknown=config.unknown,
            ends=ends,
            pairs=pairs,
        )
        tokenizer.padding_side = padding_side
        return tokenizer
    if isinstance(texts, str | Mapping):
        raise TypeError(f"A tokenizer of kind {config.kind} learns from a list of texts, not {type(texts).__name__}.")
    if config.kind == "byte":
        symbols = special_symbols(unknown=False, ends=ends, pairs=pairs)
        return with_special_symbols(_bytes(config, symbols), symbols, padding_side)
    texts = list(texts) if isinstance(texts, Iterator) else texts
    symbols = special_symbols(unknown=True, ends=ends, masks=masks, pairs=pairs)
    if not any(map(str.strip, texts)):
        raise UserError("The texts are empty, so there is nothing to build a tokenizer from; give it some text.")
    learn = {"word": _words, "whitespace": _words, "bpe": _bpe, "unigram": _unigram, "wordpiece": _wordpiece}[
        config.kind
    ]
    backend = learn(config, texts, symbols)
    return with_special_symbols(backend, symbols, padding_side)


def build_sampler(config: TokenizerConfig, tokenizer: PreTrainedTokenizerFast) -> SubwordSampler | None:
    """Return the sampler of segmentations of the training texts; None if ``config.sampling`` is 0."""
    return SubwordSampler(tokenizer, config.sampling) if config.sampling else None


def _words(config: TokenizerConfig, texts: Iterable[str], symbols: list[str]) -> Tokenizer:
    backend = Tokenizer(models.WordLevel(unk_token=UNKNOWN))
    stripped = [
        normalizers.Replace(Regex(rf"(?<={_LETTER})['’](?={_LETTER})"), ""),
        normalizers.Replace(Regex(r"[\p{P}\p{S}]"), " "),
    ]
    backend.normalizer = normalizers.Sequence([*_lowercase(config), *(stripped if config.strip_punctuation else [])])
    backend.pre_tokenizer = (
        pre_tokenizers.WhitespaceSplit()
        if config.kind == "whitespace"
        else pre_tokenizers.Split(Regex(_WORDS), "removed", invert=True)
    )
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


def _bytes(config: TokenizerConfig, symbols: list[str]) -> Tokenizer:
    """Return a tokenizer of bytes: byte-pair encoding in which no pair is merged."""
    entries = [*symbols, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(models.BPE({entry: i for i, entry in enumerate(entries)}, []))
    backend.normalizer = normalizers.Sequence(_lowercase(config))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _bpe(config: TokenizerConfig, texts: Iterable[str], symbols: list[str]) -> Tokenizer:
    backend = _reversible(config, models.BPE(unk_token=UNKNOWN))
    size = _size(config, len(symbols) + len(_alphabet(backend, texts)))
    backend.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=size, special_tokens=symbols, show_progress=False)
    )
    return backend


def _unigram(config: TokenizerConfig, texts: Iterable[str], symbols: list[str]) -> Tokenizer:
    backend = _reversible(config, models.Unigram())
    size = _size(config, len(symbols) + len(_alphabet(backend, texts)))
    pieces = learn_pieces(_word_counts(backend, texts), size - len(symbols))
    backend.model = models.Unigram(
        [*((symbol, 0.0) for symbol in symbols), *pieces.items()], unk_id=symbols.index(UNKNOWN)
    )
    return backend


def _word_counts(backend: Tokenizer, texts: Iterable[str]) -> Counter[str]:
    """Count the words of texts, as a tokenizer of ``_reversible`` normalizes and splits them.

    It begins a word at each single space, and puts a space before a text. So the parts between single spaces, most of
    which occur often, are split as if they were texts.
    """
    words, parts = Counter[str](), Counter[str]()

    def add(text: str, count: int) -> None:
        for word, _ in backend.pre_tokenizer.pre_tokenize_str(backend.normalizer.normalize_str(text)):
            words[word] += count

    for text in texts:
        between = text.split(" ")
        if between == text.split():
            parts.update(between)
        else:  # other white space
            add(text, 1)
    for part, count in parts.items():
        add(part, count)
    return words


def _wordpiece(config: TokenizerConfig, texts: Iterable[str], symbols: list[str]) -> Tokenizer:
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
    # pairs in the order of those numbers. A first run without merges finds the characters; the second gets them sorted.
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
    """Return a tokenizer whose joined tokens are the text: it prepends a space, and decoding removes it."""
    backend = Tokenizer(model)
    backend.normalizer = normalizers.Sequence([*_lowercase(config), normalizers.Prepend(" ")])
    pieces = pre_tokenizers.Split(Regex(_PIECES), "isolated")
    backend.pre_tokenizer = (
        pre_tokenizers.Sequence([pieces, pre_tokenizers.Digits(individual_digits=True)])
        if config.split_digits
        else pieces
    )
    backend.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return backend


def _lowercase(config: TokenizerConfig) -> list[normalizers.Normalizer]:
    return [normalizers.Lowercase()] if config.lowercase else []


def _alphabet(backend: Tokenizer, texts: Iterable[str]) -> set[str]:
    """Return the characters of the normalized texts; normalization acts on each character separately."""
    characters = set(chain.from_iterable(texts))
    return set().union(*map(backend.normalizer.normalize_str, characters))


def _size(config: TokenizerConfig, least: int, what: str = "the characters of the texts") -> int:
    if config.vocab_size is None:
        return sys.maxsize
    if config.vocab_size < least:
        raise UserError(
            f"vocab_size {config.vocab_size} is too small for the special tokens and {what}; write at least {least}."
        )
    return config.vocab_size

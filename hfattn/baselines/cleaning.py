"""Split a text into the words that features are computed from."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from html.parser import HTMLParser

import regex
from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..extras import optional
from ..models.strict_config import unknown_message

STOP_WORDS = ("none", "sklearn", "stop-words")
WORD_FORMS = ("written", "stem", "lemma")

_LETTER = r"[\p{L}\p{M}\p{N}]"
_APOSTROPHE = regex.compile(rf"(?<={_LETTER})['’](?={_LETTER})")
_WORD = regex.compile(rf"{_LETTER}+")
# Tags that may occur within a word; any other tag ends the word.
_INLINE = {
    "a", "abbr", "b", "big", "code", "em", "font", "i", "mark", "s", "small", "span", "strong", "sub", "sup", "tt", "u",
}  # fmt: skip
_HIDDEN = frozenset(("script", "style"))
# Names of the stemmer's languages by code; the other two packages use codes.
_STEMMERS = {
    "ar": "arabic", "ca": "catalan", "da": "danish", "de": "german", "el": "greek", "en": "english", "es": "spanish",
    "eu": "basque", "fi": "finnish", "fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian",
    "hy": "armenian", "id": "indonesian", "it": "italian", "lt": "lithuanian", "ne": "nepali", "nl": "dutch",
    "no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "sv": "swedish", "ta": "tamil", "tr": "turkish",
}  # fmt: skip


@strict
@dataclass
class CleaningConfig:
    """The section ``cleaning`` of the recipe.

    Attributes:
        html: remove tags, comments and scripts, and decode entities such as ``&amp;``.
        nfkc: apply Unicode's NFKC normalization: "ﬁ" becomes "fi", "２" becomes "2".
        lowercase: lowercase the text.
        language: code of the language of the stop words and word forms, such as en or es.
        stop_words: words to leave out: "none"; "sklearn", the 318 English ones of scikit-learn; "stop-words", the list
            of the package stop-words for the language (a long list: the English one contains "good" and "not").
        kept_words: stop words to keep.
        word_form: the word as "written", its "stem" (Snowball, Porter 2001), or its "lemma" (simplemma's dictionaries).
    """

    html: bool = True
    nfkc: bool = True
    lowercase: bool = True
    language: str = "en"
    stop_words: str = "none"
    kept_words: list[str] = field(default_factory=list)
    word_form: str = "written"

    def validate_names(self) -> None:
        for name, value, known in (
            ("stop_words", self.stop_words, STOP_WORDS),
            ("word_form", self.word_form, WORD_FORMS),
        ):
            if value not in known:
                raise ValueError(f"{name}: {unknown_message(value, known, 'one of the choices')}")
        if self.stop_words == "none" and self.kept_words:
            raise ValueError("kept_words needs stop words, and stop_words is none; remove kept_words.")
        if self.stop_words == "sklearn" and self.language != "en":
            raise ValueError(f"stop_words sklearn is English, and language is {self.language}; write stop-words.")


class Cleaner:
    """Splits texts into words: HTML, NFKC, lowercase, words, stop words, word forms, in this order.

    A word is a run of letters, marks and digits; apostrophes within it are dropped ("don't" becomes "dont"), as by a
    word tokenizer with ``strip_punctuation``. Stop words are compared as written, before stemming or lemmatization.

    Raises:
        UserError: the language has no stop words, stems or lemmas, or a package is missing.
    """

    def __init__(self, config: CleaningConfig) -> None:
        self.config = config
        kept = {word for text in config.kept_words for word in self._split(text)}
        self.stop_words = {word for text in _stop_words(config) for word in self._split(text)} - kept
        self._form = lru_cache(maxsize=None)(_word_form(config))

    def __call__(self, text: str) -> list[str]:
        """Return the words of a text."""
        return [self._form(word) for word in self._split(text) if word not in self.stop_words]

    def _split(self, text: str) -> list[str]:
        if self.config.html:
            text = without_html(text)
        if self.config.nfkc:
            text = unicodedata.normalize("NFKC", text)
        if self.config.lowercase:
            text = text.lower()
        return _WORD.findall(_APOSTROPHE.sub("", text))


def without_html(text: str) -> str:
    """Return the text that a browser shows for HTML; other text, such as "a < b", is unchanged."""
    if "<" not in text and "&" not in text:
        return text
    parser = _Shown()
    parser.feed(text)
    parser.close()
    return "".join(parser.shown)


class _Shown(HTMLParser):
    """Collects the visible text, with a space for each tag that ends a word."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.shown.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag in _HIDDEN
        if tag not in _INLINE:
            self.shown.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False
        if tag not in _INLINE:
            self.shown.append(" ")


def _stop_words(config: CleaningConfig) -> list[str]:
    if config.stop_words == "none":
        return []
    if config.stop_words == "sklearn":
        return sorted(optional("baselines", "sklearn.feature_extraction.text").ENGLISH_STOP_WORDS)
    package = optional("baselines", "stop_words")
    known = package.LANGUAGE_MAPPING
    if config.language not in known:
        raise _no_language(config.language, known, "stop words")
    return package.get_stop_words(config.language)


def _word_form(config: CleaningConfig) -> Callable[[str], str]:
    if config.word_form == "stem":
        if config.language not in _STEMMERS:
            raise _no_language(config.language, _STEMMERS, "stems")
        return optional("baselines", "snowballstemmer").stemmer(_STEMMERS[config.language]).stemWord
    if config.word_form == "lemma":
        lemmatize = optional("baselines", "simplemma").lemmatize
        try:
            lemmatize("a", lang=config.language)
        except ValueError:
            raise UserError(
                f"There are no lemmas for the language {config.language!r}; write another code, or word_form: written."
            ) from None
        # A lemma may be capitalized, as German nouns are.
        lower = str.lower if config.lowercase else str
        return lambda word: lower(lemmatize(word, lang=config.language))
    return str


def _no_language(language: str, known: dict[str, str], what: str) -> UserError:
    return UserError(
        f"There are no {what} for the language {language!r}; cleaning.language can be {', '.join(sorted(known))}."
    )

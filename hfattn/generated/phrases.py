"""Simple English sentences and their Spanish translations, from a grammar: "the red house" → "la casa roja".

A translation task that trains in a minute on a CPU and in which words change their order and their forms: an adjective
follows its noun and agrees with it in gender and number, "is" is "es" or "está", "the girl's dog" is "el perro de la
niña", a subject pronoun is left to the verb, a person as direct object takes "a", and a question starts with its verb.
All sentences are in lowercase.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..data.pairs import Pair, Pairs
from .engine import Item, Uniform, draw_distinct, hash_byte, load_words, part_of, pick

_WORDS = load_words("phrases")
_LIMITS = {"train": 200_000, "validation": 20_000, "test": 20_000, "unseen_pairs": 20_000}
_PRONOUNS = ("i", "you", "she", "we", "they")  # in the order of the verb forms of a tense
_THIRD, _THIRD_PLURAL = 2, 4
_FUTURE = 2  # after the present and the past


# Words


class Noun(NamedTuple):
    """A noun: its singular and plural in both languages."""

    english: tuple[str, str]
    spanish: tuple[str, str]
    feminine: bool
    kind: str  # "person", "animal", "thing" or "place"


class Adjective(NamedTuple):
    """An adjective and the kinds of nouns that it describes."""

    english: str
    spanish: str
    kinds: tuple[str, ...]
    passing: bool = False  # a passing state, said with "estar" instead of "ser"


class Verb(NamedTuple):
    """A verb: English base, third person and past; Spanish present, past and future, each for ``_PRONOUNS``."""

    english: Sequence[str]
    spanish: Sequence[Sequence[str]]
    objects: Sequence[str]  # kinds of nouns that it takes; empty for an intransitive verb


def _english_plural(word: str) -> str:
    irregular = {"man": "men", "woman": "women", "knife": "knives", "wolf": "wolves"}
    if word in irregular:
        return irregular[word]
    if word.endswith("y") and word[-2] not in "aeiou":
        return f"{word[:-1]}ies"
    return f"{word}es" if word.endswith(("s", "x", "ch", "sh")) else f"{word}s"


def _spanish_plural(word: str) -> str:
    if word[-1] in "aeiouáé":
        return f"{word}s"
    if word.endswith("z"):
        return f"{word[:-1]}ces"
    # The longer word keeps its stress and needs no accent: jardín, jardines.
    return f"{word[:-2]}{word[-2:].translate(str.maketrans('áéíóú', 'aeiou'))}es"


NOUNS = [
    Noun((english, _english_plural(english)), (spanish, _spanish_plural(spanish)), gender == "feminine", kind)
    for kind, genders in _WORDS["nouns"].items()
    for gender, nouns in genders.items()
    for english, spanish in nouns.items()
]
_ALL, _ANIMATE = ("person", "animal", "thing", "place"), ("person", "animal")
ADJECTIVES = [
    Adjective(english, spanish, tuple(group["kinds"]), group.get("passing", False))
    for group in _WORDS["adjectives"]
    for english, spanish in group["words"].items()
]

_ENDINGS = {
    "ar": ("o as a amos an", "é aste ó amos aron"),
    "er": ("o es e emos en", "í iste ió imos ieron"),
    "ir": ("o es e imos en", "í iste ió imos ieron"),
}
_FUTURE_ENDINGS = "é ás á emos án"


def _conjugate(infinitive: str, first_past: str | None) -> list[list[str]]:
    """Conjugate a Spanish verb that is regular except for the spelling of ``first_past``."""
    stem, (present, past) = infinitive[:-2], _ENDINGS[infinitive[-2:]]
    pasts = [stem + ending for ending in past.split()]
    return [
        [stem + ending for ending in present.split()],
        [first_past or pasts[0], *pasts[1:]],
        [infinitive + ending for ending in _FUTURE_ENDINGS.split()],
    ]


VERBS = [
    Verb(
        verb["english"],
        verb["spanish"] if "spanish" in verb else _conjugate(verb["infinitive"], verb.get("first_past")),
        verb.get("objects", []),
    )
    for verb in _WORDS["verbs"]
]
_TRANSITIVE = [verb for verb in VERBS if verb.objects]
_INTRANSITIVE = [verb for verb in VERBS if not verb.objects]
_DETERMINERS, _NUMBERS, _BE = (_WORDS[key] for key in ("determiners", "numbers", "be"))
_DEFINITE = [_DETERMINERS[0], *_DETERMINERS[4:]]
# Drawn from with equal probability: the present twice as often as past and future, two adjectives seldom.
_TENSES = (0, 0, 1, 2)
_NUM_ADJECTIVES = (0, 0, 0, 1, 1, 1, 1, 2)


# Phrases


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase in both languages, with what a verb or adjective needs to agree with it."""

    english: str
    spanish: str
    person: int  # index into ``_PRONOUNS``
    feminine: bool
    kind: str
    nouns: tuple[str, ...] = ()  # the singular of its noun, if it has one

    @property
    def plural(self) -> bool:
        return self.person == _THIRD_PLURAL


def _agree(word: str, feminine: bool, plural: bool) -> str:
    """Return an adjective in the gender and number of its noun."""
    form = f"{word[:-1]}a" if feminine and word.endswith("o") else word
    if not plural:
        return form
    return "jóvenes" if form == "joven" else _spanish_plural(form)


def _of_gender(forms: Sequence[str], feminine: bool) -> str:
    """Return the masculine or the feminine one of two forms, or the only form."""
    return forms[-1 if feminine else 0]


def _with_article(determiner: str, words: str) -> str:
    return f"an {words}" if determiner == "a" and words[0] in "aeiou" else f"{determiner} {words}"


def _after(preposition: str, spanish: str) -> str:
    """Put "a" or "de" before a phrase, contracting "a el" to "al" and "de el" to "del"."""
    return f"{preposition}l{spanish[2:]}" if spanish.startswith("el ") else f"{preposition} {spanish}"


def _words(*words: str) -> str:
    return " ".join(filter(None, words))


class _Writer:
    """Draws sentences; ``pairs`` collects each adjective with the noun that it describes."""

    def __init__(self, uniform: Uniform) -> None:
        self.uniform = uniform
        self.pairs: set[tuple[str, str]] = set()

    def draw(self, items: Sequence[Item]) -> Item:
        return pick(self.uniform, items)

    def adjective(self, kind: str, nouns: Sequence[str], passing: bool = False) -> Adjective:
        """Draw an adjective for a kind of noun; ``passing`` states are predicates only."""
        drawn = self.draw([each for each in ADJECTIVES if kind in each.kinds and (passing or not each.passing)])
        self.pairs.update((drawn.english, noun) for noun in nouns)
        return drawn

    def noun_phrase(self, kinds: Sequence[str], *, definite: bool = False, plural: bool | None = None) -> _Phrase:
        """Draw a determiner, possessor or number, up to two adjectives, and a noun."""
        noun = self.draw([noun for noun in NOUNS if noun.kind in kinds])
        plural = self.uniform() < 0.4 if plural is None else plural
        drawn = [self.adjective(noun.kind, noun.english[:1]) for _ in range(self.draw(_NUM_ADJECTIVES))]
        adjectives = list(dict.fromkeys(drawn))
        said = _words(*(each.english for each in adjectives), noun.english[plural])
        # In both languages the same adjective is next to the noun, so the order is reversed after it.
        agreeing = [_agree(each.spanish, noun.feminine, plural) for each in reversed(adjectives)]
        spanish = _words(noun.spanish[plural], *agreeing)
        if not definite and noun.kind in ("animal", "thing") and self.uniform() < 0.15:
            owner = self.noun_phrase(("person",), definite=True, plural=False)
            english = f"{owner.english}'s {said}"
            article = _of_gender(_DEFINITE[0][plural][1], noun.feminine)
            spanish = f"{article} {spanish} {_after('de', owner.spanish)}"
        else:
            numbered = plural and not definite and self.uniform() < 0.4
            determiners = _DEFINITE if definite else _DETERMINERS
            first, forms = self.draw(_NUMBERS) if numbered else self.draw(determiners)[plural]
            english, spanish = _with_article(first, said), f"{_of_gender(forms, noun.feminine)} {spanish}"
        person = _THIRD_PLURAL if plural else _THIRD
        return _Phrase(english, spanish, person, noun.feminine, noun.kind, noun.english[:1])

    def agent(self) -> _Phrase:
        """Draw a person or an animal, two of them, or a pronoun, which Spanish mostly omits."""
        chance = self.uniform()
        if chance < 0.3:
            person = int(self.uniform() * len(_PRONOUNS))
            spanish = {_THIRD: "ella", _THIRD_PLURAL: "ellos"}.get(person, "")
            return _Phrase(_PRONOUNS[person], spanish, person, person == _THIRD, "person")
        first = self.noun_phrase(_ANIMATE)
        if chance < 0.9:
            return first
        second = self.noun_phrase((first.kind,))
        english, spanish = f"{first.english} and {second.english}", f"{first.spanish} y {second.spanish}"
        return _Phrase(english, spanish, _THIRD_PLURAL, first.feminine and second.feminine, first.kind)

    def object_of(self, verb: Verb) -> tuple[str, str]:
        phrase = self.noun_phrase(verb.objects)
        return phrase.english, _after("a", phrase.spanish) if phrase.kind == "person" else phrase.spanish

    def place(self) -> tuple[str, str]:
        phrase = self.noun_phrase(("place",), definite=True, plural=False)
        return f"in {phrase.english}", f"en {phrase.spanish}"

    def predicate(self, verb: Verb, person: int) -> tuple[str, str]:
        tense, negated = self.draw(_TENSES), self.uniform() < 0.2
        base, third, past = verb.english
        if tense == _FUTURE:
            said = f"will not {base}" if negated else f"will {base}"
        elif negated:
            said = f"{_do(tense, person)} not {base}"
        else:
            said = past if tense else third if person == _THIRD else base
        return said, _words("no" if negated else "", verb.spanish[tense][person])

    # Forms of sentences: each returns the English and the Spanish one.

    def description(self) -> tuple[str, str]:
        subject = self.noun_phrase(_ALL)
        adjective = self.adjective(subject.kind, subject.nouns, passing=True)
        tense, negated = self.draw(_TENSES), self.uniform() < 0.2
        first, *rest = _BE["english"][tense][subject.plural].split()
        be = _BE["estar" if adjective.passing else "ser"][tense][subject.plural]
        quality = _agree(adjective.spanish, subject.feminine, subject.plural)
        return (
            _words(subject.english, first, "not" if negated else "", *rest, adjective.english),
            _words(subject.spanish, "no" if negated else "", be, quality),
        )

    def question_of_quality(self) -> tuple[str, str]:
        subject, tense = self.noun_phrase(_ALL), self.draw(_TENSES)
        adjective = self.adjective(subject.kind, subject.nouns, passing=True)
        first, *rest = _BE["english"][tense][subject.plural].split()
        be = _BE["estar" if adjective.passing else "ser"][tense][subject.plural]
        quality = _agree(adjective.spanish, subject.feminine, subject.plural)
        return (
            _words(first, subject.english, *rest, f"{adjective.english}?"),
            f"¿{be} {quality} {subject.spanish}?",
        )

    def action(self) -> tuple[str, str]:
        subject, verb = self.agent(), self.draw(_TRANSITIVE)
        (said, form), (what, spanish) = self.predicate(verb, subject.person), self.object_of(verb)
        return _words(subject.english, said, what), _words(subject.spanish, form, spanish)

    def action_in_a_place(self) -> tuple[str, str]:
        subject, verb = self.agent(), self.draw(_INTRANSITIVE)
        (said, form), (where, spanish) = self.predicate(verb, subject.person), self.place()
        return _words(subject.english, said, where), _words(subject.spanish, form, spanish)

    def question_of_action(self) -> tuple[str, str]:
        subject, verb, tense = self.agent(), self.draw(_TRANSITIVE), self.draw(_TENSES)
        what, spanish = self.object_of(verb)
        return (
            f"{_do(tense, subject.person)} {subject.english} {verb.english[0]} {what}?",
            f"¿{_words(verb.spanish[tense][subject.person], subject.spanish, spanish)}?",
        )

    def question_of_what(self) -> tuple[str, str]:
        subject, tense = self.agent(), self.draw(_TENSES)
        verb = self.draw([verb for verb in _TRANSITIVE if "thing" in verb.objects])
        return (
            f"what {_do(tense, subject.person)} {subject.english} {verb.english[0]}?",
            f"¿{_words('qué', verb.spanish[tense][subject.person], subject.spanish)}?",
        )

    def question_of_who(self) -> tuple[str, str]:
        verb, tense = self.draw(_TRANSITIVE), self.draw(_TENSES)
        what, spanish = self.object_of(verb)
        base, third, past = verb.english
        said = (third, past, f"will {base}")[tense]
        return f"who {said} {what}?", f"¿quién {verb.spanish[tense][_THIRD]} {spanish}?"

    def question_of_where(self) -> tuple[str, str]:
        subject, tense = self.noun_phrase(_ALL, definite=True), self.draw((0, 0, 1))
        be, spanish = (_BE[language][tense][subject.plural] for language in ("english", "estar"))
        return f"where {be} {subject.english}?", f"¿dónde {spanish} {subject.spanish}?"

    def existence(self) -> tuple[str, str]:
        noun = self.draw([noun for noun in NOUNS if noun.kind != "place"])
        adjective, plural, tense = (
            self.adjective(noun.kind, noun.english[:1]),
            self.uniform() < 0.7,
            self.draw((0, 0, 1)),
        )
        first, forms = self.draw(_NUMBERS) if plural else ("a", ("un", "una"))
        said = _with_article(first, f"{adjective.english} {noun.english[plural]}")
        quality = _agree(adjective.spanish, noun.feminine, plural)
        spanish = f"{_of_gender(forms, noun.feminine)} {noun.spanish[plural]} {quality}"
        where, in_spanish = self.place()
        return (
            f"there {_BE['english'][tense][plural]} {said} {where}",
            f"{('hay', 'había')[tense]} {spanish} {in_spanish}",
        )


def _do(tense: int, person: int) -> str:
    return ("does" if person == _THIRD else "do", "did", "will")[tense]


_FORMS: dict[str, Callable[[_Writer], tuple[str, str]]] = {
    "description": _Writer.description,
    "question of quality": _Writer.question_of_quality,
    "action": _Writer.action,
    "action in a place": _Writer.action_in_a_place,
    "question of action": _Writer.question_of_action,
    "question of what": _Writer.question_of_what,
    "question of who": _Writer.question_of_who,
    "question of where": _Writer.question_of_where,
    "existence": _Writer.existence,
}


def is_unseen(adjective: str, noun: str) -> bool:
    """Return whether a pair is held out of training: one in sixteen is."""
    return hash_byte(f"{adjective} {noun}") % 16 == 0


def phrase_pairs(part: str, number: int, seed: int) -> Pairs:
    """Draw sentences and their translations, each sentence at most once.

    The kind of a pair is the form of its sentence. The parts share no sentence, whatever the seeds. Each sentence of
    "unseen_pairs" contains an adjective with a noun that it describes in no sentence of the other parts.

    Args:
        part: "train", "validation", "test" or "unseen_pairs".
        number: number of pairs.
        seed: seed of the draws; the same seed gives the same pairs on every machine.

    Raises:
        UserError: there is no such part, or it would take too long to find that many sentences.
    """
    forms = list(_FORMS.items())

    def draw(uniform: Uniform, index: int) -> tuple[str, Pair] | None:
        writer = _Writer(uniform)
        kind, form = writer.draw(forms)
        english, spanish = form(writer)
        stop = "." if uniform() < 0.5 and not english.endswith("?") else ""
        unseen = any(is_unseen(*pair) for pair in writer.pairs)
        if part != ("unseen_pairs" if unseen else part_of(english)):
            return None
        return english + stop, Pair(english + stop, spanish + stop, kind)

    return Pairs("phrases", draw_distinct("phrases", part, number, seed, _LIMITS, draw))

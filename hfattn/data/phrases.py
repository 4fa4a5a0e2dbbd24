"""Simple English sentences and their Spanish translations, from a grammar: "the red house" → "la casa roja".

A translation task for a minute on a CPU in which words change their places and their forms: adjectives follow their
noun and agree with it in gender and number, "is" is "es" or "está", "the girl's dog" is "el perro de la niña", pronouns
vanish into the verb, objects that are persons take an "a", and a question begins with its verb. All letters are small.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple, TypeVar

from ..errors import UserError
from .pairs import Pair, Pairs

PHRASES = "phrases"
PHRASES_PARTS = ("train", "validation", "test", "unseen_pairs")
_MOST = {"train": 200_000, "validation": 20_000, "test": 20_000, "unseen_pairs": 20_000}
_PART_OF = (*["train"] * 8, "validation", "test")
_PRONOUNS = ("i", "you", "she", "we", "they")  # whose place in this list is that of their form of a verb
_THIRD, _THIRD_PLURAL = 2, 4
_FUTURE = 2  # after the present and the past

Item = TypeVar("Item")


# Words


class Noun(NamedTuple):
    """A noun and its plural in both languages."""

    english: tuple[str, str]
    spanish: tuple[str, str]
    feminine: bool
    kind: str  # "person", "animal", "thing" or "place"


class Adjective(NamedTuple):
    """An adjective, and what it is said of with "ser", or else with "estar"."""

    english: str
    spanish: str
    kinds: tuple[str, ...]
    passing: bool = False  # said with "estar", and of what it is for the moment


class Verb(NamedTuple):
    """A verb: English base, third person and past; Spanish forms of the present, past and future for ``_PRONOUNS``."""

    english: tuple[str, str, str]
    spanish: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]
    objects: tuple[str, ...]  # kinds of nouns that it takes; none of an intransitive verb


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
    # The stress stays where it was, which a longer word does not have to write: jardín, jardines.
    return f"{word[:-2]}{word[-2:].translate(str.maketrans('áéíóú', 'aeiou'))}es"


def _nouns(kind: str, masculine: str, feminine: str) -> list[Noun]:
    found = []
    for words, is_feminine in ((masculine, False), (feminine, True)):
        for pair in words.split():
            english, spanish = pair.split(":")
            forms = (english, _english_plural(english)), (spanish, _spanish_plural(spanish))
            found.append(Noun(*forms, is_feminine, kind))
    return found


NOUNS = [
    *_nouns(
        "person",
        "boy:niño man:hombre teacher:maestro doctor:médico brother:hermano friend:amigo neighbor:vecino king:rey",
        "girl:niña woman:mujer sister:hermana mother:madre queen:reina nurse:enfermera aunt:tía",
    ),
    *_nouns(
        "animal",
        "dog:perro cat:gato horse:caballo bird:pájaro wolf:lobo bear:oso",
        "cow:vaca hen:gallina bee:abeja",
    ),
    *_nouns(
        "thing",
        "book:libro car:coche tree:árbol hat:sombrero pencil:lápiz boat:barco clock:reloj shoe:zapato gift:regalo "
        "knife:cuchillo",
        "table:mesa chair:silla door:puerta letter:carta apple:manzana key:llave shirt:camisa flower:flor box:caja "
        "window:ventana lamp:lámpara",
    ),
    *_nouns(
        "place",
        "garden:jardín market:mercado park:parque hotel:hotel museum:museo",
        "house:casa school:escuela city:ciudad street:calle kitchen:cocina church:iglesia station:estación",
    ),
]

_ALL, _LIVING, _DEAD = ("person", "animal", "thing", "place"), ("person", "animal"), ("thing", "place")


def _adjectives(words: str, kinds: tuple[str, ...], passing: bool = False) -> list[Adjective]:
    pairs = (pair.split(":") for pair in words.split())
    return [Adjective(english, spanish, kinds, passing) for english, spanish in pairs]


ADJECTIVES = [
    *_adjectives("small:pequeño big:grande old:viejo beautiful:hermoso strange:extraño famous:famoso", _ALL),
    *_adjectives("white:blanco black:negro", ("animal", "thing", "place")),
    *_adjectives(
        "red:rojo yellow:amarillo green:verde blue:azul new:nuevo cheap:barato expensive:caro modern:moderno", _DEAD
    ),
    *_adjectives(
        "young:joven strong:fuerte intelligent:inteligente fast:rápido brave:valiente quiet:tranquilo", _LIVING
    ),
    *_adjectives("tall:alto rich:rico poor:pobre kind:amable", ("person",)),
    *_adjectives("clean:limpio dirty:sucio closed:cerrado open:abierto", _DEAD, passing=True),
    *_adjectives("tired:cansado sick:enfermo happy:contento alone:solo", _LIVING, passing=True),
]

_ENDINGS = {
    "ar": ("o as a amos an", "é aste ó amos aron"),
    "er": ("o es e emos en", "í iste ió imos ieron"),
    "ir": ("o es e imos en", "í iste ió imos ieron"),
}
_FUTURE_ENDINGS = "é ás á emos án"


def _verb(english: str, spanish: str, objects: tuple[str, ...] = (), first_past: str | None = None) -> Verb:
    """A verb that is regular in Spanish, but for the spelling of the past of "i" where that is given."""
    base, third, past = (form.replace("_", " ") for form in english.split())
    stem, (present, preterite) = spanish[:-2], _ENDINGS[spanish[-2:]]
    pasts = [stem + ending for ending in preterite.split()]
    return Verb(
        (base, third, past),
        (
            tuple(stem + ending for ending in present.split()),
            (first_past or pasts[0], *pasts[1:]),
            tuple(spanish + ending for ending in _FUTURE_ENDINGS.split()),
        ),
        objects,
    )


VERBS = [
    Verb(
        ("see", "sees", "saw"),
        (
            ("veo", "ves", "ve", "vemos", "ven"),
            ("vi", "viste", "vio", "vimos", "vieron"),
            ("veré", "verás", "verá", "veremos", "verán"),
        ),
        _ALL,
    ),
    Verb(
        ("have", "has", "had"),
        (
            ("tengo", "tienes", "tiene", "tenemos", "tienen"),
            ("tuve", "tuviste", "tuvo", "tuvimos", "tuvieron"),
            ("tendré", "tendrás", "tendrá", "tendremos", "tendrán"),
        ),
        ("animal", "thing"),
    ),
    _verb("buy buys bought", "comprar", ("animal", "thing")),
    _verb("sell sells sold", "vender", ("animal", "thing")),
    _verb("paint paints painted", "pintar", _DEAD),
    _verb("clean cleans cleaned", "limpiar", _DEAD),
    _verb("hide hides hid", "esconder", ("thing",)),
    _verb("look_for looks_for looked_for", "buscar", _ALL, "busqué"),
    _verb("wait_for waits_for waited_for", "esperar", ("person",)),
    _verb("help helps helped", "ayudar", ("person",)),
    _verb("visit visits visited", "visitar", ("person", "place")),
    _verb("work works worked", "trabajar"),
    _verb("live lives lived", "vivir"),
    _verb("sing sings sang", "cantar"),
    _verb("run runs ran", "correr"),
    _verb("eat eats ate", "comer"),
]
_TRANSITIVE = [verb for verb in VERBS if verb.objects]
_INTRANSITIVE = [verb for verb in VERBS if not verb.objects]

# English, Spanish, by number: the singular's, the plural's; Spanish by gender too where it has two.
_DETERMINERS: tuple[tuple[tuple[str, str], ...], ...] = (
    (("the", "el la"), ("the", "los las")),
    (("a", "un una"), ("some", "unos unas")),
    (("this", "este esta"), ("these", "estos estas")),
    (("that", "ese esa"), ("those", "esos esas")),
    (("my", "mi"), ("my", "mis")),
    (("your", "tu"), ("your", "tus")),
    (("our", "nuestro nuestra"), ("our", "nuestros nuestras")),
)
_DEFINITE = (_DETERMINERS[0], *_DETERMINERS[4:])
_NUMBERS = (
    ("two", "dos"), ("three", "tres"), ("four", "cuatro"), ("five", "cinco"), ("six", "seis"), ("seven", "siete"),
    ("eight", "ocho"), ("nine", "nueve"), ("ten", "diez"), ("many", "muchos muchas"),
)  # fmt: skip
_BE = {  # present, past, future: of English by number, of "ser" and "estar" too
    "english": (("is", "are"), ("was", "were"), ("will be", "will be")),
    "ser": (("es", "son"), ("era", "eran"), ("será", "serán")),
    "estar": (("está", "están"), ("estaba", "estaban"), ("estará", "estarán")),
}
# What is drawn from: the present comes twice as often as past and future, two adjectives seldom.
_TENSES = (0, 0, 1, 2)
_NUM_ADJECTIVES = (0, 0, 0, 1, 1, 1, 1, 2)


# Phrases


@dataclass(frozen=True)
class _Phrase:
    """A noun phrase in both languages, and what agrees with it."""

    english: str
    spanish: str
    person: int  # place in ``_PRONOUNS``
    feminine: bool
    kind: str
    nouns: tuple[str, ...] = ()  # which it is about

    @property
    def plural(self) -> bool:
        return self.person == _THIRD_PLURAL


def _agree(word: str, feminine: bool, plural: bool) -> str:
    """An adjective in the gender and number of its noun."""
    form = f"{word[:-1]}a" if feminine and word.endswith("o") else word
    if not plural:
        return form
    return "jóvenes" if form == "joven" else _spanish_plural(form)


def _of_gender(forms: str, feminine: bool) -> str:
    """The one of "un una" that fits, or the only one there is."""
    return forms.split()[-1 if feminine else 0]


def _with_article(determiner: str, words: str) -> str:
    return f"an {words}" if determiner == "a" and words[0] in "aeiou" else f"{determiner} {words}"


def _after(preposition: str, spanish: str) -> str:
    """A phrase after "a" or "de": "a el" is "al" and "de el" is "del"."""
    return f"{preposition}l{spanish[2:]}" if spanish.startswith("el ") else f"{preposition} {spanish}"


def _words(*words: str) -> str:
    return " ".join(filter(None, words))


class _Writer:
    """Draws sentences. ``pairs`` collects which adjectives were said of which nouns."""

    def __init__(self, uniform: Callable[[], float]) -> None:
        self.uniform = uniform
        self.pairs: set[tuple[str, str]] = set()

    def draw(self, items: Sequence[Item]) -> Item:
        return items[int(self.uniform() * len(items))]

    def adjective(self, kind: str, nouns: Sequence[str], passing: bool = False) -> Adjective:
        """One that can be said of a kind; one of a passing state only as a predicate."""
        drawn = self.draw([each for each in ADJECTIVES if kind in each.kinds and (passing or not each.passing)])
        self.pairs.update((drawn.english, noun) for noun in nouns)
        return drawn

    def noun_phrase(self, kinds: Sequence[str], *, definite: bool = False, plural: bool | None = None) -> _Phrase:
        """A determiner or a number, up to two adjectives and a noun; or what belongs to a person."""
        noun = self.draw([noun for noun in NOUNS if noun.kind in kinds])
        plural = self.uniform() < 0.4 if plural is None else plural
        drawn = [self.adjective(noun.kind, noun.english[:1]) for _ in range(self.draw(_NUM_ADJECTIVES))]
        adjectives = list(dict.fromkeys(drawn))
        said = _words(*(each.english for each in adjectives), noun.english[plural])
        # The adjective next to the noun is so in both languages: behind it they stand in turned order.
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
        """A person or an animal, two of them, or a pronoun; Spanish leaves most of these to the verb."""
        chance = self.uniform()
        if chance < 0.3:
            person = int(self.uniform() * len(_PRONOUNS))
            spanish = {_THIRD: "ella", _THIRD_PLURAL: "ellos"}.get(person, "")
            return _Phrase(_PRONOUNS[person], spanish, person, person == _THIRD, "person")
        first = self.noun_phrase(_LIVING)
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

    # Forms of sentences: the English one, the Spanish one.

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
        first, forms = self.draw(_NUMBERS) if plural else ("a", "un una")
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


def _number(text: str) -> int:
    return hashlib.sha256(text.encode()).digest()[0]


def is_unseen(adjective: str, noun: str) -> bool:
    """Whether training has this adjective with this noun nowhere: so it is of one pair in sixteen."""
    return _number(f"{adjective} {noun}") % 16 == 0


def phrase_pairs(part: str, number: int, seed: int) -> Pairs:
    """Draw sentences and their translations, each sentence at most once; the kind of a pair is that of its sentence.

    No sentence is in two of the parts, whatever the seeds. In "unseen_pairs" each sentence says an adjective of a noun
    of which no sentence of the other parts says it.

    Args:
        part: one of ``PHRASES_PARTS``.
        number: of pairs.
        seed: of the draw: the same seed, the same pairs, on every machine.

    Raises:
        UserError: that many are not drawn.
    """
    if number > _MOST[part]:
        raise UserError(f"{number} phrases of the part {part} are too many; write at most {_MOST[part]}.")
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{PHRASES} {part} {seed}").random
    forms = list(_FORMS.items())
    drawn: dict[str, Pair] = {}
    while len(drawn) < number:
        writer = _Writer(uniform)
        kind, form = writer.draw(forms)
        english, spanish = form(writer)
        stop = "." if uniform() < 0.5 and not english.endswith("?") else ""
        unseen = any(is_unseen(*pair) for pair in writer.pairs)
        if part == ("unseen_pairs" if unseen else _PART_OF[_number(english) % len(_PART_OF)]):
            drawn.setdefault(english + stop, Pair(english + stop, spanish + stop, kind))
    return Pairs(PHRASES, list(drawn.values()))

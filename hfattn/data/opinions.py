"""Opinions of films in English and in Spanish, from templates: labelled texts in which "not" turns a word round.

A classification task for a minute on a CPU that a bag of words does not solve: an opinion is good or bad by its main
clause ("although the plot is dull, i loved the film"), and a clause by its word of praise or blame and by whether it is
denied ("the plot is not dull at all"). Names, nationalities and who is spoken of are drawn without regard to it; some
names are made up, so that a model learns what to make of a word that it does not know.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from ..errors import UserError
from .labelled import Labelled, LabelledTexts

OPINIONS = "opinions"
OPINIONS_PARTS = ("train", "validation", "test")
LABELS = ("negative", "positive")
_PART_OF = (*["train"] * 8, "validation", "test")
_MOST = {"train": 100_000, "validation": 10_000, "test": 10_000}


@dataclass(frozen=True)
class Wording:
    """What opinions in a language are made of.

    ``{thing}`` and ``{good}`` of a clause are filled with a noun and a word of praise or blame, of the same gender; and
    ``{very}`` with a word that makes it stronger or weaker, or with nothing.
    """

    things: tuple[tuple[str, ...], tuple[str, ...]]  # masculine, feminine; the same of a language without
    words: tuple[tuple[str, ...], tuple[str, ...]]  # of blame, of praise; "(o/a)" is the gender
    very: tuple[str, ...]
    said: tuple[str, ...]  # clauses that say the word
    denied: tuple[str, ...]  # clauses that deny it
    verbs: tuple[tuple[str, ...], tuple[str, ...]]  # clauses of dislike and of liking, of a thing
    denied_verbs: tuple[tuple[str, ...], tuple[str, ...]]  # the same, denied: of not disliking, of not liking
    and_: tuple[str, ...]  # "{one}" and "{other}" say the same
    but: tuple[str, ...]  # "{main}" decides against "{aside}"
    frames: tuple[str, ...]  # around any opinion
    people: tuple[str, ...]
    by: str  # before the name of who made a thing


WORDINGS = {
    "en": Wording(
        things=(
            (
                "the film", "the movie", "the plot", "the ending", "the music", "the acting", "the story", "the script",
                "the french film", "the iranian film", "the italian movie", "the american movie", "the lead actor",
                "the lead actress", "his performance", "her performance",
            ),
            (),
        ),
        words=(
            (
                "bad", "terrible", "boring", "dull", "awful", "poor", "predictable", "clumsy", "weak", "disappointing",
                "ugly", "tedious",
            ),
            (
                "good", "great", "wonderful", "moving", "brilliant", "funny", "charming", "excellent", "beautiful",
                "clever", "gripping", "superb",
            ),
        ),
        very=("", "", "very ", "really ", "so ", "rather ", "quite ", "incredibly ", "a little "),
        said=("{thing} is {very}{good}", "{thing} was {very}{good}", "i found {thing} {very}{good}"),
        denied=(
            "{thing} is not {good}", "{thing} is not {good} at all", "{thing} was not {very}{good}",
            "{thing} was not {good} at all", "{thing} was never {good}", "{thing} is never {good}",
            "{thing} isn't {good}", "{thing} isn't {good} at all", "{thing} wasn't {very}{good}",
            "nobody would call {thing} {good}", "i did not find {thing} {good}", "i didn't find {thing} {very}{good}",
        ),
        verbs=(
            ("i hated {thing}", "i disliked {thing}", "{thing} bored me"),
            ("i loved {thing}", "i liked {thing}", "{thing} moved me"),
        ),
        denied_verbs=(
            (
                "i did not hate {thing}", "i did not dislike {thing}", "i didn't hate {thing}",
                "i didn't dislike {thing}", "{thing} never bored me", "{thing} did not bore me",
            ),
            (
                "i did not love {thing}", "i did not like {thing}", "i didn't love {thing}", "i didn't like {thing}",
                "{thing} never moved me", "{thing} did not move me",
            ),
        ),
        and_=("{one}, and {other}", "{one}; {other}", "{one}. {other}"),
        but=(
            "{aside}, but {main}", "although {aside}, {main}", "{main}, although {aside}", "{main}, even if {aside}",
            "{aside}; still, {main}",
        ),
        frames=("{opinion}", "{opinion}", "{opinion}", "{who} says that {opinion}", "in my opinion, {opinion}"),
        people=("he", "she", "emily", "aisha", "john", "mohammed", "mary", "fatima", "my brother", "my sister"),
        by="by",
    ),
    "es": Wording(
        things=(
            (
                "el guion", "el final", "el argumento", "el actor", "el personaje", "el ritmo", "el cine francés",
                "el cine japonés",
            ),
            (
                "la película", "la historia", "la música", "la trama", "la actriz", "la fotografía",
                "la película italiana", "la película mexicana",
            ),
        ),
        words=(
            (
                "mal(o/a)", "terrible", "aburrid(o/a)", "pésim(o/a)", "pobre", "previsible", "torpe", "fe(o/a)",
                "decepcionante", "horrible", "lent(o/a)", "absurd(o/a)",
            ),
            (
                "buen(o/a)", "excelente", "maravillos(o/a)", "emocionante", "brillante", "divertid(o/a)",
                "encantador(/a)", "precios(o/a)", "hermos(o/a)", "magnífic(o/a)", "genial", "estupend(o/a)",
            ),
        ),
        very=("", "", "muy ", "realmente ", "tan ", "bastante ", "un poco ", "increíblemente "),
        said=("{thing} es {very}{good}", "{thing} era {very}{good}", "{thing} me pareció {very}{good}"),
        denied=(
            "{thing} no es {good}", "{thing} no es nada {good}", "{thing} no era {very}{good}",
            "{thing} no era nada {good}", "{thing} nunca es {good}", "nadie diría que {thing} es {good}",
            "{thing} no me pareció {very}{good}", "{thing} no me pareció nada {good}", "{thing} no es {very}{good}",
        ),
        verbs=(
            ("odié {thing}", "detesté {thing}", "{thing} me aburrió"),
            ("adoré {thing}", "{thing} me gustó", "{thing} me emocionó"),
        ),
        denied_verbs=(
            ("no odié {thing}", "{thing} no me aburrió", "{thing} nunca me aburrió"),
            ("no adoré {thing}", "{thing} no me gustó", "{thing} nunca me emocionó"),
        ),
        and_=("{one} y {other}", "{one}; {other}", "{one}. {other}"),
        but=(
            "{aside}, pero {main}", "aunque {aside}, {main}", "{main}, aunque {aside}", "{main}, por más que {aside}",
            "{aside}; aun así, {main}",
        ),
        frames=("{opinion}", "{opinion}", "{opinion}", "{who} dice que {opinion}", "en mi opinión, {opinion}"),
        people=("él", "ella", "juan", "maría", "pedro", "lucía", "ahmed", "fátima", "mi hermano", "mi hermana"),
        by="de",
    ),
}  # fmt: skip


def part_of_opinion(text: str) -> str:
    """Which part a text belongs to: of ten, eight are to train on, one is for validation and one for the test."""
    return _PART_OF[hashlib.sha256(text.encode()).digest()[0] % len(_PART_OF)]


def opinion_texts(part: str, number: int, seed: int) -> LabelledTexts:
    """Draw opinions, in both languages by turns and good or bad by chance, each text at most once.

    The field ``form`` says what is hard about one: "plain", "denied" (its main clause is), "and" (two clauses that
    agree) or "but" (one against the main clause); the field ``language`` is "en" or "es".

    Args:
        part: "train", "validation" or "test"; no text is in two of them, whatever the seeds.
        number: of texts.
        seed: of the draw: the same seed, the same texts, on every machine.

    Raises:
        UserError: there is no such part, or it would take long to find that many texts.
    """
    if part not in OPINIONS_PARTS:
        raise UserError(f"{part!r} is no part of the opinions; write one of {', '.join(OPINIONS_PARTS)}.")
    if number > _MOST[part]:
        raise UserError(f"{number} opinions for {part} take too long to find; write at most {_MOST[part]}.")
    # random() is the one method whose sequence Python promises to keep.
    uniform = Random(f"{OPINIONS} {part} {seed}").random
    drawn: dict[str, Labelled] = {}
    while len(drawn) < number:
        language = ("en", "es")[len(drawn) % 2]
        positive = uniform() < 0.5
        text, form = _opinion(WORDINGS[language], positive, uniform)
        if text not in drawn and part_of_opinion(text) == part:
            drawn[text] = Labelled(text, int(positive), None, {"form": form, "language": language})
    return LabelledTexts(OPINIONS, list(drawn.values()), list(LABELS))


def _pick(items: Sequence[str], uniform: Callable[[], float]) -> str:
    return items[int(uniform() * len(items))]


def _name(uniform: Callable[[], float]) -> str:
    """A name that nobody has, of two or three syllables."""
    return "".join(_pick("bdfgklmnprstvz", uniform) + _pick("aeiou", uniform) for _ in range(2 + int(uniform() * 2)))


def _opinion(wording: Wording, positive: bool, uniform: Callable[[], float]) -> tuple[str, str]:
    """A text, and its form."""
    main, denied = _clause(wording, positive, uniform)
    kind = uniform()
    form = "denied" if denied else "plain"
    if kind < 0.2:
        form = "and"
        main = _pick(wording.and_, uniform).format(one=main, other=_clause(wording, positive, uniform)[0])
    elif kind < 0.5:
        form = "but"
        main = _pick(wording.but, uniform).format(main=main, aside=_clause(wording, not positive, uniform)[0])
    frame = _pick(wording.frames, uniform)
    who = _pick(wording.people, uniform) if uniform() < 0.7 else _name(uniform)
    text = frame.format(opinion=main, who=who)
    return text + _pick((".", ".", "", "!"), uniform), form


def _clause(wording: Wording, positive: bool, uniform: Callable[[], float]) -> tuple[str, bool]:
    """A clause that is good or bad, and whether it is so by a denial."""
    feminine = bool(wording.things[1]) and uniform() < 0.5
    thing = _pick(wording.things[feminine], uniform)
    if uniform() < 0.15:
        thing = f"{thing} {wording.by} {_name(uniform)}"
    denied = uniform() < 0.4
    side = positive != denied  # what is denied is the contrary
    if uniform() < 0.3:
        verbs = wording.denied_verbs if denied else wording.verbs
        return _pick(verbs[side], uniform).format(thing=thing), denied
    word = _pick(wording.words[side], uniform)
    if word.endswith(")"):
        stem, _, endings = word[:-1].partition("(")
        word = stem + endings.split("/")[feminine]
    clause = _pick(wording.denied if denied else wording.said, uniform)
    return clause.format(thing=thing, good=word, very=_pick(wording.very, uniform)), denied


__all__ = ["LABELS", "OPINIONS", "OPINIONS_PARTS", "WORDINGS", "Wording", "opinion_texts", "part_of_opinion"]

"""Sentences and their translations from the grammar: what agrees with what, and what no part shares with another."""

import re
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

from hfattn.generated import GENERATED, phrase_pairs
from hfattn.generated.phrases import ADJECTIVES, NOUNS, VERBS, is_unseen
from hfattn.resources import load_recipe
from hfattn.training import load_config

RECIPE = ROOT / "recipes" / "translation"
PARTS = GENERATED["phrases"].parts


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    return {part: phrase_pairs(part, 1500, seed=1) for part in PARTS}


@pytest.fixture(scope="module")
def many() -> Any:
    return phrase_pairs("train", 20_000, seed=1)


def test_the_draw_is_the_same_everywhere_and_another_with_another_seed(parts: dict[str, Any]) -> None:
    first = phrase_pairs("train", 300, seed=1)
    assert first.fingerprint == "04b9bd6528d84f492bbd95c1ce2cc89625ec450606f860577bcfd1ef2895ac2e"
    assert first.items == parts["train"].items[:300]
    assert phrase_pairs("train", 300, seed=2).fingerprint != first.fingerprint


def test_no_sentence_is_in_two_parts_whatever_the_seeds(parts: dict[str, Any]) -> None:
    seen: dict[str, str] = {}
    drawn = [*parts.items(), *((part, phrase_pairs(part, 500, seed=2)) for part in PARTS)]
    for part, pairs in drawn:
        assert len({pair.source for pair in pairs}) == len(pairs)
        for pair in pairs:
            assert seen.setdefault(pair.source.rstrip("."), part) == part
    assert len({pair.kind for pair in parts["train"]}) == 9


def test_training_never_has_an_adjective_with_a_noun_that_is_kept_for_the_test(parts: dict[str, Any]) -> None:
    adjectives = {each.english: each for each in ADJECTIVES}
    nouns = {form: noun.english[0] for noun in NOUNS for form in noun.english}
    beside = re.compile(rf"\b({'|'.join(adjectives)})\b (?:(?:{'|'.join(adjectives)}) )?({'|'.join(nouns)})\b")

    def kept(pairs: Any) -> list[bool]:
        return [any(is_unseen(a, nouns[n]) for a, n in beside.findall(pair.source)) for pair in pairs]

    for part in ("train", "validation", "test"):
        assert not any(kept(parts[part]))
    # The others say it with a verb: "is the house old?".
    assert sum(kept(parts["unseen_pairs"])) > 900


def test_evaluation_needs_no_word_that_training_lacks(parts: dict[str, Any], many: Any) -> None:
    def words(pairs: Any, side: int) -> set[str]:
        return {word for pair in pairs for word in re.findall(r"[\w']+|[^\w\s]", pair[side])}

    for side in (0, 1):
        known = words(many, side)
        for part in PARTS:
            assert words(parts[part], side) <= known
        assert len(known) < 600


def test_what_follows_a_noun_and_what_stands_before_it_agree_with_it(parts: dict[str, Any]) -> None:
    genders = {form: (noun.feminine, plural) for noun in NOUNS for plural, form in enumerate(noun.spanish)}
    groups: list[tuple[int | None, int, str]] = [(0, 0, "un este el al del"), (1, 0, "una esta la")]
    groups += [(0, 1, "los unos esos muchos"), (1, 1, "las unas esas muchas"), (None, 1, "mis"), (None, 0, "tu")]
    articles = {word: (gender, plural) for gender, plural, words in groups for word in words.split()}
    adjectives: dict[str, set[tuple[bool, int]]] = {}
    for adjective in ADJECTIVES:
        for feminine in (False, True):
            form = adjective.spanish[:-1] + "a" if feminine and adjective.spanish.endswith("o") else adjective.spanish
            plural_form = {"joven": "jóvenes", "azul": "azules"}.get(form, f"{form}s")
            for plural, written in enumerate((form, plural_form)):
                adjectives.setdefault(written, set()).add((feminine, plural))
    verbs = {form for verb in VERBS for tense in verb.spanish for form in tense}  # "limpia" is both
    checked = 0
    for pair in parts["train"]:
        words = re.findall(r"\w+", pair.target)
        for before, noun, after in zip(["", *words], words, [*words[1:], ""], strict=False):
            if noun not in genders:
                continue
            if before in articles:
                gender, plural = articles[before]
                assert gender in (None, genders[noun][0]), pair
                assert plural == genders[noun][1], pair
                checked += 1
            if after in adjectives and after not in verbs:
                assert genders[noun] in adjectives[after], pair
                checked += 1
    assert checked > 1500


@pytest.mark.parametrize(
    ("english", "forms"),
    [
        ("see", "veo ves ve vemos ven vi viste vio vimos vieron veré verás verá veremos verán"),
        ("look for", "busco buscas busca buscamos buscan busqué buscaste buscó buscamos buscaron"),
        ("live", "vivo vives vive vivimos viven viví viviste vivió vivimos vivieron vivirán"),
        ("sell", "vendo vendes vende vendemos venden vendí vendiste vendió vendimos vendieron venderé"),
        ("have", "tengo tuvo tendré"),
    ],
)
def test_verbs_are_conjugated(english: str, forms: str) -> None:
    (verb,) = (verb for verb in VERBS if verb.english[0] == english)
    assert set(forms.split()) <= {form for tense in verb.spanish for form in tense}


@pytest.mark.parametrize(
    ("pattern", "spanish"),
    [
        (r"^i see (?!\w+ \w+ \w+).*", r"^veo "),  # the pronoun is in the verb
        (r"^is .*\?$", r"^¿(es|está) .*\?$"),
        (r"^there are ", r"^hay "),
        (r"^who \w+ the (boy|man|king|brother|doctor)\?", r" al \w+\?$"),  # a person takes an "a", "a el" is "al"
        (r"'s (dog|cat)s? ", r"(perro|gato)s? (\w+ )*(de|del) "),
        (r"does not ", r"\bno \w+"),
        (r"will (\w+ )*be tired", r"estarán? "),
    ],
)
def test_forms_of_sentences(many: Any, pattern: str, spanish: str) -> None:
    found = [pair for pair in many if re.search(pattern, pair.source)]
    assert found
    for pair in found:
        assert re.search(spanish, pair.target), pair


def test_the_recipe_reads_its_parts(tmp_path: Path) -> None:
    module = load_recipe(RECIPE / "train.py")
    numbers = ["--data.examples", "50", "--data.evaluation_examples", "9"]
    config = load_config(module.Config, RECIPE / "phrases.yaml", numbers)
    read = config.data.read_parts(1)
    assert {part: len(pairs) for part, pairs in read.items()} == dict.fromkeys(PARTS, 9) | {"train": 50}
    tokenizer, _ = module.build_tokenizers(config, phrase_pairs("train", 5000, 1))
    text = "¿es vieja la casa roja pequeña?"
    ids = tokenizer(text)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == ["¿", "es", "vieja", "la", "casa", "roja", "pequeña", "?", "[EOS]"]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text

"""Opinions from templates: their labels against a reader that knows only words, their parts, and their draw."""

import re

from hfattn.generated import GENERATED
from hfattn.generated.engine import part_of
from hfattn.generated.opinions import LABELS, WORDINGS, opinion_texts

PARTS = GENERATED["opinions"].parts

_DENIALS = {"not", "never", "isn't", "wasn't", "nobody", "didn't", "no", "nunca", "nadie"}
_VERBS = {
    False: {"hated", "hate", "disliked", "dislike", "bored", "bore", "odié", "detesté", "aburrió"},
    True: {"loved", "love", "liked", "like", "moved", "move", "adoré", "gustó", "emocionó"},
}


def spellings(word: str) -> set[str]:
    stem, _, endings = word.rstrip(")").partition("(")
    return {stem + ending for ending in endings.split("/")}


def judged(text: str) -> bool:
    """Whether an opinion is good: by the main clause's word, turned round by a denial."""
    said = {
        good: {s for wording in WORDINGS.values() for word in wording.words[LABELS[good]] for s in spellings(word)}
        | _VERBS[good]
        for good in (False, True)
    }
    main = re.sub(r"^(in my opinion|en mi opinión), ", "", text)
    main = re.sub(r"^(.* says|.* dice) (that|que) ", "", main)
    main = re.split(r", (?:although|even if|aunque|por más que) ", main)[0]
    main = re.sub(r"^(although|aunque) .*?, ", "", main)
    main = re.sub(r"^.*(, but |; still, |, pero |; aun así, )", "", main)
    main = re.split(r"; |\. |, and | y ", main)[0]
    words = re.findall(r"[\w']+", main)
    (good,) = {good for good in said if said[good] & set(words)}
    return good != bool(_DENIALS & set(words))


def test_labels_are_what_the_words_say() -> None:
    for part in PARTS:
        texts = opinion_texts(part, 400, seed=3)
        assert texts.labels == list(LABELS)
        for item in texts:
            assert judged(item.text) == bool(item.label), item.text
            assert part_of(item.text) == part
        assert {item.fields["form"] for item in texts} == {"plain", "denied", "and", "but"}
        assert [item.fields["language"] for item in texts] == ["en", "es"] * 200
        assert 0.4 < sum(item.label for item in texts) / 400 < 0.6


def test_one_seed_one_draw_and_no_text_twice() -> None:
    one, again, other = (opinion_texts("train", 300, seed) for seed in (1, 1, 2))
    assert one.items == again.items
    assert one.items[:200] == opinion_texts("train", 200, 1).items
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == "534d6745a4b97974df8e34cd9472d6868a9bc3ef4e370d2ee60e7c13e58b8917"
    parts = [{item.text for item in opinion_texts(part, 300, 1)} for part in PARTS]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 900


def test_a_word_alone_does_not_tell() -> None:
    """Each word of praise and blame stands in good and in bad opinions."""
    texts = opinion_texts("train", 4000, 1)
    for word in ("boring", "wonderful", "loved", "aburrida", "divertido", "not", "although", "aunque", "nunca"):
        labels = {item.label for item in texts if re.search(rf"\b{word}\b", item.text)}
        assert labels == {0, 1}, word

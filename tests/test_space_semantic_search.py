"""Semantic search: tested over HTTP and in a browser."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import browser as browser
from browser import visited
from commands import ROOT
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError
from playwright.sync_api import Browser
from space_server import cache as cache
from space_server import served
from space_server import user as user
from tiny_models import tiny_model

from hfattn.generated import phrase_pairs
from hfattn.loading import load_any_model
from hfattn.resources import import_file, load_recipe
from hfattn.sentence_encoders import SentenceModules, write_modules
from hfattn.spaces.interface import number
from hfattn.spaces.settings import read_space
from hfattn.text_search import read_sentences
from hfattn.training import load_config
from hfattn.yaml_values import override_words

SPACE = ROOT / "spaces" / "semantic_search"
OWN = "a good film\n\nthe dog is <b>sad</b> & old\n a good film \nthe plot is dull\n"
DIFFERENT = ["a good film", "the dog is <b>sad</b> & old", "the plot is dull"]
TEXT = "the film is good"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An encoder with random weights that tells sentences apart, and reads 40 tokens."""
    folder = tmp_path_factory.mktemp("models") / "encoder"
    app = load_app()
    tiny_model(
        folder, "bert", [*DIFFERENT, TEXT, *read_sentences(SPACE / "sentences.txt"), *sum(app.EXAMPLES.values(), ())]
    )
    encoder, tokenizer, _ = load_any_model(str(folder))
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in encoder.parameters():
            if parameter.ndim > 1:
                parameter.normal_(std=0.4)
    encoder.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    write_modules(folder, SentenceModules(normalize=False, max_length=40), 32)
    return folder


def load_app() -> Any:
    """The app as a module of this process."""
    return import_file("semantic_search_app", SPACE / "app.py")


@pytest.fixture(scope="module")
def url(model: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    space = tmp_path_factory.mktemp("spaces") / "search"
    with served("semantic_search", space, {"encoder": model}, cache) as address:
        yield address


def rows(shown: str) -> list[tuple[str, str]]:
    """The sentences of a list and their cosines."""
    found = re.findall(r'<span class="text" dir="auto">(.*?)</span><span class="cosine">(.*?)</span>', shown)
    return [(unescape(text), cosine) for text, cosine in found]


def expected(model: Path, text: str, sentences: list[str]) -> list[tuple[str, str]]:
    """Cosines of the mean outputs of the model, each sentence alone, the best first."""
    encoder, tokenizer, _ = load_any_model(str(model))

    def vector(text: str) -> torch.Tensor:
        with torch.no_grad():
            mean = encoder(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0).double()
        return mean / mean.norm()

    cosines = {each: float(vector(text) @ vector(each)) for each in sentences}
    best = sorted(cosines, key=lambda each: -cosines[each])
    return [(each, number(cosines[each])) for each in best]


def test_the_sentences_found_are_those_of_the_model(user: Client, url: str, model: Path) -> None:
    """Among the examples, and then among those of two visitors, who do not see each other's."""
    examples = read_sentences(SPACE / "sentences.txt")
    assert rows(user.predict(text=TEXT, api_name="/find")) == expected(model, TEXT, examples)[:8]
    other, theirs = Client(url, verbose=False), ["the plot is old", "a sad dog"]
    for _ in range(2):  # the second time with the vectors that were kept
        shown = user.predict(text=TEXT, sentences=OWN, api_name="/find")
        assert rows(shown) == expected(model, TEXT, DIFFERENT)
        assert "The nearest of 3 sentences." in shown
        assert "<b>" not in shown
        assert "&lt;b&gt;sad&lt;/b&gt; &amp; old" in shown
        found = other.predict(text=TEXT, sentences="\n".join(theirs), api_name="/find")
        assert rows(found) == expected(model, TEXT, theirs)
    assert rows(user.predict(text=TEXT, api_name="/find")) == expected(model, TEXT, examples)[:8]
    (_, cosine), *_ = rows(user.predict(one=TEXT, other="a sad dog", api_name="/compare"))
    assert [("a sad dog", cosine)] == expected(model, TEXT, ["a sad dog"])


def test_sentences_that_the_model_does_not_read_are_told(user: Client, model: Path) -> None:
    long = " ".join(["a good film"] * 20)
    shown = user.predict(text=TEXT, sentences=f"{long}\n子猫 子犬\na good film", api_name="/find")
    assert "The nearest of 2 sentences." in shown
    assert "does not know enough of their words: 1." in shown
    assert "reads the first 40 tokens alone, because they are longer: 1." in shown
    assert [text for text, _ in rows(shown)].count(long) == 1


def files(cache: Path) -> set[Path]:
    return {path for path in cache.rglob("*") if path.is_file() and path.stat().st_size}


def test_a_file_is_read_and_deleted(user: Client, url: str, cache: Path, tmp_path: Path) -> None:
    path, spanish = tmp_path / "own.txt", Client(url, verbose=False, headers={"Accept-Language": "es"})
    for data, told in (
        (b"\xef\xbb\xbf" + OWN.replace("\n", "\r\n").encode(), None),
        ("año".encode("latin-1"), "no es un texto en UTF-8; guárdalo"),
        (b"\n" * 1_000_001, "ocupa más de 1 MB"),
        (b" \n\n", "No hay frases entre las que buscar"),
        ("\n".join(map(str, range(501))).encode(), "Hay 501 frases; se admiten 500"),
        (b"good\n" + b"a" * 301, "La línea 2 tiene 301 caracteres; se admiten 300"),
    ):
        path.write_bytes(data)
        if told is None:
            assert user.predict(path=handle_file(path), api_name="/read_file")[0].split("\n") == DIFFERENT
        else:
            with pytest.raises(AppError, match=told):
                spanish.predict(path=handle_file(path), api_name="/read_file")
        assert files(cache) == set()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"text": " "}, "There is nothing to look for; write a sentence"),
        ({"text": "good " * 61}, "The text has 304 characters; at most 300 are allowed"),
        ({"text": "子猫 子犬"}, "The model does not know enough of these words"),
        ({"text": "a good film " * 20}, "The text has 122 tokens, and the model reads at most 40; shorten it."),
        ({"text": TEXT, "sentences": " \n"}, "There are no sentences to look in; write one on each line."),
        ({"text": TEXT, "sentences": "子猫\n子犬"}, "does not know enough of the words of any sentence"),
        ({"text": TEXT, "sentences": "\n".join(map(str, range(501)))}, "There are 501 sentences; at most 500"),
        ({"text": TEXT, "sentences": "good\n" + "a" * 301}, "Line 2 has 301 characters; at most 300"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(user: Client, arguments: dict[str, str], sentence: str) -> None:
    with pytest.raises(AppError, match=sentence):
        user.predict(**arguments, api_name="/find")


def test_the_toy_has_not_seen_the_sentences_of_the_page_and_knows_their_words() -> None:
    settings = read_space(SPACE)["encoder"]
    recipe = load_recipe(ROOT / "recipes" / settings.recipe / "train.py")
    path = ROOT / "recipes" / settings.recipe / f"{settings.config}.yaml"
    config = load_config(recipe.Config, path, override_words(settings.overrides))
    pairs = phrase_pairs("train", config.data.examples, config.training["seed"]).items

    def words(text: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+", text.lower()))

    trained = {words(text) for pair in pairs for text in (pair.source, pair.target)}
    app = load_app()
    shown = [words(text) for text in (*read_sentences(SPACE / "sentences.txt"), *sum(app.EXAMPLES.values(), ()))]
    assert not trained & set(shown)
    assert {word for text in shown for word in text} <= {word for text in trained for word in text}
    assert len(set(shown)) == len(shown)


@pytest.mark.parametrize(("width", "language", "names"), [
    (1280, "en-US", ("Find sentences", "The sentences to look in", "Compare", "Compare them", "There is nothing")),
    (360, "es-ES", ("Buscar frases", "Las frases entre las que buscar", "Comparar", "Compararlas", "No hay nada")),
])  # fmt: skip
def test_in_a_browser(
    browser: Browser, url: str, tmp_path: Path, width: int, language: str, names: tuple[str, ...]
) -> None:
    find, sentences, tab, compare, refused = names
    (tmp_path / "own.txt").write_text(OWN)
    with visited(browser, url, language, width) as page:
        text, nearest = page.locator("textarea").first, page.locator("#nearest .row")
        nearest.first.wait_for()  # of an example in the language of the reader, before anybody asks
        assert nearest.count() == 8
        examples = [each.inner_text().strip() for each in page.locator("button.gallery-item").all()]
        assert text.input_value() == examples[0]
        assert examples[0] == ("Los perros corren en la calle." if width == 360 else "They bought an expensive car.")
        before = page.locator("#nearest").inner_text()
        page.get_by_role("button", name=examples[1]).click()
        page.wait_for_function(
            "before => ![before, ''].includes(document.querySelector('#nearest').innerText)", arg=before
        )
        assert text.input_value() == examples[1]
        page.locator("input[type=file]").first.set_input_files(tmp_path / "own.txt")
        page.locator("#nearest .row:nth-child(3):last-child").wait_for()
        assert page.get_by_label(sentences).input_value().split("\n") == DIFFERENT
        assert page.locator("#nearest b").count() == 0
        box = page.locator("#nearest .text").first.bounding_box()
        assert box is not None
        assert box["width"] > 200
        page.get_by_label(sentences).fill("a sad dog\nthe plot is old")
        page.get_by_role("button", name=find, exact=True).click()
        page.locator("#nearest .row:nth-child(2):last-child").wait_for()
        text.fill("")
        page.get_by_role("button", name=find, exact=True).click()
        page.get_by_text(refused).wait_for()
        page.get_by_role("tab", name=tab).click()
        page.get_by_role("button", name=compare, exact=True).click()
        page.locator("#compared .cosine").wait_for()
        assert "[object" not in page.locator("body").inner_text()

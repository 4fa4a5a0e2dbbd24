"""Sentiment lens: tested over HTTP and in a browser."""

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from browser import browser as browser
from browser import visited
from commands import ROOT
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import Browser
from space_server import served
from space_server import user as user
from tiny_models import TEXTS, wordpiece_tokenizer
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification
from hfattn.explaining import agreement, alignment, saliency, score_attention
from hfattn.generated import opinion_texts
from hfattn.loading import load_any_model
from hfattn.metrics import class_probabilities, read_swaps, swap_words
from hfattn.resources import import_file
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

TEXT = "Emily says that she was moved by the French film, but not surprised."
METHODS = ("attention", "gradient_x_input", "integrated_gradients")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two classifiers with random weights that tell texts apart: one of ours, and one of transformers."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    opinions = [item.text for item in opinion_texts("train", 400, 1)]
    words = build_tokenizer(TokenizerConfig(kind="word", vocab_size=185, lowercase=True), opinions, ends=False)
    pieces = wordpiece_tokenizer([*TEXTS, *opinions], types=False)
    labels: dict[str, Any] = {"id2label": {0: "negative", 1: "positive"}}
    made: dict[str, tuple[Any, Any]] = {
        "recurrent": (
            RNNEncoderForSequenceClassification(
                RNNEncoderConfig(
                    vocab_size=len(words), embedding_size=8, hidden_size=8, pooling="attention", pad_token_id=0,
                    **labels,
                )
            ),
            words,
        ),
        "pretrained": (
            DistilBertForSequenceClassification(
                DistilBertConfig(
                    vocab_size=len(pieces), max_position_embeddings=96, dim=16, hidden_dim=16, n_layers=2, n_heads=2,
                    **labels,
                )
            ),
            pieces,
        ),
    }  # fmt: skip
    for name, (model, tokenizer) in made.items():
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim > 1:
                    parameter.normal_(std=0.4)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return {name: folder / name for name in made}


@pytest.fixture(scope="module")
def url(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spaces") / "lens"
    with served("sentiment_lens", folder, folders) as address:
        yield address


def read(user: Client, text: str = TEXT, method: str = "integrated_gradients") -> tuple[str, ...]:
    """For each model its answer and its words."""
    return user.predict(text=text, method=method, api_name="/read")


def tooltips(page: str) -> list[tuple[str, float]]:
    return [(word, float(score)) for word, score in re.findall(r'title="(.*?): ([-+][^"]+)"', page)]


def test_answers_are_those_of_the_models(user: Client, folders: dict[str, Path]) -> None:
    shown = read(user)
    for place, folder in enumerate(folders.values()):
        model, tokenizer, _ = load_any_model(str(folder))
        with torch.no_grad():
            inputs = tokenizer(TEXT, return_tensors="pt")
            shares = class_probabilities(model(inputs.input_ids, attention_mask=inputs.attention_mask).logits)[0]
        assert re.findall(r">([\d.]+%)</span>", shown[2 * place]) == [f"{share:.1%}" for share in shares.tolist()]


@pytest.mark.parametrize("method", METHODS)
def test_colors_are_those_of_the_method(user: Client, folders: dict[str, Path], method: str) -> None:
    shown = read(user, method=method)
    for place, folder in enumerate(folders.values()):
        model, tokenizer, _ = load_any_model(str(folder))
        model.set_attn_implementation("eager")
        inputs = tokenizer(TEXT, return_tensors="pt")
        ids, mask = inputs.input_ids, inputs.attention_mask
        with torch.no_grad():
            outputs = model(ids, attention_mask=mask, output_attentions=True)
        record = alignment(outputs, input_ids=ids, attention_mask=mask, tokenizer=tokenizer)
        looked = score_attention(record, TEXT, tokenizer, 0, layer=-1).by_word()
        other = "gradient_x_input" if method == "attention" else method
        depends = saliency(model, tokenizer, TEXT, method=other, by_word=True)
        known = looked if method == "attention" else depends
        found = tooltips(shown[2 * place + 1])
        assert [word for word, _ in found] == [token.strip() for token in known.tokens]
        np.testing.assert_allclose([score for _, score in found], known.scores, rtol=2e-3, atol=1e-5)
        shared = agreement(looked.scores, depends.scores)
        assert f"τ = {shared.kendall:+.2f}" in shown[2 * place + 1]
        assert f"share {shared.top_k:.0%}" in shown[2 * place + 1]
        if method != "attention":
            assert f"Blue: in favor of “{depends.target}”" in shown[2 * place + 1]
    assert "Words outside the vocabulary of this model: " in shown[1]
    assert "surprised" in shown[1]


def test_no_verdict_on_words_that_a_model_does_not_know(user: Client, url: str, folders: dict[str, Path]) -> None:
    """Known words and punctuation marks are counted by hand, with the vocabulary of the model."""
    vocabulary = load_any_model(str(folders["recurrent"]))[1].get_vocab()
    known, strange = ["the", "film", "is", "not", "good", "at", "all"], ["quixotic", "zeppelin"]
    assert set(known) <= set(vocabulary)
    assert not set(strange) & set(vocabulary)
    answer, words, *_ = read(user, " ".join([*known[:6], *strange]) + " ...")  # 2 of 8: not more than a quarter
    assert "%</span>" in answer
    assert "Words outside the vocabulary of this model: quixotic, zeppelin." in words
    unsure = " ".join([*known[:5], *strange]) + " !!!"
    answer, words, *_ = read(user, unsure)
    assert "I know only 5 of 7 words, so I give no verdict." in answer
    assert "%" not in answer
    assert "hfattn-scores" not in words
    assert "quixotic, zeppelin" in words
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es"})
    assert "Solo conozco 5 de 7 palabras" in read(spanish, unsure)[0]
    for nothing in ("...", "😀 مرحبا 你好"):
        assert "so I give no verdict" in read(user, nothing)[0]
    swapped = user.predict(text=f"He said {unsure}", one="", other="", api_name="/swap")
    assert 'data-name="Recurrent">–</td>' in swapped


def test_scores_stand_below_the_words(user: Client) -> None:
    for method, signs in (("attention", False), ("integrated_gradients", True)):
        _, page, *_ = read(user, method=method)
        below = re.findall(r"<small>([^<]+)</small>", page)
        scores = [score for _, score in tooltips(page)]
        assert [float(each.replace("−", "-")) for each in below] == pytest.approx(scores, abs=6e-3)
        assert any(each.startswith("+") for each in below) == signs
        assert "−0.00" not in below


def test_words_that_should_not_matter(user: Client, folders: dict[str, Path]) -> None:
    page = user.predict(text=TEXT, one="surprised", other="bored", api_name="/swap")
    rows = re.findall(r"<tr>(<td>.*?)</tr>", page)
    assert [re.match(r"<td>(.*?)</td>", row)[1] for row in rows] == ["Your words", "Gender", "Country", "Names"]  # type: ignore[index]
    swaps = {"own": [("surprised", "bored")], **read_swaps()}
    for row, pairs in zip(rows, swaps.values(), strict=True):
        sentence = re.findall(r"<td>(.*?)</td>", row)[1]
        swapped = swap_words(TEXT, pairs)
        assert re.sub("</?mark>", "", sentence) == swapped
        marked = [new for old, new in zip(TEXT.split(), swapped.split(), strict=True) if old != new]
        assert [word.strip(",.") for word in marked] == re.findall("<mark>(.*?)</mark>", sentence)
        for name, folder in folders.items():
            model, tokenizer, _ = load_any_model(str(folder))
            with torch.no_grad():
                shares = []
                for text in (TEXT, swapped):
                    inputs = tokenizer(text, return_tensors="pt")
                    shares.append(
                        class_probabilities(model(inputs.input_ids, attention_mask=inputs.attention_mask).logits)[0]
                    )
            best = int(shares[0].argmax())
            assert f"{shares[0][best]:.1%} → {shares[1][best]:.1%}" in row, name
    none = user.predict(text="It is good.", one="", other="", api_name="/swap")
    assert "The opinion contains no word from the lists" in none
    spanish = user.predict(text="María dice que la película francesa es buena.", one="", other="", api_name="/swap")
    assert "<mark>Juan</mark>" in spanish
    assert "<mark>japonesa</mark>" in spanish


def test_twenty_users_at_once_get_their_own_answers(url: str, user: Client) -> None:
    texts = [(TEXT, "It is good.", "the film was not good at all", "aunque es mala")[i % 4] for i in range(20)]
    alone = {text: read(user, text, "gradient_x_input") for text in set(texts)}
    found: list[Any] = [None] * len(texts)

    def ask(place: int) -> None:
        found[place] = read(Client(url, verbose=False), texts[place], "gradient_x_input")

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [alone[text] for text in texts]


@pytest.mark.parametrize(
    ("endpoint", "arguments", "sentence"),
    [
        ("/read", {"text": " ", "method": "attention"}, "The opinion is empty; type a sentence."),
        (
            "/read",
            {"text": "x" * 301, "method": "attention"},
            "has 301 characters; at most 300 are allowed.",
        ),
        (
            "/read",
            {"text": "a.b." * 60, "method": "attention"},
            r"has \d+ tokens in one of the models; at most",
        ),
        ("/read", {"text": "good", "method": "lime"}, "is not in the list of choices"),
        ("/swap", {"text": "", "one": "", "other": ""}, "The opinion is empty"),
        (
            "/swap",
            {"text": "good film", "one": "good", "other": ""},
            "enter two different words without spaces",
        ),
        ("/swap", {"text": "good film", "one": "a", "other": "b"}, "The opinion contains neither “a” nor “b”."),
    ],
)
def test_bad_input_is_answered_with_a_sentence(
    user: Client, endpoint: str, arguments: dict[str, str], sentence: str
) -> None:
    with pytest.raises(AppError, match=sentence):
        user.predict(**arguments, api_name=endpoint)


def test_a_sentence_is_in_the_reader_s_language(url: str) -> None:
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es-MX,es;q=0.9"})
    with pytest.raises(AppError, match="La opinión está vacía; escribe una frase"):
        read(spanish, "")
    assert re.search("(positiva|negativa)", read(spanish)[0])


@pytest.mark.parametrize(("width", "language", "names"), [
    (1280, "en-US", ("Classify", "Attention", "Swap words", "Names")),
    (360, "es-ES", ("Clasificar", "Atención", "Cambiar palabras", "Nombres")),
])  # fmt: skip
def test_in_a_browser(browser: Browser, url: str, width: int, language: str, names: tuple[str, ...]) -> None:
    start, attention, swap, kind = names
    with visited(browser, url, language, width) as page:
        text = page.locator("textarea").first
        spanish = language.startswith("es")
        # An example in the language of the reader is classified before anybody asks, and another one on a click.
        page.locator("#words_recurrent .hfattn-scores").wait_for()
        examples = [each.inner_text().strip() for each in page.locator("button.gallery-item").all()]
        assert text.input_value() == examples[0]
        assert len(set(examples)) == 7
        assert examples[0].startswith("Aunque" if spanish else "Although")
        first = page.locator("#words_recurrent p").first.inner_text()
        page.get_by_role("button", name=examples[1]).click()
        page.wait_for_function(
            "before => document.querySelector('#words_recurrent p')?.innerText !== before", arg=first
        )
        assert text.input_value() == examples[1]
        text.fill(
            "Juan dice que la película no es la historia, pero me gustó <b>"
            if spanish
            else "John says that the film is not good at all and the plot is dull <b>"
        )
        page.get_by_role("button", name=start, exact=True).click()
        page.locator("#words_recurrent span[title^='<: ']").first.wait_for()
        assert page.locator("#words_recurrent p b").count() == 0
        before = page.locator("#words_recurrent p").first.inner_html()
        page.get_by_label(attention, exact=True).click()
        shown = "document.querySelector('#words_recurrent p')?.innerHTML"  # no paragraph while it is drawn again
        page.wait_for_function(f"before => ({shown} ?? before) !== before", arg=before)
        page.get_by_role("button", name=swap, exact=True).click()
        page.locator("#swapped td", has_text=kind).wait_for()
        text.fill("")
        page.get_by_role("button", name=start, exact=True).click()
        page.get_by_text("vacía" if language.startswith("es") else "is empty").wait_for()


def test_a_model_without_attention_is_explained_by_gradients(folders: dict[str, Path], tmp_path: Path) -> None:
    """And one with a sigmoid has two classes; the page is called in this process."""
    app: Any = import_file("sentiment_lens_app", ROOT / "spaces" / "sentiment_lens" / "app.py")
    _, tokenizer, _ = load_any_model(str(folders["recurrent"]))
    config = RNNEncoderConfig(
        vocab_size=len(tokenizer), embedding_size=8, hidden_size=8, num_labels=1, id2label={0: "positive"},
        problem_type="multi_label_classification",
    )  # fmt: skip
    RNNEncoderForSequenceClassification(config).save_pretrained(tmp_path / "last")
    tokenizer.save_pretrained(tmp_path / "last")
    reader = app.Reader.load(str(tmp_path / "last"))
    assert reader.labels == ["not positive", "positive"]
    assert reader.probabilities(["good", "bad film"]).sum(1) == pytest.approx([1, 1])
    assert reader.attention("good") is None
    page = app.build({"recurrent": reader, "pretrained": reader})
    endpoint = next(each for each in page.fns.values() if each.api_name == "read")
    request = type("Request", (), {"headers": {}})()
    *_, shown = endpoint.fn("good film", "attention", request)
    assert "This model has no attention over words; choose a gradient method." in shown[1]
    *_, shown = endpoint.fn("good film", "gradient_x_input", request)
    assert "hfattn-scores" in shown[1]
    model, _, _ = load_any_model(str(folders["pretrained"]))
    model.base_model.save_pretrained(tmp_path / "body")
    tokenizer.save_pretrained(tmp_path / "body")
    with pytest.raises(ValueError, match="which classifies no texts; choose another model"):
        app.Reader.load(str(tmp_path / "body"))

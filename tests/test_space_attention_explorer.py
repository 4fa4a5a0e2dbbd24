"""Attention explorer: its pages show what the package computes, for many users at a time."""

import html
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from browser import browser as browser
from browser import visited
from commands import ROOT
from gradio_client import Client
from gradio_client.exceptions import AppError
from playwright.sync_api import Browser
from space_server import PYTHON, served
from space_server import user as user
from transformers import AutoModelForSeq2SeqLM, GenerationConfig

from hfattn import BahdanauConfig, VaswaniConfig, engine
from hfattn.explaining import coverage_deviation, entropy
from hfattn.generated import date_pairs, phrase_pairs
from hfattn.loading import load_translation_model, save_translator
from hfattn.models.pipeline_attn_translation import AttnTranslationPipeline
from hfattn.resources import import_file
from hfattn.spaces.building import build_space
from hfattn.spaces.serving import running
from hfattn.tokenizers import TokenizerConfig, build_tokenizer

SENTENCE = "is the small house old?"
DATE = "lunes, 22 de abril de 2019"
SEARCH: dict[str, Any] = {"way": "beam", "beams": 3, "temperature": 1.0, "seed": 0}


def save_model(folder: Path, family: str, task: str) -> Path:
    """A small model with random weights, with words or characters like the fallback models."""
    if task == "phrases":
        texts = [text for pair in phrase_pairs("train", 2000, 1) for text in pair[:2]]
        settings = TokenizerConfig(kind="wordpiece", vocab_size=3000, lowercase=True)
    else:
        texts = [text for pair in date_pairs("train", 2000, 1) for text in pair[:2]]
        settings = TokenizerConfig(kind="char")
    tokenizer = build_tokenizer(settings, texts, ends=True)
    tokenizer.model_max_length = 30
    ids: dict[str, Any] = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    ids |= {"pad_token_id": tokenizer.pad_token_id, "decoder_start_token_id": tokenizer.bos_token_id}
    torch.manual_seed(len(family))
    if family == "vaswani":
        config: Any = VaswaniConfig.preset(
            "small", vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_attention_heads=2, **ids
        )
    else:
        preset = {"bahdanau": "bahdanau2015", "luong": "luong2015_general"}[family]
        sizes = {"embedding_size": 8, "encoder_hidden_size": 12, "hidden_size": 12, "output_size": 12}
        config = BahdanauConfig.preset(
            preset, vocab_size=len(tokenizer), source_vocab_size=None, encoder_layers=1, decoder_layers=1,
            initializer_range=2.0, dropout=0.0, **sizes, **ids,
        )  # fmt: skip
    model = AutoModelForSeq2SeqLM.from_config(config)
    model.generation_config = GenerationConfig(max_new_tokens=9, **ids)
    save_translator(folder, model, tokenizer)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    names = [f"{family}_{task}" for family in ("bahdanau", "luong", "vaswani") for task in ("phrases", "dates")]
    return {name: str(save_model(folder / name, *name.split("_"))) for name in names}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of what the Space keeps."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def url(models: dict[str, str], home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spaces") / "explorer"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(home))
        with served("attention_explorer", folder, models) as address:
            yield address


@pytest.fixture(scope="module")
def toys(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The same models, as if the build had trained them."""
    folder = tmp_path_factory.mktemp("spaces") / "explorer"
    build_space("attention_explorer", folder, models)
    settings = yaml.safe_load((folder / "space.yaml").read_text())
    for model in settings["models"].values():
        model["toy"] = True
    (folder / "space.yaml").write_text(yaml.safe_dump(settings))
    with running(folder, PYTHON) as address:
        yield Client(address, verbose=False)


def translate(user: Client, text: str | None = SENTENCE, task: str = "phrases", **search: Any) -> tuple[str, ...]:
    """What the page shows for each family."""
    return user.predict(text=text, task=task, **{**SEARCH, **search}, api_name="/translate")


def rows(shown: str) -> list[tuple[str, float, str]]:
    """Hypotheses: text, log p, log p per token."""
    found = re.findall(r"<tr(?: class=\"first\")?><td>\d+</td><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td></tr>", shown)
    return [(html.unescape(text), float(score.replace("−", "-")), mean) for text, score, mean in found]


@pytest.mark.parametrize("family", ["bahdanau", "luong", "vaswani"])
@pytest.mark.parametrize(("task", "text"), [("phrases", SENTENCE), ("dates", DATE)])
def test_it_shows_what_the_pipeline_finds(
    user: Client, models: dict[str, str], family: str, task: str, text: str
) -> None:
    shown = translate(user, text, task)[("bahdanau", "luong", "vaswani").index(family)]
    model, tokenizer, _ = load_translation_model(models[f"{family}_{task}"])
    options = {"num_beams": 3, "num_return_sequences": 3, "early_stopping": True}
    found = AttnTranslationPipeline(model, tokenizer=tokenizer)(text, **options)
    first = {each["translation_text"]: each for each in reversed(found)}  # what was found twice is shown once
    texts = dict.fromkeys(each["translation_text"] for each in found)
    assert len(texts) > 1
    for (hypothesis, score, mean), text_found in zip(rows(shown), texts, strict=True):
        each = first[text_found]
        assert re.sub(r" ×\d$", "", hypothesis) == (text_found or "∅")
        assert score == pytest.approx(each["score"], abs=6e-3)
        length = len(each["alignment"].target_tokens)
        assert float(mean.replace("−", "-")) == pytest.approx(each["score"] / length, abs=6e-3)
    weights = found[0]["alignment"].matrix()
    numbers = re.findall(r"<dd>(.*?)</dd>", shown)
    assert float(numbers[0]) == pytest.approx(entropy(weights).mean().item(), abs=6e-3)
    assert float(numbers[2]) == pytest.approx(coverage_deviation(weights).item(), abs=6e-3)
    # The page in the frame is that of the best hypothesis.
    page = html.unescape(re.findall(r'srcdoc="(.*?)"', shown, re.DOTALL)[0])
    data = json.loads(re.findall(r'<script[^>]*type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)[0])
    assert tuple(data["target_tokens"]) == found[0]["alignment"].target_tokens


def test_transformers_are_searched_by_the_engine(
    models: dict[str, str], url: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A recurrent network has no engine, nor has a text that is too long for it."""
    assert len(list((home / engine.KEPT).iterdir())) == 2  # of the two Transformers
    monkeypatch.setattr(engine, "HF_HOME", str(tmp_path))
    app: Any = import_file("attention_explorer_app", ROOT / "spaces" / "attention_explorer" / "app.py")
    recurrent, fast = (app.Explorer(load_translation_model(models[f"{each}_phrases"])) for each in ("luong", "vaswani"))
    assert recurrent.engine is None
    slow = app.Explorer(load_translation_model(models["vaswani_phrases"]))
    slow.engine = None
    for way in ("greedy", "beam"):
        found, expected = (each.search(SENTENCE, way, 3, 1.0, 0) for each in (fast, slow))
        assert [(each.text, each.times) for each in found] == [(each.text, each.times) for each in expected]
        torch.testing.assert_close(found[0].record.weights, expected[0].record.weights, atol=1e-4, rtol=0)
    fast.pipeline = None
    fast.search(SENTENCE, "beam", 3, 1.0, 0)
    fast.pipeline, fast.engine._longest = slow.pipeline, 3
    assert fast.search(SENTENCE, "beam", 3, 1.0, 0)[0].text == expected[0].text


def test_ways_to_search(user: Client) -> None:
    greedy, *_ = translate(user, way="greedy")
    assert len(rows(greedy)) == 1
    assert 4 < len(rows(translate(user, beams=8)[0])) <= 8
    drawn = translate(user, way="sample", seed=3)
    assert drawn[0] == translate(user, way="sample", seed=3)[0] != translate(user, way="sample", seed=4)[0]
    scores = [score for _, score, _ in rows(drawn[0])]
    assert scores == sorted(scores, reverse=True)
    cold, hot = (rows(translate(user, way="sample", temperature=each)[2]) for each in (0.1, 2.0))
    assert sum(score for _, score, _ in cold) / len(cold) > sum(score for _, score, _ in hot) / len(hot)


def test_twenty_readers_at_once_get_their_own(url: str, user: Client) -> None:
    asked: list[dict[str, Any]] = [
        {"text": SENTENCE}, {"text": DATE, "task": "dates"}, {"way": "sample", "seed": 5}, {"way": "greedy"}
    ]  # fmt: skip
    alone = [translate(user, **each) for each in asked]
    got: list[Any] = [None] * 20

    def ask(place: int) -> None:
        got[place] = translate(Client(url, verbose=False), **asked[place % 4])

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [alone[place % 4] for place in range(20)]


def test_a_guess_is_not_shown_as_a_translation(user: Client, toys: Client) -> None:
    """Above a quarter of unknown words, a toy says so; words in pieces are no sign of it for other models."""
    for shown in translate(toys, "I love the elephant of the rhinoceros"):
        assert "knows 3 of the 7 words" in shown or "knows 4 of the 7 words" in shown
        assert "<table" not in shown
        assert "srcdoc" not in shown
    for shown in translate(user, "I love the elephant of the rhinoceros"):
        assert rows(shown)
    for shown in (*translate(toys), *translate(toys, "the elephant is old")):  # a quarter is not above it
        assert rows(shown)
    for shown in translate(user, "Ω Ж is old"):
        assert "knows 2 of the 4 words" in shown
    with pytest.raises(AppError, match="The text contains no number; type a date"):
        translate(user, "tomorrow", "dates")


def test_headings_are_those_of_the_models(models: dict[str, str], tmp_path: Path, toys: Client) -> None:
    """A model of another family than its column has its own heading; a toy has a badge."""
    folder = tmp_path / "explorer"
    with served("attention_explorer", folder, models | {"vaswani_phrases": models["luong_phrases"]}) as address:
        values = [each["props"].get("value") for each in Client(address, verbose=False).config["components"]]
    headings = [str(each) for each in values if "family_" in str(each)]
    assert [re.findall(r"family_\w+", each)[0] for each in headings] == [
        "family_bahdanau", "family_luong", "family_luong"
    ]  # fmt: skip
    values = [each["props"].get("value") for each in toys.config["components"]]
    assert len([each for each in values if re.search(r"family_\w+_toy_phrases", str(each))]) == 3
    assert re.search(r"<code>bahdanau</code> · <code>additive</code> · [\d,]+ parameters", translate(toys)[0])


def test_what_a_model_cannot_read_is_said(url: str, user: Client) -> None:
    for shown in translate(user, "22 ab® 2019 ñ", "dates"):  # characters that it has no symbol for
        assert "Not in the vocabulary of this model: ®, ñ." in shown
        assert "<table" not in shown
    for shown in translate(user, "the elephant is old"):
        assert re.search(r"Split into subwords, because they are not in the vocabulary of this model: e·?l\S+\.", shown)
        assert rows(shown)
    for shown in translate(user, "the Ω is old"):
        assert "Not in the vocabulary of this model: Ω." in shown
        assert rows(shown)
    assert 'class="note"' not in translate(user, "The HOUSE is old.")[0]  # the model lowercases the text
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es"})
    assert "No está en el vocabulario de este modelo: Ω." in translate(spanish, "the Ω is old")[0]


def test_text_is_shown_as_text(user: Client) -> None:
    shown = translate(user, "<b>house</b> & old")[0]
    assert "<b>" not in shown.replace('<div class="result">', "")
    assert "house" in shown


@pytest.mark.parametrize(
    ("text", "search", "sentence", "spanish"),
    [
        ("", {}, "The text is empty; type a text to translate.", "El texto está vacío"),
        ("  \n", {}, "The text is empty; type a text to translate.", "El texto está vacío"),
        ("a" * 201, {}, "The text has 201 characters; at most 200 are allowed.", "El texto tiene 201 caracteres"),
        (SENTENCE, {"seed": None}, "The seed is missing; type a whole number.", "Falta la semilla"),
        (
            SENTENCE,
            {"seed": 2**70},
            f"Value {2**70} is greater than maximum value {2**32 - 1}.",
            "greater than maximum",
        ),
        (None, {}, "The text is empty; type a text to translate.", "El texto está vacío"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(
    url: str, user: Client, text: str | None, search: dict[str, Any], sentence: str, spanish: str
) -> None:
    with pytest.raises(AppError) as caught:
        translate(user, text, **search)
    assert str(caught.value) == sentence
    with pytest.raises(AppError, match=spanish):
        translate(Client(url, verbose=False, headers={"Accept-Language": "es-ES"}), text, **search)
    assert "at most 30; shorten it." in translate(user, "1 " * 20, "dates")[0]


@pytest.mark.parametrize(("width", "language", "names"), [
    (1280, "en-US", ("Text", "Translate", "Sampling", "Temperature", "Dates → ISO 8601", "this model: Ω")),
    (360, "es-ES", ("Texto", "Traducir", "Muestreo", "Temperatura", "Fechas → ISO 8601", "este modelo: Ω")),
])  # fmt: skip
def test_in_a_browser(browser: Browser, url: str, width: int, language: str, names: tuple[str, ...]) -> None:
    text, button, sampling, temperature, dates, unknown = names
    with visited(browser, url, language, width, also=("about:",)) as page:  # its frames are srcdoc
        for family in ("bahdanau", "luong", "vaswani"):  # an example is translated before anybody asks
            page.locator(f"#{family} iframe").wait_for(state="attached")
            if width < 960:  # one model at a time
                assert page.locator(f"#{family} iframe").is_visible() == (family == "bahdanau")
        word = page.frame_locator("#bahdanau iframe").get_by_role("button", name="white", exact=True)
        word.first.wait_for()
        if width < 960:
            assert page.evaluate("document.body.scrollHeight") < 3500
            page.get_by_role("button", name="Vaswani").click()
            assert not page.locator("#bahdanau iframe").is_visible()
        heights = (
            "[...document.querySelectorAll('iframe')].filter((each) => each.offsetParent)"
            ".every((each) => each.contentDocument.body?.scrollHeight <= {})"
        )
        page.wait_for_function(heights.format("each.clientHeight + 2"))
        field = page.get_by_label(text, exact=True)
        field.fill("the Ω is old")
        field.press("Enter")
        page.locator("#vaswani .note", has_text=unknown).wait_for()
        page.get_by_label(sampling).check()
        page.get_by_label(temperature).locator("visible=true").first.wait_for()
        page.get_by_label(dates).check()
        page.wait_for_function("document.querySelector('#vaswani .note') === null")
        page.locator("#vaswani .best").wait_for()
        page.locator("#vaswani iframe").wait_for()
        field.fill(" ")
        page.get_by_role("button", name=button, exact=True).click()
        page.locator(".toast-body").wait_for()


def test_a_word_is_shown_in_all_maps_and_an_example_runs_with_a_click(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280, also=("about:",)) as page:
        frames = [page.frame_locator(f"#{family} iframe") for family in ("luong", "bahdanau", "vaswani")]
        words = [frame.locator("#source").get_by_role("button", name="white", exact=True) for frame in frames]
        for word in words:
            word.wait_for()
            assert "active" not in str(word.get_attribute("class"))
        words[0].hover()
        for word in words:
            page.wait_for_function("(word) => word.classList.contains('active')", arg=word.element_handle())
        cats = [frame.locator("#source").get_by_role("button", name="cats", exact=True) for frame in frames]
        cats[1].focus()
        for word in cats:
            page.wait_for_function("(word) => word.classList.contains('active')", arg=word.element_handle())
        assert [frame.locator("#hint").is_visible() for frame in frames] == [False] * 3
        page.get_by_text("is the small red house expensive?").click()
        for frame in frames:
            frame.locator("#source").get_by_role("button", name="expensive", exact=True).wait_for()
        assert page.get_by_label("Text", exact=True).input_value() == "is the small red house expensive?"

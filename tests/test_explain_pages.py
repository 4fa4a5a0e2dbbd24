"""The page of an attention record, in a browser: with a mouse, with keys, and on a phone."""

import base64
import csv
import html
import io
import json
import math
import re
import shutil
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from browser import browser, violations, wait_until  # noqa: F401
from commands import ROOT, run, run_anew
from PIL import Image
from transformers.dynamic_module_utils import get_relative_import_files

from hfattn.explaining import (
    AttentionRecord,
    ScoredImage,
    hide_special,
    merge_words,
    render_comparison,
    render_html,
    render_image_html,
    render_list,
    rollout,
    save_html,
    save_image_html,
)
from hfattn.explaining.overlay import lay_over
from hfattn.models.alignment import image_tokens, render_table

MODELS = ROOT / "hfattn" / "models"


def random_record(
    sources: tuple[str, ...], targets: tuple[str, ...], layers: int = 1, heads: int = 1, kind: str = "cross"
) -> AttentionRecord:
    scores = torch.randn(layers, heads, len(targets), len(sources), generator=torch.Generator().manual_seed(0))
    return AttentionRecord(sources, targets, (2 * scores).softmax(-1), kind)


def words(count: int) -> tuple[str, ...]:
    return tuple(f"word{i}" if i % 3 else "of" for i in range(count))


ENGLISH = ("why", "is", "the", "sky", "blue", "?", "[EOS]")
SPANISH = ("por", "qué", "es", "azul", "el", "cielo", "[EOS]")
DESKTOP, PHONE = {"width": 1200, "height": 900}, {"width": 360, "height": 740}


@contextmanager
def opened(
    chromium: Any,
    folder: Path,
    record: AttentionRecord | None,
    size: dict[str, int] = DESKTOP,
    scheme: str = "light",
    language: str = "en-US",
) -> Iterator[Any]:
    """The record's page, or the one that is there.

    It opens with less than five seconds of work, nothing is wrong on its console, and it is no wider than the screen.
    """
    if record is not None:
        save_html(record, folder / "page.html")
    context = chromium.new_context(viewport=size, color_scheme=scheme, locale=language)
    page = context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})  # not the time of whatever else is running
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    numbers = {number["name"]: number["value"] for number in session.send("Performance.getMetrics")["metrics"]}
    assert 0 < numbers["TaskDuration"] < 5
    yield page
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    context.close()


def lit(page: Any, side: str) -> list[float]:
    """How strongly each word of a text is colored."""
    style = "buttons => buttons.map(button => Number(button.style.getPropertyValue('--weight')))"
    return page.locator(f"#{side} button").evaluate_all(style)


def active(page: Any) -> tuple[str, int]:
    found = page.evaluate("[active.side, active.index]")
    return found[0], found[1]


def ink(page: Any, canvas: str) -> int:
    """How many pixels of a canvas are painted."""
    while page.evaluate("asked"):  # what was asked to be drawn
        page.wait_for_timeout(10)
    return page.evaluate(
        """name => {
          const canvas = document.getElementById(name), copy = new OffscreenCanvas(canvas.width, canvas.height);
          const pen = copy.getContext("2d", { willReadFrequently: true });
          pen.drawImage(canvas, 0, 0);
          const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
          let count = 0;
          for (let k = 3; k < data.length; k += 4) count += data[k] > 0;
          return count;
        }""",
        canvas,
    )


def assert_lit(page: Any, record: AttentionRecord, layer: int | None = None, head: int | None = None) -> None:
    """The colors and the sentence below are what the record says of the active word."""
    matrix = record.matrix(layer, head).double()
    side, index = active(page)
    weights = matrix[index] if side == "target" else matrix[:, index]
    greatest = max(weights.max(), matrix.max() / 4)
    shown = torch.tensor(lit(page, "source" if side == "target" else "target"), dtype=torch.float64)
    torch.testing.assert_close(shown, weights / greatest, atol=2e-3, rtol=0)
    assert set(lit(page, side)) == {0.0}
    names = record.tokens if side == "target" else record.target_tokens
    said = page.inner_text("#readout")
    order = [k for k in weights.argsort(descending=True).tolist() if weights[k] >= 0.01][:5]
    told = re.findall(r"(\S+)\s([\d.]+)\s%", said)
    assert [name for name, _ in told] == [names[k] for k in order]
    for k, (_, percent) in zip(order, told, strict=True):
        assert float(percent) == pytest.approx(100 * weights[k].item(), abs=0.51 if weights[k] > 0.0994 else 0.051)


# What is in a page


def test_rounded_weights_lie_within_their_bounds_and_zero_is_zero() -> None:
    weights = torch.randn(3, 4, 90, 90, generator=torch.Generator().manual_seed(0)).exp()
    weights = weights.masked_fill(torch.ones(90, 90).triu(1).bool(), 0)
    weights = weights / weights.sum(-1, keepdim=True)
    record = AttentionRecord(words(90), words(90), weights, "self")
    held = json.loads(re.findall(r'id="record">(.*?)</script>', render_html(record), re.DOTALL)[0])
    assert "weights" not in held
    expected = {
        "all": weights.mean((0, 1))[None], "heads": weights.mean(1), "layers": weights.mean(0),
        "weights": weights.flatten(0, 1),
    }  # fmt: skip
    assert held["parts"].keys() == expected.keys()
    for name, part in held["parts"].items():
        levels, per_byte, values, edges = (part[key] for key in ("levels", "per_byte", "values", "edges"))
        assert levels**per_byte <= 256 < levels ** (per_byte + 1)
        packed = zlib.decompress(base64.b64decode(part["data"]))
        length = -(-90 * 90 // per_byte)
        assert len(packed) == length * len(expected[name])
        for index, matrix in enumerate(expected[name].double()):
            digits = []
            for byte in packed[index * length : (index + 1) * length]:
                for _ in range(per_byte):
                    digits.append(byte % levels)
                    byte //= levels
            for digit, weight in list(zip(digits, matrix.flatten().tolist(), strict=False))[::7]:
                if digit == 0:
                    assert weight == values[0] == 0
                else:
                    assert edges[digit - 1] * 0.999 <= weight <= edges[digit] * 1.001
                    assert edges[digit - 1] * 0.999 <= values[digit] <= edges[digit] * 1.001


@pytest.mark.parametrize("case", ["negative", "equal", "zero"])
def test_unusual_weights_are_packed_too(case: str) -> None:
    weights = {
        "negative": torch.randn(1, 1, 250, 250, generator=torch.Generator().manual_seed(0)),
        "equal": torch.full((1, 1, 250, 250), 0.004),
        "zero": torch.zeros(1, 1, 250, 250),
    }[case]
    page = render_html(AttentionRecord(words(250), words(250), weights))
    part = json.loads(re.findall(r'id="record">(.*?)</script>', page, re.DOTALL)[0])["parts"]["weights"]
    packed = zlib.decompress(base64.b64decode(part["data"]))
    shown = torch.tensor(part["values"])[torch.tensor(list(packed))]
    torch.testing.assert_close(shown, weights.flatten(), atol=0.04, rtol=0)  # of weights from -5 to 5


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[AttentionRecord, Path]:
    """512 tokens, 12 layers, 12 heads, without any pattern but for one weight: nothing is harder to make small.

    And the folder of its page.
    """
    torch.manual_seed(0)
    scores = torch.randn(12, 12, 512, 512)
    scores[3, 5, 100, 77] = 8
    record = AttentionRecord(words(512), words(512), scores.softmax(-1), "self")
    folder = tmp_path_factory.mktemp("large")
    save_html(record, folder / "page.html")
    return record, folder


def test_a_page_of_512_tokens_and_144_heads_is_small(large: tuple[AttentionRecord, Path]) -> None:
    _, folder = large
    assert (folder / "page.html").stat().st_size < 5_000_000


# In a browser


def test_words_light_up_under_the_mouse_and_numbers_are_the_records(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    record = random_record(ENGLISH, SPANISH, 2, 3)
    with opened(browser, tmp_path, record) as page:
        for layer, head in ((None, None), (1, None), (None, 2), (0, 1)):
            page.select_option("#layer", index=0 if layer is None else layer + 1)
            page.select_option("#head", index=0 if head is None else head + 1)
            held = page.evaluate("Array.from(weights)")
            expected = record.matrix(layer, head).flatten()
            torch.testing.assert_close(torch.tensor(held), expected, rtol=1e-3, atol=1e-6)
            page.hover("#target button >> nth=3")
            assert active(page) == ("target", 3)
            assert_lit(page, record, layer, head)
            page.hover("#source button >> nth=5")
            assert active(page) == ("source", 5)
            assert_lit(page, record, layer, head)
        assert ink(page, "threads") > 100

        # A click holds a word, until the next or the same again.
        page.click("#target button >> nth=1")
        page.hover("#source button >> nth=0")
        assert active(page) == ("target", 1)
        page.click("#target button >> nth=1")
        page.hover("#source button >> nth=0")
        assert active(page) == ("source", 0)

        # The map: a cell tells its weight, a label its token.
        grid = page.evaluate("({left: grid.left, top: grid.top, cell: grid.cell})")
        for i, j in ((2, 4), (6, 0)):
            page.hover("#canvas", position={"x": grid["left"] + grid["cell"] * (j + 0.5),
                                            "y": grid["top"] + grid["cell"] * (i + 0.5)})  # fmt: skip
            assert active(page) == ("target", i)
            names, percent = page.get_attribute("#canvas", "title").removesuffix("\u202f%").split("  ")
            assert names == f"{SPANISH[i]} ← {ENGLISH[j]}"
            assert float(percent) == pytest.approx(100 * record.matrix(0, 1)[i, j].item(), abs=0.51)
        page.hover("#canvas", position={"x": grid["left"] + grid["cell"] * 2.5, "y": grid["top"] - 8})
        assert active(page) == ("source", 2)


def test_a_page_is_read_with_keys(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    record = random_record(ENGLISH, SPANISH[:3])
    matrix = record.matrix()
    with opened(browser, tmp_path, record) as page:
        assert page.locator("#layer").is_hidden()
        assert page.locator("#thumbs").is_hidden()
        page.focus("#target button >> nth=0")
        for key, expected in [
            ("ArrowRight", ("target", 1)),
            ("ArrowUp", ("source", matrix[1].argmax().item())),
            ("Home", ("source", 0)),
            ("ArrowLeft", ("source", 0)),
            ("ArrowDown", ("target", matrix[:, 0].argmax().item())),
            ("End", ("target", 2)),
            ("ArrowRight", ("target", 2)),
        ]:
            page.keyboard.press(key)
            assert active(page) == expected
            assert page.evaluate("document.activeElement === sides[active.side].buttons[active.index]")
            assert_lit(page, record)
        # One place of each text is reached with the tabulator.
        assert page.locator("ol button[tabindex='0']").count() == 1


@pytest.mark.parametrize(
    ("sources", "upright"),
    [(("girl", "did", "to", "eat", "little", "apples"), False), (("to", "eat"), True), ((*"22 nov", "[EOS]"), True)],
    ids=["words", "short", "characters"],
)
def test_labels_of_columns_have_one_orientation_and_do_not_touch(
    browser: Any,  # noqa: F811
    tmp_path: Path,
    sources: tuple[str, ...],
    upright: bool,
) -> None:
    for size in (DESKTOP, PHONE):
        with opened(browser, tmp_path, random_record(sources, SPANISH), size) as page:
            page.evaluate(
                """() => {
                  const pen = canvas.getContext("2d"), draw = pen.fillText;
                  globalThis.drawn = [];
                  pen.fillText = (text, x, y, widest = Infinity) => {
                    const { a, b, e, f } = pen.getTransform(), width = Math.min(widest, pen.measureText(text).width);
                    // Labels of rows are drawn at other places than the origin.
                    const high = parseFloat(pen.font);
                    if (x === 0 && y === 0) drawn.push({ turned: b !== 0, middle: e, width: b ? high : width });
                    draw.call(pen, text, x, y);
                  };
                  drawMap();
                }"""
            )
            labels = page.evaluate("drawn")
            assert len(labels) == len(sources)
            assert {label["turned"] for label in labels} == {not upright}
            for one, other in pairwise(labels):
                ratio = page.evaluate("devicePixelRatio")
                assert (other["middle"] - one["middle"]) / ratio >= (one["width"] + other["width"]) / 2


def test_the_flow_of_a_sentence_is_not_cut(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """All of a sentence of 48 tokens is visible without scrolling inside the page."""
    with opened(browser, tmp_path, random_record(words(48), words(30))) as page:
        page.click("#flow")
        assert page.evaluate("at('scroller').scrollHeight <= at('scroller').clientHeight")


PIECES = AttentionRecord(
    (" The", " little", " girl", ".", "[EOS]"),
    (" La", " ni", "ñ", "ita", ".", "[EOS]"),
    torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(3)).mul(2).softmax(-1),
    "cross",
    torch.linspace(0.5, 1, 6),
    torch.linspace(1, 0.1, 6),
)


def test_words_are_merged_and_special_tokens_hidden(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """As ``merge_words`` and ``hide_special`` do it, in every layer and head."""
    with opened(browser, tmp_path, PIECES) as page:
        page.focus("#target button >> nth=2")  # ñ
        assert page.locator("#how").is_hidden()
        for boxes, change in (
            (["#merge"], merge_words),
            (["#merge", "#hide"], lambda record: hide_special(merge_words(record))),
            (["#hide"], hide_special),
        ):
            for box in ("#merge", "#hide"):
                page.set_checked(box, box in boxes)
            expected = change(PIECES)
            assert expected.probabilities is not None
            for layer, head in ((None, None), (1, None), (0, 2)):
                page.select_option("#layer", index=0 if layer is None else layer + 1)
                page.select_option("#head", index=0 if head is None else head + 1)
                held = torch.tensor(page.evaluate("Array.from(weights)"))
                torch.testing.assert_close(held, expected.matrix(layer, head).flatten(), rtol=1e-3, atol=1e-6)
            spaced = [name.replace(" ", "␣") for name in expected.target_tokens]
            assert page.locator("#target button").all_inner_texts() == spaced
            assert page.evaluate("sides.target.tokens[active.index]").endswith("ñita" if "#merge" in boxes else " ni")
            assert page.locator("#how").is_visible()
            shown = page.locator("#target small").all_inner_texts()
            assert [float(text.split("\u202f")[0]) for text in shown] == pytest.approx(
                [100 * value for value in expected.probabilities.tolist()], abs=0.51
            )
            assert page.locator("#thumbs canvas").first.get_attribute("width") == str(len(expected.tokens))
    with opened(browser, tmp_path, random_record(("why", "is"), ("por", "qué"))) as page:
        for box in ("#merge", "#hide"):
            assert page.locator(box).is_hidden()


def test_each_target_token_has_its_probability(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, tmp_path, PIECES) as page:
        assert page.locator("#target small").first.inner_text() == "50\u202f%"
        page.hover("#target button >> nth=0")
        assert page.inner_text("#readout").startswith("␣La (probability 50\u202f%, entropy 1.00 nats) attends to")
        page.hover("#source button >> nth=0")
        assert "probability" not in page.inner_text("#readout")


def test_lines_of_each_head_have_a_color(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, tmp_path, PIECES) as page:
        colors = """() => { const pen = at("threads").getContext("2d"), drawn = new Set(), draw = pen.stroke;
            pen.stroke = () => { drawn.add(pen.strokeStyle); draw.call(pen); }; drawThreads(); pen.stroke = draw;
            return [...drawn]; }"""
        assert len(page.evaluate(colors)) == 1
        page.check("#paint")
        assert page.locator("#legend button").all_inner_texts() == ["H1", "H2", "H3"]
        assert len(page.evaluate(colors)) == 3
        page.click("#legend button >> nth=1")
        assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "false"
        assert len(page.evaluate(colors)) == 2
        for k, layer in ((0, None), (2, 1)):
            page.select_option("#layer", index=0 if layer is None else layer + 1)
            held = torch.tensor(page.evaluate(f"Array.from(series[{k}].weights)"))
            torch.testing.assert_close(held, PIECES.matrix(layer, k).flatten(), rtol=1e-3, atol=1e-6)
        assert page.get_attribute("#legend button >> nth=1", "aria-pressed") == "false"
        page.click("#flow")
        assert page.locator("#legend").is_hidden()


def test_the_map_is_saved(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, tmp_path, PIECES) as page:
        page.select_option("#layer", index=2)
        page.check("#merge")
        saved = {}
        for kind in ("svg", "png", "csv"):
            with page.expect_download() as download:
                page.click(f"#{kind}")
            assert download.value.suggested_filename == f"attention-L2.{kind}"
            saved[kind] = Path(download.value.path()).read_bytes()
        expected = merge_words(PIECES)
        header, *rows = csv.reader(saved["csv"].decode().splitlines())
        assert header == ["", *expected.tokens, "probability", "entropy"]
        assert [row[0] for row in rows] == list(expected.target_tokens)
        numbers = torch.tensor([[float(cell) for cell in row[1:]] for row in rows])
        assert expected.probabilities is not None
        assert expected.entropies is not None
        columns = [expected.matrix(1).float(), expected.probabilities[:, None], expected.entropies[:, None]]
        torch.testing.assert_close(numbers, torch.cat(columns, 1), rtol=1e-3, atol=1e-6)

        drawn = ElementTree.fromstring(saved["svg"])
        texts = [element.text for element in drawn.iter("{http://www.w3.org/2000/svg}text")]
        assert {*expected.tokens, *expected.target_tokens, "Alignment"} <= set(texts)
        cells = [element.get("fill") for element in drawn.iter("{http://www.w3.org/2000/svg}rect")]
        assert page.evaluate("colors[255]") in cells[1 : 1 + expected.matrix().numel()]
        with Image.open(io.BytesIO(saved["png"])) as image:
            assert image.size == tuple(math.ceil(2 * float(drawn.attrib[side])) for side in ("width", "height"))


def test_a_page_opens_on_the_row_that_is_asked_for(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    save_html(PIECES, tmp_path / "page.html", row=4)
    with opened(browser, tmp_path, None) as page:
        assert active(page) == ("target", 4)
        assert page.inner_text("#readout").startswith(". (probability 90")
    with pytest.raises(ValueError, match="row is 6; write 0 to 5"):
        render_html(PIECES, row=6)


def test_a_page_takes_the_theme_of_its_site(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    with opened(browser, tmp_path, PIECES, scheme="dark") as page:
        colors = "[css('--page'), colors[0], getComputedStyle(root).colorScheme]"
        dark = page.evaluate(colors)
        page.evaluate("postMessage({ theme: 'light' }, '*')")
        wait_until(page, "!dark()")
        light = page.evaluate(colors)
        assert all(one != other for one, other in zip(dark, light, strict=True))
        page.evaluate("darkness.dispatchEvent(new Event('change'))")  # a change of the system's theme comes later
        assert page.evaluate(colors) == dark


def test_two_hypotheses_are_read_side_by_side(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    other = AttentionRecord(PIECES.tokens, (" La", " chica", "[EOS]"), PIECES.weights[:, :, :3])
    page_text = render_comparison({"1. <b>": PIECES, "2. other": other}, "A & B")
    (tmp_path / "both.html").write_text(page_text, encoding="utf-8")
    page = browser.new_page(viewport=DESKTOP)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "both.html").as_uri())
    frames = page.frames[1:]
    for frame in frames:
        frame.wait_for_selector("html[data-ready]")
    assert [frame.inner_text("h1") for frame in frames] == ["1. <b>", "2. other"]
    tops = [page.locator("iframe").nth(k).bounding_box()["y"] for k in range(2)]
    assert tops[0] == tops[1]
    state = "[active.side, active.index, layer, head, flowing, merging]"
    frames[0].hover("#source button >> nth=1")
    wait_until(frames[1], "active.side === 'source'")
    assert frames[1].evaluate(state)[:2] == ["source", 1]
    frames[1].select_option("#head", index=2)
    frames[1].check("#merge")
    frames[1].click("#flow")
    wait_until(frames[0], "flowing && merging && head === 1")
    assert frames[0].evaluate(state)[2:] == frames[1].evaluate(state)[2:] == [-1, 1, True, True]
    frames[1].hover("#target button >> nth=2")  # the other text has other words
    page.wait_for_timeout(100)
    assert frames[0].evaluate(state)[:2] == ["source", 1]
    assert said == []
    page.close()
    for records, message in (
        ({"a": PIECES}, "at least two records"),
        ({"a": PIECES, "b": random_record(ENGLISH, SPANISH, 2, 3)}, "different sources, layers or heads"),
    ):
        with pytest.raises(ValueError, match=message):
            render_comparison(records)


def test_a_list_of_records_shows_one_at_a_time(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    listed = [("a <i> __TITLE__ $x", PIECES), ("</script>", random_record(HARD, ("$record", "__RECORD__")))]
    (tmp_path / "list.html").write_text(render_list(listed, "Two"), encoding="utf-8")
    page = browser.new_page(viewport=PHONE)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((tmp_path / "list.html").as_uri())
    frame = page.frame_locator("iframe")
    for k, (title, record) in enumerate(listed):
        frame.locator(f"#target button >> nth={len(record.target_tokens) - 1}").wait_for()
        assert frame.locator("h1").inner_text() == title
        assert page.input_value("#text") == str(k)
        assert frame.locator("#source button").count() == len(record.tokens)
        assert page.locator("#after").is_disabled() == (k == 1)
        if k == 0:
            page.click("#after")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert said == []
    page.close()
    with pytest.raises(ValueError, match="The list of records is empty"):
        render_list([])


def test_a_time_lapse_shows_row_after_row(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    record = random_record(ENGLISH, SPANISH[:4])
    with opened(browser, tmp_path, record) as page:
        whole = ink(page, "canvas")
        page.clock.install(time=0)
        page.clock.pause_at(1000)
        page.evaluate("at('play').click()")  # a mouse would wait for the clock
        seen = []
        for row in range(4):
            assert active(page) == ("target", row)
            assert page.inner_text("#play") == "■ Stop"
            assert_lit(page, record)
            page.clock.run_for(100)  # a picture is drawn
            seen.append(ink(page, "canvas"))
            page.clock.run_for(550)
        page.clock.run_for(100)
        assert page.inner_text("#play") == "▶ Play"
        assert seen == sorted(set(seen))
        assert seen[0] < 0.7 * whole
        assert ink(page, "canvas") == seen[3]


def test_a_map_of_each_head_to_choose_from(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    record = random_record(ENGLISH, ENGLISH, 2, 3, "self")
    with opened(browser, tmp_path, record) as page:
        maps = page.locator("#thumbs button")
        assert maps.count() == 3 * 4  # with the means
        assert page.get_attribute("#thumbs button[aria-pressed=true]", "aria-label") == (
            "mean of the layers, mean of the heads"
        )
        page.click("[aria-label='layer 2, head 1']")
        assert (page.input_value("#layer"), page.input_value("#head")) == ("1", "0")
        assert_lit(page, record, 1, 0)
        page.keyboard.press("ArrowRight")
        assert_lit(page, record, 1, 1)
        page.keyboard.press("ArrowUp")
        assert_lit(page, record, 0, 1)
        page.keyboard.press("ArrowUp")  # there is none above
        assert_lit(page, record, 0, 1)
        assert page.locator("#thumbs button[aria-pressed=true]").count() == 1
        page.select_option("#head", index=0)
        assert page.get_attribute("#thumbs button[aria-pressed=true]", "aria-label") == "layer 1, mean of the heads"
        # The darkest dot of a head's map is its greatest weight.
        for layer, head in ((0, 0), (1, 2)):
            darkest = page.evaluate(
                """name => {
                  const canvas = document.querySelector(`[aria-label='${name}'] canvas`);
                  const copy = new OffscreenCanvas(canvas.width, canvas.height);
                  const pen = copy.getContext("2d", { willReadFrequently: true });
                  pen.drawImage(canvas, 0, 0);
                  const data = pen.getImageData(0, 0, canvas.width, canvas.height).data;
                  const light = Array.from({ length: data.length / 4 }, (_, k) => data[4 * k + 1]);
                  return light.indexOf(Math.min(...light));
                }""",
                f"layer {layer + 1}, head {head + 1}",
            )
            assert darkest == record.matrix(layer, head).argmax().item()


def test_all_threads_above_a_threshold(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    record = random_record(ENGLISH, SPANISH)
    with opened(browser, tmp_path, record) as page:
        few = ink(page, "threads")
        page.click("#flow")
        assert ink(page, "threads") > 2 * few
        weights = record.matrix().flatten()
        for share in (30.0, 60.0, 100.0):
            page.locator("#threshold").fill(str(share))
            limit = (share / 100) ** 2 * weights.max()
            expected = (weights >= limit * 0.9999).nonzero().flatten().tolist()
            assert sorted(page.evaluate("flow")) == expected
            assert page.inner_text("#count").endswith(f": {len(expected)}")
        # One text beside the other, and keys to match.
        boxes = page.evaluate(
            """["source", "target"].map(side => sides[side].buttons.map(button => {
              const { left, right, top } = button.getBoundingClientRect(); return { left, right, top }; }))"""
        )
        assert max(box["right"] for box in boxes[0]) < min(box["left"] for box in boxes[1])
        for side in boxes:
            assert [box["top"] for box in side] == sorted(box["top"] for box in side)
        page.focus("#target button >> nth=0")
        page.keyboard.press("ArrowDown")
        assert active(page) == ("target", 1)
        page.keyboard.press("ArrowLeft")
        assert active(page) == ("source", record.matrix()[1].argmax().item())
        page.hover("#target button >> nth=4")
        assert_lit(page, record)
        page.click("#lines")
        assert page.locator("#limit").is_hidden()


@pytest.mark.parametrize("script", ["arabic", "chinese"])
def test_texts_of_other_scripts(browser: Any, tmp_path: Path, script: str) -> None:  # noqa: F811
    text, rtl = {
        "arabic": (("لماذا", "السماء", "زرقاء", "؟", "</s>"), True),
        "chinese": (("▁天空", "为什么", "是", "蓝色", "的", "？"), False),
    }[script]
    record = random_record(text, ENGLISH)
    with opened(browser, tmp_path, record, PHONE) as page:
        lefts = page.locator("#source button").evaluate_all("all => all.map(b => b.getBoundingClientRect().left)")
        tops = page.locator("#source button").evaluate_all("all => all.map(b => b.getBoundingClientRect().top)")
        first = [left for left, top in zip(lefts, tops, strict=True) if top == tops[0]]
        assert len(first) > 2
        assert first == sorted(first, reverse=rtl)
        # The arrow that points to the next word leads to it.
        page.focus("#source button >> nth=0")
        page.keyboard.press("ArrowLeft" if rtl else "ArrowRight")
        assert active(page) == ("source", 1)
        assert_lit(page, record)
        page.click("#flow")
        assert ink(page, "threads") > 100


HARD = (" like", "▁I", "\n", "</script><img src=x onerror=alert(1)>", "$record", "", "\u2028", "👩‍🚀", "x" * 300)


@pytest.mark.parametrize(
    ("sources", "targets", "scheme"),
    [
        (("hello",), ("hola",), "light"),
        (HARD, HARD[::-1], "dark"),
        (words(200), words(200), "light"),
        (words(3), words(90), "dark"),
    ],
    ids=["1", "hard", "200", "3-90"],
)
def test_a_phone_shows_any_text_without_being_pushed_sideways(
    browser: Any,  # noqa: F811
    tmp_path: Path,
    sources: tuple[str, ...],
    targets: tuple[str, ...],
    scheme: str,
) -> None:
    record = random_record(sources, targets, 1, 2)
    with opened(browser, tmp_path, record, PHONE, scheme) as page:
        assert page.evaluate("document.images.length") == 0
        page.focus("#target button >> nth=0")
        page.keyboard.press("End")
        assert active(page) == ("target", len(targets) - 1)
        assert ink(page, "canvas") > 100
        # The row is in sight in the map, and the word in its box.
        assert page.evaluate("grid.cell * active.index - map.scrollTop + grid.top < grid.height")
        page.click("#flow")
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        box = page.evaluate(
            """(() => { const a = sides.target.buttons.at(-1).getBoundingClientRect();
                const b = at("scroller").getBoundingClientRect(); return [a.top - b.top, b.bottom - a.bottom]; })()"""
        )
        assert min(box) > -1
        assert ink(page, "threads") > 20


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stay_legible_on_any_color(browser: Any, tmp_path: Path, scheme: str) -> None:  # noqa: F811
    weights = torch.linspace(0, 1, 41)[None, None, None]
    record = AttentionRecord(words(41), ("x",), weights)
    with opened(browser, tmp_path, record, DESKTOP, scheme) as page:
        contrasts = page.evaluate(
            """() => {
              const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
              const light = color => {
                pen.fillStyle = color;
                pen.fillRect(0, 0, 1, 1);
                const parts = [...pen.getImageData(0, 0, 1, 1).data].slice(0, 3).map(c => c / 255);
                const [r, g, b] = parts.map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
              };
              return sides.source.buttons.map(button => {
                const { color, backgroundColor } = getComputedStyle(button);
                const [a, b] = [light(color), light(backgroundColor)].sort((x, y) => y - x);
                return (a + 0.05) / (b + 0.05);
              });
            }"""
        )
        assert min(contrasts) >= 4.5  # WCAG 2.2, 1.4.3


def test_a_page_of_512_tokens_and_144_heads_opens_and_says_how_exact_it_is(
    browser: Any,  # noqa: F811
    large: tuple[AttentionRecord, Path],
) -> None:
    record, folder = large
    row = "Array.from(weights.subarray(100 * 512, 101 * 512))"
    with opened(browser, folder, None) as page:
        assert "rounded to 256 levels" in page.inner_text("#note")
        torch.testing.assert_close(torch.tensor(page.evaluate(row)), record.matrix()[100], rtol=0.01, atol=0)

        page.select_option("#layer", index=4)
        page.select_option("#head", index=6)
        levels = int(re.findall(r"rounded to (\d+) levels", page.inner_text("#note"))[0])
        assert levels >= 4
        rounded, true = torch.tensor(page.evaluate(row)), record.matrix(3, 5)[100]
        assert rounded.argmax() == true.argmax() == 77
        assert 2 <= rounded.unique().numel() <= levels
        for k in (77, 78):
            said = page.evaluate(f"bounds(weights[100 * 512 + {k}])")
            low, high = map(float, re.findall(r"([\d.]+) to ([\d.]+)", said)[0])
            assert low <= 100 * true[k] <= high
            assert low < 100 * rounded[k] < high

        # It walks, scrolls and draws all of it without a stop.
        page.focus("#target button >> nth=0")
        page.keyboard.press("End")
        assert active(page) == ("target", 511)
        assert ink(page, "canvas") > 1000
        page.click("#flow")
        assert 500 < page.evaluate("flow.length") <= 4000
        page.locator("#threshold").fill("0")
        assert "the strongest 4000 of 262144" in page.inner_text("#count")
        assert ink(page, "threads") > 1000


# In a notebook


def test_a_notebook_shows_a_record_in_a_frame_of_its_own(browser: Any) -> None:  # noqa: F811
    record = random_record(ENGLISH, SPANISH)
    page = browser.new_page(viewport=DESKTOP)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.set_content(f"<h1>Notebook</h1>{record._repr_html_()}")
    frame = page.frame_locator("iframe")
    frame.locator("#target button >> nth=2").hover()
    assert frame.locator("#readout").inner_text().startswith("es attends to")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).marginTop") != "0px"
    assert said == []
    page.close()


def test_a_record_says_where_it_can_be_shown() -> None:
    with pytest.raises(ValueError, match=r"show\(\) works in a notebook only; elsewhere, write to_html"):
        random_record(ENGLISH, SPANISH).show()


PUBLISHED = """
import sys
if {blocked}:
    sys.modules['hfattn'] = None  # as if it were not installed
import torch
from repo.alignment import AttentionRecord
weights = torch.tensor([[[[0.5, 0.5, 0], [0.996, 0.003, 0.001]]]])
record = AttentionRecord(('why ', 'is', '<b>'), ('por', 'qué'), weights)
open('table.html', 'w', encoding='utf-8').write(record.to_html('Kept & shown'))
if not {blocked}:
    from hfattn.explaining import render_html, save_html
    save_html(record, 'page.html')
try:
    from IPython.core.interactiveshell import InteractiveShell
except ModuleNotFoundError:
    sys.exit()
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
with capture_output() as captured:
    from IPython.display import display
    display(record)
try:
    record.show()
except ValueError as error:
    assert 'display(record)' in str(error)
(output,) = captured.outputs
assert 'srcdoc=' in output.data['text/html']
assert output.data['text/plain'].startswith('AttentionRecord(')
"""


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder with the files that a translator's repository has for its records."""
    copied = get_relative_import_files(MODELS / "pipeline_attn_translation.py")
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo" / "__init__.py").touch()
    for name in copied:
        shutil.copy(name, tmp_path / "repo")
    return tmp_path


def test_a_published_record_is_a_table_where_hfattn_is_not_installed(published: Path, browser: Any) -> None:  # noqa: F811
    done = run([sys.executable, "-c", PUBLISHED.format(blocked=True)], cwd=published)
    assert done.returncode == 0, done.stderr
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        page = context.new_page()
        said: list[str] = []
        page.on("console", lambda message, said=said: said.append(message.text))
        page.goto((published / "table.html").as_uri())
        assert page.title() == page.inner_text("h1") == "Kept & shown"
        assert page.locator("thead th").all_inner_texts() == ["", "why␣", "is", "<b>"]
        assert page.locator("tbody th").all_inner_texts() == ["por", "qué"]
        assert page.locator("tbody td").all_inner_texts() == ["50", "50", "", "100", "", ""]
        background = "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
        half, same, none, whole, *_ = page.locator("tbody td").evaluate_all(background)
        assert half == same
        assert len({half, none, whole}) == 3
        assert said == []
        context.close()


def test_a_published_record_is_drawn_by_hfattn_where_it_is_installed(published: Path) -> None:
    done = run([sys.executable, "-c", PUBLISHED.format(blocked=False)], cwd=published)
    assert done.returncode == 0, done.stderr
    assert "<script>" not in (published / "table.html").read_text(encoding="utf-8")
    assert "<script>" in (published / "page.html").read_text(encoding="utf-8")


def test_a_record_of_hfattn_is_the_interactive_page() -> None:
    record = random_record(ENGLISH, SPANISH)
    assert record.to_html("A title") == render_html(record, "A title")
    assert html.escape(render_html(record)) in record._repr_html_()


def test_the_table_of_a_record_has_percentages_of_the_mean_over_its_heads() -> None:
    weights = torch.tensor([[[[0.25, -0.5]], [[0.75, 0.0]]]])
    table = render_table(AttentionRecord(("a", "b"), ("c",), weights, "self"))
    assert re.findall(r"<td[^>]*>(-?\d+)%?", table) == ["50", "-25"]
    assert "mean over 1 layer and 2 heads" in table
    assert "<title>Self-attention</title>" in table


def test_the_scripts_are_valid() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("There is no node on the PATH")
    for script in (ROOT / "hfattn" / "explaining" / "page").glob("*.js"):
        done = run_anew([node, "--check", script])
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["cross", "self"])
def test_a_spanish_browser_reads_spanish(browser: Any, tmp_path: Path, kind: str) -> None:  # noqa: F811
    """Every word of the page, those of screen readers too, is another one than in English; the numbers are not."""
    words = "elements => elements.map(element => element.textContent || element.getAttribute('aria-label')).join('|')"
    said = {}
    for language in ("en-US", "es-MX"):
        sources = SPANISH if kind == "self" else ENGLISH
        with opened(browser, tmp_path, random_record(sources, SPANISH, 2, 2, kind), language=language) as page:
            page.click("#flow")
            page.evaluate("show('target', 1)")
            said[language] = {
                name: page.locator(name).evaluate_all(words)
                for name in (
                    "#hint",
                    "#play",
                    "[data-say]",
                    "[data-label]",
                    "#layer option",
                    "#source-name",
                    "#readout",
                )
            } | {name: page.locator("#canvas").get_attribute("aria-label") for name in ("canvas",)}
            assert page.get_attribute("html", "lang") == language[:2]
    for name, text in said["en-US"].items():
        assert text != said["es-MX"][name], name
    assert re.findall(r"[\d.]+", said["en-US"]["#readout"]) == re.findall(r"[\d.]+", said["es-MX"]["#readout"])


# Over an image


def random_image(side: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8))


def image_record(grid: tuple[int, int], words: tuple[str, ...], layers: int = 1, heads: int = 1) -> AttentionRecord:
    record = random_record(image_tokens(grid), words, layers, heads)
    return replace(record, grid=grid, probabilities=torch.linspace(0.5, 1, len(words)))


def strongest(values: torch.Tensor) -> str:
    row, column = divmod(int(values.abs().argmax()), values.shape[1])
    return f"row {row + 1}, column {column + 1}"


def test_the_page_of_a_caption_is_small_and_its_weights_are_nearly_exact(tmp_path: Path) -> None:
    """14 layers of 14 heads, 20 words, 14 x 14 patches, and a large image that cannot be compressed."""
    record = image_record((14, 14), words(20), 14, 14)
    save_image_html(random_image(768), {"attention": record}, tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size < 3_000_000
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    (view,) = json.loads(re.findall(r'id="record">(.*?)</script>', page, re.DOTALL)[0])["views"]
    levels = torch.tensor(list(base64.b64decode(view["data"])), dtype=torch.float64).view(-1, 14 * 14)
    largest = torch.tensor(view["largest"], dtype=torch.float64)[:, None]
    error = (levels / 255 * largest - record.weights.flatten(0, 2).double()).abs() / largest
    assert error.max() < 0.5 / 255 + 1e-3


def test_words_lay_their_maps_over_the_image(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """With the mouse, and with keys; the colors are those of the figures, and what is said is what the record says."""
    record = image_record((3, 4), ("a", "red", "cat", "[EOS]"), 2, 2)
    scored = [ScoredImage(torch.randn(3, 4), "gradient × input", word) for word in record.target_tokens]
    image = Image.new("RGB", (224, 224), (90, 140, 200))
    save_image_html(image, {"attention": record, "gradient": scored}, tmp_path / "page.html", "A red cat")

    def check(word: int, layer: int | None = None, head: int | None = None) -> None:
        labels = page.locator("#views canvas").evaluate_all("all => all.map(each => each.getAttribute('aria-label'))")
        maps = [record.maps(layer, head)[word], scored[word].scores]
        for label, values in zip(labels, maps, strict=True):
            assert f", {record.target_tokens[word]}" in label
            assert f"most at {strongest(values)}:" in label
        assert page.inner_text("#readout").splitlines() == labels

    with opened(browser, tmp_path, None) as page:
        assert page.inner_text("#disagree").startswith("These methods can disagree")
        check(0)
        page.hover("#words button >> nth=2")
        check(2)
        page.click("#words button >> nth=1")  # a click holds it
        page.hover("#words button >> nth=0")
        check(1)
        page.keyboard.press("Escape")
        page.focus("#words button >> nth=1")
        for key, word in (("ArrowRight", 2), ("End", 3), ("Home", 0), ("ArrowLeft", 0)):
            page.keyboard.press(key)
            check(word)
        page.select_option("#layer", index=2)
        page.select_option("#head", index=1)
        check(0, 1, 0)
        page.click("#thumbs button >> nth=1")
        check(0, 0, 1)
        assert page.locator("#thumbs button[tabindex='0']").count() == 1

        # The colors are those of lay_over; the patch under the mouse is named in all views.
        for place, (values, signed) in enumerate(((record.maps(0, 1)[0], False), (scored[0].scores, True))):
            data = page.evaluate(
                """place => {
                  const { canvas } = places[place], pen = canvas.getContext("2d"), row = canvas.height / 3;
                  return [...pen.getImageData(0, row, canvas.width, 1).data];
                }""",
                place,
            )
            width = len(data) // 4
            pixels = np.array(data, dtype=float).reshape(width, 4)[:, :3]
            expected = np.asarray(lay_over(image.resize((width, width)), values, signed))[width // 3]
            difference = float(np.abs(pixels - expected).max())
            assert difference < 8  # of 255: weights are rounded to bytes, and the image is a JPEG
        page.hover("#views canvas >> nth=0", position={"x": 2, "y": 2})
        assert "row 1, column 1: " in page.inner_text("#readout").splitlines()[1]
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert violations(page) == []


def test_heads_lay_their_maps_over_the_image_in_spanish(browser: Any, tmp_path: Path) -> None:  # noqa: F811
    """A vision Transformer: the row of the class token of each head, and rollout beside it."""
    tokens = image_tokens((2, 2), ("[CLS]",))
    record = replace(random_record(tokens, tokens, 3, 2, "self"), grid=(2, 2), num_prefix_tokens=1)
    save_image_html(random_image(28), {"attention": record, "rollout": rollout(record)}, tmp_path / "page.html")

    def said() -> list[str]:
        return page.inner_text("#readout").splitlines()

    with opened(browser, tmp_path, None, PHONE, language="es-ES") as page:
        assert page.locator("#words").is_hidden()
        assert said()[0].startswith("Atención (capa 3, media de las cabezas): sobre todo en fila ")
        last = said()[1]
        assert last.startswith("Atención a través de las capas: ")
        page.focus("#thumbs button[aria-pressed=true]")
        page.keyboard.press("ArrowUp")
        page.keyboard.press("ArrowLeft")
        place = strongest(record.maps(1, 1)[0]).replace("row", "fila").replace("column", "columna")
        assert said()[0].startswith(f"Atención (capa 2, cabeza 2): sobre todo en {place}:")
        assert said()[1] == last
        assert violations(page) == []


def test_what_does_not_lie_over_an_image() -> None:
    record = image_record((2, 2), ("a", "b"))
    flat = random_record(ENGLISH, SPANISH)
    other = image_record((2, 3), ("a", "b"))
    for views, row, message in (
        ({}, None, "There is nothing to show"),
        ({"attention": flat}, None, "has no grid.*use render_html"),
        ({"attention": record, "other": other}, None, "different grids or numbers of words"),
        ({"attention": record}, 2, "row is 2; write 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            render_image_html(random_image(8), views, row=row)

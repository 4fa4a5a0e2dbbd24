"""Attention lab: its figures match the formulas, and a user can move the points."""

import itertools
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from browser import browser as browser
from browser import visited
from commands import ROOT
from gradio_client import Client
from playwright.sync_api import Browser, Locator
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError
from space_server import served
from space_server import user as user

from hfattn.attention import DISTRIBUTIONS, LAYOUTS, SCORES, attend

LINE: list[list[Any]] = [[-3, -2], [0.5, 3], [2.5, 1]]
PLANE: list[list[Any]] = [[-3, 2, 2, 4], [-3, -2, 4, 0], [-1, 0, None, None]]
OPTIONS = {
    "score": "gaussian", "distribution": "softmax", "s": 0.7, "p": 3, "beta": 3, "feature_map": "elu", "seed": 1,
    "alpha": 1.5, "dissimilarity": "manhattan", "pattern": "full", "causal": False, "size": 2, "dilation": 1,
    "position": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("spaces") / "lab"
    with served("attention_lab", folder) as address:
        yield address


def numbers(text: str) -> list[float]:
    return [float(each.replace("−", "-")) for each in re.findall(r"[−-]?\d+(?:\.\d+)?(?:e[+−-]\d+)?", text)]


def rows(page: str) -> tuple[list[float], list[float]]:
    """Energies and weights of the table."""
    found = re.findall(r"<td>([^<]*)</td><td class=\"bar\">.*?</td><td>([^<]*)</td>", page)
    energies = [math.nan if energy == "–" else numbers(energy)[0] for energy, _ in found]  # – if a key is not seen
    return energies, [numbers(weight)[0] for _, weight in found]


def context(page: str) -> list[float]:
    return numbers(re.findall(r"<span>c = <b>(.*?)</b>", page)[0])


def table(keys: list[list[Any]]) -> dict[str, Any]:
    return {"headers": [str(i) for i in range(len(keys[0]))], "data": keys}


def line(user: Client, keys: list[list[Any]] = LINE, query: float = 0.8, **options: Any) -> tuple[str, str, str]:
    return user.predict(keys=table(keys), query=query, **{**OPTIONS, **options}, api_name="/line")


def plane(user: Client, keys: list[list[Any]] = PLANE, x: float = 1.5, y: float = 1.0, **options: Any) -> list[str]:
    return user.predict(keys=table(keys), query_x=x, query_y=y, **{**OPTIONS, **options}, api_name="/plane")


def test_on_a_line_it_is_the_estimate_of_nadaraya_and_watson(user: Client) -> None:
    picture, shown, _ = line(user)

    def estimate(query: float) -> tuple[list[float], float]:
        kernels = [math.exp(-((query - key) ** 2) / (2 * 0.7**2)) for key, _ in LINE]
        weights = [kernel / sum(kernels) for kernel in kernels]
        return weights, sum(weight * value for weight, (_, value) in zip(weights, LINE, strict=True))

    weights, mean = estimate(0.8)
    assert rows(shown)[1] == pytest.approx(weights, abs=6e-4)
    assert context(shown) == pytest.approx([mean], abs=6e-3)
    # The curve, read back from the picture.
    left, top, width, height, x0, x1, y0, y1 = map(float, re.findall(r'data-frame="(.*?)"', picture)[0].split())
    curve = re.findall(r'class="curve" points="(.*?)"', picture)[0].split()
    assert len(curve) > 100
    for point in curve[::20]:
        x, y = map(float, point.split(","))
        query, value = x0 + (x - left) / width * (x1 - x0), y0 + (1 - (y - top) / height) * (y1 - y0)
        assert value == pytest.approx(estimate(query)[1], abs=0.15)


def test_every_score_and_every_distribution_is_that_of_the_package(user: Client) -> None:
    key = torch.tensor([*PLANE[:2], [-1, 0, -1, 0]], dtype=torch.float64)
    key, value, query = key[:, :2], key[:, 2:], torch.tensor([[1.5, 1.0]], dtype=torch.float64)
    learned = {"general", "biased_general", "activated_general", "additive", "deep", "location", "feature"}
    learned |= {"standardized_euclidean", "mahalanobis", "cosine"}
    given: dict[str, dict[str, Any]] = {"gaussian": {"s": 0.7}, "minkowski": {"p": 3}}
    for score in [name for name in SCORES if name != "concat"]:
        _, shown, hand = plane(user, score=score)
        energies, weights = rows(shown)
        expected = np.exp(energies) / np.exp(energies).sum()
        assert weights == pytest.approx(expected.tolist(), abs=0.01)
        assert sum(weights) == pytest.approx(1, abs=2e-3)
        assert (r"\begin{pmatrix}" in hand) == (score in learned - {"cosine"})
        if score not in learned:
            mean, exact = attend(query, key, value, score, score_options=given.get(score))
            assert exact is not None
            assert weights == pytest.approx(exact[0].tolist(), abs=6e-4)
            assert context(shown) == pytest.approx(mean[0].tolist(), abs=6e-3)
    for distribution in DISTRIBUTIONS:
        _, shown, _ = plane(user, distribution=distribution, score="boxcar", x=-2.5, y=1.5)
        options = {"alpha": 1.5} if distribution == "entmax" else {}
        exact = attend(
            torch.tensor([[-2.5, 1.5]]).double(), key, value, "boxcar", distribution, distribution_options=options
        )[1]
        assert exact is not None
        if distribution == "hard":  # the largest energy, never a draw
            exact = torch.tensor([[1.0, 0.0, 0.0]])
        assert rows(shown)[1] == pytest.approx(exact[0].tolist(), abs=6e-4), distribution


def test_every_pattern_is_that_of_the_package_and_of_the_code_that_is_shown(user: Client) -> None:
    """At each position, causal and not. Keys that are not seen have no energy, no weight and a mark of their own."""
    keys: list[list[Any]] = [[-4, 1], [-3, -2], [-1, 2], [0.5, 3], [2.5, 1], [4, -3]]
    key, value = torch.tensor(keys, dtype=torch.float64)[:, :, None].unbind(1)
    queries = torch.full((6, 1), 0.8, dtype=torch.float64)  # one at each position
    listed = user.view_api(print_info=False, return_format="dict")["named_endpoints"]["/line"]["parameters"]
    (names,) = [each["type"]["enum"] for each in listed if each["parameter_name"] == "pattern"]
    assert set(names) == {"full", *LAYOUTS}
    hidden = 0
    for pattern, causal, position in itertools.product(names, (False, True), (1, 4, 6)):
        if pattern == "full" and not causal:
            continue
        chosen: dict[str, Any] = {"pattern": pattern, "causal": causal, "position": position}
        picture, shown, hand = line(user, keys, score="manhattan", distribution="sparsemax", **chosen)
        code = hand.partition("```python")[2].partition("```")[0]
        found: dict[str, Any] = {"attend": attend, "queries": queries, "key": key, "value": value}
        exec(code, found)
        assert f"weights[{position - 1}]" in code
        energies, weights = rows(shown)
        assert weights == pytest.approx(found["weights"][position - 1].tolist(), abs=6e-4)
        assert context(shown) == pytest.approx(found["context"][position - 1].tolist(), abs=6e-3)
        exec(code.replace("sparsemax", "softmax"), found)
        unseen = (found["weights"][position - 1] == 0).tolist()
        assert [math.isnan(energy) for energy in energies] == unseen
        assert picture.count("mark unseen") == sum(unseen)
        hidden += sum(unseen)
    assert hidden > 10
    assert sum(rows(line(user, keys, score="location", causal=True)[1])[1]) == pytest.approx(1, abs=2e-3)
    assert "score location needs the index" in line(user, keys, score="location", pattern="window")[0]
    last = line(user, LINE, pattern="window", size=1, position=12)  # there are three keys
    assert rows(last[1])[1] == [0, 0, 1]


def test_learned_matrices_are_used_as_they_are_shown(user: Client) -> None:
    keys = np.array([[-3, 2], [-3, -2], [-1, 0]], dtype=float)
    _, shown, hand = plane(user, score="general", seed=7)
    w = np.array(numbers(re.findall(r"W = \\begin{pmatrix}(.*?)\\end", hand)[0])).reshape(2, 2)
    assert rows(shown)[0] == pytest.approx((np.array([1.5, 1.0]) @ w @ keys.T).tolist(), abs=6e-3)
    assert hand != plane(user, score="general", seed=8)[2]
    _, shown, hand = line(user, score="additive", seed=7)
    found = {
        name.replace("{", "").replace("}", ""): np.array(numbers(body))
        for name, body in re.findall(r"(v|W_\{[qk]\}) = \\begin{pmatrix}(.*?)\\end", hand)
    }
    assert {name: len(numbers) for name, numbers in found.items()} == {"v": 3, "W_q": 3, "W_k": 3}
    energies = [found["v"] @ np.tanh(found["W_q"] * 0.8 + found["W_k"] * key) for key, _ in LINE]
    assert rows(shown)[0] == pytest.approx(energies, abs=6e-3)


def test_what_is_said_beside_the_numbers(user: Client) -> None:
    assert "⚠️" not in line(user)[2]
    assert "⚠️ Some energies are negative" in line(user, distribution="normalize")[2]
    nothing = line(user, score="boxcar", distribution="normalize", query=-5)
    assert "All weights are zero" in nothing[2]
    assert context(nothing[1]) == [0.0]
    assert 'attend(query, key, value, "gaussian", "softmax", score_options={&#x27;s' not in nothing[2]
    assert "score_options={'s': 0.7}" in line(user)[2]
    spanish = Client(user.src, verbose=False, headers={"Accept-Language": "es"})
    assert "Algunas energías son negativas" in line(spanish, distribution="normalize")[2]


def test_sums_of_sigmoid_leave_the_hull_and_are_still_in_the_picture(user: Client) -> None:
    keys = [[4, 4, None, None], [4, 3, None, None], [3, 4, None, None]]
    picture, shown, _ = plane(user, keys, score="dot", distribution="sigmoid")
    assert max(context(shown)) == pytest.approx(11, abs=0.1)
    frame = list(map(float, re.findall(r'data-frame="(.*?)"', picture)[0].split()))
    assert frame[5] > 11


@pytest.mark.parametrize(
    ("keys", "sentence", "en_espanol"),
    [
        (
            [[1, 2], [1, "x"]],
            "Row 2 contains “x”, which is not a number; write a number such as 1.5.",
            "La fila 2 contiene",
        ),
        ([[1, 2], [1, ""]], "A number is missing in row 2; fill in all cells, or clear the row.", "Falta un número"),
        ([[1, 2], [1, "nan"]], "A number is missing in row 2; fill in all cells, or clear the row.", "la fila 2"),
        ([[1, 60]], "Row 1 contains 60; write numbers from −5 to 5.", "escribe números de −5 a 5"),
        ([[1, "inf"]], "Row 1 contains inf; write numbers from −5 to 5.", "La fila 1 contiene inf"),
        ([["", None]], "There are no keys; write at least one row of numbers.", "No hay ninguna clave"),
        ([[1, 1]] * 13, "There are 13 keys; the figure shows at most 12.", "Hay 13 claves"),
    ],
)
def test_bad_input_is_answered_with_a_sentence(
    url: str, user: Client, keys: list[list[Any]], sentence: str, en_espanol: str
) -> None:
    """In the place of the picture, which belongs to another table."""
    assert f'role="alert">{sentence}<' in line(user, keys)[0]
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es-ES"})
    assert en_espanol in line(spanish, keys)[0]


def test_a_comma_and_an_empty_row_are_read(user: Client) -> None:
    assert line(user, [["−3", "-2"], ["", None], ["0,5", 3], [2.5, 1]])[1] == line(user)[1]


def test_the_convex_hull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "spaces" / "attention_lab"))
    from lab_plots import convex_hull

    points = np.random.default_rng(0).normal(size=(40, 2))
    corners = np.array(convex_hull(points))
    edges = np.roll(corners, -1, axis=0) - corners
    for point in points:  # on the left of every edge
        across = edges[:, 0] * (point[1] - corners[:, 1]) - edges[:, 1] * (point[0] - corners[:, 0])
        assert (across >= -1e-12).all()
    assert {tuple(corner) for corner in corners} <= {tuple(point) for point in points}
    assert convex_hull(np.array([[0, 0], [1, 1], [2, 2], [1, 1]])) == [(0, 0), (2, 2)]
    assert convex_hull(np.array([[1, 1], [1, 1]])) == [(1, 1)]


def place(svg: Locator, x: float, y: float) -> tuple[float, float]:
    """Where a point of the plane lies on the screen."""
    left, top, width, height, x0, x1, y0, y1 = map(float, str(svg.get_attribute("data-frame")).split())
    box, view = svg.bounding_box(), str(svg.get_attribute("viewBox")).split()
    assert box is not None
    scale = box["width"] / float(view[2])
    across, down = left + (x - x0) / (x1 - x0) * width, top + (1 - (y - y0) / (y1 - y0)) * height
    return box["x"] + scale * across, box["y"] + scale * down


def test_marks_move_at_once_and_the_server_redraws_five_times_a_second(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280) as page:
        mark, drawn = page.locator("#line g[data-handle=k3]"), page.locator("#line .mark").nth(3)
        mark.wait_for()
        picture = page.locator("#line svg")
        picture.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        asked: list[float] = []
        page.on("request", lambda request: asked.append(time.monotonic()) if "queue/join" in request.url else None)
        page.mouse.move(*place(picture, -2.2, -0.35))
        page.mouse.down()
        started = time.monotonic()
        for step in range(60):
            x, y = place(picture, -2.2 + step / 20, -0.35)
            page.mouse.move(x, y)
            moved, off = time.monotonic(), math.inf
            while off > 4 and time.monotonic() < moved + 0.2:  # a step of 0.05 is 3 pixels; a busy browser skips frames
                box = drawn.bounding_box()
                assert box is not None
                off = abs(box["x"] + box["width"] / 2 - x)
            assert off <= 4
            page.wait_for_timeout(20)
        page.mouse.up()
        page.locator('#line g[data-handle=k3][data-x="0.75"]:not([transform])').wait_for()
        assert 2 <= len(asked) <= 5 * (time.monotonic() - started) + 1
        page.get_by_role("gridcell", name="0.75").first.wait_for()


def test_keys_move_marks(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280) as page:
        page.locator("#line g[data-handle=k0]").wait_for()
        for handle in ("q", "k0", "k1"):  # reached with the Tab key, in this order
            if handle == "q":
                page.locator("#line g[data-handle=q][tabindex]").focus()
            else:
                page.keyboard.press("Tab")
            assert page.evaluate("document.activeElement.dataset.handle") == handle
        # The second key of a pair is pressed while the picture of the first is drawn, or just after.
        for pause in (0, 100, 200):
            for keys, x, y in (
                (("Shift+ArrowRight", "ArrowDown"), -2.8, 1.45),
                (("Shift+ArrowLeft", "ArrowUp"), -3.8, 1.55),
            ):
                page.keyboard.press(keys[0])
                page.wait_for_timeout(pause)
                page.keyboard.press(keys[1])
                page.locator(f'#line g[data-handle=k1][data-x="{x}"][data-y="{y}"]:not([transform])').wait_for()
        assert page.evaluate("document.activeElement.dataset.handle") == "k1"  # after the picture was drawn again
        assert page.evaluate("document.activeElement.ariaLabel") == "Key 2"


def test_a_mark_that_was_moved_stays_where_a_preset_puts_it(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280) as page:

        def choose(preset: str, x: str) -> None:
            page.get_by_label("Start from").locator("visible=true").click()
            page.get_by_role("option", name=preset).click()
            page.locator(f'#line g[data-handle=k3][data-x="{x}"]:not([transform])').wait_for()
            page.wait_for_timeout(1000)
            page.locator(f'#line g[data-handle=k3][data-x="{x}"]:not([transform])').wait_for()

        picture = page.locator("#line svg")
        picture.wait_for()
        picture.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        page.mouse.move(*place(picture, -2.2, -0.35))
        page.mouse.down()
        page.mouse.move(*place(picture, 3.5, -0.35))
        page.locator('#line g[data-handle=k3][data-x="3.5"]').wait_for()  # drawn before the mark is released
        page.mouse.up()
        page.locator('#line g[data-handle=k3][data-x="3.5"]:not([transform])').wait_for()
        choose("A step", "1")
        page.locator("#line g[data-handle=k3]").focus()
        for _ in range(6):  # against the border
            page.keyboard.press("Shift+ArrowRight")
        page.locator('#line g[data-handle=k3][data-x="5"]:not([transform])').wait_for()
        page.keyboard.press("ArrowRight")
        choose("A noisy sine", "-2.2")


def test_a_bad_cell_is_reported_once_where_the_picture_was(browser: Browser, url: str) -> None:
    with visited(browser, url, "es-ES", 1280) as page:
        page.locator("#line svg").wait_for()
        cell = page.locator("[role=gridcell][data-row='1'][data-col='1']:visible")

        def write(number: str, shown: Locator) -> None:
            """Write twice if needed: a table that is drawn again while a cell is edited drops the edit."""
            for last in (False, True):
                try:
                    cell.dblclick()
                    cell.locator("textarea").fill(number, timeout=10_000)
                    page.keyboard.press("Enter")
                    shown.wait_for(timeout=None if last else 10_000)
                except PlaywrightTimeoutError:
                    if last:
                        raise
                else:
                    return

        write("99", page.locator("#line [role=alert]", has_text="escribe números de −5 a 5"))
        assert page.locator("#line svg").count() == page.locator(".toast-body").count() == 0
        assert page.locator(".legend:visible").count() == 0
        write("2", page.locator('#line g[data-handle=k1][data-y="2"]'))
        page.locator(".legend:visible").wait_for()


def test_on_a_phone_the_picture_comes_first_with_marks_for_fingers(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 360) as page:
        for tab, picture in (("One dimension", "#line"), ("Two dimensions", "#plane")):
            page.get_by_role("tab", name=tab).click()
            page.locator(f"{picture} .reach").first.wait_for()
            for reach in page.locator(f"{picture} .reach").all():
                box = reach.bounding_box()
                assert box is not None
                assert box["width"] >= 44
            above, formula = page.locator(f"{picture} svg").bounding_box(), page.locator("#explained").bounding_box()
            assert above is not None
            assert formula is not None
            assert above["y"] < min(600, formula["y"])


def test_a_score_is_suggested_for_normalize(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280) as page:
        page.get_by_label("Distribution g(e)").click()
        page.get_by_role("option", name="normalize").click()
        page.locator(".hand code", has_text=re.compile("^normalize$")).first.wait_for()
        size = page.evaluate(
            "(({width, height}) => [width, height])(document.querySelector('.hand p code').getBoundingClientRect())"
        )
        assert size[0] > 50  # inline code has the width of its text
        page.get_by_role("button", name="use boxcar").click()
        page.get_by_text("½ within a distance of 1").wait_for()
        page.get_by_role("button", name="use boxcar").wait_for(state="hidden")


@pytest.mark.parametrize(("width", "language", "names"), [
    (1280, "en-US", ("Score f(q, k)", "Two dimensions", "Query q₁", "Each key is weighted", "Distribution g(e)",
                     "Pattern")),
    (360, "es-ES", ("Puntuación f(q, k)", "Dos dimensiones", "Consulta q₁", "clave se pondera", "Distribución g(e)",
                    "Patrón")),
])  # fmt: skip
def test_in_a_browser(browser: Browser, url: str, width: int, language: str, names: tuple[str, ...]) -> None:
    score, plane_tab, query, of_sigmoid, distribution, pattern = names
    with visited(browser, url, language, width) as page:
        picture, shown = page.locator("#line svg"), page.locator(".legend b:visible")
        picture.wait_for()
        picture.scroll_into_view_if_needed()

        def until(number: int, text: str) -> None:
            page.wait_for_function(
                "([number, text]) => [...document.querySelectorAll('.legend b')].filter((each) => each.offsetParent)"
                "[number]?.innerText.startsWith(text)",
                arg=[number, text],
            )

        page.mouse.click(*place(picture, -2, 4))  # a click places the query
        until(0, "−2.0")  # a pixel of a phone is 0.04
        before = shown.nth(1).inner_text()
        key = page.locator("#line g[data-handle=k3] circle").last
        key.hover(force=True)  # under the mark of the context
        page.mouse.down()
        page.mouse.move(*place(picture, -2, 2), steps=3)
        page.mouse.move(*place(picture, -2, 4), steps=3)
        page.mouse.up()
        page.wait_for_function(
            "(old) => (document.querySelectorAll('.legend b')[1]?.innerText ?? old) !== old", arg=before
        )
        page.get_by_role("gridcell", name="4").or_(page.locator("td", has_text=re.compile("^4$"))).first.wait_for()

        page.get_by_role("tab", name=plane_tab).click()
        page.locator("#plane svg").wait_for()
        slider = page.get_by_label(query).locator("visible=true").last
        slider.focus()
        page.keyboard.press("ArrowRight")
        until(0, "(1.55, 1.00)")
        page.get_by_label(distribution).click()
        page.get_by_role("option", name="sigmoid").click()
        page.get_by_text(of_sigmoid).wait_for()
        page.wait_for_function(
            "([...document.querySelectorAll('.legend b')].filter((each) => each.offsetParent)[2]?.innerText ?? '1.00')"
            " !== '1.00'"
        )
        page.get_by_label(pattern).click()
        page.get_by_role("option", name="window").click()
        page.locator("#plane .unseen").first.wait_for()
        page.get_by_label("Causal").check()
        page.locator(".formula:visible .katex-html", has_text="j≤i").wait_for()
        page.get_by_label(score).click()
        page.get_by_role("option", name="mahalanobis").click()
        page.locator(".hand .katex:visible mtable").last.wait_for(state="attached")

"""The pages of docs/: their code runs from top to bottom and prints what they say, and the site is built of them."""

import contextlib
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
import pytest
import torch
from browser import browser, violations  # noqa: F401
from commands import ROOT, run
from hub_server import Hub, HubServer
from mkdocs.commands.build import build
from mkdocs.config import load_config
from page_blocks import BLOCK, run_block
from tables import filled
from tour_notebook import NOTEBOOK, tour
from tour_notebook import run as run_notebook
from typer.testing import CliRunner

import hfattn.engine
import hfattn.models
from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.loading import save_translator
from hfattn.spaces import interface
from hfattn.spaces.building import space_names
from hfattn.tokenizers import TokenizerConfig, build_character_tokenizer, build_tokenizer
from hfattn_cli import app

pytestmark = pytest.mark.runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = ROOT / "docs"
# Those that their own tests run, on what they need.
ELSEWHERE = {"attention.md", "clients.md", "convert.md", "models.md", "own_data.md", "publishing.md", "scaling.md"}
TRANSLATIONS = [*DOCS.glob("*.es.md"), ROOT / "README.es.md"]
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.name not in ELSEWHERE and path not in TRANSLATIONS and "```" in path.read_text()
)
SHORT = (
    "--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4 --data.examples 400 "
    "--data.evaluation_examples 8 --data.max_target_length 12 --evaluation.num_beams null "
    "--sample.translations 1 --sample.alignments 1"
)


def shell(command: str, **variables: str) -> None:
    """A command as the pages have it; training is cut to a few steps."""
    words = shlex.split(command)
    if words[:2] == ["hfattn", "train"] and "--dry-run" not in words:
        shown = CliRunner().invoke(app, ["train", "--dry-run", *words[2:]])
        assert shown.exit_code == 0, shown.output
        words = [*shlex.split(shown.stdout), *SHORT.split()]
    elif not variables:  # nothing that would have to be there before the libraries are imported
        shown = CliRunner().invoke(app, words[1:])
        assert shown.exit_code == 0, (command, shown.output)
        return
    done = run(words, cwd=Path.cwd(), **variables)
    assert done.returncode == 0, (command, done.stderr)


def prepare_explaining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models as they are before training: a translator of dates, and a classifier with attention."""
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["22 nov 1794", "1794-11-22"], ends=True)
    sizes = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 16}
    translator = BahdanauForConditionalGeneration(BahdanauConfig(**sizes, encoder_hidden_size=8))
    save_translator("runs/dates", translator, tokenizer)
    words = build_tokenizer(TokenizerConfig(kind="word"), ["a good film", "a bad film"], ends=False)
    config = RNNEncoderConfig(vocab_size=len(words), embedding_size=8, hidden_size=8, pooling="attention", num_labels=2)
    RNNEncoderForSequenceClassification(config).save_pretrained("runs/opinions")
    words.save_pretrained("runs/opinions")


def prepare_extending(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the page, where a script and its modules are, and in it one that stands in for hfattn/models."""
    monkeypatch.syspath_prepend(str(Path.cwd()))
    folder = Path("hfattn/models")
    folder.mkdir(parents=True)
    for module in Path(hfattn.models.__file__).parent.glob("*.py"):
        (folder / module.name).symlink_to(module)
    monkeypatch.setattr(hfattn.models, "__path__", [*hfattn.models.__path__, str(folder.resolve())])
    monkeypatch.setattr(interface, "LANGUAGES", interface.LANGUAGES)


def prepare_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Transformer translator as it is before training, and a file to translate."""
    monkeypatch.setattr(hfattn.engine, "HF_HOME", str(Path.cwd()))
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["a b c"], ends=True)
    model = VaswaniForConditionalGeneration(VaswaniConfig.preset("small", vocab_size=len(tokenizer)))
    save_translator("runs/translator", model, tokenizer)
    Path("texts.txt").write_text("a b\nc\n")


PREPARE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "explaining.md": prepare_explaining,
    "extending.md": prepare_extending,
    "speed.md": prepare_speed,
}


@pytest.mark.examples
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace; what a comment says of a printed line is printed, in that order."""
    monkeypatch.chdir(tmp_path)
    Path("recipes").symlink_to(ROOT / "recipes")
    PREPARE.get(page.name, lambda monkeypatch: None)(monkeypatch)
    names: dict[str, Any] = {"__name__": "page"}
    with contextlib.ExitStack() as opened:
        hub: Hub | None = None
        for language, file, block in BLOCK.findall(page.read_text()):
            if file:
                Path(file).write_text(block)
            elif language == "sh":
                for command in block.replace("\\\n", " ").splitlines():
                    if "hfattn push" in command:
                        hub = hub or opened.enter_context(HubServer())
                    shell(command, **(hub.environment(tmp_path / "home") if hub else {}))
            elif language == "python":
                run_block(block, str(page), names)


def test_the_notebook_is_the_tour() -> None:
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell["source"] for cell in kept["cells"]] == [cell["source"] for cell in tour()["cells"]]


@pytest.mark.variants
def test_the_notebook_runs(tmp_path: Path) -> None:
    notebook = tour()
    for cell in notebook["cells"]:
        cell["source"] = cell["source"].replace("train translation/dates", f"train translation/dates {SHORT}")
    run_notebook(notebook, tmp_path)
    shown = [output for cell in notebook["cells"] for output in cell.get("outputs", [])]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert any("<iframe" in output.get("data", {}).get("text/html", "") for output in shown)


def code(page: Path) -> list[str]:
    """The blocks of a page, the comments left out, which are in its language."""
    return [re.sub(r" *# .*$", "", block, flags=re.MULTILINE) for *_, block in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_a_page_in_spanish_has_the_code_and_the_numbers_of_the_other(page: Path) -> None:
    other = page.with_name(page.name.replace(".es.md", ".md"))
    assert code(page) == code(other)
    rows, others = (re.findall(r"^\|.*$", each.read_text(), re.MULTILINE) for each in (page, other))
    assert [re.findall(r"[\d.]*\d", row) for row in rows] == [re.findall(r"[\d.]*\d", row) for row in others]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, without the pages of the API, which take the longest; ``make docs`` builds all of it."""
    folder = tmp_path_factory.mktemp("site")
    # Links to classes lead to places that are not there then.
    links = {"links": {"anchors": "ignore"}}
    options: dict[str, Any] = {"site_dir": str(folder), "plugins": ["search", "offline"], "validation": links}
    build(load_config(str(ROOT / "mkdocs.yml"), strict=True, **options))
    return folder


def test_the_site_asks_nobody_for_anything(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text()
        assert not re.findall(
            r'(?:src|data)="https?:[^"]*"|<link[^>]*stylesheet[^>]*https?:[^>]*>|url\(https?:', text
        ), page
        # A command of TeX that is not known is left as it is.
        assert not re.search(r"<math[^>]*>(?:(?!</math>).)*\\", text, re.DOTALL), page
        for image in re.findall(r'<img[^>]* src="([^"]+)"', text):
            assert (page.parent / image).is_file(), (page, image)


@pytest.mark.demos
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_pages_are_legible(site: Path, browser: "Browser", scheme: Any, width: int) -> None:  # noqa: F811
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for name in ("index", "tour", "spaces", "explaining", "recipes/RESULTS", "recipes/translation/index"):
        page.goto((site / f"{name}.html").as_uri())
        assert not violations(page), name
    context.close()


def test_pictures_of_demos_are_small_and_described() -> None:
    page = (ROOT / "docs" / "spaces.md").read_text()
    for name in space_names():
        picture = ROOT / "docs" / "assets" / f"{name.replace('_', '-')}.webp"
        assert picture.stat().st_size < 150_000
        readme = (ROOT / "spaces" / name / "README.md").read_text()
        (below,) = re.findall(rf"\]\(assets/{picture.name}\)\n\n\*(.*?)\*\n", page)
        (caption,) = re.findall(rf"<!-- shot {name}: (.*?) -->", readme, re.DOTALL)
        assert min(len(below), len(caption)) > 60


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "<!-- table " in page.read_text()], ids=lambda page: page.name
)
def test_tables_are_those_of_the_recorded_runs(page: Path) -> None:
    """On GitHub, a page has the tables that are in it."""
    assert page.read_text() == filled(page.read_text()), "run python docs/tables.py"


def test_a_reader_finds_something_without_a_server(site: Path, browser: "Browser") -> None:  # noqa: F811
    """From a folder, on a phone, in the dark: the search answers, formulas have a height, nothing is asked or wrong."""
    context = browser.new_context(viewport={"width": 360, "height": 780}, color_scheme="dark")
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if request.url.startswith("http") else None)
    page.goto((site / "scores.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    formula = page.locator("math[display=block]").first.bounding_box()
    assert formula is not None
    assert formula["height"] > 20
    assert page.locator(".only-dark img").first.is_visible()
    assert not page.locator(".only-light img").first.is_visible()
    page.locator("label[for=__search]").first.click()
    page.locator("input.md-search__input").press_sequentially("mahalanobis")
    page.locator(".md-search-result__item").first.wait_for(timeout=10_000)
    assert said == []
    context.close()

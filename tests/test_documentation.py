"""The pages of docs/: their code runs from top to bottom and prints what they say, and the site is built of them."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from commands import ROOT, run
from hub_server import Hub, HubServer
from typer.testing import CliRunner

import hfattn.models
from hfattn.attention import DISTRIBUTIONS, SCORES
from hfattn.cli import app
from hfattn.spaces import interface

DOCS = ROOT / "docs"
# Those that their own tests run, on what they need.
ELSEWHERE = {"attention.md", "convert.md", "models.md", "publishing.md"}
TRANSLATIONS = [*DOCS.glob("*.es.md"), ROOT / "README.es.md"]
PAGES = sorted(
    path
    for path in DOCS.rglob("*.md")
    if path.name not in ELSEWHERE and path not in TRANSLATIONS and "```" in path.read_text()
)
BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)
SHORT = (
    "--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4 --data.pairs 400 --data.evaluation_pairs 8 "
    "--data.max_target_length 12 --evaluation.num_beams null --sample.number 1 --sample.alignments 1"
)


def shell(command: str, **variables: str) -> None:
    """A command as the pages have it; training is cut to a few steps."""
    words = shlex.split(command)
    if words[:2] == ["hfattn", "train"]:
        shown = CliRunner().invoke(app, ["train", "--dry-run", *words[2:]])
        assert shown.exit_code == 0, shown.output
        words = [*shlex.split(shown.stdout), *SHORT.split()]
    done = run(words, cwd=Path.cwd(), **variables)
    assert done.returncode == 0, (command, done.stderr)


def prepare_tour(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("pairs.tsv").write_text("".join(f"{i} and {i + 1}\t{2 * i + 1}\n" for i in range(300)))


def prepare_extending(monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of models that stands in for the package's own, which the page adds files to."""
    folder = Path("hfattn/models")
    folder.mkdir(parents=True)
    for module in Path(hfattn.models.__file__).parent.glob("*.py"):
        (folder / module.name).symlink_to(module)
    monkeypatch.setattr(hfattn.models, "__path__", [*hfattn.models.__path__, str(folder.resolve())])
    monkeypatch.setattr(interface, "LANGUAGES", interface.LANGUAGES)


PREPARE: dict[str, Callable[[pytest.MonkeyPatch], None]] = {"tour.md": prepare_tour, "extending.md": prepare_extending}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one namespace; what a comment says of a printed line is printed, in that order."""
    monkeypatch.chdir(tmp_path)
    Path("recipes").symlink_to(ROOT / "recipes")
    PREPARE.get(page.name, lambda monkeypatch: None)(monkeypatch)
    names: dict[str, Any] = {"__name__": "page"}
    # What a page adds to the registries is not there for other tests.
    with patch.dict(SCORES), patch.dict(DISTRIBUTIONS), contextlib.ExitStack() as opened:
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
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(block, str(page), "exec"), names)
                lines = iter(printed.getvalue().splitlines())
                for expected in re.findall(r"^ *print\(.*\)  # (.*)$", block, re.MULTILINE):
                    assert expected in lines, (expected, printed.getvalue())


def code(page: Path) -> list[str]:
    """The blocks of a page, the comments left out, which are in its language."""
    return [re.sub(r" *# .*$", "", block, flags=re.MULTILINE) for *_, block in BLOCK.findall(page.read_text())]


@pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.name)
def test_a_page_in_spanish_has_the_code_and_the_numbers_of_the_other(page: Path) -> None:
    other = page.with_name(page.name.replace(".es.md", ".md"))
    assert code(page) == code(other)
    rows, others = (re.findall(r"^\|.*$", each.read_text(), re.MULTILINE) for each in (page, other))
    assert [re.findall(r"[\d.]*\d", row) for row in rows] == [re.findall(r"[\d.]*\d", row) for row in others]

"""The commands and the Python of the README run, in its order, its scores are true, and links lead somewhere."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import ROOT, run
from hub_server import HubServer

from hfattn.training.expected import duration, read_expected
from hfattn.training.selection import reported_on_its_own_choice

MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
# Environments have documents of their own, and of pinned cards the pictures are not kept.
SKIPPED = {".venv", ".venv-clients", ".venv-oldest", ".venv-spaces", ".cache", "runs", "cards"}
DOCUMENTS = [path for path in ROOT.glob("**/*.md") if not SKIPPED & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        if document.parent.name != "model_cards":  # links of a template are those of the folder it is rendered to
            assert (document.parent / target).exists(), target


SHORT = "--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4 --data.evaluation_examples 20"


@pytest.mark.examples
def test_the_readme_from_top_to_bottom(tmp_path: Path) -> None:
    """In a folder with the recipes, an environment with all extras, and your pairs; training is cut to a few steps.

    ``make quickstart`` itself is run by .ci/run; its training command stands in for it. A demo is built, not served.
    """
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "pairs.tsv").write_text("".join(f"{i} and {i + 1}\t{2 * i + 1}\n" for i in range(300)))
    text = (ROOT / "README.md").read_text()
    shell = [block.replace("\\\n", " ").strip() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    make, *others = shell
    assert [line.split("#")[0].strip() for line in make.splitlines()] == ["make quickstart", "make test"]
    (quickstart,) = re.findall(r"\$\(BIN\)/(hfattn train [^\n]*) --resume", MAKEFILE)
    lines = [line for block in others for line in block.splitlines() if "/pip install " not in line]
    commands = [f".venv/bin/{quickstart}", *lines]
    with HubServer() as hub:
        for command in commands:
            there = hub.environment(tmp_path / "home") if "hfattn push" in command else {}
            words = shlex.split(command.replace("space run", "space build"))
            done = run([*words, *(SHORT.split() if "hfattn train" in command else [])], cwd=tmp_path, **there)
            assert done.returncode == 0, (command, done.stderr)
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        done = run([sys.executable, "-c", example], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout


def test_the_scores_in_the_readme_are_those_that_were_recorded() -> None:
    rows = re.findall(
        r"^\| `(\w+/\w+)` \|[^|]*\| ([\d.]+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|",
        (ROOT / "README.md").read_text(),
        re.MULTILINE,
    )
    assert len(rows) > 5
    for config, score, target, chosen, time in rows:
        expected = read_expected(ROOT / "recipes" / f"{config}.expected.json")
        digits = len(score.partition(".")[2])
        runs = [each for each in expected.full.recorded if f"{each.score:.{digits}f}" == score]
        assert runs, (config, score)
        on_test = reported_on_its_own_choice(expected.metric, runs[0].selection) is not None
        assert chosen.startswith("test") == on_test, (config, chosen)
        assert target == ("–" if expected.full.aim is None else f"{float(target):g}")
        assert expected.full.aim is None or float(target) == expected.full.aim
        assert time.removesuffix(", H100") in {duration(each.training["wall_time_seconds"]) for each in runs}, config
        assert all(("gpu" in each.hardware) == time.endswith("H100") for each in runs), config


def test_the_page_of_the_models_from_top_to_bottom() -> None:
    """What its comments say of a printed line is what is printed."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    code = "\n".join(snippets)
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected

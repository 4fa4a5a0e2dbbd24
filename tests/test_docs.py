"""The commands and the Python of the README run, in its order, and the links of every page lead somewhere."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from commands import ROOT, SENTENCES, run
from hub_server import HubServer
from tiny_models import tiny_model

MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
SKIPPED = {".venv", ".cache", "runs", "cards"}  # the pictures of pinned cards are not kept
DOCUMENTS = [path for path in ROOT.glob("**/*.md") if not SKIPPED & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        if document.parent.name != "model_cards":  # links of a template are those of the folder it is rendered to
            assert (document.parent / target).exists(), target


SHORT = {
    "classification": "--training.max_steps 4 --training.eval_strategy steps --training.eval_steps 4 "
    "--training.save_strategy steps --training.save_steps 4",
    "char_lm": "--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4",
    "sequence_classification": "--model.name minilm --training.max_steps 4 --training.eval_steps 4 "
    "--training.save_steps 4",
    "translation": "--training.max_steps 4 --training.eval_steps 4 --training.save_steps 4 --data.evaluation_pairs 20",
}


def test_the_readme_from_top_to_bottom(tmp_path: Path) -> None:
    """In a folder with the recipes, an environment and texts of one's own; training is cut to a few steps.

    ``make quickstart`` itself is run by .ci/run; here its training command stands in for it.
    """
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    tiny_model(tmp_path / "minilm", "bert")  # in the place of the one on the Hub
    (tmp_path / "my.txt").write_text(f"The class of 1999. {SENTENCES}" * 200)
    (tmp_path / "pairs.tsv").write_text("".join(f"{i} and {i + 1}\t{2 * i + 1}\n" for i in range(300)))
    (tmp_path / "labelled.tsv").write_text("text\tlabel\n" + "".join(f"{i} is it\t{i % 2}\n" for i in range(60)))
    text = (ROOT / "README.md").read_text()
    shell = [block.replace("\\\n", " ").strip() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    make, *others = shell
    assert [line.split("#")[0].strip() for line in make.splitlines()] == ["make quickstart", "make test"]
    (quickstart,) = re.findall(r"accelerate launch[^\n]*?(recipes/translation/\S+ [^\n]*) --resume", MAKEFILE)
    commands = [f".venv/bin/python {quickstart}", *(line for block in others for line in block.splitlines())]
    with HubServer() as hub:
        for command in commands:
            recipe = re.search(r"recipes/(\w+)/train.py", command)
            there = hub.environment(tmp_path / "home") if "hfattn push" in command else {}
            words = [*shlex.split(command), *(SHORT[recipe[1]].split() if recipe else [])]
            done = run(words, cwd=tmp_path, **there)
            assert done.returncode == 0, (command, done.stderr)
            if "hfattn generate" in command:
                assert done.stdout.startswith("The class ")
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        done = run([sys.executable, "-c", example], cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(("['", "('"))


def test_the_page_of_the_models_from_top_to_bottom() -> None:
    """What its comments say of a printed line is what is printed."""
    snippets = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "models.md").read_text(), re.DOTALL)
    code = "\n".join(snippets)
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    done = run([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected

"""The commands and the Python of the README run, in its order, and the links of every page lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, SENTENCES, environment, run

SKIPPED = {".venv", ".cache", "runs"}
DOCUMENTS = [path for path in ROOT.glob("**/*.md") if not SKIPPED & set(path.relative_to(ROOT).parts)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        if document.parent.name != "model_cards":  # links of a template are those of the folder it is rendered to
            assert (document.parent / target).exists(), target


def test_the_readme_from_top_to_bottom(tmp_path: Path) -> None:
    """In a folder with the recipes, an environment and a text of one's own; training is cut to a few steps.

    ``make quickstart`` itself is run by .ci/run; a model trained by the README's own command stands in for its result.
    """
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "my.txt").write_text(f"The class of 1999. {SENTENCES}" * 200)
    text = (ROOT / "README.md").read_text()
    shell = [block.replace("\\\n", " ").strip() for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)]
    make, generate, train = shell
    assert [line.split("#")[0].strip() for line in make.splitlines()] == ["make quickstart", "make test"]

    short = ["--training.max_steps", "4", "--training.eval_steps", "4", "--training.save_steps", "4"]
    done = run([*shlex.split(train), *short], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (tmp_path / "runs" / "char_lm-quickstart").symlink_to(tmp_path / "runs" / "mine")
    done = run([*shlex.split(generate)], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The class ")
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        done = subprocess.run(
            [sys.executable, "-c", example], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(("The class ", "['To be"))

"""The Python of the README runs, and its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, environment

DOCUMENTS = [
    path for path in ROOT.glob("**/*.md") if not {".venv", ".cache", "runs"} & set(path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document.read_text()):
        if document.parent.name != "model_cards":  # links of a template are those of the folder it is rendered to
            assert (document.parent / target).exists(), target


def test_the_library_example_of_the_readme_runs() -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (example,) = (block for block in blocks if "import hfattn" in block or "from hfattn" in block)
    done = subprocess.run([sys.executable, "-c", example], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "To be" in done.stdout

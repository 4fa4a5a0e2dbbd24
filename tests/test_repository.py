"""The release command, and the files that GitHub reads."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from commands import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with the files that a release changes."""
    names = [
        ".ci/release",
        "CITATION.cff",
        "hfattn/__init__.py",
        "hfattn/models/__init__.py",
        "hfattn/models/alignment.py",
    ]
    for name in (*names, "hfattn/hub/known_code.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / "hfattn" / "hub" / "known_code.json").write_text('{"0.0.1": {"old.py": "00"}}\n')
    (tmp_path / "tests" / "releases" / "9.9.9").mkdir(parents=True)
    (tmp_path / "tests" / "releases" / "9.9.9" / "config.json").write_text("{}")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9 (unreleased)\n\n- New.\n\n## 0.0.1 (2020-01-01)\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "config", "user.name", "Tester")
    git(tmp_path, "config", "user.email", "tester@example.org")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "First")
    return tmp_path


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def release(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", ".ci/release", *words], cwd=folder, capture_output=True, text=True)


def test_a_release_stamps_the_changelog_and_the_version_and_tags(checkout: Path) -> None:
    assert release(checkout, "--check", "9.9.9").returncode == 2
    done = release(checkout, "9.9.9")
    assert done.returncode == 0, done.stderr
    assert release(checkout, "--check", "9.9.9").returncode == 0
    known = json.loads((checkout / "hfattn" / "hub" / "known_code.json").read_text())
    alignment = hashlib.sha256((ROOT / "hfattn" / "models" / "alignment.py").read_bytes()).hexdigest()
    assert known == {"0.0.1": {"old.py": "00"}, "9.9.9": {"alignment.py": alignment}}
    changed = git(checkout, "diff", "--unified=0", "HEAD~", "HEAD", "--", ".", ":!hfattn/hub/known_code.json")
    assert '+__version__ = "9.9.9"' in changed
    assert "+version: 9.9.9" in changed
    assert "+## 9.9.9 (20" in changed
    assert changed.count("\n+") == 6  # three lines, and the names of three files
    assert git(checkout, "tag", "--points-at", "HEAD") == "v9.9.9\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "error: '' is not a version such as 0.2.0; "),
        (["9.9"], "error: '9.9' is not a version such as 0.2.0; "),
        (["9.9.8"], "error: CHANGELOG.md has no section '## 9.9.8 (unreleased)'; write it first."),
        (["0.0.1"], "error: CHANGELOG.md has no section '## 0.0.1 (unreleased)'; write it first."),
    ],
)
def test_a_release_that_cannot_be_is_refused(checkout: Path, words: list[str], message: str) -> None:
    done = release(checkout, *words)
    assert (done.returncode, done.stderr[: len(message)]) == (2, message)
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "tag") == ""


def test_a_release_of_changed_files_is_refused(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text("# Changelog\n\n## 9.9.9 (unreleased)\n")
    assert release(checkout, "9.9.9").stderr == "error: The checkout has changes; commit them first.\n"
    assert git(checkout, "tag") == ""


def test_the_citation_and_the_issue_forms_are_complete() -> None:
    from hfattn import __version__

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == "Apache-2.0"
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    for path in sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")):
        form = yaml.safe_load(path.read_text())
        assert {"name", "description", "body"} <= set(form), path.name
        names = [field["id"] for field in form["body"]]
        assert len(names) == len(set(names)), path.name
        assert all(field["attributes"]["label"] for field in form["body"]), path.name

"""Which files of a folder make a repository, and what each of them holds."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
CARD = "README.md"  # its words may be edited; what its numbers and its code say is compared with the results
PICKLES = (".bin", ".ckpt", ".dill", ".joblib", ".pickle", ".pkl", ".pt", ".pth")  # what such files are, by their names
_LEFT_OUT = ("checkpoints", "logs", "__pycache__")
_KEPT = (".eval_results", ".gitattributes")


def repository_files(folder: Path) -> list[str]:
    """The paths, from the folder on, of what is published: all but checkpoints, logs, hidden and unfinished files."""
    return sorted(path.relative_to(folder).as_posix() for path in _walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        hidden = path.name.startswith(".") and path.name not in _KEPT
        if hidden or path.name in _LEFT_OUT or path.name.endswith(".part"):
            continue
        if path.is_dir():
            yield from _walk(path)
        else:
            yield path


def write_manifest(folder: Path) -> None:
    """Note the size and the SHA-256 of each file of a finished folder, the card apart, in ``manifest.json``."""
    facts = {name: _facts(folder / name) for name in repository_files(folder) if name not in (MANIFEST, CARD)}
    (folder / MANIFEST).write_text(json.dumps({"files": facts}, indent=2) + "\n", encoding="utf-8")


def check_manifest(folder: Path) -> str:
    """Compare a folder with its manifest.

    Returns:
        What was compared.

    Raises:
        AssertionError: a file is missing, is not listed, or holds something else.
    """
    assert (folder / MANIFEST).is_file(), f"{MANIFEST} is missing; hfattn card writes it"
    listed = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    present = {name for name in repository_files(folder) if name not in (MANIFEST, CARD)}
    for name in sorted(listed.keys() | present):
        assert name in present, f"{name} is missing"
        assert name in listed, f"{name} is not listed in {MANIFEST}"
        assert _facts(folder / name) == listed[name], f"{name} is not what it was when the card was written"
    return f"{len(listed)} files, {sum(facts['bytes'] for facts in listed.values()):,} bytes"


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


__all__ = ["check_manifest", "repository_files", "write_manifest"]

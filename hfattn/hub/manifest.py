"""The published files of a folder, with their sizes and hashes."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import read_json, write_json

MANIFEST = "manifest.json"
CARD = "README.md"  # its text may be edited; its numbers and its code are compared with the results
PICKLES = (".bin", ".ckpt", ".dill", ".joblib", ".pickle", ".pkl", ".pt", ".pth")  # usual names of pickles
_LEFT_OUT = ("checkpoints", "logs", "__pycache__")
_KEPT = (".eval_results", ".gitattributes")


def repository_files(folder: Path) -> list[str]:
    """Return the paths of all files that may be published, relative to the folder.

    Checkpoints, logs, and hidden or unfinished files are left out.
    """
    return sorted(path.relative_to(folder).as_posix() for path in _walk(folder))


def published_files(folder: Path) -> list[str]:
    """Return the paths of the files that are published, relative to the folder.

    In a model folder these are the files that ``manifest.json`` lists, the manifest itself and the card; files added
    later, such as a picture of attention, are not published. In a folder without a manifest, all files are published.

    Raises:
        UserError: the manifest cannot be read.
    """
    files = repository_files(folder)
    listed = _read_manifest(folder)
    return files if listed is None else [name for name in files if name in listed or name in (MANIFEST, CARD)]


def unpublished_files(folder: Path) -> list[str]:
    """Return the paths of the files that ``manifest.json`` does not list, relative to the folder."""
    return sorted(set(repository_files(folder)) - set(published_files(folder)))


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
    """Write ``manifest.json``: the size and the SHA-256 of each file of a finished folder except the card."""
    facts = {name: _facts(folder / name) for name in repository_files(folder) if name not in (MANIFEST, CARD)}
    write_json(folder / MANIFEST, {"files": facts})


def check_manifest(folder: Path) -> str:
    """Compare the files of a folder with its manifest.

    Returns:
        Number of files and bytes that were compared.

    Raises:
        AssertionError: there is no manifest, or a file that it lists is missing or has changed.
    """
    listed = _read_manifest(folder)
    assert listed is not None, f"{MANIFEST} is missing; hfattn card writes it"
    present = set(repository_files(folder))
    for name in sorted(listed):
        assert name in present, f"{name} is missing"
        assert _facts(folder / name) == listed[name], f"{name} has changed since the card was written"
    return f"{len(listed)} files, {sum(facts['bytes'] for facts in listed.values()):,} bytes"


def _read_manifest(folder: Path) -> dict[str, Any] | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    content = read_json(path)
    files = content.get("files") if isinstance(content, dict) else None
    if not isinstance(files, dict) or not all(_are_facts(facts) for facts in files.values()):
        raise UserError(f"{path} is not a manifest; write it again with hfattn card {folder}.")
    return files


def _are_facts(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("bytes"), int) and isinstance(value.get("sha256"), str)


def _facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}

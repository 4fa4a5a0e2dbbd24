"""The published files of a folder, with their sizes and hashes."""

import hashlib
import os
import shutil
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any

from ..errors import UserError
from ..files import read_json, write_json, writing

MANIFEST = "manifest.json"
SIGNATURE = "model.sig"  # of all other published files, the manifest included, which therefore does not list it
CARD = "README.md"  # its text may be edited; its numbers and its code are compared with the results
PICKLES = (".bin", ".ckpt", ".dill", ".joblib", ".pickle", ".pkl", ".pt", ".pth")  # usual names of pickles
COMPILED = (".dll", ".dylib", ".pyc", ".pyd", ".pyo", ".so")
# Formats that are published without being asked for: reading a file of one of these runs no code of the file.
_FORMATS = {
    "text": (".bib", ".cff", ".csv", ".html", ".jinja", ".json", ".jsonl", ".md", ".tsv", ".txt", ".yaml", ".yml"),
    "code": (".css", ".js", ".py"),
    "pictures": (".gif", ".jpeg", ".jpg", ".png", ".svg", ".webp"),
    "vocabularies": (".bpe", ".model", ".spm", ".tiktoken", ".vocab"),
    "numbers": (".arrow", ".gguf", ".npy", ".onnx", ".onnx_data", ".parquet", ".safetensors"),
}
_SUFFIXES = tuple(suffix for suffixes in _FORMATS.values() for suffix in suffixes)
_NAMES = (".gitattributes", "Dockerfile", "LICENSE", "NOTICE")
LEFT_OUT = ("checkpoints", "checkpoint-*", "logs", "__pycache__")  # checkpoint-* are those of transformers' Trainer
TRAINER_STATE = "trainer_state.json"  # written by transformers' Trainer; it can name paths of the computer
STATEMENTS = ".reproductions"  # statements of those who trained the model of a repository again
DEEPEST = 64  # folders in folders
_KEPT = (".eval_results", ".gitattributes")


def all_files(folder: Path) -> list[str]:
    """Return the paths of the regular files in a folder, relative to it.

    Checkpoints, logs, and hidden or unfinished files are left out.
    """
    return sorted(path.relative_to(folder).as_posix() for path in _walk(folder) if stat.S_ISREG(path.lstat().st_mode))


def repository_files(folder: Path, include: Sequence[str] = ()) -> list[str]:
    """Return the paths of the files in a published format, relative to the folder.

    Args:
        folder: the folder.
        include: patterns such as ``*.npz`` of paths or names that are published too.
    """
    return [
        name for name in all_files(folder) if (_has_format(name) and name != TRAINER_STATE) or matches(name, include)
    ]


def published_files(folder: Path, include: Sequence[str] = ()) -> list[str]:
    """Return the paths of the files that are published, relative to the folder.

    In a model folder these are the files that ``manifest.json`` lists, the manifest itself, the card and the signature;
    files added later, such as a picture of attention, are not published. In a folder without a manifest, they are the
    files in a published format.

    Args:
        folder: the folder.
        include: patterns of paths or names that are published too.

    Raises:
        UserError: the manifest cannot be read.
    """
    listed = _read_manifest(folder)
    if listed is None:
        return repository_files(folder, include)
    known = {*listed, MANIFEST, CARD, SIGNATURE}
    return [name for name in all_files(folder) if name in known or matches(name, include)]


def unpublished_files(folder: Path, published: Collection[str]) -> dict[str, str]:
    """Return the paths of the files that are not published, relative to the folder, with the reason."""
    return {name: _reason(name) for name in all_files(folder) if name not in published}


def _reason(name: str) -> str:
    if name.lower().endswith((*PICKLES, *COMPILED)):
        return "never published, because reading it can run code"
    if name == TRAINER_STATE:
        return f"it can name local paths, and the card has its facts; --include {name} adds it"
    if _has_format(name):
        return f"not listed in {MANIFEST}; hfattn card adds it"
    return f"its format is published only if asked for: --include '{Path(name).name}'"


def _has_format(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES) or Path(name).name in _NAMES


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Return whether a path, or the name at its end, matches one of the patterns."""
    return any(fnmatch(name, pattern) or fnmatch(Path(name).name, pattern) for pattern in patterns)


def _walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Yield everything in a folder except folders; links are not followed."""
    if depth > DEEPEST:
        raise UserError(f"{folder.parents[depth - 1]} has more than {DEEPEST} folders in one another; remove them.")
    for path in folder.iterdir():
        hidden = path.name.startswith(".") and path.name not in _KEPT
        if hidden or matches(path.name, LEFT_OUT) or path.name.endswith(".part"):
            continue
        if stat.S_ISDIR(path.lstat().st_mode):
            yield from _walk(path, depth + 1)
        else:
            yield path


def check_regular(folder: Path) -> None:
    """Check that a folder has only files and folders.

    Raises:
        UserError: it has a symbolic link, a pipe, a socket or a device. These are neither followed nor opened.
    """
    for path in sorted(_walk(folder)):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            raise UserError(f"{path} is a symbolic link; replace it by a copy of what it leads to, or remove it.")
        if not stat.S_ISREG(mode):
            raise UserError(f"{path} is neither a file nor a folder; remove it.")


def copy_files(folder: Path, names: Collection[str], copy: Path) -> None:
    """Copy files of a folder to another folder.

    Neither a file nor a folder on the way to it may be a symbolic link, also not one that was put there after
    ``check_regular``.

    Raises:
        UserError: one of the names is not that of a regular file, or the disk has no space for the copy.
    """
    needed = sum((folder / name).lstat().st_size for name in names if os.path.lexists(folder / name))
    advice = "free some space for a copy of the folder, or set TMPDIR to another disk"
    if needed > (free := shutil.disk_usage(copy.parent).free):
        raise UserError(f"{folder} has {needed:,} bytes, and the disk of {copy.parent} {free:,} free ones; {advice}.")
    with writing(copy.parent, advice):
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            with _opened(folder, name) as source, (copy / name).open("wb") as target:
                shutil.copyfileobj(source, target, 2**20)


@contextmanager
def _opened(folder: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a file without following a link below the folder."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # opening a pipe would wait for its other end
    *folders, last = PurePosixPath(name).parts
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for each in folders:
                inner = os.open(each, flags | os.O_DIRECTORY, dir_fd=place)
                os.close(place)
                place = inner
            descriptor = os.open(last, flags, dir_fd=place)
        finally:
            os.close(place)
    except OSError as error:
        raise UserError(f"{folder / name} cannot be copied ({error.strerror}); links are not followed.") from error
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError(f"{folder / name} is not a file; remove it.")
        yield file


@contextmanager
def frozen_copy(folder: Path, names: Collection[str], called: str = "copy") -> Iterator[Path]:
    """Provide a copy of files of a folder, which later changes of the folder do not reach.

    Args:
        folder: the folder.
        names: the files.
        called: name of the copy.

    Raises:
        UserError: the folder has links or devices, or the disk is full.
    """
    check_regular(folder)
    with TemporaryDirectory(prefix="hfattn-") as scratch:
        copy = Path(scratch) / called
        copy.mkdir()
        copy_files(folder, names, copy)
        try:
            yield copy
        except UserError as error:  # the copy is gone when somebody reads this
            raise type(error)(str(error).replace(str(copy), str(folder))) from error


def add_to_manifest(folder: Path) -> None:
    """Add all files of a folder that ``manifest.json`` does not list; the others keep their sizes and hashes."""
    listed = _read_manifest(folder) or {}
    if new := [name for name in all_files(folder) if name not in (*listed, MANIFEST, CARD, SIGNATURE)]:
        write_json(folder / MANIFEST, {"files": listed | {name: _facts(folder / name) for name in new}})


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json``: the size and the SHA-256 of each published file of a finished folder except the card.

    A signature of the earlier files is removed.
    """
    (folder / SIGNATURE).unlink(missing_ok=True)
    facts = {name: _facts(folder / name) for name in repository_files(folder) if name not in (MANIFEST, CARD)}
    write_json(folder / MANIFEST, {"files": facts})


def is_listed(folder: Path, name: str) -> bool:
    """Return whether the manifest of a folder lists a file."""
    return name in (_read_manifest(folder) or {})


def check_manifest(folder: Path) -> str:
    """Compare the files of a folder with its manifest.

    Returns:
        Number of files and bytes that were compared.

    Raises:
        AssertionError: there is no manifest, or a file that it lists is missing or has changed.
    """
    listed = _read_manifest(folder)
    assert listed is not None, f"{MANIFEST} is missing; hfattn card writes it"
    present = set(all_files(folder))
    for name in sorted(listed):
        assert name in present, f"{name} is missing; copy it again, or run hfattn card if it was removed on purpose"
        assert _facts(folder / name) == listed[name], (
            f"{name} has changed since the card was written; copy it again, or run hfattn card if the change is yours"
        )
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

"""Find what a published folder must not contain: pickles, tokens and paths of a computer."""

import re
from pathlib import Path

from ..errors import UserError
from .manifest import PICKLES, repository_files

_PICKLES = (*PICKLES, ".msgpack")
_TEXT = (".bib", ".html", ".jinja", ".json", ".jsonl", ".md", ".py", ".svg", ".tsv", ".txt", ".yaml", ".yml")
# Not searched for tokens and paths: a vocabulary may contain any string from its training texts.
_VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
_TOKEN = re.compile(r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}\b")
_LOCAL_PATH = re.compile(r"(?<![\w./:~-])(?:/(?:home|root|Users|tmp|mnt|scratch)/[\w.-]+|[A-Z]:\\+Users\\+\w+)")


def check_publishable(folder: Path) -> None:
    """Check that a folder without a model contains nothing that must not be published.

    Raises:
        UserError: it contains a pickle, a token or a local path.
    """
    try:
        check_no_pickles(folder)
        check_no_secrets(folder, folder)
    except AssertionError as error:
        raise UserError(f"{folder} was not pushed: {error}.") from None


def check_no_pickles(folder: Path) -> str:
    """Check by their names and first bytes that no published file is a pickle; raises AssertionError."""
    names = repository_files(folder)
    for name in names:
        with (folder / name).open("rb") as file:
            start = file.read(512)
        # A safetensors file begins with the length of its JSON header, which can look like the first bytes of a pickle.
        weights = name.endswith(".safetensors") and start[4:9] == b"\0\0\0\0{"
        pickled = start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05" and not weights
        archived = start[:2] == b"PK" and (b"data.pkl" in start or name.endswith(_PICKLES))
        unsafe = pickled or archived or name.endswith(_PICKLES)
        assert not unsafe, f"{name} is a pickle, which runs code when it is read"
    return f"{len(names)} files"


def check_no_secrets(copy: Path, folder: Path) -> str:
    """Check that no text file contains a token or a local path; the AssertionError does not show the token."""
    own = {str(Path.home()), str(folder.resolve()), str(Path.cwd())} - {"/"}
    looked = [name for name in repository_files(copy) if name.endswith(_TEXT) and Path(name).name not in _VOCABULARIES]
    for name in looked:
        text = (copy / name).read_text(encoding="utf-8", errors="replace")
        assert not _TOKEN.search(text), f"{name} contains what looks like a token of the Hub"
        found = _LOCAL_PATH.search(text)
        assert not found, f"{name} contains a local path: {found and found[0]}"
        here = next((path for path in own if re.search(re.escape(path) + r"(?![\w.-])", text)), None)
        assert here is None, f"{name} contains a local path: {here}"
    return f"{len(looked)} text files"

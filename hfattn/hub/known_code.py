"""The code files of models that hfattn has released, known by their SHA-256.

A file is known if it equals one of a release, listed in ``known_code.json``, or one of this installation. The release
command runs this file by its path, so it imports nothing from hfattn.
"""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

_LIST = Path(__file__).with_name("known_code.json")
_MODELS = Path(__file__).parent.parent / "models"
# What hfattn appends to custom_classes.py. These lines only import other files, each known or not by its own bytes, and
# name their classes.
_CUSTOM_CLASSES = re.compile(
    rb"\n(?:from \.([A-Za-z_]\w*) import ([A-Za-z_]\w*) as \1_\2\n)+CLASSES = \{(?:\"\w+\.\w+\": \w+(?:, )?)+\}\n\Z"
)


def is_code(path: str) -> bool:
    """Return whether a file of a repository is Python code, by its name."""
    return path.lower().endswith(".py")


def origins(files: Mapping[str, bytes]) -> dict[str, str | None]:
    """Return where the code files of a repository come from.

    Args:
        files: contents by path. Files that are not code are ignored.

    Returns:
        For each code file ``"hfattn 0.1.0"``, the last release that contains the same bytes under any name;
        ``"hfattn 0.1.0 as installed here"``; or None if nobody has released it.
    """
    return {path: origin(content) for path, content in files.items() if is_code(path)}


def origin(content: bytes) -> str | None:
    """Return the release that contains a file with these bytes, or None; see ``origins``."""
    known = _known()
    # A model with custom classes has their imports in custom_classes.py.
    for text in (content, _CUSTOM_CLASSES.sub(b"", content)):
        if (found := known.get(hashlib.sha256(text).hexdigest())) is not None:
            return found
    return None


def custom_classes(content: bytes) -> dict[str, tuple[str, ...]]:
    """Return the classes that a ``custom_classes.py`` imports from each file, such as "my_scores.LowRank"."""
    lines = _CUSTOM_CLASSES.search(content)
    found: dict[str, tuple[str, ...]] = {}
    for file, name in re.findall(r"from \.(\w+) import (\w+) as", lines[0].decode() if lines else ""):
        found[f"{file}.py"] = (*found.get(f"{file}.py", ()), f"{file}.{name}")
    return found


@cache
def _known() -> dict[str, str]:
    """Return the origin of each known file by its SHA-256."""
    known = {sha256: f"hfattn {version('hfattn')} as installed here" for sha256 in _hashes().values()}
    for release, files in json.loads(_LIST.read_text(encoding="utf-8")).items():
        known |= dict.fromkeys(files.values(), f"hfattn {release}")
    return known


def _hashes() -> dict[str, str]:
    """Return the SHA-256 of each file that a model may be saved with."""
    paths = sorted(path for path in _MODELS.glob("*.py") if path.name != "__init__.py")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def _add_release(release: str) -> None:
    """Add the files of this checkout to the list, as those of a release."""
    releases = json.loads(_LIST.read_text(encoding="utf-8"))
    releases[release] = _hashes()
    _LIST.write_text(json.dumps(releases, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _add_release(sys.argv[1])

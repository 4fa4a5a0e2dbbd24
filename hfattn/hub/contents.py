"""Check that published files have no pickles, compiled code, keys, tokens and paths of a computer."""

from pathlib import Path

from ..errors import UserError
from .manifest import all_files
from .pickles import find_pickle
from .secrets import find_secret


def check_publishable(copy: Path, folder: Path) -> None:
    """Check that a folder without a model contains nothing that must not be published.

    Args:
        copy: a copy of the published files.
        folder: the folder that they were copied from.

    Raises:
        UserError: it contains a pickle, compiled code, a key, a token or a local path.
    """
    try:
        check_no_pickles(copy)
        check_no_secrets(copy, folder)
    except AssertionError as error:
        raise UserError(f"{folder} was not pushed: {error}.") from None


def check_no_pickles(copy: Path) -> str:
    """Check by names and content that no file is a pickle or compiled; raises AssertionError."""
    names = all_files(copy)
    for name in names:
        why = find_pickle(copy / name)
        assert why is None, f"{name} {why}; remove it"
    return f"{len(names)} files"


def check_no_secrets(copy: Path, folder: Path) -> str:
    """Check that no file contains a key, a token or a local path.

    Args:
        copy: a copy of the published files.
        folder: the folder that they were copied from, whose path must not occur in them.

    Raises:
        AssertionError: the message names the file and the line, and does not show the token.
    """
    own = {str(Path.home()), str(folder.resolve()), str(Path.cwd())} - {"/"}
    names = all_files(copy)
    for name in names:
        found = find_secret(copy / name, own)
        assert found is None, f"{name} contains {found}; remove it" + (
            ", and make the key invalid if others may have seen it" if found and "local path" not in found else ""
        )
    return f"{len(names)} files"

"""Provide the folder of a model that is given by a path, or by its id on the Hub."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import HfApi, snapshot_download

from ..errors import UserError
from ..hub_access import hub_errors, local_path


@contextmanager
def model_files(name: str, revision: str | None = None) -> Iterator[tuple[Path, bool]]:
    """Provide the folder of a model, and whether it was downloaded from the Hub and is deleted afterwards.

    Errors about a downloaded folder name the repository.

    Args:
        name: path of a folder, or id of a repository.
        revision: commit of the repository; default: the last one.

    Raises:
        UserError: there is no such folder or repository, or the Hub cannot be reached.
    """
    found = local_path(name)
    if found is not None:
        yield found, False
        return
    with TemporaryDirectory(prefix="hfattn-") as scratch:
        folder = Path(scratch).resolve() / Path(name).name
        with hub_errors(name, revision=revision):
            snapshot_download(name, local_dir=folder, revision=revision)
        (folder / ".gitattributes").unlink(missing_ok=True)  # the Hub's own
        try:
            yield folder, True
        except UserError as error:
            raise UserError(str(error).replace(str(folder), name)) from error


def current_commit(name: str) -> str:
    """Return the last commit of a repository.

    Raises:
        UserError: there is no such repository, or the Hub cannot be reached.
    """
    with hub_errors(name):
        return str(HfApi().model_info(name).sha)

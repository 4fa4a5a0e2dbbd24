"""Distinguish local paths from Hub ids, and convert Hub errors to one-sentence errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from huggingface_hub import get_token
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # from httpx in huggingface-hub 1, from httpx2 in later versions
    LocalEntryNotFoundError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import validate_repo_id

from .errors import UserError

Kind = Literal["model", "dataset"]

_WANTED = {
    "model": "a model folder or the id of a model on the Hub",
    "dataset": "a file, a folder or the id of a dataset on the Hub",
}


def local_path(name: str, kind: Kind = "model") -> Path | None:
    """Return the local path with this name, or None if the name can only be a Hub id.

    The network is not used. A name is a path if it cannot be an id (``./x``, ``~/x``, ``/x``, ``a/b/c``), or if it
    begins with ``runs/``, where runs are saved.

    Args:
        name: a path or an id.
        kind: kind of object: the folder of a model, or the file or folder of a dataset.

    Raises:
        UserError: the name can only be a path and does not exist, or a model is a file.
    """
    path = _expanded(name)
    if not name.strip() or (not path.exists() and (name.startswith("runs/") or not is_id(name))):
        raise not_found(name, kind)
    if not path.exists():
        return None
    if not path.is_dir() and not path.is_file():  # reading a device or a pipe may never end
        raise UserError(f"{name} is neither a file nor a folder; give {_WANTED[kind]}.")
    if kind == "model" and path.is_file():
        raise UserError(f"{name} is a file; give {_WANTED[kind]}.")
    return path


def _expanded(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~ and the name of nobody
        return Path(name)


def model_folder(name: str) -> Path | None:
    """Return the model folder with this name, or None if the name can only be a Hub id.

    Raises:
        UserError: see ``local_path``; or the folder has neither ``config.json`` nor
            ``adapter_config.json``.
    """
    folder = local_path(name)
    if folder is not None and not any((folder / name).is_file() for name in ("config.json", "adapter_config.json")):
        raise UserError(f"The folder {name} holds no model: config.json is missing; give {_WANTED['model']}.")
    return folder


def not_found(name: str, kind: Kind = "model") -> UserError:
    """Return the error for a name that is neither local nor on the Hub."""
    return UserError(
        f"{name.strip() or 'An empty name'} was not found locally or on the Hub; give {_WANTED[kind]} (for private "
        "ones log in with hf auth login)."
    )


def is_id(name: str) -> bool:
    """Return whether a name can be the id of a repository on the Hub."""
    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return True


@contextmanager
def hub_errors(name: str, kind: Kind = "model", revision: str | None = None, writing: bool = False) -> Iterator[None]:
    """Convert errors of the Hub, including those wrapped by another library, to a one-sentence error.

    Errors with another cause pass through unchanged.

    Args:
        name: id of the repository.
        kind: kind of repository, used in the message.
        revision: the requested branch, tag or commit.
        writing: whether the operation writes to the Hub.

    Raises:
        UserError: the Hub refuses access, does not have the repository or file, or cannot be reached.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if (explained := _explained(error, name, kind, revision, writing)) is None:
            raise
        raise explained from error


def _explained(error: BaseException, name: str, kind: Kind, revision: str | None, writing: bool) -> UserError | None:
    """Return the explanation of a Hub error, or None for other errors. It never contains the token."""
    for cause in _causes(error):
        match cause:
            case GatedRepoError():
                return UserError(
                    f"{name} is gated; accept its conditions on its page on the Hub, and log in with hf auth login."
                )
            case RevisionNotFoundError():
                return UserError(f"{name} has no revision {revision!r}; give another one, or none.")
            case RepositoryNotFoundError() | HFValidationError():
                return not_found(name, kind)
            case RemoteEntryNotFoundError():
                return None  # the library that requested the file raises a better error
            case LocalTokenNotFoundError():
                return no_token()
            case HfHubHTTPError():
                return UserError(f"The Hub {_refusal(cause, name, revision)}.")
            case LocalEntryNotFoundError() | OfflineModeIsEnabled() | HTTPError():
                missing = "The Hub" if writing else f"{name} was not found locally, and the Hub"
                advice = "check the connection and that HF_HUB_OFFLINE is not set, and try again"
                if kind == "model" and not writing:
                    advice += f", or give a folder made elsewhere with hf download {name} --local-dir DIR"
                return UserError(f"{missing} cannot be reached ({type(cause).__name__}); {advice}.")
    return None


def no_token() -> UserError:
    """Return the error for a missing Hub token."""
    return UserError("There is no token for the Hub on this computer; log in with: hf auth login")


def _refusal(error: HfHubHTTPError, name: str, revision: str | None) -> str:
    status = error.response.status_code
    said = " ".join((error.server_message or "").split()).rstrip(".")
    if token := get_token():
        said = said.replace(token, "...")
    said = f" ({said})" if said else ""
    if status == 401:
        return "does not know this token; log in with: hf auth login"
    if status in (402, 413, 507) or "quota" in said.lower() or "storage" in said.lower():
        return f"has no space left for this account{said}; free some, and try again"
    if status == 403:
        return f"does not let this token use {name} in this way{said}; create a token with the role 'write'"
    if status == 412:
        return f"has a newer commit on {revision or 'main'} of {name} since this command began; try again to see it"
    if status == 429:
        return "refuses more requests for now; wait a little, and try again"
    if status >= 500:
        return f"reports an error of its own ({status}){said}; try again"
    return f"refuses this ({status}){said}; check the request, and try again"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__

"""Run the code of a model folder in a sandbox: a read-only copy without what was recorded about the model."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import HfApi, snapshot_download
from safetensors import SafetensorError
from safetensors.torch import load

from .. import clean_process
from ..errors import UserError
from ..files import read_json_object, write_json
from ..hub_access import hub_errors, local_path
from ..loading import ModelLocation, base_location
from .code_findings import MOST_BYTES, printable
from .data_files import check_data_files
from .known_code import is_code, origins
from .manifest import CARD, MANIFEST, copy_files, matches
from .sandbox import NoSandboxError, run

# Recorded outputs, and pictures of them. Who knows them can send them without computing anything.
_RECORDED = (clean_process.FINGERPRINTS, "results.json", CARD, MANIFEST)
_OF_A_BASE = ["*.json", "*.safetensors", "*.py", "*.txt", "*.model", "*.jinja"]  # what a base model is loaded from
_PICTURES = (".csv", ".html", ".log", ".png", ".svg", ".tsv", ".yaml")


@dataclass(frozen=True)
class Result:
    """What the process sent under a name.

    Attributes:
        facts: an object of JSON; if something was raised, its only field is ``error``.
        tensors: by name.
    """

    facts: dict[str, Any]
    tensors: dict[str, torch.Tensor]


@dataclass(frozen=True)
class CleanRun:
    """What the code of a folder has sent. The code can have sent anything.

    Attributes:
        sandbox: the sandbox in which it ran.
        known: whether all of this code is that of hfattn.
        results: what was sent, by name.
        failure: why there may be no more results; None if the process ended by itself.
    """

    sandbox: str
    known: bool
    results: dict[str, Result]
    failure: str | None

    def where(self) -> str:
        """Return who computed the results, and in which sandbox."""
        return f"sandbox: {self.sandbox}" + ("" if self.known else "; computed by the repository's own code")


def run_folder(
    folder: Path,
    names: Iterable[str],
    order: Mapping[str, Any],
    *,
    known: bool,
    trust: bool,
    timeout: float = 900,
    original: Path | None = None,
    links: bool = False,
) -> CleanRun:
    """Run the code of a folder in a sandbox, as ``clean_process.py`` does.

    If the folder is that of an adapter, its base model is copied beside it, and downloaded before if needed.

    Args:
        folder: the model folder.
        names: its files that are copied.
        order: see ``clean_process.main``.
        known: whether the code of the card is that of a template of hfattn, if it is part of the order.
        trust: whether other code than that of hfattn may run where the kernel has no sandbox.
        timeout: seconds after which everything in the sandbox is killed.
        original: the folder that ``folder`` is a copy of, which the error names.
        links: whether the copy may consist of links to the files of ``folder``, which then become read-only.

    Raises:
        UserError: the kernel has no sandbox, and the code is neither known nor trusted; the base model of an adapter
            cannot be found; such code could read a base model that is not public; or weights are not valid.
    """
    names = [name for name in names if not (name in _RECORDED or name.endswith(_PICTURES))]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch).resolve() / "model"
        copy.mkdir()
        if not (links and _linked(folder, names, copy)):
            copy_files(folder, names, copy)
        try:
            check_data_files(copy, names)
        except AssertionError as error:
            raise UserError(f"The code of {original or folder} was not run: {error}.") from None
        known = known and _are_known(copy, names)
        if clean_process.ADAPTER in names:
            base = _copy_base(copy, original or folder, any_place=known or trust)
            known = known and _are_known(copy, base)
            names += base
        for name in names:
            (copy / name).chmod(0o444)
        for path in (copy, *filter(Path.is_dir, copy.rglob("*"))):
            path.chmod(0o755)  # the process may run as nobody
        weights = sum((copy / name).stat().st_size for name in names)
        try:
            done = run(
                Path(clean_process.__file__),
                copy,
                json.dumps(order).encode(),
                memory=2**33 + 8 * weights,
                timeout=timeout,
                trusted=known or trust,
            )
        except NoSandboxError as error:
            raise UserError(
                f"The code of {original or folder} was not run: it is not that of hfattn, and {error}; read it with "
                f"hfattn inspect {original or folder}, then add --trust."
            ) from error
    results, problem = _decode(done.output)
    return CleanRun(done.sandbox, known, results, problem or (done.failure and printable(done.failure, 400)))


def _linked(folder: Path, names: Iterable[str], copy: Path) -> bool:
    """Fill a folder with links to files; return whether the file system has links."""
    for name in names:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        try:
            (copy / name).hardlink_to(folder / name)
        except OSError:
            return False
    return True


def _are_known(folder: Path, names: Iterable[str]) -> bool:
    code = list(filter(is_code, names))
    if any((folder / name).stat().st_size > MOST_BYTES for name in code):
        return False
    return all(origins({name: (folder / name).read_bytes() for name in code}).values())


def _copy_base(copy: Path, original: Path, *, any_place: bool) -> list[str]:
    """Copy the base model of an adapter into the copy of its folder, and return the paths of its files there.

    Args:
        copy: the copy of the folder.
        original: the folder of the adapter, which errors name.
        any_place: whether the base model may be a folder of this computer, or a private repository.
    """
    try:
        config = read_json_object(copy / clean_process.ADAPTER)
    except UserError as error:
        raise UserError(str(error).replace(str(copy), str(original))) from None
    if not any_place:
        _check_public(base_location(ModelLocation(name=str(original)), config).name, original)
    base = base_folder(config, original)
    # The files in the cache of the Hub are links.
    found = [path.name for path in sorted(base.iterdir()) if path.is_file() and matches(path.name, _OF_A_BASE)]
    (copy / clean_process.BASE).mkdir()
    for name in found:
        shutil.copyfile(base / name, copy / clean_process.BASE / name)
    # A path relative to the working directory of the process.
    config |= {"base_model_name_or_path": f"./{clean_process.BASE}", "revision": None}
    write_json(copy / clean_process.ADAPTER, config)
    return [f"{clean_process.BASE}/{name}" for name in found]


def _check_public(name: str, folder: Path) -> None:
    """Check that the base model of an adapter is public, because code that nobody knows could print what it reads.

    Raises:
        UserError: it is a folder of this computer, a private repository, or not found.
    """
    public = False
    with suppress(UserError):
        if local_path(name) is None:
            with hub_errors(name):
                public = HfApi(token=False).model_info(name).private is False
    if not public:
        raise UserError(
            f"The code of {folder} is not that of hfattn and could read the base model {name}, which is not known to "
            f"be public; read the code with hfattn inspect {folder}, then add --trust."
        )


def base_folder(config: Mapping[str, Any], folder: Path) -> Path:
    """Return the folder of the base model of an adapter; one on the Hub is downloaded if it is not in the cache.

    Args:
        config: content of ``adapter_config.json``.
        folder: the folder of the adapter, which errors name.

    Raises:
        UserError: the configuration names no base model, or there is no such model.
    """
    there = base_location(ModelLocation(name=str(folder)), config)
    name = there.name
    try:
        base = local_path(name)
        if base is None:
            with hub_errors(name, revision=there.revision):
                base = Path(snapshot_download(name, revision=there.revision, allow_patterns=_OF_A_BASE))
    except UserError as error:
        raise UserError(f"The base model of the adapter {folder} is missing: {error}") from error
    if not (base / "config.json").is_file():
        raise UserError(f"The base model of the adapter {folder} is missing: {name} has no config.json.")
    return base


def _decode(data: bytes) -> tuple[dict[str, Result], str | None]:
    """Return the results in the bytes of a pipe, and what is wrong with the bytes."""
    results: dict[str, Result] = {}
    start = 0
    while start < len(data):
        end = start + 8 + int.from_bytes(data[start : start + 8], "little")
        message = data[start + 8 : end]
        try:
            tensors = load(message)
            header = json.loads(message[8 : 8 + int.from_bytes(message[:8], "little")])["__metadata__"]
            name, facts = header["name"], json.loads(header["facts"])
        except (KeyError, RecursionError, ValueError, SafetensorError):
            return results, "the process sent something that is no result"
        if name in results or not isinstance(facts, dict):
            return {}, f"the process sent {printable(name, 80)!r} twice, or not as an object"
        results[name], start = Result(facts, tensors), end
    return results, None

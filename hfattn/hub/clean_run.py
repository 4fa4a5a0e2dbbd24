"""Run the code of a model folder in a sandbox: a read-only copy without what was recorded about the model."""

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from .. import clean_process
from ..errors import UserError
from .code_findings import printable
from .known_code import is_code, origins
from .manifest import CARD, MANIFEST
from .sandbox import NoSandboxError, run

# Recorded outputs, and pictures of them. Who knows them can send them without computing anything.
_RECORDED = (clean_process.FINGERPRINTS, "results.json", CARD, MANIFEST)
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
) -> CleanRun:
    """Run the code of a folder in a sandbox, as ``clean_process.py`` does.

    Args:
        folder: the model folder.
        names: its files that are copied.
        order: see ``clean_process.main``.
        known: whether the code of the card is that of a template of hfattn, if it is part of the order.
        trust: whether other code than that of hfattn may run where the kernel has no sandbox.
        timeout: seconds after which everything in the sandbox is killed.
        original: the folder that ``folder`` is a copy of, which the error names.

    Raises:
        UserError: the kernel has no sandbox, and the code is neither known nor trusted.
    """
    names = [name for name in names if not (name in _RECORDED or name.endswith(_PICTURES))]
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch).resolve() / "model"
        for name in names:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, copy / name)
            (copy / name).chmod(0o444)
        for path in (copy, *filter(Path.is_dir, copy.rglob("*"))):
            path.chmod(0o755)  # the process may run as nobody
        known = known and all(origins({name: (copy / name).read_bytes() for name in filter(is_code, names)}).values())
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

"""Verify that a model folder loads where hfattn is not installed, and contains nothing that must not be published."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard
from yaml import YAMLError

from .. import clean_process
from ..errors import UserError
from ..extras import require
from .card import card_code, check_card, read_results
from .code_findings import printable
from .contents import check_no_pickles, check_no_secrets
from .manifest import CARD, check_manifest, check_regular, published_files, unpublished_files
from .stated import missing_statements

# Prefixes of environment variables that change the behavior of libraries or set up a multi-process launch.
_SETTINGS = ("ACCELERATE_", "FSDP_", "HF_", "LOCAL_", "MASTER_", "PYTHON", "RANK", "TORCH", "TRANSFORMERS_", "WORLD_")


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what was checked.
        passed: the outcome; or None if the folder has nothing to check, and for advice.
        detail: what was compared, why the check failed, or the advice.
    """

    name: str
    passed: bool | None
    detail: str


@dataclass(frozen=True)
class Report:
    """The outcome of verifying a folder.

    Attributes:
        folder: the model folder.
        checks: what was checked.
        unpublished: files of the folder that are neither checked nor pushed, with the reason.
    """

    folder: Path
    checks: list[Check]
    unpublished: dict[str, str]

    @property
    def passed(self) -> bool:
        return all(check.passed is not False for check in self.checks)

    def failures(self) -> str:
        return "; ".join(f"{check.name}: {check.detail}" for check in self.checks if check.passed is False)

    def __str__(self) -> str:
        words = {True: "pass", False: "FAIL", None: "-"}
        width = max(len(check.name) for check in self.checks) + 2
        lines = [f"{words[check.passed]:6}{check.name:{width}}{check.detail}" for check in self.checks]
        lines += [f"Not published: {name} ({reason})" for name, reason in self.unpublished.items()]
        failed = sum(check.passed is False for check in self.checks)
        lines.append(
            f"{self.folder}: " + (f"{failed} of {len(self.checks)} checks failed." if failed else "all checks passed.")
        )
        return "\n".join(printable(line) for line in lines)

    def to_dict(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "passed": self.passed,
            "checks": [asdict(check) for check in self.checks],
            "unpublished": self.unpublished,
        }


def verify(folder: str | Path, timeout: float = 900, *, original: Path | None = None) -> Report:
    """Check a copy of the published files of a model folder in a process without hfattn and without a network.

    The code in the folder is run there, as ``trust_remote_code=True`` runs it. Files that ``manifest.json`` does not
    list are not copied, so they cannot influence any check.

    Args:
        folder: the model folder.
        timeout: seconds after which the process is stopped and its check fails.
        original: the folder that ``folder`` is a copy of, which the report names.

    Raises:
        UserError: if the folder does not exist, has links or devices, has no model, has an unreadable manifest, or was
            written by an earlier version of hfattn.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} was not found; give the folder of a finished run.")
    require("publish", "detect_secrets")
    original = original or folder
    check_regular(folder)
    files = published_files(folder)
    weights = [name for name in files if name.endswith(".safetensors")]
    if not weights or not {"config.json", "baseline.json"} & set(files):
        raise UserError(f"{folder} has no model with safetensors weights; give the folder of a finished run.")
    if "results.json" in files:
        read_results(folder)
    missing = missing_statements(folder / CARD, original)
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / "model"
        for name in files:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / name, copy / name)
        checks = [
            _checked("files are unchanged since the card was written", lambda: check_manifest(copy)),
            _checked("no file is a pickle", lambda: check_no_pickles(copy)),
            _checked("no file contains a token or a local path", lambda: check_no_secrets(copy, original)),
            _checked("the card matches the results", lambda: _check_card(copy)),
            Check("the card states a license and a language", None if missing else True, "; ".join(missing) or "both"),
        ]
        checks += _in_a_clean_process(copy, Path(scratch), timeout)
    return Report(original, checks, unpublished_files(original, files))


def _check_card(folder: Path) -> str:
    assert (folder / CARD).is_file(), f"{CARD} is missing; hfattn card writes it"
    assert (folder / "results.json").is_file(), (
        "results.json, the source of the card's numbers, is missing; copy it again"
    )
    try:
        return check_card(folder, read_results(folder))
    except AssertionError as error:
        raise AssertionError(f"{error}; hfattn card writes the card again") from None


def _checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except AssertionError as error:
        return Check(name, False, str(error))
    except (ValueError, LookupError, YAMLError) as error:  # the card or results.json cannot be read
        return Check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _in_a_clean_process(copy: Path, scratch: Path, timeout: float) -> list[Check]:
    card = (copy / CARD).read_text(encoding="utf-8") if (copy / CARD).is_file() else ""
    code, printed = card_code(card)
    data = ModelCard(card, ignore_metadata_errors=True).data.to_dict() if card else {}
    order = {
        "card_code": code,
        "printed": printed,
        "pipeline_tag": data.get("pipeline_tag"),
        "needs_hfattn": data.get("library_name") == "hfattn",
    }
    home = scratch / "home"
    home.mkdir()
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)},
        "HOME": str(home),
        "HF_HOME": str(home),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-I", clean_process.__file__, str(copy)],
            input=json.dumps(order),
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Check("it loads in a clean process", False, f"timed out after {timeout:.0f} s")]
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        return [Check("it loads in a clean process", False, f"it ended with exit code {done.returncode}: {last}")]
    return [Check(**check) for check in json.loads(lines[-1])]

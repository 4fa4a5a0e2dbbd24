"""Verify that a model folder loads where hfattn is not installed, and contains nothing that must not be published."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import ModelCard
from safetensors import SafetensorError
from transformers.pipelines import PIPELINE_REGISTRY
from yaml import YAMLError

from ..clean_process import CARD_CODE, FINGERPRINTS, MEASURED
from ..errors import UserError
from ..extras import require
from ..files import read_json_object
from .card import card_code, card_place, check_card, read_results, with_model_id
from .clean_run import run_folder
from .code_findings import printable
from .consistency import check_consistency
from .contents import check_no_pickles, check_no_secrets
from .data_files import check_data_files
from .fingerprints import read_fingerprints
from .foreign import is_foreign, task_of
from .judging import Check, Recorded, judge_card, judge_model
from .manifest import CARD, SIGNATURE, check_manifest, check_regular, copy_files, published_files, unpublished_files
from .measuring import AS_RECORDED, Measurement, judge_measurement, plan_measurement, plan_texts
from .private_texts import check_private_texts
from .signing import Signer, check_signature
from .stated import missing_statements

CARD_MATCHES = "the card matches the results"
_WIDTH = len(CARD_CODE) + 2  # the longest name of a check
_TIMEOUT, _MEASURING = 900.0, 7200.0  # seconds
SCORES_AGREE = "the scores do not contradict each other"
SOUND = "weights, their indexes and graphs are sound"
SIGNED = "the files are those that were signed"
QUOTES_NOTHING = "no text of the data is quoted"
OF_ITS_AUTHOR = "there is no results.json; its numbers are those of its author, and were not measured again"


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
        return "\n".join([*map(line_of, self.checks), self.ending()])

    def ending(self) -> str:
        """Return the lines after those of the checks: the files that are not published, and the outcome."""
        lines = [f"Not published: {name} ({reason})" for name, reason in self.unpublished.items()]
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


def line_of(check: Check) -> str:
    """Return the outcome of a check as a line, with a mark at its beginning."""
    mark = {True: "pass", False: "FAIL", None: "-"}[check.passed]
    where = f" [{check.where}]" if check.where else ""
    return printable(f"{mark:6}{check.name:{_WIDTH}}{check.detail}{where}")


def verify(
    folder: str | Path,
    timeout: float | None = None,
    *,
    original: Path | None = None,
    trust: bool = False,
    measure: Sequence[str] | None = None,
    signer: Signer | None = None,
    tell: Callable[[Check], object] = lambda check: None,
) -> Report:
    """Check a copy of the published files of a model folder, and run its code in a sandbox without hfattn.

    The code in the folder is run there, as ``trust_remote_code=True`` runs it, and sends what it computes; this process
    compares that with what was recorded. Files that ``manifest.json`` does not list are not copied, so they cannot
    influence any check.

    Args:
        folder: the model folder.
        timeout: seconds after which the sandbox is stopped and its checks fail; by default, 900, and 7200 if the scores
            are measured again.
        original: the folder that ``folder`` is a copy of, which the report names; ``folder`` then belongs to the
            caller alone, and is not copied again.
        trust: whether code that is not that of hfattn may run where the kernel has no sandbox.
        measure: measure the scores again, on the data at these places; see ``plan_measurement``. None: do not.
        signer: who must have signed the files: the file of a public key, or an ``Identity``. If they are not signed so,
            nothing else is checked, and nothing of the folder is run. None: a signature is not checked.
        tell: function that gets each check when it has ended.

    Raises:
        UserError: if the folder does not exist, has links or devices, has no model, has an unreadable manifest, or was
            written by an earlier version of hfattn; or the kernel has no sandbox for code that is neither known nor
            trusted; or the public key, or the keys of Sigstore, cannot be read.
    """
    if not __debug__:
        raise UserError("python -O removes the checks of hfattn verify; run it without -O and PYTHONOPTIMIZE.")
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} was not found; give the folder of a finished run.")
    if signer is not None:
        require("sign")
    require("publish", "detect_secrets")
    is_copy, original = original is not None, original or folder
    check_regular(folder)
    checks: list[Check] = []
    with tempfile.TemporaryDirectory() as scratch:
        copy = folder if is_copy else Path(scratch).resolve() / "model"

        def add(check: Check) -> None:
            checks.append(replace(check, detail=check.detail.replace(str(copy), str(original))))
            tell(checks[-1])

        for check in _check_signature(folder, signer):
            add(check)
        if checks and checks[0].passed is False:
            return Report(original, checks, {})
        files = published_files(folder)
        weights = [name for name in files if name.endswith(".safetensors")]
        if not weights or not {"config.json", "adapter_config.json", "baseline.json"} & set(files):
            raise UserError(
                f"{original} has no model with safetensors weights; give a folder written by save_pretrained."
            )
        if "results.json" in files:
            read_results(folder)
        missing = missing_statements(folder / CARD, original)
        # A card without results: its numbers cannot be compared with anything.
        own_card = CARD in files and "results.json" not in files and is_foreign(folder)
        if not is_copy:
            copy.mkdir()
            copy_files(folder, files, copy)
        add(_checked("files are unchanged since the card was written", lambda: check_manifest(copy)))
        add(_checked("no file is a pickle", lambda: check_no_pickles(copy)))
        add(_checked(SOUND, lambda: check_data_files(copy, files)))
        if not checks[-1].passed:
            return Report(original, checks, unpublished_files(original, files))
        add(_checked("no file contains a token or a local path", lambda: check_no_secrets(copy, original)))
        add(Check(CARD_MATCHES, None, OF_ITS_AUTHOR) if own_card else _checked(CARD_MATCHES, lambda: _check_card(copy)))
        known_card = bool(checks[-1].passed)
        add(_check_scores(copy))
        stated = "; ".join(missing)
        add(Check("the card states a license and a language", None if missing else True, stated or "both"))
        for check in _check_texts(copy, measure):
            add(check)
        measurement = _measurement(copy, measure)
        if timeout is None:
            timeout = _TIMEOUT if isinstance(measurement, Check) else _MEASURING
        for check in _check_in_a_sandbox(copy, files, known_card, trust, timeout, original, own_card, measurement):
            add(check)
    return Report(original, checks, unpublished_files(original, files))


def _check_signature(folder: Path, signer: Signer | None) -> list[Check]:
    """Check the signature of a folder; nothing if it has none and needs none."""
    if signer is not None:
        try:
            return [Check(SIGNED, True, check_signature(folder, signer))]
        except AssertionError as error:
            return [Check(SIGNED, False, str(error))]
    signed = (folder / SIGNATURE).is_file()
    return [Check(SIGNED, None, f"{SIGNATURE} was not checked; --signer does")] if signed else []


def _check_card(folder: Path) -> str:
    assert (folder / CARD).is_file(), f"{CARD} is missing; hfattn card writes it"
    assert (folder / "results.json").is_file(), (
        "results.json, the source of the card's numbers, is missing; copy it again"
    )
    try:
        return check_card(folder, read_results(folder))
    except AssertionError as error:
        raise AssertionError(f"{error}; hfattn card writes the card again") from None


def _check_scores(folder: Path) -> Check:
    if not (folder / "results.json").is_file() or not (results := read_results(folder)).get("metrics"):
        return Check(SCORES_AGREE, None, "nothing was measured")
    return _checked(SCORES_AGREE, lambda: check_consistency(results))


def _check_texts(copy: Path, places: Sequence[str] | None) -> list[Check]:
    """Check that a folder quotes no text of data that it was not to quote; nothing if it may."""
    results = read_results(copy) if (copy / "results.json").is_file() else {}
    if results.get("publish", {}).get("texts", "samples") == "samples":
        return []
    if places is None:
        return [Check(QUOTES_NOTHING, None, "not compared with the data; --measure --data FILE does")]
    try:
        texts = plan_texts(results, places)
    except AssertionError as error:
        return [Check(QUOTES_NOTHING, False, str(error))]
    if isinstance(texts, str):
        return [Check(QUOTES_NOTHING, None, texts)]
    learned = results["configuration"].get("model", {}).get("name") is None
    return [_checked(QUOTES_NOTHING, lambda: check_private_texts(copy, *texts, learned_vocabulary=learned))]


def _checked(name: str, check: Callable[[], str]) -> Check:
    try:
        return Check(name, True, check())
    except AssertionError as error:
        return Check(name, False, str(error))
    except UserError as error:
        return Check(name, False, str(error))
    except (ValueError, LookupError, YAMLError) as error:  # the card or results.json cannot be read
        return Check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())}")


def _measurement(copy: Path, places: Sequence[str] | None) -> Measurement | Check:
    """Return what is to be measured again, or the check that says why nothing is."""
    results = read_results(copy) if (copy / "results.json").is_file() else {}
    if not results.get("metrics"):
        return Check(MEASURED, None, "there are no scores of a recipe")
    if places is None:
        return Check(MEASURED, None, f"{AS_RECORDED}; --measure does")
    try:
        planned = plan_measurement(results, places)
    except AssertionError as error:
        return Check(MEASURED, False, str(error))
    except UserError:
        raise
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = printable(f"{type(error).__name__}: {error}", 200)
        return Check(MEASURED, False, f"results.json does not say how ({reason}); copy the file again")
    return Check(MEASURED, None, planned) if isinstance(planned, str) else planned


def _check_in_a_sandbox(
    copy: Path,
    files: Sequence[str],
    known_card: bool,
    trust: bool,
    timeout: float,
    original: Path,
    own_card: bool,
    measurement: Measurement | Check,
) -> list[Check]:
    card = (copy / CARD).read_text(encoding="utf-8") if (copy / CARD).is_file() else ""
    code, printed = card_code(card)
    if own_card and printed is None:  # it may need anything
        code = None
    data = ModelCard(card, ignore_metadata_errors=True).data.to_dict() if card else {}
    needs_hfattn = "baseline.json" in files and data.get("library_name") == "hfattn"
    texts, tensors, problem = ({}, {}, None) if needs_hfattn else _fingerprints(copy)
    task = (
        None
        if needs_hfattn
        else _pipeline(copy, task_of(copy, original) if is_foreign(copy) else data.get("pipeline_tag"))
    )
    recorded = Recorded(texts, tensors, task if texts else None, printed, problem)
    place = None if needs_hfattn or "adapter_config.json" in files else card_place(card)
    if code is not None and place is not None:
        identifier, revision = place
        code = with_model_id(code, identifier, None if revision == "main" else revision)
    order = {
        "hides_hfattn": not needs_hfattn,
        "loads": not needs_hfattn,
        "batches": texts,
        "pipeline": recorded.pipeline,
        "card_code": code,
        "card_place": place,
        "measure": measurement.order if isinstance(measurement, Measurement) else None,
    }
    known = known_card or code is None
    done = run_folder(copy, files, order, known=known, trust=trust, timeout=timeout, original=original, links=True)
    checks = [] if needs_hfattn else judge_model(done, recorded)
    if code is not None or needs_hfattn:
        checks.append(judge_card(done, recorded))
    again = measurement if isinstance(measurement, Check) else judge_measurement(done, measurement)
    return [*checks, again]


def _fingerprints(copy: Path) -> tuple[dict[str, list[list[str]]], dict[str, torch.Tensor], str | None]:
    """Return texts, tensors, and why there are none."""
    if not (copy / FINGERPRINTS).is_file():
        problem = (
            "is missing; hfattn card computes it for a model of your own, hfattn.hub.store_fingerprints where one "
            "is trained (in folders written before it is probes.safetensors: rename that, and run hfattn card)"
        )
        return {}, {}, f"{FINGERPRINTS} {problem}"
    try:
        return *read_fingerprints(copy), None
    except (OSError, RecursionError, TypeError, ValueError, SafetensorError) as error:
        return {}, {}, f"{FINGERPRINTS} cannot be read ({error}); copy the file again"


def _pipeline(copy: Path, tag: Any) -> str | None:
    """Return the task of the pipeline of a model: its own, or the one that its card names, if transformers has that."""
    own: Any = None
    with suppress(UserError):  # the process says what is wrong with it
        own = read_json_object(copy / "config.json").get("custom_pipelines")
    if isinstance(own, dict) and own:
        return next(iter(own))
    tag = "feature-extraction" if tag == "sentence-similarity" else tag
    return tag if tag in PIPELINE_REGISTRY.get_supported_tasks() else None

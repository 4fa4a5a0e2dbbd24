"""Report the code that a repository would run with ``trust_remote_code``, without running it."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi

from ..errors import UserError
from ..hub_access import hub_errors, local_path
from ..resources import PACKAGE
from .code_findings import KINDS, Finding, Module, printable, read_module
from .manifest import PICKLES

LARGEST = 4 * 2**20  # bytes of a file that is read; larger ones hold data, or hide in it
_COMPILED = (".dll", ".dylib", ".pyc", ".pyd", ".so")
_GENERATE = "custom_generate/generate.py"  # transformers replaces generate() with the function in this file


@dataclass(frozen=True)
class Entry:
    """A class of the repository that transformers would load.

    Attributes:
        source: the file that names the class.
        name: name of the entry: an Auto class, or ``pipeline`` and its task.
        reference: reference in the file: ``module.Class``, or ``repository--module.Class``.
        repository: the other repository in the reference, if any.
        path, class_name: the file and the class.
    """

    source: str
    name: str
    reference: str
    repository: str | None
    path: str
    class_name: str


@dataclass(frozen=True)
class CodeFile:
    """A Python file of the repository.

    Attributes:
        path, size, sha256: its path, its size in bytes, and its SHA-256.
        runs: whether an entry would run it, directly or through imports.
        same_as_hfattn: whether the file equals that of the installed hfattn; None if hfattn has no file with that name.
        imports: top-level modules by kind: "standard library", "ecosystem", "third-party", "missing here"; and the
            paths of "siblings".
    """

    path: str
    size: int
    sha256: str
    runs: bool
    same_as_hfattn: bool | None
    imports: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Inspection:
    """The code of a repository, and its findings.

    Attributes:
        name: name of the folder, or of the repository on the Hub.
        commit: commit that was read; None for a folder.
        entries, files: classes and files that would run.
        templates: files with Jinja chat templates, which are not checked as Python.
        findings: unusual lines and files.
    """

    name: str
    commit: str | None
    entries: tuple[Entry, ...]
    files: tuple[CodeFile, ...]
    templates: tuple[str, ...]
    findings: tuple[Finding, ...]

    def json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def inspect(name: str, revision: str | None = None) -> Inspection:
    """Inspect the code of a model without running it.

    Args:
        name: path of a folder, or id of a model on the Hub, of which only small text files are fetched.
        revision: branch, tag or commit of a model on the Hub.

    Raises:
        UserError: there is no such folder or model, or the Hub cannot be reached.
    """
    folder = local_path(name)
    if folder is not None:
        if revision is not None:
            raise UserError(f"{name} is a folder, which has no revisions; leave out --revision.")
        sizes = {path.relative_to(folder).as_posix(): path.stat().st_size for path in _files_in(folder)}
        return _inspect(name, None, sizes, {path: (folder / path).read_bytes() for path in _texts(sizes)})
    with hub_errors(name, revision=revision):
        api = HfApi()
        info = api.model_info(name, revision=revision, files_metadata=True)
        sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
        # The report names the commit, because a later one may run different code.
        paths = {path: api.hf_hub_download(name, path, revision=info.sha) for path in _texts(sizes)}
    return _inspect(name, info.sha, sizes, {path: Path(there).read_bytes() for path, there in paths.items()})


def _inspect(name: str, commit: str | None, sizes: Mapping[str, int], texts: Mapping[str, bytes]) -> Inspection:
    findings = [Finding("unreadable", path, None, "It is compiled.") for path in sizes if path.endswith(_COMPILED)]
    findings += [
        Finding("unreadable", path, None, f"It has {size:,} bytes, more than code has.")
        for path, size in sizes.items()
        if _is_text(path) and path not in texts
    ]
    entries: list[Entry] = []
    templates = [path for path in sizes if path.endswith(".jinja")]
    for path in sorted(texts):
        if path.endswith(".json"):
            try:
                config = json.loads(texts[path])
            except (ValueError, RecursionError) as error:
                findings.append(Finding("unreadable", path, None, f"It is not valid JSON: {error}"))
            else:
                entries += _entries(path, config)
                if isinstance(config, dict) and config.get("chat_template"):
                    templates.append(f"chat_template in {path}")
    if _GENERATE in sizes:
        entries.append(Entry(_GENERATE, "generate", _GENERATE, None, _GENERATE, "generate"))
    modules = {path: read_module(path, data, set(sizes)) for path, data in texts.items() if path.endswith(".py")}
    running = _reached([entry.path for entry in entries if entry.repository is None], modules)
    for entry in entries:
        findings += _entry_findings(entry, sizes, modules)
    findings += [finding for path in sorted(modules) for finding in modules[path].findings]
    findings += _weights(sizes)
    files = tuple(_code_file(path, texts[path], module, path in running) for path, module in sorted(modules.items()))
    return Inspection(name, commit, tuple(entries), files, tuple(templates), tuple(findings))


def _is_text(path: str) -> bool:
    """Return whether a file is code, or names the code to run."""
    in_folder = "/" in path
    return path.endswith(".py") or (path.endswith(".json") and "config" in PurePosixPath(path).name and not in_folder)


def _texts(sizes: Mapping[str, int]) -> list[str]:
    return [path for path, size in sizes.items() if _is_text(path) and size <= LARGEST]


def _files_in(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not {".git", ".cache"} & set(path.relative_to(folder).parts):
            yield path


def _entries(source: str, config: Any) -> Iterator[Entry]:
    """Return the classes that a configuration and its nested configurations name."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        if key == "auto_map":
            named = value.items() if isinstance(value, dict) else [("AutoTokenizer", value)]
            yield from (_entry(source, name, each) for name, references in named for each in _strings(references))
        elif key == "custom_pipelines" and isinstance(value, dict):
            for task, facts in value.items():
                implementation = facts.get("impl") if isinstance(facts, dict) else facts
                yield from (_entry(source, f"pipeline {task}", each) for each in _strings(implementation))
        else:
            yield from _entries(source, value)


def _strings(value: Any) -> Iterator[str]:
    """Return the references of an entry: one, or one per variant (slow and fast, or per backend)."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _entry(source: str, name: str, reference: str) -> Entry:
    repository, _, local = reference.rpartition("--")
    module, _, class_name = local.rpartition(".")
    return Entry(source, name, reference, repository or None, f"{module}.py", class_name)


def _entry_findings(entry: Entry, sizes: Mapping[str, int], modules: Mapping[str, Module]) -> Iterator[Finding]:
    said = f"{entry.name}: {entry.reference}"
    if entry.repository is not None:
        yield Finding("elsewhere", entry.source, None, f"{said} (inspect {entry.repository} too)")
    elif entry.path not in sizes:
        yield Finding("missing", entry.source, None, said)
    elif entry.path in modules and not {entry.class_name, "*"} & set(modules[entry.path].names):
        yield Finding("missing", entry.source, None, f"{said} (there is no {entry.class_name} in {entry.path})")


def _reached(paths: list[str], modules: Mapping[str, Module]) -> set[str]:
    """Return the files that the files of the entries import, directly or indirectly."""
    reached: set[str] = set()
    while paths:
        path = paths.pop()
        if path in modules and path not in reached:
            reached.add(path)
            paths += modules[path].siblings
    return reached


def _weights(sizes: Mapping[str, int]) -> Iterator[Finding]:
    safe = any(path.endswith(".safetensors") for path in sizes)
    for path in sorted(sizes):
        if path.endswith(PICKLES):
            more = "" if safe else ", and there are no weights in safetensors"
            yield Finding("pickle", path, None, f"By its name it is a pickle{more}.")


def _code_file(path: str, content: bytes, module: Module, runs: bool) -> CodeFile:
    kinds: dict[str, list[str]] = {"standard library": [], "ecosystem": [], "third-party": [], "missing here": []}
    for name in module.imports:
        if name in sys.stdlib_module_names:
            kind = "standard library"
        elif name in ("torch", "transformers", "huggingface_hub"):
            kind = "ecosystem"
        else:
            # Unlike find_spec of importlib.util, this function imports nothing and accepts any name.
            kind = "third-party" if PathFinder.find_spec(name) else "missing here"
        kinds[kind].append(name)
    kinds["siblings"] = list(module.siblings)
    ours = PACKAGE / "models" / path
    same = ours.read_bytes() == content if "/" not in path and ours.is_file() else None
    imports = {kind: tuple(names) for kind, names in kinds.items() if names}
    return CodeFile(path, len(content), hashlib.sha256(content).hexdigest(), runs, same, imports)


def _lines(inspection: Inspection) -> Iterator[str]:
    def shown(text: str) -> str:
        return printable(text, 160)

    commit = f", commit {inspection.commit}" if inspection.commit else ""
    yield f"{shown(inspection.name)}{commit}"
    yield ""
    if inspection.entries:
        yield "With trust_remote_code, transformers loads:"
        for entry in inspection.entries:
            yield f"  {shown(entry.name):40}  {shown(entry.reference)}  ({shown(entry.source)})"
    else:
        yield "No file says that transformers should load code from here."
    for file in inspection.files:
        yield ""
        yield f"{shown(file.path)}: {file.size:,} bytes{'' if file.runs else ', which nothing above leads to'}"
        yield f"  SHA-256 {file.sha256}"
        if file.same_as_hfattn is not None:
            yield f"  {'the same as' if file.same_as_hfattn else 'not the same as'} in hfattn as installed here"
        for kind, names in file.imports.items():
            yield f"  {kind}: {shown(', '.join(names))}"
    if inspection.templates:
        yield ""
        yield f"Jinja, which is not Python: {shown(', '.join(inspection.templates))}"
    yield ""
    for finding in inspection.findings:
        line = "" if finding.line is None else f":{finding.line}"
        yield f"{shown(finding.path)}{line} {KINDS[finding.kind]}"
        yield f"  {shown(finding.text)}"
    yield f"Unusual: {len(inspection.findings) or 'nothing'}. Nothing of this was run."

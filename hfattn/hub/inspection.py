"""Report the code that a repository would run with ``trust_remote_code``, without running it."""

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import Any

from huggingface_hub import HfApi

from ..clean_process import ADAPTER
from ..errors import UserError
from ..hub_access import hub_errors, local_path
from .code_findings import (
    KINDS,
    MOST_BYTES,
    MOST_BYTES_TOGETHER,
    REPOSITORIES,
    Finding,
    Module,
    printable,
    read_modules,
)
from .data_files import LARGEST, check_data_files
from .known_code import custom_classes, is_code, origin
from .manifest import COMPILED, DEEPEST, LEFT_OUT, MANIFEST, PICKLES, matches, published_files

_MOST_LINES = 1000  # of requirements, whose names are compared with those of usual packages
MOST_FILES = 300  # code files and configurations that are read
_MODULES = "modules.json"  # the layers of a model of sentence-transformers, each with its class
_NAMING = (_MODULES, "chat_template.json")  # files without "config" in their names that name code, or contain Jinja
_REQUIREMENTS = "requirements.txt"
# Packages that models need. A name that is nearly one of them is often that of another package.
_PACKAGES = """
    accelerate datasets diffusers einops flash-attn hfattn huggingface-hub numpy onnxruntime peft pillow requests
    safetensors scipy sentence-transformers sentencepiece tiktoken timm tokenizers torch torchaudio torchvision
    transformers triton
"""
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[\w.,\s-]*\])?\s*(?:[=<>!~].*?)?(?:;.*)?")
# Jinja that leaves the values of a template: names with underscores, in any spelling, and lookups by a computed name.
_REACHING = re.compile(r"__|\battr\b|\\x5f|\\u005f|\\137|\b(?:cycler|joiner|lipsum|self)\b\s*[.\[]", re.IGNORECASE)
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
        origin: release or installation of hfattn that contains the same bytes, such as "hfattn 0.1.0"; None if unknown.
        custom: classes in it that the configuration names, such as "my_scores.LowRank": parts of the model's author.
        imports: top-level modules by kind: "standard library", "ecosystem", "third-party", "missing here"; and the
            paths of "siblings".
    """

    path: str
    size: int
    sha256: str
    runs: bool
    origin: str | None
    custom: tuple[str, ...]
    imports: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Inspection:
    """The code of a repository, and its findings.

    Attributes:
        name: name of the folder, or of the repository on the Hub.
        commit: commit that was read; None for a folder.
        entries, files: classes and files that would run.
        templates: files with Jinja chat templates, which are not checked as Python.
        findings: unusual files, and unusual lines of unknown files.
        scan: what the Hub says about its own scan of the repository; None for a folder, or without a scan.
        base: the base model that an adapter names, whose code is not among the files; None of other models.
    """

    name: str
    commit: str | None
    entries: tuple[Entry, ...]
    files: tuple[CodeFile, ...]
    templates: tuple[str, ...]
    findings: tuple[Finding, ...]
    scan: str | None
    base: str | None = None

    @property
    def unknown(self) -> tuple[CodeFile, ...]:
        """The code files that are not those of a release of hfattn."""
        return tuple(file for file in self.files if file.origin is None)

    @property
    def verdict(self) -> str:
        """What the hashes of the code files say, as a sentence."""
        if not self.files:
            return "There are no code files."
        known = [file.origin for file in self.files if file.origin is not None]
        count = len(self.unknown)
        first = [file.path for file in self.unknown[:10]]
        names = ", ".join(first if count == len(first) else [*first, f"and {count - len(first)} more"])
        if not known:
            return f"{'The only code file is' if count == 1 else f'All {count} code files are'} unknown: {names}."
        releases = " or ".join(sorted(set(known)))
        said = f"{len(known)} of {len(self.files)} code files are byte for byte those of {releases}"
        return f"{said}; {count} {'is' if count == 1 else 'are'} unknown: {names}." if count else f"{said}."

    @property
    def exit_code(self) -> int:
        """1 with findings, 3 with code that is unknown, otherwise 0."""
        return 1 if self.findings else 3 if self.unknown else 0

    def json(self) -> str:
        return json.dumps({"verdict": self.verdict, "exit_code": self.exit_code, **asdict(self)}, indent=2)

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
        return _inspect_folder(name, folder)
    with hub_errors(name, revision=revision):
        api = HfApi()
        info = api.model_info(name, revision=revision, files_metadata=True, securityStatus=True)
        sizes = {sibling.rfilename: sibling.size or 0 for sibling in info.siblings or []}
        # The report names the commit, because a later one may run different code.
        paths = {path: api.hf_hub_download(name, path, revision=info.sha) for path in _texts(sizes)}
    texts = {path: Path(there).read_bytes() for path, there in paths.items()}
    scan, findings = _scan(info.security_repo_status)
    return _inspect(name, info.sha, sizes, texts, findings, scan)


def _inspect_folder(name: str, folder: Path) -> Inspection:
    sizes: dict[str, int] = {}
    findings = []
    for path in _files_in(folder):
        relative = path.relative_to(folder).as_posix()
        try:
            facts = path.stat()  # of what a link leads to, which is what would be loaded
        except OSError:  # a link that leads nowhere, or to itself
            findings.append(Finding("unreadable", relative, None, "It is a link that leads to no file."))
            continue
        if stat.S_ISREG(facts.st_mode):
            sizes[relative] = facts.st_size
        elif path.is_symlink():
            findings.append(Finding("unreadable", relative, None, "It is a link to a folder."))
        else:  # reading a pipe or a device may never end
            findings.append(Finding("unreadable", relative, None, "It is neither a file nor a folder."))
    published = None
    try:
        if (folder / MANIFEST).is_file():
            # The cache of the Hub consists of links, which a push refuses.
            published = {*published_files(folder), *(path for path in sizes if (folder / path).is_symlink())}
    except UserError:
        findings.append(Finding("unreadable", MANIFEST, None, "It is not a manifest."))
    texts = {}
    for relative in _texts(sizes):
        try:
            texts[relative] = (folder / relative).read_bytes()
        except OSError as error:
            findings.append(Finding("unreadable", relative, None, f"It cannot be opened: {error.strerror}."))
    for relative in sizes:
        try:
            check_data_files(folder, [relative])
        except AssertionError as error:
            findings.append(Finding("unreadable", relative, None, f"{str(error).rpartition(';')[0]}."))
    return _inspect(name, None, sizes, texts, findings, None, published)


def _inspect(
    name: str,
    commit: str | None,
    sizes: Mapping[str, int],
    texts: Mapping[str, bytes],
    findings: list[Finding],
    scan: str | None = None,
    published: set[str] | None = None,
) -> Inspection:
    """Inspect a repository.

    Args:
        name, commit: of the repository.
        sizes: bytes of its files by path.
        texts: contents of the files to read.
        findings: findings made before; more are appended.
        scan: what the Hub says about its own scan.
        published: the files of a folder that would be published; of the others, only those that would run are reported.
    """
    entries: list[Entry] = []
    templates = [path for path in sizes if path.endswith(".jinja")]
    fields: set[str] = set()
    custom: dict[str, tuple[str, ...]] = {}
    base = None
    for path in sorted(texts):
        if path.endswith(".jinja"):
            findings += _reaching(path, texts[path].decode("utf-8", "replace"))
        elif path == _REQUIREMENTS:
            findings += _requirements(texts[path].decode("utf-8", "replace"))
        elif path.endswith(".json"):
            try:
                config = json.loads(texts[path])
                entries += _layers(config) if path == _MODULES else _entries(path, config)
            except (ValueError, RecursionError) as error:
                findings.append(Finding("unreadable", path, None, f"It is not valid JSON: {error}"))
            else:
                if isinstance(config, dict):
                    fields.update(config)
                    findings += _kernels(path, config)
                    if config.get("chat_template"):
                        templates.append(f"chat_template in {path}")
                        for template in _strings(config["chat_template"]):
                            findings += _reaching(path, template)
                    if path == ADAPTER and isinstance(config.get("base_model_name_or_path"), str):
                        base = config["base_model_name_or_path"] or None
    if _GENERATE in sizes:
        entries.append(Entry(_GENERATE, "generate", _GENERATE, None, _GENERATE, "generate"))
    origins = {path: origin(data) for path, data in texts.items() if is_code(path)}
    code = {path: data for path, data in texts.items() if path in origins}
    modules = read_modules(code, set(sizes), frozenset(fields))
    running = _reached([entry.path for entry in entries if entry.repository is None], modules)
    for path, data in code.items():
        if origins[path] is not None:
            custom |= custom_classes(data)
    for entry in entries:
        findings += _entry_findings(entry, sizes, modules)
    shown = {path for path in sizes if published is None or path in published or path in running}
    for path in sorted(shown):
        if path.lower().endswith(COMPILED):
            findings.append(Finding("unreadable", path, None, "It is compiled."))
        elif _is_text(path) and path not in texts:
            said = f"It has {sizes[path]:,} bytes" if sizes[path] > _most(path) else "It is one of many files"
            findings.append(Finding("unreadable", path, None, f"{said}, more than the code of a model has."))
        elif published is not None and path not in published:
            findings.append(Finding("missing", path, None, f"It runs here, but {MANIFEST} does not list it."))
        if path in modules:
            found = modules[path].findings
            findings += [each for each in found if origins[path] is None or each.kind == "missing"]
    findings += _weights(shown)
    files = tuple(
        _code_file(path, code[path], modules[path], path in running, origins[path], custom.get(path, ()))
        for path in sorted(modules)
        if path in shown
    )
    return Inspection(name, commit, tuple(entries), files, tuple(templates), tuple(findings), scan, base)


def _is_text(path: str) -> bool:
    """Return whether a file is code, or names the code to run."""
    name = PurePosixPath(path).name
    return is_code(path) or (path.endswith(".json") and "config" in name) or path in _NAMING or _is_read_for_more(path)


def _is_read_for_more(path: str) -> bool:
    """Return whether a file is read because it can make programs run, or install, other code."""
    return path.endswith(".jinja") or path == _REQUIREMENTS


def _most(path: str) -> int:
    return MOST_BYTES if is_code(path) else LARGEST


def _texts(sizes: Mapping[str, int]) -> list[str]:
    """Return the files to read: those of a usual size, first those in the root, up to the limits of a repository."""
    chosen: list[str] = []
    together = 0
    for path in sorted(filter(_is_text, sizes), key=lambda path: (path.count("/"), path)):
        if sizes[path] <= _most(path) and len(chosen) < MOST_FILES:
            together += sizes[path] if is_code(path) else 0
            if together <= MOST_BYTES_TOGETHER:
                chosen.append(path)
    return chosen


def _files_in(folder: Path) -> Iterator[Path]:
    """Yield what a push may publish, and links to folders, which are not followed."""
    for place, folders, files in os.walk(folder):
        kept = [name for name in sorted(folders) if not name.startswith(".") and not matches(name, LEFT_OUT)]
        if len(Path(place).relative_to(folder).parts) > DEEPEST:
            raise UserError(f"{folder} has more than {DEEPEST} folders in one another; remove them.")
        folders[:] = [name for name in kept if not os.path.islink(os.path.join(place, name))]
        links = sorted(set(kept) - set(folders))
        yield from (Path(place, name) for name in [*links, *sorted(files)] if not name.startswith("."))


def _scan(status: Any) -> tuple[str | None, list[Finding]]:
    """Return what the Hub says about its own scan of a repository, and a finding for each file that it names."""
    if not isinstance(status, dict) or "scansDone" not in status:
        return None, []
    issues = [issue for issue in status.get("filesWithIssues") or [] if isinstance(issue, dict)]
    findings = [
        Finding("scan", str(issue.get("path")), None, f"The Hub calls it {issue.get('level', 'suspicious')}.")
        for issue in issues
    ]
    done = "has finished" if status["scansDone"] else "has not finished"
    said = f"names {len(issues)} file{'' if len(issues) == 1 else 's'}" if issues else "names no file"
    return f"The Hub's own scan {done} and {said}.", findings


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


def _layers(content: Any) -> Iterator[Entry]:
    """Return the classes of ``modules.json`` that are not of sentence-transformers; of a folder, they are loaded even
    without trust_remote_code."""
    for layer in content if isinstance(content, list) else []:
        kind = layer.get("type") if isinstance(layer, dict) else None
        if isinstance(kind, str) and not kind.startswith("sentence_transformers."):
            yield _entry(_MODULES, f"layer {layer.get('name')}", kind)


def _kernels(source: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    """Return a finding for each repository from which transformers would load an implementation of attention."""
    for key, value in config.items():
        if key.endswith(REPOSITORIES) and isinstance(value, str) and "/" in value:
            yield Finding("elsewhere", source, None, f"{key}: {value} (inspect {value} too)")


def _reaching(path: str, template: str) -> Iterator[Finding]:
    """Return a finding for the first line of a Jinja template that reaches for more than its values."""
    for number, line in enumerate(template.splitlines(), 1):
        if found := _REACHING.search(line):
            line_of_file = number if path.endswith(".jinja") else None
            yield Finding("hidden", path, line_of_file, line.strip(), f"Jinja: {found[0]}")
            return


def _requirements(text: str) -> Iterator[Finding]:
    """Return a finding for each line of requirements that is no package of an index, or has a name like another's."""
    known = _PACKAGES.split()
    for number, line in enumerate(text.splitlines(), 1):
        if number > _MOST_LINES:
            yield Finding("unreadable", _REQUIREMENTS, number, f"It has more than {_MOST_LINES:,} lines.")
            return
        line = re.sub(r"(?:^|\s)#.*", "", line).strip()
        if not line:
            continue
        match = _REQUIREMENT.fullmatch(line)
        name = re.sub(r"[-_.]+", "-", match[1]).lower() if match else ""
        near = get_close_matches(name, known, n=1, cutoff=0.8) if name not in known else []
        if match is None or "@" in line or "://" in line:
            yield Finding("packages", _REQUIREMENTS, number, line)
        elif near:
            yield Finding("packages", _REQUIREMENTS, number, line, f"{name}, which is not {near[0]}")


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
        yield Finding("code" if entry.source == _MODULES else "missing", entry.source, None, said)
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


def _weights(paths: set[str]) -> Iterator[Finding]:
    safe = any(path.endswith(".safetensors") for path in paths)
    for path in sorted(paths):
        if path.endswith(PICKLES):
            more = "" if safe else ", and there are no weights in safetensors"
            yield Finding("pickle", path, None, f"By its name it is a pickle{more}.")


def _code_file(
    path: str, content: bytes, module: Module, runs: bool, origin: str | None, custom: tuple[str, ...]
) -> CodeFile:
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
    imports = {kind: tuple(names) for kind, names in kinds.items() if names}
    return CodeFile(path, len(content), hashlib.sha256(content).hexdigest(), runs, origin, custom, imports)


def _lines(inspection: Inspection) -> Iterator[str]:
    def shown(text: str) -> str:
        return printable(text, 160)

    yield printable(inspection.verdict)
    commit = f", commit {inspection.commit}" if inspection.commit else ""
    yield f"{shown(inspection.name)}{commit}"
    if inspection.scan:
        yield inspection.scan
    if inspection.base:
        yield shown(f"An adapter of {inspection.base}, which is not shown here: inspect that model too.")
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
        yield f"  {shown(f'the same as in {file.origin}' if file.origin else 'unknown')}"
        if file.custom and file.origin is None:
            yield f"  a part of the model by its author: {shown(', '.join(file.custom))}"
        for kind, names in file.imports.items():
            yield f"  {kind}: {shown(', '.join(names))}"
    if inspection.templates:
        yield ""
        yield f"Jinja, which is not Python: {shown(', '.join(inspection.templates))}"
    yield ""
    for finding in inspection.findings:
        line = "" if finding.line is None else f":{finding.line}"
        name = f": {finding.name}" if finding.name else ""
        yield shown(f"{finding.path}{line} {KINDS[finding.kind]}{name}")
        yield f"  {shown(finding.text)}"
    yield f"Findings: {len(inspection.findings) or 'none'}. Nothing of this was run."
    if inspection.unknown and not inspection.findings:
        yield "Unknown code without findings can still be harmful: read it, or run it where it can harm nothing."

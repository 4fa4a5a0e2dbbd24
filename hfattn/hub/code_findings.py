"""Find unusual code in Python files by reading them; the files are neither run nor imported.

Names are followed through imports, assignments, ``getattr``, concatenated strings and the files of the repository. A
name that is not on the list of harmless ones (``allowed_names.txt``) is a finding, as is what cannot be followed.
Mentioning a name counts like calling it. A list of names cannot prove that code is harmless: a file without findings is
still unknown.
"""

import ast
import builtins
import io
import re
import tokenize
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

# Each kind of finding, and its description.
KINDS: Mapping[str, str] = {
    "network": "can access a network",
    "process": "starts or ends processes",
    "code": "runs code from text, creates code, or imports a module named by a string",
    "pickle": "loads a pickle, or is one; a pickle can run any code",
    "native": "calls native code",
    "files": "writes, moves or deletes files",
    "environment": "reads environment variables, or places where secrets are stored",
    "import time": "does more than define names when it is imported",
    "decoding": "decodes data that can hide code",
    "hidden": "accesses names in a way that hides them",
    "changes": "changes a library for all code of the process",
    "unlisted": "uses a name that is not on the list of harmless names",
    "characters": "contains characters that are invisible or look like others",
    "missing": "refers to a file or class that does not exist",
    "elsewhere": "uses another repository",
    "packages": "installs what is no package of an index, or a package with nearly the name of another",
    "scan": "is named by the Hub's own scan",
    "unreadable": "cannot be read",
}

# Limits for a repository: twice the longest file of the models of transformers, five times the code of one model, and
# five times the steps that reading it takes.
MOST_BYTES = 2**19  # of one file
MOST_BYTES_TOGETHER = 2**21
_MOST_STEPS = 400_000
_MOST_BRACES = 10_000  # Python's parser takes a time that is quadratic in the expressions of one f-string
_MEANINGS = 20  # of a name: "x = x.a; x = x.b; ..." doubles them with each statement
_LONGEST_TEXT = 10_000  # characters of a string that is put together: "x1 = x0 + x0; x2 = x1 + x1; ..."

# Dotted names by kind of finding; a name with a star at its end stands for all names with this prefix.
_SUSPECTS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(names.split())
    for kind, names in {
        "network": "aiohttp asyncio.open_connection asyncio.start_server boto3 botocore fsspec ftplib grpc http "
        "httpx httpx2 huggingface_hub imaplib nntplib paramiko poplib pycurl requests s3fs smtplib _socket socket "
        "socketserver _ssl ssl telnetlib torch.distributed.TCPStore torch.distributed.rpc torch.hub "
        "transformers.utils.hub urllib urllib3 webbrowser websocket websockets xmlrpc zmq",
        "process": "asyncio.create_subprocess_* concurrent.futures.ProcessPoolExecutor _posixsubprocess "
        "multiprocessing os._exit os.abort os.exec* os.fork* os.kill* os.popen os.posix_spawn* os.spawn* "
        "os.startfile os.system pexpect psutil pty signal subprocess torch.multiprocessing torch.utils.cpp_extension",
        "code": "atexit bdb builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec "
        "cProfile code codeop dataclasses.make_dataclass doctest imp importlib jinja2 logging.config numexpr "
        "pandas.eval pdb pip pkg_resources pkgutil profile runpy setuptools site sympy sys.meta_path sys.modules "
        "sys.path* sys.setprofile sys.settrace timeit torch.fx torch.hub torch.jit.CompilationUnit torch.package "
        "trace transformers.dynamic_module_utils types.CodeType types.FunctionType typing.ForwardRef "
        "typing.get_type_hints typing_extensions.get_type_hints zipimport",
        "pickle": "_pickle cloudpickle dill joblib jsonpickle marshal numpy.load pandas.read_pickle pickle shelve "
        "torch.jit.load torch.load torch.serialization torch.storage yaml.UnsafeLoader yaml.full_load yaml.load "
        "yaml.unsafe_load",
        "native": "_ctypes cffi ctypes mmap torch.classes.load_library torch.ops.load_library",
        "files": "builtins.open codecs.open io.FileIO io.open numpy.memmap numpy.save* os.chmod os.chown os.link "
        "os.makedirs os.mkdir os.mkfifo os.open os.remove* os.rename* os.replace os.rmdir os.symlink os.truncate "
        "os.unlink os.write safetensors.torch.save* shutil sqlite3 tempfile torch.save",
        "environment": "dotenv getpass huggingface_hub.get_token keyring netrc os.environ* os.getenv* os.getlogin "
        "os.path.expanduser* os.putenv os.uname os.unsetenv pathlib.Path.home platform.node pwd",
        "decoding": "base64 binascii bz2 codecs.decode codecs.getdecoder gzip lzma tarfile zipfile zlib",
        "hidden": "builtins.__loader__ builtins.__spec__ builtins.globals builtins.locals gc inspect.currentframe "
        "inspect.stack operator.attrgetter operator.methodcaller sys._getframe",
    }.items()
}
_HARMLESS = ("http.HTTPStatus", "huggingface_hub.dataclasses", "importlib.metadata", "urllib.parse")
# Attributes of objects whose type is unknown.
_SUSPECT_ATTRIBUTES: Mapping[str, str] = {
    attribute: kind
    for kind, attributes in {
        "files": "chmod dump hardlink_to memmap mkdir rename rmdir rmtree save save_pretrained save_vocabulary savez "
        "symlink_to to_csv to_json_file to_parquet tofile touch unlink write_bytes write_text _write_file",
        "network": "connect hf_hub_download push_to_hub snapshot_download upload_file upload_folder urlopen",
        "process": "Popen check_call check_output execv execve fork killpg popen posix_spawn spawnv system",
        "code": "dictConfig exec exec_module executescript from_string import_module load_module make_dataclass "
        "runcode runctx runsource runstring sympify __import__",
        "pickle": "_load_from_bytes loads read_pickle to_pickle",
        "native": "CDLL load_library",
        "environment": "environ getenv expanduser",
        "decoding": "fromhex",
        "hidden": "attrgetter f_back f_builtins f_code f_globals f_locals ag_frame cr_frame gi_code gi_frame "
        "methodcaller tb_frame tb_next",
    }.items()
    for attribute in attributes.split()
}
# These modules count wherever they stand in a chain of names: many libraries have imported them, as torch.os.
_MODULES_IN_CHAINS: Mapping[str, str] = {
    module: kind
    for kind, modules in {
        "process": "os posix nt subprocess _posixsubprocess multiprocessing pty signal",
        "code": "builtins importlib runpy sys code codeop pkgutil imp",
        "pickle": "pickle _pickle marshal shelve joblib dill cloudpickle",
        "native": "ctypes _ctypes cffi mmap",
        "network": "_socket http httpx requests socket ssl urllib urllib3",
        "files": "io pathlib shutil tempfile sqlite3",
        "hidden": "gc inspect operator torch transformers types _os _sys",
    }.items()
    for module in modules.split()
}
_GETTERS = ("__getattr__", "__getattribute__")  # allowed in super().__getattr__(name) only
_BY_ARGUMENTS = ("eval", "open", "replace", *_GETTERS)  # attributes that are harmless with some arguments
_OF_CLASSES = ("__class_getitem__", "__init_subclass__", "__new__")  # methods whose first argument is a class
_OF_NOTEBOOKS = ("display", "get_ipython")  # names that every module finds if the process is a notebook
_CODECS = ("base64", "bz2", "hex", "quopri", "rot13", "rot_13", "unicode_escape", "uu", "zip", "zlib")
_SECRETS = re.compile(
    r"\.ssh\b|\.netrc|\.aws\b|\.git-credentials|huggingface/token|HF_TOKEN|/etc/passwd|id_rsa|/proc/\w+/(?:environ|mem|fd|root)\b"
)
_LETTERS = re.compile(r"[A-Za-z0-9+/=_-]+")
_LONGEST_WORD = 400  # letters without a space
_CODE_IN_TEXT = re.compile(
    r"__(?:annotations|base|bases|builtins|code|getattribute|globals|import|loader|reduce_ex|spec|subclasses)__"
    r"|(?<![\w.`])(?:eval|exec)\([\"'\w]|\bos\.(?:system|popen)\b|\bsubprocess\.\w"
)
# If code assembles one of these words from pieces, it hides it.
_HIDDEN_WORDS = {"compile", "eval", "exec", "popen", "subprocess", "system", "trust_remote_code"}
_NOT_TYPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.List, ast.Dict, ast.Set, ast.Tuple)  # rows: CODE[0] = 1
REPOSITORIES = ("attn_implementation", "experts_implementation", "custom_generate")  # names, or repositories with code
_LOADERS = ("from_config", "from_pretrained")
# Calls of these at import only define or register something; none runs other code of the repository.
_ORDINARY, _ORDINARY_BUILTINS = (
    frozenset(names.split())
    for names in (
        "abc collections contextlib copy dataclasses enum functools huggingface_hub.dataclasses inspect itertools "
        "logging math os.path packaging pathlib re torch transformers typing typing_extensions warnings",
        "bool bytes classmethod dict enumerate filter float frozenset hasattr int isinstance issubclass len list map "
        "max min object property range repr reversed round set slice sorted staticmethod str sum super tuple type zip",
    )
)
_ORDINARY_METHODS = {"deleter", "format", "getter", "items", "join", "keys", "register", "setter", "split", "values"}

# Modules of transformers, and the classes that the modules of its models define.
_TRANSFORMERS = re.compile(
    r"transformers(\.(activations|audio_utils|backbone_utils|cache_utils|configuration_utils|feature_extraction_\w+|"
    r"generation(\.(candidate_generator|configuration_utils|logits_process|stopping_criteria|streamers|utils))?|"
    r"image_processing_\w+|image_transforms|image_utils|initialization|"
    r"integrations(\.(accelerate|deepspeed|eager_paged|flash_attention|fsdp|hub_kernels|moe|sdpa_attention))?|logging|loss(\.loss_\w+)?|"
    r"masking_utils|modeling_[a-z]\w*|processing_utils|pytorch_utils|video_utils|video_processing_utils|vision_utils|"
    r"models(\.[a-z]\w*(\.(configuration|feature_extraction|image_processing|modeling|processing|tokenization|"
    r"video_processing)_\w+)?)?|pipelines(\.(base|[a-z]+_[a-z_0-9]+))?|time_series_utils|tokenization_[a-z]\w*|"
    r"utils(\.(backbone_utils|constants|deprecation|generic|import_utils|logging|output_capturing|"
    r"type_validators))?))?"
)
_TIMM = re.compile(r"timm\.(layers|models)\.[a-z]\w*")
_CLASS_OF_MODELS = re.compile(
    r"[A-Z]\w*(Attention|Backbone|Block|Cache|Config|Conv1D|Decoder|Embeddings?|Encoder|Experts|Extractor|For[A-Z]\w+|Head|"
    r"HeadModel|Kwargs|LMHeadModel|Layer|LayerNorm|Mixin|MLP|Mlp|Model|Norm|Output|Pooler|PreTrainedModel|Processor|"
    r"ProcessorFast|ProcessorPil|Router|Tokenizer|TokenizerFast)"
)
_NOT_A_MODEL = re.compile(r"Trainer|TrainingArguments|HfArgumentParser|Callback|Agent|Tool$|PushToHub")
_CLASS_NAME = re.compile(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


@dataclass(frozen=True)
class Finding:
    """An unusual line or file.

    Attributes:
        kind: one of ``KINDS``.
        path: the file.
        line: number of the line, from 1; None for a finding about the whole file.
        text: the line, or a description of the file.
        name: the name that was found, as far as it could be followed, such as "torch.os.system".
    """

    kind: str
    path: str
    line: int | None
    text: str
    name: str | None = None


@dataclass(frozen=True)
class Module:
    """The result of reading a Python file.

    Attributes:
        imports: imported top-level modules, except those of its repository.
        siblings: paths of the files of its repository that it imports, including files that do not exist.
        names: names that it defines or imports, such as classes; "*" if it imports all names of another file.
        findings: unusual lines.
    """

    imports: tuple[str, ...]
    siblings: tuple[str, ...]
    names: tuple[str, ...]
    findings: tuple[Finding, ...]


class _TooMuch(Exception):
    """Reading a repository takes more steps than are spent on it."""


@dataclass(frozen=True)
class _Sibling:
    """A file of the repository, or a name in it, as what an import binds."""

    file: str
    name: str | None


@dataclass
class _Scope:
    """The names that a module, class, function or comprehension binds.

    Attributes:
        kind: "module", "class", "function" or "comprehension".
        outer: the scope around it.
        bound: for each name what it is bound to: a dotted name, an expression, the statement of a class or function, or
            None for a value that is unknown, such as a parameter.
        elsewhere: names that it declares as global.
        node: the statement of a class or function.
    """

    kind: str
    outer: "_Scope | None"
    node: ast.AST | None = None
    bound: dict[str, list[str | ast.AST | _Sibling | None]] = field(default_factory=dict)
    elsewhere: set[str] = field(default_factory=set)

    def bind(self, name: str, value: str | ast.AST | _Sibling | None = None) -> None:
        self.bound.setdefault(name, []).append(value)


def read_modules(
    contents: Mapping[str, bytes], files: set[str] | None = None, fields: frozenset[str] = frozenset()
) -> dict[str, Module]:
    """Read the Python files of a repository without running them.

    Args:
        contents: the files by their paths.
        files: paths of all files of the repository, to find out whether an imported file exists; default: those of
            ``contents``.
        fields: names of attributes that its configurations define.
    """
    repository = _Repository(set(contents) if files is None else files)
    readers = {path: _Reader(path, content, repository) for path, content in sorted(contents.items())}
    repository.readers = readers
    repository.attributes = fields.union(*(reader.attributes for reader in readers.values()))
    for reader in readers.values():
        reader.read()
    for reader in readers.values():
        reader.check_methods()
    return {path: reader.module() for path, reader in readers.items()}


def printable(text: str, length: int | None = None) -> str:
    """Return text without control or invisible characters, truncated to ``length`` characters."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return escaped if length is None or len(escaped) <= length else f"{escaped[: length - 1]}…"


@cache
def _allowed_names() -> dict[str, frozenset[str]]:
    """Return the names of ``allowed_names.txt`` by module."""
    names: dict[str, set[str]] = {}
    module = ""
    for line in Path(__file__).with_name("allowed_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            names[module].update(line.split())
        elif not line.startswith("#"):
            module = line.removesuffix(":")
            names[module] = set()
    return {module: frozenset(found) for module, found in names.items()}


def _is_module(name: str) -> bool:
    listed = name in _allowed_names() and name != "attributes"
    return listed or bool(_TRANSFORMERS.fullmatch(name) or _TIMM.fullmatch(name))


def _is_allowed(name: str, attributes: frozenset[str]) -> bool:
    """Return whether a dotted name is on the list of harmless names."""
    parts = name.split(".")
    # The longest module that the name begins with.
    for count in range(len(parts), 0, -1):
        module = ".".join(parts[:count])
        if not _is_module(module):
            continue
        if count == len(parts):
            return True
        return _is_listed(module, parts[count]) and all(
            _is_known(part, attributes) and part not in _BY_ARGUMENTS for part in parts[count + 1 :]
        )
    return False


def _is_listed(module: str, name: str) -> bool:
    if name == "__version__":
        return True
    if module.startswith("transformers"):
        named = module == "transformers" and _CLASS_NAME.fullmatch(name) and not _NOT_A_MODEL.search(name)
        return bool(named or name in _allowed_names()["transformers"] or _CLASS_OF_MODELS.fullmatch(name))
    listed = _allowed_names().get(module, frozenset({"@CamelCase"}))  # a module of timm
    return name in listed or ("@CamelCase" in listed and bool(_CLASS_NAME.fullmatch(name)))


def _is_known(attribute: str, attributes: frozenset[str]) -> bool:
    """Return whether an attribute of an unknown object is harmless."""
    if attribute in _SUSPECT_ATTRIBUTES or attribute in _MODULES_IN_CHAINS:
        return False
    return attribute in _allowed_names()["attributes"] or (attribute in attributes and not _is_dunder(attribute))


def _kinds(name: str) -> list[str]:
    """Return the kinds of finding that a dotted name is known for."""
    if any(_is_below(name, harmless) for harmless in _HARMLESS):
        return []
    return [kind for kind, suspects in _SUSPECTS.items() if any(_is_below(name, suspect) for suspect in suspects)]


def _kinds_of_unlisted(name: str) -> list[str]:
    """Return the kinds of finding of a name that is not on the list: those of the names in its chain, or "unlisted"."""
    parts = name.split(".")
    found = {kind: None for start in range(1, len(parts)) for kind in _kinds(".".join(parts[start:]))}
    found |= {_MODULES_IN_CHAINS[part]: None for part in parts[1:] if part in _MODULES_IN_CHAINS and not found}
    return list(found) or [_SUSPECT_ATTRIBUTES.get(parts[-1], "unlisted")]


def _is_below(name: str, other: str) -> bool:
    """Return whether a dotted name equals another, or is an attribute of it."""
    return name.startswith(other[:-1]) if other.endswith("*") else name == other or name.startswith(f"{other}.")


def _paths_of_import(path: str, node: ast.ImportFrom) -> tuple[str, dict[str, str]]:
    """Return the module that a relative import reads, and the module of each name, as paths without ending."""
    folder = path.split("/")[: -node.level]
    if len(path.split("/")) < node.level:
        outside = f"{'.' * node.level}{node.module or ''}"
        return outside, {alias.name: outside for alias in node.names}
    module = "/".join([*folder, *(node.module.split(".") if node.module else [])])
    return module, {alias.name: f"{module}/{alias.name}".lstrip("/") for alias in node.names}


class _Repository:
    """What the readers of the files share."""

    def __init__(self, files: set[str]) -> None:
        self.files = files
        self.readers: dict[str, _Reader] = {}
        self.attributes: frozenset[str] = frozenset()
        self.methods: dict[str, int] = {}  # methods that look up any attribute of self, and their required arguments
        self.steps = 0
        # Meanings of names by scope: those that are complete, and those that are being looked up, as far as known.
        self.values: dict[tuple[int, str], set[str]] = {}
        self.open: dict[tuple[int, str], set[str]] = {}
        self.used: set[tuple[int, str]] = set()

    def step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _TooMuch

    @contextmanager
    def complete(self, but: tuple[int, str] | None = None) -> Iterator[Callable[[], bool]]:
        """Tell whether what is looked up inside depends on no name that is itself being looked up, except ``but``."""
        before, self.used = self.used, set()
        inside = self.used
        yield lambda: not inside - {but}
        self.used = before | (inside - {but})

    def file_of(self, module: str) -> str | None:
        """Return the file of a module, given as a path without ending."""
        return next((path for path in (f"{module}.py", f"{module}/__init__.py") if path in self.files), None)


class _Reader:
    """A file, the meanings of its names, and its findings; a name that is bound twice has both meanings."""

    def __init__(self, path: str, content: bytes, repository: _Repository) -> None:
        self.path, self.repository = path, repository
        self.lines = re.split(r"\r\n|\r|\n", content.decode("utf-8", errors="replace"))
        self.found: dict[tuple[str, int | None], Finding] = {}
        self.top = _Scope("module", None)
        self.nodes: list[ast.AST] = []
        self.scopes: dict[ast.AST, _Scope] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self.never: set[ast.AST] = set()  # in "if TYPE_CHECKING", which does not run
        self.imports: set[str] = set()
        self.siblings: dict[str, None] = {}
        self.starred: list[str] = []  # files of which all names are imported
        self.attributes: set[str] = set()  # that its classes and assignments define
        self.references: list[tuple[str, ast.expr, ast.expr]] = []  # attribute, where, of what
        self.known_names: dict[ast.AST, set[str]] = {}
        self.known_texts: dict[ast.AST, str | None] = {}
        self.tree: ast.Module | None = None
        with self._bounded():
            repository.step()  # of a repository that took too many steps, no further file is parsed
            self._check_characters(content)
            if content.count(b"{") > _MOST_BRACES:
                raise _TooMuch
            self.tree = ast.parse(content)
            self._enter(self.tree.body, self.top, self.tree)

    def read(self) -> None:
        """Find what is unusual."""
        if self.tree is None:
            return
        with self._bounded():
            for node in self.nodes:
                self.repository.step()
                if node not in self.never:
                    for kind, name in self._check(node):
                        self._add(kind, node, name=name)
            for place in self._unusual(self.tree.body):
                self._add("import time", place)

    def check_methods(self) -> None:
        """Find calls that could pass another object as the self of a method that looks up any attribute of self."""
        for attribute, node, of in self.references:
            if attribute not in self.repository.methods or self._is_own_self(of) or self._is_super(of):
                continue
            call = self.parents.get(node)
            if isinstance(call, ast.Call) and call.func is node and not _is_starred(call):
                given = len(call.args) + len(call.keywords)
            else:
                given = 1000
            if given > self.repository.methods[attribute]:  # with fewer, one is missing unless self is bound
                self._add("hidden", node, name=attribute)

    def module(self) -> Module:
        ordered = sorted(self.found.values(), key=lambda finding: (finding.line or 0, finding.kind))
        names = {name for name, values in self.top.bound.items()} | ({"*"} if self.starred else set())
        return Module(tuple(sorted(self.imports)), tuple(self.siblings), tuple(sorted(names)), tuple(ordered))

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        try:
            yield
        except _TooMuch:
            self.tree, self.nodes = None, []
            self._add("unreadable", None, "Reading it takes more work than is spent on a repository.")
        except RecursionError:
            self._add("unreadable", None, "It is nested more deeply than code is.")
        except (SyntaxError, ValueError, MemoryError, tokenize.TokenError) as error:
            self._add("unreadable", None, f"It is not valid Python: {error}")

    def _add(self, kind: str, where: ast.AST | int | None, text: str | None = None, name: str | None = None) -> None:
        line = where if isinstance(where, int) or where is None else getattr(where, "lineno", None)
        said = self.lines[line - 1].strip() if text is None and line and line <= len(self.lines) else text or ""
        self.found.setdefault((kind, line), Finding(kind, self.path, line, said, name))

    def _check_characters(self, content: bytes) -> None:
        for number, line in enumerate(self.lines, 1):
            line = line.removeprefix("\ufeff" if number == 1 else "")
            if not line.isprintable() and any(_invisible(character) for character in line):
                self._add("characters", number)
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if encoding not in ("utf-8", "utf-8-sig"):
            said = f"It declares the encoding {encoding}, so its text may differ from what is shown."
            self._add("unreadable", 1, said)
        if not content.isascii():
            for token in tokenize.tokenize(io.BytesIO(content).readline):
                # Python normalizes letters that look like others: ｅｖａｌ is eval.
                if token.type == tokenize.NAME and not token.string.isascii():
                    self._add("characters", token.start[0])

    # Scopes

    def _enter(self, nodes: Iterable[ast.AST | None], scope: _Scope, parent: ast.AST) -> None:
        for node in nodes:
            if node is not None:
                self.parents[node] = parent
                self._enter_one(node, scope)

    def _enter_one(self, node: ast.AST, scope: _Scope) -> None:
        self.repository.step()
        self.nodes.append(node)
        self.scopes[node] = scope
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                arguments = node.args
                every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                every += [argument for argument in (arguments.vararg, arguments.kwarg) if argument is not None]
                inner = _Scope("function", scope, node)
                for argument in every:
                    inner.bind(argument.arg)
                outside = [*arguments.defaults, *arguments.kw_defaults, *(argument.annotation for argument in every)]
                if isinstance(node, ast.Lambda):
                    self._enter(outside, scope, node)
                    self._enter([node.body], inner, node)
                else:
                    _bind(scope, node.name, node)
                    self.attributes.add(node.name)
                    self._enter([*node.decorator_list, *outside, node.returns], scope, node)
                    self._enter(getattr(node, "type_params", []), inner, node)  # of Python 3.12
                    self._enter(node.body, inner, node)
            case ast.ClassDef():
                _bind(scope, node.name, node)
                self.attributes.add(node.name)
                self._enter([*node.decorator_list, *node.bases], scope, node)
                self._enter([keyword.value for keyword in node.keywords], scope, node)
                self._enter(getattr(node, "type_params", []), scope, node)
                self._enter(node.body, _Scope("class", scope, node), node)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = _Scope("comprehension", scope)
                for number, part in enumerate(node.generators):
                    self._enter([part.iter], inner if number else scope, node)
                    self._enter([part.target, *part.ifs], inner, node)
                self._enter([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner, node)
            case ast.Global(names) | ast.Nonlocal(names):
                scope.elsewhere.update(names)
            case ast.Import(aliases):
                for alias in aliases:
                    top = alias.name.split(".")[0]
                    self.imports.add(top)
                    _bind(scope, alias.asname or top, alias.name if alias.asname else top)
            case ast.ImportFrom():
                self._enter_import(node, scope)
            case ast.Assign(targets, value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        _bind(scope, target.id, value)
                        self._define(target, scope)
                        self.nodes.append(target)
                        self.scopes[target], self.parents[target] = scope, node
                    else:
                        self._enter([target], scope, node)
                self._enter([value], scope, node)
            case ast.AnnAssign(ast.Name() as target, annotation, value):
                if value is not None:
                    _bind(scope, target.id, value)
                self._define(target, scope)
                self._enter([annotation, value], scope, node)
            case ast.NamedExpr(target, value):
                holder = scope
                while holder.kind == "comprehension" and holder.outer is not None:
                    holder = holder.outer
                _bind(holder, target.id, value)
                self._enter([value], scope, node)
            case ast.Name(name, ast.Store() | ast.Del()):
                _bind(scope, name)
                self._define(node, scope)
            case ast.Attribute(value, attribute, ast.Store()):
                self.attributes.add(attribute)
                self._enter([value], scope, node)
            case ast.Call(ast.Attribute(ast.Name("self")), [ast.Constant(str(name)), *_]) if name.isidentifier():
                self.attributes.add(name)  # self.register_buffer("name", value)
                self._enter(ast.iter_child_nodes(node), scope, node)
            case ast.keyword(name, value):
                if name is not None:
                    self.attributes.add(name)
                self._enter([value], scope, node)
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                _bind(scope, name)
                self._enter(ast.iter_child_nodes(node), scope, node)
            case ast.MatchMapping(rest=str(name)):
                _bind(scope, name)
                self._enter(ast.iter_child_nodes(node), scope, node)
            case ast.If(test, body, orelse) if _last_name(test) == "TYPE_CHECKING":
                before = len(self.nodes)
                self._enter(body, _Scope("function", scope), node)  # its names do not exist when the code runs
                self.never.update(self.nodes[before:])
                self._enter([test, *orelse], scope, node)
            case _:
                self._enter(ast.iter_child_nodes(node), scope, node)

    def _define(self, target: ast.Name, scope: _Scope) -> None:
        if scope.kind == "class" or scope is self.top:
            self.attributes.add(target.id)

    def _enter_import(self, node: ast.ImportFrom, scope: _Scope) -> None:
        if not node.level:
            self.imports.add((node.module or "").split(".")[0])
            for alias in node.names:
                _bind(scope, alias.asname or alias.name, f"{node.module}.{alias.name}")
            return
        module, modules = _paths_of_import(self.path, node)
        whole = self.repository.file_of(module) if node.module else None
        for alias in node.names:
            file = whole or self.repository.file_of(modules[alias.name])
            self.siblings[file or f"{module if node.module else modules[alias.name]}.py"] = None
            if file is None:
                self._add("missing", node)
            elif {f"{file.removesuffix('.py')}/__init__.py"} & self.repository.files:
                self._add("hidden", node, name=file)  # a file and a folder have this name
            if alias.name == "*":
                self.starred.append(file or "")
            else:
                _bind(scope, alias.asname or alias.name, _Sibling(file or "", alias.name if whole else None))

    # Meanings

    def names(self, node: ast.AST | None) -> set[str]:
        """Return the dotted names that an expression may mean, such as ``os.system``."""
        if node is None:
            return set()
        if node in self.known_names:
            return self.known_names[node]
        self.repository.step()
        with self.repository.complete() as complete:
            names = set(sorted(self._names(node))[:_MEANINGS])
        if complete():
            self.known_names[node] = names
        return names

    def _names(self, node: ast.AST) -> set[str]:
        match node:
            case ast.Name("__builtins__"):
                return {"builtins"}
            case ast.Name(name):
                return self._looked_up(name, self.scopes[node])
            case ast.Attribute(value, attribute):
                return {each for name in self.names(value) for each in self._attribute_of(name, attribute)}
            case ast.NamedExpr(value=value):
                return self.names(value)
            case ast.IfExp(body=body, orelse=orelse):
                return self.names(body) | self.names(orelse)
            case ast.BoolOp(values=values):
                return {name for value in values for name in self.names(value)}
            case ast.Subscript(value, key) if (text := self.text(key)) is not None:
                of = self.names(value)
                modules = {text} if "sys.modules" in of else set()
                return modules | {
                    f"{name.removesuffix('.__dict__')}.{text}" for name in of if not _is_listed_class(name)
                }
            case ast.Call(function, [first, *more]):
                called = self.names(function)
                if "builtins.getattr" in called and more and (text := self.text(more[0])) is not None:
                    return {each for name in self.names(first) for each in self._attribute_of(name, text)}
                if called & {"builtins.__import__", "importlib.import_module"} and (text := self.text(first)):
                    return {text}
                if "builtins.vars" in called:
                    return {f"{name}.__dict__" for name in self.names(first)}
        return set()

    def _looked_up(self, name: str, scope: _Scope) -> set[str]:
        found: set[str] = set()
        each: _Scope | None = scope
        while each is not None:
            visible = each.kind != "class" or each is scope
            if name in each.elsewhere:
                each = each.outer if each.outer is not None and each.outer.kind != "module" else self.top
                continue
            if visible and name in each.bound:
                found |= self._values(each, name)
                if each.kind in ("function", "comprehension"):
                    return found
            each = each.outer
        for path in self.starred if name not in self.top.bound else []:
            found |= self._exported(path, name)
        of_all = hasattr(builtins, name) or (name in _OF_NOTEBOOKS and not found)
        return found | ({f"builtins.{name}"} if of_all else set())

    def _values(self, scope: _Scope, name: str) -> set[str]:
        """Return the meanings of what a scope binds to a name, which may depend on one another: x = x.a; x = x.b."""
        key, repository = (id(scope), name), self.repository
        if key in repository.values:
            return repository.values[key]
        if key in repository.open:
            repository.used.add(key)
            return repository.open[key]
        found: set[str] | None = None
        with repository.complete(key) as complete:
            while found is None or found != repository.open[key]:
                repository.step()
                repository.open[key] = found or set()
                every = {meaning for value in scope.bound.get(name, []) for meaning in self._meanings(value)}
                found = set(sorted(every | repository.open[key])[:_MEANINGS])
                if len(found) == _MEANINGS:
                    break
            del repository.open[key]
        if complete():
            repository.values[key] = found
        return found

    def _meanings(self, value: "str | ast.AST | _Sibling | None") -> set[str]:
        match value:
            case str():
                return {value}
            case _Sibling(file, None):
                return {f"@{file}@"}
            case _Sibling(file, str(name)):
                return self._exported(file, name)
            case ast.expr():
                return self.names(value)
        return set()

    def _exported(self, path: str, name: str) -> set[str]:
        """Return the meanings of a name of another file of the repository."""
        self.repository.step()
        reader = self.repository.readers.get(path)
        if reader is None:
            return set()
        found = set(reader._values(reader.top, name))
        for each in reader.starred if name not in reader.top.bound else []:
            found |= self._exported(each, name)
        return found

    def _attribute_of(self, name: str, attribute: str) -> set[str]:
        if name.startswith("@"):
            return self._exported(name.strip("@"), attribute)
        return {f"{name}.{attribute}".replace(".__dict__.", ".")}

    def text(self, node: ast.AST | None) -> str | None:
        """Return the string value of an expression, if all of its parts are known."""
        if node is None:
            return None
        if node not in self.known_texts:
            self.repository.step()
            self.known_texts[node] = None
            text = self._text(node)
            self.known_texts[node] = text if text is None or len(text) <= _LONGEST_TEXT else None
        return self.known_texts[node]

    def _text(self, node: ast.AST) -> str | None:
        match node:
            case ast.Constant(str(value)):
                return value
            case ast.Name(name):
                scope: _Scope | None = self.scopes[node]
                while scope is not None and (
                    name not in scope.bound or (scope.kind == "class" and scope is not self.scopes[node])
                ):
                    scope = scope.outer
                values = scope.bound[name] if scope is not None else []
                return self.text(values[0]) if len(values) == 1 and isinstance(values[0], ast.expr) else None
            case ast.BinOp(left, ast.Add(), right):
                return self._joined([left, right])
            case ast.JoinedStr(values):
                return self._joined([v.value if isinstance(v, ast.FormattedValue) else v for v in values])
            case ast.Call(ast.Attribute(ast.Constant(""), "join"), [ast.List(items) | ast.Tuple(items)]):
                return self._joined(items)
            case ast.Call(ast.Name("chr"), [ast.Constant(int(number))]) if 0 <= number < 0x110000:
                return chr(number)
            case ast.Subscript(value, ast.Slice(None, None, ast.UnaryOp(ast.USub(), ast.Constant(1)))):
                text = self.text(value)
                return None if text is None else text[::-1]
        return None

    def _joined(self, nodes: list[ast.expr]) -> str | None:
        pieces = [self.text(node) for node in nodes]
        return None if None in pieces else "".join(piece or "" for piece in pieces)

    # Checks. Each returns the kinds of its findings, with the names found.

    def _check(self, node: ast.AST) -> Iterator[tuple[str, str | None]]:
        match node:
            case ast.Import(aliases):
                for alias in aliases:
                    if self.scopes[node].kind == "class":
                        yield "hidden", alias.name  # a module as an attribute
                    yield from self._check_name(alias.name)
            case ast.ImportFrom(level=0, module=str(module), names=aliases):
                if self.scopes[node].kind == "class":
                    yield "hidden", module
                for alias in aliases:
                    if alias.name == "*":
                        yield "hidden", f"{module}.*"
                    elif (module, alias.name) != ("shutil", "copyfile"):  # each use of it is checked
                        yield from self._check_name(f"{module}.{alias.name}")
            case ast.ImportFrom(names=aliases):
                for alias in aliases:
                    if self.scopes[node].kind == "class":
                        yield "hidden", alias.name
                    if alias.name.startswith("__") and alias.name not in _allowed_names()["attributes"]:
                        yield "hidden", alias.name
            case ast.Constant(str() | bytes() as value):
                yield from self._check_text(value if isinstance(value, str) else value.decode("latin-1"))
                if value == "trust_remote_code" and not self._is_taken_out(node):
                    yield "code", value
            case ast.Assign([ast.Attribute(attr=attribute)], value) if attribute.endswith(REPOSITORIES):
                yield from self._check_implementation(value)
            case ast.AnnAssign(annotation=annotation):
                yield from self._check_annotation(annotation)
            case (
                ast.FunctionDef(args=arguments, returns=returns) | ast.AsyncFunctionDef(args=arguments, returns=returns)
            ):
                for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                    yield from self._check_annotation(argument.annotation)
                for extra in (arguments.vararg, arguments.kwarg):
                    yield from self._check_annotation(extra.annotation if extra is not None else None)
                yield from self._check_annotation(returns)
                if _is_dunder(node.name) and node.name not in _allowed_names()["attributes"]:
                    yield "hidden", node.name
            case ast.ClassDef(bases=bases):
                for base in bases:
                    names = self.names(base.func if isinstance(base, ast.Call) else base)
                    if names & {"builtins.type", "abc.ABCMeta", "enum.EnumMeta"} or (
                        isinstance(base, ast.Call) and not names
                    ):
                        yield "hidden", "a metaclass, or a base that is computed"
            case ast.MatchClass(kwd_attrs=attributes):
                for attribute in attributes:
                    if not self._is_known(attribute):
                        yield (
                            _SUSPECT_ATTRIBUTES.get(attribute) or _MODULES_IN_CHAINS.get(attribute, "hidden"),
                            attribute,
                        )
            case ast.If(test=test) if _last_name(test) == "TYPE_CHECKING":
                if not self._is_exactly(test, "typing.TYPE_CHECKING", "typing_extensions.TYPE_CHECKING"):
                    yield "hidden", "TYPE_CHECKING"
            case ast.expr():
                yield from self._check_expression(node)

    def _check_name(self, name: str) -> Iterator[tuple[str, str | None]]:
        """Check a dotted name against the names that are known for harm, and then against those that are harmless."""
        kinds = _kinds(name)
        if not kinds and not self._is_allowed(name):
            kinds = _kinds_of_unlisted(name)
        known = _allowed_names()["attributes"]
        if "hidden" not in kinds and any(_is_dunder(part) and part not in known for part in name.split(".")[1:]):
            kinds = [*kinds, "hidden"]
        yield from ((kind, name) for kind in kinds)

    def _is_allowed(self, name: str) -> bool:
        return _is_allowed(name, self.repository.attributes)

    def _is_known(self, attribute: str) -> bool:
        return _is_known(attribute, self.repository.attributes)

    def _check_text(self, value: str) -> Iterator[tuple[str, str | None]]:
        if _SECRETS.search(value):
            yield "environment", None
        if any(len(word) >= _LONGEST_WORD for word in _LETTERS.findall(value)):
            yield "decoding", None
        if found := _CODE_IN_TEXT.search(value):
            yield "code", found[0]

    def _check_annotation(self, annotation: ast.AST | None) -> Iterator[tuple[str, str | None]]:
        """Check an annotation, whose strings ``@strict`` and others evaluate as code."""
        computed = "an annotation that is computed"
        waiting: list[tuple[_Reader, ast.AST, int]] = [] if annotation is None else [(self, annotation, 0)]
        while waiting:
            self.repository.step()
            reader, node, depth = waiting.pop()
            text = reader.text(node)
            if text is not None:
                if "(" in text:
                    yield "code", printable(text, 60)
                yield from reader._check_quoted(text, reader.scopes[node])
            elif isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.BinOp) and not isinstance(node.op, ast.BitOr)
            ):
                yield "code", computed
            elif isinstance(node, ast.Subscript):
                if reader._is_exactly(node.value, "typing.Literal", "typing_extensions.Literal"):
                    continue
                waiting += [(reader, node.value, depth), (reader, node.slice, depth)]
            elif isinstance(node, ast.Name):
                for owner, value in reader._origins(node) if depth < 5 else []:
                    if value is None or isinstance(value, _NOT_TYPES):
                        yield "code", computed
                    elif isinstance(value, ast.expr):
                        waiting.append((owner, value, depth + 1))
            elif isinstance(node, ast.Attribute):
                if not reader._is_exactly(node, *reader.names(node)):
                    yield "code", computed
            elif isinstance(node, ast.Call):
                if not reader._is_exactly(node.func, *reader.names(node.func)):
                    yield "code", computed
                waiting += [(reader, argument, depth) for argument in node.args]
                waiting += [(reader, keyword.value, depth) for keyword in node.keywords]
            else:
                waiting += [(reader, child, depth) for child in ast.iter_child_nodes(node)]

    def _check_quoted(self, text: str, scope: _Scope) -> Iterator[tuple[str, str | None]]:
        """Check the names in an annotation that is a string: ``functools.singledispatch`` looks them up."""
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError):
            return  # nobody can evaluate it
        for node in ast.walk(tree):
            self.repository.step()
            self.scopes[node] = scope
        for node in ast.walk(tree):
            # A chain of names is followed to its end; names of an import under TYPE_CHECKING mean nothing here.
            for name in self.names(node) if isinstance(node, ast.Attribute | ast.Name | ast.Subscript) else ():
                if not name.startswith("@") and not _is_module(name):
                    yield from self._check_name(name)

    def _origins(self, node: ast.Name) -> "list[tuple[_Reader, str | ast.AST | _Sibling | None]]":
        """Return what a name is bound to, here or in the file of the repository that it is imported from."""
        found: list[tuple[_Reader, str | ast.AST | _Sibling | None]] = []
        for value in self._bound(node):
            reader = self.repository.readers.get(value.file) if isinstance(value, _Sibling) else None
            if reader is not None and isinstance(value, _Sibling) and value.name is not None:
                found += [(reader, each) for each in reader.top.bound.get(value.name, [])]
            else:
                found.append((self, value))
        return found

    def _bound(self, node: ast.Name) -> list["str | ast.AST | _Sibling | None"]:
        """Return all that a name may be bound to where it stands."""
        here = self.scopes[node]
        found: list[str | ast.AST | _Sibling | None] = []
        scope: _Scope | None = here
        while scope is not None:
            if scope.kind != "class" or scope is here:
                found += scope.bound.get(node.id, [])
                if node.id in scope.bound and scope.kind in ("function", "comprehension"):
                    break  # in a class or module, the name may not be bound yet
            scope = scope.outer
        return found

    def _is_exactly(self, node: ast.expr, *names: str) -> bool:
        """Return whether an expression means one of these names, and cannot mean anything else."""
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        if not isinstance(root, ast.Name) or not self.names(node) or not self.names(node) <= set(names):
            return False
        return all(isinstance(value, str) for value in self._bound(root))

    def _check_expression(self, node: ast.expr) -> Iterator[tuple[str, str | None]]:
        parent = self.parents.get(node)
        of_more = isinstance(parent, ast.Attribute)  # handled at the parent, which has the full name
        names = self.names(node)
        if isinstance(node, ast.Name) and _is_dunder(node.id) and node.id not in _allowed_names()["attributes"]:
            yield "hidden", node.id
        if names and not of_more:
            yield from self._check_use(node, names)
        if isinstance(node, ast.Attribute):
            if not names:
                yield from self._check_attribute(node)
            self.references.append((node.attr, node, node.value))
            if node.attr == "__class__" and not isinstance(node.ctx, ast.Load):
                yield "hidden", "__class__"  # its methods get another self
        if not isinstance(node, ast.Constant | ast.Name) and not isinstance(parent, ast.BinOp | ast.JoinedStr):
            text = self.text(node)
            if text is not None and (text in _HIDDEN_WORDS or _CODE_IN_TEXT.search(text) or _SECRETS.search(text)):
                yield "hidden", printable(text, 60)
        if isinstance(node, ast.Call):
            yield from self._check_call(node)

    def _is_taken_out(self, node: ast.AST) -> bool:
        """Return whether a string is the key in ``kwargs.pop("trust_remote_code")``."""
        call = self.parents.get(node)
        return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in ("get", "pop")

    def _check_use(self, node: ast.expr, names: set[str]) -> Iterator[tuple[str, str | None]]:
        parent = self.parents.get(node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        for name in sorted(names):
            if name.startswith("@") or (_is_module(name) and name != "builtins"):
                if not self._may_stand_here(node, parent):
                    yield "hidden", name.strip("@")  # a module passed on as a value: its use cannot be followed
                continue
            if call and self._is_safe(name, call):
                continue
            yield from self._check_name(name)
            last = name.rpartition(".")[2]
            if last in _LOADERS and call is None:
                yield "hidden", name
            if name in ("builtins.getattr", "builtins.setattr", "builtins.delattr", "builtins.vars") and (
                call is None or any(isinstance(argument, ast.Starred) for argument in call.args)
            ):
                yield "hidden", last
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
                yield "changes", name

    def _may_stand_here(self, node: ast.expr, parent: ast.AST | None) -> bool:
        """Return whether a module may be used here: its name, a comparison, or a name asked of it with getattr."""
        match parent:
            case ast.Assign(targets=targets):
                kept = self.scopes[node].kind != "class"
                return kept and all(isinstance(target, ast.Name) for target in targets)
            case ast.NamedExpr() | ast.Compare():
                return True
            case ast.Call(function, [first, *_]) if first is node:
                return self._is_exactly(function, "builtins.getattr", "builtins.hasattr")
            case ast.Expr():
                return True
        return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)

    def _check_attribute(self, node: ast.Attribute) -> Iterator[tuple[str, str | None]]:
        """Check an attribute of an object that is not known."""
        attribute = node.attr
        parent = self.parents.get(node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if attribute == "__dict__" and self._is_own_self(node.value):
            self._take_note(node.value)
        elif attribute in _GETTERS:
            if not self._is_super(node.value) or call is None or len(call.args) != 1 or _is_starred(call):
                yield "hidden", attribute
        elif attribute in ("save_pretrained", "save_vocabulary") and (
            self._is_super(node.value)
            or (call and call.args and self._is_in_saved_folder(call.args[0], self.scopes[call]))
        ):
            pass
        elif attribute == "open":
            if call is None or _writes(call, 0):
                yield "files", attribute
        elif attribute == "replace":  # str.replace takes two arguments, Path.replace one
            named = {keyword.arg for keyword in call.keywords} if call else set()
            if call is None or len(call.args) == 1 or _is_starred(call) or "target" in named:
                yield "files", attribute
        elif attribute == "eval":
            if call is None or call.args or call.keywords:
                yield "code", attribute
        elif call is None and str(_last_name(node.value)).endswith("config") and _is_field(attribute):
            pass
        elif not self._is_known(attribute):
            kind = _SUSPECT_ATTRIBUTES.get(attribute) or _MODULES_IN_CHAINS.get(attribute)
            yield kind or ("hidden" if _is_dunder(attribute) else "unlisted"), attribute
        if attribute in _LOADERS and call is None:
            yield "hidden", attribute

    def _check_call(self, call: ast.Call) -> Iterator[tuple[str, str | None]]:
        names = self.names(call.func)
        last = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        for name in ("trust_remote_code", "allow_pickle"):
            if name in given and not _is_constant(given[name], False):
                yield "code" if name == "trust_remote_code" else "pickle", name
        if last in _LOADERS or any(name.rpartition(".")[2] in _LOADERS for name in names):
            named = _is_constant(given.get("trust_remote_code"), False)  # a second one in ** is an error
            if (
                None in given
                and not named
                and not (isinstance(call.func, ast.Attribute) and self._is_super(call.func.value))
            ):
                yield "code", f"**{ast.unparse(given[None])[:60]}"  # it may hold trust_remote_code
            if call.args and (text := self.text(call.args[0])) is not None:
                yield "elsewhere", printable(text, 60)
        for keyword in call.keywords:
            if str(keyword.arg).endswith(REPOSITORIES):
                yield from self._check_implementation(keyword.value)
        if last.startswith("set_") and last.endswith(REPOSITORIES) and call.args:
            yield from self._check_implementation(call.args[0])
        if not _is_constant(given.get("checkpoint_path", ast.Constant(None)), None):
            yield "pickle", "checkpoint_path"
        if names & {"inspect.signature", "inspect.Signature.from_callable"} and {"eval_str", None} & set(given):
            yield "code", "eval_str"
        if last in ("decode", "encode") and call.args:
            codec = self.text(call.args[0])
            if codec is not None and codec.lower().replace("-", "_").removesuffix("_codec") in _CODECS:
                yield "decoding", codec
        if "builtins.getattr" in names and len(call.args) > 1:
            yield from self._check_getattr(call, call.args[0], call.args[1])
        if "builtins.setattr" in names and len(call.args) > 1 and not self._is_known(self.text(call.args[1]) or "data"):
            yield "hidden", self.text(call.args[1])
        if "builtins.setattr" in names and call.args and self.names(call.args[0]):
            yield "changes", min(self.names(call.args[0]))
        if "builtins.vars" in names:
            yield from self._check_vars(call)
        if "builtins.type" in names and (len(call.args) > 1 or _is_starred(call)):
            yield "code", "type"

    def _check_implementation(self, node: ast.expr) -> Iterator[tuple[str, str | None]]:
        """Check the name of an implementation, which can be a repository: with a kernel, or a loop of generation."""
        text = self.text(node)
        if text is not None:
            if "/" in text:
                yield "elsewhere", printable(text, 60)
            return
        for value in [node, *(self._bound(node) if isinstance(node, ast.Name) else ())]:
            made = (
                isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and hasattr(str, value.func.attr)
            )
            if made or isinstance(value, ast.BinOp | ast.JoinedStr):
                yield "hidden", "an implementation whose name is computed"

    def _check_getattr(self, call: ast.Call, of: ast.expr, key: ast.expr) -> Iterator[tuple[str, str | None]]:
        text = self.text(key)
        if text is None:
            if self._is_own_self(of):
                self._take_note(of)
            else:
                yield "hidden", "getattr"
            return
        self.references.append((text, call, of))
        if not self.names(of):
            yield from self._check_attribute(ast.Attribute(of, text, ast.Load()))

    def _check_vars(self, call: ast.Call) -> Iterator[tuple[str, str | None]]:
        if not call.args or self.names(call.args[0]):
            yield "hidden", "vars"
            return
        if self._is_own_self(call.args[0]):
            self._take_note(call.args[0])
            return
        key: ast.AST | None = None
        parent = self.parents.get(call)
        match parent:
            case ast.Subscript(value, key) if value is call:
                pass
            case ast.Compare(key, [ast.In() | ast.NotIn()], [right]) if right is call:
                pass
            case ast.Attribute(attr="keys"):
                return
            case ast.Attribute(attr="get"):
                above = self.parents.get(parent)
                key = above.args[0] if isinstance(above, ast.Call) and above.func is parent and above.args else None
        text = self.text(key)
        if text is None or not self._is_known(text):
            yield "hidden", "vars"
        else:
            self.references.append((text, call, call.args[0]))

    def _is_own_self(self, node: ast.expr) -> bool:
        """Return whether this is the ``self`` of a method, as far as the method itself can tell."""
        if not isinstance(node, ast.Name):
            return False
        method = self._method(node)
        if method is None or method.name in _OF_CLASSES:
            return False
        if not method.args.args or method.args.args[0].arg != node.id:
            return False
        return all(self._keeps_self(decorator) for decorator in method.decorator_list)

    def _is_super(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self._is_exactly(node.func, "builtins.super")

    def _method(self, node: ast.Name) -> ast.FunctionDef | None:
        """Return the method that binds this name once, as an argument."""
        scope: _Scope | None = self.scopes[node]
        while scope is not None and (node.id not in scope.bound or scope.kind == "class"):
            scope = scope.outer
        if scope is None or scope.outer is None or scope.outer.kind != "class" or scope.bound[node.id] != [None]:
            return None
        return scope.node if isinstance(scope.node, ast.FunctionDef) and scope.kind == "function" else None

    def _keeps_self(self, decorator: ast.expr) -> bool:
        if isinstance(decorator, ast.Attribute) and decorator.attr in ("setter", "getter", "deleter"):
            return True
        kept = ("builtins.property", "functools.cached_property", "abc.abstractmethod", "torch.no_grad")
        return self._is_exactly(_called(decorator), *kept)

    def _take_note(self, node: ast.expr) -> None:
        """Remember that a method looks up any attribute of self, so that no other object may be passed as its self."""
        assert isinstance(node, ast.Name)
        method = self._method(node)
        assert method is not None
        if method.decorator_list and any("torch.no_grad" not in self.names(_called(d)) for d in method.decorator_list):
            return  # a property
        required = len(method.args.args) - len(method.args.defaults) - 1
        known = self.repository.methods
        known[method.name] = min(known.get(method.name, required), required)
        scope = self.scopes[method]
        for name in self.nodes:
            if isinstance(name, ast.Name) and name.id == method.name and self.scopes[name] is scope:
                self._add("hidden", name, name=name.id)

    def _is_safe(self, name: str, call: ast.Call) -> bool:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        match name:
            case "builtins.open" | "io.open" | "codecs.open":
                reads = None not in given and not _is_starred(call) and not _writes(call, 1)
                place = call.args[0] if call.args and not _is_starred(call) else None
                return (reads and "opener" not in given) or self._is_in_saved_folder(place, self.scopes[call])
            case "shutil.copyfile":
                place = call.args[1] if len(call.args) == 2 else None
                source = call.args[0] if call.args else None
                vocabulary = isinstance(source, ast.Attribute) and source.attr.endswith("_file")
                return vocabulary and self._is_in_saved_folder(place, self.scopes[call])
            case "torch.load":
                return _is_constant(given.get("weights_only"), True)
            case "numpy.load":  # its argument allow_pickle is a separate finding
                return None not in given and len(call.args) < 3
        return False

    def _is_in_saved_folder(self, place: ast.expr | None, scope: _Scope) -> bool:
        """Return whether a path lies in the folder that is passed to ``save_pretrained`` or ``save_vocabulary``."""
        method = scope.node
        if not isinstance(method, ast.FunctionDef) or method.name not in ("save_pretrained", "save_vocabulary"):
            return False
        match place:
            case ast.Name(name) if len(method.args.args) > 1 and name == method.args.args[1].arg:
                return scope.bound[name] == [None]
            case ast.Name(name) if len(values := scope.bound.get(name, [])) == 1 and isinstance(values[0], ast.expr):
                return self._is_in_saved_folder(values[0], scope)
            case ast.Call(function, [folder]) if self._is_exactly(
                function, "pathlib.Path", "builtins.str", "os.fspath"
            ):
                return self._is_in_saved_folder(folder, scope)
            case ast.Call(function, [folder, *parts], []) if self._is_exactly(function, "os.path.join"):
                return self._is_in_saved_folder(folder, scope) and all(
                    self._is_file_name(part, scope) for part in parts
                )
            case ast.BinOp(folder, ast.Div(), part):
                return self._is_in_saved_folder(folder, scope) and self._is_file_name(part, scope)
        return False

    def _is_file_name(self, node: ast.expr, scope: _Scope) -> bool:
        """Return whether an expression consists of constants without slashes and of arguments of the method."""
        self.repository.step()
        match node:
            case ast.Constant(value):
                return not any(sign in str(value) for sign in ("/", "\\", ".."))
            case ast.Name(name) if name in scope.bound:
                return scope.bound[name] == [None]
            case ast.Name():
                return self._is_constant_name(node, scope)
            case ast.BinOp(left, ast.Add(), right):
                return self._is_file_name(left, scope) and self._is_file_name(right, scope)
            case ast.IfExp(body=body, orelse=orelse):
                return self._is_file_name(body, scope) and self._is_file_name(orelse, scope)
            case ast.Subscript(ast.Name() as table, ast.Constant()):
                return self._is_constant_name(table, scope)
            case ast.Dict(values=values):
                return all(self._is_file_name(value, scope) for value in values)
        return False

    def _is_constant_name(self, node: ast.Name, scope: _Scope) -> bool:
        """Return whether a name means a constant, or a dictionary of constants that is nowhere changed."""
        values = self._origins(node)
        if len(values) != 1:
            return False
        owner, value = values[0]
        if not isinstance(value, ast.Constant | ast.Dict):
            return False
        if isinstance(value, ast.Dict):
            uses = [each for each in self.nodes if isinstance(each, ast.Name) and each.id == node.id]
            if owner is not self or not all(self._only_reads(each) for each in uses):
                return False
        return owner._is_file_name(value, scope)

    def _only_reads(self, node: ast.Name) -> bool:
        """Return whether a dictionary is read here, or is the attribute that tokenizers of transformers need."""
        match self.parents.get(node):
            case ast.Subscript(ctx=ast.Load()):
                return True
            case ast.Assign(targets=[ast.Name("vocab_files_names")]):
                changed = (reader.nodes for reader in self.repository.readers.values())
                return not any(
                    isinstance(each, ast.Attribute) and each.attr == "vocab_files_names"
                    for nodes in changed
                    for each in nodes
                )
            case ast.Assign(targets=[target]):
                return target is node
        return False

    def _unusual(self, body: list[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
        """Yield statements that do more than define or register names when the file is imported."""
        for node in body:
            match node:
                case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Raise():
                    pass
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from self._unusual_decorators(node.decorator_list)
                    yield from self._unusual_calls(*node.decorator_list, node.args, node.returns)
                case ast.ClassDef():
                    metaclasses = [keyword.value for keyword in node.keywords if keyword.arg == "metaclass"]
                    yield from self._unusual_decorators([*node.decorator_list, *metaclasses])
                    yield from self._unusual_calls(*node.decorator_list, *node.bases, *node.keywords)
                    yield from self._unusual(node.body)
                case ast.Assign(targets) if all(_is_plain(target) for target in targets):
                    yield from self._unusual_calls(node.value)
                case ast.AnnAssign(target) | ast.AugAssign(target) if _is_plain(target):
                    yield from self._unusual_calls(node)
                case ast.Expr(value):
                    yield from self._unusual_calls(value)
                case ast.If(test):
                    yield from self._unusual_calls(test)
                    yield from self._unusual([*([] if node.body[0] in self.never else node.body), *node.orelse])
                case ast.Try():
                    handled = [statement for handler in node.handlers for statement in handler.body]
                    yield from self._unusual([*node.body, *handled, *node.orelse, *node.finalbody])
                case _:
                    yield node

    def _unusual_calls(self, *nodes: ast.AST | None) -> Iterator[ast.expr]:
        waiting = [node for node in nodes if node is not None]
        for node in waiting:
            if isinstance(node, ast.Call) and not self._is_ordinary(node.func):
                yield node
            if isinstance(node, ast.Lambda):
                continue  # its body does not run until it is called
            waiting += ast.iter_child_nodes(node)

    def _unusual_decorators(self, decorators: list[ast.expr]) -> Iterator[ast.expr]:
        # A decorator is called although it is not a call expression; those that are calls are found as calls.
        yield from (d for d in decorators if not isinstance(d, ast.Call) and not self._is_ordinary(d))

    def _is_ordinary(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Attribute) and (
            function.attr == "register_for_auto_class"
            or (function.attr in _ORDINARY_METHODS and not self.names(function))
        ):
            return True
        if isinstance(function, ast.Call):  # interval(min=0.0)(default=0.1)
            return all(_is_below(name, "transformers") for name in self.names(function.func) or [""])
        names = self.names(function)
        return bool(names) and all(
            name.removeprefix("builtins.") in _ORDINARY_BUILTINS
            or (any(_is_below(name, module) for module in _ORDINARY) and not name.endswith(".from_pretrained"))
            for name in names
        )


def _bind(scope: _Scope, name: str, value: "str | ast.AST | _Sibling | None" = None) -> None:
    """Bind a name in a scope, and where the scope declares the name as global or nonlocal."""
    scope.bind(name, value)
    if name in scope.elsewhere:
        outer = scope.outer
        while outer is not None:
            if outer.outer is None or name in outer.bound:
                outer.bind(name, value)
            outer = outer.outer


def _invisible(character: str) -> bool:
    if 0xE0000 <= ord(character) <= 0xE0FFF:  # tags and selectors, which can encode a whole text
        return True
    return character not in "\t\f" and unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def _is_listed_class(name: str) -> bool:
    """Return whether a name is a generic class such as ``typing.Literal``, whose subscript is no attribute."""
    return not name.endswith(".__dict__") and name not in ("builtins", "sys.modules")


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_field(attribute: str) -> bool:
    """Return whether an attribute of a configuration can be a field, which config.json may define."""
    return not (attribute.startswith("_") or attribute in _SUSPECT_ATTRIBUTES or attribute in _MODULES_IN_CHAINS)


def _last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else None


def _called(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _is_starred(call: ast.Call) -> bool:
    return any(isinstance(argument, ast.Starred) for argument in call.args) or any(
        keyword.arg is None for keyword in call.keywords
    )


def _is_plain(target: ast.expr) -> bool:
    items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return all(isinstance(item, ast.Name) for item in items)


def _is_constant(node: ast.expr | None, value: bool | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _writes(call: ast.Call, position: int) -> bool:
    """Whether ``open`` is, or may be, called to write; the mode is the argument at ``position``, or a keyword."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[position : position + 1]
    return any(not (isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rbtU")) for mode in modes)

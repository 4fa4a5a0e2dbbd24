"""Find unusual code in a Python file by reading it; the file is neither run nor imported.

Names are followed through imports, assignments, ``getattr`` and concatenated strings. Mentioning a name counts like
calling it. Carefully hidden code can still go unnoticed: the findings show where to look first, but a file without
findings may still be harmful.
"""

import ast
import builtins
import io
import re
import tokenize
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# Each kind of finding, and its description.
KINDS: Mapping[str, str] = {
    "network": "can access a network",
    "process": "starts or ends processes",
    "code": "creates code at run time, or imports a module named by a string",
    "pickle": "loads a pickle, or is one; a pickle can run any code",
    "native": "calls native code",
    "files": "writes, moves or deletes files",
    "environment": "reads environment variables, or places where secrets are stored",
    "import time": "does more than define names when it is imported",
    "decoding": "decodes data that can hide code",
    "hidden": "accesses names in a way that hides them",
    "characters": "contains characters that are invisible or look like others",
    "missing": "refers to a file or class that does not exist",
    "elsewhere": "refers to code in another repository",
    "unreadable": "cannot be read",
}

# Dotted names by kind of finding; a name with a star at its end stands for all names with this prefix.
_SUSPECTS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(names.split())
    for kind, names in {
        "network": "aiohttp asyncio.open_connection asyncio.start_server boto3 botocore fsspec ftplib grpc http httpx "
        "httpx2 huggingface_hub imaplib nntplib paramiko poplib pycurl requests s3fs smtplib socket socketserver ssl "
        "telnetlib torch.distributed.rpc torch.hub urllib urllib3 webbrowser websocket websockets xmlrpc zmq",
        "process": "asyncio.create_subprocess_* concurrent.futures.ProcessPoolExecutor multiprocessing os._exit "
        "os.abort os.exec* os.fork* os.kill* os.popen os.posix_spawn* os.spawn* os.startfile os.system pexpect psutil "
        "pty signal subprocess torch.multiprocessing torch.utils.cpp_extension",
        "code": "atexit builtins.__import__ builtins.breakpoint builtins.compile builtins.eval builtins.exec code "
        "codeop imp importlib pandas.eval pdb pip pkg_resources pkgutil runpy setuptools sys.meta_path sys.modules "
        "sys.path* sys.setprofile sys.settrace torch.hub torch.package types.CodeType types.FunctionType zipimport",
        "pickle": "_pickle cloudpickle dill joblib jsonpickle marshal numpy.load pandas.read_pickle pickle shelve "
        "torch.jit.load torch.load torch.serialization yaml.UnsafeLoader yaml.full_load yaml.load yaml.unsafe_load",
        "native": "_ctypes cffi ctypes mmap torch.classes.load_library torch.ops.load_library",
        "files": "builtins.open codecs.open io.FileIO io.open numpy.save* os.chmod os.chown os.link os.makedirs "
        "os.mkdir os.mkfifo os.open os.remove* os.rename* os.replace os.rmdir os.symlink os.truncate os.unlink "
        "os.write safetensors.torch.save* shutil tempfile torch.save",
        "environment": "dotenv getpass huggingface_hub.get_token keyring netrc os.environ* os.getenv* os.getlogin "
        "os.path.expanduser* os.putenv os.uname os.unsetenv pathlib.Path.home platform.node pwd",
        "decoding": "base64 binascii bz2 codecs.decode codecs.getdecoder gzip lzma tarfile zipfile zlib",
        "hidden": "builtins.__loader__ builtins.__spec__ builtins.globals builtins.locals gc inspect.currentframe "
        "inspect.stack sys._getframe",
    }.items()
}
_HARMLESS = ("http.HTTPStatus", "huggingface_hub.dataclasses", "importlib.metadata", "urllib.parse")
# Attributes of objects whose type is unknown.
_SUSPECT_ATTRIBUTES: Mapping[str, str] = {
    attribute: kind
    for kind, attributes in {
        "files": "chmod hardlink_to mkdir rmdir rmtree symlink_to touch unlink write_bytes write_text",
        "network": "push_to_hub upload_file upload_folder hf_hub_download snapshot_download",
        "pickle": "read_pickle to_pickle",
        "decoding": "fromhex",
        "hidden": "__base__ __bases__ __builtins__ __code__ __globals__ __loader__ __self__ __subclasses__ f_back "
        "f_builtins f_globals f_locals gi_frame tb_frame",
    }.items()
    for attribute in attributes.split()
}
_CODECS = ("base64", "bz2", "hex", "quopri", "rot13", "rot_13", "unicode_escape", "uu", "zip", "zlib")
_SECRETS = re.compile(r"\.ssh\b|\.netrc|\.aws\b|\.git-credentials|huggingface/token|HF_TOKEN|/etc/passwd|id_rsa")
_PAYLOAD = re.compile(r"[A-Za-z0-9+/=_-]{400,}")
# Limit for each name: "x = x.a; x = x.b; ..." doubles the number of meanings with each statement.
_MEANINGS = 20
# If code assembles one of these words from pieces, it hides it.
_HIDDEN_WORDS = {"__builtins__", "__import__", "compile", "eval", "exec", "popen", "subprocess", "system"}
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
_ORDINARY_METHODS = {"deleter", "format", "getter", "items", "join", "keys", "setter", "split", "values"}


@dataclass(frozen=True)
class Finding:
    """An unusual line or file.

    Attributes:
        kind: one of ``KINDS``.
        path: the file.
        line: number of the line, from 1; None for a finding about the whole file.
        text: the line, or a description of the file.
    """

    kind: str
    path: str
    line: int | None
    text: str


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


def read_module(path: str, content: bytes, files: set[str]) -> Module:
    """Read a Python file without running it.

    Args:
        path: path of the file in its repository.
        content: its bytes.
        files: paths of all files of the repository, to find out whether an imported file exists.
    """
    lines = re.split(r"\r\n|\r|\n", content.decode("utf-8", errors="replace"))
    found: dict[tuple[str, int | None], Finding] = {}

    def add(kind: str, line: int | None, text: str | None = None) -> None:
        said = lines[line - 1].strip() if text is None and line and line <= len(lines) else text or ""
        found.setdefault((kind, line), Finding(kind, path, line, said))

    for number, line in enumerate(lines, 1):
        if any(_invisible(character) for character in line.removeprefix("\ufeff" if number == 1 else "")):
            add("characters", number)
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        if encoding not in ("utf-8", "utf-8-sig"):
            add("unreadable", 1, f"It declares the encoding {encoding}, so its text may differ from what is shown.")
        tree = ast.parse(content)
        for token in tokenize.tokenize(io.BytesIO(content).readline):
            # Python normalizes letters that look like others: ｅｖａｌ is eval.
            if token.type == tokenize.NAME and not token.string.isascii():
                add("characters", token.start[0])
        reader = _Reader(tree)
        for kind, place in reader.suspects():
            add(kind, place.lineno)
        for place in reader.unusual(tree.body):
            add("import time", place.lineno)
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError) as error:
        add("unreadable", None, f"It is not valid Python: {error}")
        return Module((), (), (), tuple(found.values()))
    siblings: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            there, wanted = _siblings(path, node, files)
            siblings.update(dict.fromkeys(there))
            if wanted:
                siblings.update(dict.fromkeys(wanted))
                add("missing", node.lineno)
    ordered = sorted(found.values(), key=lambda finding: (finding.line or 0, finding.kind))
    return Module(tuple(sorted(reader.imports)), tuple(siblings), tuple(sorted(reader.defined)), tuple(ordered))


def printable(text: str, length: int | None = None) -> str:
    """Return text without control or invisible characters, truncated to ``length`` characters."""
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    return escaped if length is None or len(escaped) <= length else f"{escaped[: length - 1]}…"


def _invisible(character: str) -> bool:
    if 0xE0000 <= ord(character) <= 0xE0FFF:  # tags and selectors, which can encode a whole text
        return True
    return character not in "\t\f" and unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def _siblings(path: str, node: ast.ImportFrom, files: set[str]) -> tuple[list[str], list[str]]:
    """Return the files that a relative import reads, and the missing ones that it would read."""
    folder = path.split("/")[: -node.level]
    if len(path.split("/")) < node.level:
        return [], [f"{'.' * node.level}{node.module or ''}"]
    module = "/".join([*folder, *(node.module.split(".") if node.module else [])])
    names = [f"{module}/{alias.name}".lstrip("/") for alias in node.names] if not node.module else [module]
    candidates = {name: [f"{name}.py", f"{name}/__init__.py"] for name in names}
    there = [each for paths in candidates.values() for each in paths if each in files]
    return there, [paths[0] for paths in candidates.values() if not any(each in files for each in paths)]


class _Reader:
    """The meanings of the names of a file; a name that is bound twice has both meanings."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self.imports: set[str] = set()
        self.modules: set[str] = set()  # names that an import statement binds to a module
        self.defined: set[str] = set()
        self.meanings: dict[str, set[str]] = {}
        self.texts: dict[str, str] = {}  # values of strings by name
        for node in ast.walk(tree):
            self._bind(node)
        # A name may refer to another one that is bound later in the file.
        for _ in range(2):
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        if isinstance(target, ast.Name):
                            known = self.meanings.setdefault(target.id, set())
                            if len(known) < _MEANINGS:
                                known |= self.names(node.value)
                            if (text := self.text(node.value)) is not None:
                                self.texts[target.id] = text

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                self.imports.add(top)
                self.modules.add(alias.asname or top)
                self.meanings.setdefault(alias.asname or top, set()).add(alias.name if alias.asname else top)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.defined.add(alias.asname or alias.name)
                if not node.level and node.module:
                    self.imports.add(node.module.split(".")[0])
                    self.meanings.setdefault(alias.asname or alias.name, set()).add(f"{node.module}.{alias.name}")
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and self.parents[node] is self.tree:
            self.defined.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self.defined.add(node.id)

    def names(self, node: ast.AST | None) -> set[str]:
        """Return the dotted names that an expression may mean, such as ``os.system``."""
        match node:
            case ast.Name("__builtins__"):
                return {"builtins"}
            case ast.Name(name):
                return self.meanings.get(name, set()) | ({f"builtins.{name}"} if hasattr(builtins, name) else set())
            case ast.Attribute(value, attribute):
                return {f"{name}.{attribute}".replace(".__dict__.", ".") for name in self.names(value)}
            case ast.Subscript(value, key) if (text := self.text(key)) is not None:
                of = self.names(value)
                modules = {text} if "sys.modules" in of else set()
                return modules | {f"{name.removesuffix('.__dict__')}.{text}" for name in of}
            case ast.Call(function, [first, *more]):
                called = self.names(function)
                if "builtins.getattr" in called and more and (text := self.text(more[0])) is not None:
                    return {f"{name}.{text}" for name in self.names(first)}
                if called & {"builtins.__import__", "importlib.import_module"} and (text := self.text(first)):
                    return {text}
                if "builtins.vars" in called:
                    return {f"{name}.__dict__" for name in self.names(first)}
        return set()

    def text(self, node: ast.AST | None) -> str | None:
        """Return the string value of an expression, if all of its parts are known."""
        match node:
            case ast.Constant(str(value)):
                return value
            case ast.Name(name):
                return self.texts.get(name)
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

    def suspects(self) -> Iterator[tuple[str, ast.stmt | ast.expr]]:
        """Return the kind and node of every finding in the file."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((kind, node) for alias in node.names for kind in _kinds(alias.name))
            elif isinstance(node, ast.ImportFrom) and not node.level:
                for alias in node.names:
                    yield from ((kind, node) for kind in _kinds(f"{node.module}.{alias.name}"))
                    if alias.name == "*":
                        yield "hidden", node
            elif isinstance(node, ast.Constant):
                if isinstance(node.value, str | bytes):
                    value = node.value if isinstance(node.value, str) else node.value.decode("latin-1")
                    if _SECRETS.search(value):
                        yield "environment", node
                    if _PAYLOAD.search(value):
                        yield "decoding", node
            elif isinstance(node, ast.expr):
                yield from ((kind, node) for kind in self._of_expression(node))

    def _of_expression(self, node: ast.expr) -> Iterator[str]:
        parent = self.parents.get(node)
        call = parent if isinstance(parent, ast.Call) and parent.func is node else None
        if not isinstance(parent, ast.Attribute):  # handled at the parent, which has the full name
            for name in self.names(node):
                for kind in _kinds(name):
                    if not (call and self._is_safe(name, call)):
                        yield kind
        if not isinstance(node, ast.Constant | ast.Name) and self.text(node) in _HIDDEN_WORDS:
            yield "hidden"
        if isinstance(node, ast.Name) and (node.id in self.modules or node.id == "__builtins__"):
            taken = isinstance(parent, ast.Attribute) or not isinstance(node.ctx, ast.Load)
            # getattr(torch, "float16") asks a module for a name that stands there.
            looked_up = isinstance(parent, ast.Call) and self.names(parent)
            if node.id == "__builtins__" or not (taken or looked_up):
                yield "hidden"  # a module passed on as a value: its use cannot be followed
        if isinstance(node, ast.Attribute):
            if node.attr in _SUSPECT_ATTRIBUTES:
                yield _SUSPECT_ATTRIBUTES[node.attr]
            if node.attr == "__dict__" and self.names(node.value):
                yield "hidden"
            if node.attr == "open" and call and not self.names(node) and _writes(call, 0):
                yield "files"
        if isinstance(node, ast.Call):
            yield from self._of_call(node)

    def _of_call(self, call: ast.Call) -> Iterator[str]:
        if "builtins.vars" in self.names(call.func) and (not call.args or self.names(call.args[0])):
            yield "hidden"
        for keyword in call.keywords:
            if keyword.arg in ("trust_remote_code", "allow_pickle") and not _is_constant(keyword.value, False):
                yield "code" if keyword.arg == "trust_remote_code" else "pickle"
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("decode", "encode") and call.args:
            codec = self.text(call.args[0])
            if codec is not None and codec.lower().replace("-", "_").removesuffix("_codec") in _CODECS:
                yield "decoding"

    def _is_safe(self, name: str, call: ast.Call) -> bool:
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        match name:
            case "builtins.open" | "io.open" | "codecs.open":
                return None not in given and not _writes(call, 1)
            case "torch.load":
                return _is_constant(given.get("weights_only"), True)
            case "numpy.load":  # its argument allow_pickle is a separate finding
                return None not in given and len(call.args) < 3
        return False

    def unusual(self, body: list[ast.stmt]) -> Iterator[ast.stmt | ast.expr]:
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
                    yield from self.unusual(node.body)
                case ast.Assign(targets) if all(_is_plain(target) for target in targets):
                    yield from self._unusual_calls(node.value)
                case ast.AnnAssign(target) | ast.AugAssign(target) if _is_plain(target):
                    yield from self._unusual_calls(node)
                case ast.Expr(value):
                    yield from self._unusual_calls(value)
                case ast.If(test):
                    yield from self._unusual_calls(test)
                    yield from self.unusual([*node.body, *node.orelse])
                case ast.Try():
                    handled = [statement for handler in node.handlers for statement in handler.body]
                    yield from self.unusual([*node.body, *handled, *node.orelse, *node.finalbody])
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
        names = self.names(function)
        return bool(names) and all(
            name.removeprefix("builtins.") in _ORDINARY_BUILTINS
            or (any(_is_below(name, module) for module in _ORDINARY) and not name.endswith(".from_pretrained"))
            for name in names
        )


def _kinds(name: str) -> Iterator[str]:
    if any(_is_below(name, harmless) for harmless in _HARMLESS):
        return
    for kind, suspects in _SUSPECTS.items():
        if any(_is_below(name, suspect) for suspect in suspects):
            yield kind


def _is_below(name: str, other: str) -> bool:
    """Return whether a dotted name equals another, or is an attribute of it."""
    return name.startswith(other[:-1]) if other.endswith("*") else name == other or name.startswith(f"{other}.")


def _is_plain(target: ast.expr) -> bool:
    items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return all(isinstance(item, ast.Name) for item in items)


def _is_constant(node: ast.expr | None, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _writes(call: ast.Call, position: int) -> bool:
    """Whether ``open`` is, or may be, called to write; the mode is the argument at ``position``, or a keyword."""
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[position : position + 1]
    return any(not (isinstance(mode, ast.Constant) and set(str(mode.value)) <= set("rbtU")) for mode in modes)

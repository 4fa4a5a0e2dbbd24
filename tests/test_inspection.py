"""What `hfattn inspect` finds in repositories, ours and hostile ones; and that none of it runs."""

import base64
import hashlib
import importlib
import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from commands import ROOT
from hostile_code import ORDINARY, PAYLOADS, SHARED
from hub_server import Hub
from typer.testing import CliRunner

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, VaswaniConfig, VaswaniForCausalLM, __version__
from hfattn.errors import UserError
from hfattn.hub import code_findings, known_code
from hfattn.hub.code_findings import KINDS, Finding, printable, read_modules
from hfattn.hub.data_files import LARGEST
from hfattn.hub.inspection import inspect
from hfattn.pipelines import AttnTranslationPipeline
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

NAME = "user/name"


@pytest.fixture(autouse=True)
def empty(online: None, hub: Hub) -> None:
    hub.repos.clear()
    hub.requests.clear()


def found(code: str, *files: str) -> list[tuple[str, int | None]]:
    """Kinds of findings and their lines in a file of this code."""
    return [(finding.kind, finding.line) for finding in findings(code, *files)]


def findings(code: str, *files: str) -> tuple[Finding, ...]:
    return read_modules({"m.py": code.encode()}, {"m.py", *files})["m.py"].findings


# Ours


def test_what_we_publish_has_nothing_unusual(tmp_path: Path) -> None:
    tokenizer = build_character_tokenizer(["uno"], ends=True)
    translator = BahdanauForConditionalGeneration(BahdanauConfig(vocab_size=len(tokenizer)))
    AttnTranslationPipeline(model=translator, tokenizer=tokenizer).save_pretrained(tmp_path / "one")
    VaswaniForCausalLM(
        VaswaniConfig(vocab_size=8, hidden_size=8, num_attention_heads=2, decoder_layers=1)
    ).save_pretrained(tmp_path / "two")
    one, two = inspect(str(tmp_path / "one")), inspect(str(tmp_path / "two"))
    assert one.findings == two.findings == ()
    assert all(file.origin and file.runs for file in [*one.files, *two.files])
    assert one.exit_code == two.exit_code == 0
    assert one.verdict.startswith(
        f"{len(one.files)} of {len(one.files)} code files are byte for byte those of hfattn {__version__}"
    )
    assert {(entry.name, entry.reference) for entry in one.entries} >= {
        ("AutoModelForSeq2SeqLM", "modeling_bahdanau.BahdanauForConditionalGeneration"),
        ("pipeline attn-translation", "pipeline_attn_translation.AttnTranslationPipeline"),
    }
    assert ("AutoModelForCausalLM", "modeling_vaswani.py", "VaswaniForCausalLM") in {
        (entry.name, entry.path, entry.class_name) for entry in two.entries
    }
    cells = next(file for file in one.files if file.path == "recurrent_cells.py")
    assert cells.imports["siblings"] == ("strict_config.py",)
    assert cells.imports["ecosystem"] == ("torch", "transformers")
    assert "math" in cells.imports["standard library"]


def test_our_files_have_no_findings_when_they_are_not_known() -> None:
    models = {path.name: path.read_bytes() + b"# changed\n" for path in (ROOT / "hfattn" / "models").glob("*.py")}
    del models["__init__.py"]  # stays with the package
    assert len(models) > 15
    assert [finding for module in read_modules(models).values() for finding in module.findings] == []


# Known ones


def test_a_saved_model_is_known_byte_for_byte(tmp_path: Path) -> None:
    VaswaniForCausalLM(
        VaswaniConfig(
            vocab_size=8, hidden_size=8, num_attention_heads=2, decoder_layers=1, self_attention_score="gaussian"
        )
    ).save_pretrained(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert b"from ." in files["custom_classes.py"]  # gaussian is not in the files of every model
    origins = known_code.origins(files)
    assert all(origin and origin.startswith(f"hfattn {__version__}") for origin in origins.values()), origins
    assert known_code.origins({"renamed.py": files["strict_config.py"]}) == {"renamed.py": origins["strict_config.py"]}
    changed = {
        "strict_config.py": files["strict_config.py"] + b"#",
        "custom_classes.py": files["custom_classes.py"] + b"import os\n",
        "calls.py": files["custom_classes.py"].replace(b": attention_distances_Gaussian}", b": open('x', 'w')}"),
        "__init__.py": (ROOT / "hfattn" / "models" / "__init__.py").read_bytes(),
    }
    assert known_code.origins(changed | {"weights.bin": b""}) == dict.fromkeys(changed)


def test_releases_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.loads((ROOT / "hfattn" / "hub" / "known_code.json").read_text())
    assert all(re.fullmatch("[0-9a-f]{64}", sha256) for files in listed.values() for sha256 in files.values())
    old = {"1.0.0": {"a.py": hashlib.sha256(b"a").hexdigest()}, "1.1.0": {"b.py": hashlib.sha256(b"b").hexdigest()}}
    (tmp_path / "known_code.json").write_text(json.dumps(old))
    monkeypatch.setattr(known_code, "_LIST", tmp_path / "known_code.json")
    known_code._known.cache_clear()
    try:
        origins = known_code.origins({"a.py": b"a", "b.PY": b"b", "c.py": b"c"})
    finally:
        known_code._known.cache_clear()
    assert origins == {"a.py": "hfattn 1.0.0", "b.PY": "hfattn 1.1.0", "c.py": None}


# Hostile ones

PIECES = base64.b64encode(os.urandom(400)).decode()
HOSTILE = {
    "import zlib\nd = zlib.compressobj.__self__.decompress": "hidden",
    "import socket": "network",
    "from urllib.request import urlopen": "network",
    "import requests.sessions as r": "network",
    "from huggingface_hub import HfApi": "network",
    "def f(model):\n    model.push_to_hub('me/mine')": "network",
    "import os\ndef f():\n    os.system('true')": "process",
    "import os as o\nx = o.system": "process",
    "from os import system as quiet": "process",
    "from subprocess import run as r": "process",
    "import torch\nx = torch.utils.cpp_extension.load": "process",
    "import torch\nt = torch.utils\nx = t.cpp_extension.load": "process",
    "def f(x):\n    return eval(x)": "code",
    "x = map(exec, [])": "code",
    "x = getattr(__builtins__, 'ev' + 'al')": "code",
    "x = __builtins__['exec']": "code",
    "x = __builtins__.__dict__[f'{\"ex\"}ec']": "code",
    "name = 'lave'[::-1]\ndef f():\n    return getattr(__builtins__, name)": "code",
    "import builtins as b\nx = b.compile": "code",
    "def f():\n    return __import__('socket')": "network",
    "def f():\n    return __import__(chr(111) + 's').system": "process",
    "import importlib": "code",
    "import sys\nx = sys.modules['subprocess'].run": "process",
    "import sys\nsys.path += ['.']": "code",
    "def f(auto, x):\n    return auto.from_pretrained(x, trust_remote_code=True)": "code",
    "import pickle": "pickle",
    "import torch\ndef f(x):\n    return torch.load(x)": "pickle",
    "import torch\ndef f(x):\n    return torch.load(x, weights_only=False)": "pickle",
    "from torch import load\ndef f(x):\n    return load(x)": "pickle",
    "import numpy as np\ndef f(x):\n    return np.load(x, allow_pickle=True)": "pickle",
    "import joblib": "pickle",
    "import dill": "pickle",
    "import marshal": "pickle",
    "import ctypes": "native",
    "def f(x):\n    return open(x, 'w')": "files",
    "def f(x, mode):\n    return open(x, mode)": "files",
    "def f(x, more):\n    return open(x, **more)": "files",
    "def f(path):\n    return path.open('ab')": "files",
    "def f(path):\n    path.write_text('x')": "files",
    "from shutil import rmtree": "files",
    "import os\ndef f(x):\n    os.remove(x)": "files",
    "import os\nx = os.environ.get('HOME')": "environment",
    "from os import getenv": "environment",
    "x = '~/.cache/huggingface/token'": "environment",
    "from pathlib import Path\nx = Path.home()": "environment",
    "print('hello')": "import time",
    "def f(): ...\nx = f()": "import time",
    "class A:\n    for x in []: ...": "import time",
    "import torch\ntorch.nn.Linear.forward = None": "import time",
    "def f(x): ...\n@f\nclass A: ...": "import time",
    "class M(type): ...\nclass A(metaclass=M): ...": "import time",
    "def g(): ...\ndef f(x=g()): ...": "import time",
    "if True:\n    while False: ...": "import time",
    "try:\n    import a\nexcept ImportError:\n    print()": "import time",
    "from transformers import AutoModel\nx = AutoModel.from_pretrained('other/repo')": "import time",
    "import base64\nx = base64.b64decode": "decoding",
    "import base64 as b\nb.b85decode('')": "decoding",
    "import zlib\nclass A:\n    x = getattr(zlib, 'decompress')": "decoding",
    "from zlib import decompress": "decoding",
    "import base64\nx = base64.b64encode": "decoding",
    "x = bytes.fromhex('6f73')": "decoding",
    "x = 'flfgrz'.encode().decode('rot' + '13')": "decoding",
    f"x = '{PIECES}'": "decoding",
    "import os\nx = [os]": "hidden",
    "import os\ndef f(name):\n    return getattr(os, name)": "hidden",
    "import os\nx = vars(os)['system']": "hidden",
    "import os\nx = os.__dict__": "hidden",
    "from os import *": "hidden",
    "x = globals()": "hidden",
    "x = ().__class__.__base__.__subclasses__": "hidden",
    "import torch\ndef f():\n    torch.nn.Linear.forward = f": "changes",
    "import pandas": "unlisted",
    "from transformers import AutoModel\ndef f():\n    AutoModel.from_pretrained('other/repo')": "elsewhere",
    "x = '__imp' + 'ort__'": "hidden",
    "ｅｖａｌ = 1": "characters",
    "pаyload = 1  # with a Cyrillic letter": "characters",
    "x = 'user\u202e'": "characters",
    "# zero\u200bwidth": "characters",
    "x = '\U000e0041'": "characters",
    "from .nowhere import x": "missing",
    "from .. import x": "missing",
    "from . import nowhere": "missing",
    "def f(:": "unreadable",
    "# coding: latin-1\nx = 1": "unreadable",
    f"x = {'(' * 3000}": "unreadable",
    f"x = a{'.b' * 5000}": "unreadable",
}


@pytest.mark.parametrize(
    ("code", "kind"), HOSTILE.items(), ids=[f"{i}-{kind}" for i, kind in enumerate(HOSTILE.values())]
)
def test_each_kind_is_found(code: str, kind: str) -> None:
    unusual = findings(code)
    assert kind in {finding.kind for finding in unusual}, unusual
    for finding in unusual:
        assert finding.line is None or finding.text in code.splitlines()[finding.line - 1] or kind == "unreadable"


def test_every_kind_has_a_hostile_file() -> None:
    assert set(HOSTILE.values()) == set(KINDS) - {"scan", "packages"}  # what the Hub says, and requirements


@pytest.mark.parametrize(
    "code",
    [
        "import os\nx = os.path.join('a', 'b')",
        "import torch\ndef f(x):\n    return torch.load(x, weights_only=True), getattr(torch, 'float16')",
        "import numpy as np\ndef f(x):\n    return np.load(x)",
        "def f(x):\n    with open(x) as a, open(x, 'rb') as b, open(x, mode='r'): ...",
        "def f(model):\n    model.eval()\n    return vars(model).get('options'), getattr(model, 'name')",
        "class A:\n    def f(self, name):\n        return getattr(self, name)\n    def g(self):\n        self.f('x')",
        "class A:\n    def f(self):\n        return {**vars(self), **self.__dict__}",
        "class A:\n    def f(self, x):\n        self.register_buffer('some_thing', x)\n        return self.some_thing",
        "def f(auto, x, **more):\n    auto.from_pretrained(x, trust_remote_code=False, **more)",
        "import re\nimport torch\nPATTERN = re.compile('a')\ncompiled = torch.compile",
        "from urllib.parse import quote\nfrom http import HTTPStatus",
        "import torch\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy as np\n"
        "class A:\n    def f(self, x: 'torch.Tensor | None', y: 'np.odd[A]' = 1) -> 'A': ...",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from a import b\n__all__ = ['f']\n__all__ += ['g']",
        "from dataclasses import dataclass, field\n@dataclass(frozen=True)\nclass A:\n    x: int = field(default=1)",
        "class A:\n    @property\n    def x(self): ...\n    @x.setter\n    def x(self, value): ...",
        "# Ünïcödé in a comment\nx = 'naïve, 中文, 🙂'",
        "from .sibling import x\nfrom . import sibling, package\nfrom .package.deep import y",
        "x = 'hashing' + 'ton'\ny = ', '.join(['a', 'b'])",
    ],
)
def test_what_models_do_every_day_is_not_unusual(code: str) -> None:
    assert found(code, "sibling.py", "package/__init__.py", "package/deep.py") == []


def test_lines_are_those_that_python_counts() -> None:
    code = b"x = '\x0c'\r\ny = 1\rimport socket\n"
    (finding,) = findings(code.decode())
    assert (finding.kind, finding.line, finding.text) == ("network", 3, "import socket")


def test_no_allowed_name_is_a_module_that_is_not_listed() -> None:
    """Libraries keep the modules that they import, and a module leads to everything."""
    names = code_findings._allowed_names()
    for module, allowed in names.items():
        if module.split(".")[0] in {"torch", "numpy", *sys.stdlib_module_names}:
            here = importlib.import_module(module)
            inside = {name for name in allowed if isinstance(getattr(here, name, None), ModuleType)}
            assert inside <= {name.removeprefix(f"{module}.") for name in names}, module
    assert not {"os", "sys", "subprocess", "load", "save", "exec", "tofile"} & names["attributes"]


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_line_of_a_payload_is_found(name: str) -> None:
    lines = PAYLOADS[name].splitlines()
    (line,) = (number for number, text in enumerate(lines, 1) if text.endswith("# here"))
    unusual = findings(PAYLOADS[name])
    assert line in {finding.line for finding in unusual if finding.kind != "import time"}, unusual


@pytest.mark.parametrize("name", SHARED)
def test_the_line_of_a_payload_that_two_files_share_is_found(name: str) -> None:
    unusual = read_modules({path: code.encode() for path, code in SHARED[name].items()})["m.py"].findings
    lines = SHARED[name]["m.py"].splitlines()
    assert any(finding.line and lines[finding.line - 1].endswith("# here") for finding in unusual), unusual


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_custom_code_has_no_findings(name: str) -> None:
    modules = read_modules({path: code.encode() for path, code in ORDINARY[name].items()})
    assert not [finding for module in modules.values() for finding in module.findings]


BOMBS = {
    "doubled text": "x0 = 'ab'\n" + "".join(f"x{i} = x{i - 1} + x{i - 1}\n" for i in range(1, 31)),
    "doubled names": "import torch as x0\n" + "".join(f"x{i} = x{i - 1} if x{i - 1} else 1\n" for i in range(1, 31)),
    "names in a circle": "".join(f"a{i} = a{i * 7 % 40}.x or a{i * 11 % 40}.y or a{i * 3 % 40}\n" for i in range(40)),
    "names bound again": "x = a\n" + "x = x.a; x = x.b\n" * 200,
    "parentheses": f"x = {'(' * 190}1{')' * 190}",
    "operators": "x = 1" + " + 1" * 20_000,
    "signs": f"x = {'-' * 50_000}1",
    "a long list": f"x = [{'1,' * 150_000}]",
    "many small statements": "x=1\n" * 60_000,
    "an f-string": f"x = f'{'{a}' * 50_000}'",
    "almost words": "x = '" + ("a" * 399 + " ") * 1300 + "'",
    "a long number": "x = " + "9" * 400_000,
}


def test_code_to_blow_up_the_reader_is_bounded() -> None:
    """A repository of all of them takes seconds and hundreds of megabytes, and what was too much is a finding."""
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    modules = read_modules({f"{i:02}.py": code.encode() for i, code in enumerate(BOMBS.values())})
    assert time.process_time() - start < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 800_000  # kilobytes
    texts = dict(
        zip(BOMBS, (module.findings[0].text if module.findings else "" for module in modules.values()), strict=True)
    )
    for name in ("operators", "signs", "a long number"):
        assert texts[name].startswith(("It is nested more deeply than code is", "It is not valid Python")), texts[name]
    for name in ("a long list", "many small statements", "an f-string"):
        assert texts[name] == "Reading it takes more work than is spent on a repository."


def test_a_terminal_is_not_steered() -> None:
    assert printable("a\x1b[2Jb\u202ec\n\ud800é") == "a\\x1b[2Jb\\u202ec\\n\\ud800é"
    assert printable("abcdef", 4) == "abc…"


# Repositories

EVIL = """\
from pathlib import Path
Path("{proof}").touch()
from .helper import Base
class Config(Base): ...
"""


@pytest.fixture
def evil(hub: Hub, tmp_path: Path) -> Path:
    """A repository whose code, when it runs, leaves a file; returns the path of that."""
    proof = tmp_path / "proof"
    auto_map = {
        "AutoConfig": "evil.Config",
        "AutoModel": "other/repo--modeling.Model",
        "AutoTokenizer": ["gone.Slow", None],
        "AutoProcessor": "evil.Nothing",
    }
    config = {"auto_map": auto_map, "text_config": {"auto_map": {"AutoConfig": "evil.Base"}}}
    files = {
        "config.json": json.dumps({**config, "custom_pipelines": {"new": {"impl": "helper.Base"}}}).encode(),
        "tokenizer_config.json": b'{"chat_template": "{{ x }}"}',
        "chat_template.jinja": b"{{ x }}",
        "evil.py": EVIL.format(proof=proof).encode(),
        "helper.py": b"import torch, numpy, no_such_package_here\nclass Base: ...\n",
        "custom_generate/generate.py": b"from ..helper import Base\ndef generate(model): ...\n",
        "unused/more.py": b"import math\n",
        "data.py": b"#" * (LARGEST + 1),
        "fast.so": b"\x7fELF",
        "pytorch_model.bin": b"\x80weights",
        "strict_config.py": b"",
        "model.gguf": b"\0" * 100,
    }
    hub.put("model", NAME, files)
    return proof


def test_a_repository_is_told_before_it_runs(hub: Hub, evil: Path) -> None:
    inspection = inspect(NAME)
    assert not evil.exists()
    fetched = {request.path.rpartition("/")[2] for request in hub.requests if request.endpoint == "resolve"}
    assert fetched == {
        "config.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "evil.py",
        "helper.py",
        "generate.py",
        "more.py",
        "strict_config.py",
    }
    assert inspection.commit == hub.repos["model", NAME].head("main").oid
    assert [(entry.name, entry.repository, entry.path, entry.class_name) for entry in inspection.entries] == [
        ("AutoConfig", None, "evil.py", "Config"),
        ("AutoModel", "other/repo", "modeling.py", "Model"),
        ("AutoTokenizer", None, "gone.py", "Slow"),
        ("AutoProcessor", None, "evil.py", "Nothing"),
        ("AutoConfig", None, "evil.py", "Base"),
        ("pipeline new", None, "helper.py", "Base"),
        ("generate", None, "custom_generate/generate.py", "generate"),
    ]
    files = {file.path: file for file in inspection.files}
    assert {path for path, file in files.items() if file.runs} == {
        "evil.py",
        "helper.py",
        "custom_generate/generate.py",
    }
    assert files["helper.py"].imports == {
        "ecosystem": ("torch",), "third-party": ("numpy",), "missing here": ("no_such_package_here",)
    }  # fmt: skip
    assert all(file.origin is None for file in inspection.files)
    unknown = "custom_generate/generate.py, evil.py, helper.py, strict_config.py, unused/more.py"
    assert inspection.verdict == f"All 5 code files are unknown: {unknown}."
    assert inspection.templates == ("chat_template.jinja", "chat_template in tokenizer_config.json")
    assert {(finding.kind, finding.path, finding.line) for finding in inspection.findings} == {
        ("elsewhere", "config.json", None),
        ("missing", "config.json", None),
        ("unreadable", "data.py", None),
        ("unreadable", "fast.so", None),
        ("files", "evil.py", 2),
        ("import time", "evil.py", 2),
        ("unlisted", "helper.py", 1),
        ("pickle", "pytorch_model.bin", None),
    }


def test_the_command(hub: Hub, evil: Path) -> None:
    shown = CliRunner().invoke(app, ["inspect", NAME])
    assert shown.exit_code == 1
    assert f'evil.py:2 {KINDS["files"]}: touch\n  Path("{evil}").touch()' in shown.stdout
    assert "AutoModel: other/repo--modeling.Model (inspect other/repo too)" in shown.stdout
    assert f"helper.py: {len(hub.files('model', NAME)['helper.py'])} bytes\n" in shown.stdout
    assert "unused/more.py: 12 bytes, which nothing above leads to\n" in shown.stdout
    assert "By its name it is a pickle, and there are no weights in safetensors." in shown.stdout
    asked = CliRunner().invoke(app, ["inspect", NAME, "--json"])
    assert asked.exit_code == 1
    told = json.loads(asked.stdout)
    assert told == json.loads(inspect(NAME).json())
    assert {finding["text"] for finding in told["findings"]} >= {f'Path("{evil}").touch()'}
    assert not evil.exists()


def test_revisions_and_folders(hub: Hub, tmp_path: Path) -> None:
    old = hub.put("model", NAME, {"config.json": b"{}", "weird\x1b[31m.py": b"x = 1\n", "model.safetensors": b""})
    hub.put("model", NAME, {"m.py": b"import socket\n", "config.json": b"{"})
    unknown = CliRunner().invoke(app, ["inspect", NAME, "--revision", old[:8]])
    assert unknown.exit_code == 3
    assert unknown.stdout.startswith("The only code file is unknown: weird\\x1b[31m.py.\n")
    assert "No file says that transformers should load code from here." in unknown.stdout
    assert "weird\\x1b[31m.py: 6 bytes" in unknown.stdout
    assert unknown.stdout.splitlines()[-2] == "Findings: none. Nothing of this was run."
    assert "\x1b" not in unknown.stdout
    assert [(f.kind, f.path) for f in inspect(NAME).findings] == [("unreadable", "config.json"), ("network", "m.py")]

    folder = tmp_path / "folder"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "hook.py").write_text("import socket\n")
    (folder / "m.py").write_text("import socket\n")
    local = inspect(str(folder))
    assert (local.commit, [(f.kind, f.path, f.line) for f in local.findings]) == (None, [("network", "m.py", 1)])


def test_each_state_has_its_exit_code(hub: Hub, tmp_path: Path) -> None:
    VaswaniForCausalLM(
        VaswaniConfig(vocab_size=8, hidden_size=8, num_attention_heads=2, decoder_layers=1)
    ).save_pretrained(tmp_path / "model")
    files = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    code = [name for name in files if name.endswith(".py")]
    scores = b"from .attention_scores import Score\nclass Mine(Score): ...\n"
    imports = files["custom_classes.py"] + (
        b'\nfrom .my_scores import Mine as my_scores_Mine\nCLASSES = {"my_scores.Mine": my_scores_Mine}\n'
    )
    count = len(code)
    states: list[tuple[dict[str, bytes], int, str]] = [
        ({}, 0, f"{count} of {count} code files are byte for byte those of hfattn {__version__}"),
        ({"encoder_decoder.py": b"x = 1"}, 3, f"{count - 1} of {count} code files are"),
        ({"my_scores.py": scores, "custom_classes.py": imports}, 3, f"{count} of {count + 1} code files are"),
        ({"evil.py": b"import socket"}, 1, f"{count} of {count + 1} code files are"),
    ]
    for number, (more, status, verdict) in enumerate(states):
        hub.put("model", f"user/model{number}", files | more)
        shown = CliRunner().invoke(app, ["inspect", f"user/model{number}"])
        assert (shown.exit_code, shown.stdout[: len(verdict)]) == (status, verdict), shown.stdout
        assert ("a part of the model by its author: my_scores.Mine" in shown.stdout) == (number == 2)
    told = json.loads(CliRunner().invoke(app, ["inspect", "user/model2", "--json"]).stdout)
    assert told["verdict"].endswith("; 1 is unknown: my_scores.py.")
    assert told["exit_code"] == 3


def test_what_the_hub_says_of_its_own_scan_is_shown(hub: Hub) -> None:
    hub.put("model", NAME, {"config.json": b"{}"})
    assert inspect(NAME).scan is None
    hub.repos["model", NAME].scan = {"scansDone": True, "filesWithIssues": []}
    assert inspect(NAME).scan == "The Hub's own scan has finished and names no file."
    hub.repos["model", NAME].scan = {"scansDone": False, "filesWithIssues": [{"path": "m.bin", "level": "unsafe"}]}
    inspection = inspect(NAME)
    assert "The Hub's own scan has not finished and names 1 file." in str(inspection)
    assert [(f.kind, f.path, f.text) for f in inspection.findings] == [("scan", "m.bin", "The Hub calls it unsafe.")]


def test_a_folder_is_read_as_a_push_would_publish_it(tmp_path: Path) -> None:
    for name in ("checkpoints/one.py", "logs/two.py", ".hidden/three.py", ".four.py", "later.py", "runs.py", "five.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "runs.x"}}')
    facts = {name: {"bytes": 6, "sha256": ""} for name in ("five.py", "config.json")}
    (tmp_path / "manifest.json").write_text(json.dumps({"files": facts}))
    inspection = inspect(str(tmp_path))
    assert [file.path for file in inspection.files] == ["five.py", "runs.py"]
    # What is not published and runs here nevertheless is said.
    assert [(f.kind, f.path) for f in inspection.findings] == [("missing", "runs.py")]


def test_a_kernel_of_another_repository_is_a_finding(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"_attn_implementation": "user/kernel", "experts_implementation": "eager"}')
    assert [(f.kind, f.text) for f in inspect(str(tmp_path)).findings] == [
        ("elsewhere", "_attn_implementation: user/kernel (inspect user/kernel too)")
    ]


def test_an_adapter_names_its_base_model(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "user/base\\u001b[2J"}')
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert shown.exit_code == 0
    assert "An adapter of user/base\\x1b[2J, which is not shown here: inspect that model too." in shown.stdout
    assert json.loads(inspect(str(tmp_path)).json())["base"] == "user/base\x1b[2J"
    for other in ('{"base_model_name_or_path": ["a"]}', '{"base_model_name_or_path": ""}', "[]"):
        (tmp_path / "adapter_config.json").write_text(other)
        assert inspect(str(tmp_path)).base is None


def test_the_layers_of_sentence_transformers_are_entries(tmp_path: Path) -> None:
    """It runs the code of a folder without trust_remote_code, and loads any class that can be imported."""
    kinds = ("sentence_transformers.models.Transformer", "pooling.Mean", "torch.jit", 3)
    layers = [{"idx": i, "name": str(i), "path": "", "type": kind} for i, kind in enumerate(kinds)]
    (tmp_path / "modules.json").write_text(json.dumps([*layers, "text"]))
    (tmp_path / "pooling.py").write_text("class Mean: ...\n")
    (tmp_path / "chat_template.json").write_text('{"chat_template": "{{ x }}"}')
    inspection = inspect(str(tmp_path))
    assert [(entry.name, entry.path) for entry in inspection.entries] == [
        ("layer 1", "pooling.py"),
        ("layer 2", "torch.py"),
    ]
    assert [(file.path, file.runs) for file in inspection.files] == [("pooling.py", True)]
    assert [(f.kind, f.path, f.text) for f in inspection.findings] == [("code", "modules.json", "layer 2: torch.jit")]
    assert inspection.templates == ("chat_template in chat_template.json",)


def test_odd_files_are_findings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "loop.py").symlink_to("loop.py")
    (tmp_path / "around").symlink_to(".")
    (tmp_path / "link.py").symlink_to(ROOT / "hfattn" / "models" / "classifier_output.py")
    (tmp_path / "config.json").write_text("[]")
    (tmp_path / "manifest.json").write_text("[]")
    (tmp_path / "generation_config.json").write_text('{"a":' * 3000)
    (tmp_path / "tokenizer_config.json").write_text('{"a": [' * 400 + "]}" * 400)
    shown = CliRunner().invoke(app, ["inspect", str(tmp_path)])
    assert (shown.exit_code, shown.exception.__class__) == (1, SystemExit)
    inspection = inspect(str(tmp_path))
    assert {(f.kind, f.path, f.line) for f in inspection.findings} == {
        ("unreadable", path, None)
        for path in ("pipe.py", "loop.py", "around", "manifest.json", "generation_config.json")
    }
    assert [(file.path, bool(file.origin)) for file in inspection.files] == [("link.py", True)]


def test_what_cannot_be_inspected_is_one_sentence(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.put("model", NAME, {"config.json": b"{}"})
    hub.create("model", "user/private", private=True)
    (tmp_path / "file.py").touch()
    sentences = {
        (NAME, "nowhere"): f"{NAME} has no revision 'nowhere'; give another one, or none.",
        ("user/nobody", None): "user/nobody was not found locally or on the Hub",
        ("a/b/c", None): "a/b/c was not found locally or on the Hub",
        (str(tmp_path), "main"): "is a folder, which has no revisions; leave out --revision.",
        (str(tmp_path / "file.py"), None): "is a file; give a model folder or the id",
    }
    for (name, revision), sentence in sentences.items():
        with pytest.raises(UserError) as refusal:
            inspect(name, revision)
        assert sentence in str(refusal.value)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(UserError, match="user/private was not found locally or on the Hub"):
        inspect("user/private")
    hub.fault("repo_info", "drop")
    with pytest.raises(UserError, match=r"the Hub cannot be reached \(RemoteProtocolError\)"):
        inspect(NAME)
    refused = CliRunner().invoke(app, ["inspect", "user/nobody"])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


@pytest.mark.parametrize("code", ["class C: ...", "C = int", "from .other import C", "from .other import *"])
def test_the_class_of_an_entry_may_come_from_anywhere(tmp_path: Path, code: str) -> None:
    (tmp_path / "config.json").write_text('{"auto_map": {"AutoConfig": "m.C"}}')
    (tmp_path / "other.py").write_text("class C: ...\n")
    (tmp_path / "m.py").write_text(code)
    assert not inspect(str(tmp_path)).findings
    (tmp_path / "m.py").write_text("def method(C): ...\nx = 1")
    (finding,) = inspect(str(tmp_path)).findings
    assert (finding.kind, finding.text) == ("missing", "AutoConfig: m.C (there is no C in m.py)")


def test_looking_for_a_module_does_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one that lies where Python looks first."""
    (tmp_path / "first" / "lurking").mkdir(parents=True)
    (tmp_path / "first" / "lurking" / "__init__.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "m.py").write_text("import lurking, __main__\n")
    monkeypatch.syspath_prepend(tmp_path / "first")
    (file,) = (file for file in inspect(str(tmp_path)).files if file.path == "m.py")
    assert file.imports == {"third-party": ("lurking",), "missing here": ("__main__",)}
    assert "lurking" not in sys.modules

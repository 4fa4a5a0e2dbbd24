"""The sandbox of `hfattn verify` and `hfattn card`: each route out of it is tried, and forged results are judged."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, run_here
from hostile_code import ACTS, NO_LONGER, PACKETS
from safetensors.torch import load_file, save, save_file
from typer.testing import CliRunner

import hfattn
from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.clean_process import CARD_CODE, GENERATION, LOGITS, MODEL, PIPELINE, ROUND_TRIP, TIES, TOKENIZER
from hfattn.errors import UserError
from hfattn.hub import clean_run, sandbox, store_fingerprints, verify, write_manifest
from hfattn.hub.card import card_place
from hfattn.hub.clean_run import CleanRun, Result, run_folder
from hfattn.hub.fingerprints import read_fingerprints
from hfattn.hub.judging import Recorded, judge_card, judge_model
from hfattn.hub.manifest import published_files
from hfattn.hub.sandbox import NoSandboxError, Outcome
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("sandbox")]

# Each route stands for itself: an error is what the sandbox answers, anything else has got out.
ROUTES = r"""
import ctypes, json, os, resource, subprocess, sys, time

order = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)
outcomes = {}

def libc_call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def tcp():
    import socket
    socket.create_connection(("127.0.0.1", order["tcp"]), 2)

def low_level():
    import _socket
    _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM).connect(("127.0.0.1", order["tcp"]))

def udp():
    import socket
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", order["udp"]))

def c_library():
    address = b"\2\0" + order["udp"].to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    descriptor = libc_call("socket", 2, 2, 0)
    libc_call("sendto", descriptor, b"out", 3, 0, address, 16)

def dns():
    import socket
    socket.getaddrinfo("example.org", 443)

def program():
    code = f"import socket; socket.create_connection(('127.0.0.1', {order['tcp']}), 2)"
    subprocess.run([sys.executable, "-I", "-c", code], check=True, capture_output=True)

def shell():
    command = f"echo out > /dev/tcp/127.0.0.1/{order['tcp']}"
    subprocess.run(["/bin/bash", "-c", command], check=True, capture_output=True)

def unix():
    import socket
    socket.socket(socket.AF_UNIX).connect(order["unix"])

def abstract():
    import socket
    socket.socket(socket.AF_UNIX).connect("\0" + order["abstract"])

def host_of_the_machine():
    import socket
    socket.socket(socket.AF_VSOCK).connect((2, 1))

def io_uring():
    libc_call("syscall", 425, 1, ctypes.create_string_buffer(120))

def token():
    return open(order["token"]).read()

def token_by_process():
    return open(f"/proc/{order['parent']}/root{order['token']}").read()

def environment():
    return os.environ["HF_TOKEN"]

def environment_of_parent():
    return open(f"/proc/{order['parent']}/environ").read()

def environments():
    for process in filter(str.isdigit, os.listdir("/proc")):
        if "HF_TOKEN" in open(f"/proc/{process}/environ").read():
            return process
    raise OSError("none")

def descriptors():
    for number in range(3, 100):
        try:
            os.fstat(number)
        except OSError:
            continue
        return number
    raise OSError("none is open")

def kill():
    os.kill(order["parent"], 0)

def trace():
    libc_call("ptrace", 0x4206, order["parent"], 0, 0)

def limits_of_parent():
    resource.prlimit(order["parent"], resource.RLIMIT_NOFILE)

def write():
    open(order["outside"], "w").write("out")

def write_to_temporary_folder():
    open(order["outside"].replace("outside", "../outside"), "w").write("out")

def write_model():
    open(order["model"], "a").write("out")

def command():
    subprocess.run(["/bin/sh", "-c", f"touch {order['outside']}"], check=True, capture_output=True)

def own_session():
    os.setsid()

def namespace():
    libc_call("unshare", 0x10000000)

def mount():
    libc_call("mount", b"tmpfs", b"/usr", b"tmpfs", 0, None)

def large_file():
    with open(os.path.expanduser("~/large"), "wb") as file:
        file.seek(order["file_size"] + 1)
        file.write(b"x")

def memory():
    return len(bytearray(order["memory"]))

def processes():
    started = []
    try:
        while len(started) < 3000:
            process = os.fork()
            if process == 0:
                time.sleep(600)
                os._exit(0)
            started.append(process)
    finally:
        for process in started:
            os.kill(process, 9)
    return len(started)

for route in (tcp, low_level, udp, c_library, dns, program, shell, unix, abstract, host_of_the_machine, io_uring, token,
              token_by_process, environment, environment_of_parent, environments, descriptors, kill, trace,
              limits_of_parent, write, write_to_temporary_folder, write_model, command, own_session, namespace, mount,
              large_file, memory, processes):
    try:
        outcomes[route.__name__] = ["out", repr(route())]
    except (Exception, KeyError) as error:
        outcomes[route.__name__] = ["refused", repr(error)]

with open(os.path.expanduser("~/own"), "w") as file:
    outcomes["own file"] = file.write("in")
outcomes["variables"] = sorted(os.environ)
print(json.dumps(outcomes), flush=True)
"""


class Listeners:
    """A server of each kind on this machine, which must not hear of anybody."""

    def __init__(self, folder: Path) -> None:
        self.tcp, self.udp = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.unix, self.abstract = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        self.name = f"hfattn-test-{os.getpid()}"
        for server in (self.tcp, self.udp):
            server.bind(("127.0.0.1", 0))
        self.unix.bind(str(folder / "socket"))
        self.abstract.bind("\0" + self.name)
        for server in (self.tcp, self.unix, self.abstract):
            server.listen()
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.setblocking(False)

    def heard(self) -> list[str]:
        heard = []
        for name in ("tcp", "udp", "unix", "abstract"):
            server = getattr(self, name)
            try:
                server.recv(99) if name == "udp" else server.accept()
            except BlockingIOError:
                continue
            heard.append(name)
        return heard

    def close(self) -> None:
        for server in (self.tcp, self.udp, self.unix, self.abstract):
            server.close()


@pytest.fixture
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    listeners = Listeners(tmp_path_factory.mktemp("s"))
    yield listeners
    listeners.close()


@pytest.fixture
def outside(tmp_path: Path, listeners: Listeners, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the routes look for: the folder of a user with a token, the process of the command, and the listeners."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("hf_secret")
    (tmp_path / "home" / "token").chmod(0o644)
    return {
        "tcp": listeners.tcp.getsockname()[1],
        "udp": listeners.udp.getsockname()[1],
        "unix": listeners.unix.getsockname(),
        "abstract": listeners.name,
        "token": str(tmp_path / "home" / "token"),
        "parent": os.getpid(),
        "outside": str(tmp_path / "home" / "outside"),
        "model": str(tmp_path / "model" / "config.json"),
        "file_size": sandbox.FILES,
        "memory": 2**28,
    }


def run(code: str, tmp_path: Path, order: object = None, timeout: float = 60, *, trusted: bool = True) -> Outcome:
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "script.py").write_text(textwrap.dedent(code))
    return sandbox.run(
        folder / "script.py", folder, json.dumps(order).encode(), memory=2**28, timeout=timeout, trusted=trusted
    )


def needs_namespaces(tmp_path: Path) -> None:
    if run("", tmp_path).sandbox.startswith(sandbox.PYTHON_ONLY):
        pytest.skip("the kernel of this machine allows no namespaces")


ALLOWED = {"CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE", "HOME", "PATH", "TMPDIR", "TOKENIZERS_PARALLELISM",
           "USER", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "MKL_NUM_THREADS", "OMP_NUM_THREADS",
           "PWD", "TZ"}  # fmt: skip


def check_routes(outcomes: dict[str, Any], *, without: tuple[str, ...] = ()) -> None:
    assert outcomes.pop("own file") == 2
    assert set(outcomes.pop("variables")) <= ALLOWED
    assert {name: answer for name, (answer, _) in outcomes.items() if answer == "out"}.keys() == set(without), outcomes
    assert "hf_secret" not in json.dumps(outcomes)


def test_no_route_leads_out_of_the_sandbox(tmp_path: Path, outside: dict[str, Any], listeners: Listeners) -> None:
    needs_namespaces(tmp_path)
    done = run(ROUTES, tmp_path, outside)
    assert done.failure is None, done
    check_routes(json.loads(done.output))
    assert listeners.heard() == []
    assert not list(tmp_path.rglob("outside*"))
    assert (tmp_path / "model" / "config.json").read_text() == "{}"


WITHOUT_NAMESPACES = """
import importlib.util, json, sys
from pathlib import Path

spec = importlib.util.spec_from_file_location("sandbox", sys.argv[1])
sandbox = sys.modules["sandbox"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sandbox)
folder = Path(sys.argv[2])
settings = {"memory": 2**28, "timeout": 60}
try:
    sandbox.run(folder / "script.py", folder, b"", trusted=False, **settings)
except sandbox.NoSandboxError as error:
    print(error)
done = sandbox.run(folder / "script.py", folder, sys.stdin.buffer.read(), trusted=True, **settings)
print(done.sandbox)
print(done.failure or done.output.decode())
"""


def test_without_namespaces_only_trusted_code_runs_and_the_other_layers_remain(
    tmp_path: Path, outside: dict[str, Any], listeners: Listeners
) -> None:
    """As in a container whose kernel refuses namespaces; as root, the number of processes is then not limited."""
    needs_namespaces(tmp_path)
    run(ROUTES.replace("memory, processes)", "memory)"), tmp_path, outside)
    command = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$@"'
    arguments = [sys.executable, "-c", WITHOUT_NAMESPACES, str(sandbox.__file__), str(tmp_path / "model")]
    done = subprocess.run(
        ["unshare", "-Ur", "sh", "-c", command, "sh", *arguments],
        input=json.dumps(outside),
        capture_output=True,
        text=True,
        check=True,
    )
    refused, kind, output = done.stdout.split("\n", 2)
    assert refused == "the kernel of this computer has no sandbox"
    assert kind.startswith("by Python only")
    if kind == "by Python only, Landlock, seccomp":
        check_routes(json.loads(output), without=("limits_of_parent",))
        assert listeners.heard() == []
        assert not list(tmp_path.rglob("outside*"))


def test_what_does_not_end_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    mark = f"mark-{os.getpid()}"
    code = f"""
    import subprocess, sys, time
    for options in ({{}}, {{"process_group": 0}} if sys.version_info >= (3, 11) else {{}}):
        try:
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "{mark}"], **options)
        except OSError:
            pass
    print("started", flush=True)
    time.sleep(600)
    """
    start = time.monotonic()
    done = run(code, tmp_path, timeout=1.5)
    assert time.monotonic() - start < 6
    assert (done.output, done.failure) == (b"started\n", "it did not end within 2 s")
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [command for command in commands if mark.encode() in command]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_ends(tmp_path: Path, stream: str) -> None:
    done = run(f"import sys\nwhile True: print('x' * 10**6, file=sys.{stream})", tmp_path)
    assert done.failure == "its output exceeds the limit"
    assert len(done.output) < sandbox.OUTPUT + 2**17


# The parent judges


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_character_tokenizer(["one two three"], unknown=True)
    torch.manual_seed(0)
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=8))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    store_fingerprints(folder, model, tokenizer, ["one", "two"])
    (folder / "README.md").write_text(CARD)
    write_manifest(folder)
    return folder


CARD = """---
pipeline_tag: text-generation
---
```python
from transformers import AutoTokenizer

model_id = "."
print(AutoTokenizer.from_pretrained(model_id)("one")["input_ids"])
```

It prints:

````text
IDS
````
"""


@pytest.fixture(scope="module")
def honest(model_folder: Path) -> tuple[CleanRun, Recorded]:
    """What the model's own code sends, and what was recorded of the model."""
    texts, tensors = read_fingerprints(model_folder)
    code = CARD.split("```python\n")[1].split("```")[0]
    order = {
        "hides_hfattn": True,
        "loads": True,
        "batches": texts,
        "pipeline": "text-generation",
        "card_code": code,
    }
    done = run_folder(model_folder, sorted(path.name for path in model_folder.iterdir()), order, known=True, trust=True)
    return done, Recorded(texts, tensors, "text-generation", done.results[CARD_CODE].facts["printed"])


def judged(done: CleanRun, recorded: Recorded) -> dict[str, Any]:
    return {check.name: check for check in [*judge_model(done, recorded), judge_card(done, recorded)]}


def failed(done: CleanRun, recorded: Recorded) -> set[str]:
    return {name for name, check in judged(done, recorded).items() if check.passed is False}


def test_honest_results_pass_and_the_fingerprints_have_more_than_the_texts(honest: tuple[CleanRun, Recorded]) -> None:
    done, recorded = honest
    checks = judged(done, recorded)
    assert not failed(done, recorded)
    assert len(checks) == 9
    assert set(recorded.texts) == {"", "longest", "empty", "unknown"}
    assert recorded.tensors["longest.inputs.input_ids"].shape == (1, 256)
    assert {"logits", "longest.logits", "unknown.logits"} <= recorded.tensors.keys()
    assert all(check.where == f"sandbox: {done.sandbox}" for check in checks.values())
    other = CleanRun(done.sandbox, False, done.results, None)
    assert all("computed by the repository's own code" in check.where for check in judged(other, recorded).values())


def test_every_check_is_required_by_its_name(honest: tuple[CleanRun, Recorded]) -> None:
    done, recorded = honest
    for name in judged(done, recorded):
        fewer = {other: result for other, result in done.results.items() if other != name}
        assert failed(CleanRun(done.sandbox, True, fewer, None), recorded) == {name}
    assert failed(CleanRun(done.sandbox, True, {}, "it stopped"), recorded) == set(judged(done, recorded))


OTHER = [{"ids": [1], "again": [2]}]
FORGED: dict[str, tuple[str, Callable[[Result], Result]]] = {
    "a verdict": (LOGITS, lambda result: Result({"passed": True, "detail": "all right"}, {})),
    "other logits": (LOGITS, lambda result: with_tensors(result, lambda x: x + 0.01)),
    "logits that are no numbers": (LOGITS, lambda result: with_tensors(result, lambda x: x * torch.nan)),
    "too few logits": (LOGITS, lambda result: with_tensors(result, lambda x: x[:-1])),
    "only the first logits": (LOGITS, lambda result: Result({}, {"logits": result.tensors["logits"]})),
    "logits as whole numbers": (LOGITS, lambda result: with_tensors(result, torch.Tensor.long)),
    "other tokens": (GENERATION, lambda result: with_tensors(result, lambda x: x * 0)),
    "no samples": (GENERATION, lambda result: Result(result.facts, dict(list(result.tensors.items())[:2]))),
    "that it does not generate": (GENERATION, lambda result: Result({"generates": False}, {})),
    "other ids": (ROUND_TRIP, lambda result: with_tensors(result, lambda x: x + 1)),
    "no ids": (ROUND_TRIP, lambda result: Result(result.facts, {})),
    "no decoded texts": (ROUND_TRIP, lambda result: Result({"decoded": []}, result.tensors)),
    "other decoded texts": (ROUND_TRIP, lambda result: Result({"decoded": OTHER * 2}, result.tensors)),
    "decoded texts of another type": (ROUND_TRIP, lambda result: Result({"decoded": [1, 2]}, result.tensors)),
    "missing weights": (MODEL, lambda result: Result({**result.facts, "missing_keys": ["a"]}, {})),
    "weights that it does not list": (MODEL, lambda result: Result({"class": "A", "auto_class": "B"}, {})),
    "untied weights": (TIES, lambda result: Result({"tied": {"a": "b"}, "shared": {"a": "yes"}}, {})),
    "a tokenizer of text": (TOKENIZER, lambda result: Result({"class": "A", "tokens": "many"}, {})),
    "an empty answer": (PIPELINE, lambda result: Result({"answer": ""}, {})),
    "another print": (CARD_CODE, lambda result: Result({"printed": "[]"}, {})),
    "a print that is no text": (CARD_CODE, lambda result: Result({"printed": ["1"]}, {})),
    "an error": (CARD_CODE, lambda result: Result({"error": "\x1b[31mSyntaxError"}, {})),
}  # fmt: skip


def with_tensors(result: Result, change: Callable[[torch.Tensor], torch.Tensor]) -> Result:
    return Result(result.facts, {name: change(tensor) for name, tensor in result.tensors.items()})


@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_result_fails(honest: tuple[CleanRun, Recorded], kind: str) -> None:
    done, recorded = honest
    name, forge = FORGED[kind]
    forged = CleanRun(done.sandbox, True, {**done.results, name: forge(done.results[name])}, None)
    assert failed(forged, recorded) == {name}
    assert "\x1b" not in judged(forged, recorded)[name].detail


def message(name: str, facts: object) -> bytes:
    data = save({}, {"name": name, "facts": json.dumps(facts)})
    return len(data).to_bytes(8, "little") + data


@pytest.mark.parametrize(
    "sent",
    [
        b"[]\n",
        b'[{"name": "logits match", "passed": true, "detail": ""}]\n',
        b"\xff" * 100,
        message(LOGITS, {"passed": True}) * 2,
        message(LOGITS, [1]),
        message(LOGITS, {"passed": True})[:-1],
        (20).to_bytes(8, "little") + (12).to_bytes(8, "little") + b'{"a": "[[["}',
    ],
    ids=["text", "verdict", "bytes", "twice", "list", "cut", "no metadata"],
)
def test_what_is_no_result_is_none(sent: bytes) -> None:
    results, problem = clean_run._decode(sent)
    assert results == {}
    assert problem is not None


# Folders of strangers


def appended(folder: Path, to: Path, code: str) -> Path:
    """A copy of a model folder whose configuration file runs further code, with a manifest of its own."""
    shutil.copytree(folder, to)
    path = to / "configuration_char_rnn.py"
    path.write_text(path.read_text() + code)
    write_manifest(to)
    return to


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``make quickstart``, after a few steps."""
    folder = tmp_path_factory.mktemp("quickstart") / "dates"
    recipe = ROOT / "recipes" / "translation"
    few = [
        "--data.examples",
        200,
        "--data.evaluation_examples",
        10,
        "--sample.translations",
        1,
        "--sample.alignments",
        1,
    ]
    few += ["--training.max_steps", 2, "--training.eval_steps", 2, "--training.save_steps", 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_CPU", "true")
        run_here(recipe, patch, "--config", recipe / "dates.yaml", "--output_dir", folder, *few)
    return folder


# While it imports a file, transformers does not load another model.
FIRST_CONFIG = """
made = BahdanauConfig.__init__

def act_first(self, *arguments, **fields):
    BahdanauConfig.__init__ = made
    act_once()
    made(self, *arguments, **fields)

BahdanauConfig.__init__ = act_first

def act_once():
"""


def with_acts(quickstart: Path, to: Path, marks: Path, listeners: Listeners) -> list[tuple[str, int]]:
    """Copy the folder with a file for each act of ``hostile_code`` and a manifest of its own.

    Returns:
        The file of each act, and its line to be named.
    """
    shutil.copytree(quickstart, to, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    marks.mkdir()
    marks.chmod(0o777)
    lines, calls = [], []
    for number, (name, code) in enumerate(ACTS.items()):
        mark = str(marks / name.replace(" ", "_"))
        port = str(getattr(listeners, PACKETS.get(name, "tcp")).getsockname()[1])
        decoded = base64.b64encode(f"open('{mark}', 'w')".encode()).decode()
        code = code.replace("BASE64", decoded).replace("MARK", mark).replace("PORT", port)
        (to / f"act_{number}.py").write_text(code if "def act" in code else f"{code}def act(): ...\n")
        lines += [(f"act_{number}.py", at) for at, line in enumerate(code.splitlines(), 1) if line.endswith("# here")]
        calls += ["try:", f"    from .act_{number} import act", "    act()", "except Exception:", "    pass"]
    assert len(lines) == len(ACTS)
    path = to / "configuration_bahdanau.py"
    path.write_text(path.read_text() + FIRST_CONFIG + textwrap.indent("\n".join(calls), "    "))
    write_manifest(to)
    return lines


def test_hostile_code_in_the_quickstart_is_named_and_changes_nothing_under_verify_and_card(
    quickstart: Path, tmp_path: Path, listeners: Listeners
) -> None:
    needs_namespaces(tmp_path)
    folder, marks = tmp_path / "hostile", tmp_path / "marks"
    lines = with_acts(quickstart, folder, marks, listeners)
    inspected = CliRunner().invoke(app, ["inspect", str(folder), "--json"])
    assert inspected.exit_code == 1
    found = [each for each in json.loads(inspected.stdout)["findings"] if each["kind"] != "import time"]
    assert set(lines) <= {(each["path"], each["line"]) for each in found}
    done = CliRunner().invoke(app, ["card", str(folder)])
    assert done.exit_code == 0, done.output
    assert "; computed by the repository's own code]" in done.output
    report = verify(folder)
    # Its results are right; each line says whose code computed them.
    failures = [check.name for check in report.checks if check.passed is False]
    assert failures == ["no file contains a token or a local path"]
    ran = [check for check in report.checks if check.where]
    assert len(ran) == 9
    assert not [check.where for check in ran if sandbox.PYTHON_ONLY in str(check.where)]
    assert str(report).count("; computed by the repository's own code]") == len(ran)
    assert list(marks.iterdir()) == []
    assert listeners.heard() == []


@pytest.mark.examples
def test_the_same_code_acts_where_there_is_no_sandbox(quickstart: Path, tmp_path: Path, listeners: Listeners) -> None:
    """Otherwise the test above would show nothing."""
    folder, marks = tmp_path / "hostile", tmp_path / "marks"
    with_acts(quickstart, folder, marks, listeners)
    load = "AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)"
    command = [sys.executable, "-c", f"import sys; from transformers import AutoConfig; {load}", str(folder)]
    environment = os.environ | {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1"}
    listeners.tcp.settimeout(60)
    with subprocess.Popen(command, env=environment, cwd=tmp_path) as process:
        try:
            connection, _ = listeners.tcp.accept()
            connection.close()
            listeners.tcp.close()  # torch would try again
            assert process.wait(60) == 0
        finally:
            process.kill()
    left = {path.name.replace("_", " ") for path in marks.iterdir()}
    assert ACTS.keys() - left == {*PACKETS, *NO_LONGER}
    assert listeners.udp.recv(99) == b"out"


def test_a_folder_of_zeros_whose_code_prints_an_empty_list_and_leaves_fails(model_folder: Path, tmp_path: Path) -> None:
    folder = appended(model_folder, tmp_path / "zeros", "\nimport os\nprint('[]', flush=True)\nos._exit(0)\n")
    weights = load_file(folder / "model.safetensors")
    save_file({name: 0 * value for name, value in weights.items()}, folder / "model.safetensors", {"format": "pt"})
    write_manifest(folder)
    report = verify(folder, trust=True)
    failures = {check.name for check in report.checks if check.passed is False}
    assert failures >= {
        "the configuration loads",
        TOKENIZER,
        MODEL,
        LOGITS,
        TIES,
        GENERATION,
        ROUND_TRIP,
        PIPELINE,
        CARD_CODE,
    }
    assert "logits match: the process sent no result" in report.failures()


@pytest.mark.examples
def test_checks_are_told_as_they_end_and_failures_say_what_to_do(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = "\x1b[2J\x9b\u202e.txt"
    folder = appended(model_folder, tmp_path / "model", "\nraise ValueError('broken')\n")
    (folder / odd).write_text("not published")
    (folder / "tokenizer_config.json").write_text("{}\n")
    told: list[str] = []

    def recorded(function: Callable[..., Any], name: str) -> Callable[..., Any]:
        def run(*words: Any, **options: Any) -> Any:
            told.append(name)
            return function(*words, **options)

        return run

    module = sys.modules[verify.__module__]  # the package has a function of this name
    monkeypatch.setattr(module, "run_folder", recorded(run_folder, "the sandbox"))
    monkeypatch.setattr(shutil, "copyfileobj", recorded(shutil.copyfileobj, "a copy"))
    report = verify(folder, tell=lambda check: told.append(check.name))
    names = [check.name for check in report.checks]
    assert [name for name in told if name != "a copy"] == [*names[:7], "the sandbox", *names[7:]]
    assert told.count("a copy") == len(published_files(folder))  # each file is copied once
    assert (folder / "model.safetensors").stat().st_mode & 0o200
    failures = {check.name: check.detail for check in report.checks if check.passed is False}
    assert failures.keys() >= {"files are unchanged since the card was written", MODEL, CARD_CODE}
    for name, detail in failures.items():
        assert ";" in detail, (name, detail)
        assert "UserError" not in detail
    assert "Not published: \\x1b[2J\\x9b\\u202e.txt" in str(report)
    as_json = CliRunner().invoke(app, ["verify", str(folder), "--json"]).stdout
    assert as_json.isascii()
    assert odd in json.loads(as_json)["unpublished"]


def test_a_baseline_can_import_the_package(model_folder: Path) -> None:
    code = "from importlib.util import find_spec; print(find_spec('hfattn').origin)"
    order = {"hides_hfattn": False, "loads": False, "batches": {}, "pipeline": None, "card_code": code}
    done = run_folder(model_folder, ["config.json"], order, known=True, trust=True)
    assert done.results[CARD_CODE].facts == {"printed": f"{hfattn.__file__}\n"}


@pytest.mark.examples  # slow
def test_the_code_of_a_card_loads_the_repository_by_its_id(model_folder: Path) -> None:
    code = (
        "import os\n"
        "from transformers import AutoModelForCausalLM\n"
        "model = AutoModelForCausalLM.from_pretrained('user/tiny', revision='v1', trust_remote_code=True)\n"
        "print(type(model).__name__, os.path.exists('config.json'))\n"
    )
    order = {"hides_hfattn": True, "loads": False, "batches": {}, "pipeline": None, "card_code": code}
    names = published_files(model_folder)
    for place, printed in (
        (["user/tiny", "v1"], "CharRNNForCausalLM False\n"),
        (["user/tiny", "v2"], None),
        (None, None),
    ):
        done = run_folder(model_folder, names, {**order, "card_place": place}, known=True, trust=True)
        assert done.results[CARD_CODE].facts.get("printed") == printed
    assert card_place('```python\nmodel_id = "user/tiny"\nA.from_pretrained(model_id)\n```') == ("user/tiny", "main")
    tagged = '```python\nmodel_id = "user/tiny"\nA.from_pretrained(model_id, revision="v1")\n```'
    assert card_place(tagged) == ("user/tiny", "v1")
    for text in ("", '```python\nmodel_id = "."\n```', '```python\nmodel_id = "a/b"; import os  # "\n```'):
        assert card_place(text) is None


def test_what_was_recorded_is_not_in_the_copy(model_folder: Path) -> None:
    code = "import os; print(sorted(os.listdir('.')))"
    order = {"hides_hfattn": True, "loads": False, "batches": {}, "pipeline": None, "card_code": code}
    names = [*(path.name for path in model_folder.iterdir())]
    printed = run_folder(model_folder, names, order, known=True, trust=False).results[CARD_CODE].facts["printed"]
    recorded = {"README.md", "fingerprints.safetensors", "manifest.json"}
    assert recorded < set(names)
    assert printed == f"{sorted(set(names) - recorded)}\n"


def test_by_python_only_unknown_code_needs_to_be_trusted(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_kinds", lambda: iter([sandbox.PYTHON_ONLY]))
    folder = appended(model_folder, tmp_path / "own", "\n# A line of mine.\n")
    done = CliRunner().invoke(app, ["verify", str(folder)])
    assert done.exit_code == 2
    assert "the kernel of this computer has no sandbox; read it with hfattn inspect" in done.stderr
    assert "then add --trust" in done.stderr
    order = {"hides_hfattn": True, "loads": False, "batches": {}, "pipeline": None, "card_code": "print(1)"}
    for each, known, trust in ((folder, True, True), (model_folder, True, False)):
        names = [path.name for path in each.iterdir()]
        ran = run_folder(each, names, order, known=known, trust=trust)
        assert ran.results[CARD_CODE].facts == {"printed": "1\n"}
        assert ran.where().startswith("sandbox: by Python only")
        assert ran.known == (each == model_folder)
    with pytest.raises(UserError, match="was not run"):  # a card whose code is not that of a template
        run_folder(model_folder, names, order, known=False, trust=False)
    with pytest.raises(NoSandboxError):
        run("", tmp_path, trusted=False)

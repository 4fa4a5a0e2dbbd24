"""Run a Python file in a sandbox of the kernel: without a network, other processes, and files that it does not need.

The kinds of sandbox, in the order in which they are tried:

- ``bubblewrap``, where it is installed (for root the second, because its limit of processes does not hold for root);
- ``namespaces``: the same with system calls of Linux 5.12 and newer, see ``sandbox_entry.py``;
- ``sandbox-exec`` on macOS. Its profile was written from Apple's documentation and has not been run;
- ``by Python only``: the limits of resources, and Landlock and seccomp where the kernel has them. The process can find
  out about others, and the file system can be listed. It is for code that you trust.

In each of them the environment consists of variables on a list, the only open descriptors are an empty standard input
or the given one and two pipes, and the home folder is empty.
"""

import json
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

PYTHON_ONLY = "by Python only"
OUTPUT = 2**26  # bytes that the process may send
MESSAGES = 2**20  # bytes that it may write to standard error
FILES = 2**29  # bytes that it may write to its home folder

_ENTRY = Path(__file__).with_name("sandbox_entry.py")
_PACKAGE = Path(__file__).parent.parent
# What programs need besides Python; cpuinfo and the folder in /sys tell torch how many threads to start.
_SYSTEM = (
    *("/usr", "/bin", "/lib", "/lib64", "/nix/store", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime"),
    *("/etc/ssl/openssl.cnf", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system"),
)
_MACOS = ("/System", "/Library/Frameworks", "/private/var/db/dyld", "/dev")
_VARIABLES = ("LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LD_LIBRARY_PATH", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "TZ")
_PROFILE = """(version 1)
(deny default)
(allow process-fork sysctl-read file-read-metadata)
(allow signal (target same-sandbox))
(allow process-exec file-read* {read})
(allow file-read* file-write* (subpath {home}))
(allow file-write-data (literal "/dev/null"))
"""


class NoSandboxError(RuntimeError):
    """The kernel has no sandbox, and the code is not trusted; nothing was run."""


@dataclass(frozen=True)
class Outcome:
    """What a process in a sandbox left.

    Attributes:
        sandbox: the kind of sandbox, and the layers of the kernel inside it.
        output: what it wrote to standard output.
        failure: why it did not end by itself with exit code 0; None if it did.
    """

    sandbox: str
    output: bytes
    failure: str | None


def run(script: Path, folder: Path, order: bytes, *, memory: int, timeout: float, trusted: bool) -> Outcome:
    """Run ``python -I SCRIPT FOLDER`` in the first kind of sandbox that can be made, and kill all that it has started.

    Args:
        script: the Python file. It can import what is installed beside this Python.
        folder: absolute path of a folder that the process may read; its files must be readable for everybody.
        order: standard input of the process.
        memory: bytes of data that each process may have, as the soft and hard limit ``RLIMIT_DATA``.
        timeout: seconds after which all processes are killed.
        trusted: whether to run the file if the kernel has no sandbox.

    Raises:
        NoSandboxError: the kernel has no sandbox, and the file is not trusted.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        scratch = Path(made).resolve()
        for name in ("home", "root"):
            (scratch / name).mkdir()
        for kind in _kinds():
            if kind == PYTHON_ONLY and not trusted:
                break
            plan = {
                "kind": kind,
                "read": _outermost([*_needed_paths(), str(folder)]),
                "listed": str(_PACKAGE.parent),  # to import the package, Python lists the folder that contains it
                "home": str(scratch / "home"),
                "root": str(scratch / "root"),
                "memory": memory,
                "file_size": FILES,
                # Threads count. Without a namespace of their own, those of the user's other programs count too.
                "processes": (512 if kind == "namespaces" else 4096) + 8 * (os.cpu_count() or 1),
                "seconds": int(timeout) + 1,
                "command": [sys.executable, "-I", str(script), str(folder)],
            }
            outcome = _attempt(plan, order, timeout)
            if outcome is not None:
                return outcome
    raise NoSandboxError("the kernel of this computer has no sandbox")


def _kinds() -> Iterator[str]:
    if sys.platform == "linux":
        found = ["bubblewrap"] if shutil.which("bwrap") else []
        yield from [*found, "namespaces"] if os.geteuid() else ["namespaces", *found]
    elif sys.platform == "darwin":
        yield "sandbox-exec"
    yield PYTHON_ONLY


def _needed_paths() -> list[str]:
    """Return the paths of Python, its packages and the libraries of the system."""
    paths = [*_SYSTEM, *(_MACOS if sys.platform == "darwin" else ()), str(_PACKAGE)]
    paths += filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep))
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix):
        paths += [prefix, os.path.realpath(prefix)]
    link = sys.executable
    while os.path.islink(link):  # an environment's Python can be a link to a link elsewhere
        link = os.path.join(os.path.dirname(link), os.readlink(link))
        paths.append(os.path.normpath(link))
    for packages in site.getsitepackages():
        for file in Path(packages).glob("*.pth"):
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            # A checkout of this project can hold anything besides the package.
            paths += [line for line in lines if os.path.isabs(line) and Path(line) not in _PACKAGE.parents]
    return paths


def _outermost(paths: Iterable[str]) -> list[str]:
    """Return the paths that exist and are not below another of them."""
    found = {os.path.abspath(path) for path in paths if os.path.exists(path)} - {"/"}
    return sorted(path for path in found if not any(path.startswith(f"{other}/") for other in found))


def _command(plan: dict[str, object]) -> list[str]:
    entry = [sys.executable, "-I", "-S", str(_ENTRY), json.dumps(plan)]
    read, home = plan["read"], str(plan["home"])
    assert isinstance(read, list)
    if plan["kind"] == "bubblewrap":
        size = ["--size", str(FILES), "--tmpfs"]
        return [
            *(
                shutil.which("bwrap") or "bwrap",
                "--unshare-all",
                "--die-with-parent",
                "--new-session",
                "--cap-drop",
                "ALL",
            ),
            *(word for path in read for word in ("--ro-bind-try", path, path)),
            *("--proc", "/proc", "--dev", "/dev", *size, "/dev/shm", *size, home),
            *("--remount-ro", "/", "--remount-ro", "/dev", "--", *entry),
        ]
    if plan["kind"] == "sandbox-exec":
        paths = " ".join(f"(subpath {json.dumps(path)})" for path in read)
        return ["/usr/bin/sandbox-exec", "-p", _PROFILE.format(read=paths, home=json.dumps(home)), *entry]
    return entry


def _attempt(plan: dict[str, object], order: bytes, timeout: float) -> Outcome | None:
    """Run the command of a plan; return None if this kind of sandbox cannot be made here."""
    kind, home = str(plan["kind"]), str(plan["home"])
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(order)
        standard_input.seek(0)
        process = subprocess.Popen(
            _command(plan),
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(home),
            cwd=home,
            start_new_session=True,
        )
    assert process.stdout is not None
    assert process.stderr is not None
    output, messages = _Reader(process, process.stdout, OUTPUT), _Reader(process, process.stderr, MESSAGES)
    failure = None
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        failure = f"it did not end within {timeout:.0f} s"
    finally:
        _kill(process)
    output.join(1)  # a process of another session, possible by Python only, can hold the pipe open
    messages.join(1)
    first, _, rest = bytes(output.received).partition(b"\n")
    sandbox = first.decode(errors="replace")
    if not sandbox.startswith(kind):
        return None
    if output.exceeded or messages.exceeded:
        failure = "its output exceeds the limit"
    elif failure is None and code:
        failure = described_exit(code, bytes(messages.received).decode(errors="replace"))
    return Outcome(sandbox, rest, failure)


def described_exit(code: int, messages: str) -> str:
    """Return what happened to a process that failed, with the last line of its messages."""
    last = messages.strip().splitlines()[-1:] or ["it printed nothing"]
    return f"it ended with exit code {code}: {last[0]}"


def environment(home: str) -> dict[str, str]:
    """Return the variables of the environment of a process whose folder for everything is ``home``."""
    return {
        **{name: os.environ[name] for name in _VARIABLES if name in os.environ},
        **dict.fromkeys(("HOME", "TMPDIR", "HF_HOME"), home),
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "TOKENIZERS_PARALLELISM": "false",
        "USER": "nobody",
    }


class _Reader(threading.Thread):
    """Read a pipe of a process until its end; if there is too much, kill the process."""

    def __init__(self, process: subprocess.Popen[bytes], pipe: IO[bytes], limit: int) -> None:
        super().__init__(daemon=True)
        self.process, self.pipe, self.limit = process, pipe, limit
        self.received = bytearray()
        self.exceeded = False
        self.start()

    def run(self) -> None:
        while chunk := os.read(self.pipe.fileno(), 2**16):
            self.received += chunk
            if len(self.received) > self.limit:
                self.exceeded = True
                _kill(self.process)
                break


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its group; with the first process of a namespace, all others in it end."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

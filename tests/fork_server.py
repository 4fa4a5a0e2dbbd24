"""New processes that have imported the libraries already.

Importing torch, transformers and what else a recipe needs takes five seconds; most commands of the tests are done in
less than one. Run as a program, this file imports the libraries (nothing of this project) and forks a process for each
command that it is asked for. That process runs the command as ``python`` would, with the words, folder, environment,
output, exit code and signals of its own. Imported, this file holds the side that asks.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import traceback
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

LIBRARIES = ("torch", "accelerate", "datasets", "evaluate", "huggingface_hub", "jinja2", "matplotlib.figure", "peft",
             "sacrebleu", "safetensors.torch", "scipy.stats", "sklearn.metrics", "transformers", "typer")  # fmt: skip
OF_TRANSFORMERS = ("AutoModelForCausalLM", "AutoTokenizer", "Seq2SeqTrainer", "pipeline")  # each brings many others


# The program


def serve() -> dict[str, Any]:
    """Answer requests, a line each, until there are no more; in a process that was forked, return its command."""
    for line in sys.stdin:
        request = json.loads(line)
        if "command" in request:
            process = os.fork()
            if process == 0:
                return request
            answer: int | None = process
        else:
            done, status = os.waitpid(request["process"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if done else None
        print(json.dumps(answer), flush=True)
    sys.exit()


def become(command: list[str], folder: str, environment: dict[str, str], files: list[str]) -> None:
    """Run a command whose first word is this Python or a script in Python.

    Args:
        command: its words; after this Python there can be ``-I``, with which no folder is added to ``sys.path``.
        folder: that it runs in.
        environment: all of its variables.
        files: standard input, output and error.
    """
    for number, (path, mode) in enumerate(zip(files, (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY), strict=True)):
        os.dup2(os.open(path, mode), number)
    sys.stdin = open(0)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if "HF_MODULES_CACHE" in environment:  # which transformers has read already
        sys.modules["transformers.dynamic_module_utils"].__dict__["HF_MODULES_CACHE"] = environment["HF_MODULES_CACHE"]
    script, *words = command[1:] if os.path.samefile(command[0], sys.executable) else command
    isolated = script == "-I"
    if isolated:
        script, *words = words
    else:
        sys.path[:0] = ["", *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    if script == "-c":
        code, *words = words
        sys.argv = ["-c", *words]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(code, "<string>", "exec"), main.__dict__)
    elif script == "-m":
        module, *words = words
        sys.argv = ["-m", *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = [script, *words]
        if not isolated:
            sys.path[0] = os.path.dirname(os.path.realpath(script))
        runpy.run_path(script, run_name="__main__")


# The side that asks

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}  # in which the libraries are imported


def can_fork(environment: dict[str, str]) -> bool:
    """Whether the variables that libraries read when they are imported are those that they were imported with."""

    def read(variables: dict[str, str]) -> dict[str, str]:
        names = [name for name in variables if name.startswith("HF_") or name == "OMP_NUM_THREADS"]
        return {name: variables[name] for name in names if name != "HF_MODULES_CACHE"}

    return read(environment) == read(ENVIRONMENT)


@cache
def server() -> subprocess.Popen[str]:
    """The program above, which ends with this process."""
    program = subprocess.Popen(
        [sys.executable, __file__],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(program.communicate)
    return program


def ask(**request: Any) -> int | None:
    program = server()
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(json.dumps(request) + "\n")
    program.stdin.flush()
    return json.loads(program.stdout.readline())


class Forked:
    """A command that has been started.

    Args:
        command: its words; the first is a Python or the path of a script in Python.
        folder: that it runs in.
        environment: all of its variables, for which ``can_fork`` holds.
        given: standard input.
    """

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str], given: bytes = b"") -> None:
        self.command = command
        self.returncode: int | None = None
        self._files = [tempfile.NamedTemporaryFile() for _ in range(3)]  # noqa: SIM115
        self._files[0].write(given)
        self._files[0].flush()
        names = [file.name for file in self._files]
        process = ask(command=command, folder=str(folder), environment=environment, files=names)
        assert process is not None
        self.pid = process

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = ask(process=self.pid)
        return self.returncode

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def output(self) -> bytes:
        """What it has written to standard output."""
        return Path(self._files[1].name).read_bytes()

    def result(self) -> subprocess.CompletedProcess[str]:
        """The result of a process that has ended."""
        assert self.returncode is not None
        output, error = (Path(file.name).read_text(errors="replace") for file in self._files[1:])
        return subprocess.CompletedProcess(self.command, self.returncode, output, error)


if __name__ == "__main__":
    del sys.path[0]  # the tests' folder
    for library in LIBRARIES:
        __import__(library)
    for name in OF_TRANSFORMERS:
        getattr(sys.modules["transformers"], name)
    gc.freeze()  # what a forked process does not collect, it need not copy either
    request = serve()
    status: Any = 0
    try:
        become(**request)
    except SystemExit as end:
        status = end.code or 0
    except BaseException:
        traceback.print_exc()
        status = 1
    # As Python ends, except that it does not take every library apart, which takes seconds.
    if not isinstance(status, int):
        print(status, file=sys.stderr)
        status = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

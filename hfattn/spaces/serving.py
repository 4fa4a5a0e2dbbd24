"""Run a built Space locally, or push it to the Hub."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import yaml
from huggingface_hub import SpaceCard

from ..errors import UserError
from ..hub.push import PushOptions, PushPlan, push
from .settings import read_space

PATIENCE = 300  # seconds until a Space must answer; some load several models


def serve(folder: Path, port: int = 7860, host: str = "127.0.0.1") -> int:
    """Run a built Space until it is stopped, and print its address when it answers.

    Returns:
        The exit code of its process; 0 if the user stopped it.

    Raises:
        UserError: the port is in use, or the Space does not answer in time.
    """
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            free.bind((host, port))
        except OSError as error:
            raise UserError(f"Cannot listen on {host}:{port} ({error.strerror}); choose another --port.") from error
    local = "127.0.0.1" if host == "0.0.0.0" else host
    print(f"Starting {folder} ...", flush=True)
    before = signal.signal(signal.SIGTERM, _stop)
    process = _process(folder, port, host, stdout=subprocess.DEVNULL)  # Gradio prints the address too early
    try:
        if _starts(process, local, port):
            print(f"Open http://{local}:{port} in a browser; Ctrl-C stops the demo.", flush=True)
        elif process.poll() is None:
            raise UserError(f"{folder} did not answer in {PATIENCE} seconds.")
        return process.wait()
    except KeyboardInterrupt:
        return 0
    finally:
        process.terminate()
        process.wait()
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: Any) -> None:
    raise SystemExit(128 + number)  # the process of the Space is ended on the way out


def push_space(folder: Path, repo_id: str, options: PushOptions | None = None, toy: bool = False) -> PushPlan:
    """Check that a built demo starts, then push it as ``hfattn.hub.push`` does.

    Args:
        folder: the built demo.
        repo_id: the Space on the Hub.
        options: how to push.
        toy: whether a demo with toy models may be pushed.

    Raises:
        UserError: it has a toy model, it does not pass ``check_space``, or as ``hfattn.hub.push``.
    """
    toys = [name for name, model in read_space(folder).items() if model.toy]
    if toys and not toy:
        raise UserError(
            f"{folder} has toy models ({', '.join(toys)}): build it with real ones, hfattn space build NAME --model "
            f"{toys[0]}=runs/…, or push it with --toy."
        )
    check_space(folder)
    return push(folder, repo_id, options, repo_type="space", space_sdk="gradio")


def check_space(folder: Path) -> None:
    """Check that the card of a built Space names its app, that its requirements are pinned, and that it starts.

    Raises:
        UserError: if a check fails.
    """
    read_space(folder)
    try:
        card = SpaceCard.load(folder / "README.md").data
    except (ValueError, OSError, yaml.YAMLError) as error:
        raise UserError(f"{folder}/README.md has no front matter that the Hub reads ({error}).") from error
    if card.sdk != "gradio" or not (folder / str(card.app_file)).is_file():
        raise UserError(f"{folder}/README.md must contain sdk: gradio and the name of an existing file as app_file.")
    requirements = folder / "requirements.txt"
    try:
        pins = requirements.read_text(encoding="utf-8").split()
    except UnicodeDecodeError:
        raise UserError(f"{requirements} is not UTF-8; build the Space again.") from None
    if loose := [pin for pin in pins if "==" not in pin]:
        raise UserError(f"{folder}/requirements.txt does not pin {loose[0]}; write {loose[0]}==VERSION.")
    with running(folder):
        pass


@contextmanager
def running(folder: Path, python: str = sys.executable) -> Iterator[str]:
    """Start a built Space in a process and yield its address when it answers.

    Raises:
        UserError: if it exits or does not answer in time; the message ends with its last output.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with NamedTemporaryFile("w+", suffix=".log") as log:
        process = _process(folder, port, "127.0.0.1", python, log.fileno(), subprocess.STDOUT)
        try:
            if not _starts(process, "127.0.0.1", port):
                said = Path(log.name).read_text(encoding="utf-8").strip().splitlines()
                raise UserError(f"{folder} did not start; its last output: {said[-1] if said else 'none'}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def _process(
    folder: Path,
    port: int,
    host: str,
    python: str = sys.executable,
    stdout: int | None = None,
    stderr: int | None = None,
) -> "subprocess.Popen[bytes]":
    variables = {
        "GRADIO_SERVER_NAME": host,
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "PYTHONPATH": "",  # use the copy of hfattn in the folder
    }
    # The copy of hfattn beside app.py takes precedence over an installed one.
    return subprocess.Popen([python, "app.py"], cwd=folder, env=os.environ | variables, stdout=stdout, stderr=stderr)


def _starts(process: "subprocess.Popen[bytes]", host: str, port: int) -> bool:
    """Wait until a Space answers; return False if its process ends before, or if that takes too long."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://{host}:{port}/config", timeout=5).close()
            return True
        except OSError:
            time.sleep(0.2)
    return False

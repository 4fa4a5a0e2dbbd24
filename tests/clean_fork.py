"""The code of a model folder in a process that has imported the libraries already.

The sandbox starts Python anew for each folder, and importing the libraries takes five seconds. Tests that are not about
the sandbox run the same file with the same order in a forked process: without hfattn, where the order hides it, but in
no sandbox.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from fork_server import Forked

from hfattn.hub import sandbox


def run(script: Path, folder: Path, order: bytes, *, memory: int, timeout: float, trusted: bool) -> sandbox.Outcome:
    """Run ``python -I SCRIPT FOLDER``: the arguments, the result and its sentences are those of ``sandbox.run``.

    A model is loaded by its id from a cache of its own, whose place the libraries have read: that needs the sandbox.
    """
    if json.loads(order).get("card_place") is not None:
        return sandbox.run(script, folder, order, memory=memory, timeout=timeout, trusted=trusted)
    with tempfile.TemporaryDirectory() as home:
        variables = sandbox.environment(home) | {"HF_MODULES_CACHE": f"{home}/modules"}
        process = Forked([sys.executable, "-I", str(script), str(folder)], Path(home), variables, order)
        ends = time.monotonic() + timeout
        while process.poll() is None and time.monotonic() < ends:
            time.sleep(0.005)
        failure = None if process.returncode is not None else f"it did not end within {timeout:.0f} s"
        process.kill()
        if process.returncode:
            failure = sandbox.described_exit(process.returncode, process.result().stderr)
        return sandbox.Outcome("a forked process of the tests", process.output(), failure)

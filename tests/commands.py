"""Running the project's commands as a user does, on small data."""

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env, prepare_simple_launcher_cmd_env
from fork_server import Forked, can_fork
from transformers.utils import logging as transformers_logging

from hfattn.errors import one_sentence
from hfattn.hub.card import card_code
from hfattn.resources import load_recipe
from hfattn.training import ReliableTrainer, parse_command

ROOT = Path(__file__).parent.parent
OUTSIDE = Path(ROOT.anchor)  # a folder without the project, and without a file that Python could import
RECIPE = ROOT / "recipes" / "char_lm"

LAUNCH = "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
TWO_PROCESSES: list[object] = [*LAUNCH.split(), "--main_process_port", 0]

SENTENCES = "The quick brown fox jumps over the lazy dog. Pack my box with five dozen liquor jugs!\n"
TRAINING: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "per_device_eval_batch_size": 8,
    "max_steps": 20,
    "learning_rate": 1e-2,
    "eval_steps": 10,
    "save_steps": 10,
    "logging_steps": 5,
    "report_to": "none",
}
TINY: dict[str, dict[str, Any]] = {
    "data": {"split": [0.8, 0.1, 0.1], "max_length": 16},
    "model": {"cell": "gru", "embedding_size": 8, "hidden_size": 16},
    "training": {"per_device_eval_batch_size": 4, "max_steps": 30},
    "sample": {"prompt": "The ", "max_new_tokens": 20},
}


def written(path: Path, content: str | bytes | Iterable[object]) -> Path:
    """Write a file and return its path; rows are written as JSON lines."""
    if not isinstance(content, str | bytes):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def steps(number: int, every: int | None = None) -> dict[str, Any]:
    """Return the fields of ``training`` for a number of steps, evaluated and saved every few steps or at the end."""
    return {"max_steps": number, "eval_steps": every or number, "save_steps": every or number}


def write_config(folder: Path, *layers: Mapping[str, Any]) -> Path:
    """Write the configuration of a run of a second or two, and return its path.

    Args:
        folder: where ``tiny.yaml`` is written.
        layers: sections, and fields beside them. A layer adds its fields to those of the layers before it; a section
            with a ``model_type`` replaces the one before it.
    """
    config: dict[str, Any] = {"training": dict(TRAINING)}
    for layer in layers:
        for name, value in layer.items():
            added = isinstance(value, dict) and "model_type" not in value
            config[name] = {**config.get(name, {}), **value} if added else value
    if "max_tokens" in config:
        del config["training"]["per_device_train_batch_size"]
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def tiny_text(folder: Path, sentences: int = 40) -> Path:
    path = folder / "text.txt"
    path.write_text("".join(f"{i}. {SENTENCES}" for i in range(sentences)))
    return path


def tiny_config(folder: Path, **fields: Any) -> Path:
    """Write a configuration of the recipe char_lm with the given fields added to it."""
    return write_config(folder, TINY, {"data": {"dataset": str(tiny_text(folder))}}, fields)


def environment(**extra: str) -> dict[str, str]:
    """One thread, so that two test processes share two cores; no network; the tools of this interpreter first."""
    own = str(Path(sys.executable).parent)
    inherited = {name: value for name, value in os.environ.items() if name != "TENSORBOARD_LOGGING_DIR"}
    return {
        **inherited,
        "PATH": f"{own}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "ACCELERATE_USE_CPU": "true",
        "COLUMNS": "200",
        **extra,
    }


def run_anew(words: Sequence[object], cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    """A command as a shell starts it."""
    return subprocess.run(
        [str(word) for word in words], cwd=cwd, env=environment(**extra), capture_output=True, text=True
    )


def run(words: Sequence[object], cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
    """A Python command in a process of its own that need not import the libraries (``fork_server``).

    Of ``accelerate launch`` it is the processes that Accelerate would start, with what they print one after another.
    """
    program, *others = map(str, words)
    variables = environment(**extra)
    if not can_fork(variables):
        return run_anew(words, cwd, **extra)
    found = shutil.which(str(cwd / program) if "/" in program else program, path=variables["PATH"])
    assert found is not None, program
    if Path(found).name == "accelerate" and others[0] == "launch":
        return wait_for([Forked(command, cwd, own) for command, own in launched(others[1:], cwd, variables)])
    return wait_for([Forked([found, *others], cwd, variables)])


def launched(words: list[str], cwd: Path, variables: dict[str, str]) -> list[tuple[list[str], dict[str, str]]]:
    """The commands that ``accelerate launch`` would start, as Accelerate reads its words, and their variables."""
    with contextlib.chdir(cwd), patch.dict(os.environ, variables):
        arguments, *_ = _validate_launch_command(launch_command_parser().parse_args(words))
        command, simple = prepare_simple_launcher_cmd_env(arguments)
        if arguments.cpu or not (arguments.multi_gpu or arguments.use_fsdp):
            return [(command, simple)]
        arguments.main_process_port = 0  # any free one
        shared = prepare_multi_gpu_env(arguments)
    number, port = str(arguments.num_processes), str(arguments.main_process_port)
    shared.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=number, LOCAL_WORLD_SIZE=number)
    return [(command, {**shared, "RANK": str(i), "LOCAL_RANK": str(i)}) for i in range(int(number))]


def wait_for(processes: list[Forked]) -> subprocess.CompletedProcess[str]:
    """Until all have ended; if one fails, the others are killed."""
    while None in (codes := [process.poll() for process in processes]):
        if any(codes):
            for process in processes:
                process.kill()
        time.sleep(0.005)
    done = [process.result() for process in processes]
    returncode = next((each.returncode for each in done if each.returncode > 0), max(each.returncode for each in done))
    return subprocess.CompletedProcess(
        done[0].args, returncode, "".join(each.stdout for each in done), "".join(each.stderr for each in done)
    )


@contextlib.contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """What this process writes to a file beyond its size fails as it does where the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def train(config: Path, *words: object, recipe: Path = RECIPE) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, recipe / "train.py", "--config", config, *words])


def train_until(
    config: Path, landmark: Path, *words: object, recipe: Path = RECIPE, number: int = signal.SIGKILL
) -> subprocess.CompletedProcess[str]:
    """Start training and send it a signal as soon as ``landmark`` exists."""
    command = [sys.executable, recipe / "train.py", "--config", config, *words]
    process = Forked([str(word) for word in command], ROOT, environment())
    deadline = time.monotonic() + 120
    while not landmark.exists():
        ended = process.poll() is not None
        if ended or time.monotonic() > deadline:
            process.kill()
            raise AssertionError(wait_for([process]).stderr)
        time.sleep(0.002)
    process.kill(number)
    return wait_for([process])


def run_here(recipe: Path, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    """A recipe's command in this process: starting Python takes longer than a tiny run."""
    # The recipe sets it where it is absent, and what it sets must not outlive the test.
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "")
    monkeypatch.delenv("TENSORBOARD_LOGGING_DIR")
    script = load_recipe(recipe / "train.py")
    script.main(parse_command(script.RECIPE, "", ["train.py", *map(str, words)]))


def results_of(run: Path) -> dict[str, Any]:
    return json.loads((run / "results.json").read_text())


def train_here(recipe: Path, config: Path, *words: object, to: str = "run") -> dict[str, Any]:
    """Run a recipe's command in this process, to a folder beside its configuration, and return its results."""
    folder = config.parent / to
    with pytest.MonkeyPatch.context() as monkeypatch:
        run_here(recipe, monkeypatch, "--config", config, "--output_dir", folder, *words)
    return results_of(folder)


class Killed(BaseException):
    """What ends a process at once; nothing in a recipe catches it."""


def run_until_step(recipe: Path, monkeypatch: pytest.MonkeyPatch, step: int, *words: object) -> None:
    """A recipe's command that is gone after so many steps of training, like a process that is killed.

    ``train_until`` kills a process for real; where several recipes share what survives that, once is enough.
    """
    whole = ReliableTrainer.training_step

    def training_step(self: ReliableTrainer, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step >= step:
            raise Killed
        return whole(self, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(ReliableTrainer, "training_step", training_step)
        with pytest.raises(Killed):
            run_here(recipe, patched, *words)


def refusal(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], run: Path, *words: object
) -> str:
    """What a recipe's command says of bad input: one sentence, and it has written nothing to the folder of its run."""
    # A pretrained model is announced as it is loaded; here only what is said of the input counts.
    monkeypatch.setattr(transformers_logging, "_tqdm_active", False)
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    with pytest.raises(SystemExit) as end, one_sentence():
        run_here(recipe, monkeypatch, "--output_dir", run, *words)
    transformers_logging.set_verbosity(level)
    assert end.value.code == 2
    error = capfd.readouterr().err.strip()
    assert error.count("\n") == 0, error
    assert error.startswith("error: ")
    assert error.endswith((".", "?")), error
    assert not run.exists()
    return error


def printed_by_card(folder: Path) -> str:
    """What a model folder's card says that its code prints; ``verify`` runs it where hfattn is not."""
    _, printed = card_code((folder / "README.md").read_text())
    assert printed is not None
    return printed


def run_card(folder: Path, more: str) -> str:
    """What the Python of a model folder's card prints, and ``more`` after it, in a process without hfattn."""
    (snippet,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)
    done = run([sys.executable, "-c", f"import sys; sys.modules['hfattn'] = None\n{snippet}{more}"], cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout

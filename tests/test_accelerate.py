"""The launch configurations: each as Accelerate reads it, and two CPU processes beside one with twice the batch."""

import re
import sys
from pathlib import Path

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import ClusterConfig, load_config_from_file
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils import DistributedType
from commands import ROOT, results_of, run, run_anew, steps, write_config
from safetensors.torch import load_file
from tiny_models import TINY_BAHDANAU

from hfattn.training import run_facts, training_arguments
from hfattn.training.arguments import trains_on_cuda

pytestmark = pytest.mark.runs

ACCELERATE = ROOT / "recipes" / "accelerate"
RECIPE = ROOT / "recipes" / "translation"
FILES = sorted(ACCELERATE.glob("*.yaml"))


def test_the_files_that_the_readme_explains_are_those_there_are() -> None:
    explained = re.findall(r"^\| `(\w+\.yaml)` \|", (ACCELERATE / "README.md").read_text(), re.MULTILINE)
    assert sorted(explained) == [path.name for path in FILES]
    assert len(FILES) == 5


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_a_file_is_read_by_accelerate_as_what_it_is_for(path: Path) -> None:
    config = load_config_from_file(str(path))
    assert isinstance(config, ClusterConfig)
    expected = {
        "cpu": (DistributedType.NO, True, 1),
        "one_gpu": (DistributedType.NO, False, 1),
        "ddp": (DistributedType.MULTI_GPU, False, 2),
        "fsdp2": (DistributedType.FSDP, False, 2),
        "deepspeed_zero2": (DistributedType.DEEPSPEED, False, 2),
    }
    assert (config.distributed_type, config.use_cpu, config.num_processes) == expected[path.stem]
    text = path.read_text()
    assert text.startswith("# ")
    assert "launch:  accelerate launch --config_file recipes/accelerate/" + path.name in text
    assert (ROOT / re.findall(r"(recipes/translation/\S+)", text)[0]).is_file()


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_launcher_knows_each_field_and_takes_it(path: Path) -> None:
    """A field of a section that the launcher does not know would be left out without a word."""
    fields = yaml.safe_load(path.read_text())
    arguments = launch_command_parser().parse_args(["--config_file", str(path), "train.py"])
    known = set(vars(arguments))
    for section in ("fsdp_config", "deepspeed_config"):
        assert set(fields.get(section, {})) <= known, path
    arguments, *_ = _validate_launch_command(arguments)
    chosen = {name for name in ("multi_gpu", "use_fsdp", "use_deepspeed") if getattr(arguments, name)}
    assert chosen == {"ddp": {"multi_gpu"}, "fsdp2": {"use_fsdp"}, "deepspeed_zero2": {"use_deepspeed"}}.get(
        path.stem, set()
    )
    assert arguments.mixed_precision == "no"
    assert arguments.num_processes == fields["num_processes"]
    for section in ("fsdp_config", "deepspeed_config"):
        for name, value in fields.get(section, {}).items():
            assert getattr(arguments, name) == value
    if path.stem == "fsdp2":
        assert (arguments.fsdp_version, arguments.fsdp_state_dict_type) == (2, "FULL_STATE_DICT")
    if path.stem == "deepspeed_zero2":
        assert arguments.zero_stage == 2


def test_a_gpu_is_left_alone_where_the_launcher_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``cpu.yaml`` on a machine with a GPU: Accelerate would keep the weights here, and Trainer send batches there."""
    for module in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(module, "is_available", lambda: True)
    monkeypatch.delenv("ACCELERATE_USE_CPU", raising=False)
    assert trains_on_cuda()
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    arguments = training_arguments(tmp_path, {})
    assert arguments.device.type == "cpu"
    assert not arguments.dataloader_pin_memory
    assert "gpu" not in run_facts("translation", RECIPE / "dates.yaml", {}, 1)["hardware"]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process with a batch of 8, through the recipe's command and ``cpu.yaml``."""
    folder = tmp_path_factory.mktemp("one")
    words = ("one", "two", "three", "a far longer target than any other there is", "five and a half")
    # Targets of 3 to 50 symbols: the mean over the symbols is not the mean of the processes' means.
    pairs = folder / "pairs.tsv"
    pairs.write_text("".join(f"{i}\t{words[i % len(words)]} {i}\n" for i in range(100)))
    training = {
        **steps(12),  # more than one pass: 10 steps
        "learning_rate": 1.0,
        "adam_epsilon": 1.0,  # so large that Adam is gradient descent, where a wrong scale of the loss shows
        "max_grad_norm": 0.5,
        "logging_steps": 12,
    }
    data = {"dataset": str(pairs), "split": [0.8, 0.2]}
    sample = {"translations": 1, "alignments": 1}
    write_config(folder, {"data": data, "model": TINY_BAHDANAU, "training": training, "sample": sample})
    launch = ["accelerate", "launch", "--config_file", ACCELERATE / "cpu.yaml", "--num_processes", 2]
    done = run([*launch, RECIPE / "train.py", "--config", folder / "tiny.yaml", "--output_dir", folder / "run"])
    assert done.returncode == 0, done.stderr
    return folder


def test_the_cpu_file_is_one_process_whatever_else_is_said(one_process: Path) -> None:
    assert results_of(one_process / "run")["hardware"]["processes"] == 1


def two(file: str, one_process: Path, folder: Path) -> list[object]:
    """The command of two processes on the CPU, with half of the batch of the one in each."""
    launch = ["accelerate", "launch", "--config_file", ACCELERATE / file, RECIPE / "train.py"]
    words = ["--config", one_process / "tiny.yaml", "--output_dir", folder]
    return [*launch, *words, "--training.per_device_train_batch_size", 4]


def test_weights_are_not_sharded_on_a_cpu_and_the_user_is_told_so(one_process: Path, tmp_path: Path) -> None:
    """Accelerate would train with DDP, and not say so."""
    done = run(two("fsdp2.yaml", one_process, tmp_path / "run"), ACCELERATE_USE_CPU="true")
    assert done.returncode != 0
    sentence = "Accelerate shards weights only on accelerators; on a CPU, launch with recipes/accelerate/ddp.yaml."
    assert done.stderr.count(f"error: {sentence}") == 1
    assert "UserError" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_two_processes_train_the_weights_of_one_with_twice_the_batch(one_process: Path, tmp_path: Path) -> None:
    """Both read the same examples in each step; here Accelerate itself starts them."""
    done = run_anew(two("ddp.yaml", one_process, tmp_path / "run"), ACCELERATE_USE_CPU="true")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Model, results and pictures") == 1
    assert done.stderr.count("step 12: ") + done.stdout.count("step 12: ") == 1  # both translate, and one shows it
    single, double = (results_of(folder) for folder in (one_process / "run", tmp_path / "run"))
    assert (single["hardware"]["processes"], double["hardware"]["processes"]) == (1, 2)
    assert single["training"]["steps"] == double["training"]["steps"] == 12
    weights = [load_file(folder / "run" / "model.safetensors") for folder in (one_process, tmp_path)]
    torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)
    # 20 pairs are no multiple of two processes' batches of 8; the last rows must not be counted twice.
    assert [each["metrics"]["validation"]["pairs"] for each in (single, double)] == [20, 20]
    nats = [each["metrics"]["validation"]["nats_per_token"] for each in (single, double)]
    assert nats[1] == pytest.approx(nats[0], abs=1e-4)


@pytest.mark.parametrize("options", [[], ["--accelerate", ACCELERATE / "ddp.yaml"]])
def test_a_training_that_fails_ends_with_its_own_sentence(tmp_path: Path, options: list[object]) -> None:
    words = ["hfattn", "train", *options, "translation/dates", "--training.max_stepz", 60]
    done = run_anew(words, cwd=tmp_path)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last == (
        "error: 'training.max_stepz' is not a field of TrainingArguments; did you mean 'training.max_steps'?"
    )
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()


FAILS = """
import os, time
from hfattn import errors

errors._WAIT = {wait}
with errors.one_sentence():
    if os.environ["LOCAL_RANK"] == "0":
        time.sleep({sleep})
    raise errors.UserError(f"process {{os.environ['LOCAL_RANK']}} has this error")
"""


@pytest.mark.parametrize(("sleep", "wait", "reported"), [(2, 120, 0), (120, 0, 1)])
def test_an_error_of_a_launch_is_reported_once(tmp_path: Path, sleep: int, wait: int, reported: int) -> None:
    """The launcher stops all processes when one ends: also the first one, before it could report the error."""
    (tmp_path / "fails.py").write_text(FAILS.format(sleep=sleep, wait=wait))
    launch = [sys.executable, "-P", ROOT / "hfattn_cli" / "launcher.py", "--config_file", ACCELERATE / "ddp.yaml"]
    done = run_anew([*launch, "fails.py"], cwd=tmp_path)
    assert done.returncode == 2
    assert re.findall("error: .*", done.stderr) == [f"error: process {reported} has this error"]

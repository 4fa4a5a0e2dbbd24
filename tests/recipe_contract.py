"""What holds for every training recipe. The tests of a recipe inherit these classes and say how it is run in small."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from commands import ROOT, refusal, run, run_here, run_until_step
from safetensors.torch import load_file

from hfattn.errors import UserError
from hfattn.reports.base import TrainedRun

LAUNCH = "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
CLOCKS = ("runtime", "per_second", "preparation_time")
Configure = Callable[..., Path]
# A name, a function from a folder to words of the command line, and what the refusal says (a regular expression).
BadInput = tuple[str, Callable[[Path], list[object]], str]


def results_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


def without_clocks(values: Any) -> Any:
    if not isinstance(values, dict):
        return values
    return {name: without_clocks(value) for name, value in values.items() if not name.endswith(CLOCKS)}


class RecipeTests:
    """The tests of one recipe.

    Attributes:
        recipe: name of the recipe.
        tiny: sections that its tiny configuration lacks.
    """

    recipe: ClassVar[str]
    tiny: ClassVar[dict[str, Any]] = {}

    @property
    def folder(self) -> Path:
        return ROOT / "recipes" / self.recipe

    @pytest.fixture
    def configure(self) -> Configure:
        """A function that writes the YAML file of a tiny run to a folder: ``configure(folder, **sections)``."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def on_the_cpu(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("ACCELERATE_USE_CPU", "true")


class KilledRun(RecipeTests):
    """A killed run ends as an unkilled one.

    Attributes:
        kill_step: number of steps before the run is killed, with a checkpoint before and one after it.
        changed: words with which the killed run is not resumed, because they change its data.
    """

    kill_step: ClassVar[int] = 23
    changed: ClassVar[list[object]]

    def killed(self, folder: Path) -> dict[str, Any]:
        """Sections of the run, with dropout; ``folder`` is for files that they need."""
        raise NotImplementedError

    def test_a_killed_run_ends_as_an_unkilled_one(
        self, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config, whole, killed = configure(tmp_path, **self.killed(tmp_path)), tmp_path / "whole", tmp_path / "killed"
        run_here(self.folder, monkeypatch, "--config", config, "--output_dir", whole)
        run_until_step(self.folder, monkeypatch, self.kill_step, "--config", config, "--output_dir", killed)
        assert not (killed / "results.json").exists()
        resume = ["--config", config, "--output_dir", killed, "--resume"]
        with pytest.raises(UserError, match="was started with another 'data'"):
            run_here(self.folder, monkeypatch, *resume, *self.changed)
        published = []
        make = TrainedRun.__init__

        def made(run: TrainedRun, *args: Any, **kwargs: Any) -> None:
            make(run, *args, **kwargs)
            published.append((run, run.model.training, run.tokenizer.model_max_length, run.tokenizer.truncation_side))

        monkeypatch.setattr(TrainedRun, "__init__", made)
        run_here(self.folder, monkeypatch, *resume)
        assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        first, second = results_of(whole), results_of(killed)
        assert without_clocks(first["metrics"]) == without_clocks(second["metrics"])
        assert first["samples"] == second["samples"]
        # Model and tokenizer are what they are published as before the first of it is written.
        ((run, training, longest, side),) = published
        assert not training
        assert (run.tokenizer.model_max_length, run.tokenizer.truncation_side) == (longest, side)


class TwoProcesses(RecipeTests):
    """Two processes train and score as one with twice the batch.

    Attributes:
        loss: name of the likelihood among the metrics of a part.
    """

    loss: ClassVar[str]

    def shared(self, folder: Path) -> dict[str, Any]:
        """Sections of the run, without dropout, in batches of 8; ``folder`` is for files that they need."""
        raise NotImplementedError

    def test_two_processes_train_as_one_with_twice_the_batch(
        self, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        training = {"learning_rate": 1.0, "adam_epsilon": 1.0, "max_steps": 6, "eval_steps": 6, "save_steps": 6}
        config = configure(tmp_path, **self.shared(tmp_path), training=training)
        words = ["--config", config, "--output_dir", tmp_path / "two", "--training.per_device_train_batch_size", 4]
        done = run([*LAUNCH.split(), "--main_process_port", 0, self.folder / "train.py", *words])
        assert done.returncode == 0, done.stderr
        run_here(self.folder, monkeypatch, "--config", config, "--output_dir", tmp_path / "one")
        one, two = results_of(tmp_path / "one"), results_of(tmp_path / "two")
        assert [each["hardware"]["processes"] for each in (one, two)] == [1, 2]
        weights = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
        torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)
        for part, scores in one["metrics"].items():
            again = two["metrics"][part]
            assert again[self.loss] == pytest.approx(scores[self.loss], rel=1e-4, abs=1e-4)
            counts = {name: value for name, value in scores.items() if type(value) is int}
            assert counts
            assert {name: again[name] for name in counts} == counts


class BadInputs(RecipeTests):
    """Bad input is refused in one sentence, and nothing is written."""

    bad: ClassVar[list[BadInput]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "refused" in metafunc.fixturenames:
            metafunc.parametrize("refused", self.bad, ids=[case[0] for case in self.bad])

    def test_bad_input_is_one_sentence(
        self,
        refused: BadInput,
        configure: Configure,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        _, words, message = refused
        config = configure(tmp_path, **self.tiny)
        given = words(tmp_path)
        capfd.readouterr()  # what writing a model prints
        error = refusal(self.folder, monkeypatch, capfd, tmp_path / "run", "--config", config, *given)
        assert re.search(message, error), error

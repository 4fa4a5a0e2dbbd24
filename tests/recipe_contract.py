"""What holds for every training recipe. The tests of a recipe inherit these classes and say how it is run in small."""

import json
import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from commands import (
    ROOT,
    TWO_PROCESSES,
    printed_by_card,
    refusal,
    results_of,
    run,
    run_until_step,
    train_here,
)
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from hfattn.clean_process import MEASURED
from hfattn.errors import UserError
from hfattn.hub.clean_run import CleanRun, Result
from hfattn.hub.measuring import judge_measurement, plan_measurement
from hfattn.loading import load_any_model
from hfattn.measured_outputs import outputs_of_texts
from hfattn.reports.base import TrainedRun

CLOCKS = ("runtime", "per_second", "preparation_time")
Configure = Callable[..., Path]
# Words of the command line, as typed, or a function from a folder (for files) to them.
Words = str | Callable[[Path], list[object]]
# Words of the command line, and a regular expression that the refusal matches.
BadInput = tuple[Words, str]
# The scores in a card's metadata, (type, name), and where they are in the metrics: (part, name).
Stated = dict[tuple[str, str], tuple[str, str]]


def in_folder(words: Words, folder: Path) -> list[object]:
    return list(shlex.split(words)) if isinstance(words, str) else words(folder)


def flat(values: dict[str, Any], *path: str) -> dict[tuple[str, ...], Any]:
    """Return the values of nested dictionaries by their path."""
    found: dict[tuple[str, ...], Any] = {}
    for name, value in values.items():
        found |= flat(value, *path, name) if isinstance(value, dict) else {(*path, name): value}
    return found


def is_path(place: Any) -> bool:
    return isinstance(place, str) and Path(place).is_absolute()


def without_clocks(metrics: dict[str, Any]) -> dict[tuple[str, ...], Any]:
    return {path: value for path, value in flat(metrics).items() if not path[-1].endswith(CLOCKS)}


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


class FinishedRun(RecipeTests):
    """What a finished run leaves behind. The fixture ``finished`` is the folder of its configuration and of ``run``.

    Attributes:
        files: names of files in the run folder.
        pictures: names of pictures in the run folder.
        stated: scores in the metadata of the card.
    """

    files: ClassVar[set[str]] = {"config.json", "model.safetensors", "tokenizer.json"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png",)
    stated: ClassVar[Stated]

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        """Check the rest of the card, and the output that it shows for its code."""
        raise NotImplementedError

    def test_a_run_leaves_a_model_folder_pictures_and_no_path_of_this_machine(self, finished: Path) -> None:
        folder = finished / "run"
        assert self.files <= {path.name for path in folder.iterdir()}
        for picture in self.pictures:
            assert (folder / picture).read_bytes()[:4] == b"\x89PNG"
        for page in folder.glob("*.html"):
            assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page.read_text())
        for file in ("results.json", "README.md"):
            assert str(finished.parent) not in (folder / file).read_text()

    def test_the_card_states_the_results_and_what_its_code_prints(self, finished: Path) -> None:
        card, results = ModelCard.load(finished / "run" / "README.md"), results_of(finished / "run")
        values = {(r.metric_type, r.metric_name): r.metric_value for r in card.data.eval_results}
        for name, (part, score) in self.stated.items():
            assert values[name] == pytest.approx(results["metrics"][part][score], abs=1e-6)  # rounded
        self.check_card(card, printed_by_card(finished / "run"), results)

    def places(self, data: dict[str, Any]) -> list[str]:
        """Return the words after ``--data`` for the section ``data`` of a configuration."""
        files = {name: data.get(name) for name in ("dataset", "validation", "test")}
        return [str(file) if name == "dataset" else f"{name}={file}" for name, file in files.items() if is_path(file)]

    def test_its_scores_are_measured_again(self, finished: Path) -> None:
        """As ``hfattn verify --measure`` does in a sandbox; the model is not told the right answers."""
        results, data = results_of(finished / "run"), yaml.safe_load((finished / "tiny.yaml").read_text())["data"]
        planned = plan_measurement(results, self.places(data))
        if isinstance(planned, str):
            assert self.recipe in ("baselines", "masked_lm"), planned
            assert planned.startswith("as recorded, not measured again: only the scores of classification, ")
            return
        model, tokenizer, _ = load_any_model(str(finished / "run"))
        facts, tensors = outputs_of_texts(model.eval(), tokenizer, json.loads(json.dumps(planned.order)))
        done = CleanRun("none", True, {MEASURED: Result(json.loads(json.dumps(facts)), tensors)}, None)
        check = judge_measurement(done, planned)
        assert check.passed, check.detail
        same = results["training"]["precision"] == "float32"
        assert f"agree {'to the shown digits' if same else 'within the tolerance'}" in check.detail
        for part, scores in results["metrics"].items():
            name = next(
                name for name in ("accuracy", "exact_match", "f1", "pearson", "recall_at_1", "score") if name in scores
            )
            edited = json.loads(json.dumps(results))
            edited["metrics"][part][name] += 0.001 if same else 0.2
            found = judge_measurement(done, replace(planned, results=edited))
            assert part == "train" or not found.passed
            assert part == "train" or f"metrics.{part}.{name} is " in found.detail
        nothing = CleanRun("none", True, {MEASURED: Result({}, {})}, None)
        assert "the process " in judge_measurement(nothing, planned).detail


class KilledRun(RecipeTests):
    """A killed run ends as an unkilled one.

    Attributes:
        kill_step: number of steps before the run is killed, with a checkpoint before and one after it.
        changed: words with which the killed run is not resumed.
    """

    kill_step: ClassVar[int] = 23
    changed: ClassVar[str]

    def killed(self, folder: Path) -> dict[str, Any]:
        """Sections of the run, with dropout; ``folder`` is for files that they need."""
        raise NotImplementedError

    def check_resumed(self, folder: Path) -> None:
        """Check what else holds for the folder of a resumed run."""

    def test_a_killed_run_ends_as_an_unkilled_one(
        self, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config, whole, killed = configure(tmp_path, **self.killed(tmp_path)), tmp_path / "whole", tmp_path / "killed"
        first = train_here(self.folder, config, to="whole")
        run_until_step(self.folder, monkeypatch, self.kill_step, "--config", config, "--output_dir", killed)
        assert not (killed / "results.json").exists()
        field, value = self.changed.removeprefix("--").split()
        refused = rf"was started with {re.escape(field)} .*, and this command has \"?{re.escape(value)}\"?; resume it "
        with pytest.raises(UserError, match=refused):
            train_here(self.folder, config, "--resume", *self.changed.split(), to="killed")
        published = []
        make = TrainedRun.__init__

        def made(run: TrainedRun, *args: Any, **kwargs: Any) -> None:
            make(run, *args, **kwargs)
            published.append((run, run.model.training, run.tokenizer.model_max_length, run.tokenizer.truncation_side))

        monkeypatch.setattr(TrainedRun, "__init__", made)
        second = train_here(self.folder, config, "--resume", to="killed")
        assert (killed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
        assert without_clocks(first["metrics"]) == without_clocks(second["metrics"])
        assert first["samples"] == second["samples"]
        # Model and tokenizer are what they are published as before the first of it is written.
        ((run, training, longest, side),) = published
        assert not training
        assert (run.tokenizer.model_max_length, run.tokenizer.truncation_side) == (longest, side)
        self.check_resumed(killed)


class TwoProcesses(RecipeTests):
    """Two processes that accumulate two batches in each step train and score as one with four times the batch.

    Attributes:
        loss: name of the likelihood among the metrics of a part.
    """

    loss: ClassVar[str]

    def shared(self, folder: Path) -> dict[str, Any]:
        """Sections of the run, without dropout, in batches of 8; ``folder`` is for files that they need."""
        raise NotImplementedError

    def test_two_processes_train_as_one_with_all_of_their_batches(self, configure: Configure, tmp_path: Path) -> None:
        training = {"learning_rate": 1.0, "adam_epsilon": 1.0, "max_steps": 6, "eval_steps": 6, "save_steps": 6}
        config = configure(tmp_path, **self.shared(tmp_path), training=training)
        batches = ["--training.per_device_train_batch_size", 2, "--training.gradient_accumulation_steps", 2]
        words = ["--config", config, "--output_dir", tmp_path / "two", *batches]
        done = run([*TWO_PROCESSES, self.folder / "train.py", *words])
        assert done.returncode == 0, done.stderr
        one, two = train_here(self.folder, config, to="one"), results_of(tmp_path / "two")
        assert [each["hardware"]["processes"] for each in (one, two)] == [1, 2]
        weights = [load_file(tmp_path / name / "model.safetensors") for name in ("one", "two")]
        torch.testing.assert_close(*weights, atol=1e-5, rtol=1e-4)
        scores, again = flat(one["metrics"]), flat(two["metrics"])
        likelihoods = {path: value for path, value in scores.items() if path[-1] == self.loss}
        counts = {path: value for path, value in scores.items() if type(value) is int}
        assert {path: again[path] for path in likelihoods} == pytest.approx(likelihoods, rel=1e-4, abs=1e-4)
        assert counts
        assert {path: again[path] for path in counts} == counts


class BadInputs(RecipeTests):
    """Bad input is refused in one sentence, and nothing is written."""

    bad: ClassVar[list[BadInput]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "refused" in metafunc.fixturenames:
            metafunc.parametrize("refused", self.bad, ids=[message for _, message in self.bad])

    def test_bad_input_is_one_sentence(
        self,
        refused: BadInput,
        configure: Configure,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        words, message = refused
        config = configure(tmp_path, **self.tiny)
        given = in_folder(words, tmp_path)
        capfd.readouterr()  # what writing a model prints
        error = refusal(self.folder, monkeypatch, capfd, tmp_path / "run", "--config", config, *given)
        assert re.search(message, error), error

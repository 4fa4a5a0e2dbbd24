"""``matmul``: oneDNN multiplies float32 matrices in training, where that is faster and as exact, and nowhere else."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import RECIPE, run_until_step, tiny_config, train_here

from hfattn.errors import UserError
from hfattn.reproduction import plan_reproduction
from hfattn.training import matrix_products
from hfattn.training.matrix_products import Comparison, compare_products, onednn_products, uses_onednn
from hfattn.training.trainer import ReliableTrainer

BETTER, SLOWER, ROUNDED = Comparison(2.0, 2.0), Comparison(0.9, 1.0), Comparison(8.0, 300.0)


def compared_as(monkeypatch: pytest.MonkeyPatch, comparison: Comparison) -> None:
    monkeypatch.setattr(matrix_products, "compare_products", lambda: comparison)


@pytest.fixture
def precisions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The precision in which torch multiplies, at each step and each evaluation of a run."""
    found: list[str] = []
    for name in ("training_step", "prediction_step"):
        whole = getattr(ReliableTrainer, name)

        def noted(self: Any, *args: Any, whole: Any = whole, **kwargs: Any) -> Any:
            found.append(torch.get_float32_matmul_precision())
            return whole(self, *args, **kwargs)

        monkeypatch.setattr(ReliableTrainer, name, noted)
    return found


def test_auto_is_on_where_onednn_is_faster_and_as_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    for comparison, chosen in ((BETTER, True), (SLOWER, False), (ROUNDED, False)):
        compared_as(monkeypatch, comparison)
        assert (uses_onednn("on"), uses_onednn("auto"), uses_onednn("off")) == (True, chosen, False)
    compared_as(monkeypatch, BETTER)
    monkeypatch.setattr(matrix_products, "trains_on_cpu", lambda: False)
    assert not uses_onednn("on")
    assert not uses_onednn("auto")


def test_products_that_auto_selects_are_those_of_float32() -> None:
    """On each kind of CPU: where they are rounded to bfloat16, or not faster, the default library stays."""
    found = compare_products()
    assert found.speed > 0
    torch.manual_seed(0)
    left, right = torch.randn(300, 200, requires_grad=True), torch.randn(200, 100, requires_grad=True)
    exact_left, exact_right = (each.detach().double().requires_grad_() for each in (left, right))
    (exact_left @ exact_right).square().sum().backward()
    with onednn_products() if found.is_better else nullcontext():
        (left @ right).square().sum().backward()
    for own, exact in ((left, exact_left), (right, exact_right)):
        assert own.grad is not None
        torch.testing.assert_close(own.grad.double(), exact.grad, rtol=1e-4, atol=2e-2)  # gradients of about 10,000


def test_the_precision_of_before_returns_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="shapes"), onednn_products():
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("matmul", ["on", "off"])
def test_the_field_lasts_for_training_and_is_recorded(tmp_path: Path, precisions: list[str], matmul: str) -> None:
    results = train_here(RECIPE, tiny_config(tmp_path, matmul=matmul))
    steps, others = precisions[: results["training"]["steps"]], precisions[-1]
    assert set(steps) == {"medium" if matmul == "on" else "highest"}
    assert others == "highest"  # the scores of the test
    assert results["training"]["matmul"] == matmul
    assert results["configuration"]["matmul"] == matmul


def test_a_run_is_resumed_with_the_choice_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precisions: list[str]
) -> None:
    config = tiny_config(tmp_path, matmul="auto")
    compared_as(monkeypatch, BETTER)
    run_until_step(RECIPE, monkeypatch, 15, "--config", config, "--output_dir", tmp_path / "run")
    assert torch.get_float32_matmul_precision() == "highest"  # the run failed within a step
    compared_as(monkeypatch, SLOWER)
    precisions.clear()
    resumed = train_here(RECIPE, config, "--resume")
    assert precisions[0] == "medium"
    assert resumed["training"]["matmul"] == "on"
    (tmp_path / "run" / "results.json").unlink()  # as if the process had been killed after its last step
    again = train_here(RECIPE, config, "--resume")
    assert again["training"]["matmul"] == "on"
    assert train_here(RECIPE, config, to="other")["training"]["matmul"] == "off"


def test_a_word_that_is_no_choice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="matmul is 'fast'; write one of auto, off, on"):
        train_here(RECIPE, tiny_config(tmp_path, matmul="fast"))
    assert not (tmp_path / "run").exists()


@pytest.mark.runs
@pytest.mark.usefixtures("online")
def test_a_reproduction_has_the_choice_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compared_as(monkeypatch, BETTER)
    config = tiny_config(tmp_path, matmul="auto")
    train_here(RECIPE, config)
    compared_as(monkeypatch, SLOWER)
    plan = plan_reproduction(tmp_path / "run", [str(tmp_path / "text.txt")])
    assert plan.configuration["matmul"] == "on"

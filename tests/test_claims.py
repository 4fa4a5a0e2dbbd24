"""Tables of claims: every variant is a valid configuration, and the page contains the results of the runs."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from commands import ROOT

from hfattn.resources import load_recipe
from hfattn.training import load_config
from hfattn.yaml_values import override_words


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    spec = importlib.util.spec_from_file_location("claims", ROOT / "benchmarks" / "claims.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["claims"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_each_variant_is_valid_and_differs_from_the_others(claims: ModuleType) -> None:
    recipe = load_recipe(claims.RECIPE / "train.py")
    for table in claims.TABLES.values():
        configurations = []
        for overrides in table.variants.values():
            fields = {**table.common, **overrides}
            words = override_words(fields)
            config = load_config(recipe.Config, claims.RECIPE / f"{table.config}.yaml", words)
            recipe.validate(config)
            configurations.append(repr(config))
        assert len(set(configurations)) == len(table.variants)
        assert len({claims.folder(Path(), "t", variant, 1) for variant in table.variants}) == len(table.variants)


def test_the_page_has_mean_and_deviation_of_the_runs(
    claims: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def finished(variant: str, seed: int, bleu: float, table: str = "scores") -> None:
        run = claims.folder(tmp_path, table, variant, seed)
        run.mkdir(parents=True)
        results: dict[str, Any] = {
            "metrics": {
                "validation": {"nats_per_token": 1.5, "token_accuracy": 0.6},
                "test": {"bleu": bleu},
            },
            "training": {"steps": 7},
            "hardware": {"cpu": "a slow one"},
            "model": {"parameters": 1234},
        }
        (run / "results.json").write_text(json.dumps(results))
        for step in (5, 10):
            history = [{"step": step, "loss": bleu / step}, {"step": step, "eval_nats_per_token": 1.5}]
            checkpoint = run / "checkpoints" / f"checkpoint-{step}"
            checkpoint.mkdir(parents=True)
            (checkpoint / "trainer_state.json").write_text(json.dumps({"log_history": history}))

    finished("dot", 1, 10.0)
    finished("dot", 2, 12.0)
    finished("general", 1, 11.0)
    finished("1.5-entmax", 1, 13.0, "distributions")
    claims.folder(tmp_path, "scores", "additive", 1).mkdir()  # a run that diverged
    monkeypatch.setattr(claims, "PAGE", tmp_path / "claims.md")
    claims.write(tmp_path)
    page = (tmp_path / "claims.md").read_text()
    assert "| dot | 1.5 ± 0 | 0.6 ± 0 | 11 ± 1.41 | 2 | 7 | 1,234 |" in page
    assert "| general | 1.5 | 0.6 | 11 | 1 | 7 | 1,234 |" in page
    assert "| 1.5-entmax | 1.5 | 0.6 | 13 | 1 | 7 | 1,234 |" in page
    assert "| additive | did not finish |" in page
    assert "| sparsemax | not run |" in page
    assert "Hardware: a slow one." in page
    assert "- dot is better than additive: not tested: two runs of each are needed" in page
    assert claims.logged(claims.folder(tmp_path, "scores", "dot", 2))[0] == {"step": 10, "loss": 1.2}
    assert "(assets/claims-scores.png)" in page
    assert (tmp_path / "assets" / "claims-scores.png").stat().st_size > 10_000
    assert "claims-norms" not in page  # nothing to draw


@pytest.mark.parametrize(
    ("relation", "left", "right", "word"),
    [
        ("better than", [30.0, 30.2, 29.8], [28.0, 28.1, 27.9], "supported (+2.0 BLEU, +1.6 to +2.4)"),
        ("better than", [28.0, 28.1, 27.9], [30.0, 30.2, 29.8], "refuted"),
        ("better than", [28.0, 30.0], [27.0, 29.0], "undecided"),
        ("as good as", [29.8, 29.9, 29.7], [30.0, 30.1, 29.9], "supported"),  # worse, but by less than a point
        ("as good as", [25.0, 25.1, 24.9], [30.0, 30.1, 29.9], "refuted"),
        ("as good as", [28.0, 29.9], [29.0, 30.1], "undecided"),
        ("equal to", [29.8, 29.9, 29.7], [30.0, 30.1, 29.9], "supported"),
        ("equal to", [33.0, 33.1, 32.9], [30.0, 30.1, 29.9], "refuted"),
        ("equal to", [31.0], [30.0, 30.1], "not tested"),
    ],
)
def test_a_verdict_is_computed_from_the_runs(
    claims: ModuleType, relation: str, left: list[float], right: list[float], word: str
) -> None:
    assert claims.verdict(relation, left, right).startswith(word)

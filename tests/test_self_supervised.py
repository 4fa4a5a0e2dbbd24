"""The recipe self_supervised through its real command line, on the digits of scikit-learn."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from commands import ROOT, steps, train_here, write_config
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated

RECIPE = ROOT / "recipes" / "self_supervised"
SIZES = {"hidden_size": 16, "intermediate_size": 32, "encoder_layers": 1, "num_attention_heads": 2}
TINY: dict[str, Any] = {
    "model": {"model_type": "vaswani_vision", "image_size": 8, "patch_size": 2, **SIZES},
    "dino": {"prototypes": 32, "head_size": 16, "bottleneck_size": 8, "local_crops": 1, "local_size": 4},
    "augmentation": {"shift": 1},
    "evaluation": {"bank_size": 300},
    "training": {**steps(8, 4), "weight_decay": 0.04, "metric_for_best_model": "accuracy", "logging_steps": 4},
}


def tiny_config(folder: Path, **sections: Any) -> Path:
    data = {"dataset": "digits", "split": [0.5, 0.2, 0.3], "train_size": 400}
    return write_config(folder, TINY, {"data": data}, sections)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder))
    return folder


@pytest.mark.variants
def test_images_without_labels(tmp_path: Path) -> None:
    training = {"load_best_model_at_end": False, "metric_for_best_model": None}
    results = train_here(RECIPE, tiny_config(tmp_path, data={"label_column": None}, training=training))
    assert results["metrics"] == {}
    assert results["curve"] == []
    assert "The images have no labels, so the features were not evaluated." in (tmp_path / "run/README.md").read_text()
    assert np.isfinite(results["collapse"]["divergence"])


class TestSelfSupervised(FinishedRun, BadInputs):
    recipe, tiny = "self_supervised", {}
    files: ClassVar[set[str]] = {
        *("config.json", "model.safetensors", "preprocessor_config.json", "fingerprints.safetensors"),
        "modeling_vaswani_vision.py",
    }
    pictures = ("loss_curve.png", "self_distillation.png", "attention.png")
    stated: ClassVar[Stated] = {("accuracy", "accuracy of nearest neighbors (test)"): ("test", "accuracy")}
    bad: ClassVar[list[BadInput]] = [
        ("--augmentation.crop_scale 0.5", "The crops are those of the section dino; remove augmentation.crop_scale"),
        ("--augmentation.mixup 0.5", "mixup and cutmix mix labels, and there are none"),
        ("--data.label_column null", "no checkpoint is the best; write training.load_best_model_at_end: false"),
        ("--averaging.ema 0.9", "moving average of the student already; remove the section averaging"),
        ("--dino.local_scale [0.5]", r"local_scale is \[0.5\]; write the smallest and the largest share"),
        ("--dino.local_size 3", "VaswaniVisionModel cannot read images of dino.local_size 3 pixels"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed.startswith("(2, 16) ")
        assert card.data.to_dict()["pipeline_tag"] == "image-feature-extraction"
        assert "its 20 nearest among 300 training images vote" in card.text
        assert results["metrics"]["test"]["pixels_accuracy"] > 0.8

"""The recipe image_classification: its losses against formulas, and runs through the real command line."""

import json
import math
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, steps, train_here, write_config
from huggingface_hub import ModelCard
from PIL import Image
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from tiny_models import tiny_image_classifier
from transformers import EfficientNetImageProcessorPil, MobileViTImageProcessorPil, TrainingArguments, pipeline

from hfattn import VaswaniVisionConfig, VaswaniVisionForImageClassification
from hfattn.data import ImageAugmentationConfig, ImageCollator, make_processor, read_digits
from hfattn.data.image_encoding import processed
from hfattn.errors import UserError
from hfattn.loading import Loaded
from hfattn.metrics import ImageClassScores, image_class_statistics
from hfattn.predicted_files import open_inputs
from hfattn.predicting import open_predictor, predictions
from hfattn.training import (
    ImageClassifierTrainer,
    ImageDistillationConfig,
    ImageTeacher,
    ImageTeacherConfig,
    TuningConfig,
    distilled_losses,
)

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "image_classification"
MODEL: dict[str, Any] = {
    "model_type": "vaswani_vision", "image_size": 8, "patch_size": 4, "hidden_size": 16, "intermediate_size": 16,
    "encoder_layers": 1, "num_attention_heads": 2,
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "digits", "split": [0.6, 0.2, 0.2]},
    "training": {**steps(20), "per_device_eval_batch_size": 90, "metric_for_best_model": "accuracy"},
    "sample": {"mistakes": 3},
}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder, model=MODEL, augmentation={"shift": 1, "mixup": 0.2}))
    return folder


# Losses


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_distillation_is_the_formula(kind: str) -> None:
    """Of Touvron et al. 2021, section 4, image by image in float64, with labels and with shares of classes."""
    logits, imitating, taught = torch.randn(3, 5, 4, dtype=torch.float64)
    labels = torch.tensor([0, 3, 1, 1, 2])
    config = ImageDistillationConfig(kind=kind)
    alpha, tau = (0.5 if kind == "hard" else 0.1), 3.0
    shares = torch.nn.functional.one_hot(labels, 4).double() * 0.7 + 0.075
    for targets, weights in ((labels, torch.nn.functional.one_hot(labels, 4).double()), (shares, shares)):
        found = distilled_losses(logits, imitating, targets, taught, config)
        for i in range(5):
            right = -sum(weights[i, c] * (logits[i, c] - logits[i].exp().sum().log()) for c in range(4))
            if kind == "hard":
                best = int(taught[i].argmax())
                imitation = imitating[i].exp().sum().log() - imitating[i, best]
            else:
                p, q = ((each[i] / tau).exp() / (each[i] / tau).exp().sum() for each in (taught, imitating))
                imitation = tau**2 * sum(p[c] * (p[c] / q[c]).log() for c in range(4))
            torch.testing.assert_close(found[i], (1 - alpha) * right + alpha * imitation)


def trainer_of(folder: Path, **options: Any) -> ImageClassifierTrainer:
    torch.manual_seed(0)
    fields = {name: value for name, value in MODEL.items() if name != "model_type"}
    model = VaswaniVisionForImageClassification(VaswaniVisionConfig(**fields, num_labels=10, distillation_token=True))
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    arguments = TrainingArguments(str(folder), report_to=[], use_cpu=True)
    return ImageClassifierTrainer(
        model, arguments, source=None, loaded=Loaded(model, []), tuning=TuningConfig(), **options
    )


def test_the_loss_of_a_step_does_not_depend_on_its_batches(tmp_path: Path) -> None:
    """With mixed images too, whose labels the Trainer counts class by class; without a teacher, both heads learn."""
    trainer = trainer_of(tmp_path)
    examples = [{"pixel_values": torch.randn(3, 8, 8), "labels": i % 10, "draw": i} for i in range(4)]
    for augmentation, per_label in ((ImageAugmentationConfig(), 1), (ImageAugmentationConfig(mixup=0.5), 10)):
        collate = ImageCollator(10, augmentation)
        batches = [collate(examples[:2]), collate(examples[2:])]
        model = trainer.model.train()
        expected = torch.cat(
            [
                torch.nn.functional.cross_entropy(getattr(model(batch["pixel_values"]), name), batch["labels"]).reshape(
                    1
                )
                for name in ("cls_logits", "distillation_logits")
                for batch in batches
            ]
        ).mean()
        found = sum(
            trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(4 * per_label))
            for batch in batches
        )
        torch.testing.assert_close(found, expected)


def test_a_teacher_sees_what_its_own_processor_makes(tmp_path: Path) -> None:
    """Of another size and normalization, and with its classes in another order."""
    folder = tiny_image_classifier(tmp_path / "teacher", trained=True)
    config = json.loads((folder / "config.json").read_text())
    names = [str(i) for i in range(10)]
    order = list(reversed(names))
    config["id2label"], config["label2id"] = dict(enumerate(order)), {name: i for i, name in enumerate(order)}
    (folder / "config.json").write_text(json.dumps(config))
    images = [item.image for item in read_digits()][:5]
    small = make_processor((16, 16), (0.2, 0.3, 0.4), (0.9, 0.8, 0.7))
    teacher = ImageTeacher(ImageTeacherConfig(name=str(folder)), names, small)
    pixels = processed(images, make_processor((16, 16), (0.5,) * 3, (0.5,) * 3))
    expected = teacher.model(pixel_values=pixels).logits.flip(-1)
    torch.testing.assert_close(teacher(processed(images, small)), expected, rtol=1e-4, atol=1e-4)
    assert teacher(torch.zeros(2, 3, 8, 8)).shape == (2, 10)


def test_a_teacher_of_other_channels_and_another_scale_sees_its_own_colors(tmp_path: Path) -> None:
    """A student from scratch learns from a MobileViT, and one that starts from a MobileViT from an EfficientNet."""
    folder, names = tiny_image_classifier(tmp_path / "teacher", trained=True), [str(i) for i in range(10)]
    size = {"height": 16, "width": 16}
    own = make_processor((16, 16), (0.2, 0.3, 0.4), (0.9, 0.8, 0.7))
    flipped = MobileViTImageProcessorPil(size=size, do_center_crop=False)
    offset = EfficientNetImageProcessorPil(size=size, rescale_factor=1 / 127.5, rescale_offset=True, include_top=False)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8))
    for student, taught in ((own, flipped), (flipped, offset), (flipped, flipped)):
        taught.save_pretrained(folder)
        teacher = ImageTeacher(ImageTeacherConfig(name=str(folder)), names, student)
        expected = teacher.model(pixel_values=processed([image], taught)).logits
        torch.testing.assert_close(teacher(processed([image], student)), expected, rtol=1e-4, atol=1e-4)


def test_top_five_over_batches() -> None:
    scores = ImageClassScores()
    logits = torch.randn(40, 12, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(40) % 12
    from transformers import EvalPrediction

    for start, last in ((0, False), (25, True)):
        part = slice(start, 25 if start == 0 else 40)
        statistics = tuple(each.numpy() for each in image_class_statistics(logits[part], labels[part]))
        found = scores(EvalPrediction(predictions=statistics, label_ids=labels[part].numpy()), last)
    expected = np.mean([labels[i] in logits[i].argsort(descending=True)[:5] for i in range(40)])
    assert found["top5_accuracy"] == pytest.approx(expected)
    assert found["examples"] == 40


# Runs


def test_the_published_folder_classifies_in_a_pipeline_and_in_predict(finished: Path, tmp_path: Path) -> None:
    """The same classes, from the file of one image and from a folder."""
    run = finished / "run"
    for i, item in enumerate(read_digits().items[:3]):
        Image.fromarray(np.asarray(item.image)).save(tmp_path / f"{i}.png")
    classify = pipeline("image-classification", model=str(run))
    expected = [classify(str(tmp_path / f"{i}.png"), top_k=1)[0] for i in range(3)]
    predictor = open_predictor(str(run))
    inputs = open_inputs(predictor, str(tmp_path))
    found = list(predictions(predictor, (inputs.parts(predictor, row) for row in inputs.rows)))
    assert [each["label"] for each in found] == [each["label"] for each in expected]
    assert [each["probability"] for each in found] == pytest.approx([each["score"] for each in expected], abs=1e-5)
    (single,) = predictions(predictor, [str(tmp_path / "1.png")])
    assert single["label"] == expected[1]["label"]
    (tmp_path / "2.png").write_bytes(b"")
    with pytest.raises(UserError, match=f"^The image {re.escape(str(tmp_path / '2.png'))} is not an image in the"):
        list(predictions(predictor, (inputs.parts(predictor, row) for row in inputs.rows)))


def test_predict_reads_transparent_pixels_as_training_did(tmp_path: Path) -> None:
    """A white disk and a black one on transparent ground: on black, only the first can be seen, on white the second."""
    folder, random = tmp_path / "images", np.random.default_rng(0)
    for name, value in (("white", 255), ("black", 0)):
        (folder / name).mkdir(parents=True)
        for i in range(40):
            pixels = np.zeros((8, 8, 4), np.uint8)
            x, y = random.integers(0, 5, 2)
            pixels[y : y + 4, x : x + 4] = (value, value, value, 255)
            Image.fromarray(pixels).save(folder / name / f"{i}.png")
    data = {"dataset": str(folder), "background": [0, 0, 0], "split": [0.8, 0.1, 0.1]}
    training = {**steps(40), "learning_rate": 1e-2}
    results = train_here(RECIPE, tiny_config(tmp_path, data=data, model=MODEL, training=training))
    assert results["metrics"]["test"]["accuracy"] == 1
    predictor = open_predictor(str(tmp_path / "run"))
    for name in ("white", "black"):
        found = predictions(predictor, [str(path) for path in sorted((folder / name).iterdir())])
        assert {each["label"] for each in found} == {name}
    card = (tmp_path / "run" / "README.md").read_text()
    assert "transparent pixels had the color [0, 0, 0] (red, green, blue)" in card


def test_a_student_and_frozen_features(tmp_path: Path) -> None:
    """A run with a teacher states its accuracy; one with frozen features that of neighbors, and trains the head."""
    teacher = tiny_image_classifier(tmp_path / "teacher", trained=True)
    config = tiny_config(tmp_path, model={**MODEL, "distillation_token": True}, training=steps(2))
    results = train_here(RECIPE, config, "--teacher.name", teacher, to="student")
    assert results["metrics"]["test"]["teacher_accuracy"] > 0.9
    assert results["teacher"]["model_type"] == "resnet"
    assert "from a teacher, `teacher` (`resnet`" in (tmp_path / "student" / "README.md").read_text()

    body = tiny_image_classifier(tmp_path / "body", trained=False)
    frozen = tiny_config(tmp_path, model={"name": str(body)}, frozen=True, tuning={"method": "head_only"},
                         evaluation={"neighbors": 5}, training=steps(2))  # fmt: skip
    results = train_here(RECIPE, frozen, to="frozen")
    assert 0.5 < results["metrics"]["test"]["knn_accuracy"] <= 1
    assert results["model"]["trained_parameters"] == 10 * (2 * 32 + 1)
    kept = {path.name for path in (tmp_path / "frozen").rglob("*.safetensors") if path.parent.name == "features"}
    assert kept == {"train.safetensors", "validation.safetensors", "test.safetensors"}


def test_a_pretrained_model_keeps_its_processor_with_another_size(tmp_path: Path) -> None:
    """Red and blue images, told apart by the channels in the order of the processor, in training as in the test."""
    images, body = tmp_path / "images", tiny_image_classifier(tmp_path / "body", trained=True)
    crop = {"height": 32, "width": 32}
    MobileViTImageProcessorPil(size={"shortest_edge": 40}, crop_size=crop).save_pretrained(body)
    random = np.random.default_rng(0)
    for label, channel in (("red", 0), ("blue", 2)):
        (images / label).mkdir(parents=True)
        for i in range(40):
            pixels = random.integers(0, 30, (12, 16, 3), dtype=np.uint8)
            pixels[..., channel] += 200
            Image.fromarray(pixels).save(images / label / f"{i}.png")
    results = train_here(
        RECIPE,
        tiny_config(tmp_path, data={"dataset": str(images), "image_size": 16}, augmentation={"flip": 0.5},
                    model={"name": str(body)}, training={**steps(20), "learning_rate": 1e-2}),
    )  # fmt: skip
    assert results["metrics"]["test"]["accuracy"] == 1
    saved = json.loads((tmp_path / "run" / "preprocessor_config.json").read_text())
    assert (saved["do_flip_channel_order"], saved["resample"], saved["size"]) == (
        True, 3, {"height": 16, "width": 16},
    )  # fmt: skip


class TestImageClassification(FinishedRun, BadInputs):
    recipe, tiny = "image_classification", {"model": MODEL}
    files: ClassVar[set[str]] = {
        "config.json", "model.safetensors", "preprocessor_config.json", "modeling_vaswani_vision.py",
    }  # fmt: skip
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "confusion.png", "mistakes.png")
    stated: ClassVar[Stated] = {
        ("accuracy", "accuracy (test)"): ("test", "accuracy"),
        ("f1", "F1 (test)"): ("test", "f1"),
    }
    bad: ClassVar[list[BadInput]] = [
        ("--data.label_column null", "label_column is null, so nothing says the class of an image; name its column"),
        ("--frozen true", "frozen trains the head of a pretrained model; write tuning.method: head_only"),
        ("--evaluation.neighbors 5", "compares frozen features; write frozen: true, or 0"),
        ("--distillation.kind soft", "distillation needs a teacher; write teacher.name"),
        ("--distillation.kind warm", "kind is 'warm'; write one of hard, soft"),
        ("--teacher.revision main", "teacher: name is empty"),
        ("--model.patch_size 3", "image_size 8 does not divide into patches of 3 pixels"),
        ("--model.id2label {}", "model.id2label follows from the data; leave it out"),
        ("--model.num_labels 3", "model.num_labels follows from the data; leave it out"),
        (
            "--model '{model_type: resnet, depths: [1], hidden_sizes: [8]}'",
            "reads images of any size; write data.image_size",
        ),
        ("--data.image_size 12", "does not read images of .*write another data.image_size, or null"),
        ("--data.image_size [8]", r"image_size is \[8\]; write a number of pixels"),
        ("--evaluation.columns [place]", "place"),
        ("--data.dataset no_images", "The dataset no_images does not load"),
        ("--augmentation.flip 2", "flip is 2; write a number from 0 to 1"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert printed.strip() in results["data"]["labels"]
        assert math.isclose(results["metrics"]["test"]["examples"], 359, abs_tol=2)
        for words in ("trained from scratch", "top-5 accuracy", "It assigns one of its classes to any image"):
            assert words in card.text

"""The recipe image_captioning: scenes, their captions, and runs through the real command line."""

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config
from datasets import Dataset
from huggingface_hub import ModelCard
from PIL import Image
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from transformers import Dinov2Model, pipeline
from typer.testing import CliRunner

from hfattn import VaswaniVisionModel
from hfattn.data import CaptionedImages, SceneDataConfig, make_processor
from hfattn.data.scenes import PARTS
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.loading import load_captioner
from hfattn_cli import app

RECIPE = ROOT / "recipes" / "image_captioning"
NAMES = {"en": ("a red ball", "a blue box", "an egg"), "es": ("una pelota roja", "una caja azul", "un huevo")}
COLORS = ((255, 0, 0), (0, 0, 255), (240, 230, 200))


def stamps(folder: Path) -> Path:
    """Three things with an alpha channel, a drawing, and one with a caption that tells a story."""
    rows: dict[str, list[Any]] = {"image": [], "cartoon": [], "en": [], "es": []}
    for number in range(5):
        pixels = np.zeros((20, 30, 4), np.uint8)
        pixels[2:-2, 3:-3] = (*COLORS[number % 3], 255)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "PNG")
        rows["image"].append(file.getvalue())
        rows["cartoon"].append(number == 3)
        for language, names in NAMES.items():
            caption = names[number % 3]
            rows[language].append("It is a long story." if number == 4 else f"{caption[0].upper()}{caption[1:]}.")
    path = folder / "stamps.parquet"
    Dataset.from_dict(rows).to_parquet(str(path))
    return path


def digits(**fields: Any) -> dict[str, CaptionedImages]:
    sizes = {"examples": 40, "evaluation_examples": 20, "image_size": 40}
    return SceneDataConfig(dataset="digit_scenes", **{**sizes, **fields}).read_parts(1)


# Scenes


@pytest.mark.parametrize("numbers", [[2], [3], [4]])
def test_a_scene_names_its_things_in_a_fixed_order_and_knows_where_they_are(numbers: list[int]) -> None:
    for item in digits(numbers=numbers)["train"]:
        objects, words = item.fields["objects"], item.text.split()
        assert len(objects) == numbers[0]
        for thing in objects:
            first, last = thing.words
            assert words[first - 1] in ("a", "an")
            assert first == last
            region = thing.region(40, 40)
            assert np.asarray(item.image)[region].min() > 127  # what covers the background
            assert region.sum() == thing.mask.sum() > 0
        middles = [(top + height / 2, left + width / 2) for top, left, height, width in (o.box for o in objects)]
        across, down = (all(a[axis] < b[axis] for a, b in pairwise(middles)) for axis in (1, 0))
        if numbers == [4]:
            assert middles[0][1] < middles[1][1]
            assert middles[2][1] < middles[3][1]
            assert max(middles[0][0], middles[1][0]) < min(middles[2][0], middles[3][0])
        else:
            assert across if "left" in words or "row" in words else down


def test_no_digit_is_in_two_parts_and_the_seed_decides_the_scenes() -> None:
    parts, again = digits(), digits()
    other = SceneDataConfig(dataset="digit_scenes", examples=40, evaluation_examples=1, image_size=40).read_parts(2)
    assert [parts[part].fingerprint for part in PARTS] == [again[part].fingerprint for part in PARTS]
    assert parts["train"].fingerprint != other["train"].fingerprint
    assert [len(parts[part]) for part in PARTS] == [40, 20, 20]
    spanish = digits(language="es")["train"].items[0]
    assert spanish.text.split()[0] == "un"
    assert np.array_equal(np.asarray(spanish.image), np.asarray(parts["train"].items[0].image))


def test_stamps_are_in_all_parts_and_their_compositions_in_one(tmp_path: Path) -> None:
    fields: dict[str, Any] = {
        "dataset": "stamp_scenes",
        "things": str(stamps(tmp_path)),
        "examples": 60,
        "evaluation_examples": 20,
    }
    options: dict[str, Any] = {"numbers": [3], "image_size": 48, "scene_background": "clutter"}
    english, spanish = (SceneDataConfig(**fields, **options, language=each).read_parts(1) for each in ("en", "es"))
    captions = {part: {item.text for item in english[part]} for part in PARTS}
    assert not captions["train"] & captions["test"]
    assert not captions["validation"] & captions["test"]
    words = {word for part in PARTS for text in captions[part] for word in text.split()}
    assert words == {*"a red ball blue box an egg and in row column".split()}  # noqa: SIM905
    for one, two in zip(english["test"], spanish["test"], strict=True):
        assert np.array_equal(np.asarray(one.image), np.asarray(two.image))
        named = [" ".join(two.text.split()[o.words[0] : o.words[1] + 1]) for o in two.fields["objects"]]
        assert all(any(each in name for name in NAMES["es"]) for each in named)


# Runs


TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "digit_scenes", "examples": 64, "evaluation_examples": 12, "image_size": 24, "max_length": 9},
    "tokenizer": {"kind": "word"},
    "model": {
        "model_type": "show_attend_tell",
        "embedding_size": 8,
        "hidden_size": 8,
        "annotation_size": 8,
        "channels": [4, 8],
    },
    "training": {**steps(4, 2), "per_device_eval_batch_size": 5, "metric_for_best_model": "exact_match"},
    "evaluation": {"num_beams": 2},
    "sample": {"images": 1, "mistakes": 2},
    "publish": {"public_data": "digit_scenes"},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, write_config(folder, TINY))
    return folder


class TestImageCaptioning(FinishedRun, BadInputs):
    recipe = "image_captioning"
    bad: ClassVar[list[BadInput]] = [
        ("--data.numbers [5]", r"numbers is \[5\]; write numbers of things from 2 to 4"),
        ("--data.scale [1]", r"scale is \[1.*\]; write two shares from 0.1 to 1"),
        ("--data.dataset stamp_scenes", "stamp_scenes are drawn from a dataset; write its path in things"),
        ("--data.max_length 3", "data.max_length, which is 3"),
        ("--model.model_type bahdanau", "model.model_type is 'bahdanau'; write show_attend_tell"),
        ("--model.freeze_vision true", "model.freeze_vision keeps a pretrained encoder as it is; write vision.name"),
        ("--training.label_smoothing_factor 0.1", "label_smoothing_factor would leave out the terms of the attention"),
        (
            "--tokenizer '{kind: bpe, vocab_size: 300, sampling: 0.1}'",
            "encoded once, before training; remove tokeni",
        ),
        ("--augmentation.mixup 0.2", "mixup and cutmix mix classes, and an image has a caption here; write 0"),
    ]
    files: ClassVar[set[str]] = {
        *FinishedRun.files,
        "preprocessor_config.json",
        "modeling_show_attend_tell.py",
        "caption-1.html",
        "example.webp",
    }
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "caption-1.png")
    stated: ClassVar[Stated] = {
        ("exact_match", "exact match (test)"): ("test", "exact_match"),
        ("bleu", "BLEU (test)"): ("test", "bleu"),
    }

    @pytest.fixture
    def configure(self) -> Configure:
        return lambda folder, **fields: write_config(folder, TINY, fields)

    def test_evaluate_refuses_it_in_a_sentence(self, finished: Path, tmp_path: Path) -> None:
        (tmp_path / "rows.tsv").write_text("image\ttext\na.png\tb\n")
        with pytest.raises(UserError, match="reads images, which has no measure here; its recipe measures it"):
            evaluate_folder(str(finished / "run"), str(tmp_path / "rows.tsv"))

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert card.data.to_dict()["pipeline_tag"] == "image-to-text"
        assert printed.strip() == results["captions"][0]["caption"].strip()
        test = results["metrics"]["test"]
        assert f"| test | {test['exact_match']:.4f} |" in card.text
        assert 0 < test["area"] < 0.5
        assert test["doubly_stochastic"] >= test["doubly_stochastic_floor"]


def test_images_are_captioned_on_the_command_line(finished: Path, tmp_path: Path) -> None:
    run = finished / "run"
    picture, page = run / "example.webp", tmp_path / "page.html"
    done = CliRunner().invoke(app, ["caption", str(run), str(picture), "--output", str(page)])
    assert done.exit_code == 0, done.output
    caption = results_of(run)["captions"][0]["caption"]
    assert done.output.strip() == caption.strip()
    assert all(word in page.read_text() for word in caption.split())
    two = CliRunner().invoke(app, ["caption", str(run), str(picture), str(picture), "--output", str(page)])
    assert two.exit_code == 2
    missing = CliRunner().invoke(app, ["caption", str(run), "nothing.png"])
    assert "There is no file nothing.png; give the path of an image." in missing.output


def test_the_pipeline_puts_transparent_images_on_the_color_of_training(finished: Path) -> None:
    captioner = pipeline("image-captioning", model=str(finished / "run"), trust_remote_code=True)
    clear, opaque = Image.new("RGBA", (9, 9), (255, 0, 0, 0)), Image.new("RGBA", (9, 9), (255, 0, 0, 255))
    for color in ((255, 255, 255), (10, 20, 30)):
        captioner.image_processor.background = list(color)
        for image, seen in ((clear, color), (opaque, (255, 0, 0))):
            expected = captioner.preprocess(Image.new("RGB", (9, 9), seen))["pixel_values"]
            assert captioner.preprocess(image)["pixel_values"].equal(expected)
    assert json.loads((finished / "run" / "preprocessor_config.json").read_text())["background"] == [255, 255, 255]


@pytest.mark.parametrize("kind", [Dinov2Model, VaswaniVisionModel])
def test_a_frozen_encoder_is_read_once_and_own_images_are_captioned(tmp_path: Path, kind: Any) -> None:
    """A run on a folder of images, with the features of a pretrained encoder, writes the captions of its pipeline."""
    encoder = tmp_path / "encoder"
    sizes = {"hidden_size": 8, "num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    theirs, ours = {"num_hidden_layers": 1, "mlp_ratio": 1}, {"encoder_layers": 1, "intermediate_size": 8}
    own = theirs if kind is Dinov2Model else ours
    torch.manual_seed(0)
    kind(kind.config_class(**sizes, **own)).save_pretrained(encoder)
    make_processor((16, 16), (0.5,) * 3, (0.5,) * 3).save_pretrained(encoder)
    images, lines = tmp_path / "images", ["file_name,caption"]
    images.mkdir()
    for number in range(24):
        color = COLORS[number % 3]
        Image.new("RGB", (20 + number, 16), color).save(images / f"{number}.png")
        lines.append(f"{number}.png,{NAMES['en'][number % 3]}")
    (images / "metadata.csv").write_text("\n".join(lines) + "\n")
    data = {"dataset": str(images), "split": [0.5, 0.25, 0.25], "image_size": 16}
    fields = {
        "data": data,
        "vision": {"name": str(encoder)},
        "model": {"freeze_vision": True},
        "features": str(tmp_path / "features"),
        "evaluation": {"num_beams": None},
        "publish": {"public_data": None},
    }
    results = train_here(RECIPE, write_config(tmp_path, TINY, fields))
    assert len(list((tmp_path / "features").glob("*.npy"))) == 3
    assert "pointing" not in results["metrics"]["test"]
    assert results["model"]["frozen"]
    assert results["model"]["trained_parameters"] < results["model"]["parameters"]
    assert results["example"] is None  # these images are not public
    model, *_ = load_captioner(str(tmp_path / "run"))
    weights = kind.from_pretrained(encoder).state_dict()
    trained = model.get_encoder().vision_model.state_dict()
    assert all(torch.equal(trained[name], tensor) for name, tensor in weights.items())

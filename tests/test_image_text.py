"""The recipe image_text: its data, locked towers, search, and runs through the real command line."""

import gc
import io
import sys
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import pytest
import torch
from commands import ROOT, run, steps, train_here, write_config
from huggingface_hub import ModelCard
from PIL import Image
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from tiny_models import tiny_image_model, tiny_model
from transformers import PreTrainedModel
from typer.testing import CliRunner

from hfattn.data import ImageTextDataConfig, text_groups, text_numbers
from hfattn.data.digits import SPANISH_WORDS, WORDS
from hfattn.data.images import CaptionedImage, digest
from hfattn.errors import UserError
from hfattn.metrics import retrieval_scores
from hfattn.resources import load_recipe
from hfattn.retrieval import embed_images, embed_texts, load_dual_encoder, search_images
from hfattn.training import load_config, whiten_images
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "image_text"
SIZES = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "digits", "split": [0.2, 0.05, 0.75], "max_length": 8},
    "tokenizer": {"kind": "word"},
    "vision": {"model_type": "vit", "patch_size": 4, **SIZES},
    "text": {"model_type": "bert", "max_position_embeddings": 16, **SIZES},
    "model": {"projection_dim": 8, "image_size": 8},
    "training": {**steps(20, 10), "per_device_eval_batch_size": 128, "metric_for_best_model": "recall_at_1"},
    "sample": {"mistakes": 3},
}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, fields)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder))
    return folder


def drawings(path: Path, texts: int = 12) -> Path:
    """Each text has three drawings: a square of its color, large, small, and on a gray ground."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(texts):
        color = tuple(int(each) for each in random.integers(0, 256, 3))
        row: dict[str, Any] = {"name": f"{WORDS[i % 10]} {WORDS[i // 10]}"}
        for column, side, ground in (("large", 12, "white"), ("small", 6, "white"), ("gray", 9, "#888888")):
            image, file = Image.new("RGB", (16, 16), ground), io.BytesIO()
            image.paste(color, (2, 2, 2 + side, 2 + side))
            image.save(file, "PNG")
            row[column] = {"bytes": file.getvalue(), "path": None}
        rows.append(row)
    kinds: dict[str, Any] = {"name": datasets.Value("string")} | dict.fromkeys(
        ("large", "small", "gray"), datasets.Image()
    )
    datasets.Dataset.from_list(rows, datasets.Features(kinds)).to_parquet(str(path))
    return path


def test_towers_of_hfattn_are_trained_and_published(tmp_path: Path) -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "encoder_layers": 1, "num_attention_heads": 2}
    towers = {
        "vision": {"model_type": "vaswani_vision", "patch_size": 4, **sizes},
        "text": {"model_type": "rnn_encoder", "embedding_size": 8, "hidden_size": 8},
    }
    training = {"training": {"max_steps": 60, "learning_rate": 1e-2}}
    results = train_here(RECIPE, write_config(tmp_path, TINY, towers, training))
    assert results["metrics"]["test"]["recall_at_1"] > 0.2  # of ten names
    saved = {path.name for path in (tmp_path / "run").glob("*.py")}
    assert {"modeling_vaswani_vision.py", "modeling_rnn_encoder.py"} <= saved
    done = run([sys.executable, "-m", "hfattn", "verify", tmp_path / "run"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_of_own_data_passes_verify(tmp_path: Path) -> None:
    """The example of private texts is a dozen words; the template of the pipeline adds more than the model reads."""
    data = {"dataset": str(drawings(tmp_path / "a.parquet", 40)), "image_columns": ["large"], "text_column": "name"}
    train_here(RECIPE, tiny_config(tmp_path, data={**data, "split": [0.7, 0.15, 0.15]}, training=steps(2)))
    done = run([sys.executable, "-m", "hfattn", "verify", tmp_path / "run"])
    assert done.returncode == 0, done.stdout + done.stderr


# Data


def test_a_text_of_an_image_is_right_for_the_others_of_its_group() -> None:
    """Two languages: each row gives one example a language, and both names are right for all drawings of a thing."""
    red, blue = (np.full((2, 2, 3), color, np.uint8) for color in ((255, 0, 0), (0, 0, 255)))
    pairs = [(red, "red"), (blue, "blue"), (red, "rojo"), (blue, "azul"), (red + 1, "rojo"), (blue - 1, "green")]
    images = [CaptionedImage(image, text) for image, text in pairs]
    texts, numbers = text_numbers(images)
    groups = text_groups(images)
    assert texts == ["red", "blue", "rojo", "azul", "green"]
    assert groups[0] == groups[2]
    assert groups[1] == groups[3]
    assert len(set(groups.tolist())) == 3
    vectors = np.eye(5)
    found = retrieval_scores(vectors[[2, 3, 0, 1, 2, 4]], vectors, groups[numbers], groups)
    assert found["recall_at_1"] == found["text_to_image_recall_at_1"] == 1


def test_columns_of_texts_are_names_of_the_same_image(tmp_path: Path) -> None:
    path = drawings(tmp_path / "a.parquet")
    rows = datasets.Dataset.from_parquet(str(path)).map(lambda row: {"es": f"es {row['name']}"})
    rows.to_parquet(str(path))
    config = ImageTextDataConfig(
        dataset=str(path), image_columns=["large", "gray"], text_columns=["name", "es"], split=[0.5, 0.25, 0.25]
    )
    parts = config.read_parts(1)
    assert sum(map(len, parts.values())) == 12 * 2 * 2
    for images in parts.values():
        names = {digest(item.image): set[str]() for item in images}
        for item in images:
            names[digest(item.image)].add(item.text)
        assert all(len(each) == 2 and any(text.startswith("es ") for text in each) for each in names.values())
    digits = ImageTextDataConfig(dataset="digits", text_columns=["en", "es"]).read_parts(1)
    assert {item.text for item in digits["train"]} == {*WORDS, *SPANISH_WORDS}
    with pytest.raises(UserError, match="The digits have no names in 'fr'; write en, es, or both"):
        ImageTextDataConfig(dataset="digits", text_columns=["fr"]).read_parts(1)


def test_each_column_of_images_is_tested_in_turn(tmp_path: Path) -> None:
    """Training and validation have the other columns; a text of the test is in training with other drawings."""
    columns = ["large", "small", "gray"]
    for fold, tested in enumerate(columns, 1):
        data = ImageTextDataConfig(
            dataset=str(drawings(tmp_path / "a.parquet")), image_columns=columns, text_column="name", folds=3, fold=fold
        )
        parts = data.read_parts(1)
        styles = {part: {item.fields["image_column"] for item in images} for part, images in parts.items()}
        assert styles["test"] == {tested}
        assert styles["train"] == {*columns} - {tested}
        assert tested not in styles["validation"]
        assert [len(parts[part]) for part in ("train", "validation", "test")] == [21, 3, 12]
    with pytest.raises(Exception, match="folds is 2, and each of the 3 image_columns is a fold; write folds: 3"):
        ImageTextDataConfig(dataset="a", image_columns=columns, folds=2)


# Locked towers


@pytest.mark.parametrize("kind", ["total", "within"])
def test_whitened_images_have_the_covariance_of_the_formula(finished: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    texts = np.repeat(np.arange(20), 3)
    features = random.normal(size=(60, 16)) @ random.normal(size=(16, 16)) + random.normal(size=(20, 16))[texts] * 3
    model, *_ = load_dual_encoder(str(finished / "run"))
    whiten_images(model, features.astype(np.float32), texts, kind)
    about = features - features.mean(0)
    if kind == "within":
        about = features - np.stack([features[texts == number].mean(0) for number in texts])
    covariance = sum(np.outer(row, row) for row in about) / (59 if kind == "total" else 40)
    covariance += 0.1 * np.trace(covariance) / 16 * np.eye(16)
    weight = model.visual_projection.weight.detach().double().numpy()
    assert np.allclose(weight @ covariance @ weight.T, np.eye(8), atol=1e-4)
    projected = model.visual_projection(torch.tensor(features, dtype=torch.float32)).detach()
    assert np.allclose(projected.mean(0), 0, atol=1e-4)
    spread = np.cov(projected.T.numpy())
    assert np.allclose(spread, np.diag(np.diag(spread)), atol=1e-3)
    assert not model.visual_projection.weight.requires_grad


def test_locked_towers_are_read_once_and_stay_as_they_were(tmp_path: Path) -> None:
    vision, text = tiny_image_model(tmp_path / "vision"), tiny_model(tmp_path / "text", "bert", WORDS)
    features, columns = tmp_path / "features", ["large", "small", "gray"]
    data = {"dataset": str(drawings(tmp_path / "a.parquet")), "image_columns": columns, "text_column": "name"}
    joined = {"projection_dim": 8, "text_hidden_size": 16, "image_size": 14, "features": str(features)}
    config = write_config(
        tmp_path,
        {
            "data": {**data, "folds": 3, "fold": 3},
            "vision": {"name": str(vision)},
            "text": {"name": str(text)},
            "model": {**joined, "locked": ["vision", "text"], "whiten": "within"},
            "training": steps(4, 2),
        },
    )
    results = train_here(RECIPE, config)
    (kept,) = features.iterdir()
    assert np.load(kept).shape == (36, 32)
    assert results["model"]["towers"]["vision"]["base_model"] == "vision"
    assert results["model"]["trained_parameters"] < 2000
    model, tokenizer, processor = load_dual_encoder(str(tmp_path / "run"))
    data = load_config(load_recipe(RECIPE / "train.py").Config, config).data
    test = data.read_parts(1)["test"]
    images = embed_images(model, processor, [item.image for item in test])
    texts = embed_texts(model, tokenizer, [item.text for item in test])
    right = sum(int(row.argmax()) == i for i, row in enumerate(images @ texts.T))
    assert results["metrics"]["test"]["recall_at_1"] == pytest.approx(right / 12)


# Runs


def test_search_lists_the_nearest_images(finished: Path, tmp_path: Path) -> None:
    model, tokenizer, processor = load_dual_encoder(str(finished / "run"))
    (tmp_path / "inner").mkdir()
    paths = [tmp_path / "a.png", tmp_path / "inner" / "b.PNG", tmp_path / "c.webp"]
    for i, path in enumerate(paths):
        Image.new("RGB", (9, 9), (80 * i, 40, 200 - 80 * i)).save(path)
    (tmp_path / "notes.txt").write_text("seven")
    cosines = embed_images(model, processor, paths) @ embed_texts(model, tokenizer, ["seven"])[0]
    best = cosines.argsort(descending=True)[:2].tolist()
    done = CliRunner().invoke(app, ["search", str(finished / "run"), "seven", str(tmp_path), "--number", "2"])
    assert done.output == "".join(f"{cosines[i]:.3f}  {paths[i]}\n" for i in best)
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "empty.png").touch()
    for words, message in (
        (["seven", str(tmp_path)], f"The image {tmp_path / 'damaged' / 'empty.png'} is not an image in the format"),
        (["", str(tmp_path)], "The text to look for is empty"),
        (["seven", str(tmp_path / "notes.txt")], "a dual encoder searches a folder of images"),
        (["seven", str(tmp_path / "nothing")], "nothing is not a file; give a text file"),
        (["seven", str(tmp_path), "--index", str(tmp_path / "a")], "--index keeps the vectors of sentences"),
        (["seven", str(finished / "run" / "checkpoints")], "has no images"),
    ):
        refused = CliRunner().invoke(app, ["search", str(finished / "run"), *words])
        assert refused.exit_code == 2
        assert message in refused.output


def test_search_keeps_no_image_that_is_embedded(finished: Path, tmp_path: Path) -> None:
    for i in range(3):
        Image.new("RGB", (9, 9), (80 * i, 40, 40)).save(tmp_path / f"{i}.png")
    opened: list[int] = []

    def count(module: torch.nn.Module, *_: Any) -> None:
        if isinstance(module, PreTrainedModel):
            opened.append(sum(issubclass(type(each), Image.Image) for each in gc.get_objects()))

    before = sum(issubclass(type(each), Image.Image) for each in gc.get_objects())
    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        assert len(search_images(str(finished / "run"), "seven", tmp_path)) == 3
    finally:
        handle.remove()
    assert opened
    assert max(opened) <= before


class TestImageText(FinishedRun, BadInputs):
    recipe = "image_text"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_dual_encoder.py", "preprocessor_config.json"}
    stated: ClassVar[Stated] = {("recall_at_1", "R@1 (test)"): ("test", "recall_at_1")}
    bad: ClassVar[list[BadInput]] = [
        ("--model.locked [vision]", "model.locked has vision, which is from scratch; write vision.name"),
        ("--model.locked [image]", "locked has 'image'; write vision, text, or both"),
        ("--model.whiten total", "whiten is for a locked image tower; add vision to locked"),
        ("--model.image_size null", "needs the size of its images; write model.image_size"),
        ("--augmentation.mixup 0.2", "mixup and cutmix mix classes, and an image has a text here; write 0"),
        ("--vision.patch_sise 2", "vision.patch_sise"),
        ("--text.vocab_size 9", "text.vocab_size follows from the data; leave it out"),
        ("--sample.template word", "template is 'word'; write a sentence with one"),
        ("--model.loss triplet", "loss is 'triplet'; write"),
    ]

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        texts = results["example"]["texts"]
        assert [line.split(" ", 1)[1] for line in printed.splitlines()] == texts
        assert set(texts) <= {*WORDS}
        for words in ("a `vit` model from scratch", "| part | R@1 |", "the loss of CLIP"):
            assert words in card.text

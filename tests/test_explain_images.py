"""Attention and saliency of images: against what the models return, and against loops."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    DeiTConfig,
    DeiTForImageClassification,
    Dinov2Config,
    Dinov2Model,
    Dinov2WithRegistersConfig,
    Dinov2WithRegistersModel,
    SwinConfig,
    SwinModel,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)
from typer.testing import CliRunner, Result

import hfattn
from hfattn import (
    ShowAttendTellConfig,
    ShowAttendTellForConditionalGeneration,
    VaswaniVisionConfig,
    VaswaniVisionForImageClassification,
)
from hfattn.data import open_image
from hfattn.errors import UserError
from hfattn.explaining import (
    AttentionRecord,
    ScoredImage,
    caption_saliency,
    image_attention,
    image_saliency,
    seen_image,
)
from hfattn.explaining.images import from_patches, to_patches
from hfattn.loading import load_captioner
from hfattn.pipelines import captions
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

SIZES: dict[str, Any] = {
    "image_size": 8, "patch_size": 4, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 8, "mlp_ratio": 1,
}  # fmt: skip
LABELS = {0: "cat", 1: "dog", 2: "bird"}
FAMILIES: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "vit": (ViTForImageClassification, ViTConfig, ("[CLS]",)),
    "deit": (DeiTForImageClassification, DeiTConfig, ("[CLS]", "[DIST]")),
    "dinov2": (Dinov2Model, Dinov2Config, ("[CLS]",)),
    "registers": (
        Dinov2WithRegistersModel,
        Dinov2WithRegistersConfig,
        ("[CLS]", "[REG1]", "[REG2]", "[REG3]", "[REG4]"),
    ),
}


def make(name: str, **options: Any) -> Any:
    torch.manual_seed(0)
    model_class, config_class, _ = FAMILIES[name]
    sizes = {key: value for key, value in SIZES.items() if key in config_class().to_dict()}
    model = model_class(config_class(**sizes, id2label=LABELS, **options)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    return model


PIXELS = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1)).double()


@pytest.mark.parametrize("name", FAMILIES)
def test_attention_of_each_family(name: str) -> None:
    model, names = make(name), FAMILIES[name][2]
    record = image_attention(name, model, PIXELS)
    assert record.tokens == (*names, "0,0", "0,1", "1,0", "1,1")
    assert (record.grid, record.num_prefix_tokens, record.kind) == ((2, 2), len(names), "self")
    with torch.no_grad():
        known = model(PIXELS, output_attentions=True).attentions
    torch.testing.assert_close(record.weights, torch.stack([layer[0] for layer in known]))
    assert model.config._attn_implementation == "eager"


def test_a_model_without_patches_is_refused() -> None:
    torch.manual_seed(0)
    config = SwinConfig(image_size=16, patch_size=4, embed_dim=4, depths=[1], num_heads=[1], window_size=2)
    with pytest.raises(UserError, match=r"swins attends to 4 tokens, which are not the 4 x 4 patches"):
        image_attention("swins", SwinModel(config), torch.randn(1, 3, 16, 16))


def log_odds(model: Any, pixels: torch.Tensor, number: int) -> torch.Tensor:
    shares = model(pixel_values=pixels).logits[0].softmax(-1)
    return (shares[number] / (1 - shares[number])).log()


def test_scores_of_patches_are_those_of_their_pixels() -> None:
    model = make("vit")
    with torch.no_grad():
        number = int(model(PIXELS).logits.argmax())
    pixels = PIXELS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(log_odds(model, pixels, number), pixels)
    scored = image_saliency(model, PIXELS)
    hidden = image_saliency(model, PIXELS, method="occlusion", target=LABELS[number])
    assert (scored.target, scored.heading) == (LABELS[number], f"gradient × input → {LABELS[number]}")
    for row in range(2):
        for column in range(2):
            total = 0.0
            without = PIXELS.clone()
            for y in range(4 * row, 4 * row + 4):
                for x in range(4 * column, 4 * column + 4):
                    for channel in range(3):
                        total += float(PIXELS[0, channel, y, x] * gradient[0, channel, y, x])
                        without[0, channel, y, x] = 0
            assert float(scored.scores[row, column]) == pytest.approx(total, rel=1e-9)
            with torch.no_grad():
                change = log_odds(model, PIXELS, number) - log_odds(model, without, number)
            assert float(hidden.scores[row, column]) == pytest.approx(float(change), rel=1e-9)

    complete = image_saliency(model, PIXELS, method="integrated_gradients", target=1, contrast="cat", grid=(4, 2))
    assert complete.gap == pytest.approx(0, abs=1e-3)
    assert tuple(complete.scores.shape) == (4, 2)
    with torch.no_grad():
        cat, dog = model(PIXELS).logits[0, :2].tolist()
    assert complete.output == pytest.approx(dog - cat)


def test_what_cannot_be_explained() -> None:
    model = make("vit")
    for options, message in (
        ({"method": "guess"}, "method is 'guess'; write one of"),
        ({"target": "fish"}, "target is 'fish', which is not a class; write one of cat, dog, bird"),
        ({"grid": (3, 2)}, "A grid of 3 x 2 does not divide an image of 8 x 8 pixels"),
    ):
        with pytest.raises(ValueError, match=message):
            image_saliency(model, PIXELS, **options)
    with pytest.raises(UserError, match="The model has no head"):
        image_saliency(make("dinov2"), PIXELS)


def test_patches_are_cut_and_put_together() -> None:
    pixels = torch.arange(2 * 3 * 4 * 6).view(2, 3, 4, 6)
    patches = to_patches(pixels, (2, 3))
    assert torch.equal(patches[1, 4], pixels[1, :, 2:4, 2:4].flatten())
    assert torch.equal(from_patches(patches, (2, 3), (4, 6)), pixels)


def test_a_seen_image_has_the_pixels_of_the_processed_one() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    processor = ViTImageProcessorPil(size={"height": 8, "width": 8}, image_mean=[0.2, 0.5, 0.7], image_std=[0.3] * 3)
    values = processor(Image.fromarray(pixels), return_tensors="pt")["pixel_values"]
    assert np.array_equal(np.asarray(seen_image(values[0], processor)), pixels)
    assert not math.isclose(float(values.mean()), pixels.mean() / 255)


def make_captioner() -> tuple[Any, Any]:
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["abcd "], ends=True)
    model = ShowAttendTellForConditionalGeneration(
        ShowAttendTellConfig(
            vocab_size=len(tokenizer), embedding_size=4, hidden_size=5, annotation_size=8, channels=[3, 4],
            initializer_range=1.0,
        )
    )  # fmt: skip
    model.generation_config.max_new_tokens, model.generation_config.max_length = 4, None
    model.generation_config.min_new_tokens = 4
    return model.eval(), tokenizer


def test_scores_of_a_word_are_those_of_its_log_odds() -> None:
    model = make_captioner()[0].double()
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(1)).double()
    caption, names = [5, 6, 7], ("a", "b", "c")
    rows = caption_saliency(model, image, caption, names, grid=(2, 2))
    assert [row.target for row in rows] == list(names)
    pixels = image.clone().requires_grad_()
    shares = model(pixel_values=pixels, labels=torch.tensor([caption])).logits[0].softmax(-1)
    for step, (number, row) in enumerate(zip(caption, rows, strict=True)):
        odds = (shares[step, number] / (1 - shares[step, number])).log()
        (gradient,) = torch.autograd.grad(odds, pixels, retain_graph=True)
        for place in ((0, 0), (1, 0)):
            total = 0.0
            for y in range(8 * place[0], 8 * place[0] + 8):
                for x in range(8):
                    total += float((image[0, :, y, x] * gradient[0, :, y, x]).sum())
            assert float(row.scores[place]) == pytest.approx(total, rel=1e-6)
        assert row.output == pytest.approx(float(odds.detach()))


def test_a_frozen_image_model_has_no_gradients() -> None:
    vision = ViTConfig(**{name: value for name, value in SIZES.items() if name != "mlp_ratio"})
    model = ShowAttendTellForConditionalGeneration(
        ShowAttendTellConfig(vocab_size=8, embedding_size=4, hidden_size=5, vision_config=vision, freeze_vision=True)
    )
    with pytest.raises(UserError, match='frozen and has no gradients; use method="occlusion"'):
        caption_saliency(model, PIXELS, [5], ("a",), grid=(2, 2))


# On the command line and in Python


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT and a vision Transformer of the package with their processors, and an image."""
    path = tmp_path_factory.mktemp("images")
    processor = ViTImageProcessorPil(size={"height": 8, "width": 8})
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    own = VaswaniVisionForImageClassification(
        VaswaniVisionConfig(**sizes, encoder_layers=2, distillation_token=True, id2label=LABELS)
    )
    captioner, tokenizer = make_captioner()
    models = {"vit": make("vit").float(), "own": own, "dinov2": make("dinov2").float(), "captioner": captioner}
    for name, model in models.items():
        model.save_pretrained(path / name)
        processor.save_pretrained(path / name)
    tokenizer.save_pretrained(path / "captioner")
    ViTImageProcessorPil(size={"height": 16, "width": 16}).save_pretrained(path / "captioner")
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 12, 4), dtype=np.uint8)).save(path / "pet.png")
    return path


def attend(folder: Path, *words: object) -> Result:
    return CliRunner().invoke(app, ["attend", *map(str, words)])


@pytest.mark.parametrize("name", ["own", "dinov2"])
def test_attend_of_an_image(folder: Path, tmp_path: Path, name: str) -> None:
    done = attend(folder, folder / name, folder / "pet.png")
    assert done.exit_code == 0, done.output
    title, *lines = done.stdout.splitlines()
    record = hfattn.explain(folder / name, str(folder / "pet.png"))
    assert isinstance(record, AttentionRecord)
    weights = record.maps(-1)[0]
    row, column = divmod(int(weights.argmax()), 2)
    assert lines[0].startswith(f"attention: row {row + 1} column {column + 1} {float(weights.max()):.1%}, ")
    assert [line.split(":")[0] for line in lines] == ["attention", "rollout", "gradient"][
        : 2 if name == "dinov2" else 3
    ]
    if name != "dinov2":
        answer = re.fullmatch(r"pet.png → (cat|dog|bird) \(\d+\.\d%\)", title)
        assert answer
        scored = hfattn.explain(folder / name, str(folder / "pet.png"), "gradient_x_input")
        assert isinstance(scored, ScoredImage)
        assert scored.target == answer[1]

    for file, start in (("a.html", b"<!doctype html>"), ("a.png", b"\x89PNG"), ("a.jsonl", b'{"text": "pet.png"')):
        done = attend(folder, folder / name, folder / "pet.png", "--layer", 2, "-o", tmp_path / file)
        assert done.exit_code == 0, done.output
        assert done.stdout.endswith(f"Written: {tmp_path / file}\n")
        assert (tmp_path / file).read_bytes().startswith(start)
    again = AttentionRecord.from_dict(json.loads((tmp_path / "a.jsonl").read_text()))
    assert (again.grid, again.num_prefix_tokens, again.target_tokens) == ((2, 2), record.num_prefix_tokens, ("[CLS]",))
    torch.testing.assert_close(again.weights[0], record.weights[1, :, :1].double())
    numbers = attend(folder, folder / name, folder / "pet.png", "--numbers").stdout.splitlines()
    assert len(numbers) == 2 + 2 * 2


def test_what_is_no_image(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    for words, message in (
        ((folder / "vit", tmp_path / "missing.png"), "reads images, and"),
        ((folder / "vit", tmp_path / "text.png"), "text.png is not an image in the format"),
        ((folder / "vit", folder / "pet.png", "--words"), "remove --file, --words, --hide-special"),
        ((folder / "vit", folder / "pet.png", "-o", tmp_path / "a.gif"), "which have no animation"),
        ((folder / "vit", folder / "pet.png", "--layer", 3), "There is no layer 3; with --layer, write 1 to 2."),
    ):
        done = attend(folder, *words)
        assert done.exit_code == 2, done.output
        assert message in re.sub(r"[\s│]+", " ", done.stderr)
    for view in ("rollout", "gradient"):
        done = CliRunner().invoke(app, ["show", view, str(folder / "vit"), "pet.png"])
        assert done.exit_code == 2
        assert "reads images; hfattn attend shows" in re.sub(r"[\s│]+", " ", done.stderr)


def test_attend_of_a_captioner(folder: Path, tmp_path: Path) -> None:
    """A line for each word and view; the page has a row for each word, and the picture a panel."""
    done = attend(folder, folder / "captioner", folder / "pet.png", "--num-beams", 2, "-o", tmp_path / "a.html")
    assert done.exit_code == 0, done.output
    data = json.loads(re.findall(r'id="record">(.*?)</script>', (tmp_path / "a.html").read_text(), re.DOTALL)[0])
    assert [view["name"] for view in data["views"]] == ["attention", "gradient"]
    title, *lines = attend(folder, folder / "captioner", folder / "pet.png", "--num-beams", 2).stdout.splitlines()
    assert title.startswith("pet.png → ")
    words = data["words"]
    assert len(words) == len(data["probabilities"]) == 4
    views = [f"{word} ← {view}" for view in ("attention", "gradient") for word in words]
    assert [line.rpartition(": row")[0].split(": row")[0] for line in lines] == views
    model, tokenizer, processor = load_captioner(str(folder / "captioner"))
    (found,) = captions(model, tokenizer, processor, [open_image(folder / "pet.png")], 2)
    weights = found["alignment"].maps()[0]
    row, column = divmod(int(weights.argmax()), weights.shape[1])
    assert f"{words[0]} ← attention: row {row + 1} column {column + 1} {float(weights.max()):.1%}" in lines[0]
    assert attend(folder, folder / "captioner", folder / "pet.png", "-o", tmp_path / "a.png").exit_code == 0

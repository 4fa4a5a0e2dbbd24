"""Frozen features of images: pooled by hand, kept on disk, and computed anew when anything changes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Dinov2Config, Dinov2Model, ResNetConfig, ResNetModel, ViTConfig, ViTImageProcessorPil, ViTModel

from hfattn.data.image_features import frozen_features
from hfattn.errors import UserError

SIDE, PATCH, WIDTH = 12, 4, 8


@pytest.fixture(scope="module")
def images() -> list[Image.Image]:
    random = np.random.default_rng(0)
    return [Image.fromarray(random.integers(0, 256, (9, 14, 3), dtype=np.uint8)) for _ in range(5)]


@pytest.fixture(scope="module")
def processor() -> ViTImageProcessorPil:
    return ViTImageProcessorPil(size={"height": SIDE, "width": SIDE})


def vit() -> ViTModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return ViTModel(ViTConfig(**sizes, image_size=SIDE, patch_size=PATCH))


def test_pooling_is_that_of_a_loop_over_single_images(images: list[Image.Image], processor: object) -> None:
    model = vit().eval()
    found = {
        pooling: frozen_features(model, processor, images, pooling=pooling, batch_size=2)
        for pooling in ("class", "mean", "patches", "pooler")
    }
    assert found["patches"].shape == (5, 9, WIDTH)
    for i, image in enumerate(images):
        with torch.no_grad():
            outputs = model(**processor(image, return_tensors="pt"))  # type: ignore[operator]
        hidden = outputs.last_hidden_state[0].numpy()
        assert np.allclose(found["class"][i], hidden[0], atol=1e-5)
        assert np.allclose(found["mean"][i], sum(hidden[1:]) / 9, atol=1e-5)
        assert np.allclose(found["patches"][i], hidden[1:], atol=1e-5)
        assert np.allclose(found["pooler"][i], outputs.pooler_output[0].numpy(), atol=1e-5)


def test_other_resolutions_and_models_without_a_class_token(images: list[Image.Image], processor: object) -> None:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    interpolating = Dinov2Model(Dinov2Config(**sizes, image_size=20, patch_size=PATCH))
    assert frozen_features(interpolating, processor, images, pooling="patches").shape == (5, 9, WIDTH)
    cnn = ResNetModel(ResNetConfig(embedding_size=4, hidden_sizes=[4, 6], depths=[1, 1]))
    mean = frozen_features(cnn, processor, images, pooling="mean")
    assert np.allclose(mean, frozen_features(cnn, processor, images, pooling="pooler"), atol=1e-5)
    with pytest.raises(UserError, match="resnet has no class token; write mean"):
        frozen_features(cnn, processor, images)
    with pytest.raises(UserError, match="has no pooler_output"):
        frozen_features(ViTModel(vit().config, add_pooling_layer=False), processor, images, pooling="pooler")
    with pytest.raises(UserError, match="'first' is unknown; write one of class"):
        frozen_features(cnn, processor, images, pooling="first")
    with pytest.raises(UserError, match="no images"):
        frozen_features(cnn, processor, [])


def test_features_are_read_from_disk_until_something_changes(
    tmp_path: Path, images: list[Image.Image], processor: ViTImageProcessorPil
) -> None:
    model = vit()
    first = frozen_features(model, processor, images, cache=tmp_path / "features", batch_size=2)
    assert isinstance(first, np.memmap)
    assert np.array_equal(first, frozen_features(model, processor, images, batch_size=2))
    (file,) = (tmp_path / "features").iterdir()
    marked = np.load(file)
    marked[0] = 7  # the file is read, and nothing is computed
    np.save(file, marked)

    def again(model: ViTModel = model, images: list[Image.Image] = images, **options: object) -> float:
        settings = {"processor": processor, "cache": tmp_path / "features", **options}
        return float(frozen_features(model, images=images, **settings)[0, 0])

    assert again() == again(batch_size=3) == 7
    retrained = vit()
    with torch.no_grad():
        retrained.embeddings.cls_token.add_(1e-3)
    darker = [images[0].point(lambda value: value // 2), *images[1:]]
    transparent = [Image.new("RGBA", (9, 9), (0, 0, 0, 0)), *images[1:]]
    of_background = [
        frozen_features(model, processor, transparent, cache=tmp_path / "other", background=color)[0, 0]
        for color in ((0, 0, 0), (255, 255, 255))
    ]
    assert of_background[0] != of_background[1]
    unnormalized = ViTImageProcessorPil(size={"height": SIDE, "width": SIDE}, do_normalize=False)
    changes = [{"model": retrained}, {"images": darker}, {"processor": unnormalized}, {"pooling": "mean"}]
    assert all(again(**change) != 7 for change in changes)
    assert len(list((tmp_path / "features").iterdir())) == 5


class Interruption:
    """The user stops the command in the second batch."""

    calls = 0

    def __call__(self, *_: object) -> None:
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt


def test_an_interrupted_computation_leaves_no_file(
    tmp_path: Path, images: list[Image.Image], processor: object
) -> None:
    torn = vit()
    torn.register_forward_pre_hook(interrupt := Interruption())
    with pytest.raises(KeyboardInterrupt):
        frozen_features(torn, processor, images, batch_size=2, cache=tmp_path)
    assert interrupt.calls == 2
    assert not list(tmp_path.iterdir())

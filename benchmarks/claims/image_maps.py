"""Maps over images: whether they lie on the object, and whether the answer depends on what they mark."""

import io
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import nn
from transformers import AutoImageProcessor, Dinov2ForImageClassification

from hfattn.data import open_image, read_images
from hfattn.data.image_encoding import normalized
from hfattn.explaining import image_attention, image_saliency, rollout
from hfattn.explaining.overlay import answering_row
from hfattn.metrics import deletion, jaccard, mass_on, points_at

from .claim import Claim, Measurement, Panel, Statement

SIDE, OBJECT, CROPS = 224, 120, 80  # pixels of a scene and of an object; crops of its clutter
TRAINED, TESTED = 160, 20  # scenes
DELETED = (8, 26, 77)  # patches of 256
DECAY = 1e-2  # of the weights of the linear classifier
VARIANTS = (
    "attention", "rollout", "gradient × input", "center", "random map", "attention, random weights",
)  # fmt: skip


class Scene(NamedTuple):
    """Pixels (3, 224, 224), the mask (224, 224) of the object, and its category."""

    pixels: torch.Tensor
    mask: torch.Tensor
    label: int


class Setting(NamedTuple):
    """A classifier of scenes, the same with random weights in its body, and test scenes."""

    model: Dinov2ForImageClassification
    random: Dinov2ForImageClassification
    scenes: list[Scene]
    accuracy: float


def composed(photos: list[Any], index: int, label: int, random: np.random.Generator, processor: Any) -> Scene:
    """Paste a cut-out photograph at a random place on crops of others, which show no whole object."""
    scene = Image.new("RGB", (SIDE, SIDE), (128, 128, 128))
    for other in random.choice([k for k in range(len(photos)) if k != index], CROPS):
        side = int(random.integers(24, 65))
        crop, part_side = photos[other], max(8, min(photos[other].size) // 3)
        left, top = (int(random.integers(0, size - part_side + 1)) for size in crop.size)
        part = crop.crop((left, top, left + part_side, top + part_side)).resize((side, side))
        x, y = random.integers(-side // 2, SIDE, 2).tolist()
        scene.paste(part, (x, y), part)
    thing = photos[index]
    scale = OBJECT / max(thing.size)
    thing = thing.resize([max(1, round(scale * size)) for size in thing.size], Image.Resampling.BICUBIC)
    x, y = (int(random.integers(0, SIDE - size + 1)) for size in thing.size)
    scene.paste(thing, (x, y), thing)
    alpha = Image.new("L", (SIDE, SIDE))
    alpha.paste(thing.getchannel("A"), (x, y))
    return Scene(normalized(scene, processor), torch.from_numpy(np.asarray(alpha) > 127), label)


@lru_cache(maxsize=1)
def setting(seed: int, data: Path) -> Setting:
    folder = data / "models" / "dinov2-small"
    stamps = read_images(str(data / "stamps" / "stamps.parquet"), label_column="category")
    chosen = [item for item in stamps if not item.fields["cartoon"]]
    photos = [_with_alpha(item.image) for item in chosen]
    processor = AutoImageProcessor.from_pretrained(folder, backend="pil")
    random = np.random.default_rng(seed)
    order = random.permutation(len(photos))[: TRAINED + TESTED].tolist()
    scenes = [composed(photos, index, chosen[index].label, random, processor) for index in order]
    torch.manual_seed(seed)
    options = {"num_labels": len(stamps.labels), "attn_implementation": "eager"}
    model = Dinov2ForImageClassification.from_pretrained(folder, **options).eval()
    unlearned = Dinov2ForImageClassification(model.config).eval()
    features = torch.stack([_features(model, scene) for scene in scenes])  # (scenes, 2 D)
    labels = torch.tensor([scene.label for scene in scenes])
    _fit(model.classifier, features[:TRAINED], labels[:TRAINED])
    with torch.no_grad():
        right = model.classifier(features[TRAINED:]).argmax(-1) == labels[TRAINED:]
    return Setting(model, unlearned, scenes[TRAINED:], float(right.double().mean()))


def _with_alpha(image: Any) -> Image.Image:
    open_image(image)  # refuses what is not an image
    return Image.open(io.BytesIO(image)).convert("RGBA")


@torch.no_grad()
def _features(model: Dinov2ForImageClassification, scene: Scene) -> torch.Tensor:
    hidden = model.dinov2(scene.pixels[None]).last_hidden_state[0]
    return torch.cat([hidden[0], hidden[1:].mean(0)])


def _fit(head: nn.Linear, features: torch.Tensor, labels: torch.Tensor) -> None:
    """Fit a linear classifier, with an L2 penalty, until it converges."""
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(head(features), labels) + DECAY * head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def maps_of(variant: str, found: Setting, scene: Scene, generator: torch.Generator) -> torch.Tensor:
    """Return the maps (H, 16, 16) of a variant: of all heads of the last layer, or one."""
    pixels = scene.pixels[None]
    if variant == "random map":
        return torch.rand(1, 16, 16, generator=generator)
    if variant == "center":
        places = torch.linspace(-1, 1, 16)
        return (-2 * (places[:, None] ** 2 + places**2)).exp()[None]
    if variant == "gradient × input":
        return image_saliency(found.model, pixels).scores[None]
    record = image_attention("DINOv2", found.random if "random weights" in variant else found.model, pixels)
    if variant == "rollout":
        return answering_row(rollout(record)).maps()
    row = answering_row(record)
    return torch.cat([row.maps(-1, head) for head in range(row.weights.shape[1])])


def measure(variant: str, seed: int, data: Path) -> Measurement:
    found, generator = setting(seed, data), torch.Generator().manual_seed(seed)
    numbers: list[dict[str, float]] = []
    for scene in found.scenes:
        maps = maps_of(variant, found, scene, generator)
        mean, positive = maps.mean(0), maps.clamp(min=0)
        with torch.no_grad():
            answer = int(found.model(scene.pixels[None]).logits.argmax())

        def log_probability(pixels: torch.Tensor, answer: int = answer) -> torch.Tensor:
            return found.model(pixels).logits.log_softmax(-1)[:, answer]

        falls = {
            f"fall without {k} patches": deletion(
                log_probability, scene.pixels, mean, k, draws=1, generator=generator
            ).fall
            for k in DELETED
        }
        numbers.append(
            {
                "points at the object": float(points_at(mean, scene.mask)),
                "mass on the object": mass_on(positive.mean(0), scene.mask),
                "Jaccard at 60 %, best head": jaccard(positive, scene.mask),
                **falls,
                "area of the object": float(scene.mask.double().mean()),
            }
        )
    values = {name: sum(each[name] for each in numbers) / len(numbers) for name in numbers[0]}
    values["accuracy of the classifier"] = found.accuracy
    curve = [(float(k), values[f"fall without {k} patches"]) for k in DELETED]
    return Measurement(values, {"deletion": [(0.0, 0.0), *curve]})


CLAIM = Claim(
    "Attention lies on the object that a self-supervised vision Transformer sees, and marks what the answer depends on",
    "Caron et al. 2021, section 4.2.2; Jain & Wallace 2019 for texts",
    f"Scenes of {SIDE} × {SIDE} pixels: a cut-out photograph of at most {OBJECT} pixels at a random place, on {CROPS} "
    "parts of other photographs. DINOv2-small (Oquab et al. 2024) is frozen; a linear classifier of its class token "
    f"and mean patch learns the category from {TRAINED} scenes of other objects. On {TESTED} scenes for each seed, the "
    "maps are the class token's attention in the last layer (mean over its heads; Jaccard: its best head), attention "
    "rollout (Abnar & Zuidema 2020), and gradient × input of the predicted class, of which the positive part counts "
    "for mass and Jaccard. Controls: a Gaussian in the middle, a random map, and the attention of random weights. A "
    "fall is that of the log-probability of the answer, in nats, when the patches of the largest weights become gray. "
    "The objects are small and the scenes few; how far a map explains an answer in other data is not measured.",
    VARIANTS,
    measure,
    (
        Statement("mass on the object", "attention", "above", "center"),
        Statement("mass on the object", "attention", "above", "attention, random weights"),
        Statement("points at the object", "attention", "above", "center"),
        Statement("Jaccard at 60 %, best head", "attention", "above", "attention, random weights"),
        Statement("points at the object", "rollout", "not below", "attention", 0.05),
        Statement("fall without 26 patches", "attention", "above", "random map"),
        Statement("fall without 26 patches", "gradient × input", "above", "random map"),
        Statement("fall without 26 patches", "attention", "not below", "gradient × input", 0.05),
    ),
    (Panel("deletion", "deleted patches of 256", "fall of log p (nats)"),),
)

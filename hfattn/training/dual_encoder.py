"""Build a dual encoder from two towers, which are pretrained or from scratch, and compute what locked towers give."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoModel, BaseImageProcessor, PreTrainedTokenizerBase

from ..data import CaptionedImages, frozen_features, make_processor
from ..data.images import digest
from ..errors import UserError
from ..fields import at_least, one_of
from ..loading import (
    ModelLocation,
    base_facts,
    load_image_processor,
    load_model,
    load_model_config,
    load_tokenizer,
    max_positions,
)
from ..models.configuration_dual_encoder import TEXT_POOLINGS, DualEncoderConfig
from ..models.modeling_dual_encoder import DualEncoderModel
from ..retrieval import vectors_of_texts
from .config import build_section, checked
from .contrastive import LOSSES
from .from_scratch import scratch_config, text_encoder_config
from .training_config import TrainingConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOWERS = ("vision", "text")
_REGULARIZATION = 0.1  # added to the variances in a whitening, relative to their mean
_START = {"clip": (2.6592, None), "sigmoid": (2.3026, -10.0)}  # logarithm of the scale, and bias, of each loss


@strict
@dataclass
class VisionLocation(ModelLocation):
    """The section ``vision`` of a pretrained image tower."""

    section: ClassVar[str] = "vision"


@strict
@dataclass
class TextLocation(ModelLocation):
    """The section ``text`` of a pretrained text tower."""

    section: ClassVar[str] = "text"


@strict
@dataclass
class DualEncoderSection:
    """The section ``model``: how the towers are joined and trained.

    Attributes:
        projection_dim: width of the embeddings of images and texts.
        text_hidden_size: width of a hidden layer in the projection of texts; null: a linear projection.
        text_pooling: "mean" over the tokens of a text, or "pooler", what the text tower itself returns.
        loss: "clip" (cross-entropy in both directions, Radford et al. 2021) or "sigmoid" (Zhai et al. 2023).
        locked: the towers that are not trained, vision, text or both (LiT, Zhai et al. 2022); what they make of images
            and texts is computed once.
        whiten: with a locked image tower, the projection of images is locked too: it is a whitening of the features of
            the training images, by their "total" covariance, or by that "within" the images of each text. null: it is
            trained.
        image_size: height and width of the images, in pixels; null: those of the pretrained image tower.
        features: folder for what a locked image tower has computed, outside of the run, so that other runs read it;
            null: it is not kept.
    """

    projection_dim: int = at_least(1, 256)
    text_hidden_size: int | None = at_least(1, None)
    text_pooling: str = one_of(TEXT_POOLINGS, "mean")
    loss: str = one_of(LOSSES, "clip")
    locked: list[str] = field(default_factory=list)
    whiten: str | None = one_of(("total", "within"), None)
    image_size: int | None = at_least(1, None)
    features: str | None = "runs/features"

    def validate_locked(self) -> None:
        for name in self.locked:
            if name not in TOWERS:
                raise ValueError(f"locked has {name!r}; write vision, text, or both.")

    def validate_whiten(self) -> None:
        if self.whiten is not None and "vision" not in self.locked:
            raise ValueError("whiten is for a locked image tower; add vision to locked, or write whiten: null.")


@strict
@dataclass
class DualEncoderTrainingConfig(TrainingConfig):
    """The sections of a recipe that trains a dual encoder.

    Attributes:
        vision: the name of a pretrained image tower (and revision, trust_remote_code, options), or the model_type of
            one from scratch (and fields of that type's configuration).
        text: the same for the text tower.
        model: how they are joined and trained.
    """

    vision: dict[str, Any] = field(default_factory=dict)
    text: dict[str, Any] = field(default_factory=dict)
    model: DualEncoderSection = field(default_factory=DualEncoderSection)

    @property
    def pretrained(self) -> dict[str, ModelLocation]:
        """The towers that are pretrained, by their section."""
        kinds = {"vision": VisionLocation, "text": TextLocation}
        sections = {name: getattr(self, name) for name in TOWERS}
        return {name: build_section(kinds[name], fields, f"{name}.") for name, fields in sections.items()
                if "name" in fields}  # fmt: skip

    def check_towers(self) -> None:
        """Check the towers from scratch, and which ones are locked.

        Raises:
            UserError: a tower is not described, a tower from scratch is locked, or it has no size of images.
        """
        for name in TOWERS:
            if name in self.pretrained:
                continue
            if name in self.model.locked:
                raise UserError(f"model.locked has {name}, which is from scratch; write {name}.name, or train it.")
            if name == "vision" and self.model.image_size is None:
                raise UserError("An image tower from scratch needs the size of its images; write model.image_size.")
            tower_config(self, name, {"vocab_size": 1 << 20, "pad_token_id": 0} if name == "text" else {})


def tower_config(config: DualEncoderTrainingConfig, name: str, from_data: Mapping[str, Any]) -> Any:
    """Return the configuration of a tower from scratch; ``from_data`` has the fields that follow from the tokenizer."""
    if name == "text":
        return text_encoder_config(config.text, from_data, place="text", pooled_by="model.text_pooling")
    from_data = {"image_size": config.model.image_size, "num_channels": 3}
    return scratch_config(config.vision, from_data, place="vision")


def load_processor(config: DualEncoderTrainingConfig) -> BaseImageProcessor:
    """Return the processor of a pretrained image tower, or one that maps pixels to -1 … 1 for a tower from scratch.

    Raises:
        UserError: there is no such model, or it has no processor.
    """
    size = config.model.image_size
    if "vision" not in config.pretrained:
        assert size is not None
        return make_processor((size, size), mean=[0.5] * 3, std=[0.5] * 3)
    return load_image_processor(config.pretrained["vision"], size)


def build_dual_encoder(config: DualEncoderTrainingConfig, tokenizer: PreTrainedTokenizerBase) -> DualEncoderModel:
    """Return a dual encoder with new projections; locked towers need no gradient.

    Raises:
        UserError: a tower cannot be loaded or built, or is none.
    """
    section, towers = config.model, dict[str, Any]()
    for name in TOWERS:
        if name in config.pretrained:
            towers[name] = load_model(AutoModel, config.pretrained[name]).model
            towers[name].config._name_or_path = ""  # the path of a local folder is not published
        else:
            from_data = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
            towers[name] = AutoModel.from_config(tower_config(config, name, from_data))
    scale, bias = _START[section.loss]
    fields = {
        **{f"{name}_config": deepcopy(tower.config) for name, tower in towers.items()},
        "projection_dim": section.projection_dim,
        "text_hidden_size": section.text_hidden_size,
        "text_pooling": section.text_pooling,
        "logit_scale_init_value": scale,
        "logit_bias_init_value": bias,
    }
    model = DualEncoderModel(checked(DualEncoderConfig, fields, "model."), towers["vision"], towers["text"])
    for name in section.locked:
        getattr(model, f"{name}_model").requires_grad_(False)
    if section.text_pooling == "mean":  # nothing reads the pooler of a text tower, which DDP would wait for
        for name, module in model.text_model.named_children():
            if name == "pooler" and module is not None:
                module.requires_grad_(False)
    return model


def tower_tokenizer(location: ModelLocation, max_length: int) -> PreTrainedTokenizerBase:
    """Return the tokenizer of a pretrained text tower.

    Raises:
        UserError: there is no such model, or it has fewer positions than ``max_length``.
    """
    positions = max_positions(load_model_config(location))
    if positions is not None and max_length > positions:
        raise UserError(f"data.max_length is {max_length}, and {location.name} reads {positions}; write at most that.")
    return load_tokenizer(location)


def locked_image_features(
    model: DualEncoderModel,
    processor: BaseImageProcessor,
    parts: Mapping[str, CaptionedImages],
    *,
    background: list[int],
    rows: int,
    cache: Path | None,
    progress: str | None = None,
) -> dict[str, np.ndarray]:
    """Return the features (N, width) of the images of each part.

    Each image is read once. All parts are in one file in an order of its own, so that another split of the same images
    finds it.

    Args:
        rows: number of images that the tower reads at once.
        background, cache, progress: as in ``frozen_features``.
    """
    images = {digest(item.image): item.image for examples in parts.values() for item in examples}
    place = {key: i for i, key in enumerate(sorted(images))}
    features = frozen_features(
        model.vision_model,
        processor,
        [images[key] for key in place],
        pooling="pooler",
        background=background,
        batch_size=rows,
        cache=cache,
        progress=progress,
    )
    return {part: features[[place[digest(item.image)] for item in examples]] for part, examples in parts.items()}


@torch.no_grad()
def whiten_images(model: DualEncoderModel, features: np.ndarray, texts: np.ndarray, kind: str) -> None:
    """Make the projection of images a whitening of features, and lock it.

    It maps a feature x to Pᵀ C^(-1/2) (x - mean). C is the covariance of all features ("total"), or of features about
    the mean of their text ("within", linear discriminant analysis: Fisher 1936), with a tenth of its mean variance
    added to each variance, and P has the directions in which C^(-1/2) x varies most.

    Args:
        model: the dual encoder.
        features: (N, width) features of images.
        texts: (N,) group of the text of each image.
        kind: "total" or "within".

    Raises:
        UserError: there are fewer features than dimensions, or no two images of one text for "within".
    """
    projection, (number, width) = model.visual_projection, features.shape
    counts = np.bincount(texts)
    free = number - (1 if kind == "total" else int((counts > 0).sum()))
    if free < 1:
        raise UserError("Each text has one image, so nothing varies within a text; write model.whiten: total.")
    if projection.out_features > min(width, number - 1):
        raise UserError(
            f"model.projection_dim is {projection.out_features}, and whitening {number} features of width {width} "
            f"gives at most {min(width, number - 1)}; write a smaller number, or model.whiten: null."
        )
    features = features.astype(np.float64)
    centered = features - features.mean(0)
    of_text = np.zeros((len(counts), width))
    np.add.at(of_text, texts, features)
    about = centered if kind == "total" else features - (of_text / np.maximum(counts, 1)[:, None])[texts]
    values, vectors = np.linalg.eigh(about.T @ about / free)
    root = vectors / np.sqrt(values + _REGULARIZATION * values.mean()) @ vectors.T  # C^(-1/2)
    _, directions = np.linalg.eigh(np.cov((centered @ root).T))
    weight = (root @ directions[:, -projection.out_features :]).T  # eigh returns the largest last
    projection.weight.copy_(torch.from_numpy(weight))
    projection.bias.copy_(torch.from_numpy(-weight @ features.mean(0)))
    projection.requires_grad_(False)


def locked_text_features(
    model: DualEncoderModel, tokenizer: PreTrainedTokenizerBase, texts: list[str], *, max_length: int, rows: int
) -> dict[str, torch.Tensor]:
    """Return the features (width,) of each text, by the text."""
    different = list(dict.fromkeys(texts))
    features = vectors_of_texts(model, tokenizer, different, model.text_features, rows, max_length)
    return dict(zip(different, features, strict=True))


def tower_facts(config: DualEncoderTrainingConfig, model: "PreTrainedModel") -> dict[str, Any]:
    """Return facts about the towers and the trained weights, for ``results.json``. Call it before ``whole_model``."""
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    towers = {}
    for name in TOWERS:
        towers[name] = {
            "model_type": getattr(model.config, f"{name}_config").model_type,
            **base_facts(config.pretrained.get(name)),
            "locked": name in config.model.locked,
        }
    return {"parameters": model.num_parameters(), "trained_parameters": trained, "towers": towers}

"""Frozen features of images from a vision model, computed once and kept on disk."""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tqdm.auto import tqdm

from ..errors import UserError
from ..files import writing
from ..loading import weights_digest
from .image_encoding import processed
from .images import WHITE, Encoded, digest

if TYPE_CHECKING:
    from transformers import PreTrainedModel

IMAGE_POOLINGS = ("class", "mean", "patches", "pooler")


def frozen_features(
    model: "PreTrainedModel",
    processor: Any,
    images: Sequence[Encoded],
    *,
    pooling: str = "class",
    background: Sequence[int] = WHITE,
    batch_size: int = 64,
    cache: Path | None = None,
    progress: str | None = None,
) -> np.ndarray:
    """Return the features of images by a model that is not trained, computed or read from disk.

    The file in the cache has the SHA-256 of the model's weights and configuration, the settings of the processor, the
    pooling, and the images as its name, so any change computes the features anew. It is written under a
    temporary name and renamed when it is complete. Several processes that start at once each compute all features.

    Args:
        model: a model of ``AutoModel`` that reads ``pixel_values``; it is set to evaluation mode.
        processor: image processor of the model.
        images: N images, which may be made when they are read: each is read twice, the first time for the name of the
            file.
        pooling: "class" (the vector of the class token), "mean" over the patches, "patches" (the vector of each, row by
            row), or "pooler" (the model's own ``pooler_output``).
        background: color behind transparent pixels.
        batch_size: number of images that the model reads at once; it does not change the features.
        cache: folder of the files; None: nothing is kept.
        progress: label of a progress bar; None: no bar is shown.

    Returns:
        (N, D), or (N, L, D) for patches, in float32. With a cache, the array is mapped from the file, read-only.

    Raises:
        UserError: there are no images, the pooling is unknown or does not fit the model, or the disk is full.
    """
    if pooling not in IMAGE_POOLINGS:
        raise UserError(f"The pooling {pooling!r} is unknown; write one of {', '.join(IMAGE_POOLINGS)}.")
    if not len(images):
        raise UserError("There are no images to compute features of; give at least one.")
    batches = _features(model.eval(), processor, images, pooling, background, batch_size, progress)
    if cache is None:
        return np.concatenate(list(batches))
    file = cache / f"{_fingerprint(model, processor, images, pooling, background)}.npy"
    if not file.is_file():
        with writing(cache, "free some space and try again"):
            cache.mkdir(parents=True, exist_ok=True)
            _write(file, batches, len(images))
    return np.load(file, mmap_mode="r")


def pool_images(outputs: Any, pixel_values: torch.Tensor, config: Any, pooling: str) -> torch.Tensor:
    """Reduce the outputs of a vision model to features.

    The patches are the last positions of its sequence. Before them are the class token and what else the model puts
    there, such as a distillation token or registers. The feature map of a CNN has patches only.

    Args:
        outputs: what the model returned, with ``last_hidden_state`` (B, T, D), or (B, D, rows, columns) of a CNN.
        pixel_values: (B, C, height, width), what it read.
        config: configuration of the model, of which ``patch_size`` gives the number of patches.
        pooling: as in ``frozen_features``.

    Returns:
        (B, D), or (B, L, D) for patches.

    Raises:
        UserError: the model has no class token, or no ``pooler_output``.
    """
    if pooling == "pooler":
        if outputs.get("pooler_output") is None:
            raise UserError(f"A model of type {config.model_type} has no pooler_output; write mean for the pooling.")
        return outputs.pooler_output.flatten(1)  # a CNN gives (B, D, 1, 1)
    hidden = outputs.last_hidden_state
    if hidden.dim() == 4:
        hidden, prefix = hidden.flatten(2).transpose(1, 2), 0  # (B, L, D)
    else:
        prefix = max(0, hidden.shape[1] - _patches(pixel_values, config))
    if pooling == "class":
        if not prefix:
            raise UserError(f"A model of type {config.model_type} has no class token; write mean for the pooling.")
        return hidden[:, 0]
    patches = hidden[:, prefix:]
    return patches if pooling == "patches" else patches.mean(1)


def _patches(pixel_values: torch.Tensor, config: Any) -> int:
    """Return the number of patches that a image is cut into."""
    size = config.patch_size
    rows, columns = (size, size) if isinstance(size, int) else size
    height, width = pixel_values.shape[-2:]
    return int(height // rows) * int(width // columns)


@torch.inference_mode()
def _features(
    model: "PreTrainedModel",
    processor: Any,
    images: Sequence[Encoded],
    pooling: str,
    background: Sequence[int],
    rows: int,
    progress: str | None,
) -> Iterator[np.ndarray]:
    """Yield the features of each batch of images."""
    for start in tqdm(range(0, len(images), rows), desc=progress, disable=progress is None):
        batch = [images[i] for i in range(start, min(start + rows, len(images)))]
        pixel_values = processed(batch, processor, background).to(model.device, model.dtype)
        features = pool_images(model(pixel_values=pixel_values), pixel_values, model.config, pooling)
        yield features.float().cpu().numpy()


def _write(file: Path, batches: Iterator[np.ndarray], number: int) -> None:
    """Write batches to a ``.npy`` file, which has its name when it is complete."""
    with NamedTemporaryFile(dir=file.parent, suffix=".part", delete=False) as part:
        try:
            for i, batch in enumerate(batches):
                if not i:
                    shape = (number, *batch.shape[1:])
                    np.lib.format.write_array_header_1_0(part, {"descr": "<f4", "fortran_order": False, "shape": shape})
                part.write(np.ascontiguousarray(batch, "<f4").tobytes())
            part.close()
            os.replace(part.name, file)
        except BaseException:
            Path(part.name).unlink(missing_ok=True)
            raise


def _fingerprint(
    model: "PreTrainedModel", processor: Any, images: Sequence[Encoded], pooling: str, background: Sequence[int]
) -> str:
    """Return the SHA-256 of everything that the features depend on."""
    settings = {**model.config.to_dict(), "_name_or_path": None, "transformers_version": None}
    described = [type(model).__name__, settings, processor.to_dict(), pooling, list(background)]
    described.append([digest(images[i]) for i in range(len(images))])
    return weights_digest(model, json.dumps(described, sort_keys=True, default=str))

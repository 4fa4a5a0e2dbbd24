"""Whether a map over an image lies on an object, and whether the answer of a model depends on it.

The first is measured with the mask of the object: where the largest weight is, how much weight is on the object, and
how well the heaviest patches cover it. The second is measured without a mask, by deletion. A map can lie on the object
that a caption names and yet not be what the caption was written from, and the other way round.

Shapes: R rows and C columns of the grid; height and width in pixels; H heads.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.functional import adaptive_avg_pool2d


def mask_on_grid(mask: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """Return the share of each patch that an object covers.

    Args:
        mask: (height, width), True or 1 where the object is.
        grid: (R, C); a patch has height / R by width / C pixels.

    Returns:
        (R, C) in float64, from 0 to 1.

    Raises:
        ValueError: if the mask does not cover any pixel, or the grid does not divide it.
    """
    height, width = mask.shape
    if height % grid[0] or width % grid[1]:
        raise ValueError(f"A grid of {grid[0]} x {grid[1]} does not divide a mask of {height} x {width} pixels.")
    if not mask.any():
        raise ValueError("The mask is empty; pass the mask of an object that is in the image.")
    return adaptive_avg_pool2d(mask.double()[None, None], grid)[0, 0]


def points_at(weights: torch.Tensor, mask: torch.Tensor) -> bool:
    """Return whether the largest weight points at an object (pointing game, Zhang et al. 2018, section 4.1).

    It does if a pixel of the object is in the patch with the largest weight. In the paper, the weights are those of
    pixels, and a point is a hit if it is at most 15 pixels away from the object.

    Args:
        weights: (R, C).
        mask: (height, width), as for ``mask_on_grid``.

    Raises:
        ValueError: as ``mask_on_grid``.
    """
    covered = mask_on_grid(mask, (weights.shape[0], weights.shape[1]))
    return bool(covered.flatten()[weights.flatten().argmax()] > 0)


def mass_on(weights: torch.Tensor, mask: torch.Tensor) -> float:
    """Return the share of the weight that is on an object: Σ_j a_j m_j / Σ_j a_j.

    m_j is the share of patch j that the object covers. Weights that do not depend on the object have about its area,
    ``mask.mean()``; those of objects in the middle of an image also profit from a preference for the middle.

    Args:
        weights: (R, C), at least 0.
        mask: (height, width), as for ``mask_on_grid``.

    Raises:
        ValueError: as ``mask_on_grid``, or if there is no weight or a negative one.
    """
    weights = _positive(weights)
    covered = mask_on_grid(mask, (weights.shape[0], weights.shape[1]))
    return float((weights * covered).sum() / weights.sum())


def heaviest(weights: torch.Tensor, mass: float = 0.6) -> torch.Tensor:
    """Return the fewest patches that have a share of the weight, as a boolean map (R, C).

    Args:
        weights: (R, C), at least 0.
        mass: share of the weight, from 0 to 1.

    Raises:
        ValueError: if there is no weight or a negative one.
    """
    weights = _positive(weights).flatten()
    order = weights.argsort(descending=True, stable=True)
    before = weights[order].cumsum(0) - weights[order]  # the weight of all heavier patches
    chosen = torch.zeros(len(weights), dtype=torch.bool)
    chosen[order[before < mass * weights.sum() * (1 - 1e-9)]] = True
    return chosen


def jaccard(maps: torch.Tensor, mask: torch.Tensor, mass: float = 0.6) -> float:
    """Return the overlap of an object and the heaviest patches of the head that covers it best (Caron et al. 2021).

    |A ∩ M| / |A ∪ M|: A are the pixels of the fewest patches that have 60 % of the weight, M those of the object
    (section 4.2.2 and figure 4). The best head is chosen by this measure, so weights without any information have a
    higher value the more heads there are: compare with random weights.

    Args:
        maps: (H, R, C), at least 0; a map (R, C) is one head.
        mask: (height, width), as for ``mask_on_grid``.
        mass: share of the weight, from 0 to 1.

    Raises:
        ValueError: as ``mask_on_grid`` and ``heaviest``.
    """
    maps = maps if maps.ndim == 3 else maps[None]
    covered = mask_on_grid(mask, (maps.shape[1], maps.shape[2])).flatten()
    best = 0.0
    for weights in maps:
        chosen = heaviest(weights, mass).double()
        both = (chosen * covered).sum()
        best = max(best, float(both / (chosen.sum() + covered.sum() - both)))
    return best


class Deletion(NamedTuple):
    """What an answer loses without some patches.

    Args:
        fall: fall of the answer's log-probability without the k patches of the largest weight, in nats.
        random: the same for k random patches, the mean of several draws.
    """

    fall: float
    random: float


def deletion(
    answer: Callable[[torch.Tensor], torch.Tensor],
    pixel_values: torch.Tensor,
    weights: torch.Tensor,
    k: int,
    *,
    draws: int = 10,
    generator: torch.Generator | None = None,
) -> Deletion:
    """Return how much an answer depends on the k patches of the largest weight (Petsiuk et al. 2018, section 4.3).

    The pixels of the patches become 0, a uniform gray: the mean color, if the processor normalizes.

    Args:
        answer: maps images (B, channels, height, width) to the log-probabilities (B,) of the answer.
        pixel_values: (channels, height, width).
        weights: (R, C), of any sign; the k largest are deleted.
        k: number of patches, from 1 to R * C.
        draws: number of random choices of k patches.
        generator: random generator on the CPU.

    Raises:
        ValueError: if k is out of range, or the grid does not divide the image.
    """
    count = weights.numel()
    height, width = pixel_values.shape[-2:]
    if height % weights.shape[0] or width % weights.shape[1]:
        raise ValueError(f"A grid of {' x '.join(map(str, weights.shape))} does not divide {height} x {width} pixels.")
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}; the grid has {count} patches: write 1 to {count}.")
    chosen = [weights.flatten().argsort(descending=True, stable=True)[:k].cpu()]
    chosen += [torch.randperm(count, generator=generator)[:k] for _ in range(draws)]
    kept = torch.ones(len(chosen) + 1, count)
    for row, places in enumerate(chosen, 1):
        kept[row, places] = 0
    patch = torch.ones(height // weights.shape[0], width // weights.shape[1])
    stencil = torch.kron(kept.view(-1, *weights.shape), patch)[:, None]  # (draws + 2, 1, height, width)
    with torch.no_grad():
        whole, found, *others = answer(pixel_values * stencil.to(pixel_values)).tolist()
    return Deletion(whole - found, whole - sum(others) / len(others))


def _positive(weights: torch.Tensor) -> torch.Tensor:
    weights = weights.double()
    if (weights < 0).any() or not weights.sum() > 0:
        raise ValueError("The weights are negative or all zero; pass the positive part of scores, scores.clamp(min=0).")
    return weights

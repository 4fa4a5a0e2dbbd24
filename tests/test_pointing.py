"""Maps over an object, and deletion: each against a loop over pixels."""

import itertools

import pytest
import torch

from hfattn.metrics import deletion, heaviest, jaccard, mask_on_grid, mass_on, points_at

GRID, PATCH = (3, 4), (2, 5)
SIZE = (GRID[0] * PATCH[0], GRID[1] * PATCH[1])
CELLS = list(itertools.product(range(GRID[0]), range(GRID[1])))
PIXELS = list(itertools.product(range(SIZE[0]), range(SIZE[1])))


def weights(seed: int, heads: int = 1) -> torch.Tensor:
    scores = torch.randn(heads, *GRID, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * scores).exp()


def mask(seed: int) -> torch.Tensor:
    """An object of random pixels in a random box."""
    generator = torch.Generator().manual_seed(seed)
    found = torch.zeros(SIZE, dtype=torch.bool)
    top, left = (int(torch.randint(0, size - 2, (), generator=generator)) for size in SIZE)
    found[top : top + 4, left : left + 7] = (
        torch.rand(4, 7, generator=generator)[: SIZE[0] - top, : SIZE[1] - left] > 0.4
    )
    found[top, left] = True
    return found


def of_pixel(pixel: tuple[int, int]) -> tuple[int, int]:
    return pixel[0] // PATCH[0], pixel[1] // PATCH[1]


@pytest.mark.parametrize("seed", range(8))
def test_measures_against_loops_over_pixels(seed: int) -> None:
    maps, object_mask = weights(seed, 3), mask(seed)
    found, total = 0.0, 0.0
    for pixel in PIXELS:  # a pixel has its part of the weight of its patch
        share = float(maps[0][of_pixel(pixel)]) / (PATCH[0] * PATCH[1])
        total += share
        found += share * bool(object_mask[pixel])
    assert mass_on(maps[0], object_mask) == pytest.approx(found / total, rel=1e-12)

    best = max(CELLS, key=lambda cell: float(maps[0][cell]))
    assert points_at(maps[0], object_mask) == any(object_mask[p] for p in PIXELS if of_pixel(p) == best)

    overlaps = []
    for head in maps:
        order, chosen = sorted(CELLS, key=lambda cell: -float(head[cell])), list[tuple[int, int]]()
        while sum(float(head[cell]) for cell in chosen) < 0.6 * float(head.sum()):
            chosen.append(order[len(chosen)])
        assert {tuple(cell) for cell in heaviest(head).view(GRID).nonzero().tolist()} == set(chosen)
        inside = {pixel for pixel in PIXELS if of_pixel(pixel) in chosen}
        covered = {pixel for pixel in PIXELS if object_mask[pixel]}
        overlaps.append(len(inside & covered) / len(inside | covered))
    assert jaccard(maps, object_mask) == pytest.approx(max(overlaps), rel=1e-12)
    assert jaccard(maps[1], object_mask) == pytest.approx(overlaps[1], rel=1e-12)


def test_weights_that_know_nothing_have_the_area_of_the_object() -> None:
    object_mask = mask(0)
    area = float(object_mask.double().mean())
    assert mass_on(torch.ones(GRID), object_mask) == pytest.approx(area)
    assert float(mask_on_grid(object_mask, GRID).mean()) == pytest.approx(area)


def test_deletion_grays_the_patches_and_nothing_else() -> None:
    maps = weights(3)[0]
    pixels = torch.randn(2, *SIZE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen: list[torch.Tensor] = []

    def answer(images: torch.Tensor) -> torch.Tensor:
        seen.append(images)
        return images.square().sum((1, 2, 3)).neg()

    known = deletion(answer, pixels, maps, 4, draws=3, generator=torch.Generator().manual_seed(5))
    top = sorted(CELLS, key=lambda cell: -float(maps[cell]))[:4]
    generator = torch.Generator().manual_seed(5)
    choices = [top, *([CELLS[k] for k in torch.randperm(12, generator=generator)[:4].tolist()] for _ in range(3))]
    whole, falls = -float(pixels.square().sum()), []
    for row, cells in enumerate(choices, 1):
        grayed = pixels.clone()
        for y, x in PIXELS:
            if of_pixel((y, x)) in cells:
                grayed[:, y, x] = 0
        assert torch.equal(seen[0][row], grayed)
        falls.append(whole + float(grayed.square().sum()))
    assert torch.equal(seen[0][0], pixels)
    assert known.fall == pytest.approx(falls[0])
    assert known.random == pytest.approx(sum(falls[1:]) / 3)


def test_what_cannot_be_measured() -> None:
    good, empty = weights(0)[0], torch.zeros(SIZE)
    for call, message in (
        (lambda: mass_on(good, empty), "The mask is empty"),
        (lambda: points_at(torch.ones(4, 4), mask(0)), "A grid of 4 x 4 does not divide a mask of 6 x 20"),
        (lambda: mass_on(-good, mask(0)), "pass the positive part of scores"),
        (lambda: jaccard(torch.zeros(GRID), mask(0)), "negative or all zero"),
        (lambda: deletion(lambda x: x.sum((1, 2, 3)), torch.ones(1, *SIZE), good, 13), "k is 13.*write 1 to 12"),
        (lambda: deletion(lambda x: x.sum((1, 2, 3)), torch.ones(1, 7, 20), good, 1), "does not divide 7 x 20 pixels"),
    ):
        with pytest.raises(ValueError, match=message):
            call()

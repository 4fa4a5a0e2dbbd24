"""Products of float32 matrices on a CPU: by oneDNN, where it is faster and as exact as the default library of PyTorch.

The default is MKL, which reaches half of the rate of some processors: 105 GFLOP/s on one core of an AMD Zen 5, where
oneDNN reaches 240. ``torch.set_float32_matmul_precision("medium")`` selects oneDNN. It also permits oneDNN to round the
numbers to bfloat16, which it does where that is faster, such as on a CPU with AMX. Speed and error are measured.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import NamedTuple

import torch

from .arguments import trains_on_cpu

MATMUL = ("auto", "off", "on")  # values of the field
FASTER, EXACT = 1.2, 4.0  # smallest speed and largest error for which "auto" is "on"
_ROUNDS = 5


class Comparison(NamedTuple):
    """The products of oneDNN, divided by those of the default library.

    Attributes:
        speed: products in the same time.
        error: largest difference to the products in float64. Rounding to bfloat16 makes it hundreds of times as large.
    """

    speed: float
    error: float

    @property
    def is_better(self) -> bool:
        return self.speed >= FASTER and self.error <= EXACT


@contextmanager
def onednn_products() -> Iterator[None]:
    """Within the context, oneDNN computes the products of float32 matrices on a CPU, forward and backward."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@cache
def compare_products() -> Comparison:
    """Measure the product of (1024, 256) and (256, 1024), in a tenth of a second."""
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(1024, 256, generator=generator), torch.randn(256, 1024, generator=generator)
    exact = left.double() @ right.double()
    times: dict[bool, list[float]] = {False: [], True: []}
    errors = {}
    for _ in range(_ROUNDS + 1):  # the first one prepares
        for enabled in times:
            with onednn_products() if enabled else nullcontext():
                start = time.perf_counter()
                product = left @ right
                times[enabled].append(time.perf_counter() - start)
            errors[enabled] = (product - exact).abs().max().item()
    return Comparison(min(times[False][1:]) / min(times[True][1:]), errors[True] / errors[False])


def uses_onednn(matmul: str) -> bool:
    """Return whether oneDNN computes the products in training, by the field ``matmul``; on a GPU, it has no effect."""
    if not trains_on_cpu():
        return False
    return matmul == "on" or (matmul == "auto" and compare_products().is_better)


__all__ = ["Comparison", "compare_products", "onednn_products", "uses_onednn"]

"""Measure peak memory and time of attention in several implementations, forward and backward.

    python benchmarks/attention.py [--queries 1024] [--keys 1024] [--width 256] [--threads 1] [--rounds 3]

Each implementation runs in its own process. The reported memory is the increase of peak resident memory, including the
inputs, their gradients and the energies. *additive, all pairs* evaluates the formula directly, *by chunks* is the
implementation of ``additive``, and *autograd* is used by other functions of pairs (``deep``, ``feature``). *with
weights* stores a (T, S) matrix, *fused* does not. The last rows measure one query, as in a decoder step.
"""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable

import torch
import typer

from hfattn.attention import attend
from hfattn.models.score_kernels import additive_energies, pairwise

Form = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def all_pairs(query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.tanh(query[..., :, None, :] + key[..., None, :, :]) @ v


def by_autograd(query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return pairwise(lambda sums, v: sums.tanh() @ v, query, key, v)


def by_name(score: str, need_weights: bool) -> Form:
    def context(query: torch.Tensor, key: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return attend(query, key, key * v, score, need_weights=need_weights)[0]

    return context


FORMS: dict[str, Form] = {
    "additive, all pairs": all_pairs,
    "pairs by chunks, autograd": by_autograd,
    "additive, by chunks": additive_energies,
    "scaled_dot, with weights": by_name("scaled_dot", True),
    "scaled_dot, fused": by_name("scaled_dot", False),
    "gaussian, with weights": by_name("gaussian", True),
    "gaussian, fused": by_name("gaussian", False),
}


def step(form: Form, tensors: list[torch.Tensor]) -> None:
    for tensor in tensors:
        tensor.grad = None
    result = form(*tensors)
    result.backward(torch.ones_like(result))


def inputs(batch: int, queries: int, keys: int, width: int) -> list[torch.Tensor]:
    shapes = ((batch, queries, width), (batch, keys, width), (width,))
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def measure(
    name: str, batch: int, queries: int, keys: int, width: int, threads: int, rounds: int
) -> tuple[float, float]:
    """Return the increase of peak memory in MiB and the median time in ms; call it in a fresh process."""
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    form = FORMS[name]
    step(form, inputs(1, 8, 8, width))  # exclude one-time initialization
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensors = inputs(batch, queries, keys, width)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        step(form, tensors)
        times.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return (peak - before) / 1024, statistics.median(times) * 1e3


def in_a_process(*arguments: object) -> tuple[float, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, arguments)


def main(queries: int = 1024, keys: int = 1024, width: int = 256, threads: int = 1, rounds: int = 3) -> None:
    matrix, cube = 4 * queries * keys / 2**20, 4 * queries * keys * width / 2**20
    print(
        f"T={queries} S={keys} H={width}, float32, {threads} threads: T S is {matrix:,.0f} MiB, T S H {cube:,.0f} MiB"
    )
    print(f"{'forward and backward':28}{'peak MiB':>10}{'ms':>10}")
    for name in FORMS:
        peak, milliseconds = in_a_process(name, 1, queries, keys, width, threads, rounds)
        print(f"{name:28}{peak:10,.0f}{milliseconds:10,.0f}", flush=True)
    print(f"one query, batch 64, S=32, H={width}")
    for name in ("additive, all pairs", "additive, by chunks"):
        _, milliseconds = in_a_process(name, 64, 1, 32, width, threads, 100)
        print(f"{name:28}{'':10}{milliseconds:10.2f}", flush=True)


if __name__ == "__main__":
    typer.run(main)

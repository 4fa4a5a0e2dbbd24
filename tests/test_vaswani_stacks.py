"""Options of whole stacks: the feed-forward network in pieces."""

from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_vaswani import SIZES, ids
from torch.utils._python_dispatch import TorchDispatchMode

from hfattn import (
    VaswaniConfig,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
)

F = 96


def make(kind: Any, train: bool = False, **fields: Any) -> Any:
    torch.manual_seed(0)
    config = VaswaniConfig(**{**SIZES, "dropout": 0.0, **fields})
    return kind._from_config(config, attn_implementation="eager").double().train(train)


def gradients(model: Any, **inputs: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """A number that depends on all logits, in float64 as no loss is, and its gradients."""
    logits = model(**inputs).logits
    result = (logits * torch.linspace(-1, 1, logits.numel(), dtype=logits.dtype).view_as(logits)).sum()
    model.zero_grad()
    result.backward()
    return result.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


class LargestTensor(TorchDispatchMode):
    """The largest number of elements that an operation returns while the mode is active."""

    number = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        tensors = [result] if isinstance(result, torch.Tensor) else result if isinstance(result, tuple | list) else []
        sizes = [tensor.numel() for tensor in tensors if isinstance(tensor, torch.Tensor)]
        self.number = max([self.number, *sizes])
        return result


def stored_bytes(model: Any, **inputs: Any) -> int:
    """Bytes that a forward pass stores for the backward pass, without the parameters."""
    sizes: dict[int, int] = {}

    def count(tensor: torch.Tensor) -> torch.Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
        model(**inputs)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in parameters)


# feed_forward_chunk


@pytest.mark.parametrize("train", [False, True])
def test_pieces_change_neither_the_output_nor_a_gradient(train: bool) -> None:
    """Also where the last piece is shorter, or the text is no longer than a piece."""
    inputs = {"input_ids": ids(2, 7), "labels": ids(2, 5, seed=2)}
    fields = {"gated_feed_forward": True, "activation": "silu"}
    expected_result, expected = gradients(make(VaswaniForConditionalGeneration, train, **fields), **inputs)
    for chunk in (1, 3, 5):
        model = make(VaswaniForConditionalGeneration, train, **fields, feed_forward_chunk=chunk)
        result, found = gradients(model, **inputs)
        torch.testing.assert_close(result, expected_result, atol=1e-12, rtol=0)
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, atol=1e-12, rtol=0)


def test_pieces_replay_their_dropout() -> None:
    """A derivative by differences: it is that of the function whose masks were drawn in the forward pass."""
    model = make(VaswaniForMaskedLM, train=True, feed_forward_chunk=2, activation_dropout=0.5, activation="gelu")
    inputs = {"input_ids": ids(1, 6)}
    weight = model.model.encoder.layers[0].feed_forward.fc1.weight
    torch.manual_seed(3)
    _, found = gradients(model, **inputs)
    direction = torch.randn_like(weight)
    results = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            weight.add_(direction, alpha=step)
        torch.manual_seed(3)
        results.append(gradients(model, **inputs)[0])
    slope = (found["model.encoder.layers.0.feed_forward.fc1.weight"] * direction).sum()
    torch.testing.assert_close((results[0] - results[1]) / 2e-5, slope, atol=1e-6, rtol=1e-6)


def test_the_inner_layer_is_never_stored_as_a_whole() -> None:
    """Its n · d_ff numbers are the largest tensor, and most of what training stores."""
    n = 60
    fields: dict[str, Any] = {"intermediate_size": F, "encoder_layers": 1, "encoder_pattern": "linear"}
    inputs = {"input_ids": ids(1, n)}
    largest, stored = [], []
    for chunk in (None, 5):
        model = make(VaswaniForMaskedLM, feed_forward_chunk=chunk, **fields)
        with torch.no_grad(), LargestTensor() as mode:
            model(**inputs)
        largest.append(mode.number)
        stored.append(stored_bytes(model.train(), **inputs))
    assert largest[0] == n * F
    assert largest[1] < n * F / 3
    assert stored[0] - stored[1] >= n * F * 8


def test_a_piece_has_a_position() -> None:
    with pytest.raises(StrictDataclassError, match="feed_forward_chunk is 0; write a whole number of at least 1"):
        VaswaniConfig(feed_forward_chunk=0)

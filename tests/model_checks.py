"""Checks that hold for a model of any family: half precision, gradient checkpointing, adapters and caches."""

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from torch.utils._python_dispatch import TorchDispatchMode

Inputs = Mapping[str, torch.Tensor]


def check_half_precision(
    model: Any, inputs: Inputs, labels: torch.Tensor, dtype: torch.dtype, tolerance: float = 0.05
) -> None:
    """Weights in half precision, and autocast, give nearly the logits of ``model`` and finite gradients."""

    def close(logits: torch.Tensor) -> None:
        torch.testing.assert_close(logits.to(expected.dtype), expected, atol=tolerance, rtol=tolerance)

    expected = model(**inputs, labels=labels).logits.detach()
    half = copy.deepcopy(model).to(dtype)
    outputs = half(**inputs, labels=labels)
    assert outputs.logits.dtype == dtype
    close(outputs.logits)
    outputs.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in half.parameters())
    if model.can_generate():
        prompt = {name: tensor for name, tensor in inputs.items() if not name.startswith("decoder_")}
        check_cache_in_half_precision(half, prompt, tolerance)
    if dtype == torch.bfloat16:
        mixed = copy.deepcopy(model).float()
        with torch.autocast("cpu", dtype):
            outputs = mixed(**inputs, labels=labels)
        close(outputs.logits)
        outputs.loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in mixed.parameters())


def check_cache_in_half_precision(model: Any, prompt: Inputs, tolerance: float) -> None:
    """With and without a cache a model gives each next token nearly the same logits, and its beams the same scores.

    The texts themselves may part: an untrained model has tokens of almost equal probability, which rounding decides.
    """
    options = {"max_new_tokens": 5, "do_sample": False, "return_dict_in_generate": True}
    cached, uncached = (model.generate(**prompt, **options, output_logits=True, use_cache=use) for use in (True, False))
    start = cached.sequences.shape[1] - len(cached.logits)
    same = torch.ones(len(cached.sequences), dtype=torch.bool)
    for step, (one, other) in enumerate(zip(cached.logits, uncached.logits, strict=False)):
        torch.testing.assert_close(one[same], other[same], atol=tolerance, rtol=tolerance)
        same &= cached.sequences[:, start + step] == uncached.sequences[:, start + step]
    options |= {"num_beams": 2, "output_scores": True}
    cached, uncached = (model.generate(**prompt, **options, use_cache=use) for use in (True, False))
    torch.testing.assert_close(cached.sequences_scores, uncached.sequences_scores, atol=tolerance, rtol=tolerance)


class Largest(TorchDispatchMode):
    """Number of elements of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor) and func is not torch.ops.aten.expand.default:
                self.elements = max(self.elements, tensor.untyped_storage().nbytes() // tensor.element_size())
        return result


@contextmanager
def saved_storages() -> Iterator[dict[int, int]]:
    """Record the bytes of each storage, by its address, that forward passes in the context save for backward."""
    saved: dict[int, int] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        yield saved


def check_gradient_checkpointing(model: Any, inputs: Inputs, labels: torch.Tensor, reentrant: bool) -> None:
    """Fewer activations are kept, dropout is replayed, and no gradient changes."""
    gradients, kept = [], []
    for checkpointing in (False, True):
        copied = copy.deepcopy(model).train()
        if checkpointing:
            copied.gradient_checkpointing_enable({"use_reentrant": reentrant})
            if reentrant and not copied.get_input_embeddings().weight.requires_grad:
                copied.enable_input_require_grads()  # this kind replays only layers whose inputs have gradients
        torch.manual_seed(3)
        with saved_storages() as saved:
            loss = copied(**inputs, labels=labels).loss
        kept.append(sum(saved.values()))
        loss.backward()
        gradients.append({name: p.grad for name, p in copied.named_parameters() if p.grad is not None})
    assert kept[1] < kept[0]
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


def check_adapter(
    model: Any,
    config: LoraConfig,
    inputs: Inputs,
    labels: torch.Tensor,
    folder: Path,
    *,
    steps: int,
    learning_rate: float,
    remains: float = 0.9,
) -> Any:
    """An adapter starts as nothing, learns, is saved and loaded, and is merged; returns the merged model.

    Training must bring the loss below ``remains`` times the first one.
    """
    base = copy.deepcopy(model)
    before = model(**inputs).logits.detach()
    adapted = get_peft_model(model.train(), config)
    torch.testing.assert_close(adapted(**inputs).logits, before)  # B starts at zero
    trainable = {name: parameter for name, parameter in adapted.named_parameters() if parameter.requires_grad}
    assert trainable
    assert all("lora" in name or "modules_to_save" in name for name in trainable)
    optimizer = torch.optim.Adam(trainable.values(), lr=learning_rate)
    losses = []
    for _ in range(steps):
        loss = adapted(**inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad is not None for parameter in trainable.values())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < remains * losses[0], losses
    adapted.eval()
    after = adapted(**inputs).logits.detach()
    adapted.save_pretrained(folder)
    reloaded = PeftModel.from_pretrained(base, folder).eval()
    torch.testing.assert_close(reloaded(**inputs).logits, after, atol=1e-6, rtol=0)
    merged = reloaded.merge_and_unload()
    torch.testing.assert_close(merged(**inputs).logits, after, atol=1e-6, rtol=0)
    return merged


def check_cached_generation(model: Any, inputs: Inputs, max_new_tokens: int) -> None:
    """Greedy search, samples and beams, several returned, write the tokens of a run without a cache."""
    ways: list[dict[str, Any]] = [{}, {"do_sample": True, "num_return_sequences": 2}]
    ways.append({"num_beams": 3, "num_return_sequences": 2})
    for options in ways:
        generated = []
        for use_cache in (True, False):
            torch.manual_seed(1)
            generated.append(model.generate(**inputs, max_new_tokens=max_new_tokens, use_cache=use_cache, **options))
        assert torch.equal(*generated), options


def check_cached_steps(model: Any, ids: torch.Tensor, mask: torch.Tensor, ends: Sequence[int]) -> None:
    """A causal language model that reads a batch in pieces, with these ends, gives the logits of one that does not."""
    whole = model(ids, attention_mask=mask).logits
    cache = None
    for start, end in itertools.pairwise((0, *ends)):
        outputs = model(ids[:, start:end], attention_mask=mask[:, :end], past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        torch.testing.assert_close(outputs.logits, whole[:, start:end], atol=1e-12, rtol=0)

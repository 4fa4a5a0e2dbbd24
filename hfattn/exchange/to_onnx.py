"""Export classifiers and character models as ONNX graphs for batches of any size and length, and check the result."""

import copy
import inspect
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from ..errors import UserError
from ..extras import require
from ..loading import max_positions
from ..models.cache_recurrent import RecurrentCache
from ..models.modeling_char_rnn import CharRNNForCausalLM
from ..models.recurrent_cells import GRU, LSTM, Elman, GRUResetBefore, RecurrentLayer, where_moved

FILE = "model.onnx"
# Sizes on which the graph is compared with the model: batch and length.
_EXAMPLE, _CHECKED = (2, 5), ((1, 1), (1, 6), (3, 4), (4, 11))
_TOLERANCE = 1e-4  # fraction of the largest output

# ONNX stacks the gates of a cell in a different order than torch.
_GATES = {Elman: [0], LSTM: [0, 3, 1, 2], GRU: [1, 0, 2], GRUResetBefore: [1, 0, 2]}
_OPERATORS = {Elman: "RNN", LSTM: "LSTM", GRU: "GRU", GRUResetBefore: "GRU"}


class OnnxRecurrentLayer(nn.Module):
    """A ``RecurrentLayer`` that uses the ONNX operator for its cell, with the same inputs and outputs.

    That operator reads ``lengths`` steps from the left. The real steps of each row are therefore moved to the left, and
    padding, which may be anywhere, to the right.
    """

    inputs_weight: torch.Tensor
    state_weight: torch.Tensor
    biases: torch.Tensor

    def __init__(self, layer: RecurrentLayer) -> None:
        super().__init__()
        rnn: Any = layer.rnn
        if type(rnn) not in _OPERATORS:
            raise UserError(f"ONNX has no operator for the cell {type(rnn).__name__}; the model cannot be exported.")
        self.kind, self.hidden_size = type(rnn), int(rnn.hidden_size)
        recurrent_bias = getattr(rnn, "bias_hh_l0", torch.zeros_like(rnn.bias_ih_l0))  # the paper's GRU has one bias
        self.register_buffer("inputs_weight", self._reordered(rnn.weight_ih_l0)[None])
        self.register_buffer("state_weight", self._reordered(rnn.weight_hh_l0)[None])
        biases = [self._reordered(bias) for bias in (rnn.bias_ih_l0, recurrent_bias)]
        self.register_buffer("biases", torch.cat(biases)[None])

    def _reordered(self, stacked: torch.Tensor) -> torch.Tensor:
        gates = stacked.detach().split(self.hidden_size)
        return torch.cat([gates[i] for i in _GATES[self.kind]])

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None = None, *state: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """See ``RecurrentLayer.forward``."""
        batch_size, num_steps, width = inputs.shape
        if mask is None:
            mask = torch.ones(batch_size, num_steps, dtype=torch.bool)
        old = state or (inputs.new_zeros(batch_size, self.hidden_size),) * self.kind.num_states
        seen = mask.long().cumsum(1)  # (B, T): real steps up to and including t
        lengths = seen[:, -1]
        place = torch.where(mask, seen - 1, num_steps)
        compact = inputs.new_zeros(batch_size, num_steps + 1, width)
        compact = compact.scatter(1, place[..., None].expand(-1, -1, width), inputs)[:, :num_steps]
        outputs, *new = self._run(compact.transpose(0, 1), lengths.clamp(min=1), old)
        new_state = where_moved(lengths[:, None] > 0, tuple(tensor[0] for tensor in new), old)
        history = torch.cat([old[0][:, None], outputs[:, 0].transpose(0, 1)], dim=1)
        outputs = history.gather(1, seen[..., None].expand(-1, -1, self.hidden_size))
        return outputs, *new_state

    def _run(
        self, inputs: torch.Tensor, lengths: torch.Tensor, state: Sequence[torch.Tensor]
    ) -> Sequence[torch.Tensor]:
        """Return outputs (T, 1, B, H) and states (1, B, H) for inputs (T, B, D) and a state of tensors (B, H)."""
        num_steps, batch_size, _ = inputs.shape
        attributes: dict[str, Any] = {"hidden_size": self.hidden_size}
        if _OPERATORS[self.kind] == "GRU":
            attributes["linear_before_reset"] = int(self.kind is GRU)
        shapes = [(num_steps, 1, batch_size, self.hidden_size), *[(1, batch_size, self.hidden_size)] * len(state)]
        weights = (self.inputs_weight, self.state_weight, self.biases)
        return torch.onnx.ops.symbolic_multi_out(
            _OPERATORS[self.kind],
            (inputs, *weights, lengths.int(), *(part[None] for part in state)),
            attributes,
            dtypes=[inputs.dtype] * len(shapes),
            shapes=shapes,
        )


class Classifier(nn.Module):
    """A classifier with positional inputs that returns only the logits."""

    outputs = ("logits",)

    def __init__(self, model: PreTrainedModel, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, tuple(names)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits (B, labels) for inputs (B, S) in the order of ``inputs``."""
        return (self.model(**dict(zip(self.inputs, inputs, strict=True))).logits,)


class StatefulLanguageModel(nn.Module):
    """A character model with its state as input and output: tensors (L, B, H) of all layers, h and, for an LSTM, c."""

    def __init__(self, model: CharRNNForCausalLM) -> None:
        super().__init__()
        self.model = model
        self.states = ("h", "c") if model.config.cell == "lstm" else ("h",)
        self.inputs = ("input_ids", "attention_mask", *self.states)
        self.outputs = ("logits", *(f"new_{name}" for name in self.states))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits (B, T, V) and the new state for ids and mask (B, T) and a state."""
        input_ids, attention_mask, *state = inputs
        layers = self.model.config.num_hidden_layers
        cache = RecurrentCache(layers)
        for layer in range(layers):
            cache.update_state(tuple(part[layer] for part in state), layer, 0)
        logits = self.model(input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True).logits
        new = [cache.get_state(layer) for layer in range(layers)]
        return logits, *(torch.stack([part[i] for part in new if part is not None]) for i in range(len(state)))


def export_onnx(model: PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """Write ``model.onnx`` into a folder.

    Args:
        model: a classifier of texts, or a character model.
        tokenizer: tokenizer of the model, or None; it determines the inputs of a classifier.
        folder: existing folder.

    Raises:
        UserError: a package is missing, the model is of another kind or cannot be exported, or the outputs of the graph
            differ.
    """
    require("export")
    model = model.float().eval()
    model.set_attn_implementation("eager")
    runner = _runner(model, tokenizer)
    batch_size, length = _EXAMPLE
    example = _inputs(runner, batch_size, min(length, max_positions(model.config) or length), seed=0)
    _program(runner, example).save(str(folder / FILE))
    _check(runner, folder / FILE)


def _runner(model: PreTrainedModel, tokenizer: Any) -> Classifier | StatefulLanguageModel:
    if isinstance(model, CharRNNForCausalLM):
        if model.config.conditioning_size is not None:
            raise UserError("The ONNX graph of a character model has no vector that conditions a text; use the model.")
        return StatefulLanguageModel(model)
    if not type(model).__name__.endswith("ForSequenceClassification"):
        raise UserError(
            f"{type(model).__name__} cannot be exported to ONNX; give a classifier of texts or a character model."
        )
    if getattr(model.config, "pooling", None) == "hierarchical":
        raise UserError("Hierarchical pooling splits texts into sentences, for which ONNX has no operator.")
    known = inspect.signature(model.forward).parameters
    names = tokenizer.model_input_names if tokenizer is not None else ("input_ids", "attention_mask")
    return Classifier(model, [name for name in names if name in known])


def _inputs(
    runner: Classifier | StatefulLanguageModel, batch_size: int, length: int, seed: int, left: bool = False
) -> tuple[torch.Tensor, ...]:
    """Return random texts of random lengths, at least one of which fills its row, with padding on the right or left."""
    random, config = torch.Generator().manual_seed(seed), runner.model.config
    lengths = torch.randint(1, length + 1, (batch_size,), generator=random)
    lengths[0] = length
    mask = (torch.arange(length) < lengths[:, None]).long()
    made = {
        "input_ids": torch.randint(config.vocab_size, (batch_size, length), generator=random),
        "attention_mask": mask.flip(1) if left else mask,
        "token_type_ids": torch.zeros(batch_size, length, dtype=torch.long),
    }
    if isinstance(runner, StatefulLanguageModel):
        shape = (config.num_hidden_layers, batch_size, config.hidden_size)
        made |= {name: torch.rand(shape, generator=random) - 0.5 for name in runner.states}
    return tuple(made[name] for name in runner.inputs)


def _program(runner: Classifier | StatefulLanguageModel, example: tuple[torch.Tensor, ...]) -> Any:
    """Return the model with ONNX operators for all layers that have one."""
    exported = copy.deepcopy(runner)
    for module in list(exported.modules()):
        for name, child in module.named_children():
            if isinstance(child, RecurrentLayer):
                setattr(module, name, OnnxRecurrentLayer(child))
    size = torch.export.Dim.DYNAMIC
    shapes = tuple({1: size} if tensor.ndim == 3 else {0: size, 1: size} for tensor in example)
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            return torch.onnx.export(
                exported,
                example,
                dynamo=True,
                dynamic_shapes=(shapes,),
                input_names=list(runner.inputs),
                output_names=list(runner.outputs),
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise UserError(
            f"{type(runner.model).__name__} with this configuration cannot be written as ONNX ({reason}); export one "
            "with other options."
        ) from error
    finally:
        logging.getLogger("torch.onnx").setLevel(level)


def _check(runner: Classifier | StatefulLanguageModel, file: Path) -> None:
    """Compare the file with the model on sizes other than those of the example, with padding on either side."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    longest = max_positions(runner.model.config)
    for seed, (batch_size, length) in enumerate(_CHECKED):
        if longest is not None and length > longest:
            continue
        inputs = _inputs(runner, batch_size, length, seed, left=seed % 2 == 0)
        with torch.no_grad():
            expected = runner(*inputs)
        given = {name: tensor.numpy() for name, tensor in zip(runner.inputs, inputs, strict=True)}
        try:
            found = session.run(None, given)
        except Exception as error:
            raise UserError(
                f"The graph does not run on a batch of {batch_size} x {length} ({' '.join(str(error).split())[:200]}); "
                "nothing was kept."
            ) from error
        for name, theirs, ours in zip(runner.outputs, found, expected, strict=True):
            difference = (torch.from_numpy(theirs) - ours).abs().max() if ours.shape == theirs.shape else torch.inf
            if not difference <= _TOLERANCE * ours.abs().max().clamp(min=1):
                raise UserError(
                    f"The {name} of the graph and the model differ on a batch of {batch_size} x {length}, by "
                    f"{float(difference):.2g}; nothing was kept."
                )

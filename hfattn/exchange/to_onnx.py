"""Export models as ONNX graphs for batches of any size and length, and check the result."""

import copy
import inspect
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel

from ..errors import UserError
from ..extras import require
from ..loading import max_positions
from ..models.cache_recurrent import RecurrentCache
from ..models.configuration_layers import LayersConfig
from ..models.modeling_bahdanau import BahdanauForConditionalGeneration
from ..models.modeling_char_rnn import CharRNNForCausalLM, CharRNNForSequenceClassification
from ..models.modeling_rnn_encoder import RNNEncoderForSequenceClassification
from ..models.modeling_vaswani import VaswaniForCausalLM, VaswaniForMaskedLM, VaswaniForSequenceClassification
from ..models.modeling_vaswani_translation import VaswaniForConditionalGeneration
from ..models.recurrent_cells import GRU, LSTM, Elman, GRUResetBefore
from ..models.recurrent_decoder import BahdanauEncoderOutput
from ..models.recurrent_layers import RecurrentLayer, where_moved

FILE = "model.onnx"
# Sizes on which the graph is compared with the model: batch and length. The last is of several blocks of a pattern.
_EXAMPLE, _CHECKED = (2, 5), ((1, 1), (1, 6), (3, 4), (4, 11), (2, 300))
_EXAMPLE_SEED = 0
_TOLERANCE = 1e-4  # fraction of the largest output, for up to 30 tokens: in float32, errors add up over a text
# Patterns of attention that have no graph for texts of any length: those of both stacks, and those of decoders.
_WITHOUT_GRAPH, _CAUSAL_WITHOUT_GRAPH = {"strided", "fixed", "gated_linear", "gated_delta"}, {"performer"}

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
        lengths = mask.long().sum(1)
        place = torch.where(mask, seen - 1, num_steps)
        # The operator needs a step also for texts without a token, so the one for padding stays.
        compact = inputs.new_zeros(batch_size, num_steps + 1, width)
        compact = compact.scatter(1, place[..., None].expand(-1, -1, width), inputs)
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


class TextModel(nn.Module):
    """A model with positional inputs that returns only the logits.

    Attributes:
        file: name of its graph.
        inputs, outputs: names of the inputs and the outputs.
        optional: inputs that may be left out, which are zeros then.
        steps: whether its recurrent cells run step by step, without the operators of ONNX.
    """

    file, outputs, optional, steps = FILE, ("logits",), (), False

    def __init__(self, model: PreTrainedModel, names: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs = model, tuple(names)
        self.options = {"use_cache": False} if model.can_generate() else {}
        # A padded step, which changes nothing, so that operators that fail for texts without a token have one to read.
        own = isinstance(
            model,
            CharRNNForSequenceClassification | RNNEncoderForSequenceClassification | VaswaniForSequenceClassification,
        )
        self.pads = own and "attention_mask" in names and getattr(model.config, "mask_padding", True)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the logits for inputs in the order of ``inputs``."""
        given = dict(zip(self.inputs, inputs, strict=True))
        if self.pads:
            for name in ("input_ids", "attention_mask", "token_type_ids"):
                if name in given:
                    given[name] = functional.pad(given[name], (0, 1))
        return (self.model(**given, **self.options).logits,)

    def random_inputs(self, batch_size: int, length: int, seed: int, left: bool = False) -> tuple[torch.Tensor, ...]:
        """Return texts of random lengths, at least one of which fills its row, padded on the right or left."""
        made = _random_texts(self.model, batch_size, length, seed, left)
        return tuple(made[name] for name in self.inputs)


class StatefulLanguageModel(nn.Module):
    """A character model with its state as input and output: tensors (L, B, H) of all layers, h and, for an LSTM, c."""

    file, steps = FILE, False

    def __init__(self, model: CharRNNForCausalLM) -> None:
        super().__init__()
        self.model = model
        self.optional = ("h", "c") if model.config.cell == "lstm" else ("h",)
        self.inputs = ("input_ids", "attention_mask", *self.optional)
        self.outputs = ("logits", *(f"new_{name}" for name in self.optional))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits (B, T, V) and the new state for ids and mask (B, T) and a state (L, B or 1, H)."""
        input_ids, attention_mask, *state = inputs
        state = [part.expand(-1, input_ids.shape[0], -1) for part in state]
        layers = self.model.config.num_hidden_layers
        cache = RecurrentCache(layers)
        for layer in range(layers):
            cache.update_state(tuple(part[layer] for part in state), layer, 0)
        logits = self.model(input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True).logits
        new = [cache.get_state(layer) for layer in range(layers)]
        return logits, *(torch.stack([part[i] for part in new if part is not None]) for i in range(len(state)))

    def random_inputs(self, batch_size: int, length: int, seed: int, left: bool = False) -> tuple[torch.Tensor, ...]:
        """Return texts as ``TextModel``, and random states; those of the example are of one row, as the zeros are."""
        config = self.model.config
        made = _random_texts(self.model, batch_size, length, seed, left)
        shape = (config.num_hidden_layers, 1 if seed == _EXAMPLE_SEED else batch_size, config.hidden_size)
        random = torch.Generator().manual_seed(seed)
        states = [torch.rand(shape, generator=random) - 0.5 for _ in self.optional]
        return made["input_ids"], made["attention_mask"], *states


class RecurrentSource(nn.Module):
    """The encoder of a recurrent translator, with what its decoder starts from.

    Outputs: the annotations (B, S, C), their prepared keys if there is attention, and the state, tensors (B, width).
    """

    file, inputs, optional, steps = "encoder.onnx", ("input_ids", "attention_mask"), (), False

    def __init__(self, model: BahdanauForConditionalGeneration) -> None:
        super().__init__()
        self.model = model
        decoder = model.model.decoder
        layers, parts, _ = decoder.state_shape
        prepared = 1 + (decoder.attention.distribution.prepared_width > 0) if decoder.attends else 0
        self.keys = tuple(f"keys_{i}" for i in range(prepared))
        self.states = tuple(f"state_{i}" for i in range(layers * parts + decoder.input_feeding))
        self.outputs = ("annotations", *self.keys, *self.states)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs for ids and mask (B, S)."""
        input_ids, attention_mask = inputs
        decoder = self.model.model.decoder
        encoded = self.model.model.encoder(input_ids, attention_mask=attention_mask, return_dict=True)
        cache = RecurrentCache(decoder.num_cache_layers)
        decoder._start(cache, encoded)
        return encoded.last_hidden_state, *cache.source, *_flat(cache)

    def random_inputs(self, batch_size: int, length: int, seed: int, left: bool = False) -> tuple[torch.Tensor, ...]:
        """See ``TextModel``."""
        made = _random_texts(self.model, batch_size, length, seed, left)
        return made["input_ids"], made["attention_mask"]


class RecurrentStep(nn.Module):
    """One step of the decoder of a recurrent translator, from the outputs of ``RecurrentSource``."""

    file, optional = "decoder.onnx", ()

    def __init__(self, source: RecurrentSource) -> None:
        super().__init__()
        self.source, self.model = source, source.model
        decoder = source.model.model.decoder
        self.steps = decoder.attends_before or decoder.input_feeding
        self.inputs = ("decoder_input_ids", "attention_mask", *source.outputs)
        self.outputs = ("logits", *(f"new_{name}" for name in source.states))

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return logits (B, 1, V) and the new state for the last token (B, 1), the source and the state."""
        ids, mask, annotations, *rest = inputs
        number = len(self.source.keys)
        decoder = self.model.model.decoder
        layers, parts, _ = decoder.state_shape
        cache = RecurrentCache(decoder.num_cache_layers)
        cache.source, states = tuple(rest[:number]), rest[number:]
        for layer in range(layers):
            cache.update_state(tuple(states[layer * parts : (layer + 1) * parts]), layer, 0)
        if decoder.input_feeding:
            cache.update_state((states[-1],), -1, 0)
        encoded = BahdanauEncoderOutput(last_hidden_state=annotations)
        found = self.model(
            attention_mask=mask, decoder_input_ids=ids, encoder_outputs=encoded, past_key_values=cache, use_cache=True
        )
        return found.logits, *_flat(cache)

    def random_inputs(self, batch_size: int, length: int, seed: int, left: bool = False) -> tuple[torch.Tensor, ...]:
        """Return what the encoder computes for random texts, and random last tokens."""
        texts = self.source.random_inputs(batch_size, length, seed, left)
        with torch.no_grad():
            known = [tensor.contiguous() for tensor in self.source(*texts)]
        return texts[0][:, -1:] % self.model.config.vocab_size, texts[1], *known


Runner = TextModel | StatefulLanguageModel | RecurrentSource | RecurrentStep


def _flat(cache: RecurrentCache) -> list[torch.Tensor]:
    return [tensor for layer in cache.layers for tensor in layer.state]


def export_onnx(model: PreTrainedModel, tokenizer: Any, folder: Path) -> None:
    """Write ``model.onnx`` into a folder; for a recurrent translator ``encoder.onnx`` and ``decoder.onnx``, one step.

    Args:
        model: a classifier of texts, a masked or causal language model, or a translator.
        tokenizer: tokenizer of the model, or None; it determines the inputs of a classifier.
        folder: existing folder.

    Raises:
        UserError: a package is missing, the model is of another kind or cannot be exported, or the outputs of the graph
            differ.
    """
    require("export")
    model = model.float().eval()
    model.set_attn_implementation("eager")
    batch_size, length = _EXAMPLE
    for runner in _runners(model, tokenizer):
        longest = max_positions(model.config) or length
        example = runner.random_inputs(batch_size, min(length, longest), _EXAMPLE_SEED)
        file = folder / runner.file
        _program(runner, example).save(str(file))
        _make_optional(runner.optional, file)
        _check(runner, file)


def _check_patterns(config: LayersConfig) -> None:
    """Check that the patterns of attention have a graph for texts of any length.

    Raises:
        UserError: one has none.
    """
    stacks = ["encoder", "decoder"] if config.is_encoder_decoder else ["decoder" if config.is_decoder else "encoder"]
    for stack in stacks:
        for index in range(getattr(config, f"{stack}_layers")):
            name, options = config.layer_pattern(stack, index)
            without = _WITHOUT_GRAPH | (_CAUSAL_WITHOUT_GRAPH if stack == "decoder" else set())
            if name in without or (name == "window" and options.get("global_tokens")):
                shown = "window with global_tokens" if name == "window" else name
                raise UserError(
                    f"{stack}_pattern is {shown}, which cannot be written as an ONNX graph for texts of any length; "
                    "use the model itself, or export one with the pattern full, window, block_local, memory, lsh or "
                    "linear."
                )


def _runners(model: PreTrainedModel, tokenizer: Any) -> list[Runner]:
    """Return the parts of a model that become graphs."""
    if isinstance(model.config, LayersConfig):
        _check_patterns(model.config)
    if isinstance(model, CharRNNForCausalLM):
        if model.config.conditioning_size is not None:
            raise UserError("The ONNX graph of a character model has no vector that conditions a text; use the model.")
        if len(set(model.config.layer_sizes)) > 1:
            raise UserError("The state in an ONNX graph has one width; export a model without last_hidden_size.")
        return [StatefulLanguageModel(model)]
    if isinstance(model, BahdanauForConditionalGeneration):
        if model.config.attention_window == "local_m":
            raise UserError("The ONNX graph of a step does not know its position, which local_m needs; use the model.")
        source = RecurrentSource(model)
        return [source, RecurrentStep(source)]
    if isinstance(model, VaswaniForConditionalGeneration):
        return [TextModel(model, ("input_ids", "attention_mask", "decoder_input_ids"))]
    if isinstance(model, VaswaniForCausalLM | VaswaniForMaskedLM):
        return [TextModel(model, ("input_ids", "attention_mask"))]
    if not type(model).__name__.endswith("ForSequenceClassification"):
        raise UserError(
            f"{type(model).__name__} cannot be exported to ONNX; give a classifier of texts or a model of hfattn."
        )
    if getattr(model.config, "pooling", None) == "hierarchical":
        raise UserError("Hierarchical pooling splits texts into sentences, for which ONNX has no operator.")
    if getattr(model.config, "contextual_config", None) is not None:
        raise UserError("The encoder of contextual vectors reads pieces of the tokens, whose number a graph would fix.")
    known = inspect.signature(model.forward).parameters
    names = tokenizer.model_input_names if tokenizer is not None else ("input_ids", "attention_mask")
    return [TextModel(model, [name for name in names if name in known])]


def _random_texts(
    model: PreTrainedModel, batch_size: int, length: int, seed: int, left: bool
) -> dict[str, torch.Tensor]:
    random, config = torch.Generator().manual_seed(seed), model.config
    source_size = config.to_dict().get("source_vocab_size") or config.vocab_size
    lengths = torch.randint(1, length + 1, (batch_size,), generator=random)
    lengths[0] = length
    mask = (torch.arange(length) < lengths[:, None]).long()
    return {
        "input_ids": torch.randint(source_size, (batch_size, length), generator=random),
        "attention_mask": mask.flip(1) if left else mask,
        "token_type_ids": torch.zeros(batch_size, length, dtype=torch.long),
        "decoder_input_ids": torch.randint(config.vocab_size, (batch_size, length + 2), generator=random),
    }


def _program(runner: Runner, example: tuple[torch.Tensor, ...]) -> Any:
    """Return the model with ONNX operators for all layers that have one."""
    exported = copy.deepcopy(runner)
    for module in [] if runner.steps else list(exported.modules()):
        for name, child in module.named_children():
            if isinstance(child, RecurrentLayer):
                setattr(module, name, OnnxRecurrentLayer(child))
    shapes = tuple(_dynamic(name, tensor) for name, tensor in zip(runner.inputs, example, strict=True))
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


def _dynamic(name: str, tensor: torch.Tensor) -> dict[int, Any]:
    """Return the dimensions of an input that may have any size: batch and length."""
    size = torch.export.Dim.DYNAMIC
    if name in ("h", "c"):
        return {}
    fixed = name.startswith("state_") or tensor.shape[1] == 1
    return {0: size} if fixed else {0: size, 1: size}


def _make_optional(names: Sequence[str], file: Path) -> None:
    """Give inputs (L, B, H) the default of zeros (L, 1, H), which the graph expands to the batch."""
    import onnx

    if not names:
        return
    graph = onnx.load(file)
    for given in graph.graph.input:
        if given.name in names:
            sizes = given.type.tensor_type.shape.dim
            zeros = np.zeros([size.dim_value for size in sizes], dtype=np.float32)
            graph.graph.initializer.append(onnx.numpy_helper.from_array(zeros, given.name))
            sizes[1].dim_param = "rows"
    onnx.save(graph, file)


def _check(runner: Runner, file: Path) -> None:
    """Compare the file with the model on sizes other than those of the example, with padding on either side."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    longest = max_positions(runner.model.config)
    for seed, (batch_size, length) in enumerate(_CHECKED, _EXAMPLE_SEED + 1):
        if longest is not None and length > longest:
            continue
        inputs = runner.random_inputs(batch_size, length, seed, left=seed % 2 == 0)
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
            if not difference <= _TOLERANCE * max(1, length / 30) * ours.abs().max().clamp(min=1):
                raise UserError(
                    f"The {name} of the graph and the model differ on a batch of {batch_size} x {length}, by "
                    f"{float(difference):.2g}; nothing was kept."
                )

"""``generate()`` in lean steps: after the prompt, a step computes the logits of the next token, and nothing else.

The loop of transformers calls ``forward`` for each token, which builds inputs, masks and outputs for every use that a
model may have. For a small model on a CPU, that takes longer than the decoder itself. Here, ``forward`` reads the
prompt, and ``Steps`` of the model do the rest. Logits processors, stopping criteria, streamers and seeds have the same
effect as in the loop of transformers, which is the reference, and which runs whatever is not implemented here.

Shapes: B sources or texts, k hypotheses of each, N = B k rows, V vocabulary size.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import GenerationMixin
from transformers.generation import (
    EosTokenCriteria,
    GenerateDecoderOnlyOutput,
    GenerateEncoderDecoderOutput,
    MaxLengthCriteria,
)
from transformers.modeling_outputs import CausalLMOutput
from transformers.utils.output_capturing import capture_outputs

# Arguments of generate() whose presence leaves the whole call to transformers: other methods, and what is returned
# beside the text.
_OF_TRANSFORMERS = (
    "assistant_early_exit",
    "assistant_model",
    "assistant_tokenizer",
    "cache_implementation",
    "constraints",
    "dola_layers",
    "force_words_ids",
    "low_memory",
    "num_beam_groups",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "penalty_alpha",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "stop_strings",
    "synced_gpus",
    "token_healing",
    "tokenizer",
    "use_mtp",
)
# Inputs of ``forward`` that the steps after the prompt do not need, or have from the model.
_INPUTS = {
    "attention_mask",
    "conditioning",
    "encoder_outputs",
    "inputs_embeds",
    "logits_to_keep",
    "past_key_values",
    "use_cache",
}

_STEPS_BEFORE_COPY = 4


class Steps:
    """The steps of a decoder after its prompt, and their state.

    Rows (N,) are k hypotheses of each of B sources, one source after the other.
    """

    def logits(self, tokens: torch.Tensor) -> torch.Tensor:
        """Read the last token (N,) of each row, and return the logits (N, V) of the next ones."""
        raise NotImplementedError

    def reorder_cache(self, rows: torch.Tensor) -> None:
        """Let row i continue what row ``rows[i]`` (N,) has read; both belong to the same source."""
        raise NotImplementedError

    def store(self) -> None:
        """Write the state into the cache that the prompt was read with."""
        raise NotImplementedError


class FastGenerationMixin(GenerationMixin):
    """``generate()`` in lean steps where it can, and as in transformers where it cannot.

    The lean steps are used if all of the following holds:

    - ``fast_generation`` is True, and the caller passes no ``custom_generate``;
    - no scores, logits, attentions or hidden states are requested, the cache is used, and the method is greedy search,
      sampling or beam search, without an assistant, stop strings or several processes;
    - the model is in evaluation mode, computes in float32 or float64, and ``lean_reason`` knows nothing against it.

    Attributes:
        fast_generation: whether to use the lean steps; set it to False to turn them off.
        continues_caches: whether lean steps can continue from a cache of the caller.
    """

    fast_generation: bool = True
    continues_caches: bool = True

    def lean_reason(self) -> str | None:
        """Return why this model cannot generate in lean steps, in a few words, or None if it can."""
        raise NotImplementedError

    def lean_steps(self, outputs: Any, attention_mask: torch.Tensor | None, num_beams: int) -> Steps:
        """Return the steps after a prompt.

        Args:
            outputs: of ``forward``, with the cache.
            attention_mask: (N, S) of the source, or of the prompt of a language model.
            num_beams: k.
        """
        raise NotImplementedError

    def pad_beams(self, sequences: torch.Tensor, input_ids: torch.Tensor, generation_config: Any) -> None:
        """Change the padding of the hypotheses (B n, T) of a beam search; a model that does so overrides it."""

    def why_not_fast(self) -> str | None:
        """Return why ``generate()`` runs the loop of transformers for this model, or None if it need not."""
        if not self.fast_generation:
            return "fast_generation is False"
        if self.training:
            return "the model is in training mode"
        if any(hasattr(module, "_hf_hook") for module in self.modules()):  # of accelerate
            return "the weights are on several devices, or loaded for each part"
        if self.dtype not in (torch.float32, torch.float64):
            return f"the weights are {self.dtype}"
        if torch.is_autocast_enabled(self.device.type):
            return "autocast is on"
        if not unhooked(self):
            return "the model has hooks, or was prepared for mixed precision"
        return self.lean_reason()

    def generate(
        self,
        inputs: torch.Tensor | None = None,
        generation_config: Any = None,
        *args: Any,
        custom_generate: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Generate texts with the arguments of ``GenerationMixin.generate``, in lean steps where they can be used."""
        if custom_generate is None and not args and self._may_be_fast(generation_config, kwargs):
            # transformers passes no streamer to a custom loop.
            custom_generate = functools.partial(_decode, streamer=kwargs.get("streamer"))
        return super().generate(inputs, generation_config, *args, custom_generate=custom_generate, **kwargs)

    def _may_be_fast(self, generation_config: Any, kwargs: Mapping[str, Any]) -> bool:
        given = {} if generation_config is None else generation_config.to_dict()
        settings = (kwargs, given, self.generation_config.to_dict())

        def asked(name: str) -> Any:
            return next((each[name] for each in settings if each.get(name) is not None), None)

        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        beams_in_stream = kwargs.get("streamer") is not None and (asked("num_beams") or 1) > 1
        other_cache = kwargs.get("past_key_values") is not None and not self.continues_caches
        beyond = several or beams_in_stream or other_cache or any(map(asked, _OF_TRANSFORMERS))
        return not beyond and self.why_not_fast() is None


class LeanLinear:
    """Linear layers of one input (N, D), whose outputs are put side by side, (N, ...).

    Layers that are not plain ones, such as those with adapters, are called as they are. On a CPU, the product of a few
    rows is up to twice as fast with a transposed copy of the weights. The copy takes about as long as it saves in
    ``_STEPS_BEFORE_COPY`` steps, and is made then, so that a short text does not wait for it.
    """

    def __init__(self, *layers: nn.Module) -> None:
        self.layers, self.steps = layers, 0
        self.weight: torch.Tensor | None = None
        self.bias: torch.Tensor | None = None
        plain = [layer for layer in layers if type(layer) is nn.Linear and unhooked(layer)]
        self.copied = plain if len(plain) == len(layers) and plain[0].weight.device.type == "cpu" else []

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.weight is None:
            self.steps += 1
            if not self.copied or self.steps <= _STEPS_BEFORE_COPY:
                outputs = [layer(inputs) for layer in self.layers]
                return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
            self.weight = torch.cat([layer.weight for layer in self.copied]).t().contiguous()  # (D, ...)
            if self.copied[0].bias is not None:
                self.bias = torch.cat([layer.bias for layer in self.copied])
        return inputs @ self.weight if self.bias is None else torch.addmm(self.bias, inputs, self.weight)


def unhooked(*modules: nn.Module) -> bool:
    """Return whether modules are called without hooks, and without the autocast of accelerate around them."""
    hooks = [hook for each in modules for hook in (each._forward_hooks | each._forward_pre_hooks).values()]
    # Those of capture_outputs stay after a call that requested outputs, and do nothing in other calls.
    are_idle = all(hook.__module__ == capture_outputs.__module__ for hook in hooks)
    return are_idle and not any(hasattr(each, "_original_forward") for each in modules)


def _decode(
    model: Any,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    streamer: Any = None,
    **model_kwargs: Any,
) -> Any:
    """Run the loop for ``generate()``, which has prepared the inputs; see ``custom_generate`` of transformers."""
    num_beams, returns_more = generation_config.num_beams, generation_config.return_dict_in_generate
    given = {name for name, value in model_kwargs.items() if value is not None}
    shared = {"stopping_criteria": stopping_criteria, "generation_config": generation_config}
    if given - _INPUTS or not model_kwargs["use_cache"] or (num_beams > 1 and returns_more):
        loop = type(model)._beam_search if num_beams > 1 else type(model)._sample
        streamed = {} if streamer is None else {"streamer": streamer}
        return loop(model, input_ids, logits_processor=logits_processor, **shared, **streamed, **model_kwargs)
    outputs = model._prefill(input_ids, generation_config, model_kwargs)
    steps = model.lean_steps(outputs, model_kwargs.get("attention_mask"), num_beams)
    if num_beams > 1:
        search = _BeamSearch(model, steps, outputs.logits)
        found = search._beam_search(input_ids, logits_processor, **shared, past_key_values=steps, use_cache=True)
        model.pad_beams(found, input_ids, generation_config)
        return found
    ids = _sample(steps, outputs.logits[:, -1], input_ids, logits_processor, **shared, streamer=streamer)
    steps.store()
    if not returns_more:
        return ids
    kind = GenerateEncoderDecoderOutput if model.config.is_encoder_decoder else GenerateDecoderOnlyOutput
    return kind(sequences=ids, past_key_values=outputs.past_key_values)


def _sample(
    steps: Steps,
    logits: torch.Tensor,
    input_ids: torch.Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: Any,
    streamer: Any,
) -> torch.Tensor:
    """Choose the most probable token, or draw one, until all rows have ended; ``_sample`` of ``GenerationMixin``.

    Args:
        logits: (N, V), of the first new token.
        input_ids: (N, T), the prompt.
        streamer: receives each new token, if it is given.

    Returns:
        (N, T'), the prompt and the new tokens.
    """
    padding, draws, device = generation_config._pad_token_tensor, generation_config.do_sample, input_ids.device
    # The two usual criteria depend on the length and on the new token. Others read the text, as processors do.
    criteria = list(stopping_criteria)
    limit = min((each.max_length for each in criteria if _is_length(each)), default=math.inf)
    ends = [each.eos_token_id.to(device) for each in criteria if type(each) is EosTokenCriteria]
    others = [each for each in criteria if not _is_length(each) and type(each) is not EosTokenCriteria]
    pads = any(hasattr(each, "eos_token_id") for each in criteria)
    end = torch.cat(ends) if ends else None
    reads_text = bool(others or len(logits_processor))
    num_rows, length = input_ids.shape
    running = torch.ones(num_rows, dtype=torch.long, device=device)
    text, written = input_ids, []
    while True:
        scores = logits.float()
        for processor in logits_processor:
            scores = processor(text, scores)
        tokens = torch.multinomial(scores.softmax(-1), 1).squeeze(1) if draws else scores.argmax(-1)
        if pads and num_rows > 1:
            tokens = tokens * running + padding * (1 - running)
        written.append(tokens)
        length += 1
        if reads_text:
            text = torch.cat([text, tokens[:, None]], dim=1)
        if streamer is not None:
            streamer.put(tokens.cpu())
        if end is not None:
            running = running & ~torch.isin(tokens, end)
        for criterion in others:
            running = running & ~criterion(text, None)
        if length >= limit or ((others or ends) and not running.any()):
            break
        logits = steps.logits(tokens)
    if streamer is not None:
        streamer.end()
    return torch.cat([input_ids, torch.stack(written, dim=1)], dim=1)


def _is_length(criterion: Any) -> bool:
    """Return whether a criterion is the length of the text alone, and has no warning to give on the way."""
    if type(criterion) is not MaxLengthCriteria:
        return False
    return criterion.max_position_embeddings is None or criterion.max_length <= criterion.max_position_embeddings


class _BeamSearch(GenerationMixin):
    """What the beam search of transformers takes for a model: the steps, and the logits after the prompt."""

    def __init__(self, model: Any, steps: Steps, logits: torch.Tensor) -> None:
        self.config, self.device = model.config, model.device
        self.steps, self.first = steps, logits

    def _prefill(self, *args: Any, **kwargs: Any) -> CausalLMOutput:
        return CausalLMOutput(logits=self.first)

    def prepare_inputs_for_generation(self, input_ids: torch.Tensor, **kwargs: Any) -> dict[str, Any]:
        return {"tokens": input_ids[:, -1]}

    def _update_model_kwargs_for_generation(
        self, outputs: Any, model_kwargs: dict[str, Any], **kwargs: Any
    ) -> dict[str, Any]:
        return model_kwargs

    def __call__(self, tokens: torch.Tensor, **kwargs: Any) -> CausalLMOutput:
        return CausalLMOutput(logits=self.steps.logits(tokens)[:, None])


__all__ = ["FastGenerationMixin", "LeanLinear", "Steps", "unhooked"]

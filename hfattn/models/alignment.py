"""Which source tokens each target token was read from: attention weights beside the tokens that they belong to.

A model returns its weights by layers, a generation by steps as well, and a beam search for beams that mostly lost.
``alignment`` makes one record of one text out of any of them, for the models of this package and of transformers.

Shapes: B batch, T target (query) steps, S source (key) steps.
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import ModelOutput

# Where transformers puts the weights of each kind.
_FIELDS = {
    "cross": "cross_attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "self": "attentions",
}
_KINDS = ", ".join(map(repr, _FIELDS))
_IGNORED = -100  # the label of a position without one


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of one text.

    Args:
        tokens: what is attended to, S tokens.
        target_tokens: what attends, T tokens. In cross-attention, row i holds the weights with which the model wrote
            target token i; in self-attention, those with which it read token i.
        weights: (layers, heads, T, S), on the CPU.
        kind: "cross" (target to source), "encoder" or "decoder" (the self-attention of either side of an
            encoder-decoder model), or "self" (that of a model with one side).

    In a notebook, a record that ends a cell is shown as the page of ``to_html``.

    Raises:
        ValueError: the weights have not the shape that the tokens say.
    """

    tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: torch.Tensor
    kind: str = "cross"

    def __post_init__(self) -> None:
        if self.kind not in _FIELDS:
            raise ValueError(f"kind is {self.kind!r}; write one of {_KINDS}.")
        expected = (len(self.target_tokens), len(self.tokens))
        if self.weights.ndim != 4 or tuple(self.weights.shape[2:]) != expected:
            raise ValueError(
                f"weights has the shape {tuple(self.weights.shape)}; {expected[0]} target tokens and {expected[1]} "
                f"tokens need (layers, heads, {expected[0]}, {expected[1]})."
            )

    def matrix(self, layer: int | None = None, head: int | None = None) -> torch.Tensor:
        """Weights (T, S) of one layer and head; None is the mean over all of them.

        Raises:
            ValueError: there is no such layer or head.
        """
        weights = self.weights
        for dim, (name, index) in enumerate({"layer": layer, "head": head}.items()):
            size = weights.shape[dim]
            if index is None:
                weights = weights.mean(dim, keepdim=True)
            elif -size <= index < size:
                weights = weights.narrow(dim, index % size, 1)
            else:
                raise ValueError(f"{name} is {index}; the record has {size}: write 0 to {size - 1}, or None.")
        return weights[0, 0]

    def to_dict(self) -> dict[str, Any]:
        """The record in strings, numbers and lists, as JSON can hold them."""
        return {
            "kind": self.kind,
            "tokens": list(self.tokens),
            "target_tokens": list(self.target_tokens),
            "weights": self.weights.tolist(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """The record that ``to_dict`` wrote; its weights come back in float64, which holds each of them exactly."""
        return cls(
            tokens=tuple(record["tokens"]),
            target_tokens=tuple(record["target_tokens"]),
            weights=torch.tensor(record["weights"], dtype=torch.float64),
            kind=record["kind"],
        )

    def to_html(self, title: str | None = None) -> str:
        """One self-contained page to read with a mouse, a finger or the arrow keys: write it to a file in UTF-8.

        Raises:
            ValueError: the record has no token on one side, or a weight that is not a number.
        """
        from .alignment_page import render_html

        return render_html(self, title)

    def show(self, title: str | None = None) -> None:
        """Display that page below a notebook's cell.

        Raises:
            ValueError: as ``to_html``; or this is no notebook.
        """
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError:
            shell = None
        else:
            shell = get_ipython()
        if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
            raise ValueError(
                "show() needs a notebook, and this is none; write to_html() to a file, in UTF-8, and open that."
            )
        display({"text/html": self._frame(title), "text/plain": repr(self)}, raw=True)

    def _repr_html_(self) -> str:
        return self._frame(None)

    def _frame(self, title: str | None) -> str:
        """The page in a frame, so that neither its styles nor its names meet those of the notebook."""
        page = html.escape(self.to_html(title))
        style = "width: 100%; height: 46rem; border: 0"
        return f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts" title="Attention"></iframe>'


def alignment(
    outputs: ModelOutput,
    index: int = 0,
    *,
    hypothesis: int = 0,
    kind: str | None = None,
    input_ids: torch.Tensor | None = None,
    attention_mask: torch.Tensor | None = None,
    labels: torch.Tensor | None = None,
    decoder_input_ids: torch.Tensor | None = None,
    decoder_attention_mask: torch.Tensor | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    eos_token_id: int | Sequence[int] | None = None,
) -> AttentionRecord:
    """The attention of one text of a batch, from what a model returned.

    From ``generate(..., output_attentions=True, return_dict_in_generate=True)`` it is the attention of a finished
    sequence: steps after its end are left out, and in a beam search each step is read from the beam that the sequence
    came through (``beam_indices``). From a forward pass with ``output_attentions=True`` it is that of the text that was
    read.

    Args:
        outputs: what ``generate`` or the model returned.
        index: which text of the batch that went in.
        hypothesis: which of its returned sequences, where ``num_return_sequences`` asked for several; 0 is the best.
        kind: "cross", "encoder", "decoder" or "self", as in ``AttentionRecord``; default cross-attention, or
            self-attention where there is none.
        input_ids: (B, S), what the model read; outputs do not hold it. A decoder-only ``generate`` does, and needs it
            only where it returned several sequences for each prompt.
        attention_mask: (B, S), 0 at padding, which is left out of the record. Default: with a tokenizer, whatever is
            its padding token, unless that ends texts too; otherwise nothing is padding.
        labels: (B, T), what each step was to write; for the cross-attention of a forward pass.
        decoder_input_ids: (B, T), what the decoder read; for the decoder's self-attention in a forward pass.
        decoder_attention_mask: (B, T), 0 at padding of the target. Default as for ``attention_mask``; a label of -100
            is padding always.
        tokenizer: names the tokens; without it, they are the ids.
        target_tokenizer: names those of a target that has a vocabulary of its own; default ``tokenizer``.
        eos_token_id: what ends a sequence, where no beam search tells; default that of the tokenizer that names it. An
            empty list is for a model that does not end its sequences.

    Raises:
        ValueError: the outputs hold no such weights, something that they do not hold was not passed, or there is no
            such text; the message says what to pass.
    """
    if not isinstance(outputs, ModelOutput):
        raise ValueError(
            f"alignment reads what a model returns, not a {type(outputs).__name__}; pass return_dict_in_generate=True "
            "to generate(), or return_dict=True to the model."
        )
    if kind is None:
        kind = "self" if "attentions" in outputs and not _weights(outputs, "cross") else "cross"
    if kind not in _FIELDS:
        raise ValueError(f"kind is {kind!r}; write one of {_KINDS}.")
    weights = _weights(outputs, kind)
    if not weights:
        raise ValueError(
            f"These outputs hold no {_FIELDS[kind]}; where the model has such an attention, call "
            'model.set_attn_implementation("eager") and pass output_attentions=True.'
        )
    if target_tokenizer is None or kind in ("encoder", "self"):
        target_tokenizer = tokenizer
    if kind == "decoder":
        tokenizer = target_tokenizer  # the text that it attends to is the target

    if "sequences" in outputs and kind != "encoder":
        if eos_token_id is None and target_tokenizer is not None:
            eos_token_id = target_tokenizer.eos_token_id
        num_texts = None if input_ids is None else len(input_ids)
        path = GenerationPath.of(outputs, len(weights), index, hypothesis, num_texts, eos_token_id)
        start = path.prompt_length - weights[0][0].shape[-2]  # a cache may have held the ids before it
        if start < 0:
            raise ValueError("These sequences lack their prompt, as after inputs_embeds; pass input_ids to generate().")
        if kind == "cross":
            num_keys = weights[0][0].shape[-1]
            source = _Text.row("input_ids", input_ids, index, num_keys, attention_mask, tokenizer)
            target = _Text.of(path.sequence[start + 1 :])
        else:
            source = _read(path, kind, index, attention_mask, tokenizer)
            target = _Text(source.ids[start:], source.real[start:])
            num_keys = len(source.ids)
            if any(layer.shape[-1] < num_keys for layer in weights[len(path.beams) - 1]):
                raise ValueError("A sliding window kept weights on some of the tokens only; set use_cache=False.")
        rows = path.rows(weights, num_keys)
    else:
        if hypothesis != 0:
            raise ValueError(f"hypothesis is {hypothesis}; write 0, because there is one attention for each text here.")
        rows = _rows(weights, index)
        num_steps, num_keys = rows.shape[-2:]
        if kind == "decoder":
            source = _Text.row(
                "decoder_input_ids", decoder_input_ids, index, num_keys, decoder_attention_mask, tokenizer
            )
        else:
            source = _Text.row("input_ids", input_ids, index, num_keys, attention_mask, tokenizer)
        target = source
        if kind == "cross":
            target = _Text.row("labels", labels, index, num_steps, decoder_attention_mask, target_tokenizer)
        elif num_steps == 1 < num_keys:
            # Attention pooling: what attends is no token, but the one vector that stands for the text.
            pooled = rows.detach().cpu()[..., source.real]
            return AttentionRecord(source.names(tokenizer), ("[text]",), pooled, kind)
    rows = rows.detach().cpu()[:, :, target.real][..., source.real]
    return AttentionRecord(source.names(tokenizer), target.names(target_tokenizer), rows, kind)


def _rows(weights: Sequence[torch.Tensor], index: int) -> torch.Tensor:
    """The weights (layers, heads, T, S) of one text, out of a tuple of layers' (B, heads, T, S)."""
    _checked("index", index, len(weights[0]))
    if any(layer.shape != weights[0].shape for layer in weights):
        shapes = ", ".join(str(tuple(layer.shape)) for layer in weights)
        raise ValueError(f"The layers attend in different shapes ({shapes}), which one record cannot hold.")
    return torch.stack([layer[index] for layer in weights])


def _read(
    path: "GenerationPath",
    kind: str,
    index: int,
    attention_mask: torch.Tensor | None,
    tokenizer: PreTrainedTokenizerBase | None,
) -> "_Text":
    """The text that a decoder read while it wrote: all but the last id. Its prompt may be padded; that of the decoder
    of an encoder-decoder is not, and begins with what may well be the padding symbol."""
    text = _Text.of(path.sequence[:-1])
    if kind == "decoder":
        return text
    mask = None if attention_mask is None else attention_mask[index : index + 1]
    prompt = _Text.row("input_ids", text.ids[None, : path.prompt_length], 0, path.prompt_length, mask, tokenizer)
    return text._replace(real=torch.cat([prompt.real, text.real[path.prompt_length :]]))


def _weights(outputs: ModelOutput, kind: str) -> tuple[Any, ...]:
    """The layers' weights, or the steps' layers' weights; empty where nothing was recorded (as under sdpa)."""
    weights: tuple[Any, ...] = outputs.get(_FIELDS[kind]) or ()
    empty = not weights or weights[0] is None or len(weights[0]) == 0
    return () if empty else weights


def _checked(name: str, index: int, size: int) -> int:
    if not 0 <= index < size:
        raise ValueError(f"{name} is {index}, but there {'is 1' if size == 1 else f'are {size}'}; they count from 0.")
    return index


class _Text(NamedTuple):
    """Ids of a text, and which of them are no padding."""

    ids: torch.Tensor
    real: torch.Tensor

    @classmethod
    def of(cls, ids: torch.Tensor) -> "_Text":
        return cls(ids, torch.ones_like(ids, dtype=torch.bool))

    @classmethod
    def row(
        cls,
        name: str,
        ids: torch.Tensor | None,
        index: int,
        length: int,
        mask: torch.Tensor | None,
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> "_Text":
        """Row ``index`` of the argument ``name``, which has to be ``length`` long."""
        if ids is None:
            raise ValueError(f"Outputs hold no {name}, and the tokens are named after them; pass {name}.")
        if ids.ndim != 2 or ids.shape[1] != length:
            raise ValueError(f"{name} has the shape {tuple(ids.shape)}; these weights need (batch, {length}).")
        if mask is not None and mask.shape != ids.shape:
            raise ValueError(
                f"The mask has the shape {tuple(mask.shape)}, and {name} {tuple(ids.shape)}; make them equal."
            )
        text = ids[_checked("index", index, len(ids))].cpu()
        if mask is not None:
            real = mask[index].cpu().bool()
        elif tokenizer is None or tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
            real = torch.ones_like(text, dtype=torch.bool)
        else:
            real = text != tokenizer.pad_token_id
        return cls(text, real & (text != _IGNORED))

    def names(self, tokenizer: PreTrainedTokenizerBase | None) -> tuple[str, ...]:
        return token_names(self.ids[self.real].tolist(), tokenizer)


class GenerationPath(NamedTuple):
    """How one of the sequences that ``generate`` returned came about.

    Args:
        sequence: its ids, from the prompt (or the symbol that starts a target) to its end.
        prompt_length: how many of them were given.
        beams: for each id that was written, the row of the batch that it was written in.
    """

    sequence: torch.Tensor
    prompt_length: int
    beams: list[int]

    @classmethod
    def of(
        cls,
        outputs: ModelOutput,
        num_steps: int,
        index: int,
        hypothesis: int,
        num_texts: int | None,
        eos_token_id: int | Sequence[int] | None,
    ) -> "GenerationPath":
        """The path of a sequence that ``generate`` returned after ``num_steps`` steps for ``num_texts`` texts.

        Raises:
            ValueError: there is no such sequence, or it cannot be known where it ends.
        """
        sequences, beam_indices = outputs["sequences"], outputs.get("beam_indices")
        num_texts = len(sequences) if num_texts is None else num_texts
        if num_texts == 0 or len(sequences) % num_texts:
            raise ValueError(
                f"input_ids has {num_texts} rows for {len(sequences)} sequences; pass the batch that went in."
            )
        count = len(sequences) // num_texts
        row = _checked("index", index, num_texts) * count + _checked("hypothesis", hypothesis, count)
        prompt_length = sequences.shape[1] - (num_steps if beam_indices is None else beam_indices.shape[1])
        written = sequences[row, prompt_length:].tolist()
        if beam_indices is not None:
            beams = [beam for beam in beam_indices[row].tolist() if beam >= 0]
        elif eos_token_id is not None:
            ends = [eos_token_id] if isinstance(eos_token_id, int) else eos_token_id
            beams = [row] * next((step for step, token in enumerate(written, 1) if token in ends), len(written))
        elif len(sequences) == 1:
            beams = [row] * len(written)
        else:
            raise ValueError(
                "The outputs do not say where a sequence of a batch ends; pass tokenizer, or eos_token_id (an empty "
                "list for a model that does not end its sequences)."
            )
        return cls(sequences[row, : prompt_length + len(beams)].cpu(), prompt_length, beams)

    def rows(self, steps: Sequence[Sequence[torch.Tensor]], num_keys: int) -> torch.Tensor:
        """The attention weights (layers, heads, T, S) of the ids that were read, on ``num_keys`` keys.

        Args:
            steps: a tuple of layers' weights for each step of the generation, as ``generate`` returns them.
        """
        return torch.stack([self._rows_of_layer(layer, num_keys) for layer in zip(*steps, strict=True)])

    def _rows_of_layer(self, steps: Sequence[torch.Tensor], num_keys: int) -> torch.Tensor:
        # Without a cache each step holds the rows of those before it again: the last one is new.
        taken = zip(steps, self.beams, strict=False)  # the search may go on after this sequence ended
        rows = [step[beam] if t == 0 else step[beam][:, -1:] for t, (step, beam) in enumerate(taken)]
        # Keys grow with the text that a self-attention reads, or are all there from the start in a static cache.
        return torch.cat([nn.functional.pad(row, (0, num_keys - row.shape[-1])) for row in rows], dim=1)


def token_names(ids: Sequence[int], tokenizer: PreTrainedTokenizerBase | None) -> tuple[str, ...]:
    """What a tokenizer calls these ids; without one, the ids themselves.

    A byte-level vocabulary spells bytes in letters that stand for them; its tokens are decoded, so that they read as
    the text does. A token that ends within a character has the replacement character there.
    """
    if tokenizer is None:
        return tuple(str(number) for number in ids)
    if tokenizer.is_fast and "ByteLevel" in str(tokenizer.backend_tokenizer.decoder):
        return tuple(tokenizer.decode([number], clean_up_tokenization_spaces=False) for number in ids)
    return tuple(tokenizer.convert_ids_to_tokens(list(ids)))


__all__ = ["AttentionRecord", "GenerationPath", "alignment", "token_names"]

"""The attention weights of one text or image, with its tokens.

A forward pass returns weights by layer; ``generate`` returns them by step and layer, and beam search returns them for
every beam. ``alignment`` converts each of these to an ``AttentionRecord`` of one text, for models of this package and
of transformers. The tokens of an image are its patches, or the positions of its feature map.

Shapes: B batch, T target (query) steps, S source (key) steps.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import torch
from torch import nn
from transformers.utils import ModelOutput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The output field of transformers that holds the weights of each kind.
_FIELDS = {
    "cross": "cross_attentions",
    "encoder": "encoder_attentions",
    "decoder": "decoder_attentions",
    "self": "attentions",
}
_KINDS = ", ".join(map(repr, _FIELDS))
_IGNORED = -100  # the label that the loss ignores


def check_drawable(record: "AttentionRecord") -> None:
    """Check that a record can be drawn.

    Raises:
        ValueError: if one side has no tokens, or a weight is NaN or infinite.
    """
    if not record.tokens or not record.target_tokens:
        raise ValueError("The record has no tokens on one side, so there is nothing to draw; use a longer text.")
    if not record.weights.isfinite().all():
        raise ValueError("The record contains NaN or infinite weights; check the model that produced them.")


_TABLE_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 1.5rem; font: 15px/1.4 system-ui, sans-serif; }}
table {{ border-collapse: collapse; }}
thead th {{ writing-mode: vertical-rl; padding: .5rem .1rem; text-align: right; }}
tbody th {{ padding: 0 .6rem; text-align: right; }}
th {{ font-weight: normal; white-space: pre; }}
td {{ min-width: 2rem; height: 2rem; border: 1px solid #8884; text-align: center; font-size: .8em;
  background: color-mix(in srgb, #1b6ca8 var(--weight, 0%), transparent); }}
</style>
<h1>{title}</h1>
<p>Attention weights in percent, mean over {layers} and {heads}. Each row is a token that attends, each column a token
that is attended to.</p>
<table>
<thead><tr><th>{columns}</thead>
<tbody>
{rows}
</tbody>
</table>
"""


def render_table(record: "AttentionRecord", title: str | None = None) -> str:
    """Return a page with a table of the weights, in percent: the mean over layers and heads.

    Args:
        record: at least one token on each side.
        title: heading of the page; default ``record.title``.
    """

    def header(token: str) -> str:
        return f"<th>{html.escape(token).replace(' ', '␣')}"

    def cell(weight: float) -> str:
        percent = round(100 * weight)
        # With at most 60% of the color, black and white text are both legible.
        return f'<td style="--weight:{max(0, 0.6 * percent):.0f}%">{percent}' if percent else "<td>"

    rows = [
        f"<tr>{header(token)}{''.join(map(cell, weights))}"
        for token, weights in zip(record.target_tokens, record.matrix().tolist(), strict=True)
    ]
    counts = zip(("layer", "head"), record.weights.shape[:2], strict=True)
    layers, heads = (f"{count} {name}{'' if count == 1 else 's'}" for name, count in counts)
    return _TABLE_PAGE.format(
        title=html.escape(record.title if title is None else title),
        layers=layers,
        heads=heads,
        columns="".join(map(header, record.tokens)),
        rows="\n".join(rows),
    )


@dataclass(frozen=True, eq=False)
class AttentionRecord:
    """The attention of one text, or to one image.

    A notebook displays a record as the page that ``to_html`` returns.

    Args:
        tokens: the S tokens that are attended to.
        target_tokens: the T tokens that attend. In cross-attention, row i contains the weights used to generate target
            token i; in self-attention, the weights used to encode token i.
        weights: (layers, heads, T, S), on the CPU.
        kind: "cross" (target to source), "encoder" or "decoder" (self-attention of one side of an encoder-decoder
            model), or "self" (self-attention of a model with one side).
        probabilities: (T,), in cross-attention the probability of each target token given those before it, if known.
        entropies: (T,), the entropy of the distribution that it was chosen from, in nats, if known.
        grid: (rows, columns) of the patches, if the tokens are those of an image; see ``image_tokens``.
        num_prefix_tokens: number of tokens before the patches: class token, distillation token, registers.

    Raises:
        ValueError: if the shape of the weights, probabilities or entropies does not match the tokens, or the number of
            tokens the grid.
    """

    # Functions behind to_html and show; importing hfattn replaces the table with the interactive page.
    renderer: ClassVar[Callable[["AttentionRecord", str | None], str]] = render_table
    viewer: ClassVar[Callable[["AttentionRecord", str | None], None] | None] = None

    tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    weights: torch.Tensor
    kind: str = "cross"
    probabilities: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    grid: tuple[int, int] | None = None
    num_prefix_tokens: int = 0

    def __post_init__(self) -> None:
        if self.kind not in _FIELDS:
            raise ValueError(f"kind is {self.kind!r}; write one of {_KINDS}.")
        expected = (len(self.target_tokens), len(self.tokens))
        if self.weights.ndim != 4 or tuple(self.weights.shape[2:]) != expected:
            raise ValueError(
                f"weights has shape {tuple(self.weights.shape)}; {expected[0]} target tokens and {expected[1]} tokens "
                f"need (layers, heads, {expected[0]}, {expected[1]})."
            )
        if self.grid is None and self.num_prefix_tokens:
            raise ValueError(f"num_prefix_tokens is {self.num_prefix_tokens}; only the tokens of a grid have a prefix.")
        if self.grid is not None:
            rows, columns = self.grid
            if self.num_prefix_tokens < 0 or self.num_prefix_tokens + rows * columns != expected[1]:
                raise ValueError(
                    f"grid is {rows} x {columns} and num_prefix_tokens {self.num_prefix_tokens}, which are "
                    f"{self.num_prefix_tokens + rows * columns} tokens; the record has {expected[1]}."
                )
        for name in ("probabilities", "entropies"):
            values = getattr(self, name)
            if values is not None and tuple(values.shape) != expected[:1]:
                raise ValueError(
                    f"{name} has shape {tuple(values.shape)}; {expected[0]} target tokens need ({expected[0]},)."
                )

    @property
    def title(self) -> str:
        """Default title of pictures: "Alignment" for cross-attention, "Self-attention" otherwise."""
        return "Alignment" if self.kind == "cross" else "Self-attention"

    def matrix(self, layer: int | None = None, head: int | None = None) -> torch.Tensor:
        """Return the weights (T, S) of one layer and head; None is the mean over all of them.

        Raises:
            ValueError: if the record has no such layer or head.
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

    def maps(self, layer: int | None = None, head: int | None = None) -> torch.Tensor:
        """Return the weights of ``matrix`` on the patches of the image, (T, rows, columns).

        Raises:
            ValueError: if the tokens are not those of an image, or as ``matrix``.
        """
        if self.grid is None:
            raise ValueError("The record has no grid, because its tokens are those of a text; use matrix().")
        return self.matrix(layer, head)[:, self.num_prefix_tokens :].unflatten(-1, self.grid)

    def to_dict(self) -> dict[str, Any]:
        """Return the record as strings, numbers and lists that JSON can store."""
        record: dict[str, Any] = {
            "kind": self.kind,
            "tokens": list(self.tokens),
            "target_tokens": list(self.target_tokens),
            "weights": self.weights.tolist(),
        }
        if self.grid is not None:
            record |= {"grid": list(self.grid), "num_prefix_tokens": self.num_prefix_tokens}
        known = {"probabilities": self.probabilities, "entropies": self.entropies}
        return record | {name: values.tolist() for name, values in known.items() if values is not None}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the record that ``to_dict`` wrote, with weights in float64, which represents each of them exactly."""
        known: dict[str, Any] = {
            name: torch.tensor(record[name], dtype=torch.float64)
            for name in ("probabilities", "entropies")
            if name in record
        }
        if "grid" in record:
            rows, columns = record["grid"]
            known |= {"grid": (rows, columns), "num_prefix_tokens": record["num_prefix_tokens"]}
        return cls(
            tokens=tuple(record["tokens"]),
            target_tokens=tuple(record["target_tokens"]),
            weights=torch.tensor(record["weights"], dtype=torch.float64),
            kind=record["kind"],
            **known,
        )

    def to_html(self, title: str | None = None) -> str:
        """Return one self-contained HTML page, to be written to a file in UTF-8.

        For the records of hfattn, it is the interactive page of ``hfattn.explaining.render_html``; for records of the
        copy of this file in a model repository, it is the table of ``render_table``. ``render_html`` accepts both kinds
        of records.

        Args:
            title: heading of the page; default ``self.title``.

        Raises:
            ValueError: if one side has no tokens, or a weight is NaN or infinite.
        """
        check_drawable(self)
        return self.renderer(title)

    def show(self, title: str | None = None) -> None:
        """Display the page of ``to_html`` below a notebook cell; for the records of hfattn only.

        Other records are displayed by ``display(record)``, or at the end of a cell.

        Raises:
            ValueError: see ``to_html``; or the process is not a notebook, or the record is not one of hfattn.
        """
        if self.viewer is None:
            raise ValueError("show() needs hfattn; in a notebook, write display(record).")
        self.viewer(title)

    def _repr_html_(self) -> str:
        return self.frame()

    def frame(self, title: str | None = None) -> str:
        """Return the page in a frame, which separates its styles and names from those of a notebook."""
        page = html.escape(self.to_html(title))
        style, sandbox = "width: 100%; height: 46rem; border: 0", "allow-scripts allow-downloads"
        return f'<iframe srcdoc="{page}" style="{style}" sandbox="{sandbox}" title="Attention"></iframe>'


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
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    target_tokenizer: "PreTrainedTokenizerBase | None" = None,
    eos_token_id: int | Sequence[int] | None = None,
    grid: tuple[int, int] | None = None,
    prefix_tokens: Sequence[str] = (),
    pixel_values: torch.Tensor | None = None,
) -> AttentionRecord:
    """Return the attention of one text or image of a batch, from the outputs of a model.

    For ``generate(..., output_attentions=True, return_dict_in_generate=True)``, it is the attention of one returned
    sequence: steps after its end are left out, and with beam search each step comes from the beam that led to the
    sequence (``beam_indices``). For a forward pass with ``output_attentions=True``, it is the attention of the input.

    Args:
        outputs: return value of ``generate`` or of the model.
        index: index of the text in the batch.
        hypothesis: index among the ``num_return_sequences`` sequences of the text; 0 is the best.
        kind: "cross", "encoder", "decoder" or "self", as in ``AttentionRecord``; default cross-attention, or
            self-attention if the outputs have no cross-attention.
        input_ids: (B, S), the input of the model. For ``generate`` of a decoder-only model, they are needed only if it
            returned several sequences for each prompt.
        attention_mask: (B, S), 0 at padding, which the record leaves out. Default: the tokenizer's padding token is
            padding, unless it is also the end token; without a tokenizer, nothing is padding.
        labels: (B, T), the target ids; needed for the cross-attention of a forward pass.
        decoder_input_ids: (B, T), the decoder's input; needed for its self-attention in a forward pass.
        decoder_attention_mask: (B, T), 0 at padding of the target. Default as for ``attention_mask``; labels of -100
            are always padding.
        tokenizer: tokenizer that converts ids to tokens; without it, the ids are shown.
        target_tokenizer: tokenizer of the target if it has its own vocabulary; default ``tokenizer``.
        eos_token_id: id or ids that end a sequence, used when there are no ``beam_indices``; default that of the
            target's tokenizer. Pass an empty list for a model that does not end its sequences.
        grid: (rows, columns) of the patches, for a model that reads images instead of ``input_ids``.
        prefix_tokens: names of the tokens that the model puts before the patches, such as ("[CLS]",).
        pixel_values: (B, C, height, width), the images; needed if ``generate`` returned several sequences for each.

    Raises:
        ValueError: if the outputs contain no such weights, a needed argument is missing, or there is no such text; the
            message says what to pass.
    """
    if not isinstance(outputs, ModelOutput):
        raise ValueError(
            f"alignment needs the outputs of a model, not a {type(outputs).__name__}; pass "
            "return_dict_in_generate=True to generate(), or return_dict=True to the model."
        )
    if kind is None:
        kind = "self" if "attentions" in outputs and not _weights(outputs, "cross") else "cross"
    if kind not in _FIELDS:
        raise ValueError(f"kind is {kind!r}; write one of {_KINDS}.")
    weights = _weights(outputs, kind)
    if not weights:
        raise ValueError(
            f"The outputs contain no {_FIELDS[kind]}; if the model has this kind of attention, call "
            'model.set_attn_implementation("eager") and pass output_attentions=True.'
        )
    if lacking := layers_without_weights(weights):
        raise ValueError(
            f"Layer {lacking[0]} computed no attention weights, and a record has those of all layers; load the model "
            'with attn_implementation="eager", pass implicit_weights=True if the pattern of the layer is a kernel or '
            "gated, or use a model with other patterns."
        )
    if target_tokenizer is None or kind in ("encoder", "self"):
        target_tokenizer = tokenizer
    if kind == "decoder":
        tokenizer = target_tokenizer  # the decoder attends to the target
        grid = None
    image = None if grid is None else image_tokens(grid, prefix_tokens)
    prefix = 0 if grid is None else len(prefix_tokens)

    def read(num_keys: int) -> _Text:
        """Return the tokens of what the model reads."""
        if image is None:
            return _Text.row("input_ids", input_ids, index, num_keys, attention_mask, tokenizer)
        if len(image) != num_keys:
            raise ValueError(
                f"grid is {grid} with {len(prefix_tokens)} prefix tokens, {len(image)} in all; the weights are on "
                f"{num_keys} tokens."
            )
        return _Text.of(torch.arange(num_keys))._replace(labels=image)

    path = None
    if "sequences" in outputs and kind != "encoder":
        if eos_token_id is None and target_tokenizer is not None:
            eos_token_id = target_tokenizer.eos_token_id
        batch = input_ids if image is None else pixel_values
        num_texts = None if batch is None else len(batch)
        path = GenerationPath.of(outputs, len(weights), index, hypothesis, num_texts, eos_token_id)
        start = path.prompt_length - weights[0][0].shape[-2]  # earlier ids may have been in a cache
        if start < 0:
            raise ValueError(
                "The sequences do not include their prompt (inputs_embeds?); pass input_ids to generate()."
            )
        if kind == "cross":
            num_keys = weights[0][0].shape[-1]
            source = read(num_keys)
            target = _Text.of(path.sequence[start + 1 :])
        elif image is not None:
            raise ValueError("These sequences attend to themselves, not to an image; remove grid.")
        else:
            source = _prompted(path, kind, index, attention_mask, tokenizer)
            target = _Text(source.ids[start:], source.real[start:])
            num_keys = len(source.ids)
            if any(layer.shape[-1] < num_keys for layer in weights[len(path.beams) - 1]):
                raise ValueError("A sliding window kept the weights of some tokens only; set use_cache=False.")
        rows = path.rows(weights, num_keys)
    else:
        if hypothesis != 0:
            raise ValueError(f"hypothesis is {hypothesis}; write 0, because these outputs have one attention per text.")
        rows = _rows(weights, index)
        num_steps, num_keys = rows.shape[-2:]
        if kind == "decoder":
            source = _Text.row(
                "decoder_input_ids", decoder_input_ids, index, num_keys, decoder_attention_mask, tokenizer
            )
        else:
            source = read(num_keys)
        target = source
        if kind == "cross":
            target = _Text.row("labels", labels, index, num_steps, decoder_attention_mask, target_tokenizer)
        elif num_steps == 1 < num_keys:
            # Attention pooling: the query is learned and is not a token.
            pooled, pool = rows.detach().cpu()[..., source.real], "[text]" if image is None else "[image]"
            return AttentionRecord(source.names(tokenizer), (pool,), pooled, kind, grid=grid, num_prefix_tokens=prefix)
    rows = rows.detach().cpu()[:, :, target.real][..., source.real]
    chances = _chances(outputs, target, path, index) if kind == "cross" else (None, None)
    return AttentionRecord(source.names(tokenizer), target.names(target_tokenizer), rows, kind, *chances, grid, prefix)


def _chances(
    outputs: ModelOutput, target: "_Text", path: "GenerationPath | None", index: int
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Return the probabilities (T,) of the target tokens and the entropies (T,) of their distributions.

    Both are None if the outputs contain no logits, or not for all of the target, as with a prompt of the decoder.
    """
    logits = outputs.get("logits")
    if logits is None:
        return None, None
    if path is None:
        logits = logits[index]
    else:
        logits = torch.stack([step[beam] for step, beam in zip(logits, path.beams, strict=False)])
    if len(logits) != len(target.ids):
        return None, None
    logits = logits.detach()[target.real.to(logits.device)].float().log_softmax(-1).cpu()  # (T, V)
    probabilities = logits.gather(-1, target.ids.cpu()[target.real.cpu(), None])[:, 0].exp()
    return probabilities, torch.special.entr(logits.exp()).sum(-1)


def _rows(weights: Sequence[torch.Tensor], index: int) -> torch.Tensor:
    """Return the weights (layers, heads, T, S) of one text, from one (B, heads, T, S) for each layer."""
    _checked("index", index, len(weights[0]))
    if any(layer.shape != weights[0].shape for layer in weights):
        shapes = ", ".join(str(tuple(layer.shape)) for layer in weights)
        raise ValueError(f"The layers have attention of different shapes ({shapes}), which one record cannot hold.")
    return torch.stack([layer[index] for layer in weights])


def _prompted(
    path: "GenerationPath",
    kind: str,
    index: int,
    attention_mask: torch.Tensor | None,
    tokenizer: "PreTrainedTokenizerBase | None",
) -> "_Text":
    """Return the inputs of a decoder during generation: all ids but the last.

    The prompt of a decoder-only model may be padded. An encoder-decoder has no padded prompt, but its start token may
    be the padding token.
    """
    text = _Text.of(path.sequence[:-1])
    if kind == "decoder":
        return text
    mask = None if attention_mask is None else attention_mask[index : index + 1]
    prompt = _Text.row("input_ids", text.ids[None, : path.prompt_length], 0, path.prompt_length, mask, tokenizer)
    return text._replace(real=torch.cat([prompt.real, text.real[path.prompt_length :]]))


def _weights(outputs: ModelOutput, kind: str) -> tuple[Any, ...]:
    """Return the weights by layer, or by step and layer; empty if none were recorded (as with sdpa)."""
    weights: tuple[Any, ...] = outputs.get(_FIELDS[kind]) or ()
    empty = not weights or weights[0] is None or len(weights[0]) == 0
    return () if empty else weights


def layers_without_weights(weights: Sequence[Any]) -> list[int]:
    """Return the layers whose pattern computes no weights: they return weights of zero heads, (B, 0, T, S).

    Args:
        weights: by layer, or by step and layer.
    """
    layers = weights if isinstance(weights[0], torch.Tensor) else weights[0]
    return [index for index, layer in enumerate(layers) if layer.ndim == 4 and layer.shape[1] == 0]


def _checked(name: str, index: int, size: int) -> int:
    if not 0 <= index < size:
        raise ValueError(f"{name} is {index}; write 0{'' if size == 1 else f' to {size - 1}'}.")
    return index


class _Text(NamedTuple):
    """The ids of a text, a mask that is False at padding, and the names of the tokens if they are patches."""

    ids: torch.Tensor
    real: torch.Tensor
    labels: tuple[str, ...] | None = None

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
        tokenizer: "PreTrainedTokenizerBase | None",
    ) -> "_Text":
        """Return row ``index`` of the argument ``name``, which must have ``length`` columns."""
        if ids is None:
            raise ValueError(f"The outputs do not contain {name}, which name the tokens; pass {name}.")
        if ids.ndim != 2 or ids.shape[1] != length:
            raise ValueError(f"{name} has shape {tuple(ids.shape)}; the weights need (batch, {length}).")
        if mask is not None and mask.shape != ids.shape:
            raise ValueError(
                f"The mask has shape {tuple(mask.shape)} and {name} {tuple(ids.shape)}; they must be equal."
            )
        text = ids[_checked("index", index, len(ids))].cpu()
        if mask is not None:
            real = mask[index].cpu().bool()
        elif tokenizer is None or tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
            real = torch.ones_like(text, dtype=torch.bool)
        else:
            real = text != tokenizer.pad_token_id
        return cls(text, real & (text != _IGNORED))

    def names(self, tokenizer: "PreTrainedTokenizerBase | None") -> tuple[str, ...]:
        return token_names(self.ids[self.real].tolist(), tokenizer) if self.labels is None else self.labels


class GenerationPath(NamedTuple):
    """The steps of ``generate`` that produced one returned sequence.

    Args:
        sequence: its ids, from the prompt (or the decoder's start token) to the end.
        prompt_length: number of ids in the prompt.
        beams: for each generated id, the row of the batch in which it was generated.
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
        """Return the path of a sequence that ``generate`` returned after ``num_steps`` steps for ``num_texts`` texts.

        Raises:
            ValueError: if there is no such sequence, or its end cannot be determined.
        """
        sequences, beam_indices = outputs["sequences"], outputs.get("beam_indices")
        num_texts = len(sequences) if num_texts is None else num_texts
        if num_texts == 0 or len(sequences) % num_texts:
            raise ValueError(
                f"input_ids has {num_texts} rows for {len(sequences)} sequences; pass the batch given to generate()."
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
                "The outputs do not tell where a sequence of a batch ends; pass tokenizer or eos_token_id (an empty "
                "list for a model that does not end its sequences)."
            )
        return cls(sequences[row, : prompt_length + len(beams)].cpu(), prompt_length, beams)

    def log_probability(self, logits: Sequence[torch.Tensor]) -> float:
        """Return the log-probability of the generated ids under the model, in nats, from the ``logits`` by step."""
        written = self.sequence[self.prompt_length :].tolist()
        steps = zip(logits, self.beams, written, strict=False)
        return sum(step[beam].float().log_softmax(-1)[token].item() for step, beam, token in steps)

    def rows(self, steps: Sequence[Sequence[torch.Tensor]], num_keys: int) -> torch.Tensor:
        """Return the attention weights (layers, heads, T, S) of the sequence, S being ``num_keys``.

        Args:
            steps: weights by step and layer, as ``generate`` returns them.
            num_keys: number of source tokens; steps with fewer keys are padded with zeros.
        """
        return torch.stack([self._rows_of_layer(layer, num_keys) for layer in zip(*steps, strict=True)])

    def _rows_of_layer(self, steps: Sequence[torch.Tensor], num_keys: int) -> torch.Tensor:
        # Without a cache, each step repeats the rows of all earlier steps; only the last row is new.
        taken = zip(steps, self.beams, strict=False)  # the search may continue after the end of this sequence
        rows = [step[beam] if t == 0 else step[beam][:, -1:] for t, (step, beam) in enumerate(taken)]
        # In self-attention the number of keys grows with each step, unless the cache is static.
        return torch.cat([nn.functional.pad(row, (0, num_keys - row.shape[-1])) for row in rows], dim=1)


def image_tokens(grid: tuple[int, int], prefix_tokens: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the names of the tokens of an image: those of the prefix, then "row,column" of each patch, from 0.

    Args:
        grid: (rows, columns) of the patches, which a model reads row by row.
        prefix_tokens: such as ("[CLS]", "[DIST]").
    """
    rows, columns = grid
    return (*prefix_tokens, *(f"{row},{column}" for row in range(rows) for column in range(columns)))


def token_names(ids: Sequence[int], tokenizer: "PreTrainedTokenizerBase | None") -> tuple[str, ...]:
    """Return the tokens of these ids; without a tokenizer, the ids as strings.

    Tokens of a byte-level vocabulary are decoded, so that they look like the text. An incomplete character at the end
    of a token becomes the replacement character.
    """
    if tokenizer is None:
        return tuple(str(number) for number in ids)
    if tokenizer.is_fast and "ByteLevel" in str(tokenizer.backend_tokenizer.decoder):
        return tuple(tokenizer.decode([number], clean_up_tokenization_spaces=False) for number in ids)
    return tuple(tokenizer.convert_ids_to_tokens(list(ids)))

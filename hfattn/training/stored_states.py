"""The hidden states of a frozen encoder, read once for each training text and kept in a temporary file.

Shapes: B batch, S tokens of a text, L layers of the encoder, W width of its hidden states.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..data.batches import TokenBatches
from ..data.stored import StoredArrays
from ..files import is_full
from ..models.contextual_vectors import ContextualVectors
from .progress import say

if TYPE_CHECKING:
    from .trainer import ReliableTrainer

LARGEST = 4 * 10**9  # bytes of the file
TOKENS = 2048  # of the batches that the encoder reads, padding included

Inputs = tuple[torch.Tensor, torch.Tensor | None]  # token ids (B, S) and a boolean mask (B, S)


class StoredStates:
    """Takes the place of ``ContextualVectors.read``, and computes only what it has not stored.

    The states of a text do not depend on the texts beside it, so they may be computed in other batches. They have the
    type of what ``read`` returns, the widest if there are several, whatever they were stored in.

    Args:
        vectors: a frozen encoder.
        batches: the texts.
        dtype: type in which the states are stored.
    """

    def __init__(self, vectors: ContextualVectors, batches: Iterable[Inputs], dtype: torch.dtype) -> None:
        self.vectors, self.dtype, self.read_dtype = vectors, dtype, dtype
        self.places: dict[bytes, int] = {}  # of the texts in the file, by their token ids
        self.rows = StoredArrays(self._read(batches), np.uint8)  # numpy has no bfloat16

    def _read(self, batches: Iterable[Inputs]) -> Iterator[np.ndarray]:
        for input_ids, mask in batches:
            read = torch.stack(self.vectors.read(input_ids, mask), dim=2)  # (B, S, L + 1, W)
            self.read_dtype, states = read.dtype, read.to("cpu", self.dtype)
            for row, key in enumerate(_keys(input_ids, mask)):
                if key not in self.places:
                    self.places[key] = len(self.places)
                    real = states[row] if mask is None else states[row, mask[row].cpu()]
                    yield real.contiguous().view(torch.uint8).numpy().ravel()

    @torch.compiler.disable
    def __call__(self, input_ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the hidden states of a batch of texts, L + 1 tensors (B, S, W), as ``ContextualVectors.read``."""
        places = [self.places.get(key) for key in _keys(input_ids, mask)]
        if None in places:
            return ContextualVectors.read(self.vectors, input_ids, mask)
        encoder = self.vectors.config.contextual_config
        found = torch.from_numpy(np.concatenate([self.rows[place] for place in places])).view(self.dtype)
        found = found.view(-1, encoder.num_hidden_layers + 1, encoder.hidden_size)
        found = found.to(input_ids.device, self.read_dtype)
        if mask is None:
            return list(found.unflatten(0, input_ids.shape).unbind(2))
        states = found.new_zeros(*input_ids.shape, *found.shape[1:])
        states[mask] = found
        return list(states.unbind(2))


def _keys(input_ids: torch.Tensor, mask: torch.Tensor | None) -> list[bytes]:
    ids = input_ids.cpu().numpy()
    if mask is None:
        return [row.tobytes() for row in ids]
    return [row[real].tobytes() for row, real in zip(ids, mask.cpu().numpy(), strict=True)]


class ReadTextsOnce(TrainerCallback):
    """Stores the hidden states of a frozen encoder for all training texts, before training.

    They are not stored if the texts are read only once, or are cut into other tokens in each epoch; if the model does
    not mask padding; if several processes train; if the dataset has no ``lengths``; if the file would have more than
    ``LARGEST`` bytes; or if the disk is full.
    """

    def __init__(self, trainer: "ReliableTrainer") -> None:
        self.trainer = trainer

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        vectors, dataset = frozen_encoder(self.trainer.model), self.trainer.train_dataset
        dtype = torch.bfloat16 if args.bf16 else vectors.encoder.dtype
        lengths = getattr(dataset, "lengths", None)
        changes = getattr(dataset, "is_sampled", False) or not vectors.config.mask_padding
        if lengths is None or changes or state.num_train_epochs < 2 or args.world_size > 1:
            return
        encoder = vectors.config.contextual_config
        size = int(lengths.sum()) * (encoder.num_hidden_layers + 1) * encoder.hidden_size * dtype.itemsize
        if size > LARGEST:
            return
        say(f"The frozen encoder reads {len(lengths):,} training texts once; its states take {size / 1e6:,.0f} MB.")
        try:
            with self.trainer.accelerator.autocast():
                vectors.read = StoredStates(vectors, self._batches(lengths), dtype)
        except OSError as error:
            if not is_full(error):
                raise
            say("The folder for temporary files (TMPDIR) is full, so the frozen encoder reads the texts in each epoch.")

    def _batches(self, lengths: np.ndarray) -> Iterator[Inputs]:
        dataset, collate = self.trainer.train_dataset, self.trainer.data_collator
        for batch in TokenBatches(lengths, max(TOKENS, int(lengths.max())), seed=0):
            read = collate([dataset[i] for i in batch])
            mask, device = read.get("attention_mask"), self.trainer.args.device
            yield read["input_ids"].to(device), None if mask is None or mask.all() else mask.bool().to(device)


def frozen_encoder(model: torch.nn.Module) -> Any:
    """Return the ``ContextualVectors`` of a model, or None."""
    return getattr(getattr(model, "base_model", None), "contextual", None)


def forget_states(model: torch.nn.Module) -> None:
    """Let the encoder of a model read all texts again, whether or not training came to its end."""
    vectors = frozen_encoder(model)
    if vectors is not None:
        vars(vectors).pop("read", None)

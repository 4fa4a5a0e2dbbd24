"""Contextual vectors: the hidden states of a frozen encoder, mixed for a task (ELMo, Peters et al. 2018).

Shapes: B batch, S tokens of a text, P most pieces of a token, N pieces of a text in the vocabulary of the encoder, L
layers of the encoder, W width of its hidden states.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import initialization as init

from .attention_scores import Parametric
from .parts import make_part
from .penalties import Penalized


class ScalarMix(Parametric, Penalized):
    """ELMo_k = γ Σ_j s_j h_kj with s = softmax(w) (Peters et al. 2018, eq. 1).

    Args:
        num_states: number of hidden states to mix, L + 1.
        layer_norm: normalize each h_kj over its width first (section 3.2; Ba et al. 2016).
        weight: λ of the penalty λ ||w||² (section 3.4).
    """

    def __init__(self, num_states: int, *, layer_norm: bool = False, weight: float = 0.0) -> None:
        super().__init__()
        self.layer_norm, self.weight_of_penalty = layer_norm, weight
        self.scalars = nn.Parameter(torch.empty(num_states))  # w
        self.gamma = nn.Parameter(torch.empty(()))
        self.initialize_()

    def initialize_(self) -> None:
        """Set w to zeros, the mean of the hidden states, and γ to 1."""
        init.zeros_(self.scalars)
        init.ones_(self.gamma)

    @property
    def shares(self) -> torch.Tensor:
        """The share s_j of each hidden state, (L + 1,)."""
        return self.scalars.softmax(0)

    def forward(self, hidden_states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Mix L + 1 hidden states (B, S, W) to one (B, S, W)."""
        if self.layer_norm:
            hidden_states = [functional.layer_norm(state, state.shape[-1:]) for state in hidden_states]
        mixed = sum(share * state for share, state in zip(self.shares, hidden_states, strict=True))
        return self.gamma * mixed

    def penalty(self) -> torch.Tensor:
        return self.weight_of_penalty * self.scalars.square().sum()


class ContextualVectors(nn.Module):
    """A frozen encoder, and a mixture of its hidden states for each place in the model of a task.

    The tokens of the task's model are those of the encoder, or a table has the pieces of each of them in the encoder's
    vocabulary; the vector of a token is then the mean over its pieces. The encoder always runs without dropout and
    without gradients.

    Args:
        config: configuration of the task's model, with the fields ``contextual_…``.
    """

    pieces: torch.Tensor

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        encoder = config.contextual_config
        self.encoder = make_part(encoder)
        options = {"layer_norm": config.contextual_layer_norm, "weight": config.contextual_penalty}
        self.mixes = nn.ModuleDict(
            {place: ScalarMix(encoder.num_hidden_layers + 1, **options) for place in config.contextual_places}
        )
        self.dropout = nn.Dropout(config.contextual_dropout)
        if config.contextual_pieces is not None:
            # -1 after the last piece of a token
            table = torch.full((config.vocab_size, config.contextual_pieces), -1)
            self.register_buffer("pieces", table)
        self.train()

    def resize(self, vocab_size: int) -> None:
        """Give the table as many tokens as the task's model has; a new one has no piece, and the vector 0.

        Raises:
            ValueError: the tokens are those of the encoder.
        """
        if self.config.contextual_pieces is None:
            raise ValueError(
                "The tokens are those of the frozen encoder, which cannot get others; set contextual_pieces, and fill "
                "the table contextual.pieces."
            )
        missing = max(vocab_size - len(self.pieces), 0)
        self.pieces = functional.pad(self.pieces[:vocab_size], (0, 0, 0, missing), value=-1)

    def train(self, mode: bool = True) -> "ContextualVectors":
        """Set the mode; the encoder stays in evaluation mode, without gradients."""
        super().train(mode)
        # from_pretrained makes new parameters, which have gradients, and then sets the mode.
        self.encoder.eval().requires_grad_(False)
        return self

    def forward(self, place: str, hidden_states: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return the mixture (B, S, W) of what ``read`` returned, for "input" or "output", with dropout in training."""
        return self.dropout(self.mixes[place](hidden_states))

    @torch.no_grad()
    def read(self, input_ids: torch.Tensor, mask: torch.Tensor | None) -> list[torch.Tensor]:
        """Return the hidden states of a batch of texts.

        Args:
            input_ids: (B, S) tokens of the task's model.
            mask: boolean (B, S), True where a token is real; None if all are.

        Returns:
            L + 1 tensors (B, S, W). A token without a piece, or behind the last piece that the encoder can read, has
            zeros.
        """
        if torch.compiler.is_exporting():
            raise ValueError("The pieces of a text differ in number, which a graph would fix; export another model.")
        if input_ids.shape[1] == 0:
            encoder = self.config.contextual_config
            empty = input_ids.new_zeros(*input_ids.shape, encoder.hidden_size, dtype=self.encoder.dtype)
            return [empty] * (encoder.num_hidden_layers + 1)
        batch_size, num_tokens = input_ids.shape
        start, end = self.config.contextual_start_ids, self.config.contextual_end_ids
        pieces = input_ids[..., None] if self.config.contextual_pieces is None else self.pieces[input_ids]  # (B, S, P)
        most = pieces.shape[-1]
        real = pieces >= 0 if mask is None else (pieces >= 0) & mask[..., None]
        real, pieces = real.flatten(1), pieces.flatten(1)
        place = real.cumsum(1) - 1  # of each piece in its text
        if self.config.contextual_max_length is not None:
            real = real & (place < self.config.contextual_max_length - len(start) - len(end))
        lengths = real.sum(1)  # (B,)
        rows, columns = real.nonzero(as_tuple=True)  # of all M pieces
        place = place[rows, columns] + len(start)

        steps = torch.arange(max(1, int(lengths.max()) + len(start) + len(end)), device=input_ids.device)
        ids = input_ids.new_full((batch_size, len(steps)), self.config.contextual_config.pad_token_id or 0)  # (B, N)
        ids[:, : len(start)] = ids.new_tensor(start)
        ids[rows, place] = pieces[rows, columns]
        for i, token in enumerate(end):
            ids[torch.arange(batch_size, device=ids.device), len(start) + lengths + i] = token
        attention_mask = (steps < lengths[:, None] + len(start) + len(end)).long()
        words = rows * num_tokens + columns // most  # (M,), the token of each piece
        counts = words.bincount(minlength=batch_size * num_tokens).clamp(min=1)[:, None]
        found = []
        for state in self._encode(ids, attention_mask):  # (B, N, W)
            total = state.new_zeros(batch_size * num_tokens, state.shape[-1]).index_add_(0, words, state[rows, place])
            found.append((total / counts).view(batch_size, num_tokens, -1))
        return found

    def _encode(self, ids: torch.Tensor, attention_mask: torch.Tensor | None) -> list[torch.Tensor]:
        outputs = self.encoder(
            input_ids=ids, attention_mask=attention_mask, output_hidden_states=True, return_dict=True
        )
        return list(outputs.hidden_states)


__all__ = ["ContextualVectors", "ScalarMix"]

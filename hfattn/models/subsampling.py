"""Subsampling: the layers of an encoder compute with blocks of k tokens, which a convolution makes of the embeddings.

It lets a model read bytes at the cost of k times fewer positions, as the downsampling of CANINE does (Clark et al.
2022, section 3.2). With x_0 ... x_{S-1} the embeddings of a text, and zero before and after it, the block j is

    y_j = f(b + sum of W_u x_{jk+u} over u = -k ... 2k - 1),

so it also reads the blocks on either side. Blocks are counted from the first token that is not padding.

Shapes: B batch, S tokens, k tokens of a block, J = ceil(S / k) blocks, H hidden width.
"""

import torch
from torch import nn
from transformers.activations import ACT2FN

from .configuration_vaswani import VaswaniConfig
from .modeling_vaswani import projection


class Subsampling(nn.Module):
    """The convolution, with kernel 3k and stride k. It is a linear layer on each window, as all others are."""

    def __init__(self, config: VaswaniConfig) -> None:
        super().__init__()
        assert config.subsampling is not None
        self.length = config.subsampling
        self.linear = projection(3 * self.length * config.hidden_size, config.hidden_size, bias=True)
        self.activation = ACT2FN[config.activation]

    def forward(
        self, embeddings: torch.Tensor, attention_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the blocks (B, J, H) of embeddings (B, S, H), and their mask (B, J) if there is one of the tokens.

        Raises:
            ValueError: the mask is one of all pairs of queries and keys.
        """
        if embeddings.shape[1] == 0:
            return embeddings, attention_mask
        if attention_mask is not None:
            if attention_mask.ndim != 2:
                raise ValueError(
                    f"attention_mask has the shape {tuple(attention_mask.shape)}, and subsampling needs one value for "
                    "each token, (B, S); pass 1 for tokens and 0 for padding."
                )
            source, mask = self._from_first(attention_mask)
            embeddings = embeddings.gather(1, source[..., None].expand_as(embeddings)) * mask[..., None]
        before, behind = self.length, self.length + -embeddings.shape[1] % self.length
        padded = nn.functional.pad(embeddings, (0, 0, before, behind))
        windows = padded.unfold(1, 3 * self.length, self.length)  # (B, J, H, 3k)
        blocks = self.activation(self.linear(windows.transpose(-1, -2).flatten(-2)))
        return blocks, self.mask(attention_mask)

    def mask(self, attention_mask: torch.Tensor | None) -> torch.Tensor | None:
        """Return which blocks have a token, (B, J), given which tokens are not padding (B, S)."""
        if attention_mask is None or attention_mask.shape[1] == 0:
            return attention_mask
        _, mask = self._from_first(attention_mask)
        return nn.functional.pad(mask, (0, -mask.shape[1] % self.length)).unflatten(1, (-1, self.length)).any(-1)

    def _from_first(self, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the tokens (B, S) in the order from the first one on, and which of them are there."""
        mask, num_tokens = attention_mask.bool(), attention_mask.shape[1]
        source = torch.arange(num_tokens, device=mask.device) + mask.long().argmax(1, keepdim=True)
        inside = source < num_tokens
        source = source.clamp(max=num_tokens - 1)
        return source, mask.gather(1, source) & inside


__all__: list[str] = []

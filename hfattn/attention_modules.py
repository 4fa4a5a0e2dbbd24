"""Attention modules that models of hfattn do not use: multi-head, multi-view, hierarchical, co- and hard attention.

The modules that the models use are in ``hfattn.models``.

Shapes: B batch, ``…`` any batch dimensions, T queries, S keys, H hidden width. Masks are boolean, True at real steps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import initialization as init

from .models.attention import Attention, check_boolean, check_vectors, checked_mask, make_distribution, make_score
from .models.attention_distributions import Distribution, hard_sample
from .models.attention_pooling import AttentionPooling
from .models.attention_scores import Parametric, Score


class MultiHeadAttention(nn.Module):
    """Concat(head_i) W^O, head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V) (Vaswani et al. 2017, section 3.2.2).

    Args:
        hidden_size: width of the queries and of the output.
        num_heads: number of heads.
        head_dim: width of one head; default hidden_size / num_heads.
        key_size, value_size: widths of keys and values; default hidden_size.
        bias: add biases to the four projections.
        options: score, distribution and their options, as in ``Attention``; the heads share the parameters of the
            score, and each has its own projections.

    Raises:
        ValueError: hidden_size is not a multiple of num_heads, and head_dim is not given.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        head_dim: int | None = None,
        key_size: int | None = None,
        value_size: int | None = None,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        if num_heads < 1:
            raise ValueError(f"num_heads is {num_heads}; write a whole number of at least 1.")
        if head_dim is None:
            if hidden_size % num_heads:
                raise ValueError(
                    f"hidden_size={hidden_size} is not a multiple of num_heads={num_heads}; change one, or pass "
                    "head_dim."
                )
            head_dim = hidden_size // num_heads
        self.num_heads, self.head_dim = num_heads, head_dim
        width = num_heads * head_dim
        self.q_proj = nn.Linear(hidden_size, width, bias)
        self.k_proj = nn.Linear(hidden_size if key_size is None else key_size, width, bias)
        self.v_proj = nn.Linear(hidden_size if value_size is None else value_size, width, bias)
        self.out_proj = nn.Linear(width, hidden_size, bias)
        self.attention = Attention(head_dim, head_dim, **options)
        for linear in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            init.xavier_uniform_(linear.weight)
            if bias:
                init.zeros_(linear.bias)

    def _heads(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.unflatten(-1, (self.num_heads, self.head_dim)).transpose(-2, -3)  # (…, heads, L, head_dim)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        need_weights: bool = True,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attend with queries (…, T, hidden_size) to keys and values (…, S, their widths).

        ``mask`` is boolean and broadcastable to (…, T, S); it is used for all heads.

        Returns:
            Output (…, T, hidden_size), and weights (…, heads, T, S) or None.
        """
        check_vectors("Queries", query, "hidden_size", self.q_proj.in_features)
        check_vectors("Keys", key, "key_size", self.k_proj.in_features)
        check_vectors("Values", value, "value_size", self.v_proj.in_features)
        if mask is not None:
            mask = checked_mask(mask, query, key).unsqueeze(-3)  # (…, 1, T, S)
        context, weights = self.attention(
            self._heads(self.q_proj(query)),
            self.attention.prepare(self._heads(self.k_proj(key))),
            self._heads(self.v_proj(value)),
            mask,
            need_weights,
        )
        return self.out_proj(context.transpose(-2, -3).flatten(-2)), weights


class MultiDimensionalAttention(Parametric):
    """One weight for each feature of a value: energies W tanh(W_q q + W_k k + b_1) + b, a vector of width d_v for each
    pair (Shen et al. 2018). Parameters: W_q (H, d_q), W_k (H, d_k), b_1 (H), W (d_v, H), b (d_v).

    Args:
        query_size, key_size, value_size: widths d_q, d_k, d_v.
        hidden_size: H; default d_k.
        distribution: module, applied to each feature separately.
    """

    W_q: torch.Tensor
    W_k: torch.Tensor
    b_1: torch.Tensor
    W: torch.Tensor
    b: torch.Tensor

    def __init__(
        self,
        query_size: int,
        key_size: int,
        value_size: int,
        *,
        hidden_size: int | None = None,
        distribution: str | Distribution = "softmax",
        distribution_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        hidden_size = key_size if hidden_size is None else hidden_size
        self._parameter("W_q", hidden_size, query_size)
        self._parameter("W_k", hidden_size, key_size)
        self._parameter("b_1", hidden_size)
        self._parameter("W", value_size, hidden_size)
        self._parameter("b", value_size)
        self.distribution = make_distribution(distribution, query_size, key_size, distribution_options)
        if self.distribution.compares_vectors:
            raise ValueError(
                "This distribution weighs pairs of vectors, not features; take another, such as 'softmax'."
            )
        self.initialize_()

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return context (…, T, d_v) and weights (…, T, S, d_v). ``mask`` is boolean, broadcastable to (…, T, S)."""
        check_vectors("Queries", query, "query_size", self.W_q.shape[1])
        check_vectors("Keys", key, "key_size", self.W_k.shape[1])
        check_vectors("Values", value, "value_size", self.W.shape[0])
        if mask is not None:
            mask = checked_mask(mask, query, key).unsqueeze(-2)  # (…, T, 1, S)
        sums = (
            nn.functional.linear(query, self.W_q)[..., :, None, :]
            + nn.functional.linear(key, self.W_k, self.b_1)[..., None, :, :]
        )
        energies = nn.functional.linear(sums.tanh(), self.W, self.b)  # (…, T, S, d_v)
        weights = self.distribution(energies.transpose(-1, -2), mask).transpose(-1, -2)
        return (weights * value[..., None, :, :]).sum(-2), weights


class MultiRepresentationalAttention(nn.Module):
    """Weighted sum of several views of an item, such as embeddings from several sources (Kiela et al. 2018).

    Args:
        view_sizes: width of each view.
        hidden_size: width to which all views are projected.
        options: score, distribution and their options, as in ``AttentionPooling``.
    """

    def __init__(self, view_sizes: Sequence[int], hidden_size: int, **options: Any) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(size, hidden_size) for size in view_sizes)
        self.pooling = AttentionPooling(hidden_size, **options)

    def forward(self, views: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weighted sum (…, H) of views (…, their widths), and the weights (…, views)."""
        if len(views) != len(self.projections):
            raise ValueError(f"{len(views)} views are given; this module was made for {len(self.projections)}.")
        pairs = zip(self.projections, views, strict=True)
        return self.pooling(torch.stack([project(view) for project, view in pairs], dim=-2))


class HierarchicalPooling(NamedTuple):
    """Documents (B, H), weights of the words in their sentences (B, N, S) and of the sentences (B, N)."""

    document: torch.Tensor
    word_weights: torch.Tensor
    sentence_weights: torch.Tensor


class HierarchicalAttentionPooling(nn.Module):
    """Pool words to sentences and sentences to a document by attention (Yang et al. 2016, section 2.2).

    Args:
        size: width of the word annotations.
        sentence_size: width of the output of the sentence encoder; default ``size``.
        hidden_size: width A in both poolings; default the width of their input.
        sentence_encoder: module that maps the sentences (B, N, H) and their mask (B, N) to annotations (B, N,
            sentence_size), such as the paper's bidirectional GRU; by default, the sentences are not encoded.
        options: score, distribution and their options, as in ``Attention``, for both levels.
    """

    def __init__(
        self,
        size: int,
        sentence_size: int | None = None,
        hidden_size: int | None = None,
        sentence_encoder: nn.Module | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.words = AttentionPooling(size, hidden_size, **options)
        self.sentence_encoder = sentence_encoder
        self.sentences = AttentionPooling(size if sentence_size is None else sentence_size, hidden_size, **options)

    def forward(self, inputs: torch.Tensor, mask: torch.Tensor | None = None) -> HierarchicalPooling:
        """Pool word annotations (B, N sentences, S words, H), with a boolean mask (B, N, S) of real words.

        A sentence without real words is padding.
        """
        if mask is None:
            mask = torch.ones(inputs.shape[:-1], dtype=torch.bool, device=inputs.device)
        sentences, word_weights = self.words(inputs, mask)
        sentence_mask = mask.any(-1)
        if self.sentence_encoder is not None:
            sentences = self.sentence_encoder(sentences, sentence_mask)
        document, sentence_weights = self.sentences(sentences, sentence_mask)
        return HierarchicalPooling(document, word_weights, sentence_weights)


class CoAttended(NamedTuple):
    """Contexts of each sequence from the other, (…, T, d_2) and (…, S, d_1), and weights (…, T, S) and (…, S, T)."""

    first_context: torch.Tensor
    second_context: torch.Tensor
    first_weights: torch.Tensor
    second_weights: torch.Tensor


class CoAttention(nn.Module):
    """Attention of two sequences to each other from one affinity matrix (Lu et al. 2016, section 3.3, parallel).

    The weights of the first sequence are computed along the rows of the matrix, those of the second along its columns.

    Args:
        first_size, second_size: widths d_1 and d_2.
        score, distribution, score_options, distribution_options: as in ``Attention``.
    """

    def __init__(
        self,
        first_size: int,
        second_size: int,
        *,
        score: str | Score = "general",
        distribution: str = "softmax",
        score_options: Mapping[str, Any] | None = None,
        distribution_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.score = make_score(score, first_size, second_size, score_options)
        self.to_second = make_distribution(distribution, first_size, second_size, distribution_options)
        self.to_first = make_distribution(distribution, second_size, first_size, distribution_options)

    def forward(
        self,
        first: torch.Tensor,
        second: torch.Tensor,
        first_mask: torch.Tensor | None = None,
        second_mask: torch.Tensor | None = None,
    ) -> CoAttended:
        """Attend between sequences (…, T, d_1) and (…, S, d_2), with boolean masks (…, T) and (…, S)."""
        check_vectors("Vectors of the first sequence", first, "first_size", self.score.query_size)
        check_vectors("Vectors of the second sequence", second, "second_size", self.score.key_size)
        for given in (first_mask, second_mask):
            if given is not None:
                check_boolean(given)
        mask = None
        if first_mask is not None or second_mask is not None:
            everywhere = torch.ones((), dtype=torch.bool, device=first.device)
            rows = everywhere if first_mask is None else first_mask[..., :, None]
            columns = everywhere if second_mask is None else second_mask[..., None, :]
            mask = checked_mask(rows & columns, first, second)
        affinity = self.score(first, second, mask)  # (…, T, S)
        first_weights = self.to_second(affinity, mask, first, self.to_second.prepare(second)).to(second.dtype)
        turned = None if mask is None else mask.transpose(-1, -2).expand(affinity.transpose(-1, -2).shape)
        second_weights = self.to_first(affinity.transpose(-1, -2), turned, second, self.to_first.prepare(first)).to(
            first.dtype
        )
        return CoAttended(first_weights @ second, second_weights @ first, first_weights, second_weights)


class HardAttention(nn.Module):
    """One sampled position per query, trained by the score-function estimator (Xu et al. 2015, section 4.1).

    In training, ``score_function(loss, log_prob)`` converts the loss of each example to one whose gradient is an
    unbiased estimate. In evaluation, the position with the largest energy is selected. (``Hard`` is the distribution
    with the straight-through estimator.)

    Args:
        query_size, key_size, score, score_options: as in ``Attention``.
    """

    def __init__(
        self,
        query_size: int,
        key_size: int,
        score: str | Score = "scaled_dot",
        score_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.score = make_score(score, query_size, key_size, score_options)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return context (…, T, d_v), one-hot weights (…, T, S), and log-probability (…, T) of the chosen positions."""
        if mask is not None:
            mask = checked_mask(mask, query, key)
        energies = self.score(query, key, mask)
        weights, log_prob = hard_sample(energies, mask, generator, greedy=not self.training)
        weights = weights.to(value.dtype)
        return weights @ value, weights, log_prob


__all__ = [
    "CoAttended",
    "CoAttention",
    "HardAttention",
    "HierarchicalAttentionPooling",
    "HierarchicalPooling",
    "MultiDimensionalAttention",
    "MultiHeadAttention",
    "MultiRepresentationalAttention",
]

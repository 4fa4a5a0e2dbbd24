"""Sentence encoders: build one, find hard negatives, and train it by one of five losses.

Shapes: B pairs of a batch, T length of a text, D width of the vectors, C classes, M different texts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from transformers import AutoModel, PreTrainedModel

from ..data import PairNumbers, TextPairs
from ..errors import UserError
from ..loading import base_facts, load_model, load_model_config, load_tokenizer, max_positions
from ..metrics.sentences import SentenceScores
from ..models.penalties import penalized
from ..pooling import pool
from ..sentence_encoders import SentenceEncoder, SentenceModules, read_modules
from ..tokenizers import build_tokenizer
from .contrastive import gather, shared_cross_entropy
from .from_scratch import text_encoder_config
from .sentence_encoder_config import ENCODER_FAMILIES, SCORE_LOSSES, SentenceTrainingConfig
from .trainer import ReliableTrainer

SIDES = ("first", "second", "negative")
_QUERIES = 256  # first texts whose similarities to all second ones are in memory at once


# The losses


def ranking_loss(
    first: torch.Tensor,
    second: torch.Tensor,
    numbers: torch.Tensor,
    negative: torch.Tensor | None = None,
    scale: float = 20.0,
    symmetric: bool = False,
) -> torch.Tensor:
    """Return the cross-entropy of the right second text among all of the batch (Henderson et al. 2017, section 4.4).

    The logits are cosines times the scale. Candidates of row i are the second texts, and the hard negatives of all
    rows. Each second text that some pair of the batch has with the first text of pair i is right, wherever it occurs.
    Candidates that equal the first text of pair i, and hard negatives that equal a right text, are left out.

    Args:
        first, second: (B, D) vectors of the two texts of each pair.
        numbers: (B, 2), or (B, 3) with negatives: equal texts have equal numbers.
        negative: (B, D) vectors of hard negatives.
        scale: factor of the cosines.
        symmetric: whether the loss is the mean with that of the first texts as candidates of the second ones, without
            negatives.
    """
    first, second = functional.normalize(first, dim=-1), functional.normalize(second, dim=-1)
    logits = scale * first @ second.T
    own, other = numbers[:, 0], numbers[:, 1]

    def is_right(texts: torch.Tensor) -> torch.Tensor:
        """Return (B, B): whether some pair has the j-th text with the first text of pair i."""
        return (own[:, None] == own).float() @ (other[:, None] == texts).float() > 0

    positives = is_right(other)
    least = torch.finfo(logits.dtype).min
    logits = logits.masked_fill((own[:, None] == other) & ~positives, least)
    candidates, right = logits, positives
    if negative is not None:
        third = numbers[:, 2]
        wrong = scale * first @ functional.normalize(negative, dim=-1).T
        wrong = wrong.masked_fill(is_right(third) | (own[:, None] == third), least)
        candidates = torch.cat([logits, wrong], 1)
        right = torch.cat([positives, torch.zeros_like(positives)], 1)
    loss = shared_cross_entropy(candidates, right)
    return (loss + shared_cross_entropy(logits.T, positives.T)) / 2 if symmetric else loss


def cosine_loss(first: torch.Tensor, second: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Return the squared error (B,) of cosines and targets (Reimers & Gurevych 2019, section 3)."""
    return (functional.cosine_similarity(first, second, dim=-1) - target) ** 2


def cosent_loss(first: torch.Tensor, second: torch.Tensor, target: torch.Tensor, scale: float = 20.0) -> torch.Tensor:
    """Return log(1 + Σ exp(scale · (cos_j - cos_i))) over the pairs i, j with target_i > target_j (CoSENT).

    Only the order of the targets counts, which Spearman's rho measures too (Li & Li 2024, arXiv 2309.12871, the
    cosine objective of section 3, with scale = 1 / τ).

    Args:
        first, second: (B, D) vectors of the two texts of each pair.
        target: (B,).
        scale: factor of the cosines.
    """
    cosines = scale * functional.cosine_similarity(first, second, dim=-1)
    differences = (cosines - cosines[:, None])[target[:, None] > target]
    return functional.softplus(differences.logsumexp(0))


def pair_features(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return [u; v; |u - v|] (B, 3 D), which a softmax classifies (Reimers & Gurevych 2019, section 3)."""
    return torch.cat([first, second, (first - second).abs()], dim=-1)


def distillation_loss(first: torch.Tensor, second: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """Return the squared distances (B,) of both vectors from the teacher's (Reimers & Gurevych 2020, section 2).

    Where the paper has the mean over the D components, this is the sum: for vectors of length 1, twice 1 - cosine of
    each.
    """
    return ((first - teacher) ** 2).sum(-1) + ((second - teacher) ** 2).sum(-1)


# The model


class TrainedSentenceEncoder(PreTrainedModel):
    """An encoder with a pooling, and during training the classifier of ``pair_features``.

    Only the encoder is published, so this class has no configuration of its own. ``forward`` reads all texts of a batch
    at once, which several processes need to synchronize their gradients.

    Args:
        body: the encoder.
        pooling: the pooling.
        num_labels: C, for the softmax loss.
        chunk: number of texts whose activations are in memory at once: those of a chunk are computed again when its
            gradient is (GradCache, Gao et al. 2021, arXiv 2101.06983, by gradient checkpointing). The gradient is that
            of the whole batch.
    """

    base_model_prefix = "body"
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True  # the encoder has been asked already

    def __init__(
        self, body: PreTrainedModel, pooling: str = "mean", num_labels: int | None = None, chunk: int | None = None
    ) -> None:
        super().__init__(body.config)
        self.body, self.pooling, self.chunk = body, pooling, chunk
        self.classifier = None if num_labels is None else nn.Linear(3 * vector_width(body.config), num_labels)
        self.post_init()

    def encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the vectors (B, D) of texts (B, T), which are not normalized."""
        if self.chunk is None or not torch.is_grad_enabled():
            return self._encode(input_ids, attention_mask)
        chunks = zip(input_ids.split(self.chunk), attention_mask.split(self.chunk), strict=True)
        return torch.cat([checkpoint(self._encode, ids, mask, use_reentrant=False) for ids, mask in chunks])

    def _encode(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        states = self.body(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        return pool(states, attention_mask, self.pooling)

    def forward(self, texts: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Return the vectors of each side, by its name in ``SIDES``, and ``logits`` (B, C) with a classifier.

        Args:
            texts: ``input_ids`` and ``attention_mask`` of the texts of each side.
        """
        found = {
            name: self.encode(side["input_ids"], side["attention_mask"])
            for name, side in zip(SIDES, texts, strict=False)
        }
        if self.classifier is not None:
            found["logits"] = self.classifier(pair_features(found["first"], found["second"]))
        return found


def vector_width(config: Any) -> int:
    """Return the width D of the outputs of an encoder."""
    width: int = getattr(config, "annotation_size", None) or config.hidden_size
    return width


class BuiltEncoder(NamedTuple):
    """An encoder before its training, and facts about the word vectors that its embeddings were initialized with."""

    encoder: SentenceEncoder
    vectors: dict[str, Any] | None


def build_sentence_encoder(config: SentenceTrainingConfig, data: Any, texts: Sequence[str]) -> BuiltEncoder:
    """Return a pretrained encoder, or one from scratch.

    Args:
        config: the configuration of the recipe.
        data: its section ``data``.
        texts: the training texts, from which the tokenizer of a model from scratch is learned.

    Raises:
        UserError: the model cannot be loaded or built, or is an encoder-decoder.
    """
    section, source = config.sentence, config.pretrained
    if source is not None:
        settings = load_model_config(source)
        if settings.is_encoder_decoder:
            raise UserError(f"{source.name} is an encoder-decoder; write an encoder, such as MiniLM, as model.name.")
        positions = max_positions(settings)
        if positions is not None and data.max_length > positions:
            raise UserError(f"data.max_length is {data.max_length}, and {source.name} reads {positions}; write that.")
        model, tokenizer = load_model(AutoModel, source).model, load_tokenizer(source)
        stated = read_modules(source)
        pooling = section.pooling or ("mean" if stated is None else stated.pooling)
        vectors = None
        model.config._name_or_path = ""  # the path of a local folder is not published
    else:
        pooling = section.pooling or "mean"
        tokenizer = build_tokenizer(config.tokenizer, texts, ends=False, masks=pooling == "first")
        model = AutoModel.from_config(own_encoder_config(config, len(tokenizer), tokenizer.pad_token_id))
        vectors = data.load(model, tokenizer)
    for name, module in model.named_children():
        if name == "pooler" and module is not None:
            module.requires_grad_(False)  # nothing reads it, and DDP would wait for its gradient
    modules = SentenceModules(pooling, section.normalize, data.max_length)
    return BuiltEncoder(SentenceEncoder(model, tokenizer, modules), vectors)


def own_encoder_config(config: SentenceTrainingConfig, vocab_size: int, pad: int | None = 0) -> Any:
    """Return the configuration of an encoder from scratch.

    Raises:
        UserError: the model type is none of ``ENCODER_FAMILIES``, or a field does not fit.
    """
    from_data = {"vocab_size": vocab_size, "pad_token_id": pad}
    return text_encoder_config(config.model, from_data, ENCODER_FAMILIES, pooled_by="sentence.pooling")


def encoder_facts(config: SentenceTrainingConfig, built: BuiltEncoder) -> dict[str, Any]:
    """Return facts about the encoder for ``results.json``."""
    encoder, vectors = built
    return {
        "model_type": encoder.model.config.model_type,
        **base_facts(config.pretrained),
        "width": vector_width(encoder.model.config),
        "pooling": encoder.modules.pooling,
        "normalize": encoder.modules.normalize,
        "loss": config.sentence.loss,
        "parameters": encoder.model.num_parameters(),
        "trained_parameters": encoder.model.num_parameters(only_trainable=True),
        "vectors": vectors and {name: vectors[name] for name in ("name", "found", "share")},
    }


# What is computed before training


def teacher_vectors(
    teacher: SentenceEncoder, pairs: TextPairs, width: int, rows: int, sides: Sequence[int] = (0, 1)
) -> torch.Tensor:
    """Return the teacher's vectors (M, D) of the M different texts of pairs; zeros for those on no side of ``sides``.

    Raises:
        UserError: the vectors of the student have another width.
    """
    found = vector_width(teacher.model.config)
    if found != width:
        raise UserError(
            f"The teacher's vectors have width {found}, and the student's {width}; write a student of that "
            "width (model.hidden_size; half of it with model.direction: bidirectional)."
        )
    numbers = PairNumbers(pairs)
    read = np.unique(numbers.rows[:, list(sides)])
    vectors = torch.zeros(len(numbers.texts), width)
    vectors[torch.from_numpy(read)] = teacher.embed([numbers.texts[i] for i in read], rows)
    return vectors


def mined_negatives(pairs: TextPairs, vectors: np.ndarray, margin: float) -> TextPairs:
    """Give each pair the second text of another pair that is most similar to its first text.

    It is the most similar one whose cosine is at most ``margin`` times that of the right text. If there is none, it is
    the least similar one. The text itself, and those that some pair says to be right, are chosen only if there are no
    others; ``ranking_loss`` leaves these out.

    Args:
        pairs: pairs of texts that belong together.
        vectors: (M, D) vectors of the texts of ``PairNumbers(pairs)``, of length 1.
        margin: the share.
    """
    numbered = PairNumbers(pairs)
    first, second = numbered.rows[:, 0], numbered.rows[:, 1]
    candidates = numbered.second
    place = {int(number): i for i, number in enumerate(candidates)}
    right: dict[int, list[int]] = {}
    for i, j in zip(first.tolist(), second.tolist(), strict=True):
        right.setdefault(i, []).append(place[j])
    chosen = np.empty(len(pairs), np.int64)
    for start in range(0, len(pairs), _QUERIES):
        rows = slice(start, start + _QUERIES)
        cosines = vectors[first[rows]] @ vectors[candidates].T
        limit = margin * (vectors[first[rows]] * vectors[second[rows]]).sum(1, keepdims=True)
        ranked = np.where(cosines <= limit, cosines, -2 - cosines)
        for row, number in enumerate(first[rows].tolist()):
            ranked[row, right[number]] = -np.inf
            if number in place:  # a text is not a negative of itself
                ranked[row, place[number]] = -np.inf
        chosen[rows] = candidates[ranked.argmax(1)]
    items = [item._replace(negative=numbered.texts[i]) for item, i in zip(pairs, chosen.tolist(), strict=True)]
    return replace(pairs, items=items)


# The trainer


class SentenceTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for a ``TrainedSentenceEncoder``, in batches of ``TextPairCollator``.

    A ranking compares a text with the second texts and the hard negatives of all processes; CoSENT compares the pairs
    of the batch of one process. Gradient accumulation adds no further ones: a step of two batches has the mean of their
    losses. ``sentence.chunk`` is for larger batches.

    Args:
        loss: one of ``SENTENCE_LOSSES``.
        scores: the ``compute_metrics``.
        scale: of ``ranking_loss`` and ``cosent_loss``.
        symmetric: of ``ranking_loss``.
        normalize: whether a student's vectors have length 1, as those of its teacher.

    Raises:
        UserError: the weights are sharded.
    """

    def __init__(
        self,
        model: TrainedSentenceEncoder,
        *args: Any,
        loss: str,
        scores: SentenceScores,
        scale: float = 20.0,
        symmetric: bool = False,
        normalize: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(model, *args, compute_metrics=scores, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise UserError("A sentence encoder is trained with whole weights; launch without FSDP and DeepSpeed.")
        self.loss, self.scores = loss, scores
        self.scale, self.symmetric, self.normalize = scale, symmetric, normalize
        self.label_names = ["labels", "numbers"]

    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        found = model(texts=inputs["texts"])
        vectors = {name: found[name].float() for name in SIDES if name in found}
        loss = self.loss_of(vectors, found.get("logits"), inputs)
        number = len(inputs["labels"])
        loss = self.mean_over_step(loss * number, number, num_items_in_batch)
        loss = penalized(model, loss, 1.0 if num_items_in_batch is None else number / num_items_in_batch)
        return (loss, vectors) if return_outputs else loss

    def loss_of(
        self, vectors: Mapping[str, torch.Tensor], logits: torch.Tensor | None, inputs: Mapping[str, Any]
    ) -> torch.Tensor:
        """Return the mean loss of a batch."""
        first, second = vectors["first"], vectors["second"]
        if self.loss == "ranking":
            negative = vectors.get("negative")
            return ranking_loss(
                gather(first),
                gather(second),
                gather(inputs["numbers"]),
                None if negative is None else gather(negative),
                self.scale,
                self.symmetric,
            )
        if self.loss == "cosine":
            return cosine_loss(first, second, inputs["labels"].float()).mean()
        if self.loss == "cosent":
            return cosent_loss(first, second, inputs["labels"], self.scale)
        if self.loss == "softmax":
            assert logits is not None
            return functional.cross_entropy(logits.float(), inputs["labels"])
        if self.normalize:
            first, second = (functional.normalize(each, dim=-1) for each in (first, second))
        return distillation_loss(first, second, inputs["vectors"].float()).mean()

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        self.scores.expect(dataloader.dataset.pairs)
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def whole_model(self) -> PreTrainedModel:
        """Return the encoder without the classifier, in evaluation mode. Do not train afterwards."""
        body: PreTrainedModel = self.model.eval().body
        return body


def pair_targets(pairs: TextPairs, config: SentenceTrainingConfig, span: Sequence[float]) -> list[float] | None:
    """Return the target of each pair: its score, between 0 and 1, or its class; None if it has none.

    Args:
        pairs: the pairs.
        config: the configuration of the recipe.
        span: the scores of the cosines 0 and 1.
    """
    if config.sentence.loss in SCORE_LOSSES:
        low, high = span
        return [(item.score - low) / (high - low) for item in pairs if item.score is not None]
    if config.sentence.loss == "softmax":
        return [item.label for item in pairs if item.label is not None]
    return None


def score_span(given: Sequence[float] | None, pairs: TextPairs) -> tuple[float, float]:
    """Return the scores of the targets 0 and 1: those given, or the lowest and the highest of the training pairs.

    Raises:
        UserError: all scores are equal.
    """
    if given is not None:
        return given[0], given[1]
    scores = [item.score for item in pairs if item.score is not None]
    if not scores:
        return 0.0, 1.0
    if min(scores) == max(scores):
        raise UserError(
            f"All scores of {pairs.name} are {scores[0]:g}; write another data.score_column, or, for sentence.loss "
            "cosine, data.score_range."
        )
    return min(scores), max(scores)

"""A recurrent encoder of texts, and a classifier on it, with hierarchical attention (Yang et al. 2016) as an option.

Shapes: B batch, S steps of a text, D embedding width, H hidden width, W annotation width (H, or 2 H where the layers
read both ways), V vocabulary; for hierarchical pooling K sentences in the batch, L words in a sentence, N sentences in
a text.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .attention_patterns import AttentionPooling
from .attention_scores import Parametric
from .classifier_output import PooledClassifierOutput
from .configuration_rnn_encoder import RNNEncoderConfig
from .recurrent_cells import DirectedLayer, RecurrentCell, State, real_steps


class Sentences(NamedTuple):
    """Where the words of a batch of texts stand when each sentence is a row of its own, and the sentences in the texts.

    Attributes:
        rows, steps: (n,) the place of each real word in (B, S).
        sentence, position: (n,) its place in (K, L).
        word_mask: boolean (K, L).
        text, order: (K,) the place of each sentence in (B, N).
        sentence_mask: boolean (B, N).
    """

    rows: torch.Tensor
    steps: torch.Tensor
    sentence: torch.Tensor
    position: torch.Tensor
    word_mask: torch.Tensor
    text: torch.Tensor
    order: torch.Tensor
    sentence_mask: torch.Tensor

    def split(self, texts: torch.Tensor) -> torch.Tensor:
        """(B, S, …) -> (K, L, …), zeros where a sentence has no more words."""
        words = texts.new_zeros(*self.word_mask.shape, *texts.shape[2:])
        words[self.sentence, self.position] = texts[self.rows, self.steps]
        return words

    def join(self, words: torch.Tensor, num_steps: int) -> torch.Tensor:
        """(K, L, …) -> (B, S, …), zeros at padding."""
        texts = words.new_zeros(len(self.sentence_mask), num_steps, *words.shape[2:])
        texts[self.rows, self.steps] = words[self.sentence, self.position]
        return texts

    def stack(self, vectors: torch.Tensor) -> torch.Tensor:
        """Vectors of the sentences (K, W) -> (B, N, W), zeros where a text has no more sentences."""
        stacked = vectors.new_zeros(*self.sentence_mask.shape, vectors.shape[-1])
        stacked[self.text, self.order] = vectors[: len(self.text)]
        return stacked


def find_sentences(
    mask: torch.Tensor, end: torch.Tensor | None = None, sentence_ids: torch.Tensor | None = None
) -> Sentences:
    """The sentences of a batch of texts.

    Args:
        mask: boolean (B, S), True at the real words; the others belong to no sentence, wherever they stand.
        end: boolean (B, S), True at the words that end a sentence. Several in a row end it together.
        sentence_ids: (B, S), instead of ``end``: a sentence is a run of words with the same number.
    """
    rows, steps = mask.nonzero(as_tuple=True)
    first = rows.diff(prepend=rows.new_full((1,), -1)) != 0  # the first real word of a text
    if sentence_ids is not None:
        starts = first.clone()
        starts[1:] |= sentence_ids[rows, steps].diff() != 0
    else:
        assert end is not None
        ends = end[rows, steps]
        starts = first.clone()
        starts[1:] |= ends[:-1] & ~ends[1:]
    sentence = starts.cumsum(0) - 1
    (start,) = starts.nonzero(as_tuple=True)  # (K,)
    position = torch.arange(len(rows), device=rows.device) - start[sentence]
    lengths = sentence.bincount(minlength=1)  # one empty sentence stands for a batch of empty texts
    text = rows[start]
    counts = text.bincount(minlength=len(mask))
    order = torch.arange(len(text), device=rows.device) - (counts.cumsum(0) - counts)[text]
    return Sentences(rows, steps, sentence, position, _steps_below(lengths), text, order, _steps_below(counts))


def _steps_below(lengths: torch.Tensor) -> torch.Tensor:
    """Boolean (rows, longest), True in the first ``lengths`` places of each row; there is at least one place."""
    longest = max(int(lengths.max()), 1)
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class FrozenEmbedding(nn.Embedding):
    """An embedding that is not trained.

    ``from_pretrained`` puts new parameters in the place of those that a model was built with, and every one of them
    would be trained: here each is frozen as it is put.
    """

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if param is not None:
            param.requires_grad_(False)
        super().register_parameter(name, param)


class RNNEncoderLayer(nn.Module):
    """One recurrent layer over the words, of whole texts or of each sentence by itself."""

    def __init__(self, cell: str, input_size: int, hidden_size: int, direction: str) -> None:
        super().__init__()
        self.recurrent = DirectedLayer(cell, input_size, hidden_size, direction)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, sentences: Sentences | None
    ) -> tuple[torch.Tensor, State]:
        """Read inputs (B, S, D); returns outputs (B, S, W) and the states in which each row ended, of texts (B, W) or,
        if ``sentences`` are given, of sentences (K, W)."""
        if sentences is None:
            return self.recurrent(inputs, mask)
        outputs, state = self.recurrent(sentences.split(inputs), sentences.word_mask)
        return sentences.join(outputs, inputs.shape[1]), state


class RNNEncoderPreTrainedModel(PreTrainedModel):
    config: RNNEncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["RecurrentLayer"]
    _can_record_outputs = {"hidden_states": RNNEncoderLayer}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, RecurrentCell | Parametric):
            module.initialize_()
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)


class RNNEncoderModel(RNNEncoderPreTrainedModel):
    """Embedding, recurrent layers and pooling: from a text to its annotations and to one vector."""

    def __init__(self, config: RNNEncoderConfig) -> None:
        super().__init__(config)
        # Padding that is read like a word has an embedding like a word: it is neither zero nor held there.
        padding_idx = config.pad_token_id if config.mask_padding else None
        embedding = FrozenEmbedding if config.freeze_embeddings else nn.Embedding
        self.embed_tokens = embedding(config.vocab_size, config.embedding_size, padding_idx)
        width = config.annotation_size
        widths = [config.embedding_size] + [width] * (config.num_hidden_layers - 1)
        self.layers = nn.ModuleList(
            RNNEncoderLayer(config.cell, size, config.hidden_size, config.direction) for size in widths
        )
        attends = config.pooling in ("attention", "hierarchical")
        self.word_attention = self._attention_pooling(width) if attends else None
        self.sentence_layer, self.sentence_attention = None, None
        if config.pooling == "hierarchical":
            self.sentence_layer = DirectedLayer(config.cell, width, config.hidden_size, config.direction)
            self.sentence_attention = self._attention_pooling(width)
        self.embedding_dropout = nn.Dropout(config.embedding_dropout)
        self.dropout = nn.Dropout(config.dropout)
        self.gradient_checkpointing = False
        self.post_init()

    def _attention_pooling(self, size: int) -> AttentionPooling:
        return AttentionPooling(
            size,
            self.config.attention_hidden_size,
            score=self.config.attention_score,
            distribution=self.config.attention_distribution,
            score_options=self.config.attention_score_options,
            distribution_options=self.config.attention_distribution_options,
        )

    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        sentence_ids: torch.LongTensor | None = None,
        output_attentions: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPooling:
        """Encode a batch of texts.

        Args:
            input_ids: (B, S).
            attention_mask: (B, S), 0 at padding, which may stand anywhere; None if every step is a word.
            inputs_embeds: (B, S, D), instead of ``input_ids``.
            sentence_ids: (B, S), for hierarchical pooling: a sentence is a run of words with the same number. Without
                them the sentences are found by ``config.sentence_end_token_ids``.
            output_attentions: return the weights of attention pooling; default ``config.output_attentions``.

        Returns:
            ``last_hidden_state`` (B, S, W), ``pooler_output`` (B, W), ``hidden_states`` if asked for: the embeddings
            and the output of each layer over the words; ``attentions`` if asked for. Those of attention pooling are one
            tensor (B, 1, 1, S). Those of hierarchical pooling are two: the weight of each word in its sentence
            (B, 1, 1, S), and the weight of each sentence in its text (B, 1, 1, N), in the order of the sentences. The
            vector of a text without any word comes from zeros alone.

        Raises:
            ValueError: both or neither of ``input_ids`` and ``inputs_embeds`` are given, a mask or sentence ids are of
                another shape, or hierarchical pooling cannot know where sentences end.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass either input_ids or inputs_embeds, and not both.")
        embeddings = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # (B, S, D)
        mask = real_steps(attention_mask, embeddings, "attention_mask")
        if not self.config.mask_padding:
            mask = None
        sentences = self._sentences(embeddings, input_ids, mask, sentence_ids)

        hidden_states = self.embedding_dropout(embeddings)
        state: State = ()
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, state = layer(hidden_states, mask, sentences)  # (B, S, W)

        pooled, attentions = self._pool(hidden_states, state, mask, sentences)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states,
            pooler_output=pooled,
            attentions=attentions if output_attentions else None,
        )

    def _sentences(
        self,
        embeddings: torch.Tensor,
        input_ids: torch.Tensor | None,
        mask: torch.Tensor | None,
        sentence_ids: torch.Tensor | None,
    ) -> Sentences | None:
        if self.config.pooling != "hierarchical":
            if sentence_ids is not None:
                raise ValueError(
                    f"sentence_ids are for hierarchical pooling, and this model's is {self.config.pooling!r}; leave "
                    "them out."
                )
            return None
        if mask is None:
            mask = torch.ones(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)
        if sentence_ids is not None:
            if sentence_ids.shape != mask.shape:
                raise ValueError(
                    f"sentence_ids has the shape {tuple(sentence_ids.shape)}; "
                    f"pass a number for each step of each text, {tuple(mask.shape)}."
                )
            return find_sentences(mask, sentence_ids=sentence_ids)
        if input_ids is None or not self.config.sentence_end_token_ids:
            raise ValueError(
                "Hierarchical pooling cannot know where sentences end; pass sentence_ids, or input_ids to a model with "
                "sentence_end_token_ids in its configuration."
            )
        ends = torch.tensor(self.config.sentence_end_token_ids, device=input_ids.device)
        return find_sentences(mask, end=torch.isin(input_ids, ends))

    def _pool(
        self, hidden_states: torch.Tensor, state: State, mask: torch.Tensor | None, sentences: Sentences | None
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...] | None]:
        """The vector of each text (B, W), and the weights of attention."""
        if sentences is not None:
            return self._pool_sentences(hidden_states, sentences)
        if self.word_attention is not None:
            pooled, weights = self.word_attention(hidden_states, mask)
            return pooled, (weights[:, None, None],)
        if self.config.pooling == "last":
            return state[0], None
        if mask is None:
            return hidden_states.mean(1) if self.config.pooling == "mean" else hidden_states.amax(1), None
        padding, lengths = ~mask[..., None], mask.sum(1, keepdim=True)
        if self.config.pooling == "mean":
            return hidden_states.masked_fill(padding, 0).sum(1) / lengths.clamp(min=1), None
        highest = hidden_states.masked_fill(padding, float("-inf")).amax(1)
        return highest.masked_fill(lengths == 0, 0), None

    def _pool_sentences(
        self, hidden_states: torch.Tensor, sentences: Sentences
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Words -> sentences -> text (Yang et al. 2016, eq. 5-10), from the outputs (B, S, W) of the layers."""
        assert self.word_attention is not None
        assert self.sentence_layer is not None
        assert self.sentence_attention is not None
        vectors, word_weights = self.word_attention(sentences.split(hidden_states), sentences.word_mask)  # (K, W)
        annotations, _ = self.sentence_layer(sentences.stack(vectors), sentences.sentence_mask)  # (B, N, W)
        pooled, sentence_weights = self.sentence_attention(annotations, sentences.sentence_mask)
        word_weights = sentences.join(word_weights, hidden_states.shape[1])  # (B, S)
        return pooled, (word_weights[:, None, None], sentence_weights[:, None, None])


class RNNEncoderForSequenceClassification(RNNEncoderPreTrainedModel):
    """Classifier of texts: one linear layer over the pooled vector. One number per text is a regression, or, with
    ``problem_type="multi_label_classification"``, one sigmoid."""

    def __init__(self, config: RNNEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = RNNEncoderModel(config)
        self.classifier_dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.annotation_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        sentence_ids: torch.LongTensor | None = None,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        output_pooled: bool = False,
        **kwargs: Any,
    ) -> PooledClassifierOutput:
        """Classify a batch of texts.

        Args:
            labels: (B,) numbers of classes; (B, num_labels) zeros and ones for several labels, (B,) too where there is
                one; (B,) or (B, num_labels) numbers for a regression.
            num_items_in_batch: labels in all the batches of a training step; ``loss`` is then this batch's share of the
                step's mean, not its own mean.
            output_pooled: return the vectors that the classifier reads.
            input_ids, attention_mask, inputs_embeds, sentence_ids: as in ``RNNEncoderModel``.

        Returns:
            ``loss``, ``logits`` (B, num_labels); ``hidden_states``, ``attentions`` and ``pooler_output`` (B, W) if
            asked for.

        Raises:
            ValueError: several labels are wanted, and the labels' shape is another.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            sentence_ids=sentence_ids,
            **kwargs,
        )
        logits = self.classifier(self.classifier_dropout(outputs.pooler_output))  # (B, num_labels)
        loss = None
        if labels is not None:
            if self.config.problem_type == "multi_label_classification":
                labels = _as_targets(labels, logits)
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
            if num_items_in_batch is not None:
                # Trainer adds up the losses of a step's batches; this is the number of labels in all of them.
                loss = loss * labels.ne(-100).sum() / num_items_in_batch
        return PooledClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            pooler_output=outputs.pooler_output if output_pooled else None,
        )


def _as_targets(labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """Labels of a multi-label problem as the binary cross-entropy wants them: of the logits' shape and type."""
    if labels.shape not in (logits.shape, logits.squeeze(-1).shape):
        raise ValueError(
            f"labels have the shape {tuple(labels.shape)}; pass a 0 or 1 for each label of each text, "
            f"{tuple(logits.shape)}."
        )
    return labels.to(logits.dtype).view_as(logits)


RNNEncoderModel.register_for_auto_class("AutoModel")
RNNEncoderForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")

__all__ = [
    "RNNEncoderForSequenceClassification",
    "RNNEncoderModel",
    "RNNEncoderPreTrainedModel",
    "Sentences",
    "find_sentences",
]

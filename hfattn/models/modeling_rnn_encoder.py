"""A recurrent text encoder, classifier with optional hierarchical attention (Yang et al. 2016), and tagger.

Shapes: B batch, S length of a text, D embedding width, H hidden width, W annotation width (H, or 2 H if bidirectional),
P width of the pooled vector (W, or 3 W for concat pooling), V vocabulary size; for hierarchical pooling K sentences in
the batch, L words in a sentence, N sentences in a text.
"""

from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, TokenClassifierOutput
from transformers.utils import can_return_tuple
from transformers.utils.output_capturing import capture_outputs

from .attention_pooling import AttentionPooling
from .attention_scores import Parametric
from .classifier_output import PooledClassifierOutput, classification_loss
from .configuration_rnn_encoder import CONTEXTUAL, RNNEncoderConfig
from .penalties import penalized, share_of_batch
from .pooled_classifier import make_classifier, pool_steps
from .recurrent_cells import RecurrentCell, State
from .recurrent_layers import DirectedLayer, RowDropout, SequenceDropout, real_steps
from .strict_config import StrictConfig


class Sentences(NamedTuple):
    """Indices that split a batch of texts into one row per sentence, and join the sentences of each text.

    Attributes:
        rows, steps: (n,) indices in (B, S) of the n words that are not padding.
        sentence, position: (n,) indices of the same words in (K, L).
        word_mask: boolean (K, L), False at padding.
        text, order: (K,) indices of the sentences in (B, N).
        sentence_mask: boolean (B, N), False at padding.
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
        """Rearrange texts (B, S, …) into sentences (K, L, …), padded with zeros."""
        words = texts.new_zeros(*self.word_mask.shape, *texts.shape[2:])
        words[self.sentence, self.position] = texts[self.rows, self.steps]
        return words

    def join(self, words: torch.Tensor, num_steps: int) -> torch.Tensor:
        """Rearrange sentences (K, L, …) into texts (B, S, …), with zeros at padding."""
        texts = words.new_zeros(len(self.sentence_mask), num_steps, *words.shape[2:])
        texts[self.rows, self.steps] = words[self.sentence, self.position]
        return texts

    def stack(self, vectors: torch.Tensor) -> torch.Tensor:
        """Rearrange the vectors of the sentences (K, W) by text, (B, N, W), padded with zeros."""
        stacked = vectors.new_zeros(*self.sentence_mask.shape, vectors.shape[-1])
        stacked[self.text, self.order] = vectors[: len(self.text)]
        return stacked


def find_sentences(
    mask: torch.Tensor, end: torch.Tensor | None = None, sentence_ids: torch.Tensor | None = None
) -> Sentences:
    """Find the sentences of a batch of texts.

    Args:
        mask: boolean (B, S), False at padding, which belongs to no sentence.
        end: boolean (B, S), True at the words that end a sentence. Several consecutive ones end one sentence.
        sentence_ids: (B, S), instead of ``end``: consecutive words with the same number form a sentence.
    """
    rows, steps = mask.nonzero(as_tuple=True)
    first = rows.diff(prepend=rows.new_full((1,), -1)) != 0  # the first word of each text
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
    lengths = sentence.bincount(minlength=1)  # a batch of empty texts has one empty sentence
    text = rows[start]
    counts = text.bincount(minlength=len(mask))
    order = torch.arange(len(text), device=rows.device) - (counts.cumsum(0) - counts)[text]
    return Sentences(rows, steps, sentence, position, _steps_below(lengths), text, order, _steps_below(counts))


def _steps_below(lengths: torch.Tensor) -> torch.Tensor:
    """Return a boolean mask (rows, max(lengths, 1)), True at the first ``lengths`` columns of each row."""
    longest = max(int(lengths.max()), 1)
    return torch.arange(longest, device=lengths.device) < lengths[:, None]


class FrozenEmbedding(nn.Embedding):
    """An embedding that is not trained.

    ``from_pretrained`` replaces the parameters of a model with new ones that require a gradient. Each parameter is
    therefore frozen when it is registered.
    """

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        if param is not None:
            param.requires_grad_(False)
        super().register_parameter(name, param)


class RNNEncoderLayer(nn.Module):
    """One recurrent layer over the words of whole texts, or of each sentence separately."""

    def __init__(self, config: RNNEncoderConfig, input_size: int) -> None:
        super().__init__()
        self.recurrent = make_layer(config, input_size)

    def forward(
        self, inputs: torch.Tensor, mask: torch.Tensor | None, sentences: Sentences | None
    ) -> tuple[torch.Tensor, State]:
        """Run over inputs (B, S, D).

        Returns:
            Outputs (B, S, W), and the last states of the texts (B, W) or, with ``sentences``, of the sentences (K, W).
        """
        if sentences is None:
            return self.recurrent(inputs, mask)
        outputs, state = self.recurrent(sentences.split(inputs), sentences.word_mask)
        return sentences.join(outputs, inputs.shape[1]), state


def make_layer(config: RNNEncoderConfig, input_size: int) -> DirectedLayer:
    """Return a recurrent layer with the cell, the width and the direction of the configuration."""
    return DirectedLayer(
        config.cell,
        input_size,
        config.hidden_size,
        config.direction,
        weight_dropout=config.weight_dropout,
        bptt_steps=config.bptt_steps,
    )


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

    def _resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        embedding = super()._resize_token_embeddings(*args, **kwargs)
        if self.base_model.contextual is not None:
            self.base_model.contextual.resize(embedding.num_embeddings)
        return embedding


class RNNEncoderModel(RNNEncoderPreTrainedModel):
    """Embedding, recurrent layers and pooling, which return the annotations of a text and one vector.

    Args:
        add_pooling_layer: pool the annotations; without it, ``pooler_output`` is None.
    """

    def __init__(self, config: RNNEncoderConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.pooling = config.pooling if add_pooling_layer else None
        # If padding is read as a word, its embedding is trained; with a padding_idx it would stay zero.
        padding_idx = config.pad_token_id if config.mask_padding else None
        embedding = FrozenEmbedding if config.freeze_embeddings else nn.Embedding
        self.embed_tokens = embedding(config.vocab_size, config.embedding_size, padding_idx)
        self.contextual: Any = None
        if config.contextual_config is not None:
            self.contextual = StrictConfig.custom_classes.find(CONTEXTUAL)(config)
            if "output" in config.contextual_places and self.pooling in ("last", "concat", "hierarchical"):
                raise ValueError(
                    f"pooling {self.pooling} reads states of the layers, beside which there are no contextual vectors; "
                    "write contextual_places: [input], or pooling: mean, max or attention."
                )
        width = config.recurrent_size
        widths = [config.input_size] + [width] * (config.num_hidden_layers - 1)
        self.layers = nn.ModuleList(RNNEncoderLayer(config, size) for size in widths)
        attends = self.pooling in ("attention", "hierarchical")
        self.word_attention = self._attention_pooling(config.annotation_size) if attends else None
        self.sentence_layer, self.sentence_attention = None, None
        if self.pooling == "hierarchical":
            self.sentence_layer = make_layer(config, width)
            self.sentence_attention = self._attention_pooling(width)
        self.embedding_row_dropout = RowDropout(config.embedding_row_dropout)
        self.embedding_dropout = SequenceDropout(config.embedding_dropout, config.variational_dropout)
        self.dropout = SequenceDropout(config.dropout, config.variational_dropout)
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
            input_ids: (B, S), of any type if S is 0.
            attention_mask: (B, S), 0 at padding, which may be at any position; None if there is no padding.
            inputs_embeds: (B, S, D), instead of ``input_ids``.
            sentence_ids: (B, S), for hierarchical pooling: consecutive words with the same number form a sentence.
                Without it, sentences end at ``config.sentence_end_token_ids``.
            output_attentions: return the weights of attention pooling; default ``config.output_attentions``.

        Returns:
            ``last_hidden_state`` (B, S, W), ``pooler_output`` (B, P; zeros are pooled if a text has no words), and if
            requested ``hidden_states``, the embeddings and the output of each layer over the words, and ``attentions``:
            one tensor (B, 1, 1, S) for attention pooling; for hierarchical pooling two, the weight of each word in its
            sentence (B, 1, 1, S) and the weight of each sentence in its text (B, 1, 1, N).

        Raises:
            ValueError: ``input_ids`` and ``inputs_embeds`` are both given or both missing, a mask or sentence ids have
                another shape, hierarchical pooling cannot find the sentences, or contextual vectors lack
                ``input_ids``.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Pass exactly one of input_ids and inputs_embeds.")
        embeddings = self.embed_tokens(input_ids.long()) if inputs_embeds is None else inputs_embeds  # type: ignore[union-attr]
        mask = real_steps(attention_mask, embeddings, "attention_mask")
        if not self.config.mask_padding:
            mask = None
        sentences = self._sentences(embeddings, input_ids, mask, sentence_ids)

        hidden_states = embeddings
        if input_ids is not None:
            hidden_states = self.embedding_row_dropout(embeddings, input_ids.long(), self.config.vocab_size)
        hidden_states = self.embedding_dropout(hidden_states)
        contextual = self._contextual_states(input_ids, mask)
        hidden_states = self._beside(hidden_states, "input", contextual)
        state: State = ()
        for layer_idx, layer in enumerate(self.layers):
            if layer_idx > 0:
                hidden_states = self.dropout(hidden_states)
            hidden_states, state = layer(hidden_states, mask, sentences)  # (B, S, W)
        hidden_states = self._beside(hidden_states, "output", contextual)

        pooled, attentions = self._pool(hidden_states, state, mask, sentences)
        if output_attentions is None:
            output_attentions = self.config.output_attentions
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states,
            pooler_output=pooled,
            attentions=attentions if output_attentions else None,
        )

    def _contextual_states(
        self, input_ids: torch.Tensor | None, mask: torch.Tensor | None
    ) -> list[torch.Tensor] | None:
        """Return the hidden states of the frozen encoder; None without one."""
        if self.contextual is None:
            return None
        if input_ids is None:
            raise ValueError("The encoder of the contextual vectors reads tokens; pass input_ids, not inputs_embeds.")
        return self.contextual.read(input_ids.long(), mask)

    def _beside(self, vectors: torch.Tensor, place: str, contextual: list[torch.Tensor] | None) -> torch.Tensor:
        """Return vectors (B, S, …) with the contextual vectors of a place beside them (Peters et al. 2018, 3.3)."""
        if contextual is None or place not in self.config.contextual_places:
            return vectors
        return torch.cat([vectors, self.contextual(place, contextual)], dim=-1)

    def _sentences(
        self,
        embeddings: torch.Tensor,
        input_ids: torch.Tensor | None,
        mask: torch.Tensor | None,
        sentence_ids: torch.Tensor | None,
    ) -> Sentences | None:
        if self.pooling != "hierarchical":
            if sentence_ids is not None:
                raise ValueError(
                    f"sentence_ids is for hierarchical pooling, but this model's pooling is {self.pooling!r}; "
                    "remove sentence_ids."
                )
            return None
        if torch.compiler.is_exporting():
            raise ValueError(
                "Hierarchical pooling finds the sentences of a batch, whose number a graph would fix; export a model "
                "with another pooling."
            )
        if mask is None:
            mask = torch.ones(embeddings.shape[:2], dtype=torch.bool, device=embeddings.device)
        if sentence_ids is not None:
            if sentence_ids.shape != mask.shape:
                raise ValueError(
                    f"sentence_ids has the shape {tuple(sentence_ids.shape)}; pass one of shape {tuple(mask.shape)}."
                )
            return find_sentences(mask, sentence_ids=sentence_ids)
        if input_ids is None or not self.config.sentence_end_token_ids:
            raise ValueError(
                "Hierarchical pooling cannot find the sentences; pass sentence_ids, or input_ids to a model with "
                "sentence_end_token_ids in its configuration."
            )
        ends = torch.tensor(self.config.sentence_end_token_ids, device=input_ids.device)
        return find_sentences(mask, end=torch.isin(input_ids, ends))

    def _pool(
        self, hidden_states: torch.Tensor, state: State, mask: torch.Tensor | None, sentences: Sentences | None
    ) -> tuple[torch.Tensor | None, tuple[torch.Tensor, ...] | None]:
        """Return the vector of each text (B, P), and the attention weights or None; two None without pooling."""
        if self.pooling is None:
            return None, None
        if sentences is not None:
            return self._pool_sentences(hidden_states, sentences)
        if self.word_attention is not None:
            pooled, weights = self.word_attention(hidden_states, mask)
            return pooled, (weights[:, None, None],)
        return pool_steps(self.pooling, hidden_states, state[0], mask), None

    def _pool_sentences(
        self, hidden_states: torch.Tensor, sentences: Sentences
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Pool the outputs of the layers (B, S, W) by sentence, then by text (Yang et al. 2016, eq. 5-10)."""
        assert self.word_attention is not None
        assert self.sentence_layer is not None
        assert self.sentence_attention is not None
        vectors, word_weights = self.word_attention(sentences.split(hidden_states), sentences.word_mask)  # (K, W)
        annotations, _ = self.sentence_layer(sentences.stack(vectors), sentences.sentence_mask)  # (B, N, W)
        pooled, sentence_weights = self.sentence_attention(annotations, sentences.sentence_mask)
        word_weights = sentences.join(word_weights, hidden_states.shape[1])  # (B, S)
        return pooled, (word_weights[:, None, None], sentence_weights[:, None, None])


class RNNEncoderForSequenceClassification(RNNEncoderPreTrainedModel):
    """Text classifier over the pooled vector: one linear layer, or a hidden layer before it.

    With ``num_labels=1`` it is a regression or, with ``problem_type="multi_label_classification"``, one sigmoid.
    """

    def __init__(self, config: RNNEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = RNNEncoderModel(config)
        # With a hidden layer, the classifier has its own dropout, after its norms.
        self.classifier_dropout = nn.Dropout(0 if config.classifier_hidden_size else config.classifier_dropout)
        self.classifier = make_classifier(
            config.pooled_size, config.classifier_hidden_size, config.num_labels, config.classifier_dropout
        )
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
            labels: (B,) class ids; for multi-label classification (B, num_labels) zeros and ones, or (B,) if there is
                one label; for a regression (B,) or (B, num_labels) numbers.
            num_items_in_batch: number of labels in all batches of a training step; ``loss`` is then the contribution of
                this batch to the mean of the step, instead of the mean of the batch.
            output_pooled: return the classifier's inputs.
            input_ids, attention_mask, inputs_embeds, sentence_ids: see ``RNNEncoderModel``.

        Returns:
            ``loss``, ``logits`` (B, num_labels), and if requested ``hidden_states``, ``attentions`` and
            ``pooler_output`` (B, P).

        Raises:
            ValueError: the labels of a multi-label classification have another shape.
        """
        outputs = self.model(
            input_ids,
            attention_mask=attention_mask,
            inputs_embeds=inputs_embeds,
            sentence_ids=sentence_ids,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.classifier_dropout(outputs.pooler_output))  # (B, num_labels)
        loss = None
        if labels is not None:
            loss = classification_loss(self.loss_function, logits, labels, self.config, num_items_in_batch)
            loss = penalized(self, loss, share_of_batch(labels, num_items_in_batch))
        return PooledClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            pooler_output=outputs.pooler_output if output_pooled else None,
        )


class RNNEncoderForTokenClassification(RNNEncoderPreTrainedModel):
    """Tagger with one output per step: one linear layer over the annotation of each token (Graves & Schmidhuber 2005).

    The layers read whole texts, whatever ``config.pooling`` is.
    """

    def __init__(self, config: RNNEncoderConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = RNNEncoderModel(config, add_pooling_layer=False)
        self.classifier_dropout = nn.Dropout(config.classifier_dropout)
        self.classifier = nn.Linear(config.annotation_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.LongTensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Any,
    ) -> TokenClassifierOutput:
        """Predict the tag of each token.

        Args:
            labels: (B, S) ids of tags, -100 at tokens without a loss.
            num_items_in_batch: number of labels in all batches of a training step; ``loss`` is then the contribution of
                this batch to the mean of the step, instead of the mean of the batch.
            input_ids, attention_mask, inputs_embeds: see ``RNNEncoderModel``.

        Returns:
            ``loss``, ``logits`` (B, S, num_labels), and ``hidden_states`` if requested.
        """
        outputs = self.model(
            input_ids, attention_mask=attention_mask, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(self.classifier_dropout(outputs.last_hidden_state))  # (B, S, num_labels)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
            loss = penalized(self, loss, share_of_batch(labels, num_items_in_batch))
        return TokenClassifierOutput(loss=loss, logits=logits, hidden_states=outputs.hidden_states)


RNNEncoderModel.register_for_auto_class("AutoModel")
RNNEncoderForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
RNNEncoderForTokenClassification.register_for_auto_class("AutoModelForTokenClassification")

__all__ = [
    "RNNEncoderForSequenceClassification",
    "RNNEncoderForTokenClassification",
    "RNNEncoderModel",
    "RNNEncoderPreTrainedModel",
    "Sentences",
    "find_sentences",
]

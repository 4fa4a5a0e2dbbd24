"""Shared parts of the encoder-decoders: tied weights, embeddings for one or two vocabularies, and shifted targets."""

from typing import Any

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel


class TiesOfModel:
    """Mixin of models that choose each of their ties, whatever ``tie_word_embeddings`` says."""

    _tied_weights_keys: dict[str, str] | None

    def get_expanded_tied_weights_keys(self: Any, all_submodels: bool = False) -> dict[str, str]:
        """Return the names of tied parameters with those of their sources."""
        if all_submodels:
            return PreTrainedModel.get_expanded_tied_weights_keys(self, all_submodels=True)
        return dict(self._tied_weights_keys or {})


class SourceAndTargetEmbeddings(TiesOfModel):
    """Mixin that ties and resizes the embeddings of source and target.

    Requires a ``PreTrainedModel`` whose configuration has ``share_embeddings`` and ``source_vocab_size``.
    """

    config: Any

    def _resize_token_embeddings(
        self: Any, new_num_tokens: int, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        """Resize the target's embedding, the output layer, and the source's embedding unless it has its own size."""
        if not self.config.is_encoder_decoder or self.config.share_embeddings:
            return PreTrainedModel._resize_token_embeddings(self, new_num_tokens, pad_to_multiple_of, mean_resizing)
        encoder, decoder = self.get_encoder(), self.get_decoder()
        for stack in (decoder, encoder) if self.config.source_vocab_size is None else (decoder,):
            stack.embed_tokens = self._get_resized_embeddings(
                stack.embed_tokens, new_num_tokens, pad_to_multiple_of, mean_resizing
            )
        head = self.get_output_embeddings()
        if head is not None:
            size = decoder.embed_tokens.num_embeddings
            self.set_output_embeddings(self._get_resized_lm_head(head, size, mean_resizing=mean_resizing))
        return decoder.embed_tokens

    def resize_source_token_embeddings(self: Any, new_num_tokens: int) -> nn.Embedding:
        """Resize the embedding of a source with its own vocabulary.

        Raises:
            ValueError: source and target share one embedding.
        """
        if not self.config.is_encoder_decoder or self.config.share_embeddings:
            raise ValueError("Source and target share one embedding; call resize_token_embeddings.")
        encoder = self.get_encoder()
        encoder.embed_tokens = self._get_resized_embeddings(encoder.embed_tokens, new_num_tokens)
        self.config.source_vocab_size = encoder.embed_tokens.num_embeddings
        return encoder.embed_tokens


class PaddedBeams:
    """Mixin for ``GenerationMixin`` that pads the hypotheses of a beam search with the padding token."""

    def _beam_search(self, input_ids: torch.Tensor, *args: Any, generation_config: Any, **kwargs: Any) -> Any:
        outputs = super()._beam_search(input_ids, *args, generation_config=generation_config, **kwargs)  # type: ignore[misc]
        self.pad_beams(
            outputs if isinstance(outputs, torch.Tensor) else outputs.sequences, input_ids, generation_config
        )
        return outputs

    def pad_beams(self, sequences: torch.Tensor, input_ids: torch.Tensor, generation_config: Any) -> None:
        """Pad with the padding token: transformers takes an id of 0 for none, and pads with the end token."""
        written = sequences[:, input_ids.shape[1] :]
        if (ends := generation_config._eos_token_tensor) is not None:
            ended = torch.isin(written[:, :-1], ends).cumsum(1) > 0
            written[:, 1:].masked_fill_(ended, generation_config._pad_token_tensor)


def shift_right(labels: torch.Tensor, config: PreTrainedConfig) -> torch.Tensor:
    """Return the decoder's inputs (B, T): the start token, then the labels without the last.

    Args:
        labels: (B, T) ids; -100 becomes the padding id.
        config: configuration with ``decoder_start_token_id`` and ``pad_token_id``.

    Raises:
        ValueError: one of these ids is null.
    """
    start, padding = config.decoder_start_token_id, config.pad_token_id
    if start is None or padding is None:
        name = "decoder_start_token_id" if start is None else "pad_token_id"
        raise ValueError(f"{name} is null in the configuration; write the id, or pass decoder_input_ids.")
    shifted = nn.functional.pad(labels[:, :-1], (1, 0), value=start)
    return shifted.masked_fill(shifted == -100, padding)

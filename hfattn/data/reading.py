"""Whether a pretrained model can read what it is to be given."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import max_positions


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Make sure that a tokenizer knows where its tokens stand in a text, and that its model reads so many of them.

    Raises:
        UserError: it does not.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not say where its tokens stand in the text; write a model.name with a "
            "tokenizer.json."
        )
    _check_length(max_length, tokenizer.model_max_length)


def check_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Make sure that a model has a position for each token and an embedding for each entry of the vocabulary.

    Raises:
        UserError: it has not.
    """
    positions = max_positions(model.config)
    if positions is not None:
        _check_length(max_length, positions)
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model embeds {embeddings}; write the model.name of a "
            "model with a tokenizer of its own."
        )


def _check_length(max_length: int, longest: int) -> None:
    if max_length > longest:
        raise UserError(f"data.max_length is {max_length}, and this model reads {longest} tokens; write at most that.")


__all__ = ["check_model", "check_tokenizer"]

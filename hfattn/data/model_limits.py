"""Check that a pretrained model and its tokenizer can read inputs of a given length."""

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import max_positions


def check_tokenizer(tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Check that a tokenizer returns character offsets, and that its model reads inputs of ``max_length`` tokens.

    Raises:
        UserError: one of the two does not hold.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not return the positions of its tokens in the text; write a model.name "
            "with a tokenizer.json."
        )
    _check_length(max_length, tokenizer.model_max_length)


def check_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Check that a model has ``max_length`` positions, and an embedding for each entry of the vocabulary.

    Raises:
        UserError: one of the two does not hold.
    """
    positions = max_positions(model.config)
    if positions is not None:
        _check_length(max_length, positions)
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model has {embeddings} embeddings; write the "
            "model.name of a model with its own tokenizer."
        )


def _check_length(max_length: int, longest: int) -> None:
    if max_length > longest:
        raise UserError(f"data.max_length is {max_length}; this model reads at most {longest} tokens.")

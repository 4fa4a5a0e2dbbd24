"""Check that a pretrained model and its tokenizer can read inputs of a given length."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import max_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def prepare_positions(tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Prepare a tokenizer for a task that finds its predictions by their positions in a row.

    Its padding is set to the right, where it moves no position; that of a language model's tokenizer is on the left.

    Raises:
        UserError: the tokenizer returns no offsets, or the model cannot read such inputs.
    """
    if not tokenizer.is_fast:
        raise UserError(
            f"{type(tokenizer).__name__} does not return the positions of its tokens in the text; write a model.name "
            "with a tokenizer.json."
        )
    check_length(tokenizer.model_max_length, max_length)
    tokenizer.padding_side = "right"


def check_model(
    model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase, max_length: int, option: str = "data.max_length"
) -> None:
    """Check that a model has ``max_length`` positions, and an embedding for each entry of the vocabulary.

    Args:
        option: the field that sets ``max_length``, for messages.

    Raises:
        UserError: the model has fewer positions or fewer embeddings.
    """
    check_positions(model.config, max_length, option)
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model has {embeddings} embeddings; write the "
            "model.name of a model with its own tokenizer."
        )


def check_positions(config: PreTrainedConfig, max_length: int, option: str = "data.max_length") -> None:
    """Check that a model with this configuration has ``max_length`` positions.

    Raises:
        UserError: the model has fewer positions.
    """
    positions = max_positions(config)
    if positions is not None:
        check_length(positions, max_length, option)


def check_length(longest: int, max_length: int, option: str = "data.max_length") -> None:
    """Check that inputs of ``max_length`` tokens are not longer than the ``longest`` that a model can read.

    Raises:
        UserError: ``max_length`` is above ``longest``.
    """
    if max_length > longest:
        raise UserError(f"{option} is {max_length}; this model reads at most {longest} tokens.")


@torch.inference_mode()
def check_causal(model: "PreTrainedModel", name: str, new_weights: Sequence[str] = ()) -> None:
    """Check that the model's predictions depend on earlier tokens only, and that it has learned to predict.

    Args:
        model: the model.
        name: its name, for the message.
        new_weights: names of the weights that its files do not have.

    Raises:
        UserError: the model is an encoder, whose predictions would depend on the tokens to predict, or it has another
            head, such as that of a classifier.
    """
    ids = torch.zeros(2, 8, dtype=torch.long)
    ids[1, -1] = 1
    first, second = model.eval()(ids).logits[:, :-1]
    if not torch.allclose(first, second, atol=1e-4):
        raise UserError(
            f"{name} is an encoder such as BERT, which sees the token that it should predict; write the name of a "
            "causal language model, such as openai-community/gpt2."
        )
    if new_weights:
        raise UserError(
            f"{name} has no weights {new_weights[0]}, so it is not a language model; give one, such as the model that "
            "it was fine-tuned from."
        )


@torch.inference_mode()
def check_packing(model: "PreTrainedModel", name: str) -> None:
    """Check that a model keeps the examples apart that are packed into one row.

    Raises:
        UserError: the model takes no positions, or what it predicts in one example depends on the one before it.
    """
    one, two = torch.tensor([[0, 1, 2]]), torch.tensor([[2, 1, 0, 1]])
    positions = torch.tensor([[0, 1, 2, 0, 1, 2, 3]])
    model.eval()
    try:
        packed = model(torch.cat([one, two], 1), position_ids=positions, use_cache=False).logits
    except TypeError:  # a recurrent network has no positions
        apart = False
    else:
        alone = torch.cat([model(ids, use_cache=False).logits for ids in (one, two)], 1)
        apart = bool((packed - alone).abs().max() < 1e-4 * alone.std())
    if not apart:
        raise UserError(f"{name} does not keep examples apart that are packed into one row; write data.packing: false.")

"""The loss of a language model beside that of a task (Radford et al. 2018, section 3.2).

Shapes: W sequences, S tokens, H width, V vocabulary size.
"""

from typing import Any

import torch
from torch.nn import functional
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError


def language_model_nats(
    hidden_states: torch.Tensor,
    embeddings: torch.Tensor,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean negative log-likelihood of the tokens of each sequence, (W,), in nats.

    A token is predicted by softmax(h W_e^T), with h of the token before (eq. 2); the first one is not predicted.

    Args:
        hidden_states: (W, S, H) outputs of a causal model.
        embeddings: (V, H) its input embeddings W_e.
        input_ids: (W, S).
        attention_mask: (W, S), 0 at padding, which is on the right.
    """
    logits = (hidden_states[:, :-1] @ embeddings.T).float()
    nats = functional.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none")  # (W, S - 1)
    real = torch.ones_like(nats) if attention_mask is None else attention_mask[:, 1:].to(nats.dtype)
    return (nats * real).sum(1) / real.sum(1).clamp(min=1)


def add_embeddings(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> range:
    """Add the embeddings of the tokens that a tokenizer has and its model lacks, and return these tokens."""
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) <= known:
        return range(0)
    model.resize_token_embeddings(len(tokenizer))
    return range(known, len(tokenizer))


@torch.inference_mode()
def check_language_model_weight(weight: float, model: PreTrainedModel) -> None:
    """Check that a classifier also predicts tokens, for the loss of a language model beside that of the task.

    Args:
        weight: λ; 0 needs nothing.
        model: the classifier.

    Raises:
        UserError: its outputs depend on later tokens, or its output layer is not its embedding.
    """
    if weight == 0:
        return
    ids = torch.zeros(2, 8, dtype=torch.long, device=model.device)
    ids[1, -1] = 1
    states = model.eval()(input_ids=ids, output_hidden_states=True).hidden_states[-1][:, :-1]
    if not torch.allclose(states[0], states[1], atol=1e-4):
        raise UserError(
            f"language_model_weight is for causal models, and a {model.config.model_type} sees the tokens that it "
            "should predict; write 0."
        )
    if not model.config.tie_word_embeddings or model.get_input_embeddings().embedding_dim != states.shape[-1]:
        raise UserError(
            "language_model_weight predicts tokens by the embedding, and this model has another output layer; write 0, "
            "or the model.name of a model with tie_word_embeddings: true."
        )


def language_model_losses(model: Any, outputs: Any, inputs: dict[str, Any]) -> torch.Tensor:
    """Return ``language_model_nats`` of the sequences of a batch, from the outputs of an unwrapped classifier."""
    embeddings = model.get_input_embeddings().weight
    return language_model_nats(outputs.hidden_states[-1], embeddings, inputs["input_ids"], inputs.get("attention_mask"))

"""The loss of a language model beside that of a task (Radford et al. 2018, section 3.2).

Shapes: W sequences (windows of texts), S tokens, H width, V vocabulary size.
"""

from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerBase

from ..data import mean_of_windows
from ..errors import UserError
from ..metrics.language_model import IGNORED
from .chunked_loss import has_plain_logits, summed_nats
from .fine_tuning import FineTuningTrainer


def language_model_nats(
    hidden_states: torch.Tensor,
    embeddings: torch.Tensor,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the mean negative log-likelihood of the tokens of each sequence, (W,), in nats.

    A token is predicted by softmax(h W_e^T), with h of the token before (eq. 2). The first one is not predicted, nor
    is padding.

    Args:
        hidden_states: (W, S, H) outputs of a causal model.
        embeddings: (V, H) its input embeddings W_e.
        input_ids: (W, S).
        attention_mask: (W, S), 0 at padding.
    """
    logits = (hidden_states[:, :-1] @ embeddings.T).float()
    nats = functional.cross_entropy(logits.transpose(1, 2), input_ids[:, 1:], reduction="none")  # (W, S - 1)
    real = torch.ones_like(nats) if attention_mask is None else _predicted(attention_mask).to(nats.dtype)
    return (nats * real).sum(1) / real.sum(1).clamp(min=1)


def _predicted(attention_mask: torch.Tensor) -> torch.Tensor:
    """Return which tokens (W, S - 1) after the first position are predicted: those that follow another token."""
    return attention_mask[:, 1:] * attention_mask[:, :-1]


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
        UserError: its outputs depend on later tokens, or its language model does not predict by softmax(h W_e^T).
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
    if not model.config.tie_word_embeddings or not _predicts_by_embedding(model, states.shape[-1]):
        raise UserError(
            "language_model_weight predicts tokens by the product of hidden states and embeddings, and the language "
            "model of this body does not; write 0, or the model.name of a model with tie_word_embeddings: true."
        )


def _predicts_by_embedding(model: PreTrainedModel, width: int) -> bool:
    """Return whether the language model of a classifier's body has no weights beside those of the embedding, and no
    factor or bound of the logits.

    Args:
        model: the classifier.
        width: H, that of its hidden states.
    """
    embeddings: torch.Tensor = model.get_input_embeddings().weight
    if embeddings.shape[-1] != width:
        return False
    try:
        with torch.device("meta"):
            language_model = AutoModelForCausalLM.from_config(model.config)
    except ValueError:  # the model has no such class
        return False
    setattr(language_model, language_model.base_model_prefix, model.base_model)
    language_model.get_output_embeddings().weight = nn.Parameter(embeddings.detach(), requires_grad=False)
    return not any(weight.is_meta for weight in language_model.parameters()) and has_plain_logits(language_model)


class AuxiliaryTrainer(FineTuningTrainer):
    """A ``FineTuningTrainer`` that can add the loss of a language model on the same texts.

    Args:
        language_model_weight: λ of L3 = L2 + λ L1 (Radford et al. 2018, eq. 5): in training, the mean negative
            log-likelihood of the tokens of an example, the mean over its windows, is added λ times to its loss.

    Raises:
        UserError: λ is not 0, and the model cannot predict tokens, or its body is not trained.
    """

    def __init__(self, *args: Any, language_model_weight: float = 0.0, **kwargs: Any) -> None:
        if language_model_weight and kwargs["tuning"].method == "head_only":
            raise UserError(
                "language_model_weight trains the body by the tokens that it predicts, which tuning.method head_only "
                "leaves as it is; write 0, or tuning.method full or lora."
            )
        check_language_model_weight(language_model_weight, kwargs["loaded"].model)
        super().__init__(*args, **kwargs)
        self.language_model_weight = language_model_weight

    def read(self, model: Any, inputs: dict[str, Any]) -> tuple[Any, torch.Tensor | float]:
        """Return the outputs of a classifier, and λ L1 summed over the examples of a batch; 0 in evaluation."""
        given = {name: tensor for name, tensor in inputs.items() if name not in ("labels", "windows")}
        if not (model.training and self.language_model_weight):
            return model(**given), 0.0
        outputs = model(**given, output_hidden_states=True)
        embedding = self.accelerator.unwrap_model(model).get_input_embeddings()
        states, ids, mask, windows = (
            outputs.hidden_states[-1], given["input_ids"], given.get("attention_mask"), inputs["windows"]
        )  # fmt: skip
        if self.chunked_loss and self.args.device.type == "cpu":
            labels = ids[:, 1:]  # (W, S - 1)
            if mask is not None:
                labels = labels.masked_fill(_predicted(mask) == 0, IGNORED)
            tokens = labels.ne(IGNORED).sum(1).clamp(min=1)  # (W,)
            importance = 1 / (tokens * windows.repeat_interleave(windows))
            nats = summed_nats(states[:, :-1], embedding, labels, importance=importance[:, None].expand_as(labels))
        else:
            nats = mean_of_windows(language_model_nats(states, embedding.weight, ids, mask)[:, None], windows).sum()
        return outputs, self.language_model_weight * nats

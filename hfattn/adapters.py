"""Arguments for configurations of PEFT, which has default targets only for the models that it knows by name.

    LoraConfig(r=8, **lora_targets(model))

The module does not import PEFT.
"""

import re
from typing import Any

from transformers import PreTrainedModel

from .errors import UserError


def lora_targets(model: PreTrainedModel) -> dict[str, Any]:
    """Return arguments of ``LoraConfig``: the weights with low-rank updates, and the head that is trained.

    These are W^Q and W^V of the attentions of a Transformer (Hu et al. 2022, section 4.2), and the matrices of all
    recurrent layers, to which PEFT adds updates as ``target_parameters``. For a classifier or a tagger, leave out
    ``task_type``: with "SEQ_CLS", PEFT copies every module named "score", such as that of an attention.

    Raises:
        UserError: the model has neither.
    """
    names = [name for name, _ in model.named_parameters()]
    projections = sorted({name.split(".")[-2] for name in names if re.search(r"\.[qv]_proj\.weight$", name)})
    recurrent = sorted({".".join(name.split(".")[-2:]) for name in names if re.search(r"\.rnn\.weight_\w+$", name)})
    if not projections and not recurrent:
        raise _unknown(model, "LoraConfig")
    parameters = {"target_parameters": recurrent} if recurrent else {}
    return {"target_modules": projections, **parameters, **_head(names)}


def ia3_targets(model: PreTrainedModel) -> dict[str, Any]:
    """Return arguments of ``IA3Config``: keys, values and the feed-forward networks (Liu et al. 2022, section 3.3).

    ``task_type`` is as in ``lora_targets``.

    Raises:
        UserError: the model is recurrent; IA3 scales the outputs of linear layers.
    """
    names = [name for name, _ in model.named_parameters()]
    if any(re.search(r"\.rnn\.weight_\w+$", name) for name in names):
        raise UserError("IA3 scales outputs of linear layers, and a recurrent layer has none; use lora_targets.")
    if not any(name.endswith(".k_proj.weight") for name in names):
        raise _unknown(model, "IA3Config")
    return {"target_modules": ["k_proj", "v_proj", "fc2"], "feedforward_modules": ["fc2"], **_head(names)}


def prompt_sizes(model: PreTrainedModel) -> dict[str, int]:
    """Return arguments of ``PromptTuningConfig``, which reads the sizes of attention from a configuration.

    A learned prompt consists of vectors of the width of the embeddings, for any model; nothing else is needed.
    """
    return {"token_dim": model.get_input_embeddings().embedding_dim, "num_layers": 1, "num_attention_heads": 1}


def _head(names: list[str]) -> dict[str, list[str]]:
    return {"modules_to_save": ["classifier"]} if "classifier.weight" in names else {}


def _unknown(model: PreTrainedModel, configuration: str) -> UserError:
    return UserError(
        f"{type(model).__name__} has no layers of hfattn; write target_modules of {configuration} for this model."
    )


__all__ = ["ia3_targets", "lora_targets", "prompt_sizes"]

"""The values of hidden units of a recurrent language model over a text (Karpathy et al. 2016; Radford et al. 2017).

Shapes: B batch, T characters, U units.
"""

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..models.cache_recurrent import RecurrentCache
from .scored import ScoredText


@dataclass(frozen=True, eq=False)
class HiddenUnits:
    """The state of each unit after each token of a text.

    Args:
        tokens: the T tokens.
        values: (T, U), between -1 and 1; the units of all layers are concatenated, U = layers * hidden size.
    """

    tokens: tuple[str, ...]
    values: np.ndarray


def unit_states(cache: RecurrentCache) -> np.ndarray:
    """Return the units (B, U) of a state, in float32, between -1 and 1.

    For an LSTM, they are tanh(c) (Radford et al. 2017, section 3.2); for a GRU and an Elman network, h.
    """
    states = [layer.state for layer in cache.layers]
    units = [state[1].tanh() if len(state) == 2 else state[0] for state in states]
    return torch.cat(units, dim=-1).float().cpu().numpy()


@torch.inference_mode()
def hidden_units(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> HiddenUnits:
    """Return the hidden units after each token of a text.

    Args:
        model: a char_rnn, in evaluation mode.
        tokenizer: its tokenizer.
        text: text with at least one token.

    Raises:
        ValueError: if the model is not a char_rnn, or the text has no token.
    """
    if model.config.model_type != "char_rnn":
        raise ValueError(
            f"A {model.config.model_type} has no hidden units that it carries from token to token; use a char_rnn."
        )
    ids = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)  # (1, T)
    if ids.shape[1] == 0:
        raise ValueError("The text is empty; give at least one character.")
    rows, cache = [], None
    for t in range(ids.shape[1]):
        cache = model.base_model(ids[:, t : t + 1], past_key_values=cache, use_cache=True).past_key_values
        rows.append(unit_states(cache)[0])
    return HiddenUnits(tuple(tokenizer.convert_ids_to_tokens(ids[0].tolist())), np.stack(rows))


def strongest_unit(units: HiddenUnits) -> int:
    """Return the unit whose value varies most along the text.

    It may have no meaning; ``hfattn.probe`` finds the unit that best separates two classes of texts.
    """
    return int(units.values.var(axis=0).argmax())


def score_unit(units: HiddenUnits, unit: int) -> ScoredText:
    """Return the text with the values of one unit as scores (Radford et al. 2017, figure 5).

    Args:
        units: the states of all units over a text.
        unit: index among the units of all layers, as in ``hfattn.probe``.

    Raises:
        ValueError: if there is no such unit.
    """
    number = units.values.shape[1]
    if not 0 <= unit < number:
        raise ValueError(f"unit is {unit}; the model has {number}: write 0 to {number - 1}.")
    return ScoredText(units.tokens, torch.from_numpy(units.values[:, unit].copy()), f"unit {unit}")

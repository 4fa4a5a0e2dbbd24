"""What the hidden units of a recurrent language model do over a text (Karpathy et al. 2016; Radford et al. 2017).

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
        tokens: T of them.
        values: (T, U), within -1 and 1; the layers' units one beside the other, U = layers * hidden size.
    """

    tokens: tuple[str, ...]
    values: np.ndarray


def unit_states(cache: RecurrentCache) -> np.ndarray:
    """The units (B, U) of a state, in float32.

    Of an LSTM it is tanh(c), which is within -1 and 1 (Radford et al. 2017, section 3.2); of a GRU and an Elman network
    h, which is so already.
    """
    states = [layer.state for layer in cache.layers]
    units = [state[1].tanh() if len(state) == 2 else state[0] for state in states]
    return torch.cat(units, dim=-1).float().cpu().numpy()


@torch.inference_mode()
def hidden_units(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> HiddenUnits:
    """Read a text token by token and note all units after each.

    Args:
        model: a char_rnn, in evaluation mode.
        tokenizer: its tokenizer.
        text: at least one token that the tokenizer knows.

    Raises:
        ValueError: the model is none whose state is that of recurrent layers, or the text has no token.
    """
    if model.config.model_type != "char_rnn":
        raise ValueError(f"A {model.config.model_type} has no hidden units that it carries from token to token.")
    ids = tokenizer(text, return_tensors="pt")["input_ids"].to(model.device)  # (1, T)
    if ids.shape[1] == 0:
        raise ValueError("The text is empty; give at least one character.")
    rows, cache = [], None
    for t in range(ids.shape[1]):
        cache = model.base_model(ids[:, t : t + 1], past_key_values=cache, use_cache=True).past_key_values
        rows.append(unit_states(cache)[0])
    return HiddenUnits(tuple(tokenizer.convert_ids_to_tokens(ids[0].tolist())), np.stack(rows))


def strongest_unit(units: HiddenUnits) -> int:
    """The unit whose value varies most along the text, which need not mean anything; ``hfattn.probe`` finds one that
    does."""
    return int(units.values.var(axis=0).argmax())


def score_unit(units: HiddenUnits, unit: int) -> ScoredText:
    """The text with the values of one unit, as Radford et al. 2017 colour it (figure 5).

    Args:
        units: of a text.
        unit: its number among the units of all layers, as ``hfattn.probe`` counts them.

    Raises:
        ValueError: there is no such unit.
    """
    number = units.values.shape[1]
    if not 0 <= unit < number:
        raise ValueError(f"unit is {unit}; the model has {number}: write 0 to {number - 1}.")
    return ScoredText(units.tokens, torch.from_numpy(units.values[:, unit].copy()), f"unit {unit}")


__all__ = ["HiddenUnits", "hidden_units", "score_unit", "strongest_unit", "unit_states"]

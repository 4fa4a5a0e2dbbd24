"""Base of the patterns that compare no queries with keys by a score of the configuration."""

from .configuration_layers import STANDARD_ATTENTION, LayersConfig
from .modeling_vaswani import TokenMixer, find_pattern


class ScorelessMixer(TokenMixer):
    """Base of the patterns that have neither a score nor a distribution.

    Attributes:
        pattern: its name.

    Raises:
        ValueError: the layer has no norm, or no layer of the stack uses the score, the distribution or the rotary
            positions of the configuration.
    """

    takes_padding_mask = True
    pattern: str

    def __init__(self, config: LayersConfig, layer_idx: int, kind: str, is_causal: bool, gain: float) -> None:
        super().__init__(config, layer_idx, kind, is_causal, gain)
        if config.norm == "none":
            raise ValueError(
                f"The pattern {self.pattern!r} has an output that the factors of T-Fixup (norm: none) do not bound; "
                "write norm: post or pre."
            )
        parts = config.attention_parts("self").items()
        unused = {f"self_attention_{part}": value for part, value in parts if value != STANDARD_ATTENTION[part]}
        if config.positions == "rotary":
            unused["positions"] = "rotary"
        stack, number = ("decoder", config.decoder_layers) if is_causal else ("encoder", config.encoder_layers)
        names = {config.layer_pattern(stack, index)[0] for index in range(number)}
        if unused and all(name != "full" and issubclass(find_pattern(name), ScorelessMixer) for name in names):
            name, value = next(iter(unused.items()))
            raise ValueError(
                f"{name} is {value!r}, and the pattern {self.pattern!r} does not use it; leave {name} out, or write "
                f"'full' for some layers in {stack}_pattern."
            )


__all__: list[str] = []

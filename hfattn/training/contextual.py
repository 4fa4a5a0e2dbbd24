"""Contextual vectors of a frozen encoder beside the embeddings of a model from scratch (ELMo, Peters et al. 2018)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModel, PreTrainedConfig, PreTrainedTokenizerBase

from ..errors import UserError
from ..fields import number
from ..loading import ModelLocation, base_model_name, license_of, load_model, load_tokenizer, max_positions
from ..models.configuration_rnn_encoder import PLACES, RNNEncoderConfig
from ..tokenizers.learned import WORDS
from .config import build_section
from .from_scratch import scratch_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# The special tokens that a task's tokenizer may put between or around texts, and what an encoder reads instead.
_SAME = ("pad_token", "unk_token", "cls_token", "sep_token", "bos_token", "eos_token")


@strict
@dataclass
class ContextualConfig(ModelLocation):
    """The section ``contextual``: a frozen encoder, whose mixed hidden states stand beside the embeddings.

    Attributes:
        name: run folder of a bilm of recipes/causal_lm, or any encoder of ``AutoModel``.
        places: "input", beside the embeddings, and "output", beside the outputs of the last layer.
        layer_norm: normalize each hidden state before they are mixed.
        dropout: dropout probability on the mixture.
        penalty: λ in the penalty λ ||w||² on the numbers w whose softmax gives the shares of the hidden states.
        subwords: read the texts with the encoder's tokenizer, so that it knows all words, instead of the words of the
            section ``tokenizer``, whose vectors are the means over their subwords.
    """

    section: ClassVar[str] = "contextual"

    places: list[str] = field(default_factory=lambda: [PLACES[0]])
    layer_norm: bool = False
    dropout: float | int = number(0.5, least=0, below=1)
    penalty: float | int = number(0.001, least=0)
    subwords: bool = False

    def validate_places(self) -> None:
        if not self.places or len(set(self.places)) < len(self.places) or not {*self.places} <= {*PLACES}:
            raise ValueError(f"places is {self.places}; write [input], [output] or [input, output].")


def contextual_section(config: Any) -> ContextualConfig | None:
    """Return the section ``contextual`` of a recipe; None if it is empty.

    Raises:
        UserError: it does not name an encoder, or has an invalid field.
    """
    if not config.contextual:
        return None
    if "name" not in config.contextual:
        raise UserError("The section contextual needs the contextual.name of an encoder; write it, or remove them all.")
    return build_section(ContextualConfig, config.contextual, "contextual.")


def check_contextual(config: Any, model: PreTrainedConfig) -> None:
    """Check that the model of a recipe, with this configuration, has a place for contextual vectors if they are given.

    Raises:
        UserError: it has none, a field is invalid, or the section ``tokenizer`` is of no use.
    """
    section = contextual_section(config)
    if section is None:
        return
    if model.model_type != RNNEncoderConfig.model_type:
        raise UserError(
            f"contextual is for model.model_type rnn_encoder, and a {model.model_type} has no place for it; remove it."
        )
    if section.subwords and config.tokenizer != type(config.tokenizer)():
        raise UserError(
            "contextual.subwords reads the texts with the encoder's tokenizer; remove the section tokenizer, or write "
            "false."
        )
    if not section.subwords and config.tokenizer.kind not in WORDS:
        raise UserError(
            f"contextual has vectors of words, and tokenizer.kind is {config.tokenizer.kind}; write word, or "
            "contextual.subwords: true for the encoder's subwords."
        )


def subword_tokenizer(config: Any) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of the encoder if ``contextual.subwords`` is set.

    Raises:
        UserError: it cannot be loaded.
    """
    section = contextual_section(config)
    return load_tokenizer(section) if section is not None and section.subwords else None


def contextual_model(
    auto_class: Any, settings: PreTrainedConfig, config: Any, tokenizer: PreTrainedTokenizerBase
) -> "PreTrainedModel":
    """Return a new model, with the encoder of the section ``contextual`` if it is given.

    Args:
        auto_class: Auto class of transformers.
        settings: configuration of the model without the encoder.
        config: configuration of the recipe.
        tokenizer: tokenizer of the model.

    Raises:
        UserError: the encoder cannot be loaded, has code that cannot be saved with the model, or reads too few tokens.
    """
    section = contextual_section(config)
    if section is None:
        return scratch_model(auto_class, settings)
    encoder = load_model(AutoModel, section).model
    if not type(encoder).__module__.startswith(("transformers.", "hfattn.")):
        raise UserError(
            f"{section.name} has code of its own, which would not be saved with the model; write the contextual.name "
            "of a model of transformers or hfattn."
        )
    if encoder.config.is_encoder_decoder:
        raise UserError(f"{section.name} is an encoder-decoder; write the contextual.name of an encoder.")
    encoder.config._name_or_path = base_model_name(section)  # the path of a local folder is not published
    positions = max_positions(encoder.config)
    fields: dict[str, Any] = {
        "contextual_config": encoder.config,
        "contextual_places": section.places,
        "contextual_layer_norm": section.layer_norm,
        "contextual_dropout": section.dropout,
        "contextual_penalty": section.penalty,
    }
    table = None
    if section.subwords:
        longest = config.data.max_length
    else:
        theirs = load_tokenizer(section)
        pieces = pieces_of_tokens(tokenizer, theirs)
        start, end = ends_of_texts(theirs)
        if encoder.config.model_type == "bilm" and theirs.eos_token_id is not None:
            start, end = [theirs.eos_token_id], [theirs.eos_token_id]  # as between the documents that it has read
        table = pad_sequence(
            [torch.tensor(each, dtype=torch.long) for each in pieces], batch_first=True, padding_value=-1
        )
        longest = config.data.max_length + len(start) + len(end)  # if each word has one piece
        fields |= {
            "contextual_pieces": table.shape[1],
            "contextual_start_ids": start,
            "contextual_end_ids": end,
            "contextual_max_length": positions,
        }
    if positions is not None and longest > positions:
        raise UserError(
            f"data.max_length is {config.data.max_length}, and {section.name} reads {positions} tokens at once; write "
            "a smaller one."
        )
    for name, value in fields.items():
        setattr(settings, name, value)
    model = scratch_model(auto_class, settings)
    vectors = model.base_model.contextual
    vectors.encoder.load_state_dict(encoder.state_dict())
    if table is not None:
        vectors.pieces.copy_(table)
    return model


def pieces_of_tokens(ours: PreTrainedTokenizerBase, theirs: PreTrainedTokenizerBase) -> list[list[int]]:
    """Return the pieces of each token of one tokenizer in the vocabulary of another, by the ids of the tokens.

    A token is encoded as a word in a text, after a space if that makes a difference. Padding has no pieces, and
    another special token is that with the same role.

    Args:
        ours: the tokenizer of the tokens, of words.
        theirs: the tokenizer of the pieces.
    """

    def encode(text: str) -> list[int]:
        return list(theirs(text, add_special_tokens=False)["input_ids"])

    space = "" if encode("a b") == encode("a") + encode("b") else " "
    pieces: list[list[int]] = [[] for _ in range(len(ours))]
    roles = {getattr(ours, f"{role}_id"): getattr(theirs, f"{role}_id") for role in _SAME}
    for token, token_id in ours.get_vocab().items():
        if token_id in ours.all_special_ids:
            same = roles.get(token_id)
            pieces[token_id] = [] if same is None or token_id == ours.pad_token_id else [same]
        else:
            pieces[token_id] = encode(f"{space}{token.strip()}")
    return pieces


def ends_of_texts(tokenizer: PreTrainedTokenizerBase) -> tuple[list[int], list[int]]:
    """Return the special tokens that a tokenizer puts before and after a text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    start = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return whole[:start], whole[start + len(plain) :]


def contextual_facts(model: "PreTrainedModel", config: Any) -> dict[str, Any]:
    """Return the encoder and the learned mixtures, for ``results.json``; nothing without an encoder."""
    section = contextual_section(config)
    if section is None:
        return {}
    mixes = model.base_model.contextual.mixes
    return {
        "contextual": {
            "encoder": base_model_name(section),
            "license": license_of(section),
            "model_type": model.config.contextual_config.model_type,
            "subwords": section.subwords,
            "mixtures": {
                place: {
                    "shares": [round(share, 4) for share in mix.shares.tolist()],  # of h_0, h_1, ...
                    "gamma": round(mix.gamma.item(), 4),
                }
                for place, mix in mixes.items()
            },
        }
    }


def mixture_lines(facts: Mapping[str, Any]) -> Sequence[str]:
    """Return the lines of a printed summary about the mixtures in the facts of a model."""
    if "contextual" not in facts:
        return []
    return [
        f"shares of the encoder's states ({place}): "
        + ", ".join(f"h{i} {share:.3f}" for i, share in enumerate(mixture["shares"]))
        + f"; gamma {mixture['gamma']:.3f}"
        for place, mixture in facts["contextual"]["mixtures"].items()
    ]

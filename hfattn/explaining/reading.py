"""The attention of a model that reads a text."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..loading import Translator, check_embedded
from ..models.alignment import AttentionRecord, alignment, layers_without_weights
from ..pipelines import translations


class Translation(NamedTuple):
    """A translation, its log-probability in nats, and its attention to the source."""

    text: str
    score: float
    record: AttentionRecord


def cross_attention(
    name: str,
    translator: Translator,
    text: str,
    num_beams: int | None = None,
    max_new_tokens: int | None = None,
    hypotheses: int = 1,
) -> list[Translation]:
    """Translate a text, and return its best translations with their attention, the best first.

    Args:
        name: name of the model, for messages.
        translator: the model and its tokenizers.
        text: at least one character.
        num_beams, max_new_tokens: None selects the default of the model.
        hypotheses: number of translations; there are at least as many beams.

    Raises:
        UserError: the text cannot be translated, or the model has no attention.
    """
    if hypotheses > 1:
        num_beams = max(num_beams or translator[0].generation_config.num_beams or 1, hypotheses)
    (found,) = translations(*translator, [text], num_beams, max_new_tokens, hypotheses)
    found = found if isinstance(found, list) else [found]
    if found[0]["alignment"] is None:
        raise UserError(f"{name} has no attention; choose a model with attention.")
    return [Translation(each["translation_text"], each["score"], each["alignment"]) for each in found]


@torch.inference_mode()
def attention_to_source(
    translator: Translator, inputs: Mapping[str, torch.Tensor], targets: Sequence[Sequence[int]]
) -> list[AttentionRecord]:
    """Return the attention of given translations of a text, which the model reads in one pass.

    Args:
        translator: a model with cross-attention, and its tokenizers. Its attention becomes eager.
        inputs: ``input_ids`` and ``attention_mask`` (1, S) of the text.
        targets: token ids of each translation, without the start token.
    """
    model, tokenizer, target_tokenizer = translator
    model.set_attn_implementation("eager")
    labels = pad_sequence([torch.tensor(ids) for ids in targets], batch_first=True, padding_value=-100)  # (n, T)
    read = {name: tensor.expand(len(labels), -1) for name, tensor in inputs.items()}
    before = model.prepare_decoder_input_ids_from_labels(labels).to(model.device)
    outputs = model(**read, decoder_input_ids=before, output_attentions=True)
    ids: dict[str, Any] = {**read, "labels": labels, "decoder_attention_mask": labels != -100}
    return [
        alignment(outputs, i, kind="cross", **ids, tokenizer=tokenizer, target_tokenizer=target_tokenizer)
        for i in range(len(labels))
    ]


def instead_of_tokens(config: PreTrainedConfig) -> str | None:
    """Return what an encoder computes with instead of the tokens of a text; None if its positions are tokens."""
    fields = config.to_dict()
    names = {"latents": "latents", "subsampling": "blocks of tokens"}
    return next((name for field, name in names.items() if fields.get(field) is not None), None)


def self_attention(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> AttentionRecord:
    """Return the self-attention, or the attention pooling, of a model or of its encoder.

    Raises:
        UserError: the model has neither, a layer computes no weights, its positions are latents, or the text is
            too long for the model.
    """
    encoded = tokenizer(text, return_tensors="pt", return_attention_mask=True)
    ids, mask = (encoded[name].to(model.device) for name in ("input_ids", "attention_mask"))
    check_embedded(model, ids)
    if (what := instead_of_tokens(model.config)) is not None:
        raise UserError(f"The encoder of {name} computes with {what}, which are not tokens; choose a model without.")
    model.set_attn_implementation("eager")
    reader = model.get_encoder() if model.config.is_encoder_decoder else model
    with torch.inference_mode():
        outputs = reader(input_ids=ids, attention_mask=mask, output_attentions=True)
    if not outputs.get("attentions"):
        if model.config.is_encoder_decoder and model.config.to_dict().get("attention_score"):
            raise UserError(f"{name} has no self-attention; hfattn attend shows its attention to the source.")
        raise UserError(
            f"{name} has no attention; choose a model with attention, or hfattn show gradient for what an answer "
            "depends on."
        )
    if lacking := layers_without_weights(outputs.attentions):
        raise UserError(
            f"The pattern of layer {lacking[0]} of {name} computes no attention weights; choose a model with other "
            "patterns."
        )
    return alignment(outputs, kind="self", tokenizer=tokenizer, input_ids=ids, attention_mask=mask)

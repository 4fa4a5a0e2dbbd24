"""Export a model folder to the formats of other software."""

import json
from pathlib import Path
from typing import Any

from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
)

from .. import models  # noqa: F401  (registers the classes)
from ..errors import UserError
from ..files import new_folder, write_json
from ..loading import ModelLocation, load_image_processor, load_model_config, load_tokenizer, loading_errors
from ..models.pipeline_attn_translation import load_target_tokenizer
from ..models.strict_config import unknown_message
from .to_ctranslate2 import export_ctranslate2
from .to_onnx import export_onnx
from .to_torch import export_torch
from .to_transformers import export_transformers

TARGETS = ("torch", "onnx", "ctranslate2", "transformers")
_CODE = ("auto_map", "custom_pipelines")  # fields that name Python files beside the weights
_AUTO_CLASSES = {
    "ForSequenceClassification": AutoModelForSequenceClassification,
    "ForMaskedLM": AutoModelForMaskedLM,
    "ForImageClassification": AutoModelForImageClassification,
    "ForConditionalGeneration": AutoModelForSeq2SeqLM,
    "ForCausalLM": AutoModelForCausalLM,
    "LMHeadModel": AutoModelForCausalLM,
}


def export(kind: str, folder: Path, output: Path, *, quantization: str | None = None) -> None:
    """Export a model to another format, and check that the result computes the same.

    Args:
        kind: "torch" (weights under the names of char-rnn, nanoGPT or ``torch.nn.Transformer``), "onnx" (classifiers
            of texts, and models of hfattn), "ctranslate2" (``VaswaniForConditionalGeneration``) or "transformers"
            (models with the block of LLaMA, Longformer, ModernBERT, T5 or ViT).
        folder: folder with the model and its tokenizer.
        output: folder to create.
        quantization: for "ctranslate2" only: "float32" (default) or "int8".

    Raises:
        UserError: the folder has no model that can be exported to this format, or the result computes something
            else. In these cases, nothing is written.
    """
    if kind not in TARGETS:
        raise UserError(unknown_message(kind, TARGETS, "a kind of export"))
    if quantization is not None and kind != "ctranslate2":
        raise UserError("--quantization is for ctranslate2 only; remove it.")
    with new_folder(output) as new:
        model, tokenizer = _load(kind, folder)
        try:
            target_tokenizer = load_target_tokenizer(model) if model.config.is_encoder_decoder else None
        except ValueError as error:
            raise UserError(str(error)) from error
        if kind == "torch":
            export_torch(model, tokenizer, target_tokenizer, new)
        elif kind == "onnx":
            export_onnx(model, tokenizer, new)
            _write_config(model, new)
            if tokenizer is not None:
                tokenizer.save_pretrained(new)
        elif kind == "transformers":
            export_transformers(model, tokenizer, new)
        else:
            if tokenizer is None:
                raise UserError(f"{folder} has no tokenizer, which CTranslate2 needs; save it in the model folder.")
            new.rmdir()  # the converter of CTranslate2 creates the folder
            export_ctranslate2(model, tokenizer, target_tokenizer, new, quantization or "float32")


def _write_config(model: PreTrainedModel, folder: Path) -> None:
    """Write the configuration without the names of classes, whose code a graph does not need.

    ``AutoTokenizer`` then loads the tokenizer of the folder without ``trust_remote_code``.
    """
    fields = json.loads(model.config.to_json_string())
    write_json(folder / "config.json", {name: fields[name] for name in fields if name not in _CODE})


def _load(kind: str, folder: Path) -> tuple[PreTrainedModel, Any]:
    """Load a model with the head that it was saved with, and its tokenizer or image processor if there is one."""
    if not (folder / "config.json").is_file() and (folder / "adapter_config.json").is_file():
        raise UserError(
            f"{folder} is an adapter alone, and a whole model can be exported; train it with tuning.merge: true, or "
            "merge it with merge_and_unload of PEFT, save the result with its tokenizer, and export that folder."
        )
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder} is not a model folder: config.json is missing; give the folder of a trained model.")
    location = ModelLocation(name=str(folder))
    config = load_model_config(location)
    with loading_errors(location):
        (architecture,) = config.architectures or [""]
        auto: Any = next((auto for end, auto in _AUTO_CLASSES.items() if architecture.endswith(end)), None)
        if auto is None:
            raise UserError(
                f"{folder} holds a {architecture or 'model without a head'}; give a classifier, a language model or a "
                "translation model."
            )
        model = auto.from_pretrained(folder, config=config, trust_remote_code=False, use_safetensors=True)
    if auto is AutoModelForImageClassification:
        if kind != "transformers":
            raise UserError(f"{folder} is a classifier of images, which can be exported to transformers only.")
        has_processor = (folder / "preprocessor_config.json").is_file()
        return model.eval(), load_image_processor(location) if has_processor else None
    has_tokenizer = any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json"))
    return model.eval(), load_tokenizer(location) if has_tokenizer else None

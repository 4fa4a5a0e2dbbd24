"""Convert a checkpoint of another project to a model folder."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..files import new_folder
from ..loading import save_translator
from ..models.strict_config import unknown_message
from .checkpoint import Checkpoint, Converted
from .from_char_rnn import from_char_rnn
from .from_joeynmt import from_joeynmt
from .from_nanogpt import from_nanogpt
from .from_opennmt import from_opennmt
from .from_torch import from_torch_classifier, from_torch_lm, from_torch_transformer
from .from_transformers import from_transformers
from .record import task_of, write_record
from .weights import read_settings, read_weights

FORMATS: dict[str, Callable[[Checkpoint], Converted]] = {
    "char-rnn": from_char_rnn,
    "nanogpt": from_nanogpt,
    "torch-transformer": from_torch_transformer,
    "torch-lm": from_torch_lm,
    "torch-classifier": from_torch_classifier,
    "joeynmt": from_joeynmt,
    "opennmt": from_opennmt,
    "transformers": from_transformers,
}


def convert(
    kind: str,
    file: Path,
    output: Path,
    *,
    config: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    renames: Mapping[str, str] | None = None,
    vocabulary: Path | None = None,
    target_vocabulary: Path | None = None,
    allow_pt: bool = False,
) -> Converted:
    """Convert a checkpoint of another project to a folder that ``from_pretrained`` loads.

    Args:
        kind: a key of ``FORMATS``.
        file: weights in safetensors format or, with ``allow_pt``, a PyTorch pickle that holds only weights; for
            "transformers", the folder of the model.
        output: folder to create.
        config: configuration file of the other project, in YAML or JSON; by default, ``config.json`` of a folder.
        settings: fields of the new configuration that neither file contains.
        renames: prefixes of weight names in ``file``, and their replacements.
        vocabulary, target_vocabulary: files of tokens in the order of their ids; the second one is needed only if the
            target side has its own vocabulary.
        allow_pt: also read a pickle, with ``torch.load(weights_only=True)``.

    With a vocabulary, the folder has a card and fingerprints, and can be verified and pushed like a run, unless the
    model has no output layer and is to be fine-tuned first.

    Returns:
        The model and tokenizers that were written.

    Raises:
        UserError: a file does not have the format ``kind``, or the model cannot be represented exactly. In these cases,
            nothing is written.
    """
    if kind not in FORMATS:
        raise UserError(unknown_message(kind, FORMATS, "a kind of checkpoint"))
    with new_folder(output) as folder:
        weights = read_weights(file, allow_pt)
        weights.rename(renames or {})
        their_config = file / "config.json" if config is None and file.is_dir() else config
        checkpoint = Checkpoint(
            weights, read_settings(their_config), dict(settings or {}), vocabulary, target_vocabulary
        )
        converted = FORMATS[kind](checkpoint)
        model, tokenizer = converted.model, converted.tokenizer
        if target_vocabulary is not None and not model.config.is_encoder_decoder:
            raise UserError("--target-vocabulary is for translation models only; give one --vocabulary.")
        if model.config.is_encoder_decoder and tokenizer is not None:
            save_translator(folder, model, tokenizer, converted.target_tokenizer)
        else:
            model.save_pretrained(folder)
            for part in (tokenizer, converted.processor):
                if part is not None:
                    part.save_pretrained(folder)
        if tokenizer is not None and task_of(model) is not None:
            files = {
                "": file,
                "--config": config,
                "--vocabulary": vocabulary,
                "--target-vocabulary": target_vocabulary,
                "--output": output,
            }
            words = _command(kind, files, settings or {}, renames or {}, allow_pt)
            write_record(folder, kind, file, converted, words)
    return converted


def _command(
    kind: str, files: Mapping[str, Path | None], settings: Mapping[str, Any], renames: Mapping[str, str], allow_pt: bool
) -> list[str]:
    """Return the arguments of the equivalent ``hfattn convert`` command, with file names instead of local paths.

    Args:
        files: files by command-line option; "" for the checkpoint, which is a positional argument.
    """
    words = [word for option, path in files.items() if path is not None for word in (option, path.name) if word]
    words += [word for name, value in settings.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    words += [word for theirs, ours in renames.items() for word in ("--rename", f"{theirs}={ours}")]
    return ["hfattn", "convert", kind, *words, *(["--allow-pt"] if allow_pt else [])]

"""Recipe configurations: a YAML file, overridden from the command line, checked before anything else happens."""

import argparse
import dataclasses
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import torch
import yaml
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig, TrainingArguments

from ..errors import UserError
from ..models.strict_config import unknown_name_message

Schema = TypeVar("Schema")
STARTED = Path("checkpoints") / "recipe.yaml"  # the configuration that a run was started with


class _Loader(yaml.SafeLoader):
    """YAML whose 1e-3 is a number, as it is everywhere but in YAML 1.1."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regexp) for tag, regexp in resolvers if tag != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:(?:\d+\.\d*|\.\d+)(?:[eE][-+]?\d+)?|\d+[eE][-+]?\d+|\.inf|\.nan)$"),
    list("-+.0123456789"),
)


def load_config(schema: type[Schema], path: str | Path, overrides: list[str] | None = None) -> Schema:
    """Read a recipe's YAML file into its dataclass.

    Args:
        schema: dataclass whose fields are values, dictionaries or dataclasses (sections).
        path: the YAML file.
        overrides: command-line words ``--section.field value``; values are read as YAML.

    Raises:
        UserError: the file is missing or no YAML, or a field is unknown, mistyped or out of range.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"There is no configuration file {path}; hfattn recipes list shows those that exist.")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), _Loader) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path.name} is not valid YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(values, dict):
        raise UserError(
            f"{path.name} is not a mapping of fields; write lines such as 'data:' and below it '  window: 100'."
        )
    for name, value in _parse_overrides(overrides or []):
        _set(values, name, value)
    return _build(schema, values, prefix="")


def _parse_overrides(words: list[str]) -> list[tuple[str, Any]]:
    overrides = []
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise UserError(f"Cannot read {' '.join(words)!r}; override fields as --section.field value.")
    for flag, text in zip(words[::2], words[1::2], strict=True):
        try:
            overrides.append((flag[2:], yaml.load(text, _Loader)))
        except yaml.YAMLError:
            raise UserError(f"The value {text!r} of {flag} is not valid YAML; put it in quotes.") from None
    return overrides


def _set(values: dict[str, Any], dotted: str, value: Any) -> None:
    *sections, name = dotted.split(".")
    for section in sections:
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise UserError(f"{section!r} of --{dotted} is a value, not a section; write --{section} VALUE.")
    values[name] = value


def _build(schema: type[Schema], values: dict[str, Any], prefix: str) -> Schema:
    names = {field.name for field in dataclasses.fields(schema)}  # type: ignore[arg-type]
    hints = get_type_hints(schema)
    arguments = {}
    for name, value in values.items():
        if name not in names:
            raise UserError(unknown_name_message(f"{prefix}{name}", {prefix + known for known in names}, "this recipe"))
        if dataclasses.is_dataclass(hints[name]):
            if not isinstance(value, dict):
                raise UserError(
                    f"{prefix}{name} is a section; write its fields below it, such as {prefix}{name}.FIELD."
                )
            value = _build(hints[name], value, prefix=f"{prefix}{name}.")
        arguments[name] = value
    return checked(schema, arguments, prefix)


def checked(schema: type[Schema], arguments: dict[str, Any], prefix: str = "") -> Schema:
    """Make a strict dataclass or a model configuration, with its complaints as one sentence.

    Raises:
        UserError: what ``schema`` refuses.
    """
    try:
        return schema(**arguments)
    except StrictDataclassError as error:
        # The validator's own message is the cause; what wraps it names functions.
        reason = str(error.__cause__ or error)
        if isinstance(error.__cause__, TypeError):
            reason = f"{reason.removeprefix('Field ')}; write a value of that type."
    except (ValueError, TypeError) as error:
        reason = str(error)
    reason = " ".join(reason.split())
    raise UserError(f"{prefix.rstrip('.')}: {reason}" if prefix else reason)


def model_config(config_class: type[PreTrainedConfig], fields: dict[str, Any], **from_data: Any) -> PreTrainedConfig:
    """Make a model configuration from the ``model`` section and what the data decide (vocabulary size, token ids).

    Raises:
        UserError: the section names what the data decide, or the configuration class refuses a field.
    """
    for name in from_data:
        if name in fields:
            raise UserError(f"model.{name} follows from the data; leave it out.")
    return checked(config_class, {**fields, **from_data}, prefix="model.")


def computes_bfloat16() -> bool:
    """Whether the hardware that training would run on has bfloat16 arithmetic; emulated, it is slower than float32."""
    if torch.cuda.is_available():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


# Fields that TrainingArguments takes as they come, and that only make sense above zero.
_POSITIVE = (
    "learning_rate",
    "num_train_epochs",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "eval_steps",
    "save_steps",
    "logging_steps",
)


def training_arguments(run: Path, fields: dict[str, Any]) -> TrainingArguments:
    """Make the ``TrainingArguments`` of a run from the ``training`` section of its recipe.

    Every field of ``TrainingArguments`` may be written there. What the package relies on has other defaults than in
    transformers: checkpoints go to ``run/checkpoints``, the best one on the validation set is loaded at the end, and
    callbacks (early stopping) are resumed with the rest. ``bf16: auto`` is mixed precision where the hardware computes
    bfloat16, a CPU included.

    Raises:
        UserError: a field is unknown, mistyped or out of range.
    """
    declared = {field.name: field for field in dataclasses.fields(TrainingArguments)}
    if fields.get("bf16") == "auto":
        fields = {**fields, "bf16": computes_bfloat16()}
    for name, value in fields.items():
        if name == "output_dir":
            raise UserError(
                "training.output_dir follows from the run; choose it with --output_dir on the command line."
            )
        if name not in declared:
            raise UserError(
                unknown_name_message(f"training.{name}", {f"training.{n}" for n in declared}, "TrainingArguments")
            )
        default = declared[name].default
        number = (isinstance(default, (int, float)) and not isinstance(default, bool)) or name in _POSITIVE
        if isinstance(default, bool) and not isinstance(value, bool):
            raise UserError(f"training.{name} is {value!r}; write true or false.")
        if number and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise UserError(f"training.{name} is {value!r}; write a number, such as {default}.")
        if isinstance(default, int) and number and isinstance(value, float):
            raise UserError(f"training.{name} is {value}; write a whole number.")
        if name in _POSITIVE and not value > 0:
            raise UserError(f"training.{name} is {value}; write a number above 0.")
    defaults = {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "restore_callback_states_from_checkpoint": True,
        "report_to": ["tensorboard"],
        "logging_nan_inf_filter": False,  # a loss that is not finite stops the run; it is not averaged away
        "remove_unused_columns": False,
        "dataloader_pin_memory": torch.cuda.is_available(),
        "use_cpu": not torch.accelerator.is_available(),  # TrainingArguments asks for it where bf16 is for the CPU
    }
    return checked(
        TrainingArguments, {**defaults, **fields, "output_dir": str(run / "checkpoints")}, prefix="training."
    )


@dataclass(frozen=True)
class RecipeCommand:
    """What every recipe reads from its command line: ``--config``, ``--output_dir``, ``--resume``, and overrides."""

    config: Path
    run: Path
    resume: bool
    overrides: list[str]

    @property
    def _writes(self) -> bool:
        """Whether this process is the one that writes; the others would see what it has already written."""
        return int(os.environ.get("RANK", "0")) == 0

    def check_run(self, config: Any) -> None:
        """Make sure that the run may write to its folder, before anything is read or written.

        Raises:
            UserError: the folder holds a finished run, or anything at all unless ``--resume`` is given; or the run to
                resume was started with a configuration that differs in more than its length.
        """
        if not self._writes:
            return
        if self.run.exists() and not self.run.is_dir():
            raise UserError(f"{self.run} is a file; choose a folder with --output_dir.")
        if (self.run / "results.json").exists():
            raise UserError(f"{self.run} already holds a finished run; choose another folder with --output_dir.")
        started = self.run / STARTED
        if self.resume:
            before = started.read_text(encoding="utf-8") if started.exists() else _dump(config)
            if _without_length(before) != _without_length(_dump(config)):
                raise UserError(
                    f"The run in {self.run} was started with other settings ({started}); resume it with those: only "
                    "training.num_train_epochs and training.max_steps may change."
                )
        elif self.run.is_dir() and any(self.run.iterdir()):
            raise UserError(
                f"{self.run} is not empty; continue its run with --resume, or choose another with --output_dir."
            )

    def claim_run(self, config: Any) -> None:
        """Make the folder and write the whole configuration to it."""
        if self._writes:
            (self.run / STARTED).parent.mkdir(parents=True, exist_ok=True)
            (self.run / STARTED).write_text(_dump(config), encoding="utf-8")


def _dump(config: Any) -> str:
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True)


def _without_length(text: str) -> dict[str, Any]:
    config = yaml.safe_load(text)
    for name in ("num_train_epochs", "max_steps"):
        config["training"].pop(name, None)
    return config


def parse_command(recipe: str, description: str, words: list[str] | None = None) -> RecipeCommand:
    """Read the command line of a recipe; its folder defaults to ``runs/<recipe>-<config>``."""
    parser = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog="Any field of the YAML file can be overridden: --training.learning_rate 1e-3 --model.hidden_size 256",
    )
    parser.add_argument("--config", type=Path, required=True, help="the YAML file to run")
    parser.add_argument("--output_dir", type=Path, help=f"folder of the run (default runs/{recipe}-<config>)")
    parser.add_argument(
        "--resume", action="store_true", help="continue the run in this folder from its last checkpoint"
    )
    known, overrides = parser.parse_known_args(words)
    run = known.output_dir or Path("runs") / f"{recipe}-{known.config.stem}"
    return RecipeCommand(known.config, run, known.resume, overrides)

"""``TrainingArguments`` from the ``training`` section of a recipe, checked field by field.

Their module and what it imports (peft, accelerate, datasets) take seconds to import. It is therefore imported when the
arguments are created; ``checks_alone`` checks the fields of nearly all configurations without it.
"""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ..errors import UserError
from ..fields import LARGEST
from ..models.recurrent_cells import cpu_has_bfloat16
from ..models.strict_config import unknown_message, unknown_name_message
from .config import checked

if TYPE_CHECKING:
    from transformers import TrainingArguments

# Fields that the package sets itself, with the reason or the place to choose instead.
_FIXED = {
    "output_dir": "choose the folder of the run with --output_dir",
    "batch_eval_metrics": "the scores are accumulated batch by batch",
    "prediction_loss_only": "a run always reports its scores",
    "remove_unused_columns": "the batches hold only what the model reads",
    "label_names": "the batches hold only what the model reads",
    "use_cpu": "configure the launcher instead, as recipes/accelerate/cpu.yaml does",
    "dataloader_persistent_workers": "each epoch starts its own workers, which know its number",
    "ignore_data_skip": "a run must resume exactly",
    "train_sampling_strategy": "max_tokens groups examples of similar length",
    "resume_from_checkpoint": "continue a run with --resume",
    **dict.fromkeys(
        (
            "push_to_hub",
            "hub_model_id",
            "hub_token",
            "hub_strategy",
            "hub_private_repo",
            "hub_revision",
            "hub_always_push",
        ),
        "publish a finished run with --push_to, which verifies it first",
    ),
}
_LOWER_IS_BETTER = ("loss", "nats", "bits", "perplexity", "error")
_SEED = (0, LARGEST)
_RANGES: dict[str, tuple[float, float]] = {
    "seed": _SEED,
    "data_seed": _SEED,
    "learning_rate": (0, 1000),  # that of noam is a factor, of about 1
    "num_train_epochs": (0, 1e6),
    "weight_decay": (0, 1000),
    "max_grad_norm": (0, float("inf")),  # inf: only measured
    "label_smoothing_factor": (0, 1),
    "adam_beta1": (0, 0.999999),
    "adam_beta2": (0, 0.999999),
}
_ABOVE_ZERO = (
    "learning_rate",
    "num_train_epochs",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "adam_epsilon",
    "eval_steps",
    "save_steps",
    "logging_steps",
)
# Fields that ``checks_alone`` knows, with their default values.
COMMON_FIELDS: dict[str, Any] = {
    "adam_beta1": 0.9,
    "adam_beta2": 0.999,
    "adam_epsilon": 1e-8,
    "bf16": False,
    "eval_steps": None,
    "gradient_accumulation_steps": 1,
    "label_smoothing_factor": 0.0,
    "learning_rate": 5e-5,
    "logging_steps": 500,
    "max_grad_norm": 1.0,
    "max_steps": -1,
    "metric_for_best_model": None,
    "num_train_epochs": 3.0,
    "per_device_eval_batch_size": 8,
    "per_device_train_batch_size": 8,
    "save_steps": 500,
    "seed": 42,
    "warmup_steps": 0,
    "weight_decay": 0.0,
}
# Values that ``checks_alone`` knows of fields with a few, the default first.
COMMON_VALUES = {
    "eval_strategy": ("steps", "epoch", "no"),
    "save_strategy": ("steps", "epoch", "no", "best"),
    "lr_scheduler_type": ("linear", "constant", "constant_with_warmup", "cosine", "inverse_sqrt", "polynomial"),
}


def trains_on_cpu() -> bool:
    """Return whether training runs on the CPU: there is no GPU, or the launcher selects it (``cpu.yaml``)."""
    from accelerate.utils import parse_flag_from_env

    return parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.accelerator.is_available()


def trains_on_cuda() -> bool:
    """Return whether training runs on a CUDA device."""
    return torch.cuda.is_available() and not trains_on_cpu()


def computes_bfloat16() -> bool:
    """Return whether the hardware has bfloat16 arithmetic; emulated bfloat16 is slower than float32."""
    if trains_on_cuda():
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return cpu_has_bfloat16()


def checks_alone(fields: Mapping[str, Any], more: Mapping[str, Any]) -> bool:
    """Check the fields of the section ``training`` without ``TrainingArguments``.

    Args:
        fields: the fields.
        more: default values of fields that a subclass adds.

    Returns:
        Whether all of them are valid; False leaves the decision to ``TrainingArguments``.

    Raises:
        UserError: a field is mistyped or out of range.
    """
    defaults = {**COMMON_FIELDS, **{name: values[0] for name, values in COMMON_VALUES.items()}, **more}
    if not fields.keys() <= defaults.keys():
        return False
    for name, value in fields.items():
        if (name, value) != ("bf16", "auto"):
            _check(name, value, defaults)
    values = {**defaults, **fields}
    if values["bf16"] is True or not isinstance(values["metric_for_best_model"], str | None):
        return False
    if any(values[name] not in known for name, known in COMMON_VALUES.items()) or values["warmup_steps"] < 0:
        return False
    steps = [values["logging_steps"], values["eval_steps"] or values["logging_steps"], values["save_steps"]]
    if not all(isinstance(each, int) for each in steps):
        return False
    # The best checkpoint is loaded at the end, so each checkpoint needs an evaluation.
    if values["save_strategy"] == "best":
        return True
    same = values["save_strategy"] == values["eval_strategy"]
    return same and (values["save_strategy"] != "steps" or steps[2] % steps[1] == 0)


def training_arguments(
    run: Path, fields: dict[str, Any], arguments_class: "type[TrainingArguments] | None" = None
) -> "TrainingArguments":
    """Create the training arguments of a run from the section ``training`` of its recipe.

    Any field of ``TrainingArguments`` may be written there, except for those that the package sets itself. Some
    defaults differ from transformers: the best checkpoint on the validation set is loaded at the end, and the state of
    callbacks (early stopping) is restored when a run is resumed. ``bf16: auto`` enables mixed precision if the hardware
    has bfloat16 arithmetic, on a CPU as on a GPU. A higher ``metric_for_best_model`` is better, unless its name
    contains loss, nats, bits, perplexity or error. Checkpoints are saved in ``run/checkpoints``.

    Args:
        run: the run folder.
        fields: the section.
        arguments_class: a subclass of ``TrainingArguments``; None: that class itself.

    Raises:
        UserError: a field is unknown, mistyped or out of range.
    """
    from transformers import TrainingArguments
    from transformers.integrations import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

    arguments_class = arguments_class or TrainingArguments
    if fields.get("bf16") == "auto":
        fields = {**fields, "bf16": computes_bfloat16()}
    elif fields.get("bf16") is True and not computes_bfloat16():
        warnings.warn(
            "training.bf16 is true, and this hardware has no bfloat16 arithmetic: torch emulates it, which takes many "
            "times as long as float32. Write bf16: auto.",
            stacklevel=2,
        )
    if fields.get("fp16") is True and not trains_on_cuda():
        raise UserError("training.fp16 is true, and mixed precision with float16 needs a GPU; write bf16: auto.")
    fields_of_class = {field.name: field.default for field in dataclasses.fields(arguments_class)}
    for name, value in fields.items():
        _check(name, value, fields_of_class)
    defaults = {
        "eval_strategy": "steps",
        "save_strategy": "steps",
        "save_total_limit": 2,
        "load_best_model_at_end": True,
        "restore_callback_states_from_checkpoint": True,
        "report_to": ["tensorboard"],
        "project": "hfattn",  # names of trackers
        "run_name": run.name,
        "logging_nan_inf_filter": False,  # a non-finite loss stops the run
        "dataloader_pin_memory": trains_on_cuda(),
    }
    if (metric := fields.get("metric_for_best_model")) is not None:
        defaults["greater_is_better"] = not any(word in str(metric) for word in _LOWER_IS_BETTER)
    decided = {
        "output_dir": str(run / "checkpoints"),
        "batch_eval_metrics": True,
        "remove_unused_columns": False,
        "use_cpu": trains_on_cpu(),  # Accelerate reads the launcher's variable, Trainer does not
    }
    arguments = checked(arguments_class, {**defaults, **fields, **decided}, prefix="training.")
    for tracker in arguments.report_to:
        if tracker not in INTEGRATION_TO_CALLBACK:
            raise UserError(unknown_message(tracker, sorted(INTEGRATION_TO_CALLBACK), "a tracker (training.report_to)"))
        if tracker not in get_available_reporting_integrations():
            package = {"tensorboard": "'hfattn[recipes]'", "trackio": "'hfattn[trackio]'"}.get(tracker, tracker)
            raise UserError(f"training.report_to names {tracker}, which is not installed; run: pip install {package}.")
    return arguments


def _check(name: str, value: Any, defaults: dict[str, Any]) -> None:
    if name in _FIXED:
        raise UserError(f"training.{name} cannot be set by a recipe: {_FIXED[name]}.")
    if name not in defaults:
        known = {f"training.{other}" for other in defaults if other not in _FIXED}
        raise UserError(unknown_name_message(f"training.{name}", known, "TrainingArguments"))
    default = defaults[name]
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise UserError(f"training.{name} is {value!r}; write true or false.")
        return
    if name == "save_total_limit" and value is not None and (type(value) is not int or value < 1):
        raise UserError(f"training.{name} is {value!r}; write a whole number of at least 1, or null.")
    if isinstance(default, (int, float)) or name in _ABOVE_ZERO:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UserError(f"training.{name} is {value!r}; write a number.")
        if isinstance(default, int) and isinstance(value, float):
            raise UserError(f"training.{name} is {value}; write a whole number.")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise UserError(f"training.{name} is {value}; write a number of at most {LARGEST}.")
        if name in _ABOVE_ZERO and not 0 < value < float("inf"):
            raise UserError(f"training.{name} is {value}; write a number above 0.")
    if name in _RANGES and value is not None:
        low, high = _RANGES[name]
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
            raise UserError(f"training.{name} is {value!r}; write a number from {low:g} to {high:g}.")

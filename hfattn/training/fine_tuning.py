"""Fine-tuning of all weights, low-rank updates, or the head alone; lower layers may learn later and more slowly."""

import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import safetensors.torch
import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ..clean_process import OWN_CONFIG
from ..errors import UserError
from ..extras import require
from ..hub_access import model_folder
from ..loading import BaseModel, Loaded, ModelLocation, base_facts, base_model_name, commit_of, load_model, with_adapter
from .trainer import ReliableTrainer, StatefulTrainer
from .tuning_config import TuningConfig, alone_field

ADAPTER = "adapter"  # subfolder of the run folder
_ANSWERS = "QUESTION_ANS"  # of the names that peft has for tasks
_OF_A_HEAD = ("id2label", "label2id", "pad_token_id", "problem_type")  # fields of the configuration of a head
Model = TypeVar("Model", bound=nn.Module)


def is_merged(source: BaseModel, loaded: Loaded, tuning: TuningConfig) -> bool:
    """Return whether the whole model is saved, with low-rank updates merged into its weights.

    Raises:
        UserError: the updates alone are to be saved, and the model has other settings for generation, which programs
            read from the base model, or code of its own.
    """
    if tuning.method != "lora" or model_folder(source.name) is not None:
        return True
    field = alone_field(source, tuning)
    has_code = "auto_map" in loaded.model.config.to_dict()
    if field is not None and loaded.changed:
        raise UserError(
            f"{field} saves updates alone, which have no place for the tokens that end an answer or for the note that "
            "prompts are messages; remove the field, or train on prompts and completions that end with the end token."
        )
    if field is not None and has_code:
        raise UserError(
            f"{field} saves updates alone, and {source.name} has code of its own, which would not be beside them; "
            "remove the field, or choose a model whose code is in transformers."
        )
    return bool(tuning.merge or loaded.changed or has_code)


def tuned(
    loaded: Loaded, tuning: TuningConfig, task_type: str | None = None, new_tokens: Sequence[int] = ()
) -> nn.Module:
    """Prepare a model for one of the methods of tuning.

    Every method trains all weights of the new modules (the head). ``lora`` adds (alpha / r) B A to each linear layer W
    of the body, with A random and B zero at the start (Hu et al. 2021, section 4.1).

    Args:
        loaded: the model and its new weights.
        tuning: the section ``tuning``.
        task_type: peft's name of the task, which is saved with the adapter.
        new_tokens: tokens whose embeddings are new, so that ``lora`` trains them too.

    Returns:
        The model with ``requires_grad`` set; for ``lora``, a ``PeftModel`` around it.

    Raises:
        UserError: no weights would be trained, the embeddings of new tokens would not be, or no layer has a name in
            ``target_modules``.
    """
    model = loaded.model
    if tuning.method == "full":
        return model
    heads = new_modules(loaded)
    if tuning.method == "head_only":
        if new_tokens:
            raise UserError(
                "tuning.method head_only leaves the embeddings of the new tokens at their random values; write full or "
                "lora."
            )
        if not heads:
            raise UserError("tuning.method head_only trains a new head, and this model has a trained one; write full.")
        model.requires_grad_(False)
        for head in heads:
            model.get_submodule(head).requires_grad_(True)
        return model
    output = model.get_output_embeddings()  # T5 has it in its body, tied to the embeddings
    linear = {
        name.split(".")[-1]
        for name, module in model.base_model.named_modules()
        if _is_linear(module) and module is not output
    }
    targets = sorted(linear) if tuning.target_modules is None else tuning.target_modules
    for name in targets:
        if name not in linear:
            raise UserError(
                f"tuning.target_modules has {name!r}; the linear layers of this model are {', '.join(sorted(linear))}."
            )
    if not targets:
        raise UserError("tuning.method lora updates linear layers, and the body of this model has none; write full.")
    require("recipes", "peft")
    from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training

    if getattr(model, "is_quantized", False):
        # The Trainer switches gradient checkpointing on.
        model = prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)

    config = LoraConfig(
        task_type=task_type,
        r=tuning.rank,
        lora_alpha=tuning.alpha,
        lora_dropout=tuning.lora_dropout,
        target_modules=targets,
        exclude_modules="|".join(rf"{re.escape(head)}(\..*)?" for head in heads) or None,
        modules_to_save=heads or (["qa_outputs"] if task_type == _ANSWERS else None),
        trainable_token_indices=_embeddings(model, new_tokens) if new_tokens else None,
        fan_in_fan_out=any(isinstance(module, Conv1D) for module in model.modules()),
    )
    if task_type == _ANSWERS:  # the class of peft for this task does not give the model its token_type_ids
        return PeftModel(model, config)
    return get_peft_model(model, config)


def new_modules(loaded: Loaded) -> list[str]:
    """Return the modules with randomly initialized weights: the head, and the pooler of the body if it is new."""
    modules = set()
    for name in loaded.new_weights:
        first, *rest = name.split(".")
        modules.add(f"{first}.{rest[0]}" if first == loaded.model.base_model_prefix else first)
    return sorted(modules)


def _embeddings(model: PreTrainedModel, tokens: Sequence[int]) -> dict[str, list[int]]:
    """Return the tokens by the name of the embedding, and by that of the output layer if its weights are others."""
    modules: list[nn.Module] = [model.get_input_embeddings()]
    if not model.all_tied_weights_keys and (output := model.get_output_embeddings()) is not None:
        modules.append(output)
    names = {id(module): name.split(".")[-1] for name, module in model.named_modules()}
    return {names[id(module)]: list(tokens) for module in modules}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


def layer_depths(model: PreTrainedModel) -> dict[str, int]:
    """Return the distance of each parameter from the head, in layers.

    The head and everything after the last layer have 0, the last layer 1, the first of n layers n, and what comes
    before it (embeddings) n + 1. An embedding that is tied to the output layer is part of the head.

    Raises:
        UserError: the model has no stack of layers.
    """
    body = model.base_model
    stacks = {name: module for name, module in body.named_modules() if isinstance(module, nn.ModuleList)}
    if not stacks:
        raise UserError(
            "tuning.layer_decay and tuning.gradual_unfreezing need a model with a stack of layers; write 1 and false."
        )
    name = max(stacks, key=lambda each: len(stacks[each]))
    layers = len(stacks[name])
    prefix = "" if body is model else f"{model.base_model_prefix}."
    inside = f"{prefix}{name}."
    depths, behind = {}, False
    output = model.get_output_embeddings()
    for parameter, tensor in model.named_parameters():
        if output is not None and tensor is output.weight:
            depths[parameter] = 0
        elif parameter.startswith(inside):
            behind = True
            depths[parameter] = layers - int(parameter.removeprefix(inside).split(".")[0])
        else:
            depths[parameter] = 0 if behind or not parameter.startswith(prefix) else layers + 1
    return depths


class FineTuningTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for a model prepared by ``tuned``.

    With ``lora``, checkpoints contain the updates and the head. At the end, those of the best checkpoint are merged
    into the weights: before the final scores if they are float32, otherwise by ``whole_model``. If the merged weights
    are saved, the updates are also in ``adapter/`` in the run folder; otherwise the run folder has the updates and the
    head alone, and the configuration in ``config/``.

    Args:
        source: location of the pretrained model, which is saved with the adapter; None for a model from scratch.
        loaded: the model before ``tuned``, and its new weights.
        tuning: the section ``tuning``.
    """

    def __init__(
        self, *args: Any, source: BaseModel | None, loaded: Loaded, tuning: TuningConfig, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        if tuning.gradual_unfreezing and (self.args.world_size > 1 or self.is_fsdp_enabled or self.args.n_gpu > 1):
            raise UserError(
                "tuning.gradual_unfreezing changes which weights have a gradient, which needs one process and "
                "one device; write false, or launch one process."
            )
        self.source, self.tuning = source, tuning
        self._merged = source is None or is_merged(source, loaded, tuning)
        self._class = type(loaded.model)
        self._trained = {name for name, parameter in self.model.named_parameters() if parameter.requires_grad}

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Create the optimizer of ``Trainer``, with ``layer_decay`` between the learning rates of successive layers."""
        optimizer = super().create_optimizer(model)
        decay = self.tuning.layer_decay
        if decay != 1:
            depths = {id(self._parameters()[name]): depth for name, depth in self._depths().items()}
            optimizer.param_groups[:] = [
                {**group, "params": parameters, "lr": group["lr"] * decay**depth}
                for group in optimizer.param_groups
                for depth, parameters in _by_depth(group["params"], depths)
            ]
        return optimizer

    def begin_epoch(self, epoch: int) -> None:
        """Freeze the layers that are further from the head than the number of epochs before this one."""
        super().begin_epoch(epoch)
        if self.tuning.gradual_unfreezing:
            self._unfreeze(epoch)

    def _unfreeze(self, epoch: int) -> None:
        depths, parameters = self._depths(), self._parameters()
        for name in self._trained:
            parameters[name].requires_grad_(depths[name] <= epoch)

    def _parameters(self) -> dict[str, nn.Parameter]:
        return dict(self.model.named_parameters())

    def _depths(self) -> dict[str, int]:
        if self.tuning.method != "lora":
            return layer_depths(self.model)
        # peft puts the updates of a layer inside it and prefixes all names.
        prefix = "base_model.model."
        return {f"{prefix}{name}": depth for name, depth in layer_depths(self.model.get_base_model()).items()}

    def train(self, *args: Any, **kwargs: Any) -> Any:
        output = super().train(*args, **kwargs)
        if self.tuning.gradual_unfreezing:
            epochs, depths = math.ceil(self.state.epoch), self._depths()
            self._unfreeze(epochs - 1)  # so that the parameters that were trained are counted
            needed = 1 + max(depths[name] for name in self._trained)
            if epochs < needed:
                print(
                    f"tuning.gradual_unfreezing needs {needed} epochs to train all layers, and there were {epochs}; "
                    "the others were not trained.",
                    file=sys.stderr,
                    flush=True,
                )
        if self.tuning.method == "lora" and self.is_world_process_zero():
            assert self.source is not None
            for config in self.model.peft_config.values():
                config.base_model_name_or_path = base_model_name(self.source)
                config.revision = commit_of(self.source)
            run = Path(self.args.output_dir).parent
            folder = run / ADAPTER if self._merged else run
            self.model.save_pretrained(folder)
            (folder / "README.md").unlink()  # written by peft, with the local path of the model
        if self._merges_in_place():
            self.model.merge_adapter()
        return output

    def _merges_in_place(self) -> bool:
        """Return whether low-rank updates are merged into the weights before the final scores.

        The scores are then exactly those of the saved weights. Updates beside a weight round otherwise, which changes a
        translation where two tokens have almost the same probability.
        """
        if self.tuning.method != "lora" or self.source is None:
            return False
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        return self.source.dtype == "float32" and self.source.quantization is None and not sharded

    def whole_model(self) -> PreTrainedModel:
        """Return the whole model in float32 and evaluation mode, with the LoRA weights merged. Do not train afterwards.

        The updates of quantized weights are merged into those of the base model, which is loaded again.
        """
        model = super().whole_model()
        if self.source is None or (self.source.dtype == "float32" and self.tuning.method != "lora"):
            return model
        if self.source.quantization is not None:
            location = replace(self.source, dtype="float32", quantization=None)
            fields = {name: getattr(model.config, name) for name in _OF_A_HEAD}
            base = load_model(self._class, location, **fields).model
            return with_adapter(base, ModelLocation(name=str(Path(self.args.output_dir).parent))).eval()
        convert(model, torch.float32)
        if self.tuning.method == "lora":
            model = model.unload() if self._merges_in_place() else model.merge_and_unload()
        if self._merged:  # as save_whole rounds them
            convert(convert(model, getattr(torch, self.source.dtype)), torch.float32)
        return model

    def save_whole(self, model: PreTrainedModel, folder: Path) -> None:
        """Save what ``whole_model`` returned, in ``model.dtype``.

        Low-rank updates are saved already. Beside them stands the head as it is now, which may be calibrated, and, if
        they are alone, the configuration of the whole model.
        """
        if self.tuning.method == "lora":
            _save_head(model, folder / ADAPTER if self._merged else folder)
        if not self._merged:
            model.config.architectures = [type(model).__name__]
            (folder / OWN_CONFIG).mkdir(exist_ok=True)
            model.config.to_json_file(folder / OWN_CONFIG / "config.json")
            return
        dtype = torch.float32 if self.source is None else getattr(torch, self.source.dtype)
        super().save_whole(convert(model, dtype), folder)
        convert(model, torch.float32)


class StatefulFineTuningTrainer(StatefulTrainer, FineTuningTrainer):
    """A ``FineTuningTrainer`` that carries the state of the model from batch to batch."""


def _save_head(model: PreTrainedModel, folder: Path) -> None:
    """Replace the whole modules that are saved with the updates of an adapter by those of the merged model."""
    path, prefix = folder / "adapter_model.safetensors", "base_model.model."
    saved, merged = safetensors.torch.load_file(path), model.state_dict()
    for name, tensor in saved.items():
        new = merged.get(name.removeprefix(prefix))
        if new is not None:
            saved[name] = new.to("cpu", tensor.dtype, copy=True)
    safetensors.torch.save_file(saved, path, {"format": "pt"})


def convert(model: Model, dtype: torch.dtype) -> Model:
    """Convert the parameters of a model in place, and not its buffers, in which positions need float32; return it."""
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def _by_depth(parameters: list[nn.Parameter], depths: Mapping[int, int]) -> Iterator[tuple[int, list[nn.Parameter]]]:
    for depth in sorted({depths[id(parameter)] for parameter in parameters}):
        yield depth, [parameter for parameter in parameters if depths[id(parameter)] == depth]


def tuning_facts(model: nn.Module, loaded: Loaded, tuning: TuningConfig, source: BaseModel | None) -> dict[str, Any]:
    """Return facts about the pretrained model and its trained parts, for ``results.json``.

    Call this function before ``whole_model``.
    """
    named = list(model.named_parameters())
    # The LoRA updates are merged in the end, and the copy of the head replaces the original.
    alone = source is not None and not is_merged(source, loaded, tuning)
    adapter = {"peft_type": "LORA", "r": tuning.rank, "lora_alpha": tuning.alpha} if alone else None
    parameters = sum(_size(tensor) for name, tensor in named if not re.search(r"\.(lora_\w+|original_module)\.", name))
    trained = sum(tensor.numel() for _, tensor in named if tensor.requires_grad)
    return {
        **base_facts(source),
        "revision": None if source is None else source.revision,
        "dtype": "float32" if source is None else source.dtype,
        "quantization": None if source is None else source.quantization,
        "method": tuning.method,
        "adapter": adapter,
        "parameters": parameters,
        "trained_parameters": trained,
        "trained_share": round(trained / parameters, 6),
        "new_weights": loaded.new_weights,
    }


def _size(parameter: nn.Parameter) -> int:
    state = getattr(parameter, "quant_state", None)  # of packed weights, two in a byte
    return parameter.numel() if state is None else state.shape.numel()

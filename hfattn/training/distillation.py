"""Distillation: a small classifier learns what a large one says of each text, beside its label.

B texts of a batch, C classes, W width of the student's vectors, D of the teacher's, n texts of a part.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset
from tqdm.auto import tqdm
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from ..data import (
    EncodedTexts,
    FittedTexts,
    LabelledTexts,
    PermutationSampler,
    WindowCollator,
    mean_of_windows,
    spell_masks,
)
from ..data.fitting import LONG_TEXTS
from ..errors import UserError
from ..files import writing
from ..loading import ModelLocation, base_model_name, load_model, load_tokenizer
from .trainer import ReliableTrainer

PROJECTION = "projection"  # of the student's vectors, while it is trained


@strict
@dataclass
class DistillationConfig:
    """The section ``distillation``: what of the teacher is imitated."""

    alpha: float | int = 0.5  # share of the teacher's classes in the loss; the rest is that of the labels
    temperature: float | int = 2.0  # T, by which the logits of both are divided
    hidden_weight: float | int = 0.0  # of the distance between the teacher's vector of a text and the student's

    @property
    def imitates(self) -> bool:
        """Whether the teacher has a part in the loss."""
        return self.alpha > 0 or self.hidden_weight > 0

    def validate_ranges(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"alpha is {self.alpha}; write a share from 0 (labels alone) to 1 (the teacher alone).")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature is {self.temperature}; write a number above 0, such as 2.")
        if not 0 <= self.hidden_weight < float("inf"):
            raise ValueError(f"hidden_weight is {self.hidden_weight}; write a number of at least 0.")


@strict
@dataclass
class TeacherConfig(ModelLocation):
    """The section ``teacher``: a trained classifier, and how much of a text it reads."""

    section: ClassVar[str] = "teacher"

    max_length: int = 128  # tokens of an input, special ones included
    long: str = "head"  # what it reads of a longer text: head, head_tail, or windows, as in sequence_classification
    overlap: int = 64  # tokens that a window repeats of the one before

    def validate_reading(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"max_length is {self.max_length}; write a whole number of at least 1.")
        if self.long not in LONG_TEXTS:
            raise ValueError(f"long is {self.long!r}; write one of {', '.join(LONG_TEXTS)}.")


# The teacher


@dataclass(frozen=True)
class TeacherOutputs:
    """What a teacher says of n texts: logits (n, C) in the order of the data's classes, and vectors (n, D) or None."""

    logits: np.ndarray
    vectors: np.ndarray | None

    @property
    def width(self) -> int | None:
        """D, where there are vectors."""
        return None if self.vectors is None else self.vectors.shape[1]


class Teacher:
    """A trained classifier that is imitated.

    Args:
        config: which, and how it reads.
        labels: names of the data's classes, from class 0 on. The teacher's are the same in any order and case, or have
            no names but LABEL_0, LABEL_1, …

    Raises:
        UserError: there is no such model, it has no trained classifier, other classes, or too few positions.
    """

    def __init__(self, config: TeacherConfig, labels: Sequence[str]) -> None:
        self.config = config
        self.tokenizer = load_tokenizer(config)
        loaded = load_model(AutoModelForSequenceClassification, config, pad_token_id=self.tokenizer.pad_token_id)
        self.name = base_model_name(config)
        if loaded.new_weights:
            raise UserError(
                f"{self.name} is no teacher: it has no trained classifier ({', '.join(loaded.new_weights)} would begin "
                "at random); fine-tune it with recipes/sequence_classification, or write another teacher.name."
            )
        self.model: PreTrainedModel = loaded.model.eval().requires_grad_(False)
        names = [self.model.config.id2label[i] for i in range(self.model.config.num_labels)]
        self.order = class_order(names, labels, self.name)
        positions = getattr(self.model.config, "max_position_embeddings", None)
        if positions is not None and config.max_length > positions:
            raise UserError(
                f"teacher.max_length is {config.max_length}, and the teacher reads at most {positions} tokens; write "
                "at most that, and teacher.long: windows to let it read longer texts."
            )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights and of the order of the classes."""
        digest = hashlib.sha256(f"{type(self.model).__name__} {self.order}".encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def fit(self, texts: LabelledTexts) -> FittedTexts:
        """Texts as the teacher reads them: a masked word is its mask, or left out where it has none."""
        spelled = spell_masks(texts, self.tokenizer.mask_token or "")
        config = self.config
        return FittedTexts(
            spelled, self.tokenizer, config.max_length, long=config.long, overlap=config.overlap, section=config.section
        )

    @torch.inference_mode()
    def read(
        self, texts: FittedTexts, rows: int, *, vectors: bool = False, bf16: bool = False, progress: str | None = None
    ) -> TeacherOutputs:
        """Read texts, the longest first.

        Args:
            texts: n of them.
            rows: texts of a batch.
            vectors: also return the last hidden layer at the first position, where that is [CLS], else its mean.
            bf16: compute in mixed precision.
            progress: what is read, for a bar; None shows none.
        """
        device, collate = self.model.device, WindowCollator(self.tokenizer)
        order = np.argsort(-texts.lengths[:, 0], kind="stable")
        logits, pooled = [], []
        for start in tqdm(range(0, len(order), rows), desc=progress, disable=progress is None):
            batch = collate([texts[int(i)] for i in order[start : start + rows]])
            windows = batch.pop("windows").to(device)
            inputs = {name: tensor.to(device) for name, tensor in batch.items() if name != "labels"}
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                outputs = self.model(**inputs, output_hidden_states=vectors)
            logits.append(mean_of_windows(outputs.logits.float(), windows)[:, self.order].cpu())
            if vectors:
                vector = self._pool(outputs.hidden_states[-1].float(), inputs["input_ids"], inputs["attention_mask"])
                pooled.append(mean_of_windows(vector, windows).half().cpu())
        back = np.argsort(order)
        return TeacherOutputs(torch.cat(logits).numpy()[back], torch.cat(pooled).numpy()[back] if vectors else None)

    def _pool(self, hidden_states: torch.Tensor, input_ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """(W, S, D) -> (W, D)."""
        rows, first = torch.arange(len(mask), device=mask.device), mask.long().argmax(-1)  # behind padding on the left
        cls = self.tokenizer.cls_token_id
        if cls is not None and bool(input_ids[rows, first].eq(cls).all()):
            return hidden_states[rows, first]
        weights = mask[..., None].to(hidden_states.dtype)
        return (hidden_states * weights).sum(1) / weights.sum(1)

    def read_once(
        self, texts: FittedTexts, file: Path, rows: int, *, vectors: bool, bf16: bool, progress: str | None
    ) -> TeacherOutputs:
        """``read``, and keep what was said in a safetensors file; where it is there, of the same texts, take it.

        Raises:
            UserError: the disk is full.
        """
        digest = hashlib.sha256(f"{self.fingerprint} {vectors} {bf16}".encode())
        for windows in texts.windows:
            digest.update(json.dumps([window["input_ids"] for window in windows]).encode())
        fingerprint = digest.hexdigest()
        if file.exists():
            with safe_open(file, "np") as kept:
                if kept.metadata()["fingerprint"] == fingerprint:
                    return TeacherOutputs(kept.get_tensor("logits"), kept.get_tensor("vectors") if vectors else None)
        outputs = self.read(texts, rows, vectors=vectors, bf16=bf16, progress=progress)
        tensors = {"logits": outputs.logits} | ({} if outputs.vectors is None else {"vectors": outputs.vectors})
        part = file.with_name(f"{file.name}.part")
        with writing(file.parent):
            file.parent.mkdir(parents=True, exist_ok=True)
            save_file(tensors, part, metadata={"fingerprint": fingerprint})
        part.replace(file)
        return outputs


def class_order(names: Sequence[str], labels: Sequence[str], teacher: str) -> list[int]:
    """Of each class of the data, the number that the teacher has for it.

    Args:
        names: of the teacher's classes.
        labels: of the data's.
        teacher: its name, for the message.

    Raises:
        UserError: the classes are not the same.
    """
    if list(names) == [f"LABEL_{i}" for i in range(len(labels))]:
        return list(range(len(labels)))
    number_of = {name.casefold(): i for i, name in enumerate(names)}
    if len(names) != len(labels) or number_of.keys() != {label.casefold() for label in labels}:
        raise UserError(
            f"The teacher {teacher} has the classes {', '.join(names)}, and the data have {', '.join(labels)}; write "
            "another teacher.name, or data.labels with the teacher's names for the data's classes."
        )
    return [number_of[label.casefold()] for label in labels]


# What the student learns from


class ImitatedTexts(Dataset[dict[str, Any]]):
    """Texts to train on, and what the teacher says of each.

    Beside ``input_ids`` and ``labels``, an example has ``labelled`` (1 or 0), ``teacher_logits`` (C,) and, where the
    teacher gave them, ``teacher_vectors`` (D,).

    Args:
        dataset: the texts; those with labels first.
        labelled: number of these.
        teacher: of all.
    """

    def __init__(self, dataset: EncodedTexts, labelled: int, teacher: TeacherOutputs) -> None:
        self.dataset, self.labelled, self.teacher = dataset, labelled, teacher
        self.lengths = dataset.lengths

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.dataset[index]
        example |= {"labelled": int(index < self.labelled), "teacher_logits": self.teacher.logits[index]}
        if self.teacher.vectors is not None:
            example["teacher_vectors"] = self.teacher.vectors[index]
        return example

    def set_epoch(self, epoch: int) -> None:
        """Draw other segmentations than in other epochs."""
        self.dataset.set_epoch(epoch)

    def sampler(self, seed: int) -> PermutationSampler:
        """The order in which training reads the texts."""
        return PermutationSampler(len(self), seed)


def distillation_losses(
    logits: torch.Tensor,
    teacher_logits: torch.Tensor,
    labels: torch.Tensor,
    labelled: torch.Tensor,
    config: DistillationConfig,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """The loss of each text (B,): alpha T² KL(softmax(teacher / T) ‖ softmax(student / T)) + (1 - alpha) cross-entropy.

    The gradient of the first term falls with 1 / T², which T² makes good (Hinton et al. 2015, section 2). A text
    without a label lacks the second term.

    Args:
        logits: (B, C) of the student.
        teacher_logits: (B, C).
        labels: (B,) classes, of any number where there is no label.
        labelled: (B,) ones, and zeros where there is no label.
        config: alpha and T.
        label_smoothing: of the cross-entropy.
    """
    soft = functional.log_softmax(logits / config.temperature, -1)
    target = functional.log_softmax(teacher_logits / config.temperature, -1)
    imitation = functional.kl_div(soft, target, reduction="none", log_target=True).sum(-1) * config.temperature**2
    right = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
    return config.alpha * imitation + (1 - config.alpha) * (labelled * right)


def vector_distances(projected: torch.Tensor, teacher_vectors: torch.Tensor) -> torch.Tensor:
    """1 - cosine (B,) between vectors (B, D) and the teacher's (Sanh et al. 2019, section 3)."""
    return 1 - functional.cosine_similarity(projected, teacher_vectors, dim=-1)


class DistillationTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for batches of ``ImitatedTexts``; of other batches the loss is the model's own.

    With a ``hidden_weight``, that times 1 - cosine between a linear projection of the student's vector and the
    teacher's is added. The projection is trained and saved in checkpoints with the model, and ``whole_model`` leaves it
    out.

    Args:
        distillation: the loss.
        teacher_width: D, where there is a ``hidden_weight``.

    Raises:
        UserError: there is a ``hidden_weight`` where a process holds only some of the weights.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *args: Any,
        distillation: DistillationConfig,
        teacher_width: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.distillation = distillation
        if teacher_width is not None:
            model.add_module(PROJECTION, nn.Linear(model.classifier.in_features, teacher_width))
        super().__init__(model, *args, **kwargs)
        if teacher_width is not None and (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            raise UserError(
                "distillation.hidden_weight needs the whole weights in each process; write 0 with FSDP and DeepSpeed."
            )

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if "teacher_logits" not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        vectors = inputs.get("teacher_vectors")
        read = {name: inputs[name] for name in ("input_ids", "attention_mask")}
        outputs = model(**read, output_pooled=vectors is not None)
        losses = distillation_losses(
            outputs.logits.float(),
            inputs["teacher_logits"],
            inputs["labels"],
            inputs["labelled"],
            self.distillation,
            self.args.label_smoothing_factor,
        )
        if vectors is not None:
            projection = self.accelerator.unwrap_model(model).get_submodule(PROJECTION)
            distances = vector_distances(projection(outputs.pooler_output.float()), vectors.float())
            losses = losses + self.distillation.hidden_weight * distances
        if num_items_in_batch is None:
            loss = losses.mean()
        else:  # texts in all the batches of a step, on all devices, whose gradients are averaged
            loss = losses.sum() / num_items_in_batch
            if self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def whole_model(self) -> PreTrainedModel:
        """As ``ReliableTrainer.whole_model``, without the projection: it is over."""
        model = super().whole_model()
        if PROJECTION in dict(model.named_children()):
            delattr(model, PROJECTION)
        return model


__all__ = [
    "DistillationConfig",
    "DistillationTrainer",
    "ImitatedTexts",
    "Teacher",
    "TeacherConfig",
    "TeacherOutputs",
    "class_order",
    "distillation_losses",
    "vector_distances",
]

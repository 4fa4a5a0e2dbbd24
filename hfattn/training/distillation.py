"""Distillation: a small classifier (the student) learns from the predictions of a large one (the teacher).

Shapes: B texts of a batch, C classes, D width of the teacher's vectors, n texts of a part, W windows of length S.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import AutoModelForSequenceClassification, PreTrainedModel

from ..data import (
    EncodedTexts,
    LabeledTexts,
    TrainingExamples,
    WindowCollator,
    WindowedTexts,
    mean_of_windows,
    spell_masks,
)
from ..errors import UserError
from ..evaluation import has_several_labels, is_regression
from ..files import writing
from ..loading import base_model_name, load_model, load_tokenizer, max_positions, weights_digest
from ..models.penalties import penalized
from .distillation_config import DistillationConfig, TeacherConfig
from .trainer import ReliableTrainer

PROJECTION = "projection"  # layer from the student's vectors to the teacher's, during training


# The teacher


@dataclass(frozen=True)
class TeacherOutputs:
    """Outputs of a teacher for n texts: logits (n, C) in the order of the data's classes, vectors (n, D) or None."""

    logits: np.ndarray
    vectors: np.ndarray | None

    @property
    def width(self) -> int | None:
        """D, or None if there are no vectors."""
        return None if self.vectors is None else self.vectors.shape[1]


class Teacher:
    """A trained classifier whose predictions the student learns.

    Args:
        config: the model and how it reads texts.
        labels: names of the data's classes, starting with class 0. The teacher must have the same names, in any order
            and case, or default names (LABEL_0, LABEL_1, …).

    Raises:
        UserError: the model is not found, or has an untrained classifier, other classes or too few positions.
    """

    def __init__(self, config: TeacherConfig, labels: Sequence[str]) -> None:
        self.config = config
        self.tokenizer = load_tokenizer(config)
        loaded = load_model(AutoModelForSequenceClassification, config, pad_token_id=self.tokenizer.pad_token_id)
        self.name = base_model_name(config)
        if loaded.new_weights:
            raise UserError(
                f"{self.name} cannot be the teacher: its classifier is untrained ({', '.join(loaded.new_weights)} "
                "are missing); fine-tune it with recipes/classification, or write another teacher.name."
            )
        self.model: PreTrainedModel = loaded.model.eval().requires_grad_(False)
        if is_regression(self.model) or has_several_labels(self.model):
            raise UserError(
                f"{self.name} cannot be the teacher: it does not choose one class for each text; write another "
                "teacher.name."
            )
        names = [self.model.config.id2label[i] for i in range(self.model.config.num_labels)]
        self.order = class_order(names, labels, self.name)
        positions = max_positions(self.model.config)
        if positions is not None and config.max_length > positions:
            raise UserError(
                f"teacher.max_length is {config.max_length}, and the teacher reads at most {positions} tokens; write "
                "at most that, and teacher.too_long: windows for longer texts."
            )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights and the order of the classes."""
        return weights_digest(self.model, f"{type(self.model).__name__} {self.order}")

    def encode(self, texts: LabeledTexts) -> WindowedTexts:
        """Return the teacher's inputs; masked words become its mask token, or are left out if it has none."""
        spelled = spell_masks(texts, self.tokenizer.mask_token or "")
        config = self.config
        return WindowedTexts(
            spelled,
            self.tokenizer,
            config.max_length,
            too_long=config.too_long,
            overlap=config.overlap,
            section=config.section,
        )

    @torch.inference_mode()
    def read(
        self, texts: WindowedTexts, rows: int, *, vectors: bool = False, bf16: bool = False, progress: str | None = None
    ) -> TeacherOutputs:
        """Run the teacher on texts, the longest first.

        Args:
            texts: n texts.
            rows: texts per batch.
            vectors: also return the last hidden state of [CLS], or its mean over positions if there is no [CLS].
            bf16: compute in mixed precision.
            progress: label of a progress bar; if None, no bar is shown.
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
        rows = torch.arange(len(mask), device=mask.device)
        first = mask.long().argmax(-1)  # index of the first token, which is not 0 if padding is on the left
        cls = self.tokenizer.cls_token_id
        if cls is not None and bool(input_ids[rows, first].eq(cls).all()):
            return hidden_states[rows, first]
        weights = mask[..., None].to(hidden_states.dtype)
        return (hidden_states * weights).sum(1) / weights.sum(1)

    def read_once(
        self, texts: WindowedTexts, file: Path, rows: int, *, vectors: bool, bf16: bool, progress: str | None
    ) -> TeacherOutputs:
        """Run ``read``, or load its outputs from a safetensors file that an earlier call wrote for the same texts.

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
    """Return the teacher's class index for each class of the data.

    Args:
        names: names of the teacher's classes.
        labels: names of the data's classes.
        teacher: name of the teacher, for the message.

    Raises:
        UserError: the classes differ.
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


# The student


class ImitatedTexts(TrainingExamples[dict[str, Any]]):
    """Training texts with the teacher's outputs.

    Besides ``input_ids`` and ``labels``, an example has ``labeled`` (1 or 0), ``teacher_logits`` (C,) and, if the
    teacher returned vectors, ``teacher_vectors`` (D,).

    Args:
        dataset: the texts, those with labels first.
        labeled: number of texts with labels.
        teacher: the teacher's outputs for all texts.
    """

    def __init__(self, dataset: EncodedTexts, labeled: int, teacher: TeacherOutputs) -> None:
        self.dataset, self.labeled, self.teacher = dataset, labeled, teacher
        self.lengths, self.is_sampled = dataset.lengths, dataset.is_sampled

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        example = self.dataset[index]
        example |= {"labeled": int(index < self.labeled), "teacher_logits": self.teacher.logits[index]}
        if self.teacher.vectors is not None:
            example["teacher_vectors"] = self.teacher.vectors[index]
        return example

    def set_epoch(self, epoch: int) -> None:
        """Sample new segmentations for an epoch."""
        self.dataset.set_epoch(epoch)


def distillation_losses(
    logits: torch.Tensor,
    teacher_logits: torch.Tensor,
    labels: torch.Tensor,
    labeled: torch.Tensor,
    config: DistillationConfig,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Return the loss of each text (B,).

    It is alpha T² KL(softmax(teacher / T) ‖ softmax(student / T)) + (1 - alpha) cross-entropy(labels). T² compensates
    the 1 / T² scaling of the first term's gradient (Hinton et al. 2015, section 2). For a text without a label, the
    second term is omitted.

    Args:
        logits: (B, C) logits of the student.
        teacher_logits: (B, C) logits of the teacher.
        labels: (B,) classes; ignored for a text without a label.
        labeled: (B,) 1 if the text has a label, else 0.
        config: alpha and T.
        label_smoothing: label smoothing of the cross-entropy.
    """
    soft = functional.log_softmax(logits / config.temperature, -1)
    target = functional.log_softmax(teacher_logits / config.temperature, -1)
    imitation = functional.kl_div(soft, target, reduction="none", log_target=True).sum(-1) * config.temperature**2
    right = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
    return config.alpha * imitation + (1 - config.alpha) * (labeled * right)


def vector_distances(projected: torch.Tensor, teacher_vectors: torch.Tensor) -> torch.Tensor:
    """Return 1 - cosine (B,) between vectors (B, D) and the teacher's (Sanh et al. 2019, section 3)."""
    return 1 - functional.cosine_similarity(projected, teacher_vectors, dim=-1)


class DistillationTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for batches of ``ImitatedTexts``. For other batches, the loss is that of the model.

    If ``hidden_weight`` is above 0, the loss has the additional term ``hidden_weight`` (1 - cosine), where the cosine
    is between a linear projection of the student's vector and the teacher's vector. The projection is trained and saved
    in checkpoints with the model; ``whole_model`` removes it.

    Args:
        distillation: the weights of the loss.
        teacher_width: D, required if ``hidden_weight`` is above 0.

    Raises:
        UserError: ``hidden_weight`` is above 0 and the weights are sharded.
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
            inputs["labeled"],
            self.distillation,
            self.args.label_smoothing_factor,
        )
        if vectors is not None:
            projection = self.accelerator.unwrap_model(model).get_submodule(PROJECTION)
            distances = vector_distances(projection(outputs.pooler_output.float()), vectors.float())
            losses = losses + self.distillation.hidden_weight * distances
        loss = self.mean_over_step(losses.sum(), len(losses), num_items_in_batch)
        loss = penalized(model, loss, 1.0 if num_items_in_batch is None else len(losses) / num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def whole_model(self) -> PreTrainedModel:
        """Return the unsharded model (``ReliableTrainer``) without the projection. Do not train afterwards."""
        model = super().whole_model()
        if PROJECTION in dict(model.named_children()):
            delattr(model, PROJECTION)
        return model

"""Training of image classifiers, with or without a teacher that reads the same augmented images (DeiT).

Shapes: B images of a batch, C classes.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn
from torch.nn import functional
from tqdm.auto import tqdm
from transformers import AutoModelForImageClassification, BaseImageProcessor, PreTrainedModel, TrainingArguments
from transformers.modeling_outputs import ImageClassifierOutput

from ..data import EncodedImages, LabeledImages, TrainingExamples, input_size
from ..data.image_encoding import color_values
from ..errors import UserError
from ..files import writing
from ..loading import base_model_name, load_image_processor, load_model, weights_digest
from ..models.penalties import penalized
from .distillation import class_order
from .fine_tuning import FineTuningTrainer
from .image_distillation_config import ImageDistillationConfig, ImageTeacherConfig


class ImageTeacher(nn.Module):
    """A trained image classifier whose predictions a student learns.

    Args:
        config: where it is.
        labels: names of the data's classes, from class 0 on. The teacher must have the same names, in any order and
            case, or default names (LABEL_0, LABEL_1, …).
        processor: image processor of the student.

    Raises:
        UserError: the model is not found, has an untrained classifier or other classes.
    """

    scale: torch.Tensor
    shift: torch.Tensor

    def __init__(self, config: ImageTeacherConfig, labels: Sequence[str], processor: BaseImageProcessor) -> None:
        super().__init__()
        loaded = load_model(AutoModelForImageClassification, config)
        self.name = base_model_name(config)
        if loaded.new_weights:
            raise UserError(
                f"{self.name} cannot be the teacher: its classifier is untrained ({', '.join(loaded.new_weights)} "
                "are missing); train it with recipes/image_classification, or write another teacher.name."
            )
        self.model: PreTrainedModel = loaded.model.eval().requires_grad_(False)
        names = [self.model.config.id2label[i] for i in range(self.model.config.num_labels)]
        self.order = class_order(names, labels, self.name)
        own = load_image_processor(config)
        self.size = input_size(own)
        # From the pixels of the student to those of the teacher: black becomes black, white becomes white, and each
        # channel of the teacher is that of the student with the same color.
        (black, white, colors), (own_black, own_white, own_colors) = color_values(processor), color_values(own)
        self.channels = colors.argsort()[own_colors].tolist()
        black, white = black[self.channels], white[self.channels]
        scale = (own_white - own_black) / (white - black)
        self.register_buffer("scale", scale[:, None, None])
        self.register_buffer("shift", (own_black - black * scale)[:, None, None])

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the weights and the order of the classes."""
        return weights_digest(self.model, f"{type(self.model).__name__} {self.order}")

    @torch.no_grad()
    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, C) of the data's classes for the student's pixels (B, 3, height, width).

        They are normalized as the teacher's, with its order of the channels, and resized to its size.
        """
        pixels = pixel_values[:, self.channels] * self.scale + self.shift
        if tuple(pixels.shape[2:]) != self.size:
            pixels = functional.interpolate(pixels, self.size, mode="bilinear", align_corners=False, antialias=True)
        logits: torch.Tensor = self.model(pixel_values=pixels).logits.float()[:, self.order]
        return logits


def distilled_losses(
    logits: torch.Tensor,
    imitating: torch.Tensor,
    labels: torch.Tensor,
    teacher_logits: torch.Tensor,
    config: ImageDistillationConfig,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """Return the loss of each image (B,).

    Hard distillation is (1 - α) CE(logits, y) + α CE(imitating, argmax of the teacher) (Touvron et al. 2021, eq. 3);
    soft distillation is (1 - α) CE(logits, y) + α τ² KL(softmax(teacher / τ) ‖ softmax(imitating / τ)) (Hinton et al.
    2015; eq. 2 prints the arguments of KL in the other order).

    Args:
        logits: (B, C) of the class token.
        imitating: (B, C) of the distillation token, or ``logits`` if there is none.
        labels: (B,) classes, or (B, C) shares of the classes.
        teacher_logits: (B, C).
        config: kind, α and τ.
        label_smoothing: label smoothing of the first term.
    """
    right = functional.cross_entropy(logits, labels, reduction="none", label_smoothing=label_smoothing)
    if config.kind == "hard":
        imitation = functional.cross_entropy(imitating, teacher_logits.argmax(-1), reduction="none")
    else:
        student = functional.log_softmax(imitating / config.temperature, -1)
        target = functional.log_softmax(teacher_logits / config.temperature, -1)
        divergence = functional.kl_div(student, target, reduction="none", log_target=True).sum(-1)
        imitation = config.temperature**2 * divergence
    return (1 - config.weight) * right + config.weight * imitation


class ImageClassifierTrainer(FineTuningTrainer):
    """A ``FineTuningTrainer`` for batches of ``ImageCollator``.

    The loss is the cross-entropy with the labels, or with the shares of the classes if images are mixed. Without a
    teacher, it is the mean of both heads of a model with a distillation token.

    Args:
        teacher: a teacher for the training; it is not saved.
        distillation: the section of that name.
    """

    def __init__(
        self,
        *args: Any,
        teacher: ImageTeacher | None = None,
        distillation: ImageDistillationConfig | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = None if teacher is None else teacher.to(self.args.device)
        self.distillation = distillation or ImageDistillationConfig()

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        labels = inputs["labels"]
        if "features" in inputs:
            outputs = ImageClassifierOutput(logits=head_of(self.accelerator.unwrap_model(model))(inputs["features"]))
        else:
            outputs = model(pixel_values=inputs["pixel_values"])
        logits = outputs.logits.float()
        heads = [outputs[name].float() for name in ("cls_logits", "distillation_logits") if name in outputs] or [logits]
        smoothing = self.args.label_smoothing_factor
        if not model.training:
            losses = functional.cross_entropy(logits, labels, reduction="none")
        elif self.teacher is None:
            losses = torch.stack(
                [functional.cross_entropy(each, labels, reduction="none", label_smoothing=smoothing) for each in heads]
            ).mean(0)
        else:
            taught = self.teacher(inputs["pixel_values"])
            losses = distilled_losses(heads[0], heads[-1], labels, taught, self.distillation, smoothing)
        if num_items_in_batch is not None and labels.ndim == 2:
            num_items_in_batch = num_items_in_batch / labels.shape[1]  # the Trainer counts the shares of all classes
        loss = self.mean_over_step(losses.sum(), len(losses), num_items_in_batch)
        loss = penalized(model, loss, 1.0 if num_items_in_batch is None else len(losses) / num_items_in_batch)
        return (loss, ImageClassifierOutput(logits=logits)) if return_outputs else loss


# Features that are computed once


def head_of(model: PreTrainedModel) -> nn.Module:
    """Return the head of a classifier, whose input is a feature vector.

    Raises:
        UserError: the model has several heads.
    """
    outside = [each for name, each in model.named_children() if name != model.base_model_prefix]
    heads = [each for each in outside if any(True for _ in each.parameters())]
    if len(heads) != 1:
        raise UserError(
            f"frozen needs a model with one head, and a {type(model).__name__} has {len(heads)}; write frozen: false."
        )
    return heads[0]


class FrozenFeatures(TrainingExamples[dict[str, Any]]):
    """Images as the input of a classifier's head (``features``) and ``labels``, computed by the frozen model.

    Args:
        images: images without augmentation.
        features: (n, D), from ``head_inputs``.
    """

    def __init__(self, images: LabeledImages, features: torch.Tensor) -> None:
        self.images, self.features = images, features

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"features": self.features[index], "labels": self.images.items[index].label}

    @property
    def labels(self) -> torch.Tensor:
        """The classes (n,)."""
        return torch.tensor([item.label for item in self.images])


@torch.inference_mode()
def head_inputs(
    model: PreTrainedModel, images: EncodedImages, rows: int, file: Path, progress: str | None = None
) -> torch.Tensor:
    """Return the input (n, D) of a classifier's head for each image, or load what an earlier call wrote.

    Args:
        model: a classifier whose head has not been trained yet.
        images: n images without augmentation.
        rows: images of a batch.
        file: where they are kept; those of other images or of another model are computed again.
        progress: label of a progress bar; None: no bar is shown.

    Raises:
        UserError: the model has several heads, or the disk is full.
    """
    fingerprint = weights_digest(model.base_model, f"{images.images.fingerprint} {images.processor.to_json_string()}")
    if file.exists():
        with safetensors.safe_open(file, "pt") as kept:
            if kept.metadata()["fingerprint"] == fingerprint:
                return kept.get_tensor("features").clone()
    found: list[torch.Tensor] = []
    handle = head_of(model).register_forward_pre_hook(lambda module, given: found.append(given[0].float().cpu()))
    try:
        for start in tqdm(range(0, len(images), rows), desc=progress, disable=progress is None):
            batch = [images[i]["pixel_values"] for i in range(start, min(start + rows, len(images)))]
            model(pixel_values=torch.stack(batch).to(model.device))
    finally:
        handle.remove()
    features = torch.cat(found).clone()
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        safetensors.torch.save_file({"features": features}, file, metadata={"fingerprint": fingerprint})
    return features


def features_of_parts(
    model: PreTrainedModel, encoded: Mapping[str, EncodedImages], arguments: TrainingArguments
) -> dict[str, FrozenFeatures]:
    """Return the features of the images of each part; they are kept in the folder of the checkpoints.

    Args:
        model: as in ``head_inputs``; it is moved to the device of the training.
        encoded: the images of each part, without augmentation.
        arguments: the training arguments.
    """
    model.to(arguments.device)
    found = {}
    with arguments.main_process_first(local=False):  # the other processes read its files
        for part, images in encoded.items():
            file = Path(arguments.output_dir) / "features" / f"{part}.safetensors"
            bar = f"features of {part}" if arguments.process_index == 0 else None
            features = head_inputs(model, images, arguments.per_device_eval_batch_size, file, bar)
            found[part] = FrozenFeatures(images.images, features)
    return found


@torch.inference_mode()
def check_reading(model: PreTrainedModel, processor: BaseImageProcessor) -> None:
    """Check that a model reads the images that a processor makes.

    Raises:
        UserError: it does not.
    """
    try:
        model(pixel_values=torch.zeros(1, 3, *input_size(processor), device=model.device))
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"The model does not read images of {input_size(processor)} pixels ({reason}); write another "
            "data.image_size, or null."
        ) from error

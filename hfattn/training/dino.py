"""Self-distillation without labels, DINO: a student learns to predict its own moving average from other views.

Shapes: B images of a batch, G = 2 global views of each, V views with the global ones first, D width of a feature, K
prototypes.
"""

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional
from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput

from ..errors import UserError
from ..metrics.neighbors import neighbor_accuracy
from .dino_config import DinoConfig
from .trainer import ReliableTrainer
from .training_config import AveragingConfig

GLOBAL_VIEWS = 2


class CollapseError(UserError):
    """The outputs of a teacher no longer depend on the image; a command exits with code 1."""

    exit_code = 1


def cosine_schedule(start: float, end: float, progress: float) -> float:
    """Return the value between start and end, by half a cosine, at a progress from 0 to 1."""
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2


def image_features(model: nn.Module, pixel_values: torch.Tensor, feature: str = "class") -> torch.Tensor:
    """Return a feature (B, D) of each image, in float32.

    Args:
        model: a vision model of ``AutoModel``.
        pixel_values: (B, 3, height, width), of any size that its patches divide; learned positions are interpolated.
        feature: "class", the last hidden state of the first position, or "mean", its mean over all positions.
    """
    states = model(pixel_values, interpolate_pos_encoding=True).last_hidden_state
    if states.ndim == 4:  # the feature map of a CNN, (B, D, rows, columns)
        states = states.flatten(2).transpose(1, 2)
    return (states[:, 0] if feature == "class" else states.mean(1)).float()


class DinoHead(nn.Module):
    """Projection head: D -> head_size -> head_size -> bottleneck_size, normalized -> cosines with K directions.

    The last layer is linear, without bias, and its rows are normalized to the norm 1 (Caron et al. 2021, appendix C).
    """

    def __init__(self, width: int, config: DinoConfig) -> None:
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(width, config.head_size),
            nn.GELU(),
            nn.Linear(config.head_size, config.head_size),
            nn.GELU(),
            nn.Linear(config.head_size, config.bottleneck_size),
        )
        self.last = nn.Linear(config.bottleneck_size, config.prototypes, bias=False)
        for layer in self.mlp:
            if not isinstance(layer, nn.Linear):
                continue
            nn.init.trunc_normal_(layer.weight, std=0.02)
            nn.init.zeros_(layer.bias)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """(…, D) -> (…, K)."""
        vectors = functional.normalize(self.mlp(features), dim=-1)
        return functional.linear(vectors, functional.normalize(self.last.weight, dim=-1))


class DinoOutput(NamedTuple):
    """Logits of the student (V, B, K) and of the teacher (G, B, K)."""

    student: torch.Tensor
    teacher: torch.Tensor


class DinoModel(PreTrainedModel):
    """Student, teacher and center in one module, so that a checkpoint has all of them.

    Args:
        backbone: a vision model of ``AutoModel``. The student is this object; the teacher begins as a copy.
        config: the section ``dino``.
    """

    main_input_name = "pixel_values"
    supports_gradient_checkpointing = True
    # The backbone has checked them already.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = _supports_attention_backend = True

    def __init__(self, backbone: PreTrainedModel, config: DinoConfig) -> None:
        super().__init__(backbone.config)
        self.dino = config
        self.student = backbone
        with torch.no_grad():
            pixels = torch.zeros(1, 3, config.local_size, config.local_size)
            try:
                width = image_features(backbone, pixels.to(backbone.device), config.feature).shape[-1]
            except (TypeError, ValueError, RuntimeError) as error:
                raise UserError(
                    f"{type(backbone).__name__} cannot read images of dino.local_size {config.local_size} pixels "
                    f"({' '.join(str(error).split())}); write another size, or another model."
                ) from error
        self.student_head = DinoHead(width, config)
        self.teacher = copy.deepcopy(backbone).requires_grad_(False)
        self.teacher_head = copy.deepcopy(self.student_head).requires_grad_(False)
        self.register_buffer("center", torch.zeros(config.prototypes))
        self.center: torch.Tensor
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave the weights as they are: those of the backbone may be pretrained."""

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Save the weights by the names that they have here, which ``Trainer`` expects when it resumes."""
        super().save_pretrained(*args, save_original_format=False, **kwargs)

    def train(self, mode: bool = True) -> "DinoModel":
        """Set the mode of the student; the teacher has no dropout."""
        super().train(mode)
        self.teacher.eval()
        return self

    def forward(self, global_views: torch.Tensor, local_views: torch.Tensor | None = None) -> DinoOutput:
        """Return the logits of the student for all views, and those of the teacher for the global ones.

        Args:
            global_views: (B, G, 3, height, width).
            local_views: (B, V - G, 3, local height, local width); None: there are none.
        """
        views = global_views.transpose(0, 1).flatten(0, 1)  # (G B, 3, height, width)
        features = image_features(self.student, views, self.dino.feature)
        if local_views is not None:
            local_views = local_views.transpose(0, 1).flatten(0, 1)
            features = torch.cat([features, image_features(self.student, local_views, self.dino.feature)])
        with torch.no_grad():
            targets = self.teacher_head(image_features(self.teacher, views, self.dino.feature))
        rows = len(global_views)
        logits = self.student_head(features)
        return DinoOutput(*(each.float().unflatten(0, (-1, rows)) for each in (logits, targets)))

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """θ_t <- λ θ_t + (1 - λ) θ_s, with λ = ``momentum``."""
        for mean, new in ((self.teacher, self.student), (self.teacher_head, self.student_head)):
            torch._foreach_lerp_(list(mean.parameters()), [each.detach() for each in new.parameters()], 1 - momentum)
            for buffer, value in zip(mean.buffers(), new.buffers(), strict=True):
                buffer.copy_(value)

    def update_center(self, mean: torch.Tensor) -> None:
        """c <- m c + (1 - m) mean of the teacher's logits (K,) (equation 4)."""
        self.center.lerp_(mean, 1 - self.dino.center_momentum)


class DinoLosses(NamedTuple):
    """Of each image (B,): the cross-entropy, the entropy of the teacher H(P_t), and KL(P_t ‖ P_s), in nats."""

    loss: torch.Tensor
    entropy: torch.Tensor
    divergence: torch.Tensor


def dino_losses(
    student: torch.Tensor,
    teacher: torch.Tensor,
    center: torch.Tensor,
    student_temperature: float,
    teacher_temperature: float,
) -> DinoLosses:
    """Return the loss of self-distillation (Caron et al. 2021, equations 1 to 3) and its two parts.

    P_s = softmax(student / τ_s) and P_t = softmax((teacher - center) / τ_t). The loss of an image is the mean of
    -P_t(x) · log P_s(x') over all pairs of a global view x and another view x'. It is H(P_t) + KL(P_t ‖ P_s).

    Args:
        student: (V, B, K) logits of all views, the global ones first.
        teacher: (G, B, K) logits of the global views.
        center: (K,).
        student_temperature, teacher_temperature: τ_s and τ_t.
    """
    targets = functional.log_softmax((teacher - center) / teacher_temperature, -1)
    predicted = functional.log_softmax(student / student_temperature, -1)
    probabilities = targets.exp()
    crossed = -torch.einsum("gbk,vbk->gvb", probabilities, predicted)
    others = 1 - torch.eye(len(teacher), len(student), device=student.device)  # no view predicts itself
    loss = (crossed * others[..., None]).sum((0, 1)) / others.sum()
    entropy = -(probabilities * targets).sum(-1).mean(0)
    return DinoLosses(loss, entropy, loss.detach() - entropy)


class _Updates(TrainerCallback):
    """What happens around an update of the weights: schedules before it, teacher and center after it."""

    def __init__(self, trainer: "DinoTrainer") -> None:
        self.trainer = trainer

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.schedule_weight_decay()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.freeze_last_layer()

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.trainer.update_teacher()


class DinoTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for DINO (Caron et al. 2021), on batches of ``MultiCropImages``.

    - The teacher is the moving average of the student, updated after each optimizer step with λ, which grows from
      ``momentum`` to 1. The center is updated at the same time, with the mean of the teacher's logits over all images
      of the step, on all processes and in all accumulated batches.
    - The weight decay grows from ``training.weight_decay`` to ``final_weight_decay``; biases and norms have none. The
      last layer of the head is not trained in the first ``frozen_epochs``. Gradients are clipped by their norm over all
      weights (``max_grad_norm``), and not for each weight as in the authors' code.
    - Checkpoints have student, teacher, heads and center. ``whole_model`` returns the teacher without its head.
    - The training log has ``teacher_entropy``, H(P_t), and ``divergence``, KL(P_t ‖ P_s), both means since the last
      log. If the entropy reaches 0 or ln K, all images have the same output, and the run stops.
    - Evaluation classifies the images of a part by their nearest neighbors in ``bank``, with features of the teacher.

    Args:
        model: the student; its type is that of the published model.
        dino: the section ``dino``.
        bank: images with labels whose features are compared; None: there are no labels, and evaluation has no scores.

    Raises:
        UserError: there is a section averaging, or the weights are sharded.
    """

    loss_is_scaled_for_ga = True

    def __init__(
        self,
        model: PreTrainedModel,
        *args: Any,
        dino: DinoConfig,
        bank: Any = None,
        averaging: AveragingConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if averaging not in (None, AveragingConfig()):
            raise UserError("The teacher is a moving average of the student already; remove the section averaging.")
        super().__init__(DinoModel(model, dino), *args, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise UserError(
                "The teacher needs the whole weights in each process; launch with recipes/accelerate/ddp.yaml."
            )
        self.dino, self.bank = dino, bank
        self._logits = torch.zeros(dino.prototypes + 1, device=self.args.device)  # sums of the step, and their number
        self._watched = torch.zeros(3, device=self.args.device)  # sums of entropy and divergence, number of images
        self.add_callback(_Updates(self))

    # Schedules

    @property
    def _progress(self) -> float:
        return self.state.global_step / max(1, self.state.max_steps)

    @property
    def teacher_temperature(self) -> float:
        """τ_t of the current step."""
        dino = self.dino
        warm = 1.0 if not dino.temperature_epochs else min(1.0, (self.state.epoch or 0) / dino.temperature_epochs)
        return dino.start_temperature + warm * (dino.teacher_temperature - dino.start_temperature)

    @property
    def momentum(self) -> float:
        """λ of the current step."""
        return cosine_schedule(self.dino.momentum, 1.0, self._progress)

    def schedule_weight_decay(self) -> None:
        """Set the weight decay of the current step."""
        for group in self.optimizer.param_groups:
            if group["weight_decay"] > 0:
                group["weight_decay"] = cosine_schedule(
                    self.args.weight_decay, self.dino.final_weight_decay, self._progress
                )

    def freeze_last_layer(self) -> None:
        """Keep the last layer of the head unchanged in the current step, if it is one of the first epochs."""
        if (self.state.epoch or 0) < self.dino.frozen_epochs:
            self._whole.student_head.last.weight.grad = None

    # Steps

    @property
    def _whole(self) -> DinoModel:
        model: DinoModel = self.accelerator.unwrap_model(self.model)
        return model

    def _get_num_items_in_batch(self, batch_samples: list[Any], device: torch.device) -> torch.Tensor:
        """Return the number of images of a step, over all processes."""
        images = sum(len(batch["global_views"]) for batch in batch_samples)
        return self.accelerator.reduce(torch.tensor(images, device=device), "sum")

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        outputs = model(**inputs)
        temperatures = self.dino.student_temperature, self.teacher_temperature
        losses = dino_losses(outputs.student, outputs.teacher, self._whole.center, *temperatures)
        logits = outputs.teacher.flatten(0, 1)
        self._logits += torch.cat([logits.sum(0), logits.new_tensor([len(logits)])])
        parts = (losses.entropy.sum(), losses.divergence.sum(), losses.entropy.new_tensor(len(losses.entropy)))
        self._watched += torch.stack(parts).detach()
        # Gradients are averaged over processes.
        loss = losses.loss.sum() / num_items_in_batch * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss

    def update_teacher(self) -> None:
        """Update the teacher and the center after an update of the student."""
        self._whole.update_teacher(self.momentum)
        sums = self.accelerator.reduce(self._logits, "sum")
        self._whole.update_center(sums[:-1] / sums[-1])
        self._logits.zero_()

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        if "loss" in logs or "train_loss" in logs:  # of a step, or at the end of the training
            entropy, divergence, images = self.accelerator.reduce(self._watched, "sum").tolist()
            if images:
                logs = {**logs, "teacher_entropy": entropy / images, "divergence": divergence / images}
            self._watched.zero_()
        super().log(logs, *args, **kwargs)
        if "teacher_entropy" in logs:
            self._check_collapse(logs["teacher_entropy"])

    def _check_collapse(self, entropy: float) -> None:
        dino, most = self.dino, math.log(self.dino.prototypes)
        if (self.state.epoch or 0) <= dino.collapse_epochs:
            return
        share = entropy / most
        if dino.collapse_tolerance <= share <= 1 - dino.collapse_tolerance:
            return
        if share < dino.collapse_tolerance:
            what = "0: it puts all images on one prototype; lower dino.center_momentum or training.learning_rate"
        else:
            what = f"ln K = {most:.4f}: its outputs are uniform; lower dino.teacher_temperature"
        self._close()
        raise CollapseError(
            f"The teacher has collapsed at step {self.state.global_step}, where its entropy is {entropy:.4f} nats, "
            f"within {dino.collapse_tolerance:g} ln K of {what}."
        )

    # Evaluation

    def evaluation_loop(
        self, dataloader: Any, description: str, *args: Any, metric_key_prefix: str = "eval", **kwargs: Any
    ) -> EvalLoopOutput:
        """Return the accuracy of the nearest neighbors in the bank, ``accuracy``."""
        self._check_weights()
        queries = self._features(dataloader)
        metrics: dict[str, float] = {f"{metric_key_prefix}_examples": len(queries[0])}
        if self.bank is not None:
            bank = self._features(self.get_test_dataloader(self.bank))
            metrics[f"{metric_key_prefix}_accuracy"] = neighbor_accuracy(*queries, *bank)
        return EvalLoopOutput(predictions=None, label_ids=None, metrics=metrics, num_samples=len(queries[0]))

    @torch.inference_mode()
    def _features(self, dataloader: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the features (n, D) of the teacher for all images, and their labels (n,)."""
        model = self._whole
        features, labels = [], []
        for batch in dataloader:
            batch = self._prepare_inputs(batch)
            found = image_features(model.teacher, batch["pixel_values"], self.dino.feature)
            found, right = self.accelerator.gather_for_metrics((found, batch["labels"]))
            features.append(found)
            labels.append(right)
        return torch.cat(features), torch.cat(labels)

    def whole_model(self) -> PreTrainedModel:
        """Return the teacher without its head, in evaluation mode."""
        return self._whole.teacher.eval()

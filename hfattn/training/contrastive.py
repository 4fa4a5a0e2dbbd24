"""Contrastive training of a dual encoder: the losses of CLIP and SigLIP, over the batches of all processes."""

import math
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..errors import UserError
from .trainer import ReliableTrainer

LOSSES = ("clip", "sigmoid")
LARGEST_SCALE = 100.0


def clip_loss(logits: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of images over texts and of texts over images (Radford et al. 2021, figure 3).

    The targets are equal shares of all texts that are right, so equal texts in a batch are no negatives (UniCL, Yang et
    al. 2022, section 3.2). If all differ, they are one-hot as in CLIP.

    Args:
        logits: (N, N) scaled similarities of N images (rows) and their texts (columns).
        positives: boolean (N, N), symmetric: whether the text is right for the image.
    """
    return (shared_cross_entropy(logits, positives) + shared_cross_entropy(logits.T, positives)) / 2


def shared_cross_entropy(logits: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of queries over candidates, with equal shares of all candidates that are right.

    Args:
        logits: (N, M) scaled similarities of N queries and M candidates.
        positives: boolean (N, M), at least one in each row.
    """
    targets = positives.to(logits.dtype)
    return functional.cross_entropy(logits, targets / targets.sum(1, keepdim=True))


def sigmoid_loss(logits: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    """Return -1/N Σ_ij log σ(z_ij logits_ij), z = 1 for right pairs, else -1 (Zhai et al. 2023, equation 1).

    Args:
        logits: (N, N) scaled similarities, with the bias added.
        positives: as for ``clip_loss``.
    """
    signs = 2 * positives.to(logits.dtype) - 1
    return -functional.logsigmoid(signs * logits).sum() / len(logits)


class _Gather(torch.autograd.Function):
    """Concatenate the tensors of all processes; the gradient of each part is the sum of those of all processes."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, tensor.contiguous())
        ctx.rows = len(tensor)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        total = gradient.contiguous().clone()
        dist.all_reduce(total)
        start = dist.get_rank() * ctx.rows
        return total[start : start + ctx.rows]


def gather(tensor: torch.Tensor) -> torch.Tensor:
    """Return the rows of all processes, which have equally many, with gradient; those of one process are unchanged.

    If each process computes the same loss of the gathered rows, the gradients of the weights that lie before them are,
    averaged over processes as DDP does, those of one process with all rows.
    """
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return tensor
    gathered: torch.Tensor = _Gather.apply(tensor)
    return gathered


class _Clamp(TrainerCallback):
    """Callback that keeps the scale exp(t) at most ``LARGEST_SCALE`` (Radford et al. 2021, section 2.5)."""

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        with torch.no_grad():
            dict(model.named_parameters())["logit_scale"].clamp_(max=math.log(LARGEST_SCALE))


class ContrastiveTrainer(ReliableTrainer):
    """A ``ReliableTrainer`` for a dual encoder, in batches with ``labels`` (B, 2): the number of each image's
    text, and its group. The texts of a group are right for all its images.

    The model returns ``image_embeds`` and ``text_embeds`` of length 1, and has a ``logit_scale`` and, for the sigmoid
    loss, a ``logit_bias``, as ``DualEncoderModel``. An image is compared with the texts of the batches of all
    processes. Gradient accumulation adds no further ones: a step of two batches has the mean of their losses, which is
    not the loss of a batch of twice the size.

    Args:
        loss: "clip" or "sigmoid".

    Raises:
        UserError: the loss is unknown, the model lacks the bias, or the weights are sharded.
    """

    def __init__(self, model: Any, *args: Any, loss: str = "clip", **kwargs: Any) -> None:
        if loss not in LOSSES:
            raise UserError(f"The loss {loss!r} is unknown; write one of {', '.join(LOSSES)}.")
        if (loss == "sigmoid") != ("logit_bias" in dict(model.named_parameters())):
            raise UserError(
                "The sigmoid loss, and no other, has a bias; write logit_bias_init_value: -10 in the configuration of "
                "the model for it, and null for clip."
            )
        super().__init__(model, *args, **kwargs)
        if self.is_fsdp_enabled or self.is_deepspeed_enabled:
            raise UserError("A dual encoder is trained with whole weights; launch without FSDP and DeepSpeed.")
        self.loss = loss
        self.label_names = ["labels"]  # Trainer looks for them in forward, which needs none
        self.add_callback(_Clamp())

    def get_decay_parameter_names(self, model: Any) -> list[str]:
        """Return the parameters with weight decay, which the scale and the bias of the similarities are not."""
        names: list[str] = super().get_decay_parameter_names(model)
        return [name for name in names if not name.endswith(("logit_scale", "logit_bias"))]

    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        read = {name: tensor for name, tensor in inputs.items() if name != "labels"}
        outputs = model(**read)
        loss = self.loss_of(model, outputs.image_embeds.float(), outputs.text_embeds.float(), inputs["labels"])
        loss = self.mean_over_step(loss * len(inputs["labels"]), len(inputs["labels"]), num_items_in_batch)
        embeds = {"image_embeds": outputs.image_embeds, "text_embeds": outputs.text_embeds}
        return (loss, embeds) if return_outputs else loss

    def loss_of(
        self, model: Any, image_embeds: torch.Tensor, text_embeds: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        """Return the loss of the images and texts (B, D) of all processes."""
        own = self.accelerator.unwrap_model(model)
        groups = gather(labels)[:, 1]
        logits = own.logit_scale.exp() * gather(image_embeds) @ gather(text_embeds).T
        positives = groups[:, None] == groups
        return clip_loss(logits, positives) if self.loss == "clip" else sigmoid_loss(logits + own.logit_bias, positives)

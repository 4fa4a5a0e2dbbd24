"""What a model attends to in an image, and what its answer depends on.

The attention of a vision Transformer is a record over its patches. Saliency is computed on the pixels by the methods of
``saliency``, with the pixels of a patch as one position: the score of a patch is the sum over its pixels, and occlusion
replaces all of them by 0, which is the mean color of the training images if the processor normalizes.

Shapes: B batch, C channels, N patches, D values of a patch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import UserError
from ..generation import evaluation_mode
from ..models.alignment import AttentionRecord, alignment, layers_without_weights
from ..pipelines import ImageCaptioningPipeline
from .rollout import rollout
from .saliency import METHODS, STEPS, UNIT, Function, attribute, class_answer, log_odds

if TYPE_CHECKING:
    from PIL.Image import Image
    from transformers import BaseImageProcessor


@dataclass(frozen=True, eq=False)
class ScoredImage:
    """An image with a score for each of its patches.

    Args:
        scores: (rows, columns), on the CPU.
        method: name of the method, such as "gradient × input".
        target: the answer that the scores explain, such as the name of a class.
        unit: unit of the scores; empty if they have none.
        output: the explained quantity F(x).
        baseline: F(0), of an image of zeros. The scores of a complete method add up to ``output - baseline``. None for
            occlusion.
    """

    scores: torch.Tensor
    method: str
    target: str
    unit: str = ""
    output: float | None = None
    baseline: float | None = None

    @property
    def gap(self) -> float | None:
        """Completeness error, Σ scores - (F(x) - F(0)); None if there is no ``baseline``."""
        if self.output is None or self.baseline is None:
            return None
        return float(self.scores.double().sum()) - (self.output - self.baseline)

    @property
    def heading(self) -> str:
        """The method and the target, such as "gradient × input → cat"."""
        return f"{self.method} → {self.target}"


def image_grid(config: PreTrainedConfig, size: tuple[int, int]) -> tuple[int, int]:
    """Return the rows and columns of the patches that a model cuts an image into.

    Args:
        config: configuration of a model with patches of one size.
        size: height and width of the image, in pixels; what is left over at the right and below is not read.

    Raises:
        ValueError: if the model has no patches.
    """
    patch = config.to_dict().get("patch_size")
    if not isinstance(patch, int | list | tuple):
        raise ValueError(f"A model of type {config.model_type} has no patches; pass grid=(rows, columns).")
    height, width = (patch, patch) if isinstance(patch, int) else patch
    return size[0] // height, size[1] // width


def prefix_tokens(config: PreTrainedConfig) -> tuple[str, ...]:
    """Return the names of the tokens that a vision Transformer may put before the patches."""
    fields = config.to_dict()
    distilled = config.model_type == "deit" or bool(fields.get("distillation_token"))
    registers = [f"[REG{number}]" for number in range(1, fields.get("num_register_tokens", 0) + 1)]
    return ("[CLS]", *["[DIST]"][: int(distilled)], *registers)


def image_attention(name: str, model: PreTrainedModel, pixel_values: torch.Tensor) -> AttentionRecord:
    """Return the self-attention of a vision Transformer over an image.

    Args:
        name: name of the model, for messages.
        model: ViT, DeiT, DINOv2 or another model whose tokens are the patches of an image, behind class token,
            distillation token and registers.
        pixel_values: (1, C, height, width), from the processor of the model.

    Raises:
        UserError: the model has no attention weights, or its tokens are not patches.
    """
    if model.config.to_dict().get("latents") is not None:
        raise UserError(f"{name} computes with latents, which are not patches; choose a model without.")
    model.set_attn_implementation("eager")
    with evaluation_mode(model), torch.inference_mode():
        outputs = model(pixel_values=pixel_values.to(model.device, model.dtype), output_attentions=True)
    attentions = outputs.get("attentions")
    if not attentions:
        raise UserError(f"{name} has no attention; hfattn show gradient shows what its answer depends on.")
    if lacking := layers_without_weights(attentions):
        raise UserError(f"The pattern of layer {lacking[0]} of {name} computes no attention weights; choose another.")
    height, width = pixel_values.shape[-2:]
    rows, columns = image_grid(model.config, (height, width))
    known = ((), prefix_tokens(model.config))
    prefix = next((names for names in known if len(names) + rows * columns == attentions[0].shape[-1]), None)
    if prefix is None:
        raise UserError(
            f"{name} attends to {attentions[0].shape[-1]} tokens, which are not the {rows} x {columns} patches of the "
            "image; choose a model such as ViT, DeiT or DINOv2."
        )
    return alignment(outputs, kind="self", grid=(rows, columns), prefix_tokens=prefix)


class ImageReading(NamedTuple):
    """What a model saw in an image.

    Args:
        image: the image as the model saw it.
        views: by the names of ``render_image_html``: attention, rollout and, of a classifier, gradient × input; or
            attention and gradient × input of each word of a caption.
        answer: the class of a classifier or the caption; empty for other models.
        probability: its probability; None for other models.
        others: further captions with their probabilities.
    """

    image: "Image"
    views: "Mapping[str, AttentionRecord | ScoredImage | Sequence[ScoredImage]]"
    answer: str = ""
    probability: float | None = None
    others: tuple[tuple[str, float], ...] = ()


def read_image(name: str, model: PreTrainedModel, processor: "BaseImageProcessor", image: "Image") -> ImageReading:
    """Return attention, rollout and gradient × input of an image.

    Args:
        name: name of the model, for messages.
        model: a vision Transformer, with or without a classifier.
        processor: its image processor.
        image: any image in RGB.

    Raises:
        UserError: as ``image_attention``.
    """
    pixel_values = processor(image, return_tensors="pt")["pixel_values"]
    seen = seen_image(pixel_values[0], processor)
    record = image_attention(name, model, pixel_values)
    views: dict[str, AttentionRecord | ScoredImage] = {"attention": record, "rollout": rollout(record)}
    with evaluation_mode(model), torch.inference_mode():
        logits = model(pixel_values=pixel_values.to(model.device, model.dtype)).get("logits")
    if logits is None:
        return ImageReading(seen, views)
    number = int(logits[0].argmax())
    views["gradient"] = image_saliency(model, pixel_values, target=number)
    probability = float(logits[0].float().softmax(-1)[number])
    return ImageReading(seen, views, str(model.config.id2label[number]), probability)


def image_saliency(
    model: PreTrainedModel,
    pixel_values: torch.Tensor,
    *,
    method: str = "gradient_x_input",
    target: int | str | None = None,
    contrast: int | str | None = None,
    grid: tuple[int, int] | None = None,
    steps: int = STEPS,
) -> ScoredImage:
    """Return how much the answer of an image classifier depends on each patch.

    Args:
        model: an image classifier. It is run in evaluation mode, and its mode is restored afterwards.
        pixel_values: (1, C, height, width), from the processor of the model.
        method: "gradient_x_input", "integrated_gradients" or "occlusion", as for ``saliency``.
        target: index or name of the class to explain; default the model's answer.
        contrast: explain why the answer is the target rather than this class.
        grid: (rows, columns) of the patches; default those of the model.
        steps: number of points of the integral.

    Returns:
        Scores in nats of log-odds, or of the difference of two log-probabilities.

    Raises:
        ValueError: if there is no such method or class, or the grid does not divide the image.
        UserError: if the model is not a classifier.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; write one of {', '.join(map(repr, METHODS))}.")
    pixel_values = pixel_values.to(model.device, model.dtype)
    height, width = pixel_values.shape[-2:]
    grid = image_grid(model.config, (height, width)) if grid is None else grid
    patches = to_patches(pixel_values, grid)

    def read(rows: torch.Tensor) -> torch.Tensor:
        logits = model(pixel_values=from_patches(rows, grid, (height, width))).get("logits")
        if logits is None:
            raise UserError("The model has no head, so it gives no answer to explain; load a classifier of images.")
        return logits if logits.dtype == torch.float64 else logits.float()

    with evaluation_mode(model):
        with torch.no_grad():
            function, answer, unit = class_answer(read, patches, model, target, contrast)
        scores = attribute(function, patches, method, steps)
        with torch.no_grad():
            output = float(function(patches))
            baseline = None if method == "occlusion" else float(function(torch.zeros_like(patches)))
    name = "occlusion (by 0)" if method == "occlusion" else METHODS[method]
    return ScoredImage(scores.cpu().view(grid), name, answer, unit, output, baseline)


def caption_saliency(
    model: PreTrainedModel,
    pixel_values: torch.Tensor,
    caption: Sequence[int],
    names: Sequence[str],
    *,
    grid: tuple[int, int],
    method: str = "gradient_x_input",
    steps: int = STEPS,
) -> list[ScoredImage]:
    """Return how much each word of a caption depends on each part of the image, given the words before it.

    Args:
        model: an encoder-decoder that captions images.
        pixel_values: (1, C, height, width), from the image processor of the model.
        caption: ids of the T tokens, such as those that the model wrote.
        names: their names.
        grid: (rows, columns) of the parts, such as those of its attention.
        method: as for ``image_saliency``.
        steps: number of points of the integral.

    Raises:
        ValueError: if there is no such method, or the grid does not divide the image.
        UserError: if gradients are requested of a captioner whose image model is frozen, which computes none.
    """
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; write one of {', '.join(map(repr, METHODS))}.")
    if method != "occlusion" and _is_frozen(model):
        raise UserError('The image model of this captioner is frozen and has no gradients; use method="occlusion".')
    pixel_values = pixel_values.to(model.device, model.dtype)
    size = (pixel_values.shape[-2], pixel_values.shape[-1])
    patches = to_patches(pixel_values, grid)
    labels = torch.tensor([list(caption)], device=model.device)
    inputs = model.prepare_decoder_input_ids_from_labels(labels=labels)

    def function(step: int, number: int) -> Function:
        def answer(rows: torch.Tensor) -> torch.Tensor:
            read = inputs[:, : step + 1].expand(len(rows), -1)
            outputs = model(pixel_values=from_patches(rows, grid, size), decoder_input_ids=read, use_cache=False)
            return log_odds(outputs.logits[:, step].double(), number)

        return answer

    scored = []
    with evaluation_mode(model):
        for step, (number, name) in enumerate(zip(caption, names, strict=True)):
            answer = function(step, number)
            scores = attribute(answer, patches, method, steps)
            with torch.no_grad():
                output = float(answer(patches))
                baseline = None if method == "occlusion" else float(answer(torch.zeros_like(patches)))
            scored.append(ScoredImage(scores.cpu().view(grid), METHODS[method], name, UNIT, output, baseline))
    return scored


def _is_frozen(model: PreTrainedModel) -> bool:
    """Return whether the image model of a captioner is frozen, so that nothing passes a gradient to the pixels."""
    fields = model.config.to_dict()
    return bool(fields.get("freeze_vision")) and fields.get("vision_config") is not None


def read_captions(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    processor: "BaseImageProcessor",
    image: "Image",
    num_beams: int | None = None,
    hypotheses: int = 1,
) -> ImageReading:
    """Caption an image, and return attention and gradient × input of each word of the best caption.

    A captioner whose image model is frozen has no gradients, so attention is all that is returned.

    Args:
        model: a captioner with attention to the image, such as ``show_attend_tell``.
        tokenizer: its tokenizer.
        processor: its image processor.
        image: any image in RGB.
        num_beams: None selects the default of the model.
        hypotheses: number of captions; there are at least as many beams.
    """
    pipeline = ImageCaptioningPipeline(model=model, tokenizer=tokenizer, image_processor=processor, device=model.device)
    beams = max(num_beams or model.generation_config.num_beams or 1, hypotheses)
    captions = pipeline(image, num_beams=beams, num_return_sequences=hypotheses)
    found, *others = captions if isinstance(captions, list) else [captions]
    record = found["alignment"]
    pixel_values = processor(image, return_tensors="pt")["pixel_values"]
    views: dict[str, AttentionRecord | list[ScoredImage]] = {"attention": record}
    if not _is_frozen(model):
        ids = tokenizer.convert_tokens_to_ids(list(record.target_tokens))
        views["gradient"] = caption_saliency(model, pixel_values, ids, record.target_tokens, grid=record.grid)
    return ImageReading(
        seen_image(pixel_values[0], processor),
        views,
        found["caption_text"],
        math.exp(found["score"]),
        tuple((each["caption_text"], math.exp(each["score"])) for each in others),
    )


def to_patches(pixel_values: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
    """Cut images (B, C, height, width) into patches (B, N, D), row by row.

    Raises:
        ValueError: if the grid does not divide the image.
    """
    height, width = pixel_values.shape[-2:]
    rows, columns = grid
    if height % rows or width % columns:
        raise ValueError(f"A grid of {rows} x {columns} does not divide an image of {height} x {width} pixels.")
    cut = pixel_values.unflatten(3, (columns, -1)).unflatten(2, (rows, -1))  # (B, C, rows, P, columns, Q)
    return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def from_patches(patches: torch.Tensor, grid: tuple[int, int], size: tuple[int, int]) -> torch.Tensor:
    """Put patches (B, N, D) together to images (B, C, height, width); the inverse of ``to_patches``."""
    (rows, columns), (height, width) = grid, size
    cut = patches.unflatten(2, (-1, height // rows, width // columns)).unflatten(1, grid)
    return cut.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)


def seen_image(pixel_values: torch.Tensor, processor: "BaseImageProcessor") -> "Image":
    """Return an image as the model sees it: resized and cropped, with the colors of before the normalization.

    Args:
        pixel_values: (3, height, width).
        processor: the processor that made them.
    """
    from PIL import Image

    pixels = pixel_values.detach().float().cpu()
    if processor.do_normalize:
        mean, std = (torch.tensor(values)[:, None, None] for values in (processor.image_mean, processor.image_std))
        pixels = pixels * std + mean
    if processor.do_rescale:
        pixels = pixels / processor.rescale_factor
    return Image.fromarray(pixels.round().clamp(0, 255).byte().permute(1, 2, 0).numpy())

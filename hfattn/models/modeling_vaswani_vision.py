"""The Vision Transformer (Dosovitskiy et al. 2021), with the distillation token of DeiT (Touvron et al. 2021).

The layers are those of the encoder in ``modeling_vaswani.py``, so that each score, distribution and pattern works on
patches.

Shapes: B batch, C channels, P patch side, N patches, S tokens (the patches and what is before them), H hidden width,
h heads.
"""

from dataclasses import dataclass

import torch
from torch import nn
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling, ImageClassifierOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, can_return_tuple
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .classifier_output import classification_loss
from .configuration_vaswani_vision import VaswaniVisionConfig
from .modeling_vaswani import (
    LayersPreTrainedModel,
    TokenMixer,
    VaswaniLayer,
    VaswaniStack,
    projection,
    sinusoidal_positions,
)
from .penalties import penalized, share_of_batch


@dataclass
class VisionClassifierOutput(ImageClassifierOutput):
    """An ``ImageClassifierOutput`` with what a distillation token adds.

    Attributes:
        cls_logits: output of the classifier of the class token (B, labels), if there is a distillation token.
        distillation_logits: output of the classifier of the distillation token (B, labels).
    """

    cls_logits: torch.Tensor | None = None
    distillation_logits: torch.Tensor | None = None


class PatchEmbeddings(nn.Module):
    """z_0 = [x_class; x_1 E; ...; x_N E] + E_pos, for the patches x_1 ... x_N of an image (Dosovitskiy et al., eq. 1).

    E (P² C, H) is the same as a convolution whose kernel and stride are a patch.
    """

    def __init__(self, config: VaswaniVisionConfig) -> None:
        super().__init__()
        self.config = config
        rows, columns = config.patch_shape
        self.projection = projection(config.num_channels * rows * columns, config.hidden_size, bias=True)
        if config.num_prefix_tokens:
            self.prefix = nn.Embedding(config.num_prefix_tokens, config.hidden_size)  # class, distillation
        if config.positions == "learned":
            num_patches = config.grid[0] * config.grid[1]
            self.positions = nn.Embedding(config.num_prefix_tokens + num_patches, config.hidden_size)

    def forward(self, pixel_values: torch.Tensor, interpolate_pos_encoding: bool = False) -> torch.Tensor:
        """(B, C, height, width) -> (B, S, H)."""
        patches, grid = self.split(pixel_values.to(self.projection.weight.dtype))
        embeddings = self.projection(patches)  # (B, N, H)
        if self.config.num_prefix_tokens:
            prefix = self.prefix.weight.to(embeddings.dtype).expand(len(embeddings), -1, -1)
            embeddings = torch.cat((prefix, embeddings), dim=1)
        if self.config.positions == "none":
            return embeddings
        return embeddings + self.table(grid, interpolate_pos_encoding).to(embeddings)

    def split(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, tuple[int, int]]:
        """Return the patches (B, N, C P²) of images, row by row, and the numbers of rows and columns.

        Raises:
            ValueError: the images have another number of channels, or cannot be divided into patches.
        """
        channels, (rows, columns) = self.config.num_channels, self.config.patch_shape
        _, num_channels, height, width = pixel_values.shape
        if num_channels != channels:
            raise ValueError(
                f"pixel_values have {num_channels} channels, and the model reads {channels}; convert the images with "
                f"the model's image processor, or make the model with num_channels={num_channels}."
            )
        if height % rows or width % columns:
            raise ValueError(
                f"An image of {height} x {width} pixels does not divide into patches of {rows} x {columns}; resize it "
                "with the model's image processor, or to multiples of them."
            )
        grid = height // rows, width // columns
        patches = pixel_values.unflatten(3, (grid[1], columns)).unflatten(2, (grid[0], rows))
        return patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2), grid

    def table(self, grid: tuple[int, int], interpolate: bool) -> torch.Tensor:
        """Return the positions (S, H) of an image with ``grid`` rows and columns of patches.

        Learned positions of another grid are interpolated (Dosovitskiy et al. 2021, section 3.2), those of the tokens
        before the patches are kept.

        Raises:
            ValueError: learned positions are those of another grid, and are not to be interpolated.
        """
        config, num_prefix = self.config, self.config.num_prefix_tokens
        if config.positions == "learned":
            table: torch.Tensor = self.positions.weight
            if grid == config.grid:
                return table
            if not interpolate:
                raise ValueError(
                    f"The image has {grid[0]} x {grid[1]} patches, and the model learned {config.grid[0]} x "
                    f"{config.grid[1]} positions; resize it with the model's image processor, or pass "
                    "interpolate_pos_encoding=True."
                )
            patches = (
                table[num_prefix:].unflatten(0, config.grid).permute(2, 0, 1)[None].float()
            )  # (1, H, rows, columns)
            patches = nn.functional.interpolate(patches, grid, mode="bicubic", align_corners=False)
            return torch.cat((table[:num_prefix], patches[0].flatten(1).T.to(table.dtype)))
        device = self.projection.weight.device
        row, column = (torch.arange(number, device=device) for number in grid)
        if config.positions == "sinusoidal":
            patches = sinusoidal_positions(torch.arange(grid[0] * grid[1], device=device), config.hidden_size)
        else:
            of_rows, of_columns = (sinusoidal_positions(numbers, config.hidden_size // 2) for numbers in (row, column))
            pairs = of_rows[:, None].expand(-1, grid[1], -1), of_columns.expand(grid[0], -1, -1)
            patches = torch.cat(pairs, dim=-1).flatten(0, 1)
        return nn.functional.pad(patches, (0, 0, num_prefix, 0))  # the tokens before the patches have none


class VaswaniVisionPreTrainedModel(LayersPreTrainedModel):
    """Base of the models of images."""

    config: VaswaniVisionConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _no_split_modules = ["PatchEmbeddings", "VaswaniEncoderLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Initialize weights as in a text model, and tokens and positions with ``embedding_std`` if it is given."""
        if isinstance(module, nn.Embedding) and self.config.embedding_std is not None:
            init.normal_(module.weight, std=self.config.embedding_std)
        else:
            super()._init_weights(module)


class VaswaniVisionModel(VaswaniVisionPreTrainedModel, VaswaniStack):
    """The encoder on the patches of an image, without an output layer."""

    is_decoder = False
    _can_record_outputs = {
        "hidden_states": VaswaniLayer,
        "attentions": OutputRecorder(TokenMixer, index=1),
    }

    def __init__(self, config: VaswaniVisionConfig) -> None:
        super().__init__(config)
        self.embeddings = PatchEmbeddings(config)
        self.add_encoder_layers()
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The projection of the patches."""
        return self.embeddings.projection

    @capture_outputs
    def forward(
        self,
        pixel_values: torch.Tensor,
        interpolate_pos_encoding: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """Encode images.

        Args:
            pixel_values: (B, C, height, width), normalized by the model's image processor.
            interpolate_pos_encoding: interpolate learned positions for images of another size than ``image_size``.

        Returns:
            ``last_hidden_state`` (B, S, H): the class token, the distillation token and the N patches, row by row, as
            far as the model has them; ``pooler_output`` (B, H), the output of the class token, or the mean;
            ``hidden_states`` and ``attentions`` (B, h, S, S) if requested. With latents, they take the place of the
            patches, as in ``VaswaniEncoder``.
        """
        hidden_states = self.embedding_norm(self.embeddings(pixel_values, interpolate_pos_encoding))
        hidden_states = self.encode(self.embedding_dropout(hidden_states), **kwargs)
        is_first = self.config.classifier_pooling == "first"
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states,
            pooler_output=hidden_states[:, 0] if is_first else hidden_states.mean(1),
        )


class VaswaniVisionForImageClassification(VaswaniVisionPreTrainedModel):
    """The encoder with a linear layer on the class token, and another one on the distillation token if there is one.

    The layers start with zeros (Dosovitskiy et al. 2021, section 3.2).
    """

    def __init__(self, config: VaswaniVisionConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = VaswaniVisionModel(config)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = projection(config.hidden_size, config.num_labels, bias=True, gain=0.0)
        if config.distillation_token:
            self.distillation_classifier = projection(config.hidden_size, config.num_labels, bias=True, gain=0.0)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        pixel_values: torch.Tensor,
        labels: torch.Tensor | None = None,
        interpolate_pos_encoding: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> VisionClassifierOutput:
        """Classify images.

        Args:
            pixel_values, interpolate_pos_encoding: as in ``VaswaniVisionModel``.
            labels: depending on ``config.problem_type``, (B,) classes; (B, labels) zeros and ones for multi-label
                classification; (B,) or (B, labels) numbers for regression.
            num_items_in_batch: number of labels in all batches of a training step; ``loss`` is then the sum over this
                batch divided by it.

        Returns:
            ``loss``, ``logits`` (B, labels); ``hidden_states`` and ``attentions`` if requested. With a distillation
            token, ``logits`` are the mean of ``cls_logits`` and ``distillation_logits``, and ``loss`` is the mean of
            the losses of both, without a teacher.
        """
        outputs = self.model(pixel_values, interpolate_pos_encoding, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))  # (B, labels)
        heads = [logits]
        if self.config.distillation_token:
            heads.append(self.distillation_classifier(self.dropout(outputs.last_hidden_state[:, 1])))
            logits = torch.stack(heads).mean(0)
        loss = None
        if labels is not None:
            losses = [
                classification_loss(self.loss_function, each, labels, self.config, num_items_in_batch) for each in heads
            ]
            loss = torch.stack(losses).mean()
            loss = penalized(self, loss, share_of_batch(labels, num_items_in_batch))
        return VisionClassifierOutput(
            loss=loss,
            logits=logits,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
            cls_logits=heads[0] if len(heads) > 1 else None,
            distillation_logits=heads[1] if len(heads) > 1 else None,
        )


VaswaniVisionModel.register_for_auto_class("AutoModel")
VaswaniVisionForImageClassification.register_for_auto_class("AutoModelForImageClassification")

__all__ = ["VaswaniVisionForImageClassification", "VaswaniVisionModel", "VaswaniVisionPreTrainedModel"]

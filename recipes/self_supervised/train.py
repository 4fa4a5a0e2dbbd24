"""Train a vision model without labels (DINO), from scratch or pretrained, and write a folder that can be published.

accelerate launch recipes/self_supervised/train.py --config recipes/self_supervised/fashion_dino.yaml
accelerate launch recipes/self_supervised/train.py --config recipes/self_supervised/fashion_dino.yaml \\
    --data.dataset my_images --data.test null --data.label_column null
accelerate launch recipes/self_supervised/train.py --config recipes/self_supervised/fashion_dino.yaml --resume
"""

from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoModel, default_data_collator

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import (
    Crops,
    EncodedImages,
    ImageAugmentationConfig,
    ImageDataConfig,
    MultiCropImages,
    fingerprints,
    input_size,
    make_processor,
    store_background,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.loading import Loaded, ModelLocation, base_model_name, load_image_processor, load_model
from hfattn.reports.base import TrainedRun
from hfattn.reports.self_supervised import report
from hfattn.training import (
    DinoConfig,
    DinoTrainer,
    RecipeCommand,
    TrainingConfig,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    scratch_model,
)
from hfattn.training.config import checked

RECIPE = "self_supervised"


# Configuration


@strict
@dataclass
class DataConfig(ImageDataConfig):
    """The section ``data``: images whose labels, if they have any, are read for the evaluation alone."""


@strict
@dataclass
class EvaluationConfig:
    """The section ``evaluation``: nearest neighbors among training images, in training and at the end."""

    bank_size: int = at_least(1, 10000)  # training images, drawn at random, with which others are compared


@strict
@dataclass
class SampleConfig:
    images: int = at_least(1, 4)  # of which the attention of the class token is drawn


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: ImageAugmentationConfig = field(default_factory=ImageAugmentationConfig)  # of each crop
    # ``model`` has the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of a
    # model from scratch (and fields of that type's configuration).
    model: dict[str, Any] = field(default_factory=dict)
    dino: DinoConfig = field(default_factory=DinoConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)

    @property
    def pretrained(self) -> ModelLocation | None:
        """Location of the pretrained model; None for training from scratch."""
        return checked(ModelLocation, self.model, prefix="model.") if "name" in self.model else None


def validate(config: Config) -> None:
    """Check what can be checked without model and data.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments, or two sections
            contradict each other.
    """
    if config.pretrained is None:
        scratch_config(config.model, {})
    if config.augmentation.crop_scale is not None:
        raise UserError("The crops are those of the section dino; remove augmentation.crop_scale.")
    if config.augmentation.mixes:
        raise UserError("augmentation.mixup and cutmix mix labels, and there are none; remove them.")
    if config.data.label_column is None and config.training.get("load_best_model_at_end", True):
        raise UserError("Without labels, no checkpoint is the best; write training.load_best_model_at_end: false.")
    config.check_training()


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Model: the student; the teacher begins as its copy

    data, dino, pretrained = config.data, config.dino, config.pretrained
    if pretrained:
        processor = load_image_processor(pretrained)
        loaded = load_model(AutoModel, pretrained)
    else:
        loaded = Loaded(scratch_model(AutoModel, scratch_config(config.model, {})), [])
        side = loaded.model.config.image_size
        processor = make_processor((side, side) if isinstance(side, int) else tuple(side), data.mean, data.std)
    store_background(processor, data.background)
    size, local = input_size(processor), (dino.local_size, dino.local_size)

    # Data: several views of each training image; whole images, to compare their features

    parts = data.read_parts(arguments.seed, command.datasets)
    crops = {
        "global_views": Crops(2, size, dino.global_scale),
        "local_views": Crops(dino.local_crops, local, dino.local_scale),
    }
    views = MultiCropImages(parts["train"], processor, crops, config.augmentation, data.background, arguments.seed)
    bank = parts["train"].sample(config.evaluation.bank_size, arguments.seed)
    whole = {
        part: EncodedImages(images, processor, data.background) for part, images in {**parts, "train": bank}.items()
    }

    # Training

    trainer = DinoTrainer(
        loaded.model,
        arguments,
        dino=dino,
        bank=None if data.label_column is None else whole["train"],
        data_collator=default_data_collator,
        train_dataset=views,
        eval_dataset=whole["validation"],
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts)
    trainer.train_or_resume(command.resume)

    # Evaluation of the teacher, and of the pixels by the same measure

    metrics = {
        part: scores_of_part(trainer.evaluate(dataset, metric_key_prefix=part), part)
        for part, dataset in whole.items()
        if part != "train"
    }
    model = trainer.whole_model()

    # Output files

    if trainer.is_world_process_zero():
        base_model = base_model_name(pretrained) if pretrained else None
        with finishing(command.run):
            report(TrainedRun(command, config, trainer, model, processor), parts, whole, metrics, base_model)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

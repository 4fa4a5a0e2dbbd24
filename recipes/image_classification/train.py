"""Train a classifier of images, from scratch or from a pretrained model, and write a folder that can be published.

accelerate launch recipes/image_classification/train.py --config recipes/image_classification/digits_vit.yaml
accelerate launch recipes/image_classification/train.py --config recipes/image_classification/mnist_vit.yaml \\
    --data.dataset my_images --data.test null --data.split [0.8,0.1,0.1] --data.labels null
accelerate launch recipes/image_classification/train.py --config recipes/image_classification/digits_vit.yaml --resume
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForImageClassification, PreTrainedConfig, default_data_collator

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import (
    EncodedImages,
    ImageAugmentationConfig,
    ImageCollator,
    ImageDataConfig,
    check_columns,
    fingerprints,
    make_processor,
    store_background,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.loading import Loaded, load_image_processor, load_model
from hfattn.metrics import ImageClassScores, image_class_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.image_classification import report
from hfattn.training import (
    ImageClassifierTrainer,
    ImageDistillationConfig,
    ImageTeacher,
    ImageTeacherConfig,
    PretrainedOrScratchConfig,
    RecipeCommand,
    check_reading,
    features_of_parts,
    finishing,
    load_config,
    parse_command,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)
from hfattn.training.config import build_section

RECIPE = "image_classification"


# Configuration


def pair(size: int | Sequence[int]) -> tuple[int, int]:
    """Return height and width."""
    return (size, size) if isinstance(size, int) else (size[0], size[-1])


@strict
@dataclass
class DataConfig(ImageDataConfig):
    """The section ``data``."""

    dataset: str = "digits"
    split: list[float | int | str] = field(default_factory=lambda: [0.7, 0.15, 0.15])
    # Height and width that images are resized to, as one number or as two; null: those of the model.
    image_size: int | list[int] | None = None

    def validate_image_size(self) -> None:
        sides = [1, 1] if self.image_size is None else self.image_size
        if min(pair(sides)) < 1 or (isinstance(sides, list) and len(sides) != 2):
            raise ValueError(f"image_size is {self.image_size}; write a number of pixels, or [height, width].")


@strict
@dataclass
class EvaluationConfig:
    """The section ``evaluation``."""

    columns: list[str] = field(default_factory=list)  # the scores of each value of these columns are measured
    neighbors: int = at_least(0, 0)  # also classify by this number of nearest neighbors; with frozen; 0: do not


@strict
@dataclass
class SampleConfig:
    """The section ``sample``: which images are shown in the card."""

    mistakes: int = at_least(0, 12)  # the most confident ones


@strict
@dataclass
class Config(PretrainedOrScratchConfig):
    # ``model`` has the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of a
    # model from scratch (and a preset, and fields of that type's configuration).
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: ImageAugmentationConfig = field(default_factory=ImageAugmentationConfig)
    frozen: bool = False  # compute the input of the head once for all images, and train the head alone
    teacher: dict[str, Any] = field(
        default_factory=dict
    )  # name, revision and trust_remote_code of a trained classifier
    distillation: ImageDistillationConfig = field(default_factory=ImageDistillationConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without model and data.

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    if config.data.label_column is None:
        raise UserError("data.label_column is null, so nothing says the class of an image; name its column.")
    if config.pretrained is None:
        own_config(config, ["0", "1"])
    elif config.tuning.method == "lora" and not config.tuning.merge:
        raise UserError(
            "Pipelines of images read no low-rank updates alone; write tuning.merge: true, which saves the whole model."
        )
    if config.frozen:
        if config.pretrained is None or config.tuning.method != "head_only":
            raise UserError("frozen trains the head of a pretrained model; write tuning.method: head_only.")
        if config.augmentation != ImageAugmentationConfig() or config.teacher:
            raise UserError("frozen computes the features of each image once; remove augmentation and teacher.")
    elif config.evaluation.neighbors:
        raise UserError("evaluation.neighbors compares frozen features; write frozen: true, or 0.")
    if config.teacher:
        build_section(ImageTeacherConfig, config.teacher, "teacher.")
    elif config.distillation != ImageDistillationConfig():
        raise UserError("distillation needs a teacher; write teacher.name, or remove the section.")
    config.check_training()


def own_config(config: Config, labels: Sequence[str]) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the classes of the data.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    if "num_labels" in config.model:
        raise UserError("model.num_labels follows from the data; leave it out.")
    names = dict(enumerate(labels))
    return scratch_config(config.model, {"id2label": names, "label2id": {name: i for i, name in names.items()}})


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    check_columns(config.evaluation.columns, parts["train"])
    labels = parts["train"].labels

    # Model, and the processor that makes its inputs

    if pretrained:
        names = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
        loaded = load_model(AutoModelForImageClassification, pretrained, **names)
        processor = load_image_processor(pretrained, data.image_size)
    else:
        settings = own_config(config, labels)
        loaded = Loaded(scratch_model(AutoModelForImageClassification, settings), [])
        size = data.image_size or getattr(settings, "image_size", None)
        if size is None:
            raise UserError(f"A {settings.model_type} reads images of any size; write data.image_size.")
        processor = make_processor(pair(size), data.mean, data.std)
    store_background(processor, data.background)
    check_reading(loaded.model.eval(), processor)
    encoded: dict[str, Any] = {
        part: EncodedImages(images, processor, data.background) for part, images in parts.items() if part != "train"
    }
    encoded["train"] = EncodedImages(parts["train"], processor, data.background, config.augmentation, arguments.seed)
    teacher = None
    if config.teacher:
        teacher = ImageTeacher(build_section(ImageTeacherConfig, config.teacher, "teacher."), labels, processor)
    command.claim_run(
        config,
        texts=fingerprints(parts),
        teacher=None if teacher is None else teacher.fingerprint,
        processes=arguments.world_size,
    )
    command.report_data(config, parts)

    # Training; of a frozen model, the head alone, on features that are computed once

    collator: Any = ImageCollator(len(labels), config.augmentation)
    if config.frozen:
        collator = default_data_collator
        encoded = features_of_parts(loaded.model, encoded, arguments)
    model = tuned(loaded, config.tuning)
    trainer = ImageClassifierTrainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=ImageClassScores(),
        preprocess_logits_for_metrics=image_class_statistics,
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        teacher=teacher,
        distillation=config.distillation,
        **config.trainer_options(arguments),
    )
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that were best on the validation images

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    facts = tuning_facts(model, loaded, config.tuning, pretrained)
    model = trainer.whole_model()

    # Output files: a folder that loads without hfattn, results, pictures and a card

    if trainer.is_world_process_zero():
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, model, processor)
            report(run, parts, encoded, outputs, teacher, {"preset": config.model.get("preset"), **facts})
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

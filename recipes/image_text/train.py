"""Train a dual encoder of images and texts, and write a folder that can be published.

accelerate launch recipes/image_text/train.py --config recipes/image_text/emoji.yaml
accelerate launch recipes/image_text/train.py --config recipes/image_text/emoji.yaml \\
    --data.dataset my_folder --data.image_columns [] --data.text_column caption --data.folds null --model.whiten null
accelerate launch recipes/image_text/train.py --config recipes/image_text/emoji.yaml --resume
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from huggingface_hub.dataclasses import strict

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import (
    ImageAugmentationConfig,
    ImageTextCollator,
    ImageTextDataConfig,
    ImageTexts,
    fingerprints,
    store_background,
    text_groups,
    text_numbers,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.hub import vocabulary_texts
from hfattn.metrics import RetrievalScores
from hfattn.reports.base import TrainedRun
from hfattn.reports.image_text import report
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    ContrastiveTrainer,
    DualEncoderTrainingConfig,
    RecipeCommand,
    build_dual_encoder,
    finishing,
    load_config,
    load_processor,
    locked_image_features,
    locked_text_features,
    parse_command,
    tower_facts,
    tower_tokenizer,
    whiten_images,
)

RECIPE = "image_text"


# Configuration


@strict
@dataclass
class DataConfig(ImageTextDataConfig):
    """The section ``data``: "digits", a Parquet or JSON-lines file, a folder of images, or a dataset on the Hub."""

    dataset: str = ""
    train_size: int | None = at_least(2, None)  # of the training part, a random sample of so many images; null: all


@strict
@dataclass
class SampleConfig:
    template: str = "{}"  # sentence in which the names of classes are put, such as "a photo of a {}."
    mistakes: int = at_least(1, 10)  # images whose text has the worst rank, to show

    def validate_template(self) -> None:
        if self.template.count("{}") != 1:
            raise ValueError(f"template is {self.template!r}; write a sentence with one {{}} for the name of a class.")


@strict
@dataclass
class Config(DualEncoderTrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: ImageAugmentationConfig = field(default_factory=ImageAugmentationConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # for a text tower from scratch
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without models and data.

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    config.check_towers()
    if "text" in config.pretrained and config.tokenizer != TokenizerConfig():
        raise UserError("A pretrained text tower comes with its own tokenizer; remove the section tokenizer.")
    if config.augmentation.mixes:
        raise UserError("mixup and cutmix mix classes, and an image has a text here; write 0.")
    if "vision" in config.model.locked and config.augmentation != ImageAugmentationConfig():
        raise UserError("A locked image tower reads each image once; remove augmentation, or vision in model.locked.")
    config.check_training()


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data

    data, section, rows = config.data, config.model, arguments.per_device_eval_batch_size
    parts = data.read_parts(arguments.seed, command.datasets)
    if data.train_size is not None:
        parts["train"] = parts["train"].sample(data.train_size, arguments.seed)
    texts = list(dict.fromkeys(item.text for images in parts.values() for item in images))
    if "text" in config.pretrained:
        tokenizer = tower_tokenizer(config.pretrained["text"], data.max_length)
    else:
        learned = vocabulary_texts(config, [item.text for item in parts["train"]])
        tokenizer = build_tokenizer(config.tokenizer, learned, ends=False, masks=True)
    processor = load_processor(config)
    store_background(processor, config.data.background)

    # Model: two towers, and what the locked ones make of images and texts

    model = build_dual_encoder(config, tokenizer)
    image_features, text_features = {}, None
    with arguments.main_process_first(desc="features"):
        if "vision" in section.locked:
            cache = None if section.features is None else Path(section.features)
            image_features = locked_image_features(
                model, processor, parts, background=data.background, rows=rows, cache=cache, progress="images"
            )
            if section.whiten is not None:
                groups = text_groups(parts["train"].items)[text_numbers(parts["train"])[1]]
                whiten_images(model, image_features["train"], groups, section.whiten)
        if "text" in section.locked:
            text_features = locked_text_features(model, tokenizer, texts, max_length=data.max_length, rows=rows)
    encode = partial(ImageTexts, processor=processor, tokenizer=tokenizer, max_length=data.max_length,
                     background=data.background, text_features=text_features)  # fmt: skip
    changes = {} if "vision" in section.locked else {"augmentation": config.augmentation, "seed": arguments.seed}
    encoded = {
        part: encode(images, image_features=image_features.get(part), **(changes if part == "train" else {}))
        for part, images in parts.items()
    }

    # Training

    scores = RetrievalScores()
    trainer = ContrastiveTrainer(
        model,
        arguments,
        loss=section.loss,
        data_collator=ImageTextCollator(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=scores,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation images

    found = {}
    for part, dataset in encoded.items():
        if part != "train":
            metrics = trainer.predict(dataset, metric_key_prefix=part).metrics
            found[part] = (metrics, scores.image_embeds, scores.text_embeds)
    facts = tower_facts(config, model)
    model = trainer.whole_model()
    tokenizer.model_max_length = data.max_length

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(TrainedRun(command, config, trainer, model, tokenizer), processor, encoded, found, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

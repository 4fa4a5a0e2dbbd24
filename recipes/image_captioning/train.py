"""Train an image captioner that shows where it looks, and write a folder that can be published.

accelerate launch recipes/image_captioning/train.py --config recipes/image_captioning/digit_scenes.yaml
accelerate launch recipes/image_captioning/train.py --config recipes/image_captioning/digit_scenes.yaml \\
    --data.dataset my_folder --data.text_column caption --data.image_size 96
accelerate launch recipes/image_captioning/train.py --config recipes/image_captioning/digit_scenes.yaml --resume
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from huggingface_hub.dataclasses import strict

import hfattn  # noqa: F401  registers the models of the package
from hfattn.data import (
    CaptionCollator,
    EncodedCaptions,
    ImageAugmentationConfig,
    SceneDataConfig,
    fingerprints,
    store_background,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least, one_of
from hfattn.hub import vocabulary_texts
from hfattn.metrics import TranslationScores
from hfattn.reports.base import TrainedRun
from hfattn.reports.image_captioning import EvaluatedCaptions, captioner_facts, report
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    CaptionerConfig,
    CaptionTrainer,
    RecipeCommand,
    build_captioner,
    captioner_processor,
    features_of_images,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    set_decoding,
)

RECIPE = "image_captioning"


# Configuration


@strict
@dataclass
class DataConfig(SceneDataConfig):
    """The section ``data``: scenes, a Parquet or JSON-lines file, a folder of images, or a dataset on the Hub."""

    max_length: int = at_least(2, 32)  # tokens of a caption, the end token included
    # For a longer caption: raise an error, drop the image, or truncate the caption. Evaluation always truncates.
    too_long: str = one_of(("error", "drop", "cut"), "error")


@strict
@dataclass
class EvaluationConfig:
    # Beam search is compared with greedy search on validation, and the test is captioned with the better one; null: no.
    num_beams: int | None = at_least(2, None)


@strict
@dataclass
class SampleConfig:
    images: int = at_least(0, 4)  # images whose captions are drawn, with where each word looks
    mistakes: int = at_least(1, 10)  # wrong captions to show


@strict
@dataclass
class Config(CaptionerConfig):
    data: DataConfig = field(default_factory=DataConfig)
    augmentation: ImageAugmentationConfig = field(default_factory=ImageAugmentationConfig)
    tokenizer: TokenizerConfig = field(default_factory=lambda: TokenizerConfig(kind="word"))
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without the encoder and the data.

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    config.check_captioner()
    if config.tokenizer.sampling:
        raise UserError("The captions are encoded once, before training; remove tokenizer.sampling.")
    if config.augmentation.mixes:
        raise UserError("mixup and cutmix mix classes, and an image has a caption here; write 0.")
    if config.model.get("freeze_vision") and config.augmentation != ImageAugmentationConfig():
        raise UserError("A frozen encoder reads each image once; remove augmentation, or model.freeze_vision.")
    config.check_training()


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data and model: images -> pixels, or features of a frozen encoder; captions -> token ids

    data, rows = config.data, arguments.per_device_eval_batch_size
    parts = data.read_parts(arguments.seed, command.datasets)
    texts = vocabulary_texts(config, [item.text for item in parts["train"]])
    tokenizer = build_tokenizer(config.tokenizer, texts, ends=True)
    processor = captioner_processor(config, data.image_size)
    store_background(processor, data.background)
    model = build_captioner(config, tokenizer)
    set_decoding(model, data.max_length, num_beams=1)
    encode = partial(EncodedCaptions, tokenizer=tokenizer, processor=processor, max_length=data.max_length,
                     background=data.background, seed=arguments.seed)  # fmt: skip
    features = {}
    if model.config.freeze_vision:
        cache = None if config.features is None else Path(config.features)
        with arguments.main_process_first(desc="features"):
            features = {
                part: features_of_images(
                    model, processor, images, background=data.background, rows=rows, cache=cache, progress=part
                )
                for part, images in parts.items()
            }
    encoded = {
        part: encode(
            images,
            features=features.get(part),
            augmentation=config.augmentation if part == "train" else None,
            too_long=data.too_long if part == "train" or data.too_long == "error" else "cut",
        )
        for part, images in parts.items()
    }

    # Training

    trainer = CaptionTrainer(
        model,
        arguments,
        data_collator=CaptionCollator(),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=TranslationScores(tokenizer),
        **config.trainer_options(arguments),
    )
    command.claim_run(config, captions=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on validation; so is the search

    searches = (
        {"greedy": 1} if config.evaluation.num_beams is None else {"greedy": 1, "beam": config.evaluation.num_beams}
    )
    evaluated: dict[str, EvaluatedCaptions] = {}
    for part in (part for part in encoded if part != "train"):
        found = {
            search: trainer.predict(encoded[part], metric_key_prefix=part, num_beams=beams)
            for search, beams in searches.items()
        }
        best = max(found, key=lambda search: found[search].metrics[f"{part}_exact_match"])  # the first of equal ones
        searches = {best: searches[best]}
        scores = scores_of_part(found[best].metrics, part)
        evaluated[part] = EvaluatedCaptions(scores, found[best].predictions[2], best)
    facts = captioner_facts(config, model)
    model = trainer.whole_model()
    set_decoding(model, data.max_length, *searches.values())

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(TrainedRun(command, config, trainer, model, tokenizer), processor, encoded, evaluated, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

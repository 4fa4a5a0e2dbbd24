"""Train a classifier of texts, or a regression, from scratch or from a pretrained model, and write a folder to publish.

accelerate launch recipes/classification/train.py --config recipes/classification/opinions.yaml
accelerate launch recipes/classification/train.py --config recipes/classification/sst2_minilm.yaml \\
    --model.name my_model --data.dataset my.jsonl --data.test null --data.split_by text --data.stratify true \\
    --data.labels null
accelerate launch recipes/classification/train.py --config recipes/classification/opinions.yaml --resume
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

import hfattn  # noqa: F401  registers the models of the package, which can be fine-tuned like any other
from hfattn.data import (
    EncodedTexts,
    LabeledTexts,
    WindowCollator,
    WindowedTexts,
    check_columns,
    check_model,
    fingerprints,
)
from hfattn.data.task_tokens import INPUT_FORMATS, with_input_format
from hfattn.data.truncation import LONG_TEXTS
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import set_reading
from hfattn.fields import at_least, number, one_of
from hfattn.generated import check_generated, generated_for
from hfattn.hub import vocabulary_texts
from hfattn.loading import load_model, load_tokenizer
from hfattn.metrics import read_swaps
from hfattn.reports.base import TrainedRun
from hfattn.reports.classification import Encode, report
from hfattn.reports.multi_label import report as report_labels
from hfattn.reports.regression import report as report_regression
from hfattn.tokenizers import build_sampler, build_tokenizer
from hfattn.training import (
    ClassifierTrainer,
    OwnClassifierConfig,
    OwnClassifierDataConfig,
    PretrainedOrScratchConfig,
    RecipeCommand,
    ReliableTrainer,
    add_embeddings,
    check_calibration,
    check_own_classifier,
    check_problem,
    class_weights,
    contextual_model,
    finishing,
    first_changed,
    has_one_sigmoid,
    initialize_embeddings,
    load_config,
    loss_options,
    own_classifier_config,
    own_facts,
    parse_command,
    sentence_end_ids,
    subword_tokenizer,
    tuned,
    tuning_facts,
)

RECIPE = "classification"
GENERATED = generated_for(RECIPE)
FROM_SCRATCH_ONLY = ("contextual", "tokenizer", "data.sentence_ends", "data.vectors", "sample.alignments")
PRETRAINED_ONLY = ("tuning", "data.overlap", "data.input_format", "data.both_orders", "language_model_weight")


# Configuration


@strict
@dataclass
class DataConfig(OwnClassifierDataConfig):
    """The section ``data``.

    ``dataset`` may also be "reber" (valid and broken strings of a grammar), "opinions" (of films, in two languages) or
    "listops" (nested lists of operations on digits).
    """

    generated = tuple(GENERATED)

    dataset: str = "reber"
    examples: int = at_least(1, 10_000)  # generated training texts
    evaluation_examples: int = at_least(1, 2000)  # generated texts in each other part
    options: dict[str, Any] = field(default_factory=dict)  # of a generated dataset, such as {longest: 128}
    training_examples: int | None = at_least(1, None)  # training texts to draw from a dataset; null: all
    # What is read of a text longer than max_length: its first tokens (cut), its last (cut_start), a quarter from the
    # start and the rest from the end (head_tail), or all of it in overlapping windows whose logits are averaged.
    too_long: str = one_of(LONG_TEXTS, "cut")
    overlap: int = at_least(0, 64)  # tokens that two windows share
    input_format: str = one_of(INPUT_FORMATS, "tokenizer")  # gpt: start, delimiter and extract (Radford et al. 2018)
    both_orders: bool = False  # read each pair in both orders, and average the logits

    def validate_options(self) -> None:
        check_generated(self.dataset, self.options, self.generated)

    def generate(self, seed: int) -> dict[str, LabeledTexts]:
        return GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed, **self.options)


@strict
@dataclass
class Config(PretrainedOrScratchConfig, OwnClassifierConfig):
    # ``model`` has the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of a
    # model from scratch (and a preset, and fields of that type's configuration).
    data: DataConfig = field(default_factory=DataConfig)
    class_weights: str | list[float | int] | None = None  # balanced, or a number per class; null: equal weights
    language_model_weight: float | int = number(0, least=0)  # λ of the language model's loss beside that of the task


def validate(config: Config) -> None:
    """Check what can be checked without model and data (``hfattn recipes validate``).

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    read_swaps(config.evaluation.swaps)
    if name := first_changed(config, FROM_SCRATCH_ONLY if config.pretrained else PRETRAINED_ONLY):
        kind = "from scratch (model.model_type)" if config.pretrained else "that is pretrained (model.name)"
        raise UserError(f"{name} is for a model {kind}; remove it.")
    config.sample.check_examples(pairs=config.data.pair_column is not None)
    config.check_training()
    check_problem(config)
    if not config.pretrained:
        check_own_classifier(config)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: texts -> ids, with the tokenizer of the pretrained model or one that is learned on the training texts

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    check_columns(config.evaluation.columns, parts["train"])
    if data.training_examples is not None:
        parts["train"] = parts["train"].sample(data.training_examples, arguments.seed)
    labels = parts["train"].labels
    reading: dict[str, Any] = {"max_length": data.max_length, "too_long": data.too_long}
    data_facts = {**reading, "overlap": data.overlap if data.too_long == "windows" else None}
    encode: Encode
    if pretrained:
        tokenizer = with_input_format(load_tokenizer(pretrained), data.input_format)
        reading |= {"overlap": data.overlap} if data.too_long == "windows" else {}
        reading |= {"both_orders": True} if data.both_orders else {}
        encode = partial(WindowedTexts, tokenizer=tokenizer, **reading)
        encoded: dict[str, EncodedTexts | WindowedTexts] = {part: encode(texts) for part, texts in parts.items()}  # type: ignore[call-arg]
    else:
        training_texts = [text for item in parts["train"] for text in parts["train"].texts(item)]
        tokenizer = subword_tokenizer(config) or build_tokenizer(
            config.tokenizer, vocabulary_texts(config, training_texts), ends=False, pairs=data.pair_column is not None
        )
        config.sample.check_vocabulary(tokenizer)
        ends = sentence_end_ids(tokenizer, data.sentence_ends)
        settings = own_classifier_config(config, len(tokenizer), tokenizer.pad_token_id, ends, labels)
        encode = partial(
            EncodedTexts,
            tokenizer=tokenizer,
            max_length=data.max_length,
            too_long=data.too_long,
            float_labels=has_one_sigmoid(settings),
            seed=arguments.seed,
        )
        encoded = {"train": encode(parts["train"], sampler=build_sampler(config.tokenizer, tokenizer))}
        encoded |= {part: encode(texts) for part, texts in parts.items() if part != "train"}

    # Model

    if pretrained:
        loaded = load_model(
            AutoModelForSequenceClassification,
            pretrained,
            id2label=dict(enumerate(labels)),
            label2id={label: i for i, label in enumerate(labels)},
            pad_token_id=tokenizer.pad_token_id,
            problem_type=data.problem_type,
        )
        new_tokens = add_embeddings(loaded.model, tokenizer) if data.input_format != "tokenizer" else ()
        check_model(loaded.model, tokenizer, data.max_length)
        model = tuned(loaded, config.tuning, "SEQ_CLS", new_tokens)
    else:
        model = contextual_model(AutoModelForSequenceClassification, settings, config, tokenizer)
        data_facts |= initialize_embeddings(model, tokenizer, config)

    # Training

    options = {
        "train_dataset": encoded["train"],
        "eval_dataset": encoded["validation"],
        **data.scores(),
        **config.trainer_options(arguments),
    }
    trainer: ReliableTrainer
    if pretrained:
        trainer = ClassifierTrainer(
            model,
            arguments,
            data_collator=WindowCollator(tokenizer),
            source=pretrained,
            loaded=loaded,
            tuning=config.tuning,
            class_weights=class_weights(config.class_weights, parts["train"]),
            language_model_weight=config.language_model_weight,
            **options,
        )
    else:
        options |= loss_options(config.class_weights, parts["train"], arguments.label_smoothing_factor)
        trainer = ReliableTrainer(model, arguments, data_collator=DataCollatorWithPadding(tokenizer), **options)
    if config.evaluation.calibration:
        check_calibration(trainer.model, trainer.data_collator([encoded["validation"][0]]))
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that were best on the validation texts

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    model_facts = tuning_facts(model, loaded, config.tuning, pretrained) if pretrained else {}
    model = trainer.whole_model()
    model_facts = model_facts or own_facts(model, config)
    set_reading(model, tokenizer, **reading)

    # Output files: a folder that loads without hfattn, results, pictures and a card

    if trainer.is_world_process_zero():
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, model, tokenizer)
            if data.regression or data.multi_label:
                report_other = report_regression if data.regression else report_labels
                report_other(run, encoded, outputs, data_facts, model_facts, config.evaluation, config.sample)
            else:
                report(run, encoded, outputs, encode, data_facts, model_facts, config.evaluation, config.sample)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

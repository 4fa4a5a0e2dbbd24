"""Train a model that chooses among several texts, from scratch or pretrained, and write a folder that can be published.

accelerate launch recipes/multiple_choice/train.py --config recipes/multiple_choice/spa_eng_transformer.yaml
accelerate launch recipes/multiple_choice/train.py --config recipes/multiple_choice/swag_distilbert.yaml \\
    --model.name my_model --data.dataset my.jsonl --data.validation null --data.config null
accelerate launch recipes/multiple_choice/train.py --config recipes/multiple_choice/spa_eng_transformer.yaml --resume
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForSequenceClassification, PreTrainedConfig

import hfattn  # noqa: F401  registers the models of the package, which can be fine-tuned like any other
from hfattn.data import (
    Choices,
    EncodedChoices,
    PartsConfig,
    Source,
    WindowCollator,
    check_model,
    fingerprints,
    read_choices,
    split_by_shared_text,
    with_distractors,
)
from hfattn.data.task_tokens import INPUT_FORMATS, with_input_format
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least, number, one_of
from hfattn.hub import vocabulary_texts
from hfattn.loading import Loaded, load_model, load_tokenizer
from hfattn.metrics import ClassificationScores, class_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.multiple_choice import report
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    ChoiceTrainer,
    PretrainedOrScratchConfig,
    RecipeCommand,
    add_embeddings,
    finishing,
    first_changed,
    load_config,
    parse_command,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)

RECIPE = "multiple_choice"
FAMILIES = ("rnn_encoder", "vaswani")
LABELS = {"id2label": {0: "score"}, "label2id": {"score": 0}}


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Choices]):
    """The section ``data``: a ``.jsonl`` file, a tab-separated file, or a dataset on the Hub."""

    unit: ClassVar[str] = "questions"

    dataset: str = "allenai/swag"
    context_column: str = "context"
    choice_columns: list[str] = field(default_factory=lambda: ["choices"])  # one with lists, or one for each choice
    label_column: str | None = "label"  # index of the right choice, from 0 on; null with distractors
    columns: list[str] | None = None  # names of the columns of a tab-separated file without a first line of names
    # Wrong choices to draw, for each row, among the right choices of other rows that have a similar length; 0: none.
    distractors: int = at_least(0, 0)
    training_examples: int | None = at_least(1, None)  # questions to draw for training; null: all
    evaluation_examples: int | None = at_least(1, None)  # the same for each other part
    max_length: int = at_least(4, 128)  # tokens of a context and a choice, special ones included
    input_format: str = one_of(INPUT_FORMATS, "tokenizer")  # gpt: start, delimiter and extract (Radford et al. 2018)

    def validate_choices(self) -> None:
        if self.distractors and (self.label_column is not None or len(self.choice_columns) != 1):
            raise ValueError(
                "distractors are drawn for one column of right choices; write label_column: null and one of "
                "choice_columns, or distractors: 0."
            )
        if not self.distractors and self.label_column is None:
            raise ValueError("label_column is null, so nothing says which choice is right; write it, or distractors.")

    def read(self, dataset: Source, split: str, train: Choices | None = None) -> Choices:
        return read_choices(
            dataset,
            context_column=self.context_column,
            choice_columns=self.choice_columns,
            label_column=self.label_column,
            columns=self.columns,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def cut(self, whole: Choices, seed: int) -> list[Choices]:
        # No context and no right choice is in two parts.
        return split_by_shared_text(whole, self.split, seed, unit=self.unit)

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Choices]:
        parts = super().read_parts(seed, given)
        for part, questions in parts.items():
            number = self.training_examples if part == "train" else self.evaluation_examples
            if self.distractors:
                parts[part] = with_distractors(questions, self.distractors, seed)
            if number is not None:
                parts[part] = parts[part].sample(number, seed)
        return parts


@strict
@dataclass
class SampleConfig:
    mistakes: int = at_least(1, 10)  # most confident mistakes to show


@strict
@dataclass
class Config(PretrainedOrScratchConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # for a model from scratch
    sample: SampleConfig = field(default_factory=SampleConfig)
    language_model_weight: float | int = number(0, least=0)  # λ of the language model's loss beside that of the task


def validate(config: Config) -> None:
    """Check what can be checked without model and data.

    Raises:
        UserError: a section does not describe a valid model, a tokenizer, an optimizer or training arguments.
    """
    if config.pretrained is None:
        own_config(config, vocab_size=1 << 20, pad=0)
        if name := first_changed(config, ("data.input_format", "language_model_weight")):
            raise UserError(f"{name} is for a model that is pretrained (model.name); remove it.")
    elif config.tokenizer != TokenizerConfig():
        raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
    if config.tokenizer.sampling:
        raise UserError("tokenizer.sampling is for single texts, and a choice is read with its context; write 0.")
    config.check_training()
    if config.training.get("label_smoothing_factor"):
        raise UserError("training.label_smoothing_factor is for classes, and choices have none; write 0.")


def own_config(config: Config, vocab_size: int, pad: int) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad, "problem_type": None, **LABELS}
    if config.model.get("model_type") == "vaswani":  # an encoder alone has no start and end tokens
        from_data |= dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"))
    return scratch_config(config.model, from_data, FAMILIES)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: each choice with its context -> ids

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    if pretrained:
        tokenizer = with_input_format(load_tokenizer(pretrained), data.input_format)
    else:
        texts = [text for item in parts["train"] for text in parts["train"].texts(item)]
        tokenizer = build_tokenizer(config.tokenizer, vocabulary_texts(config, texts), ends=False, pairs=True)
    encoded = {part: EncodedChoices(questions, tokenizer, data.max_length) for part, questions in parts.items()}

    # Model: one score for each choice

    if pretrained:
        options = {**LABELS, "pad_token_id": tokenizer.pad_token_id}
        loaded = load_model(AutoModelForSequenceClassification, pretrained, **options)
    else:
        settings = own_config(config, len(tokenizer), tokenizer.pad_token_id)
        loaded = Loaded(scratch_model(AutoModelForSequenceClassification, settings), [])
    new_tokens = add_embeddings(loaded.model, tokenizer) if data.input_format != "tokenizer" else ()
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, "SEQ_CLS", new_tokens)

    # Training

    trainer = ChoiceTrainer(
        model,
        arguments,
        data_collator=WindowCollator(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        language_model_weight=config.language_model_weight,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation questions

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    facts = tuning_facts(model, loaded, config.tuning, pretrained)
    model = trainer.whole_model()
    tokenizer.model_max_length = data.max_length

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(
                TrainedRun(command, config, trainer, model, tokenizer), encoded, outputs, facts, config.sample.mistakes
            )
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

"""Train a character-level recurrent language model.

accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml
accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml --data.dataset my.txt
accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml --resume
"""

from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from huggingface_hub.dataclasses import strict

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Source, Streams, Text, Windows, check_split, encode_text, open_text, split_positions
from hfattn.data.report import describe_text
from hfattn.data.text import EMBEDDED
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.metrics import LanguageModelScores, token_loss, token_statistics
from hfattn.publish_sections import check_language_model
from hfattn.reports.base import TrainedRun
from hfattn.reports.char_lm import report
from hfattn.tokenizers import build_character_tokenizer, check_options, uncovered_characters
from hfattn.training import (
    RecipeCommand,
    ReliableTrainer,
    SampleCallback,
    StatefulTrainer,
    TrainingConfig,
    finishing,
    load_config,
    model_config,
    parse_command,
    scores_of_part,
)
from hfattn.training.sample_config import CharSampleConfig

RECIPE = "char_lm"


# Configuration


@strict
@dataclass
class DataConfig:
    dataset: str = "embedded"  # "embedded" (the Python language reference), a text file, or a dataset on the Hub
    text_column: str = "text"  # of a dataset on the Hub, as are config, hub_split and revision
    config: str | None = None
    hub_split: str = "train"
    revision: str | None = None
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])  # train, validation[, test]
    max_length: int = at_least(1, 100)  # characters of a window
    stride: int = at_least(1, 1)  # characters between the starts of two training windows (stateless)
    without_test: bool = False  # leave out the test part, as hfattn tune does
    stateful: bool = False  # whether the hidden state is carried from one window to the next

    def validate_sizes(self) -> None:
        if self.stride > self.max_length:
            raise ValueError(f"stride {self.stride} skips characters; write at most max_length, {self.max_length}.")
        if not self.dataset:
            raise ValueError(
                "dataset is empty; write 'embedded', the path of a text, or the id of a dataset on the Hub."
            )
        check_split(self.split)

    def open_text(self, given: Source | None = None) -> Text:
        """Open the text of ``dataset``, or that of a dataset in memory."""
        source = self.dataset if given is None else given
        return open_text(
            source, text_column=self.text_column, config=self.config, split=self.hub_split, revision=self.revision
        )


@strict
@dataclass
class TokenizerConfig:
    lowercase: bool = False
    min_count: int = 1  # characters that occur less often are unknown
    unknown: bool = False  # whether unknown characters become [UNK]; otherwise they are an error

    def validate_min_count(self) -> None:
        check_options(self.min_count, self.unknown)


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # fields of CharRNNConfig
    sample: CharSampleConfig = field(default_factory=CharSampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without the data.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    check_language_model(config.publish)
    model_config(CharRNNConfig, config.model, vocab_size=1)
    if config.model.get("conditioning_size") is not None:
        raise UserError("model.conditioning_size needs a vector for each text, and this recipe has none; remove it.")
    config.check_training()
    if config.max_tokens is not None:
        raise UserError("All windows have the same length; write training.per_device_train_batch_size, not max_tokens.")


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: text -> tokenizer -> ids -> windows or streams

    data = config.data
    text = data.open_text(command.datasets)
    training_text = text.part(split_positions(len(text), data.split)[0])
    tokenizer = build_character_tokenizer(training_text.counts, **asdict(config.tokenizer))
    if missing := uncovered_characters(tokenizer, config.sample.prompt):
        raise UserError(
            f"sample.prompt has {missing[0]!r}, which does not occur in the training part; write another prompt, or "
            "tokenizer.unknown: true."
        )
    encoded = encode_text(text, tokenizer)
    entropies = {"unigram entropy": encoded.unigram_entropy(), "bigram entropy": encoded.bigram_entropy()}
    train, validation, *test = (encoded.ids[part] for part in split_positions(len(encoded), data.split))
    if data.without_test:
        test = []
    evaluation_rows = arguments.eval_batch_size * arguments.world_size
    train_set: Windows | Streams
    evaluation_sets: list[Windows | Streams]
    if data.stateful:
        train_set = Streams(train, data.max_length, arguments.train_batch_size * arguments.world_size)
        evaluation_sets = [
            Streams(ids, data.max_length, evaluation_rows, keep_tail=True) for ids in (validation, *test)
        ]
    else:
        train_set = Windows(train, data.max_length, data.stride)
        evaluation_sets = [Windows(ids, data.max_length, data.max_length) for ids in (validation, *test)]

    # Model

    model = CharRNNForCausalLM(
        model_config(CharRNNConfig, config.model, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    )

    # Training

    smoothing = arguments.label_smoothing_factor
    trainer = (StatefulTrainer if data.stateful else ReliableTrainer)(
        model,
        arguments,
        data_collator=train_set.collate,
        train_dataset=train_set,
        eval_dataset=evaluation_sets[0],
        # A batch also has the target of its last character, so the labels are already shifted.
        compute_loss_func=partial(token_loss, label_smoothing=smoothing) if smoothing else None,
        compute_metrics=LanguageModelScores(),
        preprocess_logits_for_metrics=token_statistics,
        callbacks=[SampleCallback(tokenizer, config.sample.prompt, config.sample.max_new_tokens, arguments.seed)],
        **config.trainer_options(arguments),
    )
    command.claim_run(config, text=text.fingerprint, processes=arguments.world_size)
    if data.dataset != EMBEDDED:
        command.write_report(describe_text(text, data.split, config.tokenizer.unknown))
    trainer.train_or_resume(command.resume)
    trainer.remove_callback(SampleCallback)  # no samples are shown during the final evaluation

    # Evaluation, with the weights that scored best on the validation part

    metrics = {
        part: scores_of_part(trainer.evaluate(dataset, metric_key_prefix=part), part)
        for part, dataset in zip(("validation", "test"), evaluation_sets, strict=False)
    }
    model = trainer.whole_model()
    model.config.use_cache = True

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(TrainedRun(command, config, trainer, model, tokenizer), text, encoded, metrics, entropies)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

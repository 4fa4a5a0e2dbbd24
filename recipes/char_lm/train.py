"""Train a character-level recurrent language model on a text, and leave behind a folder that can be published.

accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml
accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml --data.source my.txt
accelerate launch recipes/char_lm/train.py --config recipes/char_lm/quickstart.yaml --resume
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.data import Streams, Text, Windows, check_split, encode_text, open_text, split_positions
from hfattn.errors import UserError, one_sentence
from hfattn.generation import sample_text
from hfattn.metrics import LanguageModelScores, token_statistics
from hfattn.models.strict_config import own_fields
from hfattn.plots import plot_curves
from hfattn.reports import char_lm as report
from hfattn.tokenizers import build_character_tokenizer, check_options, uncovered_characters
from hfattn.training import (
    RecipeCommand,
    ReliableTrainer,
    SampleCallback,
    StatefulTrainer,
    TrainingConfig,
    load_config,
    model_config,
    parse_command,
    publish_run,
    run_facts,
    scores_of_part,
    writing,
)

RECIPE = "char_lm"


# Configuration


@strict
@dataclass
class DataConfig:
    source: str = "embedded"  # "embedded" (the Python language reference), the path of a text, or a Hub data set id
    column: str = "text"  # of a Hub data set
    config: str | None = None
    hub_split: str = "train"
    revision: str | None = None
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])  # train, validation[, test]
    window: int = 100  # characters of a training example
    stride: int = 1  # characters between the starts of two training windows (stateless)
    stateful: bool = False  # carry the hidden state from window to window

    def validate_sizes(self) -> None:
        for name in ("window", "stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")
        if self.stride > self.window:
            raise ValueError(f"stride {self.stride} skips characters; write at most the window, {self.window}.")
        if not self.source:
            raise ValueError("source is empty; write 'embedded', the path of a text, or the id of a Hub data set.")
        check_split(self.split)


@strict
@dataclass
class TokenizerConfig:
    lowercase: bool = False
    min_count: int = 1
    unknown: bool = False

    def validate_min_count(self) -> None:
        check_options(self.min_count, self.unknown)


@strict
@dataclass
class SampleConfig:
    prompt: str = "The "  # what the samples during and after training begin with
    temperatures: list[float | int] = field(default_factory=lambda: [0.2, 0.8, 1.5])
    max_new_tokens: int = 200

    def validate_sizes(self) -> None:
        if not self.prompt:
            raise ValueError("prompt is empty; write at least one character to begin with.")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}; write a whole number of at least 1.")
        if not all(0.01 <= temperature <= 100 for temperature in self.temperatures):
            raise ValueError(f"temperatures is {self.temperatures}; write numbers from 0.01 to 100.")


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # fields of CharRNNConfig
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without the data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, an optimiser or training arguments.
    """
    model_config(CharRNNConfig, config.model, vocab_size=1)
    arguments = config.arguments(run)
    if config.max_tokens is not None:
        raise UserError("All windows are equally long; write training.per_device_train_batch_size, not max_tokens.")
    if config.data.stateful and arguments.n_gpu > 1:
        raise UserError("Stateful training needs one process per GPU; launch it with accelerate launch --multi_gpu.")
    return arguments


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: text -> tokenizer -> ids -> windows or streams

    data = config.data
    text = open_text(
        data.source, text_column=data.column, config=data.config, split=data.hub_split, revision=data.revision
    )
    tokenizer = build_character_tokenizer(text.counts, **asdict(config.tokenizer))
    if missing := uncovered_characters(tokenizer, config.sample.prompt):
        raise UserError(f"sample.prompt holds {missing[0]!r}, which does not occur in the text; write another prompt.")
    encoded = encode_text(text, tokenizer)
    levels = {"unigram entropy": encoded.unigram_entropy(), "bigram entropy": encoded.bigram_entropy()}
    train, validation, *test = (encoded.ids[part] for part in split_positions(len(encoded), data.split))
    evaluation_rows = arguments.eval_batch_size * arguments.world_size
    train_set: Windows | Streams
    evaluation_sets: list[Windows | Streams]
    if data.stateful:
        train_set = Streams(train, data.window, arguments.train_batch_size * arguments.world_size)
        evaluation_sets = [Streams(ids, data.window, evaluation_rows, keep_tail=True) for ids in (validation, *test)]
    else:
        train_set = Windows(train, data.window, data.stride)
        evaluation_sets = [Windows(ids, data.window, data.window) for ids in (validation, *test)]

    # Model

    model = CharRNNForCausalLM(
        model_config(CharRNNConfig, config.model, vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    )

    # Training

    trainer = (StatefulTrainer if data.stateful else ReliableTrainer)(
        model,
        arguments,
        data_collator=train_set.collate,
        train_dataset=train_set,
        eval_dataset=evaluation_sets[0],
        compute_metrics=LanguageModelScores(),
        preprocess_logits_for_metrics=token_statistics,
        callbacks=[SampleCallback(tokenizer, config.sample.prompt, config.sample.max_new_tokens, arguments.seed)],
        **config.trainer_options(arguments),
    )
    command.claim_run(config, text=text.fingerprint, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)
    trainer.remove_callback(SampleCallback)  # the evaluations below are not its

    # Evaluation, with the best weights on the validation set

    scores = {
        name: trainer.evaluate(dataset, metric_key_prefix=name)
        for name, dataset in zip(("validation", "test"), evaluation_sets, strict=False)
    }
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, text, scores, levels)
    trainer.finish()


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ReliableTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    text: Text,
    scores: Mapping[str, Mapping[str, float]],
    levels: Mapping[str, float],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, its curve, its card."""
    run, state, seed = command.run, trainer.state, trainer.args.seed
    samples = {
        str(temperature): sample_text(
            model, tokenizer, config.sample.prompt, temperature, config.sample.max_new_tokens, seed
        )
        for temperature in config.sample.temperatures
    }
    model.config.use_cache = True
    model.generation_config.update(
        do_sample=True, temperature=0.8, max_new_tokens=200, suppress_tokens=[tokenizer.pad_token_id]
    )
    model.save_pretrained(run)
    tokenizer.save_pretrained(run)
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, levels, title, "nats per character")
    characters = state.global_step * config.data.window * trainer.get_total_train_batch_size(trainer.args)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), seed),
        "data": {
            "name": text.name,
            "sha256": text.fingerprint,
            "characters": len(text),
            "symbols": len(tokenizer) - len(tokenizer.all_special_ids),
            "split": config.data.split,
            "stateful": config.data.stateful,
            **{f"{name.replace(' ', '_')}_nats": value for name, value in levels.items()},
        },
        "model": {
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(CharRNNConfig)},
        },
        "metrics": {name: scores_of_part(score, name) for name, score in scores.items()},
        "training": trainer.training_facts("characters", characters),
        "samples": {"prompt": config.sample.prompt, "by_temperature": samples},
    }
    probes = [config.sample.prompt, *samples.values()][:2]
    publish_run(command, results, report.summary(run, results), model, tokenizer, probes)


if __name__ == "__main__":
    with one_sentence():
        main()

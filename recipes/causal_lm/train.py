"""Fine-tune a causal language model on a text, or train one from scratch, and leave behind a folder to publish.

accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml \\
    --model.name path/to/gpt2 --data.source my.txt
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml --resume
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    TrainingArguments,
)

from hfattn.data import (
    Documents,
    PackedBlocks,
    PackedText,
    check_split,
    pack,
    read_corpus,
    source_of_part,
    split_corpus,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import score_ids
from hfattn.generation import read_prompt, sample_text
from hfattn.loading import Loaded, ModelLocation, load_model, load_tokenizer, max_positions
from hfattn.metrics import LanguageModelScores, next_token_loss, next_token_statistics
from hfattn.models.strict_config import unknown_name_message
from hfattn.plots import plot_curves, plot_table
from hfattn.reports import causal_lm as report
from hfattn.training import (
    FineTuningConfig,
    FineTuningTrainer,
    RecipeCommand,
    SampleCallback,
    load_config,
    parse_command,
    publish_run,
    run_facts,
    scores_of_part,
    tuned,
    tuning_facts,
    writing,
)

RECIPE = "causal_lm"
SPECIAL_TOKENS = (("<|endoftext|>", "<|endoftext|>"), ("<s>", "</s>"))  # start and end, in files that do not say
FROM_DATA = ("vocab_size", "bos_token_id", "eos_token_id", "pad_token_id")
DECODING = ("temperature", "top_k", "top_p")


# Configuration


@strict
@dataclass
class DataConfig:
    source: str = "embedded"  # "embedded" (the Python language reference), a text, a .jsonl file, or a Hub data set id
    # Another file, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # By position, where validation is null: train, validation[, test], of one document in characters.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])
    lines_are_texts: bool = False  # each line or row is a document; false: the whole dataset is one
    # A regular expression that is found in the first line of each document, and in no other, where those have several.
    document_start: str | None = None
    text_column: str = "text"  # of a .jsonl file or a Hub data set
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
    block: int = 256  # tokens that the model reads at once

    def validate_block(self) -> None:
        if self.block < 2:
            raise ValueError(f"block is {self.block}; write a whole number of at least 2.")

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write 'embedded', the path of a text, or the id of a Hub data set.")
        if self.document_start is not None and not self.lines_are_texts:
            raise ValueError("document_start needs separate documents; write lines_are_texts: true, or remove it.")
        check_split(self.split)
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")


@strict
@dataclass
class EvaluationConfig:
    stride: int | None = None  # tokens from the start of a block to that of the next; null: a block, without overlap

    def validate_stride(self) -> None:
        if self.stride is not None and self.stride < 1:
            raise ValueError(f"stride is {self.stride}; write a whole number from 1 to data.block, or null.")


@strict
@dataclass
class SampleConfig:
    prompts: list[str] = field(default_factory=lambda: ["The "])
    # Ways to continue them by name: temperature (0 takes the most probable token), top_k, top_p.
    decoding: dict[str, dict[str, float | int]] = field(
        default_factory=lambda: {
            "greedy": {"temperature": 0},
            "temperature 0.8": {"temperature": 0.8},
            "top-k 40": {"top_k": 40},
            "top-p 0.9": {"top_p": 0.9},
        }
    )
    max_new_tokens: int = 60

    def validate_prompts(self) -> None:
        if not self.prompts or not all(self.prompts):
            raise ValueError("prompts has an empty one, or none; write at least one character to begin with.")
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}; write a whole number of at least 1.")

    def validate_decoding(self) -> None:
        for name, options in self.decoding.items():
            if unknown := sorted(set(options) - set(DECODING)):
                raise ValueError(f"decoding {name!r} has {unknown[0]!r}; write {', '.join(DECODING)}.")
            temperature, top_k, top_p = options.get("temperature", 1), options.get("top_k", 0), options.get("top_p", 1)
            if not (temperature == 0 or 0.01 <= temperature <= 100):
                raise ValueError(f"decoding {name!r} has temperature {temperature}; write 0, or 0.01 to 100.")
            if not isinstance(top_k, int) or top_k < 0:
                raise ValueError(f"decoding {name!r} has top_k {top_k}; write a whole number, 0 for all tokens.")
            if not 0 < top_p <= 1:
                raise ValueError(f"decoding {name!r} has top_p {top_p}; write a number above 0, at most 1.")


@strict
@dataclass
class Config(FineTuningConfig):
    data: DataConfig = field(default_factory=DataConfig)
    # A new model's model_type and fields of its configuration: it begins at random, and of model.name only the
    # tokenizer is taken. Empty: the pretrained model is fine-tuned.
    scratch: dict[str, Any] = field(default_factory=dict)
    # A tokenizer.json, a folder, or an id on the Hub; null: the tokenizer of model.name.
    tokenizer: str | None = None
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without data and model (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, an optimiser or training arguments.
    """
    arguments = config.arguments(run)
    if config.max_tokens is not None:
        raise UserError("All blocks are equally long; write training.per_device_train_batch_size, not max_tokens.")
    if config.evaluation.stride is not None and config.evaluation.stride > config.data.block:
        raise UserError(
            f"evaluation.stride {config.evaluation.stride} skips tokens; write at most data.block, {config.data.block}."
        )
    if config.scratch:
        if config.tuning.method != "full":
            raise UserError(f"A model from scratch has nothing to keep; write tuning.method: full, not "
                            f"{config.tuning.method}.")  # fmt: skip
        check_positions(new_config(config.scratch), config.data.block, "The model of scratch")
    return arguments


def new_config(scratch: Mapping[str, Any], **from_data: Any) -> PreTrainedConfig:
    """The configuration of a model that begins at random.

    Raises:
        UserError: ``scratch`` names no type of model, a field that its configuration has not, or one that follows from
            the tokenizer.
    """
    fields = dict(scratch)
    model_type = fields.pop("model_type", None)
    try:
        plain = AutoConfig.for_model(model_type)
    except ValueError:
        raise UserError(f"scratch.model_type is {model_type!r}; write a type of transformers, such as gpt2.") from None
    known = {*plain.to_dict(), *plain.attribute_map} - {*FROM_DATA, "model_type"}
    for name in fields:
        if name in FROM_DATA:
            raise UserError(f"scratch.{name} follows from the tokenizer; leave it out.")
        if name not in known:
            raise UserError(f"scratch: {unknown_name_message(name, known, type(plain).__name__)}")
    try:
        return AutoConfig.for_model(model_type, **fields, **from_data)
    except (ValueError, TypeError) as error:
        raise UserError(f"scratch: {' '.join(str(error.__cause__ or error).split())}") from error


def new_model(scratch: Mapping[str, Any], tokenizer: PreTrainedTokenizerBase) -> Loaded:
    """A model that begins at random, with the tokenizer's vocabulary."""
    names = {name: getattr(tokenizer, name) for name in FROM_DATA[1:]}
    settings = new_config(scratch, vocab_size=len(tokenizer), **names)
    try:
        return Loaded(AutoModelForCausalLM.from_config(settings), [])
    except ValueError as error:
        if "Unrecognized configuration class" not in str(error):
            raise UserError(f"scratch: {' '.join(str(error).split())}") from error
        raise UserError(
            f"There is no causal language model of the type {settings.model_type}; write another "
            "scratch.model_type, such as gpt2."
        ) from error


def read_tokenizer(config: Config) -> PreTrainedTokenizerBase:
    """The tokenizer that a run uses: that of its model, unless it names another.

    Raises:
        UserError: there is none, or the Hub cannot be reached.
    """
    if config.tokenizer is None:
        return load_tokenizer(config.model)
    file = Path(os.path.expanduser(config.tokenizer))
    if not file.is_file():
        return load_tokenizer(ModelLocation(name=config.tokenizer))
    try:
        tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(file), model_input_names=["input_ids", "attention_mask"])
    except Exception as error:  # what the Rust library raises is no class of its own
        raise UserError(f"{file.name} is no tokenizer.json ({error}); write another tokenizer.") from error
    vocabulary = tokenizer.get_vocab()
    for start, end in SPECIAL_TOKENS:
        if start in vocabulary and end in vocabulary:
            tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = start, end, end
            break
    return tokenizer


def check_positions(config: PreTrainedConfig, block: int, name: str) -> None:
    """Make sure that a model can read a block."""
    positions = max_positions(config)
    if positions is not None and block > positions:
        raise UserError(f"data.block is {block}, and {name} has {positions} positions; write at most {positions}.")


@torch.inference_mode()
def check_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: Config) -> None:
    """Make sure that a model can read the tokenizer's tokens and a block of them, and that it only looks back.

    Raises:
        UserError: it cannot, or it is an encoder, whose predictions would be of tokens that it sees.
    """
    name, rows = config.model.name, model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, and {name} has embeddings of {rows}: they were not made for "
            "each other; write the tokenizer that the model was trained with."
        )
    check_positions(model.config, config.data.block, name)
    ids = torch.zeros(2, 8, dtype=torch.long)
    ids[1, -1] = 1
    first, second = model.eval()(ids).logits[:, :-1]
    if not torch.allclose(first, second, atol=1e-4):
        raise UserError(
            f"{name} looks ahead: it is an encoder such as BERT, and knows the token that it should predict; write the "
            "name of a causal language model, such as openai-community/gpt2."
        )


def read_parts(data: DataConfig) -> dict[str, Documents]:
    """The documents of each part: train, validation, and the test where there is one."""
    options: dict[str, Any] = {
        "lines_are_texts": data.lines_are_texts,
        "document_start": data.document_start,
        "text_column": data.text_column,
        "config": data.config,
        "revision": data.revision,
    }
    whole = read_corpus(data.source, split=data.hub_split, **options)
    parts = {"train": whole}
    if data.validation is None:
        parts = dict(zip(("train", "validation", "test"), split_corpus(whole, data.split), strict=False))
    for part, place in (("validation", data.validation), ("test", data.test)):
        if place is not None:
            source, split = source_of_part(data.source, place, data.hub_split)
            parts[part] = read_corpus(source, split=split, **options)
    return parts


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: documents -> a stream of tokens -> blocks

    data = config.data
    parts = read_parts(data)
    tokenizer = read_tokenizer(config)
    packed = {part: pack([item.text for item in documents], tokenizer) for part, documents in parts.items()}
    stride = config.evaluation.stride or data.block
    train_set = PackedBlocks(packed["train"].ids, data.block)
    evaluation_sets = {
        part: PackedBlocks(text.ids, data.block, stride) for part, text in packed.items() if part != "train"
    }

    # Model

    loaded = new_model(config.scratch, tokenizer) if config.scratch else load_model(AutoModelForCausalLM, config.model)
    check_model(loaded.model, tokenizer, config)
    loaded.model.generation_config.pad_token_id = tokenizer.pad_token_id
    model = tuned(loaded, config.tuning, "CAUSAL_LM")

    # Training

    trainer = FineTuningTrainer(
        model,
        arguments,
        data_collator=train_set.collate,
        train_dataset=train_set,
        eval_dataset=evaluation_sets["validation"],
        compute_loss_func=partial(next_token_loss, label_smoothing=arguments.label_smoothing_factor),
        compute_metrics=LanguageModelScores("token"),
        preprocess_logits_for_metrics=next_token_statistics,
        callbacks=[SampleCallback(tokenizer, config.sample.prompts[0], config.sample.max_new_tokens, arguments.seed)],
        source=config.model,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: documents.fingerprint for part, documents in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)

    before: dict[str, dict[str, Any]] = {}
    written: dict[str, list[str]] = {}
    if not config.scratch:
        # Not by the trainer: a model that it has evaluated is not made one of several processes' for training.
        with torch.autocast(arguments.device.type, torch.bfloat16, enabled=arguments.bf16):
            for part, dataset in evaluation_sets.items():
                score = score_ids(
                    model.eval(), dataset.ids, data.block, stride, unit="token", rows=arguments.eval_batch_size
                )
                before[part] = report.with_text_scores(score, packed[part])
        written["before"] = continuations(model, tokenizer, config.sample, arguments.seed)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation set

    metrics = {
        part: report.with_text_scores(
            scores_of_part(trainer.predict(dataset, metric_key_prefix=part).metrics, part), packed[part]
        )
        for part, dataset in evaluation_sets.items()
    }
    for part, score in before.items():
        metrics[part]["before"] = score
    facts = tuning_facts(model, loaded, config.tuning, config.model)
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        written["after"] = continuations(model, tokenizer, config.sample, arguments.seed)
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, parts, packed, metrics, written, facts)
    trainer.finish()


def continuations(model: Any, tokenizer: PreTrainedTokenizerBase, sample: SampleConfig, seed: int) -> list[str]:
    """What the model writes after each prompt in each way, with the same seed."""
    return [
        sample_text(
            model,
            tokenizer,
            prompt,
            options.get("temperature", 1),
            sample.max_new_tokens,
            seed,
            top_k=int(options.get("top_k", 0)),
            top_p=options.get("top_p", 1),
        )
        for prompt in sample.prompts
        for options in sample.decoding.values()
    ]


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: FineTuningTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Documents],
    packed: Mapping[str, PackedText],
    metrics: Mapping[str, Mapping[str, Any]],
    written: Mapping[str, Sequence[str]],
    facts: Mapping[str, Any],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and samples, its card."""
    run, data, state = command.run, config.data, trainer.state
    model.config.use_cache = True
    model.generation_config.update(
        do_sample=True, temperature=0.8, top_k=0, max_new_tokens=config.sample.max_new_tokens
    )
    model.save_pretrained(run)
    tokenizer.model_max_length = max_positions(model.config) or tokenizer.model_max_length
    tokenizer.save_pretrained(run)
    title = f"{RECIPE}: {command.config.stem}"
    levels = {"before": metrics["validation"]["before"]["nats_per_token"]} if written.get("before") else {}
    plot_curves(run / "loss_curve.png", state.log_history, levels, title, "nats per token", "eval_nats_per_token")
    ways = [(prompt, name) for prompt in config.sample.prompts for name in config.sample.decoding]
    samples = [
        {"prompt": prompt, "decoding": name, **{when: texts[i] for when, texts in written.items()}}
        for i, (prompt, name) in enumerate(ways)
    ]
    rows = [[report.on_one_line(text) for text in row.values()] for row in samples]
    plot_table(run / "samples.png", list(samples[0]), rows, title)
    tokens = state.global_step * data.block * trainer.get_total_train_batch_size(trainer.args)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "block": data.block,
            "stride": config.evaluation.stride or data.block,
            "dropped_tokens": trainer.train_dataset.dropped,
            "parts": {part: report.part_facts(parts[part], packed[part]) for part in parts},
        },
        "model": {
            **facts,
            "base_model": None if config.scratch else facts["base_model"],
            "model_type": model.config.model_type,
            "vocabulary": len(tokenizer),
            "positions": max_positions(model.config),
        },
        "metrics": metrics,
        "training": trainer.training_facts("tokens", tokens),
        "samples": samples,
        "new_tokens": read_prompt(model, tokenizer, samples[0]["prompt"], 40)[1],  # of the example on the card
    }
    publish_run(command, results, report.summary(run, results), model, tokenizer, config.sample.prompts[:2])


if __name__ == "__main__":
    with one_sentence():
        main()

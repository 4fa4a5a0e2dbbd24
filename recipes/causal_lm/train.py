"""Fine-tune a causal language model on a text, or train one from scratch.

accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml \\
    --model.name path/to/gpt2 --data.dataset my.txt
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml --resume
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoModelForCausalLM, PreTrainedConfig, TrainingArguments

from hfattn.data import (
    Documents,
    PackedBlocks,
    PartsConfig,
    Source,
    check_causal,
    check_model,
    check_positions,
    fingerprints,
    pack,
    read_documents,
    split_corpus,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import score_ids
from hfattn.fields import at_least
from hfattn.hub import check_language_model
from hfattn.loading import Loaded, ModelLocation, load_model, load_tokenizer, max_positions
from hfattn.metrics import LanguageModelScores, token_loss, token_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.causal_lm import SampleConfig, continuations, report, with_text_scores
from hfattn.training import (
    FineTuningTrainer,
    PretrainedOrScratchConfig,
    RecipeCommand,
    SampleCallback,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)
from hfattn.training.config import checked

RECIPE = "causal_lm"


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Documents]):
    unit: ClassVar[str] = "characters"

    # "embedded" (the Python language reference), a text file, a .jsonl file, or a dataset on the Hub.
    dataset: str = "embedded"
    # By position: characters of a single document, or whole documents.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])
    lines_are_texts: bool = False  # each line or row is a document; false: the whole dataset is a single document
    document_start: str | None = None  # matches the first line of each document; null: each line is a document
    text_column: str = "text"
    max_length: int = at_least(2, 256)  # tokens that the model reads at once

    def validate_documents(self) -> None:
        if self.document_start is not None and not self.lines_are_texts:
            raise ValueError("document_start needs separate documents; write lines_are_texts: true, or remove it.")

    def read(self, dataset: Source, split: str, train: Documents | None = None) -> Documents:
        return read_documents(
            dataset,
            lines_are_texts=self.lines_are_texts,
            document_start=self.document_start,
            text_column=self.text_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def cut(self, whole: Documents, seed: int) -> list[Documents]:
        return split_corpus(whole, self.split)


class TokenizerLocation(ModelLocation):
    section: ClassVar[str] = "tokenizer"


@strict
@dataclass
class EvaluationConfig:
    stride: int | None = at_least(1, None)  # tokens between the starts of two windows; null: data.max_length


@strict
@dataclass
class Config(PretrainedOrScratchConfig):
    data: DataConfig = field(default_factory=DataConfig)
    # For a model from scratch: the name of a tokenizer (a tokenizer.json, a folder, or an id on the Hub), and revision,
    # trust_remote_code.
    tokenizer: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without data and model, and return the training arguments.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    check_language_model(config.publish)
    arguments = config.arguments(run)
    stride, length = config.evaluation.stride, config.data.max_length
    if config.max_tokens is not None:
        raise UserError("All windows have the same length; write training.per_device_train_batch_size, not max_tokens.")
    if stride is not None and stride > length:
        raise UserError(f"evaluation.stride {stride} skips tokens; write at most data.max_length, {length}.")
    if config.pretrained:
        if config.tokenizer:
            raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
        return arguments
    if config.tuning.method != "full":
        raise UserError(
            f"A model from scratch trains all weights; write tuning.method: full, not {config.tuning.method}."
        )
    check_positions(own_config(config, vocab_size=1 << 20), length)
    checked(TokenizerLocation, config.tokenizer, prefix="tokenizer.")
    return arguments


def own_config(config: Config, vocab_size: int, **ids: int | None) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    if config.model.get("conditioning_size") is not None:
        raise UserError("model.conditioning_size needs a vector for each text, and this recipe has none; remove it.")
    from_data = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "vocab_size": vocab_size, **ids}
    return scratch_config(config.model, from_data)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: documents -> a stream of tokens -> windows

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    tokenizer = load_tokenizer(pretrained or TokenizerLocation(**config.tokenizer))
    packed = {part: pack([item.text for item in documents], tokenizer) for part, documents in parts.items()}
    stride = config.evaluation.stride or data.max_length
    train_set = PackedBlocks(packed["train"].ids, data.max_length)
    evaluation_sets = {
        part: PackedBlocks(text.ids, data.max_length, stride) for part, text in packed.items() if part != "train"
    }

    # Model

    if pretrained:
        loaded = load_model(AutoModelForCausalLM, pretrained)
    else:
        ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        loaded = Loaded(scratch_model(AutoModelForCausalLM, own_config(config, len(tokenizer), **ids)), [])
    check_model(loaded.model, tokenizer, data.max_length)
    check_causal(loaded.model, config.model.get("name", "The model"))
    loaded.model.generation_config.pad_token_id = tokenizer.pad_token_id
    model = tuned(loaded, config.tuning, "CAUSAL_LM")

    # Training

    trainer = FineTuningTrainer(
        model,
        arguments,
        data_collator=train_set.collate,
        train_dataset=train_set,
        eval_dataset=evaluation_sets["validation"],
        compute_loss_func=partial(token_loss, label_smoothing=arguments.label_smoothing_factor),
        compute_metrics=LanguageModelScores("token"),
        preprocess_logits_for_metrics=token_statistics,
        callbacks=[SampleCallback(tokenizer, config.sample.prompts[0], config.sample.max_new_tokens, arguments.seed)],
        source=pretrained,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    before: dict[str, dict[str, Any]] = {}
    written: dict[str, list[str]] = {}
    if pretrained:
        # Not with the trainer, which does not prepare a model for several processes once it has evaluated it.
        with torch.autocast(arguments.device.type, torch.bfloat16, enabled=arguments.bf16):
            for part, dataset in evaluation_sets.items():
                rows = arguments.eval_batch_size
                score = score_ids(model.eval(), dataset.ids, data.max_length, stride, unit="token", rows=rows)
                before[part] = with_text_scores(score, packed[part])
        written["before"] = continuations(model, tokenizer, config.sample, arguments.seed)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation part

    metrics = {}
    for part, dataset in evaluation_sets.items():
        score = scores_of_part(trainer.predict(dataset, metric_key_prefix=part).metrics, part)
        metrics[part] = with_text_scores(score, packed[part]) | ({"before": before[part]} if pretrained else {})
    facts = tuning_facts(model, loaded, config.tuning, pretrained)
    model = trainer.whole_model()
    model.config.use_cache = True
    tokenizer.model_max_length = max_positions(model.config) or tokenizer.model_max_length

    # Output files

    if trainer.is_world_process_zero():
        run = TrainedRun(command, config, trainer, model, tokenizer)
        with finishing(command.run):
            written["after"] = continuations(model, tokenizer, config.sample, arguments.seed)
            report(run, parts, packed, metrics, written, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

"""Train a tagger that finds entities in sentences, from scratch or from a pretrained model.

accelerate launch recipes/token_classification/train.py --config recipes/token_classification/names_bilstm.yaml
accelerate launch recipes/token_classification/train.py --config recipes/token_classification/names_distilbert.yaml
accelerate launch recipes/token_classification/train.py \\
    --config recipes/token_classification/conll2003_distilbert.yaml \\
    --data.dataset train.conll --data.validation dev.conll --data.test test.conll
accelerate launch recipes/token_classification/train.py --config recipes/token_classification/names_distilbert.yaml \\
    --resume
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForTokenClassification, DataCollatorForTokenClassification, PreTrainedConfig

from hfattn.data import (
    EncodedSentences,
    PartsConfig,
    Source,
    Tagged,
    TaggedSentences,
    WordVectorsConfig,
    check_columns,
    check_model,
    check_positions,
    fingerprints,
    read_tagged,
)
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least, one_of
from hfattn.generated import generated_for
from hfattn.hub import vocabulary_texts
from hfattn.loading import Loaded, load_model, load_tokenizer
from hfattn.metrics import EntityScores, token_loss, token_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.token_classification import EvaluatedSentences, report
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    FineTuningTrainer,
    PretrainedOrScratchConfig,
    RecipeCommand,
    TuningConfig,
    check_all_words,
    check_contextual,
    contextual_model,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    subword_tokenizer,
    tuned,
    tuning_facts,
)

RECIPE = "token_classification"
GENERATED = generated_for(RECIPE)


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[TaggedSentences], WordVectorsConfig):
    unit: ClassVar[str] = "sentences"
    generated: ClassVar[tuple[str, ...]] = tuple(GENERATED)

    # Beside "names" (generated sentences): a file as in the shared tasks of CoNLL, a .jsonl file, or a dataset on the
    # Hub.
    dataset: str = "names"
    tokens_column: str = "tokens"  # of a .jsonl file or a dataset on the Hub
    tags_column: str | None = None  # null: ner_tags, or else tags
    labels: list[str] | None = None  # names of the tags, from tag 0 on; null: as in the data
    admit_broken_tags: bool = False  # an I- that continues nothing begins an entity, as conlleval reads it
    examples: int = at_least(1, 8000)  # generated sentences to train on
    evaluation_examples: int = at_least(1, 1000)  # generated sentences in each of the other parts
    max_length: int = at_least(1, 128)  # tokens that the model reads at once, special ones included
    # A longer sentence: cut (the words behind count as predicted O), or read in overlapping windows.
    too_long: str = one_of(("cut", "windows"), "cut")
    overlap: int = at_least(0, 32)  # tokens that two windows share
    label_all_pieces: bool = False  # label all pieces of a word, not only the first

    def generate(self, seed: int) -> dict[str, TaggedSentences]:
        return GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed)

    def read(self, dataset: Source, split: str, train: TaggedSentences | None = None) -> TaggedSentences:
        return read_tagged(
            dataset,
            tokens_column=self.tokens_column,
            tags_column=self.tags_column,
            labels=train.labels if train else self.labels,
            admit_broken_tags=self.admit_broken_tags,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Tagged) -> tuple[str, ...]:
        return item.words


@strict
@dataclass
class EvaluationConfig:
    columns: list[str] = field(default_factory=list)  # columns of the data with a slice for each value


@strict
@dataclass
class SampleConfig:
    mistakes: int = at_least(1, 10)  # sentences with wrong entities to show


@strict
@dataclass
class Config(PretrainedOrScratchConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # for a model from scratch
    contextual: dict[str, Any] = field(default_factory=dict)  # for rnn_encoder: a frozen encoder (ContextualConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without model and data.

    Raises:
        UserError: a section does not describe a valid model, a tokenizer, an optimizer or training arguments.
    """
    tokenizer = config.tokenizer
    if config.pretrained:
        if tokenizer != TokenizerConfig() or config.contextual:
            raise UserError("A pretrained model has its own tokenizer; remove the sections tokenizer and contextual.")
        if config.data.vectors is not None:
            raise UserError("data.vectors is for a model from scratch (model.model_type); remove it.")
        config.check_training()
        return
    if config.tuning != TuningConfig():
        raise UserError("A model from scratch trains all weights; remove the section tuning.")
    if tokenizer.sampling:
        raise UserError("The tags belong to fixed tokens; remove tokenizer.sampling.")
    if tokenizer.kind == "char" and not tokenizer.unknown and not config.contextual.get("subwords"):
        raise UserError("New words may have new characters; write tokenizer.kind: word, or tokenizer.unknown: true.")
    made = own_config(config, vocab_size=1 << 20, pad=0, labels=["O"])
    check_contextual(config, made)
    check_all_words(config)
    check_positions(made, config.data.max_length)
    config.check_training()


def own_config(config: Config, vocab_size: int, pad: int, labels: list[str]) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer and the tags.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    from_data = {"vocab_size": vocab_size, "pad_token_id": pad, "num_labels": len(labels)}
    return scratch_config(config.model, {**from_data, **label_names(labels)})


def label_names(labels: list[str]) -> dict[str, Any]:
    """Return the fields of a configuration that name the tags."""
    return {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: tagged words -> token ids, with the tag of each word at its first piece

    data, pretrained = config.data, config.pretrained
    if pretrained:
        tokenizer = load_tokenizer(pretrained)
    parts = data.read_parts(arguments.seed, command.datasets)
    if not pretrained:
        texts = vocabulary_texts(config, (" ".join(item.words) for item in parts["train"]))
        tokenizer = subword_tokenizer(config) or build_tokenizer(config.tokenizer, texts, ends=False)
    check_columns(config.evaluation.columns, parts["train"])
    reading: dict[str, Any] = {"max_length": data.max_length, "too_long": data.too_long, "overlap": data.overlap}
    reading["label_all_pieces"] = data.label_all_pieces
    encoded = {part: EncodedSentences(sentences, tokenizer, **reading) for part, sentences in parts.items()}

    # Model

    labels, vectors = parts["train"].labels, None
    if pretrained:
        loaded = load_model(AutoModelForTokenClassification, pretrained, **label_names(labels))
    else:
        settings = own_config(config, len(tokenizer), tokenizer.pad_token_id, labels)
        loaded = Loaded(contextual_model(AutoModelForTokenClassification, settings, config, tokenizer), [])
        vectors = data.load(loaded.model, tokenizer)
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, task_type="TOKEN_CLS")

    # Training

    scores = EntityScores(labels)
    scores.expect(encoded["validation"].references, encoded["validation"].windows)
    trainer = FineTuningTrainer(
        model,
        arguments,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_loss_func=partial(token_loss, label_smoothing=arguments.label_smoothing_factor),
        compute_metrics=scores,
        preprocess_logits_for_metrics=token_statistics,
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation sentences

    evaluated = {}
    for part, dataset in encoded.items():
        if part != "train":
            scores.expect(dataset.references, dataset.windows)
            output = trainer.predict(dataset, metric_key_prefix=part)
            metrics = scores_of_part(output.metrics, part)
            evaluated[part] = EvaluatedSentences(metrics, scores.predicted, scores.nats)
    facts = tuning_facts(model, loaded, config.tuning, pretrained)
    model = trainer.whole_model()
    tokenizer.model_max_length = data.max_length

    # Output files

    if trainer.is_world_process_zero():
        run = TrainedRun(command, config, trainer, model, tokenizer)
        with finishing(command.run):
            report(run, encoded, evaluated, vectors, facts, config.evaluation.columns, config.sample.mistakes)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

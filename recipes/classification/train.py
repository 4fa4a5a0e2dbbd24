"""Train a classifier on labelled texts, and leave behind a folder that can be published.

accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml
accelerate launch recipes/classification/train.py --config recipes/classification/imdb_gru.yaml \\
    --data.source my.jsonl --data.test null --data.labels null
accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml --resume
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import PredictionOutput

from hfattn import RNNEncoderConfig, VaswaniConfig
from hfattn.data import (
    REBER,
    REBER_PARTS,
    Coverage,
    EncodedTexts,
    LabelledDataConfig,
    LabelledTexts,
    load_embeddings,
    reber_texts,
    unlabelled,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import predict_classes
from hfattn.explain import alignment, plot_alignment, save_html
from hfattn.hub import write_card
from hfattn.metrics import (
    ClassificationScores,
    ClassifierEvaluationConfig,
    check_columns,
    class_probabilities,
    class_results,
    class_statistics,
    classification_report,
    classification_summary,
    confident_mistakes,
    counterfactual,
    plot_confusion,
    read_swaps,
)
from hfattn.models.modeling_rnn_encoder import find_sentences
from hfattn.models.strict_config import StrictConfig, own_fields
from hfattn.tokenizers import TokenizerConfig, build_sampler, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    ReliableTrainer,
    TrainingConfig,
    family_config,
    last_complete_checkpoint,
    load_config,
    parse_command,
    plot_curves,
    plot_table,
    run_facts,
    scores_of_part,
    write_results,
    writing,
)

RECIPE = "classification"
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (RNNEncoderConfig, VaswaniConfig)}
SHORTEST_DRAWN = 10  # tokens of a text whose attention is worth a picture


# Configuration


@strict
@dataclass
class DataConfig(LabelledDataConfig):
    # Beside a file or the id of a data set on the Hub: "reber" (strings of a grammar, and broken ones).
    source: str = REBER
    texts: int = 10_000  # of the grammar, to train on
    evaluation_texts: int = 2000  # of the grammar, in each of the other parts
    max_length: int = 600  # tokens; what is longer is cut
    keep: str = "first"  # the "first" or the "last" tokens of what is cut
    sentence_ends: str = ".!?"  # a token of these characters alone ends a sentence, for hierarchical pooling
    vectors: str | None = None  # a file of word vectors for the embeddings to begin with; null: none
    words: str | None = None  # where that is a .npy file, the file of its words

    def validate_sizes(self) -> None:
        for name in ("texts", "evaluation_texts", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")
        if self.keep not in ("first", "last"):
            raise ValueError(f"keep is {self.keep!r}; write first or last.")
        if self.words is not None and self.vectors is None:
            raise ValueError("words is the file of the words of vectors; write vectors too, or leave words out.")

    def validate_source(self) -> None:
        if self.source == REBER and (self.validation is not None or self.test is not None):
            raise ValueError("reber has its own validation and test; leave validation and test out.")
        if self.pair_column is not None:
            raise ValueError("pair_column is for models that read two texts; these read one, so leave it out.")

    def read_parts(self, seed: int) -> dict[str, LabelledTexts]:
        if self.source != REBER:
            return super().read_parts(seed)
        numbers = {part: self.texts if part == "train" else self.evaluation_texts for part in REBER_PARTS}
        return {part: reber_texts(part, number, seed) for part, number in numbers.items()}


@strict
@dataclass
class SampleConfig:
    number: int = 10  # of the most confident mistakes shown
    alignments: int = 3  # short texts shown, and what the model looks at in them drawn, where it has attention

    def validate_sizes(self) -> None:
        for name in ("number", "alignments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of that type's configuration
    evaluation: ClassifierEvaluationConfig = field(default_factory=ClassifierEvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def classifier_config(
    config: Config, vocab_size: int, pad: int = 0, sentence_ends: Sequence[int] = (), labels: Sequence[str] = ()
) -> StrictConfig:
    """The model's configuration, with the vocabulary and the classes that the data decide.

    Args:
        config: of the recipe.
        vocab_size: symbols of the tokenizer.
        pad: id of its padding.
        sentence_ends: ids of its tokens that end sentences, for hierarchical pooling.
        labels: names of the classes; without any, as before the data are read, there are two.

    Raises:
        UserError: the section ``model`` names no family of classifiers, or a field that its family has not, or the data
            are not what it can classify.
    """
    for name in ("id2label", "label2id", "num_labels"):
        if name in config.model:
            raise UserError(f"model.{name} follows from the data; leave it out.")
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if config.model.get("model_type") == VaswaniConfig.model_type:
        from_data |= {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
    made = family_config(FAMILIES, config.model, **from_data)
    if not labels:
        return made
    if is_hierarchical(made):
        if not sentence_ends:
            raise UserError(
                "Hierarchical pooling needs tokens that end sentences, and the vocabulary has none of "
                f"{config.data.sentence_ends!r} (data.sentence_ends); write tokenizer.strip_punctuation: false, or "
                "another model.pooling."
            )
        made.sentence_end_token_ids = list(sentence_ends)
    if has_one_sigmoid(made):
        if len(labels) != 2:
            raise UserError(
                f"The data have {len(labels)} classes, and one sigmoid tells two apart; write model.problem_type: "
                "single_label_classification."
            )
        labels = labels[1:]  # what the sigmoid is the probability of
    made.id2label = dict(enumerate(labels))
    made.label2id = {label: i for i, label in enumerate(labels)}
    return made


def has_one_sigmoid(model: StrictConfig) -> bool:
    """Whether a classifier's output is one number, with binary cross-entropy, as in the documents."""
    return model.problem_type == "multi_label_classification"


def is_hierarchical(model: StrictConfig) -> bool:
    return isinstance(model, RNNEncoderConfig) and model.pooling == "hierarchical"


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without the data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, an optimiser or training arguments, or there are no such words to
            swap.
    """
    read_swaps(config.evaluation.swaps)
    model = classifier_config(config, vocab_size=1 << 20)
    arguments = config.arguments(run)
    if has_one_sigmoid(model) and arguments.label_smoothing_factor:
        raise UserError(
            "training.label_smoothing_factor is for a softmax, and this model has one sigmoid; write 0, or "
            "model.problem_type: single_label_classification."
        )
    return arguments


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.check_run()
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(command.run / "logs"))
    set_seed(arguments.seed)

    # Data: texts -> tokenizer, learned on the training texts -> ids

    data = config.data
    parts = data.read_parts(arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    tokenizer = build_tokenizer(config.tokenizer, [item.text for item in parts["train"]], ends=False)
    ends = sentence_end_ids(tokenizer, data.sentence_ends)
    settings = classifier_config(config, len(tokenizer), tokenizer.pad_token_id, ends, parts["train"].labels)
    sampler = build_sampler(config.tokenizer, tokenizer)
    encoded = {
        part: EncodedTexts(
            texts,
            tokenizer,
            data.max_length,
            keep=data.keep,
            float_labels=has_one_sigmoid(settings),
            sampler=sampler if part == "train" else None,
            seed=arguments.seed,
        )
        for part, texts in parts.items()
    }

    # Model

    model = AutoModelForSequenceClassification.from_config(settings)
    coverage = None
    if data.vectors is not None:
        coverage = load_embeddings(model, tokenizer, data.vectors, data.words)

    # Training

    trainer = ReliableTrainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: texts.fingerprint for part, texts in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)
    checkpoint = last_complete_checkpoint(arguments.output_dir) if command.resume else None
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)

    # Evaluation, with the best weights on the validation texts

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, encoded, outputs, coverage)
    trainer.accelerator.wait_for_everyone()  # a process that left before would take the others with it
    trainer.accelerator.end_training()


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ReliableTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, EncodedTexts],
    outputs: Mapping[str, PredictionOutput],
    coverage: Coverage | None,
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and pictures, its card."""
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    run, state = command.run, trainer.state
    model.eval()
    model.save_pretrained(run)
    tokenizer.model_max_length = config.data.max_length  # to which it truncates, where that is asked for
    tokenizer.truncation_side = "left" if config.data.keep == "last" else "right"
    tokenizer.save_pretrained(run)
    labels = parts["train"].labels
    shown = "test" if "test" in parts else "validation"
    metrics = {
        part: scores_of_part(output.metrics, part)
        | classification_report(parts[part], class_results(output), config.evaluation)
        for part, output in outputs.items()
    }
    if config.evaluation.counterfactual_texts:
        step = -(-len(parts[shown]) // config.evaluation.counterfactual_texts)

        def predict(texts: Sequence[str]) -> np.ndarray:
            dataset = EncodedTexts(unlabelled(texts), tokenizer, config.data.max_length, keep=config.data.keep)
            return predict_classes(model, dataset, DataCollatorWithPadding(tokenizer))

        metrics[shown]["counterfactual"] = counterfactual(
            predict, [item.text for item in parts[shown].items[::step]], read_swaps(config.evaluation.swaps)
        )
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per text", "eval_nats_per_example")
    plot_confusion(run / "confusion.png", metrics[shown]["confusion"], labels, f"{title}, {shown}")
    samples = confident_mistakes(parts[shown], class_results(outputs[shown]), config.sample.number)
    if samples:
        plot_table(run / "mistakes.png", list(samples[0]), [list(row.values()) for row in samples], title)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "labels": labels,
            "symbols": len(tokenizer) - len(tokenizer.all_special_ids),
            "tokenizer": config.tokenizer.kind,
            "max_length": config.data.max_length,
            "keep": config.data.keep,
            "parts": {part: {"texts": len(texts), "sha256": texts.fingerprint} for part, texts in parts.items()},
            "vectors": None if coverage is None else vector_facts(config.data, coverage),
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config.model.get("preset"),
            "parameters": model.num_parameters(),
            "trained_parameters": model.num_parameters(only_trainable=True),
            "one_sigmoid": has_one_sigmoid(model.config),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "metrics": metrics,
        "training": {
            **trainer.training_facts("texts", state.epoch * len(parts["train"])),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "short_texts": read_short_texts(run, model, tokenizer, encoded[shown], config.sample.alignments),
    }
    write_results(run / "results.json", results)
    write_card(run, RECIPE, results)
    print(classification_summary(run, results))


def sentence_end_ids(tokenizer: PreTrainedTokenizerBase, characters: str) -> list[int]:
    """Ids of the tokens that are made of these characters alone, such as ".", "!" and "?!" of ".!?"."""
    tokens = ((token.strip(), i) for token, i in tokenizer.get_vocab().items())
    return sorted(i for token, i in tokens if token and set(token) <= set(characters))


def vector_facts(data: DataConfig, coverage: Coverage) -> dict[str, Any]:
    """Which vectors the embeddings began with, and how much of the vocabulary they know."""
    assert data.vectors is not None
    return {
        "name": Path(data.vectors).name,
        "found": coverage.found,
        "missing": len(coverage.missing),
        "share": coverage.share,
        "most_frequent_missing": list(coverage.missing[:10]),
    }


@torch.inference_mode()
def read_short_texts(
    run: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dataset: EncodedTexts, number: int
) -> list[dict[str, str | None]]:
    """How the model reads a few of the shortest texts: their class, and a picture and a page of what it looks at.

    Returns:
        Of each text its class, right and predicted, and the name of its picture, None for a model without attention.
    """
    model.set_attn_implementation("eager")  # the fused ones have no weights to show
    order = np.argsort(dataset.lengths[:, 0], kind="stable")
    long_enough = order[dataset.lengths[order, 0] >= SHORTEST_DRAWN]
    texts = dataset.texts
    read: list[dict[str, str | None]] = []
    for i in (long_enough if len(long_enough) else order)[:number].tolist():
        item = texts.items[i]
        input_ids = torch.tensor([dataset[i]["input_ids"]], device=model.device)
        outputs = model(input_ids, output_attentions=True)
        right, predicted = texts.labels[item.label], texts.labels[int(class_probabilities(outputs.logits).argmax())]
        facts: dict[str, str | None] = {"text": item.text, "right": right, "predicted": predicted, "alignment": None}
        if outputs.attentions:
            if is_hierarchical(model.config):
                outputs.attentions = (word_weights_in_text(model, input_ids, *outputs.attentions),)
            record = alignment(outputs, tokenizer=tokenizer, input_ids=input_ids)
            title = f"{right}, read as {predicted}"
            name = facts["alignment"] = f"alignment-{len(read) + 1}"
            plot_alignment(record, title=title).savefig(run / f"{name}.png", dpi=150)
            save_html(record, run / f"{name}.html", title=title)
        read.append(facts)
    return read


def word_weights_in_text(
    model: PreTrainedModel, input_ids: torch.Tensor, words: torch.Tensor, sentences: torch.Tensor
) -> torch.Tensor:
    """What hierarchical pooling takes of each word: its weight in the sentence times the sentence's in the text.

    Args:
        input_ids: (B, S), without padding.
        words: (B, 1, 1, S) and sentences: (B, 1, 1, N), the weights that the model returned.
    """
    ends = torch.isin(input_ids, torch.tensor(model.config.sentence_end_token_ids, device=input_ids.device))
    found = find_sentences(torch.ones_like(ends), end=ends)
    of_sentence = sentences[found.text, 0, 0, found.order]  # (K,)
    return words * found.join(of_sentence[:, None].expand(found.word_mask.shape), input_ids.shape[1])[:, None, None]


if __name__ == "__main__":
    with one_sentence():
        main()

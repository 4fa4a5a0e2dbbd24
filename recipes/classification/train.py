"""Train a classifier on labelled texts, and leave behind a folder that can be published.

accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml
accelerate launch recipes/classification/train.py --config recipes/classification/imdb_gru.yaml \\
    --data.source my.jsonl --data.test null --data.labels null
accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml --resume
"""

import os
import textwrap
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
    Labelled,
    LabelledTexts,
    check_split,
    is_local,
    load_embeddings,
    read_labelled,
    reber_texts,
    split_labelled,
)
from hfattn.errors import UserError, one_sentence
from hfattn.explain import alignment, plot_alignment, save_html
from hfattn.hub import write_card
from hfattn.metrics import (
    Accuracy,
    ClassificationScores,
    ConfusionMatrix,
    class_probabilities,
    class_statistics,
    column_slices,
    counterfactual,
    length_slices,
    plot_confusion,
    scores_by_slice,
    word_slices,
)
from hfattn.models.modeling_rnn_encoder import find_sentences
from hfattn.models.strict_config import StrictConfig, own_fields
from hfattn.tokenizers import SubwordSampler, TokenizerConfig, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    ReliableTrainer,
    TrainingConfig,
    last_complete_checkpoint,
    load_config,
    model_config,
    parse_command,
    plot_curves,
    plot_table,
    run_facts,
    write_results,
    writing,
)

RECIPE = "classification"
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (RNNEncoderConfig, VaswaniConfig)}
LONGEST_SHOWN = 400  # characters of a text in a table
SHORTEST_DRAWN = 10  # tokens of a text whose attention is worth a picture


# Configuration


@strict
@dataclass
class DataConfig:
    # "reber" (strings of a grammar, and broken ones), a .jsonl file, a tab-separated file whose first line names its
    # columns, or the id of a data set on the Hub.
    source: str = REBER
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct texts, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    text_column: str = "text"
    label_column: str = "label"
    labels: list[str] | None = None  # names of the classes, from class 0 on; null: as the data have them
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
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

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write 'reber', the path of a file, or the id of a Hub data set.")
        check_split(self.split, unit="texts")
        if self.source == REBER and (self.validation is not None or self.test is not None):
            raise ValueError("reber has its own validation and test; leave validation and test out.")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")


@strict
@dataclass
class EvaluationConfig:
    columns: list[str] = field(default_factory=list)  # of the data: a slice for each value
    words: list[str] = field(default_factory=list)  # a slice for the texts that hold the word
    counterfactual_texts: int = 2000  # in which words are swapped that should not matter; 0 is none

    def validate_sizes(self) -> None:
        if self.counterfactual_texts < 0:
            raise ValueError(
                f"counterfactual_texts is {self.counterfactual_texts}; write a whole number, or 0 for none."
            )


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
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
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
    fields = dict(config.model)
    family = fields.pop("model_type", None)
    if family not in FAMILIES:
        raise UserError(f"model.model_type is {family!r}; write one of {', '.join(FAMILIES)}.")
    for name in ("id2label", "label2id", "num_labels"):
        if name in fields:
            raise UserError(f"model.{name} follows from the data; leave it out.")
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if family == VaswaniConfig.model_type:
        from_data |= {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
    made = model_config(FAMILIES[family], fields, **from_data)
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
        UserError: a section does not make a model, an optimiser or training arguments.
    """
    model = classifier_config(config, vocab_size=1 << 20)
    arguments = config.arguments(run)
    if has_one_sigmoid(model) and arguments.label_smoothing_factor:
        raise UserError(
            "training.label_smoothing_factor is for a softmax, and this model has one sigmoid; write 0, or "
            "model.problem_type: single_label_classification."
        )
    return arguments


def read_parts(data: DataConfig, seed: int) -> dict[str, LabelledTexts]:
    """The texts of each part: train, validation, and the test where there is one."""
    if data.source == REBER:
        numbers = {part: data.texts if part == "train" else data.evaluation_texts for part in REBER_PARTS}
        return {part: reber_texts(part, number, seed) for part, number in numbers.items()}
    options: dict[str, Any] = {
        "text_column": data.text_column,
        "label_column": data.label_column,
        "config": data.config,
        "revision": data.revision,
    }
    whole = read_labelled(data.source, labels=data.labels, split=data.hub_split, **options)
    parts = {"train": whole}
    if data.validation is None:
        parts = dict(zip(("train", "validation", "test"), split_labelled(whole, data.split, seed), strict=False))
    on_hub = not is_local(data.source)
    for part, place in (("validation", data.validation), ("test", data.test)):
        if place is not None:
            source, split = (data.source, place) if on_hub else (place, data.hub_split)
            parts[part] = read_labelled(source, labels=whole.labels, split=split, **options)
    return parts


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.check_run()
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(command.run / "logs"))
    set_seed(arguments.seed)

    # Data: texts -> tokenizer, learned on the training texts -> ids

    data = config.data
    parts = read_parts(data, arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    tokenizer = build_tokenizer(config.tokenizer, [item.text for item in parts["train"]], ends=False)
    ends = sentence_end_ids(tokenizer, data.sentence_ends)
    settings = classifier_config(config, len(tokenizer), tokenizer.pad_token_id, ends, parts["train"].labels)
    sampler = SubwordSampler(tokenizer, config.tokenizer.sampling) if config.tokenizer.sampling else None
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
    metrics = {part: scores(config, parts[part], output, part) for part, output in outputs.items()}
    if config.evaluation.counterfactual_texts:
        step = -(-len(parts[shown]) // config.evaluation.counterfactual_texts)
        metrics[shown]["counterfactual"] = counterfactual(
            lambda texts: predict(model, tokenizer, config, texts), [item.text for item in parts[shown].items[::step]]
        )
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per text", "eval_nats_per_example")
    plot_confusion(run / "confusion.png", metrics[shown]["confusion"], labels, f"{title}, {shown}")
    samples = confident_mistakes(parts[shown], outputs[shown], config.sample.number)
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
            "steps": state.global_step,
            "epochs": state.epoch,
            "best_step": None if config.averaging.last else state.best_global_step,  # or the mean of the last ones
            "wall_time_seconds": round(trainer.training_seconds, 2),  # evaluations and checkpoints included
            "texts_per_second": round(state.epoch * len(parts["train"]) / trainer.training_seconds),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "short_texts": read_short_texts(run, model, tokenizer, encoded[shown], config.sample.alignments),
    }
    write_results(run / "results.json", results)
    write_card(run, RECIPE, results)
    print(summary(run, results))


def sentence_end_ids(tokenizer: PreTrainedTokenizerBase, characters: str) -> list[int]:
    """Ids of the tokens that are made of these characters alone, such as ".", "!" and "?!" of ".!?"."""
    tokens = ((token.strip(), i) for token, i in tokenizer.get_vocab().items())
    return sorted(i for token, i in tokens if token and set(token) <= set(characters))


def check_columns(columns: Sequence[str], texts: LabelledTexts) -> None:
    """Make sure that the data have the columns that are to be evaluated value by value."""
    known = texts.items[0].fields
    for column in columns:
        if column not in known:
            raise UserError(
                f"evaluation.columns names {column!r}, and beside text and label {texts.name} has "
                f"{', '.join(known) or 'no column'}; write one of these, or leave it out."
            )


def scores(config: Config, texts: LabelledTexts, output: PredictionOutput, part: str) -> dict[str, Any]:
    """The scores of a part: on the whole, class by class, and slice by slice."""
    predicted, right = (
        np.asarray(ids).reshape(-1).astype(int).tolist() for ids in (output.predictions[0], output.label_ids)
    )
    words = [item.text for item in texts.items]
    slices = length_slices(words) | column_slices("class", [texts.labels[label] for label in right])
    for column in config.evaluation.columns:
        slices |= column_slices(column, [item.fields[column] for item in texts.items])
    slices |= word_slices(words, config.evaluation.words)
    confusion = ConfusionMatrix().compute(predictions=predicted, references=right, num_classes=len(texts.labels))
    return {
        **{key.removeprefix(f"{part}_"): value for key, value in output.metrics.items()},
        "confusion": confusion["confusion_matrix"],
        "by_slice": scores_by_slice(Accuracy(), predicted, right, slices),
    }


@torch.inference_mode()
def predict(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, config: Config, texts: Sequence[str], rows: int = 128
) -> np.ndarray:
    """Probabilities (n, C) of the classes of n texts; they are read in the order of their lengths."""
    labelled = LabelledTexts("counterfactuals", [Labelled(text, 0, None, {}) for text in texts], ["any"])
    dataset = EncodedTexts(labelled, tokenizer, config.data.max_length, keep=config.data.keep)
    collate = DataCollatorWithPadding(tokenizer)
    order = np.argsort(dataset.lengths[:, 0], kind="stable")
    probabilities = []
    for start in range(0, len(order), rows):
        batch = collate([dataset[int(i)] for i in order[start : start + rows]])
        inputs = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
        probabilities.append(class_probabilities(model(**inputs).logits.float()).cpu())
    return torch.cat(probabilities).numpy()[np.argsort(order)]


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


def confident_mistakes(texts: LabelledTexts, output: PredictionOutput, number: int) -> list[dict[str, Any]]:
    """The texts whose right class the model thought least of."""
    predicted, nats = (np.asarray(each) for each in output.predictions[:2])
    right = np.asarray(output.label_ids).reshape(-1).astype(int)
    wrong = np.flatnonzero(predicted != right)
    return [
        {
            "place": texts.place(i),
            "text": textwrap.shorten(texts.items[i].text, LONGEST_SHOWN, placeholder=" …"),
            "right": texts.labels[right[i]],
            "predicted": texts.labels[predicted[i]],
            "probability of the right class": f"{np.exp(-nats[i]):.2g}",
        }
        for i in wrong[np.argsort(-nats[wrong], kind="stable")][:number].tolist()
    ]


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


def summary(run: Path, results: Mapping[str, Any]) -> str:
    """The end of a run in words: its scores, where they are lowest, what moves it that should not, how to go on."""
    lines = ["", f"{'':16}{'texts':>8}{'accuracy':>10}{'F1':>10}{'nats/text':>11}"]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part:16}{score['examples']:8d}{score['accuracy']:10.4f}{score['f1']:10.4f}{score['nats_per_example']:11.4f}"
        )
    shown = results["metrics"].get("test", results["metrics"]["validation"])
    lines += ["", f"{'slice':24}{'texts':>8}{'accuracy':>10}"]
    lines += [
        f"{name:24}{score['examples']:8d}{score['accuracy']:10.4f}"
        for name, score in shown["by_slice"].items()
        if score["examples"]
    ]
    for kind, moved in shown.get("counterfactual", {}).items():
        if moved["texts"]:
            lines.append(
                f"{kind} swapped in {moved['texts']} texts: {moved['flipped']:.2%} of the predictions flip, "
                f"their probabilities move by {moved['mean_shift']:.4f}"
            )
    return "\n".join([*lines, "", f"Model, results, curve and pictures: {run}"])


if __name__ == "__main__":
    with one_sentence():
        main()

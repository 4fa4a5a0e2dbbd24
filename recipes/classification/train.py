"""Train a classifier on labelled texts, and leave behind a folder that can be published.

accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml
accelerate launch recipes/classification/train.py --config recipes/classification/imdb_gru.yaml \\
    --data.source my.jsonl --data.test null --data.labels null
accelerate launch recipes/classification/train.py --config recipes/classification/reber.yaml --resume
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)
from transformers.trainer_utils import PredictionOutput

from hfattn.data import (
    Coverage,
    EncodedTexts,
    LabelledTexts,
    load_embeddings,
    unlabelled,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import predict_classes
from hfattn.generated import generated_for
from hfattn.metrics import (
    ClassificationScores,
    check_columns,
    class_results,
    class_statistics,
    classification_report,
    classification_summary,
    confident_mistakes,
    counterfactual,
    read_swaps,
)
from hfattn.models.strict_config import own_fields
from hfattn.plots import plot_confusion, plot_curves, plot_table
from hfattn.tokenizers import build_sampler, build_tokenizer
from hfattn.training import (
    ClassifierConfig,
    ClassifierDataConfig,
    RecipeCommand,
    ReliableTrainer,
    classifier_config,
    has_one_sigmoid,
    load_config,
    parse_command,
    publish_run,
    read_short_texts,
    run_facts,
    scores_of_part,
    sentence_end_ids,
    vector_facts,
    writing,
)

RECIPE = "classification"
_GENERATED = generated_for(RECIPE)


# Configuration


@strict
@dataclass
class DataConfig(ClassifierDataConfig):
    # Beside a file or the id of a data set on the Hub: "reber" (strings of a grammar, and broken ones), or "opinions"
    # (of films, from templates in two languages).
    source: str = "reber"
    texts: int = 10_000  # that are generated, to train on
    evaluation_texts: int = 2000  # that are generated, in each of the other parts

    def validate_sizes(self) -> None:
        for name in ("texts", "evaluation_texts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")

    def validate_source(self) -> None:
        if self.source in _GENERATED and (self.validation is not None or self.test is not None):
            raise ValueError(f"{self.source} has its own validation and test; leave validation and test out.")

    def read_parts(self, seed: int) -> dict[str, LabelledTexts]:
        if self.source not in _GENERATED:
            return super().read_parts(seed)
        return _GENERATED[self.source].draw_parts(self.texts, self.evaluation_texts, seed)


@strict
@dataclass
class Config(ClassifierConfig):
    data: DataConfig = field(default_factory=DataConfig)


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
    command.start(arguments)

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
            too_long="cut_start" if data.keep == "last" else "cut",
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
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation texts

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, encoded, outputs, coverage)
    trainer.finish()


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
            dataset = EncodedTexts(
                unlabelled(texts),
                tokenizer,
                config.data.max_length,
                too_long="cut_start" if config.data.keep == "last" else "cut",
            )
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
    probes = [read["text"] for read in results["short_texts"][:2]]
    publish_run(command, results, classification_summary(run, results), model, tokenizer, probes)


if __name__ == "__main__":
    with one_sentence():
        main()

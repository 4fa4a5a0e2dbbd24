"""Fine-tune a pretrained model to classify texts, or pairs of texts, and leave behind a folder that can be published.

accelerate launch recipes/sequence_classification/train.py --config recipes/sequence_classification/sst2_minilm.yaml
accelerate launch recipes/sequence_classification/train.py --config recipes/sequence_classification/imdb_minilm.yaml \\
    --model.name my_model --data.source my.jsonl --data.test null --data.labels null
accelerate launch recipes/sequence_classification/train.py --config recipes/sequence_classification/sst2_minilm.yaml \\
    --resume
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)
from transformers.trainer_utils import PredictionOutput

import hfattn  # noqa: F401  its own models can be fine-tuned like the others
from hfattn.data import FittedTexts, LabelledDataConfig, WindowCollator, unlabelled
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import predict_classes
from hfattn.loading import ModelLocation, load_model, load_tokenizer, max_positions
from hfattn.metrics import (
    ClassificationScores,
    ClassifierEvaluationConfig,
    check_columns,
    class_results,
    class_statistics,
    classification_report,
    classification_summary,
    confident_mistakes,
    counterfactual,
    read_swaps,
)
from hfattn.plots import plot_confusion, plot_curves, plot_table
from hfattn.training import (
    ClassifierTrainer,
    FineTuningConfig,
    RecipeCommand,
    TuningConfig,
    class_weights,
    load_config,
    parse_command,
    publish_run,
    run_facts,
    scores_of_part,
    tuned,
    tuning_facts,
    writing,
)

RECIPE = "sequence_classification"


# Configuration


@strict
@dataclass
class DataConfig(LabelledDataConfig):
    source: str = "stanfordnlp/sst2"
    max_length: int = 128  # tokens of an input, special ones included
    # What is read of a longer text: its first tokens ("head"), a quarter from its start and the rest from its end
    # ("head_tail"), or all of it in overlapping inputs, whose logits are averaged ("windows").
    long: str = "head"
    overlap: int = 64  # tokens that a window repeats of the one before
    training_texts: int | None = None  # so many of them, drawn with the seed; null: all

    def validate_sizes(self) -> None:
        for name in ("max_length", "training_texts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; write a whole number of at least 1.")


@strict
@dataclass
class SampleConfig:
    number: int = 10  # of the most confident mistakes shown

    def validate_sizes(self) -> None:
        if self.number < 1:
            raise ValueError(f"number is {self.number}; write a whole number of at least 1.")


@strict
@dataclass
class Config(FineTuningConfig):
    data: DataConfig = field(default_factory=DataConfig)
    class_weights: str | list[float | int] | None = None  # balanced, or one for each class; null: all alike
    evaluation: ClassifierEvaluationConfig = field(default_factory=ClassifierEvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without model and data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make an optimiser or training arguments, or there are no such words to swap.
    """
    read_swaps(config.evaluation.swaps)
    return config.arguments(run)


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: texts -> ids of the pretrained tokenizer

    data = config.data
    tokenizer = load_tokenizer(config.model)
    parts = data.read_parts(arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    if data.training_texts is not None:
        parts["train"] = parts["train"].sample(data.training_texts, arguments.seed)
    weights = class_weights(config.class_weights, parts["train"])
    encoded = {
        part: FittedTexts(texts, tokenizer, data.max_length, long=data.long, overlap=data.overlap)
        for part, texts in parts.items()
    }

    # Model

    labels = parts["train"].labels
    loaded = load_model(
        AutoModelForSequenceClassification,
        config.model,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
        pad_token_id=tokenizer.pad_token_id,
        problem_type="single_label_classification",
    )
    check_model(loaded.model, tokenizer, data.max_length)
    model = tuned(loaded, config.tuning, task_type="SEQ_CLS")

    # Training

    trainer = ClassifierTrainer(
        model,
        arguments,
        data_collator=WindowCollator(tokenizer),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
        source=config.model,
        tuning=config.tuning,
        class_weights=weights,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: texts.fingerprint for part, texts in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation texts

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    facts = tuning_facts(model, loaded, config.tuning, config.model)
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, encoded, outputs, facts)
    trainer.finish()


def evaluate(config: Config, folder: Path, parts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The scores of a folder that this recipe, or ``hfattn soup``, has written, on parts of the data."""
    source = ModelLocation(name=str(folder))
    tokenizer = load_tokenizer(source)
    texts = config.data.read_parts(int(config.training.get("seed", TrainingArguments.seed)))
    data = config.data
    encoded = {
        part: FittedTexts(texts[part], tokenizer, data.max_length, long=data.long, overlap=data.overlap)
        for part in parts
    }
    with TemporaryDirectory() as scratch:
        trainer = ClassifierTrainer(
            load_model(AutoModelForSequenceClassification, source).model,
            config.arguments(Path(scratch)),
            data_collator=WindowCollator(tokenizer),
            eval_dataset=encoded[parts[0]],
            compute_metrics=ClassificationScores(),
            preprocess_logits_for_metrics=class_statistics,
            source=source,
            tuning=TuningConfig(),
        )
        return {
            part: scores_of_part(trainer.predict(dataset, metric_key_prefix=part).metrics, part)
            for part, dataset in encoded.items()
        }


def say(folder: Path, texts: Sequence[str]) -> dict[str, Any]:
    """What a folder's model says of a text, or of a pair: ``example`` of it."""
    source = ModelLocation(name=str(folder))
    return example(load_model(AutoModelForSequenceClassification, source).model.eval(), load_tokenizer(source), texts)


def check_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, max_length: int) -> None:
    """Make sure that a model can read what the tokenizer makes.

    Raises:
        UserError: texts are longer than the model can read, or there are more tokens than it has embeddings for.
    """
    positions = max_positions(model.config)
    if positions is not None and max_length > positions:
        raise UserError(
            f"data.max_length is {max_length}, and the model reads at most {positions} tokens; write at most that, and "
            "data.long: windows to read longer texts."
        )
    embeddings = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > embeddings:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens, and the model embeds {embeddings}; write the model.name of a "
            "model with a tokenizer of its own."
        )


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ClassifierTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    encoded: Mapping[str, FittedTexts],
    outputs: Mapping[str, PredictionOutput],
    tuning: Mapping[str, Any],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and pictures, its card."""
    parts = {part: dataset.texts for part, dataset in encoded.items()}
    run, state, data = command.run, trainer.state, config.data
    model.eval()
    model.save_pretrained(run)
    tokenizer.model_max_length = data.max_length  # to which it truncates, where that is asked for
    tokenizer.save_pretrained(run)
    labels = parts["train"].labels
    shown = "test" if "test" in parts else "validation"
    metrics = {
        part: scores_of_part(output.metrics, part)
        | classification_report(parts[part], class_results(output), config.evaluation)
        for part, output in outputs.items()
    }
    if config.evaluation.counterfactual_texts and not parts[shown].has_pairs:
        step = -(-len(parts[shown]) // config.evaluation.counterfactual_texts)

        def predict(texts: Sequence[str]) -> np.ndarray:
            dataset = FittedTexts(unlabelled(texts), tokenizer, data.max_length, long=data.long, overlap=data.overlap)
            with trainer.accelerator.autocast():
                return predict_classes(model, dataset, WindowCollator(tokenizer), trainer.args.eval_batch_size)

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
            "pairs": parts["train"].has_pairs,
            "max_length": data.max_length,
            "long": data.long,
            "overlap": data.overlap if data.long == "windows" else None,
            "parts": {
                part: {"texts": len(dataset), "cut": dataset.cut, "sha256": dataset.texts.fingerprint}
                for part, dataset in encoded.items()
            },
        },
        "model": {"model_type": model.config.model_type, **tuning},
        "metrics": metrics,
        "training": {
            **trainer.training_facts("texts", state.epoch * len(parts["train"])),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "own_code": any(run.glob("modeling_*.py")),  # one of our models, whose code is beside its weights
        "example": example(model, tokenizer, parts[shown].texts(parts[shown].items[0])),
    }
    probes = [parts[shown].texts(item) for item in parts[shown].items[:2]]
    publish_run(command, results, classification_summary(run, results), model, tokenizer, probes)


@torch.inference_mode()
def example(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> dict[str, Any]:
    """A text, or a pair, and what the model says of it as its users will call it: its first tokens alone."""
    inputs = tokenizer(*texts, truncation=True, return_tensors="pt").to(model.device)
    probabilities = model(**inputs).logits[0].softmax(-1)
    best = int(probabilities.argmax())
    return {
        "texts": list(texts),
        "label": model.config.id2label[best],
        "probability": round(float(probabilities[best]), 4),
    }


if __name__ == "__main__":
    with one_sentence():
        main()

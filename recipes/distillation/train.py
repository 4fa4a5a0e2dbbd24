"""Train a small classifier to say what a large one says, and leave behind a folder that can be published.

accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml
accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml \\
    --teacher.name runs/sequence_classification-sst2_minilm --distillation.alpha 0
accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml --resume
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

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
    AugmentationConfig,
    Coverage,
    EncodedTexts,
    LabelledTexts,
    augmented,
    load_embeddings,
    read_unlabelled,
    unlabelled,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import predict_classes
from hfattn.metrics import (
    Accuracy,
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
    DistillationConfig,
    DistillationTrainer,
    ImitatedTexts,
    RecipeCommand,
    Teacher,
    TeacherConfig,
    TeacherOutputs,
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

RECIPE = "distillation"
SST2_TEACHER = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
TIMED_TEXTS = 64  # from which the speeds of teacher and student are told


# Configuration


@strict
@dataclass
class DataConfig(ClassifierDataConfig):
    source: str = "stanfordnlp/sst2"
    # Texts that only the teacher labels: a .txt file with one on each line, or a .jsonl or .tsv file with text_column.
    unlabelled: str | None = None


@strict
@dataclass
class Config(ClassifierConfig):
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=lambda: TeacherConfig(name=SST2_TEACHER))
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without teacher and data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, an optimiser or training arguments, there are no such words to swap,
            or the student cannot say what a teacher says.
    """
    read_swaps(config.evaluation.swaps)
    if has_one_sigmoid(classifier_config(config, vocab_size=1 << 20)):
        raise UserError(
            "A teacher has a number for each class, and this student one sigmoid; write model.problem_type: "
            "single_label_classification."
        )
    masks = config.augmentation.copies > 0 and config.augmentation.mask > 0
    if masks and config.tokenizer.kind == "char" and not config.tokenizer.unknown:
        raise UserError(
            "augmentation.mask makes words unknown, and this tokenizer has no unknown symbol; write tokenizer.unknown: "
            "true, or augmentation.mask: 0."
        )
    # The projection of the student's vectors stands beside its layers, where DistributedDataParallel would not look.
    return config.arguments(run, ddp_find_unused_parameters=False)


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: texts -> tokenizer, learned on the labelled training texts -> ids; with those that only the teacher labels

    data = config.data
    parts = data.read_parts(arguments.seed)
    check_columns(config.evaluation.columns, parts["train"])
    extra = extra_texts(config, parts, arguments.seed)
    tokenizer = build_tokenizer(config.tokenizer, [item.text for item in parts["train"]], ends=False)
    ends = sentence_end_ids(tokenizer, data.sentence_ends)
    settings = classifier_config(config, len(tokenizer), tokenizer.pad_token_id, ends, parts["train"].labels)
    sampler = build_sampler(config.tokenizer, tokenizer)
    items = [item for texts in (parts["train"], *extra.values()) for item in texts]
    encoded = {
        part: EncodedTexts(
            texts,
            tokenizer,
            data.max_length,
            too_long="cut_start" if data.keep == "last" else "cut",
            sampler=sampler if part == "train" else None,
            seed=arguments.seed,
        )
        for part, texts in (parts | {"train": replace(parts["train"], items=items)}).items()
    }

    # Model

    model = AutoModelForSequenceClassification.from_config(settings)
    coverage = None
    if data.vectors is not None:
        coverage = load_embeddings(model, tokenizer, data.vectors, data.words)

    # Teacher: what it says of all texts, once

    teacher = Teacher(config.teacher, parts["train"].labels)
    imitates, hidden = config.distillation.imitates, config.distillation.hidden_weight > 0
    fitted = {part: teacher.fit(dataset.texts) for part, dataset in encoded.items() if part != "train" or imitates}
    fingerprints = {part: texts.fingerprint for part, texts in (parts | extra).items()}
    command.claim_run(config, texts=fingerprints, teacher=teacher.fingerprint, processes=arguments.world_size)
    teacher.model.to(arguments.device)
    said = {}
    with arguments.main_process_first(local=False):  # the others find its files
        for part, texts in fitted.items():
            said[part] = teacher.read_once(
                texts,
                Path(arguments.output_dir) / "teacher" / f"{part}.safetensors",
                arguments.per_device_eval_batch_size,
                vectors=hidden and part == "train",
                bf16=arguments.bf16,
                progress=f"the teacher reads {part}" if arguments.process_index == 0 else None,
            )

    # Training

    trainer = DistillationTrainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=ImitatedTexts(encoded["train"], len(parts["train"]), said["train"])
        if imitates
        else encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
        distillation=config.distillation,
        teacher_width=said["train"].width if imitates else None,
        **config.trainer_options(arguments),
    )
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation texts

    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, model, tokenizer, parts, extra, outputs, coverage, teacher, said)
    trainer.finish()


def extra_texts(config: Config, parts: Mapping[str, LabelledTexts], seed: int) -> dict[str, LabelledTexts]:
    """The texts that only the teacher labels; none where it is not imitated.

    Raises:
        UserError: as ``read_unlabelled``.
    """
    extra = {}
    if config.data.unlabelled is not None:
        known = {item.text for texts in parts.values() for item in texts}
        extra["unlabelled"] = read_unlabelled(config.data.unlabelled, config.data.text_column, without=known)
    if config.augmentation.copies:
        extra["augmented"] = augmented(parts["train"], config.augmentation, seed)
    return extra if config.distillation.imitates else {}


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: DistillationTrainer,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, LabelledTexts],
    extra: Mapping[str, LabelledTexts],
    outputs: Mapping[str, PredictionOutput],
    coverage: Coverage | None,
    teacher: Teacher,
    said: Mapping[str, TeacherOutputs],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and pictures, its card."""
    run, state, data = command.run, trainer.state, config.data
    model.eval()
    model.save_pretrained(run)
    tokenizer.model_max_length = data.max_length  # to which it truncates, where that is asked for
    tokenizer.truncation_side = "left" if data.keep == "last" else "right"
    tokenizer.save_pretrained(run)
    labels = parts["train"].labels
    shown = "test" if "test" in parts else "validation"
    rows, collate = trainer.args.per_device_eval_batch_size, DataCollatorWithPadding(tokenizer)

    def encode(texts: LabelledTexts) -> EncodedTexts:
        return EncodedTexts(texts, tokenizer, data.max_length, too_long="cut_start" if data.keep == "last" else "cut")

    def predict(dataset: EncodedTexts) -> np.ndarray:
        with trainer.accelerator.autocast():
            return predict_classes(model, dataset, collate, rows)

    metrics = {
        part: scores_of_part(output.metrics, part)
        | beside_teacher(output, said[part])
        | classification_report(parts[part], class_results(output), config.evaluation)
        for part, output in outputs.items()
    }
    if config.evaluation.counterfactual_texts:
        step = -(-len(parts[shown]) // config.evaluation.counterfactual_texts)
        metrics[shown]["counterfactual"] = counterfactual(
            lambda texts: predict(encode(unlabelled(texts))),
            [item.text for item in parts[shown].items[::step]],
            read_swaps(config.evaluation.swaps),
        )
    timed = parts[shown].sample(TIMED_TEXTS, trainer.args.seed)
    student_reads, teacher_reads = encode(timed), teacher.fit(timed)
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
            "max_length": data.max_length,
            "keep": data.keep,
            "parts": {part: {"texts": len(texts), "sha256": texts.fingerprint} for part, texts in parts.items()},
            "extra": {
                kind: {"name": texts.name, "texts": len(texts), "sha256": texts.fingerprint}
                for kind, texts in extra.items()
            },
            "timed_texts": len(timed),
            "vectors": None if coverage is None else vector_facts(data, coverage),
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config.model.get("preset"),
            "parameters": model.num_parameters(),
            "trained_parameters": model.num_parameters(only_trainable=True),
            "texts_per_second": texts_per_second(lambda: predict(student_reads), len(timed)),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "teacher": {
            "name": teacher.name,
            "revision": config.teacher.revision,
            "parameters": teacher.model.num_parameters(),
            "texts_per_second": texts_per_second(
                lambda: teacher.read(teacher_reads, rows, bf16=trainer.args.bf16), len(timed)
            ),
            "sha256": teacher.fingerprint,
        },
        "distillation": asdict(config.distillation) | {"imitates": config.distillation.imitates},
        "metrics": metrics,
        "training": {
            **trainer.training_facts("texts", state.epoch * len(trainer.train_dataset)),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "short_texts": read_short_texts(run, model, tokenizer, encode(parts[shown]), config.sample.alignments),
    }
    probes = [read["text"] for read in results["short_texts"][:2]]
    publish_run(command, results, classification_summary(run, results), model, tokenizer, probes)
    print(comparison(results))


def beside_teacher(output: PredictionOutput, said: TeacherOutputs) -> dict[str, float]:
    """The teacher's accuracy on a part, and the share of its texts that student and teacher put into the same class."""
    predicted, right, _ = class_results(output)
    taught = said.logits.argmax(-1)
    return {
        "teacher_accuracy": Accuracy().compute(predictions=taught, references=right)["accuracy"],
        "agreement": Accuracy().compute(predictions=predicted, references=taught)["accuracy"],
    }


def texts_per_second(read: Callable[[], object], number: int) -> float:
    """How fast so many texts are read, at the second time."""
    read()
    started = time.perf_counter()
    read()
    return round(number / (time.perf_counter() - started), 1)


def comparison(results: Mapping[str, Any]) -> str:
    """Teacher and student side by side, in words."""
    parts: Sequence[str] = list(results["metrics"])
    lines = ["", f"{'':10}{'parameters':>14}{'texts/s':>10}" + "".join(f"{part:>12}" for part in parts)]
    for who, model, score in (("teacher", "teacher", "teacher_accuracy"), ("student", "model", "accuracy")):
        facts = results[model]
        scores = "".join(f"{results['metrics'][part][score]:12.4f}" for part in parts)
        lines.append(f"{who:10}{facts['parameters']:14,d}{facts['texts_per_second']:10.1f}{scores}")
    lines.append(f"{'agreement':34}" + "".join(f"{results['metrics'][part]['agreement']:12.4f}" for part in parts))
    return "\n".join(lines)


if __name__ == "__main__":
    with one_sentence():
        main()

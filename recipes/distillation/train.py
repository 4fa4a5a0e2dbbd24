"""Distill a large classifier into a small one, and write a folder that can be published.

accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml
accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml \\
    --teacher.name runs/classification-sst2_minilm --distillation.alpha 0
accelerate launch recipes/distillation/train.py --config recipes/distillation/sst2_bilstm.yaml --resume
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from huggingface_hub.dataclasses import strict
from transformers import AutoModelForSequenceClassification, DataCollatorWithPadding

from hfattn.data import (
    AugmentationConfig,
    EncodedTexts,
    LabeledTexts,
    augmented,
    check_columns,
    fingerprints,
    read_unlabeled,
)
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import set_reading
from hfattn.hub import vocabulary_texts
from hfattn.metrics import ClassificationScores, class_statistics, read_swaps
from hfattn.reports.base import TrainedRun
from hfattn.reports.distillation import report
from hfattn.tokenizers import build_sampler, build_tokenizer
from hfattn.training import (
    DistillationConfig,
    DistillationTrainer,
    ImitatedTexts,
    OwnClassifierConfig,
    OwnClassifierDataConfig,
    RecipeCommand,
    Teacher,
    TeacherConfig,
    check_all_words,
    check_contextual,
    contextual_model,
    finishing,
    has_one_sigmoid,
    initialize_embeddings,
    load_config,
    own_classifier_config,
    own_facts,
    parse_command,
    sentence_end_ids,
    subword_tokenizer,
)

RECIPE = "distillation"
SST2_TEACHER = "distilbert/distilbert-base-uncased-finetuned-sst-2-english"


# Configuration


@strict
@dataclass
class DataConfig(OwnClassifierDataConfig):
    dataset: str = "stanfordnlp/sst2"
    # Texts that only the teacher labels: a .txt file with one text per line, or a .jsonl or .tsv file with text_column.
    unlabeled: str | None = None

    def validate_pairs(self) -> None:
        if self.pair_column is not None:
            raise ValueError("pair_column is for the recipe classification; the student reads one text, so remove it.")
        if self.regression:
            raise ValueError("regression predicts a number, and the student imitates classes; remove it.")
        if self.multi_label:
            raise ValueError("multi_label gives a text several labels, and the student imitates classes; remove it.")


@strict
@dataclass
class Config(OwnClassifierConfig):
    data: DataConfig = field(default_factory=DataConfig)
    teacher: TeacherConfig = field(default_factory=lambda: TeacherConfig(name=SST2_TEACHER))
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    augmentation: AugmentationConfig = field(default_factory=AugmentationConfig)


def validate(config: Config) -> None:
    """Check what can be checked without teacher and data (``hfattn recipes validate``).

    Raises:
        UserError: a section is invalid, or two do not go together.
    """
    read_swaps(config.evaluation.swaps)
    config.sample.check_examples(pairs=False)
    made = own_classifier_config(config, vocab_size=1 << 20)
    check_contextual(config, made)
    check_all_words(config)
    if has_one_sigmoid(made):
        raise UserError(
            "A teacher has a logit per class, and this student one sigmoid; write model.problem_type: "
            "single_label_classification."
        )
    masks = config.augmentation.copies > 0 and config.augmentation.mask > 0
    if masks and config.tokenizer.kind == "char" and not config.tokenizer.unknown:
        raise UserError(
            "augmentation.mask replaces words by the unknown token, and this tokenizer has none; write "
            "tokenizer.unknown: true, or augmentation.mask: 0."
        )
    config.check_training()


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    # The projection of the student's vectors is not used in the model's forward, where DistributedDataParallel looks.
    arguments = config.arguments(command.run, ddp_find_unused_parameters=False)
    command.start(arguments)

    # Data: texts, also those that only the teacher labels -> ids, with a tokenizer learned on the labeled texts

    data, distillation = config.data, config.distillation
    parts = data.read_parts(arguments.seed, command.datasets)
    check_columns(config.evaluation.columns, parts["train"])
    extra = extra_texts(config, parts, arguments.seed)
    items = [item for texts in (parts["train"], *extra.values()) for item in texts]
    tokenizer = subword_tokenizer(config) or build_tokenizer(
        config.tokenizer, vocabulary_texts(config, (item.text for item in parts["train"])), ends=False
    )
    config.sample.check_vocabulary(tokenizer)
    ends = sentence_end_ids(tokenizer, data.sentence_ends)
    settings = own_classifier_config(config, len(tokenizer), tokenizer.pad_token_id, ends, parts["train"].labels)
    encode = partial(
        EncodedTexts, tokenizer=tokenizer, max_length=data.max_length, too_long=data.too_long, seed=arguments.seed
    )
    encoded = {part: encode(texts) for part, texts in parts.items() if part != "train"}
    train = encode(replace(parts["train"], items=items), sampler=build_sampler(config.tokenizer, tokenizer))

    # Model: the student

    model = contextual_model(AutoModelForSequenceClassification, settings, config, tokenizer)
    data_facts = {"max_length": data.max_length, "too_long": data.too_long}
    data_facts |= initialize_embeddings(model, tokenizer, config)

    # Teacher: its outputs for all texts, computed once

    teacher = Teacher(config.teacher, parts["train"].labels)
    inputs = {part: teacher.encode(dataset.texts) for part, dataset in encoded.items()}
    if distillation.imitates:
        inputs = {"train": teacher.encode(train.texts)} | inputs
    texts = fingerprints(parts | extra)
    command.claim_run(config, texts=texts, teacher=teacher.fingerprint, processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    teacher.model.to(arguments.device)
    with arguments.main_process_first(local=False):  # the other processes read its files
        taught = {
            part: teacher.read_once(
                windows,
                Path(arguments.output_dir) / "teacher" / f"{part}.safetensors",
                arguments.per_device_eval_batch_size,
                vectors=part == "train" and distillation.hidden_weight > 0,
                bf16=arguments.bf16,
                progress=f"the teacher reads {part}" if arguments.process_index == 0 else None,
            )
            for part, windows in inputs.items()
        }

    # Training

    imitated = ImitatedTexts(train, len(parts["train"]), taught["train"]) if distillation.imitates else train
    trainer = DistillationTrainer(
        model,
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer),
        train_dataset=imitated,
        eval_dataset=encoded["validation"],
        compute_metrics=ClassificationScores(),
        preprocess_logits_for_metrics=class_statistics,
        distillation=distillation,
        teacher_width=taught["train"].width if distillation.imitates else None,
        **config.trainer_options(arguments),
    )
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that were best on the validation texts

    outputs = {part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items()}
    model = trainer.whole_model()
    set_reading(model, tokenizer, data.max_length, data.too_long)

    # Output files: a folder that loads without hfattn, results, pictures and a card

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(
                TrainedRun(command, config, trainer, model, tokenizer),
                parts,
                extra,
                outputs,
                encode,
                teacher,
                taught,
                data_facts,
                own_facts(model, config),
                distillation,
                config.evaluation,
                config.sample,
            )
    trainer.finish()


def extra_texts(config: Config, parts: Mapping[str, LabeledTexts], seed: int) -> dict[str, LabeledTexts]:
    """Return the training texts that only the teacher labels, by kind; none if the student does not imitate it.

    Raises:
        UserError: as ``read_unlabeled``.
    """
    extra = {}
    if config.data.unlabeled is not None:
        known = {item.text for texts in parts.values() for item in texts}
        extra["unlabeled"] = read_unlabeled(config.data.unlabeled, config.data.text_column, without=known)
    if config.augmentation.copies:
        copies = augmented(parts["train"], config.augmentation, seed)
        held_out = {item.text for part, texts in parts.items() if part != "train" for item in texts}
        extra["augmented"] = replace(copies, items=[item for item in copies if item.text not in held_out])
    return extra if config.distillation.imitates else {}


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

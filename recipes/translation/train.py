"""Train an encoder-decoder on pairs of texts, and leave behind a folder that can be published.

accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --data.source pairs.tsv
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --resume
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    EarlyStoppingCallback,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainingArguments,
    set_seed,
)
from transformers.trainer_utils import PredictionOutput

from hfattn import BahdanauConfig, VaswaniConfig
from hfattn.data import DATES, PARTS, EncodedPairs, Pairs, check_split, date_pairs, read_pairs, split_pairs
from hfattn.errors import UserError, one_sentence
from hfattn.explain import alignment, plot_alignment, save_html
from hfattn.hub import write_card
from hfattn.metrics import ExactMatch, TranslationScores, decode_generated
from hfattn.models.strict_config import StrictConfig, own_fields
from hfattn.tokenizers import build_character_tokenizer, check_options
from hfattn.training import (
    RecipeCommand,
    ReliableSeq2SeqTrainer,
    TranslationCallback,
    last_complete_checkpoint,
    load_config,
    model_config,
    optimizer_class_and_arguments,
    parse_command,
    plot_curves,
    run_facts,
    training_arguments,
    write_results,
)

RECIPE = "translation"
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (BahdanauConfig, VaswaniConfig)}


# Configuration


@strict
@dataclass
class DataConfig:
    source: str = DATES  # "dates" (written dates and their ISO form), or the path of a tab-separated file
    pairs: int = 30_000  # of dates, to train on
    evaluation_pairs: int = 1000  # of dates, in each of the other parts
    # Of a file's distinct sources: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.8, 0.1, 0.1])
    max_source_length: int = 64  # tokens, the end included
    max_target_length: int = 64

    def validate_sizes(self) -> None:
        for name in ("pairs", "evaluation_pairs", "max_source_length", "max_target_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")
        if not self.source:
            raise ValueError("source is empty; write 'dates', or the path of a tab-separated file.")
        check_split(self.split, unit="sources")


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
    number: int = 6  # translations shown during and after training
    alignments: int = 2  # of these, drawn as a picture and as a page

    def validate_sizes(self) -> None:
        if self.number < 1:
            raise ValueError(f"number is {self.number}; write a whole number of at least 1.")
        if not 1 <= self.alignments <= self.number:
            raise ValueError(f"alignments is {self.alignments}; write a whole number from 1 to number, {self.number}.")


@strict
@dataclass
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of that type's configuration
    optimizer: str = "adamw"
    early_stopping_patience: int | None = None  # evaluations without improvement
    training: dict[str, Any] = field(default_factory=dict)  # fields of Seq2SeqTrainingArguments
    sample: SampleConfig = field(default_factory=SampleConfig)


def translation_model_config(config: Config, vocab_size: int, pad: int = 0, bos: int = 1, eos: int = 2) -> StrictConfig:
    """The model's configuration: one vocabulary for both sides, which the data decide.

    Raises:
        UserError: the section ``model`` names no family of encoder-decoders, or a field that its family has not.
    """
    fields = dict(config.model)
    family = fields.pop("model_type", None)
    if family not in FAMILIES:
        raise UserError(f"model.model_type is {family!r}; write one of {', '.join(FAMILIES)}.")
    return model_config(
        FAMILIES[family],
        fields,
        vocab_size=vocab_size,
        source_vocab_size=None,
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=eos,
        decoder_start_token_id=bos,
    )


def validate(config: Config, run: Path = Path("runs")) -> Seq2SeqTrainingArguments:
    """Check what can be checked without the data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, an optimiser or training arguments.
    """
    translation_model_config(config, vocab_size=1 << 20)
    fields = {"predict_with_generate": True, **config.training}
    arguments = training_arguments(run, fields, Seq2SeqTrainingArguments)
    optimizer_class_and_arguments(config.optimizer, arguments)
    if config.early_stopping_patience is not None and config.early_stopping_patience < 1:
        raise UserError(f"early_stopping_patience is {config.early_stopping_patience}; write at least 1, or null.")
    if config.early_stopping_patience is not None and not arguments.load_best_model_at_end:
        raise UserError("early_stopping_patience needs training.load_best_model_at_end: true; write that, or null.")
    return arguments


def read_parts(data: DataConfig, seed: int) -> dict[str, Pairs]:
    """The pairs of each part: train, validation, and what else is to be evaluated at the end."""
    if data.source == DATES:
        numbers = {part: data.pairs if part == "train" else data.evaluation_pairs for part in PARTS}
        return {part: date_pairs(part, number, seed) for part, number in numbers.items()}
    parts = split_pairs(read_pairs(data.source), data.split, seed)
    return dict(zip(("train", "validation", "test"), parts, strict=False))


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.check_run()
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(command.run / "logs"))
    set_seed(arguments.seed)

    # Data: pairs -> tokenizer, learned on the training pairs -> ids

    data = config.data
    parts = read_parts(data, arguments.seed)
    tokenizer = build_character_tokenizer(parts["train"].counts, **asdict(config.tokenizer), ends=True)
    encoded = {
        part: EncodedPairs(pairs, tokenizer, tokenizer, data.max_source_length, data.max_target_length)
        for part, pairs in parts.items()
    }

    # Model

    model = AutoModelForSeq2SeqLM.from_config(
        translation_model_config(
            config, len(tokenizer), tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id
        )
    )
    model.generation_config = GenerationConfig(
        max_new_tokens=data.max_target_length,
        num_beams=arguments.generation_num_beams or 1,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
    )

    # Training

    examples = parts["validation"].items[: config.sample.number]
    callbacks = [TranslationCallback(tokenizer, examples)]
    if config.early_stopping_patience is not None:
        callbacks.append(EarlyStoppingCallback(config.early_stopping_patience))
    trainer = ReliableSeq2SeqTrainer(
        model,
        arguments,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        compute_metrics=TranslationScores(tokenizer),
        optimizer_cls_and_kwargs=optimizer_class_and_arguments(config.optimizer, arguments),
        callbacks=callbacks,
    )
    fingerprints = {part: pairs.fingerprint for part, pairs in parts.items()}
    command.claim_run(config, pairs=fingerprints, processes=arguments.world_size)
    checkpoint = last_complete_checkpoint(arguments.output_dir) if command.resume else None
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    for callback in (EarlyStoppingCallback, TranslationCallback):  # the evaluations below are not theirs
        trainer.remove_callback(callback)

    # Evaluation, with the best weights on the validation pairs

    trainer.args.predict_with_generate = True
    outputs = {
        part: trainer.predict(dataset, metric_key_prefix=part) for part, dataset in encoded.items() if part != "train"
    }
    if trainer.is_world_process_zero():
        publish(command, config, trainer, tokenizer, parts, outputs)
    trainer.accelerator.wait_for_everyone()  # a process that left before would take the others with it
    trainer.accelerator.end_training()


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ReliableSeq2SeqTrainer,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Pairs],
    outputs: Mapping[str, PredictionOutput],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and alignments, its card."""
    run, model, state = command.run, trainer.model, trainer.state
    model.config.use_cache = True
    model.save_pretrained(run)
    tokenizer.save_pretrained(run)
    translations = {part: decode_generated(tokenizer, output.predictions[2]) for part, output in outputs.items()}
    shown = "test" if "test" in parts else "validation"
    samples = [
        {"source": pair.source, "reference": pair.target, "translation": translation}
        for pair, translation in zip(parts[shown], translations[shown][: config.sample.number], strict=False)
    ]
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per token", "eval_nats_per_token")
    drawn = [sample["source"] for sample in samples[: config.sample.alignments]]
    alignments = draw_alignments(run, model, tokenizer, drawn)
    pairs_read = state.global_step * trainer.get_total_train_batch_size(trainer.args)
    results = {
        **run_facts(RECIPE, command.config, trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "symbols": len(tokenizer) - len(tokenizer.all_special_ids),
            "parts": {part: {"pairs": len(pairs), "sha256": pairs.fingerprint} for part, pairs in parts.items()},
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config.model.get("preset"),
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "metrics": {
            part: {
                **{key.removeprefix(f"{part}_"): value for key, value in output.metrics.items()},
                "exact_match_by_kind": exact_match_by_kind(parts[part], translations[part]),
            }
            for part, output in outputs.items()
        },
        "training": {
            "steps": state.global_step,
            "epochs": state.epoch,
            "best_step": state.best_global_step,
            "wall_time_seconds": round(trainer.training_seconds, 2),  # evaluations and checkpoints included
            "pairs_per_second": round(pairs_read / trainer.training_seconds),
        },
        "samples": samples,
        "alignments": alignments,
    }
    write_results(run / "results.json", results)
    write_card(run, RECIPE, results)
    print(summary(run, results))


def draw_alignments(
    run: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, sources: Sequence[str]
) -> list[str]:
    """Where the model looks while it translates: a picture and a page for each source, unless it has no attention."""
    model.set_attn_implementation("eager")  # the fused ones have no weights to show
    inputs = tokenizer(list(sources), padding=True, return_tensors="pt").to(model.device)
    outputs = model.generate(**inputs, output_attentions=True, return_dict_in_generate=True)
    if not outputs.cross_attentions or outputs.cross_attentions[0] is None:
        return []
    names = [f"alignment-{i + 1}" for i in range(len(sources))]
    for i, (name, source) in enumerate(zip(names, sources, strict=True)):
        record = alignment(outputs, i, tokenizer=tokenizer, **inputs)
        plot_alignment(record, title=source).savefig(run / f"{name}.png", dpi=150)
        save_html(record, run / f"{name}.html", title=source)
    return names


def exact_match_by_kind(pairs: Pairs, translations: Sequence[str]) -> dict[str, float]:
    """Exact match of each kind of pair, where the data tell kinds apart: of dates, the written forms."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for pair, translation in zip(pairs, translations, strict=True):
        if pair.kind:
            kinds.setdefault(pair.kind, []).append((translation, pair.target))
    metric = ExactMatch()
    scores = {}
    for kind, texts in kinds.items():
        predictions, references = zip(*texts, strict=True)
        scores[kind] = metric.compute(predictions=predictions, references=references)["exact_match"]
    return dict(sorted(scores.items(), key=lambda item: (-item[1], item[0])))


def summary(run: Path, results: Mapping[str, Any]) -> str:
    """The end of a run in words: its scores, what it does with forms that it never saw, some translations."""
    lines = ["", f"{'':16}{'pairs':>8}{'exact match':>14}{'token accuracy':>16}{'nats/token':>12}"]
    for part, score in results["metrics"].items():
        lines.append(
            f"{part.replace('_', ' '):16}{score['pairs']:8d}{score['exact_match']:14.4f}{score['token_accuracy']:16.4f}"
            f"{score['nats_per_token']:12.4f}"
        )
    if "unseen_forms" in results["metrics"]:
        lines += ["", "Forms that training never saw, and the share of dates translated rightly:"]
        for kind, share in results["metrics"]["unseen_forms"]["exact_match_by_kind"].items():
            lines.append(f"  {kind:40}{share:.3f}")
    lines.append("")
    lines += [f"{sample['source']} → {sample['translation']}" for sample in results["samples"]]
    example = results["samples"][0]["source"]
    return "\n".join(
        [
            *lines,
            "",
            f"Model, results, curve and alignments: {run}",
            f'Let it translate: hfattn translate {run} "{example}"',
            f'See where it looks: hfattn attend {run} "{example}"',
        ]
    )


if __name__ == "__main__":
    with one_sentence():
        main()

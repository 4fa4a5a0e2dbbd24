"""Train an encoder-decoder on pairs of texts, and leave behind a folder that can be published.

accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --data.source pairs.tsv \\
    --tokenizer.unknown true --data.too_long drop
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --resume
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from huggingface_hub.dataclasses import strict
from torch.utils.data import Subset
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainingArguments,
)

from hfattn import BahdanauConfig, VaswaniConfig
from hfattn.data import (
    EncodedPairs,
    Pair,
    Pairs,
    check_split,
    read_pairs,
    source_of_part,
    split_pairs,
)
from hfattn.errors import one_sentence
from hfattn.generated import generated_for
from hfattn.loading import save_translator
from hfattn.metrics import TranslationScores, decode_generated
from hfattn.models.strict_config import StrictConfig, own_fields
from hfattn.plots import plot_bleu_by_length, plot_curves, plot_table
from hfattn.reports import translation as report
from hfattn.tokenizers import TokenizerConfig, build_sampler, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    ReliableSeq2SeqTrainer,
    TrainingConfig,
    TranslationCallback,
    family_config,
    load_config,
    parse_command,
    publish_run,
    run_facts,
    writing,
)

RECIPE = "translation"
GENERATED = generated_for(RECIPE)
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (BahdanauConfig, VaswaniConfig)}


# Configuration


@strict
@dataclass
class DataConfig:
    # "dates" (written dates and their ISO form), "phrases" (simple English sentences in Spanish), a tab-separated file,
    # a .jsonl file, two parallel files written as "train.{en,de}", or the id of a data set on the Hub.
    source: str = "dates"
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct sources, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.8, 0.1, 0.1])
    source_column: str = "source"  # of JSON lines and of a Hub data set; "translation.en" is a column within a column
    target_column: str = "target"
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
    pairs: int = 30_000  # of dates or phrases, to train on
    evaluation_pairs: int = 1000  # of these, in each of the other parts
    max_source_length: int = 64  # tokens, the end included
    max_target_length: int = 64
    too_long: str = "error"  # pairs with a longer text: error, drop or cut; other parts than train are cut, not dropped

    def validate_sizes(self) -> None:
        for name in ("pairs", "evaluation_pairs", "max_source_length", "max_target_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")
        if not self.source:
            raise ValueError("source is empty; write 'dates', the path of a file, or the id of a Hub data set.")
        if self.test is not None and self.validation is None:
            raise ValueError("test is given without validation; give both, or cut both from source with split.")
        check_split(self.split, unit="sources")


@strict
@dataclass
class PairTokenizerConfig(TokenizerConfig):
    separate: bool = False  # a vocabulary of its own for each side


@strict
@dataclass
class EvaluationConfig:
    pairs: int | None = None  # of each part, drawn at random to be translated; null: all. Likelihoods are of all.
    num_beams: int | None = None  # a beam of this width beside greedy search, on the last part, at the end
    length_penalty: float | int = 1.0  # of that beam: the exponent of the length that log-probabilities are divided by

    def validate_sizes(self) -> None:
        if self.pairs is not None and self.pairs < 1:
            raise ValueError(f"pairs is {self.pairs}; write a whole number of at least 1, or null for all.")
        if self.num_beams is not None and self.num_beams < 2:
            raise ValueError(f"num_beams is {self.num_beams}; write at least 2, or null for greedy search alone.")


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
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: PairTokenizerConfig = field(default_factory=PairTokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of that type's configuration
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def translation_model_config(
    config: Config, vocab_size: int, source_vocab_size: int | None = None, pad: int = 0, bos: int = 1, eos: int = 2
) -> StrictConfig:
    """The model's configuration, with the vocabularies that the data decide.

    Args:
        config: of the recipe.
        vocab_size: of the target, and of the source too unless that has its own.
        source_vocab_size: of a source with a vocabulary of its own.
        pad, bos, eos: ids of the special symbols, on both sides.

    Raises:
        UserError: the section ``model`` names no family of encoder-decoders, or a field that its family has not.
    """
    return family_config(
        FAMILIES,
        config.model,
        vocab_size=vocab_size,
        source_vocab_size=source_vocab_size,
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
    many = 1 << 20  # more than any special symbol's id
    translation_model_config(config, many, many if config.tokenizer.separate else None)
    return config.arguments(run, Seq2SeqTrainingArguments, predict_with_generate=True)


def read_parts(data: DataConfig, seed: int) -> dict[str, Pairs]:
    """The pairs of each part: train, validation, and what else is to be evaluated at the end."""
    if data.source in GENERATED:
        return GENERATED[data.source].draw_parts(data.pairs, data.evaluation_pairs, seed)

    def read(source: str, split: str) -> Pairs:
        return read_pairs(
            source,
            source_column=data.source_column,
            target_column=data.target_column,
            config=data.config,
            split=split,
            revision=data.revision,
        )

    whole = read(data.source, data.hub_split)
    if data.validation is None:
        return dict(zip(("train", "validation", "test"), split_pairs(whole, data.split, seed), strict=False))
    parts = {"train": whole}
    for part, place in (("validation", data.validation), ("test", data.test)):
        if place is not None:
            parts[part] = read(*source_of_part(data.source, place, data.hub_split))
    return parts


def build_tokenizers(
    config: PairTokenizerConfig, pairs: Pairs
) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """The tokenizers of source and target, learned on the training pairs: one for both, unless they are separate."""
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    if config.separate:
        return build_tokenizer(config, sources, ends=True), build_tokenizer(config, targets, ends=True)
    tokenizer = build_tokenizer(config, [*sources, *targets], ends=True)
    return tokenizer, tokenizer


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: pairs -> tokenizers, learned on the training pairs -> ids

    data = config.data
    parts = read_parts(data, arguments.seed)
    tokenizer, target_tokenizer = build_tokenizers(config.tokenizer, parts["train"])
    samplers = build_sampler(config.tokenizer, tokenizer), build_sampler(config.tokenizer, target_tokenizer)
    encoded = {
        part: EncodedPairs(
            pairs,
            tokenizer,
            target_tokenizer,
            data.max_source_length,
            data.max_target_length,
            # Pairs are never left out of an evaluation.
            too_long=data.too_long if part == "train" or data.too_long == "error" else "cut",
            sampler=samplers if part == "train" else (None, None),
            seed=arguments.seed,
        )
        for part, pairs in parts.items()
    }
    tokenizer.model_max_length = data.max_source_length  # to which it truncates, where that is asked for
    chosen = {
        part: draw(len(pairs), config.evaluation.pairs, arguments.seed)
        for part, pairs in parts.items()
        if part != "train"
    }

    # Model

    model = AutoModelForSeq2SeqLM.from_config(
        translation_model_config(
            config,
            len(target_tokenizer),
            len(tokenizer) if config.tokenizer.separate else None,
            tokenizer.pad_token_id,
            tokenizer.bos_token_id,
            tokenizer.eos_token_id,
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
    trainer = ReliableSeq2SeqTrainer(
        model,
        arguments,
        data_collator=DataCollatorForSeq2Seq(tokenizer, model),
        train_dataset=encoded["train"],
        eval_dataset=Subset(encoded["validation"], chosen["validation"]),
        compute_metrics=TranslationScores(target_tokenizer),
        callbacks=[TranslationCallback(tokenizer, examples, target_tokenizer)],
        **config.trainer_options(arguments),
    )
    fingerprints = {part: pairs.fingerprint for part, pairs in parts.items()}
    command.claim_run(config, pairs=fingerprints, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)
    trainer.remove_callback(TranslationCallback)  # the evaluations below are not its own

    # Evaluation, with the best weights: likelihoods of all pairs, translations of those that were chosen

    trainer.args.predict_with_generate = False
    likelihoods = {part: trainer.evaluate(encoded[part], metric_key_prefix=part) for part in chosen}
    trainer.args.predict_with_generate = True
    searches: dict[str, dict[str, Any]] = {part: {"greedy": {"num_beams": 1}} for part in chosen}
    if config.evaluation.num_beams is not None:
        last = list(chosen)[-1]
        beam = {"num_beams": config.evaluation.num_beams, "length_penalty": float(config.evaluation.length_penalty)}
        searches[last]["beam"] = beam
    generated = {
        part: {
            name: trainer.predict(Subset(encoded[part], chosen[part]), **search).predictions[2]
            for name, search in searches[part].items()
        }
        for part in chosen
    }
    model = trainer.whole_model()
    if trainer.is_world_process_zero():
        with writing(command.run):
            translated = {part: [parts[part].items[i] for i in indices] for part, indices in chosen.items()}
            tokenizers = tokenizer, target_tokenizer
            publish(command, config, trainer, model, tokenizers, parts, likelihoods, translated, generated)
    trainer.finish()


def draw(length: int, number: int | None, seed: int) -> list[int]:
    """Which pairs of a part are translated: ``number`` of them at random, or all; in their order."""
    if number is None or number >= length:
        return list(range(length))
    return sorted(Random(seed).sample(range(length), number))


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: ReliableSeq2SeqTrainer,
    model: PreTrainedModel,
    tokenizers: tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase],
    parts: Mapping[str, Pairs],
    likelihoods: Mapping[str, Mapping[str, float]],
    translated: Mapping[str, Sequence[Pair]],
    generated: Mapping[str, Mapping[str, Any]],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, pictures and card.

    Args:
        tokenizers: of the sources and of the targets.
        parts: all pairs of each part.
        likelihoods: of all pairs of each part but the training pairs, the scores of ``TranslationScores``.
        translated: of each of these parts, the pairs that were translated.
        generated: the ids of their translations, by part and by search ("greedy", "beam").
    """
    run, state = command.run, trainer.state
    tokenizer, target_tokenizer = tokenizers
    separate = target_tokenizer if config.tokenizer.separate else None
    model.config.use_cache = True
    save_translator(run, model, tokenizer, separate)
    translations = {
        part: {search: decode_generated(target_tokenizer, ids) for search, ids in searches.items()}
        for part, searches in generated.items()
    }
    metrics = {
        part: report.part_scores(part, translated[part], translations[part], likelihoods[part]) for part in translated
    }
    shown = "test" if "test" in parts else "validation"
    best = translations[shown].get("beam", translations[shown]["greedy"])
    samples = [
        {"source": pair.source, "reference": pair.target, "translation": translation}
        for pair, translation in zip(translated[shown], best[: config.sample.number], strict=False)
    ]
    title = f"{RECIPE}: {command.config.stem}"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, "nats per token", "eval_nats_per_token")
    plot_table(
        run / "samples.png", ["source", "reference", "translation"], [list(row.values()) for row in samples], title
    )
    lengths = metrics[shown].get("beam", metrics[shown])["by_source_length"]
    plot_bleu_by_length(run / "bleu_by_length.png", {command.config.stem: lengths}, title)
    drawn = [sample["source"] for sample in samples[: config.sample.alignments]]
    pairs_read = state.epoch * len(trainer.train_dataset)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "symbols": len(target_tokenizer) - len(target_tokenizer.all_special_ids),
            "source_symbols": len(tokenizer) - len(tokenizer.all_special_ids),
            "tokenizer": config.tokenizer.kind,
            "separate": config.tokenizer.separate,
            "lowercase": config.tokenizer.lowercase,
            "strip_punctuation": config.tokenizer.strip_punctuation,
            "max_source_length": config.data.max_source_length,
            "max_target_length": config.data.max_target_length,
            "too_long": config.data.too_long,
            "dropped": trainer.train_dataset.dropped,
            "parts": {part: {"pairs": len(pairs), "sha256": pairs.fingerprint} for part, pairs in parts.items()},
        },
        "model": {
            "model_type": model.config.model_type,
            "preset": config.model.get("preset"),
            "parameters": model.num_parameters(),
            **{field.name: getattr(model.config, field.name) for field in own_fields(type(model.config))},
        },
        "metrics": metrics,
        "training": {
            **trainer.training_facts("pairs", pairs_read),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "alignments": report.draw_alignments(run, model, tokenizer, separate, drawn),
    }
    publish_run(
        command, results, report.summary(run, results), model, tokenizer, [sample["source"] for sample in samples[:2]]
    )


if __name__ == "__main__":
    with one_sentence():
        main()

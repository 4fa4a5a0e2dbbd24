"""Train an encoder-decoder to translate.

accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --data.dataset pairs.tsv \\
    --tokenizer.unknown true --data.too_long drop
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --resume
"""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from torch.utils.data import Subset
from transformers import (
    AutoModelForSeq2SeqLM,
    DataCollatorForSeq2Seq,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from hfattn import BahdanauConfig, VaswaniConfig
from hfattn.data import EncodedPairs, Pair, Pairs, PartsConfig, Source, fingerprints, read_pairs
from hfattn.errors import one_sentence
from hfattn.fields import at_least, one_of
from hfattn.generated import GENERATED, generated_for
from hfattn.hub import vocabulary_texts
from hfattn.metrics import TranslationScores
from hfattn.models.strict_config import StrictConfig
from hfattn.reports.base import TrainedRun
from hfattn.reports.translation import EvaluatedPairs, SampleConfig, report
from hfattn.tokenizers import TokenizerConfig, build_sampler, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    ReliableSeq2SeqTrainer,
    Seq2SeqArguments,
    TrainingConfig,
    TranslationCallback,
    check_padding,
    family_config,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
)

RECIPE = "translation"
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (BahdanauConfig, VaswaniConfig)}


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Pairs]):
    unit: ClassVar[str] = "sources"
    generated: ClassVar[tuple[str, ...]] = tuple(generated_for(RECIPE))

    # Besides the generated datasets: a tab-separated file, a .jsonl file, two parallel files written as
    # "train.{en,de}", or a dataset on the Hub.
    dataset: str = "dates"
    split: list[float | int | str] = field(default_factory=lambda: [0.8, 0.1, 0.1])
    # Columns of a .jsonl file or of a dataset on the Hub; "translation.en" is the field en of the column translation.
    source_column: str = "source"
    target_column: str = "target"
    examples: int = at_least(1, 30_000)  # number of generated pairs to train on
    evaluation_examples: int = at_least(1, 1000)  # number of generated pairs in each of the other parts
    max_source_length: int = at_least(1, 64)  # tokens, the end token included
    max_target_length: int = at_least(1, 64)
    # For a pair with a longer text: raise an error, drop the pair, or truncate the text. Evaluation always truncates.
    too_long: str = one_of(("error", "drop", "cut"), "error")

    def generate(self, seed: int) -> dict[str, Pairs]:
        return GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed)

    def read(self, dataset: Source, split: str, train: Pairs | None = None) -> Pairs:
        return read_pairs(
            dataset,
            source_column=self.source_column,
            target_column=self.target_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Pair) -> str:
        return item.source


@strict
@dataclass
class PairTokenizerConfig(TokenizerConfig):
    separate: bool = False  # one tokenizer for each side instead of one for both


@strict
@dataclass
class EvaluationConfig:
    # Number of pairs of each part that are translated, chosen at random; null: all. Likelihoods use all pairs.
    examples: int | None = at_least(1, None)
    num_beams: int | None = at_least(2, None)  # beam search besides greedy search, on the last part, after training
    length_penalty: float | int = 1.0  # beam search divides log-probabilities by length ** length_penalty


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: PairTokenizerConfig = field(default_factory=PairTokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of the model's configuration
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> Seq2SeqArguments:
    """Check what can be checked without the data, and return the training arguments.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    many = 1 << 20  # a vocabulary size that is larger than any special token id
    sizes = {"vocab_size": many, "source_vocab_size": many if config.tokenizer.separate else None}
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    family_config(FAMILIES, config.model, **sizes, **ids)
    return config.arguments(run, Seq2SeqArguments, predict_with_generate=True)


def build_tokenizers(config: Config, pairs: Pairs) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Learn the tokenizers of sources and targets from the training pairs; both are one object unless ``separate``."""
    sources = vocabulary_texts(config, (pair.source for pair in pairs))
    targets = vocabulary_texts(config, (pair.target for pair in pairs))
    settings = config.tokenizer
    if settings.separate:
        return build_tokenizer(settings, sources, ends=True), build_tokenizer(settings, targets, ends=True)
    tokenizer = build_tokenizer(settings, [*sources, *targets], ends=True)
    return tokenizer, tokenizer


def choose(length: int, number: int | None, seed: int) -> list[int]:
    """Return ``number`` random indices below ``length`` in ascending order, or all of them if ``number`` is None."""
    if number is None or number >= length:
        return list(range(length))
    return sorted(Random(seed).sample(range(length), number))


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: pairs -> tokenizers learned from the training pairs -> token ids

    data = config.data
    parts = data.read_parts(arguments.seed, command.datasets)
    tokenizer, target_tokenizer = build_tokenizers(config, parts["train"])
    samplers = build_sampler(config.tokenizer, tokenizer), build_sampler(config.tokenizer, target_tokenizer)
    encoded = {
        part: EncodedPairs(
            pairs,
            tokenizer,
            target_tokenizer,
            data.max_source_length,
            data.max_target_length,
            too_long=data.too_long if part == "train" or data.too_long == "error" else "cut",
            sampler=samplers if part == "train" else (None, None),
            seed=arguments.seed,
        )
        for part, pairs in parts.items()
    }
    tokenizer.model_max_length = data.max_source_length  # the pipeline truncates sources to this length
    chosen = {
        part: choose(len(pairs), config.evaluation.examples, arguments.seed)
        for part, pairs in parts.items()
        if part != "train"
    }

    # Model

    ids = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.bos_token_id,
    }
    sizes = {
        "vocab_size": len(target_tokenizer),
        "source_vocab_size": len(tokenizer) if config.tokenizer.separate else None,
    }
    model = AutoModelForSeq2SeqLM.from_config(family_config(FAMILIES, config.model, **sizes, **ids))
    model.generation_config = GenerationConfig(
        max_new_tokens=data.max_target_length, num_beams=arguments.generation_num_beams or 1, **ids
    )
    collator = DataCollatorForSeq2Seq(tokenizer, model)
    check_padding(model, encoded["validation"], collator)

    # Training

    own = [Pair(source, target) for source, target in config.sample.pairs]
    examples = [*own, *parts["validation"].items[: config.sample.translations]]
    trainer = ReliableSeq2SeqTrainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=encoded["train"],
        eval_dataset=Subset(encoded["validation"], chosen["validation"]),
        compute_metrics=TranslationScores(target_tokenizer),
        callbacks=[TranslationCallback(tokenizer, examples, target_tokenizer)],
        **config.trainer_options(arguments),
    )
    command.claim_run(config, pairs=fingerprints(parts), processes=arguments.world_size)
    trainer.train_or_resume(command.resume)
    trainer.remove_callback(TranslationCallback)  # no translations are shown during the final evaluation

    # Evaluation, with the best weights: likelihoods of all pairs, translations of the randomly chosen ones

    searches: dict[str, dict[str, dict[str, Any]]] = {part: {"greedy": {"num_beams": 1}} for part in chosen}
    if config.evaluation.num_beams is not None:
        penalty = float(config.evaluation.length_penalty)
        searches[list(chosen)[-1]]["beam"] = {"num_beams": config.evaluation.num_beams, "length_penalty": penalty}
    trainer.args.predict_with_generate = False
    likelihoods = {
        part: scores_of_part(trainer.evaluate(encoded[part], metric_key_prefix=part), part) for part in chosen
    }
    trainer.args.predict_with_generate = True
    evaluated = {}
    for part, indices in chosen.items():
        subset, translated = Subset(encoded[part], indices), [parts[part].items[i] for i in indices]
        generated = {
            search: trainer.predict(subset, **options).predictions[2] for search, options in searches[part].items()
        }
        evaluated[part] = EvaluatedPairs(likelihoods[part], translated, generated)
    model = trainer.whole_model()
    model.config.use_cache = True

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            report(TrainedRun(command, config, trainer, model, tokenizer), parts, evaluated, target_tokenizer)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

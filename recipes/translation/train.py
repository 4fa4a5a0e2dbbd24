"""Train an encoder-decoder to translate, from scratch or from a pretrained model.

accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml
accelerate launch recipes/translation/train.py --config recipes/translation/multi30k_en_de_marian.yaml
accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --resume
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from torch.utils.data import Subset
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from hfattn import BahdanauConfig, VaswaniConfig
from hfattn.data import Again, EncodedPairs, Pair, Pairs, PartsConfig, Source, choose_indices, fingerprints, read_pairs
from hfattn.errors import one_sentence
from hfattn.fields import at_least, one_of
from hfattn.generated import GENERATED, generated_for
from hfattn.hub import vocabulary_texts
from hfattn.loading import Loaded
from hfattn.metrics import TranslationScores
from hfattn.models.pipeline_attn_translation import source_prefix
from hfattn.models.strict_config import StrictConfig
from hfattn.reports.base import TrainedRun
from hfattn.reports.translation import EvaluatedPairs, report
from hfattn.tokenizers import TokenizerConfig, build_sampler, build_tokenizer
from hfattn.training import (
    FineTuningSeq2SeqTrainer,
    RecipeCommand,
    Seq2SeqCollator,
    TranslationCallback,
    TranslatorConfig,
    check_padding,
    family_config,
    finishing,
    load_config,
    load_translator,
    parse_command,
    scores_before,
    scores_of_part,
    set_decoding,
    tuned,
    tuning_facts,
)
from hfattn.training.sample_config import TranslationSampleConfig

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
class Config(TranslatorConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: PairTokenizerConfig = field(default_factory=PairTokenizerConfig)  # for a model from scratch
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: TranslationSampleConfig = field(default_factory=TranslationSampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without the data.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    config.check_sections(own_tokenizer=config.tokenizer != PairTokenizerConfig())
    if not config.pretrained:
        own_config(config, pad=0, start=1, end=2, size=1 << 20, source_size=1 << 20)
    config.check_training()


def own_config(config: Config, pad: int, start: int, end: int, size: int, source_size: int) -> StrictConfig:
    """Return the configuration of the model from scratch, with the ids and the sizes of its vocabularies."""
    ids = {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": start}
    sizes = {"vocab_size": size, "source_vocab_size": source_size if config.tokenizer.separate else None}
    return family_config(FAMILIES, config.model, **sizes, **ids)


def build_tokenizers(config: Config, pairs: Pairs) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Learn the tokenizers of sources and targets from the training pairs; both are one object unless ``separate``."""
    sources = vocabulary_texts(config, Again(lambda: (pair.source for pair in pairs)))
    targets = vocabulary_texts(config, Again(lambda: (pair.target for pair in pairs)))
    if (settings := config.tokenizer).separate:
        return build_tokenizer(settings, sources, ends=True), build_tokenizer(settings, targets, ends=True)
    both = Again(lambda: (text for texts in (sources, targets) for text in texts))
    tokenizer = build_tokenizer(settings, both, ends=True)
    return tokenizer, tokenizer


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: pairs -> tokenizers, learned from the training pairs or of the pretrained model -> token ids

    data, pretrained = config.data, config.pretrained
    if pretrained:
        loaded, tokenizer, target_tokenizer = load_translator(
            pretrained, data.max_source_length, data.max_target_length
        )
    parts = data.read_parts(arguments.seed, command.datasets)
    if not pretrained:
        tokenizer, target_tokenizer = build_tokenizers(config, parts["train"])
    samplers = build_sampler(config.tokenizer, tokenizer), build_sampler(config.tokenizer, target_tokenizer)
    encoded = {
        part: EncodedPairs(
            pairs,
            tokenizer,
            target_tokenizer,
            data.max_source_length,
            data.max_target_length,
            prefix=source_prefix(loaded.model.config) if pretrained else "",
            too_long=data.too_long if part == "train" or data.too_long == "error" else "cut",
            sampler=samplers if part == "train" else (None, None),
            seed=arguments.seed,
        )
        for part, pairs in parts.items()
    }
    tokenizer.model_max_length = data.max_source_length  # the pipeline truncates sources to this length
    number = config.evaluation.examples
    chosen = {part: choose_indices(len(parts[part]), number, arguments.seed) for part in parts if part != "train"}

    # Model

    if not pretrained:
        ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
        own = own_config(config, *ids, len(target_tokenizer), len(tokenizer))
        loaded = Loaded(AutoModelForSeq2SeqLM.from_config(own), [])
    set_decoding(loaded.model, data.max_target_length, arguments.generation_num_beams or 1)
    collator = Seq2SeqCollator(tokenizer, loaded.model)
    if not pretrained:
        check_padding(loaded.model, encoded["validation"], collator)
    model = tuned(loaded, config.tuning, "SEQ_2_SEQ_LM")

    # Training

    given = [Pair(source, target) for source, target in config.sample.pairs]
    examples = [*given, *parts["validation"].items[: config.sample.translations]]
    trainer = FineTuningSeq2SeqTrainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=encoded["train"],
        eval_dataset=Subset(encoded["validation"], chosen["validation"]),
        compute_metrics=TranslationScores(target_tokenizer),
        callbacks=[TranslationCallback(tokenizer, examples, target_tokenizer)],
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, pairs=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer, target_tokenizer)
    translated = {part: [parts[part].items[i] for i in indices] for part, indices in chosen.items()}
    before = scores_before(model, tokenizer, target_tokenizer, translated, arguments) if pretrained else {}
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
        subset = Subset(encoded[part], indices)
        generated = {
            search: trainer.predict(subset, **options).predictions[2] for search, options in searches[part].items()
        }
        evaluated[part] = EvaluatedPairs(likelihoods[part], translated[part], generated, before.get(part))
    facts = tuning_facts(model, loaded, config.tuning, pretrained) if pretrained else None
    model = trainer.whole_model()
    model.config.use_cache = True

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, model, tokenizer)
            report(run, parts, evaluated, target_tokenizer, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

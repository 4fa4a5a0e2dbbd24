"""Train one encoder-decoder for several tasks that are written as text, from scratch or from a pretrained model.

accelerate launch recipes/text_to_text/train.py --config recipes/text_to_text/mixture.yaml
accelerate launch recipes/text_to_text/train.py --config recipes/text_to_text/mixture.yaml --data.only [sst2]
accelerate launch recipes/text_to_text/train.py --config recipes/text_to_text/mixture.yaml --resume
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from huggingface_hub.dataclasses import strict
from torch.utils.data import ConcatDataset, Subset
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from hfattn import BahdanauConfig, VaswaniConfig
from hfattn.data import (
    Documents,
    EncodedPairs,
    MixedExamples,
    Pair,
    SpanCorruption,
    SpanExamples,
    answers_of,
    as_pairs,
    choose_indices,
    epoch_sizes,
    fingerprints,
    joined_parts,
)
from hfattn.data.spans import SENTINEL
from hfattn.data.tasks import SPANS, TaskConfig
from hfattn.errors import UserError, one_sentence
from hfattn.generation import store_for_task
from hfattn.hub import vocabulary_texts
from hfattn.loading import Loaded
from hfattn.metrics import TaskScores, check_answers
from hfattn.models.pipeline_attn_translation import PREFIX, TEXT_TO_TEXT
from hfattn.models.strict_config import StrictConfig
from hfattn.reports.base import TrainedRun
from hfattn.reports.text_to_text import EvaluatedTasks, report
from hfattn.tokenizers import build_sampler, build_tokenizer
from hfattn.training import (
    FineTuningSeq2SeqTrainer,
    MixtureConfig,
    RecipeCommand,
    Seq2SeqCollator,
    TasksConfig,
    TasksEvaluationConfig,
    TasksSampleConfig,
    TasksTokenizerConfig,
    TranslationCallback,
    TranslatorConfig,
    check_padding,
    family_config,
    finishing,
    load_config,
    load_translator,
    parse_command,
    set_decoding,
    tuned,
    tuning_facts,
)

RECIPE = "text_to_text"
FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (BahdanauConfig, VaswaniConfig)}
EVALUATION_SEED = 0  # all evaluations hide the same spans, so that scores are comparable

DataConfig = TasksConfig


# Configuration


@strict
@dataclass
class Config(TranslatorConfig):
    data: TasksConfig = field(default_factory=TasksConfig)
    mixture: MixtureConfig = field(default_factory=MixtureConfig)
    tokenizer: TasksTokenizerConfig = field(default_factory=TasksTokenizerConfig)  # for a model from scratch
    evaluation: TasksEvaluationConfig = field(default_factory=TasksEvaluationConfig)
    sample: TasksSampleConfig = field(default_factory=TasksSampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without the data.

    Raises:
        UserError: a section does not describe valid tasks, a valid model, an optimizer or training arguments.
    """
    config.check_sections(own_tokenizer=config.tokenizer != TasksTokenizerConfig())
    if not config.data.sections:
        raise UserError("data.tasks is empty; write at least one task, with its dataset, source and target.")
    for name in ("prefix", "source_language", "target_language"):
        if config.model.get(name) is not None:
            raise UserError(f"model.{name} is for translation; write the words before each source in its template.")
    if not config.pretrained:
        own_config(config, pad=0, start=1, end=2, size=1 << 20)
    config.check_training()


def own_config(config: Config, pad: int, start: int, end: int, size: int) -> StrictConfig:
    """Return the configuration of the model from scratch, with the ids and the size of its vocabulary."""
    ids = {"pad_token_id": pad, "bos_token_id": start, "eos_token_id": end, "decoder_start_token_id": start}
    return family_config(FAMILIES, config.model, vocab_size=size, **ids)


def learn_tokenizer(config: Config, pairs: Sequence[Pair]) -> PreTrainedTokenizerBase:
    """Learn the tokenizer from the training examples and ``tokenizer.more_texts``, and add the sentinels."""
    texts = (text for pair in pairs for text in (pair.source, pair.target) if text)
    every = vocabulary_texts(config, chain(texts, config.tokenizer.added_lines()))
    tokenizer = build_tokenizer(config.tokenizer, every, ends=True)
    sentinels = [SENTINEL.format(number) for number in range(config.tokenizer.sentinels or 0)]
    tokenizer.add_tokens(sentinels, special_tokens=True)
    return tokenizer


def encode(
    config: Config, task: TaskConfig, examples: Any, tokenizer: PreTrainedTokenizerBase, part: str, seed: int
) -> EncodedPairs | SpanExamples:
    """Encode a part of a task."""
    data, is_train = config.data, part == "train"
    longest = (data.max_source_length, data.max_target_length)
    if task.format == SPANS:
        corruption = SpanCorruption(tokenizer, task.masked_share, task.span_length)
        return SpanExamples(examples, tokenizer, corruption, *longest, seed=seed if is_train else EVALUATION_SEED)
    sampler = None if config.pretrained or not is_train else build_sampler(config.tokenizer, tokenizer)
    too_long = data.too_long if is_train or data.too_long == "error" else "cut"
    pairs = as_pairs(examples, "")
    return EncodedPairs(pairs, tokenizer, tokenizer, *longest, too_long=too_long, sampler=sampler, seed=seed)


def drawn_pairs(examples: Any, drawn: Subset[Any], name: str) -> list[Pair]:
    """Return the examples of a task that were drawn; those of span corruption, which writes nothing, are empty."""
    if isinstance(examples, Documents):  # of which each may be several examples
        return [Pair("", "", name)] * len(drawn)
    items = as_pairs(examples, name).items
    return [items[i] for i in drawn.indices]


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: the rows of each task as texts -> token ids, with the model's tokenizer or one learned from them -> mixture

    data, pretrained, sections = config.data, config.pretrained, config.data.sections
    if pretrained:
        loaded, tokenizer, _ = load_translator(pretrained, data.max_source_length, data.max_target_length)
    tasks = data.read_tasks(arguments.seed, command.datasets)
    parts = joined_parts(tasks)
    if not pretrained:
        tokenizer = learn_tokenizer(config, parts["train"].items)
    encoded = {
        name: {part: encode(config, sections[name], each, tokenizer, part, arguments.seed) for part, each in of.items()}
        for name, of in tasks.items()
    }
    tokenizer.model_max_length = data.max_source_length  # the pipeline truncates sources to this length
    answers = {name: answers_of(task, tasks[name]["train"]) for name, task in sections.items()}
    check_answers(tokenizer, answers)
    sizes = [len(each["train"]) for each in encoded.values()]
    numbers = epoch_sizes(sizes, config.mixture.maximum, float(config.mixture.temperature))
    train = MixedExamples({name: each["train"] for name, each in encoded.items()}, numbers, arguments.seed)
    number = config.evaluation.examples
    chosen = {
        part: {
            name: Subset(each[part], choose_indices(len(each[part]), number, arguments.seed))
            for name, each in encoded.items()
            if part in each
        }
        for part in parts
        if part != "train"
    }
    drawn = {
        part: {name: drawn_pairs(tasks[name][part], each, name) for name, each in of.items()}
        for part, of in chosen.items()
    }

    # Model

    if not pretrained:
        ids = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id)
        loaded = Loaded(AutoModelForSeq2SeqLM.from_config(own_config(config, *ids, len(tokenizer))), [])
    set_decoding(loaded.model, data.max_target_length, arguments.generation_num_beams or 1)
    templates = {name: task.source for name, task in sections.items() if task.format != SPANS}
    store_for_task(loaded.model, TEXT_TO_TEXT, {"tasks": templates} if templates else None)
    store_for_task(loaded.model, PREFIX, None)  # of a model for translation; the words of a task are in its template
    collator = Seq2SeqCollator(tokenizer, loaded.model)
    if not pretrained:
        check_padding(loaded.model, train, collator)
    model = tuned(loaded, config.tuning, "SEQ_2_SEQ_LM")

    # Training

    arguments.predict_with_generate &= bool(templates)
    scores = TaskScores(tokenizer, {name: task.metric for name, task in sections.items()}, answers)
    scores.examples = [pair for pairs in drawn["validation"].values() for pair in pairs]
    shown = [pair for name in templates for pair in drawn["validation"][name][: config.sample.outputs]]
    trainer = FineTuningSeq2SeqTrainer(
        model,
        arguments,
        data_collator=collator,
        train_dataset=train,
        eval_dataset=ConcatDataset(list(chosen["validation"].values())),
        compute_metrics=scores,
        callbacks=[TranslationCallback(tokenizer, shown)] if shown else [],
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    more = {"more_texts": config.tokenizer.added_fingerprint} if config.tokenizer.more_texts else {}
    command.claim_run(config, examples=fingerprints(parts), processes=arguments.world_size, **more)
    command.report_data(config, tasks, tokenizer)
    trainer.train_or_resume(command.resume)
    trainer.remove_callback(TranslationCallback)  # no outputs are shown during the final evaluation

    # Evaluation of each task, with the weights that scored best on validation

    evaluated: dict[str, EvaluatedTasks] = {}
    for part, of_part in chosen.items():
        evaluated[part] = EvaluatedTasks({}, {})
        for names, search in config.evaluation.searches({name: sections[name].metric for name in of_part}):
            trainer.args.predict_with_generate = search is not None
            scores.examples = [pair for name in names for pair in drawn[part][name]]
            dataset: ConcatDataset[Any] = ConcatDataset([of_part[name] for name in names])
            trainer.predict(dataset, metric_key_prefix=part, **(search or {}))
            for name in names:
                evaluated[part].add(name, scores.of_tasks[name], drawn[part][name], scores.outputs[name])
    facts = tuning_facts(model, loaded, config.tuning, pretrained) if pretrained else None
    model = trainer.whole_model()
    model.config.use_cache = True

    # Output files

    if trainer.is_world_process_zero():
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, model, tokenizer)
            mixed = dict(zip(tasks, numbers, strict=True))
            report(run, tasks, evaluated, mixed, answers, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

"""Fine-tune a causal language model on a text, on prompts and their completions, or on conversations.

accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml \\
    --model.name path/to/gpt2 --data.dataset my.txt
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/dates_stories15m.yaml \\
    --model.name path/to/stories15M --data.dataset pairs.jsonl
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml --resume
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerBase

from hfattn.data import (
    Demonstrations,
    Documents,
    EncodedDemonstrations,
    check_causal,
    check_model,
    check_packing,
    check_positions,
    fingerprints,
)
from hfattn.data.examples import Examples
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least
from hfattn.generation import set_chat, set_ends
from hfattn.hub import vocabulary_texts
from hfattn.likelihood import score_rows
from hfattn.loading import Loaded, load_model, load_tokenizer, max_positions
from hfattn.metrics import LanguageModelScores, token_loss, token_statistics
from hfattn.publish_sections import check_language_model
from hfattn.reports.base import TrainedRun
from hfattn.reports.causal_lm import check_prompts, continuations, exact_match, report, with_text_scores
from hfattn.tokenizers import TokenizerConfig
from hfattn.training import (
    FineTuningTrainer,
    PretrainedOrScratchConfig,
    RecipeCommand,
    SampleCallback,
    StatefulFineTuningTrainer,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)
from hfattn.training.causal_lm import CausalDataConfig as DataConfig
from hfattn.training.causal_lm import (
    TokenizerLocation,
    check_state,
    check_stride,
    check_text,
    check_tokenizer,
    encode_parts,
    learned_tokenizer,
    predicts_previous,
    with_chat_template,
)
from hfattn.training.sample_config import CausalSampleConfig

RECIPE = "causal_lm"


# Configuration


@strict
@dataclass
class EvaluationConfig:
    # Tokens between the starts of two windows of running text; null: data.max_length.
    stride: int | None = at_least(1, None)
    # Prompts of each part after which the model writes greedily, for exact_match, chosen at random.
    written: int = at_least(0, 0)


@strict
@dataclass
class Config(PretrainedOrScratchConfig):
    data: DataConfig = field(default_factory=DataConfig)
    # For a model from scratch: the name of a tokenizer (a tokenizer.json, a folder, or an id on the Hub), and revision,
    # trust_remote_code; or the kind of a tokenizer to learn from the training texts (and vocab_size, lowercase, …).
    tokenizer: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: CausalSampleConfig = field(default_factory=CausalSampleConfig)


def validate(config: Config) -> None:
    """Check what can be checked without data and model.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    check_language_model(config.publish)
    config.check_training()
    check_stride(config.data, config.evaluation.stride)
    if config.pretrained:
        if config.tokenizer:
            raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
        return
    if config.tuning.method != "full":
        raise UserError(
            f"A model from scratch trains all weights; write tuning.method: full, not {config.tuning.method}."
        )
    check_positions(own_config(config, vocab_size=1 << 20), config.data.max_length)
    check_tokenizer(config.tokenizer)


def own_config(config: Config, vocab_size: int, **ids: int | None) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    if config.model.get("conditioning_size") is not None:
        raise UserError("model.conditioning_size needs a vector for each text, and this recipe has none; remove it.")
    from_data = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "vocab_size": vocab_size, **ids}
    return scratch_config(config.model, from_data)


def open_tokenizer(config: Config, chat: bool, train: Examples[Any] | None = None) -> PreTrainedTokenizerBase | None:
    """Return the tokenizer of the model, with ``data.chat_template`` if it is given.

    It is None without the training examples ``train``, if it is learned from them.

    Raises:
        UserError: it cannot be loaded or learned, or ``with_chat_template`` raises it.
    """
    template = config.data.chat_template
    if "kind" in config.tokenizer:
        if train is None:
            return None
        texts = vocabulary_texts(config, train.all_texts)
        tokenizer = learned_tokenizer(TokenizerConfig(**config.tokenizer), texts, template)
    else:
        tokenizer = load_tokenizer(config.pretrained or TokenizerLocation(**config.tokenizer))
    return with_chat_template(tokenizer, template, chat)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: documents -> a stream of tokens -> windows; or demonstrations -> rows

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    chat = isinstance(parts["train"], Demonstrations) and parts["train"].are_conversations
    tokenizer = open_tokenizer(config, chat, parts["train"])
    assert tokenizer is not None
    if isinstance(parts["train"], Documents):
        check_text(data, config.evaluation.written, config.max_tokens)
    backward = predicts_previous(pretrained or own_config(config, vocab_size=1 << 20))
    train_set, encoded = encode_parts(data, parts, tokenizer, config.evaluation.stride, arguments, backward)
    evaluation_sets = {part: texts.dataset for part, texts in encoded.items() if part != "train"}

    # Model

    if pretrained:
        loaded = load_model(AutoModelForCausalLM, pretrained)
    else:
        ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        loaded = Loaded(scratch_model(AutoModelForCausalLM, own_config(config, len(tokenizer), **ids)), [])
    new_tokens = range(loaded.model.get_input_embeddings().num_embeddings, len(tokenizer)) if data.chat_template else ()
    if new_tokens:
        loaded.model.resize_token_embeddings(len(tokenizer))
    check_model(loaded.model, tokenizer, data.max_length)
    name = config.model.get("name", "The model")
    check_causal(loaded.model, name, loaded.new_weights)
    check_state(data, loaded.model, train_set)
    known_ends = loaded.model.generation_config.eos_token_id
    if isinstance(train_set, EncodedDemonstrations):
        if data.packing:
            check_packing(loaded.model, name)
        set_ends(loaded.model, train_set.ends)
    set_chat(loaded.model, chat)
    check_prompts(loaded.model, tokenizer, config.sample.prompts)
    loaded.model.generation_config.pad_token_id = tokenizer.pad_token_id
    loaded = loaded._replace(changed=chat or loaded.model.generation_config.eos_token_id != known_ends)
    model = tuned(loaded, config.tuning, "CAUSAL_LM", new_tokens)

    # Training

    trainer = (StatefulFineTuningTrainer if data.stateful else FineTuningTrainer)(
        model,
        arguments,
        data_collator=train_set.collate,
        train_dataset=train_set,
        eval_dataset=evaluation_sets["validation"],
        compute_loss_func=partial(token_loss, label_smoothing=arguments.label_smoothing_factor),
        compute_metrics=LanguageModelScores("token"),
        preprocess_logits_for_metrics=token_statistics,
        callbacks=[SampleCallback(tokenizer, config.sample.prompts[0], config.sample.max_new_tokens, arguments.seed)],
        source=pretrained,
        loaded=loaded,
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    before: dict[str, dict[str, Any]] = {}
    written: dict[str, list[str]] = {}
    if pretrained:
        # Not with the trainer, which does not prepare a model for several processes once it has evaluated it.
        with torch.autocast(arguments.device.type, torch.bfloat16, enabled=arguments.bf16):
            for part, dataset in evaluation_sets.items():
                score = score_rows(model.eval(), dataset, rows=arguments.eval_batch_size)
                before[part] = with_text_scores(score, encoded[part].size)
        written["before"] = continuations(model, tokenizer, config.sample, arguments.seed)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation part

    metrics = {}
    for part, dataset in evaluation_sets.items():
        score = scores_of_part(trainer.predict(dataset, metric_key_prefix=part).metrics, part)
        metrics[part] = with_text_scores(score, encoded[part].size) | ({"before": before[part]} if pretrained else {})
    facts = tuning_facts(model, loaded, config.tuning, pretrained)
    model = trainer.whole_model()
    model.config.use_cache = True
    tokenizer.model_max_length = max_positions(model.config) or tokenizer.model_max_length

    # Output files

    if trainer.is_world_process_zero():
        run = TrainedRun(command, config, trainer, model, tokenizer)
        with finishing(command.run):
            written["after"] = continuations(model, tokenizer, config.sample, arguments.seed)
            for part, dataset in evaluation_sets.items():
                if isinstance(dataset, EncodedDemonstrations) and config.evaluation.written:
                    metrics[part] |= exact_match(run, dataset, config.evaluation.written)
            report(run, train_set, encoded, metrics, written, facts)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

"""Fine-tune a causal language model on a text, on prompts and their completions, or on conversations.

accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml \\
    --model.name path/to/gpt2 --data.dataset my.txt
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/dates_stories15m.yaml \\
    --model.name path/to/stories15M --data.dataset pairs.jsonl
accelerate launch recipes/causal_lm/train.py --config recipes/causal_lm/shakespeare_gpt2.yaml --resume
"""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedTokenizerBase, TrainingArguments

from hfattn.data import (
    FORMS,
    Demonstration,
    Demonstrations,
    Document,
    Documents,
    EncodedDemonstrations,
    PackedBlocks,
    PartsConfig,
    Source,
    check_causal,
    check_model,
    check_packing,
    check_positions,
    fingerprints,
    form_of,
    open_rows,
    pack,
    read_demonstrations,
    read_documents,
    set_chat_template,
    split_corpus,
)
from hfattn.data.demonstrations import as_text
from hfattn.data.rows import JSON_LINES, is_table, local_file
from hfattn.data.text import EMBEDDED
from hfattn.errors import UserError, one_sentence
from hfattn.evaluation import score_rows
from hfattn.fields import at_least, one_of
from hfattn.generated import GENERATED
from hfattn.generation import set_chat, set_ends
from hfattn.hub import check_language_model
from hfattn.loading import Loaded, ModelLocation, load_model, load_tokenizer, max_positions
from hfattn.metrics import LanguageModelScores, token_loss, token_statistics
from hfattn.reports.base import TrainedRun
from hfattn.reports.causal_lm import EvaluatedTexts, SampleConfig, continuations, exact_match, report, with_text_scores
from hfattn.training import (
    FineTuningTrainer,
    PretrainedOrScratchConfig,
    RecipeCommand,
    SampleCallback,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    scratch_model,
    tuned,
    tuning_facts,
)
from hfattn.training.config import checked

RECIPE = "causal_lm"


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Documents | Demonstrations]):
    unit: ClassVar[str] = "characters"
    generated: ClassVar[tuple[str, ...]] = ("dates",)

    # "embedded" (the Python language reference), "dates" (generated prompts and completions), a file, or a dataset on
    # the Hub.
    dataset: str = EMBEDDED
    # Text by position: characters of a single document, or whole documents. Other forms at random.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])
    # text: running text, in windows; prompt_completion: two columns, with the loss on the completion; messages: a
    # column of conversations, with the loss on what the assistant says. null: by the columns.
    form: str | None = one_of(FORMS, None)
    lines_are_texts: bool = False  # each line or row is a document; false: the whole dataset is a single document
    document_start: str | None = None  # matches the first line of each document; null: each line is a document
    text_column: str = "text"
    prompt_column: str = "prompt"
    completion_column: str = "completion"
    messages_column: str = "messages"
    # Template for messages if the tokenizer has none, or instead of its own: chatml, or a file.
    chat_template: str | None = None
    empty: str = one_of(("error", "drop"), "error")  # drop: leave out rows with an empty prompt or without an answer
    # drop: read equal rows once, and no training row whose prompt is in another part.
    duplicates: str = one_of(("keep", "drop"), "keep")
    packing: bool = False  # put several examples into a row of max_length tokens; none sees another
    examples: int = at_least(1, 30_000)  # number of generated examples to train on
    evaluation_examples: int = at_least(1, 1000)  # number of generated examples in each of the other parts
    max_length: int = at_least(2, 256)  # tokens that the model reads at once

    def validate_documents(self) -> None:
        if self.document_start is not None and not self.lines_are_texts:
            raise ValueError("document_start needs separate documents; write lines_are_texts: true, or remove it.")
        if self.lines_are_texts and self.form not in (None, "text"):
            raise ValueError(f"lines_are_texts is for running text; write form: text instead of {self.form}, or false.")

    def form_of(self, dataset: Source, split: str) -> str:
        """Return the form of the data, one of ``FORMS``."""
        if self.form is not None or self.lines_are_texts or dataset == EMBEDDED:
            return self.form or "text"
        path = local_file(dataset)
        if path is not None and path.suffix != JSON_LINES and not is_table(path):
            return "text"
        rows = open_rows(dataset, config=self.config, split=split, revision=self.revision)
        return form_of(rows, self.messages_column, self.prompt_column, self.completion_column)

    def generate(self, seed: int) -> dict[str, Documents | Demonstrations]:
        drawn = GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed)
        return {
            part: Demonstrations(pairs.name, [Demonstration(f"{pair.source} =", pair.target) for pair in pairs])
            for part, pairs in drawn.items()
        }

    def read(
        self, dataset: Source, split: str, train: Documents | Demonstrations | None = None
    ) -> Documents | Demonstrations:
        form = self.form_of(dataset, split)
        if form != "text":
            return read_demonstrations(
                dataset,
                form=form,
                messages_column=self.messages_column,
                prompt_column=self.prompt_column,
                completion_column=self.completion_column,
                empty=self.empty,
                duplicates=self.duplicates,
                config=self.config,
                split=split,
                revision=self.revision,
            )
        return read_documents(
            dataset,
            lines_are_texts=self.lines_are_texts,
            document_start=self.document_start,
            text_column=self.text_column,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Document | Demonstration) -> Hashable:
        return item.text if isinstance(item, Document) else as_text(item.last_turn[0])

    def cut(self, whole: Documents | Demonstrations, seed: int) -> list[Any]:
        if isinstance(whole, Documents):
            return split_corpus(whole, self.split)
        return whole.split(self.split, seed, key=self.key, unit="prompts")

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Documents | Demonstrations]:
        parts = super().read_parts(seed, given)
        kinds = {part: type(examples) for part, examples in parts.items()}
        if other := next((part for part in parts if kinds[part] is not kinds["train"]), None):
            raise UserError(f"The part {other} has other columns than train; write the same in both, or data.form.")
        train = parts["train"]
        if self.duplicates == "drop" and isinstance(train, Demonstrations):
            held = {self.key(item) for part in parts if part != "train" for item in parts[part]}
            parts["train"] = replace(train, items=[item for item in train if self.key(item) not in held])
        return parts


class TokenizerLocation(ModelLocation):
    section: ClassVar[str] = "tokenizer"


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
    # trust_remote_code.
    tokenizer: dict[str, Any] = field(default_factory=dict)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    sample: SampleConfig = field(default_factory=SampleConfig)


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without data and model, and return the training arguments.

    Raises:
        UserError: a section does not describe a valid model, an optimizer or training arguments.
    """
    check_language_model(config.publish)
    arguments = config.arguments(run)
    stride, length = config.evaluation.stride, config.data.max_length
    if stride is not None and stride > length:
        raise UserError(f"evaluation.stride {stride} skips tokens; write at most data.max_length, {length}.")
    if config.pretrained:
        if config.tokenizer:
            raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
        return arguments
    if config.tuning.method != "full":
        raise UserError(
            f"A model from scratch trains all weights; write tuning.method: full, not {config.tuning.method}."
        )
    check_positions(own_config(config, vocab_size=1 << 20), length)
    checked(TokenizerLocation, config.tokenizer, prefix="tokenizer.")
    return arguments


def own_config(config: Config, vocab_size: int, **ids: int | None) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    if config.model.get("conditioning_size") is not None:
        raise UserError("model.conditioning_size needs a vector for each text, and this recipe has none; remove it.")
    from_data = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None, "vocab_size": vocab_size, **ids}
    return scratch_config(config.model, from_data)


def open_tokenizer(config: Config, chat: bool) -> PreTrainedTokenizerBase:
    """Return the tokenizer of the model, with the chat template of ``data.chat_template``.

    Raises:
        UserError: it cannot be loaded, or the template cannot be used.
    """
    tokenizer = load_tokenizer(config.pretrained or TokenizerLocation(**config.tokenizer))
    if config.data.chat_template is not None:
        if not chat:
            raise UserError("data.chat_template is for messages, and the data have none; remove it.")
        number = len(tokenizer)
        set_chat_template(tokenizer, config.data.chat_template)
        if len(tokenizer) > number and config.tuning.method == "lora":
            raise UserError(
                f"data.chat_template {config.data.chat_template} adds tokens, whose embeddings LoRA does not train; "
                "write tuning.method: full, or the path of a template without new tokens."
            )
    return tokenizer


def encode(
    config: Config, parts: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> tuple[PackedBlocks | EncodedDemonstrations, dict[str, EvaluatedTexts]]:
    """Return the training examples, and each part with what is evaluated of it.

    Running text becomes a stream of tokens in windows. Of demonstrations, each is an example.

    Raises:
        UserError: a field does not apply to the form of the data, or a part cannot be encoded.
    """
    data, stride = config.data, config.evaluation.stride
    if isinstance(parts["train"], Documents):
        for name, given in (("data.packing", data.packing), ("evaluation.written", config.evaluation.written)):
            if given:
                raise UserError(f"{name} is for prompts and completions or messages, and the data are text; remove it.")
        if config.max_tokens is not None:
            raise UserError(
                "All windows have the same length; write training.per_device_train_batch_size, not max_tokens."
            )
        packed = {part: pack([item.text for item in documents], tokenizer) for part, documents in parts.items()}
        return PackedBlocks(packed["train"].ids, data.max_length), {
            part: EvaluatedTexts(parts[part], text, PackedBlocks(text.ids, data.max_length, stride or data.max_length))
            for part, text in packed.items()
        }
    if stride is not None:
        raise UserError("evaluation.stride is for windows of running text, and each example is read once; remove it.")
    encoded = {part: EncodedDemonstrations(examples, tokenizer, data.max_length) for part, examples in parts.items()}
    train_set = encoded["train"].packed() if data.packing else encoded["train"]
    return train_set, {part: EvaluatedTexts(parts[part], each, each) for part, each in encoded.items()}


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: documents -> a stream of tokens -> windows; or demonstrations -> rows

    data, pretrained = config.data, config.pretrained
    parts = data.read_parts(arguments.seed, command.datasets)
    chat = isinstance(parts["train"], Demonstrations) and parts["train"].are_conversations
    tokenizer = open_tokenizer(config, chat)
    train_set, encoded = encode(config, parts, tokenizer)
    evaluation_sets = {part: texts.dataset for part, texts in encoded.items() if part != "train"}

    # Model

    if pretrained:
        loaded = load_model(AutoModelForCausalLM, pretrained)
    else:
        ids = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
        loaded = Loaded(scratch_model(AutoModelForCausalLM, own_config(config, len(tokenizer), **ids)), [])
    if data.chat_template is not None and len(tokenizer) > loaded.model.get_input_embeddings().num_embeddings:
        loaded.model.resize_token_embeddings(len(tokenizer))
    check_model(loaded.model, tokenizer, data.max_length)
    name = config.model.get("name", "The model")
    check_causal(loaded.model, name)
    if isinstance(train_set, EncodedDemonstrations):
        if data.packing:
            check_packing(loaded.model, name)
        set_ends(loaded.model, train_set.ends)
    set_chat(loaded.model, chat)
    loaded.model.generation_config.pad_token_id = tokenizer.pad_token_id
    model = tuned(loaded, config.tuning, "CAUSAL_LM")

    # Training

    trainer = FineTuningTrainer(
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
        tuning=config.tuning,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
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

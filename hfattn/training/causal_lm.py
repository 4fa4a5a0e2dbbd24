"""Data of causal language models: running text, prompts with their completions, and conversations."""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ..data import (
    FORMS,
    Demonstration,
    Demonstrations,
    Document,
    Documents,
    EncodedDemonstrations,
    PackedBlocks,
    PackedText,
    PartsConfig,
    Source,
    Streams,
    TextSize,
    form_of,
    open_rows,
    pack,
    read_demonstrations,
    read_documents,
    set_chat_template,
    split_corpus,
)
from ..data.demonstrations import as_text
from ..data.report import DataReport, report_demonstrations
from ..data.rows import is_table, local_file
from ..data.text import EMBEDDED
from ..errors import UserError
from ..fields import at_least, one_of
from ..generated import GENERATED, check_generated, generated_for
from ..loading import ModelLocation, load_model_config, reads_backward
from ..tokenizers import TokenizerConfig, build_tokenizer
from .config import build_section

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainingArguments


@strict
@dataclass
class CausalDataConfig(PartsConfig[Documents | Demonstrations]):
    """The section ``data``: running text, prompts with their completions, or conversations."""

    unit: ClassVar[str] = "characters"
    generated: ClassVar[tuple[str, ...]] = ("dates", *generated_for("causal_lm"))

    # "embedded" (the Python language reference), "dates" (generated prompts and completions), "duplicate" or "recall"
    # (generated sequences of symbols), a file, or a dataset on the Hub.
    dataset: str = EMBEDDED
    # A single document by position, in characters. Several documents and other forms at random.
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.05, 0.05])
    # text: running text, in windows; prompt_completion: two columns, with the loss on the completion; messages: a
    # column of conversations, with the loss on what the assistant says. null: by the columns.
    form: str | None = one_of(FORMS, None)
    lines_are_texts: bool = False  # each line or row is a document; false: the whole dataset is a single document
    document_start: str | None = None  # matches the first line of each document; null: each line is a document
    text_column: str = "text"
    prompt_column: str = "prompt"
    completion_column: str = "completion"
    tools_column: str = "tools"  # JSON schemas of the tools that the assistant may call, if the data have such a column
    messages_column: str = "messages"
    # Template for messages if the tokenizer has none, or instead of its own: chatml, plain, or a file.
    chat_template: str | None = None
    empty: str = one_of(("error", "drop"), "error")  # drop: leave out rows with an empty prompt or without an answer
    # drop: read equal rows once, and no training row whose prompt is in another part.
    duplicates: str = one_of(("keep", "drop"), "keep")
    packing: bool = False  # put several examples into a row of max_length tokens; none sees another
    examples: int = at_least(1, 30_000)  # number of generated examples to train on
    evaluation_examples: int = at_least(1, 1000)  # number of generated examples in each of the other parts
    options: dict[str, Any] = field(default_factory=dict)  # of a generated dataset, such as {length: 256}
    max_length: int = at_least(2, 256)  # tokens that the model reads at once
    # Read running text as parallel streams, and carry the state of the model from one window to the next.
    stateful: bool = False

    def validate_options(self) -> None:
        check_generated(self.dataset, self.options, self.generated)

    def validate_documents(self) -> None:
        if self.document_start is not None and not self.lines_are_texts:
            raise ValueError("document_start needs separate documents; write lines_are_texts: true, or remove it.")
        if self.stateful and self.form not in (None, "text"):
            raise ValueError(f"stateful is for running text; write form: text instead of {self.form}, or false.")
        if self.lines_are_texts and self.form not in (None, "text"):
            raise ValueError(f"lines_are_texts is for running text; write form: text instead of {self.form}, or false.")

    def form_of(self, dataset: Source, split: str) -> str:
        """Return the form of the data, one of ``FORMS``."""
        if self.form is not None or self.lines_are_texts or dataset == EMBEDDED:
            return self.form or "text"
        path = local_file(dataset)
        if path is not None and not is_table(path):
            return "text"
        rows = open_rows(dataset, config=self.config, split=split, revision=self.revision)
        return form_of(rows, self.messages_column, self.prompt_column, self.completion_column)

    def generate(self, seed: int) -> dict[str, Documents | Demonstrations]:
        data = GENERATED[self.dataset]
        drawn = data.draw_parts(self.examples, self.evaluation_examples, seed, **self.options)
        if data.recipe == "causal_lm":
            return drawn
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
                tools_column=self.tools_column,
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

    def report(
        self,
        parts: Mapping[str, Documents | Demonstrations] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        target_tokenizer: PreTrainedTokenizerBase | None = None,
        languages: Collection[str] = (),
    ) -> DataReport:
        if not self.is_own or self.form_of(*self.places(given)["train"]) == "text":
            return super().report(parts, given, tokenizer)
        return report_demonstrations(self, parts, given, tokenizer)

    def key(self, item: Document | Demonstration) -> Hashable:
        return item.text if isinstance(item, Document) else as_text(item.last_turn[0])

    def cut(self, whole: Documents | Demonstrations, seed: int) -> list[Any]:
        if isinstance(whole, Documents):
            return split_corpus(whole, self.split, seed)
        return whole.split(self.split, seed, key=self.key, unit="prompts")

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Documents | Demonstrations]:
        parts = super().read_parts(seed, given)
        kinds = {part: type(examples) for part, examples in parts.items()}
        if other := next((part for part in parts if kinds[part] is not kinds["train"]), None):
            raise UserError(f"The part {other} has other columns than train; write the same in both, or data.form.")
        train = parts["train"]
        if self.duplicates == "drop" and isinstance(train, Demonstrations):
            held = {self.key(item) for part in parts if part != "train" for item in parts[part]}
            parts["train"] = train.without(held, self.key, "prompts")
        return parts


class TokenizerLocation(ModelLocation):
    """The section ``tokenizer`` of a model from scratch whose tokenizer exists."""

    section: ClassVar[str] = "tokenizer"


def check_tokenizer(section: dict[str, Any]) -> None:
    """Check the section ``tokenizer`` of a model from scratch, which locates a tokenizer, or has the kind to learn.

    Raises:
        UserError: it is not valid, or segmentations would be sampled.
    """
    given = build_section(TokenizerConfig if "kind" in section else TokenizerLocation, section, "tokenizer.")
    if isinstance(given, TokenizerConfig) and given.sampling:
        raise UserError("The texts are encoded once, before training; remove tokenizer.sampling.")


def learned_tokenizer(config: TokenizerConfig, texts: Iterable[str], template: str | None) -> PreTrainedTokenizerBase:
    """Learn the tokenizer of a model from scratch.

    Args:
        config: kind and size of the vocabulary.
        texts: the training texts.
        template: ``data.chat_template``.

    Raises:
        UserError: the tokenizer cannot be learned, or the template has tokens that it does not know.
    """
    if template not in (None, "plain"):
        raise UserError(
            f"data.chat_template is {template}, and a learned tokenizer reads the marks of a template as text; write "
            "plain, or the tokenizer.name of a tokenizer."
        )
    tokenizer = build_tokenizer(config, texts, ends=True, padding_side="left")
    # A prompt does not end with [EOS]; the end of a completion is added by encode_demonstration.
    tokenizer.backend_tokenizer.post_processor = None
    return tokenizer


def with_chat_template(tokenizer: PreTrainedTokenizerBase, template: str | None, chat: bool) -> PreTrainedTokenizerBase:
    """Return a tokenizer with a chat template.

    Args:
        tokenizer: the tokenizer.
        template: ``data.chat_template``; None leaves the tokenizer as it is.
        chat: whether the data are conversations.

    Raises:
        UserError: the data are not conversations, or the template cannot be used.
    """
    if template is None:
        return tokenizer
    if not chat:
        raise UserError("data.chat_template is for messages, and the data have none; remove it.")
    set_chat_template(tokenizer, template)
    return tokenizer


class EvaluatedTexts(NamedTuple):
    """The examples of a part, their tokens, and the rows in which a model is evaluated on them."""

    examples: Documents | Demonstrations
    tokens: PackedText | EncodedDemonstrations
    dataset: PackedBlocks | Streams | EncodedDemonstrations

    @property
    def size(self) -> TextSize:
        """Length of the text that is predicted."""
        return self.tokens.size


def check_text(data: CausalDataConfig, written: int, max_tokens: int | None) -> None:
    """Check that fields are not set that do not apply to running text.

    Raises:
        UserError: one is.
    """
    for name, given in (("data.packing", data.packing), ("evaluation.written", written)):
        if given:
            raise UserError(f"{name} is for prompts and completions or messages, and the data are text; remove it.")
    if max_tokens is not None:
        raise UserError("All windows have the same length; write training.per_device_train_batch_size, not max_tokens.")


def check_stride(data: CausalDataConfig, stride: int | None) -> None:
    """Check that the windows of an evaluation, which begin ``stride`` tokens apart, leave no token out.

    Raises:
        UserError: they do, or the state of the model makes their overlap superfluous.
    """
    if stride is not None and stride > data.max_length:
        raise UserError(f"evaluation.stride {stride} skips tokens; write at most data.max_length, {data.max_length}.")
    if stride is not None and data.stateful:
        raise UserError("data.stateful reads each token once, after all that precede it; remove evaluation.stride.")


def check_state(
    data: CausalDataConfig, model: "PreTrainedModel", train_set: PackedBlocks | Streams | EncodedDemonstrations
) -> None:
    """Check that a model has a state for ``data.stateful``, which is carried from window to window, and that a model of
    both directions reads running text.

    Raises:
        UserError: it has none, or it reads something else.
    """
    if model.config.model_type == "bilm" and isinstance(train_set, EncodedDemonstrations):
        raise UserError(
            "A bilm predicts tokens from both sides, for which prompts and completions or messages have no place; "
            "write data.form: text, or another model.model_type."
        )
    if not data.stateful:
        return
    from ..models import CharRNNForCausalLM, VaswaniForCausalLM

    if not isinstance(model, CharRNNForCausalLM | VaswaniForCausalLM):
        raise UserError(
            f"data.stateful carries a state, and {type(model).__name__} has none; write false, model.model_type: "
            "char_rnn, or vaswani with decoder_pattern: memory."
        )


def predicts_previous(model: PreTrainedConfig | ModelLocation) -> bool:
    """Return whether a model predicts the previous token instead of the next, by its configuration or its location."""
    return reads_backward(load_model_config(model) if isinstance(model, ModelLocation) else model)


def encode_parts(
    data: CausalDataConfig,
    parts: Mapping[str, Documents | Demonstrations],
    tokenizer: PreTrainedTokenizerBase,
    stride: int | None,
    arguments: "TrainingArguments",
    backward: bool = False,
) -> tuple[PackedBlocks | Streams | EncodedDemonstrations, dict[str, EvaluatedTexts]]:
    """Return the training examples, and each part with the rows in which it is evaluated.

    Running text becomes a stream of tokens in windows, or with ``data.stateful`` several parallel streams. Of
    demonstrations, each is an example.

    Args:
        data: the section ``data``.
        parts: the examples of each part.
        tokenizer: the model's tokenizer.
        stride: tokens between the starts of two windows in evaluation; None: the length of a window.
        arguments: the training arguments, with the rows of a batch.
        backward: whether the model predicts the previous token.

    Raises:
        UserError: a stride is given and the data have no windows, a part cannot be encoded, the examples have no place
            for a state or for reading backward, or nothing of those of a part that is learned has words.
    """
    texts = {part: examples for part, examples in parts.items() if isinstance(examples, Documents)}
    if texts:
        packed = {part: pack(documents.contents, tokenizer, backward) for part, documents in texts.items()}
        if data.stateful:
            rows = arguments.eval_batch_size * arguments.world_size
            train_rows = arguments.train_batch_size * arguments.world_size
            return Streams(packed["train"].ids, data.max_length, train_rows), {
                part: EvaluatedTexts(texts[part], text, Streams(text.ids, data.max_length, rows, keep_tail=True))
                for part, text in packed.items()
            }
        step = data.max_length if stride is None else stride
        return PackedBlocks(packed["train"].ids, data.max_length), {
            part: EvaluatedTexts(texts[part], text, PackedBlocks(text.ids, data.max_length, step))
            for part, text in packed.items()
        }
    if stride is not None:
        raise UserError("evaluation.stride is for windows of running text, and each example is read once; remove it.")
    if data.stateful or backward:
        name = "data.stateful" if data.stateful else "model.direction: backward"
        raise UserError(f"{name} is for running text, and the data are prompts and completions or messages; remove it.")
    shown = {part: examples for part, examples in parts.items() if isinstance(examples, Demonstrations)}
    encoded = {part: EncodedDemonstrations(examples, tokenizer, data.max_length) for part, examples in shown.items()}
    for part, each in encoded.items():
        if part != "train" and not each.size.words:
            raise UserError(
                f"All that would be learned of {part} is white space and special tokens; write other completions or "
                "answers, or raise data.max_length."
            )
    train_set = encoded["train"].packed() if data.packing else encoded["train"]
    return train_set, {part: EvaluatedTexts(shown[part], each, each) for part, each in encoded.items()}

"""Train a masked language model, from scratch or from a pretrained model; other recipes can fine-tune the result.

accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/wikitext2_vaswani.yaml
accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/imdb_distilbert.yaml \\
    --data.dataset my.jsonl --data.test null --model.name my-distilbert
accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/wikitext2_vaswani.yaml --resume
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import (
    DataCollatorForTokenClassification,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from hfattn.data import (
    Document,
    Documents,
    MaskedTexts,
    Masking,
    PartsConfig,
    SentencePairs,
    Source,
    check_length,
    check_model,
    check_positions,
    fingerprints,
    read_documents,
)
from hfattn.data.documents import compiled
from hfattn.data.next_sentence import SENTENCES
from hfattn.data.text import EMBEDDED
from hfattn.errors import UserError, one_sentence
from hfattn.fields import at_least, number, one_of
from hfattn.hub import vocabulary_texts
from hfattn.loading import Loaded, ModelLocation, base_model_name, load_model, load_model_config, load_tokenizer
from hfattn.metrics.masked import MaskedScores, masked_statistics
from hfattn.publish_sections import check_language_model
from hfattn.reports.base import TrainedRun
from hfattn.reports.masked_lm import fill_in, report
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    TrainingConfig,
    finishing,
    load_config,
    parse_command,
    scores_of_part,
    scratch_config,
    scratch_model,
)
from hfattn.training.config import checked
from hfattn.training.masked import MaskedTrainer
from hfattn.training.masked_class import masked_lm_class
from hfattn.training.sample_config import MaskedSampleConfig

RECIPE = "masked_lm"
FAMILIES = ("bert", "distilbert", "vaswani")  # model types to train from scratch
EVALUATION_SEED = 0  # all evaluations mask the same tokens, so that scores are comparable
BERT_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


# Configuration


@strict
@dataclass
class DataConfig(PartsConfig[Documents]):
    unit: ClassVar[str] = "documents"

    # "embedded" (the topics of the Python language reference), a .txt file, a .jsonl file, a tab-separated file whose
    # first line names its columns, or a dataset on the Hub.
    dataset: str = EMBEDDED
    text_column: str = "text"
    # Regular expression that matches the first line of each document; null: each line or row is a document.
    document_start: str | None = None
    max_length: int = at_least(8, 128)  # tokens of an example, [CLS] and [SEP] included
    packing: bool = True  # join the documents and cut them without padding; false: examples of single documents
    masked_share: float = number(0.15, above=0, below=1)  # share of the tokens to predict
    whole_words: bool = False  # mask words with all of their tokens
    next_sentence: bool = False  # train on pairs of passages, half of which belong together (BERT)
    sentences: str = one_of(SENTENCES, "marks")  # a passage ends at a punctuation mark, or at the end of a line

    def validate_documents(self) -> None:
        if self.next_sentence and self.packing:
            raise ValueError("packing joins documents, and next_sentence needs them separate; write packing: false.")
        if self.document_start is not None:
            compiled(self.document_start)
        if self.dataset == EMBEDDED and (self.validation, self.test, self.document_start) != (None, None, None):
            raise ValueError("embedded has documents of its own; remove validation, test and document_start.")

    def read(self, dataset: Source, split: str, train: Documents | None = None) -> Documents:
        return read_documents(
            dataset,
            text_column=self.text_column,
            document_start=self.document_start,
            config=self.config,
            split=split,
            revision=self.revision,
        )

    def key(self, item: Document) -> str:
        return item.text


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # for a model from scratch
    # ``model`` has the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of a
    # model from scratch (and for vaswani a preset, and fields of that type's configuration).
    model: dict[str, Any] = field(default_factory=dict)
    sample: MaskedSampleConfig = field(default_factory=MaskedSampleConfig)

    @property
    def pretrained(self) -> ModelLocation | None:
        """Location of the pretrained model; None for training from scratch."""
        return checked(ModelLocation, self.model, prefix="model.") if "name" in self.model else None


def validate(config: Config) -> None:
    """Check what can be checked without the data.

    Raises:
        UserError: a section does not describe a valid model, a tokenizer, an optimizer or training arguments.
    """
    check_language_model(config.publish)
    if config.pretrained is None:
        settings = own_config(config, vocab_size=1 << 20, pad=0)
        masked_lm_class(settings, config.data.next_sentence)
        check_positions(settings, config.data.max_length)
    elif config.tokenizer != TokenizerConfig():
        raise UserError("A pretrained model comes with its own tokenizer; remove the section tokenizer.")
    if config.tokenizer.sampling:
        raise UserError("A masked language model needs fixed tokens; remove tokenizer.sampling.")
    config.check_training()


def own_config(config: Config, vocab_size: int, pad: int) -> PreTrainedConfig:
    """Return the configuration of the model from scratch, with the vocabulary of its tokenizer.

    Raises:
        UserError: the section ``model`` does not describe a valid model.
    """
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if config.model.get("model_type") == "vaswani":  # an encoder alone has no start and end tokens
        from_data |= dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"))
    return scratch_config(config.model, from_data, FAMILIES)


def make_examples(
    data: DataConfig, documents: Documents, tokenizer: PreTrainedTokenizerBase, masking: Masking, seed: int
) -> MaskedTexts | SentencePairs:
    """Make the examples of a part: pairs of passages, or single texts."""
    options: dict[str, Any] = {"masking": masking, "seed": seed}
    if data.next_sentence:
        return SentencePairs(documents, tokenizer, data.max_length, sentences=data.sentences, **options)
    return MaskedTexts(documents, tokenizer, data.max_length, packing=data.packing, **options)


def main(command: RecipeCommand) -> None:
    config = load_config(Config, command.config, command.overrides)
    validate(config)
    arguments = config.arguments(command.run)
    command.start(arguments)

    # Data: documents -> ids, with the model's tokenizer or one learned from the training documents -> masked examples

    data, pretrained = config.data, config.pretrained
    if pretrained:
        settings = load_model_config(pretrained)
        masked_lm_class(settings, data.next_sentence)
        tokenizer = load_tokenizer(pretrained)
    parts = data.read_parts(arguments.seed, command.datasets)
    if not pretrained:
        tokenizer = build_tokenizer(
            config.tokenizer, vocabulary_texts(config, parts["train"].contents), ends=False, masks=True
        )
        settings = own_config(config, len(tokenizer), tokenizer.pad_token_id)
        if data.next_sentence:
            tokenizer.model_input_names = BERT_INPUTS
    check_positions(settings, data.max_length)
    check_length(tokenizer.model_max_length, data.max_length)
    masking = Masking(tokenizer, data.masked_share, data.whole_words)
    examples = {
        part: make_examples(data, documents, tokenizer, masking, arguments.seed if part == "train" else EVALUATION_SEED)
        for part, documents in parts.items()
    }

    # Model

    head = masked_lm_class(settings, data.next_sentence)
    if pretrained:
        loaded = load_model(head, pretrained)
    else:
        model = scratch_model(head, settings)
        loaded = Loaded(model, sorted(name for name, _ in model.named_parameters()))
    check_model(loaded.model, tokenizer, data.max_length)
    before = fill_in(loaded.model, tokenizer, config.sample.sentences, config.sample.top_k, data.max_length)

    # Training

    trainer = MaskedTrainer(
        loaded.model,
        arguments,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        train_dataset=examples["train"],
        eval_dataset=examples["validation"],
        compute_metrics=MaskedScores(),
        preprocess_logits_for_metrics=masked_statistics,
        **config.trainer_options(arguments),
    )
    command.claim_run(config, texts=fingerprints(parts), processes=arguments.world_size)
    command.report_data(config, parts, tokenizer)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the weights that scored best on the validation documents

    metrics = {
        part: scores_of_part(trainer.evaluate(dataset, metric_key_prefix=part), part)
        for part, dataset in examples.items()
        if part != "train"
    }
    model = trainer.whole_model()
    if not pretrained:
        tokenizer.model_max_length = data.max_length

    # Output files

    if trainer.is_world_process_zero():
        weights = {"base_model": base_model_name(pretrained) if pretrained else None, "new_weights": loaded.new_weights}
        with finishing(command.run):
            run = TrainedRun(command, config, trainer, model, tokenizer)
            report(run, parts, examples, metrics, weights, before)
    trainer.finish()


if __name__ == "__main__":
    with one_sentence():
        main(parse_command(RECIPE, __doc__ or ""))

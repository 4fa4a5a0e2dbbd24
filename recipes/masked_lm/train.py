"""Train a masked language model, from scratch or from one that is trained already, and leave behind a folder that can
be published and that other recipes begin from.

accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/wikitext2_vaswani.yaml
accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/imdb_distilbert.yaml \\
    --data.source my.jsonl --data.test null --model.name my-distilbert
accelerate launch recipes/masked_lm/train.py --config recipes/masked_lm/wikitext2_vaswani.yaml --resume
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    BertConfig,
    DataCollatorForTokenClassification,
    DistilBertConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
    TrainingArguments,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MASKED_LM_MAPPING,
    MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING,
)

from hfattn import VaswaniConfig
from hfattn.data import Documents, MaskedTexts, Masking, SentencePairs, check_split, read_documents, source_of_part
from hfattn.data.documents import compiled
from hfattn.data.next_sentence import SENTENCES
from hfattn.data.text import EMBEDDED
from hfattn.errors import UserError, one_sentence
from hfattn.loading import Loaded, ModelLocation, base_model_name, load_model, load_model_config, load_tokenizer
from hfattn.metrics.masked import MaskedScores, masked_statistics
from hfattn.models.strict_config import unknown_name_message
from hfattn.plots import plot_curves, plot_table
from hfattn.reports import masked_lm as report
from hfattn.reports.masked_lm import BLANK
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import (
    RecipeCommand,
    TrainingConfig,
    load_config,
    model_config,
    parse_command,
    publish_run,
    run_facts,
    scores_of_part,
    writing,
)
from hfattn.training.config import checked
from hfattn.training.masked import MaskedTrainer

RECIPE = "masked_lm"
FAMILIES: dict[str, type[PreTrainedConfig]] = {
    family.model_type: family for family in (BertConfig, DistilBertConfig, VaswaniConfig)
}
EVALUATION_SEED = 0  # what is hidden from every model that is evaluated, so that their scores compare
BERT_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]


# Configuration


@strict
@dataclass
class DataConfig:
    # "embedded" (the topics of the Python reference), a .txt file, a .jsonl file, a tab-separated file whose first line
    # names its columns, or the id of a data set on the Hub.
    source: str = EMBEDDED
    # Another file of that kind, or the split of the Hub data set; null: a part of source.
    validation: str | None = None
    test: str | None = None
    # Of the distinct documents, where validation is null: train, validation[, test].
    split: list[float | int | str] = field(default_factory=lambda: [0.9, 0.1])
    text_column: str = "text"
    # A regular expression that the first line of each document matches; null: each line or row is a document.
    document_start: str | None = None
    config: str | None = None  # of a Hub data set
    hub_split: str = "train"
    revision: str | None = None
    max_length: int = 128  # tokens, [CLS] and [SEP] included
    packing: bool = True  # documents are joined and cut without padding; false: each by itself, a long one in several
    masked_share: float = 0.15  # of the tokens that are to be predicted
    whole_words: bool = False  # hide all tokens of a word, not some
    next_sentence: bool = False  # pairs of passages, of which half belong together, for models with segments (BERT)
    sentences: str = "marks"  # how documents are cut for that: by marks that end sentences, or as "lines"

    def validate_sizes(self) -> None:
        if self.max_length < 8:
            raise ValueError(f"max_length is {self.max_length}; write a whole number of at least 8.")
        if not 0 < self.masked_share < 1:
            raise ValueError(f"masked_share is {self.masked_share}; write a share between 0 and 1, such as 0.15.")
        if self.sentences not in SENTENCES:
            raise ValueError(f"sentences is {self.sentences!r}; write one of {', '.join(SENTENCES)}.")
        if self.next_sentence and self.packing:
            raise ValueError("packing joins documents, and next_sentence tells them apart; write packing: false.")

    def validate_parts(self) -> None:
        if not self.source:
            raise ValueError("source is empty; write 'embedded', the path of a file, or the id of a Hub data set.")
        check_split(self.split, unit="documents")
        if self.document_start is not None:
            compiled(self.document_start)
        if self.source == EMBEDDED and (self.validation, self.test, self.document_start) != (None, None, None):
            raise ValueError("embedded has its own documents; leave validation, test and document_start out.")
        if self.validation is None and self.test is not None and len(self.split) == 3:
            raise ValueError(f"split {self.split} cuts a test from source, and test is given too; leave one out.")

    def read_parts(self, seed: int) -> dict[str, Documents]:
        """The documents of each part: train, validation, and the test where there is one."""
        options: dict[str, Any] = {
            "text_column": self.text_column,
            "document_start": self.document_start,
            "config": self.config,
            "revision": self.revision,
        }
        whole = read_documents(self.source, split=self.hub_split, **options)
        parts = {"train": whole}
        if self.validation is None:
            cut = whole.split(self.split, seed, key=lambda item: item.text, unit="documents")
            parts = dict(zip(("train", "validation", "test"), cut, strict=False))
        for part, place in (("validation", self.validation), ("test", self.test)):
            if place is not None:
                source, split = source_of_part(self.source, place, self.hub_split)
                parts[part] = read_documents(source, split=split, **options)
        return parts


@strict
@dataclass
class SampleConfig:
    # Filled in before and after training; what is missing in each is written as [MASK].
    sentences: list[str] = field(default_factory=lambda: ["The capital of France is [MASK]."])
    number: int = 5  # of the most probable tokens shown

    def validate_sentences(self) -> None:
        if self.number < 1:
            raise ValueError(f"number is {self.number}; write a whole number of at least 1.")
        if not self.sentences:
            raise ValueError(f"sentences is empty; write at least one with {BLANK} in it.")
        for sentence in self.sentences:
            if sentence.count(BLANK) != 1:
                raise ValueError(f"sentences has {sentence!r}; write {BLANK} in each sentence once.")


@strict
@dataclass
class Config(TrainingConfig):
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)  # of a model from scratch
    # name (and revision, trust_remote_code, options) of a trained model; or, from scratch, model_type, for the family
    # vaswani a preset, and fields of that type's configuration.
    model: dict[str, Any] = field(default_factory=dict)
    sample: SampleConfig = field(default_factory=SampleConfig)


def model_source(config: Config) -> ModelLocation | None:
    """Where the model that training begins with comes from; None from scratch."""
    return checked(ModelLocation, config.model, prefix="model.") if "name" in config.model else None


def scratch_config(section: Mapping[str, Any], vocab_size: int, pad: int = 0) -> PreTrainedConfig:
    """The configuration of a model whose weights all begin at random.

    Raises:
        UserError: the section ``model`` names no family, or a field that its family has not.
    """
    fields = dict(section)
    family = fields.pop("model_type", None)
    if family not in FAMILIES:
        raise UserError(
            f"model.model_type is {family!r}; write one of {', '.join(FAMILIES)}, or the model.name of a trained model."
        )
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if family == VaswaniConfig.model_type:
        from_data |= {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
        return model_config(VaswaniConfig, fields, **from_data)
    known = FAMILIES[family]().to_dict()
    for name in fields:
        if name in from_data:
            raise UserError(f"model.{name} follows from the data; leave it out.")
        if name not in known:
            raise UserError(unknown_name_message(f"model.{name}", {f"model.{each}" for each in known}, family))
    return consistent(FAMILIES[family], {**fields, **from_data})


def consistent(make: Callable[..., Any], fields: dict[str, Any]) -> Any:
    """What ``make`` makes of these fields; its complaint, where they do not fit together, as a sentence."""
    try:
        return checked(make, fields, prefix="model.")
    except UserError as error:
        reason = str(error)
        raise UserError(reason if reason.endswith(".") else f"{reason}; change the section model.") from error


def auto_class(model: PreTrainedConfig, next_sentence: bool) -> Any:
    """The Auto class of the model with the heads that are trained.

    Raises:
        UserError: there is no masked language model of that type, or none that predicts next sentences.
    """
    brings_its_own = "AutoModelForMaskedLM" in model.to_dict().get("auto_map", {})
    if type(model) not in MODEL_FOR_MASKED_LM_MAPPING and not brings_its_own:
        raise UserError(
            f"A model of the type {model.model_type} is no masked language model; name an encoder such as BERT or "
            "DistilBERT as model.name."
        )
    if not next_sentence:
        return AutoModelForMaskedLM
    if type(model) not in MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING:
        raise UserError(
            f"data.next_sentence needs segment embeddings and a head, and a model of the type {model.model_type} has "
            "none; write false, or another model such as BERT."
        )
    return AutoModelForPreTraining


def check_length(model: PreTrainedConfig, max_length: int, longest: int) -> None:
    """Make sure that a model has as many positions as the examples; ``longest`` is its tokenizer's limit."""
    fields = model.to_dict()
    positions = fields.get("max_position_embeddings")
    if positions is not None and fields.get("positions", "learned") == "learned":
        longest = min(longest, positions)
    if max_length > longest:
        raise UserError(f"data.max_length is {max_length}, and the model reads {longest} tokens; write at most that.")


def validate(config: Config, run: Path = Path("runs")) -> TrainingArguments:
    """Check what can be checked without the data (``hfattn recipes validate``); returns the run's arguments.

    Raises:
        UserError: a section does not make a model, a tokenizer, an optimiser or training arguments.
    """
    if model_source(config) is None:
        model = scratch_config(config.model, vocab_size=1 << 20)
        auto_class(model, config.data.next_sentence)
        check_length(model, config.data.max_length, config.data.max_length)
    elif config.tokenizer != TokenizerConfig():
        raise UserError("The tokenizer is that of model.name; leave out the section tokenizer.")
    if config.tokenizer.sampling:
        raise UserError("A masked language model's words are not segmented anew; leave tokenizer.sampling out.")
    return config.arguments(run)


def main() -> None:
    command = parse_command(RECIPE, __doc__ or "")
    config = load_config(Config, command.config, command.overrides)
    arguments = validate(config, command.run)
    command.start(arguments)

    # Data: documents -> tokenizer, of the model or learned on the training documents -> ids, some of them to be hidden

    data, source = config.data, model_source(config)
    if source is not None:
        settings = load_model_config(source)
        auto_class(settings, data.next_sentence)
        tokenizer = load_tokenizer(source)
    parts = data.read_parts(arguments.seed)
    if source is None:
        tokenizer = build_tokenizer(config.tokenizer, [item.text for item in parts["train"]], ends=False, masks=True)
        settings = scratch_config(config.model, len(tokenizer), tokenizer.pad_token_id)
        if data.next_sentence:
            tokenizer.model_input_names = BERT_INPUTS
    check_length(settings, data.max_length, tokenizer.model_max_length)
    masking = Masking(tokenizer, data.masked_share, data.whole_words)
    examples = {
        part: make_examples(data, documents, tokenizer, masking, arguments.seed if part == "train" else EVALUATION_SEED)
        for part, documents in parts.items()
    }

    # Model

    loaded = make_model(source, settings, data.next_sentence)
    model = loaded.model
    if len(tokenizer) > model.config.vocab_size:
        raise UserError(
            f"The tokenizer has {len(tokenizer)} tokens and the model {model.config.vocab_size}; write a model.name "
            "whose tokenizer is its own."
        )
    before = report.fill_in(model, tokenizer, config.sample.sentences, config.sample.number, config.data.max_length)

    # Training

    trainer = MaskedTrainer(
        model,
        arguments,
        data_collator=DataCollatorForTokenClassification(tokenizer),
        train_dataset=examples["train"],
        eval_dataset=examples["validation"],
        compute_metrics=MaskedScores(),
        preprocess_logits_for_metrics=masked_statistics,
        **config.trainer_options(arguments),
    )
    fingerprints = {part: documents.fingerprint for part, documents in parts.items()}
    command.claim_run(config, texts=fingerprints, processes=arguments.world_size)
    trainer.train_or_resume(command.resume)

    # Evaluation, with the best weights on the validation documents

    scores = {
        part: trainer.evaluate(dataset, metric_key_prefix=part) for part, dataset in examples.items() if part != "train"
    }
    loaded = loaded._replace(model=trainer.whole_model())
    if trainer.is_world_process_zero():
        with writing(command.run):
            publish(command, config, trainer, loaded, tokenizer, parts, examples, scores, before)
    trainer.finish()


def make_examples(
    data: DataConfig, documents: Documents, tokenizer: PreTrainedTokenizerBase, masking: Masking, seed: int
) -> MaskedTexts | SentencePairs:
    """The examples of a part: pairs of passages, or one text each."""
    options: dict[str, Any] = {"masking": masking, "seed": seed}
    if data.next_sentence:
        return SentencePairs(documents, tokenizer, data.max_length, sentences=data.sentences, **options)
    return MaskedTexts(documents, tokenizer, data.max_length, packing=data.packing, **options)


def make_model(source: ModelLocation | None, settings: PreTrainedConfig, next_sentence: bool) -> Loaded:
    """The model that training begins with, and its weights that begin at random."""
    cls = auto_class(settings, next_sentence)
    if source is not None:
        return load_model(cls, source)
    model = consistent(cls.from_config, {"config": settings})
    return Loaded(model, sorted(name for name, _ in model.named_parameters()))


def publish(
    command: RecipeCommand,
    config: Config,
    trainer: MaskedTrainer,
    loaded: Loaded,
    tokenizer: PreTrainedTokenizerBase,
    parts: Mapping[str, Documents],
    examples: Mapping[str, MaskedTexts | SentencePairs],
    scores: Mapping[str, Mapping[str, float]],
    before: Sequence[Sequence[Mapping[str, Any]]],
) -> None:
    """What the run leaves behind: a folder that loads without hfattn, its results, curve and table, its card."""
    run, state, data, model = command.run, trainer.state, config.data, loaded.model
    source = model_source(config)
    model.eval()
    model.save_pretrained(run)
    if source is None:
        tokenizer.model_max_length = data.max_length  # to which it truncates, where that is asked for
    tokenizer.save_pretrained(run)
    after = report.fill_in(model, tokenizer, config.sample.sentences, config.sample.number, config.data.max_length)
    samples: list[dict[str, Any]] = [
        {"sentence": sentence, "before": first, "after": last}
        for sentence, first, last in zip(config.sample.sentences, before, after, strict=True)
    ]
    title = f"{RECIPE}: {command.config.stem}"
    unit, curve = "nats per masked token", "eval_nats_per_masked_token"
    if data.next_sentence:
        unit, curve = "nats per masked token + nats per pair", "eval_loss"
    plot_curves(run / "loss_curve.png", state.log_history, {}, title, unit, curve)
    rows = [[sample["sentence"], report.listed(sample["before"]), report.listed(sample["after"])] for sample in samples]
    plot_table(run / "filled_in.png", ["sentence", "before training", "after it"], rows, title)
    results = {
        **run_facts(RECIPE, command.config, asdict(config), trainer.args.seed),
        "data": {
            "name": parts["train"].name,
            "tokens": len(tokenizer),
            "tokenizer": config.tokenizer.kind if source is None else base_model_name(source),
            "max_length": data.max_length,
            "packing": data.packing,
            "masked_share": data.masked_share,
            "whole_words": data.whole_words,
            "next_sentence": data.next_sentence,
            "parts": {
                part: {
                    "documents": len(documents),
                    "examples": len(examples[part]),
                    "tokens": int(examples[part].lengths.sum()),
                    "sha256": documents.fingerprint,
                }
                for part, documents in parts.items()
            },
        },
        "model": {
            "model_type": model.config.model_type,
            "base_model": None if source is None else base_model_name(source),
            "new_weights": loaded.new_weights,
            "parameters": model.num_parameters(),
        },
        "metrics": {part: scores_of_part(score, part) for part, score in scores.items()},
        "training": {
            **trainer.training_facts("tokens", state.epoch * float(examples["train"].lengths.sum())),
            "padding_share": round(trainer.padding_share, 4),
        },
        "samples": samples,
        "mask_token": tokenizer.mask_token,
    }
    probes = [sample["sentence"] for sample in samples[:2]]
    publish_run(command, results, report.summary(run, results), model, tokenizer, probes)


if __name__ == "__main__":
    with one_sentence():
        main()

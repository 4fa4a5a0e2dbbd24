"""Classifiers trained from scratch, with a tokenizer learned on the training texts: configuration and attention."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..data import LabeledDataConfig, LabeledTexts, Source, WordVectorsConfig
from ..data.report import DataReport
from ..errors import UserError
from ..fields import at_least, one_of
from ..metrics.evaluation_config import ClassifierEvaluationConfig
from ..models.configuration_rnn_encoder import RNNEncoderConfig
from ..models.configuration_vaswani import VaswaniConfig
from ..models.strict_config import StrictConfig, own_fields
from ..tokenizers import TokenizerConfig, uncovered_characters
from .config import family_config, first_changed
from .contextual import check_contextual, contextual_facts, contextual_section
from .from_scratch import check_all_words
from .training_config import TrainingConfig

if TYPE_CHECKING:
    from transformers import PreTrainedModel

FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (RNNEncoderConfig, VaswaniConfig)}
SEVERAL = "multi_label_classification"  # the problem_type of a sigmoid for each output
CLASSES_ONLY = (
    *("class_weights", "data.labels", "evaluation.calibration", "evaluation.coverage"),
    *("evaluation.counterfactual_texts", "evaluation.swaps", "evaluation.templates"),
)
SEVERAL_TOO = ("class_weights", "data.labels", "evaluation.calibration")  # of these, also for several labels


@strict
@dataclass
class OwnClassifierDataConfig(LabeledDataConfig, WordVectorsConfig):
    """The section ``data``: the texts, how much of each is read, and initial word vectors."""

    max_length: int = at_least(1, 128)  # tokens, special ones included
    too_long: str = one_of(("cut", "cut_start"), "cut")  # keep the first or the last tokens
    sentence_ends: str = ".!?"  # a token of only these characters ends a sentence, for hierarchical pooling
    regression: bool = False  # label_column has a number to predict, such as the relatedness of two sentences
    # label_column has several labels for a text, or none: a list, or a text with label_separator between two labels.
    multi_label: bool = False
    label_separator: str = ","

    def validate_reading(self) -> None:
        if self.pair_column is not None and self.too_long != "cut":
            raise ValueError(f"too_long {self.too_long} is for single texts, and pair_column makes pairs; write cut.")

    def validate_regression(self) -> None:
        if self.regression and self.dataset in self.generated:
            raise ValueError(f"regression is for labels that are numbers, and {self.dataset} has classes; remove it.")

    def validate_multi_label(self) -> None:
        if self.multi_label and (self.regression or self.dataset in self.generated):
            other = "regression predicts one number" if self.regression else f"{self.dataset} has one label per text"
            raise ValueError(f"multi_label is for texts with several labels, and {other}; remove it.")
        if not self.label_separator.strip():
            raise ValueError("label_separator is blank; write the character between two labels, such as a comma.")

    @property
    def problem_type(self) -> str:
        """The kind of problem, as transformers calls it."""
        if self.regression:
            return "regression"
        return SEVERAL if self.multi_label else "single_label_classification"

    def read(
        self,
        dataset: Source,
        split: str,
        train: LabeledTexts | None = None,
        *,
        regression: bool = False,
        separator: str | None = None,
    ) -> LabeledTexts:
        between = self.label_separator if self.multi_label else None
        return super().read(dataset, split, train, regression=self.regression, separator=between)

    def report(self, *args: Any, **options: Any) -> DataReport:
        limit = None if self.too_long == "windows" else self.max_length
        between = self.label_separator if self.multi_label else None
        return super().report(*args, max_length=limit, regression=self.regression, separator=between, **options)

    def scores(self) -> dict[str, Any]:
        """Return the arguments of a Trainer for the scores of evaluations."""
        from ..metrics import (
            ClassificationScores,
            MultiLabelScores,
            RegressionScores,
            class_statistics,
            label_logits,
            predicted_numbers,
        )

        functions: tuple[Any, Any] = (ClassificationScores(), class_statistics)
        if self.regression:
            functions = RegressionScores(), predicted_numbers
        elif self.multi_label:
            functions = MultiLabelScores(), label_logits
        return dict(zip(("compute_metrics", "preprocess_logits_for_metrics"), functions, strict=True))


@strict
@dataclass
class OwnClassifierSampleConfig:
    """The section ``sample``: which texts are shown in the card."""

    mistakes: int = at_least(1, 10)  # number of mistakes, the most confident ones
    alignments: int = at_least(1, 3)  # number of short texts whose attention is drawn
    # Texts, or pairs as lists of two texts, whose classes are shown; the first is in the code of the card.
    examples: list[str | list[str]] = field(default_factory=list)

    def check_examples(self, pairs: bool) -> None:
        """Check that the examples are what the classifier reads, texts or pairs.

        Raises:
            UserError: an example is not.
        """
        for example in self.examples:
            texts = [example] if isinstance(example, str) else example
            if len(texts) != 1 + pairs or not all(text.strip() for text in texts):
                wanted = "a pair, [text, second text]" if pairs else "one text"
                raise UserError(f"sample.examples has {example!r}, and the classifier reads {wanted}; correct it.")

    def check_vocabulary(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """Check that a tokenizer that was learned can encode the examples.

        Raises:
            UserError: an example has a character that is not in the vocabulary.
        """
        for example in self.examples:
            if missing := uncovered_characters(tokenizer, "".join(example)):
                raise UserError(
                    f"sample.examples contains {missing[0]!r}, which is not in the vocabulary; write "
                    "tokenizer.unknown: true, or sample.examples: []."
                )


@strict
@dataclass
class OwnClassifierEvaluationConfig(ClassifierEvaluationConfig):
    """The section ``evaluation`` of recipes that train a classifier with gradients."""

    # Divide the logits by the temperature that fits the probabilities to the validation part (Guo et al. 2017).
    calibration: bool = False


@strict
@dataclass
class OwnClassifierConfig(TrainingConfig):
    """Sections shared by recipes that train a classifier from scratch."""

    data: OwnClassifierDataConfig = field(default_factory=lambda: OwnClassifierDataConfig(dataset="stanfordnlp/imdb"))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of that type's configuration
    # A frozen encoder whose contextual vectors stand beside the embeddings: name, and fields of ContextualConfig.
    contextual: dict[str, Any] = field(default_factory=dict)
    evaluation: OwnClassifierEvaluationConfig = field(default_factory=OwnClassifierEvaluationConfig)
    sample: OwnClassifierSampleConfig = field(default_factory=OwnClassifierSampleConfig)


def own_classifier_config(
    config: OwnClassifierConfig,
    vocab_size: int,
    pad: int = 0,
    sentence_ends: Sequence[int] = (),
    labels: Sequence[str] = (),
) -> StrictConfig:
    """Return the configuration of the model, with the vocabulary and the classes of the data.

    Args:
        config: configuration of the recipe.
        vocab_size: size of the vocabulary.
        pad: id of the padding token.
        sentence_ends: ids of the tokens that end sentences, for hierarchical pooling.
        labels: names of the classes, or of the number of a regression; empty before the data are read.

    Raises:
        UserError: ``model.model_type`` is unknown, a field does not exist in its configuration, or the model cannot
            classify the data.
    """
    for name in ("id2label", "label2id", "num_labels"):
        if name in config.model:
            raise UserError(f"model.{name} follows from the data; remove it.")
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if config.model.get("model_type") == VaswaniConfig.model_type:
        from_data |= {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
    if config.data.pair_column is not None and config.tokenizer.sampling:
        raise UserError("tokenizer.sampling is for single texts, and data.pair_column makes pairs; write 0.")
    if config.data.problem_type != "single_label_classification":
        from_data["problem_type"] = config.data.problem_type
    made = family_config(FAMILIES, config.model, **from_data)
    if made.problem_type == SEVERAL and not config.data.multi_label:
        made.num_labels = 1
    if not labels:
        return made
    if is_hierarchical(made):
        if not sentence_ends:
            raise UserError(
                "Hierarchical pooling needs tokens that end sentences, and the vocabulary has none of "
                f"{config.data.sentence_ends!r} (data.sentence_ends); write tokenizer.strip_punctuation: false, or "
                "another model.pooling."
            )
        made.sentence_end_token_ids = list(sentence_ends)
    if has_one_sigmoid(made):
        if len(labels) != 2:
            raise UserError(
                f"The data have {len(labels)} classes, and a single sigmoid output has two; write "
                "model.problem_type: single_label_classification."
            )
        labels = labels[1:]  # the sigmoid is the probability of this class
    made.id2label = dict(enumerate(labels))
    made.label2id = {label: i for i, label in enumerate(labels)}
    return made


def check_problem(config: OwnClassifierConfig) -> None:
    """Check that the configuration of a regression has no option that needs classes, nor several labels one that needs
    one class.

    Raises:
        UserError: it has one.
    """
    if config.data.regression and (name := first_changed(config, CLASSES_ONLY)):
        raise UserError(f"{name} is for classes, and a regression (data.regression) predicts a number; remove it.")
    if config.data.regression and config.training.get("label_smoothing_factor"):
        raise UserError("training.label_smoothing_factor is for classes, and a regression predicts a number; write 0.")
    one_only = [name for name in CLASSES_ONLY if name not in SEVERAL_TOO]
    if config.data.multi_label and (name := first_changed(config, one_only)):
        raise UserError(f"{name} is for texts with one label, and data.multi_label has several; remove it.")
    if config.data.multi_label and config.training.get("label_smoothing_factor"):
        raise UserError("training.label_smoothing_factor needs one label per text, and data.multi_label; write 0.")


def check_own_classifier(config: OwnClassifierConfig) -> None:
    """Check that the configuration of a classifier from scratch has no option that only a pretrained model has.

    Raises:
        UserError: it has one, or it smooths the labels of a single sigmoid.
    """
    if config.data.too_long not in ("cut", "cut_start"):
        raise UserError(
            f"data.too_long {config.data.too_long} is for a model that is pretrained (model.name); write cut."
        )
    check_all_words(config)
    smoothing = config.training.get("label_smoothing_factor")
    made = own_classifier_config(config, vocab_size=1 << 20)
    check_contextual(config, made)
    if has_one_sigmoid(made) and smoothing:
        raise UserError(
            "training.label_smoothing_factor needs a softmax, and this model has one sigmoid; write 0, or "
            "model.problem_type: single_label_classification."
        )


def has_one_sigmoid(model: StrictConfig) -> bool:
    """Return whether the output of a classifier is a single logit, trained with binary cross-entropy."""
    return model.problem_type == SEVERAL and model.num_labels == 1


def is_hierarchical(model: StrictConfig) -> bool:
    """Return whether a classifier pools words to sentences and sentences to texts (Yang et al. 2016)."""
    return isinstance(model, RNNEncoderConfig) and model.pooling == "hierarchical"


def sentence_end_ids(tokenizer: PreTrainedTokenizerBase, characters: str) -> list[int]:
    """Return the ids of the tokens made of only these characters, such as ".", "!" and "?!" for ".!?"."""
    tokens = ((token.strip(), i) for token, i in tokenizer.get_vocab().items())
    return sorted(i for token, i in tokens if token and set(token) <= set(characters))


def initialize_embeddings(
    model: "PreTrainedModel", tokenizer: PreTrainedTokenizerBase, config: OwnClassifierConfig
) -> dict[str, Any]:
    """Initialize the embeddings with ``data.vectors``, if given.

    Returns:
        Facts for ``results.json``: the tokenizer, the vectors, and their coverage of the vocabulary.
    """
    contextual = contextual_section(config)
    return {
        "symbols": len(tokenizer) - len(tokenizer.all_special_ids),
        "tokenizer": "that of the encoder" if contextual and contextual.subwords else config.tokenizer.kind,
        "vectors": config.data.load(model, tokenizer),
    }


def own_facts(model: "PreTrainedModel", config: OwnClassifierConfig) -> dict[str, Any]:
    """Return the parameters and settings of a trained model, for ``results.json``."""
    fields = [field.name for field in own_fields(type(model.config)) if not field.name.startswith("contextual_")]
    return {
        "preset": config.model.get("preset"),
        "parameters": model.num_parameters(),
        "trained_parameters": model.num_parameters(only_trainable=True),
        "one_sigmoid": has_one_sigmoid(model.config),
        **{name: getattr(model.config, name) for name in fields},
        **contextual_facts(model, config),
    }

"""Classifiers of our own, whose tokenizer is learned with them: their configuration, and what they look at."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..data import Coverage, EncodedTexts, LabelledDataConfig
from ..errors import UserError
from ..explain import alignment, plot_alignment, save_html
from ..metrics import ClassifierEvaluationConfig, class_probabilities
from ..models.configuration_rnn_encoder import RNNEncoderConfig
from ..models.configuration_vaswani import VaswaniConfig
from ..models.modeling_rnn_encoder import find_sentences
from ..models.strict_config import StrictConfig
from ..tokenizers import TokenizerConfig
from .config import family_config
from .training_config import TrainingConfig

FAMILIES: dict[str, type[StrictConfig]] = {family.model_type: family for family in (RNNEncoderConfig, VaswaniConfig)}
SHORTEST_DRAWN = 10  # tokens of a text whose attention is worth a picture


@strict
@dataclass
class ClassifierDataConfig(LabelledDataConfig):
    """The section ``data``: the texts, how much of each is read, and what the embeddings begin with."""

    max_length: int = 600  # tokens; what is longer is cut
    keep: str = "first"  # the "first" or the "last" tokens of what is cut
    sentence_ends: str = ".!?"  # a token of these characters alone ends a sentence, for hierarchical pooling
    vectors: str | None = None  # a file of word vectors for the embeddings to begin with; null: none
    words: str | None = None  # where that is a .npy file, the file of its words

    def validate_reading(self) -> None:
        if self.max_length < 1:
            raise ValueError(f"max_length is {self.max_length}; write a whole number of at least 1.")
        if self.keep not in ("first", "last"):
            raise ValueError(f"keep is {self.keep!r}; write first or last.")
        if self.words is not None and self.vectors is None:
            raise ValueError("words is the file of the words of vectors; write vectors too, or leave words out.")
        if self.pair_column is not None:
            raise ValueError("pair_column is for models that read two texts; these read one, so leave it out.")


@strict
@dataclass
class ClassifierSampleConfig:
    """The section ``sample``: which texts are shown."""

    number: int = 10  # of the most confident mistakes shown
    alignments: int = 3  # short texts shown, and what the model looks at in them drawn, where it has attention

    def validate_sizes(self) -> None:
        for name in ("number", "alignments"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; write a whole number of at least 1.")


@strict
@dataclass
class ClassifierConfig(TrainingConfig):
    """What recipes that train a classifier of our own have in common."""

    data: ClassifierDataConfig = field(default_factory=lambda: ClassifierDataConfig(source="stanfordnlp/imdb"))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: dict[str, Any] = field(default_factory=dict)  # model_type, preset, and fields of that type's configuration
    evaluation: ClassifierEvaluationConfig = field(default_factory=ClassifierEvaluationConfig)
    sample: ClassifierSampleConfig = field(default_factory=ClassifierSampleConfig)


def classifier_config(
    config: ClassifierConfig,
    vocab_size: int,
    pad: int = 0,
    sentence_ends: Sequence[int] = (),
    labels: Sequence[str] = (),
) -> StrictConfig:
    """The model's configuration, with the vocabulary and the classes that the data decide.

    Args:
        config: of the recipe.
        vocab_size: symbols of the tokenizer.
        pad: id of its padding.
        sentence_ends: ids of its tokens that end sentences, for hierarchical pooling.
        labels: names of the classes; without any, as before the data are read, there are two.

    Raises:
        UserError: the section ``model`` names no family of classifiers, or a field that its family has not, or the data
            are not what it can classify.
    """
    for name in ("id2label", "label2id", "num_labels"):
        if name in config.model:
            raise UserError(f"model.{name} follows from the data; leave it out.")
    from_data: dict[str, Any] = {"vocab_size": vocab_size, "pad_token_id": pad}
    if config.model.get("model_type") == VaswaniConfig.model_type:
        from_data |= {"bos_token_id": None, "eos_token_id": None, "decoder_start_token_id": None}
    made = family_config(FAMILIES, config.model, **from_data)
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
                f"The data have {len(labels)} classes, and one sigmoid tells two apart; write model.problem_type: "
                "single_label_classification."
            )
        labels = labels[1:]  # what the sigmoid is the probability of
    made.id2label = dict(enumerate(labels))
    made.label2id = {label: i for i, label in enumerate(labels)}
    return made


def has_one_sigmoid(model: StrictConfig) -> bool:
    """Whether a classifier's output is one number, with binary cross-entropy, as in the documents."""
    return model.problem_type == "multi_label_classification"


def is_hierarchical(model: StrictConfig) -> bool:
    """Whether a classifier pools words to sentences and sentences to texts (Yang et al. 2016)."""
    return isinstance(model, RNNEncoderConfig) and model.pooling == "hierarchical"


def sentence_end_ids(tokenizer: PreTrainedTokenizerBase, characters: str) -> list[int]:
    """Ids of the tokens that are made of these characters alone, such as ".", "!" and "?!" of ".!?"."""
    tokens = ((token.strip(), i) for token, i in tokenizer.get_vocab().items())
    return sorted(i for token, i in tokens if token and set(token) <= set(characters))


def vector_facts(data: ClassifierDataConfig, coverage: Coverage) -> dict[str, Any]:
    """Which vectors the embeddings began with, and how much of the vocabulary they know."""
    assert data.vectors is not None
    return {
        "name": Path(data.vectors).name,
        "found": coverage.found,
        "missing": len(coverage.missing),
        "share": coverage.share,
        "most_frequent_missing": list(coverage.missing[:10]),
    }


@torch.inference_mode()
def read_short_texts(
    run: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, dataset: EncodedTexts, number: int
) -> list[dict[str, str | None]]:
    """How the model reads a few of the shortest texts: their class, and a picture and a page of what it looks at.

    Returns:
        Of each text its class, right and predicted, and the name of its picture, None for a model without attention.
    """
    model.set_attn_implementation("eager")  # the fused ones have no weights to show
    order = np.argsort(dataset.lengths[:, 0], kind="stable")
    long_enough = order[dataset.lengths[order, 0] >= SHORTEST_DRAWN]
    texts = dataset.texts
    read: list[dict[str, str | None]] = []
    for i in (long_enough if len(long_enough) else order)[:number].tolist():
        item = texts.items[i]
        input_ids = torch.tensor([dataset[i]["input_ids"]], device=model.device)
        outputs = model(input_ids, output_attentions=True)
        right, predicted = texts.labels[item.label], texts.labels[int(class_probabilities(outputs.logits).argmax())]
        facts: dict[str, str | None] = {"text": item.text, "right": right, "predicted": predicted, "alignment": None}
        if outputs.attentions:
            if is_hierarchical(model.config):
                outputs.attentions = (word_weights_in_text(model, input_ids, *outputs.attentions),)
            record = alignment(outputs, tokenizer=tokenizer, input_ids=input_ids)
            title = f"{right}, read as {predicted}"
            name = facts["alignment"] = f"alignment-{len(read) + 1}"
            plot_alignment(record, title=title).savefig(run / f"{name}.png", dpi=150)
            save_html(record, run / f"{name}.html", title=title)
        read.append(facts)
    return read


def word_weights_in_text(
    model: PreTrainedModel, input_ids: torch.Tensor, words: torch.Tensor, sentences: torch.Tensor
) -> torch.Tensor:
    """What hierarchical pooling takes of each word: its weight in the sentence times the sentence's in the text.

    Args:
        input_ids: (B, S), without padding.
        words: (B, 1, 1, S) and sentences: (B, 1, 1, N), the weights that the model returned.
    """
    ends = torch.isin(input_ids, torch.tensor(model.config.sentence_end_token_ids, device=input_ids.device))
    found = find_sentences(torch.ones_like(ends), end=ends)
    of_sentence = sentences[found.text, 0, 0, found.order]  # (K,)
    return words * found.join(of_sentence[:, None].expand(found.word_mask.shape), input_ids.shape[1])[:, None, None]


__all__ = [
    "FAMILIES",
    "ClassifierConfig",
    "ClassifierDataConfig",
    "ClassifierSampleConfig",
    "classifier_config",
    "has_one_sigmoid",
    "is_hierarchical",
    "read_short_texts",
    "sentence_end_ids",
    "vector_facts",
    "word_weights_in_text",
]

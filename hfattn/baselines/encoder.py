"""Frozen features of texts from a pretrained encoder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from transformers import AutoModel

from ..errors import UserError
from ..fields import at_least, one_of
from ..hub_access import model_folder
from ..loading import (
    ModelLocation,
    base_model_name,
    commit_of,
    load_model,
    load_model_config,
    load_tokenizer,
    max_positions,
)
from ..pooling import POOLINGS, pool

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@strict
@dataclass
class EncoderConfig(ModelLocation):
    """The section ``encoder`` of the recipe, for ``features.kind: encoder``.

    Attributes:
        name: Hub id or folder of a model of ``AutoModel``, with ``revision``, ``trust_remote_code`` and ``options``.
        pooling: how the outputs at the tokens of a text become its vector; see ``hfattn.pooling.pool``.
        max_length: maximum number of tokens of a text; longer texts are truncated.
        batch_size: number of texts encoded at once; it does not change the features.
    """

    section: ClassVar[str] = "encoder"

    pooling: str = one_of(POOLINGS, "mean")
    max_length: int = at_least(1, 128)
    batch_size: int = at_least(1, 64)

    def validate_name(self) -> None:
        """Allow an empty name: the other kinds of features read no encoder."""


class EncoderFeatures:
    """Features of texts from a pretrained encoder that is not trained, standardized over the training texts.

    Args:
        config: the encoder and the pooling.

    Attributes:
        config: the same, with the commit of an encoder from the Hub as ``revision``.
        mean, scale: (D,) mean and standard deviation of the features of the training texts.

    Raises:
        UserError: there is no name; with the first texts: the encoder cannot be loaded, or is an encoder-decoder.
    """

    names = None  # the components of a vector have no names

    def __init__(self, config: EncoderConfig) -> None:
        if not config.name.strip():
            raise UserError("features.kind encoder needs encoder.name; write the id or the folder of a model.")
        self.config = config
        self.model: PreTrainedModel | None = None  # loaded with the first texts, because it may be on the Hub
        self.mean, self.scale = np.zeros(0), np.ones(0)

    def _loaded(self) -> "PreTrainedModel":
        if self.model is None:
            settings = load_model_config(self.config)
            if settings.is_encoder_decoder:
                raise UserError(f"{self.config.name} is an encoder-decoder; write an encoder as encoder.name.")
            self.tokenizer = load_tokenizer(self.config)
            self.model = load_model(AutoModel, self.config).model.eval()
            self.max_length = min(self.config.max_length, max_positions(settings) or self.config.max_length)
            if model_folder(self.config.name) is None:
                self.config = replace(self.config, revision=commit_of(self.config))
        return self.model

    @property
    def published(self) -> EncoderConfig:
        """The configuration without the path of a local folder, of which the last part is kept."""
        return replace(self.config, name=base_model_name(self.config))

    def fit_transform(self, texts: Sequence[Any], seed: int = 0) -> np.ndarray:
        """Return the standardized features (n, D) of the training texts."""
        del seed  # the encoder is deterministic
        features = self.encode(texts)
        self.mean, spread = features.mean(axis=0), features.std(axis=0)
        self.scale = np.where(spread > 0, spread, 1.0)
        return (features - self.mean) / self.scale

    def transform(self, texts: Sequence[Any]) -> np.ndarray:
        """Return the features (n, D) of texts, standardized as those of the training texts."""
        return (self.encode(texts) - self.mean) / self.scale

    def save(self, folder: Path) -> None:
        """Write an encoder that came from a local folder; one from the Hub is loaded from there."""
        if model_folder(self.config.name) is not None:
            self._loaded().save_pretrained(folder)
            self.tokenizer.save_pretrained(folder)

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """Return the pooled outputs (n, D) of the encoder, in float64; texts of similar length share a batch."""
        model = self._loaded()
        order = np.argsort([len(text) for text in texts], kind="stable")
        features = np.zeros((len(texts), 0))
        for start in range(0, len(order), self.config.batch_size):
            rows = order[start : start + self.config.batch_size]
            batch = self.tokenizer(
                [texts[i] for i in rows],
                padding=True,
                padding_side="right",  # the first position is that of the text
                truncation=True,
                max_length=self.max_length,
                return_tensors="pt",
            )
            pooled = pool(model(**batch).last_hidden_state, batch["attention_mask"], self.config.pooling)
            if not start:
                features = np.zeros((len(texts), pooled.shape[1]))
            features[rows] = pooled.numpy()
        return features

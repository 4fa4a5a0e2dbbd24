"""The sections of a recipe that trains a sentence encoder."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from ..data.text_pairs import TextPairDataConfig
from ..errors import UserError
from ..fields import at_least, number, one_of
from ..loading import BaseModel, ModelLocation
from ..pooling import POOLINGS
from ..tokenizers import TokenizerConfig
from .config import build_section, first_changed
from .from_scratch import check_all_words
from .training_config import TrainingConfig
from .tuning_config import TuningConfig, check_tuning

SCORE_LOSSES = ("cosine", "cosent")  # those that train on scores
SENTENCE_LOSSES = (*SCORE_LOSSES, "ranking", "softmax", "distillation")
ENCODER_FAMILIES = ("rnn_encoder", "vaswani")  # those that may be trained from scratch


@strict
@dataclass
class SentenceTeacherConfig(ModelLocation):
    """The section ``teacher``: a sentence encoder whose vectors of the first texts are learned."""

    section: ClassVar[str] = "teacher"

    def validate_name(self) -> None:
        """Allow an empty name: only one of the losses has a teacher."""


@strict
@dataclass
class SentenceSection:
    """The section ``sentence``: how a text becomes a vector, and the loss.

    Attributes:
        pooling: "first", "mean", "max" or "mean_sqrt" (``hfattn.pooling``); null: as the pretrained model was trained,
            and "mean" for others.
        normalize: whether the saved encoder gives vectors of length 1.
        loss: "cosine" (squared error of cosine and score: Reimers & Gurevych 2019), "cosent" (order of the cosines of
            the batch as that of the scores: Li & Li 2024), "ranking" (softmax over the second texts of the batch:
            Henderson et al. 2017), "softmax" (class of the pair, from both vectors: Reimers & Gurevych 2019), or
            "distillation" (both texts get the teacher's vector of the first: Reimers & Gurevych 2020).
        scale: of the cosines in ranking and CoSENT.
        symmetric: ranking: also of the first texts of the batch for each second one.
        mine_negatives: ranking: each first text gets a hard negative, the second text of another pair that the
            pretrained encoder finds most similar to it, before training.
        negative_margin: a mined negative has at most this share of the cosine of the right text, because more similar
            ones are often right too (Moreira et al. 2024).
        chunk: rows whose activations are in memory at once; the gradient is that of the whole batch (GradCache, Gao et
            al. 2021), and each text is read twice. null: all rows.
    """

    pooling: str | None = one_of(POOLINGS, None)
    normalize: bool = True
    loss: str = one_of(SENTENCE_LOSSES, "cosine")
    scale: float | int = number(20.0, above=0)
    symmetric: bool = False
    mine_negatives: bool = False
    negative_margin: float | int = number(0.95, above=0, most=1)
    chunk: int | None = at_least(1, None)


FIELDS_OF_LOSSES = {  # fields that some losses alone read
    ("ranking", "cosent"): ("sentence.scale",),
    ("ranking",): (
        *("sentence.symmetric", "sentence.mine_negatives", "sentence.negative_margin"),
        *("data.negative_column", "data.negative_labels"),
    ),
}


@strict
@dataclass
class SentenceTrainingConfig(TrainingConfig):
    """The sections of a recipe that trains a sentence encoder.

    Attributes:
        model: the name of a pretrained model (and revision, trust_remote_code, options), or the model_type of one from
            scratch (and a preset, and fields of that type's configuration).
        sentence: pooling and loss.
        teacher: the teacher of a distillation.
        tokenizer: for a model from scratch.
    """

    model: dict[str, Any] = field(default_factory=dict)
    sentence: SentenceSection = field(default_factory=SentenceSection)
    teacher: SentenceTeacherConfig = field(default_factory=SentenceTeacherConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)

    @property
    def pretrained(self) -> BaseModel | None:
        """The pretrained model; None for training from scratch."""
        return build_section(BaseModel, self.model, "model.") if "name" in self.model else None

    def check_sentences(self, data: TextPairDataConfig) -> None:
        """Check that loss, data and model go together.

        Raises:
            UserError: they do not.
        """
        loss = self.sentence.loss
        if data.dataset in data.generated and (data.score_column or data.label_column):
            raise UserError(
                f"The pairs of {data.dataset} belong together, and have no scores and no classes; remove "
                "data.score_column and data.label_column."
            )
        check_tuning(self.pretrained, TuningConfig())
        for losses, names in FIELDS_OF_LOSSES.items():
            if loss not in losses and (name := first_changed(self, names)):
                raise UserError(
                    f"{name} is for sentence.loss {' or '.join(losses)}, and the loss is {loss}; remove it."
                )
        if loss in SCORE_LOSSES and data.score_column is None:
            raise UserError(f"sentence.loss {loss} needs scores; write data.score_column, or another loss.")
        if loss == "softmax" and data.label_column is None:
            raise UserError("sentence.loss softmax needs classes; write data.label_column, or another loss.")
        if loss == "softmax" and data.score_column is None and not data.positive_labels:
            raise UserError(
                "sentence.loss softmax trains a classifier that is not saved; write data.positive_labels or "
                "data.score_column, by which the vectors are evaluated."
            )
        classes = data.label_column is not None and not data.positive_labels
        if classes and (loss == "ranking" or (loss == "distillation" and data.score_column is None)):
            raise UserError(
                f"data.label_column names classes, and sentence.loss {loss} is for pairs that belong together; write "
                "the classes of these as data.positive_labels, or remove data.label_column."
            )
        if (loss == "distillation") != bool(self.teacher.name.strip()):
            raise UserError("sentence.loss distillation, and no other, has a teacher; write teacher.name for it alone.")
        if self.sentence.mine_negatives and (data.negative_column or data.negative_labels):
            raise UserError("sentence.mine_negatives and given negatives are two sources; write one of them.")
        if self.pretrained is None:
            if self.sentence.mine_negatives:
                raise UserError("sentence.mine_negatives is for a pretrained model (model.name); write false.")
            check_all_words(self)
            return
        for name in ("data.vectors", "tokenizer"):
            if first_changed(self, (name,)):
                raise UserError(f"{name} is for a model from scratch (model.model_type); remove it.")

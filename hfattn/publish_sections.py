"""The sections of all recipes on what is published: the card, and the texts that a run folder quotes."""

from dataclasses import dataclass, field

from huggingface_hub.dataclasses import strict

from .errors import UserError
from .fields import one_of

TEXTS = ("none", "own_words", "samples")


@strict
@dataclass
class PublishConfig:
    """The section ``publish``: what a run folder, which is made to be published, may say of the data."""

    # Texts that the card, the results, the pictures and the fingerprints quote: samples of the data; own_words, which
    # are those of the section sample; or none. null: samples if the data are public, and none otherwise.
    texts: str | None = one_of(TEXTS, None)
    # The data.dataset, a file, whose texts are public. Generated data and public datasets of the Hub always are.
    public_data: str | None = None


def check_language_model(publish: PublishConfig) -> None:
    """Check the section ``publish`` of a language model, whose card shows what the model writes.

    Raises:
        UserError: no text may be quoted.
    """
    if publish.texts == "none":
        raise UserError(
            "publish.texts is none, but the card of a language model shows what it writes for the texts of the section "
            "sample; write own_words, and read what it writes before you publish it."
        )


@strict
@dataclass
class CardConfig:
    """The section ``card``: facts for the model card that cannot be measured; the card says which are missing."""

    license: str | None = None  # license of the weights, as a Hub identifier such as apache-2.0
    intended_use: str | None = None  # what the model is for, and what it is not for, in a sentence or two
    # The data.dataset that the fields below describe; the card leaves them out for any other dataset.
    describes: str | None = None
    language: list[str] = field(default_factory=list)  # ISO 639 codes of the texts
    data: str | None = None  # origin and license of the texts, in one sentence
    datasets: list[str] = field(default_factory=list)  # Hub ids of the datasets

    def validate_describes(self) -> None:
        if self.describes is None and (self.language or self.data or self.datasets):
            raise ValueError("language, data and datasets describe a dataset; write its data.dataset as describes.")

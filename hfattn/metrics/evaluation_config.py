"""The section on evaluation that the recipes for classifiers share."""

from dataclasses import dataclass, field

from huggingface_hub.dataclasses import strict

from ..fields import at_least


@strict
@dataclass
class ClassifierEvaluationConfig:
    """The section ``evaluation`` of recipes for classifiers."""

    columns: list[str] = field(default_factory=list)  # columns of the data; each value is a slice
    words: list[str] = field(default_factory=list)  # words; the texts with a word are a slice
    counterfactual_texts: int = at_least(0, 2000)  # number of texts for counterfactual tests
    swaps: str | None = None  # YAML file with more kinds of words to swap; null: gender, country and name only
    templates: bool = False  # also test sentences that differ in a country, a gender or a name
    # Share of the validation texts that are answered: it determines the lowest confidence that counts as an answer.
    coverage: float | None = None

    def validate_coverage(self) -> None:
        if self.coverage is not None and not 0 < self.coverage <= 1:
            raise ValueError(f"coverage is {self.coverage}; write a share of the texts above 0 and up to 1, or null.")

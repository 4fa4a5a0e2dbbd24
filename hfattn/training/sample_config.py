"""The sections ``sample`` of recipes for models that write text: which texts are shown."""

from dataclasses import dataclass, field

from huggingface_hub.dataclasses import strict

from ..fields import at_least

DECODING = ("temperature", "top_k", "top_p")


@strict
@dataclass
class CausalSampleConfig:
    """The section ``sample``: texts that the model writes, before and after training."""

    prompts: list[str] = field(default_factory=lambda: ["The "])  # beginnings of the texts
    # Decoding options by the name under which the report shows them; temperature 0 is greedy.
    decoding: dict[str, dict[str, float | int]] = field(
        default_factory=lambda: {
            "greedy": {"temperature": 0},
            "temperature 0.8": {"temperature": 0.8},
            "top-k 40": {"top_k": 40},
            "top-p 0.9": {"top_p": 0.9},
        }
    )
    max_new_tokens: int = at_least(1, 60)

    def validate_prompts(self) -> None:
        if not self.prompts or not all(self.prompts):
            raise ValueError("prompts is empty or has an empty prompt; write at least one character for each.")

    def validate_decoding(self) -> None:
        if not self.decoding:
            raise ValueError("decoding is empty; write at least one way, such as {greedy: {temperature: 0}}.")
        for name, options in self.decoding.items():
            if unknown := sorted(set(options) - set(DECODING)):
                raise ValueError(f"decoding {name!r} has {unknown[0]!r}; write {', '.join(DECODING)}.")
            temperature, top_k, top_p = options.get("temperature", 1), options.get("top_k", 0), options.get("top_p", 1)
            if not (temperature == 0 or 0.01 <= temperature <= 100):
                raise ValueError(f"decoding {name!r} has temperature {temperature}; write 0, or 0.01 to 100.")
            if not isinstance(top_k, int) or top_k < 0:
                raise ValueError(f"decoding {name!r} has top_k {top_k}; write a whole number, 0 for all tokens.")
            if not 0 < top_p <= 1:
                raise ValueError(f"decoding {name!r} has top_p {top_p}; write a number above 0, at most 1.")


@strict
@dataclass
class CharSampleConfig:
    """The section ``sample``: texts that the model writes, during and after training."""

    prompt: str = "The "  # the beginning of each text
    temperatures: list[float | int] = field(default_factory=lambda: [0.2, 0.8, 1.5])  # one text for each
    max_new_tokens: int = at_least(1, 200)

    def validate_sizes(self) -> None:
        if not self.prompt:
            raise ValueError("prompt is empty; write at least one character.")
        if not all(0.01 <= temperature <= 100 for temperature in self.temperatures):
            raise ValueError(f"temperatures is {self.temperatures}; write numbers from 0.01 to 100.")


BLANK = "[MASK]"  # the blank in sample.sentences, whatever the tokenizer's own mask token is


@strict
@dataclass
class MaskedSampleConfig:
    """The section ``sample``: sentences that the model fills in, before and after training."""

    sentences: list[str] = field(default_factory=lambda: ["The capital of France is [MASK]."])  # each with one [MASK]
    top_k: int = at_least(1, 5)  # most probable tokens to show

    def validate_sentences(self) -> None:
        if not self.sentences:
            raise ValueError(f"sentences is empty; write at least one with {BLANK} in it.")
        for sentence in self.sentences:
            if sentence.count(BLANK) != 1:
                raise ValueError(f"sentences has {sentence!r}; write {BLANK} in each sentence once.")


@strict
@dataclass
class TranslationSampleConfig:
    """The section ``sample``: what the report shows."""

    translations: int = at_least(1, 6)  # translations shown during and after training
    alignments: int = at_least(1, 2)  # how many of these have their alignment drawn
    # Sources and references of your own, shown before the others and translated as by hfattn translate.
    pairs: list[list[str]] = field(default_factory=list)

    def validate_pairs(self) -> None:
        for pair in self.pairs:
            if len(pair) != 2 or not all(text.strip() for text in pair):
                raise ValueError(f"pairs contains {pair!r}; write [source, reference].")

    def validate_alignments(self) -> None:
        if self.alignments > self.translations:
            raise ValueError(f"alignments is {self.alignments}; write at most translations, {self.translations}.")

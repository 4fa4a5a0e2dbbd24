"""A report on data before training: what is in a dataset, and which field of ``data`` deals with each finding."""

import importlib.util
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..extras import optional
from .completions import EncodedDemonstrations
from .demonstrations import Demonstrations
from .labeled import label_list
from .parts import LabeledDataConfig
from .rows import Source, open_rows

SAMPLE = 10_000  # texts whose tokens are counted
LANGUAGE_SAMPLE = 300  # texts whose language is guessed
LANGUAGE_CHARACTERS = 20  # shorter texts say too little about their language
COMPARED = 1_000_000  # rows that are compared with each other


@dataclass
class DataReport:
    """Facts about a dataset, and warnings, each with the field that deals with it."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.facts, *(f"warning: {warning}" for warning in self.warnings)])


def report_labeled(
    data: LabeledDataConfig,
    *,
    count_tokens: Callable[[Sequence[str]], list[int]] | None = None,
    max_length: int | None = None,
    regression: bool = False,
    separator: str | None = None,
) -> DataReport:
    """Report on the rows of ``data.dataset`` and of the files or splits beside it, read as they are.

    Rows are read one at a time. Lengths are those of a sample of ``SAMPLE`` texts, and the first ``COMPARED`` rows are
    searched for repetitions.

    Args:
        data: the section ``data``.
        count_tokens: numbers of tokens of texts; None counts words.
        max_length: number of tokens that the model reads.
        regression: whether the labels are numbers.
        separator: what is between two labels of a text that has several; None: each text has one.

    Raises:
        UserError: the data cannot be read, or a column does not exist.
    """
    report = DataReport()
    places: dict[str, tuple[Source, str]] = {"train": (data.dataset, data.hub_split)}
    for part in ("validation", "test"):
        if (place := getattr(data, part)) is not None:
            places[part] = data.locate(place, data.dataset)
    labels: Counter[str] = Counter()
    seen: dict[str, dict[int, str]] = {}
    for part, (source, split) in places.items():
        found = _read_part(data, source, split, labels, report, "data" if len(places) == 1 else part, separator)
        seen[part] = found.label_of
        _add_lengths(report, found.sample, count_tokens, max_length)
        if part == "train":
            _add_languages(report, found.sample)
    for part in places:
        if part != "train" and (shared := len(seen[part].keys() & seen["train"].keys())):
            report.warnings.append(f"{shared} texts of {part} are in train too: data.duplicates: drop")
    if not regression:
        _add_labels(report, labels, data)
    try:
        parts = data.read_parts(1)
    except UserError as error:
        report.warnings.append(f"training will end with: {error}")
    else:
        report.facts.append("parts: " + ", ".join(f"{part} {len(texts):,}" for part, texts in parts.items()))
    return report


@dataclass
class _Part:
    sample: list[str]
    label_of: dict[int, str]


def _read_part(
    data: LabeledDataConfig,
    source: Source,
    split: str,
    labels: Counter[str],
    report: DataReport,
    name: str,
    separator: str | None,
) -> _Part:
    rows = open_rows(source, config=data.config, split=split, revision=data.revision)
    classes = rows.classes.get(data.label_column)
    random = Random(0)
    found = _Part([], {})
    number = empty = repeated = contradictory = 0
    for row in rows:
        if data.part_column is not None and rows.text(row, data.part_column, None, "part_column") != split:
            continue
        number += 1
        columns = ((data.text_column, "text_column"), (data.pair_column, "pair_column"))
        texts = [rows.text(row, column, None, of) for column, of in columns if column is not None]
        label = rows.value(row, data.label_column, "label_column")
        several = [label] if separator is None else label_list(label, separator, rows.place(row))
        several = [classes[each] if classes and isinstance(each, int) and each >= 0 else each for each in several]
        names = ["" if each is None else str(each) for each in several]
        label = ", ".join(names)
        if not all(each.strip() for each in names) or not all(text.strip() for text in texts):
            empty += 1
            continue
        labels.update(names)
        if number <= COMPARED:
            key = hash(tuple(" ".join(text.split()).casefold() for text in texts))
            repeated += key in found.label_of
            contradictory += found.label_of.setdefault(key, label) != label
        text = " ".join(texts)
        if len(found.sample) < SAMPLE:
            found.sample.append(text)
        elif (place := random.randrange(number)) < SAMPLE:
            found.sample[place] = text
    report.facts.append(f"{name}: {number:,} rows of {rows.name}")
    if number > COMPARED:
        report.facts.append(f"  the first {COMPARED:,} rows were compared, and lengths are those of {SAMPLE:,} texts")
    if empty:
        report.warnings.append(f"{empty} rows of {name} have an empty text or label: data.empty: drop")
    if repeated:
        report.warnings.append(
            f"{repeated} texts of {name} repeat another, up to case and spaces: data.duplicates: drop, for equal ones"
        )
    if contradictory:
        report.warnings.append(
            f"{contradictory} of these have another label than before: correct them, or merge the labels with "
            "data.rename_labels"
        )
    return found


def _add_lengths(
    report: DataReport,
    texts: Sequence[str],
    count_tokens: Callable[[Sequence[str]], list[int]] | None,
    max_length: int | None,
) -> None:
    if not texts:
        return
    lengths = np.array([len(text.split()) for text in texts] if count_tokens is None else count_tokens(texts))
    unit = "words" if count_tokens is None else "tokens"
    median, high = np.percentile(lengths, [50, 95])
    report.facts.append(
        f"  length in {unit}: median {median:.0f}, 95% have at most {high:.0f}, the longest has {lengths.max()}"
    )
    if max_length is not None and (share := float(np.mean(lengths > max_length))):
        report.warnings.append(
            f"{share:.1%} of the texts have more than {max_length} {unit}: data.max_length, data.too_long"
        )


def _add_languages(report: DataReport, texts: Sequence[str]) -> None:
    long_enough = [text for text in texts if len(text) >= LANGUAGE_CHARACTERS]
    drawn = Random(0).sample(long_enough, min(LANGUAGE_SAMPLE, len(long_enough)))
    if not drawn:
        return
    if importlib.util.find_spec("py3langid") is None:
        report.facts.append("  languages: not guessed; to do so, run: pip install 'hfattn[data]'")
        return
    classify = optional("data", "py3langid").classify
    counts = Counter(classify(text)[0] for text in drawn)
    shares = {language: count / len(drawn) for language, count in counts.most_common() if count >= 0.05 * len(drawn)}
    listed = ", ".join(f"{language} {share:.0%}" for language, share in shares.items())
    report.facts.append(f"  languages of {len(drawn)} texts, as guessed: {listed}")
    if len(shares) > 1:
        report.warnings.append(f"the texts seem to have several languages ({listed}): name them in card.language")


def _add_labels(report: DataReport, labels: Counter[str], data: LabeledDataConfig) -> None:
    listed = [f"{label!r} {count:,}" for label, count in labels.most_common(30)]
    more = f" and {len(labels) - 30} more" if len(labels) > 30 else ""
    report.facts.append(f"labels: {', '.join(listed)}{more}")
    spelled: dict[str, list[str]] = defaultdict(list)
    for label in labels:
        spelled[" ".join(unicodedata.normalize("NFKC", label).split()).casefold()].append(label)
    for names in spelled.values():
        if set(names) - set(data.rename_labels) > {max(names, key=labels.__getitem__)}:
            best = max(names, key=labels.__getitem__).strip()
            others = ", ".join(f'"{name}": {best}' for name in names if name != best)
            report.warnings.append(
                f"the labels {', '.join(map(repr, names))} differ in case or spaces: data.rename_labels: {{{others}}}"
            )
    needed = data.folds or (len(data.split) if data.validation is None else 1)
    merged: Counter[str] = Counter()
    for label, count in labels.items():
        new = data.rename_labels.get(label, label)
        if new is not None:
            merged[new] += count
    for label, count in _rare(merged, needed):
        parts = f"{needed} folds" if data.folds else f"{needed} parts"
        report.warnings.append(
            f"the class {label!r} has {count} rows for {parts}: merge it in data.rename_labels, or add rows"
        )


def _rare(labels: Counter[str], needed: int) -> Iterator[tuple[str, int]]:
    yield from ((label, count) for label, count in labels.items() if count < needed)


def report_demonstrations(data: Any, tokenizer: PreTrainedTokenizerBase | None) -> DataReport:
    """Report on prompts with completions, or on conversations, of ``data.dataset`` and the files or splits beside it.

    Args:
        data: the section ``data`` of the recipe causal_lm.
        tokenizer: tokenizer of the model, with the chat template for messages; None counts words.

    Raises:
        UserError: the data cannot be read, or a column does not exist.
    """
    report, asked = DataReport(), {}
    as_it_is = replace(data, empty="drop", duplicates="keep")
    places: dict[str, tuple[Source, str]] = {"train": (data.dataset, data.hub_split)}
    places |= {
        part: data.locate(place, data.dataset)
        for part in ("validation", "test")
        if (place := getattr(data, part)) is not None
    }
    for part, (source, split) in places.items():
        examples = as_it_is.read(source, split)
        name = "data" if len(places) == 1 else part
        report.facts.append(f"{name}: {len(examples) + examples.empty:,} rows of {examples.name}, {examples.form}")
        if examples.empty:
            lacking = "an empty prompt or completion, or no answer"
            report.warnings.append(f"{examples.empty} rows of {name} have {lacking}: data.empty: drop")
        keys = Counter(" ".join(" ".join(examples.columns(item)).split()).casefold() for item in examples)
        if repeated := len(examples) - len(keys):
            report.warnings.append(
                f"{repeated} rows of {name} repeat another, up to case and spaces: data.duplicates: drop"
            )
        try:
            _add_sizes(report, examples.sample(SAMPLE, 0), tokenizer, data)
        except UserError as error:
            report.warnings.append(f"training will end with: {error}")
        asked[part] = {data.key(item) for item in examples}
        if part != "train" and (shared := len(asked[part] & asked["train"])):
            report.warnings.append(f"{shared} prompts of {part} are in train too: data.duplicates: drop")
    try:
        parts = data.read_parts(1)
    except UserError as error:
        report.warnings.append(f"training will end with: {error}")
    else:
        report.facts.append("parts: " + ", ".join(f"{part} {len(examples):,}" for part, examples in parts.items()))
    return report


def _add_sizes(
    report: DataReport, examples: Demonstrations, tokenizer: PreTrainedTokenizerBase | None, data: Any
) -> None:
    if tokenizer is None:
        unit = "words"
        words = [[len(text.split()) for text in examples.texts(item)] for item in examples]
        sizes = np.array([[sum(counts[:-1]), counts[-1]] for counts in words])
    else:
        unit, encoded = "tokens", EncodedDemonstrations(examples, tokenizer, data.max_length)
        sizes = encoded.sizes
        if encoded.cut:
            report.warnings.append(
                f"{encoded.cut} of {len(examples):,} examples have more than {data.max_length} tokens and are cut, and "
                f"{encoded.left_out} of these are left out because nothing of them is left to learn: data.max_length"
            )
    for what, lengths in zip(("read", "learned"), sizes.T, strict=True):
        median, high = np.percentile(lengths, [50, 95])
        report.facts.append(
            f"  {unit} that are {what}: median {median:.0f}, 95% have at most {high:.0f}, the longest {lengths.max()}"
        )
    if tokenizer is not None and data.packing:
        report.facts.append(f"  packed: {len(examples):,} examples in {len(encoded.packed()):,} rows")


def describe(data: Any, seed: int) -> DataReport:
    """Report on the parts of a recipe that does not classify texts: numbers of examples and lengths in words.

    Raises:
        UserError: a part cannot be read, or the split does not fit.
    """
    report, seen = DataReport(), {}
    for part, examples in data.read_parts(seed).items():
        texts, unit = [" ".join(examples.texts(item)) for item in examples], f"{examples.noun.lower()}s"
        report.facts.append(f"{part}: {len(texts):,} {unit} of {examples.name}")
        _add_lengths(report, Random(0).sample(texts, min(SAMPLE, len(texts))), None, None)
        seen[part] = set(map(hash, texts))
        if shared := len(seen[part] & seen["train"]) if part != "train" else 0:
            report.warnings.append(f"{shared} {unit} of {part} are in train too: data.validation, data.test")
    return report

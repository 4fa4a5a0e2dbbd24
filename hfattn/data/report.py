"""A report on data before training: what is in a dataset, and which field of ``data`` deals with each finding."""

import importlib.util
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..extras import optional
from .completions import EncodedDemonstrations
from .demonstrations import Demonstrations
from .examples import Examples
from .labeled import LabeledTexts, label_list
from .pairs import TARGETS
from .rows import Source, open_rows
from .text import PARTS, Text, split_positions

if TYPE_CHECKING:
    from .parts import LabeledDataConfig

FILE = "data_report.md"  # in the folder of a run
SAMPLE = 10_000  # texts whose tokens are counted
LANGUAGE_SAMPLE = 300  # texts whose language is guessed
LANGUAGE_CHARACTERS = 40  # shorter texts say too little about their language
LANGUAGE_LONGEST = 1000  # characters of a text that are read for its language
COMPARED = 1_000_000  # rows that are compared with each other
LIMIT = "data.max_length, data.too_long"  # the fields that cut texts
Count = Callable[[Sequence[str]], list[int]]


@dataclass
class DataReport:
    """Facts about a dataset, and warnings, each with the field that deals with it."""

    facts: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*self.facts, *self.lines])

    @property
    def lines(self) -> list[str]:
        """The warnings, as they are printed."""
        return [f"warning: {warning}" for warning in self.warnings]

    def to_markdown(self) -> str:
        """Return the page that a run folder has. Like the report, it has numbers and names, and no text of the data."""
        facts = [f"{' ' * (len(fact) - len(fact.lstrip()))}- {fact.lstrip()}" for fact in self.facts]
        warnings = [f"- {warning}" for warning in self.warnings] or ["None."]
        return "\n".join(["# The data, before training", "", *facts, "", "## Warnings", "", *warnings, ""])


def report_labeled(
    data: "LabeledDataConfig",
    parts: Mapping[str, LabeledTexts] | None = None,
    given: Source | None = None,
    *,
    count_tokens: Count | None = None,
    max_length: int | None = None,
    regression: bool = False,
    separator: str | None = None,
    languages: Collection[str] = (),
) -> DataReport:
    """Report on the rows of ``data.dataset`` and of the files or splits beside it, read as they are.

    Rows are read one at a time. Lengths are those of a sample of ``SAMPLE`` texts, and the first ``COMPARED`` rows are
    searched for repetitions.

    Args:
        data: the section ``data``.
        parts: the texts of each part, if they have been read.
        given: a dataset in memory to read instead of ``data.dataset``.
        count_tokens: numbers of tokens of texts; None counts words.
        max_length: number of tokens that the model reads; None: there is no limit.
        regression: whether the labels are numbers.
        separator: what is between two labels of a text that has several; None: each text has one.
        languages: the languages that the card names.

    Raises:
        UserError: the data cannot be read, or a column does not exist.
    """
    report = DataReport()
    places = data.places(given)
    labels: Counter[str] = Counter()
    seen: dict[str, _Part] = {}
    for part, (source, split) in places.items():
        seen[part] = _read_part(data, source, split, labels, report, "data" if len(places) == 1 else part, separator)
        if part == "train":
            _add_languages(report, seen[part].sample, languages)
    for part in places:
        if part != "train" and (shared := len(seen[part].label_of.keys() & seen["train"].label_of.keys())):
            what = f"texts of {part} are in train too"
            if data.duplicates == "drop":
                report.facts.append(f"  {shared} {what}: train is without those that are equal")
            else:
                report.warnings.append(f"{shared} {what}: data.duplicates: drop")
    problem = None
    if parts is None:
        try:
            parts = data.read_parts(1, given)
        except UserError as error:
            problem = f"training will end with: {error}"
    texts = (
        [text for found in seen.values() for text in found.sample]
        if parts is None
        else [" ".join(examples.texts(item)) for examples in parts.values() for item in examples]
    )
    _add_lengths(report, texts, count_tokens, max_length)
    if not regression:
        _add_labels(report, labels, data)
    if problem is not None:
        report.warnings.append(problem)
    if parts is not None:
        report.facts.append(sizes_of(parts))
    return report


def sizes_of(parts: Mapping[str, Sized]) -> str:
    return "parts: " + ", ".join(f"{part} {len(examples):,}" for part, examples in parts.items())


@dataclass
class _Part:
    sample: list[str]
    label_of: dict[int, str]


def _read_part(
    data: "LabeledDataConfig",
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
        if not all(each.strip() for each in names) or not all(text.strip() for text in texts):
            empty += 1
            continue
        labels.update(names)
        if number <= COMPARED:
            key = hash(tuple(" ".join(text.split()).casefold() for text in texts))
            repeated += key in found.label_of
            renamed = ", ".join(str(data.rename_labels.get(each, each)) for each in names)
            contradictory += found.label_of.setdefault(key, renamed) != renamed
        text = " ".join(texts)
        if len(found.sample) < SAMPLE:
            found.sample.append(text)
        elif (place := random.randrange(number)) < SAMPLE:
            found.sample[place] = text
    report.facts.append(f"{name}: {number:,} rows of {rows.name}")
    if number > COMPARED:
        report.facts.append(f"  the first {COMPARED:,} rows were compared")
    if empty and data.empty == "drop":
        report.facts.append(f"  {empty} rows have an empty text or label and are left out")
    elif empty:
        report.warnings.append(f"{empty} rows of {name} have an empty text or label: data.empty: drop")
    if repeated and data.duplicates == "drop":
        report.facts.append(f"  {repeated} texts repeat another, up to case and spaces: equal ones are read once")
    elif repeated:
        report.warnings.append(
            f"{repeated} texts of {name} repeat another, up to case and spaces: data.duplicates: drop, for equal ones"
        )
    if contradictory:
        report.warnings.append(
            f"{contradictory} repeated texts of {name} have another label than before: correct them, or merge the "
            "labels with data.rename_labels"
        )
    return found


def _add_lengths(
    report: DataReport,
    texts: Sequence[str],
    count_tokens: Count | None,
    limit: int | None,
    fields: str = LIMIT,
    what: str = "",
) -> None:
    """Add the lengths of a sample of texts, and how many are longer than the limit that these fields set."""
    if not texts:
        return
    drawn = Random(0).sample(texts, min(SAMPLE, len(texts)))
    lengths = np.array([len(text.split()) for text in drawn] if count_tokens is None else count_tokens(drawn))
    unit = "words" if count_tokens is None else "tokens"
    median, high = np.percentile(lengths, [50, 95])
    of = f" of {SAMPLE:,} texts" if len(texts) > SAMPLE else ""
    name = f"{what} length" if what else "length"
    spread = f"median {median:.0f}, 95% have at most {high:.0f}, the longest has {lengths.max()}"
    report.facts.append(f"  {name}{of} in {unit}: {spread}")
    if limit is not None and (share := float(np.mean(lengths > limit))):
        report.warnings.append(f"{share:.1%} of the texts have more than {limit} {unit}: {fields}")


def _add_languages(report: DataReport, texts: Sequence[str], known: Collection[str], what: str = "") -> None:
    long_enough = [text for text in texts if len(text) >= LANGUAGE_CHARACTERS]
    drawn = Random(0).sample(long_enough, min(LANGUAGE_SAMPLE, len(long_enough)))
    if not drawn:
        return
    if importlib.util.find_spec("py3langid") is None:
        report.facts.append("  languages: not guessed; to do so, run: pip install 'hfattn[data]'")
        return
    classify = optional("data", "py3langid").classify
    counts = Counter(classify(text[:LANGUAGE_LONGEST])[0] for text in drawn)
    shares = {language: count / len(drawn) for language, count in counts.most_common() if count >= 0.05 * len(drawn)}
    listed = ", ".join(f"{language} {share:.0%}" for language, share in shares.items())
    report.facts.append(f"  languages of {len(drawn)} {what or 'text'}s, as guessed: {listed}")
    if len(shares) > 1 and not shares.keys() <= set(known):
        report.warnings.append(
            f"the {what or 'text'}s seem to have several languages ({listed}): name them in card.language"
        )


def _add_labels(report: DataReport, labels: Counter[str], data: "LabeledDataConfig") -> None:
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


def report_demonstrations(
    data: Any,
    parts: Mapping[str, Sized] | None = None,
    given: Source | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> DataReport:
    """Report on prompts with completions, or on conversations, of ``data.dataset`` and the files or splits beside it.

    Args:
        data: the section ``data`` of the recipe causal_lm.
        parts: the examples of each part, if they have been read.
        given: a dataset in memory to read instead of ``data.dataset``.
        tokenizer: tokenizer of the model, with the chat template for messages; None counts words.

    Raises:
        UserError: the data cannot be read, or a column does not exist.
    """
    report, asked = DataReport(), {}
    as_it_is = replace(data, empty="drop", duplicates="keep")
    places = data.places(given)
    for part, (source, split) in places.items():
        examples = as_it_is.read(source, split)
        name = "data" if len(places) == 1 else part
        report.facts.append(f"{name}: {len(examples) + examples.empty:,} rows of {examples.name}, {examples.form}")
        if examples.empty and data.empty == "drop":
            report.facts.append(f"  {examples.empty} rows have nothing to read or to learn and are left out")
        elif examples.empty:
            lacking = "an empty prompt or completion, or no answer"
            report.warnings.append(f"{examples.empty} rows of {name} have {lacking}: data.empty: drop")
        keys = Counter(" ".join(" ".join(examples.columns(item)).split()).casefold() for item in examples)
        if (repeated := len(examples) - len(keys)) and data.duplicates == "drop":
            report.facts.append(f"  {repeated} rows repeat another, up to case and spaces: equal ones are read once")
        elif repeated:
            report.warnings.append(
                f"{repeated} rows of {name} repeat another, up to case and spaces: data.duplicates: drop"
            )
        try:
            _add_sizes(report, examples.sample(SAMPLE, 0), tokenizer, data)
        except UserError as error:
            report.warnings.append(f"training will end with: {error}")
        asked[part] = {data.key(item) for item in examples}
        if part != "train" and (shared := len(asked[part] & asked["train"])):
            if data.duplicates == "drop":
                report.facts.append(f"  {shared} prompts of {part} are in train too, and train is without them")
            else:
                report.warnings.append(f"{shared} prompts of {part} are in train too: data.duplicates: drop")
    try:
        report.facts.append(sizes_of(data.read_parts(1, given) if parts is None else parts))
    except UserError as error:
        report.warnings.append(f"training will end with: {error}")
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


def describe(
    data: Any,
    parts: Mapping[str, Examples[Any]],
    tokenizer: PreTrainedTokenizerBase | None = None,
    target_tokenizer: PreTrainedTokenizerBase | None = None,
    languages: Collection[str] = (),
) -> DataReport:
    """Report on the parts of a recipe that does not classify texts: numbers of examples, lengths, and repetitions.

    Args:
        data: the section ``data``, which says what is cut.
        parts: the examples of each part.
        tokenizer: tokenizer of the model; None counts words. Of what is not cut, words are counted too.
        target_tokenizer: tokenizer of the texts that a translator writes; None: the same.
        languages: the languages that the card names.
    """
    report, train = DataReport(), np.zeros(0, np.int64)
    too_long = {field.name: getattr(data, field.name) for field in fields(data)}.get("too_long")
    for part, examples in parts.items():
        unit = f"{examples.noun.lower()}s"
        keys = np.fromiter((hash(examples.texts(item)) for item in examples), np.int64, len(examples))
        report.facts.append(f"{part}: {len(examples):,} {unit} of {examples.name}")
        inputs = [examples.inputs(item) for item in examples.sample(SAMPLE, 0)]
        for name in inputs[0]:
            own = target_tokenizer if name == TARGETS and target_tokenizer is not None else tokenizer
            count = None if own is None or not name else partial(count_tokens, own)
            limit = getattr(data, name) if name and too_long != "windows" else None
            named = f"data.{name}{', data.too_long' if too_long else ''}"
            what = name.removeprefix("max_").removesuffix("length").rstrip("_")  # source or target of a translation
            texts = [each[name] for each in inputs]
            _add_lengths(report, texts, count, limit, named, what)
            if part == "train" and data.is_own:
                _add_languages(report, texts, languages, what)
        if repeated := len(keys) - len(np.unique(keys)):
            report.facts.append(f"  {repeated} repeat another")
        if examples.shared_name:
            keys = np.fromiter((hash(examples.shared_key(item)) for item in examples), np.int64, len(examples))
        if part == "train":
            train = keys
        elif shared := int(np.isin(keys, train).sum()):
            which = f"have a {examples.shared_name} of train" if examples.shared_name else "are in train too"
            report.warnings.append(f"{shared} {unit} of {part} {which}: data.validation, data.test")
    return report


def describe_text(text: Text, split: Sequence[float | int | str], unknown: bool = False) -> DataReport:
    """Report on one long text: its characters, and those of the other parts that do not occur in the training part.

    Args:
        text: the text.
        split: shares of train, validation and test.
        unknown: whether the tokenizer has a token for such characters.

    Raises:
        UserError: the text is empty, or shorter than the split needs.
    """
    places = split_positions(len(text), split)
    counts = [text.part(place).counts for place in places]
    report = DataReport([f"data: {len(text):,} characters of {text.name}, {len(text.counts):,} of them distinct"])
    report.facts.append(
        "parts: "
        + ", ".join(f"{part} {place.stop - place.start:,}" for part, place in zip(PARTS, places, strict=False))
    )
    for part, found in list(zip(PARTS, counts, strict=False))[1:]:
        if new := found.keys() - counts[0].keys():
            number = sum(found[character] for character in new)
            what = f"{number:,} characters of {part}, {len(new)} distinct, do not occur in train"
            if unknown:
                report.facts.append(f"  {what}: they are read as unknown")
            else:
                report.warnings.append(f"{what}: tokenizer.unknown: true")
    return report


def count_tokens(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text, special ones included."""
    return [len(ids) for ids in tokenizer(list(texts), verbose=False).input_ids]

"""Tasks that are written as text: a template makes the source of each row, and another one its target."""

import re
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from itertools import product
from typing import Any, ClassVar, NamedTuple

from huggingface_hub.dataclasses import strict

from ..errors import UserError
from ..extras import require
from ..fields import at_least, number, one_of
from .documents import Document, Documents, compiled, read_documents
from .examples import Examples
from .grouping import components, split_by_phrase, split_by_shared_text
from .labeled import classes_of, number_of_label
from .pairs import TARGETS, Pair, Pairs
from .parts import PartsConfig
from .rows import Row, Rows, Source, open_rows
from .text import PARTS
from .text_pairs import LARGE

TEMPLATE, SPANS = "template", "spans"
# What is measured of the outputs of a task; the loss alone needs no outputs.
LIKELIHOOD = "nats_per_token"
METRICS = ("accuracy", "bleu", "exact_match", "rouge", "spearman", LIKELIHOOD)
_PLACE = re.compile(r"\{([^{}]+)\}")


class TaskText(NamedTuple):
    """A row of a task.

    Attributes:
        source, target: what the model reads, and what it is to write.
        texts: the columns that make the source and, if it is not one of few labels or numbers, the target.
        line, fields: line or row in the dataset, and the columns of that which are in no template.
    """

    source: str
    target: str
    texts: tuple[str, ...]
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class TaskTexts(Examples[TaskText]):
    """The rows of a part of a task."""

    noun = "Example"

    def columns(self, item: TaskText) -> tuple[str, ...]:
        return item.source, item.target

    def texts(self, item: TaskText) -> tuple[str, ...]:
        return item.texts

    def inputs(self, item: TaskText) -> dict[str, str]:
        return {"max_source_length": item.source, TARGETS: item.target}


def places_of(template: str) -> list[str]:
    """Return the columns that a template names: ``a {b} c {d}`` has b and d."""
    return _PLACE.findall(template)


def fill(template: str, value: Callable[[str], str]) -> str:
    """Replace each ``{column}`` of a template by the value of the column."""
    return _PLACE.sub(lambda found: value(found[1]), template)


def rounded(value: float, step: float) -> str:
    """Return a number as text, rounded to a multiple of ``step``; a number between two multiples to the even one."""
    unit = Decimal(str(step))
    return str(round(Decimal(str(value)) / unit) * unit)


@strict
@dataclass
class TaskConfig(PartsConfig[Any]):
    """A task: a dataset, the templates of source and target, and the metric.

    Attributes:
        columns: names of the columns of a tab-separated file that does not have them in its first line.
        format: "template", or "spans" for span corruption of plain text.
        source, target: templates, in which ``{column}`` is the value of a column.
        labels: the targets that count as answers, if the metric is accuracy; class 0 has the first one. null: all
            targets of the training part.
        rename_labels: other names for the values of the column of a target.
        round_to: round the numbers in the column of a target to a multiple of this, such as 0.2.
        metric: what chooses the checkpoint and is reported, of ``METRICS``.
        split_by: what goes into one part if dataset is split, as in the recipe classification; shared_text also
            connects the targets that are not labels or numbers.
        training_examples: examples to draw from the training part; null: all.
        examples, evaluation_examples: numbers of generated examples to train on, and in each other part.
        text_column, document_start: of plain text, as in the recipe masked_lm.
        masked_share, span_length: share of the tokens to hide, and mean length of the spans.
    """

    unit: ClassVar[str] = "examples"
    generated: ClassVar[tuple[str, ...]] = ("dates", "phrases")

    columns: list[str] | None = None
    format: str = one_of((TEMPLATE, SPANS), TEMPLATE)
    source: str = "{source}"
    target: str = "{target}"
    labels: list[str] | None = None
    rename_labels: dict[str, str] = field(default_factory=dict)
    round_to: float | int | None = number(None, above=0)
    metric: str = one_of(METRICS, "exact_match")
    split_by: str = one_of(("text", "shared_text", "phrase"), "text")
    training_examples: int | None = at_least(1, None)
    examples: int = at_least(1, 30_000)
    evaluation_examples: int = at_least(1, 1000)
    text_column: str = "text"
    document_start: str | None = None
    masked_share: float = number(0.15, above=0, below=1)
    span_length: float | int = number(3.0, least=1)

    def validate_unused(self) -> None:
        of_generated = ["examples", "evaluation_examples"]
        of_spans = ["text_column", "document_start", "masked_share", "span_length"]
        of_files = ["labels", "rename_labels", "round_to", "columns", "split_by"]
        if self.format == SPANS:
            unused, cause = [*of_files, *of_generated, "source", "target"], "format: spans"
        elif self.dataset in self.generated:
            unused, cause = [*of_files, *of_spans], f"dataset: {self.dataset}"
        else:
            unused, cause = [*of_generated, *of_spans], f"dataset: {self.dataset} and format: {TEMPLATE}"
        defaults = {each.name: each.default for each in fields(self)}
        for name in unused:
            if getattr(self, name) not in (defaults[name], {}):
                raise ValueError(f"{name} has no effect with {cause}; remove it.")

    def validate_split_by(self) -> None:
        self.check_split_by(self.split_by)

    def validate_task(self) -> None:
        if self.folds is not None:
            raise ValueError("a mixture has no folds; remove folds.")
        if self.format == SPANS:
            if self.metric != LIKELIHOOD:
                raise ValueError(
                    f"metric is {self.metric}, and hidden spans are scored by likelihood; write nats_per_token."
                )
            if self.dataset in self.generated:
                raise ValueError(
                    f"format: spans is for plain text, and {self.dataset} has pairs; write another dataset."
                )
            if self.document_start is not None:
                compiled(self.document_start)
            return
        if not places_of(self.source):
            raise ValueError(f"source is {self.source!r}, without a column; write one in braces, such as {{text}}.")
        if self.metric == "rouge":
            require("rouge")
        one_value = self.labels is not None or self.rename_labels or self.metric == "spearman"
        if one_value and not _PLACE.fullmatch(self.target):
            raise ValueError(
                f"target is {self.target!r}, and labels, rename_labels and metric: spearman are for the value of one "
                "column; write that column in braces and nothing else."
            )
        if self.labels is not None and self.metric != "accuracy":
            raise ValueError(f"labels are for metric: accuracy, and metric is {self.metric}; remove labels.")
        if self.rename_labels and self.metric == "spearman":
            raise ValueError("rename_labels is for names, and metric: spearman for numbers; remove rename_labels.")
        if self.round_to is not None and self.metric != "spearman":
            raise ValueError(f"round_to is for numbers, with metric: spearman, and metric is {self.metric}; remove it.")

    @property
    def is_free(self) -> bool:
        """Whether a target is any text, instead of one of few labels or numbers."""
        return self.metric in ("bleu", "exact_match", "rouge")

    def read(self, dataset: Source, split: str, train: Any = None) -> TaskTexts | Documents:
        if self.format == SPANS:
            return read_documents(
                dataset,
                text_column=self.text_column,
                document_start=self.document_start,
                config=self.config,
                split=split,
                revision=self.revision,
            )
        rows = open_rows(dataset, columns=self.columns, config=self.config, split=split, revision=self.revision)
        named = {name for template in (self.source, self.target) for name in places_of(template)}
        named -= {self.group_column, self.time_column}  # the split reads these, also if a template does
        items: list[TaskText] = []
        written: list[Any] = []
        found: set[str] = set()
        for row in rows:
            texts = {name: rows.text(row, name, "text", "source") for name in places_of(self.source)}
            value, target = self._target(rows, row)
            found.add(str(value))
            written.append(self.rename_labels.get(str(value), value))
            others = {name: row.values[name] for name in row.values if name not in named}
            free = (target,) if self.is_free else ()
            source = fill(self.source, texts.__getitem__)
            items.append(TaskText(source, target, (*texts.values(), *free), row.number, others))
        if not items:
            raise UserError(f"{rows.name} is empty; write a row for each example.")
        if train is None and (unknown := [name for name in self.rename_labels if name not in found]):
            raise UserError(
                f"rename_labels names {unknown[0]!r}, and no {rows.unit.lower()} of {rows.name} has that target; "
                "correct it, or remove it."
            )
        if self.labels is not None:
            names, number_of = classes_of(rows, self.target[1:-1], self.labels, written)
            for i, (item, label) in enumerate(zip(items, written, strict=True)):
                if label not in number_of:
                    raise UserError(
                        f"{rows.unit} {item.line} of {rows.name} has the label {label!r}, which is not one of "
                        f"{', '.join(names)}; correct it, or change labels."
                    )
                items[i] = item._replace(target=names[number_of[label]])
        return TaskTexts(rows.name, items, unit=rows.unit)

    def _target(self, rows: Rows, row: Row) -> tuple[Any, str]:
        """Return the value of the only column of the target, and the target."""
        if not _PLACE.fullmatch(self.target):
            return None, fill(self.target, lambda name: rows.text(row, name, "target", "target"))
        value = rows.value(row, self.target[1:-1], "target")
        if value is None or not str(value).strip():
            raise UserError(f"{rows.place(row)} has an empty target; fill it in, or remove the {rows.unit.lower()}.")
        if self.metric == "spearman":
            number = number_of_label(value, rows.place(row))
            return value, str(value) if self.round_to is None else rounded(number, self.round_to)
        names = rows.classes.get(self.target[1:-1])
        if names is not None and self.labels is None and isinstance(value, int):
            if not 0 <= value < len(names):  # -1 where a test part has no labels
                raise UserError(
                    f"{rows.place(row)} has the class {value}, and there are {len(names)}; give labeled rows."
                )
            value = names[value]
        target = str(self.rename_labels.get(str(value), value))
        return value, target if self.is_free else target.strip()

    def generate(self, seed: int) -> dict[str, TaskTexts]:
        from ..generated import GENERATED  # it imports this package

        drawn = GENERATED[self.dataset].draw_parts(self.examples, self.evaluation_examples, seed)
        return {part: self._written(pairs) for part, pairs in drawn.items() if part in PARTS}

    def _written(self, pairs: Pairs) -> TaskTexts:
        items = []
        for pair in pairs:
            known = {"source": pair.source, "target": pair.target}
            for name in (*places_of(self.source), *places_of(self.target)):
                if name not in known:
                    raise UserError(
                        f"{pairs.name} has the columns source and target, and no {name!r}; correct the template."
                    )
            source, target = (fill(template, known.__getitem__) for template in (self.source, self.target))
            items.append(TaskText(source, target, (pair.source, pair.target)))
        return TaskTexts(pairs.name, items)

    def key(self, item: Any) -> Hashable:
        return item.text if isinstance(item, Document) else item.source

    def groups(self, whole: Any) -> list[Hashable]:
        return list(components(whole)) if self.split_by == "shared_text" else super().groups(whole)

    def cut(self, whole: Any, seed: int) -> list[Any]:
        if self.split_by == "phrase":
            return split_by_phrase(whole, self.split, seed)
        if self.split_by == "shared_text":
            return split_by_shared_text(whole, self.split, seed, large=LARGE)
        return super().cut(whole, seed)

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Any]:
        parts = super().read_parts(seed, given)
        if self.training_examples is not None:
            parts["train"] = parts["train"].sample(self.training_examples, seed)
        return parts


def as_pairs(examples: Any, task: str) -> Pairs:
    """Return the examples of a task as pairs of this kind; a text to corrupt has an empty target."""
    if isinstance(examples, Documents):
        items = [Pair(item.text, "", task, item.line) for item in examples]
    else:
        items = [Pair(item.source, item.target, task, item.line) for item in examples]
    return Pairs(examples.name, items, unit=examples.unit)


def joined_parts(tasks: Mapping[str, Mapping[str, Any]]) -> dict[str, Pairs]:
    """Return the examples of all tasks by part, given those of each task by part."""
    name = ", ".join(dict.fromkeys(of_task["train"].name for of_task in tasks.values()))
    parts: dict[str, list[Pair]] = {}
    for task, of_task in tasks.items():
        for part, examples in of_task.items():
            parts.setdefault(part, []).extend(as_pairs(examples, task).items)
    return {part: Pairs(name, items) for part, items in parts.items()}


def shared_between_tasks(sections: Mapping[str, TaskConfig], tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a warning for each task that trains on texts with which another task of the same dataset is evaluated.

    Args:
        sections: the tasks.
        tasks: the examples of each part of each task.
    """
    warnings = []
    for name, other in product(sections, repeat=2):
        task, others = sections[name], tasks[other]["train"]
        if name == other or task.dataset != sections[other].dataset or SPANS in (task.format, sections[other].format):
            continue
        trained = {text for item in others for text in others.texts(item)}
        for part, examples in tasks[name].items():
            found = sum(any(text in trained for text in examples.texts(item)) for item in examples)
            if part != "train" and found:
                warnings.append(
                    f"{name}: {found} of the {len(examples)} {part} examples have a text that {other} trains on; "
                    "give files for the parts, or sources with the same columns and one split_by for both"
                )
    return warnings


def answers_of(task: TaskConfig, train: Any) -> list[str]:
    """Return the outputs that are labels of a task whose metric is accuracy; none of another task."""
    if task.metric != "accuracy":
        return []
    return task.labels or sorted({item.target for item in train})


__all__ = [
    "TaskConfig",
    "TaskText",
    "TaskTexts",
    "answers_of",
    "as_pairs",
    "fill",
    "joined_parts",
    "places_of",
    "shared_between_tasks",
]

"""The sections of a model for several tasks that are written as text."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedTokenizerBase

from ..data import Pairs, Source
from ..data.report import DataReport, describe
from ..data.rows import local_file, read_lines
from ..data.tasks import LIKELIHOOD, TaskConfig, joined_parts, shared_between_tasks
from ..data.text import PARTS
from ..errors import UserError
from ..fields import at_least, number, one_of
from ..tokenizers import TokenizerConfig
from .config import build_section


@strict
@dataclass
class TasksConfig:
    """The section ``data`` of a mixture of tasks.

    Attributes:
        tasks: the fields of a ``TaskConfig`` for each task, by its name.
        only: names of the tasks to train on and to evaluate; null: all.
        max_source_length, max_target_length: maximum numbers of tokens, the end token included.
        too_long: what becomes of an example with a longer text: "error", "drop" or "cut". With "drop", it is cut in
            evaluation.
        without_test: leave out the test parts, as hfattn tune does.
    """

    generated: ClassVar[tuple[str, ...]] = ()
    folds: ClassVar[None] = None

    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    only: list[str] | None = None
    max_source_length: int = at_least(4, 128)
    max_target_length: int = at_least(4, 128)
    too_long: str = one_of(("error", "drop", "cut"), "error")
    without_test: bool = False

    @cached_property
    def sections(self) -> dict[str, TaskConfig]:
        """The tasks to train on, by name.

        Raises:
            UserError: a field of a task is unknown, mistyped or out of range, or ``only`` names another task.
        """
        names = list(self.tasks) if self.only is None else self.only
        for name in names:
            if name not in self.tasks:
                known = ", ".join(self.tasks) or "none"
                raise UserError(f"data.only names {name!r}, and the tasks are {known}; write one of these.")
        return {name: build_section(TaskConfig, dict(self.tasks[name] or {}), f"data.tasks.{name}.") for name in names}

    @property
    def dataset(self) -> str:
        """The datasets of the tasks, separated by commas."""
        return ", ".join(dict.fromkeys(task.dataset for task in self.sections.values()))

    @property
    def is_own(self) -> bool:
        """Whether the data of some task come from outside the package."""
        return any(task.is_own for task in self.sections.values())

    def read_tasks(self, seed: int, given: Source | None = None) -> dict[str, dict[str, Any]]:
        """Return the examples of each part of each task.

        Raises:
            UserError: a part cannot be read, or data were given in Python.
        """
        if given is not None:
            raise UserError("A mixture reads the dataset of each task; write data.tasks.NAME.dataset.")
        wanted = PARTS[:2] if self.without_test else PARTS
        found = {name: task.read_parts(seed) for name, task in self.sections.items()}
        return {name: {part: parts[part] for part in wanted if part in parts} for name, parts in found.items()}

    def read_parts(self, seed: int, given: Source | None = None) -> dict[str, Pairs]:
        """Return the examples of all tasks by part, as pairs whose kind is the name of the task."""
        return joined_parts(self.read_tasks(seed, given))

    def report(
        self,
        parts: Mapping[str, Mapping[str, Any]] | None = None,
        given: Source | None = None,
        tokenizer: PreTrainedTokenizerBase | None = None,
        *,
        languages: Collection[str] = (),
    ) -> DataReport:
        """Report on the data of each task before training.

        Args:
            parts: what ``read_tasks`` has returned; None: it is called.
            given, tokenizer, languages: as in ``PartsConfig.report``.

        Raises:
            UserError: the data cannot be read.
        """
        whole = DataReport()
        read = self.read_tasks(1, given) if parts is None else parts
        for name, of_task in read.items():
            found = describe(self, of_task, tokenizer, None, languages)
            whole.facts += [f"task {name}", *(f"  {fact}" for fact in found.facts)]
            whole.warnings += [f"{name}: {warning}" for warning in found.warnings]
        whole.warnings += shared_between_tasks(self.sections, read)
        return whole


@strict
@dataclass
class MixtureConfig:
    """The section ``mixture``: how often each task is read; see ``mixing_rates``."""

    maximum: int | None = at_least(1, None)  # K, the number of examples above which a task is not read more often
    temperature: float | int = number(1.0, above=0)  # T; the larger it is, the more equal are the rates


@strict
@dataclass
class TasksTokenizerConfig(TokenizerConfig):
    """The section ``tokenizer`` of a model from scratch."""

    kind: str = "bpe"
    vocab_size: int | None = 8000
    sentinels: int | None = at_least(1, None)  # tokens <extra_id_0> and so on, for span corruption; 100 in T5
    # Text files from whose lines the tokenizer learns too, such as those of tasks for which the model is trained later.
    more_texts: list[str] = field(default_factory=list)

    def added_lines(self) -> Iterator[str]:
        """Yield the lines of ``more_texts``.

        Raises:
            UserError: a name is not that of a file, or it is not UTF-8.
        """
        for file in self.more_texts:
            if (path := local_file(file)) is None:
                raise UserError(
                    f"tokenizer.more_texts names {file!r}, which is not a file; write the path of a text file."
                )
            for _, line in read_lines(path):
                yield line

    @property
    def added_fingerprint(self) -> str:
        """SHA-256 of the lines of ``more_texts``."""
        digest = hashlib.sha256()
        for line in self.added_lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


@strict
@dataclass
class TasksEvaluationConfig:
    """The section ``evaluation``."""

    examples: int | None = at_least(1, None)  # of each task and part, chosen at random; null: all
    num_beams: int | None = at_least(2, None)  # beam search for the metrics bleu and rouge, after training

    def searches(self, metrics: Mapping[str, str]) -> list[tuple[list[str], dict[str, Any] | None]]:
        """Return the tasks that are evaluated together, and the search of their outputs; None: by likelihood alone.

        Args:
            metrics: the metric of each task.
        """
        groups: dict[int | None, list[str]] = {}
        for task, metric in metrics.items():
            free = metric in ("bleu", "rouge")
            beams = None if metric == LIKELIHOOD else self.num_beams if free and self.num_beams else 1
            groups.setdefault(beams, []).append(task)
        return [(tasks, None if beams is None else {"num_beams": beams}) for beams, tasks in groups.items()]


@strict
@dataclass
class TasksSampleConfig:
    """The section ``sample``: what the report shows."""

    outputs: int = at_least(1, 3)  # outputs of each task
    # Sources and targets of your own, shown before the others; the task of a source is in its words.
    pairs: list[list[str]] = field(default_factory=list)

    def validate_pairs(self) -> None:
        for pair in self.pairs:
            if len(pair) != 2 or not all(text.strip() for text in pair):
                raise ValueError(f"pairs contains {pair!r}; write [source, target].")

"""Rows with columns from tab-separated files, JSON lines and datasets on the Hub, each with its position."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError

from ..errors import UserError
from ..hub_access import hub_errors, local_path, not_found

EVALUATION = "eval.yaml"  # the file by which the Hub takes a dataset for a benchmark
JSON_LINES = ".jsonl"
_FILES = {JSON_LINES, ".csv", ".json", ".md", ".tsv", ".txt"}


class Row(NamedTuple):
    """The values of a row by column, and its number: lines of a file count from 1, rows of a dataset from 0."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """Rows that can be read repeatedly, one at a time.

    Attributes:
        name: name of the file or dataset, without the folders of a local path.
        start: function that starts reading from the beginning.
        unit: "Line" for a file, "Row" for a dataset.
        classes: names of the classes of each column that holds class numbers, or lists of them.
    """

    name: str
    start: Callable[[], Iterator[Row]] = field(repr=False)
    unit: str = "Line"
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return self.start()

    def place(self, row: Row) -> str:
        """Describe the position of a row, for messages."""
        return f"{self.unit} {row.number} of {self.name}"

    def value(self, row: Row, column: str) -> Any:
        """Return the value of a column; ``translation.en`` is a field nested in a column.

        Raises:
            UserError: the column does not exist; the message lists the columns.
        """
        if column in row.values:
            return row.values[column]
        found: Any = row.values
        for name in column.split("."):
            if not isinstance(found, Mapping) or name not in found:
                raise UserError(
                    f"{self.place(row)} has no column {column!r}; write one of {', '.join(_columns(row.values))}."
                )
            found = found[name]
        return found

    def text(self, row: Row, column: str, what: str | None = None) -> str:
        """Return the text in a column.

        Args:
            row: the row.
            column: name of the column, as in ``value``.
            what: name of the kind of text, used in the message if it is empty; None accepts empty texts.

        Raises:
            UserError: the column does not exist, its value is not a text, or the text is empty and ``what`` is given.
        """
        value = self.value(row, column)
        if not isinstance(value, str):
            raise UserError(f"{self.place(row)} holds {value!r} in {column!r}, not text; write another column.")
        if what and not value.strip():
            raise UserError(f"{self.place(row)} has an empty {what}; fill it in, or remove the {self.unit.lower()}.")
        return value


def _columns(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def open_rows(
    dataset: str,
    *,
    columns: Sequence[str] | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Rows:
    """Open the rows of a file or of a dataset on the Hub.

    Args:
        dataset: path of a UTF-8 file, or id of a dataset on the Hub. A ``.jsonl`` file has a JSON object on each line;
            other files have tab-separated columns without quotes or escapes.
        columns: names of the columns of a tab-separated file; by default, they are in its first line.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file or dataset does not exist, has another format, or, during reading, has a malformed line.
    """
    path = local_file(dataset)
    if path is None:
        return _hub_rows(dataset, config, split, revision)
    if path.suffix in (".csv", ".json"):
        raise UserError(f"{path.name} is neither JSON lines nor tab-separated; convert it to {JSON_LINES} or .tsv.")
    if path.suffix == JSON_LINES:
        return Rows(path.name, lambda: _json_rows(path))
    return Rows(path.name, lambda: _tab_separated_rows(path, columns))


def local_file(dataset: str) -> Path | None:
    """Return the path of a local file, or None if ``dataset`` can only be the id of a dataset on the Hub.

    Raises:
        UserError: the file does not exist, or is a folder.
    """
    path = local_path(dataset, "dataset")
    if path is None and Path(dataset).suffix in _FILES:
        raise not_found(dataset, "dataset")
    return path


def parallel_files(dataset: str) -> tuple[str, str] | None:
    """Return the two files that a name such as ``"folder/train.{en,de}"`` stands for, or None for other names."""
    if (parts := re.fullmatch(r"(.*)\{([^{},]*),([^{},]*)\}(.*)", dataset)) is None:
        return None
    before, first, second, after = parts.groups()
    return f"{before}{first}{after}", f"{before}{second}{after}"


def is_local(dataset: str) -> bool:
    """Return whether ``dataset`` is a local file, or two parallel ones, and not the id of a dataset on the Hub.

    Raises:
        UserError: the file does not exist, or is a folder.
    """
    return parallel_files(dataset) is not None or local_file(dataset) is not None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file without line ends, with their numbers from 1.

    Lines end only at newlines: words of published vectors contain other line separators.

    Raises:
        UserError: a line is not UTF-8.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                # Some editors put a byte order mark at the start of a UTF-8 file.
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError:
                raise UserError(
                    f"Line {number} of {path.name} is not UTF-8; convert the file, for example with iconv -t UTF-8."
                ) from None


def _tab_separated_rows(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    for number, line in read_lines(path):
        values = line.split("\t")
        if columns is None:
            columns = values
            if len(set(columns)) < len(columns):
                raise UserError(f"Line {number} of {path.name} names a column twice: {', '.join(columns)}; rename it.")
        elif len(values) != len(columns):
            found = {1: "no tab", 2: "one tab"}.get(len(values), f"{len(values) - 1} tabs")
            raise UserError(
                f"Line {number} of {path.name} has {found}; write the columns {' and '.join(columns)} on each line, "
                "with one tab between two of them."
            )
        else:
            yield Row(number, dict(zip(columns, values, strict=True)))


def _json_rows(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"Line {number} of {path.name} is not JSON ({error.msg} at character {error.pos + 1}); write one "
                "object on each line."
            ) from None
        if not isinstance(values, dict):
            raise UserError(
                f"Line {number} of {path.name} is not a JSON object; write one on each line, such as "
                '{"column": "value"}.'
            )
        yield Row(number, values)


class HubDataset(NamedTuple):
    """A dataset on the Hub: its commit, and the tasks of its ``eval.yaml`` (id, configuration and split of each)."""

    commit: str
    tasks: list[dict[str, Any]]


# The datasets that this process has read from the Hub, by id and wanted revision, for the record of a run.
DATASETS_READ: dict[tuple[str, str | None], HubDataset] = {}


def _hub_dataset(dataset: str, revision: str | None) -> HubDataset | None:
    """Find the commit of a dataset and the tasks of its ``eval.yaml``; None if the Hub cannot be asked."""
    try:
        with hub_errors(dataset, "dataset", revision):
            info = HfApi().dataset_info(dataset, revision=revision)
            assert info.sha is not None
            tasks = []
            if any(file.rfilename == EVALUATION for file in info.siblings or []):
                path = hf_hub_download(dataset, EVALUATION, repo_type="dataset", revision=info.sha)
                tasks = benchmark_tasks(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, HfHubHTTPError):
        return None
    return HubDataset(info.sha, tasks)


def benchmark_tasks(text: str) -> list[dict[str, Any]]:
    """Return the tasks that an ``eval.yaml`` lists, each with id, config and split; none if it is no such file."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    tasks = content.get("tasks") if isinstance(content, dict) else None
    names = ("id", "config", "split")
    return [
        {name: task.get(name) for name in names}
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, dict) and isinstance(task.get("id"), str)
    ]


def _hub_rows(dataset: str, config: str | None, split: str, revision: str | None) -> Rows:
    import datasets

    if (dataset, revision) not in DATASETS_READ and (found := _hub_dataset(dataset, revision)):
        DATASETS_READ[dataset, revision] = found
    if (dataset, revision) in DATASETS_READ:  # all splits are read at one commit
        revision = DATASETS_READ[dataset, revision].commit
    try:
        with hub_errors(dataset, "dataset", revision):
            rows = datasets.load_dataset(dataset, config, split=split, revision=revision)
    except UserError:
        raise
    except Exception as error:  # the errors of the library have no common base class
        if isinstance(error, datasets.exceptions.DatasetNotFoundError) and revision is None:
            raise not_found(dataset, "dataset") from error
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"The dataset {dataset} does not load ({type(error).__name__}: {reason}); check its name, configuration "
            "and split."
        ) from error
    # This includes columns of lists of classes.
    kinds = {name: kind.feature if isinstance(kind, datasets.List) else kind for name, kind in rows.features.items()}
    classes = {name: kind.names for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}
    return Rows(dataset, lambda: map(Row, range(len(rows)), rows), "Row", classes)

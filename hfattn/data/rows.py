"""Rows with columns: tab-separated files, JSON lines, and data sets of the Hub, each row with its place."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..hub_access import hub_errors, local_path, not_found

JSON_LINES = ".jsonl"
_FILES = {JSON_LINES, ".csv", ".json", ".md", ".tsv", ".txt"}


class Row(NamedTuple):
    """The values of a row by column, and its number: of a file's line from 1, of a data set's row from 0."""

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """Rows that are read as often as needed, one at a time.

    Attributes:
        name: where they come from, without the folders of a local path.
        start: function that starts reading from the beginning.
        unit: what a row is there: "Line" of a file, or "Row" of a data set.
        classes: of each column that holds classes as numbers, or lists of them, their names.
    """

    name: str
    start: Callable[[], Iterator[Row]] = field(repr=False)
    unit: str = "Line"
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return self.start()

    def place(self, row: Row) -> str:
        """Where a row stands, in words."""
        return f"{self.unit} {row.number} of {self.name}"

    def value(self, row: Row, column: str) -> Any:
        """What a row holds in a column; a dotted name such as ``translation.en`` reaches inside a column.

        Raises:
            UserError: there is no such column; the message has those that there are.
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
        """The text that a row holds in a column.

        Args:
            row: the row.
            column: as in ``value``.
            what: the text is, where it may not be empty, for the message.

        Raises:
            UserError: there is no such column, or it holds no text, or nothing but white space where it may not.
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
    source: str,
    *,
    columns: Sequence[str] | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Rows:
    """Open rows by name.

    Args:
        source: the path of a UTF-8 file, or the id of a data set on the Hub. A file named ``.jsonl`` has a JSON object
            on each line; any other has tab-separated columns, taken literally: no quotes, no escapes.
        columns: of a tab-separated file; None: its first line names them.
        config, split, revision: the part of a Hub data set to read.

    Raises:
        UserError: there is no such file or data set, or not in one of these formats; when it is read, also where a line
            is not as it should be.
    """
    path = local_file(source)
    if path is None:
        return _hub_rows(source, config, split, revision)
    if path.suffix in (".csv", ".json"):
        raise UserError(f"{path.name} is neither JSON lines nor tab-separated; convert it to {JSON_LINES} or .tsv.")
    if path.suffix == JSON_LINES:
        return Rows(path.name, lambda: _json_rows(path))
    return Rows(path.name, lambda: _tab_separated_rows(path, columns))


def local_file(source: str) -> Path | None:
    """The file that a source names, or None if it can only be the id of a data set on the Hub.

    Raises:
        UserError: there is no such file, or it is a folder.
    """
    path = local_path(source, "dataset")
    if path is None and Path(source).suffix in _FILES:
        raise not_found(source, "dataset")
    return path


def parallel_files(source: str) -> tuple[str, str] | None:
    """The two files that ``"folder/train.{en,de}"`` names, or None if a source is not written like that."""
    if (parts := re.fullmatch(r"(.*)\{([^{},]*),([^{},]*)\}(.*)", source)) is None:
        return None
    before, first, second, after = parts.groups()
    return f"{before}{first}{after}", f"{before}{second}{after}"


def is_local(source: str) -> bool:
    """Whether a source is a file here, or two, and not the id of a data set on the Hub.

    Raises:
        UserError: there is no such file, or it is a folder.
    """
    return parallel_files(source) is not None or local_file(source) is not None


def source_of_part(source: str, place: str, split: str) -> tuple[str, str]:
    """Where the rows of a part stand whose ``place`` is another file, or of a data set on the Hub one of its splits.

    Args:
        source: where the rows to train on stand.
        place: of the part.
        split: of a data set on the Hub, to train on.

    Returns:
        The source and the split to read.

    Raises:
        UserError: as ``is_local``.
    """
    return (place, split) if is_local(source) else (source, place)


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file without their ends, and their numbers from 1.

    Raises:
        UserError: a line is not UTF-8.
    """
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                # Some editors mark the start of a UTF-8 file.
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
                f"Line {number} of {path.name} is no JSON ({error.msg} at character {error.pos + 1}); write one object "
                "on each line."
            ) from None
        if not isinstance(values, dict):
            raise UserError(
                f"Line {number} of {path.name} is no JSON object; write one on each line, such as "
                '{"column": "value"}.'
            )
        yield Row(number, values)


def _hub_rows(source: str, config: str | None, split: str, revision: str | None) -> Rows:
    import datasets

    try:
        with hub_errors(source, "dataset", revision):
            rows = datasets.load_dataset(source, config, split=split, revision=revision)
    except UserError:
        raise
    except Exception as error:  # the library's errors share no base class; after each one there is nothing to read
        if isinstance(error, datasets.exceptions.DatasetNotFoundError) and revision is None:
            raise not_found(source, "dataset") from error
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"The data set {source} does not load ({type(error).__name__}: {reason}); check its name, configuration "
            "and split."
        ) from error
    # Of a column that holds a list of classes, too.
    kinds = {name: kind.feature if isinstance(kind, datasets.List) else kind for name, kind in rows.features.items()}
    classes = {name: kind.names for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}
    return Rows(source, lambda: map(Row, range(len(rows)), rows), "Row", classes)

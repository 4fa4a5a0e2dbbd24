"""Documents: texts without labels, one in each row or line, or separated by a pattern in their first line."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

from ..errors import UserError
from .examples import Examples
from .rows import Rows, Source, has_rows, local_file, open_rows, read_lines
from .stored import Derived, StoredItems
from .text import EMBEDDED, open_text, split_positions


class Document(NamedTuple):
    """A text, the line number in the file where it begins, and the other columns of that row."""

    text: str
    line: int | None = None
    fields: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Documents(Examples[Document]):
    """Documents."""

    noun = "Document"

    @property
    def contents(self) -> Sequence[str]:
        """The text of each document, which is read when it is needed."""
        return Derived(self.items, attrgetter("text"))

    def columns(self, item: Document) -> tuple[str, ...]:
        return (item.text,)

    def texts(self, item: Document) -> tuple[str, ...]:
        return (item.text,)


def read_documents(
    dataset: Source,
    *,
    lines_are_texts: bool = True,
    text_column: str = "text",
    document_start: str | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Documents:
    """Read documents; those that contain only white space are left out. The texts are stored in a temporary file.

    Args:
        dataset: ``"embedded"``, the topics of the Python language reference that CPython contains; a source of rows, as
            in ``open_rows``, where ``.tsv`` files have tab-separated columns; or the path of another file with lines.
        lines_are_texts: whether each line or row is a document, or part of one with ``document_start``. Otherwise, the
            whole dataset is one document whose rows are joined by newlines.
        text_column: name of the column with the text; a file of lines has no columns.
        document_start: regular expression that matches the first line (or row) of each document and no other line, such
            as ``"^\\s*$"`` if blank lines separate documents; used only with ``lines_are_texts``, and not for
            ``"embedded"``, which consists of documents.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or has no text; no line matches ``document_start``, or it
            is not a regular expression.
    """
    if not lines_are_texts:
        return _one_document(dataset, text_column, config=config, split=split, revision=revision)
    begins = None if document_start is None else compiled(document_start)
    if dataset == EMBEDDED:
        from pydoc_data.topics import topics

        return Documents("python-language-reference", [Document(topics[name]) for name in sorted(topics)])
    path = local_file(dataset)
    if path is not None and not has_rows(path):
        lines: Iterable[tuple[int, str, Mapping[str, Any]]]
        name, unit, lines = path.name, "Line", ((number, line, {}) for number, line in read_lines(path))
    else:
        rows = open_rows(dataset, config=config, split=split, revision=revision)
        name, unit, lines = rows.name, rows.unit, _texts_in_rows(rows, text_column)
    begun = 0

    def read() -> Iterator[Document]:
        nonlocal begun
        parts: list[str] = []
        first: tuple[int, Mapping[str, Any]] = 0, {}
        for number, line, fields in lines:
            begin = begins is None or begins.search(line) is not None
            begun += begin
            if begin and parts:
                yield Document("\n".join(parts), *first)
            if begin or not parts:  # the lines before the first match are a document too
                parts, first = [], (number, fields)
            parts.append(line)
        yield Document("\n".join(parts), *first)

    documents = StoredItems(Document, 1, (document for document in read() if document.text.strip()))
    if not documents:
        raise UserError(f"{name} is empty; it must have at least one text.")
    if not begun:
        raise UserError(
            f"No line of {name} matches {document_start!r}, with which each document should begin; write another."
        )
    return Documents(name, documents, unit=unit)


def _texts_in_rows(rows: Rows, column: str) -> Iterator[tuple[int, str, Mapping[str, Any]]]:
    for row in rows:
        fields = {name: row.values[name] for name in row.values if name != column}
        yield row.number, rows.text(row, column, None, "text_column"), fields


def _one_document(dataset: Source, text_column: str, **of_hub: Any) -> Documents:
    opened = open_text(dataset, text_column=text_column, **of_hub)
    text = "".join(opened.pieces())
    if not text.strip():
        raise UserError(f"{opened.name} is empty; it must have at least one text.")
    return Documents(opened.name, [Document(text)])


def compiled(expression: str) -> re.Pattern[str]:
    """Compile a regular expression from a configuration.

    Raises:
        UserError: ``expression`` is not a regular expression.
    """
    try:
        return re.compile(expression)
    except re.error as error:
        raise UserError(f"{expression!r} is not a regular expression: {error}; write one such as '^ = [^=]'.") from None


def split_corpus(corpus: Documents, split: Sequence[float | int | str], seed: int) -> list[Documents]:
    """Cut a corpus into train, validation and, if three parts are given, test.

    A single document is cut by position, between characters. Several documents are not cut: they are drawn at random
    (a file of reviews may be sorted by label), keep their order, and equal ones go into the same part.

    Raises:
        UserError: the split does not fit the corpus or leaves a part empty.
    """
    if len(corpus) > 1:
        return corpus.split(split, seed, key=lambda document: document.text, unit="documents")
    text = corpus.items[0].text
    parts = [text[part] for part in split_positions(len(text), split)]
    if not all(parts):
        raise UserError(f"split {list(split)} leaves a part of {corpus.name} empty; give more text, or another split.")
    return [replace(corpus, items=[Document(part)]) for part in parts]

"""Documents: texts without labels, one in each row or line, or separated by a pattern in their first line."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..errors import UserError
from .examples import Examples
from .rows import JSON_LINES, local_file, open_rows, read_lines
from .text import EMBEDDED, open_text, split_positions


class Document(NamedTuple):
    """A text, and the line number in the file where it begins."""

    text: str
    line: int | None = None


@dataclass(frozen=True)
class Documents(Examples[Document]):
    """Documents in memory."""

    noun = "Document"

    def columns(self, item: Document) -> tuple[str, ...]:
        return (item.text,)

    def texts(self, item: Document) -> tuple[str, ...]:
        return (item.text,)


def read_documents(
    dataset: str,
    *,
    lines_are_texts: bool = True,
    text_column: str = "text",
    document_start: str | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Documents:
    """Read documents from a file or from a dataset on the Hub; documents that contain only white space are left out.

    Args:
        dataset: ``"embedded"``, the topics of the Python language reference that CPython contains; the path of a
            ``.txt``, ``.jsonl`` or tab-separated file; or the id of a dataset on the Hub.
        lines_are_texts: whether each line or row is a document, or part of one with ``document_start``. Otherwise, the
            whole dataset is one document whose rows are joined by newlines.
        text_column: name of the column with the text; ``.txt`` files have no columns.
        document_start: regular expression that matches the first line (or row) of each document and no other line, such
            as ``"^\\s*$"`` if blank lines separate documents; used only with ``lines_are_texts``.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or has no text; no line matches ``document_start``, or it
            is not a regular expression.
    """
    if not lines_are_texts:
        return _one_document(dataset, text_column, config=config, split=split, revision=revision)
    if dataset == EMBEDDED:
        from pydoc_data.topics import topics

        return Documents("python-language-reference", [Document(topics[name]) for name in sorted(topics)])
    begins = None if document_start is None else compiled(document_start)
    path = local_file(dataset)
    if path is not None and path.suffix == ".txt":
        name, unit, lines = path.name, "Line", read_lines(path)
    else:
        rows = open_rows(dataset, config=config, split=split, revision=revision)
        name, unit, lines = rows.name, rows.unit, ((row.number, rows.text(row, text_column)) for row in rows)
    documents: list[tuple[int, list[str]]] = []
    begun = 0
    for number, line in lines:
        begin = begins is None or begins.search(line) is not None
        begun += begin
        if begin or not documents:  # the lines before the first match are a document too
            documents.append((number, []))
        documents[-1][1].append(line)
    texts = [Document("\n".join(parts), number) for number, parts in documents]
    texts = [document for document in texts if document.text.strip()]
    if not texts:
        raise UserError(f"{name} is empty; it must have at least one text.")
    if not begun:
        raise UserError(f"No line of {name} matches {document_start!r}; write another data.document_start.")
    return Documents(name, texts, unit=unit)


def _one_document(dataset: str, text_column: str, **of_hub: Any) -> Documents:
    path = local_file(dataset)
    if path is not None and path.suffix == JSON_LINES:
        rows = open_rows(dataset)
        name, text = rows.name, "\n".join(rows.text(row, text_column) for row in rows)
    else:
        opened = open_text(dataset, text_column=text_column, **of_hub)
        name, text = opened.name, "".join(opened.pieces())
    if not text.strip():
        raise UserError(f"{name} is empty; it must have at least one text.")
    return Documents(name, [Document(text)])


def compiled(expression: str) -> re.Pattern[str]:
    """Compile a regular expression from a configuration.

    Raises:
        UserError: ``expression`` is not a regular expression.
    """
    try:
        return re.compile(expression)
    except re.error as error:
        raise UserError(f"{expression!r} is not a regular expression: {error}; write one such as '^ = [^=]'.") from None


def split_corpus(corpus: Documents, split: Sequence[float | int | str]) -> list[Documents]:
    """Cut a corpus by position into train, validation and, if three parts are given, test.

    A single document is cut between characters; several documents are distributed over the parts and are not cut.

    Raises:
        UserError: the split does not fit the corpus or leaves a part empty.
    """
    if len(corpus) == 1:
        text = corpus.items[0].text
        parts = [[Document(text[part])] for part in split_positions(len(text), split)]
    else:
        parts = [corpus.items[part] for part in split_positions(len(corpus), split, "documents")]
    if not all(part and part[0].text for part in parts):
        raise UserError(f"split {list(split)} leaves a part of {corpus.name} empty; give more text, or another split.")
    return [replace(corpus, items=part) for part in parts]

"""Documents: texts without labels, one in each row or line, or separated by a pattern in their first line."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UserError
from .examples import Examples
from .rows import local_file, open_rows, read_lines
from .text import EMBEDDED


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
        text_column: name of the column with the text; ``.txt`` files have no columns.
        document_start: regular expression that matches the first line (or row) of each document and no other line, such
            as ``"^\\s*$"`` if blank lines separate documents. By default, each line or row is a document.
        config, split, revision: configuration, split and revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or column does not exist or has no text; no line matches ``document_start``, or it
            is not a regular expression.
    """
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


def compiled(expression: str) -> re.Pattern[str]:
    """Compile a regular expression from a configuration.

    Raises:
        UserError: ``expression`` is not a regular expression.
    """
    try:
        return re.compile(expression)
    except re.error as error:
        raise UserError(f"{expression!r} is not a regular expression: {error}; write one such as '^ = [^=]'.") from None

"""Documents: texts without labels, as rows have them or as lines between the lines that begin one."""

import re
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import UserError
from .examples import Examples
from .rows import local_file, open_rows, read_lines
from .text import EMBEDDED


class Document(NamedTuple):
    """A text, and the line in the file that it begins with."""

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
    source: str,
    *,
    text_column: str = "text",
    document_start: str | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Documents:
    """Read documents from a file or from a data set on the Hub. What holds nothing but white space is left out.

    Args:
        source: ``"embedded"``, the topics of the Python language reference inside CPython; the path of a ``.txt`` file;
            the path of a ``.jsonl`` or tab-separated file; or the id of a data set on the Hub.
        text_column: of all but ``.txt`` files.
        document_start: a regular expression that is found in the first line, or row, of each document and in no other;
            ``"^\\s*$"`` where blank lines stand between documents. None: each line or row is a document.
        config, split, revision: the part of a Hub data set to read.

    Raises:
        UserError: there is no such file, data set or column, there is no text in it, no line begins a document, or
            the expression is none.
    """
    if source == EMBEDDED:
        from pydoc_data.topics import topics

        return Documents("python-language-reference", [Document(topics[name]) for name in sorted(topics)])
    begins = None if document_start is None else compiled(document_start)
    path = local_file(source)
    if path is not None and path.suffix == ".txt":
        name, unit, lines = path.name, "Line", read_lines(path)
    else:
        rows = open_rows(source, config=config, split=split, revision=revision)
        name, unit, lines = rows.name, rows.unit, ((row.number, rows.text(row, text_column)) for row in rows)
    documents: list[tuple[int, list[str]]] = []
    begun = 0
    for number, line in lines:
        begin = begins is None or begins.search(line) is not None
        begun += begin
        if begin or not documents:  # what stands before the first beginning is a document too
            documents.append((number, []))
        documents[-1][1].append(line)
    texts = [Document("\n".join(parts), number) for number, parts in documents]
    texts = [document for document in texts if document.text.strip()]
    if not texts:
        raise UserError(f"{name} is empty; write at least one text.")
    if not begun:
        raise UserError(f"No line of {name} matches {document_start!r}; write another data.document_start.")
    return Documents(name, texts, unit=unit)


def compiled(expression: str) -> re.Pattern[str]:
    """A regular expression that a user wrote.

    Raises:
        UserError: it is none.
    """
    try:
        return re.compile(expression)
    except re.error as error:
        raise UserError(f"{expression!r} is no regular expression ({error}); write one such as '^ = [^=]'.") from None


__all__ = ["Document", "Documents", "compiled", "read_documents"]

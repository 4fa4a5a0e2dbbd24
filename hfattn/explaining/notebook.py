"""Display attention records in a notebook."""

from ..models.alignment import AttentionRecord


def show_in_notebook(record: AttentionRecord, title: str | None = None) -> None:
    """Display the page of a record below a notebook cell.

    Raises:
        ValueError: the process is not a notebook, or the record cannot be drawn; see ``AttentionRecord.to_html``.
    """
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        shell = None
    else:
        shell = get_ipython()
    if shell is None or type(shell).__name__ == "TerminalInteractiveShell":
        raise ValueError("show() works in a notebook only; elsewhere, write to_html() to a file in UTF-8 and open it.")
    display({"text/html": record.frame(title), "text/plain": repr(record)}, raw=True)

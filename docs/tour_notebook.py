"""Write the tour as a notebook.

``python docs/tour_notebook.py`` runs the code of docs/tour.md and writes docs/tour.ipynb with its output.
"""

import os
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

DOCS = Path(__file__).parent
NOTEBOOK = DOCS / "tour.ipynb"
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"<!-- .*? -->\n*", re.DOTALL)  # figures and pages, which the site inserts
# The page shows what these lines display here.
_DISPLAYED = {
    "plot_alignment(record)": 'from IPython.display import Image\n\nImage("alignment.png")',
    "save_html(record": "record",
}


def tour() -> NotebookNode:
    """Return the tour as a notebook without outputs."""
    text = _PLACE.sub("", (DOCS / "tour.md").read_text(encoding="utf-8"))
    cells, start = [], 0
    for block in _BLOCK.finditer(text):
        language, code = block.groups()
        cells.append(new_markdown_cell(text[start : block.start()].strip()))
        start = block.end()
        if language == "sh":
            code = f"%%sh\n{code}"
        cells.append(new_code_cell(code.strip()))
        cells += [new_code_cell(shown) for line, shown in _DISPLAYED.items() if line in code]
    cells.append(new_markdown_cell(text[start:].strip()))
    for number, cell in enumerate(cells):  # random ids would change each time
        cell["id"] = f"cell-{number}"
    return new_notebook(
        cells=[cell for cell in cells if cell["source"]],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


def run(notebook: NotebookNode, folder: Path) -> None:
    """Run the cells of a notebook in a folder, with the commands of this environment.

    Raises:
        CellExecutionError: Python code fails.
        RuntimeError: a command fails before the last one of its cell, which does not stop the notebook.
    """
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=1800, coalesce_streams=True, resources=resources).execute()
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            if failed := re.search(r"^(?:error:|Traceback).*", output.get("text", ""), re.MULTILINE):
                raise RuntimeError(f"{cell['source']}: {failed.group()}")
            if "text" in output:
                output["text"] = output["text"].replace(f"{DOCS.parent}{os.sep}", "")


def main() -> None:
    notebook = tour()
    with TemporaryDirectory() as folder:
        run(notebook, Path(folder))
    for cell in notebook["cells"]:
        cell["metadata"] = {}  # times of execution
        if "outputs" in cell:  # without bars and warnings of other libraries
            cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stderr"]
    nbformat.write(notebook, NOTEBOOK)
    print(f"Written: {NOTEBOOK}")


if __name__ == "__main__":
    main()

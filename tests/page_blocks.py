"""The code blocks of a page of docs/, and running a page of Python: python tests/page_blocks.py PAGE

`make clients` runs this file where only hfattn and the tools of the page are installed.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BLOCK = re.compile(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def run_block(block: str, page: str, names: dict[str, Any]) -> None:
    """Run a block in a namespace; what a comment says of a printed line is printed, in that order."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block, page, "exec"), names)
    lines = iter(printed.getvalue().splitlines())
    for expected in re.findall(r"^ *(?:print\(.*)?\)  # (?!fmt)(.*)$", block, re.MULTILINE):
        assert expected in lines, (expected, printed.getvalue())


def main(page: str) -> None:
    """Run all blocks of a page from top to bottom, in a temporary folder."""
    os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    text = Path(page).read_text()
    names: dict[str, Any] = {"__name__": "page"}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for match in BLOCK.finditer(text):
            if match[1] == "python":
                start = time.monotonic()
                run_block(match[3], page, names)
                heading = re.findall(r"^#+ (.*)$", text[: match.start()], re.MULTILINE)[-1]
                print(f"passed: {heading} ({time.monotonic() - start:.0f} s)", flush=True)
        os.chdir("/")


if __name__ == "__main__":
    main(sys.argv[1])

"""A built Space in a process of its own: what the tests of each Space begin with.

``from space_server import user as user`` is a fixture; it asks for the fixture ``url`` of the module.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from gradio_client import Client

from hfattn.spaces.building import build_space
from hfattn.spaces.serving import running

# Of an environment with only what the Spaces ask for, which ``make spaces`` makes; or that of the tests.
PYTHON = os.environ.get("SPACES_PYTHON", sys.executable)


@contextmanager
def served(
    name: str, folder: Path, models: Mapping[str, Path | str] | None = None, uploads: Path | None = None
) -> Iterator[str]:
    """Build a Space, start it, and yield its address. Gradio keeps the uploads in the folder ``uploads``."""
    build_space(name, folder, {key: str(model) for key, model in (models or {}).items()})
    with pytest.MonkeyPatch.context() as patch:
        if uploads is not None:
            patch.setenv("GRADIO_TEMP_DIR", str(uploads))
        with running(folder, PYTHON) as address:
            yield address


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the uploads."""
    return tmp_path_factory.mktemp("uploads")


@pytest.fixture(scope="module")
def user(url: str) -> Client:
    return Client(url, verbose=False)

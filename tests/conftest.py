"""Settings and fixtures of the whole test-suite."""

import os
from collections.abc import Iterator
from pathlib import Path

# Without a network, asking the Hub for what it has not takes a minute of trying again; tests bring their own Hub.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("ACCELERATE_USE_CPU", "true")

import clean_fork
import pytest
import torch
from hub_server import Hub, HubServer

from hfattn.hub import clean_run
from hfattn.hub import sandbox as real_sandbox

# Two test processes share two cores; more threads than cores would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
torch.set_num_threads(1)


def pytest_runtest_setup(item: pytest.Item) -> None:
    torch.set_num_threads(1)  # what ran before may have set another number


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bands", type=int, metavar="SEEDS", help="train the tiny variants with that many seeds and write their bands"
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Importing all test files takes a minute: with ``-m variants``, only those that have a variant are imported."""
    words = {
        "variants": ("tiny_recipes", "mark.variants"),
        "demos": ("space_server", "browser"),
        "examples": ("mark.examples",),
        "runs": ("mark.runs",),
    }
    stage = words.get(config.option.markexpr.partition(" and ")[0])
    if stage is None or collection_path.suffix != ".py":
        return None
    source = collection_path.read_text()
    return not any(word in source for word in stage) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes its time runs apart: the demos, what a browser shows, and the tiny variants, right and mistaken."""
    for item in items:
        if item.path.name.startswith(("test_tiny_", "test_known_mistakes")):
            item.add_marker("variants")
        elif "browser" in getattr(item, "fixturenames", ()) or item.path.name.startswith("test_space"):
            item.add_marker("demos")


@pytest.fixture(scope="session", autouse=True)
def no_sandbox() -> Iterator[None]:
    """The code of model folders runs in forked processes, unless a file of tests asks for the fixture ``sandbox``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clean_run, "run", clean_fork.run)
        yield


@pytest.fixture(scope="module")
def sandbox() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clean_run, "run", real_sandbox.run)
        yield


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    """A Hub for the tests of a file."""
    with HubServer() as server:
        yield server


@pytest.fixture
def online(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For a test, the client of this process talks to that Hub, and its caches are empty."""
    hub.take_over(monkeypatch, tmp_path / "home")

"""The test modules of the installed transformers, which its wheel leaves out and its source distribution holds.

They are fetched once, into ``.cache/transformers-<version>``, with whatever registry pip is configured for.
"""

import importlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import transformers
from filelock import FileLock

# Not "tests": that name is free for whoever has a package of tests.
PACKAGE = "transformers_tests"

# A value other than the default for each field that every configuration has.
CONFIG_COMMON_KWARGS: dict[str, Any] = {
    "architectures": ["CharRNNForCausalLM"],
    "chunk_size_feed_forward": 5,
    "dtype": "float16",
    "id2label": {0: "label"},
    "label2id": {"label": 0},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "regression",
    "return_dict": False,
}

# The source distribution holds tests/*.py and no sub-folder. What the modules import from one stands in here, empty
# where it is a mixin: no export tests, no tests of generate().
STAND_INS: dict[str, dict[str, Any]] = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {"config_common_kwargs": CONFIG_COMMON_KWARGS},
}


def _download(folder: Path) -> None:
    """Put the ``tests`` folder of the installed version at ``folder``, whole or not at all; skip if pip cannot."""
    requirement = f"transformers=={transformers.__version__}"
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        options = ["--no-deps", "--no-binary", "transformers", "--retries", "1", "--timeout", "30", "--dest", scratch]
        command = [sys.executable, "-m", "pip", "download", "--quiet", *options, requirement]
        pip = subprocess.run(command, capture_output=True, text=True)
        if pip.returncode != 0:
            last_line = pip.stderr.strip().rpartition("\n")[2]
            reason = f"the source distribution of {requirement} cannot be had: {last_line}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason, pytrace=False)
            pytest.skip(reason, allow_module_level=True)
        (sdist,) = Path(scratch).glob("*.tar.gz")
        with tarfile.open(sdist) as archive:
            for member in archive:  # extractall has a filter against paths out of the folder from Python 3.11.4 on
                parts = Path(member.name).parts
                if parts[1:2] == ("tests",) and ".." not in parts and (file := archive.extractfile(member)) is not None:
                    path = Path(scratch, *parts)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(file.read())
        (tests,) = Path(scratch).glob("*/tests")
        (tests / "__init__.py").touch()  # test_configuration_common reads it
        tests.rename(folder)


def upstream(name: str) -> Any:
    """Module ``name`` of transformers' tests, such as ``test_modeling_common``.

    Skips the test module that calls it when the registry cannot be reached; where the variable ``CI`` is "true", fails.
    """
    parent = Path(__file__).parents[1] / ".cache" / f"transformers-{transformers.__version__}"
    parent.mkdir(parents=True, exist_ok=True)
    with FileLock(parent / "lock"):  # the workers of pytest-xdist come here together
        if not (parent / PACKAGE).exists():
            _download(parent / PACKAGE)
    if str(parent) not in sys.path:
        sys.path.append(str(parent))
    for module_name, content in STAND_INS.items():
        module = ModuleType(f"{PACKAGE}.{module_name}")
        vars(module).update(content)
        sys.modules.setdefault(module.__name__, module)
    # Upstream's marks are not registered here, which --strict-markers would refuse; a generator of its own takes them.
    with patch.object(pytest, "mark", pytest.MarkGenerator(_ispytest=True)):
        return importlib.import_module(f"{PACKAGE}.{name}")

"""Without extras, hfattn runs what needs none, and a missing one is a sentence; ``make extras`` installs each extra."""

import importlib.metadata
import os
import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from commands import ROOT, run_anew
from extra_commands import COMMANDS
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hfattn.extras import EXTRAS

pytestmark = pytest.mark.runs

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
MODULES = importlib.metadata.packages_distributions()

# Python runs a file of this name when it starts, so that processes which a command starts are blocked too.
BLOCKER = '''
import os, sys
from importlib.machinery import PathFinder

BLOCKED = set(os.environ["BLOCKED_MODULES"].split())


class Finder(PathFinder):
    """The modules and the distributions of an environment, without the blocked ones."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in BLOCKED else PathFinder.find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, *arguments, **options):
        blocked = set(os.environ["BLOCKED_DISTRIBUTIONS"].split())
        for found in PathFinder.find_distributions(*arguments, **options):
            if found.name.lower().replace("_", "-") not in blocked:
                yield found


sys.meta_path[sys.meta_path.index(PathFinder)] = Finder
'''


def installed_with(lines: Iterable[str]) -> set[str]:
    """The names of the distributions that requirements install, those that they depend on included."""
    seen: dict[str, set[str]] = {}
    wanted = [Requirement(line) for line in lines]
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        new = {"", *requirement.extras} - seen.setdefault(name, set())
        seen[name] |= new
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another platform, or not needed here
            continue
        for needed in map(Requirement, lines):
            if new and (needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in new)):
                wanted.append(needed)
    return set(seen)


def test_the_modules_that_are_checked_are_those_of_the_extras() -> None:
    """``hfattn.extras`` names a module of each distribution that an extra names itself or through another extra."""

    def named(extra: str) -> set[str]:
        requirements = [Requirement(line) for line in OPTIONAL[extra]]
        others = {other for each in requirements if each.name == "hfattn" for other in each.extras}
        own = {canonicalize_name(each.name) for each in requirements if each.name != "hfattn"}
        return own.union(*(named(other) for other in others))

    for extra, modules in EXTRAS.items():
        assert len(set(modules)) == len(named(extra)), extra
        # Of an extra that dev does not have, the distribution has the name of its module.
        assert {canonicalize_name(MODULES.get(module, [module])[0]) for module in modules} == named(extra), extra
    assert EXTRAS.keys() == OPTIONAL.keys() - {"docs", "bench", "dev"}
    assert COMMANDS.keys() == {"base", *EXTRAS}


def test_without_extras_commands_run_or_name_the_extra_that_they_need(tmp_path: Path) -> None:
    (tmp_path / "blocker").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "blocker" / "sitecustomize.py").write_text(BLOCKER)
    there = installed_with(PROJECT["dependencies"]) | {"hfattn", "pip", "setuptools"}
    blocked = {
        module for module, distributions in MODULES.items() if not there & set(map(canonicalize_name, distributions))
    }
    others = {canonicalize_name(name) for names in MODULES.values() for name in names} - there
    done = run_anew(
        [sys.executable, ROOT / "tests" / "extra_commands.py", "base", tmp_path / "folder"],
        cwd=tmp_path,
        PYTHONPATH=os.pathsep.join([str(tmp_path / "blocker"), str(ROOT / "tests")]),
        BLOCKED_MODULES=" ".join(sorted(blocked)),
        BLOCKED_DISTRIBUTIONS=" ".join(sorted(others)),
    )
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    assert not re.search(r"Traceback", done.stderr)

"""Every score in a README or on a page of the documentation is in a record.

Records are the recorded runs beside the configurations, and ``docs/records/measurements.json``: measurements that are
not the score of a recorded run (a variant that was tried once, a loss during training, BLEU by length), each with its
settings, seed, hardware, and the commit that reported it.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT

from hfattn.training.expected import SUFFIX

MEASURED = ROOT / "docs" / "records" / "measurements.json"
GENERATED = {"claims.md"}  # written from results.json by its own command
PAGES = [
    *sorted(ROOT.glob("recipes/*/README.md")),
    *sorted(ROOT.glob("README*.md")),
    *sorted(path for path in ROOT.glob("docs/**/*.md") if path.name not in GENERATED),
]
# Numbers with a decimal point and percentages are read as scores. On these pages, some of them are something else.
_INTERVAL = "level of a confidence interval, or its half-width, which follows from the score and the number of examples"
_DIFFERENCE = "difference of two scores of the page"
_CALCULATED = "1.24 7.24 19.8 115.9 9.9 57.9 29.3 14.8 7.8 0.516 4.5 4.127"  # in GB, and what it is calculated from
RECORDS = {"docs/efficient.md": "leaks.json"}  # pages with a record of their own in docs/records
NOT_SCORES: dict[str, dict[str, str]] = {
    "README.md": {"10%": "part of the data"},
    "README.es.md": {"10%": "part of the data"},
    "recipes/accelerate/README.md": {"1.15": "version of Accelerate"},
    "recipes/causal_lm/README.md": {"0.8": "temperature", **dict.fromkeys(_CALCULATED.split(), "memory, calculated")},
    "recipes/classification/README.md": {
        "95%": _INTERVAL,
        "0.613": _INTERVAL,
        "0.005": "bound: 123 of 25,000 reviews",
        "1.6": _DIFFERENCE,
        "2.1": "memory in GB",
        "2.7": "memory in GB, and a difference of two scores of the page",
        "3.1": "memory in GB",
        "7.2": "memory in GB",
    },
    "recipes/question_answering/README.md": {"1.1": "version of SQuAD"},
    "recipes/image_classification/README.md": {"0.002": _DIFFERENCE, "0.003": "standard error of a score"},
    "recipes/distillation/README.md": {"95%": _INTERVAL, "2.6": _INTERVAL, "2.4": _DIFFERENCE},
    "recipes/masked_lm/README.md": {
        "95%": _INTERVAL,
        "0.0035": _INTERVAL,
        "10%": "share of the hidden tokens that are replaced by others, or kept",
    },
}
# Code, links, identifiers and sections of papers have no scores; versions follow the name of what they are versions of.
# Tables that are written from records are compared with them in test_benchmarks.py and test_documentation.py.
BLOCKS = re.compile(r"<!-- ((?:benchmark|table) \w+) -->.*?<!-- /\1 -->|```.*?```", re.DOTALL)
SKIPPED = re.compile(
    BLOCKS.pattern + r"|`[^`]*`|\]\([^)]*\)|arXiv:? *\d+\.\d+"
    r"|(?:Python|torch|transformers|Gradio|hfattn|Linux)(?: ≥)? \d+(?:\.\d+)+"
    r"|\bsections?\s+\d+\.\d+(?:(?:,|\s+and|\s+to)\s+\d+\.\d+)*"
    r"|\d+(?:\.\d+){2,}|CC BY(?:-\w+)* \d\.\d|Apache-2\.0",
    re.DOTALL,
)
CONFIGURATION = re.compile(r"`(?:(\w+)/)?(\w+)(?:\.yaml)?(?: [^`]*)?`")
NUMBER = re.compile(r"(?<![\w.,-])\d+(?:\.\d+)?(?: ?%)|(?<![\w.,-])\d+\.\d+(?!\w)(?! (?:M|million)\b)")


def leaves(value: Any) -> Iterator[float]:
    """Yield the numbers in nested dictionaries and lists."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from leaves(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield abs(value)


@cache
def recorded(recipe: str, config: str = "*") -> list[float]:
    """Return the numbers that are recorded of a configuration, or of several for ``*``."""
    files = [json.loads(path.read_text()) for path in ROOT.glob(f"recipes/{recipe}/{config}{SUFFIX}")]
    return [number for file in files for number in leaves([file["full"], file["reference"]])]


def measured(pages: set[str]) -> list[float]:
    """Return the numbers of the measurements that some pages report."""
    return [
        number
        for each in json.loads(MEASURED.read_text())
        if each["page"] in pages
        for number in leaves(each["scores"])
    ]


def is_recorded(number: str, known: list[float]) -> bool:
    """Return whether a record, rounded to the digits of the number, is that number, or its percentage."""
    written = number.rstrip("% ")
    digits = len(written.partition(".")[2])
    scale = 100 if number.endswith("%") else 1
    return any(abs(scale * each - float(written)) <= 0.5 * 10**-digits + 1e-9 for each in known)


def of_page(page: Path) -> tuple[str, str, str]:
    """Return the path of a page, its text, and the recipe that it is about; ``*`` for all."""
    recipe = page.parent.name if page.parent.parent.name == "recipes" else "*"
    return str(page.relative_to(ROOT)), page.read_text(), recipe


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_scores_of_a_page_are_recorded(page: Path) -> None:
    name, text, recipe = of_page(page)
    linked = set(re.findall(r"\]\(\.\./(\w+)/README\.md\)", text))
    known = [number for each in {recipe, *linked} for number in recorded(each)]
    known += measured({name, *(f"recipes/{each}/README.md" for each in linked)})
    if name in RECORDS:
        known += leaves(json.loads((MEASURED.parent / RECORDS[name]).read_text()))
    allowed = NOT_SCORES.get(name, {})
    found = [match.group() for match in NUMBER.finditer(SKIPPED.sub(" ", text))]
    assert [number for number in found if number not in allowed and not is_recorded(number, known)] == []
    assert [number for number in allowed if number not in found] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_scores_beside_a_configuration_in_a_table_are_its_own(page: Path) -> None:
    """Short numbers, such as 0.8, are in many records: it does not suffice that one of them has them."""
    name, text, recipe = of_page(page)
    strangers = []
    for row in re.findall(r"^\|.*$", BLOCKS.sub(" ", text), re.MULTILINE):
        named = [(match[1] or recipe, match[2]) for match in CONFIGURATION.finditer(row)]
        known = [number for each in named for number in recorded(*each)]
        if known:
            known += measured({name})
            found = [match.group() for match in NUMBER.finditer(SKIPPED.sub(" ", row))]
            strangers += [
                each for each in found if each not in NOT_SCORES.get(name, {}) and not is_recorded(each, known)
            ]
    assert strangers == []


def test_a_measurement_has_its_facts() -> None:
    for each in json.loads(MEASURED.read_text()):
        assert set(each) == {"page", "run", "settings", "seed", "hardware", "time", "reported_in", "scores"}
        assert (ROOT / each["page"]).is_file()
        assert re.fullmatch(r"[0-9a-f]{7}", each["reported_in"])
        assert each["scores"]

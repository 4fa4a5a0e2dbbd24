"""No pattern of attention sees later tokens or padding: the checks of docs/efficient.md, with leaks as controls."""

import json

import pytest
from huggingface_hub.errors import StrictDataclassClassValidationError

from benchmarks.harness import between
from benchmarks.leaks import CHECKS, MARKER, PAGE, RECORD, THEIRS, VARIANTS, Found, checks, models, ours, table
from hfattn.models.configuration_layers import PATTERNS


@pytest.mark.parametrize("pattern", ["full", *PATTERNS, *VARIANTS])
@pytest.mark.parametrize("causal", [False, True])
def test_no_pattern_leaks(pattern: str, causal: bool) -> None:
    name = f"{'causal ' if causal else ''}vaswani, {pattern}"
    if name not in models():
        with pytest.raises(StrictDataclassClassValidationError, match=r"for (encoders|decoders) only"):
            ours(pattern, causal)
        return
    found = dict(checks(*models()[name]))
    assert set(found) == set(CHECKS) - ({"later"} if not causal else set())
    assert all(each.largest == 0 and not each.error for each in found.values()), found
    assert all(0.1 < each.size < 10 for each in found.values())


@pytest.mark.parametrize(
    ("name", "check"),
    [("causal Reformer, LSH", "later"), ("BigBird, block sparse", "padded_right"), ("FNet", "masked_left")],
)
def test_a_leak_is_found(name: str, check: str) -> None:
    assert dict(checks(*THEIRS[name]))[check].largest > 1e-4


def test_the_page_has_the_table_of_the_record() -> None:
    record = json.loads(RECORD.read_text())
    results = {
        name: {check: Found(**each) for check, each in found.items()} for name, found in record["models"].items()
    }
    written = between(PAGE, MARKER)
    assert written.startswith(table(results)), "run python -m benchmarks.leaks --write"

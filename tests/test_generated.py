"""Every generated dataset: the same draws on every machine, and requests that cannot be met."""

import hashlib

import pytest

from hfattn.errors import UserError
from hfattn.generated import GENERATED

# SHA-256 of the fingerprints of all parts. Results that were recorded on these datasets depend on them.
DRAWN = {
    "dates": "7026d62c45bc8ccd60c087b5d5c6948327d65b229835c1b0d5e50288329fbfe4",
    "phrases": "c8818157ee2bd5f63fb6a0cfc8aee5399602742d2155e81a309f21ea440837c4",
    "opinions": "06116603b12bc42dca625c4f774ce55f9e4df069a6e44b5ca7b005221a59abc4",
    "reber": "479922b6d5f018e8aa814dc29d810bc698bf1fadf7784989f15f328ea3eedcc0",
    "names": "ee09c7c3862fd75a2234b96ae7a8a0904c112cb10863463b46de7d8c621cf1c4",
    "facts": "cf153012087e714f7d3b139891d8a6388a1f79feabb0025b86c192fade760ad1",
    "listops": "c6c21faa3b8ddb0e71cdc51a59c1f99858f744a71fc0ba152a8e42f4afb93908",
    "duplicate": "9e1f9324fe48c5fe0c3566824712102a5d59d011a23837d0fda221a86ad12ed5",
    "recall": "19a593b101d56f4584560f1b4ae10c8870fb61e9d87048a1d6b46cc2dc4af304",
}


@pytest.mark.parametrize("name", GENERATED)
def test_the_draws_are_the_same_everywhere(name: str) -> None:
    parts = GENERATED[name].draw_parts(300, 100, seed=1)
    assert list(parts) == list(GENERATED[name].parts)
    assert [len(part) for part in parts.values()] == [300, *[100] * (len(parts) - 1)]
    fingerprints = " ".join(part.fingerprint for part in parts.values())
    assert hashlib.sha256(fingerprints.encode()).hexdigest() == DRAWN[name]
    assert GENERATED[name].draw("train", 200, 1).items == parts["train"].items[:200]
    assert GENERATED[name].draw("train", 200, 2).items != parts["train"].items[:200]


@pytest.mark.parametrize("name", GENERATED)
def test_bad_requests(name: str) -> None:
    draw, parts = GENERATED[name].draw, ", ".join(GENERATED[name].parts)
    with pytest.raises(UserError, match=rf"^{name} has no part 'dev'; write one of {parts}\.$"):
        draw("dev", 10, 1)
    with pytest.raises(UserError, match=rf"^{name} cannot give 99999999 examples of its part test; write at most \d+"):
        draw("test", 99_999_999, 1)

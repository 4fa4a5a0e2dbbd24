"""Judge what the code of a model folder has computed in a sandbox, by what was recorded when the model was trained.

The results come from code that may be hostile: it can send anything but does not know what was recorded. Each check is
required by its name; one without a result has failed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..clean_process import (
    CARD_CODE,
    CONFIGURATION,
    GENERATION,
    LOGITS,
    MODEL,
    PIPELINE,
    ROUND_TRIP,
    TIES,
    TOKENIZER,
)
from .clean_run import CleanRun, Result
from .code_findings import printable

# Largest difference from the stored logits that another machine or another version of torch may cause.
RELATIVE, ABSOLUTE = 1e-3, 1e-3

# What to do if a check fails.
_COPY = "copy the folder again; if the change is yours, train again, or run hfattn card if hfattn did not train it"
_ADVICE = {CARD_CODE: "hfattn card writes the card again"}

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Check:
    """The outcome of one check.

    Attributes:
        name: what was checked.
        passed: the outcome, or None if the folder has nothing to check.
        detail: what was compared, or why the check failed.
        where: the sandbox in which code of the folder computed the result, and whether that code is known; None if
            no code of the folder was run.
    """

    name: str
    passed: bool | None
    detail: str
    where: str | None = None


@dataclass(frozen=True)
class Recorded:
    """What was recorded of a model.

    Attributes:
        texts: the fingerprint texts by batch; empty without fingerprints.
        problem: why there are no fingerprints.
        tensors: the tensors of the fingerprints.
        pipeline: the task of its pipeline; None if there is none to run.
        printed: what the card shows as the output of its code.
    """

    texts: Mapping[str, Sequence[Sequence[str]]]
    tensors: Tensors
    pipeline: str | None
    printed: str | None
    problem: str | None = None


def judge_model(done: CleanRun, recorded: Recorded) -> list[Check]:
    """Return the checks of a model of transformers; without fingerprints the logits fail, and the later ones are left
    out."""
    checks: dict[str, Callable[[Result], str | None]] = {
        CONFIGURATION: lambda result: _fact(result, "class", str),
        TOKENIZER: _reader,
        MODEL: _loaded,
        LOGITS: lambda result: _logits(result, recorded.tensors),
        TIES: _ties,
    }
    if recorded.texts:
        checks[GENERATION] = lambda result: _generation(result, recorded.tensors)
        checks[ROUND_TRIP] = lambda result: _round_trip(result, recorded)
    else:
        del checks[LOGITS]
    judged = [_judge(done, name, check) for name, check in checks.items()]
    if not recorded.texts:
        judged.insert(3, Check(LOGITS, False, str(recorded.problem)))
    elif recorded.pipeline is None:
        judged.append(Check(PIPELINE, None, "nothing to check"))
    else:
        task = recorded.pipeline
        judged.append(_judge(done, PIPELINE, lambda result: _fact(result, "answer", str) and task))
    return judged


def computed(done: CleanRun) -> tuple[int, dict[str, torch.Tensor]]:
    """Return the number of parameters of a model, and the tensors by which copies of it are judged.

    Raises:
        AssertionError: the model does not load, weights are missing, or it computes nothing; the message is the reason.
    """
    for name in (CONFIGURATION, TOKENIZER, MODEL):
        result = _result(done, name)
    _loaded(result)
    encoded, generated, logits = (_result(done, name) for name in (ROUND_TRIP, GENERATION, LOGITS))
    assert "logits" in logits.tensors, "it has no outputs"
    tensors = {**encoded.tensors, **logits.tensors}
    if "greedy" in generated.tensors:
        tensors["generated"] = generated.tensors["greedy"]
    return _fact(result, "parameters", int), tensors


def judge_card(done: CleanRun, recorded: Recorded) -> Check:
    """Return the check of the code in the card."""
    return _judge(done, CARD_CODE, lambda result: _printed(result, recorded))


def printed_by(done: CleanRun) -> str:
    """Return what the code of a card has printed.

    Raises:
        AssertionError: it was not run to its end; the message is the reason.
    """
    text = _fact(_result(done, CARD_CODE), "printed", str, empty=True)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _judge(done: CleanRun, name: str, check: Callable[[Result], str | None]) -> Check:
    try:
        detail = check(_result(done, name))
    except AssertionError as error:
        return Check(name, False, f"{printable(str(error).rstrip('.'), 400)}; {_ADVICE.get(name, _COPY)}", done.where())
    passed = None if detail is None else True
    return Check(name, passed, printable(detail or "nothing to check", 400), done.where())


def _result(done: CleanRun, name: str) -> Result:
    result = done.results.get(name)
    assert result is not None, done.failure or "the process sent no result"
    error = result.facts.get("error")
    assert error is None, str(error)
    return result


def _fact(result: Result, name: str, kind: type, *, empty: bool = False) -> Any:
    value = result.facts.get(name)
    assert isinstance(value, kind), f"the process sent no {name}"
    assert value or empty, f"the {name} is empty"
    return value


def _tensor(result: Result, name: str, like: torch.Tensor) -> torch.Tensor:
    value = result.tensors.get(name)
    assert value is not None, f"the process sent no {name}"
    same = value.dtype == like.dtype and value.shape == like.shape
    assert same, f"{name} has {value.numel():,} values, and {like.numel():,} in training"
    return value


def _reader(result: Result) -> str:
    name = _fact(result, "class", str)
    if result.facts.get("pictures") is True:
        return f"no tokenizer: the model sees pictures, prepared by {name}"
    return f"{name} of {_fact(result, 'tokens', int):,} tokens"


def _loaded(result: Result) -> str:
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = _fact(result, kind, list, empty=True)
        assert not names, f"{kind.replace('_', ' ')} in the weights: {', '.join(map(str, names))}"
    name, auto_class = _fact(result, "class", str), _fact(result, "auto_class", str)
    return f"{name} by {auto_class}, {_fact(result, 'parameters', int):,} parameters"


def _logits(result: Result, recorded: Tensors) -> str:
    number, largest = 0, 0.0
    names = [name for name in recorded if name.endswith("logits")]
    assert "logits" in names, "the fingerprints have no logits"
    for name in names:
        assert recorded[name].numel(), f"the recorded {name} are empty"
        then, now = recorded[name], _tensor(result, name, recorded[name])
        difference = float((now.double() - then.double()).abs().max())
        assert torch.allclose(now, then, rtol=RELATIVE, atol=ABSOLUTE), f"they differ by up to {difference:.3g}"
        number, largest = number + now.numel(), max(largest, difference)
    return f"{number:,} values, largest difference {largest:.1e}"


def _ties(result: Result) -> str | None:
    tied, shared = _fact(result, "tied", dict, empty=True), _fact(result, "shared", dict, empty=True)
    for one, other in tied.items():
        assert shared.get(one) is True, f"{one} is not {other}"
    return ", ".join(f"{one} is {other}" for one, other in sorted(tied.items())) or None


def _generation(result: Result, recorded: Tensors) -> str | None:
    then = recorded.get("generated")
    if then is None:
        assert result.facts.get("generates") is False, "the model generates, and no generated tokens were recorded"
        return None
    assert result.facts.get("generates") is True, "the model does not generate, as it did in training"
    assert _equal(result.tensors.get("greedy"), then), "greedy search finds other tokens than in training"
    assert _equal(result.tensors.get("greedy again"), then), "two greedy searches differ"
    sample = result.tensors.get("sample")
    assert sample is not None, "the process sent no sample"
    assert _equal(result.tensors.get("sample again"), sample), "two samples with the same seed differ"
    return f"{then.numel()} tokens as in training; the same seed gives the same sample"


def _equal(now: torch.Tensor | None, then: torch.Tensor) -> bool:
    return now is not None and now.dtype == then.dtype and torch.equal(now, then)


def _round_trip(result: Result, recorded: Recorded) -> str | None:
    if not any("inputs." in name for name in recorded.tensors):
        return None  # a model of pictures
    for name, then in recorded.tensors.items():
        batch, _, key = name.rpartition("inputs.")
        if key != name and not key.startswith("decoder_"):
            of = f" of the {batch[:-1]} text" if batch else " of the fingerprint texts"
            now = result.tensors.get(name)
            assert _equal(now, then), f"{key}{of} differ from those of training"
    decoded = _fact(result, "decoded", list)
    texts = [text for batch in recorded.texts.values() for text in batch]
    first = recorded.texts[""]
    assert len(decoded) == len(first), "not all texts were decoded"
    for text, ids in zip(first, decoded, strict=True):
        assert isinstance(ids, dict), "not all texts were decoded"
        known = ids.get("unknown") is True or (ids.get("ids") and ids.get("ids") == ids.get("again"))
        assert known, f"the ids of {text[0]!r}, decoded and encoded again, are other ids"
    return f"{len(texts)} texts: the ids of training; {len(first)}: the same ids after decoding and encoding"


def _printed(result: Result, recorded: Recorded) -> str:
    printed = _fact(result, "printed", str, empty=True).replace("\r\n", "\n").replace("\r", "\n").strip()
    assert recorded.printed is not None, "the card does not show what its code prints"
    assert printed == recorded.printed.strip(), f"it prints {printed[:300]!r}"
    return printed[:80] or "nothing"

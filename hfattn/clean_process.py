"""A model folder as a stranger would load it: in a process of its own, without hfattn and without a network.

``hfattn verify`` runs this file by its path, so it imports nothing of hfattn. What it computes of the probes, the
process that trained the model has computed with the same functions.
"""

import contextlib
import inspect
import io
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

PROBES = "probes.safetensors"
MANY = 2**18  # logits that are stored at most: one megabyte
NEW_TOKENS = 12
MAX_TOKENS = 48  # of a probe

# The largest difference from the stored logits that another machine or another version of torch may make.
RELATIVE, ABSOLUTE = 1e-3, 1e-3


def probe_logits(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The logits of some inputs, side by side as one row of float32 numbers; of very many every k-th."""
    import torch

    with torch.no_grad():
        outputs = model(**inputs)
    found = [value for name, value in outputs.items() if name.endswith("logits")]
    flat = torch.cat([logits.float().flatten() for logits in found]).cpu()
    return flat[:: max(1, -(-flat.numel() // MANY))].contiguous()


def probe_encoding(tokenizer: Any, texts: Sequence[Sequence[str]], model: Any) -> Any:
    """Some texts, or pairs of texts, as a model reads them side by side; what it does not read is left out."""
    # A model that writes on goes on from the last position.
    side = "left" if model.can_generate() and not model.config.is_encoder_decoder else "right"
    longest = min(MAX_TOKENS, tokenizer.model_max_length)
    columns = [list(column) for column in zip(*texts, strict=True)]
    padding = {"padding": True, "padding_side": side} if len(texts) > 1 else {}
    inputs = tokenizer(*columns, truncation=True, max_length=longest, return_tensors="pt", **padding)
    return {name: inputs[name] for name in inputs if name in inspect.signature(model.forward).parameters}


def probe_generation(model: Any, inputs: Mapping[str, Any]) -> Any:
    """The most probable continuation or translation of some inputs, as ids (B, T)."""
    import torch

    inputs = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
    new = _room(model, inputs["input_ids"].shape[1])
    with torch.no_grad():
        return model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=new).cpu()


def _room(model: Any, length: int) -> int:
    """How many tokens a model is to write after so many: fewer where it has no positions for more."""
    positions = getattr(model.config, "max_position_embeddings", None)  # whatever the model calls them
    if positions is None or model.config.is_encoder_decoder:
        return NEW_TOKENS
    return min(NEW_TOKENS, positions - length)


def main() -> None:
    """Check the folder that is named on the command line; print what was found as one line of JSON.

    Standard input has what to check: ``card_code`` and what it ``printed``, ``pipeline_tag``, ``needs_hfattn``.
    """
    folder, order = Path(sys.argv[1]), json.load(sys.stdin)
    if not order["needs_hfattn"]:
        sys.modules["hfattn"] = None  # type: ignore[assignment]  # importing it fails as where it is not installed
    _cut_the_network()
    os.chdir(folder)
    checks: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(io.StringIO()):
        if not order["needs_hfattn"]:
            _check_model(order, checks)
        if order["card_code"] is not None:
            _run(checks, "the card's code prints what the card says", lambda: _card(order))
    print(json.dumps(checks))


def _cut_the_network() -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise OSError("the process that verifies a folder has no network")

    refuse: Any = connect
    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.socket.connect_ex = refuse  # type: ignore[method-assign]
    socket.create_connection = refuse


def _run(checks: list[dict[str, Any]], name: str, check: Callable[[], str | None]) -> None:
    """Note whether a check passes; it returns what was seen, or None where there is nothing to check."""
    try:
        seen = check()
    except AssertionError as error:
        checks.append({"name": name, "passed": False, "detail": str(error)})
    except (Exception, SystemExit) as error:  # whatever the folder's own code raises is a finding
        last = traceback.format_exception_only(error)[-1].strip()
        checks.append({"name": name, "passed": False, "detail": last})
    else:
        checks.append({"name": name, "passed": None if seen is None else True, "detail": seen or "nothing to check"})


def _check_model(order: Mapping[str, Any], checks: list[dict[str, Any]]) -> None:
    import torch
    import transformers
    from safetensors import safe_open

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loaded: dict[str, Any] = {}
    probes: dict[str, Any] = {}

    def config() -> str:
        loaded["config"] = transformers.AutoConfig.from_pretrained(".", trust_remote_code=True)
        return type(loaded["config"]).__name__

    def tokenizer() -> str:
        loaded["tokenizer"] = transformers.AutoTokenizer.from_pretrained(".", trust_remote_code=True)
        return f"{type(loaded['tokenizer']).__name__} of {len(loaded['tokenizer']):,} tokens"

    def model() -> str:
        name = auto_class(loaded["config"])
        loaded["model"], found = getattr(transformers, name).from_pretrained(
            ".", trust_remote_code=True, use_safetensors=True, output_loading_info=True, dtype=torch.float32
        )
        loaded["model"].eval()
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            assert not found[kind], (
                f"{kind.replace('_', ' ')} in the weights: {', '.join(map(str, sorted(found[kind])))}"
            )
        return f"{type(loaded['model']).__name__} by {name}, {loaded['model'].num_parameters():,} parameters"

    def logits() -> str:
        assert Path(PROBES).is_file(), (
            f"{PROBES} is missing; hfattn.hub.store_probes writes it where a model is trained"
        )
        with safe_open(PROBES, "pt") as file:
            for key in file.keys():  # noqa: SIM118  (no mapping)
                probes[key] = file.get_tensor(key)
            probes["texts"] = json.loads(file.metadata()["texts"])
        now = probe_logits(loaded["model"], _inputs(probes))
        then = probes["logits"]
        assert now.shape == then.shape, f"{now.numel():,} logits where training had {then.numel():,}"
        furthest = float((now - then).abs().max())
        assert torch.allclose(now, then, rtol=RELATIVE, atol=ABSOLUTE), f"they differ by up to {furthest:.3g}"
        return f"{now.numel():,} logits, the furthest off by {furthest:.1e}"

    def ties() -> str | None:
        named = dict(loaded["model"].named_parameters(remove_duplicate=False))
        tied = loaded["model"].all_tied_weights_keys
        for one, other in tied.items():
            assert named[one].data_ptr() == named[other].data_ptr(), f"{one} is not {other}"
        return f"{', '.join(f'{one} is {other}' for one, other in sorted(tied.items()))}" if tied else None

    def generation() -> str | None:
        if not loaded["model"].can_generate():
            return None
        first = probe_generation(loaded["model"], _inputs(probes))
        again = probe_generation(loaded["model"], _inputs(probes))
        assert torch.equal(first, again), "two greedy searches differ"
        assert torch.equal(first, probes["generated"]), "greedy search finds other tokens than in training"
        new = _room(loaded["model"], probes["inputs.input_ids"].shape[1])
        drawn = []
        for _ in range(2):
            transformers.set_seed(0)
            inputs = {name: value for name, value in _inputs(probes).items() if not name.startswith("decoder_")}
            drawn.append(loaded["model"].generate(**inputs, do_sample=True, max_length=None, max_new_tokens=new))
        assert torch.equal(*drawn), "two draws with one seed differ"
        return f"{first.numel()} tokens as in training, draws repeat with their seed"

    def round_trip() -> str:
        read = loaded["tokenizer"]
        again = probe_encoding(read, probes["texts"], loaded["model"])
        for name, ids in _inputs(probes).items():
            if name in again:
                assert torch.equal(again[name], ids), f"{name} of the probes are not those of training"
        for text in probes["texts"]:
            ids = read(text[0], add_special_tokens=False, truncation=True)["input_ids"]
            back = read(read.decode(ids), add_special_tokens=False)["input_ids"]
            assert back == ids, f"the ids of {text[0]!r}, decoded, have other ids"
        return f"{len(probes['texts'])} texts: the ids of training, and from ids to text to the same ids"

    def pipeline() -> str | None:
        from transformers.pipelines import PIPELINE_REGISTRY

        own = getattr(loaded["config"], "custom_pipelines", None) or {}
        task = next(iter(own), order["pipeline_tag"])
        if task not in own and task not in PIPELINE_REGISTRY.get_supported_tasks():
            return None
        answer = transformers.pipeline(task, model=".", trust_remote_code=True)
        text, *pair = probes["texts"][0]
        if task == "fill-mask":
            text = f"{answer.tokenizer.mask_token} {text}"
        options: dict[str, Any] = {"truncation": True} if pair else {}
        if task == "text-generation":
            options = {"max_new_tokens": _room(loaded["model"], probes["inputs.input_ids"].shape[1])}
        said = answer({"text": text, "text_pair": pair[0]} if pair else text, **options)
        assert said, f"{task} says nothing of {text!r}"
        return str(task)

    _run(checks, "the configuration loads", config)
    _run(checks, "the tokenizer loads", tokenizer)
    if all(check["passed"] for check in checks):
        _run(checks, "the model loads, each weight in its place", model)
    if all(check["passed"] for check in checks):
        _run(checks, "logits are those of the process that trained it", logits)
        _run(checks, "tied weights are tied", ties)
        if probes:
            _run(checks, "generation repeats itself", generation)
            _run(checks, "the tokenizer goes there and back", round_trip)
            _run(checks, "the pipeline answers", pipeline)


def _inputs(probes: Mapping[str, Any]) -> dict[str, Any]:
    return {name.removeprefix("inputs."): value for name, value in probes.items() if name.startswith("inputs.")}


def auto_class(config: Any) -> str:
    """Name of the Auto class that loads the architecture of a configuration.

    Raises:
        ValueError: there is none for it.
    """
    from transformers.models.auto import modeling_auto

    architecture = (config.architectures or [None])[0]
    if architecture is None:
        raise ValueError("config.json names no architecture")
    for name, reference in (getattr(config, "auto_map", None) or {}).items():
        if reference.rpartition(".")[2] == architecture and name != "AutoConfig":
            return name
    for name, auto in vars(modeling_auto).items():
        if name.startswith("AutoModel") and hasattr(auto, "_model_mapping"):
            known = auto._model_mapping._model_mapping.get(config.model_type)
            if architecture in (known if isinstance(known, list | tuple) else [known]):
                return name
    raise ValueError(f"no Auto class of transformers loads {architecture}")


def _card(order: Mapping[str, Any]) -> str:
    printed = run_code(order["card_code"]).replace("\r\n", "\n").replace("\r", "\n")
    assert order["printed"] is not None, "the card does not say what its code prints"
    assert printed.strip() == order["printed"].strip(), f"it prints {printed.strip()[:300]!r}"
    return printed.strip()[:80]


def run_code(code: str) -> str:
    """What Python code prints, run in this process and folder."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "the card's code", "exec"), {"__name__": "__main__"})
    return out.getvalue()


if __name__ == "__main__":
    main()

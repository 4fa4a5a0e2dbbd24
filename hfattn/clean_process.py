"""Check a model folder in a separate process, without hfattn and without a network.

``hfattn verify`` runs this file by its path, so it imports nothing from hfattn. The process that trained the model
computed the recorded fingerprints with the functions in this file.
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

FINGERPRINTS = "fingerprints.safetensors"
MANY = 2**18  # maximum number of stored logits: one megabyte
NEW_TOKENS = 12
MAX_TOKENS = 48  # maximum length of a fingerprint text

# Largest difference from the stored logits that another machine or another version of torch may cause.
RELATIVE, ABSOLUTE = 1e-3, 1e-3


def fingerprint_logits(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the logits of some inputs as one float32 vector; if there are more than ``MANY``, every k-th of them."""
    import torch

    with torch.no_grad():
        outputs = model(**inputs)
    found = [value for name, value in outputs.items() if name.endswith("logits")]
    flat = torch.cat([logits.float().flatten() for logits in found]).cpu()
    return flat[:: max(1, -(-flat.numel() // MANY))].contiguous()


def encode_texts(tokenizer: Any, texts: Sequence[Sequence[str]], model: Any) -> Any:
    """Return a batch of texts, or of pairs of texts, with the inputs of the model's ``forward``."""
    # A decoder generates from the last position, so padding is on the left.
    side = "left" if model.can_generate() and not model.config.is_encoder_decoder else "right"
    longest = min(MAX_TOKENS, tokenizer.model_max_length)
    columns = [list(column) for column in zip(*texts, strict=True)]
    padding = {"padding": True, "padding_side": side} if len(texts) > 1 else {}
    inputs = tokenizer(*columns, truncation=True, max_length=longest, return_tensors="pt", **padding)
    return {name: inputs[name] for name in inputs if name in inspect.signature(model.forward).parameters}


def greedy_continuation(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the greedy continuation or translation of some inputs, as ids (B, T)."""
    import torch

    inputs = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
    new = _room(model, inputs["input_ids"].shape[1])
    with torch.no_grad():
        return model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=new).cpu()


def _room(model: Any, length: int) -> int:
    """Return the number of tokens to generate after ``length`` tokens, limited by the positions of the model."""
    positions = getattr(model.config, "max_position_embeddings", None)  # mapped to the model's field by attribute_map
    if positions is None or model.config.is_encoder_decoder:
        return NEW_TOKENS
    return min(NEW_TOKENS, positions - length)


def main() -> None:
    """Check the folder named on the command line, and print the outcomes as one line of JSON.

    Standard input is a JSON object: ``card_code``, its output ``printed``, ``pipeline_tag``, and ``needs_hfattn``.
    """
    folder, order = Path(sys.argv[1]), json.load(sys.stdin)
    if not order["needs_hfattn"]:
        sys.modules["hfattn"] = None  # type: ignore[assignment]  # importing it fails, as if it were not installed
    _cut_the_network()
    os.chdir(folder)
    checks: list[dict[str, Any]] = []
    with contextlib.redirect_stdout(io.StringIO()):
        if not order["needs_hfattn"]:
            _ModelChecks(order).run(checks)
        if order["card_code"] is not None:
            _run(checks, "the code in the card prints what the card shows", lambda: _card(order))
    print(json.dumps(checks))


def _cut_the_network() -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise OSError("a folder is verified without a network")

    refuse: Any = connect
    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.socket.connect_ex = refuse  # type: ignore[method-assign]
    socket.create_connection = refuse


def _run(checks: list[dict[str, Any]], name: str, check: Callable[[], str | None]) -> None:
    """Append the outcome of a check, which returns a description, or None if it does not apply to the folder."""
    try:
        seen = check()
    except AssertionError as error:
        checks.append({"name": name, "passed": False, "detail": str(error)})
    except (Exception, SystemExit) as error:  # an error in the folder's code is an outcome
        last = traceback.format_exception_only(error)[-1].strip()
        checks.append({"name": name, "passed": False, "detail": last})
    else:
        checks.append({"name": name, "passed": None if seen is None else True, "detail": seen or "nothing to check"})


class _ModelChecks:
    """The checks of a model folder, which is the working directory. Each check uses results of earlier ones.

    Args:
        order: the JSON object read by ``main``.
    """

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.order = order
        self.fingerprints: dict[str, Any] = {}
        self.config: Any = None
        self.tokenizer: Any = None
        self.model: Any = None

    def run(self, checks: list[dict[str, Any]]) -> None:
        """Run the checks in order until the folder fails to load, and append the outcomes."""
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        _run(checks, "the configuration loads", self.load_config)
        _run(checks, "the tokenizer loads", self.load_tokenizer)
        if all(check["passed"] for check in checks):
            _run(checks, "the model loads, each weight in its place", self.load_model)
        if all(check["passed"] for check in checks):
            _run(checks, "logits match", self.compare_logits)
            _run(checks, "tied weights are tied", self.compare_ties)
            if self.fingerprints:
                _run(checks, "generation is reproducible", self.compare_generation)
                _run(checks, "the tokenizer round-trips", self.compare_tokenizer)
                _run(checks, "the pipeline runs", self.run_pipeline)

    def load_config(self) -> str:
        from transformers import AutoConfig

        self.config = AutoConfig.from_pretrained(".", trust_remote_code=True)
        return type(self.config).__name__

    def load_tokenizer(self) -> str:
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(".", trust_remote_code=True)
        return f"{type(self.tokenizer).__name__} of {len(self.tokenizer):,} tokens"

    def load_model(self) -> str:
        import torch
        import transformers

        name = auto_class(self.config)
        self.model, found = getattr(transformers, name).from_pretrained(
            ".", trust_remote_code=True, use_safetensors=True, output_loading_info=True, dtype=torch.float32
        )
        self.model.eval()
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
            names = ", ".join(map(str, sorted(found[kind])))
            assert not found[kind], f"{kind.replace('_', ' ')} in the weights: {names}"
        return f"{type(self.model).__name__} by {name}, {self.model.num_parameters():,} parameters"

    def compare_logits(self) -> str:
        import torch
        from safetensors import safe_open

        assert Path(FINGERPRINTS).is_file(), (
            f"{FINGERPRINTS} is missing; hfattn.hub.store_fingerprints writes it where a model is trained (in folders "
            "written before it is probes.safetensors: rename that, and run hfattn card)"
        )
        with safe_open(FINGERPRINTS, "pt") as file:
            for key in file.keys():  # noqa: SIM118  (not a mapping)
                self.fingerprints[key] = file.get_tensor(key)
            self.fingerprints["texts"] = json.loads(file.metadata()["texts"])
        now, then = fingerprint_logits(self.model, self._inputs()), self.fingerprints["logits"]
        assert now.shape == then.shape, f"{now.numel():,} logits, and {then.numel():,} in training"
        largest = float((now - then).abs().max())
        assert torch.allclose(now, then, rtol=RELATIVE, atol=ABSOLUTE), f"they differ by up to {largest:.3g}"
        return f"{now.numel():,} logits, largest difference {largest:.1e}"

    def compare_ties(self) -> str | None:
        named = dict(self.model.named_parameters(remove_duplicate=False))
        tied = self.model.all_tied_weights_keys
        for one, other in tied.items():
            assert named[one].data_ptr() == named[other].data_ptr(), f"{one} is not {other}"
        return ", ".join(f"{one} is {other}" for one, other in sorted(tied.items())) if tied else None

    def compare_generation(self) -> str | None:
        import torch
        import transformers

        if not self.model.can_generate():
            return None
        first, again = (greedy_continuation(self.model, self._inputs()) for _ in range(2))
        assert torch.equal(first, again), "two greedy searches differ"
        assert torch.equal(first, self.fingerprints["generated"]), "greedy search finds other tokens than in training"
        new = _room(self.model, self.fingerprints["inputs.input_ids"].shape[1])
        inputs = {name: value for name, value in self._inputs().items() if not name.startswith("decoder_")}
        drawn = []
        for _ in range(2):
            transformers.set_seed(0)
            drawn.append(self.model.generate(**inputs, do_sample=True, max_length=None, max_new_tokens=new))
        assert torch.equal(*drawn), "two samples with the same seed differ"
        return f"{first.numel()} tokens as in training; the same seed gives the same sample"

    def compare_tokenizer(self) -> str:
        import torch

        texts = self.fingerprints["texts"]
        again = encode_texts(self.tokenizer, texts, self.model)
        for name, ids in self._inputs().items():
            if name in again:
                assert torch.equal(again[name], ids), f"{name} of the fingerprint texts differ from those of training"
        for text in texts:
            ids = self.tokenizer(text[0], add_special_tokens=False, truncation=True)["input_ids"]
            if self.tokenizer.unk_token_id in ids:
                continue  # an unknown word is not in its ids
            back = self.tokenizer(self.tokenizer.decode(ids), add_special_tokens=False)["input_ids"]
            assert back == ids, f"the ids of {text[0]!r}, decoded and encoded again, are other ids"
        return f"{len(texts)} texts: the ids of training, and the same ids after decoding and encoding"

    def run_pipeline(self) -> str | None:
        import transformers
        from transformers.pipelines import PIPELINE_REGISTRY

        own = getattr(self.config, "custom_pipelines", None) or {}
        task = next(iter(own), self.order["pipeline_tag"])
        if task not in own and task not in PIPELINE_REGISTRY.get_supported_tasks():
            return None
        pipeline = transformers.pipeline(task, model=".", trust_remote_code=True)
        text, *pair = self.fingerprints["texts"][0]
        if task == "fill-mask":
            text = f"{pipeline.tokenizer.mask_token} {text}"
        options: dict[str, Any] = {"truncation": True} if pair else {}
        if task == "text-generation":
            options = {"max_new_tokens": _room(self.model, self.fingerprints["inputs.input_ids"].shape[1])}
        answer = pipeline({"text": text, "text_pair": pair[0]} if pair else text, **options)
        assert answer, f"{task} returns nothing for {text!r}"
        return str(task)

    def _inputs(self) -> dict[str, Any]:
        tensors = self.fingerprints.items()
        return {name.removeprefix("inputs."): value for name, value in tensors if name.startswith("inputs.")}


def auto_class(config: Any) -> str:
    """Return the name of the first of ``auto_classes``."""
    return auto_classes(config)[0]


def auto_classes(config: Any) -> list[str]:
    """Return the names of all Auto classes that load the architecture of a configuration.

    Those that the configuration itself names are first.

    Raises:
        ValueError: no Auto class loads it.
    """
    from transformers.models.auto import modeling_auto

    architecture = (config.architectures or [None])[0]
    if architecture is None:
        raise ValueError("config.json names no architecture")
    found = [
        name
        for name, reference in (getattr(config, "auto_map", None) or {}).items()
        if reference.rpartition(".")[2] == architecture and name != "AutoConfig"
    ]
    for name, auto in vars(modeling_auto).items():
        if name.startswith("AutoModel") and hasattr(auto, "_model_mapping"):
            known = auto._model_mapping._model_mapping.get(config.model_type)
            if architecture in (known if isinstance(known, list | tuple) else [known]):
                found.append(name)
    if not found:
        raise ValueError(f"no Auto class of transformers loads {architecture}")
    return found


def _card(order: Mapping[str, Any]) -> str:
    printed = run_code(order["card_code"]).replace("\r\n", "\n").replace("\r", "\n")
    assert order["printed"] is not None, "the card does not show what its code prints"
    assert printed.strip() == order["printed"].strip(), f"it prints {printed.strip()[:300]!r}"
    return printed.strip()[:80]


def run_code(code: str) -> str:
    """Run Python code in this process and folder, and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "the card's code", "exec"), {"__name__": "__main__"})
    return out.getvalue()


if __name__ == "__main__":
    main()

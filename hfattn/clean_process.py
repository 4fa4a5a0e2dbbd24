"""Load a model folder in a process without hfattn and without a network, and send what its code computes.

``hfattn verify`` runs this file by its path in a sandbox, so it imports nothing from hfattn. This process does not know
what was recorded and judges nothing: ``hub/judging.py`` compares the results in the process that started this one. The
process that trained the model computed the recorded fingerprints with the functions in this file.
"""

import contextlib
import inspect
import io
import json
import os
import re
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
LONGEST = 256  # maximum length of the longest one
ADAPTER = "adapter_config.json"
OWN_CONFIG = "config"  # subfolder of an adapter with the configuration of its base model with the adapter's head
BASE = ".base"  # folder with the base model of an adapter, in the copy of the adapter that the process reads
PRINTED = 2**20  # maximum number of characters that the code of a card prints

Result = tuple[dict[str, Any], dict[str, Any]]  # facts, which JSON can hold, and tensors

# Names of the results that the process sends, which are also those of the checks.
CONFIGURATION = "the configuration loads"
TOKENIZER = "the tokenizer loads"
MODEL = "the model loads, each weight in its place"
LOGITS = "logits match"
TIES = "tied weights are tied"
GENERATION = "generation is reproducible"
ROUND_TRIP = "the tokenizer round-trips"
PIPELINE = "the pipeline runs"
CARD_CODE = "the code in the card prints what the card shows"
MEASURED = "the scores are measured again"


def fingerprint_logits(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the logits of some inputs as one float32 vector; if there are more than ``MANY``, every k-th of them.

    A model without a head has no logits: its first output is taken, which are the states of its last layer. The output
    of a pooler is not taken, because some checkpoints have no weights for it.
    """
    import torch

    with torch.no_grad():
        outputs = model(**inputs)
    found = [value for name, value in outputs.items() if name.endswith("logits")] or [outputs[0]]
    flat = torch.cat([logits.float().flatten() for logits in found]).cpu()
    return flat[:: max(1, -(-flat.numel() // MANY))].contiguous()


def encode_texts(tokenizer: Any, texts: Sequence[Sequence[str]], model: Any, longest: int = MAX_TOKENS) -> Any:
    """Return a batch of texts, or of pairs of texts, with the inputs of the model's ``forward``."""
    # A decoder generates from the last position, so padding is on the left.
    side = "left" if model.can_generate() and not model.config.is_encoder_decoder else "right"
    longest = min(
        longest, tokenizer.model_max_length, getattr(model.config, "max_position_embeddings", None) or longest
    )
    columns = [list(column) for column in zip(*texts, strict=True)]
    padding = {"padding": True, "padding_side": side} if len(texts) > 1 else {}
    inputs = tokenizer(*columns, truncation=True, max_length=longest, return_tensors="pt", **padding)
    # Without a token, transformers returns floats.
    return {name: inputs[name].long() for name in inputs if name in inspect.signature(model.forward).parameters}


def batch_logits(model: Any, batches: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the logits of each batch of inputs that has a token or a picture, by its name."""
    return {
        name: fingerprint_logits(model, batch) for name, batch in batches.items() if next(iter(batch.values())).numel()
    }


def drawn_picture(name: str) -> Any:
    """Return a picture of 320 × 256 pixels: blocks with colors that its name determines."""
    import zlib

    from PIL import Image

    colors = bytes(zlib.crc32(f"{name} {place}".encode()) & 255 for place in range(8 * 10 * 3))
    return Image.frombytes("RGB", (10, 8), colors).resize((320, 256), Image.Resampling.NEAREST)


def named(tensors: Mapping[str, Any], batch: str, kind: str) -> dict[str, Any]:
    """Return tensors under the names that they have in a file of fingerprints."""
    return {f"{batch}{'.' if batch else ''}{kind}{name}": tensor for name, tensor in tensors.items()}


def greedy_continuation(model: Any, inputs: Mapping[str, Any]) -> Any:
    """Return the greedy continuation or translation of some inputs, as ids (B, T)."""
    import torch

    inputs = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
    new = _room(model, next(iter(inputs.values())).shape[1])
    with torch.no_grad():
        return model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=new).cpu()


def _room(model: Any, length: int) -> int:
    """Return the number of tokens to generate after ``length`` tokens, limited by the positions of the model."""
    positions = getattr(model.config, "max_position_embeddings", None)  # mapped to the model's field by attribute_map
    if positions is None or model.config.is_encoder_decoder:
        return NEW_TOKENS
    return min(NEW_TOKENS, positions - length)


def main() -> None:
    """Run the code of the folder named on the command line, and send its results to standard output.

    Standard input is a JSON object:
        hides_hfattn: whether hfattn cannot be imported, as if it were not installed.
        loads: whether to load the model and compute with it, before the code of the card is run.
        batches: the fingerprint texts, as a batch with the name "" and further ones with a text or pair each. For a
            model of pictures, the names of pictures; see ``drawn_picture``.
        pipeline: the task of the pipeline to run; None for none.
        card_code: the code of the card; None for none.
        card_place: the id and the revision from which that code loads the model; without them, it loads the folder.
        measure: what ``hfattn.measured_outputs.outputs_of_texts`` computes with the model; None for nothing.

    Each result is 8 bytes with its length, least significant first, and a safetensors file. The metadata of that file
    are its ``name`` and the JSON object ``facts``; in the facts of a failure, ``error`` says what was raised.
    """
    folder, order = Path(sys.argv[1]), json.load(sys.stdin)
    pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # whatever is printed is not taken for a result
    if order["hides_hfattn"]:
        sys.modules["hfattn"] = None  # type: ignore[assignment]  # importing it fails
    _cut_the_network()
    os.chdir(folder)
    model_run = _ModelRun(order, pipe)
    if order["loads"]:
        model_run.run()
    if order["card_code"] is not None:
        if order.get("card_place") is not None:
            _lay_out_cache(*order["card_place"])
        _send(pipe, CARD_CODE, lambda: ({"printed": run_code(order["card_code"])}, {}))
    if order.get("measure") is not None and model_run.model is not None:
        _send(pipe, MEASURED, model_run.measure)


def _lay_out_cache(name: str, revision: str) -> None:
    """Lay out the folder as the Hub's cache has a repository, and leave it, so that code can only load it by its id."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder, commit = Path.cwd(), "0" * 40
    repository = Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / revision).write_text(commit)
    for path in folder.rglob("*"):
        if path.is_file():
            link = repository / "snapshots" / commit / path.relative_to(folder)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(path)
    os.chdir(Path.home())


def _cut_the_network() -> None:
    """Let sockets of Python say what is refused: the only barrier where the kernel has no sandbox."""

    def connect(*_: Any, **__: Any) -> None:
        raise OSError("a folder is verified without a network")

    refuse: Any = connect
    socket.socket.connect = refuse  # type: ignore[method-assign]
    socket.socket.connect_ex = refuse  # type: ignore[method-assign]
    socket.create_connection = refuse


def _send(pipe: Any, name: str, compute: Callable[[], Result]) -> bool:
    """Send what a function returns, or the error that it raises; return whether it returned."""
    tensors: dict[str, Any] = {}
    try:
        facts, tensors = compute()
    except (Exception, SystemExit) as error:  # an error in the folder's code is a result
        facts = {"error": traceback.format_exception_only(error)[-1].strip()}
    metadata = {"name": name, "facts": json.dumps(facts)}
    if tensors:
        from safetensors.torch import save

        data = save(tensors, metadata)
    else:
        from safetensors import serialize

        data = serialize({}, metadata)
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    return "error" not in facts


class _ModelRun:
    """What is computed with a model folder, which is the working directory. Each result uses those before it.

    Args:
        order: the JSON object read by ``main``.
        pipe: where the results are sent.
    """

    def __init__(self, order: Mapping[str, Any], pipe: Any) -> None:
        self.order = order
        self.pipe = pipe
        self.inputs: dict[str, dict[str, Any]] = {}  # by the name of a batch
        self.config: Any = None
        self.tokenizer: Any = None
        self.processor: Any = None  # of pictures
        self.model: Any = None
        self.adapter = Path(ADAPTER).is_file()
        self.own_config = self.adapter and Path(OWN_CONFIG, "config.json").is_file()

    def run(self) -> None:
        """Compute and send all results, or those until the folder fails to load."""
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        loaded = [
            _send(self.pipe, CONFIGURATION, self.load_config),
            _send(self.pipe, TOKENIZER, self.load_tokenizer),
        ]
        if all(loaded) and _send(self.pipe, MODEL, self.load_model):
            _send(self.pipe, TIES, self.find_ties)
            if self.order["batches"]:
                _send(self.pipe, ROUND_TRIP, self.encode)
                _send(self.pipe, GENERATION, self.generate)
                _send(self.pipe, LOGITS, self.logits)
            if self.order["pipeline"] is not None:
                _send(self.pipe, PIPELINE, self.run_pipeline)

    def load_config(self) -> Result:
        from transformers import AutoConfig

        folder = OWN_CONFIG if self.own_config else "." if Path("config.json").is_file() else BASE
        self.config = AutoConfig.from_pretrained(folder, trust_remote_code=True)
        return {"class": type(self.config).__name__}, {}

    def load_tokenizer(self) -> Result:
        from transformers import AutoImageProcessor, AutoTokenizer

        folder = BASE if self.adapter and not reads_text(Path()) else "."
        if Path(folder, "preprocessor_config.json").is_file():
            self.processor = AutoImageProcessor.from_pretrained(folder, trust_remote_code=True)
            if not reads_text(Path(folder)):
                return {"class": type(self.processor).__name__, "pictures": True}, {}
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        return {"class": type(self.tokenizer).__name__, "tokens": len(self.tokenizer)}, {}

    def load_model(self) -> Result:
        import torch
        import transformers

        name = adapted_class(json.loads(Path(ADAPTER).read_text())) if self.adapter else auto_class(self.config)
        self.model, found = getattr(transformers, name).from_pretrained(
            ".",
            trust_remote_code=True,
            use_safetensors=True,
            output_loading_info=True,
            dtype=torch.float32,
            **({"config": self.config} if self.own_config else {}),
            **self.head(),
        )
        self.model.eval()
        kinds = ("missing_keys", "unexpected_keys", "mismatched_keys")
        facts = {kind: sorted(map(str, found[kind])) for kind in kinds}
        return {
            **facts,
            "class": type(self.model).__name__,
            "auto_class": name,
            "parameters": self.model.num_parameters(),
        }, {}

    def head(self) -> dict[str, Any]:
        """Return the arguments that an adapter with its own head is loaded with."""
        if self.own_config:
            return {"ignore_mismatched_sizes": True}
        labels = own_labels(Path(), Path(BASE)) if self.adapter else None
        return {} if labels is None else {"num_labels": labels, "ignore_mismatched_sizes": True}

    def find_ties(self) -> Result:
        parameters = dict(self.model.named_parameters(remove_duplicate=False))
        tied = self.model.all_tied_weights_keys
        shared = {one: parameters[one].data_ptr() == parameters[other].data_ptr() for one, other in tied.items()}
        return {"tied": dict(tied), "shared": shared}, {}

    @property
    def sees_pictures(self) -> bool:
        """Whether the model reads pictures alone, and perhaps writes texts."""
        return self.processor is not None and (self.tokenizer is None or self.model.main_input_name == "pixel_values")

    def encode(self) -> Result:
        sent: dict[str, Any] = {}
        for name, rows in self.order["batches"].items():
            if self.sees_pictures:
                pictures = [drawn_picture(row[0]) for row in rows]
                self.inputs[name] = dict(self.processor(pictures, return_tensors="pt"))
            else:
                self.inputs[name] = encode_texts(self.tokenizer, rows, self.model, LONGEST if name else MAX_TOKENS)
                sent |= named(self.inputs[name], name, "inputs.")
        if self.tokenizer is None:
            return {}, {}
        decoded = []
        for text in self.order["batches"][""]:
            ids = self.tokenizer(text[0], add_special_tokens=False, truncation=True)["input_ids"]
            again = self.tokenizer(self.tokenizer.decode(ids), add_special_tokens=False)["input_ids"]
            # An unknown word is not in its ids.
            decoded.append({"ids": ids, "again": again, "unknown": self.tokenizer.unk_token_id in ids})
        return {"decoded": decoded}, sent

    def generate(self) -> Result:
        import transformers

        inputs = self.inputs[""]
        if not self.model.can_generate():
            return {"generates": False}, {}
        first, again = (greedy_continuation(self.model, inputs) for _ in range(2))
        if self.model.config.is_encoder_decoder:
            for name, batch in self.inputs.items():
                batch["decoder_input_ids"] = first[:1] if name else first
        new = _room(self.model, next(iter(inputs.values())).shape[1])
        inputs = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
        drawn = []
        for _ in range(2):
            transformers.set_seed(0)
            sample = self.model.generate(**inputs, do_sample=True, max_length=None, max_new_tokens=new)
            drawn.append(sample.contiguous())
        return {"generates": True}, {
            "greedy": first.contiguous(),
            "greedy again": again.contiguous(),
            "sample": drawn[0],
            "sample again": drawn[1],
        }

    def logits(self) -> Result:
        logits = batch_logits(self.model, self.inputs)
        return {}, {key: value for name in logits for key, value in named({"logits": logits[name]}, name, "").items()}

    def run_pipeline(self) -> Result:
        import transformers

        task = self.order["pipeline"]
        config = self.config if self.own_config else None
        pipeline = transformers.pipeline(
            task, model=".", config=config, trust_remote_code=True, model_kwargs=self.head()
        )
        options: dict[str, Any]
        text, *pair = self.order["batches"][""][0]
        if self.sees_pictures:
            answer = pipeline(drawn_picture(text))
            return {"answer": repr(answer)[:1000] if answer else ""}, {}
        if task == "zero-shot-image-classification":
            labels = [row[0] for row in self.order["batches"][""]]
            # The default template adds words, which may be more than the model reads.
            options = {"hypothesis_template": "{}", "tokenizer_kwargs": {"truncation": True}}
            answer = pipeline(drawn_picture(text), candidate_labels=labels, **options)
            return {"answer": repr(answer)[:1000] if answer else ""}, {}
        if task == "fill-mask":
            text = f"{pipeline.tokenizer.mask_token} {text}"
        options = {"truncation": True} if pair else {}
        if task == "text-generation":
            options = {"max_new_tokens": _room(self.model, self.inputs[""]["input_ids"].shape[1])}
        answer = pipeline({"text": text, "text_pair": pair[0]} if pair else text, **options)
        return {"answer": repr(answer)[:1000] if answer else ""}, {}

    def measure(self) -> Result:
        sys.modules.pop("hfattn", None)  # the classes of the model are loaded; the batches are made as in training
        from hfattn.measured_outputs import outputs_of_texts

        reader = self.processor if self.tokenizer is None else self.tokenizer
        return outputs_of_texts(self.model, reader, self.order["measure"])


def reads_text(folder: Path) -> bool:
    """Return whether a folder has a tokenizer."""
    names = ("tokenizer_config.json", "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")
    return any((folder / name).is_file() for name in names)


# The Auto classes that load an adapter, by the ``task_type`` of peft.
_ADAPTED = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "QUESTION_ANS": "AutoModelForQuestionAnswering",
}
# The last layer of a head, which peft saves whole with the updates.
_HEAD = re.compile(r"\.(?:classifier|score)(?:\.out_proj)?\.weight$")


def adapted_class(adapter: Mapping[str, Any]) -> str:
    """Return the name of the Auto class that loads an adapter, given its configuration."""
    return _ADAPTED.get(str(adapter.get("task_type")), "AutoModel")


def own_labels(folder: Path, base: Path) -> int | None:
    """Return the number of labels of an adapter that has its own head; None if it has none, or one of its base's size.

    Args:
        folder, base: the folders of the adapter and of its base model.
    """
    from safetensors import safe_open

    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    there = len(config.get("id2label") or ()) or config.get("num_labels", 2)
    with safe_open(folder / "adapter_model.safetensors", "np") as file:
        heads = [name for name in file.keys() if _HEAD.search(name)]  # noqa: SIM118  (not a mapping)
        labels = file.get_slice(heads[0]).get_shape()[0] if len(heads) == 1 else there
    return None if labels == there else int(labels)


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


class _Bounded(io.StringIO):
    def write(self, text: str) -> int:
        if self.tell() + len(text) > PRINTED:
            raise ValueError(f"the code prints more than {PRINTED:,} characters")
        return super().write(text)


def run_code(code: str) -> str:
    """Run Python code in this process and folder, and return what it prints.

    Raises:
        ValueError: it prints more than ``PRINTED`` characters.
    """
    out = _Bounded()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "the card's code", "exec"), {"__name__": "__main__"})
    return out.getvalue()


if __name__ == "__main__":
    main()

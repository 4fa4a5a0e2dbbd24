"""The code that is saved with a model: the files that its configuration names, and no others."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, run
from huggingface_hub.errors import StrictDataclassError

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    BiLMConfig,
    BiLMForCausalLM,
    CharRNNConfig,
    CharRNNForCausalLM,
    DualEncoderConfig,
    DualEncoderModel,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    RNNEncoderForTokenClassification,
    ShowAttendTellConfig,
    ShowAttendTellForConditionalGeneration,
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
)
from hfattn.attention import Softmax
from hfattn.hub.architecture import architecture
from hfattn.hub.inspection import inspect
from hfattn.models.attention_distributions import DISTRIBUTIONS
from hfattn.models.strict_config import OLDEST_TRANSFORMERS

pytestmark = pytest.mark.runs

MODELS = ROOT / "hfattn" / "models"
SMALL = {"vocab_size": 12, "hidden_size": 16, "intermediate_size": 16, "encoder_layers": 1, "decoder_layers": 1}
TOWER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
IDS = torch.tensor([[3, 4, 5, 6, 7, 8]])

SHARED = {"custom_classes.py", "strict_config.py"}
ATTENTION = {"attention.py", "attention_distributions.py", "attention_scores.py", "score_kernels.py"}
VASWANI = {
    "penalties.py",
    "configuration_layers.py",
    "configuration_vaswani.py",
    "encoder_decoder.py",
    "modeling_vaswani.py",
    "classifier_output.py",
}
RECURRENT = {"cache_recurrent.py", "recurrent_cells.py", "recurrent_layers.py"}
DECODER = {"attention_local.py", "configuration_recurrent_decoder.py", "encoder_decoder.py", "recurrent_decoder.py"}
RNN_ENCODER = {"attention_pooling.py", "classifier_output.py", "configuration_rnn_encoder.py", "parts.py"}
RNN_ENCODER |= {
    "modeling_rnn_encoder.py",
    "penalties.py",
    "pooled_classifier.py",
    "recurrent_cells.py",
    "recurrent_layers.py",
}
KERNELS = {"cache_recurrent.py", "random_directions.py"}
GENERATION = {"fast_generation.py"}
PIPELINE = {"alignment.py", "pipeline_attn_translation.py"}

# Class, its configuration, the files that it is saved with, and how many lines they may have.
SAVED: dict[str, tuple[Any, Any, set[str], int]] = {
    "classifier": (VaswaniForSequenceClassification, VaswaniConfig(**SMALL), SHARED | ATTENTION | VASWANI, 3935),
    "masked_lm": (VaswaniForMaskedLM, VaswaniConfig(**SMALL), SHARED | ATTENTION | VASWANI, 3935),
    "causal_lm": (VaswaniForCausalLM, VaswaniConfig(**SMALL), SHARED | ATTENTION | VASWANI, 3935),
    "translator": (
        VaswaniForConditionalGeneration,
        VaswaniConfig(**SMALL),
        SHARED | ATTENTION | VASWANI | PIPELINE | GENERATION | {"modeling_vaswani_translation.py", "vaswani_steps.py"},
        5470,
    ),
    "recurrent translator": (
        BahdanauForConditionalGeneration,
        BahdanauConfig(vocab_size=12, embedding_size=8, encoder_hidden_size=8, hidden_size=8),
        SHARED
        | ATTENTION
        | RECURRENT
        | PIPELINE
        | DECODER
        | GENERATION
        | {"configuration_bahdanau.py", "modeling_bahdanau.py", "recurrent_decoder_steps.py", "recurrent_steps.py"},
        5070,
    ),
    "captioner": (
        ShowAttendTellForConditionalGeneration,
        ShowAttendTellConfig(vocab_size=12, embedding_size=8, hidden_size=8, annotation_size=8),
        SHARED
        | ATTENTION
        | RECURRENT
        | DECODER
        | {
            "alignment.py",
            "configuration_show_attend_tell.py",
            "modeling_show_attend_tell.py",
            "parts.py",
            "penalties.py",
            "pipeline_image_captioning.py",
        },
        4700,
    ),
    "recurrent classifier": (
        RNNEncoderForSequenceClassification,
        RNNEncoderConfig(vocab_size=12, embedding_size=8, hidden_size=8),
        SHARED | ATTENTION | RNN_ENCODER,
        3275,
    ),
    "recurrent tagger": (
        RNNEncoderForTokenClassification,
        RNNEncoderConfig(vocab_size=12, embedding_size=8, hidden_size=8),
        SHARED | ATTENTION | RNN_ENCODER,
        3275,
    ),
    "dual encoder": (
        DualEncoderModel,
        DualEncoderConfig(
            vision_config={"model_type": "vit", **TOWER}, text_config={"model_type": "bert", "vocab_size": 9, **TOWER}
        ),
        SHARED | {"configuration_dual_encoder.py", "modeling_dual_encoder.py", "parts.py"},
        650,
    ),
    "language model of both directions": (
        BiLMForCausalLM,
        BiLMConfig(vocab_size=12, hidden_size=8),
        SHARED | RECURRENT | {"configuration_bilm.py", "modeling_bilm.py"},
        1400,
    ),
    "recurrent language model": (
        CharRNNForCausalLM,
        CharRNNConfig(vocab_size=12, embedding_size=8, hidden_size=8),
        SHARED
        | RECURRENT
        | GENERATION
        | {"classifier_output.py", "configuration_char_rnn.py", "modeling_char_rnn.py"}
        | {"pooled_classifier.py", "recurrent_steps.py"},
        1990,
    ),
}


@pytest.mark.parametrize("name", SAVED)
def test_the_files_of_a_model_and_no_others(tmp_path: Path, name: str) -> None:
    """Each byte for byte a file of the package, and no more lines than a reader can be asked to read."""
    kind, config, files, lines = SAVED[name]
    kind(config).save_pretrained(tmp_path)
    saved = {path.name: path.read_bytes() for path in tmp_path.glob("*.py")}
    assert saved.keys() == files
    assert all(content == (MODELS / name).read_bytes() for name, content in saved.items())
    assert sum(content.count(b"\n") for content in saved.values()) <= lines
    named = {
        reference.split(".")[0] for reference in json.loads((tmp_path / "config.json").read_text())["auto_map"].values()
    }
    assert {f"{module}.py" for module in named} <= files


OLD = """
import sys
sys.path.insert(0, "libraries")
try:
    import model.{module}
except ImportError as error:
    print(error)
"""


def test_an_older_transformers_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Of the old libraries there is only the version, so whatever else is imported first would raise another error."""
    oldest = re.search(r'"transformers>=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert oldest is not None
    assert oldest[1] == OLDEST_TRANSFORMERS
    for name in ("torch", "transformers", "huggingface_hub"):
        (tmp_path / "libraries" / name).mkdir(parents=True)
        (tmp_path / "libraries" / name / "__init__.py").write_text('__version__ = "4.57.1"\n')
    shutil.copytree(MODELS, tmp_path / "model")
    (tmp_path / "model" / "__init__.py").write_text("")
    for path in MODELS.glob("configuration_*.py"):
        command = [sys.executable, "-c", OLD.format(module=path.stem)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert done.stdout == (
            f"This model needs transformers {oldest[1]} or newer, and 4.57.1 is installed; run pip install --upgrade "
            "transformers.\n"
        )


# Custom classes

LOW_RANK = '''"""A score and a distribution that hfattn does not have."""

import torch
from torch import nn

from .attention_distributions import Distribution, Softmax
from .attention_scores import InnerProduct


class LowRank(InnerProduct):
    """(U q)·(V k)."""

    def __init__(self, query_size: int, key_size: int, *, rank: int = 4) -> None:
        super().__init__(query_size, key_size)
        self._parameter("U", rank, query_size)
        self._parameter("V", rank, key_size)
        self.initialize_()

    def prepare(self, key: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(key, self.V)

    def factors(self, query: torch.Tensor, prepared: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return nn.functional.linear(query, self.U), prepared


class Twice(Distribution):
    """Softmax of 2 e."""

    def __init__(self) -> None:
        super().__init__()
        self.softmax = Softmax()

    def weigh(self, energies: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        return self.softmax(2 * energies, mask)
'''

IMPORTS = """
from .low_rank import LowRank as low_rank_LowRank
from .low_rank import Twice as low_rank_Twice
CLASSES = {"low_rank.LowRank": low_rank_LowRank, "low_rank.Twice": low_rank_Twice}
"""

# Load a folder where hfattn is not installed, save it again, load that.
CLEAN = """
import sys, torch, transformers
sys.modules["hfattn"] = None
kind = getattr(transformers, sys.argv[1])
ids = torch.load(sys.argv[2])
extra = {"labels": ids} if sys.argv[1] == "AutoModelForSeq2SeqLM" else {}
outputs = []
for folder, again in zip(sys.argv[3:5], sys.argv[4:6]):
    model = kind.from_pretrained(folder, trust_remote_code=True).eval()
    outputs.append(model(ids, **extra).logits.detach())
    model.save_pretrained(again)
torch.save(outputs, sys.argv[2])
"""


@pytest.fixture
def low_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on ``sys.path`` with low_rank.py."""
    path = tmp_path / "scripts" / "low_rank.py"
    path.parent.mkdir()
    path.write_text(LOW_RANK)
    monkeypatch.syspath_prepend(str(path.parent))
    for name in ("low_rank", "relu_cell", "needs_hfattn"):
        monkeypatch.delitem(sys.modules, f"hfattn.models.{name}", raising=False)
    return path


CUSTOM = {"score": "low_rank.LowRank", "score_options": {"rank": 2}, "distribution": "low_rank.Twice"}


def in_attention(prefix: str) -> dict[str, Any]:
    return {f"{prefix}attention_{name}": value for name, value in CUSTOM.items()}


def load_without_hfattn(kind: str, folders: list[Path]) -> list[torch.Tensor]:
    """Logits of the model in the first folder, and in the second, where that process saves it; the third is a copy."""
    auto = kind[kind.index("For") :].replace("ConditionalGeneration", "Seq2SeqLM")
    tensors = folders[0].with_name("tensors.pt")
    torch.save(IDS, tensors)
    command = [sys.executable, "-c", CLEAN, f"AutoModel{auto}", str(tensors), *map(str, folders)]
    done = run(command, cwd=tensors.parent, HF_MODULES_CACHE=str(tensors.with_name("modules")))
    assert done.returncode == 0, done.stderr
    return torch.load(tensors)


@pytest.mark.parametrize("family", ["bahdanau", "rnn_encoder", "vaswani"])
def test_custom_classes_are_saved_and_load_without_hfattn(tmp_path: Path, low_rank: Path, family: str) -> None:
    """Where hfattn is not installed the model loads, says the same, and is saved again with the same files."""
    torch.manual_seed(0)
    model: Any
    if family == "bahdanau":
        sizes = {"vocab_size": 12, "embedding_size": 8, "encoder_hidden_size": 8, "hidden_size": 8}
        model = BahdanauForConditionalGeneration(BahdanauConfig(**sizes, **in_attention("")))
    elif family == "rnn_encoder":
        sizes = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8}
        model = RNNEncoderForSequenceClassification(RNNEncoderConfig(**sizes, pooling="attention", **in_attention("")))
    else:
        model = VaswaniForSequenceClassification(VaswaniConfig(**SMALL, **in_attention("self_")))
    model.eval()
    extra = {"labels": IDS} if family == "bahdanau" else {}
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn(type(model).__name__, folders):
        torch.testing.assert_close(logits, model(IDS, **extra).logits)

    written = (MODELS / "custom_classes.py").read_text() + IMPORTS
    for folder in folders:
        code = {path.name: path.read_text() for path in folder.glob("*.py")}
        assert code.pop("custom_classes.py") == written
        assert code.pop("low_rank.py") == LOW_RANK
        assert all(text == (MODELS / name).read_text() for name, text in code.items())
        assert not inspect(str(folder)).findings
    again = type(model).from_pretrained(folders[2]).eval()
    assert torch.equal(again(IDS, **extra).logits, type(model).from_pretrained(folders[0]).eval()(IDS, **extra).logits)


def test_a_score_by_distance_brings_its_file_along(tmp_path: Path) -> None:
    """Scores and distributions that few models name are in a file that only these are saved with."""
    torch.manual_seed(0)
    parts = {"self_attention_score": "gaussian", "self_attention_distribution": "compositional"}
    model = VaswaniForSequenceClassification(VaswaniConfig(**SMALL, **parts)).eval()
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn(type(model).__name__, folders):
        torch.testing.assert_close(logits, model(IDS).logits)
    for folder in folders:
        code = {path.name: path.read_text() for path in folder.glob("*.py")}
        assert code.keys() == SHARED | ATTENTION | VASWANI | {"attention_distances.py"}
        assert code.pop("custom_classes.py").splitlines()[4:] == [
            "from .attention_distances import Compositional as attention_distances_Compositional",
            "from .attention_distances import Gaussian as attention_distances_Gaussian",
            'CLASSES = {"attention_distances.Compositional": attention_distances_Compositional, '
            '"attention_distances.Gaussian": attention_distances_Gaussian}',
        ]
        assert all(text == (MODELS / name).read_text() for name, text in code.items())
        assert not inspect(str(folder)).findings


@pytest.mark.parametrize(
    ("name", "options", "reference", "others"),
    [
        ("window", {"window": 2}, "attention_windows.WindowAttention", {"attention_biases.py"}),
        ("fixed", {"block": 2}, "attention_sparse.FixedAttention", {"attention_windows.py"}),
        ("adaptive_span", {"span": 4, "ramp": 2}, "attention_spans.AdaptiveSpanAttention", {"attention_windows.py"}),
        (
            "memory",
            {"segment_length": 2, "memory_length": 2},
            "attention_memory.MemoryAttention",
            {"attention_windows.py"},
        ),
        ("fourier", {}, "attention_mixers.FourierMixer", {"attention_scoreless.py"}),
        (
            "gated_delta",
            {"expand_k": 1},
            "attention_gated.GatedDeltaMixer",
            {"attention_scoreless.py", "cache_recurrent.py"},
        ),
        ("performer", {"features": 7}, "attention_kernels.PerformerAttention", KERNELS),
        ("lsh", {"buckets": 4, "keys": 2}, "attention_hashing.LSHAttention", {"random_directions.py"}),
    ],
)
def test_a_pattern_brings_its_file_along(
    tmp_path: Path, name: str, options: dict[str, Any], reference: str, others: set[str]
) -> None:
    """A folder has the code of the patterns and positions that its configuration names, and no code of others."""
    torch.manual_seed(0)
    is_causal = "gated" in name or name == "memory"
    stack, kind = ("decoder", VaswaniForCausalLM) if is_causal else ("encoder", VaswaniForSequenceClassification)
    pattern = {f"{stack}_layers": 2, f"{stack}_pattern": [name, "full"], f"{stack}_pattern_options": options}
    if "attention_biases.py" in others:
        pattern["positions"] = "relative_buckets"
    file, class_name = reference.split(".")
    model = kind(VaswaniConfig(**{**SMALL, **pattern})).eval()
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn(type(model).__name__, folders):
        torch.testing.assert_close(logits, model(IDS).logits)
    for folder in folders:
        code = {path.name: path.read_text() for path in folder.glob("*.py")}
        assert code.keys() == SHARED | ATTENTION | VASWANI | {f"{file}.py"} | others
        line = f"from .{file} import {class_name} as {file}_{class_name}\n"
        assert line in code.pop("custom_classes.py")
        assert all(text == (MODELS / name).read_text() for name, text in code.items())
        assert not inspect(str(folder)).findings


def test_groups_of_layers_bring_their_file_along(tmp_path: Path) -> None:
    config = VaswaniConfig(**{**SMALL, "decoder_layers": 2}, decoder_attention_groups=[2])
    model = VaswaniForCausalLM(config).eval()
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn(type(model).__name__, folders):
        torch.testing.assert_close(logits, model(IDS).logits)
    for folder in folders:
        assert {path.name for path in folder.glob("*.py")} == SHARED | ATTENTION | VASWANI | {"attention_groups.py"}


def test_options_of_stacks_bring_their_files_along(tmp_path: Path) -> None:
    torch.manual_seed(0)
    fields: dict[str, Any] = {"latents": 3, "latent_rounds": 2, "reversible": True, "norm": "pre", "subsampling": 2}
    model = VaswaniForSequenceClassification(VaswaniConfig(**SMALL, **fields)).eval()
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.save_pretrained(folders[0])
    for logits in load_without_hfattn(type(model).__name__, folders):
        torch.testing.assert_close(logits, model(IDS).logits)
    for folder in folders:
        code = {path.name: path.read_text() for path in folder.glob("*.py")}
        assert code.keys() == SHARED | ATTENTION | VASWANI | {"latents.py", "reversible.py", "subsampling.py"}
        assert "from .latents import Latents as latents_Latents\n" in code.pop("custom_classes.py")
        assert all(text == (MODELS / name).read_text() for name, text in code.items())
        assert not inspect(str(folder)).findings


def test_a_file_that_imports_other_files_of_hfattn_brings_them(tmp_path: Path, low_rank: Path) -> None:
    low_rank.write_text(LOW_RANK.replace("import torch\n", "import torch\n\nfrom .recurrent_cells import CELLS\n", 1))
    config = VaswaniConfig(**SMALL, **in_attention("self_"))
    VaswaniForCausalLM(config).save_pretrained(tmp_path / "model")
    assert (tmp_path / "model" / "recurrent_cells.py").read_bytes() == (MODELS / "recurrent_cells.py").read_bytes()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (
            "nowhere.LowRank",
            "nowhere.py was not found on sys.path; add its folder, such as that of a saved model, to PYTHONPATH.",
        ),
        ("low_rank.HighRank", "low_rank.py does not define a class HighRank; check its spelling."),
        ("low_rank.Twice", "low_rank.Twice is not a score: make it a subclass of Score (from .attention_scores"),
        ("low.rank.Twice", "'low.rank.Twice' is not the name of a class in a file; write my_scores.LowRank"),
        ("attention.Twice", "attention.py does not define a class Twice; give your file another name."),
        ("json.Twice", "json.py was not found on sys.path"),
        ("needs_hfattn.LowRank", "needs_hfattn.py imports hfattn, which need not be installed where"),
    ],
)
def test_what_is_no_custom_class_is_refused_in_a_sentence(low_rank: Path, name: str, sentence: str) -> None:
    (low_rank.parent / "needs_hfattn.py").write_text("from hfattn.attention import Score\n")
    with pytest.raises(StrictDataclassError, match=re.escape(sentence)):
        VaswaniConfig(**SMALL, self_attention_score=name)


def test_a_class_that_was_added_to_a_registry_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DISTRIBUTIONS, "mine", type("Mine", (Softmax,), {}))
    model = VaswaniForCausalLM(VaswaniConfig(**SMALL, self_attention_distribution="mine"))
    with pytest.raises(ValueError, match=r"'mine' cannot be saved: Mine is defined in .*; move it to a file"):
        model.save_pretrained(tmp_path / "model")
    assert not list((tmp_path / "model").glob("*.safetensors"))


CELL = '''"""A cell that hfattn does not have."""

import torch

from .recurrent_cells import LoopedCell, State


class ReLU(LoopedCell):
    """h_t = max(x_t W_x + h_{t-1} W_h + b, 0)."""

    num_gates = 1

    def step(self, projected: torch.Tensor, state: State) -> State:
        return (torch.relu(projected + state[0] @ self.weight_hh_l0.T),)
'''


@pytest.mark.parametrize("family", ["bahdanau", "rnn_encoder", "char_rnn"])
def test_a_custom_cell_is_saved_and_loads_without_hfattn(tmp_path: Path, low_rank: Path, family: str) -> None:
    """Its step is computed by every layer: the model is the one with torch's ReLU network of the same weights."""
    low_rank.with_name("relu_cell.py").write_text(CELL)
    torch.manual_seed(0)
    sizes = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8, "cell": "relu_cell.ReLU"}
    model: Any
    if family == "bahdanau":
        model = BahdanauForConditionalGeneration(BahdanauConfig(**sizes, encoder_hidden_size=8))
    elif family == "rnn_encoder":
        model = RNNEncoderForSequenceClassification(RNNEncoderConfig(**sizes))
    else:
        model = CharRNNForCausalLM(CharRNNConfig(**sizes))
    folders = [tmp_path / name for name in ("one", "two", "three")]
    model.eval().save_pretrained(folders[0])
    logits = load_without_hfattn(type(model).__name__, folders)
    extra = {"labels": IDS} if family == "bahdanau" else {}
    for each in logits:
        torch.testing.assert_close(each, model(IDS, **extra).logits)
    for folder in folders:
        assert (folder / "relu_cell.py").read_text() == CELL
        assert not inspect(str(folder)).findings


def test_a_custom_cell_is_its_formula(low_rank: Path) -> None:
    low_rank.with_name("relu_cell.py").write_text(CELL)
    sizes = {"vocab_size": 12, "embedding_size": 5, "hidden_size": 4}
    model = CharRNNForCausalLM(CharRNNConfig(**sizes, cell="relu_cell.ReLU")).double()
    cell = next(module for module in model.modules() if type(module).__name__ == "ReLU")
    state, states = torch.zeros(1, 4, dtype=torch.float64), []
    for x in model.model.embed_tokens(IDS)[0]:
        state = (cell.weight_ih_l0 @ x + cell.weight_hh_l0 @ state[0] + cell.bias_ih_l0).clamp(min=0)[None]
        states.append(state)
    torch.testing.assert_close(model.model(IDS).last_hidden_state[0], torch.cat(states))


def test_a_folder_with_a_custom_cell_needs_its_file_where_hfattn_loads_it(
    tmp_path: Path, low_rank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """hfattn runs no code from a folder that it was not told to search."""
    path = low_rank.with_name("relu_cell.py")
    path.write_text(CELL)
    sizes = {"vocab_size": 12, "embedding_size": 8, "hidden_size": 8}
    CharRNNForCausalLM(CharRNNConfig(**sizes, cell="relu_cell.ReLU")).save_pretrained(tmp_path / "model")
    path.unlink()
    monkeypatch.delitem(sys.modules, "hfattn.models.relu_cell")
    with pytest.raises(
        ValueError, match=r"relu_cell\.py was not found on sys\.path; add its folder, such as that of a saved"
    ):
        architecture(tmp_path / "model")
    monkeypatch.syspath_prepend(str(tmp_path / "model"))
    assert "ReLU" in architecture(tmp_path / "model")

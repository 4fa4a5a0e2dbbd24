"""The package as a whole: what it exposes, what it imports, what it leaves out of a Hub repository."""

import ast
import importlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from commands import OUTSIDE, ROOT, run, run_anew
from hub_server import HubServer

import hfattn
from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.models.strict_config import VERSION
from hfattn.tokenizers import build_character_tokenizer

pytestmark = pytest.mark.runs

MODELS = ROOT / "hfattn" / "models"


def python(code: str, *words: str, **extra: str) -> str:
    """What the code prints in another process."""
    done = run([sys.executable, "-c", code, *words], cwd=OUTSIDE, **extra)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Versions


def test_a_field_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """A configuration names the version that saved it; one that is not later is read as before."""
    assert hfattn.__version__ == VERSION
    CharRNNConfig(vocab_size=5).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text())
    assert saved["hfattn_version"] == VERSION
    for version, refused in ((VERSION, False), ("0.0.9", False), ("0.2.0", True), ("1.0.0rc1", True)):
        path.write_text(json.dumps({**saved, "hfattn_version": version}))
        CharRNNConfig.from_pretrained(tmp_path)  # the later one has no field that is new
        path.write_text(json.dumps({**saved, "hfattn_version": version, "gate_bias": 1}))
        if refused:
            with pytest.raises(ValueError, match=f"'gate_bias' is a field of hfattn {version}, and this is {VERSION}"):
                CharRNNConfig.from_pretrained(tmp_path)
        else:
            config = CharRNNConfig.from_pretrained(tmp_path)
            config.save_pretrained(tmp_path)
            assert json.loads(path.read_text())["hfattn_version"] == VERSION


# What `import hfattn` does


def test_all_is_what_the_package_exposes() -> None:
    expected = [
        "BahdanauConfig",
        "BahdanauForConditionalGeneration",
        "BahdanauModel",
        "BahdanauPreTrainedModel",
        "BiLMConfig",
        "BiLMForCausalLM",
        "BiLMModel",
        "BiLMPreTrainedModel",
        "CharRNNConfig",
        "CharRNNForCausalLM",
        "CharRNNForSequenceClassification",
        "CharRNNModel",
        "CharRNNPreTrainedModel",
        "DualEncoderConfig",
        "DualEncoderModel",
        "RNNEncoderConfig",
        "RNNEncoderForSequenceClassification",
        "RNNEncoderForTokenClassification",
        "RNNEncoderModel",
        "RNNEncoderPreTrainedModel",
        "RecurrentCache",
        "ShowAttendTellConfig",
        "ShowAttendTellForConditionalGeneration",
        "ShowAttendTellModel",
        "ShowAttendTellPreTrainedModel",
        "VaswaniConfig",
        "VaswaniForCausalLM",
        "VaswaniForConditionalGeneration",
        "VaswaniForMaskedLM",
        "VaswaniForSequenceClassification",
        "VaswaniModel",
        "VaswaniPreTrainedModel",
        "VaswaniVisionConfig",
        "VaswaniVisionForImageClassification",
        "VaswaniVisionModel",
        "VaswaniVisionPreTrainedModel",
    ]
    assert hfattn.models.__all__ == expected
    assert hfattn.__all__ == hfattn.api.__all__ + expected
    for name in hfattn.__all__:
        assert getattr(hfattn, name).__name__ == name
        assert name in dir(hfattn)
    with pytest.raises(AttributeError, match="no attribute 'CharRNN'"):
        hfattn.CharRNN  # noqa: B018


@pytest.mark.parametrize(
    "module",
    [
        "data",
        "tokenizers",
        "training",
        "metrics",
        "hub",
        "generation",
        "errors",
        "explaining",
        "pipelines",
    ],
)
def test_every_name_in_all_exists(module: str) -> None:
    loaded = importlib.import_module(f"hfattn.{module}")
    assert all(hasattr(loaded, name) for name in getattr(loaded, "__all__", []))


def test_import_adds_only_configurations_and_needs_only_torch_and_transformers() -> None:
    """Model code is imported with the first model: it takes seconds."""
    code = (
        "import sys\n"
        "for name in ('datasets', 'evaluate', 'accelerate', 'peft', 'matplotlib', 'gradio', 'jinja2', 'sklearn'):\n"
        "    sys.modules.setdefault(name, None)\n"
        "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM\n"
        "before = set(sys.modules)\n"
        "import hfattn\n"
        "added = set(sys.modules) - before\n"
        "assert {name.partition('.')[0] for name in added} <= {'hfattn', 'html', 'safetensors'}, added\n"
        "modules = {name.removeprefix('hfattn.models.') for name in added if name.startswith('hfattn.models.')}\n"
        "models = {name for name in modules if not name.startswith('configuration_')}\n"
        "assert models == {'alignment', 'parts', 'strict_config'}, models\n"
        "assert not any(name.startswith('hfattn.hub') for name in added), added\n"
        "assert 'transformers.modeling_utils' not in sys.modules\n"
        "config = AutoConfig.for_model('char_rnn')\n"
        "model = AutoModelForCausalLM.from_config(config)\n"
        "assert type(model) is hfattn.CharRNNForCausalLM\n"
        "assert isinstance(AutoModel.from_config(config), hfattn.CharRNNModel)\n"
    )
    # jinja2 is torch's own dependency where torch was built to need it; it is blocked only if nothing loaded it before.
    run_anew([sys.executable, "-c", code], cwd=OUTSIDE).check_returncode()


def test_the_stand_in_for_a_model_class_is_as_good_as_the_class() -> None:
    code = (
        "import pickle\n"
        "from transformers import AutoModelForCausalLM\n"
        "import hfattn\n"
        "mapping = AutoModelForCausalLM._model_mapping\n"
        "stand_in = mapping[hfattn.CharRNNConfig]\n"
        "assert stand_in.__name__ == 'CharRNNForCausalLM' and stand_in.config_class is hfattn.CharRNNConfig\n"
        "assert type(stand_in(hfattn.CharRNNConfig())) is hfattn.CharRNNForCausalLM\n"
        "assert stand_in.from_pretrained.__self__ is hfattn.CharRNNForCausalLM\n"
        "assert mapping[hfattn.CharRNNConfig] is hfattn.CharRNNForCausalLM  # from its first use on\n"
        "pickle.loads(pickle.dumps(mapping))\n"
    )
    python(code)


# models/ is a Hub repository


def test_model_files_import_siblings_and_the_ecosystem_only() -> None:
    """What save_pretrained can copy: 'from .sibling import name' and third-party packages, nothing else."""
    standard = sys.stdlib_module_names
    for path in MODELS.glob("*.py"):
        if path.name == "__init__.py":
            continue
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
                assert names <= {"torch", "transformers"} | standard, path
            elif isinstance(node, ast.ImportFrom) and node.level:
                assert node.level == 1, path
                assert node.module is not None, path
                assert (MODELS / f"{node.module}.py").exists(), path
            elif isinstance(node, ast.ImportFrom):
                assert node.module is not None
                known = {"torch", "transformers", "huggingface_hub"} | standard
                if path.name == "alignment.py":  # which tries; a notebook has it
                    known.add("IPython")
                if path.name == "pipeline_image_captioning.py":  # the pipelines of transformers for images need it too
                    known.add("PIL")
                assert node.module.split(".")[0] in known, path
        # transformers finds what to copy with a regular expression, also inside docstrings.
        relative = set(re.findall(r"^\s*from\s+\.(\S+)\s+import", path.read_text(), re.MULTILINE))
        assert relative <= {sibling.stem for sibling in MODELS.glob("*.py")}


CLEAN = (
    "import sys, json, torch\n"
    "sys.modules['hfattn'] = None  # as if it were not installed\n"
    "from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer, pipeline\n"
    "name = sys.argv[1]\n"
    "tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)  # unsaid, it would ask\n"
    "model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)\n"
    "assert 'transformers_modules' in type(model).__module__\n"
    "assert AutoConfig.from_pretrained(name, trust_remote_code=True).cell == model.config.cell\n"
    "base = AutoModel.from_pretrained(name, trust_remote_code=True)\n"
    "inputs = tokenizer(['to be', 'or'], padding=True, return_tensors='pt')\n"
    "logits = model(**inputs).logits\n"
    "torch.testing.assert_close(model.lm_head(base(**inputs).last_hidden_state), logits)\n"
    "writer = pipeline('text-generation', model=name, trust_remote_code=True, device='cpu')\n"
    "text = writer('to be', max_new_tokens=8, do_sample=False)[0]['generated_text']\n"
    "beams = model.generate(**inputs, max_new_tokens=5, num_beams=3, do_sample=False).tolist()\n"
    "tied = model.lm_head.weight is model.model.embed_tokens.weight\n"
    "torch.save({'logits': logits, 'weights': model.state_dict()}, sys.argv[2])\n"
    "model.save_pretrained(sys.argv[3])\n"
    "tokenizer.save_pretrained(sys.argv[3])\n"
    "print(json.dumps([text, beams, tied]))\n"
)


def clean_process(name: str, folder: Path, again: Path, **extra: str) -> tuple[list, dict]:
    extra["HF_MODULES_CACHE"] = str(folder / "modules")
    out = python(CLEAN, name, str(folder / "out.pt"), str(again), **extra)
    return json.loads(out.splitlines()[-1]), torch.load(folder / "out.pt")


@pytest.mark.parametrize(
    ("cell", "tied"), [("gru", False), ("lstm", True), ("elman", False), ("gru_reset_before", True), ("jordan", False)]
)
def test_a_saved_folder_loads_where_hfattn_is_not_installed(tmp_path: Path, cell: str, tied: bool) -> None:
    """Weights, logits, padding, beams, pipeline: equal. And what that process saves again loads again."""
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["to be or not to be\n\t"])
    config = CharRNNConfig(
        vocab_size=len(tokenizer), cell=cell, num_hidden_layers=2, embedding_size=12, hidden_size=12,
        tie_word_embeddings=tied, pad_token_id=0,
    )  # fmt: skip
    model = CharRNNForCausalLM(config).eval()
    folder = tmp_path / "repo"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    inputs = tokenizer(["to be", "or"], padding=True, return_tensors="pt")
    written = model.generate(**tokenizer("to be", return_tensors="pt"), max_new_tokens=8, do_sample=False)[0]
    text = tokenizer.decode(written, skip_special_tokens=True)
    beams = model.generate(**inputs, max_new_tokens=5, num_beams=3, do_sample=False).tolist()
    for name, again in ((folder, tmp_path / "again"), (tmp_path / "again", tmp_path / "third")):
        printed, saved = clean_process(str(name), tmp_path, again)
        assert printed == [text, beams, tied]
        torch.testing.assert_close(saved["logits"], model(**inputs).logits)
        for key, tensor in model.state_dict().items():
            assert torch.equal(saved["weights"][key], tensor)


def test_push_to_hub_makes_a_repository_that_loads(tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["to be or not to be"])
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), pad_token_id=0)).eval()
    model.save_pretrained(tmp_path / "folder")
    tokenizer.save_pretrained(tmp_path / "folder")
    push = (
        "import sys, hfattn\n"
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        "AutoModelForCausalLM.from_pretrained(sys.argv[1]).push_to_hub('me/writer')\n"
        "AutoTokenizer.from_pretrained(sys.argv[1]).push_to_hub('me/writer')\n"
    )
    with HubServer() as hub:
        client = hub.environment(tmp_path / "home")
        python(push, str(tmp_path / "folder"), **client)
        assert {
            "config.json", "model.safetensors", "tokenizer.json", "modeling_char_rnn.py", "configuration_char_rnn.py",
            "recurrent_cells.py", "recurrent_layers.py", "cache_recurrent.py", "strict_config.py",
        } <= set(hub.files("model", "me/writer"))  # fmt: skip
        (text, _, _), saved = clean_process("me/writer", tmp_path, tmp_path / "again", **client)
    inputs = tokenizer(["to be", "or"], padding=True, return_tensors="pt")
    torch.testing.assert_close(saved["logits"], model(**inputs).logits)
    assert text.startswith("to be")


# The distribution


def test_the_wheel_holds_recipes_and_cards(tmp_path: Path) -> None:
    done = run([sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "-w", tmp_path, ROOT])
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(site)
    listed = python(
        "from hfattn_cli import app\nfrom hfattn.resources import resource\nprint(resource('recipes'))\n"
        "app(['recipes', 'list'], standalone_mode=False)\n",
        PYTHONPATH=f"{site}{os.pathsep}",
    )
    assert listed.splitlines()[0] == str(site / "hfattn" / "resources" / "recipes")
    assert "quickstart" in listed
    assert (site / "hfattn" / "py.typed").exists()


def test_help_and_completion_import_neither_torch_nor_transformers() -> None:
    code = (
        "import sys\n"
        "from typer.main import get_command\n"
        "from typer.testing import CliRunner\n"
        "from hfattn_cli import app\n"
        "def walk(group, words):\n"
        "    assert CliRunner().invoke(app, [*words, '--help']).exit_code == 0, words\n"
        "    for name, command in getattr(group, 'commands', {}).items():\n"
        "        walk(command, [*words, name])\n"
        "walk(get_command(app), [])\n"
        "completion = {'_HFATTN_COMPLETE': 'complete_bash', 'COMP_WORDS': 'hfattn tra', 'COMP_CWORD': '1'}\n"
        "done = CliRunner().invoke(app, [], prog_name='hfattn', env=completion)\n"
        "assert done.output.split() == ['train', 'translate'], done.output\n"
        "assert CliRunner().invoke(app, ['--version']).exit_code == 0\n"
        "print(sorted({'hfattn', 'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))\n"
    )
    done = run_anew([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"

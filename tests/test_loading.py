"""Names of models: what is local, what is an id on the Hub, and one sentence for what is neither."""

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from commands import run_anew
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    BartConfig,
    GPT2Config,
    PreTrainedConfig,
    T5Config,
)

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, CharRNNConfig, CharRNNForCausalLM
from hfattn.errors import UserError
from hfattn.hub.inspection import inspect
from hfattn.hub_access import local_path, model_folder
from hfattn.loading import (
    ModelLocation,
    base_model_name,
    load_any_model,
    load_language_model,
    load_model,
    load_reading_model,
    load_tokenizer,
    load_translation_model,
    save_translator,
)
from hfattn.spaces.building import build_space
from hfattn.tokenizers import build_character_tokenizer


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("the network was used")

    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)


LOADERS: list[Callable[[str], Any]] = [
    load_any_model,
    load_language_model,
    load_reading_model,
    load_translation_model,
    inspect,
    model_folder,
    lambda name: base_model_name(ModelLocation(name=name)),
    lambda name: load_model(AutoModel, ModelLocation(name=name)),
    lambda name: load_tokenizer(ModelLocation(name=name)),
    lambda name: build_space("char_writer", Path("never"), {"writer": name}),
]


@pytest.mark.parametrize("name", ["runs/nope", "./nope", "../a/nope", "~/nope", "/no/such", "a/b/c", "user/--x"])
def test_what_can_only_be_a_path_is_refused_without_the_network_in_one_form(name: str, no_network: None) -> None:
    for load in LOADERS:
        with pytest.raises(UserError) as refused:
            load(name)
        assert str(refused.value).startswith(f"{name} was not found locally or on the Hub; give a model folder or the")
    with pytest.raises(
        UserError, match=r"was not found locally or on the Hub; give a file, a folder or the id of a dataset"
    ):
        local_path(name, "dataset")


def test_paths_ids_and_what_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "user").mkdir()
    (tmp_path / "notes.txt").touch()
    assert local_path("user/model") is None  # a folder "user" does not hide the models of user
    assert local_path("gpt2") is None
    assert local_path("user/texts", "dataset") is None
    assert local_path("~/notes.txt", "dataset") == tmp_path / "notes.txt"
    with pytest.raises(UserError, match=r"notes\.txt is a file; give a model folder"):
        local_path("notes.txt")
    assert local_path("user", "dataset") == Path("user")  # load_dataset reads folders too
    with pytest.raises(UserError, match=r"The folder user holds no model: config\.json is missing"):
        model_folder("user")
    with pytest.raises(UserError, match="An empty name was not found"):
        load_any_model(" ")


def test_a_model_that_needs_a_vector_is_not_for_commands(tmp_path: Path) -> None:
    tokenizer = build_character_tokenizer(["abc"])
    CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), conditioning_size=2)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"needs a vector for each text; use it in Python, with model\.generate"):
        load_language_model(str(tmp_path))


def test_translating_a_sentence_imports_nothing_that_publishes(tmp_path: Path) -> None:
    """A process that only uses a model loads neither cards nor recipes."""
    tokenizer = build_character_tokenizer(["abc"], ends=True)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = BahdanauConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=8, encoder_hidden_size=4, **ids)
    save_translator(tmp_path, BahdanauForConditionalGeneration(config), tokenizer)
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from hfattn_cli import app\n"
        f"done = CliRunner().invoke(app, ['translate', {str(tmp_path)!r}, 'abc'])\n"
        "assert done.exit_code == 0, (done.output, done.exception)\n"
        "print([name for name in sys.modules if name.startswith(('hfattn.hub.', 'hfattn.training'))])\n"
    )
    done = run_anew([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("kind", ["gpt2", "t5", "bart"])
def test_an_architecture_of_several_auto_classes_is_loaded(kind: str, tmp_path: Path) -> None:
    """GPT-2 and T5 are models for pretraining too, and BART is a masked language model too."""
    configs: dict[str, PreTrainedConfig] = {
        "gpt2": GPT2Config(vocab_size=9, n_embd=8, n_layer=1, n_head=2),
        "t5": T5Config(vocab_size=9, d_model=8, d_ff=8, num_layers=1),
        "bart": BartConfig(vocab_size=9, d_model=16, encoder_layers=1, decoder_layers=1),
    }
    wanted = AutoModelForCausalLM if kind == "gpt2" else AutoModelForSeq2SeqLM
    saved = wanted.from_config(configs[kind])
    saved.save_pretrained(tmp_path)
    build_character_tokenizer("The dog.").save_pretrained(tmp_path)
    load: list[Any] = [load_language_model, load_translation_model]
    right, other = load if kind == "gpt2" else reversed(load)
    assert type(right(str(tmp_path))[0]) is type(saved)
    with pytest.raises(UserError, match="is a language model" if kind == "gpt2" else "is a translator"):
        other(str(tmp_path))

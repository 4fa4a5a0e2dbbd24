"""The Spaces as the Hub runs them: hfattn is not installed, and users come over HTTP."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, environment, run
from gradio_client import Client
from gradio_client.exceptions import AppError
from huggingface_hub import SpaceCard
from transformers import PreTrainedTokenizerBase, set_seed

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.tokenizers import build_character_tokenizer

SPACE = ROOT / "spaces" / "char_writer"
LENGTH = 30
# Where hfattn is not installed: with each of the given models, or without one ("").
START = (
    "import os, runpy, sys\n"
    "sys.modules['hfattn'] = None\n"
    "path, *names = sys.argv[1:]\n"
    "for name in names:\n"
    "    os.environ['HFATTN_MODEL'] = name\n"
    "    try:\n"
    "        runpy.run_path(path, run_name='__main__')\n"
    "    except SystemExit as end:\n"
    "        print('exit code', end.code, file=sys.stderr, flush=True)\n"
)
SETTINGS = {"temperature": 0.8, "top_k": 0, "top_p": 1.0, "length": LENGTH, "seed": 0}


def start(log: Path, *names: str, **extra: str) -> subprocess.Popen[bytes]:
    modules = str(log.parent / "modules")
    with log.open("wb") as out:
        return subprocess.Popen(
            [sys.executable, "-c", START, str(SPACE / "app.py"), *names],
            env=environment(GRADIO_ANALYTICS_ENABLED="False", HF_MODULES_CACHE=modules, **extra),
            cwd=log.parent,
            stdout=out,
            stderr=subprocess.STDOUT,
        )


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> tuple[CharRNNForCausalLM, PreTrainedTokenizerBase, Path]:
    """A small model with random weights that tells prompts and settings apart, and its folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_character_tokenizer(["The quick brown fox jumps over the lazy dog.\n<>&"])
    torch.manual_seed(0)
    config = CharRNNConfig(vocab_size=len(tokenizer), cell="gru", embedding_size=12, hidden_size=24, pad_token_id=0)
    model = CharRNNForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(20)
        model.lm_head.weight.mul_(3)
        model.lm_head.bias[0] = -1e4  # padding is never written, as after training
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, folder


@pytest.fixture(scope="module")
def url(
    writer: tuple[CharRNNForCausalLM, PreTrainedTokenizerBase, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("space") / "log.txt"
    process = start(log, str(writer[2]), GRADIO_SERVER_NAME="127.0.0.1", GRADIO_SERVER_PORT=str(port))
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=5).close()
                break
            except OSError:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def user(url: str) -> Client:
    return Client(url, verbose=False)


def ask(user: Client, prompt: str, **settings: Any) -> str:
    return user.predict(prompt=prompt, **{**SETTINGS, **settings}, api_name="/write")


def test_the_text_grows_by_one_character_at_a_time(user: Client) -> None:
    job = user.submit(prompt="The fox", **SETTINGS, api_name="/write")
    text = job.result()
    assert len(text) == len("The fox") + LENGTH
    assert job.outputs() == [text[:length] for length in range(len("The fox"), len(text) + 1)]


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {}, {"seed": 7}, {"temperature": 1.5}, {"top_k": 3}, {"top_p": 0.6, "top_k": 9}],
    ids=str,
)
def test_the_text_is_that_of_generate(
    user: Client, writer: tuple[CharRNNForCausalLM, PreTrainedTokenizerBase, Path], settings: dict[str, Any]
) -> None:
    model, tokenizer, _ = writer
    chosen = {**SETTINGS, **settings}
    set_seed(chosen["seed"])
    sampling = {name: chosen[name] for name in ("temperature", "top_k", "top_p")} if chosen["temperature"] else {}
    ids = model.generate(
        **tokenizer("The ", return_tensors="pt"), do_sample=bool(sampling), max_new_tokens=LENGTH, **sampling
    )
    assert ask(user, "The ", **settings) == ask(user, "The ", **settings) == tokenizer.decode(ids[0])


def test_settings_and_seed_change_the_text(user: Client) -> None:
    texts = {ask(user, "The ", **settings) for settings in ({}, {"seed": 1}, {"temperature": 0}, {"temperature": 2})}
    assert len(texts) == 4


def test_two_users_at_once_get_their_own_texts(url: str, user: Client) -> None:
    prompts = ["The fox ", "<>&\n"]
    alone = [ask(user, prompt) for prompt in prompts]
    long = Client(url, verbose=False).submit(prompt=prompts[0], **{**SETTINGS, "length": 1000}, api_name="/write")
    while not long.outputs():
        time.sleep(0.01)
    assert ask(user, prompts[1]) == alone[1]
    assert not long.done()
    while len(long.outputs()) <= LENGTH:
        time.sleep(0.01)
    assert long.outputs()[LENGTH] == alone[0]
    long.cancel()


@pytest.mark.parametrize(
    ("prompt", "settings", "sentence"),
    [
        ("", {}, "The prompt is empty; type at least one character to begin with."),
        ("The ß", {}, "The model has never seen the character 'ß'; leave it out of the prompt."),
        ("The \u200b", {}, r"The model has never seen the character '\u200b'; leave it out of the prompt."),
        ("x" * 1001, {}, "The prompt is 1001 characters long; at most 1000 are allowed."),
        ("The", {"seed": None}, "The seed is missing; type a whole number."),
        ("The", {"length": 100_000}, "Value 100000 is greater than maximum value 1000."),
        ("The", {"temperature": -1}, "Value -1 is less than minimum value 0."),
    ],
)
def test_bad_input_is_answered_with_a_sentence(
    user: Client, prompt: str, settings: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(AppError) as caught:
        ask(user, prompt, **settings)
    assert str(caught.value) == sentence
    assert len(ask(user, "The", length=10)) == 13  # and the next request is served


def test_without_a_model_the_space_says_what_to_set(tmp_path: Path) -> None:
    variables = {"GRADIO_ANALYTICS_ENABLED": "False", "HF_MODULES_CACHE": str(tmp_path / "modules")}
    done = run([sys.executable, "-c", START, SPACE / "app.py", "runs/none", ""], cwd=tmp_path, **variables)
    assert done.returncode == 0, done.stderr
    not_loaded, code, not_set, other_code = done.stderr.splitlines()[-4:]
    assert not_loaded.startswith("error: HFATTN_MODEL=runs/none does not load as a language model (")
    assert not_set == "error: HFATTN_MODEL is not set; set it to a model's id on the Hub or to its local folder."
    assert code == other_code == "exit code 2"
    assert "Traceback" not in done.stderr


def test_the_card_is_valid_and_the_versions_are_the_tested_ones() -> None:
    data = SpaceCard.load(SPACE / "README.md").data
    assert (data.title, data.sdk, data.app_file, data.license) == ("Character writer", "gradio", "app.py", "apache-2.0")
    assert (SPACE / data.app_file).is_file()
    assert 0 < len(data.short_description) <= 60  # what the Hub admits
    tested = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"gradio=={data.sdk_version}" in tested
    assert data.sdk_version.count(".") == 2
    pins = (SPACE / "requirements.txt").read_text().splitlines()
    assert [pin.split("==")[0] for pin in pins] == ["torch", "transformers", "huggingface_hub"]
    assert set(pins) <= set(tested)

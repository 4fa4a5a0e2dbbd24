"""The demos as the Hub runs them: from a folder that holds them and the package, with users who come over HTTP.

SPACES_PYTHON names the interpreter of an environment with only what their requirements.txt name: ``make spaces``.
"""

import itertools
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from browser import browser as browser
from browser import visited
from commands import ROOT, run
from gradio_client import Client
from gradio_client.exceptions import AppError
from hub_server import HubServer
from huggingface_hub import SpaceCard, metadata_load
from playwright.sync_api import Browser, Route
from space_server import PYTHON
from transformers import PreTrainedTokenizerBase, set_seed
from typer.testing import CliRunner

from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.errors import UserError
from hfattn.explaining import hidden_units
from hfattn.hub import PushOptions
from hfattn.hub.manifest import repository_files
from hfattn.resources import load_recipe
from hfattn.spaces import BADGE, LANGUAGES, Texts, is_toy, language_of, load_folder
from hfattn.spaces.building import build_space, space_names
from hfattn.spaces.serving import check_space, push_space, running
from hfattn.spaces.settings import read_space
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import load_config
from hfattn_cli import app

LENGTH = 30
SETTINGS = {
    "temperature": 0.8, "top_k": 0, "top_p": 1.0, "length": LENGTH, "seed": 0, "color": "unit", "unit": 0
}  # fmt: skip
Writer = tuple[CharRNNForCausalLM, PreTrainedTokenizerBase, Path]


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """A small model with random weights that tells prompts and settings apart, and its folder."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer = build_character_tokenizer(["The quick brown fox jumps over the lazy dog.\n<>&"])
    torch.manual_seed(0)
    config = CharRNNConfig(vocab_size=len(tokenizer), cell="lstm", embedding_size=12, hidden_size=24, pad_token_id=0)
    model = CharRNNForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(20)
        model.lm_head.weight.mul_(30)
        model.lm_head.bias[0] = -1e4  # padding is never written, as after training
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, folder


@pytest.fixture(scope="module")
def built(writer: Writer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("spaces") / "writer"
    build_space("char_writer", folder, {"writer": str(writer[2])})
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A demo whose model is trained as it is built, in a few steps."""
    folder = tmp_path_factory.mktemp("toys")
    short = [f"--set=writer.training.{field}=4" for field in ("max_steps", "save_steps", "eval_steps")]
    command = [sys.executable, "-m", "hfattn", "space", "build", "char_writer", *short, "--output", folder / "writer"]
    done = run(command, HF_ASSETS_CACHE=str(folder / "assets"))
    assert done.returncode == 0, done.stderr
    assert "Toy models: writer. For a real one: hfattn train char_lm/strong " in done.stdout
    return folder / "writer"


@pytest.fixture(scope="module")
def url(built: Path) -> Iterator[str]:
    with running(built, PYTHON) as address:
        yield address


@pytest.fixture(scope="module")
def user(url: str) -> Client:
    return Client(url, verbose=False)


def ask(user: Client, prompt: str, **settings: Any) -> str:
    """The plain text of what is written."""
    return user.predict(prompt=prompt, **{**SETTINGS, **settings}, api_name="/write")[0]


# The character writer


def test_the_text_grows_a_few_times_a_second(user: Client) -> None:
    started = time.monotonic()
    job = user.submit(prompt="The fox", **{**SETTINGS, "length": 200}, api_name="/write")
    text, *_ = job.result()
    seconds = time.monotonic() - started
    texts = [output[0] for output in job.outputs()]
    assert texts[0] == "The fox"
    assert texts[-1] == text
    assert len(text) == len("The fox") + 200
    assert all(text.startswith(each) for each in texts)
    assert [len(each) for each in texts] == sorted(len(each) for each in texts)
    assert 5 < len(texts) <= 12 * seconds + 3


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0}, {}, {"seed": 7}, {"temperature": 1.5}, {"top_k": 3}, {"top_p": 0.6, "top_k": 9}],
    ids=str,
)
def test_the_text_is_that_of_generate(user: Client, writer: Writer, settings: dict[str, Any]) -> None:
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


def test_twenty_users_at_once_get_their_own_texts(url: str, user: Client) -> None:
    prompts = [("The fox ", "<>&\n", "dog", "T")[i % 4] for i in range(20)]
    alone = {prompt: ask(user, prompt) for prompt in set(prompts)}
    texts: list[str | None] = [None] * len(prompts)

    def write(place: int) -> None:
        texts[place] = ask(Client(url, verbose=False), prompts[place])

    threads = [threading.Thread(target=write, args=(place,)) for place in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [alone[prompt] for prompt in prompts]


def test_a_long_text_keeps_nobody_waiting(url: str, user: Client) -> None:
    alone = ask(user, "dog")
    long = Client(url, verbose=False).submit(prompt="The fox ", **{**SETTINGS, "length": 1000}, api_name="/write")
    while not long.outputs():
        time.sleep(0.01)
    assert ask(user, "dog") == alone
    assert not long.done()
    long.cancel()


def test_colors_are_those_of_the_units_and_of_surprise(user: Client, writer: Writer) -> None:
    """A character has the color of the state that said it, whether it is drawn as it is written or afterwards."""
    model, tokenizer, _ = writer
    text, written, bars = user.predict(prompt="The ", **{**SETTINGS, "unit": 5}, api_name="/write")
    again = user.predict(text=text, color="unit", unit=5, api_name="/recolor")
    assert written["text"] == again["text"] == text
    assert written["shades"].startswith(".." * len("The "))
    shades = re.findall("..", written["shades"])[len("The ") :]
    assert len(shades) == LENGTH
    assert re.findall("..", again["shades"])[-LENGTH:] == shades
    states = hidden_units(model, tokenizer, text).values[:, 5]
    signs = ["p" if state >= 0 else "n" for state in states[len("The ") - 1 : -1]]
    assert [shade[0] for shade in shades] == signs
    assert len(set(shades)) > 3
    shares = [[float(share) for share in row.split("\t")[1:]] for row in bars.split("\n")]
    assert len(shares) == 10
    assert shares == sorted(shares, key=lambda pair: -pair[0])
    assert 0 < sum(given for given, _ in shares) <= 100.5

    surprise = user.predict(text=text, color="surprise", unit=5, api_name="/recolor")
    ids = tokenizer(text, return_tensors="pt").input_ids
    bits = -model(ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0] / torch.log(torch.tensor(2.0))
    expected = ["s0", *(f"s{min(8, round(bit))}" for bit in bits.tolist())]
    assert re.findall("..", surprise["shades"]) == expected


def test_the_unit_that_follows_something_is_the_one_that_correlates_most(user: Client, writer: Writer) -> None:
    model, tokenizer, _ = writer
    text = ask(user, "The fox. ")
    unit, _, page = user.predict(text=text, followed="letters", api_name="/find")
    states = torch.tensor(hidden_units(model, tokenizer, text).values).double().T  # (U, T)
    letters = torch.tensor([float(character.isalpha()) for character in text]).double()
    expected = torch.corrcoef(torch.cat([letters[None], states]))[0, 1:].abs().argmax().item()
    assert (unit["value"] if isinstance(unit, dict) else unit) == expected
    assert f"Unit {expected}," in page["legend"]


@pytest.mark.parametrize(
    ("prompt", "settings", "sentence"),
    [
        ("", {}, "The prompt is empty; type at least one character."),
        ("The ß", {}, "The character 'ß' is not in the vocabulary of the model; remove it from the prompt."),
        ("The \u200b", {}, r"The character '\u200b' is not in the vocabulary of the model; remove it from the prompt."),
        ("x" * 1001, {}, "The prompt has 1001 characters; at most 1000 are allowed."),
        ("The", {"seed": None}, "A number is missing; fill in all number fields."),
        ("The", {"seed": 2**70}, f"Value {2**70} is greater than maximum value {2**32 - 1}."),
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


def test_a_sentence_is_in_the_reader_s_language(url: str) -> None:
    spanish = Client(url, verbose=False, headers={"Accept-Language": "es-MX,es;q=0.9,en;q=0.8"})
    with pytest.raises(AppError, match="El comienzo está vacío"):
        ask(spanish, "")


@pytest.mark.parametrize(("width", "language", "names"), [
    (1280, "en-US", ("Write", "Stop", "Seed", "Keep this seed", "Plain text")),
    (360, "es-ES", ("Escribir", "Parar", "Semilla", "Mantener esta semilla", "Texto sin colores")),
])  # fmt: skip
def test_in_a_browser(browser: Browser, url: str, width: int, language: str, names: tuple[str, ...]) -> None:
    write, stop, seed, keep, plain = names
    with visited(browser, url, language, width) as page:
        starts, stops = (page.get_by_role("button", name=name, exact=True) for name in (write, stop))
        at_rest = "document.getElementById('stop').disabled && !document.getElementById('start').disabled"
        writing = "!document.getElementById('stop').disabled && document.getElementById('start').disabled"
        written = page.locator("#paper .written")
        # A text is written before anybody asks; each one that follows has another seed, unless it is kept.
        page.wait_for_function("document.querySelectorAll('#paper i').length > 5")
        page.locator("input[type=number][max='1000']").fill("1000")
        seeds = [page.get_by_label(seed, exact=True).input_value()]
        page.get_by_text("The · 1.5", exact=True).click()  # an example stops it, and is written at once
        page.wait_for_function(f"document.querySelector('#seed input').value != {seeds[0]} && {writing}")
        page.wait_for_function("document.querySelectorAll('#next tr').length == 10")
        seeds.append(page.get_by_label(seed, exact=True).input_value())
        stops.click()
        page.wait_for_function(at_rest)
        page.get_by_label(keep).check()
        page.locator("textarea").first.fill("The fox")
        starts.click()
        page.wait_for_function("/^The fox[^]{54}/.test(document.querySelector('#paper .written').textContent)")
        stops.click()
        page.wait_for_function("document.getElementById('stop').disabled", timeout=1000)
        page.wait_for_function(at_rest)
        stopped = written.text_content()
        page.wait_for_timeout(1000)
        assert written.text_content() == stopped  # what came before has not arrived on top of it
        seeds.append(page.get_by_label(seed, exact=True).input_value())
        assert seeds[0] != seeds[1] == seeds[2]
        page.get_by_text(plain).click()
        page.wait_for_function("!document.querySelector('#paper i.prompt')")  # colored again as a whole
        paper = "document.querySelector('#paper .written').textContent"
        page.wait_for_function(f"[...document.querySelectorAll('textarea')].pop().value == {paper}", timeout=5000)


def test_a_text_can_be_stopped_once_the_server_has_begun_it(browser: Browser, url: str) -> None:
    late: list[Route] = []
    with visited(browser, url, "en-US", 1280) as page:
        page.wait_for_function("document.querySelector('#paper .written')?.textContent.length == 404", timeout=60_000)
        page.wait_for_function("!document.getElementById('start').disabled")
        start, stop = (page.get_by_role("button", name=name, exact=True) for name in ("Write", "Stop"))
        page.get_by_label("number input for Length").fill("1000")
        page.route("**/queue/join*", lambda route: late.append(route))  # a slow connection
        start.click()
        for _ in range(2):  # the request that draws a seed, and that for the text
            while not late:
                page.wait_for_timeout(50)
            assert stop.is_disabled()  # Gradio could not cancel it yet
            late.pop().continue_()
        page.unroute("**/queue/join*")
        stop.click()  # waits until it can be pressed
        page.wait_for_function("!document.getElementById('start').disabled")
        page.wait_for_timeout(1500)
        assert len(page.locator("#paper .written").inner_text()) < 1004


def test_a_long_text_does_not_keep_the_browser_busy(browser: Browser, url: str) -> None:
    with visited(browser, url, "en-US", 1280) as page:
        page.wait_for_function("document.querySelector('#paper .written')?.textContent.length == 404", timeout=60_000)
        page.get_by_label("number input for Length").fill("1000")
        page.evaluate(
            """() => { window.updates = 0; new MutationObserver(() => window.updates++).observe(
            document.querySelector('#paper .written'), {childList: true, subtree: true, characterData: true}); }"""
        )
        session = page.context.new_cdp_session(page)
        session.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})  # not waiting for the processor
        session.send("Performance.enable")
        session.send("Network.enable")
        received: list[int] = []
        session.on("Network.dataReceived", lambda event: received.append(event["dataLength"]))

        def script_seconds() -> float:
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(each["value"] for each in metrics if each["name"] == "ScriptDuration")

        before, started = script_seconds(), time.monotonic()
        page.get_by_role("button", name="Write", exact=True).click()
        page.wait_for_function("document.querySelector('#paper .written').textContent.length == 1004", timeout=120_000)
        page.wait_for_function("document.getElementById('stop').disabled")
        assert script_seconds() - before < 5
        assert page.evaluate("window.updates") <= 12 * (time.monotonic() - started) + 3
        assert sum(received) < 200_000


# All demos


def test_there_are_the_demos_that_the_documentation_names() -> None:
    assert space_names() == [
        "attention_explorer", "attention_lab", "char_writer", "image_lens", "semantic_search", "sentiment_lens"
    ]  # fmt: skip


@pytest.mark.parametrize("name", space_names())
def test_the_card_is_valid_and_the_versions_are_the_tested_ones(name: str) -> None:
    space = ROOT / "spaces" / name
    data = SpaceCard.load(space / "README.md").data
    assert (data.sdk, data.app_file, data.license) == ("gradio", "app.py", "apache-2.0")
    assert (space / data.app_file).is_file()
    assert 0 < len(data.short_description) <= 60  # what the Hub admits
    tested = (ROOT / "constraints.txt").read_text().splitlines()
    assert f"gradio=={data.sdk_version}" in tested
    assert data.sdk_version.count(".") == 2
    pins = (space / "requirements.txt").read_text().splitlines()
    assert {"torch", "transformers", "huggingface_hub"} <= {pin.split("==")[0] for pin in pins}
    assert {pin.lower() for pin in pins} <= {pin.lower() for pin in tested}
    texts = Texts(space / "texts.yaml").texts
    code = (space / "app.py").read_text()
    unused = [key for key in texts if key not in code and not any(f'"{part}_' in code for part in (key.split("_")[0],))]
    assert not unused


def test_a_space_is_pushed_as_it_was_built(built: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hfattn", "space", "push", built, "user/writer"]
    with HubServer() as hub:
        done = run(command, cwd=ROOT, **hub.environment(tmp_path))
        assert done.returncode == 0, done.stderr
        assert "Nothing was sent; add --execute" in done.stdout
        done = run([*command, "--execute"], cwd=ROOT, **hub.environment(tmp_path))
        assert done.returncode == 0, done.stderr
        there = hub.files("space", "user/writer")
    assert {name: (built / name).read_bytes() for name in repository_files(built)}.items() <= there.items()


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM], ids=lambda ends: ends.name)
def test_the_command_serves_a_built_space(built: Path, tmp_path: Path, ends: signal.Signals) -> None:
    """From another folder, until it is stopped; it prints the address when it answers, and leaves no process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hfattn", "space", "run", str(built), "--port", str(port)]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores Ctrl-C
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"Starting {built} ...\n"
        assert process.stdout.readline().startswith(f"Open http://127.0.0.1:{port} in a browser")
        urllib.request.urlopen(f"http://127.0.0.1:{port}/config", timeout=5).close()
        again = CliRunner().invoke(app, command[3:])
        assert (again.exit_code, again.stdout) == (2, "")
        assert f"Cannot listen on 127.0.0.1:{port}" in again.stderr
    finally:
        process.send_signal(ends)
        out, err = process.communicate(timeout=60)
    assert (out, err) == ("", "")
    with socket.socket() as free:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", port))


def test_what_keeps_a_space_from_being_pushed(built: Path, tmp_path: Path) -> None:
    for name, text, sentence in (
        ("requirements.txt", "torch\n", "does not pin torch; write torch==VERSION."),
        ("README.md", "# Nothing\n", "must contain sdk: gradio"),
        ("app.py", "raise SystemExit('error: no model')\n", "did not start; its last output: error: no model"),
        ("space.yaml", None, "is not a Space of hfattn"),
    ):
        broken = tmp_path / name
        shutil.copytree(built, broken)
        (broken / name).unlink()
        if text is not None:
            (broken / name).write_text(text)
        with pytest.raises(UserError, match=sentence):
            push_space(broken, "user/name", PushOptions(execute=True))


def test_a_build_is_refused_in_one_sentence_and_leaves_nothing(tmp_path: Path, writer: Writer) -> None:
    (tmp_path / "there").mkdir()
    for words, sentence in (
        (["char_writr"], "did you mean 'char_writer'?"),
        (["char_writer", "--model", "writr=x"], "did you mean 'writer'?"),
        (["char_writer", "--model", "writer"], "--model writer is not NAME=VALUE; write --model NAME=VALUE."),
        (["char_writer", "--model", "writer=runs/none/here"], "runs/none/here was not found locally or on the Hub"),
        (["char_writer", "--model", f"writer={tmp_path / 'there'}"], "config.json is missing"),
        (["char_writer", "--set", "other.training.max_steps=1"], "'other' is not a model of char_writer"),
        (["char_writer", "--set", "writer.training.max_step=1"], "The training of writer failed"),
    ):
        done = CliRunner().invoke(app, ["space", "build", *words, "--output", str(tmp_path / "new")])
        assert done.exit_code == 2, (words, done.stderr)
        assert sentence in done.stderr.splitlines()[-1]
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_where_a_model_comes_from(built: Path, writer: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable, then the id that the demo was built with, then its own folder."""
    assert load_folder("writer", built) == str(built / "models" / "writer")
    build_space("char_writer", tmp_path / "remote", {"writer": "user/writer"})
    assert load_folder("writer", tmp_path / "remote") == "user/writer"
    assert (metadata_load(tmp_path / "remote" / "README.md") or {})["models"] == ["user/writer"]
    assert not (tmp_path / "remote" / "models").exists()
    monkeypatch.setenv("HFATTN_MODEL", "user/other")
    assert load_folder("writer", built) == load_folder("writer", tmp_path / "remote") == "user/other"
    monkeypatch.delenv("HFATTN_MODEL")
    with pytest.raises(UserError, match="The model writer is missing: set HFATTN_MODEL to"):
        load_folder("writer", ROOT / "spaces" / "char_writer")


def test_a_toy_is_marked_and_is_not_pushed_by_mistake(
    toy: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = read_space(toy)["writer"]
    assert (model.toy, model.recipe, model.config) == (True, "char_lm", "quickstart")
    assert model.overrides["training.max_steps"] == "4"
    assert is_toy("writer", toy)
    assert not is_toy("writer", built)
    with pytest.raises(
        UserError, match=r"has toy models \(writer\): build it with real ones, hfattn space build NAME "
    ):
        push_space(toy, "user/writer")
    command = [sys.executable, "-m", "hfattn", "space", "push", toy, "user/writer", "--toy"]
    with HubServer() as hub:
        done = run(command, cwd=ROOT, **hub.environment(tmp_path))
    assert "Nothing was sent; add --execute" in done.stdout
    monkeypatch.setenv("HFATTN_MODEL", "user/other")
    assert not is_toy("writer", toy)


def test_a_toy_is_shown_as_one(browser: Browser, toy: Path, url: str) -> None:
    with running(toy, PYTHON) as of_a_toy:
        for language, (address, shown) in itertools.product(LANGUAGES, ((of_a_toy, 1), (url, 0))):
            with visited(browser, address, language, 390) as page:
                page.locator("h1").wait_for()
                assert page.locator("h1 .toy", has_text=BADGE[language]).count() == shown
                assert page.locator("p", has_text="Python").count() == shown


@pytest.mark.parametrize("name", space_names())
def test_what_trains_a_real_model_is_a_valid_configuration(name: str) -> None:
    for model in read_space(ROOT / "spaces" / name).values():
        config, *words = shlex.split(model.real)
        path = ROOT / "recipes" / f"{config}.yaml"
        recipe = load_recipe(path.parent / "train.py")
        recipe.validate(load_config(recipe.Config, path, words))


def test_texts_are_complete_and_found_by_language(tmp_path: Path) -> None:
    path = tmp_path / "texts.yaml"
    path.write_text(yaml.safe_dump({"a": {"en": "Hello {name}", "es": "Hola {name}"}}, sort_keys=False))
    texts = Texts(path)

    class Request:
        def __init__(self, accepted: str) -> None:
            self.headers = {"accept-language": accepted}

    for accepted, language in (
        ("es", "es"), ("es-ES,en;q=0.9", "es"), ("fr,en;q=0.5,es;q=0.7", "es"), ("de", "en"), ("", "en")
    ):  # fmt: skip
        assert language_of(Request(accepted)) == language
    assert texts.say(None, "a", name="you") == "Hello you"
    with pytest.raises(KeyError, match="no text 'b'"):
        texts("b")
    path.write_text(yaml.safe_dump({"a": {"en": "Hello"}}))
    with pytest.raises(ValueError, match=f"a needs a text for each of {', '.join(LANGUAGES)}"):
        Texts(path)


def test_check_space_accepts_a_built_one(built: Path) -> None:
    check_space(built)

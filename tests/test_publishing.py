"""From a recipe to the Hub and back: trained, verified, pushed, pulled where hfattn is not, and the same output."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
import yaml
from commands import ROOT, environment, printed_by_card, run_here
from hub_server import Hub
from huggingface_hub import HfApi, ModelCard, constants, parse_eval_result_entries
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tiny_models import TEXTS, tiny_captioner, tiny_language_model, tiny_sentence_encoder, with_tiny_models
from typer.testing import CliRunner

from hfattn.clean_process import MEASURED
from hfattn.errors import UserError
from hfattn.hub import CardConfig, PushOptions, push, verify, write_again, write_manifest
from hfattn.hub.card import check_card
from hfattn.hub.clean_run import CleanRun, Result, run_folder
from hfattn.hub.manifest import check_manifest, published_files, repository_files
from hfattn.hub.measured_scores import scores_of_translations
from hfattn.hub.measuring import Measurement, judge_measurement, plan_measurement
from hfattn.hub.stated import missing_statements
from hfattn.hub.templates import interval
from hfattn.training.command import parse_command
from hfattn.training.expected import SUFFIX, read_expected
from hfattn_cli import app

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("online")]

RUNS = {
    "writer": "char_lm/quickstart",
    "bahdanau": "translation/spa_eng_bahdanau",
    "vaswani": "translation/spa_eng_transformer",
    "reader": "classification/imdb_attention",
    "distilbert": "classification/sst2_distilbert",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, hub: Hub) -> dict[str, Path]:
    """A run of each family and of a DistilBERT, the tiny variants of their recipes; each has pushed itself."""
    folder = tmp_path_factory.mktemp("runs")
    finished = {}
    with pytest.MonkeyPatch.context() as patch:
        hub.take_over(patch, folder / "home")
        patch.setenv("ACCELERATE_USE_CPU", "true")
        for name, config in RUNS.items():
            path = ROOT / "recipes" / f"{config}.yaml"
            tiny = read_expected(path.with_name(path.stem + SUFFIX)).tiny.overrides
            words = with_tiny_models(tiny, tmp_path_factory.getbasetemp())
            finished[name] = folder / name
            to = ["--push_to", f"user/{name}", *(["--push_private"] if name == "reader" else [])]
            run_here(path.parent, patch, "--config", path, "--output_dir", folder / name, *to, *words)
    return finished


@pytest.fixture
def run(runs: dict[str, Path], tmp_path: Path) -> Path:
    """A copy of one run, to be spoiled."""
    return Path(shutil.copytree(runs["writer"], tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "logs")))


PULL = """
import contextlib, io, json, sys
sys.modules["hfattn"] = None
from huggingface_hub import hf_hub_download
from transformers import AutoConfig, pipeline

for name, (code, task, text, revision) in json.load(sys.stdin).items():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {})
    said = pipeline(task, model=name, trust_remote_code=True)([text])
    while isinstance(said, list):
        said = said[0]
    pinned = AutoConfig.from_pretrained(name, revision=revision, trust_remote_code=True)
    assert json.load(open(hf_hub_download(name, "results.json", revision=revision)))["recipe"]
    print(json.dumps([name, out.getvalue(), sorted(said), type(pinned).__module__.split(".")[0]]))
"""
TASKS = {
    "writer": ("text-generation", ["generated_text"]),
    "bahdanau": ("attn-translation", ["alignment", "score", "translation_text"]),
    "vaswani": ("attn-translation", ["alignment", "score", "translation_text"]),
    "reader": ("text-classification", ["label", "score"]),
    "distilbert": ("text-classification", ["label", "score"]),
}


def test_what_was_pushed_is_pulled_where_hfattn_is_not_and_says_the_same(
    runs: dict[str, Path], hub: Hub, tmp_path: Path
) -> None:
    orders = {}
    for name, folder in runs.items():
        there = hub.files("model", f"user/{name}")
        del there[".gitattributes"]
        card = there.pop("README.md").decode()
        assert card == (folder / "README.md").read_text().replace('model_id = "."', f'model_id = "user/{name}"')
        files = {path: (folder / path).read_bytes() for path in repository_files(folder)}
        assert there == {path: content for path, content in files.items() if path != "README.md"}
        assert hub.repos["model", f"user/{name}"].private == (name in ("reader", "distilbert"))  # of own data
        commits = list(hub.repos["model", f"user/{name}"].head("main").history())
        assert len(commits) == 2  # the Hub's own, and one for all files
        (code,) = re.findall(r"^```python\n(.*?)^```", card, re.DOTALL | re.MULTILINE)[:1]
        with safe_open(folder / "fingerprints.safetensors", "pt") as stored:
            text = json.loads(stored.metadata()["texts"])[0][0]
        orders[f"user/{name}"] = (code, TASKS[name][0], text, commits[0].oid)
    done = subprocess.run(
        [sys.executable, "-c", PULL],
        input=json.dumps(orders),
        env=environment(**hub.environment(tmp_path)),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        repo_id, printed, answered, module = json.loads(line)
        name = repo_id.removeprefix("user/")
        assert printed.strip() == printed_by_card(runs[name]).strip()
        assert answered == TASKS[name][1]
        assert module == ("transformers" if name == "distilbert" else "transformers_modules")
    assert len(done.stdout.splitlines()) == len(runs)


def test_a_pulled_folder_passes_verification(runs: dict[str, Path], hub: Hub, tmp_path: Path) -> None:
    """Its card loads the model from the Hub; verification loads it from the folder."""
    HfApi(endpoint=hub.url, token=hub.token).snapshot_download("user/reader", local_dir=tmp_path)
    assert 'model_id = "user/reader"' in (tmp_path / "README.md").read_text()
    report = verify(tmp_path, measure=[str(data_of("reader", runs))])
    assert report.passed, report
    (measured,) = (check for check in report.checks if check.name == MEASURED)
    assert measured.passed, measured
    assert re.match(r"\d+ scores of validation, test agree ", measured.detail)


# Scores that are measured again


def data_of(name: str, runs: dict[str, Path]) -> Path:
    """The file that a run was trained on, of which its results have the name only."""
    file = json.loads((runs[name] / "results.json").read_text())["configuration"]["data"]["dataset"]
    return next(path for path in runs[name].parent.parent.rglob(file) if path.is_file())


def measured_of(folder: Path, *places: str) -> tuple[Measurement, CleanRun]:
    results = json.loads((folder / "results.json").read_text())
    measurement = plan_measurement(results, places)
    assert isinstance(measurement, Measurement), measurement
    order = {"hides_hfattn": True, "loads": True, "batches": {}, "pipeline": None, "card_code": None}
    names = published_files(folder)
    return measurement, run_folder(folder, names, {**order, "measure": measurement.order}, known=True, trust=True)


def edited(measurement: Measurement, *place: str, value: Any) -> Measurement:
    results = json.loads(json.dumps(measurement.results))
    there = results
    for name in place[:-1]:
        there = there[name]
    there[place[-1]] = value
    return replace(measurement, results=results)


def test_translations_are_measured_again_without_their_references(runs: dict[str, Path]) -> None:
    """The sandbox gets no reference, the process that judges compares every score, and neither believes the folder."""
    measurement, done = measured_of(runs["bahdanau"])
    measurement = edited(measurement, "training", "precision", value="bfloat16")  # also where the CPU has none
    sent = json.dumps(measurement.order)
    assert not any(pair.target in sent for pairs in measurement.items.values() for pair in pairs)
    honest = judge_measurement(done, measurement)
    assert honest.passed, honest
    assert "scores of validation, test, unseen_forms agree within the tolerance for other versions" in honest.detail
    for place, value in (("test", "exact_match"), 0.8), (("validation", "chrf"), 80), (("test", "bleu"), 80):
        check = judge_measurement(done, edited(measurement, "metrics", *place, value=value))
        assert check.passed is False
        assert f"metrics.{'.'.join(place)} is" in check.detail
        assert f"{value} is recorded" in check.detail
    # Without mixed precision, each digit that a card shows counts, also those of slices.
    exact = edited(measurement, "training", "precision", value="float32")
    for part in measurement.parts:
        scores = scores_of_translations(measurement, part, done.results[MEASURED])
        exact = edited(exact, "metrics", part, value=exact.results["metrics"][part] | scores)
    assert "to the shown digits" in judge_measurement(done, exact).detail
    bleu = exact.results["metrics"]["unseen_forms"]["beam"]["bleu"]
    assert judge_measurement(done, edited(exact, "metrics", "unseen_forms", "beam", "bleu", value=bleu + 0.004)).passed
    assert not judge_measurement(
        done, edited(exact, "metrics", "unseen_forms", "beam", "bleu", value=bleu + 0.01)
    ).passed
    kind = min(exact.results["metrics"]["test"]["exact_match_by_kind"])
    assert not judge_measurement(done, edited(exact, "metrics", "test", "exact_match_by_kind", kind, value=0.9)).passed
    assert not judge_measurement(done, edited(measurement, "metrics", "test", value={})).passed
    for forged in ({}, {"translations": "all right"}, {"translations": {"validation": {"greedy": ["2001-01-01"]}}}):
        results = {**done.results, MEASURED: Result(forged, {})}
        assert not judge_measurement(replace(done, results=results), measurement).passed
    assert not judge_measurement(CleanRun(done.sandbox, True, {}, "it stopped"), measurement).passed


def test_only_data_that_the_user_names_are_read(runs: dict[str, Path], tmp_path: Path) -> None:
    """results.json may name any file; the data must be those of the training, and generated ones not too many."""
    results = json.loads((runs["reader"] / "results.json").read_text())
    file = data_of("reader", runs)
    results["configuration"]["data"]["dataset"] = str(file)
    told = plan_measurement(results, [])
    assert told == f"as recorded, not measured again: the data are {str(file)!r}; give them with --data"
    other = tmp_path / "other.tsv"
    lines = file.read_text().splitlines(keepends=True)
    other.write_text("".join([*lines[:-1], lines[1]]))
    with pytest.raises(AssertionError, match="give the data of the training"):
        plan_measurement(results, [str(other)])
    results["configuration"]["data"] |= {"test": "/etc/passwd", "split": [0.75, 0.25]}
    assert "give it with --data test=FILE" in str(plan_measurement(results, [str(file)]))
    results = json.loads((runs["vaswani"] / "results.json").read_text())
    results["configuration"]["data"]["examples"] = 10**9
    with pytest.raises(UserError, match="more than 1,000,000 examples"):
        plan_measurement(results, [])
    assert "only the scores of" in str(plan_measurement({"recipe": "../x", "metrics": {"test": {}}}, []))


# Verification


def facts(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_a_spoiled_model_is_found_out_in_a_clean_process(run: Path) -> None:
    """Weights, tokenizer and card's code that are not those of training; each is seen where a stranger stumbles."""
    weights = load_file(run / "model.safetensors")
    name = max(weights, key=lambda key: weights[key].numel())
    save_file({**weights, name: weights[name] + 0.1 * torch.randn_like(weights[name])}, run / "model.safetensors")
    tokenizer = json.loads((run / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = sorted(vocabulary, key=vocabulary.get)[5:7]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (run / "tokenizer.json").write_text(json.dumps(tokenizer))
    write_manifest(run)
    done = CliRunner().invoke(app, ["verify", str(run), "--json"])
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert not report["passed"]
    found = {check["name"]: check["detail"] for check in report["checks"] if check["passed"] is False}
    assert "differ by up to" in found["logits match"]
    assert "the code in the card prints what the card shows" in found
    assert "files are unchanged since the card was written" not in found


def test_code_that_is_missing_or_needs_a_network_is_found_out(run: Path) -> None:
    path = run / "modeling_char_rnn.py"
    path.write_text(path.read_text() + "\nimport socket\nsocket.create_connection(('127.0.0.1', 9))\n")
    with pytest.raises(UserError, match="does not pass hfattn verify") as refused:
        push(run, "user/other")
    for found in (
        "files are unchanged since the card was written: modeling_char_rnn.py has changed",
        "the model loads, each weight in its place: OSError: a folder is verified without a network",
        "the code in the card prints what the card shows: OSError: a folder is verified without a network",
    ):
        assert found in str(refused.value)


def test_weights_that_fit_no_place_or_lack_one_are_found_out(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    name = next(iter(weights))
    save_file(
        {**{key: value for key, value in weights.items() if key != name}, "surplus": torch.ones(1)},
        run / "model.safetensors",
        {"format": "pt"},
    )
    (found,) = (check for check in verify(run).checks if check.name == "the model loads, each weight in its place")
    assert not found.passed
    assert name in found.detail


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "config.json").write_text("{}"), "config.json has changed"),
        (lambda run: (run / "loss_curve.png").unlink(), "loss_curve.png is missing"),
        (lambda run: (run / "manifest.json").unlink(), "manifest.json is missing"),
    ],
)
def test_files_are_compared_with_the_manifest(run: Path, spoil: Callable[[Path], Any], message: str) -> None:
    check_manifest(run)
    spoil(run)
    with pytest.raises(AssertionError, match=message):
        check_manifest(run)


def test_a_folder_of_an_earlier_version_is_refused_in_one_sentence(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    results["configuration"]["data"]["source"] = results["configuration"]["data"].pop("dataset")
    (run / "results.json").write_text(json.dumps(results))
    with pytest.raises(UserError, match=r"earlier version of hfattn, .*train it again"):
        verify(run)


def test_files_that_the_manifest_does_not_list_stay_local(run: Path, hub: Hub) -> None:
    """Neither a pickle nor code that lies beside a published model is looked at, sent, or able to change what is."""
    (run / "attention.png").write_bytes(b"a picture")
    (run / "state.pkl").write_bytes(b"\x80\x04\x95")
    (run / "torch.py").write_text("raise SystemExit('this code ran')")
    report = verify(run)
    assert report.passed, report
    (advice,) = (check for check in report.checks if check.name == "the card states a license and a language")
    assert advice.passed is None
    assert f"hfattn card {run} --license apache-2.0" in advice.detail
    assert list(report.unpublished) == ["attention.png", "state.pkl", "torch.py"]
    assert "Not published: attention.png (not listed in manifest.json; hfattn card adds it)" in str(report)
    assert "Not published: state.pkl (never published, because reading it can run code)" in str(report)
    (run / "modeling_char_rnn.py").rename(run / "modeling_other.py")  # code that is needed, and not listed
    assert "modeling_char_rnn.py is missing" in verify(run).failures()
    (run / "manifest.json").write_text("[]")
    with pytest.raises(UserError, match="is not a manifest; write it again with hfattn card"):
        verify(run)


def test_a_manifest_reaches_no_file_outside_its_folder(run: Path) -> None:
    (run.parent / "secret.txt").write_text("secret")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"]["../secret.txt"] = {"bytes": 6, "sha256": ""}
    (run / "manifest.json").write_text(json.dumps(manifest))
    assert "../secret.txt" not in published_files(run)
    with pytest.raises(AssertionError, match=r"\.\./secret\.txt is missing"):
        check_manifest(run)


def test_a_number_that_was_typed_into_the_card_is_found_out_and_prose_is_not(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    path = run / "README.md"
    card = path.read_text()
    path.write_text(card + "\nA remark of my own.\n")
    check_card(run, results)
    shown = f"{results['metrics']['test']['nats_per_character']:.4f}"
    path.write_text(card.replace(shown, "0.0001"))
    with pytest.raises(AssertionError, match="was changed"):
        check_card(run, results)
    value = str(round(results["metrics"]["test"]["accuracy"], 6))
    path.write_text(card.replace(f"value: {value}", "value: 0.99"))
    with pytest.raises(AssertionError, match="metadata"):
        check_card(run, results)


# Cards


def test_every_card_is_complete_and_says_what_is_not_known(runs: dict[str, Path]) -> None:
    headings = [
        "Use",
        "Results",
        "Intended use and limits",
        "Data",
        "Training",
        "Architecture",
        "Code in this repository",
    ]
    for folder in runs.values():
        card = ModelCard.load(folder / "README.md")
        assert re.findall(r"^## (.*)$", card.text, re.MULTILINE) == [*headings, "Citation"]
        assert card.data.eval_results
        assert card.data.metrics
        for words in ("Energy: about", "nothing was measured", "SHA-256", "seed"):
            assert words in card.text
        assert "None" not in card.text.replace("`None`", "")
        assert not re.search(r"\n{4,}|[ \t]+\n\|", card.text)


def test_what_the_configuration_states_is_in_the_card_and_for_the_hub(run: Path) -> None:
    results = json.loads((run / "results.json").read_text())
    stated = {"language": ["en"], "license": "mit", "datasets": ["user/texts"], "data": "Of the documentation."}

    def written_for(source: str) -> Any:
        results["configuration"]["card"] = {**stated, "describes": source}
        (run / "results.json").write_text(json.dumps(results))
        done = CliRunner().invoke(app, ["card", str(run)])
        assert done.exit_code == 0, done.output
        return ModelCard.load(run / "README.md")

    other = written_for("texts of somebody else")
    assert (other.data.language, other.data.license, other.data.datasets) == (None, "mit", None)
    assert "Of the documentation." not in other.text
    task = {"id": "next character", "config": None, "split": "test"}
    results["dataset"] = {"id": "user/texts", "commit": "c" * 40, "tasks": []}
    card = written_for(results["configuration"]["data"]["dataset"])
    assert not (run / ".eval_results" / "hfattn.yaml").exists()  # the dataset is no benchmark
    results["dataset"]["tasks"].append(task)
    card = written_for(results["configuration"]["data"]["dataset"])
    assert (card.data.language, card.data.license, card.data.datasets) == (["en"], "mit", ["user/texts"])
    assert "Of the documentation." in card.text
    assert "not stated" not in card.text
    (path,) = (run / ".eval_results").glob("*.yaml")
    entries = parse_eval_result_entries(yaml.safe_load(path.read_text()))
    ((dataset, task_id, value),) = ((entry.dataset_id, entry.task_id, entry.value) for entry in entries)
    assert (dataset, task_id) == ("user/texts", "next character")
    assert value == round(results["metrics"]["test"]["bits_per_character"], 6)
    check_card(run, results)


def test_a_license_and_a_language_are_stated_afterwards(run: Path) -> None:
    words = ["--license", "Apache-2.0", "--language", "en,es", "--language", "ast"]
    done = CliRunner().invoke(app, ["card", str(run), *words])
    assert done.exit_code == 0, done.output
    card = ModelCard.load(run / "README.md")
    assert (card.data.license, card.data.language) == ("apache-2.0", ["en", "es", "ast"])
    assert not missing_statements(run / "README.md", run)
    check_card(run, json.loads((run / "results.json").read_text()))
    check_manifest(run)
    before = (run / "results.json").read_bytes()
    for words, message in (
        (["--license", "apache2"], "The Hub knows no license 'apache2'; write apache-2.0, or "),
        (["--language", "english"], "'english' is not a language code of ISO 639"),
        (["--language", "xx"], "'xx' is not a language code of ISO 639"),
    ):
        done = CliRunner().invoke(app, ["card", str(run), *words])
        assert done.exit_code == 2
        assert message in done.stderr
    assert (run / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("manifest.json", "[]", "manifest.json is not a manifest"),
        ("manifest.json", '{"files": {"config.json": 1}}', "manifest.json is not a manifest"),
        ("results.json", "[]", "results.json is not an object of fields"),
        ("README.md", "---\ntags: !!python/object/apply:os.getcwd []\n---\n", "README.md cannot be read"),
        ("README.md", "---\ntags: [\n---\n", "README.md cannot be read"),
        ("pipe.py", None, "pipe.py is neither a file nor a folder"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(run: Path, name: str, content: str | None, message: str) -> None:
    if content is None:
        os.mkfifo(run / name)
    else:
        (run / name).write_text(content)
    commands = [["verify", str(run)], ["push", str(run), "user/unreadable"]]
    for words in [*commands, *([] if name in ("manifest.json", "README.md") else [["card", str(run)]])]:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2, (done.output, done.exception)
        assert message in " ".join(done.output.split()), done.output


def test_old_code_is_replaced_by_that_of_this_version(run: Path, hub: Hub) -> None:
    """Of a folder when that is asked for, and of a repository by a pull request; the weights stay as they are."""
    weights, current = (run / "model.safetensors").read_bytes(), (run / "modeling_char_rnn.py").read_bytes()
    (run / "modeling_char_rnn.py").write_bytes(current + b"\nOLD = True\n")
    (run / "removed.py").write_text("OLD = True\n")
    write_again(run)
    old = {name: (run / name).read_bytes() for name in repository_files(run)}
    hub.put("model", "user/old", old)
    main = hub.files("model", "user/old")

    def refresh(*words: str) -> str:
        done = CliRunner().invoke(app, ["refresh", *words])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    assert re.search(
        r"changed +modeling_char_rnn\.py\n(.*\n)*deleted +removed\.py\nNothing was changed in", refresh(str(run))
    )
    assert {name: (run / name).read_bytes() for name in repository_files(run)} == old
    assert re.search(r"Pushed to user/old: \S+/discussions/1", refresh("user/old", "--execute"))
    assert hub.files("model", "user/old") == main
    proposed = hub.files("model", "user/old", "refs/pr/1")
    assert proposed["modeling_char_rnn.py"] == current
    assert proposed["model.safetensors"] == weights
    assert "removed.py" not in proposed
    assert hashlib.sha256(current).hexdigest() in proposed["README.md"].decode()


def test_the_interval_is_wilsons() -> None:
    """Beside the values of Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29."""
    published = {(81, 263): "0.2553 – 0.3662", (15, 148): "0.0624 – 0.1605", (0, 20): "0.0000 – 0.1611"}
    for (right, n), expected in published.items():
        assert interval(right / n, n) == expected
    assert interval(1 / 29, 29) == "0.0061 – 0.1718"


# Pushing


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that is not a model, so that pushing it needs no clean process; one file goes by LFS."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Numbers\n")
    (folder / "train.parquet").write_bytes(os.urandom(2048))  # the Hub has no such content yet
    return folder


def push_data(folder: Path, name: str, **options: Any) -> Any:
    return push(folder, name, PushOptions(**{"execute": True, **options}), repo_type="dataset")


def test_a_dry_run_tells_all_and_sends_nothing(data: Path, hub: Hub) -> None:
    hub.requests.clear()
    plan = push_data(data, "user/dry", execute=False)
    assert {request.method for request in hub.requests} <= {"GET", "HEAD"}
    assert ("dataset", "user/dry") not in hub.repos
    said = str(plan)
    assert re.search(r"new +\d+ B +README.md", said)
    assert "2.0 kB  train.parquet" in said
    assert "a new repository of 2.1 kB. Nothing was sent; add --execute to push." in said


def test_one_commit_then_none_then_the_difference(data: Path, hub: Hub) -> None:
    first = push_data(data, "user/steps")
    repo = hub.repos["dataset", "user/steps"]
    assert first.url.endswith(repo.head("main").oid)
    hub.requests.clear()
    again = push_data(data, "user/steps")
    assert again.nothing_to_do
    assert "is up to date" in str(again)
    assert "commit" not in [request.endpoint for request in hub.requests]
    (data / "README.md").write_text("---\nlicense: mit\n---\n# More numbers\n")
    (data / "train.parquet").rename(data / "test.parquet")
    plan = push_data(data, "user/steps")
    assert (list(plan.added), list(plan.changed), plan.deleted) == (["test.parquet"], ["README.md"], ["train.parquet"])
    assert set(hub.files("dataset", "user/steps")) == {".gitattributes", "README.md", "test.parquet"}
    assert len(list(repo.head("main").history())) == 3


def test_what_somebody_else_committed_is_not_overwritten_silently(data: Path, hub: Hub) -> None:
    push_data(data, "user/shared")
    theirs = hub.put("dataset", "user/shared", {"README.md": b"theirs"})
    (data / "README.md").write_text("mine")
    with pytest.raises(UserError, match=rf"was not made from this folder \({theirs[:7]}: 'Put files'\)"):
        push_data(data, "user/shared")
    assert hub.files("dataset", "user/shared")["README.md"] == b"theirs"
    push_data(data, "user/shared", over=theirs[:7])
    assert hub.files("dataset", "user/shared")["README.md"] == b"mine"


def test_branches_and_pull_requests_leave_main_alone(data: Path, hub: Hub) -> None:
    push_data(data, "user/lines")
    main = hub.repos["dataset", "user/lines"].head("main").oid
    (data / "more.txt").write_text("more")
    push_data(data, "user/lines", branch="side")
    assert "more.txt" in hub.files("dataset", "user/lines", "side")
    plan = push_data(data, "user/lines", pr=True)
    assert "discussions" in plan.url
    assert hub.repos["dataset", "user/lines"].head("main").oid == main


ON_THE_WAY = ["repo_info", "preupload", "lfs_batch", "lfs_upload", "lfs_verify", "create_repo", "commit", "tree"]


@pytest.mark.parametrize("kind", ["drop", "500", "lost", "429"])
@pytest.mark.parametrize("endpoint", ON_THE_WAY)
def test_after_a_fault_the_same_push_makes_it_right(
    data: Path, hub: Hub, endpoint: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong and wherever: the repository is as it was or as it should be, once more makes it right."""
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _: None)
    name = f"user/fault-{endpoint}-{kind}".replace("_", "-")
    hub.fault(endpoint, kind, times=20)
    try:
        push_data(data, name)
    except UserError as error:
        said = str(error)
    else:
        said = "try again"  # the client has tried again by itself
    assert "try again" in said
    assert hub.token not in said
    hub.faults.clear()
    if ("dataset", name) in hub.repos:
        assert set(hub.files("dataset", name)) in ({".gitattributes"}, {".gitattributes", "README.md", "train.parquet"})
    push_data(data, name)
    there = hub.files("dataset", name)
    assert all(there[path.name] == path.read_bytes() for path in data.iterdir() if path.is_file())
    assert len(list(hub.repos["dataset", name].head("main").history())) == 2


def test_what_arrives_broken_is_noticed(data: Path, hub: Hub) -> None:
    hub.fault("lfs_upload", "corrupt", times=20)
    with pytest.raises(UserError):
        push_data(data, "user/broken")
    hub.faults.clear()
    assert "train.parquet" not in hub.files("dataset", "user/broken")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("user/a b", "allows no repository named 'user/a b'"),
        ("name", "does not name the owner of the repository; write USER/name"),
        ("user/--x", "allows no repository named"),
    ],
)
def test_a_name_that_is_not_allowed(data: Path, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        push_data(data, name)


def test_without_a_token_or_with_one_that_may_not_write(data: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push_data(data, "user/there")
    monkeypatch.setenv("HF_TOKEN", hub.read_token)
    with pytest.raises(UserError, match="This token can only read; create one with the role 'write'") as refused:
        push_data(data, "user/refused")
    assert hub.read_token not in str(refused.value)
    with pytest.raises(UserError, match="does not let this token use user/there"):
        push_data(data, "user/there")
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(UserError, match="does not know this token"):
        push_data(data, "user/refused")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(data / "none"))
    with pytest.raises(UserError, match="There is no token for the Hub on this computer; log in with: hf auth login"):
        push_data(data, "user/refused")
    assert ("dataset", "user/refused") not in hub.repos


@pytest.mark.parametrize("name", ["refused", "stranger/name", "readers/name", "user/public"])
def test_a_training_that_could_not_push_does_not_start(
    name: str, hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ROOT / "recipes" / "char_lm" / "quickstart.yaml"
    if name == "refused":
        monkeypatch.setenv("HF_TOKEN", hub.read_token)
    if name == "user/public":
        hub.put("model", name, {"a": b"1"})
    repo_id = name if "/" in name else f"user/{name}"
    words = ["--config", str(config), "--output_dir", str(tmp_path / "run"), "--push_to", repo_id, "--push_private"]
    said = {
        "refused": "This token can only read",
        "stranger/name": "stranger is neither user, whose token this is, nor an organization of user; write user/name",
        "readers/name": "In readers, user can only read",
        "user/public": "user/public is public, and only a new repository can be made private",
    }
    with pytest.raises(UserError, match=said[name]):
        parse_command("char_lm", "", ["train.py", *words])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("endpoint", ["create_repo", "preupload", "lfs_batch", "lfs_upload", "commit"])
def test_a_full_quota_is_one_sentence(data: Path, hub: Hub, endpoint: str) -> None:
    hub.fault(endpoint, "quota", times=20)
    with pytest.raises(UserError, match=r"The Hub has no space left for this account .*; free some, and try again"):
        push_data(data, f"user/full-{endpoint.replace('_', '-')}")
    hub.faults.clear()


def test_who_can_see_the_result_is_said_before_it_is_sent(data: Path, hub: Hub) -> None:
    said = {
        ("user/seen", False): "everyone (public)",
        ("user/seen", True): "only you, user (private)",
        ("team/seen", True): "the members of team (private)",
        ("team/seen", False): "everyone, unless the settings of team make new repositories private",
    }
    for (name, private), visible_to in said.items():
        plan = push_data(data, name, private=private, execute=False)
        assert plan.visible_to == visible_to
        assert f"Visible to: {visible_to}" in str(plan)
    push_data(data, "user/seen")
    with pytest.raises(UserError, match="user/seen is public, and only a new repository can be made private"):
        push_data(data, "user/seen", private=True, execute=False)
    push_data(data, "team/seen", private=True)
    assert push_data(data, "team/seen", private=True).visible_to == "the members of team (private)"


def test_after_a_lost_answer_this_push_and_the_next_one_end_in_peace(data: Path, hub: Hub) -> None:
    push_data(data, "user/lost")
    (data / "README.md").write_text("---\nlicense: mit\n---\n# More numbers\n")
    hub.fault("commit", "lost", times=20)
    with pytest.raises(UserError, match="try again"):
        push_data(data, "user/lost")
    hub.faults.clear()
    assert push_data(data, "user/lost").nothing_to_do
    (data / "README.md").write_text("---\nlicense: mit\n---\n# Numbers again\n")
    assert list(push_data(data, "user/lost").changed) == ["README.md"]
    assert len(list(hub.repos["dataset", "user/lost"].head("main").history())) == 4


def test_files_of_a_public_repository_stay_if_they_are_kept(data: Path, hub: Hub) -> None:
    commit = hub.put("dataset", "user/open", {"notes.txt": b"of the owner\n", "train.csv": b"text\n"})
    plan = push_data(data, "user/open", keep=True, over=commit)
    assert plan.visible_to == "everyone (public)"
    assert plan.deleted == []
    there = hub.files("dataset", "user/open")
    assert there["notes.txt"] == b"of the owner\n"
    assert there.keys() >= {*plan.added, *plan.changed}
    assert push_data(data, "user/open", keep=True).nothing_to_do
    assert push_data(data, "user/open", execute=False).deleted == ["notes.txt", "train.csv"]
    with pytest.raises(UserError, match="user/open is public, and only a new repository can be made private"):
        push_data(data, "user/open", keep=True, private=True)


def test_after_a_lost_answer_no_second_pull_request_is_opened(data: Path, hub: Hub) -> None:
    push_data(data, "user/proposed", execute=True)
    (data / "more.csv").write_text("text\n")
    hub.fault("commit", "lost")
    with pytest.raises(UserError, match="try again"):
        push_data(data, "user/proposed", execute=True, pr=True)
    address = f"{hub.url}/datasets/user/proposed/discussions/1"
    assert push_data(data, "user/proposed", execute=True, pr=True).url == address
    assert str(push_data(data, "user/proposed", execute=True, pr=True)).endswith(address)
    (data / "more.csv").write_text("another text\n")
    assert push_data(data, "user/proposed", execute=True, pr=True).url == f"{address[:-1]}2"


def test_a_branch_is_made_also_if_nothing_changed(data: Path, hub: Hub) -> None:
    push_data(data, "user/branches")
    assert "would make a new branch of 0 B" in str(push_data(data, "user/branches", branch="v1", execute=False))
    plan = push_data(data, "user/branches", branch="v1")
    assert "Pushed to user/branches (v1): a new branch, with the files of main" in str(plan)
    branches = hub.repos["dataset", "user/branches"].branches
    assert branches["v1"] == branches["main"]
    assert push_data(data, "user/branches", branch="v1").nothing_to_do


def test_a_tag_names_the_commit_and_is_never_moved(data: Path, hub: Hub) -> None:
    plan = push_data(data, "user/tagged", tag="v1", message="The first numbers")
    repo = hub.repos["dataset", "user/tagged"]
    assert repo.tags["v1"] == repo.head("main")
    assert repo.head("main").title == "The first numbers"
    assert "Pushed to user/tagged, tagged v1:" in str(plan)
    push_data(data, "user/tagged", tag="v1")  # as it is already
    push_data(data, "user/tagged", tag="v1.0")  # without a commit
    assert repo.tags["v1.0"] == repo.head("main")
    (data / "README.md").write_text("---\nlicense: mit\n---\n# More numbers\n")
    before = repo.head("main")
    with pytest.raises(UserError, match=rf"has a tag v1 already, at commit {before.oid[:7]}; choose another name"):
        push_data(data, "user/tagged", tag="v1")
    assert repo.head("main") == before
    with pytest.raises(UserError, match="leave out --tag or --pr"):
        push_data(data, "user/tagged", tag="v2", pr=True)


def test_other_formats_are_pushed_if_asked_for_and_pickles_never(data: Path, hub: Hub) -> None:
    (data / "train.log").write_text("step 1")
    (data / "state.pkl").write_bytes(b"")
    (data / "x\x1b[31m.md").write_text("text")
    plan = push_data(data, "user/formats", execute=False)
    assert "train.log (its format is published only if asked for: --include 'train.log')" in str(plan)
    assert "\x1b" not in str(plan)
    assert "x\\x1b[31m.md" in str(plan)
    assert push_data(data, "user/formats", include=("*.log",), execute=False).added["train.log"] == 6
    with pytest.raises(UserError, match=r"--include '\*\.lgo' matches no file"):
        push_data(data, "user/formats", include=("*.lgo",))
    assert "Warning: The card states no language: write it at the head of" in str(plan)
    with pytest.raises(UserError, match=r"was not pushed: state\.pkl is a pickle, which runs code"):
        push_data(data, "user/formats", include=("*.pkl",))
    (data / "train.log").write_text("HF_TOKEN=hf_" + "x1Y2" * 8)
    with pytest.raises(UserError, match=r"train\.log contains what looks like a token or key \(Hugging Face\)"):
        push_data(data, "user/formats", include=("*.log",))
    assert ("dataset", "user/formats") not in hub.repos


def test_what_changes_after_it_was_checked_is_not_sent(data: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request of a push comes after the checks: a process that writes to the folder by then is too late."""
    before = {path.name: path.read_bytes() for path in data.iterdir()}

    repo_info = HfApi.repo_info

    def changed(*words: Any, **options: Any) -> Any:
        (data / "train.parquet").write_bytes(b"other numbers")
        (data / "new.txt").write_text("hf_" + "x1Y2" * 8)
        return repo_info(*words, **options)

    monkeypatch.setattr(HfApi, "repo_info", changed)
    push_data(data, "user/changing")
    there = hub.files("dataset", "user/changing")
    assert {name: there[name] for name in before} == before
    assert "new.txt" not in there


def test_a_model_is_no_data_set_and_the_reverse(run: Path, data: Path) -> None:
    with pytest.raises(UserError, match="is the folder of a model; push it with hfattn push"):
        push_data(run, "user/mixed")
    with pytest.raises(UserError, match="is the folder of a data set; push it with hfattn data push"):
        push(data, "user/mixed")


def test_included_files_become_part_of_a_model(run: Path, hub: Hub, tmp_path: Path) -> None:
    (run / "train.log").write_text("step 1")
    words = ["--include", "*.log", "--tag", "v1", "--execute", "--json"]
    done = CliRunner().invoke(app, ["push", str(run), "user/included", *words])
    assert done.exit_code == 0, done.output
    plan = json.loads(done.stdout)
    assert plan["added"]["train.log"] == 6
    assert plan["executed"]
    assert plan["visible_to"] == "everyone (public)"
    assert any("states no license" in each for each in plan["warnings"])
    there = hub.files("model", "user/included")
    assert json.loads(there["manifest.json"])["files"]["train.log"] == facts(run / "train.log")
    card = there["README.md"].decode()
    assert 'model_id = "user/included"' in card
    assert 'from_pretrained(model_id, revision="v1", trust_remote_code=True)' in card
    assert "train.log" not in json.loads((run / "manifest.json").read_text())["files"]


def test_a_dry_run_needs_no_token(data: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(data / "none"))
    hub.requests.clear()
    plan = push_data(data, "user/refused", execute=False)
    assert plan.added == {path.name: path.stat().st_size for path in data.iterdir()}
    assert "A push would send 2.1 kB to user/refused. Nothing was sent, and without a token" in str(plan)
    assert not hub.requests
    with pytest.raises(UserError, match="does not name the owner"):
        push_data(data, "refused", execute=False)


def test_a_token_in_a_file_is_not_pushed(data: Path, hub: Hub) -> None:
    (data / "notes.txt").write_text("hf_" + "x1Y2" * 8)
    with pytest.raises(UserError, match=r"notes\.txt contains what looks like a token or key \(Hugging Face\)"):
        push_data(data, "user/secret")
    assert ("dataset", "user/secret") not in hub.repos


# The command line


def commands(group: Any, name: str = "hfattn") -> Iterator[str]:
    for word, command in group.commands.items():
        yield from commands(command, f"{name} {word}") if hasattr(command, "commands") else [f"{name} {word}"]


def test_every_command_has_an_example_that_runs(
    runs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some are run elsewhere, on what they need: by the test of the page that holds them, or by tests of their own."""
    (tmp_path / "runs").mkdir()
    for name, folder in {
        "dates": runs["bahdanau"],
        "text": runs["writer"],
        "reviews": runs["distilbert"],
        **runs,
    }.items():
        shutil.copytree(folder, tmp_path / "runs" / name, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    (tmp_path / "recipes").symlink_to(ROOT / "recipes")
    (tmp_path / "my.txt").write_text("The class of the function is a string. " * 40)
    (tmp_path / "pairs.tsv").write_text("22 nov 1794\t1794-11-22\n16-May-2060\t2060-05-16\n")
    (tmp_path / "dates.txt").write_text("22 nov 1794\n16-May-2060\n")
    (tmp_path / "tickets.csv").write_text("message,intent\n" + "where is my card,card\nI want my money,refund\n" * 5)
    (tmp_path / "vectors.txt").write_text("man 1 0\nwoman 0 1\nking 2 1\nqueen 1 2\n")
    (tmp_path / "questions.txt").write_text(": family\nman woman king queen\n")
    tiny_captioner(tmp_path / "runs" / "captions")
    tiny_sentence_encoder(tmp_path / "runs" / "sentences")
    tiny_language_model(tmp_path / "runs" / "causal_lm-wikitext2_bilm", TEXTS, both=True)
    (tmp_path / "sentences.txt").write_text("The little dog was happy.\nWho wrote the book?\nYou were right.\n")
    (tmp_path / "photos").mkdir()
    for image in ("picture.png", "photos/flower.png"):
        Image.new("RGB", (16, 16), "red").save(tmp_path / image)
    monkeypatch.chdir(tmp_path)
    for command in commands(typer.main.get_command(app)):
        words = command.split()[1:]
        help_text = " ".join(CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output.split())
        example = re.search(rf"Example: ({command}.*?) (Arguments|Options):", help_text)
        assert example, command
        pages = {"convert": "convert", **dict.fromkeys(("verify", "push", "reproduce"), "publishing")}
        page = pages.get(" ".join(words))
        if page is not None:
            assert f"{example[1]}\n" in (ROOT / "docs" / f"{page}.md").read_text()
        elif words[-1] not in ("soup", "tune", "prompt") and words not in (["space", "run"], ["space", "push"]):
            done = CliRunner().invoke(app, shlex.split(example[1])[1:])
            assert done.exit_code == 0, (example[1], done.output, done.exception)


def quickstart_commands() -> list[str]:
    """The commands of ``make quickstart`` that use the trained model, without a text of one's own."""
    makefile = (ROOT / "Makefile").read_text()
    lines = re.findall(r"^\t\$\(BIN\)/(hfattn \S+ runs/dates .*)$", makefile, re.MULTILINE)
    return [re.sub(r"\$\$\{TEXT:-(.*?)\}", r"\1", line).replace(' $${TEXT:+"$$TEXT"}', "") for line in lines]


def test_the_page_on_publishing_after_the_quickstart(
    runs: dict[str, Path], tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs["bahdanau"], tmp_path / "runs" / "dates", ignore=shutil.ignore_patterns("checkpoints", "logs"))
    monkeypatch.chdir(tmp_path)
    block = re.findall(r"```sh\n(.*?)```", (ROOT / "docs" / "publishing.md").read_text(), re.DOTALL)[0]
    quickstart = quickstart_commands()
    assert [command.split()[1] for command in quickstart] == ["translate", "attend", "attend"]
    for command in [*quickstart, *block.strip().splitlines()]:
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, (command, done.output)
    assert hub.repos["model", "user/dates"].private
    made = {"attention.html", "attention.png"}
    assert all((tmp_path / "runs" / "dates" / name).is_file() for name in made)
    assert not made & hub.files("model", "user/dates").keys()
    assert "```sh\nhfattn push runs/dates user/dates\n```" in (ROOT / "docs" / "tour.md").read_text()
    (section,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "docs" / "publishing.md").read_text(), re.DOTALL)
    CardConfig(**yaml.safe_load(section)["card"])


def test_json_is_for_programs(run: Path, tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("The class of the function is a string. " * 40)
    done = CliRunner().invoke(app, ["evaluate", str(run), str(tmp_path / "my.txt"), "--json"])
    scores = json.loads(done.stdout)
    again = CliRunner().invoke(app, ["score", str(run), str(tmp_path / "my.txt")])
    assert f"{scores['nats_per_character']:.4f}" in again.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "translation/nothing"], "The configuration translation/nothing was not found; hfattn recipes list"),
        (["train", "--accelerate", "no.yaml", "translation/dates"], "The file no.yaml was not found"),
        (["verify", "nowhere"], "nowhere was not found"),
        (["push", "nowhere", "user/name"], "nowhere was not found"),
        (["card", "nowhere"], "nowhere was not found"),
        (["evaluate", "runs/nowhere", "x.tsv"], "runs/nowhere was not found locally or on the Hub"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1

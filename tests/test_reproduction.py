"""A recorded run that is trained again: to the byte, within a tolerance that is stated, or not."""

import hashlib
import json
import math
import re
import shlex
import shutil
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import ROOT, run, train_here, written
from hub_server import Hub
from huggingface_hub import HfApi
from keys import make_key
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from hfattn.errors import INTERRUPTED, UserError
from hfattn.hub.card import check_card
from hfattn.hub.fetching import current_commit, model_files
from hfattn.hub.manifest import published_files
from hfattn.hub.push import PushOptions, push
from hfattn.hub.statements import valid_statements, with_statements
from hfattn.reproduction import EXACT, NOT, WITHIN, compare, plan_reproduction, propose_statement, train_again
from hfattn.training.tolerances import SeedTolerances
from hfattn_cli import app

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("online")]

TINY = ("--data.examples", 300, "--data.evaluation_examples", 20, "--training.max_steps", 4)
STEPS = ("--training.eval_steps", 4, "--training.save_steps", 4, "--sample.alignments", 1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reproduction")
    recipe = ROOT / "recipes" / "translation"
    config = Path(shutil.copy(recipe / "dates.yaml", folder))
    train_here(recipe, config, *TINY, *STEPS, "--training.report_to", "none", to="dates")
    shutil.rmtree(folder / "dates" / "checkpoints")
    return folder / "dates"


@pytest.fixture
def record(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "record"))


def edit(record: Path, *place: str, value: Any) -> None:
    path = record / "results.json"
    results = json.loads(path.read_text())
    there = results
    for name in place[:-1]:
        there = there[name]
    if value is None:
        del there[place[-1]]
    else:
        there[place[-1]] = value
    path.write_text(json.dumps(results))


def spoil_weights(record: Path) -> None:
    weights = load_file(record / "model.safetensors")
    name = max(weights, key=lambda key: weights[key].numel())
    save_file({**weights, name: weights[name] + 1e-3}, record / "model.safetensors", {"format": "pt"})


def spoil(record: Path, name: str, value: float) -> None:
    """Other weights, and another score of the test."""
    spoil_weights(record)
    edit(record, "metrics", "test", name, value=value)


@pytest.mark.examples
def test_a_run_is_reproduced_bit_for_bit_and_kept(trained: Path, tmp_path: Path) -> None:
    """By the command of the page, and with a folder to keep the second run in."""
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "dates").symlink_to(trained)
    (command,) = re.findall(r"^(hfattn reproduce runs/dates)$", (ROOT / "docs" / "publishing.md").read_text(), re.M)
    done = run([*shlex.split(command), "--output_dir", "again", "--json"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == EXACT
    assert found["same_scores"] == found["compared_scores"] > 20
    again = tmp_path / "again"
    assert (again / "model.safetensors").read_bytes() == (trained / "model.safetensors").read_bytes()
    assert "step 4/4" in done.stderr
    # The second run has the command of the first, so that its card names what trains it.
    assert "hfattn train translation/dates --output_dir again --data.examples=300" in (again / "README.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "runs"]


# The edit of a record, the verdict, and what the report says.
EDITS: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("none", lambda record: None, EXACT, "scores are the same to the last digit.\n"),
    (
        "a score of the same weights",
        lambda record: edit(record, "metrics", "test", "token_accuracy", value=0.9),
        NOT,
        "0.9 recorded, tolerance 5e-05 (the shown digits)",
    ),
    (
        "a score of a slice",
        lambda record: edit(record, "metrics", "test", "by_source_length", value=[]),
        NOT,
        "DIFFERS  metrics.test.by_source_length.0.bleu",
    ),
    ("weights", spoil_weights, WITHIN, "differs  model.safetensors"),
    (
        "weights and a score nearby",
        lambda record: spoil(record, "chrf", nearby(record, 1.001)),
        WITHIN,
        " (rounding)",
    ),
    (
        "weights and a score far away",
        lambda record: spoil(record, "token_accuracy", 0.95),
        NOT,
        "0.95 recorded, tolerance 0.0",
    ),
    (
        "a score that nothing computes",
        lambda record: edit(record, "metrics", "test", "f1", value=0.9),
        NOT,
        "DIFFERS  metrics.test.f1: none, 0.9 recorded",
    ),
    (
        "the configuration of the model",
        lambda record: (record / "config.json").write_text('{"hidden_size": 3}'),
        WITHIN,
        "differs  config.json",
    ),
    (
        "the number of steps",
        lambda record: edit(record, "training", "steps", value=400),
        NOT,
        "DIFFERS  the number of steps is 4, and 400 is recorded",
    ),
    (
        "the training data",
        lambda record: edit(record, "data", "parts", "train", "sha256", value="0" * 64),
        NOT,
        "DIFFERS  the SHA-256 of the data (train) is ",
    ),
]


def nearby(record: Path, factor: float) -> float:
    return factor * json.loads((record / "results.json").read_text())["metrics"]["test"]["chrf"]


@pytest.mark.parametrize(("change", "verdict", "said"), [case[1:] for case in EDITS], ids=[case[0] for case in EDITS])
def test_an_edited_record(trained: Path, record: Path, change: Callable[[Path], Any], verdict: str, said: str) -> None:
    change(record)
    found = compare(plan_reproduction(record), trained)
    assert found.verdict == verdict, found
    assert said in str(found)
    assert str(found).endswith(f"record: {verdict}.")


def test_the_tolerance_is_the_spread_over_seeds(trained: Path, record: Path) -> None:
    """Of a run with the settings of a configuration: three deviations of the recorded seeds, by a literal loop."""
    spoil_weights(record)
    results = json.loads((record / "results.json").read_text())
    command = results["command"].partition(" --data.examples")[0]
    edit(record, "command", value=command)
    edit(record, "metrics", "test", "chrf", value=nearby(record, 1.001))
    seeds = json.loads((ROOT / "recipes" / "translation" / "dates.expected.json").read_text())["full"]["recorded"]
    plan = plan_reproduction(record)
    assert any(note.startswith("training.max_steps is 4 in the recorded configuration") for note in plan.notes)
    scores = {score.place: score for score in compare(plan, trained).scores}
    for part in "test", "unseen_forms":
        score = scores[f"metrics.{part}.nats_per_token"]
        spread = 3 * statistics.stdev(seed["metrics"][part]["nats_per_token"] for seed in seeds)
        # That of the test is too small for another computer: each seed has learned it.
        assert score.found is not None
        rounding = 0.02 * score.found
        assert (spread > rounding) == (part == "unseen_forms")
        assert score.tolerance == pytest.approx(max(spread, rounding))
        assert score.source == ("rounding" if part == "test" else "3 deviations, 3 seeds of translation/dates")
    # A share has at least its sampling error, for a model that is right as often, with one right and one wrong more.
    found = SeedTolerances(plan.run, plan.schema).of(("test", "exact_match"), 0.9, {"translated": 1000})
    p = 901 / 1002
    assert found.width == pytest.approx(3 * math.sqrt(p * (1 - p) / 1000))


def test_a_record_cannot_widen_its_tolerance(trained: Path, record: Path) -> None:
    spoil_weights(record)
    edit(record, "metrics", "test", "bleu_interval", value=[0.0, 100.0])
    edit(record, "metrics", "test", "bleu", value=60.0)
    edit(record, "metrics", "test", "bleu_lowercase", value=60.0)
    found = compare(plan_reproduction(record), trained)
    assert found.verdict == NOT
    assert not next(score for score in found.scores if score.place == "metrics.test.bleu").agrees


# Bad input


# What is wrong, how it is made, more words of the command, and the sentence.
BAD: list[tuple[str, Callable[[Path], Any], list[str], str]] = [
    ("no record", lambda record: (record / "results.json").unlink(), [], "so nothing says how it was trained"),
    (
        "no versions",
        lambda record: edit(record, "versions", value=None),
        [],
        "has no 'versions', so no recipe wrote it",
    ),
    ("versions", lambda record: edit(record, "versions", value=[1]), [], "as 'versions', which no recipe writes"),
    (
        "no configuration",
        lambda record: edit(record, "configuration", value=None),
        [],
        "does not say how the run was trained (KeyError: 'configuration')",
    ),
    (
        "a configuration that the recipe refuses",
        lambda record: edit(record, "configuration", "model", "cell", value="quantum"),
        [],
        "quantum",
    ),
    ("unfinished", lambda record: edit(record, "unfinished", value={}), [], "are not complete; run hfattn card"),
    (
        "a configuration without training",
        lambda record: edit(record, "configuration", "training", value=[]),
        [],
        "does not say how the run was trained (TypeError",
    ),
    (
        "unknown recipe",
        lambda record: edit(record, "recipe", value="../translation"),
        [],
        "the recipe '../translation', which this hfattn does not have; it has baselines,",
    ),
    (
        "unknown field",
        lambda record: edit(record, "configuration", "data", "planet", value="Mars"),
        [],
        "'data.planet' is not a field of this recipe",
    ),
    (
        "missing data",
        lambda record: edit(record, "configuration", "data", "dataset", value="pairs.tsv"),
        [],
        "are not named: the data are 'pairs.tsv'; give them with --data.",
    ),
    (
        "other data",
        lambda record: edit(record, "data", "parts", "test", "sha256", value="0" * 64),
        [],
        "the part test has the SHA-256",
    ),
    (
        "code of others",
        lambda record: edit(record, "configuration", "model", "trust_remote_code", value=True),
        [],
        "was trained with trust_remote_code, which runs code of another repository",
    ),
    ("generated data", lambda record: None, ["--data", "pairs.tsv"], "are part of hfattn (dates); leave --data out"),
    (
        "no place",
        lambda record: None,
        ["--set", "training.seed=2"],
        "--set training.seed would change the run; only fields that name a place can be set",
    ),
    ("no repository", lambda record: None, ["--open-pr"], "give its id in place of the folder"),
    ("a folder that is there", lambda record: None, ["--output_dir", "."], ". exists already; choose a new folder"),
]


@pytest.mark.parametrize(("change", "words", "message"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_sentence(
    record: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], Any], words: list[str], message: str
) -> None:
    monkeypatch.chdir(record.parent)
    change(record)
    done = CliRunner().invoke(app, ["reproduce", str(record), *words])
    assert done.exit_code == 2, done.output
    *plan, error = done.stderr.splitlines()
    assert error.startswith("error: ")
    assert message in error
    assert not any(line.startswith("Training") for line in plan)
    assert done.stdout == ""
    assert [path.name for path in record.parent.iterdir()] == ["record"]


def test_only_packages_of_a_training_are_to_be_installed(record: Path) -> None:
    edit(record, "versions", value={"torch": "1.0", "transformers": "5; rm", "harmful": "1.0", "python": "3.0"})
    said = str(plan_reproduction(record)).splitlines()
    assert "harmful: none here, 1.0 recorded" in said
    assert "For the recorded versions: pip install torch==1.0" in said


def test_what_reaches_beyond_the_folder_is_left_out(record: Path) -> None:
    """A record of a stranger must not upload to the account of whoever repeats it."""
    training = json.loads((record / "results.json").read_text())["configuration"]["training"]
    reaching = {"push_to_hub": True, "hub_model_id": "user/x", "report_to": ["wandb"], "project": "x"}
    edit(record, "configuration", "training", value=training | reaching)
    plan = plan_reproduction(record)
    assert plan.configuration["training"] == training | {"report_to": []}


def test_a_training_that_fails_is_one_sentence(record: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="The training ended with exit code 5; its messages are above"):
        train_again(plan_reproduction(record), tmp_path / "again", lambda words, variables: 5)
    with pytest.raises(KeyboardInterrupt, match="Nothing was kept"):
        train_again(plan_reproduction(record), tmp_path / "again", lambda words, variables: INTERRUPTED)


# The statement


def test_the_result_is_proposed_to_the_repository(trained: Path, hub: Hub, tmp_path: Path) -> None:
    commit = hub.put("model", "user/dates", {name: (trained / name).read_bytes() for name in published_files(trained)})
    before = hub.files("model", "user/dates")
    plan = plan_reproduction(trained)
    result = compare(plan, trained, seconds=12.34)
    address = propose_statement("user/dates", current_commit("user/dates"), "user", result)
    assert address == f"{hub.url}/user/dates/discussions/1"
    after = hub.files("model", "user/dates", "refs/pr/1")
    (path,) = after.keys() - before.keys()
    assert re.fullmatch(r"\.reproductions/\d{4}-\d\d-\d\d-user\.json", path)
    assert {name: after[name] for name in before} == before
    statement = json.loads(after[path])
    assert statement["verdict"] == EXACT
    assert (statement["repository"], statement["by"], statement["seconds"]) == ("user/dates", "user", 12.3)
    assert statement["commit"] == commit
    assert statement["results_sha256"] == hashlib.sha256((trained / "results.json").read_bytes()).hexdigest()
    assert statement["weights"] == {
        "model.safetensors": hashlib.sha256((trained / "model.safetensors").read_bytes()).hexdigest()
    }
    assert str(trained) not in after[path].decode()
    # Once it is merged, it does not disturb those who read the repository.
    hub.put("model", "user/dates", {path: after[path]})
    with model_files("user/dates", current_commit("user/dates")) as (folder, downloaded):
        assert downloaded
        assert (folder / path).is_file()
        assert path not in published_files(folder)
        assert compare(plan_reproduction(folder), trained).verdict == EXACT


def test_the_proposed_result_is_signed(trained: Path, hub: Hub, tmp_path: Path) -> None:
    hub.put("model", "user/signed", {"results.json": (trained / "results.json").read_bytes()})
    key = make_key(tmp_path, "own")
    result = compare(plan_reproduction(trained), trained)
    propose_statement("user/signed", current_commit("user/signed"), "user", result, key)
    proposed = {Path(path).name: data for path, data in hub.files("model", "user/signed", "refs/pr/1").items()}
    name, signature = sorted(each for each in proposed if "-user.json" in each)
    assert signature == f"{name}.sig"
    for content, code in (proposed[name], 0), (proposed[name].replace(b"reproduced", b"surpassed"), 1):
        statement = written(tmp_path / name, content)
        beside = written(tmp_path / signature, proposed[signature])
        words = [statement, "--signature", beside, "--public_key", key.with_suffix(".public.pem")]
        done = run([sys.executable, "-m", "model_signing", "verify", "key", *words])
        assert done.returncode == code, done.stderr
    refused = CliRunner().invoke(app, ["reproduce", str(trained), "--sign", str(key)])
    assert refused.exit_code == 2
    assert refused.stderr == "error: --sign signs what --open-pr proposes; add --open-pr.\n"


def test_a_lost_answer_opens_no_second_request(trained: Path, hub: Hub) -> None:
    hub.put("model", "user/lost", {file: (trained / file).read_bytes() for file in published_files(trained)})
    result = compare(plan_reproduction(trained), trained)
    hub.fault("commit", "lost")
    with pytest.raises(UserError, match="cannot be reached"):
        propose_statement("user/lost", current_commit("user/lost"), "user", result)
    address = propose_statement("user/lost", current_commit("user/lost"), "user", result)
    assert address == f"{hub.url}/user/lost/discussions/1"
    hub.put("model", "user/lost", {"other.json": b"{}"})  # a statement about another commit is another one
    again = propose_statement("user/lost", current_commit("user/lost"), "user", result)
    assert again == f"{hub.url}/user/lost/discussions/2"


def test_the_card_names_who_trained_the_model_again(trained: Path, record: Path, hub: Hub) -> None:
    hub.put("model", "user/again", {file: (trained / file).read_bytes() for file in published_files(trained)})
    result = compare(plan_reproduction(trained), trained)
    propose_statement("user/again", current_commit("user/again"), "user", result)
    api = HfApi()
    assert valid_statements(api, "user/again", None, record) == []
    hub.merge("model", "user/again", 1)
    (statement,) = valid_statements(api, "user/again", None, record)
    text = (record / "README.md").read_text()
    card = with_statements(text, [statement])
    line = f"- Reproduced bit for bit by [user](https://huggingface.co/user) on {statement.date}, commit "
    assert f"{line}`{statement.commit[:7]}` ([statement]({statement.path}))\n" in card
    assert with_statements(card, [statement]) == card
    assert with_statements(card, []) == text
    (record / "README.md").write_text(card)
    assert "lines" in check_card(record, json.loads((record / "results.json").read_text()))

    path, data = next((path, data) for path, data in hub.files("model", "user/again").items() if "-user.json" in path)
    right = json.loads(data)
    forged: list[tuple[dict[str, Any], str]] = [
        ({"repository": "user/other"}, path),
        ({"results_sha256": "0" * 64}, path),
        ({"by": "somebody"}, path),
        ({"by": "somebody"}, path.replace("user.json", "somebody.json")),  # whose pull request was not merged
        ({"verdict": NOT}, path),
        ({"verdict": "reproduced twice"}, path),
        ({"commit": "](http://evil.example)"}, path),
        ({"by": "user](http://evil.example)"}, path),
        ({"weights": {"model.safetensors": "0" * 64}}, path),
        ({"weights": {}}, path),
        ({"problems": ["the number of steps is 1"]}, path),
        ({"date": "yesterday"}, path),
        ({"scores": 3, "verdict": WITHIN}, path),
    ]
    for number, (change, place) in enumerate(forged):
        name = f"user/forged{number}"
        hub.put("model", name, {place: json.dumps({**right, "repository": name, **change}).encode()})
        hub.repo("model", name).proposals = dict(hub.repo("model", "user/again").proposals)
        assert valid_statements(api, name, None, record) == [], change
    hub.put("model", "user/right", {path: json.dumps({**right, "repository": "user/right"}).encode()})
    hub.repo("model", "user/right").proposals = dict(hub.repo("model", "user/again").proposals)
    assert [each.by for each in valid_statements(api, "user/right", None, record)] == ["user"]
    edit(record, "seed", value=9)  # results of another run
    assert valid_statements(api, "user/right", None, record) == []


@pytest.mark.examples  # because each push verifies the folder
def test_a_push_writes_the_statements_into_the_card(trained: Path, hub: Hub) -> None:
    push(trained, "user/pushed", PushOptions(execute=True))
    result = compare(plan_reproduction(trained), trained)
    propose_statement("user/pushed", current_commit("user/pushed"), "user", result)
    assert "Trained again" not in hub.files("model", "user/pushed")["README.md"].decode()
    commit = hub.merge("model", "user/pushed", 1)
    done = push(trained, "user/pushed", PushOptions(execute=True, over=commit))
    assert done.changed.keys() == {"README.md"}
    assert "- Reproduced bit for bit by [user]" in hub.files("model", "user/pushed")["README.md"].decode()
    assert push(trained, "user/pushed", PushOptions(execute=True)).nothing_to_do


def test_a_push_keeps_the_statements_of_others(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "train.csv").write_text("text\n")
    commit = hub.put("dataset", "user/lines", {".reproductions/2026-01-01-a.json": b"{}", "old.csv": b"text\n"})
    assert push(tmp_path / "data", "user/lines", PushOptions(over=commit), repo_type="dataset").deleted == ["old.csv"]


def test_a_proposal_needs_an_account_before_the_training(
    trained: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.put("model", "user/dates", {"results.json": (trained / "results.json").read_bytes()})
    monkeypatch.delenv("HF_TOKEN")
    done = CliRunner().invoke(app, ["reproduce", "user/dates", "--open-pr"])
    assert done.exit_code == 2
    assert done.stderr == "error: There is no token for the Hub on this computer; log in with: hf auth login\n"
    done = CliRunner().invoke(app, ["reproduce", "user/nothing"])
    assert done.stderr.startswith("error: user/nothing was not found locally or on the Hub")

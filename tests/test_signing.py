"""The signature of a published model: made with a key, checked with its other half, of all files that the Hub has."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from commands import RECIPE, ROOT, run_anew, tiny_config, train_here
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from hub_server import Hub
from huggingface_hub import HfApi
from keys import make_key
from typer.testing import CliRunner, Result

from hfattn import api
from hfattn.errors import UserError
from hfattn.hub import PushOptions, push, verify, write_manifest
from hfattn.hub.inspection import inspect
from hfattn.hub.manifest import published_files
from hfattn.hub.signing import _MAKE, PASSWORD, check_key, check_signature, sign
from hfattn_cli import app

pytestmark = [pytest.mark.runs, pytest.mark.usefixtures("online")]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the keys of two persons."""
    folder = tmp_path_factory.mktemp("keys")
    make_key(folder, "own")
    make_key(folder, "other")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed")
    train_here(RECIPE, tiny_config(folder, training={"max_steps": 2, "eval_steps": 2, "save_steps": 2}))
    return folder / "run"


def hfattn(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def signed(run: Path, hub: Hub, keys: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run as it is downloaded from a repository that it was pushed to and signed."""
    folder = tmp_path_factory.mktemp("downloaded")
    with pytest.MonkeyPatch.context() as patch:
        hub.take_over(patch, folder / "home")
        done = hfattn("push", run, "user/signed", "--sign", keys / "own.pem", "--public", "--execute")
        assert done.exit_code == 0, done.output
        assert "model.sig" in done.stdout
        HfApi().snapshot_download("user/signed", local_dir=folder / "signed")
    return folder / "signed"


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Path:
    """A copy of the download, to be spoiled."""
    return Path(shutil.copytree(signed, tmp_path / "copy"))


def statement(signature: Path) -> Any:
    return json.loads(b64decode(json.loads(signature.read_text())["dsseEnvelope"]["payload"]))


def test_the_signature_is_of_the_files_that_the_hub_has(run: Path, signed: Path, hub: Hub, keys: Path) -> None:
    """The card is the one with the address of the repository; the folder of the run stays as it was."""
    there = hub.files("model", "user/signed")
    listed = statement(signed / "model.sig")
    assert listed["subject"][0]["name"] == "signed"
    assert {each["name"]: each["digest"] for each in listed["predicate"]["resources"]} == {
        name: sha256(content).hexdigest()
        for name, content in there.items()
        if name not in ("model.sig", ".gitattributes")
    }
    assert {"README.md", "manifest.json", "model.safetensors", "modeling_char_rnn.py"} <= there.keys()
    assert not (run / "model.sig").exists()
    assert "model.sig" not in json.loads(there["manifest.json"])["files"]
    assert "model.sig" in published_files(signed)
    assert not any(finding.path == "model.sig" for finding in inspect(str(signed)).findings)


@pytest.mark.examples
def test_the_functions_of_python_sign_and_check(run: Path, hub: Hub, keys: Path) -> None:
    api.push(run, "user/by_function", sign=keys / "own.pem", execute=True)
    assert "model.sig" in hub.files("model", "user/by_function")
    assert not api.verify("user/by_function", signer=keys / "other.public.pem").passed
    assert api.verify("user/by_function", signer=keys / "own.public.pem").passed


@pytest.mark.examples
def test_the_section_on_signatures(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(run, tmp_path / "runs" / "dates")
    monkeypatch.chdir(tmp_path)
    section = (ROOT / "docs" / "publishing.md").read_text().partition("## Signatures\n")[2]
    (block,) = re.findall(r"```sh\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    for program, *words in map(shlex.split, block.strip().splitlines()):
        if program == "openssl":
            subprocess.run([program, *words], check=True, capture_output=True)
        else:
            done = hfattn(*words)
            assert done.exit_code == 0, (words, done.output)
    assert "pass  the files are those that were signed" in done.stdout
    assert block.startswith(_MAKE.removeprefix("make one with: ").replace("KEY.pem", "key.pem"))


def test_another_signer_is_found_out_before_anything_runs(signed: Path, keys: Path) -> None:
    done = hfattn("verify", "user/signed", "--signer", keys / "other.public.pem", "--json")
    assert done.exit_code == 1
    (check,) = json.loads(done.stdout)["checks"]  # none that needs the sandbox
    assert check["detail"] == "model.sig was not made with this key, or was changed"


def test_the_program_of_model_signing_checks_it_and_makes_one_too(copy: Path, keys: Path) -> None:
    for order, option, key in ("verify", "--public_key", "own.public.pem"), ("sign", "--private_key", "other.pem"):
        words = [order, "key", copy, "--signature", copy / "model.sig", option, keys / key]
        done = run_anew([sys.executable, "-m", "model_signing", *words])
        assert done.returncode == 0, done.stderr
    shutil.rmtree(copy / ".cache")  # the notes of the download, which this program signs like any file
    assert check_signature(copy, keys / "other.public.pem")


def edit_bundle(folder: Path, **fields: object) -> None:
    bundle = json.loads((folder / "model.sig").read_text())
    bundle["dsseEnvelope"] |= fields
    (folder / "model.sig").write_text(json.dumps(bundle))


def edit_statement(folder: Path, change: Callable[[Any], object]) -> None:
    listed = statement(folder / "model.sig")
    change(listed)
    edit_bundle(folder, payload=b64encode(json.dumps(listed).encode()).decode())


def change_and_list(folder: Path) -> None:
    """Change a file, and the statement with it, as one who has no key can."""
    (folder / "README.md").write_text("# Mine\n")

    def listing(listed: Any) -> None:
        for each in listed["predicate"]["resources"]:
            if each["name"] == "README.md":
                each["digest"] = sha256(b"# Mine\n").hexdigest()

    edit_statement(folder, listing)


def edit_metadata(folder: Path) -> None:
    """Edit the card, as the page of the Hub lets its owner do."""
    card = folder / "README.md"
    card.write_text(card.read_text().replace("---\n", "---\nlicense: mit\n", 1))


SPOILED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.sig").unlink(), "there is no model.sig: the files are not signed"),
    (edit_metadata, "README.md has changed since it was signed"),
    (lambda folder: (folder / "manifest.json").write_text('{"files": {}}'), "manifest.json has changed since"),
    (lambda folder: (folder / "results.json").unlink(), "results.json is missing, which was signed"),
    (lambda folder: (folder / "adapter_config.json").write_text("{}"), "adapter_config.json was added after the files"),
    (lambda folder: (folder / ".hidden.py").write_text(""), ".hidden.py was added after the files were signed"),
    (lambda folder: (folder / ".gitignore").write_text(""), ".gitignore was added after the files were signed"),
    (lambda folder: (folder / ".link.py").symlink_to("config.json"), ".link.py was added after the files were signed"),
    (change_and_list, "model.sig was not made with this key, or was changed"),
    (lambda folder: (folder / "model.sig").write_text("{}"), "model.sig is not a signature of files by model-signing"),
    (lambda folder: edit_bundle(folder, signatures=[]), "is not a signature"),
    (lambda folder: edit_bundle(folder, signatures=[{"sig": "bm9uZQ=="}]), "model.sig was not made with this key"),
    (lambda folder: edit_statement(folder, lambda listed: listed["predicate"].pop("resources")), "was not made with"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILED)
def test_what_is_not_signed_is_named_and_not_run(
    copy: Path, keys: Path, spoil: Callable[[Path], object], message: str
) -> None:
    spoil(copy)
    report = verify(copy, signer=keys / "own.public.pem")
    (check,) = report.checks
    assert check.passed is False
    assert message in check.detail


def test_what_others_write_beside_the_files_is_not_compared(copy: Path, keys: Path) -> None:
    (copy / ".git").mkdir()
    (copy / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (copy / ".gitattributes").write_text("*.bin filter=lfs\n")
    (copy / ".reproductions").mkdir()
    (copy / ".reproductions" / "2026-01-01-someone.json").write_text("{}")
    said = check_signature(copy, keys / "own.public.pem")
    assert said == f"{len(published_files(copy)) - 1} files, by the key of {keys / 'own.public.pem'}"


@pytest.mark.examples
def test_a_signature_stays_while_the_files_do(run: Path, signed: Path, hub: Hub, keys: Path, tmp_path: Path) -> None:
    plan = push(run, "user/signed", PushOptions(sign=keys / "own.pem"))
    assert plan.nothing_to_do, plan
    folder = Path(shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints", "logs")))
    (folder / "README.md").write_text((folder / "README.md").read_text() + "\nMore.\n")
    plan = push(folder, "user/signed", PushOptions(over=hub.repos["model", "user/signed"].head("main").oid))
    assert (list(plan.changed), plan.deleted) == (["README.md"], ["model.sig"])


@pytest.mark.examples
def test_more_pushes_of_a_signed_model(run: Path, signed: Path, copy: Path, hub: Hub, keys: Path) -> None:
    assert push(run, "user/signed").nothing_to_do
    plan = push(run, "user/signed", PushOptions(sign=keys / "other.pem"))
    assert (list(plan.changed), plan.added, plan.deleted) == (["model.sig"], {}, [])
    options = PushOptions(sign=keys / "other.pem", pr=True, execute=True)
    assert push(run, "user/signed", options).url == push(run, "user/signed", options).url
    assert push(copy, "user/signed").nothing_to_do  # the download, with its signature
    report = verify(copy)
    assert report.passed
    assert report.checks[0].detail == "model.sig was not checked; --signer does"
    commit = hub.put("model", "user/theirs", {"model.sig": b"{}", "config.json": b"{}"})
    (copy / "model.sig").unlink()
    plan = push(copy, "user/theirs", PushOptions(over=commit, keep=True, execute=True))
    assert plan.deleted == ["model.sig"]


def test_an_old_signature_is_refused_and_removed(copy: Path) -> None:
    (copy / "README.md").write_text((copy / "README.md").read_text() + "\nMore.\n")
    with pytest.raises(
        UserError, match=r"README\.md has changed since it was signed; sign the files with --sign KEY, or"
    ):
        push(copy, "user/other")
    write_manifest(copy)
    assert not (copy / "model.sig").exists()


def test_the_password_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = make_key(tmp_path, "locked", password="a long sentence")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    done = hfattn("push", tmp_path / "folder", "user/x", "--sign", key)
    assert done.exit_code == 2
    assert done.stderr == f"error: {key} is encrypted; set the environment variable {PASSWORD} to its password.\n"
    assert PASSWORD in hfattn("push", "--help").stdout
    monkeypatch.setenv(PASSWORD, "another sentence")
    with pytest.raises(UserError, match=f"is not a key that the password in {PASSWORD} decrypts"):
        check_key(key, tmp_path / "folder")
    monkeypatch.setenv(PASSWORD, "a long sentence")
    sign(tmp_path / "folder", key)
    assert check_signature(tmp_path / "folder", key.with_suffix(".public.pem")).startswith("1 files")
    monkeypatch.setenv(PASSWORD, "of another key")  # one that is not encrypted needs none
    sign(tmp_path / "folder", make_key(tmp_path, "open", ec.generate_private_key(ec.SECP521R1())))
    assert check_signature(tmp_path / "folder", tmp_path / "open.public.pem").startswith("1 files")


def test_a_key_that_cannot_sign_is_one_sentence(tmp_path: Path, keys: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").write_text("{}")
    inside = make_key(tmp_path / "folder", "own")
    (tmp_path / "text.pem").write_text("no key")
    for key, message in {
        inside: f"{inside} is a private key in the folder that is published; move it out of {tmp_path / 'folder'}.",
        tmp_path / "none.pem": f"The key {tmp_path / 'none.pem'} was not found; make one with: openssl genpkey",
        tmp_path / "text.pem": "text.pem is not a private key in PEM; make one with: openssl genpkey",
        keys / "own.public.pem": "own.public.pem is not a private key in PEM",
        make_key(
            tmp_path, "ed", ed25519.Ed25519PrivateKey.generate()
        ): "ed.pem is not a key of the elliptic curve P-256",
        make_key(tmp_path, "k1", ec.generate_private_key(ec.SECP256K1())): "k1.pem is not a key of the elliptic curve",
    }.items():
        done = hfattn("push", tmp_path / "folder", "user/x", "--sign", key)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr
    for key, message in {
        tmp_path / "none.pem": "was not found; ask the signer for it",
        keys / "own.pem": "own.pem is not a public key in PEM; the signer makes it: openssl pkey -in KEY.pem -pubout",
        tmp_path / "ed.public.pem": "is not a public key of the elliptic curve P-256",
    }.items():
        done = hfattn("verify", tmp_path / "folder", "--signer", key)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr

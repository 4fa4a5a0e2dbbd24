"""Signatures without a key, made by the real client with a Sigstore instance of the test."""

import json
import shutil
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from commands import RECIPE, run_anew, tiny_config, train_here
from hub_server import Hub
from huggingface_hub import HfApi, constants
from keys import make_key
from sigstore_server import IDENTITY, ISSUER, SigstoreServer
from typer.testing import CliRunner, Result

from hfattn import api
from hfattn.errors import UserError
from hfattn.hub.keyless import INSTANCE, KEYLESS, Identity
from hfattn.hub.signing import check_key, check_signature, keep_signature, sign
from hfattn_cli import app

pytestmark = pytest.mark.runs

OWN = Identity(IDENTITY, ISSUER)
OTHER = "user/models/.github/workflows/other.yml@refs/heads/main"


@pytest.fixture(scope="module")
def sigstore() -> Iterator[SigstoreServer]:
    with SigstoreServer() as server:
        yield server


@pytest.fixture(autouse=True)
def job(sigstore: SigstoreServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(sigstore, "refuses", "")
    monkeypatch.setattr(sigstore, "claims", dict(sigstore.claims))
    return sigstore.take_over(monkeypatch, tmp_path)


@pytest.fixture(scope="module")
def signed(sigstore: SigstoreServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("signed") / "model"
    with pytest.MonkeyPatch.context() as patch:
        sigstore.take_over(patch, folder.parent)
        assert sign(files_in(folder), KEYLESS) == OWN
    return folder


@pytest.fixture
def copy(signed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(signed, tmp_path / "copy"))


def files_in(folder: Path) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "README.md").write_text("# Model\n")
    return folder


def hfattn(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def edit(folder: Path, change: Callable[[Any], object]) -> None:
    bundle = json.loads((folder / "model.sig").read_text())
    change(bundle)
    (folder / "model.sig").write_text(json.dumps(bundle))


def list_another_hash(folder: Path) -> None:
    """Change a file, and the statement with it."""
    (folder / "README.md").write_text("# Mine\n")

    def change(bundle: Any) -> None:
        statement = json.loads(b64decode(bundle["dsseEnvelope"]["payload"]))
        for each in statement["predicate"]["resources"]:
            each["digest"] = "0" * 64
        bundle["dsseEnvelope"]["payload"] = b64encode(json.dumps(statement).encode()).decode()

    edit(folder, change)


def swap(folder: Path, *names: str) -> None:
    """Put a part of a valid signature of other files into this one."""
    other = files_in(folder.parent / "other")
    (other / "more.txt").write_text("more")
    sign(other, KEYLESS)
    theirs = json.loads((other / "model.sig").read_text())

    def change(bundle: Any) -> None:
        for name in names:
            place = bundle if name in bundle else bundle["verificationMaterial"]
            place[name] = theirs[name] if name in theirs else theirs["verificationMaterial"][name]

    edit(folder, change)


def sign_elsewhere(folder: Path) -> None:
    """Sign the same files with the same identity, as an instance says that is not trusted."""
    (folder.parent / "elsewhere").mkdir()
    with SigstoreServer() as server, pytest.MonkeyPatch.context() as patch:
        server.take_over(patch, folder.parent / "elsewhere")
        sign(folder, KEYLESS)


def log_of(bundle: Any) -> Any:
    return bundle["verificationMaterial"]["tlogEntries"][0]


SPOILED: list[tuple[Callable[[Path], object], str]] = [
    (lambda folder: (folder / "model.sig").unlink(), "there is no model.sig: the files are not signed"),
    (lambda folder: (folder / "README.md").write_text("# Mine\n"), "README.md has changed since it was signed"),
    (lambda folder: (folder / "config.json").unlink(), "config.json is missing, which was signed"),
    (lambda folder: (folder / "more.py").write_text(""), "more.py was added after the files were signed"),
    (list_another_hash, "or was changed: DSSE: invalid signature"),
    (lambda folder: sign(folder, make_key(folder.parent, "own")), "expected certificate in bundle"),
    (sign_elsewhere, "failed to build timestamp certificate chain"),
    (lambda folder: swap(folder, "dsseEnvelope"), "or was changed: DSSE: invalid signature"),
    (lambda folder: swap(folder, "certificate"), "or was changed: DSSE: invalid signature"),
    (lambda folder: swap(folder, "tlogEntries"), "or was changed: log entry payload hash does not match bundle"),
    (lambda folder: swap(folder, "certificate", "dsseEnvelope"), "log entry payload hash does not match bundle"),
    (lambda folder: edit(folder, lambda bundle: log_of(bundle).pop("inclusionPromise")), "an inclusion promise or"),
    (
        lambda folder: edit(folder, lambda bundle: log_of(bundle).pop("inclusionProof")),
        "tlogEntries.0.inclusionProof Field required",
    ),
    (
        lambda folder: edit(folder, lambda bundle: log_of(bundle).update(integratedTime="1000000000")),
        "failed to build timestamp certificate chain",
    ),
    (lambda folder: edit(folder, lambda bundle: log_of(bundle).update(integratedTime="9" * 40)), "or was changed"),
    (lambda folder: (folder / "model.sig").write_text("{}"), "model.sig is not a signature of files by model-signing"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILED)
def test_only_what_the_identity_signed_is_accepted(copy: Path, spoil: Callable[[Path], object], message: str) -> None:
    assert check_signature(copy, OWN) == f"2 files, by {IDENTITY}, as {ISSUER} states"
    spoil(copy)
    with pytest.raises(AssertionError, match=message):
        check_signature(copy, OWN)


def test_another_identity_or_issuer_is_named_before_anything_runs(signed: Path, tmp_path: Path) -> None:
    elsewhere = "https://gitlab.com"
    for words, message in {
        (IDENTITY.replace("release", "other"), ISSUER): f"actual SANs: {{'{IDENTITY}'}}",
        (IDENTITY.replace("main", "dev"), ISSUER): f"actual SANs: {{'{IDENTITY}'}}",
        (IDENTITY, elsewhere): f"(got '{ISSUER}', expected '{elsewhere}')",
    }.items():
        done = hfattn("verify", signed, "--signer", words[0], "--issuer", words[1], "--json")
        assert done.exit_code == 1
        (check,) = json.loads(done.stdout)["checks"]
        assert message in check["detail"]
    done = hfattn("verify", signed, "--signer", make_key(tmp_path, "own").with_suffix(".public.pem"))
    assert "model.sig was not made with this key, or was changed" in done.stdout


def test_the_public_instance_is_the_default(
    signed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, job: Path
) -> None:
    """Its keys are in the package of its client, and are read from there without a network."""
    monkeypatch.delenv(INSTANCE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(AssertionError, match="failed to build timestamp certificate chain"):
        check_signature(signed, OWN)
    monkeypatch.setenv(INSTANCE, str(job))
    job.write_text("{}")
    with pytest.raises(UserError, match=rf"{job}, which {INSTANCE} names, is not a trust configuration of Sigstore"):
        check_signature(signed, OWN)


def test_who_signed_is_named_in_full(signed: Path) -> None:
    for words, message in {
        ("--signer", IDENTITY): f"{IDENTITY} is not a file; if it is an identity, name its issuer: --issuer {ISSUER}",
        ("--signer", "me@example.org"): "me@example.org is not a file; if it is an identity, name its issuer",
        ("--issuer", ISSUER): f"'' of '{ISSUER}' is not an identity; name the signer and the address of its issuer",
        ("--signer", IDENTITY, "--issuer", ""): f"'{IDENTITY}' of '' is not an identity",
        ("--signer", IDENTITY, "--issuer", "github"): f"'{IDENTITY}' of 'github' is not an identity",
    }.items():
        done = hfattn("verify", signed, *words)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert message in done.stderr


NO_IDENTITY: list[tuple[dict[str, str | None], str]] = [
    ({"GITHUB_ACTIONS": None}, "and this is none; sign with a key: --sign KEY.pem"),
    ({"ACTIONS_ID_TOKEN_REQUEST_TOKEN": None}, "in GitHub Actions, give it the permission id-token: write"),
    ({"ACTIONS_ID_TOKEN_REQUEST_URL": "http://127.0.0.1:9/token"}, "OIDC token request timed out"),
    ({"GITHUB_ACTIONS": None, "GITLAB_CI": "true"}, "SIGSTORE_ID_TOKEN not found"),
    ({"GITHUB_ACTIONS": None, "GITLAB_CI": "true", "SIGSTORE_ID_TOKEN": "a.b.c"}, "Malformed token"),
]


@pytest.mark.parametrize(("variables", "message"), NO_IDENTITY)
def test_without_an_identity_nothing_begins(
    variables: dict[str, str | None], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("id._internal.oidc.ambient._GCP_PRODUCT_NAME_FILE", "/dev/null")  # the machine may be one
    for name, value in variables.items():
        monkeypatch.delenv(name) if value is None else monkeypatch.setenv(name, value)
    done = hfattn("push", files_in(tmp_path / "model"), "user/x", "--sign", "keyless")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("endpoint", ["token", "openid-configuration", "signingCert", "entries"])
def test_what_sigstore_does_not_sign_leaves_nothing(endpoint: str, sigstore: SigstoreServer, tmp_path: Path) -> None:
    sigstore.refuses = endpoint
    folder = files_in(tmp_path / "model")
    with pytest.raises(UserError) as refusal:
        sign(folder, KEYLESS)
    assert "503" in str(refusal.value)
    assert "eyJ" not in str(refusal.value)  # the beginning of a token
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", "config.json"]


def test_an_instance_that_is_gone_or_expired_signs_nothing(
    job: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sigstore: SigstoreServer
) -> None:
    folder = files_in(tmp_path / "model")
    job.write_text(job.read_text().replace(sigstore.url, "http://127.0.0.1:9"))
    with pytest.raises(UserError, match="The files were not signed by Sigstore") as refusal:
        sign(folder, KEYLESS)
    assert len(str(refusal.value)) < 500
    with SigstoreServer(valid=timedelta(seconds=-2)) as expired:
        expired.take_over(monkeypatch, tmp_path)
        with pytest.raises(UserError, match=r"The files were not signed by Sigstore .*failed to build"):
            sign(folder, KEYLESS)
    assert not (folder / "model.sig").exists()


def test_an_earlier_signature_by_the_same_identity_is_kept(
    copy: Path, signed: Path, sigstore: SigstoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = (signed / "model.sig").read_bytes()
    monkeypatch.delenv("GITHUB_ACTIONS")
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", sigstore.token())
    check_key(KEYLESS)
    sign(copy, KEYLESS)
    assert (copy / "model.sig").read_bytes() != earlier
    keep_signature(copy, signed / "model.sig", KEYLESS)
    assert (copy / "model.sig").read_bytes() == earlier
    sigstore.claims["job_workflow_ref"] = OTHER
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", sigstore.token())
    sign(copy, KEYLESS)
    keep_signature(copy, signed / "model.sig", KEYLESS)
    assert check_signature(copy, Identity(f"https://github.com/{OTHER}", ISSUER)).startswith("2 files")


@pytest.mark.examples
def test_the_program_of_model_signing_checks_it_too(signed: Path, job: Path) -> None:
    words = ["verify", "sigstore", signed, "--signature", signed / "model.sig", "--trust_config", job]
    for identity, code in {IDENTITY: 0, IDENTITY.replace("main", "dev"): 1}.items():
        named = ["--identity", identity, "--identity_provider", ISSUER]
        done = run_anew([sys.executable, "-m", "model_signing", *words, *named])
        assert done.returncode == code, done.stderr


@pytest.mark.examples
@pytest.mark.usefixtures("online")
def test_a_model_is_pushed_signed_and_verified(sigstore: SigstoreServer, hub: Hub, tmp_path: Path) -> None:
    """The log gets an entry when all else is checked; a dry run and a push that fails make none."""
    train_here(RECIPE, tiny_config(tmp_path, training={"max_steps": 2, "eval_steps": 2, "save_steps": 2}))
    run, entries = tmp_path / "run", sigstore.entries
    words = ["push", run, "user/keyless", "--sign", "keyless", "--public"]
    done = hfattn(*words)
    assert done.exit_code == 0, done.output
    assert "Signed by: the identity of this job, when the files are sent" in done.stdout
    manifest = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(manifest.replace('"sha256": "', '"sha256": "0', 1))
    assert hfattn(*words, "--execute").exit_code == 2
    (run / "manifest.json").write_text(manifest)
    assert sigstore.entries == entries
    sigstore.refuses = "entries"
    assert hfattn(*words, "--execute").exit_code == 2
    assert ("model", "user/keyless") not in hub.repos
    sigstore.refuses = ""

    done = hfattn(*words, "--execute")
    assert done.exit_code == 0, done.output
    assert f"Signed by: {OWN}" in done.stdout
    assert sigstore.entries == entries + 1
    report = api.verify("user/keyless", signer=IDENTITY, issuer=ISSUER)
    assert report.passed
    assert report.checks[0].detail.endswith(f"files, by {OWN}")

    commit = HfApi().model_info("user/keyless").sha
    assert "is up to date" in hfattn(*words, "--execute").stdout
    assert HfApi().model_info("user/keyless").sha == commit
    sigstore.claims["job_workflow_ref"] = OTHER
    plan = api.push(run, "user/keyless", sign="keyless", execute=True)
    assert (list(plan.changed), plan.added, plan.deleted) == (["model.sig"], {}, [])
    assert not api.verify("user/keyless", signer=IDENTITY, issuer=ISSUER).passed

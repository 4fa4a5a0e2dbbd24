"""What a folder publishes: formats, links, pickles and compiled code, keys, tokens and paths of a computer."""

import bz2
import gzip
import io
import json
import os
import pickle
import py_compile
import socket
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from hfattn.errors import UserError
from hfattn.hub import pickles, verify, write_manifest
from hfattn.hub.manifest import check_regular, frozen_copy, published_files, repository_files, unpublished_files
from hfattn.hub.pickles import find_pickle
from hfattn.hub.secrets import find_secret
from hfattn_cli import app

LETTERS = "aB3dE5gH7jK9mN1pQ2sT4vW6yZ8bC0fG" * 4

# Each in the form in which its service gives it out.
KEYS = {
    "hf": f"hf_{LETTERS[:34]}",
    "organization": f"api_org_{LETTERS[:34]}",
    "oauth": f"hf_oauth_eyJ{LETTERS[:40]}.eyJ{LETTERS[:60]}.{LETTERS[:43]}",
    "jwt": f"hf_jwt_eyJ{LETTERS[:40]}.eyJ{LETTERS[:60]}.{LETTERS[:43]}",
    "in an address": f"https://user:hf_{LETTERS[:34]}@huggingface.co/user/name",
    "quoted in an address": f"https://example.org/?next=a%3Fkey%3Dhf_{LETTERS[:34]}",
    "aws id": "aws_access_key_id = AKIA2E0A8F3B244C9986",
    "aws": f"AWS_SECRET_ACCESS_KEY={LETTERS[:40]}",
    "openai": f"sk-{LETTERS[:20]}T3BlbkFJ{LETTERS[20:40]}",
    "openai project": f"sk-proj-{LETTERS[:74]}",
    "github": f"ghp_{LETTERS[:36]}",
    "github fine-grained": f"github_pat_{LETTERS[:22]}_{LETTERS[:59]}",
    "wandb": f"WANDB_API_KEY={'0123456789abcdef' * 2}01234567",
    "wandb in .netrc": f"machine api.wandb.ai\n  login user\n  password {'0123456789abcdef' * 2}01234567",
    "wandb in code": f'wandb.login(key="{"0123456789abcdef" * 2}01234567")',
    "pem": "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA",
    "pem of openssh": "-----BEGIN OPENSSH PRIVATE KEY-----",
    "password": "https://maria:correct-horse@example.org/data.csv",
}
PATHS = [
    "/home/maria/data",
    "file:///home/maria/data",
    "/root/.cache",
    "/Users/maria/x",
    "/tmp/scratch-1/run",
    "/mnt/disk/x",
    "/Volumes/Backup/x",
    "/kaggle/input/x",
    "/content/drive",
    "/workspace/run",
    "/var/folders/x1/y",
    r"C:\Users\maria\x",
    r"C:\\Users\\maria\\x",
    "C:/Users/maria/x",
    r"D:\data\pairs.tsv",
    "E:/data/pairs.tsv",
    r"\\server\share\x",
    r"\\\\server\\share\\x",
]
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1")


@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_found_in_every_text_and_is_not_shown(tmp_path: Path, kind: str) -> None:
    key = KEYS[kind]
    cell = {"cells": [{"outputs": [{"text": [f"a line\n{key}\n"]}]}]}  # in JSON, an n stands before the key
    texts = {
        "train.log": f"step 1\n\x1b[32m{key}\x1b[0m\n",
        "data.csv": f"name,text\n1,{key}\n",
        "notes.ipynb": json.dumps(cell),
        "tokenizer.json": json.dumps({"vocab": {"a": 0, key: 1}}),
        "no_suffix": f"é ü\n{key}",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        found = find_secret(tmp_path / name, set())
        assert found is not None, (name, kind)
        assert "looks like a token or key" in found
        assert not any(key[i : i + 12] in found for i in range(len(key) - 12))
    for encoding in ENCODINGS:
        (tmp_path / "encoded").write_bytes(f"The first line of a text, é.\n{key}\n".encode(encoding))
        assert "in line 2" in str(find_secret(tmp_path / "encoded", set())), encoding


def test_a_path_is_found_in_texts_and_headers_and_not_in_vocabularies(tmp_path: Path) -> None:
    for path in PATHS:
        (tmp_path / "notes").write_text(f"Of no interest.\nRead from {path}.\n")
        assert "a local path" in str(find_secret(tmp_path / "notes", set())), path
        assert "in line 2" in str(find_secret(tmp_path / "notes", set())), path
        (tmp_path / "vocab.txt").write_text(path)
        assert find_secret(tmp_path / "vocab.txt", set()) is None
    header = json.dumps({"__metadata__": {"source": "/home/maria/x"}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert "/home/maria" in str(find_secret(tmp_path / "model.safetensors", set()))
    (tmp_path / "graph.onnx").write_bytes(b"\0\x08\x01/home/maria/site-packages\0")
    assert "/home/maria" in str(find_secret(tmp_path / "graph.onnx", set()))
    (tmp_path / "own").write_text("in /srv/x/runs/a, /srv/x/runs-b")
    assert find_secret(tmp_path / "own", {"/srv/x/runs"}) is not None
    assert find_secret(tmp_path / "own", {"/srv/x/run"}) is None


def test_what_only_looks_like_a_key_or_a_path_is_none(tmp_path: Path) -> None:
    texts = [
        "https://example.org/home/maria, and/or a/tmp/b, 1/2, /usr/bin/env, https://a.b/content/x",
        '<a href="/media/picture.png"> [link](/content/page)',
        f"commit {'0123456789abcdef' * 2}01234567, sha256 {'0123456789abcdef' * 4}",
        "test_the_loss_weighs_classes_and_an_accumulated_step_is_one_batch_of_all",
        "Task: Q:\\nWhat? A:\\nThis. hf_oauth_expiration_minutes: 480; sk-learn, risk-averse-and-more-words-than-that",
        r"\begin{align} x \\\alpha\beta \end{align}, re.compile(r'\\w+\d'), {'tex': '\\alpha\\beta f:\\mathbb{R}'}",
    ]
    for text in texts:
        (tmp_path / "text.md").write_text(text)
        assert find_secret(tmp_path / "text.md", set()) is None, text


def test_the_keys_of_this_process_are_found_in_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.log").write_text("signed in with correct-horse-battery")
    assert find_secret(tmp_path / "train.log", set()) is None
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "correct-horse-battery")
    assert find_secret(tmp_path / "train.log", set()) == "a key or token of this computer in line 1"


# Pickles and compiled code


class Call:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("this ran",)


def in_zip(*members: tuple[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members:
            archive.writestr(name, data)
    return content.getvalue()


def in_tar(name: str, data: bytes, mode: str = "w") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:  # type: ignore[call-overload]
        member = tarfile.TarInfo(name)
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


def saved(array: np.ndarray, archive: bool = False) -> bytes:
    content = io.BytesIO()
    (np.savez if archive else np.save)(content, array)
    return content.getvalue()


def test_pickles_are_found_by_name_content_and_in_archives(tmp_path: Path) -> None:
    plain = pickle.dumps({"a": 1}, 4)
    weights = io.BytesIO()
    torch.save({"weight": torch.zeros(2)}, weights)
    (tmp_path / "code.py").write_text("x = 1\n")
    py_compile.compile(str(tmp_path / "code.py"), str(tmp_path / "code.pyc"))
    objects = np.array([{"a": 1}], dtype=object)
    cases = {
        "optimizer.pt": b"anything",
        "nested.json": plain,
        "torch.json": weights.getvalue(),
        **{f"protocol{protocol}.txt": pickle.dumps(Call(), protocol) for protocol in range(6)},
        "rest_on_the_stack.txt": b"I1\n" + pickle.dumps(Call(), 0),
        # The call is made before the rest is read.
        "no_end.txt": pickle.dumps(Call(), 0).removesuffix(b"."),
        "broken_end.txt": pickle.dumps(Call(), 0).replace(b".", b"\xff"),
        "instance.txt": b"(Vthis ran\nibuiltins\nprint\n\xff",
        "odd_number.txt": b"I0x1\n" + pickle.dumps(Call(), 0),
        "kept_twice.txt": b"I1\np0\np0\n" + pickle.dumps(Call(), 0),
        "only_imported.txt": b"cthis\ns\n.",
        "both.safetensors": b"\x80\2U\5\0\0\0\0{" + pickle.dumps(Call(), 0),
        "tar_and_zip.arrow": in_tar("state", plain) + in_zip(("notes.txt", b"text")),
        "objects.npy": saved(objects),
        "structured.npy": saved(np.zeros(2, dtype=[("a", "i4"), ("b", "O")])),
        "objects.npz": saved(objects, archive=True),
        "a.zip": in_zip(("notes.txt", b"text"), ("data/state", plain)),
        "named.zip": in_zip(("model.pkl", b"")),
        "twice.zip": in_zip(("inner.zip", in_zip(("state", plain)))),
        "model.keras": in_zip(("config.json", b"{}"), ("extra", plain)),
        "a.tar": in_tar("state", plain),
        "a.tar.gz": in_tar("state", plain, "w:gz"),
        "a.tar.xz": in_tar("inner.zip", in_zip(("state", plain)), "w:xz"),
        "state.gz": gzip.compress(plain),
        "state.bz2": bz2.compress(plain),
        "picture.png": b"\x89PNG" + in_zip(("state", plain)),  # an archive may begin with anything
        "code.txt": (tmp_path / "code.pyc").read_bytes(),
        "library": Path(os.path.realpath("/proc/self/exe")).read_bytes()[:4096],
        "program.exe": b"MZ" + bytes(58) + (64).to_bytes(4, "little") + b"PE\0\0",
        "a.so": b"anything",
        "thrice.zip": in_zip(("1.zip", in_zip(("2.zip", in_zip(("3.zip", in_zip(("x", b"")))))))),
        "a.7z": b"7z\xbc\xaf\x27\x1c" + bytes(40),
        "broken.gz": gzip.compress(b"text" * 999)[:20],
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        assert find_pickle(tmp_path / name) is not None, name
    assert find_pickle(tmp_path / "a.zip") == "has data/state, which is a pickle, which runs code when it is read"


def test_an_archive_is_unpacked_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pickles, "_LARGEST", 2**20)
    monkeypatch.setattr(pickles._Unpacked, "__init__", lambda self, size: setattr(self, "left", 2**22))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(5):
            archive.writestr(f"{number}.txt", b" " * 2**20)
    (tmp_path / "four.zip").write_bytes(in_zip(*((f"{number}.txt", b" " * 2**20) for number in range(4))))
    (tmp_path / "five.zip").write_bytes(content.getvalue())
    (tmp_path / "one.zip").write_bytes(in_zip(("large.txt", b" " * (2**20 + 1))))
    (tmp_path / "one.gz").write_bytes(gzip.compress(b" " * (2**20 + 1)))
    assert find_pickle(tmp_path / "four.zip") is None
    for name in ("five.zip", "one.zip", "one.gz"):
        assert "an archive with more than 1 MiB in a file" in str(find_pickle(tmp_path / name))


def test_other_files_are_no_pickles(tmp_path: Path) -> None:
    # The first bytes of a safetensors file whose header has 640 bytes, 0x80 0x02, are those of a pickle.
    cases = {
        "model.safetensors": (640).to_bytes(8, "little") + b"{}".ljust(640),
        "numbers.npy": saved(np.zeros(3)),
        "numbers.npz": saved(np.zeros(3), archive=True),
        "corpus.zip": in_zip(("train.txt", b"text"), ("parts.zip", in_zip(("a.json", b"{}")))),
        "corpus.tar.gz": in_tar("train.txt", b"text", "w:gz"),
        "corpus.jsonl.gz": gzip.compress(b"{}\n"),
        "words.txt": b"The cat sat on the mat.\n",
        "vocab.txt": b"c\nd\ne\n",
        "requirements.txt": b"torch==2.11.0\n",  # each character up to the full stop is an operation of a pickle
        "sentences.txt": b"cats\nand dogs\n. A line.",
        "words_of_a_line.txt": b"cats\ndogs\nrabbits\n",
        "numbers.txt": b"I0x1\n.",
        "MZ.txt": b"MZ is a place" + bytes(60),
        "empty": b"",
        "windows.txt": b"ab\r\n0123456789ab\xe3\x81\x82",
    }
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        assert find_pickle(tmp_path / name) is None, name


# Formats, links and devices


def test_only_known_formats_are_published_and_others_are_named(tmp_path: Path) -> None:
    published = ["LICENSE", "README.md", "model.safetensors", "parts/spiece.model", "train.parquet"]
    others = ["features.npz", "state.pkl", "train.log", "Thumbs.db"]
    for name in [*published, *others, "checkpoints/x.json", "logs/x.txt", ".git/x.txt", "half.json.part"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"text")
    assert repository_files(tmp_path) == published
    left_out = unpublished_files(tmp_path, published)
    assert left_out.keys() == {*others}
    assert left_out["train.log"] == "its format is published only if asked for: --include 'train.log'"
    assert left_out["state.pkl"] == "never published, because reading it can run code"
    assert repository_files(tmp_path, ["*.npz", "train.log"]) == sorted([*published, "features.npz", "train.log"])
    write_manifest(tmp_path)
    (tmp_path / "attention.png").write_bytes(b"")
    names = published_files(tmp_path)
    assert names == sorted([*published, "manifest.json"])
    assert unpublished_files(tmp_path, names)["attention.png"] == "not listed in manifest.json; hfattn card adds it"
    assert "attention.png" in published_files(tmp_path, ["*.png"])


@pytest.mark.parametrize("kind", ["link", "loop", "dangling", "folder", "pipe", "socket"])
def test_links_and_devices_are_refused_in_one_sentence(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text("{}")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.chdir(run)
    match kind:
        case "pipe":
            os.mkfifo("x.json")
        case "socket":
            socket.socket(socket.AF_UNIX).bind("x.json")
        case _:
            targets = {"link": "../secret.txt", "loop": "x.json", "dangling": "nowhere", "folder": ".."}
            os.symlink(targets[kind], "x.json")
    said = "x.json is neither a file nor a folder" if kind in ("pipe", "socket") else "x.json is a symbolic link"
    with pytest.raises(UserError, match=said):
        check_regular(run)
    with pytest.raises(UserError, match=said):
        verify(run)
    with pytest.raises(UserError, match=said), frozen_copy(run, ["config.json"]):
        pass
    write_manifest(run)  # a finished run is not lost because of it
    assert published_files(run) == ["config.json", "manifest.json"]


def test_folders_without_end_are_refused_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(1100):  # Python calls itself at most 1000 times
        os.mkdir("a")
        os.chdir("a")
    monkeypatch.chdir(tmp_path)
    for words in (["verify", "."], ["card", "."], ["push", ".", "user/name"], ["inspect", "."]):
        if words[0] == "card":
            (tmp_path / "results.json").write_text("{}")
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2, done.exception
        assert "has more than 64 folders in one another; remove them." in done.stderr
    subprocess.run(["rm", "-r", tmp_path / "a"], check=True)  # pytest could not


def test_an_error_of_a_push_names_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text("{}")
    (folder / "results.json").write_text("[]")
    done = CliRunner().invoke(app, ["push", str(folder), "user/name"])
    assert done.exit_code == 2
    assert f"error: {folder}/results.json is not an object of fields" in done.stderr


def test_a_frozen_copy_does_not_change_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("before")
    with frozen_copy(tmp_path, ["a.txt"]) as copy:
        (tmp_path / "a.txt").write_text("after")
        (tmp_path / "b.txt").write_text("new")
        assert {path.name: path.read_text() for path in copy.iterdir()} == {"a.txt": "before"}
        assert os.stat(copy.parent).st_mode & 0o077 == 0
    assert not copy.exists()


def test_no_rule_needs_more_than_linear_time(tmp_path: Path) -> None:
    """Long lines of what a rule begins with, as a vocabulary or a corpus in one line has them."""
    for piece in (
        "hf_",
        "https://a:",
        "aws key ",
        "eyJ.",
        "sk-proj-a",
        "D:\\a ",
        "\\\\aa",
        "//",
        "/home",
        "xoxb-1-",
        "AC",
    ):
        (tmp_path / "line.txt").write_text(piece * 100_000)
        begun = time.monotonic()
        find_secret(tmp_path / "line.txt", set())
        assert time.monotonic() - begun < 10, piece

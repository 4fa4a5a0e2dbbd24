"""The Hub of `hub_server` against the real client."""

import importlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import LFS_THRESHOLD, Blob, FaultKind, Hub, HubServer
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, HfFileSystem, constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

NAME = "user/name"
httpx: Any = importlib.import_module(HTTPError.__module__.partition(".")[0])  # httpx2 since huggingface-hub 2


@pytest.fixture
def hub() -> Iterator[Hub]:
    with HubServer() as hub:
        yield hub


@pytest.fixture
def api(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return HfApi(endpoint=hub.url, token=hub.token)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with each way that a file travels: text, LFS by name, LFS by size, in a folder, empty."""
    files = {
        "README.md": b"---\nlibrary_name: hfattn\ntags: [a, b]\n---\n# A model\n",
        "model.safetensors": bytes(range(256)) * 40,
        "corpus.txt": b"x" * (LFS_THRESHOLD + 1),
        "nested/deep/a b%.txt": "Ångström\n".encode(),
        "empty.bin": b"",
    }
    for path, data in files.items():
        (tmp_path / "folder" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / path).write_bytes(data)
    return tmp_path / "folder"


def contents(folder: str | Path) -> dict[str, bytes]:
    """The files of a repository in a folder, less what the server and the client add on their own."""
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
    return {path: data for path, data in files.items() if not path.startswith((".gitattributes", ".cache/"))}


def endpoints(hub: Hub) -> list[str]:
    return [request.endpoint for request in hub.requests]


def test_account_and_repositories(hub: Hub, api: HfApi) -> None:
    assert api.whoami()["name"] == hub.user
    for kind in ("model", "dataset", "space"):
        url = api.create_repo(NAME, repo_type=kind, private=True, space_sdk="gradio" if kind == "space" else None)
        assert (url.repo_id, url.repo_type) == (NAME, kind)
        with pytest.raises(HfHubHTTPError, match="409"):
            api.create_repo(NAME, repo_type=kind, space_sdk="gradio" if kind == "space" else None)
        assert api.create_repo(NAME, repo_type=kind, space_sdk="static" if kind == "space" else None, exist_ok=True)
        assert api.repo_info(NAME, repo_type=kind).private
        assert not HfApi(endpoint=hub.url, token=False).repo_exists(NAME, repo_type=kind)
    assert api.space_info(NAME).sdk == "gradio"
    assert api.create_repo("short").repo_id == "user/short"


def test_upload_arrives_whole_and_once(hub: Hub, api: HfApi, folder: Path) -> None:
    api.create_repo(NAME)
    first = api.upload_folder(repo_id=NAME, folder_path=folder, commit_message="Upload", commit_description="All")
    files = hub.files("model", NAME)
    assert files.pop(".gitattributes")
    assert files == contents(folder)
    assert sorted(hub.lfs.values()) == sorted([files["model.safetensors"], files["corpus.txt"]])
    assert {"lfs_upload", "lfs_verify"} <= set(endpoints(hub))
    newest = api.list_repo_commits(NAME)[0]
    assert (newest.commit_id, newest.title, newest.message) == (first.oid, "Upload", "All")

    hub.requests.clear()
    again = api.upload_folder(repo_id=NAME, folder_path=folder)
    assert again.oid == first.oid
    assert not {"commit", "lfs_upload"} & set(endpoints(hub))

    # Content that the Hub has under another name is committed without a second transfer.
    api.upload_file(repo_id=NAME, path_or_fileobj=folder / "model.safetensors", path_in_repo="copy.safetensors")
    assert hub.files("model", NAME)["copy.safetensors"] == files["model.safetensors"]
    assert "lfs_upload" not in endpoints(hub)


def test_upload_that_breaks_on_the_way_is_refused(hub: Hub) -> None:
    oid = Blob(b"whole").sha256
    with httpx.Client(base_url=hub.url, trust_env=False) as client:
        assert client.put(f"/lfs/{oid}", content=b"who").status_code == 400
        assert client.put(f"/lfs/{oid}", content=iter([b"who", b"le"])).status_code == 200
    assert hub.lfs == {oid: b"whole"}


def test_description(hub: Hub, api: HfApi, folder: Path) -> None:
    hub.put("model", NAME, contents(folder))
    info = api.model_info(NAME, files_metadata=True)
    assert (info.sha, info.library_name, info.tags) == (hub.repos["model", NAME].head("main").oid, "hfattn", ["a", "b"])
    assert info.card_data is not None
    assert info.card_data.tags == ["a", "b"]
    sizes = {sibling.rfilename: (sibling.size, sibling.lfs is not None) for sibling in info.siblings or []}
    del sizes[".gitattributes"]
    lfs = {"model.safetensors", "corpus.txt"}
    assert sizes == {path: (len(data), path in lfs) for path, data in contents(folder).items()}

    assert api.list_repo_files(NAME) == sorted(hub.files("model", NAME))
    top = {entry.path: type(entry).__name__ for entry in api.list_repo_tree(NAME)}
    assert (top["nested"], top["README.md"]) == ("RepoFolder", "RepoFile")
    assert [entry.path for entry in api.list_repo_tree(NAME, "nested/deep")] == ["nested/deep/a b%.txt"]
    found = api.get_paths_info(NAME, ["nested", "corpus.txt", "nowhere"])
    assert [entry.path for entry in found] == ["nested", "corpus.txt"]
    with pytest.raises(ValueError, match="Invalid metadata"):
        api.upload_file(repo_id=NAME, path_or_fileobj=b"---\ntags: [\n---\n", path_in_repo="README.md")


@pytest.mark.parametrize("kind", ["model", "dataset", "space"])
def test_download_by_branch_and_commit(hub: Hub, api: HfApi, tmp_path: Path, kind: str) -> None:
    old = hub.put(kind, NAME, {"a.txt": b"old", "model.safetensors": b"\0old"})
    api.create_branch(NAME, branch="side/line", repo_type=kind)
    new = hub.put(kind, NAME, {"a.txt": b"new"})
    before = {"a.txt": b"old", "model.safetensors": b"\0old"}
    for revision, files in {"main": before | {"a.txt": b"new"}, "side/line": before, old: before}.items():
        where = api.snapshot_download(NAME, repo_type=kind, revision=revision, cache_dir=tmp_path / "cache")
        assert contents(where) == files
        assert Path(where).name == (new if revision == "main" else old)
    plain = api.snapshot_download(NAME, repo_type=kind, local_dir=tmp_path / "plain", allow_patterns="*.txt")
    assert contents(plain) == {"a.txt": b"new"}
    file = api.hf_hub_download(NAME, "a.txt", repo_type=kind, revision=old[:7], cache_dir=tmp_path / "one")
    assert Path(file).read_bytes() == b"old"


def test_branches(hub: Hub, api: HfApi) -> None:
    old, new = hub.put("model", NAME, {"a": b"1"}), hub.put("model", NAME, {"a": b"2"})
    api.create_branch(NAME, branch="side", revision=old)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(NAME, branch="side")
    api.create_branch(NAME, branch="side", exist_ok=True)
    side = api.upload_file(repo_id=NAME, path_or_fileobj=b"3", path_in_repo="a", revision="side").oid
    assert [commit.commit_id for commit in api.list_repo_commits(NAME, revision="side")][:2] == [side, old]
    assert hub.repos["model", NAME].head("main").oid == new


def test_commits_apply_in_order_or_not_at_all(hub: Hub, api: HfApi) -> None:
    start = hub.put("model", NAME, {"a": b"1", "folder/b": b"2", "folder/c/d": b"3", "folder.txt": b"4"})
    with pytest.raises(EntryNotFoundError):
        api.create_commit(NAME, [CommitOperationDelete("a"), CommitOperationDelete("nowhere")], commit_message="No")
    assert "a" in hub.files("model", NAME)
    operations: list[CommitOperationAdd | CommitOperationDelete]
    operations = [CommitOperationDelete("folder/"), CommitOperationDelete("a"), CommitOperationAdd("folder/e", b"5")]
    api.create_commit(NAME, operations, commit_message="Yes", parent_commit=start)
    assert set(hub.files("model", NAME)) == {".gitattributes", "folder.txt", "folder/e"}

    with pytest.raises(HfHubHTTPError, match="412"):
        api.upload_file(repo_id=NAME, path_or_fileobj=b"6", path_in_repo="late", parent_commit=start)
    assert "late" not in hub.files("model", NAME)
    api.delete_file("folder.txt", NAME)
    assert set(hub.files("model", NAME)) == {".gitattributes", "folder/e"}


def test_what_is_missing_has_its_own_error(hub: Hub, api: HfApi, tmp_path: Path) -> None:
    hub.put("model", NAME, {"a": b"1"})
    for name in ("user/nobody", "nobody"):
        with pytest.raises(RepositoryNotFoundError):
            api.repo_info(name)
        with pytest.raises(RepositoryNotFoundError):
            api.hf_hub_download(name, "a", cache_dir=tmp_path)
    with pytest.raises(RepositoryNotFoundError):
        api.snapshot_download(NAME, repo_type="dataset", cache_dir=tmp_path)
    for revision in ("nowhere", "refs/pr/1", "0" * 40):
        with pytest.raises(RevisionNotFoundError):
            api.snapshot_download(NAME, revision=revision, cache_dir=tmp_path)
    with pytest.raises(RevisionNotFoundError):
        api.upload_file(repo_id=NAME, path_or_fileobj=b"1", path_in_repo="b", revision="nowhere")
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(NAME, "b", cache_dir=tmp_path)
    with pytest.raises(EntryNotFoundError):
        list(api.list_repo_tree(NAME, "b"))
    assert not api.file_exists(NAME, "b")
    with pytest.raises(HfHubHTTPError, match="no such endpoint"):
        list(api.list_repo_likers(NAME))


@pytest.mark.parametrize("token", [False, "hf_wrong"])
def test_writing_needs_the_token(hub: Hub, api: HfApi, token: str | bool) -> None:
    hub.put("model", NAME, {"a": b"1"})
    stranger = HfApi(endpoint=hub.url, token=token)
    before = hub.files("model", NAME)
    for write in (
        lambda: stranger.create_repo("user/other"),
        lambda: stranger.upload_file(repo_id=NAME, path_or_fileobj=b"2", path_in_repo="a"),
        lambda: stranger.create_branch(NAME, branch="side"),
    ):
        with pytest.raises(HfHubHTTPError) as refusal:
            write()
        assert refusal.value.response.status_code == 401
    assert hub.files("model", NAME) == before
    assert list(hub.repos) == [("model", NAME)]
    assert list(hub.repos["model", NAME].branches) == ["main"]


def test_a_read_only_token_reads_and_writes_nothing(hub: Hub, api: HfApi, tmp_path: Path) -> None:
    hub.put("model", NAME, {"a": b"1"})
    hub.repos["model", NAME].private = True
    reader = HfApi(endpoint=hub.url, token=hub.read_token)
    assert reader.whoami()["auth"]["accessToken"]["role"] == "read"
    assert Path(reader.hf_hub_download(NAME, "a", cache_dir=tmp_path)).read_bytes() == b"1"
    for write in (
        lambda: reader.create_repo("user/other"),
        lambda: reader.upload_file(repo_id=NAME, path_or_fileobj=b"2", path_in_repo="a"),
        lambda: reader.upload_file(repo_id=NAME, path_or_fileobj=b"2", path_in_repo="a", create_pr=True),
        lambda: reader.delete_file("a", NAME),
        lambda: reader.create_branch(NAME, branch="side"),
    ):
        with pytest.raises(HfHubHTTPError, match="403 Forbidden: This token can only read"):
            write()
    assert hub.files("model", NAME)["a"] == b"1"
    assert list(hub.repos) == [("model", NAME)]
    assert not hub.repos["model", NAME].pull_requests


# Pull requests and long listings


@pytest.mark.parametrize("kind", ["model", "dataset"])
def test_pull_requests(hub: Hub, api: HfApi, kind: str, tmp_path: Path) -> None:
    start = hub.put(kind, NAME, {"a.txt": b"1", "b.bin": b"\0"})
    head = hub.put(kind, NAME, {"a.txt": b"2"})
    with pytest.raises(RevisionNotFoundError):
        api.hf_hub_download(NAME, "a.txt", repo_type=kind, revision="refs/pr/1", cache_dir=tmp_path)
    first = api.create_commit(
        NAME,
        [CommitOperationAdd("a.txt", b"3"), CommitOperationAdd("c.bin", b"\0c")],
        commit_message="Threes",
        commit_description="Better than twos",
        repo_type=kind,
        create_pr=True,
    )
    assert (first.pr_num, first.pr_revision) == (1, "refs/pr/1")
    addition = [CommitOperationAdd("d", b"4")]
    second = api.create_commit(
        NAME, addition, commit_message="Fours", repo_type=kind, create_pr=True, parent_commit=start
    )
    assert second.pr_revision == "refs/pr/2"
    assert hub.files(kind, NAME, "refs/pr/2")["a.txt"] == b"1"  # it begins where it was asked to
    assert hub.repos[kind, NAME].head("main").oid == head

    # It is read, and goes on, like any revision.
    where = api.snapshot_download(NAME, repo_type=kind, revision="refs/pr/1", cache_dir=tmp_path)
    assert contents(where) == {"a.txt": b"3", "b.bin": b"\0", "c.bin": b"\0c"}
    more = [CommitOperationAdd("e", b"5")]
    oid = api.create_commit(NAME, more, commit_message="Five", revision="refs/pr/1", repo_type=kind).oid
    assert [commit.commit_id for commit in api.list_repo_commits(NAME, revision="refs/pr/1", repo_type=kind)][:3] == [
        oid, first.oid, head
    ]  # fmt: skip


def test_a_tree_is_listed_page_by_page(hub: Hub, api: HfApi) -> None:
    hub.put("model", NAME, {f"folder/{number}": b"" for number in range(7)})
    hub.page = 3
    assert api.list_repo_files(NAME) == [".gitattributes", *(f"folder/{number}" for number in range(7))]
    assert endpoints(hub).count("tree") == 3  # nine entries: the folder is one


# Faults


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the client would have waited between its attempts."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=time.time, monotonic=time.monotonic)
    monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
    monkeypatch.setattr("huggingface_hub.file_download.time", clock)
    return waited


UPLOAD = ["create_repo", "validate_yaml", "preupload", "lfs_batch", "lfs_upload", "lfs_verify", "commit"]
# Where the client sends once only, so that whoever called it has to do so again.
SENT_ONCE = ("create_repo", "validate_yaml", "commit")
REPORTED = (HfHubHTTPError, httpx.TransportError, RuntimeError, ValueError)


@pytest.mark.parametrize("kind", ["drop", "lost", "cut", "500", "503", "429", "quota"])
@pytest.mark.parametrize("endpoint", UPLOAD)
def test_an_upload_that_meets_a_fault_is_made_once_by_the_same_call_again(
    hub: Hub, api: HfApi, sleeps: list[float], tmp_path: Path, endpoint: str, kind: FaultKind
) -> None:
    files = {"README.md": b"---\ntags: [a]\n---\n", "model.safetensors": b"\0weights", "code.py": b"x = 1\n"}
    for path, data in files.items():
        (tmp_path / path).write_bytes(data)

    def upload() -> None:
        api.create_repo(NAME, exist_ok=True)
        api.upload_folder(repo_id=NAME, folder_path=tmp_path)

    def commits() -> list[dict[str, bytes]]:
        history = hub.repos["model", NAME].head("main").history() if hub.repos else ()
        return [{path: blob.data for path, blob in commit.files.items()} for commit in history]

    hub.fault(endpoint, kind)
    if endpoint in SENT_ONCE or kind == "quota":
        with pytest.raises(REPORTED):
            upload()
        done = endpoint == "commit" and kind in ("lost", "cut")
        assert len(commits()) == (0 if endpoint == "create_repo" and kind not in ("lost", "cut") else 1 + done)
    else:
        upload()
        assert hub.requests[-1].status == 200
        assert sleeps == [1]
    assert not hub.faults
    upload()
    after, before = commits()
    assert {path: data for path, data in after.items() if path in files} == files
    assert list(before) == [".gitattributes"]
    assert list(hub.lfs.values()) == [b"\0weights"]


def test_what_changes_on_its_way_up_is_refused(hub: Hub, api: HfApi, sleeps: list[float]) -> None:
    hub.create("model", NAME)

    def upload() -> None:
        api.upload_file(repo_id=NAME, path_or_fileobj=b"\0weights", path_in_repo="model.safetensors")

    hub.fault("lfs_upload", "corrupt")
    with pytest.raises(RuntimeError, match=r"Error while uploading 'model\.safetensors'"):
        upload()
    assert not hub.lfs
    assert "model.safetensors" not in hub.files("model", NAME)
    upload()
    assert hub.files("model", NAME)["model.safetensors"] == b"\0weights"


@pytest.mark.parametrize("kind", ["drop", "lost", "cut", "503", "429"])
@pytest.mark.parametrize("endpoint", ["repo_info", "tree", "resolve"])
def test_a_download_that_meets_a_fault_is_right_after_the_same_call_again(
    hub: Hub, api: HfApi, sleeps: list[float], tmp_path: Path, endpoint: str, kind: FaultKind
) -> None:
    files = {"model.safetensors": b"\0weights", "code.py": b"x = 1\n", "empty": b""}
    hub.put("model", NAME, files)

    def download() -> dict[str, bytes]:
        paths = api.list_repo_files(NAME)
        where = api.snapshot_download(NAME, cache_dir=tmp_path / "cache", local_dir=tmp_path / "local", max_workers=1)
        assert {".gitattributes", *files} == set(paths)
        return contents(where)

    hub.fault(endpoint, kind, path="/model.safetensors" if endpoint == "resolve" else "")
    try:
        first = download()
    except (*REPORTED, LocalEntryNotFoundError):
        # Whatever has arrived by then has arrived whole.
        partial = contents(tmp_path / "local")
        assert partial.items() <= files.items()
    else:
        assert first == files
    assert not hub.faults
    assert download() == files


def test_a_download_that_ends_in_the_middle_goes_on_from_there(
    hub: Hub, api: HfApi, sleeps: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The client drops a piece that is not whole, and one piece would be all of so small a file.
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1024)
    data = bytes(range(256)) * 400
    hub.put("model", NAME, {"model.safetensors": data})
    hub.fault("resolve", "cut", times=2)
    path = api.hf_hub_download(NAME, "model.safetensors", cache_dir=tmp_path)
    assert Path(path).read_bytes() == data
    asked = [request.headers.get("range") for request in hub.requests if request.method == "GET"]
    half, quarter = len(data) // 2, len(data) * 3 // 4
    assert asked == [None, f"bytes={half}-", f"bytes={quarter}-"]


def test_the_client_takes_a_wrong_byte_for_the_file(hub: Hub, api: HfApi, tmp_path: Path) -> None:
    """It looks at the length alone, and at nothing when asked again: whoever needs more has to compare checksums."""
    hub.put("model", NAME, {"model.safetensors": b"\0weights"})
    hub.fault("resolve", "corrupt")
    for _ in range(2):
        path = Path(api.hf_hub_download(NAME, "model.safetensors", cache_dir=tmp_path))
        assert path.stat().st_size == 8
        assert path.read_bytes() != b"\0weights"
    path = Path(api.hf_hub_download(NAME, "model.safetensors", cache_dir=tmp_path, force_download=True))
    assert path.read_bytes() == b"\0weights"


@pytest.mark.skipif(httpx.__name__ == "httpx", reason="huggingface-hub 1 waits only for some of its requests")
def test_the_client_waits_as_long_as_it_is_told(hub: Hub, api: HfApi, sleeps: list[float]) -> None:
    hub.put("model", NAME, {"a": b"1"})
    hub.fault("tree", "429", times=2, seconds=7)
    assert api.list_repo_files(NAME) == [".gitattributes", "a"]
    assert sleeps == [8, 8]  # a second more than the answer says
    hub.fault("tree", "503", times=6)
    with pytest.raises(HfHubHTTPError, match="503"):
        api.list_repo_files(NAME)
    assert not hub.faults


def test_others_are_served_while_one_waits(hub: Hub, api: HfApi) -> None:
    hub.put("model", NAME, {"a": b"1"})
    hub.fault("repo_info", "slow", seconds=1)
    with pytest.raises(httpx.ReadTimeout):
        api.repo_info(NAME, timeout=0.05)
    assert api.repo_info(NAME, timeout=0.8).id == NAME


def test_a_fault_that_nothing_would_notice_is_a_mistake(hub: Hub) -> None:
    with pytest.raises(ValueError, match="No endpoint is called 'lfs'"):
        hub.fault("lfs", "drop")
    with pytest.raises(ValueError, match="No kind of fault is called '418'"):
        hub.fault("commit", "418")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Only lfs_upload and resolve"):
        hub.fault("commit", "corrupt")


@pytest.mark.parametrize(
    ("asked", "status", "expected"),
    [
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=8-99", 206, b"89"),
        ("bytes=10-", 416, None),
        ("lines=1-2", 200, b"0123456789"),
    ],
)
def test_ranges(hub: Hub, asked: str, status: int, expected: bytes | None) -> None:
    oid = hub.put("model", NAME, {"a.bin": b"0123456789"})
    url = f"{hub.url}/{NAME}/resolve/main/a.bin"
    with httpx.Client(trust_env=False) as client:
        got = client.get(url, headers={"Range": asked})
        head = client.head(url)
    assert got.status_code == status
    assert expected is None or got.content == expected
    assert (head.content, head.headers["Content-Length"], head.headers["X-Linked-Size"]) == (b"", "10", "10")
    assert (head.headers["X-Repo-Commit"], head.headers["ETag"]) == (oid, f'"{Blob(b"0123456789").sha256}"')


def test_file_system(hub: Hub, api: HfApi) -> None:
    hub.put("dataset", NAME, {"a/b.txt": b"0123456789", "a/c/d.txt": b"1"})
    files = HfFileSystem(endpoint=hub.url, token=hub.token)
    assert files.find(f"datasets/{NAME}/a") == [f"datasets/{NAME}/a/b.txt", f"datasets/{NAME}/a/c/d.txt"]
    assert files.glob(f"datasets/{NAME}/**/*.txt") == files.find(f"datasets/{NAME}/a")
    with files.open(f"datasets/{NAME}@main/a/b.txt", "rb") as file:
        file.seek(4)
        assert file.read(3) == b"456"


LOAD = """
import json, os, sys
from datasets import load_dataset

for name in sys.argv[1:]:
    for streaming in (False, True):
        rows = load_dataset(name, split="train", streaming=streaming)
        print(json.dumps([row["text"] for row in rows]))
sys.stdout.flush()
os._exit(0)  # the threads that stream a Parquet file sometimes abort the interpreter's shutdown
"""


def test_datasets_load(hub: Hub, tmp_path: Path) -> None:
    words = ["one", "two", "drei und zwanzig"]
    table = io.BytesIO()
    pq.write_table(pa.table({"text": words}), table)
    hub.put("dataset", "user/plain", {"train.txt": "".join(f"{word}\n" for word in words).encode()})
    lines = "".join(json.dumps({"text": word}) + "\n" for word in words)
    card = b"---\nconfigs:\n- config_name: default\n  data_files:\n  - {split: train, path: data/*.jsonl}\n---\n"
    hub.put("dataset", "user/lines", {"data/x.jsonl": lines.encode(), "README.md": card})
    hub.put("dataset", "user/table", {"data/train-00000-of-00001.parquet": table.getvalue()})
    command = [sys.executable, "-c", LOAD, "user/plain", "user/lines", "user/table"]
    # Variables that a developer's shell may hold; what the server hands out must win.
    shell = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "elsewhere")}
    environment = shell | hub.environment(tmp_path / "home")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [words] * 6
    assert not (tmp_path / "elsewhere").exists()


def test_connections_end_with_the_server() -> None:
    with httpx.Client(trust_env=False) as client:
        with HubServer() as hub:
            url = f"{hub.url}/api/models/{NAME}"
            assert client.get(url).status_code == 404
        with pytest.raises(httpx.TransportError):
            client.get(url)

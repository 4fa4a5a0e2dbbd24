"""A Hugging Face Hub in memory, for tests: the real client pushes to it and pulls from it over HTTP.

    with HubServer() as hub:
        HfApi(endpoint=hub.url, token=hub.token).create_repo("user/name")
        hub.put("dataset", "user/words", {"train.txt": b"one\\ntwo\\n"})
        hub.fault("commit", "lost")  # the next commit is made, and its answer does not arrive
        subprocess.run(command, env=os.environ | hub.environment(tmp_path))

It speaks the git-LFS side of the protocol, not Xet: a process that uploads needs `HF_HUB_DISABLE_XET=1`, which
`Hub.environment` sets. Gated repositories, discussions other than pull requests, and deleting are left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from functools import cached_property, partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from sys import exception
from typing import TYPE_CHECKING, Any, Literal, get_args
from urllib.parse import parse_qs, parse_qsl, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    import pytest

Json = dict[str, Any]

# The part of a web address that stands before the name of a repository, by kind of repository.
PREFIXES = {"model": "", "dataset": "datasets/", "space": "spaces/"}
LFS_THRESHOLD = 10 * 2**20
LFS_SUFFIXES = ("arrow", "bin", "gz", "model", "npz", "onnx", "parquet", "pt", "safetensors", "zip", "zst")
GIT_ATTRIBUTES = "".join(f"*.{suffix} filter=lfs diff=lfs merge=lfs -text\n" for suffix in LFS_SUFFIXES)


class HubError(Exception):
    """A refusal: an HTTP status and the code that the client turns into the type of its exception."""

    def __init__(self, status: int, message: str, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message, **({"X-Error-Code": code} if code else {}), **(headers or {})}


def _git_oid(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass(frozen=True)
class Blob:
    """The content of one file; with `lfs`, git itself holds only a pointer to it."""

    data: bytes = field(repr=False)
    lfs: bool = False

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(self.data)}\n"
        return text.encode()

    @cached_property
    def oid(self) -> str:
        return _git_oid(self.pointer if self.lfs else self.data)

    @property
    def lfs_info(self) -> Json:
        """Describes an LFS object; its sha256 is "oid" in a tree and "sha256" among the files of a repository."""
        return {"oid": self.sha256, "sha256": self.sha256, "size": len(self.data), "pointerSize": len(self.pointer)}

    @property
    def etag(self) -> str:
        """Names the content: the client files its download under it and compares it before an upload."""
        return self.sha256 if self.lfs else self.oid


@dataclass(frozen=True)
class Commit:
    """One state of all files of a repository, and the state before it."""

    title: str
    description: str
    files: Mapping[str, Blob]
    parent: Commit | None
    date: datetime = field(default_factory=lambda: datetime.now(UTC))

    @cached_property
    def oid(self) -> str:
        files = {path: blob.etag for path, blob in sorted(self.files.items())}
        content = [self.parent and self.parent.oid, self.title, self.description, files]
        return hashlib.sha1(json.dumps(content).encode()).hexdigest()

    def history(self) -> Iterator[Commit]:
        """This commit and its ancestors, newest first."""
        commit: Commit | None = self
        while commit:
            yield commit
            commit = commit.parent

    def missing(self) -> HubError:
        """The refusal of a path that is not in this commit."""
        # The client remembers that a file is missing, but only for a commit that it can name.
        return HubError(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": self.oid})

    def entry(self, path: str) -> Json | None:
        """The Hub's description of the file or folder at `path`, if there is one."""
        if blob := self.files.get(path):
            entry: Json = {"type": "file", "oid": blob.oid, "size": len(blob.data), "path": path}
            return entry | ({"lfs": blob.lfs_info} if blob.lfs else {})
        if inside := sorted((name, blob.oid) for name, blob in self.files.items() if name.startswith(f"{path}/")):
            return {"type": "directory", "oid": _git_oid(json.dumps(inside).encode()), "size": 0, "path": path}
        return None

    def paths(self, folder: str, recursive: bool) -> list[str]:
        """Paths of the files and folders in `folder` ("" is the root), or also of those below them."""
        prefix = f"{folder}/" if folder else ""
        found: set[str] = set()
        for path in self.files:
            if path.startswith(prefix):
                parts = path.removeprefix(prefix).split("/")
                found.update(prefix + "/".join(parts[:n]) for n in range(1, len(parts) + 1 if recursive else 2))
        return sorted(found)

    def wants_lfs(self, path: str, size: int, sample: bytes) -> bool:
        """Whether a file of this path, size and beginning belongs in LFS rather than in git."""
        attributes = self.files.get(".gitattributes", Blob(b"")).data.decode()
        patterns = [line.split()[0] for line in attributes.splitlines() if "filter=lfs" in line]
        matched = any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in patterns)
        # No LFS storage accepts an empty object, so the client sends an empty file to git whatever it is told.
        return size > 0 and (matched or size > LFS_THRESHOLD or b"\0" in sample)

    def card(self) -> Json:
        """The metadata at the head of README.md."""
        return _front_matter(self.files.get("README.md", Blob(b"")).data.decode())


@dataclass
class Repo:
    """One repository: its branches and tags, the number of its pull requests, and every commit that it ever had."""

    kind: str
    name: str
    private: bool = False
    sdk: str | None = None
    branches: dict[str, Commit] = field(default_factory=dict)
    tags: dict[str, Commit] = field(default_factory=dict)
    commits: dict[str, Commit] = field(default_factory=dict)
    pull_requests: int = 0
    proposals: dict[int, Json] = field(default_factory=dict)  # what the list of pull requests says of each
    scan: Json | None = None  # the Hub's own scan of the files

    def __post_init__(self) -> None:
        self.commit("main", {".gitattributes": Blob(GIT_ATTRIBUTES.encode())}, "initial commit")

    @property
    def path(self) -> str:
        return PREFIXES[self.kind] + self.name

    def commit(self, branch: str, files: Mapping[str, Blob], title: str, description: str = "") -> Commit:
        """Makes `files`, all files of the repository, the new head of `branch`."""
        commit = Commit(title, description, dict(files), self.branches.get(branch))
        self.branches[branch] = self.commits[commit.oid] = commit
        return commit

    def head(self, branch: str) -> Commit:
        """The last commit of `branch`; raises HubError for a branch that does not exist."""
        if branch not in self.branches:
            raise HubError(404, "Invalid rev id", "RevisionNotFound")
        return self.branches[branch]

    def propose(self, start: Commit) -> int:
        """Opens a pull request, the branch refs/pr/N, as yet without a commit of its own after `start`; returns N."""
        self.pull_requests += 1
        self.branches[f"refs/pr/{self.pull_requests}"] = start
        return self.pull_requests

    def resolve(self, revision: str) -> Commit:
        """The commit named by a branch, a tag, or an object id of which 7 digits suffice; raises HubError."""
        if commit := self.branches.get(revision) or self.tags.get(revision):
            return commit
        matches = [commit for oid, commit in self.commits.items() if len(revision) >= 7 and oid.startswith(revision)]
        if len(matches) != 1:
            raise HubError(404, "Invalid rev id", "RevisionNotFound")
        return matches[0]


@dataclass
class Request:
    """A request as it came in. `endpoint` names the `_Api` method that it reached, `status` what was answered."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = field(repr=False)
    endpoint: str = ""
    status: int = 0

    def json(self) -> Any:
        return json.loads(self.body)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() in ("1", "true")


@dataclass(frozen=True)
class Response:
    """An answer; one that is `cut` ends, and the connection with it, in the middle of its body."""

    status: int
    body: bytes
    headers: Mapping[str, str]
    cut: bool = False


FaultKind = Literal["drop", "lost", "cut", "corrupt", "slow", "429", "500", "503", "quota"]


@dataclass
class Fault:
    """What goes wrong with the next requests to an endpoint; `Hub.fault` says what each kind is."""

    endpoint: str
    kind: FaultKind
    times: int
    seconds: float
    path: str

    def concerns(self, request: Request) -> bool:
        # Half of an empty body is not a fault: a HEAD request would use it up unseen.
        bodiless = request.method == "HEAD" and self.kind in ("cut", "corrupt")
        return request.endpoint == self.endpoint and request.path.endswith(self.path) and not bodiless

    def before(self, request: Request) -> None:
        """What happens to a request on its way; raises where it goes no further, and nothing has changed."""
        match self.kind:
            case "drop":
                raise ConnectionAbortedError
            case "corrupt" if request.method == "PUT":
                request.body = _changed(request.body)
            case "429":
                raise HubError(429, "Too many requests", headers={"Retry-After": f"{self.seconds:.0f}"})
            case "500" | "503":
                raise HubError(int(self.kind), "Something is wrong with this Hub")
            case "quota":
                raise HubError(403, "Private repository storage limit reached, please upgrade your plan")

    def after(self, response: Response) -> Response:
        """What happens to an answer on its way, when all that was asked for has been done."""
        match self.kind:
            case "lost":
                raise ConnectionAbortedError
            case "cut":
                return replace(response, cut=True)
            case "corrupt" if response.status < 300:
                return replace(response, body=_changed(response.body))
        return response


def _changed(body: bytes) -> bytes:
    """As long as `body`, with another byte in the middle."""
    middle = len(body) // 2
    return body[:middle] + bytes(byte ^ 1 for byte in body[middle : middle + 1]) + body[middle + 1 :]


class Hub:
    """The state of the server and what a test does with it directly.

    Attributes:
        url: where it listens, the client's `endpoint`.
        user, token: the only account and its access token.
        organizations: those of the account, with its role in each.
        read_token: another token of the account, with which nothing can be written.
        repos: repositories by kind ("model", "dataset", "space") and name ("user/name").
        lfs: uploaded LFS objects by sha256.
        requests: every request received, oldest first.
        faults: those that have not happened yet.
        page: how many entries of a tree are listed in one answer.
    """

    user = "user"
    organizations = {"team": "write", "readers": "read"}
    token = "hf_test"
    read_token = "hf_read"
    page = 1000

    def __init__(self, url: str) -> None:
        self.url = url
        self.repos: dict[tuple[str, str], Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.lock = threading.RLock()

    def create(self, kind: str, name: str, *, private: bool = False, sdk: str | None = None) -> Repo:
        """Adds a repository that holds what a new one on the Hub does: a `.gitattributes`."""
        with self.lock:
            if kind not in PREFIXES:
                raise HubError(400, f"Invalid repo type, expected one of {', '.join(PREFIXES)}")
            if (kind, name) in self.repos:
                raise HubError(409, f"You already created this {kind} repo")
            repo = self.repos[kind, name] = Repo(kind, name, private, sdk)
            return repo

    def repo(self, kind: str, name: str) -> Repo:
        """The repository of this kind and name; raises HubError where there is none."""
        if (kind, name) not in self.repos:
            raise HubError(404, "Repository not found", "RepoNotFound")
        return self.repos[kind, name]

    def put(self, kind: str, name: str, files: Mapping[str, bytes], *, branch: str = "main") -> str:
        """Commits `files` beside those already there, in a new repository if need be; returns the commit's id."""
        with self.lock:
            repo = self.repos.get((kind, name)) or self.create(kind, name)
            head = repo.head(branch)
            blobs = {path: Blob(data, head.wants_lfs(path, len(data), data[:512])) for path, data in files.items()}
            self.lfs.update({blob.sha256: blob.data for blob in blobs.values() if blob.lfs})
            return repo.commit(branch, {**head.files, **blobs}, "Put files").oid

    def merge(self, kind: str, name: str, number: int) -> str:
        """Merges a pull request whose files are those of the last commit and others; returns the commit's id."""
        with self.lock:
            repo = self.repo(kind, name)
            proposed = repo.head(f"refs/pr/{number}")
            repo.proposals[number]["status"] = "merged"
            return repo.commit("main", {**repo.head("main").files, **proposed.files}, proposed.title).oid

    def files(self, kind: str, name: str, revision: str = "main") -> dict[str, bytes]:
        """All files of a repository at a branch or commit; raises HubError where there is no such thing."""
        with self.lock:
            return {path: blob.data for path, blob in self.repo(kind, name).resolve(revision).files.items()}

    def fault(self, endpoint: str, kind: FaultKind, times: int = 1, *, seconds: float = 0, path: str = "") -> None:
        """Makes the next requests to an endpoint go wrong. Each is done wholly or not at all, as on the real Hub.

        Not done are those of the kinds "drop" (the connection ends, as if nothing had come), "500", "503", "429"
        (with a Retry-After of `seconds`), "quota" (the storage of the account is full) and, where a file is uploaded,
        "corrupt" (another byte arrives than was sent). Done are "lost" (the connection ends before the answer), "cut"
        (it ends in the middle of the answer's body), "slow" (the answer comes after `seconds`) and, where a file is
        downloaded, "corrupt".

        Args:
            endpoint: name of an `_Api` method, such as "create_repo", "lfs_upload" or "resolve".
            kind: one of the above.
            times: how many requests are concerned.
            seconds: duration of "slow" and "429".
            path: the end of the path of the requests that are meant, such as "/model.safetensors"; default: all.

        Raises:
            ValueError: there is no such endpoint or kind, or nothing checks what the endpoint receives or sends.
        """
        if endpoint not in {route.endpoint.__name__ for route in ROUTES}:
            raise ValueError(f"No endpoint is called {endpoint!r}")
        if kind not in get_args(FaultKind):
            raise ValueError(f"No kind of fault is called {kind!r}")
        if kind == "corrupt" and endpoint not in ("lfs_upload", "resolve"):
            raise ValueError("Only lfs_upload and resolve carry content that has a checksum")
        self.faults.append(Fault(endpoint, kind, times, seconds, path))

    def fault_of(self, request: Request) -> Fault | None:
        """The fault that this request meets, if any, which has then happened once."""
        for fault in self.faults:
            if fault.concerns(request):
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                return fault
        return None

    def environment(self, home: Path) -> dict[str, str]:
        """Variables to lay over `os.environ`, with which a process talks to this server and keeps its caches in `home`.

        The client reads them when it is imported.
        """
        return {
            "HF_ENDPOINT": self.url,
            "HF_TOKEN": self.token,
            "HF_HOME": str(home),
            # Each of these, where it is inherited, outranks HF_HOME or the online mode.
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_DATASETS_CACHE": str(home / "datasets"),
            "HF_MODULES_CACHE": str(home / "modules"),
            "HF_HUB_OFFLINE": "0",
            "HF_DATASETS_OFFLINE": "0",
            "TRANSFORMERS_OFFLINE": "0",
            # The rest keeps the client from hosts other than this one.
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_DISABLE_UPDATE_CHECK": "1",
            "HF_UPDATE_DOWNLOAD_COUNTS": "0",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def take_over(self, monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
        """For the length of a test, this process talks to this server and keeps its caches in `home`.

        Of no use to what copied the client's constants when it was imported, as transformers and datasets do.
        """
        from huggingface_hub import constants, hf_api

        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        monkeypatch.setattr(hf_api.api, "endpoint", self.url)  # of the functions that the package exports
        # The default addresses of files were made from the endpoint at import.
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", self.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(home / "hub"))
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", self.token)


class _Api:
    """The endpoints: each method answers the requests that `ROUTES`, below, sends to it."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def answer(self, request: Request) -> Response:
        """What the endpoint says; raises ConnectionAbortedError where a fault keeps that from arriving."""
        with self.hub.lock:
            self.hub.requests.append(request)
            call = self._route(request)
            fault = self.hub.fault_of(request)
        if fault and fault.kind == "slow":
            time.sleep(fault.seconds)  # others are served meanwhile
        with self.hub.lock:
            try:
                if fault:
                    fault.before(request)
                response = call()
            except HubError as error:
                response = _json({"error": str(error)}, error.status, error.headers)
            if fault:
                response = fault.after(response)
            request.status = response.status
            return response

    def _route(self, request: Request) -> Callable[[], Response]:
        # A HEAD request is answered as GET: whoever sends the response leaves out its body.
        method = "GET" if request.method == "HEAD" else request.method
        for route in ROUTES:
            if route.method == method and (match := route.pattern.fullmatch(request.path)):
                request.endpoint = route.endpoint.__name__
                values = {key: unquote(value) for key, value in match.groupdict(default="model").items()}
                return partial(self._call, route, request, values)
        return self._no_endpoint

    def _no_endpoint(self) -> Response:
        raise HubError(404, "This test Hub has no such endpoint")

    def _call(self, route: Route, request: Request, values: dict[str, str]) -> Response:
        known = self._authenticate(request, route.access)
        if "name" not in values:
            return route.endpoint(self, request, **values)
        repo = self.hub.repo(values.pop("kind"), values.pop("name"))
        if repo.private and not known:
            raise HubError(404, "Repository not found", "RepoNotFound")
        return route.endpoint(self, request, repo, **values)

    def _authenticate(self, request: Request, access: Access) -> bool:
        """Whether the request comes from the account; raises HubError if it must and does not, or may not write."""
        if "authorization" not in request.headers:
            if access != "anyone":
                raise HubError(401, "Invalid username or password.")
            return False
        roles = {f"Bearer {self.hub.token}": "write", f"Bearer {self.hub.read_token}": "read"}
        role = roles.get(request.headers["authorization"])
        if role is None:
            raise HubError(401, "Invalid credentials in Authorization header")
        if access == "write" and role == "read":
            raise HubError(403, "This token can only read")
        return True

    # Account and repositories

    def whoami(self, request: Request) -> Response:
        role = "read" if request.headers["authorization"].endswith(self.hub.read_token) else "write"
        user, token = self.hub.user, {"displayName": "test", "role": role}
        orgs = [{"name": name, "roleInOrg": role} for name, role in self.hub.organizations.items()]
        return _json({"type": "user", "name": user, "fullname": user, "orgs": orgs, "auth": {"accessToken": token}})

    def validate_yaml(self, request: Request) -> Response:
        import yaml

        try:
            _front_matter(request.json()["content"])
        except yaml.YAMLError as error:
            return _json({"errors": [{"message": str(error)}], "warnings": []}, 400)
        return _json({"errors": [], "warnings": []})

    def create_repo(self, request: Request) -> Response:
        payload = request.json()
        kind, name = self._repo_of(payload)
        url = f"{self.hub.url}/{PREFIXES.get(kind, '')}{name}"
        try:
            self.hub.create(kind, name, private=payload.get("visibility") == "private", sdk=payload.get("sdk"))
        except HubError as error:
            # A client that allows the repository to exist reads its address from the refusal.
            return _json({"error": str(error), "url": url}, error.status, error.headers)
        return _json({"url": url, "name": name})

    def _repo_of(self, payload: Json) -> tuple[str, str]:
        return payload.get("type") or "model", f"{payload.get('organization') or self.hub.user}/{payload['name']}"

    # Reading

    def repo_info(self, request: Request, repo: Repo, revision: str = "main") -> Response:
        commit, siblings = repo.resolve(revision), []
        for path, blob in sorted(commit.files.items()):
            sibling: Json = {"rfilename": path}
            if request.flag("blobs"):
                sibling |= {"size": len(blob.data), "blobId": blob.oid, "lfs": blob.lfs_info if blob.lfs else None}
            siblings.append(sibling)
        card = commit.card()
        facts = {key: card[key] for key in ("library_name", "pipeline_tag", "model-index") if key in card}
        info = {
            "id": repo.name,
            "author": repo.name.split("/")[0],
            "sha": commit.oid,
            "createdAt": _timestamp([*commit.history()][-1].date),
            "lastModified": _timestamp(commit.date),
            "private": repo.private,
            "gated": False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": card.get("tags", []),
            "cardData": card,
            "siblings": siblings,
            **({"securityRepoStatus": repo.scan} if repo.scan and request.flag("securityStatus") else {}),
        }
        return _json(info | facts | ({"sdk": repo.sdk} if repo.sdk else {}))

    def auth_check(self, request: Request, repo: Repo) -> Response:
        if request.headers["authorization"].endswith(self.hub.read_token):
            raise HubError(403, "This token can only read")
        if repo.name.split("/")[0] not in {self.hub.user, *self.hub.organizations}:
            raise HubError(403, "You have read access but not the required permissions for this operation")
        return _json({})

    def refs(self, request: Request, repo: Repo) -> Response:
        def listed(kind: str, commits: Mapping[str, Commit]) -> list[Json]:
            return [
                {"name": name, "ref": f"refs/{kind}/{name}", "targetCommit": commit.oid}
                for name, commit in commits.items()
            ]

        return _json({"branches": listed("heads", repo.branches), "converts": [], "tags": listed("tags", repo.tags)})

    def tree(self, request: Request, repo: Repo, revision: str, path: str = "") -> Response:
        commit = repo.resolve(revision)
        paths = commit.paths(path, request.flag("recursive"))
        if path and not paths:
            raise commit.missing()
        start = int(request.query.get("cursor", 0))
        stop = start + self.hub.page
        following = f"{self.hub.url}{request.path}?{urlencode({**request.query, 'cursor': stop})}"
        headers = {"Link": f'<{following}>; rel="next"'} if stop < len(paths) else {}
        return _json([commit.entry(each) for each in paths[start:stop]], headers=headers)

    def paths_info(self, request: Request, repo: Repo, revision: str) -> Response:
        form, commit = parse_qs(request.body.decode()), repo.resolve(revision)
        return _json([entry for path in form.get("paths", []) if (entry := commit.entry(path.rstrip("/")))])

    def list_commits(self, request: Request, repo: Repo, revision: str) -> Response:
        def described(commit: Commit) -> Json:
            text = {"title": commit.title, "message": commit.description}
            return {"id": commit.oid, "date": _timestamp(commit.date), "authors": [{"user": self.hub.user}], **text}

        return _json([described(commit) for commit in repo.resolve(revision).history()])

    def discussions(self, request: Request, repo: Repo) -> Response:
        asked = request.query
        closed = {"open": ("open",), "closed": ("merged", "closed")}.get(asked.get("status", ""))
        found = [
            each
            for each in repo.proposals.values()
            if asked.get("author") in (None, each["author"]["name"]) and (closed is None or each["status"] in closed)
        ]
        start = int(asked.get("p", 0)) * self.hub.page
        shown = found[start : start + self.hub.page]
        return _json({"discussions": shown, "count": len(found), "start": start})

    def resolve(self, request: Request, repo: Repo, revision: str, path: str) -> Response:
        commit = repo.resolve(revision)
        if path not in commit.files:
            raise commit.missing()
        blob = commit.files[path]
        data, size = blob.data, len(blob.data)
        headers = {"ETag": f'"{blob.etag}"', "X-Repo-Commit": commit.oid, "Accept-Ranges": "bytes"}
        headers["Content-Type"] = "application/octet-stream"
        if blob.lfs:
            headers |= {"X-Linked-Size": str(size), "X-Linked-ETag": f'"{blob.etag}"'}
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if request.method == "HEAD" or not asked or not any(asked.groups()):
            return Response(200, data, headers)
        if asked[1]:
            start, stop = int(asked[1]), min(int(asked[2] or size) + 1, size)
        else:
            start, stop = max(size - int(asked[2]), 0), size
        if start >= stop:
            raise HubError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
        return Response(206, data[start:stop], headers | {"Content-Range": f"bytes {start}-{stop - 1}/{size}"})

    # Writing

    def create_branch(self, request: Request, repo: Repo, branch: str) -> Response:
        if branch in repo.branches:
            raise HubError(409, "Reference already exists")
        repo.branches[branch] = repo.resolve(request.json().get("startingPoint", "main"))
        return _json({})

    def create_tag(self, request: Request, repo: Repo, revision: str) -> Response:
        name = request.json()["tag"]
        if name in repo.tags:
            raise HubError(409, "Reference already exists")
        repo.tags[name] = repo.resolve(revision)
        return _json({})

    def preupload(self, request: Request, repo: Repo, revision: str) -> Response:
        head = repo.head(revision)
        files = []
        for file in request.json()["files"]:
            path, size, sample = file["path"], file["size"], base64.b64decode(file["sample"])
            mode = "lfs" if head.wants_lfs(path, size, sample) else "regular"
            # The etag is how the client finds out that a file has not changed, and leaves it out of its commit.
            known = {"oid": head.files[path].etag} if path in head.files else {}
            files.append({"path": path, "uploadMode": mode, "shouldIgnore": False, **known})
        return _json({"files": files})

    def lfs_batch(self, request: Request, repo: Repo) -> Response:
        objects = []
        for each in request.json()["objects"]:
            address = f"{self.hub.url}/lfs/{each['oid']}"
            actions = {"upload": {"href": address}, "verify": {"href": f"{address}/verify"}}
            # An object without actions is one that need not be uploaded again.
            objects.append(each if each["oid"] in self.hub.lfs else {**each, "actions": actions})
        return _json({"transfer": "basic", "objects": objects})

    def lfs_upload(self, request: Request, oid: str) -> Response:
        if hashlib.sha256(request.body).hexdigest() != oid:
            raise HubError(400, "The content does not have the announced sha256")
        self.hub.lfs[oid] = request.body
        return _json({})

    def lfs_verify(self, request: Request, oid: str) -> Response:
        if oid not in self.hub.lfs or len(self.hub.lfs[oid]) != request.json()["size"]:
            raise HubError(422, "The object was not uploaded, or not whole")
        return _json({})

    def commit(self, request: Request, repo: Repo, revision: str) -> Response:
        proposal = request.flag("create_pr")
        head = repo.head(revision)
        files, title, description = dict(head.files), "", ""
        for line in request.body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            match operation["key"]:
                case "header":
                    title, description = value["summary"], value.get("description", "")
                    parent = value.get("parentCommit", head.oid)
                    if proposal:
                        head = repo.resolve(parent)
                        files = dict(head.files)
                    elif not head.oid.startswith(parent):
                        raise HubError(412, "A commit has happened since. Please refresh and try again.")
                case "file":
                    files[value["path"]] = Blob(base64.b64decode(value["content"]))
                case "lfsFile":
                    if value["oid"] not in self.hub.lfs:
                        raise HubError(400, "A file points to an LFS object that was not uploaded")
                    files[value["path"]] = Blob(self.hub.lfs[value["oid"]], lfs=True)
                case "deletedFile" | "deletedFolder" as key:
                    path = value["path"].rstrip("/")
                    gone = [p for p in files if (p == path if key == "deletedFile" else p.startswith(f"{path}/"))]
                    if not gone:
                        raise head.missing()
                    files = {path: blob for path, blob in files.items() if path not in gone}
                case key:
                    raise HubError(400, f"Unknown operation {key}")
        address, links = f"{self.hub.url}/{repo.path}", {}
        if proposal:
            number = repo.propose(head)
            repo.proposals[number] = {
                "num": number,
                "title": title,
                "author": {"name": self.hub.user},
                "createdAt": _timestamp(datetime.now(UTC)),
                "status": "open",
                "isPullRequest": True,
                "repo": {"name": repo.name, "type": repo.kind},
            }
            revision, links = f"refs/pr/{number}", {"pullRequestUrl": f"{address}/discussions/{number}"}
        oid = repo.commit(revision, files, title, description).oid
        return _json(
            {"success": True, "commitOid": oid, "commitUrl": f"{address}/commit/{oid}", "hookOutput": ""} | links
        )


_PLACEHOLDERS = {
    "{kind}": r"(?P<kind>model|dataset|space)s",
    # Web addresses of models bear no kind.
    "{web}": r"(?:(?P<kind>dataset|space)s/)?",
    # The oldest models of the real Hub have no owner: looking for one here must end in RepoNotFound.
    "{name}": r"(?P<name>[^/]+(?:/[^/]+)?)",
    "{path}": r"(?P<path>.+)",
    "{revision}": r"(?P<revision>[^/]+)",
    "{branch}": r"(?P<branch>[^/]+)",
    "{oid}": r"(?P<oid>[0-9a-f]{64})",
}

# Whose requests an endpoint answers: anyone's, those with a token of the account, those with one that can write.
Access = Literal["anyone", "account", "write"]


@dataclass(frozen=True)
class Route:
    """Which requests an endpoint answers.

    Paths are matched while still quoted, since a revision such as refs/pr/1 comes as one quoted segment.
    """

    method: str
    template: str
    endpoint: Callable[..., Response]
    access: Access = "anyone"

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        parts = re.split(r"({\w+})", self.template)
        return re.compile("".join(_PLACEHOLDERS.get(part) or re.escape(part) for part in parts))


ROUTES = [
    Route("GET", "/api/whoami-v2", _Api.whoami, "account"),
    Route("POST", "/api/validate-yaml", _Api.validate_yaml),
    Route("POST", "/api/repos/create", _Api.create_repo, "write"),
    Route("GET", "/api/{kind}/{name}", _Api.repo_info),
    Route("GET", "/api/{kind}/{name}/revision/{revision}", _Api.repo_info),
    Route("GET", "/api/{kind}/{name}/auth-check/write", _Api.auth_check, "account"),
    Route("GET", "/api/{kind}/{name}/refs", _Api.refs),
    Route("GET", "/api/{kind}/{name}/tree/{revision}", _Api.tree),
    Route("GET", "/api/{kind}/{name}/tree/{revision}/{path}", _Api.tree),
    Route("POST", "/api/{kind}/{name}/paths-info/{revision}", _Api.paths_info),
    Route("GET", "/api/{kind}/{name}/commits/{revision}", _Api.list_commits),
    Route("GET", "/api/{kind}/{name}/discussions", _Api.discussions),
    Route("GET", "/{web}{name}/resolve/{revision}/{path}", _Api.resolve),
    Route("POST", "/api/{kind}/{name}/branch/{branch}", _Api.create_branch, "write"),
    Route("POST", "/api/{kind}/{name}/tag/{revision}", _Api.create_tag, "write"),
    Route("POST", "/api/{kind}/{name}/preupload/{revision}", _Api.preupload, "write"),
    Route("POST", "/{web}{name}.git/info/lfs/objects/batch", _Api.lfs_batch, "write"),
    # The client sends no token here: on the real Hub this is a signed address of another host.
    Route("PUT", "/lfs/{oid}", _Api.lfs_upload),
    Route("POST", "/lfs/{oid}/verify", _Api.lfs_verify, "write"),
    Route("POST", "/api/{kind}/{name}/commit/{revision}", _Api.commit, "write"),
]


def _timestamp(date: datetime) -> str:
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _front_matter(readme: str) -> Json:
    import yaml

    match = re.match(r"---\s*\n(.*?)\n---\s*(?:\n|$)", readme, re.DOTALL)
    return (match and yaml.safe_load(match[1])) or {}


def _json(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    # YAML knows dates, JSON does not.
    body = json.dumps(value, default=str).encode()
    return Response(status, body, {"Content-Type": "application/json", **(headers or {})})


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Head and body leave in two writes; Nagle's algorithm would hold the second back for some 40 ms.
    disable_nagle_algorithm = True

    def _serve(self) -> None:
        address = urlsplit(self.path)
        headers = {key.lower(): value for key, value in self.headers.items()}
        request = Request(self.command, address.path, dict(parse_qsl(address.query)), headers, self._read_body())
        response = self.server.api.answer(request)
        self.send_response(response.status)
        for key, value in response.headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(response.body)))
        self.end_headers()
        if response.cut:
            self.wfile.write(response.body[: len(response.body) // 2])
            raise ConnectionAbortedError
        if self.command != "HEAD":
            self.wfile.write(response.body)

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _serve

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        chunks = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a test reads `Hub.requests` instead."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = Hub(f"http://127.0.0.1:{self.server_port}")
        self.api = _Api(self.hub)
        self.connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that streams may hang up before the end, and a fault does; anything else is a mistake in this file.
        if not isinstance(exception(), ConnectionError):
            super().handle_error(request, client_address)

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        # Without this, connections that clients keep open would be served on after the end.
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class HubServer:
    """Serves a new, empty `Hub` on a free local port for the length of a `with` block."""

    def __enter__(self) -> Hub:
        self._server = _Server()
        # The default poll of half a second is what leaving the block would take.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self._server.hub

    def __exit__(self, *error: object) -> None:
        self._server.stop()

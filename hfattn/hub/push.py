"""Push folders to the Hub: verify them, list the changes, then upload them as one commit."""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from ..errors import UserError
from ..files import write_json
from ..hub_access import hub_errors, no_token
from .card import with_model_id
from .contents import check_publishable
from .manifest import CARD, published_files, repository_files, unpublished_files
from .verify import verify

PUSHED = Path(".cache") / "hfattn" / "pushed.json"  # file with the commits made from this folder
_OWN = (".gitattributes",)  # written by the Hub itself


@dataclass(frozen=True)
class PushOptions:
    """How to push a folder.

    Attributes:
        private: whether a new repository is visible to its owner only.
        branch: branch of the repository, created if needed; None is ``main``.
        pr: propose the commit as a pull request instead.
        over: id of a commit by someone else that this push may replace.
        execute: send the commit; without it nothing is sent.
    """

    private: bool = False
    branch: str | None = None
    pr: bool = False
    over: str | None = None
    execute: bool = False


@dataclass
class PushPlan:
    """The changes that a push would make, or has made, to a repository.

    Attributes:
        repo_id, branch: target of the push.
        new: whether the repository does not exist yet.
        added, changed, unchanged: paths and their sizes in bytes.
        deleted: paths in the repository that the folder does not publish.
        unpublished: paths in a model folder that its manifest does not list; they are not sent.
        head: the commit that the push builds on; None in a new repository.
        url: address of the commit or the pull request; None for a dry run, and if nothing changes.
        executed: whether this was not a dry run; also true if there was nothing to commit.
        compared: whether the repository was read. A dry run without a token does not read it, and lists all files as
            added.
    """

    repo_id: str
    branch: str
    new: bool = False
    added: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    unchanged: dict[str, int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    head: str | None = None
    url: str | None = None
    executed: bool = False
    compared: bool = True

    @property
    def nothing_to_do(self) -> bool:
        return not (self.new or self.added or self.changed or self.deleted)

    def __str__(self) -> str:
        rows = [
            ("new" if self.compared else "file", self.added),
            ("changed", self.changed),
            ("unchanged", self.unchanged),
        ]
        lines = [f"{what:16}{_size(size):>12}  {name}" for what, files in rows for name, size in sorted(files.items())]
        lines += [f"{'deleted':16}{'':>12}  {name}" for name in sorted(self.deleted)]
        lines += [f"{'not published':16}{'':>12}  {name}" for name in self.unpublished]
        where = f"{self.repo_id}{'' if self.branch == 'main' else f' ({self.branch})'}"
        sent = _size(sum(self.added.values()) + sum(self.changed.values()))
        if self.nothing_to_do:
            lines.append(f"{where} is up to date.")
        elif self.executed:
            lines.append(f"Pushed to {where}: {self.url}")
        elif not self.compared:
            lines.append(
                f"A push would send {sent} to {where}. Nothing was sent, and without a token the repository was not "
                "read. To push, log in with hf auth login and add --execute."
            )
        else:
            kind = "a new repository" if self.new else f"a commit after {self.head and self.head[:7]}"
            lines.append(f"A push to {where} would make {kind} of {sent}. Nothing was sent; add --execute to push.")
        return "\n".join(lines)


def push(
    folder: Path,
    repo_id: str,
    options: PushOptions | None = None,
    *,
    repo_type: str = "model",
    space_sdk: str | None = None,
) -> PushPlan:
    """Push the published files of a folder as one commit; the repository then holds these files and no others.

    Unless ``options.execute`` is set, nothing is sent; without a token, the repository is not read either.

    A model folder is verified first. Files that the Hub already has are not sent again, so the same call continues an
    interrupted upload, and a folder that has not changed makes no commit. The code in the card of a model then loads it
    by ``repo_id``; the card in the folder is not changed. If the last commit of the repository was not
    made from this folder, nothing is replaced unless ``options.over`` names that commit.

    Args:
        folder: folder to push.
        repo_id: ``user/name``.
        options: how to push; by default, a dry run for the branch ``main``.
        repo_type: "model", "dataset" or "space".
        space_sdk: SDK of a new Space.

    Raises:
        UserError: the folder does not pass verification, or the Hub rejects the push or cannot be reached.
            Nothing on the Hub has changed, and repeating the call resumes the upload.
    """
    options = options or PushOptions()
    folder = Path(folder)
    if not folder.is_dir():
        raise UserError(f"{folder} was not found; give the folder of a finished run.")
    if options.execute:
        check_may_push(repo_id)
    else:
        check_repository_name(repo_id)
    revision = options.branch or "main"
    names = published_files(folder) if repo_type == "model" else repository_files(folder)
    if not names:
        raise UserError(f"{folder} has no file to push; give the folder of a finished run.")
    if repo_type == "model":
        report = verify(folder)
        if not report.passed:
            raise UserError(f"{folder} was not pushed, because it does not pass hfattn verify: {report.failures()}")
    else:
        check_publishable(folder)
    files: dict[str, Path | bytes] = {name: folder / name for name in names}
    if repo_type == "model" and CARD in files:
        files[CARD] = with_model_id((folder / CARD).read_bytes().decode(), repo_id).encode()
    unpublished = unpublished_files(folder) if repo_type == "model" else []
    if get_token() is None:
        return PushPlan(repo_id, revision, added=_sizes(files), unpublished=unpublished, compared=False)
    with _one_sentence(repo_id, revision):
        api = HfApi()
        plan = _plan(api, files, repo_id, repo_type, revision, options.pr)
        plan.unpublished = unpublished
        if not plan.new and not plan.nothing_to_do and not options.pr:
            _check_head(api, folder, plan, repo_type, options.over)
        plan.executed = options.execute
        if not options.execute or plan.nothing_to_do:
            return plan
        api.create_repo(
            repo_id, repo_type=repo_type, private=options.private or None, exist_ok=True, space_sdk=space_sdk
        )
        if (plan.head is None and not plan.new) or (plan.new and revision != "main"):
            api.create_branch(repo_id, repo_type=repo_type, branch=revision, exist_ok=True)
        head = plan.head or api.repo_info(repo_id, repo_type=repo_type, revision=revision).sha
        operations = [
            CommitOperationAdd(name, files[name]) for name in sorted(plan.added.keys() | plan.changed.keys())
        ] + [CommitOperationDelete(name) for name in sorted(plan.deleted)]
        commit = api.create_commit(
            repo_id,
            operations,
            commit_message=f"Push {folder.resolve().name} with hfattn",
            repo_type=repo_type,
            revision=revision,
            create_pr=options.pr,
            parent_commit=head,
        )
        plan.url = commit.pr_url if options.pr else commit.commit_url
        _check_arrived(api, files, repo_id, repo_type, commit.pr_revision if options.pr else commit.oid)
    if not options.pr:
        (folder / PUSHED).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / PUSHED, _pushed_commits(folder) | {_key(repo_type, plan): commit.oid})
    return plan


def _plan(
    api: HfApi, files: Mapping[str, Path | bytes], repo_id: str, repo_type: str, revision: str, pr: bool
) -> PushPlan:
    plan = PushPlan(repo_id, revision)
    sizes = _sizes(files)
    try:
        info = api.repo_info(repo_id, repo_type=repo_type, revision=revision)
    except RevisionNotFoundError:
        if pr:
            raise UserError(f"{repo_id} has no branch {revision!r} to open a pull request for; remove --pr.") from None
        # A new branch starts at main.
        info = api.repo_info(repo_id, repo_type=repo_type)
        there = _tree(api, repo_id, repo_type, info.sha)
    except RepositoryNotFoundError:
        plan.new, there = True, {}
    else:
        plan.head = info.sha
        there = _tree(api, repo_id, repo_type, info.sha)
    for name, size in sizes.items():
        kind = plan.added if name not in there else plan.unchanged if _same(files[name], there[name]) else plan.changed
        kind[name] = size
    plan.deleted = [name for name in there if name not in sizes and name not in _OWN]
    return plan


def _sizes(files: Mapping[str, Path | bytes]) -> dict[str, int]:
    return {name: len(file) if isinstance(file, bytes) else file.stat().st_size for name, file in files.items()}


def _tree(api: HfApi, repo_id: str, repo_type: str, revision: str | None) -> dict[str, RepoFile]:
    entries = api.list_repo_tree(repo_id, repo_type=repo_type, revision=revision, recursive=True)
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _same(file: Path | bytes, there: RepoFile) -> bool:
    """Return whether a file equals one on the Hub: by git's object id, or by SHA-256 if it is large."""
    if there.lfs is not None:
        with io.BytesIO(file) if isinstance(file, bytes) else file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == there.lfs.sha256
    data = file if isinstance(file, bytes) else file.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest() == there.blob_id


def _check_head(api: HfApi, folder: Path, plan: PushPlan, repo_type: str, over: str | None) -> None:
    """Check that the commit that a push builds on was made from this folder, or may be replaced."""
    own = _pushed_commits(folder).get(_key(repo_type, plan))
    if plan.head is None or not (plan.changed or plan.deleted) or own == plan.head:
        return
    if over is not None and len(over) >= 7 and plan.head.startswith(over):
        return
    last = api.list_repo_commits(plan.repo_id, repo_type=repo_type, revision=plan.head)[0]
    raise UserError(
        f"The last commit of {plan.repo_id} was not made from this folder ({plan.head[:7]}: {last.title!r}); look at "
        f"it, then add --over {plan.head[:7]} to replace it, or push to a --branch or as a --pr."
    )


def _check_arrived(
    api: HfApi, files: Mapping[str, Path | bytes], repo_id: str, repo_type: str, revision: str | None
) -> None:
    there = _tree(api, repo_id, repo_type, revision or "main")
    for name, file in files.items():
        if name not in there or not _same(file, there[name]):
            raise UserError(f"{name} did not arrive at {repo_id} as it was sent; try again.")


def _pushed_commits(folder: Path) -> dict[str, str]:
    path = folder / PUSHED
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _key(repo_type: str, plan: PushPlan) -> str:
    return f"{repo_type} {plan.repo_id} {plan.branch}"


def _size(size: int) -> str:
    value, units = float(size), ["B", "kB", "MB", "GB", "TB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{size} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def check_repository_name(repo_id: str) -> None:
    """Check the name of a repository.

    Raises:
        UserError: the Hub does not allow the name, or it does not name an owner.
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(
            f"The Hub allows no repository named {repo_id!r}; write USER/NAME with letters, digits, -, _ and ."
        ) from error
    if "/" not in repo_id:
        raise UserError(f"{repo_id!r} does not name the owner of the repository; write USER/{repo_id}.")


def check_may_push(repo_id: str) -> None:
    """Check that a push can succeed, before a long training.

    Raises:
        UserError: the Hub does not allow the name, or there is no token.
    """
    check_repository_name(repo_id)
    if get_token() is None:
        raise no_token()


@contextmanager
def _one_sentence(repo_id: str, revision: str) -> Iterator[None]:
    """Convert errors of the Hub and of the connection to one-sentence errors."""
    try:
        with hub_errors(repo_id, revision=revision, writing=True):
            yield
    except UserError:
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"The connection to the Hub broke ({type(error).__name__}); what was sent is kept, so try again."
        ) from error

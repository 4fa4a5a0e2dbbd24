"""Push folders to the Hub: verify them, list the changes, then upload them as one commit."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from huggingface_hub import (
    CommitOperationAdd,
    CommitOperationDelete,
    HfApi,
    get_token,
)
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import validate_repo_id

from ..errors import UserError
from ..files import write_json
from ..hub_access import hub_errors, no_token
from .card import read_results, with_model_id
from .code_findings import printable
from .contents import check_publishable
from .keyless import KEYLESS
from .manifest import (
    CARD,
    SIGNATURE,
    STATEMENTS,
    add_to_manifest,
    all_files,
    frozen_copy,
    matches,
    published_files,
    repository_files,
    unpublished_files,
)
from .signing import Key, check_key, check_signed, keep_signature, sign, signed_files
from .stated import missing_statements
from .statements import Statement, requests_of, valid_statements, with_statements
from .verify import verify

PUSHED = Path(".cache") / "hfattn" / "pushed.json"  # file with the commits made from this folder
_OF_OTHERS = (".gitattributes", f"{STATEMENTS}/*")  # not written by a push, which keeps them
_MODEL = ("config.json", "adapter_config.json", "baseline.json")
RESULTS = "results.json"
_DATA = (".arrow", ".csv", ".jsonl", ".parquet", ".tsv")


@dataclass(frozen=True)
class PushOptions:
    """How to push a folder.

    Attributes:
        private: whether a new repository is visible to its owner only. A model whose data are not public gets such a
            repository in any case, unless ``public`` is set.
        branch: branch of the repository, created if needed; None is ``main``.
        pr: propose the commit as a pull request instead.
        over: id of a commit by someone else that this push may replace.
        message: message of the commit; None names the folder.
        tag: name of a tag for the commit.
        include: patterns of paths or names, such as ``*.npz``, of files that are pushed although their format, or
            ``manifest.json``, leaves them out. Pickles are never pushed.
        execute: send the commit; without it nothing is sent.
        trust: whether code that is not that of hfattn may run where the kernel has no sandbox; see ``verify``.
        keep: whether files of the repository that the folder does not publish stay there.
        public: whether a new repository may be public although the data of the model are not.
        sign: file with the private key that signs the files of a model, or "keyless" for the identity of the job that
            runs; without it, a push of changed files removes the signature of the repository.
    """

    private: bool = False
    branch: str | None = None
    pr: bool = False
    over: str | None = None
    message: str | None = None
    tag: str | None = None
    include: tuple[str, ...] = ()
    execute: bool = False
    trust: bool = False
    keep: bool = False
    public: bool = False
    sign: Key | None = None


@dataclass(frozen=True)
class _Content:
    """The size of a file in bytes, and the hashes by which the Hub knows it: SHA-256 if it is large, or git's."""

    size: int
    sha256: str
    git: str


@dataclass
class PushPlan:
    """The changes that a push would make, or has made, to a repository.

    Attributes:
        repo_id, branch: target of the push.
        new, new_branch: whether the repository, or the branch in it, does not exist yet.
        added, changed, unchanged: paths and their sizes in bytes.
        deleted: paths in the repository that the folder does not publish.
        unpublished: paths in the folder that are not sent, with the reason.
        private: whether a new repository is visible to its owner only.
        visible_to: who can see the repository.
        warnings: what the card should state and does not.
        head: the commit that the push builds on; None in a new repository.
        tag: name of the tag that the commit gets.
        signer: who signs without a key; the identity is known once the files are sent.
        url: address of the commit or the pull request; None for a dry run, and if no file changes.
        executed: whether this was not a dry run; also true if there was nothing to commit.
        compared: whether the repository was read. A dry run without a token does not read it, and lists all files as
            added.
    """

    repo_id: str
    branch: str
    new: bool = False
    new_branch: bool = False
    added: dict[str, int] = field(default_factory=dict)
    changed: dict[str, int] = field(default_factory=dict)
    unchanged: dict[str, int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    unpublished: dict[str, str] = field(default_factory=dict)
    private: bool = False
    visible_to: str | None = None
    warnings: list[str] = field(default_factory=list)
    head: str | None = None
    tag: str | None = None
    signer: str | None = None
    url: str | None = None
    executed: bool = False
    compared: bool = True

    @property
    def nothing_to_do(self) -> bool:
        return not (self.new or self.new_branch or self.changes_files)

    @property
    def changes_files(self) -> bool:
        return bool(self.added or self.changed or self.deleted)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"nothing_to_do": self.nothing_to_do}

    def __str__(self) -> str:
        rows = [
            ("new" if self.compared else "file", self.added),
            ("changed", self.changed),
            ("unchanged", self.unchanged),
        ]
        lines = [f"{what:16}{_size(size):>12}  {name}" for what, files in rows for name, size in sorted(files.items())]
        lines += [f"{'deleted':16}{'':>12}  {name}" for name in sorted(self.deleted)]
        lines += [f"{'not published':16}{'':>12}  {name} ({why})" for name, why in self.unpublished.items()]
        lines += [f"Warning: {warning}" for warning in self.warnings]
        if self.visible_to is not None:
            lines.append(f"Visible to: {self.visible_to}")
        if self.signer is not None:
            lines.append(f"Signed by: {self.signer}")
        lines.append(self._outcome())
        return "\n".join(printable(line) for line in lines)

    def _outcome(self) -> str:
        where = f"{self.repo_id}{'' if self.branch == 'main' else f' ({self.branch})'}"
        sent = _size(sum(self.added.values()) + sum(self.changed.values()))
        tagged = f", tagged {self.tag}" if self.tag is not None else ""
        if self.nothing_to_do:
            return f"{where} is up to date{tagged if self.executed else ''}."
        if self.executed:
            return f"Pushed to {where}{tagged}: {self.url or 'a new branch, with the files of main'}"
        if not self.compared:
            return (
                f"A push would send {sent} to {where}. Nothing was sent, and without a token the repository was not "
                "read. To push, log in with hf auth login and add --execute."
            )
        kind = "a new repository" if self.new else f"a commit after {self.head[:7]}" if self.head else "a new branch"
        return f"A push to {where} would make {kind} of {sent}. Nothing was sent; add --execute to push."


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

    The files are copied first. The copy is verified, if it is a model, and the copy is sent: what a process changes in
    the folder in the meantime is not. Files that the Hub already has are not sent again, so the same call continues an
    interrupted upload, and a folder that has not changed makes no commit. The code in the card of a model then loads it
    by ``repo_id``; the card in the folder is not changed. If the last commit of the repository was not
    made from this folder, nothing is replaced unless ``options.over`` names that commit. The card names those who
    trained the model again, if the repository has their statements. An open pull request of this account with the same
    title and files is not opened again.

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
    if options.private and options.public:
        raise UserError("A repository is either private or public; leave out --private or --public.")
    if not folder.is_dir():
        raise UserError(f"{folder} was not found; give the folder of a finished run.")
    if options.pr and options.tag is not None:
        raise UserError("A pull request has no commit to tag until it is merged; leave out --tag or --pr.")
    if options.sign is not None:
        if repo_type != "model" or options.keep:
            raise UserError("Only a model with all its files is signed; leave out sign.")
        check_key(options.sign, folder)
    if options.execute:
        check_may_push(repo_id, repo_type, options.private)
    else:
        check_repository_name(repo_id)
    names = (published_files if repo_type == "model" else repository_files)(folder, options.include)
    _check_kind(folder, names, repo_type)
    for pattern in options.include:
        if not any(matches(name, [pattern]) for name in names):
            raise UserError(
                f"--include {pattern!r} matches no file of {folder}; hidden files, checkpoints and logs do not count."
            )
    with frozen_copy(folder, names, repo_id.rpartition("/")[2]) as copy:
        if repo_type == "model":
            if options.include:
                add_to_manifest(copy)
            if (copy / CARD).is_file() and (copy / RESULTS).is_file():  # the text of another author stays as it is
                card = with_model_id((copy / CARD).read_bytes().decode(), repo_id, options.tag)
                card = with_statements(card, _statements(repo_id, options.branch, copy))
                (copy / CARD).write_bytes(card.encode())
        plan = PushPlan(repo_id, options.branch or "main", tag=options.tag)
        plan.unpublished = unpublished_files(folder, names)
        plan.warnings = missing_statements(copy / CARD, folder, repo_type)
        if options.sign == KEYLESS:
            # Signed when all else is checked, because a signature without a key is entered in a public log.
            plan.signer = "the identity of this job, when the files are sent"
            (copy / SIGNATURE).unlink(missing_ok=True)
        elif options.sign is not None:
            sign(copy, options.sign)
        contents = {name: _content(copy / name) for name in all_files(copy)}
        if repo_type == "model" and SIGNATURE in contents:
            _check_signed(copy, contents, folder)
        if repo_type == "model":
            report = verify(copy, original=folder, trust=options.trust)
            if not report.passed:
                raise UserError(f"{folder} was not pushed, because it does not pass hfattn verify: {report.failures()}")
        else:
            check_publishable(copy, folder)
        if get_token() is None:
            plan.added = {name: content.size for name, content in contents.items()}
            plan.compared = False
            return plan
        with _one_sentence(repo_id, plan.branch):
            return _push(HfApi(), folder, copy, contents, plan, options, repo_type, space_sdk)


def _statements(repo_id: str, branch: str | None, copy: Path) -> list[Statement]:
    """Return the statements in the repository, if it exists and can be read, about the results that are pushed."""
    if get_token() is None:
        return []
    with _one_sentence(repo_id, branch or "main"):
        try:
            return valid_statements(HfApi(), repo_id, branch, copy)
        except (RepositoryNotFoundError, RevisionNotFoundError):
            return []


def _open_request(api: HfApi, copy: Path, plan: PushPlan, title: str, repo_type: str) -> str | None:
    """Return the address of an open pull request of this account with the same title and files, if there is one."""
    contents = {name: _content(copy / name) for name in all_files(copy)}
    for request in requests_of(api, plan.repo_id, repo_type, api.whoami(cache=True)["name"], title, "open"):
        there = _tree(api, plan.repo_id, repo_type, request.git_reference)
        more = {name for name in there.keys() - contents.keys() if not matches(name, _OF_OTHERS)}
        # Two signatures of the same files differ.
        same = all(
            name in there and (name == SIGNATURE or _same(content, there[name])) for name, content in contents.items()
        )
        if same and not more & set(plan.deleted):
            return str(request.url)
    return None


def _push(
    api: HfApi,
    folder: Path,
    copy: Path,
    contents: dict[str, _Content],
    plan: PushPlan,
    options: PushOptions,
    repo_type: str,
    space_sdk: str | None,
) -> PushPlan:
    repo_id = plan.repo_id
    _compare(api, folder, copy, contents, plan, repo_type, options)
    if plan.head is not None and plan.changes_files and not options.pr:
        _check_head(api, folder, plan, repo_type, options.over)
    plan.executed = options.execute
    if not options.execute:
        return plan
    if plan.new:
        api.create_repo(repo_id, repo_type=repo_type, private=plan.private or None, exist_ok=True, space_sdk=space_sdk)
    if plan.new_branch or (plan.new and plan.branch != "main"):
        api.create_branch(repo_id, repo_type=repo_type, branch=plan.branch, exist_ok=True)
    commit_id = plan.head or api.repo_info(repo_id, repo_type=repo_type, revision=plan.branch).sha
    title = options.message or f"Push {folder.resolve().name} with hfattn"
    if plan.changes_files and options.pr:
        plan.url = _open_request(api, copy, plan, title, repo_type)  # the answer to an earlier push may have been lost
    if plan.changes_files and plan.url is None:
        additions = [CommitOperationAdd(name, copy / name) for name in sorted(plan.added.keys() | plan.changed.keys())]
        for each in additions:
            if each.upload_info.sha256.hex() != contents[each.path_in_repo].sha256:
                raise UserError(f"The copy of {each.path_in_repo} was changed before it was sent; try again.")
        commit = api.create_commit(
            repo_id,
            [*additions, *(CommitOperationDelete(name) for name in sorted(plan.deleted))],
            commit_message=title,
            repo_type=repo_type,
            revision=plan.branch,
            create_pr=options.pr,
            parent_commit=commit_id,
        )
        plan.url = commit.pr_url if options.pr else commit.commit_url
        commit_id = commit.oid
        _check_arrived(api, contents, repo_id, repo_type, commit.pr_revision if options.pr else commit_id)
    if not options.pr:
        # Also if nothing changed: the answer to the commit that made it so may have been lost.
        (folder / PUSHED).parent.mkdir(parents=True, exist_ok=True)
        write_json(folder / PUSHED, _pushed_commits(folder) | {_key(repo_type, plan): commit_id})
    if plan.tag is not None:
        api.create_tag(repo_id, tag=plan.tag, revision=commit_id, repo_type=repo_type, exist_ok=True)
    return plan


def _check_kind(folder: Path, names: list[str], repo_type: str) -> None:
    if not names:
        raise UserError(f"{folder} has no file to push; give the folder of a finished run.")
    weights = any("/" not in name and name.endswith(".safetensors") for name in names)
    is_model = weights and not {*_MODEL}.isdisjoint(names)
    if repo_type == "dataset" and is_model:
        raise UserError(f"{folder} is the folder of a model; push it with hfattn push.")
    if repo_type == "model" and not weights and any(name.endswith(_DATA) for name in names):
        raise UserError(f"{folder} is the folder of a data set; push it with hfattn data push.")


def _has_own_data(folder: Path) -> bool:
    """Return whether a model was trained on data that are not public, as its results say."""
    results = read_results(folder) if (folder / RESULTS).is_file() else {}
    return results.get("publish", {}).get("public_data") is False


def _check_signed(copy: Path, contents: Mapping[str, _Content], folder: Path) -> None:
    """Check that a signature is of the files that are sent; the folder or the address in its card may have changed."""
    try:
        check_signed(signed_files(copy / SIGNATURE), {name: content.sha256 for name, content in contents.items()})
    except AssertionError as error:
        raise UserError(
            f"{folder} was not pushed: {error}; sign the files with --sign KEY, or remove {folder / SIGNATURE}."
        ) from None


def _content(path: Path) -> _Content:
    size = path.stat().st_size
    hashes = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size)
    with path.open("rb") as file:
        while piece := file.read(2**20):
            for each in hashes:
                each.update(piece)
    return _Content(size, *(each.hexdigest() for each in hashes))


def _compare(
    api: HfApi,
    folder: Path,
    copy: Path,
    contents: dict[str, _Content],
    plan: PushPlan,
    repo_type: str,
    options: PushOptions,
) -> None:
    """Complete a plan with what is in the repository."""
    own_data = repo_type == "model" and _has_own_data(copy)
    info: Any = None
    try:
        info = api.repo_info(plan.repo_id, repo_type=repo_type, revision=plan.branch)
        plan.head = info.sha
    except RevisionNotFoundError:
        if options.pr:
            raise UserError(
                f"{plan.repo_id} has no branch {plan.branch!r} to open a pull request for; remove --pr."
            ) from None
        # A new branch starts at main.
        info = api.repo_info(plan.repo_id, repo_type=repo_type)
        plan.new_branch = True
    except RepositoryNotFoundError:
        plan.new = True
    if info is not None and options.private:
        _check_private(info, plan.repo_id)
    plan.private = options.private or (own_data and not options.public)
    plan.visible_to = _audience(api, plan.repo_id, plan.private if info is None else bool(info.private), plan.new)
    if own_data and info is not None and not info.private and not options.public:
        plan.warnings.append(
            f"{plan.repo_id} is public, and the data of this model are not; --public says that it may be."
        )
    there = {} if info is None else _tree(api, plan.repo_id, repo_type, info.sha)
    if options.sign == KEYLESS:
        if options.execute:
            plan.signer = str(sign(copy, options.sign))
            _check_signed(copy, contents, folder)
            contents[SIGNATURE] = _content(copy / SIGNATURE)
        elif SIGNATURE not in there:
            plan.added[SIGNATURE] = 0
    if options.sign is not None and SIGNATURE in there and (copy / SIGNATURE).is_file():
        earlier = api.hf_hub_download(plan.repo_id, SIGNATURE, revision=info.sha)
        keep_signature(copy, Path(earlier), options.sign)
        contents[SIGNATURE] = _content(copy / SIGNATURE)
    for name, content in contents.items():
        kind = plan.added if name not in there else plan.unchanged if _same(content, there[name]) else plan.changed
        kind[name] = content.size
    others = [name for name in there if name not in contents and not matches(name, _OF_OTHERS)]
    plan.deleted = [name for name in others if name != SIGNATURE and not options.keep]
    if SIGNATURE in others and plan.changes_files and options.sign is None:  # it is of the files that were there
        plan.deleted.append(SIGNATURE)
    if plan.tag is not None and not plan.new:
        refs = api.list_repo_refs(plan.repo_id, repo_type=repo_type)
        target = next((each.target_commit for each in refs.tags if each.name == plan.tag), None)
        if target is not None and (plan.changes_files or target != info.sha):
            raise UserError(
                f"{plan.repo_id} has a tag {plan.tag} already, at commit {target[:7]}; choose another name."
            )


def _check_private(info: Any, repo_id: str) -> None:
    if not info.private:
        raise UserError(
            f"{repo_id} is public, and only a new repository can be made private; make it private in its settings on "
            "the Hub, or push without asking for a private one."
        )


def _audience(api: HfApi, repo_id: str, private: bool, new: bool) -> str:
    if not private and not new:
        return "everyone (public)"  # a token of a Trusted Publisher need not name an account
    owner = repo_id.split("/")[0]
    own = api.whoami(cache=True)["name"] == owner
    if private:
        return f"only you, {owner} (private)" if own else f"the members of {owner} (private)"
    return "everyone (public)" if own else f"everyone, unless the settings of {owner} make new repositories private"


def _tree(api: HfApi, repo_id: str, repo_type: str, revision: str | None) -> dict[str, RepoFile]:
    entries = api.list_repo_tree(repo_id, repo_type=repo_type, revision=revision, recursive=True)
    return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _same(content: _Content, there: RepoFile) -> bool:
    """Return whether a file equals one on the Hub: by git's object id, or by SHA-256 if it is large."""
    return content.git == there.blob_id if there.lfs is None else content.sha256 == there.lfs.sha256


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
    api: HfApi, contents: Mapping[str, _Content], repo_id: str, repo_type: str, revision: str | None
) -> None:
    there = _tree(api, repo_id, repo_type, revision or "main")
    for name, content in contents.items():
        if name not in there or not _same(content, there[name]):
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


def check_may_push(repo_id: str, repo_type: str = "model", private: bool = False) -> None:
    """Check that a push can succeed, before a long training.

    Raises:
        UserError: the Hub does not allow the name, there is no token, the token may not write to the repository or
            create it, the repository is public although ``private`` is set, or the Hub cannot be reached.
    """
    check_repository_name(repo_id)
    if get_token() is None:
        raise no_token()
    with _one_sentence(repo_id, "main"):
        api = HfApi()
        try:
            api.auth_check(repo_id, repo_type=repo_type, write=True)
        except GatedRepoError:
            raise
        except RepositoryNotFoundError:
            _check_may_create(api.whoami(cache=True), repo_id)
        else:
            if private:
                _check_private(api.repo_info(repo_id, repo_type=repo_type), repo_id)


def _check_may_create(account: Mapping[str, Any], repo_id: str) -> None:
    owner, _, name = repo_id.partition("/")
    if account.get("auth", {}).get("accessToken", {}).get("role") == "read":
        raise UserError("This token can only read; create one with the role 'write', and log in with: hf auth login")
    roles = {each["name"]: each.get("roleInOrg") for each in account.get("orgs", [])}
    if owner != account["name"] and owner not in roles:
        raise UserError(
            f"{owner} is neither {account['name']}, whose token this is, nor an organization of {account['name']}; "
            f"write {account['name']}/{name}, or log in with another token: hf auth login"
        )
    if roles.get(owner) == "read":
        raise UserError(
            f"In {owner}, {account['name']} can only read; ask an administrator of it for the role 'write'."
        )


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

"""Statements of those who trained a published model again: the files in ``.reproductions/`` of its repository."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import file_digest
from pathlib import Path
from typing import Any

from huggingface_hub import Discussion, HfApi
from huggingface_hub.errors import RemoteEntryNotFoundError
from huggingface_hub.hf_api import RepoFile

from ..errors import UserError
from ..files import read_json_object
from .manifest import STATEMENTS

EXACT, WITHIN, NOT = "reproduced bit for bit", "reproduced within the stated tolerance", "not reproduced"
HEADING = "### Trained again by others"
_MOST, _LARGEST = 100, 2**20  # statements of a repository, and bytes of one, that are read
_ACCOUNT = re.compile(r"[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?")
_SECTION = re.compile(rf"^{HEADING}\n\n(?:- .*\n)+\n?", re.MULTILINE)
_PLACES = ("## Intended use and limits\n", "## Data\n")  # where a card has the section


@dataclass(frozen=True)
class Statement:
    """What somebody who trained a model again says.

    Attributes:
        path: its path in the repository.
        by: the account.
        date: the day.
        commit: the commit of the repository that was reproduced.
        verdict: one of ``EXACT``, ``WITHIN`` and ``NOT``.
    """

    path: str
    by: str
    date: str
    commit: str
    verdict: str

    def __str__(self) -> str:
        text = f"{self.verdict[0].upper()}{self.verdict[1:]} by [{self.by}](https://huggingface.co/{self.by})"
        return f"{text} on {self.date}, commit `{self.commit[:7]}` ([statement]({self.path}))"


def title_of(verdict: str) -> str:
    """Return the title of the pull request with a statement."""
    return f"Trained again: {verdict}"


def requests_of(api: HfApi, repo_id: str, repo_type: str, account: str, title: str, status: str) -> list[Discussion]:
    """Return the pull requests of an account with a title and a status, "open" or "merged"; the last one first."""
    kind: Any = "open" if status == "open" else "closed"  # which the merged ones are
    found = api.get_repo_discussions(
        repo_id, repo_type=repo_type, author=account, discussion_type="pull_request", discussion_status=kind
    )
    same = [each for each in found if (each.title, each.author, each.status) == (title, account, status)]
    return sorted(same, key=lambda each: -each.num)


def valid_statements(api: HfApi, repo_id: str, revision: str | None, folder: Path) -> list[Statement]:
    """Return the statements in a repository that are about the results in a folder, the last one of each account.

    A statement counts if it names this repository and the SHA-256 of ``results.json``, does not contradict itself or
    the weights of the folder, and came by a merged pull request of the account that it names.

    Args:
        api: the client.
        repo_id, revision: the repository.
        folder: the folder that will be published.
    """
    try:
        entries = list(api.list_repo_tree(repo_id, STATEMENTS, revision=revision))
    except RemoteEntryNotFoundError:
        return []
    last: dict[str, Statement] = {}
    files = [each for each in entries if isinstance(each, RepoFile) and each.path.endswith(".json")]
    for entry in sorted(files, key=lambda each: each.path)[-_MOST:]:
        if entry.size <= _LARGEST:
            path = api.hf_hub_download(repo_id, entry.path, revision=revision)
            statement = _read(Path(path), entry.path, repo_id, folder)
            if statement is not None and requests_of(
                api, repo_id, "model", statement.by, title_of(statement.verdict), "merged"
            ):
                last[statement.by] = statement
    return sorted(last.values(), key=lambda each: (each.date, each.by))


def _read(path: Path, name: str, repo_id: str, folder: Path) -> Statement | None:
    """Return a statement if it is about the results in a folder and agrees with itself; otherwise None."""
    try:
        said = read_json_object(path)
        date = datetime.fromisoformat(said["date"]).date().isoformat()
        by, commit, verdict = said["by"], said["commit"], said["verdict"]
        fits = (
            said["repository"] == repo_id
            and said["results_sha256"] == _sha256(folder / "results.json")
            and bool(_ACCOUNT.fullmatch(by))
            and bool(re.fullmatch("[0-9a-f]{40}", commit))
            and name == f"{STATEMENTS}/{date}-{by}.json"
            and _agrees(said, folder)
        )
    except (AttributeError, LookupError, OSError, TypeError, UserError, ValueError):
        return None
    return Statement(name, by, date, commit, verdict) if fits else None


def _agrees(said: Mapping[str, Any], folder: Path) -> bool:
    """Return whether the verdict of a statement follows from its hashes and scores."""
    if said["verdict"] == EXACT:
        weights = {path.name for path in folder.glob("*.safetensors")} & said["weights"].keys()
        same = all(_sha256(folder / name) == said["weights"][name] for name in weights)
        return bool(weights) and same and said["same_scores"] == said["compared_scores"] and not said["problems"]
    differ = [not abs(each["recorded"] - each["found"]) <= each["tolerance"] for each in said["scores"]]
    return said["verdict"] == NOT or (said["verdict"] == WITHIN and not any(differ) and not said["problems"])


def same_statement(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two statements say the same of the same commit, whenever they were made."""
    names = ("repository", "commit", "results_sha256", "by", "verdict", "weights", "scores", "problems")
    return all(one.get(name) == other.get(name) for name in names)


def with_statements(text: str, statements: list[Statement]) -> str:
    """Return a card with a section that names who trained the model again; an earlier section is replaced."""
    text = _SECTION.sub("", text)
    if not statements:
        return text
    section = "\n".join([HEADING, "", *(f"- {each}" for each in statements), "", ""])
    place = next((text.index(f"\n{each}") + 1 for each in _PLACES if f"\n{each}" in text), None)
    if place is None:
        return f"{text.rstrip()}\n\n{section.rstrip()}\n"
    return text[:place] + section + text[place:]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()

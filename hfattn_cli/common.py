"""Arguments that the commands share, and checks before any work.

A command imports hfattn when it runs, because that imports torch, which help and completion do without. This package is
therefore not a part of hfattn.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Model = Annotated[str, typer.Argument(metavar="DIR", help="Model folder, or the id of a model on the Hub.")]
NumBeams = Annotated[int | None, typer.Option(min=1, help="Number of beams; default: the model's.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Longest translation, in tokens; default: the model's.")]
Engine = Annotated[
    str,
    typer.Option(
        metavar="torch|ctranslate2",
        help="What runs the translator. ctranslate2 is faster on a CPU, and writes the same tokens in float32; it "
        "needs the extra hfattn[export]. The first call exports the model into the folder hfattn of HF_HOME.",
    ),
]
Quantization = Annotated[
    str | None, typer.Option(metavar="float32|int8", help="For ctranslate2; default: float32.", show_default=False)
]

NewFolder = Annotated[Path, typer.Option("--output", "-o", help="Folder to create.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

# The options of the three commands that push, in the order of hfattn.hub.PushOptions.
Private = Annotated[bool, typer.Option("--private", help="Make a new repository visible to its owner only.")]
Public = Annotated[
    bool, typer.Option("--public", help="Let a new repository be public although the data of the model are not.")
]
Branch = Annotated[str | None, typer.Option(help="Branch of the repository, created if needed; default: main.")]
PullRequest = Annotated[bool, typer.Option("--pr", help="Propose the commit as a pull request.")]
Over = Annotated[str | None, typer.Option(metavar="COMMIT", help="Replace this commit, which someone else made.")]
Message = Annotated[str | None, typer.Option(help="Message of the commit; default: the name of the folder.")]
Tag = Annotated[str | None, typer.Option(metavar="NAME", help="Tag the commit, for users who pin a revision.")]
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Push files such as '*.npz' too; may be repeated. Pickles are never pushed."),
]
Trust = Annotated[
    bool,
    typer.Option("--trust", help="Run the folder's own code also where the kernel has no sandbox; read it first."),
]
Places = Annotated[
    list[str] | None,
    typer.Option(
        "--data",
        metavar="PLACE",
        help="The data of the run, if they are not part of hfattn: a file or an id on the Hub, test=FILE or, of a "
        "mixture, TASK=PLACE; may be repeated.",
    ),
]
Sign = Annotated[
    str | None,
    typer.Option(
        metavar="KEY.pem|keyless",
        help="Sign with this private key (HFATTN_SIGN_PASSWORD is its password, if it is encrypted), or with the "
        "identity of the job of GitHub Actions or GitLab that runs.",
    ),
]
Execute = Annotated[bool, typer.Option("--execute", help="Upload the files; without it, they are only listed.")]


@contextmanager
def one_sentence() -> Iterator[None]:
    """End a command as ``hfattn.errors.one_sentence`` does."""
    from hfattn import errors

    with errors.one_sentence():
        yield


def print_plan(plan: Any, as_json: bool) -> None:
    """Print a ``PushPlan``."""
    print(json.dumps(plan.to_dict(), indent=2) if as_json else plan)


def name_value_pairs(option: str, words: list[str] | None) -> dict[str, str]:
    """Return the values of a repeatable option ``NAME=VALUE`` by their names."""
    from hfattn.errors import UserError

    pairs = {}
    for word in words or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UserError(f"{option} {word} is not NAME=VALUE; write {option} NAME=VALUE.")
        pairs[name] = value
    return pairs


def require_text(*texts: str) -> None:
    from hfattn.errors import UserError

    if not all(text.strip() for text in texts):
        raise UserError("A text is empty; give at least one character.")
    require_utf8(*texts)


def require_utf8(*texts: str) -> None:
    from hfattn.errors import UserError
    from hfattn.files import is_not_utf8

    if any(map(is_not_utf8, texts)):
        raise UserError("A text is not UTF-8; check the encoding of the terminal.")


def require_vocabulary(tokenizer: Any, *texts: str) -> None:
    from hfattn.errors import UserError
    from hfattn.tokenizers import uncovered_characters

    for text in texts:
        if missing := uncovered_characters(tokenizer, text):
            raise UserError(
                f"The text contains {missing[0]!r}, which is not in the model's vocabulary; remove it, or train with "
                "tokenizer.unknown: true."
            )


def check_output(path: Path, kinds: tuple[str, ...] = (".html", ".png", ".svg", ".pdf")) -> None:
    """Check before any work that a picture can be written.

    Raises:
        UserError: if the file type is unknown, or the path is not a file in an existing folder.
    """
    from hfattn.errors import UserError
    from hfattn.extras import require

    if path.suffix.lower() not in kinds:
        known = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        raise UserError(f"Cannot write {path.name}: end the name with {known}.")
    if not path.parent.is_dir():
        raise UserError(f"The folder {path.parent} does not exist; create it first.")
    if path.is_dir():
        raise UserError(f"{path} is a folder; give the name of a file.")
    if path.suffix.lower() not in (".html", ".jsonl", ".csv"):
        require("explain", "matplotlib")

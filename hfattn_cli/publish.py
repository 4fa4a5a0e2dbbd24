"""The commands that publish a finished run: ``card``, ``verify``, ``push``, ``refresh``."""

import json
from typing import Annotated

import typer

from .common import (
    AsJson,
    Branch,
    Execute,
    Include,
    Message,
    Over,
    Places,
    Private,
    Public,
    PullRequest,
    Sign,
    Tag,
    Trust,
    one_sentence,
    print_plan,
)

Folder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of a model, or USER/NAME on the Hub.")]


def card(
    name: Folder,
    license: Annotated[
        str | None, typer.Option(metavar="ID", help="License of the weights, as the Hub names it: apache-2.0, mit, …")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Language of the texts: en, es, …; may be repeated.")
    ] = None,
    rewrite: Annotated[bool, typer.Option("--rewrite", help="Replace a README.md that hfattn did not write.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute", help="Of a repository, open a pull request; without it, list its files.")
    ] = False,
    trust: Trust = False,
) -> None:
    """Write the model card of a finished run again, or that of another model.

    A folder of transformers' Trainer, of peft or of a person gets a card with what its files say, fingerprints and a
    manifest. A README.md that is there is kept, and its missing metadata are named.

    The card is rendered from results.json; the manifest is written again too. A license and languages that you give
    are stored in results.json first.

    The code of the card is run in a sandbox, and its output becomes part of the card. The manifest then lists all files
    of the folder, which verify and push use.

    With the id of a repository, --execute opens a pull request; its other files stay as they are.

    Example: hfattn card runs/dates
    """
    with one_sentence():
        from hfattn.hub import PushOptions, write_again
        from hfattn.hub import push as push_folder
        from hfattn.hub.fetching import model_files
        from hfattn.hub.foreign import describe, is_foreign
        from hfattn.hub.stated import state

        with model_files(name) as (folder, downloaded):
            if is_foreign(folder):
                said = describe(folder, license, language or [], rewrite=rewrite, trust=trust)
            else:
                if license is not None or language:
                    state(folder, license, language or [])
                where = write_again(folder, trust=trust)
                said = f"Written: {folder / 'README.md'} and {folder / 'manifest.json'} [{where}]"
            print(said.replace(str(folder), name) if downloaded else said)
            if downloaded:
                print(push_folder(folder, name, PushOptions(pr=True, execute=execute, trust=trust, keep=True)))


def verify(
    name: Folder,
    as_json: AsJson = False,
    trust: Trust = False,
    measure: Annotated[bool, typer.Option("--measure", help="Measure the scores again, on the CPU.")] = False,
    data: Places = None,
    signer: Annotated[
        str | None,
        typer.Option(
            metavar="PUBLIC.pem|IDENTITY",
            help="Check first that the owner of this public key, or with --issuer this identity, signed the files.",
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Who states the identity, such as https://token.actions.githubusercontent.com."
        ),
    ] = None,
) -> None:
    """Check that a model folder loads without hfattn.

    The exit code is 1 if a check fails.

    The code in the folder is run in a sandbox without network access, as trust_remote_code=True runs it. Checked are
    the hashes of the files, pickles, tokens and local paths, the numbers and the code of the card, weights, logits,
    generation, tokenizer and pipeline. Files that manifest.json does not list are not published; they are named and
    not checked.

    With --measure, the model is evaluated again, on data that are generated or that --data names. The model runs in
    the sandbox; labels, reference translations and right answers stay outside. Masked language models and baselines
    are not evaluated again.

    With --signer, the files must be those that the owner of a key, or an identity, signed with hfattn push --sign. If
    one has changed, was added or is missing, nothing else is checked, and nothing of the folder is run.

    Example: hfattn verify runs/dates
    """
    with one_sentence():
        from hfattn.errors import UserError
        from hfattn.hub import verify as verify_folder
        from hfattn.hub.fetching import model_files
        from hfattn.hub.signing import read_signer
        from hfattn.hub.verify import line_of

        who = read_signer(signer, issuer)
        if data and not measure:
            raise UserError("--data is for --measure; add --measure.")
        with model_files(name) as (folder, downloaded):

            def show(said: str) -> None:
                print(said.replace(str(folder), name) if downloaded else said, flush=True)

            report = verify_folder(
                folder,
                trust=trust,
                measure=(data or []) if measure else None,
                signer=who,
                tell=lambda check: None if as_json else show(line_of(check)),
            )
            show(json.dumps(report.to_dict(), indent=2) if as_json else report.ending())
    if not report.passed:
        raise typer.Exit(1)


def refresh(
    name: Annotated[str, typer.Argument(metavar="DIR", help="Folder of a finished run, or USER/NAME on the Hub.")],
    execute: Execute = False,
) -> None:
    """Save the code of a model again with the installed hfattn.

    Weights, tokenizer and results stay as they are. The result is verified: the new code must give the outputs that
    were recorded after training. Of a folder, the changes are listed, and made with --execute. For a repository on the
    Hub, --execute opens a pull request.

    Example: hfattn refresh runs/dates
    """
    with one_sentence():
        from hfattn.hub.refreshing import refresh as refresh_model

        print(refresh_model(name, execute))


def push(
    name: Folder,
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="The repository, created if needed.")],
    private: Private = False,
    branch: Branch = None,
    pr: PullRequest = False,
    over: Over = None,
    message: Message = None,
    tag: Tag = None,
    include: Include = None,
    execute: Execute = False,
    trust: Trust = False,
    public: Public = False,
    sign: Sign = None,
    as_json: AsJson = False,
) -> None:
    """Verify a model folder and push it to the Hub.

    Without --execute, only show what would be uploaded. The upload is one commit. If the data of the model are not
    public, a new repository is private unless --public is given.

    With --sign, model.sig in the repository is the signature of its other files, which hfattn verify --signer checks:
    by a key, or without one by the identity of a job, which is then entered in the public log of Sigstore. A push of
    changed files without --sign removes it.

    Example: hfattn push runs/dates user/dates
    """
    with one_sentence():
        from hfattn.hub import PushOptions
        from hfattn.hub import push as push_folder
        from hfattn.hub.fetching import model_files
        from hfattn.hub.signing import read_key

        key = read_key(sign)
        options = PushOptions(
            private, branch, pr, over, message, tag, tuple(include or ()), execute, trust, public=public, sign=key
        )
        with model_files(name) as (folder, _):
            print_plan(push_folder(folder, repo_id, options), as_json)

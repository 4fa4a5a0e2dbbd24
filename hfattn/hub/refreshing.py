"""Replace the code of a published model by that of the installed hfattn."""

from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import snapshot_download

from ..errors import UserError
from ..hub_access import hub_errors, model_folder
from ..loading import load_any_model, quiet, save_translator
from .finishing import write_again
from .manifest import published_files
from .push import PushOptions, push
from .verify import verify

CONFIG = "config.json"


def refresh(name: str, execute: bool = False) -> str:
    """Save the code of a model folder or of a repository again with the installed hfattn, and verify the result.

    Weights, tokenizer, results and fingerprints stay as they are, so the verification compares the new code with the
    outputs that were recorded after training. The card and the manifest, which have the hashes of the code, are
    written again.

    Args:
        name: a model folder, which is changed in place, or the id of a repository, for which a pull request is opened.
        execute: change the folder or open the pull request; without it, only the changes are listed.

    Returns:
        The changes and the next step, as text.

    Raises:
        UserError: the model does not load, has no code or no results, or does not pass verification with the new code.
    """
    found = model_folder(name)
    with TemporaryDirectory() as scratch:
        copy = Path(scratch) / Path(name).name
        if found is None:
            with hub_errors(name):
                snapshot_download(name, local_dir=copy)
            (copy / ".gitattributes").unlink(missing_ok=True)  # the Hub's own
        else:
            _copy(found, copy)
        changes = refresh_code(copy)
        if found is None:
            return str(push(copy, name, PushOptions(pr=True, execute=execute)))
        if not changes:
            return f"{found} has the code of this version."
        report = verify(copy)
        if not report.passed:
            raise UserError(
                f"{name} does not pass hfattn verify with the code of this version: {report.failures()}; keep its code."
            )
        lines = [f"{change:16}{file}" for file, change in sorted(changes.items())]
        if not execute:
            return "\n".join([*lines, f"Nothing was changed in {found}; add --execute to replace these files."])
        for file, change in changes.items():
            if change == "deleted":
                (found / file).unlink()
            else:
                (copy / file).replace(found / file)
        return "\n".join([*lines, f"Replaced in {found}."])


def refresh_code(folder: Path) -> dict[str, str]:
    """Replace the code in a model folder by that of the installed hfattn, and write its card and manifest again.

    Returns:
        What happened to each file that is not as before: "new", "changed" or "deleted".

    Raises:
        UserError: the model does not load, or has no code or no results.
    """
    if not list(folder.glob("*.py")):
        raise UserError(f"{folder.name} has no code; its classes are part of transformers.")
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    model, tokenizer, target_tokenizer = load_any_model(str(folder))
    with TemporaryDirectory() as scratch, quiet():
        save_translator(scratch, model, tokenizer, target_tokenizer)
        for path in folder.glob("*.py"):
            path.unlink()
        for path in (*Path(scratch).glob("*.py"), Path(scratch) / CONFIG):
            (folder / path.name).write_bytes(path.read_bytes())
    write_again(folder)
    after = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return {
        name: "deleted" if name not in after else "new" if name not in before else "changed"
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


def _copy(folder: Path, copy: Path) -> None:
    for name in published_files(folder):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes((folder / name).read_bytes())

"""Files of predictions: what a model predicts for the rows of a file."""

import csv
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from itertools import chain, islice, tee
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datasets import Dataset
from datasets.exceptions import DatasetGenerationError
from filelock import FileLock, Timeout
from tqdm import tqdm

from .data.images import SUFFIXES, image_files
from .data.rows import Row, Rows, decoded_lines, local_file, open_rows, read_lines
from .errors import UserError
from .files import read_json_object, writing
from .predicting import CHOICES, IMAGE, Predictor, predictions

FORMATS = (".jsonl", ".csv", ".parquet")
GIVEN = "given_"  # starts the name of a column of the input that is also that of a prediction


@dataclass(frozen=True)
class InputFile:
    """The rows of a file, and the columns that a model reads of them.

    Attributes:
        rows: the rows.
        columns: columns of the file, in the order of ``Predictor.columns``; the last of these, "choices", is one column
            of lists or several.
        folder: where the path of an image begins; None for a dataset of the Hub, which must not name files of this
            machine.
    """

    rows: Rows
    columns: Sequence[str]
    folder: Path | None = Path()

    def parts(self, predictor: Predictor, row: Row) -> dict[str, Any]:
        """Return the parts of an input that a row holds.

        Raises:
            UserError: a column does not exist or holds no text.
        """
        values = [self.rows.value(row, column) for column in self.columns]
        if predictor.columns[-1] == CHOICES and len(values) > len(predictor.columns):
            first = len(predictor.columns) - 1
            values[first:] = [values[first:]]
        given = dict(zip(predictor.columns, values, strict=False))
        if isinstance(path := given.get(IMAGE), str):
            given[IMAGE] = None if self.folder is None else str(self.folder / path)
        # Words that are separated already, as taggers are trained on.
        if isinstance(words := given.get("text"), list | tuple):
            given["text"] = " ".join(map(str, words))
        return predictor.parts(given, self.rows.place(row))


def open_inputs(predictor: Predictor, file: str, columns: Sequence[str] | None = None, **of_hub: Any) -> InputFile:
    """Open the inputs of a model.

    Args:
        predictor: the model.
        file: a ``.txt`` file with a text on each line, "-" for such lines from the standard input, or a file or dataset
            that ``open_rows`` reads; for a model of images also an image, or a folder of images.
        columns: its columns, in the order of ``predictor.columns``. By default, those that the model was trained on, or
            the names of ``predictor.columns``, or the only column.
        of_hub: ``config``, ``split`` and ``revision`` of a dataset on the Hub.

    Raises:
        UserError: the file does not exist or is empty, or its columns are not clear.
    """
    if file == "-":
        name, lines = "the standard input", sys.stdin.buffer
        return InputFile(Rows(name, lambda: _text_rows(decoded_lines(lines, name))), ("text",))
    if Path(file).suffix == ".txt":
        path = local_file(file)
        assert path is not None
        return InputFile(Rows(path.name, lambda: _text_rows(read_lines(path))), ("text",))
    if predictor.columns == (IMAGE,) and (found := _image_files(Path(file))):
        return InputFile(
            Rows(Path(file).name, lambda: (Row(number, {IMAGE: str(path)}) for number, path in enumerate(found, 1))),
            (IMAGE,),
        )
    rows, local = open_rows(file, **of_hub), local_file(file)
    folder = None if local is None else local.parent
    first = next(iter(rows), None)
    if first is None:
        raise UserError(f"{rows.name} is empty; give a file with at least one row.")
    if isinstance(columns, str):
        raise UserError("columns is one text; give a list of names.")
    if columns is not None:
        most = sys.maxsize if predictor.columns[-1] == CHOICES else len(predictor.columns)
        if not predictor.required <= len(columns) <= most:
            wanted = ",".join(predictor.columns[: max(predictor.required, len(columns))])
            raise UserError(f"columns names {len(columns)} columns; write those for {wanted}, as the file calls them.")
        return InputFile(rows, columns, folder)
    for names in (_trained_columns(predictor), predictor.columns, predictor.columns[: predictor.required]):
        if names and all(name in first.values for name in names):
            return InputFile(rows, names, folder)
    if len(first.values) == predictor.required:
        return InputFile(rows, tuple(first.values), folder)
    raise UserError(
        f"{rows.name} has the columns {', '.join(first.values)}; name those with {' and '.join(predictor.columns)} in "
        "columns."
    )


def _image_files(place: Path) -> list[Path]:
    """Return the images in a folder and its subfolders, or an image; none if it is something else."""
    if place.is_dir():
        return image_files(place)
    return [place] if place.is_file() and place.suffix.lower() in SUFFIXES else []


def _text_rows(numbered: Iterable[tuple[int, str]]) -> Iterator[Row]:
    return (Row(number, {"text": text}) for number, text in numbered)


def _trained_columns(predictor: Predictor) -> tuple[str, ...]:
    """Return the columns of the data that a run was trained on; none if the model was not trained by a recipe."""
    path = Path(predictor.name) / "results.json"
    results = read_json_object(path) if path.is_file() else {}
    data = results.get("configuration", {}).get("data", {})
    names = {
        "text": ("text_column", "source_column", "words_column"),
        "pair": ("pair_column",),
        CHOICES: ("choice_columns",),
    }
    if results.get("data", {}).get("form") == "prompt_completion":
        names["text"] = ("prompt_column",)
    found = (
        (data.get(name) for name in names.get(part, (f"{part}_column",)) if data.get(name))
        for part in predictor.columns
    )
    columns = (next(parts, None) or [] for parts in found)
    return tuple(chain.from_iterable([each] if isinstance(each, str) else each for each in columns))


def predict_file(
    predictor: Predictor, inputs: InputFile, output: Path, batch_size: int = 32, resume: bool = False
) -> int:
    """Write what a model predicts for each row of a file, beside the columns of the row.

    The rows that are finished are kept in a file beside ``output``, whose name ends in ``.part``, until all are. A
    column that has the name of a prediction is renamed: "label" becomes "given_label".

    Args:
        predictor: the model.
        inputs: the rows.
        output: file to create: ``.jsonl``, ``.csv`` (lists and objects as JSON) or ``.parquet``.
        batch_size: rows in a batch.
        resume: continue the file of an earlier call with the same model, options and inputs.

    Returns:
        The number of rows that were predicted now.

    Raises:
        UserError: the file exists or cannot be resumed, another process writes it, it would have no rows, or a row
            cannot be read.
    """
    with _locked(output):
        _check_new_file(output, resume)
        return _predict_file(predictor, inputs, output, batch_size)


@contextmanager
def _locked(output: Path) -> Iterator[None]:
    """Keep other processes from writing a file of predictions.

    Raises:
        UserError: another process writes it, or its folder does not exist.
    """
    if not output.parent.is_dir():
        raise UserError(f"The folder {output.parent} does not exist; create it first.")
    path = output.with_name(f".{output.name}.lock")
    try:
        lock = FileLock(path, timeout=0).acquire()
    except Timeout:
        raise UserError(f"Another process writes {output}; wait until it ends, or choose another file.") from None
    with lock:
        try:
            yield
        finally:
            with suppress(OSError):  # on Windows, a file that is open cannot be removed
                path.unlink()


def _predict_file(predictor: Predictor, inputs: InputFile, output: Path, batch_size: int) -> int:
    part = _part(output)
    made_by = {
        "model": predictor.name,
        "options": asdict(predictor.options),
        "inputs": inputs.rows.name,
        "columns": list(inputs.columns),
    }
    done = _finished_rows(part, made_by)
    number, advice = 0, "free some space and continue with --resume"
    try:
        with writing(output.parent, advice), part.open("a", encoding="utf-8") as file:
            if done is None:
                print(json.dumps(made_by), file=file)
            rows = _predicted(predictor, inputs, batch_size, part if done else None)
            for row in tqdm(rows, unit=" rows", disable=None):
                print(_json(row), file=file, flush=True)
                number += 1
        if not number and not done:
            raise UserError(f"{inputs.rows.name} has no rows; give a file with some.")
    except BaseException:
        if not number and not done:
            part.unlink(missing_ok=True)
        raise
    with writing(output.parent, advice):
        _convert(part, output)
    part.unlink()
    return number


def print_predictions(predictor: Predictor, inputs: InputFile, batch_size: int = 32) -> None:
    """Print the rows that ``predict_file`` writes, as JSON lines."""
    for row in _predicted(predictor, inputs, batch_size):
        print(_json(row), flush=True)


def _predicted(
    predictor: Predictor, inputs: InputFile, batch_size: int, part: Path | None = None
) -> Iterator[dict[str, Any]]:
    """Yield each row that a ``.part`` file does not have yet, with what the model predicts for it."""
    rows = iter(inputs.rows)
    if part is not None:
        _check_same_rows(part, rows)
    rows, read = tee(rows)
    parts = (inputs.parts(predictor, row) for row in read)
    for row, prediction in zip(rows, predictions(predictor, parts, batch_size), strict=True):
        shown = _shown(row)
        for name in prediction:
            if name in shown and GIVEN + name in shown:
                raise UserError(
                    f"The input has the columns {name} and {GIVEN}{name}, and the model predicts {name} too; rename "
                    "one of these columns."
                )
        yield {GIVEN + name if name in prediction else name: value for name, value in shown.items()} | prediction


def _check_same_rows(part: Path, rows: Iterator[Row]) -> None:
    """Take the rows of a ``.part`` file from those of its input, and check that they are the same."""
    for finished in _rows_of(part):
        row = next(rows, None)
        shown = {} if row is None else json.loads(_json(_shown(row)))
        # A column whose name is that of a prediction was renamed; of the others, both names may be in the input.
        renamed = {name: name if GIVEN + name in shown else GIVEN + name for name in shown}
        kept = {name: finished.get(renamed[name], finished.get(name)) for name in shown}
        if row is None or kept != shown:
            raise UserError(
                f"The rows that {part} has are no longer those of the input; remove it, or choose a new file."
            )


def _shown(row: Row) -> dict[str, Any]:
    return {name: _name_of(value) for name, value in row.values.items()}


def _name_of(value: Any) -> Any:
    """Return the name of the file of an image, or another value itself."""
    if isinstance(value, Mapping) and value.keys() == {"bytes", "path"}:
        return Path(value["path"]).name if value["path"] else None
    return value


def _json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str)


def check_new_file(output: Path, resume: bool = False) -> None:
    """Check before any work that a file of predictions can be written.

    Raises:
        UserError: its format is unknown, it exists, its folder does not exist, another process writes it, or it is that
            of an interrupted call, which is not to be resumed.
    """
    with _locked(output):
        _check_new_file(output, resume)


def _check_new_file(output: Path, resume: bool) -> None:
    if output.suffix not in FORMATS:
        raise UserError(f"Cannot write {output.name}: end the name with {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
    if output.exists():
        raise UserError(f"{output} exists already; choose a new file.")
    if _part(output).exists() and not resume:
        raise UserError(
            f"{_part(output)} holds the rows of an interrupted command; continue with --resume, or remove it."
        )


def _part(output: Path) -> Path:
    return output.with_name(f"{output.name}.part")


def _finished_rows(part: Path, made_by: Mapping[str, Any]) -> int | None:
    """Return how many rows the file of an interrupted call holds, and remove an incomplete one; None: no such file."""
    if not part.exists():
        return None
    with part.open("rb+") as file:
        begun, count = file.readline(), 0
        if not begun.endswith(b"\n"):
            file.truncate(0)
            return None
        if json.loads(begun) != json.loads(json.dumps(made_by)):  # a tuple is a list in the file
            raise UserError(
                f"{part} was made by another model, with other options or from another file; remove it, or choose a "
                "new file."
            )
        end = file.tell()
        for line in file:
            if not line.endswith(b"\n"):
                break
            count, end = count + 1, end + len(line)
        file.truncate(end)
    return count


def _convert(part: Path, output: Path) -> None:
    """Write the rows of a ``.part`` file to a file of the format that its name ends with.

    Raises:
        UserError: a column has values of several types, which Parquet does not hold.
    """
    made = output.with_name(f".{output.name}")
    try:
        if output.suffix == ".jsonl":
            with part.open(encoding="utf-8") as file, made.open("w", encoding="utf-8") as new:
                next(file)
                shutil.copyfileobj(file, new)
        elif output.suffix == ".csv":
            columns = _columns_of(part)
            with made.open("w", encoding="utf-8", newline="") as new:
                writer = csv.DictWriter(new, columns)
                writer.writeheader()
                for row in _rows_of(part, columns):
                    writer.writerow({name: _cell(value) for name, value in row.items()})
        else:
            with TemporaryDirectory() as folder:
                given = {"part": part, "columns": _columns_of(part)}
                try:
                    rows = Dataset.from_generator(_rows_of, gen_kwargs=given, cache_dir=folder)
                except DatasetGenerationError:
                    raise UserError(
                        f"A column has values of several types, or none in the first rows, and Parquet needs one type; "
                        f"the predictions are in {part}, as JSON lines after the first line."
                    ) from None
                rows.to_parquet(made)
        made.replace(output)
    finally:
        made.unlink(missing_ok=True)


def _columns_of(part: Path) -> tuple[str, ...]:
    """Return the columns of all rows: a later row may have more than the first."""
    return tuple(dict.fromkeys(name for row in _rows_of(part) for name in row))  # a list would be split by datasets


def _rows_of(part: Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a ``.part`` file, with null where they lack one of the columns."""
    with part.open(encoding="utf-8") as file:
        for line in islice(file, 1, None):
            row = json.loads(line)
            yield row if columns is None else {name: row.get(name) for name in columns}


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


__all__ = [
    "InputFile",
    "check_new_file",
    "open_inputs",
    "predict_file",
    "print_predictions",
]

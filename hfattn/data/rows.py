"""Rows with columns from files, folders, datasets on the Hub and datasets in memory, each with its position.

``datasets`` loads all but tab-separated files and JSON. In the former, quotes are part of the texts here; in the
latter, ``datasets`` turns texts that look like dates into dates. It also names no line of a malformed file.
"""

import csv
import itertools
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import yaml
from huggingface_hub import HfApi, hf_hub_download
from huggingface_hub.errors import HfHubHTTPError

from ..errors import UserError
from ..hub_access import hub_errors, local_path, not_found

if TYPE_CHECKING:
    import numpy as np
    from datasets import Dataset, DatasetDict

    Source: TypeAlias = str | Path | Dataset | DatasetDict
else:
    Source: TypeAlias = Any

GIVEN = "given in Python"  # the value of data.dataset for a dataset in memory
EVALUATION = "eval.yaml"  # the file by which the Hub takes a dataset for a benchmark
JSON_LINES = ".jsonl"
# Files that ``datasets`` loads, also if they are compressed, and the name of the builder.
_BUILDERS = {".csv": "csv", ".json": "json", ".parquet": "parquet", ".arrow": "arrow"}
_COMPRESSED = {".bz2", ".gz", ".xz", ".zst"}
_SHEETS = {".ods", ".xls", ".xlsx"}
_FILES = {JSON_LINES, *_BUILDERS, *_COMPRESSED, *_SHEETS, ".md", ".tsv", ".txt"}
_DELIMITERS = ",;\t|"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # in JSON, half of a character outside the basic plane
_METADATA, _FILE_NAME = "metadata", "file_name"  # the stem of files about a folder of images, and their column of paths
_SAVED = ("dataset_dict.json", "state.json")  # of folders of ``save_to_disk``


class Row(NamedTuple):
    """The values of a row by column, and its number.

    Lines and records of a file count from 1, rows of a dataset from 0. A record of a CSV file may have several lines,
    and its header has no number.
    """

    number: int
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Rows:
    """Rows that can be read repeatedly, one at a time.

    Attributes:
        name: name of the file or dataset, without the folders of a local path.
        start: function that starts reading from the beginning.
        unit: "Line" or "Record" for a file, "Row" for a dataset.
        classes: names of the classes of each column that holds class numbers, or lists of them.
    """

    name: str
    start: Callable[[], Iterator[Row]] = field(repr=False)
    unit: str = "Line"
    classes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Row]:
        return self.start()

    def place(self, row: Row) -> str:
        """Describe the position of a row, for messages."""
        return f"{self.unit} {row.number} of {self.name}"

    def value(self, row: Row, column: str, field: str | None = None) -> Any:
        """Return the value of a column; ``translation.en`` is a field nested in a column.

        Args:
            row: the row.
            column: name of the column.
            field: field of the section ``data`` that names the column, for the message.

        Raises:
            UserError: the column does not exist; the message lists the columns.
        """
        if column in row.values:
            return row.values[column]
        found: Any = row.values
        for name in column.split("."):
            if not isinstance(found, Mapping) or name not in found:
                known, where = ", ".join(_columns(row.values)), f" in data.{field}" if field else ""
                raise UserError(f"{self.place(row)} has no column {column!r}; write one of {known}{where}.")
            found = found[name]
        return found

    def text(self, row: Row, column: str, what: str | None = None, field: str | None = None) -> str:
        """Return the text in a column.

        Args:
            row: the row.
            column: name of the column, as in ``value``.
            what: name of the kind of text, used in the message if it is empty; None accepts empty texts.
            field: as in ``value``.

        Raises:
            UserError: the column does not exist, its value is not a text, or the text is empty and ``what`` is given.
        """
        value = self.value(row, column, field)
        if value is None:  # a missing value of a Parquet file or of JSON
            value = ""
        if not isinstance(value, str):
            raise UserError(f"{self.place(row)} holds {value!r} in {column!r}, not text; write another column.")
        if what and not value.strip():
            raise UserError(f"{self.place(row)} has an empty {what}; fill it in, or remove the {self.unit.lower()}.")
        return value


def _columns(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value.keys() != {"bytes", "path"}:  # those of an image
            yield from _columns(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def open_rows(
    dataset: Source,
    *,
    columns: Sequence[str] | None = None,
    config: str | None = None,
    split: str = "train",
    revision: str | None = None,
) -> Rows:
    """Open the rows of a file, a folder, a dataset on the Hub, or a dataset in memory.

    Args:
        dataset: one of

            - the path of a ``.jsonl`` file: a JSON object on each line;
            - the path of a ``.csv`` file: records with the columns of its first line, separated by commas, semicolons,
              tabs or bars, whichever that line has most of; a field in quotes may have several lines. All values are
              texts, as they are written;
            - the path of a ``.json`` file with a list of objects, of a ``.parquet`` or of an ``.arrow`` file; and of
              these and of the two above with ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` added;
            - the path of another file: UTF-8, with tab-separated columns without quotes or escapes;
            - the path of a folder of ``save_to_disk``, of a folder with the IDX files of MNIST, or of any folder that
              ``load_dataset`` reads, such as one of images in a folder for each class;
            - the id of a dataset on the Hub;
            - a ``Dataset`` or a ``DatasetDict``.

        columns: names of the columns of a tab-separated file; by default, they are in its first line.
        config: configuration of a folder or of a dataset on the Hub.
        split: split of a folder, of a dataset on the Hub, or of a ``DatasetDict``.
        revision: revision of a dataset on the Hub.

    Raises:
        UserError: the file, dataset or split does not exist, has another format, or, during reading, has a malformed
            line.
    """
    if not isinstance(dataset, str | Path):
        return _given_rows(dataset, split)
    path = local_data(dataset := str(dataset))
    if path is None:
        return _hub_rows(dataset, config, split, revision)
    if path.is_dir():
        return _folder_rows(path, config, split)
    if path.suffix in _SHEETS:
        raise UserError(f"{path.name} is a file of a spreadsheet; save it as CSV in UTF-8.")
    if _format(path) == JSON_LINES:
        return Rows(path.name, lambda: _json_rows(path))
    if _format(path) == ".json" and _holds_list(path):
        return Rows(path.name, lambda: _listed_rows(path), "Record")
    if is_table(path):
        return _table_rows(path)
    return Rows(path.name, lambda: _tab_separated_rows(path, columns))


def local_data(dataset: str) -> Path | None:
    """Return the path of a local file or folder, or None if ``dataset`` can only be the id of a dataset on the Hub.

    Raises:
        UserError: the file or folder does not exist.
    """
    path = local_path(dataset, "dataset")
    if path is None and Path(dataset).suffix in _FILES:
        raise not_found(dataset, "dataset")
    return path


def local_file(dataset: Source) -> Path | None:
    """Return the path of a local file, or None for other sources.

    Raises:
        UserError: the file does not exist.
    """
    path = local_data(str(dataset)) if isinstance(dataset, str | Path) else None
    return None if path is None or path.is_dir() else path


def has_rows(path: Path) -> bool:
    """Return whether a file has rows with columns, by its suffix, and not the lines of a text."""
    return path.suffix in (".tsv", *_SHEETS) or is_table(path)


def is_table(path: Path) -> bool:
    """Return whether a file is CSV, JSON, Parquet or Arrow, by its suffix, also if it is compressed."""
    return _format(path) in (JSON_LINES, *_BUILDERS)


def _format(path: Path) -> str:
    """Return the suffix of a file, without that of its compression."""
    return Path(path.stem).suffix if path.suffix in _COMPRESSED else path.suffix


def parallel_files(dataset: str) -> tuple[str, str] | None:
    """Return the two files that a name such as ``"folder/train.{en,de}"`` stands for, or None for other names."""
    if (parts := re.fullmatch(r"(.*)\{([^{},]*),([^{},]*)\}(.*)", dataset)) is None:
        return None
    before, first, second, after = parts.groups()
    return f"{before}{first}{after}", f"{before}{second}{after}"


def is_local(dataset: str) -> bool:
    """Return whether ``dataset`` is a local file, or two parallel ones, and not a source that has splits.

    Raises:
        UserError: the file does not exist.
    """
    return parallel_files(dataset) is not None or local_file(dataset) is not None


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file without line ends, with their numbers from 1.

    Lines end only at newlines: words of published vectors contain other line separators.

    Raises:
        UserError: a line is not UTF-8.
    """
    if path.suffix in _COMPRESSED:
        with _loading(path.name), _opened(path) as file:
            yield from decoded_lines(file, path.name)
        return
    with path.open("rb") as file:
        yield from decoded_lines(file, path.name)


def _opened(path: Path) -> Any:
    """Open a file, which may be compressed, to read bytes."""
    import fsspec

    return fsspec.open(path, "rb", compression="infer")


def decoded_lines(lines: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Yield lines of bytes as ``read_lines`` does; ``name`` is that of the file, for the message."""
    for number, line in enumerate(lines, start=1):
        try:
            # Some editors put a byte order mark at the start of a UTF-8 file.
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UserError(
                f"Line {number} of {name} is not UTF-8; convert the file, for example with iconv -t UTF-8."
            ) from None


def _tab_separated_rows(path: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    for number, line in read_lines(path):
        values = line.split("\t")
        if columns is None:
            columns = values
            if len(set(columns)) < len(columns):
                raise UserError(
                    f"Line {number} of {path.name} names a column twice: {', '.join(columns)}; rename it, or write the "
                    "names of the columns in a line above it."
                )
        elif len(values) != len(columns):
            found = {1: "no tab", 2: "one tab"}.get(len(values), f"{len(values) - 1} tabs")
            raise UserError(
                f"Line {number} of {path.name} has {found}; write the columns {' and '.join(columns)} on each line, "
                "with one tab between two of them, or save the file as CSV if a field is in quotes."
            )
        else:
            yield Row(number, dict(zip(columns, values, strict=True)))


def _json_rows(path: Path) -> Iterator[Row]:
    for number, line in read_lines(path):
        try:
            values = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(
                f"Line {number} of {path.name} is not JSON ({error.msg} at character {error.pos + 1}); write one "
                "object on each line."
            ) from None
        except (RecursionError, ValueError) as error:  # too deep, or a number with more digits than Python converts
            raise UserError(f"Line {number} of {path.name} cannot be read: {error}; correct it.") from None
        if not isinstance(values, dict):
            raise UserError(
                f"Line {number} of {path.name} is not a JSON object; write one on each line, such as "
                '{"column": "value"}.'
            )
        yield Row(number, _with_characters(values) if _SURROGATE.search(line) else values)


def _holds_list(path: Path) -> bool:
    with _loading(path.name), _opened(path) as file:
        start: bytes = file.read(1000)
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _listed_rows(path: Path) -> Iterator[Row]:
    with _loading(path.name), _opened(path) as file:
        text = file.read().decode("utf-8-sig")
        records = json.loads(text)
    halves = _SURROGATE.search(text) is not None
    for number, values in enumerate(records, start=1):
        if not isinstance(values, dict):
            raise UserError(
                f'Record {number} of {path.name} is not a JSON object; write one such as {{"column": "value"}}.'
            )
        yield Row(number, _with_characters(values) if halves else values)


def _with_characters(values: dict[str, Any]) -> dict[str, Any]:
    """Replace each half of a surrogate pair, which is not a character, by U+FFFD, as decoders of UTF-16 do."""
    text = json.dumps(values, ensure_ascii=False).encode("utf-16", "surrogatepass")
    return json.loads(text.decode("utf-16", "replace"))


def _table_rows(path: Path) -> Rows:
    import datasets

    kind = _format(path)
    options: dict[str, Any] = {}
    if kind == ".csv":
        names, delimiter = _header(path)
        # As texts: "01", "NA" and "1e5" are the names of classes.
        texts = datasets.Features({name: datasets.Value("string") for name in names})
        options = {"features": texts, "sep": delimiter, "na_filter": False}
    with _loading(path.name):
        rows = datasets.load_dataset(_BUILDERS[kind], data_files=str(path), split="train", streaming=True, **options)
    columnar = kind in (".parquet", ".arrow")
    return _rows_of(path.name, rows, *(("Row", 0) if columnar else ("Record", 1)))


def _header(path: Path) -> tuple[list[str], str]:
    """Return the names of the columns of a CSV file, and its delimiter: the most frequent one of its first line."""
    import fsspec

    with _loading(path.name), fsspec.open(path, "rt", compression="infer", encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        if not first.strip():
            raise UserError(f"{path.name} begins with an empty line; write the names of its columns there.")
        delimiter = max(_DELIMITERS, key=first.count)
        file.seek(0)
        records = csv.reader(file, delimiter=delimiter)
        names = next(records)
        second: list[str] = next((record for record in records if record), [])
    if len(set(names)) < len(names) or not all(name.strip() for name in names):
        raise UserError(
            f"The columns of {path.name} are {', '.join(map(repr, names))}; give each a name of its own in the first "
            "line."
        )
    # pandas would take the first fields of such a file for row names.
    if len(second) > len(names):
        raise UserError(
            f"Record 1 of {path.name} has {len(second)} fields, and the columns are {', '.join(names)}; write a field "
            f"for each column, in quotes if it contains {delimiter!r}."
        )
    return names, delimiter


def _folder_rows(folder: Path, config: str | None, split: str) -> Rows:
    import datasets

    if is_idx(folder):
        return idx_rows(folder, split)
    with _loading(str(folder)):
        if any((folder / name).is_file() for name in _SAVED):
            return _given_rows(datasets.load_from_disk(str(folder)), split, folder.name)
        builder = datasets.load_dataset_builder(str(folder), config)
        files = [Path(file) for file in sorted((builder.config.data_files or {}).get(split, []))]
        metadata = [file for file in files if file.stem == _METADATA]
        if builder.name == "imagefolder" and metadata and all(file.suffix == ".csv" for file in metadata):
            return _csv_rows(folder.name, metadata, with_images=True)
        described = builder.info.features is not None  # by the card of the folder
        if files and not described and all(_format(file) == ".csv" for file in files):
            return _csv_rows(folder.name, files)
        options = {"na_filter": False} if builder.name.startswith("csv") else {}  # "NA" is a text
        rows = datasets.load_dataset(str(folder), config, split=split, streaming=True, **options)
    return _rows_of(folder.name, rows)


def _csv_rows(name: str, files: Sequence[Path], with_images: bool = False) -> Rows:
    """Return the rows of CSV files one after another; ``datasets`` would read "NA" as no text, and "01" as 1.

    Args:
        name: that of their folder.
        files: the files.
        with_images: whether they are ``metadata.csv`` files, which name images.
    """
    tables = [(file, _table_rows(file)) for file in files]

    def start() -> Iterator[Row]:
        numbers = itertools.count()
        for file, table in tables:
            for row in table:
                number = next(numbers)
                yield Row(number, _with_images(row, table.place(row), file.parent) if with_images else row.values)

    return Rows(name, start, "Row")


def _with_images(row: Row, place: str, folder: Path) -> dict[str, Any]:
    """Return the values of a row with an image instead of each name of a file, as ``datasets`` names and holds it."""
    values: dict[str, Any] = {}
    named = {column for column in row.values if column == _FILE_NAME or column.endswith(f"_{_FILE_NAME}")}
    if not named:
        raise UserError(f"{place} has no column {_FILE_NAME!r}; write the paths of the images there.")
    for column, value in row.values.items():
        if column not in named:
            values[column] = value
            continue
        path = Path(os.path.normpath(value))
        if not value or path.is_absolute() or ".." in path.parts:
            raise UserError(
                f"{place} has {value!r} in {column!r}; write the path of an image in the folder of that file."
            )
        image = column.removesuffix(_FILE_NAME).removesuffix("_") or "image"
        values[image] = {"bytes": None, "path": str(folder / path)}
    return values


def is_idx(folder: Path) -> bool:
    """Return whether a folder has the IDX files of MNIST, or of a dataset in its format."""
    return any(folder.glob("*-images-idx3-ubyte*"))


def idx_rows(folder: Path, split: str) -> Rows:
    """Return the rows of IDX files: the columns ``image``, an array (height, width) of uint8, and ``label``.

    Args:
        folder: folder with the files, which may be compressed.
        split: "train" for the files whose names begin with it, or "test" for those of "t10k".

    Raises:
        UserError: the split does not exist, or a file is not what its name says.
    """
    prefix = {"test": "t10k"}.get(split, split)
    contents = []
    for what, dimensions in (("images", 3), ("labels", 1)):
        found = sorted(folder.glob(f"{prefix}-{what}-idx{dimensions}-ubyte*"))
        if not found:
            splits = sorted({path.name.partition("-")[0] for path in folder.glob("*-images-idx3-ubyte*")})
            names = ", ".join("test" if name == "t10k" else name for name in splits)
            raise UserError(f"{folder.name} has no {what} of {split!r}; its parts are {names}, write one of them.")
        contents.append(_idx_array(found[0], dimensions))
    images, labels = contents
    if len(images) != len(labels):
        raise UserError(
            f"{folder.name} has {len(images)} images and {len(labels)} labels of {split!r}; download it again."
        )

    def start() -> Iterator[Row]:
        for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            yield Row(number, {"image": image, "label": label})

    return Rows(folder.name, start, "Row")


def _idx_array(path: Path, dimensions: int) -> "np.ndarray":
    import fsspec
    import numpy as np

    with _loading(path.name), fsspec.open(path, "rb", compression="infer") as file:
        content = file.read()
    head = 4 * (1 + dimensions)
    magic, *shape = np.frombuffer(content[:head].ljust(head, b"\0"), ">u4").tolist()
    if magic != 0x0800 + dimensions or len(content) != head + math.prod(shape):
        raise UserError(f"{path.name} is not a complete IDX file with {dimensions} dimensions; download it again.")
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _given_rows(given: "Dataset | DatasetDict", split: str, name: str = "the given dataset") -> Rows:
    if isinstance(given, Mapping):
        if split not in given:
            raise UserError(f"The splits of {name} are {', '.join(given)}, and not {split!r}; name one of them.")
        given = given[split]
    elif split not in ("train", str(given.split)):
        raise UserError(
            f"There are no splits in {name}, so none named {split!r}; write another dataset or file for that part, or "
            "null for a share of this one."
        )
    return _rows_of(name, given)


def _rows_of(name: str, rows: Any, unit: str = "Row", first: int = 0) -> Rows:
    """Return the rows of a dataset of ``datasets``, which is in memory or streamed."""
    import datasets

    def start() -> Iterator[Row]:
        iterator = iter(rows)
        for number in itertools.count(first):
            with _loading(name):
                values = next(iterator, None)
            if values is None:
                return
            yield Row(number, values)

    features = rows.features or {}
    for column in [name for name, kind in features.items() if isinstance(kind, datasets.Image)]:
        rows = rows.cast_column(column, datasets.Image(decode=False))  # ``hfattn.data.images`` decodes them when needed
    # This includes columns of lists of classes.
    kinds = {column: kind.feature if isinstance(kind, datasets.List) else kind for column, kind in features.items()}
    classes = {column: kind.names for column, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)}
    return Rows(name, start, unit, classes)


@contextmanager
def _loading(name: str) -> Iterator[None]:
    """Turn the errors of ``datasets``, which have no common base class, into one sentence."""
    logger = logging.getLogger("datasets")
    disabled, logger.disabled = logger.disabled, True  # it logs what it raises
    try:
        yield
    except UserError:
        raise
    except UnicodeDecodeError as error:
        raise UserError(f"{name} is not UTF-8; convert it, for example with iconv -f CP1252 -t UTF-8.") from error
    except Exception as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"{name} does not load ({type(error).__name__}: {reason}); correct it.") from error
    finally:
        logger.disabled = disabled


class HubDataset(NamedTuple):
    """A dataset on the Hub: its commit, and the tasks of its ``eval.yaml`` (id, configuration and split of each)."""

    commit: str
    tasks: list[dict[str, Any]]


PRIVATE_DATASETS: set[str] = set()  # those of them that not everyone can read, or about which the Hub was not asked
# The datasets that this process has read from the Hub, by id and wanted revision, for the record of a run.
DATASETS_READ: dict[tuple[str, str | None], HubDataset] = {}


def _hub_dataset(dataset: str, revision: str | None) -> HubDataset | None:
    """Find the commit of a dataset and the tasks of its ``eval.yaml``; None if the Hub cannot be asked."""
    PRIVATE_DATASETS.add(dataset)
    try:
        with hub_errors(dataset, "dataset", revision):
            info = HfApi().dataset_info(dataset, revision=revision)
            assert info.sha is not None
            if not info.private and not info.gated:
                PRIVATE_DATASETS.discard(dataset)
            tasks = []
            if any(file.rfilename == EVALUATION for file in info.siblings or []):
                path = hf_hub_download(dataset, EVALUATION, repo_type="dataset", revision=info.sha)
                tasks = benchmark_tasks(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, HfHubHTTPError):
        return None
    return HubDataset(info.sha, tasks)


def benchmark_tasks(text: str) -> list[dict[str, Any]]:
    """Return the tasks that an ``eval.yaml`` lists, each with id, config and split; none if it is no such file."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError:
        return []
    tasks = content.get("tasks") if isinstance(content, dict) else None
    names = ("id", "config", "split")
    return [
        {name: task.get(name) for name in names}
        for task in (tasks if isinstance(tasks, list) else [])
        if isinstance(task, dict) and isinstance(task.get("id"), str)
    ]


def _hub_rows(dataset: str, config: str | None, split: str, revision: str | None) -> Rows:
    import datasets

    if (dataset, revision) not in DATASETS_READ and (found := _hub_dataset(dataset, revision)):
        DATASETS_READ[dataset, revision] = found
    if (dataset, revision) in DATASETS_READ:  # all splits are read at one commit
        revision = DATASETS_READ[dataset, revision].commit
    try:
        with hub_errors(dataset, "dataset", revision):
            rows = datasets.load_dataset(dataset, config, split=split, revision=revision)
    except UserError:
        raise
    except Exception as error:  # the errors of the library have no common base class
        if isinstance(error, datasets.exceptions.DatasetNotFoundError) and revision is None:
            raise not_found(dataset, "dataset") from error
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(
            f"The dataset {dataset} does not load ({type(error).__name__}: {reason}); check its name, configuration "
            "and split."
        ) from error
    return _rows_of(dataset, rows)

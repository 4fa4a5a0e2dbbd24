"""The generated data sets as folders that ``load_dataset`` reads and that can be published."""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low
from typing import Any

import yaml
from huggingface_hub import DatasetCard

from .. import __version__
from ..data import (
    DATES,
    OPINIONS,
    OPINIONS_PARTS,
    PARTS,
    PHRASES,
    PHRASES_PARTS,
    REBER,
    REBER_PARTS,
    LabelledTexts,
    Pair,
    Pairs,
    date_pairs,
    opinion_texts,
    phrase_pairs,
    reber_texts,
)
from ..data.dates import FIRST_YEAR, LAST_YEAR
from ..data.opinions import LABELS
from ..errors import UserError
from ..files import new_folder
from .templates import template

Row = dict[str, str | int]
# What the Hub files a data set under: below each number of rows, its name.
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


@dataclass(frozen=True)
class Generated:
    """A data set that is generated.

    Attributes:
        splits: their names, the one to train on first.
        rows, evaluation_rows: how many there are in the first split and in each other, unless asked otherwise: what the
            recipe's own configuration takes.
        draw: the rows of a split, by number and seed.
        row: of an example, its columns; the recipe reads the same example from them.
        classes: the names of the classes of the column ``label``, if there is one.
        facts: what the card tells of the rows beyond their number.
        recipe, config: by which it is learned.
        fingerprint_of: the columns that a fingerprint is of.
    """

    splits: Sequence[str]
    rows: int
    evaluation_rows: int
    draw: Callable[[str, int, int], Any]
    row: Callable[[Any], Row]
    classes: Sequence[str]
    facts: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    recipe: str
    config: str
    fingerprint_of: str


def make_data_set(
    name: str, folder: Path, rows: int | None = None, evaluation_rows: int | None = None, seed: int = 1
) -> None:
    """Draw a data set and write it to a new folder: a Parquet file for each split, and a card.

    Args:
        name: of ``DATA_SETS``.
        folder: to make.
        rows, evaluation_rows: in the split to train on and in each other; None: what the recipe takes.
        seed: of the draws: the same seed, the same rows, on every machine.

    Raises:
        UserError: there is no such data set, not that many rows of it, or something lies where the folder would be.
    """
    if name not in DATA_SETS:
        raise UserError(f"There is no generated data set {name!r}; write one of {', '.join(DATA_SETS)}.")
    generated = DATA_SETS[name]
    first, others = rows or generated.rows, evaluation_rows or generated.evaluation_rows
    numbers = {split: first if split == generated.splits[0] else others for split in generated.splits}
    drawn = {split: generated.draw(split, number, seed) for split, number in numbers.items()}
    table = {split: [generated.row(item) for item in examples] for split, examples in drawn.items()}
    # The folder's name without its path, which is of this computer.
    sizes = f"--rows {first} --evaluation-rows {others} --seed {seed}"
    command = f"hfattn data make {name} --output {shlex.quote(folder.name)} {sizes}"
    card = _card(name, folder.name, command, drawn, table)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as whole:
        for split, split_rows in table.items():
            _write(whole / f"{split}.parquet", split_rows, generated.classes)
        card.save(whole / "README.md")


def _write(path: Path, rows: Sequence[Row], classes: Sequence[str]) -> None:
    # Not as JSON lines: datasets takes a text such as "2019-04-22" there for a time, and gives "2019-04-22 00:00:00".
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import ClassLabel, Features, Value

    kinds = {name: ClassLabel(names=list(classes)) if name == "label" else Value("string") for name in rows[0]}
    pq.write_table(pa.Table.from_pylist(list(rows), schema=Features(kinds).arrow_schema), path)


def _card(
    name: str, folder: str, command: str, drawn: Mapping[str, Any], table: Mapping[str, Sequence[Row]]
) -> DatasetCard:
    generated, total = DATA_SETS[name], sum(map(len, table.values()))
    files = [{"split": split, "path": f"{split}.parquet"} for split in table]
    configs = {"configs": [{"config_name": "default", "data_files": files}]}
    text = template(f"data/{name}.md").render(
        generated.facts(drawn),
        folder=folder,
        command=command,
        version=__version__,
        configs=yaml.safe_dump(configs, sort_keys=False).rstrip(),
        size_category=next(size for most, size in _SIZES.items() if total < most),
        recipe=generated.recipe,
        config=generated.config,
        fingerprint_of=generated.fingerprint_of,
        splits=[
            {
                "name": split,
                "rows": len(rows),
                "fingerprint": drawn[split].fingerprint,
                "first": [json.dumps(row, ensure_ascii=False) for row in rows[:3]],
            }
            for split, rows in table.items()
        ],
    )
    return DatasetCard(text)


def _row_of_pair(pair: Pair) -> Row:
    return {"source": pair.source, "target": pair.target, "form": pair.kind}


def _forms(forms_in: Mapping[str, Iterable[str]]) -> Mapping[str, list[int]]:
    """How many rows of each split, from their forms, have a form: by form, a number for each split."""
    counts = [Counter(forms) for forms in forms_in.values()]
    forms = sorted({form for each in counts for form in each}, key=lambda form: (form.lower(), form))
    return {form: [each[form] for each in counts] for form in forms}


def _facts_of_pairs(drawn: Mapping[str, Pairs]) -> Mapping[str, Any]:
    return {"forms": _forms({split: [pair.kind for pair in pairs] for split, pairs in drawn.items()})}


def _facts_of_dates(drawn: Mapping[str, Pairs]) -> Mapping[str, Any]:
    return {**_facts_of_pairs(drawn), "first_year": FIRST_YEAR, "last_year": LAST_YEAR}


def _facts_of_opinions(drawn: Mapping[str, LabelledTexts]) -> Mapping[str, Any]:
    kinds = {
        split: [f"{item.fields['form']} | {item.fields['language']} | {LABELS[item.label]}" for item in texts]
        for split, texts in drawn.items()
    }
    return {"forms": _forms(kinds)}


def _facts_of_reber(drawn: Mapping[str, LabelledTexts]) -> Mapping[str, Any]:
    lengths = {}
    for split, texts in drawn.items():
        broken, sizes = Counter(item.fields["broken"] for item in texts), [len(item.text) for item in texts]
        lengths[split] = [
            *map(broken.__getitem__, ("nowhere", "middle", "end")),
            min(sizes),
            median_low(sizes),
            max(sizes),
        ]
    return {"lengths": lengths}


DATA_SETS: Mapping[str, Generated] = {
    DATES: Generated(
        splits=PARTS,
        rows=30_000,
        evaluation_rows=1_000,
        draw=date_pairs,
        row=_row_of_pair,
        classes=(),
        facts=_facts_of_dates,
        recipe="translation",
        config="dates",
        fingerprint_of="source and target",
    ),
    PHRASES: Generated(
        splits=PHRASES_PARTS,
        rows=30_000,
        evaluation_rows=500,
        draw=phrase_pairs,
        row=_row_of_pair,
        classes=(),
        facts=_facts_of_pairs,
        recipe="translation",
        config="phrases",
        fingerprint_of="source and target",
    ),
    OPINIONS: Generated(
        splits=OPINIONS_PARTS,
        rows=8_000,
        evaluation_rows=500,
        draw=opinion_texts,
        row=lambda item: {"text": item.text, "label": item.label, **item.fields},
        classes=LABELS,
        facts=_facts_of_opinions,
        recipe="classification",
        config="opinions",
        fingerprint_of="label and text",
    ),
    REBER: Generated(
        splits=REBER_PARTS,
        rows=40_000,
        evaluation_rows=2_000,
        draw=reber_texts,
        row=lambda item: {"text": item.text, "label": item.label, "broken": item.fields["broken"]},
        classes=("broken", "valid"),
        facts=_facts_of_reber,
        recipe="classification",
        config="reber",
        fingerprint_of="label and text",
    ),
}


__all__ = ["DATA_SETS", "Generated", "make_data_set"]

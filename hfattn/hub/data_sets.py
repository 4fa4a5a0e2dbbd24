"""Write the generated datasets as folders that ``load_dataset`` reads and that can be published."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import DatasetCard

from .. import __version__
from ..data.rows import EVALUATION
from ..errors import UserError
from ..files import new_folder
from ..generated.registry import GENERATED, CardInfo, GeneratedData, Row
from .templates import template

# The Hub's size categories: each applies below the number of rows before it.
_SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}


def make_data_set(
    name: str, folder: Path, rows: int | None = None, evaluation_rows: int | None = None, seed: int = 1
) -> None:
    """Draw a dataset and write it to a new folder: a Parquet file for each split, a card, and an ``eval.yaml``.

    Args:
        name: name of a generated dataset that has a card.
        folder: folder to create.
        rows, evaluation_rows: rows of the training split and of each other split; the default is that of the recipe's
            configuration.
        seed: random seed; the same seed gives the same rows on every machine.

    Raises:
        UserError: there is no such dataset, it cannot give that many rows, or the folder exists.
    """
    published = [each for each, data in GENERATED.items() if data.card is not None]
    if name not in published:
        raise UserError(f"There is no generated dataset {name!r} to publish; write one of {', '.join(published)}.")
    data = GENERATED[name]
    assert data.card is not None
    first, others = rows or data.examples, evaluation_rows or data.evaluation_examples
    drawn = data.draw_parts(first, others, seed)
    table = {split: [data.card.row(item) for item in examples] for split, examples in drawn.items()}
    # Without the path of the folder, which is private to this computer.
    sizes = f"--rows {first} --evaluation-rows {others} --seed {seed}"
    command = f"hfattn data make {name} --output {shlex.quote(folder.name)} {sizes}"
    card = _card(name, data, data.card, folder.name, command, drawn, table)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with new_folder(folder) as whole:
        for split, split_rows in table.items():
            _write(whole / f"{split}.parquet", split_rows, data.card.classes)
        card.save(whole / "README.md")
        (whole / EVALUATION).write_text(_benchmark(name, card, list(table)), encoding="utf-8")


def _benchmark(name: str, card: DatasetCard, splits: Sequence[str]) -> str:
    """Return the ``eval.yaml`` by which models show their scores on the page of a dataset: a task for each split."""
    content = {
        "name": name,
        "description": card.data.to_dict()["pretty_name"],
        "evaluation_framework": "hfattn",
        "tasks": [{"id": split, "config": "default", "split": split} for split in splits if split != "train"],
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)


def _write(path: Path, rows: Sequence[Row], classes: Sequence[str]) -> None:
    # Not as JSON lines: from those, datasets reads a text such as "2019-04-22" as a time, "2019-04-22 00:00:00".
    import pyarrow as pa
    import pyarrow.parquet as pq
    from datasets import ClassLabel, Features, List, Value

    special = {
        "label": ClassLabel(names=list(classes)),
        "messages": List({key: Value("string") for key in ("role", "content")}),
    }
    kinds = {name: special.get(name, Value("string")) for name in rows[0]}
    pq.write_table(pa.Table.from_pylist(list(rows), schema=Features(kinds).arrow_schema), path)


def _card(
    name: str,
    data: GeneratedData,
    info: CardInfo,
    folder: str,
    command: str,
    drawn: Mapping[str, Any],
    table: Mapping[str, Sequence[Row]],
) -> DatasetCard:
    total = sum(map(len, table.values()))
    files = [{"split": split, "path": f"{split}.parquet"} for split in table]
    configs = {"configs": [{"config_name": "default", "data_files": files}]}
    text = template(f"data/{name}.md").render(
        info.facts(drawn),
        folder=folder,
        command=command,
        version=__version__,
        configs=yaml.safe_dump(configs, sort_keys=False).rstrip(),
        size_category=next(size for limit, size in _SIZES.items() if total < limit),
        recipe=data.recipe,
        config=name,
        fingerprint_of=info.fingerprinted,
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

"""People's own data: what can be read, how it is split, and what the report says; the main case is a messy CSV file."""

import csv
import gzip
import importlib.util
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import datasets
import pytest
from commands import ROOT, written

from hfattn.data import GIVEN, LabeledDataConfig, LabeledTexts, Text, read_labeled, read_pairs
from hfattn.data.report import describe_text, report_labeled
from hfattn.errors import UserError
from hfattn.hub.secrets import find_secret
from hfattn.resources import load_recipe

pytestmark = pytest.mark.runs

INTENTS = {
    "Refund": ["I want my money back for order {}", "The item of order {} is broken, please refund"],
    "Login": ["I cannot log in since update {}", "My password {} is refused"],
    "Delivery": ["Where is parcel {}?", "Parcel {} has not come"],
    "Billing": ["Invoice {} is wrong", "You charged me {} twice"],
}


def tickets(path: Path, number: int = 200, dirty: bool = False) -> Path:
    """Write support tickets with four intents as a spreadsheet does; every tenth text has three lines in quotes."""
    random = Random(3)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "message", "intent", "customer", "date"])
        for i in range(number):
            intent = list(INTENTS)[i % 4]
            text = random.choice(INTENTS[intent]).format(1000 + i)
            if i % 10 == 0:
                text = f'Hello,\n\n"{text}", she said; thanks'
            if dirty and i in (8, 12):
                intent = ["refund", "Refund "][i == 12]
            if dirty and i == 17:
                text = "  "
            if dirty and i in (30, 34):
                text = "Where is my parcel?" if i == 30 else "Where is my parcel? "
            if dirty and i in (41, 45):
                text = "I cannot log in"
            rows.writerow([f"{i:03}", text, intent, f"customer {i // 10}", f"2026-{1 + i // 28:02}-{1 + i % 28:02}"])
            if i == 99:
                file.write("\r\n")
    return path


COLUMNS: dict[str, Any] = {"text_column": "message", "label_column": "intent"}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def save_to_disk(rows: list[dict[str, str]], folder: Path) -> Path:
    datasets.Dataset.from_list(rows).save_to_disk(folder / "saved")
    return folder / "saved"


def save_splits(rows: list[dict[str, str]], folder: Path) -> Path:
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(folder / "splits")
    return folder / "splits"


def write(name: str, text: Callable[[list[dict[str, str]]], bytes]) -> Callable[[list[dict[str, str]], Path], Path]:
    def written(rows: list[dict[str, str]], folder: Path) -> Path:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(text(rows))
        return folder / name.split("/")[0]

    return written


def separated(delimiter: str) -> Callable[[list[dict[str, str]]], bytes]:
    def text(rows: list[dict[str, str]]) -> bytes:
        lines = [list(rows[0]), *(list(row.values()) for row in rows)]
        quoted = [delimiter.join('"' + value.replace('"', '""') + '"' for value in line) for line in lines]
        return "\n".join(quoted).encode()

    return text


def json_lines(rows: list[dict[str, str]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def to_parquet(rows: list[dict[str, str]], folder: Path) -> Path:
    datasets.Dataset.from_list(rows).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def test_every_form_of_the_tickets_gives_the_same_texts(tmp_path: Path) -> None:
    path = tickets(tmp_path / "tickets.csv")
    rows = rows_of(path)
    texts = read_labeled(path, **COLUMNS)
    assert [(item.text, texts.labels[item.label]) for item in texts] == [(r["message"], r["intent"]) for r in rows]
    assert [item.fields["id"] for item in texts][:2] == ["000", "001"]  # not the numbers 0 and 1
    assert texts.place(100) == "Record 101 of tickets.csv"
    forms = [
        write("semicolons.csv", separated(";")),
        write("tickets.csv.gz", lambda rows: gzip.compress(separated(",")(rows))),
        write("tickets.jsonl", json_lines),
        write("tickets.jsonl.gz", lambda rows: gzip.compress(json_lines(rows))),
        write("tickets.json", lambda rows: json.dumps(rows).encode()),
        write("folder/train.jsonl", json_lines),
        write("csvs/train.csv", separated(",")),
        to_parquet,
        save_to_disk,
        save_splits,
    ]
    for form in forms:
        assert read_labeled(form(rows, tmp_path), **COLUMNS).fingerprint == texts.fingerprint, form
    whole = datasets.Dataset.from_list(rows)
    for given in (whole, datasets.DatasetDict({"train": whole})):
        assert read_labeled(given, **COLUMNS).fingerprint == texts.fingerprint
    assert [pair[:2] for pair in read_pairs(path, source_column="message", target_column="intent")] == [
        (row["message"], row["intent"]) for row in rows
    ]


def test_texts_that_look_like_dates_and_numbers_are_texts(tmp_path: Path) -> None:
    rows = [{"message": "2020-01-01", "intent": "01"}, {"message": "1e5", "intent": "1"}]
    for form in (
        write("t.jsonl", json_lines),
        write("t.jsonl.gz", lambda rows: gzip.compress(json_lines(rows))),
        write("t.json", lambda rows: json.dumps(rows).encode()),
        write("t.json.gz", lambda rows: gzip.compress(json.dumps(rows).encode())),
        write("t.csv", separated(",")),
        write("folder/train.csv", separated(",")),
    ):
        texts = read_labeled(form(rows, tmp_path), **COLUMNS)
        assert [(item.text, texts.labels[item.label]) for item in texts] == [("2020-01-01", "01"), ("1e5", "1")], form


def test_the_card_of_a_folder_of_csv_files_names_their_classes(tmp_path: Path) -> None:
    classes = {"class_label": {"names": {"0": "no", "1": "yes"}}}
    features = [{"name": "message", "dtype": "string"}, {"name": "intent", "dtype": classes}]
    (tmp_path / "train.csv").write_text("message,intent\na,1\nNA,0\n")
    (tmp_path / "README.md").write_text(f"---\ndataset_info: {json.dumps({'features': features})}\n---\n")
    texts = read_labeled(tmp_path, **COLUMNS)
    assert [(item.text, texts.labels[item.label]) for item in texts] == [("a", "yes"), ("NA", "no")]


BAD = [
    (
        "t.jsonl.gz",
        gzip.compress(b'{"message": "a"}', mtime=0)[:-9],
        r"^t\.jsonl\.gz does not load \((EOFError|error): .*; correct it",
    ),
    ("t.json", b'[{"message": "a"', r"^t\.json does not load \(JSONDecodeError: .*; correct it"),
    ("t.json", b'["a"]', r'^Record 1 of t\.json is not a JSON object; write one such as \{"column": "value"\}'),
    (
        "t.csv",
        b"message,intent\na,b,c\nd,e,f\n",
        r"^Record 1 of t\.csv has 3 fields, and the columns are message, intent",
    ),
    (
        "t.csv",
        b"message,intent\na,b\nd,e,f\n",
        r"^t\.csv does not load \(ParserError: .*line 3, saw 3\); correct it\.$",
    ),
    ("t.csv", b'message,intent\n"a,b\n', r"^t\.csv does not load \(ParserError: .*EOF inside string"),
    ("t.csv", "message,intent\nañ,b\n".encode("cp1252"), r"^t\.csv is not UTF-8; convert it, for example with iconv"),
    ("t.csv", b"message,message\na,b\n", r"^The columns of t\.csv are 'message', 'message'; give each a name"),
    ("t.csv", b"\nmessage,intent\n", r"^t\.csv begins with an empty line"),
    (
        "t.csv",
        b"text,label\na,b\n",
        r"^Record 1 of t\.csv has no column 'message'; write one of text, label in data\.te",
    ),
    ("t.csv", b"message,intent\na,b\n,c\n", r"^Record 2 of t\.csv has an empty text; .* data\.empty: drop"),
    ("t.csv", b"message,intent\na,\n", r"^Record 1 of t\.csv has an empty label; .* data\.empty: drop"),
    ("t.xlsx", b"PK", r"^t\.xlsx is a file of a spreadsheet; save it as CSV in UTF-8\.$"),
    ("t.parquet", b"PAR1", r"^t\.parquet does not load \("),
    ("t.json", b'{"a": ', r"^t\.json does not load \("),
    ("folder/a.jsonl", b'{"message": "a", "intent": "b"}\n', r"/folder does not load \(.*test.*train"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD)
def test_malformed_data_end_in_one_sentence(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    split = "test" if "/" in name else "train"
    with pytest.raises(UserError, match=message) as refused:
        read_labeled(tmp_path / name.split("/")[0], split=split, **COLUMNS)
    assert "\n" not in str(refused.value)


# Labels, empty texts, duplicates


def test_fields_deal_with_near_equal_labels_empty_texts_and_duplicates(tmp_path: Path) -> None:
    path = str(tickets(tmp_path / "tickets.csv", dirty=True))
    with pytest.raises(UserError, match=r"^Record 18 of tickets\.csv has an empty text"):
        LabeledDataConfig(dataset=path, **COLUMNS).read_parts(1)
    with pytest.raises(
        UserError, match=r"^The class 'Refund ' has 1 of the texts .*, and none is in .*data\.rename_labels"
    ):
        LabeledDataConfig(dataset=path, empty="drop", **COLUMNS).read_parts(1)
    names: dict[str, str | None] = {"refund": "Refund", "Refund ": "Refund"}
    data = LabeledDataConfig(dataset=path, empty="drop", rename_labels=names, **COLUMNS)
    whole = [item for texts in data.read_parts(1).values() for item in texts]
    assert len(whole) == 199
    data = LabeledDataConfig(dataset=path, empty="drop", rename_labels={**names, "Billing": None}, **COLUMNS)
    assert data.read_parts(1)["train"].labels == ["Delivery", "Login", "Refund"]
    data = LabeledDataConfig(dataset=path, empty="drop", rename_labels=names, duplicates="drop", **COLUMNS)
    assert sum(map(len, data.read_parts(1).values())) == 198
    with pytest.raises(
        UserError, match=r"^data\.rename_labels names 'refunds', and the labels of tickets\.csv are 'Bil"
    ):
        LabeledDataConfig(dataset=path, empty="drop", rename_labels={"refunds": "Refund"}, **COLUMNS).read_parts(1)


def test_training_texts_of_another_part_are_left_out_if_asked(tmp_path: Path) -> None:
    train, test = tickets(tmp_path / "train.csv", 80), tickets(tmp_path / "test.csv", 20)
    fields: dict[str, Any] = {"dataset": str(train), "test": str(test), **COLUMNS}
    kept, dropped = (LabeledDataConfig(**fields, duplicates=way).read_parts(1) for way in ("keep", "drop"))
    held = {item.text for item in kept["test"]}
    assert any(item.text in held for item in kept["train"])
    assert not any(item.text in held for item in dropped["train"])
    assert kept["test"].items == dropped["test"].items
    with pytest.raises(UserError, match=r"All training texts of train.csv are also in another part"):
        LabeledDataConfig(**{**fields, "test": str(train)}, duplicates="drop").read_parts(1)


# Splits


def parts_of(path: Path, seed: int = 1, **fields: Any) -> dict[str, LabeledTexts]:
    return LabeledDataConfig(dataset=str(path), **{"split": [0.7, 0.15, 0.15], **COLUMNS, **fields}).read_parts(seed)


def test_parts_have_the_same_share_of_each_class_and_a_seed_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rare.jsonl"
    rows = [{"message": f"text {i}", "intent": "rare" if i % 10 == 0 else "common"} for i in range(200)]
    path.write_bytes(json_lines([{name: str(value) for name, value in row.items()} for row in rows]))
    parts = parts_of(path)
    assert {part: [Counter(item.label for item in texts)[i] for i in (0, 1)] for part, texts in parts.items()} == {
        "train": [126, 14],
        "validation": [27, 3],
        "test": [27, 3],
    }
    prints = {part: texts.fingerprint for part, texts in parts.items()}
    assert {part: texts.fingerprint for part, texts in parts_of(path, seed=2).items()} == prints
    assert parts_of(path, split_seed=5)["test"].fingerprint != prints["test"]
    old = read_labeled(path, **COLUMNS).split([0.7, 0.15, 0.15], 2, lambda item: item.text, "texts")
    pinned = parts_of(path, seed=2, split_seed=None, stratify=False)
    assert [texts.fingerprint for texts in pinned.values()] == [texts.fingerprint for texts in old]


def test_groups_stay_together_and_time_separates(tmp_path: Path) -> None:
    path = tickets(tmp_path / "tickets.csv")
    by_group = parts_of(path, group_column="customer")
    customers = [{item.fields["customer"] for item in texts} for texts in by_group.values()]
    assert len(set.union(*customers)) == sum(map(len, customers)) == 20
    assert [len(texts) for texts in by_group.values()] == [140, 30, 30]
    by_time = parts_of(path, time_column="date")
    dates = [[item.fields["date"] for item in texts] for texts in by_time.values()]
    assert max(dates[0]) < min(dates[1]) <= max(dates[1]) < min(dates[2])
    assert [len(each) for each in dates] == [140, 30, 30]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"group_column": "client"}, r"names 'client', and the other columns of tickets\.csv are id, customer, date"),
        ({"time_column": "customer"}, r"^Record 1 of tickets\.csv has the time 'customer 0'; write numbers, or dates"),
    ]
    for fields, message in cases:
        with pytest.raises(UserError, match=message):
            parts_of(path, **fields)


@pytest.mark.parametrize("fields", [{}, {"group_column": "customer"}, {"time_column": "date"}], ids=str)
def test_folds_test_on_each_text_once(tmp_path: Path, fields: dict[str, Any]) -> None:
    path = tickets(tmp_path / "tickets.csv")
    tested: list[str] = []
    for fold in (1, 2, 3, 4, 5):
        parts = parts_of(path, split=[0.9, 0.1], folds=5, fold=fold, **fields)
        texts = {part: {item.fields["id"] for item in parts[part]} for part in parts}
        assert not texts["train"] & texts["validation"] | texts["train"] & texts["test"]
        if "group_column" in fields:
            groups = [{item.fields["customer"] for item in parts[part]} for part in ("train", "test")]
            assert not set.intersection(*groups)
        if "time_column" in fields:
            assert max(texts["validation"]) < min(texts["test"])  # ids follow the dates
        elif not fields:
            assert sum(map(len, parts.values())) == 200
            assert sorted(Counter(item.label for item in parts["test"]).values()) == [10, 10, 10, 10]
        tested += texts["test"]
    assert len(tested) == len(set(tested)) == (165 if "time_column" in fields else 200)


def test_a_class_that_is_missing_from_a_part_is_an_error(tmp_path: Path) -> None:
    path = tickets(tmp_path / "tickets.csv", dirty=True)
    ways: list[dict[str, Any]] = [{}, {"folds": 5, "fold": 1}, {"stratify": False}]
    for fields in ways:
        with pytest.raises(
            UserError, match=r"^The class '[Rr]efund ?' has 1 of the texts of tickets\.csv, and none is in"
        ):
            parts_of(path, empty="drop", **{"split": [0.8, 0.2], **fields})


def test_splits_that_contradict_each_other_are_refused() -> None:
    for fields, message in (
        ({"group_column": "a", "time_column": "b"}, "two ways to split"),
        ({"validation": "v.csv", "group_column": "a"}, "nothing to split"),
        ({"fold": 1}, "fold is one of folds"),
        ({"folds": 3, "test": "t.csv"}, "folds split one dataset"),
        ({"folds": 3, "fold": 4}, "fold is 4, and there are 3 folds"),
        ({"folds": 3, "split": [50, "rest"]}, "folds take the share"),
        ({"split_by": "phrase"}, "write stratify: false"),
    ):
        with pytest.raises(Exception, match=message):
            LabeledDataConfig(dataset="t.csv", **fields)


# Datasets in memory, for every recipe


def test_recipes_take_datasets_in_memory() -> None:
    words = [["Ann", "sleeps"], ["Bob", "reads"], ["Eva", "sings"], ["Tom", "runs"]] * 5
    texts = [f"{' '.join(pair)} {i}" for i, pair in enumerate(words)]
    rows: dict[str, dict[str, list[Any]]] = {
        "classification": {"text": texts, "label": [0, 1] * 10},
        "distillation": {"text": texts, "label": [0, 1] * 10},
        "baselines": {"text": texts, "label": ["a", "b"] * 10},
        "translation": {"source": texts, "target": texts[::-1]},
        "token_classification": {
            "tokens": [[*pair, str(i)] for i, pair in enumerate(words)],
            "tags": [["B-NAME", "O", "O"]] * 20,
        },
        "question_answering": {
            "question": ["Who?"] * 20,
            "context": texts,
            "answers": [{"text": [text[:3]], "answer_start": [0]} for text in texts],
        },
        "multiple_choice": {"context": texts, "choices": [[each, each.upper()] for each in texts], "label": [0] * 20},
        "causal_lm": {"text": texts},
        "masked_lm": {"text": texts},
    }
    for name, columns in rows.items():
        recipe = load_recipe(ROOT / "recipes" / name / "train.py")
        data = recipe.DataConfig(dataset=GIVEN, split=[0.8, 0.2])
        whole = datasets.Dataset.from_dict(columns)
        parts = data.read_parts(1, whole)
        assert name == "causal_lm" or [len(parts[part]) for part in parts] == [16, 4], name
        splits = datasets.DatasetDict({"train": whole, "validation": whole, "test": whole})
        assert list(data.read_parts(1, splits)) == ["train", "validation", "test"], name
        if name != "causal_lm":  # its text is one document
            report = data.report(parts, whole)
            assert any("16" in fact for fact in report.facts), name
            assert not report.warnings, report
        with pytest.raises(UserError, match="were given in Python"):
            data.read_parts(1)
        with pytest.raises(UserError, match=r"^The splits of the given dataset are dev, and not 'train'; name one"):
            data.read_parts(1, datasets.DatasetDict({"dev": whole}))


def test_a_dataset_without_splits_has_no_part_of_a_name(tmp_path: Path) -> None:
    """The rows of training were read again as the part, whose scores then said nothing."""
    rows = [{"message": f"text {i}", "intent": "ab"[i % 2]} for i in range(20)]
    saved, whole = str(save_to_disk(rows, tmp_path)), datasets.Dataset.from_list(rows)
    data = LabeledDataConfig(dataset=saved, validation="validation", **COLUMNS)
    with pytest.raises(UserError, match=r"^There are no splits in saved, so none named 'validation'; write another"):
        data.read_parts(1)
    with pytest.raises(UserError, match=r"^There are no splits in the given dataset, so none named 'validation'; "):
        data.read_parts(1, whole)
    assert len(read_labeled(datasets.Dataset.from_list(rows, split="test"), split="test", **COLUMNS)) == 20


# The report


def test_the_report_names_the_field_for_each_finding(tmp_path: Path) -> None:
    path = tickets(tmp_path / "tickets.csv", dirty=True)
    before = path.read_bytes()
    report = report_labeled(LabeledDataConfig(dataset=str(path), folds=5, **COLUMNS), max_length=8)
    assert path.read_bytes() == before
    assert report.facts[0] == "data: 200 rows of tickets.csv"
    assert "labels: 'Delivery' 50, 'Billing' 50, 'Login' 49, 'Refund' 48, 'refund' 1, 'Refund ' 1" in report.facts
    assert report.warnings[0] == "1 rows of data have an empty text or label: data.empty: drop"
    assert report.warnings[1].startswith("2 texts of data repeat another, up to case and spaces: data.duplicates: drop")
    assert report.warnings[2].endswith("of the texts have more than 8 words: data.max_length, data.too_long")
    assert report.warnings[3] == (
        "the labels 'Refund', 'refund', 'Refund ' differ in case or spaces: data.rename_labels: "
        '{"refund": Refund, "Refund ": Refund}'
    )
    assert report.warnings[4].startswith("the class 'refund' has 1 rows for 5 folds: merge it in data.rename_labels")
    assert report.warnings[-1].startswith("training will end with: Record 18 of tickets.csv has an empty text")
    names: dict[str, str | None] = {"refund": "Refund", "Refund ": "Refund"}
    clean = LabeledDataConfig(dataset=str(path), empty="drop", rename_labels=names, **COLUMNS)
    fixed = report_labeled(clean)
    assert not any("labels" in warning or "training" in warning for warning in fixed.warnings)
    assert fixed.facts[-1] == "parts: train 179, validation 20"
    assert "  1 rows have an empty text or label and are left out" in fixed.facts


def test_a_report_without_an_extra_names_no_path_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is published with the model."""
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "py3langid" else known(name))
    report = report_labeled(LabeledDataConfig(dataset=str(tickets(tmp_path / "tickets.csv")), **COLUMNS))
    assert "  languages: not guessed; to do so, run: pip install 'hfattn[data]'" in report.facts
    assert find_secret(written(tmp_path / "report.md", report.to_markdown()), set()) is None


def test_the_report_finds_contradictions_and_texts_of_another_part(tmp_path: Path) -> None:
    rows = [{"text": f"text {i}", "label": "ab"[i % 2]} for i in range(20)]
    (tmp_path / "train.jsonl").write_bytes(json_lines([*rows, {"text": "Text  1", "label": "a"}]))
    (tmp_path / "test.jsonl").write_bytes(json_lines(rows[:3]))
    paths = {"dataset": str(tmp_path / "train.jsonl"), "test": str(tmp_path / "test.jsonl")}
    warnings = report_labeled(LabeledDataConfig(**paths)).warnings  # type: ignore[arg-type]
    assert warnings[1].startswith("1 repeated texts of train have another label than before")
    merged = report_labeled(LabeledDataConfig(**paths, rename_labels={"b": "a"}))  # type: ignore[arg-type]
    assert not any("another label" in warning for warning in merged.warnings)
    assert "3 texts of test are in train too: data.duplicates: drop" in warnings


def test_the_report_of_other_tasks_says_what_is_cut_and_what_repeats() -> None:
    data = load_recipe(ROOT / "recipes" / "translation" / "train.py").DataConfig(dataset=GIVEN, max_target_length=8)
    pairs = {"source": ["a b"] * 2 + ["c d"], "target": ["e " * 9, "f", "f"]}
    whole = datasets.Dataset.from_dict(pairs)
    report = data.report(given=datasets.DatasetDict({"train": whole, "validation": whole}))
    assert report.warnings[0] == "33.3% of the texts have more than 8 words: data.max_target_length, data.too_long"
    assert report.warnings[-1] == "3 pairs of validation have a source of train: data.validation, data.test"
    ask = load_recipe(ROOT / "recipes" / "question_answering" / "train.py").DataConfig(dataset=GIVEN)
    answers = {"text": ["b"], "answer_start": [2]}
    rows = [{"question": f"{i}?", "context": "a b", "answers": answers} for i in range(3)]
    asked = {"train": datasets.Dataset.from_list(rows[:2]), "validation": datasets.Dataset.from_list(rows[2:])}
    shared = "1 questions of validation have a context of train: data.validation, data.test"
    assert shared in ask.report(given=datasets.DatasetDict(asked)).warnings
    recipe = load_recipe(ROOT / "recipes" / "token_classification" / "train.py")
    sentences = datasets.Dataset.from_dict({"tokens": [["a"] * 9, ["b"]], "tags": [["O"] * 9, ["B-X"]]})
    for too_long, warned in (("cut", ["50.0% of the texts"]), ("windows", [])):
        data = recipe.DataConfig(dataset=GIVEN, max_length=8, too_long=too_long, overlap=2, split=[1, "rest"])
        found = data.report(given=datasets.DatasetDict({"train": sentences, "validation": sentences.select([1])}))
        assert [warning[:18] for warning in found.warnings[:-1]] == warned
    report = describe_text(Text("text", lambda: iter(["aab" * 10, "cbcdd"])), [30, 3, "rest"])
    assert report.facts == ["data: 35 characters of text, 4 of them distinct", "parts: train 30, validation 3, test 2"]
    assert report.warnings == [
        "2 characters of validation, 1 distinct, do not occur in train: tokenizer.unknown: true",
        "2 characters of test, 1 distinct, do not occur in train: tokenizer.unknown: true",
    ]

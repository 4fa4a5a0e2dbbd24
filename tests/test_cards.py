"""A whole card of each recipe, as it is rendered from the results of a tiny run.

``python tests/test_cards.py`` renders them all again after a wanted change; read the difference before it is committed.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard, ModelCardData
from markdown_it import MarkdownIt
from markdown_it.token import Token

from hfattn.errors import UserError
from hfattn.hub.card import card_code, evaluation_entries, render_card, with_model_id
from hfattn.hub.card_facts import train_command, where_it_fails
from hfattn.hub.finishing import write_again
from hfattn.hub.templates import literal

CARDS = sorted(path.parent for path in (Path(__file__).parent / "cards").glob("*/results.json"))


def rendered(folder: Path) -> ModelCard:
    """The card by today's template; its code is not run again, for the weights are not here."""
    _, printed = card_code((folder / "README.md").read_text())
    return render_card(folder, json.loads((folder / "results.json").read_text()), lambda code: printed or "")


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_the_card_is_the_pinned_one(folder: Path) -> None:
    assert str(rendered(folder)) == (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "path", "sentence"),
    [
        ("char_lm", ("unknown_characters",), "Of the characters of test, 7 are not in the vocabulary."),
        ("causal_lm", ("parts", "test", "unknown_tokens"), "Of the tokens of test, 7 are the unknown token,"),
    ],
)
def test_the_card_says_what_the_vocabulary_lacks(name: str, path: tuple[str, ...], sentence: str) -> None:
    folder = Path(__file__).parent / "cards" / name
    results = json.loads((folder / "results.json").read_text())
    data = results["data"]
    for each in path[:-1]:
        data = data[each]
    data[path[-1]] = {"test": 7} if name == "char_lm" else 7
    printed = card_code((folder / "README.md").read_text())[1]
    assert sentence in str(render_card(folder, results, lambda code: printed or ""))


def test_results_of_an_earlier_version_are_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(json.dumps({"configuration": {"data": {"source": "dates"}}}))
    with pytest.raises(UserError, match=r"an earlier version of hfattn, .*; the model still loads, but train it again"):
        write_again(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_the_card_is_well_formed(folder: Path) -> None:
    """Its metadata are the Hub's; each table has rows as wide as its head; what has to be there is there."""
    card = ModelCard.load(folder / "README.md")
    assert card.data.eval_results
    lines = card.text.splitlines()
    for i, line in enumerate(lines):
        if re.fullmatch(r"(\|---)+\|", line):
            widths = [len(re.findall(r"(?<!\\)\|", row)) for row in lines[i - 1 : i + 2]]
            assert widths == [line.count("|")] * 3, lines[i - 1 : i + 2]
    headings = ["Use", "Results", "Intended use and limits", "Data", "Training", "Code in this repository", "Citation"]
    found = re.findall(r"^## (.*)$", card.text, re.MULTILINE)
    assert [each for each in found if each != "Architecture"] == headings
    prose = re.sub(r"^```.*?^```", "(code)", card.text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"\n{4,}|\b(undefined|None)\b", prose)


def test_results_of_an_older_version_are_refused(tmp_path: Path) -> None:
    results = json.loads((CARDS[0].parent / "translation" / "results.json").read_text())
    del results["data"]["vocabulary"]
    with pytest.raises(
        UserError, match=r"lacks a field that the card needs .*'vocabulary'.*; run the training command"
    ):
        render_card(tmp_path, results, lambda code: "")


@pytest.mark.parametrize(
    "text", ["😀 \U0001d465 𠀀", "a \"b\" 'c' \\ d", "a\nb\tc\r", "\u2028\x7f\u202e", "<b>&amp;</b>", "\ud800"]
)
def test_a_text_is_a_literal_of_python_and_of_yaml(text: str) -> None:
    assert ast.literal_eval(literal(text)) == text
    assert ast.literal_eval(literal([text, "b"])) == [text, "b"]
    assert literal(text).isprintable()
    if "\ud800" not in text:  # YAML has no surrogates
        assert yaml.safe_load(literal(text)) == text


# What a card works out


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        (
            "accelerate launch recipes/translation/train.py --config recipes/translation/dates.yaml --seed 2",
            "hfattn train translation/dates --seed 2",
        ),
        (
            "accelerate launch train.py --config dates.yaml --push_to user/dates --push_private --data.rows '[1, 2]'",
            "hfattn train translation/dates --data.rows '[1, 2]'",
        ),
        ("accelerate launch mine/train.py --config mine/dates.yaml", "hfattn train mine/dates.yaml"),
        ("accelerate launch train.py --config own.yaml", "hfattn train own.yaml"),
        ("accelerate launch bin/hfattn soup 'a b' c", "hfattn soup 'a b' c"),
        ("accelerate launch --multi_gpu --num_processes 2 train.py --config dates.yaml", None),
        ("hfattn convert nanogpt model.safetensors", None),
    ],
)
def test_the_command_of_a_card_is_the_one_a_user_types(recorded: str, shown: str | None) -> None:
    assert train_command({"recipe": "translation", "command": recorded}) == (shown or recorded)


def test_the_weakest_slices_are_named_with_their_sizes() -> None:
    slices = {
        "class: a|b": {"examples": 200, "accuracy": 0.62},
        "1-10 words": {"examples": 500, "accuracy": 0.89},
        "empty": {"examples": 0},
        "few": {"examples": 9, "accuracy": 0.0},
        "51+ words": {"examples": 40, "accuracy": 0.5},
    }
    results: dict[str, Any] = {"recipe": "classification", "data": {}, "metrics": {"test": {"accuracy": 0.9}}}
    assert where_it_fails(results) is None
    results["metrics"]["test"]["by_slice"] = slices
    assert where_it_fails(results) == [
        "51+ words: 50% of 40 texts are classified wrongly, and 10% of all.",
        "class: a\\|b: 38% of 200 texts are classified wrongly, and 10% of all.",
    ]
    lengths = [{"from": 1, "to": 9, "pairs": 90, "bleu": 60.0}, {"from": 10, "to": None, "pairs": 10, "bleu": 20.0}]
    kinds = {"exact_match_by_kind": {"1/2": 1.0, "3.4.": 0.2}, "pairs_by_kind": {"1/2": 100, "3.4.": 20}}
    scores = {"exact_match": 0.9, "bleu": 50.0, "by_source_length": lengths, **kinds}
    assert where_it_fails({"recipe": "translation", "metrics": {"test": scores}}) == [
        "3.4. (test): 80% of 20 texts are not translated as in the reference, and 13% of all.",
        "Sources of 10 or more words: BLEU is 20.0 on 10 pairs, and 50.0 on all.",
    ]


def test_the_code_loads_an_id_and_a_tag_and_the_folder_again() -> None:
    for folder in CARDS:
        text = (folder / "README.md").read_text()
        pushed = with_model_id(text, "user/name", "v1.0")
        code, _ = card_code(pushed)
        assert code == card_code(text)[0]
        (used,) = re.findall(r"^```python\n(.*?)^```", pushed, re.DOTALL | re.MULTILINE)[:1]
        loads = used.count("from_pretrained(model_id") + used.count("model=model_id")
        if folder.name != "baselines":
            assert used.count('model_id, revision="v1.0"') == loads > 0
        assert with_model_id(with_model_id(pushed, "user/name"), ".") == text


def test_scores_go_to_a_leaderboard_only_where_the_dataset_has_that_task() -> None:
    results = json.loads((CARDS[0].parent / "translation" / "results.json").read_text())

    def entries(**changes: Any) -> list[Any]:
        card = render_card(CARDS[0].parent / "translation", {**results, **changes}, lambda code: "")
        assert isinstance(card.data, ModelCardData)
        return evaluation_entries(card.data, {**results, **changes})

    assert entries() == []
    task = {"id": "iso", "config": "default", "split": "test"}
    source = {"id": "user/dates", "commit": "c" * 40, "tasks": [task, {**task, "id": "other", "split": "elsewhere"}]}
    (entry,) = entries(dataset=source)
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == ("user/dates", "iso", "c" * 40)
    assert entry.value == round(results["metrics"]["test"]["bleu"], 6)
    assert entry.notes.startswith("BLEU (test), measured by the recipe translation of hfattn")
    assert entries(dataset={**source, "tasks": []}) == []


# Texts that somebody else wrote

HOSTILE = (
    "![](https://evil.example/a.png) <img src=https://evil.example> [x](javascript:alert(1)) [y]: https://evil.example "
    "<https://evil.example> www.evil.example me@evil.example `b` ``` | c | $d$ &lt;\n\n# head\n\n````\n![][y]\n"
    "😀 \U0001d465 \u0301 \" \\ '\t\u2028 -->"
)
# What of results.json is no text of the data: choices of hfattn itself, hashes, and texts that the code computes with.
OWN = {"features", "kind", "pooling", "method", "algorithm", "preset", "sha256", "signatures", "tokenizer", "too_long"}
FOREIGN = (
    "data",
    "model",
    "samples",
    "captions",
    "example",
    "examples",
    "short_text",
    "short_texts",
    "telling",
    "neighbours",
    "teacher",
)
NAMED = ("by_slice", "entities_by_type", "exact_match_by_kind", "neighbours", "telling", "counterfactual")


def with_hostile_texts(value: Any, foreign: bool = False, named: bool = False) -> Any:
    """The results with ``HOSTILE`` after each text, and each name, that comes from data or from another repository."""
    if isinstance(value, dict):
        return {
            f"{name}{HOSTILE}" if named else name: with_hostile_texts(
                each, (foreign or name in FOREIGN) and name not in {*OWN, "alignment"}, name in NAMED
            )
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [with_hostile_texts(each, foreign) for each in value]
    return f"{value}{HOSTILE}" if foreign and isinstance(value, str) else value


def tokens_of(card: ModelCard) -> list[Token]:
    blocks = MarkdownIt("commonmark").enable("table").parse(card.text)
    return [each for block in blocks for each in (block, *(block.children or []))]


def shown(tokens: list[Token]) -> dict[str, list[Any]]:
    """Everything of a card that is more than text, by its kind: what it loads, what it links to, and its blocks."""
    return {
        "images": [each.attrs["src"] for each in tokens if each.type == "image"],
        "links": [each.attrs["href"] for each in tokens if each.type == "link_open"],
        "html": [each.content for each in tokens if each.type.startswith("html") and each.content != "<!-- -->"],
        "blocks": [each.type for each in tokens if each.block and each.type not in ("inline", "softbreak")],
    }


@pytest.mark.parametrize("folder", CARDS, ids=lambda folder: folder.name)
def test_texts_of_somebody_else_stay_texts(folder: Path) -> None:
    """No picture is loaded, no link and no element appears, no table or heading breaks; the code computes with them."""
    results = json.loads((folder / "results.json").read_text())
    hostile = with_hostile_texts(results)
    card = render_card(folder, hostile, lambda code: HOSTILE)
    assert shown(tokens_of(card)) == shown(tokens_of(ModelCard.load(folder / "README.md")))
    prose = " ".join(each.content for each in tokens_of(card) if each.type == "text")
    assert "![](" in prose
    assert not re.search(r"https?://evil|www\.evil|\w@evil", prose)
    code, printed = card_code(str(card))
    assert (printed or "").strip() == HOSTILE.strip()
    texts = [node.value for node in ast.walk(ast.parse(code or "")) if isinstance(node, ast.Constant)]
    quotes = any(isinstance(text, str) and text.endswith(HOSTILE) for text in texts)
    assert quotes or folder.name == "image_classification"  # whose code reads no text


if __name__ == "__main__":
    for each in CARDS:
        rendered(each).save(each / "README.md")

"""A whole card of each recipe, as it is rendered from the results of a tiny run.

``python tests/test_cards.py`` renders them all again after a wanted change; read the difference before it is committed.
"""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from hfattn.errors import UserError
from hfattn.hub.card import card_code, render_card
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


if __name__ == "__main__":
    for each in CARDS:
        rendered(each).save(each / "README.md")

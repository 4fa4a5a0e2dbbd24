"""Character tokenizers: exact round trips, and a plain tokenizer.json."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from hfattn.errors import UserError
from hfattn.tokenizers import build_character_tokenizer, uncovered_characters

TEXTS = [
    "To be, or not to be.\nThat is\tthe question:\r\n  two  spaces  \x0b\x0c\x85\u2028",
    "¡Año, pingüino, corazón! «ß» ﬁ ½ ①",
    "漢字かな交じり文、한국어 ไทย हिन्दी עברית العربية",
    "e\u0301 é 👩‍👩‍👧 🇪🇸 \u200d\ufeff\u00ad\x00\x7f",
    "[PAD] [UNK] <s> ##a Ġ ▁ \\n ''' \"",
]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip_is_exact(tmp_path: Path, text: str) -> None:
    tokenizer = build_character_tokenizer([text])
    tokenizer.save_pretrained(tmp_path)
    for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path)):
        ids = each(text).input_ids
        assert len(ids) == len(text)
        assert each.decode(ids) == text
        assert each.pad_token_id not in ids  # "[PAD]" in a text is five characters


def test_a_process_without_hfattn_loads_it_with_no_custom_code(tmp_path: Path) -> None:
    text = "".join(TEXTS)
    tokenizer = build_character_tokenizer([text], lowercase=True, unknown=True)
    tokenizer.save_pretrained(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tokenizer.json", "tokenizer_config.json"]
    assert "auto_map" not in json.loads((tmp_path / "tokenizer_config.json").read_text())
    code = (
        "import sys, json\n"
        "sys.modules['hfattn'] = None\n"
        "from transformers import AutoTokenizer\n"
        "tokenizer = AutoTokenizer.from_pretrained(sys.argv[1], trust_remote_code=False)\n"
        "print(json.dumps(tokenizer(json.loads(sys.stdin.read())).input_ids))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], input=json.dumps(text), capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == tokenizer(text).input_ids


def test_vocabulary_and_options() -> None:
    tokenizer = build_character_tokenizer(["bAab"])
    assert tokenizer.get_vocab() == {"[PAD]": 0, "A": 1, "a": 2, "b": 3}
    lower = build_character_tokenizer({"b": 2, "A": 1, "a": 1, "İ": 1}, lowercase=True, min_count=2, unknown=True)
    assert lower.get_vocab() == {"[PAD]": 0, "[UNK]": 1, "a": 2, "b": 3}
    assert lower("BAz").input_ids == [3, 2, 1]
    # One capital may become several characters, each by itself: İ is i and a dot above.
    assert build_character_tokenizer(["İ"], lowercase=True).decode([1, 2]) == "i̇"


def test_batches_are_padded_on_the_left() -> None:
    tokenizer = build_character_tokenizer(["abc"])
    batch = tokenizer(["a", "cab"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[0, 0, 1], [3, 1, 2]]
    assert batch.attention_mask.tolist() == [[0, 0, 1], [1, 1, 1]]
    assert set(batch) == {"input_ids", "attention_mask"}
    assert tokenizer.batch_decode(batch.input_ids, skip_special_tokens=True) == ["a", "cab"]


def test_uncovered_characters() -> None:
    tokenizer = build_character_tokenizer(["abc"], lowercase=True)
    assert uncovered_characters(tokenizer, "ABCzz!") == ["!", "z"]
    assert uncovered_characters(build_character_tokenizer(["abc"], unknown=True), "z") == []


def test_bad_input() -> None:
    with pytest.raises(UserError, match="The text is empty"):
        build_character_tokenizer([])
    with pytest.raises(UserError, match="add unknown: true"):
        build_character_tokenizer(["abc"], min_count=2)
    with pytest.raises(UserError, match="vocabulary is empty; lower min_count"):
        build_character_tokenizer(["abc"], min_count=2, unknown=True)

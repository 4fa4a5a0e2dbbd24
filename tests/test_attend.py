"""``hfattn attend`` and ``hfattn show``: what they print, the files they write, and what they refuse."""

import csv
import json
import math
import os
import re
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import files_of_at_most
from tiny_models import TEXTS, byte_tokenizer, wordpiece_tokenizer
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner, Result

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    RNNEncoderConfig,
    RNNEncoderForSequenceClassification,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.explaining import (
    AttentionRecord,
    agreement,
    hidden_units,
    plot_heads,
    saliency,
    score_tokens,
    strongest_unit,
    summary,
)
from hfattn.loading import load_any_model, load_language_model
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

TEXT = "A dull film, told in Paris."


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of small random models of all kinds."""
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    pieces, levels = wordpiece_tokenizer(TEXTS, types=True), byte_tokenizer(TEXTS)
    characters, ended = build_character_tokenizer(TEXTS), build_character_tokenizer(TEXTS, ends=True)
    seq2seq = {
        "vocab_size": len(ended), "hidden_size": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        "decoder_start_token_id": 1,
    }  # fmt: skip
    labels: dict[str, Any] = {"id2label": {0: "bad", 1: "good"}}
    made: dict[str, tuple[Any, Any]] = {
        "bert": (
            BertForSequenceClassification(
                BertConfig(
                    vocab_size=len(pieces), hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
                    intermediate_size=8, **labels,
                )
            ),
            pieces,
        ),
        "mean": (
            RNNEncoderForSequenceClassification(
                RNNEncoderConfig(vocab_size=len(pieces), embedding_size=8, hidden_size=8, pooling="mean")
            ),
            pieces,
        ),
        "rnn": (
            RNNEncoderForSequenceClassification(
                RNNEncoderConfig(
                    vocab_size=len(pieces), embedding_size=8, hidden_size=8, pooling="attention", pad_token_id=0,
                    **labels,
                )
            ),
            pieces,
        ),
        "gpt2": (GPT2LMHeadModel(GPT2Config(vocab_size=len(levels), n_embd=8, n_layer=1, n_head=1)).half(), levels),
        "writer": (CharRNNForCausalLM(CharRNNConfig(vocab_size=len(characters), hidden_size=8)), characters),
        "translator": (
            BahdanauForConditionalGeneration(BahdanauConfig(**seq2seq, encoder_hidden_size=4, embedding_size=8)),
            ended,
        ),
        "transformer": (
            VaswaniForConditionalGeneration(
                VaswaniConfig.preset("small", **seq2seq, intermediate_size=8, num_attention_heads=2)
            ),
            ended,
        ),
    }  # fmt: skip
    for name, (model, tokenizer) in made.items():
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.requires_grad:
                    parameter.normal_(std=0.3)
        if model.can_generate() and model.config.is_encoder_decoder:
            model.generation_config.max_new_tokens, model.generation_config.max_length = 5, None
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def show(folder: Path, name: str, view: str, *words: object) -> Result:
    """``hfattn attend``, or ``hfattn show`` with another view."""
    command = ["attend"] if view == "attend" else ["show", view]
    return CliRunner().invoke(app, [*command, str(folder / name), TEXT, *map(str, words)])


@pytest.mark.parametrize(
    ("name", "view", "words", "title"),
    [
        ("bert", "rollout", (), TEXT),
        ("transformer", "rollout", (), TEXT),
        ("transformer", "attend", ("--layer", 2, "--head", 1), f"{TEXT} → "),
        ("bert", "gradient", (), "gradient × input → "),
        ("rnn", "integrated-gradients", ("--target", "bad"), "integrated gradients → bad"),
        ("gpt2", "gradient", ("--target", "d"), "gradient × input → d"),
        ("translator", "gradient", ("--target", 1), "gradient × input → "),
        ("writer", "unit", ("--unit", 3), "unit 3"),
        ("writer", "integrated-gradients", (), "integrated gradients → "),
        (
            "bert",
            "occlusion",
            ("--target", "good", "--contrast", "bad"),
            "occlusion (by [MASK]) → good rather",
        ),
        ("translator", "integrated-gradients", ("--rows",), f"integrated gradients: {TEXT}"),
    ],
)
def test_lists_pages_and_pictures(models: Path, tmp_path: Path, name: str, view: str, words: Any, title: str) -> None:
    listed = show(models, name, view, *words)
    assert listed.exit_code == 0, listed.output
    assert listed.stdout.startswith(title)
    assert len(listed.stdout.splitlines()) > 3
    for file, start in (("a.html", b"<!doctype html>"), ("a.svg", b"<?xml")):
        done = show(models, name, view, *words, "-o", tmp_path / file)
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[0] == listed.stdout.splitlines()[0]
        assert done.stdout.endswith(f": {tmp_path / file}\n")
        assert (tmp_path / file).read_bytes()[:20].lower().startswith(start)


@pytest.mark.parametrize(
    ("name", "view", "words", "file", "start"),
    [
        ("bert", "heads", (), "a.png", b"\x89PNG"),
        ("transformer", "heads", ("--layer", 1), "a.svg", b"<?xml"),
        ("bert", "flow", ("--layer", 2, "--head", 1), "a.png", b"\x89PNG"),
        ("translator", "flow", (), "a.pdf", b"%PDF"),
        ("translator", "attend", (), "a.gif", b"GIF8"),
    ],
)
def test_pictures(models: Path, tmp_path: Path, name: str, view: str, words: Any, file: str, start: bytes) -> None:
    done = show(models, name, view, *words, "-o", tmp_path / file)
    assert done.exit_code == 0, done.output
    assert (tmp_path / file).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [file]


def test_a_full_disk_keeps_the_file_that_was_there(models: Path, tmp_path: Path) -> None:
    picture = tmp_path / "a.png"
    picture.write_bytes(b"before")
    with files_of_at_most(1000):
        done = show(models, "bert", "heads", "-o", picture)
    assert done.exit_code == 2, done.output
    assert f"The disk is full: {picture} was not written; free some space and try again." in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]
    assert picture.read_bytes() == b"before"


@pytest.mark.parametrize("word", ["attend", "generate"])
def test_a_text_that_is_not_utf8(models: Path, word: str) -> None:
    text = os.fsdecode(b"caf\xe9")
    words = [str(models / "gpt2"), text] if word == "attend" else [str(models / "gpt2"), "--prompt", text]
    done = CliRunner().invoke(app, [word, *words])
    assert done.exit_code == 2, done.output
    assert done.stderr == "error: A text is not UTF-8; check the encoding of the terminal.\n"


def test_a_layer_keeps_its_number() -> None:
    record = AttentionRecord(tuple("ab"), tuple("ab"), torch.full((2, 2, 2, 2), 0.5), "self")
    texts = {text.get_text() for axes in plot_heads(record, layer=1).axes for text in axes.texts}
    assert {"L2 H1", "L2 H2"} <= texts
    assert not {"L1 H1", "L1 H2"} & texts


def test_numbers_of_each_head(models: Path) -> None:
    lines = show(models, "bert", "attend", "--numbers").stdout.splitlines()
    assert lines[1].split("  ") == [
        "layer", "head", "entropy", "normalized entropy", "effective tokens", "diagonality", "mean distance",
    ]  # fmt: skip
    assert [line.split()[:2] for line in lines[2:]] == [[a, b] for a in "12" for b in "12"]
    selected = show(models, "bert", "attend", "--numbers", "--layer", 2).stdout.splitlines()
    assert selected[0].endswith(" (layer 2)")
    assert selected[2:] == lines[4:]
    lines = show(models, "translator", "attend", "--numbers").stdout.splitlines()
    assert lines[1].endswith("coverage deviation")
    assert len(lines) == 3


@pytest.mark.parametrize("name", ["bert", "rnn", "translator"])
def test_agreement_of_gradients_and_attention(models: Path, name: str) -> None:
    """For a classifier, as the functions of the package say it; and for a translation, of the row of the target."""
    words = ("--target", 1) if name == "translator" else ()
    line = show(models, name, "gradient", "--agreement", *words).stdout.splitlines()[1]
    found = re.fullmatch(r"agreement with attention: Kendall (\S+), Spearman (\S+), (\d+)% of the top 3 shared", line)
    assert found, line
    model, tokenizer, _ = load_any_model(str(models / name))
    inputs = tokenizer(TEXT, return_tensors="pt")
    inputs = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    with torch.no_grad():
        if name == "translator":
            sequence = model.generate(**inputs)
            outputs = model(**inputs, decoder_input_ids=sequence[:, :-1], output_attentions=True)
            weights = outputs.cross_attentions[0][0, 0, 1]
        else:
            model.set_attn_implementation("eager")
            weights = torch.stack(model(**inputs, output_attentions=True).attentions).mean((0, 1, 2, 3))
    attention = score_tokens(TEXT, tokenizer, weights, "attention").by_word()
    scored = saliency(model, tokenizer, TEXT, by_word=True, target=1 if name == "translator" else None)
    known = agreement(attention.scores, scored.scores)
    assert float(found[1]) == pytest.approx(known.kendall, abs=2e-3)
    assert float(found[2]) == pytest.approx(known.spearman, abs=2e-3)
    assert int(found[3]) == round(100 * known.top_k)


def attend(folder: Path, name: str, *words: object) -> Result:
    return CliRunner().invoke(app, ["attend", str(folder / name), *map(str, words)])


def attention_shown(result: Result) -> str:
    """Return the part of the list that is the attention of a classifier."""
    return result.stdout.rpartition("attention: ")[2]


def test_words_are_merged_and_special_tokens_hidden(models: Path) -> None:
    lines = attention_shown(attend(models, "bert", TEXT, "--words", "--hide-special")).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["A", "dull", "film", ",", "told", "in", "Paris", "."]
    lines = attend(models, "translator", TEXT, "--words").stdout.splitlines()
    assert not {"d", "u"} & {word for line in lines[1:] for word in line.split()}


def test_several_translations_of_a_text(models: Path, tmp_path: Path) -> None:
    done = attend(models, "transformer", TEXT, "--hypotheses", 2)
    first, second = done.stdout.split("\n\n")
    (best, other) = (each.splitlines()[0] for each in (first, second))
    assert best.startswith(f"{TEXT} → ")
    assert other.startswith(f"{TEXT} → ")
    assert best != other
    done = attend(models, "transformer", TEXT, "--hypotheses", 2, "-o", tmp_path / "two.html")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "two.html").read_text(encoding="utf-8").count("<iframe") == 2


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\nIn Paris, a film.\n", encoding="utf-8")
    return tmp_path / "texts.txt"


def test_a_file_of_texts(models: Path, texts: Path) -> None:
    """The attention to each text as it is shown alone: as a list, on one page, as weights and as measures."""
    alone = [attention_shown(attend(models, "bert", text)) for text in (TEXT, "In Paris, a film.")]
    assert attend(models, "bert", "--file", texts).stdout == "\n".join(alone)

    written = {kind: texts.with_suffix(f".{kind}") for kind in ("html", "jsonl", "csv")}
    for path in written.values():
        done = attend(models, "bert", "--file", texts, "--layer", 2, "-o", path)
        assert done.stdout == f"Written: {path}\n"
    assert "In Paris, a film. (layer 2)" in written["html"].read_text(encoding="utf-8")
    lines = [json.loads(line) for line in written["jsonl"].read_text(encoding="utf-8").splitlines()]
    assert [line["text"] for line in lines] == [TEXT, "In Paris, a film."]
    records = [AttentionRecord.from_dict(line) for line in lines]
    assert [record.weights.shape[:2] for record in records] == [(1, 2)] * 2
    with written["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["text"], row["layer"], row["head"]) for row in rows] == [
        (line["text"], "2", head) for line in lines for head in "12"
    ]
    for row, (record, head) in zip(rows, product(records, (0, 1)), strict=True):
        assert float(row["entropy"]) == pytest.approx(summary(record)["heads"][head]["entropy"], rel=1e-6)
    assert sorted(path.name for path in texts.parent.iterdir()) == sorted(
        [texts.name, *(path.name for path in written.values())]
    )


def test_numbers_of_a_translation(models: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    assert attend(models, "translator", TEXT, "-o", path).exit_code == 0
    (line,) = path.read_text(encoding="utf-8").splitlines()
    found = json.loads(line)
    assert found["score"] == pytest.approx(sum(math.log(share) for share in found["probabilities"]), abs=1e-4)
    assert len(found["entropies"]) == len(found["target_tokens"])


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("bert", (), "Write either a text, or --file with a file of texts."),
        ("bert", (TEXT, "--file", "texts.txt"), "Write either a text, or --file with a file of texts."),
        (
            "bert",
            ("--file", "missing.txt"),
            "missing.txt is not a file; with --file, write the path of a file with a text",
        ),
        ("bert", ("--file", "."), ". is not a file;"),
        ("bert", ("--file", "empty.txt"), "empty.txt has no text; write one on each line."),
        (
            "bert",
            ("--file", "texts.txt", "-o", "a.png"),
            "Cannot write a.png: end the name with .html, .jsonl or",
        ),
        ("writer", ("--file", "texts.txt", "-o", "a.csv"), "Line 1 of texts.txt: "),
        ("translator", ("--file", "strange.txt", "-o", "a.jsonl"), "Line 2 of strange.txt: The text contains"),
        ("translator", ("--file", "texts.txt", "--hypotheses", 2), "compares the translations of one text"),
        ("bert", (TEXT, "--hypotheses", 2), "does not translate; remove --num-beams, --max-new-tokens and --hypo"),
        ("translator", (TEXT, "--hypotheses", 2, "-o", "a.png"), "end the name with .html, .jsonl or .csv"),
        ("bert", ("--file", "latin.txt"), "Line 1 of latin.txt is not UTF-8"),
    ],
)
def test_what_a_file_cannot_be(
    models: Path, texts: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: Any, message: str
) -> None:
    monkeypatch.chdir(texts.parent)
    Path("empty.txt").write_text("\n \n", encoding="utf-8")
    Path("strange.txt").write_text(f"{TEXT}\n{TEXT} 漢\n", encoding="utf-8")
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    before = sorted(Path().iterdir())
    done = attend(models, name, *words)
    assert done.exit_code == 2, done.output
    assert message in re.sub(r"[\s│]+", " ", done.stderr)
    assert done.stdout == ""
    assert sorted(Path().iterdir()) == before


def test_the_unit_that_moves_most(models: Path) -> None:
    units = hidden_units(*load_language_model(str(models / "writer")), TEXT)
    assert show(models, "writer", "unit").stdout.startswith(f"unit {strongest_unit(units)}\n")


@pytest.mark.parametrize(
    ("name", "view", "words", "message"),
    [
        ("bert", "everything", (), "No such command 'everything'"),
        ("bert", "attend", ("--unit", "1"), "No such option: --unit"),
        ("bert", "gradient", ("--layer", "1"), "No such option: --layer"),
        ("bert", "heads", (), "Missing option '--output'"),
        ("bert", "flow", ("-o", "a.html"), "Cannot write a.html: end the name with .png, .svg or .pdf."),
        ("bert", "attend", ("--layer", "7"), "There is no layer 7; with --layer, write 1 to 2."),
        ("bert", "flow", ("--head", "3", "-o", "a.png"), "There is no head 3; with --head, write 1 to 2."),
        ("translator", "heads", ("--layer", "2", "-o", "a.png"), "There is no layer 2; with --layer, write 1."),
        ("bert", "gradient", ("--target", "fine"), "not a class; write one of bad, good, or its index"),
        ("bert", "unit", (), "is a classifier (BertForSequenceClassification), not a language model; use hfattn"),
        ("writer", "unit", ("--unit", "99"), "unit is 99; the model has"),
        ("writer", "rollout", (), "has no attention; choose"),
        ("mean", "attend", (), "has no attention; choose a model with attention, or hfattn show gradient"),
        ("writer", "gradient", ("--agreement",), "has no attention; choose"),
        ("translator", "rollout", (), "has no self-attention; hfattn attend shows"),
        ("translator", "gradient", ("--target", "9"), "target is 9; write the index of a token"),
        ("rnn", "rollout", (), "Rollout needs a row for each token"),
        ("bert", "occlusion", ("--rows",), "the model does not translate"),
        ("translator", "occlusion", ("--rows", "--target", "1"), "remove --target, --contrast and --agreement"),
        ("translator", "gradient", ("--contrast", "d"), "A contrast needs target, the index of a token"),
        ("translator", "gradient", ("-o", "a.csv"), "Cannot write a.csv: end the name with .html, .png, .svg or .pdf."),
        ("bert", "gradient", ("--contrast", "fine"), "contrast is 'fine', which is not a class"),
    ],
)
def test_what_cannot_be_shown(models: Path, name: str, view: str, words: Any, message: str) -> None:
    done = show(models, name, view, *words)
    assert done.exit_code == 2, done.output
    said = re.sub(r"[\s│]+", " ", done.stderr)
    assert message in said
    assert done.stdout == ""


def test_a_classifier_shows_first_what_its_answer_depends_on(models: Path, tmp_path: Path) -> None:
    """The lines of ``show gradient`` and then those of attention; on a page the same, and in numbers nothing."""

    def said(*words: str) -> str:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
        return result.stdout

    name = str(models / "bert")
    scores, answer = said("show", "gradient", name, TEXT), said("attend", name, TEXT)
    assert answer.startswith(f"{scores}\nattention: {TEXT}\n")
    assert "←" in answer.removeprefix(scores)
    page = tmp_path / "page.html"
    assert said("attend", name, TEXT, "-o", str(page)).splitlines()[0] == scores.splitlines()[0]
    assert page.read_text().index('class="hfattn-scores"') < page.read_text().index('id="source"')
    assert "gradient" not in said("attend", name, TEXT, "--numbers")

"""Predictions for many inputs, against the model alone on each; and files of predictions."""

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import torch
from commands import written
from filelock import FileLock
from PIL import Image
from test_pipeline import TOKENIZER, make
from tiny_models import TEXTS, tiny_captioner, tiny_model
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    DistilBertForQuestionAnswering,
    DistilBertForSequenceClassification,
    DistilBertForTokenClassification,
    GPT2LMHeadModel,
)
from typer.testing import CliRunner

import hfattn
from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.errors import UserError
from hfattn.loading import load_captioner, load_translation_model, save_translator
from hfattn.pipelines import captions, translations
from hfattn.predicted_files import open_inputs
from hfattn.predicting import IMAGE, Predictor
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

pytestmark = pytest.mark.runs

WORDS = ["i like football", "go", "good morning", "ball", "a b c d e f g"]
HEADS: dict[str, tuple[Any, dict[str, Any]]] = {
    "classifier": (DistilBertForSequenceClassification, {"id2label": {0: "bad", 1: "good", 2: "fair"}}),
    "regression": (DistilBertForSequenceClassification, {"num_labels": 1, "problem_type": "regression"}),
    "choices": (DistilBertForSequenceClassification, {"id2label": {0: "score"}, "problem_type": None}),
    "tagger": (DistilBertForTokenClassification, {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}}),
    "answers": (DistilBertForQuestionAnswering, {}),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of each task."""
    parent = tmp_path_factory.mktemp("models")
    body = tiny_model(parent / "body")
    tokenizer = AutoTokenizer.from_pretrained(body)
    for name, (head, options) in HEADS.items():
        torch.manual_seed(1)
        model = head.from_pretrained(body, **options)
        with torch.no_grad():  # far from uniform
            for parameter in list(model.parameters())[-4:]:
                parameter.normal_(std=0.5)
        model.save_pretrained(parent / name)
        tokenizer.save_pretrained(parent / name)
    tiny_model(parent / "writer", "gpt2")
    tiny_model(parent / "masked", "vaswani")
    torch.manual_seed(0)
    letters = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(TOKENIZER), hidden_size=16, pad_token_id=0))
    letters.save_pretrained(parent / "letters")
    TOKENIZER.save_pretrained(parent / "letters")
    for name in ("bahdanau", "sutskever2014", "vaswani", "marian"):
        save_translator(parent / name, make(name).float(), TOKENIZER)
    return parent


def loaded(folder: Path, name: str) -> tuple[Any, Any]:
    return HEADS[name][0].from_pretrained(folder / name).eval(), AutoTokenizer.from_pretrained(folder / name)


@torch.no_grad()
def test_classes_and_numbers(folders: Path) -> None:
    model, tokenizer = loaded(folders, "classifier")
    pairs = [(text, other) for text, other in zip(TEXTS, reversed(TEXTS), strict=True)]
    for inputs in (list(TEXTS), pairs):
        found = hfattn.predict(folders / "classifier", inputs, batch_size=3)
        for given, answer in zip(inputs, found, strict=True):
            texts = (given,) if isinstance(given, str) else given
            expected = model(**tokenizer(*texts, return_tensors="pt", truncation=True)).logits[0].softmax(-1)
            names = ("bad", "good", "fair")
            assert list(answer["probabilities"]) == list(names)
            assert list(answer["probabilities"].values()) == pytest.approx(expected.tolist(), abs=1e-5)
            assert answer["label"] == names[int(expected.argmax())]
            assert answer["probability"] == max(answer["probabilities"].values())
    one = hfattn.predict(folders / "classifier", [TEXTS[0]])[0]  # not as a pair with an empty text
    assert hfattn.predict(folders / "classifier", [pairs[1], TEXTS[0]])[1]["probabilities"] == pytest.approx(
        one["probabilities"], abs=1e-5
    )
    model, tokenizer = loaded(folders, "regression")
    for text, answer in zip(TEXTS, hfattn.predict(folders / "regression", TEXTS), strict=True):
        expected = model(**tokenizer(text, return_tensors="pt")).logits
        assert answer == {"number": pytest.approx(float(expected), rel=1e-5)}


@torch.no_grad()
def test_choices(folders: Path) -> None:
    model, tokenizer = loaded(folders, "choices")
    inputs = [{"context": TEXTS[0], "choices": TEXTS[1:]}, {"context": TEXTS[1], "choices": TEXTS[:2]}]
    for given, answer in zip(inputs, hfattn.predict(folders / "choices", inputs), strict=True):
        logits = [
            float(model(**tokenizer(given["context"], each, return_tensors="pt")).logits) for each in given["choices"]
        ]
        assert answer["probabilities"] == pytest.approx(torch.tensor(logits).softmax(0).tolist(), abs=1e-5)
        assert answer["answer"] == given["choices"][answer["choice"]] == given["choices"][logits.index(max(logits))]


def test_the_choices_of_a_file_are_lists_or_columns(folders: Path, tmp_path: Path) -> None:
    (expected,) = hfattn.predict(folders / "choices", [{"context": TEXTS[0], "choices": TEXTS[1:4]}])
    lists = written(tmp_path / "lists.jsonl", [{"context": TEXTS[0], "choices": TEXTS[1:4]}])
    columns = written(tmp_path / "columns.jsonl", [{"context": TEXTS[0], **dict(zip("abc", TEXTS[1:4], strict=True))}])
    found = [
        json.loads(run_predict(folders / "choices", lists)),
        json.loads(run_predict(folders / "choices", columns, "--columns", "context,a,b,c")),
    ]
    trained = shutil.copytree(folders / "choices", tmp_path / "trained")
    data = {"context_column": "context", "choice_columns": ["a", "b", "c"]}
    (trained / "results.json").write_text(json.dumps({"configuration": {"data": data}}))
    found.append(json.loads(run_predict(trained, columns)))
    for each in found:
        assert {name: each[name] for name in expected} == expected


def test_captions_are_those_of_the_pipeline(tmp_path: Path) -> None:
    model = tiny_captioner(tmp_path / "captioner")
    (tmp_path / "images").mkdir()
    paths = [tmp_path / "images" / f"{i}.png" for i in range(3)]
    for i, path in enumerate(paths):
        pixels = np.random.default_rng(i).integers(0, 255, (20 + i, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    captioner, tokenizer, processor = load_captioner(str(model))
    expected = captions(captioner, tokenizer, processor, [Image.open(path) for path in paths], num_beams=2)
    printed = run_predict(model, tmp_path / "images", "--num-beams", 2, "--hypotheses", 2)
    for line, path, best in zip(printed.splitlines(), paths, expected, strict=True):
        found = json.loads(line)
        assert found["image"] == str(path)
        assert found["caption"] == best["caption_text"]
        assert found["score"] == pytest.approx(best["score"], abs=1e-4)
        assert found["hypotheses"][0] == {"caption": found["caption"], "score": found["score"]}
        assert len(found["hypotheses"]) == 2
    captioner.bfloat16().save_pretrained(model)
    halved = [json.loads(line)["score"] for line in run_predict(model, tmp_path / "images").splitlines()]
    assert halved == pytest.approx([each["score"] for each in captions(*load_captioner(str(model)), paths)], abs=0.1)
    refused = run_predict(model, tmp_path / "images", "--abstain", code=2)
    assert "its options are hypotheses and num_beams and max_new_tokens" in refused
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    assert f"The image {paths[1]} is damaged" in run_predict(model, tmp_path / "images", code=2)


@torch.no_grad()
def test_the_tag_of_a_word_is_that_of_its_first_piece(folders: Path) -> None:
    model, tokenizer = loaded(folders, "tagger")
    text = TEXTS[2]
    (answer,) = hfattn.predict(folders / "tagger", [text])
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    offsets, words = encoded.pop("offset_mapping")[0], encoded.word_ids(0)
    tags = [model.config.id2label[int(i)] for i in model(**encoded).logits[0].argmax(-1)]
    first = {word: i for i, word in reversed(list(enumerate(words))) if word is not None}
    begun = [int(offsets[i][0]) for _, i in sorted(first.items()) if tags[i].startswith("B-")]
    assert begun
    assert {entity["start"] for entity in answer["entities"]} >= set(begun)
    assert all(text[each["start"] : each["end"]] == each["text"] for each in answer["entities"])
    long = " ".join([text] * 6)  # of more tokens than the model reads at once
    (answer,) = hfattn.predict(folders / "tagger", [long])
    assert max(each["start"] for each in answer["entities"]) > len(long) - len(text)
    assert hfattn.predict(folders / "tagger", [" "]) == [{"entities": []}]


@torch.no_grad()
def test_an_answer_is_the_best_span_and_where_it_stands(folders: Path) -> None:
    model, tokenizer = loaded(folders, "answers")
    contexts = [TEXTS[3], "The dog. The dog. The dog saw the dog."]
    found = hfattn.predict(folders / "answers", [("Who was it?", context) for context in contexts])
    for context, answer in zip(contexts, found, strict=True):
        encoded = tokenizer("Who was it?", context, return_tensors="pt", return_offsets_mapping=True)
        offsets = encoded.pop("offset_mapping")[0]
        outputs = model(**encoded)
        inside = [i for i, part in enumerate(encoded.sequence_ids(0)) if part == 1]
        spans = [(i, j) for i in inside for j in inside if i <= j < i + 30]
        i, j = max(spans, key=lambda span: float(outputs.start_logits[0, span[0]] + outputs.end_logits[0, span[1]]))
        start, end = int(offsets[i][0]), int(offsets[j][1])
        assert (answer["start"], answer["answer"]) == (start, context[start:end])
        assert 0 < answer["probability"] <= 1


@pytest.mark.parametrize("name", ["bahdanau", "sutskever2014", "vaswani", "marian"])
def test_translations_and_their_log_probabilities(folders: Path, name: str) -> None:
    """In one batch, as the pipeline gives them one by one, whose log-probability comes from the decoding itself."""
    translator = load_translation_model(str(folders / name))
    options = {"num_beams": 3, "max_new_tokens": 12}
    for hypotheses in (1, 3):
        found = hfattn.predict(folders / name, WORDS, hypotheses=hypotheses, **options)  # type: ignore[arg-type]
        for text, answer in zip(WORDS, found, strict=True):
            (expected,) = translations(*translator, [text], 3, 12, hypotheses)
            expected = expected if hypotheses > 1 else [expected]
            given = answer.get("hypotheses", [answer])
            assert [each["translation"] for each in given] == [each["translation_text"] for each in expected]
            scores = [each["score"] for each in expected]
            assert [each["score"] for each in given] == pytest.approx(scores, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("name", ["writer", "letters"])
def test_prompts_of_different_lengths_are_continued_as_alone(folders: Path, name: str) -> None:
    kind = {"writer": GPT2LMHeadModel, "letters": CharRNNForCausalLM}[name]
    model = kind.from_pretrained(folders / name).eval()
    tokenizer = AutoTokenizer.from_pretrained(folders / name)
    for prompt, answer in zip(WORDS, hfattn.predict(folders / name, WORDS, max_new_tokens=8), strict=True):
        encoded = tokenizer(prompt, return_tensors="pt")
        ids = {each: encoded[each] for each in ("input_ids", "attention_mask")}
        expected = model.generate(**ids, max_new_tokens=8, do_sample=False, pad_token_id=0)
        length = ids["input_ids"].shape[1]
        assert answer["continuation"] == tokenizer.decode(expected[0, length:], skip_special_tokens=True)


@pytest.mark.parametrize("stored", [{}, {"max_length": 60}])
def test_what_a_short_prompt_is_continued_with_does_not_depend_on_a_long_one(
    folders: Path, tmp_path: Path, stored: dict[str, int]
) -> None:
    """The positions of the model, or its stored maximum, leave little room after the long one."""
    folder = shutil.copytree(folders / "writer", tmp_path / "writer")
    model = GPT2LMHeadModel.from_pretrained(folder)
    model.generation_config.update(eos_token_id=None, **stored)
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    prompts = ["The dog", "a " * 20, "A film", "Mary"]
    lengths = [len(tokenizer(prompt).input_ids) for prompt in prompts]
    assert 50 > max(lengths) > 2 * max(lengths[0], lengths[2], lengths[3])
    found = hfattn.predict(folder, prompts)
    assert found == [hfattn.predict(folder, [prompt])[0] for prompt in prompts]
    written_tokens = [len(tokenizer(each["continuation"]).input_ids) for each in found]
    assert min(written_tokens[0], written_tokens[2]) > 40
    if stored:
        with pytest.raises(
            UserError, match="Input 1 has 61 tokens, and the model ends a text after 60; shorten it, or"
        ):
            hfattn.predict(folder, ["a" + " a" * 60])
    few = hfattn.predict(folder, prompts, max_new_tokens=8)
    assert few == [hfattn.predict(folder, [prompt], max_new_tokens=8)[0] for prompt in prompts]


@torch.no_grad()
def test_what_is_masked(folders: Path) -> None:
    model = AutoModelForMaskedLM.from_pretrained(folders / "masked").eval()
    tokenizer = AutoTokenizer.from_pretrained(folders / "masked")
    texts = ["The [MASK] was happy.", "[MASK] wrote the [MASK] in London."]
    for text, answer in zip(texts, hfattn.predict(folders / "masked", texts), strict=True):
        encoded = tokenizer(text, return_tensors="pt")
        probabilities = model(**encoded).logits[0].softmax(-1)
        places = [i for i, token in enumerate(encoded["input_ids"][0]) if token == tokenizer.mask_token_id]
        assert len(answer["masks"]) == len(places) == text.count("[MASK]")
        for place, tokens in zip(places, answer["masks"], strict=True):
            best = probabilities[place].argsort(descending=True)[:5]
            assert [each["token"] for each in tokens] == [tokenizer.decode([i]) for i in best]
            assert [each["probability"] for each in tokens] == pytest.approx(
                probabilities[place][best].tolist(), abs=1e-5
            )


@pytest.mark.parametrize(
    ("name", "inputs", "options", "message"),
    [
        ("classifier", "a text", {}, "inputs is one text; give a list of texts"),
        ("classifier", [("a", "b", "c")], {}, "Input 1 has 3 parts, and .*classifier reads text"),
        ("classifier", ["a", {"pair": "b"}], {}, "Input 2 has no text; .* so write a text there"),
        ("classifier", [{"text": 3}], {}, "Input 1 holds 3 as text"),
        ("choices", [{"context": "a", "choices": ["b"]}], {}, r"holds \['b'\] as choices; .* write texts"),
        ("choices", [{"context": "a", "choices": "barks"}], {}, "holds 'barks' as choices; write at least two texts"),
        ("choices", [{"context": "a", "choices": ["b", " "]}], {}, "write at least two texts, none of them empty"),
        ("answers", [("Who?", "The dog."), ("Who?", " ")], {}, "Input 2 has an empty context; fill it in, or remove"),
        ("masked", ["dog " * 100 + "[MASK]"], {}, r"has a \[MASK\] behind the 64 tokens that the model reads; shorten"),
        ("classifier", ["a"], {"num_beams": 2}, "num_beams is not for the task of .*; its options are abstain"),
        ("classifier", ["a"], {"abstain": True}, "has no threshold; train with evaluation.coverage"),
        ("tagger", ["a"], {"hypotheses": 2}, "hypotheses is not for the task of .*; it has no options"),
        ("classifier", ["a"], {"batch_size": 0}, "batch_size is 0; write a whole number of at least 1"),
        ("writer", ["a"], {"num_beams": 0}, "num_beams is 0; write a whole number of at least 1"),
        ("letters", ["Ñ"], {}, "Input 1 has 'Ñ', which is not in the vocabulary of"),
        ("writer", ["a", ""], {}, "Input 2 has no tokens to continue; write some text"),
        (
            "writer",
            ["a " * 64],
            {},
            "Input 1 has 65 tokens, and the model has 64 positions for it and its continuation",
        ),
        (
            "answers",
            [("Who?", "The dog."), ("Who? " * 30, "The dog.")],
            {},
            r"Input 2 has a question of \d+ tokens, and the model reads at most \d+; shorten it",
        ),
        ("answers", [("Who?", "\u200b\u200b"), ("Who?", "The dog.")], {}, "Input 1 has a context without tokens; fill"),
        ("masked", ["a b"], {}, r"'a b' has no \[MASK\]; write it"),
        ("masked", ["", "a b"], {}, r"'' has no \[MASK\]; write it"),
        ("body", ["a"], {}, "is a DistilBertModel, which has no predictions; give a model with a head"),
    ],
)
def test_bad_input(folders: Path, name: str, inputs: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        hfattn.predict(folders / name, inputs, **options)


# Files


def run_predict(*words: object, code: int = 0, stdin: str | bytes = "") -> str:
    return run_command("predict", *words, code=code, stdin=stdin)


def run_command(command: str, *words: object, code: int = 0, stdin: str | bytes = "") -> str:
    done = CliRunner().invoke(app, [command, *map(str, words)], input=stdin)
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout if code == 0 else done.stderr.splitlines()[-1]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.jsonl"
    rows = [{"id": i, "text": TEXTS[i % 4][: 10 + i], "label": "good"} for i in range(70)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_of_predictions_keeps_its_rows_and_their_order(folders: Path, table: Path, tmp_path: Path) -> None:
    given = [json.loads(line) for line in table.read_text().splitlines()]
    expected = [
        {"id": row["id"], "text": row["text"], "given_label": "good", **answer}
        for row, answer in zip(
            given, hfattn.predict(folders / "classifier", [row["text"] for row in given]), strict=True
        )
    ]
    for format in ("jsonl", "csv", "parquet"):
        output = tmp_path / f"labeled.{format}"
        said = run_predict(folders / "classifier", table, "--output", output)
        assert said == f"Predicted 70 rows: {output}\n"
    lines = (tmp_path / "labeled.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == expected
    assert pyarrow.parquet.read_table(tmp_path / "labeled.parquet").to_pylist() == expected
    rows = list(csv.DictReader(io.StringIO((tmp_path / "labeled.csv").read_text())))
    assert [row["text"] for row in rows] == [row["text"] for row in given]
    assert [json.loads(row["probabilities"]) for row in rows] == [row["probabilities"] for row in expected]
    assert run_predict(folders / "classifier", table) == "".join(f"{line}\n" for line in lines)
    assert sorted(path.name for path in tmp_path.iterdir() if "labeled" in path.name) == [
        "labeled.csv",
        "labeled.jsonl",
        "labeled.parquet",
    ]


def test_an_empty_line_is_named_by_its_number(folders: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "prompts.txt", "the dog\n\nmary\n")
    endless = shutil.copytree(folders / "letters", tmp_path / "endless")  # it has no limit of positions
    build_character_tokenizer("abcdefghijklmnopqrstuvwxyz ").save_pretrained(endless)
    for model in (folders / "writer", endless):
        message = run_predict(model, file, "--max-new-tokens", "2", code=2)
        assert "Line 2 of prompts.txt has no tokens to continue; write some text" in message


def test_later_rows_may_have_more_columns(folders: Path, tmp_path: Path) -> None:
    rows = [{"text": "a"}, {"text": "b", "note": "new"}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for format in ("csv", "parquet"):
        output = tmp_path / f"labeled.{format}"
        run_predict(folders / "classifier", tmp_path / "rows.jsonl", "--output", output)
        if format == "csv":
            notes = [row["note"] for row in csv.DictReader(io.StringIO(output.read_text()))]
        else:
            notes = [row["note"] or "" for row in pyarrow.parquet.read_table(output).to_pylist()]
        assert notes == ["", "new"]
    typed = [{"text": "a", "note": None}] * 1100 + [{"text": "b", "note": "new"}]
    (tmp_path / "typed.jsonl").write_text("".join(json.dumps(row) + "\n" for row in typed))
    words = (tmp_path / "typed.jsonl", "--output", tmp_path / "typed.parquet")
    assert "the predictions are in" in run_predict(folders / "classifier", *words, code=2)
    assert len((tmp_path / "typed.parquet.part").read_text().splitlines()) == 1102


def test_the_path_of_an_image_begins_beside_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("data", "elsewhere"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.png").touch()
    (tmp_path / "data" / "rows.csv").write_text("image,label\na.png,cat\n")
    monkeypatch.chdir(tmp_path / "elsewhere")
    predictor = Predictor("model", (IMAGE,), 1, lambda inputs: [])
    inputs = open_inputs(predictor, "../data/rows.csv")
    (row,) = inputs.rows
    assert inputs.parts(predictor, row) == {IMAGE: Path("../data/a.png")}
    of_hub = dataclasses.replace(inputs, folder=None)
    with pytest.raises(UserError, match="has no image"):
        of_hub.parts(predictor, row)


def test_an_input_without_rows_leaves_no_file(folders: Path, tmp_path: Path) -> None:
    output = tmp_path / "labeled.parquet"
    assert "has no rows; give a file with some" in run_predict(folders / "classifier", "-", "--output", output, code=2)
    assert not list(tmp_path.glob("labeled*"))


def test_translate_and_classify_read_files_as_predict_does(folders: Path, table: Path, tmp_path: Path) -> None:
    lines, pairs = written(tmp_path / "lines.txt", "\n".join(WORDS)), tmp_path / "pairs.tsv"
    pairs.write_text("source\ttarget\n" + "".join(f"{word}\tx\n" for word in WORDS))
    options: list[object] = ["--num-beams", 2, "--max-new-tokens", 5]
    model = folders / "vaswani"
    expected = [json.loads(line)["translation"] for line in run_predict(model, lines, *options).splitlines()]
    assert len(set(expected)) > 1
    assert run_command("translate", model, "--file", lines, *options).splitlines() == expected
    assert run_command("translate", model, *WORDS, *options).splitlines() == expected
    assert run_command("translate", model, "--file", "-", *options, stdin="\n".join(WORDS)).splitlines() == expected
    refused = run_command("translate", model, "--file", pairs, code=2)
    assert "pairs.tsv has the columns source, target; name those with text in columns" in refused
    assert run_command("translate", model, "--file", pairs, "--columns", "source", *options).splitlines() == expected
    answers = [json.loads(line) for line in run_predict(folders / "classifier", table).splitlines()]
    shown = [f"{answer['probability']:.4f}  {answer['label']}" for answer in answers]
    assert run_command("classify", folders / "classifier", "--file", table).splitlines() == shown
    for command, words, message in (
        ("translate", [model], "Give texts, or a file of texts with --file."),
        ("translate", [model, "go", "--file", lines], "Give texts, or a file of texts with --file."),
        ("translate", [model, "go", "--columns", "text"], "--columns names those of a file; give it with --file."),
        ("translate", [folders / "writer", "--file", lines], "does not translate texts; use hfattn predict."),
        ("translate", [model, "--file", tmp_path / "no.txt"], "no.txt"),
        ("classify", [model, "--file", lines], "does not classify texts; use hfattn predict."),
        ("classify", [folders / "classifier", "--pair", "--file", lines], "write --columns text,pair"),
    ):
        assert message in run_command(command, *words, code=2)


def test_an_interrupted_file_is_continued(folders: Path, table: Path, tmp_path: Path) -> None:
    output, model = tmp_path / "labeled.jsonl", folders / "classifier"
    part = tmp_path / "labeled.jsonl.part"
    run_predict(model, table, "--output", output)
    whole = output.read_text()
    output.unlink()
    options = dataclasses.asdict(hfattn.predicting.PredictOptions())
    begun = {"model": str(model), "inputs": table.name, "columns": ["text"], "options": options}
    cut = whole.splitlines(keepends=True)
    part.write_text(f"{json.dumps(begun)}\n{''.join(cut[:40])}{cut[40][:17]}")  # killed while it wrote a row
    refused = run_predict(model, table, "--output", output, code=2)
    assert "holds the rows of an interrupted command; continue with --resume, or remove it" in refused
    other = run_predict(folders / "regression", table, "--output", output, "--resume", code=2)
    assert "was made by another model, with other options or from another file" in other
    before = table.read_text()
    table.write_text(before.replace('"id": 3,', '"id": 4,'))
    changed = run_predict(model, table, "--output", output, "--resume", code=2)
    assert "has are no longer those of the input; remove it, or choose a new file" in changed
    table.write_text(before)
    assert run_predict(model, table, "--output", output, "--resume") == f"Predicted 30 rows: {output}\n"
    assert output.read_text() == whole
    assert not part.exists()


def test_columns_with_the_names_of_predictions_are_not_lost(folders: Path, tmp_path: Path) -> None:
    """A column label is renamed; one with the name that it would get is not overwritten."""
    both = written(tmp_path / "both.jsonl", [{"text": TEXTS[0], "label": "TRUE", "given_label": "OLD"}])
    refused = run_predict(folders / "classifier", both, "--columns", "text", code=2)
    assert "has the columns label and given_label, and the model predicts label too; rename one" in refused
    rows = [{"text": text, "name": "a", "given_name": "b"} for text in TEXTS]
    file, output = written(tmp_path / "names.jsonl", rows), tmp_path / "out.jsonl"
    run_predict(folders / "classifier", file, "--columns", "text", "--output", output)
    whole = output.read_text()
    assert {(each["name"], each["given_name"]) for each in map(json.loads, whole.splitlines())} == {("a", "b")}
    options = dataclasses.asdict(hfattn.predicting.PredictOptions())
    begun = {"model": str(folders / "classifier"), "inputs": file.name, "columns": ["text"], "options": options}
    output.unlink()
    part = tmp_path / "out.jsonl.part"
    part.write_text(f"{json.dumps(begun)}\n{whole.splitlines(keepends=True)[0]}")
    run_predict(folders / "classifier", file, "--columns", "text", "--output", output, "--resume")
    found = [json.loads(line) for line in output.read_text().splitlines()]
    assert [(each["text"], each["name"], each["given_name"]) for each in found] == [(text, "a", "b") for text in TEXTS]


def test_two_commands_do_not_write_one_file(folders: Path, table: Path, tmp_path: Path) -> None:
    output = tmp_path / "labeled.jsonl"
    part = tmp_path / "labeled.jsonl.part"
    part.touch()
    with FileLock(tmp_path / ".labeled.jsonl.lock"):
        for words in ([], ["--resume"]):
            refused = run_predict(folders / "classifier", table, "--output", output, *words, code=2)
            assert "labeled.jsonl; wait until it ends, or choose another file." in refused
    part.unlink()
    run_predict(folders / "classifier", table, "--output", output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labeled.jsonl", table.name]


def test_a_row_that_cannot_be_read_keeps_those_before_it(folders: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("good morning\n" * 3000 + "Ñandú\n")
    output = tmp_path / "continued.jsonl"
    words = [folders / "letters", lines, "-o", output, "--max-new-tokens", 1]
    assert "Line 3001 of lines.txt has 'Ñ', which is not in the vocabulary" in run_predict(*words, code=2)
    assert not output.exists()
    lines.write_text("good morning\n" * 3000 + "go\n")
    assert run_predict(*words, "--resume") == f"Predicted {3001 - 2048} rows: {output}\n"
    assert len(output.read_text().splitlines()) == 3001


def test_lines_columns_and_a_single_column(folders: Path, tmp_path: Path) -> None:
    model = folders / "classifier"
    printed = run_predict(model, "-", stdin="good\nbad\n\n")
    assert [json.loads(line)["text"] for line in printed.splitlines()] == ["good", "bad", ""]
    assert json.loads(run_predict(model, "-", stdin="\ufeffgood\n"))["text"] == "good"
    refused = run_predict(model, "-", stdin=b"good\nl\xedquido\n", code=2)
    assert "Line 2 of the standard input is not UTF-8; convert the file" in refused
    tickets = tmp_path / "tickets.tsv"
    tickets.write_text("subject\tbody\nLost\tMy card is lost.\n")
    refused = run_predict(model, tickets, code=2)
    assert "tickets.tsv has the columns subject, body; name those with text and pair in columns" in refused
    answer = json.loads(run_predict(model, tickets, "--columns", "subject,body"))
    assert answer["probabilities"] == pytest.approx(
        hfattn.predict(model, [("Lost", "My card is lost.")])[0]["probabilities"]
    )
    assert "has no column 'title'; write one of subject, body" in run_predict(
        model, tickets, "--columns", "title", code=2
    )
    assert "columns names 3 columns" in run_predict(model, tickets, "--columns", "a,b,c", code=2)
    halves = tmp_path / "halves.jsonl"
    halves.write_text('{"text": "good \\ud83d", "user": "\\ud83d\\ude00\\ude00"}\n')
    row = json.loads(run_predict(model, halves))
    assert (row["text"], row["user"]) == ("good \ufffd", "😀\ufffd")
    alone = tmp_path / "alone.tsv"
    alone.write_text("message\nMy card is lost.\n")
    assert json.loads(run_predict(model, alone))["message"] == "My card is lost."


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no.tsv"], "no.tsv was not found"),
        (["empty.tsv"], "empty.tsv is empty"),
        (["reviews.jsonl", "-o", "a.xlsx"], "Cannot write a.xlsx: end the name with .jsonl, .csv or .parquet"),
        (["reviews.jsonl", "-o", "no/a.csv"], "The folder no does not exist; create it first"),
        (["reviews.jsonl", "-o", "reviews.jsonl"], "reviews.jsonl exists already; choose a new file"),
        (["deep.jsonl"], "Line 1 of deep.jsonl cannot be read: maximum recursion depth exceeded"),
        (["long.jsonl"], "Line 1 of long.jsonl cannot be read: Exceeds the limit (4300 digits)"),
        (["reviews.jsonl", "--resume"], "--resume continues a file; give it with --output"),
    ],
)
def test_bad_files(folders: Path, table: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(table.parent)
    Path("empty.tsv").write_text("text\n")
    Path("long.jsonl").write_text(f'{{"text": "good", "id": {"1" * 5000}}}\n')
    Path("deep.jsonl").write_text(f'{{"text": {"[" * 100_000}{"]" * 100_000}}}\n')
    before = sorted(Path().iterdir())
    assert message in run_predict(folders / "classifier", *words, code=2)
    assert sorted(Path().iterdir()) == before

"""Translators that CTranslate2 runs: the tokens of generate(), once exported, and what it refuses."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_convert import randomize
from test_export import translator, translator_folder
from test_pipeline import TOKENIZER, make
from typer.testing import CliRunner

import hfattn
from hfattn import engine
from hfattn.engine import EngineTranslator, open_engine
from hfattn.errors import UserError
from hfattn.loading import load_translation_model, save_translator
from hfattn.models.pipeline_attn_translation import AttnTranslationPipeline
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

FIELDS: list[tuple[bool, dict[str, Any]]] = [
    (False, {}),
    (True, {"norm": "pre", "positions": "learned", "max_position_embeddings": 30, "activation": "gelu"}),
    (False, {"positions": "none", "tie_word_embeddings": False, "lm_head_bias": True, "scale_embedding": False}),
]


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the exports."""
    monkeypatch.setattr(engine, "HF_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / engine.KEPT


def texts_of(number: int) -> list[str]:
    draw = torch.Generator().manual_seed(number)
    lengths = torch.randint(1, 13, (number,), generator=draw).tolist()
    return ["".join("abcdefghij"[i] for i in torch.randint(10, (length,), generator=draw)) for length in lengths]


def both(opened: EngineTranslator, texts: list[str], count: int, **options: Any) -> tuple[list[Any], list[Any]]:
    """Return the tokens of the engine, and those of generate() for the padded batch, each up to its end token."""
    model, reader = opened.model, opened.tokenizer
    batch = reader(texts, padding=True, return_tensors="pt")
    ids = model.generate(**batch, num_return_sequences=count, do_sample=False, **options)[:, 1:].tolist()
    expected = [row[: row.index(2) + 1] if 2 in row else row for row in ids]
    found = opened.generate([reader(text).input_ids for text in texts], num_return_sequences=count, **options)
    return [each.ids for group in found for each in group], expected


@pytest.mark.parametrize(("own_target", "fields"), FIELDS)
def test_the_tokens_are_those_of_generate(tmp_path: Path, own_target: bool, fields: dict[str, Any]) -> None:
    """Random weights, whose hypotheses end at any length, so that the penalty of lengths decides."""
    translator_folder(tmp_path / "ours", own_target, **fields)
    opened = open_engine(str(tmp_path / "ours"))
    opened.model.generation_config.early_stopping = True
    for number in (1, 32):
        for beams, count, penalty, limit in (
            (1, 1, 1.0, 12),
            (2, 1, 1.0, 12),
            (4, 1, 0.0, 12),
            (4, 1, 2.0, 7),
            (4, 4, 0.6, 12),
            (4, 2, -1.0, 1),
        ):
            opened.model.generation_config.length_penalty = penalty
            found, expected = both(opened, texts_of(number), count, num_beams=beams, max_new_tokens=limit)
            assert found == expected, (number, beams, count, penalty)
    assert any(ids[-1] != 2 for ids in found)  # the limit ends some


def test_a_trained_model_gives_the_same_translations_by_every_way(tmp_path: Path) -> None:
    """A model that has learned to reverse texts, with and without the engine: Python, texts, and files."""
    tokenizer = build_character_tokenizer(["abcdefghij"], ends=True)
    torch.manual_seed(0)
    model = translator(vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, dropout=0.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(300):
        letters = torch.randint(3, len(tokenizer), (32, 4))
        ends = torch.full((32, 1), 2)
        loss = model(torch.cat([letters, ends], 1), labels=torch.cat([letters.flip(1), ends], 1)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    model.generation_config.update(num_beams=4, early_stopping=True)
    save_translator(tmp_path / "ours", model, tokenizer)
    texts = [text[:4].ljust(4, "a") for text in texts_of(20)]
    for options in ({}, {"num_beams": 1}, {"num_beams": 2, "hypotheses": 3}):
        expected = hfattn.predict(tmp_path / "ours", texts, **options)  # type: ignore[arg-type]
        found = hfattn.predict(tmp_path / "ours", texts, engine="ctranslate2", **options)  # type: ignore[arg-type]
        assert [_without_scores(each) for each in found] == [_without_scores(each) for each in expected]
        scores = [each["score"] for each in expected]
        assert [each["score"] for each in found] == pytest.approx(scores, rel=1e-4, abs=1e-4)
    assert len(set(map(str, expected))) > 10
    exact, eight = (
        hfattn.predict(tmp_path / "ours", texts, num_beams=1, engine="ctranslate2", quantization=quantization)
        for quantization in ("float32", "int8")
    )
    assert sum(a["translation"] == b["translation"] for a, b in zip(eight, exact, strict=True)) > 10
    assert all(a["score"] != b["score"] for a, b in zip(eight, exact, strict=True))
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts))
    for given in (texts, ["--file", str(file)]):
        for beams in ("1", "4"):
            words = ["translate", str(tmp_path / "ours"), *given, "--num-beams", beams]
            plain, fast = (CliRunner().invoke(app, [*words, *more]) for more in ([], ["--engine", "ctranslate2"]))
            assert plain.exit_code == fast.exit_code == 0, (plain.output, fast.output)
            assert fast.stdout.splitlines() == plain.stdout.splitlines()


def _without_scores(answer: dict[str, Any]) -> Any:
    return [answer["translation"], *(each["translation"] for each in answer.get("hypotheses", []))]


@pytest.mark.parametrize("own_target", [False, True])
def test_the_attention_of_what_it_writes_is_that_of_the_pipeline(tmp_path: Path, own_target: bool) -> None:
    loaded = translator_folder(tmp_path / "ours", own_target)
    opened = open_engine(str(tmp_path / "ours"))
    for model in (opened.model, loaded[0]):
        model.generation_config.early_stopping = True
    pipeline = AttnTranslationPipeline(loaded[0], tokenizer=loaded[1], target_tokenizer=loaded[2])
    for text in ("abcdefghij", "a"):
        for beams in (1, 4):
            options: dict[str, Any] = {"num_beams": beams, "max_new_tokens": 9}
            found = opened.read(text, **options, hypotheses=beams)
            expected = pipeline(text, **options, num_return_sequences=beams, do_sample=False)
            for each, other in zip(found, [expected] if beams == 1 else expected, strict=True):
                record, of_pipeline = each.record, other["alignment"]
                assert each.text == other["translation_text"]
                assert each.score == pytest.approx(other["score"], abs=1e-4)
                assert (record.tokens, record.target_tokens) == (of_pipeline.tokens, of_pipeline.target_tokens)
                for name in ("weights", "probabilities", "entropies"):
                    torch.testing.assert_close(getattr(record, name), getattr(of_pipeline, name), atol=1e-4, rtol=1e-4)


def test_a_model_is_exported_once_and_again_if_its_weights_change(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, reader, _ = translator_folder(tmp_path / "ours")
    name = str(tmp_path / "ours")
    before = open_engine(name).translate(["abc"])
    (folder,) = kept.iterdir()
    written = folder.stat().st_mtime_ns
    assert open_engine(name).translate(["abc"]) == before
    assert [each.stat().st_mtime_ns for each in kept.iterdir()] == [written]
    open_engine(name, "int8")
    assert len(list(kept.iterdir())) == 2
    # What is computed depends on the configuration and the vocabulary too.
    model.config.layer_norm_eps = 0.1
    save_translator(tmp_path / "eps", model, reader)
    save_translator(tmp_path / "weights", randomize(model), reader)
    for number, other in enumerate(("eps", "weights"), 3):
        again = open_engine(str(tmp_path / other))
        found, expected = both(again, texts_of(8), 1, num_beams=1, max_new_tokens=9)
        assert found == expected
        assert len(list(kept.iterdir())) == number
    monkeypatch.setattr(engine, "HF_HOME", str(tmp_path / "ours" / "config.json"))
    with pytest.raises(UserError, match=r"cannot be written \(Not a directory\); set HF_HOME to a folder that can"):
        open_engine(name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"repetition_penalty": 1.3},
            r"cannot run .*ours: its generation_config\.json has repetition_penalty; ",
        ),
        ({"decoder_start_token_id": 3}, "another decoder_start_token_id than its config.json; leave out the engine"),
        ({"num_beams": 2}, "generate.. of .*ours does not; write num_beams: 2 and early_stopping: true into its"),
        (
            {"max_new_tokens": 4000},
            "has 2048 positions for .*ours, and a text has 4 tokens and a translation up to",
        ),
        ({}, None),
    ],
)
def test_a_search_that_the_engine_does_not_have(tmp_path: Path, settings: dict[str, Any], message: str | None) -> None:
    model, reader, _ = translator_folder(tmp_path / "ours")
    model.generation_config.update(**settings)
    save_translator(tmp_path / "ours", model, reader)
    if message is None:
        assert open_engine(str(tmp_path / "ours")).translate(["abc"])
        return
    with pytest.raises(UserError, match=message):
        open_engine(str(tmp_path / "ours")).translate(["abc"])


def test_texts_that_the_engine_cannot_read(tmp_path: Path) -> None:
    model = randomize(translator(vocab_size=13, positions="learned", max_position_embeddings=6))
    save_translator(tmp_path / "ours", model, build_character_tokenizer(["abcdefghijkl"]))
    opened = open_engine(str(tmp_path / "ours"))
    with pytest.raises(UserError, match="reads no text without a token"):
        opened.translate(["abc", ""])
    with pytest.raises(UserError, match=r"has 6 positions for .*, and a text has 7 tokens and a translation up to 6"):
        opened.translate(["abcdefg"])
    assert opened.translate(["abcdef"])


def test_a_model_that_the_engine_cannot_hold_is_refused_in_one_sentence(tmp_path: Path, kept: Path) -> None:
    translator_folder(tmp_path / "rms", norm_type="rms")
    save_translator(tmp_path / "bahdanau", make("bahdanau"), TOKENIZER)
    hfattn.CharRNNForCausalLM(hfattn.CharRNNConfig(vocab_size=len(TOKENIZER))).save_pretrained(tmp_path / "letters")
    TOKENIZER.save_pretrained(tmp_path / "letters")
    lines = tmp_path / "lines.txt"
    lines.write_text("go\n")
    for words, message in (
        (
            ("translate", "rms", "a", "--engine", "ctranslate2"),
            "rms: the engine has no Transformer with rms norms; l",
        ),
        (
            ("translate", "bahdanau", "go", "--engine", "ctranslate2"),
            "bahdanau: it is a BahdanauForConditionalGeneration, not a VaswaniForConditionalGeneration; leave out the",
        ),
        (
            ("translate", "bahdanau", "--file", lines, "--engine", "ctranslate2"),
            "it is a BahdanauForCondition",
        ),
        (("predict", "letters", lines, "--engine", "ctranslate2"), "engine is not for the task of"),
        (("translate", "rms", "a", "--engine", "onnx"), "'onnx' is not an engine; write torch or ctranslate2."),
        (("predict", "rms", lines, "--engine", "onnx"), "'onnx' is not an engine; write torch or ctranslate2."),
        (("translate", "rms", "a", "--quantization", "int8"), "quantization is for the engine ctranslate2; name it"),
    ):
        given = [str(tmp_path / word) if (tmp_path / word).exists() else str(word) for word in map(str, words)]
        done = CliRunner().invoke(app, given)
        assert done.exit_code == 2, done.output
        assert message in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert not kept.exists()
    translator_folder(tmp_path / "ours")
    with pytest.raises(UserError, match="'int9' is not a quantization; write float32 or int8"):
        open_engine(str(tmp_path / "ours"), "int9")
    assert not list(kept.iterdir())


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    translator_folder(tmp_path / "ours")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "ctranslate2" else found(name))
    with pytest.raises(
        UserError, match=r"ctranslate2, which is not installed; run: .* -m pip install 'hfattn\[export\]'"
    ):
        open_engine(str(tmp_path / "ours"))


def test_the_settings_of_a_model_are_the_defaults(tmp_path: Path) -> None:
    """As of generate(): a greedy search of 256 tokens, or what is saved with the model."""
    model, reader, _ = translator_folder(tmp_path / "ours")
    model.lm_head.weight.data[2] = 0
    model.lm_head.weight.data[2, 0] = -50  # ends seldom
    for settings in ({}, {"max_length": 9}, {"max_new_tokens": 5}, {"num_beams": 3, "early_stopping": True}):
        config = type(model.generation_config)(**{**model.generation_config.to_dict(), **settings})
        save_translator(tmp_path / "ours", model, reader)
        (tmp_path / "ours" / "generation_config.json").write_text(json.dumps(config.to_diff_dict()))
        translated = [open_engine(str(tmp_path / "ours")).translate([text])[0][0][0] for text in texts_of(3)]
        plain = hfattn.predict(tmp_path / "ours", texts_of(3))
        assert translated == [each["translation"] for each in plain], settings
    assert load_translation_model(str(tmp_path / "ours"))[0].generation_config.num_beams == 3

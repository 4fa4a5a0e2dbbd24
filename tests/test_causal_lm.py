"""The recipe for causal language models: packing, scores that do not depend on tokens, and its real command line."""

import io
import json
import math
import os
import resource
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses, Words
from tiny_models import POSITIONS, byte_tokenizer, tiny_model
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel
from typer.testing import CliRunner

from hfattn import (
    BiLMConfig,
    BiLMForCausalLM,
    CharRNNConfig,
    CharRNNForCausalLM,
    CharRNNForSequenceClassification,
    VaswaniConfig,
    VaswaniForCausalLM,
)
from hfattn.data import (
    Demonstration,
    Demonstrations,
    EncodedDemonstrations,
    PackedBlocks,
    open_text,
    pack,
    read_documents,
    split_corpus,
)
from hfattn.errors import UserError
from hfattn.generation import TokenStreamer
from hfattn.hub.card import render_card
from hfattn.likelihood import score_documents, score_ids, score_opened, score_text
from hfattn.loading import load_language_model
from hfattn.metrics import text_scores, token_loss
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "causal_lm"
CONFIGURATIONS = sorted(RECIPE.glob("*.yaml"))
SENTENCES = (
    "The dog sees the cat.",
    "The cat hears the naïve dog!",
    "A bird sings – the cat listens.",
    "Où est le chat ?",
)
TINY: dict[str, dict[str, Any]] = {
    "data": {"split": [0.7, 0.15, 0.15], "max_length": 16},
    "training": {"per_device_eval_batch_size": 4, "metric_for_best_model": "perplexity"},
    "sample": {"prompts": ["The cat"], "max_new_tokens": 8, "decoding": {"greedy": {"temperature": 0}, "any": {}}},
}


def text_file(folder: Path, sentences: int = 150) -> Path:
    path = folder / "text.txt"
    path.write_text("\n".join(f"{SENTENCES[i % 4]} {i}" for i in range(sentences)))
    return path


def tiny_config(folder: Path, base: Path | None, **fields: Any) -> Path:
    files = {"data": {"dataset": str(text_file(folder))}, "model": {"name": str(base)} if base else {}}
    return write_config(folder, TINY, files, fields)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "gpt2", "gpt2", texts=SENTENCES)


@pytest.fixture(scope="module")
def finished(gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, evaluated in blocks that overlap."""
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, tiny_config(folder, gpt2, evaluation={"stride": 6}, training=steps(60, 20)))
    return folder


# Packing


def test_documents_are_joined_by_the_end_token_after_a_start_token() -> None:
    tokenizer = byte_tokenizer(SENTENCES)
    end = tokenizer.eos_token_id
    texts = ["The cat.", "Où est <|endoftext|> ?"]
    packed = pack(texts, tokenizer)
    first = tokenizer(texts[0]).input_ids
    assert packed.ids[: len(first) + 2].tolist() == [end, *first, end]
    rest = packed.ids[len(first) + 2 :].tolist()
    assert end not in rest  # what looks like the token is text
    assert tokenizer.decode(rest) == texts[1]
    assert tokenizer("<|endoftext|>").input_ids == [end]  # and the tokenizer is as it was
    size = packed.size
    assert (size.characters, size.bytes, size.words) == (len("".join(texts)), len("".join(texts).encode()), 6)


def test_a_tokenizer_without_start_and_end() -> None:
    """Its first token is not predicted and not counted, as char_lm counts; and documents cannot be told apart."""
    tokenizer = build_character_tokenizer(["the cat é"])
    packed = pack(["é the"], tokenizer)
    assert len(packed) == 5
    assert (packed.size.characters, packed.size.bytes) == (4, 4)
    with pytest.raises(UserError, match="no end token to put between the 2 documents; use another"):
        pack(["the", "cat"], tokenizer)
    with pytest.raises(UserError, match=r"has 'x' \(U\+0078\)"):
        pack(["x"], tokenizer)


@pytest.mark.parametrize("n", [9, 17, 18, 40])
def test_training_blocks_stand_side_by_side(n: int) -> None:
    ids = np.arange(100, 100 + n, dtype=np.int32)
    blocks = PackedBlocks(ids, 8)
    batch = blocks.__getitems__(range(len(blocks)))
    assert batch["input_ids"].flatten().tolist() == ids[: 8 * len(blocks)].tolist()
    assert batch["labels"][:, 1:].flatten().tolist() == ids[1 : 8 * len(blocks) + 1].tolist()
    assert (batch["labels"][:, 0] == -100).all()
    assert 0 <= blocks.dropped < 8
    assert blocks.dropped == n - 1 - 8 * len(blocks)
    assert sorted(blocks.sampler(0)) == list(range(len(blocks)))


@pytest.mark.parametrize("stride", [1, 3, 7, 8])
@pytest.mark.parametrize("n", [9, 10, 16, 17, 18, 41])
def test_every_token_is_evaluated_once_with_enough_context(n: int, stride: int) -> None:
    ids = np.arange(100, 100 + n, dtype=np.int32)
    blocks = PackedBlocks(ids, 8, stride)
    predicted = []
    for i in range(len(blocks)):
        inputs, labels = blocks[i]["input_ids"], blocks[i]["labels"]
        assert inputs.tolist() == list(range(int(inputs[0]), int(inputs[0]) + 8))
        targets = labels[labels != -100].tolist()
        assert targets  # no block for nothing
        assert targets[-1] == int(inputs[-1]) + 1
        if i:
            assert targets[0] - int(inputs[0]) >= 8 - stride + 1  # tokens that the first prediction knows
        predicted += targets
    assert predicted == ids[1:].tolist()


def test_what_is_too_short_or_skips_is_refused() -> None:
    with pytest.raises(UserError, match="has 8 tokens, and one window of 8 needs 9; use a longer"):
        PackedBlocks(np.arange(8), 8)
    with pytest.raises(UserError, match="A stride of 9 skips tokens; write a whole number from 1 to the length"):
        PackedBlocks(np.arange(20), 8, 9)


def test_an_unknown_character_is_refused() -> None:
    advice = "is not in the tokenizer's vocabulary; .* learned with tokenizer.unknown: true"
    with pytest.raises(UserError, match=rf"The text has 'ñ' \(U\+00F1\), which {advice}"):
        pack(["año"], build_character_tokenizer("ao"))
    shown = Demonstrations("two", [Demonstration("ao", "a"), Demonstration("año", "a")])
    with pytest.raises(UserError, match=rf"The data have 'ñ' \(U\+00F1\), which {advice}"):
        EncodedDemonstrations(shown, build_character_tokenizer("ao", ends=True), 8)


def test_a_corpus_is_one_document_or_several(tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text(" = A = \nfirst\n = = part = = \nmore\n = B = \nsecond\n")
    corpus = read_documents(str(text), lines_are_texts=False)
    (whole,) = corpus
    assert whole.text == text.read_text()  # to the last newline: its characters are counted
    each = read_documents(str(text), document_start="^ = [^=]")
    assert [item.text for item in each] == [" = A = \nfirst\n = = part = = \nmore", " = B = \nsecond"]
    rows = written(tmp_path / "a.jsonl", [{"t": word} for word in ("one", "two", "three")])
    assert [item.text for item in read_documents(str(rows), text_column="t", lines_are_texts=False)] == [
        "one\ntwo\nthree"
    ]
    several = read_documents(str(rows), text_column="t")
    assert [part.items[0].text for part in split_corpus(corpus, [3, 4, "rest"], seed=1)] == [
        text.read_text()[:3], text.read_text()[3:7], text.read_text()[7:]
    ]  # fmt: skip
    several = read_documents(str(rows), text_column="t")
    with pytest.raises(UserError, match=r"split \[0.1, 0.9\] leaves a part empty"):
        split_corpus(several, [0.1, 0.9], seed=1)


def test_documents_are_split_at_random_and_stay_in_order(tmp_path: Path) -> None:
    texts = [f"good {i}" for i in range(100)] + [f"bad {i}" for i in range(100)] + ["again"] * 20  # sorted by class
    rows = read_documents(str(written(tmp_path / "a.jsonl", [{"text": text} for text in texts])))
    train, validation = ([item.text for item in part] for part in split_corpus(rows, [0.7, 0.3], seed=1))
    assert {text.split()[0] for text in train} >= {"good", "bad"} <= {text.split()[0] for text in validation}
    assert not set(train) & set(validation)
    assert sorted(train, key=texts.index) == train
    assert sorted(validation, key=texts.index) == validation
    assert split_corpus(rows, [0.7, 0.3], seed=1) != split_corpus(rows, [0.7, 0.3], seed=2)


# Loss and scores


def test_the_loss_is_the_models_own_over_all_that_it_reads(gpt2: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(gpt2).eval()
    batch = PackedBlocks(np.arange(1, 60, dtype=np.int32), 16).__getitems__([0, 1, 2])
    outputs = model(batch["input_ids"])
    tokens = torch.cat((batch["input_ids"], batch["labels"][:, -1:]), 1)
    torch.testing.assert_close(token_loss(outputs, batch["labels"]), model(tokens, labels=tokens).loss)
    scaled = token_loss(outputs, batch["labels"], num_items_in_batch=96)
    torch.testing.assert_close(scaled, token_loss(outputs, batch["labels"]) / 2)


def test_scores_of_a_text_do_not_depend_on_its_tokens() -> None:
    """A uniform guess among 8 characters is 3 bits each, however they are grouped; 'é' has two bytes."""
    text = "abé cd"
    scores = text_scores(6 * math.log(8), characters=6, bytes=len(text.encode()), words=2)
    assert scores["bits_per_character"] == pytest.approx(3)
    assert scores["bits_per_byte"] == pytest.approx(18 / 7)
    assert scores["perplexity_per_word"] == pytest.approx(8**3)


def test_a_character_model_scores_the_same_as_a_model_of_any_tokens() -> None:
    tokenizer = build_character_tokenizer(["the cat sat"])
    torch.manual_seed(0)
    model = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), hidden_size=8, embedding_size=4)).eval()
    text = "the cat sat at the seat that the cat hates"
    text = "".join(c for c in text if c in "the cat sat")
    packed = pack([text], tokenizer)
    as_characters = score_ids(model, packed.ids, 8)
    with pytest.raises(UserError, match="The text has fewer than two characters, and each is predicted"):
        score_ids(model, packed.ids[:1])
    with pytest.raises(UserError, match="The text has no words that are predicted; give a longer text"):
        score_text(model, tokenizer, "   ", 1)
    as_text = score_text(model, tokenizer, text, 8)
    assert as_text["bits_per_character"] == pytest.approx(as_characters["bits_per_character"], rel=1e-9)
    assert as_text["characters"] == as_characters["characters"] == len(text) - 1


@pytest.mark.parametrize("kind", ["char_rnn", "bilm"])
def test_a_recurrent_model_of_subwords_reads_a_text_of_any_length(tmp_path: Path, kind: str) -> None:
    """Its state is carried, as one window over the whole text does."""
    tokenizer = byte_tokenizer(SENTENCES)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": len(tokenizer), "hidden_size": 8}
    model = CharRNNForCausalLM(CharRNNConfig(**sizes)) if kind == "char_rnn" else BiLMForCausalLM(BiLMConfig(**sizes))
    text = " ".join(SENTENCES * 80)
    length = len(pack([text], tokenizer))
    assert length > 2048 + 1
    expected = score_text(model.eval(), tokenizer, text, length - 1)
    assert score_text(model, tokenizer, text) == pytest.approx(expected, rel=1e-5)
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    words = ["evaluate", tmp_path / "model", written(tmp_path / "text.txt", text)]
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == 0, done.output
    assert int(dict(line.split() for line in done.stdout.splitlines())["tokens"]) == length - 1


def literal_losses(model: Any, ids: list[int], block: int, stride: int) -> list[float]:
    """Each token by itself, from the block that is the first to end with it or behind it."""
    losses = []
    last = len(ids) - 1 - block
    for target in range(1, len(ids)):
        k = max(0, -(-(target - block) // stride))
        start = min(k * stride, last)
        with torch.no_grad():
            log_probabilities = model(torch.tensor([ids[start:target]])).logits[0, -1].log_softmax(-1)
        losses.append(-log_probabilities[ids[target]].item())
    return losses


def test_the_loss_by_distance_is_that_of_each_token_in_its_document(tmp_path: Path) -> None:
    """A token sees its own document only, up to a window, and the ranges of distances double."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer(SENTENCES)
    sizes = {"vocab_size": len(tokenizer), "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    documents = [f"= {SENTENCES[0]}", "= short", "= " + "\n".join(SENTENCES * 6), "= " + "\n".join(SENTENCES * 2)]
    found = score_documents(model, tokenizer, documents, stride=8)
    losses: dict[int, list[float]] = {}
    for text in documents:
        ids = [tokenizer.eos_token_id, *tokenizer(text).input_ids]
        block = min(32, len(ids) - 1)
        for distance, loss in enumerate(literal_losses(model, ids, block, min(8, block))):
            losses.setdefault(distance, []).append(loss)
    for each in found["by_distance"]:
        expected = [loss for distance in losses for loss in losses[distance] if each["from"] <= distance <= each["to"]]
        assert each["tokens"] == len(expected)
        assert each["nats_per_token"] == pytest.approx(np.mean(expected), rel=1e-4)
    ranges = [(each["from"], each["to"]) for each in found["by_distance"]]
    assert ranges[:3] == [(0, 63), (64, 127), (128, 255)]
    assert found["documents"] == 4
    assert found["tokens"] == sum(map(len, losses.values()))
    assert found["nats_per_token"] == pytest.approx(
        np.mean([loss for each in losses.values() for loss in each]), rel=1e-4
    )
    assert found["characters"] == sum(map(len, documents))
    with pytest.raises(UserError, match="No document has a word that can be predicted; give longer documents"):
        score_documents(model, tokenizer, [" "])

    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    file = written(tmp_path / "text.txt", "\n".join(documents))

    def score(*words: str) -> Any:
        return CliRunner().invoke(app, ["score", str(tmp_path / "model"), str(file), "--stride", "8", *words])

    done = score("--document-start", "^= ")
    assert done.exit_code == 0, done.output
    scores, table = done.stdout.split("\n\n")
    assert dict(line.split() for line in scores.splitlines())["documents"] == "4"
    header, *rows = table.splitlines()
    assert header.split() == ["tokens", "read", "before", "nats_per_token", "tokens"]
    assert [row.split()[-1] for row in rows] == [f"{each['tokens']:,}" for each in found["by_distance"]]
    assert rows[1].split()[:3] == ["64", "to", "127"]
    for words, message in (
        (["--document-start", "^= ", "--skip", "0.1"], "--skip leaves out the start of one text"),
        (["--document-start", "^ ="], "No line of text.txt matches '^ ='"),
        (["--document-start", "("], "'(' is not a regular expression"),
        (["--document-start", "^= ", "--window", "7"], "A stride of 8 skips tokens; write a whole number from 1 to"),
    ):
        done = score(*words)
        assert done.exit_code == 2
        assert message in done.stderr


def test_each_document_of_many_is_scored_without_a_file_of_its_own() -> None:
    """A process may have about a thousand open files."""
    tokenizer = byte_tokenizer(SENTENCES)
    sizes = {"vocab_size": len(tokenizer), "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 32}
    model = GPT2LMHeadModel(GPT2Config(**sizes)).eval()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = max(int(name) for name in os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 50, limits[1]))
    try:
        found = score_documents(model, tokenizer, [f"a text {i}" for i in range(100)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found["documents"] == 100


def test_a_model_of_memory_layers_reads_a_text_of_any_length() -> None:
    """Its memory is carried, as one window over the whole text does."""
    torch.manual_seed(0)
    tokenizer = byte_tokenizer(SENTENCES)
    options = {"memory_length": 8, "segment_length": 4}
    size = {"vocab_size": len(tokenizer), "hidden_size": 8, "num_attention_heads": 2, "decoder_layers": 2}
    memory = {"positions": "relative_sinusoidal", "decoder_pattern": "memory", "decoder_pattern_options": options}
    model = VaswaniForCausalLM(VaswaniConfig(**size, **memory)).eval()
    text = "\n".join(SENTENCES * 80)
    length = len(pack([text], tokenizer))
    assert length > 2048 + 1
    expected = score_text(model, tokenizer, text, length - 1)
    assert score_text(model, tokenizer, text) == pytest.approx(expected, rel=1e-5)
    dense = VaswaniForCausalLM(VaswaniConfig(**size, positions="rotary")).eval()
    with pytest.raises(UserError, match="says nothing of how many tokens it can read at once; give a window"):
        score_text(dense, tokenizer, text)


def test_scores_are_those_of_the_published_model_token_by_token(finished: Path, gpt2: Path) -> None:
    results = results_of(finished / "run")
    text = (finished / "text.txt").read_text()
    start = int(0.85 * len(text))
    test = text[start:]
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    ids = [tokenizer.bos_token_id, *tokenizer(test).input_ids]
    score = results["metrics"]["test"]
    for folder, measured in ((finished / "run", score), (gpt2, score["before"])):
        nats = sum(literal_losses(AutoModelForCausalLM.from_pretrained(folder).eval(), ids, block=16, stride=6))
        assert measured["tokens"] == len(ids) - 1
        assert measured["nats_per_token"] == pytest.approx(nats / (len(ids) - 1), rel=1e-4)
        assert measured["perplexity"] == pytest.approx(math.exp(nats / (len(ids) - 1)), rel=1e-3)
        assert measured["bits_per_character"] == pytest.approx(nats / math.log(2) / len(test), rel=1e-4)
        assert measured["bits_per_byte"] == pytest.approx(nats / math.log(2) / len(test.encode()), rel=1e-4)
        assert measured["perplexity_per_word"] == pytest.approx(math.exp(nats / len(test.split())), rel=1e-3)
    assert score["perplexity"] < 0.2 * score["before"]["perplexity"]
    assert results["data"]["parts"]["test"]["characters"] == len(test)


# The command line of the package on such a model


def test_hfattn_score_is_what_the_recipe_measured(finished: Path) -> None:
    text = (finished / "text.txt").read_text()
    words = [
        "score",
        str(finished / "run"),
        str(finished / "text.txt"),
        "--skip",
        str((int(0.85 * len(text)) + 0.5) / len(text)),
    ]
    done = CliRunner().invoke(app, [*words, "--window", "16", "--stride", "6"])
    assert done.exit_code == 0, done.output
    printed = dict(line.split() for line in done.stdout.splitlines())
    expected = results_of(finished / "run")["metrics"]["test"]
    for name in ("nats_per_token", "bits_per_character", "perplexity_per_word"):
        assert float(printed[name]) == pytest.approx(expected[name], rel=1e-3, abs=1e-3)
    assert int(printed["tokens"]) == expected["tokens"]
    # Without a window, as many tokens as the model has positions for; with more, a sentence.
    assert CliRunner().invoke(app, words).exit_code == 0
    refused = CliRunner().invoke(app, [*words, "--window", "65"])
    assert (refused.exit_code, "more than the model's 64 positions" in refused.stderr) == (2, True)


def character_model(folder: Path, **fields: Any) -> Path:
    """A decoder with attention and 16 positions, or with ``fields`` a recurrent model, that reads characters."""
    tokenizer = build_character_tokenizer(SENTENCES)
    torch.manual_seed(0)
    model: Any
    if fields:
        model = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), hidden_size=8, **fields))
    else:
        sizes = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8, "decoder_layers": 1}
        absent = dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id"))
        positions = {"positions": "learned", "max_position_embeddings": 16}
        vocabulary = {"vocab_size": len(tokenizer), "is_encoder_decoder": False}
        model = VaswaniForCausalLM(VaswaniConfig(**vocabulary, **sizes, **absent, **positions))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_attention_over_characters_is_scored_in_windows_of_its_positions(tmp_path: Path) -> None:
    model, text = character_model(tmp_path / "model"), written(tmp_path / "text.txt", " ".join(SENTENCES))
    loaded, tokenizer = load_language_model(str(model))
    expected = sum(literal_losses(loaded, tokenizer(text.read_text()).input_ids, 16, 16))
    for words in (["score", model, text], ["evaluate", model, text]):
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output
        printed = dict(line.split() for line in done.stdout.splitlines())
        number = int(printed["characters"])
        assert number == len(text.read_text()) - 1
        assert float(printed["nats_per_character"]) * number == pytest.approx(expected, rel=1e-3)


def test_a_backward_model_of_characters_reads_the_text_from_its_end(tmp_path: Path) -> None:
    model, tokenizer = load_language_model(str(character_model(tmp_path / "model", direction="backward")))
    text = " ".join(SENTENCES)
    opened = open_text(str(written(tmp_path / "text.txt", text)))
    assert score_opened(model, tokenizer, opened) == score_ids(model, np.array(tokenizer(text[::-1]).input_ids))


def test_options_that_a_language_model_has_no_use_for_are_refused(tmp_path: Path) -> None:
    model, text = character_model(tmp_path / "model", cell="gru"), written(tmp_path / "text.txt", " ".join(SENTENCES))
    for option in ("--num-beams", "--limit", "--threshold"):
        done = CliRunner().invoke(app, ["evaluate", str(model), str(text), option, "1"])
        name = option[2:].replace("-", "_")
        assert (done.exit_code, f"{name} is not for the task of {model}; leave it" in done.stderr) == (2, True), done
    done = CliRunner().invoke(app, ["evaluate", str(model), str(text), "--columns", "text,label"])
    assert (done.exit_code, f"columns names 2 columns, and {model} reads one text" in done.stderr) == (2, True), done
    done = CliRunner().invoke(app, ["score", str(model), str(text), "--stride", "4"])
    assert (done.exit_code, "A stride of 4 is for windows, and the whole text is read" in done.stderr) == (2, True)


def test_hfattn_generate_writes_streams_and_stops_at_the_last_position(finished: Path) -> None:
    command = ["generate", str(finished / "run"), "--prompt", "The naïve cat", "--temperature"]
    greedy = CliRunner().invoke(app, [*command, "0"])  # 300 tokens are asked for, and there are 64 positions
    assert greedy.exit_code == 0, greedy.output
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    model = AutoModelForCausalLM.from_pretrained(finished / "run")
    inputs = tokenizer("The naïve cat", return_tensors="pt")
    ids = model.generate(**inputs, do_sample=False, max_new_tokens=POSITIONS - inputs["input_ids"].shape[1])
    assert greedy.stdout == tokenizer.decode(ids[0], skip_special_tokens=True) + "\n"
    for words in (["0"], ["1.0", "--top-k", "20", "--seed", "3"]):
        whole = CliRunner().invoke(app, [*command, *words]).stdout
        assert CliRunner().invoke(app, [*command, *words, "--stream"]).stdout == whole
    long = CliRunner().invoke(app, ["generate", str(finished / "run"), "--prompt", "cat " * 64])
    assert (long.exit_code, "positions for it and its continuation; shorten it" in long.stderr) == (2, True)


def test_streamed_tokens_are_whole_characters() -> None:
    tokenizer = byte_tokenizer(SENTENCES)
    text = "日本 naïve 🐈 Où"
    parts: list[str] = []

    class Recorder(io.StringIO):
        def write(self, part: str) -> int:
            parts.append(part)
            return len(part)

    streamer = TokenStreamer(tokenizer, Recorder())
    for token in tokenizer(text).input_ids:
        streamer.put(torch.tensor([token]))
    streamer.end()
    assert "".join(parts) == text + "\n"
    assert len(parts) == 8  # what is learned of the texts, and each character that is not
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(parts)


# The recipe


def test_results_say_what_was_trained(finished: Path) -> None:
    folder, results = finished / "run", results_of(finished / "run")
    model = results["model"]
    assert (model["base_model"], model["method"], model["model_type"]) == ("gpt2", "full", "gpt2")
    parameters = AutoModelForCausalLM.from_pretrained(folder).num_parameters()
    assert model["parameters"] == model["trained_parameters"] == parameters
    train = results["data"]["parts"]["train"]
    assert results["data"]["dropped_tokens"] == (train["tokens"] - 1) % 16
    assert [sample["decoding"] for sample in results["samples"]] == ["greedy", "any"]
    for sample in results["samples"]:
        assert sample["before"].startswith("The cat")
        assert sample["after"].startswith("The cat")
        assert sample["before"] != sample["after"]


def test_samples_are_those_of_the_model_before_and_after(finished: Path, gpt2: Path) -> None:
    greedy = results_of(finished / "run")["samples"][0]
    for folder, text in ((gpt2, greedy["before"]), (finished / "run", greedy["after"])):
        tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
        ids = model.generate(**tokenizer("The cat", return_tensors="pt"), do_sample=False, max_new_tokens=8)
        assert tokenizer.decode(ids[0], skip_special_tokens=True) == text


def test_the_name_on_the_hub_is_the_base_model(finished: Path) -> None:
    results = results_of(finished / "run")
    for name, expected in (("openai-community/gpt2", "openai-community/gpt2"), ("gpt2", None), (None, None)):
        changed = {**results, "model": {**results["model"], "base_model": name}}
        assert render_card(finished / "run", changed, lambda code: "").data.to_dict().get("base_model") == expected


def test_training_stops_where_the_validation_perplexity_rises(gpt2: Path, tmp_path: Path) -> None:
    """A learning rate that is far too high: the best weights are those of the first evaluation, or near."""
    training = {**steps(40, 2), "learning_rate": 3.0, "lr_scheduler_type": "constant", "max_grad_norm": 100.0}
    config = tiny_config(tmp_path, gpt2, training=training, early_stopping_patience=2)
    facts = train_here(RECIPE, config)["training"]
    assert facts["steps"] == facts["best_step"] + 4 < 40


def test_lora_leaves_one_whole_model(gpt2: Path, tmp_path: Path) -> None:
    config = tiny_config(tmp_path, gpt2, tuning={"method": "lora", "rank": 4}, training={"learning_rate": 5e-2})
    results = train_here(RECIPE, config)
    assert 0 < results["model"]["trained_share"] < 0.5
    before, after = (AutoModelForCausalLM.from_pretrained(folder).state_dict() for folder in (gpt2, tmp_path / "run"))
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("c_attn.weight") or ".c_" in name for name in changed)  # linear layers, no embeddings
    score = results["metrics"]["test"]
    assert score["perplexity"] < score["before"]["perplexity"]
    text = (tmp_path / "text.txt").read_text()
    model, tokenizer = (loader.from_pretrained(tmp_path / "run") for loader in (AutoModelForCausalLM, AutoTokenizer))
    published = score_text(model.eval(), tokenizer, text[int(0.85 * len(text)) :], 16)
    assert published["nats_per_token"] == pytest.approx(score["nats_per_token"], rel=1e-4)
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").exists()


def test_from_scratch_on_documents_with_a_tokenizer_file(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    byte_tokenizer(SENTENCES).backend_tokenizer.save(str(file))
    rows = written(tmp_path / "rows.jsonl", [{"text": f"{SENTENCES[i % 4]} {i}"} for i in range(200)])
    config = tiny_config(
        tmp_path,
        None,
        data={"dataset": str(rows), "lines_are_texts": True, "split": [140, 30, "rest"]},
        model={"model_type": "gpt2", "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2},
        tokenizer={"name": str(file)},
        averaging={"ema": 0.9},
    )
    results = train_here(RECIPE, config)
    assert results["model"]["base_model"] is None
    assert "before" not in results["metrics"]["test"]
    assert "before" not in results["samples"][0]
    assert {part: facts["documents"] for part, facts in results["data"]["parts"].items()} == {
        "train": 140, "validation": 30, "test": 30,
    }  # fmt: skip
    model, tokenizer = (loader.from_pretrained(tmp_path / "run") for loader in (AutoModelForCausalLM, AutoTokenizer))
    assert model.lm_head.weight is model.transformer.wte.weight
    assert model.num_parameters() == results["model"]["parameters"]
    end = tokenizer.eos_token_id
    assert model.config.eos_token_id == tokenizer.bos_token_id == end
    test = split_corpus(read_documents(str(rows)), [140, 30, "rest"], 0)[-1]
    ids = [token for item in test for token in (end, *tokenizer(item.text).input_ids)]
    nats = sum(literal_losses(model.eval(), ids, block=16, stride=16))
    assert results["metrics"]["test"]["nats_per_token"] == pytest.approx(nats / (len(ids) - 1), rel=1e-4)
    assert "from scratch" in (tmp_path / "run" / "README.md").read_text()


# Bad input


def mismatched(folder: Path) -> Path:
    """A model with fewer embeddings than its tokenizer has tokens."""
    GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=8, n_layer=1, n_head=2, n_positions=32)).save_pretrained(
        folder / "m"
    )
    byte_tokenizer(SENTENCES).save_pretrained(folder / "m")
    return folder / "m"


def without_end(folder: Path) -> Path:
    model = tiny_model(folder / "endless", "gpt2", texts=SENTENCES)
    path = model / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in fields.items() if k not in ("eos_token", "bos_token", "unk_token")}))
    return model


def in_tokens(folder: Path) -> Path:
    byte_tokenizer(SENTENCES).backend_tokenizer.save(str(folder / "tokenizer.json"))
    model = "{model_type: gpt2, n_positions: 16, n_embd: 8, n_head: 2, n_layer: 1}"
    sections = f"data: {{max_length: 16}}\nmodel: {model}\ntokenizer: {{name: {folder}/tokenizer.json}}\n"
    return written(folder / "m.yaml", f"max_tokens: 100\n{sections}")


SCRATCH = ["--model", "{model_type: gpt2, n_embd: 8, n_head: 2, n_layer: 1}", "--tokenizer.name", "gpt2"]


def from_scratch(words: str) -> Words:
    return lambda folder: [*SCRATCH, *words.split()]


def classifier(folder: Path) -> Path:
    """A recurrent language model that became a classifier."""
    tokenizer = byte_tokenizer(SENTENCES)
    CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), hidden_size=8)).save_pretrained(folder)
    CharRNNForSequenceClassification.from_pretrained(folder).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


BAD: list[BadInput] = [
    ("--data.dataset no.txt", "no.txt was not found locally or on the Hub"),
    (lambda f: ["--data.dataset", written(f / "e.txt", " \n")], "e.txt is empty; it must have at least"),
    (lambda f: ["--data.dataset", written(f / "s.txt", "The cat. " * 9)], "and one window of 16 needs 17"),
    (lambda f: ["--data.dataset", written(f / "a.jsonl", '{"t": "x"}\n')], "Line 1 of a.jsonl has no column 'text'"),
    ("--data.document_start ^=", "write lines_are_texts: true, or remove it"),
    ("--data.lines_are_texts true --data.document_start ^==", "No line of text.txt matches"),
    (
        lambda f: ["--model.name", without_end(f), "--data.lines_are_texts", "true"],
        "has no end token to put between",
    ),
    ("--model.name ./none", "none was not found locally or on the Hub"),
    (lambda f: ["--model.name", tiny_model(f / "bert", "bert", SENTENCES)], "is an encoder such"),
    (lambda f: ["--model.name", tiny_model(f / "d", "distilbert")], "which transformers does not support for CausalLM"),
    (lambda f: ["--model.name", classifier(f / "clf")], r"has no weights .*, so it is not a language model; give one"),
    (lambda f: ["--model.name", mismatched(f)], "tokens, and the model has 100 embeddings; write the"),
    (
        lambda f: ["--config", written(f / "c.yaml", "model: {model_type: char_rnn, conditioning_size: 8}\n")],
        "needs a vector for each text, and this recipe has none; remove it",
    ),
    ("--data.max_length 65", "data.max_length is 65; this model reads at most 64 tokens"),
    ("--data.max_length 1", "max_length is 1; write a whole number of at least 2"),
    ("--evaluation.stride 17", "stride 17 skips tokens; write at most data.max_length, 16"),
    ("--evaluation.stride 0", "stride is 0; write a whole number of at least 1, or null"),
    (
        lambda f: ["--config", in_tokens(f)],
        "write training.per_device_train_batch_size, not max_tokens",
    ),
    ("--sample.decoding '{a: {top_q: 1}}'", "decoding 'a' has 'top_q'; write temperature, top_k"),
    ("--sample.decoding '{a: {temperature: -1}}'", "has temperature -1; write 0, or 0.01"),
    ("--sample.decoding '{a: {top_p: 1.5}}'", "has top_p 1.5; write a number above 0, at most 1"),
    ("--sample.decoding '{a: {top_k: 0.5}}'", "has top_k 0.5; write a whole number"),
    ("--sample.decoding '{}'", "decoding is empty; write at least one way, such as"),
    (
        f"--sample.prompts '[The cat, {'the cat ' * 64}]'",
        "sample.prompts has 'the cat .*, which has .* tokens, and the model has 64 positions for it and its",
    ),
    (
        lambda f: [*SCRATCH[:2], "--tokenizer.kind", "char", "--sample.prompts", "[The cat, ñ]"],
        "sample.prompts has 'ñ', and 'ñ' is not in the .* learned with tokenizer.unknown: true",
    ),
    (
        lambda f: [*SCRATCH[:2], "--tokenizer", "{kind: bpe, vocab_size: 300, sampling: 0.1}"],
        "The texts are encoded once, before training; remove tokenizer.sampling",
    ),
    ("--sample.prompts []", "prompts is empty or has an empty prompt; write at least one"),
    ("--model '{model_type: gtp2}'", "model.model_type is 'gtp2'; write a model type"),
    (from_scratch("--model.n_layers 2"), "'model.n_layers' is not a field of gpt2; did you mean"),
    (from_scratch("--model.vocab_size 9"), "follows from the data; leave it out"),
    (from_scratch("--model.n_positions 8"), "this model reads at most 8 tokens"),
    (from_scratch("--tuning.method lora"), "trains all weights; write tuning.method: full, not"),
    (
        lambda f: ["--model", "{model_type: distilbert}", "--tokenizer.name", tiny_model(f / "g", "gpt2")],
        "AutoModelForCausalLM has no model of the type distilbert; write another model.model_type",
    ),
    (
        lambda f: [*SCRATCH, "--tokenizer.name", written(f / "t.json", "{}")],
        "is not a tokenizer.json",
    ),
    (from_scratch("--tokenizer {}"), "tokenizer: name is empty; write"),
    ("--tokenizer.name gpt2", "comes with its own tokenizer; remove the section"),
    ("--tuning.method head_only", "head_only trains a new head, and this model has a trained"),
]


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, bad, loss, changed = "causal_lm", BAD, "nats_per_token", "--data.max_length 15"
    files: ClassVar[set[str]] = {*FinishedRun.files, "generation_config.json"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png",)
    stated: ClassVar[Stated] = {
        ("perplexity", "perplexity per token (test)"): ("test", "perplexity"),
        ("bits_per_character", "bits per character (test)"): ("test", "bits_per_character"),
    }

    @pytest.fixture
    def configure(self, gpt2: Path) -> Configure:
        return partial(tiny_config, base=gpt2)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        before = results["metrics"]["test"]["before"]
        for words in ("gpt2, fine-tuned on text.txt", f"| test, before | {before['perplexity']:.3f} |"):
            assert words in card.text
        assert printed.startswith("The cat")

    def killed(self, folder: Path) -> dict[str, Any]:
        """GPT-2 has dropout, and is evaluated before it is trained."""
        return {"training": {"max_steps": 30}, "early_stopping_patience": 2}

    def shared(self, folder: Path) -> dict[str, Any]:
        return {"model": {"options": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}}


def test_packed_documents_have_no_special_tokens_of_a_post_processor() -> None:
    """Tokenizers such as that of Llama write a start token before each text; only the ends between documents count."""
    tokenizer = byte_tokenizer(["One."])
    plain, without = pack(["One.", "Two."], tokenizer), tokenizer("One.").input_ids
    end = tokenizer.eos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{end} $A", special_tokens=[(end, tokenizer.eos_token_id)]
    )
    assert tokenizer("One.").input_ids == [tokenizer.eos_token_id, *without]
    packed = pack(["One.", "Two."], tokenizer)
    assert list(packed.ids) == list(plain.ids)
    assert packed.size == plain.size

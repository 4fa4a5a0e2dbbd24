"""Prompting: likelihoods of answers against literal loops, solved examples, and the command as the page prints it."""

import json
import math
import re
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import ROOT, run
from tiny_models import labeled_file, tiny_model

from hfattn.data.labeled import Labeled, LabeledTexts
from hfattn.errors import UserError
from hfattn.loading import load_language_model
from hfattn.models import CharRNNConfig, CharRNNForCausalLM, VaswaniConfig, VaswaniForCausalLM
from hfattn.prompting import Prompts, answer_log_likelihoods, answer_scores, draw_solved

PROMPTS = ["The film was", "A story of Mary and the dog of John. It was", "Sad. So"]
ANSWERS = ["good", "terrible and dull", "terrible and sad"]


def language_model(kind: str, folder: Path) -> tuple[Any, Any]:
    """A tiny model and its tokenizer; ours read the bytes of the tiny GPT."""
    model, tokenizer = load_language_model(str(tiny_model(folder, "llama" if kind == "llama" else "gpt2")))
    torch.manual_seed(0)
    if kind == "char_rnn":
        model = CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), embedding_size=8, hidden_size=16))
    if kind == "vaswani":
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "decoder_layers": 2}
        absent = dict.fromkeys(("bos_token_id", "eos_token_id", "decoder_start_token_id", "pad_token_id"))
        config = VaswaniConfig(vocab_size=len(tokenizer), is_encoder_decoder=False, encoder_layers=2, **sizes, **absent)
        model = VaswaniForCausalLM(config)
    return model.double().eval(), tokenizer


@pytest.mark.parametrize("kind", ["gpt2", "llama", "char_rnn", "vaswani"])
def test_the_likelihood_is_that_of_a_literal_loop(kind: str, tmp_path: Path) -> None:
    """Padded batches of several prompts against one forward pass for each token, without padding."""
    model, tokenizer = language_model(kind, tmp_path / "model")
    found = answer_log_likelihoods(model, tokenizer, PROMPTS, ANSWERS, batch_size=4)
    for i, prompt in enumerate(PROMPTS):
        for j, answer in enumerate(ANSWERS):
            ids = [tokenizer.bos_token_id, *tokenizer(f"{prompt} {answer}", add_special_tokens=False)["input_ids"]]
            first = 1 + len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
            total = 0.0
            for t in range(first, len(ids)):
                with torch.no_grad():
                    total += model(torch.tensor([ids[:t]])).logits[0, -1].log_softmax(-1)[ids[t]].item()
            assert found[i, j] == pytest.approx(total, abs=1e-9)


def test_calibration_and_normalization_on_a_worked_example() -> None:
    """Probabilities 0.6 and 0.4, after prompts without content 0.9 and 0.1, or 0.7 and 0.3: 0.6/0.8 < 0.4/0.2."""
    log_likelihoods = np.log([[0.6, 0.4]]) - 3
    scores = answer_scores(log_likelihoods, ["no", "yes!"], np.log([[0.9, 0.1], [0.07, 0.03]]))
    assert scores["likelihood"].argmax() == 0
    assert scores["normalized"][0] == pytest.approx([(math.log(0.6) - 3) / 2, (math.log(0.4) - 3) / 4])
    assert scores["calibrated"][0] + 3 == pytest.approx([math.log(0.6 / 0.8), math.log(0.4 / 0.2)])


def texts(counts: dict[int, int]) -> LabeledTexts:
    items = [Labeled(f"{label} {i}", label, i) for label, number in counts.items() for i in range(number)]
    return LabeledTexts("texts", items, ["bad", "good"])


def test_solved_examples_are_balanced_and_follow_the_seed() -> None:
    train = texts({0: 40, 1: 5})
    drawn = draw_solved(train, 8, seed=1)
    assert Counter(item.label for item in drawn) == {0: 4, 1: 4}
    assert len({item.text for item in drawn}) == 8
    assert drawn == draw_solved(train, 8, seed=1)
    assert drawn != draw_solved(train, 8, seed=2)
    assert draw_solved(train, 0, seed=1) == []
    with pytest.raises(UserError, match=r"has 5 training examples of good, and shots 12 needs 6; write fewer shots"):
        draw_solved(train, 12, seed=1)


def test_a_prompt_is_the_solved_examples_and_the_filled_template() -> None:
    item = Labeled("a {x}", 0, None, {"title": "T"}, "b")
    prompts = Prompts("{title}: {text} / {pair} =", ["no", "yes"], [Labeled("c", 1, None, {"title": "U"}, "d")])
    assert prompts.render(item) == "U: c / d = yes\n\nT: a {x} / b ="
    assert prompts.render_content_free(item)[0] == "U: c / d = yes\n\nN/A: N/A / N/A ="
    with pytest.raises(UserError, match="names the column 'year', and the columns are title, text, pair"):
        Prompts("{year}", ["no", "yes"]).render(item)
    with pytest.raises(UserError, match="cannot be filled"):
        Prompts("{text", ["no", "yes"]).render(item)


def test_long_prompts_are_refused_or_cut(tmp_path: Path) -> None:
    model, tokenizer = language_model("gpt2", tmp_path / "model")
    long, limit = "word " * 30 + PROMPTS[0], 24
    with pytest.raises(UserError, match=rf"Prompt 1 has \d+ tokens, and the maximum is {limit}"):
        answer_log_likelihoods(model, tokenizer, [long], ["good"], max_length=limit)
    cut = answer_log_likelihoods(model, tokenizer, [long], ["good"], max_length=limit, too_long="cut")
    ids = tokenizer(f"{long} good", add_special_tokens=False)["input_ids"]
    number = len(ids) - len(tokenizer(long, add_special_tokens=False)["input_ids"])
    read = torch.tensor([[tokenizer.bos_token_id, *ids[-limit:-1]]])  # start, and the last tokens before the predicted
    assert read.shape[1] == limit
    with torch.no_grad():
        predicted = model(read).logits[0, -number:].log_softmax(-1)
    assert cut[0, 0] == pytest.approx(predicted[range(number), ids[-number:]].sum().item(), abs=1e-9)
    with pytest.raises(UserError, match="the model can read"):
        answer_log_likelihoods(model, tokenizer, [long], ["good"], max_length=100_000)


def test_the_command_of_the_page(tmp_path: Path) -> None:
    """As printed, with a tiny model and reviews; refused fields write nothing."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    (block,) = re.findall(r'```yaml title="sst2_prompt.yaml"\n(.*?)```', page, re.DOTALL)
    (line,) = re.findall(r"^hfattn prompt .*$", page, re.MULTILINE)
    (tmp_path / "sst2_prompt.yaml").write_text(block)
    tiny_model(tmp_path / "model", "gpt2")
    labeled_file(tmp_path / "reviews.tsv", pairs=False)
    own = ["--model", "model", "--data.dataset", "reviews.tsv", "--data.text_column", "text", "--data.test", "null"]
    own += ["--data.split", "[0.8, 0.1, 0.1]", "--data.split_by", "text", "--max_examples", "12", "--too_long", "cut"]
    words = [*shlex.split(line), *own]
    same = ["--part", "validation", "--chosen_on", "validation"]
    for wrong, message in ((same, "chosen_on and part are both"), (["--answers", "[a]"], "answers")):
        refused = run([*words, *wrong], cwd=tmp_path)
        assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr
        assert not list(tmp_path.glob("runs/*"))
    done = run(words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    (folder,) = tmp_path.glob("runs/*")
    results = json.loads((folder / "results.json").read_text())
    scores = results["metrics"]["test"]
    for kind in ("likelihood", "normalized", "calibrated"):
        table = np.array(scores[kind]["confusion_matrix"])
        assert table.sum() == scores["examples"] == 12
        assert scores[kind]["accuracy"] == pytest.approx(np.trace(table) / 12)
        assert f"{kind}: accuracy {scores[kind]['accuracy']:.3f}" in done.stdout
    assert [each["label"] for each in results["solved_examples"]].count("positive") == 2
    assert results["first_prompt"].count("Sentiment: ") == 4

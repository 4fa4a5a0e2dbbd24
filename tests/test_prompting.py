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
from commands import ROOT, run, written
from tiny_models import labeled_file, tiny_model
from transformers import MistralConfig, MistralForCausalLM, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from hfattn.data.labeled import Labeled, LabeledTexts
from hfattn.errors import UserError
from hfattn.loading import load_language_model
from hfattn.models import CharRNNConfig, CharRNNForCausalLM, VaswaniConfig, VaswaniForCausalLM
from hfattn.prompting import (
    PromptConfig,
    Prompts,
    RationaleConfig,
    SharedPrefix,
    answer_log_likelihoods,
    answer_scores,
    draw_solved,
    generate_rationales,
    prompt_model,
    table,
)
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import load_config

pytestmark = pytest.mark.runs

SOLVED = "The end was good.\n\n"  # with which all prompts begin
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
    if kind == "mistral":  # its cache has the last tokens only
        sizes = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 64}
        model = MistralForCausalLM(
            MistralConfig(vocab_size=len(tokenizer), num_hidden_layers=2, sliding_window=5, **sizes)
        )
    if kind == "openai-gpt":  # it has no cache
        model = OpenAIGPTLMHeadModel(
            OpenAIGPTConfig(vocab_size=len(tokenizer), n_positions=64, n_embd=32, n_layer=2, n_head=2)
        )
    return model.double().eval(), tokenizer


KINDS = ["gpt2", "llama", "char_rnn", "vaswani", "mistral", "openai-gpt"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_is_that_of_a_literal_loop(kind: str, tmp_path: Path) -> None:
    """Padded batches of several prompts that begin alike, against one forward pass for each token, without padding."""
    model, tokenizer = language_model(kind, tmp_path / "model")
    prompts = [SOLVED + prompt for prompt in PROMPTS]
    found = answer_log_likelihoods(model, tokenizer, prompts, ANSWERS, batch_size=4)
    for i, prompt in enumerate(prompts):
        for j, answer in enumerate(ANSWERS):
            ids = [tokenizer.bos_token_id, *tokenizer(f"{prompt} {answer}", add_special_tokens=False)["input_ids"]]
            first = 1 + len(tokenizer(prompt, add_special_tokens=False)["input_ids"])
            total = 0.0
            for t in range(first, len(ids)):
                with torch.no_grad():
                    total += model(torch.tensor([ids[:t]])).logits[0, -1].log_softmax(-1)[ids[t]].item()
            assert found[i, j] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_what_all_prompts_begin_with_is_read_once(kind: str, tmp_path: Path) -> None:
    """The tokens that the model reads are counted; a model without a cache reads all prompts from their start."""
    model, tokenizer = language_model(kind, tmp_path / "model")
    counts: list[int] = []
    model.register_forward_pre_hook(lambda module, args: counts.append(args[0].shape[1]))
    prompts = [SOLVED + prompt for prompt in PROMPTS]
    answer_log_likelihoods(model, tokenizer, prompts, ["good"], batch_size=1)
    whole = [1 + len(tokenizer(f"{prompt} good", add_special_tokens=False)["input_ids"]) - 1 for prompt in prompts]
    prefix, *rest = counts
    assert prefix >= 1 + len(tokenizer(SOLVED, add_special_tokens=False)["input_ids"])
    assert sorted(rest) == sorted(length - (0 if kind == "openai-gpt" else prefix) for length in whole)


def test_a_shared_prefix_ends_where_texts_differ_and_is_not_changed(tmp_path: Path) -> None:
    model, _ = language_model("gpt2", tmp_path / "model")
    texts = [(5, 6, 7, 8), (5, 6, 9), (5, 6, 7)]
    assert SharedPrefix(model, texts, longest=9).length == 2
    assert SharedPrefix(model, texts, longest=1).length == 1
    assert SharedPrefix(model, [(5,), (6,)], longest=9).arguments(1) == {"use_cache": False}
    prefix = SharedPrefix(model, texts, longest=9)
    for _ in range(2):
        used = prefix.arguments(3)["past_key_values"]
        assert used.get_seq_length() == 2
        with torch.no_grad():
            model(torch.tensor([[7], [8], [9]]), past_key_values=used)
        assert used.get_seq_length() == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_rationale_is_the_greedy_continuation(kind: str, tmp_path: Path) -> None:
    """Batches that begin alike against a literal loop; a stop string taken from a continuation shortens it."""
    model, tokenizer = language_model(kind, tmp_path / "model")
    prompts = [SOLVED + prompt for prompt in [*PROMPTS, "Bad. So"]]  # two have the same length
    limits: dict[str, Any] = {"max_new_tokens": 8, "batch_size": 2}
    continuations = []
    for prompt in prompts:
        ids = [tokenizer.bos_token_id, *tokenizer(prompt, add_special_tokens=False)["input_ids"]]
        length = len(ids)
        for _ in range(8):
            with torch.no_grad():
                ids.append(model(torch.tensor([ids])).logits[0, -1].argmax().item())
        continuations.append(tokenizer.decode(ids[length:], skip_special_tokens=True))
    found = generate_rationales(model, tokenizer, prompts, stop="no such text", **limits)
    assert found == [(text.split("\n\n")[0].strip(), False) for text in continuations]
    stop = next(text[1] for text in continuations if len(text) > 2 and text[1].isascii() and text[1].isprintable())
    for one, text in zip(
        generate_rationales(model, tokenizer, prompts, stop=stop, **limits), continuations, strict=True
    ):
        assert one == (text.split(stop)[0].split("\n\n")[0].strip(), stop in text)


@pytest.mark.parametrize("characters", [False, True])
def test_the_answer_follows_from_the_rationale(characters: bool, tmp_path: Path) -> None:
    """A tiny GPT and a char-RNN that were trained to give a reason, and the answer after it."""
    facts = {"sun": ("warm and bright", "good"), "rain": ("cold and wet", "bad"), "fog": ("grey", "bad")}
    model, tokenizer = language_model("gpt2", tmp_path / "model")
    if characters:
        tokenizer = build_character_tokenizer("".join(map(str, facts.items())) + "\nWhy:Answer.")
        config = CharRNNConfig(vocab_size=len(tokenizer), embedding_size=16, hidden_size=64, cell="gru")
        model = CharRNNForCausalLM(config)
    texts = [f"{name}\nWhy: {why}\nAnswer: {answer}\n\n" for name, (why, answer) in facts.items()]
    start = "" if characters else tokenizer.bos_token
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(100):
        for text in texts:
            ids = tokenizer(start + text, add_special_tokens=False, return_tensors="pt")["input_ids"]
            model(ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    prompts = Prompts("{text}\nWhy:", ["bad", "good"], (), RationaleConfig(40))
    asked = [prompts.render(Labeled(name, 0)) for name in facts]
    found = generate_rationales(model, tokenizer, asked, stop=prompts.rationale.stop, max_new_tokens=40)
    assert found == [(why, True) for why, _ in facts.values()]
    whole = [prompts.add_rationale(prompt, each.text) for prompt, each in zip(asked, found, strict=True)]
    assert whole[0] == "sun\nWhy: warm and bright\nAnswer:"
    scores = answer_log_likelihoods(model, tokenizer, whole, prompts.answers)
    assert [prompts.answers[i] for i in scores.argmax(axis=1)] == [answer for _, answer in facts.values()]


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


def test_solved_examples_have_rationales() -> None:
    rationale = RationaleConfig(8, "why", "\nSo")
    items = [Labeled(f"{i}", i % 2, i, {"why": " since " if i < 4 else None}) for i in range(20)]
    train = LabeledTexts("texts", items, ["bad", "good"])
    drawn = draw_solved(train, 4, 1, "why")
    assert {item.text for item in drawn} == {"0", "1", "2", "3"}
    prompts = Prompts("{text}?", ["no", "yes"], [items[1]], rationale)
    assert prompts.render(items[6]) == "1? since\nSo yes\n\n6?"
    with pytest.raises(UserError, match=r"has 2 training examples of (bad|good) with a rationale, and shots 5 needs 3"):
        draw_solved(train, 5, 2, "why")
    with pytest.raises(UserError, match=r"rationale\.column is 'because', and the other columns of the data are why"):
        draw_solved(train, 4, 1, "because")
    with pytest.raises(UserError, match="names the column 'why', and the columns are text; write"):
        Prompts("{text} {why}", ["no", "yes"], [], rationale).render(items[1])  # it would give the reason away


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
    limits: dict[str, Any] = {"stop": "no such text", "max_new_tokens": 4, "max_length": limit}
    with pytest.raises(UserError, match=rf"Prompt 1 has \d+ tokens with its rationale, and the maximum is {limit}"):
        generate_rationales(model, tokenizer, [long], **limits)
    short = tokenizer.decode(tokenizer(long, add_special_tokens=False)["input_ids"][-(limit - 1 - 4) :])
    cut_rationales = generate_rationales(model, tokenizer, [long], **limits, too_long="cut")
    assert cut_rationales == generate_rationales(model, tokenizer, [short], **limits)
    with pytest.raises(UserError, match=r"rationale\.max_new_tokens is 24, and the maximum for prompt and rationale"):
        generate_rationales(model, tokenizer, [long], **limits | {"max_new_tokens": 24})


def test_a_character_that_the_model_does_not_know_is_refused_before_it_reads(tmp_path: Path) -> None:
    """Also one of the prompts without content, and one that only the answers have."""
    reviews, model = labeled_file(tmp_path / "reviews.tsv", pairs=False), tmp_path / "model"
    config = written(
        tmp_path / "prompt.yaml", f"model: {model}\ndata: {{dataset: {reviews}, split: [0.8, 0.1, 0.1]}}\n"
    )
    read = reviews.read_text() + "[MASK] N/A Answer:"

    def prompted(text: str, *words: str) -> dict[str, Any]:
        tokenizer = build_character_tokenizer(text)
        CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer), hidden_size=8)).save_pretrained(model)
        tokenizer.save_pretrained(model)
        return prompt_model(load_config(PromptConfig, config, ["--max_examples", "2", *words]), config)

    assert prompted(read)["metrics"]["test"]["examples"] == 2
    for text, words, named in (
        (read.replace("y", ""), [], "'y', which is in '"),
        (read.replace("[", ""), [], r"'\[', which is in '\[MASK\]"),
        (read, ["--answers", "[good, ñandú]"], "'ñ', which is in 'ñandú'; .* with tokenizer.unknown: true"),
    ):
        with pytest.raises(UserError, match=f"The model does not know {named}"):
            prompted(text, *words)


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


def test_the_rationales_of_the_page(tmp_path: Path) -> None:
    """The section that the page prints, with a tiny model; fields that do not fit each other are refused."""
    page = (ROOT / "docs" / "recipes.md").read_text()
    (block,) = re.findall(r'```yaml title="reviews_prompt.yaml"\n(.*?)```', page, re.DOTALL)
    path = tmp_path / "reviews_prompt.yaml"
    path.write_text(block)
    model = str(tiny_model(tmp_path / "model", "gpt2"))
    reviews = labeled_file(tmp_path / "reviews.tsv", pairs=False)
    first, *rows = reviews.read_text().splitlines()
    rows = [f"{row}\t{'It was clear.' if i % 3 else ''}" for i, row in enumerate(rows)]
    reviews.write_text("\n".join([f"{first}\treason", *rows]))
    own = ["--model", model, "--data.dataset", str(reviews), "--max_examples", "3", "--too_long", "cut"]
    own += ["--rationale.max_new_tokens", "6"]
    results = prompt_model(load_config(PromptConfig, path, own), path)
    assert results["first_prompt"].count("It was clear.\nSentiment: ") == 4
    assert results["first_prompt"].endswith(f"{results['rationales'][0]['text']}\nSentiment:")
    assert "of 3 rationales ended with the stop string" in table(results)
    assert len(results["rationales"]) == results["metrics"]["test"]["examples"] == 3
    wrong = {
        "rationale: column is 'reason', and max_new_tokens is 0": ["--rationale.max_new_tokens", "0"],
        "rationale.column is null, and shots is 4": ["--rationale.column", "null"],
        "rationale: stop is": ["--rationale.stop", "\n\nAnswer:"],
    }
    for message, words in wrong.items():
        with pytest.raises(UserError, match=re.escape(message)):
            load_config(PromptConfig, path, words)

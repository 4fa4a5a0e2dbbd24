"""Prompts with their completions, and conversations, for the recipe of causal language models."""

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, steps, train_here, write_config, written
from datasets import Dataset
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from tiny_models import TEXTS, byte_tokenizer, tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase, pipeline
from typer.testing import CliRunner

import hfattn
from hfattn import CharRNNConfig, CharRNNForCausalLM
from hfattn.data import (
    Demonstration,
    Demonstrations,
    EncodedDemonstrations,
    best_fit,
    read_demonstrations,
    set_chat_template,
)
from hfattn.data.chat import CHATML, TEMPLATES, encode_conversation
from hfattn.data.demonstrations import Messages
from hfattn.data.model_limits import check_packing
from hfattn.errors import UserError
from hfattn.generation import write_completions
from hfattn.hub import verify
from hfattn.loading import Loaded
from hfattn.metrics import token_loss
from hfattn.training import TuningConfig, tuned
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "causal_lm"
TINY: dict[str, dict[str, Any]] = {
    "data": {"split": [0.7, 0.15, 0.15], "max_length": 48},
    "training": {"per_device_eval_batch_size": 4, "metric_for_best_model": "perplexity", "learning_rate": 3e-2},
    "sample": {"prompts": ["The dog saw Mary in 3"], "max_new_tokens": 8, "decoding": {"greedy": {"temperature": 0}}},
    "evaluation": {"written": 10},
}
UNMARKED = CHATML.replace("{%- generation -%}", "").replace("{%- endgeneration -%}", "")


def said(*contents: str) -> Messages:
    """A conversation in which the user begins."""
    return [{"role": ("user", "assistant")[i % 2], "content": content} for i, content in enumerate(contents)]


def pairs_file(folder: Path, rows: int = 80) -> Path:
    """Of a number: whether the year is even."""
    pairs = (
        {"prompt": f"The dog saw Mary in {i}", "completion": f" and was {('happy', 'sad')[i % 2]}"} for i in range(rows)
    )
    return written(folder / "pairs.jsonl", pairs)


def chats_file(folder: Path, rows: int = 80) -> Path:
    chats = ({"messages": said(f"Mary {i}?", ("happy", "sad")[i % 2])} for i in range(rows))
    return written(folder / "chats.jsonl", chats)


def pairs_config(folder: Path, base: Path, **fields: Any) -> Path:
    files = {"data": {"dataset": str(pairs_file(folder)), "packing": True}, "model": {"name": str(base)}}
    return write_config(folder, TINY, files, fields)


def chats_config(folder: Path, base: Path, **fields: Any) -> Path:
    files = {"data": {"dataset": str(chats_file(folder)), "chat_template": "chatml"}, "model": {"name": str(base)}}
    return write_config(folder, TINY, files, fields)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "gpt2", "gpt2")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "llama", "llama")


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    tokenizer = byte_tokenizer(TEXTS)
    tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def learned_of(tokenizer: PreTrainedTokenizerBase, dataset: EncodedDemonstrations) -> list[str]:
    return [tokenizer.decode([token for token in row["labels"] if token != -100]) for row in dataset.rows]


# Reading


def test_the_form_is_that_of_the_columns(tmp_path: Path) -> None:
    data = hfattn.resources.load_recipe(RECIPE / "train.py").DataConfig
    chats, pairs = chats_file(tmp_path), pairs_file(tmp_path)
    texts = written(tmp_path / "t.jsonl", [{"text": "a", "prompt": "b"}])
    plain = written(tmp_path / "t.txt", "prompt completion\n")
    assert [data().form_of(str(path), "train") for path in (chats, pairs, texts, plain)] == [
        "messages",
        "prompt_completion",
        "text",
        "text",
    ]
    both = written(tmp_path / "b.jsonl", [{"text": "a", "q": "b", "a": "c", "messages": []}])
    assert data(prompt_column="q", completion_column="a").form_of(str(both), "train") == "prompt_completion"
    assert data(form="text").form_of(str(both), "train") == "text"
    csv = written(tmp_path / "p.csv", 'prompt,completion,who\n"a, b",c,ann\nd,e,bob\n')
    (first, second) = read_demonstrations(str(csv), form="prompt_completion")
    assert (first.prompt, first.completion, first.fields, second.line) == ("a, b", "c", {"who": "ann"}, 2)


def test_parts_share_no_prompt_and_no_group(tmp_path: Path) -> None:
    data = hfattn.resources.load_recipe(RECIPE / "train.py").DataConfig
    rows = [{"prompt": f"p{i % 30}", "completion": f"c{i}", "who": i % 7, "when": 100 - i} for i in range(90)]
    path = str(written(tmp_path / "p.jsonl", rows))
    for fields in ({}, {"group_column": "who"}, {"folds": 3, "fold": 2}):
        parts = data(dataset=path, split=[0.6, 0.2, 0.2], **fields).read_parts(1)
        assert sum(map(len, parts.values())) == 90
        of = (lambda item: item.fields["who"]) if "group_column" in fields else (lambda item: item.prompt)
        seen = [{of(item) for item in examples} for examples in parts.values()]
        assert len(set().union(*seen)) == sum(map(len, seen))
    parts = data(dataset=path, split=[0.6, 0.2, 0.2], time_column="when").read_parts(1)
    times = [[item.fields["when"] for item in parts[part]] for part in parts]
    assert max(times[0]) < min(times[1]) <= max(times[1]) < min(times[2])
    twice = written(tmp_path / "twice.jsonl", [*rows[:5], *rows[:5], {"prompt": " ", "completion": "x"}])
    with pytest.raises(UserError, match=r"Line 11 of twice.jsonl has an empty prompt; correct it, or write data.empty"):
        data(dataset=str(twice)).read_parts(1)
    test = str(written(tmp_path / "test.jsonl", rows[:1]))
    cleaned = data(dataset=str(twice), empty="drop", duplicates="drop", test=test, split=[0.5, 0.5])
    parts = cleaned.read_parts(1)
    assert sum(map(len, parts.values())) in (5, 6)  # one prompt of the test leaves train, or is in validation
    assert "p0" not in {item.prompt for item in parts["train"]}
    assert (parts["train"].empty, parts["train"].repeated) == (1, 5)
    with pytest.raises(UserError, match=r"All training prompts of p.jsonl are also in another part, .* or write keep"):
        data(dataset=path, validation=path, duplicates="drop").read_parts(1)


# What is read, and what is learned


def test_the_completion_and_the_end_are_learned_after_the_tokens_of_the_prompt(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    pairs = [("The dog", " was happy."), ("The d", "og was happy.")]
    dataset = EncodedDemonstrations(Demonstrations("x", [Demonstration(*pair) for pair in pairs]), tokenizer, 64)
    assert learned_of(tokenizer, dataset) == [f"{completion}<|endoftext|>" for _, completion in pairs]
    for row, (prompt, _) in zip(dataset.rows, pairs, strict=True):
        ids = tokenizer(prompt).input_ids
        assert row["input_ids"][: len(ids)] == ids  # also where a token of the whole text would cross the boundary
        assert row["labels"][: len(ids)] == [-100] * len(ids)
    assert dataset.ends == {tokenizer.eos_token_id}
    assert dataset.size.words == 5


def test_only_the_assistant_is_learned_with_and_without_marks_in_the_template(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    set_chat_template(tokenizer, "chatml")
    assert tokenizer.eos_token == "<|im_end|>"
    chat = [{"role": "system", "content": "Be kind."}, *said("Hello", "Good.", "The dog?", "Happy!")]
    for template, end in ((CHATML, "<|im_end|>"), (UNMARKED, "<|im_end|>\n")):
        tokenizer.chat_template = template
        for first, answers in ((0, ["Good.", "Happy!"]), (3, ["Happy!"])):
            ids, learned = encode_conversation(tokenizer, chat, first, "Line 1")
            assert ids == tokenizer.apply_chat_template(chat, return_dict=True)["input_ids"]
            found = tokenizer.decode([token for token, each in zip(ids, learned, strict=True) if each])
            assert found == "".join(f"{answer}{end}" for answer in answers)
    asked = tokenizer.apply_chat_template(chat[:4], add_generation_prompt=True, return_dict=True)["input_ids"]
    assert ids[: len(asked)] == asked
    as_prompt = Demonstrations("x", [Demonstration(chat[:4], chat[4:])])
    assert learned_of(tokenizer, EncodedDemonstrations(as_prompt, tokenizer, 99)) == ["Happy!<|im_end|>\n"]
    tokenizer.chat_template = "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}"
    begun = Demonstrations("x", [Demonstration([], [{"role": "assistant", "content": "Happy dogs"}])])
    first = tokenizer.decode(EncodedDemonstrations(begun, tokenizer, 99).rows[0]["input_ids"][:1])
    size = EncodedDemonstrations(begun, tokenizer, 99).size
    assert first
    assert size.characters == len("Happy dogs") - len(first)  # nothing predicts the first token
    # As templates do that leave out what was thought before earlier answers.
    tokenizer.chat_template = UNMARKED.replace("message['content']", "(message['content'] if loop.last else '…')", 1)
    with pytest.raises(UserError, match=r"Line 1: the chat template renders the first \d messages in another way when"):
        encode_conversation(tokenizer, chat, 0, "Line 1")
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(UserError, match=r"Line 1 does not fit the chat template \(roles must alternate\); correct it"):
        encode_conversation(tokenizer, chat, 0, "Line 1")


WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def calling(city: str, arguments: Any, **message: Any) -> Messages:
    call = {"type": "function", "function": {"name": "weather", "arguments": arguments}}
    return [
        {"role": "user", "content": f"Is it warm in {city}?"},
        {"role": "assistant", "tool_calls": [call], **message},
        {"role": "tool", "name": "weather", "content": "30 degrees"},
        {"role": "assistant", "content": "Yes."},
    ]


def test_calls_of_tools_are_learned_and_their_results_are_read(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    """Tools and arguments may be values or JSON, and a Parquet file has a null for each key that a row lacks."""
    rows: list[dict[str, Any]] = [
        {"messages": calling("Rome", {"city": "Rome"}), "tools": [WEATHER]},
        {"messages": calling("Bonn", '{"city": "Bonn"}', content="One moment."), "tools": json.dumps([WEATHER])},
        {"messages": said("Hello", "Good."), "tools": None},
    ]
    table = Dataset.from_list([{"messages": row["messages"], "tools": json.dumps([WEATHER])} for row in rows[::2]])
    table.to_parquet(tmp_path / "calls.parquet")
    data = hfattn.resources.load_recipe(RECIPE / "train.py").DataConfig
    items = [*data().read(written(tmp_path / "calls.jsonl", rows), "train")]
    again = [*data().read(str(tmp_path / "calls.parquet"), "train")]
    assert (again[0].completion, again[1].tools) == (items[0].completion, [WEATHER])
    assert [item.tools for item in items] == [[WEATHER], [WEATHER], []]
    set_chat_template(tokenizer, "chatml")
    dataset = EncodedDemonstrations(Demonstrations("x", items), tokenizer, 500)
    call = '{}<tool_call>{{"name": "weather", "arguments": {{"city": "{}"}}}}</tool_call><|im_end|>Yes.<|im_end|>'
    learned = [call.format("", "Rome"), call.format("One moment.", "Bonn"), "Good.<|im_end|>"]
    assert learned_of(tokenizer, dataset) == learned
    read = [tokenizer.decode(row["input_ids"]) for row in dataset.rows]
    assert ['"type": "string"' in text and "30 degrees" in text for text in read] == [True, True, False]
    assert items[0].last_turn == (items[0].completion[:3], "Yes.")
    assert items[0]._replace(completion=items[0].completion[:2]).last_turn[1] == ""
    for template in ("plain", "{% for message in messages %}{{ message['content'] }}{% endfor %}"):
        tokenizer.chat_template = TEMPLATES.get(template, template)
        with pytest.raises(UserError, match="Line 1 of x has the tool 'weather', and the chat template leaves out"):
            EncodedDemonstrations(Demonstrations("x", items), tokenizer, 500)


def test_what_is_cut_is_counted(tokenizer: PreTrainedTokenizerBase) -> None:
    items = [Demonstration("dog" * n, "happy" * m) for n, m in ((1, 1), (1, 60), (40, 1))]
    lengths = [len(tokenizer(item.prompt).input_ids) for item in items]
    dataset = EncodedDemonstrations(Demonstrations("x", items), tokenizer, lengths[2])
    assert (dataset.cut, dataset.left_out, len(dataset)) == (2, 1, 2)
    assert dataset.examples == items[:2]
    assert len(dataset.rows[1]["input_ids"]) == lengths[2]
    assert dataset.rows[1]["labels"][-1] != tokenizer.eos_token_id
    with pytest.raises(UserError, match="The prompts of all examples of x have 2 tokens or more, so no completion"):
        EncodedDemonstrations(Demonstrations("x", items[2:]), tokenizer, 2)


# Packing


def test_best_fit_decreasing_against_a_literal_loop() -> None:
    random = np.random.default_rng(0)
    for capacity in (7, 30, 100):
        lengths = random.integers(1, capacity + 1, 200).tolist()
        bins: list[list[int]] = []
        for i in sorted(range(200), key=lambda i: -lengths[i]):
            rooms = [capacity - sum(lengths[j] for j in each) for each in bins]
            fitting = [room for room in rooms if room >= lengths[i]]
            if fitting:
                bins[rooms.index(min(fitting))].append(i)
            else:
                bins.append([i])
        found = best_fit(lengths, capacity)
        assert sorted(i for each in found for i in each) == list(range(200))
        filled = [sorted(sum(lengths[i] for i in each) for each in packs) for packs in (bins, found)]
        assert filled[0] == filled[1]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_packed_examples_have_the_loss_of_padded_ones(
    kind: str, attention: str, request: pytest.FixtureRequest, tokenizer: PreTrainedTokenizerBase
) -> None:
    folder = request.getfixturevalue(kind)
    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention).double().eval()
    check_packing(model, kind)
    items = [Demonstration(f"Who wrote {i}?", " John" * (1 + 5 * i % 7)) for i in range(9)]
    padded = EncodedDemonstrations(Demonstrations("x", items), tokenizer, 40)
    packed = padded.packed()
    assert len(packed) < len(padded)
    assert packed.lengths.max() <= 40
    losses, gradients = [], []
    for dataset in (padded, packed):
        batch = dataset.__getitems__(range(len(dataset)))
        labels = batch.pop("labels")
        model.zero_grad()
        logits = model(**batch, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten())
        loss.backward()
        losses.append(loss.item())
        assert token_loss({"logits": logits}, labels).item() == pytest.approx(loss.item(), rel=1e-5)  # in float32
        gradients.append(torch.cat([parameter.grad.flatten() for parameter in model.parameters()]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-9)
    nats = 0.0
    for row in padded.rows:  # one by one, without this package
        logits = model(torch.tensor([row["input_ids"]])).logits[0, :-1]
        targets = torch.tensor(row["labels"][1:])
        nats += torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()
    assert nats / padded.learned == pytest.approx(losses[0], rel=1e-9)


def test_a_model_that_would_read_across_examples_is_refused(gpt2: Path) -> None:
    recurrent = CharRNNForCausalLM(CharRNNConfig(vocab_size=9))
    with pytest.raises(UserError, match=r"rnn does not keep examples apart that are packed into one row; write data.p"):
        check_packing(recurrent, "rnn")
    model = AutoModelForCausalLM.from_pretrained(gpt2)
    model.register_forward_pre_hook(
        lambda module, args, kwargs: (args, {**kwargs, "attention_mask": torch.ones_like(args[0])}), with_kwargs=True
    )
    with pytest.raises(UserError, match="does not keep examples apart"):  # with a mask, positions say nothing
        check_packing(model, "gpt2")


# The recipe


@pytest.fixture(scope="module")
def finished(gpt2: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on packed pairs."""
    folder = tmp_path_factory.mktemp("finished")
    train_here(RECIPE, pairs_config(folder, gpt2, training=steps(60, 30)))
    return folder


@pytest.fixture(scope="module")
def chatting(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on conversations."""
    folder = tmp_path_factory.mktemp("chatting")
    train_here(RECIPE, chats_config(folder, llama, training=steps(60, 30)))
    return folder


def literal_scores(run: Path, rows: list[tuple[list[int], int]]) -> tuple[float, int]:
    """The nats of the tokens of each row from a place on, and their number."""
    model = AutoModelForCausalLM.from_pretrained(run).eval()
    nats, number = 0.0, 0
    for ids, start in rows:
        logits = model(torch.tensor([ids])).logits[0, start - 1 : -1].log_softmax(-1)
        nats -= logits.gather(1, torch.tensor(ids[start:])[:, None]).sum().item()
        number += len(ids) - start
    return nats, number


def written_after(run: Path, prompt: list[int]) -> str:
    model, tokenizer = AutoModelForCausalLM.from_pretrained(run).eval(), AutoTokenizer.from_pretrained(run)
    ids = model.generate(torch.tensor([prompt]), do_sample=False, max_new_tokens=20, pad_token_id=0)
    return tokenizer.decode(ids[0, len(prompt) :], skip_special_tokens=True)


def parts_of(folder: Path) -> dict[str, Any]:
    config = results_of(folder / "run")["configuration"]["data"]
    config["dataset"] = str(folder / config["dataset"])
    return hfattn.resources.load_recipe(RECIPE / "train.py").DataConfig(**config).read_parts(42)


def test_the_scores_of_pairs_are_those_of_the_published_model(finished: Path) -> None:
    results, run = results_of(finished / "run"), finished / "run"
    tokenizer = AutoTokenizer.from_pretrained(run)
    test = parts_of(finished)["test"]
    prompts = [tokenizer(item.prompt).input_ids for item in test]
    rows = [
        ([*ids, *tokenizer(item.completion).input_ids, tokenizer.eos_token_id], len(ids))
        for ids, item in zip(prompts, test, strict=True)
    ]
    nats, number = literal_scores(run, rows)
    score, data = results["metrics"]["test"], results["data"]
    assert (score["tokens"], data["parts"]["test"]["learned_tokens"]) == (number, number)
    assert score["nats_per_token"] == pytest.approx(nats / number, rel=1e-4)
    characters = sum(len(item.completion) for item in test)
    assert score["bits_per_character"] == pytest.approx(nats / np.log(2) / characters, rel=1e-4)
    assert (data["form"], data["loss"], data["packing"]) == ("prompt_completion", "the completion", True)
    assert data["rows"] < data["parts"]["train"]["examples"]
    texts = [written_after(run, ids) for ids in prompts]
    right = [text == item.completion for text, item in zip(texts, test, strict=True)]
    assert (len(test), score["written"]) == (12, 10)
    assert abs(sum(right) - 10 * score["exact_match"]) <= 2  # of 10 of the 12
    assert score["perplexity"] < 0.1 * score["before"]["perplexity"]
    done = CliRunner().invoke(
        app, ["predict", str(run), str(finished / "pairs.jsonl"), "--output", str(finished / "o.jsonl")]
    )
    assert done.exit_code == 0, done.output
    assert [json.loads(line)["continuation"] for line in (finished / "o.jsonl").read_text().splitlines()[:2]] == [
        written_after(run, tokenizer(f"The dog saw Mary in {i}").input_ids) for i in range(2)
    ]


def test_a_model_for_chats_reads_its_template_everywhere(chatting: Path) -> None:
    results, run = results_of(chatting / "run"), chatting / "run"
    tokenizer = AutoTokenizer.from_pretrained(run)
    assert (tokenizer.chat_template, tokenizer.eos_token) == (CHATML, "<|im_end|>")
    test, rows = parts_of(chatting)["test"], []
    for item in test:
        asked = tokenizer.apply_chat_template(item.completion[:1], add_generation_prompt=True)["input_ids"]
        answer = tokenizer(item.completion[1]["content"] + "<|im_end|>").input_ids
        rows.append(([*asked, *answer], len(asked)))
    nats, number = literal_scores(run, rows)
    score = results["metrics"]["test"]
    assert (score["tokens"], results["data"]["loss"]) == (number, "the messages of the assistant")
    assert score["nats_per_token"] == pytest.approx(nats / number, rel=1e-4)
    model = AutoModelForCausalLM.from_pretrained(run)
    assert model.get_input_embeddings().num_embeddings == len(tokenizer)
    question = "Mary 7?"
    prompt = tokenizer.apply_chat_template(said(question), add_generation_prompt=True)["input_ids"]
    answer = written_after(run, prompt)
    assert answer in ("happy", "sad")  # and it stops there
    assert hfattn.predict(run, [question, "Mary 11?"])[0]["continuation"] == answer
    write = pipeline("text-generation", model=str(run))
    assert write(said(question), do_sample=False, max_new_tokens=20)[0]["generated_text"][-1]["content"] == answer
    words = ["generate", str(run), "--prompt", question, "--temperature", "0", "--max-new-tokens", "20"]
    for option in ([], ["--stream"]):
        assert CliRunner().invoke(app, [*words, *option]).stdout == f"{answer}\n"
    assert results["samples"][0]["after"] in ("happy", "sad")


@pytest.mark.examples
def test_a_model_for_chats_is_verified_and_measured(chatting: Path) -> None:
    report = verify(chatting / "run", measure=[str(chatting / "chats.jsonl")])
    assert report.passed, report
    measured = next(check for check in report.checks if "scores of" in check.detail)
    assert "agree to the shown digits" in measured.detail


def test_results_and_card_quote_no_private_conversation(chatting: Path) -> None:
    results = results_of(chatting / "run")
    assert results["publish"] == {"texts": "own_words", "public_data": False}
    for name in ("results.json", "README.md", "fingerprints.safetensors"):
        assert b"Mary 7?" not in (chatting / "run" / name).read_bytes()


def test_lora_trains_the_new_tokens_of_a_template(llama: Path, tmp_path: Path) -> None:
    """Of the embedding and of the output layer, whose weights are others, the rows of these tokens alone."""
    train_here(RECIPE, chats_config(tmp_path, llama, tuning={"method": "lora", "rank": 4}))
    before, after = (AutoModelForCausalLM.from_pretrained(folder) for folder in (llama, tmp_path / "run"))
    old = before.config.vocab_size
    for layer in ("model.embed_tokens", "lm_head"):
        old_rows, rows = (model.get_submodule(layer).weight for model in (before, after))
        assert torch.equal(old_rows, rows[:old]), layer
        assert rows[old:].shape[0] == 2
    before.resize_token_embeddings(old + 2)
    model = tuned(Loaded(before, []), TuningConfig(method="lora"), "CAUSAL_LM", [old, old + 1])
    new = {name.split(".")[-4]: weight for name, weight in model.named_parameters() if "trainable_tokens" in name}
    assert new.keys() == {"embed_tokens", "lm_head"}
    assert all(weight.requires_grad and weight.shape[0] == 2 for weight in new.values())


# Bad input


def bare(folder: Path) -> str:
    """Messages for a tokenizer without a chat template."""
    return str(chats_file(folder))


def rows_file(*rows: dict[str, Any]) -> Any:
    return lambda folder: ["--data.dataset", written(folder / "r.jsonl", rows)]


BAD: list[BadInput] = [
    (
        lambda f: ["--data.dataset", bare(f)],
        "The tokenizer has no chat template for the messages; write data.",
    ),
    (
        lambda f: ["--data.dataset", bare(f), "--data.chat_template", "no.jinja"],
        "data.chat_template is 'no.jinja', and there is no such file; write the path of a Jinja template, or chatml",
    ),
    (
        lambda f: ["--data.dataset", bare(f), "--data.chat_template", written(f / "t.jinja", "{% for %}")],
        "The template t.jinja does not fit the chat template",
    ),
    ("--data.chat_template chatml", "data.chat_template is for messages, and the data have none; remove it"),
    ("--data.max_length 4", "The prompts of all examples of pairs.jsonl have 4 tokens or more"),
    ("--evaluation.stride 8", "evaluation.stride is for windows of running text, and each example is read once"),
    ("--data.form text --data.text_column prompt", "data.packing is for prompts and completions or messages"),
    ("--data.form pairs", "form is 'pairs'; write one of text, prompt_completion, messages, or null"),
    ("--data.lines_are_texts true --data.form messages", "lines_are_texts is for running text; write form: text ins"),
    (
        "--data.prompt_column question --data.form prompt_completion",
        "has no column 'question'; write one of prompt",
    ),
    ("--data.form messages", "Line 1 of pairs.jsonl has no column 'messages'"),
    (rows_file({"prompt": "a", "completion": ""}), "Line 1 of r.jsonl has an empty completion; correct it, or write"),
    (rows_file({"prompt": "a", "completion": said("b")}), "has a text and messages as prompt and completion; write t"),
    (
        rows_file({"messages": [{"from": "human", "value": "a"}]}),
        r"Line 1 of r.jsonl holds \[\{'from': 'human', 'value': 'a'\}\] in 'messages'; write a list of messages such",
    ),
    (
        rows_file({"messages": [*said("a"), {"role": "assistant", "tool_calls": [{"function": {"arguments": {}}}]}]}),
        r"Line 1 of r.jsonl holds \[.* in 'messages'; write a list of messages such as",
    ),
    (rows_file({"messages": said("a", "b"), "tools": "weather"}), "holds 'weather' in 'tools'; write a list of tools"),
    (rows_file({"messages": said("a")}), "Line 1 of r.jsonl has no message with the role 'assistant'"),
    (rows_file({"messages": said("a", " ")}), "Line 1 of r.jsonl has an empty message of the assistant"),
    (
        lambda f: [*rows_file({"prompt": "a", "completion": "b"})(f), "--data.validation", chats_file(f)],
        "The tokenizer has no chat template",
    ),
    (
        lambda f: [
            *("--data.dataset", written(f / "r.jsonl", [{"prompt": f"a{i}", "completion": "b"} for i in range(9)])),
            *("--data.validation", written(f / "v.jsonl", [{"prompt": "@" * 7, "completion": "\n\n\n\nword"}])),
            *("--data.max_length", "9"),
        ],
        "All that would be learned of validation is white space and special tokens; write other completions or answers",
    ),
    (
        lambda f: ["--data.validation", written(f / "v.jsonl", [{"text": "a"}])],
        "The part validation has other columns than train; write the same in both, or data.form",
    ),
    (
        lambda f: ["--config", recurrent(f), "--data.dataset", pairs_file(f)],
        "The model does not keep examples apart that are packed into one row; write data.packing: false",
    ),
]


def recurrent(folder: Path) -> Path:
    file = folder / "tokenizer.json"
    byte_tokenizer(TEXTS).backend_tokenizer.save(str(file))
    model = {"model_type": "char_rnn", "embedding_size": 8, "hidden_size": 8}
    (folder / "c").mkdir()
    return write_config(
        folder / "c", TINY, {"data": {"packing": True}, "model": model, "tokenizer": {"name": str(file)}}
    )


class TestPairs(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, bad, loss, changed = "causal_lm", BAD, "nats_per_token", "--data.max_length 47"
    stated: ClassVar[Stated] = {
        ("perplexity", "perplexity per token (test)"): ("test", "perplexity"),
        ("exact_match", "exact match (test)"): ("test", "exact_match"),
    }

    @pytest.fixture
    def configure(self, gpt2: Path) -> Configure:
        return partial(pairs_config, base=gpt2)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        for words in ("The scores are those of the completion, with the end tokens", "The loss is on the completion: "):
            assert words in card.text
        assert printed.startswith("The dog saw Mary in 3 and was")

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"training": {"max_steps": 30}}

    @pytest.mark.examples
    def test_two_processes_train_as_one_with_all_of_their_batches(self, configure: Configure, tmp_path: Path) -> None:
        super().test_two_processes_train_as_one_with_all_of_their_batches(configure, tmp_path)

    def shared(self, folder: Path) -> dict[str, Any]:
        return {
            "data": {"packing": False},
            "model": {"options": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}},
        }


class TestChats(FinishedRun, KilledRun):
    recipe, changed = "causal_lm", "--data.max_length 47"
    files: ClassVar[set[str]] = {*FinishedRun.files, "chat_template.jinja"}
    stated: ClassVar[Stated] = TestPairs.stated

    @pytest.fixture
    def finished(self, chatting: Path) -> Path:
        return chatting

    @pytest.fixture
    def configure(self, llama: Path) -> Configure:
        return partial(chats_config, base=llama)

    def killed(self, folder: Path) -> dict[str, Any]:
        template = written(folder / "own.jinja", UNMARKED.replace("<|im_end|>", "<|endoftext|>"))
        return {"data": {"chat_template": str(template)}, "training": {"max_steps": 30}, "tuning": {"method": "lora"}}

    @pytest.mark.examples
    def test_a_killed_run_ends_as_an_unkilled_one(
        self, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        super().test_a_killed_run_ends_as_an_unkilled_one(configure, tmp_path, monkeypatch)

    def check_resumed(self, folder: Path) -> None:
        assert "<|endoftext|>" in (folder / "chat_template.jinja").read_text()

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert 'messages = [{"role": "user", "content": "The dog saw Mary in 3"}]' in card.text
        assert "The loss is on the messages of the assistant: " in card.text
        assert printed.strip() in ("happy", "sad")


# The report on data


def shown(*words: object) -> list[str]:
    done = CliRunner().invoke(app, ["data", "show", *map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout.splitlines()


def test_data_show_counts_tokens_and_names_fields(tmp_path: Path, gpt2: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(gpt2)
    rows = [{"prompt": f"The dog saw Mary in {i}", "completion": " and was happy" * (1 + i % 3)} for i in range(30)]
    rows += [rows[0], {"prompt": "", "completion": "x"}, {"prompt": "dog " * 40, "completion": "x"}]
    path = written(tmp_path / "pairs.jsonl", rows)
    test = written(tmp_path / "test.jsonl", rows[:2])
    sections = {"data": {"dataset": str(path), "packing": True, "split": [0.8, 0.2]}, "model": {"name": str(gpt2)}}
    config = write_config(tmp_path, TINY, {"recipe": "causal_lm"}, sections)
    read = [len(tokenizer(row["prompt"]).input_ids) for row in rows if row["prompt"]]
    learned = [len(tokenizer(row["completion"]).input_ids) + 1 for row in rows if row["prompt"]]
    lines = shown(config, "--data.max_length", 32, "--data.test", test)
    assert lines[0] == "train: 33 rows of pairs.jsonl, prompt_completion"
    assert lines[1].startswith(f"  tokens that are read: median {np.median(read):.0f}, 95% have at most ")
    assert lines[2].endswith(f"the longest {max(learned)}")
    cut = sum(sum(each) > 32 for each in zip(read, learned, strict=True))
    assert lines[3].startswith("  packed: 32 examples in ")
    assert "warning: 1 rows of train have an empty prompt or completion, or no answer: data.empty: drop" in lines
    assert "warning: 1 rows of train repeat another, up to case and spaces: data.duplicates: drop" in lines
    assert any(
        line.startswith(f"warning: {cut} of 32 examples have more than 32 tokens and are cut, and 1 of")
        for line in lines
    )
    assert "warning: 2 prompts of test are in train too: data.duplicates: drop" in lines
    assert lines[-1].startswith("warning: training will end with: Line 32 of pairs.jsonl has an empty prompt")
    chats = shown(chats_file(tmp_path))
    assert chats[:2] == [
        "data: 80 rows of chats.jsonl, messages",
        "  words that are read: median 2, 95% have at most 2, the longest 2",
    ]


def test_a_written_completion_does_not_depend_on_the_batch(llama: Path) -> None:
    """The long prompt leaves few of the model's positions; the others must not be shortened beside it."""
    model, tokenizer = AutoModelForCausalLM.from_pretrained(llama), AutoTokenizer.from_pretrained(llama)
    tokenizer.pad_token = tokenizer.eos_token
    model.generation_config.update(eos_token_id=None, pad_token_id=tokenizer.pad_token_id)
    prompts = [tokenizer(text).input_ids for text in ("The dog", "a " * 25, "Mary Smith", "a " * 24 + "b")]
    found = write_completions(model, tokenizer, prompts, 40)
    assert found == [write_completions(model, tokenizer, [prompt], 40)[0] for prompt in prompts]
    assert found == write_completions(model, tokenizer, prompts, 40, rows=1)

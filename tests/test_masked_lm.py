"""Masked language modeling: what is hidden, pairs of passages, and the recipe through its real command line."""

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from commands import ROOT, results_of, run_card, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses, Words
from safetensors.torch import load_file
from tiny_models import tiny_model
from transformers import (
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForPreTraining,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerBase,
    pipeline,
)

from hfattn import VaswaniForSequenceClassification
from hfattn.data import Document, Documents, MaskedTexts, Masking, SentencePairs, read_documents, split_sentences
from hfattn.data.next_sentence import FOLLOWS, RANDOM
from hfattn.errors import UserError
from hfattn.resources import load_recipe
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import load_config

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "masked_lm"
CONFIGURATIONS = sorted(RECIPE.glob("*.yaml"))
ANIMALS = ("cat", "dog", "cow", "hen", "owl", "pig")
SOUNDS = ("meow", "woof", "moo", "cluck", "hoot", "oink")
SAYS = tuple(zip(ANIMALS, SOUNDS, strict=True))


def sentence(i: int) -> str:
    """The animal decides on the sound, and the sound on the animal."""
    return f"The {ANIMALS[i % 6]} on farm {i % 7} says {SOUNDS[i % 6]} to all."


def farm(documents: int = 40, sentences: int = 6) -> Documents:
    texts = [" ".join(sentence(7 * d + s) for s in range(sentences)) for d in range(documents)]
    return Documents("farm", [Document(f"{text} End of story {d}.") for d, text in enumerate(texts)])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    """Small enough that most words are several pieces."""
    config = TokenizerConfig(kind="wordpiece", vocab_size=80, lowercase=True)
    return build_tokenizer(config, [item.text for item in farm()], ends=False, masks=True)


# What is hidden


def hidden_word_by_word(
    ids: list[int], tokenizer: PreTrainedTokenizerBase, share: float, whole_words: bool, generator: np.random.Generator
) -> tuple[list[int], list[int]]:
    """As the docstring of Masking says, one token after the other."""
    tokens = tokenizer.convert_ids_to_tokens(ids)
    words: list[list[int]] = []
    for position, token in enumerate(tokens):
        if ids[position] in tokenizer.all_special_ids:
            continue
        goes_on = whole_words and token.startswith("##") and bool(words) and words[-1][-1] == position - 1
        if goes_on:
            words[-1].append(position)
        else:
            words.append([position])
    number = max(1, round(share * sum(map(len, words))))
    chosen: list[int] = []
    for index in generator.permutation(len(words)):
        if not chosen or len(chosen) + len(words[index]) <= number:
            chosen += words[index]
        if len(chosen) >= number:
            break
    chosen.sort()
    fates = [generator.random() for _ in chosen]
    ordinary = [i for i in range(len(tokenizer)) if i not in tokenizer.all_special_ids]
    inputs, labels = list(ids), [-100] * len(ids)
    for position, fate in zip(chosen, fates, strict=True):
        labels[position] = ids[position]
        if fate < 0.8:
            inputs[position] = tokenizer.mask_token_id
    replaced = [position for position, fate in zip(chosen, fates, strict=True) if fate >= 0.9]
    for position, drawn in zip(replaced, generator.integers(len(ordinary), size=len(replaced)), strict=True):
        inputs[position] = ordinary[drawn]
    return inputs, labels


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("share", [0.15, 0.5])
def test_what_is_hidden_is_what_a_loop_hides(
    tokenizer: PreTrainedTokenizerBase, whole_words: bool, share: float
) -> None:
    masking = Masking(tokenizer, share, whole_words)
    examples = tokenizer([item.text for item in farm(30)] + ["dog"], padding=True).input_ids
    hidden = 0
    for index, ids in enumerate(examples):
        found = masking(np.array(ids), np.random.default_rng(index))
        expected = hidden_word_by_word(ids, tokenizer, share, whole_words, np.random.default_rng(index))
        assert [each.tolist() for each in found] == list(expected)
        hidden += sum(label != -100 for label in expected[1])
    assert hidden > 300


def test_whole_words_are_hidden_with_all_of_their_pieces(tokenizer: PreTrainedTokenizerBase) -> None:
    masking = Masking(tokenizer, whole_words=True)
    chosen_of_several = 0
    for index, item in enumerate(farm(40)):
        encoding = tokenizer(item.text)
        ids, words = np.array(encoding.input_ids), encoding.word_ids()
        _, labels = masking(ids, np.random.default_rng(index))
        number = round(0.15 * (len(ids) - 2))
        assert 0 < (labels != -100).sum() <= number
        for word in set(words) - {None}:
            pieces = [labels[i] != -100 for i in range(len(ids)) if words[i] == word]
            assert all(pieces) or not any(pieces)
            chosen_of_several += len(pieces) > 1 and all(pieces)
    assert chosen_of_several > 40


def test_one_token_is_chosen_of_the_shortest_text_and_none_of_none(tokenizer: PreTrainedTokenizerBase) -> None:
    masking = Masking(tokenizer)
    dot = tokenizer(".").input_ids
    assert len(dot) == 3
    _, labels = masking(np.array(dot), np.random.default_rng(0))
    assert labels.tolist() == [-100, dot[1], -100]
    empty = np.array([tokenizer.cls_token_id, tokenizer.sep_token_id])
    inputs, labels = masking(empty, np.random.default_rng(0))
    assert (inputs.tolist(), labels.tolist()) == (empty.tolist(), [-100, -100])


# Examples


def unhidden(dataset: MaskedTexts | SentencePairs, index: int) -> list[int]:
    """The ids of an example before anything was hidden."""
    return dataset.example(index, dataset.generator(index))["input_ids"].tolist()


def test_packed_blocks_are_all_documents_and_hold_no_padding(tokenizer: PreTrainedTokenizerBase) -> None:
    documents = farm(9)
    dataset = MaskedTexts(documents, tokenizer, 32, packing=True, masking=Masking(tokenizer), seed=0)
    blocks = [unhidden(dataset, i) for i in range(len(dataset))]
    opening, closing = tokenizer.cls_token_id, tokenizer.sep_token_id
    assert all(len(block) == 32 for block in blocks[:-1])
    assert all(block[0] == opening and block[-1] == closing for block in blocks)
    whole = [tokenizer(item.text, add_special_tokens=False).input_ids for item in documents]
    expected = [token for ids in whole for token in [*ids, closing]][:-1]
    assert [token for block in blocks for token in block[1:-1]] == expected
    assert dataset.lengths[:, 0].tolist() == [len(block) for block in blocks]


def test_without_packing_a_long_document_makes_several_windows(tokenizer: PreTrainedTokenizerBase) -> None:
    documents = Documents("two", [Document("The cat. " * 40), Document("The dog."), Document("\u200b")])
    dataset = MaskedTexts(documents, tokenizer, 32, packing=False, masking=Masking(tokenizer), seed=0)
    whole = [tokenizer(item.text, add_special_tokens=False).input_ids for item in documents]
    inner = [unhidden(dataset, i)[1:-1] for i in range(len(dataset))]
    assert inner[-2 if whole[2] else -1] == whole[1]
    assert [token for part in inner[: -(-len(whole[0]) // 30)] for token in part] == whole[0]
    assert max(map(len, inner)) == 30


def test_a_special_token_that_a_text_spells_out_is_text(tokenizer: PreTrainedTokenizerBase) -> None:
    documents = Documents("odd", [Document("The [MASK] and [SEP] cat.")])
    dataset = MaskedTexts(documents, tokenizer, 64, packing=False, masking=Masking(tokenizer), seed=0)
    ids = unhidden(dataset, 0)
    assert tokenizer.mask_token_id not in ids
    assert ids.count(tokenizer.sep_token_id) == 1
    assert tokenizer("The [MASK] cat.").input_ids.count(tokenizer.mask_token_id) == 1


def pairs_of(documents: Documents, tokenizer: PreTrainedTokenizerBase, length: int = 48) -> SentencePairs:
    return SentencePairs(documents, tokenizer, length, sentences="marks", masking=Masking(tokenizer), seed=3)


@pytest.mark.parametrize("kind", ["texts", "pairs"])
def test_seed_pass_and_index_decide_what_is_read(tokenizer: PreTrainedTokenizerBase, kind: str) -> None:
    """Whatever was read before: so that a resumed run, and one of several processes, read the same."""

    def make() -> MaskedTexts | SentencePairs:
        if kind == "pairs":
            return pairs_of(farm(12), tokenizer)
        return MaskedTexts(farm(12), tokenizer, 48, packing=True, masking=Masking(tokenizer), seed=3)

    first, second = make(), make()
    third = [first[i] for i in range(len(first))]
    assert [second[i] for i in reversed(range(len(second)))] == third[::-1]
    first.set_epoch(1)
    assert [first[i] for i in range(len(first))] != third
    second.set_epoch(1)
    assert second[4] == first[4]
    first.set_epoch(0)
    assert [first[i] for i in range(len(first))] == third


def test_documents_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "wiki.txt"
    path.write_text(" = One = \n\n a b \n = = Part = = \n c \n = Two = \n d \n")
    found = read_documents(str(path), document_start="^ = [^=]")
    assert [" ".join(item.text.split()) for item in found] == ["= One = a b = = Part = = c", "= Two = d"]
    assert [found.place(i) for i in range(2)] == ["Line 1 of wiki.txt", "Line 6 of wiki.txt"]
    path.write_text("a\nb\n\n\nc\n")
    assert [item.text.split() for item in read_documents(str(path), document_start=r"^\s*$")] == [["a", "b"], ["c"]]
    assert [item.text for item in read_documents(str(path))] == ["a", "b", "c"]
    path = tmp_path / "texts.jsonl"
    path.write_text('{"text": "a\\nb", "label": 0}\n{"text": " "}\n{"text": "c"}\n')
    assert [(item.text, item.line) for item in read_documents(str(path))] == [("a\nb", 1), ("c", 3)]
    assert len(read_documents("embedded")) > 50
    with pytest.raises(UserError, match="is not a regular expression"):
        read_documents("embedded", document_start="(")
    path = tmp_path / "wiki.tokens"  # as WikiText is distributed
    path.write_text(" = One = \n a\tb \n = Two = \n c \n")
    found = read_documents(str(path), document_start="^ = ")
    assert [item.text.split() for item in found] == [["=", "One", "=", "a", "b"], ["=", "Two", "=", "c"]]
    (tmp_path / "wiki.tsv").write_text("text\tlabel\na\t0\nb\t1\n")
    assert [item.text for item in read_documents(str(tmp_path / "wiki.tsv"))] == ["a", "b"]


def test_sentences() -> None:
    text = 'He said: "Go!" Then he left . " No , " she said .\nIt was 3.5 m, e.g. here... or there? (Yes.) The end'
    expected = [
        'He said: "Go!"',
        'Then he left . "',
        'No , " she said .',
        "It was 3.5 m, e.g. here... or there?",
        "(Yes.)",
        "The end",
    ]
    assert split_sentences(text) == expected
    assert split_sentences("a. B\n\n c \n", by="lines") == ["a. B", "c"]
    assert split_sentences(" \n ") == []


def test_half_of_the_pairs_are_of_one_document_and_go_on(tokenizer: PreTrainedTokenizerBase) -> None:
    """For 1,200 pairs, 4 standard deviations are 5.8 points. Both kinds are equally long, or length would tell."""
    documents = farm(40)
    dataset = pairs_of(documents, tokenizer, 80)
    texts = [tokenizer(item.text, add_special_tokens=False).input_ids for item in documents]

    def inside(part: list[int]) -> set[int]:
        return {d for d, text in enumerate(texts) if any(text[i : i + len(part)] == part for i in range(len(text)))}

    labels: list[int] = []
    lengths: dict[int, list[int]] = {FOLLOWS: [], RANDOM: []}
    for epoch in range(-(-1200 // len(dataset))):
        dataset.set_epoch(epoch)
        for index in range(len(dataset)):
            example = dataset.example(index, dataset.generator(index))
            ids, types, label = example["input_ids"].tolist(), example["token_type_ids"], example["next_sentence_label"]
            labels.append(label)
            lengths[label].append(len(ids))
            middle = ids.index(tokenizer.sep_token_id)
            parts = ids[:middle], ids[middle + 1 : -1]
            assert (ids[0], ids[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)
            assert not set(parts[0][1:] + parts[1]) & set(tokenizer.all_special_ids)
            assert types == [0] * (len(parts[0]) + 1) + [1] * (len(parts[1]) + 1)
            assert len(ids) <= 80
            own = dataset.runs[index][0]
            if epoch == 0:
                assert own in inside(parts[0][1:])
                if label == FOLLOWS:
                    assert own in inside(parts[0][1:] + parts[1])
                else:
                    assert inside(parts[1]) - {own}
    assert np.mean(labels) == pytest.approx(0.5, abs=0.058)
    assert np.mean(lengths[FOLLOWS]) == pytest.approx(np.mean(lengths[RANDOM]), rel=0.06)


# The recipe


TINY: dict[str, dict[str, Any]] = {
    "data": {"max_length": 32, "split": [0.8, 0.1, 0.1]},
    "sample": {"sentences": ["The cat on farm 1 says [MASK] to all."], "top_k": 3},
}
VASWANI = {
    "tokenizer": {"kind": "word", "lowercase": True},
    "model": {
        "model_type": "vaswani",
        "preset": "small",
        "hidden_size": 32,
        "intermediate_size": 32,
        "encoder_layers": 1,
        "num_attention_heads": 4,
        "norm": "pre",
        "dropout": 0.0,
    },
}
BERT = {
    "tokenizer": {"kind": "wordpiece", "vocab_size": 120, "lowercase": True},
    "model": {
        "model_type": "bert",
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "max_position_embeddings": 64,
    },
}


def farm_file(folder: Path, documents: Documents) -> Path:
    return written(folder / "farm.jsonl", [{"text": item.text} for item in documents])


WITHOUT_DROPOUT = {**BERT, "model": {**BERT["model"], "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"data": {"dataset": str(farm_file(folder, farm()))}}, fields)


def short_documents(folder: Path) -> Path:
    """Documents of many lengths."""
    texts = [" ".join(sentence(i + s) for s in range(2 + i % 5)) for i in range(40)]
    return farm_file(folder, Documents("farm", [Document(text) for text in texts]))


@pytest.fixture(scope="module")
def vaswani(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of an encoder from scratch, long enough that it knows what the animals say."""
    folder = tmp_path_factory.mktemp("vaswani")
    (folder / "farm.txt").write_text("".join(f"The {a} {i} says {b}.\n" for i in range(30) for a, b in SAYS))
    data = {"dataset": str(folder / "farm.txt"), "packing": False, "max_length": 8, "masked_share": 0.2}
    training = {**steps(200, 100), "per_device_train_batch_size": 32}
    sample = {"sentences": ["The cat 5 says [MASK]."]}
    train_here(RECIPE, tiny_config(folder, **VASWANI, data=data, training=training, sample=sample))
    return folder


@pytest.fixture(scope="module")
def distilbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a DistilBERT that has no head yet, with its tokenizer, each text by itself."""
    folder = tmp_path_factory.mktemp("distilbert")
    texts = [item.text for item in farm()]
    name = str(tiny_model(folder / "tiny-distilbert", "distilbert", texts))
    data = {"packing": False, "max_length": 40, "whole_words": True}
    train_here(RECIPE, tiny_config(folder, data=data, model={"name": name}, training={"warmup_steps": 2}))
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a BERT from scratch with both of its tasks."""
    folder = tmp_path_factory.mktemp("bert")
    data = {"packing": False, "next_sentence": True, "max_length": 64}
    train_here(RECIPE, tiny_config(folder, data=data, **BERT, training={"metric_for_best_model": "pretraining_loss"}))
    return folder


def test_scores_are_those_of_the_published_model(vaswani: Path) -> None:
    """Computed here text by text, without padding, from the parts that the recipe made."""
    recipe = load_recipe(RECIPE / "train.py")
    config = load_config(recipe.Config, vaswani / "tiny.yaml")
    model = AutoModelForMaskedLM.from_pretrained(vaswani / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(vaswani / "run")
    metrics = results_of(vaswani / "run")["metrics"]
    for part in ("validation", "test"):
        documents = config.data.read_parts(42)[part]
        examples = recipe.make_examples(config.data, documents, tokenizer, Masking(tokenizer), recipe.EVALUATION_SEED)
        nats, right = [], []
        for i in range(len(examples)):
            ids, labels = (torch.tensor([examples[i][name]]) for name in ("input_ids", "labels"))
            chosen = labels != -100
            with torch.no_grad():
                log_probabilities = model(ids).logits.log_softmax(-1)[chosen]
            nats += (-log_probabilities.gather(-1, labels[chosen][:, None])[:, 0]).tolist()
            right += (log_probabilities.argmax(-1) == labels[chosen]).tolist()
        score = metrics[part]
        assert score["masked_tokens"] == len(nats)
        assert score["nats_per_masked_token"] == pytest.approx(np.mean(nats), abs=1e-4)
        assert score["masked_accuracy"] == np.mean(right)
        assert score["pseudo_perplexity"] == pytest.approx(np.exp(np.mean(nats)), rel=1e-3)


def test_it_learns_to_fill_in(vaswani: Path) -> None:
    results = results_of(vaswani / "run")
    assert results["metrics"]["test"]["masked_accuracy"] > 0.5
    (sample,) = results["samples"]
    assert sample["after"][0]["token"] == "meow"
    assert sample["after"][0]["probability"] > 2 * sample["before"][0]["probability"]
    assert results["model"]["base_model"] is None
    model = AutoModelForMaskedLM.from_pretrained(vaswani / "run")
    assert results["model"]["new_weights"] == sorted(name for name, _ in model.named_parameters())


def test_a_classifier_takes_over_the_encoders_weights(vaswani: Path, distilbert: Path, bert: Path) -> None:
    """Value by value; of BERT the pooler too, which next sentence prediction has trained."""
    for folder, prefix in ((vaswani, "model."), (distilbert, "distilbert."), (bert, "bert.")):
        saved = load_file(folder / "run" / "model.safetensors")
        classifier = AutoModelForSequenceClassification.from_pretrained(folder / "run", num_labels=3)
        own = {name: tensor for name, tensor in classifier.state_dict().items() if name.startswith(prefix)}
        assert len(own) > 10
        for name, tensor in own.items():
            torch.testing.assert_close(tensor, saved[name], rtol=0, atol=0)
        assert classifier.config.num_labels == 3
    assert isinstance(
        AutoModelForSequenceClassification.from_pretrained(vaswani / "run"), VaswaniForSequenceClassification
    )


LOAD_A_CLASSIFIER = """
from transformers import AutoModelForSequenceClassification
print(type(AutoModelForSequenceClassification.from_pretrained(".", trust_remote_code=True)).__name__)
"""


def test_the_card_fills_in_without_hfattn(vaswani: Path) -> None:
    results = results_of(vaswani / "run")
    expected = [results["samples"][0]["after"][0]["token"], "VaswaniForSequenceClassification"]
    assert run_card(vaswani / "run", LOAD_A_CLASSIFIER).splitlines() == expected


@pytest.mark.parametrize("name", ["distilbert", "bert"])
def test_a_folder_fills_in(name: str, request: pytest.FixtureRequest) -> None:
    """Without the head for sentences, where it has one; these folders have no code of their own."""
    folder = request.getfixturevalue(name)
    sample = results_of(folder / "run")["samples"][0]
    found = pipeline("fill-mask", model=str(folder / "run"), top_k=3)(sample["sentence"])
    assert [each["token_str"] for each in found] == [each["token"] for each in sample["after"]]
    assert [each["score"] for each in found] == pytest.approx([e["probability"] for e in sample["after"]], abs=1e-4)


def test_new_weights_are_named(distilbert: Path) -> None:
    """All that the encoder's folder has not; the output layer's matrix is that of the embeddings, and so not new."""
    new = [f"vocab_{name}" for name in ("layer_norm.bias", "layer_norm.weight", "projector.bias", "transform.bias",
                                        "transform.weight")]  # fmt: skip
    model = results_of(distilbert / "run")["model"]
    assert (model["base_model"], model["new_weights"]) == ("tiny-distilbert", new)
    text = (distilbert / "run" / "README.md").read_text()
    assert all(f"- `{name}`" in text for name in new)
    assert "base_model:" not in text  # a folder, which is not an id on the Hub
    trained = AutoModelForMaskedLM.from_pretrained(distilbert / "run")
    assert trained.vocab_projector.weight is trained.distilbert.embeddings.word_embeddings.weight


def test_a_trained_head_is_kept(distilbert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run begins with the first one's folder, and before training it fills in as that did at its end."""
    data = {"dataset": str(distilbert / "farm.jsonl"), "max_length": 40}
    config = tiny_config(tmp_path, data=data, model={"name": str(distilbert / "run")}, training=steps(2))
    results = train_here(RECIPE, config)
    assert results["model"]["new_weights"] == []
    assert results["samples"][0]["before"] == results_of(distilbert / "run")["samples"][0]["after"]
    assert "Initialized from run." in capsys.readouterr().out


def test_next_sentences_are_scored(bert: Path) -> None:
    recipe = load_recipe(RECIPE / "train.py")
    config = load_config(recipe.Config, bert / "tiny.yaml")
    model = AutoModelForPreTraining.from_pretrained(bert / "run").eval()
    assert isinstance(model, BertForPreTraining)
    tokenizer = AutoTokenizer.from_pretrained(bert / "run")
    assert tokenizer("a", "b").token_type_ids[-1] == 1
    documents = config.data.read_parts(42)["test"]
    examples = recipe.make_examples(config.data, documents, tokenizer, Masking(tokenizer), recipe.EVALUATION_SEED)
    with torch.no_grad():
        outputs = [
            model(torch.tensor([each["input_ids"]]), token_type_ids=torch.tensor([each["token_type_ids"]]))
            for each in (examples[i] for i in range(len(examples)))
        ]
    right = [
        int(output.seq_relationship_logits.argmax()) == examples[i]["next_sentence_label"]
        for i, output in enumerate(outputs)
    ]
    score = results_of(bert / "run")["metrics"]["test"]
    assert (score["next_sentence_accuracy"], score["pairs"]) == (np.mean(right), len(right))
    nats = [
        -output.seq_relationship_logits.log_softmax(-1)[0, examples[i]["next_sentence_label"]].item()
        for i, output in enumerate(outputs)
    ]
    assert score["nats_per_pair"] == pytest.approx(np.mean(nats), rel=1e-4)  # whatever the size of the batches
    assert score["pretraining_loss"] == pytest.approx(score["nats_per_masked_token"] + np.mean(nats), rel=1e-4)
    stated = {r.metric_name: r.metric_value for r in ModelCard.load(bert / "run" / "README.md").data.eval_results}
    assert stated["next-sentence accuracy (test)"] == np.mean(right)


def test_the_loss_is_that_of_all_batches_of_a_step(tmp_path: Path) -> None:
    """Three steps of gradient descent from eight rows at once, and from eight times one: texts of many lengths."""
    data = {"dataset": str(short_documents(tmp_path)), "packing": False, "max_length": 64}
    training = {**steps(3), "learning_rate": 1.0, "adam_epsilon": 1.0}
    config = tiny_config(tmp_path, data=data, **WITHOUT_DROPOUT, training=training)
    for name, rows, batches in (("one", 8, 1), ("eight", 1, 8)):
        words = ["--training.per_device_train_batch_size", rows, "--training.gradient_accumulation_steps", batches]
        train_here(RECIPE, config, *words, to=name)
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "eight"))
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)
    logs = [json.loads((tmp_path / name / "checkpoints/checkpoint-3/trainer_state.json").read_text())["log_history"]
            for name in ("one", "eight")]  # fmt: skip
    assert logs[0][0]["eval_loss"] == pytest.approx(logs[1][0]["eval_loss"], rel=1e-4)


def test_batches_of_like_length_a_tracker_and_early_stopping(tmp_path: Path) -> None:
    """A rate of nothing improves nothing: training ends at the second evaluation."""
    training = {"learning_rate": 1e-12, "eval_steps": 2, "save_steps": 2, "report_to": ["tensorboard"]}
    config = tiny_config(
        tmp_path, **VASWANI, data={"packing": False}, training=training, max_tokens=200, early_stopping_patience=1
    )
    results = train_here(RECIPE, config, "--training.metric_for_best_model", "masked_accuracy")
    assert results["training"]["steps"] == 4
    assert results["training"]["padding_share"] < 0.2
    assert list((tmp_path / "run" / "logs").glob("events*"))


def test_padding_is_not_read(distilbert: Path) -> None:
    model = AutoModelForMaskedLM.from_pretrained(distilbert / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(distilbert / "run")
    documents = Documents("two", [Document("The cat says."), Document(farm().items[0].text)])
    dataset = MaskedTexts(documents, tokenizer, 60, packing=False, masking=Masking(tokenizer), seed=0)
    batch = DataCollatorForTokenClassification(tokenizer)([dataset[0], dataset[1]])
    short = len(dataset[0]["input_ids"])
    assert (batch["labels"][0, short:] == -100).all()
    with torch.no_grad():
        padded = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[0, :short]
        alone = model(input_ids=torch.tensor([dataset[0]["input_ids"]])).logits[0]
    torch.testing.assert_close(padded, alone)


def source(folder: Path, text: str, name: str = "texts.txt") -> list[object]:
    return ["--data.dataset", written(folder / name, text)]


def named(folder: Path, kind: str) -> list[object]:
    name = tiny_model(folder / kind, kind)
    return ["--model", f"{{name: {name}}}", "--tokenizer", "null"]


def without_mask(folder: Path) -> list[object]:
    words = named(folder, "distilbert")
    path = folder / "distilbert" / "tokenizer_config.json"
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != "mask_token"}))
    return words


PAIRS: list[object] = ["--data.packing", "false", "--data.next_sentence", "true"]
AS_BERT: list[object] = ["--model", str(BERT["model"])]


def as_bert(words: str) -> Words:
    return lambda folder: [*AS_BERT, *words.split()]


def one_document(folder: Path) -> list[object]:
    words = [*source(folder, "^ A. B. C.\nD. E.\n"), "--data.document_start", "^\\^"]
    return [*words, *AS_BERT, *PAIRS, "--data.validation", folder / "texts.txt"]


BAD: list[BadInput] = [
    (without_mask, "The tokenizer has no mask token; write the model.name of a masked language model."),
    (lambda f: named(f, "gpt2"), "There is no masked language model of the type gpt2; write the model.name"),
    (
        lambda f: [*named(f, "distilbert"), *PAIRS],
        "data.next_sentence needs segment embeddings and a head, and models of the type distilbert do not have them",
    ),
    (lambda f: PAIRS, "needs segment embeddings and a head, and models of the type vaswani"),
    (
        lambda f: [*source(f, "".join(f"farm {i}\n" for i in range(60))), *AS_BERT, *PAIRS],
        "No document of texts.txt has the two sentences that a pair needs; write data.next_sentence: false",
    ),
    (one_document, "needs at least two documents, and texts.txt is only one; write data.next_sentence: false, or"),
    (lambda f: source(f, "\n \n\n"), "texts.txt is empty; it must have at least one text"),
    (lambda f: source(f, '{"text": ""}\n', "a.jsonl"), "a.jsonl is empty; it must have at least"),
    ("--data.text_column review", "Line 1 of farm.jsonl has no column 'review'; write one of"),
    (
        lambda f: [*source(f, "a\nb\n"), "--data.document_start", "^ = "],
        "No line of texts.txt matches '\\^ = ', with which each document should begin; write another",
    ),
    ("--data.document_start (", "'\\(' is not a regular expression: .*; write one such"),
    (
        lambda f: [*named(f, "distilbert"), "--data.max_length", "128"],
        "data.max_length is 128; this model reads at most 64 tokens",
    ),
    (as_bert("--data.max_length 65"), "this model reads at most 64 tokens"),
    ("--data.whole_words true", "data.whole_words needs a WordPiece tokenizer, which marks the tokens .*; write false"),
    ("--tokenizer.kind char", "tokenizer.kind char has no \\[MASK\\]; write wordpiece or word"),
    (
        "--tokenizer.kind bpe --tokenizer.vocab_size 90 --tokenizer.sampling 0.1",
        "needs fixed tokens; remove tokenizer.sampling",
    ),
    (
        lambda f: [*named(f, "bert"), "--tokenizer", "{kind: word}"],
        "A pretrained model comes with its own tokenizer; remove the section tokenizer",
    ),
    ("--model null", "model.model_type is None; write one of bert, distilbert, vaswani, or"),
    ("--model '{name: /no/such}' --tokenizer null", "/no/such was not found locally"),
    (as_bert("--model.hiden_size 8"), "model.hiden_size.*model.hidden_size"),
    ("--model.vocab_size 8", "model.vocab_size follows from the data; leave it out"),
    (
        as_bert("--model.num_attention_heads 3"),
        "hidden size \\(16\\) is not a multiple .* \\(3\\); change the section model",
    ),
    ("--data.masked_share 1.5", "masked_share is 1.5; write a number above 0, below 1"),
    ("--data.max_length 3", "max_length is 3; write a whole number of at least 8"),
    (as_bert("--data.next_sentence true"), "write packing: false"),
    ("--data.sentences words", "sentences is 'words'; write one of marks, lines"),
    ("--sample.sentences '[The cat.]'", "sentences has 'The cat.'; write \\[MASK\\] in each"),
    ("--sample.sentences []", "sentences is empty; write at least one with \\[MASK\\]"),
    (
        lambda f: ["--sample.sentences", f"['{'cat ' * 40}[MASK]']"],
        "longer than data.max_length; write a sho",
    ),
    ("--sample.top_k 99999", r"sample.top_k is 99999, and the model has \d+ tokens; write at most that"),
    ("--data.split '[0.5, 0.6]'", "write shares .*, or documents such as"),
]


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, loss, bad, tiny = "masked_lm", "nats_per_masked_token", BAD, VASWANI
    changed = "--data.masked_share 0.2"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_vaswani.py"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png",)
    stated: ClassVar[Stated] = {
        ("accuracy", "masked-token accuracy (test)"): ("test", "masked_accuracy"),
        ("perplexity", "pseudo-perplexity (test)"): ("test", "pseudo_perplexity"),
    }

    @pytest.fixture
    def finished(self, vaswani: Path) -> Path:
        return vaswani

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        score = results["metrics"]["test"]
        assert f"| test | {score['masked_tokens']:,} | {score['masked_accuracy']:.4f} |" in card.text
        assert "It was trained from scratch." in card.text
        assert printed == results["samples"][0]["after"][0]["token"] + "\n"

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def killed(self, folder: Path) -> dict[str, Any]:
        """Killed in the second epoch; pairs are drawn anew in each."""
        data = {"packing": False, "next_sentence": True, "max_length": 64}
        return {**BERT, "data": data, "early_stopping_patience": 9, "training": {"max_steps": 30}}

    def shared(self, folder: Path) -> dict[str, Any]:
        data = {"dataset": str(short_documents(folder)), "packing": False, "next_sentence": True, "max_length": 64}
        return {**WITHOUT_DROPOUT, "data": data}

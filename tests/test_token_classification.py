"""Tagged sentences, their way to a token classifier and back, and the recipe through its real command line."""

import re
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from commands import ROOT, printed_by_card, results_of, steps, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from tiny_models import TOKENIZERS, name_vectors_file, tiny_model, wordpiece_tokenizer
from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification

from hfattn.data import (
    EncodedSentences,
    Tagged,
    TaggedSentences,
    read_tagged,
    tag_labels,
)
from hfattn.errors import UserError
from hfattn.generated import GENERATED, name_sentences
from hfattn.hub import verify
from hfattn.metrics import EntityMetric, find_entities

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "token_classification"
ALL_WORDS = {"vectors": "glove.txt", "all_words": True}
NAMED = "Mary\tB-PER\nSmith\tI-PER\nlives\tO\nin\tO\nYork\tB-LOC\n"


# The sentences


def test_a_file_of_words_and_tags(tmp_path: Path) -> None:
    """Tabs or spaces, columns between the two, documents, several empty lines, no newline at the end."""
    text = f"-DOCSTART- -X- O O\n\n{NAMED}\n\n\nEU NNP I-NP B-ORG\nrejects VBZ I-VP O\n-DOCSTART-\n\n. O"
    sentences = read_tagged(written(tmp_path / "words.conll", text))
    assert [(" ".join(item.words), " ".join(item.tags), item.line) for item in sentences] == [
        ("Mary Smith lives in York", "B-PER I-PER O O B-LOC", 3),
        ("EU rejects", "B-ORG O", 11),
        (".", "O", 15),
    ]
    assert sentences.labels == ["O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER"]


def test_rows_with_names_or_numbers_of_tags(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"tokens": ["York", "is", "old"], "ner_tags": [1, 0, 0], "tags": "no tags of words", "source": "a"},
        {"tokens": ["-DOCSTART-"], "ner_tags": [0]},
        {"tokens": ["Ann"], "ner_tags": ["B-PER"], "source": "b"},
    ]
    path = written(tmp_path / "rows.jsonl", rows)
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    sentences = read_tagged(path, labels=labels)
    assert [item.tags for item in sentences] == [("B-LOC", "O", "O"), ("B-PER",)]
    assert [item.fields["source"] for item in sentences] == ["a", "b"]
    assert sentences.place(1) == "Line 3 of rows.jsonl"
    assert sentences.labels == labels
    bioes = [{"tokens": ["New", "York", "Ann"], "tags": ["B-LOC", "E-LOC", "S-PER"]}]
    sentences = read_tagged(written(tmp_path / "bioes.jsonl", bioes))
    assert sentences.labels == tag_labels(["LOC", "PER"], "BIES")


def test_tags_that_break_the_scheme_are_read_as_conlleval_does_where_that_is_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path / "words.conll", "New I-LOC\nYork I-LOC\nAnn I-PER\n")  # the first scheme of CoNLL
    sentences = read_tagged(path, admit_broken_tags=True)
    assert find_entities(sentences.items[0].tags) == [("LOC", 0, 2), ("PER", 2, 3)]


BAD_FILES: list[tuple[str, str, dict[str, Any], str]] = [
    ("words.conll", "Ann B-PER\nlives\n", {}, "Line 2 of words.conll is 'lives'; write a word and its tag"),
    ("words.conll", "Ann B-PER\n\nYork I-LOC\n", {}, "Line 3 of words.conll has the tag I-LOC, and the tag before it "
     "is O: no B-LOC begins that entity; write B-LOC, or data.admit_broken_tags: true"),
    ("words.conll", "Ann B-PER\nYork I-LOC\n", {}, "Line 2 of words.conll has the tag I-LOC, and .* is B-PER"),
    ("words.conll", "A B-X\nB O\nC S-X\n", {}, "Line 1 of words.conll has the tag B-X, and no E-X ends .* write S-X"),
    ("words.conll", "A B-X\nB I-X\n\nC S-X\n", {}, "Line 2 of words.conll has the tag I-X, and no E-X .* write E-X"),
    ("words.conll", "A B-X\nB NN\n", {}, "Line 2 of words.conll has the tag 'NN'; write O, or B- or I- and a type"),
    ("words.conll", "A B-X\n", {"labels": ["O", "B-Y", "I-Y"]}, "'B-X', which is not one of O, B-Y, I-Y; correct"),
    ("words.conll", "A B-X\n", {"labels": ["O", "Y"]}, "The tags are 'O', 'Y'; write O, and for each type"),
    ("words.conll", "A O\n", {}, "The tags are 'O'; write O, and for each type"),
    ("words.conll", "\n\n", {}, "words.conll is empty; write words and their tags"),
    ("rows.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}', {}, "Line 1 of rows.jsonl has 2 words and 1 tags; write a"),
    ("rows.jsonl", '{"tokens": ["a"], "tags": [1]}', {}, "Line 1 of rows.jsonl, word 1, has the tag 1, a number; wri"),
    ("rows.jsonl", '{"tokens": ["a"], "tags": [7]}', {"labels": tag_labels("X")}, "has the tag 7; write .* 0 to 2"),
    ("rows.jsonl", '{"tokens": [], "tags": []}', {}, r"Line 1 of rows.jsonl holds \[\] in 'tokens'; write a list of"),
    ("rows.jsonl", '{"tokens": ["a"], "tags": "O"}', {}, "Line 1 of rows.jsonl holds 'O' in 'tags'; write a list of"),
    ("rows.jsonl", '{"tokens": ["a", "b"], "tags": ["O", "I-X"]}', {}, "Line 1 of rows.jsonl, word 2, has the tag I-X"),
    ("rows.jsonl", '{"words": ["a"], "tags": ["O"]}', {}, "has no column 'tokens'; write one of words, tags"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "options", "message"), BAD_FILES)
def test_bad_sentences(tmp_path: Path, name: str, content: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_tagged(written(tmp_path / name, content), **options)


def test_made_up_sentences_have_names_of_their_own_in_each_part_and_tags_that_are_right() -> None:
    parts = {part: name_sentences(part, 300, seed=3) for part in GENERATED["names"].parts}
    assert parts["test"].fingerprint == name_sentences("test", 300, seed=3).fingerprint
    assert parts["test"].fingerprint != name_sentences("test", 300, seed=4).fingerprint
    texts: dict[str, set[str]] = {}
    for part, sentences in parts.items():
        assert len({item.words for item in sentences}) == 300
        texts[part] = set()
        for item in sentences:
            assert len(item.words) == len(item.tags)
            for entity in find_entities(item.tags):
                words = item.words[entity.start : entity.end]
                texts[part].update(w for w in words if entity.type != "DATE" and w.istitle() and len(w) > 2)
        assert {kind for item in sentences for kind, _, _ in find_entities(item.tags)} == {"DATE", "PERSON", "PLACE"}
        assert {item.fields["ambiguous"] for item in sentences} == {"yes", "no"}
    assert not texts["train"] & texts["validation"]
    assert not texts["train"] & texts["test"]
    assert not texts["train"] & texts["unseen_forms"]


# Their way to the model and back


def sentence(text: str, tags: str) -> TaggedSentences:
    words, of_words = tuple(text.split()), tuple(tags.split())
    return TaggedSentences("some", [Tagged(words, of_words)], ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_the_first_piece_of_a_word_has_its_tag(kind: str) -> None:
    """As encoding each word by itself; bytes have the space before a word in its first piece."""
    made = TOKENIZERS[kind](["Mary Smith lives in New York."])
    sentences = sentence("Mary Smithson lives in New Yorks 😀 .", "B-PER I-PER O O B-LOC I-LOC O O")
    item = sentences.items[0]
    space = "" if kind == "word pieces" else " "
    pieces = [made(space * bool(i) + word, add_special_tokens=False).input_ids for i, word in enumerate(item.words)]
    edges: tuple[list[int], list[int]] = ([made.cls_token_id], [made.sep_token_id]) if not space else ([], [])
    expected: dict[bool, list[int]] = {False: [], True: []}
    inside = {1: 2, 3: 4}
    for ids, tag in zip(pieces, item.tags, strict=True):
        label, before = sentences.labels.index(tag), int(made.decode(ids[:1]).isspace())  # a piece of a space alone
        expected[False] += [-100] * before + [label] + [-100] * (len(ids) - before - 1)
        expected[True] += [-100] * before + [label] + [inside.get(label, label)] * (len(ids) - before - 1)
    assert len(expected[False]) > len(item.words) + 2
    for all_pieces, labels in expected.items():
        encoded = EncodedSentences(sentences, made, 60, label_all_pieces=all_pieces)
        outside = [-100] * len(edges[0])
        assert encoded[0]["input_ids"] == edges[0] + [i for ids in pieces for i in ids] + edges[1]
        assert encoded[0]["labels"] == outside + labels + outside
        assert encoded.undecided == 0


def test_a_tokenizer_of_a_language_model_does_not_move_the_words_of_a_batch() -> None:
    made = wordpiece_tokenizer(["a b c d e f g h i j"], types=False)
    made.padding_side = "left"
    items = [*sentence("a b c", "O B-PER O").items, *sentence("a b c d e", "O O O O B-LOC").items]
    sentences = TaggedSentences("some", items, ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"])
    encoded = EncodedSentences(sentences, made, 20)
    batch = DataCollatorForTokenClassification(made)([encoded[0], encoded[1]])
    for row, (index, places) in enumerate(encoded.windows):
        tags = {word: sentences.labels[batch["labels"][row, place]] for place, word in places.items()}
        assert tuple(tags.values()) == items[index].tags


def test_long_sentences_in_windows_or_cut() -> None:
    """Windows of six pieces that share two: a word is decided about where the fewer of its neighbors are missing."""
    made = wordpiece_tokenizer(["a b c d e f g h i j"], types=False)
    sentences = sentence("a b c d e f g h i", "B-PER I-PER O O B-LOC O O O O")
    encoded = EncodedSentences(sentences, made, 8, too_long="windows", overlap=2)
    texts = [made.decode(encoded[i]["input_ids"], skip_special_tokens=True) for i in range(len(encoded))]
    assert texts == ["a b c d e f", "e f g h i"]
    # The labels of e and f: positions 5 and 6 of 8 in the first window, and 1 and 2 of 7 in the second.
    assert encoded.windows == [(0, {1: 0, 2: 1, 3: 2, 4: 3, 5: 4}), (0, {2: 5, 3: 6, 4: 7, 5: 8})]
    assert encoded[1]["labels"] == [-100, 3, 0, 0, 0, 0, -100]  # in training, both windows have e's tag
    assert encoded.lengths.tolist() == [[8], [7]]
    cut = EncodedSentences(sentences, made, 8)
    assert (len(cut), cut.undecided, cut.windows[0][1]) == (1, 3, {i + 1: i for i in range(6)})
    gone = EncodedSentences(sentence("a \u200b b", "B-PER I-PER O"), made, 8)  # nothing is left of the second word
    assert (gone.undecided, gone.windows[0][1]) == (1, {1: 0, 2: 2})
    with pytest.raises(UserError, match=r"data\.overlap is 6, and data.max_length 8 leaves 6 tokens for words; write"):
        EncodedSentences(sentences, made, 8, too_long="windows", overlap=6)


# The recipe


TINY = {
    "publish": {"texts": "samples"},
    "data": {"examples": 200, "evaluation_examples": 30, "max_length": 60},
    "training": {"learning_rate": 3e-3},
    "sample": {"mistakes": 3},
}


def tiny_config(folder: Path, pretrained: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"model": {"name": str(pretrained)}}, fields)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    texts = [" ".join(item.words) for item in name_sentences("train", 200, seed=0)]
    return tiny_model(tmp_path_factory.mktemp("model") / "tiny-distilbert", texts=texts, layers=1)


def conll(folder: Path, name: str, part: str, number: int) -> Path:
    sentences = name_sentences(part, number, seed=5)
    lines = ["\n".join(map(" ".join, zip(item.words, item.tags, strict=True))) for item in sentences]
    return written(folder / name, "\n\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    """A finished run on files of words and tags, sentences above 18 tokens in windows, in batches by tokens."""
    folder = tmp_path_factory.mktemp("finished")
    config = tiny_config(
        folder,
        model,
        data={
            "dataset": str(conll(folder, "train.conll", "train", 400)),
            "test": str(conll(folder, "test.conll", "test", 60)),
            "max_length": 18,
            "too_long": "windows",
            "overlap": 6,
        },
        training={**steps(120, 40), "metric_for_best_model": "f1"},
        max_tokens=600,
        early_stopping_patience=3,
    )
    train_here(RECIPE, config)
    return folder


def test_scores_are_those_of_the_published_model_read_one_window_at_a_time(finished: Path) -> None:
    results = results_of(finished / "run")
    loaded = AutoModelForTokenClassification.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    labels = results["data"]["labels"]
    assert list(loaded.config.id2label.values()) == labels
    validation = read_tagged(finished / "train.conll").split([0.9, 0.1], 0, lambda item: item.words, "sentences")[1]
    for part, sentences in {"validation": validation, "test": read_tagged(finished / "test.conll")}.items():
        encoded = EncodedSentences(sentences, tokenizer, 18, too_long="windows", overlap=6)
        assert len(encoded) > len(sentences)
        predicted = [["O"] * len(item.words) for item in sentences]
        nats = 0.0
        for row, (index, words) in enumerate(encoded.windows):
            with torch.no_grad():
                log_probabilities = loaded(torch.tensor([encoded[row]["input_ids"]])).logits[0].log_softmax(-1)
            for position, word in words.items():
                predicted[index][word] = labels[int(log_probabilities[position].argmax())]
                right = labels.index(sentences.items[index].tags[word])
                nats -= log_probabilities[position, right].item()
        expected = EntityMetric().compute(predictions=predicted, references=[item.tags for item in sentences])
        score = results["metrics"][part]
        for name in ("precision", "recall", "f1", "accuracy", "entities", "words"):
            assert score[name] == pytest.approx(expected[name])
        assert score["entities_by_type"] == expected["entities_by_type"]
        assert score["nats_per_word"] == pytest.approx(nats / expected["words"], rel=1e-4)
        kept = [i for i, item in enumerate(sentences) if 9 <= len(item.words) <= 12]
        of_slice = EntityMetric().compute(
            predictions=[predicted[i] for i in kept], references=[sentences.items[i].tags for i in kept]
        )
        assert score["by_slice"]["9-12 words"]["f1"] == pytest.approx(of_slice["f1"])
    assert results["metrics"]["test"]["f1"] > 0.3
    assert results["data"]["parts"]["test"]["undecided_words"] == 0


def from_scratch(folder: Path, tokenizer: dict[str, Any], **fields: Any) -> Path:
    sizes = {"embedding_size": 32, "hidden_size": 32}
    model = {"model_type": "rnn_encoder", "cell": "lstm", "direction": "bidirectional", **sizes}
    return write_config(folder, TINY, {"model": model, "tokenizer": tokenizer}, fields)


@pytest.mark.parametrize("tokenizer", [{"kind": "word", "min_count": 2}, {"kind": "wordpiece", "vocab_size": 200}])
def test_a_tagger_from_scratch(tmp_path: Path, tokenizer: dict[str, Any]) -> None:
    """Its card runs, and its folder loads where hfattn is not installed."""
    config = from_scratch(
        tmp_path, tokenizer, data={"examples": 800}, training={**steps(150, 150), "learning_rate": 1e-2}
    )
    results = train_here(RECIPE, config)
    assert results["model"]["base_model"] is None
    assert results["model"]["trained_share"] == 1
    assert results["metrics"]["test"]["f1"] > 0.3
    entities = results["example"]["entities"]
    assert entities
    assert printed_by_card(tmp_path / "run") == "".join(f"{each['type']} {each['text']}\n" for each in entities)
    assert (
        "It was trained from scratch with the `token_classification` recipe"
        in (tmp_path / "run" / "README.md").read_text()
    )
    report = verify(tmp_path / "run")
    assert report.passed, report.failures()


def test_a_tagger_reads_words_that_only_the_vectors_have(tmp_path: Path) -> None:
    """Names of the test are not in training; they are found by vectors that are near those of other names."""
    vectors = name_vectors_file(tmp_path / "vectors.txt", 32)
    data = {"examples": 800, "evaluation_examples": 100, "vectors": str(vectors)}
    training = {**steps(100, 100), "learning_rate": 1e-2}
    results, words = {}, [line.split(" ")[0] for line in vectors.read_text().splitlines()]
    for all_words in (True, False):
        folder = tmp_path / str(all_words)
        folder.mkdir()
        tokenizer = {"kind": "whitespace", "lowercase": True}
        fields = {"data": {**data, "all_words": all_words}, "training": training}
        config = from_scratch(folder, tokenizer, **fields, model={"freeze_embeddings": True})
        results[all_words] = train_here(RECIPE, config)
        vocabulary = AutoTokenizer.from_pretrained(folder / "run").get_vocab()
        assert ({*words} <= {*vocabulary}) == all_words
        weight = AutoModelForTokenClassification.from_pretrained(folder / "run").get_input_embeddings().weight
        for line in vectors.read_text().splitlines()[::50]:
            word, *numbers = line.split(" ")
            if word in vocabulary:
                assert weight[vocabulary[word]].tolist() == pytest.approx([float(x) for x in numbers])
    found = results[True]["data"]["vectors"]
    assert (found["name"], found["found"]) == ("vectors.txt", len(words))
    covered = f"vectors.txt: {len(words):,} words found, {found['missing']} missing"
    assert covered in (tmp_path / "True" / "run" / "README.md").read_text()
    scores = {all_words: each["metrics"]["unseen_forms"]["f1"] for all_words, each in results.items()}
    assert scores[True] > scores[False] + 0.1, scores
    report = verify(tmp_path / "True" / "run")
    assert report.passed, report.failures()


def test_another_type_of_model_from_scratch(tmp_path: Path) -> None:
    model = {"model_type": "distilbert", "dim": 16, "hidden_dim": 16, "n_layers": 1, "n_heads": 2}
    tokenizer = {"kind": "bpe", "vocab_size": 150}
    config = write_config(tmp_path, TINY, {"model": model, "tokenizer": tokenizer, "training": steps(2, 2)})
    assert train_here(RECIPE, config)["model"]["model_type"] == "distilbert"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": {"model_type": "rnn_encodr"}}, "model.model_type is 'rnn_encodr'; write a model type"),
        ({"model": {"model_type": "vaswani"}}, "AutoModelForTokenClassification has no model of the type vaswani"),
        (
            {"model": {"model_type": "rnn_encoder", "num_labels": 3}},
            "model.num_labels follows from the data; leave it out",
        ),
        ({"model": {"model_type": "rnn_encoder", "hiden_size": 3}}, "did you mean 'hidden_size'"),
        ({"tuning": {"method": "lora"}}, "A model from scratch trains all weights; remove the section tuning"),
        ({"tokenizer": {"kind": "bpe", "vocab_size": 200, "sampling": 0.1}}, "remove tokenizer.sampling"),
        ({"tokenizer": {"kind": "char"}}, "write tokenizer.kind: word, or tokenizer.unknown: true"),
        ({"data": {"words": "w.txt"}}, "words is the file of words for vectors; write vectors too, or remove words"),
        ({"data": {"all_words": True}}, "adds the words of vectors to the vocabulary; write vectors too, or remove it"),
        (
            {"data": ALL_WORDS, "tokenizer": {"kind": "bpe", "vocab_size": 200}},
            "data.all_words is for a vocabulary of words, and tokenizer.kind is bpe; write word, or remove it",
        ),
        (
            {"data": ALL_WORDS, "tokenizer": {"vocab_size": 200}},
            "tokenizer.vocab_size and tokenizer.min_count leave those out; remove these",
        ),
    ],
)
def test_a_bad_model_from_scratch_is_refused(tmp_path: Path, fields: dict[str, Any], message: str) -> None:
    config = write_config(
        tmp_path, TINY, {"model": {"model_type": "rnn_encoder"}, "tokenizer": {"kind": "word"}}, fields
    )
    with pytest.raises(UserError, match=message):
        train_here(RECIPE, config)
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("bert", {"tuning": {"method": "lora", "rank": 2}, "evaluation": {"columns": ["ambiguous"]}}),
        ("gpt2", {"tuning": {"method": "head_only"}, "data": {"label_all_pieces": True}}),
        ("distilbert", {"tuning": {"layer_decay": 0.5}, "data": {"max_length": 9}}),  # long sentences are cut
    ],
)
def test_other_models_and_ways_to_tune(tmp_path: Path, kind: str, fields: dict[str, Any]) -> None:
    training = {**steps(4, 2), "report_to": ["tensorboard"]}
    config = tiny_config(tmp_path, tiny_model(tmp_path / kind, kind, layers=1), training=training, **fields)
    results = train_here(RECIPE, config)
    assert results["model"]["method"] == fields["tuning"].get("method", "full")
    assert (results["model"]["trained_share"] == 1) == ("layer_decay" in fields["tuning"])
    assert ("ambiguous: yes" in results["metrics"]["test"]["by_slice"]) == (kind == "bert")
    undecided = results["data"]["parts"]["test"]["undecided_words"]
    assert undecided > 0 or kind != "distilbert"
    assert results["metrics"]["test"]["words"] == sum(len(item.words) for item in name_sentences("test", 30, 42))
    assert list((tmp_path / "run" / "logs").glob("events*"))
    AutoModelForTokenClassification.from_pretrained(tmp_path / "run")


def another_tag(folder: Path) -> list[object]:
    whole = written(folder / "words.conll", NAMED * 2 + "\n" + NAMED)
    test = written(folder / "test.conll", "A B-X\n")
    return ["--data.dataset", whole, "--data.split", "[0.5, 0.5]", "--data.test", test]


BAD: list[BadInput] = [
    ("--data.dataset no.txt", "no.txt was not found locally or on the Hub"),
    (
        lambda f: ["--data.dataset", written(f / "words.conll", "A B-X\nB I-Y\n")],
        "Line 2 of words.conll has the tag I-Y",
    ),
    (another_tag, "Line 1 of test.conll has the tag 'B-X', which is not one of O, B-LOC"),
    ("--evaluation.columns [rating]", "names 'rating', and the other columns of names are"),
    ("--data.test b.conll", "names has its own validation and test; remove"),
    ("--data.split '[0.5, 0.6]'", "write shares .*, or sentences such as"),
    ("--data.max_length 0", "data: max_length is 0; write a whole number of at least 1"),
    ("--data.max_length 65", "data.max_length is 65; this model reads at most 64 tokens."),
    ("--data.too_long windows --data.overlap 58", "data.overlap is 58, and data.max_length 60 leaves 58 tokens for wo"),
    ("--model.name ./none", "none was not found locally or on the Hub"),
    ("--tokenizer.kind word", "has its own tokenizer; remove the sections tokenizer and contextual"),
    ("--data.vectors glove.txt", "data.vectors is for a model from scratch .model.model_type.; remove it"),
    ("--tuning.method half", "tuning: method is 'half'; write one of full, lora, head_only"),
]


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, loss, bad, changed = "token_classification", "nats_per_word", BAD, "--data.examples 201"
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png",)
    stated: ClassVar[Stated] = {("f1", "entity F1 (test)"): ("test", "f1")}

    @pytest.fixture
    def configure(self, model: Path) -> Configure:
        return partial(tiny_config, pretrained=model)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert "base_model:" not in str(card.data)  # a folder, which is not an id on the Hub
        assert re.fullmatch(r"Line \d+ of test.conll", results["samples"][0]["place"])
        assert {sample["missed"] + sample["found instead"] for sample in results["samples"]} - {"––"}
        assert results["example"]["entities"]
        assert printed == "".join(f"{each['type']} {each['text']}\n" for each in results["example"]["entities"])

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"training": {"max_steps": 40}}

    def shared(self, folder: Path) -> dict[str, Any]:
        """31 windows in batches of 8: the last ones are not shared evenly."""
        options = {"dropout": 0.0, "attention_dropout": 0.0}
        return {"model": {"options": options}, "data": {"evaluation_examples": 31}}

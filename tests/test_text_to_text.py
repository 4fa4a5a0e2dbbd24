"""The recipe text_to_text: mixtures, span corruption and scores against their formulas, and runs of small mixtures."""

import json
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import datasets
import numpy as np
import pytest
from commands import OUTSIDE, ROOT, run, run_here, steps, train_here, write_config, written
from huggingface_hub import ModelCard, ModelCardData
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from scipy.stats import spearmanr
from tiny_models import labeled_file, scored_file, tiny_translator
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, pipeline

from hfattn.data import MixedExamples, SpanCorruption, SpanExamples, TaskConfig, epoch_sizes, mixing_rates
from hfattn.data.batches import TrainingExamples
from hfattn.data.documents import Document, Documents
from hfattn.data.spans import SENTINEL, sentinel_ids
from hfattn.data.tasks import shared_between_tasks
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.hub.measuring import plan_measurement
from hfattn.metrics import main_score, task_scores
from hfattn.pipelines import TextToTextPipeline
from hfattn.tokenizers import TokenizerConfig, build_tokenizer
from hfattn.training import TasksConfig

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "text_to_text"

# Mixtures


@pytest.mark.parametrize("temperature", [1.0, 2.0, 0.5])
@pytest.mark.parametrize("maximum", [None, 50, 1000])
def test_rates_are_those_of_the_paper(maximum: int | None, temperature: float) -> None:
    sizes = [10, 200, 90]
    limited = [min(size, maximum or size) for size in sizes]
    rates = [(each / sum(limited)) ** (1 / temperature) for each in limited]
    expected = [rate / sum(rates) for rate in rates]
    assert mixing_rates(sizes, maximum, temperature) == pytest.approx(expected, rel=1e-12)
    assert epoch_sizes(sizes, maximum, temperature) == [round(rate * sum(limited)) for rate in expected]


def test_a_task_with_few_examples_is_read_too() -> None:
    assert epoch_sizes([1, 100_000], 1000, 1.0) == [1, 1000]
    assert epoch_sizes([1, 100_000], None, 0.1) == [1, 100_001]


class Numbers(TrainingExamples[dict[str, Any]]):
    """Examples that are numbers, each with lengths of its own."""

    def __init__(self, number: int, seed: int) -> None:
        self.lengths = np.random.default_rng(seed).integers(1, 30, (number, 2))

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"number": index, "epoch": self.epoch}


@pytest.mark.parametrize(("size", "number"), [(20, 20), (50, 20), (7, 20), (20, 60), (1, 3), (30, 1)])
def test_all_examples_of_a_task_are_read_equally_often(size: int, number: int) -> None:
    """In an epoch the counts differ by one at most, after many hardly; and no example is longer than its place says."""
    task, other = Numbers(size, 0), Numbers(5, 1)
    mixed = MixedExamples({"a": other, "b": task}, [5, number], seed=3)
    assert len(mixed) == 5 + number
    assert sorted(mixed[i]["number"] for i in range(5)) == [0, 1, 2, 3, 4]
    whole: Counter[int] = Counter()
    epochs = 200
    for epoch in range(epochs):
        mixed.set_epoch(epoch)
        found = [mixed[i] for i in range(5, len(mixed))]
        assert {each["epoch"] for each in found} == {epoch}
        counts = Counter(each["number"] for each in found)
        assert max(counts.values()) - min(counts.get(i, 0) for i in range(size)) <= 1
        whole.update(counts)
        for place, each in zip(range(5, len(mixed)), found, strict=True):
            assert (task.lengths[each["number"]] <= mixed.lengths[place]).all()
    mean = epochs * number / size
    assert all(abs(whole[i] - mean) <= 0.05 * mean + 3 for i in range(size))
    again = MixedExamples({"a": other, "b": task}, [5, number], seed=3)
    again.set_epoch(17)
    mixed.set_epoch(17)
    assert [again[i] for i in range(len(again))] == [mixed[i] for i in range(len(mixed))]


# Span corruption


def sentinel_tokenizer(number: int = 20) -> Any:
    tokenizer = build_tokenizer(TokenizerConfig(kind="char"), ["abcdefghij "], ends=True)
    tokenizer.add_tokens([SENTINEL.format(i) for i in range(number)], special_tokens=True)
    return tokenizer


@pytest.mark.parametrize(("share", "mean"), [(0.15, 3.0), (0.5, 3.0), (0.15, 1.0), (0.9, 10.0)])
@pytest.mark.parametrize("length", [2, 3, 10, 47])
def test_the_target_says_what_is_hidden(length: int, share: float, mean: float) -> None:
    """Filling the sentinels of the source with what follows them in the target gives the text back."""
    tokenizer = sentinel_tokenizer(60)
    corruption = SpanCorruption(tokenizer, share, mean)
    sentinels, end = sentinel_ids(tokenizer), tokenizer.eos_token_id
    ids = np.random.default_rng(0).integers(4, 14, length)
    seen = set()
    for seed in range(50):
        source, target = corruption(ids, np.random.default_rng(seed))
        assert source[-1] == target[-1] == end
        hidden: dict[int, list[int]] = {}
        for token in target[:-1]:
            if token in sentinels:
                hidden[token] = []
                last = token
            else:
                hidden[last].append(token)
        spans = len(hidden) - 1
        assert list(hidden) == sentinels[: spans + 1]  # in order, and one more, with nothing behind it
        assert hidden[sentinels[spans]] == []
        assert all(hidden[sentinel] for sentinel in sentinels[:spans])
        filled: list[int] = []
        for token in source[:-1]:
            filled += hidden[token] if token in sentinels else [token]
        assert filled == ids.tolist()
        assert source[0] not in sentinels
        number = sum(map(len, hidden.values()))
        assert number == min(max(round(share * length), 1), length - 1)
        assert spans == min(max(round(number / mean), 1), number, length - number)
        assert (len(source), len(target)) == corruption.sizes(length)
        seen.add(tuple(source))
    assert len(seen) > 1 or spans == 1  # the only hidden span is the last one


def test_every_way_to_cut_the_spans_is_equally_probable() -> None:
    """Six tokens, three of them hidden in two spans: 2 x 2 ways."""
    corruption = SpanCorruption(sentinel_tokenizer(), 0.5, 1.5)
    ids = np.arange(4, 10)
    counts = Counter(tuple(corruption(ids, np.random.default_rng(seed))[0]) for seed in range(2000))
    assert len(counts) == 4
    assert all(abs(count - 500) < 100 for count in counts.values())


def test_texts_are_as_long_as_source_and_target_allow_and_hidden_anew_in_each_epoch() -> None:
    tokenizer = sentinel_tokenizer()
    documents = Documents("d", [Document("abcdefghij " * 9), Document("ab"), Document("jihgfedcba" * 5)])
    corruption = SpanCorruption(tokenizer)
    for limits in ((40, 20), (64, 12), (48, 64)):
        examples = SpanExamples(documents, tokenizer, corruption, *limits, seed=1)
        length = corruption.longest(*limits)
        assert all(size <= limit for size, limit in zip(corruption.sizes(length), limits, strict=True))
        assert any(size > limit for size, limit in zip(corruption.sizes(length + 1), limits, strict=True))
        assert sum(map(len, examples.blocks)) in (151, 150)  # a last token alone is left out
        first = [examples[i] for i in range(len(examples))]
        for each, (source, target) in zip(first, examples.lengths, strict=True):
            assert (len(each["input_ids"]), len(each["labels"])) == (source, target)
        assert first == [examples[i] for i in range(len(examples))]
        examples.set_epoch(1)
        assert first != [examples[i] for i in range(len(examples))]
    unknown = Documents("d", [Document("abc"), Document("abé")])
    with pytest.raises(UserError, match=r"Document 2 of d has 'é' \(U\+00E9\), which does not occur in the training"):
        SpanExamples(unknown, tokenizer, SpanCorruption(tokenizer), 40, 20, seed=1)
    with pytest.raises(UserError, match=r"needs .* sentinels, and the tokenizer has 4; write a larger tok"):
        SpanCorruption(sentinel_tokenizer(4)).longest(200, 100)
    with pytest.raises(UserError, match="needs a tokenizer with sentinels, <extra_id_0> and so on; write tokenizer"):
        SpanCorruption(build_tokenizer(TokenizerConfig(kind="char"), ["a"], ends=True))


# Tasks as text


def test_a_row_is_written_as_text(tmp_path: Path) -> None:
    rows = [{"a": "one", "b": {"c": "two"}, "score": score} for score in (3.7, 3.5, 1, 4.9, 2.3)]
    file = written(tmp_path / "rows.jsonl", rows)
    fields: dict[str, Any] = {
        "dataset": str(file),
        "source": "first: {a} second: {b.c}",
        "target": "{score}",
        "metric": "spearman",
    }
    found: Any = TaskConfig(**fields, round_to=0.2).read(str(file), "train")
    assert [item.source for item in found] == ["first: one second: two"] * 5
    assert [item.target for item in found] == ["3.6", "3.6", "1.0", "4.8", "2.4"]  # halves to the even multiple
    assert found.items[0].texts == ("one", "two")
    free = {**fields, "target": "{a} and {b.c}", "metric": "bleu"}
    item: Any = TaskConfig(**free).read(str(file), "train").items[0]
    assert (item.target, item.texts) == ("one and two", ("one", "two", "one and two"))


def test_labels_are_names_for_numbers_and_for_other_names(tmp_path: Path) -> None:
    file = written(tmp_path / "rows.tsv", "text\tlabel\na\t0\nb\t1\nc\tYES\n")
    task: dict[str, Any] = {"dataset": str(file), "source": "t {text}", "target": "{label}", "metric": "accuracy"}
    named = TaskConfig(**task, labels=["no", "yes"], rename_labels={"YES": "yes"})
    found: Any = named.read(str(file), "train")
    assert [item.target for item in found] == ["no", "yes", "yes"]
    with pytest.raises(UserError, match="has the label 'YES', which is not one of no, yes; correct it"):
        TaskConfig(**task, labels=["no", "yes"]).read(str(file), "train")
    with pytest.raises(UserError, match=r"rename_labels names 'yess', and no line of rows\.tsv has that target"):
        TaskConfig(**task, labels=["no", "yes"], rename_labels={"YES": "yes", "yess": "yes"}).read(str(file), "train")


def test_names_of_classes_are_targets() -> None:
    """A column of class numbers; the names can be replaced, and white space around labels does not count."""
    kinds = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["ENT", "CON"])})
    rows = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, 0]}, features=kinds)
    task: dict[str, Any] = {"dataset": "rows", "source": "t {text}", "target": "{label}"}
    metrics: list[dict[str, Any]] = [{"metric": "accuracy"}, {"metric": "exact_match"}]
    for fields in metrics:
        found: Any = TaskConfig(**task, **fields).read(rows, "train")
        assert [item.target for item in found] == ["CON", "ENT"]
        renamed: Any = TaskConfig(**task, **fields, rename_labels={"CON": "contra"}).read(rows, "train")
        assert [item.target for item in renamed] == ["contra", "ENT"]
    unlabeled = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [1, -1]}, features=kinds)  # as of GLUE's tests
    with pytest.raises(UserError, match=r"Row 1 of .* has the class -1, and there are 2; give labeled rows"):
        TaskConfig(**task, metric="accuracy").read(unlabeled, "train")
    spaced = datasets.Dataset.from_dict({"text": ["a", "b"], "label": [" pos", "pos"]})
    same: Any = TaskConfig(**task, metric="accuracy").read(spaced, "train")
    assert [item.target for item in same] == ["pos", "pos"]


def test_two_tasks_of_one_file_that_are_split_otherwise_are_named(tmp_path: Path) -> None:
    file = written(tmp_path / "pairs.tsv", "en\tes\n" + "".join(f"the dog {i // 3}\tel perro {i}\n" for i in range(40)))
    common = {"dataset": str(file), "metric": "bleu", "split": [0.6, 0.2, 0.2]}
    tasks = {
        "to_es": {**common, "source": "to es: {en}", "target": "{es}"},
        "to_en": {**common, "source": "to en: {es}", "target": "{en}"},
        "again": {**common, "source": "es: {en}", "target": "{es}"},
    }
    data = TasksConfig(tasks=tasks)
    parts = data.read_tasks(3)
    trained = {text for item in parts["to_en"]["train"] for text in item.texts}
    number = sum(bool(trained & {*item.texts}) for item in parts["to_es"]["test"])
    warnings = shared_between_tasks(data.sections, parts)
    size = len(parts["to_es"]["test"])
    assert number > 0
    assert f"to_es: {number} of the {size} test examples have a text that to_en trains on; give" in " ".join(warnings)
    assert not [each for each in warnings if each.startswith("to_es") and "again" in each]
    assert [each for each in data.report(parts).warnings if "trains on" in each] == warnings
    apart = {name: {**task, "split_by": "shared_text"} for name, task in tasks.items()}
    assert not shared_between_tasks(TasksConfig(tasks=apart).sections, TasksConfig(tasks=apart).read_tasks(3))


def test_pairs_that_share_a_text_are_in_one_part(tmp_path: Path) -> None:
    lines = [f"en {i // 3}\tes {i // 2}" for i in range(120)]
    file = written(tmp_path / "pairs.tsv", "\n".join([*lines, *(f"x{i}\ty{i}" for i in range(60))]))
    task = TaskConfig(
        dataset=str(file),
        columns=["en", "es"],
        source="translate: {en}",
        target="{es}",
        metric="bleu",
        split=[0.6, 0.2, 0.2],
        split_by="shared_text",
    )
    parts = task.read_parts(1)
    texts = [{text for item in part for text in item.texts} for part in parts.values()]
    assert len(set().union(*texts)) == sum(map(len, texts))
    assert sum(map(len, parts.values())) == 180


def test_outputs_that_are_no_answers_count_as_wrong() -> None:
    scores = task_scores("accuracy", ["a", "b", "A", "a"], ["a", "b", "a", "b"], ["a", "b"])
    assert scores == {"accuracy": 0.5, "invalid": 0.25, "f1": pytest.approx((1 / 2 + 2 / 3) / 2)}
    assert task_scores("accuracy", ["a", "b"], ["a", "b"], ["a", "b", "c"])["f1"] == 1  # there is no c
    outputs, targets = ["1.0", "x", "3.0", "nan", "5.0"], ["1.2", "2.0", "3.0", "4.0", "5.0"]
    scores = task_scores("spearman", outputs, targets)
    assert scores["invalid"] == 0.4
    expected = spearmanr([1.0, -1, 3, -1, 5], [1.2, 2, 3, 4, 5]).statistic
    assert scores["spearman"] == pytest.approx(expected)
    scores = task_scores("bleu", ["a b c d e", "x"], ["a b c d e", "y"])
    assert scores["exact_match"] == 0.5
    assert 0 < scores["bleu"] < 100
    scores = task_scores("rouge", ["The cats sat down.", "x y"], ["the cat sat", "z"])
    # Stems: 3 of 4 and 3 of 3 words, 2 of 3 and 2 of 2 pairs of words; and nothing of the second text.
    assert scores["rouge1"] == scores["rougeL"] == pytest.approx(2 * 0.75 / 1.75 / 2)
    assert scores["rouge2"] == main_score("rouge", scores) == pytest.approx(2 * (2 / 3) / (5 / 3) / 2)
    assert task_scores("rouge", ["b a"], ["a b"])["rougeL"] == 0.5 < task_scores("rouge", ["b a"], ["a b"])["rouge1"]


# The recipe

TINY: dict[str, dict[str, Any]] = {
    "data": {"max_source_length": 160, "max_target_length": 24, "too_long": "cut"},
    "tokenizer": {"kind": "bpe", "vocab_size": 160},
    "model": {
        "model_type": "vaswani",
        "preset": "t5",
        "hidden_size": 16,
        "intermediate_size": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "num_attention_heads": 2,
        "head_dim": 8,
    },
    "training": {**steps(20, 10), "metric_for_best_model": "score", "greater_is_better": True},
    "evaluation": {"examples": 12},
    "sample": {"outputs": 2},
    "publish": {"texts": "samples"},
}


def tiny_tasks(folder: Path) -> dict[str, Any]:
    reviews = labeled_file(folder / "reviews.tsv", pairs=False, texts=120)
    scores = scored_file(folder / "scores.tsv", pairs=120)
    dates = {"dataset": "dates", "source": "date: {source}", "examples": 60, "evaluation_examples": 12}
    sst2 = {"source": "sst2 sentence: {text}", "target": "{label}", "metric": "accuracy", "labels": ["bad", "good"]}
    relatedness = {"source": "one: {text} two: {pair}", "target": "{score}", "metric": "spearman", "round_to": 0.2}
    return {
        "sst2": {"dataset": str(reviews), "split": [0.7, 0.15, 0.15], **sst2},
        "relatedness": {"dataset": str(scores), "split": [0.7, 0.15, 0.15], **relatedness},
        "translate": {**dates, "metric": "bleu"},
    }


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, {"data": {"tasks": tiny_tasks(folder)}}, fields)


def span_task(folder: Path) -> dict[str, Any]:
    lines = [f"{i}. The film of Mary was good, and the story of John was bad." for i in range(150)]
    file = written(folder / "text.txt", "\n".join(lines))
    return {"dataset": str(file), "format": "spans", "metric": "nats_per_token", "split": [0.7, 0.15, 0.15]}


def test_a_mixture_starts_from_span_corruption(tmp_path: Path) -> None:
    """The tokenizer of the first stage knows the texts of the second one; its sentinels stay."""
    tasks = tiny_tasks(tmp_path)
    first = write_config(
        tmp_path,
        TINY,
        {
            "data": {"tasks": {"spans": span_task(tmp_path)}},
            "tokenizer": {"sentinels": 30, "more_texts": [tasks["sst2"]["dataset"]]},
            "training": {"metric_for_best_model": "nats_per_token", "greater_is_better": False},
        },
    )
    results = train_here(RECIPE, first, to="first")
    scores = results["metrics"]["test"]["tasks"]["spans"]
    assert scores.keys() == {"nats_per_token", "perplexity", "token_accuracy", "examples"}
    assert results["samples"][0]["target"] == "–"
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "first")
    assert len(sentinel_ids(tokenizer)) == 30
    ids = [sentinel_ids(tokenizer)[0], *tokenizer("good").input_ids]
    assert tokenizer.decode(ids, skip_special_tokens=True) == "good"
    second = {name: section for name, section in TINY.items() if name not in ("tokenizer", "model")}
    only = {"tasks": {**tasks, "spans": span_task(tmp_path)}, "only": ["sst2", "spans"]}
    config = write_config(tmp_path, second, {"data": only, "model": {"name": str(tmp_path / "first")}})
    results = train_here(RECIPE, config, to="second")
    assert results["model"]["base_model"] == "first"
    assert results["metrics"]["test"]["tasks"].keys() == {"sst2", "spans"}
    assert len(AutoTokenizer.from_pretrained(tmp_path / "second")) == len(tokenizer)


def test_summaries_are_scored_by_rouge(tmp_path: Path) -> None:
    task = {**tiny_tasks(tmp_path)["translate"], "metric": "rouge"}
    fields = {"data": {"only": ["translate"]}, "evaluation": {"num_beams": 2}}
    config = write_config(tmp_path, TINY, {"data": {"tasks": {"translate": task}}}, fields)
    results = train_here(RECIPE, config)
    scores = results["metrics"]["test"]["tasks"]["translate"]
    assert scores.keys() >= {"rouge1", "rouge2", "rougeL", "exact_match"}
    assert results["metrics"]["test"]["score"] == scores["rouge2"]
    card = (tmp_path / "run" / "README.md").read_text()
    assert "- type: rouge\n" in card
    assert f"| test | translate | rouge2 | {scores['rouge2']:.4f} | 12 |" in card
    assert "ROUGE of translate is computed with rouge-score" in card
    assert "with 2 beams" in card


def test_numbers_of_further_texts_are_not_in_the_vocabulary(tmp_path: Path) -> None:
    contracts = written(tmp_path / "contracts.txt", "".join(f"Contract {i} of a film\n" for i in range(74_000, 74_020)))
    tokenizer = {"more_texts": [str(contracts)], "vocab_size": 300}
    first: dict[str, Any] = {
        "data": {"only": ["sst2"]},
        "tokenizer": tokenizer,
        "publish": {"texts": "none"},
        "training": steps(2, 2),
    }
    train_here(RECIPE, tiny_config(tmp_path, **first))
    vocabulary = AutoTokenizer.from_pretrained(tmp_path / "run").get_vocab()
    assert any("ontra" in token for token in vocabulary)
    assert not [token for token in vocabulary if re.search(r"\d{3}", token)]


def test_further_texts_that_have_changed_end_a_resumed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = written(tmp_path / "lines.txt", "zebra zebra zebra\n" * 20)
    fields = {"data": {"only": ["sst2"]}, "tokenizer": {"more_texts": [str(lines)]}}
    config = tiny_config(tmp_path, **fields)
    words = ("--config", config, "--output_dir", tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("hfattn.reports.text_to_text.leave_behind", lambda *args, **kwargs: 1 / 0)
        with pytest.raises(UserError, match="The training ended"):
            run_here(RECIPE, patch, *words)
    lines.write_text("quokka quokka quokka\n" * 20)
    with pytest.raises(UserError, match="more_texts"):
        run_here(RECIPE, monkeypatch, *words, "--resume")


@pytest.mark.parametrize("method", ["full", "lora"])
def test_any_encoder_decoder_of_transformers_trains(tmp_path: Path, method: str) -> None:
    """A T5 with random weights, saved in a folder; its own start token and end token are kept."""
    texts = [text for i in range(80) for text in (f"sst2 sentence: The film of Mary was good in {i}.", "bad")]
    base = tiny_translator(tmp_path / "t5", "t5", texts)
    stored = json.loads((base / "config.json").read_text())
    stored["task_specific_params"] = {"translation": {"prefix": "translate: "}, "other": {"num_beams": 2}}
    (base / "config.json").write_text(json.dumps(stored))
    sections = {name: section for name, section in TINY.items() if name not in ("tokenizer", "model")}
    own = {"data": {"tasks": tiny_tasks(tmp_path), "only": ["sst2"]}, "model": {"name": str(base)}}
    results = train_here(RECIPE, write_config(tmp_path, sections, own, {"tuning": {"method": method}}))
    assert results["model"]["model_type"] == "t5"
    model = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert not list((tmp_path / "run").glob("*.py"))
    sample = results["samples"][0]
    answer = TextToTextPipeline(model=model, tokenizer=tokenizer)(sample["source"])
    assert answer["generated_text"] == sample["output"]
    column = sample["source"].removeprefix("sst2 sentence: ")
    again = TextToTextPipeline(model=model, tokenizer=tokenizer)({"task": "sst2", "text": column})
    assert again["generated_text"] == sample["output"]
    assert model.config.task_specific_params.keys() == {"text-to-text", "other"}  # without a prefix before the template
    numbers = TextToTextPipeline(model=model, tokenizer=tokenizer).preprocess({"task": "sst2", "text": 7})
    assert numbers["input_ids"].tolist() == tokenizer(["sst2 sentence: 7"]).input_ids
    long = TextToTextPipeline(model=model, tokenizer=tokenizer).preprocess("the film of Mary " * 200)
    assert long["input_ids"].tolist() == tokenizer(["the film of Mary " * 200], truncation=True).input_ids
    assert long["input_ids"].shape[1] == 160


CLEAN = """
import json, sys
sys.modules['hfattn'] = None  # as if it were not installed
from transformers import pipeline
answer = pipeline('text-to-text', model=sys.argv[1], trust_remote_code=True, device='cpu')
assert pipeline(model=sys.argv[1], trust_remote_code=True, device='cpu').task == 'text-to-text'
found = answer([sys.argv[2], {'task': 'sst2', 'text': sys.argv[3]}])
print(json.dumps([[each['generated_text'], each['score']] for each in found]))
"""

BAD: list[BadInput] = [
    ("--data.tasks {}", "data.tasks is empty; write at least one task"),
    ("--data.only [sst]", "data.only names 'sst', and the tasks are sst2, relatedness, translate; write one"),
    (
        "--data.tasks.sst2.metric f1",
        "metric is 'f1'; write one of accuracy, bleu, exact_match, rouge, spearman, nats_per",
    ),
    ("--data.tasks.sst2.sorce x", "did you mean 'data.tasks.sst2.source'"),
    ("--data.tasks.sst2.source 'no column'", "source is 'no column', without a column; write one in braces"),
    ("--data.tasks.sst2.source 'a {txt}'", "Line 2 of reviews.tsv has no column 'txt'; write one of text, label"),
    ("--data.tasks.sst2.labels '[bad, bad]'", "The labels of reviews.tsv are bad, bad; write at least two, each once"),
    (
        "--data.tasks.sst2.target 'a {label}'",
        "target is 'a {label}', and labels, rename_labels and metric: spearman ar",
    ),
    ("--data.tasks.relatedness.target 'a {score}'", "and metric: spearman are for the value of one column"),
    (
        lambda f: ["--data.tasks.relatedness.dataset", written(f / "s.tsv", "text\tpair\tscore\na\tb\t1,5\n")],
        "Line 2 of s.tsv has the label '1,5'; write a number.",
    ),
    ("--data.tasks.translate.split_by shared_text", "split_by has no effect with dataset: dates; remove it"),
    (
        "--data.tasks.sst2.split_by phrase --data.tasks.sst2.group_column text",
        "is another way to split; write split_by",
    ),
    (
        lambda f: [
            "--tokenizer.lowercase",
            "true",
            "--data.tasks.sst2.labels",
            "[BAD, good]",
        ],
        "writes the label 'BAD' of sst2 as 'bad', so no output would be right; write another name for it",
    ),
    ("--data.tasks.translate.source 'a {english}'", "has the columns source and target, and no 'english'; correct"),
    ("--data.tasks.translate.labels '[a, b]'", "labels are for metric: accuracy, and metric is bleu; remove labels"),
    ("--data.tasks.sst2.folds 5", "a mixture has no folds; remove folds"),
    ("--data.tasks.sst2.round_to 0", "round_to is 0; write a number above 0, or null"),
    ("--data.dataset x.tsv", "'data.dataset' is not a field of this recipe"),
    ("--data.too_long error --data.max_source_length 8", "has a source of .* tokens, its end token included; raise da"),
    ("--mixture.temperature 0", "temperature is 0; write a number above 0"),
    ("--mixture.maximum 0", "maximum is 0; write a whole number of at least 1, or null"),
    ("--tokenizer.more_texts [no.txt]", "no.txt"),
    ("--model.prefix 'do: '", "model.prefix is for a pretrained model; write its model.name, or remove it"),
    ("--sample.pairs '[[one]]'", r"pairs contains \['one'\]; write \[source, target\]"),
    (lambda f: ["--data.tasks.spans", json.dumps(span_task(f))], "needs a tokenizer with sentinels"),
    (
        lambda f: ["--data.tasks.spans", json.dumps({**span_task(f), "metric": "bleu"})],
        "metric is bleu, and hidden spans are scored by likelihood; write nats_per_token",
    ),
    (
        lambda f: ["--data.tasks.spans", json.dumps({**span_task(f), "target": "{text}"})],
        "target has no effect with format: spans; remove it",
    ),
]


class TestTheRecipe(FinishedRun, KilledRun, TwoProcesses, BadInputs):
    recipe, bad, loss, changed = "text_to_text", BAD, "nats_per_token", "--mixture.temperature 3"
    files: ClassVar[set[str]] = {*FinishedRun.files, "pipeline_attn_translation.py", "attention_biases.py"}
    stated: ClassVar[Stated] = {}

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    @pytest.fixture(scope="class")
    def finished(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("finished")
        config = tiny_config(folder, mixture={"maximum": 60}, evaluation={"examples": 12, "num_beams": 2})
        train_here(RECIPE, config)
        return folder

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert isinstance(card.data, ModelCardData)
        assert "Its outputs were searched with 2 beams" in card.text
        values = {each.metric_name: each.metric_value for each in card.data.eval_results or []}
        for name, scores in results["metrics"]["test"]["tasks"].items():
            metric = results["data"]["tasks"][name]["metric"]
            assert values[f"{name}: {metric.replace('_', ' ')} (test)"] == pytest.approx(scores[metric], abs=1e-6)
        outputs = [sample["output"] for sample in results["samples"][:4]]
        assert printed == "\n".join([*outputs, outputs[0]]) + "\n" or printed.split() == [
            word for text in (*outputs, outputs[0]) for word in text.split()
        ]

    def places(self, data: dict[str, Any]) -> list[str]:
        return [f"{name}={task['dataset']}" for name, task in data["tasks"].items() if task["dataset"] != "dates"]

    def test_one_file_for_all_tasks_is_not_evaluated(self, finished: Path) -> None:
        """Its sentences would be read without the text of their task."""
        with pytest.raises(
            UserError, match="puts words of its own around the text of each, which hfattn evaluate does not; its rec"
        ):
            evaluate_folder(str(finished / "run"), str(finished / "reviews.tsv"))

    def test_the_data_of_each_task_are_named_to_measure_it(self, finished: Path) -> None:
        results = json.loads((finished / "run" / "results.json").read_text())
        reviews, scores = finished / "reviews.tsv", finished / "scores.tsv"
        told = plan_measurement(results, [f"sst2={reviews}"])
        assert told == (
            "as recorded, not measured again: the data of task relatedness are 'scores.tsv'; give them with --data "
            "relatedness=DATASET"
        )
        results["configuration"]["data"]["tasks"]["sst2"] |= {"test": "other.tsv", "split": [0.8, 0.2]}
        told = plan_measurement(results, [f"sst2={reviews}", f"relatedness={scores}"])
        assert "the part sst2.test is 'other.tsv'; give it with --data sst2.test=FILE" in str(told)
        for place in (str(reviews), f"sst={reviews}", f"sst2.tests={reviews}"):
            with pytest.raises(
                UserError, match=r"names no task of the run \(sst2, relatedness, translate\); write TASK="
            ):
                plan_measurement(results, [place])
        with pytest.raises(
            UserError, match=r"The data of task translate are part of hfattn \(dates\); leave --data tra"
        ):
            plan_measurement(
                results, [f"sst2={reviews}", f"sst2.test={reviews}", f"relatedness={scores}", "translate=x"]
            )

    def test_the_run_is_reproduced_with_the_data_of_each_task(self, finished: Path, tmp_path: Path) -> None:
        places = [f"sst2={finished / 'reviews.tsv'}", f"relatedness={finished / 'scores.tsv'}"]
        words = [word for place in places for word in ("--data", place)]
        command = [
            sys.executable,
            "-m",
            "hfattn",
            "reproduce",
            finished / "run",
            *words,
            "--output_dir",
            tmp_path / "again",
        ]
        assert "reproduced bit for bit" in run(command, cwd=tmp_path).stdout

    def test_each_task_has_its_scores_and_rate(self, finished: Path) -> None:
        results = json.loads((finished / "run" / "results.json").read_text())
        for part in ("validation", "test"):
            scores = results["metrics"][part]
            assert scores["tasks"].keys() == {"sst2", "relatedness", "translate"}
            assert {each["examples"] for each in scores["tasks"].values()} == {12}
            mains = (scores["tasks"]["sst2"]["accuracy"], scores["tasks"]["relatedness"]["spearman"])
            assert scores["score"] == pytest.approx((sum(mains) + scores["tasks"]["translate"]["bleu"] / 100) / 3)
        sizes = [min(task["examples"]["train"], 60) for task in results["data"]["tasks"].values()]
        rates = [task["rate"] for task in results["data"]["tasks"].values()]
        assert rates == pytest.approx([size / sum(sizes) for size in sizes])

    def test_the_folder_answers_where_hfattn_is_not_installed(self, finished: Path, tmp_path: Path) -> None:
        results = json.loads((finished / "run" / "results.json").read_text())
        sample = next(each for each in results["samples"] if each["task"] == "sst2")
        column = sample["source"].removeprefix("sst2 sentence: ")
        done = run(
            [sys.executable, "-c", CLEAN, finished / "run", sample["source"], column],
            cwd=OUTSIDE,
            HF_MODULES_CACHE=str(tmp_path / "modules"),
        )
        assert done.returncode == 0, done.stderr
        first, second = json.loads(done.stdout.splitlines()[-1])
        assert first == second
        assert first[0] == sample["output"]
        here = pipeline("text-to-text", model=str(finished / "run"), trust_remote_code=True, device="cpu")
        found = here(sample["source"])
        assert set(found) == {"generated_text", "score", "alignment"}
        assert found["score"] == pytest.approx(first[1], rel=1e-4)
        for wrong, message in (
            ({"task": "nli", "text": "a"}, "no task 'nli'; its tasks are relatedness, sst2, translate, and a whole"),
            ({"task": "sst2"}, "'text' is not given; add it"),
        ):
            with pytest.raises(ValueError, match=message):
                here(wrong)

    def killed(self, folder: Path) -> dict[str, Any]:
        return {"training": {"max_steps": 40}, "data": {"only": ["sst2", "translate"]}}

    def shared(self, folder: Path) -> dict[str, Any]:
        quiet = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout", "output_dropout"), 0.0)
        return {"model": {**TINY["model"], **quiet}, "data": {"only": ["sst2", "relatedness"]}}

"""Dates, pairs, their metrics, and the translation recipe through its real command line."""

import datetime
import json
import re
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
import torch
from commands import ROOT, results_of, run_card, steps, train, train_here, write_config, written
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated
from sacrebleu.metrics import BLEU
from tiny_models import TINY_BAHDANAU
from transformers import AutoTokenizer, DataCollatorForSeq2Seq, EvalPrediction
from typer.testing import CliRunner

from hfattn import BahdanauForConditionalGeneration
from hfattn.data import EncodedPairs, Pair, Pairs, read_pairs
from hfattn.generated import date_pairs
from hfattn.generated.dates import FIRST_YEAR, LANGUAGES, LAST_YEAR, part_of_year, write_date
from hfattn.metrics import ExactMatch, LanguageModelScores, TranslationScores, decode_generated, token_statistics
from hfattn.plots import bleu_varies
from hfattn.resources import load_recipe
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "translation"
TINY: dict[str, dict[str, Any]] = {
    "publish": {"texts": "samples"},
    "data": {"dataset": "dates", "examples": 200, "evaluation_examples": 30, "max_target_length": 12},
    "model": TINY_BAHDANAU,
    "sample": {"translations": 3, "alignments": 1},
}


def tiny_config(folder: Path, **fields: Any) -> Path:
    return write_config(folder, TINY, fields)


# Dates

FORMS = [
    (language, form, unseen)
    for language, names in LANGUAGES.items()
    for unseen, forms in ((False, names.training_forms), (True, names.unseen_forms))
    for form in forms
]


def test_a_language_names_months_and_weekdays_as_it_should() -> None:
    forms = {"en": "{weekday} the {ordinal} of {month}, {year}", "es": "{weekday}, {day} de {month} de {year}"}
    literal = {
        ("en", datetime.date(2019, 4, 22)): "Monday the 22nd of April, 2019; Mon, 22 Apr 2019",
        ("en", datetime.date(2000, 2, 29)): "Tuesday the 29th of February, 2000; Tue, 29 Feb 2000",
        ("en", datetime.date(1969, 7, 20)): "Sunday the 20th of July, 1969; Sun, 20 Jul 1969",
        ("en", datetime.date(2013, 9, 11)): "Wednesday the 11th of September, 2013; Wed, 11 Sep 2013",
        ("es", datetime.date(2019, 4, 22)): "lunes, 22 de abril de 2019; lun, 22 abr 2019",
        ("es", datetime.date(2000, 2, 29)): "martes, 29 de febrero de 2000; mar, 29 feb 2000",
        ("es", datetime.date(2013, 9, 11)): "miércoles, 11 de septiembre de 2013; mié, 11 sep 2013",
        ("es", datetime.date(2022, 1, 1)): "sábado, 1 de enero de 2022; sáb, 1 ene 2022",
    }
    for (language, date), expected in literal.items():
        assert write_date(date, forms[language] + "; {wd}, {day} {mon} {year}", language) == expected
    ordinals = [write_date(datetime.date(2019, 1, day), "{ordinal}", "en") for day in (1, 2, 3, 4, 11, 12, 13, 21, 31)]
    assert ordinals == ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "31st"]


def read_back(text: str, language: str, form: str) -> datetime.date:
    """Parse a written date with regular expressions of this test's own, and check the weekday if it has one."""
    names = LANGUAGES[language]
    short_months, short_weekdays = ([name[:3] for name in each] for each in (names.months, names.weekdays))
    patterns = {
        "day": r"(?P<day>\d\d?)",
        "dd": r"(?P<day>\d\d)",
        "ordinal": r"(?P<day>\d\d?)(?:st|nd|rd|th)",
        "mm": r"(?P<mm>\d\d)",
        "year": r"(?P<year>\d{4})",
        "month": f"(?P<month>{'|'.join(names.months)})",
        "mon": f"(?P<mon>{'|'.join(short_months)})",
        "weekday": f"(?P<weekday>{'|'.join(names.weekdays)})",
        "wd": f"(?P<wd>{'|'.join(short_weekdays)})",
    }
    pattern = re.sub(r"\\{(\w+)\\}", lambda match: patterns[match[1]], re.escape(form))
    match = re.fullmatch(pattern, text)
    assert match is not None, (text, form)
    found = match.groupdict()
    if "mm" in found:
        month = int(found["mm"])
    else:
        table = names.months if "month" in found else short_months
        month = 1 + table.index(found.get("month") or found["mon"])
    date = datetime.date(int(found["year"]), month, int(found["day"]))
    if "weekday" in found:
        assert names.weekdays.index(found["weekday"]) == date.isoweekday() - 1
    if "wd" in found:
        assert short_weekdays.index(found["wd"]) == date.isoweekday() - 1
    return date


@pytest.mark.parametrize(("language", "form", "unseen"), FORMS)
def test_every_form_is_read_back_as_the_date_that_was_written(language: str, form: str, unseen: bool) -> None:
    for days in range(0, 365 * 400, 389):
        date = datetime.date(FIRST_YEAR, 1, 1) + datetime.timedelta(days=days)
        assert read_back(write_date(date, form, language), language, form) == date


def test_no_text_means_two_dates_and_no_unseen_form_is_one_that_training_has() -> None:
    dates = [datetime.date(year, month, day) for year, month, day in product((1701, 2010), range(1, 13), range(1, 29))]
    meaning: dict[str, datetime.date] = {}
    seen: dict[bool, set[str]] = {False: set(), True: set()}
    for language, form, unseen in FORMS:
        for date in dates:
            text = write_date(date, form, language).lower()
            assert meaning.setdefault(text, date) == date
            seen[unseen].add(text)
    assert not seen[False] & seen[True]
    assert sum(not unseen for _, _, unseen in FORMS) >= 20


def test_parts_share_no_year_and_training_sees_each_digit_in_each_place() -> None:
    years = {part: set() for part in ("train", "validation", "test")}  # type: dict[str, set[int]]
    for year in range(FIRST_YEAR, LAST_YEAR + 1):
        years[part_of_year(year)].add(year)
    assert sum(map(len, years.values())) == 400
    assert min(len(years["validation"]), len(years["test"])) >= 57
    for held_out in ("validation", "test"):
        for position in range(4):
            digits = {str(year)[position] for year in years[held_out]}
            assert digits <= {str(year)[position] for year in years["train"]}
    for part in ("train", "validation", "test", "unseen_forms"):
        pairs = date_pairs(part, 400, seed=3)
        drawn = {datetime.date.fromisoformat(pair.target).year for pair in pairs}
        assert drawn <= years["test" if part == "unseen_forms" else part]
        assert len({pair.source for pair in pairs}) == len(pairs) == 400
        assert len({pair.kind for pair in pairs}) == sum(unseen == (part == "unseen_forms") for _, _, unseen in FORMS)


def test_the_draw_is_the_same_everywhere_and_another_with_another_seed() -> None:
    first = date_pairs("train", 300, seed=1)
    assert first.fingerprint == "0be4c34f8bc527905ab4ddd09ec20e8f9c8930633944fd8f78309e6dd76ec974"
    assert date_pairs("train", 300, seed=1) == first
    assert date_pairs("train", 200, seed=1).items == first.items[:200]
    assert date_pairs("train", 300, seed=2).fingerprint != first.fingerprint
    letters = [pair.source for pair in first if any(character.isalpha() for character in pair.source)]
    assert any(text.isupper() for text in letters)
    assert any(text.islower() for text in letters)


def test_evaluation_needs_no_character_that_training_lacks() -> None:
    known = set(date_pairs("train", 3000, seed=1).counts)
    for part in ("validation", "test", "unseen_forms"):
        assert set(date_pairs(part, 3000, seed=1).counts) <= known


# Pairs


def cut(pairs: Pairs, split: list[float | int | str], seed: int) -> list[Pairs]:
    return load_recipe(RECIPE / "train.py").DataConfig(split=split).cut(pairs, seed)


def test_a_split_is_disjoint_in_sources_and_keeps_every_pair() -> None:
    pairs = Pairs("numbers", [Pair(str(i // 3), str(i)) for i in range(300)])
    parts = cut(pairs, [50, 20, "rest"], seed=0)
    sources = [{pair.source for pair in part} for part in parts]
    assert [len(part) for part in sources] == [50, 20, 30]
    assert len(set.union(*sources)) == 100
    assert sorted(pair.target for part in parts for pair in part) == sorted(pair.target for pair in pairs)


def test_examples_are_padded_on_the_right_and_end_with_the_end() -> None:
    pairs = Pairs("two", [Pair("ab", "c"), Pair("a", "cba")])
    tokenizer = build_character_tokenizer(pairs.counts, ends=True)
    assert tokenizer.get_vocab() == {"[PAD]": 0, "[BOS]": 1, "[EOS]": 2, "a": 3, "b": 4, "c": 5}
    encoded = EncodedPairs(pairs, tokenizer, tokenizer, 3, 4)
    batch = DataCollatorForSeq2Seq(tokenizer)([encoded[0], encoded[1]])
    assert batch["input_ids"].tolist() == [[3, 4, 2], [3, 2, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch["labels"].tolist() == [[5, 2, -100, -100], [5, 4, 3, 2]]
    order = encoded.sampler(0)
    assert sorted(order) == [0, 1]


# Metrics


def test_metrics_against_literal_counts() -> None:
    texts = ["2019-04-22", "2019-04-2", "", "x "]
    references = ["2019-04-22", "2019-04-22", "", "x"]
    assert ExactMatch().compute(predictions=texts, references=references) == {"exact_match": 0.5}


def test_scores_over_batches_are_those_of_tokens_and_of_texts() -> None:
    tokenizer = build_character_tokenizer(["abc"], ends=True)  # a 3, b 4, c 5
    torch.manual_seed(0)
    labels = torch.tensor([[3, 4, 2, -100], [5, 2, -100, -100], [3, 3, 5, 2]])
    # Padded with 0 by generate(), with -100 between processes; the first begins with [BOS] as generate() returns it.
    generated = torch.tensor([[1, 3, 4, 2, 0], [1, 5, 5, 2, -100], [1, 3, 3, 5, 2]])
    logits = torch.randn(3, 4, 6)
    scores = TranslationScores(tokenizer)
    for _ in range(2):
        for part, last in ((slice(0, 1), False), (slice(1, 3), True)):
            statistics = (*token_statistics(logits[part], labels[part]), generated[part])
            result = scores(EvalPrediction(statistics, labels[part]), compute_result=last)
            assert bool(result) == last
    predictions = token_statistics(logits, labels)
    tokens = LanguageModelScores("token")(EvalPrediction(predictions, labels), compute_result=True)
    assert result["tokens"] == tokens["tokens"] == 9
    assert (result["token_accuracy"], result["nats_per_token"]) == (tokens["accuracy"], tokens["nats_per_token"])
    assert (result["pairs"], result["exact_match"]) == (3, 2 / 3)
    assert decode_generated(tokenizer, generated) == ["ab", "cc", "aac"]
    assert "exact_match" not in scores(EvalPrediction(predictions, labels), compute_result=True)  # nothing is generated


# The recipe

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the recipe's command on a task that is learned in seconds: spelling out a digit."""
    folder = tmp_path_factory.mktemp("finished")
    lines = [f"{i:02}\t{NUMBERS[i // 10]} {NUMBERS[i % 10]}" for i in range(100)]
    config = tiny_config(
        folder,
        data={"dataset": str(written(folder / "pairs.tsv", "\n".join(lines))), "split": [0.8, 0.1, 0.1]},
        model={"embedding_size": 16, "encoder_hidden_size": 16, "hidden_size": 32, "output_size": 16},
        training={**steps(150, 50), "report_to": ["tensorboard"], "bf16": "auto"},
    )
    done = train(config, "--output_dir", folder / "run", recipe=RECIPE)
    assert done.returncode == 0, done.stderr
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


def test_a_run_leaves_logs_and_its_last_checkpoints(finished: Path) -> None:
    assert list((finished / "run" / "logs").glob("events*"))
    assert len(list((finished / "run" / "checkpoints").glob("checkpoint-*"))) == 2


def test_results_say_what_was_measured_and_how(finished: Path) -> None:
    """The scores are those of the published model, counted here one pair at a time."""
    results = results_of(finished / "run")
    assert results["command"].startswith("accelerate launch recipes/translation/train.py --config tiny.yaml")
    assert results["data"]["name"] == "pairs.tsv"
    assert {part: facts["pairs"] for part, facts in results["data"]["parts"].items()} == {
        "train": 80, "validation": 10, "test": 10,
    }  # fmt: skip
    assert results["model"]["preset"] == "bahdanau2015"
    assert results["training"]["steps"] == 150
    model = BahdanauForConditionalGeneration.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    test = cut(read_pairs(finished / "pairs.tsv"), [0.8, 0.1, 0.1], seed=0)[2]
    exact, nats, tokens, right = 0, 0.0, 0, 0
    for pair in test:
        inputs = tokenizer(pair.source, return_tensors="pt")
        text = tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True)
        exact += text == pair.target
        labels = tokenizer(pair.target, return_tensors="pt").input_ids
        with torch.no_grad():
            log_probabilities = model(**inputs, labels=labels).logits.log_softmax(-1)
        nats -= log_probabilities.gather(-1, labels[..., None]).sum().item()
        right += int((log_probabilities.argmax(-1) == labels).sum())
        tokens += labels.shape[1]
    score = results["metrics"]["test"]
    assert score["exact_match"] == exact / 10
    assert score["tokens"] == tokens
    assert score["token_accuracy"] == pytest.approx(right / tokens, abs=1e-2)  # evaluated in bfloat16 where it exists
    assert score["nats_per_token"] == pytest.approx(nats / tokens, abs=2e-2)
    assert score["token_accuracy"] > 0.7
    assert model.generation_config.max_new_tokens == 12
    assert [sample["reference"] for sample in results["samples"]] == [pair.target for pair in test.items[:3]]


def test_progress_translations_and_the_summary_are_shown(finished: Path) -> None:
    output = (finished / "output.txt").read_text()
    results = results_of(finished / "run")
    assert "150/150" in output
    assert len(re.findall(r"step \d+: \d\d → [a-z ]* [✓✗]", output)) == 9
    for part in ("validation", "test"):
        assert re.search(rf"^{part} +10 +{results['metrics'][part]['exact_match']:.4f}", output, re.MULTILINE)
    sample = results["samples"][0]
    assert f"{sample['source']} → {sample['translation']}" in output
    assert f'hfattn translate {finished / "run"} "{sample["source"]}"' in output


def test_dates_are_scored_by_their_forms_and_in_unseen_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train_here(RECIPE, tiny_config(tmp_path, training=steps(2)))
    printed = capsys.readouterr().out
    for heading in ("unseen forms", "written forms that were not in the training data", "  22nd April 2019   "):
        assert heading in printed
    assert "| Monday, 22 April 2019 | 0.0" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("model", "draws"),
    [
        ({"model_type": "vaswani", "preset": "small", "hidden_size": 16, "intermediate_size": 16}, True),
        ({"attention_score": None, "encoder_direction": "forward"}, False),
    ],
)
def test_other_models_are_another_section(tmp_path: Path, model: dict[str, Any], draws: bool) -> None:
    train_here(RECIPE, tiny_config(tmp_path, model=model, training={**steps(2), "generation_num_beams": 2}))
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["model_type"] == model.get("model_type", "bahdanau")
    assert json.loads((tmp_path / "run" / "generation_config.json").read_text())["num_beams"] == 2
    assert (tmp_path / "run" / "alignment-1.png").exists() == draws
    assert ("![alignment](alignment-1.png)" in (tmp_path / "run" / "README.md").read_text()) == draws


def parallel(folder: Path, name: str, numbers: range) -> None:
    (folder / f"{name}.de").write_text("".join(f"{NUMBERS[i // 10].title()} {NUMBERS[i % 10]}!\n" for i in numbers))
    (folder / f"{name}.en").write_text("".join(f"{'-' * (i % 4)}{i:02}.\n" for i in numbers))


def test_parallel_files_subwords_batches_by_tokens_averages_and_a_beam(tmp_path: Path) -> None:
    """Everything that dates.yaml does not use, in one run; its BLEU is sacreBLEU's of what the saved model writes."""
    for name, numbers in (("train", range(80)), ("val", range(80, 90)), ("flickr", range(90, 100))):
        parallel(tmp_path, name, numbers)
    config = tiny_config(
        tmp_path,
        data={
            "dataset": f"{tmp_path}/train.{{en,de}}",
            "validation": f"{tmp_path}/val.{{en,de}}",
            "test": f"{tmp_path}/flickr.{{en,de}}",
            "too_long": "drop",
            "max_target_length": 24,
        },
        tokenizer={"kind": "unigram", "vocab_size": 60, "sampling": 0.5},
        averaging={"ema": 0.9},
        schedule={"name": "linear_warmup", "warmup_steps": 5},
        evaluation={"examples": 5, "num_beams": 3, "length_penalty": 0.5},
        sample={"pairs": [["11.", "x"]]},
        training={
            **steps(60, 30),
            "label_smoothing_factor": 0.1,
            "metric_for_best_model": "bleu",
            "gradient_accumulation_steps": 2,
        },
        max_tokens=200,
        early_stopping_patience=5,
    )
    results = train_here(RECIPE, config)
    assert {part: facts["pairs"] for part, facts in results["data"]["parts"].items()} == {
        "train": 80, "validation": 10, "test": 10,
    }  # fmt: skip
    assert 0 < results["training"]["padding_share"] < 0.5
    test = results["metrics"]["test"]
    assert (test["pairs"], test["translated"], test["beam"]["pairs"]) == (10, 5, 5)
    assert "beam" not in results["metrics"]["validation"]
    assert "case:lc" in test["signatures"]["bleu_lowercase"]

    model = BahdanauForConditionalGeneration.from_pretrained(tmp_path / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    chosen = sorted(Random(42).sample(range(10), 5))
    sources = [(tmp_path / "flickr.en").read_text().splitlines()[i] for i in chosen]
    references = [(tmp_path / "flickr.de").read_text().splitlines()[i] for i in chosen]
    batch = tokenizer(sources, padding=True, return_tensors="pt")
    for score, search in ((test, {"num_beams": 1}), (test["beam"], {"num_beams": 3, "length_penalty": 0.5})):
        texts = tokenizer.batch_decode(model.generate(**batch, **search), skip_special_tokens=True)
        assert score["bleu"] == BLEU().corpus_score(texts, [references]).score
    own = model.generate(**tokenizer(["11."], return_tensors="pt"), **search)
    own_texts = tokenizer.batch_decode(own, skip_special_tokens=True)
    assert [sample["translation"] for sample in results["samples"]] == [*own_texts, *texts[:3]]
    card = (tmp_path / "run" / "README.md").read_text()
    assert 'return_tensors="pt"), num_beams=3, length_penalty=0.5)' in card
    assert "Beam search has 3 beams and the length penalty 0.5" in card
    rows = test["beam"]["by_source_length"]
    assert (tmp_path / "run" / "bleu_by_length.png").exists() == bleu_varies(rows)
    assert ("(bleu_by_length.png)" in (tmp_path / "run" / "README.md").read_text()) == bleu_varies(rows)


def test_two_vocabularies_are_published_together(tmp_path: Path) -> None:
    """The card's snippet and the pipeline, in a process without hfattn, and the command write the same words."""
    lines = "".join(f"{i // 10} {i % 10}.\t{NUMBERS[i // 10].title()} {NUMBERS[i % 10]}!\n" for i in range(100))
    config = tiny_config(
        tmp_path,
        data={"dataset": str(written(tmp_path / "pairs.tsv", lines)), "split": [0.8, 0.1, 0.1], "too_long": "cut"},
        tokenizer={"kind": "word", "lowercase": True, "strip_punctuation": True, "separate": True},
        training=steps(60),
        sample={"translations": 2, "pairs": [["1 2 3.", "one two three"]]},
    )
    results = train_here(RECIPE, config)
    assert len(results["samples"]) == 3
    assert list(results["samples"][0].values())[:2] == ["1 2 3.", "one two three"]
    assert results["data"]["source_vocabulary"] == 10
    assert results["data"]["vocabulary"] == 10
    assert json.loads((tmp_path / "run" / "config.json").read_text())["target_tokenizer"] == "target"
    sample = results["samples"][0]
    assert set(sample["translation"].split()) <= set(NUMBERS)
    done = CliRunner().invoke(app, ["translate", str(tmp_path / "run"), sample["source"]])
    assert done.stdout.strip() == sample["translation"]
    pipeline = f"""
from transformers import pipeline
record = pipeline("attn-translation", model=".", trust_remote_code=True)({sample["source"]!r})
print(record["translation_text"])
print(*record["alignment"].tokens, *record["alignment"].target_tokens)
"""
    first, *_, second, tokens = run_card(tmp_path / "run", pipeline).splitlines()
    assert first == second == sample["translation"]
    source = sample["source"].removesuffix(".")
    assert tokens.startswith(f"{source} [EOS] {sample['translation']}")


def test_what_is_shown_is_read_no_further_than_the_model_can(tmp_path: Path) -> None:
    """Learned positions end; a longer source among the samples is cut as in training."""
    lines = [f"{i // 10} {i % 10} and so on and so forth\t{NUMBERS[i // 10]} {NUMBERS[i % 10]}" for i in range(50)]
    lengths = {"too_long": "cut", "max_source_length": 5, "max_target_length": 5}
    sizes = {"preset": "small", "hidden_size": 16, "positions": "learned", "max_position_embeddings": 5}
    config = tiny_config(
        tmp_path,
        data={"dataset": str(written(tmp_path / "pairs.tsv", "\n".join(lines))), **lengths},
        tokenizer={"kind": "word"},
        model={"model_type": "vaswani", **sizes},
        training=steps(2),
    )
    train_here(RECIPE, config)
    assert (tmp_path / "run" / "alignment-1.png").exists()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert len(tokenizer("1 2 and so on and so forth", truncation=True).input_ids) == 5


LONG = "a" * 70


BAD: list[BadInput] = [
    ("--data.dataset no.tsv", "no.tsv was not found locally or on the Hub"),
    (lambda f: ["--data.dataset", written(f / "pairs.tsv", "a\tb\n")], "has 1 sources, and split .* leaves a part"),
    (
        lambda f: [
            "--data.dataset",
            written(f / "pairs.tsv", f"{LONG}\tb\n" + "".join(f"{i}a\tb\n" for i in range(30))),
        ],
        "Line 1 of pairs.tsv has a source of 71 tokens, its end token included; raise data.max_source_length, which",
    ),
    ("--data.max_target_length 5", "Pair 1 of dates has a target of 11 tokens"),
    (
        lambda f: ["--data.dataset", written(f / "pairs.tsv", "".join(f"{chr(0x4E00 + i)}\tb\n" for i in range(30)))],
        r"Line \d+ of pairs.tsv has '.' \(U\+4E..\), which does not occur in the training data; write tokenizer.unk",
    ),
    ("--data.test test.tsv", "dates has its own validation and test; remove validation and"),
    ("--evaluation.num_beams 1", "num_beams is 1; write a whole number of at least 2, or null"),
    ("--evaluation.examples 0", "evaluation: examples is 0; write a whole number"),
    ("--data.split '[0.5, 0.6]'", "write shares .*, or sources such as"),
    ("--data.dataset ''", "dataset is empty; write 'dates', 'phrases', the path"),
    ("--data.examples 0", "data: examples is 0; write a whole number of at least 1"),
    ("--data.evaluation_examples 9999999", "cannot give 9999999 examples"),
    ("--sample.translations 0", "sample: translations is 0; write a whole number"),
    ("--sample.alignments 4", "alignments is 4; write at most translations, 3"),
    ("--sample.pairs '[[one]]'", r"pairs contains \['one'\]; write \[source, reference\]"),
    ("--model.model_type gpt2", "model.model_type is 'gpt2'; write one of bahdanau, vaswani"),
    ("--model.preset bahdanau2016", "did you mean 'bahdanau2015'"),
    ("--model.hiden_size 8", "did you mean 'hidden_size'"),
    ("--model.vocab_size 8", "model.vocab_size follows from the data; leave it out"),
    ("--training.generation_num_beam 2", "did you mean 'training.generation_num_beams'"),
]


class TestTheRecipe(FinishedRun, KilledRun, BadInputs):
    recipe, bad, changed = "translation", BAD, "--data.examples 201"
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_bahdanau.py", "alignment-1.html"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "alignment-1.png")
    stated: ClassVar[Stated] = {
        ("exact_match", "exact match (test)"): ("test", "exact_match"),
        ("accuracy", "token accuracy (test)"): ("test", "token_accuracy"),
    }

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert f"{results['metrics']['test']['token_accuracy']:.4f}" in card.text
        assert "never saw" not in card.text  # there are no forms in a file of pairs
        translation, *rows = printed.splitlines()
        assert translation == results["samples"][0]["translation"]
        assert "".join(row.split(" <- ")[0] for row in rows) == f"{translation}[EOS]"  # the tokens are characters
        assert {row.split(" <- ")[1] for row in rows} <= {*results["samples"][0]["source"], "[EOS]"}

    def killed(self, folder: Path) -> dict[str, Any]:
        training = {"max_steps": 40, "scheduled_sampling": {"name": "linear", "c": 0.02}}
        return {"model": {"output_dropout": 0.2}, "training": training}

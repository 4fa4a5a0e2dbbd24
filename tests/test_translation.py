"""Dates, pairs, their metrics, and the translation recipe through its real command line."""

import datetime
import json
import re
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from commands import ROOT, printed_by_card, run, run_card, run_here, train, train_until
from huggingface_hub import ModelCard
from recipe_contract import BadInputs, Configure
from sacrebleu.metrics import BLEU
from transformers import AutoTokenizer, DataCollatorForSeq2Seq
from typer.testing import CliRunner

from hfattn import BahdanauForConditionalGeneration
from hfattn.cli import app
from hfattn.data import EncodedPairs, Pair, Pairs, read_pairs
from hfattn.errors import UserError
from hfattn.generated import date_pairs
from hfattn.generated.dates import FIRST_YEAR, LANGUAGES, LAST_YEAR, part_of_year, write_date
from hfattn.metrics import ExactMatch, TranslationScores, decode_generated, token_statistics
from hfattn.resources import load_recipe
from hfattn.tokenizers import build_character_tokenizer

RECIPE = ROOT / "recipes" / "translation"
TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "dates", "examples": 200, "evaluation_examples": 30, "max_target_length": 12},
    "model": {
        "model_type": "bahdanau",
        "preset": "bahdanau2015",
        "cell": "gru",
        "embedding_size": 8,
        "encoder_hidden_size": 8,
        "hidden_size": 8,
        "output_size": 8,
    },
    "training": {
        "per_device_train_batch_size": 8,
        "per_device_eval_batch_size": 8,
        "max_steps": 20,
        "learning_rate": 1e-2,
        "eval_steps": 10,
        "save_steps": 10,
        "logging_steps": 5,
        "report_to": "none",
    },
    "sample": {"translations": 3, "alignments": 1},
}


def tiny_config(folder: Path, **fields: Any) -> Path:
    config: dict[str, Any] = {name: dict(section) for name, section in TINY.items()}
    for name, value in fields.items():
        config[name] = {**config.get(name, {}), **value} if isinstance(value, dict) else value
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "pairs.tsv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


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


def test_a_file_of_pairs(tmp_path: Path) -> None:
    content = "hello\thola\r\ngood  day\tbuen día\u2028\x85\nhello\tbuenas\n"
    pairs = read_pairs(written(tmp_path, content))
    assert pairs.name == "pairs.tsv"
    assert [pair[:2] for pair in pairs] == [
        ("hello", "hola"),
        ("good  day", "buen día\u2028\x85"),
        ("hello", "buenas"),
    ]
    assert [pair.line for pair in pairs] == [1, 2, 3]
    assert pairs.counts["h"] == 3
    assert read_pairs(written(tmp_path, content.rstrip("\n"))).fingerprint == pairs.fingerprint


def cut(pairs: Pairs, split: list[float | int | str], seed: int) -> list[Pairs]:
    return load_recipe(RECIPE / "train.py").DataConfig(split=split).cut(pairs, seed)


def test_a_split_is_disjoint_in_sources_and_keeps_every_pair() -> None:
    pairs = Pairs("numbers", [Pair(str(i // 3), str(i)) for i in range(300)])
    splits: list[tuple[list[float | int | str], list[int]]] = [
        ([0.8, 0.1, 0.1], [80, 10, 10]),
        ([0.9, 0.1], [90, 10]),
        ([50, 20, "rest"], [50, 20, 30]),
    ]
    for split, sizes in splits:
        parts = cut(pairs, split, seed=0)
        sources = [{pair.source for pair in part} for part in parts]
        assert [len(part) for part in sources] == sizes
        assert len(set.union(*sources)) == sum(sizes)
        assert sorted(pair.target for part in parts for pair in part) == sorted(pair.target for pair in pairs)
        assert [part.items for part in cut(pairs, split, seed=0)] == [part.items for part in parts]
    first, second = (cut(pairs, [0.5, 0.5], seed)[0].items for seed in (0, 1))
    assert first != second


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


def test_a_tokenizer_with_ends_is_the_same_after_saving_and_without_hfattn(tmp_path: Path) -> None:
    text = "¡Año!  22 de abril\tde 2019\n[EOS] [BOS]"
    tokenizers = {unknown: build_character_tokenizer([text], ends=True, unknown=unknown) for unknown in (False, True)}
    for unknown, tokenizer in tokenizers.items():
        tokenizer.save_pretrained(tmp_path / str(unknown))
    code = (
        "import sys, json\n"
        "sys.modules['hfattn'] = None\n"
        "from transformers import AutoTokenizer\n"
        "texts = json.loads(sys.argv[2])\n"
        "for name in ('False', 'True'):\n"
        "    tokenizer = AutoTokenizer.from_pretrained(f'{sys.argv[1]}/{name}', trust_remote_code=False)\n"
        "    print(json.dumps(tokenizer(texts, padding=True).input_ids))\n"
    )
    done = run([sys.executable, "-c", code, tmp_path, json.dumps([text, "2"])])
    assert done.returncode == 0, done.stderr
    for printed, (unknown, tokenizer) in zip(done.stdout.splitlines(), tokenizers.items(), strict=True):
        for each in (tokenizer, AutoTokenizer.from_pretrained(tmp_path / str(unknown))):
            ids = each(text).input_ids
            assert len(ids) == len(text) + 1
            assert ids[-1] == each.eos_token_id
            assert ids.count(each.eos_token_id) == 1  # "[EOS]" in a text is five characters
            assert each.decode(ids, skip_special_tokens=True) == text
            assert json.loads(printed) == each([text, "2"], padding=True).input_ids
            assert (each.bos_token, each.padding_side) == ("[BOS]", "right")


# Metrics


def test_metrics_against_literal_counts() -> None:
    texts = ["2019-04-22", "2019-04-2", "", "x "]
    references = ["2019-04-22", "2019-04-22", "", "x"]
    assert ExactMatch().compute(predictions=texts, references=references) == {"exact_match": 0.5}


def test_scores_over_batches_against_literal_counts() -> None:
    tokenizer = build_character_tokenizer(["abc"], ends=True)  # a 3, b 4, c 5
    torch.manual_seed(0)
    labels = torch.tensor([[3, 4, 2, -100], [5, 2, -100, -100], [3, 3, 5, 2]])
    # Padded with 0 by generate(), with -100 between processes; the first begins with [BOS] as generate() returns it.
    generated = torch.tensor([[1, 3, 4, 2, 0], [1, 5, 5, 2, -100], [1, 3, 3, 5, 2]])
    logits = torch.randn(3, 4, 6)
    scores = TranslationScores(tokenizer)
    for _ in range(2):
        for part, last in ((slice(0, 1), False), (slice(1, 3), True)):
            predictions = (*token_statistics(logits[part], labels[part]), generated[part])
            result = scores(SimpleNamespace(predictions=predictions, label_ids=labels[part]), compute_result=last)
            assert bool(result) == last
    nats, right = [], 0
    for b, t in product(range(3), range(4)):
        if labels[b, t] != -100:
            nats.append(-logits[b, t].log_softmax(-1)[labels[b, t]].item())
            right += int(logits[b, t].argmax() == labels[b, t])
    assert result["tokens"] == len(nats) == 9
    assert result["token_accuracy"] == right / 9
    assert result["nats_per_token"] == pytest.approx(sum(nats) / 9, rel=1e-5)
    assert (result["pairs"], result["exact_match"]) == (3, 2 / 3)
    assert decode_generated(tokenizer, generated) == ["ab", "cc", "aac"]
    teacher_forced = token_statistics(logits, labels)
    result = scores(SimpleNamespace(predictions=teacher_forced, label_ids=labels), compute_result=True)
    assert "exact_match" not in result


# The recipe


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the recipe's command on a task that is learned in seconds: spelling out a digit."""
    folder = tmp_path_factory.mktemp("finished")
    names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    lines = [f"{i:02}\t{names[i // 10]} {names[i % 10]}" for i in range(100)]
    config = tiny_config(
        folder,
        data={"dataset": str(written(folder, "\n".join(lines))), "split": [0.8, 0.1, 0.1]},
        model={"embedding_size": 16, "encoder_hidden_size": 16, "hidden_size": 32, "output_size": 16},
        training={"max_steps": 150, "eval_steps": 50, "save_steps": 50, "report_to": ["tensorboard"], "bf16": "auto"},
    )
    done = train(config, "--output_dir", folder / "run", recipe=RECIPE)
    assert done.returncode == 0, done.stderr
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


def test_a_run_leaves_a_model_folder_results_curve_alignments_card_and_logs(finished: Path) -> None:
    folder = finished / "run"
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "modeling_bahdanau.py", "README.md"} <= names
    for picture in ("loss_curve.png", "alignment-1.png"):
        assert (folder / picture).read_bytes()[:4] == b"\x89PNG"
    page = (folder / "alignment-1.html").read_text()
    assert not re.search(r"(?:src|href)=[\"']?(?:https?:)?//", page)
    assert list((folder / "logs").glob("events*"))
    assert len(list((folder / "checkpoints").glob("checkpoint-*"))) == 2


def test_results_say_what_was_measured_and_how(finished: Path) -> None:
    """The scores are those of the published model, counted here one pair at a time."""
    results = json.loads((finished / "run" / "results.json").read_text())
    assert results["command"].startswith("accelerate launch recipes/translation/train.py --config tiny.yaml")
    assert str(finished) not in json.dumps(results)
    assert results["data"]["name"] == "pairs.tsv"
    assert {part: facts["pairs"] for part, facts in results["data"]["parts"].items()} == {
        "train": 80, "validation": 10, "test": 10,
    }  # fmt: skip
    assert results["model"]["preset"] == "bahdanau2015"
    assert results["training"]["steps"] == 150
    model = BahdanauForConditionalGeneration.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    test = cut(read_pairs(finished / "pairs.tsv"), [0.8, 0.1, 0.1], seed=42)[2]
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
    results = json.loads((finished / "run" / "results.json").read_text())
    assert "150/150" in output
    assert len(re.findall(r"step \d+: \d\d → [a-z ]* [✓✗]", output)) == 9
    for part in ("validation", "test"):
        assert re.search(rf"^{part} +10 +{results['metrics'][part]['exact_match']:.4f}", output, re.MULTILINE)
    sample = results["samples"][0]
    assert f"{sample['source']} → {sample['translation']}" in output
    assert f'hfattn translate {finished / "run"} "{sample["source"]}"' in output


def test_the_card_states_the_results_and_its_snippet_translates_without_hfattn(finished: Path) -> None:
    card = ModelCard.load(finished / "run" / "README.md")
    results = json.loads((finished / "run" / "results.json").read_text())
    assert card.data.library_name == "transformers"
    values = {(r.metric_type, r.metric_name): r.metric_value for r in card.data.eval_results}
    assert values["exact_match", "exact match (test)"] == results["metrics"]["test"]["exact_match"]
    assert values["accuracy", "token accuracy (test)"] == results["metrics"]["test"]["token_accuracy"]
    assert f"{results['metrics']['test']['token_accuracy']:.4f}" in card.text
    assert "never saw" not in card.text  # there are no forms in a file of pairs
    assert printed_by_card(finished / "run") == results["samples"][0]["translation"] + "\n"


def test_a_run_on_dates_that_was_killed_ends_as_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """SIGKILL while the second checkpoint is written; weights, optimizer and scores are equal bit for bit."""
    config = tiny_config(tmp_path, model={"output_dropout": 0.2}, training={"max_steps": 40})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", whole)
    printed = capsys.readouterr().out
    for heading in ("unseen forms", "written forms that were not in the training data", "  22nd April 2019   "):
        assert heading in printed
    assert "| Monday, 22 April 2019 | 0.0" in (whole / "README.md").read_text()
    train_until(config, killed / "checkpoints/checkpoint-20", "--output_dir", killed, recipe=RECIPE)
    assert not (killed / "model.safetensors").exists()
    with pytest.raises(UserError, match="was started with another 'data'"):
        run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", killed, "--resume", "--data.examples", 201)
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", killed, "--resume")
    for file in ("model.safetensors", "checkpoints/checkpoint-40/model.safetensors"):
        assert (killed / file).read_bytes() == (whole / file).read_bytes()
    optimizers = [torch.load(run / "checkpoints/checkpoint-40/optimizer.pt") for run in (whole, killed)]
    torch.testing.assert_close(optimizers[0], optimizers[1], atol=0, rtol=0)
    first, second = (json.loads((folder / "results.json").read_text())["metrics"] for folder in (whole, killed))
    for part in ("validation", "test", "unseen_forms"):
        assert first[part]["nats_per_token"] == second[part]["nats_per_token"]
        assert first[part]["exact_match_by_kind"] == second[part]["exact_match_by_kind"]


@pytest.mark.parametrize(
    ("model", "draws"),
    [
        ({"model_type": "vaswani", "preset": "small", "hidden_size": 16, "intermediate_size": 16}, True),
        ({**TINY["model"], "attention_score": None, "encoder_direction": "forward"}, False),
    ],
)
def test_other_models_are_another_section(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], draws: bool
) -> None:
    training = {"max_steps": 2, "eval_steps": 2, "save_steps": 2, "generation_num_beams": 2}
    config = tiny_config(tmp_path, training=training)
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "model": model}))
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", tmp_path / "run")
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    assert saved["model_type"] == model["model_type"]
    assert json.loads((tmp_path / "run" / "generation_config.json").read_text())["num_beams"] == 2
    assert (tmp_path / "run" / "alignment-1.png").exists() == draws
    assert ("![alignment](alignment-1.png)" in (tmp_path / "run" / "README.md").read_text()) == draws


NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def parallel(folder: Path, name: str, numbers: range) -> None:
    (folder / f"{name}.de").write_text("".join(f"{NUMBERS[i // 10].title()} {NUMBERS[i % 10]}!\n" for i in numbers))
    (folder / f"{name}.en").write_text("".join(f"{'-' * (i % 4)}{i:02}.\n" for i in numbers))


def test_parallel_files_subwords_batches_by_tokens_averages_and_a_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        evaluation={"examples": 5, "num_beams": 3},
        training={
            "max_steps": 60,
            "eval_steps": 30,
            "save_steps": 30,
            "label_smoothing_factor": 0.1,
            "metric_for_best_model": "bleu",
            "gradient_accumulation_steps": 2,
        },
    )
    sections = yaml.safe_load(config.read_text())
    del sections["training"]["per_device_train_batch_size"]
    config.write_text(yaml.safe_dump({**sections, "max_tokens": 200, "early_stopping_patience": 5}))
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
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
    for score, search in ((test, {"num_beams": 1}), (test["beam"], {"num_beams": 3, "length_penalty": 1.0})):
        texts = tokenizer.batch_decode(model.generate(**batch, **search), skip_special_tokens=True)
        assert score["bleu"] == BLEU().corpus_score(texts, [references]).score
    assert [sample["translation"] for sample in results["samples"]] == texts[:3]
    for picture in ("samples.png", "bleu_by_length.png"):
        assert (tmp_path / "run" / picture).read_bytes()[:4] == b"\x89PNG"


def test_two_vocabularies_are_published_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The card's snippet and the pipeline, in a process without hfattn, and the command write the same words."""
    lines = "".join(f"{i // 10} {i % 10}.\t{NUMBERS[i // 10].title()} {NUMBERS[i % 10]}!\n" for i in range(100))
    config = tiny_config(
        tmp_path,
        data={"dataset": str(written(tmp_path, lines)), "split": [0.8, 0.1, 0.1], "too_long": "cut"},
        tokenizer={"kind": "word", "lowercase": True, "strip_punctuation": True, "separate": True},
        training={"max_steps": 60, "eval_steps": 60, "save_steps": 60},
    )
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", tmp_path / "run")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["data"]["source_vocabulary"] == 10
    assert results["data"]["vocabulary"] == 10
    assert json.loads((tmp_path / "run" / "config.json").read_text())["target_tokenizer"] == "target"
    sample = results["samples"][0]
    assert set(sample["translation"].split()) <= set(NUMBERS)
    capsys.readouterr()
    assert (
        CliRunner().invoke(app, ["translate", str(tmp_path / "run"), sample["source"]]).stdout.strip()
        == (sample["translation"])
    )
    pipeline = f"""
from transformers import pipeline
record = pipeline("attn-translation", model=".", trust_remote_code=True)({sample["source"]!r})
print(record["translation_text"])
print(*record["alignment"].tokens, *record["alignment"].target_tokens)
"""
    first, second, tokens = run_card(tmp_path / "run", pipeline).splitlines()
    assert first == second == sample["translation"]
    source = sample["source"].removesuffix(".")
    assert tokens.startswith(f"{source} [EOS] {sample['translation']}")


def test_what_is_shown_is_read_no_further_than_the_model_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Learned positions end; a longer source among the samples is cut as in training."""
    lines = "".join(
        f"{i // 10} {i % 10} and so on and so forth\t{NUMBERS[i // 10]} {NUMBERS[i % 10]}\n" for i in range(50)
    )
    model = {"preset": "small", "hidden_size": 16, "positions": "learned", "max_position_embeddings": 5}
    config = tiny_config(
        tmp_path,
        data={
            "dataset": str(written(tmp_path, lines)),
            "too_long": "cut",
            "max_source_length": 5,
            "max_target_length": 5,
        },
        tokenizer={"kind": "word"},
        training={"max_steps": 2, "eval_steps": 2, "save_steps": 2},
    )
    sections = {**yaml.safe_load(config.read_text()), "model": {"model_type": "vaswani", **model}}
    config.write_text(yaml.safe_dump(sections))
    run_here(RECIPE, monkeypatch, "--config", config, "--output_dir", tmp_path / "run")
    assert (tmp_path / "run" / "alignment-1.png").exists()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "run")
    assert len(tokenizer("1 2 and so on and so forth", truncation=True).input_ids) == 5


LONG = "a" * 70


def uneven(folder: Path) -> list[object]:
    (folder / "a.en").write_text("a\nb\n")
    (folder / "a.de").write_text("c\n")
    return ["--data.dataset", f"{folder}/a.{{en,de}}"]


BAD: list[tuple[str, Callable[[Path], list[object]], str]] = [
    ("missing file", lambda f: ["--data.dataset", f / "no.tsv"], r"no.tsv was not found locally or on the Hub"),
    ("empty file", lambda f: ["--data.dataset", written(f, "")], "pairs.tsv is empty; write a source and its target"),
    ("no tab", lambda f: ["--data.dataset", written(f, "a\tb\na b\n")], "Line 2 of pairs.tsv has no tab; write the"),
    ("blank line", lambda f: ["--data.dataset", written(f, "a\tb\n\nc\td")], "Line 2 of pairs.tsv has no tab; write"),
    ("two tabs", lambda f: ["--data.dataset", written(f, "a\tb\tc\n")], "Line 1 of pairs.tsv has 2 tabs; write the"),
    ("no target", lambda f: ["--data.dataset", written(f, "a\tb\nc\t \n")], "Line 2 of pairs.tsv has an empty target"),
    ("no source", lambda f: ["--data.dataset", written(f, "\tb\n")], "Line 1 of pairs.tsv has an empty source"),
    ("no UTF-8", lambda f: ["--data.dataset", written(f, b"a\tb\n\xff\tc\n")], "Line 2 of pairs.tsv is not UTF-8"),
    (
        "few",
        lambda f: ["--data.dataset", written(f, "a\tb\n")],
        "has 1 sources, and split .* leaves a part",
    ),
    (
        "long source",
        lambda f: ["--data.dataset", written(f, f"{LONG}\tb\n" + "".join(f"{i}a\tb\n" for i in range(30)))],
        "Line 1 of pairs.tsv has a source of 71 tokens, its end token included; raise data.max_source_length, which",
    ),
    ("long target", lambda f: ["--data.max_target_length", "5"], "Pair 1 of dates has a target of 11 tokens"),
    (
        "new letter",
        lambda f: ["--data.dataset", written(f, "".join(f"{chr(0x4E00 + i)}\tb\n" for i in range(30)))],
        r"Line \d+ of pairs.tsv has '.' \(U\+4E..\), which does not occur in the training data; write tokenizer.unk",
    ),
    ("line counts", uneven, "a.en has 2 lines and a.de has 1; give files whose lines are translations"),
    (
        "generated",
        lambda f: ["--data.test", "test.tsv"],
        "dates has its own validation and test; remove validation and",
    ),
    ("subwords", lambda f: ["--tokenizer.kind", "bpe"], "kind bpe needs a vocab_size"),
    ("beam", lambda f: ["--evaluation.num_beams", "1"], "num_beams is 1; write a whole number of at least 2, or null"),
    (
        "evaluated",
        lambda f: ["--evaluation.examples", "0"],
        "evaluation: examples is 0; write a whole number",
    ),
    ("split", lambda f: ["--data.split", "[0.5, 0.6]"], "write shares .*, or sources such as"),
    ("source", lambda f: ["--data.dataset", ""], "dataset is empty; write 'dates', 'phrases', the path"),
    ("sizes", lambda f: ["--data.examples", "0"], "data: examples is 0; write a whole number of at least 1"),
    ("many", lambda f: ["--data.evaluation_examples", "9999999"], "cannot give 9999999 examples"),
    ("samples", lambda f: ["--sample.translations", "0"], "sample: translations is 0; write a whole number"),
    ("alignments", lambda f: ["--sample.alignments", "4"], "alignments is 4; write at most translations, 3"),
    ("family", lambda f: ["--model.model_type", "gpt2"], "model.model_type is 'gpt2'; write one of bahdanau, vaswani"),
    ("preset", lambda f: ["--model.preset", "bahdanau2016"], "did you mean 'bahdanau2015'"),
    ("model field", lambda f: ["--model.hiden_size", "8"], "did you mean 'hidden_size'"),
    ("vocabulary", lambda f: ["--model.vocab_size", "8"], "model.vocab_size follows from the data; leave it out"),
    ("beams", lambda f: ["--training.generation_num_beam", "2"], "did you mean 'training.generation_num_beams'"),
    ("patience", lambda f: ["--early_stopping_patience", "0"], "write a whole number of at least 1, or null"),
    ("count", lambda f: ["--tokenizer.min_count", "2"], "add unknown: true"),
]


class TestTheRecipe(BadInputs):
    recipe, bad = "translation", BAD

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

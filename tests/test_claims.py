"""Claims: variants are valid, verdicts are computed from records, and the page is what the records say."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import run_here

from benchmarks.claims import (
    collapse,
    elmo,
    forgetting,
    hashing_rounds,
    multi30k,
    page,
    recall,
    sentence_length,
    text_distillation,
    text_to_text,
    transformer_xl,
    ulmfit,
)
from benchmarks.claims.__main__ import run
from benchmarks.claims.claim import (
    Claim,
    Measurement,
    Panel,
    Sample,
    Statement,
    entries_of,
    is_measured,
    keep,
    read,
    sample,
    samples,
    verdict,
)
from benchmarks.claims.page import PAGE, draw, render, section
from benchmarks.claims.registry import CLAIMS
from benchmarks.claims.tasks import next_loss
from hfattn.loading import load_language_model
from hfattn.models.recurrent_cells import RecurrentCell
from hfattn.resources import load_recipe
from hfattn.training import load_config
from hfattn.yaml_values import override_words


def test_the_page_is_what_the_records_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m benchmarks.claims write"


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_is_complete(name: str) -> None:
    claim = CLAIMS[name]
    for statement in claim.statements:
        assert statement.left in claim.variants
        assert isinstance(statement.right, float) or statement.right in claim.variants
    entries = entries_of(name, claim)
    if not is_measured(claim, entries):
        return
    for each in entries:
        assert each["steps"] >= 0
        assert each["hardware"]
        about = [statement for statement in claim.statements if each["variant"] in (statement.left, statement.right)]
        assert {statement.value for statement in about} <= set(each["values"])
    assert (PAGE.parent / "assets" / f"claims-{name}.png").is_file()


def test_each_variant_of_multi30k_is_valid_and_differs_from_the_others() -> None:
    recipe = load_recipe(multi30k.RECIPE / "train.py")
    for table, (config, _, variants) in multi30k.TABLES.items():
        configurations = []
        for variant in variants:
            words = override_words(multi30k.fields(table, variant, 1, Path("data")))
            checked = load_config(recipe.Config, multi30k.RECIPE / f"{config}.yaml", words)
            recipe.validate(checked)
            configurations.append(repr(checked))
        assert len(set(configurations)) == len(variants)


def test_translators_of_long_sentences_differ_in_their_models_alone() -> None:
    configurations = [sentence_length.configuration(variant, 1, Path("data")) for variant in sentence_length.VARIANTS]
    assert len({repr(configuration.model) for configuration in configurations}) == 3
    assert len({repr(replace(configuration, model={})) for configuration in configurations}) == 1
    for configuration in configurations:
        assert {"hidden_size": 256, "embedding_size": 128}.items() <= configuration.model.items()


@pytest.mark.parametrize(
    ("relation", "left", "right", "word"),
    [
        ("above", [30.0, 30.2, 29.8], [28.0, 28.1, 27.9], "supported (+2; +1.64 to +2.36)"),
        ("above", [28.0, 28.1, 27.9], [30.0, 30.2, 29.8], "refuted"),
        ("above", [28.0, 30.0], [27.0, 29.0], "undecided"),
        ("above", [1.0, 1.0], [1.0, 1.0], "undecided"),  # equal is not above
        ("below", [28.0, 28.1, 27.9], [30.0, 30.2, 29.8], "supported"),
        ("below", [0.1, 0.12, 0.11], 0.5, "supported"),
        ("below", [0.6, 0.62, 0.61], 0.5, "refuted"),
        ("not below", [29.8, 29.9, 29.7], [30.0, 30.1, 29.9], "supported"),  # worse, but within the tolerance
        ("not below", [25.0, 25.1, 24.9], [30.0, 30.1, 29.9], "refuted"),
        ("not below", [28.0, 29.9], [29.0, 30.1], "undecided"),
        ("not above", [33.0, 33.1, 32.9], [30.0, 30.1, 29.9], "refuted"),
        ("equal to", [29.8, 29.9, 29.7], [30.0, 30.1, 29.9], "supported"),
        ("equal to", [33.0, 33.1, 32.9], [30.0, 30.1, 29.9], "refuted"),
        ("equal to", [30.6, 30.7, 30.5], [30.0, 30.1, 29.9], "supported"),  # another mean, and within the tolerance
        ("equal to", [31.0, 31.1, 30.9], [30.0, 30.1, 29.9], "undecided"),  # the tolerance is in the interval
        ("equal to", [31.0], [30.0, 30.1], "not tested"),
    ],
)
def test_a_verdict_is_computed_from_the_runs(
    relation: str, left: list[float], right: list[float] | float, word: str
) -> None:
    statement = Statement("BLEU", "a", relation, "b", 1.0)
    other = right if isinstance(right, float) else sample(right)
    assert verdict(statement, sample(left), other).startswith(word)


def test_a_measurement_is_kept_once_and_shown(tmp_path: Path) -> None:
    measured: list[tuple[str, int]] = []

    def measure(variant: str, seed: int, data: Path) -> Measurement:
        measured.append((variant, seed))
        score = seed + (10.0 if variant == "b" else 0.0)
        return Measurement({"score": score}, {"loss": [(1.0, score), (2.0, score / 2)]}, 2)

    statements = (Statement("score", "b", "above", "a"), Statement("score", "a", "above", 5.0))
    claim = Claim(
        "b beats a", "A paper", "A setting.", ("a", "b"), measure, statements, (Panel("loss", "step", "nats"),)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CLAIMS, "one", claim)
        run("one", [1, 2], tmp_path, tmp_path)
        run("one", [1, 2, 3], tmp_path, tmp_path)  # the first two seeds have a record
    assert sorted(measured) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3)]
    text = "\n".join(section("one", claim, tmp_path))
    assert "| a | 2 ± 1 | 3 |" in text
    assert "- score: b above a: **supported** (+10; +7.73 to +12.3)" in text
    assert "- score: a above 5.0: **refuted** (-3; -5.48 to -0.516)" in text
    draw("one", claim, tmp_path, tmp_path)
    assert (tmp_path / "claims-one.png").stat().st_size > 5_000
    # Without panels, the values are drawn: those of three runs of each variant, and their mean.
    (axes,) = page._values(replace(claim, panels=()), entries_of("one", claim, tmp_path)).axes
    assert [line.get_xdata().tolist() for line in axes.get_lines()] == [[1, 2, 3], [2], [11, 12, 13], [12]]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "score"


def test_a_value_of_some_seeds_only_is_shown_beside_the_others(tmp_path: Path) -> None:
    def measure(variant: str, seed: int, data: Path) -> Measurement:
        points = [(1.0, seed / 10), (2.0, seed / 20), *([(3.0, 0.01)] if seed == 1 else [])]
        return Measurement({f"score at {x:g}": y for x, y in points}, {"score": points}, 1)

    statements = (Statement("score at 1", "a", "above", 0.1), Statement("score at 3", "a", "above", 0.1))
    claim = Claim("a", "A paper", "A setting.", ("a",), measure, statements, (Panel("score", "x", "y", log_x=True),))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(CLAIMS, "one", claim)
        run("one", [2, 3, 1], tmp_path, tmp_path)
    entries = entries_of("one", claim, tmp_path)
    assert is_measured(claim, entries)
    found = samples(entries, "a")
    assert {name: each.number for name, each in found.items()} == {"score at 1": 3, "score at 2": 3, "score at 3": 1}
    text = "\n".join(section("one", claim, tmp_path))
    assert "| a | 0.2 ± 0.1 | 0.1 ± 0.05 | 0.01 | 3 |" in text
    assert "- score at 3: a above 0.1: **not** tested: two runs of each are needed" in text
    draw("one", claim, tmp_path, tmp_path)
    assert (tmp_path / "claims-one.png").stat().st_size > 5_000


@pytest.fixture
def few_reviews(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Reviews of two classes, and folders of runs that are not those of the claim."""
    for part, number in (("train", 400), ("test", 60)):
        rows = [{"text": f"{part} review {i}: {['bad', 'good'][i % 2]}", "label": i % 2} for i in range(number)]
        (tmp_path / f"imdb.{part}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    monkeypatch.setattr(ulmfit, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(ulmfit, "VALIDATION", 20)
    monkeypatch.setattr(ulmfit, "TEST", 30)
    ulmfit.reviews.cache_clear()
    return tmp_path


def test_all_variants_of_ulmfit_read_the_same_balanced_reviews(few_reviews: Path) -> None:
    one, again, other = (ulmfit.subsets(few_reviews, 100, seed) for seed in (1, 1, 2))
    assert one == again
    texts = {}
    for name, file in (*one.items(), ("other", other["data.dataset"])):
        rows = [json.loads(line) for line in Path(file).read_text().splitlines()]
        assert sum(row["label"] for row in rows) == len(rows) / 2
        texts[name] = {row["text"] for row in rows}
    assert [len(each) for each in texts.values()] == [100, 20, 30, 100]
    assert not texts["data.dataset"] & texts["data.validation"]
    assert texts["data.dataset"] != texts["other"]
    rest = ulmfit.subsets(few_reviews, ulmfit.ALL, 1)["data.dataset"]
    assert len(Path(rest).read_text().splitlines()) == 380


def test_each_variant_of_ulmfit_is_valid_and_differs_from_the_others(
    few_reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ulmfit, "language_model", lambda data, stages: Path("runs") / stages)
    for labels in (100, 2500, ulmfit.ALL):
        monkeypatch.setattr(ulmfit, "drawn", lambda rows, number, random: rows[:number])
        configurations = []
        for variant in ulmfit.VARIANTS:
            recipe, config, fields = ulmfit.fields(variant, labels, 1, few_reviews)
            script = load_recipe(ulmfit.ROOT / "recipes" / recipe / "train.py")
            path = ulmfit.ROOT / "recipes" / recipe / f"{config}.yaml"
            checked = load_config(script.Config, path, override_words(fields))
            script.validate(checked)
            configurations.append(repr(checked))
        assert len(set(configurations)) == len(configurations)


def test_the_students_of_a_text_differ_in_the_weight_of_the_teacher_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_distillation, "teacher", lambda data: data / "teacher")
    folder = text_distillation.ROOT / "recipes" / "distillation"
    script = load_recipe(folder / "train.py")
    weights, others = [], []
    for variant in text_distillation.VARIANTS:
        words = override_words(text_distillation.fields(variant, 2, tmp_path))
        config = load_config(script.Config, folder / "sst2_bilstm.yaml", words)
        script.validate(config)
        weights.append(config.distillation.alpha)
        config.distillation.alpha = 0
        others.append(repr(config))
    assert weights == [0.5, 0]
    assert others[0] == others[1]


def test_errors_of_ulmfit_come_from_runs_of_its_stages(few_reviews: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the claim, made small: stage 1, and a classifier from scratch and after it."""
    for part in ("train", "valid", "test"):
        text = "".join(f" = Title {i} = \n the film {i} was good and the end was bad .\n" for i in range(30))
        (few_reviews / f"wikitext-2.{part}.txt").write_text(text)
    small: dict[str, dict[str, Any]] = {
        "causal_lm": {
            "tokenizer": {"kind": "bpe", "vocab_size": 60}, "model.embedding_size": 8, "model.hidden_size": 8,
            "data.max_length": 10, "training.per_device_train_batch_size": 2, "training.max_steps": 4,
            "training.per_device_eval_batch_size": 2, "sample.prompts": ["film"], "sample.max_new_tokens": 2,
        },
        "classification": {"training.num_train_epochs": 1, "training.bf16": False},
    }  # fmt: skip
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")

    def train_small(recipe: str, config: str, fields: dict[str, Any], out: Path) -> dict[str, Any]:
        if not (out / "results.json").exists():
            folder = ulmfit.ROOT / "recipes" / recipe
            words = override_words({**fields, **small[recipe]})
            run_here(folder, monkeypatch, "--config", folder / f"{config}.yaml", "--output_dir", out, *words)
        return json.loads((out / "results.json").read_text())

    monkeypatch.setattr(ulmfit, "train", train_small)
    monkeypatch.setattr(ulmfit, "SIZES", (40,))
    monkeypatch.setattr(ulmfit, "FROM_SCRATCH_TOO", 60)
    measured = ulmfit.measure(ulmfit.SCRATCH, 2, few_reviews)
    results = json.loads((few_reviews / "runs" / "from-scratch" / "40-2" / "results.json").read_text())
    error = 1 - results["metrics"]["test"]["accuracy"]
    assert measured.values[ulmfit.error_at(40)] == error
    assert measured.values[ulmfit.COMPARED] == measured.values[ulmfit.error_at(60)]
    assert [x for x, _ in measured.curves["error"]] == [40, 60]
    first = load_language_model(str(few_reviews / "runs" / "language-model-1"))[0]
    untrained = load_language_model(str(few_reviews / "runs" / "language-model-0"))[0]
    assert first.config.to_diff_dict() == untrained.config.to_diff_dict()
    assert not torch.equal(first.lm_head.weight, untrained.lm_head.weight)
    assert results["model"]["base_model"] == "language-model-0"


def test_each_run_of_text_to_text_is_valid(tmp_path: Path) -> None:
    """And the scores that it is compared by are those of the metrics of its tasks."""
    script = load_recipe(text_to_text.ROOT / "recipes" / "text_to_text" / "train.py")
    path = text_to_text.ROOT / "recipes" / "text_to_text" / "mixture.yaml"
    for start in (None, tmp_path / "spans"):
        for tasks in (list(text_to_text.TASKS), *([task] for task in text_to_text.TASKS)):
            fields = text_to_text.fields(tasks, 1, tmp_path, start)
            config = load_config(script.Config, path, override_words(fields))
            script.validate(config)
            assert list(config.data.sections) == tasks
            assert (config.pretrained is None) == (start is None)
            for task, own in config.data.sections.items():
                assert own.metric == text_to_text.TASKS[task][0]
                assert own.dataset == "dates" or Path(own.dataset).parent == tmp_path


def test_scores_of_text_to_text_come_from_runs_of_its_mixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the claim, made small: span corruption, and models of two tasks and of each of them."""
    for part in ("train", "valid", "test"):
        text = "".join(f" = Title {i} = \n the film {i} was good and the end was bad .\n" for i in range(30))
        (tmp_path / f"wikitext-2.{part}.txt").write_text(text)
    for part, number in (("train", 60), ("dev", 12)):
        rows = [f"the film {i} was {['bad', 'good'][i % 2]}\t{i % 2}" for i in range(number)]
        (tmp_path / f"sst2.{part}.tsv").write_text("\n".join(["sentence\tlabel", *rows]) + "\n")
    for name in ("sick.txt", "spa-eng.txt"):
        (tmp_path / name).write_text("a negative or positive text\n")
    small: dict[str, Any] = {
        "tokenizer.vocab_size": 120, "model.hidden_size": 8, "model.intermediate_size": 8, "model.encoder_layers": 1,
        "model.decoder_layers": 1, "model.num_attention_heads": 1, "training.max_steps": 4, "evaluation.examples": 6,
        "data.tasks.dates.examples": 30, "data.tasks.dates.evaluation_examples": 6, "data.max_target_length": 24,
        "training.eval_strategy": "steps", "training.eval_steps": 2, "training.save_strategy": "steps",
        "training.save_steps": 2,
    }  # fmt: skip
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")

    def train_small(recipe: str, config: str, fields: dict[str, Any], out: Path) -> dict[str, Any]:
        if not (out / "results.json").exists():
            folder = text_to_text.ROOT / "recipes" / recipe
            is_pretrained, has_spans = "model" in fields, config == "wikitext2_spans"
            left_out = ("tokenizer.", "model.") if is_pretrained else ("data.tasks.",) if has_spans else ()
            own = {name: value for name, value in small.items() if not name.startswith(left_out or "-")}
            words = override_words({**fields, **own})
            run_here(folder, monkeypatch, "--config", folder / f"{config}.yaml", "--output_dir", out, *words)
        return json.loads((out / "results.json").read_text())

    monkeypatch.setattr(text_to_text, "train", train_small)
    monkeypatch.setattr(text_to_text, "RUNS", tmp_path / "runs")
    tasks = {task: text_to_text.TASKS[task] for task in ("sst2", "dates")}
    monkeypatch.setattr(text_to_text, "TASKS", tasks)
    for variant, names in (
        (text_to_text.EACH, ["sst2-1", "dates-1"]),
        (text_to_text.PRETRAINED, ["all-pretrained-1"] * 2),
    ):
        measured = text_to_text.measure(variant, 1, tmp_path)
        for (task, (score, points)), name in zip(tasks.items(), names, strict=True):
            results = json.loads((tmp_path / "runs" / name / "results.json").read_text())
            expected = points * results["metrics"]["test"]["tasks"][task][score]
            assert measured.values[text_to_text.value_of(task)] == expected
        assert measured.values.keys() == {text_to_text.value_of(task) for task in tasks} | {text_to_text.MEAN}
        assert measured.curves["validation"]
    assert (
        json.loads((tmp_path / "runs" / "all-pretrained-1" / "results.json").read_text())["model"]["base_model"]
        == "spans"
    )


def test_a_measurement_replaces_a_summary(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text('[{"variant": "a", "seeds": 2, "values": {"score": [3.0, 0.5]}}]')
    assert samples(read("old", tmp_path), "a") == {"score": Sample(3.0, 0.5, 2)}
    keep("old", "a", 1, Measurement({"score": 4.0}), {"hardware": "a slow one"}, tmp_path)
    assert samples(read("old", tmp_path), "a") == {"score": Sample(4.0, 0.0, 1)}


@pytest.mark.parametrize("cell", ["elman", "lstm", "gru"])
def test_gradient_norms_are_those_of_the_unrolled_network(cell: str) -> None:
    from hfattn import RNNEncoderConfig, RNNEncoderForSequenceClassification

    torch.manual_seed(0)
    model = RNNEncoderForSequenceClassification(
        RNNEncoderConfig(vocab_size=17, embedding_size=4, hidden_size=6, cell=cell)
    ).eval()
    text, _ = forgetting.texts(1, 4, torch.Generator().manual_seed(0))
    (layer,) = [module for module in model.modules() if isinstance(module, RecurrentCell)]
    inputs = layer.project(model.model.embed_tokens(text))
    direction = torch.randn(1, 6, generator=torch.Generator().manual_seed(0))
    start = tuple(torch.zeros(1, 6) for _ in range(layer.num_states))
    for step in range(2):
        start = layer.step(inputs[:, step], start)

    def last(*state: torch.Tensor) -> torch.Tensor:
        for step in range(2, 5):
            state = layer.step(inputs[:, step], state)
        return (direction * state[0]).sum()

    gradient = torch.autograd.functional.jacobian(last, start)
    expected = torch.cat(list(gradient), dim=-1).norm().item()
    assert dict(forgetting.gradient_norms(model, text))[3.0] == pytest.approx(expected, rel=1e-5)


def test_all_keys_of_hashing_rounds_are_all_earlier_keys() -> None:
    model = hashing_rounds.make(hashing_rounds.FULL).eval()
    sequences = hashing_rounds.duplicates(2, torch.Generator().manual_seed(0))
    assert torch.equal(sequences[:, : hashing_rounds.COPY], sequences[:, hashing_rounds.COPY :])
    for _ in range(2):  # the second pass hashes alike
        (weights,) = model(sequences, use_cache=False, output_attentions=True).attentions
        seen = torch.ones(hashing_rounds.LENGTH, hashing_rounds.LENGTH).tril(-1).bool()
        seen[0, 0] = True  # which sees no other key
        assert torch.equal(weights > 0, seen.expand_as(weights))
    with torch.no_grad():
        by_one_hash = hashing_rounds.make("1 round").eval()(sequences, use_cache=False, output_attentions=True)
    assert (by_one_hash.attentions[0] > 0).sum(-1).max() <= hashing_rounds.KEYS


def test_the_questions_of_recall_ask_for_what_was_told() -> None:
    ids, places = recall.sequences(8, 5, 20, torch.Generator().manual_seed(0))
    assert ids.shape == (20, 2 * 8 + 5 + 2 * recall.QUESTIONS)
    for row in ids:
        told = dict(row[: 2 * 8].view(8, 2).tolist())
        assert len(told) == 8
        assert set(row[2 * 8 : 2 * 8 + 5].tolist()) == {recall.DOT}
        asked = row[places].tolist()
        assert len(set(asked)) == recall.QUESTIONS
        assert [told[key] for key in asked] == row[places + 1].tolist()


@pytest.mark.parametrize("variant", recall.VARIANTS)
def test_a_variant_of_recall_reads_the_pairs_from_any_distance(variant: str) -> None:
    model = recall.make(variant).double().eval()
    ids, places = recall.sequences(4, 64, 2, torch.Generator().manual_seed(0))
    embeddings = model.get_input_embeddings()(ids).detach().requires_grad_()
    model(inputs_embeds=embeddings, use_cache=False).logits[:, places].sum().backward()
    assert embeddings.grad is not None
    assert (embeddings.grad[:, : 2 * 4] != 0).any(-1).all()


def test_a_memory_of_the_whole_text_reads_it_as_one_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segment after segment, with relative positions, and without a memory only what each segment has."""
    monkeypatch.setattr(transformer_xl, "SEGMENT", 8)
    model = transformer_xl.make(20, "relative_sinusoidal", 32).eval()
    text = torch.randint(3, 20, (2, 33), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = next_loss(model(text[:, :-1], use_cache=False).logits, text).item() / math.log(2)
    assert transformer_xl.bits_per_character(model, text, has_memory=True) == pytest.approx(whole, rel=1e-5)
    apart = torch.cat([text[:, start : start + 9] for start in range(0, 32, 8)])
    with torch.no_grad():
        alone = next_loss(model(apart[:, :-1], use_cache=False).logits, apart).item() / math.log(2)
    assert transformer_xl.bits_per_character(model, text, has_memory=False) == pytest.approx(alone, rel=1e-5)
    assert alone != pytest.approx(whole, rel=1e-5)


def test_self_distillation_of_a_claim_measures_its_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collapse, "STEPS", 2)
    monkeypatch.setattr(collapse, "LAST", 1)
    values = collapse.measure("centering and sharpening", 1, Path()).values
    assert 0 < values["entropy"] <= 1
    assert values["divergence"] >= 0
    assert 0.1 < values["accuracy"] <= 1


def test_each_variant_of_elmo_is_valid_and_differs_from_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(elmo, "language_model", lambda data: Path("runs") / "bilm")
    configurations = []
    for variant in elmo.VARIANTS:
        recipe, config, fields = elmo.fields(variant, 1, tmp_path)
        script = load_recipe(elmo.ROOT / "recipes" / recipe / "train.py")
        checked = load_config(script.Config, elmo.ROOT / "recipes" / recipe / f"{config}.yaml", override_words(fields))
        script.validate(checked)
        configurations.append(repr(checked))
    assert len(set(configurations)) == len(configurations)


def test_gains_and_shares_of_elmo_come_from_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the claim, made small: both stages of the language model, GloVe alone, and GloVe + ELMo."""
    for part in ("train", "valid", "test"):
        text = "".join(f" = Title {i} = \n the film {i} was good and the end was bad .\n" for i in range(30))
        (tmp_path / f"wikitext-2.{part}.txt").write_text(text)
    rows = [{"text": f"review {i}: {['bad', 'good'][i % 2]}", "label": i % 2} for i in range(200)]
    (tmp_path / "imdb.train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for part, number in (("train", 80), ("dev", 20)):
        lines = [f"film {i} was {['bad', 'good'][i % 2]}\t{i % 2}" for i in range(number)]
        (tmp_path / f"sst2.{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    np.save(tmp_path / "glove100d.f16.npy", np.ones((2, 100), np.float16))
    (tmp_path / "glove100d.words.txt").write_text("good\nbad\n")
    language_model: dict[str, Any] = {
        "data.max_length": 10, "training.per_device_train_batch_size": 2, "training.per_device_eval_batch_size": 2,
        "training.max_steps": 2, "sample.prompts": ["film"], "sample.max_new_tokens": 2,
    }  # fmt: skip
    small: dict[str, dict[str, Any]] = {
        "wikitext2_bilm": {**language_model, "tokenizer": {"kind": "bpe", "vocab_size": 60}, "model.hidden_size": 8},
        "imdb_bilm": {**language_model, "training.eval_steps": 2, "training.save_steps": 2},
    }
    classifier = {"training.max_steps": 4, "training.eval_steps": 2, "training.save_steps": 2, "training.bf16": False}
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")

    def train_small(recipe: str, config: str, fields: dict[str, Any], out: Path) -> dict[str, Any]:
        if not (out / "results.json").exists():
            folder = elmo.ROOT / "recipes" / recipe
            words = override_words({**fields, **small.get(config, {**classifier, "model.hidden_size": 4})})
            run_here(folder, monkeypatch, "--config", folder / f"{config}.yaml", "--output_dir", out, *words)
        return json.loads((out / "results.json").read_text())

    monkeypatch.setattr(elmo, "train", train_small)
    monkeypatch.setattr(elmo, "RUNS", tmp_path / "runs")
    measured = elmo.measure(elmo.BOTH, 2, tmp_path)
    plain, both = (
        json.loads((tmp_path / "runs" / name / "2" / "results.json").read_text()) for name in ("glove", "glove-elmo")
    )
    accuracy = both["metrics"]["test"]["accuracy"]
    assert measured.values[elmo.GAIN] == accuracy - plain["metrics"]["test"]["accuracy"]
    shares = both["model"]["contextual"]["mixtures"]["input"]["shares"]
    assert measured.curves["share"] == list(enumerate(shares))
    assert measured.values[elmo.MEAN_LAYER] == pytest.approx(shares[1] + 2 * shares[2])
    assert both["model"]["contextual"]["encoder"] == "imdb"
    assert "contextual" not in plain["model"]

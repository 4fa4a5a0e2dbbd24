"""Benchmarks: functions are checked and then timed in turn; records, pages and code agree."""

import math
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch.nn import functional

from benchmarks import (
    chunked_loss,
    efficient_attention,
    end_to_end,
    generation,
    harness,
    peers,
    startup,
    tokenizer_training,
    train_encoder,
    train_recurrent,
    train_transformer,
)
from benchmarks.__main__ import benchmarks
from benchmarks.harness import (
    Benchmark,
    Function,
    Group,
    Record,
    circumstances,
    facts,
    measure,
    save,
    times_table,
    write,
    written,
)
from benchmarks.lengths import crossing, crossings, exponents, memory_exponent
from hfattn import engine

CPU = torch.device("cpu")
LENGTHS = (512, 1024, 2048, 4096)


@pytest.fixture
def small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "MATRIX", 32)
    monkeypatch.setattr(harness, "COPIED", 2**12)
    monkeypatch.setattr(harness, "SHORTEST", 0.0)
    monkeypatch.setattr(harness, "PAUSE", 0.0)


def record_of(times: dict[str, dict[str, list[float]]], sizes: dict[str, dict[str, int]] | None = None) -> Record:
    """Return a record with a table "t" of times by column and row."""
    groups = [
        {"column": column, "gflops": 50.0, "gigabytes": 10.0, "bytes": (sizes or {}).get(column, {}), "cpu": rows}
        for column, rows in times.items()
    ]
    return Record({"t": {"facts": {**facts(1, CPU, 2), "load": 1.0}, "groups": groups}})


def test_every_benchmark_is_listed_with_a_sentence() -> None:
    listed = benchmarks()
    assert {"attention", "claims", "comparison", "efficient_attention", "leaks"} <= set(listed)
    assert "harness" not in listed
    assert all(sentence.endswith(".") for sentence in listed.values()), listed


@pytest.mark.usefixtures("small_machine")
def test_functions_are_timed_in_turn_after_the_check() -> None:
    called: list[str] = []
    functions: dict[str, Function] = {"a": lambda: called.append("a"), "b": lambda: called.append("b")}
    entry = measure(Group("1", functions, lambda: called.append("check")), 3, 1, CPU)
    assert called == ["check", *"ab", *"ababab"]  # the warm-up, then three rounds
    assert {name: len(times) for name, times in entry["cpu"].items()} == {"a": 3, "b": 3}
    assert set(entry["bytes"]) == set(entry["wall"]) == {"a", "b"}
    assert entry["gflops"] > 0
    assert entry["gigabytes"] > 0


@pytest.mark.usefixtures("small_machine")
def test_nothing_is_timed_if_an_output_is_wrong() -> None:
    def check() -> None:
        torch.testing.assert_close(torch.ones(1), torch.zeros(1))

    def function() -> None:
        raise RuntimeError("called")

    with pytest.raises(AssertionError):
        measure(Group("1", {"a": function}, check), 1, 1, CPU)


def test_the_memory_of_a_function_is_its_peak() -> None:
    def function() -> None:
        torch.ones(8_000_000)  # 32 MB, freed at once
        torch.ones(4_000_000)

    assert 31e6 < harness.peak_memory(function, CPU) < 40e6


def test_exponents_and_crossings_are_those_of_the_times() -> None:
    dense, linear = {n: 1e-9 * n**2 for n in LENGTHS}, {n: 2e-6 * n for n in LENGTHS}
    times = {f"{n:,}": {"full": [dense[n], 2 * dense[n]], "linear": [linear[n]] * 2} for n in dense}
    sizes = {f"{n:,}": {"full": n**2, "linear": 3 * n} for n in dense}
    record = record_of(times, sizes)
    assert exponents(record, "t", "full") == pytest.approx([2, 2])
    assert exponents(record, "t", "linear") == pytest.approx([1, 1])
    assert memory_exponent(record, "t", "full") == pytest.approx(2)
    assert crossings(record, "t", "linear") == pytest.approx([2000, 1000])  # where both take the same time
    assert crossing([(10, 0.5), (20, 0.4)]) == 0
    assert crossing([(10, 0.5), (20, 1.0)]) == math.inf


def test_a_table_has_medians_and_the_ratio_of_each_round() -> None:
    record = record_of({"10": {"a": [0.01, 0.03], "b": [0.005, 0.03]}, "20": {"a": [0.02, 0.02]}})
    assert times_table(record, "t", "n").splitlines()[2:] == ["| a | 20 | 20 |", "| b | 17.5 (**0.75**) | – |"]
    sentence = circumstances(record, "t")
    assert "one thread: median CPU time of 2 rounds" in sentence
    assert "50 to 50 GFLOP/s" in sentence


def test_a_report_is_written_between_the_markers(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- benchmark b -->\nold\n<!-- /benchmark b -->\nafter\n")
    benchmark = Benchmark("b", page, {}, lambda record: times_table(record, "t", "n"))
    record = record_of({"10": {"a": [0.01, 0.03]}})
    write(benchmark, record)
    assert written(benchmark) == times_table(record, "t", "n")
    assert page.read_text().startswith("before\n<!-- benchmark b -->\n| n | 10 |")
    assert page.read_text().endswith("<!-- /benchmark b -->\nafter\n")


@pytest.mark.usefixtures("small_machine")
def test_a_saved_record_is_read_again(tmp_path: Path) -> None:
    entry = measure(Group("1", {"a": lambda: None}, lambda: None), 2, 1, CPU)
    tables: dict[str, Any] = {"t": {"facts": facts(1, CPU, 2), "groups": [entry]}}
    save(tmp_path / "r.json", tables)
    assert Record.read(tmp_path / "r.json").columns == Record(tables).columns


def test_the_page_of_efficient_attention_is_what_its_record_says() -> None:
    benchmark = efficient_attention.BENCHMARK
    record = Record.read(benchmark.path)
    assert written(benchmark) == benchmark.report(record), "run python -m benchmarks efficient_attention --write"
    rows: dict[str, Iterable[str]] = {
        "causal": efficient_attention.CAUSAL,
        "encoder": efficient_attention.ENCODER,
        "layer": efficient_attention.LAYERS,
        "decoding": efficient_attention.DECODING,
    }
    assert set(record.columns) == set(benchmark.tables) == set(efficient_attention.TITLES)
    for table in record.columns:
        assert record.rows(table) == list(rows[table.partition(",")[0]])
        assert record.facts[table]["threads"] == 1


def test_the_patterns_of_efficient_attention_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = {name: make for name, make in efficient_attention.LAYERS.items() if name == "BERT, SDPA"}
    monkeypatch.setattr(efficient_attention, "LAYERS", dense)
    sizes = efficient_attention.Sizes(causal=(150,), encoder=(150,), layer=(64,), layer_training=(), decoding=(20,))
    for group in (group for make in efficient_attention.tables(sizes).values() for group in make(CPU)):
        group.check()
        for function in group.functions.values():
            function()


SPEED = [
    chunked_loss,
    end_to_end,
    generation,
    startup,
    tokenizer_training,
    train_encoder,
    train_recurrent,
    train_transformer,
]


@pytest.mark.parametrize("module", SPEED)
def test_the_page_of_speed_has_the_tables_of_the_record(module: Any) -> None:
    benchmark = module.BENCHMARK
    record = Record.read(benchmark.path)
    assert written(benchmark) == benchmark.report(record), f"run python -m benchmarks {benchmark.name} --write"
    assert set(record.columns) == set(benchmark.tables)


def test_marian_and_an_engine_with_the_weights_of_a_transformer_write_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "HF_HOME", str(tmp_path))
    torch.manual_seed(0)
    first = next(generation.transformer(CPU))
    first.check()
    assert list(first.functions) == [generation.MARIAN, generation.LOOP, generation.LEAN, *generation.ENGINES]


def test_the_steps_of_training_have_equal_losses_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_transformer, "PAIRS", 2)
    monkeypatch.setattr(train_transformer, "TOKENS", 5)
    torch.manual_seed(0)
    (group,) = train_transformer.groups(CPU)
    group.check()
    group.functions[train_transformer.SDPA]()
    with pytest.raises(AssertionError, match="hfattn, sdpa"):  # after a step, its weights are others
        group.check()


def test_the_steps_of_encoders_have_equal_losses_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"vocab_size": 60, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2}
    monkeypatch.setattr(train_encoder, "SIZES", {**sizes, "num_attention_heads": 2})
    monkeypatch.setattr(train_encoder, "LENGTHS", (5, 9))
    monkeypatch.setattr(train_encoder, "computes_bfloat16", lambda: True)
    torch.manual_seed(0)
    short, _ = train_encoder.groups(CPU)
    assert len(short.functions) == 12
    short.check()
    with patch.object(functional, "scaled_dot_product_attention", side_effect=KeyError):
        short.functions[f"{train_encoder.OURS}, {train_encoder.BFLOAT}"]()
        with pytest.raises(KeyError):
            short.functions[f"{train_encoder.FUSED}, {train_encoder.BFLOAT}"]()
    for _ in range(30):
        short.functions[f"{train_encoder.OURS}, {train_encoder.BFLOAT}"]()
    with pytest.raises(AssertionError, match="hfattn, sdpa"):  # after steps, its weights are others
        short.check()


@pytest.mark.parametrize("package", ["x_transformers", "jax"])
def test_a_translator_of_another_library_has_the_same_loss(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    pytest.importorskip(package, reason="the extra bench is not installed")
    monkeypatch.setattr(train_transformer, "PAIRS", 2)
    monkeypatch.setattr(train_transformer, "TOKENS", 5)
    torch.manual_seed(0)
    ours, batch = generation.transformer_model(), train_transformer.full_batch(CPU)
    expected = train_transformer.loss_of(ours.eval(), batch).item()
    if package == "jax":
        loss, step = peers.keras_peer(ours, batch)
    else:
        other = peers.XTransformersTranslator(ours)
        step = train_transformer.trained(other, batch)
        loss = lambda: train_transformer.loss_of(other.eval(), batch).item()  # noqa: E731
    assert loss() == pytest.approx(expected, rel=1e-5)
    step()
    assert loss() < expected


def test_the_steps_of_recurrent_models_have_equal_losses_and_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"WIDTH": 6, "V": 40, "EMBEDDING": 3, "ROWS": 2, "STEPS": {4: 2}}.items():
        monkeypatch.setattr(train_recurrent, name, value)
    for name, value in {"PAIRS": 2, "TOKENS": 5, "V": 40}.items():
        monkeypatch.setattr(train_transformer, name, value)
    torch.manual_seed(0)
    translators, (characters,) = list(train_recurrent.translators(CPU)), train_recurrent.character_models(CPU)
    assert len(translators) == 3
    for group in translators:
        group.check()
        group.functions[train_recurrent.CHUNKED]()
    characters.check()
    characters.functions[train_recurrent.TRAINER]()
    with pytest.raises(AssertionError, match="hfattn, plain loop"):  # both rows of that model are after a step
        characters.check()


def test_the_rows_of_onednn_stand_beside_the_first_one_of_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, str]] = []

    def note(row: str) -> None:
        found.append((row, torch.get_float32_matmul_precision()))

    group = harness.Group("column", {row: partial(note, row) for row in ("a", "b")}, partial(note, "check"))
    monkeypatch.setattr(train_recurrent, "uses_onednn", lambda matmul: True)
    (own,) = train_recurrent.by_onednn(iter([group]))
    own.check()
    for function in own.functions.values():
        function()
    assert list(own.functions) == ["a", "a, float32 by oneDNN", "b, float32 by oneDNN"]
    assert found == [("check", "medium"), ("a", "highest"), ("a", "medium"), ("b", "medium")]
    monkeypatch.setattr(train_recurrent, "uses_onednn", lambda matmul: False)
    assert not list(train_recurrent.by_onednn(iter([group])))


def test_batches_of_mixed_lengths_have_the_same_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MIXED": 24, "PAIRS": 8, "TOKENS": 10, "LONGEST": 10}.items():
        monkeypatch.setattr(train_transformer, name, value)
    torch.manual_seed(0)
    (group,) = train_transformer.mixed(CPU)
    group.check()
    by_tokens = list(group.functions)[-1]
    group.functions[by_tokens]()
    with pytest.raises(AssertionError, match="in chunks"):  # both rows of that model are after a step
        group.check()


def test_mixed_precision_has_nearly_the_same_losses_and_is_left_out_where_it_is_emulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"MIXED": 24, "PAIRS": 8, "TOKENS": 10, "LONGEST": 10}.items():
        monkeypatch.setattr(train_transformer, name, value)
    monkeypatch.setattr(train_transformer, "computes_bfloat16", lambda: False)
    assert not list(train_transformer.bfloat16(CPU))
    monkeypatch.setattr(train_transformer, "computes_bfloat16", lambda: True)
    torch.manual_seed(0)
    step, epoch = train_transformer.bfloat16(CPU)
    assert len(epoch.functions) == len(step.functions) + 1 == 9
    for group in (step, epoch):
        group.check()
    epoch.functions["Marian, sdpa, bfloat16"]()
    for _ in range(30):
        step.functions["Marian, sdpa, bfloat16"]()
    step.functions[f"Marian, eager, {train_transformer.ONEDNN}"]()
    assert torch.get_float32_matmul_precision() == "highest"  # of all else in the process
    with pytest.raises(AssertionError, match="Marian, eager"):  # the first row without these steps
        step.check()
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_loss_in_chunks_is_that_of_the_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked_loss, "SIZES", {**chunked_loss.SIZES, "vocab_size": 50, "num_hidden_layers": 1})
    monkeypatch.setattr(chunked_loss, "LLAMA_BATCH", (2, 5))
    monkeypatch.setattr(chunked_loss, "RECURRENT", {"wikitext2_ulmfit": (2, 5), "wikitext2_bilm": (2, 5)})
    torch.manual_seed(0)
    measured = list(chunked_loss.groups(CPU))
    assert [each.column for each in measured] == [chunked_loss.LLAMA, *chunked_loss.RECURRENT]
    for each in measured:
        each.check()
        each.functions[chunked_loss.CHUNKS]()


def test_training_ends_at_the_score_or_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"TRAINING": 200, "VALIDATION": 20, "PAIRS": 8, "SCORE": 0.0}.items():
        monkeypatch.setattr(end_to_end, name, value)
    monkeypatch.setitem(end_to_end.OPTIONS, "eval_steps", 2)
    monkeypatch.setitem(end_to_end.OPTIONS, "max_steps", 4)
    (group,) = end_to_end.end_to_end(CPU)
    group.check()
    for row, train in group.functions.items():
        train()
        train()
        assert capsys.readouterr().out == f"{row}, seed 0: 2 steps\n{row}, seed 1: 2 steps\n"
    monkeypatch.setattr(end_to_end, "SCORE", 1.0)
    with pytest.raises(AssertionError, match="hfattn, ReliableSeq2SeqTrainer: the score was not reached with seed 2"):
        group.functions[end_to_end.OURS]()


def test_the_time_of_a_process_that_is_started_counts() -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    cpu, wall = harness.clock(lambda: startup.started("-c", busy), 1, CPU)
    assert 0.3 <= cpu <= wall + 0.1

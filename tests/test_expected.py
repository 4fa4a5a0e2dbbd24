"""Expected and recorded results: the files beside the configurations, and the commands that read and write them."""

import dataclasses
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import ROOT
from typer.testing import CliRunner, Result

from hfattn.resources import load_recipe
from hfattn.training import load_config
from hfattn.training.bands import relative_deviation, sampling_error, transferred_deviation
from hfattn.training.config import split_overrides
from hfattn.training.expected import (
    PAGE,
    PLACES,
    SUFFIX,
    expected_files,
    is_tiny,
    judge,
    own_runs,
    read_expected,
    read_run,
    results_page,
    with_band,
    with_tiny_band,
    write_expected,
)
from hfattn_cli import app

RECIPES = ROOT / "recipes"
CONFIGURATIONS = sorted(path for path in RECIPES.glob("*/*.yaml") if path.parent.name != "accelerate")
TINY = ["--data.examples", "10", "--training.max_steps", "2"]
BLEU_SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
ROWS: list[dict[str, Any]] = [
    {"from": 1, "to": 10, "pairs": 30, "bleu": 40.0},
    {"from": 11, "to": 20, "pairs": 7, "bleu": 31.25},
    {"from": 21, "to": None, "pairs": 1, "bleu": 0.0},
]


def write_run(folder: Path, *words: str, bleu: float = 38.1234, config: str = "pairs", **fields: Any) -> Path:
    """What a run of the translation recipe leaves behind, as far as it is read here."""
    folder.mkdir(exist_ok=True)
    command = f"accelerate launch recipes/translation/train.py --config {config}.yaml --output_dir {folder.name}"
    facts = {
        "recipe": "translation",
        "config": config,
        "command": " ".join([command, *words]),
        "seed": 1,
        "versions": {"torch": "2.13.0"},
        "hardware": {"cpu": "A CPU", "threads": 1, "processes": 1},
        "data": {"name": "pairs.tsv"},
        "model": {"parameters": 1234567},
        "metrics": {
            "validation": {"bleu": 39.0, "runtime": 1.5},
            "test": {
                "bleu": bleu,
                "exact_match": 0.5,
                "steps_per_second": 3.5,
                "exact_match_by_kind": {"22.04.2019": 1.0, "22 April": 0.5},
                "signatures": {"bleu": BLEU_SIGNATURE},
                "by_source_length": ROWS,
                "beam": {"bleu": 41.5, "signatures": {"bleu": "of the beam"}, "by_source_length": ROWS[:2]},
            },
        },
        "training": {"steps": 12000, "epochs": 3.0, "wall_time_seconds": 4510.2},
        "selection": {"checkpoint": {"part": "validation", "metric": "loss"}, "settings": None},
    }
    (folder / "results.json").write_text(json.dumps({**facts, **fields}))
    return folder


EXPECTED: dict[str, Any] = {
    "metric": "metrics.test.bleu",
    "higher_is_better": True,
    "reference": {"value": 38, "source": "A et al. 2015, Table 1", "note": "lowercased | tokenized"},
    "tiny": {"overrides": TINY, "metric": "metrics.test.exact_match", "band": [0.25, 0.9]},
    "full": {"band": [37.5, 40], "aim": 38},
}


def written(folder: Path, name: str = "pairs", **fields: Any) -> Path:
    path = folder / f"{name}{SUFFIX}"
    path.write_text(json.dumps({**EXPECTED, **fields}))
    return path


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes of this test's own: the real scripts, with one configuration and what is expected of it."""
    folder = tmp_path / "recipes"
    for name in ("translation", "char_lm"):
        (folder / name).mkdir(parents=True)
        shutil.copy(RECIPES / name / "train.py", folder / name)
    shutil.copy(RECIPES / "translation" / "dates.yaml", folder / "translation" / "pairs.yaml")
    written(folder / "translation")
    written(folder / "char_lm", "novel", full={})
    monkeypatch.setattr("hfattn.resources.resource", lambda *parts: tmp_path / Path(*parts))
    return folder


def hfattn(*words: object) -> Result:
    return CliRunner().invoke(app, ["recipes", *map(str, words)])


# The files of the repository


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=[f"{path.parent.name}/{path.stem}" for path in CONFIGURATIONS])
def test_the_files_of_a_configuration_are_valid(path: Path) -> None:
    """Its header and fields, its tiny variant with a band, and the overrides of the recorded runs."""
    header = path.read_text().split("\n\n")[0]
    assert all(line.startswith("#") for line in header.splitlines())
    for word in ("Cost: ", "launch: ", "override: ", "resume: ", "Expected score: "):
        assert word in header
    expected = read_expected(path.with_name(path.stem + SUFFIX))
    assert expected.tiny.overrides
    assert expected.tiny.band is not None
    if expected.tiny.scores:  # those of make bands
        assert with_tiny_band(expected, expected.tiny.scores).tiny == expected.tiny
    assert with_band(expected, path).full == expected.full
    assert (expected.full.band is None) == (not own_runs(expected, path))
    for run in expected.full.recorded:  # a model in another folder is not another setting
        assert {name for name, _ in split_overrides(run.overrides) if name.endswith(".name")} <= PLACES
    recipe = load_recipe(path.parent / "train.py")
    plain = load_config(recipe.Config, path)
    recipe.validate(plain)
    tiny = load_config(recipe.Config, path, expected.tiny.overrides)
    recipe.validate(tiny)
    assert tiny != plain
    for recorded in expected.full.recorded:
        load_config(recipe.Config, path, recorded.overrides)


@pytest.mark.parametrize("script", sorted(RECIPES.glob("*/train.py")), ids=lambda script: script.parent.name)
def test_a_training_script_can_be_read_in_one_go(script: Path) -> None:
    lines = len(script.read_text().splitlines())
    assert lines <= 250


def test_each_expected_file_has_its_configuration() -> None:
    assert [path.with_name(path.name.removesuffix(SUFFIX) + ".yaml") for path in expected_files(RECIPES)] == [
        path for path in CONFIGURATIONS if path.with_name(path.stem + SUFFIX).exists()
    ]


def test_the_page_is_what_the_command_writes() -> None:
    assert (RECIPES / PAGE).read_text() == results_page(RECIPES)


# Reading


def test_a_file_is_read_and_written_as_it_is(tmp_path: Path) -> None:
    expected = read_expected(written(tmp_path))
    assert (expected.tiny.band, expected.full.band, expected.full.aim) == ([0.25, 0.9], [37.5, 40], 38)
    assert expected.reference is not None
    assert expected.reference.value == 38
    write_expected(tmp_path / "again.expected.json", expected)
    assert read_expected(tmp_path / "again.expected.json") == expected


RECORDED = {"score": 1.0, "seed": 1, "overrides": [], "parameters": 1, "hardware": {}, "training": {}, "data": {}}
BAD_FILES: list[tuple[dict[str, Any] | str, str]] = [
    ({"tinny": {}}, "pairs.expected.json: 'tinny' is not a field of this file; did you mean 'tiny'?"),
    ({"full": {"bnd": 1}}, "pairs.expected.json: full: 'bnd' is not a field of this file; did you mean"),
    ({"metric": None}, "metric"),
    ({"full": {"band": [2, 1]}}, "full: band is [2, 1]; write [low, high], or null."),
    ({"full": {"band": [2]}}, "full: band is [2]; write [low, high], or null."),
    ({"tiny": {"band": ["a", 1]}}, "pairs.expected.json: tiny: "),
    ({"tiny": 3}, "pairs.expected.json: tiny is 3; write an object of fields."),
    ({"tiny": {"overrides": "--a b"}}, "pairs.expected.json: tiny: "),
    ({"full": {"recorded": [RECORDED]}}, "full.recorded lacks the field 'metrics'; write it."),
    ({"reference": {"value": 1}}, "pairs.expected.json: reference lacks the field 'source'; write it."),
    (
        {"tiny": {"overrides": TINY, "band": [0, 40]}},
        "band is [0, 40], and metrics.test.bleu cannot be below 0 or above 100; narrow the band, or write",
    ),
    ("{", "is not valid JSON"),
    ("[1]", "is not an object of fields"),
    ("{}", "lacks the field"),
]


@pytest.mark.parametrize(("content", "message"), BAD_FILES)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, content: dict[str, Any] | str, message: str) -> None:
    path = written(tmp_path, **({} if isinstance(content, str) else content))
    if isinstance(content, str):
        path.write_text(content)
    done = hfattn("check", write_run(tmp_path / "run"), "--expected", path)
    assert (done.exit_code, message in done.stderr, done.stderr.count("\n")) == (2, True, 1), done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "no.expected.json"
    done = hfattn("check", write_run(tmp_path / "run"), "--expected", path)
    assert (done.exit_code, f"{path} was not found" in done.stderr) == (2, True)
    assert "a configuration's expected results stand beside its YAML file" in done.stderr


def without(name: str) -> Callable[[Path], None]:
    def cut(run: Path) -> None:
        results = json.loads((run / "results.json").read_text())
        del results[name]
        (run / "results.json").write_text(json.dumps(results))

    return cut


BAD_RUNS: list[tuple[str, Callable[[Path], Any], str]] = [
    ("no folder", shutil.rmtree, " was not found; give a folder that a recipe has written"),
    ("unfinished", lambda run: (run / "results.json").unlink(), "has not finished; continue it with --resume"),
    ("half", lambda run: (run / "results.json").write_text('{"recipe": '), "is not valid JSON"),
    ("another's", lambda run: (run / "results.json").write_text("[]"), "is not an object of fields"),
    ("no metrics", without("metrics"), "has no 'metrics', so no recipe wrote it"),
    (
        "not a number",
        lambda run: write_run(run, bleu=float("nan")),
        "contradicts itself: metrics.test.bleu is nan, outside",
    ),
    (
        "edited",
        lambda run: write_run(run, metrics={"test": {"bleu": 45.0, "bleu_lowercase": 39.0}}),
        "contradicts itself: metrics.test.bleu is 45, above 39, that of lowercased texts; copy results.json",
    ),
    ("command", lambda run: write_run(run, command="python -m this"), "has the command 'python -m this', which is"),
    ("unknown", lambda run: write_run(run, config="no_such"), "no_such.expected.json, which "),
    (
        "no score",
        lambda run: write_run(run, metrics={"test": {"exact_match": 1.0, "kinds": {"a": 0.5, "b.c": 1}, "runtime": 2}}),
        "has no score 'metrics.test.bleu'; it has metrics.test.exact_match, metrics.test.kinds.a.",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), [case[1:] for case in BAD_RUNS], ids=[case[0] for case in BAD_RUNS])
@pytest.mark.parametrize("command", ["check", "record"])
def test_a_wrong_run_is_one_sentence(
    recipes: Path, tmp_path: Path, spoil: Callable[[Path], Any], message: str, command: str
) -> None:
    run = write_run(tmp_path / "run")
    spoil(run)
    before = (recipes / "translation" / "pairs.expected.json").read_text()
    done = hfattn(command, run)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert (recipes / "translation" / "pairs.expected.json").read_text() == before
    assert not (recipes / PAGE).exists()


# Checking


@pytest.mark.parametrize(
    ("words", "bleu", "options", "code", "printed"),
    [
        ([], 38.1234, [], 0, "full run: metrics.test.bleu is 38.1234, expected 37.5 to 40: inside; aim 38: reached"),
        ([], 37.5, [], 0, "inside; aim 38: missed"),
        ([], 37.49, [], 1, "is 37.49, expected 37.5 to 40: outside"),
        ([], 41.0, [], 1, "outside, and better"),
        (["--push_to", "user/pairs"], 38.1234, [], 0, "full run"),  # the Hub is not asked
        (TINY, 3.0, [], 0, "tiny variant: metrics.test.exact_match is 0.5, expected 0.25 to 0.9: inside"),
        (["--training.max_steps=2", "--training.seed", "3", "--data.examples=10"], 3.0, [], 0, "tiny variant"),
        (["--training.max_steps", "2"], 3.0, [], 1, "full run"),
        (TINY, 38.0, ["--full"], 0, "full run"),
        ([], 3.0, ["--tiny"], 0, "tiny variant"),
    ],
)
def test_check(
    recipes: Path, tmp_path: Path, words: list[str], bleu: float, options: list[str], code: int, printed: str
) -> None:
    done = hfattn("check", write_run(tmp_path / "run", *words, bleu=bleu), *options)
    assert done.exit_code == code, done.output
    assert printed in done.stdout
    assert done.stdout.startswith("translation/pairs, ")


def test_lower_may_be_better_and_a_band_may_not_be_known_yet(recipes: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", bleu=1.0)
    path = written(recipes / "translation", higher_is_better=False)
    verdict = judge(read_run(run), read_expected(path))
    assert (verdict.inside, str(verdict).endswith("outside, and better; aim 38: reached")) == (False, True)
    written(recipes / "translation", full={})
    done = hfattn("check", run)
    assert done.exit_code == 2
    assert "scored 1 (metrics.test.bleu), and no full band is known yet; record 3 seeds" in done.stderr


@pytest.mark.parametrize(
    ("selection", "refusal"),
    [
        ({"checkpoint": None, "settings": None}, None),
        ({"checkpoint": {"part": "validation", "metric": "loss"}, "settings": None}, None),
        ({"checkpoint": {"part": "test", "metric": "bleu"}, "settings": None}, "its checkpoint was chosen on test"),
        (
            {"checkpoint": None, "settings": {"part": "test", "metric": "metrics.test.bleu", "trials": [{}, {}]}},
            "its settings were chosen on test",
        ),
    ],
)
def test_a_score_on_the_part_that_chose_the_run_is_refused(
    recipes: Path, tmp_path: Path, selection: dict[str, Any], refusal: str | None
) -> None:
    run = write_run(tmp_path / "run", selection=selection)
    checked, recorded = hfattn("check", run), hfattn("record", run)
    assert (checked.exit_code, recorded.exit_code) == ((0, 0) if refusal is None else (1, 2))
    if refusal is not None:
        assert f"; refused: {refusal}, the part that is reported" in checked.stdout
        assert f"cannot be recorded: {refusal}, the part that is reported; report another part" in recorded.stderr
        assert read_expected(recipes / "translation" / "pairs.expected.json").full.recorded == []


def test_a_file_without_a_tiny_variant_has_no_tiny_run(tmp_path: Path) -> None:
    expected = read_expected(written(tmp_path, tiny={}))
    assert not is_tiny(read_run(write_run(tmp_path / "run")), expected)


# Recording


def test_record_copies_the_facts_and_writes_the_page(recipes: Path, tmp_path: Path) -> None:
    path, gpu = recipes / "translation" / "pairs.expected.json", {"gpu": "A GPU", "threads": 8, "processes": 2}
    pairs = yaml.safe_load((recipes / "translation" / "pairs.yaml").read_text())["data"]["examples"]
    runs = [
        # What the YAML file says already, and the seed, make it no other run.
        write_run(tmp_path / "a", "--data.examples", str(pairs), "--training.seed", "1"),
        write_run(tmp_path / "b", "--training.seed", "2", seed=2, hardware={"cpu": "A CPU", **gpu}, bleu=37.0),
        write_run(tmp_path / "c", "--model.cell", "lstm", training={"steps": 5, "wall_time_seconds": 61.4}),
    ]
    done = hfattn("record", *runs)
    assert done.exit_code == 0, done.output
    first, second, other = read_expected(path).full.recorded
    by_length = [{"pairs": row["pairs"], "bleu": row["bleu"]} for row in ROWS]
    assert dataclasses.asdict(first) == {
        "score": 38.1234,
        "signature": BLEU_SIGNATURE,
        "seed": 1,
        "overrides": [],
        "parameters": 1234567,
        "hardware": {"cpu": "A CPU", "threads": 1, "processes": 1},
        "training": {"steps": 12000, "epochs": 3.0, "wall_time_seconds": 4510.2},
        "data": {"name": "pairs.tsv"},
        "metrics": {
            "validation": {"bleu": 39.0},
            "test": {
                "bleu": 38.1234,
                "exact_match": 0.5,
                "by_source_length": {"1-10": by_length[0], "11-20": by_length[1], "21+": by_length[2]},
                "beam": {"bleu": 41.5, "by_source_length": {"1-10": by_length[0], "11-20": by_length[1]}},
            },
        },
        "versions": {"torch": "2.13.0"},
        "selection": {"checkpoint": {"part": "validation", "metric": "loss"}, "settings": None},
    }
    assert (second.seed, second.score, other.overrides) == (2, 37.0, ["--model.cell", "lstm"])
    page = (recipes / PAGE).read_text()
    assert page == results_page(recipes)
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    chosen = "checkpoint: validation"  # two seeds of BLEU give no band
    reference = r"38 (A et al. 2015, Table 1; lowercased \| tokenized) | 1,234,567"
    assert rows == [
        f"| `pairs` | 38.12 bleu (test) | {chosen} | – | 38 (reached) | {reference} | 12,000 | 75 min "
        "| A CPU, 1 thread | 1 |",
        f"| `pairs` | 37 bleu (test) | {chosen} | – | 38 (missed) | {reference} | 12,000 | 75 min "
        "| A GPU, 2 processes | 2 |",
        f"| `pairs` `--model.cell lstm` | 38.12 bleu (test) | {chosen} | – | 38 (reached) | {reference} | 5 "
        "| 61 s | A CPU, 1 thread | 1 |",
    ]
    assert page.count(BLEU_SIGNATURE) == 1
    assert page.index("## translation") < page.index("## Not recorded")
    assert page.endswith("## Not recorded\n\nConfigurations without a recorded full run:\n\n- char_lm/novel\n")

    # The same seed and overrides again take the place of what was there.
    assert hfattn("record", write_run(tmp_path / "d", "--training.seed=2", seed=2, bleu=39.5)).exit_code == 0
    assert [run.score for run in read_expected(path).full.recorded] == [38.1234, 39.5, 38.1234]
    (recipes / PAGE).unlink()
    assert hfattn("record").exit_code == 0
    assert (recipes / PAGE).read_text() == results_page(recipes)


def test_the_score_of_a_beam_search_has_its_own_signature(recipes: Path, tmp_path: Path) -> None:
    path = written(recipes / "translation", metric="metrics.test.beam.bleu")
    assert hfattn("record", write_run(tmp_path / "run")).exit_code == 0
    (run,) = read_expected(path).full.recorded
    assert (run.score, run.signature) == (41.5, "of the beam")
    page = (recipes / PAGE).read_text()
    assert "| 41.5 beam bleu (test) | checkpoint: validation | – |" in page
    assert "- beam bleu (test): `of the beam`" in page


def test_overrides_that_need_each_other_are_recorded_together(recipes: Path, tmp_path: Path) -> None:
    words = ["--tokenizer.kind", "bpe", "--tokenizer.vocab_size", "500"]
    schedule = ["--schedule.name", "linear_warmup", "--schedule.warmup_steps", "100"]
    assert hfattn("record", write_run(tmp_path / "a", *words, *schedule)).exit_code == 0
    (recorded,) = read_expected(recipes / "translation" / "pairs.expected.json").full.recorded
    assert recorded.overrides == [*schedule, *words]


def test_what_is_not_recorded(recipes: Path, tmp_path: Path) -> None:
    """Bad runs leave everything as it was, the good ones before them included."""
    path = recipes / "translation" / "pairs.expected.json"
    before, good = path.read_text(), write_run(tmp_path / "good")
    for bad, message in (
        (write_run(tmp_path / "tiny", *TINY), "is a run of the tiny variant of translation/pairs; only full"),
        (
            write_run(tmp_path / "gone", "--model.hiden_size", "3", "--data.exampels", "3"),
            "mean 'data.examples'",
        ),
    ):
        done = hfattn("record", good, bad)
        assert done.exit_code == 2
        assert message in done.stderr
        assert (path.read_text(), (recipes / PAGE).exists()) == (before, False)


def test_a_recipe_of_ones_own_is_recorded_beside_itself(recipes: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    shutil.copytree(recipes / "translation", mine)
    before = (recipes / "translation" / "pairs.expected.json").read_text()
    run = write_run(tmp_path / "run", config="elsewhere")
    assert hfattn("record", run, "--expected", mine / "pairs.expected.json").exit_code == 0
    assert len(read_expected(mine / "pairs.expected.json").full.recorded) == 1
    assert (recipes / "translation" / "pairs.expected.json").read_text() == before
    assert not (recipes / PAGE).exists()


# Bands


def test_the_band_is_three_deviations_over_seeds(recipes: Path, tmp_path: Path) -> None:
    """Of the runs with the settings of the YAML file; a run of other settings, or without its test, may be outside."""
    path, scores = recipes / "translation" / "pairs.expected.json", (38.1, 37.0, 39.5)
    config = path.with_name("pairs.yaml")
    parts = "  test: test.tsv\n  split: [0.9, 0.1]\n  dataset: pairs.tsv "
    config.write_text(config.read_text().replace("  dataset: dates ", parts))
    seeds = [
        write_run(tmp_path / str(seed), "--training.seed", str(seed), "--data.dataset", "my.tsv", seed=seed, bleu=bleu)
        for seed, bleu in enumerate(scores, 1)
    ]
    others = [("--model.cell", "lstm"), ("--data.dataset", "my.tsv", "--data.test", "null")]
    runs = [write_run(tmp_path / words[-1], *words, bleu=3.0) for words in others]
    done = hfattn("record", *seeds, *runs)
    assert done.exit_code == 0, done.output
    half = 3 * math.sqrt(sum((score - 38.2) ** 2 for score in scores) / 2)
    full = read_expected(path).full
    assert full.band == pytest.approx([38.2 - half, 38.2 + half], abs=0.01)
    assert (full.band_from, full.band_reason) == ("3 seeds", None)
    assert f"Band of {path}: [37.5, 40] before, {full.band} now" in done.stdout
    page = (recipes / PAGE).read_text()
    assert "| 3 bleu (test) | checkpoint: validation | 34.44 to 41.96 (outside) |" in page


def test_a_band_of_one_seed_takes_the_deviation_of_another_configuration(recipes: Path, tmp_path: Path) -> None:
    tiny = {**EXPECTED["tiny"], "scores": [0.4, 0.5, 0.6]}
    path = written(recipes / "translation", tiny=tiny, full={"deviation_of": "translation/pairs"})
    assert hfattn("record", write_run(tmp_path / "run", bleu=40.0)).exit_code == 0
    full = read_expected(path).full
    assert full.band == pytest.approx([40 - 3 * 8, 40 + 3 * 8])
    assert full.band_from == "1 seed; relative deviation of the tiny translation/pairs, 3 seeds"
    written(recipes / "translation", full={"deviation_of": "char_lm/novel"})
    done = hfattn("record", write_run(tmp_path / "run"))
    assert (done.exit_code, "full.deviation_of names char_lm/novel, which has no 3 seeds" in done.stderr) == (2, True)


def test_the_band_of_a_share_is_as_wide_as_its_sampling_error(recipes: Path, tmp_path: Path) -> None:
    """Three deviations are about 3 / n where all of n examples are right."""
    path = written(recipes / "translation", metric="metrics.test.exact_match", full={"aim": 0.9})
    for right, low, high in ((500, 0.994, 1.0), (250, 0.5 - 3 * 0.0224, 0.5 + 3 * 0.0224)):
        metrics = {"test": {"exact_match": right / 500, "pairs": 500, "tokens": 4000}}
        assert hfattn("record", write_run(tmp_path / "run", metrics=metrics)).exit_code == 0
        full = read_expected(path).full
        assert full.band == pytest.approx([low, high], abs=2e-4)
        reason = "every seed scores 1, and three deviations reach beyond 1"
        assert full.band_reason == (reason if right == 500 else None)
        assert full.band_from == "1 seed; sampling error of the examples"


def test_the_sampling_error_of_a_search_by_image_is_that_of_the_images() -> None:
    """The texts are the answers; there were ten of them."""
    counts = {"examples": 270, "texts": 10}
    error = math.sqrt(0.75 * 0.25 / 270)
    assert sampling_error(0.75, "metrics.test.recall_at_1", counts) == pytest.approx(error, rel=0.02)
    by_text = sampling_error(0.75, "metrics.test.text_to_image_recall_at_1", counts)
    assert by_text == pytest.approx(math.sqrt(0.75 * 0.25 / 10), rel=0.1)


def test_a_perplexity_is_compared_by_its_logarithm() -> None:
    metric, scores = "metrics.test.perplexity_per_word", [90.0, 100.0, 110.0]
    share = relative_deviation(scores, metric)
    assert share == pytest.approx(
        relative_deviation([math.log(score) for score in scores], "metrics.test.nats_per_word")
    )
    assert transferred_deviation(share, 100.0, metric) == pytest.approx(10.0, rel=0.02)


# Comparing


def test_compare_prints_a_table_and_draws_it(tmp_path: Path) -> None:
    worse = [{**row, "bleu": row["bleu"] / 2} for row in ROWS]
    first = write_run(tmp_path / "a", config="with")
    second = write_run(tmp_path / "b", config="without", metrics={"test": {"by_source_length": worse}})
    done = hfattn("compare", first, second, "--output", tmp_path / "chart.png")
    assert done.exit_code == 0, done.output
    assert [line.split() for line in done.stdout.splitlines()[:4]] == [
        ["words", "pairs", "with", "without"],
        ["1-10", "30", "40.00", "20.00"],
        ["11-20", "7", "31.25", "15.62"],
        ["21+", "1", "0.00", "0.00"],
    ]
    assert (tmp_path / "chart.png").read_bytes()[:4] == b"\x89PNG"
    assert len(hfattn("compare", first, "--part", "test.beam").stdout.splitlines()) == 3
    same = hfattn("compare", first, write_run(tmp_path / "c", config="with"))
    assert same.stdout.splitlines()[0].split() == ["words", "pairs", str(first), str(tmp_path / "c")]


def test_bad_input_to_compare(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    fewer = write_run(tmp_path / "fewer", config="fewer", metrics={"test": {"by_source_length": ROWS[:2]}})
    none = write_run(tmp_path / "none", metrics={"test": {"accuracy": 1.0}})
    for words, message in (
        ([run, fewer], "pairs and fewer were measured on different pairs"),
        ([run, none], "has no BLEU by source length for 'test'; compare runs of the recipe translation"),
        ([run, "--part", "training"], "for 'training'; it has that for test"),
        ([run, "--output", tmp_path / "chart.html"], "end the name with .png, .svg or .pdf"),
        ([run, "--output", tmp_path / "no" / "chart.png"], "does not exist; create it first."),
        ([tmp_path / "nothing"], "nothing was not found"),
    ):
        done = hfattn("compare", *words)
        assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert message in done.stderr

"""The recipe and the command line as a user meets them: the README's commands, their results, and bad input."""

import json
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import yaml
from commands import (
    RECIPE,
    TINY,
    results_of,
    run,
    run_anew,
    run_here,
    steps,
    tiny_config,
    tiny_text,
    train,
    train_here,
    write_config,
    written,
)
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, Stated
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, BertConfig, BertModel
from typer.testing import CliRunner

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, CharRNNConfig, CharRNNForCausalLM
from hfattn.errors import UserError
from hfattn.models.recurrent_cells import cpu_has_bfloat16
from hfattn.resources import find_configuration, load_recipe
from hfattn.tokenizers import build_character_tokenizer
from hfattn.training import load_config, run_facts
from hfattn_cli import app

pytestmark = pytest.mark.runs

HFATTN = [sys.executable, "-m", "hfattn"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of the command that the README prints, on a small text of this test."""
    folder = tmp_path_factory.mktemp("finished")
    config = tiny_config(
        folder,
        tokenizer={"lowercase": True},
        training={"max_steps": 60, "report_to": ["tensorboard"], "bf16": "auto"},
        sample={"prompt": "the "},
        early_stopping_patience=50,
    )
    words = ["recipes/char_lm/train.py", "--config", config, "--output_dir", folder / "run"]
    done = run_anew(["accelerate", "launch", *words])
    assert done.returncode == 0, done.stderr
    (folder / "output.txt").write_text(done.stdout + done.stderr)
    return folder


def test_a_run_leaves_logs_and_its_last_checkpoints(finished: Path) -> None:
    folder = finished / "run"
    assert list((folder / "logs").glob("events*"))
    assert not list(folder.glob("*.part"))
    assert 1 <= len(list((folder / "checkpoints").glob("checkpoint-*"))) <= 2


def test_no_folder_of_the_machine_is_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute paths are shortened, also inside the mapping or list that a word gives a field."""
    monkeypatch.chdir(tmp_path)
    inside, outside = str(tmp_path / "runs" / "text.txt"), "/elsewhere/texts/other.txt"
    fields = {"name": outside, "more": [inside, "{sentence} [/no path]", 3]}
    words = [
        "--text.dataset",
        inside,
        f"--output_dir={outside}",
        "--model",
        json.dumps(fields),
        "--more",
        f"[{inside}]",
    ]
    configuration = {"model": fields, "template": "[/INST]"}  # a text, and not a list with a path
    facts = run_facts("recipe", Path("tiny.yaml"), configuration, 1, ["train.py", *words, "--resume", "{a: [/b"])
    shortened = {"name": "other.txt", "more": ["runs/text.txt", "{sentence} [/no path]", 3]}
    assert facts["configuration"] == {"model": shortened, "template": "[/INST]"}
    assert shlex.split(facts["command"]) == [
        *("accelerate", "launch", "train.py", "--text.dataset", "runs/text.txt", "--output_dir=other.txt"),
        *("--model", json.dumps(shortened), "--more", '["runs/text.txt"]', "{a: [/b"),
    ]


def test_results_say_what_was_measured_and_how(finished: Path) -> None:
    results = results_of(finished / "run")
    text = (finished / "text.txt").read_text()
    assert results["data"]["characters"] == len(text)
    assert results["data"]["vocabulary"] == len(set(text.lower()))
    assert results["data"]["name"] == "text.txt"
    assert re.fullmatch(r"[0-9a-f]{64}", results["data"]["sha256"])
    assert results["seed"] == 42
    assert results["training"]["steps"] == 60
    assert results["command"].startswith("accelerate launch recipes/char_lm/train.py --config")
    assert results["versions"]["torch"] == version("torch")
    for split, share in (("validation", 0.1), ("test", 0.1)):
        score = results["metrics"][split]
        assert score["characters"] == pytest.approx(share * len(text), abs=3)
        assert score["nats_per_character"] < results["data"]["unigram_entropy_nats"]
        assert score["perplexity"] == pytest.approx(2 ** score["bits_per_character"])
    # The reported loss is that of the published model on that part of the text.
    tokenizer_file = json.loads((finished / "run" / "tokenizer.json").read_text())
    assert tokenizer_file["normalizer"] == {"type": "Lowercase"}
    model = CharRNNForCausalLM.from_pretrained(finished / "run").eval()
    assert model.config.use_cache
    vocabulary = tokenizer_file["model"]["vocab"]
    ids = torch.tensor([[vocabulary[c] for c in text.lower()[int(0.9 * len(text)) :]]])
    nats = 0.0
    with torch.no_grad():
        for start in range(0, ids.shape[1] - 1, 16):
            start_ = min(start, ids.shape[1] - 17)
            window = ids[:, start_ : start_ + 17]
            log_probabilities = model(window[:, :-1]).logits.log_softmax(-1)
            each = -log_probabilities.gather(-1, window[:, 1:, None])[0, start - start_ :, 0]
            nats += each.sum().item()
    expected = results["metrics"]["test"]["nats_per_character"]
    assert nats / (ids.shape[1] - 1) == pytest.approx(expected, abs=2e-2)  # evaluated in bfloat16 where it exists


def test_progress_samples_and_the_summary_are_shown(finished: Path) -> None:
    output = (finished / "output.txt").read_text()
    assert "60/60" in output
    assert len(re.findall(r"step \d+, temperature 0\.8: 'the ", output)) == 6
    for line in ("unigram entropy", "bigram entropy", "this model, validation", "this model, test"):
        assert line in output
    for temperature in (0.2, 0.8, 1.5):
        assert f"--- temperature {temperature}\nthe " in output


def test_the_card_of_a_text_with_an_awkward_name_and_a_model_of_defaults(tmp_path: Path) -> None:
    text = tiny_text(tmp_path).rename(tmp_path / 'notes: draft #2 "x".txt')
    data = {"dataset": str(text), "max_length": 16}
    results = train_here(RECIPE, write_config(tmp_path, {"data": data, "training": steps(2)}))
    card = ModelCard.load(tmp_path / "run" / "README.md")
    assert card.data.eval_results[0].dataset_name == text.name
    assert "GRU language model" in card.text
    assert results["model"]["hidden_size"] == 128


def test_characters_that_the_vocabulary_lacks_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are one symbol, which is easier to predict than the characters, so the card and the summary say so."""
    text = tiny_text(tmp_path)
    words = text.read_text()
    text.write_text(words + words[: len(words) // 10].replace("e", "é"), encoding="utf-8-sig")
    data = {"dataset": str(text), "max_length": 16, "split": [0.8, 0.1, 0.1]}
    config = {"data": data, "tokenizer": {"unknown": True}, "training": steps(2)}
    results = train_here(RECIPE, write_config(tmp_path, config))
    number = text.read_text(encoding="utf-8-sig").count("é")
    assert results["data"]["unknown_characters"] == {"validation": 0, "test": number}
    assert results["data"]["characters"] == len(text.read_text(encoding="utf-8-sig"))  # without the mark of the file
    said = f"Of the characters of test, {number:,} are not in the vocabulary."
    assert said in (tmp_path / "run" / "README.md").read_text()
    assert f"{number:,} characters of test are [UNK]" in capsys.readouterr().out


def test_the_command_validates_a_configuration_with_overrides() -> None:
    validate = ["recipes", "validate", str(RECIPE / "strong.yaml")]
    assert CliRunner().invoke(app, [*validate, "--model.cell", "gru"]).exit_code == 0
    refused = run([*HFATTN, "recipes", "validate", RECIPE / "strong.yaml", "--model.cel", "gru"])
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: model: 'cel' is not a field of CharRNNConfig; did you mean 'cell'?\n",
    )


def test_validating_imports_nothing_that_trains(tmp_path: Path) -> None:
    """A configuration of each recipe, and one that lies elsewhere; models from scratch are checked too."""
    own = tmp_path / "own.yaml"
    own.write_text("recipe: classification\ndata: {dataset: my.csv}\nmodel: {model_type: rnn_encoder, cell: lstm}\n")
    names = (
        *("baselines/imdb_nb", "causal_lm/wikitext2_gpt2_scratch", "char_lm/gru128", "classification/sst2_minilm_lora"),
        *("classification/opinions_transformer", "distillation/sst2_bilstm", "masked_lm/wikitext2_vaswani"),
        *("image_classification/fashion_deit", "image_classification/fashion_cnn"),
        *("multiple_choice/spa_eng_transformer", "question_answering/facts_distilbert"),
        *("token_classification/names_bilstm", "translation/dates", "translation/multi30k_en_de_marian", str(own)),
    )
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from hfattn_cli import app\n"
        "for name in sys.argv[1:]:\n"
        "    done = CliRunner().invoke(app, ['recipes', 'validate', name])\n"
        "    assert done.exit_code == 0, (done.output, done.exception)\n"
        "slow = ['modeling_utils', 'trainer_utils', 'trainer', 'training_args', 'pipelines']\n"
        "slow = [f'transformers.{name}' for name in slow]\n"
        "slow += ['accelerate', 'datasets', 'evaluate', 'matplotlib', 'pandas', 'peft', 'scipy', 'sklearn']\n"
        "print([name for name in slow if name in sys.modules])\n"
    )
    done = run_anew([sys.executable, "-c", code, *names])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"


BAD: list[BadInput] = [
    ("--config no.yaml", "The configuration file no.yaml was not found"),
    (lambda f: ["--config", written(f / "broken.yaml", "data: [1, 2\nmodel: }")], "is not valid YAML"),
    ("--data.dataset no.txt", "no.txt was not found locally or on the Hub"),
    (lambda f: ["--data.dataset", written(f / "a.txt", "The end " * 4)], "and one window of 16 needs 17"),
    (
        lambda f: ["--data.dataset", written(f / "end.txt", "The end " * 90 + "ñ")],
        r"end\.txt has 'ñ' \(U\+00F1\), which is not in the tokenizer's vocabulary; .* with tokenizer.unknown: true",
    ),
    ("--sample.prompt ñ", "sample.prompt has 'ñ', which does not occur .*, or tokenizer.unknown: true"),
    ("--dta.window 8", "'dta' is not a field of this recipe; did you mean 'data'"),
    ("--data.max_lenth 8", "'data.max_lenth' is not a field of this recipe; did you mean 'data.max_length'"),
    ("--model.hiden_size 8", "did you mean 'hidden_size'"),
    ("--model.conditioning_size 8", "needs a vector for each text, and this recipe has none; remove it"),
    ("--training.learning_rat 1", "did you mean 'training.learning_rate'"),
    ("--data.max_length many", "data: 'max_length' expected int, got str .* write a value of that type"),
    ("--data.max_length 0", "data: max_length is 0; write a whole number of at least 1"),
    ("--model.embedding_dropout 1.5", "embedding_dropout is 1.5; write a probability"),
    ("--training.learning_rate -1", "training.learning_rate is -1; write a number above 0"),
    ("--training.learning_rate fast", "training.learning_rate is 'fast'; write a number"),
    ("--data.split '[0.5, 0.6]'", "does not consist of shares that add up to 1"),
    ("--training.output_dir x", "choose the folder of the run with --output_dir"),
    ("--training.seed -1", "training.seed is -1; write a number from 0 to"),
    ("--training.adam_beta1 1.5", "adam_beta1 is 1.5; write a number from 0 to"),
    ("--training.report_to [wandb]", "which is not installed; run: pip install wandb"),
    ("--sample.temperatures [1e-50]", "write numbers from 0.01 to 100"),
    ("--data.stride 17", "stride 17 skips characters; write at most max_length, 16"),
    ("--data.dataset ''", "dataset is empty; write 'embedded'"),
    ("--data.max_length.x 1", "write --data.max_length VALUE"),
    ("--output_dir /proc/nowhere/run", "check the path and its permissions"),
    ("--data.max_length", "override fields as --section.field value"),
    ("--tokenizer.min_count 2", "add unknown: true"),
]


class TestTheRecipe(FinishedRun, BadInputs):
    recipe, bad = "char_lm", BAD
    files: ClassVar[set[str]] = {*FinishedRun.files, "modeling_char_rnn.py"}
    stated: ClassVar[Stated] = {("accuracy", "next-character accuracy (test)"): ("test", "accuracy")}

    @pytest.fixture
    def configure(self) -> Configure:
        return tiny_config

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert f"{results['metrics']['test']['nats_per_character']:.4f}" in card.text
        assert results["samples"]["by_temperature"]["0.8"] in card.text
        assert printed.startswith("the ")


def test_overrides_mean_what_they_say(tmp_path: Path) -> None:
    recipe = load_recipe(RECIPE / "train.py")

    def loaded(*words: str) -> Any:
        return load_config(recipe.Config, tiny_config(tmp_path), list(words))

    for text in ("The ", "ROMEO: ", "No", "42", "# title", "a\nb", "--a=b", "null"):
        assert loaded("--sample.prompt", text).sample.prompt == text
        assert loaded(f"--sample.prompt={text}").sample.prompt == text
    assert loaded("--data.revision", "0123456").data.revision == "0123456"
    assert loaded("--data.revision", "null").data.revision is None
    assert loaded("--training.learning_rate", "1e-3").training["learning_rate"] == 1e-3
    assert loaded("--training.save_strategy", "no").training["save_strategy"] == "no"
    assert loaded("--data.split", "[10, rest]").data.split == [10, "rest"]
    assert loaded("--data.stateful", "true").data.stateful is True
    assert loaded("--early_stopping_patience", "null").early_stopping_patience is None
    empty = tmp_path / "empty.yaml"
    empty.write_text("model:\n")
    assert load_config(recipe.Config, empty, ["--model.cell", "lstm"]).model == {"cell": "lstm"}


def test_the_other_tracker(tmp_path: Path) -> None:
    config = tiny_config(tmp_path, training={"max_steps": 4, "report_to": ["trackio"]})
    command = [sys.executable, RECIPE / "train.py", "--config", config, "--output_dir", tmp_path / "run"]
    done = run(command, TRACKIO_DIR=str(tmp_path / "trackio"))
    assert done.returncode == 0, done.stderr
    assert list((tmp_path / "trackio").glob("*.db"))


def test_a_folder_that_holds_something_is_left_alone(
    tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    config = tiny_config(tmp_path)
    refused = train(config, "--output_dir", folder)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "is not empty; continue its run with --resume, or choose another with --output_dir" in refused.stderr
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    words = ["--config", config, "--resume", "--output_dir"]
    with pytest.raises(UserError, match="has no run to resume"):
        run_here(RECIPE, monkeypatch, *words, folder)
    assert [path.name for path in folder.iterdir()] == ["thesis.tex"]
    before = {path: path.stat().st_mtime_ns for path in (finished / "run").rglob("*")}
    with pytest.raises(UserError, match="already holds a finished run"):
        run_here(RECIPE, monkeypatch, *words, finished / "run")
    assert before == {path: path.stat().st_mtime_ns for path in (finished / "run").rglob("*")}


# The command line


def test_help_reads_well() -> None:
    for words, expected in (
        ([], ["generate", "score", "translate", "attend", "recipes", "doctor"]),
        (["generate"], ["--prompt", "--temperature", "--top-k", "--top-p", "--stream", "--seed"]),
        (["translate"], ["--num-beams", "--max-new-tokens"]),
        (["attend"], ["--output", "--num-beams", "--max-new-tokens"]),
        (["show"], ["heads", "flow", "rollout", "gradient", "integrated-gradients", "unit"]),
        (["recipes"], ["list", "copy", "validate"]),
    ):
        done = CliRunner(env={"COLUMNS": "200"}).invoke(app, [*words, "--help"])
        assert done.exit_code == 0
        assert all(word in done.stdout for word in expected)


def test_generate(finished: Path) -> None:
    options = [*HFATTN, "generate", finished / "run", "--prompt", "the quick", "--max-new-tokens", 30]
    done = run(options)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("the quick")
    assert len(done.stdout) == len("the quick") + 30 + 1
    assert run([*options, "--stream"]).stdout == done.stdout

    def generated(*words: str) -> str:
        return CliRunner().invoke(app, [*map(str, options[len(HFATTN) :]), *words]).stdout

    assert generated() == done.stdout
    assert generated("--seed", "1", "--temperature", "1.5") != done.stdout
    greedy = generated("--temperature", "0")
    assert greedy == generated("--temperature", "0", "--seed", "3")
    assert generated("--temperature", "0", "--num-beams", "3").startswith("the quick")


def test_score_is_what_the_recipe_measured(finished: Path) -> None:
    results = results_of(finished / "run")["metrics"]["test"]
    command = [*HFATTN, "score", finished / "run", finished / "text.txt"]
    done = run([*command, "--skip", 0.9, "--window", 16])
    assert done.returncode == 0, done.stderr
    printed = dict(line.split() for line in done.stdout.splitlines())
    assert int(printed["characters"]) == results["characters"]
    assert float(printed["nats_per_character"]) == pytest.approx(results["nats_per_character"], abs=2e-2)
    model = CharRNNForCausalLM.from_pretrained(finished / "run").eval()
    vocabulary = json.loads((finished / "run" / "tokenizer.json").read_text())["model"]["vocab"]
    ids = torch.tensor([[vocabulary[c] for c in (finished / "text.txt").read_text().lower()]])
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(model(ids[:, :-1]).logits[0], ids[0, 1:]).item()
    printed = dict(line.split() for line in run(command).stdout.splitlines())
    assert float(printed["nats_per_character"]) == pytest.approx(expected, abs=1e-4)
    assert int(printed["characters"]) == ids.shape[1] - 1
    words = ["score", finished / "run", finished / "text.txt", "--window", 100000]
    check_refused(words, "and one window of 100000 needs 100001")


def check_refused(words: Sequence[object], message: str) -> None:
    done = CliRunner().invoke(app, [*map(str, words)])
    assert (done.exit_code, done.stdout) == (2, ""), done.output
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_bad_input_to_generate(finished: Path, tmp_path: Path) -> None:
    tokenizer = build_character_tokenizer(["ab"])
    CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer))).save_pretrained(tmp_path / "no-tokenizer")
    (tmp_path / "empty").mkdir()
    folder = finished / "run"
    shutil.copytree(folder, tmp_path / "cut", ignore=shutil.ignore_patterns("checkpoints"))
    (tmp_path / "cut" / "model.safetensors").write_bytes(b"half")
    shutil.copytree(folder, tmp_path / "odd", ignore=shutil.ignore_patterns("checkpoints"))
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "odd" / "config.json").write_text(json.dumps({**config, "hidden_size": 7}))
    for words, message in (
        (["runs/no-such-run", "--prompt", "a"], "runs/no-such-run was not found locally or on the Hub"),
        ([tmp_path / "cut", "--prompt", "a"], "does not load as a"),
        ([tmp_path / "odd", "--prompt", "a"], "does not load as a"),
        ([tmp_path / "nothing", "--prompt", "a"], "was not found locally or on the Hub"),
        ([tmp_path / "empty", "--prompt", "a"], "holds no model: config.json is missing"),
        ([tmp_path / "no-tokenizer", "--prompt", "a"], "has no tokenizer"),
        ([folder, "--prompt", "¿"], "The text contains '¿', which is not in the model's vocabulary"),
        ([folder, "--prompt", ""], "The prompt is empty"),
        ([folder, "--prompt", "a", "--num-beams", 2], "write --temperature 0 with --num-beams"),
        ([folder, "--prompt", "a", "--stream", "--num-beams", 2, "--temperature", 0], "remove --stream or --num-beams"),
    ):
        check_refused(["generate", *words], message)


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of small random models: a translator, one without attention, and two that read."""
    folder = tmp_path_factory.mktemp("readers")
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["abcdefgh "], ends=True)
    size, sizes = {"vocab_size": len(tokenizer)}, {"embedding_size": 8, "hidden_size": 8}
    seq2seq = {**size, **sizes, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    plain = {"attention_score": None, "output_layer": "state", "embedding_size": 8, "encoder_direction": "forward"}
    models = {
        "translator": BahdanauForConditionalGeneration(BahdanauConfig(**seq2seq, encoder_hidden_size=4)),
        "no-attention": BahdanauForConditionalGeneration(BahdanauConfig(**{**seq2seq, **plain}, encoder_hidden_size=4)),
        "writer": CharRNNForCausalLM(CharRNNConfig(**size)),
        "transformer": BertModel(
            BertConfig(**size, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
        ),
    }
    for name, model in models.items():
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.5)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


def test_translate(readers: Path) -> None:
    done = run([*HFATTN, "translate", readers / "translator", "abc", "dad", "--max-new-tokens", 6, "--num-beams", 3])
    assert (done.returncode, done.stderr) == (0, "")
    model = AutoModelForSeq2SeqLM.from_pretrained(readers / "translator")
    tokenizer = AutoTokenizer.from_pretrained(readers / "translator")
    expected = [
        tokenizer.decode(
            model.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=6, num_beams=3)[0],
            skip_special_tokens=True,
        )
        for text in ("abc", "dad")
    ]
    assert done.stdout.splitlines() == expected


@pytest.mark.parametrize("name", ["translator", "transformer"])
@pytest.mark.parametrize(("file", "start"), [("a.html", b"<!doctype html>"), ("a.PNG", b"\x89PNG"), ("a.svg", b"<?xml"),
                                             ("a.pdf", b"%PDF")])  # fmt: skip
def test_attend_draws(readers: Path, tmp_path: Path, name: str, file: str, start: bytes) -> None:
    done = CliRunner().invoke(app, ["attend", str(readers / name), "a bad egg", "-o", str(tmp_path / file)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / file).read_bytes().startswith(start)
    assert [path.name for path in tmp_path.iterdir()] == [file]
    assert f"Written: {tmp_path / file}" in done.output


def test_attend_lists(readers: Path) -> None:
    done = run([*HFATTN, "attend", readers / "translator", "bad egg", "--max-new-tokens", 4])
    assert done.returncode == 0, done.stderr
    title, *lines = done.stdout.splitlines()
    assert title.startswith("bad egg → ")
    assert 1 <= len(lines) <= 4
    assert all(re.fullmatch(r"\S+ +← .*\d+%", line) for line in lines)


def test_bad_input_to_translate_and_attend(readers: Path, tmp_path: Path) -> None:
    translator = readers / "translator"
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "empty").mkdir()
    map_ = tmp_path / "map.html"
    for words, message in (
        (["translate", "runs/no-such-run", "abc"], "runs/no-such-run was not found locally or on the Hub"),
        (["translate", tmp_path / "empty", "abc"], "holds no model: config.json is missing"),
        (
            ["translate", readers / "writer", "abc"],
            "is a language model (CharRNNForCausalLM), not a translation model; use hfattn",
        ),
        (["translate", translator, "abc", " "], "A text is empty; give at least one character"),
        (["translate", translator, "abc", "abz"], "The text contains 'z', which is not in the model's vocabulary"),
        (["attend", translator, "", "-o", map_], "A text is empty"),
        (["attend", translator, "xyz", "-o", map_], "The text contains 'x'"),
        (["attend", "runs/no-such-run", "abc", "-o", map_], "was not found locally or on the Hub"),
        (["attend", translator, "abc", "-o", tmp_path / "map.jpg"], ".html, .png, .svg, .pdf, .gif, .jsonl or .csv"),
        (["attend", translator, "abc", "-o", tmp_path / "no" / "map.html"], "does not exist; create it first."),
        (["attend", translator, "abc", "-o", tmp_path / "folder.png"], "is a folder; give the name of a file"),
        (["attend", readers / "no-attention", "abc", "-o", map_], "has no attention; choose"),
        (["attend", readers / "writer", "abc", "-o", map_], "has no attention; choose"),
        (["attend", readers / "transformer", "abc", "--num-beams", "2"], "remove --num-beams"),
    ):
        check_refused(words, message)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "folder.png"]


def test_recipes_list_and_copy(tmp_path: Path) -> None:
    def hfattn(*words: object) -> Any:
        return CliRunner().invoke(app, [*map(str, words)])

    listed = hfattn("recipes", "list").stdout
    assert "char_lm" in listed
    assert "accelerate" not in [line.strip() for line in listed.splitlines()]
    assert "fsdp2" not in listed
    for path in RECIPE.glob("*.yaml"):
        assert re.search(rf"^  {path.stem} +\S", listed, re.MULTILINE)
    target = tmp_path / "mine"
    assert run([*HFATTN, "recipes", "copy", "char_lm", target]).returncode == 0
    assert (target / "quickstart.yaml").read_text() == (RECIPE / "quickstart.yaml").read_text()
    expected = "quickstart.expected.json"
    assert (target / expected).read_text() == (RECIPE / expected).read_text()
    assert hfattn("recipes", "validate", target / "quickstart.yaml").exit_code == 0
    config = tiny_config(tmp_path, training={"max_steps": 2})
    trained = run([sys.executable, target / "train.py", "--config", config], cwd=tmp_path)
    assert trained.returncode == 0, trained.stderr
    assert (tmp_path / "runs" / "char_lm-tiny" / "model.safetensors").exists()
    again = hfattn("recipes", "copy", "char_lm", target)
    assert (again.exit_code, "exists already" in again.stderr) == (2, True)
    unknown = hfattn("recipes", "copy", "char_ml", tmp_path / "other")
    assert (unknown.exit_code, "The recipe 'char_ml' was not found" in unknown.stderr) == (2, True)
    assert not (tmp_path / "other").exists()
    lonely = tmp_path / "lonely.yaml"
    lonely.write_text(yaml.safe_dump(TINY))
    assert (
        "names no recipe; write a line such as 'recipe: classification'" in hfattn("recipes", "validate", lonely).stderr
    )


def test_a_configuration_names_its_recipe(tmp_path: Path) -> None:
    def hfattn(*words: object) -> Any:
        return CliRunner().invoke(app, [*map(str, words)])

    hfattn("recipes", "copy", "char_lm", tmp_path / "mine")
    own = tmp_path / "elsewhere" / "own.yaml"
    own.parent.mkdir()
    for recipe, script in (("char_lm", RECIPE / "train.py"), ("../mine", tmp_path / "mine" / "train.py")):
        own.write_text(yaml.safe_dump({"recipe": recipe, **TINY}))
        found = find_configuration(own)
        assert (found.path, found.script.resolve()) == (own, script)
        assert hfattn("recipes", "validate", own).stdout == f"{own} is valid.\n"
    for wrong in ("char_ml", 3):
        own.write_text(yaml.safe_dump({"recipe": wrong, **TINY}))
        with pytest.raises(UserError, match=f"has the recipe {wrong!r}; write one of baselines, causal_lm, char_lm"):
            find_configuration(own)


def test_doctor() -> None:
    done = run([*HFATTN, "doctor"])
    assert done.returncode == 0, done.stderr
    bfloat16 = "with" if cpu_has_bfloat16() else "without"
    for line in (
        rf"^torch +{re.escape(version('torch'))} +hfattn$",
        rf"^accelerator +{'.' if torch.accelerator.is_available() else f'none, .* {bfloat16} bfloat16 instructions$'}",
        r"^generation +.*why_not_fast",
        r"^training +.*why_not_chunked",
        r"^matmul +auto is (on|off): ",
        r"^transformers +5\.",
    ):
        assert re.search(line, done.stdout, re.MULTILINE), done.stdout


def test_doctor_says_what_is_missing_and_how_to_get_it(tmp_path: Path) -> None:
    """Seen through the metadata of an installation that needs more than there is."""
    metadata = tmp_path / "hfattn-9.9.dist-info" / "METADATA"
    metadata.parent.mkdir()
    needs = ["torch>=2.11", "transformers>=99", "no-such-package>=2; extra == 'export'", "no-such-tool; extra == 'dev'"]
    metadata.write_text("Name: hfattn\nVersion: 9.9\n" + "".join(f"Requires-Dist: {need}\n" for need in needs))
    done = run([*HFATTN, "doctor"], PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert re.search(r"^no-such-package +missing +hfattn\[export\]$", done.stdout, re.MULTILINE)
    install = f"{sys.executable} -m pip install --upgrade"
    assert f"To install transformers>=99: {install} 'hfattn'" in done.stdout
    assert f"To install no-such-package>=2: {install} 'hfattn[export]'" in done.stdout
    assert "no-such-tool" not in done.stdout
    assert "Nothing is missing" not in done.stdout

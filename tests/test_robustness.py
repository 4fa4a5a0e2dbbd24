"""Every command ends with one sentence on wrong or hostile input: no traceback, no hang, and nothing half-written.

``ROBUSTNESS_MUTATIONS=3000 ROBUSTNESS_SEED=2 pytest tests/test_robustness.py`` searches for more; with
``ROBUSTNESS_ONLY="card,words nearest"`` only these commands.
"""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import yaml
from commands import ROOT, TINY, steps, tiny_text, train_here, write_config
from PIL import Image
from safetensors.torch import save_file
from tiny_models import TINY_BAHDANAU, labeled_file, tiny_captioner, tiny_model, tiny_sentence_encoder, tiny_teacher
from typer.main import get_command
from typer.testing import CliRunner

from hfattn_cli import app

pytestmark = pytest.mark.runs

MUTATIONS = int(os.environ.get("ROBUSTNESS_MUTATIONS", "100"))
SEED = int(os.environ.get("ROBUSTNESS_SEED", "1"))
ONLY = os.environ.get("ROBUSTNESS_ONLY")
LONGEST = 60  # seconds that a command may take
LONGEST_SENTENCE = 1200  # characters

# A call of each command in the folder ``laboratory``. Those that would train, serve or push have a wrong word that is
# read last.
CALLS = {
    "train": "--dry-run recipes/translation/dates.yaml --training.max_steps 100",
    "tune": "recipes/translation/dates.yaml search.yaml --training.no_such_field 1",
    "prompt": "--output_dir made/prompt prompt.yaml --shots 1",
    "evaluate": "runs/text text.txt",
    "generate": "runs/text --prompt The --max-new-tokens 3",
    "score": "runs/text text.txt",
    "classify": "runs/reviews 'A good story'",
    "predict": "runs/reviews reviews.tsv --output made/labeled.csv",
    "translate": "runs/dates 1794 --max-new-tokens 4",
    "caption": "runs/captions images/one.webp --output made/words.html --num-beams 2",
    "search": "runs/sentences 'a seven' sentences.txt --number 1 --index made/index.safetensors",
    "attend": "runs/dates 1794 --output made/map.html --max-new-tokens 4",
    "show heads": "runs/reviews 'A good story' --output made/heads.svg",
    "show flow": "runs/reviews 'A good story' --output made/flow.svg",
    "show rollout": "runs/reviews 'A good story'",
    "show gradient": "runs/reviews 'A good story'",
    "show integrated-gradients": "runs/reviews 'A good story' --output made/why.html",
    "show occlusion": "runs/reviews 'A good story' --target 1 --contrast 0",
    "show unit": "runs/text The --unit 1",
    "soup": "runs/reviews runs/reviews --output made/soup --set data.dataset=no.tsv",
    "card": "runs/text",
    "verify": "runs/text",
    "push": "runs/text user",
    "refresh": "runs/text",
    "reproduce": "runs/text --output_dir runs/text",
    "inspect": "runs/text --json",
    "convert": "char-rnn theirs.safetensors --config theirs.yaml --vocabulary theirs.json --output made/theirs",
    "export": "torch runs/text --output made/torch",
    "doctor": "",
    "recipes list": "",
    "recipes copy": "translation made/mine",
    "recipes validate": "recipes/translation/dates.yaml --training.max_steps 100",
    "recipes check": "runs/text --tiny --expected recipes/char_lm/quickstart.expected.json",
    "recipes record": "runs/text --expected recipes/char_lm/quickstart.expected.json",
    "recipes compare": "runs/dates runs/dates --output made/lengths.svg",
    "words in-context": "runs/sentences seven 'a seven' sentences.txt --number 1",
    "words nearest": "vectors.txt king - man + woman",
    "words analogies": "vectors.txt questions.txt",
    "data make": "reber --output made/data --rows 3 --evaluation-rows 3",
    "data show": "reviews.tsv",
    "data push": "data user",
    "space list": "",
    "space build": "attention_lab --output made/lab --model no=x",
    "space run": "space --port 1 --model no=x",
    "space push": "space user",
}
KEPT = {"tune": 2, "reproduce": 2, "space run": 4, "space build": 2}  # so many last words stay
FINDINGS = ("verify", "inspect", "recipes check", "reproduce")  # they end with 1 for what they have found
RARE = ("verify", "push", "refresh")  # they start a process for each folder: only in larger searches
ELSEWHERE = ("locked", "pipe", "model_cards", "spaces")  # no copies: a folder without permission, a pipe, links

DEEP = 3000
VALUES: list[Any] = [
    None, True, False, 0, -1, 1, 7, 0.5, 2**31, 2**63, -(2**63), 1e26, 10**400, 1e-320, float("nan"), float("inf"),
    -float("inf"), "", " ", "x" * 20_000, "two\nlines", "nul\0", "\ud800", "'\"{}%s{0}\\", "/dev/zero", "../..", "~",
    "auto", [], {}, [1, "a", None], [[]], {"a": {"b": 1}}, {"": None}, ["x"] * 500,
]  # fmt: skip
BOMB = "{a: &a [x, x, x, x, x, x, x, x], " + ", ".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 8)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
) + "}"  # fmt: skip
YAML_TEXTS = [
    BOMB, "[" * DEEP, "{a: " * DEEP + "1" + "}" * DEEP, "[" * DEEP + "]" * DEEP, "- " * DEEP, "? " * DEEP, "&a [*a]",
    "!!python/object/apply:os.system [exit]", "!!python/name:os.system", "!!int a", "!!float a", "!!bool a",
    "!!timestamp a", "!!binary a", "!!set {a}", "!!omap [a]", "!mine a", "2024-99-99", "2024-01-01", "9" * 5000,
    "1e999", "0x10", "=", "<<", "{<<: 1}", "{<<: {a: 1}}", "{[1]: 2}", "{1: 2}", "{null: 2}", "{true: 2}", "*nothing",
    "{a: 1, a: 2}", "&", "@", "`", "\t- a", '"\\0"', '"\\ud800"', '"\\x07"', "|\n  a\n b", "'", "a: b: c", "%YAML 9.9",
    "---\n---", "\ufeff", "~",
]  # fmt: skip
JSON_TEXTS = ["", " ", "{", "[" * 100_000, '{"a":' * 100_000, "null", "[]", "1", '"a"', "{}", "NaN", "9" * 5000, "\0"]
BYTES = [b"", b"\xff\xfe\x00", b"\xef\xbb\xbf{}", b"\x80" * 100, b"\0" * 100, b"PK\x03\x04", b"\x1f\x8b"]
WORDS = [
    "", " ", "-", "--", "---", "-x", "--no-such-option", "--help=1", "\n", "two\nlines", "nothing", "made",
    "/dev/null", "/dev/zero", "/dev/full", "/", ".", "..", "~", "~nobody/x", "locked", "locked/x", "pipe",
    "made/nothing/x.svg", "-1", "0", "1e26", "nan", "inf", "9" * 400, "x" * 300, "x" * 5000, "user/name",
    "user/name/x", "http://127.0.0.1:1/", "café", "\udcff", "\ud800", "🙂", "--set", "--set=", "--set=a",
    "--set=a=b\nc", "--set==", "--set=cell=[", "--training.x", "--training.x=1", "--data", "--data=1", "--data.",
    "--.=1", "--=1", "--a.b.c.d=1", "--model.options.x=&a [*a]", "--training.learning_rate=.nan",
    "--training.max_steps=" + "[" * DEEP, "--data.dataset=two\nlines", "--data.dataset=/dev/zero",
    "--data.dataset=pipe", "--output=made", "--output=/nothing/x", "--output=", "--split=", "--columns=,",
    "--columns=a,b,c,d", "--limit=1", "--threshold=nan", "--temperature=nan", "--temperature=inf",
    "--temperature=1e-300", "--top-p=nan", "--top-p=0", "--num-beams=1000000", "--max-new-tokens=1000000000000",
    "--seed=99999999999999999999", "--window=99999999999999999999", "--skip=nan", "--stride=5", "--layer=99",
    "--head=99", "--unit=99999999999999999999", "--target=nothing", "--target=99999999999999999999", "--target=²",
    "--accelerate=nothing", "--expected=nothing", "--rows=99999999999999999999999", "--number=99999999999999999999",
    "--words=nothing", "--first=99999999999999999999", "--config=nothing", "--revision=x", "--branch=\n", "--over=x",
    "--port=0", "--host=\n", "--part=x.y", "--json", "recipes/translation", "recipes/translation/train.py",
    "runs/text/model.safetensors", "runs/text/config.json", "text.txt", "runs/dates", "runs/text", "runs/reviews",
]  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the folder ``laboratory``, the present one, which holds all that ``CALLS`` names."""
    folder = tmp_path_factory.mktemp("laboratory")
    shutil.copytree(ROOT / "recipes", folder / "recipes", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "spaces" / "attention_lab", folder / "space", ignore=shutil.ignore_patterns("__pycache__"))
    data = {"dataset": "dates", "examples": 200, "evaluation_examples": 30, "max_target_length": 12}
    translator = {"data": data, "model": TINY_BAHDANAU, "sample": {"translations": 2, "alignments": 1}}
    writer = {**TINY, "data": {**TINY["data"], "dataset": str(tiny_text(folder))}}
    for name, recipe, sections in (("text", "char_lm", writer), ("dates", "translation", translator)):
        trained = tmp_path_factory.mktemp(recipe)
        train_here(ROOT / "recipes" / recipe, write_config(trained, {**sections, "training": steps(2)}))
        shutil.copytree(trained / "run", folder / "runs" / name, ignore=shutil.ignore_patterns("checkpoints", "logs"))
    tiny_teacher(folder / "runs" / "reviews", labeled_file(folder / "reviews.tsv", pairs=False))
    tiny_model(folder / "writer", "gpt2")
    tiny_captioner(folder / "runs" / "captions")
    tiny_sentence_encoder(folder / "runs" / "sentences")
    (folder / "images").mkdir()
    Image.new("RGB", (16, 16), "red").save(folder / "images" / "one.webp")
    gru = {f"rnn.{name}": tensor.detach() for name, tensor in torch.nn.GRU(6, 8).named_parameters()}
    ends = {"encoder.weight": torch.ones(7, 6), "decoder.weight": torch.ones(7, 8), "decoder.bias": torch.ones(7)}
    save_file({**gru, **ends}, folder / "theirs.safetensors")
    (folder / "data").mkdir()
    for name, text in {
        "search.yaml": "fields:\n  training.learning_rate: {low: 1e-4, high: 1e-2}\n  training.seed: [1, 2]\n",
        "prompt.yaml": "model: writer\ndata:\n  dataset: reviews.tsv\n  split: [0.8, 0.1, 0.1]\nmax_examples: 4\n"
        "template: '{text} It was'\nanswers: [bad, good]\n",
        "vectors.txt": "man 1 0\nwoman 0 1\nking 2 1\nqueen 1 2\n",
        "questions.txt": ": family\nman woman king queen\n",
        "theirs.json": json.dumps(list("abcdefg")),
        "theirs.yaml": "cell: gru\n",
        "unknown.tsv": "3 mäy 1794\t1794\n",
        "sentences.txt": "The dog was happy.\nWho wrote it?\n",
        "data/README.md": "---\nlicense: cc0-1.0\n---\n# Data\n",
        "data/train.jsonl": '{"text": "a"}\n',
    }.items():
        (folder / name).write_text(text)
    (folder / "made").mkdir()
    (folder / "locked").mkdir(mode=0)
    os.mkfifo(folder / "pipe")
    copy = tmp_path_factory.mktemp("original") / "laboratory"
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(*ELSEWHERE))
    for name in ("model_cards", "spaces"):
        (folder / name).symlink_to(ROOT / name)
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr("hfattn.resources.PACKAGE", folder / "package")  # recipes are those of the laboratory
        yield copy
    (folder / "locked").chmod(0o700)


def restore(original: Path) -> None:
    """Make the laboratory again what it was."""
    for path in sorted(Path().rglob("*"), reverse=True):
        there = original / path
        if path.name not in ELSEWHERE and not there.exists():
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
    for there in original.rglob("*"):
        path = there.relative_to(original)
        if there.is_dir():
            path.mkdir(exist_ok=True)
        elif not path.exists() or path.read_bytes() != there.read_bytes():
            shutil.copy2(there, path)


# How a command ends


class Hung(BaseException):
    """Nothing in a command catches it."""


def present() -> dict[str, tuple[int, int]]:
    """The files and folders of the laboratory, with the size and time of each file."""
    found = {path: path.lstat() for path in Path().rglob("*") if "__pycache__" not in path.parts}
    return {str(path): (stat.st_size, stat.st_mtime_ns) if path.is_file() else (0, 0) for path, stat in found.items()}


def complaint(command: str, words: list[str]) -> tuple[str | None, str]:
    """What is wrong with how a command ends, or None; and the sentence that it ends with."""

    def interrupt(*_: object) -> None:
        raise Hung

    before = present()
    handler = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(LONGEST)
    try:
        done = CliRunner().invoke(app, [*command.split(), *words], env={"COLUMNS": "200"})
    except Hung as error:
        return f"it hangs in {place(error)}", ""
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return f"{type(done.exception).__name__} in {place(done.exception)}: {str(done.exception)[:200]}", ""
    if done.exit_code == 0 or (done.exit_code == 1 and command in FINDINGS):
        return None, ""
    # A code of the card shows bars while it loads a model.
    lines = [line for line in done.stderr.strip().splitlines() if "Loading weights" not in line]
    usage = bool(lines) and lines[0].startswith(("Usage: ", "Error: "))  # of typer
    sentence = lines[-1] if usage else "\n".join(lines)
    if done.exit_code != 2:
        return f"it ends with {done.exit_code}", sentence
    if not re.match("Error: ." if usage else "error: .", sentence) or "\n" in sentence:
        return f"it does not end with one sentence, but {done.stderr[:500]!r}", sentence
    if len(sentence) > LONGEST_SENTENCE:
        return f"its sentence has {len(sentence)} characters", sentence
    if (after := present()) != before:
        return (
            f"it leaves {sorted(name for name in {**before, **after} if before.get(name) != after.get(name))}",
            sentence,
        )
    return None, sentence


def place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/site-packages/" not in frame.filename and frame.filename != __file__]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in [frames[-1], *reversed(own[-3:])])


def names(group: Any, name: str = "") -> Iterator[str]:
    """The names of all commands, such as "recipes list"."""
    for word, command in group.commands.items():
        yield from names(command, f"{name}{word} ") if hasattr(command, "commands") else [f"{name}{word}"]


def test_each_command_is_called_here() -> None:
    assert set(names(get_command(app))) == CALLS.keys()


# Random mutations


def spoiled_value(value: Any, random: Random) -> Any:
    """``value`` with another value, an unknown field or one field fewer, at a random place."""
    if not isinstance(value, dict | list) or not value or random.random() < 0.15:
        return random.choice(VALUES)
    copy = value.copy()
    key: Any = random.choice(list(copy) if isinstance(copy, dict) else range(len(copy)))
    kind = random.random()
    if kind < 0.1:
        del copy[key]
    elif kind < 0.15 and isinstance(copy, dict):
        copy[random.choice(["no_such_field", "", "a.b", f"{key}x"])] = random.choice(VALUES)
    else:
        copy[key] = spoiled_value(copy[key], random)
    return copy


def spoiled_text(text: str, texts: list[str], random: Random) -> str:
    """Another text, or ``text`` cut, or with a line twice, indented, or with another value after its colon."""
    lines = text.splitlines(keepends=True) or [""]
    line = random.randrange(len(lines))
    head, colon, _ = lines[line].partition(": ")
    match random.randrange(7):
        case 0:
            return random.choice(texts)
        case 1:
            return text[: random.randrange(len(text) + 1)]
        case 2:
            lines.insert(line, lines[line])
        case 3:
            lines[line] = f"  {lines[line]}"
        case _:
            lines[line] = f"{head}{colon or ' '}{random.choice(texts)}\n"
    return "".join(lines)


def spoiled_file(path: Path, random: Random) -> bytes:
    content = path.read_bytes()
    kind = random.random()
    if kind < 0.08:
        return random.choice(BYTES)
    if path.suffix in (".safetensors", ".webp"):
        cut = random.randrange(min(len(content), 200) + 1)
        changed = content[:cut] + b"\xff" + content[cut + 1 :]
        return random.choice([content[:cut], content[: len(content) // 2], changed])
    if path.suffix in (".json", ".yaml") and kind < 0.7:
        return json.dumps(spoiled_value(yaml.safe_load(content), random)).encode()
    texts = JSON_TEXTS if path.suffix == ".json" else [*YAML_TEXTS, *map(str, VALUES)]
    return spoiled_text(content.decode(), texts, random).encode("utf-8", "surrogatepass")


def spoiled_words(words: list[str], kept: int, random: Random) -> list[str]:
    """``words`` with one replaced, removed or inserted; the last ones and --dry-run are kept."""
    first = [word for word in words[:1] if word == "--dry-run"]
    words, last = words[len(first) : len(words) - kept], words[len(words) - kept :]
    kind = random.random()
    if words and kind < 0.5:
        words[random.randrange(len(words))] = random.choice(WORDS)
    elif words and kind < 0.65:
        del words[random.randrange(len(words))]
    else:
        words.insert(random.randrange(len(words) + 1), random.choice(WORDS))
    return first + words + last


def files_of(words: list[str]) -> list[Path]:
    """The files that a command would read."""
    found = [path for word in words if (path := Path(word)).is_file()]
    for folder in (Path(word) for word in words if word and Path(word).is_dir() and word != "made"):
        found += [path for path in sorted(folder.rglob("*")) if path.is_file() and path.suffix not in (".png", ".py")]
    return found


def test_random_mutations(original: Path) -> None:
    random, found = Random(SEED), {}
    commands = ONLY.split(",") if ONLY else [name for name in CALLS if name not in RARE or MUTATIONS > 500]
    for number in range(MUTATIONS):
        command = commands[number % len(commands)]
        words, what = shlex.split(CALLS[command]), "its words"
        if command in ("train", "recipes validate"):
            recipe = str(random.choice(sorted(Path("recipes").glob("*/*.yaml"))))
            words = [recipe if word.endswith(".yaml") else word for word in words]
        files = files_of(words)
        if files and random.random() < 0.7:
            file = random.choice(files)
            file.write_bytes(spoiled_file(file, random))
            what = f"{file}: {_shown(file.read_bytes(), (original / file).read_bytes())}"
        else:
            words = spoiled_words(words, KEPT.get(command, 0), random)
        problem, sentence = complaint(command, words)
        if problem is not None:
            found[problem] = (
                f"{problem}\n    {command} {[word[:80] for word in words]}\n    {what}\n    {sentence[:300]}"
            )
            print(f"\n{number}: {found[problem]}", flush=True)
        restore(original)
    assert not found, "\n".join(found.values())


def _shown(spoiled: bytes, content: bytes) -> str:
    start = next((i for i, (new, old) in enumerate(zip(spoiled, content, strict=False)) if new != old), 0)
    return repr(spoiled[max(start - 30, 0) : start + 60])


# The worst that was found

TINY_MODEL = "model: {model_type: bahdanau}\n"
ALIASES = "the alias *a is not supported; write the value again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training: " + "[" * DEEP, "values are nested deeper than 50 levels (line 1, column 60)"),
        (f"training: {BOMB}", ALIASES),
        ("training: &a {b: *a}", ALIASES),
        ("data: !!python/object/apply:os.system [exit]", "python/object/apply:os.system is not supported"),
        ("data:\ndata:", "the key 'data' occurs twice; remove one (line 2, column 1)"),
        ("training:\n  seed: " + "9" * 5000, "a number has 5000 digits; write a smaller one (line 2, column 9)"),
        ('data: {dataset: "a\\0b"}', "a text contains '\\x00'; remove that character"),
        (
            TINY_MODEL + "training: {learning_rate: 1e26}",
            "training.learning_rate is 1e+26; write a number from 0 to 1000.",
        ),
        (TINY_MODEL + "training: {learning_rate: .inf}", "training.learning_rate is inf; write a number above 0."),
        (
            TINY_MODEL + "training: {num_train_epochs: 1e26}",
            "training.num_train_epochs is 1e+26; write a number from 0 to 1e+06.",
        ),
        (TINY_MODEL + f"training: {{eval_steps: {10**400}}}", "; write a number of at most 4294967295."),
        (f"data: {{max_source_length: {10**30}}}", "which is too large; write a number of at most 4294967295."),
        ("model: {model_type: {a: 1}}", "model.model_type is {'a': 1}; write one of"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(original: Path, text: str, message: str) -> None:
    config = Path("recipes", "translation", "hostile.yaml")
    config.write_text(text)
    problem, sentence = complaint("recipes validate", [str(config)])
    config.unlink()
    assert (problem, message in sentence) == (None, True), (problem, sentence)


@pytest.mark.parametrize(
    ("call", "file", "content", "message"),
    [
        ("generate runs/text --prompt The", "config.json", '{"model_type": 5}', "correct config.json"),
        ("generate runs/text --prompt The", "config.json", "[" * 100_000, "correct config.json"),
        (
            "generate runs/text --prompt The",
            "tokenizer_config.json",
            "5",
            "correct tokenizer.json and tokenizer_config",
        ),
        ("generate runs/text --prompt The", "tokenizer.json", '{"model": {}}', "correct tokenizer.json"),
        ("score runs/text text.txt", "tokenizer_config.json", '{"model_max_length": "a"}', "correct tokenizer.json"),
        ("generate runs/text --prompt The", "generation_config.json", "[]", "correct config.json, generation_config"),
        (
            "translate runs/dates 1794",
            "generation_config.json",
            '{"eos_token_id": "a"}',
            "write a whole number, or null",
        ),
        (
            "translate runs/dates 1794",
            "generation_config.json",
            '{"max_length": 1e400}',
            "write a whole number, or null",
        ),
        ("score runs/text text.txt", "model.safetensors", "{}", "does not load as a language model"),
        ("card runs/text", "results.json", "[]", "results.json is not an object of fields"),
        ("card runs/text", "results.json", "{}", "has a field that the card cannot show (KeyError: 'recipe')"),
        ("card runs/text", "results.json", '{"' * 60_000, "results.json is not valid JSON"),
        ("verify runs/text", "manifest.json", '{"files": {"a": 1}}', "manifest.json is not a manifest"),
        ("recipes check runs/text", "results.json", '{"metrics": 1}', "has 1 as 'metrics', which no recipe writes"),
        ("export torch runs/text --output made/x", "tokenizer_config.json", "5", "correct tokenizer.json"),
    ],
)
def test_a_damaged_file_of_a_model_folder_is_named(
    original: Path, call: str, file: str, content: str, message: str
) -> None:
    command, *words = shlex.split(call)
    if command == "recipes":
        command, words = f"recipes {words[0]}", words[1:]
    folder = next(Path(word) for word in words if word.startswith("runs/"))
    (folder / file).write_text(content)
    problem, sentence = complaint(command, words)
    restore(original)
    assert (problem, message in sentence) == (None, True), (problem, sentence)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("soup", ["runs/a\nb", "runs/text", "--output", "made/soup"], "The run folder runs/a b was not found"),
        ("push", ["runs/text", "a b"], "a b"),
        ("verify", ["runs/nothing"], "runs/nothing was not found"),
        ("convert", ["char-rnn", "no", "--set", "a\nb", "--output", "made/x"], "--set a b is not NAME=VALUE"),
        ("score", ["runs/text", "/dev/zero"], "/dev/zero is neither a file nor a folder"),
        ("evaluate", ["runs/text", "pipe"], "pipe is neither a file nor a folder"),
        ("evaluate", ["runs/dates", "unknown.tsv"], "contain 'ä', which the vocabulary of the model lacks"),
        ("generate", ["~nobody/x", "--prompt", "a"], "~nobody/x was not found"),
        ("prompt", ["--output_dir", "new/folder", "prompt.yaml", "--answers", "[a]"], "answers"),
        ("recipes validate", ["recipes/translation/dates.yaml", "--training.x"], "override fields as --section.field"),
    ],
)
def test_words_that_cannot_be_are_refused(original: Path, command: str, words: list[str], message: str) -> None:
    problem, sentence = complaint(command, words)
    assert (problem, message in sentence) == (None, True), (problem, sentence)

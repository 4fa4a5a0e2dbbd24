"""Run the commands that an extra of pyproject.toml is for: python tests/extra_commands.py EXTRA FOLDER

`make extras` runs this file in environments that have only one extra installed, `make test` runs its part "base" where
only the modules that hfattn itself needs can be imported. It imports nothing of the development tools.
"""

import os
import sys
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", TRACKIO_DIR="trackio")

import torch
from huggingface_hub import constants
from tiny_models import tiny_model
from transformers import DistilBertForSequenceClassification
from typer.testing import CliRunner

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    CharRNNConfig,
    CharRNNForCausalLM,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.loading import save_translator
from hfattn.resources import load_recipe, resource
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

COMMIT = "0" * 40
SHORT = ["--training.max_steps", "2", "--training.eval_steps", "2", "--training.save_steps", "2"]
CHAR_LM = ["char_lm", "quickstart", "--model.hidden_size", "8", "--sample.max_new_tokens", "4", *SHORT]
NAMES = ["token_classification", "names_distilbert", "--model.name", "bert", "--data.max_length", "64", *SHORT]
NAMES += ["--data.examples", "40", "--data.evaluation_examples", "8"]

# What the commands say where an extra is missing.
MISSING = {
    "publish": ["data push numbers user/numbers", "verify writer"],
    "sign": ["push writer user/writer --sign key.pem", "verify writer --signer public.pem"],
    "recipes": [
        "score writer my.txt",
        "evaluate translator pairs.tsv",
        "recipes validate my.yaml",
        "data make dates -o d",
    ],
    "explain": ["attend translator abc --output map.png", "show integrated-gradients classifier abc"],
    "spaces": ["space run char_writer"],
    "export": ["export onnx classifier --output o", "export ctranslate2 transformer --output o"],
}


def make_models() -> None:
    """Make small random models of each kind in this folder, and data for them."""
    torch.manual_seed(0)
    tokenizer = build_character_tokenizer(["abcdefgh "], ends=True)
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    size = {"vocab_size": len(tokenizer), "embedding_size": 8, "hidden_size": 8}
    translator = BahdanauForConditionalGeneration(BahdanauConfig(**size, **ids, encoder_hidden_size=4))
    save_translator("translator", translator, tokenizer)
    layers = {"intermediate_size": 8, "num_attention_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 8, **layers}
    save_translator("transformer", VaswaniForConditionalGeneration(VaswaniConfig(**sizes, **ids)), tokenizer)
    CharRNNForCausalLM(CharRNNConfig(vocab_size=len(tokenizer))).save_pretrained("writer")
    tokenizer.save_pretrained("writer")
    tiny_model(Path("bert"))
    tiny_model(Path("classifier"))
    DistilBertForSequenceClassification.from_pretrained("bert").save_pretrained("classifier")
    Path("my.txt").write_text("abc fed hag " * 100)
    Path("pairs.tsv").write_text("abc\tcba\nfed\tdef\n")
    Path("numbers").mkdir()
    Path("numbers", "README.md").write_text("# Numbers\n")
    Path("numbers", "train.tsv").write_text("one\t1\n")


def command(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == code, (words, done.output, done.exception)
    print("passed: hfattn", *words)
    return done.stderr


def recipe(name: str, config: str, *words: str) -> None:
    """Run a recipe in this process: ``hfattn train`` starts another, which has to import everything again."""
    from hfattn.training import parse_command  # which most extras lack

    folder = resource("recipes", name)
    argv = ["train.py", "--config", str(folder / f"{config}.yaml"), *words]
    load_recipe(folder / "train.py").main(parse_command(name, "", argv))
    print("passed: recipe", name, *words)


def base() -> None:
    for extra, lines in MISSING.items():
        for line in lines:
            said = command(*line.split(), code=2)
            said = said.splitlines(keepends=True)[-1]  # after the bars of loading
            assert said.startswith("error: This needs "), said
            assert said.endswith(
                f", which is not installed; run: {sys.executable} -m pip install 'hfattn[{extra}]'\n"
            ), said
    command("doctor")
    command("recipes", "list")
    command("space", "list")
    command("translate", "translator", "abc")
    command("attend", "translator", "abc", "--output", "map.html")
    command("generate", "writer", "--prompt", "a", "--max-new-tokens", "3")
    command("inspect", "translator")
    command("export", "torch", "writer", "--output", "torch")


def publish() -> None:
    command("data", "push", "numbers", "user/numbers")


def sign() -> None:
    from keys import make_key  # it imports what other extras lack

    make_key(Path(), "key")
    command("card", "classifier")
    command("push", "classifier", "user/classifier", "--sign", "key.pem")


def recipes() -> None:
    command("train", "--dry-run", "char_lm/quickstart")
    recipe(*CHAR_LM, "--output_dir", "text")
    recipe(*NAMES, "--output_dir", "lora", "--tuning.method", "lora")
    command("recipes", "validate", str(resource("recipes", "translation", "dates.yaml")))
    command("score", "text", "my.txt")
    command("evaluate", "translator", "pairs.tsv")
    command("data", "make", "dates", "--output", "dates", "--rows", "9", "--evaluation-rows", "3")
    command("card", "text")
    command("verify", "text")
    command("attend", "translator", "abc", "--output", "map.png")


def baselines() -> None:
    recipe("baselines", "reviews_es", "--output_dir", "counts")
    vectors = [
        "--classifier.kind",
        "logistic",
        "--features.kind",
        "vectors",
        "--vectors.method",
        "word2vec",
        "--vectors.min_count",
        "1",
    ]
    recipe("baselines", "reviews_es", "--output_dir", "vectors", "--cleaning.word_form", "lemma", *vectors)


def data() -> None:
    Path("tickets.csv").write_text("text,label\nWhere is my parcel?,a\nI cannot log in today.,b\n")
    command("data", "show", "tickets.csv")


def tune() -> None:
    Path("search.yaml").write_text("fields: {model.hidden_size: [4, 8]}\ntrials: 1\n")
    command("tune", "classification/opinions", "search.yaml", "--data.examples", "40", *SHORT)


def rouge() -> None:
    size = ["--model.hidden_size", "8", "--model.intermediate_size", "8", "--tokenizer.vocab_size", "100"]
    task = [
        "--data.only",
        "[dates]",
        "--data.tasks.dates.examples",
        "20",
        "--data.tasks.dates.evaluation_examples",
        "4",
    ]
    recipe("text_to_text", "mixture", *task, "--data.tasks.dates.metric", "rouge", *size, *SHORT)


def trackio() -> None:
    recipe(*CHAR_LM, "--output_dir", "tracked", "--training.report_to", "trackio")


def in_the_cache(name: str, kind: str) -> None:
    """Make a model in the cache of the Hub, as if it were from there, as wide as a block of 4-bit weights."""
    repository = Path("hub", f"models--user--{name}")
    tiny_model(repository / "snapshots" / COMMIT, kind, width=64)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)


def quantization() -> None:
    """Updates beside weights in 4 and 8 bits, of a language model, and of an encoder that gets a new head."""
    constants.HF_HUB_CACHE = str(Path("hub").resolve())
    in_the_cache("base", "llama")
    in_the_cache("encoder", "distilbert")
    rows = [f"A {word} film, number {i}.\t{label}\n" for i in range(20) for label, word in enumerate(["bad", "good"])]
    Path("reviews.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    data = ["--data.dataset", "my.txt", "--data.split", "[0.6, 0.2, 0.2]", "--data.max_length", "16"]
    for bits in ("4bit", "8bit"):
        words = ["--output_dir", bits, "--model.name", "user/base", "--model.quantization", bits, *data]
        recipe("causal_lm", "shakespeare_mistral7b_qlora", *words, "--sample.max_new_tokens", "4", *SHORT)
        command("verify", bits)
        assert f"in {bits[0]} bits" in Path(bits, "README.md").read_text()
        assert not Path(bits, "model.safetensors").exists()
        words = ["--output_dir", f"head-{bits}", "--model.name", "user/encoder", "--model.quantization", bits]
        reviews = ["--data.dataset", "reviews.tsv", "--data.test", "null", "--data.split", "[0.6, 0.2, 0.2]"]
        recipe("classification", "sst2_minilm_lora", *words, *reviews, "--data.split_by", "text", *SHORT)
        command("verify", f"head-{bits}")
        command("classify", f"head-{bits}", "A good film.")


def explain() -> None:
    command("attend", "translator", "abc", "--output", "map.png")
    command("show", "integrated-gradients", "classifier", "A good film.", "--output", "gradients.png")


def spaces() -> None:
    command("space", "build", "char_writer", "--output", "space", "--model", "writer=writer")
    from hfattn.spaces.serving import check_space

    check_space(Path("space"))


def export() -> None:
    command("export", "onnx", "classifier", "--output", "onnx")
    command("export", "ctranslate2", "transformer", "--output", "ctranslate2")
    os.environ["HF_HOME"] = str(Path("home").resolve())  # where the export is kept
    command("translate", "transformer", "abc", "--engine", "ctranslate2", "--quantization", "int8")


COMMANDS = {
    f.__name__: f
    for f in (
        base,
        publish,
        sign,
        recipes,
        baselines,
        data,
        tune,
        rouge,
        trackio,
        quantization,
        explain,
        spaces,
        export,
    )
}


def main(extra: str, folder: str) -> None:
    os.chdir(folder)
    make_models()
    COMMANDS[extra]()


if __name__ == "__main__":
    main(*sys.argv[1:])

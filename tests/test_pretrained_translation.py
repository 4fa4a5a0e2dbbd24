"""The translation recipe from pretrained encoder-decoders: what they read and write, their languages, and LoRA."""

import json
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from commands import ROOT, printed_by_card, results_of, steps, train_here, write_config
from huggingface_hub import ModelCard
from recipe_contract import BadInput, BadInputs, Configure, FinishedRun, KilledRun, Stated, TwoProcesses
from tiny_models import POSITIONS, TRANSLATORS, tiny_model, tiny_translator
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, M2M100Tokenizer, MarianTokenizer
from transformers.models.m2m_100.tokenization_m2m_100 import FAIRSEQ_LANGUAGE_CODES
from typer.testing import CliRunner

import hfattn
from hfattn.data import EncodedPairs, Pair, Pairs
from hfattn.errors import UserError
from hfattn.evaluation import evaluate_folder
from hfattn.explaining import AttentionRecord
from hfattn.generated import date_pairs
from hfattn.hub.verify import verify
from hfattn.loading import ModelLocation, load_translation_model, loading_errors
from hfattn.metrics import ExactMatch
from hfattn.models.pipeline_attn_translation import source_prefix
from hfattn.resources import load_recipe
from hfattn.training import Seq2SeqCollator, TranslatorLocation, load_config, load_translator
from hfattn_cli import app

pytestmark = pytest.mark.runs

RECIPE = ROOT / "recipes" / "translation"
TINY: dict[str, dict[str, Any]] = {
    "data": {"dataset": "dates", "examples": 200, "evaluation_examples": 20},
    "training": {**steps(20, 10), "per_device_eval_batch_size": 20},
    "sample": {"translations": 2, "alignments": 1},
}
LANGUAGES: dict[str, dict[str, str]] = {
    "marian": {"prefix": ">>spa<< "},
    "mbart": {"source_language": "en_XX", "target_language": "es_XX"},
    "nllb": {"source_language": "eng_Latn", "target_language": "spa_Latn"},
    "t5": {"prefix": "translate English to Spanish: "},
}
KINDS = sorted(TRANSLATORS)
DATE = "April 22, 2019"


@cache
def dates() -> list[str]:
    return [text for pair in date_pairs("train", 300, seed=1) for text in (pair.source, pair.target)]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an encoder-decoder of each kind."""
    folder = tmp_path_factory.mktemp("translators")
    for kind in KINDS:
        tiny_translator(folder / kind, kind, dates())
    return folder


def model_section(models: Path, kind: str) -> dict[str, str]:
    return {"name": str(models / kind), **LANGUAGES.get(kind, {})}


def loaded_translator(models: Path, kind: str) -> Any:
    fields: dict[str, Any] = model_section(models, kind)
    return load_translator(TranslatorLocation(**fields), POSITIONS, POSITIONS)


# What a model reads and writes


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_labels_are_shifted_as_the_model_shifts_them(models: Path, kind: str) -> None:
    """The recipe computes the loss itself; the decoder must read what it reads if the model gets the labels."""
    loaded, tokenizer, _ = loaded_translator(models, kind)
    model = loaded.model.eval()
    pairs = Pairs("pairs", [Pair(DATE, "2019-04-22"), Pair("22 nov 1794", "1794")])
    encoded = EncodedPairs(pairs, tokenizer, tokenizer, 60, 60)
    assert [encoded[i]["labels"] for i in range(2)] == [tokenizer(text_target=pair.target).input_ids for pair in pairs]
    batch = Seq2SeqCollator(tokenizer, model)([encoded[0], encoded[1]])
    assert (batch["labels"][1] == -100).any()
    labels = batch.pop("labels")
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    real = labels != -100
    expected = model(**source, labels=labels).logits
    torch.testing.assert_close(model(**batch).logits[real], expected[real])


def test_languages_are_in_the_ids_of_both_sides(models: Path) -> None:
    loaded, tokenizer, _ = loaded_translator(models, "nllb")
    source, target, end = (tokenizer.convert_tokens_to_ids(token) for token in ("eng_Latn", "spa_Latn", "</s>"))
    encoded = EncodedPairs(Pairs("pairs", [Pair(DATE, "2019-04-22")]), tokenizer, tokenizer, 60, 60)
    ids, labels = encoded[0]["input_ids"], encoded[0]["labels"]
    assert (ids[0], ids[-1], labels[0], labels[-1]) == (source, end, target, end)
    assert loaded.model.generation_config.forced_bos_token_id == target
    # What is cut still begins with the language and ends with the end token.
    cut = EncodedPairs(Pairs("pairs", [Pair(DATE, "2019-04-22")]), tokenizer, tokenizer, 4, 3, too_long="cut")
    assert cut[0] == {"input_ids": [*ids[:3], end], "labels": [*labels[:2], end]}
    loaded, tokenizer, _ = loaded_translator(models, "mbart")
    code = tokenizer.convert_tokens_to_ids("es_XX")
    ids, labels = tokenizer(DATE).input_ids, tokenizer(text_target="2019").input_ids
    assert (ids[-1], labels[-1]) == (tokenizer.convert_tokens_to_ids("en_XX"), code)
    assert loaded.model.generation_config.decoder_start_token_id == code
    batch = Seq2SeqCollator(tokenizer, loaded.model)([{"input_ids": ids, "labels": labels}])
    assert int(batch["decoder_input_ids"][0, 0]) == code


def test_a_prefix_is_read_wherever_a_text_is_translated(models: Path, tmp_path: Path) -> None:
    """The prefix is in the configuration, so that the folder alone is enough."""
    loaded, tokenizer, _ = loaded_translator(models, "t5")
    loaded.model.generation_config.max_new_tokens = 6
    with torch.no_grad():  # so that a translation depends on its source
        for parameter in loaded.model.parameters():
            parameter.normal_(std=0.3)
    loaded.model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model, plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)

    def translated(text: str) -> str:
        return plain.decode(model.generate(**plain(text, return_tensors="pt"))[0], skip_special_tokens=True)

    expected = translated(f"translate English to Spanish: {DATE}")
    assert expected != translated(DATE)
    assert hfattn.predict(tmp_path, [DATE])[0]["translation"] == expected
    assert CliRunner().invoke(app, ["translate", str(tmp_path), DATE]).stdout == f"{expected}\n"
    (tmp_path / "pairs.tsv").write_text(f"{DATE}\t{expected}\n")
    assert evaluate_folder(str(tmp_path), str(tmp_path / "pairs.tsv"))["exact_match"] == 1.0
    with pytest.raises(UserError, match=r"threshold is not for the task of .*; leave it out"):
        evaluate_folder(str(tmp_path), str(tmp_path / "pairs.tsv"), threshold=0.5)
    record = hfattn.explain(tmp_path, DATE, "attention")
    assert isinstance(record, AttentionRecord)
    assert "".join(record.tokens).startswith("▁translate▁English")


def test_a_translator_remembers_what_it_was_told(models: Path, tmp_path: Path) -> None:
    """So that it can be trained further without languages and prefix."""
    for kind in ("nllb", "mbart", "t5"):
        loaded, tokenizer, _ = loaded_translator(models, kind)
        loaded.model.save_pretrained(tmp_path / kind)
        tokenizer.save_pretrained(tmp_path / kind)
        again, same, _ = load_translator(TranslatorLocation(name=str(tmp_path / kind)), POSITIONS, POSITIONS)
        assert same(DATE).input_ids == tokenizer(DATE).input_ids
        assert same(text_target=DATE).input_ids == tokenizer(text_target=DATE).input_ids
        assert source_prefix(again.model.config) == LANGUAGES[kind].get("prefix", "")
        told, kept = (each.model.generation_config.to_dict() for each in (loaded, again))
        assert {name: kept[name] for name in told if name.endswith("_id")} == {
            name: told[name] for name in told if name.endswith("_id")
        }
    location = TranslatorLocation(name=str(tmp_path / "t5"), prefix="")
    assert source_prefix(load_translator(location, POSITIONS, POSITIONS)[0].model.config) == ""


def test_a_missing_sentencepiece_is_said() -> None:
    wanted = "The tokenizer of a/b needs sentencepiece, which is not installed; run: pip install sentencepiece"
    with pytest.raises(UserError, match=wanted), loading_errors(ModelLocation(name="a/b"), "tokenizer"):
        raise ImportError("\nMarianTokenizer requires the SentencePiece library but it was not found.")


# Runs


def tiny_config(folder: Path, models: Path, kind: str, **fields: Any) -> Path:
    return write_config(folder, TINY, {"model": model_section(models, kind)}, fields)


@pytest.fixture(scope="module")
def finished(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of NLLB, with LoRA, smoothed labels and accumulated batches."""
    folder = tmp_path_factory.mktemp("finished")
    training = {"learning_rate": 5e-2, "label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2}
    tuning = {"method": "lora", "rank": 4}
    train_here(RECIPE, tiny_config(folder, models, "nllb", tuning=tuning, training=training))
    return folder


class TestTheRecipe(FinishedRun):
    recipe = "translation"
    files: ClassVar[set[str]] = {*FinishedRun.files, "adapter", "alignment-1.html"}
    pictures: ClassVar[tuple[str, ...]] = ("loss_curve.png", "alignment-1.png")
    stated: ClassVar[Stated] = {
        ("bleu", "BLEU (test)"): ("test", "bleu"),
        ("accuracy", "token accuracy (test)"): ("test", "token_accuracy"),
    }

    @pytest.fixture
    def configure(self, models: Path) -> Configure:
        return lambda folder, **sections: tiny_config(folder, models, "nllb", **sections)

    def check_card(self, card: ModelCard, printed: str, results: dict[str, Any]) -> None:
        assert "It translates from `eng_Latn` to `spa_Latn`" in card.text
        assert "| test | greedy, before | 0.0000 |" in card.text
        assert "trust_remote_code" not in card.text
        assert printed == f"{results['samples'][0]['translation']}\n"


def test_lora_leaves_a_whole_model_that_is_better_and_knows_its_languages(finished: Path, models: Path) -> None:
    results, run = results_of(finished / "run"), finished / "run"
    facts = results["model"]
    assert (facts["base_model"], facts["method"], facts["model_type"]) == ("nllb", "lora", "m2m_100")
    assert facts["trained_parameters"] < 0.2 * facts["parameters"]
    history = json.loads((max((run / "checkpoints").glob("checkpoint-*")) / "trainer_state.json").read_text())
    losses = [each["eval_nats_per_token"] for each in history["log_history"] if "eval_nats_per_token" in each]
    assert losses[-1] < losses[0]
    saved = json.loads((run / "tokenizer_config.json").read_text())
    assert (saved["src_lang"], saved["tgt_lang"]) == ("eng_Latn", "spa_Latn")
    assert not list(run.glob("*.py"))
    for score in results["metrics"].values():
        assert score["before"]["pairs"] == 20
        assert score["before"]["exact_match"] == 0.0
    # The scores before training are those of the pretrained model.
    model, tokenizer, _ = loaded_translator(models, "nllb")
    model.model.generation_config.max_new_tokens = 64
    pairs = date_pairs("test", 20, seed=results["seed"])
    texts = [
        tokenizer.decode(
            model.model.generate(**tokenizer(pair.source, return_tensors="pt"))[0], skip_special_tokens=True
        )
        for pair in pairs
    ]
    scores = ExactMatch().compute(predictions=texts, references=[pair.target for pair in pairs])
    assert results["metrics"]["test"]["before"]["exact_match"] == scores["exact_match"]


@torch.no_grad()
def test_the_scores_of_a_run_are_those_of_a_loop(finished: Path) -> None:
    score = results_of(finished / "run")["metrics"]["test"]
    model = AutoModelForSeq2SeqLM.from_pretrained(finished / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(finished / "run")
    nats, tokens = 0.0, 0
    for pair in date_pairs("test", 20, seed=results_of(finished / "run")["seed"]):
        inputs = tokenizer(pair.source, text_target=pair.target, return_tensors="pt")
        logits = model(**inputs).logits.log_softmax(-1)
        nats -= logits.gather(-1, inputs["labels"][..., None]).sum().item()
        tokens += inputs["labels"].shape[1]
    assert score["tokens"] == tokens
    assert score["nats_per_token"] == pytest.approx(nats / tokens, abs=2e-2)  # evaluated in bfloat16 where it exists


@pytest.mark.examples
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_verified_and_translates_the_same_without_hfattn(models: Path, tmp_path: Path, kind: str) -> None:
    training = {**steps(60, 30), "learning_rate": 3e-3, "label_smoothing_factor": 0.1}
    tuning = {"method": "full" if kind in ("bart", "nllb") else "lora", "rank": 8}
    card = {"license": "apache-2.0", "describes": "dates", "language": ["en", "es"]}
    config = tiny_config(tmp_path, models, kind, tuning=tuning, training=training, card=card)
    results, run = train_here(RECIPE, config), tmp_path / "run"
    report = verify(run, measure=[])
    assert report.passed, report.failures()
    texts = [sample["source"] for sample in results["samples"]]
    expected = [sample["translation"] for sample in results["samples"]]
    assert printed_by_card(run) == f"{expected[0]}\n"
    assert [each["translation"] for each in hfattn.predict(run, texts)] == expected
    assert (run / "adapter").exists() == (tuning["method"] == "lora")


@pytest.mark.examples
class TestResumedRuns(KilledRun, TwoProcesses):
    recipe, changed, loss = "translation", "--model.target_language deu_Latn", "nats_per_token"

    @pytest.fixture
    def configure(self, models: Path) -> Configure:
        return lambda folder, **sections: tiny_config(folder, models, "nllb", **sections)

    def killed(self, folder: Path) -> dict[str, Any]:
        options = {"dropout": 0.1}
        return {"tuning": {"method": "lora"}, "model": {"options": options}, "training": {"max_steps": 40}}

    def shared(self, folder: Path) -> dict[str, Any]:
        return {}


def test_models_with_sentencepiece(tmp_path: Path) -> None:
    """Marian models and M2M100 come with tokenizers that need the package sentencepiece."""
    sentencepiece = pytest.importorskip("sentencepiece")
    special = {"pad_id": 1, "eos_id": 2, "unk_id": 3, "bos_id": 0}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(dates()), model_prefix=str(tmp_path / "pieces"), vocab_size=90, minloglevel=2, **special
    )
    spm = str(tmp_path / "pieces.model")
    pieces = sentencepiece.SentencePieceProcessor(model_file=spm)
    names = [pieces.id_to_piece(i) for i in range(len(pieces))]
    vocabulary = tmp_path / "vocab.json"
    vocabulary.write_text(json.dumps({name: i for i, name in enumerate([*names, ">>deu<<", ">>spa<<"])}))
    marian = MarianTokenizer(source_spm=spm, target_spm=spm, vocab=str(vocabulary))
    codes = [f"__{code}__" for code in FAIRSEQ_LANGUAGE_CODES["m2m100"]]  # as published tokenizers have them
    m2m100 = M2M100Tokenizer(vocab_file=str(vocabulary), spm_file=spm, additional_special_tokens=codes)
    made = {"marian": marian, "nllb": m2m100}
    sections = {"marian": LANGUAGES["marian"], "nllb": {"source_language": "en", "target_language": "es"}}
    for kind, tokenizer in made.items():
        folder = tmp_path / kind
        folder.mkdir()
        name = str(tiny_translator(folder / "model", kind, dates(), tokenizer))
        config = write_config(folder, TINY, {"model": {"name": name, **sections[kind]}, "training": steps(4, 2)})
        results = train_here(RECIPE, config)
        sample = results["samples"][0]
        (translation,) = hfattn.predict(folder / "run", [sample["source"]])
        assert translation["translation"] == sample["translation"]
        assert (folder / "run" / "requirements.txt").read_text().splitlines()[2:] == ["sentencepiece"]
    loaded, tokenizer, _ = load_translation_model(str(tmp_path / "nllb" / "run"))
    assert tokenizer(DATE).input_ids[0] == tokenizer.get_lang_id("en")
    assert loaded.generation_config.forced_bos_token_id == tokenizer.get_lang_id("es")


# What is refused


def model(kind: str, **fields: str) -> Any:
    """Words that choose a model which the test makes."""

    def words(folder: Path) -> list[object]:
        if kind in TRANSLATORS:
            tiny_translator(folder / "other", kind, dates()[:60])
        else:
            tiny_model(folder / "other", kind)
        given = [word for name, value in fields.items() for word in (f"--model.{name}", value)]
        return ["--model.name", folder / "other", *given]

    return words


NLLB = {"source_language": "eng_Latn", "target_language": "spa_Latn"}
BAD: list[BadInput] = [
    (model("gpt2"), "is a model of type gpt2, not an encoder-decoder; .* with the recipe causal_lm.$"),
    (model("nllb"), "translates between 3 languages; write model.source_language, such as deu_Latn.$"),
    (model("nllb", source_language="eng_Latn"), "write model.target_language, such as"),
    (
        model("nllb", source_language="eng_Latn", target_language="spa_Lat"),
        "target_language is 'spa_Lat', which the tokenizer of .* does not know; write one such as spa_Latn",
    ),
    (model("t5", target_language="es"), "has no language codes; remove model.target_language, or write a model.prefix"),
    (
        model("marian", prefix='">>spb<<"'),
        "prefix is '>>spb<<', which .* does not know; write one such as >>spa<<, >>deu",
    ),
    (model("bart", prefix='">>spa<<"'), "which .* does not know; it has no languages, so remove it.$"),
    ("--data.max_source_length 65", f"data.max_source_length is 65; this model reads at most {POSITIONS} tokens"),
    ("--data.max_target_length 65", f"data.max_target_length is 65; this model reads at most {POSITIONS} tokens"),
    ("--tokenizer.kind word", "comes with its own tokenizer; remove the section tokenizer"),
    ("--tuning.layer_decay 0.9", "an encoder-decoder has two; write 1"),
    ("--tuning.method head_only", "trains a new head, and this model has a trained one; write full"),
    ("--tuning.method lora --tuning.merge false", "tuning.merge: false saves updates alone, .* language .*; remove it"),
    ("--tuning.method lora --model.quantization 4bit", "model.quantization saves updates alone, .*; remove it"),
    ("--training.sampled_softmax 5", "training.sampled_softmax is for models from scratch"),
    ("--model.hidden_size 5", "'model.hidden_size' is not a field of this recipe"),
]


class TestBadInputs(BadInputs):
    recipe, bad = "translation", BAD

    @pytest.fixture
    def configure(self, models: Path) -> Configure:
        return lambda folder, **sections: write_config(
            folder, TINY, {"model": {"name": str(models / "marian")}}, sections
        )


def test_fields_of_pretrained_models_are_not_for_others(tmp_path: Path) -> None:
    for section, message in (
        ({"model": {"model_type": "bahdanau", "prefix": "a"}}, "model.prefix is for a pretrained model; write its"),
        ({"tuning": {"method": "lora"}, "model": {"model_type": "bahdanau"}}, "trains all weights; remove the section"),
    ):
        recipe = load_recipe(RECIPE / "train.py")
        with pytest.raises(UserError, match=message):
            recipe.validate(load_config(recipe.Config, write_config(tmp_path, TINY, section), []))

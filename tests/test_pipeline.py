"""The pipeline task "attn-translation", in this process and in one without hfattn."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import OUTSIDE, run
from hub_server import HubServer
from huggingface_hub.errors import StrictDataclassClassValidationError
from transformers import AutoTokenizer, GenerationConfig, MarianConfig, MarianMTModel, pipeline
from typer.testing import CliRunner

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.errors import UserError
from hfattn.explaining import AttentionRecord
from hfattn.generation import translate_texts
from hfattn.loading import load_reading_model, load_translation_model, save_translator
from hfattn.pipelines import AttnTranslationPipeline
from hfattn.tokenizers import build_character_tokenizer
from hfattn_cli import app

pytestmark = pytest.mark.runs

TEXTS = ["i like football", "go", "good morning", "ball"]
TOKENIZER = build_character_tokenizer(["abcdefghijklmnopqrstuvwxyz "], ends=True)
V = len(TOKENIZER)
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def make(name: str) -> Any:
    torch.manual_seed(0)
    model: Any
    if name == "vaswani":
        model = VaswaniForConditionalGeneration(VaswaniConfig.preset("small", vocab_size=V, **IDS))
        model.set_attn_implementation("sdpa")
    elif name == "marian":
        sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in
                 (("layers", 1), ("attention_heads", 2), ("ffn_dim", 16))}  # fmt: skip
        model = MarianMTModel(
            MarianConfig(vocab_size=V, d_model=16, max_position_embeddings=40, forced_eos_token_id=None, **sides, **IDS)
        )
    else:
        options = {"hidden_size": 16, "embedding_size": 8, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0}
        options["encoder_hidden_size"] = 16 if name == "sutskever2014" else 8
        config = BahdanauConfig(vocab_size=V, **{**options, **IDS})
        if name == "sutskever2014":
            config = BahdanauConfig.preset(name, vocab_size=V, source_vocab_size=V, **{**options, **IDS})
        model = BahdanauForConditionalGeneration(config)
    with torch.no_grad():  # far enough from uniform for its translations to differ
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:  # tables of positions stay
                parameter.normal_(std=0.5)
    return model.double().eval()


def translator(name: str) -> Any:
    return pipeline("attn-translation", model=make(name), tokenizer=TOKENIZER, device="cpu")


def written(translation: dict[str, Any]) -> list[int]:
    return TOKENIZER.convert_tokens_to_ids(list(translation["alignment"].target_tokens))


@torch.no_grad()
def check(model: Any, text: str, translation: dict[str, Any]) -> None:
    """Text, score and alignment against one teacher-forced pass over the translation, without padding."""
    model = make(model)
    model.set_attn_implementation("eager")
    source, target = TOKENIZER(text, return_tensors="pt").input_ids, written(translation)
    again = model(input_ids=source, decoder_input_ids=torch.tensor([[1, *target[:-1]]]), output_attentions=True)
    expected = again.logits[0].log_softmax(-1)[range(len(target)), target].sum().item()
    assert translation["score"] == pytest.approx(expected, rel=1e-4, abs=1e-4)
    record = translation["alignment"]
    torch.testing.assert_close(
        record.weights, torch.stack([layer[0] for layer in again.cross_attentions]), rtol=1e-9, atol=1e-12
    )
    assert record.tokens == (*text, "[EOS]")
    assert translation["translation_text"] == TOKENIZER.decode(target, skip_special_tokens=True)


@pytest.mark.parametrize("name", ["bahdanau", "vaswani", "marian"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 4}, {"do_sample": True, "temperature": 1.5, "top_k": 5}])
def test_a_translation(name: str, options: dict[str, Any]) -> None:
    """The score is the model's own, whatever the search did with it: length penalty, temperature, top k."""
    translate = translator(name)
    result = translate(TEXTS[0], max_new_tokens=8, **options)
    assert set(result) == {"translation_text", "score", "alignment"}
    check(name, TEXTS[0], result)


@pytest.mark.parametrize("name", ["bahdanau", "vaswani"])
@pytest.mark.parametrize("options", [{}, {"num_beams": 4, "num_return_sequences": 2}])
def test_a_batch_gives_what_each_text_gives(name: str, options: dict[str, Any]) -> None:
    """Three texts and one, because the last batch is not full; a generator too."""
    translate = translator(name)
    alone = [translate(text, max_new_tokens=8, **options) for text in TEXTS]
    together = translate(TEXTS, batch_size=3, max_new_tokens=8, **options)
    stream = list(translate((text for text in TEXTS), max_new_tokens=8, **options))
    assert len(alone) == len(together) == len(stream)
    for text, *results in zip(TEXTS, alone, together, stream, strict=True):
        for translations in zip(*results, strict=True) if options else [results]:
            first = translations[0]
            check(name, text, first)
            for other in translations[1:]:
                assert other["translation_text"] == first["translation_text"]
                assert other["alignment"].tokens == first["alignment"].tokens
                torch.testing.assert_close(
                    other["alignment"].weights, first["alignment"].weights, rtol=1e-9, atol=1e-12
                )
        if options:
            best, second = results[0]
            assert best["translation_text"] != second["translation_text"]


def test_a_generation_config_of_a_call_ends_where_the_model_ends() -> None:
    """As in generate(), what it does not say is that of the model; what it says is not."""
    translate, given = translator("vaswani"), GenerationConfig(max_new_tokens=8)
    endless = translate(TEXTS, batch_size=4, max_new_tokens=8)
    translate.model.generation_config.eos_token_id = written(endless[0])[3]
    expected = translate(TEXTS, batch_size=4, max_new_tokens=8)
    assert len({len(written(result)) for result in expected}) > 1
    for options in ({"generation_config": given}, {"generation_config": None, "max_new_tokens": 8}):
        results = translate(TEXTS, batch_size=4, **options)
        assert [result["score"] for result in results] == [result["score"] for result in expected]
    given.eos_token_id = 2
    results = translate(TEXTS, batch_size=4, generation_config=given)
    assert [result["score"] for result in results] == [result["score"] for result in endless]


def test_weights_come_from_a_model_in_sdpa_too_and_leave_it_as_it_was() -> None:
    translate = translator("vaswani")
    assert translate("go", max_new_tokens=3)["alignment"].weights.sum() > 0
    assert translate.model.config._attn_implementation == "sdpa"
    with pytest.raises(ValueError, match="no_such_option"):
        translate("go", no_such_option=1)
    assert translate.model.config._attn_implementation == "sdpa"


def test_a_model_without_attention_translates_without_alignment() -> None:
    result = translator("sutskever2014")("go", max_new_tokens=3)
    assert result["alignment"] is None
    assert result["score"] < 0


def test_length_without_a_limit() -> None:
    """256 tokens where nobody says, fewer where there are fewer positions, or a limit of the model."""
    assert len(written(translator("bahdanau")("go", eos_token_id=[]))) == 256
    marian = translator("marian")
    assert len(written(marian("go", eos_token_id=[]))) == 40
    assert len(written(marian("go", eos_token_id=[], max_length=5))) == 4
    marian.model.generation_config.max_new_tokens = 7
    assert len(written(marian("go", eos_token_id=[]))) == 7


@pytest.mark.parametrize("text", ["", None, 3])
def test_nothing_to_translate(text: Any) -> None:
    with pytest.raises(ValueError, match="give a text of at least one character"):
        translator("bahdanau")(text)


def test_characters_that_the_tokenizer_does_not_know_are_named() -> None:
    with pytest.raises(ValueError, match="cannot encode 'go→Ж': it does not know 'Ж', '→'; remove them"):
        translator("bahdanau")("go→Ж")


CLEAN = """
import sys, json
sys.modules['hfattn'] = None  # as if it were not installed
from transformers import pipeline
texts, folder, again = sys.argv[1:]
translate = pipeline('attn-translation', model=folder, trust_remote_code=True, device='cpu')
assert type(translate).__module__.startswith('transformers_modules')
results = translate(json.loads(texts), batch_size=2, max_new_tokens=8, num_beams=2)
translate.model.save_pretrained(again)
translate.tokenizer.save_pretrained(again)
print(json.dumps([{**result, 'alignment': result['alignment'].to_dict()} for result in results]))
"""


def clean(*words: object, folder: Path, code: str = CLEAN, **extra: str) -> list[dict[str, Any]]:
    variables = {"HF_MODULES_CACHE": str(folder / "modules"), **extra}
    done = run([sys.executable, "-c", code, json.dumps(TEXTS), *words], cwd=OUTSIDE, **variables)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["bahdanau", "vaswani", "marian"])
def test_a_saved_folder_translates_where_hfattn_is_not_installed(tmp_path: Path, name: str) -> None:
    """Our models bring the pipeline along with plain save_pretrained; another one, with the pipeline's own."""
    translate = translator(name)
    folder = tmp_path / "repo"
    if name == "marian":
        translate.save_pretrained(folder)
    else:
        make(name).save_pretrained(folder)
        TOKENIZER.save_pretrained(folder)
    expected = translate(TEXTS, batch_size=2, max_new_tokens=8, num_beams=2)
    runs = [clean(folder, tmp_path / "again", folder=tmp_path)]
    if name == "bahdanau":  # what that process saves again, translates again
        runs.append(clean(tmp_path / "again", tmp_path / "third", folder=tmp_path))
    for results in runs:
        for result, known in zip(results, expected, strict=True):
            assert result["translation_text"] == known["translation_text"]
            assert result["score"] == pytest.approx(known["score"], rel=1e-5)
            record = AttentionRecord.from_dict(result["alignment"])
            assert (record.tokens, record.target_tokens) == (
                known["alignment"].tokens,
                known["alignment"].target_tokens,
            )
            torch.testing.assert_close(record.weights, known["alignment"].weights)


def test_a_saved_folder_translates_in_this_process(tmp_path: Path) -> None:
    make("bahdanau").save_pretrained(tmp_path)
    TOKENIZER.save_pretrained(tmp_path)
    translate = pipeline("attn-translation", model=str(tmp_path), trust_remote_code=True, device="cpu")
    assert type(translate.model) is BahdanauForConditionalGeneration
    check("bahdanau", "go", translate("go", max_new_tokens=8))
    assert pipeline(model=str(tmp_path), trust_remote_code=True, device="cpu").task == "attn-translation"
    with pytest.raises(ValueError, match="trust_remote_code=True"):
        pipeline("attn-translation", model=str(tmp_path))
    direct = AttnTranslationPipeline(model=translate.model, tokenizer=TOKENIZER, device="cpu")
    check("bahdanau", "go", direct("go", max_new_tokens=8))


# Source and target with a tokenizer each

TARGET = build_character_tokenizer(["αβγδεζηθικλμνξοπρστυφχψω "], ends=True)
W = len(TARGET)


def two_sided(name: str) -> Any:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"vocab_size": W, "source_vocab_size": V, "share_embeddings": False, **IDS}
    model: Any
    if name == "vaswani":
        model = VaswaniForConditionalGeneration(VaswaniConfig.preset("small", **sizes))
    else:
        model = BahdanauForConditionalGeneration(
            BahdanauConfig(hidden_size=16, embedding_size=8, encoder_hidden_size=8, **sizes)
        )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:
                parameter.normal_(std=0.5)
    model.generation_config.max_new_tokens = 8
    return model.eval()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("published")
    save_translator(folder, two_sided("bahdanau"), TOKENIZER, TARGET)
    return folder


def check_sides(model: Any, text: str, translation: dict[str, Any]) -> None:
    """Each side is named by its own tokenizer: by hand, from the ids that the model writes."""
    ids = model.generate(**TOKENIZER(text, return_tensors="pt"))[0, 1:].tolist()
    symbols = {number: symbol for symbol, number in TARGET.get_vocab().items()}
    names = [symbols[number] for number in ids]
    assert translation["alignment"].tokens == (*text, "[EOS]")
    assert translation["alignment"].target_tokens == tuple(names)
    assert translation["translation_text"] == "".join(name for name in names if name[0] != "[")


def test_texts_are_translated_to_their_end_without_a_length_in_the_generation_config() -> None:
    """The default of transformers ends them after 20 tokens, and an evaluation would count them as wrong."""
    model = two_sided("bahdanau")
    model.generation_config.update(max_length=None, max_new_tokens=None, suppress_tokens=[model.config.eos_token_id])
    (text,) = translate_texts(model, TOKENIZER, TEXTS[:1], TARGET)
    translate = pipeline("attn-translation", model=model, tokenizer=TOKENIZER, target_tokenizer=TARGET, device="cpu")
    assert text == translate(TEXTS[0])["translation_text"]
    assert len(text) > 20
    model.generation_config.max_new_tokens = 5
    assert len(translate_texts(model, TOKENIZER, TEXTS[:1], TARGET)[0]) <= 5


@pytest.mark.parametrize("name", ["bahdanau", "vaswani"])
def test_two_tokenizers(tmp_path: Path, name: str) -> None:
    """Given to the pipeline, and found again by it in the folder that it saves."""
    model = two_sided(name)
    translate = pipeline("attn-translation", model=model, tokenizer=TOKENIZER, target_tokenizer=TARGET, device="cpu")
    results = translate(TEXTS, batch_size=3)
    for text, result in zip(TEXTS, results, strict=True):
        check_sides(model, text, result)
    assert translate_texts(model, TOKENIZER, TEXTS, TARGET) == [result["translation_text"] for result in results]

    translate.save_pretrained(tmp_path)
    again = pipeline("attn-translation", model=str(tmp_path), trust_remote_code=True, device="cpu")
    assert AutoTokenizer.from_pretrained(tmp_path).get_vocab() == again.tokenizer.get_vocab() == TOKENIZER.get_vocab()
    assert again.target_tokenizer.get_vocab() == TARGET.get_vocab()
    assert [result["translation_text"] for result in again(TEXTS)] == [text["translation_text"] for text in results]


def test_loading_and_saving_again(tmp_path: Path, published: Path) -> None:
    loaded, tokenizer, target = load_translation_model(str(published))
    assert target is not None
    assert target.get_vocab() == TARGET.get_vocab() != tokenizer.get_vocab()
    assert load_reading_model(str(published))[2] is not None
    expected = translate_texts(two_sided("bahdanau"), TOKENIZER, TEXTS, TARGET)
    assert translate_texts(loaded, tokenizer, TEXTS, target) == expected
    save_translator(tmp_path / "two", loaded, tokenizer, target)
    assert json.loads((tmp_path / "two" / "config.json").read_text())["target_tokenizer"] == "target"
    save_translator(tmp_path / "one", make("bahdanau"), TOKENIZER)
    assert not (tmp_path / "one" / "target").exists()
    assert load_translation_model(str(tmp_path / "one"))[2] is None


CLEAN_BOTH = """
import sys, json
sys.modules['hfattn'] = None
from transformers import pipeline
texts, folder, repository, revision = sys.argv[1:]
results = []
for model, options in ((folder, {}), (repository, {'revision': revision})):
    translate = pipeline('attn-translation', model=model, trust_remote_code=True, device='cpu', **options)
    results += translate(json.loads(texts), batch_size=2)
print(json.dumps([{**result, 'alignment': result['alignment'].to_dict()} for result in results]))
"""


def test_two_tokenizers_where_hfattn_is_not_installed(tmp_path: Path, published: Path) -> None:
    """From a folder, and from the commit of a repository whose tokenizer is another one by now."""
    expected = translate_texts(two_sided("bahdanau"), TOKENIZER, TEXTS, TARGET)
    assert "".join(expected)  # there is something to compare
    files = {path.relative_to(published).as_posix(): path.read_bytes() for path in published.rglob("*.*")}
    later = {
        name: data.replace(expected[0][0].encode(), "Ω".encode()) for name, data in files.items() if "target/" in name
    }
    with HubServer() as hub:
        commit = hub.put("model", "me/translator", files)
        hub.put("model", "me/translator", {**files, **later})
        client = hub.environment(tmp_path)
        results = clean(published, "me/translator", commit, folder=tmp_path, code=CLEAN_BOTH, **client)
    for text, translation, result in zip(TEXTS * 2, expected * 2, results, strict=True):
        assert result["translation_text"] == translation
        assert result["alignment"]["tokens"] == [*text, "[EOS]"]
        assert "".join(name for name in result["alignment"]["target_tokens"] if name[0] != "[") == translation


def test_two_tokenizers_on_the_command_line(tmp_path: Path, published: Path) -> None:
    expected = translate_texts(two_sided("bahdanau"), TOKENIZER, TEXTS[:2], TARGET)
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["translate", str(published), *TEXTS[:2]])
    assert done.stdout.splitlines() == expected
    done = CliRunner().invoke(app, ["attend", str(published), TEXTS[0], "--output", str(page)])
    assert done.stdout.splitlines()[0] == f"{TEXTS[0]} → {expected[0]}"
    assert all(symbol in page.read_text() for symbol in {*TEXTS[0], *expected[0]} - {" "})


@pytest.mark.parametrize("missing", ["folder", "file"])
def test_the_sub_folder_that_a_configuration_names_is_missing(tmp_path: Path, published: Path, missing: str) -> None:
    folder = tmp_path / "translator"
    shutil.copytree(published, folder)
    if missing == "folder":
        shutil.rmtree(folder / "target")
    else:
        (folder / "target" / "tokenizer.json").unlink()
    message = f"No tokenizer loads from the subfolder 'target' of {folder}"
    with pytest.raises(ValueError, match=message):
        pipeline("attn-translation", model=str(folder), trust_remote_code=True, device="cpu")
    with pytest.raises(UserError, match=message):
        load_translation_model(str(folder))
    translate = pipeline(
        "attn-translation", model=str(folder), target_tokenizer=TARGET, trust_remote_code=True, device="cpu"
    )
    check_sides(translate.model, "go", translate("go"))


def test_two_tokenizers_given_wrongly(tmp_path: Path) -> None:
    model = two_sided("bahdanau")
    save_translator(tmp_path / "two", model, TOKENIZER, TARGET)
    with pytest.raises(ValueError, match=r"was not loaded from a folder.*pass target_tokenizer"):
        pipeline("attn-translation", model=model, tokenizer=TOKENIZER, device="cpu")
    with pytest.raises(ValueError, match="shares one embedding, and so one vocabulary"):
        save_translator(tmp_path / "shared", make("vaswani"), TOKENIZER, TARGET)
    assert not (tmp_path / "shared").exists()
    for family in (BahdanauConfig, VaswaniConfig):
        for name in ("", "../target", "a/b", "."):
            with pytest.raises(StrictDataclassClassValidationError, match="write the name of the sub-folder"):
                family(share_embeddings=False, target_tokenizer=name)
        with pytest.raises(StrictDataclassClassValidationError, match="but target_tokenizer is given"):
            family(share_embeddings=True, target_tokenizer="target")

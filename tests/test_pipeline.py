"""The pipeline task "attn-translation", in this process and in one without hfattn."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, environment
from transformers import MarianConfig, MarianMTModel, pipeline

from hfattn import (
    BahdanauConfig,
    BahdanauForConditionalGeneration,
    VaswaniConfig,
    VaswaniForConditionalGeneration,
)
from hfattn.explain import AttentionRecord
from hfattn.pipelines import AttnTranslationPipeline
from hfattn.tokenizers import build_character_tokenizer

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


CLEAN = """
import sys, json
sys.modules['hfattn'] = None  # as if it were not installed
from transformers import pipeline
folder, again = sys.argv[1:]
translate = pipeline('attn-translation', model=folder, trust_remote_code=True, device='cpu')
assert type(translate).__module__.startswith('transformers_modules')
results = translate(json.load(sys.stdin), batch_size=2, max_new_tokens=8, num_beams=2)
translate.model.save_pretrained(again)
translate.tokenizer.save_pretrained(again)
print(json.dumps([{**result, 'alignment': result['alignment'].to_dict()} for result in results]))
"""


def clean(*words: object, folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", CLEAN, *map(str, words)],
        input=json.dumps(TEXTS), capture_output=True, text=True, cwd=ROOT.parent,
        env=environment(HF_MODULES_CACHE=str(folder / "modules")),
    )  # fmt: skip
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

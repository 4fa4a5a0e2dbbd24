"""Models of other projects, built here under their names, and what ``convert`` makes of them: the same logits."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file, save_model
from their_models import (
    JOEYNMT,
    OPENNMT,
    TheirCharRNN,
    TheirGPT,
    TheirTorchEncoder,
    TheirTorchTransformer,
    TheirTranslator,
    sines,
)
from torch import nn
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification, AutoTokenizer

import hfattn
from hfattn.errors import UserError
from hfattn.exchange import convert
from hfattn.generation import translate_texts
from hfattn.hub import verify
from hfattn.loading import load_translation_model

CHARACTERS = list("abcdefghij\n ")
PADDED = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0], [1, 0, 0, 0, 0, 0]])
WORDS = ["<unk>", "<pad>", "<s>", "</s>", "a", "b", "c", "d", "e"]
SOURCE = torch.tensor([[4, 5, 6, 7, 8, 3], [5, 5, 4, 3, 1, 1], [3, 1, 1, 1, 1, 1]])
TARGET = torch.tensor([[2, 4, 5, 6, 7], [2, 8, 8, 3, 1], [2, 6, 3, 1, 1]])


def randomize(model: nn.Module, std: float = 0.4) -> nn.Module:
    """Large random numbers everywhere: a weight in the wrong place, or a bias that is left out, shows."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=std)
    return model.eval()


def saved(folder: Path, state: dict[str, torch.Tensor]) -> Path:
    save_file({name: tensor.clone() for name, tensor in state.items()}, folder / "theirs.safetensors")
    return folder / "theirs.safetensors"


def written(folder: Path, name: str, content: Any) -> Path:
    (folder / name).write_text(json.dumps(content) if name.endswith(".json") else "\n".join(content) + "\n")
    return folder / name


def assert_same(ours: torch.Tensor, theirs: torch.Tensor, mask: torch.Tensor | None = None) -> None:
    if mask is not None:
        ours, theirs = ours[mask.bool()], theirs[mask.bool()]
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def greedy(logits: Any, start: list[int], steps: int) -> list[int]:
    """The most probable symbols after ``start``, reading all of it again for each."""
    ids = list(start)
    for _ in range(steps):
        ids.append(int(logits(torch.tensor([ids]))[0, -1].argmax()))
    return ids


# Character models


@pytest.mark.parametrize(
    ("cell", "one_hot", "dtype", "bias"),
    [
        (nn.LSTM, False, torch.float64, True),
        (nn.GRU, True, torch.float32, True),
        (nn.RNN, False, torch.float32, True),
        (nn.GRU, False, torch.float32, False),
    ],
)
def test_a_character_model(
    tmp_path: Path, cell: type[nn.RNNBase], one_hot: bool, dtype: torch.dtype, bias: bool
) -> None:
    theirs = TheirCharRNN(cell, len(CHARACTERS), 2, one_hot).to(dtype)
    if not bias:
        theirs.rnn = cell(6, 8, 2, batch_first=True, bias=False)  # type: ignore[arg-type]
    randomize(theirs)
    convert(
        "char-rnn", saved(tmp_path, theirs.state_dict()), tmp_path / "ours",
        vocabulary=written(tmp_path, "characters.json", CHARACTERS),
    )  # fmt: skip
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert isinstance(ours, hfattn.CharRNNForCausalLM)
    assert ours.dtype == dtype
    ids = torch.randint(len(CHARACTERS), PADDED.shape)
    # Padding is invisible wherever it stands: the rows by themselves, without any, are what they should be.
    logits = ours(ids, attention_mask=PADDED).logits
    for row, length in enumerate(PADDED.sum(1).tolist()):
        assert_same(logits[row, :length], theirs(ids[row : row + 1, :length])[0])
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    text = "bad\ncab"
    assert tokenizer(text).input_ids == [CHARACTERS.index(character) for character in text]
    written_ids = ours.generate(**tokenizer(text, return_tensors="pt"), max_new_tokens=12, do_sample=False)[0]
    assert written_ids.tolist() == greedy(theirs, tokenizer(text).input_ids, 12)
    assert tokenizer.decode(written_ids) == "".join(CHARACTERS[i] for i in written_ids)


def test_a_pickle_of_a_port_with_other_names_and_its_characters(tmp_path: Path) -> None:
    """``lstm`` and ``fc`` over one-hot vectors, with the characters beside the weights; compiled, in parallel."""
    theirs = randomize(TheirCharRNN(nn.LSTM, len(CHARACTERS), 1, one_hot=True))
    names = {"rnn": "lstm", "decoder": "fc"}
    state = {
        f"_orig_mod.module.{names[name.split('.')[0]]}.{name.split('.')[1]}": tensor
        for name, tensor in theirs.state_dict().items()
    }
    torch.save({"n_hidden": 8, "state_dict": state, "tokens": tuple(CHARACTERS)}, tmp_path / "rnn.pt")
    with pytest.raises(UserError, match="is not safetensors; add --allow-pt"):
        convert("char-rnn", tmp_path / "rnn.pt", tmp_path / "ours")
    converted = convert("char-rnn", tmp_path / "rnn.pt", tmp_path / "ours", allow_pt=True)
    assert converted.tokenizer is not None
    assert converted.tokenizer("j").input_ids == [9]
    ids = torch.randint(len(CHARACTERS), (2, 7))
    assert_same(converted.model(ids).logits, theirs(ids))


def test_an_elman_network_says_what_was_assumed_of_it_and_refuses_relu(tmp_path: Path) -> None:
    theirs = randomize(TheirCharRNN(nn.RNN, len(CHARACTERS), 1))
    file = saved(tmp_path, theirs.state_dict())
    assert convert("char-rnn", file, tmp_path / "ours").assumed == {"nonlinearity": "tanh"}
    with pytest.raises(UserError, match="nonlinearity relu; only tanh"):
        convert("char-rnn", file, tmp_path / "no", config=written(tmp_path, "rnn.json", {"nonlinearity": "relu"}))


# nanoGPT


@pytest.mark.parametrize(("bias", "tied"), [(True, True), (False, False)])
def test_a_nanogpt(tmp_path: Path, bias: bool, tied: bool) -> None:
    arguments: dict[str, Any] = {
        "n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 20, "bias": bias, "vocab_size": len(CHARACTERS),
    }  # fmt: skip
    theirs = TheirGPT(**arguments)
    if not tied:
        theirs.lm_head.weight = nn.Parameter(torch.empty(len(CHARACTERS), 16))
    randomize(theirs)
    state = {f"_orig_mod.{name}": tensor for name, tensor in theirs.state_dict().items()}
    torch.save({"model": state, "model_args": {**arguments, "dropout": 0.1}, "iter_num": 5}, tmp_path / "ckpt.pt")
    vocabulary = written(tmp_path, "meta.json", {character: i for i, character in enumerate(CHARACTERS)})
    converted = convert("nanogpt", tmp_path / "ckpt.pt", tmp_path / "ours", allow_pt=True, vocabulary=vocabulary)
    assert converted.assumed == {"activation_function": "gelu"}
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    if tied:  # it can be published, as a run can
        report = verify(tmp_path / "ours")
        assert report.passed, report
    assert type(ours).__name__ == "GPT2LMHeadModel"
    assert ours.config.resid_pdrop == 0.1
    assert (ours.lm_head.weight is ours.transformer.wte.weight) == tied
    ids = torch.randint(len(CHARACTERS), PADDED.shape)
    assert_same(ours(ids, attention_mask=PADDED).logits, theirs(ids), PADDED)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    prompt = tokenizer("face", return_tensors="pt")
    out = ours.generate(**prompt, max_new_tokens=10, do_sample=False)[0].tolist()
    assert out == greedy(theirs, prompt.input_ids[0].tolist(), 10)


def test_what_nanogpt_weights_do_not_tell_is_asked_for(tmp_path: Path) -> None:
    theirs = randomize(TheirGPT(1, 2, 16, 8, True, 12))
    file = saved(tmp_path, theirs.state_dict())
    with pytest.raises(UserError, match="the number of heads; write --set n_head=N"):
        convert("nanogpt", file, tmp_path / "ours")
    with pytest.raises(UserError, match="'n_heads' is not a field of GPT2Config; did you mean 'n_head'"):
        convert("nanogpt", file, tmp_path / "ours", settings={"n_heads": 2, "n_head": 2})
    with pytest.raises(UserError, match="n_layer=3 contradicts the model, which has 1"):
        convert("nanogpt", file, tmp_path / "ours", settings={"n_head": 2, "n_layer": 3})
    with pytest.raises(UserError, match="say n_embd=32, but its weights 16"):
        convert("nanogpt", file, tmp_path / "ours", config=written(tmp_path, "args.json", {"n_embd": 32, "n_head": 2}))
    window = {**theirs.state_dict(), "transformer.h.0.attn.bias": torch.ones(1, 1, 8, 8).tril().triu(-2)}
    with pytest.raises(UserError, match=r"transformer.h.0.attn.bias of .* is not a causal mask"):
        convert("nanogpt", saved(tmp_path, window), tmp_path / "ours", settings={"n_head": 2})
    assert not (tmp_path / "ours").exists()


def test_a_matrix_that_a_file_leaves_out_is_shared_only_if_somebody_says_so(tmp_path: Path) -> None:
    """``save_model`` of safetensors notes which; otherwise the user has to."""
    theirs = randomize(TheirGPT(1, 2, 16, 8, True, 12))
    ids = torch.randint(12, (2, 7))
    noted, silent = tmp_path / "noted.safetensors", tmp_path / "silent.safetensors"
    save_model(theirs, str(noted))
    state = theirs.state_dict()
    save_file({name: tensor.clone() for name, tensor in state.items() if name != "lm_head.weight"}, silent)
    assert_same(convert("nanogpt", noted, tmp_path / "a", settings={"n_head": 2}).model.eval()(ids).logits, theirs(ids))
    with pytest.raises(UserError, match=r"has no lm_head.weight, which GPT2LMHeadModel requires"):
        convert("nanogpt", silent, tmp_path / "b", settings={"n_head": 2})
    ours = convert("nanogpt", silent, tmp_path / "b", settings={"n_head": 2, "tie_word_embeddings": True}).model
    assert_same(ours.eval()(ids).logits, theirs(ids))


# torch.nn.Transformer

RENAMES = {
    "transformer.": "", "src_tok_emb": "source_embedding", "tgt_tok_emb": "target_embedding",
    "positional_encoding.pos_embedding": "positions",
}  # fmt: skip


@pytest.mark.parametrize(
    ("norm_first", "bias", "activation", "interleaved", "eps"),
    [(False, True, "relu", True, 1e-5), (True, False, "gelu", False, 1e-3)],
)
def test_a_torch_transformer(
    tmp_path: Path, norm_first: bool, bias: bool, activation: str, interleaved: bool, eps: float
) -> None:
    theirs = randomize(TheirTorchTransformer(norm_first, bias, activation, sines(50, 16, interleaved), eps), std=0.3)
    settings = {"num_attention_heads": 4, "norm": "pre" if norm_first else "post", "activation": activation}
    convert(
        "torch-transformer", saved(tmp_path, theirs.state_dict()), tmp_path / "ours", renames=RENAMES,
        settings={**settings, "layer_norm_eps": eps, "pad_token_id": 1, "eos_token_id": 3, "bos_token_id": 2},
    )  # fmt: skip
    ours = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    # Sines before cosines are no function of ours, but a table like any other.
    assert ours.config.positions == ("sinusoidal" if interleaved else "learned")
    assert ours.config.final_norm
    assert ours.config.bias == bias
    mask = (SOURCE != 1).long()
    assert_same(ours(SOURCE, mask, TARGET).logits, theirs(SOURCE, mask, TARGET), TARGET != 1)
    out = ours.generate(SOURCE, attention_mask=mask, max_new_tokens=8, do_sample=False)
    for row in range(len(SOURCE)):
        source, own = SOURCE[row : row + 1, : int(mask[row].sum())], out[row].tolist()
        expected = greedy(lambda ids, source=source: theirs(source, torch.ones_like(source), ids), [2], 8)
        end = expected.index(3) + 1 if 3 in expected else len(expected)
        assert own[:end] == expected[:end]


def test_what_torch_weights_do_not_tell_is_said(tmp_path: Path) -> None:
    theirs = randomize(TheirTorchTransformer(False, True, "relu", sines(9, 16)))
    file = saved(tmp_path, theirs.state_dict())
    converted = convert(
        "torch-transformer",
        file,
        tmp_path / "ours",
        renames=RENAMES,
        settings={"num_attention_heads": 4, "norm": "post"},
    )
    assert converted.assumed == {
        "activation": "relu", "layer_norm_eps": 1e-5, "scale_embedding": True,
        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    with pytest.raises(UserError, match=r"write --set num_attention_heads=N, where N divides 16"):
        convert("torch-transformer", file, tmp_path / "no", renames=RENAMES)
    with pytest.raises(UserError, match=r"has no target_embedding.weight; it has .*--rename THEIRS=OURS"):
        convert("torch-transformer", file, tmp_path / "no")
    with pytest.raises(UserError, match=r"has no transfomer\., which --rename should replace"):
        convert("torch-transformer", file, tmp_path / "no", renames={"transfomer.": ""})
    with pytest.raises(UserError, match=r"gives two weights of .* one name"):
        convert("torch-transformer", file, tmp_path / "no", renames={"src_tok_emb": "tgt_tok_emb"})


def test_one_embedding_for_source_target_and_output_is_one_here(tmp_path: Path) -> None:
    theirs = TheirTorchTransformer(False, True, "relu", sines(9, 16))
    theirs.src_tok_emb = theirs.tgt_tok_emb
    theirs.generator.weight = theirs.tgt_tok_emb.weight
    randomize(theirs)
    state = {name: tensor for name, tensor in theirs.state_dict().items() if not name.startswith("src_tok_emb")}
    renames = {**RENAMES, "tgt_tok_emb": "embedding"}
    del renames["src_tok_emb"]
    ours = convert(
        "torch-transformer",
        saved(tmp_path, state),
        tmp_path / "ours",
        renames=renames,
        settings={"num_attention_heads": 4},
    ).model
    assert ours.config.share_embeddings
    assert ours.config.tie_word_embeddings
    assert ours.config.lm_head_bias
    source = SOURCE.clamp(max=8)
    mask = torch.ones_like(source)
    assert_same(ours.eval()(source, mask, TARGET).logits, theirs(source, mask, TARGET))


@pytest.mark.parametrize(("norm_first", "final_norm", "scale"), [(True, True, True), (False, False, False)])
def test_a_torch_encoder_as_a_language_model(tmp_path: Path, norm_first: bool, final_norm: bool, scale: bool) -> None:
    theirs = randomize(TheirTorchEncoder(norm_first, final_norm, None, scale))
    settings = {
        "num_attention_heads": 2, "norm": "pre" if norm_first else "post", "activation": "gelu",
        "scale_embedding": scale,
    }  # fmt: skip
    convert("torch-lm", saved(tmp_path, theirs.state_dict()), tmp_path / "ours", settings=settings)
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "ours").eval()
    assert isinstance(ours, hfattn.VaswaniForCausalLM)
    assert ours.config.has_final_norm == final_norm
    ids = torch.randint(13, PADDED.shape)
    assert_same(ours(ids, attention_mask=PADDED).logits, theirs(ids, PADDED), PADDED)
    out = ours.generate(ids[:1], attention_mask=PADDED[:1], max_new_tokens=5, do_sample=False)[0].tolist()
    assert out == greedy(lambda ids: theirs(ids, torch.ones_like(ids)), ids[0].tolist(), 5)


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_torch_encoder_as_a_classifier(tmp_path: Path, norm_first: bool) -> None:
    theirs = randomize(TheirTorchEncoder(norm_first, True, 3, True))
    settings = {"num_attention_heads": 2, "norm": "pre" if norm_first else "post", "activation": "gelu"}
    vocabulary = written(tmp_path, "words.txt", ["<pad>", "<unk>", *"abcdefghijk"])
    converted = convert(
        "torch-classifier",
        saved(tmp_path, theirs.state_dict()),
        tmp_path / "ours",
        settings=settings,
        vocabulary=vocabulary,
    )
    assert converted.assumed["classifier_pooling"] == "mean"
    ours = AutoModelForSequenceClassification.from_pretrained(tmp_path / "ours").eval()
    batch = AutoTokenizer.from_pretrained(tmp_path / "ours")(["a b k zebra", "c"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[2, 3, 12, 1], [4, 0, 0, 0]]
    assert_same(ours(**batch).logits, theirs(batch.input_ids, batch.attention_mask))


# JoeyNMT and OpenNMT-py


def joeynmt_config(pre: bool, activation: str = "relu", **side: Any) -> dict[str, Any]:
    sides = {
        "type": "transformer", "num_layers": 2, "num_heads": 4, "hidden_size": 16, "ff_size": 20, "dropout": 0.1,
        "activation": activation, "layer_norm": "pre" if pre else "post",
        "embeddings": {"embedding_dim": 16, "scale": True}, **side,
    }  # fmt: skip
    return {"name": "small", "model": {"encoder": sides, "decoder": sides}}


def assert_same_translations(
    theirs: Any, ours: Any, reader: Any, writer: Any, words: list[str], start: int = 2
) -> None:
    """Greedy translations with the vocabulary that was converted."""
    ours.generation_config.max_new_tokens = 20
    texts = ["a b c", "d"]
    for text, own in zip(texts, translate_texts(ours, reader, texts, writer), strict=True):
        ids = reader(text, return_tensors="pt").input_ids
        expected = greedy(lambda written, ids=ids: theirs(ids, torch.ones_like(ids), written), [start], 20)[1:]
        expected = expected[: expected.index(3)] if 3 in expected else expected
        assert own == " ".join(words[i] for i in [start, *expected] if i > 3)  # where it is not a special token


@pytest.mark.parametrize(("pre", "shared"), [(True, True), (False, False)])
def test_a_joeynmt_transformer(tmp_path: Path, pre: bool, shared: bool) -> None:
    torch.manual_seed(0)
    activation = "relu" if pre else "silu"
    target_words = WORDS if shared else [*WORDS, "f", "g"]
    theirs = TheirTranslator(
        JOEYNMT, pre, True, sines(60, 16)[None], (True, True, False), activation, (9, len(target_words)), shared
    ).eval()
    torch.save({"steps": 7, "model_state": theirs.state(), "optimizer_state": {}}, tmp_path / "best.ckpt")
    config = written(tmp_path, "config.json", joeynmt_config(pre, "swish" if activation == "silu" else activation))
    convert(
        "joeynmt", tmp_path / "best.ckpt", tmp_path / "ours", allow_pt=True, config=config,
        vocabulary=written(tmp_path, "src_vocab.txt", WORDS),
        target_vocabulary=None if shared else written(tmp_path, "trg_vocab.txt", target_words),
    )  # fmt: skip
    ours, reader, writer = load_translation_model(str(tmp_path / "ours"))
    mask = (SOURCE != 1).long()
    assert_same(ours(SOURCE, mask, TARGET).logits, theirs(SOURCE, mask, TARGET), TARGET != 1)
    assert ours.config.attention_dropout == 0.1
    assert reader("a b zebra").input_ids == [4, 5, 0, 3]
    assert_same_translations(theirs, ours, reader, writer, target_words)


@pytest.mark.parametrize(("kind", "shared"), [("interleaved", True), ("concatenated", False), ("none", False)])
def test_an_opennmt_transformer(tmp_path: Path, kind: str, shared: bool) -> None:
    """With biases in some places only, as its third release has them by default."""
    torch.manual_seed(0)
    table = None if kind == "none" else sines(60, 16, kind == "interleaved")[:, None]
    theirs = TheirTranslator(OPENNMT, True, kind != "none", table, (False, True, True), "gelu", (9, 9), shared).eval()
    state = theirs.state()
    options = argparse.Namespace(
        heads=4, position_encoding=kind != "none", pos_ffn_activation_fn="gelu", dropout=[0.2], attention_dropout=[0.1],
        position_encoding_type="SinusoidalConcat" if kind == "concatenated" else "SinusoidalInterleaved",
    )  # fmt: skip
    model = {name: tensor for name, tensor in state.items() if not name.startswith("generator.")}
    generator = {name[len("generator.") :]: tensor for name, tensor in state.items() if name not in model}
    start = "<s>" if shared else "a"  # of some models it is a language
    vocab = {"src": WORDS, "tgt": WORDS, "decoder_start_token": start}
    torch.save(
        {"model": model, "generator": generator, "vocab": vocab, "opt": options, "optim": {}}, tmp_path / "step_9.pt"
    )
    convert("opennmt", tmp_path / "step_9.pt", tmp_path / "ours", allow_pt=True)
    ours, reader, writer = load_translation_model(str(tmp_path / "ours"))
    assert writer is None
    mask = (SOURCE != 1).long()
    assert_same(ours(SOURCE, mask, TARGET).logits, theirs(SOURCE, mask, TARGET), TARGET != 1)
    assert (ours.config.dropout, ours.config.attention_dropout) == (0.2, 0.1)
    assert reader("a b").input_ids == [4, 5]  # its sources have no end
    assert_same_translations(theirs, ours, reader, writer, WORDS, WORDS.index(start))
    assert ours.config.positions == {"interleaved": "sinusoidal", "concatenated": "learned", "none": "none"}[kind]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"alpha": 0.8}, "residuals by alpha=0.8"),
        ({"activation": "glu"}, "the activation glu, which is not supported; use one of"),
        ({"type": "recurrent"}, "type recurrent; only transformer"),
        ({"layer_norm": "post"}, "says layer_norm: post, but the weights are pre-norm"),
    ],
)
def test_what_joeynmt_has_and_we_do_not(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    theirs = TheirTranslator(JOEYNMT, True, True, sines(9, 16)[None], (True, True, False))
    config = joeynmt_config(True, **change)
    with pytest.raises(UserError, match=sentence):
        convert(
            "joeynmt", saved(tmp_path, theirs.state()), tmp_path / "ours", config=written(tmp_path, "c.json", config)
        )
    with pytest.raises(UserError, match=r"add --config with the config.yaml"):
        convert("joeynmt", tmp_path / "theirs.safetensors", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"max_relative_positions": 20}, "max_relative_positions=20, but our models support only 0"),
        ({"layer_norm": "rms"}, "layer_norm=rms, but our models support only standard"),
        ({"pos_ffn_activation_fn": "gated-gelu"}, "the activation gated-gelu"),
        ({"position_encoding_type": "SinusoidalConcat"}, "says positions=learned, but its weights sinusoidal"),
    ],
)
def test_what_opennmt_has_and_we_do_not(tmp_path: Path, change: dict[str, Any], sentence: str) -> None:
    theirs = TheirTranslator(OPENNMT, True, True, sines(9, 16)[:, None], (True, True, True))
    options = {"heads": 4, "position_encoding": True, **change}
    with pytest.raises(UserError, match=sentence):
        convert(
            "opennmt", saved(tmp_path, theirs.state()), tmp_path / "ours", config=written(tmp_path, "c.json", options)
        )
    assert not (tmp_path / "ours").exists()


# Whatever the source


def test_weights_that_do_not_fit_are_named_and_nothing_is_written(tmp_path: Path) -> None:
    state = randomize(TheirCharRNN(nn.GRU, len(CHARACTERS), 2)).state_dict()

    def refused(state: dict[str, torch.Tensor], sentence: str, **options: Any) -> None:
        with pytest.raises(UserError, match=sentence) as error:
            convert("char-rnn", saved(tmp_path, state), tmp_path / "ours", **options)
        assert str(error.value).endswith((".", "?"))
        assert not (tmp_path / "ours").exists()
        assert {path.suffix for path in tmp_path.iterdir()} <= {".safetensors", ".json"}

    refused({k: v for k, v in state.items() if k != "rnn.bias_hh_l1"}, "has no rnn.bias_hh_l1, which")
    refused({k: v for k, v in state.items() if k != "decoder.bias"}, "has no decoder.bias")
    refused({**state, "rnn.weight_ih_l0_reverse": state["rnn.weight_ih_l0"]}, "has rnn.weight_ih_l0_reverse, which")
    refused({**state, "rnn.bias_ih_l1": torch.zeros(5)}, r"has the shape \(5,\), but the other weights require \(24,\)")
    refused({**state, "decoder.weight": torch.zeros(12, 8, dtype=torch.int8)}, "int8, but weights must be")
    refused(state, "has 3 tokens, and the model 12", vocabulary=written(tmp_path, "v.json", ["a", "b", "c"]))
    refused(state, "has 'a' twice", vocabulary=written(tmp_path, "v.json", ["a", "b", "a"]))
    refused(state, "not one character", vocabulary=written(tmp_path, "v.json", [*CHARACTERS[:-1], "ab"]))
    refused(state, "do not run from 0 to 1", vocabulary=written(tmp_path, "v.json", {"a": 1, "b": 2}))
    refused(state, "--target-vocabulary is for translation models only", target_vocabulary=tmp_path / "v.json")
    refused(state, "--set 'dropuot' is not a field of CharRNNConfig", settings={"dropuot": 0.1})
    refused(state, "none.json was not found", vocabulary=tmp_path / "none.json")


class Stranger:
    """What a pickle of a whole model holds: an object that only its own code can make."""


def test_a_file_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'char_rnn' is not a kind of checkpoint; did you mean 'char-rnn'"):
        convert("char_rnn", tmp_path / "x.pt", tmp_path / "ours")
    torch.save({"model": Stranger()}, tmp_path / "whole.pt")
    with pytest.raises(
        UserError, match=r"contains test_convert.Stranger, which is not a tensor.* torch.save\(model.state_dict"
    ):
        convert("char-rnn", tmp_path / "whole.pt", tmp_path / "ours", allow_pt=True)
    for name in ("broken.pt", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not a checkpoint")
        with pytest.raises(UserError, match=r"is not a complete|contains something"):
            convert("char-rnn", tmp_path / name, tmp_path / "ours", allow_pt=True)
    torch.save({"epoch": 3}, tmp_path / "empty.pt")
    with pytest.raises(UserError, match="contains epoch, but no weights by name"):
        convert("char-rnn", tmp_path / "empty.pt", tmp_path / "ours", allow_pt=True)
    with pytest.raises(UserError, match="was not found"):
        convert("char-rnn", tmp_path / "none.pt", tmp_path / "ours")
    (tmp_path / "ours").mkdir()
    with pytest.raises(UserError, match="exists already"):
        convert("char-rnn", tmp_path / "empty.pt", tmp_path / "ours")
    with pytest.raises(UserError, match=r"The folder .*nowhere does not exist"):
        convert("char-rnn", tmp_path / "empty.pt", tmp_path / "nowhere" / "ours")

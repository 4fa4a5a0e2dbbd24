"""The Transformer: equal to other implementations with the same weights, and a model of transformers in every use."""

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run
from generation_tests import GenerationTests, Seq2SeqGenerationTests, sharpen, texts
from huggingface_hub.errors import StrictDataclassError
from model_checks import check_adapter, check_gradient_checkpointing, check_half_precision
from peft import LoraConfig
from safetensors.torch import load_file
from torch import nn
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
)

from hfattn import (
    VaswaniConfig,
    VaswaniForCausalLM,
    VaswaniForConditionalGeneration,
    VaswaniForMaskedLM,
    VaswaniForSequenceClassification,
    VaswaniModel,
)
from hfattn.attention import DISTRIBUTIONS, SCORES
from hfattn.files import read_json
from hfattn.models import attention, modeling_vaswani, vaswani_steps
from hfattn.models.attention import Attention
from hfattn.models.modeling_vaswani import VaswaniAttention, sinusoidal_positions
from hfattn.training.matrix_products import compare_products, onednn_products

V, H, F, HEADS = 13, 16, 24, 4
SIZES = {
    "vocab_size": V, "hidden_size": H, "intermediate_size": F, "num_attention_heads": HEADS, "encoder_layers": 2,
    "decoder_layers": 3,
}  # fmt: skip
HEADED = (
    VaswaniForConditionalGeneration, VaswaniForCausalLM, VaswaniForMaskedLM, VaswaniForSequenceClassification,
)  # fmt: skip


def make(kind: Any = VaswaniForConditionalGeneration, **fields: Any) -> Any:
    torch.manual_seed(0)
    attention, dtype = fields.pop("attn_implementation", "sdpa"), fields.pop("dtype", torch.float64)
    config = VaswaniConfig(**{**SIZES, **fields})
    return kind._from_config(config, attn_implementation=attention).to(dtype).eval()


def ids(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(3, V, shape, generator=torch.Generator().manual_seed(seed))


def batch(kind: Any, rows: int = 2, length: int = 7) -> dict[str, torch.Tensor]:
    """Inputs of a model class; the target is shorter than the source."""
    inputs = {"input_ids": ids(rows, length)}
    if kind is VaswaniForConditionalGeneration:
        inputs["decoder_input_ids"] = ids(rows, length - 2, seed=2)
    return inputs


# Configuration


def test_defaults_are_the_base_model_of_the_paper() -> None:
    config = VaswaniConfig()
    assert (config.encoder_layers, config.decoder_layers, config.num_attention_heads) == (6, 6, 8)
    assert (config.hidden_size, config.intermediate_size, config.head_dim, config.dropout) == (512, 2048, 64, 0.1)
    assert (config.norm, config.positions, config.activation) == ("post", "sinusoidal", "relu")
    assert config.to_dict()["head_dim"] == 64  # a number, which transformers' caches and generation tests read
    assert config.share_embeddings
    assert config.tie_word_embeddings
    assert config.scale_embedding


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"d_model": 64}, "'d_model' is not a field of VaswaniConfig"),
        ({"hiden_size": 64}, "did you mean 'hidden_size'?"),
        ({"hidden_size": "big"}, "expected int, got str"),
        ({"decoder_layers": 0}, "decoder_layers is 0; write a whole number of at least 1"),
        (
            {"num_attention_heads": 7},
            "512 does not divide into 7 heads; write another num_attention_heads, or the width",
        ),
        ({"head_dim": 0}, "head_dim is 0; write a whole number of at least 1"),
        ({"norm": "LayerNorm"}, "write one of 'post', 'pre', 'none'"),
        ({"positions": "rope"}, "write one of 'sinusoidal', 'learned', 'rotary', 'alibi', "),
        ({"activation": "ReLU"}, "write one of 'relu', 'gelu', 'gelu_new', 'silu', 'tanh'"),
        ({"classifier_pooling": "max"}, "write one of 'mean', 'first'"),
        ({"share_positions": True}, "positions is 'sinusoidal', which has none; write positions: learned, or leave"),
        ({"attention_dropout": 1.0}, "write a probability from 0 to below 1"),
        ({"embedding_dropout": -0.1}, "write a probability from 0 to below 1"),
        ({"hidden_size": 15, "num_attention_heads": 3}, "write an even hidden_size, or positions: learned"),
        ({"final_norm": True, "norm": "none"}, "write norm: pre or post, or leave final_norm out"),
        ({"layer_norm_eps": 0.0}, "write a number above 0, such as 1e-5"),
        ({"pad_token_id": 32_000}, "pad_token_id is 32000; write an id from 0 to 31999, or null"),
        ({"decoder_start_token_id": -1}, "write an id from 0 to 31999, or null"),
        ({"source_vocab_size": 100}, "write share_embeddings: false, or leave source_vocab_size out"),
        ({"self_attention_score": "scaled"}, "'scaled' is not a score; did you mean 'scaled_dot'?"),
        ({"cross_attention_distribution": "softmin"}, "did you mean 'softmax'?"),
        (
            {
                "cross_attention_distribution": "hard",
                "cross_attention_distribution_options": {"estimator": "score_function"},
            },
            "write cross_attention_distribution_options: {estimator: straight_through}",
        ),
        ({"self_attention_score_options": {"scale": 2}}, "'scale' is not an option of the score 'scaled_dot'"),
    ],
)
def test_a_wrong_field_is_refused_with_what_to_write_instead(fields: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, StrictDataclassError)) as error:
        VaswaniConfig(**fields)
    assert message in str(error.value)


def test_presets_have_the_published_numbers_of_parameters() -> None:
    def count(name: str, **fields: Any) -> int:
        with torch.device("meta"):
            model = VaswaniForConditionalGeneration(VaswaniConfig.preset(name, **fields))
        return model.num_parameters()

    assert count("wide_layer") == 19_960_216
    # Table 3 says 65 and 213 million, in round numbers, for a vocabulary of about 37,000.
    assert count("base2017") == 63_082_496
    assert count("big2017") == 214_245_376
    d, ff, n = 128, 128, 2
    attention, feed_forward, norm = 4 * (d * d + d), 2 * d * ff + d + ff, 2 * d
    layers = n * (attention + feed_forward + 2 * norm) + n * (2 * attention + feed_forward + 3 * norm)
    assert count("small") == layers + 8000 * d
    wider = 4 * d * (1024 - d) + 3 * (1024 - d)  # in each attention: eight heads of width 128, not of width 16
    assert count("small_wide_heads") == count("small") + 3 * n * wider
    with pytest.raises(ValueError, match="did you mean 'base2017'"):
        VaswaniConfig.preset("base")


def test_the_layers_of_a_single_stack_are_the_hidden_layers_that_transformers_asks_for() -> None:
    for kind, number in zip(HEADED, (2, 3, 2, 2), strict=True):
        config = make(kind).config
        assert config.num_hidden_layers == number
        config.num_hidden_layers = 5
        assert config.num_hidden_layers == 5
    assert VaswaniConfig(**SIZES).get_text_config(decoder=True).num_hidden_layers == 3


# The same numbers as other implementations


def rename(state: dict[str, torch.Tensor], names: dict[str, str]) -> dict[str, torch.Tensor]:
    """A state dict with parts of its names replaced, the longest first."""
    renamed = {}
    for name, tensor in state.items():
        for old in sorted(names, key=len, reverse=True):
            name = name.replace(old, names[old])
        renamed[name] = tensor
    return renamed


def inverse(names: dict[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


class TestTorchTransformer:
    """torch.nn.Transformer, post and pre; its last norm, which the paper does not have, is left out under post."""

    NAMES = {
        ".self_attn_residual.norm.": ".norm1.",
        ".cross_attn_residual.norm.": ".norm2.",
        ".feed_forward.fc1.": ".linear1.",
        ".feed_forward.fc2.": ".linear2.",
        ".cross_attn.": ".multihead_attn.",
    }

    def theirs(self, norm: str, dtype: torch.dtype) -> nn.Transformer:
        torch.manual_seed(1)
        pre = norm == "pre"
        shape: dict[str, Any] = {
            "d_model": H,
            "nhead": HEADS,
            "dim_feedforward": F,
            "norm_first": pre,
            "batch_first": True,
        }
        last = (lambda: nn.LayerNorm(H)) if pre else (lambda: None)
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**shape), 2, last(), enable_nested_tensor=False)
        decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**shape), 3, last())
        transformer = nn.Transformer(H, HEADS, custom_encoder=encoder, custom_decoder=decoder, batch_first=True)
        for parameter in transformer.parameters():  # the norms and the biases too
            nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
        return transformer.to(dtype).eval()

    def to_theirs(self, model: VaswaniModel) -> dict[str, torch.Tensor]:
        state = {name: tensor for name, tensor in model.state_dict().items() if "embed" not in name}
        packed = {}
        for name, tensor in state.items():
            if ".q_proj." in name:  # torch keeps the three as one
                parts = [state[name.replace("q_proj", part)] for part in ("q_proj", "k_proj", "v_proj")]
                packed[name.replace(".q_proj.", ".in_proj_")] = torch.cat(parts)
            elif ".k_proj." not in name and ".v_proj." not in name:
                packed[name] = tensor
        last = {"encoder": ".norm2.", "decoder": ".norm3."}
        return {
            name.replace(".feed_forward_residual.norm.", last[name[:7]]): tensor
            for name, tensor in rename(packed, self.NAMES).items()
        }

    def to_ours(self, transformer: nn.Transformer) -> dict[str, torch.Tensor]:
        state = {}
        for name, tensor in transformer.state_dict().items():
            last = "norm2" if name.startswith("encoder") else "norm3"
            name = name.replace(f".{last}.", ".feed_forward_residual.norm.")
            if "in_proj_" in name:
                for part, third in zip("qkv", tensor.chunk(3), strict=True):
                    state[name.replace("in_proj_", f"{part}_proj.")] = third
            else:
                state[name] = tensor
        return rename(state, inverse(self.NAMES))

    @pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
    @pytest.mark.parametrize("norm", ["post", "pre"])
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
    @pytest.mark.parametrize("back", [False, True])
    def test_same_states(
        self, norm: str, dtype: torch.dtype, tolerance: float, attn_implementation: str, back: bool
    ) -> None:
        ours = make(
            VaswaniModel, dtype=dtype, norm=norm, positions="none", scale_embedding=False,
            attn_implementation=attn_implementation,
        )  # fmt: skip
        theirs = self.theirs(norm, dtype)
        if back:
            theirs.load_state_dict(self.to_theirs(ours))
        else:
            missing, unexpected = ours.load_state_dict(self.to_ours(theirs), strict=False)
            assert not unexpected
            assert all("embed_tokens" in name for name in missing)
        source, target = torch.randn(3, 7, H, dtype=dtype), torch.randn(3, 5, H, dtype=dtype)
        mask, target_mask = torch.ones(3, 7), torch.ones(3, 5)
        mask[0, 4:] = 0
        target_mask[1, 3:] = 0
        with torch.no_grad():
            expected = theirs(
                source,
                target,
                tgt_mask=nn.Transformer.generate_square_subsequent_mask(5, dtype=dtype),
                tgt_is_causal=True,
                src_key_padding_mask=mask == 0,
                memory_key_padding_mask=mask == 0,
                tgt_key_padding_mask=torch.zeros(3, 5, dtype=dtype).masked_fill(target_mask == 0, -torch.inf),
            )
            outputs = ours(
                inputs_embeds=source, attention_mask=mask, decoder_inputs_embeds=target,
                decoder_attention_mask=target_mask,
            )  # fmt: skip
        real = target_mask.bool()
        assert expected.abs().max() > 1
        torch.testing.assert_close(outputs.last_hidden_state[real], expected[real], atol=tolerance, rtol=tolerance)


class TestMarian:
    """transformers' Marian: post-norm, sinusoidal, one embedding, sqrt(H).

    Its positions have the sines in the first half and the cosines in the second, ours side by side as in the paper: the
    same function of the position after a permutation of the features. The features of everything that touches the
    residual stream are permuted with it, which changes no logit.
    """

    NAMES = {
        "self_attn_residual.norm": "self_attn_layer_norm",
        "cross_attn_residual.norm": "encoder_attn_layer_norm",
        "feed_forward_residual.norm": "final_layer_norm",
        "feed_forward.fc": "fc",
        ".cross_attn.": ".encoder_attn.",
    }
    READS = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "fc1.weight", "embed_tokens.weight", "lm_head.weight")
    WRITES = ("out_proj.weight", "out_proj.bias", "fc2.weight", "fc2.bias", "norm.weight", "norm.bias")

    def config(self) -> MarianConfig:
        return MarianConfig(
            vocab_size=V, d_model=H, encoder_layers=2, decoder_layers=3, encoder_ffn_dim=F, decoder_ffn_dim=F,
            encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, activation_function="relu",
            scale_embedding=True, max_position_embeddings=64, pad_token_id=0, eos_token_id=2, forced_eos_token_id=None,
            decoder_start_token_id=1, share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
        )  # fmt: skip

    def permute(self, state: dict[str, torch.Tensor], order: torch.Tensor) -> dict[str, torch.Tensor]:
        permuted = {}
        for name, tensor in state.items():
            if name.endswith(self.READS):
                tensor = tensor[:, order]
            elif name.endswith(self.WRITES):
                tensor = tensor[order]
            permuted[name] = tensor
        return permuted

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-6)])
    @pytest.mark.parametrize("back", [False, True])
    def test_same_logits_and_translations(self, dtype: torch.dtype, tolerance: float, back: bool) -> None:
        """In float64 the tolerance is that of Marian's table, which is made in float32."""
        torch.manual_seed(2)
        theirs = MarianMTModel(self.config()).to(dtype).eval()
        ours = make(dtype=dtype)
        interleave = torch.arange(H).view(2, H // 2).T.flatten()  # sines and cosines, from halves to pairs
        if back:
            state = rename(self.permute(ours.state_dict(), interleave.argsort()), self.NAMES)
            state["model.shared.weight"] = state["lm_head.weight"]
        else:
            with torch.no_grad():
                for name, parameter in theirs.named_parameters():
                    if "embed_positions" not in name:
                        parameter.normal_(mean=float("layer_norm.weight" in name), std=0.3)
            own = {name: tensor for name, tensor in theirs.state_dict().items() if name != "model.shared.weight"}
            own = {name: tensor for name, tensor in own.items() if "embed_positions" not in name}
            state = rename(own, inverse(self.NAMES))
            assert not state.pop("final_logits_bias").any()
            state = self.permute(state, interleave)
        target = theirs if back else ours
        missing, unexpected = target.load_state_dict(state, strict=False)
        assert not unexpected
        assert all("embed_positions" in name or name == "final_logits_bias" for name in missing)
        inputs: dict[str, torch.Tensor] = {
            **batch(VaswaniForConditionalGeneration, 3),
            "attention_mask": torch.ones(3, 7),
        }
        inputs["attention_mask"][1, 4:] = 0
        with torch.no_grad():
            expected = theirs(**inputs).logits
            torch.testing.assert_close(ours(**inputs).logits, expected, atol=tolerance, rtol=tolerance)
        assert expected.std() > 0.1
        del inputs["decoder_input_ids"]
        for num_beams in (1, 3):
            options = {"max_new_tokens": 12, "num_beams": num_beams, "do_sample": False, "bad_words_ids": [[0]]}
            assert torch.equal(ours.generate(**inputs, **options), theirs.generate(**inputs, **options))


class TestGPT2:
    """transformers' GPT-2: decoder alone, pre-norm, learned positions, tanh approximation of GELU."""

    NAMES = {
        "model.decoder.embed_tokens": "transformer.wte",
        "model.decoder.embed_positions": "transformer.wpe",
        "model.decoder.norm": "transformer.ln_f",
        "model.decoder.layers": "transformer.h",
        "self_attn_residual.norm": "ln_1",
        "feed_forward_residual.norm": "ln_2",
        "self_attn.out_proj": "attn.c_proj",
        "feed_forward.fc1": "mlp.c_fc",
        "feed_forward.fc2": "mlp.c_proj",
    }

    def pair(self, dtype: torch.dtype) -> tuple[VaswaniForCausalLM, GPT2LMHeadModel]:
        ours = make(
            VaswaniForCausalLM, dtype=dtype, norm="pre", positions="learned", max_position_embeddings=32,
            scale_embedding=False, activation="gelu_new",
        )  # fmt: skip
        config = GPT2Config(
            vocab_size=V, n_embd=H, n_head=HEADS, n_layer=3, n_inner=F, n_positions=32, bos_token_id=1, eos_token_id=2
        )
        torch.manual_seed(3)
        theirs = GPT2LMHeadModel(config).to(dtype).eval()
        return ours, theirs

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
    @pytest.mark.parametrize("back", [False, True])
    def test_same_logits_and_texts(self, dtype: torch.dtype, tolerance: float, back: bool) -> None:
        ours, theirs = self.pair(dtype)
        if back:
            state = ours.state_dict()
            for name in [name for name in state if ".q_proj." in name]:
                parts = [state.pop(name.replace("q_proj", part)) for part in ("q_proj", "k_proj", "v_proj")]
                state[name.replace("self_attn.q_proj", "attn.c_attn")] = torch.cat(parts)
            state = rename(state, self.NAMES)
            linear = [name for name in state if ".attn.c_" in name or ".mlp.c_" in name]
            state = {name: tensor.T if name in linear else tensor for name, tensor in state.items()}
            theirs.load_state_dict(state)
        else:
            with torch.no_grad():
                for name, parameter in theirs.named_parameters():
                    parameter.normal_(mean=float(".ln_" in name and "weight" in name), std=0.3)
            state = {}
            for name, tensor in rename(theirs.state_dict(), inverse(self.NAMES)).items():
                if ".c_attn." in name:
                    for part, third in zip("qkv", tensor.chunk(3, dim=-1), strict=True):
                        state[name.replace("attn.c_attn", f"self_attn.{part}_proj")] = (
                            third.mT if third.ndim == 2 else third
                        )
                else:
                    state[name] = tensor.T if ("out_proj" in name or ".fc" in name) and tensor.ndim == 2 else tensor
            ours.load_state_dict(state)
        text, mask = ids(3, 6), torch.ones(3, 6, dtype=torch.long)
        with torch.no_grad():
            expected = theirs(text)
            outputs = ours(text, labels=text)
        torch.testing.assert_close(outputs.logits, expected.logits, atol=tolerance, rtol=tolerance)
        assert expected.logits.std() > 0.05
        torch.testing.assert_close(outputs.loss, theirs(text, labels=text).loss, atol=1e-5, rtol=0)
        mask[1, :3] = 0  # on the left: generate() tells GPT-2 which positions remain, ours counts them itself
        for num_beams in (1, 3):
            options = {"max_new_tokens": 8, "num_beams": num_beams, "do_sample": False, "pad_token_id": 0}
            assert torch.equal(
                ours.generate(text, attention_mask=mask, **options),
                theirs.generate(text, attention_mask=mask, **options),
            )


# Multi-head attention, by the letter


def test_attention_is_the_formula_of_the_paper() -> None:
    """Concat(head_1, ..., head_h) W^O, head_i = softmax(Q W_i^Q (K W_i^K)^T / sqrt(d_k)) V W_i^V (section 3.2)."""
    for head_dim in (None, 5):
        model = make(attn_implementation="eager", head_dim=head_dim)
        attention = model.model.decoder.layers[0].cross_attn
        query, source = torch.randn(2, 3, H, dtype=torch.float64), torch.randn(2, 4, H, dtype=torch.float64)
        output, weights = attention(query, key_value_states=source)
        d = head_dim or H // HEADS
        assert attention.out_proj.weight.shape == (H, HEADS * d)
        for b in range(2):
            heads = []
            for i in range(HEADS):
                rows = slice(i * d, (i + 1) * d)
                q, k, v = (
                    states[b] @ projection.weight[rows].T + projection.bias[rows]
                    for states, projection in (
                        (query, attention.q_proj),
                        (source, attention.k_proj),
                        (source, attention.v_proj),
                    )
                )
                alpha = (q @ k.T / math.sqrt(d)).softmax(-1)
                torch.testing.assert_close(weights[b, i], alpha)
                heads.append(alpha @ v)
            expected = torch.cat(heads, -1) @ attention.out_proj.weight.T + attention.out_proj.bias
            torch.testing.assert_close(output[b], expected)


@pytest.mark.parametrize("kind", HEADED)
@pytest.mark.parametrize("side", ["right", "left"])
def test_eager_sdpa_and_flex_agree(kind: Any, side: str) -> None:
    """Flex attention without its compiler, which takes minutes and computes the same."""
    inputs = batch(kind)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    hidden = slice(4, None) if side == "right" else slice(None, 3)
    inputs["attention_mask"][0, hidden] = 0
    real = inputs["attention_mask"].bool()
    outputs = {}
    for implementation in ("eager", "sdpa", "flex_attention"):
        model = make(kind, dtype=torch.float32, attn_implementation=implementation)
        assert model.config._attn_implementation == implementation
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            outputs[implementation] = model(**inputs).logits
    for logits in outputs.values():
        if kind in (VaswaniForCausalLM, VaswaniForMaskedLM):  # what stands at padding is nobody's business
            torch.testing.assert_close(logits[real], outputs["eager"][real], atol=1e-5, rtol=0)
        else:
            torch.testing.assert_close(logits, outputs["eager"], atol=1e-5, rtol=0)


def test_flex_attention_that_would_train_on_a_cpu_is_one_sentence() -> None:
    model = make(VaswaniForCausalLM, dtype=torch.float32, attn_implementation="flex_attention")
    with pytest.raises(ValueError, match="no backward pass on a CPU; load the model with attn_implementation='sdpa'"):
        model(**batch(VaswaniForCausalLM))


def test_the_attention_implementation_may_be_changed_on_a_made_model() -> None:
    model = make()
    inputs = batch(type(model))
    expected = model(**inputs)
    assert not expected.cross_attentions
    model.set_attn_implementation("eager")
    outputs = model(**inputs, output_attentions=True, output_hidden_states=True)
    torch.testing.assert_close(outputs.logits, expected.logits)
    shapes = [weights.shape for weights in outputs.cross_attentions]
    assert shapes == [(2, HEADS, 5, 7)] * 3
    assert [weights.shape for weights in outputs.decoder_attentions] == [(2, HEADS, 5, 5)] * 3
    assert [weights.shape for weights in outputs.encoder_attentions] == [(2, HEADS, 7, 7)] * 2
    assert (len(outputs.encoder_hidden_states), len(outputs.decoder_hidden_states)) == (3, 4)
    for weights in outputs.cross_attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 5, dtype=torch.float64))


# Any score, any distribution


def options_of(score: str) -> dict[str, Any]:
    """Options of a score: those that it needs, and others than the defaults."""
    options: dict[str, dict[str, Any]] = {
        "location": {"max_length": 16, "activation": "tanh"}, "minkowski": {"p": 3.0},
        "concat": {"activation": "relu"}, "dot": {"learn_beta": True},
    }  # fmt: skip
    return options.get(score, {})


def with_attention(score: str, distribution: str, **fields: Any) -> Any:
    attention = {
        f"{kind}_attention_{name}": value
        for kind in ("self", "cross")
        for name, value in {
            "score": score, "score_options": options_of(score), "distribution": distribution,
        }.items()
    }  # fmt: skip
    return make(**attention, **{"encoder_layers": 1, "decoder_layers": 1, **fields})


PAIRS = [(score, "softmax") for score in SCORES] + [("scaled_dot", name) for name in DISTRIBUTIONS]
PAIRS += [("additive", "entmax"), ("general", "sparsemax"), ("boxcar", "normalize"), ("location", "compositional")]


@pytest.mark.parametrize(("score", "distribution"), sorted(set(PAIRS)))
def test_every_score_and_distribution(score: str, distribution: str) -> None:
    """Cached equals uncached, padding is invisible, and so is the future; gradients are finite."""
    model = with_attention(score, distribution)
    source, target = ids(2, 6), ids(2, 5, seed=2)
    mask = torch.ones_like(source)
    mask[0, 4:] = 0
    whole = model(source, attention_mask=mask, decoder_input_ids=target, use_cache=False).logits
    assert whole.isfinite().all()
    first = model(source, attention_mask=mask, decoder_input_ids=target[:, :2], use_cache=True)
    rest = [first.logits]
    for step in range(2, 5):
        rest.append(
            model(
                attention_mask=mask, encoder_outputs=(first.encoder_last_hidden_state,),
                decoder_input_ids=target[:, step : step + 1], past_key_values=first.past_key_values,
            ).logits
        )  # fmt: skip
    torch.testing.assert_close(torch.cat(rest, 1), whole)
    alone = model(source[:1, :4], decoder_input_ids=target[:1]).logits
    torch.testing.assert_close(whole[:1], alone)
    changed = target.clone()
    changed[:, 3:] = ids(2, 2, seed=9)
    again = model(source, attention_mask=mask, decoder_input_ids=changed).logits
    torch.testing.assert_close(again[:, :3], whole[:, :3])
    model.train()
    model(source, attention_mask=mask, labels=target).loss.backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert sum(gradient.abs().sum() for gradient in gradients) > 0


@pytest.mark.parametrize(("score", "distribution"), sorted(set(PAIRS)))
def test_every_score_and_distribution_in_half_precision(score: str, distribution: str) -> None:
    fields: dict[str, Any] = {"dtype": torch.float32, "encoder_layers": 1}
    source, target = ids(2, 6), ids(2, 5, seed=2)
    jumps = score == "boxcar" or distribution in (
        "hard",
        "normalize",
    )  # where a rounding may change a weight altogether
    with torch.no_grad():
        expected = with_attention(score, distribution, **fields)(source, decoder_input_ids=target).logits
        for cache_implementation in (None, "static"):
            model = with_attention(score, distribution, **{**fields, "dtype": torch.bfloat16})
            logits = model(source, decoder_input_ids=target).logits
            assert logits.dtype == torch.bfloat16
            assert logits.isfinite().all()
            assert jumps or (logits.float() - expected).square().mean() < 0.02 * expected.var()
            options = {"max_new_tokens": 4, "do_sample": False, "output_logits": True, "return_dict_in_generate": True}
            written = model.generate(source, **options, cache_implementation=cache_implementation, disable_compile=True)
            again = model(source, decoder_input_ids=written.sequences[:, :-1]).logits
            steps = torch.stack(written.logits, 1)
            assert jumps or (steps.float() - again.float()).square().mean() < 0.01 * again.float().var()


def test_weights_of_another_score_come_under_every_implementation_when_asked_for() -> None:
    inputs = batch(VaswaniForConditionalGeneration)
    runs = {}
    for implementation in ("eager", "sdpa"):
        model = with_attention("general", "softmax", attn_implementation=implementation)
        assert implementation == "eager" or model(**inputs).cross_attentions is None
        runs[implementation] = model(**inputs, output_attentions=True)
    torch.testing.assert_close(runs["sdpa"].cross_attentions[0], runs["eager"].cross_attentions[0])
    torch.testing.assert_close(runs["sdpa"].logits, runs["eager"].logits)
    assert runs["sdpa"].cross_attentions[0].shape == (2, HEADS, 5, 7)


def test_a_learned_temperature_under_every_implementation() -> None:
    """A new model equals the unscaled one; then exp(log β) is a factor of the queries, fused or not."""
    options = {f"{kind}_attention_score_options": {"learn_beta": True} for kind in ("self", "cross")}
    inputs, standard = batch(VaswaniForConditionalGeneration), make()
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][0, 4:] = 0
    for implementation in ("eager", "sdpa"):
        model, scaled = make(attn_implementation=implementation, **options), make(attn_implementation=implementation)
        names = {name.rpartition(".")[2] for name, _ in model.named_parameters() if ".attention." in name}
        assert names == {"log_beta"}
        model.load_state_dict(model.state_dict() | standard.state_dict())
        scaled.load_state_dict(standard.state_dict())
        torch.testing.assert_close(model(**inputs).logits, standard(**inputs).logits)
        betas = iter((0.5, 2.0, 3.0, 0.25, 1.5, 4.0, 0.1, 0.7))
        with torch.no_grad():
            for name, module in model.named_modules():
                if isinstance(module, VaswaniAttention):
                    beta = next(betas)
                    module.get_parameter("attention.score.log_beta").fill_(math.log(beta))
                    query = scaled.get_submodule(name).q_proj
                    query.weight *= beta
                    query.bias *= beta
        torch.testing.assert_close(model(**inputs).logits, scaled(**inputs).logits)
        model(**inputs, labels=inputs["decoder_input_ids"]).loss.backward()
        assert all(p.grad.abs() > 0 for name, p in model.named_parameters() if name.endswith("log_beta"))


def test_self_and_cross_attention_are_chosen_apart() -> None:
    model = make(self_attention_score="additive", cross_attention_distribution="sparsemax")
    weights = model(**batch(type(model)), output_attentions=True)
    assert (weights.cross_attentions[0] == 0).any()
    names = {name.rpartition(".")[2] for name, _ in model.named_parameters() if ".attention." in name}
    assert names == {"W_q", "W_k", "v"}
    assert not [name for name, _ in model.named_parameters() if "cross_attn.attention" in name]


@pytest.mark.parametrize("score", ["scaled_dot", "additive"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_keys_are_computed_once(score: str, attn_implementation: str) -> None:
    """Those of the source once, those of the target one at a time; with what a score derives from them."""
    model = with_attention(score, "softmax", attn_implementation=attn_implementation)
    layer = model.model.decoder.layers[0]
    seen: dict[str, list[int]] = {}

    def count(name: str) -> Callable:
        def add(module: Any, args: Any, output: Any) -> None:  # lean steps pass (N, H), one step of all rows
            seen.setdefault(name, []).append(args[0].shape[1] if args[0].ndim == 3 else 1)

        return add

    layer.cross_attn.k_proj.register_forward_hook(count("cross"))
    layer.self_attn.k_proj.register_forward_hook(count("self"))
    prepared: list[int] = []
    prepare = layer.cross_attn.attention.score.prepare

    def counted(key: torch.Tensor) -> torch.Tensor:
        prepared.append(key.shape[-2])
        return prepare(key)

    layer.cross_attn.attention.score.prepare = counted
    model.generate(ids(2, 7), max_new_tokens=6, do_sample=False, eos_token_id=None, num_beams=2)
    assert seen == {"cross": [7], "self": [1] * 6}
    assert prepared == ([] if score == "scaled_dot" and attn_implementation == "sdpa" else [7])


# Positions


def test_sinusoidal_positions_are_the_formula() -> None:
    width = 12
    table = sinusoidal_positions(torch.arange(40), width, torch.float64)
    for p in range(40):
        for i in range(width // 2):
            angle = p / 10_000 ** (2 * i / width)
            assert table[p, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-12)
            assert table[p, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-12)


def test_a_shift_of_sinusoidal_positions_is_a_rotation() -> None:
    """T(a) PE(p) = PE(p + a), T(a) orthogonal, T(a + b) = T(a) T(b); ‖PE‖² = H / 2; PE_p · PE_q depends on p - q."""
    width = 16
    positions = torch.arange(-50, 3000)  # a function of any position
    table = sinusoidal_positions(positions, width, torch.float64)

    def rotation(shift: int) -> torch.Tensor:
        blocks = []
        for i in range(width // 2):
            angle = torch.tensor(shift / 10_000 ** (2 * i / width), dtype=torch.float64)
            blocks.append(torch.tensor([[angle.cos(), angle.sin()], [-angle.sin(), angle.cos()]], dtype=torch.float64))
        return torch.block_diag(*blocks)

    for shift in (1, 7, 1000):
        turned = table[:-shift] @ rotation(shift).T
        torch.testing.assert_close(turned, table[shift:], atol=1e-10, rtol=0)
    torch.testing.assert_close(rotation(7).T @ rotation(7), torch.eye(width, dtype=torch.float64))
    torch.testing.assert_close(rotation(7) @ rotation(11), rotation(18))
    torch.testing.assert_close(table.square().sum(-1), torch.full((len(table),), width / 2, dtype=torch.float64))
    gram = table[:60] @ table[:60].T
    for offset in range(60):
        diagonal = gram.diagonal(offset)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-10, rtol=0)


@pytest.mark.parametrize("lean", [True, False])
def test_generation_reaches_the_last_learned_position(lean: bool) -> None:
    ends: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": None, "decoder_start_token_id": 1}
    model = make(VaswaniForConditionalGeneration, positions="learned", max_position_embeddings=8, **ends).eval()
    model.fast_generation = lean
    assert (model.why_not_fast() is None) == lean
    assert model.generate(ids(2, 5), max_new_tokens=8, do_sample=False).shape == (2, 9)
    with pytest.raises(ValueError, match="reaches position 8 and there are 8 learned positions"):
        model.generate(ids(2, 5), max_new_tokens=9, do_sample=False)


def test_sinusoidal_positions_go_on_where_learned_ones_end(tmp_path: Path) -> None:
    text = ids(1, 40)
    model = make(VaswaniForCausalLM, max_position_embeddings=8)
    long = model(text).logits
    assert long.isfinite().all()
    assert not [name for name in model.state_dict() if "position" in name]
    model.save_pretrained(tmp_path)
    loaded = VaswaniForCausalLM.from_pretrained(tmp_path, dtype=torch.float64)  # by way of the meta device
    torch.testing.assert_close(loaded(text).logits, long)
    learned = make(VaswaniForCausalLM, positions="learned", max_position_embeddings=8)
    with pytest.raises(ValueError, match="reaches position 39 and there are 8 learned positions"):
        learned(text)
    assert learned(text[:, :8]).logits.isfinite().all()
    mask = torch.ones_like(text)
    mask[:, :32] = 0  # padding takes no position
    assert learned(text, attention_mask=mask).logits[:, 32:].isfinite().all()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_order_counts_only_with_positions(positions: str, attn_implementation: str) -> None:
    model = make(VaswaniForMaskedLM, positions=positions, attn_implementation=attn_implementation)
    text, order = ids(1, 7), torch.tensor([3, 1, 6, 0, 2, 5, 4])
    same = torch.allclose(model(text[:, order]).logits, model(text).logits[:, order])
    assert same == (positions == "none")


# Masks


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
@pytest.mark.parametrize("norm", ["post", "pre", "none"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_padding_is_invisible_and_takes_no_position(positions: str, norm: str, attn_implementation: str) -> None:
    fields = {"positions": positions, "norm": norm, "attn_implementation": attn_implementation}
    model = make(VaswaniForCausalLM, **fields)
    text = ids(2, 9)
    mask = torch.ones_like(text)
    mask[0, :5] = 0
    padded = model(text, attention_mask=mask)
    torch.testing.assert_close(padded.logits[0, 5:], model(text[:1, 5:]).logits[0])
    torch.testing.assert_close(padded.logits[1:], model(text[1:]).logits)
    step = model(
        text[:, :1], attention_mask=nn.functional.pad(mask, (0, 1), value=1), past_key_values=padded.past_key_values
    )
    alone = model(torch.cat([text[:1, 5:], text[:1, :1]], 1)).logits[:, -1:]
    torch.testing.assert_close(step.logits[:1], alone)

    model = make(**fields)
    target, target_mask = ids(2, 5, seed=2), torch.ones(2, 5, dtype=torch.long)
    target_mask[0, :2] = 0
    for side in (slice(None, 4), slice(5, None)):
        mask = torch.ones_like(text)
        mask[0, side] = 0
        outputs = model(text, mask, target, target_mask).logits
        alone = model(text[:1, mask[0].bool()], decoder_input_ids=target[:1, 2:]).logits
        torch.testing.assert_close(outputs[:1, 2:], alone)
        replaced = torch.where(mask.bool(), text, ids(2, 9, seed=8))
        assert torch.equal(model(replaced, mask, target, target_mask).logits, outputs)


@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_the_future_is_invisible(attn_implementation: str) -> None:
    model = make(VaswaniForCausalLM, attn_implementation=attn_implementation)
    text = ids(1, 8)
    whole = model(text).logits
    for t in range(8):
        changed = text.clone()
        changed[0, t] = (text[0, t] + 1) % V
        difference = (model(changed).logits - whole).abs().amax(-1)[0]
        assert not difference[:t].any()
        assert difference[t] > 0


@pytest.mark.parametrize("kind", HEADED)
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_that_is_all_padding_makes_no_nan(kind: Any, attn_implementation: str, dtype: torch.dtype) -> None:
    model = make(kind, attn_implementation=attn_implementation, dtype=dtype).train()
    inputs = batch(kind)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0] = 0
    outputs = model(**inputs, attention_mask=mask, labels=labels_of(kind, inputs))
    assert outputs.logits.isfinite().all()
    outputs.loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)


def test_weights_of_padding_are_exactly_zero() -> None:
    model = make(attn_implementation="eager")
    mask = torch.ones(3, 7)
    mask[0], mask[1, 4:] = 0, 0
    outputs = model(ids(3, 7), mask, decoder_input_ids=ids(3, 5), output_attentions=True)
    for weights in (*outputs.cross_attentions, *outputs.encoder_attentions):
        assert not weights[0].any()
        assert not weights[1, ..., 4:].any()
        assert weights[1, ..., :4].all()


def test_a_mask_may_come_ready_with_four_dimensions() -> None:
    text = ids(2, 6)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    window = causal & torch.ones(6, 6, dtype=torch.bool).triu(-2)
    ready = window.expand(2, 1, 6, 6)
    added = torch.zeros(2, 1, 6, 6, dtype=torch.float64).masked_fill(~ready, torch.finfo(torch.float64).min)
    runs = []
    for implementation in ("sdpa", "eager"):
        model = make(VaswaniForCausalLM, attn_implementation=implementation)
        runs += [model(text, attention_mask=ready).logits, model(text, attention_mask=added).logits]
    for logits in runs[1:]:
        torch.testing.assert_close(logits, runs[0])
    assert not torch.allclose(runs[0], make(VaswaniForCausalLM)(text).logits)


# T-Fixup


@pytest.mark.parametrize("tied", [True, False])
def test_t_fixup_scales_each_parameter_as_the_paper_says(tied: bool) -> None:
    n_e, n_d, width = 4, 3, 256
    fields: dict[str, Any] = {
        "hidden_size": width,
        "intermediate_size": 512,
        "encoder_layers": n_e,
        "decoder_layers": n_d,
    }
    fields |= {"share_embeddings": tied, "tie_word_embeddings": tied, "vocab_size": 500, "positions": "learned"}
    model = make(norm="none", dtype=torch.float32, **fields)
    assert not [module for module in model.modules() if isinstance(module, nn.LayerNorm)]
    assert not [name for name, _ in model.named_parameters() if "norm" in name]
    decoder, encoder = (9 * n_d) ** -0.25, 0.67 * n_e**-0.25
    seen = set()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
            continue
        if "embed" in name:
            expected = decoder * width**-0.5
        else:
            glorot = math.sqrt(2 / sum(parameter.shape))
            factor = decoder if "decoder" in name else encoder
            scaled = any(part in name for part in ("v_proj", "out_proj", "fc1", "fc2"))
            expected = glorot * (factor if scaled else 1.0)
            assert scaled or "q_proj" in name or "k_proj" in name or "lm_head" in name
            # Glorot's uniform distribution ends at √3 of its deviation, so the factor shows exactly at its edge.
            assert parameter.abs().max().item() == pytest.approx(math.sqrt(3) * expected, rel=1e-3)
        assert parameter.std().item() == pytest.approx(expected, rel=0.03)
        seen.add(name.rsplit(".", 2)[-2])
    assert seen >= {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "embed_tokens", "embed_positions"}
    assert ("lm_head" in seen) != tied


def test_a_single_stack_has_its_own_number_of_layers_in_the_factors() -> None:
    fields = {"hidden_size": 128, "norm": "none", "encoder_layers": 4, "decoder_layers": 9, "vocab_size": 500}
    for kind, layers in ((VaswaniForCausalLM, 9), (VaswaniForMaskedLM, 4)):
        weight = make(kind, dtype=torch.float32, **fields).get_input_embeddings().weight
        assert weight.std().item() == pytest.approx((9 * layers) ** -0.25 * 128**-0.5, rel=0.03)


@pytest.mark.parametrize("tied", [True, False])
def test_t_fixup_is_not_applied_again_by_from_pretrained(tmp_path: Path, tied: bool) -> None:
    model = make(norm="none", tie_word_embeddings=tied, share_embeddings=tied)
    model.save_pretrained(tmp_path)
    loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64)
    for name, parameter in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], parameter)
    # What the checkpoint lacks gets its factor, here in the layer that is new.
    deeper = VaswaniForConditionalGeneration.from_pretrained(tmp_path, decoder_layers=4, dtype=torch.float64)
    fresh = deeper.model.decoder.layers[3].feed_forward.fc1.weight
    assert fresh.abs().max().item() == pytest.approx((9 * 4) ** -0.25 * math.sqrt(6 / (H + F)), rel=0.05)
    assert torch.equal(
        deeper.model.decoder.layers[2].feed_forward.fc1.weight, model.model.decoder.layers[2].feed_forward.fc1.weight
    )


def test_embeddings_start_with_variance_one_after_their_scale() -> None:
    model = make(VaswaniForMaskedLM, hidden_size=256, vocab_size=500, dtype=torch.float32)
    assert (model.get_input_embeddings().weight * math.sqrt(256)).std().item() == pytest.approx(1, rel=0.03)


# Embeddings


TYINGS = [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize(("shared", "tied"), TYINGS)
def test_three_matrices_or_two_or_one(tmp_path: Path, shared: bool, tied: bool) -> None:
    model = make(share_embeddings=shared, tie_word_embeddings=tied, lm_head_bias=True)

    def matrices(model: VaswaniForConditionalGeneration) -> tuple[torch.Tensor, ...]:
        return model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight

    def check(model: VaswaniForConditionalGeneration) -> None:
        source, target, output = matrices(model)
        assert (source is target) == shared
        assert (target is output) == tied

    check(model)
    model.save_pretrained(tmp_path)
    loaded, info = VaswaniForConditionalGeneration.from_pretrained(
        tmp_path, dtype=torch.float64, output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    check(loaded)
    inputs = batch(type(model))
    before = model(**inputs).logits.detach()
    torch.testing.assert_close(loaded(**inputs).logits, before)

    model.resize_token_embeddings(V + 3)
    check(model)
    assert [len(matrix) for matrix in matrices(model)] == [V + 3] * 3
    assert model.config.vocab_size == model.lm_head.out_features == len(model.lm_head.bias) == V + 3
    torch.testing.assert_close(model(**inputs).logits[..., :V], before)
    model(**inputs, labels=torch.full_like(inputs["decoder_input_ids"], V + 2)).loss.backward()
    model.resize_token_embeddings(V)
    torch.testing.assert_close(model(**inputs).logits, before)


@pytest.mark.parametrize("shared_embeddings", [True, False])
def test_both_stacks_may_share_their_positions(tmp_path: Path, shared_embeddings: bool) -> None:
    """One table in the file and in the loaded model; its gradient is the sum of those that two tables would have."""
    fields = {"positions": "learned", "max_position_embeddings": 9, "share_embeddings": shared_embeddings}
    inputs = batch(VaswaniForConditionalGeneration)
    labels = inputs["decoder_input_ids"]
    apart, model = make(**fields), make(**fields, share_positions=True)
    table = model.model.decoder.embed_positions.weight
    assert model.model.encoder.embed_positions.weight is table
    assert model.num_parameters() == apart.num_parameters() - 9 * H
    apart.load_state_dict(model.state_dict())
    for each in (apart, model):
        each(**inputs, labels=labels).loss.backward()
    gradients = [stack.embed_positions.weight.grad for stack in (apart.model.encoder, apart.model.decoder)]
    assert all(gradient.abs().sum() > 0 for gradient in gradients)
    torch.testing.assert_close(table.grad, sum(gradients))

    model.save_pretrained(tmp_path)
    assert sum("embed_positions" in name for name in load_file(tmp_path / "model.safetensors")) == 1
    for kind in (VaswaniForConditionalGeneration, VaswaniModel):
        loaded, info = kind.from_pretrained(tmp_path, dtype=torch.float64, output_loading_info=True)
        assert not info["missing_keys"]
        assert loaded.get_encoder().embed_positions.weight is loaded.get_decoder().embed_positions.weight
        assert torch.equal(loaded.get_encoder().embed_positions.weight, table)


@pytest.mark.parametrize("kind", [VaswaniForSequenceClassification, VaswaniForMaskedLM])
def test_models_of_the_encoder_start_from_a_translator(tmp_path: Path, kind: Any) -> None:
    """Without the pipeline of the translator."""
    translator = make(share_embeddings=False)
    translator.save_pretrained(tmp_path / "translator")
    loaded, info = kind.from_pretrained(tmp_path / "translator", dtype=torch.float64, output_loading_info=True)
    assert info["missing_keys"] <= {"classifier.weight", "classifier.bias"}
    text = ids(2, 7)
    expected = translator.get_encoder()(text).last_hidden_state
    torch.testing.assert_close(loaded.eval().model(text).last_hidden_state, expected)
    loaded.save_pretrained(tmp_path / "own")
    assert "custom_pipelines" in read_json(tmp_path / "translator" / "config.json")
    assert "custom_pipelines" not in read_json(tmp_path / "own" / "config.json")


def test_other_embeddings_may_be_set() -> None:
    for kind in HEADED:
        model, embedding = make(kind), nn.Embedding(V, H).double()
        model.set_input_embeddings(embedding)
        stacks = [stack for stack in (model.get_encoder(), model.get_decoder()) if hasattr(stack, "embed_tokens")]
        assert len(stacks) == 1 + (kind is VaswaniForConditionalGeneration)
        assert all(stack.embed_tokens is embedding for stack in stacks)
    model = make(share_embeddings=False)
    model.set_input_embeddings(embedding)
    assert model.get_encoder().embed_tokens is embedding
    assert model.get_decoder().embed_tokens is not embedding


def test_vocabularies_of_their_own(tmp_path: Path) -> None:
    model = make(source_vocab_size=20, share_embeddings=False)
    inputs = {"input_ids": ids(2, 4) + 7, "decoder_input_ids": ids(2, 3)}
    before = model(**inputs).logits
    assert before.shape == (2, 3, V)
    model.resize_token_embeddings(V + 2)
    assert model.model.encoder.embed_tokens.num_embeddings == 20
    model.resize_source_token_embeddings(25)
    assert model.model.encoder.embed_tokens.num_embeddings == 25
    torch.testing.assert_close(model(**inputs).logits[..., :V], before)
    model.save_pretrained(tmp_path)
    loaded = VaswaniForConditionalGeneration.from_pretrained(tmp_path, dtype=torch.float64)
    assert (loaded.config.vocab_size, loaded.config.source_vocab_size) == (V + 2, 25)
    torch.testing.assert_close(loaded(**inputs).logits[..., :V], before)
    assert make(VaswaniForMaskedLM, source_vocab_size=20, share_embeddings=False)(ids(2, 4)).logits.shape[-1] == 20
    with pytest.raises(ValueError, match="call resize_token_embeddings"):
        make().resize_source_token_embeddings(25)


@pytest.mark.parametrize("kind", HEADED)
def test_inputs_embeds(kind: Any) -> None:
    model, inputs = make(kind), batch(kind)
    expected = model(**inputs).logits
    embeds = {
        name.replace("input_ids", "inputs_embeds"): (
            model.get_decoder().embed_tokens if name.startswith("decoder") else model.get_input_embeddings()
        )(tensor)
        for name, tensor in inputs.items()
    }
    torch.testing.assert_close(model(**embeds).logits, expected)
    with pytest.raises(ValueError, match="Pass either input_ids or inputs_embeds, and not both"):
        model(**inputs, **embeds)
    if "decoder_input_ids" in inputs:
        with pytest.raises(ValueError, match="Pass either decoder_input_ids or decoder_inputs_embeds"):
            model(input_ids=inputs["input_ids"])


# Losses and heads


def labels_of(kind: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    if kind is VaswaniForSequenceClassification:
        return torch.arange(len(inputs["input_ids"])) % 2
    return inputs.get("decoder_input_ids", inputs["input_ids"]).clone()


@pytest.mark.parametrize("kind", HEADED[:3])
def test_the_loss_is_the_mean_of_literal_cross_entropies(kind: Any) -> None:
    model, inputs = make(kind), batch(kind)
    labels = labels_of(kind, inputs)
    labels[0, 3] = -100
    if kind is VaswaniForConditionalGeneration:
        del inputs["decoder_input_ids"]
        shifted = model.prepare_decoder_input_ids_from_labels(labels)
        assert shifted[0].tolist() == [1, *labels[0, :3].tolist(), 0]
    outputs = model(**inputs, labels=labels)
    log_probabilities = outputs.logits.log_softmax(-1)
    ahead = int(kind is VaswaniForCausalLM)  # only a language model predicts the next of its inputs
    pairs = [(b, t) for b in range(2) for t in range(ahead, labels.shape[1]) if labels[b, t] != -100]
    total = -sum(log_probabilities[b, t - ahead, labels[b, t]] for b, t in pairs)
    torch.testing.assert_close(outputs.loss.double(), total / len(pairs), atol=1e-6, rtol=0)
    # What Trainer divides by under gradient accumulation.
    accumulated = model(**inputs, labels=labels, num_items_in_batch=100).loss
    torch.testing.assert_close(accumulated.double(), total / 100, atol=1e-6, rtol=0)


def test_the_start_symbol_is_asked_for_where_it_lacks() -> None:
    model = make(decoder_start_token_id=None)
    with pytest.raises(ValueError, match="decoder_start_token_id is null in the configuration; write the id"):
        model(ids(2, 4), labels=ids(2, 3))


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_classifier_reads_the_mean_or_the_first_of_what_is_not_padding(side: str) -> None:
    text = ids(2, 6)
    mask = torch.ones_like(text)
    mask[0, slice(4, None) if side == "right" else slice(None, 2)] = 0
    for pooling in ("mean", "first"):
        model = make(VaswaniForSequenceClassification, classifier_pooling=pooling, num_labels=3)
        logits = model(text, attention_mask=mask).logits
        states = model.model(text, attention_mask=mask).last_hidden_state
        for row in range(2):
            real = states[row, mask[row].bool()]
            expected = model.classifier(real.mean(0) if pooling == "mean" else real[0])
            torch.testing.assert_close(logits[row], expected)
        torch.testing.assert_close(model(text[:1, mask[0].bool()]).logits[0], logits[0])


@pytest.mark.parametrize(
    ("labels", "problem", "num_labels"),
    [
        (torch.tensor([2, 0]), "single_label_classification", 3),
        (torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]), "multi_label_classification", 3),
        (torch.tensor([0.5, -1.0]), "regression", 1),
    ],
)
def test_a_classifier_knows_the_kinds_of_problem(labels: torch.Tensor, problem: str, num_labels: int) -> None:
    model = make(VaswaniForSequenceClassification, num_labels=num_labels, dtype=torch.float32)
    outputs = model(ids(2, 5), labels=labels)
    assert model.config.problem_type == problem
    logits = outputs.logits.detach()
    expected = {
        "single_label_classification": lambda: -logits.log_softmax(-1)[[0, 1], labels.tolist()].mean(),
        "multi_label_classification": lambda: (
            -(labels * logits.sigmoid().log() + (1 - labels) * (1 - logits.sigmoid()).log()).mean()
        ),
        "regression": lambda: (logits[:, 0] - labels).square().mean(),
    }[problem]()
    torch.testing.assert_close(outputs.loss, expected)


def test_labels_of_several_classes_may_be_integers_and_those_of_one_a_vector() -> None:
    fields: dict[str, Any] = {"problem_type": "multi_label_classification", "dtype": torch.float32}
    model = make(VaswaniForSequenceClassification, num_labels=3, **fields)
    labels = torch.tensor([[1, 0, 1], [0, 1, 0]])
    torch.testing.assert_close(model(ids(2, 5), labels=labels).loss, model(ids(2, 5), labels=labels.float()).loss)
    one = make(VaswaniForSequenceClassification, num_labels=1, **fields)
    expected = one(ids(2, 5), labels=torch.tensor([[1.0], [0.0]])).loss
    torch.testing.assert_close(one(ids(2, 5), labels=torch.tensor([1, 0])).loss, expected)
    with pytest.raises(ValueError, match=r"labels has the shape \(2, 2\); pass zeros and ones of shape \(2, 3\)"):
        model(ids(2, 5), labels=labels[:, :2])


def test_a_cache_is_not_dropped_by_gradient_checkpointing() -> None:
    model = make(VaswaniForCausalLM).train()
    cache = model(ids(2, 5), use_cache=True).past_key_values
    model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match="With gradient checkpointing, layers read no cache in training"):
        model(ids(2, 5), past_key_values=cache)


def test_a_stack_trained_alone_is_a_stack_of_a_translator(tmp_path: Path) -> None:
    text = ids(2, 5)
    masked, writer = make(VaswaniForMaskedLM), make(VaswaniForCausalLM)
    masked.save_pretrained(tmp_path / "encoder")
    writer.save_pretrained(tmp_path / "decoder")
    classifier, translator = (
        kind.from_pretrained(tmp_path / "encoder", dtype=torch.float64)
        for kind in (VaswaniForSequenceClassification, VaswaniForConditionalGeneration)
    )
    expected = masked.model(text).last_hidden_state
    torch.testing.assert_close(classifier.model(text).last_hidden_state, expected)
    torch.testing.assert_close(translator.get_encoder()(text).last_hidden_state, expected)
    assert translator.config.is_encoder_decoder
    translator = VaswaniForConditionalGeneration.from_pretrained(tmp_path / "decoder", dtype=torch.float64)
    assert translator(text, decoder_input_ids=text).logits.isfinite().all()
    for name, parameter in writer.state_dict().items():
        assert torch.equal(translator.state_dict()[name], parameter)
    # And a translator's decoder writes alone, without what read the source.
    translator.save_pretrained(tmp_path / "both")
    alone = VaswaniForCausalLM.from_pretrained(tmp_path / "both", dtype=torch.float64)
    torch.testing.assert_close(alone(text).logits, writer(text).logits)


# Training


def test_a_model_without_normalisation_learns_to_reverse_without_warm_up(tmp_path: Path) -> None:
    """Through Seq2SeqTrainer, with its label smoothing, its generation at evaluation, and texts of several lengths."""

    def reversals(number: int, seed: int) -> list[dict[str, list[int]]]:
        generator = torch.Generator().manual_seed(seed)
        lengths = torch.randint(1, 5, (number,), generator=generator).tolist()
        words = [torch.randint(3, V, (length,), generator=generator).tolist() for length in lengths]
        return [{"input_ids": word, "labels": [*word[::-1], 2]} for word in words]

    model = make(
        norm="none", dtype=torch.float32, dropout=0.0, hidden_size=32, intermediate_size=64, encoder_layers=1,
        decoder_layers=1,
    )  # fmt: skip

    def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
        source, target = (
            nn.utils.rnn.pad_sequence([torch.tensor(row[name]) for row in rows], True, padding)
            for name, padding in (("input_ids", 0), ("labels", -100))
        )
        read = model.prepare_decoder_input_ids_from_labels(target)
        return {"input_ids": source, "attention_mask": source != 0, "labels": target, "decoder_input_ids": read}

    arguments = Seq2SeqTrainingArguments(
        str(tmp_path), max_steps=300, per_device_train_batch_size=48, per_device_eval_batch_size=100,
        learning_rate=7e-3, label_smoothing_factor=0.1, predict_with_generate=True, generation_max_length=10,
        report_to="none", save_strategy="no", use_cpu=True, disable_tqdm=True, remove_unused_columns=False,
    )  # fmt: skip
    trainer = Seq2SeqTrainer(model, arguments, train_dataset=reversals(4000, 0), data_collator=collate)
    trainer.train()
    unseen = [row for row in reversals(150, 1) if len(row["input_ids"]) > 2]
    written = trainer.predict(unseen).predictions[:, 1:].tolist()
    right = [row[: len(want["labels"])] == want["labels"] for row, want in zip(written, unseen, strict=True)]
    assert sum(right) > 0.9 * len(right)


# Dropout


def test_dropout_acts_where_it_is_said_to_and_only_in_training() -> None:
    none = {"dropout": 0.0, "embedding_dropout": 0.0}
    text = ids(1, 40)

    def runs_differ(**fields: Any) -> bool:
        model = make(VaswaniForMaskedLM, **{**none, **fields})
        assert torch.equal(model(text).logits, model(text).logits)
        model.train()
        return not torch.equal(model(text).logits, model(text).logits)

    assert not runs_differ()
    for place in ("dropout", "embedding_dropout", "attention_dropout", "activation_dropout", "output_dropout"):
        assert runs_differ(**{place: 0.5})
        assert runs_differ(**{place: 0.5}, attn_implementation="eager")
    assert runs_differ(attention_dropout=0.5, self_attention_score="additive")
    model = make(VaswaniForMaskedLM, embedding_dropout=0.5, dropout=0.0).train()
    first = model(text, output_hidden_states=True).hidden_states[0]
    assert 0.4 < (first == 0).double().mean() < 0.6
    for model_class in (VaswaniForConditionalGeneration, VaswaniForCausalLM, VaswaniForMaskedLM):
        model = make(model_class, output_dropout=0.5, lm_head_bias=False, **none).train()
        read: list[torch.Tensor] = []
        model.lm_head.register_forward_pre_hook(lambda module, inputs, read=read: read.append(inputs[0]))
        model(text, **({"labels": text} if model_class is VaswaniForConditionalGeneration else {}))
        assert 0.4 < (read[0] == 0).double().mean() < 0.6
    assert make(VaswaniForMaskedLM, dropout=0.3).model.encoder.embedding_dropout.p == 0.3


def test_training_is_deterministic_under_a_seed() -> None:
    def train() -> torch.Tensor:
        model = make(dropout=0.3, attention_dropout=0.1).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(4)
        for _ in range(3):
            loss = model(ids(2, 5), labels=ids(2, 4)).loss
            loss.backward()
            optimizer.step()
        return loss

    assert torch.equal(train(), train())


# As a citizen of transformers


@pytest.mark.parametrize("kind", HEADED)
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient(kind: Any, reentrant: bool) -> None:
    model, inputs = make(kind, dropout=0.2), batch(kind, length=30)
    check_gradient_checkpointing(model, inputs, labels_of(kind, inputs), reentrant)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm", ["post", "none"])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_half_precision(dtype: torch.dtype, norm: str, attn_implementation: str) -> None:
    model = make(dtype=torch.float32, norm=norm, attn_implementation=attn_implementation)
    inputs = batch(type(model))
    check_half_precision(model, inputs, labels_of(type(model), inputs), dtype)


@pytest.mark.parametrize("fields", [{}, {"positions": "relative_buckets"}, {"pattern": "window"}], ids=str)
@pytest.mark.parametrize("side", ["none", "right", "left"])
@pytest.mark.parametrize("kind", HEADED)
def test_training_without_fused_kernels_has_their_loss_and_gradients(
    monkeypatch: pytest.MonkeyPatch, kind: Any, side: str, fields: dict[str, Any]
) -> None:
    """In float64, where both agree to many digits; the rule chooses between them in bfloat16."""
    if "pattern" in fields:
        stack = "decoder" if kind is VaswaniForCausalLM else "encoder"
        fields = {f"{stack}_pattern": fields["pattern"], f"{stack}_pattern_options": {"window": 2}}
    model, inputs = make(kind, dropout=0.0, attention_dropout=0.0, **fields).train(), batch(kind)
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    inputs["attention_mask"][0, {"none": slice(0), "right": slice(4, None), "left": slice(3)}[side]] = 0
    labels = labels_of(kind, inputs)
    if labels.shape == inputs["input_ids"].shape:
        labels = labels.masked_fill(inputs["attention_mask"] == 0, -100)
    found = []
    for unfused in (False, True):
        for module in (attention, modeling_vaswani):
            monkeypatch.setattr(module, "is_faster_unfused", lambda *inputs, chosen=unfused: chosen)
        model.zero_grad()
        outputs = model(**inputs, labels=labels)
        outputs.loss.backward()
        found.append([outputs.loss.detach(), *(each.grad for each in model.parameters() if each.grad is not None)])
    for fused, unfused_value in zip(*found, strict=True):
        torch.testing.assert_close(unfused_value, fused)


@pytest.fixture
def fused_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls of torch's fused kernels."""
    calls: list[Any] = []
    kernel = nn.functional.scaled_dot_product_attention

    def counted(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(args)
        return kernel(*args, **kwargs)

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)
    return calls


def test_few_positions_are_trained_without_fused_kernels_in_bfloat16_on_a_cpu(fused_calls: list[Any]) -> None:
    """With dropout, which no fused kernel has on a CPU, any number of positions."""
    whole, dropping = (make(VaswaniForMaskedLM, dtype=torch.float32, attention_dropout=share) for share in (0.0, 0.1))
    options = {"encoder_pattern": "window", "encoder_pattern_options": {"window": 401}}
    windows = make(VaswaniForMaskedLM, dtype=torch.float32, attention_dropout=0.1, **options)
    # Rotated queries and keys are float32, and the kernels still compute in bfloat16.
    rotary = make(VaswaniForMaskedLM, dtype=torch.float32, attention_dropout=0.0, positions="rotary")
    for model, training, dtype, length, fused in (
        (whole, True, torch.bfloat16, 181, False), (whole, True, torch.bfloat16, 182, True),
        (dropping, True, torch.bfloat16, 400, False), (dropping, False, torch.bfloat16, 16, True),
        (dropping, True, torch.float32, 16, True), (windows, True, torch.bfloat16, 400, False),
        (rotary, True, torch.bfloat16, 181, False), (rotary, True, torch.bfloat16, 182, True),
    ):  # fmt: skip
        fused_calls.clear()
        with torch.autocast("cpu", dtype, enabled=dtype == torch.bfloat16):
            model.train(training)(ids(1, length))
        assert bool(fused_calls) == fused, (training, dtype, length)


def test_few_positions_have_no_fused_kernels_where_onednn_multiplies(fused_calls: list[Any]) -> None:
    model = make(VaswaniForCausalLM, dtype=torch.float32).eval()
    short, long = ids(2, 362), ids(1, 363)
    with torch.no_grad():
        expected = model(short).logits
        fused_calls.clear()
        with onednn_products():
            found = model(short).logits
            assert not fused_calls
            model(long)
        assert fused_calls
    # Products in float32, or rounded to bfloat16 where the CPU computes with that.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 if compare_products().error < 4 else 0.1)


def test_lean_beams_by_onednn_are_products_of_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fused kernels are slow; the text is that of the fused kernels, with padding, and with nothing else, too."""
    model, calls = make(eos_token_id=None, bos_token_id=1, decoder_start_token_id=1), []
    kernel = vaswani_steps.scaled_dot_product_attention

    def counted(*args: Any) -> torch.Tensor:
        calls.append(args)
        return kernel(*args)

    monkeypatch.setattr(vaswani_steps, "scaled_dot_product_attention", counted)
    inputs = {"input_ids": ids(3, 7), "attention_mask": torch.tensor([[1] * 7, [0] * 3 + [1] * 4, [0] * 7])}
    options: dict[str, Any] = {"max_new_tokens": 9, "num_beams": 3, "num_return_sequences": 3}
    expected = model.generate(**inputs, **options)
    assert calls
    calls.clear()
    with onednn_products():
        model.float().generate(**inputs, **options)
        assert not calls
    monkeypatch.setattr(vaswani_steps, "is_faster_unfused", lambda query, keys, training: True)
    assert torch.equal(model.double().generate(**inputs, **options), expected)
    assert not calls


@pytest.fixture
def fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


COMPILED = [
    pytest.param(VaswaniForConditionalGeneration, {}, id="translator"),
    pytest.param(VaswaniForCausalLM, {"attn_implementation": "eager", "norm": "pre"}, id="language model"),
    pytest.param(VaswaniForMaskedLM, {"positions": "learned", "self_attention_score": "general"}, id="masked"),
    pytest.param(VaswaniForSequenceClassification, {"norm": "none"}, id="classifier"),
]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(("kind", "fields"), COMPILED)
def test_torch_compile_without_a_graph_break(kind: Any, fields: dict[str, Any]) -> None:
    model, inputs = make(kind, encoder_layers=1, decoder_layers=1, **fields), batch(kind)
    labels = labels_of(kind, inputs)
    mask = torch.ones_like(inputs["input_ids"])
    mask[0, :2] = 0
    expected = model(**inputs, attention_mask=mask, labels=labels, use_cache=False)
    expected.loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    compiled = torch.compile(model, backend="eager", fullgraph=True)  # graphs are what is tested, not kernels
    outputs = compiled(**inputs, attention_mask=mask, labels=labels, use_cache=False)
    torch.testing.assert_close(outputs.logits, expected.logits)
    outputs.loss.backward()
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    if model.can_generate():  # and the next step, from the cache of the first
        first, last = compiled(**inputs), ids(2, 1, seed=5)
        if kind is VaswaniForConditionalGeneration:
            encoded = (first.encoder_last_hidden_state,)
            step = compiled(encoder_outputs=encoded, decoder_input_ids=last, past_key_values=first.past_key_values)
            inputs["decoder_input_ids"] = torch.cat([inputs["decoder_input_ids"], last], 1)
        else:
            step = compiled(last, past_key_values=first.past_key_values)
            inputs["input_ids"] = torch.cat([inputs["input_ids"], last], 1)
        torch.testing.assert_close(step.logits, model(**inputs).logits[:, -1:])


@pytest.mark.parametrize("kind", HEADED)
def test_lora(tmp_path: Path, kind: Any) -> None:
    tasks = dict(zip(HEADED, ("SEQ_2_SEQ_LM", "CAUSAL_LM", "FEATURE_EXTRACTION", "SEQ_CLS"), strict=True))
    model, inputs = make(kind, dropout=0.0), batch(kind)
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "fc1"], task_type=tasks[kind])
    check_adapter(model, config, inputs, labels_of(kind, inputs), tmp_path, steps=15, learning_rate=0.02)


@pytest.mark.parametrize(
    ("kind", "auto"),
    zip(
        HEADED,
        (AutoModelForSeq2SeqLM, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSequenceClassification),
        strict=True,
    ),
)
def test_auto_classes_know_the_model(tmp_path: Path, kind: Any, auto: Any) -> None:
    model, inputs = make(kind, norm="pre"), batch(kind)
    model.save_pretrained(tmp_path)
    loaded = auto.from_pretrained(tmp_path, dtype=torch.float64, device_map="auto")
    assert type(loaded) is kind
    torch.testing.assert_close(loaded(**inputs).logits, model(**inputs).logits)
    base = AutoModel.from_pretrained(tmp_path, dtype=torch.float64)
    assert isinstance(base, VaswaniModel)
    torch.testing.assert_close(base(**inputs).last_hidden_state, model.model(**inputs).last_hidden_state)


CLEAN = """
import sys, torch
sys.modules["hfattn"] = None  # as if it were not installed
from transformers import (
    AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)
folder = sys.argv[1]
inputs = torch.load(folder + "/inputs.pt")
logits = {}
for name, auto in {
    "VaswaniForConditionalGeneration": AutoModelForSeq2SeqLM, "VaswaniForCausalLM": AutoModelForCausalLM,
    "VaswaniForMaskedLM": AutoModelForMaskedLM, "VaswaniForSequenceClassification": AutoModelForSequenceClassification,
}.items():
    model = auto.from_pretrained(folder + "/" + name, trust_remote_code=True)
    assert type(model).__name__ == name and "transformers_modules" in type(model).__module__
    logits[name] = model(**inputs[name]).logits
    base = AutoModel.from_pretrained(folder + "/" + name, trust_remote_code=True)
    torch.testing.assert_close(base(**inputs[name])[0], model.model(**inputs[name])[0])
    if name in ("VaswaniForConditionalGeneration", "VaswaniForCausalLM"):
        logits[name + " generates"] = model.generate(inputs[name]["input_ids"], max_new_tokens=5, num_beams=2)
    model.save_pretrained(folder + "/again/" + name)
torch.save(logits, folder + "/logits.pt")
"""


def test_a_saved_folder_loads_where_hfattn_is_not_installed(tmp_path: Path) -> None:
    """Each head, with attention of both kinds; and what that process saves again loads again."""
    models = {
        kind.__name__: make(kind, dtype=torch.float32, self_attention_score="additive", norm="pre") for kind in HEADED
    }
    inputs = {kind.__name__: batch(kind) for kind in HEADED}
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    torch.save(inputs, tmp_path / "inputs.pt")
    done = run([sys.executable, "-c", CLEAN, tmp_path], cwd=tmp_path, HF_MODULES_CACHE=str(tmp_path / "modules"))
    assert done.returncode == 0, done.stderr
    saved = torch.load(tmp_path / "logits.pt")
    for kind in HEADED:
        name = kind.__name__
        torch.testing.assert_close(saved[name], models[name](**inputs[name]).logits)
        again = kind.from_pretrained(tmp_path / "again" / name)
        torch.testing.assert_close(again(**inputs[name]).logits, models[name](**inputs[name]).logits)
    for name in ("VaswaniForConditionalGeneration", "VaswaniForCausalLM"):
        generated = models[name].generate(inputs[name]["input_ids"], max_new_tokens=5, num_beams=2)
        assert torch.equal(saved[f"{name} generates"], generated)


# generate()


ATTENTIONS = [
    pytest.param({}, id="post"),
    pytest.param(
        {"norm": "pre", "positions": "learned", "attn_implementation": "eager", "tie_word_embeddings": False}, id="pre"
    ),
    pytest.param(
        {
            "norm": "none",
            "self_attention_score": "additive",
            "cross_attention_distribution": "compositional",
            "tie_word_embeddings": False,
            "share_embeddings": False,
        },
        id="none",
    ),
]


class TestSeq2SeqGeneration(Seq2SeqGenerationTests):
    @pytest.fixture(params=ATTENTIONS[::2])
    def make(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        return lambda **fields: sharpen(make(**{**request.param, "vocab_size": 12, **fields}), 3)


class TestCausalGeneration(GenerationTests):
    @pytest.fixture(params=ATTENTIONS[1:])
    def make(self, request: pytest.FixtureRequest) -> Callable[..., Any]:
        return lambda **fields: sharpen(make(VaswaniForCausalLM, **{**request.param, "vocab_size": 12, **fields}), 3)

    def test_generation_continues_from_a_returned_cache(self, make: Callable[..., Any]) -> None:
        model, inputs = make(eos_token_id=None), texts([2, 5, 3])
        options: dict[str, Any] = {
            "do_sample": False,
            "pad_token_id": 12,
        }  # what stands for no symbol must not be one that is written
        whole = model.generate(**inputs, max_new_tokens=12, **options)
        first = model.generate(**inputs, max_new_tokens=5, return_dict_in_generate=True, **options)
        mask = nn.functional.pad(inputs["attention_mask"], (0, 5), value=1)
        options |= {"attention_mask": mask, "past_key_values": first.past_key_values}
        assert torch.equal(model.generate(first.sequences, max_new_tokens=7, **options), whole)

    def test_assisted_generation_equals_greedy(self, make: Callable[..., Any]) -> None:
        model, text = make(eos_token_id=None), ids(1, 5) % 12
        assistant = make(eos_token_id=None, decoder_layers=1)
        options = {"max_new_tokens": 10, "do_sample": False}
        assert torch.equal(model.generate(text, assistant_model=assistant, **options), model.generate(text, **options))


@pytest.mark.parametrize("kind", [VaswaniForConditionalGeneration, VaswaniForCausalLM])
@pytest.mark.parametrize("attn_implementation", ["sdpa", "eager"])
def test_static_cache(kind: Any, attn_implementation: str) -> None:
    model, inputs = sharpen(make(kind, vocab_size=12, attn_implementation=attn_implementation), 3), texts([2, 5, 3])
    for num_beams in (1, 3):
        options = {"max_new_tokens": 8, "num_beams": num_beams, "do_sample": False, "disable_compile": True}
        expected = model.generate(**inputs, **options)
        assert torch.equal(model.generate(**inputs, **options, cache_implementation="static"), expected)


def test_attention_module_is_the_one_of_the_package() -> None:
    model = make(self_attention_score="gaussian", self_attention_score_options={"s": 2.0})
    layer = model.model.encoder.layers[0].self_attn
    assert isinstance(layer, VaswaniAttention)
    assert isinstance(layer.attention, Attention)
    assert layer.attention.score.s == 2.0

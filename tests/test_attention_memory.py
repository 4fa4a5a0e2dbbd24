"""Transformer-XL: segments with a memory equal dense attention under their mask, and train as streams."""

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from test_attention_windows import SMALL
from test_training import IDS, B, V, make_trainer

from hfattn import VaswaniConfig, VaswaniForCausalLM
from hfattn.attention import attend
from hfattn.data import Streams
from hfattn.errors import UserError
from hfattn.training import StatefulTrainer

T, M = 5, 7
MEMORY: dict[str, Any] = {
    "positions": "relative_sinusoidal",
    "decoder_pattern": "memory",
    "decoder_pattern_options": {"segment_length": T, "memory_length": M},
}


def make(**fields: Any) -> Any:
    torch.manual_seed(0)
    return VaswaniForCausalLM(VaswaniConfig(**{**SMALL, **MEMORY, "vocab_size": V, **fields})).double()


def visible(num_keys: int) -> torch.Tensor:
    """(S, S): j ≤ i and j ≥ start of the segment of i - M."""
    return torch.tensor([[i // T * T - M <= j <= i for j in range(num_keys)] for i in range(num_keys)])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("passes", [[T] * 5, [1] * 25, [3, 9, 13]])
def test_segments_equal_dense_attention_under_the_mask(training: bool, passes: list[int]) -> None:
    """In passes of a segment, a token and other lengths; the cache has the last M + T - 1 keys."""
    dense = make(decoder_pattern="full", decoder_pattern_options={}).eval()
    model = make().train(training)
    ids = torch.randint(0, V, (2, 25))
    expected = dense(ids, attention_mask=visible(25)[None, None].expand(2, -1, -1, -1)).logits
    torch.testing.assert_close(model(ids, use_cache=False).logits, expected, atol=1e-12, rtol=0)
    cache: Any = None
    logits = []
    for part in ids.split(passes, dim=1):
        outputs = model(part, past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        logits.append(outputs.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), expected, atol=1e-12, rtol=0)
    assert [layer.keys.shape[-2] for layer in cache.layers] == [M + T - 1] * 2
    assert cache.get_seq_length() == 25


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_token_is_seen_through_the_memories_of_all_layers(layers: int) -> None:
    """Up to L M + T - 1 tokens later, if T divides M."""
    memory = 2 * T
    options = {"segment_length": T, "memory_length": memory}
    model = make(decoder_pattern_options=options, decoder_layers=layers).eval()
    ids = torch.randint(0, V, (1, 9 * T))
    changed = ids.clone()
    changed[0, 0] = (ids[0, 0] + 1) % V
    differ = (model(ids).logits != model(changed).logits).any(-1)[0]
    assert int(differ.nonzero().max()) == layers * memory + T - 1


def test_gradients_reach_the_keys_of_the_memory_but_not_its_states() -> None:
    """K and V of [SG(memory), states] in a loop over the layers (section 3.2), for the third segment."""
    model = make().train()
    decoder: Any = model.model.decoder
    ids = torch.randint(0, V, (2, 3 * T))
    cache = model(ids[:, :T], use_cache=True).past_key_values
    cache = model(ids[:, T : 2 * T], past_key_values=cache, use_cache=True).past_key_values
    found = model(ids[:, 2 * T :], past_key_values=cache).logits

    earlier = model(ids[:, : 2 * T], use_cache=False, output_hidden_states=True).hidden_states
    states = decoder.embed(ids[:, 2 * T :], None)
    for layer, memory in zip(decoder.layers, earlier, strict=False):
        whole = torch.cat([memory.detach(), states], dim=1)
        attended, _ = layer.self_attn(whole, None)
        states = layer.self_attn_residual.after(states, attended[:, -T:])
        states = layer.feed_forward_residual.after(states, layer.feed_forward(states))
    expected = model.lm_head(states)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    gradients = [torch.autograd.grad(logits.square().sum(), [*model.parameters()]) for logits in (found, expected)]
    torch.testing.assert_close(*gradients, atol=1e-10, rtol=0)


def test_streams_are_trained_as_in_a_loop_and_their_state_is_saved(tmp_path: Path) -> None:
    model, expected = make().float(), make().float().train()
    streams = Streams(IDS, T, B)
    trainer = make_trainer(StatefulTrainer, model, tmp_path, streams, max_steps=4, eval_strategy="steps", eval_steps=2)
    trainer.train()
    optimizer, cache = torch.optim.SGD(expected.parameters(), lr=0.05), None
    for step in range(4):
        outputs = expected(**streams.__getitems__(range(step * B, step * B + B)), past_key_values=cache, use_cache=True)
        cache = outputs.past_key_values
        outputs.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, expected.state_dict()[name], atol=2e-6, rtol=0)

    trainer._save_rng_state(str(tmp_path / "saved"))
    again = make_trainer(StatefulTrainer, model, tmp_path, streams)
    again._load_rng_state(str(tmp_path / "saved"))
    restored: Any = again._training_state
    assert restored.get_seq_length() == 4 * T
    ids = torch.randint(0, V, (B, T))
    logits = [model.train()(ids, past_key_values=each).logits for each in (restored, trainer._training_state)]
    assert torch.equal(*logits)


def test_streams_need_a_state_that_does_not_grow(tmp_path: Path) -> None:
    model = make(decoder_pattern=["memory", "full"])
    with pytest.raises(UserError, match="layers that see all keys have none; write decoder_pattern: memory for all"):
        make_trainer(StatefulTrainer, model, tmp_path, Streams(IDS, T, B))


def test_a_cache_of_the_other_mode_is_refused() -> None:
    model = make().eval()
    ids = torch.randint(0, V, (1, T))
    cache = model(ids).past_key_values
    with pytest.raises(ValueError, match="The model is in training mode, and past_key_values was filled in evaluation"):
        model.train()(ids, past_key_values=cache)


def test_attend_with_segments() -> None:
    states = torch.randn(2, 3, 31, 4, dtype=torch.float64)
    options = {"segment_length": T, "memory_length": M}
    context, _ = attend(
        states, states, states, pattern="memory", pattern_options=options, causal=True, need_weights=False
    )
    torch.testing.assert_close(context, attend(states, states, states, mask=visible(31))[0], atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"encoder_pattern": "memory", "encoder_pattern_options": MEMORY["decoder_pattern_options"]},
            "The pattern 'memory' passes states from one segment to the next, so it is for decoders only; leave it out "
            "of encoder_pattern, or write window.",
        ),
        (
            {**MEMORY, "positions": "learned"},
            "The pattern 'memory' reads texts of any length, and learned positions end; write positions: "
            "relative_sinusoidal.",
        ),
        (
            {**MEMORY, "positions": "rotary"},
            "The pattern 'memory' reads texts of any length, and rotary positions are part of the keys, which training "
            "computes again; write positions: relative_sinusoidal.",
        ),
        (
            {**MEMORY, "decoder_pattern_options": {"segment_length": 4, "memory_length": 0}},
            "memory_length is 0; write a whole number of at least 1.",
        ),
        (
            {"positions": "relative_sinusoidal", "hidden_size": 9, "num_attention_heads": 1},
            "relative_sinusoidal position",
        ),
    ],
)
def test_a_mistake_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(StrictDataclassError) as error:
        VaswaniConfig(**{**SMALL, **fields})
    assert str(error.value.__cause__).startswith(sentence)

"""The recurrent cells against a literal loop over their formulas in float64, and their exact properties."""

import re
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hfattn import BahdanauConfig, BahdanauForConditionalGeneration, CharRNNConfig, RNNEncoderConfig
from hfattn.models.recurrent_cells import (
    CELLS,
    GRU,
    LSTM,
    Elman,
    GRUResetBefore,
    LoopedCell,
    State,
    find_cell,
)
from hfattn.models.recurrent_layers import RecurrentLayer

B, T, D, H = 3, 7, 4, 5


def make(cell: str) -> tuple[RecurrentLayer, torch.Tensor, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layer = RecurrentLayer(cell, D, H).double()
    state = tuple(torch.randn(B, H, dtype=torch.float64) for _ in range(find_cell(cell).num_states))
    return layer, torch.randn(B, T, D, dtype=torch.float64), state


def literal_step(
    cell: str, rnn: nn.Module, x: torch.Tensor, state: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """Compute one step for one row as the formula says, one gate and one unit at a time."""
    weight_x, weight_h = rnn.weight_ih_l0, rnn.weight_hh_l0
    bias_x = rnn.bias_ih_l0
    bias_h = torch.zeros_like(bias_x) if cell in ("jordan", "gru_reset_before") else rnn.bias_hh_l0
    h = state[0]  # of a Jordan network, its last output y

    def product(weight: torch.Tensor, vector: torch.Tensor, row: int) -> torch.Tensor:
        return sum((weight[row, k] * vector[k] for k in range(len(vector))), torch.zeros((), dtype=torch.float64))

    def affine(gate: int, unit: int) -> torch.Tensor:
        row = gate * H + unit
        return product(weight_x, x, row) + bias_x[row] + product(weight_h, h, row) + bias_h[row]

    new_h, new_c = torch.empty_like(h), torch.empty_like(h)
    if cell in ("elman", "jordan"):
        for j in range(H):
            new_h[j] = torch.tanh(affine(0, j))
        if cell == "elman":
            return (new_h,)
        return (torch.stack([torch.tanh(product(rnn.weight_hy_l0, new_h, j) + rnn.bias_hy_l0[j]) for j in range(H)]),)
    if cell == "lstm":
        for j in range(H):
            i, f = torch.sigmoid(affine(0, j)), torch.sigmoid(affine(1, j))
            candidate, o = torch.tanh(affine(2, j)), torch.sigmoid(affine(3, j))
            new_c[j] = f * state[1][j] + i * candidate
            new_h[j] = o * torch.tanh(new_c[j])
        return new_h, new_c
    reset = torch.stack([torch.sigmoid(affine(0, j)) for j in range(H)])
    for j in range(H):
        z = torch.sigmoid(affine(1, j))
        row = 2 * H + j
        if cell == "gru":  # reset after the product
            candidate = torch.tanh(
                product(weight_x, x, row) + bias_x[row] + reset[j] * (product(weight_h, h, row) + bias_h[row])
            )
        else:  # reset before the product
            candidate = torch.tanh(product(weight_x, x, row) + bias_x[row] + product(weight_h, reset * h, row))
        new_h[j] = z * h[j] + (1 - z) * candidate
    return (new_h,)


@pytest.mark.parametrize("cell", CELLS)
def test_a_cell_equals_its_formula(cell: str) -> None:
    layer, inputs, state = make(cell)
    with torch.no_grad():
        outputs, *final = layer(inputs, None, *state)
        for b in range(B):
            row = tuple(tensor[b] for tensor in state)
            for t in range(T):
                row = literal_step(cell, layer.rnn, inputs[b, t], row)
                torch.testing.assert_close(outputs[b, t], row[0], atol=1e-13, rtol=0)
            for tensor, expected in zip(final, row, strict=True):
                torch.testing.assert_close(tensor[b], expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_steps_equal_the_whole_run(cell: str) -> None:
    layer, inputs, state = make(cell)
    rnn = layer.rnn
    outputs, *final = layer(inputs, None, *state)
    for t in range(T):
        state = rnn.step(nn.functional.linear(inputs[:, t], rnn.weight_ih_l0, rnn.bias_ih_l0), state)
        torch.testing.assert_close(state[0], outputs[:, t])
    torch.testing.assert_close(state, tuple(final))


# Custom cells


class ReluElman(Elman):
    """A fused cell with another option of torch."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__(input_size, hidden_size, nonlinearity="relu")


class ReluLooped(LoopedCell):
    """The same cell as a loop over its step."""

    num_gates = 1

    def step(self, projected: torch.Tensor, state: State) -> State:
        return (torch.relu(projected + nn.functional.linear(state[0], self.weight_hh_l0)),)


class ReluRNN(nn.RNN):
    """A cell without a step."""

    def __init__(self, input_size: int, hidden_size: int, batch_first: bool = True) -> None:
        super().__init__(input_size, hidden_size, nonlinearity="relu", batch_first=batch_first)


class Rectified(GRU):
    """A custom run with the step of another cell."""

    def run(self, *inputs: Any) -> Any:
        outputs, last = super().run(*inputs)
        return outputs.relu(), last.relu()


class Stepless(LoopedCell):
    num_gates = 1


@pytest.mark.parametrize("kind", [ReluElman, ReluLooped])
def test_encoder_and_decoder_compute_the_same_custom_cell(
    kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    """h_t = max(0, W_x x_t + b + W_h h_{t-1}), literally, on both sides of a translator."""
    monkeypatch.setitem(CELLS, "relu", kind)
    torch.manual_seed(0)
    sizes = {"vocab_size": 9, "embedding_size": D, "encoder_hidden_size": H, "hidden_size": H}
    config = BahdanauConfig(cell="relu", encoder_direction="forward", initializer_range=1.0, **sizes)
    model = BahdanauForConditionalGeneration(config).double().eval()
    source, target = torch.tensor([[3, 4, 5, 6]]), torch.tensor([[1, 7, 8, 3]])

    def literal(rnn: nn.Module, x: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        bias = rnn.bias_ih_l0 + (rnn.bias_hh_l0 if kind is ReluElman else 0)
        return torch.clamp(rnn.weight_ih_l0 @ x + rnn.weight_hh_l0 @ h + bias, min=0)

    with torch.no_grad():
        outputs = model(
            source, decoder_input_ids=target, output_attentions=True, output_hidden_states=True, use_cache=False
        )
        encoder, decoder = model.get_encoder(), model.get_decoder()
        h, annotations = torch.zeros(H, dtype=torch.float64), []
        for symbol in source[0]:
            h = literal(encoder.layers[0].forward_rnn.rnn, encoder.embed_tokens.weight[symbol], h)
            annotations.append(h)
        torch.testing.assert_close(outputs.encoder_last_hidden_state[0], torch.stack(annotations))
        s = torch.tanh(decoder.initial_state(h))
        for t, symbol in enumerate(target[0]):
            context = outputs.cross_attentions[0][0, 0, t] @ torch.stack(annotations)
            s = literal(decoder.layers[0].rnn, torch.cat([decoder.embed_tokens.weight[symbol], context]), s)
            torch.testing.assert_close(outputs.decoder_hidden_states[1][0, t], s)


@pytest.mark.parametrize("kind", [ReluRNN, Rectified, Stepless])
def test_a_cell_without_a_step_of_its_own_is_refused(kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CELLS, "new", kind)
    sentence = f"The cell 'new' is {kind.__name__}, which has no step of its own; inherit from LoopedCell and write"
    for config in (BahdanauConfig, CharRNNConfig, RNNEncoderConfig):
        with pytest.raises((ValueError, StrictDataclassError), match=sentence):
            config(cell="new")
    with pytest.raises(ValueError, match=sentence):
        RecurrentLayer("new", D, H)


def test_an_unknown_cell_is_refused() -> None:
    with pytest.raises(ValueError, match="'lstmm' is not a cell; did you mean 'lstm'"):
        RecurrentLayer("lstmm", D, H)


# Mixed precision


def test_lstm_under_autocast_without_bfloat16_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is computed and differentiated in float32, because oneDNN then has no LSTM in bfloat16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    torch.manual_seed(0)
    layer, inputs = RecurrentLayer("lstm", D, H), torch.randn(B, T, D)
    state = torch.randn(B, H), torch.randn(B, H)
    mask = torch.arange(T) < torch.tensor([[7], [3], [5]])
    for steps in (None, mask):
        expected = layer(inputs, steps, *state)
        with torch.autocast("cpu", torch.bfloat16):
            outputs = layer(inputs, steps, *state)
        assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True))
        outputs[0].sum().backward()
        halves = tuple(tensor.bfloat16() for tensor in (inputs, *state))  # the output of a product under autocast
        with torch.autocast("cpu", torch.bfloat16):
            assert layer(halves[0], steps, *halves[1:])[0].dtype == torch.float32


def test_lstm_under_autocast_with_bfloat16_instructions_is_the_lstm_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    torch.manual_seed(0)
    rnn, inputs = LSTM(D, H), torch.randn(B, T, D)
    with torch.autocast("cpu", torch.bfloat16):
        try:
            expected = nn.LSTM.forward(rnn, inputs)
        except RuntimeError as error:  # this CPU has none
            with pytest.raises(RuntimeError, match=re.escape(str(error)[:40])):
                rnn(inputs)
        else:
            assert expected[0].dtype == torch.bfloat16
            torch.testing.assert_close(rnn(inputs), expected, atol=0, rtol=0)


# Properties of the formulas


def test_reset_variants_differ_unless_r_is_one() -> None:
    """With r = 1 (a large reset bias) the two GRU variants are one formula; otherwise they are two."""
    before, inputs, state = make("gru_reset_before")
    after = RecurrentLayer("gru", D, H).double()
    with torch.no_grad():
        for name, parameter in before.rnn.named_parameters():
            getattr(after.rnn, name).copy_(parameter)
        after.rnn.bias_hh_l0.zero_()
        assert (before(inputs, None, *state)[0] - after(inputs, None, *state)[0]).abs().max() > 1e-3
        for rnn in (before.rnn, after.rnn):
            rnn.bias_ih_l0[:H] = 50
        torch.testing.assert_close(before(inputs, None, *state)[0], after(inputs, None, *state)[0], atol=1e-12, rtol=0)


def test_lstm_with_open_forget_and_closed_input_gate_keeps_c() -> None:
    layer, inputs, state = make("lstm")
    with torch.no_grad():
        for name, parameter in layer.rnn.named_parameters():
            if name.startswith("weight"):
                parameter[: 2 * H] = 0
        layer.rnn.bias_ih_l0[:H], layer.rnn.bias_hh_l0[:H] = -1000, 0  # i = 0
        layer.rnn.bias_ih_l0[H : 2 * H], layer.rnn.bias_hh_l0[H : 2 * H] = 1000, 0  # f = 1
        _, _, c = layer(inputs, None, *state)
    assert torch.equal(c, state[1])


@pytest.mark.parametrize("cell", ["gru", "gru_reset_before"])
def test_gru_with_z_of_one_copies_h(cell: str) -> None:
    layer, inputs, state = make(cell)
    with torch.no_grad():
        for name, parameter in layer.rnn.named_parameters():
            if name.startswith("weight"):
                parameter[H : 2 * H] = 0
        layer.rnn.bias_ih_l0[H : 2 * H] = 1000
        outputs, h = layer(inputs, None, *state)
    torch.testing.assert_close(h, state[0], atol=1e-14, rtol=0)
    torch.testing.assert_close(outputs, state[0][:, None].expand_as(outputs), atol=1e-14, rtol=0)


def test_a_jordan_network_whose_output_is_its_hidden_state_is_an_elman_network() -> None:
    """With W_y = eps I, y_t = eps h_t up to eps^3; W_h / eps then makes the recurrent term W_h h_{t-1}."""
    elman, inputs, _ = make("elman")
    jordan, eps = RecurrentLayer("jordan", D, H).double(), 1e-4
    with torch.no_grad():
        jordan.rnn.weight_ih_l0.copy_(elman.rnn.weight_ih_l0)
        jordan.rnn.bias_ih_l0.copy_(elman.rnn.bias_ih_l0 + elman.rnn.bias_hh_l0)
        jordan.rnn.weight_hh_l0.copy_(elman.rnn.weight_hh_l0 / eps)
        jordan.rnn.weight_hy_l0.copy_(eps * torch.eye(H))
        jordan.rnn.bias_hy_l0.zero_()
        torch.testing.assert_close(jordan(inputs)[0] / eps, elman(inputs)[0], atol=1e-6, rtol=0)


def test_gradient_of_a_sigmoid_network_vanishes_at_least_as_fast_as_its_bound() -> None:
    """‖dh_t / dh_i‖ <= (‖W‖ / 4)^(t - i) for sigmoid units.

    sigmoid(a) = (1 + tanh(a / 2)) / 2, so a sigmoid network with recurrent weights W is, up to an affine map of its
    state that has the same Jacobian products, the Elman cell with weights W / 4: the bound is checked on that cell.
    """
    layer, inputs, _ = make("elman")
    with torch.no_grad():
        weight = 2 * torch.randn(H, H, dtype=torch.float64)
        layer.rnn.weight_hh_l0.copy_(weight / 4)
    norm = torch.linalg.matrix_norm(weight, 2).item()
    start = torch.randn(1, H, dtype=torch.float64)
    for steps in range(1, T + 1):
        jacobian = torch.autograd.functional.jacobian(
            lambda h, steps=steps: layer(inputs[:1, :steps], None, h)[1][0], start
        )
        assert torch.linalg.matrix_norm(jacobian[:, 0], 2).item() <= (norm / 4) ** steps * (1 + 1e-12)


@pytest.mark.parametrize("side", ["left", "right", "both", "middle"])
@pytest.mark.parametrize("cell", CELLS)
def test_padding_is_invisible(cell: str, side: str) -> None:
    """Wherever padding is, outputs, state and gradients equal those of the row without padding."""
    layer, inputs, state = make(cell)
    mask = torch.ones(B, T, dtype=torch.bool)
    if side in ("left", "both"):
        mask[0, :3] = False
    if side in ("right", "both"):
        mask[0, 5:] = False
    if side == "middle":
        mask[0, 2:4] = False
    mask[1] = False  # a row that is nothing but padding
    inputs.requires_grad_()
    outputs, *final = layer(inputs, mask, *state)
    (gradient,) = torch.autograd.grad(outputs[0][mask[0]].pow(2).sum(), inputs)
    alone = inputs.detach()[:1, mask[0]].requires_grad_()
    expected, *expected_final = layer(alone, None, *(tensor[:1] for tensor in state))
    (expected_gradient,) = torch.autograd.grad(expected.pow(2).sum(), alone)

    torch.testing.assert_close(outputs[:1, mask[0]], expected)
    torch.testing.assert_close(gradient[:1, mask[0]], expected_gradient)
    assert not gradient[0, ~mask[0]].any()
    assert not gradient[1].any()
    for tensor, row, old in zip(final, expected_final, state, strict=True):
        torch.testing.assert_close(tensor[:1], row)
        assert torch.equal(tensor[1], old[1])
    full, *_ = layer(inputs[2:], None, *(tensor[2:] for tensor in state))
    torch.testing.assert_close(outputs[2:], full)
    # The output at a padding step is the state that it left alone.
    assert torch.equal(outputs[1], state[0][1].expand(T, H))


@pytest.mark.parametrize("cell", CELLS)
def test_one_masked_step_equals_the_general_case(cell: str) -> None:
    layer, inputs, state = make(cell)
    mask = torch.tensor([[True], [False], [True]])
    _, *new = layer(inputs[:, :1], mask, *state)
    _, *stepped = layer(inputs[:, :1], None, *state)
    for tensor, after, before in zip(new, stepped, state, strict=True):
        torch.testing.assert_close(tensor, torch.where(mask, after, before))


def test_reset_before_accepts_packed_sequences() -> None:
    torch.manual_seed(0)
    rnn = GRUResetBefore(D, H).double()
    inputs, h_0 = torch.randn(B, T, D, dtype=torch.float64), torch.randn(1, B, H, dtype=torch.float64)
    lengths = torch.tensor([4, 7, 1])
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    outputs, h_n = rnn(packed, h_0)
    outputs, out_lengths = pad_packed_sequence(outputs, batch_first=True)
    assert out_lengths.tolist() == lengths.tolist()
    for b, length in enumerate(lengths.tolist()):
        alone, last = rnn(inputs[b : b + 1, :length], h_0[:, b : b + 1])
        torch.testing.assert_close(outputs[b, :length], alone[0])
        torch.testing.assert_close(h_n[0, b], last[0, 0])


def test_reset_before_gradients() -> None:
    torch.manual_seed(0)
    rnn = GRUResetBefore(2, 3).double()
    inputs = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    h_0 = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, h: rnn(x, h)[0], (inputs, h_0))


@pytest.mark.parametrize("cell", CELLS)
def test_initialization(cell: str) -> None:
    rnn = CELLS[cell](D, H)
    rnn.initialize_()
    weight = rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(H))
    if cell == "jordan":
        torch.testing.assert_close(rnn.weight_hy_l0.T @ rnn.weight_hy_l0, torch.eye(H))
        assert not rnn.bias_hy_l0.any()
    gates = weight.shape[0] // H
    assert rnn.weight_ih_l0.abs().max() <= (6 / (D + gates * H)) ** 0.5
    expected = torch.zeros(gates * H)
    if cell == "lstm":
        expected[H : 2 * H] = 1
    assert torch.equal(rnn.bias_ih_l0, expected)

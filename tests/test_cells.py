"""The recurrent cells against a literal loop over their formulas in float64, and their exact properties."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from hfattn.models.cell_names import CELL_NAMES
from hfattn.models.recurrent_cells import CELLS, GRUResetBefore, RecurrentLayer, initialize_recurrent_

B, T, D, H = 3, 7, 4, 5


def make(cell: str) -> tuple[RecurrentLayer, torch.Tensor, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    layer = RecurrentLayer(cell, D, H).double()
    state = tuple(torch.randn(B, H, dtype=torch.float64) for _ in range(2 if cell == "lstm" else 1))
    return layer, torch.randn(B, T, D, dtype=torch.float64), state


def literal_step(
    cell: str, rnn: nn.Module, x: torch.Tensor, state: tuple[torch.Tensor, ...]
) -> tuple[torch.Tensor, ...]:
    """One step for one row, as the formula is written: one gate, one unit at a time."""
    weight_x, weight_h = rnn.weight_ih_l0, rnn.weight_hh_l0
    bias_x = rnn.bias_ih_l0
    bias_h = torch.zeros_like(bias_x) if cell == "gru_reset_before" else rnn.bias_hh_l0
    h = state[0]

    def product(weight: torch.Tensor, vector: torch.Tensor, row: int) -> torch.Tensor:
        return sum((weight[row, k] * vector[k] for k in range(len(vector))), torch.zeros((), dtype=torch.float64))

    def affine(gate: int, unit: int) -> torch.Tensor:
        row = gate * H + unit
        return product(weight_x, x, row) + bias_x[row] + product(weight_h, h, row) + bias_h[row]

    new_h, new_c = torch.empty_like(h), torch.empty_like(h)
    if cell == "elman":
        for j in range(H):
            new_h[j] = torch.tanh(affine(0, j))
        return (new_h,)
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


def test_configurations_name_the_cells_that_there_are() -> None:
    assert tuple(CELLS) == CELL_NAMES


@pytest.mark.parametrize("cell", CELLS)
def test_cell_equals_its_formula(cell: str) -> None:
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


def test_reset_variants_differ_and_agree_where_they_must() -> None:
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
    """Wherever padding stands, the real steps, the state and the gradients are those of the row without it."""
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


def test_reset_before_takes_packed_sequences_as_torch_modules_do() -> None:
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
    with pytest.raises(ValueError, match="batch_first=True"):
        GRUResetBefore(D, H, batch_first=False)


def test_reset_before_gradients() -> None:
    torch.manual_seed(0)
    rnn = GRUResetBefore(2, 3).double()
    inputs = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    h_0 = torch.randn(1, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, h: rnn(x, h)[0], (inputs, h_0))


@pytest.mark.parametrize("cell", CELLS)
def test_initialisation(cell: str) -> None:
    rnn = CELLS[cell](D, H, batch_first=True)
    initialize_recurrent_(rnn)
    weight = rnn.weight_hh_l0
    torch.testing.assert_close(weight.T @ weight, torch.eye(H))
    gates = weight.shape[0] // H
    assert rnn.weight_ih_l0.abs().max() <= (6 / (D + gates * H)) ** 0.5
    expected = torch.zeros(gates * H)
    if cell == "lstm":
        expected[H : 2 * H] = 1
    assert torch.equal(rnn.bias_ih_l0, expected)

"""Recurrences without a nonlinearity of the state, and the delta rule, as they are written."""

import pytest
import torch

from chainrule.layers import MinGRU, MinLSTM

pytestmark = pytest.mark.usefixtures("float64")

B, T, N, M = 3, 9, 4, 5


def shares_of_a_gru(layer, x):
    z = torch.sigmoid(layer.update(x))
    return 1 - z, z


def shares_of_an_lstm(layer, x):
    f, i = torch.sigmoid(layer.forget(x)), torch.sigmoid(layer.input(x))
    return f / (f + i), i / (f + i)


@pytest.mark.parametrize(("kind", "shares"), [(MinGRU, shares_of_a_gru), (MinLSTM, shares_of_an_lstm)])
def test_they_are_their_written_equations_with_states_of_either_sign(kind, shares):
    layer, x, h = kind(N, M), torch.randn(B, T, N), torch.randn(B, M)
    y, last = layer(x, h)
    assert (y > 0).any()
    assert (y < 0).any()
    for t in range(T):
        kept, written = shares(layer, x[:, t])
        h = kept * h + written * layer.candidate(x[:, t])
        torch.testing.assert_close(y[:, t], h, rtol=0, atol=1e-12)  # the same operations in another order
    torch.testing.assert_close(last, h, rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
def test_gates_begin_open(kind):
    layer = kind(N, M)
    y, _ = layer(torch.zeros(1, 3, N), torch.ones(1, M))
    kept = torch.sigmoid(torch.tensor(1.0))
    torch.testing.assert_close(y[0], torch.stack([kept, kept**2, kept**3])[:, None].expand(3, M))


def test_gates_that_are_both_closed_to_the_last_bit_share_the_memory():
    layer = MinLSTM(N, M).float()
    with torch.no_grad():
        layer.forget.bias.fill_(-300)  # σ(−300) is 0 in float32, and 0/0 would be nan
        layer.input.bias.fill_(-300 - torch.log(torch.tensor(3.0)))
        for gate in (layer.forget, layer.input):
            gate.weight.zero_()
    _, h = layer.step(torch.zeros(1, N, dtype=torch.float32), torch.ones(1, M, dtype=torch.float32))
    torch.testing.assert_close(h, torch.full((1, M), 0.75, dtype=torch.float32), rtol=1e-4, atol=0)


@pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
def test_a_memory_that_is_kept_whole_outlives_long_rows(kind):
    layer = kind(N, M).float()
    with torch.no_grad():
        gate = layer.update if kind is MinGRU else layer.input
        gate.bias.fill_(-80)
        gate.weight.zero_()
    state = torch.randn(1, M, dtype=torch.float32, requires_grad=True)
    _, last = layer(torch.randn(1, 5000, N, dtype=torch.float32), state)
    torch.testing.assert_close(last, state)
    (gradient,) = torch.autograd.grad(last.sum(), state)
    torch.testing.assert_close(gradient, torch.ones_like(state))


@pytest.mark.parametrize("kind", [MinGRU, MinLSTM])
def test_sizes_that_are_not_positive_are_refused(kind):
    with pytest.raises(ValueError, match="hidden_size: expected an integer >= 1, got 0"):
        kind(N, 0)

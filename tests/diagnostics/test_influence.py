"""Memory length: by the derivative and by changing inputs."""

import math

import pytest
import torch
from recurrences import KINDS, B, N, T
from torch import nn

from chainrule.diagnostics import gradient_flow
from chainrule.diagnostics._gradient_flow import memory_length
from chainrule.layers import LSTM, RNN
from chainrule.models import RecurrentLM


def linear(alpha, layers=1):
    layer = RNN(N, N, layers, nonlinearity="identity", bias=False)
    for index in range(layers):
        getattr(layer, f"weight_hh_l{index}").data = alpha * torch.eye(N)
        getattr(layer, f"weight_ih_l{index}").data = torch.eye(N)
    return layer


@pytest.mark.parametrize(
    ("alpha", "steps"), [(0.5, 7), (0.9, 44), (0.99, math.inf), (1.5, math.inf), (-0.5, 7), (0, 1)]
)
def test_both_measures_give_the_linear_case_exactly(alpha, steps):
    flow = gradient_flow(linear(alpha), torch.randn(B, 100, N))
    assert flow.memory_length == [steps]  # the first k with |α|^k < 0.01
    assert flow.memory_length_perturbed == [steps]
    torch.testing.assert_close(flow.influence, flow.influence_perturbed)


def test_influence_passes_through_the_layers_below():
    flow = gradient_flow(linear(0.5, layers=2), torch.randn(B, 40, N))
    k = torch.arange(40.0)
    expected = (k + 1) * 0.5**k  # of two equal layers in a row
    torch.testing.assert_close(flow.influence[1], expected / expected.max())
    torch.testing.assert_close(flow.influence[1], flow.influence_perturbed[1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_derivative_predicts_small_changes(kind, monkeypatch):
    """Noise as small as 1e-6 meets the derivative; the noise of the library is as large as the data."""
    from chainrule.diagnostics import _gradient_flow as module

    changes = module._changes

    def small(subject, generator):
        before, after, times = changes(subject, generator)
        return before, before + 1e-6 * (after - before), times

    monkeypatch.setattr(module, "_changes", small)
    flow = gradient_flow(KINDS[kind](), torch.randn(B, 30, N))
    for left, right in zip(flow.influence, flow.influence_perturbed, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-3, atol=1e-4)


def test_constant_inputs_are_changed_too():
    assert gradient_flow(linear(0.5), torch.zeros(B, 30, N)).memory_length == [7]


@pytest.mark.parametrize("x", [torch.randint(0, N, (B, 40)), torch.ones(B, 40, dtype=torch.long)], ids=["many", "one"])
def test_symbols_are_changed_to_other_symbols(x):
    flow = gradient_flow(linear(0.5), x)
    assert flow.memory_length == flow.memory_length_perturbed == [7]


def test_a_single_symbol_has_no_other():
    flow = gradient_flow(RNN(1, 4), torch.zeros(2, 9, dtype=torch.long))
    assert math.isnan(flow.memory_length[0])


@pytest.mark.parametrize("embedding", [None, 3])
def test_models_are_given_other_symbols(embedding):
    model = RecurrentLM(5, "rnn", embedding, hidden_size=6)
    model.recurrent.weight_hh_l0.data *= 0.5  # of an orthogonal matrix
    flow = gradient_flow(model, torch.randint(0, 5, (B, 40)))
    assert flow.memory_length[0] <= 8
    assert abs(flow.memory_length[0] - flow.memory_length_perturbed[0]) <= 2


def test_rows_of_unequal_length_count_where_they_are_real():
    x = torch.randn(3, 40, N)
    whole = gradient_flow(linear(0.5), x, lengths=torch.tensor([40, 3, 1]))
    assert whole.memory_length == whole.memory_length_perturbed == [7]


def test_short_rows_do_not_bend_the_curve():
    """Changes differ in size: a mean over fewer and fewer of them jumps where a row ends."""
    flow = gradient_flow(linear(0.9), torch.randn(3, 60, N), lengths=torch.tensor([60, 7, 4]))
    torch.testing.assert_close(flow.influence[0], 0.9 ** torch.arange(60.0))
    torch.testing.assert_close(flow.influence_perturbed[0], flow.influence[0])


def test_an_input_that_has_no_influence_has_no_memory_length():
    layer = linear(0.5)
    layer.weight_ih_l0.data.zero_()
    assert math.isnan(gradient_flow(layer, torch.randn(B, T, N)).memory_length[0])


def test_the_length_is_that_from_which_it_stays_under():
    curve = torch.tensor([1.0, 0.001, 0.5, 0.001, 0.001, math.nan])
    assert memory_length(curve) == 3
    assert memory_length(torch.tensor([0.5, 1.0])) == math.inf


def test_open_forget_gates_remember_longer():
    lengths = []
    for bias in (0.0, 3.0):
        layer = LSTM(N, 8)
        layer.bias_ih_l0.data[8:16] = bias
        lengths.append(gradient_flow(layer, torch.randn(B, 120, N)).memory_length[0])
    assert lengths[0] < 20 < lengths[1]


def test_modules_of_torch_are_measured_alike():
    module = nn.LSTM(N, 5, batch_first=True)
    layer = LSTM(N, 5)
    layer.load_state_dict(module.state_dict())
    x = torch.randn(B, 30, N)
    assert gradient_flow(module, x).memory_length == gradient_flow(layer, x).memory_length

"""The whole inspection of a model, figure by figure, against plain computations of the same."""

import math

import pytest
import torch
from recurrences import KINDS, B, N, T
from torch import nn

from chainrule.diagnostics import backpropagate, gradient_flow, inspect_recurrence
from chainrule.diagnostics._backpropagation import by_distance, reach
from chainrule.diagnostics._hidden_units import dead_units, histogram, saturation
from chainrule.diagnostics._inspection import single_losses
from chainrule.layers import LSTM, RNN
from chainrule.models import RecurrentLM


def test_profiles_run_back_from_each_rows_own_end():
    values = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 0.0], [math.nan, math.nan, math.nan], [9.0, 0.0, 0.0]])
    profile = by_distance(values, torch.tensor([3, 2, 3, 1]))
    torch.testing.assert_close(profile, torch.tensor([(3 + 5 + 9) / 3, (2 + 4) / 2, 1.0]))
    assert by_distance(values[1:2], torch.tensor([2]))[2].isnan()


def test_reach_is_where_a_profile_goes_under_for_good():
    assert reach(torch.tensor([2.0, 0.01, 1.0, 0.019, 0.001, math.nan])) == 3
    assert reach(torch.tensor([1.0, 2.0, 4.0])) == math.inf
    assert math.isnan(reach(torch.tensor([math.nan])))
    assert math.isnan(reach(torch.tensor([0.0, 0.0])))


@pytest.mark.parametrize("kind", ["tanh", "sigmoid"])
def test_flat_is_where_the_slope_is_under_a_tenth_of_the_largest(kind):
    a = torch.linspace(-6, 6, 1001).requires_grad_()
    f = torch.tanh if kind == "tanh" else torch.sigmoid
    (slope,) = torch.autograd.grad(f(a).sum(), a)
    expected = (slope < 0.1 * slope.max()).double().mean().item()
    assert saturation(f(a).detach(), kind) == pytest.approx(expected, abs=0.002)  # the largest is met up to the grid


def test_a_relu_is_dead_that_never_fires():
    values = torch.rand(10, 4)
    values[:, 1] = 0
    assert dead_units(values) == 0.25


def test_histograms_are_shares():
    bins = histogram(torch.tensor([[0.0, 0.04], [0.99, 1.0]]))
    assert bins.shape == (20,)
    assert bins[0] == bins[19] == 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_is_described(kind):
    inspection = inspect_recurrence(KINDS[kind](), torch.randn(B, T, N), torch.tensor([7, 3, 1, 5]))
    layer = inspection.layers[1]
    names = {"lstm": {"input", "forget", "output"}, "gru-after": {"reset", "update"}, "gru-before": {"reset", "update"}}
    assert layer.gate_means.keys() == layer.gate_histograms.keys() == names.get(kind, set())
    flat = {"tanh": {"hidden"}, "sigmoid": {"hidden"}, "relu": set(), "identity": set()}
    assert layer.saturation.keys() == flat.get(kind, names.get(kind, set()) | {"candidate"})
    assert (layer.dead is None) == (kind != "relu")
    assert inspection.surprise is None
    assert layer.delta_last.shape == layer.bound.shape == (T,)
    torch.testing.assert_close(
        layer.delta_last[0], inspection.flow.delta[1][[0, 1, 2, 3], [6, 2, 0, 4]].norm(dim=1).mean()
    )


def test_gates_count_where_elements_are_real():
    layer, x = LSTM(N, 4), torch.randn(2, 6, N)
    padded = torch.cat([x, torch.full((2, 5, N), torch.nan)], 1)
    whole, cut = inspect_recurrence(layer, x), inspect_recurrence(layer, padded, torch.tensor([6, 6]))
    assert cut.layers[0].gate_means == pytest.approx(whole.layers[0].gate_means)
    assert cut.layers[0].saturation == pytest.approx(whole.layers[0].saturation)


def test_surprise_is_the_models_own_in_bits():
    model = RecurrentLM(5, hidden_size=6)
    x, lengths = torch.randint(0, 5, (3, 9)), torch.tensor([9, 4, 0])
    surprise = inspect_recurrence(model, x, lengths).surprise
    torch.testing.assert_close(surprise.sum(1), -model.log_prob(x, lengths=lengths).detach() / math.log(2))


def test_a_row_that_is_not_finite_is_left_out_of_the_figures():
    layer, x = LSTM(N, 4), torch.randn(3, 9, N)
    alone = inspect_recurrence(layer, x[[0, 2]])
    x[1, 3] = torch.nan
    found = inspect_recurrence(layer, x)
    assert found.layers[0].gate_means == pytest.approx(alone.layers[0].gate_means)
    torch.testing.assert_close(found.layers[0].delta_every, alone.layers[0].delta_every)


VERDICTS = {
    "carries": lambda: _identity(0.99),
    "contracts": lambda: _identity(0.3),
    "explodes": lambda: _identity(1.5),
    "saturated": lambda: _recurrent(RNN(N, 16), 1.5, inputs=30),
    "vanishes": lambda: _recurrent(RNN(N, 16), 1.5, inputs=2),
    "dead-units": lambda: _dead(),
    "forget-gate-low": lambda: _biased(nn.LSTM(N, 16, batch_first=True), slice(16, 32), -2),
    "update-gate-low": lambda: _biased(nn.GRU(N, 16, batch_first=True), slice(16, 32), -2),
    "fades": lambda: _biased(LSTM(N, 16), slice(16, 32), 1.6),
}


def _identity(alpha):
    layer = RNN(N, 4, nonlinearity="identity", bias=False)
    layer.weight_hh_l0.data = alpha * torch.eye(4)
    return layer


def _recurrent(layer, norm, inputs):
    weight = layer.weight_hh_l0.data
    weight *= norm / torch.linalg.matrix_norm(weight, 2)
    layer.weight_ih_l0.data *= inputs
    return layer


def _biased(layer, rows, bias):
    layer.bias_ih_l0.data[rows] = bias
    layer.bias_hh_l0.data[rows] = 0
    return layer


def _dead():
    layer = RNN(N, 8, nonlinearity="relu")
    layer.bias_ih_l0.data[:5] = -100
    return layer


def test_a_forget_gate_that_began_open_is_not_to_be_opened():
    model = RecurrentLM(5, "lstm", hidden_size=16)
    assert (model.recurrent.bias_ih_l0[16:32] == 1).all()
    _biased(model.recurrent, slice(16, 32), -2)
    verdict = inspect_recurrence(model, torch.randint(0, 5, (4, 60))).layers[0].verdict
    assert verdict.rule == "forget-gate-learned"
    assert "bias" not in verdict.sentence
    untrained = inspect_recurrence(RecurrentLM(5, "lstm", hidden_size=16), torch.randint(0, 5, (4, 60)))
    assert untrained.layers[0].verdict.rule == "fades"  # nothing has moved the gate yet


def test_one_loss_that_says_nothing_does_not_decide():
    layer = _identity(0.99)
    x = torch.randn(4, 60, N)
    x[:, -1] -= layer(x)[0][:, -1] @ layer.weight_ih_l0.pinverse().T  # the last state, and the gradient there, become 0
    assert inspect_recurrence(layer, x).layers[0].verdict.rule == "carries"


def test_single_losses_are_those_of_backpropagation_each_by_its_weight():
    layer, x, lengths = LSTM(N, 4), torch.randn(3, 12, N), torch.tensor([12, 7, 12])
    found = single_losses(layer, x, lengths, [0, 1])
    total, base = torch.zeros(12), torch.zeros(12)
    for row, ends in ((0, (7, 8, 9, 10, 11, 12)), (1, (5, 5, 6, 6, 7, 7))):
        for end in ends:
            norms = backpropagate(layer, x[row : row + 1, :end]).delta[0][0].norm(dim=-1).flip(0)
            total[:end] += norms
            base[:end] += norms[0]
    torch.testing.assert_close(found.delta[0] / found.delta[0][0], (total / base).double())


def _overflowing():
    model = RecurrentLM(5, "rnn", hidden_size=64).float()
    model.recurrent.weight_hh_l0.data.normal_(0, 3 / 8)
    return model, torch.randint(0, 5, (1, 400))


def _growing():
    layer = RNN(N, N, nonlinearity="identity", bias=False).float()
    layer.weight_hh_l0.data = 15 * torch.eye(N, dtype=torch.float32)
    return layer, 1e-30 * torch.randn(2, 31, N, dtype=torch.float32)


@pytest.mark.parametrize("make", [_overflowing, _growing])
def test_a_gradient_that_overflows_explodes(make):
    layer = inspect_recurrence(*make()).layers[0]
    assert layer.verdict.rule == "explodes"
    assert "overflow" in layer.verdict.sentence
    assert layer.growth == layer.delta_last[-1] == math.inf


def _under_a_dead_layer():
    model = RecurrentLM(5, "rnn", hidden_size=6, num_layers=2, nonlinearity="relu")
    model.recurrent.bias_ih_l1.data.fill_(-50)
    return model, torch.randint(0, 5, (2, 12))


def _certain():
    model = RecurrentLM(2, "rnn", hidden_size=6)
    model.bias_ho.data[:] = torch.tensor([2000.0, 0.0])
    return model, torch.zeros(2, 12, dtype=torch.long)


def _zero():
    layer = LSTM(N, 4)
    for weight in layer.parameters():
        weight.data.zero_()
    return layer, torch.randn(2, 9, N)


@pytest.mark.parametrize("make", [_under_a_dead_layer, _certain, _zero])
def test_where_no_gradient_arrives_the_verdict_says_so(make):
    module, x = make()
    *rest, top = inspect_recurrence(module, x).layers
    assert top.verdict.rule == ("dead-units" if rest else "no-gradient")
    for layer in rest or [top]:
        assert layer.verdict.rule == "no-gradient"
        assert math.isnan(layer.growth)
        assert math.isnan(layer.reach)
    assert [len(figure.axes) for figure in gradient_flow(module, x).plot()] == [len(rest) + 1] * 3


def test_the_losses_with_a_gradient_decide_where_others_have_none():
    layer = RNN(N, 2, nonlinearity="relu", bias=False)
    layer.weight_hh_l0.data, layer.weight_ih_l0.data = torch.eye(2), torch.eye(2, N)
    x = torch.zeros(1, 12, N)
    x[0, 0, :2], x[0, 11, :2] = 1, -2  # the last state is 0, and so is the gradient there
    found = inspect_recurrence(layer, x).layers[0]
    assert found.verdict.rule == "carries"
    assert (found.steps, found.end, found.growth) == (10, 1.0, 1.0)


@pytest.mark.parametrize("rule", VERDICTS)
def test_each_verdict_is_reached_by_the_network_it_is_about(rule):
    verdict = inspect_recurrence(VERDICTS[rule](), torch.randn(4, 60, N)).layers[0].verdict
    assert verdict.rule == rule
    assert verdict.sentence

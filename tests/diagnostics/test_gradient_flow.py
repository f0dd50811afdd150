"""What `gradient_flow` promises to its caller: equality with the module, rows on their own, and clear errors."""

import copy
import re

import pytest
import torch
from recurrences import KINDS, TORCH, B, M, N, T
from torch import nn

from chainrule.diagnostics import backpropagate, gradient_flow, gradient_profile
from chainrule.layers import GRU, LSTM, RNN
from chainrule.models import Ensemble, RecurrentLM

ARRAYS = ("delta", "local", "jacobian_norms", "product_norms", "bound")


@pytest.mark.parametrize("kind", [*KINDS, *TORCH])
def test_every_figure_has_its_shape(kind):
    module = (KINDS | TORCH)[kind]()
    x = torch.randn(B, T, N)
    flow = gradient_flow(module, x if module.batch_first else x.transpose(0, 1))
    for name in ("delta", "local"):
        assert [array.shape for array in getattr(flow, name)] == [(B, T, M)] * 2
    for name in ("jacobian_norms", "product_norms", "bound"):
        assert [array.shape for array in getattr(flow, name)] == [(B, T)] * 2
    for name in ("spectral_radius", "spectral_norm", "memory_length", "memory_length_perturbed"):
        assert len(getattr(flow, name)) == 2
    assert len(flow.delta_cell) == 2 * ("lstm" in kind)
    assert flow.replay_error < 1e-14
    assert flow.nonfinite == []


@pytest.mark.parametrize("kind", TORCH)
def test_a_module_of_torch_gives_what_the_same_layer_of_ours_gives(kind):
    module = TORCH[kind](batch_first=True)
    ours = {"torch-tanh": "tanh", "torch-relu": "relu", "torch-lstm": "lstm", "torch-gru": "gru-after"}[kind]
    layer = KINDS[ours]()
    layer.load_state_dict(module.state_dict())
    x = torch.randn(B, T, N)
    left, right = gradient_flow(module, x), gradient_flow(layer, x)
    for name in ARRAYS:
        for a, b in zip(getattr(left, name), getattr(right, name), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_deltas_stay_under_the_bound_of_the_products(kind):
    layer, x = KINDS[kind](layers=1), torch.randn(B, T, N)
    flow = gradient_flow(layer, x)
    norms, last = flow.delta[0].norm(dim=-1), flow.delta[0][:, -1].norm(dim=-1, keepdim=True)
    assert (norms <= flow.product_norms[0] * last * (1 + 1e-9)).all()
    assert (flow.product_norms[0] <= flow.bound[0] * (1 + 1e-9)).all()


def test_spectra_are_those_of_the_recurrent_matrix():
    rnn, lstm = RNN(N, M), LSTM(N, M)
    x = torch.randn(B, T, N)
    flow = gradient_flow(rnn, x)
    values = torch.linalg.eigvals(rnn.weight_hh_l0).abs()
    assert flow.spectral_radius == pytest.approx([values.max().item()])
    assert flow.spectral_norm == pytest.approx([torch.linalg.svdvals(rnn.weight_hh_l0)[0].item()])
    candidate = lstm.weight_hh_l0[2 * M : 3 * M]
    assert gradient_flow(lstm, x).spectral_radius == pytest.approx([torch.linalg.eigvals(candidate).abs().max().item()])


@pytest.mark.parametrize("kind", [*KINDS, "torch-lstm"])
def test_a_nan_in_one_row_is_named_and_leaves_the_others_alone(kind):
    module = KINDS[kind]() if kind in KINDS else TORCH[kind](batch_first=True)
    x = torch.randn(B, T, N)
    x[2, 4, 1] = torch.nan
    flow, alone = gradient_flow(module, x), gradient_flow(module, x[[0, 1, 3]])
    assert flow.nonfinite == [(2, 4)]
    assert flow.memory_length == alone.memory_length
    for name in (*ARRAYS, "delta_cell"):
        for array, expected in zip(getattr(flow, name), getattr(alone, name), strict=True):
            assert array[2].isnan().all()
            torch.testing.assert_close(array[[0, 1, 3]], expected)
    for name, gradient in flow.weight_gradients.items():
        torch.testing.assert_close(gradient, alone.weight_gradients[name])


def test_a_loss_of_ones_own_may_count_on_all_rows():
    x = torch.randn(B, T, N)
    x[1, 0, 0] = torch.inf
    targets = torch.randn(B, T, M)
    flow = gradient_flow(LSTM(N, M), x, lambda outputs: (outputs - targets).square().mean())
    assert flow.nonfinite == [(1, 0)]
    assert flow.delta[0][[0, 2, 3]].isfinite().all()


def test_an_overflow_on_the_way_is_found_where_it_happens():
    layer = RNN(N, N, nonlinearity="identity", bias=False)
    layer.weight_hh_l0.data = 1e100 * torch.eye(N)
    layer.weight_ih_l0.data = torch.eye(N)
    x = torch.zeros(2, 8, N)
    x[1, 0] = 1
    flow = gradient_flow(layer, x)
    assert flow.nonfinite == [(1, 4)]  # 1e100 to the fourth is beyond 1.8e308
    assert flow.jacobian_norms[0][0].isfinite().all()


def test_nothing_of_the_module_is_changed():
    model = RecurrentLM(5, hidden_size=M, num_layers=2, dropout=0.5)
    model.recurrent.eval()
    before = copy.deepcopy(model.state_dict())
    gradient_flow(model, torch.randint(0, 5, (B, T)), "mean")
    assert model.training
    assert not model.recurrent.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_the_same_seed_gives_the_same_figures():
    layer, x = LSTM(N, 40), torch.randn(B, 30, N)
    torch.manual_seed(1)
    first = gradient_flow(layer, x)
    torch.manual_seed(2)
    second = gradient_flow(layer, x)
    assert torch.equal(first.jacobian_norms[0], second.jacobian_norms[0])
    assert torch.equal(first.influence[0], second.influence[0])


@pytest.mark.parametrize("kind", KINDS)
def test_float32_is_replayed_however_chaotic(kind):
    layer = KINDS[kind](size=32, layers=1).float()
    if kind not in ("relu", "identity"):
        for weight in layer.parameters():
            weight.data *= 8
    flow = gradient_flow(layer, torch.randn(2, 200, N, dtype=torch.float32))
    assert flow.replay_error < 1e-5


class Doubling(LSTM):
    def forward(self, x, state=None, lengths=None):
        output, state = super().forward(x, state, lengths)
        return 2 * output, state


BAD = {
    "no recurrence": (lambda: gradient_flow(nn.Linear(3, 3), torch.randn(1, 5, 3)), "or a RecurrentLM, got Linear"),
    "one step": (lambda: gradient_flow(LSTM(N, M), torch.randn(2, 1, N)), "at least two steps"),
    "rows of one": (
        lambda: gradient_flow(LSTM(N, M), torch.randn(2, 5, N), lengths=torch.tensor([1, 0])),
        "at least two steps",
    ),
    "bidirectional": (lambda: gradient_flow(LSTM(N, M, bidirectional=True), torch.randn(1, 5, N)), "one direction"),
    "projected": (lambda: gradient_flow(nn.LSTM(N, M, proj_size=2), torch.randn(5, 1, N)), "proj_size=0, got 2"),
    "features": (lambda: gradient_flow(LSTM(N, M), torch.randn(1, 5, N + 1)), "expected 3 features, got 4"),
    "symbols for torch": (
        lambda: gradient_flow(nn.GRU(N, M), torch.ones(5, 1, dtype=torch.long)),
        "features (B, T, N)",
    ),
    "features for a model": (
        lambda: gradient_flow(RecurrentLM(5, hidden_size=M), torch.randn(1, 5)),
        "integers (B, T)",
    ),
    "lengths": (
        lambda: gradient_flow(LSTM(N, M), torch.randn(2, 5, N), lengths=torch.tensor([6, 2])),
        "lengths: expected values in [0, 5] (the time steps of x), got 2 to 6",
    ),
    "loss": (lambda: gradient_flow(LSTM(N, M), torch.randn(2, 5, N), "first"), "'last', 'mean' or a function"),
    "no scalar": (lambda: gradient_flow(LSTM(N, M), torch.randn(2, 5, N), lambda h: h), "expected a scalar"),
    "constant": (
        lambda: gradient_flow(LSTM(N, M), torch.randn(2, 5, N), lambda h: torch.tensor(1.0)),
        "does not depend on them",
    ),
    "nothing finite": (lambda: gradient_flow(LSTM(N, M), torch.full((2, 5, N), torch.nan)), "no row is finite; row 0"),
    "half": (lambda: gradient_flow(LSTM(N, M).bfloat16(), torch.randn(2, 5, N).bfloat16()), "call .float() first"),
    "more than its weights": (
        lambda: gradient_flow(Doubling(N, M), torch.randn(2, 5, N)),
        "its gradients cannot be replayed",
    ),
    "state": (
        lambda: backpropagate(GRU(N, M), torch.randn(2, 5, N), state=torch.zeros(1, 2, M)),
        "state: expected (2, 1, 5)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_inspected_is_refused(case):
    act, message = BAD[case]
    with pytest.raises(ValueError, match=re.escape(message)):
        act()


def test_a_weight_that_is_not_finite_is_named():
    model = RecurrentLM(5, hidden_size=M, num_layers=2)
    model.recurrent.weight_hh_l1.data[0, 0] = torch.inf
    with pytest.raises(ValueError, match=r"recurrent\.weight_hh_l1 holds a number that is not finite"):
        gradient_flow(model, torch.randint(0, 5, (B, T)))


def test_it_is_the_norm_of_what_autograd_gives_at_each_step_last_first() -> None:
    torch.manual_seed(0)
    layer, x = nn.RNN(2, 3, batch_first=True).double(), torch.randn(2, 6, 2, dtype=torch.float64)
    h = [torch.zeros(2, 3, dtype=torch.float64)]
    for t in range(6):
        weight_ih, weight_hh, bias_ih, bias_hh = layer.parameters()
        h.append(torch.tanh(x[:, t] @ weight_ih.T + h[-1] @ weight_hh.T + bias_ih + bias_hh))
    gradients = torch.autograd.grad(h[-1].square().sum(), h[1:])
    (profile,) = gradient_profile(layer, x)
    torch.testing.assert_close(profile, torch.stack([g.norm(dim=-1) for g in gradients[::-1]], 1))


def test_a_row_is_read_from_its_own_end_and_is_zero_beyond_its_beginning() -> None:
    torch.manual_seed(0)
    model = RecurrentLM(5, hidden_size=4, num_layers=2).double()
    x, state = torch.randint(5, (2, 7)), tuple(torch.randn(2, 2, 4, dtype=torch.float64) for _ in range(2))
    whole = gradient_profile(model, x, torch.tensor([4, 7]), state, torch.tensor([1, 2]))
    alone = gradient_profile(model, x[:1, :4], None, tuple(part[:1] for part in state), torch.tensor([1]))
    for layer, expected in zip(whole, alone, strict=True):
        torch.testing.assert_close(layer[:1, :4], expected)
        assert not layer[0, 4:].any()
        assert layer[1].all()


def test_of_an_ensemble_the_first_member_is_looked_at() -> None:
    torch.manual_seed(0)
    model = Ensemble([RecurrentLM(5, hidden_size=4).double() for _ in range(2)])
    x, previous = torch.randint(5, (2, 7)), torch.tensor([1, 2])
    state = model.unroll(x, model.initial_state(2))[1]
    first = model.members[0]
    assert isinstance(first, RecurrentLM)
    torch.testing.assert_close(
        gradient_profile(model, x, None, state, previous), gradient_profile(first, x, None, state[0], previous)
    )
    torch.testing.assert_close(gradient_profile(model, x), gradient_profile(first, x))


def test_a_model_without_recurrence_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a recurrent layer"):
        gradient_profile(nn.Linear(2, 2), torch.zeros(1, 2, 2))

"""Functions with a hand-written gradient have the higher derivatives that autograd finds for plain operations."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.functional import hessian

from chainrule.heads import _categorical as categorical
from chainrule.heads._categorical import picked_log_softmax
from chainrule.layers import GRU, LSTM, RNN
from chainrule.layers._lattice_lstm import _plain as plain_lattice
from chainrule.layers._lattice_lstm import lattice_lstm
from chainrule.models import RecurrentLM

pytestmark = pytest.mark.usefixtures("float64")

B, T, N, M = 3, 4, 2, 3
KINDS = {
    "lstm": lambda **options: LSTM(N, M, **options),
    "gru, reset after": lambda **options: GRU(N, M, **options),
    "gru, reset before": lambda **options: GRU(N, M, reset_after=False, **options),
    "tanh": lambda **options: RNN(N, M, **options),
    "relu": lambda **options: RNN(N, M, nonlinearity="relu", **options),
    "sigmoid": lambda **options: RNN(N, M, nonlinearity="sigmoid", **options),
    "identity": lambda **options: RNN(N, M, nonlinearity="identity", **options),
}
LENGTHS = {"full": None, "unequal": torch.tensor([4, 0, 2])}


def parts(state):
    return state if isinstance(state, tuple) else (state,)


def first_and_second(outputs, inputs):
    """First derivatives of a random loss, and the derivatives of their squared length."""
    torch.manual_seed(1)
    loss = sum((value * torch.randn(value.shape)).sum() for value in outputs)
    first = torch.autograd.grad(loss, inputs, create_graph=True)
    second = torch.autograd.grad(sum(part.square().sum() for part in first), inputs)
    return [*first, *second]


def assert_equal(left, right):
    for a, b in zip(left, right, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)  # float64, sums in another order


@pytest.mark.parametrize(("ours", "theirs"), [(LSTM, nn.LSTM), (GRU, nn.GRU), (RNN, nn.RNN)])
def test_the_hessian_is_that_of_torch(ours, theirs):
    layer, peer = ours(N, M, backend="bptt"), theirs(N, M, batch_first=True)
    peer.load_state_dict(layer.state_dict())
    x = torch.randn(2, T, N)
    own, expected = (hessian(lambda x, f=f: f(x)[0].square().sum(), x) for f in (layer, peer))
    assert expected.abs().max() > 1e-3
    assert_equal([own], [expected])


@pytest.mark.parametrize("backend", ["auto", "vendor", "bptt"])
def test_every_backend_of_a_float32_lstm_has_the_same_hessian(backend):
    layer = LSTM(N, M, backend=backend).float()
    x = torch.randn(2, T, N, dtype=torch.float32)
    own = hessian(lambda x: layer(x)[0].square().sum(), x)
    exact = hessian(lambda x: layer.double()(x)[0].square().sum(), x.double())
    torch.testing.assert_close(own.double(), exact, rtol=1e-4, atol=1e-5)


def test_a_vectorised_hessian_of_the_last_state_is_that_taken_row_by_row():
    layer, x = LSTM(N, M, backend="bptt"), torch.randn(2, 3, N)
    one_by_one, vectorised = (
        hessian(lambda x: layer(x)[1][-1].pow(3).sum(), x, vectorize=vectorize) for vectorize in (False, True)
    )
    assert one_by_one.abs().max() > 1e-6
    assert_equal([one_by_one], [vectorised])


def test_third_derivatives_exist():
    layer, x = GRU(N, M, backend="bptt"), torch.randn(1, 3, N, requires_grad=True)

    def first(x):
        return torch.autograd.grad(layer(x)[0].square().sum(), x, create_graph=True)[0]

    assert gradgradcheck(first, (x,), fast_mode=True)


@pytest.mark.parametrize("windows", [None, [(0, 1), (0, 2), (1, 3)]], ids=["all positions", "diagonals"])
def test_the_lattice_has_second_derivatives(windows):
    projected = torch.randn(2, 3, 3, 2, 8, requires_grad=True)
    weights = torch.randn(2, 2, 2, 8, requires_grad=True)
    c0 = None if windows else torch.randn(2, 3, 2, 2, requires_grad=True)
    inputs = [projected, weights, *([] if c0 is None else [c0])]
    every = tuple(windows or [(0, 3)] * 3)
    taken = torch.zeros(3, 3, 1, 1)
    for t, (first, end) in enumerate(every):
        taken[t, first:end] = 1
    whole = first_and_second(lattice_lstm(projected * taken, weights, (-1, 0), c0, windows), inputs)
    assert_equal(whole, first_and_second(plain_lattice(projected * taken, weights, c0, (-1, 0), every), inputs))
    options = {"fast_mode": True}
    assert gradcheck(lambda *a: plain_lattice(a[0], a[1], c0, (-1, 0), every), (projected, weights), **options)
    assert gradgradcheck(lambda *a: lattice_lstm(a[0], a[1], (-1, 0), c0, windows), (projected, weights), **options)


def test_the_wide_categorical_has_second_derivatives(monkeypatch):
    monkeypatch.setattr(categorical, "CACHE", 10)
    scores, symbols = torch.randn(4, 5, requires_grad=True), torch.tensor([0, 4, 2, 2])
    assert gradgradcheck(lambda scores: picked_log_softmax(scores, symbols), (scores,))
    own = hessian(lambda scores: picked_log_softmax(scores, symbols).square().sum(), scores)
    plain = hessian(lambda scores: scores.log_softmax(1).gather(1, symbols[:, None]).square().sum(), scores)
    assert_equal([own], [plain])


def test_the_look_up_passes_second_derivatives_on():
    layer, x = LSTM(N, M, backend="bptt"), torch.randint(N, (B, T))
    inputs = list(layer.parameters())
    dense = nn.functional.one_hot(x, N).double()
    assert_equal(first_and_second([layer(x)[0]], inputs), first_and_second([layer(dense)[0]], inputs))


@pytest.mark.parametrize("kind", KINDS)
def test_torch_func_gives_the_gradients_of_each_row(kind):
    layer = KINDS[kind](num_layers=2).float()  # float32: where a fused kernel would be chosen
    weights, x = dict(layer.named_parameters()), torch.randn(B, T, N, dtype=torch.float32)

    def loss(weights, row):
        return torch.func.functional_call(layer, weights, (row.unsqueeze(0),))[0].square().sum()

    each = torch.func.vmap(torch.func.grad(loss), (None, 0))(weights, x)
    for row in range(B):
        alone = torch.autograd.grad(loss(weights, x[row]), list(weights.values()))
        for gradient, expected in zip(each.values(), alone, strict=True):
            torch.testing.assert_close(gradient[row], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # in torch's forward mode
def test_torch_func_reaches_a_whole_model():
    model = RecurrentLM(vocab_size=4, cell="lstm", hidden_size=3)
    weights, x = dict(model.named_parameters()), torch.randint(4, (B, 6))
    tangents = {name: torch.randn_like(weight) for name, weight in weights.items()}

    class LogProb(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model.log_prob(x)

    def log_prob(weights, x):
        return torch.func.functional_call(LogProb(), {f"model.{name}": w for name, w in weights.items()}, (x,))

    value, slope = torch.func.jvp(lambda weights: log_prob(weights, x), (weights,), (tangents,))
    torch.testing.assert_close(value, model.log_prob(x), rtol=0, atol=1e-10)
    jacobian = torch.func.jacrev(log_prob)(weights, x)
    products = [(jacobian[name] * tangents[name]).flatten(1).sum(1) for name in weights]
    torch.testing.assert_close(slope, sum(products), rtol=0, atol=1e-10)


def assert_batched_gradients_are_single_ones(outputs, inputs):
    """Of each output alone: a batched gradient then reaches the others' zeros, which are not batched."""
    for output in outputs:
        weights = torch.randn(3, *output.shape)
        batched = torch.autograd.grad(output, inputs, weights, is_grads_batched=True, retain_graph=True)
        single = [torch.autograd.grad(output, inputs, weight, retain_graph=True) for weight in weights]
        mapped = torch.vmap(lambda weight, y=output: torch.autograd.grad(y, inputs, weight, retain_graph=True))(weights)
        for many in (batched, mapped):
            assert_equal(many, [torch.stack(gradients) for gradients in zip(*single, strict=True)])


@pytest.mark.parametrize(("lengths", "bidirectional"), [("full", False), ("unequal", True)])
@pytest.mark.parametrize("kind", KINDS)
def test_batched_gradients_are_those_taken_one_by_one(kind, lengths, bidirectional):
    layer, x = KINDS[kind](backend="bptt", bidirectional=bidirectional), torch.randn(B, T, N, requires_grad=True)
    output, last = layer(x, None, LENGTHS[lengths])
    assert_batched_gradients_are_single_ones((output, *parts(last)), [x, *layer.parameters()])


def test_batched_gradients_of_a_lattice_are_those_taken_one_by_one():
    projected, weights = (torch.randn(*shape, requires_grad=True) for shape in ((2, 3, 3, 2, 8), (2, 2, 2, 8)))
    h, c = lattice_lstm(projected, weights, (-1, 0))
    assert_batched_gradients_are_single_ones((h, c), [projected, weights])

"""Random stacks of sequence layers: whatever is composed, a chunk, single steps and prepared steps are one function."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from chainrule.layers import GRU, LSTM, RNN, CausalConv1d, Map, Parallel, Residual, SequenceLayer, Serial
from chainrule.layers._dilated_stack import DilatedStack
from chainrule.layers._ngrams import NgramEmbedding
from chainrule.state import select

N, B, T, SYMBOLS = 3, 4, 7, 5

LEAVES = st.sampled_from(
    [
        lambda: Map(nn.Linear(N, N)),
        lambda: Map(nn.Tanh()),
        lambda: CausalConv1d(N, N, kernel_size=2, dilation=2),
        lambda: CausalConv1d(N, N, kernel_size=3),
        lambda: CausalConv1d(N, N, kernel_size=1),
        lambda: Serial(DilatedStack(N, [1, 2]), Map(nn.Linear(2 * N, N))),
        lambda: GRU(N, N, num_layers=2),
        lambda: GRU(N, N, reset_after=False),
        lambda: LSTM(N, N),
        lambda: RNN(N, N, nonlinearity="relu"),
    ]
)


def combined(children):
    several = st.lists(children, min_size=1, max_size=3)
    return st.one_of(
        several.map(lambda makers: lambda: Serial(*[make() for make in makers])),
        several.map(
            lambda makers: lambda: Serial(Parallel(*[make() for make in makers]), Map(nn.Linear(N * len(makers), N)))
        ),
        children.map(lambda make: lambda: Residual(make())),
    )


STACKS = st.recursive(LEAVES, combined, max_leaves=6)


def built(make, symbols):
    torch.manual_seed(0)
    stack = Serial(NgramEmbedding(SYMBOLS, N, 3, padding=0), make()) if symbols else make()
    x = torch.randint(SYMBOLS, (B, T + 3)) if symbols else torch.randn(B, T + 3, N)
    return stack.double().eval(), x if symbols else x.double()


def stepped(step, x, state):
    outputs = []
    for x_t in x.unbind(1):
        y, state = step(x_t, state)
        outputs.append(y)
    return torch.stack(outputs, 1), state


def assert_same(stack, following, got, expected):
    """Equal outputs, and states from which the layer goes on alike."""
    pairs = [(got[0], expected[0])]
    pairs += [(stack(x, got[1])[0], stack(x, expected[1])[0]) for x in (following, following[:, :1])]
    for a, b in pairs:
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)  # the same sums in another order


@torch.no_grad()
def assert_keeps_the_protocol(stack, x, cut, lengths):
    x, following = x[:, :T], x[:, T:]

    def assert_equal(got, expected, rows=slice(None)):
        assert_same(stack, following[rows], got, expected)

    whole = stack(x)
    assert whole[0].shape[:2] == (B, T)
    assert_equal(stack(x, stack.initial_state(B)), whole)
    assert_equal(stepped(stack.step, x, stack.initial_state(B)), whole)
    assert_equal(stepped(stack.prepare(), x, stack.initial_state(B)), whole)
    first, state = stack(x[:, :cut])
    rest, last = stack(x[:, cut:], state)
    assert_equal((torch.cat([first, rest], 1), last), whole)
    # A row that ends early: the output is that of the row alone, then zeros, and the state is the one at its end.
    padding = torch.arange(T) >= lengths.unsqueeze(1)
    spoilt = x.masked_fill(padding.view(B, T, *[1] * (x.dim() - 2)), torch.nan if x.is_floating_point() else 10**6)
    padded, ended = stack(spoilt, stack.initial_state(B), lengths)
    assert (padded[padding] == 0).all()
    for row, length in enumerate(lengths.tolist()):
        alone, end = stack(x[row : row + 1, :length]) if length else (padded[:1, :0], stack.initial_state(1))
        own = select(ended, torch.tensor([row]))
        assert_equal((padded[row : row + 1, :length], own), (alone, end), slice(row, row + 1))


@settings(max_examples=15, deadline=None)
@given(STACKS, st.booleans(), st.integers(1, T - 1), st.lists(st.integers(0, T), min_size=B, max_size=B))
def test_any_stack_keeps_the_protocol(make, symbols, cut, lengths):
    stack, x = built(make, symbols)
    assert_keeps_the_protocol(stack, x, cut, torch.tensor(lengths))


def test_gradients_do_not_see_the_padding():
    stack, x = built(lambda: Serial(Map(nn.Linear(N, N)), Residual(CausalConv1d(N, N, 2)), GRU(N, N)), False)
    x[:, 4:] = torch.nan  # padding
    stack(x, None, torch.full((B,), 4))[0].sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in stack.parameters())


class Wrong(SequenceLayer):
    """A running sum that is broken in one of its forms."""

    def __init__(self, form):
        super().__init__()
        self.form = form

    def initial_state(self, batch_size):
        return torch.zeros(batch_size, N, dtype=torch.float64)

    def forward(self, x, state=None, lengths=None):
        real = torch.full((len(x),), x.shape[1]) if lengths is None or self.form == "lengths" else lengths
        x = x.masked_fill((torch.arange(x.shape[1]) >= real.unsqueeze(1)).unsqueeze(2), 0)
        sums = x.cumsum(1) + (0 if state is None or self.form == "chunk" else state.unsqueeze(1))
        last = sums[:, -1] if x.shape[1] else state
        return sums.masked_fill((torch.arange(x.shape[1]) >= real.unsqueeze(1)).unsqueeze(2), 0), last

    def step(self, x_t, state):
        total = state + x_t
        return (total - state if self.form == "step" else total), total

    def prepare(self):
        return (lambda x_t, state: (state + x_t, state)) if self.form == "prepare" else self.step


@pytest.mark.parametrize("inside", [Serial, Residual, Parallel])
@pytest.mark.parametrize("form", ["chunk", "step", "prepare", "lengths"])
def test_a_layer_that_is_broken_in_one_form_is_found_inside_any_combinator(inside, form):
    x, lengths = torch.randn(B, T + 3, N, dtype=torch.float64), torch.tensor([7, 3, 5, 0])
    assert_keeps_the_protocol(inside(Wrong("")), x, 3, lengths)
    with pytest.raises(AssertionError):
        assert_keeps_the_protocol(inside(Wrong(form)), x, 3, lengths)


BROKEN = {
    "serial steps in another order": (
        Serial,
        "step",
        lambda self, x_t, state: (self.layers[0].step(x_t, state[0])[0], state),
    ),
    "serial prepares nothing": (Serial, "prepare", lambda self: lambda x_t, state: (x_t, state)),
    "residual forgets its input in a step": (Residual, "step", lambda self, x_t, state: self.layer.step(x_t, state)),
    "residual forgets its input when prepared": (Residual, "prepare", lambda self: self.layer.prepare()),
    "parallel joins in another order": (
        Parallel,
        "step",
        lambda self, x_t, state: (
            torch.cat([layer.step(x_t, s)[0] for layer, s in zip(self.layers, state, strict=True)][::-1], 1),
            tuple(layer.step(x_t, s)[1] for layer, s in zip(self.layers, state, strict=True)),
        ),
    ),
    "map leaves its bias in the padding": (
        Map,
        "forward",
        lambda self, x, state=None, lengths=None: (self.module(x.nan_to_num()), None),
    ),
    "a convolution ends where the chunk ends": (
        CausalConv1d,
        "forward",
        lambda self, x, state=None, lengths=None: CAUSAL_FORWARD(self, x.nan_to_num(), state, None),
    ),
}
CAUSAL_FORWARD = CausalConv1d.forward


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_combinator_is_found(defect, monkeypatch):
    def make():
        return Serial(
            Parallel(Residual(CausalConv1d(N, N, 2)), Map(nn.Linear(N, N)), GRU(N, N)), Map(nn.Linear(3 * N, N))
        )

    stack, x = built(make, False)
    lengths = torch.tensor([7, 3, 5, 0])
    assert_keeps_the_protocol(stack, x, 3, lengths)
    monkeypatch.setattr(*BROKEN[defect])
    with pytest.raises(AssertionError):
        assert_keeps_the_protocol(stack, x, 3, lengths)


def test_nothing_side_by_side_is_named():
    with pytest.raises(ValueError, match="layers: expected at least one"):
        Parallel()

"""Layers with a state of constant size: chunks, unequal lengths and single steps are one function with one gradient."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.layers import DeltaNet, LinearAttention, MinGRU, MinLSTM

pytestmark = pytest.mark.usefixtures("float64")

B, N = 3, 4
TOLERANCE = 1e-10  # float64; sums of some hundred terms of size one
DECAYS = ("none", "fixed", "gated")
KINDS = {
    "min-gru": lambda **_: MinGRU(N, 5),
    "min-lstm": lambda **_: MinLSTM(N, 5),
    **{f"linear, {decay}": lambda decay=decay, **kw: LinearAttention(N, 2, decay=decay, **kw) for decay in DECAYS},
    **{
        f"identity, {decay}": lambda decay=decay, **kw: LinearAttention(N, 2, feature_map="identity", decay=decay, **kw)
        for decay in DECAYS
    },
    **{f"delta, {decay}": lambda decay=decay, **kw: DeltaNet(N, 2, decay=decay, **kw) for decay in DECAYS},
}
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
EVERY_CLASS = pytest.mark.parametrize("kind", ["min-gru", "min-lstm", "linear, none", "delta, none"])


def made(kind, chunk_size=4):
    """A layer whose biases are not zero, so that they count."""
    layer = KINDS[kind](chunk_size=chunk_size)
    for parameter in layer.parameters():
        if parameter.dim() == 1:
            parameter.data += torch.randn_like(parameter)
    return layer


def random_state(layer):
    """Positive, as sums of positive keys are: the denominator of linear attention."""
    return torch.rand_like(layer.initial_state(B)) + 0.1


def by_steps(layer, x, state, lengths):
    """One step at a time, rows held at their ends: autograd gives the gradients."""
    outputs = []
    for t in range(x.shape[1]):
        y, new = layer.step(x[:, t], state)
        running = torch.ones(B, dtype=torch.bool) if lengths is None else lengths > t
        outputs.append(torch.where(running[:, None], y, 0.0))
        state = torch.where(running.view(-1, *[1] * (state.dim() - 1)), new, state)
    return torch.stack(outputs, 1), state


def values_and_gradients(layer, y, state, inputs):
    generator = torch.Generator().manual_seed(1)
    loss = sum((value * torch.randn(value.shape, generator=generator)).sum() for value in (y, state))
    return [y, state, *torch.autograd.grad(loss, [*inputs, *layer.parameters()])]


def assert_equal(left, right):
    for one, other in zip(left, right, strict=True):
        assert one.shape == other.shape
        torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)


@EVERY_KIND
@given(data=st.data())
@settings(max_examples=6, deadline=None)
def test_a_chunk_is_its_steps_from_any_state_with_the_same_gradients(kind, data):
    time = data.draw(st.integers(1, 14))
    lengths = data.draw(st.none() | st.lists(st.integers(0, time), min_size=B, max_size=B).map(torch.tensor))
    layer = made(kind, data.draw(st.sampled_from([1, 3, 64])))
    x = torch.randn(B, time, N, requires_grad=True)
    state = random_state(layer).requires_grad_()
    chunk = values_and_gradients(layer, *layer(x, state, lengths), (x, state))
    assert_equal(chunk, values_and_gradients(layer, *by_steps(layer, x, state, lengths), (x, state)))


@EVERY_KIND
def test_float32_agrees_to_a_hundred_thousandth_over_long_rows(kind):
    layer = made(kind, 64).float()
    x = torch.randn(B, 300, N, dtype=torch.float32)
    with torch.no_grad():
        y, state = layer(x)
        steps, last = by_steps(layer, x, layer.initial_state(B), None)
    for one, other in ((y, steps), (state, last)):
        assert (one - other).norm() <= 1e-5 * other.norm()


@EVERY_KIND
def test_padding_is_not_read_even_if_it_is_nan(kind):
    layer = made(kind)
    x = torch.randn(B, 7, N)
    lengths = torch.tensor([7, 0, 3])
    dirty = x.masked_fill((torch.arange(7) >= lengths[:, None])[:, :, None], torch.nan)
    y, state = layer(dirty, lengths=lengths)
    assert_equal((y, state), layer(x, lengths=lengths))
    assert not y[2, 3:].any()
    assert not state[1].any()


@EVERY_KIND
def test_an_empty_chunk_returns_the_state(kind):
    layer = made(kind)
    state = random_state(layer)
    y, same = layer(torch.zeros(B, 0, N), state)
    assert y.shape[:2] == (B, 0)
    assert_equal([same], [state])


@EVERY_KIND
def test_the_state_stays_wide_when_products_are_taken_in_bfloat16(kind):
    layer = made(kind).float()
    x = torch.randn(B, 9, N, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        y, state = layer(x)
        steps, last = by_steps(layer, x, layer.initial_state(B), None)
    assert y.dtype == torch.bfloat16
    assert state.dtype == last.dtype == torch.float32
    torch.testing.assert_close(state, last, rtol=1e-4, atol=1e-4)  # the same rounded projections, summed in float32
    torch.testing.assert_close(y.float(), steps.float(), rtol=0.02, atol=0.02)  # one unit in bfloat16's last place
    low = layer.bfloat16()
    assert low.step(x[:, 0].bfloat16(), low.initial_state(B))[1].dtype == torch.float32


@EVERY_KIND
def test_weights_on_the_meta_device_are_left_alone(kind):
    with torch.device("meta"):
        empty = KINDS[kind]()
    full = made(kind)
    empty.load_state_dict(full.state_dict(), assign=True)
    x = torch.randn(B, 5, N)
    assert_equal(empty(x), full(x))


@EVERY_CLASS
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.zeros(B, 5, N + 1)}, r"x: expected features \(B, T, 4\), got shape \(3, 5, 5\)"),
        ({"x": torch.zeros(B, N)}, r"x: expected features \(B, T, 4\), got shape \(3, 4\)"),
        ({"x": torch.zeros(B, 5, N), "state": torch.zeros(2)}, "state: expected a tensor of shape .* got .*2,"),
        ({"x": torch.zeros(B, 5, N), "state": 1.0}, "state: expected a tensor of shape .* got float"),
        ({"x": torch.zeros(B, 5, N), "lengths": torch.tensor([1, 2])}, "lengths: expected 3 integers"),
        ({"x": torch.zeros(B, 5, N), "lengths": torch.tensor([1, 2, 6])}, r"lengths: expected values in \[0, 5\]"),
        ({"x": torch.zeros(B, 5, N), "lengths": torch.ones(3)}, "lengths: expected integers"),
    ],
)
def test_arguments_of_another_shape_are_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        made(kind)(**arguments)


@EVERY_CLASS
def test_a_step_refuses_them_as_well(kind):
    layer = made(kind)
    with pytest.raises(ValueError, match=r"x: expected features \(B, 4\), got shape \(3, 5, 4\)"):
        layer.step(torch.zeros(B, 5, N), layer.initial_state(B))
    with pytest.raises(ValueError, match="state: expected a tensor of shape"):
        layer.step(torch.zeros(B, N), layer.initial_state(B + 1))

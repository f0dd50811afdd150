"""A causal convolution reads the past, and goes on where it stopped."""

import pytest
import torch
from torch import nn

from chainrule.layers import CausalConv1d
from chainrule.layers._dilated_stack import DilatedStack

KINDS = pytest.mark.parametrize(("kernel_size", "dilation"), [(1, 1), (2, 1), (2, 4), (3, 2), (3, 1)])


@KINDS
def test_it_is_the_padded_convolution_of_torch(kernel_size, dilation):
    layer = CausalConv1d(3, 5, kernel_size, dilation).double()
    layer.bias.data.normal_()
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    padded = nn.functional.pad(x.transpose(1, 2), ((kernel_size - 1) * dilation, 0))
    expected = nn.functional.conv1d(padded, layer.weight, layer.bias, dilation=dilation).transpose(1, 2)
    torch.testing.assert_close(layer(x)[0], expected, rtol=0, atol=1e-12)  # the same sums in another order


@KINDS
def test_chunks_and_single_steps_give_the_whole(kernel_size, dilation):
    layer = CausalConv1d(3, 5, kernel_size, dilation).double()
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    state, parts = layer.initial_state(2), []
    for chunk in x.split([1, 3, 5], 1):
        part, state = layer(chunk, state)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 1), layer(x)[0], rtol=0, atol=1e-12)
    state, parts = layer.initial_state(2), []
    for x_t in x.unbind(1):
        part, state = layer.step(x_t, state)
        parts.append(part)
    torch.testing.assert_close(torch.stack(parts, 1), layer(x)[0], rtol=0, atol=1e-12)


def test_it_sees_its_taps_and_nothing_else():
    layer = CausalConv1d(1, 1, kernel_size=3, dilation=2).double()
    x = torch.randn(1, 8, 1, dtype=torch.float64)
    seen = torch.autograd.functional.jacobian(lambda x: layer(x)[0][0, 6, 0], x).flatten() != 0
    assert seen.nonzero().flatten().tolist() == [2, 4, 6]


def test_wrong_sizes_are_named():
    with pytest.raises(ValueError, match="dilation: expected an integer >= 1, got 0"):
        CausalConv1d(1, 1, dilation=0)


def test_features_and_states_of_another_size_are_refused():
    layer, x = CausalConv1d(3, 5), torch.zeros(2, 4, 3)
    for call in (
        lambda: layer(x, torch.zeros(2, 3, 3)),
        lambda: layer.step(x[:, 0], torch.zeros(2, 3, 3)),
    ):
        with pytest.raises(ValueError, match=r"state: expected a tensor of shape \(2, 1, 3\)"):
            call()
    for call in (
        lambda: layer(x[:, :, :1]),
        lambda: layer.step(x[:, 0, :1], layer.initial_state(2)),
        lambda: DilatedStack(3, [1, 2])(x[:, :, :1]),
    ):
        with pytest.raises(ValueError, match="x: expected features"):
            call()

"""A masked convolution is a convolution with a masked weight, and reads what its mask says."""

import pytest
import torch
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers import MaskedConv2d

KINDS = [
    (1, 3, 1, "A"),
    (1, 3, 1, "B"),
    (3, 3, 3, "A"),
    (3, 5, 3, "B"),
    (4, 3, 3, "B"),
    (3, (1, 3), 3, "A"),
    (5, 1, 2, "B"),
]


@pytest.mark.parametrize(("channels", "kernel", "groups", "mask_type"), KINDS)
def test_it_is_the_convolution_with_the_masked_weight(channels, kernel, groups, mask_type):
    layer = MaskedConv2d(channels, 7, kernel, mask_type, groups).double()
    layer.bias.data.normal_()
    x = torch.randn(2, channels, 6, 5, dtype=torch.float64)
    expected = nn.functional.conv2d(x, layer.weight * layer.mask, layer.bias, padding="same")
    torch.testing.assert_close(layer(x), expected, rtol=0, atol=1e-12)  # sums of the same products in another order


@pytest.mark.parametrize(("channels", "kernel", "groups", "mask_type"), KINDS)
def test_gradients_go_where_the_mask_lets_light_through_and_nowhere_else(channels, kernel, groups, mask_type):
    layer = MaskedConv2d(channels, 7, kernel, mask_type, groups).double()
    seen = gradient_reach(layer, channels, 4, 3, groups)
    assert torch.equal(seen, positive_reach(layer, channels, 4, 3, groups))


def test_a_stack_is_causal_and_leaves_the_present_element_out():
    """In the order of pixels, and of R, G and B inside a pixel."""
    stack = nn.Sequential(
        MaskedConv2d(3, 8, 3, "A", 3), MaskedConv2d(8, 11, 3, "B", 3), MaskedConv2d(11, 6, 1, "B", 3)
    ).double()
    seen = gradient_reach(stack, 3, 3, 3, 3).view(3, 9, 3, 9).permute(1, 0, 3, 2).reshape(27, 27)  # pixel, then colour
    assert not seen.triu().any()
    assert seen[1:, 0].all()  # every later element sees the first red


@pytest.mark.parametrize("types", ["BB", "AA"])
def test_type_b_first_or_type_a_twice_is_seen_by_this_test(types):
    stack = nn.Sequential(*(MaskedConv2d(1, 1, 3, mask_type) for mask_type in types)).double()
    seen = gradient_reach(stack, 1, 3, 3, 1)
    leaks, deaf = bool(seen.triu().any()), not bool(seen[1:, 0].all())
    assert (leaks, deaf) == ((True, False) if types == "BB" else (False, True))


def test_rows_are_read_below_those_that_stand_over_them():
    layer = MaskedConv2d(2, 3, 5, "B").double()
    x = torch.randn(2, 2, 7, 4, dtype=torch.float64)
    torch.testing.assert_close(layer.below(x[:, :, 1:6]), layer(x)[:, :, 3:6], rtol=0, atol=1e-12)


def test_the_halves_of_a_gate_are_grouped_alike():
    layer = MaskedConv2d(3, 12, 1, "B", 3, parts=2)
    reads = layer.mask[:, :, 0, 0].int()
    assert torch.equal(reads[:6], reads[6:])
    assert reads[:6].tolist() == [[1, 0, 0]] * 2 + [[1, 1, 0]] * 2 + [[1, 1, 1]] * 2


def test_the_variance_of_an_output_does_not_depend_on_how_much_its_mask_leaves():
    layer = MaskedConv2d(3 * 64, 3 * 64, 3, "B", 3, bias=False)
    variance = layer(torch.randn(8, 3 * 64, 9, 9))[:, :, 4:-1, 1:-1].var((0, 2, 3)).view(3, 64).mean(1)
    assert ((variance > 0.9) & (variance < 1.1)).all()


def test_a_state_dict_holds_weight_and_bias_in_the_shape_of_a_plain_convolution():
    shapes = {name: value.shape for name, value in MaskedConv2d(2, 6, 3, "A", 2).state_dict().items()}
    assert shapes == {name: value.shape for name, value in nn.Conv2d(2, 6, 3).state_dict().items()}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, 4, 2, "A"), "kernel_size"),
        ((1, 4, 3, "C"), "mask_type"),
        ((3, 2, 3, "A", 3), "channel_groups: expected 1 to 2, .* got 3"),
        ((2, 3, 3, "A", 3), "channel_groups"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        MaskedConv2d(*arguments)

"""Masked convolutions and what is built of them are their equations, and read what their masks say."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from light import gradient_reach, positive_reach
from torch import nn

from chainrule.layers import MaskedConv2d
from chainrule.layers._masked_conv2d import (
    MaskedResidualBlock,
    PixelLogits,
    channel_group_of,
    convolution_mask,
    spatial_mask,
)

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
    torch.testing.assert_close(layer(x[:, :, 1:6], with_above=True), layer(x)[:, :, 3:6], rtol=0, atol=1e-12)


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
    ("function", "arguments", "message"),
    [
        (MaskedConv2d, (1, 4, 2, "A"), "kernel_size"),
        (MaskedConv2d, (1, 4, 3, "C"), "mask_type"),
        (MaskedConv2d, (3, 2, 3, "A", 3), "channel_groups: expected 1 to 2, .* got 3"),
        (MaskedConv2d, (2, 3, 3, "A", 3), "channel_groups"),
        (spatial_mask, (2, 3, "A"), "kernel_size: expected an odd height, .* got 2"),
        (spatial_mask, (3, 0, "A"), "kernel_size: expected an odd width"),
        (spatial_mask, (3, 3, "C"), "mask_type: expected 'A' .* got 'C'"),
        (channel_group_of, (7, 3, 2), "channels: expected a multiple of 2"),
    ],
)
def test_wrong_arguments_are_named(function, arguments, message):
    with pytest.raises(ValueError, match=message):
        function(*arguments)


def test_the_masks_are_those_of_the_paper():
    assert spatial_mask(3, 3, "A").int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert spatial_mask(3, 3, "B").int().tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert spatial_mask(1, 5, "A").int().tolist() == [[1, 1, 0, 0, 0]]
    assert spatial_mask(1, 5, "B").int().tolist() == [[1, 1, 1, 0, 0]]
    assert spatial_mask(1, 1, "A").tolist() == [[False]]
    assert spatial_mask(1, 1, "B").tolist() == [[True]]


@pytest.mark.parametrize("mask_type", ["A", "B"])
def test_rgb_is_block_triangular_at_the_centre_and_free_elsewhere(mask_type):
    groups = channel_group_of(6, 3)
    mask = convolution_mask(groups, groups, 3, 3, mask_type)
    reads = mask[:, :, 1, 1]
    for reader in range(6):
        for read in range(6):
            allowed = read // 2 < reader // 2 or (mask_type == "B" and read // 2 == reader // 2)
            assert bool(reads[reader, read]) == allowed
    before, after = torch.tensor([[0, 0], [0, 1], [0, 2], [1, 0]]).T, torch.tensor([[1, 2], [2, 0], [2, 1], [2, 2]]).T
    assert mask[:, :, before[0], before[1]].all()
    assert not mask[:, :, after[0], after[1]].any()


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 3))
def test_groups_are_contiguous_never_empty_and_even_up_to_one(size, groups, parts):
    if size < groups:
        with pytest.raises(ValueError, match="channel_groups"):
            channel_group_of(size * parts, groups, parts)
        return
    of = channel_group_of(size * parts, groups, parts).view(parts, size)
    assert (of == of[0]).all()
    assert (of[0].diff() >= 0).all()
    counts = of[0].bincount(minlength=groups)
    assert len(counts) == groups
    assert int(counts.min()) >= 1
    assert int(counts.max() - counts.min()) <= 1


def test_the_scores_of_a_colour_read_its_own_features_and_those_before():
    layer = PixelLogits(8, image_channels=3, levels=4).double()
    nn.init.constant_(layer.hidden.bias, 10.0)  # rectifiers that fire
    seen = gradient_reach(lambda x: layer(x.exp()), 8, 2, 2, 3)
    assert torch.equal(seen, positive_reach(layer, 8, 2, 2, 3))
    assert seen.view(3, 4, 3, 4)[:, 0, :, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_a_residual_block_is_its_equation():
    block = MaskedResidualBlock(6, 3, num_classes=2).double()
    for parameter in block.parameters():
        nn.init.normal_(parameter)
    h, label = torch.randn(2, 6, 4, 5, dtype=torch.float64), torch.tensor([1, 0])
    a = nn.functional.conv2d(h.relu(), block.narrowing.weight, block.narrowing.bias).relu()
    b = nn.functional.conv2d(a, block.middle.weight * block.middle.mask, block.middle.bias, padding=1)
    b = b + block.label_bias.weight[label][:, :, None, None]
    expected = h + nn.functional.conv2d(b.relu(), block.widening.weight)
    torch.testing.assert_close(block(h, None, label)[0], expected, rtol=0, atol=1e-12)


def test_gradients_of_a_block_go_where_its_masks_let_light_through_and_nowhere_else():
    block = MaskedResidualBlock(14, 3, 3).double()
    nn.init.constant_(block.narrowing.bias, 10.0)  # rectifiers that fire
    nn.init.constant_(block.middle.bias, 100.0)
    seen = gradient_reach(lambda x: block(x.exp())[0], 14, 3, 3, 3)
    assert torch.equal(seen, positive_reach(block, 14, 3, 3, 3, lambda block, x: block(x)[0]))


def test_rows_of_a_block_follow_those_above():
    block = MaskedResidualBlock(4, 5).double()
    h = torch.randn(2, 4, 7, 3, dtype=torch.float64)
    above, parts = h.new_zeros(2, 2, 2, 3), []
    for rows in h.split([1, 4, 2], 2):
        part, above = block(rows, above)
        parts.append(part)
    torch.testing.assert_close(torch.cat(parts, 2), block(h)[0], rtol=0, atol=1e-12)

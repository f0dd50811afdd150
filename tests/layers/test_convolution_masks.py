"""The masks of convolutions are those of the equations."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule.layers import spatial_mask
from chainrule.layers._masked_conv2d import channel_group_of, convolution_mask


def test_the_masks_of_three_by_three_are_those_of_the_paper():
    assert spatial_mask(3, 3, "A").int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0]]
    assert spatial_mask(3, 3, "B").int().tolist() == [[1, 1, 1], [1, 1, 0], [0, 0, 0]]


def test_a_kernel_of_one_row_reads_to_the_left():
    assert spatial_mask(1, 5, "A").int().tolist() == [[1, 1, 0, 0, 0]]
    assert spatial_mask(1, 5, "B").int().tolist() == [[1, 1, 1, 0, 0]]


def test_one_pixel_reads_nothing_or_itself():
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((2, 3, "A"), "kernel_size: expected an odd height, .* got 2"),
        ((3, 0, "A"), "kernel_size: expected an odd width"),
        ((3, 3, "C"), "mask_type: expected 'A' .* got 'C'"),
    ],
)
def test_kernels_without_a_middle_and_unknown_types_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        spatial_mask(*arguments)


def test_channels_that_make_no_equal_parts_are_refused():
    with pytest.raises(ValueError, match="channels: expected a multiple of 2"):
        channel_group_of(7, 3, parts=2)

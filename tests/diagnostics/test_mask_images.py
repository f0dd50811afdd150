"""Masks and receptive fields, drawn."""

import torch

from chainrule.diagnostics import receptive_field
from chainrule.models import GatedPixelCNN, PixelCNN, PixelRNN
from chainrule_app.pages.image_page import (
    BEYOND,
    BLIND,
    LATER,
    PIXEL,
    blind_side,
    field_image,
    mask_images,
    pixel_of,
)


def test_every_mask_is_shown_once_with_the_layers_that_have_it():
    masks = mask_images(GatedPixelCNN((3, 8, 8), 4, channels=9, layers=2, kernel_size=3))
    titles = [mask.title for mask in masks]
    assert titles == ["type A, 1×7, 1 layer", "type B, 1×1, 5 layers", "type B, 1×3, 2 layers"]
    assert masks[0].layers == ("first.horizontal",)
    assert torch.equal(masks[0].groups, torch.ones(3, 3, dtype=torch.bool).tril(-1))
    assert torch.equal(masks[2].groups, torch.ones(3, 3, dtype=torch.bool).tril())
    assert masks[0].taps[0].tolist()[:3] == [1, 1, 1]
    assert 0 < float(masks[0].taps[0, 3]) < 1
    assert float(masks[0].taps[0, 4:].sum()) == 0
    assert mask_images(PixelCNN((1, 8, 8), 4, channels=8, layers=1, kernel_size=3))[0].taps.int().tolist()[3] == [
        1,
        1,
        1,
        0,
        0,
        0,
        0,
    ]


def test_a_drawn_mask_has_a_square_for_each_tap():
    (first, *_) = mask_images(PixelCNN((3, 8, 8), 4, channels=12, layers=1, kernel_size=3, first_kernel_size=3))
    drawn = first.pixels()
    squares = [[tuple(drawn[14 * row + 7, 14 * column + 7].tolist()) for column in range(3)] for row in range(3)]
    dark, pale, light = squares[0][0], squares[1][1], squares[2][2]
    assert len({dark, pale, light}) == 3
    assert squares == [[dark, dark, dark], [dark, pale, light], [light, light, light]]
    table = drawn[:, 3 * 14 + 9 :]
    reads = [[tuple(table[14 * row + 7, 14 * column + 7].tolist()) == dark for column in range(3)] for row in range(3)]
    assert reads == [[False, False, False], [True, False, False], [True, True, False]]


def test_a_drawn_field_tells_what_is_seen_from_what_is_not():
    field = receptive_field(PixelCNN((1, 7, 9), 2, channels=8, layers=2, kernel_size=3, first_kernel_size=3), (0, 5, 4))
    drawn = field_image(field)
    scale = drawn.shape[0] // 7
    at = {
        (row, column): tuple(drawn[row * scale + scale // 2, column * scale + scale // 2].tolist())
        for row in range(7)
        for column in range(9)
    }
    assert pixel_of(field) == (5, 4)
    assert at[5, 4] == PIXEL
    assert at[4, 7] == at[3, 7] == BLIND
    assert at[0, 0] == BEYOND
    assert at[5, 5] == at[6, 0] == LATER
    assert at[4, 4] not in (PIXEL, BLIND, BEYOND, LATER)
    assert blind_side(field) == "to the upper right"
    gated = receptive_field(
        GatedPixelCNN((1, 5, 5), 2, channels=8, layers=1, kernel_size=3, first_kernel_size=3), (0, 3, 2)
    )
    assert blind_side(gated) == ""
    row = receptive_field(PixelRNN((1, 7, 9), 2, kind="row", channels=8, layers=2, first_kernel_size=3), (0, 5, 4))
    assert blind_side(row) == "to both sides"

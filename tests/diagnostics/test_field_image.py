"""Receptive fields, drawn."""

from chainrule._app.pages.image_page import (
    BEYOND,
    BLIND,
    LATER,
    PIXEL,
    blind_side,
    field_image,
    pixel_of,
)
from chainrule.diagnostics import receptive_field
from chainrule.models import GatedPixelCNN, PixelCNN, PixelRNN


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

"""Images as files and as characters."""

import io

import numpy as np
import pytest
from PIL import Image

from chainrule.data import grid, png
from chainrule.data._images import block_image, brightness


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3)])
def test_a_png_is_read_back_as_it_was(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    with Image.open(io.BytesIO(png(pixels))) as image:
        assert np.array_equal(np.asarray(image), pixels)


def test_a_png_with_a_palette_holds_its_indices():
    indices = np.arange(12, dtype=np.uint8).reshape(3, 4)
    palette = np.random.default_rng(0).integers(0, 256, (256, 3), dtype=np.uint8)
    with Image.open(io.BytesIO(png(indices, palette))) as image:
        assert image.mode == "P"
        assert np.array_equal(np.asarray(image), indices)
        assert np.array_equal(np.asarray(image.convert("RGB")), palette[indices])


def test_a_grid_holds_every_image_in_its_place():
    images = np.arange(1, 6, dtype=np.uint8).reshape(5, 1, 1, 1).repeat(4, 2).repeat(3, 3)
    sheet = grid(images, columns=2, gap=1, least=6)  # pixels become 2×2
    assert sheet.shape == (3 * 9 + 1, 2 * 7 + 1)
    assert sheet[1:9, 1:7].tolist() == [[1] * 6] * 8
    assert (sheet[19:27, 1:7] == 5).all()
    assert (sheet[0] == 96).all()
    assert grid(images.repeat(3, 1)).shape[2] == 3


def test_brightness_spans_black_to_white():
    assert brightness(np.arange(17, dtype=np.uint8), 17)[[0, 8, 16]].tolist() == [0, 128, 255]


def test_large_images_are_made_smaller_for_the_terminal():
    half = np.zeros((2, 3, 70, 66), np.uint8)
    half[:, :, :, 33:] = 255
    lines = block_image(half).split("\n")
    assert len(lines) == 12  # blocks of 6 × 3 pixels, the last ones cut
    assert lines[0] == " " * 11 + "█" * 11 + " " * 13 + "█" * 11

"""Images as files and as characters, and what training does to them."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from chainrule_app.readers.images.batches import Augmentation
from chainrule_app.readers.images.source import block_image, brightness, grid, png


def random(seed=0):
    return np.random.default_rng(seed)


def image():
    image = torch.zeros(1, 1, 9, 9, dtype=torch.long)
    image[0, 0, 3, 4] = 7
    return image


def test_a_shift_moves_whole_pixels_by_at_most_so_many():
    changed = Augmentation(shift=2)(image().expand(200, -1, -1, -1), random())
    assert changed.dtype == torch.long
    assert (changed.flatten(1).sum(1) == 7).all()
    places = changed[:, 0].nonzero()[:, 1:] - torch.tensor([3, 4])
    assert {tuple(place) for place in places.tolist()} == {(r, c) for r in range(-2, 3) for c in range(-2, 3)}


def test_beyond_the_border_is_the_lowest_value():
    changed = Augmentation(shift=8)(torch.full((50, 1, 9, 9), 5), random())
    assert set(changed.unique().tolist()) == {0, 5}


def test_a_flip_mirrors_about_half():
    image = torch.arange(6).view(1, 1, 2, 3).expand(200, -1, -1, -1)
    changed = Augmentation(flip=True)(image, random())
    mirrored = (changed == image.flip(3)).flatten(1).all(1)
    assert ((changed == image).flatten(1).all(1) ^ mirrored).all()
    assert 70 < mirrored.sum() < 130


def test_a_turn_keeps_the_middle_and_moves_the_rest_on_a_circle():
    image = torch.zeros(1, 1, 41, 41)
    image[0, 0, 20, 20], image[0, 0, 20, 32] = 1.0, 1.0
    changed = Augmentation(rotate=90)(image.expand(40, -1, -1, -1), random())
    torch.testing.assert_close(changed[:, 0, 20, 20], torch.ones(40))
    rows, columns = torch.meshgrid(torch.arange(41.0) - 20, torch.arange(41.0) - 20, indexing="ij")
    away = (rows**2 + columns**2).sqrt()
    changed[:, 0, 19:22, 19:22] = 0
    mass = changed[:, 0].flatten(1).sum(1)
    radius = (changed[:, 0] * away).flatten(1).sum(1) / mass
    assert (mass > 0.5).all()
    assert (radius - 12).abs().max() < 0.6


def test_growth_scales_distances_from_the_middle():
    image = torch.zeros(1, 1, 41, 41)
    image[0, 0, 20, 30] = 1.0
    changed = Augmentation(scale=0.5)(image.expand(60, -1, -1, -1), random())[:, 0]
    place = (changed * (torch.arange(41.0) - 20)).flatten(1).sum(1) / changed.flatten(1).sum(1)
    assert 6 < place.min() < 7.5
    assert 13.5 < place.max() < 15.5


def test_the_same_generator_draws_the_same_changes():
    images = torch.randint(256, (8, 3, 10, 10), generator=torch.Generator().manual_seed(0))
    change = Augmentation(shift=2, rotate=20, scale=0.2, flip=True)
    assert change(images, random(3)).equal(change(images, random(3)))
    assert not change(images, random(3)).equal(change(images, random(4)))


@pytest.mark.parametrize("options", [{"shift": -1}, {"rotate": 181}, {"scale": float("nan")}])
def test_a_number_out_of_range_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Augmentation(**options)


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

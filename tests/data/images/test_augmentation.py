import numpy as np
import pytest
import torch

from chainrule.data._images.batches import Augmentation


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


@pytest.mark.parametrize("options", [{"shift": -1}, {"rotate": 181}, {"scale": float("nan")}, {"magnitude": 2}])
def test_a_number_out_of_range_is_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Augmentation(**options)

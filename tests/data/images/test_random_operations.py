import numpy as np
import pytest
import torch

from chainrule.data._images.batches import LARGEST, Augmentation, RandomOperations, draw_operations


def random(seed=0):
    return np.random.default_rng(seed)


def only(name, amount, batch=1):
    """The operations that have one amount for each image, and no other."""
    return RandomOperations({each: np.full(batch, amount if each == name else 0.0) for each in LARGEST})


def test_every_operation_is_drawn_as_often_as_another_in_both_directions():
    drawn = draw_operations(3000, 1, 0.5, random()).amounts
    assert list(drawn) == list(LARGEST)
    used = {name: (amount != 0).mean() for name, amount in drawn.items() if name != "nothing"}
    assert all(abs(share - 1 / len(LARGEST)) < 0.03 for share in used.values())
    assert all(set(np.unique(drawn[name])) == {-0.5 * most, 0, 0.5 * most} for name, most in LARGEST.items() if most)


def test_operations_that_are_drawn_several_times_add_up():
    drawn = draw_operations(200, 3, 0.1, random()).amounts
    assert np.abs(drawn["rotate"]).max() == pytest.approx(0.3 * LARGEST["rotate"])


@pytest.mark.parametrize(
    ("name", "amount", "read"),
    [
        ("shift right", 0.25, (5.5, 3.5)),
        ("shift down", 0.25, (0.5, 8.5)),
        ("shear rows", 0.5, (2.25, 3.5)),
        ("shear columns", 0.5, (0.5, 3.75)),
        ("rotate", np.pi / 2, (-3.5, 0.5)),
    ],
)
def test_a_move_says_where_a_place_is_read(name, amount, read):
    """The place half a pixel right and 3.5 below the middle of 20×20 pixels."""
    moves = only(name, amount).moves(20, 20)
    assert moves[0] @ [0.5, 3.5, 1.0] == pytest.approx([*read, 1.0])


def test_brightness_and_contrast_stay_in_range():
    images = torch.arange(256.0).view(1, 1, 16, 16)
    brighter = only("brightness", 0.5).coloured(images, 256, random())
    torch.testing.assert_close(brighter, (images * 1.5).clamp(max=255))
    paler = only("contrast", -0.5).coloured(images, 256, random())
    torch.testing.assert_close(paler, 127.5 + (images - 127.5) / 2)


def test_cutout_zeroes_a_square_of_its_size():
    images = torch.ones(300, 2, 20, 20)
    changed = only("cutout", -0.3, 300).coloured(images, 2, random())
    gone = (changed == 0).all(1).flatten(1).sum(1)
    assert gone.max() == 36  # 6×6, less at a border
    assert ((changed == 0) | (changed == 1)).all()
    assert 0 < gone.min() < 36


def test_an_augmentation_applies_them_all_and_keeps_the_shape():
    images = torch.randint(256, (64, 3, 12, 10), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    change = Augmentation(shift=1, random_operations=2, magnitude=0.5)
    changed = change(images, random())
    assert changed.shape == images.shape
    assert 0 <= changed.min() <= changed.max() <= 255
    assert change(images, random()).equal(changed)
    alone = Augmentation(random_operations=2, magnitude=0.5)(images, random())
    moved = (alone - images.float()).abs().flatten(1).amax(1) > 0.01
    assert moved.double().mean() > 0.7  # of two operations both may be "nothing", or take each other back
    still = Augmentation(random_operations=4, magnitude=0.0)(images, random())
    torch.testing.assert_close(still, images.float(), rtol=0, atol=0.01)  # bilinear, in float32

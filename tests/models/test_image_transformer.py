"""The Transformer over pixels: what a pixel reads beside the past, completion, and labels."""

import pytest
import torch

from chainrule.models import ImageTransformer
from chainrule.testing import check_model


def model(shape=(1, 3, 4), levels=3, **options):
    torch.manual_seed(0)
    return ImageTransformer(shape, levels, **{"model_size": 8, "num_layers": 1, "num_heads": 2, **options}).eval()


@pytest.mark.parametrize("shape", [(1, 3, 4), (3, 2, 2), (2, 3, 1), (1, 1, 5)])
def test_neighbours_are_the_same_channel_of_the_pixels_around(shape):
    images = model(shape)
    channels, _, width = shape
    places = torch.arange(images.sequence_length)
    for neighbour in images.neighbours:
        back, up, left = neighbour
        for place, inside in zip(places.tolist(), images._inside(places, neighbour).tolist(), strict=True):
            row, column, channel = place // (width * channels), place // channels % width, place % channels
            assert inside == (row - up >= 0 and 0 <= column - left < width)
            if inside:
                assert place - back == ((row - up) * width + column - left) * channels + channel


def test_colours_and_labels_keep_the_contract():
    images = model((3, 2, 1), num_classes=2)
    report = check_model(images, torch.randint(3, (2, 3, 2, 1)), torch.tensor([0, 1]))
    assert report.ok, report


def test_a_window_of_one_leaves_the_neighbours_alone():
    images = model((1, 3, 4), window=1)
    past = images.visible_past(12)
    assert past[6].nonzero().flatten().tolist() == [1, 2, 3, 5]  # row 1, column 2: above left, above, above right, left
    assert past[4].nonzero().flatten().tolist() == [0, 1, 3]  # the border: above, above right, and the element before


def test_the_rest_of_an_image_is_drawn_by_prepared_steps_as_the_pass_gives_it():
    images, x = model().double(), torch.randint(3, (2, 1, 3, 4))
    whole = images.sample(2, prefix=images.to_sequence(x[:, :, :1]), temperature=0)
    assert torch.equal(whole[:, :, :1], x[:, :, :1])
    assert torch.equal(whole[:, :, 1:], images(whole).logits.argmax(4)[:, :, 1:])


def test_images_of_another_size_are_refused():
    with pytest.raises(ValueError, match=r"x: expected images of shape \(B, 1, 3, 4\)"):
        model()(torch.zeros(1, 1, 4, 4, dtype=torch.long))

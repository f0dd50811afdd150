"""The Transformer over pixels: what a pixel reads beside the past, completion, and labels."""

import pytest
import torch

from chainrule.models import ImageTransformer


def model(shape=(1, 3, 4), levels=3, **options):
    torch.manual_seed(0)
    return ImageTransformer(shape, levels, **{"model_size": 8, "num_layers": 1, "num_heads": 2, **options}).eval()


@pytest.mark.parametrize("shape", [(1, 3, 4), (3, 2, 2), (2, 3, 1), (1, 1, 5)])
@pytest.mark.parametrize("radius", [1, 2, 9])
def test_neighbours_are_the_same_channel_of_the_pixels_around(shape, radius):
    images = model(shape, radius=radius)
    channels, height, width = shape
    x = torch.randint(3, (1, *shape))
    features, _ = images.inputs(images._before(images.to_sequence(x), None))
    table = images.inputs.embedding.weight.view(len(images.inputs.neighbours), 4, -1)
    assert images.inputs.neighbours[0] == (1, 0, 0)
    moves = {(up, left) for up in range(radius + 1) for left in range(-radius, radius + 1) if up or left > 0}
    assert {move[1:] for move in images.inputs.neighbours[1:]} == {
        (up, left) for up, left in moves if up < height and abs(left) < width and (up * width + left) * channels > 1
    }
    row = images.to_sequence(x)[0].tolist()
    for place in range(len(row)):
        i, j, k = place // (width * channels), place // channels % width, place % channels
        expected = table[0, row[place - 1] if place else 3]
        for index, (_, up, left) in enumerate(images.inputs.neighbours[1:], start=1):
            inside = i - up >= 0 and 0 <= j - left < width
            expected = expected + table[index, int(x[0, k, i - up, j - left]) if inside else 3]
        places = [at for at, size in zip((i, j, k), (height, width, channels), strict=True) if size > 1]
        for embedding, at in zip(images.inputs.places, places, strict=True):
            expected = expected + embedding.weight[at]
        torch.testing.assert_close(features[0, place], expected)


def test_colours_and_labels_keep_the_contract(keeps_contract):
    images = model((3, 2, 1), num_classes=2)
    keeps_contract(images, torch.randint(3, (2, 3, 2, 1)), torch.tensor([0, 1]))


def test_a_window_of_one_leaves_the_neighbours_alone():
    images = model((1, 3, 4), window=1, radius=1)
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


@pytest.mark.parametrize("value", [-1, 4, 300])
def test_a_pixel_out_of_range_reads_no_row_of_another_neighbour(value):
    images, x = model(), torch.zeros(2, 12, dtype=torch.long)
    x[1, 3] = value
    with pytest.raises(ValueError, match=rf"x: expected symbols in \[0, 3\), got {value}"):
        images.unroll(x, images.initial_state(2))
    for step in (images.step, images.prepare().step):
        with pytest.raises(ValueError, match=rf"x: expected symbols in \[0, 3\), got {value}"):
            step(x[:, 3], images.initial_state(2))

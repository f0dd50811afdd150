"""Images and the order in which their elements are visited."""

import pytest
import torch

from chainrule.models import GatedPixelCNN, MultiScalePixelCNN, PixelCNN


def model(shape=(3, 2, 4), **options):
    return GatedPixelCNN(shape, **{"levels": 4, "channels": 6, "layers": 1, **options})


def test_elements_are_visited_row_by_row_pixel_by_pixel_and_red_green_blue():
    x = torch.zeros(1, 3, 2, 4, dtype=torch.long)
    for colour in range(3):
        for row in range(2):
            for column in range(4):
                x[0, colour, row, column] = (row * 4 + column) * 3 + colour
    assert model().to_sequence(x).tolist() == [list(range(24))]


def test_a_sequence_becomes_the_image_it_came_from_and_so_do_its_first_rows():
    x = torch.randint(4, (5, 3, 2, 4))
    assert torch.equal(model().from_sequence(model().to_sequence(x)), x)
    assert torch.equal(model().from_sequence(model().to_sequence(x[:, :, :1])), x[:, :, :1])


def test_no_images_become_no_images():
    for model in (PixelCNN((1, 4, 4), 2, channels=8, layers=1), MultiScalePixelCNN((1, 4, 4), 2, channels=8, layers=1)):
        x = torch.zeros(0, 1, 4, 4, dtype=torch.long)
        assert model.from_sequence(model.to_sequence(x)).shape == x.shape
        assert model(x).log_prob(x).shape == x.shape


def test_conditionals_stand_where_their_elements_stand():
    shuffled = model().double()
    x = torch.randint(4, (2, 3, 2, 4))
    conditionals = shuffled(x)
    assert conditionals.batch_shape == x.shape
    stepped, state, x_prev = [], shuffled.initial_state(2), None
    for symbol in shuffled.to_sequence(x).unbind(1):
        conditional, state = shuffled.step(x_prev, state)
        stepped.append(conditional.log_prob(symbol))
        x_prev = symbol
    expected = shuffled.from_sequence(torch.stack(stepped, 1))
    torch.testing.assert_close(conditionals.log_prob(x), expected, rtol=0, atol=1e-12)


def test_levels_are_spread_from_minus_one_to_one():
    like = torch.zeros(1)
    assert model(levels=5)._scaled(torch.arange(5), like).tolist() == [-1, -0.5, 0, 0.5, 1]


@pytest.mark.parametrize("kind", [PixelCNN, GatedPixelCNN])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"image_shape": (28, 28)}, r"image_shape: expected \(C, H, W\), each at least 1, got \(28, 28\)"),
        ({"image_shape": (1, 0, 3)}, "image_shape"),
        ({"levels": 1}, "levels: expected at least 2 values"),
        ({"channels": 4}, "channels: expected at least 6"),
        ({"layers": 0}, "layers: expected an integer >= 1, got 0"),
        ({"kernel_size": 2}, "kernel_size: expected an odd number of pixels, at least 3, got 2"),
        ({"first_kernel_size": 1}, "first_kernel_size: expected an odd number of pixels, at least 3, got 1"),
        ({"dropout": 1.0}, "dropout"),
        ({"num_classes": 0}, "num_classes: expected an integer >= 1"),
    ],
)
def test_wrong_sizes_are_named(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**{"image_shape": (3, 4, 4), "channels": 6, "layers": 1, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: PixelCNN((1, 4, 4), channels=5), "channels: expected an even number"),
        (
            lambda: model()(torch.zeros(2, 3, 4, 2).long()),
            r"x: expected images of shape \(B, 3, 2, 4\), got \(2, 3, 4, 2\)",
        ),
        (lambda: model()(torch.zeros(2, 24).long()), "x: expected images of shape"),
        (lambda: model()(torch.zeros(2, 3, 2, 4)), r"x: expected integers in \[0, 4\), got torch.float32: quantise"),
        (lambda: model().from_sequence(torch.zeros(1, 13)), r"sequence: expected .* a multiple of 12"),
        (lambda: model().to_sequence(torch.zeros(1, 3, 3, 4)), "x: expected images of shape"),
        (lambda: model().sample(1, torch.zeros(1).long()), "context: this model has no labels"),
    ],
)
def test_what_is_no_batch_of_images_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("label", "message"),
    [
        (None, "context: expected 2 labels, integers of shape .* got None"),
        (torch.zeros(2), "got shape .2,. of torch.float32"),
        (torch.zeros(3).long(), "got shape .3,."),
        (torch.tensor([0, 10]), r"context: expected labels in \[0, 10\), got 0 to 10"),
    ],
)
def test_labels_are_checked(label, message):
    labelled = model(num_classes=10)
    with pytest.raises(ValueError, match=message):
        labelled(torch.zeros(2, 3, 2, 4).long(), label)
    with pytest.raises(ValueError, match=message):
        labelled.initial_state(2, label)


@pytest.mark.parametrize("value", [-1, 4])
def test_pixels_out_of_range_are_refused_before_they_are_read(value):
    x = torch.zeros(2, 3, 2, 4, dtype=torch.long).index_fill(0, torch.tensor(1), value)
    with pytest.raises(ValueError, match=rf"x: expected integers in \[0, 4\), got {value}: quantise the images"):
        model()(x)
    assert model(levels=256)(torch.full((2, 3, 2, 4), 255, dtype=torch.uint8)).batch_shape == x.shape

"""PixelRNN behind the contract: one kind with a declared blind region, one that sees everything."""

import pytest
import torch

from chainrule.models import PixelRNN

KINDS = pytest.mark.parametrize("kind", ["row", "diagonal"])


def made(kind, **options):
    usual = {"image_shape": (1, 3, 4), "levels": 2, "channels": 8, "layers": 2, "first_kernel_size": 3}
    return PixelRNN(kind=kind, **{**usual, **options})


def test_rows_leave_what_stands_beside_the_triangle_unseen():
    model = made("row", image_shape=(1, 4, 8), layers=1)
    seen = model.visible_past(32)[3 * 8 + 2].view(4, 8)  # of the pixel in row 3, column 2
    assert seen.int().tolist() == [
        [1, 1, 1, 1, 1, 1, 0, 0],
        [1, 1, 1, 1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0, 0, 0],
    ]


@pytest.mark.parametrize("shape", [(1, 3, 9), (3, 2, 6), (1, 5, 1)])
def test_diagonals_see_everything_past(shape):
    model = made("diagonal", image_shape=shape, layers=1)
    time = model.sequence_length
    assert torch.equal(model.visible_past(time), torch.ones(time, time, dtype=torch.bool).tril(-1))


def test_without_the_image_the_stream_from_the_right_misses_the_last_pixel_of_the_row_above(monkeypatch):
    narrow = PixelRNN.narrow

    def without_the_image(self):
        other = narrow(self)
        other.layers[0].image_right = None
        return other

    monkeypatch.setattr(PixelRNN, "narrow", without_the_image)
    model = made("diagonal", image_shape=(1, 3, 6), layers=2)
    missed = ~model.visible_past(18) & torch.ones(18, 18, dtype=torch.bool).tril(-1)
    assert missed.nonzero().tolist() == [[t, s] for t, s in ((6, 5), (7, 5), (8, 5), (9, 5))] + [
        [t, s] for t, s in ((12, 11), (13, 11), (14, 11), (15, 11))
    ]


@KINDS
def test_it_trains_under_bfloat16(kind):
    model, x = made(kind, num_classes=2), torch.randint(2, (4, 1, 3, 4))
    with torch.autocast("cpu", torch.bfloat16):
        loss = -model.log_prob(x, torch.tensor([0, 1, 1, 0])).mean()
    loss.backward()
    assert all(parameter.grad is not None and parameter.grad.isfinite().all() for parameter in model.parameters())
    with torch.no_grad():
        exact = -model.log_prob(x, torch.tensor([0, 1, 1, 0])).mean()
    torch.testing.assert_close(loss, exact, rtol=0.02, atol=0)  # three digits of bfloat16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "column"}, "kind: expected 'row'"),
        ({"kind": "row", "channels": 7}, "channels: expected an even number"),
        ({"kind": "row", "image_shape": (3, 2, 2), "channels": 4}, "channels: expected at least 6"),
        ({"kind": "diagonal", "layers": 0}, "layers: expected an integer >= 1"),
        ({"kind": "diagonal", "dropout": 1.0}, "dropout: expected a number in"),
    ],
)
def test_sizes_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        made(**options)

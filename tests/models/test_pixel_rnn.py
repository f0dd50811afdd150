"""PixelRNN behind the contract: one kind with a declared blind region, one that sees everything."""

import pytest
import torch

from chainrule.kernels._raster_bodies import RasterDiagonalLSTM, RasterRowLSTM
from chainrule.kernels._raster_convolutions import RasterMemory
from chainrule.layers import _lattice_lstm as diagonal_lstm
from chainrule.models import PixelRNN
from chainrule.testing import check_causality, check_step_equals_forward

KINDS = pytest.mark.parametrize("kind", ["row", "diagonal"])


def made(kind, **options):
    usual = {"image_shape": (1, 3, 4), "levels": 2, "channels": 8, "layers": 2, "first_kernel_size": 3}
    return PixelRNN(kind=kind, **{**usual, **options})


def lively(kind, **options):
    """In float64, with conditionals that depend strongly on what was read."""
    model = made(kind, **options).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


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


def test_a_stream_from_the_right_that_is_not_shifted_breaks_causality(monkeypatch):
    model, x = made("diagonal"), torch.randint(2, (2, 1, 3, 4))
    assert check_causality(model, x).ok
    monkeypatch.setattr(diagonal_lstm, "shifted_down", lambda above, rows: rows)
    assert not check_causality(model, x).ok


BROKEN = {
    "row": [(RasterRowLSTM, "hidden"), (RasterRowLSTM, "cells")],
    "diagonal": [(RasterDiagonalLSTM, "left"), (RasterDiagonalLSTM, "right")],
}


@KINDS
@pytest.mark.kernel
def test_a_row_above_that_is_off_by_one_breaks_step(kind, monkeypatch):
    x = torch.randint(2, (2, 1, 3, 4))
    for network, name in BROKEN[kind]:
        end_row = network.end_row
        with monkeypatch.context() as patch:

            def moved(self, above, row, end_row=end_row, name=name):
                following = end_row(self, above, row)
                return {**following, name: following[name].roll(1, 3)}

            patch.setattr(network, "end_row", moved)
            assert not check_step_equals_forward(lively(kind), x).ok


@pytest.mark.kernel
def test_a_pixel_to_the_left_that_is_forgotten_breaks_step(monkeypatch):
    right = RasterMemory.see

    def late(self, seen, features, *, whole_row=False):
        return right(self, seen, [torch.zeros_like(part) for part in features], whole_row=whole_row)

    x = torch.randint(2, (2, 1, 3, 4))
    assert check_step_equals_forward(lively("diagonal"), x).ok
    monkeypatch.setattr(RasterMemory, "see", late)
    assert not check_step_equals_forward(lively("diagonal"), x).ok


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

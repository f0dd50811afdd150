"""PixelRNN behind the contract: one kind with a declared blind region, one that sees everything."""

import pytest
import torch

from chainrule.heads import Categorical
from chainrule.kernels._raster_bodies import RasterDiagonalLSTM, RasterRowLSTM
from chainrule.kernels._raster_convolutions import RasterMemory
from chainrule.layers import _lattice_lstm as diagonal_lstm
from chainrule.models import PixelRNN
from chainrule.testing import check_causality, check_full_context, check_model, check_step_equals_forward

KINDS = pytest.mark.parametrize("kind", ["row", "diagonal"])
VARIANTS = {
    "one channel": {"image_shape": (1, 3, 3)},
    "one channel, labels": {"image_shape": (1, 2, 4), "channels": 6, "num_classes": 3},
    "RGB, uneven groups": {"image_shape": (3, 2, 2), "channels": 8},
    "RGB, labels, dropout": {"image_shape": (3, 2, 2), "channels": 6, "num_classes": 2, "dropout": 0.3},
}


def made(kind, **options):
    usual = {"image_shape": (1, 3, 4), "levels": 2, "channels": 8, "layers": 2, "first_kernel_size": 3}
    return PixelRNN(kind=kind, **{**usual, **options})


def lively(kind, **options):
    """In float64, with conditionals that depend strongly on what was read."""
    model = made(kind, **options).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("variant", VARIANTS)
def test_keeps_the_contract(kind, variant):
    model = made(kind, **VARIANTS[variant])
    x = torch.randint(model.levels, (3, *model.image_shape))
    labels = None if model.num_classes is None else torch.arange(3) % model.num_classes
    report = check_model(model, x, labels)
    assert report.ok, str(report)


def recomputed(model, n, labels, generator, prefix=None):
    """`sample` by one whole pass over the image for each element."""
    x = torch.zeros(n, model.sequence_length, dtype=torch.long)
    start = 0 if prefix is None else prefix.shape[1]
    x[:, :start] = 0 if prefix is None else prefix
    for t in range(start, model.sequence_length):
        logits = model(model.from_sequence(x), labels).logits
        rows = torch.stack([model.to_sequence(scores) for scores in logits.unbind(-1)], -1)
        x[:, t] = Categorical(rows[:, t]).sample(generator=generator)
    return model.from_sequence(x)


@KINDS
@pytest.mark.parametrize(("shape", "levels"), [((1, 5, 4), 2), ((3, 3, 3), 5)])
def test_a_sample_is_value_for_value_the_one_of_full_recomputation(kind, shape, levels):
    model, labels = lively(kind, image_shape=shape, levels=levels, num_classes=3), torch.tensor([0, 2, 1, 1])
    x = model.sample(4, labels, generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        assert torch.equal(x, recomputed(model, 4, labels, torch.Generator().manual_seed(7)))
    assert len(x.unique()) == levels


@KINDS
def test_a_completion_is_value_for_value_the_one_of_full_recomputation(kind):
    model, x = lively(kind, image_shape=(3, 3, 3), levels=5), torch.randint(5, (4, 3, 3, 3))
    for known in (1, 9, 14, 18, 26):
        prefix = model.to_sequence(x)[:, :known]
        completed = model.sample(4, prefix=prefix, generator=torch.Generator().manual_seed(7))
        with torch.no_grad():
            assert torch.equal(completed, recomputed(model, 4, None, torch.Generator().manual_seed(7), prefix))


def dependence(model):
    """(T, T) booleans: which elements change which conditionals, over several draws of the weights."""
    seen = torch.zeros(model.sequence_length, model.sequence_length, dtype=torch.bool)
    for _ in range(5):
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=max(parameter[0].numel(), 1) ** -0.5)
        x = torch.rand(1, *model.image_shape, dtype=torch.float64) * 2 - 1

        def scores(x):
            return model.rows(x, model.blank_rows(1), None)[0].unflatten(1, (model.image_shape[0], -1))[0]

        jacobian = torch.autograd.functional.jacobian(scores, x).abs().sum(1)[:, :, :, 0]  # (C, H, W, C, H, W)
        seen |= jacobian.permute(1, 2, 0, 4, 5, 3).reshape(seen.shape) > 0
    return seen


@KINDS
@pytest.mark.parametrize("shape", [(1, 4, 6), (3, 2, 4)])
def test_what_it_declares_to_see_is_what_gradients_see(kind, shape):
    model = made(kind, image_shape=shape, channels=12).double()
    assert torch.equal(dependence(model), model.visible_past(model.sequence_length))


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
def test_an_undeclared_blind_region_is_found(kind):
    class Silent(PixelRNN):
        def visible_past(self, length):
            return torch.ones(length, length, dtype=torch.bool).tril(-1)

    model = Silent((1, 2, 5), 2, kind, channels=8, layers=1, first_kernel_size=3)
    assert check_full_context(model, torch.randint(2, (2, 1, 2, 5))).ok == (kind == "diagonal")


@KINDS
def test_type_b_first_breaks_causality(kind):
    model = made(kind)
    model.first.mask[:, :, 1, 1] = True
    assert not check_causality(model, torch.randint(2, (2, 1, 3, 4))).ok


def test_a_stream_from_the_right_that_is_not_shifted_breaks_causality(monkeypatch):
    model, x = made("diagonal"), torch.randint(2, (2, 1, 3, 4))
    assert check_causality(model, x).ok
    monkeypatch.setattr(diagonal_lstm, "shifted_down", lambda above, rows: rows)
    assert not check_causality(model, x).ok


@KINDS
def test_colours_in_the_wrong_order_break_causality(kind):
    model = made(kind, image_shape=(3, 2, 2), channels=12)
    for module in model.modules():
        if hasattr(module, "mask"):
            centre = module.mask[:, :, module.mask.shape[2] // 2, module.mask.shape[3] // 2]
            for part in centre.chunk(module.parts):
                part.copy_(part.flip(0, 1))
    assert not check_causality(model, torch.randint(2, (2, 3, 2, 2))).ok


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
def test_dropout_is_for_training_and_never_for_sampling(kind):
    model = made(kind, dropout=0.5)
    drawn = [model.train(mode).sample(3, generator=torch.Generator().manual_seed(1)) for mode in (False, True)]
    assert torch.equal(*drawn)
    assert not torch.equal(model.log_prob(drawn[0]), model.log_prob(drawn[0]))


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

"""Residual streams through several resolutions: in any chunks of rows, and pixel by pixel."""

import pytest
import torch
from light import gradient_reach, positive_reach

from chainrule.kernels._mixture_scan import PyramidScan
from chainrule.layers._gated_pyramid import GatedPyramid, GatedResidualBlock, ShiftedConv2d
from chainrule.layers._pointwise import concatenated_elu

SIZES = [(1, 4, 4), (2, 4, 6), (2, 5, 3), (3, 8, 4), (3, 7, 5), (3, 5, 9)]  # resolutions, H, W


def pyramid(resolutions=2, layers=1, **options):
    made = GatedPyramid(4, layers, resolutions, **{"reads_right": False, **options}).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5 if parameter.dim() < 2 else 1.5 * parameter[0].numel() ** -0.5)
    return made


def image(height, width, batch=2):
    return torch.randn(batch, 4, height, width, dtype=torch.float64)


def whole(made, x, label=None, neighbour=None):
    return made.rows(x, made.blank_rows(x[:, :, :1]), label, neighbour)


def test_a_block_is_that_of_the_equation():
    block = GatedResidualBlock(4, reads_right=True, neighbour=True, shortcut=True, num_classes=3).double()
    torch.nn.init.normal_(block.first.bias)
    x, neighbour, shortcut = image(3, 5), image(3, 5), image(3, 5)
    f = concatenated_elu
    c = block.first(f(x)) + block.neighbour(f(neighbour)) + block.shortcut(f(shortcut))
    a = block.second(f(c)) + block.label_bias(torch.tensor([2, 0])).view(2, -1, 1, 1)
    expected = x + a[:, :4] * torch.sigmoid(a[:, 4:])
    got, _ = block(x, None, torch.tensor([2, 0]), neighbour, shortcut)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)


def test_dropout_zeroes_where_it_is_asked_for():
    block, x = GatedResidualBlock(4, reads_right=True), image(3, 5).float()
    assert not torch.equal(block(x, dropout=0.5)[0], block(x)[0])
    assert torch.equal(block(x)[0], block(x)[0])


@pytest.mark.parametrize(("resolutions", "height", "width"), SIZES)
@pytest.mark.parametrize("sizes", [[1], [2, 1], [3], [1, 4, 2]])
def test_rows_may_come_in_chunks_of_any_size(resolutions, height, width, sizes):
    made, x = pyramid(resolutions), image(height, width)
    above, parts, start = made.blank_rows(x[:, :, :1]), [], 0
    while start < height:
        count = sizes[len(parts) % len(sizes)]
        part, _, above = made.rows(x[:, :, start : start + count], above)
        parts.append(part)
        start += count
    torch.testing.assert_close(torch.cat(parts, 2), whole(made, x)[0], rtol=0, atol=1e-11)


@pytest.mark.parametrize(("resolutions", "height", "width"), SIZES)
@pytest.mark.parametrize("reads_right", [True, False])
def test_gradients_are_where_positive_weights_let_light_through(resolutions, height, width, reads_right):
    made = pyramid(resolutions, reads_right=reads_right)
    expected = gradient_reach(lambda x: whole(made, x)[0], 4, height, width, 1)
    got = positive_reach(made, 4, height, width, 1, lambda made, x: whole(made, x)[0])
    assert torch.equal(got, expected)


def reads_only_what_is_known(made, height, width):
    """Whether no output depends on pixels below it, or on pixels to its right unless that is allowed."""
    reach = gradient_reach(lambda x: whole(made, x)[0], 4, height, width, 1).view(height, width, height, width)
    rows = torch.arange(height).view(-1, 1, 1, 1) >= torch.arange(height).view(1, 1, -1, 1)
    columns = torch.arange(width).view(1, -1, 1, 1) >= torch.arange(width)
    return not (reach & ~(rows & (columns | made.down_blocks[0].first.reads_right))).any()


@pytest.mark.parametrize("reads_right", [True, False])
def test_no_resolution_looks_ahead(reads_right):
    assert reads_only_what_is_known(pyramid(3, reads_right=reads_right), 8, 6)


@pytest.mark.parametrize("reads_right", [True, False])
def test_an_unshifted_downsampling_looks_ahead(reads_right, monkeypatch):
    class Unshifted(ShiftedConv2d):
        def forward(self, x, *, with_above=False):
            rows = x[:, :, 1:] if with_above else x
            return super().forward(torch.cat([rows, rows[:, :, -1:]], 2), with_above=True)  # rows 2I and 2I + 1

    made = pyramid(2, reads_right=reads_right)
    made.shrink.__class__ = Unshifted
    monkeypatch.setattr(GatedPyramid, "_through_coarser", whole_image_through_coarser)
    assert not reads_only_what_is_known(made, 6, 4)
    made.shrink.__class__ = ShiftedConv2d
    assert reads_only_what_is_known(made, 6, 4)


def whole_image_through_coarser(self, coarser, x, above, label, neighbour, dropout):
    """As in `GatedPyramid`, for a whole image of an even height."""
    coarse = self.shrink(x)
    y, found, after = coarser.rows(coarse, above["coarser"], label, neighbour)
    return self.grow(y, x.shape[3]), found, {"coarser": after}


def visited(made, scan, x, found_rows, label):
    """The features of x (B, M, H, W), one pixel at a time."""
    above, out = made.blank_rows(x[:, :, :1]), torch.zeros_like(x)
    for i in range(x.shape[2]):
        row = scan.begin_row(above, found_rows[i], label)
        for j in range(x.shape[3]):
            out[:, :, i, j], row = scan.pixel(j, x[:, :, i, j], row)
        above = scan.end_row(above, row)
    return out


def two_streams(resolutions, height, width, **options):
    """A horizontal pyramid, x, labels, its features, and row by row what the vertical one found."""
    vertical, made = pyramid(resolutions, reads_right=True, **options), pyramid(resolutions, neighbour=True, **options)
    label = torch.tensor([0, 2]) if options.get("num_classes") else None
    v, x = image(height, width), image(height, width)
    expected = whole(made, x, label, whole(vertical, v, label)[1])[0]
    above, rows = vertical.blank_rows(v[:, :, :1]), []
    for i in range(height):
        _, found, above = vertical.rows(v[:, :, i : i + 1], above, label)
        rows.append(found)
    return made, x, rows, label, expected


@pytest.mark.parametrize(("resolutions", "height", "width"), SIZES)
@pytest.mark.parametrize("options", [{}, {"layers": 2, "num_classes": 3}])
@torch.no_grad()
def test_pixels_are_what_one_pass_gives(resolutions, height, width, options):
    made, x, rows, label, expected = two_streams(resolutions, height, width, **options)
    got = visited(made, PyramidScan(made, concatenated_elu), x, rows, label)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-11)  # the same sums in another order


@torch.no_grad()
def test_a_cache_that_is_off_by_one_is_seen_by_this_test():
    class Late(PyramidScan):
        """Gives the coarse features of the first column of two to the second, and the other way round."""

        def pixel(self, column, h, row):
            return super().pixel(column, h, {**row, "kept": row["kept"].roll(1, 3)} if "kept" in row else row)

    class Forgetful(PyramidScan):
        """Loses the pixel to the left."""

        def pixel(self, column, h, row):
            return super().pixel(column, h, {**row, "again": [*row["again"][:-1], row["again"][0]]})

    class High(PyramidScan):
        """Forgets the odd rows that a coarse one reads."""

        def end_row(self, above, row):
            after = super().end_row(above, row)
            return {**after, "shrink": after["shrink"] * 0} if "shrink" in after else after

    made, x, rows, label, expected = two_streams(2, 5, 4)
    for broken in (Late, Forgetful, High):
        assert not torch.allclose(visited(made, broken(made, concatenated_elu), x, rows, label), expected)

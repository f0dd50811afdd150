"""Element by element, masked convolutions give what they give in one pass."""

import pytest
import torch

from chainrule.kernels._raster_convolutions import RasterConvolutions, RasterMemory
from chainrule.layers import MaskedConv2d

KINDS = {
    "3×3, one group": ((4, 4, 3, "B", 1), {}),
    "5×5, uneven groups": ((7, 8, 5, "B", 3), {}),
    "1×3, gates": ((7, 10, (1, 3), "B", 2), {"parts": 2, "bias": False}),
    "7×7, first": ((3, 7, 7, "A", 3), {}),
    "1×1, uneven groups": ((7, 5, 1, "B", 3), {}),
    "1×1, one group": ((3, 2, 1, "B", 1), {}),
}


def visited(layers, x, raster):
    """(B, L, out, H, W) the outputs for x (B, L, in, H, W), one element at a time."""
    batch, count, _, height, width = x.shape
    groups = layers[0].groups_of_channels()[1]
    above = x.new_zeros(batch, count * x.shape[2], raster.rows_above, width)
    out = x.new_zeros(batch, count, len(raster.order), height, width)
    for i in range(height):
        from_above = raster.from_above(above) if raster.rows_above else None
        seen = raster.begin_row(x)
        for j in range(width):
            parts = []
            for group in range(raster.groups):
                known = raster.known(group, seen, from_above, j)
                own = x[:, :, groups == group, i, j].unbind(1)
                if layers[0].mask_type == "A":
                    parts.append(torch.stack(list(known), 1).expand(batch, -1, -1))
                else:
                    finished = [torch.addmm(known[n], own[n], raster.own[group][n]) for n in range(count)]
                    parts.append(torch.stack(finished, 1))
                seen = raster.see(seen, own, whole_row=bool(raster.rows_above))
            out[:, :, raster.order, i, j] = torch.cat(parts, 2)
        if raster.rows_above:
            above = torch.cat([above, raster.row(seen, width)], 2)[:, :, 1:]
    return out


def layers_and_input(kind):
    arguments, options = KINDS[kind]
    layers = [MaskedConv2d(*arguments, **options).double() for _ in range(3)]
    for layer in layers:
        if layer.bias is not None:
            layer.bias.data.normal_()
    return layers, torch.randn(2, 3, arguments[0], 4, 5, dtype=torch.float64)


@pytest.mark.parametrize("kind", KINDS)
def test_elements_are_what_one_pass_gives(kind):
    layers, x = layers_and_input(kind)
    expected = torch.stack([layer(x[:, index]) for index, layer in enumerate(layers)], 1)
    got = visited(layers, x, RasterConvolutions(layers))
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)  # the same sums in another order


@pytest.mark.parametrize("kind", ["3×3, one group", "7×7, first"])
def test_a_cache_that_is_off_by_one_is_seen_by_this_test(kind):
    class Late(RasterConvolutions):
        """Forgets the latest element."""

        def known(self, group, seen, from_above=None, column=0):
            return super().known(group, [torch.zeros_like(seen[0]), *seen[:-1]], from_above, column)

    class High(RasterConvolutions):
        """Reads the row above one column too far to the left."""

        def from_above(self, rows):
            return super().from_above(rows.roll(1, -1))

    layers, x = layers_and_input(kind)
    expected = torch.stack([layer(x[:, index]) for index, layer in enumerate(layers)], 1)
    for broken in (Late, High):
        assert not torch.allclose(visited(layers, x, broken(layers)), expected)


def test_nothing_is_kept_that_no_later_element_reads():
    layers, x = layers_and_input("1×3, gates")
    raster = RasterConvolutions(layers)
    seen, sizes = raster.begin_row(x), []
    for group in (0, 1) * 4:
        seen = raster.see(seen, x[:, :, [4, 3][group] :, 0, 0].unbind(1))
        sizes.append(len(seen))
    assert max(sizes) == 3  # the pixel to the left, and the first group of the present one
    narrow = RasterConvolutions(layers_and_input("1×1, one group")[0])
    assert narrow.see(narrow.begin_row(x), x[:, :, :3, 0, 0].unbind(1)) == []


def test_it_keeps_entry_for_entry_what_convolutions_of_its_reach_keep():
    convolutions = RasterConvolutions([MaskedConv2d(5, 4, (1, 3), "B", 2) for _ in range(3)])
    memory, x = RasterMemory(3, [3, 2], left=1), torch.randn(2, 3, 8, 3)
    for whole_row in (False, True):
        kept = [part.begin_row(x) for part in (convolutions, memory)]
        for element in range(8):
            features = x[:, :, element, : 3 - element % 2].unbind(1)
            pairs = zip((convolutions, memory), kept, strict=True)
            kept = [part.see(seen, features, whole_row=whole_row) for part, seen in pairs]
            assert len(kept[0]) == len(kept[1])
            assert all(torch.equal(a, b) for a, b in zip(*kept, strict=True))
    assert memory.count(kept[1]) == convolutions.count(kept[0]) == 8
    assert torch.equal(memory.row(kept[1], 4), convolutions.row(kept[0], 4))

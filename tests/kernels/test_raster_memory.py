"""A memory keeps what the convolutions of an image keep."""

import torch

from chainrule.kernels._raster_convolutions import RasterConvolutions, RasterMemory
from chainrule.layers import MaskedConv2d


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

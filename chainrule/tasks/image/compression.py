"""An array of pictures in a file as levels of a model, and back, byte for byte."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.coding.batches import Laid, lay_rows
from chainrule.data.images.reduction import Reduction
from chainrule.data.images.stacked import picture_layout, read_header
from chainrule.tasks.abilities import Expressed, FileCodec

ELEMENTS = 1 << 18  # of pictures that are coded side by side


class ImageCodec(FileCodec):
    """Arrays of NumPy (.npy) and idx files as MNIST comes in, not compressed, of one byte a channel.

    Args:
        shape: (C, H, W) of the model's pictures.
        reduction: from stored values to the model's levels: of fewer bits, it loses some; a model of binarised pictures
            writes those that are binary already.
        labelled: whether the model reads a label with each picture.
    """

    def __init__(self, shape: tuple[int, int, int], reduction: Reduction, *, labelled: bool):
        self.shape, self.reduction, self.labelled = shape, reduction, labelled

    def express(self, data: bytes) -> Expressed:
        if self.labelled:
            raise ValueError("the model reads labels, which the file does not hold")
        if self.reduction.levels != self.reduction.found and self.reduction.binarise is None:
            raise ValueError(f"the model knows pictures reduced to {self.reduction.levels} levels")
        start, sizes = _header(data)
        found = picture_layout(sizes)
        if found is None or found[0] != self.shape:
            raise ValueError(f"expected pictures of {_size(self.shape)}, got an array of shape {sizes}")
        pixels = np.frombuffer(data, np.uint8, offset=start)
        if len(pixels) != np.prod(sizes) or pixels.max(initial=0) >= self.reduction.levels:
            raise ValueError(f"expected whole pictures of levels below {self.reduction.levels}")
        x = torch.from_numpy(pixels.reshape(-1, *self._stored(last=found[1])).astype(np.int64))
        layout: dict[str, Any] = {"count": len(x), "last": found[1]}
        x = x.permute(0, 3, 1, 2) if found[1] else x
        return Expressed(layout, data[:start], self._laid(layout, x), len(pixels), "dimension")

    def lay_out(self, layout: dict[str, Any]) -> Laid:
        return self._laid(layout, None)

    def _laid(self, layout: dict[str, Any], x: Tensor | None) -> Laid:
        size = int(np.prod(self.shape))
        return lay_rows(layout["count"], size, x, most=min(max(ELEMENTS // size, 16), 512))

    def restore(self, layout: dict[str, Any], side: bytes | None, elements: Sequence[Tensor], lost: set[int]) -> bytes:
        """The file; lost pictures are black, and the header of the file is left out if it is lost."""
        x = torch.cat(list(elements))
        for row in lost:
            x[row :: len(elements[0])] = 0
        x = x[: layout["count"]]
        x = x.permute(0, 2, 3, 1) if layout["last"] else x
        return (side or b"") + x.contiguous().numpy().astype(np.uint8).tobytes()

    def _stored(self, *, last: bool) -> tuple[int, int, int]:
        channels, height, width = self.shape
        return (height, width, channels) if last else self.shape


def _header(data: bytes) -> tuple[int, tuple[int, ...]]:
    """Where the numbers begin, and the shape of the array."""
    if data.startswith(b"\x93NUMPY"):
        file = BytesIO(data)
        shape, fortran, dtype = read_header(file)
        if fortran or dtype.itemsize != 1 or dtype.kind not in "ub":
            raise ValueError(f"expected an array of bytes (uint8) in C order, got {dtype}")
        return file.tell(), shape
    if len(data) >= 4 and data[:3] == b"\0\0\x08" and 1 <= data[3] <= 4:
        start = 4 + 4 * data[3]
        return start, tuple(int(size) for size in np.frombuffer(data[4:start], ">u4"))
    raise ValueError("expected an array of NumPy (.npy) or an idx file, not compressed")


def _size(shape: tuple[int, int, int]) -> str:
    channels, height, width = shape
    return f"{height} x {width}" + (f" in {channels} channels" if channels > 1 else "")

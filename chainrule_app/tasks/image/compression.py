"""Images as levels of a model, and back: an array byte for byte, an image file pixel for pixel."""

import zlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
import torch
from PIL import ExifTags, Image
from torch import Tensor

from chainrule.coding import RowLayout
from chainrule_app.readers.images.source import Pixels, Reduction, png
from chainrule_app.readers.images.stacked import image_layout, read_header
from chainrule_app.tasks.capabilities import EncodedFile, FileCodec

_NOTE = "decompression restores the pixels as a PNG file, whose bytes may differ"
ELEMENTS = 1 << 18  # of images that are coded side by side


class ImageCodec(FileCodec):
    """Codec of uncompressed .npy and idx files of bytes, exact, and of an image file, which comes back as PNG with
    equal pixels."""

    def __init__(self, shape: tuple[int, int, int], reduction: Reduction, *, labelled: bool):
        self.shape, self.reduction, self.labelled = shape, reduction, labelled

    def express(self, data: bytes) -> EncodedFile:
        if self.labelled:
            raise ValueError("the model reads labels, which the file does not hold")
        if self.reduction.levels != self.reduction.found and self.reduction.binarise is None:
            raise ValueError(f"the model was trained on images reduced to {self.reduction.levels} levels")
        if not _is_image(data):
            return self._of_array(data)
        x = self._levels(data)[None]
        rows = self.lay_out({"count": 1}, torch.from_numpy(x.astype(np.int64)))
        return EncodedFile({"count": 1, "last": False, "png": True}, b"", rows, x.size, "dimension", x.tobytes(), _NOTE)

    def _of_array(self, data: bytes) -> EncodedFile:
        start, sizes = _header(data)
        array_layout = image_layout(sizes)
        if array_layout is None or array_layout[0] != self.shape:
            raise ValueError(f"expected images of {_size(self.shape)}, got an array of shape {sizes}")
        pixels = np.frombuffer(data, np.uint8, offset=start)
        if not len(pixels) or len(pixels) != np.prod(sizes) or pixels.max(initial=0) >= self.reduction.levels:
            raise ValueError(f"expected whole images of levels below {self.reduction.levels}")
        channels, *sides = self.shape
        last = array_layout[1]
        x = torch.from_numpy(pixels.reshape(-1, *((*sides, channels) if last else self.shape)).astype(np.int64))
        layout: dict[str, Any] = {"count": len(x), "last": last}
        x = x.permute(0, 3, 1, 2) if last else x
        return EncodedFile(layout, zlib.compress(data[:start], 9), self.lay_out(layout, x), len(pixels), "dimension")

    def lay_out(self, layout: dict[str, Any], elements: Tensor | None = None) -> RowLayout:
        size = int(np.prod(self.shape))
        return RowLayout.of(layout["count"], size, elements, most=min(max(ELEMENTS // size, 16), 512))

    def restore(self, layout: dict[str, Any], side: bytes, elements: Sequence[Tensor], most: int) -> bytes:
        x = torch.cat(list(elements))[: layout["count"]]
        x = x.permute(0, 2, 3, 1) if layout["last"] else x
        head = zlib.decompressobj().decompress(side, most) if side else b""
        return head + x.contiguous().numpy().astype(np.uint8).tobytes()

    def finish(self, layout: dict[str, Any], data: bytes) -> bytes:
        """Write an image file as PNG."""
        if "png" not in layout:
            return data
        x = np.frombuffer(data, np.uint8).reshape(self.shape)
        return png(x[0] if len(x) == 1 else x.transpose(1, 2, 0))

    def _levels(self, content: bytes) -> Pixels:
        """Read an image file of the run's shape and levels, (C, H, W)."""
        pixels = np.atleast_3d(_pixels(content)).transpose(2, 0, 1)
        if pixels.shape != self.shape or pixels.max(initial=0) >= self.reduction.levels:
            raise ValueError(f"expected images of {_size(self.shape)}, of levels below {self.reduction.levels}")
        return pixels


def _header(data: bytes) -> tuple[int, tuple[int, ...]]:
    """Return the offset of the numbers, and the shape of the array."""
    file = BytesIO(data)
    try:
        shape, dtype, by_columns = read_header(file)
    except ValueError:
        raise ValueError("expected an array of NumPy (.npy) or an idx file, not compressed") from None
    if by_columns or dtype.itemsize != 1 or dtype.kind not in "ub":
        raise ValueError(f"expected an array of bytes (uint8) in C order, got {dtype}")
    return file.tell(), shape


def _is_image(content: bytes) -> bool:
    return content.startswith((b"\x89PNG", b"BM", b"\xff\xd8", b"GIF8", b"RIFF", b"II*\0", b"MM\0*"))


def _pixels(content: bytes) -> Pixels:
    """Read the pixels of a lossless file with nothing else to show: (H, W) or (H, W, 3)."""
    try:
        with Image.open(BytesIO(content), formats=("PNG", "BMP", "PPM", "TIFF")) as image:
            pixels = np.asarray(image)
            mode, several = image.mode, getattr(image, "n_frames", 1) > 1
            more = "transparency" in image.info or image.getexif().get(ExifTags.Base.Orientation, 1) != 1
    except Exception:  # which depends on how the file is damaged
        raise ValueError("expected a lossless image format: PNG, BMP, PPM or TIFF") from None
    if mode not in ("L", "RGB") or several:
        raise ValueError(f"expected 8-bit grey or RGB, got mode {mode}")
    if more:
        raise ValueError("expected images without transparency or an EXIF rotation")
    return pixels


def _size(shape: tuple[int, int, int]) -> str:
    channels, height, width = shape
    return f"{height} x {width}" + (f" in {channels} channels" if channels > 1 else "")

"""Images stored one after another in a file: arrays of NumPy, and idx files as MNIST comes in."""

import gzip
import io
import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from chainrule_app.readers.images.source import ImageSource, Pixels, found_levels
from chainrule_app.readers.origin import read_chunks
from chainrule_app.readers.sources import fingerprint

UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError, RuntimeError)  # and encrypted, unknown
_NUMPY = b"\x93NUMPY"
_LONGEST_HEADER = 10_000  # bytes of the shape and type of an .npy file, NumPy's limit too
_LARGEST_IMAGE = 1 << 28  # bytes; Pillow, too, reads no larger ones
_MOST_IMAGES = 1 << 24


class Header(NamedTuple):
    """Shape and type of a stored array, and whether its first axis varies fastest (Fortran's order)."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool


class StackedImages(ImageSource):
    """Images of an .npy, .npz or idx file (MNIST's format), read block by block; nothing in it is ever unpickled.

    Grey images (N, H, W), or (N, D) where D is a square; images with colours (N, H, W, C) or (N, C, H, W), C 1 or
    3. Numbers of any type are taken if they are whole and from 0 to 255; booleans are black and white.
    """

    def __init__(self, path: Path, array: str | None = None, black_and_white: int = 2):
        at = "" if array is None else f":{array}"
        self.path, self.name, self.label, self._array = path, path.name + at, f"{path}{at}", array
        self._black_and_white = black_and_white  # levels of booleans: 0 and the highest
        self.kind = "npz" if array else "npy" if path.name.lower().endswith(".npy") else "idx"
        with open_array(path, array) as (_, header):
            self._check(header)

    def _check(self, header: Header) -> None:
        """Take the header of an array that holds images."""
        self._header, layout = header, image_layout(header.shape)
        if len(header.shape) == 3 and header.shape[2] == 3:
            raise ValueError(
                f"{self.label}: expected a batch of images, got one colour image of shape {header.shape}: reshape it "
                f"to {(1, *header.shape)}, or to {(*header.shape, 1)} if it holds grey images of 3 columns"
            )
        if layout is None:
            raise ValueError(
                f"{self.label}: expected images (N, H, W), (N, H, W, 3) or (N, 3, H, W), got an array of shape "
                f"{header.shape}: reshape it"
            )
        if header.dtype.kind not in "uifb":
            raise ValueError(f"{self.label}: expected numbers, got {header.dtype}: store the images as uint8")
        self.shape, self._channels_last = layout
        self.count = header.shape[0]
        if not self.count:
            raise ValueError(f"{self.label}: expected at least one image, got none")
        if self.count > _MOST_IMAGES:
            raise ValueError(
                f"{self.label}: expected at most {_MOST_IMAGES:,} images, got {self.count}: split the file"
            )
        if math.prod(self.shape) * header.dtype.itemsize > _LARGEST_IMAGE:
            raise ValueError(
                f"{self.label}: expected images of at most {_LARGEST_IMAGE >> 20} MiB, got an array of shape "
                f"{header.shape} of {header.dtype}: crop or scale them"
            )

    @cached_property
    def levels(self) -> int:
        if self._header.dtype.kind == "b":
            return self._black_and_white
        return found_levels(max(int(block.max()) for block in self.blocks()))

    def fingerprint(self) -> dict[str, Any]:
        return fingerprint(self.path)

    def blocks(self) -> Iterator[Pixels]:
        done = 0
        try:
            for values in self._values(self._rows_of_a_block()):
                yield self._images(values, done)
                done += len(values)
        except _NotWholeError as error:
            raise ValueError(str(error)) from None
        except UNREADABLE as error:
            raise ValueError(f"{self.label}: cannot be read ({error}): restore it from a copy") from None

    def _values(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        """Yield the array, so many images at a time."""
        shape, dtype, by_columns = self._header
        size, done = math.prod(shape[1:]) * dtype.itemsize, 0
        with open_array(self.path, self._array) as (file, _):
            if by_columns:  # the numbers of an image are far apart: a plain file lets them be picked
                with TemporaryFile() as plain:
                    plain.writelines(read_chunks(file, self.count * size))
                    plain.flush()
                    array = np.memmap(plain, dtype, "r", shape=shape, order="F")
                    for start in range(0, self.count, rows):
                        yield np.ascontiguousarray(array[start : start + rows])
                return
            while done < self.count:
                count = min(rows, self.count - done)
                raw = read_bytes(file, count * size)
                if len(raw) < count * size:
                    raise EOFError(f"it ends within image {done + len(raw) // size} of {self.count}")
                yield np.frombuffer(raw, dtype).reshape(count, *shape[1:])
                done += count
            if self.kind == "idx" and file.read(1):
                raise EOFError(f"it holds more data after its {self.count} images")

    def _images(self, values: npt.NDArray[Any], first: int) -> Pixels:
        if values.dtype != np.uint8:
            with np.errstate(invalid="ignore"):
                whole = (values >= 0) & (values <= 255) & (values == np.floor(values))
            if not whole.all():
                at = int(np.flatnonzero(~whole.reshape(len(values), -1).all(1))[0])
                value = values[at][~whole[at]].flat[0]
                raise _NotWholeError(
                    f"{self.label}: image {first + at}: expected whole numbers from 0 to 255, got {value}: "
                    "store images as uint8, (x * 255).round() where x is from 0 to 1"
                )
            values = values.astype(np.uint8)
            if self._header.dtype.kind == "b":
                values *= np.uint8(self._black_and_white - 1)
        if self._channels_last:
            values = np.moveaxis(values, 3, 1)
        return values.reshape(len(values), *self.shape)


class _NotWholeError(Exception):
    """A value that no pixel has; raised as a ValueError outside the net for unreadable files."""


def image_layout(shape: tuple[int, ...]) -> tuple[tuple[int, int, int], bool] | None:
    """(C, H, W) of an array of images, and whether its channels come last; `None` where it can hold none.

    >>> image_layout((9, 32, 32, 3)), image_layout((9, 784)), image_layout((9,))
    (((3, 32, 32), True), ((1, 28, 28), False), None)
    """
    if any(size < 1 for size in shape[1:]):
        return None
    if len(shape) == 4 and shape[3] in (1, 3):
        return (shape[3], shape[1], shape[2]), True
    if len(shape) == 4 and shape[1] in (1, 3):
        return (shape[1], shape[2], shape[3]), False
    if len(shape) == 3:
        return (1, shape[1], shape[2]), False
    side = int(np.sqrt(shape[1])) if len(shape) == 2 else 0
    return ((1, side, side), False) if side > 1 and side * side == shape[1] else None


@contextmanager
def open_array(path: Path, array: str | None = None) -> Iterator[tuple[BinaryIO, Header]]:
    """Open an array in a file where its numbers begin; the arguments and errors match `StackedImages`."""
    with ExitStack() as stack:
        try:
            if array is not None:
                archive = stack.enter_context(zipfile.ZipFile(path))
                file = stack.enter_context(cast(BinaryIO, archive.open(f"{array}.npy")))
            else:
                zipped = path.suffix.lower() == ".gz"
                file = stack.enter_context(cast(BinaryIO, gzip.GzipFile(path)) if zipped else path.open("rb"))
            header = read_header(file)
        except UNREADABLE as error:
            raise ValueError(
                f"{path}: expected a NumPy array or an idx file of bytes ({error}): restore it from a copy"
            ) from None
        yield file, header


def read_header(file: BinaryIO) -> Header:
    """Read the header of an .npy file, or of an idx file of bytes; its numbers follow."""
    magic = file.read(8)
    if magic[:6] == _NUMPY:
        return _numpy_header(file, (magic[6], magic[7]))
    if len(magic) < 8 or magic[:3] != b"\0\0\x08" or not 1 <= magic[3] <= 4:
        raise ValueError(f"it begins with {magic.hex() or 'nothing'}, not with 00000803 or the like")
    sizes = np.frombuffer(magic[4:] + file.read(4 * (magic[3] - 1)), ">u4")
    return Header(tuple(sizes.tolist()), np.dtype(np.uint8), by_columns=False)


def _numpy_header(file: BinaryIO, version: tuple[int, int]) -> Header:
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"version {version} of the .npy format is not supported")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    packed = file.read(2 * version[0])
    size = int.from_bytes(packed, "little")
    if size > _LONGEST_HEADER:
        raise ValueError(f"a header of {size} bytes")
    try:
        shape, by_columns, dtype = read(io.BytesIO(packed + file.read(size)))
    except Exception as error:  # NumPy parses it as a Python literal: whatever tokenizer and compiler may raise
        raise ValueError(" ".join(str(error).split())) from None
    if any(type(length) is not int or length < 0 for length in shape):
        raise ValueError(f"an array of shape {shape}")
    return Header(shape, dtype, by_columns and len(shape) > 1)


def read_bytes(file: BinaryIO, size: int) -> bytes:
    """Read so many bytes, or all that are left, piece by piece: a file may announce more than it holds."""
    return b"".join(read_chunks(file, size))

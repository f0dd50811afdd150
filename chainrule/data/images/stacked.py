"""Images stored one after another in a file: arrays of NumPy, and idx files as MNIST comes in."""

import gzip
import shutil
import zipfile
import zlib
from abc import abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from chainrule.data.images.source import ImageSource, Pixels, found_levels
from chainrule.data.text import fingerprint

UNREADABLE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError)


class StackedImages(ImageSource):
    """Images of an array, read block by block; a subclass opens the file at the first number.

    Grey images (N, H, W), or (N, D) where D is a square; images with colours (N, H, W, C) or (N, C, H, W), C 1 or
    3. Numbers of any type are taken if they are whole and from 0 to 255.

    Args:
        path: the file.
        array_shape: of the array.
        dtype: of its numbers.

    Raises:
        ValueError: the array does not hold images.
    """

    def __init__(self, path: Path, name: str, label: str, array_shape: tuple[int, ...], dtype: np.dtype[Any]):
        self.path, self.name, self.label = path, name, label
        self._array_shape, self._dtype = array_shape, dtype
        layout = image_layout(array_shape)
        if layout is None:
            raise ValueError(
                f"{label}: expected images (N, H, W), (N, H, W, 3) or (N, 3, H, W), got an array of shape "
                f"{array_shape}: reshape it"
            )
        if dtype.kind not in "uifb":
            raise ValueError(f"{label}: expected numbers, got {dtype}: write the images as uint8")
        self.shape, self._channels_last = layout
        self.count = array_shape[0]
        if not self.count:
            raise ValueError(f"{label}: expected at least one image, got none")

    @abstractmethod
    def _open(self) -> BinaryIO:
        """The file, where the numbers begin."""

    @cached_property
    def levels(self) -> int:
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
        """The array, so many images at a time."""
        size, done = int(np.prod(self._array_shape[1:])) * self._dtype.itemsize, 0
        with self._open() as file:
            while done < self.count:
                count = min(rows, self.count - done)
                raw = _read(file, count * size)
                if len(raw) < count * size:
                    raise EOFError(f"it ends in image {done + len(raw) // size} of {self.count}")
                yield np.frombuffer(raw, self._dtype).reshape(count, *self._array_shape[1:])
                done += count
            if self.kind == "idx" and file.read(1):
                raise EOFError(f"it goes on after its {self.count} images")

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
        if self._channels_last:
            values = np.moveaxis(values, 3, 1)
        return values.reshape(len(values), *self.shape)


class _NotWholeError(Exception):
    """A value that no pixel has; raised as a ValueError outside the net for unreadable files."""


class NumpyImages(StackedImages):
    """Images of an array in an .npy file, or of one array of an .npz file; nothing in it is ever unpickled.

    Args:
        path: the file.
        array: the name of the array in an .npz file.
    """

    def __init__(self, path: Path, array: str | None):
        self._array = array
        self.kind = "npy" if array is None else "npz"
        at = "" if array is None else f":{array}"
        shape, dtype, self._by_columns = array_header(path, array)
        super().__init__(path, path.name + at, f"{path}{at}", shape, dtype)

    def _open(self) -> BinaryIO:
        file = open_array(self.path, self._array)
        read_header(file)
        return file

    def _values(self, rows: int) -> Iterator[npt.NDArray[Any]]:
        if not self._by_columns:
            yield from super()._values(rows)
            return
        # In Fortran's order the numbers of an image are far apart: a plain file lets them be picked.
        with TemporaryFile() as plain:
            with self._open() as file:
                shutil.copyfileobj(file, plain)
            plain.flush()
            array = np.memmap(plain, self._dtype, "r", shape=self._array_shape, order="F")
            for start in range(0, self.count, rows):
                yield np.ascontiguousarray(array[start : start + rows])


class IdxImages(StackedImages):
    """Images of an idx file (LeCun's format of MNIST), compressed by gzip or not."""

    kind = "idx"

    def __init__(self, path: Path):
        super().__init__(path, path.name, str(path), idx_shape(path), np.dtype(np.uint8))

    def _open(self) -> BinaryIO:
        file = open_plain_or_gzip(self.path)
        file.read(4 + 4 * len(self._array_shape))
        return file


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


def array_header(path: Path, array: str | None) -> tuple[tuple[int, ...], np.dtype[Any], bool]:
    """Shape and type of an array in a file, and whether it is in Fortran's order, without reading its numbers."""
    try:
        with open_array(path, array) as file:
            shape, fortran, dtype = read_header(file)
    except UNREADABLE as error:
        raise ValueError(f"{path}: no array of NumPy, or damaged ({error}): restore it from a copy") from None
    return shape, dtype, fortran and len(shape) > 1


def read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of an .npy file; what follows are its numbers."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"format {version} of .npy is not read")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return read(file)


def open_array(path: Path, array: str | None) -> BinaryIO:
    """An .npy file, or one in an .npz file."""
    if array is None:
        return path.open("rb")
    with zipfile.ZipFile(path) as archive:  # its file stays open until its member is closed
        return cast(BinaryIO, archive.open(f"{array}.npy"))


def open_plain_or_gzip(path: Path) -> BinaryIO:
    """A file, decompressed where its name ends in .gz."""
    return cast(BinaryIO, gzip.GzipFile(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def idx_shape(path: Path) -> tuple[int, ...]:
    """The shape that the header of an idx file of bytes announces."""
    try:
        with open_plain_or_gzip(path) as file:
            magic = file.read(4)
            if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != 8 or not 1 <= magic[3] <= 4:
                raise ValueError(f"it begins with {magic.hex() or 'nothing'}, not with 00000803 or the like")
            sizes = file.read(4 * magic[3])
    except UNREADABLE as error:
        raise ValueError(f"{path}: expected an idx file of bytes ({error}): restore it from a copy") from None
    return tuple(int(size) for size in np.frombuffer(sizes, ">u4"))


def _read(file: BinaryIO, size: int) -> bytes:
    """So many bytes, or all that are left: a decompressor may give them in parts."""
    parts, left = [], size
    while left and (part := file.read(left)):
        parts.append(part)
        left -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)

"""Arrays of a prepared folder: mapped from disk, whatever someone may have done to the files."""

import struct
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

_BROKEN = (ValueError, TypeError, KeyError, EOFError, OverflowError, MemoryError, SyntaxError, TokenError, struct.error)


def open_array(path: Path, kinds: str = "biuf") -> npt.NDArray[Any]:
    """Map a ``.npy`` file for reading.

    Args:
        path: the file.
        kinds: the kinds of numbers it may hold, by numpy's letters.

    Raises:
        ValueError: it is missing, cannot be read, is no such file, or holds something else.
    """
    try:
        return _mapped(path, kinds)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}): prepare the data again") from None
    except _BROKEN as error:
        raise ValueError(f"{path}: damaged ({error!s:.100}): prepare the data again") from None


def check_range(path: Path, array: npt.NDArray[np.integer], low: int, high: int) -> None:
    """Raise ValueError where a number of an array lies outside [low, high]."""
    if array.size and not (low <= int(array.min()) and int(array.max()) <= high):
        raise ValueError(f"{path}: expected numbers from {low} to {high}, got {array.min()} to {array.max()}")


def _mapped(path: Path, kinds: str) -> npt.NDArray[Any]:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        if dtype.hasobject or dtype.kind not in kinds:
            raise ValueError(f"expected numbers of the kinds {kinds}, got {dtype}")
        offset, size = file.tell(), path.stat().st_size
    if any(side < 0 for side in shape):
        raise ValueError(f"expected sizes, got {shape}")
    needed = dtype.itemsize
    for side in shape:
        needed *= side
    if size - offset != needed:
        raise ValueError(f"expected {needed} bytes of {shape}, got {size - offset}")
    if not needed:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran else "C")

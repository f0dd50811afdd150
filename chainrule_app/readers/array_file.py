"""Rows of numbers in an .npy or .npz file: the arrays that are tables in memory are tables in files."""

import math
import zipfile
from pathlib import Path
from typing import Any

from chainrule_app.readers.sources import file_and_array

_MOST_BYTES = 1 << 30  # of an array, which is held in memory


def holds_rows(path: str | Path) -> bool:
    """Return whether a file holds rows of numbers (N, D), and no array that can be images."""
    from chainrule_app.readers.images.stacked import image_layout

    try:
        shapes = [header.shape for header in _headers(path).values() if header.dtype.kind in "uifb"]
    except (ValueError, OSError):
        return False
    return any(len(shape) == 2 for shape in shapes) and all(image_layout(shape) is None for shape in shapes)


def read_rows(path: str | Path) -> Any:
    """Return the array (N,) or (N, D) of numbers in a file.

    Raises:
        ValueError: there is no array of rows, or several, or it is damaged.
    """
    import numpy as np

    from chainrule_app.readers.images.stacked import UNREADABLE, open_array, read_bytes

    file, _ = file_and_array(path)
    fitting = {
        name: header
        for name, header in _headers(path).items()
        if header.dtype.kind in "uifb" and len(header.shape) in (1, 2)
    }
    rows = [name for name, header in fitting.items() if len(header.shape) == 2] or list(fitting)
    if not rows:
        raise ValueError(f"{path}: expected an array of rows (N, D) of numbers, got none")
    if len(rows) > 1:
        raise ValueError(
            f"{path}: has several arrays of rows ({', '.join(map(str, rows)):.200}): name one, as in {path}:{rows[0]}"
        )
    shape, dtype, by_columns = fitting[rows[0]]
    size = math.prod(shape) * dtype.itemsize
    if size > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES >> 30} GiB of numbers, got more: write Parquet")
    with open_array(file, rows[0] or None) as (content, _):
        try:
            raw = read_bytes(content, size)
        except UNREADABLE as error:
            raise ValueError(f"{path}: cannot be read ({error}): restore it from a copy") from None
    if len(raw) < size or not size:
        raise ValueError(f"{path}: expected {size:,} bytes of numbers, got {len(raw):,}: restore it from a copy")
    return np.frombuffer(raw, dtype).reshape(shape, order="F" if by_columns else "C")


def _headers(path: str | Path) -> dict[str, Any]:
    """Return the headers of the arrays of a file by name; "" is the only one of an .npy file."""
    from chainrule_app.readers.images.stacked import UNREADABLE, open_array

    file, name = file_and_array(path)
    names: list[str] = [""] if name is None else [name]
    if name is None and file.name.lower().endswith(".npz"):
        try:
            with zipfile.ZipFile(file) as archive:
                members = archive.namelist()
        except UNREADABLE as error:
            raise ValueError(f"{path}: not an .npz file, or damaged ({error}): restore it from a copy") from None
        names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
    headers = {}
    for name in names:
        with open_array(file, name or None) as (_, header):
            headers[name] = header
    return headers

"""A folder of prepared data: arrays, symbols and JSON files, and a manifest written last, which completes it."""

import math
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from chainrule.data import Tokens
from chainrule.files import naming, read_json, write_json

FORMAT = 4
Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]


class DamagedDataError(ValueError):
    """Report a file of a prepared folder that is not as it was written."""

    def __init__(self, path: Path, reason: object):
        super().__init__(f"{path}: damaged ({reason!s:.120}): prepare the data again, or train again")


class ArrayFile:
    """An array on disk that grows row by row; an error of writing names its file."""

    def __init__(self, file: BinaryIO, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()):
        self._file, self.dtype, self.row_shape = file, np.dtype(dtype).newbyteorder("<"), row_shape
        self.rows = 0  # number of rows written so far

    def append(self, values: npt.ArrayLike) -> None:
        """Write rows (n, ...) behind those already written."""
        rows = np.ascontiguousarray(values, dtype=self.dtype)
        assert rows.shape[1:] == self.row_shape
        with naming(self._path):
            self._file.write(rows.tobytes())
        self.rows += len(rows)

    def truncate(self, rows: int) -> None:
        """Keep only the first `rows` rows."""
        self.rows = rows
        with naming(self._path):
            self._file.truncate(rows * self.dtype.itemsize * math.prod(self.row_shape))
            self._file.seek(0, os.SEEK_END)

    def sync(self) -> None:
        """Bring all rows safely to the disk."""
        with naming(self._path):
            self._file.flush()
            os.fsync(self._file.fileno())

    @property
    def _path(self) -> Path:
        return Path(self._file.name)


class StoreWriter:
    """Write a folder of prepared data; `finish` makes it complete, and an error removes what was written so far."""

    def __init__(self, directory: str | Path, manifest: str):
        self.directory, self._manifest = Path(directory), manifest
        self.directory.mkdir(parents=True, exist_ok=True)
        self._arrays: dict[str, ArrayFile] = {}
        self._names = [manifest]
        self._files = ExitStack()
        self._clear_old()

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        with suppress(OSError) if kind is not None else nullcontext():  # what could not be written fails once more
            self._files.close()
        if kind is not None:
            for name in self._names:
                (self.directory / name).unlink(missing_ok=True)

    def path(self, name: str) -> Path:
        """Return the path of a file of the folder, which the caller writes."""
        self._names.append(name)
        return self.directory / name

    def growing(self, name: str, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayFile:
        """Open a new array of rows of one shape, to be written piece by piece."""
        file = self._files.enter_context(self.path(name).open("wb"))
        self._arrays[name] = ArrayFile(file, dtype, row_shape)
        return self._arrays[name]

    def array(self, name: str, values: Array) -> None:
        """Write a whole array."""
        self.growing(name, values.dtype, values.shape[1:]).append(values)

    def json(self, name: str, content: dict[str, Any]) -> None:
        """Write an object as JSON."""
        write_json(self.path(name), content)

    def finish(self, manifest: dict[str, Any]) -> None:
        """Bring all arrays safely to the disk, and then write the manifest: it adds their types and shapes."""
        for array in self._arrays.values():
            array.sync()
        arrays = {
            name: {"dtype": array.dtype.str, "shape": [array.rows, *array.row_shape]}
            for name, array in self._arrays.items()
        }
        content = {"format": FORMAT, **manifest, "arrays": arrays, "files": self._names}
        write_json(self.directory / self._manifest, content)

    def _clear_old(self) -> None:
        path = self.directory / self._manifest
        try:
            names = read_json(path).get("files")
        except (OSError, ValueError):
            names = None
        path.unlink(missing_ok=True)
        for name in names if isinstance(names, list) else []:
            if isinstance(name, str) and Path(name).name == name and (self.directory / name).is_file():
                (self.directory / name).unlink(missing_ok=True)


class Store:
    """A folder that `StoreWriter` completed, its arrays read from the disk on demand."""

    def __init__(self, directory: str | Path, manifest: str, what: str):
        self.directory, self.manifest_path = Path(directory), Path(directory) / manifest
        if not self.manifest_path.is_file():
            raise FileNotFoundError(
                f"{self.directory}: no prepared {what} here ({manifest} is missing): prepare the data again"
            )
        self.manifest = read_json(self.manifest_path)  # the content given to `StoreWriter.finish`, and the format
        version = self.manifest.get("format")
        if type(version) is int and version > FORMAT:
            raise ValueError(f"{self.manifest_path}: format {version}, from a newer chainrule: prepare the data again")
        self._arrays = self.manifest.pop("arrays", None)
        self.manifest.pop("files", None)
        if version != FORMAT or not isinstance(self._arrays, dict):
            raise DamagedDataError(self.manifest_path, f"format: expected {FORMAT}, got {version!r}")

    @contextmanager
    def checked(self, name: str | None = None) -> Iterator[None]:
        """Report an error in using the content of a file, the manifest if not named, as damage of that file."""
        try:
            yield
        except (DamagedDataError, FileNotFoundError):
            raise
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
            reason = f"{error!r}" if isinstance(error, KeyError) else error
            raise DamagedDataError(self.directory / name if name else self.manifest_path, reason) from None

    def json(self, name: str) -> dict[str, Any]:
        """Read an object that was written as JSON."""
        path = self.directory / name
        if not path.is_file():
            raise DamagedDataError(path, "the file is missing")
        return read_json(path)

    def array(
        self, name: str, dtype: npt.DTypeLike, shape: tuple[int | None, ...] = (None,), below: int | None = None
    ) -> Array:
        """Map an array for reading; None in `shape` is an unknown size, and numbers must be in [0, below)."""
        path, wanted = self.directory / name, np.dtype(dtype).newbyteorder("<")
        with self.checked():
            entry = self._arrays[name]
            dtype_name, sizes = entry["dtype"], tuple(entry["shape"])
            if any(type(size) is not int or size < 0 for size in sizes):
                raise ValueError(f"expected sizes of {name}, got {sizes}")
        fits = len(sizes) == len(shape) and all(size in (None, own) for size, own in zip(shape, sizes, strict=True))
        if dtype_name != wanted.str or not fits:
            raise DamagedDataError(path, f"expected {shape} of {wanted}, got {sizes} of {dtype_name!s:.20}")
        with self.checked(name):
            if not path.is_file():
                raise DamagedDataError(path, "the file is missing")
            needed, size = math.prod(sizes) * wanted.itemsize, path.stat().st_size
            if size != needed:
                raise ValueError(f"expected {needed} bytes, got {size}")
            array = np.memmap(path, wanted, "r", shape=sizes) if needed else np.zeros(sizes, wanted)
            if below is not None and array.size and not 0 <= int(array.min()) <= int(array.max()) < below:
                raise ValueError(f"expected numbers from 0 to {below - 1}, got {array.min()} to {array.max()}")
        return array

    def offsets(self, name: str, end: int, *, rows: int | None = None, shortest: int = 0) -> npt.NDArray[np.int64]:
        """Read where `rows` rows begin, (N + 1,): from 0 up to `end`, each row with at least `shortest` elements."""
        sizes = (None if rows is None else rows + 1,)
        offsets: npt.NDArray[np.int64] = np.array(self.array(name, "i8", sizes), dtype=np.int64)
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != end or (np.diff(offsets) < shortest).any():
            raise DamagedDataError(
                self.directory / name, f"expected where each row begins, in order, from 0 to {end}, got other numbers"
            )
        return offsets


def token_dtype(symbols: int) -> str:
    """Return the smallest unsigned type that holds the symbols 0..V-1, such as uint16."""
    return np.min_scalar_type(symbols - 1).name


class StoredTokens(Tokens):
    """Symbols in a file of raw little-endian unsigned integers, memory-mapped for each read alone.

    `name` is the array of symbols below `symbols`, `lines` the offsets (line_count + 1,) where lines start, if any.
    A map that lives only for one read keeps resident memory small however much of the file has been read.
    """

    def __init__(
        self, store: Store, name: str, count: int, symbols: int, lines: str | None = None, line_count: int = 0
    ) -> None:
        self._dtype = np.dtype(token_dtype(symbols)).newbyteorder("<")
        store.array(name, self._dtype, (count,))
        if lines is not None:
            store.array(lines, "i8", (line_count + 1,))
        self._path, self._count, self._symbols = store.directory / name, count, symbols
        self._lines, self.line_count = None if lines is None else store.directory / lines, line_count

    def __len__(self) -> int:
        return self._count

    def slice(self, start: int, stop: int) -> Ids:
        """Return the symbols from `start` up to `stop`, int64; `ValueError` where they are not all there."""
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"slice: expected 0 <= start <= stop <= {len(self)}, got {start} and {stop}")
        return self.rows(np.array([start]), np.array([stop]))[0].astype(np.int64)

    def rows(self, starts: Ids, stops: Ids) -> list[npt.NDArray[np.integer]]:
        """Return the symbols from each start up to its stop, in the smallest type that holds them."""
        if not self._count:
            return [np.zeros(0, dtype=self._dtype) for _ in starts]
        ids = np.asarray(np.memmap(self._path, dtype=self._dtype, mode="r", shape=(self._count,)))
        rows = [ids[start:stop].copy() for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)]
        if self._symbols <= np.iinfo(self._dtype).max:
            largest = max((int(row.max()) for row in rows if len(row)), default=0)
            if largest >= self._symbols:
                raise DamagedDataError(self._path, f"expected symbols from 0 to {self._symbols - 1}, got {largest}")
        return rows

    def line_bounds(self, lines: Ids) -> tuple[Ids, Ids]:
        """Start and end of each of the given lines, `<eos>` included."""
        if self._lines is None:
            raise ValueError("this corpus is one stream: prepare it with reading='lines' to read it by lines")
        offsets = np.asarray(np.memmap(self._lines, dtype="<i8", mode="r", shape=(self.line_count + 1,)))
        starts, stops = offsets[lines].astype(np.int64), offsets[lines + 1].astype(np.int64)
        if len(starts) and not (starts.min() >= 0 and (starts < stops).all() and stops.max() <= self._count):
            raise DamagedDataError(self._lines, "expected where each line begins, in order, got other numbers")
        return starts, stops

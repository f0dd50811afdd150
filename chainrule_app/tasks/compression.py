"""Lossless compression of a file with a run's model, or with lzma or plain storage where these are smaller."""

import hashlib
import lzma
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any

from chainrule import AutoregressiveModel
from chainrule.coding import (
    DamagedError,
    machine,
    model_digest,
    reproducible,
)
from chainrule.devices import usable_threads
from chainrule_app.tasks.capabilities import FileCodec
from chainrule_app.tasks.container import Container, unpacked, write_container

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
_REPETITIVE = 100  # factor by which lzma shrinks data too repetitive for a model to be worth its time
MOST_THREADS = 16  # so that a machine with fewer processors decodes in reasonable time
_SHARED = 1 << 28  # weights times rows from which several threads pay off
_HEADER = {"sha256": str, "name": str, "size": int, "method": str}
_RUN_HEADER = {"kind": str, "model": str, "machine": str, "threads": int, "arithmetic": str, "layout": dict}
_LONGEST = 1 << 20  # minimum limit on the elements of a row: compressed images are shorter than their pixels
_SIDE_BYTES = 32  # maximum side bytes per file byte: a one-character line with its number, as JSON
# Errors that a forged header with a valid checksum may cause.
_UNFIT = (
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    RuntimeError,
    AttributeError,
    MemoryError,
    StopIteration,
    zlib.error,
)
ProgressOf = Callable[[int, str], Callable[[int], None]]


@dataclass(frozen=True)
class Compressed:
    """Compressed file."""

    data: bytes
    method: str  # run, lzma or stored
    elements: int  # elements of the model, or bytes
    unit: str
    note: str = ""  # why another method was used, or what decompression restores instead of the bytes


def no_progress(_: int, __: str) -> Callable[[int], None]:
    return lambda _: None


def compress_data(
    data: bytes, name: str, run: Any, *, progress: ProgressOf = no_progress, verify: bool = True
) -> Compressed:
    """Compress the content of a file called `name` with the best of the methods."""
    if not _is_plain(name):
        raise ValueError(f"{name}: expected a name without a path or a backslash: rename the file")
    header = {"name": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    small = _by_lzma(data)
    plain = Compressed(write_container(header | {"method": "stored"}, [data]), "stored", len(data), "byte")
    packed = Compressed(write_container(header | {"method": "lzma"}, [small]), "lzma", len(data), "byte")
    best = min(plain, packed, key=lambda compressed: len(compressed.data))
    if len(small) * _REPETITIVE < len(data):
        return best
    try:
        compressed = _with_run(data, header, run, progress, verify=verify)
    except _InexpressibleError as error:
        return replace(best, note=f"the run cannot express it ({error}): {_DESCRIPTIONS[best.method]}")
    if len(compressed.data) > len(best.data):
        return replace(best, note=f"smaller than with the model: {_DESCRIPTIONS[best.method]}")
    return compressed


def decompress_data(container: Container, name: str, run: Any, *, progress: ProgressOf = no_progress) -> bytes:
    """Decompress what `compress_data` wrote."""
    header, parts = container.header, container.parts
    check_header(container, name)
    method = header["method"]
    if method == "run":
        data = _read_with(run, header, parts, name, progress)
    else:
        try:
            data = _READ[method](parts[0], header["size"])
        except (ValueError, MemoryError, OverflowError) as error:
            raise DamagedError(f"{name}: its data do not match its header ({error})") from None
    if hashlib.sha256(data).hexdigest() != header["sha256"]:
        raise DamagedError(
            f"{name}: the decompressed data have a different SHA-256 from the original: nothing is written"
        )
    return run.codec().finish(header["layout"], data) if method == "run" else data


def check_header(container: Container, name: str) -> None:
    """Raise `DamagedError` for a header that `compress_data` cannot have written."""
    header = container.header
    expected = _HEADER | (_RUN_HEADER if header.get("method") == "run" else {})
    wrong = [key for key, kind in expected.items() if type(header.get(key)) is not kind]
    if "name" not in wrong and not _is_plain(header["name"]):
        wrong.append("name")
    if "size" not in wrong and header["size"] < 0:
        wrong.append("size")
    if "method" not in wrong and header["method"] not in (*_READ, "run"):
        wrong.append("method")
    if "threads" in expected and "threads" not in wrong and not 1 <= header["threads"] <= MOST_THREADS:
        wrong.append("threads")
    if wrong or len(container.parts) != 1 + (header["method"] == "run"):
        raise DamagedError(f"{name}: not written by chainrule: invalid {', '.join(wrong) or 'parts'}")


def _is_plain(name: str) -> bool:
    """Tell if a name is that of a file, with no way to lead into another folder, on any system."""
    return PurePosixPath(name).name == name not in ("", "..") and not {"\\", "\0"} & set(name)


def file_name(path: Path) -> str:
    """Return the name of a regular file to compress; raise ValueError or FileNotFoundError for anything else."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    if not path.is_file():
        raise ValueError(f"{path}: expected a file, got a folder, a device or a pipe: name one file")
    return path.name


class _InexpressibleError(Exception):
    """The model cannot express the data; the message says why."""


def _with_run(data: bytes, header: dict[str, Any], run: Any, progress: ProgressOf, *, verify: bool) -> Compressed:
    model = run.model()  # on the processor: a GPU's sums are not the same each time
    if not isinstance(model, AutoregressiveModel):
        raise ValueError(
            f"{run.path}: compression needs an exact likelihood, which a model with a latent code lacks: use a run "
            "of another model"
        )
    try:
        codec = run.codec()
        expressed = codec.express(data)
    except ValueError as error:
        raise _InexpressibleError(error) from None
    rows = expressed.laid
    products = rows.rows * sum(weight.numel() for weight in model.parameters())
    threads = 1 if products < _SHARED else min(usable_threads(), MOST_THREADS)
    with reproducible(model, threads):
        arithmetic = rows.arithmetic_digest(model)
        parts = [expressed.side, rows.encode(model, progress(expressed.elements, "writing"))]
    expected = data if expressed.instead is None else expressed.instead
    header = header | {
        "sha256": hashlib.sha256(expected).hexdigest(),
        "method": "run",
        "kind": run.name,
        "model": model_digest(model),
        "machine": machine(model),
        "threads": threads,
        "arithmetic": arithmetic,
        "layout": expressed.layout,
    }
    if verify:
        again = _read_with(run, header, parts, "verification", progress, model)
        if again != expected:
            raise ValueError(
                "verification: the decoded data differ: this model does not compute reproducibly; nothing is written"
            )
    return Compressed(write_container(header, parts), "run", expressed.elements, expressed.unit, expressed.note)


def _read_with(
    run: Any, header: dict[str, Any], parts: Any, name: str, progress: ProgressOf, model: Any = None
) -> bytes:
    if run.name != header["kind"]:
        raise ValueError(
            f"{run.path}: a run of the task {run.name}, but {name} was compressed with the task {header['kind']}"
        )
    model, codec = model or run.model(), run.codec()
    if model_digest(model) != header["model"]:
        raise ValueError(f"{run.path}: not the model that compressed {name}, or it was trained further since")
    if header["machine"] != machine(model):
        raise ValueError(
            f"{name}: compressed on a machine that rounds differently ({header['machine']}; here {machine(model)}): "
            "decompress it there"
        )
    try:
        return _restored(codec, model, header, parts, name, progress)
    except _UNFIT as error:
        if isinstance(error, DamagedError) or find_spec("constriction") is None:
            raise
        raise DamagedError(f"{name}: its data do not match its header ({error!r:.80})") from None


def _restored(
    codec: FileCodec, model: Any, header: dict[str, Any], parts: Any, name: str, progress: ProgressOf
) -> bytes:
    layout = header["layout"]
    other = DamagedError(f"{name}: its layout does not match its size")
    most = max(header["size"], _LONGEST)
    if not all(0 <= number <= most for number in _numbers(layout)):  # before anything so large is laid out
        raise other
    rows = codec.lay_out(layout)
    if max(rows.rows, rows.length, len(rows.batches)) > most:
        raise other
    with reproducible(model, header["threads"]):
        digest = rows.arithmetic_digest(model)
        if digest != header["arithmetic"]:
            raise DamagedError(f"{name}: compressed on a processor that rounds differently: decompress it there")
        size = math.prod((len(rows.batches), rows.rows, rows.length))
        elements = rows.decode(model, parts[1], progress(layout.get("symbols", size), "reading"))
    return codec.restore(layout, parts[0], elements, _SIDE_BYTES * most)


def _numbers(layout: Any) -> Iterator[int]:
    if isinstance(layout, dict | list | tuple):
        for part in layout.values() if isinstance(layout, dict) else layout:
            yield from _numbers(part)
    elif isinstance(layout, int):
        yield layout


def _by_lzma(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_RAW, filters=_FILTERS)


_READ: dict[str, Callable[[bytes, int], bytes]] = {
    "stored": lambda part, _: part,
    "lzma": lambda part, size: unpacked(part, size, _FILTERS),
}
_DESCRIPTIONS = {"stored": "stored as it is", "lzma": "compressed by lzma"}

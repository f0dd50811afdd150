"""Lossless compression of files: with a run's model, an adaptive model, lzma, or stored."""

import hashlib
import lzma
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from chainrule._base import AutoregressiveModel
from chainrule.coding import DamagedError
from chainrule.coding._batches import nothing, read_batches, write_batches
from chainrule.coding._container import (
    MOST_THREADS,
    PORTABLE,
    Container,
    arithmetic_digest,
    machine,
    model_digest,
    portable_form,
    reproducible,
    unpacked,
    write_container,
)
from chainrule.coding._range_coder import needed_package
from chainrule.training._computation import usable_threads
from chainrule_app.tasks.bundle import Bundle, cut
from chainrule_app.tasks.capabilities import FileCodec

_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
_REPETITIVE = 100  # factor by which lzma shrinks data too repetitive for a model to be worth its time
_SHARED = 1 << 28  # weights times rows from which several threads pay off
_HEADER = {"sha256": str, "files": list, "method": str}
_RUN_HEADER = {"kind": str, "model": str, "machine": str, "threads": int, "arithmetic": str, "layout": dict}
_LONGEST = 1 << 20  # minimum limit on the elements of a row: compressed images are shorter than their pixels
_BESIDE = 32  # maximum side bytes per file byte: a one-character line with its number, as JSON
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
    method: str  # run, adaptive, lzma or stored
    elements: int  # elements of the model, or bytes
    unit: str
    note: str = ""  # why another method was used, or what decompression restores instead of the bytes


def no_progress(_: int, __: str) -> Callable[[int], None]:
    return nothing


def compress_data(
    data: bytes,
    described: dict[str, Any],
    run: Any,
    *,
    progress: ProgressOf = no_progress,
    verify: bool = True,
    portable: bool = False,
) -> Compressed:
    """Compress data with the best of the methods."""
    header = described | {"sha256": hashlib.sha256(data).hexdigest()}
    small = _by_lzma(data)
    plain = Compressed(write_container(header | {"method": "stored"}, [data]), "stored", len(data), "byte")
    packed = Compressed(write_container(header | {"method": "lzma"}, [small]), "lzma", len(data), "byte")
    best = min(plain, packed, key=lambda compressed: len(compressed.data))
    if len(small) * _REPETITIVE < len(data):
        return best
    why = ""
    if run is None:
        compressed = _adaptive(data, header, progress, verify=verify) if data else plain
    else:
        try:
            compressed = _with_run(data, header, run, progress, verify=verify, portable=portable)
        except _InexpressibleError as error:
            why = f"the run cannot express it ({error}): "
            compressed = (
                _adaptive(data, header, progress, verify=verify) if data and find_spec("numba") is not None else best
            )
    if len(compressed.data) > len(best.data):
        compressed, why = best, why or "smaller than with the model: "
    return replace(compressed, note=f"{why}{_DESCRIPTIONS[compressed.method]}") if why else compressed


def decompress_data(
    container: Container, name: str, run: Any, *, progress: ProgressOf = no_progress, salvage: bool = False
) -> Bundle:
    """Decompress what `compress_data` wrote."""
    header, parts = container.header, container.parts
    check_header(container, name)
    if container.damaged and not salvage:
        raise DamagedError(
            f"{name}: {describe_damage(container)}: salvage the rest by `chainrule decompress --salvage`, or restore "
            "the file from a copy"
        )
    method = header["method"]
    if method == "run":
        if run is None:
            raise ValueError(f"{name}: compressed with the model of a run: pass it with --run RUN")
        data = _read_with(run, header, parts, name, progress)
    else:
        part = parts[0]
        if part is None:
            raise DamagedError(f"{name}: its one part is damaged: nothing can be saved")
        try:
            data = _READ[method](part, sum(size for _, size in header["files"]), progress)
        except (ValueError, MemoryError, OverflowError) as error:
            raise DamagedError(f"{name}: its part does not match its header ({error}): nothing can be saved") from None
    if not container.damaged and hashlib.sha256(data).hexdigest() != header["sha256"]:
        raise DamagedError(f"{name}: the decompressed data have another SHA-256 than the original: nothing is written")
    described: dict[str, Any] = {key: header[key] for key in ("folder", "files", "folders") if key in header}
    bundle = Bundle(data, described)
    return bundle if run is None or method != "run" else run.codec().finish(header["layout"], bundle)


def check_header(container: Container, name: str) -> None:
    header = container.header
    expected = _HEADER | (_RUN_HEADER if header.get("method") == "run" else {})
    wrong = [key for key, kind in expected.items() if type(header.get(key)) is not kind]
    if "folder" in header and type(header["folder"]) is not str:
        wrong.append("folder")
    folders = header.get("folders", [])
    if type(folders) is not list or not all(isinstance(name, str) for name in folders):
        wrong.append("folders")
    if "files" not in wrong and not (header["files"] and all(map(_names_file, header["files"]))):
        wrong.append("files")
    if "method" not in wrong and header["method"] not in (*_READ, "run"):
        wrong.append("method")
    if "threads" in expected and "threads" not in wrong and not 1 <= header["threads"] <= MOST_THREADS:
        wrong.append("threads")
    if wrong or not container.parts:
        raise DamagedError(f"{name}: not a file that chainrule wrote: invalid {', '.join(wrong) or 'parts'}")


def _names_file(entry: Any) -> bool:
    return isinstance(entry, list) and [type(part) for part in entry] == [str, int] and entry[1] >= 0


def describe_damage(container: Container) -> str:
    """Name the damaged parts.

    >>> describe_damage(Container({"method": "run"}, [b"", None, b""]))
    'part 1 of 2 is damaged'
    """
    damaged, last = container.damaged, len(container.parts) - 1
    if container.header["method"] != "run":
        return "its one part is damaged"
    names = ["the list of unknown symbols" if part == 0 else f"part {part} of {last}" for part in damaged]
    return f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} damaged"


class _InexpressibleError(Exception):
    """The model cannot express the data; the message says why."""


def _with_run(
    data: bytes, header: dict[str, Any], run: Any, progress: ProgressOf, *, verify: bool, portable: bool
) -> Compressed:
    needed_package()
    model = run.model()  # on the processor: a GPU's sums are not the same each time
    if not isinstance(model, AutoregressiveModel):
        raise ValueError(
            f"--run {run.path}: its model has a latent code and no exact likelihood to compress with: leave --run out, "
            "or name the run of a model without a code"
        )
    try:
        codec, names = run.codec(), [name for name, _ in header["files"]]
        expressed = codec.express(dict(zip(names, cut(data, header["files"]), strict=True)))
    except ValueError as error:
        raise _InexpressibleError(error) from None
    rows = expressed.laid
    products = rows.rows * sum(weight.numel() for weight in model.parameters())
    threads = 1 if products < _SHARED else min(usable_threads(), MOST_THREADS)
    marks = {"machine": PORTABLE if portable else machine(model), "threads": threads}
    with _computing(codec.ready(model, expressed.layout), marks) as ready:
        arithmetic = arithmetic_digest(ready, rows.rows, rows.length, rows.batches[0].context)
        parts = [expressed.side, *write_batches(ready, rows, progress(expressed.elements, "writing"))]
    expected = data if expressed.instead is None else expressed.instead
    header = header | {
        "sha256": hashlib.sha256(expected).hexdigest(),
        "method": "run",
        "kind": run.name,
        "model": model_digest(model),
        **marks,
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
            f"--run {run.path}: a run of the task {run.name}, but {name} was compressed with the task {header['kind']}"
        )
    model, codec = model or run.model(), run.codec()
    if model_digest(model) != header["model"]:
        raise ValueError(f"--run {run.path}: not the model that compressed {name}, or trained further since")
    if header["machine"] not in (PORTABLE, machine(model)):
        raise ValueError(
            f"{name}: compressed on a machine that rounds differently ({header['machine']}; here {machine(model)}): "
            "decompress it there, or compress it with --portable"
        )
    try:
        return _restored(codec, model, header, parts, name, progress)
    except _UNFIT as error:
        if isinstance(error, DamagedError):
            raise
        raise DamagedError(f"{name}: its parts do not match its header ({error!r:.80}): nothing can be saved") from None


def _restored(
    codec: FileCodec, model: Any, header: dict[str, Any], parts: Any, name: str, progress: ProgressOf
) -> bytes:
    layout = header["layout"]
    other = DamagedError(f"{name}: its layout does not match its files: nothing can be saved")
    most = max(sum(size for _, size in header["files"]), _LONGEST)
    if not all(0 <= number <= most for number in _numbers(layout)):  # before anything so large is laid out
        raise other
    coded_rows = codec.lay_out(layout)
    if len(parts) != 1 + coded_rows.coders or max(coded_rows.rows, coded_rows.length, len(coded_rows.batches)) > most:
        raise other
    with _computing(codec.ready(model, layout), header) as ready:
        if (
            arithmetic_digest(ready, coded_rows.rows, coded_rows.length, coded_rows.batches[0].context)
            != header["arithmetic"]
        ):
            raise DamagedError(f"{name}: compressed on a processor that rounds differently: decompress it there")
        size = math.prod((len(coded_rows.batches), coded_rows.rows, coded_rows.length))
        elements = read_batches(ready, coded_rows, parts[1:], progress(layout.get("symbols", size), "reading"))
    groups = zip(coded_rows.groups(), parts[1:], strict=True)
    lost = {int(row) for rows, part in groups if part is None for row in rows}
    return codec.restore(layout, parts[0], elements, lost, _BESIDE * most)


def _numbers(layout: Any) -> Iterator[int]:
    if isinstance(layout, dict | list | tuple):
        for part in layout.values() if isinstance(layout, dict) else layout:
            yield from _numbers(part)
    elif isinstance(layout, int):
        yield layout


@contextmanager
def _computing(model: Any, marks: dict[str, Any]) -> Iterator[Any]:
    """Provide the model in the arithmetic that a file's header names."""
    with reproducible(model, marks["threads"]):
        if marks["machine"] != PORTABLE:
            yield model
        else:
            with portable_form(model) as portable:
                yield portable


def _adaptive(data: bytes, header: dict[str, Any], progress: ProgressOf, *, verify: bool) -> Compressed:
    from chainrule.coding import adaptive

    part = adaptive.compress(data, _added(progress(len(data), "writing")))
    if verify and _read_adaptive(part, len(data), progress) != data:
        raise ValueError("verification: the decoded data differ: nothing is written")
    return Compressed(write_container(header | {"method": "adaptive"}, [part]), "adaptive", len(data), "byte")


def _read_adaptive(part: bytes, length: int, progress: ProgressOf) -> bytes:
    from chainrule.coding import adaptive

    return adaptive.decompress(part, length, _added(progress(length, "reading")))


def _added(advance: Callable[[int], None]) -> Callable[[int], None]:
    """Convert a function of increments to a function of totals."""
    before = 0

    def advance_to(done: int) -> None:
        nonlocal before
        advance(done - before)
        before = done

    return advance_to


def _by_lzma(data: bytes) -> bytes:
    return lzma.compress(data, lzma.FORMAT_RAW, filters=_FILTERS)


_READ: dict[str, Callable[[bytes, int, ProgressOf], bytes]] = {
    "stored": lambda part, _, __: part,
    "lzma": lambda part, size, _: unpacked(part, size, _FILTERS),
    "adaptive": _read_adaptive,
}
_DESCRIPTIONS = {
    "stored": "stored as it is",
    "lzma": "compressed by lzma",
    "adaptive": "compressed by the adaptive model",
}

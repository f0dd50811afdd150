"""Lossless compression: does every file come back, how small is it, how fast; beside xz, bzip2, brotli, zstd and PPMd.

    python benchmarks/compression.py --run RUN [--file FILE] [--files 1000] [--seed 0] [--only roundtrip|sizes]

Round trips are of random and adversarial files, 100 MB of zeros among them. Sizes and speeds are of
FILE, the text built into Python if none is given: whole, as one user would compress it, each program at its strongest
setting. The others come from their packages (`pip install brotli zstandard pyppmd`); one that is missing is left out,
with a line that says so. The size with a run is that of the file alone: the run has to be shipped beside it.
"""

import argparse
import bz2
import lzma
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from side_by_side import claim, publish

from chainrule_app import builtin_text, open_run
from chainrule_app.tasks.compression import compress_data, decompress_data
from chainrule_app.tasks.container import read_container

LONGEST = 11  # binary digits of the length of random files
Pair = tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("roundtrip", "sizes"))
    options = parser.parse_args()
    run = open_run(options.run)
    if options.only != "sizes":
        row, reached = round_trips(options.files, options.seed, run)
        publish("compression_round_trips", [row], [reached])
    if options.only != "roundtrip":
        data = builtin_text().encode() if options.file is None else options.file.read_bytes()
        name = "the text built into Python" if options.file is None else options.file.name
        publish("compression_with_run", *sizes(data, name, run))


def round_trips(count: int, seed: int, run: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """How many of the files come back byte for byte."""
    whole, size, code, methods = 0, 0, 0, Counter[str]()
    began = time.process_time()
    for number, content in enumerate(files(count, seed, LONGEST)):
        made = compress_data(content, "file", run, verify=False)
        whole += back(made.data, run) == content
        size, code, methods[made.method] = size + len(content), code + len(made.data), methods[made.method] + 1
        if number % 100 == 99:
            print(f"{number + 1} files, {whole} came back, {time.process_time() - began:.0f} core s", flush=True)
    how = f"with a run of {run.config.model}"
    row = {"files": count, "how": how, "came back": whole, "bytes": size, "coded": code, **dict(methods)}
    row["core minutes"] = (time.process_time() - began) / 60
    return row, claim(f"{count} random and adversarial files that come back, {how}", whole / count, ">=", 1)


def files(count: int, seed: int, longest: int) -> Iterator[bytes]:
    """Files that a compressor may stumble over, then random ones."""
    draw = random.Random(seed)
    text = builtin_text()[:20_000]
    start = text[: 1 << longest]
    fixed = [
        b"", b"a", b"\n", b"\0", bytes(range(256)), bytes(100_000_000), b"\xff" * 999, start.encode("utf-16"),
        lzma.compress(text.encode()), start.encode()[:-1] + b"\xc3", b"\r\n" * 500,
        start.replace("\n", "\r\n").encode(), "\ud800".encode("utf-8", "surrogatepass") * 9,
        start.encode() + bytes(range(256)), draw.randbytes(100_000),
    ]  # fmt: skip
    yield from fixed[:count]
    for _ in range(count - len(fixed)):
        size = int(2 ** draw.uniform(0, longest))
        place = draw.randrange(len(text))
        part = text[place : place + size].encode()
        kind = draw.randrange(5)
        if kind == 0:
            yield draw.randbytes(size)
        elif kind == 1:
            yield part
        elif kind == 2:  # a text with bytes changed
            damaged = bytearray(part)
            for _ in range(len(damaged) // 50 + 1):
                damaged[draw.randrange(len(damaged))] = draw.randrange(256)
            yield bytes(damaged)
        elif kind == 3:  # few values, in runs
            yield b"".join(bytes([draw.choice(b"ab\0\xff")]) * draw.randrange(1, 40) for _ in range(size // 20 + 1))
        else:
            yield bz2.compress(part)


def sizes(data: bytes, name: str, run: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A row for each way, and what was asked of ours."""
    rows = []
    for way, (write, read) in ways(run, data).items():
        began = time.perf_counter()
        code = write(data)
        middle = time.perf_counter()
        assert read(code) == data, way
        end = time.perf_counter()
        rows.append(
            {
                "file": name,
                "way": way,
                "bytes": len(code),
                "bits a byte": 8 * len(code) / len(data),
                "write kB/s": len(data) / 1000 / (middle - began),
                "read kB/s": len(data) / 1000 / (end - middle),
            }
        )
        print(
            {key: f"{value:.4g}" if isinstance(value, float) else value for key, value in rows[-1].items()}, flush=True
        )
    ours = {row["way"]: row for row in rows}
    mine = ours["chainrule, with a run"]
    claims = [claim(f"{name}, with a run: kB/s {verb}", mine[f"{verb} kB/s"], ">=", 20) for verb in ("write", "read")]
    return rows, claims


def ways(run: Any, data: bytes) -> dict[str, Pair]:
    """Ours, and those of the others that are installed, at their best for the data."""
    found: dict[str, Pair] = {"chainrule, with a run": (lambda data: compress(data, run), lambda code: back(code, run))}
    found["xz -9e"] = (lambda data: lzma.compress(data, preset=9 | lzma.PRESET_EXTREME), lzma.decompress)
    found["bzip2 -9"] = (bz2.compress, bz2.decompress)
    for package, way, make in (
        (
            "brotli",
            "brotli -q 11 -w 24",
            lambda brotli: (lambda data: brotli.compress(data, quality=11, lgwin=24), brotli.decompress),
        ),
        (
            "zstandard",
            "zstd --ultra -22",
            lambda zstd: (zstd.ZstdCompressor(level=22).compress, zstd.ZstdDecompressor().decompress),
        ),
        (
            "pyppmd",
            "PPMd, the best order of 3 to 8",
            lambda pyppmd: ppmd(pyppmd, data),
        ),
    ):
        try:
            found[way] = make(import_module(package))
        except ImportError:
            print(f"{way} is left out: pip install {package}")
    return found


def ppmd(pyppmd: Any, data: bytes) -> Pair:
    """PPMd variant H, as 7-Zip has it, with 256 MB, of the order that is best for the data.

    Of those whose code is read back: pyppmd 1.3.1 loses the text built into Python 3.11.7 in order 8, at byte 140,545.
    """

    def of_order(order: int) -> Pair:
        def write(data: bytes) -> bytes:
            encoder = pyppmd.Ppmd7Encoder(order, 1 << 28)
            return len(data).to_bytes(4, "little") + bytes(encoder.encode(data) + encoder.flush())

        def read(code: bytes) -> bytes:
            return bytes(pyppmd.Ppmd7Decoder(order, 1 << 28).decode(code[4:], int.from_bytes(code[:4], "little")))

        return write, read

    sizes = {}
    for write, read in map(of_order, range(3, 9)):
        code = write(data)
        if read(code) == data:
            sizes[write, read] = len(code)
    return min(sizes, key=sizes.__getitem__)


def compress(data: bytes, run: Any) -> bytes:
    return compress_data(data, "file", run, verify=False).data


def back(code: bytes, run: Any) -> bytes:
    return decompress_data(read_container(code), "file", run)


if __name__ == "__main__":
    main()

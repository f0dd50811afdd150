"""How straight the path from data to a trained model is: what `train` builds, opens and reads, and what `fit` writes.

    python benchmarks/path_length.py [--names]

`chainrule train poem.txt` and `chainrule train rows.csv` run for ten seconds each in this process: every network,
optimiser, open and read of the data is counted, and every file of the application one of whose functions runs before
the first step of training (importing a file, and the bodies of its classes, do not count). Then `chainrule.fit` takes a
frame, strings, an array of images and sounds, two steps each, and the files are counted that it writes outside the
run's directory. `tests/cli/test_path_length.py` holds the counts.
"""

import argparse
import copy
import inspect
import io
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch

import chainrule
from chainrule_app.cli.main import main as command
from chainrule_app.tasks.config import Model

APPLICATION = Path(inspect.getfile(command)).parents[1]
FIRST_STEP = ("training/_loop.py", "_step")  # end of a path, and the function that takes a step


class Reads:
    """Opens of one file by Python, and the share of its bytes that each read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes: list[int] = []  # of each open

    @contextmanager
    def counted(self) -> Iterator[None]:
        real, reads = io.open, self

        class Raw(io.FileIO):
            def __init__(self) -> None:
                super().__init__(reads.path)
                self.number = len(reads.bytes)
                reads.bytes.append(0)

            def readinto(self, buffer: Any) -> int | None:
                count = super().readinto(buffer)
                reads.bytes[self.number] += count or 0
                return count

            def readall(self) -> bytes:
                content = super().readall()
                reads.bytes[self.number] += len(content)
                return content

        def open_file(file: Any, mode: str = "r", buffering: int = -1, *text: Any, **options: Any) -> Any:
            try:
                ours = Path(file).samefile(reads.path)
            except (OSError, TypeError, ValueError):
                ours = False
            if not ours or any(sign in mode for sign in "wax+"):
                return real(file, mode, buffering, *text, **options)
            buffered = io.BufferedReader(Raw())
            if "b" in mode:
                return buffered if buffering else buffered.detach()
            return io.TextIOWrapper(buffered, *text, **options)

        with patch("io.open", open_file), patch("builtins.open", open_file):
            yield

    @property
    def full(self) -> int:
        size = self.path.stat().st_size
        return sum(count >= 0.99 * size for count in self.bytes)


def train_on(data: Path, out: Path, *options: str) -> tuple[Counter[str], Reads, set[str]]:
    """Train; return what was built, the reads of the data, and the files that run before the first step."""
    built: Counter[str] = Counter()
    files: set[str] = set()
    build, optimiser, copied = Model.build, torch.optim.Optimizer.__init__, copy.deepcopy

    def counted_build(self: Model, *arguments: Any, **options: Any) -> Any:
        network = build(self, *arguments, **options)
        built["networks"] += not next(network.parameters()).is_meta
        return network

    def counted_optimiser(self: Any, *arguments: Any, **options: Any) -> None:
        built["optimisers"] += 1
        optimiser(self, *arguments, **options)

    def counted_copy(value: Any, *arguments: Any) -> Any:
        built["copies"] += isinstance(value, torch.nn.Module) and not arguments
        return copied(value, *arguments)

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.endswith(FIRST_STEP[0]) and code.co_name == FIRST_STEP[1]:
            sys.setprofile(None)
        elif event == "call" and code.co_flags & inspect.CO_OPTIMIZED and code.co_filename.startswith(str(APPLICATION)):
            files.add(str(Path(code.co_filename).relative_to(APPLICATION)))

    reads = Reads(data)
    with (
        patch.object(Model, "build", counted_build),
        patch.object(torch.optim.Optimizer, "__init__", counted_optimiser),
        patch("copy.deepcopy", counted_copy),
        reads.counted(),
        redirect_stdout(io.StringIO()),
        redirect_stderr(io.StringIO()) as said,
    ):
        sys.setprofile(note)
        try:
            status = command(["train", str(data), *options, "--out", str(out)])
        finally:
            sys.setprofile(None)
    if status:
        raise SystemExit(f"train failed with status {status}: {said.getvalue()}")
    return built, reads, files


def written(scratch: Path, fit: Callable[[], Any]) -> tuple[int, int]:
    """Files that a call writes into the folder for temporary files, and how often it opens them."""
    opens: Counter[str] = Counter()
    running = True

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if running and event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.fsdecode(arguments[0])
            if path.startswith(str(scratch)):
                opens[path] += 1

    sys.addaudithook(note)
    with patch.object(tempfile, "tempdir", str(scratch)), redirect_stderr(io.StringIO()):
        fit()
    running = False
    return len(opens), sum(opens.values())


def write_poem(path: Path) -> Path:
    """Write the topics of Python's help."""
    path.write_text("\n".join(topics[name] for name in sorted(topics)), encoding="utf-8")
    return path


def write_rows(path: Path, count: int = 5000) -> Path:
    """Write a table of categories, numbers and dates."""
    random = np.random.default_rng(0)
    columns = {
        "city": random.choice(["Rome", "Oslo", "Lima"], count),
        "age": random.integers(18, 90, count),
        "height": random.normal(170, 10, count).round(1),
        "day": pd.date_range("2020-01-01", periods=count, freq="h").strftime("%Y-%m-%d"),
    }
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


def small_data() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Data of each kind that lives in memory, and the options of `fit`."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"age": random.integers(18, 90, 200), "city": random.choice(["Rome", "Oslo"], 200)})
    images = random.integers(0, 4, (40, 8, 8), dtype=np.uint8) * 85
    sounds = [np.sin(np.arange(4000) * step / 50).astype(np.float32) for step in range(1, 9)]
    return {
        "a frame": (frame, {}),
        "strings": (["roses are red", "violets are blue"] * 100, {"hidden_size": 8}),
        "an array": (images, {"layers": 1, "channels": 4}),
        "sounds": (sounds, {"task": "sound", "rate": 8000, "channels": 4, "skip_channels": 4}),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the files that run before the first step")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows, before = [], {}
        for data in (write_poem(Path(folder) / "poem.txt"), write_rows(Path(folder) / "rows.csv")):
            built, reads, files = train_on(data, Path(folder) / data.stem, "--budget", "10s")
            before[data.name] = files
            networks = f"{built['networks']}, {built['copies']} copies"
            rows += [
                (f"{data.name}: networks built", "2", networks),
                (f"{data.name}: optimisers built", "2", f"{built['optimisers']}"),
                (f"{data.name}: opens of the source", "≤ 5", f"{len(reads.bytes)}"),
                (f"{data.name}: full reads of the source", "2", f"{reads.full}"),
                (f"{data.name}: files of the application before the first step", "≤ 12", f"{len(files)}"),
            ]
        for kind, (data, more) in small_data().items():
            scratch = Path(folder) / "temporary" / kind.replace(" ", "-")
            scratch.mkdir(parents=True)
            out = Path(folder) / "runs" / kind.replace(" ", "-")
            count, opens = written(scratch, partial(chainrule.fit, data, steps=2, out=out, **more))
            figure = f"{count}, opened {opens} times" if count else "0"
            rows.append((f"temporary files of fit of {kind}", "0", figure))
    if options.names:
        for name, files in before.items():
            print(f"{name}:", *sorted(files), sep="\n  ")
    print("| what | must | measured |\n|---|---|---|")
    print("\n".join(f"| {what} | {must} | {figure} |" for what, must, figure in rows))


if __name__ == "__main__":
    main()

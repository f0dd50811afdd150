"""Measure how the time and memory of training, scoring, sampling and compression grow with each size.

    python benchmarks/cost.py [--model LSTM ...] [--rounds 3] [--quick]

One size changes at a time, the others stay at BASE: the length of a sequence, the width of a layer, the vocabulary,
the batch (rows computed together) and the rows of a data set that is read in batches. For each point the script takes
the least processor time of a few rounds, on one thread, and on Linux the memory that the process needed beyond what it
had. An exponent b says that the cost grows like size^b: least squares on logarithms over the larger half of the sizes,
with its standard error; it is compared with the exponent of the arithmetic (counted products and convolutions).
Then docs/cost.md gets its tables and pictures from results/cost.json. About nine minutes on an idle core; with --model
or --quick, which tries the script on tiny sizes in seconds, the exponents are printed and nothing is written.
"""

import argparse
import ctypes
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from PIL import Image
from side_by_side import operations, publish, result_path
from tables import ROOT, filled, machine, table

from chainrule import AutoregressiveModel
from chainrule.coding import encode
from chainrule.models import MADE, GatedPixelCNN, RecurrentLM, TransformerLM, WaveNet


@dataclass(frozen=True)
class Sizes:
    """One piece of work; every row is as long as the others."""

    length: int = 64
    width: int = 64
    vocabulary: int = 64
    batch: int = 8
    rows: int = 8


BASE = Sizes()
RANGES = {
    "length": [32, 64, 128, 256, 512, 1024],
    "width": [32, 64, 128, 256, 512],
    "vocabulary": [16, 64, 256, 1024, 4096],
    "batch": [1, 4, 16, 64],
    "rows": [8, 16, 32, 64],
}
TINY = Sizes(length=16, width=8, vocabulary=4, batch=2, rows=2)
QUICK = {name: [value, 2 * value, 4 * value] for name, value in asdict(TINY).items()}
WIDE = 8  # pixels of a line of an image
# Two layers each; the width is the number of features between them.
MODELS: dict[str, Callable[[Sizes], AutoregressiveModel]] = {
    "LSTM": lambda s: RecurrentLM(s.vocabulary, cell="lstm", embedding_size=s.width, hidden_size=s.width, num_layers=2),
    "Transformer": lambda s: TransformerLM(s.vocabulary, model_size=s.width, num_layers=2, context_length=s.length),
    "linear attention": lambda s: TransformerLM(s.vocabulary, model_size=s.width, num_layers=2, attention="linear"),
    "WaveNet": lambda s: WaveNet(s.vocabulary, channels=s.width, blocks=1, layers_per_block=6, skip_channels=s.width),
    "gated PixelCNN": lambda s: GatedPixelCNN((1, s.length // WIDE, WIDE), s.vocabulary, s.width, layers=2),
    "MADE": lambda s: MADE(s.length, [s.width] * 2),
}
# Multiplications and additions of a row that happen inside of fused kernels, where the counter does not see them.
FUSED: dict[str, Callable[[Sizes], int]] = {
    "LSTM": lambda s: 2 * s.length * 16 * s.width**2,  # two layers of 4 M × 2 M
    "Transformer": lambda s: 2 * 2 * s.length**2 * s.width,  # two layers, half a square of scores and of averages each
}
WORK = ("training", "scoring", "sampling", "compression")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    base, ranges = (TINY, QUICK) if options.quick else (BASE, RANGES)
    rows = []
    for name in options.model or MODELS:
        for size, values in ranges.items():
            for value in values if has(name, size) else ():
                changed = {size: value, "rows": value} if size == "batch" else {size: value}
                sizes = replace(base, **changed)
                for work in WORK:
                    costs = cost(MODELS[name], sizes, work, 1 if options.quick else options.rounds)
                    if work == "scoring":
                        costs["million operations"] += sizes.rows * FUSED.get(name, lambda _: 0)(sizes) / 1e6
                    rows.append({"model": name, "work": work, "size": size, **asdict(sizes), **costs})
                    print(f"{name}, {work}, {size} {value}: {costs['ms']:.3g} ms", file=sys.stderr)
    if options.quick or options.model:
        for row in exponents(rows):
            print(row)
        return
    publish("cost", rows, [])
    path, text = page()
    path.write_text(text, encoding="utf-8")
    pictures()


def has(model: str, size: str) -> bool:
    """Return whether a size applies to a model: a MADE of binary columns has no vocabulary."""
    return (model, size) != ("MADE", "vocabulary")


def cost(make: Callable[[Sizes], AutoregressiveModel], sizes: Sizes, work: str, rounds: int) -> dict[str, Any]:
    """Milliseconds, megabytes and operations of one piece of work."""
    torch.manual_seed(0)
    model = make(sizes).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        x = model.sample(sizes.rows, length=None if model.sequence_length else sizes.length, generator=generator)

    def train() -> None:
        for part in x.split(sizes.batch):
            model.train().log_prob(part).mean().neg().backward()
            model.zero_grad()

    def score() -> None:
        with torch.no_grad():
            for part in x.split(sizes.batch):
                model.log_prob(part)

    def sample() -> None:
        length = None if model.sequence_length else sizes.length
        for part in x.split(sizes.batch):
            model.sample(len(part), length=length, generator=generator)

    def compress() -> None:
        for part in x.split(sizes.batch):
            encode(model, part)

    ways = {"training": train, "scoring": score, "sampling": sample, "compression": compress}
    way = ways[work]
    counted, seconds = 0, []
    if work == "scoring":
        counted = operations(way)
    else:
        way()
    with Memory() as memory:
        way()
    for _ in range(rounds):
        start = time.process_time()
        way()
        seconds.append(time.process_time() - start)
    return {"ms": 1e3 * min(seconds), "MB": memory.megabytes, "million operations": counted / 1e6}


class Memory:
    """The most memory that the process needs in the block, beyond what it has at its beginning; Linux alone tells."""

    megabytes: float | None = None

    def __enter__(self) -> "Memory":
        self._clear = Path("/proc/self/clear_refs")
        if self._clear.exists():
            ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD: what is freed goes back at once
            self._clear.write_text("5")  # the peak begins anew
            self._before = self._status("VmRSS")
        return self

    def __exit__(self, *_: object) -> None:
        if self._clear.exists():
            self.megabytes = max(self._status("VmHWM") - self._before, 0) / 1024

    def _status(self, name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name))


def exponents(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The exponents of every model, work and size."""
    found = []
    for model, work, size in dict.fromkeys((row["model"], row["work"], row["size"]) for row in rows):
        own = [row for row in rows if (row["model"], row["work"], row["size"]) == (model, work, size)]
        fits = {name: fit(own, size, name) for name in ("ms", "MB", "million operations")}
        found.append({"model": model, "work": work, "size": size, **fits})
    return found


def fit(rows: list[dict[str, Any]], size: str, cost: str) -> tuple[float, float] | None:
    """b of cost ∝ size^b and its standard error, over the larger half of the sizes; None without three points."""
    least = LEAST_MEMORY if cost == "MB" else 0
    points = [(math.log(row[size]), math.log(row[cost])) for row in rows if (row[cost] or 0) > least]
    points = points[-max(3, (len(rows) + 1) // 2) :]
    if len(points) < 3:
        return None
    mean_x, mean_y = (sum(part) / len(points) for part in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    errors = sum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
    return slope, math.sqrt(errors / (len(points) - 2) / spread)


COLOURS = dict(zip(MODELS, ["#0072b2", "#d55e00", "#b07d00", "#009e73", "#a04d85", "#5f646c"], strict=True))
HEADINGS = {
    "length": "length of a sequence",
    "width": "width of the layers",
    "vocabulary": "size of the vocabulary",
    "batch": "rows computed together",
    "rows": "rows of the data",
}
DRAWN = [size for size in HEADINGS if size != "rows"]
LEAST_MEMORY = 1.0  # megabytes, below which pages that are kept or not say more than the model
LABEL_GAP = 0.105  # of a panel's height


def page() -> tuple[Path, str]:
    """docs/cost.md, and what it is to say."""
    result = published()
    fitted, path = exponents(result["rows"]), ROOT / "docs" / "cost.md"
    load = result["machine"]["load"]  # average number of running processes at the end
    columns = ["", *WORK, "arithmetic of scoring", "memory of training"]
    units = [f"{work}, ms" for work in WORK]
    parts = [f"### One row\n\n{table(['', *units, 'memory of training, MB'], at_base(result['rows']))}"]
    parts += [
        f"### By the {heading}\n\n{table(columns, [line(fitted, model, size) for model in MODELS if has(model, size)])}"
        for size, heading in HEADINGS.items()
    ]
    parts.append(
        f"`{result['command']}`, {result['date']}, {machine(result)}. Processor time; the machine's load was {load:g}."
    )
    return path, filled(path, "\n\n".join([*parts, *growth()]))


def growth() -> Iterator[str]:
    """Yield the parts of the page about commands and the size of the data, from the results of growth.py."""
    result: dict[str, Any] = json.loads(result_path("growth").read_text())
    yield "### By the size of the data"
    columns = ["grows", "command", "from", "to", "seconds", "MB", "exponent of time", "of memory"]
    rows = []
    for size, work in dict.fromkeys((row["size"], row["work"]) for row in result["rows"]):
        own = [row for row in result["rows"] if (row["size"], row["work"]) == (size, work)]
        if len(own) < 3:
            continue
        last = own[-1]
        fits = [fit(own, "n", cost) for cost in ("s", "MB")]
        shown = ["" if each is None else f"{each[0]:.2f} ± {each[1]:.2f}".replace("-", "−") for each in fits]
        ends = [
            f"{own[0]['n']:,}",
            f"{last['n']:,}",
            f"{last['s']:.3g}",
            f"{last['MB']:.0f}" if last["MB"] > LEAST_MEMORY else "",
        ]
        rows.append([size, work, *ends, *shown])
    yield table(columns, rows)
    yield f"`{result['command']}`, {result['date']}, {machine(result)}. Processor time and memory at the largest size."


def pictures() -> None:
    """Draw the curves of docs/cost.md."""
    with mpl.rc_context({"font.size": 9, "axes.titlesize": 10, "axes.titlelocation": "left"}):
        for size in DRAWN:
            figure = curves(published()["rows"], size)
            path = ROOT / "docs" / "_static" / f"cost_{size}.png"
            figure.savefig(path, dpi=110)
            Image.open(path).quantize(64).save(path, optimize=True)  # a quarter of the bytes


def published() -> dict[str, Any]:
    """The last full measurement."""
    result: dict[str, Any] = json.loads(result_path("cost").read_text())
    return result


def at_base(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Return the cost of one row at the base sizes."""
    base = {(row["model"], row["work"]): row for row in rows if (row["size"], row["rows"]) == ("rows", BASE.rows)}
    return [
        [
            model,
            *(f"{base[model, work]['ms'] / BASE.rows:.2g}" for work in WORK),
            f"{(base[model, 'training']['MB'] or 0) / BASE.rows:.2g}",
        ]
        for model in MODELS
    ]


def line(fitted: list[dict[str, Any]], model: str, size: str) -> list[str]:
    """One row of a table of exponents."""
    own = {row["work"]: row for row in fitted if (row["model"], row["size"]) == (model, size)}

    def cell(work: str, cost: str) -> str:
        found = own[work][cost]
        return "" if found is None else f"{found[0]:.2f} ± {found[1]:.2f}".replace("-", "−")

    return [model, *(cell(work, "ms") for work in WORK), cell("scoring", "million operations"), cell("training", "MB")]


def curves(rows: list[dict[str, Any]], size: str) -> Figure:
    """A panel for each kind of work, a curve for each model with its name at the end."""
    figure = Figure(figsize=(4.6, 7.6), layout="constrained")
    own = [row for row in rows if row["size"] == size]
    values = sorted({row[size] for row in own})
    for axes, work in zip(figure.subplots(4, 1, sharex=True), WORK, strict=True):
        panel = [row for row in own if row["work"] == work]
        logs = [math.log(row["ms"]) for row in panel]
        low, high = min(logs), max(logs)
        low, high = low - 0.1 * (high - low), high + 0.1 * (high - low)
        ends = {}
        for model, colour in COLOURS.items():
            points = {row[size]: row["ms"] for row in panel if row["model"] == model}
            if points:
                axes.plot(list(points), list(points.values()), color=colour, marker=".")
                ends[model] = (math.log(points[values[-1]]) - low) / (high - low)
        for model, place in spread(ends).items():
            axes.text(1.02, place, model, color=COLOURS[model], transform=axes.transAxes, va="center", fontsize=8.5)
        axes.set(xscale="log", yscale="log", title=f"{work}, ms", ylim=(math.exp(low), math.exp(high)))
        axes.set_xticks(values, [f"{value:,}" for value in values])
        axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5) if high - low < math.log(60) else (1,)))
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.yaxis.set_minor_locator(mpl.ticker.NullLocator())
        axes.grid(color="#d8dade", linewidth=0.5)
        axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel(HEADINGS[size])
    return figure


def spread(places: dict[str, float]) -> dict[str, float]:
    """Heights of labels near their places, which do not cover each other."""
    ordered = sorted(places, key=places.__getitem__)
    heights = {}
    for rank, name in enumerate(ordered):
        below = heights[ordered[rank - 1]] + LABEL_GAP if rank else 0.0
        room = 1 - LABEL_GAP * (len(ordered) - 1 - rank)
        heights[name] = min(max(places[name], below), room)
    return heights


if __name__ == "__main__":
    main()

"""How far an RNN, an LSTM, softmax attention and linear attention learn to look, on the same tasks.

    python benchmarks/long_memory.py [--steps 400] [--distances 10 25 50 100] [--seed 0]

Copy, delayed recall and subject-verb agreement of `chainrule.data.synthetic`: Adam, learning rate 3e-3, 32 fresh rows
a step, gradients clipped to norm 1, until 98% of what memory adds is there or the steps are spent; scored on 500 other
rows. Attention is two Transformer blocks, the recurrences are one layer; all have about as many weights. A distance
that was not learned ends a row. One thread; with no option, the table and the figure of docs/long_memory.md are written
anew.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import matplotlib as mpl
import torch
from matplotlib.figure import Figure
from memory import BATCH, CHECK_EVERY, CLIP_NORM, LEARNING_RATE, SOLVED, TASKS, TEST_ROWS
from memory_page import COLOURS, MARKERS
from side_by_side import machine
from tables import ROOT, replace, table
from torch import Tensor, nn

from chainrule.data.synthetic import SyntheticTask
from chainrule.layers import LSTM, RNN, TransformerStack
from chainrule.state import leaves

UNITS, WIDTH = 64, 32  # of a recurrence, of a Transformer
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "RNN": lambda: RNN(WIDTH, 2 * UNITS),
    "LSTM": lambda: LSTM(WIDTH, UNITS),
    "softmax attention": lambda: TransformerStack(WIDTH, 2, 2),
    "linear attention": lambda: TransformerStack(WIDTH, 2, 2, attention="gated-linear"),
}
TITLES = {"copy": "Copying", "recall": "Delayed recall", "agreement": "Subject–verb agreement"}


class Network(nn.Module):
    def __init__(self, task: SyntheticTask, layer: nn.Module):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(task.input_size, WIDTH), layer
        with torch.no_grad():
            size = layer(torch.zeros(1, 1, WIDTH))[0].shape[2]
        self.output = nn.Linear(size, task.output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.output(self.layer(self.embedding(inputs))[0])


def measure(name: str, task: SyntheticTask, seed: int, steps: int) -> dict[str, float]:
    """What memory adds, 0 at chance and 1 where every answer is right, and what it took."""
    torch.manual_seed(seed)
    network, began, taken = Network(task, LAYERS[name]()), time.process_time(), steps
    training, testing = (torch.Generator().manual_seed(base + seed) for base in (1_000, 2_000))
    optimiser, test = torch.optim.Adam(network.parameters(), LEARNING_RATE), task.sample(TEST_ROWS, testing)
    for step in range(1, steps + 1):
        batch = task.sample(BATCH, training)
        optimiser.zero_grad()
        task.loss(network(batch.inputs), batch).backward()
        nn.utils.clip_grad_norm_(network.parameters(), CLIP_NORM)
        optimiser.step()
        if step % CHECK_EVERY == 0 or step == steps:
            with torch.no_grad():
                right = task.accuracy(network(test.inputs), test)
            gained = (right - task.chance_accuracy) / (1 - task.chance_accuracy)
            if gained >= SOLVED:
                taken = step
                break
    return {"gained": gained, "steps": taken, "seconds": time.process_time() - began}


def state_size(name: str, read: int) -> int:
    """Numbers in the state of one row after so many elements."""
    layer = LAYERS[name]()
    with torch.no_grad():
        _, state = layer(torch.zeros(1, read, WIDTH))
    return sum(leaf.numel() for leaf in leaves(state) if leaf.is_floating_point())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--distances", type=int, nargs="+", default=[10, 25, 50, 100])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for kind in TITLES:
        for name in LAYERS:
            found: dict[int, dict[str, float]] = {}
            for distance in options.distances:
                found[distance] = measure(name, TASKS[kind](distance), options.seed, options.steps)
                if found[distance]["gained"] < 0.5:
                    break
            rows.append({"task": kind, "layer": name, "found": found})
            shown = "  ".join(f"{d}: {100 * of['gained']:.0f}% in {of['steps']}" for d, of in found.items())
            print(f"{kind:10} {name:18} {sum(of['seconds'] for of in found.values()):5.1f} s   {shown}", flush=True)
    if len(sys.argv) == 1:
        publish(rows, options.distances)


def publish(rows: list[dict[str, Any]], distances: list[int]) -> None:
    facts = machine()
    parts = [
        f"`python benchmarks/long_memory.py`, seed 0, {facts['cpu']}, 1 thread, torch {facts['torch']}; "
        f"{sum(of['seconds'] for row in rows for of in row['found'].values()):.0f} core seconds in all."
    ]
    for kind, title in TITLES.items():
        lines = []
        for row in (row for row in rows if row["task"] == kind):
            learned = [distance for distance, of in row["found"].items() if of["gained"] >= 0.5]
            cells = [
                f"{100 * of['gained']:.0f}% ({of['steps']:.0f})" if (of := row["found"].get(distance)) else "–"
                for distance in distances
            ]
            lines.append([row["layer"], str(max(learned, default="none")), *cells])
        parts.append(f"**{title}**\n\n{table(['', 'learned', *(f'at {d}' for d in distances)], lines)}")
    sizes = [
        [
            name,
            f"{sum(weight.numel() for weight in make().parameters()):,}",
            *(f"{state_size(name, read):,}" for read in (10, 100, 256, 1000)),
        ]
        for name, make in LAYERS.items()
    ]
    columns = ["", "weights", *(f"after {read}" for read in (10, 100, 256, 1000))]
    parts.append(f"**Numbers in the state of a row**\n\n{table(columns, sizes)}")
    replace(ROOT / "docs" / "long_memory.md", "\n\n".join(parts))
    with mpl.rc_context({"svg.hashsalt": "long memory", "svg.fonttype": "path", "font.size": 9}):
        drawing = figure(rows, distances)
        drawing.savefig(ROOT / "docs" / "_static" / "long_memory.svg", metadata={"Date": None})


def figure(rows: list[dict[str, Any]], distances: list[int]) -> Figure:
    """What memory adds against distance: a panel for each task."""
    drawing = Figure(figsize=(9.5, 3.1), layout="constrained")
    panels = drawing.subplots(1, len(TITLES), sharex=True, sharey=True)
    for panel, (kind, title) in zip(panels, TITLES.items(), strict=True):
        for row, colour, marker in zip((row for row in rows if row["task"] == kind), COLOURS, MARKERS, strict=False):
            found = {distance: of["gained"] for distance, of in row["found"].items()}
            panel.plot(
                list(found), list(found.values()), color=colour, marker=marker, markersize=5, linewidth=1.6,
                label=row["layer"], markerfacecolor="white", clip_on=False,
            )  # fmt: skip
        panel.set_title(title)
        panel.set_xscale("log")
        panel.set_xticks(distances, [str(distance) for distance in distances])
        panel.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        panel.set_ylim(-0.05, 1.02)
        panel.set_xlabel("distance, steps")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color="#e5e5e5", linewidth=0.7)
    panels[0].set_ylabel("what memory adds")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
    return drawing


if __name__ == "__main__":
    main()

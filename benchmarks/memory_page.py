"""The figures and the table of docs/synthetic.md, from benchmarks/results/memory.json.

python benchmarks/memory_page.py [--format svg]
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tables import ROOT, machine, replace, table

Row = dict[str, Any]
TITLES = {
    "recall": "Delayed recall",
    "agreement": "Subject–verb agreement",
    "adding": "Adding problem",
}
CHANCE = {"recall": 1 / 8, "agreement": 1 / 2, "adding": 0.0784}
PREDICTIONS = ("before training", "after 100 batches")
COLOURS = ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7"]  # told apart with any colour vision (Okabe and Ito)
MARKERS = ["o", "s", "^", "D", "v"]
PROBED = 1000
NONE = 1.6  # where "learned at no distance" is drawn


def main(suffix: str = "svg", folder: Path = ROOT / "docs" / "_static") -> None:
    result = json.loads((ROOT / "benchmarks" / "results" / "memory.json").read_text())
    rows = result["rows"]
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "memory", "svg.fonttype": "path", "font.size": 9, "axes.titlesize": 10}):
        for name, figure in (("accuracy", accuracies(rows)), ("distance", distances(rows))):
            metadata = {"Date": None} if suffix == "svg" else None
            figure.savefig(folder / f"memory_{name}.{suffix}", metadata=metadata, dpi=110)
    parts = [f"`{result['command']}`, {result['date']}, {machine(result)}."]
    for task in dict.fromkeys(row["task"] for row in rows):
        of_task = [row for row in rows if row["task"] == task]
        at = [column for column in of_task[0] if column.startswith("at ")]
        lines = [
            [
                row["configuration"],
                steps(row["before training"]),
                steps(row["after 100 batches"]),
                str(row["learned"] or "none"),
                steps(row["when learned"]),
                *(value if isinstance(value := row[column], str) else f"{100 * value:.0f}%" for column in at),
            ]
            for row in of_task
        ]
        columns = ["", *PREDICTIONS, "learned", "when learned", *at]
        learned = [row["learned"] for row in of_task]
        before, early = (rank_correlation([row[name] for row in of_task], learned) for name in PREDICTIONS)
        parts.append(
            f"**{TITLES[task]}**: chance {100 * CHANCE[task]:.3g}%; rank correlation of the learned distance with the "
            f"gradients' reach before training {before:.2f}, after 100 batches {early:.2f}\n\n{table(columns, lines)}"
        )
    replace(ROOT / "docs" / "synthetic.md", "\n\n".join(parts))


def rank_correlation(first: list[float], second: list[float]) -> float:
    """Spearman's ρ; equal values share the mean of their ranks."""
    ranks = [
        [sum(b < a for b in values) + sum(b == a for b in values) / 2 for a in values] for values in (first, second)
    ]
    return statistics.correlation(*ranks)


def steps(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"> {0.9 * PROBED:g}" if value >= 0.9 * PROBED else f"{value:.0f}"


def accuracies(rows: list[Row]) -> Figure:
    """Accuracy against distance: a column of panels for each task, a row of panels for each cell."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    cells = list(dict.fromkeys(row["configuration"].split()[0].strip(",") for row in rows))
    figure = Figure(figsize=(11.5, 8.2), layout="constrained")
    panels = figure.subplots(len(cells), len(tasks), sharex=True, sharey=True, squeeze=False)
    for line, cell in zip(panels, cells, strict=True):
        for panel, task in zip(line, tasks, strict=True):
            of_panel = [row for row in rows if row["task"] == task and row["configuration"].startswith(cell)]
            curves(panel, of_panel, CHANCE[task])
            panel.set_title(f"{TITLES[task]}, {cell}")
        line[0].set_ylabel("accuracy")
        legend = line[-1].legend(
            loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, handlelength=2.4, labelspacing=0.9
        )
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
            text.set_color(handle.get_color())
    for panel in panels[-1]:
        panel.set_xlabel("distance, steps")
    return figure


def curves(panel: Axes, rows: list[Row], chance: float) -> None:
    # Lines that fall together stay visible: the later ones are thinner.
    for row, colour, marker, size in zip(rows, COLOURS, MARKERS, (4.2, 3.3, 2.4, 1.6, 0.9), strict=False):
        points = {int(name.split()[1]): value for name, value in row.items() if name[:3] == "at "}
        points = {distance: value for distance, value in points.items() if not isinstance(value, str)}
        panel.plot(
            list(points), list(points.values()), color=colour, marker=marker, markersize=size + 3.5, linewidth=size,
            label=row["configuration"], markerfacecolor="white", clip_on=False,
        )  # fmt: skip
    panel.axhline(chance, color="#777777", linestyle=":", linewidth=1)
    panel.text(5.5, chance - 0.012, "chance", color="#777777", fontsize=8, va="top")
    panel.set_xscale("log")
    panel.set_xlim(5.3, 230)
    panel.set_ylim(0, 1.02)
    ticks = [int(name.split()[1]) for name in rows[0] if name[:3] == "at "]
    panel.set_xticks(ticks, [str(distance) for distance in ticks])
    panel.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", color="#e5e5e5", linewidth=0.7)


def distances(rows: list[Row]) -> Figure:
    """Predicted and learned distance of each configuration: a panel for each task, a line for each configuration."""
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    names = list(dict.fromkeys(row["configuration"] for row in rows))
    figure = Figure(figsize=(11.5, 4.8), layout="constrained")
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        for row in rows:
            if row["task"] != task:
                continue
            place = len(names) - names.index(row["configuration"])
            before, early = (min(row[name], PROBED) for name in PREDICTIONS)
            learned = row["learned"] or NONE
            panel.plot([before, early, learned], [place] * 3, color="#cccccc", linewidth=2, zorder=1)
            panel.plot(before, place, "D", color="#d55e00", markerfacecolor="white", markersize=7.5, zorder=2)
            panel.plot(early, place, "D", color="#d55e00", markersize=4.5, zorder=4)
            panel.plot(learned, place, "o" if row["learned"] else "x", color="#0072b2", markersize=6.5, zorder=3)
        panel.set_title(TITLES[task])
        panel.set_xscale("log")
        panel.set_xlim(1.3, 1400)
        panel.set_xticks(
            [NONE, 3, 6, 10, 20, 50, 100, 200, PROBED], ["none", "3", "6", "10", "20", "50", "100", "200", ">900"]
        )
        panel.tick_params(axis="x", labelsize=8)
        panel.xaxis.set_minor_locator(mpl.ticker.NullLocator())
        panel.set_xlabel("distance, steps")
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(axis="y", length=0)
        panel.grid(axis="x", color="#e5e5e5", linewidth=0.7)
    panels[0].set_yticks(range(len(names), 0, -1), names)
    handles = [
        mpl.lines.Line2D(
            [], [], color="#d55e00", marker="D", markerfacecolor="white", markersize=7.5, linestyle="none"
        ),
        mpl.lines.Line2D([], [], color="#d55e00", marker="D", markersize=4.5, linestyle="none"),
        mpl.lines.Line2D([], [], color="#0072b2", marker="o", markersize=6.5, linestyle="none"),
    ]
    labels = [
        "gradients fall under 1%: before training",
        "after 100 batches at distance 50",
        "learned distance (× none), tried up to 200, adding up to 100",
    ]
    figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", choices=["svg", "png"], default="svg")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "_static")
    options = parser.parse_args()
    main(options.format, options.folder)

"""Charts of the README and the manual, from benchmarks/results: quality by minutes, gains by counts.

python benchmarks/charts.py
"""

import argparse
import json
import re
from dataclasses import dataclass
from statistics import mean
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from tables import ROOT

PEERS = {0.5: "peers_text_0.5m", 3: "peers_text_3m", 10: "peers_text_10m"}
NGRAMS = ("nats, network alone", "nats, with counts")
NANOGPT = {"A100 GPU": 1.4697, "CPU": 1.88}  # nats a character of held-out text, "about 3 minutes" each: its README


@dataclass(frozen=True)
class Scheme:
    """Colours on a light or a dark page."""

    ink: str
    grid: str
    ours: str
    other: str
    published: str


SCHEMES = {
    "light": Scheme("#1b1d21", "#d8dade", "#0072b2", "#c04f00", "#5f646c"),
    "dark": Scheme("#e8e9ea", "#373b41", "#5cb5ec", "#f0914a", "#a3a8b0"),
}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with mpl.rc_context({"svg.hashsalt": "charts", "svg.fonttype": "path", "font.size": 10.5}):
        for name, scheme in SCHEMES.items():
            path = ROOT / "docs" / "_static" / f"minutes_{name}.svg"
            minutes(scheme).savefig(path, metadata={"Date": None}, transparent=True)
            path.write_text(re.sub(r"[ \t]+\n", "\n", path.read_text()))  # matplotlib ends lines with blanks
        ngrams(SCHEMES["light"]).savefig(ROOT / "docs" / "_static" / "ngrams.png", dpi=130)


def result(name: str) -> dict[str, Any]:
    """A published result."""
    read: dict[str, Any] = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
    return read


def best(name: str, run: str) -> float:
    """The least nats a character of the runs of a result whose names begin so."""
    return min(row["nats/char"] for row in result(name)["rows"] if row["run"].startswith(run) and "seed" in row)


def minutes(scheme: Scheme) -> Figure:
    """Curves of the default and of the plain script; points for Transformers and for what nanoGPT publishes."""
    figure = Figure(figsize=(7.6, 3.9), layout="constrained")
    axes = figure.subplots()
    trained = list(PEERS)
    ours = [best(name, "chainrule train") for name in PEERS.values()]
    plain = [best(name, "plain_lstm") for name in PEERS.values()]
    axes.plot(trained, plain, color=scheme.other, marker="s", label="plain LSTM script, the best of three sizes")
    axes.plot(trained, ours, color=scheme.ours, marker="o", linewidth=2.2, label="chainrule train, defaults")
    one_hour = result("quality_text_transformer")["rows"][0]
    transformer = [best("peers_transformer_3m", "chainrule train"), one_hour["test nats/char"]]
    axes.plot([3, one_hour["minutes"]], transformer, color=scheme.ours, marker="D", linestyle="--",
              label="chainrule train --model transformer")  # fmt: skip
    axes.plot(3, best("peers_transformer_3m", "plain_transformer"), color=scheme.other, marker="D", linestyle="none",
              label="plain Transformer script, the best of three")  # fmt: skip
    axes.plot([3, 3], list(NANOGPT.values()), color=scheme.published, marker="*", markersize=11, linestyle="none",
              label=f"published by nanoGPT: {NANOGPT['A100 GPU']} (A100 GPU), {NANOGPT['CPU']} (CPU)")  # fmt: skip
    below = [*zip(trained, ours, strict=True), (one_hour["minutes"], transformer[-1])]
    above = [(trained[end], plain[end], 8) for end in (0, -1)]
    for x, y, rise in [*above, *((*point, -15) for point in below)]:
        axes.annotate(f"{y:.2f}", (x, y), (0, rise), textcoords="offset points", ha="center", color=scheme.ink)
    axes.set_xscale("log")
    axes.set_xticks([0.5, 1, 3, 10, 30, 60], ["30 s", "1 min", "3", "10", "30", "60 min"])
    axes.xaxis.set_minor_locator(mpl.ticker.NullLocator())
    axes.set_xlim(0.42, 80)
    axes.set_ylim(1.3, 2.0)
    axes.set_xlabel("time of training; one CPU thread but for the star at 1.4697")
    axes.set_ylabel("nats per character, unseen text")
    axes.grid(axis="y", color=scheme.grid, linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9.5, labelcolor=scheme.ink)
    axes.tick_params(colors=scheme.ink)
    axes.xaxis.label.set_color(scheme.ink)
    axes.yaxis.label.set_color(scheme.ink)
    for spine in axes.spines.values():
        spine.set_color(scheme.ink)
    return figure


def ngrams(scheme: Scheme) -> Figure:
    """Bars of the nats per symbol that counts save on each text."""
    names = {"shakespeare": "tiny Shakespeare", "ptb": "Penn Treebank, words", "python": "Python source code",
             "log": "a server log", "russian": "Sphinx messages, Russian"}  # fmt: skip
    rows = result("quality_ngrams_1m")["rows"]
    means = {
        text: [mean(row[column] for row in rows if row["text"] == text) for column in NGRAMS]
        for text in dict.fromkeys(row["text"] for row in rows)
    }
    means = dict(sorted(means.items(), key=lambda pair: pair[1][0] - pair[1][1]))
    figure = Figure(figsize=(7.6, 2.3), layout="constrained")
    axes = figure.subplots()
    gains = [alone - mixed for alone, mixed in means.values()]
    bars = axes.barh([names[text] for text in means], gains, color=scheme.ours, height=0.62)
    axes.bar_label(bars, [f"{alone:.3f} → {mixed:.3f} nats" for alone, mixed in means.values()], padding=4)
    axes.set_xlim(0, 1.45 * max(gains))
    axes.set_xticks([])
    axes.set_title("Nats per symbol: the network alone → mixed with counts of n-grams", fontsize=10.5, loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return figure


if __name__ == "__main__":
    main()

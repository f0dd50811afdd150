"""Train the small runs that `chainrule demo` shows, into chainrule_app/demo: six tasks, at most 3 MB together.

    python benchmarks/demo_runs.py [NAME ...]

Their data come with Python, the time zone database and scikit-learn, or are generated here; each run has its seed, and
its length in steps, so that the same machine trains the same weights.
"""

import argparse
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import numpy as np
import pandas as pd

import chainrule
from chainrule_app import builtin_text

HOME = Path(__file__).parents[1] / "chainrule_app" / "demo"
MOST_BYTES = 3_000_000


def manual(out: Path) -> None:
    """The first part of Python's own manual of its statements, read by characters."""
    text = builtin_text()[:300_000]
    chainrule.fit(
        text=text,
        out=out,
        plain=True,
        ngram_order=1,
        hidden_size=160,
        embedding_size=32,
        num_layers=1,
        dropout=0.1,
        batch_size=32,
        steps=2000,
    )


def cities(out: Path) -> None:
    """Names of cities and places, from the names of time zones."""
    names = {zone.rpartition("/")[2].replace("_", " ") for zone in available_timezones() if "/" in zone}
    lines = sorted(name for name in names if name.replace(" ", "").replace("-", "").isalpha())
    shuffled = np.random.default_rng(0).permutation(lines)
    chainrule.fit(
        text="\n".join(shuffled) + "\n",
        out=out,
        reading="lines",
        plain=True,
        ngram_order=1,
        hidden_size=64,
        embedding_size=16,
        dropout=0.3,
        steps=600,
    )


def digits(out: Path) -> None:
    """Written digits, 8 × 8 pixels, with their labels."""
    from sklearn.datasets import load_digits

    data = load_digits()
    chainrule.fit(data.images.astype(np.uint8), labels=data.target, task="classify", out=out, channels=16, steps=600)


def flowers(out: Path) -> None:
    """Irises: four measures and the species."""
    from sklearn.datasets import load_iris

    data = load_iris(as_frame=True)
    frame = data.data.rename(columns=lambda name: name.removesuffix(" (cm)").replace(" ", "_"))
    frame["species"] = data.target_names[data.target]
    chainrule.fit(frame, out=out, hidden_size=64, steps=600)


def visitors(out: Path) -> None:
    """Visitors of a museum, a day a row, generated: more at weekends and in summer, slowly growing."""
    random = np.random.default_rng(0)
    days = pd.date_range("2022-01-01", periods=1400, freq="D")
    level = 300 + 0.05 * np.arange(len(days)) + 90 * np.sin(2 * np.pi * (days.dayofyear - 100) / 365)
    counts = random.poisson(level * np.where(days.dayofweek >= 5, 1.6, 1.0) * random.lognormal(0, 0.06, len(days)))
    frame = pd.DataFrame({"date": days, "visitors": counts})
    chainrule.fit(frame, task="forecast", horizon=28, out=out, hidden_size=32, steps=600)


def tunes(out: Path) -> None:
    """Tunes in two voices, generated: a melody by steps over the chords of a cadence."""
    random = np.random.default_rng(0)
    scale = np.array([0, 2, 4, 5, 7, 9, 11])
    pieces = []
    for _ in range(80):
        roll, degree = np.zeros((128, 88)), int(random.integers(0, 7))
        for beat in range(32):
            chord = (0, 3, 4, 0)[beat // 4 % 4]
            if beat % 2 == 0:
                roll[4 * beat : 4 * beat + 7, 27 + scale[chord % 7]] = 1
            stay = beat % 4 == 0
            degree = min(
                max((chord + 2 * int(random.integers(0, 3))) if stay else degree + int(random.integers(-1, 2)), 0), 13
            )
            for half in range(2 if random.random() < 0.3 else 1):
                key = 39 + 12 * ((degree + half) // 7) + scale[(degree + half) % 7]
                start = 4 * beat + 2 * half
                roll[start : start + (2 if half else 3), key] = 1
        pieces.append(roll)
    chainrule.fit(pieces, task="music", out=out, hidden_size=48, steps=400)


RUNS: dict[str, Callable[[Path], Any]] = {
    "manual": manual, "cities": cities, "digits": digits, "flowers": flowers, "visitors": visitors, "tunes": tunes,
}  # fmt: skip
# What the demo does not need.
UNUSED = ("checkpoint*", "timings.jsonl", "samples.jsonl", "sample*", "preview*", "report.html", "*.png", "*.mid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*RUNS, []], help="runs to train; all by default")
    for name in parser.parse_args().names or RUNS:
        out = HOME / name
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(exist_ok=True)
        RUNS[name](out)
        for pattern in UNUSED:
            for path in out.glob(pattern):
                path.unlink() if path.is_file() else shutil.rmtree(path)
        metrics = out / "metrics.jsonl"
        records = [line for line in metrics.read_text().splitlines(True) if json.loads(line)["event"] != "step"]
        metrics.write_text("".join(records))
    sizes = {
        path.name: sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        for path in sorted(HOME.iterdir())
        if path.is_dir()
    }
    print(json.dumps(sizes))
    if sum(sizes.values()) > MOST_BYTES:
        raise SystemExit(f"expected at most {MOST_BYTES:,} bytes, got {sum(sizes.values()):,}")


if __name__ == "__main__":
    main()

"""A text's model averaged with counts of n-grams, as `chainrule train` does, beside the model alone: held-out nats.

    python benchmarks/quality_ngrams.py [--text ptb ...] [--minutes 1] [--seeds 1] [--data FOLDER] [--log FILE]

The texts are those of `default_rule.py`. Both runs have the same minutes; the one alone is told `--kneser-ney-order 0`.
The share of the counts is the one number of the mean that is fitted to the held-out text.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

from default_rule import TEXTS
from peer_tasks import chainrule
from side_by_side import claim, publish

from chainrule_app import open_run

LEAST = 0.02  # nats a symbol that counts are worth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", choices=TEXTS, nargs="+", default=list(TEXTS))
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="so many runs of each, seeds 0, 1, ...")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--log", type=Path, default=Path("/var/log/dpkg.log"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    for text in options.text:
        try:
            parts = TEXTS[text](options)
        except (FileNotFoundError, ImportError) as error:
            print(f"{text}: skipped: {error}")
            continue
        with tempfile.TemporaryDirectory() as directory:
            found = [measure(text, parts, Path(directory), options, seed) for seed in range(options.seeds)]
        rows += found
        gain = sum(row["nats, network alone"] - row["nats, with counts"] for row in found) / len(found)
        what = f"{text}, {options.minutes:g} min: validation nats per symbol gained by n-gram counts"
        claims.append(claim(what, gain, ">=", LEAST))
        publish(f"quality_ngrams_{options.minutes:g}m", rows, claims)


def measure(text: str, parts: Any, folder: Path, options: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Train both on one text; a row of the table."""
    for part, content in zip(("train.txt", "valid.txt"), parts, strict=True):
        (folder / part).write_text(content, encoding="utf-8")
    level = ["--level", "word"] if text == "ptb" else []
    row: dict[str, Any] = {"text": text, "seed": seed}
    for name, asked in (("network alone", ["--kneser-ney-order", "0"]), ("with counts", [])):
        run, budget = folder / "run", f"{60 * options.minutes:g}s"
        given = ["--validation", folder / "valid.txt", "--budget", budget, "--seed", seed, "--out", run, "--overwrite"]
        (summary,) = chainrule("train", folder / "train.txt", *level, *asked, *map(str, given))
        row |= {f"nats, {name}": summary["nats_per_element"], f"steps, {name}": summary["steps"]}
    model, size = open_run(run).model(), (run / "ngrams.safetensors").stat().st_size
    return row | {
        "order": model.companion.ngrams.order,
        "share of the counts": float(model.share),
        "their file, bytes": size,
    }


if __name__ == "__main__":
    main()

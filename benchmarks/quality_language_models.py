"""Language models trained by the command line on published text, scored on text that decided nothing.

    python benchmarks/quality_language_models.py [--only shakespeare-3m] [--data FOLDER] [--seed 0]

FOLDER holds `tinyshakespeare/input.txt` and `ptb/ptb.{train,valid,test}.txt.gz` (default: ../shared/data, or the
environment variable CHAINRULE_DATA). Tiny Shakespeare: the last 10% of the characters is the test part; the command
sees the first 90% only, and holds out its own tail of that for validation. Penn Treebank: the usual three files. Each
test part is scored once, by the run that validation chose. Runs go to runs/benchmarks and are replaced.
"""

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import claim, publish

RUNS = Path("runs/benchmarks")
JOBS: dict[str, dict[str, Any]] = {
    "shakespeare-3m": {
        "what": "tiny Shakespeare, test nats/char, defaults, 3 minutes",
        "options": "--budget 3m",
        "target": 1.48,
    },
    "shakespeare-60m": {
        "what": "tiny Shakespeare, test nats/char, at most 60 minutes",
        "options": "--budget 7m --dropout 0.5",
        "target": 1.44,
    },
    "ptb": {
        "what": "Penn Treebank, test perplexity, LSTM 2×200, under an hour",
        "options": "--level word --budget 24m --num-layers 2 --hidden-size 200 --tie-weights --dropout 0.25 "
        "--chunk-length 35 --learning-rate 4e-3",
        "target": 110,
    },
}


def chainrule(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run one verb; progress goes to the screen, its JSON lines come back."""
    command = [sys.executable, "-m", "chainrule", *map(str, arguments), "--json"]
    print("$ chainrule", *map(str, arguments), flush=True)
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [json.loads(line) for line in output.splitlines()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=JOBS, action="append")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for name in options.only or JOBS:
        with tempfile.TemporaryDirectory() as folder:
            files = parts(name, options.data, Path(folder))
            if files is None:
                print(f"{name}: skipped, {options.data} has no such text: name the folder with --data")
                continue
            row, reached = measure(name, files, options.seed)
            publish(f"quality_{name.replace('-', '_')}", [row], [reached])


def measure(name: str, files: dict[str, Path], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train, score the test part once; the row of figures and the claim."""
    job, run = JOBS[name], RUNS / name
    held_out = ["--validation", files["valid"]] if "valid" in files else []
    (trained,) = chainrule(
        "train", files["train"], "--out", run, "--overwrite", "--seed", str(seed), *held_out, *job["options"].split()
    )
    (scored,) = chainrule("score", run, files["test"], "--per", "file")
    row = {
        "text": name,
        "options": job["options"],
        "seed": seed,
        "threads": int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)),
        "minutes": trained["seconds"] / 60,
        "elements read, millions": trained["elements"] / 1e6,
        "valid nats": trained["nats_per_element"],
        "test elements": scored["elements"],
        "test nats": scored["nats"] / scored["elements"],
        "test bits": scored["bits_per_element"],
        "test perplexity": scored["perplexity"],
    }
    measured = row["test perplexity" if name == "ptb" else "test nats"]
    return row, claim(job["what"], measured, "<=", job["target"])


def parts(name: str, data: Path, folder: Path) -> dict[str, Path] | None:
    """The text's parts as plain files in `folder`; None where the data set is absent."""
    if name.startswith("shakespeare"):
        source = data / "tinyshakespeare" / "input.txt"
        if not source.exists():
            return None
        text = source.read_text(encoding="utf-8")
        cut = int(len(text) * 0.9)
        contents = {"train": text[:cut], "test": text[cut:]}
    else:
        sources = {part: data / "ptb" / f"ptb.{part}.txt.gz" for part in ("train", "valid", "test")}
        if not all(source.exists() for source in sources.values()):
            return None
        contents = {part: gzip.decompress(source.read_bytes()).decode() for part, source in sources.items()}
    files = {part: folder / f"{part}.txt" for part in contents}
    for part, content in contents.items():
        files[part].write_bytes(content.encode())
    return files


if __name__ == "__main__":
    main()

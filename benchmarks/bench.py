"""Compare twelve speeds with the published ones: `make bench`, under five minutes on an idle core.

    python benchmarks/bench.py [--only STREAM ...]

Each script runs as it does for a publication, but for fewer rounds, and what it writes goes into a temporary folder. A
figure is within what is published if it lies in the range over all processors measured, or within a tenth of its ends.
The exit status is 0 whatever the figures are; `make bench-all` measures everything anew and publishes it.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from side_by_side import machine, result_path, shown

HERE = Path(__file__).parent
SCRIPTS = {
    "speed_recurrent_training.py --rounds 5 --hidden 256": (
        "LSTM: training speed ÷ torch.nn's",
        "GRU: training speed ÷ torch.nn's",
        "tanh RNN: training speed ÷ torch.nn's",
    ),
    "speed_streaming.py --rounds 3": (
        "LSTM 1×256, batch 1: steps/s ÷ plain matrix-vector products",
        "LSTM 2×1024, batch 1: steps/s ÷ plain matrix-vector products",
        "two LSTMs and n-gram counts, batch 1: characters a second ÷ plain steps",
    ),
    "speed_wavenet.py --rounds 3 --batch 1": ("WaveNet, 20 layers, batch 1: samples a second of a stream",),
    "speed_attention.py --rounds 1 --part generation": (
        "generation 6×384, 512 elements, batch 1: elements/s ÷ Hugging Face GPT-2",
    ),
    "sampling.py --rounds 2 --model 'gated PixelCNN 28×28' --model 'MADE, 784 columns, 500 units'": (
        "gated PixelCNN 28×28, batch 64: pass ratio (sample ÷ log_prob)",
        "MADE, 784 columns, 500 units, batch 256: pass ratio (sample ÷ log_prob)",
    ),
    "speed_data.py --rounds 3": (
        "table of 10 columns: rows scored a second",
        "CSV of 10 columns: MB prepared a second",
    ),
}
TWELVE = [what for rows in SCRIPTS.values() for what in rows]
TOLERANCE = 0.1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="scripts whose call has one of these")
    options = parser.parse_args()
    claims = published()
    lines = [("", "measured", "published", "target", "")]
    for call, rows in SCRIPTS.items():
        if any(part.lower() in call.lower() for part in options.only):
            measured = run(call)
            lines += [(what, *compared(measured.get(what), claims[what])) for what in rows]
    for line in lines:
        print(f"{line[0]:74} {line[1]:>9}  {line[2]:>17}  {line[3]:>8}  {line[4]}".rstrip())
    here = machine()
    print(f"{here['cpu']}, 1 thread of {here['cores']} cores")


def published() -> dict[str, dict[str, Any]]:
    """The claims of the twelve rows, by what they say."""
    results = (json.loads(path.read_text()) for path in result_path("").parent.glob("s*.json"))
    claims = {claim["what"]: claim for result in results for claim in result["claims"]}
    return {what: claims[what] for what in TWELVE}


def run(call: str) -> dict[str, dict[str, Any]]:
    """Run a script, and read the claims that it would publish."""
    script, *arguments = shlex.split(call)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / script), *arguments]
        subprocess.run(command, check=True, stdout=sys.stderr, env=os.environ | {"BENCHMARK_RESULTS": folder})
        (written,) = Path(folder).glob("*.json")
        return {claim["what"]: claim for claim in json.loads(written.read_text())["claims"]}


def compared(measured: dict[str, Any] | None, claim: dict[str, Any]) -> tuple[str, str, str, str]:
    """A measured figure, the published range, the target, and whether the figure is within the range."""
    if measured is None:
        return "–", claim["measured"], claim["target"], "not measured: its peer is not installed"
    value = measured["measurements"][-1]["value"]
    values = [each["value"] for each in claim["measurements"]]
    if min(values) * (1 - TOLERANCE) <= value <= max(values) * (1 + TOLERANCE):
        verdict = "within"
    else:
        verdict = f"outside, {'better' if (value > max(values)) == claim['target'].startswith('≥') else 'worse'}"
    return shown([value], claim["unit"]), claim["measured"], claim["target"], verdict


if __name__ == "__main__":
    main()

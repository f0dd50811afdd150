"""Characters of tiny Shakespeare by the usual Transformer in an hour: the last tenth of the text is scored once.

    python benchmarks/quality_text_transformer.py [--minutes 60] [--data FOLDER] [--run RUN]

FOLDER holds `tinyshakespeare/input.txt` (default: ../shared/data, or the environment variable CHAINRULE_DATA). The
first 90% are trained on by `chainrule train --model transformer --budget 60m`, which holds out their end; nothing else
is named. `--run`: score a run that such a command trained, in place of training.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path

from peer_tasks import chainrule, transformer
from side_by_side import claim, publish

MOST = 1.47  # nats a character


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--run", type=Path)
    options = parser.parse_args()
    source = options.data / "tinyshakespeare" / "input.txt"
    if not source.exists():
        print(f"skipped, there is no {source}: name the folder with --data")
        return
    with tempfile.TemporaryDirectory() as folder:
        task = transformer(options.data, Path(folder))
        run = options.run or Path("runs/benchmarks/shakespeare_transformer")
        if options.run is None:
            chainrule("train", *task.train, "--budget", f"{options.minutes:g}m", "--out", run, "--overwrite")
        nats = task.test(run)
    (facts,) = chainrule("info", run)
    last = json.loads((run / "timings.jsonl").read_text().splitlines()[-1])
    shape = facts["model"]["options"]
    row = {
        "size": f"{shape['num_layers']} × {shape['model_size']}",
        "parameters": facts["parameters"],
        "minutes": last["elapsed"] / 60,
        "steps": facts["step"],
        "held-out nats/char": facts["likelihood"]["nats_per_element"],
        "test nats/char": nats,
    }
    what = f"tiny Shakespeare, --model transformer, {options.minutes:g} min: test nats/char"
    publish("quality_text_transformer", [row], [claim(what, nats, "<=", MOST)])


if __name__ == "__main__":
    main()

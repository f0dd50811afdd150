"""Difference in nats a sample between a WaveNet and its weights rounded to float16, on sounds that trained nothing.

    python benchmarks/half_weights.py [--data FOLDER] [--steps 400] [--files 100]

Trains `--steps` steps of a WaveNet with the default options on the spoken digits (fsdd), scores recordings of its test
part with the trained weights and with all matrices rounded, as `chainrule sample --half-weights` does, and prints both,
their difference, and the ratio of the times in which each draws one long sound by turns.
"""

import argparse
import statistics
import tarfile
import time
from collections import deque
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import Any

import soundfile
import torch
from tables import ROOT

import chainrule
from chainrule.models import WaveNet


@torch.no_grad()
def rounded(model: WaveNet) -> WaveNet:
    """Return a copy whose matrices are rounded to float16."""
    copy = deepcopy(model)
    for parameter in copy.parameters():
        if parameter.dim() > 1:
            parameter.copy_(parameter.half().float())
    return copy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--files", type=int, default=100)
    options = parser.parse_args()
    torch.set_num_threads(1)
    digits = options.data / "fsdd"
    length: dict[str, Any] = {"steps": options.steps, "validate_every": options.steps}
    run = chainrule.fit(digits / "train_5-19.tar.gz", task="sound", threads=1, samples=False, **length)
    exact = run.model
    models = {"float32": exact, "float16": rounded(exact)}
    nats, count = dict.fromkeys(models, 0.0), 0
    with tarfile.open(digits / "test_0-4.tar.gz") as archive, torch.no_grad():
        test = [member for member in archive.getmembers() if member.name.endswith(".wav")][: options.files]
        for member in test:
            file = archive.extractfile(member)
            x = torch.from_numpy(run.task.levels.encode(soundfile.read(file, dtype="float32")[0]))[None]
            count += x.shape[1]
            for name, model in models.items():
                nats[name] += -float(model.log_prob(x))
    each = {name: value / count for name, value in nats.items()}
    print(f"{len(test)} recordings, {count:,} samples, nats a sample: {each['float32']:.6f} in float32")
    print(f"rounded to float16: {each['float16'] - each['float32']:+.2e} nats a sample")
    streams = {name: model.stream(1, count=10**9) for name, model in models.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for stream in streams.values():
        deque(islice(stream, 2000), 0)
    for _ in range(15):
        for name, stream in streams.items():
            start = time.process_time()
            deque(islice(stream, 400), 0)
            seconds[name].append(time.process_time() - start)
    ratio = statistics.median(a / b for a, b in zip(seconds["float32"], seconds["float16"], strict=True))
    print(f"drawing one long sound: float32 ÷ float16 {ratio:.2f}")


if __name__ == "__main__":
    main()

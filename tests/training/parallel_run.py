"""Run as a script by each of several processes: trains on this process's rows of chunks, then of lines.

Usage: parallel_run.py DIRECTORY
"""

import sys
from pathlib import Path

import torch
from training_toy import ToyLines, ToyModel, ToyStream, held_out, options

from chainrule.training import save_weights, train
from chainrule.training.parallel import processes


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    with processes("cpu") as team:
        shard = (team.rank, team.world)
        for kind, batches in (("stream", ToyStream(shard=shard)), ("lines", ToyLines(shard=shard))):
            model = ToyModel(dropout=0.0, seed=team.rank)  # only the first process's weights count
            train(model, batches, held_out, options(), directory / kind, progress=False)
            save_weights(directory / f"{kind}-{team.rank}" / "weights", model, {})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

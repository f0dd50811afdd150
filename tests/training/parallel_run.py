"""Run as a script by each of several processes: trains on this process's rows of chunks, then of lines, then is
interrupted.

Usage: parallel_run.py DIRECTORY
"""

import os
import signal
import sys
from pathlib import Path

import sharded_gradients
import torch
from training_toy import ToyBatch, ToyLines, ToyModel, ToyStream, held_out, of_kind, options

from chainrule.training import Interrupted, Processes, _optimiser, save_weights, train

FAMILIES = ["RecurrentLM, 3 rows", "TransformerLM, 1 rows", "GatedPixelCNN, 3 rows", "an LSTM that is divided itself"]


class Signalled(ToyStream):
    """The second process is told twice to stop, as torchrun and a terminal do; the first one is not."""

    def at(self, step: int) -> ToyBatch:
        if step == 6 and os.environ["RANK"] == "1":
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(os.getpid(), number)
        return super().at(step)


def main(directory: Path) -> None:
    torch.set_num_threads(1)
    _optimiser.LARGE = 2  # so that the processes share the work of all blocks
    with Processes.join("cpu") as process_group:
        shard = (process_group.rank, process_group.world)
        module = torch.nn.Linear(1, 1)
        module.register_buffer("table", torch.full((2,), 7.0 + process_group.rank), persistent=False)
        distributed = process_group.distribute(module)
        module.get_buffer("table").add_(process_group.rank)  # from here on it is each one's own
        distributed(torch.ones(1, 1)).sum().backward()
        (directory / f"table-{process_group.rank}").write_text(str(module.get_buffer("table").tolist()))
        for kind, batches in (
            ("stream", ToyStream(shard=shard)),
            ("lines", ToyLines(shard=shard)),
            ("uneven stream", ToyStream(5, shard=shard)),
            ("one line", ToyLines(1, shard=shard)),  # the second process has none
            ("muon", ToyStream(shard=shard)),
        ):
            model, settings = of_kind(kind, seed=process_group.rank)  # only the first process's weights count
            train(model, batches, held_out, settings, directory / kind, progress=False)
            save_weights(directory / f"{kind}-{process_group.rank}" / "weights", model, {})
        model = ToyModel(dropout=0.0, seed=process_group.rank)
        settings = options(shard=True)
        train(model, ToyStream(shard=shard), held_out, settings, directory / "sharded", progress=False)
        save_weights(directory / f"sharded-{process_group.rank}" / "weights", model, {})
        sharded_gradients.main(directory, FAMILIES, process_group)
        try:
            train(ToyModel(), Signalled(shard=shard), held_out, options(), directory / "interrupted", progress=False)
        except Interrupted as stop:
            (directory / f"interrupted-{process_group.rank}").write_text(str(stop.step))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

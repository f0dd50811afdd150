"""Run as a script by each of several processes: writes the bytes that tensors hold after a backward pass.

Usage: held_memory.py DIRECTORY SHARD
"""

import sys
from pathlib import Path

import torch
from training_toy import SYMBOLS, ToyStream, held_out, options

from chainrule.devices import process_shard
from chainrule.models import RecurrentLM
from chainrule.training import train

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from sharded_memory import Held


def main(directory: Path, shard: bool) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    held, model = Held(), RecurrentLM(SYMBOLS, hidden_size=256, embedding_size=256, num_layers=2)
    weights = sum(weight.numel() for weight in model.parameters())
    batches = ToyStream(shard=process_shard())
    settings = options(steps=3, validate_every=3, shard=shard)
    train(model, batches, held_out, settings, directory / f"shard={shard}", callbacks=[held], progress=False)
    if process_shard()[0] == 0:
        (directory / f"held with shard={shard}").write_text(str(held.most / weights))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "True")

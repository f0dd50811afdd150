"""Run as a script by each of several processes: starts a run with divided weights, or goes on with it.

Usage: sharded_training.py DIRECTORY STEPS LORA_RANK
"""

import sys
from pathlib import Path

import torch
from training_toy import SYMBOLS, ToyStream, held_out, options

from chainrule.devices import process_shard
from chainrule.models import TransformerLM
from chainrule.training import train


def main(directory: Path, steps: int, rank: int) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TransformerLM(SYMBOLS, model_size=8, num_layers=2, num_heads=2)
    settings = options(steps=steps, shard=True, lora_rank=rank or None, optimiser="adamw" if rank else "muon")
    train(model, ToyStream(shard=process_shard()), held_out, settings, directory, resume=True, progress=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""Memory of a process that trains with and without `--shard`: two processes, gloo, AdamW in float32.

    python benchmarks/sharded_memory.py [--processes 2] [--million 38]

A Transformer of twelve blocks and an LSTM of two layers with about as many weights are trained for three steps of 64
symbols a process. Printed are figures of the first process, in bytes a weight: how much more a model takes than one of
a quarter of the size. "held" counts the tensors between a backward pass and the update that follows: weights, gradients
and moments. "peak" is the resident memory at its highest: it includes the whole model at the beginning and in
validations, and files that are written. The goal for what is held is 16 / processes with `--shard`, of 16 without.
"""

import argparse
import gc
import json
import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from chainrule.data import Batch
from chainrule.devices import process_shard
from chainrule.models import RecurrentLM, TransformerLM
from chainrule.training import Callback, TrainingOptions, train

VOCABULARY, STEPS = 64, 3


def model_of(name: str, million: float) -> torch.nn.Module:
    """Make a model with about so many million weights, most of them in equal square matrices."""
    layers, squares = (12, 144) if name == "Transformer" else (2, 16)
    width = max(round((million * 1e6 / squares) ** 0.5 / 64), 1) * 64
    if name == "LSTM":
        return RecurrentLM(VOCABULARY, hidden_size=width, embedding_size=width, num_layers=layers)
    return TransformerLM(VOCABULARY, model_size=width, num_layers=layers, num_heads=width // 64)


class Symbols:
    """Chunks of random symbols."""

    steps_per_epoch = STEPS

    def at(self, step: int) -> Batch:
        rank, world = process_shard()
        x = torch.randint(VOCABULARY, (2 * world, 32), generator=torch.Generator().manual_seed(step))
        return Batch(x[rank::world])


def held_out() -> Iterator[Batch]:
    """Yield one batch."""
    yield Symbols().at(STEPS)


class Held(Callback):
    """Most bytes that all tensors hold after the backward pass of a step."""

    most = 0

    def figures(self, step: int, figures: Mapping[str, float]) -> None:
        if "training/nats_per_element" not in figures:
            return
        gc.collect()
        tensors = [item for item in gc.get_objects() if issubclass(type(item), torch.Tensor)]
        parts = [tensor.to_local() if hasattr(tensor, "to_local") else tensor for tensor in tensors]
        storages = [part.untyped_storage() for part in parts]
        self.most = max(self.most, sum({memory.data_ptr(): memory.nbytes() for memory in storages}.values()))


def resident() -> int:
    """Return the most bytes that this process had in memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def worker(name: str, million: float, shard: bool, folder: str) -> None:
    """Train in this process; the first one prints its figures."""
    import torch.distributed.checkpoint
    import torch.distributed.fsdp

    torch.manual_seed(0)
    before, held = resident(), Held()
    model = model_of(name, million)
    weights = sum(weight.numel() for weight in model.parameters())
    options = TrainingOptions(steps=STEPS, validate_every=STEPS, precision="float32", device="cpu", shard=shard)
    train(model, Symbols(), held_out, options, folder, callbacks=[held], progress=False)
    if process_shard()[0] == 0:
        print(json.dumps([weights, held.most, resident() - before]))


def trained(arguments: list[str], processes: int) -> list[int]:
    """Return the figures of the first of some processes."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    shared = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(processes)}
    command = [sys.executable, __file__, "--worker", *arguments]
    workers = [
        subprocess.Popen(
            command,
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]
    printed = [worker.communicate()[0] for worker in workers]
    assert not any(worker.returncode for worker in workers)
    return json.loads(printed[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--models", nargs="+", default=["Transformer", "LSTM"])
    parser.add_argument("--million", type=float, default=38.0, help="weights")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, million, shard, folder = options.worker
        return worker(name, float(million), bool(int(shard)), folder)
    print(f"{'model':12} {'--shard':8} {'weights':>12} {'held':>6} {'peak':>6}   bytes a weight")
    for name in options.models:
        for shard in (0, 1):
            sizes = []
            for million in (options.million / 4, options.million):
                with TemporaryDirectory() as folder:
                    arguments = [name, str(million), str(shard), str(Path(folder) / "run")]
                    sizes.append(trained(arguments, options.processes))
            more, held, peak = (large - small for small, large in zip(*sizes, strict=True))
            weights = sizes[1][0]
            print(
                f"{name:12} {'yes' if shard else 'no':8} {weights:12,} {held / more:6.2f} {peak / more:6.2f}",
                flush=True,
            )
    return None


if __name__ == "__main__":
    main()

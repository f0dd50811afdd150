"""Train four layers to keep a symbol through noise: an LSTM, minGRU, linear attention and the delta rule.

python examples/long_memory.py [STEPS] [DISTANCE ...]
"""

import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from chainrule.data.synthetic import DelayedRecall
from chainrule.layers import LSTM, DeltaNet, LinearAttention, MinGRU
from chainrule.state import leaves

UNITS = 32
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: LSTM(UNITS, UNITS),
    "minGRU": lambda: MinGRU(UNITS, UNITS),
    "linear attention": lambda: LinearAttention(UNITS, num_heads=2),
    "linear attention, gated decay": lambda: LinearAttention(UNITS, num_heads=2, decay="gated"),
    "delta rule": lambda: DeltaNet(UNITS, num_heads=2),
}


class Network(nn.Module):
    """Symbols to scores of the answer at every step, through one layer that runs along the sequence."""

    def __init__(self, task: DelayedRecall, layer: nn.Module):
        super().__init__()
        self.embedding = nn.Embedding(task.input_size, UNITS)
        self.layer = layer
        self.output = nn.Linear(UNITS, task.output_size)

    def forward(self, inputs: Tensor) -> Tensor:
        """(B, T) integers to (B, T, K)."""
        return self.output(self.layer(self.embedding(inputs))[0])


def train(task: DelayedRecall, layer: nn.Module, steps: int) -> Network:
    """Adam on fresh rows."""
    network, source = Network(task, layer), torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(steps):
        batch = task.sample(32, source)
        loss = task.loss(network(batch.inputs), batch)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
    return network


def main(steps: str = "150", *distances: str) -> None:
    """Train every layer at every distance, and test it on rows that it has not seen."""
    print(f"{'layer':30}  distance   right  chance  core s  numbers in the state")
    for distance in map(int, distances or ("20", "80")):
        task = DelayedRecall(distance, symbols=8)
        test = task.sample(500, torch.Generator().manual_seed(1))
        for name, layer in LAYERS.items():
            torch.manual_seed(0)
            began = time.process_time()
            network = train(task, layer(), int(steps))
            seconds = time.process_time() - began
            with torch.no_grad():
                right = task.accuracy(network(test.inputs), test)
            kept = sum(leaf.numel() for leaf in leaves(network.layer.initial_state(1)))
            print(
                f"{name:30}  {distance:8}  {right:5.1%}  {task.chance_accuracy:5.1%}  {seconds:6.1f}  {kept:6}",
                flush=True,
            )


if __name__ == "__main__":
    main(*sys.argv[1:])

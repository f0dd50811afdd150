"""What `gradient_flow` costs on a large recurrence, beside training steps of the same shape, and its peak memory."""

import argparse
import resource
import subprocess
import sys

import torch
from side_by_side import claim, interleaved, median_ratio, publish

from chainrule.diagnostics import gradient_flow
from chainrule.layers import GRU, LSTM, RNN, Recurrent

LAYERS = {"RNN": RNN, "LSTM": LSTM, "GRU": GRU}


def main() -> None:
    """Inspect M units over T steps; the memory is that of a process which does nothing else."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--hidden-size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--memory-of", choices=LAYERS, help="inspect one layer and print the peak in GiB")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.memory_of:
        gradient_flow(*_shape(asked.memory_of, asked))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    rows, claims = [], []
    for name in LAYERS:
        layer, x = _shape(name, asked)
        optimiser = torch.optim.AdamW(layer.parameters())

        def train(layer: Recurrent = layer, x: torch.Tensor = x, optimiser: torch.optim.Optimizer = optimiser) -> None:
            layer(x)[0].square().mean().backward()
            optimiser.step()
            optimiser.zero_grad()

        def inspect(layer: Recurrent = layer, x: torch.Tensor = x) -> None:
            gradient_flow(layer, x)

        seconds = interleaved({"training step": train, "gradient_flow": inspect}, asked.rounds, warmup=1)
        ratio = median_ratio(seconds["gradient_flow"], seconds["training step"])
        alone = subprocess.run(
            [sys.executable, *sys.argv, "--memory-of", name], capture_output=True, text=True, check=True
        )
        peak = float(alone.stdout)
        shape = f"{name} M={asked.hidden_size} T={asked.steps} B={asked.rows}"
        rows.append({"layer": shape, "training steps": ratio, "peak GiB": peak})
        claims.append(claim(f"gradient_flow of {shape}, in training steps", ratio, "<=", 20))
        claims.append(claim(f"gradient_flow of {shape}, peak memory", peak, "<=", 4, " GiB"))
    publish("speed_inspect", rows, claims)


def _shape(name: str, asked: argparse.Namespace) -> tuple[Recurrent, torch.Tensor]:
    torch.manual_seed(0)
    size = asked.hidden_size
    return LAYERS[name](size, size), torch.randn(asked.rows, asked.steps, size)


if __name__ == "__main__":
    main()

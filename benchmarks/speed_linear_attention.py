"""Layers with a state of constant size: training in chunks beside a loop of steps, and the cost of a late step.

    python benchmarks/speed_linear_attention.py [--rounds 7] [--only linear] [--part training] [--part steps]

Training is forward and backward over rows of 1,024 elements, once by `forward` and once by 1,024 calls of `step`, as an
eager loop would do it; outputs and gradients are compared first. A step is the prepared function at batch 1, timed
from the states after 256 and after 16,384 elements by turns. With `--only` or `--part` nothing is published.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import torch
from side_by_side import claim, interleaved, median_ratio, publish, report
from torch import Tensor

from chainrule.layers import DeltaNet, LinearAttention, MinGRU, MinLSTM, SequenceLayer
from chainrule.state import leaves

SIZE, HEADS, TIME = 128, 4, 1024
EARLY, LATE = 256, 16_384
STEPS = 200  # in one timing
LAYERS: dict[str, Callable[[], SequenceLayer]] = {
    "linear": lambda: LinearAttention(SIZE, HEADS),
    "linear, gated decay": lambda: LinearAttention(SIZE, HEADS, decay="gated"),
    "delta rule": lambda: DeltaNet(SIZE, HEADS),
    "min-gru": lambda: MinGRU(SIZE, SIZE),
    "min-lstm": lambda: MinLSTM(SIZE, SIZE),
}


def chunked(layer: SequenceLayer, x: Tensor) -> Tensor:
    return layer(x)[0]


def by_steps(layer: SequenceLayer, x: Tensor) -> Tensor:
    state, outputs = layer.initial_state(len(x)), []
    for x_t in x.unbind(1):
        y_t, state = layer.step(x_t, state)
        outputs.append(y_t)
    return torch.stack(outputs, 1)


def trained(way: Callable[[SequenceLayer, Tensor], Tensor], layer: SequenceLayer, x: Tensor) -> Callable[[], Tensor]:
    def run() -> Tensor:
        layer.zero_grad()
        y = way(layer, x)
        y.square().mean().backward()
        return y

    return run


def train(name: str, layer: SequenceLayer, batch: int, rounds: int) -> tuple[dict[str, Any], float]:
    x = torch.randn(batch, TIME, SIZE)
    ways = {"chunks": trained(chunked, layer, x), "loop": trained(by_steps, layer, x)}
    found = {}
    for way, run in ways.items():
        found[way] = [run().detach(), *(parameter.grad.clone() for parameter in layer.parameters())]
    for ours, expected in zip(found["chunks"], found["loop"], strict=True):
        assert (ours - expected).norm() <= 1e-4 * expected.norm(), f"{name}: chunks and steps disagree"
    seconds = interleaved(ways, rounds, warmup=0)
    ratio = median_ratio(seconds["loop"], seconds["chunks"])
    medians = {f"{way} ms": statistics.median(values) * 1e3 for way, values in seconds.items()}
    return {"layer": name, "work": f"train, T = {TIME}", **medians, "loop ÷ chunks": ratio}, ratio


@torch.no_grad()
def step_on(name: str, layer: SequenceLayer, rounds: int) -> tuple[dict[str, Any], float]:
    step = layer.prepare()
    x = torch.randn(1, LATE, SIZE)
    states = {position: layer(x[:, :position])[1] for position in (EARLY, LATE)}

    def run(position: int) -> None:
        state = states[position]
        for t in range(STEPS):
            _, state = step(x[:, t], state)

    seconds = interleaved({str(position): lambda position=position: run(position) for position in states}, rounds)
    ratio = median_ratio(seconds[str(LATE)], seconds[str(EARLY)])
    sizes = {sum(leaf.numel() for leaf in leaves(state)) for state in states.values()}
    (size,) = sizes  # the same at both positions
    medians = {f"µs at {position}": statistics.median(s) / STEPS * 1e6 for position, s in seconds.items()}
    return {
        "layer": name,
        "work": "step, batch 1",
        **medians,
        "late ÷ early": ratio,
        "numbers in the state": size,
    }, ratio


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=LAYERS, action="append")
    parser.add_argument("--part", choices=["training", "steps"], action="append")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    rows, claims = [], []
    for name in options.only or LAYERS:
        layer = LAYERS[name]()
        if "training" in (options.part or ["training"]):
            row, ratio = train(name, layer, options.batch, options.rounds)
            rows.append(row)
            if not name.startswith("min-"):  # their steps are few operations already
                claims.append(claim(f"{name}: training, loop of steps ÷ chunks, T = {TIME}", ratio, ">=", 10, "×"))
        if "steps" in (options.part or ["steps"]):
            row, ratio = step_on(name, layer, 5 * options.rounds)
            rows.append(row)
            claims.append(claim(f"{name}: a step at {LATE:,} ÷ at {EARLY}", ratio, "<=", 1.05, "×"))
    print(f"N = {SIZE}, {HEADS} heads, training batch {options.batch}, float32, {options.rounds} rounds, medians")
    if options.only or options.part:
        report(rows, claims)
        print("a part of the benchmark: printed, not published")
    else:
        publish("speed_linear_attention", rows, claims)


if __name__ == "__main__":
    main()

"""How far back a recurrent network learns to look, and what its gradients said beforehand.

    python benchmarks/memory.py [--tasks recall adding] [--configurations rnn lstm] [--distances 10 50] [--seeds 0 1]
                                [--steps 1500] [--quick]

One layer of 64 units and a linear output are trained on synthetic tasks at growing distances: Adam,
learning rate 3e-3, 32 fresh rows a step, until 98% of 500 other rows are right or the steps are spent. A configuration
differs from its cell's first one in one thing. Rows of more than 210 elements are not tried, nor anything longer after
two distances in a row that all seeds failed. Beside the learned distance stands what the gradients predict: the steps
after which ‖δ_t‖ / ‖δ_T‖ stays under 1%, for a loss at the last of 1,000 steps, before training and again after its
first 100 batches.

Each network is noted in runs/benchmarks/memory.jsonl when it is done; the same command goes on from there (delete the
file after a change of the code). Where nothing is left out (no option but --seeds), results/memory.json, the figures
and the table of docs/synthetic.md are written anew. One core, two seeds: about half an hour; --quick: a minute.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import memory_page
import torch
from side_by_side import publish
from torch import Tensor, nn
from torch.nn import functional as F

from chainrule.data.synthetic import (
    AddingProblem,
    CopyMemory,
    DelayedRecall,
    Parity,
    SubjectVerbAgreement,
    SyntheticBatch,
    SyntheticTask,
)
from chainrule.diagnostics import backpropagate
from chainrule.layers import GRU, LSTM, RNN, Recurrent

HIDDEN, BATCH, LEARNING_RATE, CLIP_NORM = 64, 32, 3e-3, 1.0
SOLVED, CHECK_EVERY, TEST_ROWS = 0.98, 50, 500
PROBE_LENGTH, PROBE_ROWS, FADED = 1000, 8, 0.01
LONGEST = 210  # elements of a row
EARLY_DISTANCE, EARLY_STEPS = 50, 100
DISTANCES = [6, 10, 20, 50, 100, 200]
NOT_TRIED = "–"
NOTES = Path("runs/benchmarks/memory.jsonl")

TASKS: dict[str, Callable[[int], SyntheticTask]] = {
    "recall": DelayedRecall,
    "agreement": SubjectVerbAgreement,
    "adding": lambda distance: AddingProblem(2 * distance),
    "copy": lambda distance: CopyMemory(distance - 3, payload=3),
    "parity": lambda distance: Parity(distance + 1),
}
PUBLISHED_TASKS = ["recall", "agreement", "adding"]


@dataclass(frozen=True)
class Configuration:
    """A recurrent layer and how it starts and is trained."""

    cell: str
    start: str = "default"  # of W_hh: torch.nn's uniform numbers, or each gate's matrix orthogonal, or the identity
    forget_bias: float = 0.0
    clipped: bool = True

    def layer(self, input_size: int) -> Recurrent:
        """A fresh layer, from the global seed."""
        match self.cell:
            case "LSTM":
                layer: Recurrent = LSTM(input_size, HIDDEN)
                with torch.no_grad():
                    layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] = self.forget_bias
                    layer.bias_hh_l0[HIDDEN : 2 * HIDDEN] = 0
            case "GRU after" | "GRU before":
                layer = GRU(input_size, HIDDEN, reset_after=self.cell == "GRU after")
            case nonlinearity:
                layer = RNN(input_size, HIDDEN, nonlinearity=nonlinearity)
        with torch.no_grad():
            if self.start == "orthogonal":
                for matrix in layer.weight_hh_l0.split(HIDDEN):
                    nn.init.orthogonal_(matrix)
            if self.start == "identity":  # Le, Jaitly and Hinton 2015
                nn.init.eye_(layer.weight_hh_l0)
                for bias in (layer.bias_ih_l0, layer.bias_hh_l0):
                    nn.init.zeros_(bias)
        return layer


CONFIGURATIONS = {
    "RNN tanh": Configuration("tanh"),
    "RNN tanh, orthogonal": Configuration("tanh", "orthogonal"),
    "RNN tanh, no clipping": Configuration("tanh", clipped=False),
    "RNN relu, identity": Configuration("relu", "identity"),
    "RNN relu, identity, no clipping": Configuration("relu", "identity", clipped=False),
    "LSTM, forget bias 1": Configuration("LSTM", forget_bias=1),
    "LSTM, forget bias 0": Configuration("LSTM", forget_bias=0),
    "LSTM, forget bias 4": Configuration("LSTM", forget_bias=4),
    "LSTM, forget bias 1, orthogonal": Configuration("LSTM", "orthogonal", forget_bias=1),
    "LSTM, forget bias 1, no clipping": Configuration("LSTM", forget_bias=1, clipped=False),
    "GRU reset after": Configuration("GRU after"),
    "GRU reset before": Configuration("GRU before"),
    "GRU reset after, orthogonal": Configuration("GRU after", "orthogonal"),
    "GRU reset after, no clipping": Configuration("GRU after", clipped=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=PUBLISHED_TASKS)
    parser.add_argument("--configurations", nargs="+", default=[""], help="those whose name begins with one of these")
    parser.add_argument("--distances", nargs="+", type=int, default=DISTANCES)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--quick", action="store_true", help="three cells, two short distances, one seed, 300 steps")
    options = parser.parse_args()
    if options.quick:
        options.configurations = ["RNN tanh", "LSTM, forget bias 4", "GRU reset after"]
        options.distances, options.seeds, options.steps = [6, 20], [0], 300
    torch.set_num_threads(1)
    beginnings = tuple(beginning.lower() for beginning in options.configurations)
    chosen = [name for name in CONFIGURATIONS if name.lower().startswith(beginnings)]
    if not chosen:
        parser.error(f"--configurations: expected the beginning of one of {', '.join(map(repr, CONFIGURATIONS))}")
    rows = []
    for task in options.tasks:
        for name in chosen:
            rows.append(measure(task, name, sorted(options.distances), options.seeds, options.steps))
            print(summary(rows[-1]), flush=True)
    left_out = any(
        getattr(options, option) != parser.get_default(option) for option in vars(options) if option != "seeds"
    )
    if left_out:
        print("a part of the benchmark: printed, not published")
    else:
        publish("memory", rows, [])
        memory_page.main()


def measure(task: str, name: str, distances: list[int], seeds: list[int], steps: int) -> dict[str, Any]:
    """One row of the table: a configuration on a task, at all distances."""
    row: dict[str, Any] = {"task": task, "configuration": name}
    accuracy: dict[int, float] = {}
    runs: list[dict[str, Any]] = []
    after: list[int | None] = []
    learned, failures, unbroken = 0, 0, True
    for distance in distances:
        built = TASKS[task](distance)
        if failures == 2 or built.length > LONGEST:
            break
        runs = [noted(task, name, distance, seed, steps) for seed in seeds]
        accuracy[distance] = statistics.fmean(run["accuracy"] for run in runs)
        half_way = (1 + built.chance_accuracy) / 2
        failures = failures + 1 if all(run["accuracy"] < half_way for run in runs) else 0
        unbroken = unbroken and accuracy[distance] > half_way
        if unbroken:
            learned = distance
            after = [run["gradient_steps_after"] for run in runs]
    row["before training"] = mean_steps([run["gradient_steps_before"] for run in runs])
    early = [noted(task, name, EARLY_DISTANCE, seed, EARLY_STEPS) for seed in seeds]
    row["after 100 batches"] = mean_steps([run["gradient_steps_after"] for run in early])
    row["learned"] = learned
    row["when learned"] = mean_steps(after) if learned else NOT_TRIED
    return row | {f"at {distance}": accuracy.get(distance, NOT_TRIED) for distance in distances}


def mean_steps(steps: list[int | None]) -> float:
    """The geometric mean; a network that explodes forgets nothing on the rows it was probed with."""
    return statistics.geometric_mean([PROBE_LENGTH if count is None else count for count in steps])


def noted(task: str, name: str, distance: int, seed: int, steps: int) -> dict[str, Any]:
    """The figures of one network: from the notes, or trained now and noted."""
    key = {"task": task, "configuration": name, "distance": distance, "seed": seed, "steps": steps}
    if NOTES.exists():
        for line in NOTES.read_text().splitlines():
            note = json.loads(line)
            if key.items() <= note.items():
                return note
    note = key | train(TASKS[task](distance), TASKS[task](probe_distance(task)), CONFIGURATIONS[name], seed, steps)
    NOTES.parent.mkdir(parents=True, exist_ok=True)
    with NOTES.open("a") as file:
        file.write(json.dumps(note) + "\n")
    print("  ", json.dumps(note), flush=True)
    return note


def probe_distance(task: str) -> int:
    """The distance at which rows have about PROBE_LENGTH elements."""
    return PROBE_LENGTH // 2 if task == "adding" else PROBE_LENGTH - 10


def train(
    task: SyntheticTask, probe: SyntheticTask, configuration: Configuration, seed: int, steps: int
) -> dict[str, Any]:
    """One network on one task; `seed` decides its first weights and what it reads."""
    torch.manual_seed(seed)
    layer = configuration.layer(task.input_size)
    output = nn.Linear(HIDDEN, task.output_size)
    weights = [*layer.parameters(), *output.parameters()]
    optimiser = torch.optim.Adam(weights, lr=LEARNING_RATE, fused=True)
    training, testing = (torch.Generator().manual_seed(base + seed) for base in (1_000, 2_000))
    test = task.sample(TEST_ROWS, testing)
    probed = features(probe, probe.sample(PROBE_ROWS, testing))
    before = gradient_steps(layer, probed)
    for step in range(1, steps + 1):
        batch = task.sample(BATCH, training)
        loss = task.loss(output(layer(features(task, batch))[0]), batch)
        optimiser.zero_grad()
        loss.backward()
        if configuration.clipped:
            nn.utils.clip_grad_norm_(weights, CLIP_NORM)
        optimiser.step()
        if step % CHECK_EVERY == 0 or step == steps:
            accuracy, error = scores(task, layer, output, test)
            if accuracy >= SOLVED or not error < float("inf"):
                break
    return {
        "accuracy": accuracy,
        "loss": error if error < float("inf") else None,  # None: it diverged
        "steps_taken": step,
        "gradient_steps_before": before,
        "gradient_steps_after": gradient_steps(layer, probed),
    }


def features(task: SyntheticTask, batch: SyntheticBatch) -> Tensor:
    """The inputs (B, T, N), symbols as one-hot vectors: small enough here, and the LSTM's fused kernel reads them."""
    if batch.inputs.is_floating_point():
        return batch.inputs
    return F.one_hot(batch.inputs, task.input_size).float()


@torch.no_grad()
def scores(task: SyntheticTask, layer: Recurrent, output: nn.Linear, batch: SyntheticBatch) -> tuple[float, float]:
    """Accuracy and loss on a batch; what is not a number is no better than chance."""
    outputs = output(layer(features(task, batch))[0])
    loss = task.loss(outputs, batch).item()
    return (task.accuracy(outputs, batch) if loss < float("inf") else task.chance_accuracy), loss


def gradient_steps(layer: Recurrent, x: Tensor) -> int | None:
    """Steps after which ‖δ_t‖ / ‖δ_T‖ stays under 1%, averaged over rows; δ_t of h_t and, in an LSTM, c_t together.

    `None` where the network explodes on rows so long.
    """
    if not all(weight.isfinite().all() for weight in layer.parameters()):
        return None
    flow = backpropagate(layer, x, "last")
    delta = torch.cat([flow.delta[0], *flow.delta_cell], -1).norm(dim=-1)  # (B, T)
    ratio = (delta / delta[:, -1:]).mean(0).flip(0)
    return int(torch.nonzero(ratio >= FADED).max()) + 1 if ratio.isfinite().all() else None


def summary(row: dict[str, Any]) -> str:
    curve = "  ".join(f"{name} {value:.2f}" for name, value in row.items() if name[:3] == "at " and value != NOT_TRIED)
    return (
        f"{row['task']}, {row['configuration']}: gradients reach {row['before training']:.0f} steps, "
        f"after 100 batches {row['after 100 batches']:.0f}, learned {row['learned']}  {curve}"
    )


if __name__ == "__main__":
    main()

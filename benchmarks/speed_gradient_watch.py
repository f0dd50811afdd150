"""What `--watch-gradients` costs: whole runs with and without, by turns.

    python benchmarks/speed_gradient_watch.py [--rounds 9] [--device cpu]

Both runs take the same steps on the same symbols, and end with the same weights (checked on processors). Looks come as
often as they do by default. Starting, one validation and saving are part of both. The looks' own share of a watched run
is measured inside it, so that what else the machine does meets both sides of that figure.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn

from chainrule.data import Batch
from chainrule.diagnostics import gradient_profile
from chainrule.models import RecurrentLM
from chainrule.state import State
from chainrule.training import GradientProbe, TrainingOptions, train

VOCABULARY, BATCH, TIME = 96, 32, 64


@dataclass(frozen=True)
class Case:
    cell: str
    hidden_size: int
    num_layers: int
    steps: int


CASES = {
    "LSTM, 512 units (the default)": Case("lstm", 512, 1, 40),
    "LSTM, 64 units": Case("lstm", 64, 1, 200),
    "GRU, 128 units, 2 layers": Case("gru", 128, 2, 120),
    "tanh RNN, 32 units": Case("rnn", 32, 1, 300),
}


class Noise:
    """A stream of random symbols; a function of the step."""

    steps_per_epoch = 1000

    def at(self, step: int) -> Batch:
        symbols = torch.randint(VOCABULARY, (BATCH, TIME + 1), generator=torch.Generator().manual_seed(step))
        return Batch(symbols[:, 1:], previous=symbols[:, 0] if step else None)


def held_out() -> Iterator[Batch]:
    yield Noise().at(0)


class Timed:
    """The look, and the seconds spent on it."""

    seconds = 0.0

    def __call__(
        self, model: nn.Module, x: Tensor, lengths: Tensor | None, state: State, x_prev: Tensor | None
    ) -> list[Tensor]:
        began = time.perf_counter()
        try:
            return gradient_profile(model, x, lengths, state, x_prev)
        finally:
            self.seconds += time.perf_counter() - began


def run(case: Case, watch: GradientProbe | None, device: str, weights: dict[bool, torch.Tensor]) -> Callable[[], None]:
    options = TrainingOptions(steps=case.steps, validate_every=case.steps, device=device)

    def call() -> None:
        torch.manual_seed(0)
        model = RecurrentLM(
            VOCABULARY, case.cell, hidden_size=case.hidden_size, num_layers=case.num_layers, dropout=0.3
        )
        with tempfile.TemporaryDirectory() as directory:
            train(model, Noise(), held_out, options, Path(directory) / "run", watch=watch, progress=False)
        weights[watch is None] = model.recurrent.weight_hh_l0.detach().clone()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    rows, claims = [], []
    for name, case in CASES.items():
        weights: dict[bool, torch.Tensor] = {}
        look = Timed()
        ways = {
            "plain": run(case, None, options.device, weights),
            "watched": run(case, look, options.device, weights),
        }
        seconds = interleaved(ways, options.rounds, warmup=0)
        if options.device == "cpu" and not torch.equal(weights[True], weights[False]):
            raise AssertionError(f"{name}: watching changed the weights")
        ratio = median_ratio(seconds["watched"], seconds["plain"])
        rows.append(
            {
                "model": name,
                "steps": case.steps,
                "ms a step": statistics.median(seconds["plain"]) / case.steps * 1e3,
                "ms a step, watched": statistics.median(seconds["watched"]) / case.steps * 1e3,
                "ratio": ratio,
                "share of looks": look.seconds / sum(seconds["watched"]),
            }
        )
        claims.append(claim(f"{name}: watched ÷ plain training", ratio, "<=", 1.05, "×"))
    print(f"B={BATCH} T={TIME} V={VOCABULARY}, {options.rounds} rounds, medians")
    publish("speed_gradient_watch", rows, claims)


if __name__ == "__main__":
    main()

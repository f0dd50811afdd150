"""Training beside processes that keep the processor busy: OpenMP's way of waiting, and the bounded one of `chainrule`.

    python benchmarks/speed_beside_busy.py [--turns 6] [--seconds 0.8] [--also GOMP_SPINCOUNT=3000]

A process for each way trains an LSTM of 256 units on characters, with an embedding of 64; they take turns, so that a
change in the machine's speed meets them all. Then the same beside one busy loop, and beside two.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

from side_by_side import claim, publish

from chainrule_app.cli.main import ASKED, bound_spinning

VOCABULARY, BATCH, TIME, EMBEDDING, HIDDEN = 65, 32, 64, 64, 256
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    pass"  # ends with this process


class Way:
    """A process that trains when it is told to."""

    def __init__(self, environment: dict[str, str]):
        left = {name: value for name, value in os.environ.items() if name not in ASKED}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
            env=left | environment,
        )  # fmt: skip

    def train(self, seconds: float) -> float:
        """Steps a second."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(seconds, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def work() -> None:
    """Answer lines, each of them seconds to train for."""
    import torch

    from chainrule.data import Batch
    from chainrule.models import RecurrentLM
    from chainrule.training import Objective, make_optimiser

    torch.manual_seed(0)
    model = RecurrentLM(VOCABULARY, embedding_size=EMBEDDING, hidden_size=HIDDEN, dropout=0.1)
    optimiser = make_optimiser(model, 1e-3, 0.01)
    objective = Objective(model)
    batch = Batch(torch.randint(VOCABULARY, (BATCH, TIME)))
    for line in sys.stdin:
        steps, began = 0, time.perf_counter()
        while not steps or time.perf_counter() - began < float(line):
            nats, _ = objective(batch.x)
            (nats / batch.x.numel()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            steps += 1
        print(steps / (time.perf_counter() - began), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=0.8, help="of a turn")
    parser.add_argument("--loads", type=int, nargs="*", default=[0, 1, 2], help="busy loops")
    parser.add_argument("--also", action="append", default=[], help="another way: an environment variable")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work()
        return
    bounded: dict[str, str] = {}
    bound_spinning(bounded)
    ways = {
        "OpenMP's default": Way({}),
        "bounded": Way(bounded),
        **{also: Way(dict([also.split("=", 1)])) for also in options.also},
    }
    rates: dict[tuple[str, int], float] = {}
    rows = []
    for load in options.loads:
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(load)]
        try:
            for way in ways.values():
                way.train(0.0)
            turns = [{name: way.train(options.seconds) for name, way in ways.items()} for _ in range(options.turns)]
        finally:
            for process in busy:
                process.kill()
                process.wait()
        for name in ways:
            rates[name, load] = statistics.median(turn[name] for turn in turns)
            ratios = [turn[name] / turn["OpenMP's default"] for turn in turns]
            rows.append(
                {
                    "busy loops": load,
                    "waiting": name,
                    "steps/s": rates[name, load],
                    "÷ OpenMP's default": statistics.median(ratios),
                    "÷ the same, idle": rates[name, load] / rates[name, options.loads[0]],
                }
            )
    for way in ways.values():
        way.end()
    claims = []
    for row in rows:
        match row["busy loops"], row["waiting"]:
            case 0, "bounded":
                claims.append(claim("idle: bounded waiting ÷ OpenMP's", row["÷ OpenMP's default"], ">=", 0.98, "×"))
            case (1 | 2) as load, "bounded":
                what = f"with {load} busy loop{'s' if load > 1 else ''} running: training speed ÷ idle machine"
                claims.append(claim(what, row["÷ the same, idle"], ">=", 0.25, "×"))
    publish("speed_beside_busy", rows, claims)


if __name__ == "__main__":
    main()

"""What a sample costs beside one likelihood of it, and beside computing the whole pass anew for every element.

    python benchmarks/sampling.py [--rounds 5] [--model "gated PixelCNN 28×28"]

For each model and batch, by turns on one thread: `model.sample`, which goes by the caches of `step`, and
`model.log_prob` of such a batch, which is one pass. Their ratio is the pass ratio. Full recomputation is one pass for
each element (each pixel of a PixelCNN++, whose colours come from one mixture, each of the 16 groups of a multi-scale
PixelCNN), so that its time is that of a pass times their number. Weights are random (seed 0), which changes no cost.
Before anything is timed, the conditionals that were drawn from are compared with those of the pass. WaveNet has a
script of its own, `speed_wavenet.py`.
"""

import argparse
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from side_by_side import claim, interleaved, median_ratio, operations, publish

from chainrule import AutoregressiveModel
from chainrule.models import MADE, GatedPixelCNN, MultiScalePixelCNN, PixelCNN, PixelCNNPP, PixelRNN


@dataclass(frozen=True)
class Case:
    """A model, and what its sampling has to reach."""

    make: Callable[[], AutoregressiveModel]
    batches: tuple[int, ...]
    recomputation: dict[int, float] = field(default_factory=dict)  # least speed over full recomputation, by batch
    passes: dict[int, float] = field(default_factory=dict)  # largest pass ratio, by batch
    elements_a_pass: int = 1  # how many elements full recomputation can draw from one pass


IMAGES = (1, 16, 64)
ARITHMETIC = 1.5  # largest ratio of multiplications and additions to those of one pass
CASES = {
    "MADE, 784 columns, 500 units": Case(lambda: MADE(784, [500]), (*IMAGES, 256), passes={256: 1.5}),
    "MADE, 784 columns, 2 × 512 units": Case(lambda: MADE(784, [512, 512]), (*IMAGES, 256), passes={256: 1.5}),
    "MADE, 784 columns, 8,000 units": Case(lambda: MADE(784, [8000]), (*IMAGES, 256), passes={256: 1.5}),
    "gated PixelCNN 28×28": Case(
        lambda: GatedPixelCNN((1, 28, 28), levels=2), IMAGES, recomputation={1: 50}, passes={1: 3, 64: 1.2}
    ),
    "PixelCNN 28×28": Case(lambda: PixelCNN((1, 28, 28), levels=2), IMAGES, passes={64: 20}),
    "gated PixelCNN 16×16×3": Case(
        lambda: GatedPixelCNN((3, 16, 16), levels=256, channels=96), IMAGES, passes={64: 20}
    ),
    "PixelRNN (row) 28×28": Case(lambda: PixelRNN((1, 28, 28), levels=2, kind="row"), IMAGES, passes={64: 20}),
    "PixelRNN (diagonal) 28×28": Case(
        lambda: PixelRNN((1, 28, 28), levels=2, kind="diagonal"), IMAGES, passes={64: 20}
    ),
    "PixelCNN++ 32×32×3": Case(
        lambda: PixelCNNPP((3, 32, 32)),
        IMAGES,
        recomputation={1: 50, 16: 150},
        passes={1: 5, 16: 3, 64: 3},
        elements_a_pass=3,
    ),
    "multi-scale PixelCNN 32×32×3": Case(
        lambda: MultiScalePixelCNN((3, 32, 32)), IMAGES, passes={64: 20}, elements_a_pass=3 * 32 * 32 // 16
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", choices=CASES, action="append", help="one of the rows; may be repeated")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows, claims = [], []
    for name in options.model or CASES:
        case = CASES[name]
        torch.manual_seed(0)
        model = case.make().eval()
        ratio = arithmetic(model)
        claims.append(claim(f"{name}: arithmetic of a sample ÷ of one pass", ratio, "<=", ARITHMETIC))
        for batch in case.batches:
            row = measured(model, case, batch, options.rounds)
            rows.append({"model": name, **row, "arithmetic ÷ pass": ratio})
            if batch in case.recomputation:
                what = f"{name}, batch {batch}: speed of sampling ÷ full recomputation"
                claims.append(claim(what, row["÷ recomputation"], ">=", case.recomputation[batch], "×"))
            if batch in case.passes:
                what = f"{name}, batch {batch}: pass ratio (sample ÷ log_prob)"
                claims.append(claim(what, row["pass ratio"], "<=", case.passes[batch]))
    publish("sampling", rows, claims)


def measured(model: AutoregressiveModel, case: Case, batch: int, rounds: int) -> dict[str, float]:
    """One row of the table."""
    generator = torch.Generator().manual_seed(0)
    x = model.sample(batch, generator=generator)
    require_same_conditionals(model, x[:1])

    def sample() -> None:
        model.sample(batch, generator=generator)

    @torch.no_grad()
    def one_pass() -> None:
        model.log_prob(x)

    seconds = interleaved({"sample": sample, "log_prob": one_pass}, rounds, warmup=1)
    ratio = median_ratio(seconds["sample"], seconds["log_prob"])
    median, elements = statistics.median(seconds["sample"]), x[0].numel()
    return {
        "batch": batch,
        "elements": elements,
        "sample s": median,
        "log_prob s": statistics.median(seconds["log_prob"]),
        "µs per step": 1e6 * median / elements,
        "pass ratio": ratio,
        "÷ recomputation": elements / case.elements_a_pass / ratio,
    }


@torch.no_grad()
def arithmetic(model: AutoregressiveModel) -> float:
    """Arithmetic operations of a sample, relative to one pass."""
    x = model.sample(1)
    return operations(lambda: model.sample(1)) / operations(lambda: model.log_prob(x))


@torch.no_grad()
def require_same_conditionals(model: AutoregressiveModel, x: torch.Tensor) -> None:
    """One row x, element by element, has the likelihood that the pass gives it."""
    step, state, x_prev = model.prepare().step, model.initial_state(1), None
    total = torch.zeros(1)
    for element in model.to_sequence(x).unbind(1):
        conditional, state = step(x_prev, state)
        total += conditional.log_prob(element)
        x_prev = element
    torch.testing.assert_close(total, model.log_prob(x), rtol=1e-4, atol=1e-3)  # float32


if __name__ == "__main__":
    main()

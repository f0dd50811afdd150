"""WaveNet one sample at a time: what a step costs beside its products, and beside what is usually done in its place.

    python benchmarks/speed_wavenet.py [--rounds 5] [--batch 1 --batch 16 --batch 64]

20 layers (two blocks of ten), 64 channels, 256 skip channels, 256 levels: the default of `chainrule.models.WaveNet`,
random weights of seed 0, one thread. By turns, for each batch:

- stream: `model.stream` of one sequence, in compiled loops, as of a long one (batch 1), and of the same model with its
  matrices rounded to float16, which the loops keep as such;
- step: `prepare().step`, a sample drawn from each conditional, so much of what `sample` does;
- products: the matrix products of a step alone, on the same weights, in the same library (NumPy), nothing between them;
- queue: the usual fast generation (Paine et al. 2016), a queue a layer, each layer a few modules of PyTorch;
- recomputation: the pass over the whole receptive field that yields one sample;
- pass: `log_prob` of such a batch, as many samples at once.

Before anything is timed, all of them must give the same conditionals. The arithmetic is counted by PyTorch's counter of
multiplications and additions: steps for one second of 16 kHz beside one pass over it.
"""

import argparse
import statistics
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from unittest.mock import patch

import numpy as np
import torch
from half_weights import rounded
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from chainrule.heads import Categorical
from chainrule.kernels._cached_steps import PreparedDilatedStack
from chainrule.models import WaveNet

SECOND = 16_000
STEPS = {1: 400, 16: 100, 64: 40}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, choices=STEPS, action="append")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = WaveNet(channels=64, layers_per_block=10, skip_channels=256).eval()
    require_same_conditionals(model)
    arithmetic = operations(model)
    rows = [measured(model, batch, options.rounds) for batch in options.batch or STEPS]
    claims = [
        claim("WaveNet, 20 layers: arithmetic of 1 s of 16 kHz by steps ÷ of one pass", arithmetic, "<=", 3),
        *(
            claim(f"WaveNet, 20 layers, batch {row['batch']}: speed of a step ÷ of a queue of modules", ratio, ">=", 1)
            for row in rows
            if (ratio := row["queue ÷ step"])
        ),
        *(
            claim("WaveNet, 20 layers, batch 1: samples a second of a stream", rate, ">=", 16_000)
            for row in rows
            if (rate := row.get("stream samples/s"))
        ),
        *(
            claim("WaveNet, 20 layers, batch 1: samples a second of a stream, weights in float16", rate, ">=", 16_000)
            for row in rows
            if (rate := row.get("stream in float16 samples/s"))
        ),
    ]
    publish("speed_wavenet", rows, claims)


class QueueWaveNet(nn.Module):
    """Fast generation as it is usually written, with the weights of a `WaveNet`."""

    def __init__(self, model: WaveNet):
        super().__init__()
        channels, self.dilations = model.stack.residual.shape[1], [layer.dilation for layer in model.stack.convolutions]
        skips = model.head.skip.weight.split(channels, 1)
        self.embedding, self.hidden, self.output, self.skip_bias = (
            model.embedding, model.head.hidden, model.head.output, model.head.skip.bias,
        )  # fmt: skip
        self.past, self.present, self.residual, self.skip = (nn.ModuleList() for _ in range(4))
        for layer, skip in zip(model.stack.convolutions, skips, strict=True):
            assert layer.bias is not None
            self.past.append(linear(layer.weight[:, :, 0]))
            self.present.append(linear(layer.weight[:, :, 1], layer.bias))
            self.skip.append(linear(skip))
        for weight in model.stack.residual:
            self.residual.append(linear(weight.t()))

    def start(self, batch: int) -> list[deque[Tensor]]:
        zeros = torch.zeros(batch, self.embedding.embedding_dim)
        return [deque([zeros] * dilation) for dilation in self.dilations]

    def forward(self, x_prev: Tensor, queues: list[deque[Tensor]]) -> Tensor:
        h, total = self.embedding(x_prev), self.skip_bias
        for place, queue in enumerate(queues):
            a = self.past[place](queue.popleft()) + self.present[place](h)
            queue.append(h)
            value, opening = a.chunk(2, 1)
            gated = torch.tanh(value) * torch.sigmoid(opening)
            total = total + self.skip[place](gated)
            if place < len(self.residual):
                h = h + self.residual[place](gated)
        return self.output(torch.relu(self.hidden(torch.relu(total))))


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight = nn.Parameter(weight.detach().clone(memory_format=torch.contiguous_format))
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer


def measured(model: WaveNet, batch: int, rounds: int) -> dict[str, float]:
    """One row of the table; times are of one sample of every row of the batch."""
    steps, generator = STEPS[batch], torch.Generator().manual_seed(0)
    x = model.sample(batch, length=steps, generator=generator)
    window = torch.randint(256, (batch, model.receptive_field + 1), generator=generator)
    stepper, state, queue = model.prepare().step, model.initial_state(batch), QueueWaveNet(model)
    queues = queue.start(batch)
    last = x[:, 0]

    @torch.no_grad()
    def by_steps() -> None:
        nonlocal state, last
        for _ in range(steps):
            conditional, state = stepper(last, state)
            last = conditional.sample(generator=generator)

    @torch.no_grad()
    def by_queue() -> None:
        nonlocal last
        for _ in range(steps):
            last = Categorical(queue(last, queues)).sample(generator=generator)

    @torch.no_grad()
    def one_pass() -> None:
        model.log_prob(x)

    @torch.no_grad()
    def recompute() -> None:
        model(window)

    ways: dict[str, Callable[[], object]] = {
        "step": by_steps, "products": bare_products(model, batch, steps), "queue": by_queue, "pass": one_pass,
        "recomputation": recompute,
    }  # fmt: skip
    if batch == 1:
        for name, drawn in {"stream": model, "stream in float16": rounded(model)}.items():
            stream = drawn.stream(1, count=10**9, generator=generator)
            next(stream)
            ways[name] = lambda stream=stream: deque(islice(stream, steps), 0)  # type: ignore[misc]  # bound here
    seconds = interleaved(ways, rounds, warmup=1)
    layers = len(model.stack.convolutions)
    each = {
        name: statistics.median(times) / (1 if name == "recomputation" else steps) for name, times in seconds.items()
    }
    compiled = {}
    if "stream" in seconds:
        compiled |= {f"{name} samples/s": 1 / each[name] for name in ("stream", "stream in float16")}
        compiled["step ÷ stream"] = median_ratio(seconds["step"], seconds["stream"])
    return {
        "batch": batch,
        **compiled,
        "step µs": 1e6 * each["step"],
        "products µs": 1e6 * each["products"],
        "queue µs": 1e6 * each["queue"],
        "recomputation µs": 1e6 * each["recomputation"],
        "samples/s": batch / each["step"],
        "layer-samples/s": batch * layers / each["step"],
        "layer-samples/s of products": batch * layers / each["products"],
        "step ÷ products": median_ratio(seconds["step"], seconds["products"]),
        "queue ÷ step": median_ratio(seconds["queue"], seconds["step"]),
        "recomputation ÷ step": steps * median_ratio(seconds["recomputation"], seconds["step"]),
        "pass ratio": median_ratio(seconds["step"], seconds["pass"]),
    }


def bare_products(model: WaveNet, batch: int, steps: int) -> Callable[[], object]:
    """The products of so many steps, each into a place of its own, on weights as `prepare` lays them out."""
    made, linears = PreparedDilatedStack(model.stack), model.head.linears
    channels, layers = made.channels, len(made.present)
    h, gated = (np.full((channels, batch), 0.1, dtype=np.float32) for _ in range(2))
    read = np.full((layers, made.past.shape[2], batch), 0.1, dtype=np.float32)
    sums, change = np.empty((2 * channels, batch), np.float32), np.empty((channels, batch), np.float32)
    inputs = [np.full((linear.in_features, batch), 0.1, dtype=np.float32) for linear in linears]
    weights = [linear.weight.detach().numpy() for linear in linears]

    def products() -> None:
        for _ in range(steps):
            np.matmul(made.past, read)
            for layer, weight in enumerate(made.present):
                np.dot(weight, h, out=sums)
                if layer < len(made.residual):
                    np.dot(made.residual[layer], gated, out=change)
            for given, weight in zip(inputs, weights, strict=True):
                np.dot(weight, given)

    return products


@torch.no_grad()
def operations(model: WaveNet) -> float:
    """Multiplications and additions of a second by steps over those of one pass; every step has as many."""
    with patch("chainrule.layers._dilated_stack.PreparedDilatedStack", partial(PreparedDilatedStack, in_numpy=False)):
        stepper, state = model.prepare().step, model.initial_state(1)
    counted = 10
    with FlopCounterMode(display=False) as stepping:
        x_prev = None
        for _ in range(counted):
            conditional, state = stepper(x_prev, state)
            x_prev = conditional.sample()
    with FlopCounterMode(display=False) as scoring:
        model(torch.zeros(1, SECOND, dtype=torch.long))
    return stepping.get_total_flops() / counted * SECOND / scoring.get_total_flops()


@torch.no_grad()
def require_same_conditionals(model: WaveNet) -> None:
    """Steps, a queue and a window of the receptive field give what the pass gives."""
    length = model.receptive_field + 40
    x = torch.randint(256, (2, length), generator=torch.Generator().manual_seed(0))
    whole, stepper, queue = model(x).logits, model.prepare().step, QueueWaveNet(model)
    state, queues, x_prev = model.initial_state(2), queue.start(2), torch.full((2,), model.vocab_size)
    for t in range(length):
        conditional, state = stepper(x_prev, state)
        scores = queue(x_prev, queues)
        x_prev = x[:, t]
        if t % 50 == 0 or t == length - 1:
            for logits in (conditional.logits, scores.log_softmax(1)):
                torch.testing.assert_close(logits, whole[:, t], rtol=1e-4, atol=1e-3)  # float32
    window = model(x[:, -model.receptive_field - 1 :]).logits
    torch.testing.assert_close(window[:, -1], whole[:, -1], rtol=1e-4, atol=1e-3)


if __name__ == "__main__":
    main()

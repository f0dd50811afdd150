"""Likelihood and gradient over a wide vocabulary, beside torch's cross-entropy; and training with an adaptive softmax.

    python benchmarks/speed_wide_vocabulary.py [--rounds 15] [--step-rounds 5]

The scores are bfloat16, as autocast makes them, the sums float32 on both sides; values and gradients are compared
first. Then whole training steps in float32 (forward, backward, clipping, AdamW) of a language model of one LSTM layer
with tied weights, on words that follow Zipf's law: the softmax over all words beside the adaptive one with its default
cutoffs.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from side_by_side import claim, interleaved, median_ratio, publish
from torch import Tensor

from chainrule.heads import Categorical
from chainrule.layers import AdaptiveSoftmax
from chainrule.models import RecurrentLM
from chainrule.training import make_optimiser

VOCABULARY = 33_278  # words of WikiText-2


def plain(scores: Tensor, value: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(scores.float(), value, reduction="none")


def ours(scores: Tensor, value: Tensor) -> Tensor:
    return -Categorical(scores).log_prob(value)


def gradient(loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor) -> Tensor:
    scores.grad = None
    loss(scores, value).sum().backward()
    assert scores.grad is not None
    return scores.grad


def training_step(units: int, cutoffs: tuple[int, ...] | None, x: Tensor) -> Callable[[], None]:
    model = RecurrentLM(VOCABULARY, hidden_size=units, tie_weights=True, cutoffs=cutoffs)
    optimiser = make_optimiser(model, 1e-3, 0.01)

    def step() -> None:
        optimiser.zero_grad()
        conditionals, _ = model.unroll(x, model.initial_state(len(x)))
        (-conditionals.log_prob(x).mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--step-rounds", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for size in (1000, 10_000, 50_000):
        scores = torch.randn(1024, size).bfloat16().requires_grad_()
        value = torch.randint(size, (1024,))
        torch.testing.assert_close(ours(scores, value), plain(scores, value), rtol=1e-5, atol=1e-5)
        expected = gradient(plain, scores, value).clone()
        torch.testing.assert_close(gradient(ours, scores, value), expected, rtol=1e-2, atol=1e-6)
        seconds = interleaved(
            {
                "torch": lambda scores=scores, value=value: gradient(plain, scores, value),
                "ours": lambda scores=scores, value=value: gradient(ours, scores, value),
            },
            options.rounds,
        )
        rows.append(
            {
                "symbols": size,
                "torch cross_entropy ms": statistics.median(seconds["torch"]) * 1e3,
                "ours ms": statistics.median(seconds["ours"]) * 1e3,
                "speed-up": median_ratio(seconds["torch"], seconds["ours"]),
            }
        )
    claims, cutoffs = [], AdaptiveSoftmax.default_cutoffs(VOCABULARY)
    frequencies = 1 / torch.arange(1, VOCABULARY + 1, dtype=torch.float64)
    for units in (200, 400):
        for batch, time in ((20, 35), (32, 64)):
            x = torch.multinomial(frequencies, batch * time, replacement=True).view(batch, time)
            seconds = interleaved(
                {"full": training_step(units, None, x), "adaptive": training_step(units, cutoffs, x)},
                options.step_rounds,
                warmup=1,
            )
            ratio = median_ratio(seconds["full"], seconds["adaptive"])
            rows.append(
                {
                    "symbols": VOCABULARY,
                    "units": units,
                    "batch": f"{batch} x {time}",
                    "full softmax words/s": round(x.numel() / statistics.median(seconds["full"])),
                    "adaptive words/s": round(x.numel() / statistics.median(seconds["adaptive"])),
                    "speed-up": ratio,
                }
            )
            what = f"training with an adaptive softmax, V = {VOCABULARY:,}, {units} units, {batch} x {time}"
            claims.append(claim(what, ratio, ">=", 3, " times the words/s"))
    publish("speed_wide_vocabulary", rows, claims)


if __name__ == "__main__":
    main()

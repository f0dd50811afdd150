"""Likelihood and gradient over a wide vocabulary, beside torch's cross-entropy.

    python benchmarks/speed_wide_vocabulary.py [--rounds 15]

The scores are bfloat16, as autocast makes them, the sums float32 on both sides; values and gradients are compared
first.
"""

import argparse
import statistics
from collections.abc import Callable

import torch
from side_by_side import interleaved, median_ratio, publish
from torch import Tensor

from chainrule.heads import Categorical


def plain(scores: Tensor, value: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(scores.float(), value, reduction="none")


def ours(scores: Tensor, value: Tensor) -> Tensor:
    return -Categorical(scores).log_prob(value)


def gradient(loss: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor) -> Tensor:
    scores.grad = None
    loss(scores, value).sum().backward()
    assert scores.grad is not None
    return scores.grad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
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
    publish("speed_wide_vocabulary", rows, [])


if __name__ == "__main__":
    main()

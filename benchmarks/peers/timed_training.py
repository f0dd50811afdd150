"""Train a network for so many seconds: the loop that the plain scripts share, by one clock."""

import argparse
import copy
import math
import time
from collections.abc import Callable

import torch
import torch._dynamo  # the first optimiser imports it, which takes seconds: before the clock starts
from torch import Tensor, nn


def arguments(doc: str | None, *files: str) -> argparse.ArgumentParser:
    """A parser of the names of files, `--seconds` and `--seed`."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for file in files:
        parser.add_argument(file)
    parser.add_argument("--seconds", type=float, default=180, help="of training; reading the data comes before them")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def fit(
    net: nn.Module,
    batch_loss: Callable[[], Tensor],
    seconds: float,
    *,
    rate: float,
    weight_decay: float = 0.01,
    betas: tuple[float, float] = (0.9, 0.999),
    clip: float = 1.0,
    judge: Callable[[], float] | None = None,
    looks: int = 12,
    max_steps: float = math.inf,
) -> int:
    """Take steps of AdamW until the seconds are over; returns how many.

    The learning rate rises over the first 3% and falls along a cosine to a hundredth.

    Args:
        net: to train.
        batch_loss: the loss of the next batch.
        seconds: on the wall's clock.
        rate: peak learning rate.
        weight_decay, betas: of AdamW.
        clip: largest norm of the gradient.
        judge: of held-out data, lower is better. It looks so many times, within the seconds, and the net ends with the
            weights that it liked best; without it, with the last ones.
        looks: of the judge.
        max_steps: stop there if it comes earlier, for small data on which more steps only overfit.
    """
    optimiser = torch.optim.AdamW(net.parameters(), rate, betas, weight_decay=weight_decay)
    began, steps, looked, best, kept = time.monotonic(), 0, 0, math.inf, None
    net.train()
    while (share := max((time.monotonic() - began) / seconds, steps / max_steps)) < 1:
        for group in optimiser.param_groups:
            group["lr"] = rate * min(1, share / 0.03) * (0.5 * (1 + math.cos(math.pi * share)) + 0.01)
        loss = batch_loss()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimiser.step()
        steps += 1
        if judge is not None and share > (looked + 1) / looks:
            looked = math.floor(share * looks)
            best, kept = look(net, judge, best, kept)
    if judge is not None:  # the last weights, seen once the seconds are over
        _, kept = look(net, judge, best, kept)
        assert kept is not None
        net.load_state_dict(kept)
    net.eval()
    return steps


@torch.no_grad()
def look(
    net: nn.Module, judge: Callable[[], float], best: float, kept: dict[str, Tensor] | None
) -> tuple[float, dict[str, Tensor] | None]:
    """The better of the best judgement so far and the present one, with its weights."""
    net.eval()
    found = judge()
    net.train()
    return (found, copy.deepcopy(net.state_dict())) if found < best or kept is None else (best, kept)

"""No conditional reads its own element or a later one."""

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import Subject, Violation
from chainrule.testing.values import distance
from chainrule.testing.weights import biased, fresh, uneven, weighted

# Two runs of equal shape differ by nothing at all where nothing leaks, but for transforms that spread rounding over
# time.
ROUNDING = 1e-10
DERIVATIVE = 1e-12  # and a derivative is not taken of a difference of large numbers


@contract_check
def check_causality(subject: Subject) -> str:
    """p(x_t | x_<t, c) does not change with x_t, x_t+1, ..., nor with how many elements follow.

    Elements from a position on are replaced (all of them, a half, or one), and the conditionals up to that position
    must stay: at every position, from several x, with and without `lengths`, with the weights as they are and with
    random ones. Replacing sees what gradients do not (an argmax); random weights show what is dormant at the weights at
    hand (a rectifier that does not fire). For continuous x the gradients are looked at too.
    """
    x = subject.x
    _swing(subject)
    draws = [("", subject.model), *weighted(subject, (fresh, uneven, biased))]
    for attempt, (weights, model) in enumerate(draws):
        _replace(subject, model, weights, x, with_lengths=False)
        if attempt < 2:
            _replace(subject, model, weights, x, with_lengths=True)
            _differentiate(subject, model, weights, x)
        x = subject.altered(x)
    return f"elements replaced at {subject.time} positions, {len(draws)} draws of the weights"


@torch.no_grad()
def _replace(subject: Subject, model: AutoregressiveModel, weights: str, x: Tensor, *, with_lengths: bool) -> None:
    count = max(min(subject.elements // subject.time, 3 * subject.time) // (2 if weights else 1), 2)
    rows = torch.arange(count, device=subject.device) % len(x)
    spread = min(subject.time, count)
    cuts = torch.linspace(0, subject.time - 1, spread).round().long()[torch.arange(count) % spread]
    if weights and spread < subject.time:  # at the weights as they are, evenly; at others, each time elsewhere
        cuts = subject.integers(subject.time, (count,)).cpu()
    cuts = cuts.to(subject.device)
    other = _replaced(subject, x[rows], cuts)
    lengths = None
    if with_lengths:
        lengths = cuts + 1 + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()
        try:
            subject.forward(x, lengths=torch.full_like(subject.rows, subject.time), model=model)
        except Exception:
            return  # a model that cannot take lengths fails padding_invariance
    gaps = _gaps(subject, model, x, other, rows, cuts, lengths)
    # Rows of one batch were cut at different places: what differs may come from another row's past. Only a difference
    # that shows when all rows are cut at the same place comes from the future.
    for suspect in (gaps > 1e-7).any(1).nonzero().flatten()[:16].tolist():
        same = torch.full_like(subject.rows, suspect)
        base, future = x[rows[same]], other[same]
        cut, length = cuts[same], None if lengths is None else lengths[same]
        _confirm(subject, model, weights, base, future, rows[same], cut, length)


@torch.no_grad()
def _swing(subject: Subject) -> None:
    """From a position on, every element of the batch goes from one end of the support to the other.

    What looks at a whole batch, as a maximum over it does, sees little of one row among many.
    """
    x, time = subject.x, subject.time
    low, high = subject.extremes
    for cut in sorted({0, 1, time // 2, time - 1} & set(range(time))):
        base, future = x.clone(), x.clone()
        base[:, cut:], future[:, cut:] = low, high
        _confirm(subject, subject.model, "", base, future, subject.rows, torch.full_like(subject.rows, cut), None)


def _gaps(
    subject: Subject,
    model: AutoregressiveModel,
    x: Tensor,
    other: Tensor,
    rows: Tensor,
    cuts: Tensor,
    lengths: Tensor | None,
) -> Tensor:
    """(N, T) how far each conditional up to the cut moved; 0 after it."""
    both = torch.cat([x, other])
    if lengths is not None:
        lengths = torch.cat([torch.full_like(subject.rows, subject.time), lengths])
    numbers = subject.forward(both, torch.cat([subject.rows, rows]), lengths, model)
    gaps = distance(numbers[: len(x)][rows], numbers[len(x) :])
    return gaps.masked_fill(torch.arange(subject.time, device=cuts.device) > cuts.unsqueeze(1), 0)


def _confirm(
    subject: Subject,
    model: AutoregressiveModel,
    weights: str,
    base: Tensor,
    future: Tensor,
    rows: Tensor,
    cuts: Tensor,
    lengths: Tensor | None,
) -> None:
    full = None if lengths is None else torch.full_like(lengths, subject.time)
    before = subject.forward(base, rows, full, model)
    after = subject.forward(future, rows, lengths, model)
    cut = int(cuts[0])
    gap = distance(before, after)[:, : cut + 1]
    if not (gap > ROUNDING).any():
        return
    t = int((gap > ROUNDING).any(0).nonzero()[0])
    what = f"elements from {cut} on" if lengths is None else f"elements from {cut} on or lengths"
    raise Violation(
        f"{weights}p(x_{t} | x_<{t}) moved by {float(gap[:, t].max()):.3g} nats when only {what} were replaced"
    )


def _replaced(subject: Subject, x: Tensor, cuts: Tensor) -> Tensor:
    """From each row's cut on, other elements: in turn everywhere, at about half of the places, at a single one."""
    time = torch.arange(subject.time, device=subject.device)
    later = time >= cuts.unsqueeze(1)
    chosen = later & (subject.uniform(later.shape) < 0.5) | (time == cuts.unsqueeze(1))
    single = time == (cuts + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()).unsqueeze(1)
    kind = (torch.arange(len(x), device=subject.device) // min(len(x), subject.time) + cuts % 3) % 3
    where = torch.stack([later, chosen, single])[kind, torch.arange(len(x), device=subject.device)]
    return torch.where(where.view(where.shape + (1,) * (x.dim() - 2)), subject.altered(x), x)


def _differentiate(subject: Subject, model: AutoregressiveModel, weights: str, x: Tensor) -> None:
    if not x.is_floating_point():
        return
    x = x.clone().requires_grad_()
    numbers = subject.values(subject.conditionals(x, model=model), 2)
    if not numbers.requires_grad:
        return
    numbers = torch.where(numbers.isfinite(), numbers, 0)
    times = torch.linspace(0, subject.time - 1, min(subject.time, 8)).round().long().tolist()
    for t in sorted(set(times)):
        direction = subject.normal(numbers[:, t].shape)
        total = (numbers[:, t] * direction).sum()
        (gradient,) = torch.autograd.grad(total, x, retain_graph=True, allow_unused=True, materialize_grads=True)
        sizes = gradient.abs().view(*x.shape[:2], -1).amax((0, 2))
        leak = (sizes[t:] > DERIVATIVE * (1 + sizes.max())).nonzero().flatten()
        if len(leak):
            s = t + int(leak[0])
            raise Violation(
                f"{weights}p(x_{t} | x_<{t}) has a gradient of size {float(sizes[s]):.3g} with respect to x_{s}"
            )

"""No conditional reads its own element or a later one."""

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule.testing._contract_check import contract_check
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Violation
from chainrule.testing._values import distance
from chainrule.testing._weights import weighted

# Two runs of equal shape differ by nothing at all where nothing leaks, but for transforms that spread rounding over
# time.
ROUNDING = 1e-10
DERIVATIVE = 1e-12  # and a derivative is not taken of a difference of large numbers


@contract_check(SequenceSubject)
def check_causality(subject: SequenceSubject) -> str:
    """p(x_t | x_<t, c) does not change with x_t, x_t+1, ..., nor with how many elements follow.

    Elements from a position on are replaced (all of them, a half, or one), and the conditionals up to that position
    must stay: at every position, from several x, with and without `lengths`, with the weights as they are and with
    random ones. Replacement detects leaks that have no gradient (an argmax); random weights reveal leaks that are
    inactive at the given weights (a rectifier that does not fire). For continuous x the gradients are looked at too.
    """
    x = subject.x
    _swing(subject)
    draws = list(weighted(subject, "fresh", "uneven", "biased"))
    for attempt, (weights, model) in enumerate(draws):
        _replace(subject, model, weights, x, with_lengths=False)
        if attempt < 2:
            _replace(subject, model, weights, x, with_lengths=True)
            _differentiate(subject, model, weights, x)
        x = subject.altered(x)
    return f"elements replaced at {subject.time} positions, {len(draws)} draws of the weights"


@torch.no_grad()
def _replace(
    subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor, *, with_lengths: bool
) -> None:
    count = max(min(subject.elements // subject.time, 3 * subject.time) // (2 if weights else 1), 2)
    rows = torch.arange(count, device=subject.device) % len(x)
    spread = min(subject.time, count)
    cuts = (
        torch.linspace(0, subject.time - 1, spread, device="cpu")
        .round()
        .long()[torch.arange(count, device="cpu") % spread]
    )
    if weights and spread < subject.time:  # at the weights as they are, evenly; at others, each time elsewhere
        cuts = subject.integers(subject.time, (count,)).cpu()
    cuts = cuts.to(subject.device)
    other = _replaced(subject, x[rows], cuts)
    lengths = None
    if with_lengths:
        lengths = cuts + 1 + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()
        if not subject.takes(x, torch.full_like(subject.rows, subject.time), model):
            return  # a model that cannot take lengths fails padding_invariance
    full = torch.full_like(subject.rows, subject.time)
    ends = None if lengths is None else torch.cat([full, lengths])
    numbers = subject.numbers(subject.of(torch.cat([x, other]), torch.cat([subject.rows, rows]), ends), model)
    gaps = distance(numbers[: len(x)][rows], numbers[len(x) :])
    gaps.masked_fill_(torch.arange(subject.time, device=cuts.device) > cuts.unsqueeze(1), 0)
    # Rows of one batch were cut at different places: what differs may come from another row's past. Only a difference
    # that shows when all rows are cut at the same place comes from the future.
    for suspect in (gaps > 1e-7).any(1).nonzero().flatten()[:16].tolist():
        same = torch.full_like(subject.rows, suspect)
        before = subject.of(x[rows[same]], rows[same], None if lengths is None else full)
        after = subject.of(other[same], rows[same], None if lengths is None else lengths[same])
        pair = subject.numbers(before, model), subject.numbers(after, model)
        require_past(*pair, int(cuts[suspect]), ROUNDING, weights, "" if lengths is None else " or lengths")


@torch.no_grad()
def _swing(subject: SequenceSubject) -> None:
    """From a position on, every element of the batch goes from one end of the support to the other.

    What looks at a whole batch, as a maximum over it does, sees little of one row among many.
    """
    time = subject.time
    for cut in sorted({0, 1, time // 2, time - 1} & set(range(time))):
        before, after = (subject.numbers(subject.of(x)) for x in swung(subject.x, cut, subject.extremes))
        require_past(before, after, cut, ROUNDING, "")


def swung(x: Tensor, cut: int, extremes: tuple[Tensor, Tensor]) -> list[Tensor]:
    """x with every element from a position on at one end of the support, and at the other."""
    return [torch.cat([x[:, :cut], end.to(x).expand_as(x[:, cut:])], 1) for end in extremes]


def require_past(before: Tensor, after: Tensor, cut: int, tolerance: float, label: str, replaced: str = "") -> None:
    """Raise `Violation` where conditionals (B, T, K) up to a cut moved when elements from there on were replaced."""
    gap = distance(before, after)[:, : cut + 1]
    if (gap > tolerance).any():
        t = int((gap > tolerance).any(0).nonzero()[0])
        what = f"elements from {cut} on{replaced}"
        raise Violation(
            f"{label}p(x_{t} | x_<{t}) moved by {float(gap[:, t].max()):.3g} nats when only {what} were replaced"
        )


def _replaced(subject: SequenceSubject, x: Tensor, cuts: Tensor) -> Tensor:
    """From each row's cut on, other elements: in turn everywhere, at about half of the places, at a single one."""
    time = torch.arange(subject.time, device=subject.device)
    later = time >= cuts.unsqueeze(1)
    chosen = later & (subject.uniform(later.shape) < 0.5) | (time == cuts.unsqueeze(1))
    single = time == (cuts + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()).unsqueeze(1)
    kind = (torch.arange(len(x), device=subject.device) // min(len(x), subject.time) + cuts % 3) % 3
    where = torch.stack([later, chosen, single])[kind, torch.arange(len(x), device=subject.device)]
    return torch.where(where.view(where.shape + (1,) * (x.dim() - 2)), subject.altered(x), x)


def _differentiate(subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor) -> None:
    if not x.is_floating_point():
        return
    x = x.clone().requires_grad_()
    numbers = subject.numbers(subject.of(x), model)
    if not numbers.requires_grad:
        return
    numbers = torch.where(numbers.isfinite(), numbers, 0)
    times = torch.linspace(0, subject.time - 1, min(subject.time, 8), device="cpu").round().long().tolist()
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

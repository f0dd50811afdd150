"""How far apart two computations of the same numbers may be."""

from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule.testing._subject import Batch, M, Subject, Violation, independent_copy
from chainrule.testing._values import distance
from chainrule.testing._weights import weighted

TOLERANCE = 1e-9  # relative; float64 rounding of the forms of one function stays below 1e-12 in a tame model
SHARP = 1e-6  # of a model with large weights, which amplifies rounding


@torch.no_grad()
def rounding(subject: Subject[M], batch: Batch) -> Tensor:
    """(B, T) by how much rounding alone may move the numbers of a batch, nats.

    A recurrence with large weights amplifies the last bit at every step. How much is measured: the weights are moved by
    a few units in the last place, and a hundred times the effect is allowed.
    """
    moved = independent_copy(subject.model)
    for parameter in moved.parameters():
        if parameter.is_floating_point():
            parameter.mul_(1 + 4 * torch.finfo(torch.float64).eps * subject.normal(parameter.shape))
    return TOLERANCE + 100 * distance(subject.numbers(batch), subject.numbers(batch, moved))


def trials(subject: Subject[M], batch: Batch) -> Iterator[tuple[str, M, Tensor]]:
    """The model and one with large weights, each with its name and what rounding may move, (B, T)."""
    allowed = rounding(subject, batch)
    for label, model in weighted(subject, "sharp"):
        yield label, model, torch.full_like(allowed, SHARP) if label else allowed


def require_equal(left: Tensor, right: Tensor, tolerance: Tensor | float, message: str) -> None:
    """Raise `Violation` where two (B, T, K) arrays of numbers differ by more than `tolerance` (B, T).

    message: the error, with `{t}` for the first position, `{row}` for a row and `{gap}` for the difference there.
    """
    if left.shape != right.shape:
        what = message.format(t="t", row="row", gap="some")
        raise Violation(
            f"distributions of different kinds: {tuple(left.shape)} and {tuple(right.shape)} numbers; {what}"
        )
    gaps = distance(left, right)
    apart = gaps > tolerance
    if not apart.any():
        return
    t = int(apart.any(0).nonzero()[0])
    row = int(apart[:, t].nonzero()[0])
    raise Violation(message.format(t=t, row=row, gap=f"{float(gaps[row, t]):.3g}"))


def require_sum(total: Tensor, expected: Tensor, tolerance: float, label: str) -> None:
    """Raise `Violation` where log-likelihoods of rows, (B,), are not the sums of the terms of their elements."""
    if tuple(total.shape) != tuple(expected.shape):
        raise Violation(f"{label}log_prob: expected shape {tuple(expected.shape)}, got {tuple(total.shape)}")
    gap = (total - expected).abs() / (1 + expected.abs())
    wrong = (gap > tolerance) | (total.isnan() != expected.isnan())
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise Violation(
            f"{label}log_prob of row {row} is {float(total[row]):.6g}, "
            f"the sum of its conditional log-probabilities {float(expected[row]):.6g}"
        )

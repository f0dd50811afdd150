"""How far apart two computations of the same numbers may be."""

import torch
from torch import Tensor

from chainrule.testing.subject import Subject, Violation, independent_copy
from chainrule.testing.values import distance

TOLERANCE = 1e-9  # relative; float64 rounding of the forms of one function stays below 1e-12 in a tame model


@torch.no_grad()
def rounding(subject: Subject, x: Tensor, rows: Tensor | None = None) -> Tensor:
    """(B, T) by how much rounding alone may move the conditionals of x, nats.

    A recurrence with large weights amplifies the last bit at every step. How much is measured: the weights are moved by
    a few units in the last place, and a hundred times the effect is allowed.
    """
    moved = independent_copy(subject.model)
    for parameter in moved.parameters():
        if parameter.is_floating_point():
            parameter.mul_(1 + 4 * torch.finfo(torch.float64).eps * subject.normal(parameter.shape))
    effect = distance(subject.forward(x, rows), subject.forward(x, rows, model=moved))
    return TOLERANCE + 100 * effect


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

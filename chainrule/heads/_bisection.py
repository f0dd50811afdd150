"""An integer as a series of halves: how a distribution over all integers is written exactly, in few choices each."""

from collections.abc import Callable

import torch
from torch import Tensor

from chainrule._modes import wide, widest
from chainrule.heads._head import Choose

BITS = 54
HALF_RANGE = 2.0 ** (BITS - 1)  # float64 holds every integer in [-2^53, 2^53)


def code_integer(
    log_mass: Callable[[Tensor, Tensor], Tensor],
    rows: torch.Size,
    like: Tensor,
    choose: Choose,
    value: Tensor | None = None,
    *,
    skipped: Tensor | None = None,
) -> Tensor:
    r"""Write integers, or read them, by halving the interval that they are in 54 times.

    .. math:: p(v) = p(I_0) \prod_{j=1}^{54} p(I_j \mid I_{j-1}),
        \qquad I_0 \supset I_1 \supset \ldots \supset I_{54} = \{v\}

    where each interval is a half of the one before it, and :math:`I_0 = [-2^{53}, 2^{53})` has the probability 1.

    Args:
        log_mass: log of the probability of the integers from the first tensor to the second, both (B,) and included.
        rows: (B,).
        like: a tensor of the type and on the device of the integers.
        choose: see `Head.code`.
        value: (B,) to write; `None` to read. What is outside the interval counts as its nearest end.
        skipped: (B,) booleans: rows in which each choice has one possible outcome.

    >>> from chainrule.heads import IntegerLogisticMixture
    >>> x = IntegerLogisticMixture(torch.zeros(1, 1), torch.full((1, 1), 7.0), torch.zeros(1, 1))
    >>> bits = torch.zeros(1)
    >>> def choose(probabilities, symbols):
    ...     bits.sub_(probabilities.gather(1, symbols.unsqueeze(1)).log2().squeeze(1))
    ...     return symbols
    >>> x.code(choose, torch.tensor([7.0])), bits, -x.log_prob(torch.tensor([7.0])) / torch.tensor(2.0).log()
    (tensor([7.]), tensor([2.0296]), tensor([2.0296]))
    """
    first = torch.full(rows, -HALF_RANGE, dtype=widest(like.device), device=like.device)
    size = 2 * HALF_RANGE
    for _ in range(BITS):
        size /= 2
        middle = first + size
        below, above = log_mass(first, middle - 1), log_mass(middle, middle + (size - 1))
        upper = wide((above - torch.logaddexp(below, above)).exp()).nan_to_num(0.5)
        if skipped is not None:
            upper = upper.masked_fill(skipped, 0)
        half = choose(torch.stack([1 - upper, upper], -1), None if value is None else (value >= middle).long())
        first = torch.where(half == 1, middle, first)
    return first.to(like.dtype)

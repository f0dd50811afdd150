"""Rows of sequences, written or read element by element, all rows at a time."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context, Step
from chainrule._modes import in_evaluation
from chainrule.coding._range_coder import RangeCoder
from chainrule.heads._adapter import head_of

Progress = Callable[[int], None]


def nothing(_: int) -> None:
    """Take no notice of progress."""


@in_evaluation
@torch.no_grad()
def code_rows(
    model: AutoregressiveModel,
    coder: RangeCoder,
    rows: int,
    length: int,
    sequence: Tensor | None = None,
    context: Context = None,
    *,
    lengths: npt.NDArray[np.int64] | None = None,
    eos: int | None = None,
    progress: Progress = nothing,
    step: Step | None = None,
) -> Tensor:
    r"""Write sequences, or read them: one loop for both, so that both see the same probabilities, bit for bit.

    .. math:: \text{bits} = \sum_t -\log_2 p(x_t \mid x_{<t}, c)

    Args:
        model: it is set to evaluation mode.
        coder: a `RangeEncoder` or a `RangeDecoder`.
        rows: B, the same on both sides: a product of a larger batch is rounded otherwise.
        length: T; with `eos`, the most elements that a row has.
        sequence: (B, T, ...) in visiting order; `None` to read.
        context: of the rows.
        lengths: (B,) elements of each row; T if `None`.
        eos: a symbol that ends its row.
        progress: called with the number of elements done in each step.
        step: the model's `prepare().step`, where it is at hand.

    Returns:
        (B, T, ...) the elements; with `eos`, as many as the longest row has. What follows a row's end is symbol 0.
    """
    step, state = step or model.prepare().step, model.initial_state(rows, context)
    going = np.ones(rows, dtype=np.bool_)
    elements: list[Tensor] = []
    for t in range(length):
        if lengths is not None:
            going &= lengths > t
        if not going.any():
            break
        coder.active = None if going.all() else going
        conditional, state = step(elements[-1] if elements else None, state)
        elements.append(head_of(conditional).code(coder, None if sequence is None else sequence[:, t]))
        progress(int(going.sum()))
        if eos is not None:
            going &= (elements[-1] != eos).cpu().numpy()
    return torch.stack(elements, 1)

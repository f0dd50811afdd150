"""Many continuations of each row, from one reading of its context."""

from collections.abc import Iterator
from itertools import islice
from time import monotonic

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import device_of, in_evaluation
from chainrule._ranges import check_sizes
from chainrule.heads._adapter import head_of
from chainrule.state import count_rows, expand, map_state, select


@in_evaluation
@torch.no_grad()
def sample_paths(
    model: AutoregressiveModel,
    context: Context,
    *,
    paths: int,
    length: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw several sequences for each row of a context: it is read once, and its state is forked.

    `model.sample` with each row of the context repeated draws from the same distribution, but reads it for every path.

    Args:
        model: any model of the contract.
        context: the condition of each of B rows, batch first.
        paths: sequences for each row.
        length: elements of each sequence.
        generator: source of randomness; the same seed gives the same paths.

    Returns:
        (B, paths, length) and the shape of an element.

    Raises:
        ValueError: `paths` or `length` is below 1, or the context has no rows.

    >>> from chainrule.models import WaveNet
    >>> model = WaveNet(levels=4, channels=4, layers_per_block=2, skip_channels=4, num_classes=3)
    >>> sample_paths(model, torch.tensor([0, 2]), paths=5, length=7).shape
    torch.Size([2, 5, 7])
    """
    check_sizes(paths=paths, length=length)
    device = device_of(model)
    rows = count_rows(context)
    if not rows:
        raise ValueError("context: expected at least one row, got none")
    expanded = expand(map_state(lambda leaf: leaf.to(device), context), rows)
    forks = torch.arange(rows, device=device).repeat_interleave(paths)
    state = select(model.initial_state(rows, expanded), forks)
    step, x_prev, elements = model.prepare().step, None, []
    for _ in range(length):
        conditional, state = step(x_prev, state)
        x_prev = head_of(conditional).sample(generator=generator)
        elements.append(x_prev)
    return torch.stack(elements, 1).unflatten(0, (rows, paths))


def draw_for(stream: Iterator[Tensor], length: int, seconds: float) -> Tensor:
    """At most `length` elements of a stream of (n,) elements, at least one, drawn for about `seconds`: (n, T)."""
    began, drawn = monotonic(), []
    for element in islice(stream, length):
        drawn.append(element)
        if monotonic() - began > seconds:
            break
    return torch.stack(drawn, 1)

"""Draw a sample within a time limit."""

from collections.abc import Iterator
from itertools import islice
from time import monotonic

import torch
from torch import Tensor


def draw_for(stream: Iterator[Tensor], length: int, seconds: float) -> Tensor:
    """At most `length` elements of a stream of (n,) elements, at least one, drawn for about `seconds`: (n, T).

    Args:
        stream: see `AutoregressiveModel.stream`.
        length: largest T, reached if the time suffices.
        seconds: after which no further element is begun.
    """
    began, drawn = monotonic(), []
    for element in islice(stream, length):
        drawn.append(element)
        if monotonic() - began > seconds:
            break
    return torch.stack(drawn, 1)

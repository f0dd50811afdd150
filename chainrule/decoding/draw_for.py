"""As much of a sample as there is time for."""

from collections.abc import Iterator
from itertools import islice
from time import monotonic

import torch
from torch import Tensor


def draw_for(stream: Iterator[Tensor], length: int, seconds: float) -> Tensor:
    """At most `length` elements of a stream of (n,) elements, at least one, drawn for about `seconds`: (n, T).

    Args:
        stream: see `AutoregressiveModel.stream`.
        length: T where the time reaches.
        seconds: after which no further element is begun.
    """
    began, drawn = monotonic(), []
    for element in islice(stream, length):
        drawn.append(element)
        if monotonic() - began > seconds:
            break
    return torch.stack(drawn, 1)

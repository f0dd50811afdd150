"""What a task shows and measures at validations."""

from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING

from chainrule_app.heavy import torch

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.training import Findings, Preview

OnValidation = Callable[["TrainableModel", int, float], "str | Preview | None"]
"""Function of the model, the step and the seconds that it may take, which shows samples."""
Observe = Callable[["TrainableModel"], "Findings"]
"""Function that measures extra metrics of a model."""


def draw_for(stream: "Iterator[Tensor]", length: int, seconds: float) -> "Tensor":
    """At most `length` elements of a stream of (n,) elements, at least one, drawn for about `seconds`: (n, T)."""
    began, drawn = monotonic(), []
    for element in islice(stream, length):
        drawn.append(element)
        if monotonic() - began > seconds:
            break
    return torch.stack(drawn, 1)

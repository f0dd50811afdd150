"""Parts shared by the recurrences: slices of flat arrays by time step, and their types."""

from collections.abc import Iterator

import torch
from torch import Tensor


def previous(first: Tensor, flat: Tensor, sizes: list[int]) -> list[Tensor]:
    """For each step the states it started from: `first` at step 0, then those of the rows still running.

    first: (B, M), the initial state; flat: (R, M), the states after each step.
    """
    before = [first.to(flat.dtype), *flat.split(sizes)]
    return [h[:size] for h, size in zip(before, sizes, strict=False)]


def weight_gradient(d: Tensor, first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """Σ_t D_t δ_t h_{t−1}ᵀ, one product over all steps.

    d: (R, K), gradients at the pre-activations; first: (B, M); flat: (R, M). Returns (K, M).
    """
    rows = sizes[0]
    if rows != sizes[-1]:
        return torch.mm(d.t(), torch.cat(previous(first, flat, sizes)))
    start = torch.mm(d[:rows].t(), first[:rows].to(flat.dtype))  # all but the first step without a copy of the states
    return torch.addmm(start, d[rows:].t(), flat[:-rows])


def last(first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """The state of each row after its own last step, (B, M); a row without any step keeps its initial state."""
    final = flat.split(sizes)
    # Rows end in order, the shortest first: row r ends at the last step whose size exceeds r.
    parts, running = [], 0
    for h, size in zip(reversed(final), reversed(sizes), strict=True):
        if size > running:
            parts.append(h[running:size])
            running = size
    parts.append(first[running:].to(flat.dtype))
    return torch.cat(parts)


def forwards(sizes: list[int], *flat: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """The slices of several flat arrays, time step by time step."""
    return zip(*(array.split(sizes) for array in flat), strict=True)


def backwards(sizes: list[int], *flat: Tensor | list[Tensor]) -> Iterator[tuple[Tensor, ...]]:
    """The same, last step first; a list is of slices already."""
    steps = (array if isinstance(array, list) else array.split(sizes) for array in flat)
    return zip(*(reversed(slices) for slices in steps), strict=True)


def wide_dtype(projected: Tensor) -> torch.dtype:
    """The type in which gates and cells are kept: the projection's own, but never less than float32."""
    return torch.float32 if projected.dtype in (torch.bfloat16, torch.float16) else projected.dtype


def tanh(a: Tensor, out: Tensor) -> Tensor:
    """tanh(a) into `out`, which may be `a`.

    On a CPU in float32 it is taken as 2σ(2a) − 1: equal to within 2e-7, and a third of the time, since torch's sigmoid
    is vectorised and its tanh is not.
    """
    if a.dtype == torch.float32 and a.device.type == "cpu":
        return torch.mul(a, 2, out=out).sigmoid_().mul_(2).sub_(1)
    return torch.tanh(a, out=out)

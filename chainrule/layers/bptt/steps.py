"""What the recurrences share: slices of flat arrays by time step, and products in the projection's precision."""

import torch
from torch import Tensor


def previous(first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """The state that each row of `flat` was computed from: `first` at step 0, then the rows one step earlier.

    first: (B, M), the initial state; flat: (N, M), the states after each step. Returns (N, M).
    """
    if not sizes:
        return flat
    if sizes[0] == sizes[-1]:
        return torch.cat([first[: sizes[0]].to(flat.dtype), flat[: -sizes[0]]])
    steps = flat.split(sizes)
    return torch.cat(
        [first[: sizes[0]].to(flat.dtype), *(h[:size] for h, size in zip(steps, sizes[1:], strict=False))]
    )


def last(first: Tensor, flat: Tensor, sizes: list[int]) -> Tensor:
    """The state of each row after its own last step, (B, M); a row without any step keeps its initial state."""
    if not sizes:
        return first.clone()
    final = flat.split(sizes)
    # Rows end in order, the shortest first: row r ends at the last step whose size exceeds r.
    parts, running = [], 0
    for h, size in zip(reversed(final), reversed(sizes), strict=True):
        if size > running:
            parts.append(h[running:size])
            running = size
    parts.append(first[running:].to(flat.dtype))
    return torch.cat(parts)


def backwards(flat: Tensor, sizes: list[int]) -> list[Tensor]:
    """The time steps of `flat`, last first."""
    return list(flat.split(sizes))[::-1]


def wide_dtype(projected: Tensor) -> torch.dtype:
    """The type in which gates and cells are kept: the projection's own, but never less than float32."""
    return torch.float32 if projected.dtype in (torch.bfloat16, torch.float16) else projected.dtype


class Product:
    """`addend + h @ weight`, with the product taken in the weight's type and the sum in the wide one."""

    def __init__(self, weight: Tensor, rows: int, wide: torch.dtype):
        self.weight = weight
        self.mixed = weight.dtype != wide
        self.scratch = weight.new_empty(rows, weight.shape[1]) if self.mixed else None

    def add(self, addend: Tensor, h: Tensor, out: Tensor) -> Tensor:
        if self.scratch is None:
            return torch.addmm(addend, h, self.weight, out=out)
        product = torch.mm(h, self.weight, out=self.scratch[: h.shape[0]])
        return torch.add(addend, product, out=out)

    def into(self, h: Tensor, out: Tensor) -> Tensor:
        if self.scratch is None:
            return torch.mm(h, self.weight, out=out)
        return out.copy_(torch.mm(h, self.weight, out=self.scratch[: h.shape[0]]))

"""Rows of unequal length: one flat list of their real elements, masks of their ends, and one vector for each row.

Rows are ordered longest first, so that the rows still running at step t are the first b_t ones: a recurrence reads
contiguous slices, and its cost is the number of real elements Σ_t b_t, never B·T::

                 row 0: a b c                 time step        0    1    2
    x (B, T) =   row 1: d - -       flat =    elements        a d  b    c
                                              sizes b_t        2    1    1
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor, nn

from chainrule._checks import check_lengths
from chainrule._ranges import check_sizes
from chainrule.kernels._transforms import values_are_known


@dataclass(frozen=True)
class Packing:
    """The place of each real element of a (B, T) batch in the flat list of R = Σ lengths elements."""

    batch_size: int
    time: int
    sizes: list[int]  # b_t, rows still running at step t; steps that no row reaches are left out
    rows: Tensor | None = None  # (B,) row numbers, longest first; None where all rows are full
    lengths: Tensor | None = None  # (B,) lengths in the order of `rows`

    @staticmethod
    def of(x: Tensor, lengths: Tensor | None) -> "Packing":
        """Return the packing of x (B, T, ...). Raises ValueError for lengths of the wrong shape or outside [0, T]."""
        batch_size, time = x.shape[:2]
        if lengths is None:
            return Packing(batch_size, time, [batch_size] * time)
        check_lengths(lengths)
        lengths = lengths.cpu()  # where they are compared and sorted without waiting for a GPU each time
        check_lengths(lengths, (batch_size, time))
        ordered = torch.sort(lengths.long(), descending=True, stable=True)
        longest_first = ordered.values
        running = (longest_first.unsqueeze(0) > torch.arange(time, device="cpu").unsqueeze(1)).sum(1)
        sizes = [size for size in running.tolist() if size]
        return Packing(batch_size, time, sizes, ordered.indices.to(x.device), longest_first.to(x.device))

    @cached_property
    def _position(self) -> tuple[Tensor, Tensor]:
        """(R,) place in `rows` and time step of each flat element."""
        assert self.lengths is not None
        sizes = torch.tensor(self.sizes, dtype=torch.long, device="cpu")
        step = torch.repeat_interleave(torch.arange(len(self.sizes), device="cpu"), sizes)
        row = torch.arange(int(sizes.sum()), device="cpu") - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)
        return row.to(self.lengths.device), step.to(self.lengths.device)

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, ...) -> (R, ...)."""
        if self.rows is None:
            return x.transpose(0, 1).reshape(self.time * self.batch_size, *x.shape[2:])
        row, step = self._position
        return x[self.rows[row], step]

    def unpack(self, flat: Tensor) -> Tensor:
        """(R, ...) -> (B, T, ...), zero past each row's end."""
        if self.rows is None:
            return flat.view(self.time, self.batch_size, *flat.shape[1:]).transpose(0, 1)
        row, step = self._position
        padded = flat.new_zeros(self.batch_size, self.time, *flat.shape[1:])
        return padded.index_put((self.rows[row], step), flat)

    def reverse(self, flat: Tensor) -> Tensor:
        """Turn each row round within its own length; its own inverse. (R, ...) -> (R, ...)."""
        if self.rows is None:
            return flat.view(self.time, self.batch_size, *flat.shape[1:]).flip(0).reshape(flat.shape)
        assert self.lengths is not None
        row, step = self._position
        start = torch.tensor([0, *self.sizes[:-1]], device=flat.device).cumsum(0)
        return flat[start[self.lengths[row] - 1 - step] + row]

    def enter(self, state: Tensor) -> Tensor:
        """Put the rows of a state (B, ...) longest first."""
        return state if self.rows is None else state.index_select(0, self.rows)

    def leave(self, state: Tensor) -> Tensor:
        """Put the rows of a state back into the caller's order."""
        return state if self.rows is None else state.index_select(0, torch.argsort(self.rows))


def zero_past_ends(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Zero the padding of x (B, T, ...), which may hold anything; `None` are full rows.

    >>> zero_past_ends(torch.ones(2, 3), torch.tensor([3, 1]))
    tensor([[1., 1., 1.],
            [1., 0., 0.]])
    """
    real = real_steps(x, lengths)
    return x if real is None else x.masked_fill(~real.view(real.shape + (1,) * (x.dim() - 2)), 0)


def last_before_ends(rows: Tensor, size: int, lengths: Tensor | None) -> Tensor:
    """Return the `size` elements up to the end of each row, of (B, size + T, ...): those before a chunk, and the chunk.

    >>> last_before_ends(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 0]]), 2, torch.tensor([2, 1]))
    tensor([[3, 4],
            [6, 7]])
    """
    if lengths is None:
        return rows[:, rows.shape[1] - size :]
    places = lengths.to(rows.device).unsqueeze(1) + torch.arange(size, device=rows.device)
    places = places.view(places.shape + (1,) * (rows.dim() - 2)).expand(-1, -1, *rows.shape[2:])
    return rows.gather(1, places)


def real_steps(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """(B, T) booleans, true at real steps of x (B, T, ...); `None` where every row is full.

    >>> real_steps(torch.zeros(2, 3, 1), torch.tensor([0, 2]))
    tensor([[False, False, False],
            [ True,  True, False]])
    """
    if lengths is None:
        return None
    check_lengths(lengths, (x.shape[0], x.shape[1]))
    return torch.arange(x.shape[1], device=x.device) < lengths.to(x.device).unsqueeze(1)


def scored_places(x: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the row and the step of each element that is scored, (R,): no padding, unless lengths are not known.

    Then come booleans (R,), true at real elements, where they are not all real.

    >>> rows, steps, _ = scored_places(torch.zeros(2, 3), torch.tensor([0, 2]))
    >>> rows.tolist(), steps.tolist()
    ([1, 1], [0, 1])
    """
    real, (batch_size, time) = real_steps(x, lengths), x.shape[:2]
    if real is not None and values_are_known(real):
        rows, steps = real.nonzero(as_tuple=True)
        return rows, steps, None
    rows, steps = (torch.arange(size, device=x.device) for size in (batch_size, time))
    return rows.repeat_interleave(time), steps.repeat(batch_size), None if real is None else real.flatten()


POOLINGS = ("last", "mean", "max", "attention")


def mean_pooling(h: Tensor, lengths: Tensor | None = None) -> Tensor:
    r"""Average each row's real steps, :math:`z = \frac{1}{T_b} \sum_{t \le T_b} h_t`; zero for an empty row.

    Args:
        h: (B, T, M); padding is never read.
        lengths: (B,) real steps of each row; None if all are full.

    Returns:
        (B, M).

    >>> mean_pooling(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2]))
    tensor([[2.]])
    """
    total = zero_past_ends(h, lengths).sum(1)
    return total / (max(h.shape[1], 1) if lengths is None else lengths.to(h.device).clamp(min=1).unsqueeze(1))


def max_pooling(h: Tensor, lengths: Tensor | None = None) -> Tensor:
    r"""Take the largest value of each unit over a row's real steps, :math:`z_m = \max_{t \le T_b} h_{tm}`; zero for an
    empty row (Collobert and Weston 2008: max over time).

    Args:
        h: (B, T, M); padding is never read.
        lengths: (B,) real steps of each row; None if all are full.

    Returns:
        (B, M).

    >>> max_pooling(torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([2]))
    tensor([[3.]])
    """
    real = real_steps(h, lengths)
    if h.shape[1] == 0:
        return h.new_zeros(h.shape[0], h.shape[2])
    if real is None:
        return h.amax(1)
    largest = h.masked_fill(~real.unsqueeze(2), -torch.inf).amax(1)
    return largest.masked_fill(~real.any(1, keepdim=True), 0)


@final
class AttentionPooling(nn.Module):
    r"""A mean weighted by the scores of a small network (Yang et al. 2016, without their hierarchy).

    .. math::
        e_t = v^\top \tanh(W h_t + b), \qquad \alpha = \mathrm{softmax}(e_{1..T_b}), \qquad z = \sum_t \alpha_t h_t
    """

    def __init__(self, input_size: int, attention_size: int = 64):
        super().__init__()
        check_sizes(input_size=input_size, attention_size=attention_size)
        self.hidden = nn.Linear(input_size, attention_size)
        self.energy = nn.Linear(attention_size, 1, bias=False)  # a bias would fall out of the softmax

    def forward(self, h: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Pool h (B, T, M) over the real steps of each row: z (B, M), and the weights α (B, T).

        They sum to 1 over a row's real steps and are 0 past its end; all 0, as z is, for an empty row.
        """
        h = zero_past_ends(h, lengths)
        alpha = self.weights(h, lengths)
        return (alpha.unsqueeze(1).to(h) @ h).squeeze(1), alpha

    def weights(self, h: Tensor, lengths: Tensor | None = None) -> Tensor:
        """α alone, (B, T)."""
        real = real_steps(h, lengths)
        if real is None:
            return self._energies(h).softmax(1)
        energies = self._energies(h.masked_fill(~real.unsqueeze(2), 0))
        # The lowest number instead of -inf: the softmax of an empty row is then no NaN.
        lowest = torch.finfo(energies.dtype).min
        return energies.masked_fill(~real, lowest).softmax(1).masked_fill(~real, 0)

    def _energies(self, h: Tensor) -> Tensor:
        energies = self.energy(self.hidden(h).tanh()).squeeze(2)
        return energies.float() if energies.dtype in (torch.bfloat16, torch.float16) else energies

"""Every value that a cell of a table may have, with its exact probability, or the nodes of an integral over them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from chainrule.decoding._quadrature import integrate, normal_scores
from chainrule.heads._logistic_mixtures import IntegerLogisticMixture
from chainrule.heads._table_column import Column, TableColumn
from chainrule.modes import wide

_ENUMERATED = 512  # integers of a cell that are tried one by one; of a wider range the sum is an integral
_REACH = 7.0  # normal scores of the range that is enumerated: it leaves out 1e-12 of p(x_j | x_<j) on each side
_LEFT_OUT = 1e-10  # probability outside the integers that are enumerated after an integral


class Candidates(Protocol):
    """Values that a cell may take, and what they change; see `chainrule.models._table_candidates`."""

    own: TableColumn
    log_before: Tensor

    def log_later(self, rows: Tensor, symbols: Tensor, numbers: Tensor) -> Tensor:
        """Return the nats of the later factors, (M,)."""

    def own_log_prob(self, rows: Tensor, values: Tensor) -> Tensor:
        """Return log p(x_j | x_<j), nats (M,)."""


class CellModel(Protocol):
    """A model of the rows of a table that knows what a cell changes."""

    columns: Sequence[Column]
    order: Sequence[int]

    def candidates(self, x: Tensor, column: int, counted: Tensor) -> Candidates:
        """Return what changes of rows (B, D) as the cell of a column does, among the counted factors (B, D)."""


@dataclass(frozen=True)
class Points:
    """Points of a column in B rows, and the log-probability of the whole row with each of them, nats."""

    values: Tensor  # (B, N)
    logs: Tensor  # (B, N), −inf where a row has fewer
    log_missing: Tensor  # (B,)
    error: Tensor  # (B,), as a share
    discrete: Tensor  # (N,) which points are values of their own


def exact_points(model: CellModel, x: Tensor, column: int, counted: Tensor, tolerance: float) -> Points:
    """Return the points of a column given every other cell that is counted."""
    candidates = model.candidates(x, column, counted)
    about = model.columns[column]
    rows = torch.arange(len(x), device=x.device)
    if about.kind == "categorical":
        codes = torch.arange(about.categories, device=x.device).expand(len(x), -1)
        values = wide(codes)
        logs = _symbol_logs(candidates, codes, values)
        nothing = torch.full_like(logs[:, 0], -torch.inf)
        return Points(values, logs, nothing, torch.zeros_like(nothing), _all(values))
    atoms = torch.tensor(about.atoms, dtype=x.dtype, device=x.device)
    codes = torch.arange(len(atoms), device=x.device).expand(len(x), -1)
    values = atoms.expand(len(x), -1)
    logs = _symbol_logs(candidates, codes, values)
    log_missing = torch.full_like(candidates.log_before, -torch.inf)
    if about.missing:
        gone = torch.full((len(x), 1), about.symbols - 2, device=x.device)
        log_missing = _symbol_logs(candidates, gone, torch.full_like(gone, torch.nan, dtype=x.dtype)).squeeze(1)
    if about.kind == "real":
        points, others, error = _integral(candidates, rows, tolerance)
        discrete = torch.arange(len(atoms) + points.shape[1], device=x.device) < len(atoms)
        return Points(torch.cat([values, points], 1), torch.cat([logs, others], 1), log_missing, error, discrete)
    listed = Points(values, logs, log_missing, torch.zeros_like(log_missing), _all(values))
    return _integers(candidates, listed, tolerance)


def _all(values: Tensor) -> Tensor:
    """(N,) booleans: all of the points (B, N)."""
    return torch.ones(values.shape[1], dtype=torch.bool, device=values.device)


def _symbol_logs(candidates: Candidates, symbols: Tensor, values: Tensor) -> Tensor:
    """Return log p(x), nats (B, N), with the cell at symbols (B, N) of the column, which stand for values."""
    rows = torch.arange(len(values), device=values.device).repeat_interleave(values.shape[1])
    if not len(rows):
        return values.new_zeros(values.shape)
    own = candidates.own_log_prob(rows, values.flatten())
    logs = own + candidates.log_later(rows, symbols.flatten(), values.flatten().nan_to_num())
    return logs.view(values.shape) + candidates.log_before.unsqueeze(1)


def _integral(candidates: Candidates, rows: Tensor, tolerance: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the nodes (B, N) of numbers that are no atoms, their log-probabilities, and the error of their sum."""
    own, number = candidates.own, candidates.own.group.symbols - 1
    mixture = own.mixture
    parameters = [part[rows] for part in mixture.parameters[:3]]
    low = mixture.low.expand(len(mixture.logits))[rows] if isinstance(mixture, IntegerLogisticMixture) else None
    log_other = own.logits.log_softmax(-1)[rows, number] + candidates.log_before[rows]

    def integrand(index: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return x(v), and log of φ(v) p(x_<j) π_other L(x(v))."""
        values = normal_scores(scores, *(part[index] for part in parameters), normal=low is None)
        if low is not None:
            values = torch.maximum(values, low[index])
        later = candidates.log_later(rows[index], torch.full_like(index, number), values)
        return values, log_other[index] + later - scores.square() / 2 - math.log(2 * math.pi) / 2

    return integrate(integrand, len(rows), rows.device, tolerance)


def _integers(candidates: Candidates, discrete: Points, tolerance: float) -> Points:
    """Return the points of a column of integers: one by one in a narrow range, else by an integral."""
    mixture = candidates.own.mixture
    assert isinstance(mixture, IntegerLogisticMixture)
    count = len(discrete.values)
    rows = torch.arange(count, device=discrete.values.device)
    first, last = (_end(mixture, score).round() for score in (-_REACH, _REACH))
    wide_rows = rows[last - first >= _ENUMERATED]
    nodes = None
    error = discrete.error.clone()
    if len(wide_rows):
        points, logs, errors = _integral(candidates, wide_rows, tolerance)
        shares = (logs - logs.logsumexp(1, keepdim=True)).exp()
        order = points.argsort(1)
        below = shares.gather(1, order).cumsum(1)
        ascending = points.gather(1, order)
        ends = [
            (below < share).sum(1, keepdim=True).clamp(max=points.shape[1] - 1) for share in (_LEFT_OUT, 1 - _LEFT_OUT)
        ]
        low, high = (ascending.gather(1, end).squeeze(1) for end in ends)
        narrow = high - low < _ENUMERATED - 2
        first[wide_rows], last[wide_rows] = low.floor() - 1, high.ceil() + 1
        still = ~narrow
        wide_rows, nodes = wide_rows[still], (points[still], logs[still])
        error[wide_rows] = errors[still]
    listed = torch.ones(count, dtype=torch.bool, device=rows.device)
    listed[wide_rows] = False
    values, logs = _enumerated(candidates, discrete.values, first, last, listed)
    values, logs = torch.cat([discrete.values, values], 1), torch.cat([discrete.logs, logs], 1)
    own = _all(values)
    if nodes is not None and len(wide_rows):
        more = torch.zeros(count, nodes[0].shape[1], dtype=values.dtype, device=rows.device)
        more[wide_rows] = nodes[0]
        more_logs = torch.full_like(more, -torch.inf)
        more_logs[wide_rows] = _without_atoms(candidates, discrete.values, wide_rows, *nodes)
        values, logs = torch.cat([values, more], 1), torch.cat([logs, more_logs], 1)
        own = torch.cat([own, ~_all(more)])
    return Points(values, logs, discrete.log_missing, error, own)


def _end(mixture: IntegerLogisticMixture, score: float) -> Tensor:
    """(B,) the integers' normal score; at least the smallest integer."""
    scores = torch.full_like(mixture.means[:, 0], score)
    return torch.maximum(normal_scores(scores, *mixture.parameters[:3], normal=False), mixture.low)


def _enumerated(
    candidates: Candidates, atoms: Tensor, first: Tensor, last: Tensor, listed: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the integers (B, N) from first to last that are no atoms, and log p(x) with each, in the `listed` rows."""
    length = int((last - first + 1)[listed].amax().clamp(max=_ENUMERATED + 2)) if bool(listed.any()) else 0
    steps = torch.arange(length, dtype=atoms.dtype, device=atoms.device)
    values = first.unsqueeze(1) + steps
    taken = (values.unsqueeze(2) == atoms.unsqueeze(1)).any(2) if atoms.shape[1] else torch.zeros_like(values).bool()
    used = listed.unsqueeze(1) & (values <= last.unsqueeze(1)) & ~taken
    rows, _ = used.nonzero(as_tuple=True)
    numbers = values[used]
    number = torch.full_like(rows, candidates.own.group.symbols - 1)
    logs = torch.full_like(values, -torch.inf)
    logs[used] = (
        candidates.own_log_prob(rows, numbers)
        + candidates.log_later(rows, number, numbers)
        + candidates.log_before[rows]
    )
    return values, logs


def _without_atoms(candidates: Candidates, atoms: Tensor, rows: Tensor, values: Tensor, logs: Tensor) -> Tensor:
    """Return log-probabilities of nodes (R, N) in some rows without what they count of atoms, which have their own.

    The nodes nearest to an atom lose as much as it has among the other numbers.
    """
    count, size = len(rows), atoms.shape[1]
    if not size:
        return logs
    own = candidates.own
    each, numbers = rows.repeat_interleave(size), atoms[rows].flatten()
    mixture = own.mixture.with_parameters(*(part[each] for part in own.mixture.parameters))
    later = candidates.log_later(each, torch.full_like(each, own.group.symbols - 1), numbers)
    as_others = own.logits.log_softmax(-1)[each, -1] + candidates.log_before[each] + mixture.log_prob(numbers) + later
    whole = logs.logsumexp(1, keepdim=True)
    shares, masses = (logs - whole).exp(), (as_others.view(count, size) - whole).exp()
    for atom, mass in zip(atoms[rows].t(), masses.t(), strict=True):
        order = (values - atom.unsqueeze(1)).abs().argsort(1)
        near = shares.gather(1, order)
        nearer = near.cumsum(1) - near
        taken = torch.minimum((mass.unsqueeze(1) - nearer).clamp_min(0), near)
        shares = shares.scatter(1, order, near - taken)
    return whole + shares.log()

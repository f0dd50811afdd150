"""The distribution of a cell of a table given the others: exact, by enumeration or quadrature, or a mean over draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule._ranges import check_sizes
from chainrule.decoding._cell_points import CellModel, Points, exact_points
from chainrule.decoding._completion import draw_particles, resampled
from chainrule.modes import device_of, in_evaluation, wide

_TOGETHER = 256  # rows whose cells are computed at once
_DRAWN = 2048  # draws of these, where other cells are unknown
_STEPS = 100  # shares between which the shortest interval is looked for


@dataclass(frozen=True)
class Conditional:
    r"""The distribution of a cell in each of B rows, as N points with a probability each.

    .. math:: E[f(x_j)] \approx \sum_n w_n f(v_n), \qquad \sum_n w_n + p_\text{missing} = 1

    The points of a categorical column are its codes, and the probabilities are those of its categories. Points of a
    numeric column are atoms, integers, or nodes of a quadrature. Where a row has fewer than N, the others weigh 0.

    Args:
        values: (B, N) points v, ascending in each row.
        weights: (B, N) probabilities w.
        discrete: (B, N) booleans: points that are values of their own; all others stand for the numbers around them.
        missing: (B,) probability that the value of a numeric column is missing.
        log_evidence: (B,) log p of the other known cells, nats: exact, or estimated by draws.
        error: (B,) estimate of the error of all probabilities together; 0 where the values are enumerated.
        draws: draws of the other unknown cells that the distribution is a mean over; 0 where it is exact.
        effective: (B,) how many equally weighted draws that is worth; infinite where it is exact.
    """

    values: Tensor
    weights: Tensor
    discrete: Tensor
    missing: Tensor
    log_evidence: Tensor
    error: Tensor
    draws: int
    effective: Tensor

    @property
    def mean(self) -> Tensor:
        """Mean of the values that are not missing, (B,)."""
        return (self.weights * self.values).sum(1) / self.weights.sum(1)

    def quantile(self, share: float) -> Tensor:
        """Return the value below which a share of the values that are not missing lies, (B,).

        Raises:
            ValueError: the share is not between 0 and 1.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share: expected a number from 0 to 1, got {share}")
        return self._quantiles(self.values.new_tensor([share])).squeeze(1)

    def _quantiles(self, shares: Tensor) -> Tensor:
        """Return the values at several shares (S,), (B, S)."""
        low, high = self._sums
        asked = shares.expand(len(high), -1).contiguous()
        index = torch.searchsorted(high, asked - 1e-12).clamp(max=high.shape[1] - 1)
        before = (index - 1).clamp(min=0)
        left, right = self.values.gather(1, before), self.values.gather(1, index)
        start, end = high.gather(1, before), low.gather(1, index)
        part = ((asked - start) / (end - start).clamp_min(1e-300)).clamp(0, 1)
        return torch.where((asked < end) & (index > 0), left + part * (right - left), right)

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor]:
        r"""Return the probability below each point, and with it, (B, N) each; between points it rises evenly.

        The quadrature fits a parabola to three nodes, of the weights a, b and c. Up to the centre it is

        .. math:: \int_{v_1}^{v_2} f = \tfrac{5}{4} a + \tfrac{1}{2} b - \tfrac{1}{4} c

        Nodes at the ends of an interval are there twice, and the first of two stands for what is left of it.
        """
        weights = self.weights / self.weights.sum(1, keepdim=True)
        below = weights.cumsum(1) - weights
        pad = torch.nn.functional.pad
        twice = self.values[:, 1:] == self.values[:, :-1]
        first, second = pad(twice, (0, 1)).to(weights), pad(twice, (1, 0)).to(weights)
        left = weights * (1 + first - second) / 2
        if not self.draws:
            centre = (first + second + pad(self.discrete, (1, 0))[:, :-1] + pad(self.discrete, (0, 1))[:, 1:]) == 0
            left = left + centre * (pad(weights, (1, 0))[:, :-1] - pad(weights, (0, 1))[:, 1:]) / 4
        return below + left.masked_fill(self.discrete, 0.0), below + torch.where(self.discrete, weights, left)

    def cdf(self, x: Tensor) -> Tensor:
        r"""Return the probability of at most x among the values that are not missing, (B, K), for x of (B, K).

        .. math:: F(x) = P(X \le x), \qquad F(q(s)) = s \text{ for the quantile } q(s) \text{ between nodes}

        Differences of it are the probabilities of intervals, and divided by their lengths the density. Between nodes it
        rises evenly, which is wrong by the square of their distance: a smaller `tolerance` puts them closer.
        """
        low, high = self._sums
        right = torch.searchsorted(self.values, x.contiguous(), right=True)
        left, last = (right - 1).clamp(min=0), right.clamp(max=high.shape[1] - 1)
        begin, end = self.values.gather(1, left), self.values.gather(1, last)
        start = high.gather(1, left)
        part = ((x - begin) / (end - begin).clamp_min(1e-300)).clamp(0, 1)
        between = start + part * (low.gather(1, last) - start)
        found = torch.where(right == high.shape[1], 1.0, torch.where(right == 0, 0.0, between))
        return found.clamp(0, 1)

    @property
    def mode(self) -> Tensor:
        """The most probable value, (B,): a category, an integer, or an atom that has a tenth of the probability.

        For other numbers, the median of the shortest interval that has three tenths of it.
        """
        merged = _merged(self.values, self.weights).masked_fill(~self.discrete, 0.0)
        top, index = merged.max(1, keepdim=True)
        likeliest = self.values.gather(1, index).squeeze(1)
        steps = torch.arange(_STEPS + 1, dtype=self.values.dtype, device=self.values.device) / _STEPS
        ends = self._quantiles(steps)
        width = 3 * _STEPS // 10
        middle = (ends[:, width:] - ends[:, :-width]).argmin(1, keepdim=True) + width // 2
        dense = ends.gather(1, middle).squeeze(1)
        probable = self.discrete.all(1) | (top.squeeze(1) >= self.weights.sum(1) / 10)
        return torch.where(probable, likeliest, dense)


@in_evaluation
@torch.no_grad()
def conditional(
    model: AutoregressiveModel,
    x: Tensor,
    columns: Sequence[int],
    known: Tensor | None = None,
    *,
    particles: int = 256,
    draws: int = 16,
    tolerance: float = 1e-6,
    generator: torch.Generator | None = None,
) -> list[Conditional]:
    r"""Return the distribution of cells of a table given all other known cells of their row.

    .. math:: p(x_j \mid x_{-j}) = \frac{p(x_j, x_{-j})}{\sum_v p(x_j = v, x_{-j})}

    Only the factors of column j and of later ones in the model's order depend on :math:`x_j`. The sum is over the
    categories, or over the atoms and the integers in reach of :math:`p(x_j \mid x_{<j})`. For real numbers, and for
    integers of a range above 512, it is an integral over normal scores v of that distribution F,

    .. math:: \int m(x)\, L(x)\, dx = \int \varphi(v)\, L\left(F^{-1}(\Phi(v))\right) dv, \qquad
        L(x_j) = \prod_{d > j} p(x_d \mid x_{<d})

    by an adaptive Simpson rule, which halves intervals until they change the integral by less than `tolerance`. The
    first nodes are 1/8 apart: a peak of L that is narrower than that, with L flat around it, can be missed.

    Where other cells are unknown too, those that the model visits after all known ones have no effect. The rest, U, is
    averaged over:

    .. math:: p(x_j \mid x_K) \approx \frac{1}{R} \sum_{r=1}^{R} p(x_j \mid x_K, x_U^{(r)}), \qquad
        x_U^{(r)} \sim p(x_U \mid x_K)

    The draws come from sequential importance resampling (see `complete`), and once each distribution is known, each
    draw of its cell is replaced by one from it (Gibbs sampling). Averaging distributions instead of counting draws has
    the smaller variance (Rao and Blackwell).

    Args:
        model: a table model, such as `chainrule.models.TableMADE`.
        x: (B, D) rows in the layout of the table; unknown cells are not read.
        columns: the columns j to predict, each from all the others that are known.
        known: (B, D) booleans; by default all cells are known. A cell is never known to its own prediction.
        particles: weighted draws of the unknown cells of each row, for the resampling.
        draws: R, the draws that are kept.
        tolerance: largest change of an integral by a further halving, as a share of it.
        generator: source of the draws; the same seed gives the same distributions.

    Returns:
        A distribution for each of the columns.

    Raises:
        ValueError: the model has no columns, the shapes do not agree, there is no such column, or known cells are
            impossible.

    Source: A. Gelfand and A. Smith, Sampling-based approaches to calculating marginal densities, 1990.

    >>> from chainrule.heads import Column
    >>> from chainrule.models import TableMADE
    >>> model = TableMADE([Column("categorical", categories=2), Column("real", scale=10.0)], hidden_size=4)
    >>> x = torch.tensor([[0.0, 3.0], [1.0, 5.0]])
    >>> first, second = conditional(model, x, [0, 1])
    >>> first.values[0].tolist(), first.weights.sum(1).tolist()
    ([0.0, 1.0], [1.0, 1.0])
    >>> bool((second.quantile(0.1) < second.mean).all())
    True
    """
    if not hasattr(model, "candidates") or model.sequence_length is None:
        raise ValueError(f"model: expected a model of tables, such as TableMADE, got {type(model).__name__}")
    size = model.sequence_length
    known = torch.ones(x.shape, dtype=torch.bool) if known is None else known
    if x.dim() != 2 or known.shape != x.shape or known.dtype != torch.bool or x.shape[1] != size:
        raise ValueError(
            f"known: expected booleans of the shape of x, (B, D) with D = {size}, got {tuple(known.shape)} of "
            f"{known.dtype} with x {tuple(x.shape)}"
        )
    for column in columns:
        if not 0 <= column < size:
            raise ValueError(f"columns: expected numbers from 0 to {size - 1}, got {column}")
    check_sizes(particles=particles, draws=draws)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance: expected a number between 0 and 1, got {tolerance}")
    device = device_of(model)
    x, known = wide(x.to(device)), known.to(device)
    settings = _Settings(particles, draws, tolerance, generator)
    together = _TOGETHER if bool(known.all()) else max(1, _DRAWN // draws)
    parts = zip(x.split(together), known.split(together), strict=True)
    blocks = [_Block(model, rows, cells, settings).predict(columns) for rows, cells in parts]
    return [_stacked([block[index] for block in blocks]) for index in range(len(columns))]


@dataclass(frozen=True)
class _Settings:
    particles: int
    draws: int
    tolerance: float
    generator: torch.Generator | None


class _Block:
    """Rows that are predicted together; the draws of their unknown cells serve all columns."""

    def __init__(self, model: AutoregressiveModel, x: Tensor, known: Tensor, settings: _Settings):
        self._model, self._x, self._known, self._settings = model, x, known, settings
        self._cells = cast("CellModel", model)
        self._visits = torch.tensor(self._cells.order, device=x.device).argsort()
        self._drawn_for: tuple[Tensor, Tensor] | None = None  # the rows that were drawn last, and their known cells

    def predict(self, columns: Sequence[int]) -> list[Conditional]:
        return [self._predict(column) for column in columns]

    def _predict(self, column: int) -> Conditional:
        known = self._known.clone()
        known[:, column] = False
        # Columns after the last one that is known or predicted have no effect, whatever they hold.
        asked = known.clone()
        asked[:, column] = True
        last = torch.where(asked, self._visits, -1).amax(1, keepdim=True)
        unsure = ((~asked) & (self._visits < last)).any(1)
        exact, drawn = (~unsure).nonzero().squeeze(1), unsure.nonzero().squeeze(1)
        results = []
        if len(exact) or not len(drawn):
            points = exact_points(self._cells, self._x[exact], column, known[exact], self._settings.tolerance)
            results.append(_normalised(points))
        if len(drawn):
            results.append(self._averaged(column, known, drawn))
        places = torch.cat([exact, drawn])
        return _stacked(results, places.argsort()) if len(results) > 1 else results[0]

    def _averaged(self, column: int, known: Tensor, rows: Tensor) -> Conditional:
        draws, asked = self._settings.draws, (rows, known[rows])
        if self._drawn_for is None or not all(map(torch.equal, self._drawn_for, asked)):
            self._draw(*asked)
        # All cells of a draw count: each draw is a whole row up to the last known cell, or beyond.
        counted = known[rows].clone()
        last = torch.where(counted, self._visits, -1).amax(1, keepdim=True)
        counted |= self._visits < last
        counted[:, column] = False
        points = exact_points(
            self._cells, self._draws, column, counted.repeat_interleave(draws, 0), self._settings.tolerance
        )
        each = _normalised(points)
        weights = each.weights.unflatten(0, (-1, draws)).flatten(1) / draws
        values, index = each.values.unflatten(0, (-1, draws)).flatten(1).sort(dim=1, stable=True)
        self._draws[:, column] = self._redrawn(column, each)
        return Conditional(
            values,
            weights.gather(1, index),
            each.discrete.unflatten(0, (-1, draws)).flatten(1).gather(1, index),
            each.missing.unflatten(0, (-1, draws)).mean(1),
            self._evidence,
            each.error.unflatten(0, (-1, draws)).mean(1),
            draws,
            self._effective,
        )

    def _redrawn(self, column: int, each: Conditional) -> Tensor:
        """Draw the cell of each draw anew; NaN where it is missing."""
        shares = torch.cat([each.weights.clamp_min(0), each.missing.unsqueeze(1)], 1)
        values = torch.nn.functional.pad(each.values, (0, 1), value=torch.nan)
        drawn = values.gather(1, torch.multinomial(shares, 1, generator=self._settings.generator)).squeeze(1)
        return drawn.round() if self._cells.columns[column].kind == "integer" else drawn

    def _draw(self, rows: Tensor, known: Tensor) -> None:
        """Draw the unknown cells of rows, equally weighted."""
        model, settings = self._model, self._settings
        self._drawn_for = rows, known
        found = draw_particles(
            model,
            model.to_sequence(self._x[rows]),
            model.to_sequence(known),
            particles=settings.particles,
            generator=settings.generator,
        )
        parents = resampled(found.log_weights, settings.generator, settings.draws)
        self._draws = wide(model.from_sequence(found.x[parents]))
        self._evidence, self._effective = found.log_evidence, found.effective.clamp(max=settings.draws)


def _normalised(points: Points) -> Conditional:
    """Return the distribution that points make."""
    logs = torch.cat([points.logs, points.log_missing.unsqueeze(1)], 1)
    most = logs.amax(1, keepdim=True)
    if not bool(most.isfinite().all()):
        row = int((~most.isfinite()).nonzero()[0, 0])
        raise ValueError(f"x: row {row}: the known cells are impossible with any value: expected possible ones")
    shares = (logs - most).exp()
    total = shares.sum(1, keepdim=True)
    weights = shares / total
    values, index = points.values.sort(dim=1, stable=True)
    exact = torch.full_like(points.error, torch.inf)
    evidence = most.squeeze(1) + total.squeeze(1).log()
    weights, missing, discrete = weights[:, :-1].gather(1, index), weights[:, -1], points.discrete[index]
    return Conditional(values, weights, discrete, missing, evidence, points.error, 0, exact)


def _stacked(parts: Sequence[Conditional], order: Tensor | None = None) -> Conditional:
    """Join the rows of several distributions; points of weight 0, at a row's last value, fill the shorter ones."""
    if len(parts) == 1 and order is None:
        return parts[0]
    most = max(part.values.shape[1] for part in parts)

    def wider(part: Conditional) -> tuple[Tensor, ...]:
        more = most - part.values.shape[1]
        values, discrete = (torch.cat([of, of[:, -1:].expand(-1, more)], 1) for of in (part.values, part.discrete))
        weights = torch.nn.functional.pad(part.weights, (0, more))
        return values, weights, discrete, part.missing, part.log_evidence, part.error, part.effective

    joined = [torch.cat(each) for each in zip(*map(wider, parts), strict=True)]
    rows = joined if order is None else [each[order] for each in joined]
    values, weights, discrete, missing, evidence, error, effective = rows
    return Conditional(
        values, weights, discrete, missing, evidence, error, max(part.draws for part in parts), effective
    )


def _merged(values: Tensor, weights: Tensor) -> Tensor:
    """Add up the weights of equal values, at the first of each; the others get 0."""
    same = torch.cat([torch.zeros_like(values[:, :1]).bool(), values[:, 1:] == values[:, :-1]], 1)
    group = (~same).cumsum(1) - 1
    sums = torch.zeros_like(weights).scatter_add_(1, group, weights)
    return torch.where(same, 0.0, sums.gather(1, group))

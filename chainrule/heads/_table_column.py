"""Columns of a table: what they hold, and their distributions."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule._ranges import check_sizes
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Choose, NotDiscreteError, TensorHead, broadcast_shapes
from chainrule.heads._logistic_mixtures import HALF_RANGE, IntegerLogisticMixture, bounded_log_scales, code_integer
from chainrule.heads._real_mixtures import GaussianMixture, LocationScaleMixture
from chainrule.modes import wide, widest

Kind = Literal["categorical", "integer", "real"]
KINDS = ("categorical", "integer", "real")
FARTHEST = 1e9  # in scales of a column: values beyond it are clamped to it
_REACH = 2.0  # asinh z between whose two signs the ramps lie: 3.6 scales of the column


@dataclass(frozen=True)
class Column:
    """A column of a table.

    A categorical column holds codes 0, ..., K−1. A numeric column holds numbers, and NaN for missing values. Its
    **symbols** are its atoms (values frequent enough to have a probability each), then "missing" if values may be
    missing, then "any other number".

    Args:
        kind: categorical, integer or real.
        categories: K, the number of categories of a categorical column.
        atoms: atoms of a numeric column, ascending.
        missing: if true, values of a numeric column may be missing; a categorical column uses a category for this.
        centre: centre of a numeric column, in its unit.
        scale: scale of a numeric column, in its unit; networks read and write (x − centre) / scale.
        low: smallest integer of an integer column; `None` for no bound.
        finest: minimum scale of a component of a real column, in units of `scale`: it is added to the scale and so
            bounds the density.
        decimals: digits after the point that lossless compression keeps of a real column; `None` if the column cannot
            be compressed.
        prior: positive initial probabilities of the symbols; empty for uniform ones.

    Raises:
        ValueError: the kind is unknown, or a number is out of range.

    >>> Column("categorical", categories=3).symbols, Column("real", atoms=(0.0,), missing=True).symbols
    (3, 3)
    """

    kind: Kind
    categories: int = 0
    atoms: tuple[float, ...] = ()
    missing: bool = False
    centre: float = 0.0
    scale: float = 1.0
    low: int | None = None
    finest: float = 1e-3
    decimals: int | None = None
    prior: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {self.kind!r}")
        check_sizes(categories=self.categories if self.kind == "categorical" else None)
        if not (math.isfinite(self.centre) and 0 < self.scale < math.inf):
            raise ValueError(f"centre, scale: expected finite numbers, scale > 0, got {self.centre} and {self.scale}")
        if self.finest <= 0:
            raise ValueError(f"finest: expected a number > 0, got {self.finest}")
        if self.prior and (len(self.prior) != self.symbols or not all(0 < share <= 1 for share in self.prior)):
            raise ValueError(f"prior: expected {self.symbols} positive probabilities, got {self.prior!s:.80}")

    @property
    def numeric(self) -> bool:
        return self.kind != "categorical"

    @property
    def symbols(self) -> int:
        """Number of symbols S: categories, or atoms, missing and any other number."""
        return len(self.atoms) + self.missing + 1 if self.numeric else self.categories

    def features(self, knots: int = 0) -> int:
        """Return the size of a value as a network's input: one number per symbol, the number itself, and its ramps."""
        return self.symbols + (1 + knots) * self.numeric

    def outputs(self, components: int) -> int:
        """Return the size of a network's output for a value: logits of the symbols, and mixture parameters."""
        return self.symbols + 3 * components * self.numeric


class ColumnGroup:
    """Columns of one kind with equal numbers of symbols and atoms; `single` omits the axis of the columns.

    With `knots`, a network also reads K ramps of each number, so that its first layer may be any function that is
    linear between K + 1 points of asinh z, evenly spaced from −2 to 2 (Gorishniy, Rubachev and Babenko 2022).

    >>> ColumnGroup([Column("real", atoms=(0.0,), scale=2.0)], single=True).read(torch.tensor([0.0, 7.0]))
    tensor([[1.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 1.9657]], dtype=torch.float64)
    """

    def __init__(self, columns: Sequence[Column], *, single: bool = False, knots: int = 0):
        first = columns[0]
        self.columns, self.knots = list(columns), knots
        self.kind, self.symbols, self.missing = first.kind, first.symbols, first.missing
        # Plain numbers, not buffers: `model.half()` must not round them, and the meta device would drop their values.
        names = ("atoms", "centre", "scale", "low", "finest")
        self._table = {name: [getattr(column, name) for column in columns] for name in names}
        self._table["low"] = [-math.inf if low is None else low for low in self._table["low"]]
        self._single = single

    def constant(self, name: str, device: torch.device) -> Tensor:
        """Return a parameter of each column, (G,), or (G, A) for the atoms; no first axis if `single`."""
        rows = torch.tensor(self._table[name], dtype=widest(device), device=device)
        return rows[0] if self._single else rows

    def symbol(self, value: Tensor) -> Tensor:
        """Return the symbols of values, (...) integers in [0, S); a value outside the column gets the nearest one."""
        if self.kind == "categorical":
            return value.nan_to_num().round().clamp(0, self.symbols - 1).long()
        symbol = torch.full_like(value, self.symbols - 1, dtype=torch.long)
        if self.missing:
            symbol = symbol.masked_fill(value.isnan(), self.symbols - 2)
        atoms = self.constant("atoms", value.device)
        if atoms.shape[-1]:
            same = value.unsqueeze(-1) == atoms
            symbol = torch.where(same.any(-1), same.int().argmax(-1), symbol)
        return symbol

    def read(self, value: Tensor) -> Tensor:
        """Encode values (...) as a network's input (..., F), float64: one-hot symbol, then asinh of the standardised
        number, which keeps outliers small, and ramps of that.
        """
        value = wide(value)
        symbols = torch.arange(self.symbols, device=value.device)
        symbol = (self.symbol(value).unsqueeze(-1) == symbols).to(value)
        if self.kind == "categorical":
            return symbol
        return torch.cat([symbol, self.read_number(value)], -1)

    def read_number(self, value: Tensor) -> Tensor:
        """Encode the numbers of numeric columns (...) as (..., 1 + knots), float64; a missing one as the centre."""
        number = self.standard(value).unsqueeze(-1)
        if not self.knots:
            return number
        ramps = torch.arange(self.knots, dtype=number.dtype, device=number.device)
        return torch.cat([number, (self.position(number) - ramps).clamp(0, 1)], -1)

    def standard(self, value: Tensor) -> Tensor:
        """Return asinh z of numbers, 0 where they are missing."""
        z = (value - self.constant("centre", value.device)) / self.constant("scale", value.device)
        return z.nan_to_num(0.0).clamp(-FARTHEST, FARTHEST).asinh()

    def position(self, standard: Tensor) -> Tensor:
        """Return how many ramps lie below standardised numbers, from 0 to K; a fraction within a ramp."""
        return ((standard / _REACH + 1) * (self.knots / 2)).clamp(0, self.knots)


class TableColumn(TensorHead):
    r"""A distribution of a column's value, which depends on the kind of the column.

    Let π = softmax(a) over the S symbols of the column, m the mixture of a numeric column, "other" its last symbol:

    .. math:: p(v) = \pi_v \quad\text{(categorical)}, \qquad
        p(v) = \pi_v [v \text{ is an atom}] + \pi_{\text{other}} \, m(v) \quad\text{(integer)}, \qquad
        p(\text{missing}) = \pi_{\text{missing}}

    A real number has probability :math:`\pi_v` if it is an atom, else density :math:`\pi_{\text{other}} \, m(v)`. The
    network models z = (v − centre) / scale, while m has the unit of v: its log-density is the log-density of z minus
    log scale (the Jacobian). Probabilities sum to 1; for a real column, atoms, "missing" and the integral of the
    density together. All computation is in float64.

    Args:
        group: the column, or several columns of one kind.
        outputs: (..., n) network outputs, n = `Column.outputs`; the last batch axis is the axis of the columns, unless
            the group is `single`.

    >>> from chainrule.heads import Column
    >>> group = ColumnGroup([Column("real", missing=True, scale=10.0)], single=True)
    >>> x = TableColumn(group, torch.zeros(2 + 3))
    >>> x.log_prob(torch.tensor([torch.nan, 0.0]))  # log 1/2, and log 1/2 - log(10 * 1.001) - log sqrt(2 pi)
    tensor([-0.6931, -3.9157], dtype=torch.float64)
    """

    def __init__(self, group: ColumnGroup, outputs: Tensor):
        self.group, self.outputs = group, outputs
        self.logits = wide(outputs[..., : group.symbols])
        super().__init__(outputs.shape[:-1], validate_args=False)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self.outputs,)

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self.group,)

    def with_parameters(self, *parameters: Tensor) -> "TableColumn":
        return TableColumn(self.group, *parameters)

    @property
    def support(self) -> constraints.Constraint | None:
        """Codes of a categorical column, integers >= 0 of a column without negative or missing values, reals of a
        column without atoms or missing values; None for any other column.
        """
        group = self.group
        if group.kind == "categorical":
            return constraints.integer_interval(0, group.symbols - 1)
        if group.kind == "integer":
            counts = not group.missing and all(column.low == 0 for column in group.columns)
            return constraints.nonnegative_integer if counts else None
        return constraints.real if group.symbols == 1 else None

    @property
    def mixture(self) -> LocationScaleMixture:
        """Distribution of numbers that are not atoms, in the unit of the column."""
        group, device = self.group, self.outputs.device
        logits, means, log_scales = wide(self.outputs[..., group.symbols :]).chunk(3, -1)
        scale = group.constant("scale", device).unsqueeze(-1)
        means = group.constant("centre", device).unsqueeze(-1) + scale * means
        if group.kind == "integer":
            log_scales = bounded_log_scales(scale.log() + log_scales, 1.0)
            return IntegerLogisticMixture(logits, means, log_scales, group.constant("low", device))
        finest = group.constant("finest", device).unsqueeze(-1).log()
        log_scales = torch.logaddexp(finest, log_scales)  # log(scale + finest): bounds the density
        return GaussianMixture(logits, means, scale.log() + log_scales)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; a log-density for real numbers that are not atoms, −inf outside the support.

        value (...) broadcasts against the batch shape; NaN means missing.
        """
        group, value = self.group, wide(value)
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape))
        symbol = group.symbol(value)
        logs = self.logits.log_softmax(-1)
        log_symbol = logs.expand(*value.shape, group.symbols).gather(-1, symbol.unsqueeze(-1)).squeeze(-1)
        if group.kind == "categorical":
            return log_symbol.masked_fill(value != symbol, -torch.inf)
        finite = value.isfinite()
        # Replace NaN and infinity by a number whose gradient is finite; the result is masked below.
        number = torch.where(finite, value, group.constant("centre", value.device).round())
        other = logs[..., -1] + self.mixture.log_prob(number)
        if group.kind == "integer":
            whole = finite & (number == number.floor()) & (number >= group.constant("low", value.device))
            other = torch.where(whole, other, log_symbol.detach())  # an infinity would make the gradient NaN
            atom = symbol < group.symbols - 1 - group.missing
            numbers = torch.where(atom, torch.logaddexp(log_symbol, other), other).masked_fill(~whole, -torch.inf)
        else:
            numbers = torch.where(symbol < group.symbols - 1, log_symbol, other).masked_fill(~finite, -torch.inf)
        return torch.where(value.isnan(), log_symbol, numbers) if group.missing else numbers

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Encode or decode a value, float64: a category, or a bit for "missing" and then a number.

        Numbers are multiples of 10^−decimals, with multipliers in [−2^53, 2^53). Each has the probability of the
        interval that rounds to it: π_other times the mass of the mixture, plus the probability of an atom there.
        """
        group = self.group
        if group.kind == "categorical":
            symbol = None if value is None else group.symbol(value)
            return wide(Categorical(self.logits).code(choose, symbol))
        decimals = 0 if group.kind == "integer" else group.columns[0].decimals
        if decimals is None:
            raise NotDiscreteError(
                "lossless coding needs discrete values, got a column of real numbers without decimals: "
                "set Column(decimals=...), or leave the column out"
            )
        logs, per_unit = self.logits.log_softmax(-1), 10.0**decimals
        mass_between = self._log_mass_between(per_unit)
        atoms = (group.constant("atoms", logs.device) * per_unit).round()

        def log_mass(first: Tensor, last: Tensor) -> Tensor:
            inside = (atoms >= first.unsqueeze(-1)) & (atoms <= last.unsqueeze(-1))
            log_atoms = logs[..., : atoms.shape[-1]].masked_fill(~inside, -torch.inf).logsumexp(-1)
            return torch.logaddexp(log_atoms, logs[..., -1] + mass_between(first, last))

        count, absent = None if value is None else (value * per_unit).round(), None
        if group.missing:
            gone = logs[..., -2].exp()
            absent = choose(torch.stack([1 - gone, gone], -1), None if value is None else value.isnan().long()) == 1
        number = code_integer(log_mass, self._batch_shape, logs, choose, count, skipped=absent) / per_unit
        return number if absent is None else number.masked_fill(absent, torch.nan)

    def _log_mass_between(self, per_unit: float) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the log-mass of the mixture in the intervals that round to first, ..., last, as a function."""
        mixture = self.mixture
        if isinstance(mixture, IntegerLogisticMixture):
            return mixture.log_mass
        assert isinstance(mixture, GaussianMixture)

        def log_mass(first: Tensor, last: Tensor) -> Tensor:
            low, high = (first - 0.5) / per_unit, (last + 0.5) / per_unit
            low = low.masked_fill(first <= -HALF_RANGE, -torch.inf)
            return mixture.log_mass(low, high.masked_fill(last >= HALF_RANGE - 1, torch.inf))

        return log_mass

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw values, float64, of shape sample_shape + batch shape, always inside the support of `log_prob`."""
        shape = torch.Size(sample_shape) + self._batch_shape
        symbol = Categorical(self.logits.expand(*shape, -1)).sample(generator=generator)
        if self.group.kind == "categorical":
            return wide(symbol)
        drawn = self.mixture.sample(sample_shape, generator=generator)
        atoms = self.group.constant("atoms", drawn.device).expand(*shape, -1)
        rest = torch.full_like(drawn, torch.nan).unsqueeze(-1)
        values = torch.cat([atoms, rest, rest], -1)  # NaN for the symbols "missing" and "any other number"
        value = values.gather(-1, symbol.unsqueeze(-1)).squeeze(-1)
        return torch.where(symbol == self.group.symbols - 1, drawn, value)

    def __repr__(self) -> str:
        return f"TableColumn({self.group.kind}, batch_shape={tuple(self._batch_shape)}, S={self.group.symbols})"


def mean_outputs(columns: Sequence[TableColumn]) -> Tensor:
    r"""Return the outputs (..., n) of the mean of K distributions of the same columns, float64.

    .. math:: \bar\pi_v = \frac{1}{K} \sum_k \pi_{v,k}, \qquad
        \bar\pi_{\text{other}} \, \bar m(v) = \frac{1}{K} \sum_k \pi_{\text{other},k} \, m_k(v)

    The mixture of the mean has the components of all.
    """
    symbols = columns[0].group.symbols
    logs = [column.logits.log_softmax(-1) for column in columns]
    mean = torch.stack(logs).logsumexp(0) - math.log(len(columns))
    if columns[0].group.kind == "categorical":
        return mean
    parts = zip(*(wide(column.outputs[..., symbols:]).chunk(3, -1) for column in columns), strict=True)
    logits, means, log_scales = parts
    weighted = [own[..., -1:] + part.log_softmax(-1) for own, part in zip(logs, logits, strict=True)]
    return torch.cat([mean, *weighted, *means, *log_scales], -1)

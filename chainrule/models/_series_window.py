"""Inputs of a forecaster at each step of a series: earlier values, in a unit that follows them, and covariates."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict, final

import torch
from torch import Tensor, nn

from chainrule._base import Context
from chainrule._buffers import fixed_buffer
from chainrule.kernels._transforms import values_are_known
from chainrule.modes import wide


@dataclass(frozen=True)
class SeriesScaling:
    """Centre and scale of a series for a network.

    Args:
        centre: the value that counts as 0 if the past is unknown.
        scale: the unit, > 0: the typical distance of a value from its reference.
        finest: the smallest standard deviation of a distribution, in units of `scale`: a value that repeats exactly
            would raise a density without bound.

    >>> SeriesScaling.fit(torch.tensor([20.0, 22.0, 18.0, 20.0, 20.5]), anchor=1)
    SeriesScaling(centre=20.1, scale=2.462..., finest=0.101...)
    """

    centre: float = 0.0
    scale: float = 1.0
    finest: float = 1e-3

    def __post_init__(self) -> None:
        for name in ("centre", "scale", "finest"):
            value = getattr(self, name)
            if not math.isfinite(value) or (name != "centre" and value <= 0):
                raise ValueError(f"{name}: expected a finite number{'' if name == 'centre' else ' > 0'}, got {value}")

    @classmethod
    def fit(cls, values: Tensor, anchor: int) -> "SeriesScaling":
        """From training values alone.

        Args:
            values: (T,) of a series; NaN where one is missing.
            anchor: the lag that forecasts are measured from; 0 where they are measured from the centre.
        """
        values = values.double()
        if len(values) < anchor + 2:
            raise ValueError(f"values: expected at least {anchor + 2}, got {len(values)}")
        known, (last,) = ~values.isnan(), last_known(values.unsqueeze(0))
        centre = values[known].mean()
        steps = (values[anchor:] - last[: len(last) - anchor])[known[anchor:]] if anchor else values[known] - centre
        scale = float(steps.square().mean().sqrt())
        if not 0 < scale < math.inf:
            raise ValueError(f"values: expected finite numbers that change, got {int(known.sum())} of scale {scale:g}")
        gaps = values[known].unique().diff()
        # Half the step in which values were written down, or a thousandth of the unit.
        finest = float(gaps.min()) / 2 / scale if len(gaps) else 1e-3
        return cls(float(centre), scale, min(max(finest, 1e-3), 0.25))

    @staticmethod
    def stacked(scalings: "tuple[SeriesScaling, ...]") -> Tensor:
        """(3, S) float64: centres, scales and finest scales."""
        return torch.tensor([[s.centre, s.scale, s.finest] for s in scalings], dtype=torch.float64).t().contiguous()


def last_known(values: Tensor) -> Tensor:
    """Replace each missing value (NaN) of (B, T) by the last known one, or by the first one if none comes before it.

    >>> last_known(torch.tensor([[math.nan, 1.0, math.nan, 3.0]]))
    tensor([[1., 1., 1., 3.]])
    """
    missing = values.isnan()
    if not values_are_known(values) or not bool(missing.any()):
        return values
    places = torch.arange(values.shape[1], device=values.device).expand_as(values)
    first = (~missing).int().argmax(1, keepdim=True)
    return values.gather(1, places.masked_fill(missing, 0).cummax(1).values.maximum(first))


_KEYS = {"past", "covariates", "series"}
USUAL = 24  # changes of the usual size that count with the recent ones


class SeriesContext(TypedDict):
    """The past (B, P), covariates (B, P + T, F) or None, and which series each row is of, (B,) integers."""

    past: Tensor
    covariates: Tensor | None
    series: Tensor


def read_context(context: Context, rows: int, num_series: int, num_covariates: int) -> SeriesContext:
    """Return the parts of a context, each with `rows` rows: of a dict, or of the past alone; one row serves all."""
    if isinstance(context, Tensor):
        context = {"past": context}
    needed = {"past"} | ({"covariates"} if num_covariates else set()) | ({"series"} if num_series > 1 else set())
    keys = set(context) if isinstance(context, dict) else None
    if keys is None or not needed <= keys or not keys <= _KEYS:
        got = type(context).__name__ if keys is None else ", ".join(sorted(keys)) or "nothing"
        raise ValueError(f"context: expected a dict with {', '.join(sorted(needed))}, got {got}")
    past = context["past"]
    if past.dim() != 2 or past.shape[1] < 1 or len(past) not in (1, rows):
        raise ValueError(f"past: expected shape (B, P) with B = {rows} and P >= 1, got {tuple(past.shape)}")
    past = past.expand(rows, -1)
    return {
        "past": past if past.is_floating_point() else wide(past),
        "covariates": _covariates(context.get("covariates"), rows, past.shape[1], num_covariates),
        "series": _series(context.get("series"), past, num_series),
    }


def _covariates(covariates: Tensor | None, rows: int, past: int, size: int) -> Tensor | None:
    if covariates is None:
        return None
    shape = covariates.shape
    if len(shape) != 3 or len(covariates) not in (1, rows) or shape[1] < past or shape[2] != size:
        raise ValueError(
            f"covariates: expected shape (B, P + T, F) with B = {rows}, P = {past}, F = {size}, got {tuple(shape)}"
        )
    return covariates.expand(rows, -1, -1)


def _series(series: Tensor | None, past: Tensor, count: int) -> Tensor:
    if series is None:
        return torch.zeros(len(past), dtype=torch.long, device=past.device)
    if series.dim() != 1 or len(series) not in (1, len(past)) or series.is_floating_point():
        raise ValueError(f"series: expected ({len(past)},) integers, got shape {tuple(series.shape)} of {series.dtype}")
    if len(series) and values_are_known(series) and not 0 <= int(series.min()) <= int(series.max()) < count:
        raise ValueError(
            f"series: expected numbers from 0 to {count - 1}, got {int(series.min())} to {int(series.max())}"
        )
    return series.expand(len(past)).long()


class WindowState(TypedDict):
    """A state: the last L values, which of them are known (B, L), elements read, covariates, the series.

    Values that are not known repeat the last known one before them, or the first one of the past.
    """

    recent: Tensor
    known: Tensor
    read: Tensor
    covariates: Tensor | None
    series: Tensor


@dataclass(frozen=True)
class Readings:
    """Inputs that are known at each of T steps."""

    ratios: Tensor  # (B, T, N) (y_{t−l} − a_t) / s_t for each lag l but the anchor
    covariates: Tensor | None  # (B, T, F), or None
    series: Tensor  # (B,) which series each row is of
    anchor: Tensor  # (B, T) a, in the user's units
    scale: Tensor  # (B, T) s, in the user's units
    finest: Tensor  # (B, T) the smallest standard deviation of a distribution, in units of s

    def in_user_units(self, means: Tensor, log_scales: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-scales (B, T, K) of components, from units of s about the anchor to the user's units."""
        log_scales = torch.logaddexp(self.finest.unsqueeze(2).log(), log_scales)  # a density has a highest peak
        scale = self.scale.unsqueeze(2)
        return self.anchor.unsqueeze(2) + scale * means, scale.log() + log_scales


@final
class SeriesWindow(nn.Module):
    r"""Measures the values before each step from an anchor, in a unit that follows the last changes.

    .. math:: s_t^2 = \frac{24\, s^2 + \sum_{j=1}^{n} (y_{t-j} - a_{t-j})^2}{24 + n}

    The anchor :math:`a_t` is :math:`y_{t - \text{anchor}}`, or the centre of the series where the anchor is 0; s is the
    usual scale of the series, and n the longest lag less the anchor, or what there is in a shorter past. In place of a
    missing value, NaN, the last one before it is read, and s does not count it.
    """

    scaling: Tensor
    places: Tensor

    def __init__(self, series: Sequence[SeriesScaling], lags: Sequence[int], anchor: int, num_covariates: int):
        super().__init__()
        if not series:
            raise ValueError("series: expected the scaling of at least one, got none")
        if not lags or min(lags) < 1 or len(set(lags)) < len(lags):
            raise ValueError(f"lags: expected different integers >= 1, got {list(lags)}")
        if anchor < 0 or num_covariates < 0:
            name, value = ("anchor", anchor) if anchor < 0 else ("num_covariates", num_covariates)
            raise ValueError(f"{name}: expected an integer >= 0, got {value}")
        if list(lags) == [anchor]:
            raise ValueError(f"lags: expected one that is not the anchor, {anchor}, got nothing else: add a lag")
        self.anchor = anchor
        self.lags = tuple(lag for lag in lags if lag != anchor)  # 0 away from itself
        self.longest_lag = max(*lags, anchor, 1)
        self.num_series, self.num_covariates = len(series), num_covariates
        self.register_buffer("scaling", SeriesScaling.stacked(tuple(series)))  # (3, S)
        places = [self.longest_lag - lag for lag in self.lags]  # of the lags among the last L values
        fixed_buffer(self, "places", partial(torch.tensor, places))

    def add_series(self, series: Sequence[SeriesScaling]) -> None:
        """Measure more series."""
        self.scaling = torch.cat([self.scaling, SeriesScaling.stacked(tuple(series)).to(self.scaling)], 1)
        self.num_series += len(series)

    @property
    def seen_lags(self) -> set[int]:
        """Lags of the values that readings depend on: the lags, the anchor, and the changes that set the unit."""
        changes = range(1, self.longest_lag - self.anchor + 1)
        return {*self.lags, *changes, *(self.anchor + change for change in (0, *changes))} - {0}

    def known(self, batch_size: int, context: Context) -> SeriesContext:
        """Return the parts of a context, each with `batch_size` rows."""
        return read_context(context, batch_size, self.num_series, self.num_covariates)

    def begin(self, parts: SeriesContext) -> WindowState:
        """Return the state after the past."""
        series, covariates = parts["series"], parts["covariates"]
        past, known = self._filled(parts["past"], series)
        unread = max(self.longest_lag - past.shape[1], 0)
        recent = torch.cat([past[:, :1].expand(-1, unread), past[:, -self.longest_lag :]], 1)
        return {
            "recent": recent,
            "known": nn.functional.pad(known[:, -self.longest_lag :], (unread, 0)),
            "read": torch.zeros_like(series),
            "covariates": None if covariates is None else covariates[:, past.shape[1] :],
            "series": series,
        }

    def of_past(self, parts: SeriesContext) -> Readings | None:
        """Return the readings of the past from the first step at which all lags are known, if any."""
        series, covariates = parts["series"], parts["covariates"]
        past, known = self._filled(parts["past"], series)
        steps = past.shape[1] - self.longest_lag
        if steps <= 0:
            return None
        covariates = None if covariates is None else covariates[:, self.longest_lag : past.shape[1]]
        return self.measure(past[:, :-1], known[:, :-1], steps, series, covariates)

    def _filled(self, past: Tensor, series: Tensor) -> tuple[Tensor, Tensor]:
        """Return the past without gaps, and which of its values are known; a past without any is the centre."""
        centre = self.scaling[0, series].to(past).unsqueeze(1)
        return torch.where((filled := last_known(past)).isnan(), centre, filled), ~past.isnan()

    def read(self, x: Tensor, state: WindowState, x_prev: Tensor | None) -> tuple[Readings, WindowState]:
        """Return the readings of a chunk (B, T), and the state that is ready to read its last element."""
        if x.dim() != 2:
            raise ValueError(f"x: expected shape (B, T), got {tuple(x.shape)}")
        recent, read, time = state["recent"], state["read"], x.shape[1]
        before = x[:, :-1] if x_prev is None else torch.cat([x_prev.to(x).unsqueeze(1), x[:, :-1]], 1)
        whole = last_known(torch.cat([recent, before.to(recent)], 1))
        known = torch.cat([state["known"], ~before.isnan()], 1)
        if x_prev is not None:
            whole, known, read = whole[:, 1:], known[:, 1:], read + 1
        covariates = covariates_at(state["covariates"], read, time)
        readings = self.measure(whole, known, time, state["series"], covariates)
        return readings, {
            **state,
            "recent": whole[:, time - 1 :],
            "known": known[:, time - 1 :],
            "read": read + time - 1,
        }

    def measure(self, whole: Tensor, known: Tensor, time: int, series: Tensor, covariates: Tensor | None) -> Readings:
        """Return the readings at each of T positions, from the values before them, (B, L + T - 1), that may be known.

        Those that are not have a substitute.
        """
        centre, usual, finest = self.scaling[:, series].unsqueeze(2)  # (B, 1) each
        whole = whole.to(usual)

        before = whole.unfold(1, self.longest_lag, 1)[:, :time]  # (B, T, L), the last one the value before
        anchor = before[:, :, -self.anchor] if self.anchor else centre.expand(-1, time)
        scale = usual.expand(-1, time)
        if recent := self.longest_lag - self.anchor:  # changes whose anchor is among the values
            changes = whole[:, self.anchor :] - (whole[:, : -self.anchor] if self.anchor else centre)
            there = known[:, self.anchor :] & (known[:, : -self.anchor] if self.anchor else True)
            squares = torch.where(there, changes.square(), 0.0)
            total, count = (part.unfold(1, recent, 1)[:, :time].sum(2) for part in (squares, there))
            scale = ((USUAL * usual.square() + total) / (USUAL + count)).sqrt()
        ratios = (before.index_select(2, self.places) - anchor.unsqueeze(2)) / scale.unsqueeze(2)
        return Readings(ratios, covariates, series, anchor, scale, finest * usual / scale)


def covariates_at(covariates: Tensor | None, read: Tensor, time: int) -> Tensor | None:
    """(B, T, F) of the next `time` elements of each row."""
    if covariates is None:
        return None
    places = read.unsqueeze(1) + torch.arange(time, device=read.device)
    if places.numel() and values_are_known(places) and int(places.max()) >= covariates.shape[1]:
        raise ValueError(
            f"covariates: known for {covariates.shape[1]} elements after the past, "
            f"but number {int(places.max()) + 1} was asked for: give more of them"
        )
    return covariates.gather(1, places.unsqueeze(2).expand(-1, -1, covariates.shape[2]))

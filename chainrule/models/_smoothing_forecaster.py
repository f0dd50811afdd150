"""Exponential smoothing as a state space: level, trend and season of a series, and effects of its covariates."""

import math
from collections.abc import Sequence
from typing import Annotated, Literal, Self, TypedDict, final

import torch
from torch import Tensor

from chainrule._base import ChunkModel, Context
from chainrule.heads._real_mixtures import LocationScaleMixture
from chainrule.models._forecaster import DEGREES, HEADS, fit_tails
from chainrule.models._series_window import SeriesScaling, SeriesWindow, covariates_at
from chainrule.modes import wide
from chainrule.option_error import OptionError
from chainrule.ranges import Range

_MOST_ROWS = 400  # that a series is fitted to, the last ones
_CANDIDATES, _KEPT, _ROUNDS = 60, 6, 4  # of the search
_USUAL_DEGREES = 6.0  # of the errors in the search
_LEVEL, _TREND, _SEASON, _EFFECT = 30.0, 1.0, 3.0, 3.0  # standard deviations of the prior, in units of s
_EXACT_ROWS, _EXACT_SEASONS = 30, 4  # after so many rows, and seasons, the gain is its limit
_STEEPEST = 0.5  # β ÷ α: a trend that follows each error is none
_LEAST = 1e-3  # of σ
_BELOW = 100.0  # the smallest training value ÷ this is the least that is smoothed in logarithms
_DOUBT = 1.0  # nats that logarithms have to gain
_LARGEST_LOG = 300.0
_WALK = (1.0, 0.0, 0.0, -1.0, 1.0)  # see `Space`


class SmoothingState(TypedDict):
    """A state: level, trend and season before the next value, its variance, and what is read."""

    mean: Tensor
    variance: Tensor
    origin: Tensor
    read: Tensor
    covariates: Tensor | None
    series: Tensor


class Space:
    """The state space of R rows by their parameters (R, 5): α, β, φ, γ and σ; no trend if φ = 0, no season if γ < 0."""

    def __init__(self, parameters: Tensor, season: int):
        level, trend, self.damping, seasonal, scale = parameters.unbind(-1)
        self.season, self.variance = season, scale.square()
        self.trending, self.seasonal = (self.damping > 0).to(level), (seasonal >= 0).to(level)  # 1 or 0
        self.gain = parameters.new_zeros(len(parameters), 2 + season)  # g
        self.gain[:, 0], self.gain[:, 1] = level, self.trending * trend
        self.row = torch.zeros_like(self.gain)  # h
        self.row[:, 0], self.row[:, 1] = 1.0, self.damping
        if season:
            self.gain[:, 1 + season], self.row[:, 2] = seasonal.clamp(min=0), 1.0

    def filter(self, z: Tensor, known: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Condition the state on N series (R, N, T) with the same gains, where they are known (R, T).

        .. math:: v = h^\top P h + \sigma^2, \qquad k = \frac{F P h + g \sigma^2}{v}, \qquad
            x \leftarrow F x + k (z - h^\top x), \qquad P \leftarrow F P F^\top + g g^\top \sigma^2 - k k^\top v

        Returns:
            Errors (R, N, T) and variances (R, T) one step ahead; state (R, N, d) and variance (R,) of the next step.
        """
        mean = z.new_zeros(len(z), z.shape[1], self.gain.shape[1])
        deviations = torch.zeros_like(self.gain)
        deviations[:, 0], deviations[:, 1] = _LEVEL, self.trending * _TREND
        deviations[:, 2:] = (self.seasonal * (_SEASON + self.season / 4)).unsqueeze(1)
        covariance, (gain, variance) = deviations.square().diag_embed(), (self.gain, self.variance)
        exact = max(_EXACT_ROWS, _EXACT_SEASONS * self.season)
        errors, variances = z.new_empty(z.shape), z.new_empty(known.shape)
        noise, noisy = self.variance.unsqueeze(1) * self.gain, self.variance.view(-1, 1, 1) * _outer(self.gain)
        for t in range(z.shape[2]):
            there = known[:, t].unsqueeze(1)
            if t <= exact:
                shared = (covariance @ self.row.unsqueeze(2)).squeeze(2)
                variance = (self.row * shared).sum(1).clamp(min=0) + self.variance
                if t < exact:
                    gain = torch.where(there, (self.moved(shared) + noise) / variance.unsqueeze(1), 0.0)
                    moved = self.moved(self.moved(covariance).transpose(1, 2))
                    covariance = moved + noisy - variance.view(-1, 1, 1) * _outer(gain)
            if t >= exact:
                gain = torch.where(there, self.gain, 0.0)
            variances[:, t] = variance
            error = torch.where(there, z[:, :, t] - (mean * self.row.unsqueeze(1)).sum(2), 0.0)
            errors[:, :, t] = error
            mean = self.moved(mean) + error.unsqueeze(2) * gain.unsqueeze(1)
        if z.shape[2] <= exact:
            variance = (self.row * (covariance @ self.row.unsqueeze(2)).squeeze(2)).sum(1).clamp(min=0) + self.variance
        return errors, variances, mean, variance

    def moved(self, states: Tensor) -> Tensor:
        """Move the last dimension of states (R, ..., d) on by a step, F x."""
        damped = self.damping.view(-1, *[1] * (states.dim() - 2)) * states[..., 1]
        parts = [(states[..., 0] + damped).unsqueeze(-1), damped.unsqueeze(-1)]
        if self.season:
            parts += [states[..., 3:], states[..., 2:3]]
        return torch.cat(parts, -1)


def _outer(vectors: Tensor) -> Tensor:
    return vectors.unsqueeze(2) * vectors.unsqueeze(1)


@final
class SmoothingForecaster(ChunkModel):
    r"""Exponential smoothing of each series in the form of a state space, with Student's t errors.

    .. math:: \frac{y_t - y_1}{s} = \ell_{t-1} + \varphi b_{t-1} + q_{t-m} + w \cdot c_t + \varepsilon_t, \qquad
        \varepsilon_t \sim t_\nu(0, \sigma)

    .. math:: \ell_t = \ell_{t-1} + \varphi b_{t-1} + \alpha \varepsilon_t, \qquad
        b_t = \varphi b_{t-1} + \beta \varepsilon_t, \qquad q_t = q_{t-m} + \gamma \varepsilon_t

    Level, trend and season before the first value of the past are normal with wide priors, and a Kalman filter
    conditions them on the past: given the parameters, a value after a short past has exactly the density that normal
    errors give it. After 30 rows and four seasons the gain is its limit, α, β and γ. A missing value, NaN, is neither
    scored nor conditioned on. A series of positive values is smoothed in logarithms where these are likelier: its
    season and its errors are then in proportion to its level, and so is the scale of the density about its location.

    The context is that of a `Forecaster`, and both can be averaged. There is nothing to train: `fit` searches the
    parameters of each series. A new model has α = 1: it is a random walk.

    Args:
        series: the scaling of each series, fitted on training values.
        head: the distribution of the errors: student, which has heavier tails, or normal.
        season: m, 1 for none.
        num_covariates: F.

    Source: R. Hyndman, A. Koehler, J. Ord and R. Snyder, Forecasting with Exponential Smoothing, 2008.

    >>> past = 20 + torch.arange(30.0).view(1, 30)
    >>> model = SmoothingForecaster([SeriesScaling(centre=20.0, scale=2.0)])
    >>> model(torch.zeros(1, 1), past).mean.round(decimals=2)  # about the last value again
    tensor([[49.]], dtype=torch.float64)
    >>> model = model.fit(past.t().double(), torch.zeros(30, 0))
    >>> model(torch.zeros(1, 1), past).mean.round(decimals=1)
    tensor([[50.]], dtype=torch.float64)
    """

    smoothing: Tensor
    scaling: Tensor
    floors: Tensor
    effects: Tensor
    log_scales: Tensor
    degrees: Tensor

    def __init__(
        self,
        series: Sequence[SeriesScaling],
        *,
        head: Literal["student", "normal"] = "student",
        season: Annotated[int, Range(1, 1 << 10)] = 1,
        num_covariates: int = 0,
    ):
        super().__init__()
        if head not in HEADS:
            raise OptionError("head", f"expected one of {', '.join(HEADS)}, got {head!r}")
        self.head, self.season = head, season if season > 1 else 0
        self.window = SeriesWindow(series, (1, 2), 1, num_covariates)
        count, zeros = len(series), torch.zeros(len(series), dtype=torch.float64)
        self.register_buffer("smoothing", zeros.new_tensor(_WALK).repeat(count, 1))
        self.register_buffer("scaling", SeriesScaling.stacked(tuple(series)))  # (3, S), of logarithms if smoothed
        self.register_buffer("floors", zeros.clone())  # > 0 where logarithms are smoothed
        self.register_buffer("effects", zeros.unsqueeze(1).repeat(1, num_covariates))
        self.register_buffer("log_scales", zeros.clone())  # of errors in units of their standard deviation
        self.register_buffer("degrees", zeros + DEGREES[-1])

    @property
    def accepts_missing(self) -> bool:
        return True

    def fit(
        self,
        values: Tensor,
        features: Tensor,
        spans: Sequence[tuple[int, int]] | None = None,
        *,
        walk: bool = False,
    ) -> Self:
        """This model, with the likeliest parameters that a search finds, less a nat for each of them.

        The search draws candidates with and without trend and season, and then others near the best. The effects of
        covariates are those of generalised least squares, with a ridge penalty. Only the last 400 rows are used.

        Args:
            values: (T, S) training values; NaN where one is missing.
            features: (T, F) covariates, or (T, S, F) of each series.
            spans: S pairs, the first row of each series and the one after its last; all rows if not given. A series of
                fewer than four values stays a random walk.
            walk: whether all stay random walks, of which only the errors' scale and tails are fitted.
        """
        heavy = self.head == "student"
        for number, (start, stop) in enumerate(spans or [(0, len(values))] * values.shape[1]):
            first = max(start, stop - _MOST_ROWS)
            y = wide(values[first:stop, number])
            known = y.isfinite()
            if int(known.sum()) < 4:
                continue
            own = wide(features[first:stop] if features.dim() == 2 else features[first:stop, number])
            least, which = float(y[known].min()), torch.full((1,), number, device=y.device)
            floors, ways, densities = ([0.0, least / _BELOW] if least > 0 and not walk else [0.0]), [], []
            for floor in floors:
                self._measure_by(number, y[known], floor)
                z, _ = self._relative(y.unsqueeze(0), which)
                ways.append(torch.cat([z, own.t().to(z)]))
                jacobian = y[known].log().sum() + _DOUBT if floor else 0.0
                densities.append(-self.scaling[1, number].log() * known.sum() - jacobian)
            measured = torch.stack(ways)
            way, parameters, effects, errors = (
                _walk(measured) if walk else _search(measured, torch.stack(densities), self.season, heavy)
            )
            self._measure_by(number, y[known], floors[way])
            self.smoothing[number], self.effects[number] = parameters, effects
            scale, self.degrees[number] = fit_tails(errors[known], heavy)
            self.log_scales[number] = math.log(scale)
        return self

    def add_series(self, series: Sequence[SeriesScaling]) -> None:
        """Forecast more series, which come after the others: random walks until `fit`."""
        new = SmoothingForecaster(series, season=max(self.season, 1), num_covariates=self.window.num_covariates)
        for name in ("smoothing", "floors", "effects", "log_scales", "degrees"):
            own: Tensor = getattr(self, name)
            setattr(self, name, torch.cat([own, getattr(new, name).to(own)]))
        self.scaling = torch.cat([self.scaling, new.scaling.to(self.scaling)], 1)
        self.window.add_series(series)

    def initial_state(self, batch_size: int, context: Context = None) -> SmoothingState:
        parts = self.window.known(batch_size, context)
        past, series, covariates = parts["past"], parts["series"], parts["covariates"]
        z, origin = self._relative(past, series)
        length = past.shape[1]
        if covariates is not None:
            z = z - self._effect(covariates[:, :length], series)
        _, _, mean, variance = Space(wide(self.smoothing[series]), self.season).filter(z.unsqueeze(1), z.isfinite())
        return {
            "mean": mean[:, 0],
            "variance": variance,
            "origin": origin,
            "read": torch.zeros_like(series),
            "covariates": None if covariates is None else covariates[:, length:],
            "series": series,
        }

    def read(
        self, x: Tensor, state: SmoothingState, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[LocationScaleMixture, SmoothingState]:
        if x.dim() != 2:
            raise ValueError(f"x: expected shape (B, T), got {tuple(x.shape)}")
        series, origin, mean, read = state["series"], state["origin"], state["mean"], state["read"]
        space, length = Space(wide(self.smoothing[series]), self.season), x.shape[1]
        before = 0 if x_prev is None else 1  # an element that is read before the first that is predicted
        covariates = covariates_at(state["covariates"], read, length + before)
        effect = None if covariates is None else self._effect(covariates, series)
        values = x[:, : length - 1] if x_prev is None else torch.cat([x_prev.to(x).unsqueeze(1), x[:, : length - 1]], 1)
        z = self._relative(values, series, origin)[0]
        z = z if effect is None else z - effect[:, : z.shape[1]]
        middles = [(space.row * mean).sum(1)]
        for value in z.unbind(1):
            error = torch.where(value.isfinite(), value - middles[-1], 0.0)
            mean = space.moved(mean) + error.unsqueeze(1) * space.gain
            middles.append((space.row * mean).sum(1))
        means = torch.stack(middles, 1)[:, : length + before]
        means = means if effect is None else means + effect
        after: SmoothingState = {**state, "mean": mean, "read": read + z.shape[1]}
        return self._conditional(means[:, before:].unsqueeze(2), state["variance"], series, origin), after

    def step(self, x_prev: Tensor | None, state: SmoothingState) -> tuple[LocationScaleMixture, SmoothingState]:
        conditional, state = self.read(state["origin"], state, x_prev)  # of a chunk of one, its value is unread
        return conditional.with_parameters(*(part.squeeze(1) for part in conditional.parameters)), state

    def _effect(self, covariates: Tensor, series: Tensor) -> Tensor:
        return (wide(covariates) * wide(self.effects[series]).unsqueeze(1)).sum(2)

    def _measure_by(self, number: int, values: Tensor, floor: float) -> None:
        """Measure a series by itself, or with a floor > 0 by its logarithms in the unit of their changes."""
        self.floors[number], self.scaling[:, number] = floor, self.window.scaling[:, number]
        if floor:
            logarithms = values.log()
            self.scaling[0, number] = logarithms.mean()
            self.scaling[1, number] = logarithms.diff().square().mean().sqrt().clamp(min=_LEAST)

    def _relative(self, values: Tensor, series: Tensor, origin: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Values (B, T) in units of s from the origin (B, 1): the first value of the past that is there."""
        centre, scale, _ = wide(self.scaling[:, series]).unsqueeze(2)
        values, floors = values.to(centre), wide(self.floors[series]).unsqueeze(1)
        values = torch.where(floors > 0, torch.maximum(values, floors.clamp(min=1e-300)).log(), values)
        if origin is None:
            known = values.isfinite()
            first = values.gather(1, known.int().argmax(1, keepdim=True))
            origin = torch.where(known.any(1, keepdim=True), first, centre)
        return (values - origin) / scale, origin

    def _conditional(self, means: Tensor, variance: Tensor, series: Tensor, origin: Tensor) -> LocationScaleMixture:
        """The distribution of each value in the user's units; means (B, T, 1) and a variance (B,) are in units of s."""
        _, scale, finest = wide(self.scaling[:, series]).view(3, -1, 1, 1)
        spread = variance.log() / 2 + wide(self.log_scales[series])
        log_scales = scale.log() + torch.logaddexp(finest.log(), spread.view(-1, 1, 1)).expand_as(means)
        means, logarithms = origin.unsqueeze(2) + scale * means, self.floors[series].view(-1, 1, 1) > 0
        logs = means.clamp(-_LARGEST_LOG, _LARGEST_LOG)
        means, log_scales = torch.where(logarithms, logs.exp(), means), log_scales + torch.where(logarithms, logs, 0.0)
        rest = (wide(self.degrees[series]).view(-1, 1, 1).expand_as(means),) if self.head == "student" else ()
        return HEADS[self.head](torch.zeros_like(means), means, log_scales, *rest)


def _search(z: Tensor, densities: Tensor, season: int, heavy: bool) -> tuple[int, Tensor, Tensor, Tensor]:
    """Find the highest penalised likelihood of a series beside its covariates, measured in some ways (W, 1 + F, T).

    `densities` (W,) are added to the log-likelihoods: those of the user's unit.

    Returns:
        The way, the parameters (5,), the effects (F,), and the errors in units of their deviations, (T,).
    """
    generator, known = torch.Generator().manual_seed(0), z[0, 0].isfinite()
    candidates = _drawn(season > 0, generator).to(z.device).repeat(len(z), 1)  # (W·C, 5)
    ways = torch.arange(len(z), device=z.device).repeat_interleave(_CANDIDATES)
    best: tuple[Tensor, ...] = ()
    for _ in range(_ROUNDS):
        errors, variances, _, _ = Space(candidates, season).filter(z[ways], known.expand(len(ways), -1))
        errors = errors / variances.sqrt().unsqueeze(1)
        target, inputs = errors[:, 0], errors[:, 1:]
        moments = inputs @ inputs.transpose(1, 2) + torch.eye(inputs.shape[1]).to(z) / _EFFECT**2
        effects = torch.linalg.solve(moments, inputs @ target.unsqueeze(2)).squeeze(2)
        target = target - (effects.unsqueeze(2) * inputs).sum(1)
        squares, half = target.square(), (_USUAL_DEGREES + 1) / 2
        terms = (half * (squares / _USUAL_DEGREES).log1p() if heavy else squares / 2) + variances.log() / 2
        number = 2 + 2.0 * (candidates[:, 2] > 0) + 1.0 * (candidates[:, 3] >= 0)
        found: tuple[Tensor, ...] = (
            densities[ways] - terms[:, known].sum(1) - number,
            ways,
            candidates,
            effects,
            target,
        )
        found = tuple(torch.cat(pair) for pair in zip(best, found, strict=True)) if best else found
        order = found[0].argsort(descending=True)[:_KEPT]
        best = tuple(part[order] for part in found)
        ways = best[1].repeat(_CANDIDATES // _KEPT)
        candidates = _near(best[2].cpu().repeat(_CANDIDATES // _KEPT, 1), generator).to(z.device)
    way, parameters, effects, target = (part[0] for part in best[1:])
    return int(way), parameters, effects, target


def _walk(z: Tensor) -> tuple[int, Tensor, Tensor, Tensor]:
    """Return what `_search` does for a random walk, measured in the first way."""
    parameters = z.new_tensor(_WALK)
    errors, variances, _, _ = Space(parameters.unsqueeze(0), 0).filter(z[:1, :1], z[:1, 0].isfinite())
    return 0, parameters, z.new_zeros(z.shape[1] - 1), errors[0, 0] / variances[0].sqrt()


def _drawn(seasonal: bool, generator: torch.Generator) -> Tensor:
    """Candidates of all kinds, (C, 5)."""
    level, trend, damping, season, scale = torch.rand(5, _CANDIDATES, generator=generator, dtype=torch.float64)
    kinds = torch.arange(_CANDIDATES) % 6
    damping = torch.where(kinds % 3 == 0, 0.0, torch.where(kinds % 3 == 1, 0.8 + 0.19 * damping, 1.0))
    season = torch.where((kinds < 3) & seasonal, (1 - level) * season.square(), -1.0)
    return torch.stack([level, _STEEPEST * level * trend.square(), damping, season, 0.1 * 15**scale], 1)


def _near(candidates: Tensor, generator: torch.Generator) -> Tensor:
    """Other candidates of the same kinds near some, (C, 5)."""
    level, trend, damping, season, scale = candidates.unbind(1)
    moves = torch.randn(5, len(candidates), generator=generator, dtype=torch.float64)
    moves *= torch.rand(len(candidates), generator=generator, dtype=torch.float64) ** 2
    level = (level.logit(1e-3) + moves[0]).sigmoid()
    trend = torch.minimum(trend.clamp(min=1e-4) * moves[1].exp(), _STEEPEST * level)
    damped = (damping.logit(1e-6) + moves[2] / 2).sigmoid().clamp(0.8, 0.99)
    damping = torch.where((damping > 0) & (damping < 1), damped, damping)
    season = torch.where(season < 0, season, torch.minimum(season.clamp(min=1e-4) * moves[3].exp(), 1 - level))
    return torch.stack([level, trend, damping, season, (scale * (moves[4] / 4).exp()).clamp(min=_LEAST)], 1)

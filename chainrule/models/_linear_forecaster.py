"""Forecasts by linear autoregression, fitted by robust least squares."""

import math
from collections.abc import Sequence
from typing import Literal, Self, final

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import wide
from chainrule.heads._location_scale_mixture import LocationScaleMixture
from chainrule.models._forecaster import HEADS
from chainrule.models._series_scaling import SeriesScaling
from chainrule.models._series_window import Readings, SeriesWindow, WindowState

PRIOR = 1.0  # weight, in rows, of the prior that a coefficient is 0
FEWEST_ROWS, MOST_ROWS = 1 << 11, 1 << 16  # that a series is fitted to, the last ones: most of one, fewer of many
ROWS_TOGETHER = 1 << 18
_DEGREES = (3.0, 4.0, 6.0, 10.0, 30.0)
_FIRST_ITERATIONS, _ITERATIONS = 15, 5  # for the heaviest tails, the most robust to outliers, and for each after it
_LEAST_SCALE = 1e-6  # in units of s


@final
class LinearForecaster(AutoregressiveModel):
    r"""A linear autoregression of each series on its past and the covariates, with Student's t errors.

    .. math:: \frac{y_t - a_t}{s_t} = b_i + \sum_{l \in \text{lags}} w_{il} \frac{y_{t-l} - a_t}{s_t} + v_i \cdot c_t
        + \sigma_i\, \varepsilon_t, \qquad \varepsilon_t \sim t_{\nu_i}

    The anchor a, the scale s and the context are as in a `Forecaster` with the same longest lag, so that both read the
    same series and can be averaged. The density is bounded, as in the network. There is nothing to train: `fit` finds
    the coefficients of each series. A new model has zero coefficients: it is a random walk, or repeats the last season
    if the anchor is a season.

    Args:
        series: the scaling of each series, fitted on training values.
        head: the distribution about the line: student, which has heavier tails, or normal.
        lags: which earlier values are read at each step, counted back from it.
        anchor: the lag that values are measured from; 0 for the centre.
        num_covariates: F.

    >>> past = 20 + torch.arange(30.0).view(1, 30)
    >>> model = LinearForecaster([SeriesScaling(centre=20.0, scale=2.0)])
    >>> model(torch.zeros(1, 1), past).mean  # the last value again
    tensor([[49.]], dtype=torch.float64)
    >>> model = model.fit(past.t().double(), torch.zeros(30, 0))
    >>> model(torch.zeros(1, 1), past).mean.round(decimals=1)
    tensor([[50.]], dtype=torch.float64)
    """

    coefficients: Tensor
    log_scales: Tensor
    degrees: Tensor

    def __init__(
        self,
        series: Sequence[SeriesScaling],
        *,
        head: Literal["student", "normal"] = "student",
        lags: Sequence[int] = (1, 2),
        anchor: int = 1,
        num_covariates: int = 0,
    ):
        super().__init__()
        if head not in HEADS:
            raise ValueError(f"head: expected one of {', '.join(HEADS)}, got {head!r}")
        self.head = head
        self.window = SeriesWindow(series, lags, anchor, num_covariates)
        width = len(self.window.lags) + num_covariates + 1
        zeros = torch.zeros(len(series), dtype=torch.float64)
        self.register_buffer("coefficients", zeros.unsqueeze(1).repeat(1, width))
        self.register_buffer("log_scales", zeros)
        self.register_buffer("degrees", zeros + _DEGREES[-1])

    def fit(self, values: Tensor, features: Tensor, spans: Sequence[tuple[int, int]] | None = None) -> Self:
        r"""This model, with coefficients of the highest likelihood, found by reweighted least squares.

        .. math:: w = (U^\top Q\, U + P)^{-1} U^\top Q\, z, \qquad
            q_t = \frac{\nu + 1}{\nu + r_t^2 / \sigma^2}, \qquad \sigma^2 = \frac{1}{n - N} \sum_t q_t\, r_t^2

        P is a ridge penalty with the weight of one row of the usual size of each column. r are the residuals of n rows
        with N coefficients, and ν is the likeliest of 3, 4, 6, 10 and 30 (Lange, Little and Taylor 1989). If there are
        many rows, only the last are used: 65,536 for one series, at least 2,048 each for many.

        Args:
            values: (T, S) training values.
            features: (T, F) covariates, or (T, S, F) of each series.
            spans: S pairs, the first row of each series and the one after its last; all rows if not given. A series
                without a row that has all lags before it stays a random walk.

        Raises:
            ValueError: shapes are others, there is no row with all lags before it, or a number is not finite.

        Source: K. Lange, R. Little and J. Taylor, Robust statistical modeling using the t distribution, 1989.
        """
        window = self.window
        lag, rows, count = window.longest_lag, len(values), window.num_series
        shapes = [(rows, *own, window.num_covariates) for own in ((), (count,))]
        if values.shape != (rows, count) or features.shape not in shapes or rows <= lag:
            raise ValueError(
                f"values, features: expected (T, {count}) and (T, {window.num_covariates}) with T > {lag}, "
                f"got {tuple(values.shape)} and {tuple(features.shape)}"
            )
        most = min(MOST_ROWS, max(FEWEST_ROWS, ROWS_TOGETHER // count))
        for number, (start, stop) in enumerate(spans or [(0, rows)] * count):
            if stop - start <= lag:
                continue
            first = max(start + lag, stop - most)
            every = values[first - lag : stop, number].to(window.scaling).unsqueeze(0)
            own = features[first:stop] if features.dim() == 2 else features[first:stop, number]
            if not bool(every.isfinite().all() and own.isfinite().all()):
                raise ValueError("values, features: expected finite numbers")
            which = torch.full((1,), number, device=every.device)
            num_real = torch.full_like(which, lag)
            covariates = own.to(window.scaling).unsqueeze(0) if window.num_covariates else None
            readings = window.measure(every[:, :-1], stop - first, which, covariates, num_real)
            z = (every[0, lag:] - readings.anchor[0]) / readings.scale[0]
            coefficients, scale, degrees = _fit(self._inputs(readings)[0], z, self.head == "student")
            self.coefficients[number], self.degrees[number] = coefficients, degrees
            scale = max(scale - float(readings.finest.mean()), _LEAST_SCALE)  # which every density has besides
            self.log_scales[number] = math.log(scale)
        return self

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> LocationScaleMixture:
        """Return all conditionals p(y_t | y_<t, c) in the user's units, of batch shape (B, T).

        Args:
            x: (B, T) real numbers.
            context: covariates and past, see `Forecaster`.
            lengths: (B,) real elements of each row of x.

        Raises:
            ValueError: the context is not what the model needs, or does not fit x.
        """
        if x.dim() != 2:
            raise ValueError(f"x: expected shape (B, T), got {tuple(x.shape)}")
        return self.unroll(x, self.initial_state(len(x), context))[0]

    def initial_state(self, batch_size: int, context: Context = None) -> WindowState:
        return self.window.begin(self.window.known(batch_size, context))

    def unroll(
        self, x: Tensor, state: WindowState, x_prev: Tensor | None = None
    ) -> tuple[LocationScaleMixture, WindowState]:
        readings, state = self.window.read(x, state, x_prev)
        own = wide(self.coefficients[readings.series].unsqueeze(1))  # (B, 1, N)
        means = (self._inputs(readings) * own).sum(2, keepdim=True)
        log_scales, degrees = (
            wide(part[readings.series]).view(-1, 1, 1).expand_as(means) for part in (self.log_scales, self.degrees)
        )
        rest = (degrees,) if self.head == "student" else ()
        means, log_scales = readings.in_user_units(means, log_scales)
        return HEADS[self.head](torch.zeros_like(means), means, log_scales, *rest), state

    def step(self, x_prev: Tensor | None, state: WindowState) -> tuple[LocationScaleMixture, WindowState]:
        unread = state["recent"][:, :1]  # of a chunk of one, its value is unread
        conditional, state = self.unroll(unread, state, x_prev)
        return conditional.with_parameters(*(part.squeeze(1) for part in conditional.parameters)), state

    def visible_past(self, length: int) -> Tensor:
        """Elements a lag back, or among the changes that are the unit."""
        back = torch.arange(length, device="cpu").unsqueeze(1) - torch.arange(length, device="cpu")
        return torch.isin(back, torch.tensor(sorted(self.window.seen_lags), device="cpu"))

    def _inputs(self, readings: Readings) -> Tensor:
        """Ratios, covariates and 1 at each step, (B, T, N), float64."""
        ratios = wide(readings.ratios)
        parts = [ratios, torch.ones_like(ratios[..., :1])]
        if readings.covariates is not None:
            parts.insert(1, readings.covariates.to(ratios))
        return torch.cat(parts, 2)


def _fit(inputs: Tensor, z: Tensor, heavy: bool) -> tuple[Tensor, float, float]:
    """Coefficients (N,), σ and ν of z (n,) given inputs (n, N)."""
    prior = PRIOR * inputs.square().mean(0).clamp(min=1e-12)
    prior[-1] = 1e-9  # the constant is free
    free = max(len(z) - inputs.shape[1], 1)

    def solved(weights: Tensor) -> tuple[Tensor, Tensor, float]:
        weighted = inputs.t() * weights
        coefficients = torch.linalg.solve(weighted @ inputs + prior.diag(), weighted @ z)
        errors = z - inputs @ coefficients
        return coefficients, errors, max(math.sqrt(float(weights @ errors.square()) / free), _LEAST_SCALE)

    coefficients, errors, scale = solved(torch.ones_like(z))
    if not heavy:
        return coefficients, scale, _DEGREES[-1]
    fits: list[tuple[float, float, Tensor, float]] = []
    for degrees in _DEGREES:
        for _ in range(_ITERATIONS if fits else _FIRST_ITERATIONS):
            coefficients, errors, scale = solved((degrees + 1) / (degrees + (errors / scale).square()))
        fits.append((_log_likelihood(errors, scale, degrees), degrees, coefficients, scale))
    _, degrees, coefficients, scale = max(fits, key=lambda fit: fit[0])
    return coefficients, scale, degrees


def _log_likelihood(errors: Tensor, scale: float, degrees: float) -> float:
    student = torch.distributions.StudentT(torch.tensor(degrees, dtype=errors.dtype, device=errors.device), 0.0, scale)
    return float(student.log_prob(errors).sum())

"""Forecasts of real-valued series: a recurrence with a distribution for the next value, and linear autoregression."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self, TypedDict, final

import torch
from torch import Tensor, nn

from chainrule._base import ChunkModel, Context
from chainrule._ranges import check_sizes
from chainrule.heads._real_mixtures import GaussianMixture, LocationScaleMixture, StudentTMixture
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.models._series_window import Readings, SeriesScaling, SeriesWindow, WindowState, last_known
from chainrule.modes import wide
from chainrule.option_error import OptionError
from chainrule.ranges import Layers, Probability, Range
from chainrule.state import State

HEADS: dict[str, type[GaussianMixture] | type[StudentTMixture]] = {
    "student": StudentTMixture,
    "normal": GaussianMixture,
}
EMBEDDING = 8  # numbers that tell one series from another, at most


@final
class ForecastState(TypedDict):
    """A state: the recurrence, and what it reads."""

    recurrent: State
    window: WindowState


class SeriesModel(ChunkModel):
    """A model of the next value of a series, in the user's units: its context, and steps as chunks of one."""

    window: SeriesWindow

    @property
    def accepts_missing(self) -> bool:
        return True

    @abstractmethod
    def read(
        self, x: Tensor, state: Any, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[LocationScaleMixture, Any]: ...

    @abstractmethod
    def window_of(self, state: Any) -> WindowState:
        """The window's part of a state."""

    def step(self, x_prev: Tensor | None, state: Any) -> tuple[LocationScaleMixture, Any]:
        unread = self.window_of(state)["recent"][:, :1]  # of a chunk of one, its value is unread
        conditional, state = self.read(unread, state, x_prev)
        return conditional.with_parameters(*(part.squeeze(1) for part in conditional.parameters)), state


@final
class Forecaster(SeriesModel):
    r"""An autoregressive recurrent network with a distribution of the next value (DeepAR, Salinas et al. 2020).

    .. math:: h_t = \mathrm{cell}(u_t, h_{t-1}), \qquad
        u_t = \left[\operatorname{asinh}\frac{y_{t-l} - a_t}{s_t}\right]_{l \in \text{lags}} \oplus c_t \oplus E[i]

    .. math:: p(y_t \mid y_{<t}, c) = \frac{1}{s_t}\, m\left(\frac{y_t - a_t}{s_t};\ W [h_t, u_t]\right), \qquad
        s_t^2 = \frac{24\, s^2 + \sum_{j=1}^{n} (y_{t-j} - a_{t-j})^2}{24 + n}

    Values are measured from an **anchor** :math:`a_t = y_{t - \text{anchor}}`: with anchor 1 the network models the
    change since the last value, with the length of a season the change since the last season, with 0 the distance from
    the centre of the series. Relative to an anchor in the past, a new level of the series is not a new situation. The
    scale :math:`s_t` adapts to the volatility in the same way: it combines the last n changes with the typical scale s
    of the series; n is the longest lag minus the anchor, or less if the past is shorter. m is a mixture in the
    network's units; the density is of y in the user's units, nats, with the factor 1/s_t (the Jacobian) counted.

    x is what is forecast, (B, T); the context is what is known: `{"past": (B, P), "covariates": (B, P + T, F),
    "series": (B,)}`. The past, of any length P >= 1, is read and not scored: lags look into it (where they look beyond,
    its first value is repeated), and where it is longer than the longest lag the network warms up on the rest. NaN, in
    x or in the past, is a missing value: it is not scored, and where it would be read, the last one before it is.
    Covariates are known in advance for every element, of the past as well; they are there if the model has any, and
    `series`, integers, if it has several. The past alone may be given as a tensor. `sample(n, context, length=H)` draws
    paths of H steps.

    Args:
        series: the scaling of each series, fitted on training values.
        hidden_size: units of each layer, M.
        cell: "lstm", "gru" or "rnn".
        num_layers: recurrent layers.
        dropout: share of features zeroed in training, between layers and before the output.
        head: components of the mixture of each step: student, which has heavier tails, or normal.
        components: number of mixture components, K.
        lags: which earlier values are read at each step, counted back from it.
        anchor: the lag that values are measured from; 0 for the centre.
        num_covariates: F.

    >>> model = Forecaster([SeriesScaling(centre=20.0, scale=2.0)], hidden_size=8, lags=[1, 2, 7])
    >>> past = 20 + torch.randn(1, 30, generator=torch.Generator().manual_seed(0))
    >>> paths = model.sample(100, past, length=5, generator=torch.Generator().manual_seed(1))
    >>> paths.shape, model.log_prob(paths, past.expand(100, -1)).shape
    (torch.Size([100, 5]), torch.Size([100]))
    """

    def __init__(
        self,
        series: Sequence[SeriesScaling],
        hidden_size: Annotated[int, Range(1, 1 << 14)] = 64,
        cell: str = "lstm",
        num_layers: Layers = 1,
        dropout: Probability = 0.1,
        *,
        head: Literal["student", "normal"] = "student",
        components: Annotated[int, Range(1, 1 << 10)] = 2,
        lags: Sequence[int] = (1, 2),
        anchor: int = 1,
        num_covariates: int = 0,
    ):
        super().__init__()
        self.window = SeriesWindow(series, lags, anchor, num_covariates)
        check_sizes(components=components)
        if head not in HEADS:
            raise OptionError("head", f"expected one of {', '.join(HEADS)}, got {head!r}")
        self.head, self.dropout = HEADS[head], dropout
        embedded = min(EMBEDDING, len(series)) if len(series) > 1 else 0
        self.embedding = nn.Embedding(len(series), embedded) if embedded else None
        width = len(self.window.lags) + num_covariates + embedded
        self.recurrent = recurrent_stack(cell, width, hidden_size, num_layers, dropout)
        self.output = nn.Linear(hidden_size + width, self.head.num_parameters(components))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise about the same distribution everywhere, one unit wide, with evenly spaced components."""
        if self.output.weight.is_meta:  # nothing to space, and spacing would import sympy, which takes a second
            return
        nn.init.normal_(self.output.weight, std=0.1 * self.output.in_features**-0.5)
        nn.init.zeros_(self.output.bias)
        means = self.output.bias.data.view(self.head.num_parameters(1), -1)[1]
        means.copy_(torch.linspace(-0.5, 0.5, len(means) + 2)[1:-1])

    @torch.no_grad()
    def add_series(self, series: Sequence[SeriesScaling]) -> None:
        """Forecast more series, which come after the others, as series of their kind: with the mean of the embeddings.

        >>> model = Forecaster([SeriesScaling(), SeriesScaling()], hidden_size=4)
        >>> model.add_series([SeriesScaling(centre=20.0)])
        >>> model(torch.zeros(1, 2), {"past": torch.zeros(1, 5), "series": torch.tensor([2])}).mean.shape
        torch.Size([1, 2])
        """
        self.window.add_series(series)
        if self.embedding is not None:
            known = self.embedding.weight
            self.embedding = nn.Embedding.from_pretrained(_with_means(known, len(series)), freeze=False)

    def initial_state(self, batch_size: int, context: Context = None) -> ForecastState:
        """Return the state after the past, on which the recurrence warms up as far as all lags are known."""
        parts, recurrent = self.window.known(batch_size, context), self.recurrent.initial_state(batch_size)
        early = self.window.of_past(parts)
        if early is not None:
            recurrent = self.recurrent(self._inputs(early), recurrent)[1]
        return {"recurrent": recurrent, "window": self.window.begin(parts)}

    def window_of(self, state: ForecastState) -> WindowState:
        return state["window"]

    def read(
        self, x: Tensor, state: ForecastState, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[LocationScaleMixture, ForecastState]:
        readings, window = self.window.read(x, state["window"], x_prev)
        inputs = self._inputs(readings)
        h, recurrent = self.recurrent(inputs, state["recurrent"], lengths)
        h = nn.functional.dropout(h, self.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):  # places and scales need more than half precision
            outputs = self.output(torch.cat([h.to(inputs), inputs], 2))
        return self._conditional(outputs, readings), {"recurrent": recurrent, "window": window}

    def _inputs(self, readings: Readings) -> Tensor:
        """Inputs of the recurrence at each step, (B, T, N)."""
        parts = [torch.asinh(readings.ratios)]
        if readings.covariates is not None:
            parts.append(readings.covariates.to(readings.scale))
        if self.embedding is not None:
            embedded = self.embedding(readings.series).unsqueeze(1)
            parts.append(embedded.expand(-1, parts[0].shape[1], -1).to(readings.scale))
        return torch.cat(parts, 2).to(self.output.weight.dtype)

    def _conditional(self, outputs: Tensor, readings: Readings) -> LocationScaleMixture:
        """Return the mixture in the user's units, float64: large values with small changes need its digits."""
        logits, means, log_scales, *rest = self.head.from_parameters(wide(outputs)).parameters
        return self.head(logits, *readings.in_user_units(means, log_scales), *rest)


def _with_means(rows: Tensor, count: int) -> Tensor:
    """Rows (S, ...) and their mean as `count` more."""
    return torch.cat([rows, rows.mean(0, keepdim=True).expand(count, *rows.shape[1:])])


PRIOR = 1.0  # weight, in rows, of the prior that a coefficient is 0
FEWEST_ROWS, MOST_ROWS = 1 << 11, 1 << 16  # that a series is fitted to, the last ones: most of one, fewer of many
ROWS_TOGETHER = 1 << 18
DEGREES = (3.0, 4.0, 6.0, 10.0, 30.0)
_FIRST_ITERATIONS, _ITERATIONS = 15, 5  # for the heaviest tails, the most robust to outliers, and for each after it
_LEAST_SCALE = 1e-6  # in units of s


@final
class LinearForecaster(SeriesModel):
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
            raise OptionError("head", f"expected one of {', '.join(HEADS)}, got {head!r}")
        self.head = head
        self.window = SeriesWindow(series, lags, anchor, num_covariates)
        width = len(self.window.lags) + num_covariates + 1
        zeros = torch.zeros(len(series), dtype=torch.float64)
        self.register_buffer("coefficients", zeros.unsqueeze(1).repeat(1, width))
        self.register_buffer("log_scales", zeros)
        self.register_buffer("degrees", zeros + DEGREES[-1])

    def fit(self, values: Tensor, features: Tensor, spans: Sequence[tuple[int, int]] | None = None) -> Self:
        r"""This model, with coefficients of the highest likelihood, found by reweighted least squares.

        .. math:: w = (U^\top Q\, U + P)^{-1} U^\top Q\, z, \qquad
            q_t = \frac{\nu + 1}{\nu + r_t^2 / \sigma^2}, \qquad \sigma^2 = \frac{1}{n - N} \sum_t q_t\, r_t^2

        P is a ridge penalty with the weight of one row of the usual size of each column. r are the residuals of n rows
        with N coefficients, and ν is the likeliest of 3, 4, 6, 10 and 30 (Lange, Little and Taylor 1989). If there are
        many rows, only the last are used: 65,536 for one series, at least 2,048 each for many.

        Args:
            values: (T, S) training values; NaN where one is missing, which is not fitted to.
            features: (T, F) covariates, or (T, S, F) of each series.
            spans: S pairs, the first row of each series and the one after its last; all rows if not given. A series
                without a value that has all lags before it stays a random walk.

        Raises:
            ValueError: shapes are others, there is no row with all lags before it, or a number is infinite.

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
            first = max(start + lag, stop - most)
            every = values[first - lag : stop, number].to(window.scaling).unsqueeze(0)
            known = ~every.isnan()
            if stop - start <= lag or not known[0, lag:].any():
                continue
            own = features[first:stop] if features.dim() == 2 else features[first:stop, number]
            if not bool(every[known].isfinite().all() and own.isfinite().all()):
                raise ValueError("values, features: expected finite numbers")
            which = torch.full((1,), number, device=every.device)
            covariates = own.to(window.scaling).unsqueeze(0) if window.num_covariates else None
            readings = window.measure(last_known(every)[:, :-1], known[:, :-1], stop - first, which, covariates)
            z = ((every[0, lag:] - readings.anchor[0]) / readings.scale[0])[known[0, lag:]]
            inputs = self._inputs(readings)[0, known[0, lag:]]
            coefficients, scale, degrees = _fit(inputs, z, self.head == "student")
            self.coefficients[number], self.degrees[number] = coefficients, degrees
            scale = max(scale - float(readings.finest.mean()), _LEAST_SCALE)  # which every density has besides
            self.log_scales[number] = math.log(scale)
        return self

    def add_series(self, series: Sequence[SeriesScaling]) -> None:
        """Forecast more series, which come after the others, with the means of their coefficients until `fit`."""
        self.window.add_series(series)
        for name in ("coefficients", "log_scales"):
            setattr(self, name, _with_means(getattr(self, name), len(series)))
        self.degrees = torch.cat([self.degrees, self.degrees.median().expand(len(series))])

    def initial_state(self, batch_size: int, context: Context = None) -> WindowState:
        return self.window.begin(self.window.known(batch_size, context))

    def window_of(self, state: WindowState) -> WindowState:
        return state

    def read(
        self, x: Tensor, state: WindowState, x_prev: Tensor | None = None, lengths: Tensor | None = None
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
        return coefficients, scale, DEGREES[-1]
    fits: list[tuple[float, float, Tensor, float]] = []
    for degrees in DEGREES:
        for _ in range(_ITERATIONS if fits else _FIRST_ITERATIONS):
            coefficients, errors, scale = solved((degrees + 1) / (degrees + (errors / scale).square()))
        fits.append((_log_likelihood(errors, scale, degrees), degrees, coefficients, scale))
    _, degrees, coefficients, scale = max(fits, key=lambda fit: fit[0])
    return coefficients, scale, degrees


def _log_likelihood(errors: Tensor, scale: float, degrees: float) -> float:
    student = torch.distributions.StudentT(torch.tensor(degrees, dtype=errors.dtype, device=errors.device), 0.0, scale)
    return float(student.log_prob(errors).sum())


def fit_tails(errors: Tensor, heavy: bool) -> tuple[float, float]:
    """The scale and ν of errors (n,) about 0: the likeliest, or those of a normal distribution."""
    _, scale, degrees = _fit(errors.new_zeros(len(errors), 1), errors, heavy)
    return scale, degrees

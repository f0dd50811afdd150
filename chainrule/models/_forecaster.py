"""Forecasts of real-valued series: a recurrence with a distribution for the next value."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, final

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context
from chainrule._modes import wide
from chainrule._ranges import Layers, Probability, Range, check_sizes
from chainrule.heads._location_scale_mixture import LocationScaleMixture
from chainrule.heads._real_mixtures import GaussianMixture, StudentTMixture
from chainrule.layers._recurrent_stack import recurrent_stack
from chainrule.models._series_scaling import SeriesScaling
from chainrule.models._series_window import Readings, SeriesWindow, WindowState
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


@final
class Forecaster(AutoregressiveModel):
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
    its first value is repeated), and where it is longer than the longest lag the network warms up on the rest.
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
            raise ValueError(f"head: expected one of {', '.join(HEADS)}, got {head!r}")
        self.head, self.dropout = HEADS[head], dropout
        embedded = min(EMBEDDING, len(series)) if len(series) > 1 else 0
        self.embedding = nn.Embedding(len(series), embedded) if embedded else None
        width = len(self.window.lags) + num_covariates + embedded
        self.recurrent = recurrent_stack(cell, width, hidden_size, num_layers, dropout)
        self.output = nn.Linear(hidden_size + width, self.head.num_parameters(components))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise about the same distribution everywhere, one unit wide, with evenly spaced components."""
        nn.init.normal_(self.output.weight, std=0.1 * self.output.in_features**-0.5)
        nn.init.zeros_(self.output.bias)
        means = self.output.bias.data.view(self.head.num_parameters(1), -1)[1]
        means.copy_(torch.linspace(-0.5, 0.5, len(means) + 2)[1:-1])

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> LocationScaleMixture:
        """Return all conditionals p(y_t | y_<t, c) in the user's units, of batch shape (B, T).

        Args:
            x: (B, T) real numbers.
            context: covariates and past, see the class.
            lengths: (B,) real elements of each row of x.

        Raises:
            ValueError: the context is not what the model needs, or does not fit x.
        """
        if x.dim() != 2:
            raise ValueError(f"x: expected shape (B, T), got {tuple(x.shape)}")
        return self._read(x, self.initial_state(len(x), context), None, lengths)[0]

    def unroll(
        self, x: Tensor, state: ForecastState, x_prev: Tensor | None = None
    ) -> tuple[LocationScaleMixture, ForecastState]:
        return self._read(x, state, x_prev)

    def initial_state(self, batch_size: int, context: Context = None) -> ForecastState:
        """Return the state after the past, on which the recurrence warms up as far as all lags are known."""
        parts, recurrent = self.window.known(batch_size, context), self.recurrent.initial_state(batch_size)
        early = self.window.of_past(parts)
        if early is not None:
            recurrent = self.recurrent(self._inputs(early), recurrent)[1]
        return {"recurrent": recurrent, "window": self.window.begin(parts)}

    def step(self, x_prev: Tensor | None, state: ForecastState) -> tuple[LocationScaleMixture, ForecastState]:
        unread = state["window"]["recent"][:, :1]  # of a chunk of one, its value is unread
        conditional, state = self._read(unread, state, x_prev)
        return conditional.with_parameters(*(part.squeeze(1) for part in conditional.parameters)), state

    def _read(
        self, x: Tensor, state: ForecastState, x_prev: Tensor | None, lengths: Tensor | None = None
    ) -> tuple[LocationScaleMixture, ForecastState]:
        """Read a chunk (B, T) in one pass and return the state that is ready to read its last element."""
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

"""Forecasts of real-valued series: a recurrence with a distribution for the next value."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict, final

import torch
from torch import Tensor, nn

from chainrule.base import AutoregressiveModel, Context
from chainrule.heads.gaussian_mixture import GaussianMixture
from chainrule.heads.location_scale_mixture import LocationScaleMixture
from chainrule.heads.student_t_mixture import StudentTMixture
from chainrule.layers.recurrent_stack import recurrent_stack
from chainrule.models.series_context import SeriesContext, read_context
from chainrule.models.series_scaling import SeriesScaling
from chainrule.ranges import Layers, Probability, Range, check_sizes
from chainrule.state import State

_HEADS: dict[str, type[GaussianMixture] | type[StudentTMixture]] = {
    "student": StudentTMixture,
    "normal": GaussianMixture,
}
EMBEDDING = 8  # numbers that tell one series from another, at most
USUAL = 24  # changes of the usual size that count with the recent ones


@final
class ForecastState(TypedDict):
    """A state: the recurrence, the last L values, how many of them are known, elements read, covariates, the series."""

    recurrent: State
    recent: Tensor
    known: Tensor
    read: Tensor
    covariates: Tensor | None
    series: Tensor


@final
class Forecaster(AutoregressiveModel):
    r"""An autoregressive recurrent network with a distribution of the next value (DeepAR, Salinas et al. 2020).

    .. math:: h_t = \mathrm{cell}(u_t, h_{t-1}), \qquad
        u_t = \left[\operatorname{asinh}\frac{y_{t-l} - a_t}{s_t}\right]_{l \in \text{lags}} \oplus c_t \oplus E[i]

    .. math:: p(y_t \mid y_{<t}, c) = \frac{1}{s_t}\, m\left(\frac{y_t - a_t}{s_t};\ W [h_t, u_t]\right), \qquad
        s_t^2 = \frac{24\, s^2 + \sum_{j=1}^{n} (y_{t-j} - a_{t-j})^2}{24 + n}

    Values are measured from an **anchor** :math:`a_t = y_{t - \text{anchor}}`: with anchor 1 the network speaks of the
    change since the last value, with a season's length of the change since the last season, with 0 of the distance
    from the centre of the series. What it has never seen, such as a new level of a price, is then no new situation.
    Nor is a quieter or a wilder time: the scale :math:`s_t` is that of the last n changes and of the usual scale s of
    the series; n is the longest lag less the anchor, or what there is in a shorter past. m is a mixture in the
    network's units; the density is that of y in the user's units, nats, with the factor 1/s_t (the Jacobian) counted.

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
        components: number of them, K.
        lags: which earlier values are read at each step, counted back from it.
        anchor: the lag that values are measured from; 0 for the centre.
        num_covariates: F.

    Raises:
        ValueError: an argument is out of range.

    >>> model = Forecaster([SeriesScaling(centre=20.0, scale=2.0)], hidden_size=8, lags=[1, 2, 7])
    >>> past = 20 + torch.randn(1, 30, generator=torch.Generator().manual_seed(0))
    >>> paths = model.sample(100, past, length=5, generator=torch.Generator().manual_seed(1))
    >>> paths.shape, model.log_prob(paths, past.expand(100, -1)).shape
    (torch.Size([100, 5]), torch.Size([100]))
    """

    scaling: Tensor

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
        if not series:
            raise ValueError("series: expected the scaling of at least one, got none")
        if not lags or min(lags) < 1 or len(set(lags)) < len(lags):
            raise ValueError(f"lags: expected different integers >= 1, got {list(lags)}")
        if anchor < 0 or num_covariates < 0:
            name, value = ("anchor", anchor) if anchor < 0 else ("num_covariates", num_covariates)
            raise ValueError(f"{name}: expected an integer >= 0, got {value}")
        check_sizes(components=components)
        if list(lags) == [anchor]:
            raise ValueError(f"lags: expected one that is not the anchor, {anchor}, got nothing else: add a lag")
        if head not in _HEADS:
            raise ValueError(f"head: expected one of {', '.join(_HEADS)}, got {head!r}")
        self.head, self.dropout, self.anchor = _HEADS[head], dropout, anchor
        self.lags = tuple(lag for lag in lags if lag != anchor)  # 0 away from itself
        self.longest_lag = max(*lags, anchor, 1)
        self.num_series, self.num_covariates = len(series), num_covariates
        self.register_buffer("scaling", SeriesScaling.stacked(tuple(series)))  # (3, S)
        embedded = min(EMBEDDING, len(series)) if len(series) > 1 else 0
        self.embedding = nn.Embedding(len(series), embedded) if embedded else None
        width = len(self.lags) + num_covariates + embedded
        self.recurrent = recurrent_stack(cell, width, hidden_size, num_layers, dropout)
        self.output = nn.Linear(hidden_size + width, self.head.num_parameters(components))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin as about the same distribution everywhere, one unit wide, with components side by side."""
        nn.init.normal_(self.output.weight, std=0.1 * self.output.in_features**-0.5)
        nn.init.zeros_(self.output.bias)
        means = self.output.bias.data.view(self.head.num_parameters(1), -1)[1]
        means.copy_(torch.linspace(-0.5, 0.5, len(means) + 2)[1:-1])

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> LocationScaleMixture:
        """All conditionals p(y_t | y_<t, c) in the user's units, of batch shape (B, T).

        Args:
            x: (B, T) real numbers.
            context: covariates and past, see the class.
            lengths: (B,) real elements of each row of x.

        Raises:
            ValueError: the context is not what the model needs, or does not fit x.
        """
        if x.dim() != 2:
            raise ValueError(f"x: expected shape (B, T), got {tuple(x.shape)}")
        return self._read(x, self._begin(len(x), context), None, lengths)[0]

    def unroll(
        self, x: Tensor, state: ForecastState, x_prev: Tensor | None = None
    ) -> tuple[LocationScaleMixture, ForecastState]:
        return self._read(x, state, x_prev)

    def initial_state(self, batch_size: int, context: Context = None) -> ForecastState:
        return self._begin(batch_size, context)

    def step(self, x_prev: Tensor | None, state: ForecastState) -> tuple[LocationScaleMixture, ForecastState]:
        conditional, state = self._read(state["recent"][:, :1], state, x_prev)  # of a chunk of one, its value is unread
        return conditional.with_parameters(*(part.squeeze(1) for part in conditional.parameters)), state

    def _begin(self, batch_size: int, context: Context) -> ForecastState:
        """Warm up on those places of the past before which all lags are known."""
        known: SeriesContext = read_context(context, batch_size, self.num_series, self.num_covariates)
        past, series, covariates = known["past"], known["series"], known["covariates"]
        state = self.recurrent.initial_state(batch_size)
        steps = past.shape[1] - self.longest_lag
        if steps > 0:
            early = None if covariates is None else covariates[:, self.longest_lag : past.shape[1]]
            every = torch.full_like(series, self.longest_lag)
            state = self.recurrent(self._inputs(past[:, :-1], steps, series, early, every)[0], state)[1]
        recent = torch.cat([past[:, :1].expand(-1, max(-steps, 0)), past[:, -self.longest_lag :]], 1)
        return {
            "recurrent": state,
            "recent": recent,
            "known": torch.full_like(series, past.shape[1]).clamp(max=self.longest_lag),
            "read": torch.zeros_like(series),
            "covariates": None if covariates is None else covariates[:, past.shape[1] :],
            "series": series,
        }

    def _read(
        self, x: Tensor, state: ForecastState, x_prev: Tensor | None, lengths: Tensor | None = None
    ) -> tuple[LocationScaleMixture, ForecastState]:
        """A chunk (B, T) in one pass, and the state that is ready to read its last element."""
        recent, known, read, time = state["recent"], state["known"], state["read"], x.shape[1]
        if x_prev is not None:
            recent = torch.cat([recent[:, 1:], x_prev.to(recent).unsqueeze(1)], 1)
            known, read = (known + 1).clamp(max=self.longest_lag), read + 1
        whole = torch.cat([recent, x[:, :-1].to(recent)], 1)  # (B, L + T - 1)
        covariates = _at(state["covariates"], read, time)
        inputs, anchor, scale = self._inputs(whole, time, state["series"], covariates, known)
        h, recurrent = self.recurrent(inputs, state["recurrent"], lengths)
        h = nn.functional.dropout(h, self.dropout, self.training)
        with torch.autocast(x.device.type, enabled=False):  # places and scales need more than half precision
            outputs = self.output(torch.cat([h.to(inputs), inputs], 2))
        conditional = self._conditional(outputs, anchor, scale)
        after: ForecastState = {
            **state,
            "recurrent": recurrent,
            "recent": whole[:, time - 1 :],
            "known": (known + time - 1).clamp(max=self.longest_lag),
            "read": read + time - 1,
        }
        return conditional, after

    def _inputs(
        self, whole: Tensor, time: int, series: Tensor, covariates: Tensor | None, known: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Inputs of the recurrence at each of `time` positions, (B, T, N); the anchors (B, T); scales (2, B, T).

        whole: (B, L + T - 1) the values before each of them; of the first L the last `known`, (B,), are real.
        """
        centre, usual, finest = self.scaling[:, series].unsqueeze(2)  # (B, 1) each
        whole = whole.to(usual)

        def lagged(lag: int) -> Tensor:
            return whole[:, self.longest_lag - lag :][:, :time]

        anchor, scale = lagged(self.anchor) if self.anchor else centre.expand(-1, time), usual.expand(-1, time)
        if recent := self.longest_lag - self.anchor:  # changes whose anchor is among the values
            changes = whole[:, self.anchor :] - (whole[:, : -self.anchor] if self.anchor else centre)
            there = torch.arange(changes.shape[1], device=whole.device) >= (self.longest_lag - known).unsqueeze(1)
            squares = torch.where(there, changes.square(), 0.0)
            total, count = (part.unfold(1, recent, 1)[:, :time].sum(2) for part in (squares, there))
            scale = ((USUAL * usual.square() + total) / (USUAL + count)).sqrt()
        parts = [torch.asinh((lagged(lag) - anchor) / scale).unsqueeze(2) for lag in self.lags]
        if covariates is not None:
            parts.append(covariates.to(usual))
        if self.embedding is not None:
            parts.append(self.embedding(series).unsqueeze(1).expand(-1, time, -1).to(usual))
        return torch.cat(parts, 2).to(self.output.weight.dtype), anchor, torch.stack([scale, finest * usual / scale])

    def _conditional(self, outputs: Tensor, anchor: Tensor, scales: Tensor) -> LocationScaleMixture:
        """The mixture in the user's units, float64: large values with small changes need its digits."""
        scale, finest = scales.unsqueeze(3)  # (B, T, 1) each
        logits, means, log_scales, *rest = self.head.from_parameters(outputs.double()).parameters
        log_scales = torch.logaddexp(finest.log(), log_scales)  # a density has a highest peak
        means, log_scales = anchor.unsqueeze(2) + scale * means, scale.log() + log_scales
        return self.head(logits, means, log_scales, *rest)


def _at(covariates: Tensor | None, read: Tensor, time: int) -> Tensor | None:
    """(B, T, F) of the next `time` elements of each row."""
    if covariates is None:
        return None
    places = read.unsqueeze(1) + torch.arange(time, device=read.device)
    if places.numel() and int(places.max()) >= covariates.shape[1]:
        raise ValueError(
            f"covariates: known for {covariates.shape[1]} elements after the past, "
            f"but number {int(places.max()) + 1} was asked for: give more of them"
        )
    return covariates.gather(1, places.unsqueeze(2).expand(-1, -1, covariates.shape[2]))

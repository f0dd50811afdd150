"""The mean of a network and of models that are fitted to a series, weighted by their forecasts of held-out rows."""

import math
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Literal, Self, final

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.heads._adapter import head_of
from chainrule.models._forecaster import LinearForecaster
from chainrule.models._model_mean import NetworkMean, Rows
from chainrule.models._series_window import SeriesScaling
from chainrule.models._smoothing_forecaster import SmoothingForecaster
from chainrule.modes import evaluating
from chainrule.state import map_state, select

_WINDOWS, _PATHS = 64, 32  # that weights are chosen by
_FEWEST_WINDOWS = 16  # whose scores have a standard error to go by
_USUAL_WINDOWS = 3.0  # that the usual weights count as
_FEW_VALUES = 3000  # a network fitted to so many has half the usual weight of one that is fitted to many
_LONGEST_SEASON = 24
_LEAST = 1e-6  # weight: a logarithm is finite
_PARTS = 20  # a weight is a multiple of 1 / this


@final
class ForecastMixture(NetworkMean):
    r"""A mixture of a network, a linear autoregression and exponential smoothing, or a random walk alone.

    .. math:: p(y_t \mid y_{<t}, c) = \sum_k w_k\, p_k(y_t \mid y_{<t}, c)

    Few rows suffice for the two that are fitted. Their errors differ, so the mixture often beats each of them. The
    last part is a random walk with fitted errors.

    Training fits the network alone. `fit` fits the others to the training rows, and `calibrate` finds the weights whose
    pooled paths have the smallest CRPS over n whole held-out windows, drawn towards usual weights u:

    .. math:: \min_w\ \sum_k w_k\, \mathrm{E}|X_k - y| - \tfrac{1}{2} \sum_{k,l} w_k w_l\, \mathrm{E}|X_k - X_l'|
        + \frac{3}{n}\, e\, \|w - u\|^2

    e is the smallest of the absolute errors. u is a third for each, if there are many training values, and less for
    the network if there are few. The likelihood one step ahead would tell little about a forecast of many steps.
    `log_prob` is the exact likelihood of the mixture.

    The walk has no share in this. It has all of the weight where the CRPS of the others, over 16 windows or more, is
    not lower than its own by more than one standard error (Breiman et al. 1984): what the others found in such a
    series was chance.

    Args:
        network: a forecaster of the same series.
        series: the scaling of each series.
        head: of the two others, as of the network.
        lags: of the linear autoregression, see `LinearForecaster`.
        anchor: see `LinearForecaster`.
        season: of exponential smoothing; beyond 24 it has none.
        num_covariates: F.

    Source of the rule of one standard error: L. Breiman, J. Friedman, R. Olshen and C. Stone, Classification and
    Regression Trees, 1984.

    >>> from chainrule.models import Forecaster
    >>> scalings = [SeriesScaling(centre=20.0, scale=2.0)]
    >>> model = ForecastMixture(Forecaster(scalings, hidden_size=4), scalings)
    >>> values = 20 + torch.arange(30.0).view(30, 1).double()
    >>> model.fit(values, torch.zeros(30, 0)).weights
    tensor([0.0033, 0.4983, 0.4983, 0.0000], dtype=torch.float64)
    """

    weights: Tensor
    usual: Tensor

    def __init__(
        self,
        network: AutoregressiveModel,
        series: Sequence[SeriesScaling],
        *,
        head: Literal["student", "normal"] = "student",
        lags: Sequence[int] = (1, 2),
        anchor: int = 1,
        season: int = 1,
        num_covariates: int = 0,
    ):
        super().__init__()
        self.network = network
        self.linear = LinearForecaster(series, head=head, lags=lags, anchor=anchor, num_covariates=num_covariates)
        season = season if season <= _LONGEST_SEASON else 1
        self.smoothing, self.walk = (
            SmoothingForecaster(series, head=head, season=own, num_covariates=num_covariates) for own in (season, 1)
        )
        self.check_parts(["network", "linear", "smoothing", "walk"])
        for name in ("weights", "usual"):
            self.register_buffer(name, torch.tensor([1 / 3, 1 / 3, 1 / 3, 0], dtype=torch.float64, device="cpu"))

    @property
    def parts(self) -> tuple[AutoregressiveModel, ...]:
        return self.network, self.linear, self.smoothing, self.walk

    @property
    def log_weights(self) -> Tensor:
        return self.weights.clamp(min=_LEAST).log()

    def fit(self, values: Tensor, features: Tensor, spans: Sequence[tuple[int, int]] | None = None) -> Self:
        """Fit all parts but the network to training rows, see `LinearForecaster.fit`."""
        self.linear.fit(values, features, spans)
        self.walk.fit(values, features, spans, walk=True)
        self.smoothing.fit(values, features, spans)
        number = float(values.isfinite().sum())
        network = number / (number + _FEW_VALUES) / 3
        self.usual.copy_(torch.tensor([network, (1 - network) / 2, (1 - network) / 2, 0.0]))
        self.weights.copy_(self.usual)
        return self

    @torch.no_grad()
    def calibrate(self, batches: Iterable[Rows]) -> None:
        """Choose the weights by the forecasts of some windows of the first batch of held-out data."""
        batch = next(iter(batches))
        device = self.linear.coefficients.device
        count = len(batch.x)
        known = batch.x.isfinite().any(1).nonzero().squeeze(1)  # missing values tell nothing
        if not len(known):
            return
        places = torch.linspace(0, len(known) - 1, min(len(known), _WINDOWS), device=known.device)
        chosen = known[places.round().long()]
        y = batch.x[chosen].to(device)
        context = map_state(lambda leaf: (leaf[chosen] if len(leaf) == count else leaf).to(device), batch.context)
        window = self.linear.window
        units = window.scaling[1, window.known(len(y), context)["series"]].view(-1, 1)
        with evaluating(self):
            paths = torch.stack([_paths(part, y, context) for part in self.parts]) / units.unsqueeze(2)
        y = y / units
        weights = _weights(paths[:-1], y, self.usual[:-1])
        above = _crps(paths[-1:], y, weights.new_ones(1)) - _crps(paths[:-1], y, weights)
        walks = len(y) >= _FEWEST_WINDOWS and float(above.mean()) <= float(above.std()) / math.sqrt(len(y))
        weights = torch.zeros_like(weights) if walks else weights
        self.weights.copy_(torch.cat([weights, weights.new_tensor([float(walks)])]))


def _paths(model: AutoregressiveModel, x: Tensor, context: Context) -> Tensor:
    """Draw paths (B, n, T) as long as x (B, T)."""
    generator = torch.Generator(x.device).manual_seed(0)
    forks = torch.arange(len(x), device=x.device).repeat_interleave(_PATHS)
    state = select(model.initial_state(len(x), context), forks)
    step, x_prev, elements = model.prepare().step, None, []
    for _ in range(x.shape[1]):
        conditional, state = step(x_prev, state)
        x_prev = head_of(conditional).sample(generator=generator)
        elements.append(x_prev)
    return torch.stack(elements, 1).unflatten(0, (len(x), _PATHS)).to(x)


def _crps(paths: Tensor, y: Tensor, weights: Tensor) -> Tensor:
    """Return the CRPS (B,) of paths (K, B, n, T) pooled with weights (K,) about values (B, T)."""
    distance, between = _distances(paths, y)
    return weights @ distance - torch.einsum("k,klb,l->b", weights, between, weights) / 2


def _distances(paths: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return E|X_k − y| (K, B) and E|X_k − X_l'| (K, K, B) of paths (K, B, n, T) and values (B, T) in each window."""
    number, windows, draws = paths.shape[:3]
    distance = (paths - y.unsqueeze(1)).abs().nanmean((2, 3))
    between = torch.stack(
        [(one.unsqueeze(2) - other.unsqueeze(1)).abs().mean((1, 2, 3)) for one, other in product(paths, paths)]
    )
    between = between.view(number, number, windows)
    between[range(number), range(number)] *= draws / (draws - 1)  # of different draws
    return distance, between


def _weights(paths: Tensor, y: Tensor, usual: Tensor) -> Tensor:
    """Weights (K,) of the smallest CRPS of pooled paths (K, B, n, T) about values (B, T)."""
    number, windows = paths.shape[:2]
    distance, between = (part.mean(-1) for part in _distances(paths, y))
    grid = [part for part in product(range(_PARTS + 1), repeat=number) if sum(part) == _PARTS]
    weights = torch.tensor(grid).to(paths) / _PARTS
    scores = weights @ distance - torch.einsum("nk,kl,nl->n", weights, between, weights) / 2
    doubt = _USUAL_WINDOWS / windows * distance.min() * (weights - usual.to(weights)).square().sum(1)
    return weights[(scores + doubt).argmin()]

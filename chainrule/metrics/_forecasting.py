"""Forecast metrics: CRPS, pinball loss and coverage for distributions, RMSE and MAE for single values.

All in the unit of the values; arrays of numpy or anything that it reads.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

Floats = npt.NDArray[np.float64]


def crps_of_samples(samples: ArrayLike, observed: ArrayLike) -> Floats:
    r"""The continuous ranked probability score of each forecast given as draws (Gneiting and Raftery 2007).

    .. math:: \mathrm{CRPS}(F, y) = \int (F(z) - [z \ge y])^2 \, dz
        = \mathbb{E}|X - y| - \tfrac{1}{2} \mathbb{E}|X - X'|

    With n draws the second mean goes over the n(n − 1) pairs of different draws: the estimate is then unbiased, whereas
    the score of the empirical distribution is too large by about 1/n (Zamo and Naveau 2018). For a single value that
    score is the absolute error.

    Args:
        samples: (n, ...) draws, n >= 2.
        observed: (...) observed values.

    Returns:
        (...) scores; the smaller the better.

    Raises:
        ValueError: shapes do not fit, or there are fewer than two draws.

    >>> crps_of_samples([[0.0], [2.0]], [1.0])
    array([0.])
    """
    x, y = np.sort(np.asarray(samples, np.float64), axis=0), np.asarray(observed, np.float64)
    if x.ndim != y.ndim + 1 or x.shape[1:] != y.shape or len(x) < 2:
        raise ValueError(f"samples: expected (n, ...) with n >= 2 and ... = {y.shape}, got {x.shape}")
    n = len(x)
    # Of sorted draws the sum of |x_i - x_j| over all pairs is a weighted sum.
    weights = (2 * np.arange(n) - n + 1).reshape(-1, *[1] * y.ndim)
    distances: Floats = np.abs(x - y).mean(0) - (weights * x).sum(0) / (n * (n - 1))
    return distances


def crps_of_gaussian_mixture(weights: ArrayLike, means: ArrayLike, scales: ArrayLike, observed: ArrayLike) -> Floats:
    r"""The exact score of mixtures of normal distributions (Grimit et al. 2006).

    .. math:: \mathrm{CRPS} = \sum_k \pi_k A(y - \mu_k, s_k^2)
        - \tfrac{1}{2} \sum_{k,l} \pi_k \pi_l A(\mu_k - \mu_l, s_k^2 + s_l^2), \qquad
        A(m, v) = 2 \sqrt v \varphi(z) + m (2 \Phi(z) - 1), \quad z = \tfrac{m}{\sqrt v}

    Args:
        weights: (..., K) π, adding up to 1.
        means: (..., K) μ.
        scales: (..., K) s > 0.
        observed: (...) observed values.

    >>> round(float(crps_of_gaussian_mixture([1.0], [0.0], [1.0], 0.0)), 6)  # (sqrt 2 - 1) / sqrt pi
    0.233695
    """
    pi, mu, s, y = (np.asarray(part, np.float64) for part in (weights, means, scales, observed))
    first = (pi * _mean_distance(y[..., None] - mu, s)).sum(-1)
    between = _mean_distance(mu[..., :, None] - mu[..., None, :], np.hypot(s[..., :, None], s[..., None, :]))
    second = (pi[..., :, None] * pi[..., None, :] * between).sum((-2, -1))
    scores: Floats = np.asarray(first - second / 2)
    return scores


def pinball_loss(forecast: ArrayLike, observed: ArrayLike, quantile: float) -> Floats:
    r"""The loss that a quantile minimises on average (Koenker and Bassett 1978).

    .. math:: L_q(\hat y, y) = \max\left(q (y - \hat y),\ (q - 1)(y - \hat y)\right)

    Twice its integral over all q in (0, 1) is the CRPS.

    Args:
        forecast: (...) the quantile forecast.
        observed: (...) observed values.
        quantile: q in (0, 1).

    Raises:
        ValueError: q is no such number, or shapes differ.

    >>> pinball_loss([1.0, 1.0], [3.0, 0.0], quantile=0.9)
    array([1.8, 0.1])
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile: expected a number between 0 and 1, got {quantile}")
    error = -_errors(forecast, observed)
    loss: Floats = np.maximum(quantile * error, (quantile - 1) * error)
    return loss


def coverage(low: ArrayLike, high: ArrayLike, observed: ArrayLike) -> float:
    """The share of values inside their intervals, ends included; of 80% intervals it should be 0.8.

    Raises:
        ValueError: shapes differ.

    >>> coverage([0.0, 0.0], [1.0, 1.0], [0.5, 2.0])
    0.5
    """
    return float(((_errors(low, observed) <= 0) & (_errors(high, observed) >= 0)).mean())


def root_mean_squared_error(forecast: ArrayLike, observed: ArrayLike) -> float:
    """√ of the mean squared error over all values; a mean minimises it.

    >>> root_mean_squared_error([1.0, 2.0], [1.0, 4.0])
    1.41421...
    """
    return math.sqrt(float(np.square(_errors(forecast, observed)).mean()))


def mean_absolute_error(forecast: ArrayLike, observed: ArrayLike) -> float:
    """The mean distance over all values; a median minimises it.

    >>> mean_absolute_error([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    return float(np.abs(_errors(forecast, observed)).mean())


def persistence(past: ArrayLike, horizon: int) -> Floats:
    """The last value, forever: (..., P) -> (..., horizon).

    >>> persistence([1.0, 2.0, 3.0], 2)
    array([3., 3.])
    """
    return seasonal_naive(past, horizon, 1)


def seasonal_naive(past: ArrayLike, horizon: int, season: int) -> Floats:
    """The last season, again and again: (..., P) -> (..., horizon).

    Raises:
        ValueError: the past is shorter than a season.

    >>> seasonal_naive([9.0, 1.0, 2.0, 3.0], 5, season=3)
    array([1., 2., 3., 1., 2.])
    """
    known = np.asarray(past, np.float64)
    if not 1 <= season <= known.shape[-1]:
        raise ValueError(f"season: expected a length from 1 to {known.shape[-1]}, the past's, got {season}")
    last: Floats = known[..., known.shape[-1] - season :]
    return last[..., np.arange(horizon) % season]


def quantiles_of_samples(samples: ArrayLike, quantiles: Sequence[float]) -> Floats:
    """(n, ...) draws -> (Q, ...) quantiles, linear between draws.

    >>> quantiles_of_samples([0.0, 1.0, 2.0, 3.0, 4.0], [0.5, 0.75])
    array([2., 3.])
    """
    found: Floats = np.quantile(np.asarray(samples, np.float64), list(quantiles), axis=0)
    return found


def _mean_distance(mean: Floats, scale: Floats) -> Floats:
    """E|X| of X ~ N(mean, scale²)."""
    z = mean / scale
    density = np.exp(-np.square(z) / 2) / math.sqrt(2 * math.pi)
    distance: Floats = 2 * scale * density + mean * _erf(z / math.sqrt(2))
    return distance


def _errors(forecast: ArrayLike, observed: ArrayLike) -> Floats:
    x, y = np.asarray(forecast, np.float64), np.asarray(observed, np.float64)
    if x.shape != y.shape:  # of which each would be compared with all
        raise ValueError(f"forecast: expected the shape of observed, {y.shape}, got {x.shape}")
    errors: Floats = x - y
    return errors


def _erf(x: Any) -> Floats:
    import torch

    values: Floats = torch.special.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()
    return values

"""Forecast metrics in the unit of the values: CRPS, pinball loss, coverage, RMSE and MAE; and naive forecasts."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

Floats = npt.NDArray[np.float64]


def crps_of_samples(samples: ArrayLike, observed: ArrayLike) -> Floats:
    r"""Compute the continuous ranked probability score of forecasts given as draws (Gneiting and Raftery 2007).

    .. math:: \mathrm{CRPS}(F, y) = \int (F(z) - [z \ge y])^2 \, dz
        = \mathbb{E}|X - y| - \tfrac{1}{2} \mathbb{E}|X - X'|

    The second mean is over the n(n − 1) pairs of different draws, which makes the estimate unbiased; the score of the
    empirical distribution is too large by about 1/n (Zamo and Naveau 2018). For a single value, that score is the
    absolute error.

    Args:
        samples: (n, ...) draws, n >= 2.
        observed: (...) observed values.

    Returns:
        (...) scores; smaller is better.

    >>> crps_of_samples([[0.0], [2.0]], [1.0])
    array([0.])
    """
    x, y = np.sort(np.asarray(samples, np.float64), axis=0), np.asarray(observed, np.float64)
    if x.ndim != y.ndim + 1 or x.shape[1:] != y.shape or len(x) < 2:
        raise ValueError(f"samples: expected (n, ...) with n >= 2 and ... = {y.shape}, got {x.shape}")
    n = len(x)
    # For sorted draws, the sum of |x_i - x_j| over all pairs is a weighted sum.
    weights = (2 * np.arange(n) - n + 1).reshape(-1, *[1] * y.ndim)
    distances: Floats = np.abs(x - y).mean(0) - (weights * x).sum(0) / (n * (n - 1))
    return distances


def crps_of_gaussian_mixture(weights: ArrayLike, means: ArrayLike, scales: ArrayLike, observed: ArrayLike) -> Floats:
    r"""Compute the exact CRPS of mixtures of normal distributions (Grimit et al. 2006).

    .. math:: \mathrm{CRPS} = \sum_k \pi_k A(y - \mu_k, s_k^2)
        - \tfrac{1}{2} \sum_{k,l} \pi_k \pi_l A(\mu_k - \mu_l, s_k^2 + s_l^2), \qquad
        A(m, v) = 2 \sqrt v \varphi(z) + m (2 \Phi(z) - 1), \quad z = \tfrac{m}{\sqrt v}

    Args:
        weights: (..., K) π, which sum to 1.
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
    r"""Compute the loss whose mean the quantile minimises (Koenker and Bassett 1978).

    .. math:: L_q(\hat y, y) = \max\left(q (y - \hat y),\ (q - 1)(y - \hat y)\right)

    Twice its integral over all q in (0, 1) is the CRPS.

    Args:
        forecast: (...) the quantile forecast.
        observed: (...) observed values.
        quantile: q in (0, 1).

    >>> pinball_loss([1.0, 1.0], [3.0, 0.0], quantile=0.9)
    array([1.8, 0.1])
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile: expected a number between 0 and 1, got {quantile}")
    error = -_errors(forecast, observed)
    loss: Floats = np.maximum(quantile * error, (quantile - 1) * error)
    return loss


def coverage(low: ArrayLike, high: ArrayLike, observed: ArrayLike) -> float:
    """Compute the share of values inside their closed intervals; 0.8 is ideal for 80% intervals.

    >>> coverage([0.0, 0.0], [1.0, 1.0], [0.5, 2.0])
    0.5
    """
    return float(((_errors(low, observed) <= 0) & (_errors(high, observed) >= 0)).mean())


def seasonal_naive(past: ArrayLike, horizon: int, season: int = 1) -> Floats:
    """Repeat the last season, by default the last value (persistence): (..., P) -> (..., horizon).

    >>> seasonal_naive([9.0, 1.0, 2.0, 3.0], 5, season=3)
    array([1., 2., 3., 1., 2.])
    """
    values = np.asarray(past, np.float64)
    length = values.shape[-1]
    if not 1 <= season <= length:
        raise ValueError(f"season: expected a length from 1 to {length}, the length of the past, got {season}")
    last: Floats = values[..., length - season :]
    return last[..., np.arange(horizon) % season]


def quantiles_of_samples(samples: ArrayLike, quantiles: Sequence[float]) -> Floats:
    r"""Estimate quantiles (Q, ...) of a distribution from draws (n, ...), so that intervals are not too narrow.

    The next draw is below the k-th smallest of n with probability k/(n + 1), whatever the distribution (Weibull 1939).
    So the k-th smallest is the quantile p = k/(n + 1). Between and outside the draws, the distribution is taken for a
    logistic one. Its quantiles are linear in :math:`\log \frac{p}{1 - p}`, and a next draw outside the others is on
    average 2(n − 1)/n times as far from them as the first two are apart:

    .. math:: q_p = x_{(1)} - \frac{2 (n - 1)}{n} \left(\frac{1}{(n + 1)\, p} - 1\right) (x_{(2)} - x_{(1)}),
        \qquad (n + 1)\, p < 1

    A single draw is its own quantile at all levels.

    >>> quantiles_of_samples([0.0, 1.0, 2.0, 3.0], [0.2, 0.5, 0.8])
    array([0. , 1.5, 3. ])
    """
    x = np.sort(np.asarray(samples, np.float64), axis=0)
    if not len(x):
        raise ValueError("samples: expected at least one draw, got none")
    if not all(0 < level < 1 for level in quantiles):
        raise ValueError(f"quantiles: expected numbers between 0 and 1, got {list(quantiles)}")
    result: Floats = np.stack([_quantile(x, level) for level in quantiles])
    return result


def _quantile(x: Floats, level: float) -> Floats:
    """Return one quantile (...) of sorted draws (n, ...)."""
    n, position = len(x), (len(x) + 1) * level
    if n == 1:
        return x[0]
    outside = 2 * (n - 1) / n
    if position < 1:
        return x[0] - outside * (1 / position - 1) * (x[1] - x[0])
    if position > n:
        return x[-1] + outside * (1 / (n + 1 - position) - 1) * (x[-1] - x[-2])
    below = min(int(position), n - 1)
    start, place, stop = (math.log(k / (n + 1 - k)) for k in (below, position, below + 1))
    return x[below - 1] + (place - start) / (stop - start) * (x[below] - x[below - 1])


def coverage_of_samples(samples: ArrayLike, observed: ArrayLike, probability: float) -> float:
    """Compute the share of values inside the central interval of their draws, by ranks: exact for any number of draws.

    Given r of n draws below it, the value of a perfect forecast lies anywhere between the quantiles r/(n + 1) and
    (r + 1)/(n + 1). It counts by the share of these that is inside, so that the mean over all ranks is `probability`.

    Args:
        samples: (n, ...) draws.
        observed: (...) observed values; among equal draws, all ranks count alike.
        probability: of the central interval, in (0, 1).

    >>> [coverage_of_samples([0.0, 1.0, 2.0], value, 0.5) for value in (-1.0, 0.5, 1.5, 2.5)]
    [0.0, 1.0, 1.0, 0.0]
    """
    x, y = np.asarray(samples, np.float64), np.asarray(observed, np.float64)
    if x.ndim != y.ndim + 1 or x.shape[1:] != y.shape or not len(x):
        raise ValueError(f"samples: expected (n, ...) with ... = {y.shape}, got {x.shape}")
    if not 0 < probability < 1:
        raise ValueError(f"probability: expected a number between 0 and 1, got {probability}")
    first, last = (x < y).sum(0) / (len(x) + 1), ((x <= y).sum(0) + 1) / (len(x) + 1)
    low, high = (1 - probability) / 2, (1 + probability) / 2
    inside = np.minimum(last, high) - np.maximum(first, low)
    return float((inside.clip(0) / (last - first)).mean())


def _mean_distance(mean: Floats, scale: Floats) -> Floats:
    """Return E|X| of X ~ N(mean, scale²)."""
    z = mean / scale
    density = np.exp(-np.square(z) / 2) / math.sqrt(2 * math.pi)
    distance: Floats = 2 * scale * density + mean * _erf(z / math.sqrt(2))
    return distance


def _errors(forecast: ArrayLike, observed: ArrayLike) -> Floats:
    x, y = np.asarray(forecast, np.float64), np.asarray(observed, np.float64)
    if x.shape != y.shape:  # NumPy would broadcast silently
        raise ValueError(f"forecast: expected the shape of observed, {y.shape}, got {x.shape}")
    errors: Floats = x - y
    return errors


def _erf(x: Any) -> Floats:
    import torch

    values: Floats = torch.special.erf(torch.from_numpy(np.ascontiguousarray(x))).numpy()
    return values

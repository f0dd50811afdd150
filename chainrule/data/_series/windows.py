"""Windows of series in batches: the known past, and the values to forecast."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import torch

from chainrule._ranges import check_batch_size, check_seed
from chainrule.data._batches import Batch

Floats = npt.NDArray[np.float64]


def window_context(
    values: Floats, features: Floats, places: Sequence[tuple[int, int]], past: int, length: int
) -> dict[str, torch.Tensor]:
    """Known values at each origin of the next `length` rows; the arguments are those of `window_batch`.

    The rows themselves need not be there: their covariates do.
    """
    origins, series = np.array(places, dtype=np.int64).reshape(-1, 2).T
    before = origins[:, None] + np.arange(-past, 0)
    context = {"past": torch.from_numpy(values[before, series[:, None]])}
    if features.shape[1]:
        context["covariates"] = torch.from_numpy(features[origins[:, None] + np.arange(-past, length)]).float()
    if values.shape[1] > 1:
        context["series"] = torch.from_numpy(series.copy())
    return context


def window_batch(values: Floats, features: Floats, places: Sequence[tuple[int, int]], past: int, length: int) -> Batch:
    """The `length` rows from each origin on, given the `past` rows before it.

    Args:
        values: (T, S).
        features: (N, F) covariates, N >= T.
        places: origin and series of each row of the batch, past <= origin <= T - length.
        past: P rows before the origin.
        length: rows that are forecast.

    >>> batch = window_batch(np.arange(10.0).reshape(10, 1), np.zeros((10, 0)), [(4, 0)], past=3, length=2)
    >>> batch.x, batch.context
    (tensor([[4., 5.]], dtype=torch.float64), {'past': tensor([[1., 2., 3.]], dtype=torch.float64)})
    """
    origins, series = np.array(places, dtype=np.int64).reshape(-1, 2).T
    x = torch.from_numpy(values[origins[:, None] + np.arange(length), series[:, None]])
    return Batch(x, context=window_context(values, features, places, past, length), whole=True)


class SeriesWindows:
    """Windows of all series at places drawn for each step, as a pure function of (seed, step).

    An epoch is as many windows as there are different ones. There is no state to save: to resume is to ask for the next
    step.

    Args:
        values: (T, S) training values.
        features: (T, F) covariates.
        past: rows before each window that are known and not scored.
        length: rows of each window that are.
        batch_size: windows of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the windows rank, rank + processes, ... of a batch.

    Raises:
        ValueError: there are too few rows for a single window, or an argument is out of range.

    >>> windows = SeriesWindows(np.arange(100.0).reshape(50, 2), np.zeros((50, 0)), past=5, length=10, batch_size=4)
    >>> windows.steps_per_epoch, windows.at(0).x.shape
    (18, torch.Size([4, 10]))
    """

    def __init__(
        self,
        values: Floats,
        features: Floats,
        past: int,
        length: int,
        batch_size: int,
        seed: int = 0,
        shard: tuple[int, int] = (0, 1),
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.values, self.features, self.past, self.length, self.seed = values, features, past, length, seed
        self._origins = len(values) - past - length + 1
        if self._origins < 1:
            raise ValueError(
                f"values: expected at least {past + length} rows to train on, {past} known and {length} to forecast, "
                f"got {len(values)}: choose a smaller horizon, history or season"
            )
        self.batch_size, self._shard = batch_size, shard
        self.steps_per_epoch = max(self._origins * values.shape[1] // batch_size, 1)

    def at(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        rank, world = self._shard
        random = np.random.default_rng([self.seed, step])
        origins = self.past + random.integers(self._origins, size=self.batch_size)
        series = random.integers(self.values.shape[1], size=self.batch_size)
        places = list(zip(origins.tolist(), series.tolist(), strict=True))[rank::world]
        return window_batch(self.values, self.features, places, self.past, self.length)


def rolling_origins(first: int, rows: int, horizon: int, stride: int | None = None) -> list[int]:
    """Origins `stride` rows apart, a horizon where not given, as long as all of what is forecast is known.

    >>> rolling_origins(first=10, rows=24, horizon=4)
    [10, 14, 18]
    """
    return list(range(first, rows - horizon + 1, stride or horizon))


def window_evaluation(
    values: Floats, features: Floats, origins: Sequence[int], past: int, horizon: int, batch_size: int
) -> Iterator[Batch]:
    """The rows after each origin, series by series, in order; `past` is cut where the first has fewer rows before it.

    Args:
        values: (T, S).
        features: (N, F).
        origins: rows at which forecasts begin, each at least 1.
        past: rows before each origin that are known.
        horizon: rows that are forecast.
        batch_size: windows of a batch.
    """
    past = min(past, min(origins, default=past))
    places = [(origin, series) for origin in origins for series in range(values.shape[1])]
    for start in range(0, len(places), batch_size):
        yield window_batch(values, features, places[start : start + batch_size], past, horizon)

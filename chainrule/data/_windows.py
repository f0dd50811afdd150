"""Windows of series in batches: the known past, and the values to forecast."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from chainrule._ranges import check_batch_size, check_seed
from chainrule.data._batches import Batch

Floats = npt.NDArray[np.float64]
Spans = npt.NDArray[np.int64]


class SeriesWindows:
    """Windows of all series at places drawn for each step, as a pure function of (seed, step).

    The length of an epoch is the number of distinct windows. Every window lies inside the span of its series. There is
    no state to save: to resume, ask for the next step.

    Args:
        values: (T, S) training values; NaN where one is missing.
        features: (T, F) covariates, or (T, S, F).
        past: rows before each window that are known and not scored.
        length: rows of each window that are.
        batch_size: windows of a batch, over all processes.
        seed: at least 0.
        shard: (rank, number of processes): this one gets the windows rank, rank + processes, ... of a batch.
        spans: (S, 2) rows of each series, its first and the one after its last; all rows if not given.

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
        spans: Spans | None = None,
    ):
        check_batch_size(batch_size, shard)
        check_seed(seed)
        self.values, self.features, self.past, self.length, self.seed = values, features, past, length, seed
        if spans is None:
            spans = np.tile(np.array([[0, len(values)]]), (values.shape[1], 1))  # of every series all rows
        self._starts = spans[:, 0]
        lengths = np.minimum(spans[:, 1], len(values)) - self._starts
        counts = np.maximum(lengths - past - length + 1, 0)
        self._ends = counts.cumsum()  # of the windows of each series, numbered series by series
        if not self._ends[-1]:
            raise ValueError(
                f"values: expected at least {past + length} rows to train on, {past} known and {length} to forecast, "
                f"got {lengths.max()}: choose a smaller horizon, history or season"
            )
        self._alike = bool((spans == spans[0]).all())
        self.batch_size, self._shard = batch_size, shard
        self.steps_per_epoch = max(int(self._ends[-1]) // batch_size, 1)

    def at(self, step: int) -> Batch:
        """Return the batch of a step, counted from 0 over all epochs."""
        rank, world = self._shard
        random, size = np.random.default_rng([self.seed, step]), self.batch_size
        if self._alike:
            origins = self.past + self._starts[0] + random.integers(self._ends[0], size=size)
            series = random.integers(len(self._ends), size=size)
        else:
            windows = random.integers(self._ends[-1], size=size)
            series = np.searchsorted(self._ends, windows, side="right")
            origins = self._starts[series] + self.past + windows - np.append(0, self._ends)[series]
        places = list(zip(origins.tolist(), series.tolist(), strict=True))[rank::world]
        return self.batch(self.values, self.features, places, self.past, self.length)

    @staticmethod
    def context(
        values: Floats, features: Floats, places: Sequence[tuple[int, int]], past: int, length: int
    ) -> dict[str, torch.Tensor]:
        """Collect the known values at each origin, and covariates of the next `length` rows too; see `batch`."""
        origins, series = np.array(places, dtype=np.int64).reshape(-1, 2).T
        before = origins[:, None] + np.arange(-past, 0)
        context = {"past": torch.from_numpy(values[before, series[:, None]])}
        if features.shape[-1]:
            rows = origins[:, None] + np.arange(-past, length)
            own = features[rows] if features.ndim == 2 else features[rows, series[:, None]]
            context["covariates"] = torch.from_numpy(own).float()
        if values.shape[1] > 1:
            context["series"] = torch.from_numpy(series.copy())
        return context

    @staticmethod
    def batch(values: Floats, features: Floats, places: Sequence[tuple[int, int]], past: int, length: int) -> Batch:
        """Return `length` rows of `values` (T, S) from each place (origin, series), given the `past` rows before it.

        Covariates are (N, F) with N >= T, or (N, S, F). Origins satisfy past <= origin <= T - length.

        >>> batch = SeriesWindows.batch(np.arange(10.0).reshape(10, 1), np.zeros((10, 0)), [(4, 0)], past=3, length=2)
        >>> batch.x, batch.context
        (tensor([[4., 5.]], dtype=torch.float64), {'past': tensor([[1., 2., 3.]], dtype=torch.float64)})
        """
        origins, series = np.array(places, dtype=np.int64).reshape(-1, 2).T
        x = torch.from_numpy(values[origins[:, None] + np.arange(length), series[:, None]])
        return Batch(x, context=SeriesWindows.context(values, features, places, past, length), whole=True)

"""A file of series becomes windows: dates, covariates, scaling, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._series.frequency import Frequency
    from chainrule.data._series.prepare import PreparedSeries, SeriesSchema, future_dates, open_series, prepare_series
    from chainrule.data._series.series_file import SeriesFile, read_series
    from chainrule.data._series.windows import (
        SeriesWindows,
        by_past,
        places_of,
        rolling_origins,
        window_batch,
        window_context,
        window_evaluation,
    )

__all__ = [
    "Frequency",
    "PreparedSeries",
    "SeriesFile",
    "SeriesSchema",
    "SeriesWindows",
    "by_past",
    "future_dates",
    "open_series",
    "places_of",
    "prepare_series",
    "read_series",
    "rolling_origins",
    "window_batch",
    "window_context",
    "window_evaluation",
]

__getattr__, __dir__ = attach(__name__)

"""A file of series becomes windows: dates, covariates, scaling, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._series.frequency import clock as clock
    from chainrule.data._series.prepare import PreparedSeries as PreparedSeries
    from chainrule.data._series.prepare import SeriesSchema as SeriesSchema
    from chainrule.data._series.prepare import future_dates as future_dates
    from chainrule.data._series.prepare import open_series as open_series
    from chainrule.data._series.prepare import prepare_series as prepare_series
    from chainrule.data._series.series_file import SeriesFile as SeriesFile
    from chainrule.data._series.series_file import read_series as read_series
    from chainrule.data._series.windows import SeriesWindows as SeriesWindows
    from chainrule.data._series.windows import by_past as by_past
    from chainrule.data._series.windows import places_of as places_of
    from chainrule.data._series.windows import rolling_origins as rolling_origins
    from chainrule.data._series.windows import window_batch as window_batch
    from chainrule.data._series.windows import window_context as window_context
    from chainrule.data._series.windows import window_evaluation as window_evaluation

__getattr__, __dir__ = attach(__name__)

"""A file of series becomes windows: dates, covariates, scaling, batches."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.readers.series.frequency import clock as clock
    from chainrule_app.readers.series.frequency import without_gaps as without_gaps
    from chainrule_app.readers.series.prepare import PreparedSeries as PreparedSeries
    from chainrule_app.readers.series.prepare import open_series as open_series
    from chainrule_app.readers.series.prepare import prepare_series as prepare_series
    from chainrule_app.readers.series.schema import SeriesSchema as SeriesSchema
    from chainrule_app.readers.series.schema import future_dates as future_dates
    from chainrule_app.readers.series.series_file import SeriesFile as SeriesFile
    from chainrule_app.readers.series.series_file import read_series as read_series
    from chainrule_app.readers.series.windows import by_past as by_past
    from chainrule_app.readers.series.windows import places_of as places_of
    from chainrule_app.readers.series.windows import rolling_origins as rolling_origins
    from chainrule_app.readers.series.windows import window_evaluation as window_evaluation

__getattr__, __dir__ = attach(__name__)

"""Series that are forecast."""

from chainrule.tasks.forecast.task import ForecastTask

__all__ = ["ForecastTask"]

"""Linear autoregression averaged with the network of a run."""

from typing import TYPE_CHECKING

import torch

from chainrule._app.tasks.run_directory import WEIGHTS
from chainrule.models import CalibratedMixture, LinearForecaster

if TYPE_CHECKING:
    from chainrule._app.tasks.forecast.task import ForecastTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data._series import SeriesSchema

_CALIBRATED_ON = 1 << 16  # values
_MOST_LAGS, _ROWS_A_LAG = 100, 50  # the shape of the weights follows: other numbers are another format of runs


def with_linear(run: "ForecastTask", network: "AutoregressiveModel") -> "AutoregressiveModel":
    """Average a network with a linear autoregression of its training rows."""
    schema, options, rows = run.schema, run.config.options, run.facts.rows.train
    linear = LinearForecaster(
        schema.scalings,
        head=options.head,
        lags=lags_of(schema, rows),
        anchor=schema.anchor,
        num_covariates=schema.num_covariates,
    )
    if not (run.path / WEIGHTS).is_file():  # else its coefficients are among the weights
        series = run.series()
        linear.fit(torch.tensor(series.values[:rows]), torch.tensor(series.features[:rows]))
    return CalibratedMixture(network, linear, calibrated_on=_CALIBRATED_ON)


def lags_of(schema: "SeriesSchema", rows: int) -> list[int]:
    """Choose the lags of the linear model: the network's, and each of the last season, or two for many rows."""
    enough = rows >= _ROWS_A_LAG * 2 * schema.season
    near = min((2 if enough else 1) * schema.season + 1, _MOST_LAGS, max(schema.lags))
    return sorted({*schema.lags, *range(1, near + 1)})

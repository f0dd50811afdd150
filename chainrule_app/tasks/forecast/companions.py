"""The models beside the network, which are fitted to a file in moments: their lags, later rows, and new items."""

from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import torch

if TYPE_CHECKING:
    from chainrule_app.readers.series.schema import SeriesSchema
    from chainrule_app.readers.series.series_file import SeriesFile

_MOST_LAGS, _ROWS_A_LAG = 100, 50  # the shape of the weights follows: other numbers are another format of runs
_MOST_REFITTED = 2000  # values of a file


def lags_of(schema: "SeriesSchema") -> list[int]:
    """Choose the lags of the linear model: the network's, and each of the last season, or two for many rows."""
    if schema.season == 1:
        return schema.lags
    enough = schema.fitted_rows >= _ROWS_A_LAG * 2 * schema.season
    near = min((2 if enough else 1) * schema.season + 1, _MOST_LAGS, max(schema.lags))
    return sorted({*schema.lags, *range(1, near + 1)})


def take_new_items(model: Any, known: int, schema: "SeriesSchema", file: "SeriesFile", features: Any) -> None:
    """Let a model forecast items that come after those it knows, as items of their kind."""
    from chainrule.models import Forecaster, ForecastMixture

    new = schema.scalings[known:]
    if not new:
        return
    for part in [part for part in model.modules() if isinstance(part, Forecaster)]:
        part.add_series(new)
    if isinstance(model, ForecastMixture):
        for fitted in (model.linear, model.smoothing, model.walk):
            fitted.add_series(new)
        spans = [(0, 0)] * known + file.spans[known:].tolist()
        model.smoothing.fit(torch.tensor(file.values), torch.tensor(features[: len(file.values)]), spans)


def refit(model: Any, trained: int, file: "SeriesFile", features: Any) -> None:
    """Fit the models beside a network again to a file, if it is short and as long as the training rows at least.

    Rows that were held out, and later ones, tell much about a short series.
    """
    from chainrule.models import ForecastMixture

    rows = len(file.values)
    if isinstance(model, ForecastMixture) and trained <= rows and file.values.size <= _MOST_REFITTED:
        weights = model.weights.clone()
        model.fit(torch.tensor(file.values), torch.tensor(features[:rows]), file.spans.tolist())
        model.weights.copy_(weights)

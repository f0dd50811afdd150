"""Forecasts in the long form of statsforecast."""

import numpy as np
import pytest

import chainrule
from chainrule_app.statsforecast import forecast

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")

QUICK = {"steps": 2, "hidden_size": 4, "threads": 1, "precision": "float32"}
LONG = polars.DataFrame(
    {
        "ds": [day for day in range(10, 50) for _ in "ab"],
        "y": [float(day % 7) for day in range(40) for _ in "ab"],
        "unique_id": ["b", "a"] * 40,
    }
)


def test_days_are_forecast_as_by_fit():
    days = pandas.date_range("2024-01-01", periods=60)
    frame = pandas.DataFrame({"unique_id": "a", "ds": days, "y": np.sin(np.arange(60.0))})
    ahead = forecast(frame[::-1], 2, [80], seed=3, **QUICK)
    run = chainrule.fit(frame, task="forecast", item="unique_id", date="ds", target="y", horizon=2, seed=3, **QUICK)
    own = run.forecast(quantiles="0.1,0.9", paths=500, seed=3)
    assert list(ahead["ds"]) == list(pandas.date_range("2024-03-01", periods=2))
    assert ahead["ds"].dtype == frame["ds"].dtype
    for name, column in (("chainrule", "mean"), ("chainrule-lo-80", "q0.1"), ("chainrule-hi-80", "q0.9")):
        assert list(ahead[name]) == own[column]


@pytest.mark.parametrize("kind", ["lazy", "to_arrow", "to_pandas"])
def test_whole_numbers_go_on_where_each_series_ends(kind):
    ahead = forecast(getattr(LONG[:-1], kind)(), h=2, level=(95, 50), **QUICK)  # the last row of `a` is missing
    answer = polars.DataFrame(ahead)
    assert answer.columns[2:] == [
        "chainrule",
        *(f"chainrule-{side}-{level}" for level in (50, 95) for side in ("lo", "hi")),
    ]
    assert answer.select("unique_id", "ds").rows() == [("a", 49), ("a", 50), ("b", 50), ("b", 51)]
    for low, high in ((95, 50), (50, 50)):
        assert (answer[f"chainrule-lo-{low}"] <= answer[f"chainrule-hi-{high}"]).all()
    assert type(ahead) is type(getattr(LONG, "clone" if kind == "lazy" else kind)())


@pytest.mark.parametrize(
    ("df", "level", "message"),
    [
        (LONG.drop("ds"), (80,), "df: expected the columns unique_id, ds and y, got y, unique_id: rename them"),
        (LONG.with_columns(x=1), (80,), "df: expected unique_id, ds and y alone, got 'x' too"),
        (LONG, (0.8, 100), "level: expected percentages between 0 and 100"),
        (LONG["y"], (80,), "df: expected a frame with the columns unique_id, ds and y, got Series"),
    ],
)
def test_other_frames_and_levels_are_refused(df, level, message):
    with pytest.raises(ValueError, match=message):
        forecast(df, 2, level)

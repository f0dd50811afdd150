"""Forecast a pandas series: python examples/fit_series.py"""

import pandas

import chainrule

load = pandas.Series([hour % 24 + hour % 7 for hour in range(800)], pandas.date_range("2026", periods=800, freq="h"))
print(chainrule.fit(load, horizon=24, budget="30s").forecast().to_pandas())

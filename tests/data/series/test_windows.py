"""Windows: what is known, what is forecast, and that a step says all."""

import numpy as np
import pytest
import torch

from chainrule.data import SeriesWindows
from chainrule.data._series import places_of, rolling_origins, window_evaluation
from chainrule.data._series.windows import whole_spans

VALUES = np.stack([np.arange(60.0), 100 + np.arange(60.0)], 1)
FEATURES = np.stack([np.arange(60.0), -np.arange(60.0)], 1)


def windows(**options):
    return SeriesWindows(VALUES, FEATURES, **({"past": 5, "length": 8, "batch_size": 6} | options))


def test_what_is_forecast_follows_what_is_known_and_covariates_stand_beside_both():
    batch = windows().at(3)
    whole = torch.cat([batch.context["past"], batch.x], 1)
    assert torch.equal(whole.diff(dim=1), torch.ones(6, 12, dtype=torch.float64))
    rows = whole - 100 * batch.context["series"].unsqueeze(1)
    torch.testing.assert_close(batch.context["covariates"], torch.stack([rows, -rows], 2).float())


def test_every_row_is_forecast_and_the_first_is_only_known():
    seen = {value for step in range(200) for value in windows().at(step).x.flatten().tolist()}
    assert seen == {*np.arange(5.0, 60.0), *(100 + np.arange(5.0, 60.0))}


def all_places(origins):
    return places_of(whole_spans(VALUES), origins, horizon=8)


def test_held_out_rows_are_each_forecast_once_from_what_stands_before():
    origins = rolling_origins(40, 60, 8)
    batches = list(window_evaluation(VALUES, FEATURES[:, :0], all_places(origins), past=12, horizon=8, batch_size=3))
    x = torch.cat([batch.x for batch in batches])
    assert origins == [40, 48]
    assert x[::2].flatten().tolist() == list(np.arange(40.0, 56.0))
    assert "covariates" not in batches[0].context
    assert all(batch.context["past"].shape[1] == 12 and batch.whole for batch in batches)
    (short,) = window_evaluation(VALUES, FEATURES, all_places([3, 40]), past=12, horizon=8, batch_size=9)
    assert short.context["past"].shape == (4, 3)


def test_one_series_needs_no_number():
    assert "series" not in SeriesWindows(VALUES[:, :1], FEATURES, 5, 8, 2).at(0).context


def test_too_few_rows_are_named():
    with pytest.raises(ValueError, match="at least 61 rows to train on, 53 known and 8 to forecast, got 60"):
        windows(past=53)

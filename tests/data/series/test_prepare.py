"""Series prepared for training: units from training rows alone, held-out rows last, files that come back."""

import json
from datetime import datetime

import numpy as np
import pytest

from chainrule_app.readers.series.frequency import CYCLES, Frequency, calendar_names
from chainrule_app.readers.series.prepare import open_series, prepare_series
from chainrule_app.readers.series.schema import SeriesSchema

ROWS = "".join(f"2024-01-{1 + n // 24:02} {n % 24:02}:00,{np.sin(n / 3.8):.3f},{n % 7}\n" for n in range(400))


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "series.csv"
    path.write_text("date,heat,wind\n" + ROWS)
    return path


def prepared(path, **options):
    options = {"target": "heat", "horizon": 12} | options
    return prepare_series(path, path.parent / "data", **options)


def test_the_last_rows_are_held_out_and_everything_comes_back(path):
    series = prepared(path, covariates="wind")
    again = open_series(path.parent / "data")
    assert (series.train_rows, series.facts["rows"]) == (360, {"train": 360, "valid": 40})
    assert again.schema == series.schema
    np.testing.assert_array_equal(again.values[:, 0], [float(line.split(",")[1]) for line in ROWS.split("\n")[:-1]])
    assert series.features.shape == (400, 13)  # the wind, and three sines and cosines of two cycles
    assert (series.facts["step"], series.schema.season, series.schema.lags) == (
        "every hour",
        24,
        [1, 2, 3, 24, 25, 168],
    )


def test_units_are_those_of_training_rows_alone(path):
    before = prepared(path, covariates="wind").schema
    lines = path.read_text().splitlines()
    changed = [line if n <= 360 else ",".join([line.split(",")[0], "1e6", "99"]) for n, line in enumerate(lines)]
    path.write_text("\n".join(changed))
    assert prepared(path, covariates="wind").schema == before


def test_the_anchor_says_what_a_unit_is(path):
    values = prepared(path).values[:360, 0]
    scales = {name: prepared(path, anchor=name).schema.scalings[0].scale for name in ("last", "season", "centre")}
    assert scales["last"] == pytest.approx(np.sqrt(np.mean(np.diff(values) ** 2)))
    assert scales["season"] == pytest.approx(np.sqrt(np.mean((values[24:] - values[:-24]) ** 2)))
    assert scales["centre"] == pytest.approx(values.std())


def test_covariates_of_the_future_must_be_there_and_dates_go_on(path):
    with path.open("a") as file:
        file.write("2024-01-17 16:00,,3\n2024-01-17 17:00,,4\n")
    schema = prepared(path, covariates="wind").schema
    file = schema.open(path)
    assert schema.features(file, 2).shape == (402, 13)
    with pytest.raises(ValueError, match=r"expected 3 rows after the last value with wind filled in .* got 2"):
        schema.features(file, 3)
    plain = prepared(path).schema
    assert plain.features(plain.open(path), 48).shape == (448, 12)


def test_another_step_between_rows_is_named(path, tmp_path):
    schema = prepared(path).schema
    other = tmp_path / "other.csv"
    other.write_text("date,heat\n2024-01-01,1\n2024-01-02,2\n")
    with pytest.raises(ValueError, match="expected rows every hour, as in training, got rows every day"):
        schema.open(other)


def test_a_week_of_a_series_of_business_days_is_read(tmp_path):
    def weekdays(name, start, count):
        dates = np.busday_offset(start, np.arange(count), roll="forward")
        (tmp_path / name).write_text("date,heat\n" + "".join(f"{date},{n % 9}\n" for n, date in enumerate(dates)))
        return tmp_path / name

    schema = prepared(weekdays("year.csv", "2024-01-01", 250)).schema
    assert str(schema.frequency) == "every business day"
    week = schema.open(weekdays("week.csv", "2025-01-06", 5))  # might be all days as well
    assert week.frequency == schema.frequency


def test_dates_with_zones_are_read_by_the_clock_of_training(tmp_path):
    def hours(name, zone):
        rows = [f"2024-06-{1 + n // 24:02}T{n % 24:02}:00{zone},{n * 7919 % 101}\n" for n in range(240)]
        (tmp_path / name).write_text("date,heat\n" + "".join(rows))
        return tmp_path / name

    schema = prepared(hours("a.csv", "+02:00"), target="heat").schema
    assert schema.utc_offset == 7200
    assert schema.open(hours("b.csv", "+05:00")).dates[3] == datetime(2024, 6, 1)
    with pytest.raises(ValueError, match=r"c.csv: expected dates with a zone, as \+02:00 or Z, as in training"):
        schema.open(hours("c.csv", ""))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 200}, "at least 600 rows for a horizon of 200"),
        ({"anchor": "season", "date": "none", "target": "heat"}, "anchor: expected series with a season"),
    ],
)
def test_what_cannot_be_is_named(path, options, message):
    with pytest.raises(ValueError, match=message):
        prepared(path, **options)


def test_a_series_that_never_changes_is_named(tmp_path):
    path = tmp_path / "flat.csv"
    path.write_text("v,w\n" + "3,1\n3,2\n" * 50)
    with pytest.raises(ValueError, match=r"column 'v': values: expected finite numbers that change, .*: leave it out"):
        prepared(path, target="v")


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"utc_offset": 86_400},
        {"season": 0},
        {"scalings": []},
        {"frequency": {"unit": "years", "count": 1}},
        {"more": 1},
        {"centres": [1.0]},
        {"static_values": [[1.0]]},
        {"targets": None},
        {"calendar": ["moon"]},
        {"trained_until": None},
        {"trained_until": "yesterday"},
        {"trained_until": "2024-01-15T23:00:00+02:00"},
    ],
)
def test_a_damaged_schema_is_named(path, change):
    prepared(path)
    place = path.parent / "data" / "schema.json"
    place.write_text(json.dumps(json.loads(place.read_text()) | change))
    with pytest.raises(ValueError, match=r"schema.json: .*damaged"):
        SeriesSchema.load(place)


def test_a_schema_of_two_years_of_hours_has_every_cycle(path):
    prepared(path)
    place = path.parent / "data" / "schema.json"
    cycles = calendar_names(Frequency("seconds", 3600), [datetime(2022, 1, 1), datetime(2024, 2, 1)])
    assert cycles == list(CYCLES)
    place.write_text(json.dumps(json.loads(place.read_text()) | {"calendar": cycles}))
    assert list(SeriesSchema.load(place).calendar) == cycles


def test_paths_of_counts_are_never_below_zero(tmp_path):
    lines = ["date,sold,heat"] + [f"2024-01-{day:02},{day % 3},{day % 3 - 0.5}" for day in range(1, 31)]
    (tmp_path / "x.csv").write_text("\n".join(lines) + "\n")
    schema = prepare_series(tmp_path / "x.csv", tmp_path / "data", target="sold,heat", horizon=3).schema
    assert schema.counts == (True, False)
    paths = np.full((2, 2, 3), -1.0)
    assert schema.possible(paths, [(30, 0), (30, 1)])[:, :, 0].tolist() == [[0.0, -1.0]] * 2

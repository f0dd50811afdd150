"""Files of series: what is read, and that each thing wrong is one line that names file and line."""

import gzip
from datetime import datetime, timedelta

import numpy as np
import polars
import pytest
import torch

from chainrule.data import SeriesWindows
from chainrule_app.readers.series.frequency import Frequency
from chainrule_app.readers.series.schema import SeriesSchema
from chainrule_app.readers.series.series_file import read_series
from chainrule_app.readers.series.windows import places_of, rolling_origins, whole_spans, window_evaluation

DAYS = "date,heat,wind\n" + "".join(f"2024-01-{day:02},{day},{day % 3}\n" for day in range(1, 15))


def written(tmp_path, text, name="series.csv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def test_columns_are_found_by_name_and_dates_by_their_look(tmp_path):
    file = read_series(written(tmp_path, DAYS), "heat", covariates="wind")
    assert (file.date, str(file.frequency), file.future) == ("date", "every day", 0)
    np.testing.assert_array_equal(file.values[:, 0], np.arange(1, 15))
    np.testing.assert_array_equal(file.known[:4, 0], [1, 2, 0, 1])


def test_rows_without_a_header_or_dates_are_counted(tmp_path):
    path = written(tmp_path, "0.5,1\n0.6,2\n0.7,3\n", "rates.txt.gz")
    file = read_series(path, "all")
    assert file.targets == ("column1", "column2")
    assert (file.date, file.frequency, file.dates) == (None, None, [])
    assert file.values.tolist() == [[0.5, 1], [0.6, 2], [0.7, 3]]


@pytest.mark.parametrize("header", ["date,101,102", ",101,102"])
def test_names_may_be_numbers_where_there_are_dates(tmp_path, header):
    file = read_series(written(tmp_path, f"{header}\n2024-01-01,1,2\n2024-01-02,3,4\n"), "101,102")
    assert (file.targets, file.values.tolist()) == (("101", "102"), [[1, 2], [3, 4]])
    without = read_series(written(tmp_path, "2024-01-01,1,2\n2024-01-02,3,4\n"), "column3")
    assert without.values[:, 0].tolist() == [2, 4]


def test_whether_the_first_row_is_a_header_can_be_said(tmp_path):
    path = written(tmp_path, "7,101\n1,2\n3,4\n5,7\n")
    assert read_series(path, "column2").values[:, 0].tolist() == [101, 2, 4, 7]
    assert read_series(path, "101", header=True).values[:, 0].tolist() == [2, 4, 7]
    with pytest.raises(ValueError, match=r"no column '101' .*: pass header=\"yes\" if the first row names them"):
        read_series(path, "101")
    schema = SeriesSchema.fit(read_series(path, "101", header=True), 3, 1, 1)
    assert schema.open(path).values[:, 0].tolist() == [2, 4, 7]
    words = written(tmp_path, "low,high\n1,2\n3,4\n")
    with pytest.raises(ValueError, match=r"line 1, column 'column2': expected a finite number, got 'high'"):
        read_series(words, "column2", header=False)


@pytest.mark.parametrize("first", ["2024-13-01,5.5", "01/01/2024,5", ",5.5", "NA,5.5", "2024-01-01T25:00,5"])
def test_a_first_row_whose_date_is_missing_or_misspelled_is_no_header(tmp_path, first):
    """It was dropped without a word, and its value became the name of the series."""
    path = written(tmp_path, f"{first}\n2024-01-02,6\n2024-01-03,7\n")
    with pytest.raises(ValueError, match=r"line 1, column 'column1': expected a date"):
        read_series(path, "column2", "", "column1")


def hours(notation):
    """A column of some name with the hours of two days, and two columns of numbers."""
    moments = [datetime(2026, 1, 5 + hour // 24, hour % 24) for hour in range(48)]
    return "".join(f"{notation(moment)};{number}.5;1\n" for number, moment in enumerate(moments))


def test_dates_with_dots_are_read_whatever_their_column_is_called(tmp_path):
    """They were passed over without a word, and rows without dates have no season."""
    file = read_series(written(tmp_path, "Zeit;Wert;n\n" + hours(lambda date: f"{date:%d.%m.%Y %H:%M}")), "Wert")
    assert (file.date, str(file.frequency), file.dates[1]) == ("Zeit", "every hour", datetime(2026, 1, 5, 1))


@pytest.mark.parametrize(("zone", "seconds"), [(" UTC", 0), (" +0130", 5400), ("Z", 0)])
def test_a_zone_may_stand_apart(tmp_path, zone, seconds):
    file = read_series(written(tmp_path, "when;Wert;n\n" + hours(lambda date: f"{date:%Y-%m-%d %H:%M}{zone}")), "Wert")
    assert (file.utc_offset, file.dates[1]) == (seconds, datetime(2026, 1, 5, 1))


@pytest.mark.parametrize(
    ("name", "notation"),
    [
        ("Date/Time", lambda date: f"{date:%m/%d/%Y %I:%M %p}"),
        ("Zeit", lambda date: f"{date:%d.%m.%y %H:%M}"),
        ("when", lambda date: f"{date:%d %b %Y %H:%M}"),
        ("when", lambda date: f"{date:%Y-%m-%d %H:%M} CET"),
        ("timestamp", lambda date: f"{date.timestamp():.0f}"),
        ("Time", lambda date: f"{date:%Y%m%d%H}"),
    ],
)
def test_dates_in_other_notations_are_refused_and_never_passed_over(tmp_path, name, notation):
    rows = hours(notation)
    path, first = written(tmp_path, f"{name};Wert;n\n{rows}"), rows.partition(";")[0]
    refused = rf"line 2, column '{name}': expected a date as 2024-01-31 .* got '{first}'"
    expected = f'{refused}: rewrite it, or train with date="none"'
    for target, covariates in (("Wert", ""), ("all", ""), (None, "n")):
        with pytest.raises(ValueError, match=expected):
            read_series(path, target, covariates)
    with pytest.raises(ValueError, match=r"target: .* name one of Wert, n, or pass all"):
        read_series(path, None)
    assert read_series(path, "Wert", date="none").date is None


def test_columns_of_dates_are_no_series(tmp_path):
    path = written(tmp_path, DAYS.replace("wind", "until").replace(",1\n", ",01/02/2024\n"))
    for date in ("auto", "none"):
        assert read_series(path, None, date=date).targets == ("heat",)


def test_numbers_are_no_dates_where_they_are_forecast_or_known_in_advance(tmp_path):
    path = written(tmp_path, "month,sold\n" + "".join(f"{1 + n % 12},{n}\n" for n in range(24)))
    assert read_series(path, "sold", covariates="month").date is None
    assert read_series(path, "month", covariates="sold").date is None


def test_the_only_series_needs_no_name(tmp_path):
    assert read_series(written(tmp_path, "month,sold\n2024-01,1\n2024-02,2\n"), None).targets == ("sold",)
    assert read_series(written(tmp_path, "time\n1\n2\n"), None).targets == ("time",)


def test_rows_with_empty_targets_at_the_end_are_the_future(tmp_path):
    file = read_series(written(tmp_path, DAYS + "2024-01-15,,5\n2024-01-16,NA,6\n"), "heat", covariates="wind")
    assert file.future == 2
    assert len(file.values) == 14
    assert file.known[-2:, 0].tolist() == [5, 6]


def test_zones_are_brought_to_one(tmp_path):
    path = written(
        tmp_path, "time,v\n2024-03-31T00:00:00+01:00,1\n2024-03-31T01:00:00+01:00,2\n2024-03-31T03:00:00+02:00,3\n"
    )
    file = read_series(path, "v")
    assert str(file.frequency) == "every hour"
    assert file.dates == [datetime(2024, 3, 31, hour) for hour in range(3)]
    assert [file.date_text(date)[-14:] for date in file.dates[::2]] == ["00:00:00+01:00", "02:00:00+01:00"]


def test_a_zone_that_all_dates_share_is_kept(tmp_path):
    path = written(tmp_path, "time,v\n2024-03-31T00:00+02:00,1\n2024-03-31T01:00+02:00,2\n")
    file = read_series(path, "v")
    assert file.dates[0] == datetime(2024, 3, 31)
    assert file.date_text(file.dates[0]) == "2024-03-31 00:00:00+02:00"
    assert read_series(path, "v", utc_offset=0).dates[0] == datetime(2024, 3, 30, 22)


def test_days_are_those_of_their_own_zone_where_daylight_saving_changes_it(tmp_path):
    path = written(tmp_path, "time,v\n2024-03-30T00:00+01:00,1\n2024-03-31T00:00+01:00,2\n2024-04-01T00:00+02:00,3\n")
    file = read_series(path, "v")
    assert str(file.frequency) == "every day"
    assert [file.date_text(date) for date in file.dates] == ["2024-03-30", "2024-03-31", "2024-04-01"]


@pytest.mark.parametrize("dates", [("0850-01", "0850-02"), ("0850-01-31", "0850-02-01")])
def test_years_have_four_digits(tmp_path, dates):
    file = read_series(written(tmp_path, "time,v\n" + "".join(f"{date},1\n" for date in dates)), "v")
    assert [file.date_text(date) for date in file.dates] == list(dates)


def test_missing_rows_and_cells_are_missing_values_and_covariates_repeat_the_one_before(tmp_path):
    rows = ["date,heat,wind,sun", "2024-02-27,1,0,3", "2024-02-28,2,2,", "2024-03-01,8,8,6", "2024-03-02,,9,NA"]
    path = written(tmp_path, "".join(f"{row}\n" for row in [*rows, "2024-03-03,,11,"]))
    file = read_series(path, "heat,sun", covariates="wind")
    assert str(file.frequency) == "every day"
    assert [date.day for date in file.dates] == [27, 28, 29, 1, 2, 3]
    nan = np.nan
    np.testing.assert_array_equal(file.values, [[1, 3], [2, nan], [nan, nan], [8, 6]])
    np.testing.assert_array_equal(file.known[:, 0], [0, 2, 2, 8, 9, 11])
    assert (file.future, file.repeated) == (2, 1)


@pytest.mark.parametrize(
    ("dates", "step", "missing"),
    [
        (["2024-01-31", "2024-02-29", "2024-04-30", "2024-05-31", "2024-06-30"], "every month end", 2),
        (["2024-01", "2024-02", "2024-04", "2024-05", "2024-06"], "every month", 2),
        (["2024-01-04", "2024-01-05", "2024-01-08", "2024-01-09", "2024-01-11"], "every business day", 4),
    ],
)
def test_a_missing_row_is_found_whatever_the_step(tmp_path, dates, step, missing):
    text = "date,v\n" + "".join(f"{date},{number}\n" for number, date in enumerate(dates))
    file = read_series(written(tmp_path, text), "v")
    assert (str(file.frequency), len(file.dates)) == (step, 6)
    assert np.flatnonzero(np.isnan(file.values[:, 0])).tolist() == [missing]


def test_gaps_are_of_the_step_that_is_known(tmp_path):
    path = written(tmp_path, "date,v\n2025-01-01,1\n2025-01-03,3\n2025-01-04,4\n2025-01-06,6\n")
    with pytest.raises(ValueError, match="is not a whole number of steps after"):
        read_series(path, "v")
    file = read_series(path, "v", frequency=Frequency("seconds", 86_400))
    np.testing.assert_array_equal(file.values[:, 0], [1, np.nan, 3, 4, np.nan, 6])


def test_no_row_depends_on_a_later_one_where_there_are_gaps(tmp_path):
    """Gaps were interpolated over the whole file: the past of each origin, and the training values, knew the future."""
    random = np.random.default_rng(0)
    rows = [[f"2024-{1 + day // 28:02}-{1 + day % 28:02}", *np.round(random.normal(size=2), 2)] for day in range(112)]
    for row in rows[1:-1]:
        row[1:] = [value if random.random() > 0.4 else "" for value in row[1:]]
    kept = [row for row in rows if row is rows[0] or random.random() > 0.2]
    text = "date,heat,wind\n" + "".join(",".join(map(str, row)) + "\n" for row in kept)
    whole = read_series(written(tmp_path, text), "heat", covariates="wind", date="none")
    for count in (2, 30, 60, len(kept) - 1):
        if "" in kept[count - 1]:
            continue
        beginning = "".join(f"{line}\n" for line in text.splitlines()[: count + 1])
        part = read_series(written(tmp_path, beginning), "heat", covariates="wind", date="none")
        np.testing.assert_array_equal(part.values, whole.values[:count])
        np.testing.assert_array_equal(part.known, whole.known[:count])


@pytest.mark.parametrize("words", [("True", "False"), ("true", "false"), ("TRUE", "FALSE"), ("1", "0")])
def test_covariates_may_be_true_and_false(tmp_path, words):
    text = "".join(f"2024-01-{day:02},{day},{words[day % 2]}\n" for day in range(1, 15))
    path = written(tmp_path, f"date,heat,open\n{text}")
    assert read_series(path, "heat", covariates="open").known[:, 0].tolist() == [day % 2 == 0 for day in range(1, 15)]
    if words[0] != "1":
        with pytest.raises(ValueError, match=f"line 2, column 'open': expected a finite number, got '{words[1]}'"):
            read_series(path, "open")


def test_digits_finer_than_a_microsecond_are_refused(tmp_path):
    """They were cut off, and the rows were irregular or came twice."""
    text = "time,v\n" + "".join(f"2024-01-01 00:00:00.{number * 1500:09},{number}\n" for number in range(9))
    said = r"line 3, column 'time': expected at most six digits of a second, got '.*000001500'"
    with pytest.raises(ValueError, match=said):
        read_series(written(tmp_path, text), "v")


def test_halves_of_a_second_are_written_as_they_are_read(tmp_path):
    moments = [f"2024-01-01 00:00:{number / 2:04.1f}" for number in range(20)]
    file = read_series(written(tmp_path, "time,v\n" + "".join(f"{moment},1\n" for moment in moments)), "v")
    assert str(file.frequency) == "every 500 milliseconds"
    assert file.date_text(file.frequency.after(file.dates[-1])) == "2024-01-01 00:00:10"
    assert file.date_text(file.dates[1]) == "2024-01-01 00:00:00.500000"


def test_the_finest_step_is_that_of_values_that_were_written_down(tmp_path):
    whole = "date,v\n" + "".join(f"2024-01-{day:02},{day * day % 7 + 20 * (day % 3)}\n" for day in range(1, 29))
    gaps = "".join(line for line in whole.splitlines(keepends=True) if line[8:10] not in ("05", "06", "12"))
    found = []
    for text in (whole, gaps):
        file = read_series(written(tmp_path, text), "v")
        scaling = SeriesSchema.fit(file, 28, 7, 1).scalings[0]
        found.append(scaling.finest * scaling.scale)
    assert found == pytest.approx([0.5, 0.5])


def test_past_covariates_are_read_a_horizon_late_so_that_all_that_is_forecast_knows_them(tmp_path):
    """Of the rows to come they may be empty, and no row reads what comes after the origin."""
    path = written(tmp_path, DAYS + "2024-01-15,,\n2024-01-16,,\n")
    file = read_series(path, "heat", past_covariates="wind")
    assert (file.covariates, file.future, file.repeated) == (("wind",), 2, 0)
    schema = SeriesSchema.fit(file, 14, 7, 1, past=1, delay=3)
    wind = np.array([day % 3 for day in range(1, 15)])
    late = (np.concatenate([wind[:1].repeat(3), wind]) - schema.centres[0]) / schema.spreads[0]
    np.testing.assert_allclose(schema.features(file, 3)[:17, 0], late)
    with pytest.raises(ValueError, match="horizon: expected at most 3, the rows by which wind is delayed"):
        schema.features(file, 4)
    with pytest.raises(ValueError, match="'wind' is among the covariates too"):
        read_series(path, "heat", covariates="wind", past_covariates="wind")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            DAYS.replace("2024-01-05", "2024-01-05 12:00"),
            "line 6: .* is not a whole number of steps",
        ),
        (DAYS + "2024-02-20,1,1\n", "line 16: rows are every day, but more dates are missing than present"),
        (DAYS + "2024-01-15,15,\n", "'wind': the last value is missing"),
        (DAYS.replace("2024-01-01,1,1", "2024-01-01,1,"), "'wind': the first value is missing"),
        ("date,heat,wind\n2024-01-01,1,\n2024-01-02,2,\n", "column 'wind': expected values, got only empty cells"),
        (DAYS.replace("2024-01-05,5", "2024-01-05,warm"), "line 6, column 'heat': .*got 'warm'"),
        (DAYS.replace("2024-01-05,5", "2024-01-05,inf"), "line 6, column 'heat': expected a finite number"),
    ],
)
def test_what_cannot_be_a_gap_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_series(written(tmp_path, text), "heat", covariates="wind")


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (DAYS.replace("2024-01-05,", "2024-01-04,"), "heat", "line 6: the date 2024-01-04 00:00:00 comes twice"),
        (DAYS.replace("2024-01-05,", "2023-01-05,"), "heat", "line 6: 2023-01-05 00:00:00 comes after 2024-01-04"),
        (DAYS.replace("2024-01-05,5", "2024-01-05,inf"), "heat", "line 6, column 'heat': expected a finite number"),
        (DAYS.replace("2024-01-05,5", "2024-01-05,warm"), "heat", "line 6, column 'heat': .*got 'warm'"),
        (DAYS.replace("2024-01-05,5,2", "2024-01-05,5"), "heat", "line 6: expected 3 cells, got 2"),
        (DAYS.replace("2024-01-05", "05/01/2024"), "heat", "line 6, column 'date': expected a date"),
        (DAYS, "cold", "target: .*series.csv has no column 'cold' .columns: date, heat, wind"),
        (DAYS, None, "target: .*several columns: name one of heat, wind"),
        (DAYS, "heat,heat", "target: 'heat' is named twice"),
        (DAYS, "date", "target: 'date' is the column of dates"),
        ("date,heat\n", "heat", "expected rows under the header"),
        ("date,heat\n2024-01-01,\n2024-01-02,\n", "heat", "expected values in heat"),
        ("date,heat\n2024-01-01,1\n", "heat", "at least two rows"),
        (DAYS.replace("date", "when").replace("2024-01-01", ""), "heat", "line 2, column 'when': expected a date"),
        ("time,v\n2024-03-31T00:00Z,1\n2024-03-31T01:00,2\n", "v", "line 3, .*with a zone, .* got '2024-03-31T01:00'"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, text, target, message):
    with pytest.raises(ValueError, match=message):
        read_series(written(tmp_path, text), target)


def test_a_missing_covariate_of_the_future_is_named(tmp_path):
    with pytest.raises(ValueError, match="column 'wind': the last value is missing"):
        read_series(written(tmp_path, DAYS + "2024-01-15,,\n"), "heat", covariates="wind")


def test_a_gap_may_be_ignored_by_counting_rows(tmp_path):
    path = written(tmp_path, DAYS.replace("2024-01-05,5,2\n", ""))
    assert len(read_series(path, "heat", date="none").values) == 13


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


@pytest.mark.parametrize("pattern", ["%d/%m/%Y", "%m/%d/%Y %H:%M", "%d-%m-%Y %H:%M:%S"])
def test_the_order_of_day_and_month_is_that_of_all_dates(tmp_path, pattern):
    """It had to be named, although tables found it."""
    first = datetime(2024, 1, 1)
    dates = [first + timedelta(days=number) for number in range(40)]
    path = tmp_path / "rows.csv"
    path.write_text("day,n\n" + "".join(f"{date.strftime(pattern)},{date.day}\n" for date in dates))
    file = read_series(path, "n")
    assert (file.dates, str(file.frequency), file.date_format) == (dates, "every day", pattern)
    assert file.date_text(dates[30]) == dates[30].strftime(pattern)
    path.write_text("day,n\n" + "".join(f"{date.strftime(pattern)},{date.day}\n" for date in dates[:12]))
    with pytest.raises(ValueError, match="expected a date as 2024-01-31 or 2024-01-31 13:00, got '01"):
        read_series(path, "n")


def test_dates_of_items_that_repeat_are_read_once(tmp_path, monkeypatch):
    """Few different cells of a long column are codes."""
    monkeypatch.setattr("chainrule_app.readers.csv_records.STRETCH", 9000)
    monkeypatch.setattr("chainrule_app.readers.delimited._BEGINNING", 9000)
    monkeypatch.setattr("chainrule_app.readers.tables.csv_blocks._FEWEST_ROWS", 100)
    monkeypatch.setattr("chainrule_app.readers.series.series_file._date", None)
    dates = [datetime(2024, 1, 1) + timedelta(days=number) for number in range(50)]
    rows = [f"{date.date()},{item},{date.day + len(item)}" for date in dates for item in ("a", "bb", "ccc") * 8]
    rows = [f"{row.partition(',')[0]},{place % 24}{row[10:]}" for place, row in enumerate(rows)]
    path = tmp_path / "rows.csv"
    path.write_text("day,item,name,n\n" + "\n".join(rows) + "\n")
    file = read_series(path, "n", date="day", item="item", static="name")
    assert (file.dates, len(file.targets)) == (dates, 24)
    assert file.values[:, 1].tolist() == [date.day + 2 for date in dates]
    assert file.statics[:3] == (("a",), ("bb",), ("ccc",))


def test_typed_moments_are_dates_and_no_values(tmp_path):
    dates = [datetime(2024, 1, 1) + timedelta(hours=number) for number in range(30)]
    frame = polars.DataFrame({"at": dates, "n": range(30), "also": dates})
    frame.write_parquet(tmp_path / "rows.parquet")
    file = read_series(tmp_path / "rows.parquet", "n")
    assert (file.date, file.dates, file.values[:, 0].tolist()) == ("at", dates, list(range(30)))
    with pytest.raises(ValueError, match="line 1, column 'also': expected a finite number, got '2024-01-01 00:00:00'"):
        read_series(tmp_path / "rows.parquet", "also", date="at")

"""Columns of dates are integers that come back as the dates that they were."""

from datetime import datetime, timedelta

import numpy as np
import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.held_out import OneInEvery
from chainrule_app.readers.tables.columns import CellColumn
from chainrule_app.readers.tables.dates import DateFormat
from chainrule_app.readers.tables.prepare import prepare_table

DAY = 86_400_000_000
WRITTEN = {"": DAY, "minutes": 60_000_000, "seconds": 1_000_000, "milliseconds": 1_000, "microseconds": 1}


def prepared(folder, cells, name="day", **options):
    path = folder / "rows.csv"
    path.write_text("\n".join([f"{name},n", *(f"{cell},{number % 7}" for number, cell in enumerate(cells))]) + "\n")
    table = prepare_table(path, folder / "table", **options)
    return table, table.schema.columns[0]


def days(count, start="2024-01-01", step=17, modulus=97):
    first = datetime.fromisoformat(start)
    return [(first + timedelta(days=number * step % modulus)).date().isoformat() for number in range(count)]


def test_a_cell_that_is_held_out_does_not_change_the_kind_of_its_column(tmp_path):
    """The first cells of a file told the notation of dates, those held out among them."""
    cells, held_out = days(60), OneInEvery(0.1, 0).take(60).tolist().index(True)
    with pytest.raises(ValueError, match=rf"line {held_out + 2}, column 'day': expected a date such as .* 'unknown'"):
        prepared(tmp_path, [*cells[:held_out], "unknown", *cells[held_out + 1 :]])


@given(
    st.lists(st.datetimes(), min_size=3),
    st.sampled_from(sorted(WRITTEN)),
    st.sampled_from(" T"),
    st.sampled_from(["", "Z", "+00:00", " UTC", "+01:00", "-0330", " +0100"]),
)
def test_each_date_is_an_integer_that_comes_back(moments, time, separator, zone):
    zone = zone if time else ""
    cells = [(one.isoformat(separator, time) if time else one.date().isoformat()) + zone for one in moments]
    dates = DateFormat.find([*cells, "", "NA"])
    numbers = [dates.number(cell) for cell in cells]
    assert [dates.text(number) for number in numbers] == cells
    moments = [datetime.fromisoformat(cell.removesuffix(zone)) for cell in cells]
    expected = [(one - moments[0]) // timedelta(microseconds=1) for one in moments]
    assert [(number - numbers[0]) * dates.unit for number in numbers] == expected
    assert dates.unit >= WRITTEN[time]


@given(st.lists(st.tuples(st.integers(1, 9999), st.integers(1, 12)), min_size=3))
def test_months_are_counted(months):
    cells = [f"{year:04}-{month:02}" for year, month in months]
    dates = DateFormat.find(cells)
    assert [dates.number(cell) for cell in cells] == [12 * year + month - 1 for year, month in months]
    assert [dates.text(dates.number(cell)) for cell in cells] == cells


@pytest.mark.parametrize(
    ("cells", "unit"),
    [
        (["2024-01-01 00:00:00", "2024-01-05 00:00:00", "2024-01-03 00:00:00"], DAY),
        (["2024-01-01T06:00", "2024-01-05T07:00", "2024-01-03T00:00"], 3_600_000_000),
        (["2024-01-01T06:00:00.000", "2024-01-05T07:00:00.500", "2024-01-03T00:00:00.250"], 1000),
        (["2024-01-01 06:00:00", "2024-01-05 07:00:00.500000", "2024-01-03 00:00:00"], 1000),  # str() of Python
        (["2024-01-01 06:00:00.000001", "2024-01-05 07:00:00", "2024-01-03 00:00:00"], 1),
    ],
)
def test_the_unit_is_the_coarsest_that_holds_every_date(cells, unit):
    assert DateFormat.find(cells).unit == unit


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-01", "2024-01-02"],  # too few
        ["2024-01-01", "2024-02-30", "2024-01-03"],
        ["2024-01-01", "2024-01-02 00:00", "2024-01-03"],
        ["2024-01-01T00:00+01:00", "2024-01-02T00:00", "2024-01-03T00:00+01:00"],
        ["2024-01-01T00:00+25:00", "2024-01-02T00:00+25:00", "2024-01-03T00:00+25:00"],
        ["2024-01-01T00:00+02:00:30", "2024-01-02T00:00+02:00:30", "2024-01-03T00:00+02:00:30"],
        ["2024-01-01T00:00Z ", "2024-01-02T00:00Z ", "2024-01-03T00:00Z "],
        ["20240101", "20240102", "20240103"],
        ["red", "blue", "green"],
        ["2024-13", "2024-01", "2024-02"],
    ],
)
def test_other_cells_are_no_dates(cells):
    assert DateFormat.find(cells) is None


def test_a_column_of_dates_is_numeric_and_comes_back(tmp_path):
    cells = days(300)
    cells[5] = cells[77] = ""
    table, column = prepared(tmp_path, cells)
    assert (column.kind, column.numbers.kind, column.numbers.low) == ("date", "integer", None)
    rows = np.concatenate([table.train, table.valid])
    assert sorted(row[0] or "" for row in table.schema.decode(rows)) == sorted(cells)
    assert {column.decode(1e18), column.decode(-1e18)} == {max(cells), min(cells[:5])}  # kept within training
    assert column.parsed("2024-01-01") == "2024-01-01"


BERLIN = ["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00", "2024-03-31T04:00+02:00", "2024-03-30T23:30Z"]


def test_dates_of_several_offsets_are_moments_written_in_utc():
    """They were categories."""
    dates = DateFormat.find(BERLIN)
    assert (dates.mixed, dates.unit) == (True, 60_000_000)
    written = [dates.text(dates.number(cell)) for cell in BERLIN]
    assert written == [f"2024-03-3{time}+00:00" for time in ("1T00:00", "1T01:00", "1T02:00", "0T23:30")]
    assert [dates.number(cell) for cell in written] == list(map(dates.number, BERLIN))
    assert [dates.number(cell) for cell in ("2024-03-31T01:00", "0001-01-01T00:00+02:00", "2024-03-31 01:00Z")] == [
        None
    ] * 3


def test_one_offset_is_kept_and_others_are_converted():
    dates = DateFormat.find(BERLIN[1:3] * 2)
    assert (dates.zone, dates.mixed) == ("+02:00", False)
    assert dates.text(dates.number("2024-03-31T02:00Z")) == "2024-03-31T04:00+02:00"
    assert dates.number("2024-03-31T02:00Z", alike=True) is None


def test_an_offset_that_changes_later_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.readers.tables.dates._LOOKED_AT", 10)
    winter = [f"{day}T0{number % 9}:00:00+01:00" for number, day in enumerate(days(300))]
    summer = [cell.replace("+01:00", "+02:00") for cell in winter]
    table, column = prepared(tmp_path, winter)
    assert (column.dates.zone, column.dates.mixed) == ("+01:00", False)
    assert column.encode(summer[0]) == column.encode(winter[0]) - 1
    table, column = prepared(tmp_path, [*winter, *summer])
    assert (column.kind, column.dates.mixed) == ("date", True)
    moments = sorted(datetime.fromisoformat(cell) for cell in [*winter, *summer])
    rows = np.concatenate([table.train, table.valid])
    assert sorted(datetime.fromisoformat(row[0]) for row in table.schema.decode(rows)) == moments


@pytest.mark.parametrize(
    ("zone", "given", "written"),
    [
        ("+00:00", "2024-01-31 12:00:00+02:00", "2024-01-31T10:00:00+00:00"),
        ("Z", "2024-01-31T12:00:00.000-01:00", "2024-01-31T13:00:00Z"),
        ("", "2024-01-31", "2024-01-31T00:00:00"),
    ],
)
def test_another_notation_is_rewritten(zone, given, written):
    dates = DateFormat.find([f"2024-01-0{day}T10:00:00{zone}" for day in (1, 2, 3)])
    dates = dates if given == "2024-01-31" else dates.finer()
    assert dates.text(dates.number(dates.rewritten(given))) == written
    assert DateFormat.find(days(3)).rewritten("2024-01-31 12:00") == "2024-01-31 12:00"  # the time would be lost
    assert dates.rewritten("noon") == "noon"


def test_a_list_and_a_file_are_encoded_alike(tmp_path):
    _, column = prepared(tmp_path, days(300))
    cells = ["2024-02-01", "", "2023-12-31", "2024-2-1"]
    values, bad = column.encode_cells(CellColumn(cells))
    assert bad == 3
    assert np.array_equal(values[:3], [column.encode(cell) for cell in cells[:3]], equal_nan=True)
    with pytest.raises(ValueError, match=r"column 'day': expected a date such as 2024-0\d-\d\d, got '2024-2-1'"):
        column.encode(cells[3])


def test_a_later_cell_may_be_finer_or_no_date_at_all(tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.readers.tables.dates._LOOKED_AT", 10)
    midnights = [f"{day} 00:00:00" for day in days(300)]
    _, column = prepared(tmp_path, [*midnights, *["2024-01-01 00:00:01"] * 30])
    assert (column.kind, column.dates.unit) == ("date", 1_000_000)
    _, column = prepared(tmp_path, [*midnights, *["unknown"] * 30])
    assert (column.kind, column.dates) == ("categorical", None)
    assert {"unknown", midnights[0]} < set(column.categories)


def test_the_kind_can_be_named(tmp_path):
    assert prepared(tmp_path, days(300), types={"day": "categorical"})[1].categories[0] == "2024-01-01"
    assert prepared(tmp_path, days(300), types={"day": "date"})[1].kind == "date"
    ordered = days(300, step=1, modulus=10**6)
    with pytest.raises(ValueError, match=r"a different date in each of 270 rows.*keep it with types=\"day=date\""):
        prepared(tmp_path, ordered)
    assert prepared(tmp_path, ordered, types={"day": "date"})[1].kind == "date"
    for cells, message in (
        (
            [*days(300), "1.2.2024", "1.2.2024"],
            "line 30[23], column 'day': expected a date in the format of",
        ),
        ([*days(300), "20240101", "20240101"], "line 30[23], column 'day': .* such as 2024-01-31, got '20240101'"),
        (["1", "2", "3"] * 50, "'day': expected at least three dates in one format"),
    ):
        with pytest.raises(ValueError, match=message):
            prepared(tmp_path, cells, types={"day": "date"})


def test_dates_of_parquet_are_dates(tmp_path):
    moments = [datetime(2024, 1, 1) + timedelta(microseconds=number * 10**9 % 97) for number in range(300)]
    frame = {"at": moments, "day": [one.date() + timedelta(days=n % 9) for n, one in enumerate(moments)]}
    polars.DataFrame(frame).write_parquet(tmp_path / "rows.parquet")
    columns = prepare_table(tmp_path / "rows.parquet", tmp_path / "table").schema.columns
    assert [(column.kind, column.dates.unit) for column in columns] == [("date", 1), ("date", DAY)]


@pytest.mark.parametrize("pattern", ["d.m.y", "d/m/y", "m/d/y", "y/m/d", "d-m-y", "m-d-y"])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("time", ["", " 06:30", " 06:30:00+01:00"])
def test_other_orders_of_day_and_month_come_back(tmp_path, pattern, padded, time):
    """They were categories."""
    digits = 2 if padded else 1

    def cell(day):
        part = {"d": f"{day.day:0{digits}}", "m": f"{day.month:0{digits}}", "y": f"{day.year}"}
        return pattern[1].join(part[name] for name in pattern[::2]) + time

    cells = [cell(datetime.fromisoformat(day)) for day in days(300)]
    table, column = prepared(tmp_path, cells)
    assert (column.kind, column.dates.order, column.dates.padded) == ("date", pattern, padded)
    rows = np.concatenate([table.train, table.valid])
    assert sorted(row[0] or "" for row in table.schema.decode(rows)) == sorted(cells)
    _, iso = prepared(tmp_path / "table", [day + time for day in days(300)])
    assert column.encode(cells[7]) == iso.encode(days(300)[7] + time)
    assert column.dates.rewritten(days(300)[7] + time) == cells[7]


@pytest.mark.parametrize("notation", ["%d.%m.%y", "%b %d %Y", "%d %B %Y"])
def test_dates_in_a_notation_that_is_not_read_are_named(tmp_path, notation):
    cells = [date.strftime(notation) for date in map(datetime.fromisoformat, days(100))] * 2
    table, column = prepared(tmp_path, cells)
    assert column.kind == "categorical"
    assert f"look like dates: write them as 2024-01-31, not {cells[0]!r}" in table.manifest["columns"][0]["doubt"]
    times = [f"{hour}:{minute:02}" for hour in range(10, 20) for minute in range(10)] * 2
    table, _ = prepared(tmp_path, times)
    assert table.manifest["columns"][0].get("doubt") is None


def test_days_that_may_be_months_stay_categories(tmp_path):
    cells = [f"{1 + number % 12:02}/{1 + number // 12 % 12:02}/2024" for number in range(300)]
    table, column = prepared(tmp_path, cells)
    assert column.kind == "categorical"
    assert "may have the day or the month first: write dates as 2024-01-31" in table.manifest["columns"][0]["doubt"]
    _, column = prepared(tmp_path, [*cells, *["31/12/2024"] * 30])
    assert (column.kind, column.dates.order) == ("date", "d/m/y")
    _, column = prepared(tmp_path, [*cells, *["31/12/2024", "12/31/2024"] * 30])
    assert column.kind == "categorical"
    assert DateFormat.find(["1.2.2024", "01.03.2024", "11.12.2024"]) is None  # not written alike

"""Steps between dates, found and continued."""

from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.cli.errors import LINE_LIMIT
from chainrule_app.readers.origin import Origin
from chainrule_app.readers.series.frequency import (
    Frequency,
    calendar_features,
    calendar_names,
    complete_dates,
    on_one_clock,
)
from chainrule_app.readers.tables.dates import as_date, is_date_like

START = datetime(2023, 12, 29)  # a Friday


def gaps(dates):
    """The numbers of the rows that are missing among dates."""
    lines, where = range(len(dates)), Origin("days.csv")
    complete, places = complete_dates(dates, lines, Frequency.find(dates, lines, where), where)
    return sorted(set(range(len(complete))) - set(places))


def test_a_date_that_comes_too_early_is_to_be_moved_and_one_too_late_leaves_a_gap():
    first = [datetime(2024, 1, day) for day in (1, 2, 3)]
    assert gaps([*first, datetime(2024, 1, 5)]) == [3]
    with pytest.raises(ValueError, match=r"but 2024-01-03 12.*: move it"):
        gaps([*first, datetime(2024, 1, 3, 12)])


@pytest.mark.parametrize("frequency", [Frequency("seconds", 86_400), Frequency("months", 1)])
def test_dates_end_with_the_year_9999(frequency):
    with pytest.raises(ValueError, match="up to the year 9999"):
        frequency.after(datetime(9999, 12, 31))


def test_dates_that_come_again_and_again_have_their_time_elsewhere_or_are_of_several_series():
    """The advice was to keep one row of each date, or to sort the rows: a day of hours would have been a single row."""
    days = [datetime(2024, 1, day) for day in range(1, 11)]
    by_hour, stacked = [day for day in days for _ in range(24)], days + days[:5]
    for made, line, count in ((by_hour, 3, "230 of 240 rows"), (stacked, 12, "5 of 15 rows")):
        expected = (
            rf"line {line}: expected each date once, .* {count}: write date and time into one column.* date=\"none\""
        )
        with pytest.raises(ValueError, match=expected) as error:
            Frequency.find(made, range(2, 2 + len(made)), Origin("days.csv"))
        assert len(str(error.value)) < LINE_LIMIT - 40  # the command line cut it in the middle
    with pytest.raises(ValueError, match="line 11: the date 2024-01-09 00:00:00 comes twice: keep one"):
        Frequency.find([*days[:9], days[8], days[9]], range(2, 13), Origin("days.csv"))


def dates(frequency, count=40, start=START):
    made = [start]
    while len(made) < count:
        made.append(frequency.after(made[-1]))
    return made


@pytest.mark.parametrize(
    ("frequency", "name", "season"),
    [
        (Frequency("seconds", 900), "every 15 minutes", 96),
        (Frequency("seconds", 3600), "every hour", 24),
        (Frequency("seconds", 86_400), "every day", 7),
        (Frequency("seconds", 7 * 86_400), "every week", 52),
        (Frequency("seconds", 7), "every 7 seconds", 1),
        (Frequency("seconds", 1), "every second", 86_400),
        (Frequency("microseconds", 500_000), "every 500 milliseconds", 1),
        (Frequency("microseconds", 1_500_000), "every 1500 milliseconds", 1),
        (Frequency("microseconds", 1000), "every millisecond", 1),
        (Frequency("microseconds", 250), "every 250 microseconds", 1),
        (Frequency("business days", 1), "every business day", 5),
        (Frequency("months", 1), "every month", 12),
        (Frequency("months", 3), "every 3 months", 4),
        (Frequency("month ends", 1), "every month end", 12),
        (Frequency("month ends", 3), "every 3 month ends", 4),
    ],
)
def test_it_is_found_in_its_own_dates(frequency, name, season):
    start = {"months": datetime(2023, 12, 1), "month ends": datetime(2023, 12, 31)}.get(frequency.unit, START)
    made = dates(frequency, start=start)
    assert Frequency.find(made, range(40), Origin("x")) == frequency
    assert (str(frequency), frequency.season) == (name, season)


@given(st.integers(1, 10_000_000), st.integers(2, 30), st.integers(1, 28))
def test_any_number_of_seconds_leaves_no_gap(seconds, count, gap):
    made = dates(Frequency("seconds", seconds), count + 30)
    assert Frequency.find(made, range(len(made)), Origin("x")).after(made[-1]) == made[-1] + timedelta(seconds=seconds)
    assert gaps(made) == []
    assert gaps(made[:gap] + made[gap + 1 :]) == [gap]


def test_a_weekend_between_business_days_is_no_gap_but_a_holiday_is():
    made = dates(Frequency("business days", 1))
    assert {date.weekday() for date in made} == {0, 1, 2, 3, 4}
    assert gaps(made[:7] + made[8:]) == [7]


def test_months_end_on_their_own_last_days():
    ends = dates(Frequency("month ends", 1), 4, datetime(2023, 12, 31))
    assert [date.day for date in ends] == [31, 31, 29, 31]
    with pytest.raises(ValueError, match="but 2024-03-31"):
        gaps([datetime(2024, 1, 30), datetime(2024, 2, 29), datetime(2024, 3, 31)])


def test_steps_below_a_second_are_steps():
    """They were rounded to seconds: "a gap: expected 2023-12-29 00:00:01, as rows are every second"."""
    made = dates(Frequency("microseconds", 100_000), 50)
    assert gaps(made[:3] + made[4:]) == [3]
    days = [START + timedelta(hours=hour, milliseconds=500) for hour in range(72)]
    assert str(Frequency.find(days, range(72), Origin("x"))) == "every hour"
    assert calendar_names(Frequency("microseconds", 500_000), [START, START + timedelta(days=3)]) == ["time of day"]
    halves = calendar_features([START, START + timedelta(microseconds=500_000)], {"time of day": 1})
    assert halves[1, 0] > halves[0, 0]


ZONES = ["America/Sao_Paulo", "America/Santiago", "America/Asuncion", "America/Havana", "Africa/Cairo", "Asia/Beirut"]


@pytest.mark.parametrize("zone", [*ZONES, "Europe/Berlin", "UTC"])
@pytest.mark.parametrize("named", [True, False])
def test_days_are_daily_where_clocks_skip_midnight(zone, named):
    """The day that began at 01:00 made all rows ones of UTC, which were irregular."""
    days = [datetime(2015, 1, 1) + timedelta(days=number) for number in range(4000)]
    moments = [day.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC).astimezone(ZoneInfo(zone)) for day in days]
    assert any(moment.hour == 1 for moment in moments) == (zone in ZONES)
    if not named:
        moments = [datetime.fromisoformat(moment.isoformat()) for moment in moments]
    assert on_one_clock(moments) == (days, None)
    assert on_one_clock(moments[::-1]) == (days[::-1], None)
    if skipped := next((number for number, moment in enumerate(moments) if moment.hour == 1), 0) * named:
        assert on_one_clock(moments[skipped:]) == (days[skipped:], None)


def test_days_of_another_clock_are_daily_on_the_clock_of_the_first():
    """Each has 00:00 in winter and 01:00 in summer, as days of a fixed offset do in a zone with daylight saving."""
    moments = [
        (datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=1))) + timedelta(days=number)).astimezone(
            ZoneInfo("Europe/Berlin")
        )
        for number in range(200)
    ]
    found, utc_offset = on_one_clock(moments)
    assert (found, utc_offset) == ([datetime(2024, 1, 1) + timedelta(days=number) for number in range(200)], 3600)


def test_cycles_close():
    hours = dates(Frequency("seconds", 3600), 24 * 7 + 1)
    features = calendar_features(hours, {"time of day": 1, "day of week": 3, "day of year": 1})
    assert features.shape == (169, 10)
    assert features[0, :8] == pytest.approx(features[-1, :8])
    assert features[0, :2] != pytest.approx(features[12, :2])
    assert calendar_features(hours, {}).shape == (169, 0)


def test_three_harmonics_tell_each_day_of_a_week_apart():
    """Any profile of seven days is a sum of them, so that a linear model knows each day."""
    features = calendar_features(dates(Frequency("seconds", 86_400), 7), {"day of week": 3})
    assert np.linalg.matrix_rank(np.column_stack([np.ones(7), features])) == 7


def test_only_cycles_that_were_seen_twice_are_told():
    hour, day, month = Frequency("seconds", 3600), Frequency("business days", 1), Frequency("months", 1)
    january = datetime(2023, 1, 1)
    names = {
        count: calendar_names(hour, [january, january + timedelta(hours=count - 1)])
        for count in (47, 48, 335, 336, 17_568)
    }
    both = ["time of day", "day of week"]
    assert names == {47: [], 48: both[:1], 335: both[:1], 336: both, 17_568: [*both, "day of year"]}
    assert calendar_names(day, [january, january + timedelta(days=800)]) == ["day of week", "day of year"]
    assert calendar_names(month, [january, january + timedelta(days=800)]) == ["day of year"]


@pytest.mark.parametrize(
    "cell",
    [
        "", "112", "20160701", "2024-13", "2024-02-30", "Jan 2024", "1-2", "-5", "01.13.2024", "31.1.24", "1.2.2024.5",
        "0001-01-01T00:00+05:00[Europe/Berlin]", "]" * 5000,
    ],
)  # fmt: skip
def test_other_texts_are_no_dates(cell):
    assert as_date(cell) is None


def test_dates_with_dots_have_the_day_first():
    assert as_date("05.01.2026") == as_date("5.1.2026") == datetime(2026, 1, 5)
    assert as_date("15.02.2026 13:30") == datetime(2026, 2, 15, 13, 30)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["2024-01", "05.01.2026", "5.1.26", "01/05/2026 12:00 AM", "2024-01-01 00:00:00 UTC", "01/2026"], True),
        (["5 Jan 2026", "January 2026", "5-Jan-26", "Sep 5, 2026", "2026-Q1", "13:00", "2024-13-01"], True),
        (["", "5", "2024.01", "20240101", "1.234,56", "8,07", "10.0.0.1", "May", "Markt 5", "B-12", "3-4"], False),
    ],
)
def test_dates_are_known_by_their_look_in_other_notations_too(cells, expected):
    assert {cell: is_date_like(cell) for cell in cells} == dict.fromkeys(cells, expected)


@pytest.mark.parametrize("count", [-1, 0, 10**30])
def test_a_step_that_cannot_be_is_refused(count):
    with pytest.raises(ValueError, match="count: expected 1 to"):
        Frequency("months", count)


@pytest.mark.parametrize(
    ("day", "step"), [(28, "every month"), (29, "every month"), (30, "every month"), (31, "every month end")]
)
@pytest.mark.parametrize("first", [0, 1])
def test_a_day_that_february_lacks_is_its_last(day, step, first):
    """Monthly rows of the 29th or 30th were refused as irregular."""
    dates = [datetime(2019 + month // 12, month % 12 + 1, 1) for month in range(first, first + 20)]
    dates = [date.replace(day=min(day, monthrange(date.year, date.month)[1])) for date in dates]
    found = Frequency.find(dates[:-1], range(19), Origin("rows"))
    assert (str(found), found.season, found.after(dates[-2])) == (step, 12, dates[-1])
    assert Frequency.find(dates[:3], range(3), Origin("rows"), found) == found


@pytest.mark.parametrize("minutes", [60, 30, 15])
def test_hours_that_come_twice_in_autumn_may_be_kept(minutes):
    """The remedy was to throw one of them away."""
    steps = [datetime(2023, 10, 28) + timedelta(minutes=minutes * step) for step in range(72 * 60 // minutes)]
    two = steps.index(datetime(2023, 10, 29, 2))
    dates = [*steps[: two + 60 // minutes], *steps[two:]]
    with pytest.raises(
        ValueError, match=r"write the offset from UTC in every row, as .*02:00 and 2023-10-29 02:00:00.01:00, which"
    ):
        Frequency.find(dates, range(len(dates)), Origin("rows"))
    zoned = [
        date.replace(tzinfo=timezone(timedelta(hours=2 - (n >= two + 60 // minutes)))) for n, date in enumerate(dates)
    ]
    assert str(Frequency.find(on_one_clock(zoned)[0], range(len(dates)), Origin("rows"))) in (
        "every hour",
        f"every {minutes} minutes",
    )
    noon = steps.index(datetime(2023, 10, 29, 12))
    with pytest.raises(ValueError, match=r"twice: keep one row of each date$"):
        Frequency.find([*steps[: noon + 1], *steps[noon:]], range(len(steps) + 1), Origin("rows"))

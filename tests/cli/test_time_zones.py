"""Times with offsets from UTC that change, as with daylight saving, in tables and series."""

import json
import random
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

import chainrule

ONE = ("--steps", 1, "--hidden-size", 4)
HOURS = [
    (datetime(2024, 3, 20, tzinfo=UTC) + timedelta(hours=hour)).astimezone(ZoneInfo("Europe/Berlin"))
    for hour in range(400)
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, drawn = tmp_path_factory.mktemp("zones"), random.Random(0)
    series = "".join(f"{hour.isoformat()},{drawn.gauss(0, 1):.2f}\n" for hour in HOURS)
    (folder / "series.csv").write_text("at,load\n" + series)
    rows = "".join(f"{drawn.choice(HOURS).isoformat()},{drawn.choice('abc')}\n" for _ in range(400))
    (folder / "rows.csv").write_text("at,kind\n" + rows)
    return folder


def test_rows_are_read_as_moments_and_written_in_utc(command, files, tmp_path):
    outcome = command("train", files / "rows.csv", *ONE, "--out", tmp_path / "run")
    assert "  at: several offsets from UTC: read as moments, and written in UTC\n" in outcome.err
    drawn = command("sample", tmp_path / "run", "-n", 5, "--json").out.splitlines()
    assert all(json.loads(line)["at"].endswith(":00:00+00:00") for line in drawn)
    given = command("sample", tmp_path / "run", "-n", 1, "--where", "at=2024-03-26 03:00:00+05:00").out
    assert given.splitlines()[1].startswith("2024-03-25T22:00:00+00:00,")


def test_the_clock_of_series_is_said(command, files, tmp_path):
    outcome = command(
        "train", files / "series.csv", "--task", "forecast", "--horizon", 3, *ONE, "--out", tmp_path / "run"
    )
    assert "series.csv: rows every hour, dates in UTC+01:00, a season of 24; " in outcome.err
    fixed = files / "fixed.csv"
    fixed.write_text("at,load\n" + "".join(f"{hour:%Y-%m-%d %H:%M:%S} +0130,{hour.hour}\n" for hour in HOURS[:120]))
    outcome = command(
        "train", fixed, "--task", "forecast", "--season", 1, "--horizon", 3, *ONE, "--out", tmp_path / "fixed"
    )
    assert "fixed.csv: rows every hour, dates in UTC+01:30; " in outcome.err


def test_conditions_take_moments_of_any_zone():
    """They were refused for all but UTC."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"at": HOURS * 2, "kind": list("ab") * 400})
    frame["at"] = pandas.to_datetime(frame["at"], utc=True).dt.tz_convert("Europe/Berlin")
    run = chainrule.fit(frame.sample(frac=1, random_state=0), task="table", steps=1, hidden_size=4, threads=1)
    for zone in ("Europe/Berlin", "Asia/Kolkata", "UTC"):
        moment = frame["at"][300].tz_convert(zone)
        assert run.sample(1, where={"at": moment})["at"].tolist() == [moment]
    with pytest.raises(ValueError, match=r"where: column 'at': expected a date such as .*\+00:00, got '2024-03-26"):
        run.sample(1, where={"at": "2024-03-26 03:00"})


@pytest.mark.parametrize("library", ["pandas", "index", "polars"])
@pytest.mark.parametrize("hours", [1, 24])
def test_forecasts_of_a_frame_are_in_its_zone(library, hours):
    """They were in UTC, and days had no zone; the clocks go forward within the forecast."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    zone = ZoneInfo("Europe/Berlin")
    last = datetime(2024, 3, 31, 1, tzinfo=zone) if hours == 1 else datetime(2024, 3, 30, tzinfo=zone)
    times = [last - timedelta(hours=hours * back) for back in reversed(range(200))]
    if library == "polars":
        frame = polars.DataFrame({"at": times, "load": [float(place % 24) for place in range(200)]})
        assert frame["at"].dtype.time_zone == "Europe/Berlin"
    else:
        frame = pandas.DataFrame({"at": pandas.DatetimeIndex(times), "load": [place % 24 for place in range(200)]})
        frame = frame.set_index("at") if library == "index" else frame
    run = chainrule.fit(frame, task="forecast", horizon=3, season=1, steps=1, hidden_size=4, threads=1)
    forecast = run.forecast(frame, paths=3)
    nights = [(31, 3), (31, 4), (31, 5)] if hours == 1 else [(31, 0), (1, 0), (2, 0)]
    expected = [datetime(2024, 3 if day == 31 else 4, day, hour, tzinfo=zone) for day, hour in nights]
    for times in (forecast["at"], forecast.per("path")["at"][:3]):
        assert times == expected
        assert {str(time.tzinfo) for time in times} == {"Europe/Berlin"}
    assert ("2024-03-31 03:00:00+02:00" if hours == 1 else "2024-03-31") in repr(forecast)
    if library == "polars":
        assert forecast.to_polars()["at"].dtype.time_zone == "Europe/Berlin"
        assert forecast.to_polars()["at"].to_list() == expected
    else:
        assert str(forecast.to_pandas().index.tz) == "Europe/Berlin"
        assert forecast.to_pandas().index.tolist() == expected


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_days_of_a_frame_go_on_where_clocks_skip_midnight(library):
    """The rows were refused; pandas has the day at 01:00, and midnight does not exist."""
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    days = pandas.date_range("2022-12-01", periods=467, freq="D")  # up to 2024-03-11
    times = days.tz_localize("America/Havana", nonexistent="shift_forward", ambiguous=[True] * 467)
    rows = {"load": [*map(float, range(464)), *[None] * 3], "open": [place % 3 == 0 for place in range(467)]}
    whole = pandas.DataFrame({"at": times, **rows})
    whole = polars.from_pandas(whole) if library == "polars" else whole
    frame = whole[:464]
    options = {"horizon": 3, "season": 1, "steps": 1, "hidden_size": 4, "threads": 1}
    run = chainrule.fit(frame, task="forecast", target="load", covariates="open", **options)
    with pytest.raises(ValueError, match=r"^the rows of training: expected 3 rows after the last value with open"):
        run.forecast()  # named a temporary file
    forecast = run.forecast(whole, paths=3)
    found = forecast.to_polars()["at"].to_list() if library == "polars" else forecast.to_pandas().index.tolist()
    assert [str(time)[5:] for time in found] == ["03-09 00:00:00-05:00", "03-10 01:00:00-04:00", "03-11 00:00:00-04:00"]


def test_a_zone_in_brackets_is_read_and_an_unknown_one_refused(command, refused, files, tmp_path):
    named = files / "named.csv"
    named.write_text("at,load\n" + "".join(f"{hour.isoformat()}[Europe/Berlin],{hour.hour}\n" for hour in HOURS[:300]))
    options = ("--task", "forecast", "--season", 1, "--horizon", 3, *ONE)
    command("train", named, *options, "--out", tmp_path / "named")
    lines = command("forecast", tmp_path / "named", named, "--paths", 2).out.splitlines()
    assert [line.split(",")[0] for line in lines[1:3]] == ["2024-04-01 14:00:00+02:00", "2024-04-01 15:00:00+02:00"]
    named.write_text(named.read_text().replace("Europe/Berlin", "Europe/Nowhere"))
    assert "expected a date as 2024-01-31" in refused("train", named, *options, "--out", tmp_path / "other")

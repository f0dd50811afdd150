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
    assert "series.csv: rows every hour, dates in UTC, a season of 24; " in outcome.err
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
    with pytest.raises(ValueError, match=r"--where: column 'at': expected a date such as .*\+00:00, got '2024-03-26"):
        run.sample(1, where={"at": "2024-03-26 03:00"})

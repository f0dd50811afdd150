"""Forecasts of items in long form: trained, forecast and evaluated on the command line and in Python."""

import csv
import io
import json
import math
import random
from datetime import date, timedelta

import pytest

import chainrule
from chainrule.data import SeriesWindows
from chainrule.training import evaluate
from chainrule_app.tasks.forecast.run import ForecastRun

FLAGS = ("--horizon", 4, "--steps", 3, "--season", 7, "--history", 20)
LENGTHS = {"north": 120, "south": 90, "west": 60}


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    path, draw = tmp_path_factory.mktemp("items") / "sales.csv", random.Random(0)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["item_id", "timestamp", "target", "size"])
        for number, (item, length) in enumerate(LENGTHS.items()):
            first = date(2024, 1, 1) + timedelta(days=30 * number)
            for day in range(length):
                value = 10 * number + day % 7 + draw.random()
                writer.writerow([item, first + timedelta(days=day), f"{value:.3f}", 5 * number])
    return path


@pytest.fixture(scope="module")
def run(sales):
    from chainrule_app.cli.main import main

    words = ["train", sales, "--task", "forecast", "--target", "target", "--static", "size", *FLAGS, "--out"]
    assert main([*map(str, words), str(sales.parent / "run")]) == 0
    return sales.parent / "run"


def test_forecasts_come_out_in_the_long_form_after_the_end_of_each_item(ok, sales, run):
    outcome = ok("forecast", run, sales, "--seed", 1, "--paths", 8, "--csv")
    rows = list(csv.DictReader(io.StringIO(outcome.out)))
    assert list(rows[0])[:3] == ["item_id", "timestamp", "mean"]
    assert [row["item_id"] for row in rows] == [item for item in LENGTHS for _ in range(4)]
    for number, (item, length) in enumerate(LENGTHS.items()):
        end = date(2024, 1, 1) + timedelta(days=30 * number + length)
        own = [row["timestamp"] for row in rows if row["item_id"] == item]
        assert own == [str(end + timedelta(days=step)) for step in range(4)]


def test_what_a_forecast_is_made_from_does_not_depend_on_other_items(sales, run, tmp_path):
    lines = sales.read_text().splitlines()
    alone = tmp_path / "south.csv"
    alone.write_text("\n".join([lines[0], *(line for line in lines if line.startswith("south"))]) + "\n")
    schema = ForecastRun.open(run).schema
    found = []
    for path in (sales, alone):
        file = schema.open(path)
        place = (int(file.spans[1, 1]), 1)
        found.append(SeriesWindows.context(file.values, schema.features(file, 4), [place], 30, 4))
    assert found[0].keys() == found[1].keys() == {"past", "covariates", "series"}
    for name, part in found[0].items():
        assert part.equal(found[1][name])
        assert part.isfinite().all()


def test_held_out_figures_are_those_of_every_value_after_one_date(run):
    task = ForecastRun.open(run)
    series, (_, held_out) = task.series(), task.batches((0, 1))
    batches = list(held_out())
    found = sorted(value for batch in batches for value in batch.x.flatten().tolist())
    wanted = []
    for number, (_, stop) in enumerate(series.spans.tolist()):
        whole = (stop - series.train_rows) // 4 * 4
        wanted += series.values[series.train_rows : series.train_rows + max(whole, 0), number].tolist()
    assert found == sorted(wanted)
    assert evaluate(task.model(), batches).elements == len(wanted)


def test_each_item_is_evaluated_on_its_own_rows(ok, checked, sales, run):
    outcome = ok("evaluate", run, sales, "--json", "--paths", 8)
    scores = json.loads(outcome.out)["scores"]
    assert {row["series"] for row in scores} <= set(LENGTHS)
    assert all(row["crps"] > 0 for row in scores)
    handed = checked(run)
    assert handed.context["series"].shape == handed.x.shape[:1]
    ok("inspect", run, "--json")


def test_frames_are_read_and_forecast(sales):
    pandas = pytest.importorskip("pandas")
    frame = pandas.read_csv(sales, parse_dates=["timestamp"])
    fitted = chainrule.fit(
        frame, task="forecast", target="target", static="size", horizon=4, steps=3, season=7, history=20
    )
    found = fitted.forecast(frame, paths=8, seed=1).to_pandas()
    assert list(found.columns)[:3] == ["item_id", "timestamp", "mean"]
    assert list(found["item_id"].unique()) == list(LENGTHS)


def test_date_formats_come_back_as_they_were_written(command, ok, tmp_path):
    rows = [(date(2023, 1, 1) + timedelta(days=day)).strftime("%d/%m/%Y") + f",{day % 7}" for day in range(100)]
    (tmp_path / "x.csv").write_text("\n".join(["day,sold", *rows]) + "\n")
    flags = ("--task", "forecast", "--date-format", "%d/%m/%Y", *FLAGS)
    ok("train", tmp_path / "x.csv", *flags, "--out", tmp_path / "run")
    found = command("forecast", tmp_path / "run", tmp_path / "x.csv", "--csv", "--paths", 4).out.splitlines()
    assert [line.split(",")[0] for line in found[1:]] == ["11/04/2023", "12/04/2023", "13/04/2023", "14/04/2023"]


@pytest.mark.parametrize("items", [["east", "south"], ["east"]])
def test_new_items_are_forecast_and_scored_by_a_run_that_has_not_seen_them(ok, refused, run, sales, tmp_path, items):
    """They are of a known kind: measured by their own rows, with the mean of the embeddings and of the lines."""
    lines = sales.read_text().splitlines()
    kept = [line for line in lines[1:] if line.split(",")[0] in items]
    draw = random.Random(1)
    new = [
        f"east,{date(2024, 3, 15) + timedelta(days=day)},{500 + day % 7 + draw.random():.3f},15" for day in range(60)
    ]
    path = tmp_path / "more.csv"
    path.write_text("\n".join([lines[0], *new, *kept]) + "\n")
    rows = list(csv.DictReader(io.StringIO(ok("forecast", run, path, "--seed", 1, "--csv").out)))
    assert {row["item_id"] for row in rows} == set(items)
    east = [row for row in rows if row["item_id"] == "east"]
    assert [row["timestamp"] for row in east] == [str(date(2024, 5, 14) + timedelta(days=step)) for step in range(4)]
    assert all(490 < float(row["mean"]) < 520 for row in east)
    scores = json.loads(ok("evaluate", run, path, "--json").out)["scores"]
    assert "east" in {row["series"] for row in scores}
    assert all(math.isfinite(row["crps"]) for row in scores)
    path.write_text("\n".join([lines[0].replace("size", "colour"), *new]) + "\n")
    assert "no column 'size'" in refused("forecast", run, path)
    path.write_text("\n".join([lines[0], *(line.rsplit(",", 2)[0] + ",7,15" for line in new)]) + "\n")
    assert "'east': values: expected finite numbers that change" in refused("forecast", run, path)

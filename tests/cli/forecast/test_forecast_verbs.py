"""Series from CSV to a run, and what the verbs do with it."""

import csv
import io
import json
import math
import random
import shlex
from datetime import datetime, timedelta

import pytest

from chainrule.metrics import quantiles_of_samples
from chainrule.models import Ensemble, ForecastMixture
from chainrule_app.cli.main import main
from chainrule_app.tasks.forecast import task as forecast_task
from chainrule_app.tasks.forecast.prediction import parse_quantiles
from chainrule_app.tasks.forecast.run import ForecastRun


def lines(rows=240, future=6):
    yield "date,heat,wind"
    for n in range(rows + future):
        date = datetime(2024, 1, 1) + timedelta(days=n)
        wind = n * n % 5
        heat = f"{10 + 3 * math.sin(math.tau * n / 7) + 0.1 * wind + 0.01 * (n * 7919 % 101):.3f}"
        yield f"{date:%Y-%m-%d},{heat if n < rows else ''},{wind}"


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    path = tmp_path_factory.mktemp("series") / "days.csv"
    path.write_text("".join(f"{line}\n" for line in lines()))
    return path


ASKED = ("--task", "forecast", "--target", "heat", "--covariates", "wind", "--horizon", 6)


@pytest.fixture(scope="module")
def run(series, tmp_path_factory):
    """Trained for a few steps; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    arguments = ["train", series, *ASKED, "--out", out, "--steps", 40, "--hidden-size", 8, "--json"]
    assert main([str(argument) for argument in arguments]) == 0
    return out


def test_series_are_read_shown_and_learnt(command, ok, series, tmp_path):
    outcome = ok(
        "train", series, *ASKED, "--out", tmp_path / "run", "--steps", 60, "--hidden-size", 16,
        "--learning-rate", 0.01, "--validate-every", 30, "--no-linear", "--json",
    )  # fmt: skip
    summary = json.loads(outcome.out)
    assert summary["nats_per_value"] == summary["nats_per_element"]
    for shown in (
        "days.csv: rows every day, a season of 7; 216 to train on, 24 held out",
        "known in advance: wind, day of week; lags: 1, 2, 3, 7, 8",
        "heat: before ",
    ):
        assert shown in outcome.err
    *_, drawn, baseline = outcome.err.splitlines()
    assert set("▁▂▃▄▅▆▇█") & set(drawn)
    assert baseline.startswith("baseline: seasonal naive ")
    evaluated = command("evaluate", tmp_path / "run", series, "--json")
    scores = {row["forecast"]: row for row in json.loads(evaluated.out)["scores"]}
    assert scores["model"]["crps"] < 0.7 * scores["persistence with its errors"]["crps"]


@pytest.mark.parametrize(("future", "verbs"), [(6, ["forecast", "evaluate"]), (5, ["evaluate", "forecast"])])
def test_the_command_that_is_advised_first_works(command, ok, tmp_path, future, verbs):
    """A forecast was advised first, though the file had no covariates for it."""
    path, out = tmp_path / "days.csv", tmp_path / "run"
    path.write_text("".join(f"{line}\n" for line in lines(future=future)))
    told = command("train", path, *ASKED, "--out", out, "--steps", 2, "--hidden-size", 4).out.splitlines()
    (place,) = [place for place, line in enumerate(told) if line.startswith("next: ")]
    advised = [shlex.split(line.removeprefix("next: "), comments=True) for line in told[place : place + 2]]
    assert [words[1] for words in advised] == verbs
    first, second = ([tmp_path / word if word.endswith(".png") else word for word in words[1:]] for words in advised)
    ok(*first)
    assert command(*second).status == (0 if future == 6 else 2)
    needs = "forecast.png  # needs 6 rows after the last value, with wind filled in"
    assert told[place + 1].endswith(needs) == (future == 5)
    assert " ".join(advised[0]) in command("info", out).out


def test_a_forecast_without_a_file_continues_the_rows_of_training(command, ok, tmp_path):
    """The file itself may be gone; its rows with known covariates are the future."""
    path, out = tmp_path / "days.csv", tmp_path / "run"
    path.write_text("".join(f"{line}\n" for line in lines()))
    ok("train", path, *ASKED, "--out", out, "--steps", 2, "--hidden-size", 4)
    expected = ok("forecast", out, path, "--seed", 0).out
    path.unlink()
    assert ok("forecast", out, "--seed", 0).out == expected
    short = command("forecast", out, "--horizon", 7).err
    assert short.endswith("covariates must be known for the whole horizon\n")
    assert "the rows of training: expected 7 rows after the last value with wind filled in" in short


def test_a_forecast_without_a_file_continues_several_files(ok, tmp_path):
    """The run looked for a copy named after all of them."""
    whole = list(lines(future=0))
    first, last, out = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "run"
    first.write_text("".join(f"{line}\n" for line in whole[:121]))
    last.write_text("".join(f"{line}\n" for line in [whole[0], *whole[121:]]))
    asked = ("--task", "forecast", "--target", "heat", "--horizon", 6, "--steps", 2, "--hidden-size", 4)
    ok("train", first, last, *asked, "--out", out)
    rows = list(csv.DictReader(io.StringIO(ok("forecast", out, "--seed", 0).out)))
    assert [row["date"] for row in rows][::5] == ["2024-08-28", "2024-09-02"]


def test_missing_rows_are_neither_learned_nor_scored_in_training_and_later(command, ok, tmp_path):
    path, out = tmp_path / "days.csv", tmp_path / "run"
    head, first, *rest = (line for number, line in enumerate(lines()) if number not in (40, 238, 239))
    date, _, wind = first.split(",")
    path.write_text("\n".join([head, f"{date},,{wind}", *rest]) + "\n")
    asked = ("train", path, *ASKED, "--out", out, "--steps", 20, "--hidden-size", 8)
    said = "missing, neither read nor scored: 2 training values, 2 held out"
    assert said in ok(*asked).err
    assert said in command("info", out).out
    ok("evaluate", out, path)
    forecast = ok("forecast", out, path)
    dates = [row["date"] for row in csv.DictReader(io.StringIO(forecast.out))]
    assert (dates[0], len(dates)) == ("2024-08-28", 6)


@pytest.mark.slow
def test_a_long_budget_ends_after_the_passes_that_are_enough(command, ok, planned, series, tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e6)
    monkeypatch.setattr(forecast_task, "_ENOUGH_STEPS", 10)
    asked = ("train", series, *ASKED, "--hidden-size", 8, "--overwrite", "--out", tmp_path / "run")
    outcome = ok(*asked, "--budget", "1h")
    assert "passes over the windows are enough, for each of 4 models that are averaged\n" in outcome.err
    config = ForecastRun.open(tmp_path / "run").config
    assert (config.duration.budget, config.training.validate_every) == (None, 1)
    repeat = f"--epochs {config.duration.epochs:g} --validate-every 1 --num-members 4 --patience 3"
    assert f"reproduce with: {repeat} --threads " in outcome.err
    assert repeat in command("info", tmp_path / "run").out
    metrics = (tmp_path / "run" / "metrics.jsonl").read_text()
    ok(*asked, *repeat.split())
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == metrics
    ok("train", "--resume", "--steps", 30, "--out", tmp_path / "run")
    assert "epochs" not in command("info", tmp_path / "run").out

    outcome = planned(*asked[1:], "--budget", "1h", "--num-members", 1)
    assert "passes over the windows are enough\n" in outcome.err

    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 10.0)
    planned(*asked[1:], "--budget", "1s")
    config = ForecastRun.open(tmp_path / "run").config
    assert (config.duration.budget, config.options.num_members) == (1, 1)


def test_averaged_forecasters_forecast(command, ok, checked, refused, series, tmp_path):
    run = tmp_path / "run"
    asked = ("train", series, *ASKED, "--hidden-size", 8, "--steps", 20, "--num-members", 2, "--out", run)
    ok(*asked)
    model = ForecastRun.open(run).model()
    assert isinstance(model, ForecastMixture)
    assert isinstance(model.network, Ensemble)
    first, second = (command("forecast", run, series, "--seed", 1).out for _ in range(2))
    assert first == second != ""
    assert isinstance(checked(run).model.network, Ensemble)
    evaluated = json.loads(command("evaluate", run, series, "--json").out)
    inspected = json.loads(command("inspect", run, "--json").out)
    assert inspected["nats_per_value"] == pytest.approx(evaluated["nats_per_value"])
    config = json.loads((run / "config.json").read_text())
    config["model"]["options"]["num_members"] = None
    (run / "config.json").write_text(json.dumps(config))
    assert "num_members" in refused("forecast", run, series)


def test_a_forecast_has_dates_quantiles_in_order_and_the_same_numbers_for_a_seed(command, run, series, tmp_path):
    printed = command("forecast", run, series, "--seed", 1, "--quantiles", "0.9,0.5,0.1").out
    assert command("forecast", run, series, "--seed", 1, "--quantiles", "0.1,0.5,0.9").out == printed
    assert command("forecast", run, series, "--seed", 2).out != printed
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert list(rows[0]) == ["date", "series", "mean", "q0.1", "q0.5", "q0.9"]
    assert [row["date"] for row in rows] == [f"2024-08-{day:02}" for day in range(28, 32)] + [
        "2024-09-01",
        "2024-09-02",
    ]
    assert all(float(row["q0.1"]) < float(row["q0.5"]) < float(row["q0.9"]) for row in rows)
    out = tmp_path / "forecast.csv"
    assert command("forecast", run, series, "--seed", 1, "--out", out).err == f"{out}: 6 rows (seed 1)\n"
    assert out.read_text() == printed


@pytest.mark.parametrize(
    ("form", "dates"), [("%Y-%m", ["1953-01", "1953-02"]), ("%Y-%m-%d", ["1953-01-01", "1953-02-01"])]
)
def test_months_are_written_as_the_file_writes_them(command, ok, tmp_path, form, dates):
    months = [datetime(1945 + n // 12, n % 12 + 1, 1).strftime(form) for n in range(96)]
    path = tmp_path / "passengers.csv"
    path.write_text("date,sold\n" + "".join(f"{month},{n % 12 + n}\n" for n, month in enumerate(months)))
    given = ("--task", "forecast", "--horizon", 2, "--hidden-size", 4, "--steps", 2, "--out", tmp_path / "run")
    ok("train", path, *given)
    rows = list(csv.DictReader(io.StringIO(command("forecast", tmp_path / "run", path, "--paths", 4).out)))
    assert [row["date"] for row in rows] == dates


def test_days_with_a_zone_go_on_with_the_next_day(command, ok, tmp_path):
    """A day at 00:00+02:00 was that before in UTC: the first forecast had the date of the last row."""
    path, run = tmp_path / "days.csv", tmp_path / "run"
    days = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(120)]
    path.write_text("date,v\n" + "".join(f"{day:%Y-%m-%dT00:00:00+02:00},{day.day}\n" for day in days))
    given = ("--task", "forecast", "--horizon", 2, "--hidden-size", 4, "--steps", 2, "--out", run)
    ok("train", path, *given)
    rows = list(csv.DictReader(io.StringIO(command("forecast", run, path, "--paths", 4).out)))
    assert [row["date"] for row in rows] == ["2024-04-30", "2024-05-01"]
    for start in ("2024-04-25", "2024-04-25T00:00:00+02:00"):
        evaluated = command("evaluate", run, path, "--start", start, "--paths", 4, "--json").out
        assert json.loads(evaluated)["first_row"] == 116


def test_few_rows_are_named_without_the_file_that_they_were_written_to(ok, run, tmp_path, monkeypatch):
    """Of standard input, the note named a temporary file."""
    header, *rows = lines()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join([header, *rows[-11:]]).encode())))
    told = ok("forecast", run, "-", "--paths", 9).err.splitlines()
    assert "the shortest series has 5 rows, but the model reads 8 back: add earlier rows" in told


def test_all_paths_come_as_json(command, run, series):
    outcome = command("forecast", run, series, "--seed", 1, "--paths", 30, "--json")
    records = [json.loads(line) for line in outcome.out.splitlines()]
    for record in records:
        assert (record["series"], len(record["paths"])) == ("heat", 30)
        assert record["mean"] == pytest.approx(sum(record["paths"]) / 30, rel=1e-5)
        assert record["q0.1"] < record["q0.5"] < record["q0.9"]
    assert [record["date"] for record in records[::5]] == ["2024-08-28", "2024-09-02"]
    assert json.loads(outcome.err) == {"seed": 1, "paths": 30}


def test_a_column_of_dates_may_have_the_name_of_another_column(command, ok, tmp_path):
    path, run = tmp_path / "days.csv", tmp_path / "run"
    rows = list(lines(60, 0))
    path.write_text("\n".join(["mean,heat,wind", *rows[1:]]) + "\n")
    small = ("--task", "forecast", "--target", "heat", "--horizon", 2, "--steps", 2, "--hidden-size", 4, "--out", run)
    ok("train", path, *small)
    (first, _) = map(json.loads, command("forecast", run, path, "--json").out.splitlines())
    assert first["time"] == "2024-03-01"
    assert isinstance(first["mean"], float)


def test_a_forecast_is_drawn_as_an_image(ok, run, series, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "forecast.png"
    ok("forecast", run, series, "--plot", out)
    assert out.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["forecast.png"]


def test_an_evaluation_begins_where_it_is_told(command, run, series):
    held_out = json.loads(command("evaluate", run, series, "--json").out)
    assert (held_out["origins"], held_out["first_row"]) == (4, 217)
    for start in ("2024-08-06", "219"):
        told = json.loads(command("evaluate", run, series, "--start", start, "--json").out)
        assert (told["origins"], told["first_row"]) == (3, 219)


def test_an_evaluation_compares_with_naive_forecasts(command, run, series):
    scores = json.loads(command("evaluate", run, series, "--json").out)["scores"]
    naive = ["persistence", "persistence with its errors", "seasonal-naive", "seasonal-naive with its errors"]
    assert [row["forecast"] for row in scores] == ["model", *naive]
    lines = command("evaluate", run, series).out.splitlines()
    assert lines[-2].startswith("measured: exact")
    assert lines[-1].startswith("rows 1 to 216 are skipped")
    shown = [line.split() for line in lines if line.startswith("  heat ")]
    assert len(shown) == len(scores)
    for cells, row in zip(shown, scores, strict=True):
        name = row["forecast"].split()
        assert cells[1 : 1 + len(name)] == name
        assert cells[1 + len(name) :][:3] == [f"{row[score]:.4f}" for score in ("crps", "rmse", "mae")]


def test_large_values_keep_the_digits_in_which_they_differ(command, ok, tmp_path):
    """All values of a series around 123456789 were written as 1.23457e+08."""
    path, run = tmp_path / "meter.csv", tmp_path / "run"
    path.write_text("reading\n" + "".join(f"{123456789 + n * 7919 % 101}\n" for n in range(120)))
    small = ("--task", "forecast", "--horizon", 3, "--steps", 2, "--hidden-size", 4, "--out", run)
    ok("train", path, *small)
    rows = list(csv.DictReader(io.StringIO(command("forecast", run, path, "--seed", 1).out)))
    exact = [json.loads(line) for line in command("forecast", run, path, "--seed", 1, "--json").out.splitlines()]
    for row, record in zip(rows, exact, strict=True):
        mean = sum(record["paths"]) / len(record["paths"])
        assert float(row["mean"]) == pytest.approx(mean, rel=0, abs=0.1)  # a thousandth of 100
        assert float(row["q0.1"]) == pytest.approx(quantiles_of_samples(record["paths"], [0.1])[0], rel=0, abs=0.1)


def test_several_series_without_dates(command, ok, tmp_path, capsys):
    path = tmp_path / "rates.txt"
    path.write_text("".join(f"{math.sin(n):.4f},{n * 7919 % 101}\n" for n in range(120)))
    asked = ("train", path, "--task", "forecast", "--target", "all", "--horizon", 5)
    ok(*asked, "--steps", 3, "--hidden-size", 8, "--out", tmp_path / "run")
    rows = list(csv.DictReader(io.StringIO(command("forecast", tmp_path / "run", path).out)))
    assert [(row["row"], row["series"]) for row in rows[4:6]] == [("125", "column1"), ("121", "column2")]
    ok("info", tmp_path / "run")


def test_info_tells_what_a_run_is(command, run):
    told = command("info", run).out
    assert "heat, 6 rows ahead from 56" in told
    assert json.loads(command("info", run, "--json").out)["task"] == "forecast"


def test_inspection_tells_what_is_known_from_the_past_and_in_advance(command, ok, refused, series, tmp_path):
    out = tmp_path / "run"
    arguments = ("--out", out, "--steps", 60, "--hidden-size", 16, "--learning-rate", 0.01, "--no-linear")
    ok("train", series, *ASKED, *arguments)
    found = json.loads(command("inspect", out, "--json").out)
    assert found["origins"] == 4
    assert [past["rows"] for past in found["past"]] == [8, 20, 32, 56]
    assert found["past"][-1]["nats_per_value"] == found["nats_per_value"]
    assert set(found["known"]) == {"wind", "day of week"}
    assert found["known"]["day of week"] > 0.01  # heat goes with the week
    printed = command("inspect", out, series, "--origins", 3).out.splitlines()
    assert printed[0].startswith("LSTM 16: 3 forecasts of 6 rows")
    assert any(line.startswith("without wind") for line in printed)
    page = (out / "report.html").read_text()
    assert all(part in page for part in ("What the past tells", "without", "day of week", "chainrule inspect"))
    assert "--origins" in refused("inspect", out, "--origins", 0)


def test_what_cannot_be_read_is_one_line_and_leaves_nothing(refused, series, run, tmp_path):
    broken, lines = tmp_path / "broken.csv", series.read_text().splitlines()
    for changed, message in (([*lines[:5], "2024-01-05,12.5", *lines[5:]], "broken.csv line 6: expected 3 cells"),):
        broken.write_text("\n".join(changed))
        assert message in refused("train", broken, *ASKED, "--out", tmp_path / "out")
        assert message in refused("forecast", run, broken, "--out", tmp_path / "out.csv")
        assert [path.name for path in tmp_path.iterdir()] == ["broken.csv"]


def test_a_missing_column_is_named_with_those_that_are_there(refused, series, tmp_path):
    line = refused("train", series, "--task", "forecast", "--target", "cold", "--out", tmp_path / "out")
    assert f"--target: {series} has no column 'cold' (columns: date, heat, wind)" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("forecast", "--quantiles", "0,1"), "--quantiles: expected numbers between 0 and 1"),
        (("forecast", "--horizon", 7), "expected 7 rows after the last value with wind filled in"),
        (("forecast", "--plot", "forecast.txt"), "expected a name that ends in .png"),
        (("evaluate", "--start", "2030-01-01"), "--start: expected a date of"),
        (("evaluate", "--start", 3), "--start: expected a row from 8 on"),
        (
            ("evaluate", "--start", 216),
            "from 217 on, got row 216: rows 1 to 216 are skipped, as the run was trained on dates",
        ),
        (("evaluate", "--start", 237), "choose an earlier --start"),
    ],
)
def test_arguments_out_of_range_are_named(refused, run, series, arguments, message):
    verb, *rest = arguments
    assert message in refused(verb, run, series, *rest)


def test_quantiles_are_sorted_and_single():
    assert parse_quantiles("0.5,0.9,0.5") == [0.5, 0.9]


def test_a_covariate_that_is_known_up_to_the_present_is_read_a_horizon_late(ok, refused, tmp_path):
    """Heat is what the wind was six days ago: the future's wind is not asked for."""
    noise, rows = random.Random(0), ["date,heat,wind"]
    wind = [noise.gauss(0, 1) for _ in range(240)]
    for day in range(240):
        heat = wind[day - 6] + noise.gauss(0, 0.05)
        rows.append(f"{datetime(2024, 1, 1) + timedelta(day):%Y-%m-%d},{heat:.3f},{wind[day]:.3f}")
    path, out = tmp_path / "days.csv", tmp_path / "run"
    path.write_text("\n".join(rows))
    asked = ("--task", "forecast", "--target", "heat", "--horizon", 6, "--steps", 4, "--hidden-size", 4)
    told = ok("train", path, *asked, "--past-covariates", "wind", "--out", out, "--anchor", "centre").err
    assert "known in advance: day of week; read 6 rows late: wind" in told
    forecast = list(csv.DictReader(io.StringIO(ok("forecast", out, "--seed", 0).out)))
    errors = [float(row["mean"]) - value for row, value in zip(forecast, wind[-6:], strict=True)]
    assert max(map(abs, errors)) < 0.5
    assert "--horizon: expected at most 6" in refused("forecast", out, "--horizon", 7)

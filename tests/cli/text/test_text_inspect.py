import io
import json
import math
import sys
from contextlib import redirect_stdout

import pytest
import torch

from chainrule.diagnostics import inspect_recurrence
from chainrule.models import Ensemble
from chainrule.training import save_weights
from chainrule_app.cli.main import main
from chainrule_app.tasks import open_run
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.tasks.text.run import TextRun

SMALL = ["--rows", 2, "--steps", 16]


def figures(outcome) -> dict:
    assert outcome.status == 0, outcome
    assert outcome.out.count("\n") == 1
    return json.loads(outcome.out)


@pytest.fixture
def page(tmp_path):
    return tmp_path / "page.html"


@pytest.fixture(scope="module")
def inspected(runs, tmp_path_factory):
    """The figures and the page of the stream."""
    page, out = tmp_path_factory.mktemp("inspected") / "page.html", io.StringIO()
    with redirect_stdout(out):
        assert main(["inspect", str(runs / "stream"), "--out", str(page), *map(str, SMALL), "--json"]) == 0
    return json.loads(out.getvalue()), page.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["stream", "lines", "words", "bytes"])
def test_a_table_is_printed_and_a_page_written(ok, runs, page, kind):
    outcome = ok("inspect", runs / kind, "--out", page, *SMALL)
    assert outcome.err == ""
    for part in (
        "held-out text of log.txt",
        "gradient reach",
        "memory, by gradients",
        "update gate",
        "layer 1: gradients",
        str(page),
    ):
        assert part in outcome.out
    assert "log" in page.read_text(encoding="utf-8").split("<h2>Surprise")[1]


def test_the_figures_are_those_of_the_library(runs, inspected):
    shown, _ = inspected
    run = open_run(runs / "stream")
    x = torch.tensor([row["symbols"] for row in shown["rows"]])
    expected = inspect_recurrence(run.model().network, x)
    (layer,) = shown["layers"]
    assert layer["delta_last"] == pytest.approx(expected.layers[0].delta_last.tolist(), rel=1e-5)
    assert layer["verdict"] == {
        "rule": expected.layers[0].verdict.rule,
        "sentence": expected.layers[0].verdict.sentence,
    }
    bits = [bits for row in shown["rows"] for bits in row["bits"]]
    assert bits == pytest.approx(expected.surprise.flatten().tolist(), rel=1e-5)
    assert shown["bits_per_element"] == pytest.approx(sum(bits) / len(bits), rel=1e-5)
    assert (shown["elements"], shown["unknown"], shown["nonfinite"]) == (32, 0, [])


def test_infinite_figures_become_null(command, runs, page):
    shown = figures(command("inspect", runs / "stream", "--out", page, "--rows", 1, "--steps", 3, "--json"))
    assert "Infinity" not in json.dumps(shown)
    assert shown["layers"][0]["reach"] is None  # three steps are too few for a gradient to fade
    assert math.isfinite(shown["layers"][0]["growth"])


def test_the_same_seed_gives_the_same_page_and_another_may_not(command, runs, page, inspected):
    asked = ["inspect", runs / "stream", "--out", page, *SMALL]
    command(*asked)
    assert page.read_text(encoding="utf-8") == inspected[1]
    command(*asked, "--seed", 1)
    assert page.read_text(encoding="utf-8") != inspected[1]


def test_a_file_is_read_in_place_of_the_held_out_text(command, runs, page, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("line 3 of the ☃ café log\nnothing else\n", encoding="utf-8")
    asked = ["--out", page, "--json", "--steps", 10]
    shown = figures(command("inspect", runs / "stream", tmp_path / "a.txt", *asked))
    assert "".join(part for row in shown["rows"] for part in row["text"]).startswith(
        "line␣3␣of␣the␣<unk>␣café␣log\\nnothing"
    )
    assert shown["unknown"] == 1
    assert "1 of the characters were never seen" in page.read_text(encoding="utf-8")
    assert {len(row["symbols"]) for row in shown["rows"]} == {9}  # 38 symbols: 4 rows of 9, none left out but two
    lines = figures(command("inspect", runs / "lines", tmp_path / "a.txt", *asked, "--rows", 2))
    assert [row["text"][:4] for row in lines["rows"]] == [list("line"), list("noth")]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "a.txt").read_bytes())))
    piped = figures(command("inspect", runs / "stream", "-", *asked))
    assert piped["rows"] == shown["rows"]
    assert piped["text"] == "standard input"


def test_only_the_beginning_of_a_long_file_is_read(command, runs, page, tmp_path):
    with (tmp_path / "long.txt").open("wb") as file:
        file.write(b"line 1\n" * 400_000 + b"\xff")  # what lies further would be refused
    shown = figures(command("inspect", runs / "stream", tmp_path / "long.txt", "--out", page, *SMALL, "--json"))
    assert shown["elements"] == 32


def test_the_page_goes_to_the_run_and_shows_what_clipping_did(command, ok, run_copy):
    records = [{"event": "step", "step": step, "gradient_norm": float(step)} for step in (1, 2, 3, 4)]
    (run_copy / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    shown = figures(command("inspect", run_copy, *SMALL, "--json"))
    assert shown["clipping"] == {"limit": 1.0, "steps": 4, "logged": 4, "share": 0.75, "factor": pytest.approx(13 / 36)}
    page = (run_copy / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "75.0% of the 4 steps" in page
    ok("info", run_copy)


def test_a_run_without_metrics_says_that_nothing_is_recorded(inspected):
    shown, page = inspected
    assert shown["clipping"] is None
    assert "No step of training is recorded" in page


def test_no_command_of_a_text_reaches_the_terminal(ok, runs, page, tmp_path):
    file = tmp_path / "a\x1b[31m.txt"
    file.write_text("line \x1b[31m 1\n" * 4)
    outcome = ok("inspect", runs / "bytes", file, "--out", page, *SMALL)
    assert "\x1b" not in outcome.out
    assert "\x1b" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--rows", 0], ["--rows", "from 1 to 256", "0"]),
        (["--rows", 257], ["--rows", "257"]),
        (["--steps", 1], ["--steps", "from 2", "1"]),
        (["--rows", 200, "--steps", 9000], ["65536", "1800000"]),
        (["--seed", -1], ["--seed", "-1"]),
        (["--out", "page.txt"], ["page.txt", ".html"]),
        (["--out", "nowhere/page.html"], ["nowhere", "create it first"]),
    ],
)
def test_options_out_of_range_get_one_line(refused, runs, options, parts, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused("inspect", runs / "stream", *options)
    for part in parts:
        assert part in line
    assert not list(tmp_path.iterdir())


def test_places_that_cannot_be_written_get_one_line(refused, runs, tmp_path):
    (tmp_path / "taken.html").mkdir()
    assert "directory" in refused("inspect", runs / "stream", "--out", tmp_path / "taken.html")
    text = tmp_path / "text.html"
    text.write_text("line 1\nline 2\n")
    assert "data to read" in refused("inspect", runs / "stream", text, "--out", text)
    assert "cannot be written" in refused("inspect", runs / "stream", "--out", "/proc/page.html", *SMALL)
    assert text.read_text() == "line 1\nline 2\n"


def test_a_page_is_whole_or_as_it_was(refused, runs, page, monkeypatch):
    page.write_text("before")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    assert "No space left" in refused("inspect", runs / "stream", "--out", page, *SMALL)
    assert page.read_text() == "before"
    assert [path.name for path in page.parent.iterdir()] == [page.name]


@pytest.mark.parametrize("kind", ["stream", "lines"])
@pytest.mark.parametrize(("content", "part"), [("", "two symbols"), ("l", "two symbols")])
def test_a_text_shorter_than_two_steps_gets_one_line(refused, runs, tmp_path, kind, content, part):
    (tmp_path / "short.txt").write_text(content)
    if (kind, content) == ("lines", "l"):
        content = "\n\n"
        (tmp_path / "short.txt").write_text(content)  # lines that hold their end alone
    assert part in refused("inspect", runs / kind, tmp_path / "short.txt", "--out", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_what_is_no_text_or_no_run_gets_one_line(refused, runs, run_copy, tmp_path):
    page = tmp_path / "page.html"
    assert "no such file" in refused("inspect", runs / "stream", tmp_path / "nowhere.txt", "--out", page)
    assert "no such run" in refused("inspect", tmp_path / "nowhere")
    (tmp_path / "latin.txt").write_bytes("café\n".encode("latin-1"))
    assert "invalid UTF-8" in refused("inspect", runs / "stream", tmp_path / "latin.txt", "--out", page)
    config = json.loads((run_copy / "config.json").read_text())
    (run_copy / "config.json").write_text(json.dumps(config | {"task": "images"}))
    assert "'images'" in refused("inspect", run_copy, "--out", page)


def test_a_model_without_recurrence_gets_one_line(refused, runs, page, monkeypatch):
    monkeypatch.setattr(TextRun, "model", lambda self, device="cpu": torch.nn.Linear(2, 2))
    line = refused("inspect", runs / "stream", "--out", page)
    assert "recurrence" in line
    assert str(runs / "stream") in line


def test_of_an_average_the_network_or_the_first_member_is_inspected(runs):
    model, x = open_run(runs / "stream").model(), torch.zeros(1, 4, dtype=torch.long)
    expected = inspect_recurrence(model.network, x)
    for average in (model, Ensemble([model.network])):
        found = inspect_recurrence(average, x)
        torch.testing.assert_close(found.surprise, expected.surprise)
        torch.testing.assert_close(found.flow.delta, expected.flow.delta)


def test_weights_that_are_not_finite_get_one_line(refused, run_copy):
    run = open_run(run_copy)
    model = run.model()
    model.network.recurrent.weight_hh_l0.data[0, 0] = float("nan")
    save_weights(run_copy / WEIGHTS, model, {})
    line = refused("inspect", run_copy)
    assert "weight_hh_l0 holds a number that is not finite" in line
    assert "module:" not in line


def test_without_matplotlib_one_line_says_how_to_install_it(refused, runs, page, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr("chainrule.diagnostics.inspect_recurrence", pytest.fail)  # it is said before the work
    assert "pip install matplotlib" in refused("inspect", runs / "stream", "--out", page)
    assert not page.exists()

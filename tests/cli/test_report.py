"""`chainrule report RUN`: a page about training, and the command on it that trains the same run."""

import html
import json
import shlex
import shutil
from dataclasses import replace

import numpy as np
import pytest
from small_data import SMALL_SIZES, WRITERS

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.tasks import TASKS, open_run
from chainrule_app.tasks.config import Duration, InitialWeights
from chainrule_app.tasks.parts import parts_of
from chainrule_app.tasks.train_command import train_command

TEXT = ("--steps", 12, "--hidden-size", 8, "--batch-size", 2, "--chunk-length", 8, "--kneser-ney-order", 0)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    text = tmp_path_factory.mktemp("whole") / "<script>.txt"
    text.write_text("say <script>alert(1)</script> & go\n" * 30)
    assert main(["train", str(text), "--out", str(text.with_name("run")), *map(str, TEXT)]) == 0
    return text.with_name("run")


@pytest.fixture
def trained(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def test_a_page_has_curves_samples_data_and_options_and_nothing_that_runs(ok, trained):
    outcome = ok("report", trained)
    assert outcome.out.endswith(f"page: {trained / 'training.html'}\n")
    page = (trained / "training.html").read_text()
    for part in ("Training and validation", "Learning rate", "The gradient in training", "Throughput"):
        assert f"<figcaption>{part}" in page
    for name in ("curves", "samples", "data", "options", "again"):
        assert f'id="{name}"' in page
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert not (trained / "report.html").exists()  # the page of inspect is another


def test_a_page_names_the_whole_model_and_marks_validations_on_a_part(ok, trained):
    path = trained / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    first = next(record for record in records if record["event"] == "validation")
    whole = first["elements"]
    first["elements"] //= 2
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    ok("report", trained)
    page = (trained / "training.html").read_text()
    assert f"part of the held-out data, {first['elements']:,} of {whole:,} symbols" in page
    run = open_run(trained)
    assert f"<td>{html.escape(run.recipe)}</td>" in page
    assert run.recipe.startswith("LSTM 8")
    parts = parts_of(run.model())
    assert all(f"<td>{count:,}</td>" in page for count in parts.values())
    path.write_text("".join(json.dumps(record) + "\n" for record in records if record["event"] == "validation"))
    ok("report", trained)  # as the runs of `chainrule demo` have none of steps
    assert "Learning rate" not in (trained / "training.html").read_text()


def test_figures_are_json_and_a_notebook_shows_the_page(command, trained):
    told = json.loads(command("report", trained, "--json", "--out", trained.parent / "page.html").out)
    assert (told["steps"], told["task"], told["validations"]) == (12, "text", 6)
    report = chainrule.load(trained).report()
    assert report.findings["best"]["nats_per_element"] == told["best"]["nats_per_element"]
    head, source, _ = report._repr_html_().split('"', 2)
    assert head == "<iframe srcdoc="
    assert html.unescape(source) == report.page  # once: it was escaped twice, and a notebook showed the source
    assert report.page.startswith("<!doctype html>")
    report.save(trained.parent / "saved.html")
    assert (trained.parent / "saved.html").read_text() == (trained.parent / "page.html").read_text()


def again(command, run, out):
    """Train with the command that the report, `info` and `runs` show, in another folder."""
    facts = [json.loads(command(verb, run, "--json").out) for verb in ("report", "info", "runs")]
    shown = {fact["command"] for fact in facts}
    assert len(shown) == 1, shown
    words = shlex.split(shown.pop())
    assert words[-2:] == ["--out", str(run)]
    assert main([*words[1:-1], str(out)]) == 0
    assert (out / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    return words


def test_the_command_on_the_page_trains_the_same_bits(command, trained, tmp_path):
    again(command, trained, tmp_path / "again")


def test_the_command_for_a_table_trains_the_same_bits(command, ok, tmp_path):
    rows = "".join(f"{number % 3},{'yes' if number % 2 else 'no'},x y\n" for number in range(80))
    (tmp_path / "my rows.csv").write_text("size,kind,name of it\n" + rows)
    ok("train", tmp_path / "my rows.csv", "--out", tmp_path / "run", "--steps", 4)
    again(command, tmp_path / "run", tmp_path / "again")
    assert "yes" in (tmp_path / "run" / "samples.jsonl").read_text()


@pytest.mark.parametrize("task", TASKS)
def test_the_command_for_a_budget_names_the_steps_and_every_option(planned, tmp_path, task):
    """It named the budget, by which another machine takes other sizes, and left out options at their defaults."""
    small = SMALL_SIZES["text"].split() if task == "text" else ()  # else several sizes are compiled and timed
    planned(*WRITERS[task](tmp_path), "--budget", "5s", "--out", tmp_path / "run", *small)
    run = open_run(tmp_path / "run")
    timed = run.config.duration.budget is not None  # else the plan found that fewer passes than fit are enough
    assert ("--budget 5" if timed else "--epochs ") in train_command(run)
    assert not [step for step in run.next_steps() if " score " in step and run.source in step]  # it was trained on
    (run.path / "metrics.jsonl").write_text('{"event": "step", "step": 7, "gradient_norm": 1.0}\n')
    words = shlex.split(train_command(run))
    assert words[-2:] == ["--out", str(run.path)]
    planned(*words[2:-1], tmp_path / "again")
    config, again = run.config, open_run(tmp_path / "again").config
    assert (config.data, config.model, config.options) == (again.data, again.model, again.options)
    assert again.duration == (Duration(steps=7) if timed else replace(run.config.duration, most_seconds=None))
    ways = {name: getattr(config.computation, name) for name in ("threads", "precision", "backend")}
    assert replace(config.training, **ways) == again.training


def test_the_command_repeats_initial_weights_missing_values_and_words(planned, tmp_path):
    planned(*WRITERS["table"](tmp_path), "--steps", 1, "--out", tmp_path / "old", "--clip-norm", "none")
    run = open_run(tmp_path / "old")
    assert "--clip-norm none" in train_command(run)
    data = replace(run.config.data, types="first=skip,second=categorical")
    run.config = replace(run.config, sources={"source": "data (in memory)", "validation": None}, data=data)
    run.config = replace(run.config, init=InitialWeights("runs/my old", "0"))
    words = shlex.split(train_command(run))
    assert words[2] == "DATA"
    run.config = replace(run.config, sources={"source": "a b.csv", "validation": None})
    assert shlex.split(train_command(run))[2] == "a b.csv"
    assert "first=skip,second=categorical" in words
    assert words[words.index("--from") + 1] == "runs/my old"


def test_images_drawn_at_validations_are_on_the_page(ok, tmp_path):
    images = np.random.default_rng(0).integers(0, 2, (40, 4, 4), dtype=np.uint8) * 255
    np.save(tmp_path / "images.npy", images)
    flags = ("--model", "pixelcnn", "--steps", 4, "--batch-size", 4)
    ok("train", tmp_path / "images.npy", "--out", tmp_path / "run", *flags)
    ok("report", tmp_path / "run")
    assert 'alt="samples at step 4"' in (tmp_path / "run" / "training.html").read_text()
    (tmp_path / "run" / "samples.jsonl").write_text('{"step": 1, "text": "", "png": "no picture"}\nno JSON\n')
    ok("report", tmp_path / "run")


def test_a_run_without_samples_or_training_is_reported_or_refused(ok, refused, trained, runs, tmp_path):
    (trained / "samples.jsonl").unlink()
    (trained / "timings.jsonl").write_text("no JSON\n")
    ok("report", trained)
    assert 'id="samples"' not in (trained / "training.html").read_text()
    shutil.copytree(runs / "stream", tmp_path / "untrained")
    assert "train the run first" in refused("report", tmp_path / "untrained")
    assert "ends in .html" in refused("report", trained, "--out", tmp_path / "page.txt")

"""Run directories that someone changed: one line, no traceback."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

import chainrule
from chainrule.tensor_files import read_tensors, write_tensors
from chainrule_app.cli.main import main
from chainrule_app.tasks.run_directory import lock_run

TINY = ["--hidden-size", 4, "--batch-size", 2, "--chunk-length", 8, "--validation-fraction", 0.2, "--steps", 2]


@pytest.fixture(scope="module")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    assert main(["train", str(text_file), *map(str, TINY), "--out", str(out), "--model", "gru"]) == 0
    return out


@pytest.fixture
def run(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


def last_line(command: Callable, *arguments: object) -> str:
    outcome = command(*arguments)
    assert outcome.status == 2, outcome
    (line,) = [line for line in outcome.err.splitlines() if line.startswith("chainrule: ")]
    assert outcome.err.endswith(f"{line}\n")
    assert len(line) < 300
    return line


def test_symbols_out_of_range_are_told(command, run):
    path = run / "data" / "train.tokens"
    path.write_bytes(b"\xff" * path.stat().st_size)
    for verb in (["train", "--resume", "--steps", 9, "--out", run], ["inspect", run]):
        assert "train.tokens: damaged (expected symbols from 0 to" in last_line(command, *verb)


def test_lines_that_do_not_follow_each_other_are_told(command, text_file, tmp_path):
    run = tmp_path / "run"
    command("train", text_file, *TINY, "--out", run, "--reading", "lines")
    path = run / "data" / "train.lines"
    path.write_bytes(np.flip(np.fromfile(path, "<i8")).tobytes())
    assert "train.lines: damaged (expected" in last_line(command, "train", "--resume", "--steps", 9, "--out", run)


def nested(state):
    for _ in range(200):
        state = {"list": [state]}
    return state


def first(tensors, beginning):
    return next(name for name in tensors if name.startswith(beginning) and tensors[name].is_floating_point())


CHANGES = {
    "a state of another shape": lambda tensors, _: tensors.update({first(tensors, "state"): torch.zeros(2, 1, 5)}),
    "several steps": lambda tensors, _: tensors.update({first(tensors, "optimiser.step."): torch.zeros(3)}),
    "no moment": lambda tensors, _: tensors.pop(first(tensors, "optimiser.exp_avg.")),
    "an unknown state": lambda _, record: record.update(state={"tuple": ["nowhere"]}),
    "a deep state": lambda _, record: record.update(state=nested(record["state"])),
    "no position": lambda _, record: record.pop("position"),
    "a step that is text": lambda _, record: record["position"].update(step="2"),
    "a list as the best": lambda _, record: record["position"].update(best=[1.0]),
    "no options": lambda _, record: record.update(options=None),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_checkpoint_changed_and_sealed_again_is_told(command, run, change):
    path = run / "checkpoint.safetensors"
    tensors, record = read_tensors(path)
    CHANGES[change](tensors, record)
    write_tensors(path, tensors, record)
    assert "checkpoint" in last_line(command, "train", "--resume", "--steps", 9, "--out", run)


@pytest.mark.parametrize("record", [{"kind": "weights"}, {"kind": "weights", "about": []}, {"kind": []}, {}])
def test_weights_sealed_with_another_record_are_told(command, run, record):
    path = run / "model.safetensors"
    write_tensors(path, read_tensors(path)[0], record)
    assert "model.safetensors" in last_line(command, "sample", run)


@pytest.mark.parametrize("line", ["5", '{"event": "validation"}'])
def test_odd_lines_of_metrics_are_told_and_dropped_on_resume(command, ok, run, line):
    path = run / "metrics.jsonl"
    whole = path.read_text()
    path.write_text(f"{line}\n{whole}")
    for verb in ("info", "inspect"):
        assert "metrics.jsonl: line 1" in last_line(command, verb, run)
    ok("train", "--resume", "--steps", 2, "--out", run)
    assert path.read_text() == whole


def test_a_validation_without_its_figures_is_told(command, run):
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        record.pop("elements", None)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert "metrics.jsonl: the best validation has no figure elements" in last_line(command, "info", run)


def test_a_perplexity_that_no_number_holds_is_shown(command, run):
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(r | {"nats_per_element": 800.0, "perplexity": None}) + "\n" for r in records))
    assert "perplexity inf" in command("info", run).out


def test_pixels_beyond_the_levels_are_told(command, ok, tmp_path):
    np.savez(tmp_path / "p.npz", images=np.random.default_rng(0).integers(0, 256, (12, 5, 6)).astype(np.uint8))
    small = ["--channels", 6, "--layers", 1, "--first-kernel-size", 3, "--batch-size", 4, "--bits", 2, "--steps", 1]
    ok("train", tmp_path / "p.npz", *small, "--out", tmp_path / "run")
    (path,) = (tmp_path / "run" / "data").glob("train.pixels")
    path.write_bytes(b"\t" * path.stat().st_size)
    line = last_line(command, "train", "--resume", "--steps", 3, "--out", tmp_path / "run")
    assert "expected numbers from 0 to 3, got 9 to 9" in line


@pytest.fixture
def folder(whole, runs, tmp_path):
    home = tmp_path / "all"
    shutil.copytree(runs / "words", home / "deeper" / "words")
    shutil.copytree(whole, home / "trained")
    return home


def test_a_row_tells_task_model_data_size_time_and_the_best_figure(command, folder):
    records = [json.loads(line) for line in command("runs", folder, "--json").out.splitlines()]
    trained = next(record for record in records if record["run"].endswith("trained"))
    told = json.loads(command("info", folder / "trained", "--json").out)
    assert (trained["task"], trained["model"], trained["data"]) == ("text", "gru", "log.txt")
    assert trained["parameters"] == told["parameters"]
    assert trained["best"] == pytest.approx(told["best"]["nats_per_element"])
    assert trained["unit"] == "nats per symbol, exact"
    assert 0 < trained["minutes"] < 5
    assert trained["state"] == "finished"
    words = next(record for record in records if record["run"].endswith("words"))
    assert (words["state"], words["best"]) == ("untrained", None)
    header, *rows = command("runs", folder, "--csv").out.splitlines()
    assert header == "run,task,model,data,parameters,minutes,best,unit,state,date"
    assert abs(datetime.fromisoformat(trained["date"]) - datetime.now()) < timedelta(hours=1)
    assert len(rows) == 2


def test_a_run_that_was_to_take_more_steps_is_interrupted(folder):
    config = folder / "trained" / "config.json"
    content = json.loads(config.read_text())
    content["training"]["steps"] = 9
    config.write_text(json.dumps(content))
    assert chainrule.runs(folder / "trained")["state"] == ["interrupted"]


def test_a_run_that_another_process_trains_is_running(folder):
    with lock_run(folder / "trained"):
        assert chainrule.runs(folder / "trained")["state"] == ["running"]
    assert chainrule.runs(folder / "trained")["state"] == ["finished"]


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "model.safetensors", "checkpoint.safetensors"])
def test_a_broken_run_is_one_line_and_hides_no_other(ok, folder, name):
    (folder / "trained" / name).write_text("no JSON\n")
    outcome = ok("runs", folder)
    _, sound, broken = outcome.out.splitlines()
    assert "untrained" in sound
    assert f"broken: {name}: " in broken


def test_better_runs_of_the_same_data_come_first(command, folder):
    for name, nats in (("worse", 2.5), ("better", 0.5)):
        shutil.copytree(folder / "trained", folder / name)
        record = {"event": "validation", "step": 2, "elements": 9, "nats_per_element": nats, "bits_per_element": nats}
        (folder / name / "metrics.jsonl").write_text(json.dumps(record | {"best": True}) + "\n")
    found = [Path(path).name for path in chainrule.runs(folder)["run"] if "deeper" not in path]
    assert found.index("better") < found.index("worse")


def test_a_folder_without_runs_is_refused_with_a_remedy(refused, tmp_path):
    assert "name the folder that holds them" in refused("runs", tmp_path)
    assert "no such folder" in refused("runs", tmp_path / "none")


def test_runs_are_listed_without_torch(folder):
    code = "import sys, chainrule; len(chainrule.runs(sys.argv[1])); print('torch' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
    assert answer.stdout == "False\n", answer.stderr

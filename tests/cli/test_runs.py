"""`chainrule runs` and `chainrule.runs`: the runs of a folder as a table, without torch."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import chainrule
from chainrule._app.tasks.run_directory import lock_run

TRAIN = ("train", "--hidden-size", 8, "--batch-size", 2, "--chunk-length", 8, "--kneser-ney-order", 0)


@pytest.fixture
def folder(ok, runs, text_file, tmp_path):
    home = tmp_path / "all"
    shutil.copytree(runs / "words", home / "deeper" / "words")
    ok(*TRAIN, text_file, "--steps", 2, "--model", "gru", "--out", home / "trained")
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
    assert header == "run,task,model,data,parameters,minutes,best,unit,state"
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

"""Run directories that someone changed: one line, no traceback."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from chainrule._app.cli.main import main
from chainrule.training._checkpoint import read_sealed, write_sealed

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
    tensors, record = read_sealed(path)
    CHANGES[change](tensors, record)
    write_sealed(path, tensors, record)
    assert "checkpoint" in last_line(command, "train", "--resume", "--steps", 9, "--out", run)


@pytest.mark.parametrize("record", [{"kind": "weights"}, {"kind": "weights", "about": []}, {"kind": []}, {}])
def test_weights_sealed_with_another_record_are_told(command, run, record):
    path = run / "model.safetensors"
    write_sealed(path, read_sealed(path)[0], record)
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

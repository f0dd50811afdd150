"""`chainrule demo`: the runs that come with the application."""

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import chainrule
from chainrule_app.cli.exchange import DEMO
from chainrule_app.serve.playground import about

NAMES = ["cities", "digits", "flowers", "manual", "tunes", "visitors"]


def test_the_runs_are_small_and_name_no_place_of_their_training():
    files = [path for path in DEMO.rglob("*") if path.is_file()]
    assert sorted(path.name for path in DEMO.iterdir()) == NAMES
    assert sum(path.stat().st_size for path in files) <= 3_000_000
    for path in files:
        assert not re.search(rb'"/|[A-Za-z]:\\\\', path.read_bytes()) or path.suffix not in (".json", ".jsonl"), path


@pytest.mark.parametrize("name", NAMES)
def test_a_run_opens_with_held_out_data(name):
    run = chainrule.load(DEMO / name)
    told = about(name, run, has_engine=run.task.name == "text")
    assert told["view"]
    assert told["best"] or run.task.name == "classify-images"
    assert told["examples"] or told["facts"].get("examples") or told["facts"].get("own")


def test_the_playground_is_served(tmp_path):
    command = [sys.executable, "-m", "chainrule", "demo", "--port", "0", "--no-open"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    ) as served:
        address = re.search(r"http://\S+/", served.stdout.readline()).group()
        try:
            with urllib.request.urlopen(f"{address}playground/runs") as answer:
                listed = answer.read().decode()
            assert all(f'"{name}"' in listed for name in NAMES)
        finally:
            served.terminate()
    assert list(Path(tmp_path).iterdir()) == []

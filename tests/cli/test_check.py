"""The whole `check` of a trained run of every task, at night. By day text/test_text_check.py checks a text run."""

import json

import pytest
from small_data import SMALL_SIZES, WRITERS


@pytest.mark.slow
@pytest.mark.parametrize("task", [task for task in WRITERS if task != "caption"])  # in caption/test_caption_verbs.py
def test_a_trained_run_of_every_task_keeps_the_contract(ok, tmp_path, task):
    data, *flags = WRITERS[task](tmp_path)
    run = tmp_path / "run"
    ok("train", data, *flags, *SMALL_SIZES[task].split(), "--steps", 3, "--out", run)
    rules = [json.loads(line) for line in ok("check", run, "--json").out.splitlines()]
    assert len(rules) >= 7
    assert all(rule["ok"] for rule in rules)

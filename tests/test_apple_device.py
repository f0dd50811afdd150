"""`device="mps"` for a task that needs float64: computed on the processor, and said in one line."""

import numpy as np
import pytest
import torch

import chainrule


@pytest.mark.parametrize("length", [{"steps": 1}, {"budget": "0.2s"}])
def test_a_table_falls_back_to_the_processor_with_one_line(length, monkeypatch, capsys):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    rows = np.random.default_rng(0).normal(size=(60, 2))
    run = chainrule.fit(rows, device="mps", hidden_size=8, **length)
    line = "mps has no float64, which the task table needs: computing on the CPU\n"
    assert capsys.readouterr().err.count(line) == 1
    assert run.config["training"]["device"] == "cpu"
    assert len(run.sample(3, device="mps", seed=0)) == 3
    assert capsys.readouterr().err.count(line) == 1

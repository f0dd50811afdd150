"""Models on other devices: the default one, Apple's, and a pretended one, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from by_day import by_day
from every_use import MODELS, uses

import chainrule

TESTS = Path(__file__).parent / "pretend"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["cuda", "mps"])  # the former has the few models that Apple's card refuses
def test_every_use_of_every_model_works_on_another_device(kind):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(TESTS)]
    run = subprocess.run(
        command, env={**os.environ, "PRETEND_DEVICE": kind}, capture_output=True, text=True, check=False, timeout=600
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]


FEW = ("RecurrentLM", "TransformerLM", "MADE", "PixelCNN", "WaveNet", "Seq2Seq", "TableMADE", "VAE")


@pytest.mark.parametrize("name", by_day(MODELS, *FEW))
def test_no_use_of_a_model_depends_on_the_default_device(name):
    model, arguments = MODELS[name]()
    model.eval()
    for what, use in uses(model, *arguments).items():
        torch.manual_seed(1)
        expected = use()
        torch.manual_seed(1)
        with torch.device("meta"):  # a tensor made on it has no values
            try:
                found = use()
            except (RuntimeError, NotImplementedError) as error:
                pytest.fail(f"{what}: {error}")
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True, msg=what)


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

"""What a user does, on a GPU: train, resume, score, sample, inspect, from Python and from a shell."""

import numpy as np
import pytest
import torch

import chainrule
from chainrule_app.cli.main import main

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LINE = "the cat sat on the mat and the dog sat on the log while it rained all day\n"
TEXT = LINE * 400


@pytest.mark.parametrize("options", [{}, {"model": "transformer"}, {"model": "min-gru"}], ids=str)
def test_a_text_is_learnt_scored_and_sampled(options):
    run = chainrule.fit(text=TEXT, steps=80, device="cuda", seed=0, **options)
    there, here = (run.score([LINE], device=device)["nats"][0] for device in ("cuda", "cpu"))
    assert there == pytest.approx(here, rel=2e-2)
    assert there < len(LINE) * 1.5
    assert len(run.sample(3, length=20, device="cuda")) == 3


def test_images_are_learnt_and_drawn():
    images = (np.random.default_rng(0).random((64, 8, 8)) < 0.3).astype(np.uint8) * 255
    run = chainrule.fit(images, steps=20, device="cuda", seed=0)
    assert len(run.sample(2, device="cuda")) == 2


def test_the_commands_run_there(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT)
    run = str(tmp_path / "run")
    train = ["train", str(tmp_path / "a.txt"), "--out", run, "--device", "cuda", "--seed", "0"]
    assert main([*train, "--steps", "40"]) == 0
    assert main(["train", "--out", run, "--resume", "--steps", "60"]) == 0
    for verb in (["score", run, str(tmp_path / "a.txt")], ["sample", run, "--number", "2"]):
        assert main([*verb, "--device", "cuda"]) == 0
    assert main(["inspect", run, str(tmp_path / "a.txt"), "--out", str(tmp_path / "page.html")]) == 0

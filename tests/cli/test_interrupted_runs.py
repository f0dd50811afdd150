"""A run that is interrupted in training and resumed is the run that was not."""

import pytest
from small_data import WRITERS

from chainrule.data import Batches, SeriesWindows

CASES = {  # each with what its batches draw at random
    "tag": (
        Batches,
        "--template-passes 1 --hidden-size 8 --embedding-size 8 --character-size 8 --dropout 0.3",
    ),
    "image": (Batches, "--binarise per-epoch --channels 6 --layers 1 --first-kernel-size 3 --batch-size 4"),
    "forecast": (SeriesWindows, "--hidden-size 8"),
    "sound": (Batches, "--channels 4 --skip-channels 8 --batch-size 4"),
    "music": (Batches, "--hidden-size 8 --batch-size 4"),
    "table": (Batches, "--hidden-size 8 --validation-fraction 0.2"),
    "classify": (Batches, "--hidden-size 4 --embedding-size 6 --batch-size 8"),
    "caption": (Batches, "--image-features 32 --hidden-size 8 --embedding-size 8"),
}


@pytest.mark.parametrize("task", CASES)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(command, ok, tmp_path, monkeypatch, task):
    kind, options = CASES[task]
    data, *flags = WRITERS[task](tmp_path)
    if task == "image":
        flags = []  # their bits would be drawn no more
    arguments = (data, *flags, *options.split(), "--steps", 12, "--validate-every", 4)
    ok("train", *arguments, "--out", tmp_path / "whole")
    at = kind.at

    def interrupted(self, step):
        if step == 7:
            raise KeyboardInterrupt
        return at(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "at", interrupted)
        assert command("train", *arguments, "--out", tmp_path / "parts").status == 130
    assert (tmp_path / "parts" / "checkpoint.safetensors").exists()  # it was in training, not before it
    ok("train", data, "--resume", "--out", tmp_path / "parts")
    whole, parts = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "parts"))
    assert whole == parts

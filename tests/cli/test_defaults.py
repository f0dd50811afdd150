"""Each model of each task trains with the options it has by itself."""

import pytest
from small_data import WRITERS

from chainrule.tasks import TASKS, open_run, task_class

CASES = [(task, model) for task in TASKS for model in task_class(task).MODELS]
BY_MUON = {"text", "image", "sound", "translate", "caption", "classify-images"}  # tasks, all their models but for
BY_ADAMW = {"sentence-vae", "autoencoder", "pixelcnn++"}


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_model_trains_with_its_defaults(command, tmp_path, task, model):
    data = WRITERS[task](tmp_path)
    outcome = command("train", *data, "--model", model, "--steps", 1, "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    by_muon = open_run(tmp_path / "run").config.training.optimiser == "muon"
    assert by_muon == (task in BY_MUON and model not in BY_ADAMW)

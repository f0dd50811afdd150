"""Each model of each task trains with the options it has by itself."""

import pytest
from small_data import WRITERS

from chainrule.tasks import TASKS, open_run, task_class

CASES = [(task, model) for task in TASKS for model in task_class(task).MODELS]
TRAINED_BY_MUON = {
    *((task, model) for task, model in CASES if task in {"text", "sound", "translate", "caption", "classify-images"}),
    ("image", "gated-pixelcnn"),
    ("image", "image-transformer"),
} - {("text", "sentence-vae")}


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_model_trains_with_its_defaults(command, tmp_path, task, model):
    data = WRITERS[task](tmp_path)
    outcome = command("train", *data, "--model", model, "--steps", 1, "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err
    by_muon = open_run(tmp_path / "run").config.training.optimiser == "muon"
    assert by_muon == ((task, model) in TRAINED_BY_MUON)

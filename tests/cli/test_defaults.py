"""Each model of each task trains with the options it has by itself."""

import pytest
from small_data import WRITERS

from chainrule.tasks import TASKS, task_class

CASES = [(task, model) for task in TASKS for model in task_class(task).MODELS]


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_model_trains_with_its_defaults(command, tmp_path, task, model):
    data = WRITERS[task](tmp_path)
    outcome = command("train", *data, "--model", model, "--steps", 1, "--out", tmp_path / "run")
    assert outcome.status == 0, outcome.err

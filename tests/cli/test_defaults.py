"""Each model of each task trains with the options it has by itself."""

import pytest
from small_data import WRITERS

from chainrule_app.tasks import TASKS, open_run, task_class

CASES = [(task, model) for task in TASKS for model in task_class(task).MODELS]
TASKS_BY_MUON = {"text", "image", "sound", "music", "translate", "caption", "classify-images", "forecast"}
MODELS_BY_ADAMW = {"autoencoder"}


@pytest.mark.parametrize(("task", "model"), CASES)
def test_a_model_trains_with_its_defaults(ok, tmp_path, task, model):
    data = WRITERS[task](tmp_path)
    ok("train", *data, "--model", model, "--steps", 1, "--out", tmp_path / "run")
    by_muon = open_run(tmp_path / "run").config.training.optimiser == "muon"
    assert by_muon == (task in TASKS_BY_MUON and model not in MODELS_BY_ADAMW)


ADAMW, MUON = ("--optimiser", "adamw"), ("--optimiser", "muon")


@pytest.mark.parametrize(
    ("task", "model", "said", "rate"),
    [
        ("sound", "wavenet", (), 0.012),
        ("sound", "wavenet", ADAMW, 0.003),
        ("sound", "wavenet", (*ADAMW, "--learning-rate", 0.5), 0.5),
        ("sound", "wavenet", ("--learning-rate", 0.5), 0.5),
        ("music", "rnn-made", (), 0.02),
        ("music", "rnn-made", ADAMW, 0.003),
        ("caption", "captioner", (), 0.004),
        ("caption", "captioner", ADAMW, 0.002),
        ("forecast", "lstm", (), 0.003),
        ("forecast", "gru", ADAMW, 0.002),
        ("classify-images", "cnn", (), 0.015),
        ("classify-images", "vit", (), 0.004),
        ("classify-images", "swin", ADAMW, 0.002),
        ("image", "vae", (), 0.01),
        ("image", "vae", ADAMW, 0.003),
        ("image", "autoencoder", (), 0.003),
        ("image", "autoencoder", MUON, 0.01),
        ("image", "gated-pixelcnn", ADAMW, 0.004),
        ("image", "pixelcnn++", (), 0.004),
        ("image", "pixelcnn++", ADAMW, 0.002),
        ("table", "made", MUON, 0.003),
    ],
)
def test_the_learning_rate_is_that_of_the_model_and_the_optimiser(planned, tmp_path, task, model, said, rate):
    planned(*WRITERS[task](tmp_path), "--model", model, "--steps", 1, "--out", tmp_path / "run", *said)
    training = open_run(tmp_path / "run").config.training
    assert training.learning_rate == rate
    assert "--optimiser" not in said or training.optimiser == said[1]

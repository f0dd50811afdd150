"""Lets every test import small_models.py, which stands beside this file; trainings in tests draw short texts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def short_trainings() -> Iterator[None]:
    """Show 20 symbols at each validation of a text, where 200 took two thirds of a small training; time steps briefly.

    Of a budget of an hour, ten seconds are taken to measure speed.
    """
    from chainrule.training import _speed as speed

    measure = speed.steps_per_second

    def measured(model, batch, way, seconds, *others):
        return measure(model, batch, way, min(seconds, 0.05), *others)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(speed, "steps_per_second", measured)
        lengths = dict.fromkeys(("char", "byte", "word", "bpe"), 20)
        patch.setattr("chainrule._app.tasks.text.task._SAMPLE_LENGTH", lengths)
        yield


@pytest.fixture
def float64() -> Iterator[None]:
    """Make new tensors in float64."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)

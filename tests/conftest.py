"""Lets every test import small_models.py, which stands beside this file; trainings in tests draw short texts."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session", autouse=True)
def short_previews() -> Iterator[None]:
    """Show 20 symbols at each validation of a text: drawing 200 took two thirds of a small training."""
    with pytest.MonkeyPatch.context() as patch:
        lengths = dict.fromkeys(("char", "byte", "word", "bpe"), 20)
        patch.setattr("chainrule._app.tasks.text.task._SAMPLE_LENGTH", lengths)
        yield

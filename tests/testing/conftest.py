"""Importing transformers takes five seconds of each process, and all tests of it are slow."""

from pathlib import Path

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if collection_path.name == "test_hugging_face.py" and config.option.markexpr == "not slow" else None

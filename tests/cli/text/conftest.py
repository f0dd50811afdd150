"""A working directory with a text in it, and a tiny run there."""

import shutil
from contextlib import chdir
from pathlib import Path

import pytest
from tiny_runs import TINY

from chainrule_app.cli.main import main


@pytest.fixture
def here(tmp_path: Path, text_file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a text in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log.txt").write_bytes(text_file.read_bytes())
    return tmp_path


@pytest.fixture(scope="session")
def whole(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    (folder / "log.txt").write_bytes(text_file.read_bytes())
    with chdir(folder):
        assert main(["train", "log.txt", *map(str, TINY), "--steps", "2", "--out", "run"]) == 0
    return folder / "run"


@pytest.fixture
def trained(whole: Path, here: Path) -> Path:
    """The directory `run`, trained for two steps."""
    return shutil.copytree(whole, here / "run")

"""Where machine code is kept between runs of the program."""

from pathlib import Path

import pytest

pytest.importorskip("numba")
from numba import config

from chainrule.kernels._machine_code import folder, is_kept


@pytest.fixture
def package(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home" / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "one.py").write_text("1")
    return tmp_path / "loops"


def test_code_is_kept_beside_that_of_python_until_a_file_changes(package):
    chosen = folder(package)
    assert chosen.parent == package / "__pycache__"
    (chosen / "loop.nbc").touch()
    assert is_kept(package)
    (package / "one.py").write_text("2")
    assert folder(package) != chosen
    assert not is_kept(package)


def test_a_package_that_cannot_be_written_keeps_its_code_with_the_user(package):
    (package / "__pycache__").touch()  # no folder
    assert folder(package).is_relative_to(Path.home())


def test_without_a_folder_nothing_is_kept(package, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(package / "one.py" / "below a file"))
    assert folder(package) is None
    assert not is_kept(package)

"""Where machine code is kept between runs of the program."""

import sys
from pathlib import Path
from runpy import run_path

import pytest

pytest.importorskip("numba")
from numba import config, njit

from chainrule import kernels
from chainrule.kernels import _compiled, _machine_code
from chainrule.kernels._machine_code import folder, kept


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
    (package / "one.py").write_text("2")
    assert folder(package) != chosen


def test_a_package_that_cannot_be_written_keeps_its_code_with_the_user(package):
    (package / "__pycache__").touch()  # no folder
    assert folder(package).is_relative_to(Path.home())


def test_without_a_folder_nothing_is_kept(package, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(package / "one.py" / "below a file"))
    assert folder(package) is None


def test_on_a_full_disk_nothing_is_kept(package):
    """A draw ended in numba's error, which could not write."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        assert folder(package) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert folder(package) is not None


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_a_file_that_a_crash_cut_short_is_written_again(package, suffix):
    """Every later draw ended in an EOFError."""
    (package / "one.py").write_text("def two():\n    return 2\n")

    def two():
        return kept(njit(run_path(str(package / "one.py"))["two"]))

    assert two()() == 2
    (file,) = package.rglob(f"*.{suffix}")
    file.write_bytes(b"")
    assert two()() == 2
    again = two()
    assert again() == 2
    assert sum(again.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("watched", [True, False])
def test_somebody_who_waits_for_a_compilation_is_told_once(monkeypatch, capsys, watched):
    """Seconds passed without a word when images were first drawn."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: watched)
    _machine_code._tell.cache_clear()
    for module in ("somebody.else", "chainrule.kernels._loops", "chainrule.kernels._loops"):
        function = njit(lambda x: x + 1)
        function.py_func.__module__ = module
        function(1.0)
    assert capsys.readouterr().err.count("compiling fast loops for this processor, once") == watched


def test_numba_without_its_compiler_counts_as_missing(monkeypatch):
    """The import ended in an AttributeError."""
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    with pytest.raises(ImportError, match="NUMBA_DISABLE_JIT"):
        run_path(_machine_code.__file__)


def test_plain_code_serves_where_numba_does_not_load(monkeypatch):
    """With another NumPy, numba may raise any error."""

    class Broken:
        def find_spec(self, name, path, target=None):
            raise AttributeError(f"{name} has no attribute")

    monkeypatch.delattr(kernels, "_compiled_loops", raising=False)
    monkeypatch.delitem(sys.modules, "chainrule.kernels._compiled_loops", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken()])
    assert _compiled._imported.__wrapped__() is None

"""Where a file may not grow, one line names it, whatever is being written."""

import pytest
from small_data import SMALL_SIZES, WRITERS

resource = pytest.importorskip("resource", reason="Windows has no limit of the size of files")

SIZES = (200, 1500, 3000, 12_000, 50_000)
# Texts and series are written in most of the ways that there are.
TASKS = [name if name in ("text", "forecast") else pytest.param(name, marks=pytest.mark.slow) for name in WRITERS]


@pytest.fixture
def limited(command):
    """Run a command line while no file may have more bytes than a number."""

    def call(size, *arguments):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            return command(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return call


@pytest.mark.parametrize("task", TASKS)
def test_a_file_that_may_not_grow_is_named(limited, tmp_path, task):
    data, out = (*WRITERS[task](tmp_path), *SMALL_SIZES[task].split(), "--steps", 1), tmp_path / "run"
    lines = []
    for size in SIZES:
        outcome = limited(size, "train", *data, "--out", out, "--overwrite")
        if outcome.status == 0:
            break
        lines.append(outcome.err.splitlines()[-1])
        assert lines[-1].startswith(f"chainrule: {out}/"), outcome.err
        assert "File too large" in lines[-1]
        assert "Traceback" not in outcome.err
    assert len(lines) > 1

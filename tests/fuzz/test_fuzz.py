"""A hundred cases of the fuzzer; `make nightly` runs thousands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import Worker, prepare, problem, run_cases
from fuzz_subjects import SUBJECTS

CASES, PARTS = 120, 4
NAMES = list(SUBJECTS)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Worker]]:
    """A run of every subject, and the process that made them."""
    home = tmp_path_factory.mktemp("fuzz")
    with Worker() as worker:
        prepare(home, worker, NAMES)
        yield home, worker


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_files_end_in_success_or_in_one_line(trained: tuple[Path, Worker], part: int) -> None:
    home, worker = trained
    numbers = range(part * CASES // PARTS, (part + 1) * CASES // PARTS)
    failed = [case for case in run_cases(home, worker, numbers, 0, NAMES) if case.problem is not None]
    assert not failed, "\n".join(f"case {case.number}, {case.damage}: {case.problem}" for case in failed)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"status": 0}, False),
        ({"status": 1, "out": "a check failed\n"}, False),
        ({"status": 2, "err": "reading\nchainrule: no such file\n"}, False),
        ({"status": 2, "err": "chainrule: " + "x" * 289 + "\n"}, True),
        ({"status": 2, "err": "chainrule: one\nchainrule: two\n"}, True),
        ({"status": 2, "err": "chainrule: no such file\nmore\n"}, True),
        ({"status": 2, "err": ""}, True),
        ({"status": 3}, True),
        ({"status": None, "failure": "Traceback"}, True),
        ({"status": 0, "out": "\x1b[2J"}, True),
        ({"status": 2, "err": "chainrule: \x9b2J\n"}, True),
    ],
)
def test_what_counts_as_a_failure(answer: dict[str, object], found: bool) -> None:
    whole = {"status": None, "out": "", "err": "", "failure": None} | answer
    assert (problem(whole) is not None) == found


def test_a_crash_is_reported_and_the_next_command_line_still_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    with Worker() as worker:
        assert worker.run(["--version"])["status"] == 0
        assert worker._process is not None
        worker._process.kill()
        worker._process.wait()
        assert "died" in worker.run(["--version"])["failure"]
        assert worker.run(["--version"])["status"] == 0

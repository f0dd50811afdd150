"""A few cases of the fuzzer on two subjects, and, marked slow, a hundred on all; `make nightly` runs thousands."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fuzz import Worker, prepare, problem, run_cases
from fuzz_subjects import SUBJECTS

CASES, PARTS = 120, 4
NAMES = list(SUBJECTS)
FEW = ["stream", "table"]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, worker: Worker) -> Path:
    """A run of every subject."""
    home = tmp_path_factory.mktemp("fuzz")
    prepare(home, worker, NAMES)
    return home


def check(home: Path, worker: Worker, numbers: range, names: list[str]) -> None:
    failed = [case for case in run_cases(home, worker, numbers, 0, names) if case.problem is not None]
    assert not failed, "\n".join(f"case {case.number}, {case.damage}: {case.problem}" for case in failed)


def test_a_few_damaged_files_end_in_success_or_in_one_line(worker: Worker, tmp_path: Path) -> None:
    prepare(tmp_path, worker, FEW)
    check(tmp_path, worker, range(8), FEW)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_damaged_files_end_in_success_or_in_one_line(trained: Path, worker: Worker, part: int) -> None:
    check(trained, worker, range(part * CASES // PARTS, (part + 1) * CASES // PARTS), NAMES)


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


@pytest.mark.slow
def test_a_crash_is_reported_and_the_next_command_line_still_runs(worker: Worker) -> None:
    assert worker.run(["--version"])["status"] == 0
    assert worker._process is not None
    worker._process.kill()
    worker._process.wait()
    assert "died" in worker.run(["--version"])["failure"]
    assert worker.run(["--version"])["status"] == 0

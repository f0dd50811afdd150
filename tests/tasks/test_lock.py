import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from chainrule_app.tasks.run_directory import LOCK, lock_run

HOLD = (
    "import sys; from pathlib import Path; from chainrule_app.tasks.run_directory import lock_run\n"
    "with lock_run(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()"
)


def hold(run: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock of a run until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_who_is_at_work(tmp_path: Path) -> None:
    with hold(tmp_path / "run") as other:
        with (
            pytest.raises(FileExistsError, match=rf"out: process {other.pid} on .+ \(since \d{{4}}-"),
            lock_run(tmp_path / "run"),
        ):
            pytest.fail("two processes hold one lock")
        other.communicate("")
    assert not (tmp_path / "run").exists()  # nothing was made in it
    with lock_run(tmp_path / "run"):
        pass


def test_a_killed_process_frees_the_lock_and_its_file_is_taken_over(tmp_path: Path) -> None:
    with hold(tmp_path) as other:
        other.send_signal(signal.SIGKILL)
        other.communicate()
    assert (tmp_path / LOCK).exists()
    with lock_run(tmp_path):
        assert str(os.getpid()) in (tmp_path / LOCK).read_text()
    assert not (tmp_path / LOCK).exists()


def test_a_lock_file_of_any_content_does_not_stand_in_the_way(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_bytes(b"\xff[" * 1000)
    with lock_run(tmp_path), pytest.raises(FileExistsError, match="is working in"), lock_run(tmp_path):
        pass


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    (tmp_path / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="symbolic"), lock_run(tmp_path):
        pass
    assert (tmp_path / "precious").read_text() == "precious"


def test_directories_made_for_nothing_are_removed(tmp_path: Path) -> None:
    with lock_run(tmp_path / "deep" / "er" / "run"):
        pass
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mine").mkdir()
    with lock_run(tmp_path / "mine" / "run"):
        pass
    assert (tmp_path / "mine").exists()


def test_what_was_written_in_the_block_stays(tmp_path: Path) -> None:
    with lock_run(tmp_path / "run"):
        (tmp_path / "run" / "file").touch()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["file"]

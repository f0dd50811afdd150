import errno
import io
import os
import shutil
from pathlib import Path

import pytest

from chainrule.files import copy_file, naming, replacing, write_text
from chainrule_app.exchange.exporting import _new_folder
from chainrule_app.readers.store import ArrayFile


def test_an_error_names_the_file_that_was_to_be_written_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder'$") as caught:
        write_text(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder")
    with pytest.raises(FileNotFoundError) as missing:
        write_text(tmp_path / "nowhere" / "file", "text")
    assert missing.value.filename == str(tmp_path / "nowhere" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "source")
WRITES = {
    "an array": lambda folder: ArrayFile((folder / "target").open("wb", buffering=0), "u1").append([1, 2]),
    "a copy": lambda folder: copy_file(folder / "source", folder / "target"),
}


class Full(io.FileIO):
    """A file on a full disk."""

    def write(self, content):
        raise FULL


@pytest.mark.parametrize("name", WRITES)
def test_a_full_disk_names_the_file_that_is_written(tmp_path, monkeypatch, name):
    """Some writes named no file, and copies the one that they read."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "source").write_bytes(b"12")
    opened = Path.open
    monkeypatch.setattr(
        Path, "open", lambda path, mode="r", **_: Full(path, "w") if "w" in mode else opened(path, mode)
    )
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)) as caught:
        WRITES[name](folder)
    assert "target" in str(caught.value)
    assert "source'" not in str(caught.value)


def test_a_copy_of_a_folder_names_the_file_that_is_missing_there(tmp_path):
    error = shutil.Error([("source", "target", "[Errno 28] No space left on device")])
    with pytest.raises(OSError, match=r"^target: cannot be written \(\[Errno 28\] No space"), naming(tmp_path):
        raise error


def test_an_error_of_what_is_read_keeps_its_name(tmp_path):
    with pytest.raises(FileNotFoundError) as caught, naming(tmp_path / "target"):
        (tmp_path / "missing").open()
    assert caught.value.filename == str(tmp_path / "missing")


def test_a_device_or_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # so that no writer waits
    try:
        write_text(pipe, "one")
        with replacing(pipe) as path:
            path.write_text("two")
        assert os.read(reader, 9) == b"onetwo"
        assert pipe.is_fifo()
    finally:
        os.close(reader)


def test_permissions_are_those_of_the_umask_which_stays(tmp_path, monkeypatch):
    """The umask was set to be read; files that other threads made meanwhile were open to everybody."""
    before = os.umask(0o027)
    monkeypatch.setattr(os, "umask", None)
    try:
        write_text(tmp_path / "file", "text")
        with _new_folder(tmp_path / "folder") as folder:
            (folder / "private").touch(0o600)
    finally:
        monkeypatch.undo()
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder", "folder/private")]
    assert modes == [0o640, 0o750, 0o640]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]

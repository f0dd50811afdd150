import os

import pytest

from chainrule.files import replacing, write_text
from chainrule_app.exchange.exporting import _new_folder


def test_an_error_names_the_file_that_was_to_be_written_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder'$") as caught:
        write_text(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder")
    with pytest.raises(FileNotFoundError) as missing:
        write_text(tmp_path / "nowhere" / "file", "text")
    assert missing.value.filename == str(tmp_path / "nowhere" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


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

import os

import pytest

from chainrule.data._atomic import replacing, write_text


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

import pytest

from chainrule.data._atomic import write_text


def test_an_error_names_the_file_that_was_to_be_written_and_leaves_nothing(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match=r"folder'$") as caught:
        write_text(tmp_path / "folder", "text")
    assert caught.value.filename == str(tmp_path / "folder")
    with pytest.raises(FileNotFoundError) as missing:
        write_text(tmp_path / "nowhere" / "file", "text")
    assert missing.value.filename == str(tmp_path / "nowhere" / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]

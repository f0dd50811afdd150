import pytest

from chainrule._app.tasks.output import save_figure


class Figure:
    """Half of what a figure writes, then a full disk."""

    def savefig(self, file, **_):
        file.write(b"half")
        raise OSError(28, "No space left on device")


def test_an_image_that_cannot_be_written_leaves_the_one_that_is_there(tmp_path):
    path = tmp_path / "look.png"
    path.write_bytes(b"whole")
    with pytest.raises(OSError, match="No space"):
        save_figure(Figure(), path)
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


def test_the_name_says_the_format(tmp_path):
    figure_module = pytest.importorskip("matplotlib.figure")
    save_figure(figure_module.Figure(figsize=(1, 1)), tmp_path / "look.svg")
    assert b"<svg" in (tmp_path / "look.svg").read_bytes()

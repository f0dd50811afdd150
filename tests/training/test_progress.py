import io
import sys

import pytest

from chainrule.training import Evaluation
from chainrule.training._report import Bar, Display, Lines, Silent, make_display

RESULT = Evaluation(nats=100.0, elements=50)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def show(display: Display) -> None:
    display.step(3, 0.25, 1.5, 12345.6, 61)
    display.validation(3, RESULT, best=True, sample="[red]one\x1b[31m\ntwo")
    display.note("a note")
    display.close()


@pytest.mark.parametrize("display", [lambda: Lines(every=0.0), Bar])
def test_figures_and_samples_are_shown(display: type[Display], monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    show(display())
    text = screen.getvalue()
    figures = ("25%", "1.500 nats 2.164 bits/element", "12,346 elements/s", "1:01 left", "2.0000 nats", "best so far")
    assert all(part in text for part in figures)
    assert "    [red]one\\x1b[31m" in text  # shown as it is, and no command to the terminal
    assert "    two" in text


def test_a_terminal_gets_a_bar_a_file_gets_lines_and_silence_is_silent(monkeypatch, capsys):
    assert isinstance(make_display(enabled=True), Lines)
    show(make_display(enabled=False))
    assert capsys.readouterr() == ("", "")
    assert isinstance(make_display(enabled=False), Silent)
    monkeypatch.setattr(sys, "stderr", Terminal())
    bar = make_display(enabled=True)
    bar.close()
    assert isinstance(bar, Bar)


def test_plain_lines_of_steps_are_few(capsys: pytest.CaptureFixture[str]) -> None:
    display = Lines(every=3600.0)
    for step in range(100):
        display.step(step, 0.5, 1.0, 1.0, 1.0)
    assert capsys.readouterr().err == ""


def test_a_notebook_shows_a_curve_that_grows(tmp_path):
    nbformat, client = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = (
        "import chainrule\n"
        "run = chainrule.fit(text='to be or not to be ' * 80, steps=40, hidden_size=8, kneser_ney_order=0, "
        "validate_every=10)"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    client.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    (shown,) = [output["data"]["text/html"] for output in notebook.cells[0].outputs if "data" in output]
    assert shown.count("<circle cx") == 4 + 2  # four validations, two in the legend
    assert '<polyline points="' in shown
    assert "step 40  held out" in shown

import io
import json
import sys

import pytest

from chainrule._app.tasks.display import SafeOutput, dump_json, shortened
from chainrule._printing import one_line, printable

COMMANDS = ["\x1b[2J", "\x07", "\x9b31m", "\x00", "\x7f", "\u202e", "\ud800", "\u2066"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_reaches_the_terminal(command):
    for shown in (printable(f"a{command}b"), one_line(f"a{command}b"), dump_json(f"a{command}b")):
        assert command[0] not in shown
        assert shown.strip('"').startswith("a\\")
        shown.encode()  # a stream takes it


@pytest.mark.parametrize("text", [*COMMANDS, "plain", "é ☃ 𝄞", "tab\tand\r\nline", '"\\'])
def test_json_keeps_data_exactly(text):
    assert json.loads(dump_json({text: [text]})) == {text: [text]}


def test_text_keeps_lines_tabs_and_letters_of_any_language():
    text = "one\ttwo\r\nthree é ☃ ಠ \u200d می\u200cخواهم\u200f 10\u00a0000\n"
    assert printable(text) == text
    assert one_line(text) == text.replace("\t", "\\t").replace("\r\n", "\\r\\n").replace("\n", "\\n")
    assert dump_json(text) == json.dumps(text, ensure_ascii=False)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_files_and_pipes_get_the_text_as_it_is():
    stream = io.StringIO()
    shown = SafeOutput(stream)
    shown.write("\x1b[2J\u202e\u200f\r\x85\ud800")
    shown.close()
    assert stream.getvalue() == "\x1b[2J\u202e\u200f\r\x85\\ud800"


def test_a_carriage_return_is_a_line_end_only_before_a_line_feed():
    stream = Terminal()
    shown = SafeOutput(stream)
    for piece in ("one\r", "\ntwo\rthree", "\r", "\r\n", "\r"):
        assert shown.write(piece) == len(piece)
    shown.close()
    assert stream.getvalue() == "one\r\ntwo\\rthree\\r\r\n\\r"


def test_every_verb_prints_through_it(command, runs, tmp_path, monkeypatch):
    file = tmp_path / "a.txt"
    file.write_text("line \x1b[31m 1\n")
    text = command("score", runs / "bytes", file, "--per", "line").out
    assert "\x1b" not in text
    assert r"line \x1b[31m 1" in text
    assert (
        json.loads(command("score", runs / "bytes", file, "--per", "line", "--json").out)["text"] == "line \x1b[31m 1"
    )
    assert command("sample", runs / "bytes", "--prompt", "\x1b[2J", "--length", 1).out.startswith("\x1b[2J")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert command("sample", runs / "bytes", "--prompt", "\x1b[2J", "--length", 1).out.startswith(r"\x1b[2J")
    assert not isinstance(sys.stdout, SafeOutput)


def test_an_error_is_one_short_line_whatever_it_quotes(refused, tmp_path):
    for name in ("x" * 200 + "\x1b[2J" + "y" * 20, "z\n" * 60):
        line = refused("info", tmp_path / name)
        assert "\x1b" not in line
        assert len(line) < 300
    line = refused("sample", tmp_path, "--prompt", "a" * 100_000)
    assert len(line) < 300


def test_a_long_line_keeps_its_beginning_and_its_end():
    assert shortened("begin" + "x" * 1000 + "end", 100).startswith("beginx")
    assert shortened("begin" + "x" * 1000 + "end", 100).endswith("xend")
    assert len(shortened("x" * 1000, 100)) == 100
    assert shortened("x" * 100, 100) == "x" * 100

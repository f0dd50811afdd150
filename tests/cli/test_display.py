import io
import json
import sys

import pytest

from chainrule.tasks.display import Harmless, dump_json, one_line, printable, shortened

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
    text = "one\ttwo\r\nthree é ☃ ಠ \u200d\n"
    assert printable(text) == text


def test_a_carriage_return_is_a_line_end_only_before_a_line_feed():
    stream = io.StringIO()
    shown = Harmless(stream)
    for piece in ("one\r", "\ntwo\rthree", "\r", "\r\n", "\r"):
        assert shown.write(piece) == len(piece)
    shown.close()
    assert stream.getvalue() == "one\r\ntwo\\rthree\\r\r\n\\r"


def test_every_verb_prints_through_it(command, runs, tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("line \x1b[31m 1\n")
    text = command("score", runs / "bytes", file, "--per", "line").out
    assert "\x1b" not in text
    assert r"line \x1b[31m 1" in text
    assert (
        json.loads(command("score", runs / "bytes", file, "--per", "line", "--json").out)["text"] == "line \x1b[31m 1"
    )
    assert command("sample", runs / "bytes", "--prompt", "\x1b[2J", "--length", 1).out.startswith(r"\x1b[2J")
    assert not isinstance(sys.stdout, Harmless)


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

"""An error about an option carries its name; each client writes the name in its own way."""

import ast
import copy
import pickle
import re
from pathlib import Path

import pytest

import chainrule
import chainrule_app
from chainrule.option_error import MissingError, OptionError, TakenError, UserError, option, raw_text
from chainrule_app.cli.main import _as_flag

FLAG = re.compile(r"(?<![\w`-])--[a-z]")
HOMES = [Path(chainrule.__file__).parent, Path(chainrule_app.__file__).parent]
COMMANDS = {"cli", "serve"}  # rooms whose errors only users of the command line see; `serve` before it serves


def test_each_client_writes_the_options_of_an_error():
    error = OptionError("n_best", f"expected 1 to {option('beam')}, got {{7}}", f"or {option('labels', False)}")
    assert str(error) == "n_best: expected 1 to beam, got {7}: or labels=False"
    assert error.written(_as_flag({})) == "--n-best: expected 1 to --beam, got {7}: or --no-labels"
    assert error.written(_as_flag({"n_best": "-b", "beam": "DATA"})).startswith("-b: expected 1 to DATA")


def test_values_are_quoted_for_the_shell_and_for_python():
    error = UserError("rows.csv", option("types", 'a=skip,"b, c=real"'))
    assert str(error) == """rows.csv: types='a=skip,"b, c=real"'"""
    assert error.written(_as_flag({})) == """rows.csv: --types 'a=skip,"b, c=real"'"""


def test_an_error_with_the_text_of_another_still_refers_to_options():
    inner = UserError("a.png", f"pass {option('skip_bad')}")
    assert UserError(f"folder, {raw_text(inner)}").written(_as_flag({})) == "folder, a.png: pass --skip-bad"
    assert raw_text(ValueError("plain")) == "plain"


@pytest.mark.parametrize("kind", [UserError, MissingError])
def test_errors_can_be_pickled_and_copied(kind):
    error = kind("a", option("b"))
    assert str(pickle.loads(pickle.dumps(error))) == str(copy.deepcopy(error)) == "a: b"  # noqa: S301  ours


def test_errors_about_options_can_be_pickled_and_caught_as_what_they_are():
    error = pickle.loads(pickle.dumps(TakenError("out", "runs/x holds a run", option("overwrite", True))))  # noqa: S301  ours
    assert isinstance(error, FileExistsError)
    assert (error.name, error.errno) == ("out", None)
    assert str(error) == "out: runs/x holds a run: overwrite=True"


def test_no_error_outside_of_the_command_line_names_a_flag():
    found = []
    for home in HOMES:
        for path in home.rglob("*.py"):
            if COMMANDS & set(path.relative_to(home).parts):
                continue
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Raise):
                    texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                    written = re.sub(r"`[^`]*`", "", "".join(text for text in texts if isinstance(text, str)))
                    if FLAG.search(written) or "DATA" in written:
                        found.append(f"{path.name}:{node.lineno}")
    assert not found

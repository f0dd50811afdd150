"""Output in encodings that lack characters, such as a pipe on Windows: whole, with the status of UTF-8."""

import io
import json
import sys

import pytest

from chainrule_app.cli.main import described_verbs, main
from chainrule_app.tasks import TASKS

FORMS = [[name] for name, _ in described_verbs()] + [["train", "--task", name] for name in TASKS] + [[]]
TEXT = "Größe — naïve 日本 −1\n"


@pytest.fixture
def encoded(monkeypatch, capsys):
    """Run a command line with streams of an encoding: the status, standard output and standard error."""

    def call(encoding, *arguments):
        with monkeypatch.context() as patch:
            streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            status = main(list(map(str, arguments)))
        for stream in streams.values():
            stream.flush()
        return status, *(stream.buffer.getvalue().decode(encoding) for stream in streams.values())

    return call


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("cp1252", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_help_is_whole_in_every_encoding(encoded, form, encoding):
    """One minus sign in the line of `compress` left `chainrule --help > file` empty on Windows."""
    status, shown, errors = encoded(encoding, *form, "--help")
    assert (status, errors) == (0, "")
    assert len(shown.splitlines()) > 10
    assert shown.count("?") == encoded("utf-8", *form, "--help")[1].count("?")  # our own signs have an ASCII form


@pytest.fixture(scope="module")
def german(new_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("größe")
    (folder / "text.txt").write_text(TEXT * 40, encoding="utf-8")
    new_run(folder / "text.txt", folder / "läufe" / "日本")
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["runs", "{folder}/läufe"],
        ["info", "{run}"],
        ["sample", "{run}", "--seed", "0", "--length", "20", "--prompt", "Größe −"],
        ["sample", "{run}", "--seed", "0", "--length", "20", "-n", "2"],
        ["score", "{run}", "{folder}/text.txt", "--per", "element", "--top", "200"],
        ["embed", "{run}", "{folder}/text.txt"],
        ["inspect", "{run}"],
        ["compare", "{run}", "{run}", "--data", "{folder}/text.txt"],
        ["score", "{run}", "{folder}/日本"],
        ["train", "{folder}/text.txt", "--out", "{run}"],
    ],
    ids=lambda arguments: " ".join(arguments[:1]),
)
def test_a_verb_ends_as_it_does_in_utf_8(encoded, german, arguments):
    words = [word.format(folder=german, run=german / "läufe" / "日本") for word in arguments]
    status, shown, errors = encoded("utf-8", *words)
    narrow_status, narrow, narrow_errors = encoded("ascii", *words)
    assert narrow_status == status
    assert len(narrow.splitlines()) == len(shown.splitlines())
    assert len(narrow_errors.splitlines()) >= len(errors.splitlines())
    assert "Traceback" not in narrow_errors


def test_lost_characters_are_counted_and_json_and_files_lose_none(encoded, german, tmp_path):
    sample = ("sample", german / "läufe" / "日本", "--seed", 0, "--length", 40, "--prompt", TEXT.strip())
    status, shown, errors = encoded("ascii", *sample)
    assert status == 0
    assert shown.startswith("Gr??e - na?ve ?? -1")
    assert "standard output is ascii, without" in errors
    assert "PYTHONIOENCODING=utf-8" in errors
    exact = encoded("utf-8", *sample)[1].removesuffix("\n")
    _, shown, errors = encoded("ascii", *sample, "--json")
    assert json.loads(shown)["text"] == exact
    assert "standard output is" not in errors
    encoded("ascii", *sample, "--out", tmp_path / "text.txt")
    assert (tmp_path / "text.txt").read_text(encoding="utf-8") == exact + "\n"


def test_training_goes_on_where_its_previews_cannot_be_printed(encoded, german, tmp_path):
    sizes = ("--steps", "2", "--hidden-size", "8", "--plain")
    status, shown, errors = encoded("ascii", "train", german / "text.txt", "--out", tmp_path / "läufe", *sizes)
    assert (status, "2 steps in" in shown, "held out" in errors) == (0, True, True)

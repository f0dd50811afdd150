"""A preparation that was killed leaves what it counted and encoded; the next one uses it, and writes the same store."""

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from chainrule_app.cli.main import main
from chainrule_app.readers import all_cores, corpus, text
from chainrule_app.readers.journal import JOURNAL, Journal, digest_of

CHUNKS = 12  # of the text, four of which are counted together


@pytest.fixture
def file(tmp_path):
    random = Random(0)
    lines = (" ".join(random.choices(["sea", "tide", "naïve", "3.14", "ebb"], k=8)) for _ in range(400))
    path = tmp_path / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def in_chunks(file, monkeypatch, processes=1):
    """Let the text of a file be read in chunks and answered by a process; return the answers that are computed."""
    computed, received = [], all_cores._received
    monkeypatch.setattr(text, "CHUNK_BYTES", -(-file.stat().st_size // CHUNKS))
    monkeypatch.setattr(corpus, "processes_for", lambda *about: processes)
    monkeypatch.setattr(all_cores, "_received", lambda pipe: computed.append(received(pipe)) or computed[-1])
    return computed


KILLED = """
import os, signal, sys
from chainrule_app.readers import corpus, text
from chainrule_app.readers.journal import Journal
file, folder, chunk, answers = sys.argv[1:]
text.CHUNK_BYTES, corpus.processes_for = int(chunk), lambda *about: 2
add, left = Journal.add, [int(answers)]
def dying(*about):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    add(*about)
Journal.add = dying
corpus.prepare_corpus(file, folder, level="word", reading="lines")
"""


def killed_after(answers, file, folder):
    """Prepare a text in a process that is killed after so many answers."""
    chunk = -(-file.stat().st_size // CHUNKS)
    arguments = [str(file), str(folder), str(chunk), str(answers)]
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (folder / corpus.MANIFEST).exists()


def prepared(file, folder):
    corpus.prepare_corpus(file, folder, level="word", reading="lines")
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.parametrize("answers", [pytest.param(2, marks=pytest.mark.slow), 9])  # while it counts, and encodes
def test_what_a_killed_preparation_computed_is_used(answers, file, tmp_path, monkeypatch):
    computed = in_chunks(file, monkeypatch)
    fresh = prepared(file, tmp_path / "fresh")
    every = len(computed)
    computed.clear()
    killed_after(answers, file, tmp_path / "store")
    assert prepared(file, tmp_path / "store") == fresh  # without the journals
    assert len(computed) == every - answers


def test_answers_are_used_up_to_the_first_that_is_not_whole_or_of_another_text(tmp_path):
    chunks = ["a b", "c", "d e"]
    with Journal(tmp_path / "journal") as journal:
        assert journal.next(digest_of("a b")) is None
        for chunk in chunks:
            journal.add(digest_of(chunk), chunk.upper().encode())
    whole = (tmp_path / "journal").read_bytes()

    def known(*asked):
        with Journal(tmp_path / "journal") as journal:
            found = []
            for chunk in asked:
                found.append(journal.next(digest_of(chunk)))
                if found[-1] is None:
                    journal.add(digest_of(chunk), b"new")
                    break
            return found

    assert known(*chunks) == [b"A B", b"C", b"D E"]
    for damaged in (whole[:-1], whole[:-3] + b"xyz", whole[:-20], whole + b"more"):
        (tmp_path / "journal").write_bytes(damaged)
        expected = [b"A B", b"C", b"D E"] if damaged.startswith(whole) else [b"A B", b"C", None]
        assert known(*chunks) == expected
    (tmp_path / "journal").write_bytes(whole)
    assert known("a b", "changed") == [b"A B", None]
    assert known("a b", "changed", "d e") == [b"A B", b"new", None]


@pytest.mark.slow
def test_another_text_or_vocabulary_has_answers_of_its_own(file, tmp_path, monkeypatch):
    computed = in_chunks(file, monkeypatch)
    killed_after(9, file, tmp_path / "store")
    file.write_text(file.read_text().replace("ebb", "flow", 1))  # of another length, at the beginning
    fresh = prepared(file, tmp_path / "fresh")
    every = len(computed)
    computed.clear()
    assert prepared(file, tmp_path / "store") == fresh
    assert len(computed) == every


def test_the_same_command_goes_on_with_an_interrupted_preparation(file, tmp_path, monkeypatch, capsys):
    computed = in_chunks(file, monkeypatch)
    out = tmp_path / "run"
    call = ["train", str(file), "--level", "word", "--steps", "1", "--hidden-size", "4", "--plain", "--out", str(out)]
    add, left = Journal.add, list(range(9))

    def stopping(*about):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        add(*about)

    with monkeypatch.context() as patch:
        patch.setattr(Journal, "add", stopping)
        assert main(call) == 130
    assert list((out / ".preparing" / "data").iterdir()) == [out / ".preparing" / "data" / JOURNAL]
    computed.clear()
    assert main(call) == 0
    used = 9 + len(computed)
    assert [path.name for path in out.rglob(".*") if path.is_dir()] == []
    computed.clear()
    corpus.prepare_corpus(file, tmp_path / "fresh", level="word")
    assert len(computed) == used
    assert (out / "data" / "train.tokens").read_bytes() == (tmp_path / "fresh" / "train.tokens").read_bytes()

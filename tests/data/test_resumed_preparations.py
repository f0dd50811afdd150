"""A preparation that was killed leaves what it decoded and encoded; the next one uses it, and writes the same store."""

import signal
import subprocess
import sys
import wave
from pathlib import Path
from random import Random

import numpy as np
import pytest
import soundfile
from PIL import Image

from chainrule_app.cli.main import main
from chainrule_app.readers import all_cores, captions, corpus, sources
from chainrule_app.readers.images import Reading
from chainrule_app.readers.images import prepare as images
from chainrule_app.readers.journal import JOURNAL, Journal, digest_of
from chainrule_app.readers.sounds import prepare as sounds

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
    monkeypatch.setattr(sources, "CHUNK_BYTES", -(-file.stat().st_size // CHUNKS))
    monkeypatch.setattr(corpus, "processes_for", lambda *about: processes)
    monkeypatch.setattr(all_cores, "_received", lambda pipe: computed.append(received(pipe)) or computed[-1])
    return computed


KILLED = """
import os, signal, sys
from chainrule_app.readers import corpus, sources
from chainrule_app.readers.journal import Journal
file, folder, chunk, answers = sys.argv[1:]
sources.CHUNK_BYTES, corpus.processes_for = int(chunk), lambda *about: 2
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


# What takes long of each file, counted: it decodes an image or reads a sound.
COUNTED = {"images": (Reading, "pixels"), "captions": (Reading, "pixels"), "sounds": (sounds, "read_sound")}
KILLED_ELSEWHERE = """
import json, os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_resumed_preparations import COUNTED, prepare
kind, folder, store, left = sys.argv[2:]
owner, name = COUNTED[kind]
compute, left = getattr(owner, name), [int(left)]
def dying(*about):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return compute(*about)
setattr(owner, name, dying)
prepare(kind, folder, store)
"""


def prepare(kind, folder, store):
    """Prepare the files of a kind; return the files of the store."""
    if kind == "images":
        images.prepare_images(folder, store, reading=Reading(size=(8, 8)), skip_bad=True)
    elif kind == "captions":
        captions.prepare_captions(store, folder, Path(folder) / "captions.csv", size=8, min_count=1)
    else:
        sounds.prepare_sounds(folder, store, rate=4000, skip_bad=True)
    return {path.name: path.read_bytes() for path in Path(store).iterdir()}


def write_files(kind, folder):
    """Write twelve files; one image and one sound among them cannot be read."""
    folder.mkdir()
    random = np.random.default_rng(0)
    for number in range(12):
        if kind == "sounds":
            with wave.open(str(folder / f"{number}.wav"), "wb") as file:
                file.setparams((1, 2, 8000, 0, "NONE", ""))
                file.writeframes(random.integers(-9000, 9000, 3000).astype("<i2").tobytes())
        else:
            pixels = random.integers(0, 256, (12, 10, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    if kind == "images":
        (folder / "1.png").write_bytes((folder / "1.png").read_bytes()[:90])
    elif kind == "sounds":
        soundfile.write(folder / "1.wav", np.full(3000, np.nan, np.float32), 8000, subtype="FLOAT")
    elif kind == "captions":
        rows = [f"{number}.png,the sea at ebb {number}\n" for number in range(12)]
        (folder / "captions.csv").write_text("".join(["image,caption\n", *rows]))


def computed_by(kind, monkeypatch):
    """Return a list to which every file that is decoded or read is added."""
    owner, name = COUNTED[kind]
    compute, computed = getattr(owner, name), []
    monkeypatch.setattr(owner, name, lambda *about: computed.append(about) or compute(*about))
    return computed


@pytest.mark.parametrize("kind", COUNTED)
def test_files_that_a_killed_preparation_finished_are_not_decoded_again(kind, tmp_path, monkeypatch):
    folder, store = tmp_path / "files", tmp_path / "store"
    write_files(kind, folder)
    arguments = [str(Path(__file__).parent), kind, str(folder), str(store), "7"]
    done = subprocess.run([sys.executable, "-c", KILLED_ELSEWHERE, *arguments], check=False)
    assert done.returncode == -signal.SIGKILL
    computed = computed_by(kind, monkeypatch)
    fresh = prepare(kind, folder, tmp_path / "fresh")
    every = len(computed)
    computed.clear()
    assert prepare(kind, folder, store) == fresh  # without the journals
    assert len(computed) == every - 7 + (kind != "captions")  # the file that cannot be read is tried again


def test_the_same_command_goes_on_with_the_images_of_an_interrupted_preparation(tmp_path, monkeypatch):
    write_files("images", tmp_path / "files")
    out = tmp_path / "run"
    call = ["train", str(tmp_path / "files"), "--task", "image", "--size", "8x8", "--skip-bad", "--out", str(out)]
    call += ["--steps", "1", "--channels", "6", "--layers", "1", "--plain"]
    computed = computed_by("images", monkeypatch)
    counted = Reading.pixels

    def stopping(*about):
        if len(computed) == 5:
            raise KeyboardInterrupt
        return counted(*about)

    with monkeypatch.context() as patch:
        patch.setattr(Reading, "pixels", stopping)
        assert main(call) == 130
    computed.clear()
    assert main(call) == 0
    assert len(computed) == 12 - 5 + 3  # the file that cannot be read is tried again in each of three passes
    assert [path.name for path in out.rglob(".*") if path.is_dir()] == []


def test_answers_to_a_part_are_used_up_to_the_last_whole_one(tmp_path):
    started = []

    def answers(part, *refused):
        started.append(part)
        yield from (b"%s %d" % (part, number) for number in range(3))
        for reason in refused:
            raise ValueError(reason)

    def several(journal, part, *refused):
        return list(journal.several(part, lambda: answers(part, *refused)))

    def every():
        started.clear()
        with Journal(tmp_path / "journal") as journal:
            assert several(journal, b"a") == [b"a 0", b"a 1", b"a 2"]
            with pytest.raises(ValueError, match="damaged"):
                several(journal, b"b", "damaged")
            assert several(journal, b"c") == [b"c 0", b"c 1", b"c 2"]
        return started

    assert every() == [b"a", b"b", b"c"]
    assert every() == [b"b"]  # its reason is not on record
    whole = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(whole[: len(whole) // 2])
    assert every() == [b"b", b"c"]
    assert (tmp_path / "journal").read_bytes() == whole

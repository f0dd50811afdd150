"""Files of tagged sentences, runs on them, and text on standard input."""

import gzip
import io
import sys

import pytest
from small_data import written
from tagged_words import SMALL, columns, conllu, sentences

from chainrule_app.cli.main import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentences")
    written(folder / "train.conllu", conllu(sentences(120, 0)))
    (folder / "dev.conllu.gz").write_bytes(gzip.compress("\n".join(conllu(sentences(12, 1))).encode()))
    written(folder / "test.conllu", conllu(sentences(20, 2)))
    names = [[("met", "O"), (name, "B-P"), ("Li", "I-P"), ("here", "O")] for name in ("Bo", "Al", "Cy", "Di") * 6]
    written(folder / "names.conll", columns(names))
    return folder


@pytest.fixture(scope="module")
def run(files, tmp_path_factory):
    """Trained for a few steps; not to be written to."""
    out = tmp_path_factory.mktemp("runs") / "run"
    steps = ("--steps", 60, "--validate-every", 30, "--learning-rate", 0.02)
    arguments = ("train", files / "train.conllu", "--validation", files / "dev.conllu.gz", "--out", out, *steps, *SMALL)
    assert main([str(argument) for argument in arguments]) == 0
    return out


@pytest.fixture(scope="module")
def names_run(files, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "names"
    arguments = ("train", files / "names.conll", "--out", out, "--steps", 25, "--learning-rate", 0.03, *SMALL)
    assert main([str(argument) for argument in arguments]) == 0
    return out


@pytest.fixture
def typed(monkeypatch):
    """Puts text on standard input."""

    def put(text):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return put

"""A package of an extra that is missing: one line that names the extra, status 2, and nothing left behind."""

import sys
import tomllib
import wave
from pathlib import Path

import pytest
import torch

from chainrule.metrics import classification_scores

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
NEEDED = [  # extra, module, the command that needs it
    ("bpe", "tokenizers", ["train", "words.txt", "--level", "bpe"]),
    ("tensorboard", "tensorboard", ["train", "words.txt", "--track", "tensorboard"]),
    ("plots", "matplotlib.figure", ["inspect", "RUN", "--out", "page.html"]),
    ("sound", "soundfile", ["train", "sounds"]),
    ("sound", "scipy.signal", ["train", "sounds", "--rate", 4000]),
    ("compress", "constriction", ["compress", "RUN", "TEXT"]),
    ("serve", "fastapi", ["serve", "RUN"]),
    ("serve", "uvicorn", ["serve", "RUN"]),
    ("serve", "prometheus_client", ["serve", "RUN"]),
    ("metrics", "sacrebleu", ["train", "words.txt", "--task", "translate"]),
    ("metrics", "sacrebleu", ["train", "images", "--task", "caption", "--captions", "words.txt"]),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("words.txt").write_text("one word\tun mot\n" * 50)
    Path("images").mkdir()
    Path("images/one.png").write_bytes(b"\x89PNG")
    Path("sounds").mkdir()
    for name in "ab":
        with wave.open(f"sounds/{name}.wav", "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(8000)
            sound.writeframes(bytes(8000))
    return tmp_path


@pytest.mark.parametrize(("extra", "module", "arguments"), NEEDED)
def test_a_missing_package_is_named_with_its_extra(
    extra, module, arguments, folder, runs, text_file, refused, monkeypatch
):
    monkeypatch.setitem(sys.modules, module, None)
    before = sorted(folder.rglob("*"))
    places = {"RUN": runs / "stream", "TEXT": text_file}
    line = refused(*(places.get(argument, argument) for argument in arguments))
    assert line.partition("pip install ")[2].split()[0].strip(",;:") == module.partition(".")[0]  # as on PyPI
    assert "chainrule[" not in line  # which is on no index
    assert sorted(folder.rglob("*")) == before or extra != "tensorboard"


def test_classifications_need_torchmetrics(monkeypatch):
    monkeypatch.setitem(sys.modules, "torchmetrics.functional.classification", None)
    with pytest.raises(ValueError, match="pip install torchmetrics"):
        classification_scores(torch.zeros(2, 2), torch.zeros(2, dtype=torch.long), ["a", "b"])


# tests/library_alone.py, tests/exchange, tests/cli/test_gather.py, tests/scale, tests/test_sklearn.py,
# tests/data/tables/test_excel.py
ELSEWHERE = {"all", "app", "excel", "export", "fast", "scale", "sklearn", "zstd"}


def test_every_extra_of_users_is_tried_here():
    extras = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"]
    assert {extra for extra, _, _ in NEEDED} == extras.keys() - {"dev", "docs", "nightly"} - ELSEWHERE

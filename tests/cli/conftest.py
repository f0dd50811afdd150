"""Small runs, made without training them, and a way to call the command in this process."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from chainrule import testing
from chainrule.training import save_weights
from chainrule_app.cli.main import main
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.tasks.text.options import TextData, TextTraining
from chainrule_app.tasks.text.run import TextRun
from chainrule_app.training_run import create_run


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


@pytest.fixture(scope="session", autouse=True)
def short_checks() -> Iterator[None]:
    """`check` reads eight symbols of a line: 32 take most of a test's time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chainrule_app.tasks.text.run._CHECKED_ELEMENTS", 8)
        patch.setattr("chainrule_app.tasks.translate.run.TranslateRun.CHECKED", (4, 8))
        patch.setattr("chainrule_app.tasks.sound.run.SoundRun.CHECKED", (3, 8))
        yield


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run a command line in this process."""

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        status = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(status, captured.out, captured.err)

    return call


@pytest.fixture
def ok(command: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Run a command line that must succeed."""

    def call(*arguments: object) -> Outcome:
        outcome = command(*arguments)
        assert outcome.status == 0, outcome
        return outcome

    return call


@pytest.fixture
def refused(command: Callable[..., Outcome]) -> Callable[..., str]:
    """Run a command line that must fail with status 2, one line and no output; returns that line."""

    def call(*arguments: object) -> str:
        outcome = command(*arguments)
        assert (outcome.status, outcome.out) == (2, ""), outcome
        line = outcome.err
        if line.startswith("reading "):  # what `train` says before it looks at the data
            _, _, line = line.partition("\n")
        assert line.startswith("chainrule: ")
        assert line.endswith("\n")
        assert line.count("\n") == 1, outcome.err
        assert "Traceback" not in outcome.err
        return line.strip()

    return call


class Checked(NamedTuple):
    model: Any
    x: torch.Tensor
    context: Any
    lengths: torch.Tensor | None
    out: str


@pytest.fixture
def checked(ok: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], Checked]:
    """Run `check` and return what it hands to `check_model`, in place of which two quick rules are tested.

    These rules show that the arguments fit the model. `test_check.py` runs the whole `check` on a run of every task.
    """

    def call(run: Path) -> Checked:
        handed = []

        def quick(model, x, context=None, lengths=None, *, seed):
            handed.append((model, x, context, lengths))
            rules = ("batch_independence", "save_load")
            return testing.Report([testing.check_rule(rule, model, x, context, lengths, seed=seed) for rule in rules])

        with monkeypatch.context() as patch:
            patch.setattr(testing, "check_model", quick)
            outcome = ok("check", run)
        (arguments,) = handed
        return Checked(*arguments, outcome.out)

    return call


@pytest.fixture
def planned(command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run `train` up to its first step: the data are prepared, the open options chosen and told."""

    def stop(*_: object, **__: object) -> None:
        raise ValueError("planned")

    def call(*arguments: object) -> Outcome:
        with monkeypatch.context() as patch:
            patch.setattr("chainrule.training.train", stop)
            outcome = command("train", *arguments)
        assert outcome.err.endswith("\nchainrule: planned\n"), outcome.err
        return outcome

    return call


def make_text(lines: int = 60) -> str:
    return "".join(
        f"line {number} of the café log, all is {'well' if number % 7 else 'odd'}\n" for number in range(lines)
    )


@pytest.fixture(scope="session")
def text_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "log.txt"
    path.write_text(make_text(), encoding="utf-8")
    return path


def make_run(source: Path, out: Path, **data: str) -> TextRun:
    """A run with the weights that a model begins with: scoring, sampling and checking need no more."""
    asked = RunConfig(
        sources={"source": str(source), "validation": None, "tokenizer": None},
        data=TextData(validation_fraction=0.2, **data),
        model="gru",
        options=TextRun.MODELS["gru"].options(hidden_size=8),
        duration=Duration(steps=4),
        training=TextTraining(batch_size=2, chunk_length=8),
    )
    create_run(TextRun, asked, out, overwrite=False)
    run = TextRun.open(out)
    save_weights(run.path / WEIGHTS, run.new_model(0), {})
    return run


@pytest.fixture(scope="session")
def new_run() -> Callable[..., TextRun]:
    """`make_run`, for a text of the test's own."""
    return make_run


@pytest.fixture(scope="session")
def runs(text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with an untrained run for each way to read a text; not to be written to."""
    home = tmp_path_factory.mktemp("runs")
    make_run(text_file, home / "stream")
    make_run(text_file, home / "lines", reading="lines")
    make_run(text_file, home / "words", level="word")
    make_run(text_file, home / "bytes", level="byte")
    return home


@pytest.fixture
def run_copy(runs: Path, tmp_path: Path) -> Path:
    """A run to damage."""
    shutil.copytree(runs / "stream", tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def without_lzma(monkeypatch):
    """lzma gains nothing: models of no training are not put to shame by it on files of a few hundred bytes."""
    monkeypatch.setattr("chainrule_app.tasks.compression._by_lzma", lambda data: data + b"x")


@pytest.fixture
def there_and_back(ok, tmp_path):
    """Compress and decompress bytes: what `compress --json` says, after the same bytes came back."""

    def go(data, run, method=None):
        file, chain, back = (tmp_path / name for name in ("file.txt", "file.chain", "back"))
        for old in (chain, back):
            old.unlink(missing_ok=True)
        file.write_bytes(data)
        said = json.loads(ok("compress", run, file, "--out", chain, "--json").out)
        assert said["compressed_bytes"] == chain.stat().st_size
        assert method is None or said["method"] == method
        ok("decompress", run, chain, "--out", back)
        assert back.read_bytes() == data
        return said

    return go

"""A model joins the command line by a class and a line in MODELS, a task by a class and a line in TASKS."""

import json
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import pytest
import torch
from torch import nn

from chainrule._base import AutoregressiveModel
from chainrule.data import Batch
from chainrule.heads import Bernoulli, Categorical
from chainrule.ranges import Range
from chainrule_app.cli.train import RunFlags
from chainrule_app.results import Column, Result
from chainrule_app.tasks import TASK_VERBS, TASKS
from chainrule_app.tasks.capabilities import CheckedRows
from chainrule_app.tasks.config import CheckedOptions, Model
from chainrule_app.tasks.options import OptimisationOptions
from chainrule_app.tasks.task import Source, Task
from chainrule_app.tasks.text.run import TextRun


class Bigrams(AutoregressiveModel):
    """p(x_t | x_{t-1}) from a table."""

    def __init__(self, vocab_size: int, spread: float = 0.5):
        super().__init__()
        self.scores = nn.Parameter(spread * torch.randn(vocab_size + 1, vocab_size))

    def forward(self, x, context=None, lengths=None):
        start = torch.full_like(x[:, :1], self.scores.shape[1])
        return Categorical(self.scores[torch.cat([start, x[:, :-1]], 1)])

    def initial_state(self, batch_size, context=None):
        return self.scores.new_zeros(batch_size, 1)

    def step(self, x_prev, state):
        if x_prev is None:
            x_prev = torch.full((len(state),), self.scores.shape[1])
        return Categorical(self.scores[x_prev]), state

    def visible_past(self, length):
        return super().visible_past(length).triu(-1)


@dataclass(frozen=True)
class BigramOptions(CheckedOptions):
    spread: Annotated[float, Range(0.0, 2.0)] = 0.5
    """Standard deviation of the scores at the beginning."""


def test_a_model_is_one_class_its_options_and_one_line(command, ok, refused, text_file, tmp_path, monkeypatch):
    monkeypatch.setitem(TextRun.MODELS, "bigrams", Model(Bigrams, BigramOptions))
    run = tmp_path / "run"
    assert (
        "standard deviation of the scores"
        in " ".join(command("train", "--model", "bigrams", "--help").out.split()).lower()
    )
    ok("train", text_file, "--model", "bigrams", "--spread", 0.25, "--steps", 3, "--out", run)
    assert "--spread" in refused("train", text_file, "--model", "bigrams", "--spread", 3, "--out", tmp_path / "other")
    assert "an option of bigrams" in refused("train", text_file, "--spread", 1, "--out", tmp_path / "other")
    assert json.loads(command("info", run, "--json").out)["model"]["options"] == {"spread": 0.25}
    assert len(command("sample", run, "--length", 9, "--seed", 1).out) >= 9
    assert json.loads(command("score", run, text_file, "--json").out)["nats"] > 0
    ok("check", run)


class Flips(AutoregressiveModel):
    """Independent flips of one coin."""

    sequence_length = 4

    def __init__(self, start=0.0):
        super().__init__()
        self.odds = nn.Parameter(torch.tensor([start]))

    def forward(self, x, context=None, lengths=None):
        return Bernoulli(self.odds.expand(x.shape))

    def initial_state(self, batch_size, context=None):
        return self.odds.new_zeros(batch_size, 1)

    def step(self, x_prev, state):
        return Bernoulli(self.odds.expand(len(state))), state

    def visible_past(self, length):
        return torch.zeros(length, length, dtype=torch.bool)


@dataclass(frozen=True)
class FlipOptions(CheckedOptions):
    start: Annotated[float, Range(-5.0, 5.0)] = 0.0
    """Log-odds at the beginning."""


@dataclass(frozen=True)
class NoOptions(CheckedOptions):
    """Nothing to say."""


class FlipBatches:
    steps_per_epoch = 1

    def __init__(self, rows):
        self.rows = rows

    def at(self, step):
        return Batch(self.rows, whole=True)


class FlipTask(Task[Flips]):
    """Lines of four flips, such as 0110."""

    name = "flips"
    help = "Train a coin."
    SOURCES: ClassVar = {"source": Source("Lines of four flips.")}
    Data = Scoring = Sampling = Prediction = NoOptions
    Training = OptimisationOptions
    MODELS: ClassVar = {"coin": Model(Flips, FlipOptions)}

    def rows(self, path):
        with open(path) as file:
            return torch.tensor([[float(flip) for flip in line.strip()] for line in file])

    def prepare(self, old=None):
        from chainrule_app.readers.sources import fingerprint

        return {"source": fingerprint(self.config.sources["source"])}

    def build(self):
        return self.MODELS["coin"].build(self.config.options)

    def batches(self, shard):
        rows = self.rows(self.config.sources["source"])
        return FlipBatches(rows), lambda: [FlipBatches(rows).at(0)]

    def introduce(self):
        yield "flips"

    def best(self, found, value, rows):
        return {}, f"{found.nats_per_element:.3f} nats a flip"

    def next_steps(self):
        return []

    def describe(self, about):
        return {}

    def score(self, data, options, *, device):
        nats = (-self.model(device).log_prob(self.rows(data))).tolist()
        columns, about = [Column("nats", 3)], {"measured": self.basis}
        return Result(columns, ((value,) for value in nats), rank="nats", about=about)

    def sample(self, n, options, *, seed, device):
        drawn = self.model(device).sample(n, generator=torch.Generator().manual_seed(seed))
        lines = ["".join(str(int(flip)) for flip in row) for row in drawn.tolist()]
        return Result([Column("flips")], [(line,) for line in lines], form="lines")

    def predict(self, data, options, *, device):
        return Result([Column("next")], [(int(self.model(device).odds > 0),)])

    def checked_rows(self):
        return CheckedRows(self.model(), self.rows(self.config.sources["source"])[:4])


@pytest.fixture
def flips(monkeypatch):
    monkeypatch.setitem(TASKS, "flips", lambda: FlipTask)
    monkeypatch.setitem(TASK_VERBS, "flips", "Predict flips.")
    monkeypatch.setitem(RunFlags.__annotations__, "task", Literal[tuple(TASKS)] | None)


def test_a_task_is_one_class_and_one_line(flips, command, ok, refused, tmp_path):
    data, run = tmp_path / "flips.txt", tmp_path / "run"
    data.write_text("0110\n1110\n0111\n1111\n")
    ok("train", data, "--task", "flips", "--start", 0.5, "--steps", 2, "--out", run)
    assert json.loads(command("info", run, "--json").out)["task"] == "flips"
    heading, *lines, measured = command("score", run, data, "--sort").out.splitlines()
    assert heading.strip() == "nats"
    assert measured == "measured: exact; nats per element"
    assert [float(line) for line in lines] == sorted(map(float, lines), reverse=True)
    assert len(lines) == 4
    drawn = command("sample", run, "-n", 3, "--seed", 1).out.split()
    assert len(drawn) == 3
    assert all(len(line) == 4 and set(line) <= {"0", "1"} for line in drawn)
    assert command("flips", run, data).out == "next\n   1\n"
    assert "flips" in command("--help").out
    ok("check", run)
    assert "not a verb of the task" in refused("inspect", run)

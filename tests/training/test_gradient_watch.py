"""A run whose gradients are watched is the run that is not, with lines more in its metrics."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from training_toy import SYMBOLS, ToyBatch, ToyLines, ToyModel, ToyStream, held_out, options, remains

from chainrule.diagnostics import gradient_profile
from chainrule.models import RecurrentLM
from chainrule.training import evaluate, train
from chainrule.training._gradient_monitor import GradientMonitor, Profile, record
from chainrule_app.readers.help_topics import builtin_text
from chainrule_app.tracking import make_tracker


def network(cell: str = "lstm", dropout: float = 0.3, vocab_size: int = SYMBOLS, **settings: Any) -> RecurrentLM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return RecurrentLM(vocab_size, cell, hidden_size=settings.pop("hidden_size", 8), dropout=dropout, **settings)


def lines(directory: Path, *events: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] in events]


def watched(model: RecurrentLM, directory: Path, batches: Any = None, **changes: Any) -> list[dict[str, Any]]:
    resume = changes.pop("resume", False)
    callbacks = changes.pop("callbacks", ())
    settings = options(**{"watch_every": 3} | changes)
    batches = batches or ToyStream()
    train(
        model, batches, held_out, settings, directory,
        watch=gradient_profile, resume=resume, callbacks=callbacks, progress=False,
    )  # fmt: skip
    return lines(directory, "watch")


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_watching_changes_no_weight_and_no_other_figure(kind: str, tmp_path: Path) -> None:
    def batches() -> Any:
        return ToyLines() if kind == "lines" else ToyStream()

    looks = watched(network(num_layers=2), tmp_path / "watched", batches())
    train(network(num_layers=2), batches(), held_out, options(), tmp_path / "alone", progress=False)
    assert [look["step"] for look in looks] == [1, 4, 7, 10, 13, 16]
    mine, other = remains(tmp_path / "watched"), remains(tmp_path / "alone")
    assert {name: mine[name] == other[name] for name in other} == {name: name != "metrics.jsonl" for name in other}
    figures = ("step", "validation")
    assert lines(tmp_path / "watched", *figures) == lines(tmp_path / "alone", *figures, "watch")


@dataclass(frozen=True)
class Stopping:
    """Raises at a step, as if the power had gone."""

    batches: Any
    stop_at: int

    @property
    def steps_per_epoch(self) -> int:
        return self.batches.steps_per_epoch

    def at(self, step: int) -> ToyBatch:
        if step == self.stop_at:
            raise ConnectionError("the data is gone")
        return self.batches.at(step)


@pytest.mark.parametrize("stop_at", [2, 3, 4, 7])
def test_a_watched_run_that_is_resumed_ends_with_the_same_bits_and_warns_once(stop_at: int, tmp_path: Path) -> None:
    def batches() -> ToyStream:
        return ToyStream(length=20, size=960)

    def model() -> RecurrentLM:
        return network("rnn", nonlinearity="sigmoid")

    changes = {"validate_every": 2, "watch_every": 1, "steps": 9}
    watched(model(), tmp_path / "whole", batches(), **changes)
    with pytest.raises(ConnectionError):
        watched(model(), tmp_path / "cut", Stopping(batches(), stop_at), **changes)
    watched(model(), tmp_path / "cut", batches(), resume=True, **changes)
    assert remains(tmp_path / "cut") == remains(tmp_path / "whole")
    warnings = lines(tmp_path / "whole", "warning")
    assert [(warning["step"], warning["about"]) for warning in warnings] == [(3, "vanishing")]


def test_a_run_can_be_watched_from_where_it_is_resumed(tmp_path: Path) -> None:
    train(network(), ToyStream(), held_out, options(steps=4), tmp_path, progress=False)
    assert [look["step"] for look in watched(network(), tmp_path, steps=9, resume=True)] == [7]


def test_looks_are_without_dropout_and_in_full_precision(tmp_path: Path) -> None:
    usual = watched(network(dropout=0.0), tmp_path / "usual")
    dropped = watched(network(dropout=0.6), tmp_path / "dropped")
    halved = watched(network(dropout=0.0), tmp_path / "halved", precision="bfloat16")
    assert usual[0] == dropped[0] == halved[0]  # at step 1 their weights are the same
    assert usual[1] != dropped[1]


def test_a_look_sees_the_state_that_the_rows_continue_from() -> None:
    model, stream, device = network().double(), ToyStream(length=10), torch.device("cpu")
    watch = GradientMonitor(gradient_profile, 1)
    _, state = model.unroll(stream.at(0).x, model.initial_state(4))
    first, then = stream.at(0).x, stream.at(1)
    assert then.previous is not None
    (profile,) = watch.look(model, then, state, device)
    rows = gradient_profile(model, torch.cat([first, then.x], 1))[0]  # the whole past, in one piece
    relative = (rows.sum(0) / rows[:, 0].sum())[:10]
    torch.testing.assert_close(torch.tensor(profile.relative, dtype=torch.float64), relative)


def test_the_profile_at_a_distance_is_taken_over_the_rows_that_go_back_so_far() -> None:
    seen = {}

    def norms(model: object, x: Tensor, lengths: Tensor | None, state: object, x_prev: object) -> list[Tensor]:
        seen.update(x=x, lengths=lengths, state=state, x_prev=x_prev)
        return [torch.tensor([[4.0, 2.0, 0.0], [1.0, 0.5, 0.25]])]

    x = torch.arange(12).view(3, 4)
    (profile,) = GradientMonitor(norms, 1).look(
        network(), ToyBatch(x, lengths=torch.tensor([1, 2, 3])), None, torch.device("cpu")
    )
    assert seen["x"].tolist() == [[4, 5, 6], [8, 9, 10]]  # a row of one step has nothing to flow through
    assert seen["lengths"].tolist() == [2, 3]
    assert profile == Profile(2.5, (1.0, 0.5, 0.25))


def test_rows_of_one_step_are_not_looked_at() -> None:
    watch, device = GradientMonitor(gradient_profile, 1), torch.device("cpu")
    x = torch.zeros(2, 3, dtype=torch.long)
    assert watch.look(network(), ToyBatch(x, lengths=torch.ones(2, dtype=torch.long)), None, device) == []
    assert watch.look(network(), ToyBatch(x[:, :1]), None, device) == []


@pytest.mark.parametrize(
    ("relative", "reach"),
    [
        ((1.0, 0.2, 0.009, 0.02, 0.001), 4),  # under 1% and back over it
        ((1.0, 0.5, 0.1), None),
        ((1.0, 0.0), 1),
        ((1.0, 0.001, math.nan, 0.001), 3),
        ((0.0, 0.0), 1),
    ],
)
def test_the_reach_is_where_the_gradient_stays_under_a_hundredth(relative: tuple[float], reach: int | None) -> None:
    assert Profile(1.0, relative).reach == reach


def test_a_gradient_that_is_zero_or_overflows_is_still_a_line_of_json() -> None:
    def norms(*arguments: object) -> list[Tensor]:
        return [torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[1.0, torch.inf, torch.nan]])]

    batch = ToyBatch(torch.zeros(1, 3, dtype=torch.long))
    look = record(GradientMonitor(norms, 1).look(network(), batch, None, torch.device("cpu")))
    assert json.loads(json.dumps(look, allow_nan=False)) == look
    assert look["distances"] == [1, 2]
    assert [layer["relative"] for layer in look["layers"]] == [[0.0, 0.0], [None, None]]


def test_a_model_without_recurrence_is_refused_before_its_first_update(tmp_path: Path) -> None:
    model, fresh = ToyModel(), ToyModel()
    with pytest.raises(ValueError, match="expected a recurrent layer"):
        train(model, ToyStream(), held_out, options(), tmp_path, watch=gradient_profile, progress=False)
    assert evaluate(model, held_out()) == evaluate(fresh, held_out())


def test_looks_less_than_a_step_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="watch_every: expected an integer >= 1, got 0"):
        GradientMonitor(gradient_profile, 0)


def test_tensorboard_shows_reach_and_profile_of_each_layer(tmp_path: Path) -> None:
    accumulation = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    looks = watched(network(num_layers=2), tmp_path, callbacks=[make_tracker("tensorboard")])
    events = accumulation.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    for name, value in (("distance_2", looks[1]["layers"][1]["relative"][1]), ("reach", 5)):
        shown = events.Scalars(f"gradient_layer_1/{name}")
        assert [event.step for event in shown] == [1, 4, 7, 10, 13, 16]
        assert shown[1].value == pytest.approx(value)


class Text(ToyStream):
    """The text built into Python as a stream: a real one, small steps."""

    def __init__(self, batch_size: int = 16, length: int = 40):
        text = builtin_text()[:64_000]
        number = {symbol: index for index, symbol in enumerate(sorted(set(text)))}
        self.tracks = torch.tensor([number[symbol] for symbol in text]).view(batch_size, -1)
        self.vocab_size, self.length = len(number), length
        self.steps_per_epoch = self.tracks.shape[1] // length


@pytest.mark.parametrize(("cell", "warned"), [("rnn", True), ("lstm", False), ("gru", False)])
def test_on_text_a_sigmoid_rnn_is_warned_of_and_gated_cells_are_not(cell, warned, tmp_path, capsys):
    text = Text()
    special = {"nonlinearity": "sigmoid"} if cell == "rnn" else {}
    model = network(cell, vocab_size=text.vocab_size, hidden_size=64, **special)
    settings = options(steps=61, validate_every=61, learning_rate=6e-3)
    train(model, text, lambda: [text.at(0)], settings, tmp_path, watch=gradient_profile)
    warnings = lines(tmp_path, "warning")
    assert [warning["about"] for warning in warnings] == ["vanishing"] * warned
    shown = capsys.readouterr().err
    assert shown.count("gradients vanish") == warned
    assert ("--model lstm or gru" in shown) == warned

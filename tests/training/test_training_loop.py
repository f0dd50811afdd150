"""How a run ends: well, early, by a signal or by an accident."""

import errno
import io
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from training_toy import ToyBatch, ToyModel, ToyStream, held_out, options, remains

from chainrule.training import Evaluation, Interrupted, NonFiniteLossError, evaluate, load_weights, train
from chainrule.training import _loop as loop
from chainrule.training import _validation as validation
from chainrule.training._gradient_monitor import GradientAlarms, Guard
from chainrule.training._metrics import Metrics
from chainrule.training._optimiser import AdamW
from chainrule.training._report import Display, Report


def test_training_learns_and_ends_with_the_best_weights_in_the_model(tmp_path: Path) -> None:
    model = ToyModel(hidden_size=16, dropout=0.0)
    before = evaluate(model, held_out()).nats_per_element
    settings = options(steps=120, learning_rate=0.02, validate_every=40)
    result = train(model, ToyStream(), held_out, settings, tmp_path, progress=False)
    assert result.best.nats_per_element < 0.6 * before
    assert evaluate(model, held_out()) == result.best


def test_early_stopping_waits_for_its_patience_and_keeps_the_best_weights(tmp_path, monkeypatch):
    results = iter([3.0, 2.0, 2.5, 2.0, 1.0])  # equal is no improvement
    monkeypatch.setattr(validation, "evaluations", lambda model, batches: [Evaluation(next(results), 1)])
    settings = options(steps=100, validate_every=5, patience=2)
    model, kept = ToyModel(), ToyModel(seed=1)
    result = train(model, ToyStream(), held_out, settings, tmp_path, progress=False)
    assert load_weights(tmp_path / "model.safetensors", kept)["step"] == 10
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), kept.parameters(), strict=True))
    assert (result.step, result.best_step, result.ended_by) == (20, 10, "patience")
    again = train(ToyModel(), ToyStream(), held_out, settings, tmp_path, resume=True, progress=False)
    assert again.step == 20
    longer = options(steps=25, validate_every=5, patience=3)
    assert train(ToyModel(), ToyStream(), held_out, longer, tmp_path, resume=True, progress=False).best_step == 25


class Signalled(ToyStream):
    """Sends this process signals while it prepares a step."""

    def __init__(self, step: int, *numbers: signal.Signals):
        super().__init__()
        self.step, self.numbers = step, numbers

    def at(self, step: int) -> ToyBatch:
        if step == self.step:
            for number in self.numbers:
                os.kill(os.getpid(), number)
        return super().at(step)


SIGNALS = [number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP")]  # Windows has two
# Closing a terminal sends SIGHUP more than once; what ends a service or a job sends several signals.
ENDING = [(number,) for number in SIGNALS] + [(number, number) for number in SIGNALS if number != signal.SIGINT]


@pytest.mark.parametrize("numbers", ENDING, ids=lambda numbers: "+".join(number.name for number in numbers))
def test_a_signal_finishes_the_step_saves_and_says_so(numbers: tuple[signal.Signals, ...], tmp_path: Path) -> None:
    handlers = [signal.getsignal(each) for each in SIGNALS]
    with pytest.raises(Interrupted, match=r"step 7 is saved in .*resume=True") as stop:
        train(ToyModel(), Signalled(6, *numbers), held_out, options(), tmp_path / "a", progress=False)
    assert (stop.value.step, stop.value.directory) == (7, tmp_path / "a")
    assert [signal.getsignal(each) for each in SIGNALS] == handlers
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "a", resume=True, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "b", progress=False)
    assert remains(tmp_path / "a") == remains(tmp_path / "b")


class Asked(ToyStream):
    """Data that write the file `stop` into the run's directory while a step is prepared."""

    def __init__(self, step: int, directory: Path):
        super().__init__()
        self.step, self.file = step, directory / "stop"

    def at(self, step: int) -> ToyBatch:
        if step == self.step:
            self.file.touch()
        return super().at(step)


def test_a_file_named_stop_ends_the_run_as_a_signal_does(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("chainrule.training._parallel._LOOK", -1.0)  # at every step
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "stop").touch()  # left by a run that was killed: it stops no other
    with pytest.raises(Interrupted, match="step 7 is saved"):
        train(ToyModel(), Asked(6, tmp_path / "a"), held_out, options(), tmp_path / "a", progress=False)
    assert not (tmp_path / "a" / "stop").exists()
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "a", resume=True, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "b", progress=False)
    assert remains(tmp_path / "a") == remains(tmp_path / "b")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="Windows has no SIGHUP")
def test_a_run_that_nohup_keeps_from_ending_with_its_terminal_goes_on(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = train(ToyModel(), Signalled(6, signal.SIGHUP), held_out, options(), tmp_path, progress=False)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert result.step == 16


class Closed(io.StringIO):
    """A terminal that is closed before the run begins, or a file on a disk that is full."""

    def __init__(self, number: int, *, terminal: bool):
        super().__init__()
        self._number, self._terminal = number, terminal

    def isatty(self) -> bool:
        return self._terminal

    def write(self, text: str) -> int:
        raise OSError(self._number, os.strerror(self._number))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_run_whose_terminal_is_closed_is_saved(terminal: bool, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr", Closed(errno.EIO, terminal=terminal))
    with pytest.raises(Interrupted, match="step 7 is saved"):
        train(ToyModel(), Signalled(6, signal.SIGTERM), held_out, options(), tmp_path)


def test_what_else_keeps_the_report_from_being_written_is_not_passed_over(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.stderr", Closed(errno.ENOSPC, terminal=False))
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        train(ToyModel(), ToyStream(), held_out, options(), tmp_path)


def test_a_second_signal_does_not_wait_and_the_last_checkpoint_stands(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match="step 4 is saved"):
        train(ToyModel(), Signalled(6, signal.SIGINT, signal.SIGINT), held_out, options(), tmp_path, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False)


def test_a_signal_breaks_off_a_validation_which_is_done_anew_on_resume(tmp_path: Path) -> None:
    def interrupted_held_out():
        for number, batch in enumerate(held_out()):
            if number == 1:
                os.kill(os.getpid(), signal.SIGINT)
            yield batch

    with pytest.raises(Interrupted, match="step 4 is saved"):
        train(ToyModel(), ToyStream(), interrupted_held_out, options(), tmp_path / "a", progress=False)
    assert "validation" not in (tmp_path / "a" / "metrics.jsonl").read_text()
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "a", resume=True, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "b", progress=False)
    assert remains(tmp_path / "a") == remains(tmp_path / "b")


class Exploding(ToyModel):
    """Its loss becomes infinite from a forward pass on."""

    def __init__(self, at: int):
        super().__init__()
        self.passes, self.explodes_at = 0, at

    def unroll(self, x, state, x_prev=None):
        conditionals, state = super().unroll(x, state, x_prev)
        self.passes += self.training
        if self.passes >= self.explodes_at and self.training:
            conditionals._param = conditionals._param + torch.inf
        return conditionals, state


def test_an_infinite_loss_stops_with_step_history_and_advice_and_keeps_the_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(NonFiniteLossError) as failure:
        train(Exploding(7), ToyStream(), held_out, options(), tmp_path, progress=False)
    assert (failure.value.step, failure.value.saved_step, len(failure.value.norms)) == (7, 4, 7)
    for part in ("loss is not finite at step 7", "gradient norms", "learning_rate", "checkpoint of step 4 is kept"):
        assert part in str(failure.value)
    result = train(ToyModel(), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False)
    assert result.step == 16


def test_a_validation_that_is_no_number_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "evaluations", lambda model, batches: [Evaluation(float("nan"), 1)])
    with pytest.raises(NonFiniteLossError, match="validation loss is not finite at step 4"):
        train(ToyModel(), ToyStream(), held_out, options(), tmp_path, progress=False)


def test_figures_read_several_at_once_are_all_on_the_disk_before_a_checkpoint(tmp_path, monkeypatch):
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "a", progress=False)
    monkeypatch.setattr(loop, "Report", SeldomReport)
    with pytest.raises(Interrupted):
        train(ToyModel(), Signalled(6, signal.SIGINT), held_out, options(), tmp_path / "b", progress=False)
    assert (tmp_path / "b" / "metrics.jsonl").read_text().count('"event": "step"') == 7
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path / "b", resume=True, progress=False)
    assert remains(tmp_path / "a") == remains(tmp_path / "b")


class SeldomReport(Report):
    """Reads figures as on a GPU, where each reading makes the device wait."""

    def __init__(
        self, metrics: Metrics | None, display: Display, guard: Guard, alarms: GradientAlarms, device: torch.device
    ):
        super().__init__(metrics, display, guard, alarms, torch.device("cuda"))


def test_weights_that_overflow_never_reach_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "evaluations", lambda model, batches: [Evaluation(1.0, 1)])
    model = ToyModel()
    take = AdamW.step

    def overflow(self: AdamW) -> None:
        take(self)
        if model.output.bias.isfinite().all() and len(norms) == 8:
            model.output.bias.data[0] = torch.inf

    norms: list[int] = []
    monkeypatch.setattr(AdamW, "step", lambda self: (norms.append(1), overflow(self)))
    with pytest.raises(NonFiniteLossError, match="a weight is not finite at step 8"):
        train(model, ToyStream(), held_out, options(), tmp_path, progress=False)
    saved = load_file(tmp_path / "checkpoint.safetensors")
    assert all(tensor.isfinite().all() for tensor in saved.values())


def test_a_full_disk_stops_with_one_line_and_keeps_the_checkpoint(tmp_path, monkeypatch):
    replace = os.replace

    def full(source: Path, target: Path) -> None:
        if (tmp_path / "model.safetensors").exists():
            raise OSError(28, "No space left on device")
        replace(source, target)

    with monkeypatch.context() as disk:
        disk.setattr(os, "replace", full)
        with pytest.raises(OSError, match=r"No space left on device.*the file before it is intact"):
            train(ToyModel(), ToyStream(), held_out, options(), tmp_path, progress=False)
    assert train(ToyModel(), ToyStream(), held_out, options(), tmp_path, resume=True, progress=False).step == 16


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_in_the_mode_it_came_in(training: bool, tmp_path: Path) -> None:
    model = ToyModel().train(training)
    modes: list[bool] = []

    def look(shown: torch.nn.Module, step: int, seconds: float) -> None:
        modes.append(shown.training)

    train(model, ToyStream(), held_out, options(), tmp_path, on_validation=look, progress=False)
    assert model.training is training
    assert modes == [False] * 4


def test_metrics_hold_a_line_a_step_and_a_line_a_validation(tmp_path: Path) -> None:
    result = train(ToyModel(), ToyStream(), held_out, options(), tmp_path, progress=False)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if record["event"] == "step"]
    validations = [record for record in records if record["event"] == "validation"]
    assert [record["step"] for record in steps] == list(range(1, 17))
    assert [record["step"] for record in validations] == [4, 8, 12, 16]
    assert steps[-1]["elements"] == result.elements == 16 * 20
    assert validations[-1]["nats_per_element"] == result.last.nats_per_element
    names = {"event", "step", "elements", "nats_per_element", "bits_per_element"}
    assert steps[0].keys() == names | {"gradient_norm", "learning_rate"}
    assert validations[0].keys() == names | {"perplexity", "best"}


def test_the_norm_in_the_metrics_is_the_one_before_clipping(tmp_path: Path) -> None:
    for name, clip in (("free", None), ("clipped", 1e-3)):
        train(ToyModel(), ToyStream(), held_out, options(clip_norm=clip, steps=1), tmp_path / name, progress=False)
    first = [(tmp_path / name / "metrics.jsonl").read_text().splitlines()[0] for name in ("free", "clipped")]
    assert first[0] == first[1]


def test_epochs_are_counted_in_steps_and_may_be_a_fraction(tmp_path: Path) -> None:
    result = train(ToyModel(), ToyStream(), held_out, options(epochs=1.5), tmp_path, progress=False)
    assert result.step == 18

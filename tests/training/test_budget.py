"""A budget is kept: on a clock of our own, so that the machine these tests run on does not matter."""

import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from torch import nn
from training_toy import SYMBOLS, ToyBatch, ToyModel, ToyStream, held_out, options, remains

from chainrule._base import AutoregressiveModel
from chainrule.heads import Categorical
from chainrule.training import Interrupted, MetricValue, TrainingOptions, TrainingResult, ValidationMetric, train
from chainrule.training import _duration as duration
from chainrule.training import _loop as loop
from chainrule.training import _report as report
from chainrule.training import _validation as validation
from chainrule_app.readers.row_order import Rows


class Marginal(ToyModel):
    """One distribution for every symbol: here the clock alone matters."""

    def __init__(self):
        AutoregressiveModel.__init__(self)
        self.logits = nn.Parameter(torch.zeros(SYMBOLS))

    def initial_state(self, batch_size, context=None):
        return self.logits.new_zeros(batch_size)

    def unroll(self, x, state, x_prev=None):
        return Categorical(self.logits.expand(*x.shape, -1)), state


@dataclass
class Clock:
    """Moves when steps, validations and saves say so, each as long as given, more or less by `noise`."""

    step: float
    validation_batch: float
    flush: float
    noise: float = 0.0
    now: float = 0.0
    source: random.Random = field(default_factory=lambda: random.Random(0))

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds * (1 + self.noise * (2 * self.source.random() - 1))

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (duration, loop, report, validation):
            monkeypatch.setattr(module, "monotonic", self)
        monkeypatch.setattr(os, "fsync", lambda descriptor: self.pass_(self.flush))

    def stream(self) -> ToyStream:
        clock = self

        class Stream(ToyStream):
            def at(self, step: int) -> ToyBatch:
                clock.pass_(clock.step)
                return super().at(step)

        return Stream()

    def held_out(self, batches: int) -> Iterator[ToyBatch]:
        batch = next(held_out())
        for _ in range(batches):
            self.pass_(self.validation_batch)
            yield batch


@pytest.fixture
def ticking(monkeypatch):
    """Make a clock and put it in the place of the real one."""

    def make(*arguments, **options):
        clock = Clock(*arguments, **options)
        clock.install(monkeypatch)
        return clock

    return make


def run(clock: Clock, budget: float, batches: int, directory: Path, **settings: object) -> TrainingResult:
    return train(
        Marginal(), clock.stream(), lambda: clock.held_out(batches), options(budget=budget), directory, progress=False,
        **settings,
    )  # fmt: skip


def lines(directory: Path, event: str) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == event]


CASES = {  # seconds of a step, of a held-out batch, of a flush, and their noise; the budget; held-out batches
    "three minutes": ((0.5, 0.25, 0.01, 0.0), 180.0, 4),
    "five seconds": ((0.05, 0.02, 0.01, 0.0), 5.0, 5),
    "five seconds, noisy": ((0.05, 0.02, 0.005, 0.5), 5.0, 5),
    "a slow validation": ((0.1, 0.1, 0.01, 0.0), 10.0, 1000),
    "a slow disk": ((0.1, 0.01, 0.1, 0.0), 20.0, 5),
    "few steps": ((0.82, 0.01, 0.01, 0.0), 10.0, 5),
    "an hour": ((12.0, 6.0, 0.1, 0.3), 3600.0, 8),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_ends_within_five_percent_of_its_budget_with_the_schedule_at_its_end(case, tmp_path, ticking):
    times, budget, batches = CASES[case]
    clock = ticking(*times)
    result = run(clock, budget, batches, tmp_path)
    assert abs(clock.now - budget) < 0.05 * budget
    assert abs(result.elapsed - budget) < 0.05 * budget
    assert lines(tmp_path, "step")[-1]["learning_rate"] == pytest.approx(0.01 * 3e-3)
    assert lines(tmp_path, "validation")[-1]["step"] == result.step
    if not clock.noise:  # then nothing but half a step is left to chance
        assert clock.now - budget < 0.6 * clock.step


def test_validations_of_much_data_read_more_each_time_and_take_a_small_share(tmp_path, ticking):
    clock = ticking(0.4, 0.1, 0.01)
    result = run(clock, 100.0, 1000, tmp_path)
    elements = [line["elements"] for line in lines(tmp_path, "validation")]
    assert len(elements) > 2
    assert elements == sorted(elements)
    assert elements[0] < elements[-1]
    assert result.step * 0.4 > 0.85 * 100


def test_a_quick_validation_comes_about_ten_times_and_reads_everything(tmp_path, ticking):
    clock = ticking(0.5, 0.01, 0.001)
    run(clock, 100.0, 8, tmp_path)
    validations = lines(tmp_path, "validation")
    assert 8 <= len(validations) <= 11
    assert {validation["elements"] for validation in validations} == {8 * 100}


def test_time_spent_before_an_interruption_counts(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)

    def stop(model: object, step: int, seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(clock, 20.0, 5, tmp_path, on_validation=stop)
    clock.now += 1000  # the time between two sittings does not count
    run(clock, 20.0, 5, tmp_path, resume=True)
    assert clock.now == pytest.approx(1020, abs=1.0)


def test_a_used_up_budget_can_grow_and_not_shrink(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)
    run(clock, 10.0, 5, tmp_path)
    with pytest.raises(ValueError, match="budget: expected more than the 10 seconds that the run has taken, got 5"):
        run(clock, 5.0, 5, tmp_path, resume=True)
    run(clock, 15.0, 5, tmp_path, resume=True)
    assert clock.now == pytest.approx(15.0, abs=0.75)
    rates = [line["learning_rate"] for line in lines(tmp_path, "step")]
    assert max(rates[-40:]) > 10 * min(rates)  # back at its place in the longer schedule


def test_a_run_is_saved_every_minute_whether_it_validates_or_not(tmp_path, monkeypatch, ticking):
    clock = ticking(7.0, 0.0, 0.0)
    saved: list[float] = []
    save = loop.save_checkpoint

    def noted(*arguments: object) -> None:
        saved.append(clock.now)
        save(*arguments)

    monkeypatch.setattr(loop, "save_checkpoint", noted)
    settings = options(steps=60, validate_every=60)
    train(Marginal(), clock.stream(), lambda: clock.held_out(2), settings, tmp_path, progress=False)
    assert max(after - before for before, after in zip([0.0, *saved], saved, strict=False)) <= 67.0
    assert len(saved) == 7


def test_start_up_counts_up_to_a_fifth_of_the_budget_and_then_extends_the_run(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001, now=100.0)
    run(clock, 20.0, 5, tmp_path / "quick", began=98.0)
    assert clock.now == pytest.approx(98.0 + 20.0, abs=0.2)
    began = clock.now
    clock.now += 9.0
    result = run(clock, 20.0, 5, tmp_path / "slow", began=began)
    assert clock.now == pytest.approx(began + 20.0 + (9.0 - 4.0), abs=0.2)
    assert result.step * 0.1 > 0.75 * 20.0
    rates = [line["learning_rate"] for line in lines(tmp_path / "slow", "step")]
    assert rates[0] < 0.1 * max(rates)  # the warm-up is not lost to the start-up
    assert rates[-1] == pytest.approx(0.01 * 3e-3)


def test_the_start_up_of_a_later_sitting_is_free(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)
    run(clock, 10.0, 5, tmp_path)
    began = clock.now
    clock.now += 30.0
    result = run(clock, 20.0, 5, tmp_path, began=began, resume=True)
    assert clock.now == pytest.approx(began + 30.0 + 10.0, abs=0.2)
    assert result.elapsed == pytest.approx(20.0, abs=0.2)


def test_a_run_at_the_end_of_its_budget_takes_no_further_step(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001, noise=0.5)
    first = run(clock, 10.0, 5, tmp_path)
    before = remains(tmp_path)
    for budget in (10.0, 9.8):  # as good as the same
        again = run(clock, budget, 5, tmp_path, resume=True)
        assert (again.steps_now, again.step) == (0, first.step)
        assert again.elapsed == pytest.approx(first.elapsed, abs=0.05)  # but for the last save, written before it ends
    assert remains(tmp_path) == before
    assert first.steps_now == first.step


def test_no_validation_comes_before_a_tenth_of_the_budget_or_after_a_few_steps(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)
    run(clock, 20.0, 5, tmp_path / "quick")
    assert lines(tmp_path / "quick", "validation")[0]["step"] >= 20
    clock.step = 4.0
    run(clock, 20.0, 5, tmp_path / "slow")
    assert [line["step"] for line in lines(tmp_path / "slow", "validation")] == [5]


def test_a_slow_metric_answers_a_few_rows_then_more_and_leaves_the_time_to_training(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)

    answered: list[int] = []

    def answer(model: object, rows: Rows) -> list[int]:
        clock.pass_(0.01 * len(rows))
        answered.extend(rows.tolist())
        return rows.tolist()

    seen: list[list[int]] = []

    def compare(rows: Rows, answers: Sequence[int], step: int) -> MetricValue:
        assert list(answers) == rows.tolist()
        if answered:  # all of them are compared first, then parts
            assert list(answers) == answered
            seen.append(list(answers))
            answered.clear()
        return MetricValue("luck", float(step))

    result = run(clock, 60.0, 5, tmp_path, metric=ValidationMetric(5000, answer, compare))
    counts = [line["rows"] for line in lines(tmp_path, "validation")]
    assert counts == sorted(counts)
    assert 8 <= counts[0] < counts[-1] < 5000
    longest = max(seen, key=len)
    assert all(rows == longest[: len(rows)] for rows in seen)  # the same rows, and more of them
    assert longest != sorted(longest)  # drawn from all, as files are often sorted
    assert result.best_rows == counts[-1]
    assert result.step * 0.1 > 0.85 * 60.0
    assert clock.now == pytest.approx(60.0, rel=0.05)


def test_a_sample_that_takes_too_long_waits_until_there_is_time_for_it(tmp_path, ticking):
    clock = ticking(0.1, 0.01, 0.001)
    drawn: list[int] = []

    def draw(model: object, step: int, seconds: float) -> None:
        drawn.append(step)
        clock.pass_(3.0)

    result = run(clock, 60.0, 5, tmp_path, on_validation=draw)
    assert len(drawn) <= 2
    assert result.step * 0.1 > 0.8 * 60.0


def test_where_the_time_went_is_written_down(tmp_path, ticking):
    clock = ticking(0.1, 0.2, 0.05, now=100.0)
    result = run(clock, 50.0, 5, tmp_path, began=97.0)
    timings = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert timings[-1]["training_seconds"] == pytest.approx(0.1 * result.step)
    start_up = timings[-1]["start_up_seconds"]
    assert start_up == pytest.approx(3.0, abs=0.2)  # the files of figures are made
    assert timings[-1]["elapsed"] == pytest.approx(clock.now - 97.0)
    aside = sum(line["validating_seconds"] + line["saving_seconds"] for line in timings)
    counted = start_up + aside + timings[-1]["training_seconds"]
    # Left out: a batch read to estimate a validation's cost, and the checkpoint written before the first weights.
    assert counted == pytest.approx(clock.now - 97.0, abs=0.5)


@pytest.mark.slow
def test_a_real_budget_on_a_real_clock(tmp_path: Path) -> None:
    result = train(ToyModel(), ToyStream(), held_out, options(budget=3.0), tmp_path, progress=False)
    assert 2.7 < result.elapsed < 4.5  # a shared machine may stall; how exact a budget is, the tests above say


def test_steps_that_were_chosen_for_a_budget_end_with_it(tmp_path, ticking):
    """On a machine that had become slower, a run of 20 seconds took 27.5."""
    clock = ticking(0.1, 0.05, 0.01)
    training = options(steps=400, most_seconds=10.0, validate_every=20)
    result = train(Marginal(), clock.stream(), lambda: clock.held_out(4), training, tmp_path, progress=False)
    assert abs(clock.now - 10) < 0.05 * 10
    assert (result.ended_by, result.step < 100, result.last.elements) == ("length", True, 400)
    quick = ticking(0.01, 0.005, 0.001)
    result = train(Marginal(), quick.stream(), lambda: quick.held_out(4), training, tmp_path / "quick", progress=False)
    assert result.step == 400


@pytest.mark.parametrize(
    ("total", "steps_per_epoch", "every"), [(600, 1, 6), (50, 1, 1), (1000, 4, 10), (1000, 500, 100)]
)
def test_a_run_of_steps_is_validated_ten_to_a_hundred_times(total, steps_per_epoch, every):
    """A table of 150 rows was validated, and shown, after each of its 600 steps."""
    made = duration.make_duration(TrainingOptions(steps=total), steps_per_epoch, list)
    assert made.validate_every == every

"""A budget is kept: on a clock of our own, so that the machine these tests run on does not matter."""

import json
import os
import random
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from training_toy import ToyBatch, ToyModel, ToyStream, held_out, options

from chainrule.training import Interrupted, TrainingResult, atomic, extent, loop, report, sitting, train, validation


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
        for module in (extent, loop, report, sitting, validation):
            monkeypatch.setattr(module, "monotonic", self)
        monkeypatch.setattr(atomic.os, "fsync", lambda descriptor: self.pass_(self.flush))

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


def run(clock: Clock, budget: float, batches: int, directory: Path, **settings: object) -> TrainingResult:
    return train(
        ToyModel(), clock.stream(), lambda: clock.held_out(batches), options(budget=budget), directory, progress=False,
        **settings,
    )  # fmt: skip


def lines(directory: Path, event: str) -> list[dict[str, float]]:
    records = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["event"] == event]


CASES = {
    "three minutes": (Clock(0.5, 0.25, 0.01), 180.0, 4),
    "five seconds": (Clock(0.05, 0.02, 0.01), 5.0, 5),
    "five seconds, noisy": (Clock(0.05, 0.02, 0.005, noise=0.5), 5.0, 5),
    "a slow validation": (Clock(0.1, 0.1, 0.01), 10.0, 1000),
    "a slow disk": (Clock(0.1, 0.01, 0.1), 20.0, 5),
    "few steps": (Clock(0.82, 0.01, 0.01), 10.0, 5),
    "an hour": (Clock(12.0, 6.0, 0.1, noise=0.3), 3600.0, 8),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_ends_within_five_percent_of_its_budget_with_the_schedule_at_its_end(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, budget, batches = CASES[case]
    clock.install(monkeypatch)
    began = clock.now
    result = run(clock, budget, batches, tmp_path)
    assert abs(clock.now - began - budget) < 0.05 * budget
    assert abs(result.elapsed - budget) < 0.05 * budget
    assert lines(tmp_path, "step")[-1]["learning_rate"] == pytest.approx(0.01 * 3e-3)
    assert lines(tmp_path, "validation")[-1]["step"] == result.step
    if not clock.noise:  # then nothing but half a step is left to chance
        assert abs(clock.now - began - budget) < 0.6 * clock.step


def test_validations_read_the_same_part_each_time_and_take_a_small_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.4, 0.4, 0.01)
    clock.install(monkeypatch)
    result = run(clock, 100.0, 1000, tmp_path)
    validations = lines(tmp_path, "validation")
    assert len({validation["elements"] for validation in validations}) == 1
    assert len(validations) > 1
    assert result.step * 0.4 > 0.85 * 100


def test_a_quick_validation_comes_about_ten_times_and_reads_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(0.5, 0.01, 0.001)
    clock.install(monkeypatch)
    run(clock, 100.0, 8, tmp_path)
    validations = lines(tmp_path, "validation")
    assert 8 <= len(validations) <= 11
    assert {validation["elements"] for validation in validations} == {8 * 100}


def test_time_spent_before_an_interruption_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.1, 0.01, 0.001)
    clock.install(monkeypatch)

    def stop(model: object, step: int, seconds: float) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted):
        run(clock, 20.0, 5, tmp_path, on_validation=stop)
    clock.now += 1000  # the time between two sittings does not count
    run(clock, 20.0, 5, tmp_path, resume=True)
    assert clock.now == pytest.approx(1020, abs=1.0)


def test_a_used_up_budget_can_grow_and_not_shrink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.1, 0.01, 0.001)
    clock.install(monkeypatch)
    run(clock, 10.0, 5, tmp_path)
    with pytest.raises(ValueError, match="budget: expected more than the 10 seconds that the run has taken, got 5"):
        run(clock, 5.0, 5, tmp_path, resume=True)
    run(clock, 15.0, 5, tmp_path, resume=True)
    assert clock.now == pytest.approx(15.0, abs=0.75)
    rates = [line["learning_rate"] for line in lines(tmp_path, "step")]
    assert max(rates[-40:]) > 10 * min(rates)  # back at its place in the longer schedule


def test_a_run_is_saved_every_minute_whether_it_validates_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(7.0, 0.0, 0.0)
    clock.install(monkeypatch)
    saved: list[float] = []
    save = sitting.save_checkpoint

    def noted(*arguments: object) -> None:
        saved.append(clock.now)
        save(*arguments)

    monkeypatch.setattr(sitting, "save_checkpoint", noted)
    settings = options(steps=60, validate_every=60)
    train(ToyModel(), clock.stream(), lambda: clock.held_out(2), settings, tmp_path, progress=False)
    assert max(after - before for before, after in zip([0.0, *saved], saved, strict=False)) <= 67.0
    assert len(saved) == 7


@pytest.mark.slow
def test_a_real_budget_on_a_real_clock(tmp_path: Path) -> None:
    torch.optim.AdamW([torch.zeros(1)])  # the first one imports for a second or more, which is not what is tested
    result = train(ToyModel(), ToyStream(), held_out, options(budget=3.0), tmp_path, progress=False)
    assert 2.7 < result.elapsed < 4.5  # a shared machine may stall; how exact a budget is, the tests above say

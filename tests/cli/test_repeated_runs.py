"""The flags that a run prints, added to its command, repeat it: every option that decides the result is among them."""

import itertools
import shlex
import time
from dataclasses import replace

import pytest
from small_data import SMALL_SIZES, WRITERS

from chainrule.data import Batches, SeriesWindows
from chainrule.training import _speed as speed
from chainrule_app.printing import flags_of
from chainrule_app.tasks import open_run
from chainrule_app.tasks.classify import task as classify_task
from chainrule_app.tasks.config import ChosenComputation
from chainrule_app.tasks.forecast import task as forecast_task


def same_again(outcome):
    """The flags that a run printed."""
    assert outcome.status == 0, outcome.err
    (line,) = (line for line in outcome.err.splitlines() if line.startswith("reproduce with: "))
    return shlex.split(line.removeprefix("reproduce with: "))


def same_bits(tmp_path, *runs):
    for name in ("model.safetensors", "metrics.jsonl"):
        first, *others = ((tmp_path / run / name).read_bytes() for run in runs)
        assert all(other == first for other in others)


@pytest.mark.parametrize(
    ("task", "options"),
    [*SMALL_SIZES.items(), ("text", ""), ("text", "--level word"), ("text", "--plain")],
    ids=lambda part: part.partition(" ")[0] or "all sizes chosen",
)
def test_the_printed_flags_repeat_a_run_bit_for_bit(command, ok, tmp_path, task, options):
    """Timing had chosen another kernel the second time, and the printed flags did not name it."""
    data = [*WRITERS[task](tmp_path), *options.split(), "--steps", 2]
    flags = same_again(command("train", *data, "--out", tmp_path / "first"))
    assert shlex.join(flags) in command("info", tmp_path / "first").out
    again = ok("train", *data, *flags, "--out", tmp_path / "second")
    assert "reproduce with" not in again.err
    first, second = (open_run(tmp_path / name).config for name in ("first", "second"))
    assert (first.options, first.computation) == (second.options, second.computation)
    same_bits(tmp_path, "first", "second")


def test_the_same_command_makes_the_same_model_at_any_speed(ok, text_file, tmp_path, monkeypatch):
    """Precision and kernel had been raced: two equal commands gave different models."""
    clock = itertools.count()
    for module in (time, speed):
        monkeypatch.setattr(module, "perf_counter", lambda: next(clock) ** 1.5)
    for name in ("first", "second"):
        ok("train", text_file, "--steps", 3, "--out", tmp_path / name)
    same_bits(tmp_path, "first", "second")


@pytest.mark.slow
@pytest.mark.parametrize("task", WRITERS)
def test_sizes_chosen_for_a_budget_are_repeated_bit_for_bit_with_steps(command, ok, tmp_path, monkeypatch, task):
    for module in (classify_task, forecast_task):  # else up to a thousand passes over a few rows
        monkeypatch.setattr(module, "_FEWEST_STEPS", 3)
    data = WRITERS[task](tmp_path)
    flags = same_again(command("train", *data, "--budget", "0.1s", "--out", tmp_path / "budget"))
    steps = [] if "--epochs" in flags else ["--steps", 3]  # little data end after passes
    names = ("first", "second") if steps else ("first",)
    for name in names:
        outcome = ok("train", *data, *flags, *steps, "--out", tmp_path / name)
        assert "reproduce with" not in outcome.err
    budget, first = (open_run(tmp_path / name).config for name in ("budget", "first"))
    assert (budget.options, budget.computation) == (first.options, first.computation)
    ways = {name: getattr(budget.training, name) for name in ("threads", "precision", "backend")}  # now named
    assert budget.training == replace(first.training, **ways)
    same_bits(tmp_path, *([] if steps else ["budget"]), *names)


@pytest.mark.parametrize("backend", ["vendor", "bptt"])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_flags_replace_the_rule(ok, text_file, tmp_path, backend, precision):
    asked = ("train", text_file, "--model", "lstm", "--hidden-size", 4, "--dropout", 0, "--steps", 1)
    ways = ("--backend", backend, "--precision", precision, "--threads", 1)
    outcome = ok(*asked, *ways, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.computation == ChosenComputation(1, precision, backend)
    assert (
        f"{precision}, {'vendor kernel' if backend == 'vendor' else 'written-out recurrence'}, 1 thread: "
        in outcome.err
    )


@pytest.mark.parametrize("rates", [(1e-3, 1e6), (1e6, 1e-3)])
@pytest.mark.parametrize("task", WRITERS)
def test_the_printed_flags_make_the_same_model_on_a_machine_of_another_speed(
    planned, tmp_path, monkeypatch, task, rates
):
    data, configs, flags = [*WRITERS[task](tmp_path), "--budget", "0.05s"], [], []
    for rate in rates:
        monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_, rate=rate: rate)
        asked = data[:-2] if "--epochs" in flags else data
        planned(*asked, *flags, "--out", tmp_path / f"{rate}")
        configs.append(open_run(tmp_path / f"{rate}").config)
        flags = flags_of(configs[0].chosen()).split()
    first, second = configs
    assert first.options == second.options
    ways = {"threads": 1, "precision": "float32", "backend": "auto"}
    if first.duration != second.duration:  # a faster machine may end after passes, and then validates after each,
        ways |= {"validate_every": None, "patience": None}  # and stops when nothing improves
    assert replace(first.training, **ways) == replace(second.training, **ways)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 6e-3, 1e-12, 123456789.0, 2.0])
def test_a_flag_names_its_number_exactly(value):
    name, written = flags_of({"learning_rate": value}).split()
    assert (name, float(written)) == ("--learning-rate", value)


CASES = {  # each with what its batches draw at random
    "tag": (
        Batches,
        "--template-passes 1 --hidden-size 8 --embedding-size 8 --character-size 8 --dropout 0.3",
    ),
    "image": (Batches, "--binarise per-epoch --channels 6 --layers 1 --first-kernel-size 3 --batch-size 4"),
    "forecast": (SeriesWindows, "--hidden-size 8"),
    "sound": (Batches, "--channels 4 --skip-channels 8 --batch-size 4"),
    "music": (Batches, "--hidden-size 8 --batch-size 4"),
    "table": (Batches, "--hidden-size 8 --validation-fraction 0.2"),
    "classify": (Batches, "--hidden-size 4 --embedding-size 6 --batch-size 8"),
    "caption": (Batches, "--image-features 32 --hidden-size 8 --embedding-size 8"),
}


@pytest.mark.parametrize("task", CASES)
def test_a_resumed_run_is_the_run_that_was_not_interrupted(command, ok, tmp_path, monkeypatch, task):
    kind, options = CASES[task]
    data, *flags = WRITERS[task](tmp_path)
    if task == "image":
        flags = []  # their bits would be drawn no more
    arguments = (data, *flags, *options.split(), "--steps", 12, "--validate-every", 4)
    ok("train", *arguments, "--out", tmp_path / "whole")
    at = kind.at

    def interrupted(self, step):
        if step == 7:
            raise KeyboardInterrupt
        return at(self, step)

    with monkeypatch.context() as patch:
        patch.setattr(kind, "at", interrupted)
        assert command("train", *arguments, "--out", tmp_path / "parts").status == 130
    assert (tmp_path / "parts" / "checkpoint.safetensors").exists()  # it was in training, not before it
    again = ("--continue", *arguments) if task == "table" else ("--resume", data)
    ok("train", *again, "--out", tmp_path / "parts")
    whole, parts = ((tmp_path / name / "metrics.jsonl").read_text() for name in ("whole", "parts"))
    assert whole == parts


def test_continue_starts_a_run_and_goes_on_with_it(ok, refused, tmp_path):
    """A launcher that restarts a job has one command: it knew neither --resume nor that a run was there."""
    data, *flags = WRITERS["table"](tmp_path)
    command = ("train", data, *flags, "--hidden-size", 4, "--steps", 2, "--out", tmp_path / "run", "--continue")
    ok(*command)
    assert "Nothing to do: the run has finished its 2 steps" in ok(*command).out
    for other in ("--resume", "--overwrite"):
        assert "give only one" in refused(*command, other)

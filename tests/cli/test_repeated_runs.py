"""The flags that a run prints, added to its command, repeat it: every option that decides the result is among them."""

import shlex
from dataclasses import replace

import pytest
from small_data import WRITERS

from chainrule.tasks import ladder, open_run
from chainrule.tasks.display import flags_of
from chainrule.training import candidates, loop
from chainrule.training.candidates import Choice
from chainrule.training.computation import Computation


def same_again(outcome):
    """The flags that a run printed."""
    assert outcome.status == 0, outcome.err
    (line,) = (line for line in outcome.err.splitlines() if line.startswith("the same again: "))
    return shlex.split(line.removeprefix("the same again: "))


@pytest.mark.parametrize("task", WRITERS)
def test_the_printed_flags_repeat_a_run_bit_for_bit(command, tmp_path, monkeypatch, task):
    """Timing had chosen another kernel the second time, and the printed flags did not name it."""
    data, raced = [*WRITERS[task](tmp_path), "--steps", 2], []

    def choose(network, batches, ways, seconds, device):
        raced.append(ways)
        slow = Computation(ways.threads[-1], ways.precision[-1], ways.backend[-1])
        return Choice(slow if len(raced) == 1 else ways.default, {})

    both = candidates.Candidates((1,), ("bfloat16", "float32"), ("auto",))
    made = candidates.make_candidates

    def make(network, device, **asked):
        found = made(network, device, **asked)
        return replace(both, backend=found.backend) if asked["precision"] == "auto" else found

    monkeypatch.setattr(candidates, "make_candidates", make)
    monkeypatch.setattr(candidates, "choose_computation", choose)
    flags = same_again(command("train", *data, "--out", tmp_path / "first"))
    again = command("train", *data, *flags, "--out", tmp_path / "second")
    assert again.status == 0, again.err
    assert len(raced) == 1  # nothing is left to be timed
    assert "the same again" not in again.err
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


@pytest.mark.parametrize("backend", ["auto", "vendor", "bptt"])
def test_each_kernel_has_a_flag_that_takes_it_without_timing(command, text_file, tmp_path, monkeypatch, backend):
    asked = ("train", text_file, "--model", "lstm", "--hidden-size", 4, "--dropout", 0, "--steps", 2, "--out")
    monkeypatch.setattr(candidates, "choose_computation", lambda *_: Choice(Computation(1, "float32", backend), {}))
    flags = same_again(command(*asked, tmp_path / "first"))
    assert flags[flags.index("--backend") + 1] == {"auto": "rule"}.get(backend, backend)
    monkeypatch.setattr(candidates, "choose_computation", lambda *_: 1 / 0)
    assert command(*asked, tmp_path / "second", *flags).status == 0
    (first, second) = (open_run(tmp_path / name).config.computation for name in ("first", "second"))
    assert (first.threads, first.precision) == (second.threads, second.precision)
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("first", "second")]
    assert weights[0] == weights[1]


@pytest.mark.parametrize("rates", [(1e-3, 1e6), (1e6, 1e-3)])
@pytest.mark.parametrize("task", WRITERS)
def test_the_printed_flags_make_the_same_model_on_a_machine_of_another_speed(
    command, tmp_path, monkeypatch, task, rates
):
    def stop(*_, **__):
        raise ValueError("planned")

    monkeypatch.setattr(loop, "train", stop)
    data, configs, flags = [*WRITERS[task](tmp_path), "--budget", "0.05s"], [], []
    for rate in rates:
        monkeypatch.setattr(ladder, "step_rate", lambda *_, rate=rate: rate)
        asked = data[:-2] if "--epochs" in flags else data
        command("train", *asked, *flags, "--out", tmp_path / f"{rate}")
        configs.append(open_run(tmp_path / f"{rate}").config)
        flags = configs[0].chosen_flags().split()
    first, second = configs
    assert first.options == second.options
    ways = {"threads": 1, "precision": "float32", "backend": "auto"}
    if first.duration != second.duration:  # a faster machine may end after passes, and then validates after each
        ways["validate_every"] = None
    assert replace(first.training, **ways) == replace(second.training, **ways)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 6e-3, 1e-12, 123456789.0, 2.0])
def test_a_flag_names_its_number_exactly(value):
    name, written = flags_of({"learning_rate": value}).split()
    assert (name, float(written)) == ("--learning-rate", value)

"""The size of a model follows the budget and the speed of the machine, in every task that declares sizes."""

import io
import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_data import WRITERS, write_pairs
from torch import nn

from chainrule.data import Batch
from chainrule.training import Computation
from chainrule_app.tasks import open_run
from chainrule_app.tasks import size_schedule as ladder_module
from chainrule_app.tasks.config import Duration, RunConfig
from chainrule_app.tasks.forecast.run import ForecastRun
from chainrule_app.tasks.options import OptimisationOptions
from chainrule_app.tasks.preparation import step_rate
from chainrule_app.tasks.size_schedule import SizeSchedule, first_that_fits, limit_passes
from chainrule_app.tasks.tag import task as tag_task

TASKS = ("image", "sound", "translate", "caption", "classify-images")
RATES = st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=5)
POSITIVE = st.floats(1e-2, 1e5)


@given(RATES, POSITIVE, POSITIVE)
def test_the_size_that_is_taken_is_on_the_ladder_and_the_largest_that_fits(rates, steps, budget):
    size, rate = first_that_fits(rates.__getitem__, len(rates), steps, budget)
    assert rate == rates[size]
    fits = [0.9 * budget * rate >= steps for rate in rates]
    assert not any(fits[:size])
    assert fits[size] or size == len(rates) - 1


@given(RATES, POSITIVE, POSITIVE, st.floats(1.0, 100.0))
def test_a_faster_machine_or_a_longer_budget_never_gives_a_smaller_model(rates, steps, budget, factor):
    size, _ = first_that_fits(rates.__getitem__, len(rates), steps, budget)
    faster, _ = first_that_fits([factor * rate for rate in rates].__getitem__, len(rates), steps, budget)
    longer, _ = first_that_fits(rates.__getitem__, len(rates), steps, factor * budget)
    assert max(faster, longer) <= size


def test_no_smaller_size_is_timed_than_is_taken():
    timed = []

    def rate(size):
        timed.append(size)
        return [1.0, 10.0, 100.0][size]

    assert first_that_fits(rate, 3, 500, 60) == (1, 10.0)
    assert timed == [0, 1]


def test_what_a_size_is_worth_is_counted_in_passes_or_steps_whichever_are_fewer():
    both = SizeSchedule("words", ({"hidden_size": 1},), passes=2, steps=500)
    assert [both.needed_steps(count) for count in (10, 1000)] == [20, 500]
    assert replace(both, passes=float("inf")).needed_steps(10) == 500
    assert [replace(both, fewest_steps=300).needed_steps(count) for count in (10, 200, 1000)] == [300, 400, 500]


@pytest.mark.parametrize("task", TASKS)
def test_a_slow_machine_gets_the_smallest_size_and_says_the_flags_that_repeat_it(
    command, planned, tmp_path, monkeypatch, task
):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e-3)
    data, out = WRITERS[task](tmp_path), tmp_path / "run"
    outcome = planned(*data, "--budget", "0.05s", "--threads", 1, "--out", out)
    config = open_run(out).config
    names = config.settled.options
    chosen = {
        name: getattr(config.options if hasattr(config.options, name) else config.training, name) for name in names
    }
    flags = " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in chosen.items())
    assert f"reproduce with: {flags} --precision " in outcome.err
    assert f"{names[0].replace('_', ' ')} {getattr(config.options, names[0])} instead of " in outcome.err
    assert flags in command("info", out).out

    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e9)
    again = planned(*data, "--budget", "0.05s", "--threads", 1, "--out", out, "--overwrite")
    usual = open_run(out).config
    settled = {"classify-images": ", mixup 0.4"}.get(task, "")
    assert again.err.count(f": the default size{settled}\n") == 1
    assert all(getattr(config.options, name) < getattr(usual.options, name) for name in names[:1])


def test_the_passes_of_a_translator_are_those_of_the_batches_that_it_trains_on(planned, tmp_path, monkeypatch):
    """Half the batches were planned to take half the time."""
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 100.0)  # whatever the size of a batch
    file, *options = write_pairs(tmp_path)[:-2]  # the batch size is open
    Path(file).write_text(5 * Path(file).read_text())
    planned(file, *options, "--budget", "0.5s", "--threads", 1, "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    batches, _ = run.batches((0, 1))
    assert run.training.batch_size == 32
    assert run.config.settled.options.count("batch_size") == 1
    assert run.config.settled.passes == pytest.approx(0.9 * 0.5 * 100 / batches.steps_per_epoch)


def test_the_speed_is_that_of_the_way_that_training_takes(monkeypatch):
    timed = []

    def steps_per_second(model, optimiser, batch, way, seconds, device):
        timed.append((way, seconds))
        return 20.0

    monkeypatch.setattr("chainrule.training.steps_per_second", steps_per_second)
    training = OptimisationOptions(threads=3, precision="float32")
    assert step_rate(nn.Linear(1, 1), None, Batch(torch.zeros(1, 1)), training, 2.0) == 20.0
    assert timed == [(Computation(3, "float32", "auto"), 2.0)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(("stream", "shown"), [(Terminal(), "timing training steps of 2 weights"), (io.StringIO(), "")])
def test_a_terminal_shows_what_is_timed(monkeypatch, stream, shown):
    monkeypatch.setattr("chainrule.training.steps_per_second", lambda *_: 20.0)
    monkeypatch.setattr("sys.stderr", stream)
    step_rate(nn.Linear(1, 1), None, Batch(torch.zeros(1, 1)), OptimisationOptions(), 2.0)
    assert shown in stream.getvalue()
    assert bool(shown) == bool(stream.getvalue())


@pytest.mark.parametrize("task", ["table", "translate"])
def test_a_run_whose_options_were_chosen_for_a_budget_goes_on_for_steps(command, ok, tmp_path, task):
    out, asked = tmp_path / "run", ("--budget", "0.05s", "--threads", 1)
    steps = json.loads(command("train", *WRITERS[task](tmp_path), *asked, "--out", out, "--json").out)["steps"]
    outcome = ok("train", "--resume", "--steps", steps + 2, "--out", out)
    assert "reproduce with" not in outcome.err


@pytest.mark.parametrize("asked", [("--model-size", 8, "--budget", "0.05s"), ("--steps", 1)])
def test_nothing_is_timed_where_a_size_or_a_number_of_steps_is_given(ok, tmp_path, monkeypatch, asked):
    monkeypatch.delattr("chainrule_app.tasks.preparation.step_rate")
    ok("train", *write_pairs(tmp_path), "--out", tmp_path / "run", *asked)
    config = open_run(tmp_path / "run").config
    usual = type(config.options)()
    settled = {"dropout": 0.0}  # a third of a pass
    if "--model-size" in asked:
        settled = {"model_size": 8, "feed_forward_size": 16, "dropout": 0.2}
    assert config.options == replace(usual, **settled)
    assert config.settled is None


def test_a_record_of_a_choice_that_was_tampered_with_is_refused(command, tmp_path, monkeypatch):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: 1e-3)
    command("train", *write_pairs(tmp_path), "--budget", "0.05s", "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    content = run.config.to_json("translate")
    for settled, said in (
        ({"options": ["colour"]}, "settled.options: expected names of options, got 'colour'"),
        ({"passes": "many"}, "settled.passes: expected a finite number, got 'many'"),
        ({"passes": None}, "settled: expected the passes and elements a second that were timed, got null"),
    ):
        with pytest.raises(ValueError, match=said):
            run.config_from_json(content | {"settled": content["settled"] | settled})


@pytest.mark.parametrize(
    ("task", "said", "decay"),
    [
        ("tag", (), 0.5),  # a few sentences are forgotten as fast as the limit allows
        ("forecast", (), 1.0),
        ("table", (), 0.01),
        ("tag", ("--weight-decay", 0.2), 0.2),
        ("forecast", ("--weight-decay", 0.0), 0.0),
    ],
)
def test_weight_decay_follows_from_the_data_where_it_is_open(planned, tmp_path, task, said, decay):
    planned(*WRITERS[task](tmp_path), "--steps", 1, *said, "--out", tmp_path / "run")
    assert open_run(tmp_path / "run").config.training.weight_decay == decay


@pytest.mark.parametrize(
    ("task", "steps_per_epoch", "decay"),
    [("tag", 392, 0.32), ("tag", 31_250, 0.01), ("forecast", 4000, 0.33), ("forecast", 10**6, 0.01)],
)
def test_the_decay_of_more_data_forgets_over_more_steps(planned, tmp_path, monkeypatch, task, steps_per_epoch, decay):
    planned(*WRITERS[task](tmp_path), "--steps", 1, "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    run.config = replace(run.config, training=replace(run.config.training, weight_decay=None))
    many = SimpleNamespace(steps_per_epoch=steps_per_epoch)
    monkeypatch.setattr(type(run), "batches", lambda self, shard: (many, None))
    assert run.plan(frozenset()).config.training.weight_decay == decay


@pytest.mark.parametrize(
    ("rate", "said", "encoder", "word_dropout", "settled"),
    [
        (0.1, (), "affixes", 0.25, "--character-encoder affixes --word-dropout 0.25 --template-passes 2"),
        (1e6, (), "cnn+affixes", 4.0, "--character-encoder cnn+affixes --word-dropout 4 --template-passes 2"),
        (0.1, ("--word-dropout", 1), "affixes", 1.0, "--character-encoder affixes --template-passes 2"),
        (0.1, ("--character-encoder", "none"), "none", 0.25, "--word-dropout 0.25 --template-passes 2"),
        (0.1, ("--character-encoder", "cnn", "--word-dropout", 1), "cnn", 1.0, "--template-passes 2"),
        (0.1, ("--character-encoder", "cnn", "--word-dropout", 1, "--template-passes", 1), "cnn", 1.0, ""),
    ],
)
def test_the_fewer_the_passes_the_more_a_tagger_relies_on_affixes(
    command, planned, tmp_path, monkeypatch, rate, said, encoder, word_dropout, settled
):
    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", lambda *_: rate)
    monkeypatch.setattr(tag_task, "default_passes", lambda *_: 2.0)
    out = tmp_path / "run"
    outcome = planned(*WRITERS["tag"](tmp_path), "--budget", "0.05s", *said, "--out", out)
    config = open_run(out).config
    assert (config.options.character_encoder, config.training.word_dropout) == (encoder, word_dropout)
    assert f"reproduce with: {settled} --threads ".replace("  ", " ") in outcome.err
    if settled:
        assert (
            f"sentences: character encoder {encoder}, word dropout {word_dropout:g}, template passes 2\n" in outcome.err
        )
        words, passes = config.settled.elements_per_second, config.settled.passes
        assert words == pytest.approx(54 * rate)  # a pass is a step
        assert passes == pytest.approx(ladder_module.TRAINING_SHARE * 0.05 * rate)
        assert settled in command("info", out).out


@pytest.mark.parametrize("asked", [("--steps", 7), ("--epochs", 7), ("--epochs", 7, "--model", "transformer")])
def test_a_tagger_reads_characters_and_affixes_from_the_seventh_pass_on(planned, tmp_path, monkeypatch, asked):
    monkeypatch.delattr("chainrule_app.tasks.preparation.step_rate")  # nothing is timed
    found = []
    for number in (7, 6):
        arguments = [number if part == 7 else part for part in asked]
        planned(*WRITERS["tag"](tmp_path), *arguments, "--out", tmp_path / f"{number}")
        config = open_run(tmp_path / f"{number}").config
        found.append((config.options.character_encoder, config.training.word_dropout))
    assert found == [("cnn+affixes", 4.0), ("affixes", 0.25)]


def test_a_share_of_affixes_left_out_chooses_the_encoder_that_does_so(planned, refused, tmp_path):
    asked, out = (*WRITERS["tag"](tmp_path), "--steps", 1, "--affix-dropout", 0.3), tmp_path / "run"
    planned(*asked, "--out", out)
    options = open_run(out).config.options
    assert (options.character_encoder, options.affix_dropout) == ("cnn+affixes", 0.3)
    line = refused("train", *asked, "--character-encoder", "affixes", "--out", tmp_path / "other")
    assert "--affix-dropout: requires --character-encoder cnn+affixes, got affixes" in line


@pytest.mark.parametrize("task", WRITERS)
def test_what_is_timed_and_fitted_for_a_plan_draws_from_no_global_generator(planned, tmp_path, task):
    data = WRITERS[task](tmp_path)

    def generators():
        return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()

    before = generators()
    planned(*data, "--budget", "0.05s", "--out", tmp_path / "run")
    assert generators() == before


@pytest.fixture
def unequal(tmp_path):
    """Arguments of a run on sentences of 2 to 61 words."""
    sentences = "\n".join("the\tD\ndog\tN\n" + "runs\tV\n" * (length - 2) for length in range(2, 62))
    (tmp_path / "tags.tsv").write_text(sentences)
    return (tmp_path / "tags.tsv", "--task", "tag", "--batch-size", 2)


def test_speed_is_measured_on_a_batch_of_average_size(planned, unequal, tmp_path, monkeypatch):
    timed = []

    def step_rate(model, optimiser, batch, *_):
        timed.append(batch.x.shape[1])
        return 1.0

    monkeypatch.setattr("chainrule_app.tasks.preparation.step_rate", step_rate)
    planned(*unequal, "--budget", "0.05s", "--out", tmp_path / "run")
    run = open_run(tmp_path / "run")
    batches = run.batches((0, 1))[0]
    lengths = [batches.at(step).x.shape[1] for step in range(16)]
    assert max(lengths) > min(lengths)
    assert abs(timed[0] - sum(lengths) / 16) == min(abs(length - sum(lengths) / 16) for length in lengths)


@pytest.mark.parametrize(("times", "members"), [(1.9, 1), (2.1, 1), (3.9, 1), (4.1, 2), (6.1, 3), (99.0, 4)])
def test_what_is_left_of_a_budget_trains_more_models(times, members):
    """Passes that there is time for, in units of those that are of use."""
    most, budget, steps_per_epoch = 3.0, 100.0, 50
    rate = times * most * steps_per_epoch / (ladder_module.TRAINING_SHARE * budget)
    options = ForecastRun.MODELS["lstm"].options()
    config = RunConfig(
        sources={}, data=None, model="lstm", options=options, duration=Duration(budget=budget),
        training=OptimisationOptions(),
    )  # fmt: skip
    batches = SimpleNamespace(steps_per_epoch=steps_per_epoch, at=lambda step: Batch(torch.zeros(1, 1)))
    found = limit_passes(config, rate, batches, most, elements=10, most_members=4)
    assert found.options.num_members == members
    assert found.settled.options[-1] == "num_members"
    assert found.settled.elements_per_second == pytest.approx(10 * rate / members)
    assert (found.duration.epochs, found.duration.budget) == ((None, budget) if times < 2 else (most, None))
    alone = limit_passes(config, rate, batches, most, elements=10)
    assert alone.options.num_members is None

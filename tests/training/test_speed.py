"""The speed that sizes for a budget follow from is measured without a trace: the network may be trained."""

import copy

import pytest
import torch
from training_toy import ToyStream, held_out, options, remains

from chainrule.data import Batch
from chainrule.models import RecurrentLM
from chainrule.training import Computation, make_optimiser, steps_per_second, train
from chainrule.training import _speed as speed
from chainrule_app.tasks.preparation import average_batch

CPU = torch.device("cpu")
BATCH = ToyStream().at(0)


def take_steps_of(monkeypatch, *seconds, real=None):
    """Let each step take these seconds, the last ones again and again; returns the list of what they took."""
    steps = []

    def take_step(*arguments):
        if real is not None:
            real(*arguments)
        steps.append(seconds[min(len(steps), len(seconds) - 1)])
        return steps[-1]

    monkeypatch.setattr(speed, "_take_step", take_step)
    return steps


def test_timing_leaves_weights_modes_and_randomness_as_they_are(monkeypatch):
    model = RecurrentLM(7, embedding_size=3, hidden_size=4, dropout=0.2).eval()
    take_steps_of(monkeypatch, 1.0, real=speed._take_step)
    before, threads = copy.deepcopy(model.state_dict()), torch.get_num_threads()
    state = torch.random.get_rng_state()
    optimiser = make_optimiser(model, 0.1, 0.1, "muon")
    assert steps_per_second(model, optimiser, BATCH, Computation(2, "bfloat16", "bptt"), 3.0, CPU) == 1.0
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.equal(state, torch.random.get_rng_state())
    assert (model.training, torch.get_num_threads()) == (False, threads)
    assert model.recurrent.backend == "auto"
    assert not optimiser.state


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_network_that_was_timed_trains_as_a_new_one(kind, tmp_path):
    for timed in (False, True):
        torch.manual_seed(0)
        model = RecurrentLM(7, embedding_size=3, hidden_size=4, dropout=0.2)
        optimiser = make_optimiser(model, 0.0, 0.0, kind)
        if timed:
            steps_per_second(model, optimiser, BATCH, Computation(1), 0.01, CPU)
        settings = options(steps=6, optimiser=kind)
        train(model, ToyStream(), held_out, settings, tmp_path / str(timed), optimiser=optimiser, progress=False)
    assert remains(tmp_path / "True") == remains(tmp_path / "False")


def test_a_passed_optimiser_trains_as_one_that_training_makes(tmp_path):
    for passed in (False, True):
        torch.manual_seed(0)
        model = RecurrentLM(7, embedding_size=3, hidden_size=4)
        optimiser = make_optimiser(model, 1.0, 1.0) if passed else None
        train(model, ToyStream(), held_out, options(), tmp_path / str(passed), optimiser=optimiser, progress=False)
    assert remains(tmp_path / "True") == remains(tmp_path / "False")


@pytest.mark.parametrize(
    ("durations", "rate", "measured"),
    [
        ((20.0, 2**-6), 64.0, 32),  # a first step that compiles
        ((20.0, 3.0, 2**-6), 64.0, 32),  # and a second one, which loads what is left
        ((20.0, 0.2, 0.2, 0.9, 0.25, 0.25), 4.0, 4),  # a step that something else delayed
        ((20.0, 0.8, 0.8), 1.25, 3),  # four steps would take too long
        ((20.0, 4.0, 4.0), 0.25, 1),  # even one is longer than that
    ],
)
def test_steps_that_load_and_compile_kernels_do_not_count(monkeypatch, durations, rate, measured):
    """Their duration was taken for the speed, up to a hundred times too low, where no second step fit into the time."""
    steps = take_steps_of(monkeypatch, *durations)
    model = RecurrentLM(7, embedding_size=3, hidden_size=4)
    optimiser = make_optimiser(model, 0.0, 0.0)
    assert steps_per_second(model, optimiser, BATCH, Computation(1), 0.5, CPU) == pytest.approx(rate)
    assert len(steps) == 2 + measured


class Rows:
    """Batches of which the k-th reads rows as long as the k-th of `lengths`, by turns."""

    def __init__(self, *lengths: int):
        self._lengths = lengths
        self.steps_per_epoch = len(lengths)

    def at(self, step: int) -> Batch:
        words = torch.zeros(2, self._lengths[step % len(self._lengths)], dtype=torch.long)
        return Batch(words, torch.full((2,), words.shape[1]), context={"words": words})


def test_the_average_batch_is_of_average_size():
    lengths = [1, 2, *range(3, 31, 2)]  # 14 on average
    assert average_batch(Rows(*lengths)).x.shape == (2, 15)
    assert average_batch(Rows(3, 3)).x.shape == (2, 3)

"""Steps that are recorded and launched again give what plain steps give; here a stand-in records on the processor."""

import pytest
import torch
from torch import nn
from training_toy import ToyBatch, ToyStream, held_out, options

from chainrule.kernels._cuda_graphs import RecordedGradient
from chainrule.models import VAE, RecurrentLM
from chainrule.modes import seed_torch
from chainrule.state import leaves, map_state
from chainrule.training import Computation, Processes, make_optimiser, steps_per_second, train
from chainrule.training import _gradients as gradients
from chainrule.training import _speed as speed
from chainrule.training._evaluate import Objective


class Played(RecordedGradient):
    """Runs the function again on the memory it was recorded on, as a graph does."""

    def __init__(self, function, inputs, model):
        self.function, self._model, self.launches = function, model, 0
        self._inputs = map_state(torch.clone, inputs)
        self._places = self._memory()

    def __call__(self, inputs):
        self.launches += 1
        for old, new in zip(leaves(self._inputs), leaves(inputs), strict=True):
            old.copy_(new)
        return map_state(torch.clone, self.function(self._inputs))


@pytest.fixture
def recorded(monkeypatch):
    """The steps that are recorded."""
    made = []
    monkeypatch.setattr(gradients, "may_record", lambda model, group: gradients.is_known(model))
    monkeypatch.setattr(gradients, "recorded_gradient", lambda *given: made.append(Played(*given)) or made[-1])
    return made


def language_model():
    torch.manual_seed(0)
    return RecurrentLM(8, "gru", 8, 8, dropout=0.2)


def trained(directory):
    model = language_model()
    train(model, ToyStream(), held_out, options(steps=60, validate_every=25), directory, progress=False)
    return model


@pytest.mark.parametrize(("first", "computed", "rate"), [(9.0, 0.1, 100), (0.1, 2.0, 0.5)])
def test_the_speed_to_plan_with_is_that_of_launched_steps(first, computed, rate, recorded, monkeypatch):
    clock, steps, take_step = [0.0], [], speed._take_step

    def stepped(updates, batch, compute):
        steps.append(0.01 if compute.launched else computed if steps else first)
        take_step(updates, batch, compute)
        clock[0] += steps[-1]
        return steps[-1]

    monkeypatch.setattr(speed, "_take_step", stepped)
    monkeypatch.setattr(speed, "monotonic", lambda: clock[0])
    batch, cpu = ToyStream().at(0), torch.device("cpu")
    model = language_model()
    optimiser = make_optimiser(model, 0.0, 0.0)
    assert steps_per_second(model, optimiser, batch, Computation(1), 0.2, cpu) == pytest.approx(rate)
    assert clock[0] <= first + speed._UNTIL_LAUNCHED + 3 * computed + 0.2
    assert len(recorded) == (computed < 1)


def test_weights_are_those_of_plain_steps(recorded, tmp_path, monkeypatch):
    fast = trained(tmp_path / "a")
    assert len(recorded) == 1
    assert recorded[0].launches > 20
    monkeypatch.setattr(gradients, "RECORDED", 10**9)
    plain = trained(tmp_path / "b")
    assert len(recorded) == 1
    assert all(torch.equal(a, b) for a, b in zip(fast.parameters(), plain.parameters(), strict=True))


def stepping(model, batches, progress=lambda step: 1.0):
    """The results of steps on batches, each with its own seed."""
    compute = gradients.Gradients(Objective(model), model, Processes(0, 1, torch.device("cpu")), None)
    results = []
    for step, batch in enumerate(batches):
        model.zero_grad()
        results.append(compute(batch, None, progress(step), lambda step=step: seed_torch(step)))
    return results


def rows(count, length=5, **kind):
    return [ToyBatch(torch.randint(8, (2, length)), **kind) for _ in range(count)]


def test_other_shapes_are_computed_plainly(recorded, monkeypatch):
    batches = [*rows(24), *rows(3, length=4), *rows(4), *rows(30, lengths=torch.tensor([5, 3]))]
    fast = stepping(language_model(), batches)
    assert [step.launches for step in recorded] == [24 - gradients.RECORDED + 4]
    monkeypatch.setattr(gradients, "RECORDED", 10**9)
    plain = stepping(language_model(), batches)
    assert [result[:3] for result in fast] == [result[:3] for result in plain]


def test_a_number_that_python_drew_is_noticed(recorded, monkeypatch):
    model, drawn = language_model(), iter(range(1, 1000))
    plain = model.training_terms
    frozen = []

    def terms(*given):
        number = frozen[0] if frozen else next(drawn)
        result, state = plain(*given)
        return result * number, state

    monkeypatch.setattr(model, "training_terms", terms)
    launch = Played.__call__

    def launched(self, inputs):  # a recording repeats the number of its own time
        frozen.append(gradients.RECORDED)
        result = launch(self, inputs)
        frozen.clear()
        return result

    monkeypatch.setattr(Played, "__call__", launched)
    results = stepping(model, rows(30))
    assert recorded[0].launches == 1  # the first trial
    ratios = [float(result.nats) / (5 * 2 * 2.1 * (step + 1)) for step, result in enumerate(results)]
    assert ratios == pytest.approx([1] * 30, rel=0.3)


def test_replaced_weights_end_it(recorded):
    model = language_model()
    compute = gradients.Gradients(Objective(model), model, Processes(0, 1, torch.device("cpu")), None)
    for step, batch in enumerate(rows(40)):
        if step == 30:
            model.weight_ho.data = model.weight_ho.data.clone()
        model.zero_grad()
        compute(batch, None, 1.0, lambda step=step: seed_torch(step))
    assert recorded[0].launches == 30 - gradients.RECORDED


def test_a_divergence_that_still_grows_is_not_recorded(recorded):
    model = VAE((1, 4, 4), levels=2, latent_size=2, kl_warmup=0.5)
    images = [ToyBatch(torch.randint(2, (2, 1, 4, 4)), whole=True) for _ in range(50)]
    stepping(model, images, lambda step: step / 50)
    assert recorded[0].launches == 25 - gradients.RECORDED


def test_modules_from_elsewhere_and_hooks_are_computed_plainly(recorded):
    class Mine(nn.Embedding):
        pass

    changed, hooked = language_model(), language_model()
    changed.embedding = Mine(9, 8)
    hooked.embedding.register_forward_hook(lambda *given: None)
    for model in changed, hooked:
        stepping(model, rows(20))
    assert not recorded

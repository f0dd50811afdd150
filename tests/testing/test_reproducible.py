"""An answer that depends on anything but the arguments is found."""

import numpy
import pytest
import torch
from sound_models import Tiny, TinyNormal
from torch import nn

from chainrule.testing import check_model
from chainrule.testing._invariance import check_reproducible

X = torch.randint(5, (3, 8), generator=torch.Generator().manual_seed(0))


class Dropout(Tiny):
    """Active in evaluation mode."""

    def conditional(self, h):
        return super().conditional(nn.functional.dropout(h, 0.1))


class Counts(Tiny):
    calls = 0

    def forward(self, x, context=None, lengths=None):
        self.calls += 1
        return super().forward(x, context, lengths)


class RunningMean(Tiny):
    """A buffer that evaluation moves too."""

    def head(self):
        super().head()
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x, context=None, lengths=None):
        h = self.features(x, context)
        self.mean += 0.1 * h.detach().mean((0, 1))
        return self.conditional(h)


class KeepsState(Tiny):
    """Remembers its last features."""

    def step(self, x_prev, state):
        conditional, self.last = super().step(x_prev, state)
        return conditional, self.last


class TurnsToTraining(Tiny):
    def forward(self, x, context=None, lengths=None):
        self.train()
        return super().forward(x, context, lengths)


class IgnoresGenerator(Tiny):
    def sample(self, n, context=None, *, generator=None, **options):
        return super().sample(n, context, **options)


class FromNumpy(Tiny):
    """Draws with another library's global state."""

    def sample(self, n, context=None, *, generator=None, **options):
        generator = torch.Generator().manual_seed(int(numpy.random.randint(2**31)))
        return super().sample(n, context, generator=generator, **options)


class StartsOver(Tiny):
    """Sets the generator back to its seed."""

    def sample(self, n, context=None, *, generator=None, **options):
        generator = torch.Generator().manual_seed(generator.initial_seed())
        return super().sample(n, context, generator=generator, **options)


class SeedsTheWorld(TinyNormal):
    """Sets the global seed from its generator."""

    def sample(self, n, context=None, *, generator=None, **options):
        torch.manual_seed(generator.initial_seed())
        return super().sample(n, context, **options)


@pytest.mark.parametrize(
    "broken", [Dropout, Counts, RunningMean, KeepsState, TurnsToTraining, IgnoresGenerator, FromNumpy, StartsOver]
)
def test_impurity_is_named(broken):
    assert not check_reproducible(broken(), X).ok


def test_impurity_breaks_this_rule_alone():
    assert [result.name for result in check_model(Counts(), X).failures] == ["reproducible"]


def test_a_sampler_that_seeds_the_world_is_named_and_the_world_is_put_back():
    model, before = SeedsTheWorld(), torch.get_rng_state()
    assert not check_reproducible(model, X.double()).ok
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_can_say_one_thing_only_may_repeat_it():
    model = Tiny()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.bias.copy_(torch.tensor([0.0, 1e4, 0.0, 0.0, 0.0]))
    assert check_reproducible(model, X).ok

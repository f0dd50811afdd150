"""A model that cannot use all it may read is found, unless it says so."""

from functools import partial

import pytest
import torch
from sound_models import Tiny, Window
from torch import nn

from chainrule.testing import check_model
from chainrule.testing._dependence import check_full_context


class Undeclared(Window):
    """Reads a window and does not say so."""

    def visible_past(self, length):
        return torch.ones(length, length, dtype=torch.bool).tril(-1)


class Boastful(Window):
    """Declares one element more than it reads."""

    def visible_past(self, length):
        return torch.ones(length, length, dtype=torch.bool).tril(-1).triu(-self.size - 1)


class Modest(Window):
    """Declares one element less than it reads."""

    def visible_past(self, length):
        return torch.ones(length, length, dtype=torch.bool).tril(-1).triu(-self.size + 1)


class Independent(Tiny):
    """Reads nothing."""

    def read(self, x):
        return torch.zeros(*x.shape, self.inputs)


class NoFirst(Tiny):
    """Deaf to the first element of a row only: the blind spot of a mask with one zero too many."""

    def initial_state(self, batch_size, context=None):
        return super().initial_state(batch_size), torch.zeros(batch_size, 1, dtype=torch.long)

    def step(self, x_prev, state):
        h, count = state
        read = self.start.expand(len(h), -1) if x_prev is None else self.read(x_prev) * (count > 1)
        h = self.cell(read, h)
        return self.conditional(h), (h, count + 1)

    def forward(self, x, context=None, lengths=None):
        return self.unroll(x, self.initial_state(len(x)))[0]


class Forgetful(NoFirst):
    """Begins anew every 4 elements."""

    def step(self, x_prev, state):
        h, count = state
        h = h * (count % 4 > 0)
        read = self.start.expand(len(h), -1) if x_prev is None else self.read(x_prev)
        h = self.cell(read, h)
        return self.conditional(h), (h, count + 1)


class Deaf(Tiny):
    """Ignores its context."""

    def first_state(self, batch_size, context=None):
        return torch.zeros(batch_size, 8)


class HalfDeaf(Tiny):
    """Ignores one entry of its context."""

    def first_state(self, batch_size, context=None):
        return super().first_state(batch_size, context * torch.tensor([1.0, 0.0, 1.0]))


class LateContext(Tiny):
    """The first conditional does not know the context."""

    def __init__(self):
        super().__init__()
        self.label = nn.Linear(3, 8)

    def initial_state(self, batch_size, context=None):
        return super().initial_state(batch_size), self.label(context), torch.zeros(batch_size, 1)

    def step(self, x_prev, state):
        h, label, started = state
        read = self.start.expand(len(h), -1) if x_prev is None else self.read(x_prev)
        h = self.cell(read, h + label * started)
        return self.conditional(h), (h, label, torch.ones_like(started))

    def forward(self, x, context=None, lengths=None):
        return self.unroll(x, self.initial_state(len(x), context))[0]


@pytest.mark.parametrize("broken", [Undeclared, partial(Undeclared, 7), NoFirst, Forgetful])
def test_an_undeclared_window_or_blind_spot_is_named(broken):
    assert not check_full_context(broken(), torch.randint(4, (3, 9))).ok


def test_a_blind_spot_breaks_this_rule_alone():
    failed = {result.name for result in check_model(NoFirst(), torch.randint(4, (3, 9))).failures}
    assert failed == {"full_context"}


def test_a_model_that_reads_nothing_is_named():
    assert not check_full_context(Independent(), torch.randint(5, (2, 6))).ok


@pytest.mark.parametrize("broken", [Boastful, Modest])
def test_a_declaration_is_held_to_in_both_directions(broken):
    assert not check_full_context(broken(), torch.randint(4, (2, 9))).ok


def test_a_declaration_that_sees_the_future_is_refused():
    class Prophet(Window):
        def visible_past(self, length):
            return torch.ones(length, length, dtype=torch.bool)

    assert "visible_past" in check_full_context(Prophet(), torch.randint(4, (2, 9))).detail


@pytest.mark.parametrize("broken", [lambda: Deaf(3), lambda: HalfDeaf(3), LateContext])
def test_an_unused_context_is_named(broken):
    result = check_full_context(broken(), torch.randint(5, (3, 6)), torch.randn(3, 3))
    assert not result.ok
    assert "context" in result.detail


def test_an_influence_smaller_than_rounding_counts():
    class Fading(Tiny):
        """A state that shrinks a hundredfold at every step, whatever the weights."""

        def initial_state(self, batch_size, context=None):
            return torch.zeros(batch_size, self.inputs)

        def head(self):
            super().head()
            self.output = nn.Linear(self.inputs, 5)

        def step(self, x_prev, state):
            read = self.start.expand(len(state), -1) if x_prev is None else self.read(x_prev)
            state = 0.01 * state + read
            return self.conditional(state), state

        def forward(self, x, context=None, lengths=None):
            return self.unroll(x, self.initial_state(len(x)))[0]

    model = Fading()
    model.cell = None
    x = torch.randint(5, (2, 30))
    assert check_full_context(model, x).ok

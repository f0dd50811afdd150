"""A step that is another function than forward, or cannot be used as one, is found."""

import pytest
import torch
from sound_models import Tiny

from chainrule import Executor
from chainrule.heads import Categorical
from chainrule.testing import check_model
from chainrule.testing._stepping import check_step_equals_forward


class NoStart(Tiny):
    """Reads zeros in place of the start symbol."""

    def step(self, x_prev, state):
        if x_prev is None:
            state = self.cell(torch.zeros(len(state), self.inputs), state)
            return self.conditional(state), state
        return super().step(x_prev, state)


class Tires(Tiny):
    """Wrong from the sixth step on."""

    def initial_state(self, batch_size, context=None):
        return super().initial_state(batch_size, context), torch.zeros(batch_size, 1)

    def step(self, x_prev, state):
        h, count = state
        _, h = super().step(x_prev, h)
        return self.conditional(h * (1 + 0.01 * (count > 4))), (h, count + 1)


class Overwriting(Tiny):
    """Right, but writes into the state it was given."""

    def step(self, x_prev, state):
        _, following = super().step(x_prev, state)
        state.copy_(following)
        return self.conditional(state), state


class FirstRow(Tiny):
    """Reads the previous element of the first row for all: right for one row."""

    def step(self, x_prev, state):
        return super().step(None if x_prev is None else x_prev[:1].expand(len(x_prev)), state)


class Stateful(Tiny):
    """Keeps its state on the module, and returns an empty one."""

    def initial_state(self, batch_size, context=None):
        self.kept = super().initial_state(batch_size, context)
        return self.kept[:, :0]

    def step(self, x_prev, state):
        conditional, self.kept = super().step(x_prev, self.kept)
        return conditional, state


class LayerFirst(Tiny):
    """torch.nn's order of axes in the state."""

    def initial_state(self, batch_size, context=None):
        return torch.zeros(1, batch_size, 8)

    def step(self, x_prev, state):
        conditional, h = super().step(x_prev, state[0])
        return conditional, h.unsqueeze(0)


class CountsInState(Tiny):
    """A state with a number in it: no tensor, so it cannot be selected."""

    def initial_state(self, batch_size, context=None):
        return super().initial_state(batch_size, context), 0

    def step(self, x_prev, state):
        conditional, h = super().step(x_prev, state[0])
        return conditional, (h, state[1] + 1)


class RolledRows(Tiny):
    """Keeps the rows of its state in another order: right until rows are selected."""

    def step(self, x_prev, state):
        conditional, h = super().step(x_prev, state.roll(-1, 0))
        return conditional, h.roll(1, 0)


class StalePreparation(Tiny):
    """Prepares its steps from other weights than it has."""

    def prepare(self):
        def step(x_prev, state):
            _, state = self.step(x_prev, state)
            return Categorical(self.output(state) / 2), state

        return Executor(self, step)


class ForgetsContext(Tiny):
    """Steps without the context that forward reads."""

    def initial_state(self, batch_size, context=None):
        return super().initial_state(batch_size, torch.zeros_like(context))


@pytest.mark.parametrize(
    "broken", [NoStart, Tires, Overwriting, FirstRow, Stateful, LayerFirst, CountsInState, StalePreparation]
)
def test_a_wrong_step_is_named(broken):
    assert not check_step_equals_forward(broken(), torch.randint(5, (1, 8))).ok


def test_a_state_whose_rows_are_not_those_of_the_batch_is_named():
    result = check_step_equals_forward(RolledRows(), torch.randint(5, (3, 8)))
    assert "rows selected from the state" in result.detail


def test_a_step_without_the_context_is_named():
    assert not check_step_equals_forward(ForgetsContext(3), torch.randint(5, (2, 6)), torch.randn(2, 3)).ok


def test_only_rules_that_rest_on_the_step_fail_with_it():
    failed = {result.name for result in check_model(StalePreparation(), torch.randint(5, (3, 8))).failures}
    assert failed == {"step_equals_forward", "samples_follow_log_prob"}

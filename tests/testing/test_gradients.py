"""A parameter that training cannot move is found."""

import pytest
import torch
from sound_models import Tiny
from torch import nn

from chainrule.testing import check_model
from chainrule.testing._invariance import check_gradients_reach_parameters

X = torch.randint(5, (3, 8), generator=torch.Generator().manual_seed(0))


class Unused(Tiny):
    def head(self):
        super().head()
        self.forgotten = nn.Linear(8, 8)


class Detached(Tiny):
    """The head learns, what is below does not."""

    def conditional(self, h):
        return super().conditional(h.detach())


class NoGradients(Tiny):
    def forward(self, x, context=None, lengths=None):
        with torch.no_grad():
            return super().forward(x, context, lengths)


class OnlyInForward(Tiny):
    """Truncated backpropagation, which goes through `unroll`, learns nothing."""

    @torch.no_grad()
    def step(self, x_prev, state):
        return super().step(x_prev, state)


class Rounded(Tiny):
    """Rounding has no gradient."""

    def head(self):
        super().head()
        self.scale = nn.Parameter(torch.tensor(3.0))

    def conditional(self, h):
        return super().conditional(h * self.scale.round())


@pytest.mark.parametrize(
    ("broken", "name"),
    [(Unused, "forgotten.weight"), (Detached, "cell.weight_hh"), (NoGradients, "cell.weight_hh"), (Rounded, "scale")],
)
def test_a_parameter_without_gradient_is_named(broken, name):
    assert name in check_gradients_reach_parameters(broken(), X).detail


def test_an_unroll_without_gradient_breaks_this_rule_alone():
    failures = check_model(OnlyInForward(), X).failures
    assert [result.name for result in failures] == ["gradients_reach_parameters"]
    assert "unroll" in failures[0].detail


class Exploding(Tiny):
    """The derivative of a square root at 0."""

    def conditional(self, h):
        return super().conditional(h + (h * 0).sqrt())


def test_a_gradient_that_is_no_number_is_named():
    assert "not finite" in check_gradients_reach_parameters(Exploding(), X).detail


def test_frozen_parameters_need_no_gradient():
    model = Unused()
    model.forgotten.requires_grad_(False)
    assert check_gradients_reach_parameters(model, X).ok
    model.requires_grad_(False)
    assert not check_gradients_reach_parameters(model, X).applies


def test_parameters_that_begin_at_zero_are_not_accused():
    model = Tiny()
    nn.init.zeros_(model.output.weight)
    nn.init.zeros_(model.output.bias)
    assert check_gradients_reach_parameters(model, X).ok

"""A conditional that reads its own element or a later one is found, however it reads it."""

import pytest
import torch
from sound_models import Tiny, TinyNormal
from torch import nn

from chainrule.heads import Categorical
from chainrule.testing import check_model
from chainrule.testing._dependence import check_causality


class Leaking(Tiny):
    """Adds what `leak` makes of the whole of x, (B, T, 5), to the scores of `forward`."""

    def forward(self, x, context=None, lengths=None):
        return Categorical(self.output(self.features(x, context)) + self.leak(x, lengths))


class Shifted(Leaking):
    """x_t itself: mask A forgotten."""

    def leak(self, x, lengths):
        return nn.functional.one_hot(x, 5) * 0.1


class Next(Leaking):
    """x_t+1 only."""

    def leak(self, x, lengths):
        return nn.functional.one_hot(x.roll(-1, 1), 5).index_fill(1, torch.tensor([x.shape[1] - 1]), 0) * 1e-5


class ByArgmax(Leaking):
    """Where the largest symbol of the row stands: no gradient anywhere."""

    def leak(self, x, lengths):
        return x.argmax(1).view(-1, 1, 1) * torch.arange(5) * 0.1


class LastToFirst(Leaking):
    """The last element to the first conditional alone."""

    def leak(self, x, lengths):
        scores = torch.zeros(*x.shape, 5)
        scores[:, 0] = 0.1 * nn.functional.one_hot(x[:, -1], 5)
        return scores


class BatchMaximum(Leaking):
    """The largest symbol of the batch."""

    def leak(self, x, lengths):
        return x.max() * torch.arange(5) * 0.1


class Length(Leaking):
    """How many elements there are: only seen with `lengths`."""

    def leak(self, x, lengths):
        return 0 if lengths is None else 0.1 * lengths.view(-1, 1, 1) * torch.arange(5)


class LastReal(Leaking):
    """The last element before the padding: only seen with `lengths`."""

    def leak(self, x, lengths):
        if lengths is None:
            return 0
        last = x.gather(1, (lengths - 1).clamp_min(0).unsqueeze(1))
        return 0.1 * nn.functional.one_hot(last, 5)


class DeadRectifier(Leaking):
    """x_t+1 through a rectifier that fires for no symbol at these weights."""

    def head(self):
        super().head()
        self.gate = nn.Linear(self.inputs, 5)

    def __init__(self):
        super().__init__()
        self.gate.bias.data.fill_(-50.0)

    def leak(self, x, lengths):
        following = torch.cat([self.gate(self.embedding(x))[:, 1:], torch.zeros(len(x), 1, 5)], 1)
        return torch.relu(following)


class DeadByConstant(DeadRectifier):
    """The same, and the threshold is no parameter."""

    def __init__(self):
        super().__init__()
        self.gate.bias.data.fill_(0.0)

    def leak(self, x, lengths):
        following = torch.cat([self.gate(self.embedding(x))[:, 1:], torch.zeros(len(x), 1, 5)], 1)
        return torch.relu(following - 8)


class Faint(TinyNormal):
    """Next to nothing of the next value: too little for a difference, enough for a gradient."""

    def forward(self, x, context=None, lengths=None):
        normal = super().forward(x, context, lengths)
        following = torch.cat([x[:, 1:], x[:, :1] * 0], 1)
        normal.loc = normal.loc + 1e-11 * following
        return normal


class BeyondThreshold(TinyNormal):
    """Only values far larger than those at hand leak."""

    def forward(self, x, context=None, lengths=None):
        normal = super().forward(x, context, lengths)
        normal.loc = normal.loc + torch.relu(x.amax(1, keepdim=True) - 8)
        return normal


class RoundedFuture(TinyNormal):
    """The sum of the row, rounded: gradients are zero everywhere."""

    def forward(self, x, context=None, lengths=None):
        normal = super().forward(x, context, lengths)
        normal.loc = normal.loc + x.sum(1, keepdim=True).round()
        return normal


@pytest.mark.parametrize(
    "broken", [Shifted, Next, ByArgmax, LastToFirst, BatchMaximum, Length, LastReal, DeadRectifier, DeadByConstant]
)
def test_a_leak_of_symbols_is_named(broken):
    result = check_causality(broken(), torch.randint(5, (3, 8)))
    assert not result.ok
    assert "moved by" in result.detail


@pytest.mark.parametrize("broken", [Faint, BeyondThreshold, RoundedFuture])
def test_a_leak_of_values_is_named(broken):
    assert not check_causality(broken(), torch.randn(3, 8)).ok


def test_a_leak_is_found_with_a_single_row_and_few_symbols():
    assert not check_causality(ByArgmax(), torch.randint(2, (1, 5))).ok


def test_reading_the_length_also_breaks_the_rule_of_padding_only():
    failed = {result.name for result in check_model(LastReal(), torch.randint(5, (3, 8))).failures}
    assert failed == {"causality", "padding_invariance"}


class MeanOfOtherRows(Tiny):
    """Rows read each other at the same time step: no leak from the future."""

    def forward(self, x, context=None, lengths=None):
        h = self.features(x, context)
        return self.conditional(h - h.mean(0))


def test_rows_that_read_each_other_are_no_leak_from_the_future():
    assert check_causality(MeanOfOtherRows(), torch.randint(5, (3, 8))).ok

"""Rows that influence each other, and padding that influences anything, are found."""

import pytest
import torch
from sound_models import Tiny, TinyNormal

from chainrule._checks import length_mask
from chainrule.testing import check_model
from chainrule.testing._invariance import check_batch_independence, check_padding_invariance

X = torch.randint(5, (3, 8), generator=torch.Generator().manual_seed(0))


class Coupled(Tiny):
    """`forward` and `step` both pass h through `mix`, which sees all rows."""

    def conditional(self, h):
        return super().conditional(self.mix(h))


class Centred(Coupled):
    """Batch statistics, as normalisation in training mode."""

    def mix(self, h):
        return h - h.mean(0, keepdim=True)


class RowNumber(Coupled):
    """A row's place in the batch."""

    def mix(self, h):
        places = torch.arange(len(h)) * 0.01
        return h + places.view(-1, *[1] * (h.dim() - 1))


class OnlyStep(Tiny):
    """Centred in `step` alone."""

    def step(self, x_prev, state):
        _, state = super().step(x_prev, state)
        return self.conditional(state - 0.1 * state.mean(0)), state


class OnlyLogProb(Tiny):
    """The mean over the batch for every row."""

    def log_prob(self, x, context=None, lengths=None):
        return super().log_prob(x, context, lengths).mean().expand(len(x))


class LongestRow(Tiny):
    """The length of the longest row."""

    def forward(self, x, context=None, lengths=None):
        scale = 1 if lengths is None else 1 + 0.01 * int(lengths.max())
        return self.conditional(self.features(x, context) * scale)


@pytest.mark.parametrize("broken", [Centred, RowNumber, OnlyStep, OnlyLogProb, LongestRow])
def test_rows_that_influence_each_other_are_named(broken):
    assert not check_batch_independence(broken(), X).ok


def test_coupling_is_found_from_a_single_row():
    assert not check_batch_independence(Centred(), X[:1]).ok


def test_the_order_of_rows_breaks_this_rule_and_those_that_compare_batches():
    failed = {result.name for result in check_model(RowNumber(), X).failures}
    assert "batch_independence" in failed
    assert failed <= {"batch_independence", "step_equals_forward", "total_probability"}  # these compare batches too


class CountsPadding(Tiny):
    def log_prob(self, x, context=None, lengths=None):
        return super().log_prob(x, context)


class MasksByProduct(TinyNormal):
    """0 · NaN is NaN."""

    def log_prob(self, x, context=None, lengths=None):
        terms = self.forward(x, context).log_prob(x)
        return (terms if lengths is None else terms * length_mask(lengths, x.shape[1])).sum(1)


class LeavesPadding(Tiny):
    """Symbols outside the vocabulary reach the embedding."""

    def log_prob(self, x, context=None, lengths=None):
        if lengths is None:
            return super().log_prob(x, context)
        terms = self.forward(x, context).log_prob(x)
        return terms.masked_fill(~length_mask(lengths, x.shape[1]), 0).sum(1)


class PerElement(Tiny):
    """Divides by the length, and so by 0."""

    def log_prob(self, x, context=None, lengths=None):
        total = super().log_prob(x, context, lengths)
        return total if lengths is None else total * lengths / lengths


class AtLeastOne(Tiny):
    """A row of length 0 counts its first element."""

    def log_prob(self, x, context=None, lengths=None):
        return super().log_prob(x, context, None if lengths is None else lengths.clamp_min(1))


class FromTheRight(Tiny):
    """Counts positions from the end of the padded row."""

    def forward(self, x, context=None, lengths=None):
        h = self.features(x, context)
        if lengths is not None:
            h = h + 0.01 * torch.arange(x.shape[1]).flip(0).view(1, -1, 1)
        return self.conditional(h)


class PoisonedGradient(TinyNormal):
    """Values right, gradients NaN: the padding is masked after it was used."""

    def log_prob(self, x, context=None, lengths=None):
        terms = self.forward(x.nan_to_num(0), context).log_prob(x)
        return (terms if lengths is None else torch.where(length_mask(lengths, x.shape[1]), terms, 0)).sum(1)


@pytest.mark.parametrize(
    "broken", [CountsPadding, LeavesPadding, PerElement, AtLeastOne, FromTheRight, MasksByProduct, PoisonedGradient]
)
def test_padding_that_matters_is_named(broken):
    x = torch.randn(3, 8) if issubclass(broken, TinyNormal) else X
    assert not check_padding_invariance(broken(), x).ok


def test_padding_that_matters_breaks_this_rule_alone():
    failed = {result.name for result in check_model(CountsPadding(), X).failures}
    assert failed == {"padding_invariance"}


class NoLengths(Tiny):
    def forward(self, x, context=None):
        return super().forward(x, context)


def test_a_model_that_takes_no_lengths_is_named():
    result = check_padding_invariance(NoLengths(), X)
    assert not result.ok
    assert "TypeError" in result.detail

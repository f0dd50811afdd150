"""Models whose x is no sequence in visiting order are checked in that order, and found out in it."""

import pytest
import torch
from sound_models import FixedColumns, Tiny, TinyNormal

from chainrule.heads import Categorical
from chainrule.testing import check_model

ORDER = torch.tensor([2, 4, 1, 0, 3])


class Reordered:
    """Visits the elements of x in another order than they stand."""

    sequence_length = 5

    def to_sequence(self, x):
        return x[:, ORDER]

    def from_sequence(self, sequence):
        return sequence[:, ORDER.argsort()]

    def forward(self, x, context=None, lengths=None):
        return self.laid_out(super().forward(self.to_sequence(x), context, lengths))


class ReorderedSymbols(Reordered, Tiny):
    def laid_out(self, conditionals):
        return Categorical(conditionals.logits[:, ORDER.argsort()])


class ReorderedNumbers(Reordered, TinyNormal):
    def laid_out(self, conditionals):
        back = ORDER.argsort()
        return torch.distributions.Normal(conditionals.loc[:, back], conditionals.scale[:, back])


class Image(FixedColumns):
    """x is (B, 1, 2, 2)."""

    def to_sequence(self, x):
        return x.flatten(1)

    def from_sequence(self, sequence):
        return sequence.view(-1, 1, 2, 2)

    def forward(self, x, context=None, lengths=None):
        return Categorical(super().forward(self.to_sequence(x)).logits.view(*x.shape, -1))


SOUND = [
    (ReorderedSymbols, torch.randint(5, (3, 5))),
    (ReorderedNumbers, torch.randn(3, 5)),
    (Image, torch.randint(3, (3, 1, 2, 2))),
]


@pytest.mark.parametrize(("model", "x"), SOUND, ids=lambda value: value.__name__ if isinstance(value, type) else "")
def test_sound_models_of_any_layout_pass(model, x):
    report = check_model(model(), x)
    assert report.ok, f"\n{report}"
    assert {result.name for result in report.results if not result.applies} <= {"padding_invariance"}


class InPlaceOrder(ReorderedSymbols):
    """Forgets to lay its conditionals out."""

    def laid_out(self, conditionals):
        return conditionals


class ReadsAsItStands(ReorderedSymbols):
    """Reads x as it stands, and visits it in its order."""

    def forward(self, x, context=None, lengths=None):
        return Tiny.forward(self, x, context, lengths)


class SamplesUnordered(ReorderedSymbols):
    """Returns a sequence for an x."""

    def sample(self, *arguments, **options):
        return self.to_sequence(super().sample(*arguments, **options))


class NoInverse(ReorderedSymbols):
    """Applies its order where the inverse belongs."""

    def from_sequence(self, sequence):
        return sequence[:, ORDER]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (InPlaceOrder, "step_equals_forward"),
        (ReadsAsItStands, "causality"),
        (SamplesUnordered, "samples_follow_log_prob"),
    ],
)
def test_models_broken_in_their_order_are_found(broken, rule):
    failed = {result.name for result in check_model(broken(), torch.randint(5, (3, 5))).failures}
    assert rule in failed


def test_a_layout_that_does_not_come_back_is_named():
    report = check_model(NoInverse(), torch.randint(5, (3, 5)))
    assert all("from_sequence(to_sequence(x)) is not x" in result.detail for result in report.results)


def test_lengths_count_elements_of_the_sequence():
    x = torch.randint(3, (2, 1, 2, 2))
    assert check_model(Image(), x, lengths=torch.tensor([4, 2])).ok
    with pytest.raises(ValueError, match=r"lengths: expected values in \[0, 4\]"):
        check_model(Image(), x, lengths=torch.tensor([5, 2]))

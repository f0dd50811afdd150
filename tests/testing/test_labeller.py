"""A model of labels that breaks a rule is told which; sound ones keep them all."""

import pytest
import torch
from torch import nn

from chainrule._base import LikelihoodModel
from chainrule._checks import length_mask
from chainrule.heads import Categorical, TagConstraints
from chainrule.heads._linear_chain_crf import IndependentTags, TagSequences
from chainrule.models import SequenceTagger
from chainrule.testing import check_model
from chainrule.testing._contract import CHECKS

RANDOM = torch.Generator().manual_seed(0)
INPUTS = torch.randn(4, 5, 2, generator=RANDOM)
LENGTHS = torch.tensor([5, 3, 1, 4])
CONTEXT = {"inputs": INPUTS, "lengths": LENGTHS}
LABELS = torch.tensor([0, 2, 1, 2])
TAGS = torch.randint(3, (4, 5), generator=RANDOM)
NAMES = [
    "log_prob_equals_forward",
    "total_probability",
    "batch_independence",
    "padding_invariance",
    "gradients_reach_parameters",
    "save_load",
    "reproducible",
]


class Labels(LikelihoodModel):
    """One of three labels for a row, from the mean of its inputs."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.output = nn.Linear(2, 6), nn.Linear(6, 3)

    def pooled(self, inputs, real):
        h = self.hidden(inputs.masked_fill(~real.unsqueeze(2), 0)).tanh()
        return h.masked_fill(~real.unsqueeze(2), 0).sum(1) / real.sum(1, keepdim=True).clamp(min=1)

    def forward(self, context):
        inputs, lengths = context["inputs"], context["lengths"]
        return Categorical(self.output(self.pooled(inputs, length_mask(lengths, inputs.shape[1]))))

    def log_prob(self, x, context=None, lengths=None):
        return self(context).log_prob(x)


class Tags(LikelihoodModel):
    """One of three tags for each element, from the element and the mean of its row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.output, self.head = nn.Linear(2, 6), nn.Linear(12, 3), IndependentTags(3)

    def emissions(self, inputs, lengths):
        real = torch.ones(inputs.shape[:2], dtype=torch.bool)
        if lengths is not None:
            real = length_mask(lengths, inputs.shape[1])
        h = self.hidden(inputs.masked_fill(~real.unsqueeze(2), 0)).tanh().masked_fill(~real.unsqueeze(2), 0)
        mean = h.sum(1, keepdim=True) / real.sum(1).clamp(min=1).view(-1, 1, 1)
        return self.output(torch.cat([h, mean.expand_as(h)], 2))

    def forward(self, context, lengths=None):
        return TagSequences(self.head, self.emissions(context, lengths), lengths)

    def log_prob(self, x, context=None, lengths=None):
        return self(context, lengths).log_prob(x)


def keeps(rule, model, y=LABELS, context=CONTEXT, lengths=None):
    return next(check for check in CHECKS if check.__name__ == f"check_{rule}")(model, y, context, lengths).ok


def test_every_rule_has_its_row_and_sound_models_keep_them():
    for arguments in ((Labels(), LABELS, CONTEXT), (Tags(), TAGS, INPUTS, LENGTHS), (Tags(), TAGS[:1], INPUTS[:1])):
        report = check_model(*arguments)
        assert [result.name for result in report.results] == NAMES
        assert report.ok, report
        assert all(result.applies for result in report.results)


def test_tags_that_constraints_forbid_have_probability_0_and_are_no_fault():
    torch.manual_seed(0)
    tagger = SequenceTagger(
        3, 5, 4, constraints=TagConstraints.bio(["O", "B-X", "I-X"]), embedding_size=3, hidden_size=3, character_size=4
    )
    words = torch.randint(5, (3, 4))
    context = {"words": words, "characters": torch.randint(5, (3, 4, 2))}
    tags = torch.tensor([[0, 1, 2, 0], [1, 2, 2, 0], [0, 0, 1, 1]])
    report = check_model(tagger, tags, context, torch.tensor([4, 3, 4]))
    assert report.ok, report
    assert "all 81 labels of the first 4 elements" in str(report)


def test_nothing_is_left_behind_and_the_report_is_fixed_by_the_arguments():
    model = Labels().train()
    state = torch.get_rng_state()
    first = check_model(model, LABELS, CONTEXT, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert model.output.weight.dtype == torch.float32
    torch.randn(5)
    assert check_model(model, LABELS, CONTEXT, seed=3) == first


class OtherLogProb(Labels):
    """A likelihood, but not that of `forward`."""

    def log_prob(self, x, context=None, lengths=None):
        return Categorical(2 * self(context).logits).log_prob(x)


class Unnormalised(Labels):
    """Scores in place of log-probabilities."""

    class Scores(Categorical):
        def log_prob(self, value):
            return super().log_prob(value) + 0.01

    def forward(self, context):
        return self.Scores(super().forward(context).logits)


class UnnormalisedTags(Tags):
    """A factor of two for each tag."""

    class Scores(TagSequences):
        def log_prob(self, value):
            real = self.emissions.shape[1] if self.lengths is None else self.lengths
            return super().log_prob(value) + 0.01 * real

    def forward(self, context, lengths=None):
        return self.Scores(self.head, self.emissions(context, lengths), lengths)


class Centred(Labels):
    """Batch statistics."""

    def pooled(self, inputs, real):
        z = super().pooled(inputs, real)
        return z - 0.1 * z.mean(0)


class RowNumber(Tags):
    """A row's place in the batch."""

    def emissions(self, inputs, lengths):
        e = super().emissions(inputs, lengths)
        return e + 0.01 * torch.arange(len(e)).view(-1, 1, 1) * torch.arange(3)


class MeanOverPadding(Labels):
    """Divides by the length of the padded row."""

    def pooled(self, inputs, real):
        return super().pooled(inputs, real) * real.sum(1, keepdim=True) / real.shape[1]


class MasksByProduct(Labels):
    """0 · NaN is NaN."""

    def pooled(self, inputs, real):
        h = self.hidden(inputs).tanh() * real.unsqueeze(2)
        return h.sum(1) / real.sum(1, keepdim=True).clamp(min=1)


class PoisonedGradient(Labels):
    """Values right, gradients NaN: the padding is masked after it was used."""

    def pooled(self, inputs, real):
        h = self.hidden(inputs).tanh().masked_fill(~real.unsqueeze(2), 0)
        return h.sum(1) / real.sum(1, keepdim=True).clamp(min=1)


class EmptyRow(Labels):
    """Divides by 0 where a row is empty."""

    def pooled(self, inputs, real):
        return super().pooled(inputs, real) * real.sum(1, keepdim=True).clamp(min=1) / real.sum(1, keepdim=True)


class CountsPadding(Tags):
    """The tags of the padding count."""

    def log_prob(self, x, context=None, lengths=None):
        return TagSequences(self.head, self.emissions(context, lengths)).log_prob(x.clamp(0, 2))

    def forward(self, context, lengths=None):
        return TagSequences(self.head, self.emissions(context, lengths))


class OneTagTooFew(Tags):
    """The last tag of a row is not scored."""

    def log_prob(self, x, context=None, lengths=None):
        return super().log_prob(x, context, None if lengths is None else (lengths - 1).clamp(min=0))


class Unused(Labels):
    """A parameter that nothing reads."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2))


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (OtherLogProb, "log_prob_equals_forward"),
        (Unnormalised, "total_probability"),
        (Centred, "batch_independence"),
        (MeanOverPadding, "padding_invariance"),
        (PoisonedGradient, "padding_invariance"),
        (MasksByProduct, "padding_invariance"),
        (EmptyRow, "padding_invariance"),
        (Unused, "gradients_reach_parameters"),
    ],
)
def test_a_broken_rule_is_named(broken, rule):
    assert not keeps(rule, broken())


def test_no_other_rule_is_named():
    assert [result.name for result in check_model(OtherLogProb(), LABELS, CONTEXT).failures] == [
        "log_prob_equals_forward"
    ]


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (UnnormalisedTags, "total_probability"),
        (RowNumber, "batch_independence"),
        (CountsPadding, "padding_invariance"),
        (OneTagTooFew, "padding_invariance"),
    ],
)
def test_a_rule_that_a_model_of_tags_breaks_is_named(broken, rule):
    assert not keeps(rule, broken(), TAGS, INPUTS, LENGTHS)


def test_without_lengths_padding_says_nothing():
    class Whole(Labels):
        def forward(self, context):
            return super().forward({"inputs": context, "lengths": torch.full((len(context),), context.shape[1])})

    report = check_model(Whole(), LABELS, INPUTS)
    assert report.ok, report
    assert [result.name for result in report.results if not result.applies] == ["padding_invariance"]


def test_an_answer_that_is_no_distribution_is_a_failure_that_says_so():
    class Scores(Labels):
        def forward(self, context):
            return super().forward(context).logits

    assert "expected a torch Distribution, got Tensor" in str(check_model(Scores(), LABELS, CONTEXT))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((nn.Linear(2, 3), TAGS, INPUTS), "or a LikelihoodModel of labels, got Linear"),
        ((Labels(), torch.tensor(1), CONTEXT), "x: expected a tensor of shape"),
        ((Labels(), LABELS, None), "context: expected the inputs"),
        ((Labels(), LABELS[:3], CONTEXT), "context: expected 3 rows"),
        ((Labels(), LABELS, CONTEXT, LENGTHS), "lengths: expected None, as a row has one label"),
        ((Tags(), TAGS, INPUTS, LENGTHS + 1), r"lengths: expected values in \[0, 5\]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        check_model(*arguments)

"""Nothing is drawn from invalid parameters: scores of NaN gave a symbol like any other, and all -inf gave 0."""

import pytest
import torch

from chainrule.decoding import beam_search, greedy
from chainrule.heads import (
    Bernoulli,
    Categorical,
    Column,
    DiagonalNormal,
    DiscretizedLogisticMixture,
    GaussianMixture,
    IntegerLogisticMixture,
    LinearChainCRF,
    PixelLogisticMixture,
    StudentTMixture,
)
from chainrule.heads._adapter import head_of
from chainrule.heads._computed_categorical import CategoricalMean
from chainrule.heads._linear_chain_crf import IndependentTags
from chainrule.heads._table_column import ColumnGroup, TableColumn
from chainrule.layers import AdaptiveSoftmax
from chainrule.models import RecurrentLM

NAN, INF = torch.nan, torch.inf
GOOD = torch.zeros(2, 3)


def spoilt(value=NAN):
    """Three numbers of each of two rows, one of the second row's spoilt."""
    numbers = GOOD.clone()
    numbers[1, 1] = value
    return numbers


def adaptive(features):
    softmax = AdaptiveSoftmax(3, 6, [2, 4])
    torch.nn.init.normal_(softmax.head_weight)
    return softmax(features)


def table(kind):
    group = ColumnGroup([Column(kind, categories=3) if kind == "categorical" else Column(kind)], single=True)
    outputs = torch.zeros(2, 3 if kind == "categorical" else 4)
    outputs[1, -1] = NAN
    return TableColumn(group, outputs)


INVALID = {
    "Categorical": lambda: Categorical(torch.tensor([0.0, NAN, 1.0])),
    "Categorical, nothing possible": lambda: Categorical(torch.full((3,), -INF)),
    "Categorical, infinite": lambda: Categorical(spoilt(INF)),
    "Categorical, one of two rows": lambda: Categorical(spoilt()),
    "Categorical, nothing possible in one of two rows": lambda: Categorical(torch.stack([GOOD[0], GOOD[0] - INF])),
    "Categorical in half precision": lambda: Categorical(spoilt().bfloat16()),
    "greedy": lambda: Categorical(spoilt()).filtered(temperature=0),
    "tempered": lambda: Categorical(spoilt()).filtered(temperature=0.5),
    "top_k": lambda: Categorical(spoilt()).filtered(top_k=1),
    "top_p": lambda: Categorical(spoilt()).filtered(top_p=0.5),
    "Bernoulli": lambda: Bernoulli(spoilt()),
    "Bernoulli, greedy": lambda: Bernoulli(spoilt()).filtered(temperature=0),
    "CategoricalMean": lambda: CategoricalMean([Categorical(spoilt()), Categorical(GOOD)]),
    "AdaptiveCategorical": lambda: adaptive(spoilt()),
    "GaussianMixture means": lambda: GaussianMixture(GOOD, GOOD + NAN, GOOD),
    "GaussianMixture scales": lambda: GaussianMixture(GOOD, GOOD, GOOD + NAN),
    "GaussianMixture, infinite means": lambda: GaussianMixture(GOOD, GOOD + INF, GOOD),
    "GaussianMixture weights": lambda: GaussianMixture(spoilt(), GOOD, GOOD),
    "StudentTMixture": lambda: StudentTMixture(GOOD, GOOD + NAN, GOOD, GOOD + 3),
    "StudentTMixture degrees": lambda: StudentTMixture(GOOD, GOOD, GOOD, GOOD + NAN),
    "DiscretizedLogisticMixture means": lambda: DiscretizedLogisticMixture(GOOD, GOOD + NAN, GOOD, 4),
    "DiscretizedLogisticMixture scales": lambda: DiscretizedLogisticMixture(GOOD, GOOD, GOOD + NAN, 4),
    "IntegerLogisticMixture": lambda: IntegerLogisticMixture(GOOD, GOOD + NAN, GOOD, torch.tensor(0.0)),
    "PixelLogisticMixture": lambda: PixelLogisticMixture.from_parameters(torch.full((2, 10), NAN), 3, 4),
    "DiagonalNormal": lambda: DiagonalNormal(spoilt(), GOOD),
    "DiagonalNormal scales": lambda: DiagonalNormal(GOOD, spoilt()),
    "TableColumn of categories": lambda: table("categorical"),
    "TableColumn of numbers": lambda: table("real"),
    "TableColumn of counts": lambda: table("integer"),
    "a distribution of torch": lambda: head_of(torch.distributions.Normal(spoilt(), 1.0, validate_args=False)),
}


@pytest.mark.parametrize("name", INVALID)
def test_nothing_is_drawn_from_invalid_parameters(name):
    head = INVALID[name]()
    with pytest.raises(ValueError, match=r"expected a valid distribution to draw from, got NaN or infinite parameters"):
        head.sample(generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "name", ["Categorical", "Categorical, nothing possible", "Bernoulli", "GaussianMixture scales"]
)
def test_nor_in_several_draws(name):
    with pytest.raises(ValueError, match="expected a valid distribution"):
        INVALID[name]().sample((50,))


@pytest.mark.parametrize("head", [LinearChainCRF(3), IndependentTags(3)])
def test_nor_tags(head):
    with pytest.raises(ValueError, match=r"emissions: row 1|expected a valid distribution"):
        head.sample(torch.stack([GOOD, spoilt()]))


def test_what_is_excluded_or_certain_is_drawn_as_ever():
    scores = torch.tensor([[0.0, -INF, -INF], [-INF, 0.0, -1e30]])
    assert Categorical(scores).sample().tolist() == [0, 1]
    assert Categorical(scores[:0]).sample().tolist() == []
    assert Bernoulli(torch.tensor([INF, -INF])).sample().tolist() == [1, 0]
    assert GaussianMixture(torch.zeros(1), torch.ones(1), torch.tensor([-INF])).sample() == 1


def broken():
    model = RecurrentLM(4, hidden_size=4).eval()
    with torch.no_grad():
        model.bias_ho[2] = NAN
    return model


@pytest.mark.parametrize(
    "decode",
    [
        lambda model: model.sample(1, length=3),
        lambda model: model.sample(3, length=3, temperature=0),
        lambda model: greedy(model, max_length=3, eos=None),
        lambda model: beam_search(model, beam_size=2, max_length=3, eos=0),
    ],
)
def test_a_model_of_nan_draws_and_finds_nothing(decode):
    with pytest.raises(ValueError, match="NaN"):
        decode(broken())


def test_draws_inside_a_transform_are_not_checked():
    drawn = torch.func.vmap(lambda scores: Categorical(scores).sample(), randomness="different")(spoilt())
    assert drawn.shape == (2,)

"""The mean of several networks of a table: an exact likelihood, and exact conditionals of any cell."""

from itertools import product

import pytest
import torch

from chainrule.decoding import conditional
from chainrule.heads import Column
from chainrule.models import TableEnsemble, TableMADE

MIXED = [
    Column("categorical", categories=3),
    Column("real", atoms=(0.0,), centre=1.0, scale=2.0, missing=True),
    Column("integer", low=0, atoms=(1.0, 4.0), centre=3.0, scale=2.0, missing=True),
    Column("categorical", categories=2),
]
ORDER = [2, 0, 3, 1]


def ensemble(columns=MIXED, members=3, **options):
    torch.manual_seed(0)
    model = TableEnsemble([TableMADE(columns, 12, 2, ORDER, components=2, **options) for _ in range(members)])
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.double().eval()


@pytest.fixture
def rows():
    return ensemble().sample(5, generator=torch.Generator().manual_seed(1))


def test_keeps_the_contract(keeps_contract, rows):
    keeps_contract(ensemble(), rows)


def test_each_conditional_is_the_mean_of_the_members(rows):
    model = ensemble()
    rows = torch.cat([rows, torch.tensor([[1.0, torch.nan, torch.nan, 0.0], [2.0, 0.0, 4.0, 1.0]]).double()])
    apart = torch.stack([member(rows).log_prob(rows).exp() for member in model.members])
    torch.testing.assert_close(model(rows).log_prob(rows).exp(), apart.mean(0), rtol=1e-9, atol=0)


def test_a_category_is_known_from_all_others_as_enumeration_says():
    model = ensemble([Column("categorical", categories=size) for size in (3, 2, 4, 2)])
    every = torch.tensor(list(product(range(3), range(2), range(4), range(2)))).double()
    joint = model.log_prob(every).detach().exp().view(3, 2, 4, 2)
    assert joint.sum().item() == pytest.approx(1, abs=1e-9)
    for column, found in enumerate(conditional(model, every, range(4))):
        shares = (joint / joint.sum(column, keepdim=True)).movedim(column, -1)
        for row in range(0, len(every), 5):
            place = [int(cell) for index, cell in enumerate(every[row]) if index != column]
            torch.testing.assert_close(found.weights[row], shares[tuple(place)], rtol=0, atol=1e-9)


def test_an_excluded_symbol_is_left_out_of_the_mean(rows):
    """What remains is the mean's own distribution, normalised; not a mean of members normalised apart."""
    before, categories, numbers = ensemble(), ensemble(), ensemble()
    categories.exclude([0, None, None, None])
    numbers.exclude([None, 1, None, None])  # "missing"
    shares = conditional(before, rows, [0])[0].weights
    shares[:, 0] = 0
    found = conditional(categories, rows, [0])[0].weights
    torch.testing.assert_close(found, shares / shares.sum(1, keepdim=True), rtol=0, atol=1e-9)
    unrestricted, number = (conditional(model, rows, [1])[0] for model in (before, numbers))
    assert unrestricted.missing.min() > 0
    assert number.missing.max() == 0
    torch.testing.assert_close(number.mean, unrestricted.mean, rtol=1e-6, atol=1e-6)
    generator = torch.Generator().manual_seed(0)
    assert (categories.sample(100, generator=generator)[:, 0] != 0).all()
    assert not numbers.sample(100, generator=generator)[:, 1].isnan().any()


def test_members_are_trained_apart(rows):
    model = ensemble(dropout=0.0).train()
    expected = torch.stack([member.log_prob(rows) for member in model.members]).mean(0)
    torch.testing.assert_close(model.training_objective(rows), expected)
    assert (model.log_prob(rows) >= expected).all()


@pytest.mark.parametrize(
    "members",
    [
        [],
        [TableMADE(MIXED, 4)] * 2,
        [TableMADE(MIXED, 4), TableMADE(MIXED, 4, order=ORDER)],
        [TableMADE(MIXED, 4), TableMADE(MIXED[::-1], 4)],
        [TableMADE(MIXED, 4), TableMADE(MIXED, 4, components=2)],
    ],
)
def test_members_that_do_not_fit_are_refused(members):
    with pytest.raises(ValueError, match="members: expected"):
        TableEnsemble(members)

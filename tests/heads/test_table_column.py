"""The parts of a table's head: they add up to one, in the unit of the column, and draw what they give mass to."""

import math

import pytest
import torch

from chainrule.heads import Column, GaussianMixture, IntegerLogisticMixture
from chainrule.heads._table_column import ColumnGroup, TableColumn
from chainrule.heads._table_row import TableRow

NAN = math.nan
COLUMNS = {
    "categories": Column("categorical", categories=5),
    "counts": Column("integer", low=0, centre=4.0, scale=3.0),
    "integers with atoms, missing": Column("integer", atoms=(-2.0, 7.0), missing=True, centre=1.0, scale=5.0),
    "counts with atoms": Column("integer", low=0, atoms=(0.0, 3.0), centre=2.0, scale=2.0),
    "reals": Column("real", centre=-3.0, scale=0.1),
    "reals with atoms, missing": Column("real", atoms=(0.0,), missing=True, centre=50.0, scale=20.0),
}


def part(name, rows=1, seed=0, gain=1.0):
    column = COLUMNS[name]
    outputs = gain * torch.randn(rows, column.outputs(3), generator=torch.Generator().manual_seed(seed)).double()
    return TableColumn(ColumnGroup([column], single=True), outputs)


def mass(name, distribution):
    """The total probability of one row."""
    column = COLUMNS[name]
    if column.kind == "categorical":
        return distribution.log_prob(torch.arange(5).view(-1, 1)).exp().sum()
    atoms = torch.tensor([*column.atoms, *([NAN] if column.missing else [])]).view(-1, 1)
    if column.kind == "integer":
        every = torch.arange(-3000, 3000).view(-1, 1)
        missing = distribution.log_prob(torch.tensor([NAN])).exp().sum() if column.missing else 0
        return distribution.log_prob(every).exp().sum() + missing
    grid = column.centre + column.scale * torch.linspace(-60, 60, 2_000_001, dtype=torch.float64).view(-1, 1)
    density = distribution.log_prob(grid[(grid[:, 0] != 0)]).exp()
    return density.sum() * (grid[1] - grid[0]) + distribution.log_prob(atoms).exp().sum()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_of_a_column_add_up_to_one(name, seed):
    exact = COLUMNS[name].kind != "real"  # an integral is a sum of trapezia: six digits
    assert float(mass(name, part(name, seed=seed)).sum()) == pytest.approx(1, abs=1e-9 if exact else 1e-5)


@pytest.mark.parametrize("name", COLUMNS)
def test_samples_lie_in_the_support_and_follow_the_probabilities(name):
    distribution = part(name, seed=1, gain=0.5)
    drawn = distribution.sample((20_000,), generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (20_000, 1)
    assert bool((distribution.log_prob(drawn) > -torch.inf).all())
    column = COLUMNS[name]
    values = torch.arange(5.0) if column.kind == "categorical" else torch.tensor([*column.atoms, 1.0, 2.0])
    if column.missing:
        assert float(drawn.isnan().double().mean()) == pytest.approx(
            float(distribution.log_prob(torch.tensor([NAN])).exp()), abs=0.015
        )
    for value in values:
        if column.kind != "real" or float(value) in column.atoms:
            expected = float(distribution.log_prob(value.view(1)).exp())
            assert float((drawn == value).double().mean()) == pytest.approx(expected, abs=0.015)  # four deviations


@pytest.mark.parametrize("name", COLUMNS)
def test_what_a_column_cannot_hold_has_probability_zero(name):
    distribution, column = part(name), COLUMNS[name]
    impossible = [torch.inf, -torch.inf]
    impossible += {"categorical": [5.0, -1.0, 1.5], "integer": [0.5], "real": []}[column.kind]
    impossible += [] if column.missing else [NAN]
    impossible += [-1.0] if column.low == 0 else []
    assert bool((distribution.log_prob(torch.tensor(impossible).view(-1, 1)) == -torch.inf).all())


def test_infinity_is_no_integer():
    parameters = [torch.zeros(1)] * 3
    found = IntegerLogisticMixture(*parameters).log_prob(torch.tensor([torch.inf, -torch.inf, NAN]))
    assert bool((found == -torch.inf).all())


@pytest.mark.parametrize("name", COLUMNS)
def test_gradients_are_numbers_whatever_the_value_and_the_parameters(name):
    column = COLUMNS[name]
    values = [0.0, 1.0, 2.0] if column.kind == "categorical" else [0.0, 1e12, -1e12 * (column.low is None), 3.0]
    values += [NAN] if column.missing else []
    for scale in (0.0, 1.0, 50.0):
        outputs = (scale * part(name, seed=4).outputs).expand(len(values), -1).clone().requires_grad_()
        terms = TableColumn(ColumnGroup([column], single=True), outputs).log_prob(torch.tensor(values).double())
        assert bool(terms.isfinite().all())
        terms.sum().backward()
        assert bool(outputs.grad.isfinite().all())


def test_the_density_is_in_the_unit_of_the_column():
    outputs = torch.randn(1, 7, generator=torch.Generator().manual_seed(0)).double()
    metres = TableColumn(ColumnGroup([Column("real", centre=1.7, scale=0.1)], single=True), outputs[:, :-3])
    centimetres = TableColumn(ColumnGroup([Column("real", centre=170.0, scale=10.0)], single=True), outputs[:, :-3])
    gap = metres.log_prob(torch.tensor([1.8], dtype=torch.float64)) - centimetres.log_prob(torch.tensor([180.0]))
    assert float(gap) == pytest.approx(math.log(100), abs=1e-12)


def test_a_component_that_collapses_has_a_highest_peak():
    column = Column("real", scale=2.0, finest=0.01)
    peak = TableColumn(ColumnGroup([column], single=True), torch.tensor([[0.0, 0.0, 0.0, -1e6]]))
    assert float(peak.log_prob(torch.zeros(1)).exp()) == pytest.approx(1 / (0.02 * math.sqrt(2 * math.pi)))


def test_an_integer_mixture_without_atoms_is_the_whole_distribution():
    distribution = part("counts", seed=3)
    values = torch.arange(30).double().view(-1, 1)
    assert torch.equal(distribution.log_prob(values), distribution.mixture.log_prob(values))
    assert isinstance(distribution.mixture, IntegerLogisticMixture)
    assert isinstance(part("reals").mixture, GaussianMixture)


def test_integers_far_out_keep_their_digits():
    far = IntegerLogisticMixture(torch.zeros(1), torch.tensor([0.0]).double(), torch.zeros(1).double())
    assert float(far.log_prob(torch.tensor(700.0)).detach()) == pytest.approx(-700 + math.log(2 * math.sinh(0.5)))


def test_a_draw_reads_the_generator_and_refuses_a_temperature():
    distribution = part("counts with atoms", rows=5)
    one, two = (distribution.sample(generator=torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    with pytest.raises(ValueError, match="temperature"):
        distribution.filtered(temperature=0.5)


def test_a_row_is_its_columns_each_in_its_place():
    columns = [Column("real"), COLUMNS["categories"], Column("real", centre=9.0)]
    outputs = torch.randn(2, 2, 4).double(), torch.randn(2, 1, 5).double()
    groups = ColumnGroup([columns[0], columns[2]]), ColumnGroup([columns[1]])
    row = TableRow([TableColumn(*pair) for pair in zip(groups, outputs, strict=True)], [[0, 2], [1]])
    x = torch.tensor([[0.3, 4.0, 9.5], [1.0, 0.0, 8.0]])
    singles = [outputs[0][:, 0], outputs[1][:, 0], outputs[0][:, 1]]
    for place, (column, output) in enumerate(zip(columns, singles, strict=True)):
        single = TableColumn(ColumnGroup([column], single=True), output)
        assert torch.equal(row.log_prob(x)[:, place], single.log_prob(x[:, place]))
    drawn = row.sample(generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (2, 3)
    assert bool(row.log_prob(drawn).isfinite().all())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"kind": "text"}, "kind"),
        ({"kind": "categorical"}, "categories"),
        ({"kind": "real", "scale": 0.0}, "scale"),
        ({"kind": "real", "finest": 0.0}, "finest"),
    ],
)
def test_a_column_that_cannot_be_is_refused(arguments, named):
    with pytest.raises(ValueError, match=named):
        Column(**arguments)


def test_truth_values_are_integers_of_a_mixture():
    x = IntegerLogisticMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1))
    assert x.log_prob(torch.tensor(True)) == x.log_prob(torch.tensor(1))


def test_no_logistic_of_integers_is_narrower_than_its_gradient_allows():
    outputs = torch.zeros(1, COLUMNS["counts"].outputs(1), dtype=torch.float64)
    outputs[0, -1] = -50.0
    column = TableColumn(ColumnGroup([COLUMNS["counts"]], single=True), outputs)
    assert column.mixture.log_scales.item() == pytest.approx(-3.5)

"""Neighbours of a table's target: an exact likelihood, equal to the written equations, and chosen on held-out rows."""

import math
from itertools import product
from statistics import NormalDist
from types import SimpleNamespace

import pytest
import torch

from chainrule.decoding import conditional
from chainrule.heads import Column
from chainrule.models import TableEnsemble, TableMADE, TableNeighbours

MIXED = [
    Column("categorical", categories=3),
    Column("real", atoms=(0.0,), centre=1.0, scale=2.0, missing=True),
    Column("integer", low=0, atoms=(1.0, 4.0), centre=3.0, scale=2.0),
    Column("categorical", categories=4),
]
ORDER = [2, 3, 1, 0]  # the target is the first column
LEVELS = [(0.5, 2.0), (0.05, 0.3)]
NAN = math.nan
ROWS = [
    [0.0, 0.5, 1.0, 2.0],
    [2.0, 0.5, 1.0, 2.0],
    [2.0, 0.5, 1.0, 2.0],
    [1.0, 0.0, 4.0, 3.0],
    [1.0, NAN, 7.0, 0.0],
    [0.0, -1.0, 2.0, 1.0],
]
QUERIES = [[2.0, 0.5, 1.0, 2.0], [1.0, NAN, 3.0, 0.0], [0.0, 9.0, 0.0, 1.0], [1.0, 0.0, 4.0, 1.0]]


def network(columns, order, members=2):
    torch.manual_seed(0)
    networks = [TableMADE(columns, 12, 2, order, components=2) for _ in range(members)]
    for part in networks:
        for parameter in part.parameters():
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    return TableEnsemble(networks) if members > 1 else networks[0]


def neighbours(columns=MIXED, order=ORDER, rows=ROWS, members=2, levels=LEVELS):
    model = TableNeighbours(network(columns, order, members), torch.tensor(rows)).double().eval()
    model.set_levels(levels)
    return model


def normal_score(number, column):
    known = [row[column] for row in ROWS if not math.isnan(row[column])]
    below, equal = sum(other < number for other in known), known.count(number)
    return NormalDist().inv_cdf((2 * below + equal + 1) / (2 * (len(known) + 1)))


def distance(first, second):
    total = float(first[3] != second[3])
    for column in (1, 2):
        gone = [math.isnan(row[column]) for row in (first, second)]
        scores = [
            0.0 if missing else normal_score(row[column], column)
            for row, missing in zip((first, second), gone, strict=True)
        ]
        total += (scores[0] - scores[1]) ** 2 + (gone[0] != gone[1])
    return total


def written(share, row):
    """The equations of the docstring, for the shares of one row."""
    for width, strength in LEVELS:
        kernels = [math.exp(-distance(row, other) / (2 * width)) for other in ROWS]
        total = 1 + strength * sum(kernels)
        counts = [
            sum(k for k, other in zip(kernels, ROWS, strict=True) if other[0] == symbol) for symbol in range(len(share))
        ]
        share = [(before + strength * count) / total for before, count in zip(share, counts, strict=True)]
    return share


@pytest.mark.parametrize("members", [1, 2])
def test_keeps_the_contract(keeps_contract, members):
    keeps_contract(neighbours(members=members), torch.tensor(QUERIES, dtype=torch.float64))


def test_the_target_has_the_written_probabilities_and_other_columns_those_of_the_network():
    model, x = neighbours(), torch.tensor(QUERIES, dtype=torch.float64)
    logs = model(x).log_prob(x)
    assert torch.equal(logs[:, 1:], model.network(x).log_prob(x)[:, 1:])
    every = torch.stack([x.index_fill(1, torch.tensor([0]), code) for code in range(3)])
    before = torch.stack([model.network(x).log_prob(part)[:, 0].exp() for part in every], 1).tolist()
    after = torch.stack([model(x).log_prob(part)[:, 0].exp() for part in every], 1)
    pairs = zip(before, QUERIES, strict=True)
    expected = torch.tensor([written(share, row) for share, row in pairs], dtype=torch.float64)
    torch.testing.assert_close(after, expected, rtol=1e-12, atol=0)
    assert after[0, 2] > max(before[0][2], 0.5)  # it is there twice


def test_any_cell_is_known_from_all_others_as_enumeration_says():
    columns = [Column("categorical", categories=size) for size in (3, 2, 4)]
    rows = [[0.0, 1.0, 3.0], [2.0, 1.0, 3.0], [1.0, 0.0, 0.0]]
    model = neighbours(columns, [2, 0, 1], rows)
    every = torch.tensor(list(product(range(3), range(2), range(4)))).double()
    joint = model.log_prob(every).detach().exp().view(3, 2, 4)
    assert joint.sum().item() == pytest.approx(1, abs=1e-12)
    for column, found in enumerate(conditional(model, every, range(3))):
        shares = (joint / joint.sum(column, keepdim=True)).movedim(column, -1)
        for row in range(len(every)):
            place = [int(cell) for index, cell in enumerate(every[row]) if index != column]
            torch.testing.assert_close(found.weights[row], shares[tuple(place)], rtol=0, atol=1e-12)


def test_numbers_before_the_target_are_weighted_by_what_it_says_of_them():
    """p(x_j | x_-j) ∝ p(x): ratios of the joint density at two values, and at the missing one."""
    model, x = neighbours(), torch.tensor(QUERIES[:1], dtype=torch.float64)
    found = conditional(model, x, [2])[0]
    at = [float(found.weights[0][found.values[0] == value].sum()) for value in (1.0, 4.0)]
    changed = x.repeat(2, 1)
    changed[:, 2] = torch.tensor([1.0, 4.0])
    logs = model.log_prob(changed).tolist()
    assert at[0] / at[1] == pytest.approx(math.exp(logs[0] - logs[1]), rel=1e-9)
    gone = x.clone()
    gone[:, 1] = NAN
    found = conditional(model, x, [1])[0]
    atom = gone.clone()
    atom[:, 1] = 0.0
    share = float(found.weights[0][(found.values[0] == 0) & found.discrete[0]].sum())
    ratio = math.exp(float((model.log_prob(gone) - model.log_prob(atom)).detach()))
    assert float(found.missing) / share == pytest.approx(ratio, rel=1e-9)


def test_an_excluded_symbol_of_the_target_is_left_out_of_the_counts_too():
    before, model, x = neighbours(), neighbours(), torch.tensor(QUERIES, dtype=torch.float64)
    model.exclude([2, None, None, None])
    shares = conditional(before, x, [0])[0].weights
    shares[:, 2] = 0
    found = conditional(model, x, [0])[0].weights
    torch.testing.assert_close(found, shares / shares.sum(1, keepdim=True), rtol=0, atol=1e-12)
    assert (model.sample(100, generator=torch.Generator().manual_seed(0))[:, 0] != 2).all()


def test_levels_are_chosen_where_rows_come_again_and_left_out_where_they_do_not():
    generator = torch.Generator().manual_seed(0)
    columns = [Column("real")] * 4 + [Column("categorical", categories=2)]
    labels = (torch.rand(300, 1, generator=generator) < 0.5).float()
    rows = torch.cat([torch.randn(300, 4, generator=generator), labels], 1)
    others = torch.cat([torch.randn(200, 4, generator=generator), labels[:200]], 1)

    def calibrated(x):
        model = TableNeighbours(TableMADE(columns, 4), rows)
        model.calibrate([SimpleNamespace(x=x, context=None, lengths=None, previous=None)])
        return model.eval()

    again, new = calibrated(rows[:200]), calibrated(others)
    assert again.levels
    assert not new.levels
    assert again(rows[:200]).log_prob(rows[:200])[:, 4].mean() > -0.1
    assert torch.equal(new(others).log_prob(others), new.network(others).log_prob(others))


def test_calibration_takes_the_best_of_its_grid(monkeypatch):
    from chainrule.models import _table_neighbours as module

    monkeypatch.setattr(module, "_WIDTHS", (1.0, 0.3, 0.05))
    monkeypatch.setattr(module, "_STRENGTHS", (0.0, 0.1, 1.0, 10.0))
    model = neighbours(levels=[])
    x = torch.tensor(ROWS, dtype=torch.float64)
    model.calibrate([SimpleNamespace(x=x, context=None, lengths=None, previous=None)])
    chosen, best = model.log_prob(x).detach().sum(), -math.inf
    for widths in product(module._WIDTHS, repeat=2):
        for strengths in product(module._STRENGTHS, repeat=2):
            if widths[0] > widths[1]:
                model.set_levels(list(zip(widths, strengths, strict=True)))
                best = max(best, float(model.log_prob(x).detach().sum()))
    assert float(chosen) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ([Column("categorical", categories=2), Column("real")], [[0.0, 1.0]], "network: expected a categorical"),
        ([Column("real"), Column("categorical", categories=2)], [[0.0]], "rows: expected shape"),
    ],
)
def test_what_does_not_fit_is_refused(columns, rows, message):
    with pytest.raises(ValueError, match=message):
        TableNeighbours(TableMADE(columns, 4), torch.tensor(rows))
    with pytest.raises(ValueError, match="levels: expected at most 2"):
        neighbours().set_levels([(0.0, 1.0)])

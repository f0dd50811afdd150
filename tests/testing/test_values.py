"""What two distributions are compared by."""

import torch

from chainrule.heads import Column
from chainrule.heads._table_column import ColumnGroup, TableColumn
from chainrule.heads._table_row import TableRow
from chainrule.testing._agreement import PROBES, has_support, probe_values


def row(columns):
    torch.manual_seed(0)
    groups = [ColumnGroup([column]) for column in columns]
    parts = [TableColumn(group, torch.randn(2, 1, group.columns[0].outputs(2))) for group in groups]
    return TableRow(parts, [[place] for place in range(len(columns))])


def test_columns_with_supports_of_their_own_are_each_probed_inside_theirs():
    """A column of two categories saw only values of other columns, of probability 0, and so no difference."""
    conditionals = row([Column("real", centre=500.0)] * 9 + [Column("categorical", categories=2)])
    assert not has_support(conditionals)
    x = conditionals.sample()
    probes = probe_values(conditionals, x)
    inside = conditionals.log_prob(probes.view(-1, 1, 1).expand(-1, *x.shape)).isfinite().any(0)
    assert bool(inside.all())


def test_one_support_takes_few_probes():
    conditionals = row([Column("real")] * 20)
    assert has_support(conditionals)
    assert len(probe_values(conditionals, conditionals.sample())) == PROBES

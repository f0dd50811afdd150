"""The mean of several networks of the same table."""

from collections.abc import Sequence
from typing import cast, final

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule.heads._head import Head
from chainrule.heads._table_column import TableColumn
from chainrule.heads._table_row import TableRow
from chainrule.models._model_mean import ModelMean
from chainrule.models._table_candidates import Companion, TableCandidates
from chainrule.models._table_layout import TableLayout
from chainrule.models._table_made import TableMADE
from chainrule.state import State


@final
class TableEnsemble(ModelMean):
    r"""The mean of the conditionals of K networks of the same table, trained separately.

    .. math:: p(x_d \mid x_{<d}) = \frac{1}{K} \sum_{k=1}^{K} p_k(x_d \mid x_{<d})

    It is an `Ensemble` of rows of mixed columns: the symbols of a column get the mean of their probabilities, and its
    mixture has the components of all networks. All visit the columns in one order, so that `log_prob` is an exact
    likelihood. The mean of each conditional is better than the mean of whole rows, :math:`\frac{1}{K} \sum_k p_k(x)`,
    which gains at most log K nats over the best network of a row.

    Args:
        members: at least one `TableMADE`, all different, with the same columns, order and number of components.

    Raises:
        ValueError: there is no member, one is there twice, or they differ in their columns, order or components.

    >>> from chainrule.heads import Column
    >>> columns = [Column("categorical", categories=3), Column("real")]
    >>> model = TableEnsemble([TableMADE(columns, hidden_size=4) for _ in range(2)]).eval()
    >>> x = torch.tensor([[2.0, 0.5]])
    >>> apart = torch.stack([member(x).log_prob(x).exp() for member in model.members])
    >>> torch.allclose(model(x).log_prob(x).exp(), apart.mean(0))
    True
    """

    def __init__(self, members: Sequence[TableMADE]):
        super().__init__()
        if not members or len(set(map(id, members))) < len(members):
            raise ValueError(
                f"members: expected different models, at least one, got {len(members)} of which some are equal"
            )
        first = members[0]
        if any((part.columns, part.order) != (first.columns, first.order) for part in members) or (
            len({part.layout.components for part in members}) > 1
        ):
            raise ValueError("members: expected the same columns, order and components, got models that differ in them")
        self.members = nn.ModuleList(members)
        self.columns, self.order, self.sequence_length = first.columns, first.order, first.sequence_length
        self.layout = TableLayout(first.columns, len(members) * first.layout.components)
        self._excluded: list[Sequence[int | None]] = []

    @property
    def parts(self) -> list[TableMADE]:
        return cast("list[TableMADE]", list(self.members))

    def to_sequence(self, x: Tensor) -> Tensor:
        return self.parts[0].to_sequence(x)

    def from_sequence(self, sequence: Tensor) -> Tensor:
        return self.parts[0].from_sequence(sequence)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Head, State]:
        return cast("tuple[Head, State]", AutoregressiveModel.unroll(self, x, state, x_prev))  # step by step

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the mean of the members' objectives of each row, (B,), so that no member relies on another."""
        return torch.stack([member.training_objective(x, context, lengths) for member in self.parts]).mean(0)

    def candidates(
        self, x: Tensor, column: int, counted: Tensor, companion: Companion | None = None
    ) -> TableCandidates:
        """Return what changes of rows (B, D) as the cell of a column does; see `TableCandidates`."""
        return TableCandidates(self.parts, self.layout, x, column, counted, self._bias(), companion)

    def exclude(self, symbols: Sequence[int | None]) -> None:
        """Give one symbol of each column probability 0 from now on, whatever is known; see `TableLayout.exclude`."""
        self.layout.exclude(torch.zeros(self.layout.size), symbols)  # checks them
        self._excluded.append(list(symbols))

    def _bias(self) -> Tensor | None:
        """(N,) what is added to the outputs of the mean; None where no symbol is excluded."""
        if not self._excluded:
            return None
        bias = torch.zeros(self.layout.size, device=self.parts[0].output.weight.device)
        for symbols in self._excluded:
            self.layout.exclude(bias, symbols)
        return bias

    def _mean(self, conditionals: Sequence[Distribution]) -> Head:
        if isinstance(conditionals[0], TableRow):
            return self.layout.mean_row(cast("Sequence[TableRow]", conditionals), self._bias())
        columns = cast("Sequence[TableColumn]", conditionals)
        index = self.parts[0].layout.singles.index(columns[0].group)
        return self.layout.mean_column(index, columns, self._bias())

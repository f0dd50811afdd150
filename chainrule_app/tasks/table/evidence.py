"""What predictions of cells rest on: enumeration and quadrature, or draws; and what training lacked."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING

from chainrule.printing import one_line
from chainrule_app.printing import counted, listed, spelled
from chainrule_app.tasks.table.gaps import is_seen

if TYPE_CHECKING:
    from chainrule_app.readers.tables.column_schema import ColumnSchema
    from chainrule_app.readers.tables.partial_row import PartialRow

_FEW = 5  # effective draws below which a prediction is uncertain


@dataclass
class Evidence:
    """Counts of predicted cells."""

    exact: int = 0
    averaged: int = 0
    uncertain: int = 0
    fewest: float = inf  # effective draws
    empty: dict[str, int] = field(default_factory=dict)  # cells that stay empty, by column
    rare: dict[str, None] = field(default_factory=dict)  # cells with categories that training did not have

    def count(self, cells: int, effective: Sequence[float]) -> None:
        """Count the cells of rows, by the effective draws that each row rests on; infinite ones are exact."""
        for number in effective:
            self.exact += cells * (number == inf)
            self.averaged += cells * (number != inf)
            self.uncertain += cells * (number < _FEW)
            self.fewest = min(self.fewest, number)

    def leave(self, names: Collection[str], rows: int) -> None:
        """Count the cells of columns of which training had no value."""
        for name in names:
            self.empty[name] = self.empty.get(name, 0) + rows

    def read(self, columns: "Sequence[ColumnSchema]", rows: "Sequence[PartialRow]") -> None:
        """Note the categories that the model takes for any rare one."""
        for row in rows:
            cells = zip(columns, row.cells, strict=True)
            unseen = (f"{own.name}={cell}" for own, cell in cells if cell and not is_seen(own, cell))
            self.rare.update(dict.fromkeys(unseen))

    def add(self, other: "Evidence") -> None:
        """Add the counts of other cells."""
        self.exact += other.exact
        self.averaged += other.averaged
        self.uncertain += other.uncertain
        self.fewest = min(self.fewest, other.fewest)
        for name, rows in other.empty.items():
            self.leave([name], rows)
        self.rare.update(other.rare)

    def notes(self) -> Iterator[str]:
        """Say how the cells were predicted, and what to do about uncertain ones."""
        cells = self.exact + self.averaged
        if cells:
            how = f"{counted(cells, 'cell')}: {self.exact:,} exact"
            if self.averaged:
                how += f", {self.averaged:,} by draws, at least {self.fewest:.1f} effective ones"
            yield how
        if self.uncertain:
            yield (
                f"{counted(self.uncertain, 'cell')} rest on fewer than {_FEW} effective draws: the known cells of "
                f"these rows are improbable together; more {spelled('particles')} may help"
            )
        if self.rare:
            rare = listed(self.rare, 100)
            yield f"rare or not in the training data, read as any rare value: {one_line(rare)}"
        for name, number in self.empty.items():
            yield f"column {name}: no value in training, {counted(number, 'cell')} stay empty"

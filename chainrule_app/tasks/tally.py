"""Sums of the likelihoods of rows that are scored one after another."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from chainrule_app.results import Column, Result
from chainrule_app.tasks.likelihood_record import Basis, LikelihoodRecord

if TYPE_CHECKING:
    from chainrule import TrainableModel
    from chainrule.data import Batch


def likelihood_of(model: "TrainableModel", batch: "Batch") -> tuple[float, int]:
    """Return the nats of a batch and its number of elements, which may be 0."""
    from chainrule.training import count_elements, evaluate

    if not count_elements(batch):
        return 0.0, 0
    found = evaluate(model, [batch])
    return found.nats, found.elements


@dataclass
class Tally:
    """Sums of row likelihoods, updated during scoring."""

    rows: int = 0
    nats: float = 0.0
    elements: int = 0
    standard_error: float | None = None  # standard error of nats estimated by sampling
    bytes: int = 0  # size of the original text; 0 for other data

    def add(self, nats: float, elements: int, rows: int = 1) -> None:
        self.rows, self.nats, self.elements = self.rows + rows, self.nats + nats, self.elements + elements

    def result(
        self,
        columns: Sequence[Column],
        rows: Iterable[Sequence[Any]],
        *,
        basis: Basis,
        unit: str,
        empty: str,
        rank: str = "nats",
        **others: Any,
    ) -> Result:
        """Build the result of scoring; `rows` call `add`, `unit` names one row, and `others` are options of Result."""

        def some() -> Iterator[Sequence[Any]]:
            yield from rows
            if not self.elements:
                raise ValueError(empty)

        def likelihood() -> LikelihoodRecord:
            return LikelihoodRecord(basis, self.nats, self.elements, "", self.standard_error, self.bytes or None)

        about: dict[str, Any] = {"about": {"measured": basis}, "rank": rank, "main": rank, "likelihood": likelihood}
        return Result(columns, some(), **about | {"summary": lambda: self.figures(unit, basis)} | others)

    def figures(self, unit: str, basis: Basis) -> dict[str, Any]:
        from chainrule.training import bits

        if basis.quantity != "nats":
            return {f"{unit}s": self.rows, f"mean_{basis.quantity.replace(' ', '_')}": self.nats / self.elements}
        error = {} if self.standard_error is None else {"standard_error": self.standard_error / self.rows}
        per_element = {f"bits_per_{basis.unit}": bits(self.nats) / self.elements}
        return {f"{unit}s": self.rows, f"nats_per_{unit}": self.nats / self.rows, **error, **per_element}

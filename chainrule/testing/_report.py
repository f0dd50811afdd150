"""Results of the checks."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """Result of one check.

    Attributes:
        name: the rule.
        ok: whether the model keeps it; true too where the rule says nothing about this model.
        detail: the cases that were tried, or the violation that was found, in one line.
        applies: whether the rule says anything about this model.
    """

    name: str
    ok: bool
    detail: str
    applies: bool = True


@dataclass(frozen=True)
class Report:
    """Results of all checks, printed as a table.

    Attributes:
        results: of each check.
        subject: the model and the rows that were looked at, a line above the table; empty for no line.

    >>> print(Report([Result("causality", True, "nothing"), Result("samples", False, "7 was drawn")]))
    causality  pass  nothing
    samples    FAIL  7 was drawn
    """

    results: Sequence[Result]
    subject: str = ""

    @property
    def ok(self) -> bool:
        """Whether the model keeps every rule."""
        return all(result.ok for result in self.results)

    @property
    def failures(self) -> list[Result]:
        """The rules that are broken."""
        return [result for result in self.results if not result.ok]

    def __str__(self) -> str:
        width = max((len(result.name) for result in self.results), default=0)
        lines = [f"{result.name:<{width}}  {_verdict(result)}  {result.detail}" for result in self.results]
        return "\n".join([*filter(None, [self.subject]), *lines])


def _verdict(result: Result) -> str:
    if not result.applies:
        return " -- "
    return "pass" if result.ok else "FAIL"

"""Records of measured likelihoods: figure, unit, measurement and data, so that only comparable ones are ranked."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from chainrule_app.printing import counted

_DIGEST = 12  # characters of a digest that people see


@dataclass(frozen=True)
class Basis:
    """Unit of a likelihood, and the way it is measured."""

    unit: str  # name of one element: symbol, dimension, column, sample, label
    base_measure: str = ""  # distinguished values: pixel levels, kinds of columns
    tokens: str = ""  # level, size and digest of a text's vocabulary
    given: str = ""  # condition of the likelihood, if any
    kind: Literal["exact", "bound", "estimate"] = "exact"
    samples: int | None = None  # K of an importance-weighted bound or an estimate
    quantity: str = "nats"  # nats, or the error name of a model without a likelihood

    def __str__(self) -> str:
        """Say how a likelihood is measured, and of what.

        >>> str(Basis("dimension", "256 levels", kind="bound", samples=50))
        'bound, K = 50; nats per dimension, 256 levels'
        """
        return f"{self.how}; {self.quantity} per {self.subject}"

    @property
    def per(self) -> str:
        return f"{self.quantity} per {self.unit}, {self.how}"

    @property
    def how(self) -> str:
        return self.kind if self.samples is None else f"{self.kind}, K = {self.samples:,}"

    @property
    def subject(self) -> str:
        """Return the unit with its condition, base measure and tokens."""
        condition = f" given {self.given}" if self.given else ""
        return ", ".join(part for part in (self.unit + condition, self.base_measure, self.tokens) if part)


@dataclass(frozen=True)
class LikelihoodRecord:
    basis: Basis
    nats: float  # total negative log-likelihood
    elements: int
    data: str
    standard_error: float | None = None  # standard error of nats estimated by sampling
    bytes: int | None = None  # size of the original text; None for other data

    @property
    def nats_per_element(self) -> float:
        return self.nats / self.elements

    @property
    def bits_per_element(self) -> float:
        from chainrule.training import bits

        return bits(self.nats_per_element)

    @property
    def bits_per_byte(self) -> float | None:
        """Return bits per byte of the original text, comparable between tokenisations; None for other data."""
        from chainrule.training import bits

        return bits(self.nats) / self.bytes if self.bytes else None

    def values(self) -> dict[str, Any]:
        return asdict(self.basis) | {
            "nats": self.nats,
            "elements": self.elements,
            "nats_per_element": self.nats_per_element,
            "bits_per_element": self.bits_per_element,
            "bits_per_byte": self.bits_per_byte,
            "standard_error": self.standard_error,
            "bytes": self.bytes,
            "data": self.data,
        }

    def __str__(self) -> str:
        size = counted(self.elements, "element") + (f", {self.bytes:,} bytes" if self.bytes else "")
        return f"{self.basis}; {size}, data {self.data[:_DIGEST]}"


_COMPARED: dict[str, Callable[[LikelihoodRecord], Any]] = {
    "quantities": lambda entry: entry.basis.quantity,
    "units": lambda entry: entry.basis.unit,
    "conditions": lambda entry: entry.basis.given or "nothing given",
    "symbols": lambda entry: entry.basis.tokens,
    "base measures": lambda entry: entry.basis.base_measure,
    "data": lambda entry: entry.data[:_DIGEST],
    "numbers of elements": lambda entry: f"{entry.elements:,}",
}


def why_not_ranked(entries: Sequence[LikelihoodRecord]) -> str:
    """Return the reason why likelihoods must not be ranked; empty if they may be."""
    for name, part in _COMPARED.items():
        values = dict.fromkeys(part(entry) for entry in entries)
        if len(values) > 1:
            return f"{name} differ: {'; '.join(values)}"
    return ""

"""Tasks that ask for memory over a known number of steps, with their chance level and exact optimum."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data.synthetic._recall import CopyMemory, DelayedRecall, Parity
    from chainrule.data.synthetic._task import (
        AddingProblem,
        SubjectVerbAgreement,
        SymbolTask,
        SyntheticBatch,
        SyntheticTask,
    )

__all__ = [
    "AddingProblem",
    "CopyMemory",
    "DelayedRecall",
    "Parity",
    "SubjectVerbAgreement",
    "SymbolTask",
    "SyntheticBatch",
    "SyntheticTask",
]

__getattr__, __dir__ = attach(__name__)

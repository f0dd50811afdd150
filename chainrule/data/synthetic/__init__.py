"""Tasks that ask for memory over a known number of steps, with their chance level and exact optimum."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data.synthetic.adding import AddingProblem
    from chainrule.data.synthetic.agreement import SubjectVerbAgreement
    from chainrule.data.synthetic.recall import CopyMemory, DelayedRecall, Parity
    from chainrule.data.synthetic.task import SymbolTask, SyntheticBatch, SyntheticTask

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

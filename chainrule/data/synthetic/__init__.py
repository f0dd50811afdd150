"""Tasks that ask for memory over a known number of steps, with their chance level and exact optimum."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.data.synthetic._recall import CopyMemory as CopyMemory
    from chainrule.data.synthetic._recall import DelayedRecall as DelayedRecall
    from chainrule.data.synthetic._recall import Parity as Parity
    from chainrule.data.synthetic._task import AddingProblem as AddingProblem
    from chainrule.data.synthetic._task import SubjectVerbAgreement as SubjectVerbAgreement
    from chainrule.data.synthetic._task import SyntheticBatch as SyntheticBatch
    from chainrule.data.synthetic._task import SyntheticTask as SyntheticTask

__getattr__, __dir__ = attach(__name__)

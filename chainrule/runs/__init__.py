"""The run directory, and what each kind of run keeps in it."""

from chainrule.runs.config import OptimisationOptions, RunConfig
from chainrule.runs.run import Run, kind_of

__all__ = ["OptimisationOptions", "Run", "RunConfig", "kind_of"]

"""Tables."""

from chainrule.tasks.table.task import TableTask

__all__ = ["TableTask"]

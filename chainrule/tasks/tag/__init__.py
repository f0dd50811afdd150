"""Tags of words."""

from chainrule.tasks.tag.task import TagTask

__all__ = ["TagTask"]

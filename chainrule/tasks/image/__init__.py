"""Images."""

from chainrule.tasks.image.task import ImageTask

__all__ = ["ImageTask"]

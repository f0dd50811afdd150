"""Texts."""

from chainrule.tasks.text.task import TextTask

__all__ = ["TextTask"]

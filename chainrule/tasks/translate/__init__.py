"""Pairs of sentences."""

from chainrule.tasks.translate.task import TranslateTask

__all__ = ["TranslateTask"]

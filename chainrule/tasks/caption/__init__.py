"""Captioned images."""

from chainrule.tasks.caption.task import CaptionTask

__all__ = ["CaptionTask"]

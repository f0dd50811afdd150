"""Sounds."""

from chainrule.tasks.sound.task import SoundTask

__all__ = ["SoundTask"]

"""Labels of texts."""

from chainrule.tasks.classify.task import ClassifyTask

__all__ = ["ClassifyTask"]

"""Labels of images."""

from chainrule.tasks.classify_images.task import ClassifyImagesTask

__all__ = ["ClassifyImagesTask"]

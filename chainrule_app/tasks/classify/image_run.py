"""Runs of classifiers of images, with their verbs."""

from chainrule_app.tasks.classify.image_inspection import ImageClassifierInspection, inspect_classifier
from chainrule_app.tasks.classify.image_task import ClassifyImagesTask


class ClassifyImagesRun(ClassifyImagesTask):
    Inspection, inspect = ImageClassifierInspection, inspect_classifier

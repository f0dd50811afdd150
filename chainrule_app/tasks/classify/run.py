"""Runs of classifiers of texts, with their verbs."""

from chainrule_app.tasks.classify import labelling
from chainrule_app.tasks.classify.task import ClassifyTask


class ClassifyRun(ClassifyTask):
    Prediction, predict = labelling.Labelling, labelling.label_texts
    Evaluation, evaluate = labelling.LabelEvaluation, labelling.evaluate_labels
    Inspection, inspect = labelling.ClassifierInspection, labelling.inspect_classifier
    Embedding, embed = labelling.LabelledEmbedding, labelling.embed_texts

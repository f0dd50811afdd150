"""Runs of captioners, with their verbs."""

from chainrule_app.tasks.caption import verbs
from chainrule_app.tasks.caption.task import CaptionTask


class CaptionRun(CaptionTask):
    Prediction, predict = verbs.CaptionOptions, verbs.caption
    Evaluation, evaluate = verbs.CaptionEvaluation, verbs.evaluate_captioner
    Inspection, inspect = verbs.CaptionerInspection, verbs.inspect_captioner
    validation_metric = verbs.caption_metric

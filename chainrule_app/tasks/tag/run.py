"""Runs of taggers, with their verbs."""

from chainrule_app.tasks.tag import verbs
from chainrule_app.tasks.tag.baseline import usual_tags
from chainrule_app.tasks.tag.task import TagTask


class TagRun(TagTask):
    Prediction, predict = verbs.Tagging, verbs.tag_file
    Evaluation, evaluate = verbs.TagEvaluation, verbs.evaluate_tags
    Inspection, inspect = verbs.TagInspection, verbs.inspect_tagger
    baseline = usual_tags

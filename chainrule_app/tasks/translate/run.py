"""Runs of translators, with their verbs."""

from chainrule_app.tasks.translate import prediction
from chainrule_app.tasks.translate.task import TranslateTask


class TranslateRun(TranslateTask):
    Prediction, predict = prediction.TranslationOptions, prediction.translate
    Evaluation, evaluate = prediction.TranslationEvaluation, prediction.evaluate_translator
    Inspection, inspect = prediction.TranslatorInspection, prediction.inspect_translator
    validation_metric = prediction.translation_metric

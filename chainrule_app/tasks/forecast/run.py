"""Runs on series, with their verbs."""

from chainrule_app.tasks.forecast import evaluation, prediction, scoring
from chainrule_app.tasks.forecast.baseline import naive_baseline
from chainrule_app.tasks.forecast.task import ForecastTask


class ForecastRun(ForecastTask):
    Prediction, predict = prediction.ForecastPrediction, prediction.predict_series
    Scoring, score = scoring.ForecastScoring, scoring.score_series
    Evaluation, evaluate = evaluation.ForecastEvaluation, evaluation.evaluate_series
    Inspection, inspect = evaluation.ForecastInspection, evaluation.inspect_series
    baseline = naive_baseline

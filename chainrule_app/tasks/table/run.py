"""Runs on tables, with their verbs."""

from chainrule_app.tasks.table import filling, prediction, verbs
from chainrule_app.tasks.table.baseline import table_baseline
from chainrule_app.tasks.table.inspection import TableInspection, inspect_table
from chainrule_app.tasks.table.task import TableTask


class TableRun(TableTask):
    Scoring, score = verbs.TableScoring, verbs.score_table
    Sampling, sample = verbs.TableSampling, verbs.sample_rows
    Inspection, inspect = TableInspection, inspect_table
    Prediction, predict = prediction.TablePrediction, prediction.predict_cells
    Filling, fill = filling.TableFilling, filling.fill_table
    baseline = table_baseline

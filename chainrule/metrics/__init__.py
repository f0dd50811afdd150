"""Evaluation metrics of each task, computed by the standard library of its field."""

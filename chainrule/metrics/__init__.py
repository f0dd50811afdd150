"""Evaluation metrics of each task, computed by the standard library of its field."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.metrics._bleu import bleu, caption_bleu, chrf
    from chainrule.metrics._classification import classification_scores
    from chainrule.metrics._forecasting import (
        coverage,
        crps_of_gaussian_mixture,
        crps_of_samples,
        mean_absolute_error,
        persistence,
        pinball_loss,
        quantiles_of_samples,
        root_mean_squared_error,
        seasonal_naive,
    )
    from chainrule.metrics._tagging import entity_scores, find_entities, tag_accuracy

__all__ = [
    "bleu",
    "caption_bleu",
    "chrf",
    "classification_scores",
    "coverage",
    "crps_of_gaussian_mixture",
    "crps_of_samples",
    "entity_scores",
    "find_entities",
    "mean_absolute_error",
    "persistence",
    "pinball_loss",
    "quantiles_of_samples",
    "root_mean_squared_error",
    "seasonal_naive",
    "tag_accuracy",
]

__getattr__, __dir__ = attach(__name__)

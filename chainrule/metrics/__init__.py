"""Evaluation metrics of each task, computed by the standard library of its field."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.metrics._bleu import bleu as bleu
    from chainrule.metrics._bleu import caption_bleu as caption_bleu
    from chainrule.metrics._bleu import chrf as chrf
    from chainrule.metrics._forecasting import coverage as coverage
    from chainrule.metrics._forecasting import coverage_of_samples as coverage_of_samples
    from chainrule.metrics._forecasting import crps_of_gaussian_mixture as crps_of_gaussian_mixture
    from chainrule.metrics._forecasting import crps_of_samples as crps_of_samples
    from chainrule.metrics._forecasting import pinball_loss as pinball_loss
    from chainrule.metrics._forecasting import quantiles_of_samples as quantiles_of_samples
    from chainrule.metrics._forecasting import seasonal_naive as seasonal_naive
    from chainrule.metrics._tagging import ClassificationScores as ClassificationScores
    from chainrule.metrics._tagging import classification_scores as classification_scores
    from chainrule.metrics._tagging import entity_scores as entity_scores
    from chainrule.metrics._tagging import find_entities as find_entities
    from chainrule.metrics._tagging import tag_accuracy as tag_accuracy

__getattr__, __dir__ = attach(__name__)

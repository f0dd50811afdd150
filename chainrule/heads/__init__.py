"""Distributions of one element, and of a whole row of tags."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.heads._adapter import head_of
    from chainrule.heads._bernoulli import Bernoulli
    from chainrule.heads._categorical import Categorical
    from chainrule.heads._computed_categorical import AdaptiveCategorical, CategoricalMean
    from chainrule.heads._diagonal_normal import DiagonalNormal
    from chainrule.heads._head import Head
    from chainrule.heads._linear_chain_crf import (
        IndependentTags,
        LinearChainCRF,
        TagConstraints,
        TagSequences,
        bio_constraints,
        bioes_constraints,
    )
    from chainrule.heads._logistic_mixtures import DiscretizedLogisticMixture, IntegerLogisticMixture
    from chainrule.heads._pixels import IndependentPixels, PixelLogisticMixture
    from chainrule.heads._real_mixtures import GaussianMixture, StudentTMixture
    from chainrule.heads._table_column import Column, TableColumn, TableRow

__all__ = [
    "AdaptiveCategorical",
    "Bernoulli",
    "Categorical",
    "CategoricalMean",
    "Column",
    "DiagonalNormal",
    "DiscretizedLogisticMixture",
    "GaussianMixture",
    "Head",
    "IndependentPixels",
    "IndependentTags",
    "IntegerLogisticMixture",
    "LinearChainCRF",
    "PixelLogisticMixture",
    "StudentTMixture",
    "TableColumn",
    "TableRow",
    "TagConstraints",
    "TagSequences",
    "bio_constraints",
    "bioes_constraints",
    "head_of",
]

__getattr__, __dir__ = attach(__name__)

"""One element's distribution; and, over a whole row of tags, a conditional random field."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.heads._adapter import head_of
    from chainrule.heads._adaptive_categorical import AdaptiveCategorical
    from chainrule.heads._bernoulli import Bernoulli
    from chainrule.heads._categorical import Categorical
    from chainrule.heads._categorical_mean import CategoricalMean
    from chainrule.heads._column import Column
    from chainrule.heads._diagonal_normal import DiagonalNormal
    from chainrule.heads._discretized_logistic_mixture import DiscretizedLogisticMixture
    from chainrule.heads._gaussian_mixture import GaussianMixture
    from chainrule.heads._head import Head
    from chainrule.heads._independent_pixels import IndependentPixels
    from chainrule.heads._integer_logistic_mixture import IntegerLogisticMixture
    from chainrule.heads._linear_chain_crf import LinearChainCRF
    from chainrule.heads._pixel_logistic_mixture import PixelLogisticMixture
    from chainrule.heads._student_t_mixture import StudentTMixture
    from chainrule.heads._table_column import TableColumn, TableRow
    from chainrule.heads._tag_constraints import TagConstraints, bio_constraints, bioes_constraints
    from chainrule.heads._tag_sequences import IndependentTags, TagSequences

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

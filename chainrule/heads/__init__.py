"""One element's distribution; and, over a whole row of tags, a conditional random field."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.heads.adapter import head_of
    from chainrule.heads.adaptive_categorical import AdaptiveCategorical
    from chainrule.heads.bernoulli import Bernoulli
    from chainrule.heads.categorical import Categorical
    from chainrule.heads.categorical_mean import CategoricalMean, mean_of
    from chainrule.heads.column import Column
    from chainrule.heads.diagonal_normal import DiagonalNormal
    from chainrule.heads.discretized_logistic_mixture import DiscretizedLogisticMixture
    from chainrule.heads.gaussian_mixture import GaussianMixture
    from chainrule.heads.head import Choose, Head, NotDiscreteError, TensorHead
    from chainrule.heads.independent_pixels import IndependentPixels
    from chainrule.heads.integer_logistic_mixture import IntegerLogisticMixture
    from chainrule.heads.linear_chain_crf import LinearChainCRF
    from chainrule.heads.looked_up_categorical import LookedUpCategorical
    from chainrule.heads.pixel_logistic_mixture import PixelLogisticMixture
    from chainrule.heads.student_t_mixture import StudentTMixture
    from chainrule.heads.table_column import TableColumn, TableRow
    from chainrule.heads.tag_constraints import TagConstraints, bio_constraints, bioes_constraints
    from chainrule.heads.tag_sequences import IndependentTags, TagSequences

__all__ = [
    "AdaptiveCategorical",
    "Bernoulli",
    "Categorical",
    "CategoricalMean",
    "Choose",
    "Column",
    "DiagonalNormal",
    "DiscretizedLogisticMixture",
    "GaussianMixture",
    "Head",
    "IndependentPixels",
    "IndependentTags",
    "IntegerLogisticMixture",
    "LinearChainCRF",
    "LookedUpCategorical",
    "NotDiscreteError",
    "PixelLogisticMixture",
    "StudentTMixture",
    "TableColumn",
    "TableRow",
    "TagConstraints",
    "TagSequences",
    "TensorHead",
    "bio_constraints",
    "bioes_constraints",
    "head_of",
    "mean_of",
]

__getattr__, __dir__ = attach(__name__)

"""Distributions of one element, and of a whole row of tags."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.heads._adapter import head_of as head_of
    from chainrule.heads._categorical import Bernoulli as Bernoulli
    from chainrule.heads._categorical import Categorical as Categorical
    from chainrule.heads._diagonal_normal import DiagonalNormal as DiagonalNormal
    from chainrule.heads._head import Head as Head
    from chainrule.heads._joint import PixelLogisticMixture as PixelLogisticMixture
    from chainrule.heads._linear_chain_crf import LinearChainCRF as LinearChainCRF
    from chainrule.heads._logistic_mixtures import DiscretizedLogisticMixture as DiscretizedLogisticMixture
    from chainrule.heads._logistic_mixtures import IntegerLogisticMixture as IntegerLogisticMixture
    from chainrule.heads._real_mixtures import GaussianMixture as GaussianMixture
    from chainrule.heads._real_mixtures import StudentTMixture as StudentTMixture
    from chainrule.heads._table_column import Column as Column
    from chainrule.heads._tag_constraints import TagConstraints as TagConstraints

__getattr__, __dir__ = attach(__name__)

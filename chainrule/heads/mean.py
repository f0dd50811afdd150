"""The mean of distributions of one kind."""

from collections.abc import Sequence
from typing import cast

from torch import Tensor
from torch.distributions import Distribution

from chainrule.heads.adapter import head_of
from chainrule.heads.categorical import Categorical
from chainrule.heads.categorical_mean import CategoricalMean
from chainrule.heads.head import Head
from chainrule.heads.location_scale_mixture import LocationScaleMixture


def mean_of(conditionals: Sequence[Distribution], log_weights: Tensor | None = None) -> Head:
    r"""The mean of K distributions of the same elements, as probabilities or densities.

    .. math:: p(x) = \sum_{k=1}^{K} w_k\, p_k(x)

    Args:
        conditionals: all categorical, or all mixtures of one class.
        log_weights: (K,) log w, of weights that add up to 1; 1/K each where not given.

    Raises:
        TypeError: they are neither.
        ValueError: they differ in the number of symbols, in class, settings or batch shape.
    """
    heads = [head_of(conditional) for conditional in conditionals]
    if all(isinstance(head, Categorical) for head in heads):
        return CategoricalMean(cast("list[Categorical]", heads), log_weights)
    if all(isinstance(head, LocationScaleMixture) for head in heads):
        return LocationScaleMixture.mean_of(cast("list[LocationScaleMixture]", heads), log_weights)
    kinds = ", ".join(sorted({type(head).__name__ for head in heads}))
    raise TypeError(f"conditionals: expected categorical ones alone, or mixtures alone, got {kinds}")

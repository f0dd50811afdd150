"""The mean of several distributions of one kind: of symbols, or of mixtures."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, cast

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.heads._adapter import head_of
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Head
from chainrule.heads._location_scale_mixture import LocationScaleMixture


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


class CategoricalMean(Categorical):
    r"""The mean of K categorical distributions, as probabilities.

    .. math:: p(x = v) = \sum_{k=1}^{K} w_k\, p_k(x = v)

    `log_prob` asks each of them for the symbols of a value alone, so that a likelihood over a wide vocabulary makes no
    table of all symbols; `logits` and all that is made of them do.

    Args:
        parts: K >= 1 distributions over the same V symbols, of one batch shape.
        log_weights: (K,) log w, of weights that add up to 1; 1/K each where not given.

    Raises:
        ValueError: there is none, they differ in V or in their batch shape, or there are not as many weights.

    >>> die, coin = torch.zeros(6), torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0, 0.0]).log()
    >>> CategoricalMean([Categorical(die), Categorical(coin)]).probs
    tensor([0.3333, 0.3333, 0.0833, 0.0833, 0.0833, 0.0833])
    """

    def __init__(self, parts: Sequence[Categorical], log_weights: Tensor | None = None):
        if not parts:
            raise ValueError("parts: expected at least one distribution, got none")
        if len({part.param_shape for part in parts}) > 1:
            shapes = ", ".join(str(tuple(part.param_shape)) for part in parts)
            raise ValueError(f"parts: expected one batch shape and number of symbols, got {shapes}")
        if log_weights is not None and log_weights.shape != (len(parts),):
            raise ValueError(f"log_weights: expected ({len(parts)},), got {tuple(log_weights.shape)}")
        self.parts, self._log_weights = tuple(parts), log_weights
        self._num_events = parts[0].param_shape[-1]
        distributions.Distribution.__init__(self, parts[0].batch_shape, validate_args=False)

    @property
    def _param(self) -> Tensor:  # type: ignore[override]  # a table that is made when it is asked for
        return self._mean(torch.stack([part.logits for part in self.parts]))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(parameter for part in self.parts for parameter in part.parameters)

    def with_parameters(self, *parameters: Tensor) -> "CategoricalMean":
        rest = iter(parameters)
        parts = [part.with_parameters(*islice(rest, len(part.parameters))) for part in self.parts]
        return CategoricalMean(parts, self._log_weights)

    def categorical(self) -> Categorical:
        return Categorical(self._param)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape.

        Raises:
            ValueError: on a processor, a value outside [0, V).
        """
        return self._mean(torch.stack([part.log_prob(value) for part in self.parts]))

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.categorical().sample(sample_shape, generator=generator)

    def _mean(self, terms: Tensor) -> Tensor:
        """log Σ w e^terms over the parts, (K, ...) -> (...)."""
        if self._log_weights is None:
            return terms.logsumexp(0) - math.log(len(self.parts))
        return (terms + self._log_weights.view(-1, *[1] * (terms.dim() - 1))).logsumexp(0)

    def _is_like(self, other: Head) -> bool:
        return (
            isinstance(other, CategoricalMean)
            and len(other.parts) == len(self.parts)
            and _same(other._log_weights, self._log_weights)
            and all(one._is_like(another) for one, another in zip(self.parts, other.parts, strict=True))
        )

    def __repr__(self) -> str:
        return f"CategoricalMean(batch_shape={tuple(self._batch_shape)}, V={self._num_events}, K={len(self.parts)})"


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))

"""Mixtures of K densities of one shape, each with its own weight, place and width."""

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints

from chainrule.heads.categorical import Categorical


class LocationScaleMixture(Distribution, ABC):
    r"""A mixture of K components of one family, in parameters that may be any real number.

    .. math:: p(x) = \sum_{k=1}^{K} \pi_k \, p(x \mid \mu_k, s_k), \qquad
        \pi = \operatorname{softmax}(a), \quad s_k = e^{\lambda_k}

    A subclass says what a component is, and draws from it.

    Args:
        logits: (..., K) real scores a of the components, in any normalisation.
        means: (..., K) places μ.
        log_scales: (..., K) logarithms λ of the scales s.

    Raises:
        ValueError: the three differ in shape, or there is no component.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor):
        if logits.dim() < 1 or logits.shape[-1] < 1:
            raise ValueError(f"logits: expected shape (..., K) with K >= 1, got {tuple(logits.shape)}")
        for name, parameter in {"means": means, "log_scales": log_scales}.items():
            if parameter.shape != logits.shape:
                raise ValueError(
                    f"{name}: expected the shape of logits {tuple(logits.shape)}, got {tuple(parameter.shape)}"
                )
        self.logits, self.means, self.log_scales = map(at_least_float32, (logits, means, log_scales))
        super().__init__(logits.shape[:-1], validate_args=False)

    @abstractmethod
    def component_log_prob(self, value: Tensor) -> Tensor:
        """log p(value | component), nats, (..., K); value (...), broadcast against the batch shape."""

    @abstractmethod
    def with_parameters(self, logits: Tensor, means: Tensor, log_scales: Tensor) -> Self:
        """A mixture of the same kind with other parameters, as of another layout of the batch."""

    @abstractmethod
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw values of shape sample_shape + batch shape."""

    @staticmethod
    def num_parameters(components: int) -> int:
        """How many numbers a network must give for one element."""
        return 3 * components

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """logits, means and log_scales, (..., K) each, in at least float32."""
        return self.logits, self.means, self.log_scales

    @property
    def log_weights(self) -> Tensor:
        """log π, (..., K), nats."""
        return self.logits.log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...), broadcast against the batch shape."""
        return (self.log_weights + self.component_log_prob(value)).logsumexp(-1)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        shape = (*torch.Size(batch_shape), self.logits.shape[-1])
        return self.with_parameters(*(parameter.expand(shape) for parameter in self.parameters))

    def _picked(self, sample_shape: Any, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """Mean and log-scale of a component drawn for each draw, sample_shape + batch shape."""
        shape = torch.Size(sample_shape) + self._batch_shape
        logits, means, log_scales = (part.detach().expand(*shape, part.shape[-1]) for part in self.parameters)
        component = Categorical(logits).sample(generator=generator).unsqueeze(-1)
        return means.gather(-1, component).squeeze(-1), log_scales.gather(-1, component).squeeze(-1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={tuple(self._batch_shape)}, K={self.logits.shape[-1]})"


def split_parameters(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs of a network (..., 3K) as logits, means and log_scales, (..., K) each.

    Raises:
        ValueError: the last axis is no positive multiple of 3.
    """
    if outputs.dim() < 1 or outputs.shape[-1] < 3 or outputs.shape[-1] % 3:
        raise ValueError(f"outputs: expected shape (..., 3K) for K components, got {tuple(outputs.shape)}")
    logits, means, log_scales = outputs.chunk(3, -1)
    return logits, means, log_scales


def largest_exponent(dtype: torch.dtype) -> float:
    """λ at which e^λ nears the end of a type: 84 in float32, 674 in float64. Scales beyond, either way, stay there."""
    return 0.95 * math.log(torch.finfo(dtype).max)


def at_least_float32(parameter: Tensor) -> Tensor:
    """A parameter in the type it is worked on: half precision is none for exponentials and their sums."""
    return parameter.float() if parameter.dtype in (torch.bfloat16, torch.float16) else parameter

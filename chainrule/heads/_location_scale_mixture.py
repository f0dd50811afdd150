"""Base class of location–scale mixtures."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import TensorHead, at_least_float32, check_drawable, largest_exponent


class LocationScaleMixture(TensorHead):
    r"""Base class: a mixture of K components of one family, with unconstrained real parameters.

    .. math:: p(x) = \sum_{k=1}^{K} \pi_k \, p(x \mid \mu_k, s_k), \qquad
        \pi = \operatorname{softmax}(a), \quad s_k = e^{\lambda_k}

    A subclass defines the density and the sampler of a component. Values and gradients are finite at any logits and
    log-scales and at means up to 1e30; scales are clamped to the range of the dtype. Half precision is computed in
    float32.

    Args:
        logits: (..., K) real scores a of the components, in any normalisation.
        means: (..., K) locations μ.
        log_scales: (..., K) logarithms λ of the scales s.
    """

    component_size: ClassVar[int] = 3  # parameters per component

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
        """Return log p(value | component), nats, (..., K); value (...) broadcasts against the batch shape."""

    def _weighted(self, moments: Tensor) -> Tensor:
        """Average the components' moments (..., K) to (...); weight 0 cancels even an infinite moment."""
        weights = self.log_weights.exp()
        return (weights * moments.masked_fill(weights == 0, 0)).sum(-1)

    @classmethod
    def num_parameters(cls, components: int) -> int:
        """Return the number of network outputs per element."""
        return cls.component_size * components

    @classmethod
    def from_parameters(cls, outputs: Tensor, *settings: Any, **named: Any) -> Self:
        """Build the mixture from a network's outputs (..., 3K): K logits, K means, K log-scales, unchanged.

        Args:
            outputs: (..., 3K).
            settings: further arguments of the class, such as `levels`.
            named: the same by keyword.

        >>> from chainrule.heads import GaussianMixture
        >>> GaussianMixture.from_parameters(torch.zeros(5, GaussianMixture.num_parameters(10)))
        GaussianMixture(batch_shape=(5,), K=10)
        """
        return cls(*cls._split(outputs), *settings, **named)

    @classmethod
    def _split(cls, outputs: Tensor) -> tuple[Tensor, ...]:
        size = cls.component_size
        if outputs.dim() < 1 or outputs.shape[-1] < size or outputs.shape[-1] % size:
            raise ValueError(f"outputs: expected shape (..., {size}K) for K components, got {tuple(outputs.shape)}")
        return outputs.chunk(size, -1)

    @staticmethod
    def mean_of(parts: Sequence["LocationScaleMixture"], log_weights: Tensor | None = None) -> "LocationScaleMixture":
        """Average several mixtures, as densities: a mixture of all their components.

        Args:
            parts: mixtures of one class, settings and batch shape, whose parameters are all (..., K).
            log_weights: (P,) log-weights of the parts, up to a constant; default equal weights.

        >>> from chainrule.heads import GaussianMixture
        >>> narrow, wide = (GaussianMixture(*torch.tensor([[0.0], [0.0], [s]])) for s in (0.0, 1.0))
        >>> GaussianMixture.mean_of([narrow, wide])
        GaussianMixture(batch_shape=(), K=2)
        """
        kinds = {(type(part), part.settings, part.batch_shape) for part in parts}
        separate = all(row.shape == part.logits.shape for part in parts for row in part.parameters)
        if len(kinds) > 1 or not separate:
            got = ", ".join(map(repr, parts))
            raise ValueError(f"parts: expected mixtures of one class, settings and batch shape, got {got}")
        shares: Sequence[Tensor | float] = [0.0] * len(parts) if log_weights is None else log_weights.unbind()
        weighted = ((part.log_weights + share, *part.parameters[1:]) for part, share in zip(parts, shares, strict=True))
        return parts[0].with_parameters(*(torch.cat(rows, -1) for rows in zip(*weighted, strict=True)))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tuple of logits, means and log_scales, (..., K) each, in at least float32."""
        return self.logits, self.means, self.log_scales

    @property
    def log_weights(self) -> Tensor:
        """Normalised log-weights log π, (..., K), nats."""
        return self.logits.log_softmax(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) broadcasts against the batch shape."""
        return (self.log_weights + self.component_log_prob(value)).logsumexp(-1)

    def _standard(self, value: Tensor) -> Tensor:
        """Return (x − μ) / s, (..., K), clamped so that its square stays finite."""
        largest = torch.finfo(self.means.dtype).max ** 0.5 / 2
        inverse_scale = (-self.log_scales).clamp(max=largest_exponent(self.means.dtype)).exp()
        return ((value.unsqueeze(-1) - self.means) * inverse_scale).clamp(-largest, largest)

    def _draw_component(self, sample_shape: Any, generator: torch.Generator | None, *parts: Tensor) -> list[Tensor]:
        """Draw a component per sample and return its parts, each sample_shape + batch shape."""
        shape = torch.Size(sample_shape) + self._batch_shape
        logits, *others = (part.detach().expand(*shape, part.shape[-1]) for part in (self.logits, *parts))
        component = Categorical(logits).sample(generator=generator).unsqueeze(-1)
        parameters = [part.gather(-1, component).squeeze(-1) for part in others]
        means, *scales = parameters  # a scale may be 0 or infinite, not NaN
        largest = largest_exponent(means.dtype)
        check_drawable(torch.stack([means, *(part.clamp(-largest, largest) for part in scales)]).sum(), "means, scales")
        return parameters

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_shape={tuple(self._batch_shape)}, K={self.logits.shape[-1]})"

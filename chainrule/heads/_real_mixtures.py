"""Mixtures of location-scale families of real numbers: normals, and Student's t."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import TensorHead, at_least_float32, check_drawable, largest_exponent
from chainrule.heads._special_functions import log_gamma_ratio, student_tail
from chainrule.kernels._transforms import values_are_known


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

    def _quantile(self, value: Tensor, low: Tensor, high: Tensor) -> Tensor:
        """Return the quantile between two bounds (...) at which `cdf` reaches a probability.

        Newton's method, and bisection where its step leaves the interval or is more than half of the one before.
        """
        shape = torch.broadcast_shapes(value.shape, low.shape)
        value, low, high = (each.expand(shape).flatten() for each in (value.to(low.dtype), low, high))
        rows = self.with_parameters(*(each.expand(*shape, -1).reshape(-1, each.shape[-1]) for each in self.parameters))
        found, before, left = (low + high) / 2, high - low, torch.arange(len(low), device=low.device)
        for _ in range(HALVINGS):
            tolerance = torch.finfo(low.dtype).eps * (found[left].abs() + rows._scales().amin(-1))
            wide = before > tolerance  # inf - inf is NaN: finished
            left, value, low, high, before = (each[wide] for each in (left, value, low, high, before))
            if not len(left):
                break
            rows = rows.with_parameters(*(each[wide] for each in rows.parameters))
            x = found[left]
            excess = rows.cdf(x) - value
            low, high = torch.where(excess < 0, x, low), torch.where(excess < 0, high, x)
            newton = x - excess * (-rows.log_prob(x)).exp()
            good = (newton >= low) & (newton <= high) & (2 * (newton - x).abs() <= before)
            found[left] = torch.where(good, newton, (low + high) / 2)
            before = (found[left] - x).abs()
        return found.view(shape)

    def _scales(self) -> Tensor:
        """Return s, (..., K), positive and finite."""
        largest = largest_exponent(self.means.dtype)
        return self.log_scales.clamp(-largest, largest).exp()

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


HALVINGS = 2200  # limit of the bisection in `icdf`: from the largest to the smallest number of float64


def _check_probabilities(value: Tensor) -> None:
    if values_are_known(value) and not bool(((value >= 0) & (value <= 1)).all()):
        raise ValueError(f"value: expected probabilities in [0, 1], got {value.min()} to {value.max()}")


class GaussianMixture(LocationScaleMixture):
    r"""A mixture of K normal densities on the real line (Bishop 1994, mixture density networks).

    .. math:: p(x) = \sum_k \pi_k \, \mathcal{N}(x \mid \mu_k, s_k^2), \qquad
        \log p(x) = \operatorname{logsumexp}_k \left[ \log \pi_k - \tfrac{1}{2} \left(\frac{x - \mu_k}{s_k}\right)^2
        - \log s_k - \tfrac{1}{2} \log 2\pi \right]

    The log-density depends on the unit of x: it is larger by log c for x / c. If a component sits on a repeated value
    and its scale goes to 0, the likelihood grows without bound: for data with atoms use another head, or add noise.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ.
        log_scales: (..., K) log s.

    >>> x = GaussianMixture(torch.zeros(2), torch.tensor([-1.0, 1.0]), torch.zeros(2))
    >>> x.log_prob(torch.tensor(0.0)), x.mean, x.variance
    (tensor(-1.4189), tensor(0.), tensor(2.))
    >>> x.cdf(torch.tensor(0.0)), x.icdf(torch.tensor(0.9))
    (tensor(0.5000), tensor(1.8495))
    """

    support = constraints.real

    @property
    def mean(self) -> Tensor:
        return (self.log_weights.exp() * self.means).sum(-1)

    @property
    def variance(self) -> Tensor:
        spread = (self.means - self.mean.unsqueeze(-1)).square()
        return self._weighted((2 * self.log_scales).exp() + spread)

    def component_log_prob(self, value: Tensor) -> Tensor:
        log_scales = self.log_scales.clamp_min(-largest_exponent(self.means.dtype))
        return -self._standard(value).square() / 2 - log_scales - math.log(2 * math.pi) / 2

    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value); value (...) broadcasts against the batch shape."""
        return (self.log_weights.exp() * torch.special.ndtr(self._standard(value))).sum(-1)

    def log_mass(self, low: Tensor, high: Tensor) -> Tensor:
        """Return log P(low < X <= high), nats; both (...) broadcast and may be infinite."""
        a, b = self._standard(low), self._standard(high)
        # In the upper half, mirror the interval: subtract two small tails instead of two numbers near 1.
        upper = a > 0
        a, b = torch.where(upper, -b, a), torch.where(upper, -a, b)
        below, all_below = torch.special.log_ndtr(a), torch.special.log_ndtr(b)
        terms = all_below + torch.log(-torch.expm1((below - all_below).clamp(max=0)))
        return (self.log_weights + terms).logsumexp(-1)

    @torch.no_grad()
    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile x at which `cdf` reaches a probability; without gradient.

        The quantile of a mixture lies between the smallest and the largest of its components' quantiles.

        Args:
            value: (...) probabilities that broadcast against the batch shape; 0 and 1 give −inf and inf.
        """
        _check_probabilities(value)
        quantiles = self.means + self._scales() * torch.special.ndtri(value.unsqueeze(-1))
        return self._quantile(value, quantiles.amin(-1), quantiles.amax(-1))

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw real numbers of shape sample_shape + batch shape."""
        means, log_scales = self._draw_component(sample_shape, generator, self.means, self.log_scales)
        scales = log_scales.clamp(max=largest_exponent(means.dtype)).exp()
        return means + scales * torch.randn_like(means, generator=generator)


class StudentTMixture(LocationScaleMixture):
    r"""A mixture of K Student's t densities, each with a location, a scale and degrees of freedom.

    .. math:: p(x) = \sum_k \pi_k \frac{\Gamma(\frac{\nu_k + 1}{2})}
        {\Gamma(\frac{\nu_k}{2}) \sqrt{\pi \nu_k}\, s_k}
        \left(1 + \frac{1}{\nu_k} \left(\frac{x - \mu_k}{s_k}\right)^2\right)^{-(\nu_k + 1) / 2}

    Its tails fall as a power of x, not as :math:`e^{-x^2}`: an outlier costs little and has little influence. As ν
    grows it becomes a `GaussianMixture`. The log-density, in nats, depends on the unit of x.

    `from_parameters` takes a network's outputs (..., 4K): logits, means, log-scales, and a with ν = 2 + softplus(a).
    More than two degrees of freedom keep the variance finite, and so averages of draws converge.

    Args:
        logits: (..., K) real scores of the components, π = softmax(logits).
        means: (..., K) μ.
        log_scales: (..., K) log s.
        degrees: (..., K) ν > 0.

    >>> x = StudentTMixture(torch.zeros(1), torch.zeros(1), torch.zeros(1), torch.tensor([3.0]))
    >>> x.log_prob(torch.tensor([0.0, 10.0])), x.variance
    (tensor([-1.0009, -8.0731]), tensor(3.))
    >>> StudentTMixture.from_parameters(torch.zeros(5, StudentTMixture.num_parameters(2)))
    StudentTMixture(batch_shape=(5,), K=2)
    """

    support = constraints.real
    component_size = 4

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor, degrees: Tensor):
        super().__init__(logits, means, log_scales)
        if degrees.shape != logits.shape:
            raise ValueError(f"degrees: expected the shape of logits {tuple(logits.shape)}, got {tuple(degrees.shape)}")
        self.degrees = at_least_float32(degrees)

    @classmethod
    def _split(cls, outputs: Tensor) -> tuple[Tensor, ...]:
        *parameters, raw = super()._split(outputs)
        return *parameters, 2 + torch.nn.functional.softplus(at_least_float32(raw))

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tuple of logits, means, log_scales and degrees, (..., K) each, in at least float32."""
        return self.logits, self.means, self.log_scales, self.degrees

    @property
    def mean(self) -> Tensor:
        """Mean; NaN if a component has no mean (ν <= 1)."""
        means = torch.where(self.degrees > 1, self.means, torch.nan)
        return self._weighted(means)

    @property
    def variance(self) -> Tensor:
        """Variance; infinite if ν <= 2 for a component, NaN if there is no mean."""
        excess = torch.where(self.degrees > 2, self.degrees / (self.degrees - 2), torch.inf)
        spread = (self.means - self.mean.unsqueeze(-1)).square()
        return self._weighted((2 * self.log_scales).exp() * excess + spread)

    def component_log_prob(self, value: Tensor) -> Tensor:
        half = self.degrees / 2
        peak = log_gamma_ratio(half) - math.log(2 * math.pi) / 2
        largest = torch.finfo(self.means.dtype).max ** 0.5 / 2  # for ν < 1 the division exceeds `_standard`'s clamp
        tail = (half + 0.5) * (self._standard(value) / self.degrees.sqrt()).clamp(-largest, largest).square().log1p()
        return peak - tail - self.log_scales.clamp_min(-largest_exponent(self.means.dtype))

    @torch.no_grad()
    def cdf(self, value: Tensor) -> Tensor:
        """Return P(X <= value); value (...) broadcasts against the batch shape; without gradient."""
        z = self._standard(value)
        tail = student_tail(z.abs(), self.degrees)
        return (self.log_weights.exp() * torch.where(z < 0, tail, 1 - tail)).sum(-1)

    @torch.no_grad()
    def icdf(self, value: Tensor) -> Tensor:
        """Return the quantile x at which `cdf` reaches a probability; without gradient.

        Args:
            value: (...) probabilities that broadcast against the batch shape; 0 and 1 give −inf and inf.
        """
        _check_probabilities(value)
        reach = self._scales()
        while True:
            low, high = (self.means - reach).amin(-1), (self.means + reach).amax(-1)
            outside = (self.cdf(low) > value) & (value > 0) | (self.cdf(high) < value) & (value < 1)
            if not bool(outside.any()):
                break
            reach = torch.where(outside.unsqueeze(-1), 4 * reach, reach)
        found = self._quantile(value, low, high)
        return torch.where(value <= 0, -torch.inf, torch.where(value >= 1, torch.inf, found))

    @torch.no_grad()
    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw real numbers of shape sample_shape + batch shape, exactly, by the polar method of Bailey (1994)."""
        means, log_scales, degrees = self._draw_component(sample_shape, generator, *self.parameters[1:])
        radius, angle = (torch.rand_like(means, generator=generator) for _ in range(2))
        radius = (1 - radius).log() * (-2 / degrees)  # u is in [0, 1): 1 - u is never 0
        standard = (degrees * torch.expm1(radius)).sqrt() * (2 * math.pi * angle).cos()
        return means + log_scales.clamp(max=largest_exponent(means.dtype)).exp() * standard

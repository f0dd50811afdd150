"""Joint distributions of independent parts: the columns of a row, the pixels of an image."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule.heads._bernoulli import Bernoulli
from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Head, TensorHead
from chainrule.heads._logistic_mixtures import PixelLogisticMixture


class Joint(Head):
    """The product over the last axis of a head's batch: batch shape (...), events (D,)."""

    def __init__(self, parts: Head):
        self.parts = parts
        super().__init__(parts.batch_shape[:-1], parts.batch_shape[-1:] + parts.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        return None

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the sum over the last axis of the parts, (...), nats."""
        return self.parts.log_prob(value).sum(-1)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.parts.sample(sample_shape, generator=generator)

    def __repr__(self) -> str:
        return f"Joint({self.parts})"


PixelKind = Literal["bernoulli", "categorical", "mixture"]


class IndependentPixels(Head):
    r"""A distribution of images (C, H, W) with independent pixels; the channels of a pixel may be dependent.

    .. math:: \log p(x) = \sum_{ij} \log p(x_{ij})

    Log-likelihoods are sums over all pixels, in nats per image, not means.

    Args:
        pixels: a `Bernoulli` or `Categorical` of batch shape (..., C, H, W), or a `PixelLogisticMixture` of batch shape
            (..., H, W).

    >>> noise = IndependentPixels(Bernoulli(torch.zeros(2, 1, 4, 4)))
    >>> noise.log_prob(torch.ones(2, 1, 4, 4))  # 16 ln 1/2
    tensor([-11.0904, -11.0904])
    """

    def __init__(self, pixels: TensorHead):
        self.pixels = pixels
        shape = pixels.batch_shape
        self._channels_last = isinstance(pixels, PixelLogisticMixture)
        event = pixels.event_shape + shape[-2:] if self._channels_last else shape[-3:]
        super().__init__(shape[: -2 if self._channels_last else -3], event, validate_args=False)

    @staticmethod
    def num_parameters(kind: PixelKind, channels: int, levels: int, components: int) -> int:
        """Return the number of network outputs per pixel for a `kind`."""
        if kind == "mixture":
            return PixelLogisticMixture.num_parameters(channels, components)
        return channels * (levels if kind == "categorical" else 1)

    @classmethod
    def from_parameters(cls, kind: PixelKind, outputs: Tensor, channels: int, levels: int) -> "IndependentPixels":
        """Build the distribution from a network's outputs (B, N, H, W), N = `num_parameters`."""
        if kind == "bernoulli":
            return cls(Bernoulli(outputs))
        if kind == "categorical":
            return cls(Categorical(outputs.unflatten(1, (channels, levels)).movedim(2, -1)))
        return cls(PixelLogisticMixture.from_parameters(outputs.movedim(1, -1), channels, levels))

    @property
    def support(self) -> constraints.Constraint:
        pixels: Any = self.pixels.support
        return constraints.independent(pixels.base_constraint if self._channels_last else pixels, 3)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(x), (...), nats; value (..., C, H, W) broadcasts against the batch shape."""
        if self._channels_last:
            return self.pixels.log_prob(value.movedim(-3, -1)).sum((-1, -2))
        return self.pixels.log_prob(value).sum((-1, -2, -3))

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw images of integers, sample_shape + batch shape + (C, H, W)."""
        drawn = self.pixels.sample(sample_shape, generator=generator).long()
        return drawn.movedim(-1, -3) if self._channels_last else drawn

    @property
    def mean(self) -> Tensor:
        """Expected image, (..., C, H, W), in levels; mixtures condition each channel on the rounded earlier means."""
        if isinstance(self.pixels, Bernoulli):
            return self.pixels.probs
        if isinstance(self.pixels, Categorical):
            return _expected(self.pixels)
        assert isinstance(self.pixels, PixelLogisticMixture)
        means: list[Tensor] = []
        for _ in range(self._event_shape[0]):
            earlier = torch.stack(means, -1).round() if means else self.pixels.logits[..., :0]
            means.append(_expected(self.pixels.conditional(earlier).categorical()))
        return torch.stack(means, -3)

    def __repr__(self) -> str:
        return f"IndependentPixels({self.pixels})"


def _expected(values: Categorical) -> Tensor:
    probs = values.probs
    return probs @ torch.arange(probs.shape[-1], dtype=probs.dtype, device=probs.device)

"""Joint distributions: the channels of a pixel, the pixels of an image."""

from typing import Any, Literal, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule._ranges import check_sizes
from chainrule.heads._categorical import Bernoulli, Categorical
from chainrule.heads._head import Choose, Head, TensorHead, at_least_float32, broadcast_shapes
from chainrule.heads._logistic_mixtures import (
    DiscretizedLogisticMixture,
    bin_centres,
    bounded_log_scales,
    check_levels,
    log_bin_mass,
    outside,
)


class PixelLogisticMixture(TensorHead):
    r"""A discretised mixture of logistics over the C channels of a pixel (Salimans et al. 2017, PixelCNN++).

    All channels share one component. Within it, a channel's mean is linear in the earlier channels: green depends on
    red, blue on red and green:

    .. math:: p(x_1, \ldots, x_C) = \sum_k \pi_k \prod_{c=1}^{C}
        P\left(x_c \mid \mu_{ck} + \sum_{j<c} \alpha_{cjk} u(x_j),\ s_{ck}\right), \qquad u(x) = \frac{2x + 1}{L} - 1

    where P is the mass of a logistic in the bin of an integer, as in `DiscretizedLogisticMixture`. By the chain rule
    each channel follows such a mixture with **posterior** weights:

    .. math:: p(x_c \mid x_{<c}) = \sum_k \pi_k^{(c)} P(x_c \mid \ldots), \qquad
        \pi_k^{(c)} \propto \pi_k \prod_{j<c} P(x_j \mid \ldots)

    `conditional` returns the mixture of the next channel and `conditionals` all of them, so that a model of one channel
    at a time has the same density. In float32 coupled means are rounded before the mass is computed.

    Args:
        logits: (..., K) real scores of the components.
        means: (..., C, K) μ in units in which the levels span [−1, 1].
        log_scales: (..., C, K) log s in the same units.
        coefficients: (..., C(C−1)/2, K) unbounded α of the channel pairs (2,1), (3,1), (3,2), (4,1), …, each a channel
            and an earlier one. The authors' code bounds them with tanh; to do the same, apply tanh to this argument.
        levels: number of values L of a channel.

    >>> count = PixelLogisticMixture.num_parameters(channels=3, components=10)
    >>> count
    100
    >>> outputs = torch.randn(2, 8, 8, count, generator=torch.Generator().manual_seed(0))  # (B, H, W, 100)
    >>> pixels = PixelLogisticMixture.from_parameters(outputs, channels=3)
    >>> x = pixels.sample(generator=torch.Generator().manual_seed(1))
    >>> x.shape, pixels.log_prob(x).shape, pixels.conditionals(x).log_prob(x).shape
    (torch.Size([2, 8, 8, 3]), torch.Size([2, 8, 8]), torch.Size([2, 8, 8, 3]))
    """

    def __init__(self, logits: Tensor, means: Tensor, log_scales: Tensor, coefficients: Tensor, levels: int = 256):
        check_levels(levels)
        if logits.dim() < 1 or logits.shape[-1] < 1:
            raise ValueError(f"logits: expected shape (..., K) with K >= 1, got {tuple(logits.shape)}")
        if means.dim() < 2 or means.shape[-2] < 1:
            raise ValueError(f"means: expected shape (..., C, K) with C >= 1, got {tuple(means.shape)}")
        batch_shape, components, channels = logits.shape[:-1], logits.shape[-1], means.shape[-2]
        sizes = {
            "means": (means, channels),
            "log_scales": (log_scales, channels),
            "coefficients": (coefficients, _pairs(channels)),
        }
        for name, (parameter, rows) in sizes.items():
            expected = (*batch_shape, rows, components)
            if tuple(parameter.shape) != expected:
                raise ValueError(
                    f"{name}: expected shape {expected} for logits {tuple(logits.shape)} and {channels} channels, "
                    f"got {tuple(parameter.shape)}"
                )
        parts = map(at_least_float32, (logits, means, log_scales, coefficients))
        self.logits, self.means, self.log_scales, self.coefficients = parts
        self.levels = levels
        super().__init__(batch_shape, torch.Size((channels,)), validate_args=False)

    @staticmethod
    def num_parameters(channels: int, components: int) -> int:
        """Return the number of network outputs per pixel, K·(1 + 2C + C(C−1)/2)."""
        return components * (1 + 2 * channels + _pairs(channels))

    @classmethod
    def from_parameters(cls, outputs: Tensor, channels: int, levels: int = 256) -> Self:
        """Build the mixture from a network's outputs (..., P), P = `num_parameters(channels, K)`.

        The outputs are rows of K: one of logits, C of means, C of log-scales, C(C−1)/2 of coefficients. Scales are
        bounded (`bounded_log_scales`).
        """
        check_sizes(channels=channels)
        check_levels(levels)
        rows = [1, channels, channels, _pairs(channels)]
        if outputs.dim() < 1 or outputs.shape[-1] < 1 or outputs.shape[-1] % sum(rows):
            raise ValueError(
                f"outputs: expected shape (..., P) with P a multiple of {sum(rows)}, the parameters of one component "
                f"of {channels} channels, got {tuple(outputs.shape)}"
            )
        logits, means, log_scales, coefficients = outputs.unflatten(-1, (sum(rows), -1)).split(rows, -2)
        return cls(logits.squeeze(-2), means, bounded_log_scales(log_scales, 2 / levels), coefficients, levels)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tuple of logits (..., K), means, log_scales (..., C, K) and coefficients (..., C(C−1)/2, K)."""
        return self.logits, self.means, self.log_scales, self.coefficients

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self.levels,)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.levels - 1), 1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p of all channels, nats; value (..., C) broadcasts. −inf unless all values are levels."""
        terms = self.logits.log_softmax(-1) + self._log_masses(value, self._event_shape[0]).sum(-2)
        return terms.logsumexp(-1).masked_fill(outside(value, self.levels).any(-1), -torch.inf)

    def conditional(self, earlier: Tensor) -> DiscretizedLogisticMixture:
        """Return p(x_c | x_<c), of batch shape (...).

        Args:
            earlier: (..., c) earlier channels, 0 <= c < C, broadcast against the batch shape.
        """
        channel = earlier.shape[-1]
        if channel >= self._event_shape[0]:
            raise ValueError(
                f"earlier: expected (..., c) with c < {self._event_shape[0]} channels, got {tuple(earlier.shape)}"
            )
        logits = self.logits.log_softmax(-1) + self._log_masses(earlier, channel).sum(-2)
        means = self._coupled_means(earlier, channel)
        logits, means, log_scales = torch.broadcast_tensors(logits, means, self.log_scales[..., channel, :])
        return DiscretizedLogisticMixture(logits, means, log_scales, self.levels)

    def conditionals(self, value: Tensor) -> DiscretizedLogisticMixture:
        """Return p(x_c | x_<c) for every channel of value (..., C), batch shape (..., C); ignores the last channel."""
        channels = self._event_shape[0]
        before = self._log_masses(value, channels - 1).cumsum(-2)  # (..., C-1, K)
        prior = self.logits.log_softmax(-1).unsqueeze(-2).expand(*before.shape[:-2], 1, before.shape[-1])
        logits = torch.cat([prior, prior + before], -2)
        means = torch.stack([self._coupled_means(value, channel) for channel in range(channels)], -2)
        logits, means, log_scales = torch.broadcast_tensors(logits, means, self.log_scales)
        return DiscretizedLogisticMixture(logits, means, log_scales, self.levels)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers (..., C), each channel from its conditional given the earlier channels."""
        pixel = self.expand(torch.Size(sample_shape) + self._batch_shape)
        drawn = torch.empty(*pixel.batch_shape, 0, dtype=torch.long, device=self.logits.device)
        with torch.no_grad():
            for _ in range(self._event_shape[0]):
                channel = pixel.conditional(drawn).sample(generator=generator)
                drawn = torch.cat([drawn, channel.unsqueeze(-1)], -1)
        return drawn

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Encode or decode the channels (B, C) one after the other, each by its conditional."""
        earlier = torch.empty(*self._batch_shape, 0, dtype=torch.long, device=self.logits.device)
        for index in range(self._event_shape[0]):
            channel = self.conditional(earlier).code(choose, None if value is None else value[..., index])
            earlier = torch.cat([earlier, channel.unsqueeze(-1)], -1)
        return earlier

    def _log_masses(self, value: Tensor, count: int) -> Tensor:
        """Return log P of the first `count` channels in each component, (..., count, K)."""
        value = value[..., :count]
        if not count:
            shape = broadcast_shapes(value.shape[:-1], self._batch_shape)
            return self.logits.new_zeros(*shape, 0, self.logits.shape[-1])
        means = torch.stack([self._coupled_means(value, channel) for channel in range(count)], -2)
        value = value.to(means.dtype).unsqueeze(-1)
        return log_bin_mass(value, means, self.log_scales[..., :count, :], self.levels)

    def _coupled_means(self, value: Tensor, channel: int) -> Tensor:
        """Return a channel's mean in each component given the earlier channels, (..., K)."""
        coefficients = self.coefficients[..., _pairs(channel) : _pairs(channel + 1), :]
        earlier = bin_centres(value[..., :channel].to(self.means.dtype), self.levels).unsqueeze(-1)
        return self.means[..., channel, :] + (coefficients * earlier).sum(-2)

    def __repr__(self) -> str:
        return (
            f"PixelLogisticMixture(batch_shape={tuple(self._batch_shape)}, C={self._event_shape[0]}, "
            f"K={self.logits.shape[-1]})"
        )


def _pairs(channels: int) -> int:
    return channels * (channels - 1) // 2


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

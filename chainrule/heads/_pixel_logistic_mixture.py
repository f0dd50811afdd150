"""The joint distribution of the channels of a pixel: mixtures of logistics, coupled inside each component."""

from typing import Any, Self

import torch
from torch import Tensor
from torch.distributions import constraints

from chainrule._ranges import check_sizes
from chainrule.heads._discretized_logistic_mixture import DiscretizedLogisticMixture, check_levels, outside
from chainrule.heads._head import Choose, TensorHead, at_least_float32, broadcast_shapes
from chainrule.heads._logistic_bins import bin_centres, log_bin_mass


class PixelLogisticMixture(TensorHead):
    r"""A discretised mixture of logistics over C channels at once (Salimans et al. 2017, PixelCNN++).

    A component is drawn once for the pixel. Inside it a channel's mean is linear in the channels before it, green in
    red, blue in red and green:

    .. math:: p(x_1, \ldots, x_C) = \sum_k \pi_k \prod_{c=1}^{C}
        P\left(x_c \mid \mu_{ck} + \sum_{j<c} \alpha_{cjk} u(x_j),\ s_{ck}\right), \qquad u(x) = \frac{2x + 1}{L} - 1

    where P is the mass of a logistic in the bin of an integer, as in `DiscretizedLogisticMixture`. By the chain rule it
    is also one such mixture after the other, each channel's with **posterior** weights:

    .. math:: p(x_c \mid x_{<c}) = \sum_k \pi_k^{(c)} P(x_c \mid \ldots), \qquad
        \pi_k^{(c)} \propto \pi_k \prod_{j<c} P(x_j \mid \ldots)

    `conditional` gives the next of them and `conditionals` all, so that a model of one channel at a time
    has the same density. In float32 a coupled mean is rounded once: the mass is that of a mean so rounded.

    Args:
        logits: (..., K) real scores of the components.
        means: (..., C, K) μ, where [−1, 1] spans the levels.
        log_scales: (..., C, K) log s in the same units.
        coefficients: (..., C(C−1)/2, K) real α, not bounded, of the pairs (2,1), (3,1), (3,2), (4,1), … of a channel
            and an earlier one. The authors' code bounds them with tanh; to do the same, apply tanh to this argument.
        levels: L, the number of values of a channel.

    Raises:
        ValueError: shapes that do not belong together, no component, no channel, fewer than 2 levels.

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
        """How many numbers a network must give for one pixel: K·(1 + 2C + C(C−1)/2)."""
        return components * (1 + 2 * channels + _pairs(channels))

    @classmethod
    def from_parameters(cls, outputs: Tensor, channels: int, levels: int = 256) -> Self:
        """From outputs of a network (..., P), P = `num_parameters(channels, K)`, as they are.

        They are rows of K: one of logits, C of means, C of log-scales, C(C−1)/2 of coefficients.

        Raises:
            ValueError: the last axis is no positive multiple of the parameters of one component, or no channel.
        """
        check_sizes(channels=channels)
        rows = [1, channels, channels, _pairs(channels)]
        if outputs.dim() < 1 or outputs.shape[-1] < 1 or outputs.shape[-1] % sum(rows):
            raise ValueError(
                f"outputs: expected shape (..., P) with P a multiple of {sum(rows)}, the parameters of one component "
                f"of {channels} channels, got {tuple(outputs.shape)}"
            )
        logits, means, log_scales, coefficients = outputs.unflatten(-1, (sum(rows), -1)).split(rows, -2)
        return cls(logits.squeeze(-2), means, log_scales, coefficients, levels)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """logits (..., K), means and log_scales (..., C, K), coefficients (..., C(C−1)/2, K), in at least float32."""
        return self.logits, self.means, self.log_scales, self.coefficients

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self.levels,)

    @property
    def support(self) -> constraints.Constraint:
        return constraints.independent(constraints.integer_interval(0, self.levels - 1), 1)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p of all channels, nats; value (..., C) broadcast against the batch shape, −inf unless all are levels."""
        terms = self.logits.log_softmax(-1) + self._log_masses(value, self._event_shape[0]).sum(-2)
        return terms.logsumexp(-1).masked_fill(outside(value, self.levels).any(-1), -torch.inf)

    def conditional(self, earlier: Tensor) -> DiscretizedLogisticMixture:
        """p(x_c | x_<c), of batch shape (...).

        Args:
            earlier: (..., c) the channels before it, 0 <= c < C, broadcast against the batch shape.

        Raises:
            ValueError: there are as many channels as the pixel has, or more.
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
        """p(x_c | x_<c) of every channel of value (..., C), of batch shape (..., C); the last channel is not read."""
        channels = self._event_shape[0]
        before = self._log_masses(value, channels - 1).cumsum(-2)  # (..., C-1, K)
        prior = self.logits.log_softmax(-1).unsqueeze(-2).expand(*before.shape[:-2], 1, before.shape[-1])
        logits = torch.cat([prior, prior + before], -2)
        means = torch.stack([self._coupled_means(value, channel) for channel in range(channels)], -2)
        logits, means, log_scales = torch.broadcast_tensors(logits, means, self.log_scales)
        return DiscretizedLogisticMixture(logits, means, log_scales, self.levels)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers (..., C), each channel from its conditional given those that were drawn before it."""
        pixel = self.expand(torch.Size(sample_shape) + self._batch_shape)
        drawn = torch.empty(*pixel.batch_shape, 0, dtype=torch.long, device=self.logits.device)
        with torch.no_grad():
            for _ in range(self._event_shape[0]):
                channel = pixel.conditional(drawn).sample(generator=generator)
                drawn = torch.cat([drawn, channel.unsqueeze(-1)], -1)
        return drawn

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        """Write or read the channels (B, C) one after the other, each by its conditional."""
        known = torch.empty(*self._batch_shape, 0, dtype=torch.long, device=self.logits.device)
        for place in range(self._event_shape[0]):
            channel = self.conditional(known).code(choose, None if value is None else value[..., place])
            known = torch.cat([known, channel.unsqueeze(-1)], -1)
        return known

    def _log_masses(self, value: Tensor, count: int) -> Tensor:
        """log P of the first `count` channels in each component, (..., count, K)."""
        value = value[..., :count]
        if not count:
            shape = broadcast_shapes(value.shape[:-1], self._batch_shape)
            return self.logits.new_zeros(*shape, 0, self.logits.shape[-1])
        means = torch.stack([self._coupled_means(value, channel) for channel in range(count)], -2)
        value = value.to(means.dtype).unsqueeze(-1)
        return log_bin_mass(value, means, self.log_scales[..., :count, :], self.levels)

    def _coupled_means(self, value: Tensor, channel: int) -> Tensor:
        """The mean of a channel in each component given the channels before it, (..., K)."""
        own = self.coefficients[..., _pairs(channel) : _pairs(channel + 1), :]
        earlier = bin_centres(value[..., :channel].to(self.means.dtype), self.levels).unsqueeze(-1)
        return self.means[..., channel, :] + (own * earlier).sum(-2)

    def __repr__(self) -> str:
        return (
            f"PixelLogisticMixture(batch_shape={tuple(self._batch_shape)}, C={self._event_shape[0]}, "
            f"K={self.logits.shape[-1]})"
        )


def _pairs(channels: int) -> int:
    return channels * (channels - 1) // 2

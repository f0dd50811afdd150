"""The distribution of one binary value."""

from typing import Any

import torch
from torch import Tensor, distributions
from torch.nn.functional import logsigmoid

from chainrule.heads._categorical import Categorical
from chainrule.heads._head import Choose, TensorHead, at_least_float32, check_drawable


class Bernoulli(TensorHead, distributions.Bernoulli):
    r"""A Bernoulli distribution that draws from an explicit generator and can be filtered for sampling.

    .. math:: p(x = 1) = \sigma(a), \qquad \log p(x) = \log \sigma((2x - 1) a)

    It has every method of `torch.distributions.Bernoulli`. Its log-likelihood is exact for any logit, including
    infinite ones. Values may be booleans or integers; draws are 0 and 1 in the dtype of the logits.

    Args:
        logits: (...) real scores a.

    >>> coin = Bernoulli(logits=torch.tensor([0.0, 100.0]))
    >>> coin.log_prob(torch.tensor([1, 0]))
    tensor([  -0.6931, -100.0000])
    """

    def __init__(self, logits: Tensor):
        self._param = logits
        distributions.Distribution.__init__(self, logits.shape, validate_args=False)

    @property
    def logits(self) -> Tensor:
        """Scores a, in at least float32."""
        return at_least_float32(self._param)

    @property
    def probs(self) -> Tensor:
        """Probabilities of 1."""
        return self.logits.sigmoid()

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._param,)

    @property
    def param_shape(self) -> torch.Size:
        return self._param.shape

    def categorical(self) -> Categorical:
        return Categorical(logsigmoid(torch.stack([-self.logits, self.logits], -1)))

    def code(self, choose: Choose, value: Tensor | None = None) -> Tensor:
        return super().code(choose, value).to(self.logits.dtype)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) of 0 and 1 broadcasts. Other values have probability 0."""
        scores = self.logits
        sign = 2 * value.to(scores.dtype) - 1
        outside = sign.abs() != 1
        return logsigmoid(sign.masked_fill(outside, 1) * scores).masked_fill(outside, -torch.inf)

    def entropy(self) -> Tensor:
        """Return the entropy in nats; 0 if the outcome is certain."""
        scores = self.logits
        # log p is -inf where p is 0, and p log p is 0 there.
        one, zero = (side.sigmoid() * logsigmoid(side).clamp_min(-1e30) for side in (scores, -scores))
        return -(one + zero)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw 0 and 1 of shape sample_shape + batch shape, always inside the support of `log_prob`."""
        probs = self.logits.sigmoid()
        if probs.requires_grad:
            probs = probs.detach()
        check_drawable(probs.sum(), "logits")
        if sample_shape:
            probs = probs.expand(torch.Size(sample_shape) + probs.shape)
        # u < p with uniform u in [0, 1): never draws 0 where p = 1, nor 1 where p = 0.
        return torch.rand_like(probs, generator=generator).lt_(probs)

    def filtered(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> "Bernoulli":
        """Apply temperature, top-k and top-p to the two symbols 0 and 1; see `Categorical.filtered`."""
        if temperature == 1 and top_k is None and top_p is None:
            return self
        zero, one = self.categorical().filtered(temperature, top_k, top_p).logits.unbind(-1)
        return Bernoulli(one - zero)

    def __repr__(self) -> str:
        return f"Bernoulli(batch_shape={tuple(self._batch_shape)})"

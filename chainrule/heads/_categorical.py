"""The distribution of one binary value, and of one symbol out of V."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributions
from torch.distributions import constraints
from torch.nn.functional import logsigmoid

from chainrule.heads._head import Choose, TensorHead, at_least_float32, broadcast_shapes, check_drawable, representable
from chainrule.kernels._transforms import custom_gradients_work, records_or_transforms, values_are_known
from chainrule.option_error import OptionError

WIDE = 2**20  # size of a table of scores above which it no longer fits into a CPU's cache


class Categorical(TensorHead, distributions.Categorical):
    r"""A categorical distribution that draws from an explicit generator and can be filtered for sampling.

    .. math:: p(x = v) = e^{a_v} / \sum_u e^{a_u}

    It has every method of `torch.distributions.Categorical`, but normalises the scores only when `logits` or `probs`
    are read: a log-likelihood over a wide vocabulary allocates no second table of size (B, T, V).

    Args:
        logits: (..., V) real scores a, in any normalisation.

    >>> die = Categorical(logits=torch.zeros(6))
    >>> round(die.log_prob(torch.tensor(2)).exp().item(), 4)
    0.1667
    """

    def __init__(self, logits: Tensor):
        if logits.dim() < 1 or logits.shape[-1] < 1:
            raise ValueError(f"logits: expected shape (..., V) with V >= 1, got {tuple(logits.shape)}")
        self._param = logits
        self._num_events = logits.shape[-1]
        distributions.Distribution.__init__(self, logits.shape[:-1], validate_args=False)

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities, (..., V), nats."""
        return at_least_float32(self._param).log_softmax(-1)

    @property
    def probs(self) -> Tensor:
        """Probabilities, (..., V)."""
        return at_least_float32(self._param).softmax(-1)

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._param,)

    def categorical(self) -> "Categorical":
        return self

    @property
    def support(self) -> constraints.Constraint:
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def param_shape(self) -> torch.Size:
        return torch.Size((*self._batch_shape, self._num_events))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape.

        Raises:
            ValueError: on the CPU, a value outside [0, V) or a fraction. Mask padding first, or pass `lengths` to the
                model.
        """
        if value.is_floating_point() and value.device.type == "cpu":
            check_symbols(value, self._num_events)  # .long() below would turn a fraction into another symbol
        scores = self._param
        if value.shape != self._batch_shape:
            shape = broadcast_shapes(value.shape, self._batch_shape)
            value, scores = value.expand(shape), scores.expand(*shape, self._num_events)
        rows, symbols = scores.reshape(-1, self._num_events), value.reshape(-1).long()
        return log_prob_at(rows, symbols).view(value.shape)

    def entropy(self) -> Tensor:
        """Return the entropy (...), nats."""
        logits = self.logits
        return -(logits.exp() * logits.clamp(min=torch.finfo(logits.dtype).min)).sum(-1)  # 0 · log 0 = 0

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        """Draw integers of shape sample_shape + batch shape, always inside the support of `log_prob`."""
        shape = torch.Size(sample_shape)
        if not shape:
            return self._draw(generator)
        if not shape.numel():  # multinomial rejects zero draws
            return self._param.new_empty(shape + self._batch_shape, dtype=torch.long)
        rows = self.probs.detach().reshape(-1, self._num_events)
        check_drawable(rows.sum(), "logits")
        drawn = torch.multinomial(rows, shape.numel(), replacement=True, generator=generator)
        return drawn.t().reshape(shape + self._batch_shape)

    def sample_rows(self, generators: Sequence[torch.Generator]) -> Tensor:
        """Draw a symbol for each of B rows, (B,), each from a separate generator.

        The symbol of a row is the one that `sample` would draw for this row alone.

        Args:
            generators: B generators on the device of the scores.

        >>> rows = Categorical(torch.zeros(2, 1000))
        >>> drawn = rows.sample_rows([torch.Generator().manual_seed(seed) for seed in (1, 2)])
        >>> bool(drawn[1] == Categorical(torch.zeros(1000)).sample(generator=torch.Generator().manual_seed(2)))
        True
        """
        scores = at_least_float32(self._param).detach()
        noise = torch.empty_like(scores)
        for row, generator in zip(noise, generators, strict=True):
            row.exponential_(generator=generator)
        return self._likeliest(scores, noise)

    def _draw(self, generator: torch.Generator | None) -> Tensor:
        r"""Draw once, as :math:`\arg\max_v\, (a_v - \log E_v)` with E exponential (Gumbel 1954): no normalisation."""
        scores = at_least_float32(self._param).detach()
        return self._likeliest(scores, torch.empty_like(scores).exponential_(generator=generator))

    def _likeliest(self, scores: Tensor, noise: Tensor) -> Tensor:
        scores = scores - noise.clamp_min_(torch.finfo(noise.dtype).tiny).log_()  # in place: the noise is ours
        single = scores.numel() == self._num_events
        check_drawable(scores.max() if single else scores.amax(-1).sum(), "logits")
        return scores.argmax(-1)

    @staticmethod
    def check_filters(
        temperature: float, top_k: int | None, top_p: float | None
    ) -> tuple[float, int | None, float | None]:
        """Return sampling filters with the temperature as a float; reject one outside its range."""
        if not 0 <= temperature <= sys.float_info.max:
            raise OptionError("temperature", f"expected a number >= 0 (0 is greedy), got {temperature}")
        if top_k is not None and top_k < 1:
            raise OptionError("top_k", f"expected an integer >= 1, got {top_k}")
        if top_p is not None and not 0 < top_p <= 1:
            raise OptionError("top_p", f"expected a number in (0, 1], got {top_p}")
        return float(temperature), top_k, top_p

    def filtered(self, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> "Categorical":
        """Apply temperature, then keep the most probable symbols and renormalise: the distribution to sample from.

        Args:
            temperature: divides the log-probabilities; 0 keeps only the most probable symbol.
            top_k: keep the k most probable symbols.
            top_p: keep the fewest symbols whose probability reaches p (Holtzman et al. 2020), at least one.

        Ties go to the lower symbols, so that `top_k=1` and a tiny `top_p` keep the symbol that `temperature=0` keeps.
        """
        if temperature == 1 and top_k is None and top_p is None:
            return self
        temperature, top_k, top_p = self.check_filters(temperature, top_k, top_p)
        # Ranks are those of the scores: normalising and dividing round, and make equals of what is not equal.
        scores = at_least_float32(self._param)
        if temperature == 0:
            best = scores.argmax(-1, keepdim=True)
            certain = 0 * scores.gather(-1, best)  # keeps NaN, so that `sample` raises
            return Categorical(torch.full_like(scores, -torch.inf).scatter(-1, best, certain))
        logits = scores - scores.amax(-1, keepdim=True)  # the best stays finite however small the temperature
        logits = logits / representable(temperature, logits.dtype)
        if top_k is not None and top_k < self._num_events:
            logits = logits.masked_fill(_below_first(scores, top_k), -torch.inf)
        if top_p is not None and top_p < 1:
            order = scores.sort(stable=True, dim=-1, descending=True).indices
            ordered = logits.gather(-1, order).softmax(-1)
            unneeded = ordered.cumsum(-1) - ordered >= top_p  # more probable symbols already reach top_p
            unneeded[..., 0] = False  # a tiny top_p still keeps one symbol
            logits = logits.masked_fill(unneeded.scatter(-1, order, unneeded), -torch.inf)
        return Categorical(logits)

    def __repr__(self) -> str:
        return f"Categorical(batch_shape={tuple(self._batch_shape)}, V={self._num_events})"


def _below_first(scores: Tensor, k: int) -> Tensor:
    """Return True for all but the k greatest of each row, (..., V); of equals, the first are the greater ones."""
    least = scores.topk(k, -1).values[..., -1:]
    below, equal = scores < least, scores == least  # NaN is neither, and stays
    room = k - (~(below | equal)).sum(-1, keepdim=True)
    return below | (equal & (equal.cumsum(-1) > room))


def log_prob_at(scores: Tensor, symbols: Tensor) -> Tensor:
    """Return log p of one symbol per row, (R,), nats, from unnormalised scores (R, V)."""
    # Not cross_entropy: its ignore_index gives the symbol -100 probability 1.
    if scores.device.type == "cpu" and scores.numel() > WIDE and custom_gradients_work():
        check_symbols(symbols, scores.shape[1])
        return picked_log_softmax(scores, symbols)
    try:
        return at_least_float32(scores).log_softmax(1).gather(1, symbols.unsqueeze(1)).squeeze(1)
    except RuntimeError:  # on the CPU gather raises for a wrong index; search for it only to name it
        check_symbols(symbols, scores.shape[1])
        raise


def check_symbols(symbols: Tensor, count: int) -> None:
    """Reject a symbol outside [0, count), or a fraction, where `values_are_known`."""
    if not values_are_known(symbols):
        return
    if not symbols.is_floating_point():
        symbols = symbols.long()  # in a narrow dtype such as int8 `count` would overflow
    wrong = (symbols < 0) | (symbols >= count)
    if symbols.is_floating_point():
        wrong |= symbols != symbols.floor()  # NaN too
    if wrong.any():
        got = symbols[wrong][0].item()
        if 0 <= got < count:
            raise ValueError(f"value: expected integers in [0, {count}), got {got:g}: quantise the values")
        raise ValueError(
            f"value: expected symbols in [0, {count}), got {f'{got:g}' if isinstance(got, float) else got}: "
            "mask padding first, or pass lengths to the model"
        )


CACHE = 2**19  # float32 numbers processed at a time: 2 MiB


def picked_log_softmax(scores: Tensor, value: Tensor) -> Tensor:
    r"""Return :math:`a_v - \log \sum_u e^{a_u}` per row, (R,), of scores (R, V) and symbols (R,), in at least float32.

    It equals minus `torch.nn.functional.cross_entropy`, computed a few rows at a time, so that scores, exponentials
    and the gradient :math:`y - p` stay in the CPU's cache instead of passing through memory six times.
    """
    picked: Tensor = _Picked.apply(scores, value)
    return picked


class _Picked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor) -> Tensor:
        column = value.unsqueeze(1)
        normaliser = at_least_float32(scores.new_empty(column.shape))
        picked = torch.empty_like(normaliser)
        for rows in _pieces(scores):
            part = scores[rows].to(normaliser.dtype)
            torch.logsumexp(part, 1, keepdim=True, out=normaliser[rows])
            torch.gather(part, 1, column[rows], out=picked[rows])
        ctx.save_for_backward(scores, column, normaliser)
        return (picked - normaliser).squeeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        scores, column, normaliser = ctx.saved_tensors
        gradient = gradient.unsqueeze(1)
        if records_or_transforms(gradient):  # double backward needs differentiable, out-of-place operations
            probability = scores.to(normaliser.dtype).softmax(1)
            return (-gradient * probability).scatter_add(1, column, gradient).to(scores.dtype), None
        d_scores = torch.empty_like(scores)
        for rows in _pieces(scores):
            probability = torch.sub(scores[rows], normaliser[rows]).exp_()
            probability.mul_(-gradient[rows]).scatter_add_(1, column[rows], gradient[rows])
            d_scores[rows] = probability
        return d_scores, None


def _pieces(scores: Tensor) -> list[slice]:
    size = max(CACHE // scores.shape[1], 1)
    return [slice(start, start + size) for start in range(0, scores.shape[0], size)]


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

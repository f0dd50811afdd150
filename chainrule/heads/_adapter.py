"""Distributions of torch as heads; draws of an element, and of those that follow, compiled or recorded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule.heads._categorical import Bernoulli, Categorical
from chainrule.heads._head import Head, WrappedHead, check_drawable
from chainrule.kernels._compiled import FEW
from chainrule.kernels._cuda_graphs import recorded_scores
from chainrule.modes import own_draws
from chainrule.state import count_rows

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Rows


def head_of(distribution: Distribution) -> Head:
    """Adapt a distribution of torch: a head with the same probabilities, or the argument itself if it is a head.

    A distribution built from `probs` keeps them exactly; torch's own `logits` would clamp them away from 0 and 1.

    >>> head_of(distributions.Bernoulli(probs=torch.tensor([0.9, 0.2]))).filtered(temperature=0.0).sample()
    tensor([1., 0.])
    """
    if isinstance(distribution, Head):
        return distribution
    probs = vars(distribution).get("probs")
    if isinstance(distribution, distributions.Categorical):
        return Categorical(distribution.logits if probs is None else _log(probs))
    if isinstance(distribution, distributions.Bernoulli):
        return Bernoulli(distribution.logits if probs is None else _log(probs) - _log(1 - probs))
    return TorchHead(distribution)


def _log(probs: Tensor) -> Tensor:
    """Return log p, −inf where p is 0, with a gradient of 0 there."""
    return probs.where(probs > 0, 1).log().masked_fill(probs <= 0, -torch.inf)


class TorchHead(WrappedHead):
    """A wrapper of any other distribution of torch; these draw from the global generator only."""

    def __init__(self, distribution: Distribution):
        super().__init__(distribution, distribution.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return self.inner.log_prob(value)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = self._drawn(torch.Size(sample_shape), generator)
        check_drawable((0 * drawn.clamp(-1, 1)).sum(), self._name())  # NaN stays NaN
        return drawn

    def _drawn(self, shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        if generator is None:
            return self.inner.sample(shape)
        # torch's samplers take no generator.
        with own_draws(int(torch.randint(2**62, (), generator=generator, device=generator.device))):
            return self.inner.sample(shape)

    def _name(self) -> str:
        return type(self.inner).__name__


@dataclass(frozen=True)
class Draw:
    """Function that draws an element from its conditional; see `AutoregressiveModel.sample`."""

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: torch.Generator | None

    def __call__(self, conditional: Distribution) -> Tensor:
        filtered = head_of(conditional).filtered(self.temperature, self.top_k, self.top_p)
        return filtered.sample(generator=self.generator)


def compiled_draws(rows: "Rows", state: Any, x_prev: Tensor | None, pick: Draw) -> Iterator[Tensor]:
    """Yield the symbols of a few sequences after `x_prev`, without end, with the noise of `Categorical`."""
    from chainrule.kernels._compiled_loops import draw

    symbols = np.full(count_rows(state), -1) if x_prev is None else x_prev.cpu().numpy().astype(np.int64)
    scores, alone = rows.begin(state).scores, len(symbols) == 1 and pick.top_k is None and pick.top_p is None
    numbers = np.empty(rows.vocab_size, rows.dtype)
    noise = torch.from_numpy(numbers)
    while True:
        found, symbol = scores(symbols), -1
        if alone:
            noise.exponential_(generator=pick.generator)
            symbol = draw(found[0], numbers, pick.temperature)
        if symbol < 0:
            drawn = pick(Categorical(torch.from_numpy(found)))
            symbols = drawn.numpy()
        else:
            symbols = np.array([symbol])
            drawn = torch.from_numpy(symbols)  # a third of the time of torch.tensor
        yield drawn


class CompiledStep:
    """A prepared step, in compiled loops for a few rows of symbols, as it is for any other."""

    def __init__(self, rows: "Rows", plain: Callable[..., Any]):
        self._rows, self._plain = rows, plain

    @torch.no_grad()
    def __call__(self, x_prev: Tensor | None, state: Any) -> tuple[Distribution, Any]:
        count = count_rows(state)
        if x_prev is None:
            symbols = np.full(count, -1)
        else:
            symbols = np.ascontiguousarray(x_prev.numpy(force=True))
            known = symbols.dtype == np.int64 and 0 <= symbols.min() <= symbols.max() < self._rows.vocab_size
            count = count if symbols.shape == (count,) and known else FEW + 1
        if count > FEW:
            return self._plain(x_prev, state)
        sequences = self._rows.begin(state)
        return Categorical(torch.from_numpy(sequences.scores(symbols))), sequences.state()


def recorded_draws(fixed: tuple[Callable[..., Any], Any] | None, x_prev: Tensor, pick: Draw) -> Iterator[Tensor]:
    """Yield the symbols of sequences on a GPU after `x_prev`, without end; none where no step can be recorded."""
    if fixed is None:
        return
    step, state = fixed

    def scored(x_prev: Tensor, state: Any) -> tuple[Tensor, Any]:
        conditional, state = step(x_prev, state)
        symbols = head_of(conditional).categorical()
        assert symbols is not None
        return symbols.parameters[0], state

    with torch.no_grad():
        launch = recorded_scores(scored, x_prev, state)
    while launch is not None:
        with torch.no_grad():
            x_prev = pick(Categorical(launch(x_prev)))
        yield x_prev

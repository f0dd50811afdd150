"""The contract behind which every architecture stands."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule.heads import draw, stack
from chainrule.heads.categorical import check_filters
from chainrule.state import State

Step = Callable[[Tensor | None, State], tuple[Distribution, State]]


class AutoregressiveModel(nn.Module, ABC):
    r"""A model of sequences, one element at a time.

    .. math:: p(x \mid c) = \prod_{t=1}^{T} p(x_t \mid x_{<t}, c)

    A subclass defines `forward`, `initial_state` and `step`, and is a whole model: likelihood, sampling, scoring of
    streams and truncated backpropagation are written here, once. `forward` and `step` are the same function computed
    two ways; `chainrule.testing.check_model` proves it.
    """

    @abstractmethod
    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Distribution:
        """All conditionals p(x_t | x_<t, c) in one parallel pass (teacher forcing).

        Args:
            x: (B, T) elements.
            context: what the whole sequence is conditioned on, batch first.
            lengths: (B,) number of real elements of each row; what stands after them is never read.

        Returns:
            A distribution of batch shape (B, T).
        """

    @abstractmethod
    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        """The state before the first element: a tree of tensors, batch first."""

    @abstractmethod
    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        """The next conditional from cached work.

        Args:
            x_prev: (B,) the element before the one asked for; `None` at the first step.
            state: what `initial_state` or the last `step` or `unroll` returned.

        Returns:
            A distribution of batch shape (B,), and the state after reading `x_prev`.
        """

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        """The conditionals of a chunk of elements from a state, and the state after it.

        The next chunk continues with the returned state and `x_prev = x[:, -1]`; so does `step`. Chunking changes
        nothing: `unroll(x, initial_state(B))` gives `forward(x)`. This version loops `step`; models that can read a
        chunk in one pass override it.

        Args:
            x: (B, T) elements, T >= 1.
            state: the state before the chunk.
            x_prev: (B,) the element before the chunk; `None` where the chunk is the beginning.

        Returns:
            A distribution of batch shape (B, T), and the state that is ready to read its last element.
        """
        conditionals = []
        for t in range(x.shape[1]):
            conditional, state = self.step(x_prev, state)
            conditionals.append(conditional)
            x_prev = x[:, t]
        return stack(conditionals), state

    def visible_past(self, length: int) -> Tensor:
        """Which earlier elements can influence which conditional: (T, T) booleans, true at [t, s] where x_s can p(x_t).

        Every s < t, unless a model says otherwise: one with a limited context or a blind spot overrides this, and
        `chainrule.testing` then holds it to exactly what it declares. A window of k elements is
        `super().visible_past(length).triu(-k)`.
        """
        return torch.ones(length, length, dtype=torch.bool).tril(-1)

    def stepper(self) -> Step:
        """A function equal to `step` while the weights stay as they are, free to prepare them once.

        Long generation calls it in place of `step`; this version is `step` itself.
        """
        return self.step

    def log_prob(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Tensor:
        r"""Exact log-likelihood :math:`\sum_t \log p(x_t \mid x_{<t}, c)` of each row, (B,), nats."""
        if lengths is None:
            return self.forward(x, context).log_prob(x).flatten(1).sum(1)
        real = length_mask(lengths, x.shape[1])
        # Padding may hold anything, NaN and out-of-range symbols included: a real element, inside the support, replaces
        # it.
        inside = x.flatten(0, 1)[real.flatten().int().argmax().view(1)]
        x = torch.where(_spread(real, x), x, inside.masked_fill(~real.any(), 0))
        terms = self.forward(x, context, lengths).log_prob(x)
        return terms.masked_fill(~_spread(real, terms), 0).flatten(1).sum(1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        context: Tensor | None = None,
        *,
        length: int,
        prefix: Tensor | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        eos: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw n sequences of `length` elements, (n, length), prefix included.

        Args:
            n: number of sequences.
            context: batch first with n rows, or one row for all.
            length: number of elements of each sequence, the prefix counted.
            prefix: what the sequences begin with: (P,) for all, or (n, P, ...), or (1, P, ...) for all.
            temperature: 0 is greedy, 1 is the model's own distribution.
            top_k: draw from the k most probable symbols.
            top_p: draw from the fewest symbols whose probability reaches p.
            eos: a symbol that ends a sequence; the rest of its row is filled with it.
            generator: source of randomness; the same seed gives the same sample.
        """
        prefix = None if prefix is None else _rows_of(prefix, n)
        start = 0 if prefix is None else prefix.shape[1]
        if length < max(start, 1):
            raise ValueError(f"length: expected at least {max(start, 1)} (the prefix is counted), got {length}")
        elements: list[Tensor] = []
        stream = self.stream(
            n, context, prefix=prefix, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator
        )
        for drawn in islice(stream, length - start):
            if eos is not None and elements:
                drawn = torch.where(elements[-1] == eos, elements[-1], drawn)
            elements.append(drawn)
            if eos is not None and bool((drawn == eos).all()):
                elements += [drawn] * (length - start - len(elements))
                break
        if prefix is None:
            return torch.stack(elements, 1)
        return torch.cat([prefix, torch.stack(elements, 1).to(prefix.device)], 1) if elements else prefix.clone()

    def stream(
        self,
        n: int,
        context: Tensor | None = None,
        *,
        prefix: Tensor | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Tensor]:
        """Draw elements (n,) without end, as they come; `sample` collects them. The prefix is read, not returned."""
        check_filters(temperature, top_k, top_p)
        if n < 1:
            raise ValueError(f"n: expected at least 1, got {n}")
        device = next(self.parameters(), torch.empty(0)).device
        if context is not None:
            context = context.to(device).expand(n, *context.shape[1:])
        return self._draws(n, context, prefix, device, (temperature, top_k, top_p), generator)

    def _draws(
        self,
        n: int,
        context: Tensor | None,
        prefix: Tensor | None,
        device: torch.device,
        filters: tuple[float, int | None, float | None],
        generator: torch.Generator | None,
    ) -> Iterator[Tensor]:
        temperature, top_k, top_p = filters
        step, x_prev = self.stepper(), None
        with torch.no_grad():
            state = self.initial_state(n, context)
            if prefix is not None and (x := _rows_of(prefix.to(device), n)).shape[1] > 0:
                state = self.unroll(x, state)[1]
                x_prev = x[:, -1]
        while True:
            with torch.no_grad():  # entered anew for each element: a generator must not leak it to its caller
                conditional, state = step(x_prev, state)
                x_prev = draw(conditional, temperature=temperature, top_k=top_k, top_p=top_p, generator=generator)
            yield x_prev


def _rows_of(prefix: Tensor, n: int) -> Tensor:
    """(P,), (1, P, ...) or (n, P, ...) -> (n, P, ...)."""
    if prefix.dim() == 1:
        prefix = prefix.unsqueeze(0)
    if prefix.shape[0] not in (1, n):
        raise ValueError(f"prefix: expected shape (P,), or 1 or {n} rows, got {tuple(prefix.shape)}")
    return prefix.expand(n, *prefix.shape[1:])


def _spread(mask: Tensor, like: Tensor) -> Tensor:
    """(B, T) -> (B, T, 1, ...), to be broadcast against `like` (B, T, ...)."""
    return mask.view(mask.shape + (1,) * (like.dim() - 2))


def length_mask(lengths: Tensor, time: int) -> Tensor:
    """(B, T) booleans, true at real elements.

    >>> length_mask(torch.tensor([0, 2]), 3)
    tensor([[False, False, False],
            [ True,  True, False]])
    """
    return torch.arange(time, device=lengths.device) < lengths.unsqueeze(1)

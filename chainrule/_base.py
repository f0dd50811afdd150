"""The contract that every architecture keeps."""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._checks import check_lengths, fill_padding, for_rows, length_mask, prefix_rows, spread
from chainrule._executor import Executor
from chainrule.heads._adapter import Draw, head_of
from chainrule.heads._categorical import Categorical
from chainrule.modes import device_of, drawn_in_evaluation, evaluating
from chainrule.option_error import OptionError
from chainrule.state import State, map_state

Context: TypeAlias = State  # condition of a sequence: a tensor, or a tree of tensors, batch first


class TrainableModel(nn.Module, ABC):
    """A model with a training objective to maximise, and a held-out objective to select weights by.

    Both are log-likelihoods of each row, or lower bounds of them, in nats; see `chainrule.LatentModel`.
    """

    @abstractmethod
    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Training objective of each row, to be maximised, (B,)."""

    @abstractmethod
    def held_out_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Score of each held-out row, by which the best weights are selected, (B,); higher is better."""


class LikelihoodModel(TrainableModel):
    r"""A model with an exact likelihood p(x | c), the default for both objectives.

    In a classifier or a tagger, x are the labels and c is the labelled input. A model that predicts x element by
    element is an `AutoregressiveModel`.
    """

    @abstractmethod
    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Exact log-likelihood log p(x | c) of each row, (B,), nats.

        Args:
            x: the modelled values, batch first.
            context: its condition, a tensor or a tree of tensors, batch first, with B rows or one row for all.
            lengths: (B,) real elements of each row of x, where it has a time axis and rows may be shorter.
        """

    def training_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Training objective of each row, to be maximised, (B,), nats; `log_prob` by default.

        A model with label smoothing, for example, overrides this. `log_prob` is the likelihood in training mode too.
        """
        return self.log_prob(x, context, lengths)

    def held_out_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """`log_prob`, (B,), nats."""
        return self.log_prob(x, context, lengths)


class AutoregressiveModel(LikelihoodModel):
    r"""A model of sequences, one element at a time.

    .. math:: p(x \mid c) = \prod_{t=1}^{T} p(x_t \mid x_{<t}, c)

    A subclass defines `forward`, `initial_state` and `step`, and is a whole model: likelihood, sampling, scoring of
    streams and truncated backpropagation are written here, once. `forward` and `step` are the same function computed
    two ways; `chainrule.testing.check_model` tests it.

    The order of the chain rule need not be the layout of x: columns may be visited in any order, pixels row by row. If
    x is not a sequence (B, T) in visiting order, the model overrides `to_sequence` and `from_sequence` to convert
    between the two. `forward`, `log_prob` and `sample` use the layout of x; `step`, `unroll`, `stream`,
    `visible_past`, `lengths` and `prefix` use the sequence.

    `forward`, the likelihoods and `step` follow the mode of the model, as all modules of PyTorch: in training mode they
    have its dropout (image models and MADE step without). `sample`, `stream`, and whatever draws, searches, completes
    or codes with the model run in evaluation mode, and restore the mode of every submodule afterwards. The mode belongs
    to the model, not to a thread: call `eval()` before several threads draw from one model.

    Attributes:
        sequence_length: T, if every x has T elements; `None` if the length varies.
    """

    sequence_length: int | None = None

    @abstractmethod
    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        """All conditionals p(x_t | x_<t, c) in one parallel pass (teacher forcing).

        Args:
            x: (B, T) elements, or laid out otherwise, as `from_sequence` makes them.
            context: condition of the whole sequence: a tensor, or a tree of tensors, batch first, with B rows or one
                row for all.
            lengths: (B,) number of real elements of each row; padding after them is never read.

        Returns:
            A distribution of batch shape (B, T), laid out as x is.
        """

    @abstractmethod
    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """The state before the first element: a tree of tensors, batch first; `context` as for `forward`."""

    @abstractmethod
    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        """The next conditional from cached work.

        Args:
            x_prev: (B,) the element before the one asked for; `None` at the first step.
            state: returned by `initial_state` or the last `step` or `unroll`.

        Returns:
            A distribution of batch shape (B,), and the state after reading `x_prev`.
        """

    def to_sequence(self, x: Tensor) -> Tensor:
        """The elements of x in the order in which the chain rule visits them, (B, T).

        x itself by default. An override may only permute elements, so that it can also reorder other tensors with the
        layout of x, such as the log-probabilities of its elements.
        """
        return x

    def from_sequence(self, sequence: Tensor) -> Tensor:
        """The inverse of `to_sequence`: (B, T) elements in visiting order, laid out as `forward` reads them."""
        return sequence

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        """The conditionals of a chunk of elements from a state, and the state after it.

        The next chunk continues with the returned state and `x_prev = x[:, -1]`; so does `step`. Chunking changes
        nothing: `unroll(x, initial_state(B))` gives `forward(x)`. This version loops `step`; models that can read a
        chunk in one pass override it.

        Args:
            x: (B, T) elements, T >= 1.
            state: the state before the chunk.
            x_prev: (B,) the element before the chunk; `None` at the beginning.

        Returns:
            A distribution of batch shape (B, T), and the state that is ready to read its last element.
        """
        conditionals = []
        for t in range(x.shape[1]):
            conditional, state = self.step(x_prev, state)
            conditionals.append(head_of(conditional))
            x_prev = x[:, t]
        return conditionals[0].stacked(conditionals), state

    def training_terms(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Tensor, State]:
        """Training objective of each element of a chunk of a stream, (B, T), and the state after it; see `unroll`.

        :math:`\\log p(x_t \\mid x_{<t})`, by default; see `training_objective` for whole sequences.
        """
        conditionals, state = self.unroll(x, state, x_prev)
        return conditionals.log_prob(x), state

    @property
    def accepts_missing(self) -> bool:
        """Whether NaN in x is a missing value, which is neither scored nor conditioned on."""
        return False

    @property
    def reach(self) -> int | None:
        """Number of last elements that a conditional can depend on; `None` if every earlier element can matter."""
        return None

    def visible_past(self, length: int) -> Tensor:
        """Which elements can influence which conditionals: (T, T) booleans, true at [t, s] if x_s can influence p(x_t).

        The last `reach` elements before t, unless a model says otherwise: a model with a blind spot overrides this,
        and `chainrule.testing` tests exactly that declaration.
        """
        past = torch.ones(length, length, dtype=torch.bool, device="cpu").tril(-1)
        return past if self.reach is None else past.triu(-self.reach)

    @property
    def positions_end(self) -> int | None:
        """The number of learned positions, which no sequence may exceed; `None` if there is no limit."""
        return None

    def useful_prefix(self, drawn: int) -> int | None:
        """Number of last elements of a prefix to read before `drawn` more; `None` for all.

        It is `reach`, as far as the positions leave room; ValueError if they end before.
        """
        end = self.positions_end
        if end is None:
            return self.reach
        if drawn >= end:
            raise OptionError("length", f"expected fewer than the {end} positions that were learned, got {drawn}")
        return end - drawn if self.reach is None else min(self.reach, end - drawn)

    def prepare(self) -> Executor:
        """Return the model's computation in evaluation mode for fixed weights, which may be prepared once.

        Whatever draws, searches, completes or codes calls its methods; this version calls the model's own.
        """
        return Executor(self)

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        r"""Exact log-likelihood :math:`\sum_t \log p(x_t \mid x_{<t}, c)` of each row, (B,), nats."""
        missing = x.isnan() if self.accepts_missing else None
        if lengths is None:
            terms = self.forward(x, context).log_prob(x if missing is None else x.masked_fill(missing, 0))
            return (terms if missing is None else terms.masked_fill(missing, 0)).flatten(1).sum(1)
        sequence = self.to_sequence(x)
        check_lengths(lengths, (len(sequence), sequence.shape[1]))
        real = length_mask(lengths.to(sequence.device), sequence.shape[1])
        x = self.from_sequence(fill_padding(sequence, real))
        terms = self.to_sequence(self.forward(x, context, lengths).log_prob(x))
        return terms.masked_fill(~spread(real, terms), 0).flatten(1).sum(1)

    @torch.no_grad()
    def sample(
        self,
        n: int,
        context: Context = None,
        *,
        length: int | None = None,
        prefix: Tensor | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        eos: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Draw n sequences of `length` elements, (n, length) or laid out as x is, prefix included, in evaluation mode.

        Args:
            n: number of sequences.
            context: batch first with n rows, or one row for all.
            length: number of elements of each sequence, the prefix counted; required if the model does not fix it.
            prefix: beginning of the sequences, in visiting order: (P,) for all, or (n, P, ...), or (1, P, ...) for
                all. What is known of an x is completed from `to_sequence(x)[:, :P]`.
            temperature: 0 is greedy, 1 is the model's own distribution.
            top_k: draw from the k most probable symbols.
            top_p: draw from the fewest symbols whose probability reaches p.
            eos: a symbol that ends a sequence; the rest of its row is filled with it. A prefix that ends in it is a
                sequence that has ended.
            generator: source of randomness; the same seed gives the same sample.

        Raises:
            ValueError: an argument is out of range, or `length` is missing, or not the one that the model has.
        """
        length, prefix = self.checked_request(n, length, prefix)
        start = 0 if prefix is None else prefix.shape[1]
        pick = Draw(*Categorical.check_filters(temperature, top_k, top_p), generator)
        context, known = _checked_start(self, n, context, prefix)
        parts = []
        if length > start:
            with evaluating(self):
                parts.append(self.prepare().rows(n, length - start, context, known, pick, eos))
        if prefix is not None and start:
            parts = [prefix, *(part.to(prefix.device) for part in parts)]
        return self.from_sequence(torch.cat(parts, 1))

    def checked_request(self, n: int, length: int | None, prefix: Tensor | None) -> tuple[int, Tensor | None]:
        """The number of elements of each of n sequences to draw, and their prefix (n, P, ...); see `sample`.

        Raises:
            ValueError: `length` is missing, not the one that the model has, or shorter than the prefix.
        """
        known = self.sequence_length
        length = known if length is None else length
        if length is None:
            raise OptionError("length", "expected the number of elements to draw: this model leaves it open, got None")
        if known not in (None, length):
            raise OptionError(
                "length", f"expected {known}, the elements of every x of this model, or None, got {length}"
            )
        prefix = None if prefix is None else prefix_rows(prefix, n)
        least = max(0 if prefix is None else prefix.shape[1], 1)
        if length < least:
            raise OptionError("length", f"expected at least {least} (the prefix is counted), got {length}")
        return length, prefix

    def stream(
        self,
        n: int,
        context: Context = None,
        *,
        prefix: Tensor | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        count: int | None = None,
        generator: torch.Generator | None = None,
    ) -> Iterator[Tensor]:
        """Draw elements (n,) one after the other, `count` of them, or all; `sample` collects them.

        The prefix is read, not returned. Without `count` a stream has no end if sequences have none; with it, a long
        one is faster from the start. The model is in evaluation mode while it draws, and in its own between draws.
        """
        pick = Draw(*Categorical.check_filters(temperature, top_k, top_p), generator)
        context, known = _checked_start(self, n, context, prefix)

        def draws() -> Iterator[Tensor]:
            yield from itertools.islice(self.prepare().draws(n, context, known, pick, count), count)

        return drawn_in_evaluation(self, draws())


def _checked_start(
    model: AutoregressiveModel, n: int, context: Context, prefix: Tensor | None
) -> tuple[Context, Tensor | None]:
    """Check what `stream` is asked for; a condition and a prefix for n rows, on the model's device."""
    if n < 1:
        raise OptionError("n", f"expected at least 1, got {n}")
    device = device_of(model)
    if context is not None:
        context = map_state(lambda leaf: leaf.to(device), for_rows(context, n))
    return context, None if prefix is None else prefix_rows(prefix, n).to(device)


class ChunkModel(AutoregressiveModel):
    """A model whose `forward` and `unroll` both come from `read`, which reads a chunk of elements in one pass."""

    @abstractmethod
    def read(
        self, x: Tensor, state: State, x_prev: Tensor | None = None, lengths: Tensor | None = None
    ) -> tuple[Distribution, State]:
        """`unroll` of rows that may be shorter; padding after `lengths` (B,) is never read."""

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        return self.read(x, self.initial_state(len(x), context), None, lengths)[0]

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.read(x, state, x_prev)

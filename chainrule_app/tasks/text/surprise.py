"""The nats of symbols under a model, and their excess over what it expected: the entropies of its conditionals.

A long stream is read as rows side by side, which is many times as fast as symbol by symbol. Each row starts from the
state after some symbols before it. Where that state differs from the one in which the row before it ends, the row is
read again from there, so that the result is that of one reading.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule import AutoregressiveModel
from chainrule.models import CalibratedMixture, Ensemble, NgramLM, RecurrentLM, TransformerLM
from chainrule.state import State, concatenate, leaves, select

Numbers: TypeAlias = npt.NDArray[np.float64]
_STEP, _LONGEST = 64, 2048  # symbols of each row that are read at a time, and of one row alone
_ROW, _BEFORE = 1024, 256  # symbols of a row of a stream, at least, and symbols that are read before it
_MOST_ROWS = 128
_ROUNDS = 3  # in which rows are read again together; those that are left, one by one
_MOSTLY = 0.9  # share of counts above which the network has learnt too little to expect anything
_EQUAL = 1e-5  # difference of states that is rounding, relative to their size where that is above 1


@dataclass(frozen=True)
class Expectation:
    """How to measure the excess of symbols.

    Args:
        left_out: the counts of a `CalibratedMixture`, which leave the scored occurrence out, for the text that was
            counted: there a line that occurs once would be expected.
    """

    left_out: NgramLM | None = None


@dataclass(frozen=True)
class Surprise:
    """The nats of symbols, and their excess over the entropies of their conditionals, where that was asked for."""

    nats: Tensor  # (B, T)
    excess: Tensor | None = None  # (B, T)

    def numbers(self) -> tuple[Numbers, Numbers | None]:
        return self.nats.numpy(), None if self.excess is None else self.excess.numpy()


class Reader:
    """A model of symbols with weights that stay as they are, and what it expects.

    Args:
        model: of symbols.
        expecting: how to measure the excess of symbols; without it, surprise has none.
    """

    def __init__(self, model: AutoregressiveModel, expecting: Expectation | None = None):
        self.model, self.expecting = model, expecting
        # The network of a mixture expects apart from its counts.
        self._mixture = model if expecting is not None and isinstance(model, CalibratedMixture) else None
        self._parts = [part.prepare() for part in ((model,) if self._mixture is None else self._mixture.parts)]
        self._left_out = None if expecting is None or expecting.left_out is None else expecting.left_out.prepare()

    def read(
        self, x: Tensor, state: State, previous: Tensor | None, count: int
    ) -> tuple[list[tuple[Distribution, State]], State]:
        """Return the conditionals and states of each part after a chunk (B, T) of so many symbols, and the state."""
        states = (state,) if self._mixture is None else state
        found = [part.unroll_for(count)(x, own, previous) for part, own in zip(self._parts, states, strict=True)]
        return found, found[0][1] if self._mixture is None else tuple(own for _, own in found)

    def measure(self, x: Tensor, state: State, previous: Tensor | None, count: int) -> tuple[Surprise, State]:
        """Return the surprise of a chunk (B, T) of so many symbols, and the state after it."""
        parts, after = self.read(x, state, previous, count)
        model = self._mixture
        if model is None:
            return _surprise(parts[0][0], self.expecting, x), after
        (network, counts), log_weights = (answer[0] for answer in parts), model.log_weights.view(2, 1, 1)
        of_network = network.log_prob(x)

        def mixed(counts: Distribution) -> Tensor:
            return -(torch.stack([of_network, counts.log_prob(x)]) + log_weights).logsumexp(0)

        nats = left = mixed(counts)
        if self._left_out is not None:
            counts, _ = self._left_out.unroll_for(count)(x, state[1], previous)
            left = mixed(counts)
        # The entropy of counts takes a table of all symbols.
        entropy = (counts if float(model.share) > _MOSTLY else network).entropy()
        return Surprise(nats.cpu().double(), (left - entropy).cpu().double()), after


@torch.no_grad()
def measure(
    reader: Reader,
    ids: Tensor,
    state: State,
    previous: Tensor | None,
    *,
    count: int | None = None,
    step: int = _STEP,
) -> tuple[Surprise, State, Tensor | None]:
    """Return the surprise of (B, T) symbols from a state, the next state and the last symbol.

    They are part of `count` symbols, or all of them. Padding changes no figure of the symbols before it.
    """
    model, count = reader.model, ids.numel() if count is None else count
    if isinstance(model, TransformerLM) and model.positions_end is not None:
        surprise, before = _slide(model, ids, previous, model.positions_end, reader.expecting)
        return surprise, state, before
    parts = []
    for x in ids.split(step, dim=1):
        surprise, state = reader.measure(x, state, previous, count)
        parts.append(surprise)
        previous = x[:, -1]
    return _joined(parts), state, previous


@torch.no_grad()
def measure_stream(
    reader: Reader,
    ids: Tensor,
    state: State,
    previous: Tensor | None,
    *,
    most: int,
    count: int | None = None,
) -> tuple[Surprise, State, Tensor | None]:
    """Return the surprise of one row (1, T) as `measure` does, in rows side by side where the model allows it.

    At most about `most` symbols are read at a time, as their scores need memory.
    """
    parts, count = [], ids.numel() if count is None else count
    if previous is None and ids.shape[1] > _ROW:  # what begins the text is read apart
        surprise, state, previous = measure(reader, ids[:, :1], state, None, count=count)
        parts.append(surprise)
        ids = ids[:, 1:]
    rows = min(_MOST_ROWS, most, ids.shape[1] // _ROW)
    if previous is not None and rows > 1 and _has_fading_state(reader.model):
        together = ids.shape[1] // rows * rows
        surprise, state = _side_by_side(reader, ids[:, :together].view(rows, -1), state, previous, count, most)
        parts.append(surprise)
        previous, ids = ids[:, together - 1], ids[:, together:]
    if ids.shape[1]:
        step = min(most, _LONGEST)
        surprise, state, previous = measure(reader, ids, state, previous, count=count, step=step)
        parts.append(surprise)
    return _joined(parts), state, previous


def _side_by_side(
    reader: Reader, rows: Tensor, state: State, previous: Tensor, count: int, most: int
) -> tuple[Surprise, State]:
    """Return the surprise (1, K·T) of rows (K, T), each the continuation of the one before, and the last state."""
    before, step = rows[:-1, -_BEFORE:], max(1, min(_STEP, most // len(rows)))
    warm, last = reader.model.initial_state(len(before)), None
    for x in before.split(step, dim=1):
        _, warm = reader.read(x, warm, last, count)
        last = x[:, -1]
    starts, earlier = concatenate([state, warm]), torch.cat([previous, before[:, -1]])
    surprise, ends, _ = measure(reader, rows, starts, earlier, count=count, step=step)
    order = torch.arange(len(rows), device=rows.device)
    for attempt in range(_ROUNDS + len(rows)):
        wrong = _unlike(starts, ends)
        if not len(wrong):
            break
        wrong = wrong if attempt < _ROUNDS else wrong[:1]
        again = select(ends, wrong - 1)
        found, after, _ = measure(reader, rows[wrong], again, earlier[wrong], count=count, step=step)
        surprise.nats[wrong.cpu()] = found.nats
        if surprise.excess is not None and found.excess is not None:
            surprise.excess[wrong.cpu()] = found.excess
        places = order.clone()
        places[wrong] = torch.arange(len(rows), len(rows) + len(wrong), device=rows.device)
        starts, ends = select(concatenate([starts, again]), places), select(concatenate([ends, after]), places)
    flat = Surprise(surprise.nats.view(1, -1), None if surprise.excess is None else surprise.excess.view(1, -1))
    return flat, select(ends, order[-1:])


def _unlike(starts: State, ends: State) -> Tensor:
    """Return the rows whose state at the start is not the one at the end of the row before."""
    differ = torch.zeros(0, dtype=torch.bool)
    for start, end in zip(leaves(starts), leaves(ends), strict=True):
        one, other = start[1:].flatten(1), end[:-1].flatten(1)
        allowed = _EQUAL * other.abs().clamp(min=1) if one.is_floating_point() else 0
        unlike = ((one - other).abs() > allowed).any(1)
        differ = differ | unlike if len(differ) else unlike
    return differ.nonzero().squeeze(1) + 1


def _has_fading_state(model: AutoregressiveModel) -> bool:
    """Tell if a model's state has one size, and mostly depends on the last symbols."""
    if isinstance(model, CalibratedMixture | Ensemble):
        return all(map(_has_fading_state, model.parts))
    return isinstance(model, RecurrentLM | NgramLM)


def _surprise(conditionals: Distribution, expecting: Expectation | None, x: Tensor) -> Surprise:
    nats = -conditionals.log_prob(x)
    excess = None if expecting is None else (nats - conditionals.entropy()).cpu().double()
    return Surprise(nats.cpu().double(), excess)


def _slide(
    model: AutoregressiveModel, ids: Tensor, before: Tensor | None, end: int, expecting: Expectation | None
) -> tuple[Surprise, Tensor]:
    """Score (B, T) symbols in windows of at most `end`, overlapping by half; also return the next window's start."""
    parts = []
    before = ids[:, :0] if before is None else before
    while ids.shape[1]:
        window = torch.cat([before, ids[:, : end - before.shape[1]]], 1)
        conditionals, new = model(window), slice(before.shape[1], None)
        whole = _surprise(conditionals, expecting, window)
        parts.append(Surprise(whole.nats[:, new], None if whole.excess is None else whole.excess[:, new]))
        ids = ids[:, window.shape[1] - before.shape[1] :]
        before = window[:, max(end // 2, 1) :] if window.shape[1] == end else window
    return _joined(parts), before


def _joined(parts: Sequence[Surprise]) -> Surprise:
    excess = [part.excess for part in parts if part.excess is not None]
    return Surprise(torch.cat([part.nats for part in parts], 1), torch.cat(excess, 1) if excess else None)

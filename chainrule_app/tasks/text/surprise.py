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


@torch.no_grad()
def measure(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State,
    previous: Tensor | None,
    *,
    expecting: Expectation | None,
    step: int = _STEP,
) -> tuple[Surprise, State, Tensor | None]:
    """Return the surprise of (B, T) symbols from a state, the next state and the last symbol.

    Without an expectation the surprise has no excess. Padding changes no figure of the symbols before it.
    """
    if isinstance(model, TransformerLM) and model.positions_end is not None:
        surprise, before = _slide(model, ids, previous, model.positions_end, expecting)
        return surprise, state, before
    parts = []
    for x in ids.split(step, dim=1):
        surprise, state = _read(model, x, state, previous, expecting)
        parts.append(surprise)
        previous = x[:, -1]
    return _joined(parts), state, previous


@torch.no_grad()
def measure_stream(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State,
    previous: Tensor | None,
    *,
    expecting: Expectation | None,
    most: int,
) -> tuple[Surprise, State, Tensor | None]:
    """Return the surprise of one row (1, T) as `measure` does, in rows side by side where the model allows it.

    At most about `most` symbols are read at a time, as their scores need memory.
    """
    parts = []
    if previous is None and ids.shape[1] > _ROW:  # what begins the text is read apart
        surprise, state, previous = measure(model, ids[:, :1], state, None, expecting=expecting)
        parts.append(surprise)
        ids = ids[:, 1:]
    rows = min(_MOST_ROWS, ids.shape[1] // _ROW)
    if previous is not None and rows > 1 and _has_fading_state(model):
        together = ids.shape[1] // rows * rows
        surprise, state = _side_by_side(model, ids[:, :together].view(rows, -1), state, previous, expecting, most)
        parts.append(surprise)
        previous, ids = ids[:, together - 1], ids[:, together:]
    if ids.shape[1]:
        step = min(most, _LONGEST)
        surprise, state, previous = measure(model, ids, state, previous, expecting=expecting, step=step)
        parts.append(surprise)
    return _joined(parts), state, previous


def _side_by_side(
    model: AutoregressiveModel, rows: Tensor, state: State, previous: Tensor, expecting: Expectation | None, most: int
) -> tuple[Surprise, State]:
    """Return the surprise (1, K·T) of rows (K, T), each the continuation of the one before, and the last state."""
    before, step = rows[:-1, -_BEFORE:], max(1, min(_STEP, most // len(rows)))
    _, warm, _ = measure(model, before, model.initial_state(len(before)), None, expecting=None, step=step)
    starts, earlier = concatenate([state, warm]), torch.cat([previous, before[:, -1]])
    surprise, ends, _ = measure(model, rows, starts, earlier, expecting=expecting, step=step)
    order = torch.arange(len(rows), device=rows.device)
    for attempt in range(_ROUNDS + len(rows)):
        wrong = _unlike(starts, ends)
        if not len(wrong):
            break
        wrong = wrong if attempt < _ROUNDS else wrong[:1]
        again = select(ends, wrong - 1)
        found, after, _ = measure(model, rows[wrong], again, earlier[wrong], expecting=expecting, step=step)
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


def _read(
    model: AutoregressiveModel, x: Tensor, state: State, previous: Tensor | None, expecting: Expectation | None
) -> tuple[Surprise, State]:
    if expecting is None or not isinstance(model, CalibratedMixture):
        conditionals, state = model.unroll(x, state, previous)
        return _surprise(conditionals, expecting, x), state
    network, counts = model.parts
    of_network, of_counts = network.unroll(x, state[0], previous), counts.unroll(x, state[1], previous)
    conditionals, after = model.together([of_network, of_counts])
    nats = left = -conditionals.log_prob(x)
    apart = of_counts
    if expecting.left_out is not None:
        apart = expecting.left_out.unroll(x, state[1], previous)
        left = -model.together([of_network, apart])[0].log_prob(x)
    # The entropy of counts takes a table of all symbols.
    entropy = (apart if float(model.share) > _MOSTLY else of_network)[0].entropy()
    return Surprise(nats.cpu().double(), (left - entropy).cpu().double()), after


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

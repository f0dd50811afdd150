"""Any chunking of a sequence gives the same conditionals."""

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel
from chainrule.state import flatten, map_state, select, share_memories
from chainrule.testing._agreement import TOLERANCE, require_equal, rounding
from chainrule.testing._contract_check import contract_check
from chainrule.testing._leaves import changed
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply, Violation
from chainrule.testing._values import distance


@contract_check(SequenceSubject)
@torch.no_grad()
def check_chunk_invariance(subject: SequenceSubject) -> str:
    """`unroll` over chunks of any sizes, each from the state after the last, gives the conditionals of one whole chunk.

    Also: one whole chunk gives `forward`; after a chunk `step` goes on where it ended; rows selected from the state
    after a chunk go on as they would have; and `unroll` leaves the state it was given as it was. What searches and
    long prompts rely on is held to the same: after `share_memories` a state goes on as it would have, and no element
    before `useful_prefix` has an influence.
    """
    x, model = subject.x, subject.model
    if subject.time == 1:
        raise DoesNotApply("x has a single element, and so no chunks")
    forward, tolerance = subject.numbers(subject.batch()), rounding(subject, subject.batch())
    whole = _unrolled(subject, [subject.time])
    own_unroll = type(model).unroll is not AutoregressiveModel.unroll
    if own_unroll:
        require_equal(whole, forward, tolerance, "{gap} nats between p(x_{t} | x_<{t}) of unroll and of forward")
    for sizes in _chunkings(subject.time):
        message = f"chunks of {_listed(sizes)}: p(x_{{t}} | x_<{{t}}) is {{gap}} nats off one whole chunk (row {{row}})"
        require_equal(_unrolled(subject, sizes), whole, tolerance, message)
    _check_shared(subject, whole, tolerance)
    _check_useful_prefix(subject)
    if own_unroll:
        begun = subject.step_numbers(subject.of(x[:, :2]))
        if not (distance(begun, forward[:, :2]) > 1e-6).any():  # else step_equals_forward says so
            _continue_by_step(subject, whole, tolerance)
    return f"chunks of {', '.join(_listed(sizes) for sizes in _chunkings(subject.time))}"


def _chunkings(time: int) -> list[list[int]]:
    """Single elements; halves; uneven chunks that begin and end with single ones."""
    uneven, left, size = [1], time - 1, 2
    while left:
        uneven.append(min(size, left))
        left -= uneven[-1]
        size = 1 if size == 5 else size + 3 if size == 2 else 2
    found = [[1] * time, [time // 2, time - time // 2], [time - 1, 1], uneven]
    return [sizes for index, sizes in enumerate(found) if sizes not in found[:index]]


def _listed(sizes: list[int]) -> str:
    return "1" if set(sizes) == {1} else "+".join(str(size) for size in sizes[:6]) + ("+..." if len(sizes) > 6 else "")


def _unrolled(subject: SequenceSubject, sizes: list[int]) -> Tensor:
    """(B, T, K) the conditionals chunk by chunk."""
    state, x_prev = subject.model.initial_state(len(subject.x), subject.context), None
    numbers = []
    for chunk in subject.x.split(sizes, 1):
        before = flatten(map_state(torch.clone, state))[0]
        conditionals, following = subject.model.unroll(chunk, state, x_prev)
        if tuple(conditionals.batch_shape[:2]) != tuple(chunk.shape[:2]):
            shape = tuple(conditionals.batch_shape)
            raise Violation(f"unroll: expected batch shape (B, T) = {tuple(chunk.shape[:2])}, got {shape}")
        if changed(before, flatten(state)[0]):
            raise Violation("unroll changed the state it was given; it must return a new one")
        numbers.append(subject.values(conditionals, 2))
        state, x_prev = following, chunk[:, -1]
    return torch.cat(numbers, 1)


def _continue_by_step(subject: SequenceSubject, whole: Tensor, tolerance: Tensor) -> None:
    rows = subject.rows.flip(0)
    for size in {1, subject.time // 2, subject.time - 1}:
        start = subject.model.initial_state(len(subject.x), subject.context)
        _, state = subject.model.unroll(subject.x[:, :size], start)
        wanted, allowed = whole[:, size : size + 1], tolerance[:, size : size + 1]
        stepped = subject.values(subject.model.step(subject.x[:, size - 1], state)[0], 1).unsqueeze(1)
        message = f"step after a chunk of {size} is {{gap}} nats off unroll (row {{row}})"
        require_equal(stepped, wanted, allowed, message)
        conditionals, _ = subject.model.unroll(
            subject.x[rows, size : size + 1], select(state, rows), subject.x[rows, size - 1]
        )
        message = f"rows selected from the state after a chunk of {size} do not go on as they would have ({{gap}} nats)"
        require_equal(subject.values(conditionals, 2), wanted[rows], allowed[rows], message)


def _check_shared(subject: SequenceSubject, whole: Tensor, tolerance: Tensor) -> None:
    """Step on from a state that is shared at the beginning, and after a fork and a selection of its rows."""
    model, x = subject.model, subject.x
    rows, x_prev, numbers = subject.rows, None, []
    forked = torch.cat([rows, rows.flip(0)])
    initial = model.initial_state(len(x), subject.context)
    state = share_memories(initial)
    if flatten(state)[1] == flatten(initial)[1]:  # there is nothing to share
        return
    for t in range(subject.time):
        if t == subject.time // 2:  # a fork, of which a part is kept
            state = share_memories(select(select(state, forked), rows.flip(0) + len(rows)))
        conditional, state = model.step(x_prev, state)
        numbers.append(subject.values(conditional, 1))
        x_prev = x[:, t]
    message = "share_memories: p(x_{t} | x_<{t}) from a shared state is {gap} nats off unroll (row {row})"
    require_equal(torch.stack(numbers, 1), whole, tolerance, message)


def _check_useful_prefix(subject: SequenceSubject) -> None:
    other = subject.altered(subject.x)
    for drawn in {1, subject.time // 2}:
        known = subject.time - drawn
        useful = subject.model.useful_prefix(drawn)
        if useful is None or useful >= known:
            continue
        x = torch.cat([other[:, : known - useful], subject.x[:, known - useful :]], 1)
        found, expected = (subject.numbers(subject.of(elements))[:, known:] for elements in (x, subject.x))
        message = f"useful_prefix: expected elements before the last {useful} to be without influence, got {{gap}} nats"
        require_equal(found, expected, 1e3 * TOLERANCE, message)

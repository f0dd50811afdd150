"""Checks that `forward`, `step`, `unroll` and `log_prob` agree, and that decoding inverts encoding."""

import math
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule._executor import Step
from chainrule.coding import decode, encode
from chainrule.coding._batches import code_rows
from chainrule.coding._range_coder import Numbers, RangeCoder, Rows
from chainrule.heads._head import NotDiscreteError
from chainrule.state import State, flatten, map_state, select, share_memories
from chainrule.testing._agreement import TOLERANCE, distance, require_equal, rounded, trials
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called, changed
from chainrule.testing._row_subjects import LabelSubject
from chainrule.testing._sequence_subject import InVisitingOrder, SequenceSubject, Taken
from chainrule.testing._subject import Batch, DoesNotApply, Violation, in_type, independent_copy

LONG = 48  # steps that reveal caches limited to the length of x, and wrong counters


@contract_check(SequenceSubject)
@torch.no_grad()
def check_step_equals_forward(subject: SequenceSubject) -> str:
    """Check that `step`, from `initial_state` on, gives the conditionals of `forward`, for several rows and for one.

    Further requirements: `step` leaves its argument unchanged, so that a state can be reused. A state is a tree of
    tensors, batch first, so that rows can be selected. `prepare().step` is the same function as `step`; it may write
    into unused parts of a tensor, but every returned state must stay valid. If the model accepts longer sequences than
    x, the check steps over 48 elements.
    """
    batch, model = subject.batch(), subject.model
    whole, tolerance = rounded(subject, batch)
    differs = "{{gap}} nats between p(x_{{t}} | x_<{{t}}) of {0} and of forward (row {{row}})"
    require_equal(_step_checked(subject), whole, tolerance, differs.format("step"))
    single = subject.step_numbers(batch.rows(subject.rows[:1]))
    require_equal(single, whole[:1], tolerance[:1], differs.format("step on a batch of one row"))
    prepared = _prepared_step(model)
    if prepared:
        require_equal(_rewound(subject, prepared), whole, tolerance, differs.format("prepare().step"))
    longer = _lengthened(subject)
    if longer is not None:
        whole, tolerance = rounded(subject, longer)
        for name, step in (("step", model.step), ("prepare().step", _prepared_step(model))):
            if step:
                require_equal(subject.step_numbers(longer, step=step), whole, tolerance, differs.format(name))
    steps_taken = subject.time if longer is None else LONG
    return f"{len(batch.x)} rows of {steps_taken} steps, and one row alone"


def _prepared_step(model: AutoregressiveModel) -> Step | None:
    """Prepare the model; `None` if its prepared step is its own `step`."""
    step, own = model.prepare().step, model.model if isinstance(model, InVisitingOrder) else model
    return None if step == own.step else step


def _lengthened(subject: SequenceSubject) -> Batch | None:
    """Append other elements to x, `LONG` in total; None if x is as long, or the model accepts no more."""
    if subject.time >= LONG or not (subject.shortens or subject.time == 1) or subject.model.sequence_length is not None:
        return None
    parts = [subject.x, *(subject.altered(subject.x) for _ in range(LONG // subject.time))]
    longer = torch.cat(parts, 1)[:, :LONG]
    return Batch(longer, subject.context) if subject.takes(longer) else None


def _step_checked(subject: SequenceSubject) -> Tensor:
    """Return the conditionals of `step`, and require that states are trees of batches and stay unchanged."""
    numbers: list[Tensor] = []

    def step(x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        before = _copied(state, len(subject.x))
        answer = subject.model.step(x_prev, state)
        if changed(before, flatten(state)[0]):
            raise Violation(f"step {len(numbers)} changed the state it was given; it must return a new one")
        return answer

    for t, taken in enumerate(subject.stepped(subject.batch(), step=step)):
        numbers.append(taken.numbers)
        if t == subject.time // 2:
            _require_selectable(subject, taken, t)
    return torch.stack(numbers, 1)


def _rewound(subject: SequenceSubject, step: Step) -> Tensor:
    """Return the conditionals of a prepared step, and require the same from every state again afterwards."""
    steps = list(subject.stepped(subject.batch(), step=step))
    for t, taken in enumerate(steps):
        again = subject.values(step(taken.x_prev, taken.state)[0], 1)
        message = f"prepare().step changed the state of step {t}: stepping from it again differs by {{gap}} nats"
        require_equal(again.unsqueeze(1), taken.numbers.unsqueeze(1), 1e3 * TOLERANCE, message)
    return torch.stack([taken.numbers for taken in steps], 1)


def _require_selectable(subject: SequenceSubject, taken: Taken, t: int) -> None:
    """Require that reordered and repeated rows of the state give the same rows of the conditionals."""
    rows = torch.cat([subject.rows.flip(0), subject.rows[:1]])
    conditional, _ = subject.model.step(*select((taken.x_prev, taken.state), rows))
    selected = subject.values(conditional, 1).unsqueeze(1)
    message = f"rows selected from the state after {t} steps continue differently ({{gap}} nats)"
    require_equal(selected, taken.numbers[rows].unsqueeze(1), 1e3 * TOLERANCE, message)


def _copied(state: State, batch_size: int) -> dict[str, Tensor]:
    """Copy the tensors of a state, by name."""
    try:
        copied = flatten(map_state(torch.clone, state))[0]
    except TypeError as error:
        raise Violation(str(error)) from error
    for name, leaf in copied.items():
        if leaf.dim() < 1 or leaf.shape[0] != batch_size:
            raise Violation(
                f"{name}: expected a tensor with the batch first ({batch_size} rows), got {tuple(leaf.shape)}"
            )
    return copied


@contract_check(SequenceSubject)
@torch.no_grad()
def check_chunk_invariance(subject: SequenceSubject) -> str:
    """Check that `unroll` gives the same conditionals for chunks of any sizes as for one whole chunk.

    Further requirements: one whole chunk gives `forward`; `step` continues after a chunk; rows can be selected from the
    state after a chunk; `unroll` leaves its argument unchanged; `share_memories` does not change how a state continues;
    and elements before `useful_prefix` have no influence.
    """
    x, model = subject.x, subject.model
    if subject.time == 1:
        raise DoesNotApply("x has a single element")
    forward, tolerance = rounded(subject, subject.batch())
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
        start = subject.step_numbers(subject.of(x[:, :2]))
        if not (distance(start, forward[:, :2]) > 1e-6).any():  # otherwise step_equals_forward reports it
            _continue_by_step(subject, whole, tolerance)
    return f"chunks of {', '.join(_listed(sizes) for sizes in _chunkings(subject.time))}"


def _chunkings(time: int) -> list[list[int]]:
    """Return chunk sizes: single elements, halves, and uneven chunks that begin and end with single elements."""
    uneven, left, size = [1], time - 1, 2
    while left:
        uneven.append(min(size, left))
        left -= uneven[-1]
        size = 1 if size == 5 else size + 3 if size == 2 else 2
    chunkings = [[1] * time, [time // 2, time - time // 2], [time - 1, 1], uneven]
    return [sizes for index, sizes in enumerate(chunkings) if sizes not in chunkings[:index]]


def _listed(sizes: list[int]) -> str:
    return "1" if set(sizes) == {1} else "+".join(str(size) for size in sizes[:6]) + ("+..." if len(sizes) > 6 else "")


def _unrolled(subject: SequenceSubject, sizes: list[int]) -> Tensor:
    """Return the conditionals chunk by chunk, (B, T, K)."""
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
        message = f"rows selected from the state after a chunk of {size} continue differently ({{gap}} nats)"
        require_equal(subject.values(conditionals, 2), wanted[rows], allowed[rows], message)


def _check_shared(subject: SequenceSubject, whole: Tensor, tolerance: Tensor) -> None:
    """Step from a shared state, and share it again after forking it and selecting rows."""
    model, x = subject.model, subject.x
    rows, x_prev, numbers = subject.rows, None, []
    forked = torch.cat([rows, rows.flip(0)])
    initial = model.initial_state(len(x), subject.context)
    state = share_memories(initial)
    if flatten(state)[1] == flatten(initial)[1]:  # there is nothing to share
        return
    for t in range(subject.time):
        if t == subject.time // 2:  # fork, and keep some of the rows
            state = share_memories(select(select(state, forked), rows.flip(0) + len(rows)))
        conditional, state = model.step(x_prev, state)
        numbers.append(subject.values(conditional, 1))
        x_prev = x[:, t]
    message = "share_memories: p(x_{t} | x_<{t}) from a shared state is {gap} nats off unroll (row {row})"
    require_equal(torch.stack(numbers, 1), whole, tolerance, message)


def _check_useful_prefix(subject: SequenceSubject) -> None:
    other = subject.altered(subject.x)
    for drawn in {1, subject.time // 2}:
        start = subject.time - drawn
        useful = subject.model.useful_prefix(drawn)
        if useful is None or useful >= start:
            continue
        x = torch.cat([other[:, : start - useful], subject.x[:, start - useful :]], 1)
        numbers, expected = (subject.numbers(subject.of(elements))[:, start:] for elements in (x, subject.x))
        message = f"useful_prefix: expected elements before the last {useful} to have no influence, got {{gap}} nats"
        require_equal(numbers, expected, 1e3 * TOLERANCE, message)


@contract_check(LabelSubject)
@torch.no_grad()
def check_log_prob_equals_forward(subject: LabelSubject) -> str:
    """Check that `log_prob` agrees with the distribution of `forward`, in float64 and in the model's own dtype."""
    batch = subject.batch()
    for label, model, _ in trials(subject, batch):
        message = f"{label}log_prob of row {{row}} is {{gap}} nats off forward(...).log_prob"
        require_equal(subject.numbers(batch, model), subject.further(batch, model)["forward"], TOLERANCE, message)
    own, narrow = independent_copy(subject.original, double=False), subject.own_type
    with as_called():
        batch = Batch(*in_type(tuple(batch._replace(x=subject.x.unsqueeze(1))), narrow))
        got, expected = subject.numbers(batch, own), subject.further(batch, own)["forward"]
    message = f"in {narrow}, log_prob of row {{row}} is {{gap}} nats off forward(...).log_prob"
    require_equal(got.double(), expected.double(), 200 * torch.finfo(narrow).eps, message)
    return f"{subject.probes.shape[1]} values of y, and the rows' own in {narrow}".replace("torch.", "")


EXCESS, OVERHEAD = 1.005, 64  # allowed factor over the bytes of -log2 p, and allowed extra bytes
ROUNDING = 0.05  # bits: two orders of summation in float32
DAMAGES = 12


@contract_check(SequenceSubject)
@torch.no_grad()
def check_codec(subject: SequenceSubject) -> str:
    """Check that `chainrule.coding` restores x exactly, in at most 1.005 · −log₂ p bits and 64 bytes, and finds damage.

    The check also compares the bits of the coded choices, within 0.5% and a twentieth of a bit, with −log₂ p of each
    row
    alone: the probabilities of `step` must not depend on the other rows. It decodes data with twelve changed bytes and
    truncated data. It does not apply to continuous elements.
    """
    if find_spec("constriction") is None:
        raise DoesNotApply("the package constriction is not installed")
    with as_called():
        return _checked(subject)


def _checked(subject: SequenceSubject) -> str:
    model = subject.copy(own_type=True)
    x, context = in_type((subject.x, subject.context), subject.own_type)
    try:
        data = encode(model, x, context)
    except NotDiscreteError as error:
        raise DoesNotApply(str(error)) from None
    _require_equal(decode(model, data, context), x, f"{len(x)} rows")
    first = map_state(lambda leaf: leaf[:1], context)
    _require_equal(decode(model, encode(model, x[:1], first), first), x[:1], "a row alone")
    bits = sum(_bits(model, x, context, row) for row in range(len(x)))
    meter = _Meter()
    code_rows(model, meter, len(x), x.shape[1], x, context)
    if not math.isfinite(bits) or abs(meter.bits - bits) > (EXCESS - 1) * bits + ROUNDING:
        raise Violation(f"step gives {len(x)} rows {meter.bits:.4f} bits together, log_prob {bits:.4f} one by one")
    if len(data) > EXCESS * bits / 8 + OVERHEAD:
        raise Violation(f"{len(data)} bytes coded, more than {EXCESS} x {bits / 8:.1f} + {OVERHEAD}")
    _require_detection(subject, model, context, data)
    return f"{len(x)} rows in {len(data)} bytes, {bits / 8:.1f} by -log2 p; {DAMAGES} changed bytes and a cut found"


class _Meter(RangeCoder):
    """Coder that sums the bits of choices and writes nothing."""

    def __init__(self) -> None:
        self.bits = 0.0

    def choose(self, probabilities: Numbers, symbols: Rows | None) -> Rows:
        assert symbols is not None
        coded = np.take_along_axis(probabilities, symbols[:, None], 1).astype(np.float64)
        self.bits -= float(np.log2(np.maximum(coded, 2.0**-24)).sum())
        return symbols


def _bits(model: AutoregressiveModel, x: Tensor, context: Context, row: int) -> float:
    own = map_state(lambda leaf: leaf[row : row + 1], context)
    return float(-model.log_prob(x[row : row + 1], own)) / math.log(2)


def _require_equal(decoded: Tensor, x: Tensor, label: str) -> None:
    if decoded.shape != x.shape or not ((decoded == x) | (decoded.isnan() & x.isnan())).all():
        raise Violation(f"{label}: decoding does not restore x: step does not repeat its results")


def _require_detection(subject: SequenceSubject, model: AutoregressiveModel, context: Context, data: bytes) -> None:
    trials = [data[:-1]]
    for index in subject.integers(len(data), (DAMAGES,)).tolist():
        changed = bytearray(data)
        changed[index] ^= 1 + int(subject.integers(255, ()))
        trials.append(bytes(changed))
    for trial in trials:
        try:
            decode(model, trial, context)
        except ValueError:
            continue
        raise Violation("damaged bytes were decoded without an error")

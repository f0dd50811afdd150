"""`forward` and `step` are the same function computed two ways."""

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Step
from chainrule.state import State, flatten, map_state, select
from chainrule.testing.agreement import TOLERANCE, require_equal, rounding
from chainrule.testing.contract_check import contract_check
from chainrule.testing.leaves import changed
from chainrule.testing.subject import Subject, Violation

LONG = 48  # steps after which a cache that is as long as x, or a count that is kept, has shown itself


@contract_check
@torch.no_grad()
def check_step_equals_forward(subject: Subject) -> str:
    """The conditionals of `step`, from `initial_state` on, are those of `forward`, for several rows and for one.

    Also: `step` leaves the state it was given as it was, so that a state can be kept and used again; a state is a tree
    of tensors, batch first, so that rows can be selected; and `stepper()` is the same function as `step`. A stepper may
    write into parts of a tensor that the state does not mean, but every state it returned must go on as before. Where a
    model takes longer sequences than x, it is stepped on to `LONG` elements.
    """
    x = subject.x
    whole, tolerance = subject.forward(x), rounding(subject, x)
    model = subject.model
    differs = "{{gap}} nats between p(x_{{t}} | x_<{{t}}) of {0} and of forward (row {{row}})"
    steps = _stepped(subject, model.step, x, subject.rows, watch=True)
    require_equal(steps, whole, tolerance, differs.format("step"))
    single = _stepped(subject, model.step, x[:1], subject.rows[:1])
    require_equal(single, whole[:1], tolerance[:1], differs.format("step on a batch of one row"))
    if type(model).stepper is not AutoregressiveModel.stepper:
        prepared = _stepped(subject, model.stepper(), x, subject.rows, rewind=True)
        require_equal(prepared, whole, tolerance, differs.format("stepper()"))
    longer = _lengthened(subject)
    if longer is not None:
        whole, tolerance = subject.forward(longer), rounding(subject, longer)
        for name, step in (("step", model.step), ("stepper()", model.stepper())):
            require_equal(_stepped(subject, step, longer, subject.rows), whole, tolerance, differs.format(name))
    steps_taken = subject.time if longer is None else LONG
    return f"{len(x)} rows of {steps_taken} steps, and one row alone"


def _lengthened(subject: Subject) -> Tensor | None:
    """x and other elements behind it, `LONG` in all; None where x is as long, or the model takes no more."""
    if subject.time >= LONG or not (subject.shortens or subject.time == 1) or subject.model.sequence_length is not None:
        return None
    parts = [subject.x, *(subject.altered(subject.x) for _ in range(LONG // subject.time))]
    longer = torch.cat(parts, 1)[:, :LONG]
    try:
        subject.forward(longer)
    except Exception:
        return None  # longer than the model can be
    return longer


def _stepped(
    subject: Subject, step: Step, x: Tensor, rows: Tensor, *, watch: bool = False, rewind: bool = False
) -> Tensor:
    """(B, T, K) the conditionals of successive steps.

    Args:
        watch: require that every tensor of a state stays as it was given, and that rows can be selected.
        rewind: require that stepping from every state again, when all steps are done, gives the same.
    """
    state, x_prev = subject.model.initial_state(len(x), subject.context_of(rows)), None
    numbers: list[Tensor] = []
    kept: list[tuple[Tensor | None, State]] = []
    for t in range(x.shape[1]):
        before = _copied(state, len(x)) if watch else None
        conditional, following = step(x_prev, state)
        if tuple(conditional.batch_shape[:1]) != (len(x),):
            shape = tuple(conditional.batch_shape)
            raise Violation(f"step: expected a distribution of batch shape (B,) = ({len(x)},), got {shape}")
        numbers.append(subject.values(conditional, 1))
        if watch:
            if changed(_named(before), _named(state)):
                raise Violation(f"step {t} changed the state it was given; it must return a new one")
            if t == x.shape[1] // 2:
                _require_selectable(subject, step, x_prev, state, numbers[-1], t)
        kept.append((x_prev, state))
        state, x_prev = following, x[:, t]
    for t, (x_prev, state) in enumerate(kept if rewind else []):
        again = subject.values(step(x_prev, state)[0], 1)
        message = f"stepper() changed the state of step {t}: stepping from it again differs by {{gap}} nats"
        require_equal(again.unsqueeze(1), numbers[t].unsqueeze(1), 1e3 * TOLERANCE, message)
    return torch.stack(numbers, 1)


def _require_selectable(
    subject: Subject, step: Step, x_prev: Tensor | None, state: State, numbers: Tensor, t: int
) -> None:
    """Rows of the state in another order, one of them twice, give those rows of the conditionals."""
    rows = torch.cat([subject.rows.flip(0), subject.rows[:1]])
    conditional, _ = step(None if x_prev is None else x_prev[rows], select(state, rows))
    chosen = subject.values(conditional, 1).unsqueeze(1)
    message = f"rows selected from the state after {t} steps do not go on as they would have ({{gap}} nats)"
    require_equal(chosen, numbers[rows].unsqueeze(1), 1e3 * TOLERANCE, message)


def _copied(state: State, batch_size: int) -> State:
    try:
        copied = map_state(torch.clone, state)
    except TypeError as error:
        raise Violation(str(error)) from error
    for name, leaf in _named(copied).items():
        if leaf.dim() < 1 or leaf.shape[0] != batch_size:
            raise Violation(
                f"{name}: expected a tensor with the batch first ({batch_size} rows), got {tuple(leaf.shape)}"
            )
    return copied


def _named(state: State) -> dict[str, Tensor]:
    return flatten(state)[0]

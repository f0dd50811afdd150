"""`forward` and `step` are the same function computed two ways."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Step
from chainrule.state import State, flatten, map_state, select
from chainrule.testing._agreement import TOLERANCE, require_equal, rounding
from chainrule.testing._contract_check import contract_check
from chainrule.testing._leaves import changed
from chainrule.testing._sequence_subject import SequenceSubject, Taken
from chainrule.testing._subject import Batch, Violation

LONG = 48  # steps after which a cache that is as long as x, or a count that is kept, has shown itself


@contract_check(SequenceSubject)
@torch.no_grad()
def check_step_equals_forward(subject: SequenceSubject) -> str:
    """The conditionals of `step`, from `initial_state` on, are those of `forward`, for several rows and for one.

    Also: `step` leaves the state it was given as it was, so that a state can be kept and used again; a state is a tree
    of tensors, batch first, so that rows can be selected; and `prepare().step` is the same function as `step`. It may
    write into parts of a tensor that the state does not mean, but every state it returned must go on as before. Where a
    model takes longer sequences than x, it is stepped on to `LONG` elements.
    """
    batch, model = subject.batch(), subject.model
    whole, tolerance = subject.numbers(batch), rounding(subject, batch)
    differs = "{{gap}} nats between p(x_{{t}} | x_<{{t}}) of {0} and of forward (row {{row}})"
    require_equal(_watched(subject), whole, tolerance, differs.format("step"))
    single = subject.step_numbers(batch.rows(subject.rows[:1]))
    require_equal(single, whole[:1], tolerance[:1], differs.format("step on a batch of one row"))
    if type(model).prepare is not AutoregressiveModel.prepare:
        require_equal(_rewound(subject, model.prepare().step), whole, tolerance, differs.format("prepare().step"))
    longer = _lengthened(subject)
    if longer is not None:
        whole, tolerance = subject.numbers(longer), rounding(subject, longer)
        for name, step in (("step", model.step), ("prepare().step", model.prepare().step)):
            require_equal(subject.step_numbers(longer, step=step), whole, tolerance, differs.format(name))
    steps_taken = subject.time if longer is None else LONG
    return f"{len(batch.x)} rows of {steps_taken} steps, and one row alone"


def _lengthened(subject: SequenceSubject) -> Batch | None:
    """x and other elements behind it, `LONG` in all; None where x is as long, or the model takes no more."""
    if subject.time >= LONG or not (subject.shortens or subject.time == 1) or subject.model.sequence_length is not None:
        return None
    parts = [subject.x, *(subject.altered(subject.x) for _ in range(LONG // subject.time))]
    longer = torch.cat(parts, 1)[:, :LONG]
    return Batch(longer, subject.context) if subject.takes(longer) else None


def _watched(subject: SequenceSubject) -> Tensor:
    """The conditionals of `step`, whose states must be trees of batches that stay as they were given."""
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
    """The conditionals of a prepared step, which gives the same from every state again when all steps are done."""
    steps = list(subject.stepped(subject.batch(), step=step))
    for t, taken in enumerate(steps):
        again = subject.values(step(taken.x_prev, taken.state)[0], 1)
        message = f"prepare().step changed the state of step {t}: stepping from it again differs by {{gap}} nats"
        require_equal(again.unsqueeze(1), taken.numbers.unsqueeze(1), 1e3 * TOLERANCE, message)
    return torch.stack([taken.numbers for taken in steps], 1)


def _require_selectable(subject: SequenceSubject, taken: Taken, t: int) -> None:
    """Rows of the state in another order, one of them twice, give those rows of the conditionals."""
    rows = torch.cat([subject.rows.flip(0), subject.rows[:1]])
    conditional, _ = subject.model.step(*select((taken.x_prev, taken.state), rows))
    chosen = subject.values(conditional, 1).unsqueeze(1)
    message = f"rows selected from the state after {t} steps do not go on as they would have ({{gap}} nats)"
    require_equal(chosen, taken.numbers[rows].unsqueeze(1), 1e3 * TOLERANCE, message)


def _copied(state: State, batch_size: int) -> dict[str, Tensor]:
    """Copies of the tensors of a state by name."""
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

"""Rows of a batch do not influence each other."""

import torch
from torch import Tensor

from chainrule.testing.agreement import require_equal, rounding
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import Subject, Violation
from chainrule.testing.weights import sharp, weighted

LONGEST = 16


@contract_check
@torch.no_grad()
def check_batch_independence(subject: Subject) -> str:
    """The conditionals of a row are the same alone, among other rows, in another order, and in a larger batch.

    For `forward`, for `log_prob` and for `step`; with `lengths`, also when those of the other rows change.
    """
    x = subject.beginning(LONGEST)
    rows = subject.rows
    last = rows[-1:]
    among = {
        "alone": (x[-1:], last, 0),
        "among other rows": (
            torch.cat([subject.altered(x[:-1]), x[-1:]]),
            torch.cat([rows[:-1].flip(0), last]),
            len(x) - 1,
        ),
        "when the rows are reversed": (x.flip(0), rows.flip(0), 0),
        "in a larger batch": (torch.cat([subject.altered(x), x, x]), rows.repeat(3), 2 * len(x) - 1),
    }
    allowed = rounding(subject, x)[-1:]
    for label, model in [("", subject.model), *weighted(subject, (sharp,))]:
        row = subject.forward(x, model=model)[-1:]
        for where, (batch, contexts, index) in among.items():
            numbers = subject.forward(batch, contexts, model=model)[index : index + 1]
            tolerance = allowed if model is subject.model else 1e-6
            message = f"{label}p(x_{{t}} | x_<{{t}}) of a row differs by {{gap}} nats {where}"
            require_equal(numbers, row, tolerance, message)
    _compare_log_prob(subject, subject.x, rounding(subject, subject.x)[-1:])
    _compare_steps(subject, x, allowed)
    _compare_lengths(subject, x, allowed)
    return f"a row of {x.shape[1]} elements {', '.join(among)}"


def _compare_log_prob(subject: Subject, x: Tensor, allowed: Tensor) -> None:
    together = subject.model.log_prob(x, subject.context)
    if tuple(together.shape) != (len(x),):
        raise Violation(f"log_prob: expected shape (B,) = ({len(x)},), got {tuple(together.shape)}")
    alone = torch.cat([subject.model.log_prob(x[row], subject.context_of(row)) for row in subject.rows.split(1)])
    tolerance = (allowed.sum() * 10 * (1 + together.abs())).unsqueeze(1)
    message = "log_prob of row {row} differs by {gap} nats when it is alone"
    require_equal(alone.view(-1, 1, 1), together.view(-1, 1, 1), tolerance, message)


def _compare_steps(subject: Subject, x: Tensor, allowed: Tensor) -> None:
    together = _stepped(subject, x, subject.rows)
    alone = _stepped(subject, x[-1:], subject.rows[-1:])
    other = torch.cat([subject.altered(x[:-1]), x[-1:]])
    among = _stepped(subject, other, subject.rows)
    message = "p(x_{t} | x_<{t}) of step differs by {gap} nats "
    require_equal(alone, together[-1:], allowed, message + "when the row is alone")
    require_equal(among[-1:], together[-1:], allowed, message + "among other rows")


def _stepped(subject: Subject, x: Tensor, rows: Tensor) -> Tensor:
    state, x_prev, numbers = subject.model.initial_state(len(x), subject.context_of(rows)), None, []
    for t in range(x.shape[1]):
        conditional, state = subject.model.step(x_prev, state)
        numbers.append(subject.values(conditional, 1))
        x_prev = x[:, t]
    return torch.stack(numbers, 1)


def _compare_lengths(subject: Subject, x: Tensor, allowed: Tensor) -> None:
    time = x.shape[1]
    own = max(time // 2, 1)
    answers = []
    for others in (own, time, 1):
        lengths = torch.full_like(subject.rows, others)
        lengths[-1] = own
        try:
            answers.append(subject.forward(x, lengths=lengths)[-1:, :own])
        except Exception:
            return  # a model that cannot take lengths fails padding_invariance
    for numbers in answers[1:]:
        message = "p(x_{t} | x_<{t}) of a row differs by {gap} nats when the lengths of other rows change"
        require_equal(numbers, answers[0], allowed[:, :own], message)

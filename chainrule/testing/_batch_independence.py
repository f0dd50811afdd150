"""Rows of a batch do not influence each other."""

import torch
from torch import Tensor

from chainrule.testing._agreement import require_equal, rounding, trials
from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._sequence_subject import LONGEST, SequenceSubject
from chainrule.testing._subject import M, Subject


@contract_check(*KINDS)
@torch.no_grad()
def check_batch_independence(subject: Subject[M]) -> str:
    """The results of a row are the same alone, among other rows, in another order, and in a larger batch.

    This holds for all methods; for sequences with `lengths`, also when the lengths of the other rows change.
    """
    batch, rows = subject.batch(LONGEST), subject.rows
    first, last = rows[:1], rows[-1:]
    among = {
        where: subject.arranged(batch, chosen, torch.arange(len(chosen), device=rows.device) < changed)
        for where, chosen, changed in (
            ("alone", last, 0),
            ("among other rows", torch.cat([rows[:-1].flip(0), last]), len(rows) - 1),
            ("among copies of the first row", torch.cat([first.expand(len(rows) - 1), last]), 0),
            ("when the rows are reversed", rows.flip(0), 0),
            ("in a larger batch", rows.repeat(3), len(rows)),
        )
    }
    tolerances = []
    for label, model, tolerance in trials(subject, batch):
        row = subject.numbers(batch, model)[-1:]
        tolerances.append(tolerance[-1:])
        for where, arranged in among.items():
            place = 0 if where == "when the rows are reversed" else -1
            numbers = subject.numbers(arranged, model)[place].unsqueeze(0)
            require_equal(numbers, row, tolerances[-1], f"{label}a row differs by {{gap}} nats {where} (t={{t}})")
    expected = subject.further(batch, steps=LONGEST)
    for where in ("alone", "among other rows"):
        for name, numbers in subject.further(among[where], steps=LONGEST).items():
            message = f"{name} of a row differs by {{gap}} nats {where} (t={{t}})"
            allowed = tolerances[0][:, : numbers.shape[1]]  # as many elements as steps were taken
            require_equal(numbers[-1:], expected[name][-1:], allowed, message)
    if isinstance(subject, SequenceSubject):
        _compare_totals(subject)
        _compare_lengths(subject, batch.x, tolerances[0])
    return f"a row alone and in {len(among) - 1} batches"


def _compare_totals(subject: SequenceSubject) -> None:
    batch = subject.batch()
    together = subject.totals(batch)
    alone = torch.cat([subject.totals(batch.rows(row)) for row in subject.rows.split(1)])
    tolerance = rounding(subject, batch)[-1].sum() * 10 * (1 + together.abs()).view(-1, 1)
    require_equal(alone, together, tolerance, "log_prob of row {row} differs by {gap} nats when it is alone")


def _compare_lengths(subject: SequenceSubject, x: Tensor, allowed: Tensor) -> None:
    time = x.shape[1]
    own = max(time // 2, 1)
    answers = []
    for others in (own, time, 1):
        lengths = torch.full_like(subject.rows, others)
        lengths[-1] = own
        if not subject.takes(x, lengths):
            return  # a model that cannot take lengths fails padding_invariance
        answers.append(subject.numbers(subject.of(x, lengths=lengths))[-1:, :own])
    for numbers in answers[1:]:
        message = "p(x_{t} | x_<{t}) of a row differs by {gap} nats when the lengths of other rows change"
        require_equal(numbers, answers[0], allowed[:, :own], message)

"""Padding after the end of a row changes nothing."""

from itertools import islice

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, length_mask
from chainrule.testing._agreement import require_equal, trials
from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._gradients import gradients_of
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Batch, M, Subject, Violation, filled


@contract_check(*KINDS)
def check_padding_invariance(subject: Subject[M]) -> str:
    """With `lengths`, the results of a padded row equal those of the row cut at its end.

    Neither the content nor the amount of padding matters: it may be other elements and, for `log_prob`, values outside
    the support, invalid labels and NaN. An empty row has log-likelihood 0. Gradients stay finite.
    """
    tried: list[str] = []
    for whole, batch in subject.shortened():
        with torch.no_grad():
            for label, model, allowed in islice(trials(subject, whole), 1 if tried else 2):
                if isinstance(subject, SequenceSubject) and isinstance(model, AutoregressiveModel):
                    _compare_conditionals(subject, model, label, batch, allowed)
                _compare_totals(subject, model, label, batch, 10 * allowed.sum(1, keepdim=True))
        for how, padded in [] if tried else subject.paddings(batch):
            total = subject.totals(padded)
            gradients_of(total[total.isfinite()].sum(), subject.model, f"log_prob, with {how} as padding,")
        tried = [str(length) for length in subject.ends(batch).tolist()]
    return f"rows of {', '.join(tried)} elements, with other and further padding"


def _compare_totals(subject: Subject[M], model: M, label: str, batch: Batch, allowed: Tensor) -> None:
    totals, ends = subject.totals(batch, model), subject.ends(batch)
    empty = totals[ends == 0]
    if empty.isnan().any() or (subject.adds_up and empty.any()):
        raise Violation(f"{label}log_prob of an empty row is {float(empty.flatten()[0]):.3g}, not 0")
    for how, padded in subject.paddings(batch):
        message = f"{label}log_prob of row {{row}} differs by {{gap}} (relative) with {how} as padding"
        require_equal(subject.totals(padded, model), totals, allowed, message)
    for length in set(ends.tolist()) - {0}:
        cut, ending = subject.cut(batch, length), ends == length
        if cut is not None:
            message = (
                f"{label}log_prob of a row of {length} differs by {{gap}} (relative) from that of the row cut there"
            )
            require_equal(subject.totals(cut, model)[ending], totals[ending], allowed[ending], message)


def _compare_conditionals(
    subject: SequenceSubject, model: AutoregressiveModel, label: str, batch: Batch, allowed: Tensor
) -> None:
    x, lengths = batch.x, subject.ends(batch)
    real = length_mask(lengths, x.shape[1])
    numbers = subject.numbers(batch, model)
    longer = torch.cat([x, subject.altered(x)[:, :3]], 1)
    batches = {"with other padding": filled(x, subject.altered(x), real)}
    if subject.shortens and subject.takes(longer, model=model):
        batches["with more padding"] = longer
    for how, padded in batches.items():
        again = subject.numbers(subject.of(padded, lengths=lengths), model)[:, : x.shape[1]]
        message = f"{label}p(x_{{t}} | x_<{{t}}) of row {{row}} differs by {{gap}} nats {how}"
        require_equal(filled(again, numbers, real), numbers, allowed, message)
    for length in set(lengths.tolist()) - {0}:
        cut, ending = subject.numbers(subject.of(x[:, :length]), model), lengths == length
        message = f"{label}p(x_{{t}} | x_<{{t}}) of a padded row of {length} differs by {{gap}} nats from the row alone"
        require_equal(numbers[ending, :length], cut[ending], allowed[ending, :length], message)

"""Checks that rows are independent of each other and of padding, and that every parameter gets a gradient."""

from itertools import islice

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, length_mask
from chainrule.testing._agreement import require_equal, rounding, trials, weighted
from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._sequence_subject import LONGEST, SequenceSubject
from chainrule.testing._subject import Batch, DoesNotApply, M, Subject, Violation, filled


@contract_check(*KINDS)
@torch.no_grad()
def check_batch_independence(subject: Subject[M]) -> str:
    """Check that a row's results are the same alone, among other rows, in another order, and in a larger batch.

    This applies to all methods, and for sequences with `lengths` also if the lengths of the other rows change.
    """
    batch, rows = subject.batch(LONGEST), subject.rows
    first, last = rows[:1], rows[-1:]
    among = {
        where: subject.arranged(batch, order, torch.arange(len(order), device=rows.device) < changed)
        for where, order, changed in (
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
            index = 0 if where == "when the rows are reversed" else -1
            numbers = subject.numbers(arranged, model)[index].unsqueeze(0)
            require_equal(numbers, row, tolerances[-1], f"{label}a row differs by {{gap}} nats {where} (t={{t}})")
    expected = subject.further(batch, steps=LONGEST)
    for where in ("alone", "among other rows"):
        for name, numbers in subject.further(among[where], steps=LONGEST).items():
            message = f"{name} of a row differs by {{gap}} nats {where} (t={{t}})"
            allowed = tolerances[0][:, : numbers.shape[1]]  # `further` may step over fewer elements
            require_equal(numbers[-1:], expected[name][-1:], allowed, message)
    if isinstance(subject, SequenceSubject):
        whole = tolerances[0] if batch.x.shape[1] == subject.time else rounding(subject, subject.batch())[-1:]
        _compare_totals_alone(subject, whole.sum())
        _compare_lengths(subject, batch.x, tolerances[0])
    return f"a row alone and in {len(among) - 1} batches"


def _compare_totals_alone(subject: SequenceSubject, allowed: Tensor) -> None:
    batch = subject.batch()
    together = subject.totals(batch)
    alone = torch.cat([subject.totals(batch.rows(row)) for row in subject.rows.split(1)])
    tolerance = allowed * 10 * (1 + together.abs()).view(-1, 1)
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


@contract_check(*KINDS)
def check_padding_invariance(subject: Subject[M]) -> str:
    """Check that a padded row with `lengths` gives the same results as the row cut at its end.

    Content and amount of padding must not matter: padding may be other elements and, for `log_prob`, values outside the
    support, invalid labels and NaN. An empty row has log-likelihood 0. Gradients stay finite.
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
                f"{label}log_prob of a row of {length} differs by {{gap}} (relative) from log_prob of the row cut there"
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


@contract_check(*KINDS)
def check_gradients_reach_parameters(subject: Subject[M]) -> str:
    """Check that `log_prob` and `unroll` give every parameter a gradient that is not all zero.

    For a model with a latent code, `training_objective` is checked instead. Gradients at several x and weights are
    combined, since units may saturate at one of them. At the given weights, gradients must be finite; with a latent
    code also at weights of other sizes. Parameters that do not require gradients are ignored.
    """
    wanted = [name for name, weight in subject.model.named_parameters() if weight.requires_grad and weight.numel()]
    if not wanted:
        raise DoesNotApply("no parameter requires a gradient")
    missing: dict[str, set[str]] = {}
    for label, model in weighted(subject, *subject.gradient_draws):
        for way, total in subject.objectives(model):
            gradients = gradients_of(total, model, way if subject.finite_gradients or not label else "")
            absent = missing.setdefault(way, set(wanted))
            absent -= {name for name, gradient in gradients.items() if gradient.any()}
        if not any(missing.values()) and not subject.finite_gradients:
            break
    for way, absent in missing.items():
        if absent:
            names = ", ".join(sorted(absent)[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            raise Violation(f"{way} gives no gradient to {len(absent)} of {len(wanted)} parameters: {names}")
    return f"all {len(wanted)} parameters, through {' and '.join(missing)}"


def gradients_of(total: Tensor, model: nn.Module, way: str) -> dict[str, Tensor]:
    """Return the gradients of a scalar; `way` names it in the violation if they are not finite, "" permits that."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights or not total.requires_grad:
        return {}
    gradients = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    present = {name: gradient for name, gradient in zip(weights, gradients, strict=True) if gradient is not None}
    for name, gradient in present.items():
        if way and not gradient.isfinite().all():
            raise Violation(f"the gradient of {way} with respect to {name} is not finite")
    return present

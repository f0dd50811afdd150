"""Labels of a row depend on that row alone: neither on the others of a batch, nor on padding."""

from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule.base import Context, LikelihoodModel, length_mask
from chainrule.state import leaves, select
from chainrule.testing.label_subject import LabelSubject, label_check
from chainrule.testing.subject import DoesNotApply, Violation, independent_copy
from chainrule.testing.values import TOLERANCE, distance, require_equal
from chainrule.testing.weights import refilled, sharp

_SHARP = 1e-6  # allowed of a model with large weights, which amplifies rounding


@label_check
@torch.no_grad()
def check_batch_independence(subject: LabelSubject) -> str:
    """`log_prob` of a row is the same alone, among other rows, in another order, and in a larger batch."""
    rows, last = subject.rows, subject.rows[-1:]
    among = {
        "alone": (last, 0),
        "among other rows": (torch.cat([rows[:-1].roll(1), last]), len(rows) - 1),
        "among copies of the first row": (torch.cat([rows[:1].expand(len(rows) - 1), last]), len(rows) - 1),
        "when the rows are reversed": (rows.flip(0), 0),
        "in a larger batch": (rows.repeat(3), 3 * len(rows) - 1),
    }
    for label, model, tolerance in weighted_models(subject):
        own = subject.row_numbers(rows, model=model)[-1:]
        for where, (chosen, index) in among.items():
            numbers = subject.row_numbers(chosen, model=model)[index : index + 1]
            require_equal(numbers, own, tolerance, f"{label}log_prob of a row differs by {{gap}} nats {where}")
    return f"a row {', '.join(among)}"


@label_check
def check_padding_invariance(subject: LabelSubject) -> str:
    """With lengths, `log_prob` of a row is that of the row cut at its end, whatever the padding holds and however long.

    Padding of inputs holds other elements, and NaN where they are real numbers; padding of labels holds numbers that
    are no labels. An empty row of labels has log-probability 0. Gradients stay finite.
    """
    if subject.real is None:
        raise DoesNotApply("nothing says how long rows are: neither lengths nor context['lengths']")
    shares = torch.tensor([0.0, 1.0, 0.5, 0.25], device=subject.device)[: len(subject.rows)]
    lengths = (subject.real * shares).ceil().long()
    with torch.no_grad():
        for label, model, tolerance in weighted_models(subject):
            numbers = subject.numbers(*subject.shortened(subject.context, lengths), model=model)
            if numbers.isnan().any():
                raise Violation(f"{label}log_prob of a padded row is not a number")
            if subject.labels_elements and numbers[lengths == 0].any():
                raise Violation(f"{label}log_prob of an empty row is {float(numbers[0, 0, 0]):.3g}, not 0")
            for how, context, probes in _paddings(subject, lengths):
                again = subject.numbers(*subject.shortened(context, lengths), probes=probes, model=model)
                message = f"{label}log_prob of row {{row}} differs by {{gap}} nats with {how} as padding"
                require_equal(again, numbers, tolerance, message)
            for row in subject.rows[lengths > 0].split(1):
                alone = _alone(subject, model, row, lengths[row])
                message = f"{label}log_prob of a padded row differs by {{gap}} nats from that of the row cut at its end"
                require_equal(alone, numbers[row], tolerance, message)
    _require_finite_gradients(subject, lengths)
    return f"rows of {', '.join(map(str, lengths.tolist()))} elements in {subject.time}, and further padding"


def weighted_models(subject: LabelSubject) -> Iterator[tuple[str, LikelihoodModel, float]]:
    """The model and one with large weights, each with its name and how far rounding may move its answers."""
    moved = independent_copy(subject.model)
    with torch.no_grad():
        for parameter in moved.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + 4 * torch.finfo(torch.float64).eps * subject.normal(parameter.shape))
        effect = distance(subject.row_numbers(subject.rows), subject.row_numbers(subject.rows, model=moved))
    yield "", subject.model, TOLERANCE + 100 * float(effect.max())
    large = refilled(subject.model, subject, sharp)
    if not subject.row_numbers(subject.rows, model=large).isnan().any():
        yield "with sharp random weights, ", large, _SHARP


def _alone(subject: LabelSubject, model: LikelihoodModel, row: Tensor, lengths: Tensor) -> Tensor:
    """The numbers of one row, without padding."""
    length = int(lengths)
    cut = select(subject.over_time(lambda leaf: leaf[:, :length]), row)
    given = (cut, None) if subject.labels_elements else subject.shortened(cut, lengths)
    return subject.numbers(*given, probes=subject.cut(row, length), model=model)


def _paddings(subject: LabelSubject, lengths: Tensor) -> Iterator[tuple[str, Context, list[Tensor]]]:
    """Inputs and labels that differ past the rows' ends."""
    real = length_mask(lengths, subject.time)

    def refilled_with(leaf: Tensor, padding: Tensor) -> Tensor:
        return torch.where(real.view(real.shape + (1,) * (leaf.dim() - 2)), leaf, padding)

    others = subject.over_time(lambda leaf: refilled_with(leaf, leaf.roll(1, 0)))
    yield "other elements", others, subject.probes
    if any(leaf.is_floating_point() and leaf.dim() > 1 for leaf in leaves(subject.context)):
        nan = subject.over_time(
            lambda leaf: refilled_with(leaf, torch.full_like(leaf, torch.nan)) if leaf.is_floating_point() else leaf
        )
        yield "NaN", nan, subject.probes
    longer = subject.over_time(lambda leaf: torch.cat([leaf, leaf.flip(1)[:, :3]], 1))
    if not subject.labels_elements:
        yield "more elements", longer, subject.probes
        return
    yield "more elements", longer, [torch.cat([probe, probe.flip(1)[:, :3]], 1) for probe in subject.probes]
    for number in (-1, 2**30):
        labels = [refilled_with(probe, torch.full_like(probe, number)) for probe in subject.probes]
        yield f"the label {number}", subject.context, labels


def _require_finite_gradients(subject: LabelSubject, lengths: Tensor) -> None:
    parameters = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    for what, context, (own, *_) in _paddings(subject, lengths):
        total = subject.model.log_prob(own, *subject.shortened(context, lengths))
        total = total[total.isfinite()].sum()
        if not total.requires_grad:
            return  # gradients_reach_parameters says so
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients):
            raise Violation(f"gradients of log_prob are not finite with {what} as padding")

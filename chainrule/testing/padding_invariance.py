"""Padding after the end of a row changes nothing."""

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, length_mask
from chainrule.testing.agreement import require_equal, rounding
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import DoesNotApply, Subject, Violation
from chainrule.testing.weights import sharp, weighted

LONGEST = 16


@contract_check
def check_padding_invariance(subject: Subject) -> str:
    """With `lengths`, a row's conditionals and log-likelihood are those of the row cut at its end.

    What the padding holds does not matter: other elements, and for `log_prob` values outside the support and NaN; nor
    how much of it there is. A row of length 0 has log-likelihood 0. Gradients are not touched by it either.
    """
    x = subject.beginning(LONGEST)
    lengths = _lengths(subject, x.shape[1])
    allowed = rounding(subject, x)
    if not subject.shortens and subject.time > 1:
        raise DoesNotApply(f"the model takes sequences of {subject.time} elements only")
    for label, model in [("", subject.model), *weighted(subject, (sharp,))]:
        tolerance = allowed if model is subject.model else torch.full_like(allowed, 1e-6)
        _compare_conditionals(subject, model, label, x, lengths, tolerance)
        _compare_log_prob(subject, model, label, x, lengths, tolerance)
    _compare_gradients(subject, x, lengths)
    if subject.time > x.shape[1]:
        x = subject.x
        lengths, allowed = _lengths(subject, x.shape[1]), rounding(subject, x)
        _compare_conditionals(subject, subject.model, "", x, lengths, allowed)
        _compare_log_prob(subject, subject.model, "", x, lengths, allowed)
    return (
        f"rows of {', '.join(str(length) for length in lengths.tolist())} elements in {x.shape[1]}, and further padding"
    )


def _lengths(subject: Subject, time: int) -> Tensor:
    """Lengths for the rows of x, 0 and T among them."""
    lengths = torch.tensor([0, time, max(time // 2, 1), 1], device=subject.device)[: len(subject.x)]
    if len(lengths) == 2:
        lengths[1] = max(time - 1, 1)
    return lengths


@torch.no_grad()
def _compare_conditionals(
    subject: Subject, model: AutoregressiveModel, label: str, x: Tensor, lengths: Tensor, tolerance: Tensor
) -> None:
    real = length_mask(lengths, x.shape[1])
    numbers = subject.forward(x, lengths=lengths, model=model)
    padded = torch.cat([x, subject.altered(x)[:, :3]], 1)
    batches = {"with other padding": _refilled(x, subject.altered(x), real)}
    if subject.shortens and _takes(subject, model, padded):
        batches["with more padding"] = padded
    for how, batch in batches.items():
        again = subject.forward(batch, lengths=lengths, model=model)[:, : x.shape[1]]
        message = f"{label}p(x_{{t}} | x_<{{t}}) of row {{row}} differs by {{gap}} nats {how}"
        _require_equal_at(real, again, numbers, tolerance, message)
    for length in set(lengths.tolist()) - {0}:
        cut = subject.forward(x[:, :length], model=model)
        ending = lengths == length
        message = f"{label}p(x_{{t}} | x_<{{t}}) of a padded row of {length} differs by {{gap}} nats from the row alone"
        require_equal(numbers[ending, :length], cut[ending], tolerance[ending, :length], message)


def _takes(subject: Subject, model: AutoregressiveModel, x: Tensor) -> bool:
    try:
        subject.forward(x, model=model)
    except Exception:
        return False  # longer than the model can be
    return True


@torch.no_grad()
def _compare_log_prob(
    subject: Subject, model: AutoregressiveModel, label: str, x: Tensor, lengths: Tensor, tolerance: Tensor
) -> None:
    real = length_mask(lengths, x.shape[1])
    allowed = 10 * tolerance.sum(1)
    expected = torch.stack(
        [
            model.log_prob(x[:, :length], subject.context)[row] if length else torch.zeros((), device=subject.device)
            for row, length in enumerate(lengths.tolist())
        ]
    )
    for what, batch in _paddings(subject, x, real).items():
        got = model.log_prob(batch, subject.context, lengths)
        if tuple(got.shape) != (len(x),):
            raise Violation(f"{label}log_prob: expected shape (B,) = ({len(x)},), got {tuple(got.shape)}")
        message = f"{label}log_prob of row {{row}}, padded with {what}, is {{gap}} (relative) off that of the row alone"
        require_equal(got.view(-1, 1, 1), expected.view(-1, 1, 1), allowed.view(-1, 1), message)


def _compare_gradients(subject: Subject, x: Tensor, lengths: Tensor) -> None:
    parameters = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    if not parameters:
        return
    for what, batch in _paddings(subject, x, length_mask(lengths, x.shape[1])).items():
        total = subject.model.log_prob(batch, subject.context, lengths).sum()
        if not total.requires_grad:
            return  # gradients_reach_parameters says so
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients):
            raise Violation(f"gradients of log_prob are not finite with {what} as padding")


def _paddings(subject: Subject, x: Tensor, real: Tensor) -> dict[str, Tensor]:
    paddings = {"other elements": _refilled(x, subject.altered(x), real)}
    if x.is_floating_point():
        paddings["NaN"] = _refilled(x, torch.full_like(x, torch.nan), real)
        paddings["infinity"] = _refilled(x, torch.full_like(x, torch.inf), real)
    elif x.dtype != torch.bool:
        info = torch.iinfo(x.dtype)
        for symbol in (max(-1, info.min), info.max // 2):
            paddings[f"the symbol {symbol}"] = _refilled(x, torch.full_like(x, symbol), real)
    return paddings


def _refilled(x: Tensor, padding: Tensor, real: Tensor) -> Tensor:
    return torch.where(real.view(real.shape + (1,) * (x.dim() - 2)), x, padding)


def _require_equal_at(real: Tensor, left: Tensor, right: Tensor, tolerance: Tensor, message: str) -> None:
    ignored = ~real.unsqueeze(-1)
    require_equal(left.masked_fill(ignored, 0), right.masked_fill(ignored, 0), tolerance, message)

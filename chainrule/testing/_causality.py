"""Checks that no conditional depends on its own or a later element, in every mode in which a model is called."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.testing._agreement import require_equal, require_sum, weighted
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called, reseed
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Batch, Violation
from chainrule.testing._values import distance, values

# Without a leak, two runs of equal shape agree exactly, unless a transform such as an FFT spreads rounding over time.
ROUNDING = 1e-10
DERIVATIVE = 1e-12  # derivatives subtract no large numbers, so their tolerance is smaller


@contract_check(SequenceSubject)
def check_causality(subject: SequenceSubject) -> str:
    """Check that p(x_t | x_<t, c) does not change with x_t, x_t+1, ..., nor with the number of elements that follow.

    The check replaces elements from a position on (all of them, a half, or one) and requires that the conditionals up
    to that position stay: at every position, for several x, with and without `lengths`, at the given weights and at
    random ones. Replacement detects leaks without gradients (an argmax); random weights reveal leaks that are inactive
    at the given weights (a rectifier that does not fire). For continuous x the check also computes gradients.
    """
    x = subject.x
    _swing(subject)
    draws = list(weighted(subject, "fresh", "uneven", "biased"))
    for attempt, (weights, model) in enumerate(draws):
        _replace(subject, model, weights, x, with_lengths=False)
        if attempt < 2:
            _replace(subject, model, weights, x, with_lengths=True)
            _differentiate(subject, model, weights, x)
        x = subject.altered(x)
    return f"elements replaced at {subject.time} positions, {len(draws)} draws of the weights"


@torch.no_grad()
def _replace(
    subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor, *, with_lengths: bool
) -> None:
    count = max(min(subject.elements // subject.time, 3 * subject.time) // (2 if weights else 1), 2)
    rows = torch.arange(count, device=subject.device) % len(x)
    spread = min(subject.time, count)
    cuts = (
        torch.linspace(0, subject.time - 1, spread, device="cpu")
        .round()
        .long()[torch.arange(count, device="cpu") % spread]
    )
    if weights and spread < subject.time:  # even positions at the given weights, random ones at other weights
        cuts = subject.integers(subject.time, (count,)).cpu()
    cuts = cuts.to(subject.device)
    other = _replaced(subject, x[rows], cuts)
    lengths = None
    if with_lengths:
        lengths = cuts + 1 + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()
        if not subject.takes(x, torch.full_like(subject.rows, subject.time), model):
            return  # a model that cannot take lengths fails padding_invariance
    full = torch.full_like(subject.rows, subject.time)
    ends = None if lengths is None else torch.cat([full, lengths])
    numbers = subject.numbers(subject.of(torch.cat([x, other]), torch.cat([subject.rows, rows]), ends), model)
    gaps = distance(numbers[: len(x)][rows], numbers[len(x) :])
    gaps.masked_fill_(torch.arange(subject.time, device=cuts.device) > cuts.unsqueeze(1), 0)
    # Rows of one batch are cut at different positions, so a difference may come from another row's past. Only a
    # difference that remains when all rows are cut at the same position comes from the future.
    for suspect in (gaps > 1e-7).any(1).nonzero().flatten()[:16].tolist():
        same = torch.full_like(subject.rows, suspect)
        before = subject.of(x[rows[same]], rows[same], None if lengths is None else full)
        after = subject.of(other[same], rows[same], None if lengths is None else lengths[same])
        pair = subject.numbers(before, model), subject.numbers(after, model)
        require_past(*pair, int(cuts[suspect]), ROUNDING, weights, "" if lengths is None else " or lengths")


@torch.no_grad()
def _swing(subject: SequenceSubject) -> None:
    """Move every element of the batch from one end of the support to the other, from a position on."""
    # A function of the whole batch, such as its maximum, hardly changes with a single row.
    time = subject.time
    for cut in sorted({0, 1, time // 2, time - 1} & set(range(time))):
        before, after = (subject.numbers(subject.of(x)) for x in swung(subject.x, cut, subject.extremes))
        require_past(before, after, cut, ROUNDING, "")


def swung(x: Tensor, cut: int, extremes: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return x twice, with every element from a position on at one end of the support and at the other."""
    return [torch.cat([x[:, :cut], end.to(x).expand_as(x[:, cut:])], 1) for end in extremes]


def require_past(before: Tensor, after: Tensor, cut: int, tolerance: float, label: str, replaced: str = "") -> None:
    """Raise `Violation` if conditionals (B, T, K) up to a cut moved when elements from there on were replaced."""
    gap = distance(before, after)[:, : cut + 1]
    if (gap > tolerance).any():
        t = int((gap > tolerance).any(0).nonzero()[0])
        what = f"elements from {cut} on{replaced}"
        raise Violation(
            f"{label}p(x_{t} | x_<{t}) moved by {float(gap[:, t].max()):.3g} nats when only {what} were replaced"
        )


def _replaced(subject: SequenceSubject, x: Tensor, cuts: Tensor) -> Tensor:
    """Replace elements from each row's cut on: in turn all of them, about a half, or a single one."""
    time = torch.arange(subject.time, device=subject.device)
    later = time >= cuts.unsqueeze(1)
    half = later & (subject.uniform(later.shape) < 0.5) | (time == cuts.unsqueeze(1))
    single = time == (cuts + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()).unsqueeze(1)
    kind = (torch.arange(len(x), device=subject.device) // min(len(x), subject.time) + cuts % 3) % 3
    where = torch.stack([later, half, single])[kind, torch.arange(len(x), device=subject.device)]
    return torch.where(where.view(where.shape + (1,) * (x.dim() - 2)), subject.altered(x), x)


def _differentiate(subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor) -> None:
    if not x.is_floating_point():
        return
    x = x.clone().requires_grad_()
    numbers = subject.numbers(subject.of(x), model)
    if not numbers.requires_grad:
        return
    numbers = torch.where(numbers.isfinite(), numbers, 0)
    times = torch.linspace(0, subject.time - 1, min(subject.time, 8), device="cpu").round().long().tolist()
    for t in sorted(set(times)):
        direction = subject.normal(numbers[:, t].shape)
        total = (numbers[:, t] * direction).sum()
        (gradient,) = torch.autograd.grad(total, x, retain_graph=True, allow_unused=True, materialize_grads=True)
        sizes = gradient.abs().view(*x.shape[:2], -1).amax((0, 2))
        leak = (sizes[t:] > DERIVATIVE * (1 + sizes.max())).nonzero().flatten()
        if len(leak):
            s = t + int(leak[0])
            raise Violation(
                f"{weights}p(x_{t} | x_<{t}) has a gradient of size {float(sizes[s]):.3g} with respect to x_{s}"
            )


@dataclass(frozen=True)
class Setting:
    """A mode of calling a model: a copy in its dtype (`own_type`) or float64, with or without autograd."""

    model: AutoregressiveModel
    batch: Batch
    own_type: bool
    gradients: bool

    def __str__(self) -> str:
        mode, switch = ("training" if self.model.training else "evaluation"), ("on" if self.gradients else "off")
        number_type = "its own number type" if self.own_type else "float64"
        return f"in {mode} mode, gradients {switch}, {number_type}, {len(self.batch.x)} rows: "

    def of(self, x: Tensor, ask: Callable[[Batch], Tensor]) -> Tensor:
        """Evaluate `ask` on the batch with other x, always from the same global random state."""
        reseed(4000)
        with as_called() if self.own_type else nullcontext(), torch.set_grad_enabled(self.gradients):
            return ask(self.batch._replace(x=x)).detach().double()  # inside: conditionals may compute lazily


@contract_check(SequenceSubject)
def check_conditions(subject: SequenceSubject) -> str:
    """Check causality and `log_prob` as the model is used: in training, in its own dtype, on the whole batch.

    The other checks use a few rows in float64 and evaluation mode, mostly without gradients. This check replaces
    elements from a position on, and compares `log_prob` with the sum of the conditionals, in training mode (dropout set
    to 0) and evaluation mode, with and without gradients, in the model's dtype on all rows, and in float64. Rows of the
    whole batch must not influence each other, as batch statistics would.
    """
    settings = list(_settings(subject))
    for setting in settings:
        _examine(subject, setting)
    ways = "training or evaluation, gradients on or off, own type or float64"
    return f"{len(settings)} ways to call it: {ways}, {len(subject.full_batch.x)} rows"


def _settings(subject: SequenceSubject) -> Iterator[Setting]:
    for own_type, training in product((True, False), (True, False)):
        model = subject.copy(own_type=own_type).train(training)
        for part in model.modules() if training else ():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
            elif isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.0  # type: ignore[assignment]  # the line above checked that it is a float
        for gradients in (True, False):
            if own_type or training or gradients:  # the other checks cover the remaining mode
                yield Setting(model, subject.full_batch if own_type else subject.batch(), own_type, gradients)


def _examine(subject: SequenceSubject, setting: Setting) -> None:
    model, x = setting.model, setting.batch.x
    probes = subject.probes.to(x)  # computed here, in float64, outside the setting
    allowed = max(1e-9, min(200 * torch.finfo(subject.own_type).eps, 0.05)) if setting.own_type else 1e-9

    def numbers(x: Tensor) -> Tensor:
        return setting.of(x, lambda batch: values(model(*batch), probes, 2))

    before, time = numbers(x), x.shape[1]
    other = subject.altered(x).to(x)
    if len(x) > 1:  # first: rows that influence each other would also fail the causality test below
        alone = numbers(torch.cat([x[:1], other[1:]]))[:1]
        message = f"{setting}the conditionals of the first row moved by {{gap}} nats when the other rows were replaced"
        require_equal(alone, before[:1], allowed, message)
    for cut in sorted({0, time // 2, time - 1}):
        after = numbers(torch.cat([x[:, :cut], other[:, cut:]], 1))
        require_past(before, after, cut, allowed, str(setting))
    # A function of the whole batch, such as its maximum, changes only if all rows do.
    low, high = swung(x, time // 2, subject.extremes)
    require_past(numbers(low), numbers(high), time // 2, allowed, str(setting))
    expected = setting.of(x, lambda batch: model(*batch).log_prob(batch.x).double().flatten(1).sum(1))
    require_sum(setting.of(x, lambda batch: model.log_prob(*batch)), expected, 10 * allowed, str(setting))

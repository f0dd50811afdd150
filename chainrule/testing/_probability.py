"""Check that probabilities sum to 1."""

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from chainrule._base import AutoregressiveModel, LikelihoodModel
from chainrule.state import expand, select
from chainrule.testing._agreement import (
    PLAIN,
    integral,
    interval,
    require_sum,
    weighted,
)
from chainrule.testing._contract_check import contract_check
from chainrule.testing._row_subjects import LabelSubject
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import OPERATIONS, DoesNotApply, Violation

SUMMATION = 1e-6  # tolerance of sums over a listed support, far above the rounding of V terms in float64
INTEGRATION = 2e-3  # tolerance of integrals: permits quadrature errors, detects a missing hundredth
FEW = 4  # number of positions for costly sums
_MOST_LISTED = 4096  # maximum number of label sequences


@contract_check(SequenceSubject, LabelSubject)
@torch.no_grad()
def check_total_probability(subject: SequenceSubject | LabelSubject) -> str:
    """Check that conditionals sum or integrate to 1, that whole sequences do, and that log_prob is the sum.

    The check sums every conditional of the given rows over the support (integrates it, for a real number), at the given
    weights and at random ones. It also sums the probabilities of all sequences of a length for which they are few. For
    labels it sums over all labels of a row, or of its first elements if each has a label.
    """
    tried = ""
    if isinstance(subject, LabelSubject):
        for label, labeller in weighted(subject, "sharp"):
            tried = _sum_labels(subject, labeller, label)
    else:
        for label, model in weighted(subject, "sharp"):
            terms = subject.conditionals(subject.batch(), model).log_prob(subject.x).flatten(1)
            require_sum(model.log_prob(subject.x, subject.context), terms.sum(1), SUMMATION, label)
            sums = [_sum_conditionals(subject, model, label), _sum_sequences(subject, model, label)]
            tried = "; ".join(filter(None, sums))
    if not tried:
        raise DoesNotApply("the support can be neither listed nor integrated over")
    return tried


def _sum_labels(subject: LabelSubject, model: LikelihoodModel, label: str) -> str:
    if subject.alphabet is None:
        return ""
    values, parts = subject.alphabet.to(subject.x), subject.labels_elements
    length, rows, listed, inputs = 1, subject.rows, values, subject.context
    if parts:
        work = OPERATIONS / (2 * sum(parameter.numel() for parameter in subject.model.parameters()) + 1)
        real = subject.time if subject.lengths is None else int(subject.lengths.max())
        length = max(_longest(len(values), min(subject.time, real), min(_MOST_LISTED, int(work))), 1)
        rows, listed = rows[:2], values[_sequences(len(values), length, subject.device)]
        inputs = subject.over_time(lambda leaf: leaf[:, :length], inputs)
    for row in rows.split(1):
        total = model.log_prob(listed, expand(select(inputs, row), len(listed))).exp().sum().view(1, 1)
        _require_one(total, SUMMATION, f"{label}the probabilities of all {len(listed)} labels of row {int(row)}")
    return f"all {len(listed)} labels" + (f" of the first {length} elements" if parts else "")


def _sum_conditionals(subject: SequenceSubject, model: AutoregressiveModel, label: str) -> str:
    if subject.support is not None:
        return _sum_over_support(subject, model, label, subject.support)
    conditionals = subject.conditionals(subject.batch(), model)
    if interval(conditionals) is not None:
        return _integrate(subject, model, label)
    if getattr(getattr(conditionals, "support", None), "is_discrete", False) and not conditionals.event_shape:
        return _sum_over_counts(subject, conditionals, label)
    return ""


def _sum_over_support(subject: SequenceSubject, model: AutoregressiveModel, label: str, support: Tensor) -> str:
    x = subject.x
    conditionals = subject.conditionals(subject.of(x), model)
    many = len(support) > 512
    if many and isinstance(conditionals, Categorical) and type(conditionals).log_prob in PLAIN:
        # log_prob reads this table, so its sum is the sum over the values.
        totals = conditionals.logits.exp().sum(-1)
    else:
        if many:
            x = x[:2, :FEW] if subject.shortens else x[:2]
            conditionals = subject.conditionals(subject.of(x, subject.rows[:2]), model)
        totals = torch.zeros(conditionals.batch_shape, dtype=torch.float64, device=subject.device)
        for value in support:
            totals += conditionals.log_prob(value.expand(x.shape)).exp()
    _require_one(totals, SUMMATION, f"{label}the probabilities of the {len(support)} values")
    return f"{totals.numel()} conditionals summed over {len(support)} values"


def _sum_over_counts(subject: SequenceSubject, conditionals: Distribution, label: str) -> str:
    """Sum over 0, 1, 2, ... until the rest is negligible."""
    largest = float(conditionals.sample(torch.Size((200,))).max())
    if largest > 2000:
        return ""
    count = int(20 * largest + 200)
    totals = torch.zeros(conditionals.batch_shape, dtype=torch.float64, device=subject.device)
    for value in range(count):
        totals += conditionals.log_prob(torch.full_like(subject.x, value)).exp()
    _require_one(totals, INTEGRATION, f"{label}the probabilities of 0 to {count - 1}")
    return f"{totals.numel()} conditionals summed over 0 to {count - 1}"


def _integrate(subject: SequenceSubject, model: AutoregressiveModel, label: str) -> str:
    x = subject.x[:1]
    conditionals = subject.conditionals(subject.of(x, subject.rows[:1]), model)
    ends = interval(conditionals)
    assert ends is not None
    positions = (
        torch.linspace(0, subject.time - 1, min(FEW, subject.time), dtype=torch.float64, device="cpu")
        .round()
        .long()
        .tolist()
    )
    entries = conditionals.batch_shape[2:].numel()
    reliable = 0
    for t in positions:

        def density(points: Tensor, t: int = t) -> Tensor:
            grid = points.view(-1, *[1] * x.dim()).expand(-1, *x.shape)
            return conditionals.log_prob(grid)[:, 0, t].reshape(len(points), entries)[:, 0].exp()

        for count in (100, 10_000):  # a few hints may miss a narrow peak of little mass
            hints = conditionals.sample(torch.Size((count,)))[:, 0, t].reshape(count, entries)[:, 0]
            total, error = integral(density, *ends, hints)
            if abs(total - 1) <= INTEGRATION:
                break
        if error < INTEGRATION / 2:
            reliable += 1
            _require_one(
                torch.tensor([[total]], dtype=torch.float64, device="cpu"), INTEGRATION, f"{label}the density of x_{t}"
            )
    return f"{reliable} conditional densities integrated" if reliable else ""


def _sum_sequences(subject: SequenceSubject, model: AutoregressiveModel, label: str) -> str:
    support = subject.support
    length = 0 if support is None else _longest(len(support), subject.time, 2 * subject.elements)
    if support is None or length < 1 or (length < subject.time and not subject.shortens):
        return ""
    listed = _sequences(len(support), length, subject.device)
    total = torch.zeros(1, 1, dtype=torch.float64, device=subject.device)
    for part in listed.split(4096):
        total += model.log_prob(*subject.of(support[part], torch.zeros_like(part[:, 0]))).exp().sum()
    sequences = f"all {len(listed)} sequences of length {length}"
    _require_one(total, SUMMATION, f"{label}the probabilities of {sequences}")
    return sequences


def _longest(values: int, longest: int, most: float) -> int:
    """Return the maximum length for which all sequences can be listed."""
    return max((length for length in range(1, min(longest, 40) + 1) if values**length * length <= most), default=0)


def _sequences(values: int, length: int, device: torch.device) -> Tensor:
    return torch.cartesian_prod(*[torch.arange(values, device=device)] * length).view(-1, length)


def _require_one(totals: Tensor, tolerance: float, what: str) -> None:
    wrong = ~((totals - 1).abs() <= tolerance)
    if wrong.any():
        worst = float(totals[wrong][0])
        where = "" if totals.numel() == 1 else f" at row {int(wrong.nonzero()[0, 0])}, t={int(wrong.nonzero()[0, 1])}"
        raise Violation(f"{what} sum to {worst:.6g}, not 1{where}")

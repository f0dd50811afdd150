"""Checks that probabilities sum to 1, and that draws of `sample` follow it."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from chainrule._base import AutoregressiveModel, LikelihoodModel
from chainrule.heads._adapter import head_of
from chainrule.state import expand, select
from chainrule.testing._agreement import (
    PLAIN,
    Surprise,
    far_from_zero,
    has_real_support,
    integral,
    interval,
    require_sum,
    surprise,
    uneven_ranks,
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


LONGEST = 8
RANKS = 16
RARE = 20.0  # nats: log-probabilities are clamped to >= -20, which bounds every term
FILTERS: list[dict[str, Any]] = [{"temperature": 0.0}, {"temperature": 3.0}, {"temperature": 0.5, "top_k": 3}]
FILTERS += [{"top_k": 1}, {"top_p": 0.6}]
STREAMED: list[dict[str, Any]] = [{"temperature": 0.5}, {"top_k": 1}, {"top_p": 0.6}]
# Of these, where few draws tell most: two leave a single symbol.
QUICK: tuple[list[dict[str, Any]], ...] = ([{"temperature": 0.0}, {"top_k": 1}, {"top_p": 0.6}], [{"top_k": 1}])


@contract_check(SequenceSubject)
@torch.no_grad()
def check_samples_follow_log_prob(subject: SequenceSubject) -> str:
    """Check that draws of `sample` and `stream` have the frequencies given by the conditionals of `forward`.

    The check uses the given weights, and random weights that make conditionals depend strongly on earlier draws. It
    samples with and without a prefix, over the whole length of x; for symbols, bits and levels also with temperature,
    top_k, top_p, and for symbols with eos (at the given weights in sequences of half the length, if the model accepts
    them, twice the number). It counts each symbol, at each position and altogether, and repetitions, and
    compares the mean log-likelihood; for densities it tests the balance of likelihood ratios under shifts and
    stretches, and ranks among draws of the conditional itself. A correct model fails with a probability below one in a
    million.
    """
    time = min(LONGEST, subject.time) if subject.shortens or subject.time == 1 else subject.time
    count = max(min(subject.elements // time, 2048), 64)
    draws = list(weighted(subject, "sharp"))
    for label, model in draws:
        trial = Trial(subject, model, label, time)
        trial.judge(trial.draw(count))
        if time < subject.time and (label or len(draws) == 1):
            whole = Trial(subject, model, label, subject.time)
            whole.judge(whole.draw(max(min(count // 4, subject.elements // subject.time), 64)))
        if not label and len(draws) > 1:  # run the other trials at the random weights, which reveal more
            if not subject.thorough:
                continue
            if subject.shortens:  # filters too: the same number of elements in half of the steps
                trial = Trial(subject, model, label, (time + 1) // 2)
            _judge_filters(trial, count // 4 * time // trial.time)
            continue
        if time > 1:
            prefix = min(max(time // 2, 1), 3)
            shared = subject.x[0, :prefix] if subject.x.dim() == 2 else subject.x[:1, :prefix]
            own = subject.x[:, :prefix][trial.rows(count // 4)]
            trial.judge(trial.draw(count // 2, prefix=shared), "sample after one prefix for all", prefix)
            trial.judge(trial.draw(len(own), prefix=own), "sample after a prefix for each", prefix)
        trial.judge(trial.draw(count // 4, "stream"), "stream")
        _judge_filters(trial, count // 4)
    return f"{count} sequences of {time}, and fewer after prefixes; chance of a false alarm below 1e-6"


@dataclass(frozen=True)
class Trial:
    """Draws of one model and their tests."""

    subject: SequenceSubject
    model: AutoregressiveModel
    label: str
    time: int

    def draw(self, count: int, way: str = "sample", prefix: Tensor | None = None, **options: Any) -> Tensor:
        """Draw (N, T) by `sample` or `stream`, and check shape, prefix and support."""
        subject = self.subject
        context = select(subject.context, self.rows(count))
        generator = subject.generator(int(subject.integers(2**31, ())))
        if way == "stream":
            elements = self.model.stream(count, context, generator=generator, **options)
            x = torch.stack(list(islice(elements, self.time)), 1)
        else:
            options |= {} if prefix is None else {"prefix": prefix}
            x = self.model.sample(count, context, length=self.time, generator=generator, **options)
        self._require_shape(x, count, way)
        start = 0 if prefix is None else prefix.shape[min(prefix.dim() - 1, 1)]
        begun = x[:, :start]
        if prefix is not None and not bool(((begun == prefix) | (begun.isnan() & prefix.isnan())).all()):
            raise Violation(f"{self.label}{way} returned sequences that do not begin with the prefix")
        return x.to(subject.x.dtype)

    def rows(self, count: int) -> Tensor:
        return torch.arange(count, device=self.subject.device) % len(self.subject.x)

    def _require_shape(self, x: Tensor, count: int, way: str) -> None:
        expected = (count, self.time, *self.subject.x.shape[2:])
        if tuple(x.shape) != expected:
            raise Violation(f"{self.label}{way}: expected shape {expected}, got {tuple(x.shape)}")
        support = self.subject.support
        if support is not None and support.dim() == 1 and len(outside := x[~torch.isin(x.to(support.dtype), support)]):
            raise Violation(f"{self.label}{way} drew {outside[0].item()}, outside the support of log_prob")

    def judge(self, x: Tensor, way: str = "sample", start: int = 0, **sharpened: Any) -> None:
        """Raise `Violation` if draws x (N, T) do not follow the conditionals from position `start` on."""
        batch = self.subject.of(x, self.rows(len(x)))
        conditionals: Distribution = self.subject.conditionals(batch, self.model)
        terms = conditionals.log_prob(x).reshape(*x.shape[:2], -1).sum(2)[:, start:]
        if not sharpened and not (terms > -torch.inf).all():
            row, t = (~(terms > -torch.inf)).nonzero()[0].tolist()
            raise Violation(
                f"{self.label}{way} drew {x[row, t + start].tolist()}, which has probability 0 (t={t + start})"
            )
        how = f"{self.label}{way}"
        if sharpened:
            how += f" with {', '.join(f'{name}={value}' for name, value in sharpened.items())}"
            conditionals = head_of(conditionals).filtered(**sharpened)
        if isinstance(conditionals, Categorical):
            _judge_symbols(x[:, start:], conditionals.logits[:, start:], how, start)
        elif self.subject.support is not None and len(self.subject.support) <= 64:
            logits = torch.stack([conditionals.log_prob(value.expand(x.shape)) for value in self.subject.support], -1)
            matches = (x.unsqueeze(2) == self.subject.support).view(*x.shape[:2], len(self.subject.support), -1).all(3)
            if not matches.any(2).all():
                raise Violation(f"{how} drew {x[~matches.any(2)][0].tolist()}, outside the support of log_prob")
            _judge_symbols(matches.double().argmax(2)[:, start:], logits[:, start:], how, start)
        else:
            _judge_values(self.subject, x, conditionals, how, start)


def _judge_symbols(x: Tensor, logits: Tensor, how: str, start: int) -> None:
    """Test integers x (N, T) against normalised log-probabilities (N, T, K)."""
    probs = logits.exp()
    size, time = probs.shape[-1], x.shape[1]
    variance = (probs * (1 - probs)).sum(0)
    seen = torch.zeros_like(variance)
    seen.index_put_(
        (torch.arange(time, device=x.device).expand_as(x), x), torch.ones_like(probs[..., 0]), accumulate=True
    )
    expected = probs.sum(0)
    if unlikely := surprise(seen.sum(0), expected.sum(0), variance.sum(0), 1.0):
        raise Violation(_counted(how, f"symbol {unlikely.event}", unlikely, x.numel()))
    if unlikely := surprise(seen.flatten(), expected.flatten(), variance.flatten(), 1.0):
        t, symbol = divmod(unlikely.event, size)
        raise Violation(_counted(how, f"symbol {symbol} at t={t + start}", unlikely, len(x)))
    if time > 1:
        again = probs[:, 1:].gather(2, x[:, :-1].unsqueeze(2)).squeeze(2)
        repeated = (x[:, 1:] == x[:, :-1]).double().sum().view(1)
        if unlikely := surprise(repeated, again.sum().view(1), (again * (1 - again)).sum().view(1), 1.0):
            raise Violation(_counted(how, "the symbol before it", unlikely, again.numel()))
    scores = logits.clamp_min(-RARE)
    means = (probs * scores).sum(2)
    spread = (probs * (scores - means.unsqueeze(2)) ** 2).sum((0, 2))
    drawn = scores.gather(2, x.unsqueeze(2)).squeeze(2).sum(0)
    if unlikely := surprise(drawn, means.sum(0), spread, RARE):
        mean, expected_mean, deviation = (number / len(x) for number in unlikely[1:])
        raise Violation(
            f"{how}: at t={unlikely.event + start} the mean log-probability of draws is {mean:.4g} nats, "
            f"where log_prob expects {expected_mean:.4g} ± {deviation:.2g}"
        )


def _counted(how: str, event: str, unlikely: Surprise, count: int) -> str:
    expected = f"{unlikely.expected:.1f} ± {unlikely.deviation:.1f}"
    return f"{how} drew {event} {unlikely.seen:.0f} times in {count}, where log_prob expects {expected}"


def _judge_values(subject: SequenceSubject, x: Tensor, conditionals: Distribution, how: str, start: int) -> None:
    """Test values x (N, T, ...) of any kind."""
    if interval(conditionals) is not None:
        values, counts = x[:, start:].flatten().unique(return_counts=True)
        if int(counts.max()) > 3 and not _has_atoms(conditionals):
            value = float(values[counts.argmax()])
            raise Violation(f"{how} drew exactly {value:.6g} {int(counts.max())} times, though x has a density")
    own = conditionals.log_prob(x)
    others = conditionals.log_prob(conditionals.sample(torch.Size((RANKS - 1,))).to(x))
    lower, ties = (others < own).sum(0), (others == own).sum(0)
    ranks = lower + (subject.uniform(own.shape) * (ties + 1)).long()
    for t in range(start, x.shape[1]):
        if uneven_ranks(ranks[:, t].flatten(), RANKS):
            raise Violation(f"{how}: log-probabilities at t={t} rank unlike draws from p(x_{t} | x_<{t})")
    if uneven_ranks(ranks[:, start:].flatten(), RANKS):
        raise Violation(f"{how}: log-probabilities rank unlike draws from the conditionals")
    if has_real_support(conditionals):
        _judge_balance(x, conditionals, how, start)


def _has_atoms(conditionals: Distribution) -> bool:
    drawn = conditionals.sample().flatten()
    return bool(drawn.unique().numel() < drawn.numel() - 3)


def _judge_balance(x: Tensor, conditionals: Distribution, how: str, start: int) -> None:
    """Test that E[p(Tx)J / (p(x) + p(Tx)J)] is equal for a map T with Jacobian J and its inverse (Barker 1965)."""
    centre, one, two = (conditionals.sample() for _ in range(3))  # T may depend on the past only, not on x
    base = conditionals.log_prob(x)
    volume = conditionals.event_shape.numel()
    for width in (0.5, 2.0):
        shift = width * (one - two).abs()
        terms = _accepted(conditionals.log_prob(x + shift) - base) - _accepted(conditionals.log_prob(x - shift) - base)
        _require_balance(terms[:, start:], how, "a shift")
    for factor in (1.5, 4.0):
        log_jacobian = volume * torch.tensor(factor, dtype=base.dtype, device="cpu").log()
        wider = conditionals.log_prob(centre + factor * (x - centre)) - base + log_jacobian
        narrower = conditionals.log_prob(centre + (x - centre) / factor) - base - log_jacobian
        _require_balance((_accepted(wider) - _accepted(narrower))[:, start:], how, "a stretch")


def _accepted(log_ratio: Tensor) -> Tensor:
    return log_ratio.nan_to_num(nan=0.0).sigmoid()


def _require_balance(terms: Tensor, how: str, what: str) -> None:
    errors = far_from_zero(terms.flatten())
    if errors is not None:
        raise Violation(
            f"{how}: likelihood ratios of the draws under {what} are {abs(errors):.1f} standard errors off balance"
        )


def _judge_filters(trial: Trial, count: int) -> None:
    conditionals = trial.subject.conditionals(trial.subject.batch(), trial.model)
    if head_of(conditionals).categorical() is None or (
        trial.subject.support is not None and len(trial.subject.support) < 2
    ):
        return
    sampled, streamed = (FILTERS, STREAMED) if trial.subject.thorough else QUICK
    for sharpened in sampled:
        x = trial.draw(count, **sharpened)
        trial.judge(x, **sharpened)
    for sharpened in streamed:
        trial.judge(trial.draw(count, "stream", **sharpened), "stream", **sharpened)
    if not isinstance(conditionals, Categorical):
        return
    eos = int(x.mode().values.mode().values)
    x = trial.draw(count, eos=eos)
    ended = (x == eos).cummax(1).values
    if not bool((x[ended] == eos).all()):
        raise Violation(f"{trial.label}sample with eos={eos} goes on after it")

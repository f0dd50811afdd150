"""Check that draws follow the likelihood."""

from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution

from chainrule._base import AutoregressiveModel
from chainrule.heads._adapter import head_of
from chainrule.state import select
from chainrule.testing._agreement import (
    Surprise,
    far_from_zero,
    has_real_support,
    interval,
    surprise,
    uneven_ranks,
    weighted,
)
from chainrule.testing._contract_check import contract_check
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Violation

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

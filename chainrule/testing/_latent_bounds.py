"""The bounds of a model with a latent code are bounds, and the KL divergence is one."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from chainrule._latent import ROWS, LatentModel
from chainrule.testing._contract_check import contract_check
from chainrule.testing._evidence import Average
from chainrule.testing._latent_subject import LatentSubject
from chainrule.testing._report import Result
from chainrule.testing._subject import Violation, independent_copy

NEAR = 0.02  # nats between the bound with 5,000 draws and a known likelihood
INTEGRALS = 8  # numbers of the code at most whose divergence is integrated
COUNTS = (1, 4, 16)  # draws of the bounds that are compared
NODES = 2001
EXACT = 1e-6  # of integrals over a normal density on a grid: their error is far below


@contract_check(LatentSubject)
@torch.no_grad()
def check_posterior(subject: LatentSubject) -> str:
    """Draws of q(z | x) have its mean and its variance, and its density is that of the draws.

    Draws of the prior have the moments of N(0, I), where the code has one layer.
    """
    posterior = subject.posterior
    mean, variance = posterior.mean, posterior.variance
    z = posterior.sample((subject.draws_each,), generator=subject.generator(1))
    Average.of(z).require(mean, "encode: the draws of row {row} have mean {seen}, where `mean` is {expected}")
    Average.of((z - mean) ** 2).require(
        variance, "encode: the draws of row {row} have variance {seen}, where `variance` is {expected}"
    )
    # Weights r / q of a narrower density r have mean 1, and are bounded.
    narrow = torch.distributions.Normal(mean, 0.7 * variance.sqrt()).log_prob(z).sum(-1)
    Average.of((narrow - posterior.log_prob(z)).exp()).require(
        torch.ones_like(mean[:, 0]), "encode: log_prob of row {row} is not the density of its draws: {seen}, not 1"
    )
    if subject.one_layer:
        drawn = subject.model.prior_sample(subject.draws_each, subject.generator(3))
        zeros = torch.zeros_like(drawn[0])
        Average.of(drawn).require(zeros, "prior_sample: number {row} of the code has mean {seen}, not {expected}")
        Average.of(drawn**2).require(zeros + 1, "prior_sample: number {row} has variance {seen}, not {expected}")
    return f"{subject.draws_each} draws for each of {len(subject.x)} rows"


@contract_check(LatentSubject)
@torch.no_grad()
def check_kl_divergence(subject: LatentSubject) -> str:
    """The KL divergence is never negative, the sum over the code, the mean of ln q − ln p over draws, and the integral.

    The integral and ln p are those of N(0, I) where the code has one layer.
    """
    model = subject.model
    kl = subject.of_rows(model.kl(subject.x, subject.generator(1), lengths=subject.lengths), "kl")
    terms = model.kl_terms(subject.x, subject.generator(1), lengths=subject.lengths)
    if tuple(terms.shape) != (len(subject.x), model.latent_size):
        raise Violation(f"kl_terms: expected (B, L) = ({len(kl)}, {model.latent_size}), got {tuple(terms.shape)}")
    if not bool((terms >= -1e-9).all()) or not bool((kl >= -1e-9).all()):
        least = min(float(terms.min()), float(kl.min()))
        raise Violation(f"the KL divergence is negative: {least:.4g} nats")
    if not torch.allclose(kl, terms.sum(-1)):
        raise Violation(f"kl of row 0 is {float(kl[0]):.6g} nats, its terms add up to {float(terms[0].sum()):.6g}")
    drawn = model.draw(subject.x, subject.draws_each, subject.generator(2), lengths=subject.lengths)
    exact = drawn.kl_terms.sum(-1)
    expected = Average.of(exact) if exact.dim() == 2 else exact
    Average.of(-drawn.log_ratio).require(
        expected, "over draws, ln q − ln p of row {row} is {seen} nats on average, where kl says {expected}"
    )
    if not subject.one_layer:
        return f"{subject.draws_each} draws for each of {len(kl)} rows"
    posterior = subject.posterior
    prior = torch.distributions.Normal(0.0, 1.0).log_prob(drawn.z).sum(-1)
    if not torch.allclose(drawn.log_ratio, prior - posterior.log_prob(drawn.z)):
        raise Violation("draw: log_ratio is not ln p(z) − ln q(z | x) with p(z) = N(0, I)")
    integrals = torch.stack([_integral(subject, number) for number in range(min(model.latent_size, INTEGRALS))], 1)
    gaps = (integrals - terms[:, : integrals.shape[1]]).abs()
    if not bool((gaps <= EXACT * (1 + integrals)).all()):
        row, number = divmod(int(gaps.argmax()), integrals.shape[1])
        raise Violation(
            f"kl_terms of row {row}, number {number}, is {float(terms[row, number]):.6g} nats, "
            f"the integral of q ln(q/p) {float(integrals[row, number]):.6g}"
        )
    return f"{subject.draws_each} draws and {integrals.shape[1]} integrals for each of {len(kl)} rows"


def _integral(subject: LatentSubject, number: int) -> Tensor:
    """∫ q ln(q / N(0, 1)) of one number of the code by its own density, the others at their means, (B,)."""
    posterior = subject.posterior
    mean, deviation = posterior.mean, posterior.variance.sqrt()
    steps = torch.linspace(-12, 12, NODES, dtype=mean.dtype, device=mean.device).unsqueeze(1)
    z = mean.repeat(NODES, 1, 1)
    z[..., number] = mean[:, number] + steps * deviation[:, number]
    log_q = posterior.log_prob(z)  # but for a constant, that of the other numbers
    width = 24 * deviation[:, number] / (NODES - 1)
    log_q = log_q - (log_q.logsumexp(0) + width.log())
    log_p = torch.distributions.Normal(0.0, 1.0).log_prob(z[..., number])
    return (log_q.exp() * (log_q - log_p)).sum(0) * width


@contract_check(LatentSubject)
@torch.no_grad()
def check_bounds(subject: LatentSubject) -> str:
    """In expectation `importance_bound` is the `elbo` with one draw, grows with the draws, and stays below ln p(x).

    Both are, in expectation, those of ln p(x | z), ln p(z) and ln q(z | x) of draws. p(x) is estimated from draws of
    the prior, where enough of them come near x; it exceeds the elbo, and e^importance_bound on average.
    """
    model, repeats = subject.model, max(subject.draws_each // 10, 50)
    elbo = Average.of(_repeated(subject, repeats, "elbo", 2))
    bounds = {count: Average.of(_repeated(subject, repeats, "importance_bound", count)) for count in COUNTS}
    drawn = model.draw(subject.x, repeats * COUNTS[-1], subject.generator(2), lengths=subject.lengths)
    weights = _log_likelihoods(subject, drawn.z) + drawn.log_ratio
    message = "elbo of row {row} is {seen} nats on average, ln p(x | z) + ln p(z) − ln q(z | x) {expected}"
    elbo.require(Average.of(weights), message)
    for count, bound in bounds.items():
        bound.require(
            Average.of(weights.view(-1, count, len(subject.x)).logsumexp(1) - math.log(count)),
            f"importance_bound of row {{row}} is {{seen}} nats on average, that of {count} weights {{expected}}",
        )
    for fewer, more in pairwise(COUNTS):
        bounds[fewer].require(
            bounds[more],
            f"importance_bound of row {{row}} falls from {{seen}} nats with {fewer} draws to {{expected}} with {more}",
            below=True,
        )
    evidence = _evidence(subject)
    if evidence is None:
        return f"{repeats} repetitions of 1, 4 and 16 draws; too few draws of the prior come near x to estimate p(x)"
    # One-sided: where q is narrow, the weights have so long a tail that their mean falls short of p(x).
    Average.of(weights.view(-1, COUNTS[-1], len(subject.x)).logsumexp(1).exp() / COUNTS[-1]).require(
        evidence,
        "the mean of e^importance_bound of row {row} is {seen}, above p(x), {expected} by draws from the prior",
        below=True,
    )
    elbo.require(
        Average(evidence.mean.log(), evidence.error / evidence.mean),
        "elbo of row {row} is {seen} nats, above ln p(x), {expected} by draws from the prior",
        below=True,
    )
    return f"{repeats} repetitions of 1, 4 and 16 draws, and {subject.draws_each} draws of the prior"


def _repeated(subject: LatentSubject, repeats: int, name: str, draws: int) -> Tensor:
    """A bound of each row with draws of its own in every repetition, (repetitions, B)."""
    rows = subject.rows.repeat(repeats)
    lengths = None if subject.lengths is None else subject.lengths[rows]
    bound = getattr(subject.model, name)
    numbers: Tensor = bound(subject.x[rows], draws, subject.generator(draws), lengths=lengths)
    return subject.of_rows(numbers, name, len(rows)).view(repeats, -1)


def _log_likelihoods(subject: LatentSubject, z: Tensor) -> Tensor:
    """ln p(x | z) of K codes (K, B, L) for each row, (K, B)."""
    rows = subject.rows.repeat(len(z))
    terms = []
    for part, codes in zip(rows.split(ROWS), z.flatten(0, 1).split(ROWS), strict=True):
        lengths = None if subject.lengths is None else subject.lengths[part]
        terms.append(subject.model.log_likelihood(subject.x[part], codes, lengths=lengths))
    return torch.cat(terms).view(len(z), -1)


def _evidence(subject: LatentSubject) -> Average | None:
    """p(x) of each row, from draws of the prior; `None` where few of them come near x."""
    z = subject.model.prior_sample(subject.draws_each, subject.generator(4))
    if tuple(z.shape) != (subject.draws_each, subject.model.latent_size):
        raise Violation(
            f"prior_sample: expected ({subject.draws_each}, {subject.model.latent_size}), got {tuple(z.shape)}"
        )
    log_likelihoods = _log_likelihoods(subject, z.unsqueeze(1).expand(-1, len(subject.x), -1))
    shares = log_likelihoods.softmax(0)
    if float((1 / (shares**2).sum(0)).min()) < 100:
        return None
    return Average.of(log_likelihoods.exp())


@torch.no_grad()
def check_exact(model: LatentModel, x: Tensor, exact: Tensor, *, samples: int = 5000, seed: int = 0) -> Result:
    """`importance_bound` with many draws is within 0.02 nats of a known ln p(x).

    Args:
        model: one whose likelihood is known.
        x: (B, ...).
        exact: (B,) ln p(x), nats.
        samples: draws for each row.
        seed: of the draws.
    """
    twin = independent_copy(model)
    wide = x.double() if x.is_floating_point() else x
    bound = twin.importance_bound(wide, samples, torch.Generator(wide.device).manual_seed(seed))
    gaps = (bound - exact).abs()
    row = int(gaps.argmax())
    detail = f"with {samples} draws row {row} has {float(bound[row]):.5g} nats, ln p(x) is {float(exact[row]):.5g}"
    return Result("exact", bool(gaps[row] <= NEAR), detail)

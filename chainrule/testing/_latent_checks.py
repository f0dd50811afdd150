"""Checks of the posterior, the KL divergence, the bounds and the decoder of models with a latent code."""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._latent import ROWS, LatentModel
from chainrule.heads._adapter import head_of
from chainrule.testing._agreement import ERRORS, Average
from chainrule.testing._contract_check import Result, contract_check
from chainrule.testing._row_subjects import LatentSubject
from chainrule.testing._subject import Violation, independent_copy

NEAR = 0.02  # allowed nats between the bound with 5,000 draws and a known likelihood
INTEGRALS = 8  # maximum number of code dimensions whose divergence is integrated
COUNTS = (1, 4, 16)  # draws of the compared bounds
NODES = 2001
EXACT = 1e-6  # tolerance of integrals over a normal density on a grid, whose error is far smaller


@contract_check(LatentSubject)
@torch.no_grad()
def check_posterior(subject: LatentSubject) -> str:
    """Check that draws of q(z | x) follow its mean, variance and density.

    If the code has one layer, draws of the prior must have the moments of N(0, I).
    """
    posterior = subject.posterior
    mean, variance = posterior.mean, posterior.variance
    z = posterior.sample((subject.draws_each,), generator=subject.generator(1))
    Average.of(z).require(mean, "encode: the draws of row {row} have mean {seen}, where `mean` is {expected}")
    Average.of((z - mean) ** 2).require(
        variance, "encode: the draws of row {row} have variance {seen}, where `variance` is {expected}"
    )
    # The weights r / q of a narrower density r are bounded and have mean 1.
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
    """Check that the KL divergence is >= 0 and the sum of its terms, and equals the mean of ln q − ln p over draws.

    If the code has one layer, p is N(0, I), and each term must also equal a numerical integral.
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
        raise Violation(f"kl of row 0 is {float(kl[0]):.6g} nats, the sum of its terms {float(terms[0].sum()):.6g}")
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
    """Integrate q ln(q / N(0, 1)) over one dimension of the code, with the others at their means, (B,)."""
    posterior = subject.posterior
    mean, deviation = posterior.mean, posterior.variance.sqrt()
    steps = torch.linspace(-12, 12, NODES, dtype=mean.dtype, device=mean.device).unsqueeze(1)
    z = mean.repeat(NODES, 1, 1)
    z[..., number] = mean[:, number] + steps * deviation[:, number]
    log_q = posterior.log_prob(z)  # up to a constant from the other dimensions, normalised away below
    width = 24 * deviation[:, number] / (NODES - 1)
    log_q = log_q - (log_q.logsumexp(0) + width.log())
    log_p = torch.distributions.Normal(0.0, 1.0).log_prob(z[..., number])
    return (log_q.exp() * (log_q - log_p)).sum(0) * width


@contract_check(LatentSubject)
@torch.no_grad()
def check_bounds(subject: LatentSubject) -> str:
    """Check that `importance_bound` with one draw is the `elbo`, grows with the draws, and stays below ln p(x).

    Both bounds must agree, in expectation, with ln p(x | z), ln p(z) and ln q(z | x) of draws. If enough draws of the
    prior come near x, they estimate p(x), which must exceed the elbo, and e^importance_bound on average.
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
            f"importance_bound of row {{row}} is {{seen}} nats on average, from {count} weights {{expected}}",
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
    # One-sided: if q is narrow, the weights have such a long tail that their sample mean falls short of p(x).
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
    """Compute a bound of each row several times with independent draws, (repetitions, B)."""
    rows = subject.rows.repeat(repeats)
    lengths = None if subject.lengths is None else subject.lengths[rows]
    bound = getattr(subject.model, name)
    numbers: Tensor = bound(subject.x[rows], draws, subject.generator(draws), lengths=lengths)
    return subject.of_rows(numbers, name, len(rows)).view(repeats, -1)


def _log_likelihoods(subject: LatentSubject, z: Tensor) -> Tensor:
    """Return ln p(x | z) of K codes (K, B, L) for each row, (K, B)."""
    rows = subject.rows.repeat(len(z))
    terms = []
    for part, codes in zip(rows.split(ROWS), z.flatten(0, 1).split(ROWS), strict=True):
        lengths = None if subject.lengths is None else subject.lengths[part]
        terms.append(subject.model.log_likelihood(subject.x[part], codes, lengths=lengths))
    return torch.cat(terms).view(len(z), -1)


def _evidence(subject: LatentSubject) -> Average | None:
    """Estimate p(x) of each row from draws of the prior; `None` if few of them come near x."""
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
    """Check that `importance_bound` with many draws is within 0.02 nats of a known ln p(x).

    Args:
        model: model with a known likelihood.
        x: (B, ...) rows.
        exact: (B,) ln p(x), nats.
        samples: number of draws for each row.
        seed: seed of the draws.
    """
    twin = independent_copy(model)
    wide = x.double() if x.is_floating_point() else x
    bound = twin.importance_bound(wide, samples, torch.Generator(wide.device).manual_seed(seed))
    gaps = (bound - exact).abs()
    row = int(gaps.argmax())
    detail = f"with {samples} draws row {row} has {float(bound[row]):.5g} nats, ln p(x) is {float(exact[row]):.5g}"
    return Result("exact", bool(gaps[row] <= NEAR), detail)


MOST_DRAWS = 4000  # from one decoded code
_SPREAD, _HALVINGS = 0.5, 20  # wanted standard deviation of log-ratios, and maximum number of halvings


@contract_check(LatentSubject)
@torch.no_grad()
def check_decoder(subject: LatentSubject) -> str:
    r"""Check that the decoder is normalised, its samples follow it, and `sample` decodes a draw of the prior.

    For integers, the probabilities of all distinct draws and the share of draws that occur once sum to 1 (Good 1953).
    For any x, ratios of the densities of two codes have mean 1 under the draws of one of them.
    """
    model = subject.model
    count = min(subject.draws_each, MOST_DRAWS)
    z = subject.normal((2, model.latent_size))
    near = z + 0.3 * subject.normal(z.shape)
    for code, other in zip(z, near, strict=True):
        decoded = model.decode(code.expand(count, -1))
        if not isinstance(decoded, Distribution) or tuple(decoded.batch_shape) != (count,):
            got = tuple(decoded.batch_shape) if isinstance(decoded, Distribution) else type(decoded).__name__
            raise Violation(f"decode: expected a distribution of batch shape (B,) = ({count},), got {got}")
        x = head_of(decoded).sample(generator=subject.generator(1))
        logs = _log_prob(decoded, x)
        if not (logs > -torch.inf).all():
            raise Violation(f"decode: a draw has probability 0: {x[~(logs > -torch.inf)][0].flatten()[:8].tolist()}")
        own = model.log_likelihood(x, code.expand(count, -1))
        if own.shape != logs.shape or not torch.allclose(own, logs):
            raise Violation("log_likelihood is not the log_prob of decode")
        if not x.is_floating_point():
            _require_total(x, logs)
        ratios = _tame(model, x, logs, code, other).exp()
        message = (
            "decode: the ratio of the densities of two codes has mean {seen} under the draws of one of them, not 1"
        )
        Average.of(ratios.unsqueeze(1)).require(torch.ones_like(ratios[:1]), message)
    drawn = model.sample(5, subject.generator(2))
    if drawn.shape[0] != 5 or drawn.shape[1:] != x.shape[1:]:
        raise Violation(f"sample: expected shape (5, {', '.join(map(str, x.shape[1:]))}), got {tuple(drawn.shape)}")
    z = model.prior_sample(5, generator := subject.generator(2))
    expected = head_of(model.decode(z)).sample(generator=generator)
    if not torch.equal(drawn.double().nan_to_num(), expected.double().nan_to_num()):
        raise Violation("sample: expected a draw of decode at a draw of prior_sample, got another")
    return f"{count} draws from each of 2 codes"


def _tame(model: LatentModel, x: Tensor, logs: Tensor, code: Tensor, other: Tensor) -> Tensor:
    """Return log-ratios (B,) of the densities of two codes, moving the second closer until their spread is small."""
    # Decoders of large images separate codes so well that no draw of one is likely under the other.
    for _ in range(_HALVINGS):
        ratios = _log_prob(model.decode(other.expand(len(x), -1)), x) - logs
        if ratios.std() <= _SPREAD:
            break
        other = (code + other) / 2
    return ratios


def _log_prob(decoded: Distribution, x: Tensor) -> Tensor:
    logs = decoded.log_prob(x)
    if tuple(logs.shape) != (len(x),):
        raise Violation(f"decode: expected log_prob of shape (B,) = ({len(x)},), got {tuple(logs.shape)}")
    return logs


def _require_total(x: Tensor, logs: Tensor) -> None:
    """Raise `Violation` unless the distinct draws have the expected total probability."""
    _, where, counts = x.flatten(1).unique(dim=0, return_inverse=True, return_counts=True)
    different = torch.zeros(len(counts), dtype=logs.dtype, device=logs.device).index_copy(0, where, logs)
    seen, unseen = float(different.exp().sum()), float((counts == 1).sum()) / len(x)
    # McAllester and Schapire (2000) bound the error of Good's estimate of the unseen mass.
    if not abs(seen + unseen - 1) <= ERRORS * len(x) ** -0.5 + 1e-6 or not seen <= 1 + 1e-6:
        raise Violation(
            f"decode: the probabilities of {len(counts)} different x sum to {seen:.6g}, "
            f"where {1 - unseen:.6g} of the probability is expected: the decoder is not normalised"
        )

"""All checks of a model with a latent code at once."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.heads import head_of
from chainrule.latent import LatentModel
from chainrule.testing.gradients import Attempt, require_gradients
from chainrule.testing.isolation import reseed
from chainrule.testing.latent_bounds import check_bounds, check_exact, check_kl_divergence, check_posterior
from chainrule.testing.latent_subject import ERRORS, Average, LatentSubject, latent_check
from chainrule.testing.leaves import changed, snapshot
from chainrule.testing.report import Report
from chainrule.testing.saving import save_and_load
from chainrule.testing.subject import DoesNotApply, Violation
from chainrule.testing.weights import jittered, refilled

ROUNDING = 1e-9  # relative; the same sums in batches of another size


def check_latent_model(
    model: LatentModel, x: Tensor, lengths: Tensor | None = None, *, exact: Tensor | None = None, seed: int = 0
) -> Report:
    """Test that a model with a latent code keeps the contract of `LatentModel`, on the given rows.

    The KL divergence is one, both bounds are bounds and agree with the densities they are made of, the decoder is
    normalised and its samples follow it, rows do not depend on each other nor on padding, gradients reach every
    parameter, a saved model is the same model, and a seed fixes every draw.

    Every check works on a copy of its own in float64 and evaluation mode; the model and the global random state are
    left as they are. The answer is fixed by the arguments. Of more than 4 rows the first 4 are used. A small model
    (a code of a few numbers, a few elements of x) is tested harder: its likelihood can be estimated from the prior.

    Args:
        model: any `LatentModel`.
        x: (B, ...) rows that the model is meant for.
        lengths: (B,) real elements of each row.
        exact: (B,) ln p(x) in nats, where it is known: the bound with 5,000 draws must be within 0.02 of it.
        seed: of every random choice of the checks.

    Returns:
        A report with `.ok` and `.results`, as that of `check_model`.

    Raises:
        ValueError: the arguments do not fit together.

    >>> from chainrule.models import VAE
    >>> model = VAE((1, 2, 2), levels=2, latent_size=2, hidden_size=4)
    >>> check_latent_model(model, torch.randint(2, (3, 1, 2, 2))).ok
    True
    """
    results = [check(model, x, None, lengths, seed=seed) for check in LATENT_CHECKS]
    if exact is not None:
        results.append(check_exact(model, x, exact, seed=seed))
    return Report(results)


@latent_check
@torch.no_grad()
def check_batch_independence(subject: LatentSubject) -> str:
    """Posterior, codes and log-likelihood of a row are the same alone and among other rows, in any order."""
    together = _answers(subject, subject.model, torch.arange(len(subject.x)))
    for name, numbers in together.items():
        for row in range(len(subject.x)):
            alone = _answers(subject, subject.model, torch.tensor([row]))[name]
            _require_same(numbers[row], alone[0], f"{name} of row {row} differs when it is alone")
    backwards = torch.arange(len(subject.x)).flip(0)
    for name, numbers in _answers(subject, subject.model, backwards).items():
        _require_same(numbers.flip(0), together[name], f"{name} differs when the rows are reversed")
    return f"{len(subject.x)} rows alone, together and reversed"


@latent_check
@torch.no_grad()
def check_padding_invariance(subject: LatentSubject) -> str:
    """Elements after `lengths` change nothing."""
    if subject.lengths is None:
        raise DoesNotApply("no lengths were given")
    padding = torch.arange(subject.x.shape[1], device=subject.device) >= subject.lengths.unsqueeze(1)
    expected = _answers(subject, subject.model, torch.arange(len(subject.x)))
    kept = subject.x
    subject.x = torch.where(padding.view(padding.shape + (1,) * (kept.dim() - 2)), kept.roll(1, 0), kept)
    for name, numbers in _answers(subject, subject.model, torch.arange(len(subject.x))).items():
        _require_same(numbers, expected[name], f"{name} depends on padding after lengths")
    return "other elements after lengths"


@latent_check
def check_gradients_reach_parameters(subject: LatentSubject) -> str:
    """`training_objective` gives every parameter a gradient that is not all zero, and finite."""

    def attempts() -> Iterator[Attempt]:
        model = subject.model
        for draw in (None, jittered):
            model = model.train() if draw is None else refilled(model, subject, draw).train()
            value = model.training_objective(subject.x, None, subject.lengths)
            subject.rows(value, "training_objective")
            yield model, [("training_objective", value.sum())], True

    return require_gradients(subject.model, attempts(), all_of_them=True)


@latent_check
@torch.no_grad()
def check_save_load(subject: LatentSubject) -> str:
    """The `state_dict`, through a file's bytes into a model with other weights, gives the same answers exactly."""
    rows = torch.arange(len(subject.x))
    return save_and_load(subject, subject.model, lambda model: _answers(subject, model, rows))


@latent_check
@torch.no_grad()
def check_reproducible(subject: LatentSubject) -> str:
    """A generator fixes samples and bounds whatever the global random state, and no answer changes the module."""
    model, given, before = subject.model, subject.given, snapshot(subject.model)
    found: list[dict[str, Tensor]] = []
    for attempt, seed in enumerate((1, 1, 2)):
        reseed(1000 + attempt)
        state = torch.get_rng_state()
        found.append(
            {
                "sample": model.sample(8, subject.generator(seed)).double(),
                "elbo": model.elbo(subject.x, 3, subject.generator(seed), **given),
                "importance_bound": model.importance_bound(subject.x, 3, subject.generator(seed), **given),
            }
        )
        if not torch.equal(state, torch.get_rng_state()):
            raise Violation("an answer moves the global random state though it was given a generator")
    for name, first in found[0].items():
        if not torch.equal(first.nan_to_num(), found[1][name].nan_to_num()):
            raise Violation(f"{name} gives two answers for one seed of its generator")
    if all(torch.equal(first.nan_to_num(), found[2][name].nan_to_num()) for name, first in found[0].items()):
        raise Violation("two seeds give the same sample and the same bounds: nothing is drawn from the generator")
    if paths := changed(before, snapshot(model)):
        raise Violation(f"an answer changed the module: {', '.join(paths[:3])}")
    return "sample, elbo and importance_bound with 2 seeds, under different global random states"


def _answers(subject: LatentSubject, model: LatentModel, rows: Tensor) -> dict[str, Tensor]:
    """Deterministic outputs for some rows, (rows, numbers)."""
    rows = rows.to(subject.device)
    x, lengths = subject.x[rows], None if subject.lengths is None else subject.lengths[rows]
    posterior = model.encode(x, lengths=lengths)
    z = torch.linspace(-1, 1, len(subject.x) * model.latent_size, dtype=torch.float64, device=subject.device)
    z = z.view(len(subject.x), -1)[rows]
    return {
        "encode": torch.cat([posterior.mean, posterior.variance], 1),
        "codes": model.codes(x, lengths=lengths),
        "log_likelihood": model.log_likelihood(x, z, lengths=lengths).unsqueeze(1),
    }


def _require_same(left: Tensor, right: Tensor, message: str) -> None:
    if left.shape != right.shape or not torch.allclose(left, right, rtol=ROUNDING, atol=ROUNDING, equal_nan=True):
        raise Violation(message)


ROWS = 4000  # drawn from one decoded code at most
_SPREAD, _HALVINGS = 0.5, 20  # standard deviation of log-ratios, and steps until it is reached


@latent_check
@torch.no_grad()
def check_decoder(subject: LatentSubject) -> str:
    r"""The decoder adds up to 1, its samples follow it, and `sample` draws a code from the prior and x from there.

    Of integers, the probabilities of all different x that were drawn, and the share of draws that came once, add up to
    1 (Good 1953). Of any x, ratios of the densities of two codes have mean 1 under the draws of one of them.
    """
    model = subject.model
    count = min(subject.draws, ROWS)
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
        Average.of(ratios.unsqueeze(1)).require(
            torch.ones(1, dtype=ratios.dtype, device=ratios.device),
            "decode: the ratio of the densities of two codes has mean {seen} under the draws of one of them, not 1",
        )
    drawn = model.sample(5, subject.generator(2))
    if drawn.shape[0] != 5 or drawn.shape[1:] != x.shape[1:]:
        raise Violation(f"sample: expected shape (5, {', '.join(map(str, x.shape[1:]))}), got {tuple(drawn.shape)}")
    own = model.prior_sample(5, generator := subject.generator(2))
    expected = head_of(model.decode(own)).sample(generator=generator)
    if not torch.equal(drawn.double().nan_to_num(), expected.double().nan_to_num()):
        raise Violation("sample: expected a draw of decode at a draw of prior_sample, got another")
    return f"{count} draws from each of {len(z)} codes"


def _tame(model: LatentModel, x: Tensor, logs: Tensor, code: Tensor, other: Tensor) -> Tensor:
    """Log-ratios (B,) of the densities of two codes, the other one so near that a mean of their exponentials is seen.

    The decoder of an image of many pixels tells codes apart so well that draws of one are never those of the other.
    """
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
    """Raise `Violation` unless the x that were drawn have the probability that they should have together."""
    _, where, counts = x.flatten(1).unique(dim=0, return_inverse=True, return_counts=True)
    different = torch.zeros(len(counts), dtype=logs.dtype, device=logs.device).index_copy(0, where, logs)
    seen, unseen = float(different.exp().sum()), float((counts == 1).sum()) / len(x)
    # The error of Good's estimate of what was not seen: McAllester and Schapire (2000).
    if not abs(seen + unseen - 1) <= ERRORS * len(x) ** -0.5 + 1e-6 or not seen <= 1 + 1e-6:
        raise Violation(
            f"decode: the probabilities of {len(counts)} different x add up to {seen:.6g}, "
            f"where {1 - unseen:.6g} of the probability is expected: the decoder is not normalised"
        )


LATENT_CHECKS = (
    check_posterior,
    check_kl_divergence,
    check_bounds,
    check_decoder,
    check_batch_independence,
    check_padding_invariance,
    check_gradients_reach_parameters,
    check_save_load,
    check_reproducible,
)

"""The decoder of a model with a latent code is normalised, and its samples follow it."""

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._latent import LatentModel
from chainrule.heads._adapter import head_of
from chainrule.testing._contract_check import contract_check
from chainrule.testing._evidence import ERRORS, Average
from chainrule.testing._latent_subject import LatentSubject
from chainrule.testing._subject import Violation

ROWS = 4000  # drawn from one decoded code at most
_SPREAD, _HALVINGS = 0.5, 20  # standard deviation of log-ratios, and steps until it is reached


@contract_check(LatentSubject)
@torch.no_grad()
def check_decoder(subject: LatentSubject) -> str:
    r"""The decoder adds up to 1, its samples follow it, and `sample` draws a code from the prior and x from there.

    Of integers, the probabilities of all different x that were drawn, and the share of draws that came once, add up to
    1 (Good 1953). Of any x, ratios of the densities of two codes have mean 1 under the draws of one of them.
    """
    model = subject.model
    count = min(subject.draws_each, ROWS)
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

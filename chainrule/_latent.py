"""Base classes of models with a latent code: autoencoders, and variational autoencoders with their bounds."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, TypedDict, Unpack

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import Context, TrainableModel
from chainrule._checks import refuse_context
from chainrule._ranges import check_sizes
from chainrule.heads._adapter import head_of
from chainrule.heads._diagonal_normal import DiagonalNormal
from chainrule.modes import in_evaluation, wide, widest
from chainrule.option_error import OptionError
from chainrule.ranges import Range

Weight = Annotated[float, Range(0.0, 1e4)]
"""Weight of a term in a training objective."""
ROWS = 512  # codes decoded at once for a bound: 100 MB for 64 features per pixel of MNIST


class CodeModel(TrainableModel):
    """Base class: a model that encodes x as a latent code of `latent_size` numbers, and decodes x from a code.

    Attributes:
        latent_size: number of dimensions L of a code.
    """

    latent_size: int

    @abstractmethod
    def codes(self, x: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """Encode each row, (B, L); for a variational model, the mean of the posterior."""

    @abstractmethod
    def from_codes(self, z: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        """Decode each code (B, L): the expected x if the decoder has one, else a draw from the decoder.

        An expected image is (B, C, H, W) real numbers in levels from 0 to V − 1.
        """


@dataclass(frozen=True)
class Draw:
    """Codes drawn from the posterior of each of B rows."""

    z: Tensor  # (K, B, L) codes, with gradients to the encoder
    log_ratio: Tensor  # (K, B) ln p(z) − ln q(z | x), nats
    # KL divergence per dimension, nats, (B, L), or (K, B, L) if a layer's posterior depends on the draw above
    kl_terms: Tensor


class LatentObjective(TypedDict, total=False):
    """Arguments of every `LatentModel`; their defaults are attributes of the class."""

    importance_samples: Annotated[int, Range(1, 1 << 16)]
    beta: Weight
    free_bits: Weight
    kl_warmup: Annotated[float, Range(0.0, 1.0)]
    doubly_reparameterised: bool


class LatentModel(CodeModel):
    r"""Base class: a model of x by a latent code z, with a prior, a decoder and an approximate posterior.

    .. math:: p(x) = \int p(z)\, p(x \mid z)\, dz, \qquad q(z \mid x) \approx p(z \mid x)

    The integral has no closed form, so there is no `log_prob`, but two lower bounds: the evidence lower bound (Kingma
    and Welling 2014; Rezende et al. 2014) and the importance-weighted bound (Burda et al. 2016), in nats per row,
    summed over all elements of x and all dimensions of z:

    .. math:: \mathrm{elbo} = E_q[\ln p(x \mid z)] - \mathrm{KL}(q(z \mid x) \| p(z)) \le
        \ln \frac1K \sum_{k=1}^K \frac{p(z_k)\, p(x \mid z_k)}{q(z_k \mid x)} \le \ln p(x)

    where the second bound holds in expectation over the draws :math:`z_k \sim q` and grows with K. A subclass defines
    `encode` and `decode`; with several layers of codes also `draw`, `prior_sample` and `codes`.

    Training maximises the first bound, or with `importance_samples` K > 1 the second:

    .. math:: \ln p(x \mid z) - w \sum_j \max(\lambda, \mathrm{KL}_j), \qquad
        w = \beta \min(1, \text{progress} / \text{warmup})

    where the KL divergence of dimension j is averaged over the batch before the comparison with λ (`free_bits`, Kingma
    et al. 2016), β is due to Higgins et al. (2017), and the warm-up of w to Bowman et al. (2016) and Sønderby et al.
    (2016). The variance of the doubly reparameterised gradient does not grow with K.

    Args:
        latent_size: number of dimensions L of a code.
        importance_samples: draws per row in training; more than 1 trains the importance-weighted bound.
        beta: weight of the KL divergence in training.
        free_bits: nats per dimension that training does not penalise.
        kl_warmup: fraction of the run in which the weight of the KL divergence grows from 0.
        doubly_reparameterised: train the encoder with the gradient of Tucker et al. (2019).
    """

    importance_samples: int = 1
    beta: float = 1.0
    free_bits: float = 0.0
    kl_warmup: float = 0.0
    doubly_reparameterised: bool = False

    def __init__(self, latent_size: int, **objective: Unpack[LatentObjective]):
        super().__init__()
        if unknown := objective.keys() - LatentObjective.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} has no argument {min(unknown)}")
        for argument, value in objective.items():
            setattr(self, argument, value)
        self.latent_size = latent_size
        check_sizes(latent_size=latent_size, importance_samples=self.importance_samples)
        for name, weight in (("beta", self.beta), ("free_bits", self.free_bits)):
            if not 0 <= weight < math.inf:
                raise OptionError(name, f"expected a finite number >= 0, got {weight}")
        if not 0 <= self.kl_warmup <= 1:
            raise ValueError(f"kl_warmup: expected a part of the run in [0, 1], got {self.kl_warmup}")
        if self.free_bits and (self.importance_samples > 1 or self.doubly_reparameterised):
            raise ValueError(
                "free_bits: needs the KL divergence per dimension, which the importance-weighted objective lacks: "
                f"leave it 0, or importance_samples 1 and doubly_reparameterised off, got {self.free_bits}"
            )

    @abstractmethod
    def encode(self, x: Tensor, *, lengths: Tensor | None = None) -> DiagonalNormal:
        """Return q(z | x), of batch shape (B,); with several layers of codes, the posterior of the top layer."""

    @abstractmethod
    def decode(self, z: Tensor) -> Distribution:
        """Return p(x | z) for codes (B, L), a distribution over x of batch shape (B,)."""

    def codes(self, x: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        return self.encode(x, lengths=lengths).mean

    def log_likelihood(self, x: Tensor, z: Tensor, *, lengths: Tensor | None = None) -> Tensor:
        """Return ln p(x | z) of B rows with a code each, (B,), nats."""
        return self.decode(z).log_prob(x)

    def draw(
        self,
        x: Tensor,
        samples: int,
        generator: torch.Generator | None = None,
        *,
        lengths: Tensor | None = None,
    ) -> Draw:
        """Draw codes from the posterior, with the terms of the bounds.

        Args:
            x: (B, ...).
            samples: number of draws K per row.
            generator: source of randomness.
            lengths: (B,) lengths of the rows.
        """
        return _drawn(self.encode(x, lengths=lengths), samples, generator)

    def prior_sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n codes from p(z), (n, L)."""
        like = next(self.parameters())
        return torch.randn(n, self.latent_size, generator=generator, dtype=like.dtype, device=like.device)

    def elbo(
        self, x: Tensor, samples: int = 1, generator: torch.Generator | None = None, *, lengths: Tensor | None = None
    ) -> Tensor:
        """Return the evidence lower bound of each row, (B,), nats, with `samples` draws of z."""
        _check_samples(samples)
        drawn = self.draw(x, samples, generator, lengths=lengths)
        return self._log_likelihoods(x, drawn.z, lengths).mean(0) - _over_draws(drawn.kl_terms).sum(-1)

    def kl(self, x: Tensor, generator: torch.Generator | None = None, *, lengths: Tensor | None = None) -> Tensor:
        """Return KL(q(z | x) ‖ p(z)) of each row, (B,), nats."""
        return self.kl_terms(x, generator, lengths=lengths).sum(-1)

    def kl_terms(self, x: Tensor, generator: torch.Generator | None = None, *, lengths: Tensor | None = None) -> Tensor:
        """Return the KL divergence per dimension, (B, L), nats.

        It is exact for one layer of codes; lower layers are exact given a draw of the layers above.
        """
        return _over_draws(self.draw(x, 1, generator, lengths=lengths).kl_terms)

    @torch.no_grad()
    def importance_bound(
        self,
        x: Tensor,
        samples: int = 100,
        generator: torch.Generator | None = None,
        *,
        lengths: Tensor | None = None,
        chunk: int = ROWS,
    ) -> Tensor:
        """Return the importance-weighted bound of each row with K = `samples` draws, (B,), float64, nats.

        Args:
            x: (B, ...).
            samples: number of draws K.
            generator: source of randomness.
            lengths: (B,) lengths of the rows.
            chunk: number of codes decoded at once, which bounds the memory.
        """
        _check_samples(samples)
        if chunk < 1:
            raise ValueError(f"chunk: expected at least 1 code at once, got {chunk}")
        if not len(x):
            return torch.zeros(0, dtype=widest(x.device), device=x.device)
        bounds = []
        # With few rows and many draws, each part of the draws encodes the rows again.
        for rows in torch.arange(len(x), device=x.device).split(max(1, chunk // samples)):
            part, own = x[rows], None if lengths is None else lengths[rows]
            most, total = max(1, chunk // len(rows)), None
            for count in _parts(samples, most):
                drawn = self.draw(part, count, generator, lengths=own)
                weights = wide(self._log_likelihoods(part, drawn.z, own) + drawn.log_ratio).logsumexp(0)
                total = weights if total is None else torch.logaddexp(total, weights)
            assert total is not None
            bounds.append(total - math.log(samples))
        return torch.cat(bounds)

    @in_evaluation
    @torch.no_grad()
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n rows of x: codes from the prior, then x from the decoder; equal seeds give equal draws."""
        if n < 1:
            raise ValueError(f"n: expected at least 1, got {n}")
        return head_of(self.decode(self.prior_sample(n, generator))).sample(generator=generator)

    def training_objective(
        self, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, progress: float = 1.0
    ) -> Tensor:
        """Return the training objective of each row, to be maximised, (B,), nats; see the class.

        Args:
            x: (B, ...).
            context: must be `None`.
            lengths: (B,) lengths of the rows.
            progress: fraction of the run done.
        """
        refuse_context(context)
        weight = self.beta * (min(1.0, progress / self.kl_warmup) if self.kl_warmup else 1.0)
        if self.doubly_reparameterised:
            drawn = _drawn(self.encode(x, lengths=lengths), self.importance_samples, None, detached=True)
            log_likelihoods = self._log_likelihoods(x, drawn.z, lengths)
            return doubly_reparameterised_bound(log_likelihoods + weight * drawn.log_ratio, drawn.z)
        drawn = self.draw(x, self.importance_samples, lengths=lengths)
        log_likelihoods = self._log_likelihoods(x, drawn.z, lengths)  # (K, B)
        if self.importance_samples > 1:
            return log_mean_exp(log_likelihoods + weight * drawn.log_ratio)
        terms = _over_draws(drawn.kl_terms)
        if self.free_bits:
            # Below λ, the divergence counts as the constant λ, without a gradient.
            terms = terms.where(terms.mean(0) > self.free_bits, self.free_bits)
        return log_likelihoods.squeeze(0) - weight * terms.sum(-1)

    def held_out_objective(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        """Return the `elbo` with one draw from torch's global random state, (B,), nats."""
        refuse_context(context)
        return self.elbo(x, lengths=lengths)

    def _log_likelihoods(self, x: Tensor, z: Tensor, lengths: Tensor | None) -> Tensor:
        """Return ln p(x | z) of K codes (K, B, L) for each row, (K, B)."""
        count = len(z)
        if count == 1:
            return self.log_likelihood(x, z.squeeze(0), lengths=lengths).unsqueeze(0)
        rows = x.expand(count, *x.shape).flatten(0, 1)
        own = None if lengths is None else lengths.repeat(count)
        return self.log_likelihood(rows, z.flatten(0, 1), lengths=own).view(count, -1)


def log_mean_exp(log_weights: Tensor) -> Tensor:
    """Return the log of the mean over K weights with logarithms (K, B), (B,)."""
    return log_weights.logsumexp(0) - math.log(len(log_weights))


def doubly_reparameterised_bound(log_weights: Tensor, z: Tensor) -> Tensor:
    r"""Return `log_mean_exp` of (K, B) log-weights with the gradient of Tucker et al. (2019), given draws z (K, B, L).

    .. math:: \nabla_\theta = \sum_k \tilde w_k \, \partial_\theta \ln w_k, \qquad
        \nabla_\phi = \sum_k \tilde w_k^2 \, \frac{\partial \ln w_k}{\partial z_k} \frac{\partial z_k}{\partial \phi},
        \qquad \tilde w = w / \sum_k w_k
    """
    shares = log_weights.detach().softmax(0)
    if z.requires_grad:
        z.register_hook(lambda gradient: gradient * shares.unsqueeze(-1).to(gradient.dtype))
    bound = log_mean_exp(log_weights.detach())
    through = (shares * log_weights).sum(0)
    return bound + through - through.detach()


def _drawn(
    posterior: DiagonalNormal, samples: int, generator: torch.Generator | None, *, detached: bool = False
) -> Draw:
    """Draw codes of one layer with prior N(0, I); `detached` gives ln q gradients only through z."""
    z = posterior.rsample((samples,), generator=generator)
    density = posterior.detached() if detached else posterior
    standard = DiagonalNormal(torch.zeros_like(posterior.mean), torch.zeros_like(posterior.mean))
    return Draw(z, standard.log_prob(z) - density.log_prob(z), posterior.kl_terms())


def _over_draws(kl_terms: Tensor) -> Tensor:
    return kl_terms.mean(0) if kl_terms.dim() == 3 else kl_terms


def _parts(total: int, most: int) -> list[int]:
    """Split a total into parts of `most`, and the rest."""
    whole, rest = divmod(total, most)
    return [most] * whole + [rest] * (rest > 0)


def _check_samples(samples: int) -> None:
    if samples < 1:
        raise OptionError("samples", f"expected at least 1 draw, got {samples}")

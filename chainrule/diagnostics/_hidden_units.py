"""Units: hidden ones that saturate or are dead, and the active ones of a latent code."""

from dataclasses import dataclass

import torch
from torch import Tensor

from chainrule._latent import CodeModel, LatentModel
from chainrule.models._conditioned import Conditioned
from chainrule.modes import device_of, evaluating, wide

FLAT = 0.1  # share of the largest slope below which a nonlinearity counts as flat
BINS = 20
SIGMOIDS = ("input", "forget", "output", "reset", "update")


def saturation(values: Tensor, kind: str) -> float:
    """Return the share of values (.., M) at which "tanh" or "sigmoid" is flat: below a tenth of its largest slope."""
    slope = 1 - values**2 if kind == "tanh" else 4 * values * (1 - values)
    return float(wide(slope < FLAT).mean())


def dead_units(values: Tensor) -> float:
    """Return the share of ReLU units that are zero at every element (P, M), and so get no gradient."""
    return float(wide((values == 0).all(0)).mean())


def histogram(values: Tensor) -> Tensor:
    """Return the shares of a gate's values in twenty equal bins of [0, 1]."""
    counts = torch.histc(wide(values.cpu()), BINS, 0, 1)
    return counts / counts.sum()


ROWS = 1024  # rows per batch


@dataclass(frozen=True)
class LatentUse:
    """Measurements of how a model uses its latent code.

    Args:
        codes: (N, L) posterior mean of each row, or the code of an autoencoder.
        variances: (L,) variance of the posterior means over the rows, per dimension.
        kl: (L,) mean KL divergence from the prior over the rows, per dimension, nats; `None` for an autoencoder.
        active: (L,) booleans, true if the variance is above the threshold.
        remedies: changes to try if the posterior has collapsed, most promising first; empty otherwise.
    """

    codes: Tensor
    variances: Tensor
    kl: Tensor | None
    active: Tensor
    remedies: tuple[str, ...]

    @property
    def count(self) -> int:
        """Number of active dimensions."""
        return int(self.active.sum())

    @property
    def ranked(self) -> list[int]:
        """Active dimensions by decreasing KL divergence, or by decreasing variance for an autoencoder."""
        order = (self.variances if self.kl is None else self.kl).argsort(descending=True, stable=True)
        return [number for number in order.tolist() if self.active[number]]

    @property
    def collapsed(self) -> bool:
        """True if no latent dimension is active: the decoder ignores the code."""
        return not bool(self.active.any())

    def __str__(self) -> str:
        size, nats = len(self.active), "" if self.kl is None else f", {float(self.kl.sum()):.2f} nats of KL divergence"
        if self.collapsed:
            return f"Collapsed: no dimension of {size} is active{nats}: the decoder ignores the code."
        return f"Not collapsed: {self.count} of {size} dimensions {'is' if self.count == 1 else 'are'} active{nats}."


@torch.no_grad()
def active_units(model: CodeModel, x: Tensor, threshold: float = 0.01, *, lengths: Tensor | None = None) -> LatentUse:
    r"""Find the active units (Burda et al. 2016), latent dimensions that distinguish rows, and their KL divergences.

    .. math:: A_j = \mathrm{Var}_x\left( E_{q(z \mid x)}[z_j] \right) > \text{threshold}

    The posterior of an inactive dimension equals the prior for every x and carries no information. If all dimensions
    are inactive, the posterior has collapsed, and the result suggests remedies that fit the model's settings.

    Args:
        model: the model; it runs in evaluation mode, and its mode is restored.
        x: (N, ...) rows, a few hundred at least.
        threshold: minimum variance of an active dimension.
        lengths: (N,) lengths of the rows.

    >>> from chainrule.models import VAE
    >>> use = active_units(VAE((1, 4, 4), 2, latent_size=3, hidden_size=8), torch.randint(2, (50, 1, 4, 4)))
    >>> use.variances.shape, use.kl.shape
    (torch.Size([3]), torch.Size([3]))
    """
    if len(x) < 2:
        raise ValueError(f"x: expected at least 2 rows, whose codes can differ, got {len(x)}")
    device = device_of(model)
    generator = torch.Generator(device).manual_seed(0)
    codes, terms = [], []
    with evaluating(model):
        for rows in torch.arange(len(x), device="cpu").split(ROWS):
            part, own = x[rows].to(device), None if lengths is None else lengths[rows].to(device)
            codes.append(wide(model.codes(part, lengths=own)))
            if isinstance(model, LatentModel):
                terms.append(wide(model.kl_terms(part, generator, lengths=own)))
    means = torch.cat(codes)
    variances = means.var(0)
    active = variances > threshold
    remedies = () if bool(active.any()) else _remedies(model)
    return LatentUse(means, variances, torch.cat(terms).mean(0) if terms else None, active, remedies)


def _remedies(model: CodeModel) -> tuple[str, ...]:
    general = "train longer, or with a lower learning rate"
    return (*_bound_remedies(model), general) if isinstance(model, LatentModel) else (general,)


def _bound_remedies(model: LatentModel) -> list[str]:
    remedies = []
    if model.beta > 1:
        remedies.append(f"beta is {model.beta:g}: lower it to 1")
    if not model.kl_warmup:
        remedies.append(
            "kl_warmup is 0: let the weight of the KL divergence grow over the first third (--kl-warmup 0.3)"
        )
    if not model.free_bits and model.importance_samples == 1 and not model.doubly_reparameterised:
        remedies.append("free_bits is 0: exempt some nats of each latent dimension from the cost (--free-bits 0.1)")
    decoded = model.decode(torch.zeros(1, model.latent_size, device=device_of(model)))
    if isinstance(decoded, Conditioned):
        remedies.append("the decoder reads its own output: weaken it by fewer layers or smaller kernels")
    return remedies

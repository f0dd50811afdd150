"""Draw from any distribution with an explicit generator; `torch.distributions` has no such argument of its own."""

import torch
from torch import Tensor, distributions

from chainrule.heads.adaptive_categorical import AdaptiveCategorical
from chainrule.heads.bernoulli import Bernoulli
from chainrule.heads.categorical import Categorical, check_filters
from chainrule.heads.discretized_logistic_mixture import DiscretizedLogisticMixture
from chainrule.heads.location_scale_mixture import LocationScaleMixture
from chainrule.heads.pixel_logistic_mixture import PixelLogisticMixture
from chainrule.heads.table_column import TableColumn


def draw(
    distribution: distributions.Distribution,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one value per batch entry, tempered and filtered where the distribution is over symbols, bits or levels.

    Raises:
        ValueError: a filter is out of range, or is asked of a distribution that is none of these: a power of a mixture
            of densities is no such mixture, and a pixel is sharpened channel by channel.
    """
    filtering = temperature != 1 or top_k is not None or top_p is not None
    if isinstance(distribution, distributions.Categorical):
        categorical: Categorical | AdaptiveCategorical
        if isinstance(distribution, (Categorical, AdaptiveCategorical)):
            categorical = distribution
        else:
            categorical = Categorical(distribution.logits)
        if filtering:
            categorical = categorical.filtered(temperature, top_k, top_p)
        return categorical.sample(generator=generator)
    if isinstance(distribution, distributions.Bernoulli):
        binary = distribution if isinstance(distribution, Bernoulli) else Bernoulli(distribution.logits)
        if filtering:
            binary = binary.filtered(temperature, top_k, top_p)
        return binary.sample(generator=generator)
    if isinstance(distribution, DiscretizedLogisticMixture) and filtering:
        return distribution.filtered(temperature, top_k, top_p).sample(generator=generator)
    if filtering:
        check_filters(temperature, top_k, top_p)
        raise ValueError(
            "temperature, top_k and top_p need a categorical distribution, "
            f"got {type(distribution).__name__}: leave them at their defaults"
        )
    if isinstance(distribution, (LocationScaleMixture, PixelLogisticMixture, TableColumn)):
        return distribution.sample(generator=generator)
    if generator is None:
        return distribution.sample()
    # Other torch distributions read the global generator only: lend them a seed of ours and put theirs back.
    device = generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    with torch.random.fork_rng(devices=[device] if device.type != "cpu" else []):
        torch.manual_seed(seed)
        return distribution.sample()

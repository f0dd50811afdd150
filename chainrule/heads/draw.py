"""Draw from any distribution with an explicit generator; `torch.distributions` has no such argument of its own."""

import torch
from torch import Tensor, distributions

from chainrule.heads.categorical import Categorical, check_filters


def draw(
    distribution: distributions.Distribution,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Draw one value per batch entry, tempered and filtered where the distribution is categorical.

    Raises:
        ValueError: a filter is out of range, or is asked of a distribution that is not categorical.
    """
    filtering = temperature != 1 or top_k is not None or top_p is not None
    if isinstance(distribution, distributions.Categorical):
        categorical = distribution if isinstance(distribution, Categorical) else Categorical(distribution.logits)
        if filtering:
            categorical = categorical.filtered(temperature, top_k, top_p)
        return categorical.sample(generator=generator)
    if filtering:
        check_filters(temperature, top_k, top_p)
        raise ValueError(
            "temperature, top_k and top_p need a categorical distribution, "
            f"got {type(distribution).__name__}: leave them at their defaults"
        )
    if generator is None:
        return distribution.sample()
    # Other torch distributions read the global generator only: lend them a seed of ours and put theirs back.
    device = generator.device
    seed = int(torch.randint(2**62, (), generator=generator, device=device))
    with torch.random.fork_rng(devices=[device] if device.type != "cpu" else []):
        torch.manual_seed(seed)
        return distribution.sample()

"""A MADE averaged over several orders and masks."""

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor, nn

from chainrule._modes import in_evaluation
from chainrule._ranges import check_sizes
from chainrule.models._made import MADE


@final
class MADEEnsemble(nn.Module):
    r"""One MADE under K sets of masks, averaged as probabilities (Germain et al. 2015; Uria et al. 2014).

    .. math:: \log p(x \mid c) = \operatorname{logsumexp}_k \log p_k(x \mid c) - \log K

    The average of normalised models is normalised; the average of their logits is not. Members share all weights:
    training each batch under another of them is order- and connectivity-agnostic training.

    The ensemble is an exact density with a sampler but not an `AutoregressiveModel`, because members that visit the
    columns in different orders share no conditionals. Each member is one and completes rows in its own order.

    Args:
        made: the model whose weights are shared; its own masks are not among the K.
        num_masks: K.
        generator: source of the orders and of the units' degrees.
        orders: orders that the members take in turn, for images some of `chainrule.layers.raster_orders`; with
            `made.order` alone, only connections differ. None draws one for each member.

    >>> ensemble = MADEEnsemble(MADE(4, [16]), num_masks=8, generator=torch.Generator().manual_seed(0))
    >>> x = ensemble.sample(3, generator=torch.Generator().manual_seed(1))
    >>> ensemble.log_prob(x).shape, ensemble.member(0).order
    (torch.Size([3]), tensor([0, 1, 3, 2]))
    """

    orders: Tensor

    def __init__(
        self,
        made: MADE,
        num_masks: int,
        *,
        generator: torch.Generator,
        orders: Sequence[Sequence[int] | Tensor] | Tensor | None = None,
    ):
        super().__init__()
        check_sizes(num_masks=num_masks)
        if orders is not None and len(orders) == 0:
            raise ValueError("orders: expected at least one, or None to draw them, got none")
        self.made = made
        self.num_masks = num_masks
        taken = [None if orders is None else orders[number % len(orders)] for number in range(num_masks)]
        members = [made.resampled(generator, order) for order in taken]
        self.register_buffer("orders", torch.stack([member.order for member in members]))
        for number in range(len(made.hidden_sizes)):
            degrees = torch.stack([member.degrees[1 + number] for member in members])
            self.register_buffer(f"degrees_{number}", degrees)

    def member(self, index: int) -> MADE:
        """Return the model under one set of masks, counted from 0; it shares the ensemble's parameters."""
        degrees = [self.get_buffer(f"degrees_{number}")[index] for number in range(len(self.made.hidden_sizes))]
        return self.made.with_masks(self.orders[index], degrees)

    def log_prob(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        """Exact log-likelihood of each row, (B,), nats."""
        terms = torch.stack([self.member(index).log_prob(x, context) for index in range(self.num_masks)])
        return terms.logsumexp(0) - math.log(self.num_masks)

    @in_evaluation
    @torch.no_grad()
    def sample(self, n: int, context: Tensor | None = None, *, generator: torch.Generator | None = None) -> Tensor:
        """Draw n rows, (n, D), each from a member drawn for it.

        Args:
            n: number of rows.
            context: batch first with n rows, or one row for all.
            generator: source of randomness; the same seed gives the same sample.
        """
        check_sizes(n=n)
        device = self.orders.device
        source = device if generator is None else generator.device
        chosen = torch.randint(self.num_masks, (n,), generator=generator, device=source).to(device)
        places, drawn = [], []
        for index in chosen.unique().tolist():
            (rows,) = (chosen == index).nonzero(as_tuple=True)
            own = context if context is None or len(context) == 1 else context[rows.to(context.device)]
            places.append(rows)
            drawn.append(self.member(index).sample(len(rows), own, generator=generator))
        return torch.cat(drawn)[torch.cat(places).argsort()]

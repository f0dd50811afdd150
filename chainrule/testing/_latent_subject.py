"""Subject for models with a latent code."""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from chainrule._base import Context, length_mask
from chainrule._latent import LatentModel
from chainrule.heads import Head
from chainrule.heads._adapter import head_of
from chainrule.testing._subject import OPERATIONS, Batch, Subject, Violation, filled

MOST, LEAST = 5_000, 200  # limits of the draws per row, which depend on the size of the model


class LatentSubject(Subject[LatentModel]):
    """Subject for a `LatentModel`; the context of a batch holds a latent code per row."""

    models, named = LatentModel, "a LatentModel"
    gradient_draws, finite_gradients = ("jittered",), True

    @classmethod
    def check_arguments(cls, model: LatentModel, x: Tensor, context: Context, lengths: Tensor | None) -> None:
        if context is not None:
            raise ValueError("context: expected None, as models with a latent code take no context")
        super().check_arguments(model, x, context, lengths)

    @cached_property
    def draws_each(self) -> int:
        """Number of codes per row that the checks can afford."""
        work = 2 * sum(weight.numel() for weight in self.model.parameters()) * len(self.x) + 1
        return int(min(max(OPERATIONS / work / 8, LEAST), MOST))

    def batch(self, time: int | None = None) -> Batch:
        size = len(self.x), self.model.latent_size
        z = torch.linspace(-1, 1, size[0] * size[1], dtype=torch.float64, device=self.device)
        return Batch(self.x, z.view(size), self.lengths)

    def numbers(self, batch: Batch, model: LatentModel | None = None) -> Tensor:
        model, (x, z, lengths) = model or self.model, batch
        posterior, codes = model.encode(x, lengths=lengths), model.codes(x, lengths=lengths)
        # Per element, because `distance` scales the numbers of a row by the largest.
        log_likelihood = model.log_likelihood(x, z, lengths=lengths) / self.x[0].numel()
        return torch.cat([posterior.mean, posterior.variance, codes, log_likelihood.unsqueeze(1)], 1).unsqueeze(1)

    def draws(self, generator: torch.Generator) -> dict[str, Tensor]:
        model, lengths = self.model, self.lengths
        return {
            "sample": model.sample(8, generator).double(),
            "elbo": model.elbo(self.x, 3, generator, lengths=lengths),
            "importance_bound": model.importance_bound(self.x, 3, generator, lengths=lengths),
        }

    def objectives(self, model: LatentModel) -> Iterator[tuple[str, Tensor]]:
        value = model.train().training_objective(self.x, None, self.lengths)
        yield "training_objective", self.of_rows(value, "training_objective").sum()

    def paddings(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        real = length_mask(self.ends(batch), batch.x.shape[1])
        yield "other elements", batch._replace(x=filled(batch.x, batch.x.roll(1, 0), real))

    @cached_property
    def posterior(self) -> Head:
        """Result of `encode` for the rows, with checked type and shape."""
        posterior = head_of(self.model.encode(self.x, lengths=self.lengths))
        if tuple(posterior.batch_shape) != (len(self.x),) or len(posterior.event_shape) != 1:
            raise Violation(
                f"encode: expected batch shape (B,) = ({len(self.x)},) and one axis of numbers, "
                f"got {tuple(posterior.batch_shape)} and {tuple(posterior.event_shape)}"
            )
        return posterior

    def of_rows(self, numbers: Tensor, name: str, rows: int | None = None) -> Tensor:
        """Require one finite number per row."""
        rows = rows or len(self.x)
        if tuple(numbers.shape) != (rows,):
            raise Violation(f"{name}: expected shape (B,) = ({rows},), got {tuple(numbers.shape)}")
        if not numbers.isfinite().all():
            raise Violation(f"{name} of row {int((~numbers.isfinite()).nonzero()[0])} is not finite")
        return numbers

    @property
    def one_layer(self) -> bool:
        """True if the code has a single layer, with posterior `encode` and prior N(0, I)."""
        return self.posterior.event_shape[0] == self.model.latent_size

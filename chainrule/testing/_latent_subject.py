"""A model with a latent code under examination."""

from collections.abc import Iterator
from functools import cached_property

import torch
from torch import Tensor

from chainrule._base import Context, length_mask
from chainrule._latent import LatentModel
from chainrule.heads import Head
from chainrule.heads._adapter import head_of
from chainrule.testing._subject import OPERATIONS, Batch, Subject, Violation, filled

MOST, LEAST = 5_000, 200  # draws for each row, by the size of the model


class LatentSubject(Subject[LatentModel]):
    """A `LatentModel`; the rows that it is asked about have a code each as their context."""

    models, named = LatentModel, "a LatentModel"
    gradient_draws, finite_gradients = ("jittered",), True

    @classmethod
    def check_arguments(cls, model: LatentModel, x: Tensor, context: Context, lengths: Tensor | None) -> None:
        if context is not None:
            raise ValueError("context: models with a latent code are not conditioned on anything; leave it None")
        super().check_arguments(model, x, context, lengths)

    @cached_property
    def draws_each(self) -> int:
        """How many codes of each row the checks may afford."""
        work = 2 * sum(weight.numel() for weight in self.model.parameters()) * len(self.x) + 1
        return int(min(max(OPERATIONS / work / 8, LEAST), MOST))

    def batch(self, time: int | None = None) -> Batch:
        size = len(self.x), self.model.latent_size
        z = torch.linspace(-1, 1, size[0] * size[1], dtype=torch.float64, device=self.device)
        return Batch(self.x, z.view(size), self.lengths)

    def numbers(self, batch: Batch, model: LatentModel | None = None) -> Tensor:
        model, (x, z, lengths) = model or self.model, batch
        posterior, codes = model.encode(x, lengths=lengths), model.codes(x, lengths=lengths)
        # By element, as the numbers of a row are compared at the scale of the largest.
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
        """`encode` of the rows; the kind and shape of the answer is checked."""
        posterior = head_of(self.model.encode(self.x, lengths=self.lengths))
        if tuple(posterior.batch_shape) != (len(self.x),) or len(posterior.event_shape) != 1:
            raise Violation(
                f"encode: expected batch shape (B,) = ({len(self.x)},) and one axis of numbers, "
                f"got {tuple(posterior.batch_shape)} and {tuple(posterior.event_shape)}"
            )
        return posterior

    def of_rows(self, numbers: Tensor, name: str, rows: int | None = None) -> Tensor:
        """Numbers that must be finite, one for each row."""
        rows = rows or len(self.x)
        if tuple(numbers.shape) != (rows,):
            raise Violation(f"{name}: expected shape (B,) = ({rows},), got {tuple(numbers.shape)}")
        if not numbers.isfinite().all():
            raise Violation(f"{name} of row {int((~numbers.isfinite()).nonzero()[0])} is not finite")
        return numbers

    @property
    def one_layer(self) -> bool:
        """Whether the code is a single layer, whose posterior is `encode` and whose prior is N(0, I)."""
        return self.posterior.event_shape[0] == self.model.latent_size

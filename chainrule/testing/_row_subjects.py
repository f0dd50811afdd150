"""Subjects for models without conditionals of elements: of labels, and with a latent code."""

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import Context, LikelihoodModel
from chainrule._checks import length_mask
from chainrule._latent import LatentModel
from chainrule.heads import Head
from chainrule.heads._adapter import head_of
from chainrule.state import leaves, map_state
from chainrule.testing._agreement import finite_support
from chainrule.testing._subject import OPERATIONS, Batch, DoesNotApply, Subject, Violation, filled

_PROBES = 16  # maximum number of labels at which distributions are compared


class LabelSubject(Subject[LikelihoodModel]):
    """Subject for p(y | x): x holds the labels y, (B, ...), or (B, T) for one per element, and context the inputs.

    Batches hold P labels per row, (B, P, ...).
    """

    models, named, axes = LikelihoodModel, "a LikelihoodModel of labels", 1

    @classmethod
    def check_arguments(cls, model: LikelihoodModel, x: Tensor, context: Context, lengths: Tensor | None) -> None:
        if not leaves(context):
            raise ValueError("context: expected the inputs of the labels, got none")
        super().check_arguments(model, x, context, lengths)

    @classmethod
    def time_of(cls, model: LikelihoodModel, x: Tensor) -> int:
        if x.dim() < 2:
            raise ValueError('lengths: expected None, as a row has one label; pass context["lengths"] for the inputs')
        return x.shape[1]

    def batch(self, time: int | None = None) -> Batch:
        return Batch(self.probes, self.context, self.lengths)

    def numbers(self, batch: Batch, model: LikelihoodModel | None = None) -> Tensor:
        rows, probes = batch.x.shape[:2]

        def repeated(leaf: Tensor) -> Tensor:
            return leaf.repeat_interleave(probes, 0) if len(leaf) == rows else leaf

        # All labels of a row in one call, on copies of the row.
        answer = (model or self.model).log_prob(batch.x.flatten(0, 1), *map_state(repeated, batch[1:]))
        if tuple(answer.shape) != (rows * probes,):
            raise Violation(f"log_prob: expected shape (B,) = ({rows * probes},), got {tuple(answer.shape)}")
        return answer.view(rows, 1, probes)

    def further(self, batch: Batch, model: LikelihoodModel | None = None, *, steps: int = 2) -> dict[str, Tensor]:
        answer = self.distribution(batch, model)
        terms = [answer.log_prob(y) for y in batch.x.unbind(1)]
        # The batch shape of a distribution may have more axes than the rows.
        return {"forward": torch.stack([term.view(len(term), -1).sum(1) for term in terms], -1).unsqueeze(1)}

    def distribution(self, batch: Batch, model: LikelihoodModel | None = None) -> Distribution:
        """Call `forward`, and check the type and shape of the result."""
        called: Any = model or self.model
        answer = called(batch.context) if batch.lengths is None else called(batch.context, batch.lengths)
        if not isinstance(answer, Distribution):
            raise Violation(f"forward: expected a torch Distribution, got {type(answer).__name__}")
        rows = leaves(batch.context)[0].shape[0]
        if answer.batch_shape[:1] != (rows,):
            raise Violation(f"forward: expected batch shape (B, ...) = ({rows}, ...), got {tuple(answer.batch_shape)}")
        return answer

    def objectives(self, model: LikelihoodModel) -> Iterator[tuple[str, Tensor]]:
        for y in self.probes.unbind(1):
            totals = model.log_prob(y, self.context, self.lengths)
            # Skip impossible labels, for example those that tag constraints forbid.
            yield "log_prob", totals[totals.isfinite()].sum()

    def cut(self, batch: Batch, length: int) -> Batch | None:
        context = self.over_time(lambda leaf: leaf[:, :length], batch.context)
        if self.labels_elements:
            return Batch(batch.x[:, :, :length], context)
        return self._ending(batch._replace(context=context), torch.full_like(self.rows, length))

    def shortened(self) -> Iterator[tuple[Batch, Batch]]:
        if self.real is None:
            raise DoesNotApply("the rows have no lengths: neither lengths nor context['lengths']")
        self.adds_up = self.labels_elements
        shares = torch.tensor([0.0, 1.0, 0.5, 0.25], dtype=torch.float64, device=self.device)[: len(self.x)]
        yield self.batch(), self._ending(self.batch(), (self.real * shares).ceil().long())

    def ends(self, batch: Batch) -> Tensor:
        assert self.labels_elements or isinstance(batch.context, dict)
        return super().ends(batch) if self.labels_elements else batch.context["lengths"]

    def paddings(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        real = length_mask(self.ends(batch), self.time)

        def over_time(change: Callable[[Tensor], Tensor]) -> Batch:
            return batch._replace(context=self.over_time(change, batch.context))

        yield "other elements", over_time(lambda leaf: filled(leaf, leaf.roll(1, 0), real))
        if any(leaf.is_floating_point() and leaf.dim() > 1 for leaf in leaves(batch.context)):
            nan = torch.tensor(torch.nan, dtype=torch.float64, device=self.device)
            yield "nan", over_time(lambda leaf: filled(leaf, nan, real) if leaf.is_floating_point() else leaf)
        longer = over_time(lambda leaf: torch.cat([leaf, leaf.flip(1)[:, :3]], 1))
        if not self.labels_elements:
            yield "more elements", longer
            return
        yield "more elements", longer._replace(x=torch.cat([batch.x, batch.x.flip(2)[:, :, :3]], 2))
        for label in (-1, 2**30):
            yield f"the label {label}", batch._replace(x=torch.where(real.unsqueeze(1), batch.x, label))

    def over_time(self, change: Callable[[Tensor], Tensor], context: Context) -> Context:
        """Change every (B, T, ...) tensor of the context."""
        return map_state(lambda leaf: change(leaf) if leaf.dim() > 1 and leaf.shape[1] == self.time else leaf, context)

    def _ending(self, batch: Batch, lengths: Tensor) -> Batch:
        """Set the lengths of the rows."""
        if self.labels_elements:
            return batch._replace(lengths=lengths)
        assert isinstance(batch.context, dict)
        return batch._replace(context={**batch.context, "lengths": lengths})

    @cached_property
    def answer(self) -> Distribution:
        """Result of `forward` for the rows."""
        with torch.no_grad():
            return self.distribution(Batch(self.x, self.context, self.lengths))

    @cached_property
    def labels_elements(self) -> bool:
        """True if there is a label for every element, false if for whole rows."""
        return len(self.answer.event_shape) == 1 and self.answer.event_shape[0] == self.time

    @cached_property
    def alphabet(self) -> Tensor | None:
        """Possible values of a label, (K, ...), or `None` if they cannot be listed."""
        if not self.labels_elements:
            return finite_support(self.answer)
        constraint: Any = getattr(self.answer.support, "base_constraint", None)
        if not getattr(constraint, "is_discrete", False):
            return None
        return torch.arange(constraint.lower_bound, constraint.upper_bound + 1, device=self.device)

    @cached_property
    def time(self) -> int:
        """Length T: size of the second axis of the context's first tensor that has one, else 0."""
        return next((leaf.shape[1] for leaf in leaves(self.context) if leaf.dim() > 1), 0)

    @cached_property
    def real(self) -> Tensor | None:
        """Lengths of the rows without padding, (B,), or `None` if they cannot be set."""
        if self.labels_elements:
            return torch.full_like(self.rows, self.time) if self.lengths is None else self.lengths
        lengths = self.context.get("lengths") if isinstance(self.context, dict) else None
        return lengths if isinstance(lengths, Tensor) and lengths.shape == (len(self.x),) else None

    @cached_property
    def probes(self) -> Tensor:
        """Labels at which distributions are compared, (B, P, ...): the rows' labels, and others in the support."""
        labels = [self.x, self.x.roll(1, 0)]
        if self.alphabet is None:
            labels += [self.answer.sample().reshape(self.x.shape).to(self.x) for _ in range(4)]
        elif self.labels_elements:
            values = self.alphabet.to(self.x)
            labels += [values[self.integers(len(values), self.x.shape)] for _ in range(6)]
        else:
            count = min(_PROBES, len(self.alphabet))
            spread = torch.linspace(0, len(self.alphabet) - 1, count, dtype=torch.float64, device="cpu").round().long()
            labels += [value.expand(self.x.shape) for value in self.alphabet[spread.to(self.device)].to(self.x)]
        return torch.stack(labels, 1)


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
        return int(min(max(OPERATIONS / work / 8, LEAST), MOST if self.thorough else MOST // 5))

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

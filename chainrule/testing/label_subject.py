"""A model of labels under examination: a copy in float64, and inputs to try on it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.base import AutoregressiveModel, Context, LikelihoodModel
from chainrule.state import expand, leaves, map_state, select
from chainrule.testing.choices import Choices
from chainrule.testing.contract_check import Check, check_context, check_lengths, make_check
from chainrule.testing.subject import ROWS, Violation, device_of, independent_copy
from chainrule.testing.support import finite_support

_PROBES = 16  # values of y at most, at which answers are compared


class LabelSubject(Choices):
    """A copy of a model of p(y | x) that may be changed at will, with a few rows.

    Attributes:
        model: the copy, float64, in evaluation mode, on the device of the original.
        original: the model itself.
        y: (B, ...) labels, or (B, T) one for each element, 2 to `ROWS` rows.
        context: the inputs x of those rows.
        lengths: the caller's, or `None`.
    """

    def __init__(self, model: LikelihoodModel, y: Tensor, context: Context, lengths: Tensor | None, seed: int):
        super().__init__(seed, device_of(model))
        self.model, self.original = independent_copy(model), model
        rows = torch.arange(max(2, min(ROWS, len(y)))) % len(y)

        def row(leaf: Tensor) -> Tensor:
            leaf = leaf.detach().to(self.device)
            return leaf.double() if leaf.is_floating_point() else leaf

        self.y = row(y)[rows]
        self.context = select(expand(map_state(row, context), len(y)), rows.to(self.device))
        self.lengths = None if lengths is None else row(lengths)[rows]

    @property
    def rows(self) -> Tensor:
        """(B,) the numbers of the rows."""
        return torch.arange(len(self.y), device=self.device)

    def distribution(
        self, context: Context, lengths: Tensor | None = None, model: LikelihoodModel | None = None
    ) -> Distribution:
        """`forward`; the kind and shape of the answer is checked."""
        called: Any = model or self.model
        answer = called(context) if lengths is None else called(context, lengths)
        if not isinstance(answer, Distribution):
            raise Violation(f"forward: expected a torch Distribution, got {type(answer).__name__}")
        rows = leaves(context)[0].shape[0]
        if answer.batch_shape[:1] != (rows,):
            raise Violation(f"forward: expected batch shape (B, ...) = ({rows}, ...), got {tuple(answer.batch_shape)}")
        return answer

    @cached_property
    def answer(self) -> Distribution:
        """`forward` of the rows."""
        with torch.no_grad():
            return self.distribution(self.context, self.lengths)

    @cached_property
    def labels_elements(self) -> bool:
        """Whether there is a label for every element, and not one for the whole row."""
        return len(self.answer.event_shape) == 1 and self.answer.event_shape[0] == self.time

    @cached_property
    def alphabet(self) -> Tensor | None:
        """(K, ...) values of one label, where they can be listed."""
        if not self.labels_elements:
            return finite_support(self.answer)
        constraint: Any = getattr(self.answer.support, "base_constraint", None)
        if not getattr(constraint, "is_discrete", False):
            return None
        return torch.arange(constraint.lower_bound, constraint.upper_bound + 1, device=self.device)

    @cached_property
    def time(self) -> int:
        """T, the entries of the second axis of the first tensor in the context that has one; 0 where none has."""
        return next((leaf.shape[1] for leaf in leaves(self.context) if leaf.dim() > 1), 0)

    @cached_property
    def real(self) -> Tensor | None:
        """(B,) how many elements of each row are real; `None` where there is no way to say so."""
        if self.labels_elements:
            return torch.full_like(self.rows, self.time) if self.lengths is None else self.lengths
        given = self.context.get("lengths") if isinstance(self.context, dict) else None
        return given if isinstance(given, Tensor) and given.shape == (len(self.y),) else None

    def over_time(self, change: Callable[[Tensor], Tensor]) -> Context:
        """The context with every (B, T, ...) tensor changed."""

        def changed(leaf: Tensor) -> Tensor:
            return change(leaf) if leaf.dim() > 1 and leaf.shape[1] == self.time else leaf

        return map_state(changed, self.context)

    def shortened(self, context: Context, lengths: Tensor) -> tuple[Context, Tensor | None]:
        """A context and the `lengths` argument that say that rows have so many real elements."""
        if self.labels_elements:
            return context, lengths
        assert isinstance(context, dict)
        return {**context, "lengths": lengths}, None

    @cached_property
    def probes(self) -> list[Tensor]:
        """Values of y, batch first, by which answers are compared: the rows' own, and others in the support."""
        found = [self.y, self.y.roll(1, 0)]
        if self.alphabet is None:
            return [*found, *(self.answer.sample().reshape(self.y.shape).to(self.y) for _ in range(4))]
        values = self.alphabet.to(self.y)
        if self.labels_elements:
            return [*found, *(values[self.integers(len(values), self.y.shape)] for _ in range(6))]
        chosen = torch.linspace(0, len(values) - 1, min(_PROBES, len(values))).round().long()
        return [*found, *(value.expand(self.y.shape) for value in values[chosen.to(self.device)])]

    def numbers(
        self,
        context: Context,
        lengths: Tensor | None = None,
        *,
        probes: list[Tensor] | None = None,
        model: LikelihoodModel | None = None,
    ) -> Tensor:
        """(B, 1, P) `log_prob` of the probes, those of the subject by default."""
        probes = self.probes if probes is None else probes
        answers = [(model or self.model).log_prob(probe, context, lengths) for probe in probes]
        for answer in answers:
            if tuple(answer.shape) != (len(probes[0]),):
                raise Violation(f"log_prob: expected shape (B,) = ({len(probes[0])},), got {tuple(answer.shape)}")
        return torch.stack(answers, -1).unsqueeze(1)

    def row_numbers(self, rows: Tensor, *, model: LikelihoodModel | None = None) -> Tensor:
        """`numbers` of some of the rows, with their own inputs."""
        lengths = None if self.lengths is None else self.lengths[rows]
        return self.numbers(select(self.context, rows), lengths, probes=self.cut(rows), model=model)

    def cut(self, rows: Tensor, length: int | None = None) -> list[Tensor]:
        """The probes of some rows, where elements are labelled up to a length."""
        probes = [probe[rows] for probe in self.probes]
        return [probe[:, :length] for probe in probes] if self.labels_elements else probes


def label_check(body: Callable[[LabelSubject], str]) -> Check[LikelihoodModel]:
    """Make a check of a function that examines a `LabelSubject`; see `make_check`."""
    return make_check(body, LabelSubject, check_label_arguments)


def check_label_arguments(model: LikelihoodModel, y: Tensor, context: Context, lengths: Tensor | None) -> None:
    """Raise ValueError for arguments that no model of labels could be checked with."""
    if not isinstance(model, LikelihoodModel) or isinstance(model, AutoregressiveModel):
        raise ValueError(f"model: expected a LikelihoodModel of labels, got {type(model).__name__}")
    if not isinstance(y, Tensor) or y.dim() < 1 or not len(y):
        got = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        raise ValueError(f"y: expected a tensor of shape (B, ...) with B >= 1, got {got}")
    if not leaves(context):
        raise ValueError("context: expected the inputs that the labels are given, got none")
    check_context(context, len(y))
    if lengths is not None:
        if y.dim() < 2:
            raise ValueError("lengths: expected None where a row has one label; put those of inputs into the context")
        check_lengths(lengths, len(y), y.shape[1])

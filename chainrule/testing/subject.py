"""The model under examination: a copy in float64, and inputs to try on it."""

import copy
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule.base import AutoregressiveModel, Context, length_mask
from chainrule.state import expand, map_state, select
from chainrule.testing.choices import Choices
from chainrule.testing.leaves import hidden_tensors
from chainrule.testing.support import finite_support, has_real_support
from chainrule.testing.values import probe_values, values
from chainrule.testing.visiting_order import InVisitingOrder, has_own_layout

ROWS = 4  # of the caller's batch: enough for rows that differ, few enough for a wide model
NUMBERS = 4_000_000  # of all conditionals of one pass: 32 MB
OPERATIONS = 5e9  # multiplications and additions of one pass: about a third of a second on one core

N = TypeVar("N", bound=nn.Module)


class Violation(Exception):  # noqa: N818 - an error of the model, not of the program
    """The rule is broken; the message says where."""


class DoesNotApply(Exception):  # noqa: N818 - no error at all
    """The rule says nothing about this model; the message says why."""


class Subject(Choices):
    """A copy of a model that may be changed at will, with a few rows of x.

    Attributes:
        model: the copy, float64, in evaluation mode, on the device of the original, seen in its visiting order.
        x: (B, T, ...) in visiting order, 2 to `ROWS` rows; what stood after `lengths` is replaced by real elements.
        context: the rows of the context, or `None`.
        lengths: the caller's, or `None`.
        given: (B, T, ...) all rows that the caller gave, in the caller's type, laid out as x.
        given_context: their context.
        own_type: the number type of the model.
    """

    def __init__(self, model: AutoregressiveModel, x: Tensor, context: Context, lengths: Tensor | None, seed: int):
        super().__init__(seed, device_of(model))
        self.model = independent_copy(model)
        self._original = model
        self.own_type = number_type(model)
        x = x.detach().to(self.device)
        if has_own_layout(self.model):
            x = _in_visiting_order(self.model, x)
            self.model = InVisitingOrder(self.model)
        own = x
        x = x.double() if x.is_floating_point() else x
        self.lengths = None if lengths is None else lengths.detach().to(self.device)
        if self.lengths is not None:
            x = _without_padding(x, self.lengths)
            own = x.to(own)  # by example: a type by name is widened here
            self.lengths = self.lengths[:ROWS]
        rows = torch.arange(max(2, min(ROWS, x.shape[0])), device=self.device) % x.shape[0]
        self.x = x[rows]
        self.given, self.given_context = own, None
        self.context = None
        if context is not None:
            self.given_context = expand(map_state(lambda leaf: leaf.detach().to(self.device), context), x.shape[0])
            self.context = select(expand(map_state(self._in_float64, context), x.shape[0]), rows)
        if x.shape[0] == 1:
            self.lengths = None if self.lengths is None else self.lengths[rows]
            self.x = torch.cat([self.x[:1], self.altered(self.x)[1:]])

    def copy(self, *, own_type: bool) -> AutoregressiveModel:
        """Another copy, in the number type of the original or in float64, seen in its visiting order."""
        twin = independent_copy(self._original, double=not own_type)
        return InVisitingOrder(twin) if has_own_layout(twin) else twin

    @property
    def rows(self) -> Tensor:
        """(B,) the numbers of the rows of x."""
        return torch.arange(self.x.shape[0], device=self.device)

    @property
    def time(self) -> int:
        return self.x.shape[1]

    def conditionals(
        self,
        x: Tensor,
        rows: Tensor | None = None,
        lengths: Tensor | None = None,
        model: AutoregressiveModel | None = None,
    ) -> Distribution:
        """`forward`, each row of x with the context of the given row; the kind and shape of the answer is checked."""
        distribution = (model or self.model)(x, self.context_of(rows), lengths)
        if not isinstance(distribution, Distribution):
            raise Violation(f"forward: expected a torch Distribution, got {type(distribution).__name__}")
        shape = tuple(distribution.batch_shape)
        if shape[:2] != tuple(x.shape[:2]):
            raise Violation(f"forward: expected batch shape (B, T) = {tuple(x.shape[:2])}, got {shape}")
        return distribution

    def context_of(self, rows: Tensor | None) -> Context:
        """The context of the given rows; of all rows of x by default."""
        return self.context if rows is None else select(self.context, rows)

    def _in_float64(self, leaf: Tensor) -> Tensor:
        leaf = leaf.detach().to(self.device)
        return leaf.double() if leaf.is_floating_point() else leaf

    @torch.no_grad()
    def forward(
        self,
        x: Tensor,
        rows: Tensor | None = None,
        lengths: Tensor | None = None,
        model: AutoregressiveModel | None = None,
    ) -> Tensor:
        """The conditionals of `forward` as numbers, (B, T, K)."""
        return self.values(self.conditionals(x, rows, lengths, model), 2)

    def values(self, distribution: Distribution, axes: int) -> Tensor:
        """A distribution of batch shape (B,) or (B, T) as numbers, (B, K) or (B, T, K)."""
        return values(distribution, self.probes, axes)

    @cached_property
    def probes(self) -> Tensor:
        """(K, ...) elements at which densities are compared."""
        return probe_values(self._given, self.x)

    @cached_property
    def elements(self) -> int:
        """How many elements one pass over the model may take: the wider the model and its conditionals, the fewer."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        numbers = self.values(self._given, 2).shape[-1]
        return int(min(max(OPERATIONS / (2 * parameters + 1), 1024), 16384, NUMBERS // numbers))

    @cached_property
    def shortens(self) -> bool:
        """Whether the model takes sequences shorter than x, as one of a fixed number of columns does not."""
        if self.time == 1 or self.model.sequence_length is not None:
            return False
        try:
            self.forward(self.x[:, :1])
        except Exception:
            return False
        return True

    def beginning(self, time: int) -> Tensor:
        """The first `time` elements of x; all of them where the model takes no shorter sequence."""
        return self.x[:, :time] if time < self.time and self.shortens else self.x

    @torch.no_grad()
    def altered(self, x: Tensor) -> Tensor:
        """Other elements from the same support, each different from the one in x where there is another."""
        if self.support is not None:
            return self._other_symbols(x, self.support)
        other = self._pool[self.integers(self._pool.shape[0], x.shape[:2])]
        if self._unbounded:
            spread = self._pool.std(0) + 1e-3
            scale = 10.0 ** (self.uniform(x.shape) * 2 - 1)  # a tenth of the spread to ten times as much
            other = other + self.normal(x.shape) * spread * scale
        return other

    @cached_property
    def support(self) -> Tensor | None:
        """Every value of an element, (K, ...) and in the type of x, where they can be listed."""
        support = finite_support(self._given)
        if support is None or support.shape[1:] != self.x.shape[2:]:
            return None
        return support.to(self.x)

    @cached_property
    def _pool(self) -> Tensor:
        """(N, ...) elements inside the support: those of x and some draws."""
        drawn = [self._given.sample().flatten(0, 1) for _ in range(4)]
        return torch.cat([self.x.flatten(0, 1), *drawn]).to(self.x)

    @cached_property
    def _unbounded(self) -> bool:
        return self.x.is_floating_point() and has_real_support(self._given)

    @cached_property
    def _given(self) -> Distribution:
        with torch.no_grad():
            return self.conditionals(self.x)

    @cached_property
    def extremes(self) -> tuple[Tensor, Tensor]:
        """Two elements at opposite ends of the support, or of what was drawn from it."""
        if self.support is not None:
            return self.support[0], self.support[-1]
        return self._pool.amin(0), self._pool.amax(0)

    def _other_symbols(self, x: Tensor, support: Tensor) -> Tensor:
        size = support.shape[0]
        first = self.integers(size, x.shape[:2])
        if size == 1:
            return support[first]
        second = (first + 1 + self.integers(size - 1, x.shape[:2])) % size
        same = (support[first] == x).view(*x.shape[:2], -1).all(2)
        return support[torch.where(same, second, first)]


def device_of(model: nn.Module) -> torch.device:
    return next(model.parameters(), next(model.buffers(), torch.empty(0, device="cpu"))).device


def number_type(model: nn.Module) -> torch.dtype:
    parts = [*model.parameters(), *model.buffers()]
    return next((part.dtype for part in parts if part.is_floating_point()), torch.float32)


def independent_copy(model: N, *, double: bool = True) -> N:
    """A deep copy in float64 and evaluation mode, without gradients; what is not registered is converted too.

    double: False leaves number types as they are.
    """
    graphs = {
        id(tensor): tensor.detach().clone()
        for tensor in hidden_tensors(model).values()
        if tensor.requires_grad and not tensor.is_leaf  # torch copies no tensor that hangs on a graph
    }
    twin = copy.deepcopy(model, graphs).eval()
    if double:
        twin = twin.double()
        for tensor in hidden_tensors(twin).values():
            if tensor.dtype in (torch.float16, torch.bfloat16, torch.float32):
                tensor.data = tensor.data.double()
    twin.zero_grad(set_to_none=True)
    return twin


def _in_visiting_order(model: AutoregressiveModel, x: Tensor) -> Tensor:
    sequence = model.to_sequence(x)
    again = model.from_sequence(sequence)
    if sequence.dim() != 2 or again.shape != x.shape or not ((again == x) | (again != again)).all():
        raise Violation(f"from_sequence(to_sequence(x)) is not x, or to_sequence(x) no (B, T): {tuple(sequence.shape)}")
    return sequence


def _without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    real = length_mask(lengths, x.shape[1])
    elements = x[real]
    fill = elements[torch.arange(int((~real).sum()), device=x.device) % elements.shape[0]]
    return x.masked_scatter((~real).view(real.shape + (1,) * (x.dim() - 2)).expand_as(x), fill)

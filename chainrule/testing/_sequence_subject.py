"""Subject for models of sequences: conditionals as numbers, and other elements from the support."""

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import length_mask
from chainrule._executor import Executor, Step
from chainrule.heads import Categorical, Head
from chainrule.heads._adapter import head_of
from chainrule.heads._head import WrappedHead, broadcast_shapes
from chainrule.modes import device_of
from chainrule.state import State, expand, map_state, select
from chainrule.testing._agreement import PLAIN, finite_support, has_real_support, probe_values, values
from chainrule.testing._subject import (
    OPERATIONS,
    Batch,
    DoesNotApply,
    Subject,
    Violation,
    filled,
    independent_copy,
)

NUMBERS = 4_000_000  # maximum size of the conditionals of one pass: 32 MB
LONGEST = 16  # elements per row in the checks of padding, batches and gradients
SHORTEST = 3  # recurrent weights get no gradient at the initial state


def has_own_layout(model: AutoregressiveModel) -> bool:
    """Return true if x is not in visiting order, and the model converts between the two."""
    base = AutoregressiveModel
    return type(model).to_sequence is not base.to_sequence or type(model).from_sequence is not base.from_sequence


class InVisitingOrder(AutoregressiveModel):
    """Wrapper that shows a model with its own layout as a model of sequences x_1 ... x_T in visiting order."""

    def __init__(self, model: AutoregressiveModel):
        super().__init__()
        self.model = model
        self.sequence_length = model.sequence_length

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Distribution:
        layout = self.model.from_sequence(x)
        conditionals = self.model(layout, context, lengths)
        if not isinstance(conditionals, Distribution) or conditionals.batch_shape != layout.shape:
            return conditionals  # the caller reports the violation
        if type(conditionals).log_prob in PLAIN:
            assert isinstance(conditionals, distributions.Categorical)
            symbols = conditionals.logits.movedim(-1, 0)  # to_sequence reorders elements: apply it per symbol
            rows = self.model.to_sequence(symbols.flatten(0, 1))
            return Categorical(rows.reshape(len(symbols), *x.shape).movedim(0, -1))
        return Visited(head_of(conditionals), self.model, x.shape)

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        return self.model.initial_state(batch_size, context)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self.model.step(x_prev, state)

    def prepare(self) -> Executor:
        return self.model.prepare()

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.model.unroll(x, state, x_prev)

    def useful_prefix(self, drawn: int) -> int | None:
        return self.model.useful_prefix(drawn)

    def visible_past(self, length: int) -> Tensor:
        return self.model.visible_past(length)

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        return self.model.log_prob(self.model.from_sequence(x), context, lengths)

    def sample(self, *arguments: Any, **options: Any) -> Tensor:
        return self.model.to_sequence(self.model.sample(*arguments, **options))

    def stream(self, *arguments: Any, **options: Any) -> Iterator[Tensor]:
        return self.model.stream(*arguments, **options)


class Visited(WrappedHead):
    """Head that reorders conditionals in the model's layout to sequences (B, T)."""

    def __init__(self, conditionals: Head, model: AutoregressiveModel, shape: torch.Size):
        self.conditionals, self.model = conditionals, model
        super().__init__(conditionals, shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log p of each element, (..., B, T), nats; value (..., B, T) broadcasts against the batch shape."""
        value = value.expand(broadcast_shapes(value.shape, self._batch_shape))
        layout = self.model.from_sequence(value.reshape(-1, value.shape[-1]))
        terms = self.conditionals.log_prob(layout.view(*value.shape[:-1], *layout.shape[1:]))
        return self.model.to_sequence(terms.reshape(layout.shape)).reshape(value.shape)

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        drawn = self.conditionals.sample(sample_shape, generator=generator)
        rows = drawn.reshape(-1, *self.conditionals.batch_shape[1:])
        return self.model.to_sequence(rows).reshape(torch.Size(sample_shape) + self._batch_shape)


class Taken(NamedTuple):
    """Record of a step: the conditional as numbers (B, K), the arguments, and the following state."""

    numbers: Tensor
    x_prev: Tensor | None
    state: State
    following: State


class SequenceSubject(Subject[AutoregressiveModel]):
    """Subject for an autoregressive model in its visiting order.

    Attributes:
        x: (B, T, ...) in visiting order, with padding replaced by real elements.
        full_batch: all rows of the caller in the caller's dtype, in visiting order.
    """

    models, named, adds_up = AutoregressiveModel, "an AutoregressiveModel", True

    def __init__(self, model: AutoregressiveModel, x: Tensor, context: Context, lengths: Tensor | None, seed: int):
        x = x.detach().to(device_of(model))
        if has_own_layout(model):
            x = _in_visiting_order(model, x)
        if lengths is not None:
            x = _without_padding(x, lengths.to(x.device))
        super().__init__(model, x, context, None, seed)
        self.model = _reordered(self.model)
        self.full_batch = Batch(x, expand(map_state(lambda leaf: leaf.detach().to(self.device), context), len(x)))
        if len(x) == 1:
            self.x = torch.cat([self.x[:1], self.altered(self.x)[1:]])

    @classmethod
    def time_of(cls, model: AutoregressiveModel, x: Tensor) -> int:
        return model.to_sequence(x).shape[1]

    def copy(self, *, own_type: bool) -> AutoregressiveModel:
        """Return another copy, in the dtype of the original or in float64, in visiting order."""
        return _reordered(independent_copy(self.original, double=not own_type))

    @property
    def time(self) -> int:
        return self.x.shape[1]

    def batch(self, time: int | None = None) -> Batch:
        return self.of(self.x if time is None else self.beginning(time))

    def numbers(self, batch: Batch, model: AutoregressiveModel | None = None) -> Tensor:
        return self.values(self.conditionals(batch, model), 2)

    def totals(self, batch: Batch, model: AutoregressiveModel | None = None) -> Tensor:
        totals = (model or self.model).log_prob(*batch)
        if tuple(totals.shape) != (len(batch.x),):
            raise Violation(f"log_prob: expected shape (B,) = ({len(batch.x)},), got {tuple(totals.shape)}")
        return totals.view(-1, 1, 1)

    def further(self, batch: Batch, model: AutoregressiveModel | None = None, *, steps: int = 2) -> dict[str, Tensor]:
        model = model or self.model
        stepped = self.step_numbers(batch._replace(x=batch.x[:, :steps]), model)
        unrolled, _ = model.unroll(batch.x, model.initial_state(len(batch.x), batch.context))
        return {"step": stepped, "unroll": self.values(unrolled, 2)}

    def step_numbers(self, batch: Batch, model: AutoregressiveModel | None = None, step: Step | None = None) -> Tensor:
        """Return the conditionals of successive steps, (B, T, K)."""
        return torch.stack([taken.numbers for taken in self.stepped(batch, model, step)], 1)

    def stepped(
        self, batch: Batch, model: AutoregressiveModel | None = None, step: Step | None = None
    ) -> Iterator[Taken]:
        """Yield successive steps over the rows, by `step` or a prepared step."""
        model, x = model or self.model, batch.x
        state, x_prev = model.initial_state(len(x), batch.context), None
        for t in range(x.shape[1]):
            conditional, following = (step or model.step)(x_prev, state)
            if tuple(conditional.batch_shape[:1]) != (len(x),):
                shape = tuple(conditional.batch_shape)
                raise Violation(f"step: expected a distribution of batch shape (B,) = ({len(x)},), got {shape}")
            yield Taken(self.values(conditional, 1), x_prev, state, following)
            state, x_prev = following, x[:, t]

    def of(self, x: Tensor, rows: Tensor | None = None, lengths: Tensor | None = None) -> Batch:
        """Combine x with the contexts of the given rows; default all rows."""
        return Batch(x, self.context if rows is None else select(self.context, rows), lengths)

    def conditionals(self, batch: Batch, model: AutoregressiveModel | None = None) -> Distribution:
        """Call `forward`, and check the type and shape of the result."""
        distribution = (model or self.model)(*batch)
        if not isinstance(distribution, Distribution):
            raise Violation(f"forward: expected a torch Distribution, got {type(distribution).__name__}")
        shape = tuple(distribution.batch_shape)
        if shape[:2] != tuple(batch.x.shape[:2]):
            raise Violation(f"forward: expected batch shape (B, T) = {tuple(batch.x.shape[:2])}, got {shape}")
        return distribution

    def values(self, distribution: Distribution, axes: int) -> Tensor:
        """Convert a distribution of batch shape (B,) or (B, T) to numbers, (B, K) or (B, T, K)."""
        return values(distribution, self.probes, axes)

    @torch.no_grad()
    def takes(self, x: Tensor, lengths: Tensor | None = None, model: AutoregressiveModel | None = None) -> bool:
        """Return true if the model accepts x, for example of another length."""
        try:
            self.numbers(self.of(x, lengths=lengths), model)
        except Exception:
            return False
        return True

    def draws(self, generator: torch.Generator) -> dict[str, Tensor]:
        rows, time = self.rows.repeat(8), self.beginning(12).shape[1]
        return {"sample": self.model.sample(len(rows), select(self.context, rows), length=time, generator=generator)}

    def chance_of(self, draws: dict[str, Tensor]) -> float:
        x = draws["sample"]
        if self.support is None and x.is_floating_point():
            return 0.0
        if not self.shortens and x.shape[1] != self.time:
            return 1.0
        return float(self.conditionals(self.of(x, self.rows.repeat(8))).log_prob(x).sum().exp())

    def objectives(self, model: AutoregressiveModel) -> Iterator[tuple[str, Tensor]]:
        if self.support is not None and len(self.support) == 1:
            raise DoesNotApply("the support is a single value, which always has probability 1")
        x = self.beginning(LONGEST)
        longer = torch.cat([x] * SHORTEST, 1)[:, :SHORTEST]
        x = longer if x.shape[1] < SHORTEST and self.takes(longer) else x
        x = x if model is self.model else self.altered(x)
        yield "log_prob", model.log_prob(x, self.context).sum()
        yield "unroll", model.unroll(x, model.initial_state(len(x), self.context))[0].log_prob(x).sum()

    def arranged(self, batch: Batch, rows: Tensor, changed: Tensor) -> Batch:
        batch = batch.rows(rows)
        return batch._replace(x=filled(self.altered(batch.x), batch.x, changed.unsqueeze(1)))

    def cut(self, batch: Batch, length: int) -> Batch | None:
        return self.of(batch.x[:, :length])

    def paddings(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        x, real = batch.x, length_mask(self.ends(batch), batch.x.shape[1])
        paddings = {"other elements": self.altered(x)}
        if x.is_floating_point():
            paddings |= {name: torch.full_like(x, float(name)) for name in ("nan", "inf")}
        elif x.dtype != torch.bool:
            info = torch.iinfo(x.dtype)
            symbols = (max(-1, info.min), info.max // 2)
            paddings |= {f"the symbol {symbol}": torch.full_like(x, symbol) for symbol in symbols}
        return ((name, batch._replace(x=filled(x, padding, real))) for name, padding in paddings.items())

    def shortened(self) -> Iterator[tuple[Batch, Batch]]:
        if self._conditionals.batch_shape[1] > 1 and not self.shortens:  # raises here if the model rejects x
            raise DoesNotApply(f"the model takes sequences of {self.time} elements only")
        for x in {time: self.beginning(time) for time in (min(LONGEST, self.time), self.time)}.values():
            time = x.shape[1]
            lengths = torch.tensor([0, time, max(time // 2, 1), 1], device=self.device)[: len(x)]
            if len(lengths) == 2:
                lengths[1] = max(time - 1, 1)
            yield self.of(x), self.of(x, lengths=lengths)

    @cached_property
    def probes(self) -> Tensor:
        """Elements at which densities are compared, (K, ...)."""
        return probe_values(self._conditionals, self.x)

    @cached_property
    def elements(self) -> int:
        """Maximum number of elements per pass, smaller for wide models and large conditionals."""
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        numbers = self.values(self._conditionals, 2).shape[-1]
        most = 16384 if self.thorough else 4096
        return int(min(max(OPERATIONS / (2 * parameters + 1), 1024), most, NUMBERS // numbers))

    @cached_property
    def shortens(self) -> bool:
        """True if the model accepts sequences shorter than x."""
        return self.time > 1 and self.model.sequence_length is None and self.takes(self.x[:, :1])

    def beginning(self, time: int) -> Tensor:
        """Return the first `time` elements of x, or all if the model accepts no shorter sequence."""
        return self.x[:, :time] if time < self.time and self.shortens else self.x

    @torch.no_grad()
    def altered(self, x: Tensor) -> Tensor:
        """Return other elements of the support, each different from the element in x if possible."""
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
        """Every value of an element, (K, ...) in the dtype of x, or `None` if they cannot be listed."""
        support = finite_support(self._conditionals)
        if support is None or support.shape[1:] != self.x.shape[2:]:
            return None
        return support.to(self.x)

    @cached_property
    def _pool(self) -> Tensor:
        """Elements of the support, (N, ...): elements of x and some draws."""
        drawn = [self._conditionals.sample().flatten(0, 1) for _ in range(4)]
        return torch.cat([self.x.flatten(0, 1), *drawn]).to(self.x)

    @cached_property
    def _unbounded(self) -> bool:
        return self.x.is_floating_point() and has_real_support(self._conditionals)

    @cached_property
    def _conditionals(self) -> Distribution:
        with torch.no_grad():
            return self.conditionals(self.batch())

    @cached_property
    def extremes(self) -> tuple[Tensor, Tensor]:
        """Two elements at opposite ends of the support, or of draws from it."""
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


def _reordered(model: AutoregressiveModel) -> AutoregressiveModel:
    return InVisitingOrder(model) if has_own_layout(model) else model


def _in_visiting_order(model: AutoregressiveModel, x: Tensor) -> Tensor:
    sequence = model.to_sequence(x)
    again = model.from_sequence(sequence)
    if sequence.dim() != 2 or again.shape != x.shape or not ((again == x) | (again != again)).all():
        raise Violation(
            f"from_sequence(to_sequence(x)) is not x, or to_sequence(x) is not (B, T): {tuple(sequence.shape)}"
        )
    return sequence


def _without_padding(x: Tensor, lengths: Tensor) -> Tensor:
    real = length_mask(lengths, x.shape[1])
    elements = x[real]
    fill = elements[torch.arange(int((~real).sum()), device=x.device) % elements.shape[0]]
    return x.masked_scatter((~real).view(real.shape + (1,) * (x.dim() - 2)).expand_as(x), fill)

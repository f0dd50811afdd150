"""A model prepared for steps with weights that stay as they are, and the loop that draws from it."""

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._checks import check_prefix
from chainrule.heads._adapter import CompiledStep, Draw, compiled_draws, recorded_draws
from chainrule.kernels._compiled import FEW, READ, RECORDED, first_compiled
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Rows

Step = Callable[[Tensor | None, State], tuple[Distribution, State]]
Unroll = Callable[[Tensor, State, Tensor | None], tuple[Distribution, State]]


class Stepping(Protocol):
    """What an executor needs of an `AutoregressiveModel`."""

    @property
    def sequence_length(self) -> int | None: ...

    def initial_state(self, batch_size: int, context: Any = None) -> State: ...

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]: ...

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]: ...


class Executor:
    """A model prepared for sampling and search, while its weights do not change.

    `step` equals the model's in evaluation, which is the default. It may write behind the states that it returned, but
    each of them stays valid.
    """

    def __init__(self, model: Stepping, step: Step | None = None):
        self.model, self.step = model, step or model.step

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        return self.model.unroll(x, state, x_prev)

    def unroll_for(self, count: int) -> Unroll:
        """`unroll` for so many symbols in all, without gradients, in compiled loops if they pay for loading."""
        return self.unroll if count < READ or self.compiled_unroll is None else self.compiled_unroll

    @cached_property
    def compiled_unroll(self) -> Unroll | None:
        """`unroll` in compiled loops, without gradients; None without any."""
        return None

    def compiled_rows(self) -> "Rows | None":
        """The model's sequences of symbols in compiled loops; None without any."""
        return None

    def step_for(self, count: int | None) -> Step:
        """`step` for so many elements, or any number, in compiled loops for up to 16 rows if they pay for loading."""
        rows = None if first_compiled(self.saved, count) is None else self.compiled_rows()
        return self.step if rows is None or not rows.steps else CompiledStep(rows, self.step)

    def fixed(self, state: State) -> tuple[Step, State] | None:
        """A step that keeps nothing outside its state, and the state in the shape that it keeps; None without any."""
        return None

    @property
    def saved(self) -> float:
        """Estimate of the seconds that compiled loops save per element, from the model alone; 0 without any."""
        return 0.0

    def draws(
        self, n: int, context: State, prefix: Tensor | None, pick: Draw, count: int | None = None
    ) -> Iterator[Tensor]:
        """The elements (n,) that follow a prefix (n, P, ...), each as `pick` draws it; `count` are needed, or all."""
        x_prev, known = None, 0 if prefix is None else prefix.shape[1]
        with torch.no_grad():
            state = self.model.initial_state(n, context)
            if prefix is not None and known:
                conditionals, state = self.unroll(prefix, state)
                check_prefix(conditionals, prefix)
                x_prev = prefix[:, -1]
        rest = None if (length := self.model.sequence_length) is None else length - known
        first = first_compiled(self.saved, rest if count is None else count) if n <= FEW else None
        for drawn in itertools.count() if rest is None else range(rest):
            if drawn == first:
                with torch.no_grad():
                    rows = self.compiled_rows()
                if rows is not None and (n == 1 or rows.steps):
                    yield from itertools.islice(compiled_draws(rows, state, x_prev, pick), rest and rest - drawn)
                    return
            elif drawn == RECORDED and x_prev is not None and x_prev.is_cuda and rest is None:
                yield from recorded_draws(self.fixed(state), x_prev, pick)
            with torch.no_grad():  # entered for each element: a generator must not leak it to its caller
                conditional, state = self.step(x_prev, state)
                x_prev = pick(conditional)
            yield x_prev

    def rows(
        self, n: int, count: int, context: State, prefix: Tensor | None, pick: Draw, eos: int | None = None
    ) -> Tensor:
        """Return the elements after a prefix as `draws` gives them, (n, count, ...), `eos` after the first of a row."""
        elements: list[Tensor] = []
        last = prefix[:, -1] if prefix is not None and prefix.shape[1] > 0 else None
        for drawn in itertools.islice(self.draws(n, context, prefix, pick, count), count):
            if eos is not None and last is not None:
                drawn = torch.where(last == eos, eos, drawn)
            last = drawn
            elements.append(drawn)
            if eos is not None and bool((drawn == eos).all()):
                elements += [drawn] * (count - len(elements))
                break
        # Rows of elements first: writing them one by one into columns takes several times as long.
        return torch.stack(elements).transpose(0, 1).contiguous()

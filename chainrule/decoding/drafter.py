"""Guesses of the next elements, from the cached states of a cheaper model."""

from collections.abc import Callable

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context
from chainrule.heads import Categorical, head_of
from chainrule.modes import evaluating
from chainrule.state import State

Filter = Callable[[Categorical], Categorical]


class Drafter:
    """Draws guesses from a draft model, and goes back to where they were right.

    Args:
        model: the draft, over the symbols of the model that verifies.
        n: rows.
        context: of the rows.
        filtered: temperature and the like, those of the model that verifies.
        symbols: V.

    Raises:
        ValueError: the draft is over other symbols.
    """

    def __init__(self, model: AutoregressiveModel, n: int, context: Context, filtered: Filter, symbols: int):
        self._model, self._filtered, self._position = model, filtered, 0
        with evaluating(model):
            self._step = model.stepper()
            self._states: list[State] = [model.initial_state(n, context)]  # before the elements from `_position` on
            first = _table(head_of(self._step(None, self._states[0])[0]).categorical())
        if first.param_shape[-1] != symbols:
            raise ValueError(f"draft: expected a model of {symbols} symbols, got one of {first.param_shape[-1]}")

    def guess(self, x: Tensor, known: Tensor, begin: int, noise: Tensor) -> list[Categorical]:
        """Write guesses into x where a row is not known yet.

        Args:
            x: (n, length), all rows known before `begin`.
            known: (n,) elements of each row that are known.
            begin: the first position of a guess.
            noise: (n, G, V) of G positions.

        Returns:
            The distributions that the guesses were drawn from, (n,) at each position.
        """
        with evaluating(self._model):
            return self._guessed(x, known, begin, noise)

    def _guessed(self, x: Tensor, known: Tensor, begin: int, noise: Tensor) -> list[Categorical]:
        state, tables, furthest = self._state_at(begin, x), list[Categorical](), int(known.max())
        self._states, self._position = [state], begin
        for t in range(begin, begin + noise.shape[1]):
            conditional, state = self._step(x[:, t - 1] if t else None, state)
            self._states.append(state)
            table = self._filtered(_table(head_of(conditional).categorical()))
            drawn = table.sample_at(noise[:, t - begin])
            x[:, t] = drawn if t >= furthest else torch.where(known > t, x[:, t], drawn)
            tables.append(table)
        return tables

    def _state_at(self, begin: int, x: Tensor) -> State:
        """The state before x[:, begin]. Those kept have read guesses that turned out right, up to the one before it."""
        kept = min(begin - self._position, len(self._states) - 1)
        state, position = self._states[kept], self._position + kept
        if position == begin:
            return state
        return self._model.unroll(x[:, position:begin], state, x[:, position - 1] if position else None)[1]


def _table(table: Categorical | None) -> Categorical:
    if table is None:
        raise ValueError("draft: expected a model over symbols, got one over numbers")
    return table

"""The mean of several models of the same sequences, what their ensembles and mixtures have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context, Step
from chainrule.heads import Head
from chainrule.heads._computed_categorical import mean_of
from chainrule.kernels._compiled import compiled_loops
from chainrule.layers._sequence_layer import is_plain
from chainrule.state import State

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Scores


class ModelMean(AutoregressiveModel):
    r"""The mean of the conditionals of K models, each with a state of its own.

    .. math:: p(x_t \mid x_{<t}, c) = \sum_{k=1}^{K} w_k\, p_k(x_t \mid x_{<t}, c)

    A subclass names the models, and their weights where these differ. A step costs what the steps of all cost.
    """

    @property
    @abstractmethod
    def parts(self) -> Sequence[AutoregressiveModel]:
        """The K models."""

    @property
    def log_weights(self) -> Tensor | None:
        """(K,) log w; None where all weights are 1/K."""
        return None

    def check_parts(self, names: Sequence[str]) -> None:
        """Take the length of the models' sequences.

        Raises:
            ValueError: one has an order of its elements that is not their layout, or the lengths differ; the message
                begins with the name of an argument.
        """
        for name, part in zip(names, self.parts, strict=True):
            if type(part).to_sequence is not AutoregressiveModel.to_sequence:
                raise ValueError(f"{name}: expected models of sequences (B, T), got {type(part).__name__}")
        lengths = {part.sequence_length for part in self.parts}
        if len(lengths) > 1:
            raise ValueError(
                f"{names[-1]}: expected one length of sequences, got {', '.join(sorted(map(str, lengths)))}"
            )
        self.sequence_length = lengths.pop()

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Head:
        return self._mean([part(x, context, lengths) for part in self.parts])

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """The states of all."""
        return tuple(part.initial_state(batch_size, context) for part in self.parts)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Head, State]:
        return self._together(part.step(x_prev, own) for part, own in self._each(state))

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Head, State]:
        return self._together(part.unroll(x, own, x_prev) for part, own in self._each(state))

    def stepper(self) -> Step:
        steps = [part.stepper() for part in self.parts]
        return lambda x_prev, state: self._together(step(x_prev, own) for step, own in zip(steps, state, strict=True))

    def compiled_scores(self, state: State) -> "Scores | None":
        weights = self.log_weights
        loops = compiled_loops(torch.empty(0) if weights is None else weights)
        scores = [part.compiled_scores(own) for part, own in self._each(state)] if loops is not None else [None]
        if loops is None or not is_plain(self) or None in scores:
            return None
        shares = [1 / len(scores)] * len(scores) if weights is None else weights.exp().tolist()
        mean: Scores = loops.mean_scores(scores, shares)
        return mean

    def shared(self, state: State) -> State:
        return tuple(part.shared(own) for part, own in self._each(state))

    def visible_past(self, length: int) -> Tensor:
        """Elements that any of them sees."""
        return torch.stack([part.visible_past(length) for part in self.parts]).any(0)

    def useful_prefix(self, drawn: int) -> int | None:
        """As many as matter to any of them."""
        useful = [part.useful_prefix(drawn) for part in self.parts]
        return None if None in useful else max(number for number in useful if number is not None)

    def _each(self, state: State) -> Iterator[tuple[AutoregressiveModel, State]]:
        """Each model with its own state."""
        return zip(self.parts, state, strict=True)

    def _together(self, answers: Iterable[tuple[Distribution, State]]) -> tuple[Head, State]:
        """The mean of the conditionals, and the states of all."""
        conditionals, after = zip(*answers, strict=True)
        return self._mean(conditionals), after

    def _mean(self, conditionals: Sequence[Distribution]) -> Head:
        return mean_of(conditionals, self.log_weights)


def first_part(model: AutoregressiveModel, state: State = None) -> tuple[AutoregressiveModel, State]:
    """The network of a mixture, or the first member of an ensemble, and its part of the state.

    For those that look inside one model; a model that is no mean is its own part.
    """
    while isinstance(model, ModelMean):
        model, state = model.parts[0], None if state is None else state[0]
    return model, state

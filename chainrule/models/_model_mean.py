"""The mean of several models of the same sequences, what their ensembles and mixtures have in common."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule._base import AutoregressiveModel, Context
from chainrule.heads import Head
from chainrule.heads._computed_categorical import mean_of
from chainrule.models._executors import MeanExecutor
from chainrule.state import State


class ModelMean(AutoregressiveModel):
    r"""The mean of the conditionals of K models, each with a separate state.

    .. math:: p(x_t \mid x_{<t}, c) = \sum_{k=1}^{K} w_k\, p_k(x_t \mid x_{<t}, c)

    A subclass names the models, and their weights if these differ. A step takes the steps of all models.
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
        """Take the length of the models' sequences."""
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
        """Return the states of all models."""
        return tuple(part.initial_state(batch_size, context) for part in self.parts)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Head, State]:
        return self.together(part.step(x_prev, own) for part, own in self._each(state))

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Head, State]:
        return self.together(part.unroll(x, own, x_prev) for part, own in self._each(state))

    def prepare(self) -> MeanExecutor:
        return MeanExecutor(self)

    def visible_past(self, length: int) -> Tensor:
        """Elements that any of them sees."""
        return torch.stack([part.visible_past(length) for part in self.parts]).any(0)

    @property
    def reach(self) -> int | None:
        """The longest reach of the models."""
        reaches = [part.reach for part in self.parts]
        return None if None in reaches else max(reach for reach in reaches if reach is not None)

    @property
    def positions_end(self) -> int | None:
        """The smallest number of positions of the models."""
        return min((part.positions_end for part in self.parts if part.positions_end is not None), default=None)

    def _each(self, state: State) -> Iterator[tuple[AutoregressiveModel, State]]:
        """Pair each model with its own state."""
        return zip(self.parts, state, strict=True)

    def together(self, answers: Iterable[tuple[Distribution, State]]) -> tuple[Head, State]:
        """Return the mean of the conditionals, and the states of all."""
        conditionals, after = zip(*answers, strict=True)
        return self._mean(conditionals), after

    def _mean(self, conditionals: Sequence[Distribution]) -> Head:
        return mean_of(conditionals, self.log_weights)


def first_part(model: AutoregressiveModel, state: State = None) -> tuple[AutoregressiveModel, State]:
    """Return the network of a mixture, or the first member of an ensemble, and its part of the state.

    For those that look inside one model; a model that is no mean is its own part.
    """
    while isinstance(model, ModelMean):
        model, state = model.parts[0], None if state is None else state[0]
    return model, state
